use std::collections::BTreeSet;

use super::commands::{Commands, command_line};
use super::html::Html;
use super::{Report, RunComparisons};
use crate::analysis::{
    self, CellSet, ComparisonReport, DIFFERENCES, ParetoPoint, REST, differences_table, pairs_table,
};
use crate::answer::{Answer, CardLine};
use crate::plot::{self, Figure, FigureOptions, ParetoData, ProvenanceSummary};
use base::error::{Error, Result};
use table::render::{Shown, Table};
use table::{P2p, Record, measure};

const MOST_ROWS: usize = 150;

/// Maximum points of a Pareto figure: more add nothing and slow the page down.
const MOST_POINTS: usize = 1500;

/// Writes the section of one set out of `all`. `whole` holds the comparisons if they already exist.
pub fn section(
    html: &mut Html,
    report: &Report<'_>,
    set: &CellSet,
    index: usize,
    all: &[CellSet],
    ok: &[Record],
    whole: Option<&RunComparisons>,
) -> Result<()> {
    let runs: BTreeSet<&str> = set
        .cells
        .iter()
        .flat_map(|cell| cell.runs.iter().chain([&cell.run]))
        .map(String::as_str)
        .collect();
    let records: Vec<Record> = ok.iter().filter(|r| runs.contains(r.run.as_str())).cloned().collect();
    let provenance = report.provenance_of(&records);
    let commands = Commands::of_set(&report.origin, set, all);
    let own;
    let RunComparisons { by_architecture, by_p2p } = match whole {
        Some(whole) => whole,
        None => {
            own = RunComparisons::from_records(&records)?;
            &own
        }
    };
    let points = analysis::pareto(&records);

    html.raw(&format!("<section id=\"set{index}\">\n")).element("h2", &set.name);
    html.badges(provenance.kinds.iter().copied()).element("p class=\"soft\"", &provenance.caption());
    in_short(html, &records);
    if let Some((run, sentences)) = report.verdicts.get(&set.name) {
        verdict(html, &report.origin.directory, run, sentences);
    }
    html.element("h3", "Figures");
    for (kind, drawn) in figures(set, &points, &provenance, by_architecture) {
        match drawn {
            Ok(one) => {
                let file = format!("{kind}.svg");
                let command = commands.verb(&["figure", kind], &["-o", &file]);
                figure(html, &one, &format!("f{index}{kind}"), &command)?;
            }
            Err(error) => {
                html.element("p class=\"soft\"", &format!("No {kind} figure: {error}."));
            }
        }
    }
    if let Some(overlap) = report.overlaps.get(&set.name) {
        let command = commands.verb(&["figure", "overlap"], &["-o", "overlap.svg"]);
        figure(html, overlap, &format!("f{index}overlap"), &command)?;
    }
    cells(html, set, &commands.listing(""));
    frontier(html, &points, &commands);
    comparisons(html, by_architecture, &commands);
    comparisons(html, by_p2p, &commands);
    time(html, by_architecture, &commands);
    html.raw("</section>\n");
    Ok(())
}

fn in_short(html: &mut Html, records: &[Record]) {
    for answer in Answer::from_records(records.to_vec()) {
        html.raw("<div class=\"card\">\n");
        let mut bullets = Vec::new();
        for (line, text) in answer.card() {
            match line {
                CardLine::Headline => html.element("p class=\"headline\"", text),
                CardLine::Basis(_) => html.element("p class=\"soft\"", text),
                CardLine::Noise => html.element("p class=\"doubt\"", text),
                CardLine::Bullet => {
                    bullets.push(text);
                    continue;
                }
            };
        }
        list(html, bullets.into_iter());
        html.raw("</div>\n");
        list(html, answer.details.iter().map(String::as_str));
    }
}

pub fn list<'a>(html: &mut Html, items: impl Iterator<Item = &'a str>) {
    html.raw("<ul>\n");
    items.for_each(|item| {
        html.element("li", item);
    });
    html.raw("</ul>\n");
}

/// Verdict on communication from the trace of a standard run.
fn verdict(html: &mut Html, directory: &[String], run: &str, sentences: &[String]) {
    html.element("h3", &format!("Verdict on standard ({run})"));
    html.element(
        "p class=\"soft\"",
        "Computed from the run's trace. Remedies are simulated from its measured kernel and all-reduce times.",
    );
    list(html, sentences.iter().map(String::as_str));
    html.command(&command_line(&["overlap", run], &[directory], &[]));
}

pub fn figure(html: &mut Html, figure: &Figure, id: &str, command: &str) -> Result<()> {
    html.raw(&format!("<figure id=\"{id}\">\n")).raw(&figure.element()?);
    html.element("figcaption", &format!("{}. {}", figure.title(), figure.caption()));
    html.raw("</figure>\n").command(command);
    Ok(())
}

