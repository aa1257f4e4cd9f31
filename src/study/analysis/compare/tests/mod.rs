//! Comparisons of made-up cells whose ratios are known.

mod heat;
mod matching;
mod tables;

use super::*;
use crate::analysis::compare::comparison::LEVEL;
use ::table::testing::{record, sim_record};
use ::table::{Provenance, Record, Spec};
use plan::{Architecture, LayerSet};

const LADDER: Architecture = Architecture::Ladder(LayerSet::All);

/// Measured rounds of a cell: each round slower than the one before by half, all cells alike.
fn rounds(name: &str, change: impl Fn(&mut Spec), step_ms: f64) -> Vec<Record> {
    (0..3u32)
        .map(|round| {
            let drift = 1.0 + 0.5 * f64::from(round);
            let sample = |noise: f64| (0.0, step_ms * drift * noise);
            let samples = [sample(0.99), sample(1.0), sample(1.01)];
            record(&format!("{name}-{round}"), &change, round, &samples)
        })
        .collect()
}

fn architecture(architecture: &Architecture) -> impl Fn(&mut Spec) {
    move |spec| spec.architecture = architecture.clone()
}

/// Rounds of upper-bound, of standard, and of ladder.
fn with_ladder(upper_bound_ms: f64) -> Vec<Record> {
    let [bound, standard] = [Architecture::UpperBound, Architecture::Standard];
    [
        rounds("u", architecture(&bound), upper_bound_ms),
        rounds("s", architecture(&standard), 2.0),
        rounds("l", architecture(&LADDER), 1.2),
    ]
    .concat()
}

#[test]
fn architectures_against_standard_with_hidden_share() {
    let report = compare(&with_ladder(1.0), "architecture").unwrap();
    assert_eq!((report.comparisons, report.pairs.len()), (2, 2));
    let ladder = report.pairs.iter().find(|p| p.value == "ladder").unwrap();
    assert_eq!((ladder.baseline.as_str(), ladder.baseline_run.as_str()), ("standard", "s-2"));
    assert_eq!(ladder.matched, "tiny tp2 b1 p2p-on cpu");
    assert!((ladder.speedup - 2.0 / 1.2).abs() < 1e-9);
    let [low, high] = ladder.speedup_ci95.unwrap();
    assert!(low > 1.5 && high < 1.8, "the rounds' drift is in both and cancels: {low}..{high}");
    assert!(ladder.differs);
    assert!((ladder.hidden_share.unwrap() - 0.8).abs() < 1e-9);
    let [low, high] = ladder.hidden_share_ci95.unwrap();
    assert!(low < 0.8 && 0.8 < high && low > 0.6 && high < 1.0, "{low}..{high}");
}

/// Each round is half slower than the one before, and two cells lack the last one.
#[test]
fn in_the_middle_of_a_sweep_all_numbers_of_a_pair_are_of_the_rounds_that_both_have() {
    let two = |mut rounds: Vec<Record>| {
        rounds.truncate(2);
        rounds
    };
    let records = [
        two(rounds("u", architecture(&Architecture::UpperBound), 1.0)),
        rounds("s", architecture(&Architecture::Standard), 2.0),
        two(rounds("l", architecture(&LADDER), 1.2)),
    ]
    .concat();
    let report = compare(&records, "architecture").unwrap();
    let ladder = report.pairs.iter().find(|pair| pair.value == "ladder").unwrap();
    assert!((ladder.speedup - 2.0 / 1.2).abs() < 1e-9);
    assert!((ladder.baseline_tpot_ms / ladder.tpot_ms - 2.0 / 1.2).abs() < 1e-9, "{ladder:?}");
    assert_eq!((ladder.baseline_side.rounds, ladder.side.rounds), (2, 2));
    assert!((ladder.hidden_share.unwrap() - 0.8).abs() < 1e-9, "{:?}", ladder.hidden_share);
    assert!(report.pairs.iter().all(|pair| pair.baseline_run == "s-2"), "one row: {report:?}");
    assert!(report.flags.iter().any(|flag| flag.text.contains("of those that both have")));
}

