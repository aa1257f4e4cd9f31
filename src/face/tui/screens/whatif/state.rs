//! State of screen 7: base, current variant, and its answers.

use std::sync::Arc;

use super::draw::value_text;
use crate::face::tui::prelude::*;
use run::sim::Simulator;
use serde::{Deserialize, Serialize};
use study::whatif::{BreakEven, ProfileValues, Slider, TracedSteps, WhatIfAnswer, WhatIfVariant};
use table::{Backend, Provenance, Spec};

pub const MOST_PINS: usize = 6;

#[derive(Debug, Default)]
pub struct WhatIf {
    /// Starting point of the sliders.
    pub base: WhatIfVariant,
    /// Display name of the base; empty for the default one.
    base_name: String,
    /// Measured TPOT of the run that is the base (ms), over a real or an emulated link; `None` if it was simulated, or is
    /// simulated on another machine.
    pub measured: Option<(f64, Provenance)>,
    /// Measured TPOT of the run that is the base (ms), and its machine without a profile, for which another is simulated.
    pub measured_elsewhere: Option<(f64, &'static str)>,
    /// Options of the run that is the base, as stored; `None` for another base.
    pub run: Option<Spec>,
    /// True if the base simulates the run of an open trace that cannot be rewired.
    pub is_run_of_trace: bool,
    /// Measured steps that the sliders change; `None` for a simulated cell.
    pub traced: Option<Arc<TracedSteps>>,
    /// Name of its trace.
    trace: String,
    /// Changes to traces that are no longer the base; they return with their trace.
    earlier: Vec<TraceChanges>,
    /// Cell before the sliders changed a trace.
    before_trace: Option<Box<CellBase>>,
    /// Open trace from which the sliders started by themselves, or were started.
    pub seeded: Option<String>,
    /// Last open trace from which the sliders could start.
    pub usable: Option<String>,
    /// Open trace that was offered as the next base, because the present one has changes.
    pub offered: Option<String>,
    /// True if the last session ended on a trace, which the next open trace replaces.
    pub ended_on_trace: bool,
    /// Name of the trace that the last session ended on, until a base is chosen.
    pub left_trace: Option<String>,
    pub variant: WhatIfVariant,
    undo: Vec<WhatIfVariant>,
    redo: Vec<WhatIfVariant>,
    /// Variants kept and dropped, oldest first, each with the length of `undo` at that time; undo reverts them.
    keeps: Vec<(usize, KeepChange)>,
    /// Keeps and drops that were undone, the last one at the end, each with the length of `undo` at that time and true for a
    /// keep; redo repeats them.
    undone_keeps: Vec<(usize, bool)>,
    pub list: List,
    pub base_answer: Option<Arc<WhatIfAnswer>>,
    base_error: Option<String>,
    /// Latest answer; may belong to an earlier variant while the next one is computed.
    pub answer: Option<Arc<WhatIfAnswer>>,
    /// Break-even points and the variant they belong to.
    pub found: Option<(WhatIfVariant, Vec<Result<BreakEven, String>>)>,
    pub error: Option<String>,
    pub simulator: Arc<Simulator>,
    /// Number of times a new base was set.
    pub started: u64,
    /// Kept variants: A, B, C.
    pub pins: Vec<Pin>,
    /// Variants kept without an answer, until they are simulated.
    pub waiting: Vec<WaitingVariant>,
    /// Kept variants that could not be simulated in this session; saved for the next one.
    pub unanswered: Vec<WhatIfVariant>,
    /// Variants kept for other traces, and for cells while a trace is the base; they return with it.
    parked: Vec<KeptVariants>,
    pub strip: StripView,
    /// True if the window has no rows for the strip.
    pub lacks_strip_rows: bool,
    /// True if the frontier shows TPOT, false for completion latency.
    pub by_tpot: bool,
}

#[derive(Debug)]
enum KeepChange {
    Kept(WhatIfVariant),
    Dropped(Pin),
}

/// Kept variant that is still being simulated.
#[derive(Clone, Debug)]
pub struct WaitingVariant {
    pub variant: WhatIfVariant,
    /// True if the user just kept it, so that its answer comes with a message; false if it was restored from the
    /// previous session or with its trace.
    pub is_new: bool,
}

impl WaitingVariant {
    fn returning(variants: Vec<WhatIfVariant>) -> Vec<Self> {
        variants.into_iter().map(|variant| Self { variant, is_new: false }).collect()
    }
}

/// Changes of the sliders to a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TraceChanges {
    trace: String,
    base: WhatIfVariant,
    variant: WhatIfVariant,
    #[serde(skip)]
    undo: Vec<WhatIfVariant>,
    #[serde(skip)]
    redo: Vec<WhatIfVariant>,
}

