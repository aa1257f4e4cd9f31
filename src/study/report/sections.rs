//! Sections about all runs: questions, models side by side, flags, accuracy of the simulator, failed runs,
//! environments, glossary.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::commands::Commands;
use super::html::Html;
use super::{Report, RunComparisons, set};
use crate::analysis::CellSet;
use crate::plot::{self, FigureOptions};
use crate::validate::{DataSet, Overrides, Score, card, orders_table};
use base::error::Result;
use base::text::counted;
use table::render::{Shown, Table};
use table::{Link, Record, Status};

/// Maximum rows of a table and items of a list; the page says how many it omits.
const MOST_LINES: usize = 60;

/// Same for machines with their environments, which take many rows each.
const MOST_ENVIRONMENTS: usize = 8;

/// Lists the questions of the experiments, with links to the sets that answer them.
pub fn questions(html: &mut Html, report: &Report<'_>, sets: &[CellSet]) {
    if report.questions.is_empty() {
        return;
    }
    html.element("h2", "Questions").raw("<dl>\n");
    for (name, question) in &report.questions {
        html.element("dt", &format!("{question} (experiment {name})"));
        let mine = |set: &&CellSet| {
            set.cells.iter().any(|cell| cell.experiment.as_deref() == Some(name.as_str()))
        };
        let mut answered = false;
        for set in sets.iter().filter(mine) {
            let runs: BTreeSet<&str> = set.cells.iter().map(|cell| cell.run.as_str()).collect();
            answered = true;
            let index = sets.iter().position(|other| other.name == set.name).unwrap_or(0);
            html.raw("<dd>")
                .raw(&format!("<a href=\"#set{index}\">{}</a>: ", counted(runs.len(), "cell")));
            html.raw(&base::text::escape(&set.name)).raw("</dd>\n");
        }
        if !answered {
            html.element("dd", "no results in the sections below");
        }
    }
    html.raw("</dl>\n");
}

/// Compares sets that differ only in the model, side by side.
pub fn over_models(
    html: &mut Html,
    report: &Report<'_>,
    sets: &[CellSet],
    compared: &RunComparisons,
) -> Result<()> {
    let by = &compared.by_architecture;
    let drawn = plot::improvement_figure(sets, by, &report.provenance, &FigureOptions::default());
    html.element("h2", "Models side by side");
    match drawn {
        Ok(figure) => {
            let command = Commands::of_all(&report.origin)
                .verb(&["figure", "improvement"], &["-o", "improvement.svg"]);
            set::figure(html, &figure, "models", &command)
        }
        Err(error) => {
            html.element("p class=\"soft\"", &format!("No figure: {error}."));
            Ok(())
        }
    }
}

pub fn flags(html: &mut Html, compared: &RunComparisons) {
    html.raw("<section id=\"flags\">").element("h2", "Suspicious results");
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let all = compared.by_architecture.flags.iter().chain(&compared.by_p2p.flags);
    let flags: Vec<&str> =
        all.map(|flag| flag.text.as_str()).filter(|text| seen.insert(*text)).collect();
    if flags.is_empty() {
        html.element(
            "p",
            "None: no higher TP is slower than a lower one, upper-bound does not depend on P2P, and no run printed a warning.",
        );
    } else {
        set::list(html, flags.iter().copied().take(MOST_LINES));
    }
    if flags.len() > MOST_LINES {
        html.element("p", &format!("{} more not listed.", flags.len() - MOST_LINES));
    }
    html.raw("</section>\n");
}

/// Reports the simulator's error on published data for the hardware and stacks of the simulated runs.
pub fn validation(html: &mut Html, records: &[Record]) -> Result<()> {
    let simulated = |set: &DataSet| {
        records.iter().any(|record| {
            let spec = &record.spec;
            let as_they_are = spec.set.is_empty() && spec.link == Link::Native;
            spec.backend.is_simulated() && as_they_are && set.is_on(&spec.hardware, &spec.stack)
        })
    };
    let sets = DataSet::built_in()?.into_iter().filter(simulated);
    let scores: Vec<Score> =
        sets.map(|set| Score::new(&set, &set.runs(&Overrides::default())?)).collect::<Result<_>>()?;
    if scores.is_empty() {
        return Ok(());
    }
    html.raw("<section id=\"validation\">").element("h2", "Simulator accuracy");
    html.element(
        "p",
        "Mean and largest absolute error of predictions against published measurements on the same hardware and stack. Expect larger errors on data that the constants were not fitted to.",
    );
    for set in scores.iter().map(|score| &score.set) {
        let fitted = if set.fitted.is_empty() { "nothing".into() } else { set.fitted.join("; ") };
        let text = format!("{}: {} ({}). Fitted to it: {fitted}.", set.name, set.about, set.source);
        html.element("p class=\"soft\"", &text);
    }
    html.table(
        "Error = predicted / measured - 1; for measures in points, predicted - measured.",
        &card(&scores),
        MOST_LINES,
        "ladderscope validate",
    );
    let orders = scores.iter().flat_map(|score| score.orders.iter().map(|o| (&*score.set.name, o)));
    let orders = orders_table(orders);
    if !orders.is_empty() {
        html.table(
            "Ranking: does the simulator order two architectures as measured?",
            &orders,
            MOST_LINES,
            "ladderscope validate",
        );
    }
    html.raw("</section>\n");
    Ok(())
}

