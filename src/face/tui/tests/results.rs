//! What a sweep answers when it has ended, and cells told apart by what varies.

use std::path::Path;
use std::sync::Arc;

use crossterm::event::KeyCode;

use super::fixtures::{Driver, ended, news, records, rounds, spec};
use super::sweeping::{keys, press, read, send};
use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::{Screen, Tab};
use crate::face::tui::screens::experiments::state::ExperimentEntry;
use crate::face::tui::theme::Theme;
use crate::face::tui::update::{Effect, Message};
use crate::face::tui::widgets::result_card::result_lines;
use lab::sweep::{Experiment, SweepEvent, SweepSelection};
use run::RunEvent;
use table::{Backend, P2p, Record, Sample, Status};

/// A sweep of three architectures over a link each for P2P on and off.
fn started_sweep(size: (u16, u16)) -> Driver {
    let text = "backend = \"cpu\"\n[model]\nname = \"tiny\"\n[workload]\ntp = 2\nrounds = 3\n\
                [grid]\narchitecture = [\"standard\", \"ladder\", \"upper-bound\"]\np2p = [\"on\", \"off\"]\n\
                [links]\non = \"emulated:alpha_us=200,gb_s=5\"\noff = \"emulated:alpha_us=600,gb_s=1\"\n";
    let mut driver = Driver::empty(size.0, size.1);
    driver.state.cx.theme = Theme::new(true);
    let experiment = Experiment::from_str(text, Path::new("hide.toml")).unwrap();
    let entry = ExperimentEntry::new("hide", "hide.toml", text.into(), Ok(experiment.clone()));
    read(&mut driver, vec![entry]);
    driver.state.live.start(&Arc::new(experiment), 1000);
    driver.state.cx.tab = Tab::Live;
    driver
}

/// The same, run to its end.
fn ended_sweep(size: (u16, u16)) -> Driver {
    ended_sweep_of(size, |_| ())
}

/// The same with changed records.
fn ended_sweep_of(size: (u16, u16), change: impl Fn(&mut Record)) -> Driver {
    let mut driver = started_sweep(size);
    let steps = [5.0, 6.0, 4.0, 4.5, 3.5, 3.5];
    for round in 0..3 {
        for (cell, step) in steps.into_iter().enumerate() {
            let spec = driver.state.live.cells[cell].spec.clone();
            let mut record = rounds(&format!("c{cell}"), &spec, step, 3).remove(round);
            change(&mut record);
            let round = round as u32;
            send(&mut driver, news(SweepEvent::RunEnded { cell, round, record: record.into() }));
        }
    }
    let effects = send(&mut driver, ended(0, false));
    answered(&mut driver, effects);
    driver
}

/// Answers what was asked of results.
fn answered(driver: &mut Driver, effects: Vec<Effect>) {
    for effect in effects {
        if let Effect::Ask(task) = effect
            && ["answer", "noise"].contains(&task.slot.name)
        {
            send(driver, Message::Answered(task.run()));
        }
    }
}

#[test]
fn noise_and_failures_are_told_while_the_sweep_runs() {
    let mut driver = started_sweep((80, 24));
    let spec = driver.state.live.cells[0].spec.clone();
    let ended = |round: usize, record: Record| {
        news(SweepEvent::RunEnded { cell: 0, round: round as u32, record: record.into() })
    };
    for (round, step) in [5.0, 9.0].into_iter().enumerate() {
        driver.hides("Noisy");
        let effects = send(&mut driver, ended(round, rounds("c0", &spec, step, 3).remove(round)));
        answered(&mut driver, effects);
    }
    driver.shows("! Noisy so far: rounds of standard");
    driver.hides("again");
    let before = driver.state.live.progress(0);
    assert_eq!((before.done, before.failed), (2, 0.0));
    let mut failed = rounds("c0", &spec, 5.0, 3).remove(2);
    (failed.status, failed.metrics) = (Status::Failed, None);
    failed.reason = Some("rank 1 died of signal 9".into());
    send(&mut driver, ended(2, failed));
    driver.shows("✘ standard p2p-on failed: rank 1 died of signal 9");
    let after = driver.state.live.progress(0);
    assert_eq!((after.done, after.fraction), (2, before.fraction), "a failed run is not done");
    assert!(after.failed > 0.0);
    driver.shows("×");
}

