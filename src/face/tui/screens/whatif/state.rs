//! State of screen 7: the variant under the sliders, what it came from, and what the engine said of it.

use std::sync::Arc;

use crate::face::tui::prelude::*;
use serde::{Deserialize, Serialize};
use study::whatif::{Answer, BreakEven, Engine, ProfileValues, Slider, Variant};
use table::Spec;

/// Variants that can be kept beside each other.
pub const MOST_PINS: usize = 6;

/// Undone steps that are remembered.
const MOST_UNDO: usize = 200;

/// State of the what-if screen.
#[derive(Debug)]
pub struct WhatIf {
    /// What the sliders started from.
    pub base: Variant,
    /// Where that came from, for people.
    pub base_name: String,
    /// What the sliders make of it.
    pub variant: Variant,
    /// Earlier variants, the latest last.
    undo: Vec<Variant>,
    /// The sliders, which of them is selected, and which are shown.
    pub list: List,
    /// What the engine said of the base.
    pub base_answer: Option<Arc<Answer>>,
    /// Why the engine has no answer to the base.
    base_error: Option<String>,
    /// What the engine said last; it may be of an earlier variant while the next answer is under way.
    pub answer: Option<Arc<Answer>>,
    /// Where communication stops to be hidden, and for which variant.
    pub found: Option<(Variant, Vec<Result<BreakEven, String>>)>,
    /// Why there is no answer to the variant.
    pub error: Option<String>,
    /// The engine that computes the answers.
    pub engine: Arc<Engine>,
    /// Counts the starts from another base.
    pub started: u64,
    /// Variants that are kept: A, B, C.
    pub pins: Vec<Pin>,
    /// Variants that were kept when the workbench was left, until they are answered again.
    pub waiting: Vec<Variant>,
    /// Kept variants that could not be simulated at this start: they are kept for the next.
    pub unanswered: Vec<Variant>,
    /// What the strip shows.
    pub strip: StripView,
    /// The frontier shows TPOT, else completion latency.
    pub by_tpot: bool,
}

/// What is kept from one start of the workbench to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptWhatIf {
    base: Variant,
    base_name: String,
    variant: Variant,
    strip: StripView,
    by_tpot: bool,
    #[serde(default)]
    pins: Vec<Variant>,
}

impl Kept for WhatIf {
    type Kept = KeptWhatIf;

    /// Nothing if the sliders were never used.
    fn keep(&self) -> Option<KeptWhatIf> {
        let Self { base, base_name, variant, strip, by_tpot, .. } = self;
        let pins = self.pins.iter().map(|pin| &pin.variant).chain(&self.waiting).chain(&self.unanswered);
        let pins: Vec<Variant> = pins.cloned().collect();
        let used = *variant != Variant::default() || *base != Variant::default() || !pins.is_empty();
        used.then(|| KeptWhatIf {
            base: base.clone(),
            base_name: base_name.clone(),
            variant: variant.clone(),
            strip: *strip,
            by_tpot: *by_tpot,
            pins,
        })
    }

    fn restore(&mut self, kept: KeptWhatIf, _cx: &mut Context) {
        let KeptWhatIf { base, base_name, variant, strip, by_tpot, pins: mut waiting } = kept;
        waiting.truncate(MOST_PINS);
        let (engine, started) = (Arc::clone(&self.engine), self.started + 1);
        let kept = Self { base, base_name, variant, strip, by_tpot, waiting, ..Self::default() };
        *self = Self { engine, started, ..kept };
    }
}

/// What the strip shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StripView {
    /// Two layers of a step.
    Layer,
    /// A whole decode step, from its first operation to its last.
    Step,
    /// Nothing: the frontier has its room.
    Hidden,
}

/// A variant that is kept.
#[derive(Clone, Debug)]
pub struct Pin {
    /// The simulated cell with what the sliders changed.
    pub variant: Variant,
    /// What the engine said of it.
    pub answer: Arc<Answer>,
}

impl Default for WhatIf {
    fn default() -> Self {
        Self {
            base: Variant::default(),
            base_name: "the paper's 70B cell".into(),
            variant: Variant::default(),
            undo: Vec::new(),
            list: List::default(),
            base_answer: None,
            base_error: None,
            answer: None,
            found: None,
            error: None,
            engine: Arc::default(),
            started: 0,
            pins: Vec::new(),
            waiting: Vec::new(),
            unanswered: Vec::new(),
            strip: StripView::Layer,
            by_tpot: false,
        }
    }
}

