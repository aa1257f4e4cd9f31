//! State of screen 4: indexed traces, the window onto them, the cursor, the search.
//!
//! An `index` of a trace, made by `build`, consists of `row`s; a `pane` shows one index, a `view` one or two panes. The
//! methods of a view are in `view` (window and cursor), `search`, `go` (targets, dependencies, critical paths), `select`
//! (selection, marks), `align` (two traces) and `levels` (closed by Escape). A `panel` is a list below the lanes.

pub mod align;
mod build;
pub mod go;
pub mod index;
pub mod levels;
pub mod measure;
pub mod pane;
pub mod panel;
pub mod prediction;
pub mod row;
pub mod search;
pub mod select;
pub mod view;
pub mod window;

pub use index::{TraceIndex, TraceLine};
pub use pane::Pane;
pub use search::Matches;
pub use view::{KeptTimeline, Timeline, TimelineView};

#[cfg(test)]
mod tests;
