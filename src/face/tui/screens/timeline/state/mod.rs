//! State of screen 4: indexed traces, the window onto them, the cursor, the search.
//!
//! `build` makes an `index` of a trace out of `row`s, `ranges` and `cover`s; a `pane` shows one index, a
//! `view` one or two panes. The methods of a view are in `view` (window and cursor), `find` (search),
//! `go` (targets, dependencies, critical paths), `select` (selection and marks) and `align` (two
//! traces). A `panel` is a list below the lanes; its tables cover a `scope`.

mod align;
mod build;
pub mod cover;
mod find;
mod go;
mod history;
pub mod index;
pub mod measure;
pub mod overview;
pub mod pane;
pub mod panel;
pub mod path;
pub mod prediction;
pub mod ranges;
pub mod row;
pub mod scope;
mod screen;
pub mod search;
pub mod select;
pub mod table;
pub mod target;
pub mod view;
pub mod window;

#[cfg(test)]
mod tests;

pub use index::{Line, TraceIndex};
pub use pane::Pane;
pub use screen::{KeptTimeline, Timeline};
pub use search::Matches;
pub use view::View;
