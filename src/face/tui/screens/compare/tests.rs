//! The compare screen as a user meets it: a simulated grid of TPs and batches, and measured runs over an
//! emulated link.

use std::sync::{Arc, LazyLock};

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEventKind};

use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{AnyScreen as _, FileKind, Screen};
use crate::face::tui::screens::compare::state::View;
use crate::face::tui::tests::fixtures::{Driver, compared, spec};
use crate::face::tui::update::{Effect, Message};
use lab::sweep::simulate_cells;
use plan::Architecture;
use table::{Backend, P2p, Provenance, Record, Spec, Status};

/// Simulated: architectures x TP x batch x P2P.
fn grid() -> &'static [Record] {
    static GRID: LazyLock<Vec<Record>> = LazyLock::new(|| {
        let mut specs: Vec<Spec> = Vec::new();
        for architecture in ["standard", "ladder", "upper-bound"] {
            for tp in [2, 4, 8] {
                for batch in [1, 4, 16, 64] {
                    for p2p in [P2p::On, P2p::Off] {
                        let mut spec = spec(architecture, tp, p2p, Backend::Sim);
                        (spec.model, spec.stack) = ("llama-3.2-1b".into(), "gpt-fast".into());
                        (spec.batch, spec.prompt_tokens, spec.output_tokens) = (batch, 128, 16);
                        specs.push(spec);
                    }
                }
            }
        }
        let mut records = Vec::new();
        simulate_cells(&specs.iter().collect::<Vec<_>>(), |index, mut record| {
            record.run = format!("batch-1:{index}");
            records.push(record);
        });
        records
    });
    &GRID
}

/// The screen with these runs stored.
fn on(records: Vec<Record>, (columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    driver.state.cx.tab = Tab::Compare;
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver
}

/// The list of pairs, with these runs stored.
fn pairs_on(records: Vec<Record>, size: (u16, u16)) -> Driver {
    let mut driver = on(records, size);
    driver.taps("t");
    driver
}

/// Line of the window that contains a text.
#[track_caller]
fn line_of(driver: &Driver, text: &str) -> String {
    let screen = driver.screen();
    let line = screen.lines().find(|line| line.contains(text)).map(str::to_owned);
    line.unwrap_or_else(|| panic!("{text}: {screen}"))
}

#[test]
fn the_pivot_at_three_sizes() {
    for (columns, rows) in [(60, 16), (80, 24), (120, 40)] {
        let driver = on(grid().to_vec(), (columns, rows));
        insta::assert_snapshot!(format!("pivot_{columns}x{rows}"), driver.screen());
    }
}

#[test]
fn the_headline_wraps_and_the_marks_and_shares_are_explained() {
    for (columns, rows) in [(60, 24), (80, 24), (120, 40)] {
        let driver = on(grid().to_vec(), (columns, rows));
        let screen = driver.screen();
        assert!(
            screen.contains("tokens/s") && !screen.lines().take(3).any(|l| l.ends_with('…')),
            "{screen}"
        );
        driver.shows("★ fastest");
        driver.shows(" exposed: ");
    }
}

#[test]
fn who_wins_at_tp_8_batch_1_without_p2p_takes_three_keys() {
    for (size, more) in [((120, 40), None), ((80, 24), Some(KeyCode::End))] {
        let mut driver = on(grid().to_vec(), size);
        driver.state.cx.tab = Tab::Experiments;
        driver.taps("6");
        more.into_iter().for_each(|key| driver.tap(key));
        let row = line_of(&driver, "tp8 b1 p2p-off");
        assert!(row.contains("★"), "{size:?}: {}", driver.screen());
        driver.shows("Ladder is up to ");
    }
}

/// The first view answers who wins in any setting, although not all rows fit.
#[test]
fn the_winners_by_setting_are_below_the_headline() {
    for size in [(80, 24), (120, 40)] {
        let driver = on(grid().to_vec(), size);
        let winners = line_of(&driver, "★ ladder; ");
        assert!(
            winners.ends_with("≈ standard at b64 p2p-on, tp4 b64, tp8 b64, tp2 b16 p2p-on"),
            "{winners}"
        );
    }
    let low = on(grid().to_vec(), (60, 16));
    low.hides("★ ladder; ");
    let notes = low.state.screen(Tab::Compare).notes(low.state.cx.body(), &low.state.cx);
    assert!(notes.iter().any(|note| note.is_folded && note.text.contains("★ ladder; ≈ standard at")));
    // one winner is in the headline
    on(compared(), (120, 40)).hides("★ ladder; ");
}

#[test]
fn a_baseline_that_is_no_name_is_shown_with_its_option() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("ap2p");
    driver.tap(KeyCode::Enter);
    driver.shows("P2P on TPOT ms");
    driver.shows("x tokens/s of P2P on");
    driver.shows("p2p: P2P off against P2P on");
    driver.shows("│P2P off ");
}