#[test]
fn a_sweep_ends_with_its_result_and_cells_are_told_apart_by_what_varies() {
    let mut driver = ended_sweep((120, 40));
    let screen = driver.screen();
    assert!(screen.contains("ladder p2p-off") && !screen.contains("  cells: "), "{screen}");
    assert!(screen.contains("Ladder is 1.25x [1.25, 1.25] (P2P on) and 1.33x ["), "{screen}");
    // medians of all rounds, not the last one's: that was slower by a tenth twice
    let cell = &driver.state.live.cells[0];
    assert!((cell.tpot_ms.unwrap() - 5.5).abs() < 1e-9, "{:?}", cell.tpot_ms);
    assert!(cell.tpot_ms_ci95.is_some_and(|[low, high]| low < 5.5 && 5.5 < high));
    let live = &driver.state.live;
    assert_eq!(live.title(&live.selected().unwrap().spec), "ladder p2p-off", "the headline's");
    driver.shows("a back to cell  o open");
    // moving to a cell describes it; the key shows the result again
    press(&mut driver, KeyCode::Up);
    driver.hides("Ladder is 1.25x");
    driver.shows("a result  o open");
    keys(&mut driver, "a");
    driver.shows("Ladder is 1.25x");
}

#[test]
fn the_exposed_share_of_a_cell_is_not_called_a_median() {
    // 8.9 %, 28.1 % and 46.8 % in the rounds
    let mut driver = ended_sweep_of((120, 40), |record| {
        let overlap = record.overlap.as_mut().expect("it has lanes");
        overlap.comm_ms = overlap.compute_ms;
        overlap.exposed_comm_ms = 0.1 * f64::from(1 + record.round).powi(2) * overlap.compute_ms;
    });
    press(&mut driver, KeyCode::Up);
    driver.shows("medians: TPOT ");
    driver.shows(" tok/s; all rounds: 31.3 % exposed");
}

#[test]
fn a_long_result_leaves_few_rows_of_a_low_window_to_the_cells() {
    let mut driver = ended_sweep((80, 24));
    keys(&mut driver, "d");
    let screen = driver.screen();
    // the bar of the finished sweep gives its row to them
    let rows = screen.lines().filter(|row| row.starts_with('│')).count();
    assert!((14..=15).contains(&rows), "{screen}");
    assert!(!screen.contains("18/18 runs"), "{screen}");
    // the selected cell is in view, and hidden ones are counted beside a full header
    driver.shows("✔ ladder p2p-off");
    let header = screen.lines().find(|row| row.contains("  cell ")).expect("a header");
    assert!(header.starts_with("  cell ↑") && header.ends_with("last run"), "{screen}");
}

#[test]
fn a_card_with_late_ranks_fits_a_window_of_24_rows() {
    let waiting = |share: f64| {
        move |record: &mut Record| {
            let overlap = record.overlap.as_mut().expect("it has lanes");
            overlap.peer_wait_ms = Some(share * overlap.exposed_comm_ms);
        }
    };
    let text = "• Exposed time due to late ranks: standard";
    let driver = ended_sweep_of((80, 24), waiting(0.5));
    driver.shows(&format!("{text} 50 %, ladder 50 %."));
    driver.hides("more line");
    let mut driver = ended_sweep_of((120, 40), waiting(0.1));
    driver.hides("late ranks");
    keys(&mut driver, "d");
    driver.shows(&format!("{text} 10 %, ladder 10 %."));
}

