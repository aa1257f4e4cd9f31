//! Noise: measured cells spoilt by a busy machine. Three signs: `upper-bound` slower than `standard`, widely varying
//! rounds, and more load than the machine has cores for.
//!
//! Simulations have no noise. [`inconclusive`] decides whether noise explains the differences of measured pairs.

use std::collections::{BTreeMap, HashMap};

use super::compare::{Axis, CellMatching, Flag, FlagKind, Pair, PooledCell};
use super::{Cells, Comparison, ComparisonReport, PairVerdict, Side, Varied};
use base::statistics::{extent, median};
use base::text::{counted, digits};
use run::sim::LINK_WARNING;
use table::{CellRuns, Link, P2p, Provenance, Record, Sample, Spec, completion_ms, host, limit};

/// Smallest lead of `standard` over `upper-bound` reported as noise, as a share of throughput: `upper-bound` does the
/// same work without communication and cannot be slower.
const NOISE: f64 = 0.02;

/// Ratio of `upper-bound` to `standard` below which it is noise even if the interval includes 1: such rounds vary by more
/// than the architectures differ.
const FAR_BELOW: f64 = 0.9;

/// Ratio of the slowest to the fastest round above which a cell varies widely.
const WIDE: f64 = 1.3;

/// Ratio of load to max(cores, 2 x TP) above which runs compete for cores.
const BUSY: f64 = 1.5;

/// Reasons why measured cells are noisy, by cell key and machine.
#[derive(Debug, Default)]
pub(super) struct Noise(HashMap<(String, Option<String>), String>);

impl Noise {
    /// Noisy cells of these runs, each with its main reason.
    pub fn from_records(records: &[Record]) -> Self {
        let mut machines: BTreeMap<Option<String>, Vec<Record>> = BTreeMap::new();
        for record in records.iter().filter(|r| r.provenance != Provenance::Simulated) {
            machines.entry(host(record)).or_default().push(record.clone());
        }
        let mut noise = Self::default();
        for (host, records) in machines {
            let mut add = |spec: &Spec, why: &str| {
                noise.0.entry((spec.key(), host.clone())).or_insert_with(|| why.to_owned());
            };
            for wide in wide_rounds(&records) {
                add(&wide.spec, &format!("its rounds vary from {}", wide.words()));
            }
            if let Ok(report) = Cells::from_records(&records).compare(&Axis::ARCHITECTURE, None) {
                for pair in slow_limits(&report) {
                    let why = format!("upper-bound has {:.2}x the tokens/s of standard", pair.speedup);
                    add(&pair.side.spec, &why);
                    add(&pair.baseline_side.spec, &why);
                }
            }
            if let Some(load) = overload(&records) {
                records.iter().for_each(|record| add(&record.spec, &load));
            }
        }
        noise
    }

    pub fn why(&self, record: &Record) -> Option<&str> {
        self.0.get(&(record.spec.key(), host(record))).map(String::as_str)
    }
}

/// Pairs in which a plain `upper-bound` is slower than a plain `standard`: far slower, or with the whole interval below 1
/// if there is one. Excludes micro-batches, which read the weights twice and can make the bound slower.
fn slow_limits(report: &ComparisonReport) -> impl Iterator<Item = &Comparison> {
    let plain = |pair: &&Comparison| {
        (limit(&pair.baseline_side.spec), limit(&pair.side.spec)) == (Some(0), Some(1))
    };
    let surely = |pair: &&Comparison| {
        pair.speedup < FAR_BELOW || pair.speedup_ci95.is_none_or(|[_, most]| most < 1.0)
    };
    let slower = report.pairs.iter().filter(plain).filter(|pair| pair.speedup < 1.0 - NOISE);
    slower.filter(surely).filter(|pair| !is_measured_apart(pair))
}

/// True if too few rounds of a pair were measured side by side to compare it.
pub fn is_measured_apart(pair: &Comparison) -> bool {
    pair.rounds_apart > 0 && pair.verdict == PairVerdict::Unknown
}

/// Mean decode step of a sample (ms); its latency if it decodes nothing.
pub(super) fn mean_step_ms(spec: &Spec, sample: &Sample) -> f64 {
    match spec.output_tokens {
        0 | 1 => completion_ms(sample),
        tokens => sample.decode_ms / f64::from(tokens - 1),
    }
}

/// Range of a cell's rounds; `of_cell` and `of_side` only return ranges of 1.3x and more.
#[derive(Clone, Debug)]
pub struct WideRounds {
    pub spec: Spec,
    /// Mean decode step of the fastest round and of the slowest one; of a prefill alone, its latency.
    pub least_ms: f64,
    pub most_ms: f64,
}

