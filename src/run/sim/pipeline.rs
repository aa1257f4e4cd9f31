//! Simulation of pipeline stages, each with the two lanes that its identical ranks share.
//!
//! Within a step, a stage waits only for the one before it, and the first for tokens of the step before. So stages
//! are replayed in order, each with the times at which its predecessor's sends ended. The clocks run on
//! over steps: once there are as many micro-batches as stages, a stage has the next one while others work.

use super::cell::{SimulatedCell, milliseconds};
use super::durations::Durations;
use super::lane_times::{LaneTimes, mean_overlap};
use super::lanes::{LaneClock, LaneSimulation, SimulatedOperation, StageMessages};
use super::link::transfers;
use super::ranks::SimulatedRanks;
use plan::{Lane, Phase, Plan};
use table::Overlap;

/// Steps of a pipeline simulated before the one that is predicted, so that it is full.
const FILLING_STEPS: u32 = 3;

/// Pipeline stages, in order.
pub(super) struct PipelineStages(Vec<Stage>);

struct Stage {
    lanes: LaneSimulation,
    clock: LaneClock,
    messages: StageMessages,
    tail: Tail,
    times: LaneTimes,
}

impl PipelineStages {
    pub(super) fn new(plans: &[Plan]) -> Self {
        let stage = |plan: &Plan| Stage {
            lanes: LaneSimulation::new(plan),
            clock: LaneClock::default(),
            messages: StageMessages::default(),
            tail: Tail::default(),
            times: LaneTimes::default(),
        };
        Self(plans.iter().map(stage).collect())
    }
}

impl SimulatedRanks for PipelineStages {
    fn decode(self, cell: &SimulatedCell<'_>) -> Self {
        let stage = |(stage, plan): (Stage, &Plan)| Stage {
            lanes: LaneSimulation::new(plan),
            tail: Tail::default(),
            times: LaneTimes::since(stage.clock.both_free()),
            ..stage
        };
        Self(self.0.into_iter().zip(&cell.plans.decode).map(stage).collect())
    }

    /// Returns the time at which the last stage had sampled the last micro-batch's token (ns).
    fn step(
        &mut self,
        durations: &[Durations<'_>],
        mut visit: impl FnMut(usize, SimulatedOperation),
    ) -> i64 {
        let stages = self.0.len();
        let mut tokens = 0;
        for (number, durations) in durations.iter().enumerate() {
            let Stage { lanes, clock, messages, tail, times } = &mut self.0[number];
            let visit = |event: SimulatedOperation| {
                times.count(&event);
                tail.add(&event);
                visit(number, event);
            };
            let (both, sampled) = lanes.stage_step(durations, clock, messages, visit);
            times.add_overlap(both.saturating_add(tail.end_step(clock.free(Lane::Compute))), 0);
            tokens = sampled.unwrap_or(tokens);
            let sent = std::mem::take(&mut messages.outgoing);
            self.0[(number + 1) % stages].messages.incoming.extend(sent);
        }
        tokens
    }

    fn overlap(&self) -> Option<Overlap> {
        mean_overlap(self.0.iter().map(|stage| &stage.times))
    }
}

/// Communication of a stage that outlives its step, while the next step computes.
#[derive(Default)]
struct Tail {
    earlier: Vec<(i64, i64)>,
    /// Comm lane of the current step.
    comm: Vec<(i64, i64)>,
    /// Time that the current step computed during earlier steps' communication (ns).
    both: i64,
}

impl Tail {
    fn add(&mut self, event: &SimulatedOperation) {
        match event.lane {
            Lane::Comm => self.comm.push((event.start, event.end)),
            Lane::Compute => {
                let shared = |(start, end): &(i64, i64)| event.end.min(*end) - event.start.max(*start);
                let shared = self.earlier.iter().map(|comm| shared(comm).max(0));
                self.both = shared.fold(self.both, i64::saturating_add);
            }
        }
    }

