//! Time of a rank between two all-reduces: kernel work, and the launches that it has to wait for.

/// Kernels of one rank between two all-reduces, in sequence (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Kernels and the gaps between them, except gaps that the host caused.
    pub work: i64,
    /// Earliest end of the last kernel, relative to the step, given the host's launch times; `None` if
    /// unknown.
    pub floor: Option<i64>,
    /// Like `floor`, of the last kernel before the routed experts.
    pub unrouted_floor: Option<i64>,
    /// Leading part of the work that adds the last sum to the residual and normalizes it.
    pub lead: i64,
    pub lead_kernels: u32,
    /// Trailing part of the work, from the first kernel of routed experts on.
    pub routed: i64,
}

/// Times in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchedKernel {
    pub start: i64,
    pub end: i64,
    /// Earliest possible start given the host's launch; `None` if unknown.
    pub released: Option<i64>,
    /// True if the kernel adds the last sum to the residual or normalizes it.
    pub leads: bool,
    /// True for a kernel of routed experts.
    pub routes: bool,
}

impl Stretch {
    /// Builds a stretch from the kernels that started between `from` and `to` (ns), in order, and the gap
    /// before `to`. The floor is relative to `origin`; `released` belongs to the all-reduce at the end.
    pub fn new(
        kernels: impl IntoIterator<Item = LaunchedKernel>,
        (from, to): (i64, i64),
        released: Option<i64>,
        origin: i64,
    ) -> Self {
        let mut stretch = Self::default();
        let mut at = from;
        let (mut leads, mut routes) = (true, false);
        for kernel in kernels {
            leads &= kernel.leads;
            if kernel.routes && !routes {
                stretch.unrouted_floor = stretch.floor;
            }
            let work = stretch.add(at, kernel);
            if leads {
                stretch.lead += work;
                stretch.lead_kernels += 1;
            }
            routes |= kernel.routes;
            if routes {
                stretch.routed += work;
            }
            at = at.max(kernel.end);
        }
        let work = stretch
            .add(at, LaunchedKernel { start: to, end: to, released, leads: false, routes: false });
        match routes {
            true => stretch.routed += work,
            false => stretch.unrouted_floor = stretch.floor,
        }
        stretch.floor = stretch.floor.map(|floor| floor - origin);
        stretch.unrouted_floor = stretch.unrouted_floor.map(|floor| floor - origin);
        stretch
    }

    /// Adds a kernel that follows at time `at`; returns its work.
    fn add(&mut self, at: i64, kernel: LaunchedKernel) -> i64 {
        let start = kernel.start.max(at);
        let released = kernel.released.map(|release| release.min(start));
        let base = released.map_or(at, |time| time.max(at));
        let work = (start - base) + (kernel.end - start).max(0);
        self.work += work;
        // (max, +): a kernel ends after its predecessor or its launch, whichever is later
        self.floor = self.floor.max(released).map(|floor| floor + work);
        work
    }

    /// Concatenates two stretches, dropping the leading part of the second.
    pub fn then(self, next: Self) -> Self {
        let added = next.work - next.lead;
        Self {
            work: self.work + added,
            floor: self.floor.map(|floor| floor + added).max(next.floor.map(|floor| floor - next.lead)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(start: i64, end: i64, released: Option<i64>) -> LaunchedKernel {
        LaunchedKernel { start, end, released, leads: false, routes: false }
    }

    #[test]
    fn gaps_are_work_unless_the_host_caused_them() {
        // launched long before: the gap of 5 is the device's
        let own = Stretch::new([kernel(10, 30, Some(2)), kernel(35, 50, Some(3))], (10, 60), Some(4), 0);
        assert_eq!(own.work, 50);
        // the second was launched at 34: the device waited from 30 on
        let late =
            Stretch::new([kernel(10, 30, Some(2)), kernel(35, 50, Some(34))], (10, 50), Some(4), 0);
        assert_eq!((late.work, late.floor), (36, Some(50)));
        // unknown launches: every gap is the device's
        let unknown = Stretch::new([kernel(10, 30, None), kernel(35, 50, None)], (10, 60), None, 0);
        assert_eq!((unknown.work, unknown.floor), (50, None));
    }

    proptest! {
        /// Begun when it was measured to begin, a stretch ends when it was measured to end.
        #[test]
        fn a_stretch_lasts_as_long_as_it_was_measured(
            steps in prop::collection::vec((0i64..50, 1i64..80, 0i64..90), 0..20),
            tail in 0i64..30,
            known: bool,
        ) {
            // `host`: time before a launch, in which nothing ran
            let (mut at, mut host, mut kernels) = (1_000, 0, Vec::new());
            for (gap, length, before) in steps {
                let start = at + gap;
                host += (gap - before).max(0);
                kernels.push(kernel(start, start + length, known.then_some(start - before)));
                at = start + length;
            }
            let to = at + tail;
            let stretch = Stretch::new(kernels, (1_000, to), known.then_some(to - 5), 1_000);
            let end = stretch.work.max(stretch.floor.unwrap_or(i64::MIN));
            prop_assert_eq!(end, to - 1_000);
            host += (tail - 5).max(0);
            prop_assert_eq!(stretch.work + if known { host } else { 0 }, to - 1_000);
        }
    }
}
