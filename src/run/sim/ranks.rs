//! The loop over a run's steps, for identical ranks, ranks that differ and the stages of a pipeline.

use super::cell::{Recorder, SimulatedCell};
use super::durations::Durations;
use super::lane_times::LaneTimes;
use super::lanes::{LaneClock, LaneSimulation, SimulatedOperation};
use plan::{Phase, Plan};
use table::Overlap;

/// Ranks that are simulated together: one for all identical ranks (`IdenticalRanks`), each of those that differ
/// (`SkewedRanks`), or one for each stage of a pipeline (`PipelineStages`).
pub(super) trait SimulatedRanks: Sized {
    /// The same ranks at the same time, with the plans of decode steps, and no times counted.
    fn decode(self, cell: &SimulatedCell<'_>) -> Self;

    /// Replays one step, given the durations of each pipeline stage; passes every operation and its rank to `visit`, in
    /// order per lane. Returns the time of the sampled tokens (ns).
    fn step(&mut self, durations: &[Durations<'_>], visit: impl FnMut(usize, SimulatedOperation))
    -> i64;

    /// Mean overlap of the ranks; `None` without events.
    fn overlap(&self) -> Option<Overlap>;

    /// If steps of unchanged durations now repeat the last one, counts it `count` more times and returns its length (ns).
    fn repeat_step(&mut self, _count: u32) -> Option<i64> {
        None
    }
}

/// Identical ranks, simulated as one.
pub(super) struct IdenticalRanks {
    lanes: LaneSimulation,
    clock: LaneClock,
    times: LaneTimes,
    /// Both before the last step.
    before: (LaneClock, LaneTimes),
}

impl IdenticalRanks {
    pub(super) fn new(plan: &Plan) -> Self {
        let (clock, times) = (LaneClock::default(), LaneTimes::since(0));
        Self { lanes: LaneSimulation::new(plan), clock, times, before: (clock, times) }
    }
}

impl SimulatedRanks for IdenticalRanks {
    fn decode(self, cell: &SimulatedCell<'_>) -> Self {
        let times = LaneTimes::since(self.clock.tokens);
        Self { clock: self.clock, times, ..Self::new(&cell.plans.decode[0]) }
    }

    fn step(
        &mut self,
        durations: &[Durations<'_>],
        mut visit: impl FnMut(usize, SimulatedOperation),
    ) -> i64 {
        self.before = (self.clock, self.times);
        let both = self.lanes.step(&durations[0], &mut self.clock, |event| {
            self.times.count(&event);
            visit(0, event);
        });
        self.times.add_overlap(both, 0);
        self.clock.tokens
    }

    fn overlap(&self) -> Option<Overlap> {
        self.times.overlap()
    }

    fn repeat_step(&mut self, count: u32) -> Option<i64> {
        let (clock, times) = self.before;
        let length = self.clock.tokens.saturating_sub(clock.tokens);
        // the lanes are in the same state relative to the tokens
        let is_same = self.clock.free.map(|free| free.saturating_sub(length)) == clock.free;
        is_same.then(|| {
            self.times.repeat(&times, count.into(), i64::from(count).saturating_mul(length));
            length
        })
    }
}

impl SimulatedCell<'_> {
    /// Simulates prefill and every decode step on `ranks`. Returns the times of the tokens of prefill and of each step
    /// (ns), and the overlap of the decode phase. Identical ranks allocate nothing between steps.
    pub(super) fn run_steps(
        &self,
        mut ranks: impl SimulatedRanks,
        recorder: &mut Recorder,
    ) -> (Vec<i64>, Option<Overlap>) {
        let steps = self.decode_steps();
        let prefill = self.stage_durations(Phase::Prefill, 0);
        let mut tokens = Vec::with_capacity(steps as usize + 1);
        tokens.push(ranks.step(&prefill, |rank, event| recorder.add(rank, &event)));
        recorder.end_step(Phase::Prefill, 0);
        let mut ranks = ranks.decode(self);
        let mut durations = self.stage_durations(Phase::Decode, 0);
        for step in 0..steps {
            let context = self.step(Phase::Decode, step);
            let grew = durations.iter_mut().fold(false, |grew, stage| stage.grow(&context) | grew);
            let end = ranks.step(&durations, |rank, event| recorder.add(rank, &event));
            recorder.end_step(Phase::Decode, step);
            tokens.push(end);
            let left = steps - step - 1;
            let may_repeat = step > 0 && !grew && !durations.iter().any(Durations::is_growing);
            if may_repeat
                && !recorder.is_on
                && let Some(length) = ranks.repeat_step(left)
            {
                let nth = |n: i64| end.saturating_add(n.saturating_mul(length));
                tokens.extend((1..=i64::from(left)).map(nth));
                break;
            }
        }
        (tokens, ranks.overlap())
    }
}
