//! Answers to made-up results: clear ones, ties, contradictions, and what did not run.

use serde_json::json;

use super::*;
use plan::Architecture;
use plan::LayerSet;
use table::render::Sourced;
use table::testing::{evaluated, record, sim_record};
use table::{Collective, Link, Overlap, P2p, Record, Spec, Status};

const LADDER: Architecture = Architecture::Ladder(LayerSet::All);

fn cell(name: &str, architecture: &Architecture, p2p: P2p, step_ms: f64) -> Vec<Record> {
    let change = |spec: &mut Spec| {
        (spec.architecture, spec.p2p) = (architecture.clone(), p2p);
        let alpha_us = if p2p == P2p::On { 200.0 } else { 600.0 };
        spec.link = Link::Emulated { alpha_us, gb_s: 5.0 };
    };
    let round = |round| {
        let samples = [0.99, 1.0, 1.01].map(|noise| (0.0, step_ms * noise));
        record(&format!("{name}-{round}"), change, round, &samples)
    };
    (0..3).map(round).collect()
}

/// The quickstart's six cells with these step times: standard, ladder, upper-bound; on, then off.
fn quickstart(on: [f64; 3], off: [f64; 3]) -> Vec<Record> {
    let of = |p2p: P2p, steps: [f64; 3]| {
        let all = [Architecture::Standard, LADDER, Architecture::UpperBound].into_iter().zip(steps);
        let named =
            move |(a, step): (Architecture, f64)| cell(&format!("{a}-{}", p2p.as_str()), &a, p2p, step);
        all.flat_map(named).collect::<Vec<_>>()
    };
    [of(P2p::On, on), of(P2p::Off, off)].concat()
}

/// Simulated cell.
fn sim(name: &str, architecture: Architecture, tp: u32, step_ms: f64) -> Record {
    sim_record(name, |spec| (spec.architecture, spec.tp) = (architecture.clone(), tp), 0.0, step_ms)
}

/// Simulated cell of the paper's model, engine and machine.
fn paper(architecture: &Architecture, tp: u32, batch: u32, step_ms: f64) -> Record {
    let change = |spec: &mut Spec| {
        (spec.model, spec.stack) = ("llama-3-70b".into(), "gpt-fast".into());
        (spec.hardware, spec.dtype) = ("h100_sxm".into(), plan::DType::F16);
        (spec.architecture, spec.tp, spec.batch) = (architecture.clone(), tp, batch);
        (spec.prompt_tokens, spec.output_tokens) = (1024, 512);
    };
    sim_record(&format!("{architecture}-{tp}-{batch}"), change, 80.0, step_ms)
}

/// Changes the decode latency of all samples of a run.
fn slow_down(record: &mut Record, factor: f64) {
    let samples = std::sync::Arc::make_mut(&mut record.samples);
    for sample in samples {
        sample.decode_ms *= factor;
        sample.steps_ms.iter_mut().for_each(|step_ms| *step_ms *= factor);
    }
}

fn one(records: &[Record]) -> Answer {
    let mut answers = Answer::from_records(records.to_vec());
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

/// Headline, bullets and details.
fn said(answer: &Answer) -> Vec<String> {
    let lines = [&answer.headline].into_iter().chain(&answer.bullets).chain(&answer.details);
    lines.cloned().collect()
}

#[test]
fn a_clear_result_says_who_by_how_much_and_which_gap_is_closed() {
    let answer = one(&quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]));
    assert!(
        answer.basis.starts_with("emulated-link, 9 samples a cell, [95 % CI] · 6 cells: tiny "),
        "{}",
        answer.basis
    );
    let links = " · all-reduce: 200 us + bytes / 5 GB/s with P2P, 600 us + bytes / 5 GB/s without";
    let mut turned = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    turned.reverse();
    assert!(one(&turned).basis.ends_with(links), "in whatever order runs come");
    let common = answer.basis.strip_suffix(links).expect("what the links stand for");
    assert!(!common.contains("p2p") && common.contains("tp2"), "{common}");
    let text = said(&answer).join("\n");
    assert!(answer.headline.starts_with("Ladder is 1.14x ["), "{text}");
    assert!(answer.headline.contains("(P2P on) and 1.40x ["), "{text}");
    assert!(answer.headline.ends_with("] (P2P off) faster than standard in tokens/s"), "{text}");
    assert!(
        answer.bullets[0].starts_with("P2P off vs on, tokens/s: ladder 0.8")
            && answer.bullets[0].contains("], standard 0.71x ["),
        "{text}"
    );
    let closed =
        answer.details.iter().find(|text| text.starts_with("Ladder closes")).expect("it is known");
    assert!(closed.starts_with("Ladder closes 75 % ["), "3 of 4 ms, and 10 of 15: {text}");
    assert!(closed.contains("67 % ["), "{text}");
    let card: Vec<CardLine> = answer.card().take(2).map(|(line, _)| line).collect();
    assert_eq!(card, [CardLine::Headline, CardLine::Basis(answer.provenance)], "trust comes next");
    assert!(!text.contains("upper-bound is fastest") && !text.contains("link"), "{text}");
    let table = answer.table.aligned();
    assert!(table.contains("tok/s vs standard"), "{table}");
    assert_eq!(table.matches("the limit, varies with P2P").count(), 2, "20 ms and 21 ms: {table}");
    assert_eq!((answer.table.len(), answer.left_out), (6, OmittedRows::default()));
}

#[test]
fn a_tie_is_told_as_one() {
    let answer = one(&quickstart([25.0, 25.0, 21.0], [35.0, 35.0, 20.0]));
    let text = said(&answer).join("\n");
    assert!(
        text.starts_with("No significant difference in any of 2 settings: ladder vs standard"),
        "{text}"
    );
    assert!(
        text.contains("2 of 4 comparisons are not significant: ladder at P2P on, ladder at P2P off."),
        "{text}"
    );
    assert!(text.contains("Ladder closes 0 %"), "{text}");
}

#[test]
fn too_few_samples_for_intervals_are_called_so() {
    // one round of three samples each
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    records.retain(|record| record.round == 0);
    let answer = one(&records);
    let basis = "emulated-link, 3 samples a cell, too few for intervals · ";
    assert!(answer.basis.starts_with(basis), "{}", answer.basis);
    let text = said(&answer).join("\n");
    assert!(
        text.starts_with(
            "Undecided after 1 round, more rounds settle it: ladder 1.14x (P2P on) and 1.40x (P2P off) "
        ),
        "{text}"
    );
    assert!(text.contains("75 % (P2P on)"), "{text}");
    assert!(text.contains("have too few samples for an interval"), "{text}");
}

/// Ladder without P2P was cancelled after its first round and resumed half an hour later.
#[test]
fn a_cell_measured_apart_has_no_numbers_beside_those_of_other_rounds() {
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    for (at, record) in (0..).zip(&mut records) {
        record.experiment = Some("hide".into());
        let is_resumed =
            record.spec.architecture == LADDER && record.spec.p2p == P2p::Off && record.round > 0;
        let minute = if is_resumed { 30 } else { 0 } + record.round;
        record.created = format!("2026-01-01T00:{minute:02}:{:02}Z", at % 60);
    }
    let answer = one(&records);
    assert!(answer.headline.starts_with("Ladder is 1.14x ["), "{answer:?}");
    assert!(answer.headline.ends_with("; not compared in 1 of 2 settings"), "{answer:?}");
    assert!(!said(&answer).join(" ").contains("1.40x"), "{answer:?}");
    let table = answer.table.csv(Sourced::NoRuns);
    let apart: Vec<&str> = table.lines().filter(|line| line.contains("30 min after standard")).collect();
    let [row] = &apart[..] else { panic!("{table}") };
    assert!(row.contains("ladder") && !row.contains('.'), "{row}");
    let why = "Rounds measured apart do not count: 1 of 4 comparisons affected, ladder by up to 30 min after standard.";
    assert!(answer.bullets[0].starts_with(why), "{answer:?}");
}

