//! Screen 7: what if the link, the GPU, the batch or the architecture were another? Sliders over the
//! simulator; everything shown is simulated, and says so.

mod draw;
pub mod state;
mod strip;
#[cfg(test)]
mod tests;
pub mod worker;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use tui_input::Input;

use self::state::{StripView, letter};
use crate::text::{csv_field, shell_command};
use crate::tui::action::{Action, Binding, Screen, bind};
use crate::tui::keys::{paste_into, type_into};
use crate::tui::message::Effect;
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind};
use crate::tui::state::{List, State};
use crate::whatif::{Answer, Slider};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Less,
    More,
    MuchLess,
    MuchMore,
    Type,
    ResetOne,
    ResetAll,
    Undo,
    Pin,
    Unpin,
    Recall,
    Strip,
    Frontier,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("more", "Right l +", Action::WhatIf(Act::More), "move the slider up", Some("change")),
    bind("less", "Left h -", Action::WhatIf(Act::Less), "move the slider down", None),
    bind("much-more", "shift-Right L", Action::WhatIf(Act::MuchMore), "move the slider up, coarsely", None),
    bind("much-less", "shift-Left H", Action::WhatIf(Act::MuchLess), "move the slider down, coarsely", None),
    bind("type", "Enter", Action::WhatIf(Act::Type), "type the slider's value", Some("type")),
    bind("reset", "0", Action::WhatIf(Act::ResetOne), "put the slider back", Some("reset")),
    bind("reset-all", "r", Action::WhatIf(Act::ResetAll), "put all sliders back", Some("all")),
    bind("undo", "u", Action::WhatIf(Act::Undo), "undo the last change", Some("undo")),
    bind("pin", "p", Action::WhatIf(Act::Pin), "keep the variant beside others: A, B, C", Some("keep")),
    bind("unpin", "P", Action::WhatIf(Act::Unpin), "take away the variant kept last", None),
    bind("recall", "b", Action::WhatIf(Act::Recall), "go through the variants kept", None),
    bind("strip", "t", Action::WhatIf(Act::Strip), "strip: two layers, a whole step, or none", Some("step")),
    bind("frontier", "f", Action::WhatIf(Act::Frontier), "frontier: completion latency, or TPOT", None),
];

/// The page.
#[derive(Debug)]
pub struct WhatIf;

impl Page for WhatIf {
    fn title(&self) -> &'static str {
        "what-if"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, _state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((Slider::ALL.len(), draw::areas(body, true).sliders))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.whatif.list)
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        let (mut input, _) = state.whatif.typing.take()?;
        let slider = state.whatif.slider();
        match key.code {
            KeyCode::Esc => {}
            KeyCode::Enter => {
                let mut outcome = Ok(());
                state
                    .whatif
                    .change(|variant, facts| outcome = slider.set(variant, facts, input.value()));
                if let Err(why) = outcome {
                    state.whatif.typing = Some((input, Some(crate::tui::format::error(&why))));
                }
            }
            _ => {
                type_into(&mut input, key);
                state.whatif.typing = Some((input, None));
            }
        }
        Some(Vec::new())
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        let (input, error) = state.whatif.typing.as_mut()?;
        paste_into(input, text);
        *error = None;
        Some(Vec::new())
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        let area = draw::areas(body, true).sliders;
        let (x, columns) = draw::tracks(area);
        // a drag that began on a track moves its slider, wherever the pointer is by now
        let place = |at: u16| f64::from(at.saturating_sub(x)) / f64::from(columns.max(2) - 1);
        let on_track = |at: Position| area.contains(at) && (x..x + columns).contains(&at.x);
        if let PointerKind::Drag(from) = event.kind
            && on_track(from)
        {
            let slider = state.whatif.slider();
            state.whatif.change(|variant, facts| slider.move_to(variant, facts, place(event.at.x)));
            return Some(Vec::new());
        }
        if !area.contains(event.at) {
            return None;
        }
        let row = usize::from(event.at.y - area.y) + state.whatif.list.offset;
        match event.kind {
            PointerKind::Click if row < Slider::ALL.len() && on_track(event.at) => {
                state.whatif.list.selected = row;
                let slider = state.whatif.slider();
                state.whatif.change(|variant, facts| slider.move_to(variant, facts, place(event.at.x)));
                Some(Vec::new())
            }
            PointerKind::Click if row < Slider::ALL.len() => {
                state.whatif.list.selected = row;
                Some(Vec::new())
            }
            // the wheel over the selected slider moves it
            PointerKind::Wheel(notches) if row == state.whatif.list.selected => {
                let act = if notches < 0 { Act::More } else { Act::Less };
                Some((0..notches.unsigned_abs().min(20)).flat_map(|_| self::act(state, act)).collect())
            }
            _ => None,
        }
    }

    fn close(&self, state: &mut State) {
        state.whatif.error = None;
    }

    fn settle(&self, state: &mut State, body: Rect, effects: &mut Vec<Effect>) {
        state.whatif.list.fit(Slider::ALL.len(), usize::from(draw::areas(body, true).sliders.height));
        if state.screen == Screen::WhatIf
            && let Some((request, variant)) = state.whatif.question()
        {
            effects.push(Effect::WhatIf { request, variant: Box::new(variant) });
        }
    }

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        serde_json::to_value(state.whatif.kept()?).ok()
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        if let Ok(kept) = serde_json::from_value(kept.clone()) {
            state.whatif.take_up(kept);
        }
        Vec::new()
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        state.whatif.current().map(|answer| answer.arguments.clone())
    }

    fn no_command(&self, state: &State) -> &'static str {
        match state.whatif.error {
            Some(_) => "these values cannot be simulated: there is no command for them",
            None => "the answer is under way: once more, please",
        }
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        if kind != FileKind::Csv {
            return Ok(None);
        }
        let answer = state
            .whatif
            .current()
            .ok_or("nothing to export: there is no answer for these values yet")?;
        let pins = state.whatif.pins.iter().enumerate();
        let named = pins.map(|(at, pin)| (letter(at).to_string(), &*pin.answer));
        let all: Vec<(String, &Answer)> =
            std::iter::once(("now".to_owned(), &**answer)).chain(named).collect();
        Ok(Some(Export::text(csv(&all))))
    }
}

