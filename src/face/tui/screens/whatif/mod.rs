//! Screen 7: sliders for the link, GPU, batch and architecture over the simulator, or over the measured steps of
//! a trace. All numbers are predictions and labelled so.

mod draw;
mod layout;
mod notes;
mod numbers;
mod plots;
mod sliding;
pub mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use self::state::WhatIf;
use self::state::{Pin, StripView, WaitingVariant, letter, machine_of};
use super::timeline::state::prediction::{Facts, traced};
use crate::desk;
use crate::face::tui::prelude::*;
use crate::face::tui::task::Stop;
use base::text::shell_command;
use lab::store::Store;
use machine::hardware::Profile;
use plan::Phase;
use run::sim::Simulator;
use study::whatif::{
    BreakEven, BreakEvenQuantity, HIDDEN_PCT, SimulatedMetrics, Slider, TracedSteps, WhatIfAnswer,
    WhatIfVariant,
};
use table::render::{Shown, Sourced, Table};
use table::{Provenance, Record};

/// Idle time after a key press before the slower search starts.
const PAUSE: Duration = Duration::from_millis(60);

acts! {
    More: "more", "Right l +", "move the slider up", Some("change") => "set";
    Less: "less", "Left h -", "move the slider down", None;
    MuchMore: "much-more", "shift-Right L", "move the slider up, coarsely", None;
    MuchLess: "much-less", "shift-Left H", "move the slider down, coarsely", None;
    LaunchGaps: "launch-gaps", "c", "of a trace: remove launch gaps, as a CUDA graph would, or put them back", Some("CUDA graph");
    Type: "type", "Enter", "type the slider's value", Some("type"), "enter edit number";
    Pin: "pin", "p", "keep this variant (A, B, C), also across restarts", Some("keep"), "remember save variant";
    ResetOne: "reset", "0", "reset the slider", Some("reset"), "default";
    Undo: "undo", "u", "undo the last change", Some("undo"), "revert back";
    ResetAll: "reset-all", "Delete", "reset all sliders", Some("reset all"), "default clear";
    Redo: "redo", "ctrl-r", "redo", None;
    Unpin: "unpin", "P", "drop the variant kept last", None;
    Recall: "recall", "n", "go to the next kept variant", None;
    Strip: "strip", "t", "timeline strip: two layers, a whole step, or none", Some("strip");
    Base: "base", "B", "close the trace and go back to the cell, or start from the open trace", Some("close trace"), "leave without measured timeline";
    Frontier: "frontier", "f", "frontier over completion latency, or over TPOT", None;
}

impl Acts for WhatIf {
    type Act = Act;

