//! Publication figures: the available kinds, and drawing them from runs or traces. The HTML page of stored runs, with
//! their figures, questions and verdicts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use clap::ValueEnum;

use super::experiments;
use super::select::{Stores, overlap_pair};
use super::trace_machine::verdict_of;
use base::error::{Error, Result};
use lab::store::Store;
use plan::Architecture;
use study::analysis::{self, Axes, CellSet, OverlayPoint};
use study::plot::{self, Figure, FigureOptions, OverlapPart, ParetoData, ProvenanceSummary};
use study::report::{Report, ReportOrigin, page};
use table::{Curve, Record};
use trace::Trace;
use trace::overlap::Selection;

/// Figure kinds; the comments on the variants are the command line's help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FigureKind {
    /// Completion latency against throughput per GPU, with frontiers
    Pareto,
    /// Tokens/s against TP, by architecture and P2P; one chart per batch size
    Throughput,
    /// Tokens/s over those of standard, in percent, with intervals
    Improvement,
    /// Speedup over standard against all-reduce latency
    Gain,
    /// Time to first token by prompt length: latency, and percent of standard's
    Ttft,
    /// Lanes of one decode step, standard over ladder
    Overlap,
    /// Tokens/s with P2P on and off
    P2p,
    /// Loss of held-out text over steps of training, with intervals over seeds
    Training,
}

impl FigureKind {
    /// Name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub fn help(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| Some(value.get_help()?.to_string())).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub struct FigureRequest {
    pub kind: FigureKind,
    pub options: FigureOptions,
    pub axes: Axes,
    pub overlay: Vec<OverlayPoint>,
    /// Limits of x in a Pareto figure, in the base unit of the axis.
    pub limits: Vec<f64>,
    pub part: OverlapPart,
    /// Run whose set of comparable cells is drawn if there are several sets; without it, several sets are an error.
    pub near: Option<String>,
}

impl FigureRequest {
    /// Draws the figure of these runs, with notes for the user; `stores` hold their traces and environments. Ignores runs
    /// without results. Takes seconds if traces have to be simulated again.
    ///
    /// # Errors
    ///
    /// Returns an input error if no run has finished, if the runs form several incomparable sets, or if data for the
    /// figure is missing (no pair, no P2P on and off), and an error if a trace cannot be read.
    pub fn draw_records(
        &self,
        mut records: Vec<Record>,
        stores: &Stores,
    ) -> Result<(Figure, Vec<String>)> {
        if self.kind == FigureKind::Training {
            // trainings are not runs: uses those of the stores, whichever runs are given
            let all: Result<Vec<_>> = stores.0.iter().map(Store::trainings).collect();
            return self.draw_trainings(&all?.into_iter().flat_map(|(all, _)| all).collect::<Vec<_>>());
        }
        records.retain(Record::has_numbers);
        if records.is_empty() {
            return Err(Error::input_help(
                "nothing to plot: no finished runs",
                "`ladderscope runs` lists stored runs; `ladderscope sweep quickstart` creates some",
            ));
        }
        let mut notes = Vec::new();
        let options = &self.options;
        let figure = match self.kind {
            FigureKind::Pareto => {
                let axes = self.axes;
                let points = analysis::pareto_on(&records, axes);
                let overlay = plot::overlay(&self.overlay, &points, axes);
                if overlay.is_empty() && !self.overlay.is_empty() {
                    notes.push(
                        "no external point has these models and workloads and both values".to_owned(),
                    );
                }
                let limits = self.limits.clone();
                let data = ParetoData { points: &points, axes, overlay, limits };
                plot::pareto_figure(&data, &stores.provenance(&records), options)?
            }
            FigureKind::Throughput => {
                let set = self.one_set(&mut records, &mut notes)?;
                plot::throughput_figure(&set, &stores.provenance(&records), options)?
            }
            FigureKind::P2p => {
                let set = self.one_set(&mut records, &mut notes)?;
                plot::p2p_figure(&set, &stores.provenance(&records), options)?
            }
            FigureKind::Improvement => {
                let mut sets = analysis::comparable(&records);
                if !analysis::differ_in_model(&sets) {
                    sets = vec![self.one_set(&mut records, &mut notes)?];
                }
                let comparison = analysis::compare(&records, "architecture")?;
                plot::improvement_figure(&sets, &comparison, &stores.provenance(&records), options)?
            }
            FigureKind::Gain => {
                let groups = analysis::gains(&records)?;
                let points = groups.iter().flat_map(|group| group.lines.values().flatten());
                let sides =
                    points.flat_map(|point| [&point.pair.side.spec, &point.pair.baseline_side.spec]);
                let drawn: HashSet<String> = sides.map(|spec| spec.key()).collect();
                records.retain(|record| drawn.contains(&record.spec.key()));
                plot::gain_figure(&groups, &stores.provenance(&records), options)?
            }
            FigureKind::Ttft => {
                plot::first_token_figure(&records, &stores.provenance(&records), options)?
            }
            FigureKind::Overlap => {
                let set = self.one_set(&mut records, &mut notes)?;
                let (standard, ladder) = overlap_pair(&set)?;
                notes.push(format!(
                    "standard ({}) over ladder ({}), {}",
                    standard.run,
                    ladder.run,
                    standard.spec.label()
                ));
                let step = self.part.step;
                let traces = [stores.trace(standard, step)?, stores.trace(ladder, step)?];
                let provenance = stores.provenance(&[standard.clone(), ladder.clone()]);
                self.draw_traces(&traces.iter().collect::<Vec<_>>(), &provenance)?
            }
            FigureKind::Training => return Err(Error::failed("trainings are not runs")),
        };
        Ok((figure, notes))
    }

