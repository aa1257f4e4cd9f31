//! Noise: measured cells spoilt by a busy machine. Three signs: `upper-bound` slower than `standard`, widely varying
//! rounds, and more load than the machine has cores for.
//!
//! Simulations have no noise.
//!
//! Warnings about a set of cells that do not depend on the comparison axis.

use std::collections::{BTreeMap, HashMap};

use super::compare::{Axis, Flag, Matching, Pair, PooledCell};
use super::{Cells, Comparison, ComparisonReport, Varied};
use base::statistics::median;
use base::text::counted;
use run::sim::LINK_WARNING;
use table::{CellRuns, Provenance, Record, Spec, host, limit};

/// Smallest lead of `standard` over `upper-bound` reported as noise, as a share of throughput: `upper-bound` does the
/// same work without communication and cannot be slower.
const NOISE: f64 = 0.02;

/// Ratio of the slowest to the fastest round above which a cell varies widely.
const WIDE: f64 = 1.3;

/// Ratio of load to max(cores, 2 x TP) above which runs compete for cores.
const BUSY: f64 = 1.5;

/// Reasons why measured cells are noisy, by cell key and machine.
#[derive(Debug, Default)]
pub(super) struct Noise(HashMap<(String, Option<String>), String>);

impl Noise {
    /// Noisy cells of these runs, each with its main reason.
    pub fn of(records: &[Record]) -> Self {
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
                add(&wide.spec, &format!("TPOT per round: {}", wide.words()));
            }
            if let Ok(report) = Cells::of(&records).compare(&Axis::ARCHITECTURE, None) {
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

/// Pairs in which a plain `upper-bound` is slower than a plain `standard`, with the whole interval below 1 if there is
/// one. Excludes micro-batches, which read the weights twice and can make the bound slower.
pub fn slow_limits(report: &ComparisonReport) -> impl Iterator<Item = &Comparison> {
    let plain = |pair: &&Comparison| {
        (limit(&pair.baseline_side.spec), limit(&pair.side.spec)) == (Some(0), Some(1))
    };
    let surely = |pair: &&Comparison| pair.speedup_ci95.is_none_or(|[_, most]| most < 1.0);
    report.pairs.iter().filter(plain).filter(|pair| pair.speedup < 1.0 - NOISE).filter(surely)
}

/// Cell whose slowest round takes at least 1.3 times as long as its fastest.
#[derive(Clone, Debug)]
pub struct WideRounds {
    pub spec: Spec,
    pub least_ms: f64,
    pub most_ms: f64,
}

impl WideRounds {
    /// Range as text: `21.00 to 39.00 ms per token`.
    pub fn words(&self) -> String {
        format!("{:.2} to {:.2} ms per token", self.least_ms, self.most_ms)
    }
}

/// Cells whose rounds vary widely, the widest first.
pub fn wide_rounds(records: &[Record]) -> Vec<WideRounds> {
    let spreads = CellRuns::group(records).into_iter().filter_map(|cell| {
        let spec = cell.ok().next()?.spec.clone();
        let steps = spec.output_tokens.saturating_sub(1).max(1);
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for run in cell.ok() {
            let decode_ms = run.samples.iter().map(|sample| sample.decode_ms);
            rounds.entry(run.round).or_default().extend(decode_ms);
        }
        let middles = rounds.values().filter_map(|decode_ms| median(decode_ms));
        let times: Vec<f64> = middles.map(|middle| middle / f64::from(steps)).collect();
        let least_ms = times.iter().copied().reduce(f64::min).filter(|least| *least > 0.0)?;
        let most_ms = times.iter().copied().reduce(f64::max)?;
        Some(WideRounds { spec, least_ms, most_ms })
    });
    let ratio = |wide: &WideRounds| wide.most_ms / wide.least_ms;
    let mut wide: Vec<WideRounds> = spreads.filter(|spread| ratio(spread) >= WIDE).collect();
    wide.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    wide
}

/// Load at the start of CPU runs, if it exceeds what the cores can bear.
pub fn overload(records: &[Record]) -> Option<String> {
    let load = median(&records.iter().filter_map(load_of).collect::<Vec<f64>>())?;
    // earlier runs of a sweep are load for later ones, so the largest runs set the limit
    let on_cpus = records.iter().filter(|record| load_of(record).is_some());
    let bearable = on_cpus.clone().filter_map(bearable).fold(0.0, f64::max);
    let cores = counted(on_cpus.filter_map(cores).max()?, "core");
    (load > bearable).then(|| format!("the load was {load:.1} on {cores}"))
}

/// One-minute load average when a CPU run began.
fn load_of(record: &Record) -> Option<f64> {
    let load = record.environment.get("load_average")?.get(0)?.as_f64();
    load.filter(|_| record.spec.backend.computes_on_cores() && cores(record).is_some())
}

/// Load up to which a run still gets its cores; counts the preceding runs, with one thread per lane.
fn bearable(record: &Record) -> Option<f64> {
    Some(most_load(cores(record)?, record.spec.tp))
}

fn most_load(cores: usize, tp: u32) -> f64 {
    BUSY * (cores as f64).max(2.0 * f64::from(tp))
}

/// Warning that a sweep started at this load would be noisy; `None` if nothing of it runs on cores.
pub fn noise_forecast<'a>(load: f64, specs: impl Iterator<Item = &'a Spec>) -> Option<String> {
    let tp = specs.filter(|spec| spec.backend.computes_on_cores()).map(|spec| spec.tp).max()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let text = || format!("load {load:.1} on {}: results would be noisy", counted(cores, "core"));
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
    let named = Varied::of(specs.clone()).model_last(specs);
    let mut flags = slower_with_more_ranks(cells, &named);
    flags.extend(upper_bound_that_p2p_changes(cells, &named));
    for cell in cells {
        flags.extend(cell.record.warnings.iter().map(|warning| Flag {
            is_extrapolation: warning.starts_with(LINK_WARNING),
            ..Flag::new([cell], format!("{}: {warning}", words(&named, &cell.record.spec)))
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
    let matching = Matching::new(cells, &Axis::TP, None);
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
    let matching = Matching::new(cells, &Axis::P2P, None);
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
            Flag::new([pair.baseline, pair.other], text)
        })
        .collect()
}
