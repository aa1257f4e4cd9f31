//! Screen 2: the sweep that runs, or ran last.

mod draw;
pub mod state;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::{Action, Binding, bind};
use crate::tui::layout::{cut_bottom, cut_top};
use crate::tui::message::Effect;
use crate::tui::page::Page;
use crate::tui::state::{List, Question, State};
use crate::tui::update::{ask, open_records};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    OpenCell,
    CancelCell,
    CancelAll,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open-cell", "Enter", Action::Live(Act::OpenCell), "open the timeline of the cell's last run", Some("timeline")),
    bind("cancel-cell", "c", Action::Live(Act::CancelCell), "cancel the selected cell", Some("cancel cell")),
    bind("cancel-all", "C", Action::Live(Act::CancelAll), "cancel the sweep", Some("cancel all")),
];

/// The page.
#[derive(Debug)]
pub struct Live;

impl Page for Live {
    fn title(&self) -> &'static str {
        "live"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((state.live.cells.len(), cut_top(areas(body).1, 1).1))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.live.list)
    }
}

/// (Overall progress, the table with its header, the log with its frame).
fn areas(body: Rect) -> (Rect, Rect, Rect) {
    let (top, rest) = cut_top(body, 2);
    let (table, log) = cut_bottom(rest, (body.height / 4).clamp(5, 12));
    (top, table, log)
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    match act {
        Act::CancelAll if state.live.is_running() => ask(state, Question::CancelAll),
        Act::CancelCell if state.live.is_running() => {
            let at = state.live.list.selected;
            if let Some(cell) = state.live.cells.get_mut(at) {
                cell.cancelled = true;
                cell.note = "cancelled".into();
                return vec![Effect::CancelCell(at)];
            }
        }
        Act::CancelAll | Act::CancelCell => state.inform("nothing runs"),
        Act::OpenCell => {
            let record = state.live.selected().and_then(|cell| cell.record.clone());
            match record {
                Some(record) => return open_records(state, vec![*record], false),
                None => state.inform("this cell has no finished run yet"),
            }
        }
    }
    Vec::new()
}
