//! The fast answer: prefill and decode latency of a cell from a few of its steps, for calibration and
//! sliders. Some hundred microseconds a cell.

use super::cost::{Durations, Machine};
use super::lanes::{Clock, Event, Lanes};
use super::overlap::Overlap;
use super::plans::Plans;
use super::run::collective;
use machine::hardware::Target;
use plan::{Lane, ModelShape, Phase, Plan, Step};
use table::Spec;

/// What [`predict`] says of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Latency of prefill: prompt to token 1 (ms).
    pub prefill_ms: f64,
    /// Latency of all decode steps (ms).
    pub decode_ms: f64,
}

/// The middle decode step of a cell: what its lanes did.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedStep {
    /// Every operation, each lane's in order.
    pub spans: Vec<PredictedSpan>,
    /// From the step's begin to its tokens (ns).
    pub length_ns: i64,
    /// What the lanes did, and where the time went; of this one step.
    pub overlap: table::Overlap,
}

/// One operation of a predicted step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedSpan {
    /// Which operation it is: an index into the decode plan's operations.
    pub operation: usize,
    /// The lane on which it executes.
    pub lane: Lane,
    /// When it starts, counted from the step's beginning (ns).
    pub start_ns: i64,
    /// When it ends, counted from the step's beginning (ns).
    pub end_ns: i64,
}

/// Prefill and decode latency without skew. Decode steps grow slowly with the context: the first, the
/// middle and the last are simulated, and Simpson's rule adds up all (exact where the KV cache is
/// static, within a thousandth elsewhere).
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

/// The middle decode step, without skew. `None` where there is none: only one token is asked for.
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

/// A cell of which single steps are replayed, each on lanes that are free.
struct Replayed<'a> {
    plans: &'a Plans,
    spec: &'a Spec,
    shape: &'a ModelShape,
    target: &'a Target,
}

impl Replayed<'_> {
    /// How long a decode step takes (ms).
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
