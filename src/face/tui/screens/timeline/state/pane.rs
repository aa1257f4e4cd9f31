//! Pane of an open trace: time offset, lines, cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::index::{StepKey, TraceIndex, TraceLine};
use super::measure::{CriticalPath, Density, MeasuredInterval};
use super::search::Matches;
use super::window::TimeWindow;
use plan::Phase;
use study::analysis::LaneTotal;
use study::verdict::Verdict;
use trace::Span;
use trace::import::KernelLaunch;

/// Part whose overlap is computed: a step, or (`None`) all decode steps.
pub type OverlapOf = Option<StepKey>;

#[derive(Debug)]
pub struct Pane {
    pub index: Arc<TraceIndex>,
    /// Trace time (ns) at window time 0.
    pub origin: i64,
    /// Index of the step aligned with the other trace.
    pub aligned: Option<usize>,
    /// Cache for the header: a step and its exposed communication (ns), mean of ranks.
    pub(super) exposed_in_step: Mutex<Option<(usize, i64)>>,
    pub lines: Vec<TraceLine>,
    /// True if identical ranks are shown once.
    pub folded: bool,
    collapsed: Vec<bool>,
    /// Number of rows of nested ranges that each rank shows below its outermost row, idle ones not counted.
    open_ranges: Vec<usize>,
    /// True once the user folded or unfolded nested ranges: blank rows no longer show more of them.
    folds_by_hand: bool,
    /// Blank rows of the window that may show more nested ranges, and the rank (by index) that uses them.
    spare_rows: usize,
    spare_rank: Option<usize>,
    /// Rows of nested ranges that are hidden because they have none in the window.
    idle_ranges: BTreeSet<usize>,
    /// Cursor's line, an index into `lines`.
    pub line: usize,
    pub place: usize,
    pub first_line: usize,
    /// Overlap (%) of parts computed so far.
    pub overlap: BTreeMap<OverlapOf, Option<f64>>,
    pub matches: Option<Matches>,
    /// Query and total time of its matches per lane.
    pub totals: Option<(String, Vec<LaneTotal>)>,
    /// Span index, and the imported files' details on its kernel or the read error.
    pub kernel: Option<(usize, Result<Option<KernelLaunch>, String>)>,
    /// Description of the simulated machine, if the trace is a prediction for the run above.
    pub ghost: Option<String>,
    pub verdict: Option<Arc<Verdict>>,
    /// Densities of the whole trace, by column.
    pub overview: Option<Vec<Density>>,
    /// Numbers of a stretch; may be those of the previous one while new ones are computed.
    pub measured: Option<MeasuredInterval>,
    /// Critical path of a step; may be that of the previous one while a new one is computed.
    pub path: Option<CriticalPath>,
}

impl Pane {
    /// Creates a pane with the cursor on the first row.
    pub fn new(index: Arc<TraceIndex>) -> Self {
        let (collapsed, open_ranges) = (vec![false; index.ranks.len()], vec![0; index.ranks.len()]);
        let mut pane = Self {
            index,
            origin: 0,
            aligned: None,
            exposed_in_step: Mutex::new(None),
            lines: Vec::new(),
            folded: true,
            collapsed,
            open_ranges,
            folds_by_hand: false,
            spare_rows: 0,
            spare_rank: None,
            idle_ranges: BTreeSet::new(),
            line: 0,
            place: 0,
            first_line: 0,
            overlap: BTreeMap::new(),
            matches: None,
            totals: None,
            kernel: None,
            ghost: None,
            verdict: None,
            overview: None,
            measured: None,
            path: None,
        };
        pane.list_lines();
        pane.line = pane.first_row();
        pane
    }

    /// First line with spans, where the cursor starts.
    pub(super) fn first_row(&self) -> usize {
        self.lines.iter().position(|line| matches!(line, TraceLine::Row(_))).unwrap_or(0)
    }

