//! State of screen 4: a trace, the window onto it, the cursor.

pub mod cover;
pub mod index;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use index::{Row, StepKey, StepRange, TraceIndex};

use super::window::Window;
use crate::plan::Phase;
use crate::trace::Span;

/// Windows that can be gone back to.
const UNDO: usize = 100;

/// State of the timeline screen.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The trace; `None` until one is opened.
    pub view: Option<View>,
    /// What is being read.
    pub loading: Option<String>,
    /// Number of the newest request for a trace; answers to older ones are dropped.
    pub request: u64,
}

/// A trace and what of it is shown.
#[derive(Debug)]
pub struct View {
    /// The trace.
    pub index: Arc<TraceIndex>,
    /// The window (ns, the trace's clock).
    pub window: Window,
    /// Earlier windows.
    undo: Vec<Window>,
    /// The cursor's row.
    pub row: usize,
    /// The cursor's place among the row's spans.
    pub place: usize,
    /// Overlap (%) of steps, once computed.
    pub overlap: BTreeMap<StepKey, Option<f64>>,
    /// The step whose overlap is being computed.
    pub pending: Option<StepKey>,
    /// First rank shown.
    pub first_rank: usize,
}

impl Timeline {
    /// A new request for a trace: its number.
    pub fn request(&mut self, what: String) -> u64 {
        self.loading = Some(what);
        self.request += 1;
        self.request
    }

    /// Shows a trace.
    pub fn open(&mut self, index: Arc<TraceIndex>) {
        self.loading = None;
        self.view = Some(View::new(index));
    }
}

impl View {
    /// A trace, opened at its first decode step (or the whole of it, where it has none).
    pub fn new(index: Arc<TraceIndex>) -> Self {
        let window = index.bounds;
        let mut view = Self {
            index,
            window,
            undo: Vec::new(),
            row: 0,
            place: 0,
            overlap: BTreeMap::new(),
            pending: None,
            first_rank: 0,
        };
        if let Some(first) = view.index.steps.iter().position(|s| s.key.phase == Phase::Decode) {
            view.fit_step(first);
            view.undo.clear();
        }
        view
    }

    /// The span under the cursor.
    pub fn span(&self) -> Option<&Span> {
        self.index.span(self.row, self.place)
    }

    /// The step of the span under the cursor, an index into the trace's steps.
    pub fn step(&self) -> Option<usize> {
        self.index.step_of(self.span()?)
    }

    /// The step whose overlap the header needs and nobody has asked for.
    pub fn wanted(&mut self) -> Option<StepKey> {
        let key = self.index.steps.get(self.step()?)?.key;
        if self.pending.is_some() || self.overlap.contains_key(&key) {
            return None;
        }
        self.pending = Some(key);
        Some(key)
    }

    fn set(&mut self, window: Window) {
        let window = window.within(self.index.bounds);
        if window == self.window {
            return;
        }
        if self.undo.len() == UNDO {
            self.undo.remove(0);
        }
        self.undo.push(self.window);
        self.window = window;
    }

    /// Goes back to the window before the last zoom or pan; false where there is none.
    pub fn undo(&mut self) -> bool {
        match self.undo.pop() {
            Some(window) => {
                self.window = window;
                true
            }
            None => false,
        }
    }

    /// The time to zoom at: the middle of the operation under the cursor where it can be seen.
    fn focus(&self) -> i64 {
        let middle = self.span().map(|s| s.start_ns + (s.end_ns - s.start_ns) / 2);
        middle.filter(|t| self.window.contains(*t)).unwrap_or_else(|| self.window.middle())
    }

    /// Zooms at the cursor; a factor below 1 zooms in.
    pub fn zoom(&mut self, factor: f64) {
        self.zoom_at(self.focus(), factor);
    }

    /// Zooms at a time (ns).
    pub fn zoom_at(&mut self, at: i64, factor: f64) {
        self.set(self.window.zoomed(at, factor, self.index.bounds));
    }

    /// Pans by a share of the window.
    pub fn pan(&mut self, share: f64) {
        self.set(self.window.panned(share, self.index.bounds));
    }

    /// Shows the whole trace.
    pub fn fit_all(&mut self) {
        self.set(self.index.bounds);
    }

    /// Zooms to the operation under the cursor, with a little of what surrounds it.
    pub fn zoom_span(&mut self) {
        let Some(span) = self.span() else { return };
        let margin = ((span.end_ns - span.start_ns) / 4).max(1);
        self.set(Window::new(span.start_ns - margin, span.end_ns + margin));
    }

    /// Moves the cursor within its lane; the window follows.
    pub fn move_in_lane(&mut self, by: isize) {
        let len = self.index.rows.get(self.row).map_or(0, Row::len);
        self.place = self.place.saturating_add_signed(by).min(len.saturating_sub(1));
        if let Some(span) = self.span() {
            self.window = self.window.showing(span.start_ns, span.end_ns, self.index.bounds);
        }
    }

    /// Moves the cursor to another row, at about the same time.
    pub fn move_row(&mut self, by: isize) {
        let time = self.focus();
        self.row = self.row.saturating_add_signed(by).min(self.index.rows.len().saturating_sub(1));
        self.place =
            self.index.rows.get(self.row).map_or(0, |row| row.nearest(&self.index.trace.spans, time));
    }

    /// Puts the cursor on what a row shows at a time.
    pub fn point_at(&mut self, row: usize, time: i64) {
        if let Some(shown) = self.index.rows.get(row) {
            self.row = row;
            self.place = shown.nearest(&self.index.trace.spans, time);
        }
    }

    /// Fits the next or previous decode step.
    pub fn fit_neighbour(&mut self, forwards: bool) {
        let decode = |i: &usize| self.index.steps[*i].key.phase == Phase::Decode;
        let here = self.step();
        let to = match (here, forwards) {
            (None, _) => (0..self.index.steps.len()).find(decode),
            (Some(here), true) => (here + 1..self.index.steps.len()).find(decode),
            (Some(here), false) => (0..here).rev().find(decode),
        };
        if let Some(to) = to.or(here) {
            self.fit_step(to);
        }
    }

    /// Fits a step and puts the cursor on its first operation in the row.
    fn fit_step(&mut self, step: usize) {
        let Some(StepRange { window, .. }) = self.index.steps.get(step).copied() else { return };
        self.set(window);
        let spans = &self.index.trace.spans;
        if let Some(row) = self.index.rows.get(self.row) {
            self.place = row.from(spans, window.from);
        }
    }

    /// Makes the cursor's rank one of the `ranks` shown.
    pub fn scroll_to_cursor(&mut self, ranks: usize) {
        let rank = self.index.rank_of_row(self.row);
        let ranks = ranks.max(1);
        self.first_rank = self.first_rank.clamp((rank + 1).saturating_sub(ranks), rank);
        self.first_rank = self.first_rank.min(self.index.ranks().saturating_sub(ranks));
    }
}
