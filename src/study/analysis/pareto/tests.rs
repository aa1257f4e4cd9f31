//! Frontiers against brute force, areas against counting, overlays against what they were made from.

use proptest::prelude::*;

use super::area::hypervolume;
use super::*;
use ::table::options::OPTIONS;
use ::table::render::Sourced;
use ::table::testing::{change_option, evaluated, record, sim_record};
use ::table::{Link, P2p, Record, Spec, Status};
use plan::{Architecture, ExpertLoad, LayerSet};

/// A record whose metrics are these two numbers.
fn at(run: usize, completion_ms: f64, per_gpu: f64) -> Record {
    let mut record = sim_record(&format!("r{run}"), |spec| spec.batch = run as u32 + 1, 1.0, 1.0);
    if let Some(metrics) = &mut record.metrics {
        metrics.completion_ms = completion_ms;
        metrics.tokens_per_s_per_gpu = per_gpu;
    }
    record
}

fn marks(points: &[(f64, f64)]) -> Vec<bool> {
    let records: Vec<Record> = points.iter().enumerate().map(|(i, p)| at(i, p.0, p.1)).collect();
    pareto(&records).iter().map(|p| p.on_frontier).collect()
}

#[test]
fn ties_are_on_it_and_dominated_points_are_not() {
    assert_eq!(
        marks(&[(1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, 0.5), (2.0, 2.0)]),
        [true, true, false, false, true]
    );
}

#[test]
fn what_is_not_comparable_is_not_compared() {
    let slow = at(0, 9.0, 1.0);
    let mut other_model = at(1, 1.0, 9.0);
    other_model.spec.model = "other".into();
    let mut measured = record("m", |_| (), 0, &[(1.0, 1.0)]);
    measured.environment.insert("host".into(), "a".into());
    let mut elsewhere = record("n", |_| (), 0, &[(9.0, 9.0)]);
    elsewhere.environment.insert("host".into(), "b".into());
    let points = pareto(&[slow, other_model, measured, elsewhere]);
    assert!(points.iter().all(|p| p.on_frontier), "{points:#?}");
    let groups: std::collections::BTreeSet<&str> = points.iter().map(|p| p.group.as_str()).collect();
    assert_eq!(groups.len(), 4);
}

/// A round of ladder follows that of standard by half an hour, as when a cancelled cell is resumed later.
#[test]
fn a_resumed_cell_is_measured_apart_from_its_setting() {
    let apart = |minutes: [u32; 4]| {
        let ladder = |spec: &mut Spec| spec.architecture = Architecture::Ladder(LayerSet::All);
        let other_batch = |spec: &mut Spec| spec.batch = 4;
        let mut records = vec![
            record("s0", |_| (), 0, &[(1.0, 1.0)]),
            record("l0", ladder, 0, &[(1.0, 1.0)]),
            record("s1", |_| (), 1, &[(1.0, 1.0)]),
            record("l1", ladder, 1, &[(1.0, 1.0)]),
        ];
        for (record, minute) in records.iter_mut().zip(minutes) {
            record.created = format!("2026-01-01T00:{minute:02}:00Z");
        }
        // another setting is in no comparison with these
        records.push(record("b0", other_batch, 0, &[(1.0, 1.0)]));
        records[4].created = "2026-01-01T00:59:00Z".into();
        records.iter_mut().for_each(|record| record.experiment = Some("hide".into()));
        let points = pareto(&records);
        points.iter().filter(|point| point.is_apart).map(|p| p.run.clone()).collect::<Vec<_>>()
    };
    assert!(apart([0, 1, 2, 3]).is_empty());
    assert!(apart([0, 3, 1, 2]).is_empty(), "resumed at once");
    assert_eq!(apart([0, 31, 2, 33]), ["l1"], "the last run of the cell");
}

#[test]
fn failed_runs_are_no_points() {
    let mut failed = at(0, 1.0, 1.0);
    failed.status = Status::Failed;
    failed.metrics = None;
    assert!(pareto(&[failed]).is_empty());
}

// Few distinct values, so that ties are common.
fn few() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((1u8..6, 1u8..6).prop_map(|(x, y)| (f64::from(x), f64::from(y))), 1..14)
}

