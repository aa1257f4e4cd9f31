//! Screen 7: sliders for the link, GPU, batch and architecture over the simulator, or over a measured step of a
//! trace. All numbers are predictions and labelled so.

mod draw;
mod layout;
mod notes;
mod numbers;
mod plots;
pub mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

pub use self::state::WhatIf;
use self::state::{Pin, StripView, letter};
use crate::desk::offers;
use crate::face::tui::context::{Context, Request, SelectedRun};
use crate::face::tui::format;
use crate::face::tui::keymap::acts;
use crate::face::tui::overlay::Completing;
use crate::face::tui::pick::{Chosen, Pick};
use crate::face::tui::screen::{
    Acts, Command, Export, FileKind, Find, Input, Note, OwnEdits, Pointer, PointerKind, Screen,
    ScreenList,
};
use crate::face::tui::screen::{Placed, State, Tab};
use crate::face::tui::task::Stop;
use crate::face::tui::widgets::list::next_of;
use base::offer::Offer;
use base::text::shell_command;
use run::sim::Simulator;
use study::whatif::{Answer, BreakEven, HIDDEN_PCT, Numbers, Over, Slider, TracedStep, Variant};
use table::render::{Shown, Sourced, Table};
use table::{Provenance, Record};

/// Idle time after a key press before the slower search starts.
const PAUSE: Duration = Duration::from_millis(60);

acts! {
    More: "more", "Right l +", "move the slider up", Some("change");
    Less: "less", "Left h -", "move the slider down", None;
    MuchMore: "much-more", "shift-Right L", "move the slider up, coarsely", None;
    MuchLess: "much-less", "shift-Left H", "move the slider down, coarsely", None;
    Type: "type", "Enter", "type the slider's value", Some("type"), "enter edit number";
    ResetOne: "reset", "0", "reset the slider", Some("reset"), "default";
    ResetAll: "reset-all", "Delete", "reset all sliders", Some("reset all"), "default clear";
    Undo: "undo", "u", "undo the last change", Some("undo"), "revert back";
    Redo: "redo", "ctrl-r", "redo", None;
    Pin: "pin", "p", "keep this variant (A, B, C), also across restarts", Some("keep"), "remember save variant";
    Unpin: "unpin", "P", "drop the variant kept last", None;
    Recall: "recall", "n", "go to the next kept variant", None;
    Strip: "strip", "t", "timeline strip: two layers, a whole step, or none", Some("strip");
    LaunchGaps: "launch-gaps", "c", "of a trace: remove launch gaps, as a CUDA graph would, or put them back", None;
    Base: "base", "B", "start from the trace on the timeline, or go back from it to the cell before", None, "trace measured";
    Frontier: "frontier", "f", "frontier over completion latency, or over TPOT", None;
}

impl Acts for WhatIf {
    type Act = Act;

    fn can(&self, act: Act) -> bool {
        match act {
            Act::ResetOne => self.slider().is_changed(&self.variant, &self.base),
            Act::ResetAll => self.variant != self.base,
            Act::Undo => self.edits() > 0,
            _ => true,
        }
    }

