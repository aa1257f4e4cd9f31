//! Rows of a timeline, by start: the spans of one stream or lane with the time they cover per class ([`SpanRow`]), and
//! named ranges of one thread and depth, which never overlap ([`ThreadRanges`]).
//!
//! Checkpoints every few items hold running sums, so that the coverage of a column costs a binary search plus one
//! block, regardless of the row's length; blocks too short to be visible are skipped. Checkpoints cost 4.5 bytes per
//! span.

use rayon::prelude::*;

use super::window::TimeWindow;
use plan::Lane;
use trace::{OperationInfo, OperationKind, Range, Span, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanClass {
    Compute,
    /// Time on the comm lane: transfers and waiting for other ranks.
    Comm,
    /// Copies and fills (imported traces).
    Memory,
}

/// Number of sums: the classes, plus the waiting part of communication.
pub const KINDS: usize = 4;

/// Index of the waiting time in a column's sums.
pub const WAITING: usize = 3;

/// Spans per checkpoint.
const BLOCK: usize = 16;

impl SpanClass {
    pub fn from_operation(operation: &OperationInfo) -> Self {
        match (operation.lane, &operation.kind) {
            (Lane::Comm, _) => Self::Comm,
            (_, OperationKind::Memcpy | OperationKind::Memset | OperationKind::Other) => Self::Memory,
            _ => Self::Compute,
        }
    }

    /// Name for the label of a lane, and its short form.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            Self::Compute => ["compute", "comp."],
            Self::Comm => ["comm", "comm"],
            Self::Memory => ["copies", "copies"],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Spans<'a> {
    pub trace: &'a Trace,
    pub classes: &'a [SpanClass],
    /// Arrivals derived from the spans of all ranks of a collective where the trace records none; sorted by span.
    pub arrivals: &'a [Arrival],
}

/// Span (an index) and the time at which the last rank arrived at its collective (ns).
pub type Arrival = (usize, i64);

impl<'a> Spans<'a> {
    pub fn all(&self) -> &'a [Span] {
        &self.trace.spans
    }

    /// Arrival of the last rank at the collective of a span (an index), clamped to the span; `None` if unknown.
    pub fn arrival(&self, at: usize) -> Option<i64> {
        let span = self.all().get(at)?;
        let found = || {
            let place = self.arrivals.binary_search_by_key(&at, |(span, _)| *span).ok()?;
            Some(self.arrivals[place].1.clamp(span.start_ns, span.end_ns.max(span.start_ns)))
        };
        self.trace.arrival(span).or_else(found)
    }

    /// Class of a span; its lane takes precedence.
    pub fn class(&self, span: &Span) -> SpanClass {
        match span.lane {
            Lane::Comm => SpanClass::Comm,
            Lane::Compute => match self.classes.get(span.operation as usize) {
                Some(SpanClass::Memory) => SpanClass::Memory,
                _ => SpanClass::Compute,
            },
        }
    }
}

/// Running union, per kind.
#[derive(Clone, Copy, Debug)]
struct Sums {
    /// Latest end (ns).
    latest: [i64; KINDS],
    /// Time covered up to it (ns).
    covered: [i64; KINDS],
}

impl Sums {
    const NONE: Self = Self { latest: [i64::MIN; KINDS], covered: [0; KINDS] };

    /// Adds an interval whose start is not before earlier ones; returns the newly covered part.
    fn add(&mut self, kind: usize, start: i64, end: i64) -> Option<(i64, i64)> {
        let from = start.max(self.latest[kind]);
        if end <= from {
            return None;
        }
        self.latest[kind] = end;
        self.covered[kind] = self.covered[kind].saturating_add(end.saturating_sub(from));
        Some((from, end))
    }

    /// Adds a span (an index).
    fn add_span(&mut self, spans: &Spans, at: usize) -> Option<(SpanClass, (i64, i64))> {
        let span = &spans.all()[at];
        let class = spans.class(span);
        if class == SpanClass::Comm
            && let Some(arrival) = spans.arrival(at)
        {
            self.add(WAITING, span.start_ns, arrival);
        }
        self.add(class as usize, span.start_ns, span.end_ns).map(|new| (class, new))
    }