proptest! {
    #[test]
    fn a_point_is_on_it_exactly_if_nothing_dominates_it(values in few()) {
        let records: Vec<Record> = values.iter().enumerate().map(|(i, p)| at(i, p.0, p.1)).collect();
        let points = pareto(&records);
        let best = frontier(&points, |_| true);
        let place = |p: &ParetoPoint| (p.completion_ms, p.tokens_per_s_per_gpu);
        for point in &points {
            let dominates = |other: &ParetoPoint| Axes::default().dominates(place(other), place(point));
            let dominated = points.iter().any(dominates);
            prop_assert_eq!(point.on_frontier, !dominated);
            prop_assert_eq!(dominated, best.iter().any(|other| dominates(other)));
        }
        prop_assert_eq!(best.len(), points.iter().filter(|p| p.on_frontier).count());
        prop_assert!(best.windows(2).all(|w| w[0].completion_ms <= w[1].completion_ms));
    }

    #[test]
    fn a_dominated_point_more_changes_nothing(values in few(), which in any::<prop::sample::Index>()) {
        let before = marks(&values);
        let base = *which.get(&values);
        let mut more = values;
        more.push((base.0 + 1.0, base.1));
        let after = marks(&more);
        prop_assert_eq!(&after[..before.len()], &before[..]);
        prop_assert!(!after[before.len()]);
    }
}

const ALL_AXES: [Axes; 8] = {
    let mut all = [Axes { x: XAxis::Completion, y: YAxis::PerGpu }; 8];
    let mut i = 0;
    while i < 8 {
        all[i] = Axes { x: XAxis::ALL[i / 2], y: YAxis::ALL[i % 2] };
        i += 1;
    }
    all
};

/// A measured cell of an architecture at a batch: 3 rounds of 3 samples around a step time.
fn cell(architecture: Architecture, batch: u32, step_ms: f64) -> Vec<Record> {
    let change = |spec: &mut ::table::Spec| {
        (spec.architecture, spec.batch) = (architecture.clone(), batch);
    };
    (0..3)
        .map(|round| {
            let drift = 1.0 + 0.05 * f64::from(round);
            let samples = [0.98, 1.0, 1.03].map(|s| (10.0 * drift * s, step_ms * drift * s));
            record(&format!("{architecture}-{batch}-{round}"), change, round, &samples)
        })
        .collect()
}

fn ladder() -> Architecture {
    Architecture::Ladder(LayerSet::All)
}

/// Standard and ladder at three batches; ladder takes `share` of the time of standard.
fn both(share: f64) -> Vec<Record> {
    let steps = [(1, 20.0), (4, 22.0), (16, 30.0)];
    let all = steps.into_iter().flat_map(|(batch, ms)| {
        let mut records = cell(Architecture::Standard, batch, ms);
        records.extend(cell(ladder(), batch, ms * share));
        records
    });
    all.collect()
}

#[test]
fn tokens_per_user_are_better_the_more_there_are() {
    // batch 1 is fastest for its user, batch 16 best a GPU; the middle one is as slow as the last
    let mut records = both(1.0);
    records.retain(|r| r.spec.architecture == Architecture::Standard);
    records.extend(cell(Architecture::Standard, 2, 30.0));
    let axes = Axes { x: XAxis::User, y: YAxis::PerGpu };
    let points = pareto_on(&records, axes);
    let by_batch = |batch| points.iter().find(|p| p.spec.batch == batch).unwrap();
    assert!(by_batch(1).on_frontier && by_batch(4).on_frontier && by_batch(16).on_frontier);
    assert!(!by_batch(2).on_frontier);
    assert_eq!(by_batch(2).dominated_by.as_deref(), Some("standard-16-2"));
    let order: Vec<u32> = frontier_on(&points, axes, |_| true).iter().map(|p| p.spec.batch).collect();
    assert_eq!(order, [1, 4, 16], "from the best x to the worst");
    let user = by_batch(1).tokens_per_s_per_user.unwrap();
    assert!((user - 1000.0 / by_batch(1).tpot_ms).abs() < 1e-9);
}