    fn act(&mut self, act: Act, cx: &mut Context) {
        let slider = self.slider();
        let no_effect = slider.no_effect(&self.variant, self.profile_values());
        match act {
            Act::Less | Act::More | Act::MuchLess | Act::MuchMore | Act::Type if no_effect.is_some() => {
                cx.inform(format!("{} has no effect: {}", slider.name(), no_effect.unwrap_or_default()));
            }
            Act::Less | Act::More | Act::MuchLess | Act::MuchMore => {
                let up = matches!(act, Act::More | Act::MuchMore);
                let coarse = matches!(act, Act::MuchLess | Act::MuchMore);
                let moved = self.change(|variant, profile_values| {
                    slider.step(variant, profile_values, up, coarse);
                });
                if !moved {
                    let end = if up { "last" } else { "first" };
                    cx.inform(format!("this is the {end} value of {}", slider.name()));
                }
            }
            Act::Type => {
                let now = slider.text(&self.variant, self.profile_values());
                let now = if now == "-" { String::new() } else { now };
                let unit = slider.unit();
                let title = format!("{}{}", slider.name(), if unit.is_empty() { "" } else { ", in " });
                let title = format!("{title}{unit}");
                let option = slider.option();
                let offers = option.map(offers::values).unwrap_or_default();
                let is_value = |offer: &Offer| {
                    slider.set(&mut self.variant.clone(), self.profile_values(), &offer.text).is_ok()
                };
                if !offers.is_empty() && offers.iter().all(is_value) {
                    return cx.lay(pick(slider, title, offers, &now));
                }
                let range = match slider.range(self.profile_values()) {
                    _ if !offers.is_empty() => String::new(),
                    [low, high] => {
                        let relative = if option.is_none() { ", or x2, /2" } else { "" };
                        let number = |value: f64| match value.fract() == 0.0 {
                            true => format!("{value}"),
                            false => format::digits(value),
                        };
                        let (low, high) = (number(low), number(high));
                        format!("; slider range {low} to {high}, or any number{relative}")
                    }
                };
                let is = if now.is_empty() { "as the stack has it" } else { &now };
                let gap = if unit.is_empty() || now.is_empty() { "" } else { " " };
                let unit = if now.is_empty() { "" } else { unit };
                let hint = format!("{}. Now {is}{gap}{unit}{range}", slider.about());
                let take = move |whatif: &mut Self, typed: &str, _: &mut Context| {
                    let mut outcome = Ok(());
                    whatif.change(|variant, values| outcome = slider.set(variant, values, typed));
                    outcome.map_err(|why| format::error(&why))
                };
                cx.prompt(Completing::Words(offers), title, hint, now, take);
            }
            Act::ResetOne => {
                let base = self.base.clone();
                if !self.change(|variant, _| slider.reset(variant, &base)) {
                    cx.inform(format!("{} is unchanged", slider.name()));
                }
            }
            Act::ResetAll => {
                let base = self.base.clone();
                if !self.change(|variant, _| *variant = base) {
                    cx.inform("no slider is changed");
                }
            }
            Act::Undo => {
                let undone = self.travel(true).map(|words| {
                    let kept = self.pins.len().checked_sub(1).map(letter);
                    let kept = kept.map_or(String::new(), |last| {
                        let drop = cx.key::<Self>(Act::Unpin);
                        let kept = match last {
                            'A' => "A stays kept".to_owned(),
                            last => format!("A to {last} stay kept"),
                        };
                        format!("; {kept} ({drop} drops {last})")
                    });
                    format!("undone: {words}{kept}")
                });
                cx.inform(undone.unwrap_or_else(|| "nothing to undo".into()));
            }
            Act::Redo => {
                let redone = self.travel(false).map(|words| format!("redone: {words}"));
                cx.inform(redone.unwrap_or_else(|| "nothing to redo".into()));
            }
            Act::Pin => {
                let told = match self.pin() {
                    Ok(letter) => format!("kept as {letter}"),
                    Err(why) => why,
                };
                cx.inform(told);
            }
            Act::Unpin => {
                cx.inform(match self.pins.pop() {
                    Some(_) => format!("dropped {}", letter(self.pins.len())),
                    None => "no variant is kept".into(),
                });
            }
            Act::Recall => {
                let at = self.pins.iter().position(|pin| pin.variant == self.variant);
                let next = at.map_or(0, |at| at + 1) % self.pins.len().max(1);
                match self.pins.get(next).map(|pin| pin.variant.clone()) {
                    Some(kept) => {
                        self.change(|variant, _| *variant = kept);
                    }
                    None => {
                        let pin = cx.key::<WhatIf>(Act::Pin);
                        cx.inform(format!("no variant is kept: {pin} keeps one"));
                    }
                }
            }
            Act::Strip => {
                let all = [StripView::Layer, StripView::Step, StripView::Hidden];
                self.strip = next_of(&all, self.strip, false);
            }
            Act::LaunchGaps => match self.traced.is_some() {
                true => {
                    self.change(|variant, _| variant.no_launch_gaps = !variant.no_launch_gaps);
                }
                false => cx.inform("a simulated cell has no launch gaps of a trace"),
            },
            Act::Base => match (&self.traced, &cx.open_trace) {
                (Some(_), _) => self.leave_trace(),
                (None, Some(_)) => cx.request(Request::WhatIfOpenTrace { asked: true }),
                (None, None) => cx.inform("no trace is open on the timeline"),
            },
            Act::Frontier if self.traced.is_some() => {
                cx.inform("a trace has one batch size: no frontier over batches");
            }
            Act::Frontier => {
                self.by_tpot = !self.by_tpot;
                let over = if self.by_tpot { "TPOT" } else { "completion latency" };
                cx.inform(format!("frontier over {over}"));
            }
        }
    }
}