#[test]
fn the_smallest_window_keeps_headline_trust_table_and_next_keys() {
    let mut driver = ended_sweep((60, 16));
    for kept in [
        "Ladder is 1.25x [1.25, 1.25] (P2P on)",
        "emulated-link, 9 samples a cell",
        "6 compare  5 pareto  3 runs",
        " more ─╮",
        // the last row of the table
        "upper-bound       3.85   1.71 [1.71, 1.71]",
    ] {
        driver.shows(kept);
    }
    let screen = driver.screen();
    assert!(screen.lines().any(|row| row.contains(" ladder ") && row.contains("1.25 [")), "{screen}");
    press(&mut driver, KeyCode::PageDown);
    driver.shows("• P2P off vs on, tokens/s: ladder 0.89x");
    // noise has a word in the row of trust, and its paragraph ends the card
    let noise = "Noisy: rounds of ladder took 4 to 9 ms. Run everything again on an idle machine.";
    let mut answer = driver.state.live.answers.clone().expect("the sweep has a result").remove(0);
    answer.noise = Some(noise.to_owned());
    let lines = result_lines(&[answer], 56);
    let place = |text: &str| lines.iter().position(|(line, _)| line.contains(text)).expect("a line");
    let trust = &lines[place("emulated-link")].0;
    assert_eq!(trust, "emulated-link, 9 samples a cell, noisy (below)");
    // a long headline takes two rows
    let mut answer = driver.state.live.answers.clone().expect("the sweep has a result").remove(0);
    answer.headline +=
        "; this is a clause that would take a third row; and this one a fourth row of the card";
    let long = result_lines(&[answer], 56);
    assert_eq!(
        long.iter().take_while(|(_, role)| *role == crate::face::tui::theme::Role::Title).count(),
        2,
        "{long:?}"
    );
    let parts = ["noisy (below)", "tok/s vs standard", "• P2P", "! Noisy: rounds"].map(place);
    assert!(parts.is_sorted(), "{lines:?}");
    // columns that do not fit are counted with the screen that has them
    let told = &driver.state.live.wrapped.1;
    assert!(
        told.iter().any(|(text, _)| text.contains("more columns: screen compare has all")),
        "{told:?}"
    );
}

#[test]
fn an_emulated_link_has_its_latency_in_words_beside_it() {
    let mut driver = started_sweep((120, 40));
    driver.state.cx.tab = Tab::Experiments;
    driver.shows("emulated:alpha_us=200,gb_s=5 (200 us + bytes/5 GB/s)");
}

#[test]
fn a_noisy_stored_result_says_so_beside_its_trust_on_the_list_of_experiments() {
    for (size, warning) in
        [((60, 16), "! Noisy:"), ((80, 24), "noisy (below)"), ((120, 40), "noisy (below)")]
    {
        let mut driver = ended_sweep(size);
        let mut answer = driver.state.live.answers.clone().expect("the sweep has a result").remove(0);
        answer.noise = Some("Noisy: rounds of ladder took 4 to 9 ms.".to_owned());
        driver.state.cx.tab = Tab::Experiments;
        let draft = driver.state.experiments.draft_mut().expect("an experiment is selected");
        draft.checked.as_mut().expect("it is checked").answers = vec![answer];
        driver.shows(warning);
    }
}

#[test]
fn the_details_of_a_result_are_behind_a_key() {
    let mut driver = ended_sweep((120, 40));
    let details = ["Quality of ladder was not evaluated", "6 cells: tiny"];
    details.iter().for_each(|text| driver.hides(text));
    driver.shows("d details");
    keys(&mut driver, "d");
    details.iter().for_each(|text| driver.shows(text));
    driver.shows("details of hide");
    driver.hides("   verdict");
    keys(&mut driver, "d");
    driver.shows("tok/s vs standard");
    // while the selected cell is shown there are none
    press(&mut driver, KeyCode::Up);
    keys(&mut driver, "d");
    driver.shows("only of a result");
}

#[test]
fn stored_runs_are_done_from_the_start_and_nothing_is_followed_after_the_end() {
    let mut driver = started_sweep((80, 24));
    let spec = driver.state.live.cells[0].spec.clone();
    let runs = rounds("c0", &spec, 5.0, 3);
    driver.state.live.count_stored(&Snapshot::new(runs, Vec::new()));
    let progress = driver.state.live.progress(1000);
    assert_eq!((progress.done, progress.total), (3, 18));
    assert!((progress.fraction - 3.0 / 18.0).abs() < 1e-9, "{progress:?}");
    send(&mut driver, ended(0, false));
    keys(&mut driver, "f");
    driver.shows("nothing runs");
}

