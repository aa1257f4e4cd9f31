//! Page of one trace: verdict, a timeline that zooms, tables, provenance.

use super::commands::command_line;
use super::events::{ShownPart, TimelineData};
use super::html::{Html, document};
use super::set;
use crate::analysis::{
    NameRow, TraceReport, collectives_table, group_overlap_table, names_table, ranks_table, steps_table,
    stretches_table,
};
use crate::plot::ProvenanceSummary;
use crate::verdict::Verdict;
use base::error::{Error, Result};
use base::text::{counted, fitting_name, printable};
use table::Provenance;
use table::render::Table;
use trace::overlap::Selection;
use trace::{ImportReport, Trace};

/// Maximum size of a page in bytes.
const MOST_BYTES: usize = 5_000_000;

/// Maximum rows of a table.
const MOST_ROWS: usize = 100;

/// Characters of a name in a table.
const NAME: usize = 90;

#[derive(Clone, Copy, Debug)]
pub struct TracePage<'a> {
    pub trace: &'a Trace,
    /// Name of the run or file.
    pub name: &'a str,
    /// Analysis of `selection`.
    pub report: &'a TraceReport,
    pub verdict: &'a Verdict,
    pub selection: &'a Selection,
    /// Window of the timeline, if the user chose it (ns after the first start).
    pub window: Option<(i64, i64)>,
    /// Arguments that open this part of the trace, after the verb.
    pub arguments: &'a [String],
}

/// Page with the part of the trace that its timeline shows.
#[derive(Clone, Debug)]
pub struct WrittenTrace {
    pub html: String,
    pub shown: String,
    pub events: usize,
}

/// Renders the page as self-contained HTML; the same trace gives the same bytes.
///
/// # Errors
///
/// Returns an input error if the window has more events than a page holds.
pub fn trace_page(page: &TracePage<'_>) -> Result<WrittenTrace> {
    let TracePage { trace, report, .. } = *page;
    let shown = ShownPart::from_trace(trace, &report.steps, page.selection, page.window)?;
    let timeline = TimelineData::new(trace, &report.steps, &shown);
    let mut html = Html::default();
    header(&mut html, page);
    figure(&mut html, page, &timeline, &shown)?;
    tables(&mut html, page);
    provenance(&mut html, page);
    let scripts = concat!(include_str!("sort.js"), include_str!("timeline.js"));
    let html = document(&format!("Trace {}", page.name), &html.text, scripts);
    if html.len() > MOST_BYTES {
        return Err(Error::input_help(
            format!("the page would have {:.1} MB; at most 5 MB can be shared", html.len() as f64 / 1e6),
            "choose one step with --step, or less time with --from and --to",
        ));
    }
    Ok(WrittenTrace { html, shown: shown.words, events: timeline.events })
}

impl TracePage<'_> {
    fn command(&self, verb: &str, more: &[&str]) -> String {
        command_line(&[verb], &[self.arguments], more)
    }
}

fn header(html: &mut Html, page: &TracePage<'_>) {
    let provenance = page.trace.meta.provenance;
    html.raw("<header>\n").element("h1", page.name).badges([provenance]);
    if let Some(spec) = &page.trace.meta.spec {
        html.element("p class=\"soft\"", &format!("{}: {}", spec.model, spec.label()));
    }
    if provenance != Provenance::Measured {
        html.element(
            "p class=\"banner\"",
            &format!("The times of this trace are labelled {provenance}."),
        );
    }
    html.raw("<div class=\"card\">\n").element("p class=\"headline\"", &page.verdict.headline);
    set::list(html, page.verdict.sentences.iter().map(String::as_str));
    html.raw("</div>\n");
    html.element(
        "p class=\"soft\"",
        &format!(
            "Verdict and tables cover {}. Speedups of remedies are predictions from the trace's own times.",
            covered(page.selection)
        ),
    );
    html.command(&page.command("overlap", &[])).raw("</header>\n");
}