impl WideRounds {
    /// Range of a cell's rounds; `None` if they vary less.
    pub fn of_cell(cell: &CellRuns<'_>) -> Option<Self> {
        let spec = cell.ok().next()?.spec.clone();
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for run in cell.ok() {
            let steps_ms = run.samples.iter().map(|sample| mean_step_ms(&spec, sample));
            rounds.entry(run.round).or_default().extend(steps_ms);
        }
        let [least_ms, most_ms] = extent(rounds.values().filter_map(|steps_ms| median(steps_ms)))?;
        Some(Self { spec, least_ms, most_ms }).filter(Self::is_wide)
    }

    /// Range of the rounds in which a side is compared; `None` if they vary less.
    pub(crate) fn of_side(side: &Side) -> Option<Self> {
        let [least_ms, most_ms] = side.rounds_ms?;
        Some(Self { spec: side.spec.clone(), least_ms, most_ms }).filter(Self::is_wide)
    }

    fn is_wide(&self) -> bool {
        self.least_ms > 0.0 && self.ratio() >= WIDE
    }

    /// Slowest round over the fastest.
    pub fn ratio(&self) -> f64 {
        self.most_ms / self.least_ms
    }

    /// Range with its ratio: `21.0 to 39.0 ms per step with stalls (1.86x)`. A TPOT, the median step, varies less.
    pub fn words(&self) -> String {
        let unit = if self.spec.output_tokens > 1 {
            "ms per step with stalls"
        } else {
            "ms to the first token"
        };
        let [least, most] = [self.least_ms, self.most_ms].map(digits);
        format!("{least} to {most} {unit} ({:.2}x)", self.ratio())
    }
}

/// Cells whose rounds vary widely, the widest first.
pub fn wide_rounds(records: &[Record]) -> Vec<WideRounds> {
    let mut wide: Vec<WideRounds> =
        CellRuns::group(records).iter().filter_map(WideRounds::of_cell).collect();
    wide.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    wide
}

/// Load at the start of CPU runs, if it exceeds what the cores can bear.
pub fn overload(records: &[Record]) -> Option<String> {
    let load = median(&records.iter().filter_map(load_of).collect::<Vec<f64>>())?;
    // earlier runs of a sweep are load for later ones, so the largest runs set the limit
    let on_cpus = records.iter().filter(|record| load_of(record).is_some());
    let bearable =
        on_cpus.filter_map(|run| Some(most_load(cores(run)?, run.spec.tp))).fold(0.0, f64::max);
    load_words(records).filter(|_| load > bearable).map(|words| format!("overloaded, {words}"))
}

/// Range of the load at the start of CPU runs: `load 7.5 on 2 cores`, `load 1.0 to 5.0 on 2 cores`; `None` if no run
/// recorded it.
pub(crate) fn load_words(records: &[Record]) -> Option<String> {
    let [least, most] = extent(records.iter().filter_map(load_of))?;
    let [least, most] = [least, most].map(|load| format!("{load:.1}"));
    let range = if least == most { least } else { format!("{least} to {most}") };
    let on_cpus = records.iter().filter(|record| load_of(record).is_some());
    Some(format!("load {range} on {}", counted(on_cpus.filter_map(cores).max()?, "core")))
}

/// True if a CPU run came from an unoptimized build.
pub(crate) fn is_of_debug_build(record: &Record) -> bool {
    record.spec.backend.computes_on_cores()
        && record.environment.get("build").is_some_and(|build| build.as_str() == Some("debug"))
}

/// One-minute load average when a CPU run began.
fn load_of(record: &Record) -> Option<f64> {
    let load = record.environment.get("load_average")?.get(0)?.as_f64();
    load.filter(|_| record.spec.backend.computes_on_cores() && cores(record).is_some())
}

/// Load up to which a run still gets its cores; counts the preceding runs, with one thread per lane.
fn most_load(cores: usize, tp: u32) -> f64 {
    BUSY * (cores as f64).max(2.0 * f64::from(tp))
}

/// Warning that a sweep started at this load is noisy; `None` if nothing of it runs on cores.
pub fn noise_forecast<'a>(load: f64, specs: impl Iterator<Item = &'a Spec>) -> Option<String> {
    let tp = specs.filter(|spec| spec.backend.computes_on_cores()).map(|spec| spec.tp).max()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let text = || format!("load {load:.1} on {}: results will be noisy", counted(cores, "core"));
    (load > most_load(cores, tp)).then(text)
}

