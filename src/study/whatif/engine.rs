//! Engine: the numbers of every architecture of a variant, a step of two of them, and the frontier.
//!
//! An answer needs one prediction per architecture plus those of the frontier, each a fraction of a
//! millisecond, on all cores. Plans and memory needs are cached between answers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::answer::{
    Answer, CellLink, Frontier, FrontierPoint, Numbers, ProfileValues, Row, Strip, StripSpan,
};
use super::variant::{Variant, sms_of};
use base::error::Result;
use machine::hardware::{MemoryNeed, Profile, Target};
use plan::{Architecture, Lane, ModelShape, Plan, Precision};
use run::sim::{Plans, PredictedStep, link_problem, link_times, lowering, predict, predict_step};
use run::{Shared, feasibility};
use table::{Link, Spec, hidden_share};
use trace::overlap::intervals;

const BATCHES: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

const KEPT: usize = 4096;

/// Answers what-ifs; caches models, plans and memory needs.
#[derive(Debug, Default)]
pub struct Engine {
    shared: Shared,
    /// Memory need per rank, keyed by all inputs of the calculation.
    memory: Mutex<HashMap<String, MemoryNeed>>,
}

/// Architectures of the what-if table; the variant's own joins them.
const SHOWN: [&str; 7] =
    ["standard", "ladder", "parallel", "desync:2", "delayed:2", "sync-drop", "upper-bound"];

pub(super) struct Ready {
    pub spec: Spec,
    pub shape: ModelShape,
    pub target: Target,
}

impl Engine {
    /// Computes all numbers of the what-if screen. An architecture that cannot run becomes a row with the
    /// reason.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant itself is invalid: an unknown profile, a value out of bounds.
    pub fn answer(&self, variant: &Variant) -> Result<Answer> {
        let ready = self.ready(variant)?;
        let (standard, bound) = (Architecture::Standard, Architecture::UpperBound);
        let chosen = ready.spec.architecture.clone();
        let mut shown: Vec<Architecture> = SHOWN.iter().filter_map(|name| name.parse().ok()).collect();
        if !shown.contains(&chosen) {
            shown.insert(shown.len() - 1, chosen.clone());
        }
        let own = ready.spec.micro_batches;
        let mut shown: Vec<(Architecture, u32)> = shown.into_iter().map(|it| (it, own)).collect();
        // a decode step of one sequence cannot be split, a prompt can
        if own == 1 && (ready.spec.batch > 1 || ready.spec.output_tokens == 1) {
            shown.insert(shown.len() - 1, (standard.clone(), 2));
        }
        let mut frontier = vec![standard.clone(), chosen.clone(), bound.clone()];
        frontier.dedup();
        let batches = self.batches(&ready);
        let ((rows, mut strips), frontiers) = rayon::join(
            || {
                let both: Vec<(Row, Option<Strip>)> = shown
                    .par_iter()
                    .map(|(architecture, groups)| self.row(&ready, architecture, *groups))
                    .collect();
                both.into_iter().unzip::<Row, Option<Strip>, Vec<Row>, Vec<Option<Strip>>>()
            },
            || {
                let of = |architecture: &Architecture| Frontier {
                    architecture: architecture.clone(),
                    points: batches
                        .par_iter()
                        .filter_map(|batch| self.point(&ready, architecture, *batch))
                        .collect(),
                };
                frontier.par_iter().map(of).collect()
            },
        );
        let mut strip = |wanted: &Architecture| {
            let at =
                rows.iter().position(|row| (&row.architecture, row.micro_batches) == (wanted, own))?;
            strips.get_mut(at)?.take()
        };
        let mut two: Vec<Strip> = strip(&standard).into_iter().collect();
        two.extend(strip(&chosen));
        let is_linked = ready.spec.tp > 1 && link_problem(&ready.spec, &ready.target).is_none();
        Ok(Answer {
            variant: variant.clone(),
            link: is_linked.then(|| link_of(&ready)),
            profile_values: self.profile_values(variant, &ready.shape)?,
            rows: self.with_hidden_share(&ready, rows),
            strips: two,
            frontiers,
            arguments: variant.arguments()?,
            spec: ready.spec,
        })
    }

    pub(super) fn ready(&self, variant: &Variant) -> Result<Ready> {
        let spec = variant.spec()?;
        let model = self.shared.model(&spec.model)?;
        let target = Target::of(&spec)?;
        Ok(Ready { shape: model.shape.clone(), target, spec })
    }

