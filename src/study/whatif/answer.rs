//! Answers of the what-if screen: the numbers of every architecture of a variant, a step of two of them, and the
//! frontier.
//!
//! An answer needs one prediction per architecture plus those of the frontier, each a fraction of a millisecond, on all
//! cores.

use std::sync::Arc;

use rayon::prelude::*;

use super::slider;
use super::variant::{Variant, sms_of};
use crate::analysis::{LEAST_DIFFERENCE, less_work, no_limit};
use crate::validate::{TieBand, nearest_error};
use base::error::{Error, Result};
use base::text::latency;
use machine::hardware::{InterNode, LinkTable, Profile, Target};
use plan::{Architecture, ExpertLoad, Lane, LayerSet, ModelShape, Operation, Precision};
use run::feasibility;
use run::sim::{LinkTimes, Prediction, SimulatedCell, Simulator, link_problem, link_times};
use table::render::Shown;
use table::{Collective, Link, Spec, Split, hidden_share, measure};
use trace::overlap::intervals;

/// TP sizes to choose from.
pub(super) const TPS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

const BATCHES: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Architectures of the what-if table; the variant's own joins them.
pub(super) const SHOWN: [&str; 7] =
    ["standard", "ladder", "parallel", "desync:2", "delayed:2", "sync-drop", "upper-bound"];

/// Values of a variant's profile and stack before slider changes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileValues {
    /// Latency of a small all-reduce inside a node at this TP (us).
    pub alpha_us: f64,
    /// Message bandwidth of that all-reduce (1e9 bytes/s).
    pub gb_s: f64,
    pub gpus_per_node: u32,
    /// Network between the nodes; `None` if all ranks are in one, and over an emulated link.
    pub network: Option<NetworkValues>,
    /// SMs' worth of work that a large all-reduce takes; `None` if the profile lacks the number of SMs.
    pub sms: Option<f64>,
    pub sms_total: Option<u32>,
    /// Share of its rate that an all-reduce loses while compute runs (%).
    pub comm_loss_pct: f64,
    /// Peak memory bandwidth (1e9 bytes/s).
    pub hbm_gb_s: f64,
    /// Fixed time of a kernel (us).
    pub launch_us: f64,
    /// TP sizes that divide the model, ascending.
    pub tps: Vec<u32>,
    /// True for each division of the GPUs, in the slider's order, that divides the experts.
    pub divisions: [bool; 3],
    /// Restriction of the TP sizes to choose from, if any.
    pub tp_note: Option<String>,
    /// Experts of a layer and top-k, in a mixture.
    pub experts: Option<[u32; 2]>,
    /// Factor by which the stack scales the latency; `None` where it scales none: formulas, emulated links, traces.
    pub latency_scale: Option<f64>,
    pub link_note: Option<String>,
    /// Reason why no value of the link changes the communication, if so.
    pub no_link: Option<String>,
}

/// Network between the nodes that the ranks of a cell span, as the profile has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkValues {
    pub nodes: u32,
    /// Latency per doubling of the nodes (us).
    pub alpha_us: f64,
    /// Combined bandwidth of a node's network cards (1e9 bytes/s).
    pub gb_s: f64,
    /// Source of both values.
    pub note: Option<String>,
}

impl NetworkValues {
    pub(super) fn of(profile: &Profile, cell: &Spec) -> Option<Self> {
        let nodes = cell.tp.max(cell.dp).div_ceil(profile.gpus_per_node.max(1));
        let InterNode { note, alpha_us, gb_s } = profile.link.inter_node.clone();
        (nodes > 1 && !cell.link.is_emulated()).then_some(Self { nodes, alpha_us, gb_s, note })
    }
}

/// Link of a cell: a decode step's all-reduce, as nccl-tests measures it and as the stack charges it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellLink {
    /// Message size of a decode step's all-reduce (bytes).
    pub message_bytes: u64,
    pub times: LinkTimes,
}