#[test]
fn intervals_of_both_axes_belong_to_the_same_samples() {
    let points = pareto_on(&both(0.8), Axes { x: XAxis::Ttft, y: YAxis::Total });
    for point in &points {
        let [low, high] = point.completion_ms_ci95.unwrap();
        assert!(low <= point.completion_ms && point.completion_ms <= high, "{point:#?}");
        let [least, most] = point.tokens_per_s_ci95.unwrap();
        let tokens = f64::from(point.spec.batch * point.spec.output_tokens) * 1e3;
        assert!((tokens / high - least).abs() < 1e-9 && (tokens / low - most).abs() < 1e-9);
        let [low, high] = XAxis::Ttft.interval(point).unwrap();
        let ttft = point.ttft_ms.unwrap();
        assert!(low <= ttft && ttft <= high && high > low, "{ttft} in {low}..{high}");
    }
    let simulated = pareto(&[sim_record("s", |_| (), 1.0, 2.0)]);
    assert_eq!((simulated[0].completion_ms_ci95, simulated[0].ttft_ms_ci95), (None, None));
}

#[test]
fn every_option_separates_series_or_groups_but_those_of_a_point() {
    let plain = sim_record("plain", |_| (), 1.0, 2.0);
    let set = |change: &dyn Fn(&mut Spec)| sim_record("set", change, 1.0, 2.0);
    for option in OPTIONS {
        let changed = set(&|spec| change_option(option, spec));
        if changed.spec.settings().next().is_none() {
            continue;
        }
        let points = pareto(&[plain.clone(), changed]);
        assert_eq!(points[0].group, points[1].group, "{}", option.name);
        assert_ne!(points[0].series(), points[1].series(), "{}", points[1].setting);
    }
    let loads: [&dyn Fn(&mut Spec); 2] =
        [&|s| s.expert_load = ExpertLoad::PowerLaw(1.2), &|s| s.concurrency = 16];
    for change in loads {
        let points = pareto(&[plain.clone(), set(change)]);
        assert_ne!(points[0].group, points[1].group, "another workload");
    }
}

#[test]
fn one_p2p_setting_over_two_links_is_two_series() {
    let over = |name: &str, alpha_us| {
        let link = Link::Emulated { alpha_us, gb_s: 4.0 };
        record(name, |s| s.link = link, 0, &[(1.0, alpha_us)])
    };
    let points = pareto(&[over("slow", 400.0), over("fast", 100.0)]);
    assert_eq!(points[0].setting, "emulated:alpha_us=400,gb_s=4");
    assert_eq!(points.iter().map(|p| p.on_series_frontier).collect::<Vec<_>>(), [true, true]);
    assert_eq!(points.iter().map(|p| p.on_frontier).collect::<Vec<_>>(), [false, true]);
    assert_eq!(points[0].dominated_by.as_deref(), Some("fast"));
    let one = pareto(&[over("slow", 400.0)]);
    assert_eq!(one[0].series().label(), "standard p2p-on", "nothing to tell apart");
}

#[test]
fn a_series_is_named_by_the_settings_in_which_its_group_differs() {
    let cell = |name: &str, change: &dyn Fn(&mut Spec), step_ms| sim_record(name, change, 1.0, step_ms);
    let nccl = cell("nccl", &|_| (), 4.0);
    let one_shot = cell("one-shot", &|spec| spec.collective = "one-shot".parse().unwrap(), 2.0);
    let points = pareto(&[nccl.clone(), one_shot]);
    assert_eq!(points.iter().map(|p| p.setting.as_str()).collect::<Vec<_>>(), ["nccl", "one-shot"]);
    assert!(points[1].cell_label().ends_with(" p2p-on one-shot"), "{}", points[1].cell_label());
    let micro = cell("micro", &|spec| spec.micro_batches = 2, 2.0);
    let points = pareto(&[nccl, micro]);
    assert_eq!(points.iter().map(|p| p.setting.as_str()).collect::<Vec<_>>(), ["", "micro2"]);
    // alone, a point has nothing to be distinguished from, and nothing dominates it
    let (slow, mut points) = (points[0].clone(), points);
    relate_points(&mut points[..1], Axes::default());
    assert_eq!((points[0].on_frontier, points[0].dominated_by.as_deref()), (true, None));
    assert_eq!((slow.on_frontier, slow.dominated_by.as_deref()), (false, Some("micro")));
    relate_points(&mut points[1..], Axes::default());
    assert_eq!(points[1].setting, "");
}

