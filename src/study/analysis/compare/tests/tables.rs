//! Pivot and tables of pairs.

use super::*;
use crate::analysis::published_of;

#[test]
fn a_pivot_names_the_fastest_of_each_setting() {
    let cell = |name: &str, batch, step_ms| {
        let change = |spec: &mut Spec| {
            (spec.architecture, spec.batch) = (name.parse().unwrap(), batch);
        };
        sim_record(&format!("{name}-{batch}"), change, 0.0, step_ms)
    };
    let records = [
        [("ladder", 1.5), ("parallel", 1.0), ("upper-bound", 0.5)]
            .map(|(name, ms)| cell(name, 1, ms))
            .to_vec(),
        // within the simulator's error of each other, then of standard
        [("ladder", 1.5), ("parallel", 1.49)].map(|(name, ms)| cell(name, 4, ms)).to_vec(),
        vec![cell("ladder", 16, 1.98), cell("upper-bound", 16, 1.9)],
        vec![cell("ladder", 64, 2.5)],
        // within the simulator's error of the fastest and of standard
        [("ladder", 1.87), ("parallel", 1.92)].map(|(name, ms)| cell(name, 256, ms)).to_vec(),
        [1, 4, 16, 64, 256].map(|batch| cell("standard", batch, 2.0)).to_vec(),
    ];
    let report = compare(&records.concat(), "architecture").unwrap();
    let pivot = Pivot::new(&report, &Vec::from_iter(0..report.pairs.len()));
    assert_eq!(pivot.values, ["ladder", "parallel", "upper-bound"], "limits last");
    let words: Vec<(u32, String)> = pivot
        .rows
        .iter()
        .map(|row| {
            let words: Vec<String> = (0..3).map(|column| row.words(&report, column)).collect();
            (report.pairs[row.known().next().unwrap()].side.spec.batch, words.join(" "))
        })
        .collect();
    let of = |batch| words.iter().find(|(of, _)| *of == batch).map(|(_, words)| words.as_str());
    assert_eq!(words.len(), 5);
    assert_eq!(of(256), Some("★≈1.07x ★≈1.04x -"), "a tie with the fastest");
    assert_eq!(of(1), Some("1.33x ★2.00x 4.00x"), "a limit never wins");
    assert_eq!(of(4), Some("★≈1.33x ★≈1.34x -"));
    assert_eq!(of(16), Some("★≈1.01x - 1.05x"));
    assert_eq!(of(64), Some("0.80x - -"));
    assert_eq!(pivot.wins(), "fastest of 5 settings: ladder 2, parallel 3");
    let wins: Vec<usize> = pivot.rows.iter().map(|row| usize::from(row.baseline_wins)).collect();
    assert_eq!(wins.iter().sum::<usize>(), 1, "standard wins where all are slower");
    let table = pivot_table(&report, &pivot).csv(::table::render::Sourced::ByRow);
    assert_eq!(table.lines().count(), 6);
    assert!(
        table.contains("baseline_tpot_ms,ladder_tokens_per_s_ratio,ladder_tokens_per_s_ratio_ci95_low,"),
        "{table}"
    );
    assert!(table.contains("parallel ≈ ladder") && table.contains("ladder ≈ parallel"), "{table}");
    assert!(table.contains("standard ≈ ladder"), "a tie with the baseline: {table}");
}

/// Several experiments have few settings in common, and a narrow window would cut those in which the cells differ.
#[test]
fn rows_name_the_settings_in_which_cells_differ() {
    let cell = |name: &str, (model, prompt_tokens, tp): (&str, u32, u32), step_ms| {
        let change = |spec: &mut Spec| {
            (spec.architecture, spec.tp) = (name.parse().unwrap(), tp);
            (spec.model, spec.prompt_tokens) = (model.into(), prompt_tokens);
        };
        sim_record(&format!("{name}-{model}-{tp}"), change, 0.0, step_ms)
    };
    let pair = |of| [cell("standard", of, 10.0), cell("ladder", of, 8.0)];
    let all = [("llama-3-8b", 1024, 2), ("llama-3-8b", 1024, 8), ("llama-3-70b", 512, 8)];
    let report = compare(&all.map(pair).concat(), "architecture").unwrap();
    let pivot = pivot_table(&report, &Pivot::new(&report, &[0, 1, 2]));
    for table in [&pivot, &pairs_table(&report)] {
        let text = table.aligned();
        for row in ["tp2 llama-3-8b ", "tp8 llama-3-8b ", "tp8 llama-3-70b "] {
            assert!(text.contains(row) && !text.contains("b1 p2p-on"), "{text}");
        }
        let csv = table.csv(::table::render::Sourced::ByRow);
        assert!(csv.contains(&report.pairs[0].matched), "files have all settings: {csv}");
    }
    let common = common_settings(&report);
    assert!(common.split(' ').any(|word| word == "b1") && !common.contains("llama"), "{common}");
    // what the model determines is no setting of the others
    assert!(!pivot.aligned().contains("prompt"), "{}", pivot.aligned());
}

#[test]
fn a_prefill_alone_compares_first_tokens() {
    let cell = |name: &str, ms| {
        let change = |spec: &mut Spec| {
            (spec.architecture, spec.output_tokens) = (name.parse().unwrap(), 1);
        };
        sim_record(name, change, ms, 0.0)
    };
    let report = compare(&[cell("standard", 30.0), cell("ladder", 20.0)], "architecture").unwrap();
    assert_eq!((report.latency(), report.pairs[0].latencies_ms()), ("TTFT", [30.0, 20.0]));
    let table = pairs_table(&report).aligned();
    for part in ["baseline TTFT ms", "30.00", "20.00", "speedup (TTFT)", "1.500"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains("TPOT"), "{table}");
}

#[test]
fn simulated_speedups_say_what_was_published_and_by_how_much_they_miss() {
    let published = |name| published_of(&paper(name, 1, 1.0).spec).unwrap().tokens_per_s.unwrap();
    let ratio = published("ladder") / published("standard");
    let report =
        compare(&[paper("standard", 1, 13.0), paper("ladder", 1, 9.0)], "architecture").unwrap();
    let (pair, of) = (&report.pairs[0], report.pairs[0].published_speedup.unwrap());
    assert!((of.value - ratio).abs() < 1e-12);
    assert!((of.error_pct - 100.0 * (pair.speedup / ratio - 1.0)).abs() < 1e-9);
    assert_eq!(of.ratio(), format!("{ratio:.2}x, {:+.1} %", of.error_pct));
    assert_eq!(of.contradicting(), "");
    assert!(pairs_table(&report).aligned().contains("vs published %"));
    let pivot = Pivot::new(&report, &[0]);
    assert_eq!(pivot.rows[0].words(&report, 0), format!("★†{:.2}x", pair.speedup));
    // other engines and machines were not published
    let native = [paper("standard", 1, 13.0), paper("ladder", 1, 9.0)]
        .map(|record| Record { spec: Spec { stack: "native".into(), ..record.spec.clone() }, ..record });
    let report = compare(&native, "architecture").unwrap();
    assert_eq!(report.pairs[0].published_speedup, None);
    assert!(!pairs_table(&report).aligned().contains("published"));
}
