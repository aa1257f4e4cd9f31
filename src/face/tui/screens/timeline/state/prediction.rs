//! What the simulator says of a run that is shown: on what it is simulated, and the trace that comes of it.

use std::sync::Arc;

use super::index::TraceIndex;
use crate::base::error::Result;
use crate::desk::resimulate;
use crate::machine::hardware::{Profile, STACKS};
use crate::table::{Backend, Spec};

/// The profile that stands in where the run's hardware has none.
const STAND_IN: &str = "h100_sxm";

/// On what a run is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Hardware profile: name or file.
    pub hardware: String,
    /// Software stack: name or file.
    pub stack: String,
}

impl Prediction {
    /// What is proposed for a run: its own hardware and stack where they are known, else a stand-in.
    pub fn proposed(spec: &Spec) -> Self {
        let is_file = |name: &str| name.ends_with(".toml");
        let known = Profile::names().contains(&spec.hardware.as_str()) || is_file(&spec.hardware);
        let stack = STACKS.contains(&spec.stack.as_str()) || is_file(&spec.stack);
        Self {
            hardware: if known { spec.hardware.clone() } else { STAND_IN.into() },
            stack: if stack { spec.stack.clone() } else { STACKS[0].into() },
        }
    }

    /// What was typed: a profile, and a stack.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [hardware] => Ok(Self { hardware: hardware.into(), stack: STACKS[0].into() }),
            [hardware, stack] => Ok(Self { hardware: hardware.into(), stack: stack.into() }),
            _ => Err(format!(
                "type a hardware profile and a stack: one of {}, and one of {}, or files",
                Profile::names().join(", "),
                STACKS.join(", ")
            )),
        }
    }

    /// Simulates a run, at least up to the decode step that is looked at: its trace, and on what in words.
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
        let title = format!("{} {} {}", spec.model, spec.label(), spec.link);
        Ok((Arc::new(TraceIndex::new(title, trace)), said))
    }
}