#[test]
fn marks_have_one_meaning_on_all_views() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.shows("≈ close");
    driver.taps("gg/ladder p2p-on");
    driver.enter();
    driver.taps("t");
    let map = driver.screen();
    assert!(map.contains("≈1.01x") && map.contains("  ≈ within 5 %"), "{map}");
    driver.taps("t");
    driver.shows("≈ within 5 %");
}

#[test]
fn the_legend_of_the_map_fits_with_the_key_of_its_slices() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(grid().to_vec(), size);
        driver.taps("v");
        let legend = line_of(&driver, "slice ");
        assert!(legend.starts_with(" c: slice ") && !legend.ends_with('…'), "{legend}");
        let footer = driver.screen().lines().last().unwrap_or_default().to_owned();
        assert!(footer.contains("c slice  v value"), "{footer}");
    }
    on(grid().to_vec(), (120, 40)).hides("c slice");
}

/// Columns of the map and lanes of the sides do not move with the number of digits.
#[test]
fn numbers_below_one_another_are_aligned() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("l");
    let side = |name: &str| line_of(&driver, &format!("│{name}  "));
    let point = |line: &str| line.find('.').unwrap();
    assert_eq!(point(&side("standard")), point(&side("upper-bound")), "{}", driver.screen());
    assert!(side("upper-bound").contains(" 0.000 "), "{}", driver.screen());
}

#[test]
fn enter_without_a_trace_says_why_and_what_to_do() {
    let mut records = compared();
    records.iter_mut().for_each(|record| record.trace = None);
    let mut driver = on(records, (120, 40));
    driver.hides("Enter timelines");
    driver.enter();
    driver.shows("neither run was recorded");
    driver.shows("1 lists experiments");
    // one of the two has timelines
    let mut records = compared();
    let standard = records.iter_mut().filter(|record| record.run.starts_with("standard"));
    standard.for_each(|record| record.trace = None);
    let mut driver = on(records, (120, 40));
    driver.shows("Enter timelines");
    driver.enter();
    driver.shows("opening ladder-2");
    driver.hides("standard-2");
}

#[test]
fn a_cell_without_a_pair_says_why_and_what_to_do() {
    let mut records = grid().to_vec();
    records.retain(|record| {
        let spec = &record.spec;
        (spec.architecture.to_string().as_str(), spec.tp, spec.batch) != ("ladder", 8, 64)
    });
    let mut driver = on(records, (120, 40));
    driver.tap(KeyCode::End);
    driver.taps("h");
    driver.shows("no result of ladder at TP 8, batch 64, P2P off");
    driver.shows("1 lists experiments");
    driver.hides("Enter timelines");
    driver.enter();
    assert_eq!(driver.state.cx.tab, Tab::Compare);
    driver.shows("no result of ladder at TP 8, batch 64, P2P off; 1 lists experiments");
}

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