/// Rounds 1 and 2 of standard follow those of ladder by 20 minutes, after the load of the machine has doubled.
#[test]
fn rounds_measured_apart_decide_nothing() {
    let records = |resumed: bool| {
        let mut standard = rounds("s", architecture(&Architecture::Standard), 2.0);
        let mut ladder = rounds("l", architecture(&LADDER), 1.2);
        for (cell, second) in [(&mut standard, 0), (&mut ladder, 30)] {
            for run in cell {
                run.experiment = Some("hide".into());
                let minute = if resumed && second == 0 && run.round > 0 { 20 } else { 0 } + run.round;
                run.created = format!("2026-01-01T00:{minute:02}:{second:02}Z");
            }
        }
        [standard, ladder].concat()
    };
    let report = compare(&records(false), "architecture").unwrap();
    assert_eq!((report.pairs[0].verdict, report.pairs[0].rounds_apart), (PairVerdict::Faster, 0));
    let report = compare(&records(true), "architecture").unwrap();
    let pair = &report.pairs[0];
    assert!((pair.speedup - 2.0 / 1.2).abs() < 1e-9, "{pair:?}");
    assert_eq!((pair.side.rounds, pair.rounds_apart), (1, 2));
    let judged = (pair.verdict, pair.speedup_ci95, pair.p_value);
    assert_eq!(judged, (PairVerdict::Unknown, None, None));
    assert!(
        report.flags.iter().any(|flag| flag
            .text
            .contains("rounds [1, 2] of standard and ladder were measured apart, up to 19 min")),
        "{report:?}"
    );
}

/// The machine is six times as slow in the last round, and ladder 1.6, 2.5 and 1.2 times as fast.
#[test]
fn the_ratio_of_noisy_rounds_is_the_median_of_each_rounds_ratio() {
    let standard = rounds_of("s", &Architecture::Standard, &[16.0, 50.0, 96.0], 3);
    let ladder = rounds_of("l", &LADDER, &[10.0, 20.0, 80.0], 3);
    let report = compare(&[standard, ladder].concat(), "architecture").unwrap();
    let pair = &report.pairs[0];
    assert!((pair.speedup - 1.6).abs() < 1e-9, "not 50 / 20: {pair:?}");
    // of the logarithms: mean -+ 4.3027 x standard deviation / sqrt(3)
    let [low, high] = pair.speedup_ci95.unwrap();
    assert!((low - 0.6731).abs() < 1e-3 && (high - 4.2274).abs() < 1e-3, "{pair:?}");
    assert_eq!(pair.verdict, PairVerdict::Chance, "three such rounds decide nothing");
}

/// Ladder saves most of standard's latency, upper-bound half a percent: that is noise, and no gap of which ladder closes
/// 8000 %.
#[test]
fn an_upper_bound_that_is_not_clearly_faster_leaves_no_gap() {
    for bound in [1.99, 2.0, 2.2] {
        let report = compare(&with_ladder(bound), "architecture").unwrap();
        let ladder = report.pairs.iter().find(|pair| pair.value == "ladder").unwrap();
        assert_eq!((ladder.hidden_share, ladder.hidden_share_ci95), (None, None), "{bound}");
        assert_eq!(ladder.side.gap_closed(), "-");
    }
}

#[test]
fn equal_cells_do_not_differ() {
    let records = [
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 2.0),
    ];
    let pair = compare(&records.concat(), "architecture").unwrap().pairs.remove(0);
    let [low, high] = pair.speedup_ci95.unwrap();
    assert!(low <= 1.0 && 1.0 <= high && !pair.differs);
    assert_eq!(pair.hidden_share, None, "without upper-bound there is no gap to close");
}

#[test]
fn a_measurement_without_interval_is_no_difference_and_a_simulation_needs_none() {
    let one = |name, a: &Architecture, step| record(name, architecture(a), 0, &[(0.0, step)]);
    let few = [one("s", &Architecture::Standard, 2.0), one("l", &LADDER, 1.0)];
    let pair = compare(&few, "architecture").unwrap().pairs.remove(0);
    assert_eq!((pair.speedup, pair.speedup_ci95, pair.differs), (2.0, None, false));

    let sim = |name, a: &Architecture, step| sim_record(name, architecture(a), 0.0, step);
    let records = [
        sim("s", &Architecture::Standard, 2.0),
        sim("l", &LADDER, 1.5),
        sim("u", &Architecture::UpperBound, 1.0),
    ];
    let pair = compare(&records, "architecture").unwrap().pairs.remove(0);
    assert_eq!((pair.speedup_ci95, pair.differs, pair.provenance), (None, true, Provenance::Simulated));
    assert_eq!((pair.hidden_share, pair.hidden_share_ci95), (Some(0.5), None));
}

