//! Opening of traces: reads and indexes them in the background, then shows them.

use std::sync::Arc;

use super::ask;
use super::state::{KeptTimeline, Timeline, TraceIndex, View};
use crate::desk::{self, OpenOptions, Opened};
use crate::face::tui::action::Action;
use crate::face::tui::prelude::*;
use base::error::Result;
use lab::store::Store;
use table::Record;

impl Timeline {
    /// Opens stored runs (full ids), from top to bottom.
    pub fn open_runs(&mut self, runs: &[String], opening: Opening, cx: &mut Context) {
        if runs.is_empty() {
            return cx.inform("nothing is selected");
        }
        let mut records = Vec::new();
        for run in runs {
            match cx.stored.as_ref().and_then(|stored| stored.find(run)) {
                Some(record) => records.push(record.clone()),
                None => {
                    let (reload, dir) = (cx.keys.label(Action::Reload), cx.dir.display());
                    return cx.fail(format!("run {run} is not in {dir}: {reload} reads it again"));
                }
            }
        }
        self.open_records(records, opening, cx);
    }

    /// Opens runs, from top to bottom, or explains why they have no trace.
    pub fn open_records(&mut self, records: Vec<Record>, opening: Opening, cx: &mut Context) {
        if let Some(record) = records.iter().find(|record| record.metrics.is_none()) {
            let reason = record.reason.as_deref().unwrap_or("no reason is recorded");
            return cx.inform(format!("run {} is {}: {reason}", record.run, record.status.as_str()));
        }
        let names: Vec<&str> = records.iter().map(|record| record.run.as_str()).collect();
        let names = names.join(" and ");
        let open = |store: &Store| {
            records.into_iter().map(|record| desk::open_run(Box::new(record), store, None)).collect()
        };
        self.open(names, opening, open, cx);
    }

    /// Opens a trace file, or the run with this id if no such file exists.
    pub fn open_path(&mut self, path: String, opening: Opening, cx: &mut Context) {
        let what = path.clone();
        self.open(
            what,
            opening,
            move |store| Ok(vec![desk::open(&path, store, OpenOptions::default())?]),
            cx,
        );
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
                let (rules, recording) = (of(&rules), of(&recordings));
                let (rules, recording) = (rules.as_deref(), recording.as_deref());
                desk::open(source, store, OpenOptions { rules, recording, upto: None })
            };
            sources.iter().enumerate().map(open).collect()
        };
        let window = window.filter(|(from, to)| from < to);
        self.open(names, Opening::Alone(window), open, cx);
    }

    /// Opens one trace, or two stacked. `what` describes them while they load.
    pub fn open(
        &mut self,
        what: String,
        opening: Opening,
        read: impl FnOnce(&Store) -> Result<Vec<Opened>> + Send + 'static,
        cx: &mut Context,
    ) {
        cx.tab = Tab::Timeline;
        self.loading = Some(what);
        self.kept = None;
        let store = Store::open(&cx.dir);
        cx.ask(
            "traces",
            move |_| Ok(read(&store)?.into_iter().map(index).collect()),
            move |timeline: &mut Self, traces, cx| {
                timeline.loading = None;
                if let Some(traces) = cx.told(traces) {
                    timeline.show(traces, opening, cx);
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
                view.add(index);
            }
            (_, Some(index), _) => {
                cx.forget::<Self>(ask::PREDICTION);
                let mut view = View::new(index);
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

fn index(opened: Opened) -> Arc<TraceIndex> {
    let meta = &opened.trace.meta;
    let words = meta.spec.as_ref().map(|s| format!("{} {} {}", s.model, s.label(), s.link));
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
    Arc::new(
        index
            .opened_from(opened.source)
            .classified_by(opened.rules)
            .of_recording(opened.recording)
            .with_files(),
    )
}