    fn list_lines(&mut self) {
        let has_more =
            |rank: &usize| !self.collapsed[*rank] && self.nested_rows(*rank).1 > self.open_ranges[*rank];
        let is_shown = |rank: &usize| !self.hides(TraceLine::Rank(*rank));
        let ranks = 0..self.index.ranks.len();
        let spare_rank = ranks.clone().filter(is_shown).find(has_more);
        self.spare_rank = spare_rank.filter(|_| self.spare_rows > 0);
        let mut lines = self.index.lines(|rank| self.collapsed[rank]);
        let mut left: Vec<usize> = ranks.map(|rank| self.most_nested(rank)).collect();
        lines.retain(|line| match (self.nested_row(*line), self.hides(*line)) {
            (_, true) => false,
            (None, false) => true,
            (Some((_, row)), false) if self.idle_ranges.contains(&row) => false,
            (Some((rank, _)), false) => {
                let is_shown = left[rank] > 0;
                left[rank] = left[rank].saturating_sub(1);
                is_shown
            }
        });
        self.lines = lines;
    }

    /// True if the line belongs to a rank hidden as a duplicate.
    pub fn hides(&self, line: TraceLine) -> bool {
        let rank = self.index.ranks.get(self.index.rank_of(line));
        self.folded && rank.is_some_and(|rank| rank.same_as.is_some())
    }

    /// Rank (by index) and range row of a line of nested ranges; `None` for other lines.
    fn nested_row(&self, line: TraceLine) -> Option<(usize, usize)> {
        let TraceLine::Ranges(row) = line else { return None };
        let rank = self.index.rank_of(line);
        (row != self.index.ranks[rank].ranges.start).then_some((rank, row))
    }

    /// Rows of nested ranges of a rank (by index): all, and those that are not idle.
    fn nested_rows(&self, rank: usize) -> (usize, usize) {
        let rows = self.index.ranks[rank].ranges.clone().skip(1);
        (rows.len(), rows.filter(|row| !self.idle_ranges.contains(row)).count())
    }

    /// Most rows of nested ranges that a rank (by index) shows.
    fn most_nested(&self, rank: usize) -> usize {
        let spare = if self.spare_rank == Some(rank) { self.spare_rows } else { 0 };
        self.open_ranges[rank].saturating_add(spare)
    }

    /// True if a rank (by index) shows all its nested ranges that are not idle.
    fn is_open(&self, rank: usize) -> bool {
        let (_, busy) = self.nested_rows(rank);
        self.most_nested(rank) > 0 && self.most_nested(rank) >= busy
    }

    /// Number of lines that are shown only because rows would be blank.
    pub fn spare_lines(&self) -> usize {
        let shown = |rank: usize| {
            let (_, busy) = self.nested_rows(rank);
            self.most_nested(rank).min(busy) - self.open_ranges[rank].min(busy)
        };
        self.spare_rank.map_or(0, shown)
    }

    /// Shows more nested ranges in blank rows, unless the user folds them; true if the cursor had to leave its line.
    pub fn use_spare_rows(&mut self, rows: usize) -> bool {
        let rows = if self.folds_by_hand { 0 } else { rows };
        let is_same = rows == self.spare_rows;
        self.spare_rows = rows;
        !is_same && self.list_lines_again()
    }

    /// Rows of nested ranges below a rank's first row of ranges that Enter shows, and false; if all are shown, the rows that
    /// it hides, and true. `None` for other lines.
    pub fn nested_ranges(&self, line: TraceLine) -> Option<(usize, bool)> {
        let rank = self.index.rank_of(line);
        let ranges = &self.index.ranks.get(rank)?.ranges;
        let is_first = line == TraceLine::Ranges(ranges.start);
        (is_first && ranges.len() > 1).then(|| match self.nested_rows(rank) {
            (all, _) if self.is_open(rank) => (all, true),
            (all, busy) => (all - busy.min(self.most_nested(rank)), false),
        })
    }

    /// Number of idle rows that the open ranks hide.
    pub fn idle_rows(&self) -> usize {
        let is_open = |rank: &usize| self.is_open(*rank) && !self.is_collapsed(*rank);
        let idle = |rank: usize| {
            let (all, busy) = self.nested_rows(rank);
            all - busy
        };
        (0..self.index.ranks.len()).filter(is_open).map(idle).sum()
    }