#[test]
fn a_point_that_another_series_dominates_within_noise_is_marked() {
    // one architecture with and without P2P: a hundredth apart, and far apart
    let points = |share: f64| {
        let mut records = cell(ladder(), 4, 20.0);
        let off = cell(ladder(), 4, 20.0 * share).into_iter().map(|mut record| {
            (record.spec.p2p, record.run) = (P2p::Off, format!("{}-off", record.run));
            record
        });
        records.extend(off);
        pareto(&records)
    };
    for (share, is_close) in [(0.99, true), (0.5, false)] {
        let points = points(share);
        let on = points.iter().find(|point| point.spec.p2p == P2p::On).unwrap();
        assert!(on.dominated_by.is_some() && !on.on_frontier, "{on:?}");
        assert_eq!(on.too_close, is_close, "{share}");
        assert_eq!(Axes::default().are_tied_in_y(&points[0], &points[1]), is_close, "{share}");
    }
}

#[test]
fn a_cell_without_an_axis_is_on_no_frontier_there() {
    let mut one_token = record("one", |s| s.output_tokens = 1, 0, &[(5.0, 1.0)]);
    if let Some(metrics) = &mut one_token.metrics {
        metrics.tpot_ms.p50 = 0.0;
    }
    let records = [one_token];
    assert!(pareto(&records)[0].on_frontier);
    let points = pareto_on(&records, Axes { x: XAxis::Tpot, y: YAxis::PerGpu });
    assert!(!points[0].on_frontier && points[0].dominated_by.is_none());
}

#[test]
fn at_a_limit_each_series_has_its_best_cell() {
    let points = pareto(&both(0.8));
    // completion latencies of standard: about 94.5, 102.9, 136.5 ms at batch 1, 4, 16
    let rows = at_limits(&points, Axes::default(), &[50.0, 115.0, 1000.0]);
    let row = |architecture: &Architecture, limit: f64| {
        rows.iter().find(|r| r.architecture == *architecture && r.limit == limit).unwrap()
    };
    assert_eq!(row(&Architecture::Standard, 50.0).best, None);
    let standard = row(&Architecture::Standard, 115.0).best.clone().unwrap();
    assert_eq!((standard.tp, standard.batch, standard.over_standard), (2, 4, Some(1.0)));
    let best = row(&ladder(), 115.0).best.clone().unwrap();
    assert_eq!(
        (best.batch, best.standard_batch),
        (16, Some(4)),
        "ladder keeps the limit at a larger batch"
    );
    assert!(best.x <= 115.0 && best.over_standard.unwrap() > 3.0, "{best:?}");
    assert!(best.y_ci95.unwrap()[0] < best.y);
    assert_eq!(row(&ladder(), 1000.0).best.as_ref().unwrap().batch, 16);
}

#[test]
fn the_area_gained_is_told_with_its_reference_and_interval() {
    let options = AreaOptions::default();
    let [gained] = &area_gained(&both(0.8), options, None)[..] else { panic!("one pair") };
    assert_eq!((gained.cells, gained.left_out, gained.x_scale), (3, 0, "linear"));
    let points = pareto(&both(0.8));
    let worst = points.iter().map(|p| p.completion_ms).fold(0.0, f64::max);
    assert!((gained.reference[0] - 1.1 * worst).abs() < 1e-9 && gained.reference[1] == 0.0);
    let percent = gained.gained_pct.unwrap();
    let [low, high] = gained.gained_pct_ci95.unwrap();
    assert!(low <= percent && percent <= high && low > 0.0, "{percent} in {low}..{high}");
    // cells that only one has do not count
    let mut more = both(0.8);
    more.extend(cell(ladder(), 64, 40.0));
    let again = &area_gained(&more, options, None)[0];
    assert_eq!((again.cells, again.left_out), (3, 1));
    assert!((again.gained_pct.unwrap() - percent).abs() < 1e-9);
    // the same frontier twice gains nothing
    let none = &area_gained(&both(1.0), options, None)[0];
    assert!(none.gained_pct.unwrap().abs() < 1e-9);
    let [low, high] = none.gained_pct_ci95.unwrap();
    assert!(low < 0.0 && high > 0.0, "{low}..{high} holds no gain");
    let elsewhere = Some("no such group");
    assert!(area_gained(&both(0.8), options, elsewhere).is_empty());
}

#[test]
fn no_interval_says_why() {
    let sim = |name: &str, architecture: Architecture, ms| {
        sim_record(name, |s| s.architecture = architecture.clone(), 1.0, ms)
    };
    let records = [sim("a", Architecture::Standard, 2.0), sim("b", ladder(), 1.0)];
    let gained = &area_gained(&records, AreaOptions::default(), None)[0];
    assert!(gained.gained_pct.unwrap() > 0.0 && gained.gained_pct_ci95.is_none());
    assert!(gained.no_interval.as_deref().unwrap().contains("simulations are deterministic"));
    let few: Vec<Record> = both(0.8).into_iter().filter(|r| r.round == 0).collect();
    let gained = &area_gained(&few, AreaOptions::default(), None)[0];
    assert!(gained.no_interval.as_deref().unwrap().contains("fewer than 6 samples"), "{gained:?}");
}