/// Selected part of the trace in words.
fn covered(selection: &Selection) -> String {
    let us = |ns: i64| base::text::latency(ns as f64 / 1e3);
    let mut words = match (selection.step, selection.phase) {
        (Some(step), _) => format!("step {step}"),
        (None, Some(phase)) => format!("the {} phase", phase.as_str()),
        (None, None) => "the whole trace".into(),
    };
    if let Some(from) = selection.from_ns {
        words += &format!(", from {}", us(from));
    }
    if let Some(to) = selection.to_ns {
        words += &format!(", up to {}", us(to));
    }
    words
}

const CLASSES: [(&str, &str); 6] = [
    ("compute", "compute"),
    ("exposed", "exposed communication"),
    ("comm", "hidden communication"),
    ("memory", "copies"),
    ("other", "other"),
    ("range", "CPU ranges"),
];

const BUTTONS: [(&str, &str, &str); 6] = [
    ("left", "◀", "earlier (left)"),
    ("right", "▶", "later (right)"),
    ("zoom-out", "−", "zoom out (-)"),
    ("zoom-in", "+", "zoom in (+)"),
    ("whole", "whole window", "show the whole window (0)"),
    ("longest", "longest exposed", "show the longest exposed communication (l)"),
];

const HELP: &str = "Drag pans, Ctrl and wheel zoom, a double click zooms in, Shift and drag zoom to a part. With the \
                    timeline focused: arrows left and right pan, + and - zoom, up and down change the row, comma and \
                    full stop select the previous and next event, e the next exposed communication, l the longest, \
                    Enter zooms to the selected event, / searches, n finds the next match, 0 shows everything.";

fn figure(
    html: &mut Html,
    page: &TracePage<'_>,
    timeline: &TimelineData,
    shown: &ShownPart,
) -> Result<()> {
    html.element("h2 id=\"timeline\"", "Timeline");
    html.element("noscript", "The timeline needs JavaScript; the tables below do not.");
    html.raw("<figure class=\"timeline\">\n<p class=\"tools\">");
    for (id, text, title) in BUTTONS {
        html.raw(&format!("<button type=\"button\" id=\"{id}\" title=\"{title}\">{text}</button>\n"));
    }
    html.raw("<select id=\"rank\" aria-label=\"rank\"><option value=\"\">all ranks</option>");
    for rank in timeline.ranks() {
        html.raw(&format!("<option value=\"{rank}\">rank {rank}</option>"));
    }
    html.raw("</select>\n<input id=\"find\" type=\"search\" placeholder=\"find an operation\" ");
    html.raw("aria-label=\"find an operation\" /> <span id=\"found\" class=\"soft\"></span>\n");
    if timeline.has_ranges() {
        html.raw("<label><input id=\"host\" type=\"checkbox\" checked=\"\" /> CPU ranges</label>\n");
    }
    html.raw("<span id=\"window\" class=\"soft\"></span></p>\n<p class=\"legend\">");
    for (class, words) in CLASSES {
        html.raw(&format!("<span><i class=\"{class}\"></i>{words}</span>"));
    }
    html.raw("</p>\n<div class=\"lanes\"><canvas id=\"axis\"></canvas><canvas id=\"lanes\" tabindex=\"0\" role=\"img\" ");
    html.raw("aria-label=\"timeline of all streams; the line below describes the selected event\"></canvas></div>\n");
    html.raw("<p id=\"detail\" aria-live=\"polite\"></p>\n<div id=\"tip\" role=\"tooltip\" hidden=\"\"></div>\n");
    let left_out = match timeline.ranges_left_out {
        0 => String::new(),
        count => format!(" {} too many for a page are left out.", counted(count, "inner CPU range")),
    };
    let caption = format!(
        "Shown: {}; {}.{left_out} Other parts: --step N, or --from and --to with times. {HELP}",
        shown.words,
        counted(timeline.events, "GPU event"),
    );
    html.element("figcaption", &caption).raw("</figure>\n");
    html.command(&page.command("report", &["-o", "report.html"]));
    html.raw("<script type=\"application/json\" id=\"trace-data\">")
        .raw(&timeline.json()?)
        .raw("</script>\n");
    Ok(())
}

