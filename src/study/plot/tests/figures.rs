//! What each kind of figure shows and says.

use super::*;

#[test]
fn a_pareto_figure_says_what_and_where_from() {
    let (records, points) = (cells(), points());
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let figure =
        pareto_figure(&data, &ProvenanceSummary::of_records(&records), &FigureOptions::default())
            .unwrap();
    assert_says(
        &figure,
        &[
            "llama-3-70b f32, prompt 16, output 5",
            "Simulated (not a measurement); h100_sxm; stack native; not validated for stack native on h100_sxm; 144 runs; ladderscope",
            "completion latency (ms)",
            "tokens/s per GPU",
            "ladder:2",
            "upper-bound",
            "P2P on",
            "P2P off",
            "8×64",
        ],
    );
    let tips = &figure.scene.tips;
    assert_eq!(tips.len(), 144, "every point says what it is");
    assert!(tips.iter().all(|tip| tip.text.ends_with("(simulated)")));
    assert!(
        pareto_figure(&ParetoData::default(), &ProvenanceSummary::default(), &FigureOptions::default())
            .is_err()
    );
}

#[test]
fn a_figure_of_one_p2p_setting_names_it() {
    let records = cells();
    let points: Vec<ParetoPoint> =
        points().into_iter().filter(|point| point.spec.p2p == P2p::Off).collect();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let provenance = ProvenanceSummary::of_records(&records);
    let figure = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap();
    assert_says(&figure, &["llama-3-70b f32, prompt 16, output 5", "P2P off"]);
}

#[test]
fn a_limit_is_a_line_and_its_answer_is_in_the_caption() {
    let (records, points) = (cells(), points());
    let provenance = ProvenanceSummary::of_records(&records);
    let with = |limits: &[f64]| {
        let data = ParetoData { points: &points, limits: limits.to_vec(), ..ParetoData::default() };
        let scene = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap().scene;
        let is_dashed = |shape: &&SceneShape| matches!(shape, SceneShape::Dashed(..));
        let dashed = scene.shapes.iter().filter(is_dashed).count();
        let said: Vec<&str> = texts(&scene).into_iter().map(|text| text.text.as_str()).collect();
        (dashed, said.join(" "))
    };
    let (dashed, _) = with(&[]);
    let (limited, said) = with(&[100.0]);
    assert_eq!(limited, dashed + 1, "the line");
    let (_, answer) = said.split_once("Within 100 ms (dashed line): ").expect(&said);
    assert!(answer.contains(" tokens/s per GPU (") && answer.contains("standard "), "{answer}");
    assert!(!answer.contains("upper-bound 1"), "nobody can choose it: {answer}");
    let (none, said) = with(&[1.0]);
    assert!(none == dashed && said.contains("Within 1 ms: no point"), "{said}");
}

#[test]
fn series_of_two_all_reduces_are_told_apart_by_a_mark_that_the_caption_explains() {
    let own = cells();
    let one_shot = own.iter().cloned().map(|mut record| {
        record.run.push_str("-one-shot");
        record.spec.collective = "one-shot".parse().unwrap();
        record
    });
    let records: Vec<Record> = own.iter().cloned().chain(one_shot).collect();
    let points = analysis::pareto(&records);
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let provenance = ProvenanceSummary::of_records(&records);
    let scene = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap().scene;
    let said: Vec<&str> = texts(&scene).into_iter().map(|text| text.text.as_str()).collect();
    assert_eq!(said.iter().filter(|text| **text == "²").count(), own.len(), "one of each pair");
    assert!(said.join(" ").contains("² one-shot, others nccl"), "{said:?}");
}

#[test]
fn labels_of_points_stand_for_the_frontier_and_off_the_markers() {
    let points = points();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let scene =
        pareto_figure(&data, &ProvenanceSummary::of_records(&cells()), &FigureOptions::default())
            .unwrap()
            .scene;
    let labels: Vec<_> = texts(&scene).into_iter().filter(|text| text.inside).collect();
    assert!(labels.len() > 5, "{labels:?}");
    for tip in &scene.tips {
        // A tip's radius is larger than its marker's.
        let marker = Area::around(tip.at, tip.radius / 2.2);
        for label in &labels {
            assert!(!label.area().meets(&marker), "'{}' lies on {}", label.text, tip.text);
        }
    }
    let best = analysis::frontier(&points, |p| p.spec.architecture != Architecture::UpperBound);
    for label in labels {
        let (tp, batch) = label.text.split_once('×').unwrap();
        let (tp, batch): (u32, u32) = (tp.parse().unwrap(), batch.parse().unwrap());
        let stands = |p2p| {
            analysis::frontier(&points, |p| {
                p.spec.p2p == p2p && p.spec.architecture != Architecture::UpperBound
            })
            .iter()
            .any(|p| (p.spec.tp, p.spec.batch) == (tp, batch))
        };
        assert!(stands(P2p::On) || stands(P2p::Off), "{} is on no frontier", label.text);
    }
    assert!(!best.is_empty());
}