#[test]
fn a_warning_hides_no_cell_of_the_smallest_window() {
    let mut driver = started_sweep((60, 16));
    driver.hides("upper-bound p2p-off");
    driver.shows("↓1");
    driver.state.live.noise = Some("Noisy so far".into());
    driver.shows("! Noisy so far");
    driver.shows("upper-bound p2p-off");
}

#[test]
fn a_sweep_whose_runs_all_failed_has_no_samples_and_stores_no_others() {
    let mut driver = started_sweep((120, 40));
    for cell in 0..6 {
        let spec = driver.state.live.cells[cell].spec.clone();
        for (round, mut record) in rounds(&format!("c{cell}"), &spec, 5.0, 3).into_iter().enumerate() {
            (record.status, record.metrics) = (Status::Failed, None);
            let round = round as u32;
            send(&mut driver, news(SweepEvent::RunEnded { cell, round, record: record.into() }));
        }
    }
    send(&mut driver, ended(18, false));
    driver.shows("no run of the sweep has a result: 18 failed");
    driver.shows("0/18 runs");
    driver.shows("···· 0/");
}

#[test]
fn cells_are_named_by_all_that_differs_at_any_width() {
    let text = "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"llama-3-70b\"\n[grid]\n\
                stack = [\"native\", \"vllm-0.15\"]\narchitecture = [\"upper-bound\"]\n\
                tp = [4, 8]\nbatch = [16, 256]\n";
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = Driver::empty(size.0, size.1);
        let experiment = Arc::new(Experiment::from_str(text, Path::new("x.toml")).unwrap());
        driver.state.live.start(&experiment, 1000);
        driver.state.cx.tab = Tab::Live;
        // in the list, and of the selected cell
        driver.state.live.list.selected = 7;
        driver.read(Vec::new());
        driver.shows("tp8 b256 stack-vllm-0.15");
        driver.shows("tok/s");
        // a simulation has one sample, so that a count of it says nothing
        driver.hides("samples");
    }
}

#[test]
fn a_tall_window_shows_the_whole_stored_result_of_an_experiment() {
    for (size, is_whole) in [((120, 40), false), ((200, 60), true)] {
        let mut driver = ended_sweep(size);
        let runs = driver.state.live.results().iter().map(|run| Record::clone(run)).collect();
        send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
        press(&mut driver, KeyCode::Char('1'));
        driver.shows("Ladder is 1.25x [1.25, 1.25] (P2P on)");
        let screen = driver.screen();
        // a card leaves the cells to the grid below it
        assert_eq!(screen.contains("tok/s vs standard"), is_whole, "{screen}");
        // its details take rows that would be blank
        assert_eq!(screen.contains("• Quality of ladder was not evaluated"), is_whole, "{screen}");
        // nothing of the card is hidden behind a note, and the grid has its rows
        assert!(!is_whole || !screen.contains(" note: ?") && screen.contains(" question "), "{screen}");
    }
}

#[test]
fn a_low_window_keeps_the_settings_of_a_stored_headline() {
    let mut driver = ended_sweep((60, 16));
    let runs = driver.state.live.results().iter().map(|run| Record::clone(run)).collect();
    send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    press(&mut driver, KeyCode::Char('1'));
    driver.shows("Ladder is 1.25x [1.25, 1.25]");
    driver.shows("(P2P off)");
}

#[test]
fn a_low_editor_ends_the_trust_at_a_clause_and_leaves_the_rest_to_the_help() {
    let mut driver = ended_sweep((60, 16));
    let runs = driver.state.live.results().iter().map(|run| Record::clone(run)).collect();
    send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    press(&mut driver, KeyCode::Char('1'));
    let draft = driver.state.experiments.draft_mut().expect("one is selected");
    let answer = &mut draft.checked.as_mut().expect("it is checked").answers[0];
    answer.headline = "Ladder is fastest".into();
    answer.basis =
        "simulated; TPOT off by 2 % on fitted cells, 12 % on batch sizes left out; ladder and \
                    parallel reversed in 5 of 14 pairs"
            .into();
    answer.bullets = vec!["Ladder is fastest in 7 of 20 settings, tied in 13 of them. ".repeat(3)];
    let screen = driver.screen();
    let is_end =
        |line: &str| ["│ fitted cells  ", "│ sizes left out  "].iter().any(|end| line.contains(end));
    assert!(screen.lines().any(is_end), "{screen}");
    assert!(!screen.contains("ladder and") && !screen.contains("• Ladder"), "{screen}");
    keys(&mut driver, "?");
    driver.shows("ladder and parallel");
}

