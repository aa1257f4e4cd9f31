//! `ladderscope figure KIND [RUNS|DIR] -o FILE`: figures fit for a paper.

use std::path::PathBuf;

use clap::ValueEnum;

use super::source::{self, Source};
use super::{report, runs};
use crate::analysis::{self, CellSet};
use crate::error::{Error, Result};
use crate::plan::Architecture;
use crate::plot::{self, Facts, Figure, Options, ParetoData, Part, Size};
use crate::spec::P2p;
use crate::store::{Record, Status, Store};
use crate::trace::Trace;
use crate::trace::rules::Rules;

/// Arguments of `figure`.
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
    /// Only runs that meet these conditions (as in `runs`), for example 'batch<=16 hardware=h100_sxm'
    #[arg(long, value_name = "CONDITIONS")]
    pub filter: Option<String>,
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
    /// As options, checked.
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

/// Writes the figure.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    plot::check_format(&args.output)?;
    let options = args.look.options()?;
    let figure = match traces_named(args, &dir)? {
        Some((traces, facts)) => overlap_of(&traces, args, &facts, &options)?,
        None => of_records(args, &dir, &options)?,
    };
    figure.save(&args.output)?;
    report::note(&format!("wrote {}: {} ({})", args.output.display(), figure.title(), figure.caption()));
    Ok(0)
}

fn of_records(args: &Args, dir: &std::path::Path, options: &Options) -> Result<Figure> {
    let filter = args.p2p.map(|p2p| format!("p2p={} ", p2p.as_str())).unwrap_or_default()
        + args.filter.as_deref().unwrap_or_default();
    let filter = Some(filter.trim()).filter(|conditions| !conditions.is_empty());
    let mut records = runs::filtered(runs::select(&args.runs, dir)?, filter, None)?;
    records.retain(|record| record.status == Status::Ok && record.metrics.is_some());
    if records.is_empty() {
        return Err(Error::input_help(
            "there is nothing to draw: no finished runs",
            "`ladderscope runs` lists what is stored; `ladderscope sweep quickstart` makes some",
        ));
    }
    let stores = stores(&args.runs, dir);
    let facts = facts(&records, &stores);
    match args.kind {
        Kind::Pareto => {
            let points = analysis::pareto(&records);
            let overlay = plot::overlay(&super::pareto::read_overlays(&args.overlay)?, &points);
            let data = ParetoData { points: &points, overlay };
            plot::pareto_figure(&data, &facts, options)
        }
        Kind::Throughput => plot::throughput_figure(&one_set(&records)?, &facts, options),
        Kind::P2p => plot::p2p_figure(&one_set(&records)?, &facts, options),
        Kind::Improvement => {
            let sets = analysis::comparable(&records);
            if !analysis::differ_in_model(&sets) {
                one_set(&records)?;
            }
            let comparison = analysis::compare(&records, "architecture")?;
            plot::improvement_figure(&sets, &comparison, &facts, options)
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
            let traces = [trace_of(standard, &stores)?, trace_of(ladder, &stores)?];
            let facts = self::facts(&[standard.clone(), ladder.clone()], &stores);
            overlap_of(&traces, args, &facts, options)
        }
    }
}

fn overlap_of(traces: &[Trace], args: &Args, facts: &Facts, options: &Options) -> Result<Figure> {
    let part = Part { step: args.step, layers: args.layers, rank: args.rank };
    plot::overlap_figure(&traces.iter().collect::<Vec<_>>(), &part, facts, options)
}

/// The traces that were named one by one, for overlap: files, or stored runs; and where their numbers
/// come from. `None` where batches or directories of runs were named.
fn traces_named(args: &Args, dir: &std::path::Path) -> Result<Option<(Vec<Trace>, Facts)>> {
    let store = Store::open(dir);
    let single = |name: &String| {
        let path = std::path::Path::new(name);
        path.is_file() || (!path.is_dir() && !matches!(store.batch(name), Ok(Some(_))))
    };
    if args.kind != Kind::Overlap || args.runs.is_empty() || !args.runs.iter().all(single) {
        return Ok(None);
    }
    let (mut traces, mut records) = (Vec::new(), Vec::new());
    for name in &args.runs {
        let source = Source::find(name, &store)?;
        let (mut trace, _) = source.trace(&store, &Rules::default())?;
        if let Source::Stored(record) = source {
            // A trace of a simulation made just now knows nothing of what simulated it before.
            trace.meta.environment.clone_from(&record.environment);
            records.push(*record);
        }
        traces.push(trace);
    }
    let mut facts = Facts::of_traces(&traces);
    facts.days = Facts::of_records(&records).days;
    Ok(Some((traces, facts)))
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

/// Standard and ladder at the largest TP, with P2P where there is a choice, at the smallest batch.
pub fn overlap_pair(set: &CellSet) -> Result<(&Record, &Record)> {
    let ladder = |cell: &Record| {
        let spec = &cell.spec;
        set.cells.iter().find(|other| {
            matches!(other.spec.architecture, Architecture::Ladder(_))
                && (other.spec.tp, other.spec.batch, other.spec.p2p) == (spec.tp, spec.batch, spec.p2p)
        })
    };
    let standard = set.cells.iter().filter(|cell| cell.spec.architecture == Architecture::Standard);
    let pairs = standard.filter_map(|cell| Some((cell, ladder(cell)?)));
    let best = pairs.max_by_key(|(cell, _)| {
        (cell.spec.tp, cell.spec.p2p == P2p::On, std::cmp::Reverse(cell.spec.batch))
    });
    best.ok_or_else(|| {
        Error::input_help(
            "no run of standard and of ladder in the same cell",
            "name two runs or traces, the upper one first",
        )
    })
}

/// The runs directories that were named, or the one of `--dir`.
pub fn stores(named: &[String], dir: &std::path::Path) -> Vec<Store> {
    let mut dirs: Vec<PathBuf> = named.iter().map(PathBuf::from).filter(|path| path.is_dir()).collect();
    dirs.push(dir.to_path_buf());
    dirs.into_iter().map(Store::open).collect()
}

/// The trace of a record, from the store that has it.
pub fn trace_of(record: &Record, stores: &[Store]) -> Result<Trace> {
    let has = |store: &&Store| store.trace_path(record).is_some_and(|path| path.exists());
    match stores.iter().find(has).or(stores.first()) {
        Some(store) => source::of_record(record, store),
        None => Err(Error::failed("no runs directory")),
    }
}

/// Where the numbers of these runs come from. Rows of a batch share what ran them, so that one row's
/// environment is read and not thousands.
pub fn facts(records: &[Record], stores: &[Store]) -> Facts {
    Facts::of_records(records).with_commits_of(&environments(records, stores))
}

/// The first record of each batch with its environment, which listed rows come without.
pub fn environments(records: &[Record], stores: &[Store]) -> Vec<Record> {
    let mut seen = std::collections::BTreeSet::new();
    let firsts = records.iter().filter(|record| record.environment.is_empty()).filter(|record| {
        record.run.split_once(':').is_some_and(|(batch, _)| seen.insert(batch.to_owned()))
    });
    firsts.filter_map(|record| stores.iter().find_map(|store| store.get(&record.run).ok())).collect()
}
