//! Heat maps.

use super::*;
use table::Status;

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

/// Parallel ties with ladder in most settings of the paper.
#[test]
fn a_tie_for_the_fastest_is_marked_alike_in_all_views() {
    let mut driver = on(pivot::published(), (120, 40));
    driver.shows("★≈1.");
    let marks = |driver: &Driver, at: usize| driver.state.compare.marks_of(at);
    let is_tied = |driver: &Driver, at: &usize| marks(driver, *at) == "★≈";
    let at = (0..driver.state.compare.pairs().len()).find(|at| is_tied(&driver, at)).unwrap();
    let pair = driver.state.compare.pairs()[at].clone();
    assert_eq!(pair.verdict, study::analysis::PairVerdict::Faster, "than the baseline");
    driver.taps("t");
    driver.shows(&format!("★≈{:.3}x", pair.speedup));
    driver.shows("vs standard");
    driver.shows("  ★ fastest  ≈ within ");
    driver.taps("gg");
    for _ in 0..driver.state.compare.shown.len() {
        if driver.state.compare.selected().unwrap().run != pair.run {
            driver.taps("j");
        }
    }
    driver.taps("t");
    driver.shows(&format!("★≈{:.2}x", pair.speedup));
    driver.shows("★ fastest  ≈ ");
}

#[test]
fn a_map_of_p2p_names_what_is_faster() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("ap2p");
    driver.tap(KeyCode::Enter);
    driver.taps("v");
    driver.shows(" Where is P2P off faster?");
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
    // cells filtered out are distinct from cells not run
    assert_eq!((map.matches("filtered").count(), map.matches("not run").count()), (8, 0), "{map}");
    driver.taps("c");
    let offered = driver.screen();
    assert!(offered.contains("4 cells") && !offered.contains("ladder / standard"), "{offered}");
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
fn a_map_of_one_tp_and_batch_is_over_the_settings_that_vary() {
    let mut records = Vec::new();
    for prompt_tokens in [128, 512, 2048] {
        for mut record in compared() {
            record.spec.prompt_tokens = prompt_tokens;
            record.run = format!("{}-{prompt_tokens}", record.run);
            records.push(record);
        }
    }
    let mut driver = on(records, (120, 40));
    driver.taps("v");
    let labels = line_of(&driver, " prompt_tokens ");
    assert!(["128", "512", "2048"].iter().all(|tokens| labels.contains(tokens)), "{labels}");
    driver.tap(KeyCode::Right);
    driver.tap(KeyCode::Right);
    assert_eq!(driver.state.compare.selected().map(|pair| pair.side.spec.prompt_tokens), Some(2048));
}

#[test]
fn a_shade_means_the_same_in_all_slices() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("v");
    let scale = |driver: &Driver| {
        let legend = line_of(driver, ": slice ");
        let (scale, _) = legend.split_once(", the same in all slices").expect("it is said");
        scale.split_once("··").expect("it has shades").1.to_owned()
    };
    let (slice, of_ladder) = (driver.state.compare.slice, scale(&driver));
    driver.taps("cupper");
    driver.tap(KeyCode::Enter);
    assert_ne!(driver.state.compare.slice, slice, "{}", driver.screen());
    assert_eq!(scale(&driver), of_ladder, "{}", driver.screen());
}
