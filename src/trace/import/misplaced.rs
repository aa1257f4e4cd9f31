//! GPU work that cannot have run at its recorded time: it contradicts its own stream or launch, or was
//! recorded twice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use rayon::prelude::*;

use super::clock::{Extremes, NO_TIME};
use crate::{Doubt, Doubted};

/// Overlap of neighbours on a stream that programmatic launches and rounding explain (ns).
const NORMAL_OVERLAP: i64 = 20_000;
/// Maximum skew between host and device clocks (ns). A start that precedes its launch by more is wrong.
const NORMAL_SKEW: i64 = 100_000;
/// Minimum and maximum time (ns) by which work may outlast everything else in a recording; in between,
/// [`OUTLASTS`] times the length of everything else.
const OUTLASTING: (i64, i64) = (10_000_000, 60_000_000_000);
const OUTLASTS: i64 = 10;
/// Minimum number of other events to judge work that outlasts them.
const LEAST_OTHERS: usize = 10;
/// Maximum plausible queueing time of work that also starts after everything else (ns).
const LONGEST_QUEUED: i64 = 1_000_000_000;

const LATE: &str = "starting long after its launch and everything else";
const CONTAINS: &str = "containing later work of its stream";
const EARLY: &str = "starting long before its launch";
const AGAIN: &str = "recorded a second time";
const ENDLESS: &str = "ending long after everything else";

#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) stream: usize,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Number of the launch, and start of its call (ns).
    pub(super) launch: Option<(usize, i64)>,
    /// Name and launch id; a second record of the same work has the same.
    pub(super) identity: (u32, i64),
}

/// Launch index of work without a launch.
pub(super) const NO_LAUNCH: u32 = u32::MAX;

/// True if work starts too long before a launch: the link or a time is wrong.
pub(super) fn is_early(start_ns: i64, launch_ns: i64) -> bool {
    start_ns < launch_ns.saturating_sub(NORMAL_SKEW)
}

/// Removes links to other work's launches: launch ids wrap, and work launched before the recording may
/// share the id of a later launch. `again` returns true if the file has a repeated id, `early` if the
/// work starts long before the launch; work with one id before and after its launch also proves reuse.
pub(super) fn forget_reused(
    launch_of: &mut [u32],
    again: impl FnOnce() -> bool,
    early: impl Fn(usize, u32) -> bool,
) {
    let is_early = |(at, launch): (usize, &u32)| *launch != NO_LAUNCH && early(at, *launch);
    if !launch_of.iter().enumerate().any(is_early) {
        return;
    }
    let again = again();
    let mut works: HashMap<u32, u32> = HashMap::new();
    launch_of.iter().for_each(|launch| *works.entry(*launch).or_default() += 1);
    for (at, launch) in launch_of.iter_mut().enumerate() {
        if is_early((at, launch)) && (again || works[launch] == 2) {
            *launch = NO_LAUNCH;
        }
    }
}

