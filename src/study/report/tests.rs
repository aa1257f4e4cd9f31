//! What a reader of the page would notice.

use super::events::MOST_EVENTS;
use crate::analysis::trace_report;
use crate::rewire::Setting;
use crate::verdict::verdict;
use base::error::Result;
use plan::Lane;
use proptest::prelude::*;
use serde_json::Value;
use trace::overlap::Selection;
use trace::testing::{span, trace};
use trace::{Range, Span, Trace};

use super::{Report, ReportOrigin, TracePage, WrittenTrace, page, trace_page};
use crate::plot::ProvenanceSummary;
use table::testing::{record, sim_record};
use table::{P2p, Record, Spec, Status};

/// A simulated grid of two models, or of one.
fn grid(models: &[&str]) -> Vec<Record> {
    let mut records = Vec::new();
    for model in models {
        for (index, architecture) in ["standard", "ladder", "upper-bound"].into_iter().enumerate() {
            for tp in [2, 8] {
                for p2p in [P2p::On, P2p::Off] {
                    let step = 10.0 - index as f64 - if p2p == P2p::On { 1.0 } else { 0.0 };
                    let change = |spec: &mut Spec| {
                        spec.architecture = architecture.parse().unwrap();
                        (spec.tp, spec.p2p, spec.model) = (tp, p2p, (*model).into());
                    };
                    let run = format!("{model}-{architecture}-{tp}-{}", p2p.as_str());
                    records.push(sim_record(&run, change, 1.0, step / f64::from(tp)));
                }
            }
        }
    }
    records
}

fn report(records: &[Record]) -> Report<'_> {
    let ok = records.iter().filter(|r| r.status == Status::Ok);
    Report {
        records,
        provenance: ProvenanceSummary::of_records(ok),
        origin: ReportOrigin {
            arguments: vec!["--dir".into(), "mine".into()],
            directory: vec!["--dir".into(), "mine".into()],
            ..ReportOrigin::default()
        },
        ..Report::default()
    }
}

/// The page as XML: it is written so that it is both. Scripts and styles aside, which are not.
pub fn parsed(html: &str) -> String {
    let mut text = html.replace("<!DOCTYPE html>\n", "");
    for (open, close) in [("<style>", "</style>"), ("<script>", "</script>")] {
        let from = text.find(open).unwrap() + open.len();
        let to = from + text[from..].find(close).unwrap();
        text.replace_range(from..to, "");
    }
    // Elements that HTML never closes.
    let mut out = String::new();
    for line in text.lines() {
        out += &match line.starts_with("<meta") {
            true => line.replace("\">", "\"/>"),
            false => line.to_owned(),
        };
        out.push('\n');
    }
    out
}

#[test]
fn the_page_is_whole_and_asks_for_nothing() {
    let records = grid(&["tiny"]);
    let html = page(&report(&records)).unwrap();
    let text = parsed(&html);
    let document = roxmltree::Document::parse(&text).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for node in document.descendants() {
        if let Some(id) = node.attribute("id") {
            assert!(ids.insert(id.to_owned()), "the id {id} is there twice");
        }
        for attribute in node.attributes().filter(|a| ["src", "href"].contains(&a.name())) {
            assert!(attribute.value().starts_with('#'), "{attribute:?} leads elsewhere");
        }
    }
    for link in document.descendants().filter_map(|node| node.attribute("href")) {
        assert!(ids.contains(&link[1..]), "{link} leads nowhere");
    }
    assert!(!html.contains("url(") && !html.contains("@import"), "a style asks for something");
    assert_eq!(html.matches("<figure id=").count(), 4, "pareto, throughput, improvement, p2p");
}

#[test]
fn every_section_says_where_its_numbers_come_from_and_how_to_get_them() {
    let mut records = grid(&["tiny"]);
    records.extend((0..3).map(|round| record(&format!("m{round}"), |_| (), round, &[(1.0, 2.0); 3])));
    let html = page(&report(&records)).unwrap();
    assert_eq!(html.matches("<section id=\"set").count(), 2);
    for section in html.split("<section id=\"set").skip(1) {
        let (simulated, measured) =
            (section.contains("badge simulated"), section.contains("badge measured"));
        assert!(simulated != measured, "one of the two");
        assert!(section.contains("<p class=\"command\"><code>ladderscope pareto --dir mine --filter"));
    }
    assert!(html.contains("not measurements"));
    for table in html.split("<table>").skip(1) {
        let head = table.split("</thead>").next().unwrap();
        let says = head.contains("provenance") || head.contains("why");
        assert!(says, "a table without provenance: {head}");
    }
}

