//! The section of one set of comparable cells: in short, figures, cells, frontier, comparisons, where
//! the time went.

use std::collections::BTreeSet;

use super::commands::Commands;
use super::html::{Field, Html, Table};
use super::page::{Compared, Report, badge};
use crate::analysis::statistics::median;
use crate::analysis::{self, CellSet, Comparison, ComparisonReport, Difference, ParetoPoint};
use crate::error::{Error, Result};
use crate::plan::Architecture;
use crate::plot::{self, Facts, Figure, Options, ParetoData};
use crate::spec::P2p;
use crate::store::Record;

/// Rows of a table; more are left out, and the table says so.
const MOST_ROWS: usize = 150;

/// Pareto figures of more points say nothing that fewer do not, and make pages slow.
const MOST_POINTS: usize = 1500;

/// Writes the section of a set, one of `all`. `whole`: the comparisons, where they are made already.
pub fn section(
    html: &mut Html,
    report: &Report<'_>,
    set: &CellSet,
    index: usize,
    all: &[CellSet],
    ok: &[Record],
    whole: Option<&Compared>,
) -> Result<()> {
    let runs: BTreeSet<&str> = set
        .cells
        .iter()
        .flat_map(|cell| cell.runs.iter().chain([&cell.run]))
        .map(String::as_str)
        .collect();
    let records: Vec<Record> = ok.iter().filter(|r| runs.contains(r.run.as_str())).cloned().collect();
    let facts = report.facts_of(&records);
    let commands = Commands::of_set(report, set, all);
    let own;
    let Compared { by_architecture, by_p2p } = match whole {
        Some(whole) => whole,
        None => {
            own = Compared::of(&records)?;
            &own
        }
    };
    let points = analysis::pareto(&records);

    html.raw(&format!("<section id=\"set{index}\">\n")).element("h2", &set.name);
    html.raw("<p>");
    facts.provenance.iter().for_each(|provenance| {
        html.raw(&badge(*provenance));
    });
    html.raw("</p>\n").element("p class=\"soft\"", &facts.caption());
    in_short(html, set, by_architecture, by_p2p);
    html.element("h3", "Figures");
    for (kind, drawn) in figures(set, &points, &facts, by_architecture) {
        match drawn {
            Ok(one) => {
                let file = format!("{kind}.svg");
                let command = commands.of(&["figure", kind], &["-o", &file]);
                figure(html, &one, &format!("f{index}{kind}"), &command)?;
            }
            Err(error) => {
                html.element("p class=\"soft\"", &format!("No {kind} figure: {error}."));
            }
        }
    }
    if let Some(overlap) = report.overlaps.get(&set.name) {
        let command = commands.of(&["figure", "overlap"], &["-o", "overlap.svg"]);
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

/// What the comparisons say, in sentences.
fn in_short(html: &mut Html, set: &CellSet, by: &ComparisonReport, by_p2p: &ComparisonReport) {
    let sentences: Vec<String> = answers(set, by, by_p2p);
    if sentences.is_empty() {
        return;
    }
    html.element("h3", "In short").raw("<ul>\n");
    for sentence in sentences {
        html.element("li", &sentence);
    }
    html.raw("</ul>\n");
}

/// Speed-ups over standard by architecture and P2P setting, and what P2P is worth to each.
pub fn answers(set: &CellSet, by: &ComparisonReport, by_p2p: &ComparisonReport) -> Vec<String> {
    let mut sentences = Vec::new();
    let provenance = set.cells.first().map_or("", |cell| cell.provenance.as_str());
    let p2p_of =
        |pair: &Comparison| set.cells.iter().find(|cell| cell.run == pair.run).map(|cell| cell.spec.p2p);
    let settings = set.values(|spec| spec.p2p);
    for architecture in set.values(|spec| spec.architecture.clone()) {
        let name = architecture.to_string();
        for setting in &settings {
            let pairs: Vec<&Comparison> =
                by.pairs.iter().filter(|p| p.value == name && p2p_of(p) == Some(*setting)).collect();
            let Some(range) = range(&pairs.iter().map(|p| p.speedup).collect::<Vec<_>>(), 3) else {
                continue;
            };
            let differ = pairs.iter().filter(|pair| pair.differs).count();
            let shares: Vec<f64> = pairs.iter().filter_map(|pair| pair.hidden_share).collect();
            let hidden = match range_of_shares(&architecture, &shares) {
                Some(share) => format!("; hidden share {share}"),
                None => String::new(),
            };
            let with = if settings.len() > 1 {
                format!(" with P2P {}", setting.as_str())
            } else {
                String::new()
            };
            sentences.push(format!(
                "{name} over standard{with}: {range} times the tokens/s; {differ} of {} differ{hidden} ({provenance}).",
                cells_in_words(pairs.len())
            ));
        }
        let pairs: Vec<&Comparison> = by_p2p
            .pairs
            .iter()
            .filter(|p| {
                set.cells.iter().any(|cell| cell.run == p.run && cell.spec.architecture == architecture)
            })
            .collect();
        if let Some(range) = range(&pairs.iter().map(|p| p.speedup).collect::<Vec<_>>(), 3) {
            sentences.push(format!(
                "{name} without P2P: {range} times the tokens/s it has with P2P, in {} ({provenance}).",
                cells_in_words(pairs.len())
            ));
        }
    }
    sentences
}

fn cells_in_words(count: usize) -> String {
    if count == 1 { "1 matched cell".into() } else { format!("{count} matched cells") }
}

fn range_of_shares(architecture: &Architecture, shares: &[f64]) -> Option<String> {
    // The upper bound's share is 1 by definition.
    if *architecture == Architecture::UpperBound { None } else { range(shares, 2) }
}

/// `1.234 (median; 1.100 to 1.500)`: median, least and most.
fn range(values: &[f64], decimals: usize) -> Option<String> {
    let middle = median(values)?;
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(*value), high.max(*value))
    });
    Some(if values.len() == 1 {
        format!("{middle:.decimals$}")
    } else {
        format!("{middle:.decimals$} (median; {low:.decimals$} to {high:.decimals$})")
    })
}

