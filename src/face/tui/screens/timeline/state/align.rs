//! Alignment of two stacked traces: steps that start at the same column, and their differences.

use std::sync::Arc;

use super::index::{StepKey, TraceIndex};
use super::view::View;

impl View {
    /// Aligns both traces at the step under the cursor, matching step numbers. The trace with the cursor
    /// does not move. Returns the reason if it cannot.
    pub fn align_here(&mut self) -> Result<(), String> {
        let [_, _] = &self.panes[..] else { return Err("only one trace is open".into()) };
        let (focus, other) = (self.focus.min(1), 1 - self.focus.min(1));
        let here = self.panes[focus].step(self.time, true);
        let Some(here) = here else { return Err("there is no step under the cursor".into()) };
        let key = self.panes[focus].index.steps[here].key;
        let Some(there) = self.panes[other].step_like(key) else {
            let which = if other == 0 { "upper" } else { "lower" };
            return Err(format!("the {which} trace has no {}", key.label()));
        };
        let before = self.panes[focus].origin;
        (self.panes[focus].aligned, self.panes[other].aligned) = (Some(here), Some(there));
        self.align();
        self.rebase(before.saturating_sub(self.panes[focus].origin));
        self.bound();
        let time = self.time;
        self.panes[other].point_at(time);
        Ok(())
    }

    /// Realigns after the cursor moved to another step, if the traces follow each other.
    pub(super) fn follow_steps(&mut self) {
        if !self.follows || self.panes.len() < 2 {
            return;
        }
        let pane = self.pane();
        let here = pane.step(self.time, true);
        if here.is_some() && here != pane.aligned {
            // if the other trace lacks the step, both stay where they are
            let _ = self.align_here();
        }
    }

    /// Steps to compare, upper then lower: the one under the cursor and its counterpart in the other trace.
    pub fn steps_to_compare(&self) -> Result<(StepKey, StepKey), String> {
        let [_, _] = &self.panes[..] else { return Err("only one trace is open".into()) };
        let (focus, other) = (self.focus.min(1), 1 - self.focus.min(1));
        let key = self.panes[focus].step_key(self.time, true);
        let Some(key) = key else { return Err("there is no step under the cursor".into()) };
        // steps aligned by hand are compared even if their numbers differ
        let aligned = |pane: usize| {
            let pane = &self.panes[pane];
            Some(pane.index.steps.get(pane.aligned?)?.key)
        };
        let meant = (aligned(focus) == Some(key)).then(|| aligned(other)).flatten();
        let there = meant.or_else(|| {
            let pane = &self.panes[other];
            Some(pane.index.steps.get(pane.step_like(key)?)?.key)
        });
        match there {
            Some(there) if focus == 0 => Ok((key, there)),
            Some(there) => Ok((there, key)),
            None => Err(format!("the other trace has no {}", key.label())),
        }
    }

    pub fn compares_now(&self) -> bool {
        let made = self.differences.as_ref().map(|report| report.steps);
        made.is_some() && self.steps_to_compare().ok() == made
    }

    pub fn add_ghost(&mut self, index: Arc<TraceIndex>, on: String) {
        let (window, key) = {
            let pane = &self.panes[0];
            (pane.window(self.window), pane.step_key(self.time, self.focus == 0))
        };
        let (line, place) = (self.panes[0].line, self.panes[0].place);
        self.add(index);
        if let Some(pane) = self.panes.get_mut(1) {
            pane.ghost = Some(on);
        }
        // later steps drift apart, so realign at each step
        self.follows = true;
        // keep the view, with the prediction of the same step below
        (self.panes[0].line, self.panes[0].place) = (line, place);
        let both = key
            .and_then(|key| Some((self.panes[0].step_like(key)?, self.panes.get(1)?.step_like(key)?)));
        if let Some((above, below)) = both {
            (self.panes[0].aligned, self.panes[1].aligned) = (Some(above), Some(below));
            self.align();
        }
        self.window = window.shifted(self.panes[0].origin.saturating_neg());
        self.follow();
        self.bound();
    }

    pub fn has_ghost(&self) -> bool {
        self.panes.get(1).is_some_and(|pane| pane.ghost.is_some())
    }
}