#[test]
fn numbers_of_a_cancelled_run_are_dropped_and_stored_runs_are_called_so() {
    let mut driver = started_sweep((120, 40));
    let sample = Sample { prefill_ms: 4.0, decode_ms: 128.0, steps_ms: Vec::new(), overlap: None };
    let event = RunEvent::SampleDone { index: 0, of: 3, sample };
    send(&mut driver, news(SweepEvent::RunStarted { cell: 0, round: 0, run: "a".into() }));
    send(&mut driver, news(SweepEvent::Run { cell: 0, round: 0, event }));
    assert!(driver.state.live.cells[0].tpot_ms.is_some());
    let record = rounds("c1", &driver.state.live.cells[1].spec, 5.0, 3).remove(0);
    send(&mut driver, news(SweepEvent::CellSettled { cell: 1, round: 0, record: record.into() }));
    driver.shows("stored");
    press(&mut driver, KeyCode::Down);
    driver.shows("round 1 of 3 done: standard");
    send(&mut driver, ended(0, true));
    let cell = &driver.state.live.cells[0];
    assert_eq!((cell.tpot_ms, cell.tokens_per_s), (None, None), "of no finished run");
}

#[test]
fn a_finished_result_runs_again_with_the_key_in_its_card() {
    ended_sweep((60, 16)).shows("R run again");
    let mut driver = ended_sweep((120, 40));
    keys(&mut driver, "r");
    driver.shows("R runs all again");
    keys(&mut driver, "R");
    assert!(driver.state.live.is_running());
    assert!(matches!(driver.state.live.choice, SweepSelection::Again(_)));
}

#[test]
fn the_bars_stay_below_the_card_and_a_tall_window_adds_the_selected_cell() {
    let driver = ended_sweep((120, 40));
    driver.shows("TPOT (╱ exposed communication)");
    driver.hides("╭ done: ladder");
    let tall = ended_sweep((200, 60));
    tall.shows("TPOT (╱ exposed communication)");
    tall.shows("╭ done: ladder");
    tall.shows("result of hide");
}

#[test]
fn the_time_left_stays_while_the_first_run_warms_up_and_other_cells_have_no_round() {
    let mut driver = started_sweep((80, 24));
    driver.state.live.weigh(vec![10.0; 6]);
    send(&mut driver, news(SweepEvent::RunStarted { cell: 0, round: 0, run: "a".into() }));
    let now_ms = driver.state.cx.now_ms;
    for waited_ms in [0, 8_000] {
        let progress = driver.state.live.progress(now_ms + waited_ms);
        assert_eq!(progress.left_ms, Some(180_000));
    }
    let screen = driver.screen();
    let row = |cell: &str| screen.lines().find(|line| line.contains(cell)).expect("a cell");
    assert!(row("▶ standard p2p-on").contains(" 1/3 "), "{screen}");
    assert!(!row("… upper-bound p2p-off").contains("1/3"), "{screen}");
}

#[test]
fn looks_of_a_result() {
    insta::assert_snapshot!("result_120x40", ended_sweep((120, 40)).screen());
}

#[test]
fn the_answer_to_an_older_sweep_is_not_told_of_a_newer_one() {
    let mut driver = ended_sweep((120, 40));
    driver.state.live.answers = None;
    let asked = send(&mut driver, ended(0, false)).into_iter().find_map(|effect| match effect {
        Effect::Ask(task) if task.slot.name == "answer" => Some(task),
        _ => None,
    });
    press(&mut driver, KeyCode::Char('1'));
    keys(&mut driver, "r");
    send(&mut driver, Message::Answered(asked.expect("asked at the end").run()));
    assert!(driver.state.live.is_running() && driver.state.live.answers.is_none());
}

