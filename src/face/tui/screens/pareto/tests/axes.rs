//! Axes: measures, units, scales and zoom.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEventKind};

use super::super::{layout, state::Scale};
use super::{asks, driver, records, records_of};
use crate::face::tui::context::Snapshot;
use crate::face::tui::tests::fixtures::Driver;
use crate::face::tui::update::Message;
use study::analysis::{XAxis, YAxis};
use table::{Backend, Record};

#[test]
fn published_numbers_that_disagree_are_explained_in_the_help() {
    let mut driver = driver(120, 40);
    let records = records_of(|spec| {
        (spec.model, spec.prompt_tokens, spec.output_tokens) = ("llama-3-70b".into(), 1024, 512);
    });
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.taps("D");
    let label = "ladder tp8 b1 p2p-off";
    let at = driver.state.pareto.visible().position(|point| point.spec.label() == label);
    driver.state.pareto.selected = at.expect(label);
    driver.shows("disagree: ?");
    driver.taps("?");
    driver.shows("published: the latency of 6.20 s contradicts");
    driver.tap(KeyCode::Esc);
    // a shorter TTFT is a minus
    driver.taps("aa");
    driver.shows("(TTFT -");
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

#[test]
fn the_footer_offers_to_undo_a_zoom_once_there_is_one() {
    let mut driver = driver(200, 60);
    driver.hides("u undo");
    driver.taps("+");
    driver.shows("u undo");
}
