//! Timeline line as a row of characters. The cost depends on the number of columns, not spans: each
//! column queries the index for covered time by class.
//!
//! Cells follow [`super::shade`]; an underline marks a search match.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::paint::glyph;
use super::shade::{self, BELOW, Shares};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::row::{ColumnActivity, KINDS, SpanClass, SpanRow};
use crate::face::tui::screens::timeline::state::window::TimeWindow;
use crate::face::tui::screens::timeline::state::{Matches, TraceIndex, TraceLine};
use base::text::function_name;
use trace::{OperationInfo, OperationKind, Span};

/// Left-aligned blocks in eighths of a column.
const LEFT: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// Columns of the pattern of exposed communication beside a whole name.
const PATTERN: usize = 2;

/// Content of a line in each column of a window.
#[derive(Debug)]
pub enum LaneStrip {
    /// Collapsed rank: its rows merged, and its exposed communication (ns).
    Collapsed(Vec<ColumnActivity>, Arc<Vec<i64>>),
    /// Open rank: its rows with communication merged, and its exposed communication (ns).
    Exposed(Vec<ColumnActivity>, Arc<Vec<i64>>),
    /// Named ranges, or operators and calls: the one that continues from before the window, and the half-open position
    /// ranges that start in each column.
    Ranges(Option<usize>, Vec<(usize, usize)>),
    /// Spans, and the rank's exposed communication (ns).
    Row(Vec<ColumnActivity>, Arc<Vec<i64>>),
}

/// Queries the content of lines from the index. `window` is in trace time.
pub fn strips(
    index: &TraceIndex,
    lines: &[TraceLine],
    collapsed: impl Fn(usize) -> bool + Sync,
    window: TimeWindow,
    columns: usize,
) -> Vec<LaneStrip> {
    // lines of one rank share its exposed communication, so compute it once
    let ranks: BTreeSet<usize> = lines.iter().map(|line| index.rank_of(*line)).collect();
    let of = |rank: usize| index.ranks.get(rank).map(|r| r.exposed.between(window.edges(columns)));
    let exposed: BTreeMap<usize, Arc<Vec<i64>>> =
        ranks.into_par_iter().map(|rank| (rank, Arc::new(of(rank).unwrap_or_default()))).collect();
    let exposed = |rank: usize| exposed.get(&rank).cloned().unwrap_or_default();
    let strip = |line: &TraceLine| match *line {
        TraceLine::Rank(rank) => {
            let rows = index.ranks.get(rank).map_or(0..0, |r| r.rows.clone());
            let rows = index.rows[rows].iter();
            match collapsed(rank) {
                true => LaneStrip::Collapsed(merged(index, rows, window, columns), exposed(rank)),
                false => {
                    let comm = rows.filter(|row| row.has[SpanClass::Comm as usize]);
                    LaneStrip::Exposed(merged(index, comm, window, columns), exposed(rank))
                }
            }
        }
        TraceLine::Ranges(row) => {
            let row = index.range_rows.get(row);
            let places = row.map(|row| row.columns(index.ranges_of(row), window, columns));
            let (running, places) = places.unwrap_or_default();
            LaneStrip::Ranges(running, places)
        }
        TraceLine::Row(at) => {
            let Some(row) = index.rows.get(at) else {
                return LaneStrip::Row(Vec::new(), Arc::default());
            };
            let comm = row.has[SpanClass::Comm as usize].then(|| exposed(index.rank_of(*line)));
            let tolerance = tolerance(window, columns);
            LaneStrip::Row(
                row.columns(index.spans(), window, columns, tolerance),
                comm.unwrap_or_default(),
            )
        }
    };
    lines.par_iter().map(strip).collect()
}

/// Invisible duration (ns): an eighth of a column.
fn tolerance(window: TimeWindow, columns: usize) -> i64 {
    window.width() / (columns.max(1) as i64 * 8)
}

