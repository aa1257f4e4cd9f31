//! Areas of screen 3, and the columns of its table that fit.

use super::columns::{self, RunColumn};
use super::state::{self, Runs};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table::{TableColumn, TableLayout, lay_out};
use study::analysis::RunTable;

#[derive(Clone, Copy, Debug)]
pub struct RunAreas {
    /// Counts, the scope and the filter.
    pub top: Rect,
    /// Order, and what the shown runs differ in or share.
    pub order: Rect,
    /// With the header.
    pub table: Rect,
    /// Framed details; without them, the values of the selected run that the table does not show.
    pub details: Rect,
}

/// Geometry of a frame.
#[derive(Debug)]
pub struct RunsLayout {
    pub areas: RunAreas,
    pub columns: Vec<RunColumn>,
    /// Layout of each of `columns`.
    pub specs: Vec<TableColumn>,
    /// Visible columns.
    pub shown: TableLayout,
}

impl Runs {
    pub(super) fn layout(&self, body: Rect, table: &RunTable) -> RunsLayout {
        /// Minimum window width for extra columns with options that the default columns omit.
        const WIDE: u16 = 150;
        let areas = self.areas(body);
        let (mut columns, mut specs) = columns::columns(self, table, areas.table.width);
        if body.width >= WIDE {
            for (column, spec) in
                columns::fitting_options(self, table, &columns, &specs, areas.table.width)
            {
                columns.push(column);
                specs.push(spec);
            }
        }
        let shown = lay_out(&specs, areas.table, Some(self.scroll));
        RunsLayout { areas, columns, specs, shown }
    }

    pub(super) fn areas(&self, body: Rect) -> RunAreas {
        /// Minimum body height for rows with the values that do not fit in the table.
        const LOWEST: u16 = 10;
        /// Height of the list and the details up to which the list has two thirds.
        const LOW: u16 = 20;
        let (top, rest) = cut_top(body, 1);
        let (order, rest) = cut_top(rest, 1);
        let (table, details) = match self.shows_detail(body.width) && !self.lines.is_empty() {
            false if body.height < LOWEST => cut_bottom(rest, 0),
            false if body.width >= self.needed && self.unseen.is_empty() => cut_bottom(rest, 0),
            false => cut_bottom(rest, if body.width < 120 { 2 } else { 1 }),
            true if body.width >= 150 => cut_left(rest, body.width - state::DETAILS),
            true => {
                // half of the height, in a low window a third, plus whatever a short list leaves free
                let list = u16::try_from(self.lines.len().max(1) + 1).unwrap_or(u16::MAX);
                let most = match rest.height {
                    ..=LOW => (rest.height * 2).div_ceil(3),
                    height => height.div_ceil(2),
                };
                cut_bottom(rest, rest.height - list.min(most))
            }
        };
        RunAreas { top, order, table, details }
    }
}
