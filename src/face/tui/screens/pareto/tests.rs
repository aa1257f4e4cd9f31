//! The Pareto screen as a user meets it: keys in, what is shown and asked for out.

use std::path::Path;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEventKind};

use super::{draw, layout, state::Scale};
use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{AnyScreen as _, FileKind};
use crate::face::tui::tests::fixtures::{Driver, record, spec};
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::update::{Effect, Message};
use crate::face::tui::widgets::field::FilterBox;
use study::analysis::{XAxis, YAxis};
use table::{Backend, P2p, Provenance, Record, Sample, Spec};

mod limits;
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

/// A workbench at the Pareto screen that has read the grid, on the measured group.
fn driver(columns: u16, rows: u16) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    let records = records();
    driver.state.cx.cell_pixels = Some((8, 16));
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver.state.pareto.choose_group(0);
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
fn an_undone_group_is_back_at_once_and_overrides_no_later_choice() {
    let mut driver = driver(120, 40);
    let first = driver.state.pareto.group;
    next_group(&mut driver);
    let second = driver.state.pareto.group;
    assert_ne!(first, second);
    driver.taps("u");
    assert!(driver.screen().contains("undone: group"), "{}", driver.screen());
    assert_eq!(driver.state.pareto.group, first);
    next_group(&mut driver);
    driver.keys("a");
    assert_eq!(driver.state.pareto.group, second, "also with the new axis' points");
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
fn axes_change_at_once_and_their_marks_follow() {
    let mut driver = driver(120, 40);
    let effects = driver.keys("a");
    assert_eq!(driver.state.pareto.axes.x, XAxis::Tpot);
    assert!(driver.screen().contains("TPOT (ms)"), "drawn before the answer");
    assert!(
        !driver.screen().contains("frontier,"),
        "nothing is said of frontiers that are not marked yet"
    );
    assert!(asks(&effects, "points"));
    assert!(!asks(&driver.keys("n"), "points"), "asked once");
    driver.answer(effects);
    assert_eq!(driver.state.pareto.marked.x, XAxis::Tpot);
    driver.taps("aa");
    assert_eq!(driver.state.pareto.axes.x, XAxis::User);
    let line = driver.state.pareto.lines.iter().find(|l| l.places.len() > 1).unwrap();
    assert!(line.places.windows(2).all(|w| w[0].0 > w[1].0 && w[0].1 < w[1].1), "{line:?}");
    driver.taps("A");
    assert_eq!(driver.state.pareto.axes.y, YAxis::Total);
    driver.taps("e");
    assert_eq!(driver.state.pareto.scales.0, Scale::Linear);
    driver.taps("e");
    assert!(driver.screen().contains("tokens/s/user (log)"), "{}", driver.screen());
}

#[test]
fn the_note_on_labels_leaves_the_axis_title_whole() {
    let mut driver = driver(60, 16);
    let has_log = (0..4).any(|_| {
        driver.keys("e");
        let screen = driver.screen();
        assert!(screen.contains(" TP x batch"), "{screen}");
        screen.contains("tokens/s/GPU (log) over completion latency (ms) ")
    });
    assert!(has_log, "{}", driver.screen());
}

#[test]
fn a_small_window_names_the_selected_point_whole_and_draws_its_line_alone() {
    let mut driver = driver(60, 16);
    driver.shows(" [emulated-link] Ladder is up to 1.19x faster than standard");
    driver.shows(" ladder 8x1 p2p-on: 191 ms, 21.7 tok/s/GPU");
    let lines = |driver: &Driver| {
        driver.screen().chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count()
    };
    let small = lines(&driver);
    driver.send(Message::Resize(120, 40));
    assert!(lines(&driver) > 4 * small, "a window with room has all lines: {}", driver.screen());
    // a dominated point says so; what dominates it is a note
    driver.send(Message::Resize(60, 16));
    driver.keys("jjjjj?");
    driver.shows("dominated by");
}

#[test]
fn quality_is_an_axis_once_a_model_was_evaluated() {
    let mut driver = driver(200, 60);
    driver.taps("AA");
    assert_eq!(driver.state.pareto.axes.y, YAxis::PerGpu, "nothing was evaluated");
    let kl = |record: &Record| match record.spec.architecture.to_string().as_str() {
        "standard" => 0.0,
        "ladder" => 0.25,
        _ => 0.5,
    };
    let records: Vec<Record> = records()
        .into_iter()
        .map(|record| {
            let kl = kl(&record);
            table::testing::evaluated(record, kl)
        })
        .collect();
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.taps("aAAAA");
    assert_eq!(driver.state.pareto.axes.y.as_str(), "kl");
    let screen = driver.screen();
    for said in
        ["KL from standard per token (nats)", "KL measured on cpu, text.txt, 6 windows of 5 tokens"]
    {
        assert!(screen.contains(said), "{said} in\n{screen}");
    }
    // areas are over throughput alone, here and in the command
    assert!(!screen.contains("area "), "{screen}");
    let words = driver.state.screen(driver.state.cx.tab).command().unwrap().words.join(" ");
    assert!(words.ends_with("--y kl --at"), "{words}");
    let places = driver.state.pareto.visible().filter(|point| point.y == Some(0.0)).count();
    assert!(places > 0, "standard, which loses nothing, is on the plot");
    driver.taps("AA");
    assert_eq!(driver.state.pareto.axes.y, YAxis::PerGpu, "round and round");
}

#[test]
fn a_plot_never_mixes_and_the_group_is_chosen_from_a_list() {
    let mut driver = driver(120, 40);
    let provenances = |driver: &Driver| -> Vec<Provenance> {
        let mut all: Vec<_> = driver.state.pareto.visible().map(|p| p.provenance).collect();
        all.dedup();
        all
    };
    assert_eq!(provenances(&driver), [Provenance::EmulatedLink], "what ran comes first");
    driver.taps("g");
    assert!(driver.screen().contains("shown now, "), "{}", driver.screen());
    driver.taps("simulated");
    driver.tap(KeyCode::Enter);
    assert!(driver.state.cx.overlays.is_empty());
    assert_eq!(provenances(&driver), [Provenance::Simulated]);
    assert!(driver.screen().contains("[simulated]"));
}

#[test]
fn it_opens_on_what_was_run_last_and_keeps_what_was_chosen() {
    let of_model = |model: &str, id: &str| {
        let mut records = records_of(|spec| spec.model = model.to_owned());
        records.retain(|record| record.provenance == Provenance::Simulated);
        for (at, record) in records.iter_mut().enumerate() {
            (record.run, record.created) = (format!("{id}:{at}"), id.to_owned());
        }
        records
    };
    let (old, new) = (of_model("1b", "20260101-0900"), of_model("3b", "20260102-0900"));
    let mut driver = Driver::empty(120, 40);
    let read = |driver: &mut Driver, records: Vec<Record>| {
        let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
        driver.answer(effects);
    };
    let shown = |driver: &Driver| driver.state.pareto.current().unwrap().spec.model.clone();
    driver.taps("5");
    read(&mut driver, old.clone());
    assert_eq!(shown(&driver), "1b");
    let (both, more) = ([old, new].concat(), of_model("llama-3-8b", "20260103-0900"));
    read(&mut driver, both.clone());
    assert_eq!(shown(&driver), "3b", "the newest");
    // a filter shows its group, and chooses none
    driver.taps("/model:1b");
    driver.tap(KeyCode::Enter);
    assert_eq!(shown(&driver), "1b", "what the filter leaves");
    driver.tap(KeyCode::Esc);
    read(&mut driver, [both.clone(), of_model("3b", "20260103-0100")].concat());
    assert_eq!(shown(&driver), "3b", "the newest again");
    driver.taps("g");
    (0..3).for_each(|_| driver.tap(KeyCode::Up));
    driver.tap(KeyCode::Enter);
    assert_eq!(shown(&driver), "1b", "chosen");
    read(&mut driver, [both.clone(), more.clone()].concat());
    assert_eq!(shown(&driver), "1b", "what was chosen stays");
    // at the next start it is there again, unless something was run since
    let kept = driver.state.pareto.remember().unwrap();
    let again = |records: Vec<Record>| {
        let mut driver = Driver::empty(120, 40);
        driver.state.pareto.recall(&kept, &mut driver.state.cx);
        driver.taps("5");
        read(&mut driver, records);
        shown(&driver)
    };
    assert_eq!(again([both.clone(), more.clone()].concat()), "1b");
    let last = of_model("llama-3-70b", "20260104-0900");
    assert_eq!(again([both, more, last].concat()), "llama-3-70b");
}

#[test]
fn without_colours_lines_have_the_marks_of_their_architectures() {
    let mut driver = driver(120, 40);
    let marks = |driver: &Driver| ["•", "▪", "▴"].map(|mark| driver.screen().matches(mark).count());
    let before = marks(&driver);
    driver.state.cx.theme = Theme::new(false);
    let now = marks(&driver);
    assert!(before.iter().zip(now).all(|(before, now)| *before < now), "{before:?} {now:?}");
    driver.shows("• small: dominated, or along a line");
}

#[test]
fn it_opens_on_the_group_of_the_experiment_and_otherwise_on_the_largest() {
    let opened_with = |experiment: Option<&str>| {
        let mut all = records();
        all.retain(|record| record.provenance == Provenance::Simulated);
        all.iter_mut().for_each(|record| record.experiment = None);
        // the newest run is alone in its group
        let mut lone = all[0].clone();
        (lone.run, lone.spec.model) = ("lone".into(), "llama-3-8b".into());
        (lone.created, lone.experiment) = ("2026-02-03T03:04:05Z".into(), experiment.map(str::to_owned));
        all.push(lone);
        let mut driver = Driver::empty(120, 40);
        driver.taps("5");
        let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
        driver.answer(effects);
        driver
    };
    let shown = |driver: &Driver| driver.state.pareto.current().unwrap().spec.model.clone();
    assert_eq!(shown(&opened_with(None)), "tiny");
    let mut driver = opened_with(Some("alone"));
    driver.shows("[alone]");
    assert_eq!(shown(&driver), "llama-3-8b");
    driver.taps("*");
    driver.hides("[alone]");
    assert_eq!(shown(&driver), "llama-3-8b", "all runs, in the group that was shown");
}

#[test]
fn labels_are_of_the_selected_series_and_the_ends_of_the_frontier() {
    for (columns, rows) in SIZES {
        let mut driver = driver(columns, rows);
        driver.shows("labels: TP x batch (selected series, frontier's ends)");
        for _ in 0..30 {
            let pareto = &driver.state.pareto;
            let plot = layout::plot(pareto, driver.state.cx.body());
            let drawn = draw::drawn(pareto, &plot);
            let labels = draw::labelled(pareto, &driver.state.cx, &plot, &drawn, &[]);
            let points: Vec<(u16, u16)> = drawn.iter().map(|d| d.cell).collect();
            assert!(!labels.is_empty());
            for (label, _) in &labels {
                let at = drawn[label.point].index;
                let own = pareto.looks[at].0 == pareto.looks[pareto.selected].0;
                assert!(own || pareto.ends.contains(&Some(at)), "{label:?}");
                let covers = |x: u16| points.contains(&(x, label.y));
                let wide = label.text.chars().count() as u16;
                assert!(!(label.x..label.x + wide).any(covers), "{label:?} lies on a point");
            }
            driver.taps("n");
        }
    }
}

#[test]
fn long_latencies_are_in_seconds_as_in_figures() {
    let mut driver = Driver::empty(120, 40);
    let mut records = records();
    records.retain(|record| record.spec.backend == Backend::Sim);
    for record in &mut records {
        let metrics = record.metrics.as_mut().unwrap();
        metrics.completion_ms *= 40.0;
    }
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    let most = driver.state.pareto.extent.x.1;
    assert!(most >= 10_000.0, "{most}");
    assert_eq!(XAxis::Completion.unit_for(most), ("s", 1e3));
    let shown = driver.screen();
    assert!(shown.contains("completion latency (s)"), "{shown}");
    let selected = driver.state.pareto.current().unwrap().completion_ms / 1e3;
    let said = format!(" {} s, ", base::text::digits(selected));
    assert!(shown.contains(&said), "{said}: {shown}");
    driver.taps("a");
    assert!(driver.screen().contains("TPOT (ms)"), "each axis by its own values: {}", driver.screen());
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
    assert!(driver.screen().contains("dominated by"), "{}", driver.screen());
    driver.taps("d");
    assert_eq!(driver.state.pareto.current().map(|p| p.run.clone()), by);
    assert!(matches!(driver.press(KeyCode::Enter)[..], [Effect::Ask(_)]));
    assert_eq!(driver.state.cx.tab, Tab::Timeline);
}

#[test]
fn a_dragged_rectangle_is_zoomed_to_and_undone() {
    let mut driver = driver(120, 40);
    let plot = layout::plot(&driver.state.pareto, driver.state.cx.body());
    let (from, to) = ((plot.area.x + 5, plot.area.y + 2), (plot.area.x + 45, plot.area.y + 10));
    driver.mouse(MouseEventKind::Down(MouseButton::Left), from);
    driver.mouse(MouseEventKind::Drag(MouseButton::Left), to);
    assert!(driver.state.pareto.drag.is_some());
    driver.mouse(MouseEventKind::Up(MouseButton::Left), to);
    let zoomed = layout::plot(&driver.state.pareto, driver.state.cx.body());
    assert!(driver.state.pareto.drag.is_none());
    // the corners of the rectangle are the corners of the plot now
    let (x, y) = plot.share(from);
    let corner = (plot.x.value(x), plot.y.value(y));
    assert_eq!(zoomed.cell(corner), (zoomed.area.x, zoomed.area.y));
    driver.mouse(MouseEventKind::ScrollUp, (plot.area.x + 20, plot.area.y + 5));
    driver.taps("uu");
    assert_eq!(driver.state.pareto.zoom.window, None);
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    let again = layout::plot(&driver.state.pareto, driver.state.cx.body());
    assert_eq!(again.cell(corner), (again.area.x, again.area.y));
    driver.taps("u");
    driver.taps("u");
    assert!(driver.screen().contains("nothing to undo"));
    // a click selects what is near
    let place = driver
        .state
        .pareto
        .visible()
        .nth(7)
        .and_then(|p| driver.state.pareto.axes.coordinates(p))
        .unwrap();
    driver.mouse(MouseEventKind::Down(MouseButton::Left), plot.cell(place));
    let near = driver.state.pareto.axes.coordinates(driver.state.pareto.current().unwrap()).unwrap();
    assert_eq!(plot.cell(near), plot.cell(place));
}

/// A rate within a latency limit depends on which batch just meets it; matched cells do not.
#[test]
fn the_headline_compares_the_same_cells_as_compare() {
    let mut driver = driver(120, 40);
    let headline = driver.state.pareto.headline().to_owned();
    let (claim, _) = headline.split_once(" faster than standard").expect(&headline);
    assert!(driver.screen().contains(claim), "{}", driver.screen());
    assert!(!driver.screen().contains("Most tokens/s/GPU"), "{}", driver.screen());
    driver.taps("6");
    let compared = driver.state.compare.headline();
    assert!(compared.contains(claim), "{claim}: {compared}");
}

#[test]
fn the_area_gained_is_shown_with_reference_interval_and_provenance() {
    let mut driver = driver(120, 40);
    let text = driver.screen();
    assert!(text.contains("frontier area vs standard: "), "{text}");
    assert!(
        text.contains("not a speedup")
            && text.contains("], P2P off +47.7 %, 6 matched cells, emulated-link"),
        "{text}"
    );
    next_group(&mut driver);
    let text = driver.screen();
    assert!(
        text.contains(" P2P on +14.8 %, P2P off +") && text.contains(" %, 12 matched cells, simulated"),
        "no interval of a simulation: {text}"
    );
}

#[test]
fn the_area_gained_is_of_the_points_that_are_shown() {
    let mut driver = driver(120, 40);
    driver.shows(", 6 matched cells, emulated-link");
    driver.taps("/tp:2,4");
    driver.tap(KeyCode::Enter);
    driver.shows(", 4 matched cells, emulated-link");
    driver.tap(KeyCode::Esc);
    driver.shows(", 6 matched cells, emulated-link");
}

#[test]
fn the_footer_offers_to_undo_a_zoom_once_there_is_one() {
    let mut driver = driver(200, 60);
    driver.hides("u undo");
    driver.taps("+");
    driver.shows("u undo");
}

/// Groups may have no part of their names in common.
#[test]
fn the_name_of_a_group_has_no_empty_part() {
    let mut all = records();
    let mut other = all[0].clone();
    (other.run, other.spec.model, other.spec.prompt_tokens) = ("other".into(), "3b".into(), 7);
    (other.spec.output_tokens, other.spec.hardware) = (9, "a100_sxm".into());
    (other.provenance, other.spec.stack) = (Provenance::Measured, "gpt-fast".into());
    all.push(other);
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    let titles = &driver.state.pareto.titles;
    assert!(titles.len() > 1 && titles.iter().all(|title| !title.ends_with(", ")), "{titles:?}");
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

/// Writes a file of points and has it read.
fn lay_over(driver: &mut Driver, file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    name_overlay(driver, &file.display().to_string());
}

/// Names the file whose points are shown.
fn name_overlay(driver: &mut Driver, name: &str) {
    driver.keys("B");
    driver.send(Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    driver.keys(name);
    driver.tap(KeyCode::Enter);
}

#[test]
fn a_file_of_points_is_asked_for_and_its_errors_are_told() {
    let mut driver = driver(120, 40);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.csv");
    lay_over(
        &mut driver,
        &file,
        "architecture,label,completion_ms,tokens_per_s_per_gpu\nmine,X,400,20\n",
    );
    assert!(driver.screen().contains("1 of its 1 points"), "{}", driver.screen());
    driver.press(KeyCode::Esc);
    assert!(driver.screen().contains("m mine.csv"), "{}", driver.screen());
    lay_over(&mut driver, &file, "tp,completion_ms,tokens_per_s\nx,400,20\n");
    assert!(driver.screen().contains("mine.csv:2: tp is 'x'"), "{}", driver.screen());
}

#[test]
fn small_marks_and_suffixes_are_explained_where_there_is_room_and_otherwise_in_the_help() {
    let mut driver = with_micro_batches();
    driver.send(Message::Resize(200, 60));
    driver.shows("• small: dominated; ² another setting");
    driver.send(Message::Resize(60, 16));
    driver.shows("• dominated; ² setting");
    let mut driver = self::driver(80, 24);
    driver.hides("• small");
    driver.taps("?");
    driver.shows("marks: • small: dominated");
    driver.tap(KeyCode::Esc);
    driver.taps("L");
    driver.shows("▪ dominated");
}

#[test]
fn it_opens_on_a_group_that_compares_series_rather_than_on_a_larger_one() {
    let mut all = records();
    all.retain(|r| r.provenance == Provenance::Simulated && r.spec.tp == 8 && r.spec.batch == 1);
    let mut alone = records_of(|spec| spec.model = "3b".into());
    alone.retain(|r| r.provenance == Provenance::Simulated && r.spec.p2p == P2p::On);
    alone.retain(|r| r.spec.architecture.to_string() == "standard");
    assert!(alone.len() > all.len());
    alone.iter_mut().for_each(|record| record.run.push_str("-alone"));
    all.extend(alone);
    let mut driver = Driver::empty(120, 40);
    driver.taps("5");
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    assert_eq!(driver.state.pareto.current().unwrap().spec.model, "tiny");
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

/// A driver whose ladders ran in micro-batches, too.
fn with_micro_batches() -> Driver {
    let mut all = records();
    all.retain(|record| record.spec.backend == Backend::Sim);
    let ladders = all.iter().filter(|r| r.spec.architecture.to_string() == "ladder").cloned();
    let halves: Vec<Record> = ladders
        .map(|mut record| {
            record.spec.micro_batches = 2;
            record.run.push_str("-micro");
            record
        })
        .collect();
    all.extend(halves);
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver
}

#[test]
fn series_of_one_shape_are_told_apart_and_the_legend_is_of_what_the_filter_leaves() {
    let mut driver = with_micro_batches();
    let marks: Vec<String> = driver.state.pareto.entries.iter().map(|entry| entry.mark()).collect();
    let distinct: std::collections::BTreeSet<&String> = marks.iter().collect();
    assert_eq!(distinct.len(), marks.len(), "{marks:?}");
    driver.taps("/ladder tp:8 p2p:off");
    driver.tap(KeyCode::Enter);
    let marks: Vec<String> = driver.state.pareto.entries.iter().map(|entry| entry.mark()).collect();
    assert_eq!(marks, ["□", "□²"], "as before the filter");
    let shown = driver.screen();
    assert!(shown.contains("□² ladder p2p-off") && !shown.contains("standard p2p"), "{shown}");
    assert!(!shown.contains("upper-bound"), "{shown}");
}

#[test]
fn ratios_say_what_they_are_over_and_are_left_out_across_batch_sizes() {
    let mut driver = driver(120, 40);
    next_group(&mut driver);
    driver.taps("T");
    let shown = driver.screen();
    assert!(shown.contains("×: over standard's best, same batch and P2P"), "{shown}");
    let row = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    let [standard, ladder] = [row("● standard p2p-on"), row("■ ladder p2p-on")];
    assert!(!standard.contains('×') && !shown.contains("×*"), "one over itself is no news: {shown}");
    assert_eq!(ladder.matches('×').count(), 2, "batch 64 over batch 16 is no speedup: {shown}");
}

#[test]
fn points_on_one_another_are_marked_counted_and_stepped_through() {
    let mut driver = with_micro_batches();
    let is_plain = |point: &study::analysis::ParetoPoint| {
        point.spec.architecture.to_string() == "ladder"
            && point.spec.micro_batches == 1
            && point.on_series_frontier
    };
    let at = driver.state.pareto.visible().position(is_plain).expect("a ladder");
    driver.state.pareto.selected = at;
    let name = |driver: &Driver| driver.state.pareto.current().map(|point| point.run.clone()).unwrap();
    let (first, shown) = (name(&driver), driver.screen());
    assert!(shown.contains(" of 2 points here, n: next)"), "{shown}");
    assert!(shown.contains("[■]") || shown.contains("[□]"), "the selected point stands out: {shown}");
    driver.taps("n");
    if !name(&driver).starts_with(&first) {
        driver.taps("NN");
    }
    assert_eq!(name(&driver), format!("{first}-micro"), "the other one in the same place");
    assert!(driver.screen().contains(" of 2 points here, n: next)"));
}