#[test]
fn measured_points_have_intervals() {
    let records = measured();
    let points = analysis::pareto(&records);
    let mut bare = points.clone();
    for point in &mut bare {
        (point.tokens_per_s_ci95, point.completion_ms_ci95) = (None, None);
    }
    let provenance = ProvenanceSummary::of_records(&records);
    let of = |points: &[ParetoPoint]| {
        let data = ParetoData { points, ..ParetoData::default() };
        pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap()
    };
    let (without, with) = (of(&bare), of(&points));
    let lines = |figure: &Figure| {
        figure.scene.shapes.iter().filter(|shape| matches!(shape, SceneShape::Lines(..))).count()
    };
    assert!(lines(&with) >= lines(&without) + 12, "two bars a cell");
    assert_legible(&with.scene);
    assert_says(&with, &["95 % bootstrap intervals", "Measured; "]);
    assert!(!read(&without).iter().any(|text| text.contains("bootstrap")));
}

/// Cells of several prompt lengths are joined, and standard's is the measure of the others.
#[test]
fn first_tokens_by_prompt_length_have_a_chart_of_latencies_and_one_of_shares() {
    let one = cells().into_iter().find(|cell| cell.spec.architecture == Architecture::Standard).unwrap();
    let cell = |hardware: &str, architecture: &str, prompt_tokens: u32, prefill_ms: f64| {
        let mut cell = one.clone();
        cell.run = format!("{hardware}-{architecture}-{prompt_tokens}");
        let architecture = architecture.parse().unwrap();
        cell.spec = table::Spec { architecture, prompt_tokens, hardware: hardware.into(), ..cell.spec };
        cell.metrics.as_mut().unwrap().prefill_ms = prefill_ms;
        cell
    };
    let mut records = Vec::new();
    for hardware in ["h100_sxm", "mi300x"] {
        for (prompt, standard) in [(1024, 10.0), (4096, 40.0), (32768, 400.0)] {
            records.push(cell(hardware, "standard", prompt, standard));
            records.push(cell(hardware, "farskip", prompt, 0.9 * standard));
        }
    }
    let draw = |records: &[Record]| {
        let provenance = ProvenanceSummary::of_records(records);
        crate::plot::first_token_figure(records, &provenance, &FigureOptions::default())
    };
    let figure = draw(&records).unwrap();
    assert_legible(&figure.scene);
    assert_says(
        &figure,
        &[
            "Time to first token by prompt length",
            "prompt (tokens)",
            "farskip",
            "(ms)",
            "(% of standard)",
            "h100_sxm",
            "mi300x",
        ],
    );
    let tips = &figure.scene.tips;
    assert_eq!((figure.scene.data.len(), tips.len()), (4, 24));
    assert!(tips.iter().any(|tip| tip.text.contains("360.00 ms, 90.0 % of standard (simulated)")));
    // cells of two machines are in charts of their own
    let on = |host: &str| {
        let mut measured = records.clone();
        measured.retain(|record| record.spec.hardware == "mi300x");
        for record in &mut measured {
            record.run += host;
            record.provenance = table::Provenance::Measured;
            record.environment.insert("host".into(), host.into());
        }
        measured
    };
    let two = [on("a"), on("b")].concat();
    let figure = draw(&two).unwrap();
    assert_eq!(figure.scene.data.len(), 4);
    assert_says(&figure, &["tp2 b1 a (ms)", "tp2 b1 b (ms)"]);
    // shares need a standard, and a line two lengths
    records.retain(|record| record.spec.architecture != Architecture::Standard);
    assert_eq!(draw(&records).unwrap().scene.tips.len(), 6);
    records.retain(|record| record.spec.prompt_tokens == 1024);
    let error = draw(&records).unwrap_err().to_string();
    assert!(error.contains("prompt length"), "{error}");
}

