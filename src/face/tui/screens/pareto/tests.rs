//! The Pareto screen as a user meets it: keys in, what is shown and asked for out.

use std::sync::Arc;

use crossterm::event::KeyCode;

use super::{draw, layout};
use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{AnyScreen as _, FileKind};
use crate::face::tui::tests::fixtures::{Driver, record, spec};
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::update::{Effect, Message};
use crate::face::tui::widgets::field::FilterBox;
use table::{Backend, P2p, Record, Sample, Spec};

mod axes;
mod groups;
mod labels;
mod limits;
mod overlays;
mod pictures;

/// A grid as a sweep leaves it: five architectures, P2P on and off, TP 2 to 8, batch 1 to 64; and a
/// measured group with samples.
fn records() -> Vec<Record> {
    records_of(|_| ())
}

/// The grid and the measured group of [`records`], each cell changed: to another model or workload, say.
fn records_of(change: impl Fn(&mut Spec)) -> Vec<Record> {
    let mut records = Vec::new();
    let shares = [
        ("standard", 1.0, 1.6),
        ("ladder", 0.76, 1.1),
        ("parallel", 0.83, 1.15),
        ("desync:4", 0.8, 1.05),
        ("upper-bound", 0.7, 0.7),
    ];
    for (backend, batches) in [(Backend::Sim, &[1, 4, 16, 64][..]), (Backend::Cpu, &[1, 4])] {
        for (name, on, off) in shares {
            for p2p in [P2p::On, P2p::Off] {
                for tp in [2, 4, 8] {
                    for &batch in batches {
                        let mut spec = spec(name, tp, p2p, backend);
                        spec.batch = batch;
                        change(&mut spec);
                        let communicates = if p2p == P2p::On { on } else { off };
                        let step = (16.0 / f64::from(tp) + 4.0 * communicates)
                            * (1.0 + 0.08 * f64::from(batch).sqrt());
                        records.push(timed(records.len(), spec, step));
                    }
                }
            }
        }
    }
    records
}

/// A record of eight samples around a step time.
fn timed(number: usize, spec: Spec, step: f64) -> Record {
    let steps = spec.output_tokens as usize - 1;
    let sample = |share: f64| Sample {
        prefill_ms: 3.0 * step * share,
        decode_ms: step * share * steps as f64,
        steps_ms: vec![step * share; steps],
        overlap: None,
    };
    let samples: Vec<Sample> = [0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.03, 1.06].map(sample).into();
    let mut record = record(&format!("run-{number:03}"), spec.clone(), 1.0);
    record.metrics = table::metrics(&spec, &[&samples], 1 << 30);
    record.samples = samples.into();
    record
}

/// A workbench at the Pareto screen that has read the grid, on the measured group, with both P2P settings.
fn driver(columns: u16, rows: u16) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    let records = records();
    driver.state.cx.cell_pixels = Some((8, 16));
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver.state.pareto.choose_group(0);
    driver.state.pareto.show_p2p(None);
    let effects = driver.send(Message::Resize(columns, rows));
    driver.answer(effects);
    driver
}

/// Whether the answer to a question of this name is among what is to be done.
fn asks(effects: &[Effect], name: &str) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Ask(task) if task.slot.name == name))
}

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn next_group(driver: &mut Driver) {
    driver.taps("g");
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Enter);
}

#[test]
fn looks() {
    let mut driver = driver(120, 40);
    insta::assert_snapshot!("measured_120x40", driver.screen());
    next_group(&mut driver);
    driver.tap(KeyCode::Right);
    insta::assert_snapshot!("simulated_120x40", driver.screen());
    driver.taps("app");
    driver.taps("+");
    insta::assert_snapshot!("zoomed_tpot_120x40", driver.screen());
}

#[test]
fn panels_look() {
    let mut driver = driver(120, 40);
    driver.taps("g");
    insta::assert_snapshot!("groups", driver.screen());
    driver.tap(KeyCode::Esc);
    driver.taps("L");
    driver.taps(" jj ");
    insta::assert_snapshot!("legend", driver.screen());
}