impl WhatIf {
    /// Starts anew from a cell that was run; what should be said about that.
    pub fn start(&mut self, spec: &Spec, name: String) -> Option<String> {
        let (variant, note) = Variant::of(spec);
        let (pins, waiting) = (std::mem::take(&mut self.pins), std::mem::take(&mut self.waiting));
        let unanswered = std::mem::take(&mut self.unanswered);
        *self = Self {
            base: variant.clone(),
            base_name: name,
            variant,
            engine: Arc::clone(&self.engine),
            started: self.started + 1,
            list: self.list,
            strip: self.strip,
            by_tpot: self.by_tpot,
            pins,
            waiting,
            unanswered,
            ..Self::default()
        };
        note
    }

    /// The slider that is selected.
    pub fn slider(&self) -> Slider {
        Slider::ALL[self.list.selected.min(Slider::ALL.len() - 1)]
    }

    /// What holds without the sliders, as far as it is known.
    pub fn profile_values(&self) -> Option<&ProfileValues> {
        self.answer.as_ref().map(|answer| &answer.profile_values)
    }

    /// Changes the variant, remembering what it was; whether anything changed.
    pub fn change(&mut self, by: impl FnOnce(&mut Variant, Option<&ProfileValues>)) -> bool {
        let before = self.variant.clone();
        let answer = self.answer.clone();
        by(&mut self.variant, answer.as_ref().map(|answer| &answer.profile_values));
        if self.variant == before {
            return false;
        }
        self.undo.push(before);
        if self.undo.len() > MOST_UNDO {
            self.undo.remove(0);
        }
        true
    }

    /// Back to the variant before the last change; whether there was one.
    pub fn undo(&mut self) -> bool {
        self.undo.pop().map(|before| self.variant = before).is_some()
    }

    /// The variant to ask about: the base first, to which everything is compared.
    pub fn wanted(&self) -> &Variant {
        if self.base_answer.is_none() && self.base_error.is_none() { &self.base } else { &self.variant }
    }

    /// Where communication stops to be hidden; `None` until that is found for the variant.
    pub fn break_even(&self) -> Option<&[Result<BreakEven, String>]> {
        self.found.as_ref().filter(|(of, _)| *of == self.variant).map(|(_, found)| found.as_slice())
    }

    /// The answer for the variant as it is; `None` while it is under way, or where it cannot be had.
    pub fn current(&self) -> Option<&Arc<Answer>> {
        self.answer.as_ref().filter(|answer| answer.variant == self.variant)
    }

    /// Takes the answer to a question about a variant. One about a variant that the sliders have left is shown,
    /// too: the screen follows the key that is held. That there is none of it, nobody wants to know.
    pub fn learn(&mut self, asked: &Variant, answer: Result<Arc<Answer>, String>) {
        let wanted = asked == self.wanted();
        match answer {
            Ok(answer) => {
                if answer.variant == self.base {
                    self.base_answer = Some(answer.clone());
                }
                if wanted {
                    self.error = None;
                }
                self.answer = Some(answer);
            }
            Err(why) if wanted => {
                if *asked == self.base {
                    // the variant's answer has nothing to be compared to, but is wanted all the same
                    self.base_error = Some(why.clone());
                }
                self.error = Some(why);
            }
            Err(_) => {}
        }
    }

    /// Keeps the variant beside others; why not.
    pub fn pin(&mut self) -> Result<char, String> {
        let Some(answer) = self.current().cloned() else {
            return Err("there is no answer to keep yet".into());
        };
        if self.pins.len() + self.waiting.len() + self.unanswered.len() >= MOST_PINS {
            return Err(format!("{MOST_PINS} variants are kept; take one away first"));
        }
        if let Some(at) = self.pins.iter().position(|pin| pin.variant == self.variant) {
            return Err(format!("this variant is kept already, as {}", letter(at)));
        }
        self.pins.push(Pin { variant: self.variant.clone(), answer });
        Ok(letter(self.pins.len() - 1))
    }

    /// The sliders in which a variant differs from the base, in words: `alpha 40 us, TP 4`.
    pub fn changes(&self, variant: &Variant, profile_values: &ProfileValues) -> String {
        let moved = Slider::ALL.into_iter().filter(|slider| slider.is_changed(variant, &self.base));
        let words: Vec<String> = moved
            .map(|slider| {
                let value = slider.text(variant, Some(profile_values));
                let unit = slider.unit();
                let gap = if unit.is_empty() { "" } else { " " };
                format!("{} {value}{gap}{unit}", slider.name())
            })
            .collect();
        if words.is_empty() { "as the base".into() } else { words.join(", ") }
    }
}

/// The name of a kept variant.
pub fn letter(index: usize) -> char {
    char::from(b'A' + (index % 26) as u8)
}