    fn why_not(&self, act: Act, _cx: &Context) -> Option<&'static str> {
        let has_gaps = || self.answer.as_ref().is_some_and(|answer| answer.launch_gaps.is_some());
        let (is_possible, why_not) = match act {
            Act::ResetOne => {
                (self.slider().is_changed(&self.variant, &self.base), "the slider is unchanged")
            }
            Act::ResetAll => (self.variant != self.base, "no slider changed"),
            Act::Undo => (self.can_undo(), NOTHING_TO_UNDO),
            Act::Strip => (!self.lacks_strip_rows, "no room for the strip"),
            Act::LaunchGaps => (has_gaps(), "no launch-bound trace"),
            _ => return None,
        };
        (!is_possible).then_some(why_not)
    }

    fn hint(&self, act: Act, _cx: &Context) -> Option<HintWords> {
        // the header names the trace that the key starts from
        (act == Act::Base && self.traced.is_none()).then_some(HintWords::HIDDEN)
    }

    fn act(&mut self, act: Act, cx: &mut Context) {
        match act {
            Act::More => self.slide(true, false, cx),
            Act::Less => self.slide(false, false, cx),
            Act::MuchMore => self.slide(true, true, cx),
            Act::MuchLess => self.slide(false, true, cx),
            Act::Type => self.type_value(cx),
            Act::ResetOne => self.reset_slider(cx),
            Act::ResetAll => self.reset_all(cx),
            Act::Undo => self.undo(cx),
            Act::Redo => self.redo(cx),
            Act::Pin => {
                let told = self.pin();
                cx.inform(told);
            }
            Act::Unpin => {
                let undo = cx.key::<Self>(Act::Undo);
                cx.inform(match self.unpin() {
                    Some(letter) => format!("dropped {letter}; {undo} keeps it again"),
                    None => "no variant is kept".into(),
                });
            }
            Act::Recall => self.next_pin(cx),
            Act::Strip => self.turn_strip(cx),
            Act::LaunchGaps => {
                let why = self.profile_values().and_then(|values| values.no_launch_gaps);
                match (self.traced.is_some(), why) {
                    (false, _) => cx.inform("a simulated cell has no launch gaps of a trace"),
                    // an earlier session may have removed them
                    (true, Some(why)) if !self.variant.no_launch_gaps => cx.inform(why),
                    (true, _) => {
                        self.change(|variant, _| variant.no_launch_gaps = !variant.no_launch_gaps);
                    }
                }
            }
            Act::Base => match (&self.traced, &cx.open_trace) {
                (Some(_), _) => {
                    let kept =
                        self.kept_with_trace().map_or_else(String::new, |kept| format!("; {kept}"));
                    self.leave_trace();
                    cx.inform(format!("back at {}{kept}", self.base_name()));
                }
                (None, Some(_)) => {
                    self.seeded.clone_from(&cx.open_trace);
                    cx.request(Request::WhatIfOpenTrace { asked: true });
                }
                (None, None) => cx.inform("no trace is open on the timeline"),
            },
            Act::Frontier => self.turn_frontier(cx),
        }
    }
}

impl WhatIf {
    fn undo(&mut self, cx: &mut Context) {
        if let Some((name, is_kept)) = self.undo_keep() {
            let [keep, redo] = [Act::Pin, Act::Redo].map(|act| cx.key::<Self>(act));
            return cx.inform(match is_kept {
                true => format!("undone: dropped {name}"),
                false => format!("undone: kept {name}; {keep} or {redo} keeps it again"),
            });
        }
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
        cx.inform(undone.unwrap_or_else(|| NOTHING_TO_UNDO.into()));
    }

    fn redo(&mut self, cx: &mut Context) {
        let redone = self.redo_keep().or_else(|| self.travel(false));
        let redone = redone.map(|words| format!("redone: {words}"));
        cx.inform(redone.unwrap_or_else(|| "nothing to redo".into()));
    }

    /// Goes to the kept variant after the current one.
    fn next_pin(&mut self, cx: &mut Context) {
        let at = self.pins.iter().position(|pin| pin.variant == self.variant);
        let next = at.map_or(0, |at| at + 1) % self.pins.len().max(1);
        match self.pins.get(next).map(|pin| pin.variant.clone()) {
            Some(kept) => {
                self.change(|variant, _| *variant = kept);
            }
            None => {
                let pin = cx.key::<Self>(Act::Pin);
                cx.inform(format!("no variant is kept: {pin} keeps one"));
            }
        }
    }

    fn turn_strip(&mut self, cx: &mut Context) {
        if let Some(rows) = layout::rows_for_strip(cx.body(), self) {
            return cx.inform(format!("no room for the strip: it needs {} rows", cx.size.1 + rows));
        }
        let all = [StripView::Layer, StripView::Step, StripView::Hidden];
        self.strip = next_of(&all, self.strip, false);
    }

    fn turn_frontier(&mut self, cx: &mut Context) {
        if self.traced.is_some() {
            return cx.inform("a trace has one batch size: no frontier over batches");
        }
        if let Some(why) = plots::no_room(self, cx) {
            return cx.inform(why);
        }
        self.by_tpot = !self.by_tpot;
        let over = if self.by_tpot { "TPOT" } else { "completion latency" };
        cx.inform(format!("frontier over {over}"));
    }