pub fn unfinished(html: &mut Html, report: &Report<'_>) {
    let not: Vec<&Record> = report.records.iter().filter(|r| r.status != Status::Ok).collect();
    html.raw("<section id=\"unfinished\">").element("h2", "Failed and skipped cells");
    if not.is_empty() {
        html.element(
            "p",
            "All runs succeeded. Cells that cannot fit or run are not started and not listed.",
        );
    } else {
        let table = Table::from_rows(
            not,
            &[
                ("status", &|r: &Record| {
                    Shown::text(format!("{} {}", r.status.glyph(), r.status.as_str()))
                }),
                ("run", &|r| Shown::text(&r.run)),
                ("model", &|r| Shown::text(&r.spec.model)),
                ("cell", &|r| Shown::text(r.spec.label())),
                ("reason", &|r| r.reason.as_deref().and_then(|why| why.lines().next()).into()),
            ],
        );
        let command = Commands::of_all(&report.origin).listing("-status:ok");
        html.table("Failed, interrupted and skipped runs.", &table, MOST_LINES, &command)
            .command(&command);
    }
    html.raw("</section>\n");
}

/// Environment keys that identify machine and software, in display order.
const KEYS: [&str; 13] = [
    "host",
    "cpu",
    "gpus",
    "driver",
    "nccl",
    "clocks",
    "memory_bytes",
    "numa_nodes",
    "kernel",
    "os",
    "container",
    "version",
    "commit",
];

pub fn environments(html: &mut Html, report: &Report<'_>) {
    html.raw("<section id=\"environment\">").element("h2", "Machine and environment");
    let mut kinds: BTreeMap<Vec<(String, String)>, usize> = BTreeMap::new();
    for record in &report.environments {
        let mut lines: Vec<(String, String)> = Vec::new();
        lines.push(("provenance".into(), record.provenance.to_string()));
        for key in KEYS {
            let value = record.environment.get(key).filter(|value| !value.is_null());
            lines.extend(value.map(|value| (key.replace('_', " "), shown(value))));
        }
        let variables = record.environment.get("variables").filter(|v| *v != &serde_json::json!({}));
        lines.extend(variables.map(|value| ("variables".into(), shown(value))));
        *kinds.entry(lines).or_default() += 1;
    }
    if kinds.is_empty() {
        html.element("p", "Not recorded.");
    }
    let count = kinds.len();
    for (lines, _) in kinds.into_iter().take(MOST_ENVIRONMENTS) {
        html.raw("<dl>\n");
        for (key, value) in lines {
            html.element("dt", &key).element("dd", &value);
        }
        html.raw("</dl>\n");
    }
    if count > MOST_ENVIRONMENTS {
        html.element("p", &format!("{} more not listed.", count - MOST_ENVIRONMENTS));
    }
    html.element(
        "p class=\"soft\"",
        "For simulated runs: the machine that ran the simulator. It does not affect the results.",
    );
    if let Some(record) = report.environments.first() {
        html.command(&Commands::of_all(&report.origin).show(&record.run));
    }
    html.raw("</section>\n");
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(map) => {
            let pairs = map.iter().filter(|(_, value)| !value.is_null());
            pairs.map(|(key, value)| format!("{key} {}", shown(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(list) => list.iter().map(shown).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}

pub fn words(html: &mut Html) {
    html.raw("<section id=\"words\">").element("h2", "Glossary").raw("<dl>\n");
    for (word, means) in [
        (
            "cell, run, sample, round",
            "Cell: one point of the grid. Run: one execution of a cell in its own process. Sample: one timed generation of a run. Round: one pass over all cells. Scalars are medians over samples.",
        ),
        (
            "TTFT, TPOT, completion latency",
            "Time to first token (prefill latency). Time per output token (decode latency / steps; percentiles over the steps of all samples). Completion latency: prefill plus decode.",
        ),
        (
            "throughput",
            "Batch x output tokens / completion latency; per GPU: divided by the number of GPUs.",
        ),
        (
            "exposed and hidden communication, overlap %",
            "Exposed: time when a rank communicates but does not compute. Overlap %, the hidden share of communication, = 100 x (1 - exposed / communication), from unions of intervals per rank, summed over ranks.",
        ),
        (
            "gap closed",
            "(standard - architecture) / (standard - upper-bound), in TPOT of matched cells. It measures the gain; overlap % measures only concurrency.",
        ),
        (
            "intervals",
            "Of a cell: 95 % bootstrap intervals that resample rounds, then samples within each round. Of a ratio: Student's t of the logarithms of the rounds' ratios; of a single round a bootstrap of its samples. Runs with fewer than 6 samples and simulations (deterministic) have none.",
        ),
        (
            "verdict",
            "Faster, slower: a difference of at least 0.5 %, between measurements significant (p-value adjusted for the number of comparisons), between simulations beyond the simulator's error. The same: less than 0.5 %. Too close: simulations within the simulator's error. Not significant: may be chance. Unknown: fewer than 6 samples.",
        ),
        (
            "upper-bound",
            "No all-reduces at all. Its output is wrong; it only shows the speed limit of hiding communication.",
        ),
        (
            "measured, emulated-link, simulated, shared-gpu",
            "Measured: timed on the machine's own link. Emulated-link: timed with all-reduces delayed by an emulated link. Simulated: predicted by a discrete-event simulation. Shared-gpu: ranks shared one GPU to check correctness; their latencies are meaningless and left out.",
        ),
    ] {
        html.element("dt", word).element("dd", means);
    }
    html.raw("</dl></section>\n");
}
