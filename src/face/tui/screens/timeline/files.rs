//! Traces in and out: opening them (read and indexed in the background), and exporting the view as a file or a command
//! line.

use std::sync::Arc;

use super::state::panel::{OperationScope, ResolvedScope, ScopedTable, TimelinePanel};
use super::state::window::TimeWindow;
use super::state::{KeptTimeline, Pane, Timeline, TimelineView, TraceIndex, measure};
use super::{ask, lists};
use crate::desk::{self, OpenOptions, OpenedTrace};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::screen::{Export, FileKind};
use base::error::Result;
use lab::store::Store;
use plan::Phase;
use study::analysis::{ExposedStretch, NameRow};
use study::report::TracePage;
use study::{analysis, plot};
use table::render::{Shown, Sourced, Table};
use table::{Link, Record, Spec};
use trace::Trace;
use trace::overlap::{Selection, StepKey};

impl Timeline {
    /// Opens stored runs (full ids), from top to bottom.
    pub fn open_runs(&mut self, runs: &[String], opening: Opening, cx: &mut Context) {
        if runs.is_empty() {
            return cx.inform("nothing is selected");
        }
        let stored = |run: &String| cx.stored.as_ref()?.find(run).cloned();
        if let Some(run) = runs.iter().find(|run| stored(run).is_none()) {
            let (reload, dir) = (cx.keys.label(Action::Reload), cx.dir.display());
            return cx.fail(format!("run {run} is not in {dir}: {reload} reads it again"));
        }
        let records = runs.iter().filter_map(stored).collect();
        self.open_records(records, opening, cx);
    }

    /// Opens runs, from top to bottom, or explains why they have no trace.
    pub fn open_records(&mut self, records: Vec<Record>, opening: Opening, cx: &mut Context) {
        if let Some(record) = records.iter().find(|record| record.metrics.is_none()) {
            let reason = record.reason.as_deref().unwrap_or("no reason is recorded");
            return cx.inform(format!("run {} is {}: {reason}", record.run, record.status.as_str()));
        }
        let runs: Vec<String> = records.iter().map(|record| record.run.clone()).collect();
        let names = runs.join(" and ");
        let instead = if opening == Opening::Beneath { Vec::new() } else { runs };
        let open = |store: &Store| {
            let opened = records.into_iter().map(|record| desk::open_run(Box::new(record), store, None));
            opened.map(|opened| opened.map(index)).collect()
        };
        self.open_indexed((names, instead), opening, open, cx);
    }

    /// Opens a trace file, or the run with this id if no such file exists.
    pub fn open_path(&mut self, path: String, opening: Opening, cx: &mut Context) {
        let what = path.clone();
        let read = move |store: &Store| {
            desk::open(&path, store, &OpenOptions::default(), None).map(|opened| vec![opened])
        };
        self.open(what, opening, read, cx);
    }

    pub fn open_kept(&mut self, kept: KeptTimeline, cx: &mut Context) {
        if !kept.is_usable() {
            return;
        }
        let names = kept.sources.join(" and ");
        let KeptTimeline { sources, rules, recordings, window } = kept;
        let open = move |store: &Store| {
            let open = |(at, source): (usize, &String)| {
                let of = |all: &'_ [Option<String>]| all.get(at).cloned().flatten();
                let options = OpenOptions { rules: of(&rules), recording: of(&recordings) };
                desk::open(source, store, &options, None).map(index)
            };
            sources.iter().enumerate().map(open).collect()
        };
        let window = window.filter(|(from, to)| from < to);
        self.open_indexed((names, Vec::new()), Opening::Alone(window), open, cx);
    }

    /// Opens one trace, or two stacked. `what` describes them while they load.
    pub fn open(
        &mut self,
        what: String,
        opening: Opening,
        read: impl FnOnce(&Store) -> Result<Vec<OpenedTrace>> + Send + 'static,
        cx: &mut Context,
    ) {
        let indexed = move |store: &Store| read(store).map(|all| all.into_iter().map(index).collect());
        self.open_indexed((what, Vec::new()), opening, indexed, cx);
    }