/// Work that cannot have run at its recorded time.
#[derive(Debug, Default)]
pub(super) struct Misplaced {
    /// Number of each piece of work to leave out, and the reason.
    pub(super) found: Vec<(usize, &'static str)>,
    /// Findings that affect too much of a file or stream to leave the work out.
    pub(super) doubts: Vec<Doubt>,
}

/// Finds work that cannot have run at its recorded time. A stream executes in order, so no work on it
/// contains several later pieces of other launches, starts long before its launch, starts long after
/// its launch and after everything else ended, or outlasts everything else by far; a second record of
/// the same work is not work. If much of a stream or file is affected, the profiler may use other stream
/// numbers or clocks: the work is kept, and a [`Doubt`] says so. `found` is ordered by number. `host`
/// is the extent of all host events.
pub(super) fn misplaced(
    count: usize,
    at: impl Fn(usize) -> Placed + Sync,
    host: impl FnOnce() -> Extremes,
) -> Misplaced {
    let mut early: Vec<(usize, &'static str)> = Vec::new();
    // work with a start of exactly 0, by stream
    let mut zeros: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let (mut in_order, mut launched, mut streams) = (true, 0, Vec::new());
    // work with a long queueing time, and the extent of all other work and its launches
    let (mut queued, mut extent) = (Vec::new(), (i64::MAX, i64::MIN));
    let mut last = (i64::MIN, i64::MIN);
    for number in 0..count {
        let placed = at(number);
        if placed.start_ns == 0 {
            zeros.entry(placed.stream).or_default().push(number);
        }
        if let Some((_, launch)) = placed.launch {
            launched += 1;
            if is_early(placed.start_ns, launch) {
                early.push((number, EARLY));
            }
            extent = (extent.0.min(launch), extent.1.max(launch));
        }
        match placed.launch {
            Some((_, launch)) if placed.start_ns.saturating_sub(launch) > LONGEST_QUEUED => {
                queued.push((number, placed.start_ns));
            }
            _ => extent = (extent.0.min(placed.start_ns), extent.1.max(placed.end_ns)),
        }
        last = (last.0.max(placed.start_ns), last.1.max(placed.end_ns));
        if streams.len() <= placed.stream {
            streams.resize(placed.stream + 1, (i64::MIN, i64::MIN));
        }
        let (start, end) = &mut streams[placed.stream];
        let follows =
            placed.start_ns > *start || placed.start_ns == *start && placed.start_ns == placed.end_ns;
        in_order &= follows && placed.start_ns >= end.saturating_sub(NORMAL_OVERLAP);
        (*start, *end) = (placed.start_ns, placed.end_ns.max(*end));
    }
    let missing = missing_starts(zeros, count, &at);
    early.retain(|(number, _)| !missing.contains(number));
    let mut of = Misplaced::default();
    if is_few(early.len(), launched) {
        of.found = early;
    } else {
        of.doubts.push(Doubt {
            about: Doubted::Launches,
            sentence: format!(
                "{} of {launched} launched kernels and copies start long before their launch, too many to leave \
                 out: the clocks of host and GPU disagree, so waiting for the host is not judged",
                early.len()
            ),
        });
    }
    of.found.extend(missing.into_iter().map(|number| (number, NO_TIME)));
    let gap = extent.1.saturating_sub(extent.0).max(LONGEST_QUEUED);
    let late = queued.iter().filter(|(_, start)| start.saturating_sub(extent.1) > gap);
    let late: Vec<_> = late.map(|(number, _)| (*number, LATE)).collect();
    if is_few(late.len(), launched) && 2 * late.len() < launched {
        of.found.extend(late);
    }
    if last.1.saturating_sub(last.0) > OUTLASTING.0 {
        of.find_endless(count, &at, host());
    }
    if !in_order {
        of.find_contradictions(count, &at);
    }
    of.found.sort_unstable();
    of.found.dedup_by_key(|(number, _)| *number);
    of
}

/// Work whose start of 0 is a missing time: several pieces of a stream start at 0, and either all end long
/// before any other work starts, or all start long before their launch. Branches of a graph may start
/// together, right before more work.
fn missing_starts(
    zeros: BTreeMap<usize, Vec<usize>>,
    count: usize,
    at: &impl Fn(usize) -> Placed,
) -> HashSet<usize> {
    let several: Vec<Vec<usize>> = zeros.into_values().filter(|row| row.len() > 1).collect();
    if several.is_empty() {
        return HashSet::new();
    }
    let next = (0..count).map(|number| at(number).start_ns).filter(|start| *start != 0).min();
    // all work starts at 0: nothing shows that this is no time
    let Some(next) = next else { return HashSet::new() };
    let is_missing = |number: &usize| {
        let Placed { end_ns, launch, .. } = at(*number);
        next > end_ns.saturating_mul(10).saturating_add(NORMAL_SKEW)
            || launch.is_some_and(|(_, launch)| is_early(0, launch))
    };
    several.into_iter().filter(|row| row.iter().all(is_missing)).flatten().collect()
}

impl Misplaced {
    /// Adds work that ends long after all host events and after the start of all other work.
    fn find_endless(&mut self, count: usize, at: &impl Fn(usize) -> Placed, host: Extremes) {
        let gone: HashSet<usize> = self.found.iter().map(|(number, _)| *number).collect();
        let kept =
            || (0..count).filter(|number| !gone.contains(number)).map(|number| (number, at(number)));
        let mut rest = host;
        kept().for_each(|(_, placed)| rest.add((placed.start_ns, placed.start_ns)));
        let limit = rest.extent().saturating_mul(OUTLASTS).clamp(OUTLASTING.0, OUTLASTING.1);
        let is_endless = |(_, placed): &(usize, Placed)| placed.end_ns.saturating_sub(rest.last) > limit;
        let endless: Vec<usize> = kept().filter(is_endless).map(|(number, _)| number).collect();
        let others = count - gone.len() - endless.len();
        if others >= LEAST_OTHERS && is_few(endless.len(), others) {
            self.found.extend(endless.into_iter().map(|number| (number, ENDLESS)));
        }
    }

    /// Adds second records of the same work, and work that contains later work of its stream.
    fn find_contradictions(&mut self, count: usize, at: &(impl Fn(usize) -> Placed + Sync)) {
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.par_sort_unstable_by_key(|number| {
            let Placed { stream, start_ns, end_ns, identity, .. } = at(*number as usize);
            (stream, start_ns, Reverse(end_ns), identity, *number)
        });
        order.dedup_by(|number, first| {
            let (number, first) = (*number as usize, *first as usize);
            let (a, b) = (at(number), at(first));
            let key = |p: &Placed| (p.stream, p.start_ns, p.end_ns, p.identity);
            let is_again = key(&a) == key(&b) && a.start_ns < a.end_ns;
            self.found.extend(is_again.then_some((number, AGAIN)));
            is_again
        });
        for row in order.chunk_by(|a, b| at(*a as usize).stream == at(*b as usize).stream) {
            let containers = containers(row, at);
            if is_few(containers.len(), row.len()) {
                self.found.extend(containers.into_iter().map(|number| (number, CONTAINS)));
            } else {
                self.doubts.push(Doubt {
                    about: Doubted::Durations,
                    sentence: format!(
                        "{} of {} kernels and copies of a stream contain later ones, too many to leave out: \
                         their durations or the stream's number may be wrong",
                        containers.len(),
                        row.len()
                    ),
                });
            }
        }
    }
}

/// True if the count is small enough for damage rather than a convention of the profiler.
fn is_few(count: usize, of: usize) -> bool {
    count <= 3.max(of / 10) && 2 * count <= of
}

/// Work of one stream that contains two later pieces of other launches. `row` is sorted by start,
/// longest first.
fn containers(row: &[u32], at: &impl Fn(usize) -> Placed) -> Vec<usize> {
    /// Maximum number of open pieces; older ones are dropped, so that damaged files cost no more than a
    /// sort.
    const MOST_OPEN: usize = 64;
    struct Open {
        number: usize,
        placed: Placed,
        contained: u32,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut found = Vec::new();
    for number in row.iter().map(|number| *number as usize) {
        let placed = at(number);
        open.retain(|outer| outer.placed.end_ns > placed.start_ns);
        for outer in &mut open {
            let launch = |placed: &Placed| placed.launch.map(|(number, _)| number);
            // branches of one graph run concurrently
            let graph = launch(&placed).is_some() && launch(&placed) == launch(&outer.placed);
            let length = placed.end_ns > placed.start_ns;
            let deep = outer.placed.end_ns.saturating_sub(placed.start_ns) > NORMAL_OVERLAP;
            if placed.end_ns <= outer.placed.end_ns && length && deep && !graph {
                outer.contained += 1;
                if outer.contained == 2 {
                    found.push(outer.number);
                }
            }
        }
        if open.len() == MOST_OPEN {
            open.remove(0);
        }
        open.push(Open { number, placed, contained: 0 });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stream, start, end (us), launch.
    type Work = (usize, i64, i64, Option<(usize, i64)>);

    fn found(list: &[Work]) -> Vec<(usize, &'static str)> {
        let placed = |number: usize| {
            let (stream, start, end, launch) = list[number];
            Placed {
                stream,
                start_ns: start * 1000,
                end_ns: end * 1000,
                launch: launch.map(|(number, at)| (number, at * 1000)),
                identity: (0, number as i64),
            }
        };
        misplaced(list.len(), placed, Extremes::default).found
    }

    #[test]
    fn a_stream_executes_in_order() {
        let mut list: Vec<_> = (0..20).map(|at| (7, 100 * at, 100 * at + 90, None)).collect();
        list.push((8, 0, 5_000, None)); // another stream
        assert_eq!(found(&list), []);
        list.push((7, 195, 1_500, None));
        assert_eq!(found(&list), [(21, CONTAINS)]);
        // overlap of neighbours, however the rows are ordered
        let mut close: Vec<_> = (0..20).map(|at| (7, 100 * at, 100 * at + 104, None)).collect();
        assert_eq!(found(&close), []);
        close.reverse();
        assert_eq!(found(&close), []);
        // a kernel that ran into the next one
        assert_eq!(found(&[(7, 0, 100, None), (7, 50, 90, None), (7, 200, 300, None)]), []);
    }

    /// Too much of a file to leave out is kept, and said.
    #[test]
    fn findings_on_much_of_a_file_are_doubts() {
        let early = |number: usize| Placed {
            stream: 7,
            start_ns: 1_000_000 * number as i64,
            end_ns: 1_000_000 * number as i64 + 1000,
            launch: Some((number, 1_000_000 * number as i64 + 40_000_000 * (number as i64 % 2))),
            identity: (0, number as i64),
        };
        let Misplaced { found, doubts } = misplaced(20, early, Extremes::default);
        assert_eq!(found, []);
        assert!(
            doubts[0].sentence.starts_with("10 of 20 launched kernels and copies start long before"),
            "{doubts:?}"
        );
        let long = |number: usize| Placed {
            stream: 7,
            start_ns: 200_000 * number as i64,
            end_ns: 200_000 * number as i64 + if number < 10 { 100_000_000 } else { 50_000 },
            launch: Some((number, 200_000 * number as i64 - 1000)),
            identity: (0, number as i64),
        };
        let Misplaced { found, doubts } = misplaced(20, long, Extremes::default);
        assert_eq!(found, []);
        assert!(doubts[0].sentence.contains("contain later ones"), "{doubts:?}");
        assert_eq!(doubts[0].about, Doubted::Durations);
        // a single kernel that starts before its launch is no proof of damage
        let Misplaced { found, doubts } = misplaced(1, |_| early(1), Extremes::default);
        assert_eq!((found.len(), doubts[0].about), (0, Doubted::Launches));
    }

    #[test]
    fn several_starts_of_zero_on_a_stream_are_no_times() {
        let half: Vec<_> = (0..20)
            .map(|at| match at % 2 {
                0 => (7, 0, 0, Some((at, 1_000_000 + 1000 * at as i64))),
                _ => (7, 1_010_000 + 1000 * at as i64, 1_010_500 + 1000 * at as i64, None),
            })
            .collect();
        let found = found(&half);
        assert_eq!(found.len(), 10);
        assert!(found.iter().all(|(number, why)| number % 2 == 0 && *why == NO_TIME));
    }

    #[test]
    fn work_counts_once_however_often_it_was_recorded() {
        let placed = |number: usize| Placed {
            stream: number % 2,
            start_ns: 10_000 * (number % 20) as i64,
            end_ns: 10_000 * (number % 20) as i64 + 5000,
            launch: None,
            identity: (1, (number % 20) as i64),
        };
        let Misplaced { found, doubts } = misplaced(40, placed, Extremes::default);
        assert_eq!(found, (20..40).map(|number| (number, AGAIN)).collect::<Vec<_>>());
        assert!(doubts.is_empty());
        // branches of a graph in profiles of whole microseconds: other names or ids
        let other = |number: usize| Placed { identity: (number as u32, 7), ..placed(number % 2) };
        assert_eq!(misplaced(4, other, Extremes::default).found, []);
        let next = |number: usize| Placed { identity: (1, 7), ..placed(number % 2) };
        assert_eq!(misplaced(4, next, Extremes::default).found, [(2, AGAIN), (3, AGAIN)]);
    }

    #[test]
    fn work_that_outlasts_everything_else_is_left_out() {
        let mut list: Vec<_> = (0..20).map(|at| (7, 100 * at, 100 * at + 90, None)).collect();
        list.push((7, 2_000, 3_600_000_000, None));
        list.push((8, 1_000, 60_000, None));
        assert_eq!(found(&list), [(20, ENDLESS), (21, ENDLESS)]);
        // twice the recording: long, and possible
        list.truncate(20);
        list.push((7, 2_000, 6_000, None));
        assert_eq!(found(&list), []);
        // the host waited for it
        list.push((8, 2_000, 60_000, None));
        let placed = |number: usize| {
            let (stream, start, end, _) = list[number];
            let identity = (0, number as i64);
            Placed { stream, start_ns: start * 1000, end_ns: end * 1000, launch: None, identity }
        };
        let mut host = Extremes::default();
        host.add((0, 60_010_000));
        assert_eq!(misplaced(list.len(), placed, || host).found, []);
        // nothing to compare with
        assert_eq!(found(&[(7, 0, 10, None), (7, 20, 10_000_000, None)]), []);
    }

    #[test]
    fn branches_of_a_graph_and_shared_queues_run_side_by_side() {
        let graph = Some((1, 0));
        assert_eq!(found(&[(7, 10, 500, graph), (7, 20, 90, graph), (7, 100, 200, graph)]), []);
        let shared: Vec<_> =
            (0..60).map(|at| (7, 10 * at, 10 * at + 300 - 20 * (at % 2), None)).collect();
        let half = shared.iter().chain(&[(7, 0, 10_000, None)]).copied().collect::<Vec<_>>();
        assert_eq!(found(&half).len(), 1, "only the one that contains all");
    }

    #[test]
    fn work_starts_after_its_launch() {
        let launched = |number: usize| {
            (7, 1000 + 10 * number as i64, 1005 + 10 * number as i64, Some((number, 900)))
        };
        let mut list: Vec<_> = (0..40).map(launched).collect();
        list.push((8, 899, 903, Some((41, 900)))); // skew
        list.push((8, 10, 15, Some((42, 900))));
        assert_eq!(found(&list), [(41, EARLY)]);
        // all of them: the clocks of host and device are apart
        let skewed: Vec<_> =
            (0..40).map(|at| (7, 10 * at, 10 * at + 5, Some((at as usize, 10 * at + 500)))).collect();
        assert_eq!(found(&skewed), []);
    }

    #[test]
    fn work_is_not_queued_for_longer_than_everything_else() {
        let launched = |at: usize| {
            (7, 1_000 * at as i64 + 50, 1_000 * at as i64 + 90, Some((at, 1_000 * at as i64)))
        };
        let mut list: Vec<_> = (0..40).map(launched).collect();
        // 10 s in the queue while another stream works: slow, and possible
        list.push((8, 0, 10_000_000, None));
        list.push((7, 10_000_001, 10_000_009, Some((40, 39_500))));
        assert_eq!(found(&list), []);
        // long after all else: its time is in another unit
        list.push((9, 39_500_000, 39_500_007, Some((41, 39_500))));
        assert_eq!(found(&list), [(42, LATE)]);
    }
}