    fn profile_values(&self, variant: &Variant, shape: &ModelShape) -> Result<ProfileValues> {
        let Target { profile, stack } = variant.plain_target()?;
        let cell = &variant.cell;
        let (alpha_us, gb_s, link_note) = match cell.link {
            Link::Emulated { alpha_us, gb_s } => (alpha_us, gb_s, None),
            _ => native_link(&profile, cell),
        };
        let total = sms_of(&profile).ok();
        Ok(ProfileValues {
            alpha_us,
            gb_s,
            sms: total.map(|total| stack.contention.arithmetic * f64::from(total)),
            sms_total: total,
            comm_loss_pct: 100.0 * stack.contention.comm,
            hbm_gb_s: profile.hbm_gb_s,
            launch_us: stack.launch_us,
            tps: [1, 2, 4, 8, 16, 32, 64]
                .into_iter()
                .filter(|tp| shape.tp_problem(*tp).is_none())
                .collect(),
            latency_scale: stack.collective.latency_scale,
            link_note,
        })
    }

    pub(super) fn simulate(
        &self,
        ready: &Ready,
        architecture: &Architecture,
    ) -> std::result::Result<(Numbers, Strip), String> {
        let spec = Spec { architecture: architecture.clone(), ..ready.spec.clone() };
        self.simulate_cell(ready, spec)
    }

    fn simulate_cell(&self, ready: &Ready, spec: Spec) -> std::result::Result<(Numbers, Strip), String> {
        let Ready { shape, target, .. } = ready;
        if let Some(problem) = feasibility::problem(&spec, shape) {
            return Err(problem);
        }
        let plans = self.shared.plans(&spec, shape, target).map_err(|error| error.to_string())?;
        let need = self.memory(&spec, ready, &plans);
        let capacity = target.profile.memory_bytes;
        if !need.fits(capacity) {
            return Err(format!(
                "out of memory: a rank needs {}; the GPU has {:.1} GB",
                need.arithmetic(),
                capacity as f64 / 1e9
            ));
        }
        let prediction = predict(&plans, &spec, shape, target);
        let Some(step) = predict_step(&plans, &spec, shape, target) else {
            return Err("one output token has no decode steps; ask for two or more".into());
        };
        let completion_ms = prediction.prefill_ms + prediction.decode_ms;
        // times saturate at the clock's maximum
        if step.length_ns == i64::MAX || completion_ms * 1e6 >= i64::MAX as f64 {
            return Err("it takes more than 292 years, which is where the clock ends".into());
        }
        let numbers = Numbers {
            prefill_ms: prediction.prefill_ms,
            decode_ms: prediction.decode_ms,
            // steps grow with the context, so the middle one is the median
            tpot_ms: step.length_ns as f64 / 1e6,
            completion_ms,
            tokens_per_s_per_gpu: throughput(&spec, completion_ms),
            comm_ms: step.overlap.comm_ms,
            exposed_ms: step.overlap.exposed_comm_ms,
            overlap_pct: step.overlap.overlap_pct,
            split: step.overlap.split.unwrap_or_default(),
            speedup: None,
            hidden_share: None,
        };
        Ok((numbers, strip(&spec.architecture, &plans.decode, &step, shape.layers)))
    }

    fn row(&self, ready: &Ready, architecture: &Architecture, groups: u32) -> (Row, Option<Strip>) {
        let architecture = architecture.clone();
        let mut row = Row { architecture, micro_batches: groups, numbers: Err(String::new()) };
        let (numbers, strip) = self
            .simulate_cell(ready, row.of(&ready.spec))
            .map_or_else(|why| (Err(why), None), |(numbers, strip)| (Ok(numbers), Some(strip)));
        row.numbers = numbers;
        (row, strip)
    }

    /// Batch sizes of the frontier: those at which `standard` fits in memory, including the variant's own.
    fn batches(&self, ready: &Ready) -> Vec<u32> {
        let mut batches: Vec<u32> = BATCHES.to_vec();
        if let Err(at) = batches.binary_search(&ready.spec.batch) {
            batches.insert(at, ready.spec.batch);
        }
        let spec = Spec { architecture: Architecture::Standard, ..ready.spec.clone() };
        // a decode step needs at least one sequence per micro-batch
        batches.retain(|batch| *batch >= spec.micro_batches);
        let fits = |batch: &u32| {
            let spec = Spec { batch: *batch, ..spec.clone() };
            let Ok(plans) = self.shared.plans(&spec, &ready.shape, &ready.target) else { return false };
            let need = self.memory(&spec, ready, &plans);
            need.fits(ready.target.profile.memory_bytes)
        };
        // memory grows with the batch
        let first_too_large = batches.partition_point(fits);
        batches.truncate(first_too_large);
        batches
    }

    fn point(&self, ready: &Ready, architecture: &Architecture, batch: u32) -> Option<FrontierPoint> {
        let spec = Spec { architecture: architecture.clone(), batch, ..ready.spec.clone() };
        let plans = self.shared.plans(&spec, &ready.shape, &ready.target).ok()?;
        let prediction = predict(&plans, &spec, &ready.shape, &ready.target);
        let completion_ms = prediction.prefill_ms + prediction.decode_ms;
        Some(FrontierPoint {
            batch,
            completion_ms,
            tpot_ms: prediction.decode_ms / f64::from(spec.output_tokens.saturating_sub(1).max(1)),
            tokens_per_s_per_gpu: throughput(&spec, completion_ms),
        })
    }

