//! Prediction for an open trace: a simulation of its run, or a rewiring of the trace to another
//! architecture.

use std::sync::Arc;

use super::index::TraceIndex;
use crate::desk::{ChosenMachine, MachineChoice, choose_machine, resimulate};
use crate::face::tui::format::{self, ns};
use crate::face::tui::screens::timeline::files::label_with_link;
use base::error::{Error, Result};
use machine::hardware::{Profile, STACKS, Stack};
use plan::{Architecture, Phase};
use study::rewire::{RewireChoice, Rewiring, Setting, StepSelection, beneath};
use study::whatif::TracedSteps;
use table::{Backend, Collective, Spec};
use trace::Trace;
use trace::overlap::StepKey;

/// Fallback profile for hardware without one.
const STAND_IN: &str = "h100_sxm";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictionTarget {
    /// Hardware profile: name or file.
    pub hardware: String,
    /// Software stack: name or file.
    pub stack: String,
}

impl PredictionTarget {
    /// Default for a run: its own hardware and stack if known, else a fallback.
    pub fn proposed(spec: &Spec) -> Self {
        let is_file = |name: &str| name.ends_with(".toml");
        let known = Profile::names().contains(&spec.hardware.as_str()) || is_file(&spec.hardware);
        let stack = STACKS.contains(&spec.stack.as_str()) || is_file(&spec.stack);
        Self {
            hardware: if known { spec.hardware.clone() } else { STAND_IN.into() },
            stack: if stack { spec.stack.clone() } else { STACKS[0].into() },
        }
    }

    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (hardware, stack) = match words[..] {
            [hardware] => (hardware, STACKS[0]),
            [hardware, stack] => (hardware, stack),
            _ => {
                return Err(format!(
                    "type a hardware profile and a stack: one of {}, and one of {}, or files",
                    Profile::names().join(", "),
                    STACKS.join(", ")
                ));
            }
        };
        let profile = Profile::canonical_name(hardware);
        refuse_unknown("architecture or hardware profile", profile, &Profile::names())?;
        refuse_unknown("stack", Stack::canonical_name(stack), &STACKS)?;
        Ok(Self { hardware: hardware.into(), stack: stack.into() })
    }

    /// Simulates a run at least up to decode step `step`; returns the trace and a description of the target.
    pub fn simulate(&self, run: &Spec, step: u32) -> Result<(Arc<TraceIndex>, String)> {
        let spec = Spec {
            backend: Backend::Sim,
            hardware: self.hardware.clone(),
            stack: self.stack.clone(),
            ..run.clone()
        };
        let (trace, part) = resimulate(&spec, Some(step))?;
        let part = part.map(|part| format!(", {part}")).unwrap_or_default();
        let mut said = format!("{}, stack {}{part}", self.hardware, self.stack);
        if run.hardware != self.hardware {
            said.push_str(&format!(" (the run: {})", run.hardware));
        }
        let title = format!("{} {}", spec.model, label_with_link(&spec));
        Ok((Arc::new(TraceIndex::new(title, trace)), said))
    }
}

/// Returns an error for a name that is neither built in nor a file's.
fn refuse_unknown(what: &str, given: &str, names: &[&str]) -> std::result::Result<(), String> {
    let is_file = given.ends_with(".toml") || given.contains('/');
    match is_file || names.contains(&given) {
        true => Ok(()),
        false => Err(format::error(&Error::unknown(what, given, names.iter().copied()))),
    }
}

/// Facts that some foreign traces leave open, as the user types them: `layers 80 tp 8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub layers: Option<u32>,
    pub tp: Option<u32>,
}

impl Facts {
    /// What an error lacks, as a text to complete; `None` if no fact would help.
    pub fn lacking(error: &str) -> Option<&'static str> {
        match error {
            _ if error.contains("--layers") => Some("layers "),
            _ if error.contains("--tp") => Some("tp "),
            _ => None,
        }
    }

    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut facts = Self::default();
        for pair in words.chunks(2) {
            let number = pair.get(1).and_then(|word| word.parse().ok()).filter(|number| *number > 0);
            match pair[0] {
                "layers" if number.is_some() => facts.layers = number,
                "tp" if number.is_some() => facts.tp = number,
                _ => {
                    let given = pair.join(" ");
                    return Err(format!(
                        "unknown '{given}': type layers 80, or tp 8, or both: layers 80 tp 8"
                    ));
                }
            }
        }
        Ok(facts)
    }

    /// Both, with what was known before.
    pub fn and(self, before: Self) -> Self {
        Self { layers: self.layers.or(before.layers), tp: self.tp.or(before.tp) }
    }
}

