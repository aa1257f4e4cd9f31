//! The list of pairs.

use super::*;
use crate::face::tui::screen::FileKind;
use plan::Architecture;
use table::Provenance;

#[test]
fn a_narrow_status_row_keeps_its_texts_apart() {
    let mut records = compared();
    for record in &mut records {
        record.warnings = vec!["clocks throttled".into()];
    }
    let driver = pairs_on(records, (60, 16));
    let status = line_of(&driver, "⚑");
    assert!(status.contains(" ⚑ ") && status.contains("col"), "{status}");
}

/// Where pairs are of different provenance each row says its own, however narrow the window.
#[test]
fn rows_of_mixed_provenance_are_labelled_at_80_columns() {
    let mut records: Vec<Record> = grid().to_vec();
    for record in grid().iter().filter(|record| record.spec.tp == 2 && record.spec.batch == 1) {
        let mut measured = record.clone();
        measured.run = format!("measured-{}", record.run.replace(':', "-"));
        (measured.provenance, measured.spec.backend) = (Provenance::Measured, Backend::Cuda);
        records.push(measured);
    }
    let driver = pairs_on(records.clone(), (80, 24));
    let shown = driver.screen();
    assert!(shown.contains("simulated") && shown.contains("provenance"), "{shown}");
    let narrow = pairs_on(records, (60, 16)).screen();
    let titles = narrow.lines().find(|line| line.contains("provenance")).unwrap_or_default();
    assert!(titles.contains("tok/s x cell"), "the ratio follows the value: {narrow}");
}

#[test]
fn filter_sort_and_mark() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("/ladder tp8 p2p-on");
    driver.enter();
    assert_eq!(driver.state.compare.shown.len(), 4, "{}", driver.screen());
    driver.taps("s");
    let ratios = |driver: &Driver| -> Vec<f64> {
        let compare = &driver.state.compare;
        compare.shown.iter().map(|row| compare.pairs()[row.pair].speedup).collect()
    };
    assert!(ratios(&driver).is_sorted());
    driver.taps("I");
    assert!(ratios(&driver).iter().rev().is_sorted());
    let first = driver.state.compare.selected().unwrap().run.clone();
    driver.taps(" ");
    driver.shows("1 marked ●");
    let report = driver.state.compare.exported_report().unwrap();
    assert_eq!(report.pairs.iter().map(|p| p.run.clone()).collect::<Vec<_>>(), [first]);
    assert_eq!(report.comparisons, 48, "the comparison count is kept");
    // a mark that another filter hides is exported all the same, and said to be hidden
    driver.press(KeyCode::Esc);
    driver.taps("/ladder tp2 p2p-off");
    driver.enter();
    let exported = driver.state.compare.exported();
    assert!(!driver.state.compare.shown.iter().any(|row| row.pair == exported.pairs[0]));
    assert_eq!(exported.words(1, "pair"), "1 marked pair, 1 pair hidden by the filter");
    driver.press(KeyCode::Esc);
    driver.press(KeyCode::Esc);
    assert_eq!(driver.state.compare.exported_report().unwrap().pairs.len(), 48);
}