    /// Opens traces, named by `what` while they load. If they cannot be opened, shows what is stored of the runs `instead`.
    fn open_indexed(
        &mut self,
        (what, instead): (String, Vec<String>),
        opening: Opening,
        read: impl FnOnce(&Store) -> Result<Vec<Arc<TraceIndex>>> + Send + 'static,
        cx: &mut Context,
    ) {
        self.opened_from = Some(std::mem::replace(&mut cx.tab, Tab::Timeline));
        self.loading = Some(what.clone());
        self.kept = None;
        let store = Store::open(&cx.dir);
        cx.ask(
            "traces",
            move |_| read(&store),
            move |timeline: &mut Self, traces, cx| {
                timeline.loading = None;
                let early = std::mem::take(&mut timeline.early);
                match traces {
                    Ok(traces) => {
                        cx.typed_path = None;
                        timeline.show(traces, opening, cx);
                        if cx.tab == Tab::Timeline {
                            cx.early = early;
                        }
                    }
                    Err(why) => {
                        let from = timeline.opened_from.filter(|_| cx.tab == Tab::Timeline);
                        match from.is_some() && cx.typed_path.is_none() && !instead.is_empty() {
                            true => cx.request(Request::ShowRuns { runs: instead, why }),
                            false => cx.open_failed(&what, why),
                        }
                        if let Some(from) = from {
                            cx.tab = from;
                        }
                    }
                }
            },
        );
    }

    /// Shows traces, stacked or in place of the current view.
    pub fn show(&mut self, traces: Vec<Arc<TraceIndex>>, opening: Opening, cx: &mut Context) {
        ask::forget(cx);
        traces.iter().filter_map(|trace| trace.source()).for_each(|source| cx.opened(source));
        let mut traces = traces.into_iter();
        match (&mut self.view, traces.next(), opening) {
            (Some(view), Some(index), Opening::Beneath) => {
                view.forget_search();
                view.add_here(index);
            }
            (_, Some(index), _) => {
                cx.forget::<Self>(ask::PREDICTION);
                let mut view = TimelineView::new(index);
                if let Some(second) = traces.next() {
                    view.add(second);
                }
                if let Opening::Alone(Some((from, to))) = opening {
                    view.show(from, to);
                }
                self.view = Some(view);
            }
            _ => {}
        }
    }
}

/// Label of a run with its link, unless the label says it: a link `p2p-off` is an option of its own.
pub(super) fn label_with_link(spec: &Spec) -> String {
    let (label, link) = (spec.label(), spec.link.label());
    match label.split(' ').any(|word| word == link) {
        true => label,
        false => format!("{label} {link}"),
    }
}

/// Indexes an opened trace and frees the memory used to open it, before the next one is opened.
fn index(opened: OpenedTrace) -> Arc<TraceIndex> {
    let meta = &opened.trace.meta;
    let words = meta.spec.as_ref().map(|s| {
        // the hardware's own link needs no word
        let words = if s.link == Link::Native { s.label() } else { label_with_link(s) };
        format!("{} {words}", s.model)
    });
    // distinguishing settings first: the name may be wider than the window
    let title = match (&meta.import, &opened.record, words) {
        (Some(import), ..) => format!("{}  {}", import.format, opened.name()),
        (None, Some(record), Some(words)) => {
            let part = opened.part.map_or(String::new(), |part| format!("{part}: "));
            format!("{part}{words}  {}", record.run)
        }
        (None, _, words) => format!("Ladderscope  {}  {}", opened.name(), words.unwrap_or_default()),
    };
    let index = TraceIndex::new(title, opened.trace);
    give_back_memory();
    Arc::new(
        index
            .opened_from(opened.source)
            .classified_by(opened.rules)
            .of_recording(opened.recording)
            .with_files(),
    )
}

/// Returns freed heap pages to the system: glibc keeps those of a simulation's many small allocations. Two simulated 70B
/// runs of 511 steps occupy 244 MB afterwards, 483 before.
fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: glibc's function has this signature, needs no initialization and may be called from any thread
        unsafe { malloc_trim(0) };
    }
}

/// Exported stretch in ns of the trace: the selection or marks, else the visible window.
fn stretch(view: &TimelineView, pane: &Pane) -> TimeWindow {
    pane.window(view.stretch().unwrap_or(view.window))
}