/// Intervals are within the chart, however wide they are.
#[test]
fn gains_have_intervals_within_the_chart() {
    let mut groups = analysis::gains(&cells()).unwrap();
    for point in groups.iter_mut().flat_map(|group| group.lines.values_mut()).flatten() {
        point.pair.speedup_ci95 = Some([0.1 * point.pair.speedup, 10.0 * point.pair.speedup]);
    }
    let provenance = ProvenanceSummary::of_records(&cells());
    let figure = crate::plot::gain_figure(&groups, &provenance, &FigureOptions::default()).unwrap();
    assert_legible(&figure.scene);
    assert_says(&figure, &["Speedup by all-reduce latency", "all-reduce latency (us)"]);
    let frames = |at: &(f64, f64)| {
        figure.scene.data.iter().any(|area| (area.top - 0.01..=area.bottom + 0.01).contains(&at.1))
    };
    let mut intervals = 0;
    for shape in &figure.scene.shapes {
        if let SceneShape::Lines(lines, ..) = shape {
            // an interval is an upright line and its two ends; ticks and keys of the legend are not
            let [bar, _, _] = &lines[..] else { continue };
            if bar.iter().all(|at| at.0 == bar[0].0) {
                intervals += 1;
                assert_eq!(bar.iter().find(|at| !frames(at)), None, "of an interval");
            }
        }
    }
    assert!(intervals > 1, "{intervals}");
}

/// Colours of the polygons around a place, in the order in which they are painted.
fn painted(scene: &Scene, at: (f64, f64)) -> Vec<(u8, u8, u8)> {
    let around = |corners: &[(f64, f64)]| {
        let count = corners.len() as f64;
        let sum = corners.iter().fold((0.0, 0.0), |sum, corner| (sum.0 + corner.0, sum.1 + corner.1));
        (sum.0 / count - at.0).hypot(sum.1 / count - at.1) < 1e-6
    };
    let colors = scene.shapes.iter().filter_map(|shape| match shape {
        SceneShape::Polygon(corners, color) if around(corners) => Some(*color),
        _ => None,
    });
    colors.collect()
}

#[test]
fn published_points_stand_in_the_panel_of_their_model_and_look_like_what_they_are() {
    let mut records = Vec::new();
    for model in ["llama-3-70b", "llama-3.1-405b", "tiny"] {
        for (name, step) in [("standard", 20.0), ("ladder", 15.0)] {
            let change = |spec: &mut table::Spec| {
                (spec.architecture, spec.model) = (name.parse().unwrap(), model.into());
                (spec.tp, spec.prompt_tokens, spec.output_tokens) = (8, 1024, 512);
            };
            records.push(sim_record(&format!("{model}-{name}"), change, 100.0, step));
        }
    }
    let points = analysis::pareto(&records);
    let frontiers = |points: &[ParetoPoint]| points.iter().filter(|p| p.on_frontier).count();
    let others = crate::plot::overlay(&analysis::published().unwrap(), &points, Axes::default());
    let provenance = ProvenanceSummary::of_records(&records);
    let data = ParetoData { points: &points, overlay: others, ..ParetoData::default() };
    let figure = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap();
    let scene = &figure.scene;
    assert_eq!((scene.data.len(), frontiers(&points)), (3, 3), "a panel a model, ladder best in each");
    assert_legible(scene);
    assert_says(&figure, &["published (arXiv 2501.06589)", "P2P off", "upper-bound"]);
    let in_panel = |panel: usize| -> Vec<&crate::plot::scene::Tip> {
        let tips = scene.tips.iter().filter(|tip| tip.text.contains("[published"));
        tips.filter(|tip| scene.data[panel].holds(&Area::around(tip.at, 0.1))).collect()
    };
    let counts = [0, 1, 2].map(|panel| in_panel(panel).len());
    let of_model =
        |model: &str| data.overlay.iter().filter(|other| other.model.as_deref() == Some(model)).count();
    assert_eq!(counts, [of_model("llama-3-70b"), of_model("llama-3.1-405b"), 0]);
    assert!(counts[0] > 40 && counts[1] == 4, "{counts:?}");
    let (orange, white) = ((213, 94, 0), (255, 255, 255));
    for (start, colors) in [
        ("ladder 8x16, P2P on: ", vec![white, orange]),
        ("ladder 8x16, P2P off: ", vec![white, orange, white]),
    ] {
        let found: Vec<_> = in_panel(0).into_iter().filter(|tip| tip.text.starts_with(start)).collect();
        assert_eq!(found.len(), 1, "{start}");
        assert_eq!(painted(scene, found[0].at), colors, "{start}: filled where P2P is on");
    }
}