#[test]
fn a_result_that_is_longer_than_its_area_is_scrolled_to_its_end_and_back() {
    let mut driver = ended_sweep((60, 16));
    let last = driver.state.live.wrapped.1.last().unwrap().0.trim().to_owned();
    let screen = driver.screen();
    assert!(screen.contains("[ ] scroll") && screen.contains(" ↓ "), "{screen}");
    assert!(!screen.contains(&last), "{screen}");
    keys(&mut driver, &"]".repeat(90));
    let screen = driver.screen();
    assert!(screen.contains(&last) && screen.contains(" ↑ ") && !screen.contains(" ↓ "), "{screen}");
    // no key is lost beyond the end
    let lines = driver.state.live.wrapped.1.len();
    keys(&mut driver, &"[".repeat(lines));
    driver.shows("Ladder is 1.25x");
}

#[test]
fn the_arrows_scroll_a_result_that_hides_the_cells_and_move_to_cells_beside_it() {
    let mut driver = ended_sweep((60, 16));
    keys(&mut driver, "jj");
    driver.hides("Ladder is 1.25x");
    assert!(!driver.state.live.show_cell);
    keys(&mut driver, "kk");
    driver.shows("Ladder is 1.25x");
    keys(&mut driver, "ak");
    assert_eq!(driver.state.live.list.selected, 2, "the cells are in view");
    let mut driver = ended_sweep((80, 24));
    keys(&mut driver, "j");
    assert!(driver.state.live.show_cell);
}

#[test]
fn pages_scroll_the_result() {
    let mut driver = ended_sweep((60, 16));
    press(&mut driver, KeyCode::PageDown);
    driver.hides("Ladder is 1.25x");
    assert!(!driver.state.live.show_cell);
    press(&mut driver, KeyCode::PageUp);
    driver.shows("Ladder is 1.25x");
}

#[test]
fn the_ratio_so_far_is_the_one_of_the_result() {
    let mut driver = started_sweep((120, 40));
    for (round, steps) in [[5.0, 2.5], [5.0, 4.4]].into_iter().enumerate() {
        for (cell, step) in [0, 2].into_iter().zip(steps) {
            let spec = driver.state.live.cells[cell].spec.clone();
            let record = rounds(&format!("c{cell}"), &spec, step, 3).remove(round);
            let round = round as u32;
            send(&mut driver, news(SweepEvent::RunEnded { cell, round, record: record.into() }));
        }
    }
    // the median of the rounds' ratios, 2.00 and 1.14
    driver.shows("1.57x");
    let effects = send(&mut driver, ended(0, true));
    answered(&mut driver, effects);
    driver.shows("1.57 [");
}

#[test]
fn what_if_starts_from_the_selected_cell() {
    let driver = ended_sweep((120, 40));
    let live = &driver.state.live;
    let selected = live.selection(&driver.state.cx).run.unwrap();
    assert_eq!(live.title(&selected.spec), "ladder p2p-off");
}

#[test]
fn before_any_sweep_screen_2_says_how_one_is_started_and_what_was_found_last() {
    let mut driver = Driver::empty(100, 30);
    driver.read(Vec::new());
    keys(&mut driver, "2");
    driver.shows("no sweep is running: 1 selects an experiment, r runs it");
    let cell = |architecture, step| {
        rounds(architecture, &spec(architecture, 2, P2p::On, Backend::Cpu), step, 3)
    };
    let mut runs = [records(), cell("standard", 5.0), cell("ladder", 4.0)].concat();
    // interrupted once, and finished: no cell of it is left
    let mut earlier = runs[6].clone();
    (earlier.run, earlier.status, earlier.metrics) = ("interrupted".into(), Status::Interrupted, None);
    runs.insert(6, earlier);
    for run in &mut runs[6..] {
        run.experiment = Some("hide".into());
    }
    let effects = send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    answered(&mut driver, effects);
    let screen = driver.screen();
    assert!(screen.contains("result of hide") && screen.contains("no sweep is running"), "{screen}");
    assert!(screen.contains("Ladder is 1.25x"), "of its own runs alone: {screen}");
    assert!(!screen.contains("did not finish"), "it ended later: {screen}");
    // there is no cell to turn to, and none to go to
    keys(&mut driver, "a");
    press(&mut driver, KeyCode::Down);
    driver.shows("Ladder is 1.25x");
}
