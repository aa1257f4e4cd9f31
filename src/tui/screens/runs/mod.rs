//! Screen 3: stored runs.

mod draw;
pub mod state;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::{Action, Binding, bind};
use crate::tui::keys::{paste_into, type_into};
use crate::tui::layout::{cut_bottom, cut_left, cut_top};
use crate::tui::message::Effect;
use crate::tui::page::{Page, Pointer, PointerKind};
use crate::tui::state::{List, State};
use crate::tui::update::{open_run, open_runs};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Open,
    OpenBeneath,
    Filter,
    SortNext,
    SortPrevious,
    SortReverse,
    Detail,
    CopyId,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open", "Enter", Action::Runs(Act::Open), "open the run's timeline", Some("timeline")),
    bind("open-beneath", "b", Action::Runs(Act::OpenBeneath), "open the run's timeline beneath the one shown", Some("beneath")),
    bind("filter", "/", Action::Runs(Act::Filter), "filter: words, or key=value", Some("filter")),
    bind("sort-next", "s >", Action::Runs(Act::SortNext), "sort by the next column", Some("sort")),
    bind("sort-previous", "S <", Action::Runs(Act::SortPrevious), "sort by the previous column", None),
    bind("sort-reverse", "r", Action::Runs(Act::SortReverse), "reverse the order", Some("reverse")),
    bind("detail", "d", Action::Runs(Act::Detail), "show or hide the run's details", Some("details")),
    bind("copy-id", "y", Action::Runs(Act::CopyId), "copy the run's id to the clipboard", Some("copy id")),
];

/// The page.
#[derive(Debug)]
pub struct Runs;

impl Page for Runs {
    fn title(&self) -> &'static str {
        "runs"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((state.runs.order.len(), cut_top(areas(body, state.runs.detail).1, 1).1))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.runs.list)
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        if !state.runs.typing {
            return None;
        }
        match key.code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Tab => state.runs.typing = false,
            KeyCode::Esc => {
                state.runs.typing = false;
                state.runs.filter.reset();
                arrange(state);
            }
            _ if type_into(&mut state.runs.filter, key) => arrange(state),
            _ => {}
        }
        Some(Vec::new())
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        state.runs.typing.then(|| {
            paste_into(&mut state.runs.filter, text);
            arrange(state);
            Vec::new()
        })
    }

    fn pointer(&self, state: &mut State, _body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        if event.kind == PointerKind::Click {
            state.runs.typing = false;
        }
        None
    }

    fn close(&self, state: &mut State) {
        if state.runs.detail {
            state.runs.detail = false;
        } else if !state.runs.filter.value().is_empty() {
            state.runs.filter.reset();
            arrange(state);
        }
    }
}

/// (Summary and filter, the table with its header, the details with their frame).
fn areas(body: Rect, detail: bool) -> (Rect, Rect, Rect) {
    let (top, rest) = cut_top(body, 1);
    let (table, details) = match detail {
        false => cut_bottom(rest, 0),
        true if body.width >= 150 => cut_left(rest, body.width - 60),
        true => cut_bottom(rest, rest.height / 2),
    };
    (top, table, details)
}

/// Chooses and orders anew.
fn arrange(state: &mut State) {
    let stored = state.stored.clone();
    state.runs.arrange(stored.as_deref());
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let selected = state.runs.selected(state.stored.as_ref()).map(|r| r.run.clone());
    match act {
        Act::Filter => state.runs.typing = true,
        Act::Detail => state.runs.detail = !state.runs.detail,
        Act::Open => return open_run(state, selected),
        Act::OpenBeneath => {
            let beneath = state.timeline.view.is_some();
            return open_runs(state, selected.into_iter().collect(), beneath);
        }
        Act::CopyId => {
            if let Some(run) = selected {
                state.inform(format!("copied {run}"));
                return vec![Effect::Copy(run)];
            }
        }
        Act::SortReverse => {
            state.runs.ascending = !state.runs.ascending;
            arrange(state);
        }
        Act::SortNext | Act::SortPrevious => {
            state.runs.sort_by_next(act == Act::SortPrevious);
            arrange(state);
        }
    }
    Vec::new()
}