/// Figures of a set by kind; an error says why one is missing.
fn figures(
    set: &CellSet,
    points: &[ParetoPoint],
    provenance: &ProvenanceSummary,
    by_architecture: &ComparisonReport,
) -> Vec<(&'static str, Result<Figure>)> {
    let options = FigureOptions::default();
    let pareto = if points.len() > MOST_POINTS {
        Err(Error::input(format!("{} points are too many for a page", points.len())))
    } else {
        plot::pareto_figure(&ParetoData { points, ..ParetoData::default() }, provenance, &options)
    };
    let one = std::slice::from_ref(set);
    let mut drawn = vec![
        ("pareto", pareto),
        ("throughput", plot::throughput_figure(set, provenance, &options)),
        ("improvement", plot::improvement_figure(one, by_architecture, provenance, &options)),
    ];
    if set.values(|spec| spec.p2p).len() > 1 {
        drawn.push(("p2p", plot::p2p_figure(set, provenance, &options)));
    }
    drawn
}

fn cells(html: &mut Html, set: &CellSet, whole: &str) {
    let of = |name: &str| {
        let measure = measure(name);
        move |cell: &Record| measure.map_or(Shown::None, |measure| measure.shown(cell))
    };
    let table = Table::from_rows(
        set.cells.iter().filter(|cell| cell.metrics.is_some()),
        &[
            ("architecture", &|c| Shown::text(&c.spec.architecture)),
            ("TP", &|c| c.spec.tp.into()),
            ("batch", &|c| c.spec.batch.into()),
            ("P2P", &|c| Shown::text(c.spec.p2p.as_str())),
            ("link", &|c| Some(c.spec.link).filter(|l| l.is_emulated()).map(|l| l.to_string()).into()),
            ("TTFT ms", &of("prefill_ms")),
            ("TPOT ms", &of("tpot_p50_ms")),
            ("TPOT p99 ms", &of("tpot_p99_ms")),
            ("completion ms", &of("completion_ms")),
            ("tokens/s", &of("tokens_per_s")),
            ("tokens/s/GPU", &of("tokens_per_s_per_gpu")),
            ("overlap %", &of("overlap_pct")),
            ("exposed ms", &of("exposed_comm_ms")),
            ("GB per rank", &|c| {
                let bytes = c.metrics.as_ref().map(|m| m.memory_bytes_per_rank as f64 / 1e9);
                Shown::number(bytes, 1)
            }),
            ("samples", &of("samples_done")),
            ("run", &|c| Shown::text(&c.run)),
            ("provenance", &|c| Shown::text(c.provenance)),
        ],
    );
    let caption = "Medians over samples, with 95 % bootstrap intervals in brackets if there are enough samples. Overlap \
                   and exposed communication: decode phase of one sample, mean over ranks.";
    html.element("h3", "Cells").table(caption, &table, MOST_ROWS, whole).command(whole);
}

fn frontier<'a>(html: &mut Html, points: &'a [ParetoPoint], commands: &Commands<'_>) {
    let mut rows: Vec<(String, &ParetoPoint)> = Vec::new();
    let mut add = |among: &str, best: Vec<&'a ParetoPoint>| {
        rows.extend(best.into_iter().map(|point| (among.to_owned(), point)));
    };
    add("all", analysis::frontier(points, |_| true));
    for p2p in [P2p::On, P2p::Off] {
        let name = format!("P2P {}", p2p.as_str());
        add(&name, analysis::frontier(points, |p| p.spec.p2p == p2p && !p.is_limit()));
    }
    let table = Table::from_rows(
        &rows,
        &[
            ("frontier of", &|(among, _): &(String, &ParetoPoint)| Shown::text(among)),
            ("architecture", &|(_, p)| Shown::text(&p.spec.architecture)),
            ("TP", &|(_, p)| p.spec.tp.into()),
            ("batch", &|(_, p)| p.spec.batch.into()),
            ("P2P", &|(_, p)| Shown::text(p.spec.p2p.as_str())),
            ("completion ms", &|(_, p)| Shown::Number(p.completion_ms, 1)),
            ("tokens/s/GPU", &|(_, p)| Shown::Number(p.tokens_per_s_per_gpu, 2)),
            ("TPOT ms", &|(_, p)| Shown::Number(p.tpot_ms, 3)),
            ("≈", &|(_, p)| Shown::some(if p.too_close { "≈" } else { "" })),
            ("provenance", &|(_, p)| Shown::text(p.provenance)),
        ],
    );
    let command = commands.verb(&["pareto"], &["--frontier"]);
    let caption = "Pareto-optimal cells: no other cell is at least as good in both completion latency and throughput \
                   per GPU and better in one. ≈: too close to call; a point of another series is within the \
                   simulator's error (5 % where that is unknown).";
    html.element("h3", "Frontier").table(caption, &table, MOST_ROWS, &command).command(&command);
}

fn comparisons(html: &mut Html, report: &ComparisonReport, commands: &Commands<'_>) {
    if report.pairs.is_empty() {
        return;
    }
    let command = commands.verb(&["compare", "--by", &report.by], &[]);
    let caption = format!("{} (see \"verdict\" in the glossary).", report.counts());
    html.element("h3", &format!("Comparisons by {}", report.by));
    html.table(&caption, &pairs_table(report), MOST_ROWS, &command).command(&command);
}

fn time(html: &mut Html, report: &ComparisonReport, commands: &Commands<'_>) {
    let table = differences_table(report);
    if table.is_empty() {
        return;
    }
    let command = commands.verb(&["compare", "--by", "architecture"], &[]);
    let caption = format!("{DIFFERENCES}. The columns add up to `decode ms`; {REST}.");
    html.element("h3", "Where the time went").table(&caption, &table, MOST_ROWS, &command);
    html.command(&command);
}
