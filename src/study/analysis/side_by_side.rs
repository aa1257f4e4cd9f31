//! Comparison of two runs: differing options, measures, the ratio of their throughputs, and warnings.
//!
//! Breakdown of the difference between two runs of matched cells: transfer, waiting, contention, extra work.

use std::collections::BTreeSet;

use serde::Serialize;

use super::compare::{Pair, PooledCell, parts};
use base::error::{Error, Result};
use base::text::{counted, digits};
use table::{CellRuns, MEASURES, Measure, Overlap, Provenance, Record, Spec, host, recorder};

/// Side of a comparison, as an index into the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedSide {
    /// This run alone.
    Run(usize),
    /// All rounds of this run's cell, pooled.
    Cell(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SideBySide {
    /// Run ids: baseline, other. A pooled cell has that of its last run.
    pub runs: [String; 2],
    /// Rounds that the measures are of: `3 rounds pooled`, `round 2 of 3`; empty for the only round of a cell.
    pub rounds: [String; 2],
    /// True for two runs of one cell, which have no ratio.
    pub is_same_cell: bool,
    pub provenance: [Provenance; 2],
    /// Options that differ: name and both values.
    pub differences: Vec<(&'static str, String, String)>,
    /// Number of options with the same value.
    pub equal: usize,
    pub measures: Vec<MeasureValues>,
    /// Source of the difference in decode latency, in a sentence; `None` without a recorded breakdown.
    pub why: Option<String>,
    /// Ratio of tokens/s to the baseline's, over all stored rounds of both cells; `None` if one has no metrics, or within a
    /// cell.
    pub speedup: Option<f64>,
    /// 95 % interval of the ratio; `None` with fewer than 6 samples or if one is simulated.
    pub speedup_ci95: Option<[f64; 2]>,
    /// True if the interval excludes 1; between simulations: if the ratio is not 1.
    pub differs: bool,
    /// Number of rounds that both cells have, used to pair samples.
    pub shared_rounds: usize,
    /// Reasons not to compare the two, one sentence each.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MeasureValues {
    pub measure: &'static Measure,
    /// Values: baseline, other.
    pub values: [Option<f64>; 2],
}

impl MeasureValues {
    /// Ratio to the baseline; `None` if a value is missing or the baseline is 0.
    pub fn ratio(&self) -> Option<f64> {
        let [a, b] = self.values;
        Some(b? / a?).filter(|ratio| ratio.is_finite())
    }
}

/// Compares runs or cells. Returns an error if an index has no record, because the run was deleted.
pub fn side_by_side(
    records: &[Record],
    baseline: ComparedSide,
    other: ComparedSide,
) -> Result<SideBySide> {
    let side = |side: ComparedSide| {
        let (ComparedSide::Run(at) | ComparedSide::Cell(at)) = side;
        let record = records.get(at)?;
        let key = record.spec.key();
        let same = |r: &&Record| r.spec.key() == key && host(r) == host(record);
        let cell = CellRuns::new(records.iter().filter(same).collect());
        let shown = match side {
            ComparedSide::Run(_) => record.clone(),
            ComparedSide::Cell(_) => cell.record()?,
        };
        Some((shown, rounds_of(side, record, &cell), PooledCell::new(&cell)))
    };
    let gone = || Error::failed("these runs are no longer stored");
    let (a, rounds_a, cell_a) = side(baseline).ok_or_else(gone)?;
    let (b, rounds_b, cell_b) = side(other).ok_or_else(gone)?;
    let is_same_cell = a.spec.key() == b.spec.key() && host(&a) == host(&b);
    let parts_of = |record: &Record| parts(&record.spec, host(record).as_deref());
    let pairs = parts_of(&a).into_iter().zip(parts_of(&b));
    let (differ, equal): (Vec<_>, Vec<_>) = pairs.partition(|(a, b)| a.1 != b.1);
    let differences: Vec<_> = differ.into_iter().map(|((name, a), (_, b))| (name, a, b)).collect();
    let have_ratio = a.has_numbers() && b.has_numbers() && !is_same_cell;
    let cells = if have_ratio { cell_a.zip(cell_b) } else { None };
    let ratio = cells.as_ref().map(|(a, b)| Pair::new(a, b).ratio());
    let shared_rounds = cells
        .as_ref()
        .map_or(0, |(a, b)| a.rounds.keys().filter(|round| b.rounds.contains_key(round)).count());
    Ok(SideBySide {
        runs: [a.run.clone(), b.run.clone()],
        rounds: [rounds_a, rounds_b],
        is_same_cell,
        provenance: [a.provenance, b.provenance],
        equal: equal.len(),
        measures: measures(&a, &b),
        why: why(&a, &b, &differences),
        speedup: ratio.map(|r| r.speedup),
        speedup_ci95: ratio.and_then(|r| r.ci95),
        differs: ratio.is_some_and(|r| r.differs),
        shared_rounds,
        warnings: warnings(&a, &b, &differences),
        differences,
    })
}

/// Rounds that a side's measures are of; empty for the only round of a cell.
fn rounds_of(side: ComparedSide, record: &Record, cell: &CellRuns<'_>) -> String {
    let rounds = cell.ok().map(|run| run.round).collect::<BTreeSet<u32>>().len();
    let is_counted = cell.runs.iter().any(|run| run.run == record.run);
    match side {
        ComparedSide::Cell(_) => format!("{} pooled", counted(rounds, "round")),
        ComparedSide::Run(_) if !is_counted => format!("round {}, repeated since", record.round + 1),
        ComparedSide::Run(_) if rounds > 1 => format!("round {} of {rounds}", record.round + 1),
        ComparedSide::Run(_) => String::new(),
    }
}

/// Measures that either run has; none if the timings of one are not evidence.
fn measures(a: &Record, b: &Record) -> Vec<MeasureValues> {
    if ![a, b].iter().all(|record| record.provenance.is_evidence()) {
        return Vec::new();
    }
    let both =
        |measure: &'static Measure| MeasureValues { measure, values: [a, b].map(|r| measure.of(r)) };
    MEASURES.iter().map(both).filter(|both| both.values != [None, None]).collect()
}

/// Sentence on the source of the difference; it names the two by their option if they differ in one.
fn why(a: &Record, b: &Record, differences: &[(&str, String, String)]) -> Option<String> {
    let [x, y] = [a.metrics.as_ref()?.decode_ms, b.metrics.as_ref()?.decode_ms];
    let x = Decoding { decode_ms: x, overlap: a.overlap.as_ref() };
    let y = Decoding { decode_ms: y, overlap: b.overlap.as_ref() };
    let names = match differences {
        [(_, first, second)] if !first.is_empty() && !second.is_empty() => {
            [second.as_str(), first.as_str()]
        }
        _ => ["the second", "the first"],
    };
    Some(Difference::new(y, x)?.sentence(names, rest_name([&a.spec, &b.spec])))
}

/// Name of the rest of a decode latency: most of it is prefills of other requests if these are served.
pub fn rest_name(specs: [&Spec; 2]) -> &'static str {
    // without requests, a rank that has finished its decode phase waits for the slowest one
    if specs.iter().any(|spec| spec.concurrency > 0) { "interleaved prefills" } else { "rank skew" }
}

fn warnings(a: &Record, b: &Record, differences: &[(&str, String, String)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for record in [a, b] {
        if let Err(error) = record.provenance.require_evidence(&format!("run {}", record.run)) {
            warnings.push(error.to_string());
        }
    }
    if a.provenance != b.provenance {
        warnings.push(format!(
            "different provenance ({} and {}), so their ratio is not a measurement",
            a.provenance, b.provenance
        ));
    }
    if host(a) != host(b)
        && a.provenance != Provenance::Simulated
        && b.provenance != Provenance::Simulated
    {
        let name = |record| host(record).unwrap_or_else(|| "an unknown machine".into());
        warnings.push(format!("different machines: {} against {}", name(a), name(b)));
    }
    if recorder(a) != recorder(b) && a.overlap.is_some() && b.overlap.is_some() {
        let name = |record| recorder(record).unwrap_or("unknown").to_owned();
        warnings.push(format!(
            "overlap was recorded in different ways: {} against {}",
            name(a),
            name(b)
        ));
    }
    if differences.len() > 1 {
        let names: Vec<&str> = differences.iter().map(|(name, ..)| *name).collect();
        warnings.push(format!(
            "they differ in {} options ({}), so no single one explains the ratio",
            names.len(),
            names.join(", ")
        ));
    }
    warnings
}

/// Decode latency of a run and its breakdown.
#[derive(Clone, Copy, Debug)]
pub struct Decoding<'a> {
    pub decode_ms: f64,
    pub overlap: Option<&'a Overlap>,
}

/// Decode latency of one run minus another's, by part (ms per sample and rank, averaged over ranks). The parts sum to
/// `decode_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    pub decode_ms: f64,
    /// Exposed communication that moves data.
    pub transfer_ms: f64,
    /// Exposed communication that waits for a peer.
    pub peer_wait_ms: f64,
    /// Slowdown of compute while communication runs in parallel.
    pub contention_ms: f64,
    /// Operations that only one of the two executes.
    pub operations_ms: f64,
    /// Time in which neither lane was busy.
    pub idle_ms: f64,
    /// Rest of the latency: ranks that end before the slowest one, and prefills of other requests.
    pub rest_ms: f64,
}