/// Simulated numbers of one architecture. Step times are those of the middle decode step.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// Prefill latency, from prompt to token 1 (ms); `None` for a step of a trace.
    pub prefill_ms: Option<f64>,
    /// Latency of all decode steps (ms); `None` for a step of a trace.
    pub decode_ms: Option<f64>,
    /// Median time per output token (ms).
    pub tpot_ms: f64,
    /// `None` for a step of a trace.
    pub completion_ms: Option<f64>,
    /// Tokens/s of all sequences, divided by the number of GPUs; `None` for a step of a trace.
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Busy time of the comm lane in a step (ms).
    pub comm_ms: f64,
    /// Exposed communication in a step (ms).
    pub exposed_ms: f64,
    /// Hidden share of the communication (%); `None` without communication.
    pub overlap_pct: Option<f64>,
    pub split: Split,
    /// TPOT of plain `standard`, or the measured step of a trace, divided by this TPOT.
    pub speedup: Option<f64>,
    /// Closed part of the gap to `upper-bound`: (standard - this) / (standard - upper-bound) in TPOT.
    pub hidden_share: Option<f64>,
}

impl Numbers {
    /// Names of the numbers in files, in column order.
    pub const NAMES: [&str; 10] = [
        "prefill_ms",
        "decode_ms",
        "tpot_ms",
        "speedup",
        "completion_ms",
        "tokens_per_s_per_gpu",
        "comm_ms",
        "exposed_comm_ms",
        "overlap_pct",
        "hidden_share",
    ];

    /// Number by name, in the unit that the name ends with.
    pub fn by_name(&self, name: &str) -> Option<f64> {
        match name {
            "prefill_ms" => self.prefill_ms,
            "decode_ms" => self.decode_ms,
            "tpot_ms" => Some(self.tpot_ms),
            "speedup" => self.speedup,
            "completion_ms" => self.completion_ms,
            "tokens_per_s_per_gpu" => self.tokens_per_s_per_gpu,
            "comm_ms" => Some(self.comm_ms),
            "exposed_comm_ms" => Some(self.exposed_ms),
            "overlap_pct" => self.overlap_pct,
            "hidden_share" => self.hidden_share,
            _ => None,
        }
    }
}

impl Row {
    /// A cell with the row's architecture and micro-batches.
    pub(super) fn applied_to(&self, spec: &Spec) -> Spec {
        Spec {
            architecture: self.architecture.clone(),
            micro_batches: self.micro_batches,
            ..spec.clone()
        }
    }

    /// Number by name, formatted with the decimals of its measure.
    pub fn shown(&self, name: &str) -> Shown {
        let number = self.numbers.as_ref().ok().and_then(|numbers| numbers.by_name(name));
        Shown::number(number, measure(name).map_or(3, |measure| measure.decimals))
    }

    pub fn reason(&self) -> Shown {
        self.numbers.as_ref().err().map(String::as_str).into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub architecture: Architecture,
    pub micro_batches: u32,
    /// Numbers, or the reason why the row cannot run.
    pub numbers: std::result::Result<Numbers, String>,
}

/// Middle decode step of an architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct Strip {
    pub architecture: Architecture,
    pub length_ns: i64,
    /// Section in the middle of the model (ns): from the start of one layer's compute to the start of the
    /// second layer after it, so that the first layer's communication is visible behind the next.
    pub layer_ns: (i64, i64),
    pub layer: u32,
    pub spans: Vec<StripSpan>,
    /// Communication while compute idles, ascending (ns).
    pub exposed: Exposure,
}

/// Disjoint intervals, ascending (ns).
pub type Exposure = Vec<(i64, i64)>;

