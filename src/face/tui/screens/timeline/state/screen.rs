//! What screen 4 shows, and what is on its way to it.

use std::sync::Arc;

use super::index::TraceIndex;
use super::view::View;

/// State of the timeline screen.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The traces; `None` until one is opened.
    pub view: Option<View>,
    /// What is being read.
    pub loading: Option<String>,
    /// What is being read goes beneath the trace that is shown.
    beneath: bool,
    /// The next traces are to be shown at this stretch of the first (ns since its first start).
    pub opens_at: Option<(i64, i64)>,
    /// Number of the newest request for a trace; answers to older ones are dropped.
    pub request: u64,
}

impl Timeline {
    /// A new request for traces: its number. `beneath`: one to be shown beneath the one that is open.
    pub fn request(&mut self, what: String, beneath: bool) -> u64 {
        self.loading = Some(what);
        self.beneath = beneath;
        self.request += 1;
        self.request
    }

    /// Shows traces: the first above the second, or the only one where it was wanted.
    pub fn open(&mut self, traces: Vec<Arc<TraceIndex>>) {
        self.fail();
        let mut traces = traces.into_iter();
        match (&mut self.view, traces.next()) {
            (Some(view), Some(index)) if self.beneath => {
                view.forget_search();
                view.add(index);
            }
            (_, Some(index)) => {
                let mut view = View::new(index);
                if let Some(second) = traces.next() {
                    view.add(second);
                }
                if let Some((from, to)) = self.opens_at.take() {
                    view.show(from, to);
                }
                self.view = Some(view);
            }
            _ => {}
        }
    }

    /// Nothing is on its way any more.
    pub fn fail(&mut self) {
        self.loading = None;
        for pane in self.view.iter_mut().flat_map(|view| &mut view.panes) {
            // what was asked for it before would no longer match
            pane.forget_asked();
        }
    }
}