impl Difference {
    /// `a` minus `b`; `None` if a backend does not provide the breakdown.
    pub fn new(a: Decoding<'_>, b: Decoding<'_>) -> Option<Self> {
        let decode_ms = a.decode_ms - b.decode_ms;
        let (a, b) = (a.overlap?, b.overlap?);
        let (x, y) = (a.split?, b.split?);
        let transfer_ms = x.transfer_ms - y.transfer_ms;
        let peer_wait_ms = x.peer_wait_ms - y.peer_wait_ms;
        let contention_ms = x.contention_ms - y.contention_ms;
        let operations_ms = x.work_ms - y.work_ms;
        let idle_ms = a.idle_ms - b.idle_ms;
        let of_ranks_ms = transfer_ms + peer_wait_ms + contention_ms + operations_ms + idle_ms;
        // sums and medians of the same nanoseconds differ in the last digits
        let rest_ms = decode_ms - of_ranks_ms;
        let rest_ms = if rest_ms.abs() > 1e-6 { rest_ms } else { 0.0 };
        Some(Self {
            decode_ms,
            transfer_ms,
            peer_wait_ms,
            contention_ms,
            operations_ms,
            idle_ms,
            rest_ms,
        })
    }

    /// The difference by its sources: `standard decodes 8.78 ms longer than ladder: exposed transfer +10.3 ms, contention
    /// -1.45 ms`.
    pub fn sentence(&self, [longer, shorter]: [&str; 2], rest: &str) -> String {
        let sources = [
            ("exposed transfer", self.transfer_ms),
            ("waiting for peers", self.peer_wait_ms),
            ("contention", self.contention_ms),
            ("operations", self.operations_ms),
            ("idle", self.idle_ms),
            (rest, self.rest_ms),
        ];
        let (unit, unit_ms) = if self.decode_ms.abs() < 1e3 { ("ms", 1.0) } else { ("s", 1e3) };
        // skip sources that contribute nothing to the difference
        let sources = sources.into_iter().filter(|(_, ms)| ms.abs() >= 0.0005 * unit_ms);
        let sources: Vec<String> = sources
            .map(|(source, ms)| {
                let sign = if ms < 0.0 { "-" } else { "+" };
                format!("{source} {sign}{} {unit}", digits(ms.abs() / unit_ms))
            })
            .collect();
        let sources =
            if sources.is_empty() { String::new() } else { format!(": {}", sources.join(", ")) };
        let way = if self.decode_ms < 0.0 { "shorter" } else { "longer" };
        let decode = digits(self.decode_ms.abs() / unit_ms);
        format!("{longer} decodes {decode} {unit} {way} than {shorter}{sources}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Split;
    use table::testing::{record, sim_record};

    fn runs_side_by_side(records: &[Record], baseline: usize, other: usize) -> Result<SideBySide> {
        side_by_side(records, ComparedSide::Run(baseline), ComparedSide::Run(other))
    }

    #[test]
    fn one_difference_and_paired_rounds_give_an_interval() {
        let ladder = |s: &mut table::Spec| s.architecture = "ladder".parse().unwrap();
        let rounds = |round: u32| [(1.0, 2.0 + 0.01 * f64::from(round)), (1.0, 2.0), (1.0, 2.02)];
        let mut records: Vec<Record> =
            (0..3).map(|i| record(&format!("a{i}"), |_| (), i, &rounds(i))).collect();
        let fast = |round| rounds(round).map(|(prefill, step)| (prefill, step / 2.0));
        records.extend((0..3).map(|i| record(&format!("b{i}"), ladder, i, &fast(i))));
        let both = runs_side_by_side(&records, 0, 3).unwrap();
        assert_eq!(both.rounds, ["round 1 of 3", "round 1 of 3"]);
        assert_eq!(both.differences, [("architecture", "standard".into(), "ladder".into())]);
        assert_eq!(both.shared_rounds, 3);
        assert_eq!(both.equal + 1, parts(&records[0].spec, None).len(), "all but the architecture");
        assert!(both.warnings.is_empty(), "{:?}", both.warnings);
        let [low, high] = both.speedup_ci95.expect("18 samples give an interval");
        assert!(low > 1.5 && high < 2.0 && both.differs, "{low} to {high}");
        let tpot = both.measures.iter().find(|both| both.measure.name == "tpot_p50_ms").unwrap();
        assert_eq!(tpot.ratio(), Some(0.5));
        assert!(runs_side_by_side(&records, 0, 99).is_err());
    }

    #[test]
    fn cells_are_compared_by_their_pooled_rounds_and_rounds_of_one_cell_have_no_ratio() {
        let ladder = |s: &mut table::Spec| s.architecture = "ladder".parse().unwrap();
        // the last round of standard is the fastest one
        let steps = [9.0, 9.0, 2.0];
        let run = |(round, step): (u32, &f64)| {
            record(&format!("s{round}"), |_| (), round, &[(1.0, *step), (1.0, *step)])
        };
        let mut records: Vec<Record> = (0..).zip(&steps).map(run).collect();
        let fast = [(1.0, 4.0), (1.0, 4.0)];
        records.extend((0..3).map(|round| record(&format!("l{round}"), ladder, round, &fast)));
        let tpot = |both: &SideBySide| {
            both.measures.iter().find(|both| both.measure.name == "tpot_p50_ms").unwrap().values
        };
        let pooled = side_by_side(&records, ComparedSide::Cell(2), ComparedSide::Cell(5)).unwrap();
        assert_eq!(pooled.rounds, ["3 rounds pooled", "3 rounds pooled"]);
        assert_eq!(tpot(&pooled), [Some(9.0), Some(4.0)]);
        let single = runs_side_by_side(&records, 2, 5).unwrap();
        assert_eq!(tpot(&single), [Some(2.0), Some(4.0)]);
        assert_eq!(single.rounds[0], "round 3 of 3");
        let within = runs_side_by_side(&records, 0, 2).unwrap();
        assert!(within.is_same_cell && within.speedup.is_none());
    }

    #[test]
    fn what_cannot_be_compared_says_so() {
        let other = |s: &mut table::Spec| (s.tp, s.batch) = (4, 8);
        let records = [record("a", |_| (), 0, &[(1.0, 2.0)]), sim_record("b", other, 1.0, 1.0)];
        let both = runs_side_by_side(&records, 0, 1).unwrap();
        let warnings = both.warnings.join("\n");
        assert!(warnings.contains("different provenance (measured and simulated)"), "{warnings}");
        assert!(warnings.contains("tp, batch"), "{warnings}");
        assert_eq!((both.speedup_ci95, both.differs), (None, false));
    }

    fn overlap(work_ms: f64, contention_ms: f64, peer_wait_ms: f64, transfer_ms: f64) -> Overlap {
        let split = Split { work_ms, contention_ms, peer_wait_ms, transfer_ms };
        Overlap { split: Some(split), idle_ms: 1.0, ..Overlap::default() }
    }

    #[test]
    fn a_difference_is_explained_by_its_sources() {
        let ladder = |s: &mut table::Spec| s.architecture = "ladder".parse().unwrap();
        let mut records = [sim_record("a", |_| (), 1.0, 2.0), sim_record("b", ladder, 1.0, 1.0)];
        records[0].overlap = Some(overlap(10.0, 0.0, 2.0, 8.0));
        records[1].overlap = Some(overlap(10.0, 1.0, 2.0, 0.5));
        let why = runs_side_by_side(&records, 0, 1).unwrap().why.expect("both have a breakdown");
        assert!(why.starts_with("ladder decodes "), "{why}");
        assert!(why.contains("than standard: exposed transfer -7.50 ms, contention +1.00 ms"), "{why}");
        records[1].overlap = None;
        assert_eq!(runs_side_by_side(&records, 0, 1).unwrap().why, None);
    }

    #[test]
    fn parts_sum_to_the_latency_and_are_unknown_where_a_run_has_none() {
        let (standard, ladder) = (overlap(10.0, 0.0, 2.0, 8.0), overlap(10.5, 1.0, 0.25, 0.5));
        let of = |decode_ms, overlap| Decoding { decode_ms, overlap: Some(overlap) };
        let saved = Difference::new(of(21.0, &standard), of(13.25, &ladder)).unwrap();
        let expected = Difference {
            decode_ms: 7.75,
            transfer_ms: 7.5,
            peer_wait_ms: 1.75,
            contention_ms: -1.0,
            operations_ms: -0.5,
            idle_ms: 0.0,
            rest_ms: 0.0,
        };
        assert_eq!(saved, expected);
        // the slowest rank of the second ends 2 ms after the mean one
        let uneven = Difference::new(of(21.0, &standard), of(15.25, &ladder)).unwrap();
        assert_eq!(uneven, Difference { decode_ms: 5.75, rest_ms: -2.0, ..expected });
        assert_eq!(
            saved.sentence(["standard", "ladder"], "rank skew"),
            "standard decodes 7.75 ms longer than ladder: exposed transfer +7.50 ms, \
             waiting for peers +1.75 ms, contention -1.00 ms, operations -0.500 ms"
        );
        let measured = Overlap { split: None, ..standard };
        assert_eq!(Difference::new(of(21.0, &measured), of(13.25, &ladder)), None);
        let unknown = Decoding { decode_ms: 21.0, overlap: None };
        assert_eq!(Difference::new(unknown, of(13.25, &ladder)), None);
    }
}
