//! Figures as files, and as parts of a page: their bytes, their names, what is refused.

use std::path::Path;

use super::*;

#[test]
fn a_file_carries_its_size_and_where_its_numbers_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let (set, mut provenance) = (set(), ProvenanceSummary::of_records(&cells()));
    provenance.days.insert("2026-01-02".into());
    let options = Options { dpi: 200, ..sized("3.3x2.5") };
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
    let figure = p2p_figure(&set(), &provenance, &Options::default()).unwrap();
    let element = figure.element().unwrap();
    roxmltree::Document::parse(&element).unwrap();
    assert!(element.contains("var(--fig-ink,#1E1E1E)") && element.contains("var(--fig-paper,#FFFFFF)"));
    assert!(!element.contains("\"#1E1E1E\"") && !element.contains("\"#FFFFFF\""));
}

/// Draws the Pareto figure of some points into a file.
fn save(path: &Path) -> Result<()> {
    let points = points();
    let data = ParetoData { points: &points, ..ParetoData::default() };
    pareto_figure(&data, &ProvenanceSummary::of_records(&cells()), &Options::default())?.save(path)
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
        throughput_figure(&set(), &provenance, &Options { size, ..Options::default() }).unwrap();
    assert!((1.5..6.0).contains(&(figure.scene.height / 72.0)), "{}", figure.scene.height);
}
