//! Screen 5: latency against per-GPU throughput.

mod draw;
pub mod state;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::{Action, Binding, bind};
use crate::tui::layout::{cut_bottom, cut_top};
use crate::tui::message::Effect;
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind};
use crate::tui::state::State;
use crate::tui::update::open_run;

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Left,
    Right,
    Up,
    Down,
    Open,
    CycleP2p,
    CycleGroup,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open", "Enter", Action::Pareto(Act::Open), "open the point's timeline", Some("timeline")),
    bind("left", "Left", Action::Pareto(Act::Left), "select the next point of lower latency", Some("point")),
    bind("right", "Right", Action::Pareto(Act::Right), "select the next point of higher latency", None),
    bind("up", "Up", Action::Pareto(Act::Up), "select the next point of higher throughput", None),
    bind("down", "Down", Action::Pareto(Act::Down), "select the next point of lower throughput", None),
    bind("cycle-p2p", "p", Action::Pareto(Act::CycleP2p), "show P2P on, off, or both", Some("P2P")),
    bind("cycle-group", "g", Action::Pareto(Act::CycleGroup), "next group: model, workload, hardware, provenance", Some("group")),
];

/// The page.
#[derive(Debug)]
pub struct Pareto;

impl Page for Pareto {
    fn title(&self) -> &'static str {
        "pareto"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        state.pareto.step_latency(rows);
        Vec::new()
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        (event.kind == PointerKind::Click).then(|| {
            draw::click(state, body, event.at);
            Vec::new()
        })
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        let points: Vec<_> = state.pareto.visible().cloned().collect();
        if points.is_empty() {
            return Err("nothing to export: no points are shown".into());
        }
        Ok(match kind {
            FileKind::Svg | FileKind::Png => {
                Some(Export::new(move |path| crate::plot::pareto(&points, path)))
            }
            FileKind::Csv => None,
        })
    }
}

/// (Header with legend, the plot, the selected point).
fn areas(body: Rect) -> (Rect, Rect, Rect) {
    let (header, rest) = cut_top(body, 2);
    let (plot, info) = cut_bottom(rest, 2);
    (header, plot, info)
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    match act {
        Act::Left => state.pareto.step_latency(-1),
        Act::Right => state.pareto.step_latency(1),
        Act::Up => state.pareto.step_throughput(true),
        Act::Down => state.pareto.step_throughput(false),
        Act::CycleP2p => state.pareto.cycle_p2p(),
        Act::CycleGroup => state.pareto.cycle_group(),
        Act::Open => {
            let run = state.pareto.current().map(|p| p.run.clone());
            return open_run(state, run);
        }
    }
    Vec::new()
}
