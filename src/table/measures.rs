//! List of all measures: every number that a run yields or that several runs determine.
//!
//! Each line of [`MEASURES`] provides the number's lines in `show`, its columns in run tables, CSV and
//! batch files, its name in filters and sorting, its Pareto axis, its values in `compare`, and its cells
//! on screen. To add a measure, add a key to [`Metrics`](super::Metrics) or [`Overlap`](super::Overlap),
//! fill it, and add a line here.

use serde::{Serialize, Serializer};

use base::text::same_name;

use super::render::Shown;
use super::{Record, Unit, hidden_shares};

/// Direction in which a measure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Less,
    More,
    /// Descriptive; neither direction is better.
    Neither,
}

/// Subject of a measure, and its heading in `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureScope {
    /// Timed generations of a run: medians over samples.
    Run,
    /// Lanes of a rank in the decode phase of one sample, averaged over ranks.
    Lanes,
    /// The run compared with matching runs.
    Runs,
    /// Quality of the run's model on a text, from an evaluation rather than the run.
    Quality,
    /// Results of training the run's model, from `adapt` rather than the run.
    Training,
}

#[derive(Clone, Copy)]
enum Read {
    /// Key of the record; readable and writable.
    Key(fn(&Record) -> Option<f64>, fn(&mut Record, f64)),
    /// Computed from other numbers of the same record.
    Computed(fn(&Record) -> Option<f64>),
    OfAll(fn(&[&Record]) -> Vec<Option<f64>>),
}

#[derive(Clone, Copy)]
pub struct IntervalColumns {
    /// Column names of the lower and the upper bound, if they are columns.
    pub names: Option<[&'static str; 2]>,
    get: fn(&Record) -> Option<[f64; 2]>,
}

/// Measure of runs, with its names, unit and accessor.
#[derive(Clone, Copy)]
pub struct Measure {
    /// Key in files and on the command line, including the unit.
    pub name: &'static str,
    /// Shorter names; the first is the preferred one. Batches of earlier versions name their columns by aliases, too
    /// ([`super::frame`]): never give another measure an alias that is free again.
    pub aliases: &'static [&'static str],
    /// Column header, with the unit if it is not obvious.
    pub title: &'static str,
    /// Description without the unit.
    pub words: &'static str,
    /// Unit, which decides the number format.
    pub unit: Unit,
    /// Decimals in command-line tables.
    pub decimals: usize,
    pub better: Better,
    pub scope: MeasureScope,
    /// True for a percentile over all steps of a run, which samples one by one do not determine.
    pub is_tail: bool,
    pub interval: Option<IntervalColumns>,
    read: Read,
}