/// Steps of a phase of a trace for the what-if screen. `arguments` open the trace on the command line.
pub fn traced(
    trace: &Trace,
    mut arguments: Vec<String>,
    phase: Option<Phase>,
    Facts { layers, tp }: Facts,
) -> Result<TracedSteps> {
    for (option, number) in [("--layers", layers), ("--tp", tp)] {
        arguments.extend(number.into_iter().flat_map(|number| [option.to_owned(), number.to_string()]));
    }
    let target = choose_machine(trace, &MachineChoice::default())?.target;
    let target = match target {
        Some(target) => target,
        None => {
            arguments.extend(["--hardware".to_owned(), STAND_IN.to_owned()]);
            let choice = MachineChoice { hardware: Some(STAND_IN.into()), ..MachineChoice::default() };
            let ChosenMachine { target, reason } = choose_machine(trace, &choice)?;
            target.ok_or_else(|| Error::failed(reason))?
        }
    };
    TracedSteps::new(trace, phase, [layers, tp], target, arguments)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rewired(RewireChoice, Facts);

impl Rewired {
    /// Parses an architecture, an optional all-reduce and facts that the trace leaves open; `None` if the first word is
    /// not an architecture.
    pub fn parse(text: &str) -> std::result::Result<Option<Self>, String> {
        let mut words = text.split_whitespace();
        let Some(Ok(architecture)) = words.next().map(str::parse::<Architecture>) else {
            return Ok(None);
        };
        let rest: Vec<&str> = words.collect();
        let named = rest.first().filter(|word| !["layers", "tp"].contains(word));
        let collective = named.map(|word| word.parse::<Collective>().map_err(|error| error.to_string()));
        let facts = rest[usize::from(named.is_some())..].join(" ");
        let facts = Facts::parse(&facts).map_err(|_| {
            format!(
                "unknown '{facts}': type an architecture, and at most an all-reduce, layers 80 and tp 8"
            )
        })?;
        Ok(Some(Self(
            RewireChoice {
                collective: collective.transpose()?,
                ..RewireChoice::from_architecture(architecture)
            },
            facts,
        )))
    }

    /// Rewires one step of a trace (its key, or a trace time in ns); returns the trace and a
    /// description.
    pub fn step(
        &self,
        index: &TraceIndex,
        (key, at): (Option<StepKey>, i64),
    ) -> Result<(Arc<TraceIndex>, String)> {
        let whole = index.whole();
        let trace = &*whole;
        let ChosenMachine { target, reason } = choose_machine(trace, &MachineChoice::default())?;
        let with = if target.is_some() { reason } else { "no contention: unknown profile".into() };
        let Facts { layers, tp } = self.1;
        let asked =
            StepSelection { layers, phase: key.map(|key| key.phase), key, ..StepSelection::default() };
        let rewiring = Rewiring::new(trace, &asked, &Setting { target, tp, ..Setting::default() })?;
        let number = rewiring.step_at(key, at);
        let rewired = beneath(trace, &rewiring, &self.0, number)?;
        let mut title = format!("step {number} rewired: {}", self.0.label());
        // the screen compares lengths, where 0.5 % is visible
        let (left_out, length) = rewiring.left_out_ns(number)?;
        if left_out.abs() * 200 > length {
            let than = if left_out > 0 { "shorter" } else { "longer" };
            title += &format!(", replayed {} {than} than measured", ns(left_out.abs()));
        }
        let error = rewiring.error_of(&rewiring.answer(&self.0)?);
        Ok((Arc::new(TraceIndex::new(title, rewired)), format!("the measured times, {with}; {error}")))
    }
}