/// As above, without a lead: the resumed cell, slow in its last round, is no longer compared.
#[test]
fn a_noisy_result_stays_inconclusive_if_its_noisy_cell_is_measured_apart() {
    let headline = |is_slow: bool| {
        let mut records = quickstart([25.0, 25.0, 21.0], [35.0, 35.0, 20.0]);
        for (at, record) in (0..).zip(&mut records) {
            record.experiment = Some("hide".into());
            let is_own = record.spec.architecture == LADDER && record.spec.p2p == P2p::Off;
            let minute = if is_own && record.round > 0 { 30 } else { 0 } + record.round;
            record.created = format!("2026-01-01T00:{minute:02}:{:02}Z", at % 60);
            if is_slow && record.run == "ladder-off-2" {
                slow_down(record, 1.6);
            }
        }
        one(&records).headline
    };
    let noisy = "Ladder against standard: undecided at TP 2, batch 1, P2P on, 3 rounds; hiding could bring at most ≈1.19x; run again \
                 on an idle machine: rounds of ladder vary by 1.60x, ";
    assert!(headline(true).starts_with(noisy), "{}", headline(true));
    assert_eq!(
        headline(false),
        "No significant difference at P2P on: ladder vs standard; not compared in 1 of 2 settings"
    );
}

/// Of two comparisons, one has an interval that excludes 1, but no more than chance gives.
#[test]
fn a_difference_that_is_chance_among_several_says_so() {
    let mut records = quickstart([25.0, 25.0, 21.0], [35.0, 35.0, 20.0]);
    records.retain(|record| record.spec.architecture != Architecture::UpperBound);
    for record in records.iter_mut().filter(|record| record.run.starts_with("ladder-off")) {
        let speedup = [1.10, 1.15, 1.20][record.round as usize % 3];
        slow_down(record, 1.0 / speedup);
    }
    let answer = one(&records);
    assert!(answer.headline.starts_with("No significant difference in any of 2 settings"), "{answer:?}");
    let table = answer.table.csv(Sourced::NoRuns);
    assert_eq!(table.matches(",undecided among 2").count(), 1, "{table}");
    let text = said(&answer).join("\n");
    let why = "2 of 2 comparisons are not significant (Benjamini-Hochberg, 2 tests): ladder at P2P on, ";
    assert!(text.contains(why), "{text}");
}

/// The headline has the largest gain of all settings, which may not be the one in question.
#[test]
fn the_gain_with_each_all_reduce_is_named() {
    let cell = |architecture: &str, collective: &str, step_ms| {
        let change = |spec: &mut Spec| {
            spec.architecture = architecture.parse().unwrap();
            (spec.tp, spec.collective) = (8, collective.parse().unwrap());
        };
        sim_record(&format!("{architecture}-{collective}"), change, 0.0, step_ms)
    };
    let records = [
        cell("standard", "nccl", 15.0),
        cell("ladder", "nccl", 10.0),
        cell("standard", "one-shot", 11.0),
        cell("ladder", "one-shot", 10.0),
    ];
    let answer = one(&records);
    assert!(answer.headline.contains("1.50x (nccl) and 1.10x (one-shot)"), "{}", answer.headline);
    assert_eq!(answer.bullets[0], "Ladder's largest gain by collective: nccl 1.50x, one-shot 1.10x.");
}

/// A cell that failed has a row with its status, one that never ran a bullet.
#[test]
fn cells_without_numbers_are_named() {
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    let is_bound = |record: &Record| {
        record.spec.architecture == Architecture::UpperBound && record.spec.p2p == P2p::Off
    };
    let bound = records.iter().find(|record| is_bound(record)).expect("it ran").spec.clone();
    records.retain(|record| !is_bound(record));
    let answer = one(&records);
    assert!(answer.bullets.contains(&"No run: upper-bound at P2P off.".to_owned()), "{answer:?}");
    let why = Some("cancelled before it ran".to_owned());
    records.push(Record::new(bound, Status::Interrupted, why));
    let answer = one(&records);
    assert!(!said(&answer).join(" ").contains("No run"), "{answer:?}");
    let table = answer.table.csv(Sourced::NoRuns);
    let row = table.lines().last().expect("a row");
    assert_eq!(row, ",upper-bound,,,,,cancelled", "{table}");
    assert_eq!(answer.table.len(), 6);
}

/// Rounds that differ widely have no median to compare with ratios that are paired by round.
#[test]
fn wide_rounds_show_their_range_beside_ratios_by_round() {
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    let title =
        |records: &[Record]| one(records).table.csv(Sourced::NoRuns).lines().next().unwrap().to_owned();
    assert!(title(&records).contains(",tok/s vs standard,"), "{}", title(&records));
    for record in records.iter_mut().filter(|record| record.spec.p2p == P2p::Off) {
        let factor = [1.0, 1.5, 2.0][record.round as usize % 3];
        slow_down(record, factor);
    }
    assert!(title(&records).contains(",tok/s x by round,"), "{}", title(&records));
    assert!(title(&records).contains(",TPOT by round,"), "{}", title(&records));
    let table = one(&records).table.csv(Sourced::NoRuns);
    assert!(table.lines().any(|row| row.contains("ladder,22,")), "a range as well: {table}");
    let ladder = table.lines().find(|row| row.contains("ladder,25 to 50,1.")).expect(&table);
    assert!(ladder.ends_with("fastest") || ladder.ends_with("faster"), "{table}");
}

/// The median of several settings would hide the one that loses most.
#[test]
fn the_cost_of_p2p_off_is_a_range_with_its_extreme_setting() {
    let cell = |architecture: Architecture, tp: u32, p2p: P2p, step_ms: f64| {
        let change = |spec: &mut Spec| {
            (spec.architecture, spec.tp, spec.p2p) = (architecture.clone(), tp, p2p);
        };
        sim_record(&format!("{architecture}-{tp}-{}", p2p.as_str()), change, 0.0, step_ms)
    };
    let steps = [(2, [20.0, 16.0], [20.0, 16.0]), (8, [10.0, 8.0], [15.0, 10.0])];
    let of = |(tp, on, off): (u32, [f64; 2], [f64; 2])| {
        let cells = [(P2p::On, on), (P2p::Off, off)].map(|(p2p, [standard, ladder])| {
            [cell(Architecture::Standard, tp, p2p, standard), cell(LADDER, tp, p2p, ladder)]
        });
        cells.concat()
    };
    let answer = one(&steps.map(of).concat());
    let lines = said(&answer);
    let line = lines.iter().find(|text| text.starts_with("P2P off vs on, tokens/s: ")).expect("a line");
    for range in ["ladder 0.80x (tp8) to 1.00x", "standard 0.67x (tp8) to 1.00x"] {
        assert!(line.contains(range), "{line}");
    }
}

