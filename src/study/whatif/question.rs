//! Simulation of a variant: [`WhatIfVariant::answer`] and the numbers that the break-even needs.
//!
//! An answer needs one prediction per architecture plus those of the frontier, each a fraction of a millisecond, on all
//! cores.

use std::sync::Arc;

use rayon::prelude::*;

use super::answer::{
    CellLink, Frontier, FrontierPoint, NetworkValues, ProfileValues, SimulatedMetrics, StepStrip,
    StripSpan, WhatIfAnswer, WhatIfRow, shown_with,
};
use super::slider;
use super::variant::{WhatIfVariant, sms_of};
use crate::analysis::LEAST_DIFFERENCE;
use crate::validate::{TieBand, nearest_error};
use base::error::{Error, Result};
use base::text::latency;
use machine::hardware::{LinkTable, Profile, Target};
use plan::{Architecture, ModelShape, Precision};
use run::feasibility;
use run::sim::{LatencyPrediction, SimulatedCell, Simulator, link_problem, link_times};
use table::{Collective, Link, Spec, hidden_share};

/// TP sizes to choose from.
pub(super) const TPS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

const BATCHES: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Variant with the model and machine that its cell names.
pub(super) struct WhatIfQuestion<'a> {
    simulator: &'a Simulator,
    pub spec: Spec,
    shape: ModelShape,
    pub target: Arc<Target>,
}

impl WhatIfVariant {
    /// Computes all numbers of the what-if screen. An architecture that cannot run becomes a row with the
    /// reason.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant itself is invalid: an unknown profile, a value out of bounds.
    pub fn answer(&self, simulator: &Simulator) -> Result<WhatIfAnswer> {
        let question = WhatIfQuestion::new(simulator, self)?;
        let (standard, bound) = (Architecture::Standard, Architecture::UpperBound);
        let Spec { architecture: chosen, micro_batches: own, .. } = question.spec.clone();
        let mut shown = shown_with(&chosen, own);
        // a decode step of one sequence cannot be split, a prompt can
        if own == 1 && (question.spec.batch > 1 || question.spec.output_tokens == 1) {
            shown.insert(shown.len() - 1, (standard.clone(), 2));
        }
        let mut compared = vec![standard.clone(), chosen.clone(), bound];
        compared.dedup();
        let batches = question.batches();
        let (rows, frontiers) = rayon::join(
            || {
                let rows =
                    shown.par_iter().map(|(architecture, groups)| question.row(architecture, *groups));
                rows.collect::<Vec<(WhatIfRow, Option<StepStrip>)>>()
            },
            || {
                let frontier_of = |architecture: &Architecture| Frontier {
                    architecture: architecture.clone(),
                    points: batches
                        .par_iter()
                        .filter_map(|batch| question.point(architecture, *batch))
                        .collect(),
                };
                compared.par_iter().map(frontier_of).collect()
            },
        );
        let (rows, mut strips): (Vec<WhatIfRow>, Vec<Option<StepStrip>>) = rows.into_iter().unzip();
        let mut strip = |wanted: &Architecture| {
            let at =
                rows.iter().position(|row| (&row.architecture, row.micro_batches) == (wanted, own))?;
            strips.get_mut(at)?.take()
        };
        let mut two: Vec<StepStrip> = strip(&standard).into_iter().collect();
        two.extend(strip(&chosen));
        let is_linked = question.spec.tp > 1 && link_problem(&question.spec, &question.target).is_none();
        let link = is_linked.then(|| question.link());
        Ok(WhatIfAnswer {
            variant: self.clone(),
            all_reduce_us: link.as_ref().map(|link| link.times.charged_us),
            simulated_speedup: None,
            link,
            error: nearest_error(&question.spec),
            launch_gaps: None,
            assumptions: None,
            profile_values: question.profile_values(self)?,
            rows: question.with_hidden_share(rows),
            strips: two,
            frontiers,
            arguments: self.arguments()?,
            spec: question.spec,
        })
    }
}

impl<'a> WhatIfQuestion<'a> {
    pub(super) fn new(simulator: &'a Simulator, variant: &WhatIfVariant) -> Result<Self> {
        let spec = variant.spec()?;
        let shape = simulator.model(&spec.model)?.shape.clone();
        // not cached: every position of a slider is another target
        let target = Arc::new(Target::from_spec(&spec)?);
        if spec.concurrency > 0 && target.stack.serving.is_none() {
            let problem = format!("stack {} decodes static batches only", target.stack.name);
            return Err(Error::input_help(problem, "choose a serving stack, for example vllm-0.12"));
        }
        Ok(Self { simulator, spec, shape, target })
    }

