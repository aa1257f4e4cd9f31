//! What a reader of the page would notice.

use proptest::prelude::*;

use super::{Report, page};
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
        arguments: vec!["--dir".into(), "mine".into()],
        directory: vec!["--dir".into(), "mine".into()],
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
        let conditions = super::conditions(set, &sets);
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
    let report = Report { arguments, directory, filter, environments, ..report(&records) };
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
