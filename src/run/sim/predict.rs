//! Fast prediction of prefill and decode latency from a few steps, for calibration and sliders. A few hundred
//! microseconds per cell.

use super::cost::{Durations, Machine};
use super::lanes::{Clock, Event, Lanes};
use super::overlap::Overlap;
use super::plans::Plans;
use super::run::collective;
use machine::hardware::Target;
use plan::{Lane, ModelShape, Phase, Plan, Step};
use table::Spec;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Prefill latency: prompt to first token (ms).
    pub prefill_ms: f64,
    pub decode_ms: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PredictedStep {
    /// All operations, in order per lane.
    pub spans: Vec<PredictedSpan>,
    /// Time from the start of the step to its tokens (ns).
    pub length_ns: i64,
    pub overlap: table::Overlap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedSpan {
    pub operation: usize,
    pub lane: Lane,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Predicts prefill and decode latency without skew. Decode steps grow slowly with the context, so the first, middle
/// and last step are simulated and summed with Simpson's rule (exact with a static KV cache, otherwise within a
/// thousandth).
pub fn predict(plans: &Plans, spec: &Spec, shape: &ModelShape, target: &Target) -> Prediction {
    let one = Replayed { plans, spec, shape, target };
    let steps = u64::from(spec.output_tokens.saturating_sub(1));
    let at = |step| one.decode_ms(step, |_| {});
    let mean = match steps {
        0 => 0.0,
        1 => at(0),
        _ if target.stack.static_kv => at(0),
        _ => (at(0) + 4.0 * at((steps - 1) / 2) + at(steps - 1)) / 6.0,
    };
    let prompt = Step::prefill(u64::from(spec.batch), u64::from(spec.prompt_tokens));
    Prediction {
        prefill_ms: one.ms(&plans.prefill, Phase::Prefill, &prompt, |_| {}),
        decode_ms: mean * steps as f64,
    }
}

/// Predicts the middle decode step without skew; `None` if only one token is generated.
pub fn predict_step(
    plans: &Plans,
    spec: &Spec,
    shape: &ModelShape,
    target: &Target,
) -> Option<PredictedStep> {
    let steps = u64::from(spec.output_tokens.checked_sub(2)?) + 1;
    let mut spans = Vec::with_capacity(plans.decode.operations.len());
    let mut overlap = Overlap::default();
    let one = Replayed { plans, spec, shape, target };
    let ms = one.decode_ms((steps - 1) / 2, |event| {
        overlap.add(&event);
        let Event { operation, lane, start, end, .. } = event;
        spans.push(PredictedSpan { operation, lane, start_ns: start, end_ns: end });
    });
    let overlap = overlap.finish()?;
    Some(PredictedStep { spans, length_ns: (ms * 1e6).round() as i64, overlap })
}

struct Replayed<'a> {
    plans: &'a Plans,
    spec: &'a Spec,
    shape: &'a ModelShape,
    target: &'a Target,
}

impl Replayed<'_> {
    fn decode_ms(&self, step: u64, visit: impl FnMut(Event)) -> f64 {
        let (batch, prompt) = (u64::from(self.spec.batch), u64::from(self.spec.prompt_tokens));
        self.ms(&self.plans.decode, Phase::Decode, &Step::decode(batch, prompt, step), visit)
    }

    fn ms(&self, plan: &Plan, phase: Phase, step: &Step, visit: impl FnMut(Event)) -> f64 {
        let collective = collective(self.spec, self.target).0;
        let machine = Machine::new(self.target, collective, self.spec, self.shape, phase);
        let durations = Durations::new(machine, plan, step);
        let mut clock = Clock::default();
        Lanes::new(plan).step(&durations, &mut clock, visit);
        clock.tokens as f64 / 1e6
    }
}