    /// Hides rows of nested ranges without any in a window (of window time), but not the cursor's; true if the cursor had to
    /// leave its line.
    pub fn hide_idle_ranges(&mut self, window: TimeWindow) -> bool {
        let (window, here, index) = (self.window(window), self.current(), &self.index);
        let is_idle = |row: &usize| {
            let ranges = &index.range_rows[*row];
            here != Some(TraceLine::Ranges(*row)) && !ranges.touches(index.ranges_of(ranges), window)
        };
        let idle: BTreeSet<usize> = (0..index.range_rows.len()).filter(is_idle).collect();
        let is_same = idle == self.idle_ranges;
        self.idle_ranges = idle;
        !is_same && self.list_lines_again()
    }

    /// Takes the index of the same trace with the spans of all ranks.
    pub fn unfold(&mut self, index: Arc<TraceIndex>) {
        self.index = index;
        self.exposed_in_step = Mutex::new(None);
        self.collapsed.resize(self.index.ranks.len(), false);
        self.open_ranges.resize(self.index.ranks.len(), 0);
        (self.matches, self.path, self.kernel, self.overview) = (None, None, None, None);
    }

    /// Toggles folding of identical ranks; false if all ranks differ. Unfolding moves the cursor to the first rank that the
    /// cursor's rank stood for.
    pub fn toggle_fold(&mut self) -> bool {
        let (line, place) = (self.current(), self.place);
        // toggle even without effect, so that both traces stay in the same mode
        self.folded = !self.folded;
        if self.index.ranks.iter().all(|rank| rank.same_as.is_none()) {
            return false;
        }
        self.list_lines();
        if let Some(line) = line {
            let line = if self.folded { line } else { self.index.represented_line(line) };
            self.go_to(line, place);
        }
        true
    }

    /// Converts window time to trace time.
    pub fn own(&self, time: i64) -> i64 {
        time.saturating_add(self.origin)
    }

    pub fn span_index(&self) -> Option<usize> {
        self.index.span_index(self.current()?, self.place)
    }

    /// Index of the step with the same phase and number, preferably of the same sample.
    pub fn step_like(&self, key: StepKey) -> Option<usize> {
        let like = |s: &StepKey| (s.phase, s.step) == (key.phase, key.step);
        let steps = || self.index.steps.iter().enumerate().filter(move |(_, s)| like(&s.key));
        let same = steps().find(|(_, s)| s.key.sample == key.sample);
        same.or_else(|| steps().next()).map(|(at, _)| at)
    }

    /// Key of the step under the cursor (see [`Self::step`]).
    pub fn step_key(&self, time: i64, focus: bool) -> Option<StepKey> {
        self.step(time, focus).and_then(|at| self.index.steps.get(at)).map(|step| step.key)
    }

    pub fn current(&self) -> Option<TraceLine> {
        self.lines.get(self.line).copied()
    }

    pub fn span(&self) -> Option<&Span> {
        match self.current()? {
            TraceLine::Row(row) => self.index.span(row, self.place),
            _ => None,
        }
    }

    /// Thread and time (ns of the trace) of the launch of the kernel under the cursor, if an imported trace has both.
    pub fn launch(&self) -> Option<(u16, i64)> {
        let trace = &self.index.trace;
        let span = self.span().filter(|_| trace.meta.import.is_some())?;
        let range = trace.ranges.get(span.launched.range as usize)?;
        // 1 ns encodes a launch that returned after the start
        let is_before = span.ready_ns >= 0 && span.ready_ns + 1 < span.start_ns;
        is_before.then_some((range.thread, span.ready_ns))
    }

    /// Start and end (ns of the trace) of the item under the cursor.
    pub fn interval(&self) -> Option<(i64, i64)> {
        self.index.interval(self.current()?, self.place)
    }

