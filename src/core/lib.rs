//! The core of Ladderscope: what plans, executes and records tensor-parallel decoding.
//!
//! It knows no experiment, figure or screen: those are wings of the crate `ladderscope`, which lie beside the core's in
//! `src`. As a crate of its own it is compiled to machine code while the types of the other are checked, and development
//! builds optimise it alone.

#[path = "../base/mod.rs"]
pub mod base;
#[path = "../machine/mod.rs"]
pub mod machine;
#[path = "../model/mod.rs"]
pub mod model;
#[path = "../plan/mod.rs"]
pub mod plan;
#[path = "../run/mod.rs"]
pub mod run;
#[path = "../table/mod.rs"]
pub mod table;
#[path = "../trace/mod.rs"]
pub mod trace;
