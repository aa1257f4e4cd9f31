//! `ladderscope figure KIND [RUNS|DIR] -o FILE`: figures fit for a paper.

use std::path::PathBuf;

use clap::ValueEnum;

use super::filter::FilterArgs;
use super::report;
use crate::base::error::{Error, Result};
use crate::desk::{self, Stores, overlap_pair};
use crate::lab::store::Store;
use crate::study::analysis::{self, CellSet};
use crate::study::plot::{self, Figure, Options, ParetoData, Part, ProvenanceSummary, Size};
use crate::table::{P2p, Record, Status};
use crate::trace::Trace;

/// The command line's arguments of `ladderscope figure`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What it shows
    #[arg(value_enum, value_name = "KIND")]
    pub kind: Kind,
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all of --dir]; for overlap also traces,
    /// the first one above
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// The file: .svg or .png
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only runs with this P2P setting: on, off
    #[arg(long, value_name = "on|off")]
    pub p2p: Option<P2p>,
    #[command(flatten)]
    pub look: LookArgs,
    /// pareto: points of others beside: published (the 70B points of arXiv 2501.06589) or a CSV file
    #[arg(long, value_name = "published|FILE")]
    pub overlay: Vec<String>,
    /// overlap: the decode step, from 0 [default: the middle one]
    #[arg(long, value_name = "N")]
    pub step: Option<u32>,
    /// overlap: how many layers, from the middle of the model
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub layers: u32,
    /// overlap: whose lanes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub rank: u32,
}

/// Size and resolution of a figure.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct LookArgs {
    /// Inches, as 3.3x2.5; a width alone, column (3.33) or page (6.9) leave the height to the content
    #[arg(long, value_name = "SIZE", default_value = "page")]
    pub size: Size,
    /// Pixels an inch of a PNG
    #[arg(long, value_name = "DPI", default_value_t = 300)]
    pub dpi: u32,
    /// Height of the font in points, the same at every size
    #[arg(long, value_name = "POINTS", default_value_t = 8.0)]
    pub font: f64,
}

impl LookArgs {
    /// The arguments as options of a figure, checked.
    pub fn options(&self) -> Result<Options> {
        let options = Options { size: self.size, dpi: self.dpi, font: self.font };
        options.check()?;
        Ok(options)
    }
}

/// What a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Completion latency against throughput per GPU, a frontier for each architecture and P2P setting
    Pareto,
    /// Tokens/s over TP by architecture and P2P, a chart a batch
    Throughput,
    /// Tokens/s over those of standard, in percent, with intervals
    Improvement,
    /// Lanes of one decode step, standard over ladder
    Overlap,
    /// Tokens/s with P2P on beside off
    P2p,
}

/// Makes the figure that was asked for and writes it.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    plot::check_format(&args.output)?;
    let options = args.look.options()?;
    let figure = match traces_named(args, &dir)? {
        Some((traces, provenance)) => overlap_of(&traces, args, &provenance, &options)?,
        None => of_records(args, &dir, &options)?,
    };
    figure.save(&args.output)?;
    report::note(&format!("wrote {}: {} ({})", args.output.display(), figure.title(), figure.caption()));
    Ok(0)
}

fn of_records(args: &Args, dir: &std::path::Path, options: &Options) -> Result<Figure> {
    let mut records = args.filter.records(&args.runs, dir)?;
    records.retain(|record| args.p2p.is_none_or(|p2p| record.spec.p2p == p2p));
    records.retain(|record| record.status == Status::Ok && record.metrics.is_some());
    if records.is_empty() {
        return Err(Error::input_help(
            "there is nothing to draw: no finished runs",
            "`ladderscope runs` lists what is stored; `ladderscope sweep quickstart` makes some",
        ));
    }
    let stores = Stores::named(&args.runs, dir);
    let provenance = stores.provenance(&records);
    match args.kind {
        Kind::Pareto => {
            let points = analysis::pareto(&records);
            let overlay = plot::overlay(&super::pareto::read_overlays(&args.overlay)?, &points);
            let data = ParetoData { points: &points, overlay };
            plot::pareto_figure(&data, &provenance, options)
        }
        Kind::Throughput => plot::throughput_figure(&one_set(&records)?, &provenance, options),
        Kind::P2p => plot::p2p_figure(&one_set(&records)?, &provenance, options),
        Kind::Improvement => {
            let sets = analysis::comparable(&records);
            if !analysis::differ_in_model(&sets) {
                one_set(&records)?;
            }
            let comparison = analysis::compare(&records, "architecture")?;
            plot::improvement_figure(&sets, &comparison, &provenance, options)
        }
        Kind::Overlap => {
            let set = one_set(&records)?;
            let (standard, ladder) = overlap_pair(&set)?;
            report::note(&format!(
                "standard ({}) over ladder ({}), {}; name two runs or --filter for others",
                standard.run,
                ladder.run,
                standard.spec.label()
            ));
            let traces = [stores.trace(standard, args.step)?, stores.trace(ladder, args.step)?];
            let provenance = stores.provenance(&[standard.clone(), ladder.clone()]);
            overlap_of(&traces, args, &provenance, options)
        }
    }
}

fn overlap_of(
    traces: &[Trace],
    args: &Args,
    provenance: &ProvenanceSummary,
    options: &Options,
) -> Result<Figure> {
    let part = Part { step: args.step, layers: args.layers, rank: args.rank };
    plot::overlap_figure(&traces.iter().collect::<Vec<_>>(), &part, provenance, options)
}

/// The traces that were named one by one, for overlap: files, or stored runs; and where their numbers
/// come from. `None` where batches or directories of runs were named.
fn traces_named(args: &Args, dir: &std::path::Path) -> Result<Option<(Vec<Trace>, ProvenanceSummary)>> {
    let store = Store::open(dir);
    let single = |name: &String| {
        let path = std::path::Path::new(name);
        path.is_file() || (!path.is_dir() && !matches!(store.batch(name), Ok(Some(_))))
    };
    let chosen = args.filter.typed().is_some();
    if chosen || args.kind != Kind::Overlap || args.runs.is_empty() || !args.runs.iter().all(single) {
        return Ok(None);
    }
    let (mut traces, mut records) = (Vec::new(), Vec::new());
    for name in &args.runs {
        let opened = desk::open(name, &store, None, args.step)?;
        report::part(&opened);
        let mut trace = opened.trace;
        if let Some(record) = opened.record {
            // A trace of a simulation made just now knows nothing of what simulated it before.
            trace.meta.environment.clone_from(&record.environment);
            records.push(*record);
        }
        traces.push(trace);
    }
    let mut provenance = ProvenanceSummary::of_traces(&traces);
    provenance.days = ProvenanceSummary::of_records(&records).days;
    Ok(Some((traces, provenance)))
}

/// The one set of comparable cells; more than one is the user's to choose from.
fn one_set(records: &[Record]) -> Result<CellSet> {
    const LISTED: usize = 6;
    let mut sets = analysis::comparable(records);
    match sets.len() {
        1 => Ok(sets.remove(0)),
        n => {
            let mut names: Vec<&str> = sets.iter().take(LISTED).map(|set| set.name.as_str()).collect();
            if n > LISTED {
                names.push("...");
            }
            Err(Error::input_help(
                format!("{n} sets of runs that are not comparable with each other"),
                format!(
                    "choose one with --filter, for example 'model=NAME':\n    {}",
                    names.join("\n    ")
                ),
            ))
        }
    }
}