/// Rounds of a sweep, the newest complete repetition of which counts.
#[test]
fn an_unfinished_repetition_is_named_and_uneven_samples_are_preliminary() {
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    for record in &mut records {
        record.experiment = Some("hide".into());
        record.created = format!("2026-01-01T00:0{}:00Z", record.round);
    }
    let again = |records: &[Record], round: u32| {
        let mut again: Vec<Record> =
            records.iter().filter(|record| record.round == round).cloned().collect();
        for record in &mut again {
            record.run += "-again";
            record.created = format!("2026-01-01T00:1{round}:00Z");
        }
        again
    };
    let first = again(&records, 0);
    let of = |more: &[Record]| one(&[&records[..], more].concat());
    let caveat = "5 runs of a later, unfinished repetition do not count yet; ";
    let answer = of(&first[..5]);
    assert!(answer.bullets[0].starts_with(caveat), "{answer:?}");
    let whole = [first, again(&records, 1), again(&records, 2)].concat();
    assert!(!said(&of(&whole)).join(" ").contains("repetition"));
    // a failed run that was retried replaces none
    let mut retried = records.clone();
    retried[0].created = "2026-01-01T00:09:00Z".into();
    assert!(!said(&one(&retried)).join(" ").contains("repetition"));
    records.retain(|record| record.round == 0 || record.spec.architecture != LADDER);
    let basis = one(&records).basis;
    let preliminary = "emulated-link, 3 to 9 samples a cell (preliminary: compared in the rounds that both have), [95 % CI]";
    assert!(basis.starts_with(preliminary), "{basis}");
}

#[test]
fn ratios_that_the_prefill_does_not_explain_are_put_down_to_noise() {
    let text = |records: &[Record]| said(&one(records)).join(" ");
    let mut noisy = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    assert!(text(&noisy).contains("Tokens/s include the prefill"), "{}", text(&noisy));
    // a stall takes half of each of ladder's samples, which a median of steps does not show
    for record in noisy.iter_mut().filter(|record| record.spec.architecture == LADDER) {
        let steps = record.spec.output_tokens as usize - 1;
        for sample in std::sync::Arc::make_mut(&mut record.samples) {
            let step = sample.decode_ms / steps as f64;
            sample.steps_ms = vec![0.5 * step; steps];
            sample.steps_ms[0] += 0.5 * sample.decode_ms;
        }
    }
    assert!(text(&noisy).contains("Ratios are medians over rounds, so with noise"), "{}", text(&noisy));
    assert!(one(&noisy).table.aligned().contains("tok/s x by round"), "{}", text(&noisy));
}

/// Standard exposes 1 ms more than ladder, and idles for 9 or 0.5 ms more.
#[test]
fn a_gain_that_is_mostly_idle_time_is_put_down_to_the_machine() {
    let text = |idle_ms: f64| {
        let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
        for record in &mut records {
            let is_standard = record.spec.architecture == Architecture::Standard;
            record.overlap = Some(Overlap {
                comm_ms: 4.0,
                exposed_comm_ms: if is_standard { 4.0 } else { 3.0 },
                compute_ms: 10.0,
                idle_ms: if is_standard { idle_ms } else { 0.0 },
                ..Overlap::default()
            });
        }
        said(&one(&records)).join(" ")
    };
    let idle = "Mostly idle time: with ladder at p2p-on, decoding falls by 12.0 ms and idle time ";
    assert!(text(9.0).contains(idle), "{}", text(9.0));
    assert!(!text(0.5).contains(idle), "{}", text(0.5));
}

#[test]
fn exposed_shares_are_told_and_a_limit_below_a_choice_is_noise() {
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 19.0, 20.0]);
    for record in &mut records {
        let exposed_comm_ms = if record.spec.architecture == LADDER { 1.0 } else { 3.0 };
        record.overlap = Some(Overlap {
            comm_ms: 4.0,
            exposed_comm_ms,
            compute_ms: 10.0 - exposed_comm_ms,
            ..Overlap::default()
        });
    }
    let answer = one(&records);
    let exposed = "Exposed communication (nothing computes beside it): 30.0 % (P2P on) and 30.0 % (P2P off) of \
                   standard's step, 10.0 % (P2P on) and 10.0 % (P2P off) of ladder's, which hides 75.0 % (P2P on) and \
                   75.0 % (P2P off) of all its communication.";
    assert!(answer.details.iter().any(|text| text == exposed), "{:?}", answer.details);
    let table = answer.table.csv(Sourced::NoRuns);
    assert_eq!(table.matches("too slow: noise").count(), 1, "{table}");
    assert_eq!(table.matches("above the limit: noise").count(), 1, "{table}");
    let above = "Above the upper bound: ladder at P2P off (1.84x). This is noise or drift, ";
    assert!(answer.bullets[0].starts_with(above), "{answer:?}");
    assert!(said(&answer).iter().any(|text| text.starts_with("Gap closed: ")), "{answer:?}");
    // also if only its TPOT is higher
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    for record in records.iter_mut().filter(|record| record.run.starts_with("upper-bound-off")) {
        let samples = std::sync::Arc::make_mut(&mut record.samples);
        samples.iter_mut().flat_map(|sample| &mut sample.steps_ms).for_each(|ms| *ms = 26.0);
    }
    let table = one(&records).table.csv(Sourced::NoRuns);
    assert_eq!(table.matches("too slow: noise").count(), 1, "{table}");
}

/// A quarter of the time that standard exposes waits for late ranks, two thirds of ladder's; or a tenth of both.
#[test]
fn time_that_waits_for_late_ranks_is_on_the_card_if_it_is_long() {
    let answer = |peer_wait_ms: Option<[f64; 2]>| {
        let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
        for record in &mut records {
            let is_standard = record.spec.architecture == Architecture::Standard;
            record.overlap = Some(Overlap {
                comm_ms: 4.0,
                exposed_comm_ms: if is_standard { 4.0 } else { 3.0 },
                compute_ms: 10.0,
                peer_wait_ms: peer_wait_ms.map(|[own, others]| if is_standard { own } else { others }),
                ..Overlap::default()
            });
        }
        one(&records)
    };
    let found = |answer: &Answer| {
        let named = |lines: &[String]| lines.iter().find(|line| line.contains("late ranks")).cloned();
        (named(&answer.bullets), named(&answer.details))
    };
    let text = |shares: [&str; 2]| {
        let [standard, ladder] = shares;
        Some(format!("Exposed time due to late ranks: standard {standard}, ladder {ladder}."))
    };
    assert_eq!(found(&answer(Some([1.0, 2.0]))), (text(["25 %", "67 %"]), None));
    assert_eq!(found(&answer(Some([0.4, 0.3]))), (None, text(["10 %", "10 %"])));
    let unknown = answer(None);
    assert_eq!(found(&unknown), (None, None));
    assert_eq!(answer(Some([0.0; 2])), unknown, "an emulated link that waits for nobody");
}