    /// Converts a window to trace time.
    pub fn window(&self, window: TimeWindow) -> TimeWindow {
        window.shifted(self.origin)
    }

    /// Extent of the trace in window time.
    pub fn bounds(&self) -> TimeWindow {
        self.index.bounds.shifted(self.origin.saturating_neg())
    }

    /// Index of the step under the cursor; `time` is window time. Without `focus` only the time counts.
    pub fn step(&self, time: i64, focus: bool) -> Option<usize> {
        let own = self.own(time);
        match self.span().or_else(|| self.exposed_collective(own)).filter(|_| focus) {
            Some(span) => self.index.step_of(span),
            None => self.index.step_at(own),
        }
    }

    /// Collective behind the exposed stretch under the cursor, if the stretch contains `time` (trace time).
    fn exposed_collective(&self, time: i64) -> Option<&Span> {
        let TraceLine::Rank(rank) = self.current()? else { return None };
        let stretch = self.interval().filter(|(start, end)| *start <= time && time <= *end)?;
        self.index.trace.spans.get(self.index.collective(rank, stretch)?)
    }

    /// Part whose overlap the header needs for a step (by index), and lacks.
    pub fn wanted(&self, step: Option<usize>) -> Option<OverlapOf> {
        let key = step.and_then(|at| self.index.steps.get(at)).map(|step| step.key);
        let wanted = [key.map(Some), Some(None)];
        wanted.into_iter().flatten().find(|part| !self.overlap.contains_key(part))
    }

    pub fn neighbour_step(&self, time: i64, forwards: bool) -> Option<usize> {
        let decode = |i: &usize| self.index.steps[*i].key.phase == Phase::Decode;
        let here = self.step(time, true);
        let to = match (here, forwards) {
            (None, _) => (0..self.index.steps.len()).find(decode),
            (Some(here), true) => (here + 1..self.index.steps.len()).find(decode),
            (Some(here), false) => (0..here).rev().find(decode),
        };
        to.or(here)
    }

    /// Moves the cursor to the item nearest to a window time.
    pub fn point_at(&mut self, time: i64) {
        if let Some(line) = self.current() {
            self.place = self.index.nearest(line, time.saturating_add(self.origin));
        }
    }

    /// Moves the cursor to the first row with work in a window (of window time), if its own has none.
    pub fn prefer_busy_row(&mut self, window: TimeWindow) {
        let window = self.window(window);
        let works = |line: &TraceLine| match *line {
            TraceLine::Row(row) => {
                let place = self.index.rows[row].from(self.index.spans(), window.from);
                self.index.span(row, place).is_some_and(|span| span.start_ns < window.to)
            }
            _ => false,
        };
        if !self.current().is_some_and(|line| works(&line))
            && let Some(at) = self.lines.iter().position(works)
        {
            self.line = at;
        }
    }

    /// Moves the cursor to the first span of its row at or after a window time.
    pub fn point_from(&mut self, time: i64) {
        match self.current() {
            Some(TraceLine::Row(row)) => {
                let time = time.saturating_add(self.origin);
                self.place = self.index.rows[row].from(self.index.spans(), time);
            }
            _ => self.point_at(time),
        }
    }

    /// Moves the cursor to the first span of its row in a step (by index), or near the step's start: at
    /// a given time, ranks may be in different steps.
    pub fn point_in_step(&mut self, step: usize) {
        const FAR: usize = 4_096;
        let Some(step) = self.index.steps.get(step).copied() else { return };
        self.point_from(step.window.from.saturating_sub(self.origin));
        if let Some(TraceLine::Row(row)) = self.current() {
            let last = self.index.len(TraceLine::Row(row)).min(self.place.saturating_add(FAR));
            let of_step = |place: &usize| {
                self.index.span(row, *place).is_some_and(|span| StepKey::from_span(span) == step.key)
            };
            if let Some(place) = (self.place..last).find(of_step) {
                self.place = place;
            }
        }
    }