/// Exports figures of the stretch of all open traces, or its spans as CSV. If a list is open below the
/// lanes, CSV exports the list.
pub fn export(view: &TimelineView, kind: FileKind) -> Result<Export, String> {
    if kind == FileKind::Csv && matches!(view.panel, Some(TimelinePanel::Differences { .. })) {
        return match (&view.differences, &view.panes[..]) {
            (Some(report), [a, b]) if view.compares_now() => {
                let provenance = [a.index.provenance(), b.index.provenance()];
                Ok(Export::text(lists::differences_csv(report, provenance)))
            }
            _ => Err("the steps are still being compared; try again in a moment".into()),
        };
    }
    if let (FileKind::Csv, Some(table)) = (kind, counted(view)) {
        return table
            .map(|table| Export::text(table.csv(Sourced::ByRow)))
            .ok_or("operations are still being counted; try again in a moment".into());
    }
    let shown: Vec<(Arc<TraceIndex>, TimeWindow)> =
        view.panes.iter().map(|pane| (pane.index.clone(), stretch(view, pane))).collect();
    if shown.iter().all(|(index, _)| index.trace.spans.is_empty()) {
        return Err("the trace has no spans: there is nothing to write".into());
    }
    Ok(match kind {
        FileKind::Html => page(view),
        FileKind::Csv => Export::new(move |path| {
            let parts: Vec<(&str, Trace)> = shown
                .iter()
                .map(|(index, window)| (index.title.as_str(), measure::part(index, *window)))
                .collect();
            let parts: Vec<(&str, &Trace)> = parts.iter().map(|(name, trace)| (*name, trace)).collect();
            trace::export::write_several(&parts, path)
        }),
        FileKind::Svg | FileKind::Png => Export::new(move |path| {
            let alone = shown.len() == 1;
            let wholes: Vec<_> = shown.iter().map(|(index, _)| index.whole()).collect();
            let stretches: Vec<plot::TraceStretch> = shown
                .iter()
                .zip(&wholes)
                .map(|((index, window), trace)| {
                    let since = |time: i64| time.saturating_sub(index.zero);
                    // keep simultaneous events of two traces aligned
                    let from = if alone { since(window.from).max(0) } else { since(window.from) };
                    plot::TraceStretch { trace, from_ns: from, to_ns: since(window.to) }
                })
                .collect();
            plot::timeline(&stretches, path)
        }),
    })
}

/// Self-contained HTML page of the upper trace: its timeline shows the selection, else the steps in the window, or as many
/// of them as a page holds.
fn page(view: &TimelineView) -> Export {
    let pane = &view.panes[0];
    let (index, arguments) = (Arc::clone(&pane.index), opened(pane));
    let seen = pane.window(view.stretch().unwrap_or(view.window));
    let steps = [seen.from, seen.to - 1].into_iter().filter_map(|time| index.step_at(time));
    let steps = steps.map(|at| index.steps[at].window);
    let shown = match view.stretch() {
        Some(_) => seen,
        None => {
            steps.fold(seen, |all, step| TimeWindow::new(all.from.min(step.from), all.to.max(step.to)))
        }
    };
    let since = |time: i64| time.saturating_sub(index.zero).max(0);
    let window = (since(shown.from), since(shown.to));
    Export::new(move |path| {
        let whole = index.whole();
        let trace = &*whole;
        let selection = Selection::default_of(trace);
        let report = analysis::trace_report(trace, &selection);
        let verdict = desk::verdict_of(trace, &report, &selection);
        let name = index.source().unwrap_or_else(|| index.title.clone());
        let name =
            std::path::Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or(&name);
        let write = |window: Option<(i64, i64)>| {
            study::report::trace_page(&TracePage {
                trace,
                name,
                report: &report,
                verdict: &verdict,
                selection: &selection,
                window,
                arguments: &arguments,
            })
        };
        let written = write(Some(window)).or_else(|_| write(None))?;
        plot::write(path, written.html.as_bytes())
    })
}

/// Listed operations or exposed stretches with their provenance; the inner `None` means still being computed.
fn counted(view: &TimelineView) -> Option<Option<Table>> {
    let index = &view.pane().index;
    let ranks = 1 + index.folded.len() as u64;
    let table = match view.panel.as_ref()? {
        TimelinePanel::Operations(shown) => {
            let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
            // counts are over all ranks
            let whole = |row: &NameRow| NameRow { count: row.count * ranks, ..row.clone() };
            counted.map(|ScopedTable { table, .. }| {
                let rows = shown.order.iter().filter_map(|at| table.rows.get(*at));
                analysis::names_table(&rows.map(whole).collect::<Vec<_>>())
            })
        }
        TimelinePanel::Stretches(shown) => {
            let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
            let whole = |one: &ExposedStretch| {
                let ranks = one.ranks.iter().chain(&index.folded).copied().collect();
                ExposedStretch { ranks, ..one.clone() }
            };
            counted.map(|ScopedTable { table, .. }| {
                analysis::stretches_table(&table.longest.iter().map(whole).collect::<Vec<_>>())
            })
        }
        _ => return None,
    };
    let provenance = view.pane().index.provenance();
    Some(table.map(|table| table.with("provenance", &Shown::text(provenance))))
}