/// Rank skew of simulations is in the breakdown.
#[test]
fn simulated_waits_for_late_ranks_have_a_range_over_settings() {
    let mut records = Vec::new();
    for (tp, peer_wait_ms) in [(2, 0.1), (4, 0.4), (8, 0.6)] {
        for architecture in [Architecture::Standard, LADDER] {
            let step_ms = if architecture == LADDER { 5.0 } else { 10.0 };
            let mut record = sim(&format!("{architecture}-{tp}"), architecture, tp, step_ms);
            record.overlap = Some(Overlap {
                comm_ms: 2.0,
                exposed_comm_ms: 2.0,
                split: Some(table::Split { peer_wait_ms, ..Default::default() }),
                ..Overlap::default()
            });
            records.push(record);
        }
    }
    let text = said(&one(&records)).join(" ");
    let wanted = "Exposed time due to late ranks: standard 5 to 30 %, ladder 5 to 30 %.";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn contradictions_are_named() {
    // upper-bound slower than standard with P2P; faster without P2P than with
    let answer = one(&quickstart([20.0, 15.0, 21.0], [18.0, 11.0, 12.0]));
    let text = said(&answer).join("\n");
    assert_eq!(
        answer.noise.as_deref(),
        Some(
            "Noisy: upper-bound at P2P on has 0.95x the tokens/s of standard, although it does not communicate. Run \
             everything again on an idle machine; new runs replace these."
        )
    );
    assert!(!text.contains("of the gap"), "an inconclusive answer closes none: {text}");
    assert!(
        text.contains("P2P off is faster than on in 2 pairs: check the links that stand for them."),
        "{text}"
    );
    assert!(text.contains("Suspicious result: upper-bound"), "P2P on and off differ: {text}");
}

#[test]
fn more_than_all_is_noise_only_where_it_was_measured_and_no_collective_norms() {
    let shares = |fused: bool, simulated: bool| {
        let of = |name: &str, architecture: Architecture, step: f64| {
            let change = |spec: &mut Spec| {
                spec.architecture = architecture.clone();
                spec.collective = if fused { Collective::Fused } else { Collective::Nccl };
            };
            match simulated {
                true => sim_record(name, change, 0.0, step),
                false => record(name, change, 0, &[0.99, 1.0, 1.01].map(|noise| (0.0, step * noise))),
            }
        };
        let cells = [
            ("s", Architecture::Standard, 10.0),
            ("l", LADDER, 7.0),
            ("u", Architecture::UpperBound, 8.0),
        ];
        said(&one(&cells.map(|(name, architecture, step)| of(name, architecture, step)))).join(" ")
    };
    let noise = "; above 100 % is noise";
    let real =
        "upper-bound is not a limit for ladder, which does less work (collectives take over norms";
    let says = |fused, simulated| {
        let text = shares(fused, simulated);
        assert!(text.contains("closes 150 %"), "{text}");
        (text.contains(real), text.contains(noise))
    };
    assert_eq!([says(true, true), says(true, false)], [(true, false); 2]);
    assert_eq!([says(false, false), says(false, true)], [(false, true), (false, false)]);
}

/// An extrapolated link is a caveat, and nothing that looks wrong.
#[test]
fn extrapolated_links_are_called_so() {
    let mut records = vec![
        sim_record("s", |spec| spec.tp = 8, 0.0, 35.0),
        sim_record("l", |spec| (spec.architecture, spec.tp) = (LADDER, 8), 0.0, 30.0),
    ];
    for record in &mut records {
        record.warnings.push("link: TP 8 extrapolated from TP 4 and TP 2".into());
    }
    let text = said(&one(&records)).join("\n");
    assert!(text.contains("2 cells have links extrapolated to their TP, the first: standard"), "{text}");
    assert!(text.contains("TP 8 extrapolated from TP 4 and TP 2."), "{text}");
    assert!(!text.contains("uspicious"), "{text}");
    records[0].warnings = vec!["it ran hot".into()];
    let text = said(&one(&records)).join("\n");
    assert!(text.contains("The link of one cell is extrapolated to its TP: ladder"), "{text}");
    assert!(text.contains("Suspicious result: standard") && text.contains("it ran hot."), "{text}");
    records[0].warnings = (1..=5).map(|at| format!("it ran hot, {at}")).collect();
    let lines = said(&one(&records));
    let results = lines.iter().filter(|line| line.starts_with("Suspicious result: standard"));
    assert_eq!(results.count(), 3, "{lines:?}");
    assert!(
        lines.iter().any(|line| line == "2 more suspicious results: compare lists them."),
        "{lines:?}"
    );
}

/// `parallel` has one norm a layer: that it beats `upper-bound` is said once, with the largest lead.
#[test]
fn an_architecture_that_does_less_work_than_the_limit_is_named_once() {
    let mut records = vec![
        sim("s2", Architecture::Standard, 2, 35.0),
        sim("l2", LADDER, 2, 33.0),
        sim("p2", Architecture::Parallel, 2, 31.89),
        sim("u2", Architecture::UpperBound, 2, 32.67),
    ];
    let no_limit = |records: &[Record]| {
        let sentences = said(&one(records));
        let mut named = sentences.into_iter().filter(|text| text.contains("not a limit"));
        let first = named.next();
        assert_eq!(named.next(), None);
        first
    };
    let wanted = "upper-bound is not a limit for parallel, which does less work (one norm and one input projection a layer \
                  instead of two): TPOT 31.89 ms against 32.67 ms";
    assert_eq!(no_limit(&records), Some(format!("{wanted}.")));
    records.extend([
        sim("s4", Architecture::Standard, 4, 20.0),
        sim("p4", Architecture::Parallel, 4, 17.8),
        sim("u4", Architecture::UpperBound, 4, 18.0),
    ]);
    assert_eq!(no_limit(&records), Some(format!("{wanted}, most of 2 cases at TP 2.")));
    // within the limit nothing is said
    assert_eq!(no_limit(&records[4..5].iter().chain(&records[6..]).cloned().collect::<Vec<_>>()), None);
}

#[test]
fn hidden_means_communication_behind_compute_and_a_gap_is_closed() {
    let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    records.retain(|record| record.spec.p2p == P2p::Off);
    let headline = one(&records).headline;
    assert!(headline.ends_with("; closes 67 % of the gap to upper-bound"), "{headline}");
    for record in records.iter_mut().filter(|record| record.spec.architecture == LADDER) {
        record.overlap = Some(Overlap {
            comm_ms: 100.0,
            exposed_comm_ms: 22.0,
            overlap_pct: Some(78.0),
            compute_ms: 100.0,
            ..Overlap::default()
        });
    }
    let headline = one(&records).headline;
    assert!(headline.ends_with("; hides 78 % of its communication"), "{headline}");
}

#[test]
fn a_simulated_lead_below_the_simulators_error_names_no_winner() {
    let close = [
        sim("s2", Architecture::Standard, 2, 10.0),
        sim("l2", LADDER, 2, 7.5),
        sim("p2", Architecture::Parallel, 2, 7.6),
        sim("d2", Architecture::Desync(2), 2, 9.0),
    ];
    let first = |records: &[Record]| one(records).headline;
    assert_eq!(
        first(&close),
        "Too close to call at TP 2, batch 1, P2P on: ladder 1.33x, parallel 1.32x standard's tokens/s"
    );
    let clear = [
        sim("s4", Architecture::Standard, 4, 6.0),
        sim("l4", LADDER, 4, 5.0),
        sim("p4", Architecture::Parallel, 4, 5.4),
    ];
    let ahead = [
        sim("s8", Architecture::Standard, 8, 5.0),
        sim("l8", LADDER, 8, 4.04),
        sim("p8", Architecture::Parallel, 8, 4.0),
    ];
    let of_two = said(&one(&[&ahead[..], &clear[..]].concat()));
    assert_eq!(of_two[0], "Ladder is 1.20x (TP 4) and 1.24x (TP 8) faster than standard in tokens/s");
    let wins = "Ladder is fastest in 1 of 2 settings, tied for it within 5 % in 1 (parallel ahead in 1); where fastest, 1.08x ";
    assert!(of_two[1].starts_with(wins), "{of_two:?}");
    let both = one(&[&close[..], &clear[..]].concat());
    let table = both.table.csv(Sourced::NoRuns);
    assert_eq!(table.matches("tied for fastest").count(), 2, "ladder and parallel at TP 2: {table}");
    assert_eq!(table.matches(",fastest").count(), 1, "ladder at TP 4: {table}");
    let both = said(&both);
    let wins = "Ladder is fastest in 1 of 2 settings, tied for it within 5 % in 1; ";
    assert!(both[1].starts_with(wins), "{both:?}");
    let tied = "The fastest tie within 5 % in 1 setting: TP 2 (ladder 1.33x, parallel 1.32x).";
    assert!(both.iter().any(|text| text == tied), "{both:?}");
    // nor is one that leads standard by so little; the table says the same
    let little = one(&[close[0].clone(), sim("l", LADDER, 2, 9.85)]);
    let wanted = "No clear difference (simulator error unknown, ties within 5 %): ladder 1.02x standard's tokens/s";
    assert_eq!(little.headline, wanted);
    assert!(little.table.csv(Sourced::NoRuns).contains("tied"), "{little:?}");
    let unclear =
        "1 of 1 comparison is too close to call (simulator error unknown, ties within 5 %): ladder.";
    assert!(said(&little).iter().any(|text| text == unclear), "{little:?}");
    // what was measured has its intervals
    let samples = |ms: f64| [0.9995, 1.0, 1.0005].map(|noise| (0.0, ms * noise));
    let mut all = Vec::new();
    for (name, a, ms) in
        [("s", Architecture::Standard, 10.0), ("l", LADDER, 7.5), ("p", Architecture::Parallel, 7.6)]
    {
        for round in 0..3 {
            let change = |spec: &mut Spec| spec.architecture = a.clone();
            all.push(record(&format!("{name}{round}"), change, round, &samples(ms)));
        }
    }
    assert!(first(&all).starts_with("Ladder is 1.33x"), "{}", first(&all));
}

#[test]
fn a_sweep_of_latencies_gives_the_minimum_at_which_conversion_pays_off() {
    let steps = [
        (1.0, [10.0, 9.9, 9.9]),
        (10.0, [11.0, 10.0, 10.1]),
        (50.0, [15.0, 12.0, 11.0]),
        (100.0, [20.0, 14.0, 12.0]),
    ];
    let of = |(alpha_us, steps): (f64, [f64; 3])| {
        let cell = move |a: Architecture, step: f64| {
            let link = Link::Emulated { alpha_us, gb_s: 300.0 };
            let change = |spec: &mut Spec| (spec.architecture, spec.link) = (a.clone(), link);
            sim_record(&format!("{a}-{alpha_us}"), change, 0.0, step)
        };
        [
            cell(Architecture::Standard, steps[0]),
            cell(LADDER, steps[1]),
            cell(Architecture::Parallel, steps[2]),
            cell(Architecture::UpperBound, 8.0),
        ]
    };
    let answer = one(&steps.map(of).concat());
    assert_eq!(
        answer.headline,
        "Pays off at >= 10 us per all-reduce, with ladder or parallel, parallel alone at >= 50 us; up to 1.67x faster than \
         standard in tokens/s, with parallel at 100us+300GB/s"
    );
    assert!(answer.bullets[0].starts_with("Parallel is "), "{answer:?}");
    // settings are whole, the headline's first
    let table = answer.table.csv(Sourced::NoRuns);
    assert_eq!((answer.table.len(), answer.left_out.cells), (12, 4), "{table}");
    assert_eq!(answer.left_out.words().as_deref(), Some("1 more setting"));
    assert_eq!(answer.left_out.common_head(12), "3 of 4 settings, the largest gains; all with");
    assert!(
        table.lines().nth(1).is_some_and(|row| row.starts_with("100us+300GB/s,standard,")),
        "{table}"
    );
    assert!(!table.contains("\n1us+300GB/s"), "the smallest gain is left out: {table}");
    assert_eq!(table.matches("the limit").count(), 3, "{table}");
}

#[test]
fn a_headline_names_the_largest_gain_if_another_than_the_winner_has_it() {
    let cell = |a: Architecture, batch, step| {
        let change = |spec: &mut Spec| (spec.architecture, spec.batch) = (a.clone(), batch);
        sim_record(&format!("{a}-{batch}"), change, 0.0, step)
    };
    let of = |batch| {
        let ladder = if batch == 4 { 6.0 } else { 9.0 };
        [
            cell(Architecture::Standard, batch, 10.0),
            cell(LADDER, batch, ladder),
            cell(Architecture::Parallel, batch, 8.0),
        ]
    };
    let answer = one(&[1, 2, 3, 4].map(of).concat());
    assert!(
        answer.headline.starts_with("Parallel is up to 1.25x faster than standard")
            && answer.headline.ends_with("; the largest gain is ladder's, 1.67x at batch 4"),
        "{}",
        answer.headline
    );
}

#[test]
fn cards_say_which_speedups_were_published_and_by_how_much_they_miss() {
    let cells = [paper(&Architecture::Standard, 8, 1, 13.0), paper(&LADDER, 8, 1, 9.0)];
    let answer = one(&cells);
    // 77.39 tokens/s were published for standard, 101.22 for ladder
    assert!(!answer.headline.contains("1.31x"), "one ratio: {}", answer.headline);
    assert!(
        answer.bullets[0].starts_with("Paper, ladder: 1.31x in tokens/s (simulated 1.4"),
        "{:?}",
        answer.bullets
    );
    assert!(answer.bullets[0].contains("x, +9.9"), "{:?}", answer.bullets);
    let trust = "simulated; TPOT off by 2 % on fitted cells, 12 % on batch sizes left out · 2 cells: ";
    assert!(answer.basis.starts_with(trust), "{}", answer.basis);
    // no mean of one cell
    assert!(!answer.bullets.join(" ").contains("ublished"), "{:?}", answer.bullets);
    let slower = [vec![paper(&Architecture::Parallel, 8, 1, 10.0)], cells.to_vec()].concat();
    let answers = said(&one(&slower)).join(" ");
    assert!(answers.contains("Simulated speedups of 2 published cells miss by "), "{answers}");
    assert!(answers.contains("x simulated, published "), "{answers}");
    let table = answer.table.aligned();
    assert!(table.contains("published") && table.contains("1.31x, +9.9 %"), "{table}");
    // their latency contradicts their TTFT and TPOT
    let off = cells.clone().map(|mut record| {
        record.spec.p2p = P2p::Off;
        record
    });
    let answer = one(&off);
    let paper = "Paper, ladder: 1.60x in tokens/s (simulated ";
    assert!(answer.bullets[0].starts_with(paper), "{:?}", answer.bullets);
    let contradicted = " %), but 1.50x by the published TPOT.";
    assert!(answer.bullets[0].ends_with(contradicted), "{:?}", answer.bullets);
    let other = cells.map(|mut record| {
        record.spec.stack = "native".into();
        record
    });
    let other = said(&one(&other)).join(" ");
    assert!(!other.contains("ublished") && !other.contains("Paper"), "another engine: {other}");
}

#[test]
fn the_largest_lead_is_named_with_the_settings_that_all_leads_of_its_size_share() {
    // batch 2 is ahead of batch 1 by less than the simulator's error, and has no published value
    let ladder = [(4, 1, 12.0), (8, 1, 9.0), (8, 2, 8.95)];
    let mut records: Vec<Record> =
        ladder.iter().map(|(tp, batch, step)| paper(&LADDER, *tp, *batch, *step)).collect();
    records.extend(ladder.map(|(tp, batch, _)| paper(&Architecture::Standard, tp, batch, 13.0)));
    let answer = one(&records);
    assert!(answer.headline.starts_with("Ladder is up to 1.4"), "{}", answer.headline);
    assert!(
        answer.headline.ends_with("x faster than standard in tokens/s at TP 8"),
        "{}",
        answer.headline
    );
    let paper = "Paper, ladder at TP 8, batch 1: 1.31x in tokens/s (simulated 1.44x, +9.9";
    assert!(answer.bullets[0].starts_with(paper), "{:?}", answer.bullets);
    let wins = "Ladder is faster in all 3 settings: 1.08x to 1.4";
    assert!(answer.bullets[1].starts_with(wins), "{:?}", answer.bullets);
}

#[test]
fn winners_of_a_few_settings_and_what_wins_elsewhere_are_told_apart() {
    let mut records = vec![
        sim("s2", Architecture::Standard, 2, 10.0),
        sim("l2", LADDER, 2, 9.0),
        sim("p2", Architecture::Parallel, 2, 9.5),
        sim("s4", Architecture::Standard, 4, 8.0),
        sim("l4", LADDER, 4, 6.0),
        sim("p4", Architecture::Parallel, 4, 7.0),
        sim("s8", Architecture::Standard, 8, 7.0),
        sim("l8", LADDER, 8, 7.01),
        sim("p8", Architecture::Parallel, 8, 5.0),
    ];
    let answer = one(&records);
    let text = said(&answer).join("\n");
    assert_eq!(
        said(&answer)[..4],
        [
            "Ladder is 1.11x (TP 2) and 1.33x (TP 4) faster than standard in tokens/s",
            "Ladder is fastest in 2 of 3 settings, tied with standard in 1; where fastest, 1.11x the tokens/s of parallel, the runner-up (median).",
            "Elsewhere: parallel at TP 8 (1.40x).",
            "Gap closed: unknown, because upper-bound was not run.",
        ],
        "{text}"
    );
    assert!(text.contains("1 of 6 comparisons differs by less than 0.5 %: ladder at TP 8."), "{text}");
    assert!(!answer.basis.contains("samples"), "a prediction has none worth telling: {}", answer.basis);

    // prefills alone have no TPOT to compare with the limit's
    let prefills = [(Architecture::Standard, 10.0), (LADDER, 8.0), (Architecture::UpperBound, 7.0)].map(
        |(architecture, ms)| {
            let change = |spec: &mut Spec| {
                (spec.architecture, spec.tp, spec.output_tokens) = (architecture.clone(), 2, 1);
            };
            sim_record(&architecture.to_string(), change, ms, 0.0)
        },
    );
    let text = said(&one(&prefills)).join("\n");
    assert!(
        text.contains("Gap closed: unknown, because one output token has no decode steps."),
        "{text}"
    );

    // what did not run is counted once, and its reason follows
    let oom =
        Record::new(Spec { tp: 1, ..records[0].spec.clone() }, Status::Oom, Some("140 GB of 80".into()));
    records.push(oom);
    let text = said(&one(&records)).join("\n");
    assert_eq!(text.matches("does not fit in memory").count(), 1, "{text}");
    assert!(text.contains("1 more cell does not fit in memory.\n"), "{text}");
    assert!(text.contains("standard tp1 b1 p2p-on: 140 GB of 80."), "{text}");
}

#[test]
fn cells_of_different_provenance_are_answered_apart_and_nothing_alone_is_compared() {
    let measured = cell("s", &Architecture::Standard, P2p::On, 2.0);
    let predicted = sim_record("l", |spec| spec.architecture = LADDER, 0.0, 1.0);
    let answers = Answer::from_records([measured, vec![predicted]].concat());
    assert_eq!(answers.len(), 2);
    for answer in &answers {
        assert!(answer.bullets.iter().any(|text| text.contains("nothing is compared")), "{answer:?}");
        assert!(answer.table.is_empty());
    }
    let failed = Record::new(Spec::default(), Status::Failed, Some("no driver".into()));
    let answer = one(&[failed]);
    assert!(answer.bullets[0].starts_with("1 cell failed ("), "{answer:?}");
    assert!(Answer::from_records(Vec::new()).is_empty());
}

#[test]
fn other_axes_are_named_with_their_values_and_losses_are_told() {
    let sim = |name: &str, tp, step| sim_record(name, move |spec| spec.tp = tp, 0.0, step);
    let answer = one(&[sim("a", 2, 8.0), sim("b", 4, 5.0), sim("c", 8, 4.0)]);
    assert_eq!(answer.headline, "TP 8 is 2.00x faster than TP 2 in tokens/s at batch 1, P2P on");
    assert_eq!(answer.bullets[0], "TP 8 has 1.25x the tokens/s of TP 4, the runner-up.");
    // one architecture with and without P2P: what is lost is the answer
    let [on, off] = [(P2p::On, 2.0), (P2p::Off, 3.0)]
        .map(|(p2p, step)| cell(p2p.as_str(), &Architecture::Standard, p2p, step));
    let text = said(&one(&[on, off].concat())).join("\n");
    assert!(text.starts_with("nothing is faster than P2P on: P2P off 0.67x ["), "{text}");
}

#[test]
fn runs_of_two_machines_are_answered_apart() {
    let on = |host: &str| {
        let mut records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
        for record in &mut records {
            record.environment.insert("host".into(), host.into());
        }
        records
    };
    let answers = Answer::from_records([on("one"), on("two")].concat());
    let bases: Vec<&str> = answers.iter().map(|answer| answer.basis.as_str()).collect();
    assert!(bases[0].contains(" on one, ") && bases[1].contains(" on two, "), "{bases:?}");
    assert!(answers.iter().all(|answer| answer.headline.starts_with("Ladder is 1.14x ")));
}

/// The records with their runs begun under a load, on two cores.
fn under_load(mut records: Vec<Record>, load: f64) -> Vec<Record> {
    for record in &mut records {
        record.environment.insert("load_average".into(), json!([load, 1.0, 1.0]));
        record.environment.insert("cpu".into(), json!({ "threads": 2 }));
    }
    records
}

#[test]
fn a_busy_machine_is_what_is_told_first() {
    // as above, the last round of two cells slowed by neighbours
    let mut records = under_load(quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]), 7.5);
    for record in &mut records {
        let slow = match record.run.as_str() {
            "ladder-off-2" => 1.4,
            "standard-on-2" => 1.6,
            _ => 1.0,
        };
        slow_down(record, slow);
    }
    let answer = one(&records);
    assert!(answer.noise.is_some());
    assert_eq!(
        answer.noise.as_deref(),
        Some(
            "Noisy: rounds of standard, P2P on vary from 25.0 to 40.0 ms per step with stalls (1.60x), those of 2 of 6 cells by 1.3x or \
             more; overloaded, load 7.5 on 2 cores. Run everything again on an idle machine; new runs replace these."
        )
    );
    // a load that the machine bears, and the build
    let noise = |records: Vec<Record>, build: &str| {
        let mut records = under_load(records, 3.0);
        records[0].environment.insert("load_average".into(), json!([1.0, 1.0, 1.0]));
        records.iter_mut().for_each(|record| {
            record.environment.insert("build".into(), build.into());
        });
        one(&records)
    };
    let answer = noise(records, "debug");
    assert!(
        answer.noise.as_deref().is_some_and(|noise| {
            noise.contains("or more; load 1.0 to 3.0 on 2 cores; debug build. Run ")
        }),
        "{answer:?}"
    );
    assert!(!answer.basis.contains("debug"), "{answer:?}");
    let quiet = || quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    assert!(noise(quiet(), "debug").basis.contains("[95 % CI], debug build · "));
    assert!(!noise(quiet(), "release").basis.contains("build"));
}

