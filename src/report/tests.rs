//! What a reader of the page would notice.

use proptest::prelude::*;

use super::{Report, page};
use crate::analysis::sample_data::{record, sim_record};
use crate::plot::Facts;
use crate::spec::{P2p, Spec};
use crate::store::{Record, Status};

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
        facts: Facts::of_records(ok),
        arguments: "--dir mine".into(),
        listing: "--dir mine".into(),
        ..Report::default()
    }
}

/// The page as XML: it is written so that it is both. Scripts and styles aside, which are not.
fn parsed(html: &str) -> String {
    let mut text = html.replace("<!DOCTYPE html>\n", "");
    for (open, close) in [("<style>", "</style>"), ("<script>", "</script>")] {
        let (from, to) = (text.find(open).unwrap() + open.len(), text.find(close).unwrap());
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
    assert!(html.contains("none of them is a measurement"));
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
    assert!(html.contains(&format!("{} comparisons, of which", comparison.comparisons)));
    assert!(html.contains("ladder over standard with P2P off: "));
    assert!(html.contains("hidden share 0.50"), "half of what upper-bound gains");
}

#[test]
fn models_stand_side_by_side() {
    let records = grid(&["tiny", "1b"]);
    let html = page(&report(&records)).unwrap();
    assert!(html.contains("Models side by side") && html.contains("<figure id=\"models\">"));
    assert!(html.contains("--filter &#39;model=1b dtype="), "commands choose a set");
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