#[test]
fn gaps_closed_of_both_sides_stand_with_their_intervals() {
    let mut driver = pairs_on(compared(), (160, 24));
    let shown = driver.screen();
    let side = |shown: &str, name: &str| {
        let line =
            shown.lines().find(|line| line.contains(name) && line.contains("%")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{name}: {shown}"))
    };
    assert!(side(&shown, "│ladder").contains("62 % ["), "{shown}");
    assert!(shown.contains("gap closed"), "{shown}");
    // against ladder both sides have one
    driver.taps("Bladder");
    driver.tap(KeyCode::Enter);
    driver.taps("/parallel");
    driver.enter();
    let shown = driver.screen();
    assert!(side(&shown, "│ladder").contains("62 % ["), "{shown}");
    assert!(side(&shown, "│parallel").contains("-78 % [-"), "{shown}");
    assert!(shown.contains("62 % → -78 %"), "{shown}");
}

#[test]
fn the_table_scrolls_sideways_and_keeps_its_cells() {
    let mut driver = pairs_on(compared(), (80, 24));
    let header = |driver: &mut Driver| driver.screen().lines().nth(4).unwrap_or_default().to_owned();
    let first = header(&mut driver);
    assert!(first.contains("tok/s x") && !first.contains("hidden"), "{first}");
    driver.shows("more columns");
    let mut seen = first.clone();
    for _ in 0..12 {
        driver.press(KeyCode::Right);
        let now = header(&mut driver);
        assert!(now.contains("architecture"), "the axis stays: {now}");
        seen.push_str(&now);
    }
    for title in ["tok/s x", "95 % CI", "p (BH)", "TPOT ms", "exposed", "hidden"] {
        assert!(seen.contains(title), "{title} is never shown: {seen}");
    }
    assert!(driver.screen().lines().nth(3).is_some_and(|line| line.contains("←")));
    // one step back from the end is seen at once
    let last = header(&mut driver);
    driver.taps("h");
    assert_ne!(header(&mut driver), last);
}

#[test]
fn equal_rows_fold_into_one_that_opens() {
    // a link that no simulated step feels: with one rank there is no communication
    let mut specs: Vec<Spec> = Vec::new();
    for architecture in ["standard", "ladder"] {
        for (tp, alpha) in [(1, "5"), (1, "20"), (1, "50"), (2, "5"), (2, "20"), (2, "50")] {
            let mut spec = spec(architecture, tp, P2p::On, Backend::Sim);
            spec.model = "llama-3.2-1b".into();
            spec.set.insert("link.alpha_us".into(), alpha.into());
            specs.push(spec);
        }
    }
    let mut records = Vec::new();
    simulate_cells(&specs.iter().collect::<Vec<_>>(), |index, mut record| {
        record.run = format!("batch-1:{index}");
        records.push(record);
    });
    let mut driver = pairs_on(records, (120, 40));
    let shown = driver.screen();
    assert!(shown.contains(" 4 rows: e opens ▸"), "{shown}");
    assert!(shown.contains("▸ ladder"), "{shown}");
    assert!(shown.contains("3 equal: tp1 link.alpha_us=5,20,50"), "{shown}");
    driver.taps("gg ");
    assert_eq!(driver.state.compare.marked.len(), 3, "a row marks all its pairs");
    driver.taps(" e");
    let shown = driver.screen();
    assert!(shown.contains("▾ ladder") && shown.contains("tp1 link.alpha_us=20"), "{shown}");
    assert!(!shown.contains("equal: tp1"), "{shown}");
    assert_eq!(driver.state.compare.shown.len(), 6);
    driver.taps("je");
    assert_eq!(driver.state.compare.shown.len(), 4, "any of them folds it again");
    assert_eq!(driver.state.compare.list.selected, 0);
    assert_eq!(
        driver.state.compare.exported_report().unwrap().pairs.len(),
        6,
        "folded pairs are exported"
    );
    driver.taps("je");
    driver.shows("no other pair has the same numbers");
}

#[test]
fn what_is_shown_is_what_is_exported() {
    let mut driver = pairs_on(compared(), (80, 24));
    let dir = tempfile::tempdir().unwrap();
    let write = |driver: &Driver, kind: FileKind, name: &str| {
        let export = driver.state.compare.export(kind, &driver.state.cx).unwrap().unwrap();
        let path = dir.path().join(name);
        export.write(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let csv = write(&driver, FileKind::Csv, "all.csv");
    assert_eq!(csv.lines().count(), 5);
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    assert!(header.contains(&"speedup_ci95_low") && header.contains(&"adjusted_p"));
    driver.taps("/parallel");
    driver.enter();
    assert_eq!(write(&driver, FileKind::Csv, "one.csv").lines().count(), 2);
    assert!(write(&driver, FileKind::Svg, "one.svg").contains("parallel"));
    driver.taps("/zzz");
    driver.enter();
    assert!(driver.state.compare.export(FileKind::Csv, &driver.state.cx).is_err());
}

#[test]
fn new_runs_keep_the_selected_pair() {
    let mut driver = pairs_on(compared(), (120, 40));
    driver.taps("jj");
    let before = driver.state.compare.selected().unwrap().run.clone();
    let mut records = compared();
    // stored before the others: every index moves
    let mut earlier = records.clone();
    earlier.retain(|record| record.spec.architecture != Architecture::UpperBound);
    for record in &mut earlier {
        record.spec.batch = 8;
        record.run.push_str("-b8");
    }
    records.splice(0..0, earlier);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    assert_eq!(driver.state.compare.selected().unwrap().run, before);
}

#[test]
fn the_title_of_the_sorted_column_is_whole_in_every_order() {
    for records in [grid().to_vec(), compared()] {
        let mut driver = pairs_on(records, (200, 60));
        for _ in 0..8 {
            driver.taps("s");
            let screen = driver.screen();
            let titles = screen.lines().nth(4).unwrap_or_default();
            assert!(titles.contains("tok/s x") && !titles.contains('…'), "{titles}\n{screen}");
        }
    }
}

#[test]
fn a_lead_of_upper_bound_is_the_limit() {
    let mut driver = pairs_on(grid().to_vec(), (200, 60));
    driver.taps("/upper-bound tp8 p2p-off");
    driver.enter();
    driver.shows("▲ limit");
    driver.hides("▲ faster");
    driver.shows("▲ the limit");
}

#[test]
fn a_cell_is_what_varies_among_the_pairs_that_the_filter_leaves() {
    let mut larger = compared();
    for record in &mut larger {
        record.spec.batch = 8;
        record.run.push_str("-b8");
    }
    let mut driver = pairs_on([compared(), larger].concat(), (80, 24));
    let titles = |driver: &Driver| driver.screen().lines().nth(4).unwrap_or_default().to_owned();
    assert!(titles(&driver).contains(" cell "), "batches differ: {}", driver.screen());
    driver.taps("/batch:4");
    driver.tap(KeyCode::Enter);
    assert!(!titles(&driver).contains(" cell "), "nothing but the axis differs: {}", driver.screen());
    driver.press(KeyCode::Esc);
    assert!(titles(&driver).contains(" cell "), "{}", driver.screen());
}

#[test]
fn the_list_and_the_map_say_who_wins() {
    let mut driver = on(grid().to_vec(), (80, 24));
    for _ in 0..2 {
        driver.taps("t");
        driver.shows("Ladder is up to 1.36x faster than standard at batch 1");
        driver.shows("by architecture against standard: 48 comparisons");
    }
}
