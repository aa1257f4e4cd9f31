//! Answers of the what-if screen: the numbers of every architecture of a variant, a step of two of them, and the
//! frontier.

use super::break_even::HIDDEN_PCT;
use super::variant::WhatIfVariant;
use crate::analysis::{LEAST_DIFFERENCE, less_work, no_limit};
use crate::validate::TieBand;
use base::text::latency;
use machine::hardware::{InterNode, Profile};
use plan::{Architecture, ExpertLoad, Lane, LayerSet, Operation};
use run::sim::LinkTimes;
use table::render::Shown;
use table::{Backend, Spec, measure};
use trace::overlap::intervals;

/// Architectures of the what-if table; the variant's own joins them.
const SHOWN: [&str; 7] =
    ["standard", "ladder", "parallel", "desync:2", "delayed:2", "sync-drop", "upper-bound"];

/// Number of architectures of the table besides `standard`, `ladder` and the limit.
pub(crate) const FURTHER_ARCHITECTURES: usize = SHOWN.len() - 3;

/// Architectures of the table for a chosen one, the limit last, with this number of micro-batches each.
pub(super) fn shown_with(chosen: &Architecture, micro_batches: u32) -> Vec<(Architecture, u32)> {
    let mut shown: Vec<Architecture> = SHOWN.iter().filter_map(|name| name.parse().ok()).collect();
    if !shown.contains(chosen) {
        shown.insert(shown.len() - 1, chosen.clone());
    }
    shown.into_iter().map(|architecture| (architecture, micro_batches)).collect()
}

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
    /// Reason why removing launch gaps from a trace changes no prediction, if so.
    pub no_launch_gaps: Option<&'static str>,
    /// Backend whose own all-reduce a trace has where its options say `nccl`; `None` if that is NCCL's.
    pub own_all_reduce: Option<Backend>,
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
    pub(super) fn new(profile: &Profile, cell: &Spec) -> Option<Self> {
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
pub struct SimulatedMetrics {
    /// Prefill latency, from prompt to token 1 (ms); `None` for a trace.
    pub prefill_ms: Option<f64>,
    /// Latency of all decode steps (ms); `None` for a trace.
    pub decode_ms: Option<f64>,
    /// Median time per output token (ms).
    pub tpot_ms: f64,
    /// `None` for a trace.
    pub completion_ms: Option<f64>,
    /// Tokens/s of all sequences, divided by the number of GPUs; `None` for a trace.
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Busy time of the comm lane in a step (ms).
    pub comm_ms: f64,
    /// Exposed communication in a step (ms).
    pub exposed_ms: f64,
    /// Hidden share of the communication (%); `None` without communication.
    pub overlap_pct: Option<f64>,
    /// Slowdown of a step's kernels by concurrent communication (ms). From a trace, only the chosen architecture and
    /// [`WhatIfAnswer::wiring`] have one.
    pub contention_ms: Option<f64>,
    /// TPOT of plain `standard` divided by this TPOT; from a trace, the median over its steps of measured / predicted
    /// latency.
    pub speedup: Option<f64>,
    /// 2.5th to 97.5th percentile of the speedup over the steps of a trace; `None` with few steps, and without a trace.
    pub speedup_95: Option<[f64; 2]>,
    /// Closed part of the gap to `upper-bound`: (standard - this) / (standard - upper-bound) in TPOT.
    pub hidden_share: Option<f64>,
}

impl SimulatedMetrics {
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

impl WhatIfRow {
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
pub struct WhatIfRow {
    pub architecture: Architecture,
    pub micro_batches: u32,
    /// Numbers, or the reason why the row cannot run.
    pub numbers: std::result::Result<SimulatedMetrics, String>,
    /// Band within which leads of this prediction are ties.
    pub band: TieBand,
}

/// Middle decode step of an architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct StepStrip {
    pub architecture: Architecture,
    pub length_ns: i64,
    /// Section in the middle of the model (ns): from the start of one layer's compute to the start of the
    /// second layer after it, so that the first layer's communication is visible behind the next.
    pub layer_ns: (i64, i64),
    pub layer: u32,
    pub spans: Vec<StripSpan>,
    /// Communication while compute idles, ascending (ns).
    pub exposed: ExposedIntervals,
}

/// Disjoint intervals, ascending (ns).
pub type ExposedIntervals = Vec<(i64, i64)>;

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

/// Waiting for launches in the steps of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchGaps {
    /// Time in which the GPU waits for launches in a step (ms).
    pub ms: f64,
    /// Remedy, as the verdict on the trace names it.
    pub remedy: &'static str,
    pub is_removed: bool,
    /// True if the trace was recorded with Python stacks, which slow the host: the gaps, and the gain without them, are
    /// larger than in the engine itself.
    pub has_python_stacks: bool,
    /// Speedups over the traced steps of `standard` and of [`WhatIfAnswer::wiring`] without these gaps; `None` if they are
    /// removed, or if a prediction fails.
    pub speedups_without: Option<[f64; 2]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WhatIfAnswer {
    pub variant: WhatIfVariant,
    /// Cell with all slider changes.
    pub spec: Spec,
    pub profile_values: ProfileValues,
    /// Link with all slider changes; `None` for one rank, or if the link has no times at this TP.
    pub link: Option<CellLink>,
    /// Time of one all-reduce of a decode step with all slider changes, inside the model (us); from a trace, the median, with
    /// the traced wait for the last rank. `None` without all-reduces, or if no profile covers them.
    pub all_reduce_us: Option<f64>,
    /// Speedup of [`Self::wiring`] over `standard` by [`TracedSteps::simulated_speedup`]; `None` for a simulated cell.
    ///
    /// [`TracedSteps::simulated_speedup`]: super::TracedSteps::simulated_speedup
    pub simulated_speedup: Option<f64>,
    /// Error of the predictions, in words.
    pub error: String,
    /// Launch gaps of launch-bound steps of a trace.
    pub launch_gaps: Option<LaunchGaps>,
    /// Assumptions of a prediction from a trace; `None` for a simulated cell.
    pub assumptions: Option<String>,
    /// All architectures, including the chosen one. If the variant's batch is not split but can be, also
    /// `standard` in two micro-batches: the rival that needs no new model.
    pub rows: Vec<WhatIfRow>,
    /// `standard`, then the chosen architecture if it differs.
    pub strips: Vec<StepStrip>,
    /// `standard`, the chosen architecture, `upper-bound`.
    pub frontiers: Vec<Frontier>,
    pub arguments: Vec<String>,
}

/// The fastest architecture and those behind it by too little to call.
#[derive(Clone, Debug)]
pub struct Fastest<'a> {
    /// Ascending by TPOT, but `standard` first if it is one of them; empty if none can run.
    pub rows: Vec<(&'a WhatIfRow, &'a SimulatedMetrics)>,
    /// Widest band between the fastest row and another of these; the fastest row's own band without others.
    pub band: TieBand,
    /// Widest of the bands that are based on measurements, if any.
    pub measured_band: Option<TieBand>,
    /// True if no other row is within `band`, so that one band describes the tie.
    pub has_one_band: bool,
    /// True if a row is outside its band and ties because its interval over the steps of a trace overlaps that of the fastest.
    pub has_overlap: bool,
}

impl WhatIfAnswer {
    /// Row of an architecture, with the variant's own number of micro-batches.
    pub fn row(&self, architecture: &Architecture) -> Option<&WhatIfRow> {
        self.rows.iter().find(|row| {
            (&row.architecture, row.micro_batches) == (architecture, self.spec.micro_batches)
        })
    }

    pub fn is_chosen(&self, row: &WhatIfRow) -> bool {
        self.row(&self.spec.architecture) == Some(row)
    }

    /// Label of a row: its architecture and the options that distinguish it from plain cells, such as `ladder
    /// micro2`.
    pub fn label(&self, row: &WhatIfRow) -> String {
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

    /// Speedup of a row over `standard` with the same slider changes; of a trace, the ratio of their speedups over it.
    pub fn speedup_over_standard(&self, numbers: &SimulatedMetrics) -> Option<f64> {
        let standard = self.row(&Architecture::Standard)?.numbers.as_ref().ok()?;
        Some(numbers.speedup? / standard.speedup?)
    }

    /// Architecture whose gain is in question: the chosen one, or `ladder` for `standard`.
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

    /// Launch gaps and the speedups without them, if the steps of a trace have gaps and therefore no faster architecture.
    pub fn launches_hide_gains(&self) -> Option<(LaunchGaps, [f64; 2])> {
        let gaps = self.launch_gaps.filter(|_| self.gains_nothing())?;
        Some((gaps, gaps.speedups_without?))
    }

    /// True if launch gaps that Python stacks lengthened are removed, so that all speedups over the trace are upper bounds.
    pub fn is_overstated(&self) -> bool {
        self.launch_gaps.is_some_and(|gaps| gaps.has_python_stacks && gaps.is_removed)
    }

    /// Line on the launch-bound steps of a trace; `remove` names the key or option that removes the gaps.
    pub fn launch_bound(&self, remove: &str) -> Option<String> {
        let gaps = self.launch_gaps.filter(|_| self.cannot().is_none())?;
        let LaunchGaps { ms, remedy, is_removed, has_python_stacks, .. } = gaps;
        let wait = latency(1e3 * ms);
        let caution = match has_python_stacks {
            true => "; overstated, as Python stacks slow the host: record without with_stack",
            false => "",
        };
        if is_removed {
            return Some(format!("launch wait of {wait} removed ({remedy}){caution}"));
        }
        let first = match self.gains_nothing() {
            true => "no architecture helps until the wait is gone",
            false => "remove the wait first",
        };
        Some(format!(
            "launch-bound: the GPU waits {wait} for launches; {first}: {remove} ({remedy}){caution}"
        ))
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
        let beats = |row: &WhatIfRow| {
            let (less, numbers) = (less_work(&row.applied_to(&self.spec))?, row.numbers.as_ref().ok()?);
            let is_ahead = limit / numbers.tpot_ms > 1.0 + LEAST_DIFFERENCE;
            let is_choice = row.architecture != Architecture::UpperBound;
            (is_ahead && is_choice).then(|| (self.label(row), less, numbers.tpot_ms))
        };
        let beaten = self.rows.iter().filter_map(beats);
        let (label, less, tpot_ms) = beaten.min_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(no_limit(&label, less, [tpot_ms, limit], ""))
    }

    /// The fastest row, and all within its [`TieBand::between`] with each of them, as in a comparison of the two.
    /// `upper-bound` is no choice.
    pub fn fastest(&self) -> Fastest<'_> {
        let choices = self.rows.iter().filter(|row| !row.architecture.is_limit());
        let mut ran: Vec<(&WhatIfRow, &SimulatedMetrics)> =
            choices.filter_map(|row| Some((row, row.numbers.as_ref().ok()?))).collect();
        ran.sort_by(|(_, a), (_, b)| a.tpot_ms.total_cmp(&b.tpot_ms));
        let Some(&(best, first)) = ran.first() else {
            let (rows, band) = (Vec::new(), TieBand::UNKNOWN);
            let measured_band = None;
            return Fastest { rows, band, measured_band, has_one_band: true, has_overlap: false };
        };
        let is_within = |band: TieBand, tpot_ms: f64| {
            tpot_ms <= first.tpot_ms || band.holds(tpot_ms / first.tpot_ms)
        };
        let standard = self.row(&Architecture::Standard);
        // a gain over standard is paired by step, so that overlapping intervals say nothing about it
        let overlaps = |row: &WhatIfRow, numbers: &SimulatedMetrics| {
            let is_pair = standard != Some(row) && standard != Some(best);
            let ends = first.speedup_95.zip(numbers.speedup_95).filter(|_| is_pair);
            ends.is_some_and(|([low, _], [_, high])| low <= high)
        };
        let is_in_band = |row: &WhatIfRow, numbers: &SimulatedMetrics| {
            is_within(best.band.between(row.band), numbers.tpot_ms)
        };
        let (mut rows, behind): (Vec<_>, Vec<_>) = ran
            .into_iter()
            .partition(|&(row, numbers)| is_in_band(row, numbers) || overlaps(row, numbers));
        let has_overlap = rows.iter().any(|&(row, numbers)| !is_in_band(row, numbers));
        let others = rows.iter().filter(|(row, _)| *row != best);
        let bands: Vec<TieBand> = others.map(|(row, _)| best.band.between(row.band)).collect();
        let widest = |bands: &[TieBand]| bands.iter().copied().reduce(TieBand::wider);
        let band = widest(&bands).unwrap_or(best.band);
        let measured: Vec<TieBand> =
            bands.into_iter().chain([best.band]).filter(|band| *band != TieBand::UNKNOWN).collect();
        let measured_band = widest(&measured);
        let has_one_band = !behind.iter().any(|(_, numbers)| is_within(band, numbers.tpot_ms));
        rows.sort_by_key(|(row, _)| standard != Some(*row));
        Fastest { rows, band, measured_band, has_one_band, has_overlap }
    }

    /// Band within which these rows tie.
    pub fn tie_band<'a>(&self, rows: impl IntoIterator<Item = &'a WhatIfRow>) -> TieBand {
        let bands = rows.into_iter().map(|row| row.band).reduce(TieBand::between);
        bands.unwrap_or(TieBand::UNKNOWN)
    }

    pub fn chosen(&self) -> Option<&SimulatedMetrics> {
        self.row(&self.spec.architecture)?.numbers.as_ref().ok()
    }

    /// Explains why [`Self::wiring`] is slower than `upper-bound` although it hides nearly all of its communication.
    /// `None` if it hides less, if the limit has other options, or if TPOT includes prefills.
    pub fn rest_of_gap(&self) -> Option<String> {
        let wiring = self.row(&self.wiring())?;
        let own = wiring.numbers.as_ref().ok()?;
        let limit = self.row(&Architecture::UpperBound)?.numbers.as_ref().ok()?;
        let (hidden_pct, closed) = (own.overlap_pct?, own.hidden_share?);
        let is_plain = self.spec.plain() == self.spec && self.spec.concurrency == 0;
        if !is_plain || hidden_pct <= HIDDEN_PCT || closed >= HIDDEN_PCT / 100.0 {
            return None;
        }
        let rest_ms = own.tpot_ms - limit.tpot_ms;
        let exposed_ms = own.exposed_ms - limit.exposed_ms;
        let contention_ms = own.contention_ms?;
        let others = match self.assumptions.is_some() {
            true => "other kernels and waits for launches",
            false => "other kernels",
        };
        let parts = [
            (contention_ms, "kernels slowed by communication beside them"),
            (exposed_ms, "exposed communication"),
            (rest_ms - contention_ms - exposed_ms, others),
        ];
        let parts = parts.iter().filter(|(ms, _)| *ms >= 0.01 * rest_ms);
        let parts: Vec<String> =
            parts.map(|(ms, what)| format!("{} {what}", latency(1e3 * ms))).collect();
        let label = self.label(wiring);
        Some(format!(
            "{label} hides {hidden_pct:.1} % of its communication and is {} slower than upper-bound: {}",
            latency(1e3 * rest_ms),
            parts.join(", ")
        ))
    }
}

/// Architecture to compare with `standard` where this one is chosen: itself, or `ladder`.
pub(super) fn rival_of(chosen: &Architecture) -> Architecture {
    match chosen {
        Architecture::Standard | Architecture::UpperBound => Architecture::Ladder(LayerSet::All),
        other => other.clone(),
    }
}

impl StripSpan {
    pub(super) fn new(operation: &Operation, lane: Lane, (start_ns, end_ns): (i64, i64)) -> Self {
        Self {
            name: operation.name.rsplit('/').next().unwrap_or_default().into(),
            lane,
            layer: operation.layer,
            start_ns,
            end_ns,
        }
    }
}

impl StepStrip {
    pub(super) fn new(
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
fn busy(spans: &[StripSpan], lane: Lane) -> ExposedIntervals {
    let of_lane = spans.iter().filter(|span| span.lane == lane);
    intervals::union(of_lane.map(|span| (span.start_ns, span.end_ns)))
}