impl std::fmt::Debug for Measure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Measure {}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl Measure {
    const fn new(
        name: &'static str,
        aliases: &'static [&'static str],
        title: &'static str,
        words: &'static str,
        (unit, better, scope): (Unit, Better, MeasureScope),
        read: Read,
    ) -> Self {
        let decimals = unit.decimals();
        let (is_tail, interval) = (false, None);
        Self { name, aliases, title, words, unit, decimals, better, scope, is_tail, interval, read }
    }

    const fn tail(self) -> Self {
        Self { is_tail: true, ..self }
    }

    const fn decimals(self, decimals: usize) -> Self {
        Self { decimals, ..self }
    }

    const fn interval(
        self,
        names: Option<[&'static str; 2]>,
        get: fn(&Record) -> Option<[f64; 2]>,
    ) -> Self {
        Self { interval: Some(IntervalColumns { names, get }), ..self }
    }

    /// True if `name` is the measure's name or alias, ignoring case.
    pub fn is(&self, name: &str) -> bool {
        same_name(self.name, name) || self.aliases.iter().any(|alias| same_name(alias, name))
    }

    /// Value in a record; `None` if the run has none or if it depends on other runs.
    pub fn of(&self, record: &Record) -> Option<f64> {
        match self.read {
            Read::Key(get, _) | Read::Computed(get) => get(record),
            Read::OfAll(_) => None,
        }
    }

    pub fn of_all(&self, records: &[&Record]) -> Vec<Option<f64>> {
        match self.read {
            Read::Key(get, _) | Read::Computed(get) => {
                records.iter().map(|record| get(record)).collect()
            }
            Read::OfAll(get) => get(records),
        }
    }

    /// Writes the value into a record. Returns false for computed measures, which are not stored.
    pub fn set(&self, record: &mut Record, value: f64) -> bool {
        match self.read {
            Read::Key(_, set) => {
                set(record, value);
                true
            }
            _ => false,
        }
    }

    /// True if the measure is stored in records and files.
    pub fn is_key(&self) -> bool {
        matches!(self.read, Read::Key(..))
    }

    /// 95 % interval in a record; `None` for simulations and with too few samples.
    pub fn interval_of(&self, record: &Record) -> Option<[f64; 2]> {
        self.interval.and_then(|interval| (interval.get)(record))
    }

    /// Value and interval as a table cell.
    pub fn shown(&self, record: &Record) -> Shown {
        match self.of(record) {
            Some(value) if self.unit.is_whole() => Shown::Whole(value as u64),
            value => Shown::interval(value, self.interval_of(record), self.decimals),
        }
    }

    /// Value with unit, as text: `27.72 ms`, `17.72 s`.
    pub fn amount(&self, value: f64) -> String {
        let (scale, unit) = self.scale_for(value);
        let value = value * scale;
        let decimals = base::text::decimals(value, self.decimals);
        match self.unit {
            Unit::Bytes => self.unit.cell(value),
            _ => format!("{value:.decimals$} {unit}").trim_end().to_owned(),
        }
    }

    /// Factor and symbol of the unit in which people read a value of this size.
    fn scale_for(&self, value: f64) -> (f64, &'static str) {
        match self.unit {
            Unit::Ms if value.abs() >= 1e3 => (1e-3, "s"),
            unit => (1.0, unit.symbol()),
        }
    }

    /// Value and interval with unit: `27.72 ms [27.51, 27.94]`.
    pub fn amount_with_interval(&self, record: &Record) -> Option<String> {
        let value = self.of(record)?;
        let (scale, _) = self.scale_for(value);
        let decimals = base::text::decimals(value * scale, self.decimals);
        let number = self.amount(value);
        let ends = self.interval_of(record).map(|ends| ends.map(|end| end * scale));
        let ends = ends.map(|[low, high]| format!(" [{low:.decimals$}, {high:.decimals$}]"));
        Some(number + &ends.unwrap_or_default())
    }

    /// Value with unit, in the digits of a screen's list: `27.7 ms`, `17.7 s`.
    pub fn cell(&self, value: f64) -> String {
        let (scale, unit) = self.scale_for(value);
        let unit = if matches!(self.unit, Unit::Ms | Unit::Nats) { unit } else { "" };
        format!("{} {unit}", self.unit.cell(value * scale)).trim_end().to_owned()
    }

    /// Like [`Self::cell`], with the interval: `27.7 ms [27.5, 27.9]`.
    pub fn cell_with_interval(&self, record: &Record) -> Option<String> {
        let value = self.of(record)?;
        let (scale, _) = self.scale_for(value);
        let ends = self.interval_of(record).map(|ends| ends.map(|end| self.unit.cell(end * scale)));
        let ends = ends.map(|[low, high]| format!(" [{low}, {high}]"));
        Some(self.cell(value) + &ends.unwrap_or_default())
    }

    /// Axis label with unit: `completion latency (ms)`.
    pub fn axis_title(&self) -> String {
        match self.unit.symbol() {
            "" => self.words.to_owned(),
            unit => format!("{} ({unit})", self.words),
        }
    }
}

impl IntervalColumns {
    pub fn of(&self, record: &Record) -> Option<[f64; 2]> {
        (self.get)(record)
    }
}

/// Looks up a measure by name or alias.
pub fn measure(name: &str) -> Option<&'static Measure> {
    MEASURES.iter().find(|measure| measure.is(name))
}

/// Number stored in a record.
trait StoredNumber {
    fn read(&self) -> Option<f64>;
    fn write(&mut self, value: f64);
}

macro_rules! kept {
    ($($number:ty),*) => {$(
        impl StoredNumber for $number {
            fn read(&self) -> Option<f64> {
                Some(*self as f64)
            }
            fn write(&mut self, value: f64) {
                *self = value as Self;
            }
        }
    )*};
}
kept!(f64, u32, u64);

