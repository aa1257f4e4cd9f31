//! Trace index for drawing: ranks with their rows, exposed communication, steps. Lookups take logarithmic time. Spans are
//! not copied: the index uses under 40 bytes per span, mostly about 20.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::align::Anchor;
use super::row::{Arrival, SpanClass, SpanRow, Spans, ThreadRanges, nearer};
use super::window::TimeWindow;
use plan::{Lane, Phase};
use study::analysis::{ExpertLoads, ExpertTimes};
use study::rewire::LAUNCH_BOUND;
use table::Provenance;
use trace::overlap::Selection;
pub use trace::overlap::StepKey;
use trace::overlap::intervals::Coverage;
use trace::{Doubted, ImportReport, Range, Span, Trace};

/// Step with its time range over all ranks and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    pub key: StepKey,
    /// First start to last end.
    pub window: TimeWindow,
}

#[derive(Clone, Debug)]
pub struct RankRows {
    pub rank: u32,
    /// `r0`, with process and device if the trace has them.
    pub label: String,
    /// Its streams or lanes, as a range of [`TraceIndex::rows`].
    pub rows: std::ops::Range<usize>,
    /// Its named ranges and host work, as a range of [`TraceIndex::range_rows`].
    pub ranges: std::ops::Range<usize>,
    /// Time of exposed communication.
    pub exposed: Coverage,
    /// Span that ends last.
    pub last: Option<usize>,
    /// Index of the first other rank with identical spans, if any.
    pub same_as: Option<usize>,
}

impl RankRows {
    /// Longest exposed communication that touches a window.
    pub fn longest_exposed(&self, window: TimeWindow) -> Option<(i64, i64)> {
        longest(&self.exposed, window)
    }
}

/// Longest interval that touches a window.
fn longest(intervals: &Coverage, window: TimeWindow) -> Option<(i64, i64)> {
    let all = intervals.union();
    let first = all.partition_point(|(_, to)| *to <= window.from);
    let within = all[first..].iter().take_while(|(from, _)| *from < window.to);
    within.max_by_key(|(from, to)| to.saturating_sub(*from)).copied()
}

#[derive(Debug)]
pub struct TraceIndex {
    /// Spans of all ranks, or of the first if all did the same; see [`Self::whole`].
    pub trace: Trace,
    /// Ranks whose spans are those of the first and are left out.
    pub folded: Vec<u32>,
    pub title: String,
    /// File or run that it was opened from, as the command line accepts it, if known.
    pub opened: Option<String>,
    /// Classification rules, as `--rules` accepts them; `None` for the default.
    pub rules: Option<String>,
    /// Recording within a directory, as `--recording` accepts it; `None` for the default.
    pub recording: Option<String>,
    /// Size in bytes of the imported files, if they can still be read.
    pub files: Option<u64>,
    /// First start to last end of spans and ranges.
    pub bounds: TimeWindow,
    /// First start of a span, the zero of displayed times (ns).
    pub zero: i64,
    /// Ranks in ascending order.
    pub ranks: Vec<RankRows>,
    pub rows: Vec<SpanRow>,
    /// Named ranges by rank, thread and depth; operators and calls of a thread follow its ranges.
    pub range_rows: Vec<ThreadRanges>,
    pub steps: Vec<StepRange>,
    /// Steps of a serving engine with prefill and decode in one batch; their phase is prefill.
    pub(super) mixed: BTreeSet<StepKey>,
    /// Step to open at: the decode step, or step, whose length is nearest to the median.
    pub typical_step: Option<usize>,
    /// Phase that overlap and verdict cover by default; `None` for all steps.
    pub default_phase: Option<Phase>,
    pub(super) classes: Vec<SpanClass>,
    /// Arrivals at collectives of an imported trace that recorded all their ranks, sorted by span.
    pub(super) arrivals: Vec<Arrival>,
    pub(super) step_places: BTreeMap<StepKey, usize>,
    /// Matched collectives of a mixture, once needed.
    pub(super) experts: OnceLock<Option<ExpertLoads>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceLine {
    /// Exposed communication of a rank, merged with all its rows while it is collapsed.
    Rank(usize),
    /// Named ranges, or operators and calls, of one thread and depth, as an index into the range rows.
    Ranges(usize),
    /// Spans, as an index into the rows.
    Row(usize),
}

impl TraceIndex {
    pub fn provenance(&self) -> Provenance {
        self.trace.meta.provenance
    }

