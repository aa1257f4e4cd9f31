//! The pivot, and the details of its selected pair.

use crossterm::event::{MouseButton, MouseEventKind};

use super::*;
use crate::face::tui::screen::FileKind;
use table::Collective;

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
        let screen = driver.screen();
        let words: Vec<&str> = screen.split_whitespace().collect();
        let winners = "Ladder is fastest in 18 of 24 settings, tied with standard in 6 (TP 2 batch 16 P2P on, batch 64 \
                       P2P on, TP 4 batch 64 P2P off and 1 more)";
        assert!(words.join(" ").contains(winners), "{screen}");
    }
    let low = on(grid().to_vec(), (60, 16));
    low.hides("Ladder is fastest in");
    // the frame of the pair explains the marks
    low.shows("╰─ x tokens/s of standard  ★ fastest  ≈ within ");
    let notes = low.state.screen(Tab::Compare).notes(low.state.cx.body(), &low.state.cx);
    assert!(
        notes.iter().any(|note| note.is_folded
            && note.text.contains("Ladder is fastest in 18 of 24 settings, tied with"))
    );
    // once, also where the headline has room for it
    assert_eq!(on(grid().to_vec(), (200, 60)).screen().matches("in 18 of 24 settings").count(), 1);
    // one winner is in the headline
    on(compared(), (120, 40)).hides("is fastest in");
}

/// Simulated cells of the paper: ladder and parallel, with published speedups, P2P and kinds of all-reduce.
pub(super) fn published() -> Vec<Record> {
    let mut specs: Vec<Spec> = Vec::new();
    for architecture in ["standard", "ladder", "parallel"] {
        for (p2p, collective) in
            [(P2p::On, Collective::Nccl), (P2p::Off, Collective::Nccl), (P2p::On, Collective::OneShot)]
        {
            for batch in [1, 64] {
                let mut spec = spec(architecture, 8, p2p, Backend::Sim);
                (spec.model, spec.stack) = ("llama-3-70b".into(), "gpt-fast".into());
                (spec.dtype, spec.collective) = (plan::DType::F16, collective);
                (spec.batch, spec.prompt_tokens, spec.output_tokens) = (batch, 1024, 512);
                specs.push(spec);
            }
        }
    }
    let mut records = Vec::new();
    simulate_cells(&specs.iter().collect::<Vec<_>>(), |index, mut record| {
        record.run = format!("batch-1:{index}");
        records.push(record);
    });
    records
}

#[test]
fn a_tall_window_says_that_published_pairs_contradict_the_order() {
    for (size, is_shown) in [((120, 40), true), ((200, 60), true), ((80, 24), false)] {
        let mut driver = on(published(), size);
        let screen = driver.screen();
        let (header, _) = screen.split_once(" [simulated] ").unwrap();
        let words = header.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains("ladder/parallel order reversed in 5 of 14"), is_shown, "{screen}");
        driver.taps("/-parallel");
        driver.enter();
        driver.hides("order reversed");
    }
}

#[test]
fn the_legend_says_how_far_published_speedups_are_where_it_fits() {
    on(published(), (200, 60)).shows("† differs from the published speedup by up to ");
    on(published(), (80, 24)).shows("† published ");
}

#[test]
fn a_low_window_explains_the_marks_on_every_axis_and_view() {
    let mut driver = on(published(), (60, 16));
    let explains_marks = |driver: &Driver, view: &str| {
        let screen = driver.screen();
        for (mark, meanings) in [
            ("★", ["★ fastest", "★ fastest"]),
            ("≈", ["≈ within ", "≈ tie"]),
            ("†", ["† published ", "† differs from the published speedup"]),
        ] {
            let is_explained = meanings.iter().any(|meaning| screen.contains(meaning));
            assert!(!screen.contains(mark) || is_explained, "{mark} in {view}: {screen}");
        }
    };
    driver.shows("†");
    for axis in ["architecture", "p2p", "collective"] {
        driver.taps("a");
        driver.taps(axis);
        driver.tap(KeyCode::Enter);
        explains_marks(&driver, axis);
    }
    driver.taps("v");
    explains_marks(&driver, "map");
}