/// Fuzzy picker of a slider's values. Text that matches none is taken as typed, such as the directory of a model.
fn pick(slider: Slider, title: String, offers: Vec<Offer>, now: &str) -> Pick {
    let selected = offers.iter().position(|offer| offer.text == now).unwrap_or(0);
    let lines = offers.iter().map(|offer| (offer.text.clone(), offer.about.clone())).collect();
    let literal = |text: &str, nothing_matches: bool| {
        (nothing_matches && !text.trim().is_empty()).then(|| format!("Enter takes {text}"))
    };
    let take = move |state: &mut State, chosen| {
        let value = match chosen {
            Chosen::Line(at) => offers.get(at).map(|offer| offer.text.clone()).unwrap_or_default(),
            Chosen::Text(text) => text,
        };
        let (whatif, cx) = WhatIf::of(state);
        let mut outcome = Ok(());
        whatif.change(|variant, values| outcome = slider.set(variant, values, &value));
        if let Err(why) = outcome {
            cx.fail(format::error(&why));
        }
    };
    Pick::new(title, lines, literal, take).selecting(selected)
}

impl WhatIf {
    fn point(&mut self, body: Rect, event: Pointer, cx: &mut Context) -> bool {
        let area = layout::areas_of(body, self).sliders;
        let (x, columns) = layout::tracks(area);
        // a drag that began on a track keeps moving its slider, wherever the pointer is
        let place = |at: u16| f64::from(at.saturating_sub(x)) / f64::from(columns.max(2) - 1);
        let on_track = |at: Position| area.contains(at) && (x..x + columns).contains(&at.x);
        if let PointerKind::Drag(from) = event.kind
            && on_track(from)
        {
            self.drag_to(place(event.at.x), cx);
            return true;
        }
        if !area.contains(event.at) {
            return false;
        }
        let row = usize::from(event.at.y - area.y) + self.list.offset;
        match event.kind {
            PointerKind::Click if row < self.sliders().len() && on_track(event.at) => {
                self.list.selected = row;
                self.drag_to(place(event.at.x), cx);
                true
            }
            PointerKind::Click if row < self.sliders().len() => {
                self.list.selected = row;
                true
            }
            // the wheel over the selected slider moves it
            PointerKind::Wheel(notches) if row == self.list.selected => {
                let act = if notches < 0 { Act::More } else { Act::Less };
                (0..notches.unsigned_abs().min(20)).for_each(|_| self.act(act, cx));
                true
            }
            _ => false,
        }
    }

    /// Moves the selected slider to a position between its ends, 0 to 1.
    fn drag_to(&mut self, place: f64, cx: &mut Context) {
        let slider = self.slider();
        match slider.no_effect(&self.variant, self.profile_values()) {
            Some(why) => cx.inform(format!("{} has no effect: {why}", slider.name())),
            None => {
                self.change(|variant, values| slider.move_to(variant, values, place));
            }
        }
    }

    fn start_from(&mut self, selected: &SelectedRun, cx: &mut Context) {
        let note = self.start(&selected.spec, format!("run {}", selected.run));
        let records = cx.stored.iter().flat_map(|stored| stored.records.iter());
        let is_run = |record: &&Record| record.run == selected.run && record.spec == selected.spec;
        let run = { records }.find(is_run).filter(|run| run.provenance == Provenance::Measured);
        let measured_ms = run.and_then(|run| Some(run.metrics.as_ref()?.tpot_ms.p50));
        self.measured_ms = measured_ms.filter(|ms| note.is_none() && *ms > 0.0);
        if let Some(note) = note {
            cx.inform(note);
        }
    }

