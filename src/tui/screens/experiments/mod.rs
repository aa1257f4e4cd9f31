//! Screen 1: which experiments there are, and what the selected one would do.

mod draw;
pub mod state;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::{Action, Binding, Screen, bind};
use crate::tui::layout::{cut_left, inside};
use crate::tui::message::Effect;
use crate::tui::page::Page;
use crate::tui::state::{List, Overlay, State};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Run,
    ShowFile,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("run", "Enter", Action::Experiments(Act::Run), "run the experiment", Some("run")),
    bind("show-file", "e", Action::Experiments(Act::ShowFile), "show the experiment's file", Some("file")),
];

/// The page.
#[derive(Debug)]
pub struct Experiments;

impl Page for Experiments {
    fn title(&self) -> &'static str {
        "experiments"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((state.experiments.len(), inside(areas(body).0)))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.experiments.list)
    }
}

/// (The list with its frame, the details with theirs).
fn areas(body: Rect) -> (Rect, Rect) {
    cut_left(body, (body.width / 4).clamp(24, 40))
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let Some(entry) = state.experiments.selected().cloned() else {
        state.inform("no experiment is selected");
        return Vec::new();
    };
    match act {
        Act::ShowFile => {
            let lines = entry.text.lines().map(|l| l.replace('\t', "    ")).collect();
            let title = format!("{} ({})", entry.name, entry.place);
            state.overlays.push(Overlay::Text { title, lines, scroll: 0 });
        }
        Act::Run if state.live.is_running() => {
            let live = state.keys.label(Action::Show(Screen::Live));
            let cancel = state.keys.label(Action::Live(super::live::Act::CancelAll));
            state.inform(format!(
                "a sweep is running: wait for it, or press {live} and {cancel} to cancel it"
            ));
        }
        Act::Run => match entry.experiment {
            Ok(experiment) => {
                state.live.start(&experiment, state.now_ms);
                state.screen = Screen::Live;
                return vec![Effect::StartSweep(experiment)];
            }
            Err(error) => state.fail(error),
        },
    }
    Vec::new()
}
