//! Common imports of screens, overlays and widgets: `use super::prelude::*`.

pub use crossterm::event::{KeyCode, KeyEvent};
pub use ratatui::buffer::Buffer;
pub use ratatui::layout::{Position, Rect};
pub use ratatui::style::{Modifier, Style};
pub use unicode_width::UnicodeWidthStr;

pub(super) use super::action::acts;
pub use super::context::{Context, Opening, Request, SelectedRun};
pub use super::format::{cut, digits, ns, percent};
pub use super::layout::{centered, cut_bottom, cut_left, cut_top, inside};
pub use super::message::{Effect, StoreTask};
pub use super::paper::Subject;
pub use super::pick::{Chosen, Pick};
pub use super::prompt::{Completing, Prompt};
pub use super::screen::{
    Acts, Command, Export, FileKind, Hints, Input, Kept, NO_COMMAND, News, Pointer, PointerKind, Screen,
    ScreenList, ScreenStatus, Selection,
};
pub use super::snapshot::Snapshot;
pub use super::state::{State, Tab};
pub use super::theme::{Role, Theme};
pub use super::widgets::field::FilterBox;
pub use super::widgets::list::{List, next_of};
pub use super::widgets::paint::{empty, frame, line, popup, put, select, wrap};
pub use base::text::counted;