/// A figure with its caption and the command that makes it.
pub fn figure(html: &mut Html, figure: &Figure, id: &str, command: &str) -> Result<()> {
    html.raw(&format!("<figure id=\"{id}\">\n")).raw(&figure.element(&format!("{id}-"))?);
    html.element("figcaption", &format!("{}. {}", figure.title(), figure.caption()));
    html.raw("</figure>\n").command(command);
    Ok(())
}

/// The figures of a set by their kinds, or why there is none.
fn figures(
    set: &CellSet,
    points: &[ParetoPoint],
    facts: &Facts,
    by_architecture: &ComparisonReport,
) -> Vec<(&'static str, Result<Figure>)> {
    let options = Options::default();
    let pareto = if points.len() > MOST_POINTS {
        Err(Error::input(format!("{} points are too many for a page", points.len())))
    } else {
        plot::pareto_figure(&ParetoData { points, overlay: Vec::new() }, facts, &options)
    };
    let one = std::slice::from_ref(set);
    let mut drawn = vec![
        ("pareto", pareto),
        ("throughput", plot::throughput_figure(set, facts, &options)),
        ("improvement", plot::improvement_figure(one, by_architecture, facts, &options)),
    ];
    if set.values(|spec| spec.p2p).len() > 1 {
        drawn.push(("p2p", plot::p2p_figure(set, facts, &options)));
    }
    drawn
}

fn cells(html: &mut Html, set: &CellSet, whole: &str) {
    let mut table = Table::new([
        "architecture",
        "TP",
        "batch",
        "P2P",
        "link",
        "TTFT ms",
        "TPOT ms",
        "TPOT p99 ms",
        "completion ms",
        "tokens/s",
        "tokens/s/GPU",
        "overlap %",
        "exposed ms",
        "GB a rank",
        "samples",
        "run",
        "provenance",
    ]);
    for cell in &set.cells {
        let Some(metrics) = &cell.metrics else { continue };
        let (spec, overlap) = (&cell.spec, cell.overlap);
        table.push(vec![
            Field::text(&spec.architecture),
            Field::whole(spec.tp),
            Field::whole(spec.batch),
            Field::text(spec.p2p.as_str()),
            if spec.link.is_emulated() { Field::text(spec.link) } else { Field::None },
            Field::Number(metrics.prefill_ms, 2),
            Field::Interval(metrics.tpot_ms.p50, metrics.tpot_ms_ci95, 3),
            Field::Number(metrics.tpot_ms.p99, 3),
            Field::Number(metrics.completion_ms, 1),
            Field::Interval(metrics.tokens_per_s, metrics.tokens_per_s_ci95, 1),
            Field::Number(metrics.tokens_per_s_per_gpu, 2),
            Field::number(overlap.and_then(|o| o.overlap_pct), 1),
            Field::number(overlap.map(|o| o.exposed_comm_ms), 1),
            Field::Number(metrics.memory_bytes_per_rank as f64 / 1e9, 1),
            Field::whole(metrics.samples),
            Field::text(&cell.run),
            Field::text(cell.provenance),
        ]);
    }
    html.element("h3", "Cells");
    html.table(
        "Medians over samples; in brackets 95% bootstrap intervals, where there are enough samples. Overlap and exposed communication: decode phase of one sample, averaged over ranks.",
        &table,
        MOST_ROWS,
        whole,
    );
    html.command(whole);
}

