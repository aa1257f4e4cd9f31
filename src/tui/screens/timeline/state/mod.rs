//! State of screen 4: traces, indexed; the window onto them; the cursor; the search.
//!
//! `build` makes an `index` of a trace out of `row`s, `ranges` and `cover`s; a `pane` shows one index,
//! a `view` one or two panes.

mod build;
pub mod cover;
pub mod index;
pub mod pane;
pub mod ranges;
pub mod row;
mod screen;
pub mod search;
pub mod view;
pub mod window;

#[cfg(test)]
mod tests;

pub use index::{Line, TraceIndex};
pub use pane::{Pane, Part};
pub use screen::Timeline;
pub use search::Matches;
pub use view::View;