    fn cell<'b>(&self, spec: &'b Spec) -> Result<SimulatedCell<'b>> {
        self.simulator.cell_on(spec, &self.shape, Arc::clone(&self.target))
    }

    fn profile_values(&self, variant: &WhatIfVariant) -> Result<ProfileValues> {
        let cell = &variant.cell;
        let target = variant.plain_target()?;
        let Target { profile, stack } = &target;
        let (alpha_us, gb_s, link_note) = own_link(profile, cell);
        let total = sms_of(profile).ok();
        Ok(ProfileValues {
            alpha_us,
            gb_s,
            gpus_per_node: profile.gpus_per_node,
            network: NetworkValues::new(profile, cell),
            sms: total.map(|total| stack.contention.arithmetic * f64::from(total)),
            sms_total: total,
            comm_loss_pct: 100.0 * stack.contention.comm,
            hbm_gb_s: profile.hbm_gb_s,
            launch_us: stack.launch_us,
            tps: TPS
                .into_iter()
                .filter(|tp| self.shape.tp_problem(*tp).is_none())
                // EP follows TP
                .filter(|tp| {
                    let ep = if cell.dp > 1 || cell.ep == 1 { cell.ep } else { *tp };
                    self.shape.expert_problem(*tp, ep, cell.dp).is_none()
                })
                .collect(),
            divisions: [0, 1, 2].map(|division| {
                let [tp, ep, dp] = slider::divided(slider::gpus(cell), division);
                self.shape.expert_problem(tp, ep, dp).is_none()
            }),
            experts: self.shape.experts.as_ref().map(|experts| [experts.count, experts.top_k]),
            tp_note: None,
            latency_scale: latency_scale(&target, cell),
            link_note,
            no_link: self.no_link(),
            no_launch_gaps: None,
            own_all_reduce: None,
        })
    }

    /// Reason why no value of the link, nor P2P, changes the communication of the cell's architectures, if so.
    pub(super) fn no_link(&self) -> Option<String> {
        if self.spec.ranks() == 1 {
            return Some("one rank does not communicate; choose a TP above 1".into());
        }
        // without data parallelism nothing is exchanged
        let dp = Some(self.spec.dp).filter(|dp| *dp > 1)?;
        let standard = Spec { architecture: Architecture::Standard, ..self.spec.clone() };
        let is_measured = self.cell(&standard).is_ok_and(|cell| cell.has_measured_exchanges());
        is_measured.then(|| {
            format!(
                "dispatch and combine (DP {dp}) take their latency from measurements; to change it, emulate a link \
                 (emulated:alpha_us=20,gb_s=50)"
            )
        })
    }

    /// Hidden share of the architecture's communication (%).
    pub(super) fn overlap_pct(&self) -> Result<f64> {
        let spec = &self.spec;
        if let Some(problem) = feasibility::problem(spec, &self.shape) {
            return Err(Error::input(problem));
        }
        let cell = self.cell(spec)?;
        if let Some(problem) = cell.out_of_memory() {
            return Err(Error::input(problem));
        }
        let overlap = cell.predict_middle_step().map(|step| step.overlap);
        overlap.and_then(|overlap| overlap.overlap_pct).ok_or_else(|| {
            Error::input_help(
                format!("{} at TP {} does not communicate", spec.architecture, spec.tp),
                match spec.ranks() {
                    1 => "choose a TP above 1",
                    _ => "choose an architecture that communicates",
                },
            )
        })
    }

    pub(super) fn link(&self) -> CellLink {
        let Self { spec, shape, target, .. } = self;
        let numbers = u64::from(spec.batch) * u64::from(shape.hidden);
        let message_bytes = numbers * Precision::gpu(spec.dtype).activations.bytes();
        let mut times = link_times(spec, target, message_bytes as f64);
        let notes: Vec<String> = times.note.take().into_iter().chain(self.faster_collective()).collect();
        times.note = (!notes.is_empty()).then(|| notes.join("; "));
        CellLink { message_bytes, times }
    }

    /// Remark on a named all-reduce with a lower TPOT than `fastest`, which compares latencies without contention.
    fn faster_collective(&self) -> Option<String> {
        if self.spec.collective != Collective::Fastest {
            return None;
        }
        let tpot_ms = |collective| {
            let spec = Spec { collective, ..self.spec.clone() };
            Some(self.numbers(&spec).ok()?.0.tpot_ms)
        };
        let chosen_ms = tpot_ms(Collective::Fastest)?;
        let named = Collective::ALL.into_iter().filter(|one| one.about().is_choice);
        let times = named.filter_map(|one| Some((one, tpot_ms(one)?)));
        let (best, best_ms) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
        (best_ms < chosen_ms * (1.0 - LEAST_DIFFERENCE)).then(|| {
            format!(
                "fastest compares latencies without contention: with {best} the TPOT is {}, not {}",
                latency(1e3 * best_ms),
                latency(1e3 * chosen_ms)
            )
        })
    }

    /// Predicts a cell, or explains why it cannot run.
    pub(super) fn numbers(
        &self,
        spec: &Spec,
    ) -> std::result::Result<(SimulatedMetrics, StepStrip), String> {
        if let Some(problem) = feasibility::problem(spec, &self.shape) {
            return Err(problem);
        }
        let cell = self.cell(spec).map_err(|error| error.to_string())?;
        if let Some(problem) = cell.out_of_memory() {
            return Err(problem);
        }
        let LatencyPrediction { prefill_ms, decode_ms } = cell.predict();
        let Some(step) = cell.predict_middle_step() else {
            return Err("one output token has no decode steps; ask for two or more".into());
        };
        let completion_ms = prefill_ms + decode_ms;
        // times saturate at the clock's maximum
        if step.length_ns == i64::MAX || completion_ms * 1e6 >= i64::MAX as f64 {
            return Err("longer than 292 years (clock overflow)".into());
        }
        let numbers = SimulatedMetrics {
            prefill_ms: Some(prefill_ms),
            decode_ms: Some(decode_ms),
            // steps grow with the context, so the middle one is the median; a request also waits for prefills
            tpot_ms: match spec.concurrency {
                0 => step.length_ns as f64 / 1e6,
                _ => decode_ms / f64::from(spec.output_tokens - 1),
            },
            completion_ms: Some(completion_ms),
            tokens_per_s_per_gpu: Some(throughput(spec, completion_ms)),
            comm_ms: step.overlap.comm_ms,
            exposed_ms: step.overlap.exposed_comm_ms,
            overlap_pct: step.overlap.overlap_pct,
            contention_ms: step.overlap.split.map(|split| split.contention_ms),
            speedup: None,
            speedup_95: None,
            hidden_share: None,
        };
        let operation = |at: usize| &cell.plans.decode[0].operations[at];
        let spans = step
            .spans
            .iter()
            .map(|span| {
                StripSpan::new(operation(span.operation), span.lane, (span.start_ns, span.end_ns))
            })
            .collect();
        let layers = self.shape.layers / spec.pp.max(1);
        Ok((numbers, StepStrip::new(&spec.architecture, spans, step.length_ns, layers)))
    }

    fn row(&self, architecture: &Architecture, groups: u32) -> (WhatIfRow, Option<StepStrip>) {
        let (architecture, micro_batches) = (architecture.clone(), groups);
        let spec = Spec { architecture, micro_batches, ..self.spec.clone() };
        let (numbers, strip) = self
            .numbers(&spec)
            .map_or_else(|why| (Err(why), None), |(numbers, strip)| (Ok(numbers), Some(strip)));
        let band = TieBand::from_spec(&spec);
        (WhatIfRow { architecture: spec.architecture, micro_batches, numbers, band }, strip)
    }

    /// Batch sizes of the frontier: those at which `standard` fits in memory, including the variant's own.
    fn batches(&self) -> Vec<u32> {
        let mut batches: Vec<u32> = BATCHES.to_vec();
        if let Err(at) = batches.binary_search(&self.spec.batch) {
            batches.insert(at, self.spec.batch);
        }
        let spec = Spec { architecture: Architecture::Standard, ..self.spec.clone() };
        // a decode step needs at least one sequence per micro-batch
        batches.retain(|batch| *batch >= spec.micro_batches);
        let fits = |batch: &u32| {
            let spec = Spec { batch: *batch, ..spec.clone() };
            self.cell(&spec).is_ok_and(|cell| cell.out_of_memory().is_none())
        };
        // memory grows with the batch
        let first_too_large = batches.partition_point(fits);
        batches.truncate(first_too_large);
        batches
    }

    fn point(&self, architecture: &Architecture, batch: u32) -> Option<FrontierPoint> {
        let concurrency = if self.spec.concurrency > 0 { batch } else { 0 };
        let spec = Spec { architecture: architecture.clone(), batch, concurrency, ..self.spec.clone() };
        let LatencyPrediction { prefill_ms, decode_ms } = self.cell(&spec).ok()?.predict();
        let completion_ms = prefill_ms + decode_ms;
        Some(FrontierPoint {
            batch,
            completion_ms,
            tpot_ms: decode_ms / f64::from(spec.output_tokens.saturating_sub(1).max(1)),
            tokens_per_s_per_gpu: throughput(&spec, completion_ms),
        })
    }

    /// Fills in speedup and gap closed, relative to plain `standard` and plain `upper-bound`: options that
    /// change the rows' plans do not apply to these two baselines.
    fn with_hidden_share(&self, mut rows: Vec<WhatIfRow>) -> Vec<WhatIfRow> {
        let plain = self.spec.plain();
        let tpot = |wanted: Architecture| {
            let is_of = |row: &&WhatIfRow| {
                row.architecture == wanted && row.micro_batches == plain.micro_batches
            };
            let of_row = || rows.iter().find(is_of)?.numbers.clone().ok();
            let numbers = match plain == self.spec {
                true => of_row(),
                false => {
                    let spec = Spec { architecture: wanted.clone(), ..plain.clone() };
                    self.numbers(&spec).ok().map(|(numbers, _)| numbers)
                }
            };
            numbers.map(|numbers| numbers.tpot_ms)
        };
        let (standard, limit) = (tpot(Architecture::Standard), tpot(Architecture::UpperBound));
        compare_with(&mut rows, standard, limit);
        rows
    }
}