    /// Draws the curves of trainings that differ only in architecture and seed; any other difference is an input
    /// error.
    pub fn draw_trainings(&self, trainings: &[Curve]) -> Result<(Figure, Vec<String>)> {
        let set = analysis::one_training_set(trainings)?;
        let figure = plot::training_figure(&set, &self.options)?;
        let last = analysis::compared_trainings(&with_standard_first(trainings));
        Ok((figure, last.iter().map(analysis::ComparedTrainings::summary).collect()))
    }

    /// Draws the lanes of one step of each trace, the first one on top. Returns the errors of
    /// [`plot::overlap_figure`], such as a missing step or rank.
    pub fn draw_traces(&self, traces: &[&Trace], provenance: &ProvenanceSummary) -> Result<Figure> {
        for trace in traces {
            let name = trace
                .meta
                .run
                .as_ref()
                .map_or("a trace".to_owned(), |run| format!("the trace of run {run}"));
            trace.meta.provenance.require_evidence(&name)?;
        }
        plot::overlap_figure(traces, &self.part, provenance, &self.options)
    }

    /// Reduces the records to one set of comparable cells: the only one, or the one that contains the run `near`.
    fn one_set(&self, records: &mut Vec<Record>, notes: &mut Vec<String>) -> Result<CellSet> {
        /// Sets that the error names.
        const LISTED_SETS: usize = 6;
        let mut sets = analysis::comparable(records);
        if sets.len() == 1 {
            return Ok(sets.remove(0));
        }
        let near = self.near.as_ref().and_then(|run| records.iter().find(|record| record.run == *run));
        let near = near.map(|record| record.spec.key());
        let meant = |set: &CellSet| set.cells.iter().any(|cell| Some(cell.spec.key()) == near);
        if let Some(set) = sets.iter().position(meant).map(|at| sets.swap_remove(at)) {
            notes.push(format!(
                "of {} sets of runs that are not comparable: {}",
                sets.len() + 1,
                set.name
            ));
            records.retain(|record| set.cells.iter().any(|cell| cell.spec.key() == record.spec.key()));
            return Ok(set);
        }
        let mut names: Vec<&str> = sets.iter().take(LISTED_SETS).map(|set| set.name.as_str()).collect();
        if sets.len() > LISTED_SETS {
            names.push("...");
        }
        Err(Error::input_help(
            format!("the runs fall into {} groups that are not comparable", sets.len()),
            format!("choose one by a filter, for example 'model=NAME':\n    {}", names.join("\n    ")),
        ))
    }
}

fn with_standard_first(trainings: &[Curve]) -> Vec<Curve> {
    let mut all = trainings.to_vec();
    all.sort_by_key(|run| run.training.spec.architecture != Architecture::Standard);
    all
}

#[derive(Debug)]
pub struct RunsPage {
    pub html: String,
    /// Provenance of the numbers, in words.
    pub origin: String,
}

/// Renders the page of these runs.
///
/// # Errors
///
/// Returns an input error if no run has numbers, and a failure if a figure cannot be drawn.
pub fn report_of_runs(records: &[Record], stores: &Stores, origin: ReportOrigin) -> Result<RunsPage> {
    let ok: Vec<Record> = records.iter().filter(|record| record.has_numbers()).cloned().collect();
    let mut environments = stores.environments(records);
    environments.extend(records.iter().filter(|record| !record.environment.is_empty()).cloned());
    let (mut overlaps, mut verdicts) = (BTreeMap::new(), BTreeMap::new());
    if let Some((set, figure, verdict)) = trace_evidence(&ok, stores) {
        overlaps.extend(figure.map(|figure| (set.clone(), figure)));
        verdicts.insert(set, verdict);
    }
    let report = Report {
        provenance: stores.provenance(&ok),
        environments,
        origin,
        questions: questions(records),
        overlaps,
        verdicts,
        records,
    };
    Ok(RunsPage { html: page(&report)?, origin: report.provenance.origin() })
}

/// Questions of the runs' experiments, from files and built-in ones.
fn questions(records: &[Record]) -> Vec<(String, String)> {
    let names: BTreeSet<&str> = records.iter().filter_map(|r| r.experiment.as_deref()).collect();
    let question = |name: &str| Some((name.to_owned(), experiments::question(name)?));
    names.into_iter().filter_map(question).collect()
}

/// Run, and the sentences about it.
type RunVerdict = (String, Vec<String>);

/// The largest set of comparable cells with the overlap figure of its standard and ladder, and the verdict on standard,
/// if both have lanes (recorded or simulated again).
fn trace_evidence(ok: &[Record], stores: &Stores) -> Option<(String, Option<Figure>, RunVerdict)> {
    let mut sets = analysis::comparable(ok);
    sets.sort_by_key(|set| std::cmp::Reverse(set.cells.len()));
    let set = sets.first()?;
    let (standard, ladder) = overlap_pair(set).ok()?;
    if !stores.has_trace(standard) || !stores.has_trace(ladder) {
        return None;
    }
    let traces = [standard, ladder].map(|record| stores.trace(record, None));
    let provenance = stores.provenance(&[standard.clone(), ladder.clone()]);
    let run = standard.run.clone();
    let [Ok(standard), Ok(ladder)] = traces else { return None };
    let (part, options) = (OverlapPart::default(), FigureOptions::default());
    let figure = plot::overlap_figure(&[&standard, &ladder], &part, &provenance, &options);
    let decode = Selection::default_of(&standard);
    let report = analysis::trace_report(&standard, &decode);
    let verdict = verdict_of(&standard, &report, &decode);
    Some((set.name.clone(), figure.ok(), (run, verdict.sentences)))
}