#[test]
fn a_cell_of_the_pivot_is_selected_explained_and_opened() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("/tp8 p2p-off");
    driver.enter();
    driver.shows("architecture: 4 of 24 settings");
    driver.shows("architecture: ladder against standard");
    driver.taps("gg");
    driver.tap(KeyCode::Right);
    driver.shows("[upper-bound]");
    driver.shows("architecture: upper-bound against standard");
    driver.hides("upper-bound decodes");
    driver.tap(KeyCode::Down);
    assert!(driver.state.compare.selected().is_some_and(|pair| pair.side.spec.batch == 4));
    driver.taps("ssI");
    driver.shows("by TPOT of upper-bound ▼");
    let batch = |driver: &Driver| driver.state.compare.selected().unwrap().side.spec.batch;
    let before = batch(&driver);
    driver.taps("h");
    driver.shows("by TPOT of ladder ▼");
    assert_eq!(batch(&driver), before, "the row stays selected");
    let pair = driver.state.compare.selected().unwrap().clone();
    driver.enter();
    driver.shows(&format!("opening {}", pair.run));
    driver.state.cx.tab = Tab::Compare;
    driver.press(KeyCode::Esc);
    assert_eq!(driver.state.compare.column, None, "Escape follows the fastest again");
}

#[test]
fn a_click_selects_a_cell_of_the_pivot() {
    let mut driver = on(grid().to_vec(), (120, 40));
    let screen = driver.screen();
    let row = screen.lines().position(|line| line.contains("tp4 b16 p2p-off")).unwrap();
    let column = line_of(&driver, "TPOT ms").find("upper-bound").unwrap();
    let kind = MouseEventKind::Down(MouseButton::Left);
    driver.mouse(kind, (column as u16, row as u16));
    let pair = driver.state.compare.selected().unwrap();
    assert_eq!((pair.value.as_str(), pair.side.spec.tp, pair.side.spec.batch), ("upper-bound", 4, 16));
}

#[test]
fn the_pivot_changes_to_pairs_and_map_and_keeps_its_row() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("ggjjjl");
    let pair = driver.state.compare.selected().unwrap().clone();
    driver.taps("t");
    let same = |driver: &Driver| {
        let selected = driver.state.compare.selected().unwrap();
        (&selected.baseline_run, &selected.run) == (&pair.baseline_run, &pair.run)
    };
    assert!(same(&driver), "{}", driver.screen());
    driver.taps("t");
    driver.shows("ratio of tokens/s: upper-bound / standard  p2p-off");
    assert!(same(&driver), "the map opens on the same pair: {}", driver.screen());
    driver.taps("t");
    assert!(driver.state.compare.shows_pivot() && same(&driver));
    driver.shows("setting");
}

#[test]
fn the_pivot_is_exported_with_a_row_per_setting() {
    let mut driver = on(compared(), (80, 24));
    let csv = |driver: &Driver| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let export = driver.state.compare.export(FileKind::Csv, &driver.state.cx).unwrap().unwrap();
        export.write(file.path()).unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    };
    let all = csv(&driver);
    assert_eq!(all.lines().count(), 2);
    let header = all.lines().next().unwrap();
    assert!(header.contains("ladder,parallel,desync:2,upper-bound,fastest"), "{header}");
    driver.taps("/ladder");
    driver.enter();
    assert!(!csv(&driver).contains("parallel"));
}

#[test]
fn the_pivot_scrolls_to_the_selected_value() {
    let mut larger = compared();
    for record in &mut larger {
        record.spec.batch = 8;
        record.run.push_str("-b8");
    }
    let mut driver = on([compared(), larger].concat(), (60, 16));
    let titles = |driver: &Driver| line_of(driver, "TPOT ms");
    assert!(!titles(&driver).contains("upper-bound"), "{}", driver.screen());
    driver.taps("lll");
    assert!(titles(&driver).contains("[upper-bound]"), "{}", driver.screen());
    assert!(titles(&driver).contains("setting"), "{}", driver.screen());
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
    let driver = pairs_on(records, (80, 24));
    let shown = driver.screen();
    assert!(shown.contains("simulated") && shown.contains("provenance"), "{shown}");
}

#[test]
fn tables_maps_and_details() {
    let mut driver = pairs_on(compared(), (120, 40));
    insta::assert_snapshot!("measured_120x40", driver.screen());
    driver.taps("f");
    insta::assert_snapshot!("flags_120x40", driver.screen());
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("s");
    insta::assert_snapshot!("simulated_120x40", driver.screen());
    driver.taps("tlj");
    insta::assert_snapshot!("map_120x40", driver.screen());
    driver.taps("v");
    insta::assert_snapshot!("map_exposed_120x40", driver.screen());
    driver.taps("c");
    insta::assert_snapshot!("slices_120x40", driver.screen());
}

