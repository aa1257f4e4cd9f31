//! Visible time interval of a timeline, always within its bounds and never empty, and its history for undo and redo.

use super::index::TraceLine;

/// Half-open time interval in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    pub from: i64,
    /// End (ns), greater than `from`.
    pub to: i64,
}

/// Minimum window width (ns), unless the bounds are narrower.
pub const NARROWEST: i64 = 64;

impl TimeWindow {
    /// Creates a window at least 1 ns long.
    pub fn new(from: i64, to: i64) -> Self {
        let from = from.min(i64::MAX - 1);
        Self { from, to: to.max(from + 1) }
    }

    /// Length (ns), at least 1.
    pub fn width(&self) -> i64 {
        self.to.saturating_sub(self.from).max(1)
    }

    pub fn middle(&self) -> i64 {
        self.from + self.width() / 2
    }

    pub fn contains(&self, time: i64) -> bool {
        self.from <= time && time < self.to
    }

    /// Nearest window within `bounds` that respects the minimum width.
    pub fn within(self, bounds: Self) -> Self {
        let width = self.width().max(NARROWEST).min(bounds.width());
        // grow around the middle if too narrow
        let grown = self.from.saturating_sub(width.saturating_sub(self.width()) / 2);
        let from = grown.clamp(bounds.from, bounds.to - width);
        Self { from, to: from + width }
    }

    /// Zooms by `factor` (below 1 zooms in), keeping the time `at` in place on the screen.
    pub fn zoomed(self, at: i64, factor: f64, bounds: Self) -> Self {
        let at = at.clamp(self.from, self.to);
        let left = (at - self.from) as f64 * factor;
        let right = (self.to - at) as f64 * factor;
        // `as` saturates, so extreme zooms end at the bounds
        Self::new(at.saturating_sub(left as i64), at.saturating_add(right as i64)).within(bounds)
    }

    /// Pans by a fraction of the width; negative is left.
    pub fn panned(self, share: f64, bounds: Self) -> Self {
        let by = (self.width() as f64 * share) as i64;
        let by = if by == 0 { share.signum() as i64 } else { by };
        let from = self
            .from
            .saturating_add(by)
            .clamp(bounds.from, bounds.to - self.width().min(bounds.width()));
        Self { from, to: from + self.width() }.within(bounds)
    }

    pub fn shifted(self, by: i64) -> Self {
        Self::new(self.from.saturating_add(by), self.to.saturating_add(by))
    }

    /// Scrolls as little as needed to show `from..to`, or its start if it is longer than the window.
    pub fn showing(self, from: i64, to: i64, bounds: Self) -> Self {
        let width = self.width();
        let start = if from < self.from || to.saturating_sub(from) >= width {
            from
        } else if to > self.to {
            to - width
        } else {
            return self;
        };
        Self { from: start, to: start.saturating_add(width) }.within(bounds)
    }

    /// Shows all of `from..to` with room on both sides: `self` if it does, else a window of its width around the middle;
    /// zooms out only if `self` is too narrow.
    pub fn around(self, from: i64, to: i64, bounds: Self) -> Self {
        let length = to.saturating_sub(from).max(1);
        let margin = (length / 8).max(1);
        let with_room = |room: i64| (from.saturating_sub(room), to.saturating_add(room));
        if length.saturating_add(2 * margin) > self.width() {
            let (from, to) = with_room(margin);
            return Self::new(from, to).within(bounds);
        }
        let (least, most) = with_room(self.width() / 16);
        if self.from <= least && most <= self.to {
            return self;
        }
        let start = from.saturating_add(length / 2).saturating_sub(self.width() / 2);
        Self { from: start, to: start.saturating_add(self.width()) }.within(bounds)
    }

    /// Time at column `column` of `columns`.
    pub fn time(&self, column: usize, columns: usize) -> i64 {
        self.from + scaled(self.width(), column as i64, columns.max(1) as i64)
    }

    /// First and last times of all columns, ascending.
    pub fn edges(self, columns: usize) -> impl Iterator<Item = i64> {
        (0..=columns).map(move |column| self.time(column, columns))
    }

    /// Column of `columns` that shows a time, if any.
    pub fn column(&self, time: i64, columns: usize) -> Option<usize> {
        if !self.contains(time) || columns == 0 {
            return None;
        }
        let column = scaled(time.saturating_sub(self.from), columns as i64, self.width());
        Some((column as usize).min(columns - 1))
    }
}

/// Computes `value * by / over`. Every column of every line of a frame needs it; 64 bits hold the
/// product for all but the longest windows and divide faster than 128.
fn scaled(value: i64, by: i64, over: i64) -> i64 {
    let product = value.checked_mul(by).map(|product| product / over);
    product.unwrap_or_else(|| (i128::from(value) * i128::from(by) / i128::from(over)) as i64)
}

/// Window that was left, and the cursor in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitedWindow {
    pub window: TimeWindow,
    pub pane: usize,
    pub line: Option<TraceLine>,
    /// In window time (ns).
    pub time: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowHistory {
    before: Vec<VisitedWindow>,
    after: Vec<VisitedWindow>,
}

impl WindowHistory {
    pub fn leave(&mut self, left: VisitedWindow) {
        self.before.push(left);
        self.after.clear();
    }