    /// Returns the current step's share; `computed` is the end of its compute lane.
    fn end_step(&mut self, computed: i64) -> i64 {
        self.earlier.append(&mut self.comm);
        self.earlier.retain(|(_, end)| *end > computed);
        std::mem::take(&mut self.both)
    }
}

impl SimulatedCell<'_> {
    /// Durations of each stage's operations.
    pub(super) fn stage_durations(&self, phase: Phase, step: u32) -> Vec<Durations<'_>> {
        let links = transfers(self.spec, &self.target);
        let plans = self.plans.stages(phase).iter().enumerate();
        let durations = plans.map(|(stage, plan)| {
            let model = self.cost_model(phase);
            let model = match links.get(stage).filter(|_| self.spec.pp > 1) {
                Some(link) => model.sending(*link),
                None => model,
            };
            Durations::new(model, plan, &self.step(phase, step))
        });
        durations.collect()
    }

    /// One step of a full pipeline (of an empty one in prefill): its interval (ms), and the first stage's overlap. `visit`
    /// gets the first stage's events, in ns since the step before ended.
    pub(super) fn one_stage_step(
        &self,
        phase: Phase,
        step: u32,
        mut visit: impl FnMut(SimulatedOperation),
    ) -> (f64, Option<Overlap>) {
        let durations = self.stage_durations(phase, step);
        let mut stages = PipelineStages::new(self.plans.stages(phase));
        let filling = if phase == Phase::Decode { FILLING_STEPS } else { 0 };
        let before = (0..filling).fold(0, |_, _| stages.step(&durations, |_, _| {}));
        let earlier = |event: SimulatedOperation| SimulatedOperation {
            ready: event.ready - before,
            start: event.start - before,
            arrival: event.arrival - before,
            end: event.end - before,
            ..event
        };
        // a single step has no communication of steps before it, and no idle time before its first event
        let first = &mut stages.0[0];
        (first.tail, first.times) = (Tail::default(), LaneTimes::default());
        let tokens = stages.step(&durations, |stage, event| {
            if stage == 0 {
                visit(earlier(event));
            }
        });
        (milliseconds(tokens - before), stages.0[0].times.overlap())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{alone, shape_70b, shape_tiny, simulate, spec};
    use super::*;
    use crate::Feasibility;
    use machine::hardware::{MemoryNeed, Target};
    use plan::{Kind, Lowering, Precision};
    use table::{Link, Spec};
    use trace::overlap::{Selection, overlap};

    /// A cell of a model with 4 layers on two stages, without contention.
    fn cell(architecture: &str, micro_batches: u32, batch: u32) -> Spec {
        let link = Link::Emulated { alpha_us: 10.0, gb_s: 50.0 };
        let plain = Spec { prompt_tokens: 64, output_tokens: 6, ..spec(architecture, "tiny") };
        alone(Spec { tp: 2, pp: 2, micro_batches, batch, link, ..plain })
    }

    /// Decode plans of a cell's stages.
    fn stages(cell: &Spec) -> Vec<Plan> {
        let precision = Precision::uniform(plan::DType::F16);
        let plan = cell.plan(&shape_tiny(), Phase::Decode, precision, Lowering::default());
        Plan::stages(&plan).unwrap()
    }

    /// Two stages whose only compute operations last `compute` (ns) and whose sends last `send`.
    fn by_hand(compute: [i64; 2], send: [i64; 2], micro_batches: u32, steps: usize) -> Vec<i64> {
        let plans = stages(&Spec { tp: 1, ..cell("standard", micro_batches, micro_batches) });
        let durations: Vec<Durations<'_>> = plans
            .iter()
            .zip(compute.iter().zip(send))
            .map(|(plan, (&compute, send))| {
                let ns: Vec<i64> = plan
                    .operations
                    .iter()
                    .map(|operation| match operation.kind {
                        Kind::Send => send,
                        // one product a stage and micro-batch
                        Kind::MatMul if operation.name.ends_with("down") => {
                            let layers = 2;
                            compute / layers
                        }
                        _ => 0,
                    })
                    .collect();
                Durations::given(&ns)
            })
            .collect();
        let mut stages = PipelineStages::new(&plans);
        (0..steps).map(|_| stages.step(&durations, |_, _| {})).collect()
    }

    #[test]
    fn bubbles_are_those_counted_by_hand() {
        // one micro-batch: a step is both stages and both transfers, and half of it is a bubble
        assert_eq!(by_hand([100, 60], [7, 3], 1, 3), [167, 167 + 170, 167 + 2 * 170]);
        // two: stage 0 works on the second while stage 1 has the first. It has the first one's tokens at 170 and is
        // busy until 200, so from then on it never waits, and a step is its work on both
        assert_eq!(by_hand([100, 60], [7, 3], 2, 3), [267, 467, 667]);
        // equal stages: transfers are not hidden by two micro-batches (a round of 210 against 200 of work), by three
        // they are
        assert_eq!(by_hand([100, 100], [5, 5], 2, 3), [305, 515, 725]);
        assert_eq!(by_hand([100, 100], [5, 5], 3, 3), [405, 705, 1005]);
        // the slower stage sets the pace
        assert_eq!(by_hand([40, 100], [5, 5], 4, 3), [445, 845, 1245]);
    }

    #[test]
    fn a_stage_is_idle_until_its_data_has_arrived() {
        let plans = stages(&cell("standard", 1, 1));
        let receive = |free: i64, sent: i64| {
            let mut clock = LaneClock { free: [free, 0], tokens: 0 };
            let mut messages = StageMessages::default();
            messages.incoming.push_back(sent);
            let durations = Durations::given(&vec![0; plans[1].operations.len()]);
            let mut found = None;
            LaneSimulation::new(&plans[1]).stage_step(&durations, &mut clock, &mut messages, |event| {
                if plans[1].operations[event.operation].kind == Kind::Receive {
                    found = Some((event.ready, event.start, event.end));
                }
            });
            found.unwrap()
        };
        assert_eq!(receive(0, 50), (50, 50, 50));
        assert_eq!(receive(70, 50), (50, 70, 70), "the sender does not wait");
    }

    #[test]
    fn a_trace_has_every_stage_and_the_overlap_of_the_lanes() {
        for (architecture, micro_batches) in
            [("standard", 1), ("ladder", 2), ("delayed:1", 2), ("desync:2", 1)]
        {
            let cell = cell(architecture, micro_batches, 4);
            let (outcome, trace) = simulate(&cell, &shape_tiny(), true).unwrap();
            let trace = trace.unwrap();
            assert_eq!((trace.meta.ranks, outcome.plan_hashes.len()), (4, 4));
            let told = outcome.samples[0].overlap.unwrap();
            // the prompts of one micro-batch may end during the first step of another
            let mut decoding = trace.clone();
            decoding.spans.retain(|span| span.phase == Phase::Decode);
            let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
            let counted = overlap(&decoding, &decode).all;
            let idle_us = overlap(&trace, &decode).all.idle_us;
            for (a, b) in [
                (told.comm_ms, counted.comm_us),
                (told.exposed_comm_ms, counted.exposed_comm_us),
                (told.compute_ms, counted.compute_us),
                (told.idle_ms, idle_us),
            ] {
                assert!((a - b / 4e3).abs() < 1e-9, "{architecture}: {told:?} {counted:?}");
            }
            // all-reduces are those of a stage's ranks, sends connect the stages
            let kinds: Vec<String> = trace.meta.groups.iter().map(|group| group.kind()).collect();
            assert_eq!(kinds, ["TP", "TP", "PP"]);
            for span in &trace.spans {
                let operation = &trace.operations[span.operation as usize];
                let group = operation.collective.as_ref().and_then(|info| info.group);
                let wanted = match operation.kind.as_str() {
                    "send" => Some(2),
                    "all_reduce" | "all_gather" => Some(span.rank / 2),
                    _ => None,
                };
                assert_eq!(group, wanted, "{} on rank {}", operation.name, span.rank);
            }
            let names = |rank: u32| -> Vec<&str> {
                let own = trace.spans.iter().filter(|span| span.rank == rank);
                own.map(|span| trace.operations[span.operation as usize].name.as_str()).collect()
            };
            let has = |rank: u32, first: &str, last: &str| {
                names(rank).iter().any(|name| name.starts_with(first) && name.ends_with(last))
            };
            for (rank, begins) in [(0, true), (1, true), (2, false), (3, false)] {
                assert_eq!(has(rank, "prefill/embed/", "tokens"), begins, "{architecture}, rank {rank}");
                assert_eq!(has(rank, "decode/head/", "sample"), !begins, "{architecture}, rank {rank}");
            }
            // every span's work is in its own phase's plan
            let phases =
                trace.spans.iter().all(|s| trace.operations[s.operation as usize].phase == s.phase);
            assert!(phases);
        }
    }

    #[test]
    fn a_full_pipeline_waits_for_its_tokens_outside_of_the_predicted_step() {
        let cell = cell("standard", 1, 4);
        let simulator = super::super::Simulator::default();
        let target = simulator.target(&cell.hardware, &cell.stack, &cell.set).unwrap();
        let cell = simulator.cell_on(&cell, &shape_tiny(), target).unwrap();
        let step = cell.predict_middle_step().unwrap();
        let (first, last) = (step.spans.first().unwrap(), step.spans.last().unwrap());
        assert!(first.start_ns > 0, "tokens are sent back to the first stage");
        let busy = step.overlap.compute_ms + step.overlap.exposed_comm_ms;
        let span = milliseconds(last.end_ns - first.start_ns);
        assert!((step.overlap.idle_ms - (span - busy)).abs() < 1e-9, "{step:?}");
    }

    #[test]
    fn micro_batches_fill_a_pipeline_and_the_prediction_is_the_simulation() {
        let throughput = |micro_batches| {
            let cell = cell("standard", micro_batches, 32);
            let sample = simulate(&cell, &shape_tiny(), false).unwrap().0.samples.remove(0);
            let simulator = super::super::Simulator::default();
            let target = simulator.target(&cell.hardware, &cell.stack, &cell.set).unwrap();
            let predicted = simulator.cell_on(&cell, &shape_tiny(), target).unwrap().predict();
            assert!((predicted.prefill_ms / sample.prefill_ms - 1.0).abs() < 1e-9);
            // the first step still fills the pipeline
            assert!(
                (predicted.decode_ms / sample.decode_ms - 1.0).abs() < 0.05,
                "{predicted:?} {sample:?}"
            );
            sample.decode_ms
        };
        // compute is latency-bound at this size: more micro-batches than stages are no gain, two overlap
        let (one, two) = (throughput(1), throughput(2));
        assert!(two < 2.0 * one * 0.75, "{two} {one}");
    }

    #[test]
    fn ladder_hides_the_transfer_of_the_residual_behind_the_last_all_reduce() {
        let decode = |architecture: &str| {
            let cell = cell(architecture, 1, 1);
            simulate(&cell, &shape_tiny(), false).unwrap().0.samples[0].decode_ms
        };
        assert!(decode("ladder") < decode("standard"));
        assert!(decode("upper-bound") < decode("ladder"));
    }

    #[test]
    fn memory_is_that_of_the_stage_that_needs_most() {
        let shape = shape_70b();
        let cell = |pp| Spec { tp: 4, pp, batch: 1, ..spec("standard", "llama-3-70b") };
        let need = |pp| {
            let cell = cell(pp);
            MemoryNeed::new(&cell, &shape, Precision::gpu(cell.dtype))
        };
        let (whole, half) = (need(1), need(2));
        assert_eq!((whole.stage, half.kv * 2), (None, whole.kv));
        // half of the layers and either the embedding or the head, which are replicated
        let ends = u64::from(shape.vocab) * u64::from(shape.hidden) * 2;
        let layers = (whole.weights - 2 * ends) / 2;
        assert!(half.weights.abs_diff(layers + ends) < 100_000, "{half:?}");
        assert!(half.arithmetic().ends_with("on stage 1"), "the head has a norm: {}", half.arithmetic());
        // two of 80 GB hold half of the model, not all of it
        let found = |pp| {
            crate::feasibility::assess(&Spec { hardware: "h100_sxm".into(), tp: 1, ..cell(pp) }).unwrap()
        };
        assert!(matches!(found(1), Feasibility::Oom(_)));
        assert_eq!(found(4), Feasibility::Runs);
    }

    #[test]
    fn stages_that_cannot_be_are_refused_by_name() {
        let refused = |cell: Spec| crate::testing::skip_reason(&cell);
        let tiny = |pp| Spec { pp, ..spec("ladder", "tiny") };
        assert_eq!(refused(tiny(4)), "Runs");
        assert!(refused(tiny(5)).starts_with("PP 5 exceeds the model's 4 layers"));
        let cuda = Spec { backend: table::Backend::Cuda, ..tiny(2) };
        assert!(refused(cuda).starts_with("no pipeline stages on cuda (pp 2)"));
        let mut skewed = tiny(2);
        skewed.set.insert("skew.rank_pct".into(), "5".into());
        assert!(refused(skewed).contains("skew between ranks is not simulated with pipeline stages"));
    }

    #[test]
    fn stages_across_nodes_say_that_their_links_are_derived() {
        let cell = Spec { tp: 8, pp: 2, batch: 2, micro_batches: 2, ..spec("ladder", "llama-3-70b") };
        let environment = simulate(&cell, &shape_70b(), false).unwrap().0.environment;
        let text = environment["stage_links"].to_string();
        assert!(text.contains("derived: between nodes"), "{text}");
        assert_eq!(environment["stage_layers"], serde_json::json!(["0 to 39", "40 to 79"]));
        let _ = Target::from_spec(&cell).unwrap();
    }
}
