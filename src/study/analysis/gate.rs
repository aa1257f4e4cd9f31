//! Gates: limits such as `tpot<+3%` on the change from a baseline.
//!
//! Each cell of the baseline is compared with the newest run of each round of the same cell: pooled with earlier
//! nights, a single bad night would not show. The change of a measure is that of its medians over samples. Its interval
//! resamples each side independently (rounds, then samples within rounds), because the two sides did not run in turns
//! and their rounds do not pair. A gate holds if the whole interval is within the limit, is violated if the whole
//! interval is beyond it, and is undecided if the interval contains the limit or either side is noisy ([`Noise`]).

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;

use rayon::prelude::*;
use serde::{Serialize, Serializer};

use super::noise::Noise;
use base::error::{Error, Result};
use base::statistics::{interval95, resample};
use base::text::natural_order;
use table::render::{Shown, Table};
use table::{
    CellRuns, MEASURES, Measure, MeasureScope, Provenance, Record, Sample, host, measure, metrics,
};

/// Statistical method, as text for readers of the result.
pub const STATISTICS: &str = "medians over the samples of all rounds, of now each round's newest run; 95 % percentile bootstrap of the change, each side \
     resampled for itself, rounds then samples; a gate holds where the interval is within its limit, is violated where it \
     is beyond, and is undecided where the limit is inside or a side is noisy; without an interval the change decides";

#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    pub text: String,
    pub measure: &'static Measure,
    /// True if the change must stay below the limit, false if above.
    pub below: bool,
    /// Limit, in percent of the baseline's value or in the measure's unit.
    pub limit: f64,
    /// True if the limit is in percent of the baseline's value.
    pub relative: bool,
}

impl FromStr for Gate {
    type Err = Error;

    /// Parses `tpot<+3%`, `tok/s>-2%`, `overlap>-5`.
    fn from_str(text: &str) -> Result<Self> {
        let help = "a gate is a measure, < or >, and the change that is allowed: 'tpot<+3%', 'tok/s>-2%', 'overlap>-5' (in \
                    its unit)";
        let wrong = |why: &str| Error::input_help(format!("gate '{text}': {why}"), help);
        let at = text.find(['<', '>']).ok_or_else(|| wrong("it has neither < nor >"))?;
        let below = text[at..].starts_with('<');
        let (name, limit) = (text[..at].trim(), text[at + 1..].trim_start_matches('=').trim());
        let known = || MEASURES.iter().map(|measure| measure.name);
        let measure = measure(name).ok_or_else(|| Error::unknown("measure", name, known()))?;
        if matches!(measure.scope, MeasureScope::Quality | MeasureScope::Training | MeasureScope::Runs) {
            return Err(wrong(&format!(
                "{} cannot be gated: it needs other runs to compute",
                measure.words
            )));
        }
        let (number, relative) = match limit.strip_suffix('%') {
            Some(number) => (number.trim_end(), true),
            None => (limit, false),
        };
        let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
        let limit =
            number.ok_or_else(|| wrong(&format!("'{limit}' is not a number or a percentage")))?;
        Ok(Self { text: text.trim().to_owned(), measure, below, limit, relative })
    }
}

impl Serialize for Gate {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Gate {
    /// Change from a baseline's value, in the limit's unit.
    pub(crate) fn change(&self, baseline: f64, value: f64) -> f64 {
        if self.relative { 100.0 * (value / baseline - 1.0) } else { value - baseline }
    }

