use super::variant::Variant;
use crate::analysis::{LEAST_DIFFERENCE, less_work, no_limit};
use plan::{Architecture, Lane};
use run::sim::LinkTimes;
use table::render::Shown;
use table::{Spec, Split, measure};

/// Values of a variant's profile and stack before slider changes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileValues {
    /// Latency of a small all-reduce inside a node at this TP (us).
    pub alpha_us: f64,
    /// Message bandwidth of that all-reduce (1e9 bytes/s).
    pub gb_s: f64,
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
    /// Factor of the stack for the latency of measured all-reduces.
    pub latency_scale: f64,
    pub link_note: Option<String>,
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
    /// Prefill latency, from prompt to token 1 (ms).
    pub prefill_ms: f64,
    /// Latency of all decode steps (ms).
    pub decode_ms: f64,
    /// Median time per output token (ms).
    pub tpot_ms: f64,
    pub completion_ms: f64,
    /// Tokens/s of all sequences, divided by TP.
    pub tokens_per_s_per_gpu: f64,
    /// Busy time of the comm lane in a step (ms).
    pub comm_ms: f64,
    /// Exposed communication in a step (ms).
    pub exposed_ms: f64,
    /// Overlap (%); `None` without communication.
    pub overlap_pct: Option<f64>,
    pub split: Split,
    /// TPOT of plain `standard` divided by this TPOT.
    pub speedup: Option<f64>,
    /// (standard - this) / (standard - upper-bound) in TPOT.
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
    pub(super) fn of(&self, spec: &Spec) -> Spec {
        Spec {
            architecture: self.architecture.clone(),
            micro_batches: self.micro_batches,
            ..spec.clone()
        }
    }

    /// Number by name, formatted with the decimals of its measure.
    pub fn shown(&self, name: &str) -> Shown {
        let number = self.numbers.as_ref().ok().and_then(|numbers| numbers.of(name));
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

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub variant: Variant,
    /// Cell with all slider changes.
    pub spec: Spec,
    pub profile_values: ProfileValues,
    /// Link with all slider changes; `None` for one rank, or if the link has no times at this TP.
    pub link: Option<CellLink>,
    /// All architectures, including the chosen one. If the variant's batch is not split but can be, also
    /// `standard` in two micro-batches: the rival that needs no new model.
    pub rows: Vec<Row>,
    /// `standard`, then the chosen architecture if it differs.
    pub strips: Vec<Strip>,
    /// `standard`, the chosen architecture, `upper-bound`.
    pub frontiers: Vec<Frontier>,
    pub arguments: Vec<String>,
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
        row.of(&self.spec).architecture_label()
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
            let (less, numbers) = (less_work(&row.of(&self.spec))?, row.numbers.as_ref().ok()?);
            let is_ahead = limit / numbers.tpot_ms > 1.0 + LEAST_DIFFERENCE;
            let is_choice = row.architecture != Architecture::UpperBound;
            (is_ahead && is_choice).then(|| (self.label(row), less, numbers.tpot_ms))
        };
        let beaten = self.rows.iter().filter_map(beats);
        let (label, less, tpot_ms) = beaten.min_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(no_limit(&label, less, [tpot_ms, limit], ""))
    }

    pub fn chosen(&self) -> Option<&Numbers> {
        self.row(&self.spec.architecture)?.numbers.as_ref().ok()
    }
}
