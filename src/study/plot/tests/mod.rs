//! Figures of made-up data: what they say, and that nothing in them lies on something else.

mod figures;

use std::path::Path;
use std::sync::LazyLock;

use super::scene::{Area, Scene, SceneShape, SceneText};
use super::{
    Figure, FigureOptions, OverlapPart, ParetoData, ProvenanceSummary, Size, TraceStretch,
    comparison_figure, conversion_figure, improvement_figure, overlap_figure, p2p_figure, pareto_figure,
    throughput_figure, timeline_figure, training_figure,
};
use crate::analysis::{self, Axes, CellSet, ParetoPoint, compare};
use base::error::{Error, Result};
use plan::{Architecture, Lane};
use table::testing::{evaluated, record, sim_record};
use table::{P2p, Record};
use trace::testing::{span, trace};
use trace::{Span, Trace};

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
                    let change = |spec: &mut table::Spec| {
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
            let change = |spec: &mut table::Spec| spec.architecture = architecture.clone();
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
            let of = |operation: &trace::OperationInfo, name: &str| {
                let name = format!("decode/L{layer}/{name}");
                trace::OperationInfo { name, layer: Some(layer), ..operation.clone() }
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

fn texts(scene: &Scene) -> Vec<&SceneText> {
    let texts = scene.shapes.iter().filter_map(|shape| match shape {
        SceneShape::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

/// All texts on the page, none on another, none on the data but those that belong there;
/// and those within it.
#[track_caller]
fn assert_legible(scene: &Scene) {
    let page = Area { left: 0.0, top: 0.0, right: scene.width, bottom: scene.height };
    let texts = texts(scene);
    assert!(!texts.is_empty());
    let areas: Vec<Area> = texts.iter().map(|text| text.area()).collect();
    for (index, (text, area)) in texts.iter().zip(&areas).enumerate() {
        assert!(page.holds(area), "'{}' leaves the page: {area:?} in {page:?}", text.text);
        match text.inside {
            true => {
                let within = scene.data.iter().any(|data| data.holds(area));
                assert!(within, "'{}' leaves the data", text.text);
            }
            false => {
                for data in &scene.data {
                    assert!(!area.meets(data), "'{}' lies on the data: {area:?} {data:?}", text.text);
                }
            }
        }
        for (other, beneath) in texts.iter().zip(&areas[..index]) {
            assert!(!area.meets(beneath), "'{}' lies on '{}'", text.text, other.text);
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
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|node| Some(node.text()?.trim().to_owned())).collect()
}

#[track_caller]
fn assert_says(figure: &Figure, wanted: &[&str]) {
    let said = read(figure).join(" ");
    for text in wanted {
        assert!(said.contains(text), "the figure does not say '{text}': {said}");
    }
}

fn sized(size: &str) -> FigureOptions {
    FigureOptions { size: size.parse().unwrap(), ..FigureOptions::default() }
}

/// Every kind of figure at one size; a size that is too small for a figure is an input error.
fn all_scenes(options: &FigureOptions) -> Vec<(&'static str, Result<Scene>)> {
    static COMPARED: LazyLock<[analysis::ComparisonReport; 2]> = LazyLock::new(|| {
        [cells(), measured()].map(|records| compare(&records, "architecture").unwrap())
    });
    let (records, set, points) = (cells(), set(), points());
    let provenance = ProvenanceSummary::of_records(&records);
    let [by, measured] = &*COMPARED;
    let data = ParetoData { points: &points, ..ParetoData::default() };
    let (standard, ladder) = (step(false), step(true));
    let traces = [&standard, &ladder];
    let figures = [
        ("pareto", pareto_figure(&data, &provenance, options)),
        ("throughput", throughput_figure(&set, &provenance, options)),
        ("improvement", improvement_figure(std::slice::from_ref(&set), by, &provenance, options)),
        ("p2p", p2p_figure(&set, &provenance, options)),
        ("overlap", overlap_figure(&traces, &OverlapPart::default(), &provenance, options)),
        ("timeline", {
            let trace = layers();
            timeline_figure(&[TraceStretch { trace: &trace, from_ns: 0, to_ns: 90_000 }], options)
        }),
        ("comparison", comparison_figure(measured, &provenance, options)),
        ("conversion", conversion_figure(&crate::testing::conversion_report(), options)),
        ("training", training_figure(&trainings(), options)),
    ];
    figures.map(|(kind, figure)| (kind, figure.map(|figure| figure.scene))).into()
}

#[test]
fn nothing_lies_on_anything_at_any_size() {
    let mut drawn = 0;
    for size in ["column", "page", "3.3x2.5", "3.3x4", "5", "5x4", "6.9x3", "12x8", "2x2", "1x9"] {
        for font in [8.0, 10.0] {
            let options = FigureOptions { font, ..sized(size) };
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

/// Three architectures, two of which have two seeds.
pub(super) fn trainings() -> analysis::TrainingSet {
    use table::testing::trained;
    let all = [
        trained("standard", 0, 2.0),
        trained("ladder", 0, 2.1),
        trained("parallel", 0, 2.4),
        trained("standard", 1, 2.02),
        trained("ladder", 1, 2.08),
    ];
    analysis::one_training_set(&all).unwrap()
}

#[test]
fn a_file_carries_its_size_and_where_its_numbers_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let (set, mut provenance) = (set(), ProvenanceSummary::of_records(&cells()));
    provenance.days.insert("2026-01-02".into());
    let options = FigureOptions { dpi: 200, ..sized("3.3x2.5") };
    let figure = throughput_figure(&set, &provenance, &options).unwrap();

    let path = dir.path().join("a.svg");
    figure.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let root = document.root_element();
    assert_eq!(
        ["width", "height", "viewBox"].map(|name| root.attribute(name).unwrap()),
        ["3.3in", "2.5in", "0 0 23760 18000"]
    );
    let of = |name: &str| {
        let found = root.descendants().find(|node| node.tag_name().name() == name);
        found.and_then(|node| node.text()).unwrap_or_default().to_owned()
    };
    assert_eq!(of("title"), "Throughput by tensor-parallel size");
    assert_eq!(of("desc"), provenance.caption());
    assert_eq!(of("source"), "simulated (not a measurement)");
    assert_eq!(of("date"), "2026-01-02");
    assert!(text.contains("font-family=\"DejaVu Sans, Verdana, sans-serif\""), "texts as text");

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
    assert_eq!(of("Title"), Some("Throughput by tensor-parallel size"));
    assert_eq!(of("Provenance"), Some("simulated (not a measurement)"));
    assert_eq!(of("Runs"), Some("144"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn the_same_data_give_the_same_bytes() {
    let provenance = ProvenanceSummary::of_records(&cells());
    let figure = || p2p_figure(&set(), &provenance, &sized("column")).unwrap();
    assert_eq!(figure().svg().unwrap(), figure().svg().unwrap());
    assert_eq!(figure().pixels(300).unwrap(), figure().pixels(300).unwrap());
}

#[test]
fn a_picture_shows_what_the_figure_has() {
    let provenance = ProvenanceSummary::of_records(&cells());
    let pixels = throughput_figure(&set(), &provenance, &sized("5x3")).unwrap().pixels(500).unwrap();
    assert_eq!((pixels.width, pixels.height), (500, 300));
    let colors: std::collections::BTreeSet<&[u8]> = pixels.rgb.chunks(3).collect();
    // Paper, ink of markers, and the colours of four architectures, unmixed.
    for color in [[255, 255, 255], [0, 114, 178], [213, 94, 0], [0, 158, 115], [0, 0, 0]] {
        assert!(colors.contains(&color[..]), "{color:?} is nowhere");
    }
}

#[test]
fn in_a_page_ink_is_the_pages() {
    let provenance = ProvenanceSummary::of_records(&cells());
    let figure = p2p_figure(&set(), &provenance, &FigureOptions::default()).unwrap();
    let element = figure.element().unwrap();
    roxmltree::Document::parse(&element).unwrap();
    assert!(element.contains("var(--fig-ink,#1E1E1E)") && element.contains("var(--fig-paper,#FFFFFF)"));
    assert!(!element.contains("\"#1E1E1E\"") && !element.contains("\"#FFFFFF\""));
}

/// Draws the Pareto figure of some points into a file.
fn save(path: &Path) -> Result<()> {
    let points = points();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    pareto_figure(&data, &ProvenanceSummary::of_records(&cells()), &FigureOptions::default())?.save(path)
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
    let error = crate::plot::write(dir.path(), b"x").unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
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
    let provenance = ProvenanceSummary::of_records(&cells());
    let error = p2p_figure(&set(), &provenance, &sized("1x1")).unwrap_err();
    let Error::Input { message, help } = error else { panic!("an input error") };
    assert!(message.starts_with("1.00 x 1.00 inches"), "{message}");
    let help = help.unwrap();
    assert!(help.contains("inches or more"), "{help}");
}

#[test]
fn architectures_have_looks_of_their_own_that_do_not_change() {
    let some = architectures();
    let looks = crate::plot::style::looks(&some);
    let distinct: std::collections::BTreeSet<_> = looks.values().collect();
    assert_eq!(distinct.len(), some.len());
    // each alone, and beside relatives
    let family = ["1", "2", "3", "4", "6", "8"].map(|delay| format!("delayed:{delay}").parse().unwrap());
    let many: Vec<Architecture> = some.iter().cloned().chain(family).collect();
    let beside = crate::plot::style::looks(&many);
    for architecture in &many {
        let alone = crate::plot::style::looks([architecture]);
        assert_eq!(alone[architecture], beside[architecture], "{architecture}");
    }
    let distinct: std::collections::BTreeSet<_> =
        beside.values().map(|look| (look.color, look.marker)).collect();
    assert_eq!(distinct.len(), many.len());
}

#[test]
fn a_size_without_a_height_has_the_contents() {
    let provenance = ProvenanceSummary::of_records(&cells());
    let size = Size { width: 5.0, height: None };
    let figure =
        throughput_figure(&set(), &provenance, &FigureOptions { size, ..FigureOptions::default() })
            .unwrap();
    assert!((1.5..6.0).contains(&(figure.scene.height / 72.0)), "{}", figure.scene.height);
}