    /// Goes to a line, expanding its rank if needed; on a hidden rank, goes to the same line of its
    /// representative.
    pub fn go_to(&mut self, line: TraceLine, place: usize) {
        let line = if self.hides(line) { self.index.alike_line(line) } else { line };
        let rank = self.index.rank_of(line);
        if self.collapsed.get(rank) == Some(&true) {
            self.set_collapsed(|i| i == rank, false);
        }
        if let Some((_, row)) = self.nested_row(line).filter(|_| !self.lines.contains(&line)) {
            self.open_ranges[rank] = usize::MAX;
            self.idle_ranges.remove(&row);
            self.list_lines_again();
        }
        if let Some(at) = self.lines.iter().position(|l| *l == line) {
            (self.line, self.place) = (at, place);
        }
    }

    pub fn is_collapsed(&self, rank: usize) -> bool {
        self.collapsed.get(rank).copied().unwrap_or(false)
    }

    /// Toggles the cursor's rank, on a range its rank's nested ranges; true if the cursor had to leave its line.
    pub fn toggle_rank(&mut self) -> bool {
        let Some(line) = self.current() else { return false };
        let rank = self.index.rank_of(line);
        if matches!(line, TraceLine::Ranges(_)) && self.index.ranks[rank].ranges.len() > 1 {
            return self.toggle_ranges(rank);
        }
        let to = !self.is_collapsed(rank);
        self.set_collapsed(|i| i == rank, to)
    }

    /// Collapses all ranks, or expands all if all are collapsed; true if the cursor had to leave its line.
    pub fn toggle_all(&mut self) -> bool {
        let to = self.collapsed.contains(&false);
        self.set_collapsed(|_| true, to)
    }

    /// Shows as many rows of nested ranges of the cursor's rank as these rows hold besides the other lines; the cursor stays
    /// on its line.
    pub fn open_ranges_within(&mut self, rows: usize) {
        let Some(line) = self.current() else { return };
        let rank = self.index.rank_of(line);
        let free = rows.saturating_sub(self.lines.len());
        if free > 0 && self.open_ranges[rank] == 0 && !self.is_collapsed(rank) {
            self.open_ranges[rank] = free;
            self.list_lines_again();
        }
    }

    fn toggle_ranges(&mut self, rank: usize) -> bool {
        self.open_ranges[rank] = if self.is_open(rank) { 0 } else { usize::MAX };
        (self.folds_by_hand, self.spare_rows) = (true, 0);
        self.list_lines_again()
    }

    fn set_collapsed(&mut self, which: impl Fn(usize) -> bool, to: bool) -> bool {
        for (rank, collapsed) in self.collapsed.iter_mut().enumerate() {
            if which(rank) {
                *collapsed = to;
            }
        }
        self.list_lines_again()
    }

    /// Lists the lines after a change; true if the cursor had to leave its line, for the rank's ranges or its own line.
    fn list_lines_again(&mut self) -> bool {
        let before = self.current();
        self.list_lines();
        let at = |line: TraceLine| self.lines.iter().position(|l| *l == line);
        let Some(line) = before else { return false };
        let rank = self.index.rank_of(line);
        let ranges = match line {
            TraceLine::Ranges(_) => at(TraceLine::Ranges(self.index.ranks[rank].ranges.start)),
            TraceLine::Rank(_) | TraceLine::Row(_) => None,
        };
        let kept = at(line);
        self.line = kept.or(ranges).or_else(|| at(TraceLine::Rank(rank))).unwrap_or(0);
        kept.is_none()
    }

    /// Scrolls as little as needed to show the cursor, and the line of its rank if there is room for both.
    pub fn scroll_to_cursor(&mut self, lines: usize) {
        let lines = lines.max(1);
        self.first_line = self.first_line.clamp((self.line + 1).saturating_sub(lines), self.line);
        let mut above = self.lines.iter().take(self.line + 1);
        if let Some(rank) = above.rposition(|line| matches!(line, TraceLine::Rank(_)))
            && self.line - rank < lines
        {
            self.first_line = self.first_line.min(rank);
        }
        self.first_line = self.first_line.min(self.lines.len().saturating_sub(lines));
    }
}
