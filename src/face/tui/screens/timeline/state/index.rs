//! A trace, indexed for drawing: its ranks with their rows, what was exposed, its steps. Built once, in
//! parallel, off the terminal's thread; looked up in logarithmic time. The spans themselves are not
//! copied: the index takes under 40 bytes a span beside them, mostly about 20.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::cover::Cover;
use super::ranges::RangeRow;
use super::row::{Class, Row, Spans};
use crate::face::tui::screens::timeline::state::window::Window;
use plan::Lane;
use table::Provenance;
pub use trace::overlap::StepKey;
use trace::{Range, Span, Trace};

/// Spans of two ranks that are compared before other cores are woken for the rest.
const FIRST: usize = 64;

/// A step and the time it takes over all ranks and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    /// The sample, phase and number by which it is known.
    pub key: StepKey,
    /// First start to last end.
    pub window: Window,
}

/// A rank of a trace.
#[derive(Clone, Debug)]
pub struct RankRows {
    /// The rank's number, from 0.
    pub rank: u32,
    /// `r0`, with its process and device where the trace tells them.
    pub label: String,
    /// Where its streams (or lanes) are among [`TraceIndex::rows`].
    pub rows: std::ops::Range<usize>,
    /// Where its named ranges are among [`TraceIndex::range_rows`].
    pub ranges: std::ops::Range<usize>,
    /// When it communicated without computing.
    pub exposed: Cover,
    /// The first rank that did the same at the same times, where that is another one: an index into the ranks.
    pub same_as: Option<usize>,
}

/// A trace with everything that drawing it needs.
#[derive(Debug)]
pub struct TraceIndex {
    /// The trace that is indexed, spans and operations included.
    pub trace: Trace,
    /// What to call it.
    pub title: String,
    /// The file or the run that it was opened from, as a command takes it, where that is known.
    pub opened: Option<String>,
    /// By which rules it was classified, as `--rules` takes them; `None`: the default ones.
    pub rules: Option<String>,
    /// The recording of a directory, as `--recording` takes it; `None`: the default one.
    pub recording: Option<String>,
    /// Bytes of the files that it was imported from, where they can be looked into.
    pub files: Option<u64>,
    /// First start to last end, of spans and ranges.
    pub bounds: Window,
    /// First start of a span: the zero of the times shown (ns).
    pub zero: i64,
    /// The ranks of the trace, ascending by number.
    pub ranks: Vec<RankRows>,
    /// Streams or lanes, by rank.
    pub rows: Vec<Row>,
    /// Named ranges by rank, thread and depth.
    pub range_rows: Vec<RangeRow>,
    /// The steps of the trace, in the order in which they ran.
    pub steps: Vec<StepRange>,
    pub(super) classes: Vec<Class>,
    pub(super) step_places: BTreeMap<StepKey, usize>,
}

/// A line of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A rank's exposed communication; all its rows merged, while it is collapsed.
    Rank(usize),
    /// Named ranges of one thread and depth: a place among the range rows.
    Ranges(usize),
    /// Spans: a place among the rows.
    Row(usize),
}

impl TraceIndex {
    /// Where its numbers come from.
    pub fn provenance(&self) -> Provenance {
        self.trace.meta.provenance
    }

    /// What a command calls it: the file or run that it was opened from, else the run that it is of, else
    /// the one file that it was imported from.
    pub fn source(&self) -> Option<String> {
        let meta = &self.trace.meta;
        let file = meta.import.as_ref().and_then(|import| match &import.files[..] {
            [file] => Some(file.clone()),
            _ => None,
        });
        self.opened.clone().or_else(|| meta.run.clone()).or(file)
    }

    /// The index, with the file or run that its trace was opened from.
    pub fn opened_from(self, source: impl Into<String>) -> Self {
        Self { opened: Some(source.into()), ..self }
    }

    /// The index, with the rules that classified its trace's operations.
    pub fn classified_by(self, rules: Option<String>) -> Self {
        Self { rules, ..self }
    }

    /// The index, with the recording that was asked for.
    pub fn of_recording(self, recording: Option<String>) -> Self {
        Self { recording, ..self }
    }

    /// The index, with the size of the files that its trace was imported from, where they are still there
    /// to be looked into.
    pub fn with_files(self) -> Self {
        let files = trace::import::files(&self.trace);
        let bytes = |path: &std::path::PathBuf| path.metadata().map_or(0, |data| data.len());
        let bytes = (!files.is_empty()).then(|| files.iter().map(bytes).sum());
        Self { files: bytes, ..self }
    }

