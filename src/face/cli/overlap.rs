//! `ladderscope overlap RUN|TRACE`: overlap of a trace by rank, causes of idle time, exposed communication, stragglers, and a
//! breakdown of time, as tables. Times are in microseconds in files, in the unit of their size in
//! tables; files use the keys of JSON.

use std::path::PathBuf;

use clap::ValueEnum;

use super::filter::FilterArgs;
use super::output::{self, FormatArgs, OutputFormat};
use super::select::SelectArgs;
use super::{overlap_text, stderr};
use crate::desk::{self, ChosenMachine, MachineChoice, OpenOptions};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Store;
use study::analysis::{
    self, GroupRow, LayerRow, OperatorRow, RangeRow, RankArrivals, Stragglers, TraceReport,
    collectives_table, names_table, products_table, ranks_table, steps_table, stretches_table,
};
use study::rewire::{Setting, estimate_messages};
use study::verdict::{Verdict, verdict};
use table::P2p;
use table::render::{Shown, Sourced, Table};
use trace::Trace;
use trace::overlap::Selection;
use trace::rules::RuleReport;

const LIMITS: &str =
    "A single event of a JSON trace may take up to 64 MiB; --memory-limit applies to the whole trace.";

/// Arguments of `ladderscope overlap`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = LIMITS)]
pub struct Args {
    /// Stored run (id, prefix, 'last'), trace file, or directory with one file per rank
    #[arg(value_name = "RUN|TRACE", required_unless_present = "filter")]
    pub source: Option<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Print one table instead of the report: step, layer, collective, range (NVTX), operator (that launched the
    /// kernels), product (matrix products, with MFU), kind, name, exposed (longest intervals). JSON has all of them
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    pub by: Option<OverlapGrouping>,
    /// Hardware profile (name or TOML file): peak FLOP/s for --by product [default: the trace's GPU], and the link to
    /// estimate missing message sizes
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// P2P setting of the profile's link for estimated message sizes: on, off [default: on]
    #[arg(long, value_name = "P2P", requires = "hardware")]
    pub p2p: Option<P2p>,
    #[command(flatten)]
    pub opening: OpenOptions,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Row type of an overlap table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverlapGrouping {
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

impl OverlapGrouping {
    /// Value of `--by`.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let source = args.filter.one_run(args.source.as_ref(), &dir)?;
    let store = Store::open(dir);
    let opened = desk::open(&source, &store, &args.opening, args.select.step)?.require_gpu_spans()?;
    stderr::note_part(&opened);
    if args.by.is_some() || args.output.format == OutputFormat::Csv {
        stderr::import_warnings(&opened);
    }
    let (trace, rules) = (opened.trace, opened.classified);
    let selection = args.select.resolve(&trace)?;
    let mut report = analyzed(&trace, &selection)?;
    let choice = MachineChoice { hardware: args.hardware.clone(), ..MachineChoice::default() };
    let ChosenMachine { target, reason } = match desk::choose_machine(&trace, &choice) {
        // an invalid or missing profile named in the trace only removes the shares of peak
        Err(error) if args.hardware.is_none() => {
            ChosenMachine { target: None, reason: error.to_string() }
        }
        machine => machine?,
    };
    if let Some(target) = &target {
        report.products.rate(&target.profile);
        if args.hardware.is_some() {
            estimate_messages(&mut report.collectives, target, args.p2p.unwrap_or(P2p::On));
        }
    }
    let without_profile = target.is_none().then_some(reason);
    let setting = Setting { target, ..Setting::default() };
    let verdict = || verdict(&trace, &report, &selection, &setting);
    match args.output.format {
        OutputFormat::Json => output::json(&PrintedOverlap {
            report: &report,
            verdict: &verdict(),
            rules: Some(&rules).filter(|rules| !rules.is_empty()),
            selection: PrintedSelection::from_selection(&selection),
        })?,
        OutputFormat::Csv => output::emit(
            &match args.by {
                Some(by) => table_by(&report, by),
                None => ranks_table(&report.overlap, false),
            }
            .with("provenance", &report.overlap.provenance.map_or(Shown::None, Shown::text))
            .csv(Sourced::ByRow),
        )?,
        OutputFormat::Table => output::emit(&match args.by {
            Some(by) => overlap_text::table_text(&report, by, without_profile.as_deref())?,
            None => overlap_text::report_text(&report, &verdict(), &rules, without_profile.as_deref()),
        })?,
    }
    Ok(0)
}

/// Analyses the selected part of a trace. Returns an input error if nothing is selected.
pub fn analyzed(trace: &Trace, selection: &Selection) -> Result<TraceReport> {
    let report = analysis::trace_report(trace, selection);
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
        let other = match (selection.from_ns, selection.to_ns) {
            (None, None) => "select everything with --phase all",
            _ => "the GPU is idle between --from and --to: widen them",
        };
        return Err(Error::input_help(
            "no GPU work is selected",
            format!("the trace is {:.3} ms long; {other}", (ends - starts) as f64 / 1e6),
        ));
    }
    Ok(report)
}

/// Output of a trace in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedOverlap<'a> {
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

impl PrintedSelection {
    fn from_selection(selection: &Selection) -> Self {
        let us = |ns: i64| ns as f64 / 1e3;
        Self {
            phase: selection.phase.map(|phase| phase.as_str()),
            step: selection.step,
            from_us: selection.from_ns.map(us),
            to_us: selection.to_ns.map(us),
        }
    }
}

pub fn table_by(report: &TraceReport, by: OverlapGrouping) -> Table {
    match by {
        OverlapGrouping::Step => steps_table(&report.steps),
        OverlapGrouping::Layer => layers_table(&report.layers),
        OverlapGrouping::Collective => collectives_table(&report.collectives),
        OverlapGrouping::Range => ranges_table(&report.ranges),
        OverlapGrouping::Operator => operators_table(&report.operators),
        OverlapGrouping::Product => products_table(&report.products.rows),
        OverlapGrouping::Kind => groups_table("kind", &report.kinds),
        OverlapGrouping::Name => names_table(&report.names),
        OverlapGrouping::Exposed => stretches_table(&report.exposed_stretches.longest),
    }
}

fn layers_table(layers: &[LayerRow]) -> Table {
    Table::from_rows(
        layers,
        &[
            ("layer", &|l| l.layer.map_or(Shown::text("none"), Shown::from)),
            ("count|count, all ranks", &|l| l.count.into()),
            ("compute_us", &|l| Shown::Time(l.compute_us)),
            ("comm_us", &|l| Shown::Time(l.comm_us)),
            ("exposed_us", &|l| Shown::Time(l.exposed_us)),
            ("hidden_pct|overlap %", &|l| {
                let hidden = 100.0 * (1.0 - l.exposed_us / l.comm_us);
                Shown::number((l.comm_us > 0.0).then_some(hidden), 1)
            }),
        ],
    )
}

fn ranges_table(ranges: &[RangeRow]) -> Table {
    Table::from_rows(
        ranges,
        &[
            ("~range", &|r| Shown::text(&r.name)),
            ("count|count, all ranks", &|r| r.count.into()),
            ("time_us|host time", &|r| Shown::time(r.time_us)),
            ("device_us|first to last kernel", &|r| Shown::time(r.device_us)),
            ("busy_us", &|r| Shown::Time(r.busy_us)),
            ("compute_us", &|r| Shown::Time(r.compute_us)),
            ("comm_us", &|r| Shown::Time(r.comm_us)),
            ("exposed_us", &|r| Shown::Time(r.exposed_us)),
        ],
    )
    .least(&["busy_us", "device_us", "time_us"])
}

/// Table of operators that launched GPU work.
fn operators_table(operators: &[OperatorRow]) -> Table {
    Table::from_rows(
        operators,
        &[
            ("~operator", &|o| Shown::text(&o.name)),
            ("count|count, all ranks", &|o| o.count.into()),
            ("total_us", &|o| Shown::Time(o.total_us)),
            ("comm_us", &|o| Shown::Time(o.comm_us)),
            ("exposed_us", &|o| Shown::Time(o.exposed_us)),
        ],
    )
}

pub fn groups_table(name: &'static str, groups: &[GroupRow]) -> Table {
    Table::from_rows(
        groups,
        &[
            (&format!("~{name}"), &|g| Shown::text(&g.name)),
            ("lane", &|g| Shown::text(g.lane)),
            ("count|count, all ranks", &|g| g.count.into()),
            ("total_us", &|g| Shown::Time(g.total_us)),
            ("exposed_us", &|g| Shown::Time(g.exposed_us)),
            ("hidden_pct|overlap %", &|g| Shown::number(g.hidden_pct, 1)),
        ],
    )
}

/// Table of stragglers: ranks that were late at collectives.
pub fn stragglers_table(stragglers: &Stragglers) -> Table {
    Table::from_rows(
        &stragglers.ranks,
        &[
            ("rank", &|r: &RankArrivals| r.rank.into()),
            ("times last", &|r| r.times_last.into()),
            ("last %", &|r| Shown::Number(100.0 * r.share, 1)),
            ("late, median", &|r| Shown::Time(r.late_median_us)),
            ("late, max", &|r| Shown::Time(r.late_max_us)),
            ("others waited, sum", &|r| Shown::Time(r.caused_us)),
            ("waited", &|r| Shown::Time(r.waited_us)),
        ],
    )
}