    /// Starts from a run. On the timeline and on this screen, that is the run of the open trace. `of_trace` is the measured
    /// step time of the trace (ms), for a run that is not stored.
    fn start_selected(
        &mut self,
        selected: &SelectedRun,
        of_trace: Option<(f64, Provenance)>,
        cx: &mut Context,
    ) {
        self.seeded.clone_from(&cx.open_trace);
        let replaced = (self.edits() > 0).then(|| self.base_name().to_owned());
        // other screens ask for their own selected run
        let is_of_trace = matches!(cx.tab, Tab::Timeline | Tab::WhatIf) && cx.open_trace.is_some();
        self.start_from(selected, of_trace, cx);
        if let Some(replaced) = replaced.filter(|_| is_of_trace) {
            cx.inform(format!(
                "sliders are reset to run {}, of the open trace; before: {replaced}",
                selected.run
            ));
        }
    }

    fn start_from(
        &mut self,
        selected: &SelectedRun,
        of_trace: Option<(f64, Provenance)>,
        cx: &mut Context,
    ) {
        let records = cx.stored.iter().flat_map(|stored| stored.records.iter());
        let is_run = |record: &&Record| record.run == selected.run && record.spec == selected.spec;
        let run = { records }.find(is_run).filter(|run| run.provenance != Provenance::Simulated);
        let mut spec = selected.spec.clone();
        // a run on the host's own GPU names the profile of that GPU
        let gpu = run.and_then(|run| run.environment.get("hardware_profile")?.as_str());
        let is_built_in = |name: &&str| Profile::built_in().iter().any(|profile| profile.name == **name);
        if let Some(gpu) = gpu.filter(is_built_in).filter(|_| spec.hardware == "host") {
            spec.hardware = gpu.to_owned();
        }
        let note = self.start(&spec, format!("run {}", selected.run));
        let measured = run.and_then(|run| Some((run.metrics.as_ref()?.tpot_ms.p50, run.provenance)));
        let of_trace = of_trace.filter(|(_, provenance)| *provenance != Provenance::Simulated);
        let measured = measured.or(of_trace).filter(|(ms, _)| *ms > 0.0);
        self.measured = measured.filter(|_| note.is_none());
        let machine = machine_of(&selected.spec);
        self.measured_elsewhere = measured.filter(|_| note.is_some()).map(|(ms, _)| (ms, machine));
        let traced = run.filter(|run| self.measured_elsewhere.is_some() && run.trace.is_some()).cloned();
        self.run = Some(selected.spec.clone());
        if let Some(note) = note {
            cx.inform(note);
        }
        if let Some(run) = traced {
            self.start_from_trace_of(run, cx);
        }
    }