#[test]
fn every_key_is_told_and_none_is_fixed_elsewhere() {
    let mut driver = driver(200, 60);
    driver.keys("?");
    let help = driver.screen();
    for words in ["x axis: completion", "published points", "undo a zoom", "as an image"] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn a_small_window_names_the_selected_point_whole_and_draws_its_line_alone() {
    let mut driver = driver(60, 16);
    driver.shows(" [emulated-link] Ladder is up to 1.31x [");
    driver.shows("] faster");
    driver.shows(" ladder 8x1 p2p-on: 191 ms, 21.7 tok/s/rank");
    let lines = |driver: &Driver| {
        driver.screen().chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count()
    };
    let small = lines(&driver);
    driver.send(Message::Resize(120, 40));
    assert!(lines(&driver) > 4 * small, "a window with room has all lines: {}", driver.screen());
    // a dominated point says so; what dominates it is a note
    driver.send(Message::Resize(60, 16));
    driver.keys("jjjjj?");
    driver.tap(KeyCode::PageDown);
    driver.shows("(by");
}

#[test]
fn frontiers_are_drawn_as_steps() {
    let driver = driver(120, 40);
    let pareto = &driver.state.pareto;
    let plot = layout::plot(pareto, driver.state.cx.body());
    let entry = pareto.entries.iter().position(|entry| entry.series.label() == "standard p2p-off");
    let line = pareto.lines.iter().find(|line| Some(line.entry) == entry).unwrap();
    assert!(line.places.len() > 2, "{line:?}");
    let buffer = driver.buffer();
    for pair in line.places.windows(2) {
        let corner = plot.cell((pair[1].0, pair[0].1));
        assert!(!draw::is_blank(&buffer[corner]), "{pair:?}: {}", driver.screen());
    }
}

#[test]
fn a_plot_is_painted_on_the_themes_ground() {
    for theme in ["dark", "light", "high-contrast"] {
        let mut driver = driver(80, 24);
        driver.state.cx.theme = Theme::built_in(theme).unwrap();
        let ground = driver.state.cx.theme.style(Role::Text).bg;
        let plot = layout::plot(&driver.state.pareto, driver.state.cx.body());
        let buffer = driver.buffer();
        for at in plot.area.positions() {
            let cell = &buffer[at];
            let selected = cell.style().bg == driver.state.cx.theme.style(Role::Selected).bg;
            assert!(Some(cell.bg) == ground || selected, "{theme} {at:?}: {cell:?}");
        }
    }
}

#[test]
fn legend_filter_and_p2p_decide_what_is_shown() {
    let mut driver = driver(120, 40);
    let all = driver.state.pareto.shown.len();
    driver.taps("L ");
    let hidden = driver.state.pareto.hidden.iter().next().unwrap().clone();
    assert!(driver.state.pareto.visible().all(|p| p.series() != hidden));
    driver.taps("a");
    assert_eq!(driver.state.pareto.shown.len(), all);
    driver.tap(KeyCode::Esc);
    driver.taps("/arch:ladder tp>=4");
    assert!(driver.state.pareto.filter.typing);
    driver.tap(KeyCode::Enter);
    let shown: Vec<String> = driver.state.pareto.visible().map(|p| p.spec.label()).collect();
    assert!(
        !shown.is_empty()
            && shown.iter().all(|l| l.starts_with("ladder tp4") || l.starts_with("ladder tp8"))
    );
    driver.tap(KeyCode::Esc);
    assert_eq!(driver.state.pareto.shown.len(), all, "Escape drops the filter");
    driver.taps("p");
    assert!(driver.state.pareto.visible().all(|p| p.spec.p2p == P2p::On));
    driver.taps("/nothing-like-it");
    driver.tap(KeyCode::Enter);
    driver.shows("'nothing-like-it' matches none of 180 runs");
    driver.shows("Esc clears the filter, / changes it");
}

/// Eight lines of two settings cover each other.
#[test]
fn many_series_of_both_p2p_settings_open_with_p2p_on() {
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    let shown = |driver: &Driver, wanted: P2p| {
        driver.state.pareto.visible().filter(|point| point.spec.p2p == wanted).count()
    };
    driver.shows(" P2P on only (p: off): ● standard  ■ ladder");
    // the headline is of P2P on alone, and its number is whole in a small window
    driver.shows("] P2P on: Ladder is up to 1.");
    driver.send(Message::Resize(60, 16));
    driver.shows(" P2P on, p: off ● standard");
    let screen = driver.screen();
    let headline =
        screen.lines().find(|line| line.contains("] P2P on: Ladder is up to 1.")).unwrap_or_default();
    assert!(headline.contains("x faster") && !headline.contains('…'), "{screen}");
    driver.send(Message::Resize(120, 40));
    let on = shown(&driver, P2p::On);
    assert!(on > 0 && shown(&driver, P2p::Off) == 0);
    driver.taps("p");
    driver.shows(" P2P off only (p: both): ○ standard");
    driver.shows("] P2P off: ");
    assert_eq!(shown(&driver, P2p::On), 0);
    driver.taps("p");
    driver.hides("] P2P o");
    driver.shows(" P2P on, off: ●○ standard");
    assert_eq!([P2p::On, P2p::Off].map(|p2p| shown(&driver, p2p)), [on, on]);
    // the choice of both is kept
    let kept = driver.state.screen(Tab::Pareto).remember().unwrap();
    let mut again = Driver::empty(120, 40);
    again.state.pareto.recall(&kept, &mut again.state.cx);
    let effects = again.send(Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    again.answer(effects);
    again.taps("5");
    again.shows(" P2P on, off: ●○ standard");
    // a few series have both settings at once
    driver = Driver::empty(120, 40);
    let few = records().into_iter().filter(|record| {
        ["standard", "ladder"].contains(&record.spec.architecture.to_string().as_str())
    });
    let few = few.collect::<Vec<Record>>();
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(few, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver.shows(" P2P on, off: ●○ standard");
}

#[test]
fn arrows_go_to_the_nearest_point_and_d_to_the_one_that_dominates() {
    let mut driver = driver(120, 40);
    let place = |driver: &Driver| {
        let pareto = &driver.state.pareto;
        pareto.axes.coordinates(pareto.current().unwrap()).unwrap()
    };
    let from = place(&driver);
    driver.tap(KeyCode::Right);
    let right = place(&driver);
    assert!(right.0 > from.0);
    driver.tap(KeyCode::Left);
    assert!(place(&driver).0 < right.0);
    let at = driver.state.pareto.visible().position(|p| p.dominated_by.is_some()).unwrap();
    driver.state.pareto.selected = at;
    let by = driver.state.pareto.current().unwrap().dominated_by.clone();
    assert!(driver.screen().contains("(by "), "{}", driver.screen());
    driver.taps("d");
    assert_eq!(driver.state.pareto.current().map(|p| p.run.clone()), by);
}

#[test]
fn enter_opens_a_timeline_or_the_details_of_a_run_without_one_and_the_footer_says_which() {
    let mut driver = driver(80, 24);
    // the files of these traces do not exist
    driver.taps("n");
    driver.shows("Enter details");
    driver.tap(KeyCode::Enter);
    driver.shows("no timeline: the trace of run run-");
    assert_eq!(driver.state.cx.tab, Tab::Pareto);
    driver.tap(KeyCode::Esc);
    // simulated runs are simulated again
    next_group(&mut driver);
    driver.shows("Enter timeline");
    assert!(matches!(driver.press(KeyCode::Enter)[..], [Effect::Ask(_)]));
    assert_eq!(driver.state.cx.tab, Tab::Timeline);
}

/// A rate within a latency limit depends on which batch just meets it; matched cells do not.
#[test]
fn the_headline_compares_the_same_cells_as_compare() {
    let mut driver = driver(120, 40);
    let headline = driver.state.pareto.headline().to_owned();
    let (claim, _) = headline.split_once(" faster than standard").expect(&headline);
    assert!(claim.contains("x [") && driver.screen().contains(claim), "{claim}: {}", driver.screen());
    driver.hides("noisy");
    assert!(!driver.screen().contains("Most tokens/s/GPU"), "{}", driver.screen());
    driver.taps("6");
    let compared = driver.state.compare.headline();
    assert!(compared.contains(claim), "{claim}: {compared}");
}

/// Runs of a round of a measured sweep.
fn measured_round(round: u32) -> Vec<Record> {
    let mut records = records();
    records.retain(|record| record.spec.backend == Backend::Cpu);
    for record in &mut records {
        record.round = round;
        record.run.push_str(&format!("-{round}"));
        record.created = format!("2026-01-02T03:0{round}:05Z");
    }
    records
}

/// The result card warns of the same rounds.
#[test]
fn the_headline_of_cells_whose_rounds_vary_says_that_they_are_noisy() {
    let slower = |round: u32| {
        let mut records = measured_round(round);
        for sample in records.iter_mut().flat_map(|record| Arc::make_mut(&mut record.samples)) {
            sample.decode_ms *= 1.0 + f64::from(round);
        }
        records
    };
    let mut driver = Driver::empty(200, 60);
    let all = [slower(0), slower(1)].concat();
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver.shows("[emulated-link] P2P on, noisy: ");
}

/// Round 0 of a ladder cell was cancelled, and resumed half an hour later.
#[test]
fn a_point_that_was_measured_apart_is_marked_and_the_header_says_what_to_do() {
    let mut all = [measured_round(0), measured_round(1)].concat();
    let opened = |records: Vec<Record>| {
        let mut driver = Driver::empty(120, 40);
        let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
        driver.answer(effects);
        driver.taps("5");
        driver
    };
    let mut driver = opened(all.clone());
    driver.hides("measured apart");
    let label = "ladder tp8 b1 p2p-on";
    let resumed = all.iter_mut().find(|record| record.spec.label() == label).expect(label);
    resumed.created = "2026-01-02T03:40:05Z".into();
    driver = opened(all);
    driver.shows("[emulated-link] ? measured apart: run all again (1, then R)");
    let at = driver.state.pareto.visible().position(|point| point.is_apart).expect(label);
    driver.state.pareto.selected = at;
    driver.shows(&format!("{label}: on the frontier"));
    driver.shows(", measured over 10 min apart from the others");
}

#[test]
fn the_area_gained_is_shown_with_reference_and_interval() {
    let mut driver = driver(120, 40);
    let text = driver.screen();
    assert!(text.contains("ladder's frontier: 24.6 % more area than standard's ["), "{text}");
    assert!(
        text.contains("not a speedup")
            && text.contains("], 47.7 % more with P2P off, 6 matched cells (up to"),
        "{text}"
    );
    next_group(&mut driver);
    let text = driver.screen();
    assert!(
        text.contains("'s frontier: 14.8 % more area than standard's, ")
            && text.contains(" % more with P2P off, 12 matched cells"),
        "no interval of a simulation: {text}"
    );
}

#[test]
fn the_area_gained_is_of_the_points_that_are_shown() {
    let mut driver = driver(120, 40);
    driver.shows(", 6 matched cells (up to");
    driver.taps("/tp:2,4");
    driver.tap(KeyCode::Enter);
    driver.shows(", 4 matched cells (up to");
    driver.tap(KeyCode::Esc);
    driver.shows(", 6 matched cells (up to");
}

#[test]
fn published_points_lie_beside_and_join_nothing() {
    let mut driver = driver(120, 40);
    driver.taps("D");
    assert!(driver.screen().contains("no published point has this model"), "{}", driver.screen());
    driver.taps("D");
    let records = records_of(|spec| {
        (spec.model, spec.prompt_tokens, spec.output_tokens) = ("llama-3-70b".into(), 1024, 512);
    });
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    let before = driver.state.pareto.lines.clone();
    let limits = driver.state.pareto.limits.clone();
    driver.taps("D");
    assert!(driver.screen().contains("published (arXiv 2501.06589)"), "{}", driver.screen());
    assert_eq!((&driver.state.pareto.lines, &driver.state.pareto.limits), (&before, &limits));
    assert_eq!(driver.state.pareto.others().count(), 48);
    driver.taps("p");
    assert!(driver.state.pareto.others().all(|(o, _)| o.p2p == Some(P2p::On)));
    insta::assert_snapshot!("published_120x40", driver.screen());
    // the filter holds for published points, too
    driver.taps("/arch:ladder tp:8");
    driver.tap(KeyCode::Enter);
    let others: Vec<(String, Option<u32>)> =
        driver.state.pareto.others().map(|(o, _)| (o.architecture.clone(), o.tp)).collect();
    assert!(others.iter().all(|other| *other == ("ladder".into(), Some(8))), "{others:?}");
    assert_eq!(others.len(), 3, "batches 1, 16 and 64");
    driver.tap(KeyCode::Esc);
    // a published point is selected like any other, with the run of its cell
    let steps = driver.state.pareto.places().0.len();
    for _ in 0..steps {
        driver.taps("N");
    }
    let is_ladder = |driver: &Driver| {
        let other = driver.state.pareto.other().map(|(other, _)| other.clone());
        other.is_some_and(|other| other.name() == "8x1" && other.architecture == "ladder")
    };
    let found = (0..steps).any(|_| {
        driver.taps("n");
        is_ladder(&driver)
    });
    assert!(found, "{}", driver.screen());
    let screen = driver.screen();
    assert!(screen.contains("published (arXiv 2501.06589), ladder 8x1 p2p-on: 5.06 s"), "{screen}");
    // its run takes half as long: faster is a plus, as on the command line
    assert!(screen.contains(" s (tok/s +"), "{screen}");
    assert_eq!(driver.state.pareto.current().unwrap().spec.label(), "ladder tp8 b1 p2p-on", "{screen}");
    driver.taps("v");
    let screen = driver.screen();
    for words in ["publ.", "mean absolute error", "ladder tp8 b1 p2p-on", "validate paper_70b"] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
}

#[test]
fn the_command_and_the_table_say_what_is_shown() {
    let mut driver = driver(120, 40);
    driver.taps("aap");
    driver.taps("/tp:8");
    driver.tap(KeyCode::Enter);
    let words = driver.state.screen(driver.state.cx.tab).command().unwrap().words.join(" ");
    assert!(words.starts_with("pareto --filter model=tiny"), "{words}");
    for part in ["provenance=emulated-link", "p2p=on", "tp:8", "--x ttft", "--area --at"] {
        assert!(words.contains(part), "{part} in {words}");
    }
    let screen = driver.state.screen(driver.state.cx.tab);
    assert!(screen.export(FileKind::Csv, &driver.state.cx).unwrap().is_some());
    assert!(
        screen.export(FileKind::Svg, &driver.state.cx).unwrap().is_some(),
        "the figure has these axes, too"
    );
    driver.taps("aa");
    assert!(
        driver
            .state
            .screen(driver.state.cx.tab)
            .export(FileKind::Svg, &driver.state.cx)
            .unwrap()
            .is_some()
    );
}

#[test]
fn what_is_shown_is_kept_until_the_next_start() {
    let mut driver = driver(120, 40);
    driver.taps("aaAsp");
    next_group(&mut driver);
    driver.taps("L ");
    driver.tap(KeyCode::Esc);
    driver.taps("+/tp>=4");
    driver.tap(KeyCode::Enter);
    let screen = driver.state.screen(Tab::Pareto);
    let kept = screen.remember().unwrap();
    let before = driver.screen();
    let mut again = Driver::empty(120, 40);
    again.state.pareto.recall(&kept, &mut again.state.cx);
    // the filter is not kept
    again.state.pareto.filter = FilterBox::new("tp>=4");
    let effects = again.send(Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    again.answer(effects);
    again.taps("5");
    assert_eq!(again.screen(), before);
    assert_eq!(again.state.pareto.remember().unwrap(), kept);
    // what cannot be read is left
    for broken in ["3", "{}", r#"{"x": "sideways", "window": [1, 0, 2, 2]}"#, r#"{"x": 7}"#] {
        again.state.pareto.recall(&serde_json::from_str(broken).unwrap(), &mut again.state.cx);
        again.screen();
    }
}

#[test]
fn nothing_breaks_without_points_or_room() {
    for (columns, rows) in [(20, 5), (80, 24), (81, 25), (300, 90)] {
        let mut driver = driver(columns, rows);
        driver.taps("/zzz");
        driver.tap(KeyCode::Enter);
        for key in "nNdaAsSpgq".chars().chain("L q+-ufitbb".chars()) {
            driver.keys(&key.to_string());
            driver.screen();
        }
        for code in [KeyCode::Left, KeyCode::Right, KeyCode::Up, KeyCode::Down, KeyCode::Enter] {
            driver.press(code);
            driver.screen();
        }
    }
}