#[test]
fn a_baseline_that_is_no_name_is_shown_with_its_option() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("ap2p");
    driver.tap(KeyCode::Enter);
    driver.shows("P2P on TPOT ms");
    driver.shows("1.10x: 1.10 times P2P on's tokens/s");
    driver.shows("p2p: P2P off against P2P on");
    driver.shows("│P2P off ");
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
fn the_lengths_of_the_bars_differ_as_the_sentence_says() {
    let driver = on(grid().to_vec(), (120, 40));
    let number = |line: &str, unit: &str| -> f64 {
        let (before, _) = line.split_once(unit).unwrap();
        before.split_whitespace().last().unwrap().parse().unwrap()
    };
    let screen = driver.screen();
    let bars = screen.lines().filter(|line| line.contains(" ms decode"));
    let bars: Vec<f64> = bars.map(|line| number(line, " ms decode")).collect();
    let difference = number(&line_of(&driver, " longer than ladder"), " ms longer than");
    assert_eq!(bars.len(), 2, "{screen}");
    assert!((bars[0] - bars[1] - difference).abs() < 0.02, "{screen}");
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
fn the_cursor_stays_on_its_pair_while_other_screens_are_visited() {
    let selected = |driver: &Driver| {
        let pair = driver.state.compare.selected().unwrap();
        (pair.baseline_run.clone(), pair.run.clone())
    };
    // the headline's pair, and one that the user chose
    for keys in ["", "ggjl"] {
        let mut driver = on(grid().to_vec(), (120, 40));
        driver.taps(keys);
        let before = selected(&driver);
        for screen in ["3", "4", "5", "7"] {
            driver.taps(screen);
            driver.tap(KeyCode::Down);
            driver.taps("6");
            assert_eq!(selected(&driver), before, "after screen {screen}: {}", driver.screen());
        }
    }
}

#[test]
fn another_round_keeps_the_cursor_on_its_pair() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("ggjjjl");
    let before = driver.state.compare.selected().unwrap().clone();
    let mut records = grid().to_vec();
    records.extend(grid().iter().cloned().map(|mut record| {
        record.run.push_str("-again");
        record
    }));
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    let after = driver.state.compare.selected().unwrap();
    assert_ne!(after.run, before.run, "a cell has the name of its last run");
    assert_eq!((&after.value, &after.side.spec), (&before.value, &before.side.spec));
}

#[test]
fn other_pairs_open_at_the_top_on_the_headlines_row() {
    for views in ["", "t"] {
        let mut driver = on(grid().to_vec(), (120, 24));
        driver.taps(views);
        driver.tap(KeyCode::End);
        let other = compared();
        let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(other, Vec::new())))));
        driver.answer(effects);
        let compare = &driver.state.compare;
        assert_eq!(compare.list.offset, 0, "{}", driver.screen());
        assert_eq!(compare.selected().unwrap().value, "ladder", "{}", driver.screen());
    }
    // a cursor that nobody moved follows the headline
    let mut driver = on(grid().to_vec(), (120, 40));
    let batch = |driver: &Driver| driver.state.compare.selected().unwrap().side.spec.batch;
    assert_eq!(batch(&driver), 1);
    driver.taps("/batch:4");
    driver.enter();
    assert_eq!(batch(&driver), 4, "{}", driver.screen());
    // and stays where it is when the filter is dropped
    let pair = driver.state.compare.selected().unwrap().clone();
    driver.tap(KeyCode::Esc);
    let selected = driver.state.compare.selected().unwrap();
    assert_eq!((&selected.run, &selected.baseline_run), (&pair.run, &pair.baseline_run));
    driver.shows("architecture: 24 settings");
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
fn a_pair_of_the_list_stays_selected_on_the_map_and_in_the_pivot() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("ggj");
    let run = driver.state.compare.selected().unwrap().run.clone();
    for _ in 0..2 {
        driver.taps("t");
        assert_eq!(driver.state.compare.selected().unwrap().run, run, "{}", driver.screen());
    }
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
    assert!(header.contains("ladder_verdict,parallel_tokens_per_s_ratio,"), "{header}");
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
    let titles = |driver: &Driver| line_of(driver, "standard ms");
    assert!(!titles(&driver).contains("upper-bound"), "{}", driver.screen());
    driver.taps("lll");
    assert!(titles(&driver).contains("[upper-bound]"), "{}", driver.screen());
    assert!(titles(&driver).contains("setting"), "{}", driver.screen());
}

