//! `ladderscope diff A B`: two traces of one engine, step by step: what became slower or faster, and what explains it.

use std::path::PathBuf;

use clap::ValueEnum;

use super::output::{self, FormatArgs, OutputFormat};
use super::{gate, stderr};
use crate::desk::{self, OpenOptions, OpenedTrace};
use base::error::Result;
use base::text::{counted, fitting_name, latency};
use lab::store::Store;
use study::analysis::{Gate, GateReport, gate_table};
use study::diff::{
    ChangedOperation, PredictionCheck, SideSummary, StepPairing, StoredPrediction, TraceDiff, checked,
    checks_table, judge_diff, layers_table, operations_table, parts_table, trace_diff,
};
use table::render::{Shown, Sourced, Table};

/// Operations in the text; CSV and JSON have all.
const SHOWN_OPERATIONS: usize = 15;

/// Arguments of `ladderscope diff`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Trace before the change: stored run (id, prefix, 'last'), trace file, or directory with one file per rank
    #[arg(value_name = "A")]
    pub a: String,
    /// Trace after the change
    #[arg(value_name = "B")]
    pub b: String,
    /// Print one table instead of the report: operation, part, layer. JSON has all of them
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    pub by: Option<DiffGrouping>,
    /// Allowed change from A to B, for example 'tpot<+3%' (step latency) or 'exposed_ms<+0.1' (repeatable, all must
    /// pass); exit status 4 if a change is significantly larger; undecided if the confidence interval contains the limit
    #[arg(long, value_name = "GATE")]
    pub gate: Vec<Gate>,
    /// Exit with status 4 also if a gate is undecided
    #[arg(long, requires = "gate")]
    pub strict: bool,
    /// Compare the change with a prediction stored by `rewire --save` or `whatif --save`, and store its error
    #[arg(long, value_name = "NAME")]
    pub check: Option<String>,
    #[command(flatten)]
    pub opening: OpenOptions,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Row type of a table of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffGrouping {
    /// Each operation by name and place
    Operation,
    /// Parts of a step: compute, exposed communication, copies, idle, gap to the next step
    Part,
    /// Each layer of the model
    Layer,
}

/// Output of `diff` in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedDiff<'a> {
    #[serde(flatten)]
    diff: &'a TraceDiff,
    /// Verdict of the gates; null without any.
    gate: Option<&'a GateReport>,
    /// Errors of the stored prediction; empty without `--check`.
    checks: &'a [PredictionCheck],
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let store = Store::open(dir);
    let open = |source: &str| -> Result<OpenedTrace> {
        desk::open(source, &store, &args.opening.of_one(source), None)?.require_gpu_spans()
    };
    let (a, b) = (open(&args.a)?, open(&args.b)?);
    for opened in [&a, &b] {
        stderr::note_part(opened);
        stderr::import_warnings(opened);
    }
    let diff = trace_diff([(&a.trace, a.name().as_str()), (&b.trace, b.name().as_str())])?;
    if diff.phase.is_some() {
        stderr::note("decode steps only");
    }
    let gates = (!args.gate.is_empty()).then(|| judge_diff(&diff, &args.gate)).transpose()?;
    let checks = match &args.check {
        Some(name) => check_prediction(name, &store, &diff, &b)?,
        None => Vec::new(),
    };
    let csv = || {
        let table = match (&gates, args.by) {
            (Some(report), None) => gate_table(report),
            (_, by) => by_table(&diff, &diff.operations, by.unwrap_or(DiffGrouping::Operation))
                .with("first_provenance", &Shown::text(diff.a.provenance))
                .with("second_provenance", &Shown::text(diff.b.provenance)),
        };
        table.csv(Sourced::ByRow)
    };
    let printed = PrintedDiff { diff: &diff, gate: gates.as_ref(), checks: &checks };
    output::print(args.output.format, &printed, csv, || match args.by {
        Some(by) => titled(&diff, by),
        None => text(&diff, gates.as_ref(), &checks),
    })?;
    if args.output.format == OutputFormat::Table && gates.is_none() {
        diff.warnings.iter().for_each(|warning| stderr::warn(warning));
    }
    Ok(gates.map_or(0, |report| gate::print_gate_summary(&report, args.strict)))
}

/// Table of differences; `operations` are those of the diff, perhaps with short names.
fn by_table(diff: &TraceDiff, operations: &[ChangedOperation], by: DiffGrouping) -> Table {
    match by {
        DiffGrouping::Operation => operations_table(operations),
        DiffGrouping::Part => parts_table(diff),
        DiffGrouping::Layer => layers_table(&diff.layers),
    }
}