    /// Its spans, with their classes.
    pub fn spans(&self) -> Spans<'_> {
        Spans { all: &self.trace.spans, classes: &self.classes }
    }

    /// The span at a place of a row.
    pub fn span(&self, row: usize, place: usize) -> Option<&Span> {
        self.trace.spans.get(self.rows.get(row)?.span(place)?)
    }

    /// The range at a place of a row of ranges.
    pub fn range(&self, row: usize, place: usize) -> Option<&Range> {
        self.trace.ranges.get(self.range_rows.get(row)?.range(place)?)
    }

    /// Name of a range.
    pub fn range_name(&self, range: &Range) -> &str {
        self.trace.meta.range_names.get(range.name as usize).map_or("?", String::as_str)
    }

    /// Name of a span's operation.
    pub fn name(&self, span: &Span) -> &str {
        self.trace.operations.get(span.operation as usize).map_or("?", |o| o.name.as_str())
    }

    /// The step of a span, an index into the steps.
    pub fn step_of(&self, span: &Span) -> Option<usize> {
        self.step_places.get(&StepKey::of(span)).copied()
    }

    /// The last step that starts at or before a time, an index into the steps.
    pub fn step_at(&self, time: i64) -> Option<usize> {
        self.steps.partition_point(|s| s.window.from <= time).checked_sub(1)
    }

    /// All lines; of collapsed ranks the first only.
    pub fn lines(&self, collapsed: impl Fn(usize) -> bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for (i, rank) in self.ranks.iter().enumerate() {
            lines.push(Line::Rank(i));
            if !collapsed(i) {
                lines.extend(rank.ranges.clone().map(Line::Ranges));
                lines.extend(rank.rows.clone().map(Line::Row));
            }
        }
        lines
    }

    /// The ranks that did what a rank (an index into the ranks) did, at the same times, after it: their numbers.
    pub fn alike(&self, rank: usize) -> Vec<u32> {
        self.ranks.iter().filter(|other| other.same_as == Some(rank)).map(|other| other.rank).collect()
    }

    /// The line that stands for this one: the like line of the first rank that did the same, else the line itself.
    pub fn alike_line(&self, line: Line) -> Line {
        let own = &self.ranks[self.rank_of(line)];
        let Some((at, first)) = own.same_as.and_then(|at| Some((at, self.ranks.get(at)?))) else {
            return line;
        };
        match line {
            Line::Rank(_) => Line::Rank(at),
            Line::Ranges(row) => Line::Ranges(first.ranges.start + row - own.ranges.start),
            Line::Row(row) => Line::Row(first.rows.start + row - own.rows.start),
        }
    }

    /// Finds the ranks that did the same as an earlier one. Ends with the first span that differs.
    pub(super) fn find_alike(&mut self) {
        let mut different: Vec<usize> = Vec::new();
        for at in 0..self.ranks.len() {
            let same = different.iter().copied().find(|other| self.is_alike(*other, at));
            self.ranks[at].same_as = same;
            if same.is_none() {
                different.push(at);
            }
        }
    }

    fn is_alike(&self, a: usize, b: usize) -> bool {
        let [a, b] = [&self.ranks[a], &self.ranks[b]];
        let rows = |rank: &RankRows| self.rows[rank.rows.clone()].iter();
        // ranges have a thread of their own process: whoever has some is looked at on its own
        let plain = a.ranges.is_empty() && b.ranges.is_empty();
        let bare = |span: &Span| Span { rank: 0, stream: 0, ..*span };
        let same = |(a, b): (&Row, &Row)| {
            let same = |place: usize| {
                let span = |row: &Row| row.span(place).map(|at| bare(&self.trace.spans[at]));
                span(a) == span(b)
            };
            // ranks that differ do so at once, as a rule: cores are woken only where the first spans are alike
            let first = a.len().min(FIRST);
            a.label == b.label
                && a.len() == b.len()
                && (0..first).all(same)
                && (first..a.len()).into_par_iter().with_min_len(4_096).all(same)
        };
        plain && a.rows.len() == b.rows.len() && rows(a).zip(rows(b)).all(same)
    }

    /// The rank of a line, an index into the ranks.
    pub fn rank_of(&self, line: Line) -> usize {
        let of = |inside: &dyn Fn(&RankRows) -> bool| self.ranks.iter().position(inside).unwrap_or(0);
        match line {
            Line::Rank(rank) => rank,
            Line::Ranges(row) => of(&|r| r.ranges.contains(&row)),
            Line::Row(row) => of(&|r| r.rows.contains(&row)),
        }
    }

    /// How many things (spans, ranges, exposed stretches) a line has.
    pub fn len(&self, line: Line) -> usize {
        match line {
            Line::Rank(rank) => self.ranks.get(rank).map_or(0, |r| r.exposed.intervals().len()),
            Line::Ranges(row) => self.range_rows.get(row).map_or(0, RangeRow::len),
            Line::Row(row) => self.rows.get(row).map_or(0, Row::len),
        }
    }

    /// Start and end (ns) of the thing at a place of a line.
    pub fn interval(&self, line: Line, place: usize) -> Option<(i64, i64)> {
        match line {
            Line::Rank(rank) => self.ranks.get(rank)?.exposed.intervals().get(place).copied(),
            Line::Ranges(row) => self.range(row, place).map(|r| (r.start_ns, r.end_ns)),
            Line::Row(row) => self.span(row, place).map(|s| (s.start_ns, s.end_ns)),
        }
    }

    /// The place of the thing of a line that is nearest to a time.
    pub fn nearest(&self, line: Line, time: i64) -> usize {
        match line {
            Line::Rank(rank) => self.ranks.get(rank).map_or(0, |r| r.exposed.nearest(time)),
            Line::Ranges(row) => {
                self.range_rows.get(row).map_or(0, |r| r.nearest(&self.trace.ranges, time))
            }
            Line::Row(row) => self.rows.get(row).map_or(0, |r| r.nearest(self.spans(), time)),
        }
    }

    /// The collective of a rank (an index into the ranks) that fills most of a stretch of time (ns), the earliest in
    /// the trace of several that fill as much: its index in the trace.
    pub fn collective(&self, rank: usize, (from, to): (i64, i64)) -> Option<usize> {
        let rows = self.ranks.get(rank)?.rows.clone();
        let spans = rows.flat_map(|at| {
            let row = &self.rows[at];
            let places =
                if row.has[Class::Comm as usize] { row.places(self.spans(), from, to) } else { 0..0 };
            places.filter_map(|place| row.span(place))
        });
        let common = |at: &usize| {
            let span = &self.trace.spans[*at];
            span.end_ns.min(to).saturating_sub(span.start_ns.max(from))
        };
        let comm = spans.filter(|at| self.spans().class(&self.trace.spans[*at]) == Class::Comm);
        comm.filter(|at| common(at) > 0).max_by_key(|at| (common(at), std::cmp::Reverse(*at)))
    }

    /// What a rank (an index into the ranks) computes first from a time on: its index in the trace. Looks at
    /// few spans where computation is frequent.
    pub fn computes_after(&self, rank: usize, time: i64) -> Option<usize> {
        let start = |at: usize| self.trace.spans[at].start_ns;
        let mut best: Option<usize> = None;
        let rows = self.rows.get(self.ranks.get(rank)?.rows.clone())?.iter();
        // what computes alone bounds how far rows that also communicate are looked at
        let mut rows: Vec<_> = rows.filter(|row| row.has[Class::Compute as usize]).collect();
        rows.sort_by_key(|row| row.has[Class::Comm as usize]);
        for row in rows {
            let spans = (row.from(self.spans(), time)..row.len()).filter_map(|place| row.span(place));
            let mut later = spans
                .filter(|at| start(*at) >= time)
                .take_while(|at| best.is_none_or(|best| (start(*at), *at) < (start(best), best)));
            let computes = |at: &usize| self.spans().class(&self.trace.spans[*at]) == Class::Compute;
            best = later.find(computes).or(best);
        }
        best
    }

    /// Where a span of the trace is drawn: its line and its place on it.
    pub fn find(&self, span: usize) -> Option<(Line, usize)> {
        let start = self.trace.spans.get(span)?;
        let rank = self.ranks.iter().find(|rank| rank.rank == start.rank)?;
        rank.rows.clone().find_map(|at| {
            let row = self.rows.get(at)?;
            let first = row.from(self.spans(), start.start_ns);
            let alike = (first..row.len())
                .take_while(|place| self.span(at, *place).is_some_and(|s| s.start_ns == start.start_ns));
            let place = { alike }.find(|place| row.span(*place) == Some(span))?;
            Some((Line::Row(at), place))
        })
    }

    /// The rank and the lane of a row, where rows are lanes (own traces).
    pub fn lane_of(&self, row: usize) -> Option<(u32, Lane)> {
        let rank = self.ranks.iter().find(|rank| rank.rows.contains(&row))?;
        let lane = [Lane::Compute, Lane::Comm].get(row - rank.rows.start)?;
        self.trace.meta.streams.is_empty().then_some((rank.rank, *lane))
    }

    /// Index in the trace of the span at a place of a line.
    pub fn span_index(&self, line: Line, place: usize) -> Option<usize> {
        match line {
            Line::Row(row) => self.rows.get(row)?.span(place),
            _ => None,
        }
    }

    /// Bytes that the index takes beside the trace.
    pub fn bytes(&self) -> usize {
        let exposed: usize = self.ranks.iter().map(|r| r.exposed.bytes()).sum();
        let rows: usize = self.rows.iter().map(Row::bytes).sum();
        let ranges: usize = self.range_rows.iter().map(RangeRow::bytes).sum();
        exposed + rows + ranges + self.classes.len() + self.steps.len() * size_of::<StepRange>() * 3
    }
}
