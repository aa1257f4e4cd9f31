//! Runs without a timeline: the screens whose main key opens one show the details of these runs instead.

use crate::face::tui::prelude::*;
use crate::face::tui::screen::TabScreen;
use lab::store::Store;
use table::Record;

/// Lookup of the trace file of a screen's selected run.
#[derive(Debug, Default)]
pub struct TraceLookup {
    /// Id of the run, if the file is known to be gone.
    gone: Option<String>,
}

impl TraceLookup {
    /// Reason why a run has no timeline; `None` if it has one. Simulated runs are simulated again.
    pub fn no_timeline(&self, record: &Record) -> Option<String> {
        match (&record.metrics, &record.trace) {
            (None, _) => {
                let reason = record.reason.as_ref().map(|reason| format!(": {reason}"));
                Some(format!("the run is {}{}", record.status.as_str(), reason.unwrap_or_default()))
            }
            _ if record.spec.backend.is_simulated() => None,
            (_, None) => Some("the run was not recorded".to_owned()),
            (_, Some(file)) => {
                let is_gone = self.gone.as_ref() == Some(&record.run);
                is_gone.then(|| format!("the trace of run {} is gone: {file}", record.run))
            }
        }
    }

    /// Asks whether the file of a run's trace exists; `of` borrows the lookup of the screen that asks.
    pub fn ask<S: TabScreen>(record: &Record, cx: &mut Context, of: fn(&mut S) -> &mut Self) {
        if record.trace.is_none() || record.metrics.is_none() || record.spec.backend.is_simulated() {
            return;
        }
        let (store, record, run) = (Store::open(&cx.dir), record.clone(), record.run.clone());
        cx.want(
            "trace",
            &record.run.clone(),
            move |_| Ok(store.trace_path(&record).is_none()),
            move |screen: &mut S, is_gone: Result<bool, String>, _| {
                of(screen).gone = is_gone.unwrap_or(false).then_some(run);
            },
        );
    }
}