#[derive(Clone, Debug, PartialEq)]
pub struct StripSpan {
    /// Last part of the operation's name: `down`.
    pub name: String,
    pub lane: Lane,
    /// Layer of the operation; `None` before the first and after the last layer.
    pub layer: Option<u32>,
    /// Start, relative to the beginning of the step (ns).
    pub start_ns: i64,
    /// End, relative to the beginning of the step (ns).
    pub end_ns: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Frontier {
    pub architecture: Architecture,
    /// Batch sizes that fit in memory, ascending.
    pub points: Vec<FrontierPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontierPoint {
    pub batch: u32,
    pub completion_ms: f64,
    pub tpot_ms: f64,
    pub tokens_per_s_per_gpu: f64,
}

/// Waiting for launches in a step of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchGaps {
    /// Time in which the GPU waits for launches (ms).
    pub ms: f64,
    /// Remedy, as the verdict on the trace names it.
    pub remedy: &'static str,
    pub is_removed: bool,
    /// Speedups over the traced step of `standard` and of [`Answer::wiring`] without these gaps; `None` if they are
    /// removed, or if a prediction fails.
    pub speedups_without: Option<[f64; 2]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub variant: Variant,
    /// Cell with all slider changes.
    pub spec: Spec,
    pub profile_values: ProfileValues,
    /// Link with all slider changes; `None` for one rank, or if the link has no times at this TP.
    pub link: Option<CellLink>,
    /// Error of the predictions, in words; `None` for a step of a trace.
    pub error: Option<String>,
    /// Launch gaps of a launch-bound step of a trace.
    pub launch_gaps: Option<LaunchGaps>,
    /// Assumptions of a prediction from a trace, and its error.
    pub assumptions: Option<String>,
    /// All architectures, including the chosen one. If the variant's batch is not split but can be, also
    /// `standard` in two micro-batches: the rival that needs no new model.
    pub rows: Vec<Row>,
    /// `standard`, then the chosen architecture if it differs.
    pub strips: Vec<Strip>,
    /// `standard`, the chosen architecture, `upper-bound`.
    pub frontiers: Vec<Frontier>,
    pub arguments: Vec<String>,
}

/// Architectures whose lead over each other is too small to call.
#[derive(Clone, Debug)]
pub struct Fastest<'a> {
    /// Ascending by TPOT, but `standard` first if it is one of them; empty if none can run.
    pub rows: Vec<(&'a Row, &'a Numbers)>,
    /// [`Answer::tie_share`] of these rows.
    pub tie_share: f64,
}

impl Answer {
    /// Row of an architecture, with the variant's own number of micro-batches.
    pub fn row(&self, architecture: &Architecture) -> Option<&Row> {
        self.rows.iter().find(|row| {
            (&row.architecture, row.micro_batches) == (architecture, self.spec.micro_batches)
        })
    }

    pub fn is_chosen(&self, row: &Row) -> bool {
        self.row(&self.spec.architecture) == Some(row)
    }

    /// Label of a row: its architecture and the options that distinguish it from plain cells, such as `ladder
    /// micro2`.
    pub fn label(&self, row: &Row) -> String {
        row.applied_to(&self.spec).architecture_label()
    }