impl StoredNumber for Option<f64> {
    fn read(&self) -> Option<f64> {
        *self
    }
    fn write(&mut self, value: f64) {
        *self = Some(value);
    }
}

/// Accessor of a key in the record's `metrics`.
macro_rules! metric {
    ($key:ident) => {
        Read::Key(
            |r| r.metrics.as_ref().and_then(|m| m.$key.read()),
            |r, value| r.metrics.get_or_insert_default().$key.write(value),
        )
    };
}

/// Accessor of a TPOT percentile; absent if no token was decoded (the record then holds 0).
macro_rules! tpot {
    ($percentile:ident) => {
        Read::Key(
            |r| r.metrics.as_ref().map(|m| m.tpot_ms.$percentile).filter(|ms| *ms > 0.0),
            |r, ms| r.metrics.get_or_insert_default().tpot_ms.$percentile = ms,
        )
    };
}

/// Measure of model quality: a mean over the tokens of a text, with interval bounds.
macro_rules! quality {
    ($name:literal, $aliases:expr, $title:literal, $words:literal, $unit:ident, $better:ident, $key:ident, $ci95:ident, $ends:expr) => {
        Measure::new(
            $name,
            $aliases,
            $title,
            $words,
            (Unit::$unit, Better::$better, MeasureScope::Quality),
            Read::Computed(|r| Some(r.quality.as_ref()?.quality.$key)),
        )
        .interval(Some($ends), |r| r.quality.as_ref()?.quality.$ci95)
    };
}

/// Accessor of a key in the record's `overlap`.
macro_rules! lane {
    ($key:ident) => {
        Read::Key(
            |r| r.overlap.as_ref().and_then(|o| o.$key.read()),
            |r, value| r.overlap.get_or_insert_default().$key.write(value),
        )
    };
}

/// Accessor of a key in the record's `overlap.split`.
macro_rules! split {
    ($key:ident) => {
        Read::Key(
            |r| r.overlap.as_ref().and_then(|o| o.split.as_ref()?.$key.read()),
            |r, value| {
                let overlap = r.overlap.get_or_insert_default();
                overlap.split.get_or_insert_default().$key.write(value);
            },
        )
    };
}

use self::MeasureScope::{Lanes, Run, Runs};
use Better::{Less, More, Neither};
use Unit::{Bytes, Count, Factor, Ms, Percent, Rate, Share};

