//! `ladderscope overlap RUN|TRACE`: overlap of a trace by rank, causes of idle time, exposed communication,
//! stragglers, and a breakdown of time.

use std::path::PathBuf;

use clap::ValueEnum;

use super::filter::FilterArgs;
use super::opening::OpenArgs;
use super::output::{self, Format, FormatArgs};
use super::select::SelectArgs;
use super::{overlap_rows as rows, overlap_text as text, report};
use crate::desk::{self, Engine};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Store;
use study::analysis::{self, TraceReport};
use study::rewire::estimate_messages;
use study::verdict::Verdict;
use table::P2p;
use table::render::{Shown, Sourced};
use trace::overlap::Selection;
use trace::rules::RuleReport;

const LIMITS: &str =
    "A single event of a JSON trace may take up to 64 MiB; --memory-limit applies to the whole trace.";

/// Arguments of `ladderscope overlap`.
#[derive(Debug, clap::Args)]
#[command(after_help = LIMITS)]
pub struct Args {
    /// Stored run (id, prefix, 'last'), trace file, or directory with one file per rank
    #[arg(value_name = "RUN|TRACE", required_unless_present = "filter")]
    pub source: Option<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Print one table instead of the report: step, layer, collective, range (NVTX), operator, product, kind, name,
    /// exposed (JSON contains all of them)
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    pub by: Option<By>,
    /// Hardware profile or TOML file: peaks for --by product [default: the trace's GPU], link for message sizes
    /// missing from the trace
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// P2P setting of the link for message sizes: on, off [default: on]
    #[arg(long, value_name = "P2P", requires = "hardware")]
    pub p2p: Option<P2p>,
    #[command(flatten)]
    pub opening: OpenArgs,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Row type of an overlap table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Prefill and each decode step, or each profiler step
    Step,
    /// Each layer of the model
    Layer,
    /// Each collective of the plan
    Collective,
    /// Each NVTX range or annotation, by name
    Range,
    /// Each framework operator that launched work, or host call if there is none
    Operator,
    /// Each shape of matrix products and attention, with the share of the GPU's peak
    Product,
    /// Each kind of operation
    Kind,
    /// Each operation by name: a kernel, or an operation of the plan across all layers
    Name,
    /// Longest spans of exposed communication, with the operations that waited
    Exposed,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let source = args.filter.one(args.source.as_ref(), &dir)?;
    let store = Store::open(dir);
    let opened = desk::open(&source, &store, args.opening.options(args.select.step))?.with_gpu()?;
    report::part(&opened);
    let (trace, rules) = (opened.trace, opened.classified);
    let selection = args.select.resolve(&trace)?;
    let mut report = analysis::trace_report(&trace, &selection);
    if report.overlap.ranks.iter().all(|rank| rank.busy_us == 0.0) {
        let events: u64 = report.kinds.iter().map(|kind| kind.count).sum();
        if events > 0 {
            return Err(Error::input_help(
                format!("{} selected, all of zero duration", counted(events as usize, "GPU event")),
                "check the durations in the file (`dur` in Kineto JSON, \
                 us), or select another part with --from, --to, --step",
            ));
        }
        let starts = trace.spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let ends = trace.spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        return Err(Error::input_help(
            "nothing of the trace lies in what was selected",
            format!("it lasts {:.3} ms; --phase all takes every step", (ends - starts) as f64 / 1e6),
        ));
    }
    let engine = Engine { hardware: args.hardware.clone(), ..Engine::default() };
    let (target, machine) = match desk::machine_of(&trace, &engine) {
        // an invalid or missing profile named in the trace only removes the shares of peak
        Err(error) if args.hardware.is_none() => (None, error.to_string()),
        machine => machine?,
    };
    if let Some(target) = &target {
        report.products.rate(&target.profile);
        if args.hardware.is_some() {
            estimate_messages(&mut report.collectives, target, args.p2p.unwrap_or(P2p::On));
        }
    }
    let without_profile = target.is_none().then_some(machine);
    let verdict = |report| desk::verdict_on(target.clone(), &trace, report, &selection);
    match args.output.format {
        Format::Json => json(&report, &verdict(&report), &rules, &selection)?,
        Format::Csv => output::emit(
            &match args.by {
                Some(by) => rows::by(&report, by),
                None => rows::ranks(&report.overlap, false),
            }
            .with("provenance", &report.overlap.provenance.map_or(Shown::None, Shown::text))
            .csv(Sourced::ByRow),
        )?,
        Format::Table => output::emit(&match args.by {
            Some(by) => text::by(&report, by, without_profile.as_deref())?,
            None => text::report(&report, &verdict(&report), &rules, without_profile.as_deref()),
        })?,
    }
    Ok(0)
}

/// Output of a trace in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    #[serde(flatten)]
    report: &'a TraceReport,
    /// Verdict in words and numbers.
    verdict: &'a Verdict,
    /// Classification by the rules; absent for own traces, whose plan has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a RuleReport>,
    selection: PrintedSelection,
}

/// Selected part of the trace; null for all of it.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedSelection {
    phase: Option<&'static str>,
    step: Option<u32>,
    from_us: Option<f64>,
    to_us: Option<f64>,
}

fn json(
    report: &TraceReport,
    verdict: &Verdict,
    rules: &RuleReport,
    selection: &Selection,
) -> Result<()> {
    let us = |ns: i64| ns as f64 / 1e3;
    let printed = Printed {
        report,
        verdict,
        rules: Some(rules).filter(|rules| !rules.is_empty()),
        selection: PrintedSelection {
            phase: selection.phase.map(|phase| phase.as_str()),
            step: selection.step,
            from_us: selection.from_ns.map(us),
            to_us: selection.to_ns.map(us),
        },
    };
    let mut value = serde_json::to_value(printed).map_err(|e| Error::failed(e.to_string()))?;
    // The sum over ranks has no rank.
    if let Some(all) = value.get_mut("all").and_then(|all| all.as_object_mut()) {
        all.remove("rank");
    }
    output::json(&value)
}