    /// Reasons of the rows that cannot run, once each, after the labels they apply to.
    pub fn reasons(&self) -> Vec<String> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for row in &self.rows {
            let Err(why) = &row.numbers else { continue };
            let label = self.label(row);
            let own = why.strip_prefix(&format!("{} ", row.architecture)).unwrap_or(why);
            match found.iter_mut().find(|(known, _)| known == own) {
                Some((_, labels)) => labels.push(label),
                None => found.push((own.to_owned(), vec![label])),
            }
        }
        found.into_iter().map(|(why, labels)| format!("{}: {why}", labels.join(", "))).collect()
    }

    /// Architecture whose gain is in question: the chosen one, `ladder` beside `standard`.
    pub fn wiring(&self) -> Architecture {
        rival_of(&self.spec.architecture)
    }

    /// Highest speedup of any architecture, without the limit.
    fn best_speedup(&self) -> f64 {
        let choices = self.rows.iter().filter(|row| !row.architecture.is_limit());
        choices.filter_map(|row| row.numbers.as_ref().ok()?.speedup).fold(0.0, f64::max)
    }

    /// True if no architecture is faster than the step or the baseline.
    pub(super) fn gains_nothing(&self) -> bool {
        self.best_speedup() < 1.0 + LEAST_DIFFERENCE
    }

    /// Launch gaps and the speedups without them, if a step of a trace has gaps and therefore no faster architecture.
    pub fn launches_hide_gains(&self) -> Option<(LaunchGaps, [f64; 2])> {
        let gaps = self.launch_gaps.filter(|_| self.gains_nothing())?;
        Some((gaps, gaps.speedups_without?))
    }

    /// Line on a launch-bound step of a trace; `remove` names the key or option that removes the gaps.
    pub fn launch_bound(&self, remove: &str) -> Option<String> {
        let LaunchGaps { ms, remedy, is_removed, .. } = self.launch_gaps?;
        let wait = latency(1e3 * ms);
        if is_removed {
            return Some(format!("launch wait of {wait} removed ({remedy})"));
        }
        let remedy = with_article(remedy);
        Some(match self.best_speedup() < 1.0 + LEAST_DIFFERENCE {
            true => format!(
                "launch-bound: the GPU waits {wait} for launches; no wiring helps until {remedy} ({remove}) removes \
                 this wait"
            ),
            false => format!(
                "launch-bound: the GPU waits {wait} for launches; remove this wait first with {remedy} ({remove})"
            ),
        })
    }

    /// Line on the experts that an uneven load touches, which is why it may be faster than a balanced one.
    pub fn experts_touched(&self) -> Option<String> {
        let load = &self.spec.expert_load;
        if !matches!(load, ExpertLoad::PowerLaw(_) | ExpertLoad::Counts(_)) {
            return None;
        }
        let [count, top_k] = self.profile_values.experts?;
        let touched = |load: &ExpertLoad| load.touched(count, top_k, f64::from(self.spec.batch));
        let [own, even] = [load, &ExpertLoad::Balanced].map(touched);
        (own < 0.995 * even).then(|| {
            format!(
                "expert load {}: {} tokens touch {own:.0} of {count} experts a layer, {even:.0} if balanced; fewer weights \
                 are read",
                if matches!(load, ExpertLoad::Counts(_)) { "counts".into() } else { load.to_string() },
                self.spec.batch
            )
        })
    }

    /// Reason of the first row if no row can run; else `None`.
    pub fn cannot(&self) -> Option<String> {
        let reasons: Option<Vec<&String>> =
            self.rows.iter().map(|row| row.numbers.as_ref().err()).collect();
        reasons?.first().map(|reason| (*reason).clone())
    }

    /// Remark on the row that beats `upper-bound` by most because it does less work; `None` if no row does.
    pub fn beaten_limit(&self) -> Option<String> {
        let limit = self.row(&Architecture::UpperBound)?.numbers.as_ref().ok()?.tpot_ms;
        let beats = |row: &Row| {
            let (less, numbers) = (less_work(&row.applied_to(&self.spec))?, row.numbers.as_ref().ok()?);
            let is_ahead = limit / numbers.tpot_ms > 1.0 + LEAST_DIFFERENCE;
            let is_choice = row.architecture != Architecture::UpperBound;
            (is_ahead && is_choice).then(|| (self.label(row), less, numbers.tpot_ms))
        };
        let beaten = self.rows.iter().filter_map(beats);
        let (label, less, tpot_ms) = beaten.min_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(no_limit(&label, less, [tpot_ms, limit], ""))
    }

    /// Row with the lowest TPOT and its ties. `upper-bound` is no choice.
    pub fn fastest(&self) -> Fastest<'_> {
        let choices = self.rows.iter().filter(|row| !row.architecture.is_limit());
        let ran = choices.filter_map(|row| Some((row, row.numbers.as_ref().ok()?)));
        let least = ran.clone().map(|(_, numbers)| numbers.tpot_ms).fold(f64::INFINITY, f64::min);
        let ratios: Vec<((&Row, &Numbers), f64)> =
            ran.map(|(row, numbers)| ((row, numbers), numbers.tpot_ms / least)).collect();
        let (mut rows, tie_share) =
            TieBand::ties(ratios, |near| self.tie_share(near.iter().map(|((row, _), _)| *row)));
        rows.sort_by(|(_, a), (_, b)| a.tpot_ms.total_cmp(&b.tpot_ms));
        let standard = self.row(&Architecture::Standard);
        rows.sort_by_key(|(row, _)| standard != Some(*row));
        Fastest { rows, tie_share }
    }

    /// Smallest lead between these rows that is called one, as a share: the simulator's error ([`TieBand`]), or
    /// [`LEAST_DIFFERENCE`] in a step of a trace, whose kernels are measured.
    pub fn tie_share<'a>(&self, rows: impl IntoIterator<Item = &'a Row>) -> f64 {
        if self.error.is_none() {
            return LEAST_DIFFERENCE;
        }
        let specs: Vec<Spec> = rows.into_iter().map(|row| row.applied_to(&self.spec)).collect();
        TieBand::of(&specs).share
    }

    pub fn chosen(&self) -> Option<&Numbers> {
        self.row(&self.spec.architecture)?.numbers.as_ref().ok()
    }
}

