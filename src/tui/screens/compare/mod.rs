//! Screen 6: matched pairs along an axis.

mod draw;
pub mod state;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::{Action, Binding, bind};
use crate::tui::layout::{cut_bottom, cut_top};
use crate::tui::message::Effect;
use crate::tui::page::Page;
use crate::tui::state::{List, State};
use crate::tui::update::{open_run, open_runs};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Open,
    OpenBoth,
    NextAxis,
    PreviousAxis,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open", "Enter", Action::Compare(Act::Open), "open the timeline of the pair's run", Some("timeline")),
    bind("open-both", "b", Action::Compare(Act::OpenBoth), "open both timelines: the pair's run over its baseline", Some("both")),
    bind("next-axis", "a", Action::Compare(Act::NextAxis), "compare by the next axis", Some("axis")),
    bind("previous-axis", "A", Action::Compare(Act::PreviousAxis), "compare by the previous axis", None),
];

/// The page.
#[derive(Debug)]
pub struct Compare;

impl Page for Compare {
    fn title(&self) -> &'static str {
        "compare"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        let table = areas(body, state.compare.flags().len()).1;
        Some((state.compare.pairs().len(), cut_top(table, 1).1))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.compare.list)
    }
}

/// (Title, the table with its header, the selected pair, the flags with their frame).
fn areas(body: Rect, flags: usize) -> (Rect, Rect, Rect, Rect) {
    let (title, rest) = cut_top(body, 2);
    let rows = if flags == 0 { 0 } else { (flags + 2).min(usize::from(body.height / 3)) as u16 };
    let (rest, flags) = cut_bottom(rest, rows);
    let (table, pair) = cut_bottom(rest, 2);
    (title, table, pair, flags)
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    match act {
        Act::NextAxis | Act::PreviousAxis => {
            state.compare.cycle(act == Act::PreviousAxis);
            let axis = state.compare.axis();
            state.stored.iter().map(|s| Effect::Compare { axis, runs: s.clone() }).collect()
        }
        Act::Open => {
            let run = state.compare.selected().map(|p| p.run.clone());
            open_run(state, run)
        }
        Act::OpenBoth => {
            let pair = state.compare.selected().map(|p| [p.run.clone(), p.baseline_run.clone()]);
            open_runs(state, pair.map_or_else(Vec::new, Vec::from), false)
        }
    }
}