/// Simulated cell as the base of the sliders, and the present variant.
#[derive(Clone, Debug, Default)]
struct CellBase {
    base: WhatIfVariant,
    name: String,
    variant: WhatIfVariant,
    run: BaseRun,
}

/// Run that a base simulates: the same fields as in [`WhatIf`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct BaseRun {
    run: Option<Spec>,
    measured: Option<(f64, Provenance)>,
    /// Measured TPOT on a machine without a profile (ms).
    measured_elsewhere_ms: Option<f64>,
    is_run_of_trace: bool,
}

/// Machine without a profile that a run was measured on, in words.
pub fn machine_of(run: &Spec) -> &'static str {
    if run.backend == Backend::Cpu { "a CPU" } else { "another GPU" }
}

/// Variants kept for a trace, or for all simulated cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptVariants {
    /// Name of the trace; empty for cells.
    trace: String,
    /// Traced engine, as two files may have one name; the default for cells.
    base: WhatIfVariant,
    variants: Vec<WhatIfVariant>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptWhatIf {
    base: WhatIfVariant,
    base_name: String,
    variant: WhatIfVariant,
    strip: StripView,
    by_tpot: bool,
    /// Variants kept for cells.
    #[serde(default)]
    pins: Vec<WhatIfVariant>,
    #[serde(default)]
    of_traces: Vec<KeptVariants>,
    /// True if a trace was the base.
    #[serde(default)]
    is_of_trace: bool,
    /// Name of the trace that was the base; empty for a cell.
    #[serde(default)]
    trace: String,
    /// Changes to traces.
    #[serde(default)]
    changes: Vec<TraceChanges>,
    /// Run that the base simulates.
    #[serde(default)]
    run: BaseRun,
}

impl PersistentScreen for WhatIf {
    type Kept = KeptWhatIf;

    /// Returns `None` if the sliders were never used.
    fn keep(&self) -> Option<KeptWhatIf> {
        // a trace is not open in the next session
        let cell = self.before_trace.as_deref().cloned();
        let CellBase { base, name: base_name, variant, run } = cell.unwrap_or_else(|| self.cell());
        let mut changes = self.earlier.clone();
        if let Some(own) = self.trace_changes() {
            changes.retain(|one| one.trace != own.trace);
            changes.push(own);
        }
        let Self { strip, by_tpot, .. } = self;
        let all = self.parked.iter().cloned().chain([self.kept_variants()]);
        let all = all.filter(|kept| !kept.variants.is_empty());
        let (of_cells, of_traces): (Vec<_>, Vec<_>) = all.partition(|kept| kept.trace.is_empty());
        let pins: Vec<WhatIfVariant> = of_cells.into_iter().flat_map(|kept| kept.variants).collect();
        let is_moved = variant != WhatIfVariant::default() || base != WhatIfVariant::default();
        let has_kept = !pins.is_empty() || !of_traces.is_empty();
        (is_moved || has_kept || !changes.is_empty()).then(|| KeptWhatIf {
            base,
            base_name,
            variant,
            strip: *strip,
            by_tpot: *by_tpot,
            pins,
            of_traces,
            is_of_trace: self.traced.is_some() || self.ended_on_trace,
            trace: self.left_trace.as_ref().unwrap_or(&self.trace).clone(),
            changes,
            run,
        })
    }