/// Architecture to compare with `standard` where this one is chosen: itself, or `ladder`.
pub(super) fn rival_of(chosen: &Architecture) -> Architecture {
    match chosen {
        Architecture::Standard | Architecture::UpperBound => Architecture::Ladder(LayerSet::All),
        other => other.clone(),
    }
}

/// Remedy for launch gaps as a noun phrase: `a CUDA graph`.
pub fn with_article(remedy: &str) -> String {
    if remedy == "CUDA graph" { format!("a {remedy}") } else { remedy.to_owned() }
}

/// Variant with the model and machine that its cell names.
pub(super) struct Question<'a> {
    simulator: &'a Simulator,
    pub spec: Spec,
    shape: ModelShape,
    pub target: Arc<Target>,
}

impl Variant {
    /// Computes all numbers of the what-if screen. An architecture that cannot run becomes a row with the
    /// reason.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant itself is invalid: an unknown profile, a value out of bounds.
    pub fn answer(&self, simulator: &Simulator) -> Result<Answer> {
        let question = Question::new(simulator, self)?;
        let (standard, bound) = (Architecture::Standard, Architecture::UpperBound);
        let Spec { architecture: chosen, micro_batches: own, .. } = question.spec.clone();
        let mut shown: Vec<Architecture> = SHOWN.iter().filter_map(|name| name.parse().ok()).collect();
        if !shown.contains(&chosen) {
            shown.insert(shown.len() - 1, chosen.clone());
        }
        let mut shown: Vec<(Architecture, u32)> = shown.into_iter().map(|it| (it, own)).collect();
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
                rows.collect::<Vec<(Row, Option<Strip>)>>()
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
        let (rows, mut strips): (Vec<Row>, Vec<Option<Strip>>) = rows.into_iter().unzip();
        let mut strip = |wanted: &Architecture| {
            let at =
                rows.iter().position(|row| (&row.architecture, row.micro_batches) == (wanted, own))?;
            strips.get_mut(at)?.take()
        };
        let mut two: Vec<Strip> = strip(&standard).into_iter().collect();
        two.extend(strip(&chosen));
        let is_linked = question.spec.tp > 1 && link_problem(&question.spec, &question.target).is_none();
        Ok(Answer {
            variant: self.clone(),
            link: is_linked.then(|| question.link()),
            error: Some(nearest_error(&question.spec)),
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

impl<'a> Question<'a> {
    pub(super) fn new(simulator: &'a Simulator, variant: &Variant) -> Result<Self> {
        let spec = variant.spec()?;
        let shape = simulator.model(&spec.model)?.shape.clone();
        // not cached: every position of a slider is another target
        let target = Arc::new(Target::of(&spec)?);
        if spec.concurrency > 0 && target.stack.serving.is_none() {
            let problem = format!("stack {} decodes static batches only", target.stack.name);
            return Err(Error::input_help(problem, "choose a serving stack, for example vllm-0.12"));
        }
        Ok(Self { simulator, spec, shape, target })
    }

    fn cell<'b>(&self, spec: &'b Spec) -> Result<SimulatedCell<'b>> {
        self.simulator.cell_on(spec, &self.shape, Arc::clone(&self.target))
    }

    fn profile_values(&self, variant: &Variant) -> Result<ProfileValues> {
        let cell = &variant.cell;
        let target = variant.plain_target()?;
        let Target { profile, stack } = &target;
        let (alpha_us, gb_s, link_note) = own_link(profile, cell);
        let total = sms_of(profile).ok();
        Ok(ProfileValues {
            alpha_us,
            gb_s,
            gpus_per_node: profile.gpus_per_node,
            network: NetworkValues::of(profile, cell),
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
    pub(super) fn numbers(&self, spec: &Spec) -> std::result::Result<(Numbers, Strip), String> {
        if let Some(problem) = feasibility::problem(spec, &self.shape) {
            return Err(problem);
        }
        let cell = self.cell(spec).map_err(|error| error.to_string())?;
        if let Some(problem) = cell.out_of_memory() {
            return Err(problem);
        }
        let Prediction { prefill_ms, decode_ms } = cell.predict();
        let Some(step) = cell.predict_middle_step() else {
            return Err("one output token has no decode steps; ask for two or more".into());
        };
        let completion_ms = prefill_ms + decode_ms;
        // times saturate at the clock's maximum
        if step.length_ns == i64::MAX || completion_ms * 1e6 >= i64::MAX as f64 {
            return Err("longer than 292 years (clock overflow)".into());
        }
        let numbers = Numbers {
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
            split: step.overlap.split.unwrap_or_default(),
            speedup: None,
            hidden_share: None,
        };
        let operation = |at: usize| &cell.plans.decode[0].operations[at];
        let spans = step
            .spans
            .iter()
            .map(|span| {
                StripSpan::of(operation(span.operation), span.lane, (span.start_ns, span.end_ns))
            })
            .collect();
        let layers = self.shape.layers / spec.pp.max(1);
        Ok((numbers, Strip::of(&spec.architecture, spans, step.length_ns, layers)))
    }

    fn row(&self, architecture: &Architecture, groups: u32) -> (Row, Option<Strip>) {
        let architecture = architecture.clone();
        let mut row = Row { architecture, micro_batches: groups, numbers: Err(String::new()) };
        let (numbers, strip) = self
            .numbers(&row.applied_to(&self.spec))
            .map_or_else(|why| (Err(why), None), |(numbers, strip)| (Ok(numbers), Some(strip)));
        row.numbers = numbers;
        (row, strip)
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
        let Prediction { prefill_ms, decode_ms } = self.cell(&spec).ok()?.predict();
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
    fn with_hidden_share(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let plain = self.spec.plain();
        let tpot = |wanted: Architecture| {
            let is_of =
                |row: &&Row| row.architecture == wanted && row.micro_batches == plain.micro_batches;
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

/// Fills in speedup and gap closed, relative to the step times of `standard` and `upper-bound` (ms).
pub(super) fn compare_with(rows: &mut [Row], standard: Option<f64>, limit: Option<f64>) {
    for numbers in rows.iter_mut().filter_map(|row| row.numbers.as_mut().ok()) {
        numbers.speedup = standard.map(|standard| standard / numbers.tpot_ms);
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

impl StripSpan {
    pub(super) fn of(operation: &Operation, lane: Lane, (start_ns, end_ns): (i64, i64)) -> Self {
        Self {
            name: operation.name.rsplit('/').next().unwrap_or_default().into(),
            lane,
            layer: operation.layer,
            start_ns,
            end_ns,
        }
    }
}

impl Strip {
    pub(super) fn of(
        architecture: &Architecture,
        spans: Vec<StripSpan>,
        length_ns: i64,
        layers: u32,
    ) -> Self {
        let exposed = intervals::difference(&busy(&spans, Lane::Comm), &busy(&spans, Lane::Compute));
        let layer = layers / 2;
        let begin = |wanted: u32| {
            let compute = spans.iter().filter(|s| s.lane == Lane::Compute && s.layer == Some(wanted));
            compute.map(|span| span.start_ns).min()
        };
        let from = begin(layer).unwrap_or(0);
        let to = begin(layer + 2).or_else(|| begin(layer + 1)).unwrap_or(length_ns);
        Self {
            architecture: architecture.clone(),
            length_ns,
            layer_ns: (from, to.max(from + 1)),
            layer,
            spans,
            exposed,
        }
    }
}

/// Busy intervals of a lane (ns).
fn busy(spans: &[StripSpan], lane: Lane) -> Exposure {
    let of_lane = spans.iter().filter(|span| span.lane == lane);
    intervals::union(of_lane.map(|span| (span.start_ns, span.end_ns)))
}
