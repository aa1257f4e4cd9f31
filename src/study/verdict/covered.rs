//! Description of the steps a verdict covers.

use std::collections::BTreeSet;

use crate::analysis::StepSummary;
use base::text::{counted, step_list};
use plan::Phase;
use trace::import::step_name;
use trace::{NO_STEP, Trace};

/// Maximum number of ranges of steps in a sentence.
const MOST_RANGES: usize = 4;

/// Kinds of steps by their phase in a summary, and their names for several and for one.
const KINDS: [(&str, &str, &str); 4] = [
    ("decode", "decode steps", "decode step"),
    ("mixed", "mixed steps (prefill and decode)", "mixed step (prefill and decode)"),
    ("prefill", "prefill steps", "prefill step"),
    ("step", "steps", "step"),
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CoveredSteps {
    /// `decode steps 3 to 40`, `step 0: prefill of 888 tokens`.
    pub words: String,
    /// True if the trace has steps of a serving engine, and no decode step.
    pub lacks_decode: bool,
}

impl CoveredSteps {
    /// Selected steps of a trace; `None` if an imported trace does not record their phases.
    pub fn new(trace: &Trace, steps: &[StepSummary]) -> Option<Self> {
        if steps.is_empty() || steps.iter().all(|step| step.phase == "step") {
            return None;
        }
        let has_decode = || {
            let mut spans = trace.spans.iter();
            spans.any(|span| span.phase == Phase::Decode && span.step != NO_STEP)
        };
        let is_import = trace.meta.import.is_some();
        let words = match steps {
            [one] if is_import && one.phase == "prefill" => {
                format!("step {}: {}", one.step, prefill(one))
            }
            steps => kinds(steps, is_import),
        };
        Some(Self { words, lacks_decode: is_import && !has_decode() })
    }
}

/// Prefill with its length from the step's name: `prefill of 888 tokens`.
fn prefill(step: &StepSummary) -> String {
    let tokens = step.name.as_deref().and_then(step_name).and_then(|name| name.tokens);
    match tokens.filter(|tokens| *tokens > 0) {
        Some(tokens) => format!("prefill of {}", counted(tokens as usize, "token")),
        None => "prefill".into(),
    }
}

fn kinds(steps: &[StepSummary], is_import: bool) -> String {
    let samples: BTreeSet<u32> = steps.iter().map(|step| step.sample).collect();
    // the numbers of a run's samples are the same
    let of_samples = match samples.len() {
        count @ 2.. if is_import => format!(" of {count} samples"),
        _ => String::new(),
    };
    let of_kind = |(phase, many, one): &(&str, &str, &str)| {
        let of_phase = steps.iter().filter(|step| step.phase == *phase);
        let numbers: BTreeSet<u32> = of_phase.map(|step| step.step).collect();
        match &Vec::from_iter(numbers)[..] {
            [] => None,
            // the prefills of a run have no numbers
            _ if *phase == "prefill" && !is_import => Some("prefill".to_owned()),
            [number] => Some(format!("{one} {number}")),
            numbers => Some(format!("{many} {}", step_list(numbers, MOST_RANGES))),
        }
    };
    KINDS.iter().filter_map(of_kind).collect::<Vec<_>>().join(" and ") + &of_samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::steps;
    use plan::Lane;
    use trace::Span;
    use trace::testing::{span, trace};

    #[test]
    fn steps_of_several_imported_samples_say_so() {
        let at =
            |sample, step, start| Span { sample, step, ..span(0, Lane::Compute, start, start + 10) };
        let mut trace = trace(vec![at(0, 0, 0), at(0, 1, 20), at(1, 0, 100), at(1, 1, 120)]);
        trace.meta.import = Some(Default::default());
        assert_eq!(kinds(&steps(&trace), true), "steps 0 to 1 of 2 samples");
    }
}