    /// Returns the previous window, if any.
    pub fn undo(&mut self, shown: VisitedWindow) -> Option<VisitedWindow> {
        let previous = self.before.pop()?;
        self.after.push(shown);
        Some(previous)
    }

    pub fn redo(&mut self, shown: VisitedWindow) -> Option<VisitedWindow> {
        let next = self.after.pop()?;
        self.before.push(shown);
        Some(next)
    }

    /// Number of windows to return to.
    pub fn edits(&self) -> usize {
        self.before.len()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn shift(&mut self, by: i64) {
        for visited in self.before.iter_mut().chain(&mut self.after) {
            visited.window = visited.window.shifted(by);
            visited.time = visited.time.saturating_add(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Move {
        Zoom(i64, f64),
        Pan(f64),
        Show(i64, i64),
        Around(i64, i64),
        Set(i64, i64),
    }

    fn moves() -> impl Strategy<Value = Move> {
        prop_oneof![
            (any::<i64>(), prop_oneof![Just(0.5), Just(2.0), 0.0..1e12])
                .prop_map(|(a, f)| Move::Zoom(a, f)),
            (-2.0..2.0).prop_map(Move::Pan),
            (-2_000_000i64..2_000_000, 0i64..5_000_000).prop_map(|(a, w)| Move::Show(a, a + w)),
            (-2_000_000i64..2_000_000, 0i64..5_000_000).prop_map(|(a, w)| Move::Around(a, a + w)),
            (any::<i64>(), any::<i64>()).prop_map(|(a, b)| Move::Set(a, b)),
        ]
    }

    proptest! {
        #[test]
        fn a_window_stays_within_its_bounds(
            start in -1_000_000i64..1_000_000,
            width in 1i64..1_000_000,
            moves in prop::collection::vec(moves(), 0..30),
        ) {
            let bounds = TimeWindow::new(start, start + width);
            let mut window = bounds;
            for step in moves {
                window = match step {
                    Move::Zoom(at, factor) => window.zoomed(at, factor, bounds),
                    Move::Pan(share) => window.panned(share, bounds),
                    Move::Show(from, to) => window.showing(from, to, bounds),
                    Move::Around(from, to) => window.around(from, to, bounds),
                    Move::Set(from, to) => TimeWindow::new(from, to).within(bounds),
                };
                prop_assert!(window.from >= bounds.from && window.to <= bounds.to, "{window:?} {bounds:?}");
                prop_assert!(window.width() >= NARROWEST.min(bounds.width()));
            }
        }

        #[test]
        fn the_time_of_a_column_is_in_that_column(
            width in 200i64..1_000_000_000, column in 0usize..200,
        ) {
            let window = TimeWindow::new(7, 7 + width);
            // a column's first whole nanosecond may still belong to the column before
            let shown = window.column(window.time(column, 200), 200);
            prop_assert!(shown == Some(column) || shown.map(|c| c + 1) == Some(column));
        }
    }

    #[test]
    fn a_window_around_an_operation_contains_it_with_room_and_keeps_the_zoom_if_it_fits() {
        let bounds = TimeWindow::new(0, 1_000_000);
        let window = TimeWindow::new(500_000, 503_000);
        for (from, to) in
            [(501_000, 501_500), (400_000, 402_000), (500_000, 505_800), (502_900, 503_100)]
        {
            let shown = window.around(from, to, bounds);
            let room = shown.width() / 20;
            assert!(shown.from + room <= from && to + room <= shown.to, "{from}..{to}: {shown:?}");
            assert_eq!(shown.width() == window.width(), to - from < 2_400, "{from}..{to}: {shown:?}");
        }
        assert_eq!(window.around(501_000, 501_500, bounds), window, "it is there already");
        let (left, right) =
            (window.around(400_000, 402_000, bounds), window.around(502_900, 503_100, bounds));
        assert_eq!((left.middle(), right.middle()), (401_000, 503_000), "elsewhere it is in the middle");
    }

    #[test]
    fn zooming_in_and_out_at_one_time_comes_back() {
        let bounds = TimeWindow::new(0, 1 << 20);
        let window = TimeWindow::new(1 << 18, 1 << 19);
        let there = window.zoomed(300_000, 0.5, bounds);
        assert_eq!(there.width(), window.width() / 2);
        let back = there.zoomed(300_000, 2.0, bounds);
        assert!((back.from - window.from).abs() <= 2 && (back.to - window.to).abs() <= 2, "{back:?}");
    }

    #[test]
    fn going_back_and_forth_ends_where_it_began_and_a_new_window_ends_the_way_forward() {
        let window = |from| VisitedWindow {
            window: TimeWindow::new(from, from + 10),
            pane: 0,
            line: None,
            time: from,
        };
        let mut history = WindowHistory::default();
        assert_eq!(history.undo(window(0)), None);
        history.leave(window(0));
        history.leave(window(1));
        assert_eq!(history.undo(window(2)), Some(window(1)));
        assert_eq!(history.undo(window(1)), Some(window(0)));
        assert_eq!(history.redo(window(0)), Some(window(1)));
        history.leave(window(1));
        assert_eq!(history.redo(window(7)), None);
        for from in 0..300 {
            history.leave(window(from));
        }
        history.shift(5);
        assert_eq!(history.undo(window(0)), Some(window(304)));
        assert_eq!((history.edits(), history.after.len()), (301, 1));
    }
}