/// Command that prints the list below the lanes, such as `overlap RUN --by name`.
fn list_command(view: &TimelineView) -> Option<Vec<String>> {
    let (by, part) = match view.panel.as_ref()? {
        TimelinePanel::Operations(shown) => ("name", shown.scope.part(view)),
        TimelinePanel::Stretches(shown) => ("exposed", shown.scope.part(view)),
        _ => return None,
    };
    let pane = view.pane();
    let mut words = vec!["overlap".to_string(), pane.index.source()?];
    words.extend(opening(pane.index.rules.as_ref(), pane.index.recording.as_ref()));
    words.extend(["--by".into(), by.into()]);
    words.extend(match part {
        ResolvedScope::Step(key) if key.phase == Phase::Decode => {
            vec!["--step".into(), key.step.to_string()]
        }
        // an imported prefill has a number, which a decode step may have too
        ResolvedScope::Step(key) if pane.index.trace.meta.import.is_some() => {
            ["--phase", key.phase.as_str(), "--step", &key.step.to_string()].map(str::to_owned).to_vec()
        }
        ResolvedScope::Step(StepKey { phase, .. }) | ResolvedScope::Phase(phase) => {
            vec!["--phase".into(), phase.as_str().into()]
        }
        ResolvedScope::Stretch(window) | ResolvedScope::Window(window) => {
            let time = |ns: i64| format!("{}ns", ns.saturating_sub(pane.index.zero).max(0));
            vec!["--from".into(), time(window.from), "--to".into(), time(window.to)]
        }
        ResolvedScope::All | ResolvedScope::Hits(_) => vec!["--phase".into(), "all".into()],
    });
    Some(words)
}

fn opening(rules: Option<&String>, recording: Option<&String>) -> Vec<String> {
    let options = [("--rules", rules), ("--recording", recording)].into_iter();
    options.filter_map(|(option, value)| Some([option.to_owned(), value?.clone()])).flatten().collect()
}

/// Arguments that open a pane's trace; empty if it was not opened from a file or run.
pub fn opened(pane: &Pane) -> Vec<String> {
    let opening = opening(pane.index.rules.as_ref(), pane.index.recording.as_ref());
    pane.index.source().into_iter().chain(opening).collect()
}

/// Equivalent command: `overlap RUN --from --to` for a stretch, else the timeline at the same window.
pub fn command(view: &TimelineView) -> Option<Vec<String>> {
    if let Some(words) = list_command(view).filter(|_| view.pane().ghost.is_none()) {
        return Some(words);
    }
    let above = &view.panes[0];
    let measured = view.stretch().filter(|_| view.pane().ghost.is_none());
    let pane = if measured.is_some() { view.pane() } else { above };
    let window = stretch(view, pane);
    let time = |ns: i64| format!("{}ns", ns.saturating_sub(pane.index.zero).max(0));
    let verb = if measured.is_some() { "overlap" } else { "timeline" };
    let mut words = vec![verb.to_string(), pane.index.source()?];
    let (mut rules, mut recording) = (pane.index.rules.as_ref(), pane.index.recording.as_ref());
    if measured.is_none()
        && let Some(below) = view.panes.get(1).filter(|pane| pane.ghost.is_none())
    {
        words.push(below.index.source()?);
        rules = rules.or(below.index.rules.as_ref());
        recording = recording.or(below.index.recording.as_ref());
    }
    words.extend(opening(rules, recording));
    // the full trace needs no options, except for phases
    let whole = window.from <= pane.index.zero && window.to >= pane.index.bounds.to;
    if !whole || measured.is_some() {
        words.extend(["--from".into(), time(window.from), "--to".into(), time(window.to)]);
    }
    Some(words)
}

/// Parts of the view that the command cannot express, since it accepts one set of rules and one
/// recording.
pub fn beyond_command(view: &TimelineView) -> Vec<String> {
    // `--step` covers all samples
    let sample = |scope: OperationScope| {
        let several = view.pane().index.trace.spans.iter().any(|span| span.sample > 0);
        (several && matches!(scope.part(view), ResolvedScope::Step(_)), "the sample")
    };
    let parts = match (&view.panel, &view.panes[..]) {
        (Some(TimelinePanel::Operations(shown)), _) => vec![
            (matches!(shown.scope.part(view), ResolvedScope::Hits(_)), "the search"),
            (!shown.filter.value().is_empty(), "the filter"),
            sample(shown.scope),
        ],
        (Some(TimelinePanel::Stretches(shown)), _) => vec![sample(shown.scope)],
        (_, [above, below]) if view.stretch().is_none() => {
            let (above, is_ghost, below) = (&above.index, below.ghost.is_some(), &below.index);
            vec![
                (is_ghost, "the simulated trace below"),
                (!is_ghost && above.rules != below.rules, "the rules in which the traces differ"),
                (
                    !is_ghost && above.recording != below.recording,
                    "the recordings in which the traces differ",
                ),
            ]
        }
        _ => Vec::new(),
    };
    parts.into_iter().filter(|(is_beyond, _)| *is_beyond).map(|(_, part)| part.to_owned()).collect()
}