#[test]
fn logarithmic_areas_count_ratios() {
    // twice as fast everywhere: the frontier moves by the same distance, whatever the unit
    let options = AreaOptions { log_x: true, log_y: true, ..AreaOptions::default() };
    let of = |scale: f64| {
        let mut records = both(0.5);
        for record in &mut records {
            for sample in std::sync::Arc::make_mut(&mut record.samples) {
                sample.prefill_ms *= scale;
                sample.decode_ms *= scale;
                sample.steps_ms.iter_mut().for_each(|ms| *ms *= scale);
            }
        }
        area_gained(&records, options, None)[0].gained_pct.unwrap()
    };
    assert!((of(1.0) - of(1000.0)).abs() < 1e-6, "{} {}", of(1.0), of(1000.0));
}

#[test]
fn a_frontier_steps_up_where_the_next_point_begins() {
    let steps = frontier_steps(&[(1.0, 2.0), (3.0, 5.0), (4.0, 6.0)]);
    assert_eq!(steps, [(1.0, 2.0), (3.0, 2.0), (3.0, 5.0), (4.0, 5.0), (4.0, 6.0)]);
    // more x is better
    assert_eq!(frontier_steps(&[(4.0, 1.0), (2.0, 3.0)]), [(4.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
    assert!(frontier_steps(&[]).is_empty());
}

#[test]
fn round_limits_span_the_values() {
    let points = pareto(&both(0.8));
    let limits = round_limits(&points, Axes::default(), 6);
    let values: Vec<f64> = points.iter().map(|p| p.completion_ms).collect();
    assert!(limits.len() >= 3 && limits.len() <= 6, "{limits:?} for {values:?}");
    assert!(limits.windows(2).all(|w| w[0] < w[1]));
    assert!(limits.last().unwrap() >= &values.iter().copied().fold(0.0, f64::max), "{limits:?}");
    assert!(round_limits(&[], Axes::default(), 6).is_empty());
}

/// The paper's figure of improvements: what the carried points say of ladder over standard at 70B.
#[test]
fn the_published_points_say_what_the_paper_says() {
    let points = published().unwrap();
    assert_eq!(points.len(), 52);
    let at = |architecture: &str, tp, batch, p2p| {
        let found = points.iter().find(|p| {
            p.model.as_deref() == Some("llama-3-70b")
                && p.architecture == architecture
                && (p.tp, p.batch, p.p2p) == (Some(tp), Some(batch), Some(p2p))
        });
        found.unwrap().clone()
    };
    let gain = |batch, p2p| {
        let of = |name| at(name, 8, batch, p2p).tokens_per_s.unwrap();
        of("ladder") / of("standard")
    };
    // "29 %" with P2P at TP 8 is the paper's own round figure; without P2P close to 60 %
    assert!((gain(1, P2p::On) - 1.29).abs() < 0.03, "{}", gain(1, P2p::On));
    assert!((gain(1, P2p::Off) - 1.60).abs() < 0.01, "{}", gain(1, P2p::Off));
    assert!(gain(16, P2p::On) < gain(1, P2p::On) && gain(64, P2p::On) < gain(16, P2p::On));
    let contradicts = points.iter().filter_map(|p| Some((p.batch, p.contradiction()?)));
    let contradicts: Vec<(Option<u32>, String)> = contradicts.collect();
    assert_eq!(contradicts.iter().map(|(batch, _)| *batch).collect::<Vec<_>>(), [Some(1), Some(64)]);
    let why = "the latency of 6.20 s contradicts TTFT + 511 x TPOT (12.8 ms) = 6.60 s";
    assert_eq!(contradicts[0].1, why);
    // tokens/s are batch x 512 over the completion latency; the run logs agree within about 6 %
    for point in points.iter().filter(|p| p.tpot_ms.is_some()) {
        let logged = point.ttft_ms.unwrap() + 511.0 * point.tpot_ms.unwrap();
        let ratio = point.completion_ms.unwrap() / logged;
        assert!((ratio - 1.0).abs() < 0.065, "{}: {ratio}", point.name());
        let per_gpu = point.tokens_per_s_per_gpu.unwrap() * f64::from(point.tp.unwrap());
        assert!((per_gpu - point.tokens_per_s.unwrap()).abs() < 1e-9);
    }
    assert!(points.iter().all(|p| p.source == PUBLISHED));
}

#[test]
fn a_table_of_ones_own_is_read_and_errors_name_their_place() {
    let text = "# mine\narchitecture,tp,batch,output_tokens,tokens_per_s,tpot_ms,p2p,label\n\
                standard,8,4,512,100,\"9.5\",on,\nmine,,,,200,5,,\"a, b\"\n";
    let points = parse_overlay("mine.csv", text, "mine.csv").unwrap();
    assert_eq!(points[0].name(), "8x4");
    assert_eq!(points[0].completion_ms, Some(4.0 * 512.0 * 1e3 / 100.0));
    assert_eq!(points[0].place(Axes { x: XAxis::User, y: YAxis::PerGpu }), Some((1000.0 / 9.5, 12.5)));
    assert_eq!(points[1].name(), "a, b");
    assert_eq!(points[1].place(Axes { x: XAxis::Tpot, y: YAxis::Total }), Some((5.0, 200.0)));
    assert_eq!(points[1].place(Axes::default()), None, "no TP, so nothing a GPU");
    for (text, wanted) in [
        ("tp,tokens_per_s,tpot\n1,2,3\n", "mine.csv:1: unknown column 'tpot'"),
        ("tp,tokens_per_s,tpot_ms\n8,1,2\nx,2,3\n", "mine.csv:3: tp is 'x'; it must be a whole number"),
        (
            "tp,tokens_per_s,tpot_ms\n8,-1,2\n",
            "mine.csv:2: tokens_per_s is '-1'; it must be a number above 0",
        ),
        (
            "tp,p2p,tokens_per_s,tpot_ms\n8,maybe,1,2\n",
            "mine.csv:2: p2p is 'maybe'; it must be on or off",
        ),
        (
            "tp,provenance,tokens_per_s,tpot_ms\n8,guessed,1,2\n",
            "mine.csv:2: provenance is 'guessed'; it must be one of measured, emulated-link, simulated",
        ),
        ("tp,tokens_per_s,tpot_ms\n8,1\n", "mine.csv:2: has 2 fields, the header 3"),
        ("tp,batch\n8,1\n", "no column for latency or for throughput"),
        ("", "mine.csv: it is empty"),
    ] {
        let error = parse_overlay("mine.csv", text, "mine.csv").unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn own_tables_of_points_read_back() {
    let others = Axes { x: "tpot_p90_ms".parse().unwrap(), y: "tokens_per_s_per_gpu".parse().unwrap() };
    for axes in [Axes::default(), others] {
        let points = pareto_on(&both(0.8), axes);
        let table = points_table(&points, axes).csv(Sourced::ByRow);
        let again = parse_overlay("points.csv", &table, "points.csv").unwrap();
        assert_eq!(again.len(), points.len());
        assert!(points.iter().any(|point| axes.coordinates(point).is_some()), "{axes:?}");
        for (point, read) in points.iter().zip(&again) {
            assert_eq!(read.place(axes), axes.coordinates(point));
            assert!(read.goes_with(&point.spec));
            assert_eq!(read.architecture, point.spec.architecture.to_string());
            let source = format!("points.csv ({})", point.provenance);
            assert_eq!(read.source, source, "never taken for another");
        }
        let unnamed = table.replace("tpot_p90_ms", "");
        assert_eq!(parse_overlay("t.csv", &unnamed, "t.csv").is_ok(), axes == Axes::default());
    }
}

#[test]
fn an_overlay_goes_with_its_model_and_workload() {
    let point = published().unwrap().remove(0);
    let mut spec = ::table::testing::spec();
    assert!(!point.goes_with(&spec));
    (spec.model, spec.prompt_tokens, spec.output_tokens) = ("llama-3-70b".into(), 1024, 512);
    assert!(point.goes_with(&spec));
    assert!(OverlayPoint::default().goes_with(&spec), "what it does not say does not matter");
}

/// Points with values on all axes, few distinct ones.
fn any_points() -> impl Strategy<Value = Vec<Record>> {
    let value = (1u8..6, 1u8..6, 0u8..3, 0u8..2);
    prop::collection::vec(value, 1..14).prop_map(|values| {
        let of = |(i, (x, y, architecture, p2p)): (usize, (u8, u8, u8, u8))| {
            let mut record = at(i, f64::from(x), f64::from(y));
            record.spec.p2p = if p2p == 0 { P2p::On } else { P2p::Off };
            record.spec.architecture = match architecture {
                0 => Architecture::Standard,
                1 => ladder(),
                _ => Architecture::UpperBound,
            };
            if let Some(metrics) = &mut record.metrics {
                metrics.tokens_per_s = f64::from(y * (x % 3 + 1));
                metrics.tpot_ms.p50 = f64::from(x % 4);
                metrics.prefill_ms = f64::from((x + y) % 3 + 1);
            }
            record
        };
        values.into_iter().enumerate().map(of).collect()
    })
}

proptest! {
    #[test]
    fn frontiers_on_all_axes_agree_with_brute_force(records in any_points()) {
        for axes in ALL_AXES {
            let points = pareto_on(&records, axes);
            for point in &points {
                let Some(place) = axes.coordinates(point) else {
                    prop_assert!(!point.on_frontier && !point.on_series_frontier);
                    continue;
                };
                let beats = |other: &&ParetoPoint| {
                    axes.coordinates(other).is_some_and(|at| axes.dominates(at, place))
                };
                let group = |p: &&ParetoPoint| p.group == point.group;
                let same = |p: &&ParetoPoint| group(p) && p.series() == point.series();
                let choice = |p: &&ParetoPoint| group(p) && !p.is_limit();
                let dominated = points.iter().filter(choice).any(|p| beats(&p));
                prop_assert_eq!(point.on_frontier, !dominated && !point.is_limit());
                prop_assert_eq!(point.on_series_frontier, !points.iter().filter(same).any(|p| beats(&p)));
                prop_assert_eq!(point.dominated_by.is_some(), dominated, "a limit dominates nothing");
                if let Some(run) = &point.dominated_by {
                    let by = points.iter().find(|p| p.run == *run).unwrap();
                    prop_assert!(choice(&by) && beats(&by));
                }
            }
            let best = frontier_on(&points, axes, |_| true);
            let rises = |w: &[&ParetoPoint]| {
                let (a, b) = (axes.coordinates(w[0]).unwrap(), axes.coordinates(w[1]).unwrap());
                !axes.dominates(a, b) && !axes.dominates(b, a) && a.1 <= b.1
            };
            prop_assert!(best.windows(2).all(rises));
        }
    }

    #[test]
    fn areas_agree_with_counting_unit_squares(
        places in prop::collection::vec((0u8..20, 0u8..20), 0..12),
        reference in (5u8..20, 0u8..10),
    ) {
        let places: Vec<(f64, f64)> =
            places.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect();
        let reference = (f64::from(reference.0), f64::from(reference.1));
        let mut squares = 0;
        for x in 0..20 {
            for y in 0..20 {
                // the square's middle: dominated by a place, and on the near side of the reference
                let (x, y) = (f64::from(x) + 0.5, f64::from(y) + 0.5);
                let inside = x < reference.0 && y > reference.1;
                squares += u32::from(inside && places.iter().any(|p| p.0 < x && p.1 > y));
            }
        }
        prop_assert!((hypervolume(&places, reference) - f64::from(squares)).abs() < 1e-9);
    }

    #[test]
    fn limits_agree_with_brute_force(records in any_points(), limit in 0.5f64..6.0) {
        for axes in ALL_AXES {
            let points = pareto_on(&records, axes);
            for row in at_limits(&points, axes, &[limit]) {
                let keeps = |x: f64| if axes.x.is_more_better() { x >= limit } else { x <= limit };
                let best = points
                    .iter()
                    .filter(|p| p.spec.architecture == row.architecture && p.spec.p2p == row.p2p)
                    .filter_map(|p| axes.coordinates(p))
                    .filter(|(x, _)| keeps(*x))
                    .map(|(_, y)| y)
                    .reduce(f64::max);
                prop_assert_eq!(row.best.map(|b| b.y), best);
            }
        }
    }

    #[test]
    fn the_table_reader_never_panics(text in "[a-z_,\t\n\"0-9.#-]{0,120}") {
        let _ = parse_overlay("t.csv", &text, "t.csv");
    }
}

/// Which conversion loses least for each millisecond gained: less is better on both axes, and `standard`, which loses
/// nothing, has a place.
#[test]
fn a_frontier_of_quality_has_who_loses_least_for_its_time() {
    let of = |architecture: &str, step_ms: f64, kl: Option<f64>| {
        let change = |spec: &mut ::table::Spec| spec.architecture = architecture.parse().unwrap();
        let record = sim_record(architecture, change, 1.0, step_ms);
        kl.map_or(record.clone(), |kl| evaluated(record, kl))
    };
    let records = [
        of("standard", 14.0, Some(0.0)),
        of("ladder:2", 12.0, Some(0.125)),
        of("parallel", 11.0, Some(0.75)),
        of("ladder", 10.0, Some(0.5)),
        of("upper-bound", 9.0, None),
    ];
    let axes = Axes { x: "tpot".parse().unwrap(), y: "kl".parse().unwrap() };
    let points = pareto_on(&records, axes);
    let best: Vec<&str> =
        points.iter().filter(|p| p.on_frontier).map(|point| point.run.as_str()).collect();
    assert_eq!(best, ["standard", "ladder:2", "ladder"]);
    let dominated = points.iter().find(|point| point.run == "parallel").unwrap();
    assert_eq!(dominated.dominated_by.as_deref(), Some("ladder"));
    assert_eq!(axes.quality_basis(&points), ["KL: measured on cpu, text.txt, 6 windows of 5 tokens"]);
    assert!(Axes::default().quality_basis(&pareto(&records)).is_empty());
    // what was found on another text stands in a group of its own, and has no ratio
    let mut mixed = records.to_vec();
    let mut other = (**mixed[1].quality.as_ref().unwrap()).clone();
    other.text_hash = "another text".into();
    mixed[1].quality = Some(std::sync::Arc::new(other));
    let apart = pareto_on(&mixed, axes);
    assert_ne!(apart[0].group, apart[1].group);
    assert!(apart[1].group.contains("quality on text.txt (anothe"), "{}", apart[1].group);
    // on the horizontal axis 0 has no round limit near it
    let turned = Axes { x: "kl".parse().unwrap(), y: "tpot".parse().unwrap() };
    let points = pareto_on(&records, turned);
    assert_eq!(points.iter().filter(|point| point.on_frontier).count(), 3);
    assert!(round_limits(&points, turned, 6).iter().all(|limit| *limit > 0.0));
    assert!(at_limits(&points, axes, &[20.0]).iter().all(|row| {
        row.best.as_ref().and_then(|best| best.over_standard).is_none_or(f64::is_finite)
    }));
}

#[test]
fn what_varies_is_said_of_each_group_and_the_rest_once() {
    let name = |prompt: u32, set: &str| format!("8b bf16, prompt {prompt}, h100_sxm{set}, sim native");
    let names = [name(64, " link.alpha_us=5"), name(64, " link.alpha_us=20")];
    let (apart, common) = split_group_names(&[&names[0], &names[1]]);
    assert_eq!(apart, ["link.alpha_us=5", "link.alpha_us=20"]);
    assert_eq!(common, "8b bf16, prompt 64, sim native");
    let names = [name(64, ""), name(128, "")];
    let (apart, common) = split_group_names(&[&names[0], &names[1]]);
    assert_eq!(apart, ["prompt 64", "prompt 128"]);
    assert_eq!(common, "8b bf16, h100_sxm, sim native");
    assert_eq!(split_group_names(&[&names[0]]), (vec![String::new()], names[0].clone()));
    assert_eq!(split_group_names(&[]), (Vec::new(), String::new()));
}

/// Numbers and options that a table lacks are not those of the runs beside it.
#[test]
fn a_filter_judges_a_published_point_by_its_own_numbers() {
    let like = sim_record("a", |spec| spec.output_tokens = 64, 10.0, 20.0);
    let point = OverlayPoint { ttft_ms: None, ..published().unwrap().remove(0) };
    let record = point.record(&like);
    assert_eq!(
        (Some(record.spec.output_tokens), record.spec.tp),
        (point.output_tokens, point.tp.unwrap())
    );
    assert!(record.overlap.is_none() && record.samples.is_empty());
    let metrics = record.metrics.unwrap();
    assert!(metrics.prefill_ms.is_nan());
    assert_eq!(Some(metrics.tokens_per_s), point.tokens_per_s);
}