#[test]
fn it_answers_in_numbers_and_says_how_many_comparisons() {
    let mut records = grid(&["tiny"]);
    for record in &mut records {
        record.experiment = Some("mine".into());
    }
    let mut report = report(&records);
    report.questions = vec![("mine".into(), "Which is <fastest>?".into())];
    let html = page(&report).unwrap();
    assert!(html.contains("Which is &lt;fastest&gt;? (experiment mine)"));
    let comparison = crate::analysis::compare(&records, "architecture").unwrap();
    assert!(html.contains(&format!("{} comparisons, ", comparison.comparisons)));
    assert!(html.contains("<div class=\"card\">") && html.contains("P2P off vs on, tokens/s: "));
    assert!(html.contains("closes 50 %"), "half of what upper-bound gains");
}

#[test]
fn models_stand_side_by_side() {
    let records = grid(&["tiny", "1b"]);
    let html = page(&report(&records)).unwrap();
    assert!(html.contains("Models side by side") && html.contains("<figure id=\"models\">"));
    assert!(html.contains("--filter &#39;model=1b dtype="), "commands choose a set");
}

/// Records of sets that differ in one thing each.
fn sets() -> Vec<Record> {
    let mut all = Vec::new();
    let mut add = |name: &str, host: Option<&str>, change: &dyn Fn(&mut Spec)| {
        for (architecture, p2p) in
            [("standard", P2p::On), ("ladder", P2p::On), ("standard", P2p::Off), ("ladder", P2p::Off)]
        {
            let change = |spec: &mut Spec| {
                (spec.architecture, spec.p2p) = (architecture.parse().unwrap(), p2p);
                change(spec);
            };
            let run = format!("{name}-{architecture}-{}", p2p.as_str());
            let mut one = match host {
                Some(_) => record(&run, change, 0, &[(1.0, 2.0)]),
                None => sim_record(&run, change, 1.0, 2.0),
            };
            if let Some(host) = host {
                one.environment.insert("host".into(), host.into());
                one.environment.insert("commit".into(), format!("{name}0123456789").into());
            }
            all.push(one);
        }
    };
    add("plain", None, &|_| ());
    add("alpha", None, &|spec| _ = spec.set.insert("link.alpha_us".into(), "5".into()));
    add("stack", None, &|spec| spec.stack = "gpt-fast".into());
    add("spaced", None, &|spec| spec.model = "my \"own\"  model's".into());
    add("one-shot", None, &|spec| spec.collective = table::Collective::OneShot);
    add("here", Some("node1"), &|_| ());
    add("there", Some("node2"), &|_| ());
    add("tree", Some("node1"), &|spec| _ = spec.env.insert("NCCL_ALGO".into(), "Tree".into()));
    add("slow", Some("node1"), &|spec| {
        (spec.link, spec.batch) = (table::Link::Emulated { alpha_us: 20.0, gb_s: 50.0 }, 4);
    });
    add("fast", Some("node1"), &|spec| {
        (spec.link, spec.batch) = (table::Link::Emulated { alpha_us: 2.0, gb_s: 500.0 }, 4);
    });
    add("seed", None, &|spec| spec.seed = 7);
    add("eager", Some("node1"), &|spec| spec.no_graph = true);
    all
}

#[test]
fn the_conditions_of_a_set_choose_its_runs_and_no_others() {
    let records = sets();
    let sets = crate::analysis::comparable(&records);
    assert_eq!(sets.len(), 12);
    let table = crate::analysis::RunTable::new(&records, &lab::store::Annotations::default());
    for set in &sets {
        let conditions = super::commands::conditions(set, &sets);
        let chosen = crate::analysis::filter::Filter::parse(&conditions).rows(&table).unwrap();
        let mut chosen: Vec<&str> = chosen.iter().map(|r| records[*r as usize].run.as_str()).collect();
        let mut cells: Vec<&str> = set.cells.iter().map(|cell| cell.run.as_str()).collect();
        chosen.sort_unstable();
        cells.sort_unstable();
        assert_eq!(chosen, cells, "{conditions}");
    }
}