    fn latest(&self) -> i64 {
        self.latest[..WAITING].iter().copied().max().unwrap_or(i64::MIN)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPrefixSums {
    /// Number of spans that started before it.
    pub place: usize,
    /// Latest end of those (ns).
    pub latest: i64,
    /// Time they cover before it, by kind (ns).
    pub covered: [i64; KINDS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnActivity {
    /// Covered time by kind (ns): compute, comm, memory, waiting.
    pub covered: [i64; KINDS],
    /// Half-open range of positions that start in the column.
    pub places: (usize, usize),
    /// True if something is active at the left edge, or many spans start in the column.
    pub left: bool,
    /// True if something is active at the right edge.
    pub right: bool,
}

#[derive(Clone, Debug)]
pub struct SpanRow {
    pub label: String,
    /// Indices into the trace's spans, by start.
    order: Vec<u32>,
    /// First start of each block.
    starts: Vec<i64>,
    /// Running sums before each block.
    sums: Vec<Sums>,
    /// Classes present: compute, comm, memory.
    pub has: [bool; WAITING],
    /// Class that covers most of the row's busy time; `None` without spans.
    pub main: Option<SpanClass>,
}

/// Unions of a row's computation and communication, ascending.
#[derive(Debug, Default)]
pub struct Unions {
    /// Computation intervals (ns), half-open.
    pub compute: Vec<(i64, i64)>,
    /// Communication intervals (ns), half-open.
    pub comm: Vec<(i64, i64)>,
}

fn push_merged(list: &mut Vec<(i64, i64)>, (from, to): (i64, i64)) {
    match list.last_mut() {
        Some(last) if last.1 == from => last.1 = to,
        _ => list.push((from, to)),
    }
}

impl SpanRow {
    /// Creates a row of spans, given as indices into all, and returns its unions. `sorted` is true if
    /// they are in order of start.
    pub fn new(label: String, mut order: Vec<u32>, sorted: bool, spans: Spans) -> (Self, Unions) {
        let start = |i: &u32| spans.all()[*i as usize].start_ns;
        if !sorted {
            order.par_sort_by_key(start);
        }
        order.shrink_to_fit();
        let blocks = order.len().div_ceil(BLOCK);
        let (mut starts, mut sums) = (Vec::with_capacity(blocks), Vec::with_capacity(blocks));
        let (mut now, mut unions, mut has) = (Sums::NONE, Unions::default(), [false; WAITING]);
        for block in order.chunks(BLOCK) {
            starts.push(start(&block[0]));
            sums.push(now);
            for i in block {
                let span = &spans.all()[*i as usize];
                has[spans.class(span) as usize] = true;
                match now.add_span(&spans, *i as usize) {
                    Some((SpanClass::Compute, new)) => push_merged(&mut unions.compute, new),
                    Some((SpanClass::Comm, new)) => push_merged(&mut unions.comm, new),
                    _ => {}
                }
            }
        }
        let present = [SpanClass::Memory, SpanClass::Comm, SpanClass::Compute].into_iter();
        let present = present.filter(|class| has[*class as usize]);
        let main = present.max_by_key(|class| now.covered[*class as usize]);
        (Self { label, order, starts, sums, has, main }, unions)
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Memory used without the spans, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.order.capacity() * size_of::<u32>()
            + self.starts.capacity() * size_of::<i64>()
            + self.sums.capacity() * size_of::<Sums>()
    }

    pub fn span(&self, place: usize) -> Option<usize> {
        self.order.get(place).map(|i| *i as usize)
    }

    /// State before a time, or up to `tolerance` ns earlier. `hint` is a block near the time.
    fn mark(&self, spans: Spans, time: i64, hint: usize, tolerance: i64) -> SpanPrefixSums {
        let next = gallop(&self.starts, hint, |start| *start < time);
        let Some(block) = next.checked_sub(1) else {
            return SpanPrefixSums { place: 0, latest: i64::MIN, covered: [0; KINDS] };
        };
        let mut sums = self.sums[block];
        let mut place = block * BLOCK;
        // the part of the block before the time is too short to be visible
        let short =
            self.starts.get(next).is_some_and(|end| end.saturating_sub(self.starts[block]) < tolerance);
        let rest = if short { 0 } else { BLOCK };
        for i in self.order.iter().skip(place).take(rest) {
            let span = &spans.all()[*i as usize];
            if span.start_ns >= time {
                break;
            }
            sums.add_span(&spans, *i as usize);
            place += 1;
        }
        let mut covered = sums.covered;
        for (covered, latest) in covered.iter_mut().zip(sums.latest) {
            // the last interval of a union extends to its latest end and began before the time
            *covered -= latest.saturating_sub(time).max(0);
        }
        SpanPrefixSums { place, latest: sums.latest(), covered }
    }

    /// Content of each column of the window; with a tolerance, edges may be up to that many ns too early.
    pub fn columns(
        &self,
        spans: Spans,
        window: TimeWindow,
        columns: usize,
        tolerance: i64,
    ) -> Vec<ColumnActivity> {
        let mut before = self.mark(spans, window.from, 0, tolerance);
        let mut from = window.from;
        // guess: as many blocks per column as in the previous one
        let mut advance = 0;
        let mut result = Vec::with_capacity(columns);
        for column in 0..columns {
            let to = window.time(column + 1, columns);
            let block = before.place / BLOCK;
            let after = self.mark(spans, to, block + advance, tolerance);
            advance = (after.place / BLOCK).saturating_sub(block);
            let mut covered = after.covered;
            for (covered, so_far) in covered.iter_mut().zip(before.covered) {
                *covered = covered.saturating_sub(so_far);
            }
            // with many spans the flag is irrelevant, and reading a span costs a cache miss
            let many = after.place - before.place > BLOCK;
            let begins =
                many || self.span(before.place).is_some_and(|i| spans.all()[i].start_ns == from);
            result.push(ColumnActivity {
                covered,
                places: (before.place, after.place),
                left: before.latest > from || begins,
                right: after.latest >= to,
            });
            (before, from) = (after, to);
        }
        result
    }

    /// Positions of all spans that may touch an interval: those that do and a few before them.
    pub fn places(&self, spans: Spans, from: i64, to: i64) -> std::ops::Range<usize> {
        let ended = self.sums.partition_point(|sums| sums.latest() <= from).saturating_sub(1);
        // zero-length spans do not extend the latest end, so also check starts within the interval
        let starts = self.starts.partition_point(|start| *start < from).saturating_sub(1);
        let last = self.mark(spans, to, 0, 0).place;
        (ended.min(starts) * BLOCK).min(last)..last
    }

    /// Position of the first span that starts at or after a time, else of the last one.
    pub fn from(&self, spans: Spans, time: i64) -> usize {
        self.mark(spans, time, 0, 0).place.min(self.len().saturating_sub(1))
    }

    pub fn nearest(&self, spans: Spans, time: i64) -> usize {
        let next = self.mark(spans, time.saturating_add(1), 0, 0).place;
        let span = |place: usize| Some(&spans.all()[self.span(place)?]);
        nearer(next, time, |place| span(place).map(|s| (s.start_ns, s.end_ns)))
    }
}

/// Chooses between two neighbours the one nearer to a time: `next`, the first that starts after it, or
/// the one before.
pub fn nearer(next: usize, time: i64, interval: impl Fn(usize) -> Option<(i64, i64)>) -> usize {
    let Some(before) = next.checked_sub(1) else { return 0 };
    let gap_before = interval(before).map_or(0, |(_, end)| time.saturating_sub(end));
    match interval(next) {
        Some((start, _)) if gap_before > 0 && start.saturating_sub(time) < gap_before => next,
        _ => before,
    }
}

/// Number of leading items for which `below` is true, in a slice partitioned by it. Searches outwards from
/// `hint`: a good guess touches only a few adjacent items, while a full search would walk through memory.
pub fn gallop<T>(sorted: &[T], hint: usize, below: impl Fn(&T) -> bool) -> usize {
    // invariant: the answer is in from..=to; items before `from` are below, the item at `to` is not
    let (mut from, mut to) = (hint.min(sorted.len()), hint.min(sorted.len()));
    let mut step = 1;
    if from > 0 && !below(&sorted[from - 1]) {
        while from > 0 && !below(&sorted[from - 1]) {
            to = from - 1;
            from = from.saturating_sub(step);
            step *= 2;
        }
    } else {
        while to < sorted.len() && below(&sorted[to]) {
            from = to + 1;
            to = (to + step).min(sorted.len());
            step *= 2;
        }
    }
    from + sorted[from..to].partition_point(below)
}

#[derive(Clone, Debug)]
pub struct ThreadRanges {
    pub rank: u32,
    /// Thread number within the rank.
    pub thread: u16,
    /// True for operators and calls: indices are those of [`trace::HostWork::events`].
    pub is_host_work: bool,
    /// Nesting depth; 0 is outermost.
    pub depth: u16,
    /// Indices into the trace's ranges, by start.
    order: Vec<u32>,
}

impl ThreadRanges {
    /// Creates a row of ranges, or of host work, given as indices into `all` in any order.
    pub fn new(
        (rank, thread, is_host_work, depth): (u32, u16, bool, u16),
        mut order: Vec<u32>,
        all: &[Range],
    ) -> Self {
        order.sort_by_key(|i| all[*i as usize].start_ns);
        order.shrink_to_fit();
        Self { rank, thread, is_host_work, depth, order }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Memory used without the ranges, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.order.capacity() * size_of::<u32>()
    }

    pub fn range(&self, place: usize) -> Option<usize> {
        self.order.get(place).map(|i| *i as usize)
    }

    /// Number of ranges that start before a time.
    fn before(&self, all: &[Range], time: i64) -> usize {
        self.order.partition_point(|i| all[*i as usize].start_ns < time)
    }

    /// True if a range is in a window, at least in part.
    pub fn touches(&self, all: &[Range], window: TimeWindow) -> bool {
        let last = self.before(all, window.to).checked_sub(1).and_then(|place| self.range(place));
        last.is_some_and(|i| all[i].end_ns > window.from || all[i].start_ns >= window.from)
    }

    pub fn nearest(&self, all: &[Range], time: i64) -> usize {
        let next = self.before(all, time.saturating_add(1));
        nearer(next, time, |place| self.range(place).map(|i| (all[i].start_ns, all[i].end_ns)))
    }

    /// Positions of the ranges that start in each column, and of the range that continues from before
    /// the window, if any.
    pub fn columns(
        &self,
        all: &[Range],
        window: TimeWindow,
        columns: usize,
    ) -> (Option<usize>, Vec<(usize, usize)>) {
        let mut first = self.before(all, window.from);
        let running = first
            .checked_sub(1)
            .filter(|place| self.range(*place).is_some_and(|i| all[i].end_ns > window.from));
        let places = (0..columns)
            .map(|column| {
                let to = window.time(column + 1, columns);
                let next =
                    first + self.order[first..].partition_point(|i| all[*i as usize].start_ns < to);
                (std::mem::replace(&mut first, next), next)
            })
            .collect();
        (running, places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use plan::Phase;
    use table::Provenance;
    use trace::TraceMeta;

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let span =
            (0i64..400, 0i64..40, 0u32..3, 0i64..50).prop_map(|(start, width, kind, wait)| Span {
                sample: 0,
                phase: Phase::Decode,
                step: 0,
                rank: 0,
                lane: if kind == 1 { Lane::Comm } else { Lane::Compute },
                stream: 0,
                operation: kind,
                ready_ns: start,
                start_ns: start,
                end_ns: start + width,
                last_arrival_ns: if kind == 1 && wait < 40 { start + wait } else { -1 },
                ..Span::EMPTY
            });
        prop::collection::vec(span, 0..120)
    }

    const CLASSES: [SpanClass; 3] = [SpanClass::Compute, SpanClass::Comm, SpanClass::Memory];

    fn trace(spans: &[Span]) -> Trace {
        let (meta, operations) = (TraceMeta::new(Provenance::Simulated, 1), Vec::new());
        Trace { meta, operations, spans: spans.to_vec(), ranges: Vec::new() }
    }

    fn of(trace: &Trace) -> Spans<'_> {
        Spans { trace, classes: &CLASSES, arrivals: &[] }
    }

    /// True per kind if a nanosecond is covered.
    fn at(list: &[Span], kind: usize, time: i64) -> bool {
        list.iter().any(|s| match kind {
            WAITING => s.start_ns <= time && time < s.end_ns.min(s.last_arrival_ns),
            _ => s.operation as usize == kind && s.start_ns <= time && time < s.end_ns,
        })
    }

    #[test]
    fn spans_without_length_are_among_the_places_that_touch() {
        let at = |start: i64| Span { ready_ns: start, start_ns: start, end_ns: start, ..Span::EMPTY };
        let mut list = vec![at(0); 15];
        list.extend([at(196), at(196)]);
        let trace = trace(&list);
        let spans = of(&trace);
        let (row, _) = SpanRow::new(String::new(), (0..list.len() as u32).collect(), true, spans);
        let places = row.places(spans, 0, 197);
        assert!(places.contains(&15) && places.contains(&16), "{places:?}");
    }

    proptest! {
        #[test]
        fn columns_agree_with_counting_nanoseconds(
            list in spans(), from in -20i64..420, width in 1i64..300, columns in 1usize..40,
        ) {
            let trace = trace(&list);
            let spans = of(&trace);
            let (row, unions) = SpanRow::new(String::new(), (0..list.len() as u32).collect(), false, spans);
            let window = TimeWindow::new(from, from + width);
            for (c, column) in row.columns(spans, window, columns, 0).iter().enumerate() {
                let (from, to) = (window.time(c, columns), window.time(c + 1, columns));
                for kind in 0..KINDS {
                    let expected = (from..to).filter(|t| at(&list, kind, *t)).count() as i64;
                    prop_assert_eq!(column.covered[kind], expected, "column {} kind {}", c, kind);
                }
                let started = list.iter().filter(|s| (from..to).contains(&s.start_ns)).count();
                prop_assert_eq!(column.places.1 - column.places.0, started);
                let any = |t: i64| (0..WAITING).any(|kind| at(&list, kind, t));
                if from < to && column.covered[..WAITING].iter().any(|c| *c > 0) {
                    prop_assert_eq!(column.right, any(to - 1) , "right of {}", c);
                    prop_assert!(!any(from) || column.left, "left of {}", c);
                }
            }
            for (kind, union) in [(0, &unions.compute), (1, &unions.comm)] {
                prop_assert!(union.windows(2).all(|w| w[0].1 < w[1].0));
                for t in 0..450 {
                    let inside = union.iter().any(|(s, e)| *s <= t && t < *e);
                    prop_assert_eq!(inside, at(&list, kind, t));
                }
            }
        }

        #[test]
        fn a_tolerance_moves_edges_by_no_more_than_itself(
            list in spans(), from in -20i64..420, width in 40i64..300, tolerance in 0i64..60,
        ) {
            let trace = trace(&list);
            let spans = of(&trace);
            let (row, _) = SpanRow::new(String::new(), (0..list.len() as u32).collect(), false, spans);
            let window = TimeWindow::new(from, from + width);
            let exact = row.columns(spans, window, 4, 0);
            for (rough, exact) in row.columns(spans, window, 4, tolerance).iter().zip(exact) {
                for kind in 0..KINDS {
                    let error = rough.covered[kind] - exact.covered[kind];
                    prop_assert!(error.abs() <= tolerance, "{error} with {tolerance}");
                }
            }
        }

        #[test]
        fn places_hold_every_span_that_touches(
            list in spans(), from in -20i64..420, width in 1i64..300,
        ) {
            let trace = trace(&list);
            let spans = of(&trace);
            let (row, _) = SpanRow::new(String::new(), (0..list.len() as u32).collect(), false, spans);
            let places = row.places(spans, from, from + width);
            for place in 0..row.len() {
                let span = &list[row.span(place).unwrap_or(0)];
                if span.start_ns < from + width && span.end_ns > from {
                    prop_assert!(places.contains(&place));
                }
            }
            if row.len() > 0 {
                let distance = |p: usize| {
                    let s = &list[row.span(p).unwrap_or(0)];
                    (s.start_ns - from).max(from - s.end_ns).max(0)
                };
                let found = distance(row.nearest(spans, from));
                let next = row.from(spans, from);
                prop_assert!(found <= distance(next));
            }
        }

        #[test]
        fn galloping_counts(mut starts in prop::collection::vec(0i64..100, 0..200), time in -5i64..105, hint in 0usize..250) {
            starts.sort_unstable();
            let expected = starts.partition_point(|s| *s < time);
            prop_assert_eq!(gallop(&starts, hint, |s| *s < time), expected);
            prop_assert_eq!(gallop(&starts, 0, |s| *s < time), expected);
        }
    }
}