#[test]
fn runs_that_are_not_comparable_get_a_panel_each() {
    let mut records = cells();
    records.extend(measured());
    let mut other = record("e", |s| s.link = table::Link::P2pOff, 0, &[(1.0, 1.0)]);
    other.spec.model = "a-model-with-a-very-long-name/that-somebody-keeps-in-a-deep-directory".into();
    records.push(other);
    let points = analysis::pareto(&records);
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let provenance = ProvenanceSummary::of_records(&records);
    let figure = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap();
    assert_legible(&figure.scene);
    assert_eq!(figure.scene.data.len(), 3);
    assert_says(
        &figure,
        &["Measured; emulated-link", "simulated (not a measurement)", "3 groups of runs"],
    );
}

#[test]
fn every_point_is_drawn_within_the_data() {
    let points = points();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let scene =
        pareto_figure(&data, &ProvenanceSummary::of_records(&cells()), &FigureOptions::default())
            .unwrap()
            .scene;
    let area = scene.data[0];
    for tip in &scene.tips {
        assert!(area.holds(&Area::around(tip.at, 3.0)), "{} is cut", tip.text);
    }
}

#[test]
fn throughput_shows_each_architecture_and_setting() {
    let provenance = ProvenanceSummary::of_records(&cells());
    let figure = throughput_figure(&set(), &provenance, &FigureOptions::default()).unwrap();
    assert_eq!(figure.scene.data.len(), 4, "a chart a batch");
    assert_eq!(figure.scene.tips.len(), 144);
    assert_says(&figure, &["batch 1", "batch 64", "TP (GPUs)", "parallel", "P2P off"]);
}