/// Name for a table, without characters that turn text.
fn short(name: &str, room: usize) -> String {
    fitting_name(&printable(name), room)
}

fn tables(html: &mut Html, page: &TracePage<'_>) {
    let report = page.report;
    let add = |html: &mut Html, caption: &str, table: &Table, most: usize, by: &str| {
        html.table(caption, table, most, &page.command("overlap", &["--by", by, "--format", "csv"]));
    };
    html.element("h2", "Overlap by rank");
    let caption = "Unions of intervals. Exposed: the rank communicated and did not compute.";
    let command = page.command("overlap", &["--format", "csv"]);
    html.table(caption, &ranks_table(&report.overlap, true), MOST_ROWS, &command);
    if report.groups.len() > 1 {
        let table = group_overlap_table(&report.groups);
        add(html, "By process group", &table, MOST_ROWS, "collective");
    }
    html.element("h2", "Operations");
    let shortened: Vec<NameRow> =
        report.names.iter().map(|row| NameRow { name: short(&row.name, NAME), ..row.clone() }).collect();
    let caption = "Total per rank, averaged over ranks; mean and maximum per call.";
    add(html, caption, &names_table(&shortened), MOST_ROWS, "name");
    if !report.collectives.is_empty() {
        html.element("h2", "Collectives");
        let mut rows = report.collectives.clone();
        for row in &mut rows {
            row.executed.name = short(&row.executed.name, NAME / 2);
            row.group = row.group.as_deref().map(|group| short(group, NAME / 2));
        }
        let caption = "Total and exposed per rank; mean, median, transfer and waiting per call.";
        add(html, caption, &collectives_table(&rows), MOST_ROWS, "collective");
        html.element("h3", "Longest intervals of exposed communication");
        let mut rows = report.exposed_stretches.longest.clone();
        for row in &mut rows {
            row.collective = short(&row.collective, NAME / 2);
            row.waited = row.waited.as_deref().map(|name| short(name, NAME / 2));
        }
        add(html, "Effect of each on the next operation.", &stretches_table(&rows), 20, "exposed");
    }
    if report.steps.len() > 1 {
        html.element("h2", "Steps");
        let caption = "Times per rank, averaged over ranks.";
        add(html, caption, &steps_table(&report.steps), MOST_ROWS, "step");
    }
}

fn provenance(html: &mut Html, page: &TracePage<'_>) {
    html.element("h2 id=\"provenance\"", "Provenance").raw("<dl>\n");
    let meta = &page.trace.meta;
    let mut line = |about: &str, says: &str| {
        if !says.is_empty() {
            html.element("dt", about).element("dd", says);
        }
    };
    line("numbers", &ProvenanceSummary::of_traces([page.trace]).caption());
    line("run", meta.run.as_deref().unwrap_or_default());
    line("recorder", &meta.recorder);
    line("clock", &meta.clock);
    if let Some(import) = &meta.import {
        imported(import, &mut line);
    }
    html.raw("</dl>\n");
}

fn imported(import: &ImportReport, line: &mut impl FnMut(&str, &str)) {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    };
    // the folders of the machine are nobody's business
    let files: Vec<&str> = import
        .files
        .iter()
        .map(|file| file.rsplit(['/', '\\']).next().unwrap_or(file))
        .take(MOST_ROWS)
        .collect();
    line(
        "files",
        &format!(
            "{} ({}, {})",
            files.join(", "),
            import.format,
            counted(import.events as usize, "event")
        ),
    );
    line("used", &list(&import.used));
    line("ignored", &list(&import.ignored));
    line("ranks", import.ranks_from.as_deref().unwrap_or_default());
    import.warnings.iter().take(MOST_ROWS).for_each(|warning| line("warning", warning));
}