    fn restore(&mut self, kept: KeptWhatIf, _cx: &mut Context) {
        let KeptWhatIf { base, base_name, variant, strip, by_tpot, mut pins, .. } = kept;
        let KeptWhatIf { of_traces, is_of_trace, trace, changes, run, .. } = kept;
        pins.truncate(MOST_PINS);
        let waiting = WaitingVariant::returning(pins);
        let (simulator, started) = (Arc::clone(&self.simulator), self.started + 1);
        let (parked, ended_on_trace) = (of_traces, is_of_trace);
        let kept = Self { base, base_name, variant, strip, by_tpot, waiting, parked, ..Self::default() };
        let left_trace = Some(trace).filter(|trace| !trace.is_empty());
        let kept = Self { ended_on_trace, left_trace, earlier: changes, ..kept };
        *self = Self { simulator, started, ..kept };
        self.set_run(run);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StripView {
    /// Two layers of a step.
    #[default]
    Layer,
    Step,
    /// No strip; the frontier uses its space.
    Hidden,
}

#[derive(Clone, Debug)]
pub struct Pin {
    pub variant: WhatIfVariant,
    pub answer: Arc<WhatIfAnswer>,
}

impl WhatIf {
    /// Restarts from an executed cell; returns a note for the user, if any.
    pub fn start(&mut self, spec: &Spec, name: String) -> Option<String> {
        let (variant, note) = WhatIfVariant::from_spec(spec);
        self.restart(variant, name, None);
        note
    }

    /// Restarts from the measured steps of a trace. Returns true if earlier changes to that trace are back.
    pub fn start_traced(&mut self, traced: Arc<TracedSteps>, trace: String) -> bool {
        self.list.selected = 0;
        let before = self.before_trace.take();
        let own = || Box::new(self.cell());
        let before = before.or_else(|| self.traced.is_none().then(own));
        self.restart(traced.base.clone(), trace.clone(), Some((traced, trace)));
        self.before_trace = before;
        let is_back = |one: &TraceChanges| one.trace == self.trace && one.base == self.base;
        let Some(at) = self.earlier.iter().position(is_back) else { return false };
        let TraceChanges { variant, undo, redo, .. } = self.earlier.swap_remove(at);
        (self.variant, self.undo, self.redo) = (variant, undo, redo);
        self.variant != self.base
    }

    /// Name of the trace that the sliders change, if any.
    pub fn trace(&self) -> Option<&str> {
        self.traced.is_some().then_some(self.trace.as_str())
    }

    /// Open trace from which the sliders can start; `None` if an earlier attempt failed.
    pub fn usable_trace<'a>(&self, cx: &'a Context) -> Option<&'a str> {
        let is_untried = self.seeded != cx.open_trace;
        cx.open_trace.as_deref().filter(|_| is_untried || self.usable == cx.open_trace)
    }

    /// True if no slider was moved in this session since the base was set.
    pub fn is_untouched(&self) -> bool {
        self.undo.is_empty()
    }

    /// True if the base has neither changes nor kept variants, so that an open trace may replace it.
    pub fn is_pristine(&self) -> bool {
        let has_kept = !self.pins.is_empty() || !self.waiting.is_empty();
        self.is_untouched() && self.variant == self.base && !has_kept
    }

    /// Name of the cell that [`Self::leave_trace`] goes back to.
    pub fn cell_name(&self) -> String {
        shown_name(self.before_trace.as_ref().map_or("", |cell| &cell.name)).to_owned()
    }

    pub fn base_name(&self) -> &str {
        shown_name(&self.base_name)
    }

    /// Goes back from a trace to the cell before it.
    pub fn leave_trace(&mut self) {
        let CellBase { base, name, variant, run } = *self.before_trace.take().unwrap_or_default();
        self.list.selected = 0;
        self.restart(base, name, None);
        self.variant = variant;
        self.set_run(run);
    }

    /// Simulated cell that is the base.
    fn cell(&self) -> CellBase {
        let run = BaseRun {
            run: self.run.clone(),
            measured: self.measured,
            measured_elsewhere_ms: self.measured_elsewhere.map(|(ms, _)| ms),
            is_run_of_trace: self.is_run_of_trace,
        };
        CellBase {
            base: self.base.clone(),
            name: self.base_name.clone(),
            variant: self.variant.clone(),
            run,
        }
    }

    fn set_run(&mut self, BaseRun { run, measured, measured_elsewhere_ms, is_run_of_trace }: BaseRun) {
        let machine = run.as_ref().map_or("another GPU", machine_of);
        self.measured_elsewhere = measured_elsewhere_ms.map(|ms| (ms, machine));
        (self.run, self.measured, self.is_run_of_trace) = (run, measured, is_run_of_trace);
    }