/// Merges several rows into one, taking the busiest row for each class.
fn merged<'a>(
    index: &TraceIndex,
    rows: impl Iterator<Item = &'a SpanRow>,
    window: TimeWindow,
    columns: usize,
) -> Vec<ColumnActivity> {
    let mut all = vec![ColumnActivity::default(); columns];
    let tolerance = tolerance(window, columns);
    let columns_of = |row: &SpanRow| row.columns(index.spans(), window, columns, tolerance);
    for row in rows {
        for (sum, column) in all.iter_mut().zip(columns_of(row)) {
            for kind in 0..KINDS {
                sum.covered[kind] = sum.covered[kind].max(column.covered[kind]);
            }
            sum.left |= column.left;
            sum.right |= column.right;
            // positions of merged rows are meaningless; only the number of starts counts
            sum.places.1 += column.places.1 - column.places.0;
        }
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Eighths (1 to 8) from the left edge.
    FromLeft(u8),
    /// Eighths (1 to 7) from the right edge.
    FromRight(u8),
    /// Eighths (1 to 8) from below: a share of several operations.
    High(u8),
}

/// Fill of a column `width` ns wide. Nonzero coverage gets at least an eighth.
pub fn ink(covered: i64, width: i64, left: bool, right: bool) -> Ink {
    let eighths = (covered as f64 / width.max(1) as f64 * 8.0).round().clamp(1.0, 8.0) as u8;
    if eighths < 8 && !left && right { Ink::FromRight(eighths) } else { Ink::FromLeft(eighths) }
}

/// Shares of a column `width` ns wide.
fn shares(column: &ColumnActivity, exposed: i64, width: i64) -> Shares {
    let [compute, comm, memory, waiting] =
        column.covered.map(|covered| covered as f64 / width.max(1) as f64);
    Shares { compute, comm, memory, waiting, exposed: exposed as f64 / width.max(1) as f64 }
}

/// Cell of a column; `None` if nothing ran. `several`: the line merges several rows. `class`: class of a
/// zero-length span that starts here.
fn cell(
    column: &ColumnActivity,
    exposed: i64,
    width: i64,
    several: bool,
    class: impl FnOnce() -> Option<SpanClass>,
) -> Option<Cell> {
    let [compute, comm, memory, _] = column.covered;
    let busy = compute.saturating_add(comm).saturating_add(memory);
    let shares = shares(column, exposed, width);
    if several && busy > 0 {
        return Some(match shade::several(shares) {
            Some((mark, role)) => Cell::Glyph(mark, role),
            None => Cell::Compute(fill(compute, width, column)),
        });
    }
    let class = match busy {
        0 => class()?,
        _ if compute >= comm && compute >= memory => SpanClass::Compute,
        _ if comm >= memory => SpanClass::Comm,
        _ => SpanClass::Memory,
    };
    Some(match class {
        SpanClass::Compute => Cell::Compute(fill(busy, width, column)),
        SpanClass::Memory => Cell::Glyph("▬", Role::Series(2)),
        SpanClass::Comm => {
            // a zero-length span neither waits nor hides anything
            let (mark, role) = shade::comm(shares).unwrap_or(("▒", Role::Comm));
            Cell::Glyph(mark, role)
        }
    })
}

/// Fill of a compute column: by height if several operations start in it, else by the edges of the
/// single one.
fn fill(covered: i64, width: i64, column: &ColumnActivity) -> Ink {
    match column.places.1 - column.places.0 {
        0..=1 => ink(covered, width, column.left, column.right),
        _ => Ink::High(shade::eighths(covered as f64 / width.max(1) as f64) as u8),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Compute(Ink),
    Glyph(&'static str, Role),
}

#[derive(Clone, Copy, Debug)]
pub struct Canvas<'a> {
    pub index: &'a TraceIndex,
    /// Window in trace time.
    pub window: TimeWindow,
    pub theme: Theme,
    pub matches: Option<&'a Matches>,
    /// Line and column of the mark of a launch, which names leave free.
    pub launch: Option<(TraceLine, usize)>,
}

impl Canvas<'_> {
    /// Draws a line into all rows of the area, with names in the middle one.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, line: TraceLine, strip: &LaneStrip) {
        let middle = area.y + area.height.saturating_sub(1) / 2;
        for row in area.rows() {
            self.draw_row(buf, row, line, strip, row.y == middle);
        }
        // a glyph would cover whether communication is exposed
        let found = Style::new().add_modifier(Modifier::UNDERLINED);
        for column in self.found(line, strip) {
            let cells = Rect { x: area.x + column as u16, width: 1, ..area };
            buf.set_style(cells.intersection(buf.area), found);
        }
    }

    fn draw_row(&self, buf: &mut Buffer, area: Rect, line: TraceLine, strip: &LaneStrip, named: bool) {
        match (strip, line) {
            (LaneStrip::Collapsed(rows, exposed), _) => self.cells(buf, area, None, rows, exposed),
            (LaneStrip::Exposed(comm, exposed), _) => self.exposed(buf, area, comm, exposed),
            (LaneStrip::Ranges(running, places), TraceLine::Ranges(row)) => {
                self.ranges(buf, area, row, *running, places);
            }
            (LaneStrip::Row(columns, exposed), TraceLine::Row(at)) => {
                if let Some(row) = self.index.rows.get(at) {
                    self.cells(buf, area, Some(row), columns, exposed);
                    if named {
                        self.names(buf, area, row, columns);
                    }
                }
            }
            _ => {}
        }
    }

    fn width(&self, column: usize, columns: usize) -> i64 {
        (self.window.time(column + 1, columns) - self.window.time(column, columns)).max(1)
    }

    fn cells(
        &self,
        buf: &mut Buffer,
        area: Rect,
        row: Option<&SpanRow>,
        columns: &[ColumnActivity],
        exposed: &[i64],
    ) {
        let spans = self.index.spans();
        // streams of imported traces may both compute and communicate
        let has = |class: SpanClass| row.is_none_or(|row| row.has[class as usize]);
        let several = has(SpanClass::Compute) && has(SpanClass::Comm);
        let mut from = self.window.from;
        for (i, column) in columns.iter().enumerate() {
            let to = self.window.time(i + 1, columns.len());
            let width = (to - std::mem::replace(&mut from, to)).max(1);
            let class = || {
                let last = column.places.1.checked_sub(1).filter(|last| *last >= column.places.0)?;
                Some(spans.class(&spans.all()[row?.span(last)?]))
            };
            let bare = exposed.get(i).copied().unwrap_or(0);
            let Some(cell) = cell(column, bare, width, several, class) else { continue };
            let (symbol, style) = match cell {
                Cell::Glyph(symbol, role) => (symbol, self.theme.style(role)),
                Cell::Compute(ink) => {
                    let longest = row.and_then(|row| self.longest(row, column, to - width..to));
                    let role = module_role(self.index, longest);
                    let style = self.theme.style(role);
                    match ink {
                        Ink::FromLeft(8) | Ink::High(8) => (shade::module(role, self.theme), style),
                        Ink::FromLeft(n) => (LEFT[usize::from(n)], style),
                        Ink::High(n) => (BELOW[usize::from(n)], style),
                        // draw the empty part as a block from the left, in reversed colours
                        Ink::FromRight(n) => {
                            (LEFT[usize::from(8 - n)], style.add_modifier(Modifier::REVERSED))
                        }
                    }
                }
            };
            glyph(buf, area, area.x + i as u16, area.y, symbol, style);
        }
    }

    /// Operation that takes the most of a column's time; the middle one of many.
    fn longest(&self, row: &SpanRow, column: &ColumnActivity, time: Range<i64>) -> Option<usize> {
        let (first, next) = column.places;
        if next - first > 8 {
            return row.span(first.midpoint(next));
        }
        let spans = self.index.spans().all();
        let covered = |span: &usize| {
            let span = &spans[*span];
            span.end_ns.min(time.end).saturating_sub(span.start_ns.max(time.start))
        };
        (first.saturating_sub(1)..next).filter_map(|place| row.span(place)).max_by_key(covered)
    }

    fn exposed(&self, buf: &mut Buffer, area: Rect, comm: &[ColumnActivity], exposed: &[i64]) {
        let columns = comm.iter().zip(exposed).enumerate();
        for (i, (column, exposed)) in columns.filter(|(_, (_, exposed))| **exposed > 0) {
            let shares = shares(column, *exposed, self.width(i, comm.len()));
            let (symbol, role) = shade::exposed_or_waiting(shares);
            glyph(buf, area, area.x + i as u16, area.y, symbol, self.theme.style(role));
        }
    }

    /// Draws names of wide enough operations, and a mark between adjacent ones.
    fn names(&self, buf: &mut Buffer, area: Rect, row: &SpanRow, columns: &[ColumnActivity]) {
        let (Some(first), Some(last)) = (columns.first(), columns.last()) else { return };
        let (width, window, spans) = (columns.len(), self.window, self.index.spans());
        // most are too narrow for names, however few are wide
        if last.places.1 - first.places.0 > width {
            return;
        }
        let mut latest = i64::MIN;
        for place in row.places(spans, window.from, window.to) {
            let Some(index) = row.span(place) else { continue };
            let span = &spans.all()[index];
            let follows = latest == span.start_ns;
            latest = latest.max(span.end_ns);
            if span.end_ns <= window.from {
                continue;
            }
            let from = window.column(span.start_ns.max(window.from), width).unwrap_or(0);
            let to = window.column(span.end_ns.min(window.to) - 1, width).unwrap_or(from);
            // a mixture's exchanges are short and told apart by their first letters
            let is_exchange =
                self.index.trace.operation_kind(span).is_some_and(OperationKind::is_exchange);
            if to < from + if is_exchange { 1 } else { 3 } {
                continue;
            }
            let arrival = spans.arrival(index).filter(|arrival| *arrival > span.start_ns);
            let waits = arrival.is_some();
            let class = spans.class(span);
            let name = self.name(span);
            let base = self.theme.style(match class {
                SpanClass::Compute => module_role(self.index, row.span(place)),
                SpanClass::Comm => Role::Comm,
                SpanClass::Memory => Role::Series(2),
            });
            if span.start_ns > window.from && follows && class == SpanClass::Compute {
                put(buf, area, area.x + from as u16, area.y, "▐", base);
            }
            // after the waiting part, if the name fits there
            let moved = arrival.and_then(|arrival| window.column(arrival, width));
            let (at, room) = match moved {
                Some(column) if to > column + 1 => (column + 1, to - column - 1),
                _ if is_exchange && to < from + 3 => (from, 1),
                _ => (from + 1, to - from - 1),
            };
            // a name covers one kind of communication, where that is widest; cut, at most half of what is exposed
            let symbol = |x: u16| buf.cell((x, area.y)).map(|cell| cell.symbol());
            let (start, alike) = match class {
                SpanClass::Comm => {
                    let cells = (at..at + room).map(|column| symbol(area.x + column as u16));
                    let runs = runs(&cells.collect::<Vec<_>>());
                    let first = runs.first().copied().unwrap_or_default();
                    let widest = |most: (usize, usize), run: (usize, usize)| {
                        if run.1 > most.1 { run } else { most }
                    };
                    if is_exchange { first } else { runs.into_iter().fold(first, widest) }
                }
                SpanClass::Compute | SpanClass::Memory => (0, room),
            };
            let x = area.x + (at + start) as u16;
            let room = match symbol(x) {
                Some("╱" | "╲") if !is_exchange && name.width() + PATTERN > alike => {
                    alike.min(room / 2)
                }
                _ => alike,
            };
            let text = match is_exchange && room < name.len() {
                true => name.chars().take(room.div_ceil(2)).collect(),
                false => cut(&name, room as u16),
            };
            // show only names of two letters or more
            if is_exchange || text.chars().count() >= if text == name { 2 } else { 3 } {
                // keep the style below, so that exposed spans remain marked
                let there = buf.cell((x, area.y)).map_or(base, |cell| cell.style());
                let style = if waits || class == SpanClass::Memory { there } else { reversed(there) };
                put(buf, area, x, area.y, &text, style);
            }
        }
    }

    /// Name in a lane, as in tables: the function of a kernel, or the kind of a mixture's exchange, since dispatch and
    /// combine share their kernels.
    fn name(&self, span: &Span) -> String {
        match self.index.trace.operation_kind(span) {
            Some(kind) if kind.is_exchange() => kind.to_string(),
            _ => function_name(self.index.name(span)),
        }
    }

    fn ranges(
        &self,
        buf: &mut Buffer,
        area: Rect,
        row: usize,
        running: Option<usize>,
        columns: &[(usize, usize)],
    ) {
        let width = columns.len();
        let ends = |place| self.index.range(row, place).map_or(i64::MIN, |r| r.end_ns);
        if let Some(place) = running {
            self.write_range(buf, area, (row, place), 0, width);
        }
        for (i, (first, next)) in columns.iter().enumerate().filter(|(_, (first, next))| first < next) {
            let last = next - 1;
            if *first == last || ends(last) > self.window.time(i + 1, width) {
                self.write_range(buf, area, (row, last), i, width);
            } else {
                // several operations too narrow for names
                glyph(buf, area, area.x + i as u16, area.y, "╫", self.theme.style(Role::Dim));
            }
        }
    }

    /// Draws a range of the host lighter than the work of a GPU: only its name has the colour of text.
    fn write_range(
        &self,
        buf: &mut Buffer,
        area: Rect,
        (row, place): (usize, usize),
        from: usize,
        width: usize,
    ) {
        let (Some(range), window) = (self.index.range(row, place), self.window) else { return };
        let to = window.column(range.end_ns.min(window.to) - 1, width).unwrap_or(from).max(from);
        let (dim, text) = (self.theme.style(Role::Dim), self.theme.style(Role::Text));
        let x = |column: usize| area.x + column as u16;
        if to == from {
            put(buf, area, x(from), area.y, "╷", dim);
            return;
        }
        put(buf, area, x(from), area.y, &"─".repeat(to - from + 1), dim);
        put(buf, area, x(from), area.y, if range.start_ns >= window.from { "├" } else { "─" }, dim);
        put(buf, area, x(to), area.y, if range.end_ns <= window.to { "┤" } else { "─" }, dim);
        let mark = self.launch.filter(|(line, _)| *line == TraceLine::Ranges(row));
        let name = self.index.range_name(range);
        let room = name_room(from + 1..to, mark.map(|(_, column)| column), name.width());
        put(buf, area, x(room.start), area.y, &cut(name, room.len() as u16), text);
    }

    /// Columns in which a match of the search starts, and the first one if a match continues from before the window.
    pub fn found(&self, line: TraceLine, strip: &LaneStrip) -> Vec<usize> {
        let Some(matches) = self.matches.filter(|m| !m.places(line).is_empty()) else {
            return Vec::new();
        };
        let is_found = |(i, (places, left)): (usize, ((usize, usize), bool))| {
            let running = i == 0 && left && places.0 > 0;
            let first = if running { places.0 - 1 } else { places.0 };
            matches.any(line, (first, places.1)).then_some(i)
        };
        match strip {
            LaneStrip::Row(columns, _) => {
                let columns = columns.iter().map(|column| (column.places, column.left));
                columns.enumerate().filter_map(is_found).collect()
            }
            LaneStrip::Ranges(running, columns) => {
                let columns = columns.iter().map(|places| (*places, running.is_some()));
                columns.enumerate().filter_map(is_found).collect()
            }
            LaneStrip::Collapsed(..) | LaneStrip::Exposed(..) => Vec::new(),
        }
    }
}

