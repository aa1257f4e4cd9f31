//! What an answer holds: rows of numbers, steps as strips, frontiers.

use super::variant::Variant;
use crate::analysis::{LEAST_DIFFERENCE, less_work, no_limit};
use plan::{Architecture, Lane};
use run::sim::LinkTimes;
use table::render::Shown;
use table::{Spec, Split, measure};

/// What a variant's profile and stack say, before the sliders change it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileValues {
    /// Latency of a small all-reduce inside a node at this TP (us).
    pub alpha_us: f64,
    /// Its message bandwidth (1e9 bytes a second).
    pub gb_s: f64,
    /// SMs' worth of work that a large all-reduce takes; `None` where the profile does not count SMs.
    pub sms: Option<f64>,
    /// SMs of a GPU.
    pub sms_total: Option<u32>,
    /// What an all-reduce loses while compute runs (%).
    pub comm_loss_pct: f64,
    /// Peak memory bandwidth (1e9 bytes a second).
    pub hbm_gb_s: f64,
    /// Fixed time of a kernel (us).
    pub launch_us: f64,
    /// The TPs that divide the model, ascending.
    pub tps: Vec<u32>,
    /// What the stack multiplies the latency of measured all-reduces with.
    pub latency_scale: f64,
    /// What to know about the profile's link.
    pub link_note: Option<String>,
}

/// The link of a cell: a decode step's all-reduce, as nccl-tests measures it and as the stack charges it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellLink {
    /// Message of a decode step's all-reduce (bytes).
    pub message_bytes: u64,
    pub times: LinkTimes,
}

/// What the simulator says of one architecture. Times of a step are of the middle one.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// Latency of prefill, from prompt to token 1 (ms).
    pub prefill_ms: f64,
    /// Latency of all decode steps (ms).
    pub decode_ms: f64,
    /// Median time of an output token (ms).
    pub tpot_ms: f64,
    /// Latency of prefill and decode together (ms).
    pub completion_ms: f64,
    /// Tokens/s of all sequences, by TP.
    pub tokens_per_s_per_gpu: f64,
    /// Comm lane busy in a step (ms).
    pub comm_ms: f64,
    /// The part of the communication that is exposed (ms).
    pub exposed_ms: f64,
    /// Overlap %; `None` without communication.
    pub overlap_pct: Option<f64>,
    /// Where the step went.
    pub split: Split,
    /// TPOT of a plain `standard` over its own.
    pub speedup: Option<f64>,
    /// (standard - it) / (standard - upper-bound) in TPOT.
    pub hidden_share: Option<f64>,
}

impl Numbers {
    /// The names that its numbers have in files, in their order.
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

    /// The number of a name, in the unit that stands in it.
    pub fn of(&self, name: &str) -> Option<f64> {
        match name {
            "prefill_ms" => Some(self.prefill_ms),
            "decode_ms" => Some(self.decode_ms),
            "tpot_ms" => Some(self.tpot_ms),
            "speedup" => self.speedup,
            "completion_ms" => Some(self.completion_ms),
            "tokens_per_s_per_gpu" => Some(self.tokens_per_s_per_gpu),
            "comm_ms" => Some(self.comm_ms),
            "exposed_comm_ms" => Some(self.exposed_ms),
            "overlap_pct" => self.overlap_pct,
            "hidden_share" => self.hidden_share,
            _ => None,
        }
    }
}

impl Row {
    /// The row's cell, of the cell that the answer is about.
    pub(super) fn of(&self, spec: &Spec) -> Spec {
        Spec {
            architecture: self.architecture.clone(),
            micro_batches: self.micro_batches,
            ..spec.clone()
        }
    }

    /// The number of a name as a table shows it: with the decimals of its measure.
    pub fn shown(&self, name: &str) -> Shown {
        let number = self.numbers.as_ref().ok().and_then(|numbers| numbers.of(name));
        Shown::number(number, measure(name).map_or(3, |measure| measure.decimals))
    }

    /// Why it cannot run, as a table shows it.
    pub fn reason(&self) -> Shown {
        self.numbers.as_ref().err().map(String::as_str).into()
    }
}

/// An architecture, and its numbers or why it has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The architecture that the row is of.
    pub architecture: Architecture,
    /// Into how many micro-batches its batch is divided.
    pub micro_batches: u32,
    /// Its numbers; else why it cannot run, for people.
    pub numbers: std::result::Result<Numbers, String>,
}