#[test]
fn an_axis_is_picked_by_typing_and_only_those_that_vary_are_offered() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("a");
    let shown = driver.screen();
    for (axis, pairs) in [("architecture", "48 pairs"), ("p2p", "36 pairs"), ("tp", "48 pairs")] {
        let line = shown.lines().find(|line| line.contains(&format!("│ {axis} ")));
        assert!(line.is_some_and(|line| line.contains(pairs)), "{axis}: {shown}");
    }
    assert!(!shown.contains("hardware  "), "it does not vary: {shown}");
    driver.taps("p2");
    driver.tap(KeyCode::Enter);
    assert_eq!(driver.state.compare.asked.axis.to_string(), "p2p");
    driver.shows("by p2p against on: 36 comparisons");
    driver.taps("B");
    driver.press(KeyCode::Down);
    driver.tap(KeyCode::Enter);
    driver.shows("by p2p against off");
    let pair = driver.state.compare.selected().unwrap();
    assert_eq!((pair.baseline.as_str(), pair.value.as_str()), ("off", "on"));
    let words = driver.state.compare.command().unwrap().words.join(" ");
    assert_eq!(words, "compare --by p2p --against off");
}

#[test]
fn a_variable_is_an_axis_as_soon_as_runs_differ_in_it() {
    let mut records = compared();
    let mut tree: Vec<Record> = compared();
    for record in &mut tree {
        record.spec.env.insert("NCCL_ALGO".into(), "Tree".into());
        record.run.push_str("-tree");
    }
    records.extend(tree);
    let mut driver = pairs_on(records, (120, 40));
    driver.taps("aNCCL");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(shown.contains("by NCCL_ALGO against unset: 5 comparisons, 0 differ"), "{shown}");
    assert!(shown.contains("Tree      standard") && shown.contains("≈ noise"), "{shown}");
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
    assert_eq!(report.comparisons, 48, "what was compared stays told");
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
    let header = |driver: &mut Driver| driver.screen().lines().nth(3).unwrap_or_default().to_owned();
    let first = header(&mut driver);
    assert!(first.contains("tok/s x") && !first.contains("overlap"), "{first}");
    driver.shows("more columns");
    let mut seen = first.clone();
    for _ in 0..12 {
        driver.press(KeyCode::Right);
        let now = header(&mut driver);
        assert!(now.contains("architecture"), "what is compared stays: {now}");
        seen.push_str(&now);
    }
    for title in ["tok/s x", "95 % CI", "adj. p", "TPOT ms", "exposed", "overlap"] {
        assert!(seen.contains(title), "{title} is never shown: {seen}");
    }
    assert!(driver.screen().lines().nth(2).is_some_and(|line| line.contains("←")));
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
    assert!(shown.contains("6 of 6 pairs, 4 rows: e opens ▸"), "{shown}");
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
        "what is folded is exported"
    );
    driver.taps("je");
    driver.shows("no other pair has the same numbers");
}

#[test]
fn the_copied_command_says_what_it_leaves_out() {
    let mut driver = pairs_on(grid().to_vec(), (200, 40));
    let copied = |driver: &mut Driver| {
        let effects = driver.keys("Y");
        let [Effect::Copy(command)] = &effects[..] else { panic!("{effects:?}") };
        (command.clone(), driver.screen())
    };
    let (plain, told) = copied(&mut driver);
    assert!(plain == "ladderscope compare --by architecture" && told.contains("copied: ladderscope"));
    driver.taps("/ladder tp8");
    driver.enter();
    let (command, told) = copied(&mut driver);
    assert_eq!(command, format!("{plain} --filter 'ladder tp8'"));
    assert!(told.contains("copied: ladderscope"), "{told}");
    driver.taps("gg j ");
    let (_, told) = copied(&mut driver);
    assert!(told.contains("but for the 2 marks: "), "{told}");
    driver.taps("t");
    let slice = driver.state.compare.slice_name().to_owned();
    assert_eq!(slice, "ladder / standard  p2p-off", "what varies, and nothing else");
    let (command, told) = copied(&mut driver);
    assert!(command.ends_with("--heatmap"), "{command}");
    assert!(told.contains(&format!("but for the slice {slice}: ")), "{told}");
}