    /// Changes to the trace that is the base; `None` for a cell, or without changes.
    fn trace_changes(&self) -> Option<TraceChanges> {
        let has_changes = !self.undo.is_empty() || self.variant != self.base;
        (self.traced.is_some() && has_changes).then(|| TraceChanges {
            trace: self.trace.clone(),
            base: self.base.clone(),
            variant: self.variant.clone(),
            undo: self.undo.clone(),
            redo: self.redo.clone(),
        })
    }

    /// All variants kept for the present base.
    fn kept_variants(&self) -> KeptVariants {
        let pins = self.pins.iter().map(|pin| &pin.variant);
        let waiting = self.waiting.iter().map(|one| &one.variant);
        let variants = pins.chain(waiting).chain(&self.unanswered).cloned().collect();
        let base = if self.traced.is_some() { self.base.clone() } else { WhatIfVariant::default() };
        KeptVariants { trace: self.trace.clone(), base, variants }
    }

    /// Message with the number of variants kept for the current trace; `None` without a trace or a kept variant.
    pub fn kept_with_trace(&self) -> Option<String> {
        let (trace, count) = (self.trace()?, self.kept_variants().variants.len());
        (count > 0).then(|| format!("{} kept with {trace}", counted(count, "variant")))
    }

    /// Starts from a cell, or from the trace with this name. The variants kept for the next base return, with
    /// answers of its own.
    fn restart(
        &mut self,
        variant: WhatIfVariant,
        base_name: String,
        traced: Option<(Arc<TracedSteps>, String)>,
    ) {
        let slider = self.slider();
        let kept = self.kept_variants();
        let mut earlier = std::mem::take(&mut self.earlier);
        if self.traced.is_some() {
            earlier.retain(|one| one.trace != self.trace);
            earlier.extend(self.trace_changes());
        }
        let mut pins = std::mem::take(&mut self.pins);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut unanswered = std::mem::take(&mut self.unanswered);
        let mut parked = std::mem::take(&mut self.parked);
        // answers about cells hold for every other cell
        if self.traced.is_some() || traced.is_some() {
            parked.push(kept);
            let base = if traced.is_some() { variant.clone() } else { WhatIfVariant::default() };
            let trace = traced.as_ref().map_or("", |(_, trace)| trace);
            let is_own = |one: &KeptVariants| one.trace == trace && one.base == base;
            let own = parked.iter().position(is_own).map(|at| parked.swap_remove(at).variants);
            waiting = WaitingVariant::returning(own.unwrap_or_default());
            (pins, unanswered) = (Vec::new(), Vec::new());
        }
        let (traced, trace) = traced.unzip();
        *self = Self {
            base: variant.clone(),
            base_name,
            traced,
            trace: trace.unwrap_or_default(),
            variant,
            earlier,
            seeded: self.seeded.take(),
            usable: self.usable.take(),
            offered: self.offered.take(),
            simulator: Arc::clone(&self.simulator),
            started: self.started + 1,
            list: self.list,
            strip: self.strip,
            by_tpot: self.by_tpot,
            pins,
            waiting,
            unanswered,
            parked,
            ..Self::default()
        };
        self.select_again(slider);
    }

    /// Sliders that change the base: all of a simulated cell, few of a trace.
    pub fn sliders(&self) -> Vec<Slider> {
        match self.traced {
            Some(_) => Slider::of_trace(self.profile_values()),
            None => Slider::of_cell(&self.variant, self.profile_values()),
        }
    }

    /// Moves the selection to a slider's place after others appeared or vanished.
    fn select_again(&mut self, slider: Slider) {
        let at = self.sliders().iter().position(|one| *one == slider);
        self.list.selected = at.unwrap_or(self.list.selected);
    }

    pub fn slider(&self) -> Slider {
        let sliders = self.sliders();
        sliders[self.list.selected.min(sliders.len() - 1)]
    }

    /// Default values of the hardware profile, if known.
    pub fn profile_values(&self) -> Option<&ProfileValues> {
        self.answer.as_ref().map(|answer| &answer.profile_values)
    }