#[test]
fn folded_details_leave_the_pivot_their_rows_at_the_next_start_too() {
    let rows = |driver: &Driver| driver.screen().lines().filter(|line| line.contains(" p2p-o")).count();
    let mut driver = on(grid().to_vec(), (80, 24));
    driver.shows("ladder against standard (e folds)");
    let before = rows(&driver);
    driver.taps("e");
    assert_eq!(rows(&driver), before + 6, "{}", driver.screen());
    driver.shows("ladder against standard (e opens)");
    driver.shows("│tokens/s 1.36x ▲ faster; ");
    driver.hides(" ms decode");
    let kept = driver.state.compare.remember().unwrap();
    let mut next = Driver::empty(80, 24);
    next.state.compare.recall(&kept, &mut next.state.cx);
    assert!(next.state.compare.is_folded);
    driver.taps("e");
    assert_eq!(rows(&driver), before, "{}", driver.screen());
    // all rows are in sight, or the details are beside them
    driver.taps("/tp8 b1");
    driver.enter();
    driver.hides("(e folds)");
    let mut wide = on(grid().to_vec(), (200, 40));
    wide.hides("(e folds)");
    wide.taps("e");
    wide.shows("the details are shown next to the summary");
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
fn a_wide_window_has_the_details_beside_the_pivot() {
    let titles = |driver: &Driver| line_of(driver, "standard TPOT ms");
    for rows in [24, 40, 60] {
        let mut driver = on(grid().to_vec(), (200, rows));
        assert!(titles(&driver).contains("╭ all values at tp4 b1 p2p-off"), "{}", driver.screen());
        driver.shows("architecture: ladder against standard");
        driver.tap(KeyCode::Down);
        assert!(titles(&driver).contains("╭ all values at tp4 b4 p2p-on"), "{}", driver.screen());
    }
    let narrow = titles(&on(grid().to_vec(), (140, 60)));
    assert!(!narrow.contains('╭'), "{narrow}");
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
    let screen = driver.screen();
    let trust = screen.lines().position(|line| line.contains(&begins)).unwrap();
    let last = screen.lines().position(|line| line.starts_with("  b64 p2p-off ")).unwrap();
    assert_eq!(trust, last + 2, "directly below the rows: {screen}");
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
    driver.shows("▲ faster; 9 samples in 3 rounds each …");
    assert!(folded(&driver, "by TPOT 1.25x; p <.001 (BH)") && folded(&driver, "all tiny f32 tp2"));
    let driver = on(grid().to_vec(), (80, 24));
    assert!(folded(&driver, "standard decodes "), "{}", driver.screen());
}

#[test]
fn a_run_whose_trace_file_is_gone_offers_no_timeline() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = Driver::empty(120, 40);
    (driver.state.cx.tab, driver.state.cx.dir) = (Tab::Compare, dir.path().to_owned());
    let records = compared();
    for record in &records {
        std::fs::create_dir_all(dir.path().join(&record.run)).unwrap();
    }
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.hides("Enter timelines");
    driver.enter();
    driver.shows("the traces of both runs are gone");
}