/// Role of a compute span, by its module; of an imported kernel that no rule classifies, by its name.
pub fn module_role(index: &TraceIndex, span: Option<usize>) -> Role {
    let span = span.and_then(|i| index.trace.spans.get(i));
    let operation = span.and_then(|s| index.trace.operations.get(s.operation as usize));
    let Some(operation) = operation else { return Role::Series(3) };
    match (operation.module.as_str(), &operation.kind) {
        ("attn", _) => Role::Series(0),
        // experts take the place of the MLP; kernels of imported traces have a kind only
        ("mlp" | "moe", _) | (_, OperationKind::Experts) => Role::Series(1),
        ("head", _) => Role::Series(2),
        _ if is_unclassified(index, operation) => role_of_name(&operation.name),
        _ => Role::Series(3),
    }
}

/// True for a compute operation of an imported trace that no rule classifies.
pub fn is_unclassified(index: &TraceIndex, operation: &OperationInfo) -> bool {
    index.trace.meta.import.is_some()
        && operation.module.is_empty()
        && operation.kind != OperationKind::Experts
}

/// Roles of kernels without a class. Experts are the only class of imported compute kernels; copies share the third
/// role, with a mark of their own.
pub const UNCLASSIFIED: [Role; 3] = [Role::Series(0), Role::Series(2), Role::Series(3)];