#[test]
fn a_quiet_machine_and_predictions_are_not_doubted() {
    let quiet = under_load(quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]), 3.9);
    let answer = one(&quiet);
    assert!(answer.noise.is_none(), "what runs itself makes is no load of others: {answer:?}");
    // that a run alone is doubted needs no comparison
    let alone = under_load(cell("s", &Architecture::Standard, P2p::On, 2.0), 12.0);
    let answer = one(&alone);
    assert!(
        answer.noise.as_deref().is_some_and(|noise| noise.contains("overloaded, load 12.0 on 2 cores")),
        "{answer:?}"
    );
    let predicted = [(Architecture::Standard, 2.0), (Architecture::UpperBound, 3.0)]
        .map(|(a, step)| sim_record(&a.to_string(), |spec| spec.architecture = a.clone(), 0.0, step));
    let answer = one(&under_load(predicted.to_vec(), 12.0));
    assert!(answer.noise.is_none(), "{answer:?}");
}

/// What is noise by itself, and what follows from what was asked for, is no reason to doubt.
#[test]
fn noise_and_what_was_asked_for_are_not_doubted() {
    let first = |records: &[Record]| Answer::from_records(records.to_vec()).remove(0);
    // a bound that is 4 % slower, whose rounds differ by 22 %
    let mut noisy = quickstart([25.0, 22.0, 26.0], [35.0, 25.0, 20.0]);
    let bounds = noisy.iter_mut().filter(|record| record.run.starts_with("upper-bound-on"));
    for record in bounds {
        let factor = [0.9, 1.0, 1.1][record.round as usize % 3];
        slow_down(record, factor);
    }
    let answer = first(&noisy);
    assert!(
        answer.table.csv(Sourced::NoRuns).contains("0.96"),
        "it is slower: {}",
        answer.table.csv(Sourced::NoRuns)
    );
    assert!(answer.noise.is_none(), "{answer:?}");
    // two micro-batches read the weights twice, also where nothing is communicated
    let mut divided = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    divided.retain(|record| record.spec.architecture == Architecture::Standard);
    let mut bound = quickstart([25.0, 22.0, 50.0], [35.0, 25.0, 60.0]);
    bound.retain(|record| record.spec.architecture == Architecture::UpperBound);
    bound.iter_mut().for_each(|record| (record.spec.batch, record.spec.micro_batches) = (2, 2));
    divided.iter_mut().for_each(|record| record.spec.batch = 2);
    let answer = first(&[divided, bound.clone()].concat());
    assert!(answer.noise.is_none(), "{answer:?}");
    // and bounds of two batches are no standard and its bound
    let larger = bound.iter().cloned().map(|mut record| {
        (record.spec.batch, record.run) = (16, format!("{}-16", record.run));
        slow_down(&mut record, 3.0);
        record
    });
    let answer = first(&bound.iter().cloned().chain(larger).collect::<Vec<_>>());
    assert!(answer.noise.is_none(), "{answer:?}");
    // ranks of the sweep's own larger cells are no neighbours
    let mut ranks = under_load(quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]), 6.5);
    assert!(first(&ranks).noise.is_some());
    let last = ranks.len() - 1;
    ranks[last].spec.tp = 8;
    assert!(first(&ranks).noise.is_none());
}