/// Threads of the machine: the load average covers all of them, even if a run was pinned to some.
fn cores(record: &Record) -> Option<usize> {
    usize::try_from(record.environment.get("cpu")?.get("threads")?.as_u64()?).ok()
}

/// Warnings for these cells: higher TP slower than lower, `upper-bound` that changes with P2P, and the warnings of
/// their own runs.
pub(super) fn flags(cells: &[PooledCell]) -> Vec<Flag> {
    let specs = cells.iter().map(|cell| &cell.record.spec);
    let named = Varied::from_specs(specs.clone()).model_last(specs);
    let mut flags = slower_with_more_ranks(cells, &named);
    flags.extend(upper_bound_that_p2p_changes(cells, &named));
    for cell in cells {
        flags.extend(cell.record.warnings.iter().map(|warning| {
            let is_extrapolation = warning.starts_with(LINK_WARNING);
            let kind = if is_extrapolation { FlagKind::Extrapolation } else { FlagKind::Other };
            let text = format!("{}: {warning}", words(&named, &cell.record.spec));
            Flag { kind, ..Flag::new([cell], text) }
        }));
    }
    flags
}

/// Settings in which a cell differs from the others; all of them if it is alone.
fn words(named: &Varied, spec: &Spec) -> String {
    Some(named.words(spec)).filter(|words| !words.is_empty()).unwrap_or_else(|| spec.label())
}

/// Compares neighbouring TPs: more ranks are suspicious if they are slower by more than their exposed communication
/// grows. Measurements without an interval are reported too, marked as uncertain.
fn slower_with_more_ranks(cells: &[PooledCell], named: &Varied) -> Vec<Flag> {
    let matching = CellMatching::new(cells, &Axis::TP, None);
    let named = named.without(&Axis::TP);
    let mut flags = Vec::new();
    for group in matching.groups() {
        let mut group = group.clone();
        group.sort_by_key(|cell| cell.record.spec.tp);
        for pair in group.windows(2).map(|w| Pair::new(w[0], w[1])) {
            let ratio = pair.ratio();
            let (low, high) = (&pair.baseline.record, &pair.other.record);
            let unsure = ratio.ci95.is_none() && !ratio.exact;
            if low.spec.tp < high.spec.tp
                && ratio.speedup < 1.0
                && (ratio.differs || unsure)
                && !is_communication(low, high)
            {
                let text = format!(
                    "{}: TP {} is slower than TP {} ({:.2}x the tokens/s){}",
                    words(&named, &high.spec),
                    high.spec.tp,
                    low.spec.tp,
                    ratio.speedup,
                    if unsure { " (too few samples for an interval)" } else { "" }
                );
                flags.push(Flag::new([pair.baseline, pair.other], text));
            }
        }
    }
    flags
}

/// True if the exposed communication of the second cell explains that its steps take longer than the first one's.
fn is_communication(low: &Record, high: &Record) -> bool {
    let step = |record: &Record| record.metrics.as_ref().map(|metrics| metrics.tpot_ms.p50);
    let exposed = |record: &Record| {
        let steps = f64::from(record.spec.output_tokens.saturating_sub(1).max(1));
        record.overlap.as_ref().map(|overlap| overlap.exposed_comm_ms / steps)
    };
    let grown = |of: &dyn Fn(&Record) -> Option<f64>| Some(of(high)? - of(low)?);
    grown(&step).zip(grown(&exposed)).is_some_and(|(step, exposed)| step <= exposed)
}

/// `upper-bound` does not communicate, so P2P cannot affect it; if it differs, the two cells ran under different
/// conditions.
fn upper_bound_that_p2p_changes(cells: &[PooledCell], named: &Varied) -> Vec<Flag> {
    let matching = CellMatching::new(cells, &Axis::P2P, None);
    let named = named.without(&Axis::P2P);
    let pairs = matching.pairs().into_iter();
    let bounds = pairs.filter(|pair| pair.other.record.spec.architecture.is_limit());
    bounds
        .map(|pair| (pair, pair.ratio()))
        .filter(|(_, ratio)| ratio.differs)
        .map(|(pair, ratio)| {
            let text = format!(
                "{}: differs between P2P on and off ({:.3} x), though it does not communicate: were \
                 conditions the same?",
                words(&named, &pair.other.record.spec),
                ratio.speedup
            );
            let kind = FlagKind::UnequalLimits;
            Flag { kind, ..Flag::new([pair.baseline, pair.other], text) }
        })
        .collect()
}