/// One table under its title, or a line if it would be empty.
fn titled(diff: &TraceDiff, by: DiffGrouping) -> String {
    if by == DiffGrouping::Layer && diff.layers.is_empty() {
        return "no layers: neither operation names nor ranges of both traces contain layer numbers\n"
            .into();
    }
    let title = match by {
        DiffGrouping::Operation => "By operation, per rank and step",
        DiffGrouping::Part => "Parts of a step, per rank",
        DiffGrouping::Layer => "By layer, per rank and step",
    };
    let table = by_table(diff, &shortened(diff, usize::MAX), by);
    format!("{title} ({})\n{}", provenance(diff), output::aligned(&table))
}

fn shortened(diff: &TraceDiff, most: usize) -> Vec<ChangedOperation> {
    let cut = |one: &ChangedOperation| ChangedOperation {
        name: fitting_name(&one.name, output::NAME_WIDTH),
        ..one.clone()
    };
    diff.operations.iter().take(most).map(cut).collect()
}

fn provenance(diff: &TraceDiff) -> String {
    match (diff.a.provenance, diff.b.provenance) {
        (a, b) if a == b => a.to_string(),
        (a, b) => format!("first {a}, second {b}"),
    }
}

fn side_in_words(side: &SideSummary) -> String {
    let overlap =
        side.overlap_pct.map_or("no communication".to_owned(), |pct| format!("overlap {pct:.1} %"));
    format!(
        "{} ({}, {}): {} per step, exposed communication {} of {}, {overlap}",
        side.name,
        side.provenance,
        counted(side.ranks as usize, "rank"),
        latency(side.step_us),
        latency(side.exposed_us),
        latency(side.comm_us),
    )
}

fn pairing_in_words(diff: &TraceDiff) -> String {
    let rule = match diff.paired_by {
        StepPairing::WholeTrace => return "whole traces, which have no steps".to_owned(),
        StepPairing::Number => "number",
        StepPairing::Order => "order",
    };
    format!(
        "{} of {} and {} steps, by {rule}; a step lasts until the next one begins{}",
        counted(diff.pairs, "pair"),
        diff.a.steps,
        diff.b.steps,
        if diff.leaves_out_last { ", so steps without a next one are left out" } else { "" }
    )
}

fn text(diff: &TraceDiff, gates: Option<&GateReport>, checks: &[PredictionCheck]) -> String {
    let mut text = output::wrapped("", &format!("{}.", diff.headline), 0);
    text += &output::wrapped("first     ", &side_in_words(&diff.a), 10);
    text += &output::wrapped("second    ", &side_in_words(&diff.b), 10);
    let by = if diff.by_operator { "name and framework operator" } else { "name" };
    let compared = format!("{}; operations matched by {by}", pairing_in_words(diff));
    text += &output::wrapped("compared  ", &compared, 10);
    text += &format!("\nParts of a step, per rank ({})\n", provenance(diff));
    text += &output::aligned(&parts_table(diff));
    let shown = shortened(diff, SHOWN_OPERATIONS);
    let selection = match diff.operations.len() {
        all if all > shown.len() => format!("the {} that delay the step most of {all}", shown.len()),
        _ => "those that delay the step most first".into(),
    };
    text += &format!("\nOperations, per rank and step: {selection}\n");
    text += &output::aligned(&operations_table(&shown));
    if !checks.is_empty() {
        text += "\nPrediction against measurement: speedup from first to second\n";
        text += &output::aligned(&checks_table(checks));
    }
    if let Some(gates) = gates {
        text += "\nGates\n";
        text += &output::aligned(&gate_table(gates));
    }
    text += "\nMore tables: --by operation|part|layer\n";
    text
}

/// Errors of a stored prediction; `after` is the second trace. A single one is stored with the prediction, in place of
/// an earlier one of the same traces.
fn check_prediction(
    name: &str,
    store: &Store,
    diff: &TraceDiff,
    after: &OpenedTrace,
) -> Result<Vec<PredictionCheck>> {
    let mut prediction: StoredPrediction = store.prediction(name)?;
    let architecture = after.trace.meta.spec.as_ref().map(|spec| spec.architecture.to_string());
    let checks = checked(&prediction, diff, architecture.as_deref(), &store.now())?;
    if let [check] = &checks[..] {
        let is_same = |old: &PredictionCheck| {
            (&old.label, &old.before, &old.after) == (&check.label, &check.before, &check.after)
        };
        prediction.checks.retain(|old| !is_same(old));
        prediction.checks.push(check.clone());
        store.set_prediction(name, &prediction)?;
    }
    Ok(checks)
}