#[test]
fn a_section_names_the_commits_of_its_own_runs() {
    let mut records = sets();
    records.retain(|r| r.run.starts_with("here") || r.run.starts_with("plain"));
    for (row, record) in records.iter_mut().filter(|r| r.run.starts_with("plain")).enumerate() {
        record.run = format!("batch:{row}");
    }
    let mut whole = records.iter().find(|r| r.run == "batch:0").cloned().unwrap();
    whole.environment.insert("commit".into(), "simulator99".into());
    let environments = vec![whole, records.iter().find(|r| r.run.starts_with("here")).cloned().unwrap()];
    let html = page(&Report { environments, ..report(&records) }).unwrap();
    let sections: Vec<&str> = html.split("<section id=\"").filter(|s| s.starts_with("set")).collect();
    assert_eq!(sections.len(), 2);
    for section in sections {
        let (simulated, executed) = (section.contains("simulator9"), section.contains("here012345"));
        assert!(simulated != executed, "one of the two");
        assert_eq!(simulated, section.contains("badge simulated"));
    }
}

#[test]
fn commands_can_be_pasted_into_a_shell() {
    let mut records = sets();
    records.retain(|r| r.run.starts_with("plain") || r.run.starts_with("spaced"));
    let arguments: Vec<String> = ["--dir", "my runs"].map(String::from).into();
    let filter = "-note:\"a  b\"".to_owned();
    let (directory, environments) = (arguments.clone(), vec![records[0].clone()]);
    let origin = ReportOrigin { arguments, directory, filter, ..ReportOrigin::default() };
    let report = Report { origin, environments, ..report(&records) };
    let html = page(&report).unwrap().replace("&#39;", "'").replace("&quot;", "\"");
    for command in [
        "<code>ladderscope report --dir 'my runs' '--filter=-note:\"a  b\"' -o report.html</code>",
        "<code>ladderscope show plain-standard-on --dir 'my runs' --format json</code>",
        r#"model="my \"own\"  model'\''s""#,
    ] {
        assert!(html.contains(command), "{command}");
    }
}

#[test]
fn what_did_not_run_and_what_looks_wrong_is_told() {
    let mut records = grid(&["tiny"]);
    let failed = &mut records[3];
    (failed.status, failed.metrics) = (Status::Failed, None);
    failed.reason = Some("rank 1 said <no>\nand died".into());
    records[0].warnings = vec!["stalls?".into()];
    let html = page(&report(&records)).unwrap();
    assert!(html.contains("rank 1 said &lt;no&gt;"), "why");
    assert!(html.contains("stalls?"));
    assert!(
        html.contains("<code>ladderscope runs --dir mine --filter=-status:ok</code>"),
        "how to list what did not end well"
    );
    let none = page(&Report { records: &records[3..4], ..Report::default() }).unwrap_err();
    assert_eq!(none.exit_code(), 2);
}

#[test]
fn five_thousand_runs_make_a_page_that_opens() {
    let mut records = Vec::new();
    for seed in 0..417u64 {
        for mut record in grid(&["tiny"]) {
            record.run = format!("{}-{seed}", record.run);
            record.spec.batch = 1 + (seed % 40) as u32;
            record.spec.prompt_tokens = 16 + (seed / 40) as u32;
            records.push(record);
        }
    }
    assert!(records.len() > 5_000);
    let html = page(&report(&records)).unwrap();
    assert!(html.len() < 8_000_000, "{} bytes", html.len());
    assert!(html.contains("The first 150 of "), "what is left out of a table");
    assert!(html.contains("smaller ones are left out"), "what is left out of the sections");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_names_say_the_page_stays_whole(
        model in "[^\u{0}]{1,20}",
        reason in any::<String>(),
        question in any::<String>(),
    ) {
        let mut records = grid(&[&model]);
        records[1].status = Status::Failed;
        records[1].reason = Some(reason);
        records[0].warnings = vec!["<script>alert(1)</script>".into()];
        let mut report = report(&records);
        report.questions = vec![("a".into(), question)];
        let html = page(&report).unwrap();
        prop_assert_eq!(html.matches("<script>").count(), 1);
        let text = parsed(&html);
        prop_assert!(roxmltree::Document::parse(&text).is_ok());
    }
}

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
