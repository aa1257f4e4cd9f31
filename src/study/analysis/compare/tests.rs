//! Comparisons of made-up cells whose ratios are known.

use super::*;
use crate::analysis::compare::comparison::LEVEL;
use crate::analysis::published_of;
use ::table::options::OPTIONS;
use ::table::testing::{change_option, record, sim_record};
use ::table::{Backend, Link, P2p, Provenance, Record, Spec, VARIANTS};
use base::error::Error;
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

#[test]
fn architectures_against_standard_with_hidden_share() {
    let records = [
        rounds("u", architecture(&Architecture::UpperBound), 1.0),
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 1.2),
    ]
    .concat();
    let report = compare(&records, "architecture").unwrap();
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

#[test]
fn equal_cells_do_not_differ() {
    let records = [
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 2.0),
    ];
    let pair = compare(&records.concat(), "architecture").unwrap().pairs.remove(0);
    let [low, high] = pair.speedup_ci95.unwrap();
    assert!(low < 1.0 && 1.0 < high && !pair.differs);
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
fn p2p_ignores_the_link_it_chose() {
    let emulated = |alpha_us| Link::Emulated { alpha_us, gb_s: 20.0 };
    let cell = |name, p2p, alpha, a: Architecture, step| {
        let change = move |s: &mut Spec| {
            (s.p2p, s.link, s.architecture) = (p2p, emulated(alpha), a.clone());
            if p2p == P2p::Off {
                s.env.insert("NCCL_P2P_DISABLE".into(), "1".into());
            }
        };
        rounds(name, change, step)
    };
    let records = [
        cell("off", P2p::Off, 400.0, LADDER, 3.0),
        cell("on", P2p::On, 100.0, LADDER, 2.0),
        cell("uoff", P2p::Off, 400.0, Architecture::UpperBound, 1.0),
        cell("uon", P2p::On, 100.0, Architecture::UpperBound, 1.5),
    ]
    .concat();
    let report = compare(&records, "p2p").unwrap();
    let pair = &report.pairs[0];
    assert_eq!((pair.baseline.as_str(), pair.value.as_str()), ("on", "off"));
    assert!((pair.speedup - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(pair.provenance, Provenance::EmulatedLink);
    assert_eq!(
        pair.matched,
        "ladder tiny tp2 b1 cpu emulated:alpha_us=100,gb_s=20|emulated:alpha_us=400,gb_s=20"
    );
    let flag = |text: &str| report.flags.iter().any(|f| f.text.contains(text));
    assert!(flag("upper-bound: differs between P2P on and off"));
    assert!(!report.flags.iter().any(|f| f.text.starts_with("ladder")), "{:?}", report.flags);
}

#[test]
fn links_of_a_grid_pair_with_themselves_and_baselines_are_the_first_met() {
    let cell =
        |name: &str, p2p, link| sim_record(name, move |s| (s.p2p, s.link) = (p2p, link), 0.0, 1.0);
    let emulated = Link::Emulated { alpha_us: 1.0, gb_s: 1.0 };
    let records = [
        cell("a", P2p::On, Link::Native),
        cell("b", P2p::Off, Link::Native),
        cell("c", P2p::On, emulated),
        cell("d", P2p::Off, emulated),
    ];
    let runs = |axis| -> Vec<(String, String)> {
        let pairs = compare(&records, axis).unwrap().pairs;
        pairs.into_iter().map(|p| (p.baseline_run, p.run)).collect()
    };
    let expect = |pairs: [(&str, &str); 2]| pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
    assert_eq!(runs("p2p"), expect([("a", "b"), ("c", "d")]));
    assert_eq!(runs("link"), expect([("a", "c"), ("b", "d")]));
}

#[test]
fn a_link_with_the_name_of_its_p2p_setting_is_named_once() {
    let cell = |name: &str, architecture: Architecture, p2p, link| {
        let change = move |s: &mut Spec| {
            (s.architecture, s.p2p, s.link) = (architecture.clone(), p2p, link);
        };
        sim_record(name, change, 0.0, 1.0)
    };
    let records = [
        cell("s", Architecture::Standard, P2p::On, Link::P2pOn),
        cell("l", LADDER, P2p::On, Link::P2pOn),
        cell("t", Architecture::Standard, P2p::Off, Link::P2pOff),
    ];
    let matched = |axis| compare(&records, axis).unwrap().pairs.remove(0).matched;
    assert_eq!(matched("architecture"), "tiny tp2 b1 p2p-on sim");
    assert_eq!(matched("p2p"), "standard tiny tp2 b1 sim");
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
fn a_simulation_beside_a_measurement_is_labelled_a_simulation() {
    let by = |name, backend| {
        record(
            name,
            move |s| (s.backend, s.hardware) = (backend, "h100_sxm".into()),
            0,
            &[(0.0, 1.0); 6],
        )
    };
    let mut sim = by("sim", Backend::Sim);
    sim.metrics = ::table::metrics(&sim.spec, &[&sim.samples], 0);
    let report = compare(&[by("cuda", Backend::Cuda), sim], "backend").unwrap();
    assert_eq!(report.pairs[0].provenance, Provenance::Simulated);
    assert_eq!((report.pairs[0].speedup_ci95, report.pairs[0].differs), (None, false));
}

/// A link that was emulated says nothing of one that was measured, unless links are what is compared.
#[test]
fn provenances_are_paired_only_along_what_decides_them() {
    let link = |alpha_us| Link::Emulated { alpha_us, gb_s: 5.0 };
    let of = |name: &str, p2p, link| {
        record(name, move |s| (s.p2p, s.link) = (p2p, link), 0, &[(0.0, 1.0); 6])
    };
    let (native, slow) = (of("a", P2p::On, Link::Native), of("b", P2p::Off, link(50.0)));
    assert_eq!(slow.provenance, Provenance::EmulatedLink);
    assert!(compare(&[native.clone(), slow], "p2p").unwrap().pairs.is_empty());
    let by_link = compare(&[native, of("c", P2p::On, link(50.0))], "link").unwrap();
    assert_eq!(by_link.pairs[0].provenance, Provenance::EmulatedLink);
    // links of one experiment belong together
    let within = |experiment: &str, on, off| {
        [(P2p::On, on), (P2p::Off, off)].map(|(p2p, alpha_us)| {
            let name = format!("{experiment}{alpha_us}");
            Record { experiment: Some(experiment.into()), ..of(&name, p2p, link(alpha_us)) }
        })
    };
    let records = [within("x", 10.0, 20.0), within("y", 100.0, 200.0)].concat();
    let pairs = compare(&records, "p2p").unwrap().pairs;
    let runs: Vec<_> = pairs.iter().map(|pair| (&*pair.baseline_run, &*pair.run)).collect();
    assert_eq!(runs, [("x10", "x20"), ("y100", "y200")]);
}

#[test]
fn every_axis_finds_its_pair_and_names_its_values() {
    for option in OPTIONS {
        let axis = option.name;
        let records = [
            sim_record("a", |_| (), 1.0, 1.0),
            sim_record("b", |spec| change_option(option, spec), 1.0, 1.0),
        ];
        let pairs = compare(&records, axis).unwrap().pairs;
        assert_eq!(pairs.len(), 1, "{axis}");
        let [baseline, value] = records.each_ref().map(|record| option.text(&record.spec));
        assert_eq!((&*pairs[0].baseline, &*pairs[0].value), (&*baseline, &*value), "{axis}");
        let others = OPTIONS.iter().map(|option| option.name).filter(|other| *other != axis);
        // what an option makes of a plan is a value of the architecture, too
        let others = others.filter(|other| *other != "architecture" || !VARIANTS.contains(&axis));
        assert!(
            others.clone().all(|other| compare(&records, other).unwrap().pairs.is_empty()),
            "{axis}"
        );
    }
}

#[test]
fn an_unknown_axis_is_named_with_the_nearest() {
    let error = compare(&[], "archtecture").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let Error::Input { message, help } = error else { panic!("{error}") };
    assert_eq!(message, "unknown axis 'archtecture'");
    assert!(help.unwrap().contains("did you mean 'architecture'"));
}

#[test]
fn a_variable_is_an_axis_and_its_absence_the_baseline() {
    let with = |algo: Option<&'static str>, step| {
        let change = move |s: &mut Spec| {
            s.env.insert("NCCL_DEBUG".into(), "WARN".into());
            if let Some(algo) = algo {
                s.env.insert("NCCL_ALGO".into(), algo.into());
            }
        };
        rounds(algo.unwrap_or("none"), change, step)
    };
    let records = [with(Some("Ring"), 2.0), with(None, 1.0), with(Some("Tree"), 4.0)].concat();
    let report = compare(&records, "NCCL_ALGO").unwrap();
    let found: Vec<(&str, &str, f64)> =
        report.pairs.iter().map(|p| (&*p.baseline, &*p.value, (p.speedup * 100.0).round())).collect();
    assert_eq!(found, [("unset", "Ring", 50.0), ("unset", "Tree", 25.0)]);
    assert_eq!(report.by, "NCCL_ALGO");
    assert!(!report.pairs[0].matched.contains("NCCL_ALGO"), "{}", report.pairs[0].matched);
    assert!(compare(&records, "NCCL_DEBUG").unwrap().pairs.is_empty(), "it does not vary");

    let ring = Cells::of(&records).compare(&Axis::Env("NCCL_ALGO".into()), Some("Ring")).unwrap();
    let tree = ring.pairs.iter().find(|p| p.value == "Tree").unwrap();
    assert!((tree.speedup - 0.5).abs() < 1e-9 && tree.baseline == "Ring");
    let error = Cells::of(&records).compare(&Axis::Env("NCCL_ALGO".into()), Some("Rong")).unwrap_err();
    let Error::Input { message, help } = error else { panic!("{error}") };
    assert!(message.contains("'Rong'") && help.unwrap().contains("did you mean 'Ring'"), "{message}");
}

#[test]
fn axes_are_those_that_vary_with_the_pairs_they_give() {
    let cell = |name: &str, a: &Architecture, tp, link| {
        let a = a.clone();
        sim_record(name, move |s| (s.architecture, s.tp, s.link) = (a.clone(), tp, link), 0.0, 1.0)
    };
    let far = Link::Emulated { alpha_us: 50.0, gb_s: 1.0 };
    let mut records = vec![
        cell("a", &Architecture::Standard, 2, Link::Native),
        cell("b", &LADDER, 2, Link::Native),
        cell("c", &LADDER, 4, Link::Native),
        cell("d", &LADDER, 8, far),
    ];
    records[1].spec.set.insert("link.alpha_us".into(), "5".into());
    let axes = Cells::of(&records).axes();
    let named: Vec<(String, usize, usize)> =
        axes.iter().map(|a| (a.axis.to_string(), a.values.len(), a.pairs)).collect();
    assert_eq!(
        named,
        [
            ("architecture".to_owned(), 2, 0),
            ("tp".to_owned(), 3, 0),
            ("link".to_owned(), 2, 0),
            ("link.alpha_us".to_owned(), 2, 0)
        ]
    );
    records[1].spec.set.clear();
    let pairs = |name: &str| {
        let axes = Cells::of(&records).axes();
        axes.iter().find(|a| a.axis.to_string() == name).map(|a| a.pairs)
    };
    assert_eq!((pairs("architecture"), pairs("tp"), pairs("link")), (Some(1), Some(1), Some(0)));
    assert_eq!(pairs("batch"), None);
}

#[test]
fn a_hidden_share_is_against_standard_whatever_the_baseline() {
    let records = [
        rounds("u", architecture(&Architecture::UpperBound), 1.0),
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 1.2),
        rounds("p", architecture(&Architecture::Parallel), 1.5),
    ]
    .concat();
    let report = Cells::of(&records).compare(&Axis::ARCHITECTURE, Some("ladder")).unwrap();
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

#[test]
fn simulations_have_no_p_value() {
    let sim = |name, a: &Architecture, step| sim_record(name, architecture(a), 0.0, step);
    let report =
        compare(&[sim("s", &Architecture::Standard, 2.0), sim("l", &LADDER, 1.0)], "architecture")
            .unwrap();
    assert_eq!((report.adjusted.tested, report.differ), (0, 1));
    assert_eq!((report.pairs[0].p_value, report.pairs[0].differs_adjusted), (None, None));
}

mod heat {
    use proptest::prelude::*;

    use super::*;

    /// Simulated standard and ladder over TPs, batches and prompts; ladder is faster by a factor that
    /// says where it belongs.
    fn grid(tps: &[u32], batches: &[u32], prompts: &[u32]) -> Vec<Record> {
        let mut records = Vec::new();
        for &tp in tps {
            for &batch in batches {
                for &prompt in prompts {
                    for a in [Architecture::Standard, LADDER] {
                        let step = if a == LADDER { 1.0 / factor(tp, batch, prompt) } else { 1.0 };
                        let change = |s: &mut Spec| {
                            (s.tp, s.batch, s.prompt_tokens) = (tp, batch, prompt);
                            s.architecture = a.clone();
                        };
                        records.push(sim_record(
                            &format!("{a}-{tp}-{batch}-{prompt}"),
                            change,
                            0.0,
                            step,
                        ));
                    }
                }
            }
        }
        records
    }

    fn factor(tp: u32, batch: u32, prompt: u32) -> f64 {
        1.0 + f64::from(tp) * 0.1 + f64::from(batch) * 0.01 + f64::from(prompt) * 0.0001
    }

    #[test]
    fn by_tp_the_values_are_the_rows() {
        let records = grid(&[2, 4, 8], &[1, 4], &[16]);
        let report = compare(&records, "tp").unwrap();
        let slices = slices(&report);
        assert_eq!(slices.len(), 2, "one an architecture: {slices:?}");
        let map = HeatMap::new(&report, &slices[0]);
        assert_eq!((map.tps, map.batches), (vec![4, 8], vec![1, 4]));
    }

    proptest! {
        #[test]
        fn every_pair_is_in_one_map_and_nothing_is_averaged(
            tps in prop::sample::subsequence(vec![2u32, 4, 8], 1..=3),
            batches in prop::sample::subsequence(vec![1u32, 4, 16, 64], 1..=4),
            prompts in prop::sample::subsequence(vec![16u32, 32, 64], 1..=3),
        ) {
            let report = compare(&grid(&tps, &batches, &prompts), "architecture").unwrap();
            let slices = slices(&report);
            prop_assert_eq!(slices.len(), prompts.len(), "a map a prompt length");
            let mut seen = Vec::new();
            for slice in &slices {
                let map = HeatMap::new(&report, slice);
                prop_assert_eq!(&map.tps, &tps);
                prop_assert_eq!(&map.batches, &batches);
                prop_assert_eq!(map.cells.len(), slice.pairs);
                for cell in &map.cells {
                    let pair = &report.pairs[cell.pair];
                    prop_assert_eq!(cell.more, 0);
                    let spec = &pair.side.spec;
                    prop_assert_eq!((cell.tp, cell.batch), (spec.tp, spec.batch));
                    let expected = factor(spec.tp, spec.batch, spec.prompt_tokens);
                    prop_assert!((cell.speedup - expected).abs() < 1e-9);
                    seen.push(cell.pair);
                }
                let [low, high] = map.range(HeatValue::Speedup).unwrap();
                prop_assert!(map.cells.iter().all(|c| low <= c.speedup && c.speedup <= high));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..report.pairs.len()).collect::<Vec<_>>());
        }
    }
}

/// Two micro-batches of standard need no new model: they are compared with a plain standard, and bound nothing.
#[test]
fn cells_that_an_option_changes_are_compared_with_plain_ones() {
    let of = |name: &str, architecture: &str, micro_batches, step| {
        let architecture: Architecture = architecture.parse().unwrap();
        let change = move |s: &mut Spec| {
            (s.architecture, s.batch, s.micro_batches) = (architecture.clone(), 4, micro_batches);
        };
        sim_record(name, change, 1.0, step)
    };
    let records = [
        of("plain", "standard", 1, 4.0),
        of("divided", "standard", 2, 3.0),
        of("ladder", "ladder", 2, 2.5),
        of("bound", "upper-bound", 1, 2.0),
        of("divided-bound", "upper-bound", 2, 2.4),
    ];
    let pairs = compare(&records, "architecture").unwrap().pairs;
    let found: Vec<(&str, Option<f64>)> =
        pairs.iter().map(|pair| (pair.value.as_str(), pair.hidden_share)).collect();
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(pairs.iter().all(|pair| pair.baseline_run == "plain"), "{pairs:?}");
    let share = |value: &str| found.iter().find(|(known, _)| *known == value).unwrap().1;
    assert_eq!(share("standard micro2"), Some(0.5));
    assert_eq!(share("ladder micro2"), Some(0.75));
    let shares = ::table::hidden_shares(&records);
    assert_eq!(shares[..3], [Some(0.0), Some(0.5), Some(0.75)]);
}

/// Runs whose ranks shared a GPU are as if they were not there, also beside measured runs of the same cells.
#[test]
fn nothing_is_computed_from_runs_that_shared_a_gpu() {
    use crate::analysis::{comparable, judge, pareto, side_by_side};
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
    let beside = side_by_side(&both, 0, measured.len()).unwrap();
    assert!(beside.measures.is_empty() && beside.speedup.is_none());
    assert!(
        beside.warnings.iter().any(|said| said.contains("it ran with LADDERSCOPE_SHARED_GPU=1")),
        "{:?}",
        beside.warnings
    );
}

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
fn divisions_of_as_many_gpus_are_compared_and_others_are_not() {
    let cell = |name: &str, tp, ep, dp, step_ms| {
        sim_record(name, move |spec| (spec.tp, spec.ep, spec.dp) = (tp, ep, dp), 0.0, step_ms)
    };
    let records = [
        cell("d", 1, 8, 8, 3.0),
        cell("t", 8, 1, 1, 2.0),
        cell("e", 8, 8, 1, 4.0),
        cell("half", 4, 1, 1, 2.5),
    ];
    let report = compare(&records, "division").unwrap();
    let pairs: Vec<(&str, &str, f64)> = report
        .pairs
        .iter()
        .map(|pair| (pair.baseline.as_str(), pair.value.as_str(), pair.speedup))
        .collect();
    assert_eq!(pairs.len(), 2, "TP 4 uses other GPUs: {pairs:?}");
    assert!(pairs.iter().any(|pair| pair.1 == "dp8+ep8" && (pair.2 - 2.0 / 3.0).abs() < 1e-9));
    assert!(pairs.iter().any(|pair| pair.1 == "tp8+ep8" && (pair.2 - 0.5).abs() < 1e-9));
    assert!(pairs.iter().all(|pair| pair.0 == "tp8"), "{pairs:?}");
    assert!(report.pairs.iter().all(|pair| !pair.matched.contains("tp8")), "{report:?}");
    let has_axis =
        |records: &[Record]| Cells::of(records).axes().iter().any(|count| count.axis == Axis::Division);
    assert!(has_axis(&records) && !has_axis(&records[1..2]));
    assert!(!has_axis(&[records[1].clone(), records[3].clone()]), "without experts it is a TP");
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

#[test]
fn one_margin_holds_for_all_simulated_pairs_of_a_comparison() {
    let near = [paper("standard", 1, 10.0), paper("ladder", 1, 9.75)];
    let report = compare(&near, "architecture").unwrap();
    assert_eq!(report.band().unwrap().words(), "simulator error 2 %");
    assert_eq!(report.pairs[0].verdict, PairVerdict::Faster);
    // one cell without a measured speedup widens the margin of all
    let far = [paper("standard", 128, 10.0), paper("ladder", 128, 8.0)];
    let report = compare(&[&near[..], &far[..]].concat(), "architecture").unwrap();
    assert!(report.pairs.iter().all(|pair| pair.band == Some(TieBand::UNKNOWN)), "{report:?}");
    let verdicts: Vec<PairVerdict> = report.pairs.iter().map(|pair| pair.verdict).collect();
    assert_eq!(verdicts, [PairVerdict::TooClose, PairVerdict::Faster]);
    // but not that of another experiment: a cell's verdict does not depend on what else is stored
    let of = |name: &str, cells: &[Record]| {
        let named = cells.iter().cloned().map(|r| Record { experiment: Some(name.into()), ..r });
        named.collect::<Vec<_>>()
    };
    let report = compare(&[of("near", &near), of("far", &far)].concat(), "architecture").unwrap();
    let verdicts: Vec<PairVerdict> = report.pairs.iter().map(|pair| pair.verdict).collect();
    assert_eq!(verdicts, [PairVerdict::Faster; 2]);
    assert_eq!(report.band_of(&report.pairs[..1]).unwrap().words(), "simulator error 2 %");
    assert_eq!(report.band(), Some(TieBand::UNKNOWN));
    // measured pairs have their intervals instead
    let measured = [
        rounds("s", architecture(&Architecture::Standard), 2.0),
        rounds("l", architecture(&LADDER), 1.95),
    ];
    let report = compare(&measured.concat(), "architecture").unwrap();
    assert_eq!((report.band(), report.pairs[0].band), (None, None));
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
    assert_eq!(report.band().unwrap().words(), "TTFT error 38 % in serving_moe");
    let verdicts: Vec<PairVerdict> = report.pairs.iter().map(|pair| pair.verdict).collect();
    assert_eq!(
        verdicts,
        [PairVerdict::TooClose, PairVerdict::Faster],
        "1.25x is within 38 %, 1.5x is not"
    );
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
    assert_eq!(of.of_ratio(), format!("published {ratio:.2}x, {:+.1} %", of.error_pct));
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