#[test]
fn what_is_fastest_is_told_with_what_it_loses_or_that_nobody_looked() {
    let records = quickstart([25.0, 22.0, 21.0], [35.0, 25.0, 20.0]);
    let unknown = "Quality of ladder was not evaluated";
    let text = said(&one(&records)).join("\n");
    assert!(text.contains(unknown), "{text}");
    let looked_at: Vec<Record> = records
        .into_iter()
        .map(|record| match record.spec.architecture == LADDER {
            true => evaluated(record, 0.25),
            false => record,
        })
        .collect();
    let text = said(&one(&looked_at)).join("\n");
    assert!(
        text.contains("ladder is 0.250 [") && text.contains("(KL) from standard: measured on"),
        "{text}"
    );
    assert!(!text.contains(unknown), "{text}");
    // where nothing is faster there is nothing to weigh
    let text = said(&one(&quickstart([25.0, 25.0, 21.0], [35.0, 35.0, 20.0]))).join("\n");
    assert!(!text.contains("was not evaluated"), "{text}");
}

/// A quickstart on a busy machine: ladder gains more on the fast link, and standard is slower there.
#[test]
fn measured_results_that_only_noise_explains_name_no_winner() {
    let answer = one(&quickstart([85.7, 54.0, 50.0], [70.4, 58.7, 52.0]));
    assert!(
        answer.headline.starts_with("Ladder against standard: undecided at P2P o")
            && answer.headline.ends_with(
                "; run again on an idle machine: standard decodes faster without P2P than with it, on a link that is no \
                 faster"
            ),
        "{}",
        answer.headline
    );
    // a lead without P2P within the noise does not hide the significant result
    let quick = |name: &str, architecture: &Architecture, p2p: P2p, steps: [f64; 3]| {
        let change = |spec: &mut Spec| (spec.architecture, spec.p2p) = (architecture.clone(), p2p);
        let rounds = steps.into_iter().zip(0..);
        let rounds = rounds.map(|(ms, round)| {
            let name = format!("{name}-{}-{round}", p2p.as_str());
            record(&name, change, round, &[(0.0, ms), (0.0, 1.01 * ms), (0.0, 0.99 * ms)])
        });
        rounds.collect::<Vec<_>>()
    };
    let records = [
        quick("s", &Architecture::Standard, P2p::On, [38.0, 39.0, 38.5]),
        quick("l", &LADDER, P2p::On, [36.0, 40.0, 47.0]),
        quick("s", &Architecture::Standard, P2p::Off, [60.0, 61.0, 60.5]),
        quick("l", &LADDER, P2p::Off, [35.5, 36.0, 39.0]),
    ];
    let answer = one(&records.concat());
    assert!(answer.headline.ends_with(" faster than standard in tokens/s at P2P off"), "{answer:?}");
    let wins = "Ladder is faster in 1 of 2 settings, undecided in 1 (P2P on: 0.9";
    assert!(answer.bullets[0].starts_with(wins), "{answer:?}");
    let text = said(&answer).join("\n");
    assert!(!text.contains("level with") && !text.contains("no choice is faster"), "{text}");
    // rounds that vary by more than the cells differ
    let noisy = |name: &str, architecture: Architecture, steps: [f64; 3]| {
        let change = move |spec: &mut Spec| spec.architecture = architecture.clone();
        let rounds = steps.into_iter().zip(0..);
        rounds
            .map(|(ms, round)| record(&format!("{name}-{round}"), &change, round, &[(0.0, ms); 3]))
            .collect::<Vec<_>>()
    };
    let records =
        [noisy("s", Architecture::Standard, [20.0, 21.0, 20.5]), noisy("l", LADDER, [18.0, 21.2, 18.5])];
    let headline = one(&records.concat()).headline;
    assert!(
        headline.contains("rounds of ladder vary by 1.18x, choices differ from standard by 1.1"),
        "{headline}"
    );
    // rounds may vary by more where a lead is significant all the same
    let varying = |name: &str, architecture: Architecture, ms: f64| {
        noisy(name, architecture, [1.0, 1.5, 2.0].map(|drift| ms * drift))
    };
    let records = [varying("s", Architecture::Standard, 20.0), varying("l", LADDER, 18.0)];
    let headline = one(&records.concat()).headline;
    assert!(headline.starts_with("Ladder is 1.11x"), "{headline}");
    // runs that differ in other variables are not the same cell with and without P2P
    let set = |records: Vec<Record>, algo: &str| {
        let with = |mut record: Record| {
            record.spec.env.insert("NCCL_ALGO".into(), algo.into());
            record
        };
        records.into_iter().map(with).collect::<Vec<_>>()
    };
    let [on, off] = [(P2p::On, 86.0), (P2p::Off, 70.0)].map(|(p2p, ms)| {
        let name = |architecture: &str| format!("{architecture}-{}", p2p.as_str());
        let standard = cell(&name("standard"), &Architecture::Standard, p2p, ms);
        [standard, cell(&name("ladder"), &LADDER, p2p, 60.0)].concat()
    });
    let headline = one(&[on.clone(), off.clone()].concat()).headline;
    assert!(headline.contains("standard decodes faster without P2P than with it"), "{headline}");
    let headline = one(&[set(on, "Ring"), set(off, "Tree")].concat()).headline;
    assert!(headline.starts_with("Ladder is 1.43x ["), "{headline}");
    // the same rounds decide a larger difference
    let records =
        [noisy("s", Architecture::Standard, [40.0, 42.0, 41.0]), noisy("l", LADDER, [18.0, 21.2, 18.5])];
    assert!(!one(&records.concat()).headline.contains("undecided"));
}