    /// Changes the variant and records the previous one; returns true if anything changed.
    pub fn change(&mut self, by: impl FnOnce(&mut WhatIfVariant, Option<&ProfileValues>)) -> bool {
        let before = self.variant.clone();
        let answer = self.answer.clone();
        by(&mut self.variant, answer.as_ref().map(|answer| &answer.profile_values));
        if self.variant == before {
            return false;
        }
        self.redo.clear();
        self.undone_keeps.clear();
        self.undo.push(before);
        true
    }

    /// Drops the variant kept last; returns its letter.
    pub fn unpin(&mut self) -> Option<char> {
        self.undone_keeps.clear();
        self.drop_last()
    }

    fn drop_last(&mut self) -> Option<char> {
        let pin = self.pins.pop()?;
        self.keeps.push((self.undo.len(), KeepChange::Dropped(pin)));
        Some(letter(self.pins.len()))
    }

    /// Drops the variant that was kept last, or keeps the one that was dropped last, unless a slider changed since; returns
    /// its letter and settings, `A (ladder, batch 2)`, and true if it is kept again.
    pub fn undo_keep(&mut self) -> Option<(String, bool)> {
        let (changes, has_room) = (self.undo.len(), self.pins.len() < MOST_PINS);
        let is_next = |(at, change): &mut (usize, KeepChange)| {
            *at >= changes && (has_room || matches!(change, KeepChange::Kept(_)))
        };
        let (at, undone) = self.keeps.pop_if(is_next)?;
        self.undone_keeps.push((at, matches!(undone, KeepChange::Kept(_))));
        match undone {
            KeepChange::Dropped(pin) => {
                let name = self.kept_name(self.pins.len(), &pin.variant);
                self.pins.push(pin);
                Some((name, true))
            }
            KeepChange::Kept(variant) => {
                let pinned = self.pins.iter().map(|pin| &pin.variant);
                let mut all = pinned.chain(self.waiting.iter().map(|one| &one.variant));
                let at = all.position(|one| *one == variant)?;
                self.pins.retain(|pin| pin.variant != variant);
                self.waiting.retain(|one| one.variant != variant);
                Some((self.kept_name(at, &variant), false))
            }
        }
    }

    /// Letter of a kept variant with its architecture and changes: `A (ladder, batch 2)`.
    fn kept_name(&self, index: usize, variant: &WhatIfVariant) -> String {
        let changes = self.profile_values().map(|values| self.changes(variant, values));
        let changes = changes.filter(|changes| !changes.is_empty());
        let changes = changes.map_or_else(String::new, |changes| format!(", {changes}"));
        format!("{} ({}{changes})", letter(index), variant.cell.architecture)
    }

    /// Repeats the keep or drop that was undone last, unless a slider was moved by undo or redo since; returns it in words.
    pub fn redo_keep(&mut self) -> Option<String> {
        let changes = self.undo.len();
        let (_, is_keep) = self.undone_keeps.pop_if(|(at, _)| *at == changes)?;
        match is_keep {
            true => Some(self.keep_present()),
            false => self.drop_last().map(|letter| format!("dropped {letter}")),
        }
    }

    /// True if there is a change, or a kept or dropped variant, to undo.
    pub fn can_undo(&self) -> bool {
        !self.undo.is_empty() || !self.keeps.is_empty()
    }

