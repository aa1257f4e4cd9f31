//! Which cells are compared with which, along each axis.

use super::*;
use ::table::options::OPTIONS;
use ::table::testing::change_option;
use ::table::{Backend, Link, P2p, VARIANTS};
use base::error::Error;

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

    let ring =
        Cells::from_records(&records).compare(&Axis::Env("NCCL_ALGO".into()), Some("Ring")).unwrap();
    let tree = ring.pairs.iter().find(|p| p.value == "Tree").unwrap();
    assert!((tree.speedup - 0.5).abs() < 1e-9 && tree.baseline == "Ring");
    let error =
        Cells::from_records(&records).compare(&Axis::Env("NCCL_ALGO".into()), Some("Rong")).unwrap_err();
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
    let axes = Cells::from_records(&records).axes();
    let named: Vec<(String, usize, usize)> =
        axes.iter().map(|a| (a.axis.to_string(), a.values.len(), a.pairs.len())).collect();
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
        let axes = Cells::from_records(&records).axes();
        axes.iter().find(|a| a.axis.to_string() == name).map(|a| a.pairs.len())
    };
    assert_eq!((pairs("architecture"), pairs("tp"), pairs("link")), (Some(1), Some(1), Some(0)));
    assert_eq!(pairs("batch"), None);
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
    let has_axis = |records: &[Record]| {
        Cells::from_records(records).axes().iter().any(|count| count.axis == Axis::Division)
    };
    assert!(has_axis(&records) && !has_axis(&records[1..2]));
    assert!(!has_axis(&[records[1].clone(), records[3].clone()]), "without experts it is a TP");
}

#[test]
fn pairs_are_in_the_order_of_their_settings_whatever_was_stored_first() {
    let cell = |name: &str, tp, batch| {
        let change = |s: &mut Spec| {
            (s.architecture, s.tp, s.batch) = (name.parse().unwrap(), tp, batch);
        };
        sim_record(&format!("{name}-{tp}-{batch}"), change, 0.0, 1.0)
    };
    let both = |tp, batch| ["standard", "ladder"].map(|name| cell(name, tp, batch));
    let records = [both(8, 1), both(8, 64), both(4, 32), both(4, 4)].concat();
    let settings = |axis| -> Vec<(u32, u32)> {
        let pairs = compare(&records, axis).unwrap().pairs;
        pairs.iter().map(|pair| (pair.side.spec.tp, pair.side.spec.batch)).collect()
    };
    assert_eq!(settings("architecture"), [(4, 4), (4, 32), (8, 1), (8, 64)]);
    assert_eq!(compare(&records, "batch").unwrap().values, ["1", "4", "32", "64"]);
}