fn frontier(html: &mut Html, points: &[ParetoPoint], commands: &Commands<'_>) {
    let mut table = Table::new([
        "among",
        "architecture",
        "TP",
        "batch",
        "P2P",
        "completion ms",
        "tokens/s/GPU",
        "TPOT ms",
        "provenance",
    ]);
    let mut add = |among: &str, best: Vec<&analysis::ParetoPoint>| {
        for point in best {
            let spec = &point.spec;
            table.push(vec![
                Field::text(among),
                Field::text(&spec.architecture),
                Field::whole(spec.tp),
                Field::whole(spec.batch),
                Field::text(spec.p2p.as_str()),
                Field::Number(point.completion_ms, 1),
                Field::Number(point.tokens_per_s_per_gpu, 2),
                Field::Number(point.tpot_ms, 3),
                Field::text(point.provenance),
            ]);
        }
    };
    add("all", analysis::frontier(points, |_| true));
    for p2p in [P2p::On, P2p::Off] {
        let name = format!("P2P {}, without upper-bound", p2p.as_str());
        add(
            &name,
            analysis::frontier(points, |p| {
                p.spec.p2p == p2p && p.spec.architecture != Architecture::UpperBound
            }),
        );
    }
    let command = commands.of(&["pareto"], &["--frontier"]);
    html.element("h3", "Frontier");
    html.table(
        "Cells that no other one equals or beats in both completion latency and throughput per GPU while beating it in one.",
        &table,
        MOST_ROWS,
        &command,
    );
    html.command(&command);
}

fn comparisons(html: &mut Html, report: &ComparisonReport, commands: &Commands<'_>) {
    if report.pairs.is_empty() {
        return;
    }
    let mut table = Table::new([
        "cell",
        "baseline",
        "value",
        "TPOT ms",
        "baseline TPOT ms",
        "ratio of tokens/s",
        "differs",
        "overlap %",
        "baseline overlap %",
        "hidden share",
        "provenance",
    ]);
    for pair in &report.pairs {
        table.push(vec![
            Field::text(&pair.matched),
            Field::text(&pair.baseline),
            Field::text(&pair.value),
            Field::Number(pair.tpot_ms, 3),
            Field::Number(pair.baseline_tpot_ms, 3),
            Field::Interval(pair.speedup, pair.speedup_ci95, 3),
            Field::text(if pair.differs { "yes" } else { "not shown" }),
            Field::number(pair.overlap_pct, 1),
            Field::number(pair.baseline_overlap_pct, 1),
            match pair.hidden_share {
                Some(share) => Field::Interval(share, pair.hidden_share_ci95, 3),
                None => Field::None,
            },
            Field::text(pair.provenance),
        ]);
    }
    let differ = report.pairs.iter().filter(|pair| pair.differs).count();
    let command = commands.of(&["compare", "--by", &report.by], &[]);
    html.element("h3", &format!("Comparisons by {}", report.by));
    html.table(
        &format!(
            "{} comparisons, of which {differ} differ: the interval of the ratio excludes 1 (between simulations: the ratio is not 1). At 95%, about 1 in 20 intervals would exclude 1 by chance alone.",
            report.comparisons
        ),
        &table,
        MOST_ROWS,
        &command,
    );
    html.command(&command);
}

fn time(html: &mut Html, report: &ComparisonReport, commands: &Commands<'_>) {
    let mut table = Table::new([
        "cell",
        "difference",
        "decode ms",
        "transfer",
        "waiting for peers",
        "contention",
        "operations",
        "idle",
        "provenance",
    ]);
    for pair in &report.pairs {
        let both = [
            (format!("{} − {}", pair.baseline, pair.value), pair.saved),
            (format!("{} − upper-bound", pair.value), pair.above_upper_bound),
        ];
        // The upper bound less itself is nothing.
        for (name, difference) in both.into_iter().take(if pair.value == "upper-bound" { 1 } else { 2 })
        {
            let Some(d) = difference else { continue };
            let parts: [fn(&Difference) -> f64; 6] = [
                |d| d.decode_ms,
                |d| d.transfer_ms,
                |d| d.peer_wait_ms,
                |d| d.contention_ms,
                |d| d.operations_ms,
                |d| d.idle_ms,
            ];
            let mut row = vec![Field::text(&pair.matched), Field::text(name)];
            row.extend(parts.map(|of| Field::Number(of(&d), 2)));
            row.push(Field::text(pair.provenance));
            table.push(row);
        }
    }
    if table.is_empty() {
        return;
    }
    let command = commands.of(&["compare", "--by", "architecture"], &[]);
    html.element("h3", "Where the time went");
    html.table(
        "Differences of the decode phase, ms per rank, averaged over ranks; the parts make up the whole.",
        &table,
        MOST_ROWS,
        &command,
    );
    html.command(&command);
}