#[test]
fn more_ranks_that_are_slower_are_flagged() {
    let tp = |name, tp, step| sim_record(name, move |s| s.tp = tp, 0.0, step);
    let report = compare(&[tp("a", 2, 1.0), tp("b", 4, 0.9), tp("c", 8, 1.1)], "tp").unwrap();
    assert_eq!(report.pairs.len(), 2);
    assert_eq!(report.flags.len(), 1);
    assert!(report.flags[0].text.contains("TP 8 is slower than TP 4"), "{:?}", report.flags);
}

#[test]
fn recorders_are_not_mixed_and_missing_baselines_are_said() {
    let with = |name, a: &Architecture, recorder: &str| {
        let mut record = record(name, architecture(a), 0, &[(0.0, 1.0)]);
        record.environment.insert("recorder".into(), recorder.into());
        record.overlap = Some(::table::Overlap { overlap_pct: Some(50.0), ..Default::default() });
        record
    };
    let records = [with("s", &Architecture::Standard, "events"), with("l", &LADDER, "cupti")];
    let report = compare(&records, "architecture").unwrap();
    assert_eq!((report.pairs[0].overlap_pct, report.pairs[0].baseline_overlap_pct), (None, None));
    assert!(
        report.flags.iter().any(|f| f.text.contains("recorded in different ways")),
        "{:?}",
        report.flags
    );

    let by = |recorder| {
        let ladder = with("l", &LADDER, recorder);
        let standard = with("s", &Architecture::Standard, "stamps");
        compare(&[standard, ladder], "architecture").unwrap().pairs[0].overlap_pct
    };
    assert_eq!(by("stamps"), Some(50.0));
    assert_eq!((by("cuda events around modules"), by("cupti")), (None, None));

    let report = compare(&records[1..], "architecture").unwrap();
    assert!(report.pairs.is_empty());
    let flags: Vec<&str> = report.flags.iter().map(|flag| flag.text.as_str()).collect();
    assert_eq!(flags, ["tiny tp2 b1 p2p-on cpu: no 'standard' to compare ladder with"]);
}

#[test]
fn a_hidden_share_is_against_standard_whatever_the_baseline() {
    let parallel = rounds("p", architecture(&Architecture::Parallel), 1.5);
    let records = [with_ladder(1.0), parallel].concat();
    let report = Cells::from_records(&records).compare(&Axis::ARCHITECTURE, Some("ladder")).unwrap();
    let parallel = report.pairs.iter().find(|p| p.value == "parallel").unwrap();
    assert_eq!(parallel.baseline, "ladder");
    assert!((parallel.speedup - 0.8).abs() < 1e-9);
    assert!((parallel.hidden_share.unwrap() - 0.5).abs() < 1e-9);
    assert!((parallel.baseline_side.hidden_share.unwrap() - 0.8).abs() < 1e-9);
    assert!((parallel.side.hidden_share.unwrap() - 0.5).abs() < 1e-9);
}

#[test]
fn sides_say_what_communication_costs() {
    let overlap = |compute_ms, comm_ms, exposed_comm_ms| ::table::Overlap {
        compute_ms,
        comm_ms,
        exposed_comm_ms,
        overlap_pct: Some(100.0 * (1.0 - exposed_comm_ms / comm_ms)),
        ..Default::default()
    };
    let mut standard = sim_record("s", architecture(&Architecture::Standard), 1.0, 2.0);
    let mut ladder = sim_record("l", architecture(&LADDER), 1.0, 1.5);
    // four steps
    (standard.overlap, ladder.overlap) = (Some(overlap(5.0, 3.0, 3.0)), Some(overlap(5.4, 3.0, 0.6)));
    let pair = compare(&[standard, ladder], "architecture").unwrap().pairs.remove(0);
    let (a, b) = (&pair.baseline_side, &pair.side);
    assert_eq!((a.comm_ms, a.exposed_comm_ms, a.exposed_pct), (Some(3.0), Some(3.0), Some(37.5)));
    assert_eq!((b.comm_ms, b.exposed_comm_ms, b.exposed_pct), (Some(3.0), Some(0.6), Some(10.0)));
    assert_eq!((a.samples, a.rounds, b.decode_ms), (1, 1, 6.0));
}