#[test]
fn improvement_says_how_many_ratios_and_their_values() {
    let records = cells();
    let report = compare(&records, "architecture").unwrap();
    let provenance = ProvenanceSummary::of_records(&records);
    let one = [set()];
    let figure = improvement_figure(&one, &report, &provenance, &sized("14x8")).unwrap();
    assert_says(&figure, &["120 ratios to standard", "TP 8, P2P off", "gain in tokens/s (%)"]);
    let best = report.pairs.iter().map(|pair| pair.speedup).fold(0.0, f64::max);
    assert_says(&figure, &[&format!("{:.0}", 100.0 * (best - 1.0))]);
    assert!(!read(&figure).contains(&"standard".to_owned()), "what all is compared with has no bar");

    let mut models = cells();
    models.retain(|r| r.spec.p2p == P2p::On);
    let mut others = models.clone();
    for other in &mut others {
        other.spec.model = "1b".into();
        other.run.push('b');
    }
    models.extend(others);
    let sets = analysis::comparable(&models);
    assert!(analysis::differ_in_model(&sets));
    let report = compare(&models, "architecture").unwrap();
    let figure = improvement_figure(&sets, &report, &provenance, &FigureOptions::default()).unwrap();
    assert_legible(&figure.scene);
    assert_says(&figure, &["1b", "llama-3-70b", "TP 2, batch 16"]);

    let alone: Vec<Record> =
        cells().into_iter().filter(|r| r.spec.architecture != Architecture::Standard).collect();
    let report = compare(&alone, "architecture").unwrap();
    let error = improvement_figure(&one, &report, &provenance, &FigureOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no run has a matching standard run"), "{error}");
}

#[test]
fn p2p_says_what_switching_it_off_costs() {
    let (set, provenance) = (set(), ProvenanceSummary::of_records(&cells()));
    let figure = p2p_figure(&set, &provenance, &sized("12x8")).unwrap();
    let of = |p2p| set.get(&Architecture::Standard, 8, 1, p2p).unwrap();
    let per_s = |p2p| of(p2p).metrics.as_ref().unwrap().tokens_per_s;
    let change = 100.0 * (per_s(P2p::Off) / per_s(P2p::On) - 1.0);
    assert!(change < -1.0);
    assert_says(&figure, &[&format!("−{:.0} %", -change), "0 %", "P2P off", "batch 64"]);

    let on: Vec<Record> = cells().into_iter().filter(|r| r.spec.p2p == P2p::On).collect();
    let sets = analysis::comparable(&on);
    let error = p2p_figure(&sets[0], &provenance, &FigureOptions::default()).unwrap_err();
    assert!(error.to_string().contains("all runs have the same P2P setting"), "{error}");
}

#[test]
fn overlap_shows_the_same_layers_and_what_they_gain() {
    let (standard, ladder) = (step(false), step(true));
    let provenance = ProvenanceSummary::of_traces([&standard, &ladder]);
    let part = OverlapPart::default();
    let figure = crate::plot::overlap_figure(
        &[&standard, &ladder],
        &part,
        &provenance,
        &FigureOptions::default(),
    )
    .unwrap();
    assert_eq!(figure.scene.data.len(), 2);
    assert_says(
        &figure,
        &[
            "layers 4 to 5 of 8 of decode step 0",
            "140.0 µs",
            // 80 instead of 140 µs.
            "80.0 µs (−42.9 %)",
            "overlap 0.0 %",
            "exposed communication",
        ],
    );
    // runs that differ in more than the architecture are told apart, and no percentage joins them
    let mut other = step(true);
    let spec = other.meta.spec.as_mut().unwrap();
    (spec.tp, spec.architecture) = (8, Architecture::Parallel);
    let figure =
        overlap_figure(&[&standard, &other], &part, &provenance, &FigureOptions::default()).unwrap();
    let drawn = texts(&figure.scene);
    assert!(drawn.iter().any(|text| text.text.ends_with(" tp8")), "each says its own TP");
    assert!(!drawn.iter().any(|text| text.text.contains("TP 2") || text.text.contains("−42.9 %")));
    // a longer run's middle step is another one: each says which, and again no percentage joins them
    let mut longer = step(true);
    let once = longer.spans.clone();
    for later in 1..3 {
        let by = i64::from(later) * 1_000_000;
        longer.spans.extend(once.iter().map(|span| Span {
            step: later,
            ready_ns: span.ready_ns + by,
            start_ns: span.start_ns + by,
            end_ns: span.end_ns + by,
            ..*span
        }));
    }
    let figure =
        overlap_figure(&[&standard, &longer], &part, &provenance, &FigureOptions::default()).unwrap();
    let drawn = texts(&figure.scene);
    for step in ["decode step 0", "decode step 1"] {
        assert!(drawn.iter().any(|text| text.text.ends_with(&format!("of 8 of {step}"))), "{step}");
    }
    assert!(!drawn.iter().any(|text| text.text.contains("−42.9 %")));
    for (wrong, says) in [
        (OverlapPart { step: Some(9), ..part }, "no decode step 9"),
        (OverlapPart { rank: 7, ..part }, "no decode step of rank 7"),
    ] {
        let error =
            overlap_figure(&[&standard], &wrong, &provenance, &FigureOptions::default()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    let whole = OverlapPart { layers: 1000, ..part };
    assert_legible(
        &overlap_figure(&[&standard], &whole, &provenance, &FigureOptions::default()).unwrap().scene,
    );
}

#[test]
fn one_point_and_nothing_at_all_can_be_drawn() {
    let one = vec![sim_record("a", |_| (), 1.0, 1.0)];
    let mut zero = one.clone();
    for record in &mut zero {
        let metrics = record.metrics.as_mut().unwrap();
        (metrics.tokens_per_s, metrics.tokens_per_s_per_gpu, metrics.completion_ms) = (0.0, 0.0, 0.0);
    }
    for (records, has_place) in [(one, true), (zero, false)] {
        let (points, provenance) = (analysis::pareto(&records), ProvenanceSummary::of_records(&records));
        let data = ParetoData { points: &points, ..ParetoData::default() };
        match pareto_figure(&data, &provenance, &FigureOptions::default()) {
            Ok(figure) if has_place => assert_legible(&figure.scene),
            Err(error) if !has_place => assert!(error.to_string().contains("no run has both")),
            other => panic!("{:?}", other.err()),
        }
        let set = &analysis::comparable(&records)[0];
        assert_legible(&throughput_figure(set, &provenance, &FigureOptions::default()).unwrap().scene);
    }
    // A trace that communicates nothing.
    let mut quiet = step(false);
    quiet.spans.retain(|span| span.lane == Lane::Compute);
    let provenance = ProvenanceSummary::of_traces([&quiet]);
    let scene =
        overlap_figure(&[&quiet], &OverlapPart::default(), &provenance, &FigureOptions::default())
            .unwrap()
            .scene;
    assert!(texts(&scene).iter().any(|text| text.text.contains("no communication")));
}

#[test]
fn a_timeline_marks_waiting_and_exposure() {
    let trace = layers();
    let figure = timeline_figure(&[stretch(&trace, 0, 90_000)], &FigureOptions::default()).unwrap();
    let pct = trace::overlap::overlap(&trace, &Default::default()).all.overlap_pct.unwrap();
    assert_says(
        &figure,
        &[
            "rank 0 compute",
            "rank 3 comm",
            "time (µs)",
            "waiting for a peer",
            "exposed communication",
            "Simulated (not a measurement)",
            &format!("overlap {pct:.1} % in this window"),
        ],
    );
    let exposed = (0..4)
        .map(|rank| trace::overlap::exposed_intervals(&trace, rank, 0, 90_000).len())
        .sum::<usize>();
    let vermilion = |shape: &&SceneShape| matches!(shape, SceneShape::Rect(_, color) if *color == crate::plot::style::VERMILION);
    let drawn = figure.scene.shapes.iter().filter(vermilion).count();
    assert_eq!(drawn, exposed + 1, "one is the legend's");
}

#[test]
fn a_start_long_after_the_first_operation_has_its_own_unit() {
    let mut trace = layers();
    let late = trace.spans.iter().map(|span| Span {
        start_ns: span.start_ns + 4_087_180_000,
        end_ns: span.end_ns + 4_087_180_000,
        last_arrival_ns: -1,
        ..*span
    });
    let late: Vec<Span> = late.collect();
    trace.spans.extend(late);
    let figure =
        timeline_figure(&[stretch(&trace, 4_087_180_000, 4_087_270_000)], &FigureOptions::default());
    assert_says(&figure.unwrap(), &["time (µs), starting 4.08718 s after the first operation"]);
}

#[test]
fn a_timeline_of_an_imported_trace_is_named_after_its_file_and_has_the_legend_of_what_it_draws() {
    let mut trace = layers();
    trace.meta.spec = None;
    let import = trace::ImportReport {
        files: vec!["/data/traces/b200_decode.json.gz".into()],
        ..Default::default()
    };
    trace.meta.import = Some(import);
    for operation in &mut trace.operations {
        operation.kind = "kernel".into();
    }
    trace.spans.iter_mut().for_each(|span| span.last_arrival_ns = -1);
    let figure = timeline_figure(&[stretch(&trace, 0, 90_000)], &FigureOptions::default()).unwrap();
    assert_says(&figure, &["b200_decode.json.gz", "compute", "communication", "exposed communication"]);
    let says = |words: &str| texts(&figure.scene).iter().any(|text| text.text == words);
    for class in ["matmul", "attention", "norm, add", "other compute", "waiting for a peer"] {
        assert!(!says(class), "{class} is not drawn");
    }
}

#[test]
fn two_timelines_stand_under_one_another_on_one_scale() {
    let (upper, mut lower) = (layers(), layers());
    if let Some(spec) = &mut lower.meta.spec {
        spec.architecture = plan::Architecture::UpperBound;
    }
    lower.spans.retain(|span| span.lane == Lane::Compute);
    // the lower one begins before its first operation
    let both = [stretch(&upper, 0, 60_000), stretch(&lower, -30_000, 30_000)];
    let figure = timeline_figure(&both, &FigureOptions::default()).unwrap();
    assert_legible(&figure.scene);
    let pct = |to_ns| {
        let selection = trace::overlap::Selection { to_ns: Some(to_ns), ..Default::default() };
        trace::overlap::overlap(&upper, &selection).all.overlap_pct.unwrap()
    };
    assert_says(
        &figure,
        &[
            "time (µs) from the start of each window",
            &format!("overlap {:.1} % in this window", pct(60_000)),
            "; from 0 µs",
            "no communication in this window; from -30 µs",
            "upper-bound",
        ],
    );
    let names = texts(&figure.scene).iter().filter(|text| text.text == "rank 0 compute").count();
    assert_eq!(names, 2, "rank 0 of each");
    let aside = [stretch(&upper, 0, 60_000), stretch(&lower, 9_000_000, 9_060_000)];
    assert!(
        timeline_figure(&aside, &FigureOptions::default()).is_ok(),
        "one of them has something to show"
    );
}

fn stretch(trace: &Trace, from_ns: i64, to_ns: i64) -> crate::plot::TraceStretch<'_> {
    crate::plot::TraceStretch { trace, from_ns, to_ns }
}

#[test]
fn a_million_operations_are_no_more_than_fit() {
    let spans = (0..200_000).map(|i| span(0, Lane::Compute, i * 10, i * 10 + 9)).collect();
    let trace = trace(spans);
    let figure = timeline_figure(&[stretch(&trace, 0, 2_000_000)], &FigureOptions::default()).unwrap();
    assert!(figure.scene.shapes.len() < 4_000, "{} shapes", figure.scene.shapes.len());
    assert_says(&figure, &["no communication in this window"]);
}

#[test]
fn a_window_beside_the_trace_is_an_input_error() {
    for (from, to) in [(5, 5), (9, 1), (500_000, 600_000), (-9, 0)] {
        let trace = layers();
        let error =
            timeline_figure(&[stretch(&trace, from, to)], &FigureOptions::default()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{from}..{to}");
    }
    let trace = trace(Vec::new());
    let empty = timeline_figure(&[stretch(&trace, 0, 10)], &FigureOptions::default());
    assert_eq!(empty.unwrap_err().exit_code(), 2);
}

#[test]
fn a_comparison_shows_ratios_with_intervals() {
    let report = compare(&measured(), "architecture").unwrap();
    let provenance = ProvenanceSummary::of_records(&measured());
    let figure = comparison_figure(&report, &provenance, &FigureOptions::default()).unwrap();
    let ladder = report.pairs.iter().find(|pair| pair.value == "ladder").unwrap();
    let [low, high] = ladder.speedup_ci95.unwrap();
    assert_says(
        &figure,
        &[
            "Speedup over standard",
            "Measured; ",
            "5 comparisons",
            "tiny tp2 b1 p2p-on cpu",
            &format!("{:.3}  [{low:.3}, {high:.3}]", ladder.speedup),
        ],
    );

    // what a filter leaves, and the shape of its markers, also in the legend
    let kept =
        report.of_pairs(report.pairs.iter().filter(|pair| pair.value == "ladder").cloned().collect());
    let figure = comparison_figure(&kept, &provenance, &FigureOptions::default()).unwrap();
    assert_says(&figure, &[&format!("{} of 5 comparisons", kept.pairs.len())]);
    let is_disc = |shape: &SceneShape| matches!(shape, SceneShape::Disc(..));
    assert!(!figure.scene.shapes.iter().any(is_disc), "ladder has squares");

    let report = compare(&cells(), "p2p").unwrap();
    let provenance = ProvenanceSummary::of_records(&cells());
    let figure = comparison_figure(&report, &provenance, &FigureOptions::default()).unwrap();
    assert_legible(&figure.scene);
    assert_says(
        &figure,
        &[
            "Speedup of p2p off over p2p on",
            "72 comparisons, first 60 shown",
            "ladder llama-3-70b tp8 b64 sim",
        ],
    );

    let nothing = compare(&[], "p2p").unwrap();
    let error = comparison_figure(&nothing, &provenance, &FigureOptions::default()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn a_figure_of_quality_says_what_was_measured_and_what_simulated() {
    let of = |architecture: &str, step_ms: f64, kl: f64| {
        let change = |spec: &mut table::Spec| spec.architecture = architecture.parse().unwrap();
        evaluated(sim_record(architecture, change, 1.0, step_ms), kl)
    };
    let records = [of("standard", 14.0, 0.0), of("ladder", 10.0, 0.5), of("parallel", 11.0, 0.75)];
    let axes = Axes { x: "tpot".parse().unwrap(), y: "kl".parse().unwrap() };
    let points = analysis::pareto_on(&records, axes);
    let data = ParetoData { points: &points, axes, ..ParetoData::default() };
    let provenance = ProvenanceSummary::of_records(&records);
    let figure = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap();
    let said = [
        "TPOT against KL from standard",
        "TPOT (ms)",
        "KL from standard per token (nats)",
        "Simulated (not a measurement)",
        "KL: measured on cpu, text.txt, 6 windows of 5 tokens",
    ];
    assert_says(&figure, &said);
    assert_legible(&figure.scene);
    let tip = &figure.scene.tips.iter().find(|tip| tip.text.starts_with("ladder")).unwrap().text;
    assert!(tip.contains("TPOT 10.000 ms, KL from standard per token 0.5000 nats"), "{tip}");
    assert!(tip.contains("simulated; KL: measured on cpu"), "{tip}");
    // of a run that was not evaluated nothing is drawn, and nothing is said
    let slow = |spec: &mut table::Spec| {
        (spec.architecture, spec.p2p) = ("upper-bound".parse().unwrap(), P2p::Off);
    };
    let more = [records.to_vec(), vec![sim_record("slow", slow, 1.0, 20_000.0)]].concat();
    let points = analysis::pareto_on(&more, axes);
    let data = ParetoData { points: &points, axes, ..ParetoData::default() };
    let with = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap();
    let said = |figure: &Figure| -> Vec<String> {
        texts(&figure.scene).iter().map(|text| text.text.clone()).collect()
    };
    assert_eq!(said(&with), said(&figure));
    let nothing = [sim_record("a", |_| (), 1.0, 2.0)];
    let points = analysis::pareto_on(&nothing, axes);
    let data = ParetoData { points: &points, axes, ..ParetoData::default() };
    let error = pareto_figure(&data, &provenance, &FigureOptions::default()).unwrap_err();
    assert!(format!("{error:?}").contains("ladderscope evaluate"), "{error:?}");
}

#[test]
fn a_conversion_figure_tells_what_is_measured_and_what_is_not() {
    let report = crate::testing::conversion_report();
    let figure = conversion_figure(&report, &FigureOptions::default()).unwrap();
    assert_says(
        &figure,
        &[
            "KL from standard (nats per token)",
            "speedup over standard",
            "lowest-cost layers",
            "upper half (paper)",
            "random layers",
            "Measured; simulated (not a measurement); h100_sxm",
            "speedup is simulated",
        ],
    );
    // a tip a set, but that random sets of a size share one
    let sets =
        report.points.iter().filter(|p| !["alone", "random"].contains(&p.series.as_str())).count();
    let tips = &figure.scene.tips;
    let sizes = report.draws(analysis::Conversion::Ladder).len();
    assert_eq!(tips.len(), sets + sizes);
    let random = tips.iter().find(|tip| tip.text.contains("random layers: KL")).unwrap();
    assert!(random.text.contains(", from 0.0"), "{}", random.text);
    let nothing = analysis::ConversionReport { points: Vec::new(), ..report };
    assert_eq!(conversion_figure(&nothing, &FigureOptions::default()).unwrap_err().exit_code(), 2);
}

#[test]
fn ranks_that_did_the_same_are_drawn_once_and_the_figure_says_so() {
    let (equal, late) = (step(true), layers());
    let of = |trace: &Trace| {
        let stretch = TraceStretch { trace, from_ns: 0, to_ns: 200_000 };
        timeline_figure(&[stretch], &FigureOptions::default()).unwrap()
    };
    let folded = of(&equal);
    let once = "ranks with identical timelines are drawn once";
    assert_says(&folded, &["r0..r1 compute", "r0..r1 comm", once]);
    let said =
        |figure: &Figure, words: &str| texts(&figure.scene).iter().any(|text| text.text.contains(words));
    assert!(!said(&folded, "rank 1"), "the second rank has no rows of its own");
    let late = of(&late);
    assert!(said(&late, "rank 3 compute") && !said(&late, once), "each rank is late by its own time");
    let alternating = |rank: u32| {
        let start = 1_000 + i64::from(rank % 2) * 500;
        span(rank, Lane::Compute, start, start + 40_000)
    };
    let alternating = of(&trace((0..64).map(alternating).collect()));
    assert_says(&alternating, &["r0 and 31 more compute", "r1 and 31 more comm"]);
    // a cluster's worth of ranks, each with times of its own: linear, and most are left out
    let own = |rank: u32| span(rank, Lane::Compute, i64::from(rank), 40_000 + i64::from(rank));
    assert_says(&of(&trace((0..60_000).map(own).collect())), &["16 of 60000 ranks"]);
    let both = overlap_figure(
        &[&equal, &step(false)],
        &OverlapPart::default(),
        &ProvenanceSummary::default(),
        &FigureOptions::default(),
    );
    assert!(said(&both.unwrap(), "rank 0 = r1; dashed"));
    // of traces with other ranks each says its own
    let mut alone = step(false);
    alone.spans.retain(|span| span.rank == 0);
    let (part, provenance) = (OverlapPart::default(), ProvenanceSummary::default());
    let both = overlap_figure(&[&equal, &alone], &part, &provenance, &FigureOptions::default()).unwrap();
    assert!(said(&both, " (rank 0 = r1)") && said(&both, "rank 0; dashed"));
    assert!(!said(&both, "rank 0 = r1; dashed"), "the second trace has no second rank");
}

#[test]
fn a_training_figure_says_that_it_is_a_miniature_and_over_how_many_seeds() {
    let figure = training_figure(&super::trainings(), &FigureOptions::default()).unwrap();
    let scene = &figure.scene;
    let texts: Vec<&str> = texts(scene).into_iter().map(|text| text.text.as_str()).collect();
    let has = |part: &str| texts.iter().any(|text| text.contains(part));
    assert!(has("in miniature") && has("standard (2 seeds)") && has("parallel (1 seed)"), "{texts:?}");
    assert!(figure.caption().contains("measured"), "{}", figure.caption());
    assert!(has("from step 1 on"), "{texts:?}");
    assert_eq!(scene.tips.len(), 6, "two looks at each of three, without the one before the first step");
    let mut nothing = super::trainings();
    nothing.curves.clear();
    assert_eq!(training_figure(&nothing, &FigureOptions::default()).unwrap_err().exit_code(), 2);
}