    /// Starts from the decode steps of a run whose machine cannot be simulated, unless its trace cannot be rewired.
    fn start_from_trace_of(&self, run: Record, cx: &mut Context) {
        let (store, started, name) = (Store::open(&cx.dir), self.started, format!("run {}", run.run));
        let work = move |_: &Stop| {
            let (trace, _) = desk::trace_of(&run, &store, None)?;
            traced(&trace, vec![run.run], Some(Phase::Decode), Facts::default()).map(Arc::new)
        };
        let take = move |whatif: &mut Self,
                         traced: Result<Arc<TracedSteps>, String>,
                         cx: &mut Context| {
            let is_shown = cx.tab == Tab::WhatIf && whatif.started == started && whatif.is_untouched();
            if let Some(traced) = traced.ok().filter(|_| is_shown) {
                cx.request(Request::WhatIfTraced(traced, name, None));
            }
        };
        cx.ask("trace", work, take);
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
        if let Some(WaitingVariant { variant: kept, is_new }) = self.waiting.first().cloned() {
            let (simulator, traced, asked) =
                (Arc::clone(&self.simulator), self.traced.clone(), kept.clone());
            let key = (self.started, kept.clone());
            let work = move |_: &_| answered(traced.as_deref(), &asked, &simulator);
            let take = move |whatif: &mut Self, answer, cx: &mut Context| {
                // a variant of another base waits for that base
                if whatif.started != started {
                    return;
                }
                // the same variant may be kept again
                cx.forget::<Self>("kept");
                let count = whatif.waiting.len();
                whatif.waiting.retain(|one| one.variant != kept);
                // undone before its answer arrived
                if whatif.waiting.len() == count {
                    return;
                }
                match cx.ok_or_fail(answer) {
                    Some(answer) => {
                        whatif.pins.push(Pin { variant: kept, answer });
                        if is_new {
                            cx.inform(format!("kept as {}", letter(whatif.pins.len() - 1)));
                        }
                    }
                    None if is_new => {}
                    // a missing profile may be back in the next session
                    None => whatif.unanswered.push(kept),
                }
            };
            cx.follow("kept", &key, work, take);
        }
        let has_break_even =
            |answer: &Arc<WhatIfAnswer>| answer.chosen().is_some() && !notes::never_hides(answer);
        if self.traced.is_some() || !self.current().is_some_and(has_break_even) {
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
    traced: Option<&TracedSteps>,
    variant: &WhatIfVariant,
    simulator: &Simulator,
) -> base::error::Result<Arc<WhatIfAnswer>> {
    let Some(traced) = traced else { return variant.answer(simulator).map(Arc::new) };
    let simulated_speedup = traced.simulated_speedup(simulator, variant);
    Ok(Arc::new(WhatIfAnswer { simulated_speedup, ..traced.answer(variant)? }))
}

/// Searches the break-even over the latency and over the bandwidth of the link.
fn break_even(simulator: &Simulator, variant: &WhatIfVariant) -> Vec<Result<BreakEven, String>> {
    let of = |over| variant.break_even(simulator, over, HIDDEN_PCT).map_err(|error| error.to_string());
    [BreakEvenQuantity::AlphaUs, BreakEvenQuantity::GbS].map(of).into()
}

impl Screen for WhatIf {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn serve(&mut self, request: Request, cx: &mut Context) -> Option<Request> {
        match request {
            Request::WhatIf(Some(selected)) => {
                self.start_selected(&selected, None, cx);
            }
            Request::WhatIfRunOfTrace { selected, measured } => {
                self.start_selected(&selected, measured, cx);
                self.is_run_of_trace = true;
            }
            Request::WhatIf(None) => {}
            Request::WhatIfTraced(traced, name, architecture) => {
                self.seeded.clone_from(&cx.open_trace);
                self.usable.clone_from(&cx.open_trace);
                if traced.phase() == Phase::Prefill && self.trace() != Some(name.as_str()) {
                    cx.inform("starts from the prefill at the timeline's cursor, not from decode steps");
                }
                let kept = self.kept_with_trace().filter(|_| self.trace() != Some(name.as_str()));
                if let Some(kept) = kept {
                    cx.inform(kept);
                }
                if self.start_traced(traced, name) {
                    let reset = cx.key::<Self>(Act::ResetAll);
                    cx.inform(format!(
                        "your changes to {} are back; {reset} resets all",
                        self.base_name()
                    ));
                }
                if let Some(architecture) = architecture {
                    cx.inform(format!(
                        "at {architecture}, as on the timeline; kernel and all-reduce times are those of {}",
                        self.base_name()
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

    fn input(&mut self, input: ScreenInput<'_>, cx: &mut Context) -> bool {
        match input {
            ScreenInput::Mouse(body, event) => return self.point(body, event, cx),
            ScreenInput::Close => self.error = None,
            _ => return false,
        }
        true
    }

    fn own_edits(&self) -> Option<OwnEdits> {
        Some(OwnEdits { count: self.edits(), are_views: false })
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        self.lacks_strip_rows = layout::rows_for_strip(body, self).is_some();
        // an open trace is what the user looks at, unless a cell was changed or kept already
        let is_another = cx.open_trace.is_some() && self.seeded != cx.open_trace;
        let stays = self.traced.is_none() && !self.is_pristine() && !self.ended_on_trace;
        if is_another && stays {
            if self.offered != cx.open_trace {
                self.offered.clone_from(&cx.open_trace);
                let (base, key) = (self.base_name(), cx.key::<Self>(Act::Base));
                cx.inform(format!("what-if stays at {base}; {key} starts from the open trace"));
            }
        } else if is_another {
            self.ended_on_trace = false;
            self.seeded.clone_from(&cx.open_trace);
            // the next trace may not be usable, and then the cell is shown
            if let Some(trace) = self.trace().map(str::to_owned) {
                let changes = if self.is_untouched() { "" } else { "; your changes return with it" };
                let kept = self.kept_with_trace().map_or_else(String::new, |kept| format!("; {kept}"));
                self.leave_trace();
                cx.inform(format!("another trace is open; what-if leaves {trace}{changes}{kept}"));
            }
            cx.request(Request::WhatIfOpenTrace { asked: false });
        }
        self.ask(cx);
    }

    fn notes(&self, body: Rect, cx: &Context) -> Vec<ScreenNote> {
        notes::notes(self, body, cx)
    }

    fn finds(&self, _cx: &Context) -> Vec<Find> {
        let find = |(at, slider): (usize, Slider)| {
            let about = format!("slider  {}", slider.about());
            let also = if slider == Slider::Alpha { "alpha alpha-us" } else { "" };
            Find::new(slider.name(), about, move |whatif: &mut Self, _| whatif.list.selected = at)
                .also(also)
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
        let beyond = if self.pins.is_empty() { Vec::new() } else { vec!["the kept variants".into()] };
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
        let all: Vec<(String, &WhatIfAnswer)> =
            std::iter::once(("now".to_owned(), &**answer)).chain(named).collect();
        Ok(Some(Export::text(csv(self, &all))))
    }
}

/// Table of these answers, each with its name and its changes of the base; provenance and speedups as on the screen.
fn csv(whatif: &WhatIf, answers: &[(String, &WhatIfAnswer)]) -> String {
    let before = ["variant", "architecture", "provenance", "changes"].into_iter();
    let of_speedup = ["speedup_over", "speedup_low", "speedup_high", "speedup_is_upper_bound"];
    let after = ["base", "change_pct", "reason", "command"];
    let columns = before.chain(SimulatedMetrics::NAMES).chain(of_speedup).chain(after);
    let mut rows = Table::new(columns);
    let (provenance, over, base_name) = match whatif.traced.as_ref().zip(whatif.trace()) {
        Some((traced, trace)) => ("predicted", "the trace", format!("{} of {trace}", traced.steps())),
        None => ("simulated", "standard", whatif.base_name().to_owned()),
    };
    for (name, answer) in answers {
        let changes = whatif.changes(&answer.variant, &answer.profile_values);
        for row in &answer.rows {
            // the command belongs to the chosen architecture
            let chosen = answer.is_chosen(row);
            let command = chosen.then(|| format!("ladderscope {}", shell_command(&answer.arguments)));
            let texts = [name, &answer.label(row), provenance, &changes];
            let base = whatif.base_answer.as_ref().and_then(|base| numbers::tpot(base, row));
            let own = row.numbers.as_ref().ok();
            let tpot_ms = own.map(|own| own.tpot_ms);
            let change_pct = tpot_ms.zip(base).map(|(own, base)| 100.0 * (own / base - 1.0));
            let speedup = own.and_then(|own| own.speedup);
            let ends = own.and_then(|own| own.speedup_95);
            let mut cells: Vec<Shown> = texts.map(Shown::text).into();
            cells.extend(SimulatedMetrics::NAMES.iter().map(|name| row.shown(name)));
            cells.push(speedup.map(|_| over).into());
            cells.extend([0, 1].map(|end| Shown::number(ends.map(|ends| ends[end]), 3)));
            cells.push(speedup.map(|_| answer.is_overstated().to_string()).into());
            cells.push(Shown::text(&base_name));
            cells.extend([Shown::number(change_pct, 2), row.reason(), command.into()]);
            rows.push(cells);
        }
    }
    rows.csv(Sourced::ByRow)
}
