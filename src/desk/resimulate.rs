//! Traces of simulated runs, which store none: simulating their cells again gives the same spans.

use std::fmt;

use base::error::{Error, Result};
use plan::Phase;
use run::GridContext;
use run::sim::Simulator;
use table::Spec;
use trace::Trace;

/// Maximum spans of a complete trace: 16 GPUs and 80 layers for 320 tokens. A span takes 56 bytes.
const MOST_SPANS: u64 = 4 << 20;

/// First decode steps of a run, for a trace that does not have all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstSteps {
    pub shown: u32,
    pub all: u32,
}

impl fmt::Display for FirstSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "first {} of {} steps", self.shown, self.all)
    }
}

/// Simulates a cell again with all decode steps. If the trace would exceed four million spans, it has the first steps
/// below that limit, at least up to step `upto`. Every view of a simulated run uses this function, so all of them
/// show the same steps.
///
/// # Errors
///
/// Returns an input error if the model, hardware or stack no longer exists, and the errors of the simulation.
pub fn resimulate(spec: &Spec, upto: Option<u32>) -> Result<(Trace, Option<FirstSteps>)> {
    let simulator = Simulator::default();
    let simulate = |output_tokens| -> Result<Trace> {
        let spec = Spec { output_tokens, ..spec.clone() };
        let (_, trace) = simulator.cell(&spec)?.run(true)?;
        trace.ok_or_else(|| Error::failed("the simulation left no trace"))
    };
    // One step gives the number of spans per step: only the simulator knows those of stages and micro-batches.
    let one = simulate(spec.output_tokens.min(2))?;
    let spans_a_step = one.spans.iter().filter(|span| span.phase == Phase::Decode).count() as u64;
    let part = first_steps(spec.output_tokens.saturating_sub(1), spans_a_step, upto);
    Ok((simulate(part.map_or(spec.output_tokens, |part| part.shown + 1))?, part))
}

/// Returns an input error if a file that a stored cell names is missing or has changed, because simulating again
/// would give another trace.
pub(super) fn require_unchanged_files(spec: &Spec) -> Result<()> {
    let shared = GridContext::default();
    let now = shared.files(&*shared.simulator.model(&spec.model)?, &spec.hardware, &spec.stack)?;
    match spec.files.keys().find(|option| now.get(*option) != spec.files.get(*option)) {
        None => Ok(()),
        Some(option) => {
            let name =
                table::options::option(option).map(|option| option.text(spec)).unwrap_or_default();
            Err(Error::input_help(
                format!("{option} {name}: the file was changed since the cell was simulated"),
                "run the cell again, or restore the file",
            ))
        }
    }
}

fn first_steps(all: u32, spans_a_step: u64, upto: Option<u32>) -> Option<FirstSteps> {
    let fitting = u32::try_from(MOST_SPANS / spans_a_step.max(1)).unwrap_or(u32::MAX);
    let shown = fitting.max(1).max(upto.map_or(0, |step| step.saturating_add(1)));
    (shown < all).then_some(FirstSteps { shown, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_large_trace_is_cut_and_it_reaches_the_requested_step() {
        let fitting = (MOST_SPANS / 4000) as u32;
        assert_eq!(first_steps(fitting, 4000, None), None);
        let all = fitting + 100;
        assert_eq!(first_steps(all, 4000, None), Some(FirstSteps { shown: fitting, all }));
        assert_eq!(first_steps(all, 4000, Some(fitting + 9)).map(|p| p.shown), Some(fitting + 10));
        assert_eq!(first_steps(all, 4000, Some(all - 1)), None);
        assert_eq!(first_steps(all, u64::MAX, None).map(|p| p.shown), Some(1));
    }
}
