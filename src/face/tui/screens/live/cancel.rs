//! Cancelling a cell of a running sweep, and taking that back before its turn.

use super::Act;
use super::state::{CellState, Live, LiveCell};
use crate::face::tui::prelude::*;
use crate::face::tui::update::SweepOrder;

impl Live {
    /// Cancels the selected cell, or takes that back if the sweep has not skipped a run of it yet.
    pub(super) fn cancel_or_restore(&mut self, cx: &mut Context) {
        let at = self.list.selected;
        let Some(cell) = self.cells.get(at) else { return };
        if !cell.can_run() {
            return cx.inform("this cell will not run");
        }
        if cell.left_rounds(self.rounds).next().is_none() {
            return cx.inform("all runs of this cell have ended");
        }
        let (title, later) = (self.title(&cell.spec), self.later(cell, cx));
        let (is_cancelled, is_ahead) = (cell.cancelled, self.is_ahead(at));
        if is_cancelled && !is_ahead {
            return cx.inform(format!("{title} is cancelled already: {later}"));
        }
        let cell = &mut self.cells[at];
        cell.cancelled = !is_cancelled;
        // the panel goes on with the next run rather than stay on a cancelled cell
        self.follow |= !is_cancelled;
        let order = if is_cancelled { SweepOrder::RestoreCell } else { SweepOrder::CancelCell };
        cell.note = if is_cancelled { String::new() } else { "cancelled".to_owned() };
        cx.perform(Effect::Sweep(order(at)));
        let cancel = cx.key::<Self>(Act::CancelCell);
        cx.inform(match (is_cancelled, is_ahead) {
            (true, _) => format!("{title} runs after all"),
            (false, true) => {
                format!("cancelled {title}: {cancel} takes it back before its turn, {later}")
            }
            (false, false) => format!("cancelled {title}: {later}"),
        });
    }

    /// True if the selected cell has runs left to cancel.
    pub(super) fn can_cancel(&self) -> bool {
        let has_left = |cell: &LiveCell| {
            cell.can_run() && !cell.cancelled && cell.left_rounds(self.rounds).next().is_some()
        };
        self.is_running() && self.selected().is_some_and(has_left)
    }

    /// True if the selected cell is cancelled, and can be taken back.
    pub(super) fn can_restore(&self) -> bool {
        let is_cancelled = self.selected().is_some_and(|cell| self.is_cancelled(cell));
        self.is_running() && is_cancelled && self.is_ahead(self.list.selected)
    }

    /// Message on running a cancelled cell later, and its cost.
    fn later(&self, cell: &LiveCell, cx: &Context) -> String {
        let resume = cx.key::<Self>(Act::RetryFailed);
        let has_drift = self.rounds > 1 && !cell.spec.backend.is_simulated();
        let cost = if has_drift { "; rounds measured over 10 min apart are not compared" } else { "" };
        format!("{resume} runs it after the sweep{cost}")
    }

    /// True if the sweep comes to all runs that are left of a cell: none was skipped or stopped.
    fn is_ahead(&self, at: usize) -> bool {
        let has_begun = |cell: &LiveCell| cell.state == CellState::Running || cell.executed > 0;
        let cells = self.cells.iter().enumerate().filter(|(_, cell)| has_begun(cell));
        let Some(reached) = cells.map(|(index, cell)| (cell.round, index)).max() else { return true };
        self.cells[at].left_rounds(self.rounds).all(|round| (round, at) > reached)
    }
}
