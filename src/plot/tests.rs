//! Figures of made-up data: what they say, and that nothing in them lies on something else.

use std::path::Path;

use super::scene::{Area, Scene, Shape, Text};
use super::{
    Facts, Figure, Options, ParetoData, Part, Size, comparison, comparison_figure, improvement,
    improvement_figure, overlap, p2p, p2p_figure, pareto, pareto_figure, throughput, throughput_figure,
    timeline, timeline_figure,
};
use crate::analysis::sample_data::{record, sim_record, span, trace};
use crate::analysis::{self, CellSet, ParetoPoint, compare};
use crate::error::{Error, Result};
use crate::plan::{Architecture, Lane};
use crate::spec::P2p;
use crate::store::Record;
use crate::trace::{Span, Trace};

fn architectures() -> Vec<Architecture> {
    let names = ["standard", "ladder", "ladder:2", "parallel", "desync:2", "upper-bound"];
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// Cells whose numbers look like a sweep's.
fn cells() -> Vec<Record> {
    let mut records = Vec::new();
    for (index, architecture) in architectures().into_iter().enumerate() {
        for tp in [2, 4, 8] {
            for batch in [1, 4, 16, 64] {
                for p2p in [P2p::On, P2p::Off] {
                    let link = if p2p == P2p::On { 1.0 } else { 2.5 };
                    let exposed = link * f64::from(tp).sqrt() * [1.0, 0.3, 0.6, 0.5, 0.5, 0.0][index];
                    let step = 40.0 / f64::from(tp) + f64::from(batch) * 0.1 + exposed;
                    let change = |spec: &mut crate::spec::Spec| {
                        (spec.architecture, spec.tp, spec.batch) = (architecture.clone(), tp, batch);
                        (spec.p2p, spec.model) = (p2p, "llama-3-70b".into());
                    };
                    let run = format!("{architecture}-{tp}-{batch}-{}", p2p.as_str());
                    records.push(sim_record(&run, change, 10.0, step));
                }
            }
        }
    }
    records
}

fn points() -> Vec<ParetoPoint> {
    analysis::pareto(&cells())
}

/// Two layers on four ranks, all-reduces partly behind compute, the last rank late.
fn layers() -> Trace {
    let mut spans = Vec::new();
    for rank in 0..4u32 {
        let mut now = 5_000 + i64::from(rank) * 700;
        let mut compute = |operation: u32, length: i64, now: &mut i64| {
            spans.push(Span { operation, ..span(rank, Lane::Compute, *now, *now + length) });
            *now += length;
        };
        for _ in 0..2 {
            for (operation, length) in [(3, 900), (0, 7_000), (2, 5_000), (0, 4_000)] {
                compute(operation, length, &mut now);
            }
            for (operation, length) in [(3, 900), (0, 8_000), (4, 1_500), (0, 6_000)] {
                compute(operation, length, &mut now);
            }
            now += 3_000;
        }
        for layer in 0..2i64 {
            for start in [21_000, 38_000] {
                let start = start + layer * 36_500 + i64::from(rank) * 700;
                let arrived = 5_000 + start - i64::from(rank) * 700 + 2_100;
                let one = span(rank, Lane::Comm, 5_000 + start, arrived + 9_000);
                spans.push(Span { last_arrival_ns: arrived, ..one });
            }
        }
    }
    trace(spans)
}

fn measured() -> Vec<Record> {
    let mut records = Vec::new();
    for (index, architecture) in architectures().into_iter().enumerate() {
        for round in 0..3u32 {
            let step = [2.0, 1.5, 1.9, 1.98, 2.6, 1.3][index] * (1.0 + 0.02 * f64::from(round));
            let samples = [0.96, 1.0, 1.03].map(|noise| (3.0, step * noise));
            let change = |spec: &mut crate::spec::Spec| spec.architecture = architecture.clone();
            records.push(record(&format!("{architecture}-{round}"), change, round, &samples));
        }
    }
    records
}

fn set() -> CellSet {
    let mut sets = analysis::comparable(&cells());
    assert_eq!(sets.len(), 1);
    sets.remove(0)
}

/// A model of eight layers on two ranks; standard waits for each all-reduce, ladder does not.
fn step(ladder: bool) -> Trace {
    let mut all = trace(Vec::new());
    let operation = all.operations[0].clone();
    let comm = all.operations[1].clone();
    all.operations = (0..8)
        .flat_map(|layer| {
            let of = |operation: &crate::trace::OperationInfo, name: &str| {
                let name = format!("decode/L{layer}/{name}");
                crate::trace::OperationInfo { name, layer: Some(layer), ..operation.clone() }
            };
            [of(&operation, "mlp/down"), of(&comm, "mlp/reduce")]
        })
        .collect();
    for rank in 0..2 {
        let mut now = 1_000;
        for layer in 0..8u32 {
            let compute = span(rank, Lane::Compute, now, now + 40_000);
            all.spans.push(Span { operation: 2 * layer, ..compute });
            let comm = span(rank, Lane::Comm, now + 40_000, now + 70_000);
            all.spans.push(Span { operation: 2 * layer + 1, ..comm });
            now += if ladder { 40_000 } else { 70_000 };
        }
    }
    all
}

fn texts(scene: &Scene) -> Vec<&Text> {
    let texts = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

/// All texts on the page, none on another, none on the data but those that belong there; and those
/// within it.
#[track_caller]
fn assert_legible(scene: &Scene) {
    let page = Area { left: 0.0, top: 0.0, right: scene.width, bottom: scene.height };
    let texts = texts(scene);
    assert!(!texts.is_empty());
    for (index, text) in texts.iter().enumerate() {
        let area = text.area();
        assert!(page.holds(&area), "'{}' leaves the page: {area:?} in {page:?}", text.text);
        match text.inside {
            true => {
                let within = scene.data.iter().any(|data| data.holds(&area));
                assert!(within, "'{}' leaves the data", text.text);
            }
            false => {
                for data in &scene.data {
                    assert!(!area.meets(data), "'{}' lies on the data: {area:?} {data:?}", text.text);
                }
            }
        }
        for other in &texts[..index] {
            assert!(!area.meets(&other.area()), "'{}' lies on '{}'", text.text, other.text);
        }
    }
    for data in &scene.data {
        assert!(page.holds(data) && data.width() > 20.0 && data.height() > 10.0, "{data:?} in {page:?}");
    }
}

/// All that a reader can read in a figure, from its file, which is well-formed.
fn read(figure: &Figure) -> Vec<String> {
    let svg = figure.svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let labels = document.descendants().filter_map(|node| node.attribute("aria-label"));
    labels.map(str::to_owned).collect()
}

#[track_caller]
fn assert_says(figure: &Figure, wanted: &[&str]) {
    let said = read(figure).join(" ");
    for text in wanted {
        assert!(said.contains(text), "the figure does not say '{text}': {said}");
    }
}

fn sized(size: &str) -> Options {
    Options { size: size.parse().unwrap(), ..Options::default() }
}

/// Every kind of figure at one size; what cannot be drawn there is an input error.
fn all_scenes(options: &Options) -> Vec<(&'static str, Result<Scene>)> {
    let (records, set, points) = (cells(), set(), points());
    let measured = measured();
    let facts = Facts::of_records(&records);
    let by = compare(&records, "architecture").unwrap();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let (standard, ladder) = (step(false), step(true));
    let traces = [&standard, &ladder];
    vec![
        ("pareto", pareto::scene(&data, &facts, options)),
        ("throughput", throughput::scene(&set, &facts, options)),
        ("improvement", improvement::scene(std::slice::from_ref(&set), &by, &facts, options)),
        ("p2p", p2p::scene(&set, &facts, options)),
        ("overlap", overlap::scene(&traces, &Part::default(), &facts, options)),
        ("timeline", timeline::scene(&layers(), 0, 90_000, options)),
        ("comparison", comparison::scene(&compare(&measured, "architecture").unwrap(), &facts, options)),
    ]
}

#[test]
fn nothing_lies_on_anything_at_any_size() {
    let mut drawn = 0;
    for size in ["column", "page", "3.3x2.5", "3.3x4", "5", "5x4", "6.9x3", "12x8", "2x2", "1x9"] {
        for font in [8.0, 10.0] {
            let options = Options { font, ..sized(size) };
            for (kind, scene) in all_scenes(&options) {
                match scene {
                    Ok(scene) => {
                        drawn += 1;
                        let wide = (scene.width / 72.0 - options.size.width).abs() < 1e-9;
                        assert!(wide, "{kind} at {size}");
                        if let Some(height) = options.size.height {
                            assert!((scene.height / 72.0 - height).abs() < 1e-9, "{kind} at {size}");
                        }
                        println!("{kind} at {size}, {font} pt");
                        assert_legible(&scene);
                    }
                    Err(error) => {
                        assert_eq!(error.exit_code(), 2, "{kind} at {size}: {error}");
                        let wide = options.size.height.is_none() && options.size.width > 3.0;
                        assert!(!wide || font > 8.0, "{kind} at {size}, {font} pt: {error}");
                    }
                }
            }
        }
    }
    assert!(drawn > 80, "{drawn} figures were drawn");
}

#[test]
fn text_is_as_large_at_every_size() {
    let largest = |size: &str| {
        let scenes = all_scenes(&sized(size));
        let scene = scenes.into_iter().find(|(kind, _)| *kind == "pareto").unwrap().1.unwrap();
        texts(&scene).iter().map(|text| text.size).fold(0.0, f64::max)
    };
    assert_eq!(largest("column"), 8.0);
    assert_eq!(largest("page"), 8.0);
}

#[test]
fn a_pareto_figure_says_what_and_where_from() {
    let (records, points) = (cells(), points());
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let figure = pareto_figure(&data, &Facts::of_records(&records), &Options::default()).unwrap();
    assert_says(
        &figure,
        &[
            "llama-3-70b f32, prompt 16, output 5",
            "Simulated (not a measurement); h100_sxm; stack native; 144 runs; ladderscope",
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
    assert!(pareto_figure(&ParetoData::default(), &Facts::default(), &Options::default()).is_err());
}

#[test]
fn labels_of_points_stand_for_the_frontier_and_off_the_markers() {
    let points = points();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let scene = pareto::scene(&data, &Facts::of_records(&cells()), &Options::default()).unwrap();
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
    bare.iter_mut().for_each(|point| point.tokens_per_s_ci95 = None);
    let facts = Facts::of_records(&records);
    let of = |points: &[ParetoPoint]| {
        let data = ParetoData { points, ..ParetoData::default() };
        pareto_figure(&data, &facts, &Options::default()).unwrap()
    };
    let (without, with) = (of(&bare), of(&points));
    let lines = |figure: &Figure| {
        figure.scene.shapes.iter().filter(|shape| matches!(shape, Shape::Lines(..))).count()
    };
    assert!(lines(&with) >= lines(&without) + 12, "two bars a cell");
    assert_legible(&with.scene);
    assert_says(&with, &["95% bootstrap intervals", "Measured; "]);
    assert!(!read(&without).iter().any(|text| text.contains("bootstrap")));
}

/// Colours of the polygons around a place, in the order in which they are painted.
fn painted(scene: &Scene, at: (f64, f64)) -> Vec<(u8, u8, u8)> {
    let around = |corners: &[(f64, f64)]| {
        let count = corners.len() as f64;
        let sum = corners.iter().fold((0.0, 0.0), |sum, corner| (sum.0 + corner.0, sum.1 + corner.1));
        (sum.0 / count - at.0).hypot(sum.1 / count - at.1) < 1e-6
    };
    let colors = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Polygon(corners, color) if around(corners) => Some(*color),
        _ => None,
    });
    colors.collect()
}

#[test]
fn published_points_stand_in_the_panel_of_their_model_and_look_like_what_they_are() {
    let mut records = Vec::new();
    for model in ["llama-3-70b", "llama-3.1-405b", "tiny"] {
        for (name, step) in [("standard", 20.0), ("ladder", 15.0)] {
            let change = |spec: &mut crate::spec::Spec| {
                (spec.architecture, spec.model) = (name.parse().unwrap(), model.into());
                (spec.tp, spec.prompt_tokens, spec.output_tokens) = (8, 1024, 512);
            };
            records.push(sim_record(&format!("{model}-{name}"), change, 100.0, step));
        }
    }
    let points = analysis::pareto(&records);
    let frontiers = |points: &[ParetoPoint]| points.iter().filter(|p| p.on_frontier).count();
    let others = super::overlay(&analysis::published().unwrap(), &points);
    let facts = Facts::of_records(&records);
    let data = ParetoData { points: &points, overlay: others };
    let figure = pareto_figure(&data, &facts, &Options::default()).unwrap();
    let scene = &figure.scene;
    assert_eq!((scene.data.len(), frontiers(&points)), (3, 3), "a panel a model, ladder best in each");
    assert_legible(scene);
    assert_says(&figure, &["published (arXiv 2501.06589)", "P2P off", "upper-bound"]);
    let in_panel = |panel: usize| -> Vec<&super::scene::Tip> {
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
    let mut other = record("e", |s| s.link = crate::spec::Link::P2pOff, 0, &[(1.0, 1.0)]);
    other.spec.model = "a-model-with-a-very-long-name/that-somebody-keeps-in-a-deep-directory".into();
    records.push(other);
    let points = analysis::pareto(&records);
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let facts = Facts::of_records(&records);
    let figure = pareto_figure(&data, &facts, &Options::default()).unwrap();
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
    let scene = pareto::scene(&data, &Facts::of_records(&cells()), &Options::default()).unwrap();
    let area = scene.data[0];
    for tip in &scene.tips {
        assert!(area.holds(&Area::around(tip.at, 3.0)), "{} is cut", tip.text);
    }
}

#[test]
fn throughput_shows_each_architecture_and_setting() {
    let facts = Facts::of_records(&cells());
    let figure = throughput_figure(&set(), &facts, &Options::default()).unwrap();
    assert_eq!(figure.scene.data.len(), 4, "a chart a batch");
    assert_eq!(figure.scene.tips.len(), 144);
    assert_says(&figure, &["batch 1", "batch 64", "TP (GPUs)", "parallel", "P2P off"]);
}

#[test]
fn improvement_says_how_many_ratios_and_their_values() {
    let records = cells();
    let report = compare(&records, "architecture").unwrap();
    let facts = Facts::of_records(&records);
    let one = [set()];
    let figure = improvement_figure(&one, &report, &facts, &sized("14x8")).unwrap();
    assert_says(&figure, &["120 ratios to standard", "TP 8, P2P off", "more tokens/s (%)"]);
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
    let figure = improvement_figure(&sets, &report, &facts, &Options::default()).unwrap();
    assert_legible(&figure.scene);
    assert_says(&figure, &["1b", "llama-3-70b", "TP 2, batch 16"]);

    let alone: Vec<Record> =
        cells().into_iter().filter(|r| r.spec.architecture != Architecture::Standard).collect();
    let report = compare(&alone, "architecture").unwrap();
    let error = improvement_figure(&one, &report, &facts, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("no run has a standard one"), "{error}");
}

#[test]
fn p2p_says_what_switching_it_off_costs() {
    let (set, facts) = (set(), Facts::of_records(&cells()));
    let figure = p2p_figure(&set, &facts, &sized("12x8")).unwrap();
    let of = |p2p| set.get(&Architecture::Standard, 8, 1, p2p).unwrap();
    let per_s = |p2p| of(p2p).metrics.as_ref().unwrap().tokens_per_s;
    let change = 100.0 * (per_s(P2p::Off) / per_s(P2p::On) - 1.0);
    assert!(change < -1.0);
    assert_says(&figure, &[&format!("−{:.0}%", -change), "0%", "P2P off", "batch 64"]);

    let on: Vec<Record> = cells().into_iter().filter(|r| r.spec.p2p == P2p::On).collect();
    let sets = analysis::comparable(&on);
    let error = p2p_figure(&sets[0], &facts, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("one P2P setting only"), "{error}");
}

#[test]
fn overlap_shows_the_same_layers_and_what_they_gain() {
    let (standard, ladder) = (step(false), step(true));
    let facts = Facts::of_traces([&standard, &ladder]);
    let part = Part::default();
    let figure =
        super::overlap_figure(&[&standard, &ladder], &part, &facts, &Options::default()).unwrap();
    assert_eq!(figure.scene.data.len(), 2);
    assert_says(
        &figure,
        &[
            "layers 4 to 5 of 8 of decode step 0",
            "140.0 µs",
            // 80 instead of 140 µs.
            "80.0 µs (−42.9%)",
            "overlap 0.0%",
            "exposed communication",
        ],
    );
    for (wrong, says) in [
        (Part { step: Some(9), ..part }, "there is no decode step 9"),
        (Part { rank: 7, ..part }, "no decode step of rank 7"),
    ] {
        let error = overlap::scene(&[&standard], &wrong, &facts, &Options::default()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    let whole = Part { layers: 1000, ..part };
    assert_legible(&overlap::scene(&[&standard], &whole, &facts, &Options::default()).unwrap());
}

#[test]
fn one_point_and_nothing_at_all_can_be_drawn() {
    let one = vec![sim_record("a", |_| (), 1.0, 1.0)];
    let mut zero = one.clone();
    for record in &mut zero {
        let metrics = record.metrics.as_mut().unwrap();
        (metrics.tokens_per_s, metrics.tokens_per_s_per_gpu, metrics.completion_ms) = (0.0, 0.0, 0.0);
    }
    for records in [one, zero] {
        let (points, facts) = (analysis::pareto(&records), Facts::of_records(&records));
        let data = ParetoData { points: &points, ..ParetoData::default() };
        assert_legible(&pareto::scene(&data, &facts, &Options::default()).unwrap());
        let set = &analysis::comparable(&records)[0];
        assert_legible(&throughput::scene(set, &facts, &Options::default()).unwrap());
    }
    // A trace that communicates nothing.
    let mut quiet = step(false);
    quiet.spans.retain(|span| span.lane == Lane::Compute);
    let facts = Facts::of_traces([&quiet]);
    let scene = overlap::scene(&[&quiet], &Part::default(), &facts, &Options::default()).unwrap();
    assert!(texts(&scene).iter().any(|text| text.text.contains("no communication")));
}

#[test]
fn a_timeline_marks_waiting_and_exposure() {
    let trace = layers();
    let figure = timeline_figure(&trace, 0, 90_000, &Options::default()).unwrap();
    let pct = analysis::overlap(&trace, &Default::default()).all.overlap_pct.unwrap();
    assert_says(
        &figure,
        &[
            "rank 0 compute",
            "rank 3 comm",
            "time (µs)",
            "waiting for a peer",
            "exposed communication",
            "Simulated (not a measurement)",
            &format!("overlap {pct:.1}% in this window"),
        ],
    );
    let exposed =
        (0..4).map(|rank| analysis::exposed_intervals(&trace, rank, 0, 90_000).len()).sum::<usize>();
    let vermilion =
        |shape: &&Shape| matches!(shape, Shape::Rect(_, color) if *color == super::style::VERMILION);
    let drawn = figure.scene.shapes.iter().filter(vermilion).count();
    assert_eq!(drawn, exposed + 1, "one is the legend's");
}

#[test]
fn a_million_operations_are_no_more_than_fit() {
    let spans = (0..200_000).map(|i| span(0, Lane::Compute, i * 10, i * 10 + 9)).collect();
    let figure = timeline_figure(&trace(spans), 0, 2_000_000, &Options::default()).unwrap();
    assert!(figure.scene.shapes.len() < 4_000, "{} shapes", figure.scene.shapes.len());
    assert_says(&figure, &["no communication in this window"]);
}

#[test]
fn a_window_beside_the_trace_is_an_input_error() {
    for (from, to) in [(5, 5), (9, 1), (500_000, 600_000), (-9, 0)] {
        let error = timeline_figure(&layers(), from, to, &Options::default()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{from}..{to}");
    }
    let empty = timeline_figure(&trace(Vec::new()), 0, 10, &Options::default());
    assert_eq!(empty.unwrap_err().exit_code(), 2);
}

#[test]
fn a_comparison_shows_ratios_with_intervals() {
    let report = compare(&measured(), "architecture").unwrap();
    let facts = Facts::of_records(&measured());
    let figure = comparison_figure(&report, &facts, &Options::default()).unwrap();
    let ladder = report.pairs.iter().find(|pair| pair.value == "ladder").unwrap();
    let [low, high] = ladder.speedup_ci95.unwrap();
    assert_says(
        &figure,
        &[
            "Speed-up over standard",
            "Measured; ",
            "5 comparisons",
            "tiny tp2 b1 p2p-on cpu",
            &format!("{:.3}  [{low:.3}, {high:.3}]", ladder.speedup),
        ],
    );

    let report = compare(&cells(), "p2p").unwrap();
    let facts = Facts::of_records(&cells());
    let figure = comparison_figure(&report, &facts, &Options::default()).unwrap();
    assert_legible(&figure.scene);
    assert_says(
        &figure,
        &[
            "Speed-up of p2p off over p2p on",
            "72 comparisons, the first 60 shown",
            "ladder llama-3-70b tp8 b64 sim",
        ],
    );

    let nothing = compare(&[], "p2p").unwrap();
    let error = comparison_figure(&nothing, &facts, &Options::default()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn a_file_carries_its_size_and_where_its_numbers_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let (set, mut facts) = (set(), Facts::of_records(&cells()));
    facts.days.insert("2026-01-02".into());
    let options = Options { dpi: 200, ..sized("3.3x2.5") };
    let figure = throughput_figure(&set, &facts, &options).unwrap();

    let path = dir.path().join("a.svg");
    figure.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let root = document.root_element();
    assert_eq!(
        ["width", "height", "viewBox"].map(|name| root.attribute(name).unwrap()),
        ["3.3in", "2.5in", "0 0 237.6 180"]
    );
    let of = |name: &str| {
        let found = root.descendants().find(|node| node.tag_name().name() == name);
        found.and_then(|node| node.text()).unwrap_or_default().to_owned()
    };
    assert_eq!(of("title"), "Throughput over tensor parallelism");
    assert_eq!(of("desc"), facts.caption());
    assert_eq!(of("source"), "simulated (not a measurement)");
    assert_eq!(of("date"), "2026-01-02");
    for node in root.descendants().filter(|node| node.tag_name().name() == "use") {
        let id = node.attribute(("http://www.w3.org/1999/xlink", "href")).unwrap();
        let drawn = root.descendants().any(|other| other.attribute("id") == Some(&id[1..]));
        assert!(drawn, "{id} is used and not there");
    }
    assert!(!text.contains("<text") && !text.contains("font-family"), "no font of the viewer's");
    assert!(!text.contains("http://www.w3.org/1999/xlink\"/>"), "no link to elsewhere");

    let path = dir.path().join("a.PNG");
    figure.save(&path).unwrap();
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
    let reader = decoder.read_info().unwrap();
    let info = reader.info();
    assert_eq!((info.width, info.height), (660, 500));
    let dims = info.pixel_dims.unwrap();
    assert_eq!((dims.xppu, dims.yppu, dims.unit), (7874, 7874, png::Unit::Meter), "200 dpi");
    let texts: Vec<(String, String)> =
        info.utf8_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.get_text().unwrap())).collect();
    let of = |name: &str| texts.iter().find(|(key, _)| key == name).map(|(_, text)| text.as_str());
    assert_eq!(of("Title"), Some("Throughput over tensor parallelism"));
    assert_eq!(of("Provenance"), Some("simulated (not a measurement)"));
    assert_eq!(of("Runs"), Some("144"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn the_same_data_give_the_same_bytes() {
    let facts = Facts::of_records(&cells());
    let figure = || p2p_figure(&set(), &facts, &sized("column")).unwrap();
    assert_eq!(figure().svg().unwrap(), figure().svg().unwrap());
    assert_eq!(figure().pixels(300).unwrap(), figure().pixels(300).unwrap());
}

#[test]
fn a_picture_shows_what_the_figure_has() {
    let facts = Facts::of_records(&cells());
    let pixels = throughput_figure(&set(), &facts, &sized("5x3")).unwrap().pixels(500).unwrap();
    assert_eq!((pixels.width, pixels.height), (500, 300));
    let colors: std::collections::BTreeSet<&[u8]> = pixels.rgb.chunks(3).collect();
    // Paper, ink of markers, and the colours of four architectures, unmixed.
    for color in [[255, 255, 255], [0, 114, 178], [213, 94, 0], [0, 158, 115], [0, 0, 0]] {
        assert!(colors.contains(&color[..]), "{color:?} is nowhere");
    }
}

#[test]
fn in_a_page_ink_and_ids_are_the_pages() {
    let facts = Facts::of_records(&cells());
    let figure = p2p_figure(&set(), &facts, &Options::default()).unwrap();
    let element = figure.element("one-").unwrap();
    let document = roxmltree::Document::parse(&element).unwrap();
    assert!(element.contains("var(--fig-ink,#1e1e1e)") && element.contains("var(--fig-paper,#ffffff)"));
    for node in document.descendants().filter(|node| node.attribute("id").is_some()) {
        assert!(node.attribute("id").unwrap().starts_with("one-"));
    }
}

/// Draws the Pareto figure of some points into a file.
fn save(path: &Path) -> Result<()> {
    let points = points();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    pareto_figure(&data, &Facts::of_records(&cells()), &Options::default())?.save(path)
}

#[test]
fn wrong_names_and_places_are_told() {
    for name in ["figure.pdf", "figure"] {
        let error = save(name.as_ref()).unwrap_err();
        let Error::Input { message, help } = error else {
            panic!("{name} must be an input error");
        };
        assert!(message.contains(name) && help.unwrap().contains(".svg or .png"));
    }
    let error = save("/nowhere/at/all/figure.svg".as_ref()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("/nowhere/at/all/figure.svg"));
    let dir = tempfile::tempdir().unwrap();
    let error = super::write(dir.path(), b"x").unwrap_err();
    assert!(error.to_string().contains("a directory is in its place"), "{error}");
}

#[test]
fn a_full_disk_leaves_the_old_file_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full.svg");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let error = save(&full).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("full.svg") && error.to_string().contains("No space left"));
    assert!(Path::new("/dev/full").exists());
}

#[test]
fn too_small_a_figure_is_refused_with_what_would_do() {
    let facts = Facts::of_records(&cells());
    let error = p2p_figure(&set(), &facts, &sized("1x1")).unwrap_err();
    let Error::Input { message, help } = error else { panic!("an input error") };
    assert!(message.starts_with("1.00 x 1.00 inches"), "{message}");
    let help = help.unwrap();
    assert!(help.contains("inches or more"), "{help}");
}

#[test]
fn architectures_have_looks_of_their_own_that_do_not_change() {
    let some = architectures();
    let looks = super::style::looks(&some);
    let distinct: std::collections::BTreeSet<_> = looks.values().collect();
    assert_eq!(distinct.len(), some.len());
    let alone = super::style::looks(&some[3..4]);
    assert_eq!(alone[&some[3]], looks[&some[3]]);
}

#[test]
fn a_size_without_a_height_has_the_contents() {
    let facts = Facts::of_records(&cells());
    let size = Size { width: 5.0, height: None };
    let figure = throughput_figure(&set(), &facts, &Options { size, ..Options::default() }).unwrap();
    assert!((1.5..6.0).contains(&(figure.scene.height / 72.0)), "{}", figure.scene.height);
}