/// Smallest lead without P2P over the same cell with it, as a ratio, that only noise can explain: an architecture that
/// hides all communication is as fast on both links.
const IMPOSSIBLE: f64 = 1.05;

/// Reason that measured pairs decide nothing; `None` for simulations, and if the differences exceed the noise.
pub(crate) fn inconclusive(report: &ComparisonReport) -> Option<String> {
    if report.pairs.iter().any(|pair| pair.provenance == Provenance::Simulated) {
        return None;
    }
    let slow_limit = slow_limit(report, |worst| ["upper-bound".to_owned(), worst.baseline.clone()]);
    slow_limit.or_else(|| faster_without_p2p(report)).or_else(|| varying_rounds(report))
}

/// Pair in which `upper-bound` falls furthest behind `standard`; `named` gives the names of these two.
pub(crate) fn slow_limit(
    report: &ComparisonReport,
    named: impl Fn(&Comparison) -> [String; 2],
) -> Option<String> {
    let worst = slow_limits(report).min_by(|a, b| a.speedup.total_cmp(&b.speedup))?;
    let [limit, standard] = named(worst);
    let speedup = worst.speedup;
    Some(format!(
        "{limit} has {speedup:.2}x the tokens/s of {standard}, although it does not communicate"
    ))
}

fn sides(report: &ComparisonReport) -> impl Iterator<Item = &Side> {
    report.pairs.iter().flat_map(|pair| [&pair.baseline_side, &pair.side])
}

/// Cell that is faster without P2P than with it, on links of which the one without P2P is no better.
fn faster_without_p2p(report: &ComparisonReport) -> Option<String> {
    let mut cells: BTreeMap<String, [Vec<&Side>; 2]> = BTreeMap::new();
    for side in sides(report).filter(|side| side.spec.tp > 1 && !side.spec.architecture.is_limit()) {
        let mut spec = side.spec.clone();
        (spec.p2p, spec.link) = (P2p::On, Link::Native);
        spec.env.retain(|name, _| !name.starts_with("NCCL_P2P_"));
        cells.entry(spec.key()).or_default()[usize::from(side.spec.p2p == P2p::Off)].push(side);
    }
    let no_better = |on: &Side, off: &Side| match (on.spec.link, off.spec.link) {
        (Link::Emulated { alpha_us, gb_s }, Link::Emulated { alpha_us: late, gb_s: narrow }) => {
            late >= alpha_us && narrow <= gb_s
        }
        (on, off) => on == off,
    };
    let both = cells
        .values()
        .flat_map(|[on, off]| on.iter().flat_map(move |on| off.iter().map(move |off| (*on, *off))));
    let ratio = |(on, off): &(&Side, &Side)| on.decode_ms / off.decode_ms;
    // intervals that overlap show no difference to explain
    let is_significant = |on: &Side, off: &Side| match (on.tpot_ms_ci95, off.tpot_ms_ci95) {
        (Some([low, _]), Some([_, high])) => low > high,
        _ => true,
    };
    let worst = both
        .filter(|(on, off)| no_better(on, off) && is_significant(on, off))
        .max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
        .filter(|both| ratio(both) > IMPOSSIBLE)?;
    Some(format!(
        "{} decodes faster without P2P than with it, on a link that is no faster",
        worst.0.spec.architecture_label()
    ))
}

/// Rounds of one cell that vary by more than the largest lead, where no lead is significant.
fn varying_rounds(report: &ComparisonReport) -> Option<String> {
    let choices = || report.pairs.iter().filter(|pair| !pair.is_limit() && !is_measured_apart(pair));
    if choices().any(|pair| matches!(pair.verdict, PairVerdict::Faster | PairVerdict::Slower)) {
        return None;
    }
    let lead = |pair: &Comparison| pair.speedup.max(1.0 / pair.speedup) - 1.0;
    let (rival, lead) = choices().map(|pair| (pair, lead(pair))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let ranges = sides(report).filter_map(|side| {
        let [least_ms, most_ms] = side.all_rounds_ms?;
        Some(WideRounds { spec: side.spec.clone(), least_ms, most_ms })
    });
    let widest = ranges.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))?;
    (widest.ratio() - 1.0 > lead).then(|| {
        format!(
            "rounds of {} vary by {:.2}x, choices differ from {} by {:.2}x at most",
            widest.spec.architecture_label(),
            widest.ratio(),
            rival.baseline,
            1.0 + lead
        )
    })
}
