//! Page of a trace, as a browser reads it.

use serde_json::Value;

use super::events::MOST_EVENTS;
use super::tests::parsed;
use super::{TracePage, WrittenTrace, trace_page};
use crate::analysis::trace_report;
use crate::rewire::Setting;
use crate::verdict::verdict;
use base::error::Result;
use plan::Lane;
use trace::overlap::Selection;
use trace::testing::{span, trace};
use trace::{Range, Span, Trace};

const HOSTILE: &str =
    "</script><script>alert('x')</script>\u{202e}<img src=\"http://example.com/x\"> & \u{1b}[2J";

/// Ten steps of 1 us on two ranks: 600 ns of compute, 400 ns of all-reduce, 300 ns of it exposed.
fn steps(count: u32) -> Trace {
    let mut spans = Vec::new();
    for step in 0..count {
        for rank in 0..2 {
            let at = 1_000 * i64::from(step);
            let [compute, comm] = [Lane::Compute, Lane::Comm];
            spans.push(Span { step, ..span(rank, compute, at, at + 600) });
            spans.push(Span { step, ..span(rank, comm, at + 500, at + 900) });
        }
    }
    trace(spans)
}

fn written(trace: &Trace, selection: &Selection, window: Option<(i64, i64)>) -> Result<WrittenTrace> {
    let report = trace_report(trace, selection);
    let verdict = verdict(trace, &report, selection, &Setting::default());
    let arguments = ["a trace.json".to_owned()];
    let page = TracePage {
        trace,
        name: HOSTILE,
        report: &report,
        verdict: &verdict,
        selection,
        window,
        arguments: &arguments,
    };
    trace_page(&page)
}

fn data(html: &str) -> Value {
    let (_, json) = html.split_once("<script type=\"application/json\" id=\"trace-data\">").unwrap();
    serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn hostile_names_stay_text_and_the_page_asks_for_nothing() {
    let mut trace = steps(10);
    (trace.operations[0].name, trace.operations[0].layer) = (HOSTILE.into(), None);
    trace.meta.range_names = vec![HOSTILE.into()];
    trace.ranges.push(Range {
        rank: 0,
        on_device: false,
        thread: 0,
        depth: 0,
        name: 0,
        start_ns: 4_000,
        end_ns: 6_000,
    });
    let html = written(&trace, &Selection::default(), None).unwrap().html;
    assert_eq!(html.matches("<script").count(), 2, "the data and the code");
    for part in ["url(", "@import", "<img", "\u{202e}", "\u{1b}"] {
        assert!(!html.contains(part), "{part:?} is in the page");
    }
    let text = parsed(&html);
    let document = roxmltree::Document::parse(&text).unwrap();
    let asks = |node: &roxmltree::Node| ["href", "src"].iter().any(|name| node.has_attribute(*name));
    assert!(!document.descendants().any(|node| asks(&node)), "an element asks for a file");
    // readable, without the characters that turn text or steer a terminal
    let clean = HOSTILE.replace(['\u{202e}', '\u{1b}'], "\u{fffd}");
    let data = data(&html);
    assert_eq!(data["operations"][0]["name"], clean);
    assert_eq!(data["names"][0], clean);
}

#[test]
fn the_timeline_has_the_spans_and_exposed_times_of_the_middle_steps() {
    let trace = steps(10);
    let page = written(&trace, &Selection::default(), None).unwrap();
    assert!(page.shown.starts_with("step 4 to step 6, 3 of 10 steps"), "{}", page.shown);
    let data = data(&page.html);
    // a simulated step begins at the end of the one before
    assert_eq!((data["from"].as_i64(), data["to"].as_i64()), (Some(3_900), Some(6_900)));
    let rows = data["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["compute", "comm", "compute", "comm"]);
    // starts are differences
    assert_eq!(rows[1]["starts"], serde_json::json!([4_500, 1_000, 1_000]));
    assert_eq!(rows[1]["lengths"], serde_json::json!([400, 400, 400]));
    assert_eq!(data["exposed"]["1"][0], serde_json::json!([4_600, 4_900]));
    assert_eq!(page.events, 12);
    // the tables are those of the whole trace
    assert!(page.html.contains("cover the whole trace"));
    assert!(page.html.contains("data-v=\"3\""), "3 us exposed in ten steps");
}

#[test]
fn a_long_trace_shows_a_part_and_a_chosen_part_that_is_too_large_is_refused() {
    let long = steps(50_000);
    let all = (0, 50_000_000);
    let error = written(&long, &Selection::default(), Some(all)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains(&MOST_EVENTS.to_string()), "{error}");
    let one_step = Trace {
        spans: long.spans.iter().map(|span| Span { step: 0, ..*span }).collect(),
        ..long.clone()
    };
    for (trace, most) in [(&long, 12), (&one_step, 60_010)] {
        let page = written(trace, &Selection::default(), None).unwrap();
        assert!(page.events <= most, "{} events", page.events);
        assert!(page.html.len() < 5_000_000, "{} bytes", page.html.len());
    }
    let part = written(&long, &Selection::default(), Some((0, 2_500))).unwrap();
    assert_eq!(part.events, 10, "two steps, and what the third computes");
}