#[test]
fn many_comparisons_are_counted_and_adjusted_for() {
    // 20 variables' values: one that matters, the others alike but for their noise
    let records: Vec<Record> = (0..20)
        .flat_map(|value: u32| {
            let step = if value == 7 { 1.0 } else { 2.0 };
            let change = move |s: &mut Spec| {
                s.env.insert("NCCL_NTHREADS".into(), value.to_string());
            };
            rounds(&value.to_string(), change, step)
        })
        .collect();
    let report = compare(&records, "NCCL_NTHREADS").unwrap();
    assert_eq!((report.comparisons, report.adjusted.tested), (19, 19));
    assert_eq!((report.differ, report.adjusted.differ), (1, 1));
    for pair in &report.pairs {
        let (p, adjusted) = (pair.p_value.unwrap(), pair.adjusted_p.unwrap());
        assert!(adjusted >= p && adjusted <= 1.0);
        assert_eq!(pair.differs_adjusted, Some(adjusted <= LEVEL));
        assert_eq!(pair.differs, pair.value == "7");
    }
}

/// Rounds of a cell with these step latencies (ms), and equally long samples within a round.
fn rounds_of(name: &str, of: &Architecture, steps_ms: &[f64], samples: usize) -> Vec<Record> {
    let rounds = (0..).zip(steps_ms);
    let record = |(round, step_ms): (u32, &f64)| {
        record(&format!("{name}-{round}"), architecture(of), round, &vec![(0.0, *step_ms); samples])
    };
    rounds.map(record).collect()
}

/// Student's t of the logarithms of 2.0 / 1.2, 2.2 / 1.5, 2.4 / 1.4 and 2.1 / 1.3: 14.1 with three degrees of freedom, and of
/// the first three: 9.95 with two.
#[test]
fn a_p_value_comes_from_the_rounds_however_many_samples_they_have() {
    let pair = |rounds: usize, samples: usize| {
        let standard = rounds_of("s", &Architecture::Standard, &[2.0, 2.2, 2.4, 2.1][..rounds], samples);
        let ladder = rounds_of("l", &LADDER, &[1.2, 1.5, 1.4, 1.3][..rounds], samples);
        compare(&[standard, ladder].concat(), "architecture").unwrap().pairs.remove(0)
    };
    for samples in [3, 30] {
        let three = pair(3, samples);
        let [p, adjusted] = [three.p_value, three.adjusted_p].map(Option::unwrap);
        assert!((p - 0.00995).abs() < 1e-4 && adjusted == p, "{p} {adjusted}");
        assert_eq!((three.differs, three.verdict), (true, PairVerdict::Faster), "as its interval");
        let four = pair(4, samples).p_value.unwrap();
        assert!((four - 0.000775).abs() < 1e-5, "{four}");
        let two = pair(2, samples);
        assert_eq!((two.p_value, two.verdict), (None, PairVerdict::Unknown), "two rounds show nothing");
    }
}

#[test]
fn measured_cells_tie_unless_their_own_paired_ratio_excludes_one() {
    let fastest_with = |parallel_ms: [f64; 3]| -> Vec<String> {
        let records = [
            rounds_of("s", &Architecture::Standard, &[2.0; 3], 3),
            rounds_of("l", &LADDER, &[1.26, 1.2, 1.14], 3),
            rounds_of("p", &Architecture::Parallel, &parallel_ms, 3),
        ];
        let report = compare(&records.concat(), "architecture").unwrap();
        let pairs: Vec<&Comparison> = report.pairs.iter().collect();
        assert!(pairs.iter().all(|pair| pair.verdict == PairVerdict::Faster), "{report:?}");
        let pivot = Pivot::new(&report, &[0, 1]);
        let fastest = fastest(&pairs);
        assert_eq!(pivot.rows[0].fastest.len(), fastest.len());
        fastest.into_iter().map(|pair| pair.value.clone()).collect()
    };
    assert_eq!(fastest_with([1.15, 1.21, 1.27]), ["ladder", "parallel"], "1 % slower, within noise");
    // rounds that vary alike
    assert_eq!(fastest_with([1.29, 1.23, 1.17]), ["ladder"]);
}

#[test]
fn simulations_have_no_p_value() {
    let sim = |name, a: &Architecture, step| sim_record(name, architecture(a), 0.0, step);
    let report =
        compare(&[sim("s", &Architecture::Standard, 2.0), sim("l", &LADDER, 1.0)], "architecture")
            .unwrap();
    assert_eq!((report.adjusted.tested, report.differ), (0, 1));
    assert_eq!((report.pairs[0].p_value, report.pairs[0].differs_adjusted), (None, None));
}

