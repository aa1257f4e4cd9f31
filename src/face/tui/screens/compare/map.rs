//! Map of screen 6: its slices, the one shown, and the cursor in it.

use std::collections::HashSet;
use std::sync::Arc;

use super::Compare;
use super::compared::AxisComparison;
use super::state::PartOf;
use study::analysis::{Comparison, HeatAxes, HeatMap, HeatSlice, slices_over};

/// Slices of a map with their names.
#[derive(Clone, Debug, Default)]
pub struct MapSlices {
    pub axes: HeatAxes,
    pub slices: Vec<HeatSlice>,
    pub names: Vec<String>,
}

impl Compare {
    pub fn slice_name(&self) -> &str {
        self.map_slices.names.get(self.slice).map_or("", String::as_str)
    }

    /// Slices for the filtered pairs: over TP and batch, or over other settings if these do not vary.
    fn slices_of_kept(&self, compared: &AxisComparison) -> Arc<MapSlices> {
        let settings = &self.pair_settings(compared).settings;
        let axes = HeatAxes::among(&compared.axis, settings);
        if axes.is_plain() {
            return Arc::clone(&compared.map_slices);
        }
        let rest = settings.without(&axes.rows).without(&axes.columns);
        let words = |pair: &Comparison| rest.words(&pair.side.spec);
        let slices = slices_over(&compared.report, &axes, self.kept.iter().copied(), words);
        let names = slices.iter().map(HeatSlice::name).collect();
        Arc::new(MapSlices { axes, slices, names })
    }

    /// Slices with at least one filtered pair and their pair counts, largest first.
    fn find_shown_slices(&self) -> Vec<(usize, usize)> {
        let shown: HashSet<usize> = self.kept.iter().copied().collect();
        let left = |slice: &HeatSlice| slice.members.iter().filter(|at| shown.contains(at)).count();
        let mut left: Vec<(usize, usize)> =
            self.map_slices.slices.iter().map(left).enumerate().collect();
        left.retain(|(_, pairs)| *pairs > 0);
        left.sort_by_key(|(_, pairs)| std::cmp::Reverse(*pairs));
        left
    }

    /// Opens the map on the selected pair.
    pub fn open_map_on_selected(&mut self) {
        self.open_map_on(self.selected_at());
    }

    /// Opens the map on a pair, an index into the report.
    pub(super) fn open_map_on(&mut self, pair: Option<usize>) {
        if let Some((compared, at)) = self.compared().cloned().zip(pair) {
            let slices = self.slices_of_kept(&compared);
            if let Some(slice) = slices.slices.iter().position(|slice| slice.members.contains(&at)) {
                self.slice = slice;
                let map = HeatMap::new(&compared.report, &slices.slices[slice]);
                let cell = map.cells.iter().find(|cell| cell.pair == at);
                self.cursor = cell.map_or(self.cursor, |cell| cell.place);
            }
        }
        self.open_map();
    }

    /// Opens the map of the current slice, or of another if the filter leaves it empty, with the cursor
    /// on an existing cell.
    pub fn open_map(&mut self) {
        let Some(compared) = self.compared().cloned() else {
            self.map = None;
            return;
        };
        self.map_slices = self.slices_of_kept(&compared);
        self.slices_shown = self.find_shown_slices();
        if let Some((first, _)) = self.slices_shown.first()
            && self.slices_shown.iter().all(|(slice, _)| *slice != self.slice)
        {
            self.slice = *first;
        }
        let shown: HashSet<usize> = self.kept.iter().copied().collect();
        let map = self.map_slices.slices.get(self.slice);
        let map = map.map(|slice| HeatMap::new(&compared.report, slice));
        self.left_out.clear();
        let map = map.map(|mut map| {
            let (kept, out): (Vec<_>, Vec<_>) =
                map.cells.into_iter().partition(|cell| shown.contains(&cell.pair));
            self.left_out.extend(out.iter().map(|cell| cell.place));
            map.cells = kept;
            map
        });
        if let Some(map) = &map {
            let (row, column) = self.cursor;
            self.cursor = (row.min(map.rows.len() - 1), column.min(map.columns.len() - 1));
        }
        self.map = map;
    }

    pub fn map_of(&self) -> Option<PartOf<usize>> {
        self.map.as_ref().filter(|map| map.slice.axes.is_plain())?;
        Some(PartOf(Arc::clone(self.compared()?), self.slice))
    }

    /// Reason for an empty cell of the current map; `…` until computed.
    pub fn why_none(&self, row: usize, column: usize) -> &'static str {
        if self.left_out.contains(&(row, column)) {
            return "filtered";
        }
        if !self.map_slices.axes.is_plain() {
            return "no pair";
        }
        let of_shown = |(of, _): &&(PartOf<usize>, _)| Some(of) == self.map_of().as_ref();
        let why = self.gaps.as_ref().filter(of_shown).and_then(|(_, why)| why.get(&(row, column)));
        why.copied().unwrap_or("…")
    }

    pub fn move_cursor(&mut self, rows: isize, columns: isize) {
        let Some(map) = &self.map else { return };
        let to =
            |at: usize, by: isize, len: usize| at.saturating_add_signed(by).min(len.saturating_sub(1));
        self.cursor =
            (to(self.cursor.0, rows, map.rows.len()), to(self.cursor.1, columns, map.columns.len()));
    }
}