#[test]
fn a_limit_far_below_standard_in_any_setting_makes_a_headline_inconclusive() {
    let mut records = quickstart([25.0, 22.0, 38.0], [35.0, 25.0, 20.0]);
    let doubted = "; run again on an idle machine: upper-bound has 0.66x the tokens/s of standard";
    // of pairs without the limit, too, but not of settings without noise
    let report = Cells::from_records(&records).compare(&Axis::ARCHITECTURE, None).unwrap();
    let headline = |p2p: &[P2p]| {
        let is_kept = |pair: &&Comparison| {
            pair.side.spec.architecture == LADDER && p2p.contains(&pair.side.spec.p2p)
        };
        let kept: Vec<&Comparison> = report.pairs.iter().filter(is_kept).collect();
        let settings = Varied::from_specs(kept.iter().map(|pair| &pair.side.spec));
        headlines(&Axis::ARCHITECTURE, &report, &kept, &settings, true)
    };
    assert!(headline(&[P2p::On, P2p::Off]).contains(doubted), "{}", headline(&[P2p::On, P2p::Off]));
    assert!(headline(&[P2p::Off]).starts_with("Ladder is 1.40x"), "{}", headline(&[P2p::Off]));
    // rounds that vary so much that the interval includes 1 are no better
    for record in records.iter_mut().filter(|record| record.run.starts_with("upper-bound-on")) {
        let factor = [0.6, 1.0, 1.4][record.round as usize % 3];
        slow_down(record, factor);
    }
    let answer = one(&records);
    assert!(answer.headline.contains(doubted), "{}", answer.headline);
}