    /// Name for the command line: the file or run it was opened from, else its run id, else the single
    /// imported file.
    pub fn source(&self) -> Option<String> {
        let meta = &self.trace.meta;
        let file = meta.import.as_ref().and_then(|import| match &import.files[..] {
            [file] => Some(file.clone()),
            _ => None,
        });
        self.opened.clone().or_else(|| meta.run.clone()).or(file)
    }

    /// Trace with the spans of all ranks.
    pub fn whole(&self) -> Cow<'_, Trace> {
        self.with_ranks(self.folded.len())
    }

    /// Trace with the spans of up to two ranks that did the same, which is enough to match their collectives.
    pub fn matchable(&self) -> Cow<'_, Trace> {
        self.with_ranks(1)
    }

    fn with_ranks(&self, most: usize) -> Cow<'_, Trace> {
        match &self.folded[..self.folded.len().min(most)] {
            [] => Cow::Borrowed(&self.trace),
            others => Cow::Owned(self.trace.unfold_ranks(others)),
        }
    }

    /// Index of the same trace with the spans of all ranks.
    pub fn unfolded(&self) -> Self {
        Self {
            opened: self.opened.clone(),
            rules: self.rules.clone(),
            recording: self.recording.clone(),
            files: self.files,
            ..Self::from_title(self.title.clone(), self.whole().into_owned(), Vec::new())
        }
    }

    pub fn rank_count(&self) -> usize {
        self.ranks.len() + self.folded.len()
    }

    /// Indices of the decode steps; of all steps if none decodes.
    pub(super) fn steady_steps(&self) -> Vec<usize> {
        let of_phase = |phase: Phase| {
            let is_of = |at: &usize| self.steps[*at].key.phase == phase;
            (0..self.steps.len()).filter(is_of).collect::<Vec<usize>>()
        };
        let decode = of_phase(Phase::Decode);
        if decode.is_empty() { of_phase(Phase::Prefill) } else { decode }
    }

    /// Typical one of the steady steps.
    pub(super) fn find_typical_step(&self) -> Option<usize> {
        let steps = self.steady_steps();
        let lengths: Vec<i64> = steps.iter().map(|at| self.steps[*at].window.width()).collect();
        study::analysis::typical_step(&lengths).map(|at| steps[at])
    }

    /// Rank (by index) and interval of the longest exposed communication in a typical step: the decode step, or step, in
    /// which the first rank's exposed time is the median.
    pub fn typical_exposed(&self) -> Option<(usize, (i64, i64))> {
        let steps = self.steady_steps().into_iter();
        let mut windows: Vec<TimeWindow> = steps.map(|at| self.steps[at].window).collect();
        let first = &self.ranks.first()?.exposed;
        windows.sort_by_cached_key(|window| first.within((window.from, window.to)));
        let middle = windows.len() / 2;
        // the rest serves if the median step exposes nothing
        let later = windows.iter().skip(middle).copied();
        later.chain([self.bounds]).find_map(|window| self.longest_exposed(window))
    }

    fn longest_exposed(&self, window: TimeWindow) -> Option<(usize, (i64, i64))> {
        let of_rank = |(at, rank): (usize, &RankRows)| Some((at, rank.longest_exposed(window)?));
        let longest = self.ranks.iter().enumerate().filter_map(of_rank);
        longest.max_by_key(|(_, (from, to))| to - from)
    }

    /// First start to last end of spans, which `overlap` covers; [`Self::bounds`] also has the ranges.
    pub fn extent(&self) -> TimeWindow {
        let last = self.ranks.iter().filter_map(|rank| self.trace.spans.get(rank.last?));
        TimeWindow::new(self.zero, last.map(|span| span.end_ns).max().unwrap_or(self.bounds.to))
    }

    pub fn opened_from(self, source: impl Into<String>) -> Self {
        Self { opened: Some(source.into()), ..self }
    }

    pub fn classified_by(self, rules: Option<String>) -> Self {
        Self { rules, ..self }
    }

    pub fn of_recording(self, recording: Option<String>) -> Self {
        Self { recording, ..self }
    }

    /// Sets the size of the imported files, if they still exist.
    pub fn with_files(self) -> Self {
        let files = trace::import::files(&self.trace);
        let bytes = |path: &std::path::PathBuf| path.metadata().map_or(0, |data| data.len());
        let bytes = (!files.is_empty()).then(|| files.iter().map(bytes).sum());
        Self { files: bytes, ..self }
    }

    pub fn spans(&self) -> Spans<'_> {
        Spans { trace: &self.trace, classes: &self.classes, arrivals: &self.arrivals }
    }

    pub fn span(&self, row: usize, place: usize) -> Option<&Span> {
        self.trace.spans.get(self.rows.get(row)?.span(place)?)
    }

    pub fn range(&self, row: usize, place: usize) -> Option<&Range> {
        let row = self.range_rows.get(row)?;
        self.ranges_of(row).get(row.range(place)?)
    }

    /// Ranges, or operators and calls, that the indices of a row refer to.
    pub fn ranges_of(&self, row: &ThreadRanges) -> &[Range] {
        if row.is_host_work { &self.trace.meta.host.events } else { &self.trace.ranges }
    }

    /// Name of a range, operator or call.
    pub fn range_name(&self, range: &Range) -> &str {
        let meta = &self.trace.meta;
        let named = meta.range_names.get(range.name as usize).map(String::as_str);
        named.or_else(|| meta.host.name(range)).unwrap_or("?")
    }

    pub fn name(&self, span: &Span) -> &str {
        self.trace.operations.get(span.operation as usize).map_or("?", |o| o.name.as_str())
    }

    /// Times of a mixture's experts in a part of the trace. The first call matches the trace's collectives.
    pub fn experts(&self, selection: &Selection) -> Option<ExpertTimes> {
        let loads = self.experts.get_or_init(|| ExpertLoads::from_trace(&self.trace));
        loads.as_ref()?.times(&self.trace, selection)
    }

    /// Display name of a step: `prefill`, `mixed (step 3)`, `step 12`.
    pub fn step_label(&self, key: StepKey) -> String {
        match self.mixed.contains(&key) {
            true => format!("mixed (step {})", key.step),
            false => key.label(),
        }
    }

    pub fn step_of(&self, span: &Span) -> Option<usize> {
        self.step_places.get(&StepKey::from_span(span)).copied()
    }

    /// Index of the last step that starts at or before a time.
    pub fn step_at(&self, time: i64) -> Option<usize> {
        self.steps.partition_point(|s| s.window.from <= time).checked_sub(1)
    }

    /// All lines; collapsed ranks contribute only the first.
    pub fn lines(&self, collapsed: impl Fn(usize) -> bool) -> Vec<TraceLine> {
        let mut lines = Vec::new();
        for (i, rank) in self.ranks.iter().enumerate() {
            lines.push(TraceLine::Rank(i));
            if !collapsed(i) {
                // streams first: ranges may take many rows
                lines.extend(rank.rows.clone().map(TraceLine::Row));
                lines.extend(rank.ranges.clone().map(TraceLine::Ranges));
            }
        }
        lines
    }

    /// Numbers of later ranks with the same spans as the rank at this index.
    pub fn alike(&self, rank: usize) -> Vec<u32> {
        if rank == 0 && !self.folded.is_empty() {
            return self.folded.clone();
        }
        self.ranks.iter().filter(|other| other.same_as == Some(rank)).map(|other| other.rank).collect()
    }

    /// Representative of a line: the matching line of the first identical rank, else the line itself.
    pub fn alike_line(&self, line: TraceLine) -> TraceLine {
        self.ranks[self.rank_of(line)].same_as.map_or(line, |first| self.line_on(line, first))
    }

    /// Matching line of the first rank that is represented by the line's rank; the line itself if none is.
    pub fn represented_line(&self, line: TraceLine) -> TraceLine {
        let own = self.rank_of(line);
        let first = self.ranks.iter().position(|rank| rank.same_as == Some(own));
        first.map_or(line, |first| self.line_on(line, first))
    }

    /// Matching line of an identical rank (by index).
    fn line_on(&self, line: TraceLine, rank: usize) -> TraceLine {
        let (own, other) = (&self.ranks[self.rank_of(line)], &self.ranks[rank]);
        match line {
            TraceLine::Rank(_) => TraceLine::Rank(rank),
            TraceLine::Ranges(row) => TraceLine::Ranges(other.ranges.start + row - own.ranges.start),
            TraceLine::Row(row) => TraceLine::Row(other.rows.start + row - own.rows.start),
        }
    }

    pub fn rank_of(&self, line: TraceLine) -> usize {
        let of = |inside: &dyn Fn(&RankRows) -> bool| self.ranks.iter().position(inside).unwrap_or(0);
        match line {
            TraceLine::Rank(rank) => rank,
            TraceLine::Ranges(row) => of(&|r| r.ranges.contains(&row)),
            TraceLine::Row(row) => of(&|r| r.rows.contains(&row)),
        }
    }

    /// Number of items (spans, ranges, exposed stretches) on a line.
    pub fn len(&self, line: TraceLine) -> usize {
        match line {
            TraceLine::Rank(rank) => self.ranks.get(rank).map_or(0, |r| r.exposed.union().len()),
            TraceLine::Ranges(row) => self.range_rows.get(row).map_or(0, ThreadRanges::len),
            TraceLine::Row(row) => self.rows.get(row).map_or(0, SpanRow::len),
        }
    }

    /// Window to open a step on, and the span to point at if it is not the window's first. The window shows the larger loss of
    /// the first rank, waiting for the host or exposed communication: two layers in the middle, or as much time around the
    /// step's longest interval of the loss if the middle shows less than half of its usual share. The span is the work that
    /// the longest wait delayed, or the collective that fills the exposed interval.
    pub fn opening(&self, step: usize) -> Option<(TimeWindow, Option<usize>)> {
        /// Least exposed share of a step (1/50) to look for its longest stretch.
        const WORTH: i64 = 50;
        let middle = self.two_layers(step);
        let (whole, rank) = (self.steps.get(step)?.window, self.ranks.first()?);
        let waits = self.host_waits(step);
        let of_host = Coverage::new(waits.iter().map(|(wait, _)| *wait).collect());
        let within = |part: &Coverage, window: TimeWindow| part.within((window.from, window.to));
        let share = |part: &Coverage, window: TimeWindow| {
            within(part, window) as f64 / window.width().max(1) as f64
        };
        let is_host = share(&of_host, whole) >= LAUNCH_BOUND.max(share(&rank.exposed, whole));
        let loss = if is_host { &of_host } else { &rank.exposed };
        let usual = middle.filter(|window| share(loss, *window) >= share(loss, whole) / 2.0);
        let is_small = within(loss, whole).saturating_mul(WORTH) < whole.width();
        let longest = longest(loss, whole).filter(|_| !is_small && (is_host || usual.is_none()));
        let Some((from, to)) = longest else { return middle.map(|window| (window, None)) };
        let width = middle.map_or((to - from).saturating_mul(8), |window| window.width());
        let width = width.max((to - from).saturating_mul(2)).min(whole.width());
        let left = from.saturating_add((to - from) / 2).saturating_sub(width / 2);
        let around = TimeWindow::new(left, left.saturating_add(width)).within(whole);
        let window = usual.unwrap_or(around);
        if !is_host {
            return Some((window, self.collective(0, (from, to))));
        }
        let is_shown = |(wait, span): &&((i64, i64), usize)| {
            window.from <= wait.0 && window.contains(self.trace.spans[*span].start_ns)
        };
        let delayed = waits.iter().filter(is_shown).max_by_key(|((from, to), _)| to - from);
        Some((window, delayed.map(|(_, span)| *span)))
    }

    /// Idle time of the first rank in a step (by index) before the host launched its next work (ns), each with that span (an
    /// index); empty if the trace has no reliable times of launches.
    fn host_waits(&self, step: usize) -> Vec<((i64, i64), usize)> {
        let is_reliable = |import: &ImportReport| {
            !import.doubts(Doubted::Launches) && !import.doubts(Doubted::Durations)
        };
        let has_launches = self.trace.meta.import.as_ref().is_some_and(is_reliable);
        let (Some(step), Some(rank), true) = (self.steps.get(step), self.ranks.first(), has_launches)
        else {
            return Vec::new();
        };
        let window = step.window;
        let span = |at: usize| &self.trace.spans[at];
        let rows = self.rows[rank.rows.clone()].iter();
        let of_row = |row: &SpanRow| -> Vec<usize> {
            let places = row.from(self.spans(), window.from)..row.len();
            let before_end = places
                .filter_map(|place| row.span(place))
                .take_while(|at| span(*at).start_ns < window.to);
            before_end.filter(|at| span(*at).start_ns >= window.from).collect()
        };
        let mut spans: Vec<usize> = rows.flat_map(of_row).collect();
        spans.sort_by_key(|at| span(*at).start_ns);
        let (mut waits, mut busy_to) = (Vec::new(), window.from);
        for at in spans {
            let Span { ready_ns, end_ns, .. } = *span(at);
            if span(at).is_launch_known() && ready_ns > busy_to {
                waits.push(((busy_to, ready_ns), at));
            }
            busy_to = busy_to.max(end_ns);
        }
        waits
    }

    /// Window of two layers in the middle of a step of the first rank; without layers, of five collectives, or of 25 of
    /// many kernels. `None` if the step has fewer.
    pub fn two_layers(&self, step: usize) -> Option<TimeWindow> {
        let step = self.steps.get(step)?;
        let rank = self.ranks.first()?.rank;
        let rows = (0..self.rows.len()).filter(|row| {
            self.len(TraceLine::Row(*row)) > 0
                && self.span(*row, 0).is_some_and(|span| span.rank == rank)
        });
        let spans = rows.flat_map(|row| {
            let first = self.rows[row].from(self.spans(), step.window.from);
            let places = first..self.len(TraceLine::Row(row));
            let spans = places.filter_map(move |place| self.span(row, place));
            spans.take_while(|span| span.start_ns < step.window.to)
        });
        let of_step: Vec<&Span> = spans.filter(|span| StepKey::from_span(span) == step.key).collect();
        let layer = |span: &Span| self.trace.operations.get(span.operation as usize)?.layer;
        let extent = |spans: &mut dyn Iterator<Item = &&Span>| {
            let ends = spans.map(|span| (span.start_ns, span.end_ns));
            ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).map(|(from, to)| TimeWindow::new(from, to))
        };
        let middle = of_step.iter().filter_map(|span| layer(span)).max().unwrap_or(0) / 2;
        if middle > 0 {
            let is_shown =
                |span: &&&Span| layer(span).is_some_and(|at| at == middle || at == middle + 1);
            return extent(&mut of_step.iter().filter(is_shown));
        }
        let on = |lane: Lane| {
            let mut all: Vec<&Span> = of_step.iter().copied().filter(|span| span.lane == lane).collect();
            all.sort_by_key(|span| span.start_ns);
            all
        };
        let (comm, compute) = (on(Lane::Comm), on(Lane::Compute));
        // the middle by count, not by time: most of the step may be idle
        let (all, around) = match (comm.len(), compute.len()) {
            (9.., _) => (&comm, 2),
            (_, 100..) => (&compute, 12),
            _ => return None,
        };
        let middle = all.len() / 2;
        extent(&mut all[middle - around..=middle + around].iter())
    }

    /// Time of a place in a step (ns); `None` if the step has no such place.
    pub fn place_in_step(&self, step: usize, anchor: Anchor) -> Option<i64> {
        let window = self.steps.get(step)?.window;
        match anchor {
            Anchor::Start => Some(window.from),
            Anchor::Middle => self.two_layers(step).map(|layers| layers.from),
            Anchor::Share(percent) => {
                Some(window.from.saturating_add(window.width() / 100 * i64::from(percent)))
            }
            Anchor::Layer(layer) => {
                let key = self.steps[step].key;
                let rank = self.ranks.first()?.rank;
                let of_layer = |span: &&Span| span.rank == rank && self.layer_of(span) == Some(layer);
                let spans = self.trace.spans.get(key.spans(&self.trace))?.iter();
                spans.filter(of_layer).map(|span| span.start_ns).min()
            }
        }
    }

    pub fn layer_of(&self, span: &Span) -> Option<u32> {
        self.trace.operations.get(span.operation as usize)?.layer
    }

    /// Layer that the first rank's first row is in at a time (ns).
    pub fn layer_at(&self, time: i64) -> Option<u32> {
        let row = self.ranks.first()?.rows.start;
        let place = self.rows.get(row)?.nearest(self.spans(), time);
        self.layer_of(self.span(row, place)?)
    }

    /// Start and end (ns) of the item at a position of a line.
    pub fn interval(&self, line: TraceLine, place: usize) -> Option<(i64, i64)> {
        match line {
            TraceLine::Rank(rank) => self.ranks.get(rank)?.exposed.union().get(place).copied(),
            TraceLine::Ranges(row) => self.range(row, place).map(|r| (r.start_ns, r.end_ns)),
            TraceLine::Row(row) => self.span(row, place).map(|s| (s.start_ns, s.end_ns)),
        }
    }

    pub fn nearest(&self, line: TraceLine, time: i64) -> usize {
        match line {
            TraceLine::Rank(rank) => self.ranks.get(rank).map_or(0, |rank| {
                let exposed = rank.exposed.union();
                let next = exposed.partition_point(|(start, _)| *start <= time);
                nearer(next, time, |place| exposed.get(place).copied())
            }),
            TraceLine::Ranges(row) => {
                self.range_rows.get(row).map_or(0, |r| r.nearest(self.ranges_of(r), time))
            }
            TraceLine::Row(row) => self.rows.get(row).map_or(0, |r| r.nearest(self.spans(), time)),
        }
    }

    /// Span index of the collective of a rank (by rank index) that covers most of an interval (ns); ties
    /// go to the earliest in the trace.
    pub fn collective(&self, rank: usize, (from, to): (i64, i64)) -> Option<usize> {
        let rows = self.ranks.get(rank)?.rows.clone();
        let spans = rows.flat_map(|at| {
            let row = &self.rows[at];
            let places = if row.has[SpanClass::Comm as usize] {
                row.places(self.spans(), from, to)
            } else {
                0..0
            };
            places.filter_map(|place| row.span(place))
        });
        let common = |at: &usize| {
            let span = &self.trace.spans[*at];
            span.end_ns.min(to).saturating_sub(span.start_ns.max(from))
        };
        let comm = spans.filter(|at| self.spans().class(&self.trace.spans[*at]) == SpanClass::Comm);
        comm.filter(|at| common(at) > 0).max_by_key(|at| (common(at), std::cmp::Reverse(*at)))
    }

    /// Span index of the first computation of a rank (by rank index) at or after a time. Inspects few
    /// spans if computation is frequent.
    pub fn computes_after(&self, rank: usize, time: i64) -> Option<usize> {
        let start = |at: usize| self.trace.spans[at].start_ns;
        let mut best: Option<usize> = None;
        let rows = self.rows.get(self.ranks.get(rank)?.rows.clone())?.iter();
        // compute-only rows come first and bound the scan of rows that also communicate
        let mut rows: Vec<_> = rows.filter(|row| row.has[SpanClass::Compute as usize]).collect();
        rows.sort_by_key(|row| row.has[SpanClass::Comm as usize]);
        for row in rows {
            let spans = (row.from(self.spans(), time)..row.len()).filter_map(|place| row.span(place));
            let mut later = spans
                .filter(|at| start(*at) >= time)
                .take_while(|at| best.is_none_or(|best| (start(*at), *at) < (start(best), best)));
            let computes = |at: &usize| self.spans().class(&self.trace.spans[*at]) == SpanClass::Compute;
            best = later.find(computes).or(best);
        }
        best
    }

    /// Span indices of the last work of a rank (by rank index) before an interval and of its first work after it; `None` if
    /// the rank works in the interval, or has no work on one side of it.
    pub fn around_gap(&self, rank: usize, gap: TimeWindow) -> Option<(usize, usize)> {
        let rows = self.rows.get(self.ranks.get(rank)?.rows.clone())?.iter();
        let near = rows.flat_map(|row| {
            let next = row.from(self.spans(), gap.from);
            (next.saturating_sub(1)..(next + 2).min(row.len())).filter_map(|place| row.span(place))
        });
        let near: Vec<usize> = near.collect();
        let time = |at: &usize| (self.trace.spans[*at].start_ns, self.trace.spans[*at].end_ns);
        if near.iter().map(time).any(|(start, end)| start < gap.to && gap.from < end) {
            return None;
        }
        let before = near.iter().filter(|at| time(at).1 <= gap.from).max_by_key(|at| time(at).1)?;
        let after = near.iter().filter(|at| gap.to <= time(at).0).min_by_key(|at| time(at).0)?;
        Some((*before, *after))
    }

    /// Innermost range of a rank's thread that fills at least half of an interval, and how much of it (ns).
    pub fn range_during(&self, rank: usize, thread: u16, gap: TimeWindow) -> Option<(&Range, i64)> {
        let rows = self.ranks.get(rank)?.ranges.clone();
        let is_of_thread = |row: &usize| self.range_rows[*row].thread == thread;
        let fills = |row: usize| {
            let range = self.range(row, self.nearest(TraceLine::Ranges(row), gap.middle()))?;
            let common = range.end_ns.min(gap.to).saturating_sub(range.start_ns.max(gap.from));
            (!range.on_device && common >= gap.width() / 2).then_some((range, common))
        };
        // deepest first
        rows.rev().filter(is_of_thread).find_map(fills)
    }

    pub fn find(&self, span: usize) -> Option<(TraceLine, usize)> {
        let start = self.trace.spans.get(span)?;
        let rank = self.ranks.iter().find(|rank| rank.rank == start.rank)?;
        rank.rows.clone().find_map(|at| {
            let row = self.rows.get(at)?;
            let first = row.from(self.spans(), start.start_ns);
            let alike = (first..row.len())
                .take_while(|place| self.span(at, *place).is_some_and(|s| s.start_ns == start.start_ns));
            let place = { alike }.find(|place| row.span(*place) == Some(span))?;
            Some((TraceLine::Row(at), place))
        })
    }

    /// Rank and lane of a row, if rows are lanes (our own traces).
    pub fn lane_of(&self, row: usize) -> Option<(u32, Lane)> {
        let rank = self.ranks.iter().find(|rank| rank.rows.contains(&row))?;
        let lane = [Lane::Compute, Lane::Comm].get(row - rank.rows.start)?;
        self.trace.meta.streams.is_empty().then_some((rank.rank, *lane))
    }

    pub fn span_index(&self, line: TraceLine, place: usize) -> Option<usize> {
        match line {
            TraceLine::Row(row) => self.rows.get(row)?.span(place),
            _ => None,
        }
    }

    /// Memory used by the index without the trace, in bytes.
    pub fn bytes(&self) -> usize {
        let exposed: usize = self.ranks.iter().map(|r| r.exposed.bytes()).sum();
        let rows: usize = self.rows.iter().map(SpanRow::bytes).sum();
        let ranges: usize = self.range_rows.iter().map(ThreadRanges::bytes).sum();
        let arrivals = self.arrivals.capacity() * size_of::<Arrival>();
        let steps = self.steps.len() * size_of::<StepRange>() * 3;
        exposed + rows + ranges + self.classes.len() + arrivals + steps
    }
}