#[test]
fn a_map_is_walked_and_its_pair_opened() {
    let mut driver = pairs_on(grid().to_vec(), (80, 24));
    driver.taps("tlljj");
    let pair = driver.state.compare.selected().unwrap();
    assert_eq!((pair.side.spec.tp, pair.side.spec.batch), (8, 16));
    let run = pair.run.clone();
    driver.enter();
    driver.shows(&format!("opening {run}"));
    driver.state.cx.tab = Tab::Compare;
    driver.press(KeyCode::Esc);
    assert!(driver.state.compare.map.is_none());
}

#[test]
fn a_tall_window_shows_all_values_at_the_selected_setting() {
    on(grid().to_vec(), (120, 40)).hides("all values at");
    let mut driver = on(grid().to_vec(), (200, 60));
    driver.shows("all values at tp4 b1 p2p-off");
    driver.shows("gap closed");
    for value in ["│ladder ", "│upper-bound "] {
        assert!(driver.screen().contains(value), "{}", driver.screen());
    }
    driver.tap(KeyCode::Down);
    driver.shows("all values at tp4 b4 p2p-on");
    driver.taps("t");
    driver.hides("all values at");
}

#[test]
fn a_map_shows_marks_and_has_no_order() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.shows("s sort");
    driver.taps("t");
    driver.hides("s sort");
    let kept = driver.state.compare.remember();
    for key in ["s", "S", "I", "O"] {
        driver.taps(key);
        driver.shows("a map has no order: t switches to the tables");
    }
    assert_eq!(driver.state.compare.remember(), kept);
    let marks = |driver: &Driver| -> usize {
        let screen = driver.screen();
        screen.lines().filter(|line| line.starts_with(" tp")).map(|row| row.matches('●').count()).sum()
    };
    assert_eq!(marks(&driver), 0, "{}", driver.screen());
    driver.taps(" ");
    assert_eq!(marks(&driver), 1, "{}", driver.screen());
    driver.taps(" ");
    assert_eq!(marks(&driver), 0, "{}", driver.screen());
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
fn a_map_says_why_a_cell_has_no_number() {
    let mut records = grid().to_vec();
    let place = |records: &[Record], architecture: &str, tp, batch| {
        let is = |record: &Record| {
            let spec = &record.spec;
            (spec.architecture.to_string(), spec.tp, spec.batch) == (architecture.into(), tp, batch)
                && spec.p2p == P2p::On
        };
        records.iter().position(is).unwrap()
    };
    let ended = |records: &mut Vec<Record>, at: usize, status| {
        let why = Some("why".into());
        let run = records[at].run.clone();
        records[at] = Record { run, ..Record::new(records[at].spec.clone(), status, why) };
    };
    let at = [("standard", 2, 64), ("ladder", 4, 16), ("ladder", 8, 16), ("standard", 8, 1)]
        .map(|(architecture, tp, batch)| place(&records, architecture, tp, batch));
    ended(&mut records, at[0], Status::Oom);
    ended(&mut records, at[1], Status::Failed);
    records.remove(at[2].max(at[3]));
    records.remove(at[2].min(at[3]));
    let mut driver = pairs_on(records, (120, 40));
    driver.taps("/arch:ladder p2p:on");
    driver.tap(KeyCode::Enter);
    driver.taps("t");
    let map = driver.screen();
    assert!(map.contains("ladder / standard"), "{map}");
    let row = |tp: &str| map.lines().find(|line| line.contains(tp)).unwrap().to_owned();
    assert!(row("tp2 ").contains("no base") && row("tp4 ").contains("failed"), "{map}");
    assert!(row("tp8 ").contains("not run") && row("tp8 ").contains("no base"), "{map}");
}