/// Every architecture of every variant, a row each.
fn csv(answers: &[(String, &Answer)]) -> String {
    let mut text = String::from(
        "variant,architecture,provenance,prefill_ms,decode_ms,tpot_ms,completion_ms,tokens_per_s_per_gpu,\
         comm_ms,exposed_comm_ms,overlap_pct,hidden_share,reason,command\n",
    );
    for (name, answer) in answers {
        let command = csv_field(&format!("ladderscope {}", shell_command(&answer.arguments)));
        for row in &answer.rows {
            let of = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
            let numbers = match &row.numbers {
                Ok(n) => format!(
                    "{},{},{},{},{},{},{},{},{},",
                    n.prefill_ms,
                    n.decode_ms,
                    n.tpot_ms,
                    n.completion_ms,
                    n.tokens_per_s_per_gpu,
                    n.comm_ms,
                    n.exposed_ms,
                    of(n.overlap_pct),
                    of(n.hidden_share)
                ),
                Err(why) => format!(",,,,,,,,,{}", csv_field(why)),
            };
            // the command is the chosen architecture's
            let chosen = row.architecture == answer.spec.architecture;
            let command = if chosen { command.as_str() } else { "" };
            text += &format!("{name},{},simulated,{numbers},{command}\n", row.architecture);
        }
    }
    text
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let whatif = &mut state.whatif;
    let slider = whatif.slider();
    match act {
        Act::Less | Act::More | Act::MuchLess | Act::MuchMore => {
            let up = matches!(act, Act::More | Act::MuchMore);
            let coarse = matches!(act, Act::MuchLess | Act::MuchMore);
            whatif.change(|variant, facts| {
                slider.step(variant, facts, up, coarse);
            });
        }
        Act::Type => {
            let now = slider.text(&whatif.variant, whatif.facts());
            let now = if now == "-" { String::new() } else { now };
            whatif.typing = Some((Input::new(now), None));
        }
        Act::ResetOne => {
            let base = whatif.base.clone();
            whatif.change(|variant, _| slider.reset(variant, &base));
        }
        Act::ResetAll => {
            let base = whatif.base.clone();
            whatif.change(|variant, _| *variant = base);
        }
        Act::Undo => {
            if !whatif.undo() {
                state.inform("nothing to undo");
            }
        }
        Act::Pin => {
            let told = match whatif.pin() {
                Ok(letter) => format!("kept as {letter}"),
                Err(why) => why,
            };
            state.inform(told);
        }
        Act::Unpin => {
            if whatif.pins.pop().is_none() {
                state.inform("no variant is kept");
            }
        }
        Act::Recall => {
            let at = whatif.pins.iter().position(|pin| pin.variant == whatif.variant);
            let next = at.map_or(0, |at| at + 1) % whatif.pins.len().max(1);
            match whatif.pins.get(next).map(|pin| pin.variant.clone()) {
                Some(kept) => {
                    whatif.change(|variant, _| *variant = kept);
                }
                None => {
                    let pin = state.keys.label(Action::WhatIf(Act::Pin));
                    state.inform(format!("no variant is kept: {pin} keeps one"));
                }
            }
        }
        Act::Strip => {
            whatif.strip = match whatif.strip {
                StripView::Layer => StripView::Step,
                StripView::Step => StripView::Hidden,
                StripView::Hidden => StripView::Layer,
            }
        }
        Act::Frontier => whatif.by_tpot = !whatif.by_tpot,
    }
    Vec::new()
}

/// Starts from what is selected on the screen that is shown.
pub fn from_selection(state: &mut State) -> Vec<Effect> {
    let selected = match state.screen {
        Screen::Runs => {
            let record = state.runs.selected(state.stored.as_ref());
            record.map(|record| (record.spec.clone(), record.run.clone()))
        }
        Screen::Pareto => state.pareto.current().map(|point| (point.spec.clone(), point.run.clone())),
        Screen::Compare => {
            state.compare.selected().map(|pair| (pair.side.spec.clone(), pair.run.clone()))
        }
        Screen::WhatIf => return Vec::new(),
        _ => None,
    };
    if let Some((spec, run)) = selected
        && let Some(note) = state.whatif.start(&spec, format!("run {run}"))
    {
        state.inform(note);
    }
    state.screen = Screen::WhatIf;
    Vec::new()
}