/// The middle decode step of an architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct Strip {
    /// The architecture whose step it is.
    pub architecture: Architecture,
    /// How long the step takes (ns).
    pub length_ns: i64,
    /// Where a layer in the middle of the model begins, and the next but one (ns): its attention and
    /// MLP, and what of them is hidden behind the next.
    pub layer_ns: (i64, i64),
    /// The layer in the middle of the model that the strip shows.
    pub layer: u32,
    /// Every operation, each lane's in order.
    pub spans: Vec<StripSpan>,
    /// Communication while compute idles, ascending (ns).
    pub exposed: Exposure,
}

/// Intervals, ascending and apart (ns).
pub type Exposure = Vec<(i64, i64)>;

/// One operation of a strip.
#[derive(Clone, Debug, PartialEq)]
pub struct StripSpan {
    /// The last part of its name: `down`.
    pub name: String,
    /// The lane on which the operation executes.
    pub lane: Lane,
    /// The layer that it belongs to; `None` before the first and after the last.
    pub layer: Option<u32>,
    /// When it starts, counted from the step's beginning (ns).
    pub start_ns: i64,
    /// When it ends, counted from the step's beginning (ns).
    pub end_ns: i64,
}

/// Latency against throughput of an architecture, over batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontier {
    /// The architecture whose frontier it is.
    pub architecture: Architecture,
    /// Ascending in batch; those that fit in memory.
    pub points: Vec<FrontierPoint>,
}

/// A batch on the frontier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontierPoint {
    /// How many sequences are decoded together.
    pub batch: u32,
    /// Latency of prefill and decode together (ms).
    pub completion_ms: f64,
    /// Time of an output token (ms).
    pub tpot_ms: f64,
    /// Throughput of all sequences, divided by TP (tokens/s).
    pub tokens_per_s_per_gpu: f64,
}

/// What the engine says of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The variant that was asked about.
    pub variant: Variant,
    /// It as a cell, with everything the sliders changed.
    pub spec: Spec,
    /// The values that the profile and the stack have where no slider changes them.
    pub profile_values: ProfileValues,
    /// The link with everything the sliders changed; `None` for one rank, and where it has no times at this TP.
    pub link: Option<CellLink>,
    /// Every architecture, the chosen one among them; and `standard` in two micro-batches, their rival that needs no
    /// new model, where the variant's batch can be divided and is not divided itself.
    pub rows: Vec<Row>,
    /// `standard`, then the chosen one where it is another.
    pub strips: Vec<Strip>,
    /// `standard`, the chosen one, `upper-bound`.
    pub frontiers: Vec<Frontier>,
    /// The arguments of the command that runs the chosen architecture.
    pub arguments: Vec<String>,
}

impl Answer {
    /// The row of an architecture.
    pub fn row(&self, architecture: &Architecture) -> Option<&Row> {
        self.rows.iter().find(|row| {
            (&row.architecture, row.micro_batches) == (architecture, self.spec.micro_batches)
        })
    }

    /// Whether a row is of the chosen architecture.
    pub fn is_chosen(&self, row: &Row) -> bool {
        self.row(&self.spec.architecture) == Some(row)
    }

    /// What a row is of: its architecture, and what sets the variant's cells apart from plain ones: `ladder micro2`.
    pub fn label(&self, row: &Row) -> String {
        row.of(&self.spec).architecture_label()
    }

    /// Why nothing can run, where nothing can: what is said of the first architecture.
    pub fn cannot(&self) -> Option<String> {
        let reasons: Option<Vec<&String>> =
            self.rows.iter().map(|row| row.numbers.as_ref().err()).collect();
        reasons?.first().map(|reason| (*reason).clone())
    }

    /// A remark on the row that is furthest ahead of `upper-bound`, because it does less work; `None` if none is.
    pub fn beaten_limit(&self) -> Option<String> {
        let limit = self.row(&Architecture::UpperBound)?.numbers.as_ref().ok()?.tpot_ms;
        let beats = |row: &Row| {
            let (less, numbers) = (less_work(&row.of(&self.spec))?, row.numbers.as_ref().ok()?);
            let is_ahead = limit / numbers.tpot_ms > 1.0 + LEAST_DIFFERENCE;
            let is_choice = row.architecture != Architecture::UpperBound;
            (is_ahead && is_choice).then(|| (self.label(row), less, numbers.tpot_ms))
        };
        let beaten = self.rows.iter().filter_map(beats);
        let (label, less, tpot_ms) = beaten.min_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(no_limit(&label, less, [tpot_ms, limit], ""))
    }

    /// The numbers of the chosen architecture.
    pub fn chosen(&self) -> Option<&Numbers> {
        self.row(&self.spec.architecture)?.numbers.as_ref().ok()
    }
}