    /// Answers the current variant, one variant at a time, and after a short idle time,
    /// about its break-even.
    fn ask(&self, cx: &mut Context) {
        let (simulator, wanted) = (Arc::clone(&self.simulator), self.wanted().clone());
        let (asked, traced, started) = (wanted.clone(), self.traced.clone(), self.started);
        cx.follow(
            "answer",
            &(self.started, wanted.clone()),
            move |_| answered(traced.as_deref(), &wanted, &simulator),
            move |whatif: &mut Self, answer, _| {
                // an answer from another base is no earlier position of these sliders
                if whatif.started == started {
                    whatif.learn(&asked, answer);
                }
            },
        );
        if let Some(kept) = self.waiting.first().filter(|_| self.traced.is_none()).cloned() {
            let (simulator, asked) = (Arc::clone(&self.simulator), kept.clone());
            let take = move |whatif: &mut Self, answer, cx: &mut Context| {
                whatif.waiting.retain(|variant| *variant != kept);
                match cx.ok_or_fail(answer) {
                    Some(answer) => whatif.pins.push(Pin { variant: kept, answer }),
                    // a missing profile may be back in the next session
                    None => whatif.unanswered.push(kept),
                }
            };
            cx.follow("kept", &asked.clone(), move |_| asked.answer(&simulator).map(Arc::new), take);
        }
        if self.traced.is_some() || self.current().is_none_or(|answer| answer.chosen().is_none()) {
            cx.forget::<Self>("break-even");
        } else if self.break_even().is_none() {
            let (simulator, variant) = (Arc::clone(&self.simulator), self.variant.clone());
            let of = variant.clone();
            let search = move |stop: &Stop| {
                std::thread::sleep(PAUSE);
                Ok(if stop.is_asked() { Vec::new() } else { break_even(&simulator, &variant) })
            };
            cx.want("break-even", &self.variant, search, move |whatif: &mut Self, found, cx| {
                whatif.found = cx.ok_or_fail(found).map(|found| (of, found));
            });
        }
    }
}

fn answered(
    traced: Option<&TracedStep>,
    variant: &Variant,
    simulator: &Simulator,
) -> base::error::Result<Arc<Answer>> {
    let answer = traced.map_or_else(|| variant.answer(simulator), |traced| traced.answer(variant));
    answer.map(Arc::new)
}

/// Searches the break-even over the latency and over the bandwidth of the link.
fn break_even(simulator: &Simulator, variant: &Variant) -> Vec<Result<BreakEven, String>> {
    let of = |over| variant.break_even(simulator, over, HIDDEN_PCT).map_err(|error| error.to_string());
    [Over::AlphaUs, Over::GbS].map(of).into()
}

impl Screen for WhatIf {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn serve(&mut self, request: Request, cx: &mut Context) -> Option<Request> {
        match request {
            Request::WhatIf(Some(selected)) => {
                self.seeded.clone_from(&cx.open_trace);
                let replaced = (self.follows_trace && self.edits() > 0).then(|| self.base_name.clone());
                // else the run of another screen
                let is_of_trace = matches!(cx.tab, Tab::Timeline | Tab::WhatIf);
                self.start_from(&selected, cx);
                self.follows_trace = is_of_trace && cx.open_trace.is_some();
                if let Some(replaced) = replaced.filter(|_| self.follows_trace) {
                    cx.inform(format!(
                        "sliders are reset to run {}, of the open trace; before: {replaced}",
                        selected.run
                    ));
                }
            }
            Request::WhatIf(None) => {}
            Request::WhatIfTraced(traced, name, architecture) => {
                self.seeded.clone_from(&cx.open_trace);
                if self.start_traced(traced, name) {
                    let reset = cx.key::<Self>(Act::ResetAll);
                    cx.inform(format!(
                        "your changes to {} are back; {reset} resets all",
                        self.base_name
                    ));
                }
                if let Some(architecture) = architecture {
                    cx.inform(format!(
                        "at {architecture}, as on the timeline; kernel and all-reduce times are those of {}",
                        self.base_name
                    ));
                    self.change(|variant, _| variant.cell.architecture = architecture);
                }
            }
            other => return Some(other),
        }
        cx.tab = Tab::WhatIf;
        None
    }

