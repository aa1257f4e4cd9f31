//! The fast answer: prefill and decode latency of a cell from a few of its steps, for calibration and
//! sliders. Some hundred microseconds a cell.

use super::cost::{Durations, Machine};
use super::lanes::{Clock, Lanes};
use super::plans::Plans;
use super::run::collective;
use crate::hardware::Target;
use crate::model::ModelShape;
use crate::plan::{Phase, Plan, Step};
use crate::spec::Spec;

/// What [`predict`] says of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Prefill latency (ms).
    pub prefill_ms: f64,
    /// Latency of all decode steps (ms).
    pub decode_ms: f64,
}

/// Prefill and decode latency without skew. Decode steps grow slowly with the context: the first, the
/// middle and the last are simulated, and Simpson's rule adds up all (exact where the KV cache is
/// static, within a thousandth elsewhere).
pub fn predict(plans: &Plans, spec: &Spec, shape: &ModelShape, target: &Target) -> Prediction {
    let (batch, prompt) = (u64::from(spec.batch), u64::from(spec.prompt_tokens));
    let collective = collective(spec, target).0;
    let one = |plan: &Plan, phase, step: &Step| -> f64 {
        let machine = Machine::new(target, collective.clone(), spec, shape, phase);
        let durations = Durations::new(machine, plan, step);
        let mut clock = Clock::default();
        Lanes::new(plan).step(&durations, &mut clock, |_| {});
        clock.tokens as f64 / 1e6
    };
    let steps = u64::from(spec.output_tokens.saturating_sub(1));
    let at = |step| one(&plans.decode, Phase::Decode, &Step::decode(batch, prompt, step));
    let mean = match steps {
        0 => 0.0,
        1 => at(0),
        _ if target.stack.static_kv => at(0),
        _ => (at(0) + 4.0 * at((steps - 1) / 2) + at(steps - 1)) / 6.0,
    };
    Prediction {
        prefill_ms: one(&plans.prefill, Phase::Prefill, &Step::prefill(batch, prompt)),
        decode_ms: mean * steps as f64,
    }
}