/// Sweeps store nothing of what does not fit.
#[test]
fn a_map_says_of_cells_without_a_run_that_they_do_not_fit() {
    let mut specs: Vec<Spec> = Vec::new();
    for architecture in ["standard", "ladder"] {
        for (tp, batch) in [(2, 1), (4, 1), (4, 64), (8, 16)] {
            let mut spec = spec(architecture, tp, P2p::On, Backend::Sim);
            (spec.model, spec.stack) = ("llama-3-70b".into(), "gpt-fast".into());
            (spec.batch, spec.prompt_tokens, spec.output_tokens) = (batch, 1024, 16);
            specs.push(spec);
        }
    }
    let mut records = Vec::new();
    simulate_cells(&specs.iter().collect::<Vec<_>>(), |_, record| records.push(record));
    let mut driver = pairs_on(records, (120, 40));
    driver.taps("t");
    let map = driver.screen();
    let row = |tp: &str| map.lines().find(|line| line.contains(tp)).unwrap().to_owned();
    assert!(row("tp2 ").contains("oom") && row("tp8 ").contains("not run"), "{map}");
}

#[test]
fn the_map_and_the_counts_are_of_what_the_filter_leaves() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("/arch:upper-bound p2p:off tp:4");
    driver.tap(KeyCode::Enter);
    driver.shows(": 4 of 48 comparisons, 4 differ");
    driver.taps("t");
    let map = driver.screen();
    assert!(map.contains("upper-bound / standard") && map.contains("p2p-off"), "{map}");
    // what was run and is not asked for is told from what was not run
    assert_eq!((map.matches("filtered").count(), map.matches("not run").count()), (8, 0), "{map}");
    driver.taps("c");
    let offered = driver.screen();
    assert!(offered.contains("4 cells") && !offered.contains("ladder / standard"), "{offered}");
}

#[test]
fn flags_are_of_what_the_filter_leaves() {
    let mut records = compared();
    for record in records.iter_mut().filter(|record| record.run.starts_with("parallel")) {
        record.warnings = vec!["clocks throttled".into()];
    }
    let mut driver = pairs_on(records, (120, 40));
    driver.shows("⚑");
    for (filter, flagged) in [("/arch:ladder", false), ("/arch:parallel", true)] {
        driver.taps(filter);
        driver.tap(KeyCode::Enter);
        assert_eq!(driver.screen().contains("⚑"), flagged, "{}", driver.screen());
        assert_eq!(driver.state.compare.counts.tested, 1, "p-values of the pairs that are shown");
        driver.press(KeyCode::Esc);
    }
    driver.taps("/tp:77");
    driver.tap(KeyCode::Enter);
    driver.taps("f");
    let screen = driver.screen();
    for (said, is_said) in [
        ("0 differ; the filter leaves none", true),
        ("the filter leaves none of 1 flag", true),
        ("no p-values", false),
        ("nothing looks wrong", false),
    ] {
        assert_eq!(screen.contains(said), is_said, "{said}: {screen}");
    }
}

#[test]
fn the_title_of_the_sorted_column_is_whole_in_every_order() {
    for records in [grid().to_vec(), compared()] {
        let mut driver = pairs_on(records, (200, 60));
        for _ in 0..8 {
            driver.taps("s");
            let screen = driver.screen();
            let titles = screen.lines().nth(3).unwrap_or_default();
            assert!(titles.contains("tok/s x") && !titles.contains('…'), "{titles}\n{screen}");
        }
    }
}

#[test]
fn what_was_compared_is_compared_at_the_next_start() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("ap2p");
    driver.tap(KeyCode::Enter);
    driver.taps("ssr");
    assert_eq!(driver.state.compare.view, View::Pairs);
    let kept = driver.state.compare.remember().unwrap();
    let mut next = Driver::empty(120, 40);
    next.state.cx.tab = Tab::Compare;
    next.state.compare.recall(&kept, &mut next.state.cx);
    let snapshot = Arc::new(Snapshot::new(grid().to_vec(), Vec::new()));
    let effects = next.send(Message::Runs(Ok(snapshot)));
    next.answer(effects);
    assert_eq!(next.state.compare.asked, driver.state.compare.asked);
    assert_eq!(next.state.compare.shown, driver.state.compare.shown);
    assert_eq!(next.state.compare.view, View::Pivot, "opens on the summary");
    next.state.compare.recall(&serde_json::json!({ "by": "nothing", "order": 3 }), &mut next.state.cx);
    assert_eq!(next.state.compare.asked.axis.to_string(), "p2p");
}