/// Runs whose ranks shared a GPU are as if they were not there, also beside measured runs of the same cells.
#[test]
fn nothing_is_computed_from_runs_that_shared_a_gpu() {
    use crate::analysis::{ComparedSide, comparable, judge, pareto, side_by_side};
    let measured = [
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 1.2),
    ]
    .concat();
    let shared = |record: &Record| Record {
        provenance: Provenance::SharedGpu,
        metrics: record.metrics.clone().map(|m| ::table::Metrics { tokens_per_s: 1e9, ..m }),
        run: format!("shared-{}", record.run),
        ..record.clone()
    };
    let checks: Vec<Record> = measured.iter().map(shared).collect();
    assert!(checks.iter().all(|record| !record.is_finished() && !record.has_numbers()));
    assert_eq!(compare(&checks, "architecture").unwrap().pairs.len(), 0);
    assert!(comparable(&checks).is_empty() && pareto(&checks).is_empty());
    assert!(crate::calibrate::of_records(&checks).is_empty());
    assert!(::table::hidden_shares(&checks).iter().all(Option::is_none));
    let both = [measured.clone(), checks.clone()].concat();
    let speedup = |records: &[Record]| compare(records, "architecture").unwrap().pairs[0].speedup;
    assert_eq!(speedup(&both), speedup(&measured));
    assert_eq!(pareto(&both).len(), pareto(&measured).len());
    assert!(pareto(&both).iter().all(|point| point.provenance == Provenance::Measured));
    let gates = ["tok/s>-50%".parse().unwrap()];
    assert!(judge(("base", ""), &measured, &checks, &gates).rows.is_empty());
    let [a, b] = [0, measured.len()].map(ComparedSide::Run);
    let beside = side_by_side(&both, a, b).unwrap();
    assert!(beside.measures.is_empty() && beside.speedup.is_none());
    assert!(
        beside.warnings.iter().any(|said| said.contains("it ran with LADDERSCOPE_SHARED_GPU=1")),
        "{:?}",
        beside.warnings
    );
}

/// The paper's own effect, slower all-reduces among more ranks, is not suspicious.
#[test]
fn more_ranks_slower_by_their_exposed_communication_are_not_flagged() {
    let cell = |tp, step_ms: f64, exposed_ms: f64| {
        let mut record = sim_record(&format!("{tp}"), move |spec| spec.tp = tp, 0.0, step_ms);
        let steps = f64::from(record.spec.output_tokens - 1);
        record.overlap =
            Some(::table::Overlap { exposed_comm_ms: exposed_ms * steps, ..Default::default() });
        record
    };
    let flags = |high: Record| compare(&[cell(4, 5.0, 1.0), high], "tp").unwrap().flags;
    assert_eq!(flags(cell(8, 6.0, 3.0)), []);
    let flags = flags(cell(8, 6.0, 1.5));
    assert!(flags[0].text.contains("TP 8 is slower than TP 4"), "{flags:?}");
}

/// A cell that was published: 70B on H100s with the paper's engine.
fn paper(name: &str, batch: u32, step_ms: f64) -> Record {
    let change = |spec: &mut Spec| {
        (spec.model, spec.stack) = ("llama-3-70b".into(), "gpt-fast".into());
        (spec.hardware, spec.dtype) = ("h100_sxm".into(), plan::DType::F16);
        (spec.architecture, spec.tp, spec.batch) = (name.parse().unwrap(), 8, batch);
        (spec.prompt_tokens, spec.output_tokens) = (1024, 512);
    };
    sim_record(&format!("{name}-{batch}"), change, 80.0, step_ms)
}