    /// Number of changes to undo.
    pub fn edits(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the last change, or redoes the one undone last; returns it in words, or `None` if there is none.
    pub fn travel(&mut self, back: bool) -> Option<String> {
        let (from, onto) =
            if back { (&mut self.undo, &mut self.redo) } else { (&mut self.redo, &mut self.undo) };
        let undone = std::mem::replace(&mut self.variant, from.pop()?);
        onto.push(undone.clone());
        let values = self.profile_values();
        // experts are part of the model's name
        let is_moved = |slider: &Slider| slider.is_changed(&undone, &self.variant);
        let of_model = is_moved(&Slider::Experts) || is_moved(&Slider::TopK);
        let moved = Slider::ALL.into_iter().filter(is_moved);
        let moved = moved.filter(|slider| !(of_model && *slider == Slider::Model));
        let words = moved.filter_map(|slider| {
            let [from, to] = [&undone, &self.variant].map(|of| value_text(slider, of, values));
            let back = if back { "back " } else { "" };
            (from != to).then(|| format!("{} from {from} {back}to {to}", slider.name()))
        });
        Some(words.collect::<Vec<_>>().join(", "))
    }

    /// Variant to ask about next: the base first, since everything is compared with it.
    pub fn wanted(&self) -> &WhatIfVariant {
        if self.base_answer.is_none() && self.base_error.is_none() { &self.base } else { &self.variant }
    }

    /// Break-even points of the current variant; `None` until found.
    pub fn break_even(&self) -> Option<&[Result<BreakEven, String>]> {
        self.found.as_ref().filter(|(of, _)| *of == self.variant).map(|(_, found)| found.as_slice())
    }

    /// Answer for the current variant; `None` while it is computed, or if it failed.
    pub fn current(&self) -> Option<&Arc<WhatIfAnswer>> {
        self.answer.as_ref().filter(|answer| answer.variant == self.variant)
    }

    /// Stores an answer. Answers for outdated variants are shown too, so that the screen follows a held
    /// key; their errors are ignored.
    pub fn learn(&mut self, asked: &WhatIfVariant, answer: Result<Arc<WhatIfAnswer>, String>) {
        let (wanted, slider) = (asked == self.wanted(), self.slider());
        match answer {
            Ok(answer) => {
                if answer.variant == self.base {
                    self.base_answer = Some(answer.clone());
                }
                if wanted {
                    self.error = None;
                }
                self.answer = Some(answer);
                self.select_again(slider);
            }
            Err(why) if wanted => {
                if *asked == self.base {
                    // without the base there is no comparison, but the variant's answer is still useful
                    self.base_error = Some(why.clone());
                }
                self.error = Some(why);
            }
            Err(_) => {}
        }
    }

    /// Keeps the current variant, once its answer arrives if it has none yet. Returns the result in words, or the reason if
    /// it cannot be kept.
    pub fn pin(&mut self) -> String {
        self.undone_keeps.clear();
        self.keep_present()
    }

    fn keep_present(&mut self) -> String {
        if let Some(at) = self.pins.iter().position(|pin| pin.variant == self.variant) {
            return format!("this variant is kept already, as {}", letter(at));
        }
        if let Some(at) = self.waiting.iter().position(|one| one.variant == self.variant) {
            return kept_later(self.pins.len() + at);
        }
        if self.pins.len() + self.waiting.len() + self.unanswered.len() >= MOST_PINS {
            return format!("{MOST_PINS} variants are kept; drop one first");
        }
        let variant = self.variant.clone();
        self.keeps.push((self.undo.len(), KeepChange::Kept(variant.clone())));
        match self.current().cloned() {
            Some(answer) => {
                self.pins.push(Pin { variant, answer });
                format!("kept as {}", letter(self.pins.len() - 1))
            }
            None => {
                self.waiting.push(WaitingVariant { variant, is_new: true });
                kept_later(self.pins.len() + self.waiting.len() - 1)
            }
        }
    }

    /// Sliders but the architecture in which a variant differs from the base: `AR latency 40 us, TP 4`.
    pub fn changes(&self, variant: &WhatIfVariant, profile_values: &ProfileValues) -> String {
        let moved = Slider::ALL.into_iter().filter(|slider| slider.is_changed(variant, &self.base));
        let words: Vec<String> = moved
            .filter(|slider| *slider != Slider::Architecture)
            .map(|slider| {
                let value = value_text(slider, variant, Some(profile_values));
                let unit = slider.unit();
                let gap = if unit.is_empty() { "" } else { " " };
                format!("{} {value}{gap}{unit}", slider.name())
            })
            .collect();
        words.join(", ")
    }
}

/// Name of a base; that of the default one is empty.
fn shown_name(name: &str) -> &str {
    if name.is_empty() { "the paper's 70B cell" } else { name }
}

/// Message on a kept variant without an answer.
fn kept_later(index: usize) -> String {
    format!("kept as {} once its answer arrives", letter(index))
}

pub fn letter(index: usize) -> char {
    char::from(b'A' + (index % 26) as u8)
}