    /// Fills in speedup and hidden share, relative to plain `standard` and plain `upper-bound`: options that
    /// change the rows' plans do not apply to these two baselines.
    fn with_hidden_share(&self, ready: &Ready, mut rows: Vec<Row>) -> Vec<Row> {
        let plain = ready.spec.plain();
        let tpot = |wanted: Architecture| {
            let is_of =
                |row: &&Row| row.architecture == wanted && row.micro_batches == plain.micro_batches;
            let of_row = || rows.iter().find(is_of)?.numbers.clone().ok();
            let numbers = match plain == ready.spec {
                true => of_row(),
                false => {
                    let spec = Spec { architecture: wanted.clone(), ..plain.clone() };
                    self.simulate_cell(ready, spec).ok().map(|(numbers, _)| numbers)
                }
            };
            numbers.map(|numbers| numbers.tpot_ms)
        };
        let (standard, limit) = (tpot(Architecture::Standard), tpot(Architecture::UpperBound));
        for numbers in rows.iter_mut().filter_map(|row| row.numbers.as_mut().ok()) {
            numbers.speedup = standard.map(|standard| standard / numbers.tpot_ms);
            numbers.hidden_share = standard
                .zip(limit)
                .and_then(|(standard, limit)| hidden_share([standard, numbers.tpot_ms, limit]));
        }
        rows
    }

    fn memory(&self, spec: &Spec, ready: &Ready, plans: &Plans) -> MemoryNeed {
        let Spec { architecture, model, dtype, tp, batch, prompt_tokens, output_tokens, .. } = spec;
        // buffers depend on the plans, and so on their lowering
        let lowering = lowering(spec, &ready.target);
        let key = format!(
            "{architecture}\n{model}\n{dtype}\n{tp}\n{batch}\n{prompt_tokens}\n{output_tokens}\n{lowering:?} {:?}",
            spec.variant()
        );
        let kept = |engine: &Self| {
            engine.memory.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
        };
        if let Some(need) = kept(self) {
            return need;
        }
        let need = MemoryNeed::of_plans(
            spec,
            &ready.shape,
            Precision::gpu(*dtype),
            plans.memory(&ready.shape, *dtype),
        );
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= KEPT {
            memory.clear();
        }
        memory.insert(key, need);
        need
    }
}

/// Latency, bandwidth and caveat of the link that a cell uses inside a node.
fn native_link(profile: &Profile, cell: &Spec) -> (f64, f64, Option<String>) {
    let (table, _) = profile.table_of(cell.collective, cell.p2p, cell.tp);
    let inside = cell.tp.clamp(2, profile.gpus_per_node.max(2));
    let (alpha_us, gb_s) = table.at(inside);
    (alpha_us, gb_s, table.note(inside))
}

pub(super) fn link_of(Ready { spec, shape, target }: &Ready) -> CellLink {
    let numbers = u64::from(spec.batch) * u64::from(shape.hidden);
    let message_bytes = numbers * Precision::gpu(spec.dtype).activations.bytes();
    CellLink { message_bytes, times: link_times(spec, target, message_bytes as f64) }
}

fn throughput(spec: &Spec, completion_ms: f64) -> f64 {
    let tokens = f64::from(spec.batch) * f64::from(spec.output_tokens);
    tokens / (completion_ms / 1e3) / f64::from(spec.tp.max(1))
}

fn strip(architecture: &Architecture, plan: &Plan, step: &PredictedStep, layers: u32) -> Strip {
    let spans: Vec<StripSpan> = step
        .spans
        .iter()
        .map(|span| {
            let operation = &plan.operations[span.operation];
            StripSpan {
                name: operation.name.rsplit('/').next().unwrap_or_default().into(),
                lane: span.lane,
                layer: operation.layer,
                start_ns: span.start_ns,
                end_ns: span.end_ns,
            }
        })
        .collect();
    let of = |lane: Lane| -> Vec<(i64, i64)> {
        let of_lane = spans.iter().filter(|span| span.lane == lane);
        intervals::union(of_lane.map(|span| (span.start_ns, span.end_ns)))
    };
    let exposed = intervals::difference(&of(Lane::Comm), &of(Lane::Compute));
    let layer = layers / 2;
    let begin = |wanted: u32| {
        let compute = spans.iter().filter(|s| s.lane == Lane::Compute && s.layer == Some(wanted));
        compute.map(|span| span.start_ns).min()
    };
    let from = begin(layer).unwrap_or(0);
    let to = begin(layer + 2).or_else(|| begin(layer + 1)).unwrap_or(step.length_ns);
    Strip {
        architecture: architecture.clone(),
        length_ns: step.length_ns,
        layer_ns: (from, to.max(from + 1)),
        layer,
        spans,
        exposed,
    }
}
