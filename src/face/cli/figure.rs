//! `ladderscope figure KIND [RUNS|DIR] -o FILE`: figures for papers.

use std::path::PathBuf;

use super::filter::FilterArgs;
use super::stderr;
use crate::desk::figure::{FigureKind, FigureRequest};
use crate::desk::{self, OpenOptions, Stores, adapt};
use base::error::{Error, Result};
use lab::store::Store;
use study::analysis::{Axes, XAxis, YAxis};
use study::plot::{self, FigureOptions, OverlapPart, ProvenanceSummary};
use table::P2p;
use trace::Trace;

/// Arguments of `ladderscope figure`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kind of figure
    #[arg(value_enum, value_name = "KIND")]
    pub kind: FigureKind,
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]; overlap also accepts
    /// traces (the first one is drawn on top), training takes ids of trainings
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// Output file: .svg or .png
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only runs with this P2P setting: on, off
    #[arg(long, value_name = "on|off")]
    pub p2p: Option<P2p>,
    #[command(flatten)]
    pub look: FigureOptions,
    /// pareto: horizontal axis, as in `ladderscope pareto` [default: completion]
    #[arg(long, value_name = "AXIS")]
    pub x: Option<XAxis>,
    /// pareto: vertical axis, as in `ladderscope pareto` [default: per-gpu]
    #[arg(long, value_name = "AXIS")]
    pub y: Option<YAxis>,
    /// pareto: external points to overlay: published (the 70B points of arXiv 2501.06589) or a CSV file
    #[arg(long, value_name = "published|FILE")]
    pub overlay: Vec<String>,
    /// overlap: decode step, from 0 [default: the middle one]
    #[arg(long, value_name = "N")]
    pub step: Option<u32>,
    /// overlap: number of layers, from the middle of the model [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub layers: Option<u32>,
    /// overlap: rank to draw [default: 0]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
}

impl Args {
    /// Returns an error if an option does not apply to the figure.
    fn check_kind(&self) -> Result<()> {
        let options = [
            ("x", FigureKind::Pareto, self.x.is_some()),
            ("y", FigureKind::Pareto, self.y.is_some()),
            ("overlay", FigureKind::Pareto, !self.overlay.is_empty()),
            ("step", FigureKind::Overlap, self.step.is_some()),
            ("layers", FigureKind::Overlap, self.layers.is_some()),
            ("rank", FigureKind::Overlap, self.rank.is_some()),
        ];
        match options.into_iter().find(|(_, kind, given)| *given && *kind != self.kind) {
            None => Ok(()),
            Some((option, kind, _)) => Err(Error::input(format!(
                "--{option} is an option of `figure {}`; it has no effect on `figure {}`",
                kind.name(),
                self.kind.name()
            ))),
        }
    }
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    plot::check_format(&args.output)?;
    args.check_kind()?;
    args.look.check()?;
    let part = OverlapPart::default();
    let mut request = FigureRequest {
        kind: args.kind,
        options: args.look,
        axes: Axes { x: args.x.unwrap_or_default(), y: args.y.unwrap_or_default() },
        overlay: super::pareto::read_overlays(&args.overlay)?,
        limits: Vec::new(),
        part: OverlapPart {
            step: args.step,
            layers: args.layers.unwrap_or(part.layers),
            rank: args.rank.unwrap_or(part.rank),
        },
        near: None,
    };
    // external points are filtered like the runs
    let chosen = |p2p: Option<P2p>| args.p2p.is_none() || p2p.is_none() || args.p2p == p2p;
    request.overlay.retain(|point| chosen(point.p2p));
    if request.overlay.is_empty() && !args.overlay.is_empty() {
        stderr::note("no external point has this P2P setting");
    }
    let figure = match traces_named(args, &dir)? {
        Some((traces, provenance)) => {
            request.draw_traces(&traces.iter().collect::<Vec<_>>(), &provenance)?
        }
        None if args.kind == FigureKind::Training => {
            let (figure, notes) =
                request.draw_trainings(&adapt::named(&Store::open(&dir), &args.runs)?)?;
            notes.iter().for_each(|note| stderr::note(note));
            figure
        }
        None => {
            let mut records = args.filter.records(&args.runs, &dir)?;
            records.retain(|record| args.p2p.is_none_or(|p2p| record.spec.p2p == p2p));
            let (figure, notes) = request.draw_records(records, &Stores::named(&args.runs, &dir))?;
            notes.iter().for_each(|note| stderr::note(note));
            if args.kind == FigureKind::Overlap {
                stderr::note("to choose others, name two runs or use --filter");
            }
            figure
        }
    };
    figure.save(&args.output)?;
    stderr::note(&format!("wrote {}: {} ({})", args.output.display(), figure.title(), figure.caption()));
    Ok(0)
}

/// Traces named individually for an overlap figure (files or stored runs), with their provenance. `None` if batches
/// or directories were named.
fn traces_named(args: &Args, dir: &std::path::Path) -> Result<Option<(Vec<Trace>, ProvenanceSummary)>> {
    let store = Store::open(dir);
    let single = |name: &String| {
        let path = std::path::Path::new(name);
        path.is_file() || (!path.is_dir() && !matches!(store.batch(name), Ok(Some(_))))
    };
    let chosen = args.filter.typed().is_some();
    if chosen
        || args.kind != FigureKind::Overlap
        || args.runs.is_empty()
        || !args.runs.iter().all(single)
    {
        return Ok(None);
    }
    let (mut traces, mut records) = (Vec::new(), Vec::new());
    for name in &args.runs {
        let opened = desk::open(name, &store, &OpenOptions::default(), args.step)?;
        stderr::note_part(&opened);
        stderr::import_warnings(&opened);
        let mut trace = opened.trace;
        if let Some(record) = opened.record {
            // A trace simulated just now lacks the environment of the original simulation.
            trace.meta.environment.clone_from(&record.environment);
            records.push(*record);
        }
        traces.push(trace);
    }
    let mut provenance = ProvenanceSummary::of_traces(&traces);
    provenance.days = ProvenanceSummary::of_records(&records).days;
    Ok(Some((traces, provenance)))
}
