//! Name search in a trace: matching operations and ranges, their positions, and moving between them.

use std::collections::HashMap;

use rayon::prelude::*;

use super::index::{TraceIndex, TraceLine};
use super::view::{TimelineView, TraceSearch};
use trace::HostWork;

#[derive(Clone, Debug)]
pub struct NameQuery(Vec<String>);

impl NameQuery {
    pub fn new(query: &str) -> Self {
        Self(query.split_whitespace().map(str::to_lowercase).collect())
    }

    /// True if a name contains all words; an empty search matches every name.
    pub fn are_in(&self, name: &str) -> bool {
        self.0.is_empty() || {
            let name = name.to_lowercase();
            self.0.iter().all(|word| name.contains(word))
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    pub query: String,
    /// Matching positions of each line, ascending.
    places: HashMap<TraceLine, Vec<u32>>,
    pub total: usize,
}

/// Search order: GPU work before ranges and operators of the host, then by start, from top to bottom, by position.
type Key = (bool, i64, usize, usize);

impl Matches {
    /// Finds spans, ranges, operators and calls whose names contain all words of the query, ignoring case.
    pub fn new(index: &TraceIndex, query: &str) -> Self {
        let words = NameQuery::new(query);
        if words.0.is_empty() {
            return Self { query: query.into(), ..Self::default() };
        }
        let fits = |name: &str| words.are_in(name);
        let trace = &index.trace;
        let operations: Vec<bool> = trace.operations.iter().map(|o| fits(&o.name)).collect();
        let fitting = |names: &[String]| names.iter().map(|name| fits(name)).collect::<Vec<bool>>();
        let [names, of_host] =
            [&trace.meta.range_names, &trace.meta.host.names].map(|names| fitting(names));
        let known = |list: &[bool], i: u32| list.get(i as usize).copied().unwrap_or(false);
        let nothing = !operations.contains(&true);
        let matching = |line: TraceLine| {
            let matches = |place: &usize| match line {
                TraceLine::Row(row) => {
                    index.span(row, *place).is_some_and(|span| known(&operations, span.operation))
                }
                TraceLine::Ranges(row) => index.range(row, *place).is_some_and(|range| {
                    match range.name.checked_sub(HostWork::FIRST_NAME) {
                        Some(name) => known(&of_host, name),
                        None => known(&names, range.name),
                    }
                }),
                TraceLine::Rank(_) => false,
            };
            let len = match line {
                TraceLine::Row(_) if nothing => 0,
                line => index.len(line),
            };
            (line, (0..len).filter(matches).map(|place| place as u32).collect::<Vec<u32>>())
        };
        let places: HashMap<TraceLine, Vec<u32>> =
            index.lines(|_| false).into_par_iter().map(matching).collect();
        let total = places.values().map(Vec::len).sum();
        Self { query: query.into(), places, total }
    }

    pub fn places(&self, line: TraceLine) -> &[u32] {
        self.places.get(&line).map_or(&[], Vec::as_slice)
    }

    /// True if any position in the half-open range matches.
    pub fn any(&self, line: TraceLine, places: (usize, usize)) -> bool {
        let list = self.places(line);
        let first = list.partition_point(|place| (*place as usize) < places.0);
        list.get(first).is_some_and(|place| (*place as usize) < places.1)
    }

    fn key(index: &TraceIndex, order: usize, line: TraceLine, place: usize) -> Key {
        let is_of_host = matches!(line, TraceLine::Ranges(_));
        (is_of_host, index.interval(line, place).map_or(i64::MIN, |i| i.0), order, place)
    }

    /// Next or previous match relative to a position, wrapping around; skips `hidden` lines.
    pub fn neighbour(
        &self,
        index: &TraceIndex,
        hidden: impl Fn(TraceLine) -> bool,
        from: (TraceLine, usize),
        time: i64,
        forwards: bool,
    ) -> Option<(TraceLine, usize)> {
        let lines = index.lines(|_| false);
        let order = lines.iter().position(|l| *l == from.0).unwrap_or(0);
        let here = match from.0 {
            // a rank's own line has no names, so use the time
            TraceLine::Rank(_) => (false, time, order, 0),
            line => Self::key(index, order, line, from.1),
        };
        let candidates = |wrap: bool| {
            let shown = lines.iter().enumerate().filter(|(_, line)| !hidden(**line));
            shown.filter_map(move |(order, line)| {
                let list = self.places(*line);
                let key = |place: &u32| Self::key(index, order, *line, *place as usize);
                let next = match (wrap, forwards) {
                    (true, true) => Some(0),
                    (true, false) => list.len().checked_sub(1),
                    (false, true) => Some(list.partition_point(|p| key(p) <= here)),
                    (false, false) => list.partition_point(|p| key(p) < here).checked_sub(1),
                };
                let place = list.get(next?)?;
                Some((key(place), (*line, *place as usize)))
            })
        };
        let best = |wrap: bool| match forwards {
            true => candidates(wrap).min_by_key(|(key, _)| *key),
            false => candidates(wrap).max_by_key(|(key, _)| *key),
        };
        best(false).or_else(|| best(true)).map(|(_, to)| to)
    }

    /// Number of matches on lines that are not `hidden`, i.e. that stepping visits.
    pub fn shown(&self, index: &TraceIndex, hidden: impl Fn(TraceLine) -> bool) -> usize {
        let lines = index.lines(|_| false);
        lines.iter().filter(|line| !hidden(**line)).map(|line| self.places(*line).len()).sum()
    }

    /// Ordinal (from 1) of the match at a position among matches on lines that are not `hidden`; `None`
    /// if the position is no match.
    pub fn ordinal(
        &self,
        index: &TraceIndex,
        hidden: impl Fn(TraceLine) -> bool,
        at: (TraceLine, usize),
    ) -> Option<usize> {
        self.places(at.0).binary_search(&(at.1 as u32)).ok()?;
        let lines = index.lines(|_| false);
        let order = lines.iter().position(|l| *l == at.0)?;
        let here = Self::key(index, order, at.0, at.1);
        let shown = lines.iter().enumerate().filter(|(_, line)| !hidden(**line));
        let before = shown.map(|(order, line)| {
            self.places(*line)
                .partition_point(|place| Self::key(index, order, *line, *place as usize) <= here)
        });
        Some(before.sum())
    }
}

impl TimelineView {
    /// Goes to the next or previous match in the focused pane; false if there is none.
    pub fn go_to_match(&mut self, forwards: bool) -> bool {
        self.as_one_move(|view| view.move_to_match(forwards))
    }

    fn move_to_match(&mut self, forwards: bool) -> bool {
        let pane = self.pane();
        self.move_to_match_from(pane.current().unwrap_or(TraceLine::Rank(0)), forwards)
    }

    fn move_to_match_from(&mut self, line: TraceLine, forwards: bool) -> bool {
        let pane = self.pane();
        let Some(matches) = &pane.matches else { return false };
        let from = (line, pane.place);
        let time = self.time.saturating_add(pane.origin);
        let Some((line, place)) =
            matches.neighbour(&pane.index, |line| pane.hides(line), from, time, forwards)
        else {
            return false;
        };
        self.go_to_place(line, place);
        true
    }

    pub fn found(&mut self, pane: usize, matches: Matches) {
        if let Some(pane) = self.panes.get_mut(pane) {
            pane.matches = Some(matches);
        }
        if self.search.awaited && pane == self.focus {
            self.search.awaited = false;
            self.go_to_first();
        }
    }

    /// Goes to the first match, now or once the search is done.
    pub fn go_to_found(&mut self) {
        let query = self.search.line.value();
        let matches = self.panes.get(self.focus).and_then(|pane| pane.matches.as_ref());
        if matches.is_some_and(|matches| matches.query == query) {
            self.go_to_first();
        } else {
            self.search.awaited = true;
        }
    }

    fn go_to_first(&mut self) {
        let zoom = std::mem::take(&mut self.search.zoom);
        let pane = self.pane();
        // from the work of the GPU, wherever the cursor is
        let line = match pane.current() {
            Some(line @ TraceLine::Ranges(_)) => TraceLine::Rank(pane.index.rank_of(line)),
            line => line.unwrap_or(TraceLine::Rank(0)),
        };
        self.as_one_move(|view| {
            if view.move_to_match_from(line, true) && zoom {
                view.zoom_span();
            }
        });
    }

    pub fn forget_search(&mut self) {
        let mut line = std::mem::take(&mut self.search.line);
        line.drop_text();
        self.search = TraceSearch { line, ..TraceSearch::default() };
        for pane in &mut self.panes {
            (pane.matches, pane.totals) = (None, None);
        }
    }
}
