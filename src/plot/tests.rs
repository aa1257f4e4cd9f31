//! Figures of made-up data: what they say, and that nothing in them lies on something else.

use super::scene::{Area, Scene, Shape, Text};
use super::surface::{save, svg};
use super::{comparison, pareto, timeline};
use crate::analysis::sample_data::{record, sim_record, span, trace};
use crate::analysis::{self, ParetoPoint, compare};
use crate::error::Error;
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

fn texts(scene: &Scene) -> Vec<&Text> {
    let texts = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

/// All texts on the page, none on another, none on the data.
fn assert_legible(scene: &Scene) {
    let page = Area { left: 0.0, top: 0.0, right: scene.width.into(), bottom: scene.height.into() };
    let texts = texts(scene);
    for (index, text) in texts.iter().enumerate() {
        let area = text.area();
        let inside = area.left >= page.left
            && area.top >= page.top
            && area.right <= page.right
            && area.bottom <= page.bottom;
        assert!(inside, "'{}' leaves the page: {area:?} in {page:?}", text.text);
        for data in &scene.data {
            assert!(!area.meets(data), "'{}' lies on the data", text.text);
        }
        for other in &texts[..index] {
            assert!(!area.meets(&other.area()), "'{}' lies on '{}'", text.text, other.text);
        }
    }
}

fn assert_says(scene: &Scene, wanted: &[&str]) {
    let svg = svg(scene).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for text in wanted {
        assert!(svg.contains(text), "the figure does not say '{text}'");
    }
}

#[test]
fn a_pareto_figure_says_what_and_where_from() {
    let scene = pareto::scene(&points()).unwrap();
    assert_legible(&scene);
    assert_eq!(scene.data.len(), 1);
    assert_says(
        &scene,
        &[
            "llama-3-70b, 16 prompt + 5 output tokens",
            "simulated (not a measurement)",
            "completion latency (ms)",
            "tokens/s per GPU",
            "ladder:2",
            "upper-bound",
            "P2P on",
            "P2P off",
        ],
    );
}

#[test]
fn runs_that_are_not_comparable_get_a_panel_each() {
    let mut records = cells();
    records.extend(measured());
    let mut other = record("e", |s| s.link = crate::spec::Link::P2pOff, 0, &[(1.0, 1.0)]);
    other.spec.model = "a-model-with-a-very-long-name/that-somebody-keeps-in-a-deep-directory".into();
    records.push(other);
    let scene = pareto::scene(&analysis::pareto(&records)).unwrap();
    assert_legible(&scene);
    assert_eq!(scene.data.len(), 3);
    assert_says(
        &scene,
        &["measured; emulated-link", "simulated (not a measurement)", "3 groups of runs"],
    );
    assert!(pareto::scene(&[]).is_err());
}

#[test]
fn every_point_is_drawn_within_the_data() {
    let scene = pareto::scene(&points()).unwrap();
    let data = scene.data[0];
    let (mut markers, mut outside) = (0, 0);
    for shape in &scene.shapes {
        let middle = match shape {
            Shape::Disc(at, ..) => *at,
            Shape::Polygon(corners, _) => {
                let n = corners.len() as f64;
                (
                    corners.iter().map(|c| c.0).sum::<f64>() / n,
                    corners.iter().map(|c| c.1).sum::<f64>() / n,
                )
            }
            _ => continue,
        };
        markers += 1;
        let inside = middle.0 > data.left
            && middle.0 < data.right
            && middle.1 > data.top
            && middle.1 < data.bottom;
        outside += usize::from(!inside);
    }
    // A rim and a face each, a hollow inside for half of them; the legend's nine lie outside.
    assert_eq!(markers - outside, 144 * 2 + 72);
    assert_eq!(outside, 9 * 2 + 1);
}

#[test]
fn a_timeline_marks_waiting_and_exposure() {
    let trace = layers();
    let scene = timeline::scene(&trace, 0, 90_000).unwrap();
    assert_legible(&scene);
    let pct = analysis::overlap(&trace, &Default::default()).all.overlap_pct.unwrap();
    assert_says(
        &scene,
        &[
            "rank 0 compute",
            "rank 3 comm",
            "time (µs)",
            "waiting for a peer",
            "exposed communication",
            "simulated (not a measurement)",
            &format!("overlap {pct:.1}% in this window"),
        ],
    );
    let exposed =
        (0..4).map(|rank| analysis::exposed_intervals(&trace, rank, 0, 90_000).len()).sum::<usize>();
    let vermilion =
        |shape: &&Shape| matches!(shape, Shape::Rect(_, color) if *color == super::style::VERMILION);
    assert_eq!(scene.shapes.iter().filter(vermilion).count(), exposed + 1, "one is the legend's");
}

#[test]
fn a_million_operations_are_no_more_than_the_pixels() {
    let spans = (0..200_000).map(|i| span(0, Lane::Compute, i * 10, i * 10 + 9)).collect();
    let scene = timeline::scene(&trace(spans), 0, 2_000_000).unwrap();
    assert!(scene.shapes.len() < 2_000, "{} shapes", scene.shapes.len());
    assert_says(&scene, &["no communication in this window"]);
}

#[test]
fn a_window_beside_the_trace_is_an_input_error() {
    for (from, to) in [(5, 5), (9, 1), (500_000, 600_000), (-9, 0)] {
        let error = timeline::scene(&layers(), from, to).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{from}..{to}");
    }
    assert_eq!(timeline::scene(&trace(Vec::new()), 0, 10).unwrap_err().exit_code(), 2);
}

#[test]
fn a_comparison_shows_ratios_with_intervals() {
    let report = compare(&measured(), "architecture").unwrap();
    let scene = comparison::scene(&report).unwrap();
    assert_legible(&scene);
    let ladder = report.pairs.iter().find(|pair| pair.value == "ladder").unwrap();
    let [low, high] = ladder.speedup_ci95.unwrap();
    assert_says(
        &scene,
        &[
            "Speed-up over standard",
            "measured; 5 comparisons",
            "tiny tp2 b1 p2p-on cpu",
            &format!("{:.3}  [{low:.3}, {high:.3}]", ladder.speedup),
        ],
    );

    let report = compare(&cells(), "p2p").unwrap();
    let scene = comparison::scene(&report).unwrap();
    assert_legible(&scene);
    assert_says(&scene, &["simulated (not a measurement); 72 comparisons, the first 60 shown"]);

    let nothing = compare(&[], "p2p").unwrap();
    assert_eq!(comparison::scene(&nothing).unwrap_err().exit_code(), 2);
}

#[test]
fn files_are_whole_and_of_the_format_their_name_says() {
    let dir = tempfile::tempdir().unwrap();
    let scene = pareto::scene(&points()).unwrap();
    let png = dir.path().join("a.PNG");
    save(&scene, &png).unwrap();
    let bytes = std::fs::read(&png).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(bytes[16..24], [scene.width.to_be_bytes(), scene.height.to_be_bytes()].concat());
    pareto::pareto(&points(), &dir.path().join("a.svg")).unwrap();
    assert!(std::fs::read_to_string(dir.path().join("a.svg")).unwrap().contains("</svg>"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn wrong_names_and_places_are_told() {
    for name in ["figure.pdf", "figure"] {
        let Error::Input { message, help } = pareto::pareto(&points(), name.as_ref()).unwrap_err()
        else {
            panic!("{name} must be an input error");
        };
        assert!(message.contains(name) && help.unwrap().contains(".svg or .png"));
    }
    let error = pareto::pareto(&points(), "/nowhere/at/all/figure.svg".as_ref()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("/nowhere/at/all/figure.svg"));
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
fn look() {
    let dir = std::path::Path::new("/tmp/figures");
    std::fs::create_dir_all(dir).unwrap();
    for ext in ["png", "svg"] {
        let at = |name: &str| dir.join(format!("{name}.{ext}"));
        pareto::pareto(&points(), &at("pareto")).unwrap();
        let mut records = cells();
        records.extend(measured());
        save(&pareto::scene(&analysis::pareto(&records)).unwrap(), &at("panels")).unwrap();
        timeline::timeline(&layers(), 0, 90_000, &at("timeline")).unwrap();
        timeline::timeline(&layers(), 15_000, 45_000, &at("zoom")).unwrap();
        comparison::comparison(&compare(&measured(), "architecture").unwrap(), &at("comparison"))
            .unwrap();
        comparison::comparison(&compare(&cells()[..40], "p2p").unwrap(), &at("p2p")).unwrap();
    }
}