    /// Compares a change, or its whole interval if there is one, with the limit. Returns the reason if that is
    /// undecided, which it always is with a `doubt`.
    pub(crate) fn outcome(
        &self,
        change: f64,
        interval: Option<[f64; 2]>,
        doubt: Option<String>,
    ) -> (GateOutcome, Option<String>) {
        let within = |change: f64| if self.below { change <= self.limit } else { change >= self.limit };
        match (doubt, interval.unwrap_or([change; 2]).map(within)) {
            (Some(doubt), _) => (GateOutcome::Undecided, Some(doubt)),
            (None, [true, true]) => (GateOutcome::Holds, None),
            (None, [false, false]) => (GateOutcome::Violated, None),
            (None, _) => {
                let covers = "the confidence interval contains the limit";
                (GateOutcome::Undecided, Some(covers.to_owned()))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateOutcome {
    Holds,
    Undecided,
    Violated,
}

impl GateOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Undecided => "undecided",
            Self::Violated => "violated",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GateRow {
    /// Key of the cell, stable across versions.
    pub key: String,
    pub cell: String,
    #[schemars(with = "String")]
    pub gate: Gate,
    #[schemars(with = "String")]
    pub measure: &'static Measure,
    pub baseline: f64,
    pub value: f64,
    /// Change, in percent of the baseline's value if `relative`, else in the measure's unit.
    pub change: f64,
    /// 95 % interval of the change; null for simulations, with few samples, and for measures that samples do not have.
    pub change_ci95: Option<[f64; 2]>,
    /// True if the change is in percent of the baseline's value.
    pub relative: bool,
    /// `interval` or `change`, whichever decided.
    pub decided_by: &'static str,
    pub outcome: GateOutcome,
    pub undecided: Option<String>,
    /// True if `outcome` is `holds`.
    pub held: bool,
    /// Number of samples: baseline, new runs.
    pub samples: [u32; 2],
    pub provenance: Provenance,
    pub baseline_runs: Vec<String>,
    pub runs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GateReport {
    pub baseline: String,
    pub baseline_created: String,
    pub statistics: &'static str,
    pub rows: Vec<GateRow>,
    /// `violated` if any row is, else `undecided` if any row is or any cell has no result.
    pub outcome: GateOutcome,
    /// True if `outcome` is `holds`: every gate holds for every cell.
    pub held: bool,
    /// Cells of the baseline without a result, with the reason.
    pub without_partner: Vec<String>,
    /// Number of comparisons skipped: gates on communication for cells without any on both sides.
    pub without_communication: usize,
    /// Number of cells that were run but are not in the baseline.
    pub not_in_baseline: usize,
    /// Warnings about the comparison: different machines, different versions.
    pub warnings: Vec<String>,
}

/// Compares runs with a baseline. Runs that belong to the baseline only count as baseline. Costs
/// [`RESAMPLES`](base::statistics::RESAMPLES) draws per side, cell and gate; cells run in parallel.
pub fn judge(
    (name, created): (&str, &str),
    baseline: &[Record],
    now: &[Record],
    gates: &[Gate],
) -> GateReport {
    let own: HashSet<&str> = baseline.iter().map(|record| record.run.as_str()).collect();
    let now: Vec<Record> = now.iter().filter(|r| !own.contains(r.run.as_str())).cloned().collect();
    let now = newest_of_rounds(now);
    let noise = [Noise::from_records(baseline), Noise::from_records(&now)];
    let (baseline, now) = (by_key(baseline), by_key(&now));
    let mut report = GateReport {
        baseline: name.into(),
        baseline_created: created.into(),
        statistics: STATISTICS,
        rows: Vec::new(),
        outcome: GateOutcome::Undecided,
        held: false,
        without_partner: Vec::new(),
        without_communication: 0,
        not_in_baseline: now.keys().filter(|key| !baseline.contains_key(*key)).count(),
        warnings: Vec::new(),
    };
    type Judged = (Vec<Result<Option<GateRow>, String>>, Option<String>);
    let cell = |(key, sides): (&String, &Vec<GateSide>)| -> Judged {
        let there = now.get(key).map_or(&[][..], Vec::as_slice);
        // prefers runs on the baseline's machine to newer ones elsewhere
        let same = |side: &&GateSide| there.iter().rfind(|now| host(&now.record) == host(&side.record));
        let same_host = sides.iter().rev().find_map(|side| Some((side, same(&side)?)));
        match same_host.or(sides.last().zip(there.last())) {
            None => {
                let label = sides.last().map(|side| side.record.spec.label()).unwrap_or_default();
                (vec![Err(format!("{label}: no new run since the baseline was set"))], None)
            }
            Some((side, now)) => {
                let rows = gates.iter().map(|gate| row(gate, key, [side, now], &noise)).collect();
                (rows, elsewhere(side, now))
            }
        }
    };
    let judged: Vec<Judged> = baseline.par_iter().map(cell).collect();
    for (rows, warning) in judged {
        for row in rows {
            match row {
                Ok(Some(row)) => report.rows.push(row),
                Ok(None) => report.without_communication += 1,
                Err(why) => report.without_partner.push(why),
            }
        }
        report.warnings.extend(warning.filter(|warning| !report.warnings.contains(warning)));
    }
    report.rows.sort_by(|a, b| natural_order(&a.cell, &b.cell));
    // a report without rows holds nothing
    let missing = report.rows.is_empty() || !report.without_partner.is_empty();
    let rows = report.rows.iter().map(|row| row.outcome);
    report.outcome =
        rows.chain(missing.then_some(GateOutcome::Undecided)).max().unwrap_or(report.outcome);
    report.held = report.outcome == GateOutcome::Holds;
    report
}

/// Successful runs of one cell, pooled.
struct GateSide {
    record: Record,
    runs: Vec<String>,
    rounds: Vec<Vec<Sample>>,
}

/// Newest successful run of each round of a cell, per machine.
fn newest_of_rounds(mut records: Vec<Record>) -> Vec<Record> {
    records.retain(Record::has_numbers);
    records.sort_by(|a, b| a.created.cmp(&b.created));
    let keyed = records.into_iter().map(|run| ((run.spec.key(), host(&run), run.round), run));
    // the last of one key stays
    BTreeMap::from_iter(keyed).into_values().collect()
}

/// Cells with metrics by key; one side per machine, the one with the newest run last.
fn by_key(records: &[Record]) -> BTreeMap<String, Vec<GateSide>> {
    let mut cells: BTreeMap<String, Vec<GateSide>> = BTreeMap::new();
    for cell in CellRuns::group(records) {
        let Some(record) = cell.record().filter(|record| record.metrics.is_some()) else { continue };
        let rounds = cell.rounds().into_values().collect();
        let runs = cell.ok().map(|run| run.run.clone()).collect();
        let side = GateSide { record, runs, rounds };
        cells.entry(side.record.spec.key()).or_default().push(side);
    }
    for sides in cells.values_mut() {
        sides.sort_by(|a, b| a.record.created.cmp(&b.record.created));
    }
    cells
}

/// Warning if the two sides ran on different machines.
fn elsewhere(baseline: &GateSide, now: &GateSide) -> Option<String> {
    let name = |side: &GateSide| host(&side.record);
    let (from, to) = (name(baseline)?, name(now)?);
    (from != to).then(|| {
        format!(
            "baseline and runs are from different machines ({from}, {to}), which may explain the change"
        )
    })
}

/// Result of a gate for a cell; `None` if the measure is a share of communication and neither side communicates, as at
/// TP 1.
fn row(
    gate: &Gate,
    key: &str,
    [baseline, now]: [&GateSide; 2],
    noise: &[Noise; 2],
) -> Result<Option<GateRow>, String> {
    let nothing = |side: &GateSide| side.record.overlap.as_ref().is_some_and(|o| o.comm_ms == 0.0);
    let none = |side: &GateSide| gate.measure.of(&side.record).is_none() && nothing(side);
    if none(baseline) && none(now) {
        return Ok(None);
    }
    let recorded = |side: &GateSide, when: &str| {
        let missing = || format!("{}: {when} has no {}", side.record.spec.label(), gate.measure.words);
        gate.measure.of(&side.record).ok_or_else(missing)
    };
    let (before, value) = (recorded(baseline, "the baseline")?, recorded(now, "the new run")?);
    let change = gate.change(before, value);
    if !change.is_finite() {
        return Err(format!("{}: {} was {before}", baseline.record.spec.label(), gate.measure.words));
    }
    if baseline.record.provenance != now.record.provenance {
        return Err(format!(
            "{}: the baseline is {}, the new run is {}",
            baseline.record.spec.label(),
            baseline.record.provenance.as_str(),
            now.record.provenance.as_str()
        ));
    }
    let change_ci95 = interval(gate, baseline, now);
    // bytes and counts are exact, however busy the machine is
    let noisy = |(side, noise, name): (&GateSide, &Noise, &str)| {
        let why = noise.why(&side.record).filter(|_| !gate.measure.unit.is_whole())?;
        Some(format!("{name} is noisy: {why}"))
    };
    let sides = [(baseline, &noise[0], "the baseline"), (now, &noise[1], "the new run")];
    let (outcome, undecided) = gate.outcome(change, change_ci95, sides.into_iter().find_map(noisy));
    Ok(Some(GateRow {
        key: key.into(),
        cell: now.record.spec.label(),
        gate: gate.clone(),
        measure: gate.measure,
        baseline: before,
        value,
        change,
        change_ci95,
        relative: gate.relative,
        decided_by: if change_ci95.is_some() { "interval" } else { "change" },
        outcome,
        undecided,
        held: outcome == GateOutcome::Holds,
        samples: [baseline, now].map(|side| side.rounds.iter().map(Vec::len).sum::<usize>() as u32),
        provenance: now.record.provenance,
        baseline_runs: baseline.runs.clone(),
        runs: now.runs.clone(),
    }))
}

/// Interval of a change; `None` for simulations (every difference is real), if samples lack the measure, and for
/// measures that are not medians over samples: tails of all steps, means over ranks and runs.
fn interval(gate: &Gate, baseline: &GateSide, now: &GateSide) -> Option<[f64; 2]> {
    if gate.measure.scope != MeasureScope::Run || gate.measure.is_tail {
        return None;
    }
    let drawn = |side: &GateSide| -> Option<Vec<f64>> {
        if side.record.provenance == Provenance::Simulated {
            return None;
        }
        let mut alone = Record { instrumented: None, ..side.record.clone() };
        let memory = alone.metrics.as_ref().map_or(0, |metrics| metrics.memory_bytes_per_rank);
        let mut value = |sample: &Sample| {
            alone.metrics = metrics(&side.record.spec, &[std::slice::from_ref(sample)], memory);
            alone.overlap = sample.overlap;
            gate.measure.of(&alone)
        };
        let rounds: Option<Vec<Vec<f64>>> =
            side.rounds.iter().map(|round| round.iter().map(&mut value).collect()).collect();
        resample([&rounds?], |[median]| median)
    };
    let (before, mut after) = (drawn(baseline)?, drawn(now)?);
    // both were drawn with the same random numbers and would be correlated
    fastrand::Rng::with_seed(17).shuffle(&mut after);
    let changes: Vec<f64> =
        before.into_iter().zip(after).map(|(before, after)| gate.change(before, after)).collect();
    changes.iter().all(|change| change.is_finite()).then_some(changes).and_then(interval95)
}

pub fn gate_table(report: &GateReport) -> Table {
    let unit = |row: &GateRow| if row.relative { "%" } else { row.measure.unit.symbol() };
    Table::from_rows(
        &report.rows,
        &[
            ("cell", &|row: &GateRow| Shown::text(&row.cell)),
            ("gate", &|row| Shown::text(&row.gate.text)),
            ("baseline", &|row| Shown::Number(row.baseline, row.measure.decimals)),
            ("now", &|row| Shown::Number(row.value, row.measure.decimals)),
            ("change", &|row| Shown::interval(Some(row.change), row.change_ci95, 2)),
            ("unit", &|row| Shown::text(unit(row))),
            ("outcome", &|row| Shown::text(row.outcome.as_str())),
            ("decided_by", &|row| Shown::text(row.decided_by)),
            ("undecided", &|row| row.undecided.as_deref().into()),
            ("samples", &|row| Shown::text(format!("{}/{}", row.samples[0], row.samples[1]))),
            ("provenance", &|row| Shown::text(row.provenance)),
            ("key", &|row| Shown::text(&row.key)),
        ],
    )
}

#[cfg(test)]
mod tests {
    //! Gates: what they are read from, what fails them and what cannot be judged.

    use proptest::prelude::*;

    use super::*;
    use table::testing::record;

    fn gate(text: &str) -> Gate {
        text.parse().unwrap()
    }

    /// Six samples about a TPOT (ms), in two rounds.
    fn runs(name: &str, tpot: f64) -> Vec<Record> {
        let samples = |round: u32| {
            let at = |n: u32| tpot * (1.0 + 0.002 * f64::from(n + 3 * round) - 0.005);
            (0..3).map(|n| (10.0, at(n))).collect::<Vec<_>>()
        };
        (0..2).map(|round| record(&format!("{name}{round}"), |_| (), round, &samples(round))).collect()
    }

    #[test]
    fn a_gate_is_a_measure_a_direction_and_a_limit() {
        let read = gate("tpot<+3%");
        assert_eq!(
            (read.measure.name, read.below, read.limit, read.relative),
            ("tpot_p50_ms", true, 3.0, true)
        );
        let read = gate(" tok/s >= -2 % ");
        assert_eq!(
            (read.measure.name, read.below, read.limit, read.relative),
            ("tokens_per_s", false, -2.0, true)
        );
        assert!(!gate("overlap>-5").relative);
        for (text, said) in [
            ("tpot", "neither < nor >"),
            ("tpott<3%", "tpott"),
            ("tpot<", "is not a number"),
            ("tpot<inf%", "is not a number"),
            ("kl<+1%", "cannot be gated"),
            ("gap>-5%", "cannot be gated"),
        ] {
            let error = text.parse::<Gate>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_shown_to_be_slower_is_violated_and_what_may_be_chance_is_undecided() {
        let report = |now: f64| {
            judge(
                ("main", ""),
                &runs("a", 10.0),
                &runs("b", now),
                &[gate("tpot<+3%"), gate("tok/s>-50%")],
            )
        };
        let (same, little, much) = (report(10.0), report(10.35), report(11.0));
        assert!(same.held && !much.held, "{same:?} {much:?}");
        // 3.5 % above, with an interval that reaches down to the limit; throughput may fall by half
        assert_eq!(outcomes(&little), [GateOutcome::Undecided, GateOutcome::Holds]);
        assert!(little.rows[0].change > 3.0 && !little.held, "{little:?}");
        assert!(little.rows.iter().all(|row| row.decided_by == "interval" && row.samples == [6, 6]));
        assert_eq!(outcomes(&much), [GateOutcome::Violated, GateOutcome::Holds]);
        let overall = [&same, &little, &much].map(|report| report.outcome);
        assert_eq!(overall, [GateOutcome::Holds, GateOutcome::Undecided, GateOutcome::Violated]);
    }

    fn outcomes(report: &GateReport) -> Vec<GateOutcome> {
        report.rows.iter().map(|row| row.outcome).collect()
    }

    /// Rounds of three samples each, with a TPOT (ms) a round.
    fn rounds(name: &str, tpots: &[f64]) -> Vec<Record> {
        let samples = |tpot: f64| [0.99, 1.0, 1.01].map(|factor| (10.0, tpot * factor));
        let round = |(round, tpot): (usize, &f64)| {
            record(&format!("{name}{round}"), |_| (), round as u32, &samples(*tpot))
        };
        tpots.iter().enumerate().map(round).collect()
    }

    #[test]
    fn an_interval_with_the_limit_inside_and_noisy_runs_are_undecided_in_both_directions() {
        let good = rounds("a", &[10.0, 10.0, 10.0]);
        let judged = |now: &[Record], gates: &[&str]| {
            let gates: Vec<Gate> = gates.iter().map(|text| gate(text)).collect();
            judge(("main", ""), &good, now, &gates)
        };
        // slower by half to many times, or not at all: rounds that differ so are noise
        let wild = judged(&rounds("b", &[9.9, 60.0, 340.0]), &["tpot<+3%", "tok/s>-3%", "memory<+0"]);
        let [tpot, rate, memory] = &wild.rows[..] else { panic!("{wild:?}") };
        let by = |row: &GateRow| row.gate.measure.name;
        assert_eq!(
            [tpot, rate, memory].map(by),
            ["tpot_p50_ms", "tokens_per_s", "memory_bytes_per_rank"]
        );
        assert!(tpot.change > 100.0, "{tpot:?}");
        assert!(tpot.change_ci95.is_some_and(|[low, high]| low < 3.0 && high > 1000.0), "{tpot:?}");
        assert_eq!([tpot.outcome, rate.outcome], [GateOutcome::Undecided; 2]);
        assert_eq!(memory.outcome, GateOutcome::Holds, "bytes are exact on a busy machine");
        let why = tpot.undecided.as_deref().unwrap_or_default();
        assert!(why.contains("the new run is noisy") && why.contains("9.90 to 340 ms"), "{why}");
        // all of it beyond the limit, and yet noise; the same of a noisy baseline
        let slow = judged(&rounds("b", &[20.0, 24.0, 40.0]), &["tpot<+3%"]);
        assert!(slow.rows[0].change_ci95.is_some_and(|[low, _]| low > 3.0), "{slow:?}");
        assert_eq!(outcomes(&slow), [GateOutcome::Undecided]);
        let noisy = judge(("main", ""), &rounds("c", &[5.0, 10.0, 20.0]), &good, &[gate("tpot<+300%")]);
        let why = noisy.rows[0].undecided.as_deref().unwrap_or_default();
        assert!(why.contains("the baseline is noisy"), "{why}");
        // a busy machine spoils quiet rounds, too; predictions have no neighbours
        let mut loaded = rounds("d", &[10.0, 10.0, 10.0]);
        for run in &mut loaded {
            run.environment.insert("load_average".into(), serde_json::json!([64.0, 1.0, 1.0]));
            run.environment.insert("cpu".into(), serde_json::json!({"threads": 2}));
        }
        let busy = judged(&loaded, &["tpot<+30%"]);
        assert!(
            busy.rows[0].undecided.as_ref().is_some_and(|why| why.contains("overloaded, load 64.0")),
            "{busy:?}"
        );
    }

    /// What does no communication cannot be slower than what does, but for noise: both are undecided, other cells not.
    #[test]
    fn an_upper_bound_slower_than_standard_makes_both_undecided() {
        let run = |name: &str, architecture: &str, tpot: f64| {
            let samples: Vec<(f64, f64)> =
                (0..8).map(|n| (1.0, tpot * (1.0 + 0.001 * f64::from(n)))).collect();
            record(name, |spec| spec.architecture = architecture.parse().unwrap(), 0, &samples)
        };
        let baseline =
            [run("a", "standard", 10.0), run("b", "ladder", 8.0), run("c", "upper-bound", 7.0)];
        let now = [run("d", "standard", 10.0), run("e", "ladder", 8.0), run("f", "upper-bound", 12.0)];
        let judged = judge(("main", ""), &baseline, &now, &[gate("tpot<+3%")]);
        let of = |architecture: &str| {
            let row = judged.rows.iter().find(|row| row.cell.starts_with(architecture));
            row.map(|row| row.outcome)
        };
        assert_eq!(of("standard"), Some(GateOutcome::Undecided), "{judged:?}");
        assert_eq!(of("upper-bound"), Some(GateOutcome::Undecided));
        assert_eq!(of("ladder"), Some(GateOutcome::Holds));
    }

    /// Of runs of many nights only the last night's count, and a tail is not judged by the median of samples' tails.
    #[test]
    fn a_bad_night_after_good_ones_is_seen_and_so_is_a_tail() {
        let at = |name: &str, tpot: f64, created: &str| {
            let mut runs = runs(name, tpot);
            runs.iter_mut().for_each(|run| run.created = created.into());
            runs
        };
        let nights = [at("b", 10.0, "2"), at("c", 10.0, "3"), at("d", 12.0, "4")].concat();
        let judged = judge(("main", ""), &at("a", 10.0, "1"), &nights, &[gate("tpot<+3%")]);
        assert!(!judged.held, "{judged:?}");
        assert_eq!(judged.rows[0].runs, ["d0", "d1"]);
        let slow = |name: &str, last: f64| {
            let mut run = record(name, |_| (), 0, &[(10.0, 10.0); 8]);
            let steps = |ms| vec![ms; run.spec.output_tokens as usize - 1];
            let all: Vec<Vec<f64>> = (0..8).map(|n| steps(if n == 7 { last } else { 10.0 })).collect();
            std::sync::Arc::make_mut(&mut run.samples)
                .iter_mut()
                .zip(all)
                .for_each(|(sample, steps)| sample.steps_ms = steps);
            run.metrics = metrics(&run.spec, &[&run.samples], 0);
            vec![run]
        };
        let judged = judge(("main", ""), &slow("a", 10.0), &slow("b", 40.0), &[gate("p99<+10%")]);
        assert!(!judged.held && judged.rows[0].decided_by == "change", "{judged:?}");
    }

    #[test]
    fn without_an_interval_the_change_decides() {
        let one = |name, tpot| vec![record(name, |_| (), 0, &[(10.0, tpot)])];
        let judged = judge(("main", ""), &one("a", 10.0), &one("b", 10.35), &[gate("tpot<+3%")]);
        assert!(!judged.held && judged.rows[0].decided_by == "change", "{judged:?}");
        let judged = judge(("main", ""), &one("a", 10.0), &one("b", 10.25), &[gate("tpot<+3%")]);
        assert!(judged.held);
    }

    #[test]
    fn a_cell_without_a_partner_is_named_and_the_baselines_own_runs_are_none() {
        let baseline = runs("a", 10.0);
        let other = record("c", |s| s.batch = 64, 0, &[(1.0, 2.0)]);
        let now: Vec<Record> = baseline.iter().cloned().chain([other]).collect();
        let judged = judge(("main", ""), &baseline, &now, &[gate("tpot<+3%")]);
        assert!(
            judged.rows.is_empty() && judged.without_partner[0].contains("no new run"),
            "{judged:?}"
        );
        assert_eq!(judged.not_in_baseline, 1);
        // a measure that was not recorded cannot be held
        let judged = judge(("main", ""), &baseline, &runs("b", 10.0), &[gate("overlap>-1")]);
        assert!(judged.without_partner[0].contains("overlap"), "{judged:?}");
    }

    #[test]
    fn a_share_of_communication_is_not_asked_of_cells_that_have_none() {
        let with = |name: &str, comm_ms: f64| {
            let mut runs = runs(name, 10.0);
            let overlap = table::Overlap {
                comm_ms,
                exposed_comm_ms: 0.0,
                overlap_pct: table::overlap_pct(0.0, comm_ms),
                compute_ms: 1.0,
                idle_ms: 0.0,
                peer_wait_ms: None,
                split: None,
            };
            runs.iter_mut().for_each(|run| run.overlap = Some(overlap));
            runs
        };
        let gates = [gate("tpot<+3%"), gate("overlap>-5")];
        let judged = judge(("main", ""), &with("a", 0.0), &with("b", 0.0), &gates);
        assert!(
            judged.held && judged.without_communication == 1 && judged.rows.len() == 1,
            "{judged:?}"
        );
        let nothing = judge(("main", ""), &with("a", 0.0), &with("b", 0.0), &gates[1..]);
        assert!(!nothing.held && nothing.rows.is_empty(), "{nothing:?}");
        let judged = judge(("main", ""), &with("a", 1.0), &with("b", 0.0), &gates);
        assert!(!judged.held && judged.without_partner[0].contains("overlap"), "{judged:?}");
    }

    #[test]
    fn runs_of_the_baselines_machine_are_preferred_and_another_machine_is_told() {
        let on = |host: &str, tpot: f64, created: &str| {
            let mut run = record(&format!("{host}{created}"), |_| (), 0, &[(10.0, tpot)]);
            run.environment.insert("host".into(), host.into());
            Record { created: created.into(), ..run }
        };
        let baseline = [on("a", 10.0, "1")];
        let gates = [gate("tpot<+3%")];
        let both = judge(("main", ""), &baseline, &[on("a", 10.1, "2"), on("b", 20.0, "3")], &gates);
        assert!(both.held && both.warnings.is_empty(), "{both:?}");
        let of_both = [on("a", 10.0, "1"), on("b", 50.0, "1")];
        assert!(judge(("main", ""), &of_both, &[on("a", 10.1, "2")], &gates).warnings.is_empty());
        let other = judge(("main", ""), &baseline, &[on("b", 20.0, "3")], &gates);
        assert!(!other.held && other.warnings[0].contains("different machines (a, b)"));
    }

    proptest! {
        /// A gate that holds at some limit holds at every wider one, and a faster run never violates one.
        #[test]
        fn wider_gates_hold_whatever_narrower_ones_do(tpot in 5.0..20.0f64, limit in 0.0..40.0f64, more in 0.0..40.0f64) {
            let outcome = |limit: f64| {
                judge(("main", ""), &runs("a", 10.0), &runs("b", tpot), &[gate(&format!("tpot<+{limit}%"))]).outcome
            };
            prop_assert!(outcome(limit + more) <= outcome(limit));
            prop_assert!(tpot > 10.0 || outcome(limit) != GateOutcome::Violated);
        }
    }
}