#[test]
fn filters_orders_and_axes_are_undone_one_by_one() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("u");
    driver.shows("nothing to undo");
    driver.taps("/tp8 p2p-off");
    driver.enter();
    driver.shows("4 of 24 settings");
    driver.taps("s");
    driver.taps("ap2p");
    driver.enter();
    assert_eq!(driver.state.compare.asked.axis.to_string(), "p2p");
    driver.taps("u");
    driver.shows("undone: axis");
    assert_eq!(driver.state.compare.asked.axis.to_string(), "architecture");
    driver.shows("by ratio of the fastest");
    driver.taps("u");
    driver.shows("undone: order");
    driver.hides("by ratio of the fastest");
    driver.shows("4 of 24 settings");
    driver.taps("u");
    driver.shows("undone: filter");
    driver.shows("architecture: 24 settings");
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    driver.shows("redone: filter");
    driver.shows("4 of 24 settings");
    driver.taps("u");
    driver.taps("u");
    driver.shows("nothing to undo");
}

#[test]
fn the_key_of_the_map_opens_it_from_each_view() {
    for views in ["", "t"] {
        let mut driver = on(grid().to_vec(), (120, 40));
        driver.taps(views);
        let selected = driver.state.compare.selected().map(|pair| pair.run.clone());
        driver.taps("v");
        let map = driver.state.compare.selected().map(|pair| pair.run.clone());
        assert!(driver.state.compare.map.is_some(), "{}", driver.screen());
        assert_eq!(map, selected, "on the same pair");
    }
}

#[test]
fn the_validation_of_simulated_cells_is_shown_where_rows_are_empty() {
    let mut driver = on(grid().to_vec(), (140, 60));
    driver.taps("/tp8");
    driver.enter();
    let trust = driver.state.compare.trust().expect("it is simulated").to_owned();
    let begins: String = trust.chars().take(60).collect();
    driver.shows(&format!("simulated: {begins}"));
    driver.hides("+1 note");
    let mut low = on(grid().to_vec(), (140, 30));
    low.hides(&format!("simulated: {begins}"));
    low.shows("notes: ?");
    low.taps("t");
    assert!(low.screen().contains(" note"), "{}", low.screen());
}

#[test]
fn a_small_window_shows_whole_clauses_and_has_the_rest_in_the_notes() {
    let folded = |driver: &Driver, text: &str| {
        let notes = driver.state.screen(Tab::Compare).notes(driver.state.cx.body(), &driver.state.cx);
        notes.iter().any(|note| note.is_folded && note.text.contains(text))
    };
    let driver = on(compared(), (80, 24));
    driver.shows("by TPOT 1.25x; adjusted p <.001 …");
    assert!(folded(&driver, "9 samples in 3 rounds each") && folded(&driver, "all tiny f32 tp2"));
    let driver = on(grid().to_vec(), (80, 24));
    assert!(folded(&driver, "standard decodes "), "{}", driver.screen());
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
    let titles = |driver: &Driver| driver.screen().lines().nth(3).unwrap_or_default().to_owned();
    assert!(titles(&driver).contains(" cell "), "batches differ: {}", driver.screen());
    driver.taps("/batch:4");
    driver.tap(KeyCode::Enter);
    assert!(!titles(&driver).contains(" cell "), "nothing but the axis differs: {}", driver.screen());
    driver.press(KeyCode::Esc);
    assert!(titles(&driver).contains(" cell "), "{}", driver.screen());
}

#[test]
fn a_filter_that_leaves_nothing_says_why_and_what_to_write() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("/link:off");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(shown.contains("'link:off' matches none of"), "{shown}");
    assert!(shown.contains("did you mean p2p:off?"), "{shown}");
    driver.taps("t");
    driver.shows("did you mean p2p:off?");
}