/// Fills in speedup, unless it is over a trace, and gap closed, relative to the step times of `standard` and `upper-bound`
/// (ms).
pub(super) fn compare_with(rows: &mut [WhatIfRow], standard: Option<f64>, limit: Option<f64>) {
    for numbers in rows.iter_mut().filter_map(|row| row.numbers.as_mut().ok()) {
        let over_standard = standard.map(|standard| standard / numbers.tpot_ms);
        numbers.speedup = numbers.speedup.or(over_standard);
        numbers.hidden_share = standard
            .zip(limit)
            .and_then(|(standard, limit)| hidden_share([standard, numbers.tpot_ms, limit]));
    }
}

/// Latency, bandwidth and caveat of the link that a cell uses inside a node: the emulated one, else the profile's.
pub(super) fn own_link(profile: &Profile, cell: &Spec) -> (f64, f64, Option<String>) {
    if let Link::Emulated { alpha_us, gb_s } = cell.link {
        return (alpha_us, gb_s, None);
    }
    let (table, inside) = table_inside(profile, cell);
    let (alpha_us, gb_s) = table.at(inside);
    (alpha_us, gb_s, table.note(inside))
}

/// Factor by which the stack scales the latency of a cell's all-reduces. A formula is fitted to whole runs, so that it
/// has the latency inside a model already.
fn latency_scale(Target { profile, stack }: &Target, cell: &Spec) -> Option<f64> {
    let (table, inside) = table_inside(profile, cell);
    let is_scaled = table.is_scaled(inside) && !cell.link.is_emulated();
    is_scaled.then_some(stack.collective.latency_scale)
}

/// Link table of a cell's all-reduces, and the number of its ranks in a node.
fn table_inside<'a>(profile: &'a Profile, cell: &Spec) -> (&'a LinkTable, u32) {
    let (table, _) = profile.table_of(cell.collective, cell.p2p, cell.tp);
    (table, cell.tp.clamp(2, profile.gpus_per_node.max(2)))
}

fn throughput(spec: &Spec, completion_ms: f64) -> f64 {
    let tokens = f64::from(spec.batch) * f64::from(spec.output_tokens);
    tokens / (completion_ms / 1e3) / f64::from(spec.ranks())
}