/// Role by the short name, so that the instances of a template share it, in every trace.
fn role_of_name(name: &str) -> Role {
    let mut hasher = DefaultHasher::new();
    short(name).hash(&mut hasher);
    UNCLASSIFIED[(hasher.finish() % UNCLASSIFIED.len() as u64) as usize]
}

/// Columns for a name of this width: all, or those on one side of a mark within them, before it if the name fits there.
fn name_room(columns: Range<usize>, mark: Option<usize>, width: usize) -> Range<usize> {
    let Some(mark) = mark.filter(|mark| columns.contains(mark)) else { return columns };
    let (before, after) = (columns.start..mark, mark + 1..columns.end);
    if before.len() >= width.min(after.len()) { before } else { after }
}

/// Start and length of each run of equal cells.
fn runs(cells: &[Option<&str>]) -> Vec<(usize, usize)> {
    let mut next = 0;
    let run = |run: &[Option<&str>]| {
        let start = next;
        next += run.len();
        (start, run.len())
    };
    cells.chunk_by(|a, b| a == b).map(run).collect()
}

fn reversed(style: Style) -> Style {
    match style.add_modifier.contains(Modifier::REVERSED) {
        true => style,
        false => style.add_modifier(Modifier::REVERSED),
    }
}

/// Kernel name without namespaces, templates and arguments, which decides the colour. Does not allocate.
fn short(name: &str) -> &str {
    let base = name.split(['<', '(']).next().unwrap_or(name).trim();
    let last = base.rsplit(['/', ':', ' ']).next().unwrap_or(base);
    if last.is_empty() { name } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(covered: [i64; KINDS]) -> ColumnActivity {
        ColumnActivity { covered, ..ColumnActivity::default() }
    }

    #[test]
    fn what_is_covered_is_seen_from_the_right_side() {
        assert_eq!(ink(100, 100, true, true), Ink::FromLeft(8));
        assert_eq!(ink(50, 100, true, false), Ink::FromLeft(4));
        assert_eq!(ink(50, 100, false, true), Ink::FromRight(4));
        assert_eq!(ink(1, 1000, false, false), Ink::FromLeft(1), "tiny, and yet there");
    }

    #[test]
    fn every_class_has_a_glyph_of_its_own() {
        let shown =
            |several, covered, exposed| match cell(&column(covered), exposed, 100, several, || None) {
                Some(Cell::Compute(_)) => "█",
                Some(Cell::Glyph(symbol, _)) => symbol,
                None => " ",
            };
        let lane = |covered, exposed| shown(false, covered, exposed);
        assert_eq!(lane([0, 0, 0, 0], 0), " ");
        assert_eq!(lane([60, 30, 0, 0], 30), "█", "a lane that computes shows what it computes");
        assert_eq!(lane([0, 100, 0, 0], 0), "▓");
        assert_eq!(lane([0, 100, 0, 0], 25), "▖", "a quarter is exposed");
        assert_eq!(lane([0, 100, 0, 80], 0), "░", "waits for a peer, hidden");
        assert_eq!(lane([10, 0, 50, 0], 0), "▬", "copies");
        let rank = |covered, exposed| shown(true, covered, exposed);
        assert_eq!(rank([60, 40, 0, 0], 40), "▚", "of a collapsed rank, what is exposed");
        assert_eq!(rank([90, 10, 0, 0], 10), "█", "little of it is exposed");
        assert_eq!(rank([0, 0, 0, 0], 0), " ");
    }

    #[test]
    fn a_column_has_the_colour_of_the_operation_that_fills_it() {
        let index = crate::face::tui::tests::fixtures::trace();
        let theme = Theme::new(true);
        let area = Rect::new(0, 0, 200, 1);
        for (at, row) in
            index.rows.iter().enumerate().filter(|(_, row)| row.has[SpanClass::Compute as usize])
        {
            let spans: Vec<usize> = (0..row.len()).filter_map(|place| row.span(place)).collect();
            for span in spans {
                let window =
                    TimeWindow::new(index.trace.spans[span].start_ns, index.trace.spans[span].end_ns);
                let mut buf = Buffer::empty(area);
                let lines = [TraceLine::Row(at)];
                let strips = strips(&index, &lines, |_| false, window, 200);
                let canvas = Canvas { index: &index, window, theme, matches: None, launch: None };
                canvas.draw_row(&mut buf, area, lines[0], &strips[0], false);
                let fg = theme.style(module_role(&index, Some(span))).fg;
                assert!((1..199).all(|x| buf[(x, 0)].style().fg == fg), "span {span}");
            }
        }
    }

    #[test]
    fn exposed_waiting_looks_the_same_in_its_lane_and_in_the_row_of_its_rank() {
        let index = crate::face::tui::tests::fixtures::trace();
        let step = index.steps[1].window;
        let waits = |span: &&Span| {
            span.rank == 0 && step.contains(span.start_ns) && span.last_arrival_ns > span.start_ns
        };
        let span = index.trace.spans.iter().find(waits).expect("rank 0 waits for rank 1");
        let window = TimeWindow::new(span.start_ns, span.last_arrival_ns);
        let (theme, area) = (Theme::new(true), Rect::new(0, 0, 20, 1));
        let canvas = Canvas { index: &index, window, theme, matches: None, launch: None };
        let lines = [TraceLine::Rank(0), TraceLine::Row(1)];
        for (line, strip) in lines.iter().zip(strips(&index, &lines, |_| false, window, 20)) {
            let mut buf = Buffer::empty(area);
            canvas.draw_row(&mut buf, area, *line, &strip, false);
            assert!((0..20).all(|x| buf[(x, 0)].symbol() == "╲"), "{line:?}: {buf:?}");
        }
    }

    #[test]
    fn runs_of_equal_cells_have_their_start_and_length() {
        let cells = ["╱", "╱", "▚", "╱", "╱", "╱"].map(Some);
        assert_eq!(runs(&cells), [(0, 2), (2, 1), (3, 3)]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn a_name_keeps_clear_of_the_mark_of_a_launch() {
        assert_eq!(name_room(1..20, None, 11), 1..20);
        assert_eq!(name_room(1..20, Some(25), 11), 1..20, "the mark is elsewhere");
        assert_eq!(name_room(1..20, Some(15), 11), 1..15, "whole before it");
        assert_eq!(name_room(1..20, Some(6), 11), 7..20, "more of it fits behind");
        assert_eq!(name_room(1..20, Some(11), 40), 1..11, "more of it fits before");
    }

    #[test]
    fn kernels_without_a_class_are_coloured_by_name() {
        let roles: Vec<Role> =
            (0..40).map(|at| role_of_name(&format!("void kernel_{at}<int>(float*)"))).collect();
        assert!(UNCLASSIFIED.iter().all(|role| roles.contains(role)), "{roles:?}");
        assert_eq!(role_of_name("void kernel_1<8>(float*)"), role_of_name("void kernel_1<int>(half*)"));
        let index = crate::face::tui::tests::fixtures::imported();
        let gemm = index.trace.spans.iter().position(|span| span.operation == 0);
        assert_eq!(module_role(&index, gemm), role_of_name("gemm_kernel"));
    }

    #[test]
    fn many_operations_are_a_height_and_the_edge_of_one_a_width() {
        let many = ColumnActivity { places: (3, 5), ..column([50, 0, 0, 0]) };
        assert_eq!(cell(&many, 0, 100, false, || None), Some(Cell::Compute(Ink::High(4))));
        let one = ColumnActivity { places: (3, 4), left: true, ..column([50, 0, 0, 0]) };
        assert_eq!(cell(&one, 0, 100, false, || None), Some(Cell::Compute(Ink::FromLeft(4))));
    }

    #[test]
    fn a_span_without_length_is_seen() {
        let seen = |class| cell(&column([0; KINDS]), 0, 100, false, || Some(class));
        assert_eq!(seen(SpanClass::Compute), Some(Cell::Compute(Ink::FromLeft(1))));
        assert_eq!(seen(SpanClass::Comm), Some(Cell::Glyph("▒", Role::Comm)));
    }
}