#[test]
fn experiments_with_experts_say_the_best_division_of_the_gpus() {
    let cell = |a: Architecture, (tp, ep, dp), ms| {
        let change = move |spec: &mut Spec| {
            (spec.architecture, spec.tp, spec.ep, spec.dp) = (a.clone(), tp, ep, dp);
        };
        sim_record(&format!("{tp}-{dp}-{ms}"), change, 0.0, ms)
    };
    let records = [
        cell(Architecture::Standard, (8, 1, 1), 4.0),
        cell(LADDER, (8, 1, 1), 3.0),
        cell(Architecture::Standard, (1, 8, 8), 6.0),
        cell(LADDER, (1, 8, 8), 5.0),
    ];
    let division = |records: &[Record]| one(records).bullets[0].clone();
    let bullet = division(&records);
    let wanted = ": TP 8 + EP 1 in both settings (1.50x to 1.67x the tokens/s of the next).";
    assert!(
        bullet.starts_with("Best division of the GPUs with ") && bullet.ends_with(wanted),
        "{bullet}"
    );
    // a lead within the simulator's error is no lead
    let close = [
        cell(Architecture::Standard, (8, 1, 1), 4.0),
        cell(LADDER, (8, 1, 1), 3.0),
        cell(Architecture::Standard, (1, 8, 8), 4.04),
        cell(LADDER, (1, 8, 8), 5.0),
    ];
    let bullet = division(&close);
    assert!(bullet.ends_with("of the next, too close to call in 1)."), "{bullet}");
}

#[test]
fn architectures_with_the_same_numbers_are_named_together() {
    let cell = |architecture: &str, batch, ms| {
        let architecture: Architecture = architecture.parse().unwrap();
        let name = format!("{architecture}-{batch}");
        let change = move |spec: &mut Spec| {
            (spec.architecture, spec.batch, spec.model) =
                (architecture.clone(), batch, "gpt-oss-120b".into());
        };
        sim_record(&name, change, 0.0, ms)
    };
    let of = |batch, farskip| {
        [cell("standard", batch, 9.0), cell("ladder", batch, 6.0), cell("farskip", batch, farskip)]
    };
    let answer = one(&[of(1, 6.0), of(2, 6.0)].concat());
    assert!(
        answer
            .headline
            .starts_with("Ladder (farskip is equal) is 1.50x (batch 1) and 1.50x (batch 2) faster than"),
        "{}",
        answer.headline
    );
    let equal = "Farskip has the latency of ladder in both settings: gpt-oss-120b has no shared experts";
    assert!(answer.bullets.iter().any(|bullet| bullet.starts_with(equal)), "{:?}", answer.bullets);
    // another number in one setting
    let headline = one(&[of(1, 6.0), of(2, 6.1)].concat()).headline;
    assert!(!headline.contains("is equal"), "{headline}");
}