/// All measures, in CSV order: name, aliases, title, description, kind, accessor.
#[rustfmt::skip]
pub static MEASURES: &[Measure] = &[
    Measure::new("samples_done", &["done"], "done", "samples", (Count, Neither, Run), metric!(samples)),
    Measure::new("prefill_ms", &["ttft", "ttft_ms", "prefill"], "TTFT ms", "TTFT", (Ms, Less, Run), metric!(prefill_ms)),
    Measure::new("decode_ms", &["decode"], "decode ms", "decode latency", (Ms, Less, Run), metric!(decode_ms)),
    Measure::new("completion_ms", &["completion", "latency"], "compl. ms", "completion latency", (Ms, Less, Run), metric!(completion_ms))
        .decimals(2)
        .interval(None, |r| {
            // throughput is tokens over this latency, so one interval follows from the other
            let [low, high] = r.metrics.as_ref()?.tokens_per_s_ci95.filter(|[low, _]| *low > 0.0)?;
            let tokens = f64::from(r.spec.batch) * f64::from(r.spec.output_tokens);
            Some([tokens * 1e3 / high, tokens * 1e3 / low])
        }),
    Measure::new("tpot_p50_ms", &["tpot", "tpot_ms", "itl"], "TPOT ms", "TPOT", (Ms, Less, Run), tpot!(p50))
        .interval(Some(["tpot_ci95_low_ms", "tpot_ci95_high_ms"]), |r| r.metrics.as_ref()?.tpot_ms_ci95),
    Measure::new("tpot_p90_ms", &["p90"], "p90 ms", "TPOT p90", (Ms, Less, Run), tpot!(p90)).tail(),
    Measure::new("tpot_p99_ms", &["p99"], "p99 ms", "TPOT p99", (Ms, Less, Run), tpot!(p99)).tail(),
    Measure::new("tokens_per_s", &["tok/s", "total"], "tok/s", "tokens/s", (Rate, More, Run), metric!(tokens_per_s))
        .interval(Some(["tokens_per_s_ci95_low", "tokens_per_s_ci95_high"]), |r| {
            r.metrics.as_ref()?.tokens_per_s_ci95
        }),
    Measure::new("tokens_per_s_per_gpu", &["tok/s/gpu", "per-gpu"], "tok/s/GPU", "tokens/s/GPU", (Rate, More, Run), metric!(tokens_per_s_per_gpu))
        .interval(None, |r| {
            let gpus = f64::from(r.spec.ranks());
            r.metrics.as_ref()?.tokens_per_s_ci95.map(|ci| ci.map(|end| end / gpus))
        }),
    Measure::new(
        "tokens_per_s_per_user",
        &["tok/s/user", "user"],
        "tok/s/user",
        "tokens/s/user",
        (Rate, More, Run),
        Read::Computed(|r| Some(1e3 / r.metrics.as_ref()?.tpot_ms.p50).filter(|v| v.is_finite())),
    )
        .interval(None, |r| {
            let [low, high] = r.metrics.as_ref()?.tpot_ms_ci95.filter(|[low, _]| *low > 0.0)?;
            Some([1e3 / high, 1e3 / low])
        }),
    Measure::new("memory_bytes_per_rank", &["memory", "mem"], "memory", "memory per rank", (Bytes, Less, Run), metric!(memory_bytes_per_rank)),
    Measure::new("comm_ms", &["comm"], "comm ms", "communication", (Ms, Less, Lanes), lane!(comm_ms)),
    Measure::new("exposed_comm_ms", &["exposed_ms"], "exposed ms", "exposed communication", (Ms, Less, Lanes), lane!(exposed_comm_ms)),
    Measure::new(
        "exposed_pct",
        &["exposed"],
        "exposed %",
        "exposed share of decode",
        (Percent, Less, Lanes),
        Read::Computed(|r| r.overlap.as_ref()?.exposed_pct()),
    ),
    Measure::new("overlap_pct", &["overlap", "hidden"], "overlap", "overlap", (Percent, More, Lanes), lane!(overlap_pct)),
    Measure::new("compute_ms", &["compute"], "compute ms", "compute time", (Ms, Less, Lanes), lane!(compute_ms)),
    Measure::new("idle_ms", &["idle"], "idle ms", "idle time", (Ms, Less, Lanes), lane!(idle_ms)),
    Measure::new("work_ms", &["work"], "work ms", "compute without contention", (Ms, Less, Lanes), split!(work_ms)),
    Measure::new("contention_ms", &["contention"], "contention", "contention", (Ms, Less, Lanes), split!(contention_ms)),
    // after `work_ms`: a batch is read in this order, and the breakdown of a simulation has its wait for peers
    Measure::new(
        "peer_wait_ms",
        &["peers"],
        "peers ms",
        "waiting for peers",
        (Ms, Less, Lanes),
        Read::Key(
            |r| r.overlap.as_ref()?.peer_wait_ms(),
            |r, ms| r.overlap.get_or_insert_default().set_peer_wait_ms(ms),
        ),
    ),
    Measure::new("transfer_ms", &["transfer"], "transfer", "exposed transfer", (Ms, Less, Lanes), split!(transfer_ms)),
    Measure::new(
        "overhead",
        &[],
        "overhead",
        "timing overhead",
        (Factor, Less, Run),
        Read::Computed(|r| r.instrumented.as_ref()?.overhead),
    )
        .interval(None, |r| r.instrumented.as_ref()?.overhead_ci95),
    Measure::new("hidden_share", &["gap", "gap_closed"], "gap closed", "gap closed", (Share, More, Runs), Read::OfAll(|records| hidden_shares(records))),
    quality!("nll", &[], "NLL", "negative log-likelihood", Nats, Less, nll, nll_ci95, ["nll_ci95_low", "nll_ci95_high"]),
    quality!("perplexity", &["ppl"], "perplexity", "perplexity", Factor, Less, perplexity, perplexity_ci95, ["perplexity_ci95_low", "perplexity_ci95_high"]),
    quality!("kl", &["divergence"], "KL", "KL from standard per token", Nats, Less, kl, kl_ci95, ["kl_ci95_low", "kl_ci95_high"]),
    quality!("agreement", &["agree"], "agreement", "agreement with standard", Share, More, agreement, agreement_ci95, ["agreement_ci95_low", "agreement_ci95_high"]),
    Measure::new("train_loss", &["loss"], "loss", "final training loss", (Unit::Nats, Less, MeasureScope::Training), Read::Computed(|r| Some(r.training.as_ref()?.loss)))
        .interval(Some(["train_loss_ci95_low", "train_loss_ci95_high"]), |r| r.training.as_ref()?.loss_ci95),
    Measure::new("trained_nll", &["held-out"], "trained NLL", "held-out NLL after training", (Unit::Nats, Less, MeasureScope::Training), Read::Computed(|r| r.training.as_ref()?.nll))
        .interval(Some(["trained_nll_ci95_low", "trained_nll_ci95_high"]), |r| r.training.as_ref()?.nll_ci95),
    Measure::new("trained_kl", &[], "trained KL", "KL from the unconverted model after training", (Unit::Nats, Less, MeasureScope::Training), Read::Computed(|r| r.training.as_ref()?.kl)),
    Measure::new("train_tokens_per_s", &["train-speed"], "train tok/s", "training tokens/s", (Rate, More, MeasureScope::Training), Read::Computed(|r| r.training.as_ref()?.tokens_per_s)),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::record;

    #[test]
    fn names_mean_one_measure_and_what_is_written_is_read() {
        let mut seen = BTreeSet::new();
        for measure in MEASURES {
            for name in std::iter::once(&measure.name).chain(measure.aliases) {
                assert!(seen.insert(name.to_lowercase()), "{name} means two measures");
            }
            let mut record = record("a", |_| (), 0, &[(1.0, 2.0)]);
            (record.metrics, record.overlap) = (None, None);
            assert_eq!(measure.of(&record), None, "{}", measure.name);
            if measure.set(&mut record, 7.0) {
                assert_eq!(measure.of(&record), Some(7.0), "{}", measure.name);
            }
        }
    }

    #[test]
    fn the_wait_for_peers_is_one_measure_of_runs_and_of_simulations() {
        let peers = measure("peers").unwrap();
        let mut record = record("a", |_| (), 0, &[(1.0, 2.0)]);
        record.overlap = Some(crate::Overlap { peer_wait_ms: Some(1.5), ..Default::default() });
        assert_eq!(peers.of(&record), Some(1.5));
        record.overlap = None;
        for name in ["work", "peers", "transfer"] {
            measure(name).unwrap().set(&mut record, 7.0);
        }
        let overlap = record.overlap.unwrap();
        assert_eq!((overlap.split.unwrap().peer_wait_ms, overlap.peer_wait_ms), (7.0, None));
        assert_eq!(peers.of(&record), Some(7.0));
    }

    /// A tail has no interval of values per sample, see [`Measure::is_tail`].
    #[test]
    fn percentiles_above_the_median_are_tails() {
        for measure in MEASURES {
            let is_above =
                ["p75", "p90", "p95", "p99", "max"].iter().any(|tail| measure.name.contains(tail));
            assert_eq!(measure.is_tail, is_above, "{}", measure.name);
        }
    }

    #[test]
    fn what_decoded_nothing_has_no_time_of_a_token() {
        let record = record("a", |s| s.output_tokens = 1, 0, &[(1.0, 0.0)]);
        for name in ["tpot", "p90", "p99", "user"] {
            assert_eq!(measure(name).unwrap().of(&record), None, "{name}");
        }
        assert_eq!(measure("ttft").unwrap().of(&record), Some(1.0));
    }

    #[test]
    fn intervals_that_are_images_of_others_run_from_low_to_high() {
        let mut record = record("a", |s| s.tp = 4, 0, &[(1.0, 2.0)]);
        let metrics = record.metrics.as_mut().unwrap();
        (metrics.tokens_per_s_ci95, metrics.tpot_ms_ci95) = (Some([10.0, 20.0]), Some([2.0, 4.0]));
        let of = |name| measure(name).unwrap().interval_of(&record).unwrap();
        assert_eq!(of("tok/s/gpu"), [2.5, 5.0]);
        assert_eq!(of("user"), [250.0, 500.0]);
        let [low, high] = of("latency");
        assert!(low < high, "{low} to {high}");
    }
}