/// As on the what-if screen.
#[test]
fn simulated_cells_tie_within_the_band_of_the_two_whatever_else_is_compared() {
    let near = [paper("standard", 1, 10.0), paper("ladder", 1, 9.75)];
    let report = compare(&near, "architecture").unwrap();
    assert_eq!(report.band(None).unwrap().words(), "simulator error 2 %");
    assert_eq!(report.pairs[0].verdict, PairVerdict::Faster);
    // cells without a measured speedup, in another setting
    let far = [paper("standard", 128, 10.0), paper("ladder", 128, 9.75)];
    let report = compare(&[&near[..], &far[..]].concat(), "architecture").unwrap();
    let verdicts: Vec<PairVerdict> = report.pairs.iter().map(|pair| pair.verdict).collect();
    assert_eq!(verdicts, [PairVerdict::Faster, PairVerdict::TooClose]);
    assert_eq!(report.pairs[1].band(), Some(TieBand::UNKNOWN));
    assert_eq!(report.within(&report.pairs), "within 2 to 5 %");
    assert_eq!(report.within(&report.pairs[..1]), "within 2 %");
    let counts = report.counts();
    assert!(
        counts.ends_with("1 too close to call (simulator error unknown, ties within 5 %)"),
        "{counts}"
    );
    // two that tie with the best: one of them is slower than another by more than the error of these two
    let rivals = [
        paper("standard", 1, 12.0),
        paper("ladder", 1, 10.0),
        paper("parallel", 1, 9.75),
        paper("stale:3", 1, 9.6),
    ];
    let report = compare(&rivals, "architecture").unwrap();
    let pivot = Pivot::new(&report, &[0, 1, 2]);
    let named = |run: &str| report.pairs.iter().find(|pair| pair.run == run).unwrap();
    let [ladder, parallel, stale] = ["ladder-1", "parallel-1", "stale:3-1"].map(named);
    assert!(ladder.ties_with(stale) && parallel.ties_with(stale) && parallel.leads(ladder));
    assert_eq!(pivot.rows[0].winners(&report), ["stale:3", "parallel"]);
    // measured pairs have their intervals instead
    let measured = [
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 1.95),
    ];
    let report = compare(&measured.concat(), "architecture").unwrap();
    assert_eq!((report.band(None), report.pairs[0].band()), (None, None));
    assert_eq!(report.pairs[0].verdict, PairVerdict::Faster, "{report:?}");
}

#[test]
fn first_tokens_of_mixtures_tie_within_the_error_of_measured_ones() {
    let cell = |name: &str, ms| {
        let change = |spec: &mut Spec| {
            (spec.model, spec.ep) = ("gpt-oss-120b".into(), 2);
            (spec.architecture, spec.output_tokens) = (name.parse().unwrap(), 1);
        };
        sim_record(name, change, ms, 0.0)
    };
    let cells = [cell("standard", 30.0), cell("ladder", 24.0), cell("parallel", 20.0)];
    let report = compare(&cells, "architecture").unwrap();
    assert_eq!(report.band(None).unwrap().words(), "TTFT error 38 % in serving_moe");
    let verdicts: Vec<PairVerdict> = report.pairs.iter().map(|pair| pair.verdict).collect();
    assert_eq!(
        verdicts,
        [PairVerdict::TooClose, PairVerdict::Faster],
        "1.25x is within 38 %, 1.5x is not"
    );
}

/// All rounds of upper-bound follow those of standard and ladder by 40 minutes; the machine was faster then.
#[test]
fn an_upper_bound_that_was_measured_apart_decides_nothing() {
    let records = |pause: u32| {
        let mut records = with_ladder(1.3);
        for run in &mut records {
            let is_bound = run.spec.architecture == Architecture::UpperBound;
            run.experiment = Some("hide".into());
            run.created =
                format!("2026-01-01T00:{:02}:00Z", run.round + if is_bound { pause } else { 0 });
        }
        records
    };
    let report = compare(&records(0), "architecture").unwrap();
    let pivot = |report: &ComparisonReport| {
        let row = Pivot::new(report, &[0, 1]).rows.remove(0);
        [0, 1].map(|column| row.marks(report, column))
    };
    let ladder = |report: &ComparisonReport| {
        report.pairs.iter().find(|pair| pair.value == "ladder").unwrap().clone()
    };
    assert!(ladder(&report).is_above_limit && ladder(&report).hidden_share > Some(1.0), "{report:?}");
    assert_eq!(pivot(&report), ["!", "!"], "ladder is faster than its limit");
    let report = compare(&records(40), "architecture").unwrap();
    assert_eq!(pivot(&report), ["★", "?"]);
    let of = ladder(&report);
    assert!(!of.is_above_limit && of.is_gap_apart && of.hidden_share.is_none(), "{of:?}");
    let bound = report.pairs.iter().find(|pair| pair.is_limit()).unwrap();
    assert_eq!((bound.hidden_share, bound.baseline_side.hidden_share), (None, None));
    assert_eq!(bound.apart_from("standard").as_deref(), Some("40 min after standard"));
}