    fn list(&mut self, body: Rect) -> Option<ScreenList<'_>> {
        let area = layout::areas_of(body, self).sliders;
        Some(ScreenList { len: self.sliders().len(), area, rows: 1, list: &mut self.list })
    }

    fn input(&mut self, input: Input<'_>, cx: &mut Context) -> bool {
        match input {
            Input::Mouse(body, event) => return self.point(body, event, cx),
            Input::Close => self.error = None,
            _ => return false,
        }
        true
    }

    fn own_edits(&self) -> Option<OwnEdits> {
        Some(OwnEdits { count: self.edits(), are_views: false })
    }

    fn settle(&mut self, _body: Rect, cx: &mut Context) {
        // an open trace is what the user looks at, unless sliders of a cell were moved already
        let is_another = cx.open_trace.is_some() && self.seeded != cx.open_trace;
        if is_another && (self.follows_trace || self.is_untouched()) {
            self.seeded.clone_from(&cx.open_trace);
            // the next trace may not be usable, and then the cell is shown
            if let Some(trace) = self.trace().map(str::to_owned) {
                let changes = if self.is_untouched() { "" } else { "; your changes return with it" };
                self.leave_trace();
                cx.inform(format!("another trace is open; what-if leaves {trace}{changes}"));
            }
            cx.request(Request::WhatIfOpenTrace { asked: false });
        }
        self.ask(cx);
    }

    fn notes(&self, body: Rect, cx: &Context) -> Vec<Note> {
        notes::notes(self, body, cx)
    }

    fn finds(&self, _cx: &Context) -> Vec<Find> {
        let find = |(at, slider): (usize, Slider)| {
            let about = format!("slider  {}", slider.about());
            Find::new(slider.name(), about, move |whatif: &mut Self, _| whatif.list.selected = at)
        };
        self.sliders().into_iter().enumerate().map(find).collect()
    }

    fn command(&self) -> Result<Command, &'static str> {
        const NONE: &str = "these values cannot be simulated: there is no command for them";
        let words = match (self.current(), &self.error) {
            // `rewire`, which changes steps of traces
            (Some(answer), _) if self.traced.is_some() => answer.arguments.clone(),
            (Some(answer), _) => {
                let has_link = answer.profile_values.no_link.is_none();
                self.variant.whatif_arguments(has_link).map_err(|_| NONE)?
            }
            (None, Some(_)) => return Err(NONE),
            (None, None) => return Err("still simulating; press the key again in a moment"),
        };
        let beyond = if self.pins.is_empty() { Vec::new() } else { vec!["kept variants".into()] };
        Ok(Command { words, beyond })
    }

    fn export(&self, kind: FileKind, _cx: &Context) -> Result<Option<Export>, String> {
        if kind != FileKind::Csv {
            return Ok(None);
        }
        let answer =
            self.current().ok_or("nothing to export: there is no answer for these values yet")?;
        let pins = self.pins.iter().enumerate();
        let named = pins.map(|(at, pin)| (letter(at).to_string(), &*pin.answer));
        let all: Vec<(String, &Answer)> =
            std::iter::once(("now".to_owned(), &**answer)).chain(named).collect();
        Ok(Some(Export::text(csv(&all))))
    }
}

fn csv(answers: &[(String, &Answer)]) -> String {
    let before = ["variant", "architecture", "provenance"].into_iter();
    let mut rows = Table::new(before.chain(Numbers::NAMES).chain(["reason", "command"]));
    for (name, answer) in answers {
        for row in &answer.rows {
            // the command belongs to the chosen architecture
            let chosen = answer.is_chosen(row);
            let command = chosen.then(|| format!("ladderscope {}", shell_command(&answer.arguments)));
            let texts = [name, &answer.label(row), "simulated"];
            let mut cells: Vec<Shown> = texts.map(Shown::text).into();
            cells.extend(Numbers::NAMES.iter().map(|name| row.shown(name)));
            cells.extend([row.reason(), command.into()]);
            rows.push(cells);
        }
    }
    rows.csv(Sourced::ByRow)
}
