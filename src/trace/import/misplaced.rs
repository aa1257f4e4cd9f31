//! GPU work that cannot have run at its recorded time.
//!
//! A stream runs its launches one after the other, each after its call and before the host's last event; only
//! the nodes of one CUDA graph run concurrently. A few pieces of work that contradict this are damaged and
//! left out. If much does, the profiler may use other clocks or stream numbers: the work is kept, and a
//! [`Doubt`] says so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use rayon::prelude::*;

use super::left_out::{Extremes, LeftOutEvents, NO_TIME};
use crate::overlap::intervals::seek;
use crate::{Doubt, Doubted};

/// Overlap of neighbours on a stream that programmatic launches and rounding explain (ns).
const NORMAL_OVERLAP: i64 = 20_000;
/// Maximum skew between host and device clocks (ns). A start that precedes its launch by more is wrong.
const NORMAL_SKEW: i64 = 100_000;
/// Minimum time (ns) by which impossible work outlasts everything else, and the same in lengths of everything
/// else.
const OUTLASTING: i64 = 10_000_000_000;
const OUTLASTS: i64 = 10;
/// Minimum number of other events to judge work that outlasts them.
const LEAST_OTHERS: usize = 10;
/// Maximum plausible queueing time of work that also starts after everything else (ns).
const LONGEST_QUEUED: i64 = 1_000_000_000;
/// Maximum number of pieces of a stream to leave out because they contain later ones.
const MOST_CONTAINERS: usize = 3;
/// Minimum share of the GPU work with wrong durations, or of the events that cannot be read, for a doubt about all.
pub(super) const LEAST_DOUBTED: f64 = 0.02;

const LATE: &str = "starting long after its launch and everything else";
const CONTAINS: &str = "containing later work of its stream";
const EARLY: &str = "starting long before its launch";
pub(super) const AGAIN: &str = "recorded a second time";
const ENDLESS: &str = "ending long after everything else";

#[derive(Clone, Copy, Debug)]
pub(super) struct GpuWork {
    pub(super) stream: usize,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Number of the launch, and start of its call (ns).
    pub(super) launch: Option<(usize, i64)>,
    /// Process, and correlation id of the launch, recorded or not.
    pub(super) correlation: Option<(i64, i64)>,
    /// Name and launch id; a second record of the same work has the same.
    pub(super) identity: (u32, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LaunchKey {
    Call(usize),
    Correlation(i64, i64),
}

impl GpuWork {
    /// Launch of the work; pieces with the same one are nodes of a graph.
    fn launch_key(&self) -> Option<LaunchKey> {
        let correlation = self.correlation.map(|(process, id)| LaunchKey::Correlation(process, id));
        self.launch.map(|(number, _)| LaunchKey::Call(number)).or(correlation)
    }

    /// True for nodes of the same graph.
    fn is_beside(&self, other: &Self) -> bool {
        self.launch_key().is_some() && self.launch_key() == other.launch_key()
    }

    fn length_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Correlation id that identifies a launch; profilers write 0 or -1 if there is none.
pub(super) fn correlation(process: i64, id: i64) -> Option<(i64, i64)> {
    (id > 0).then_some((process, id))
}

pub(super) fn stream_name(id: i64, device: Option<i64>) -> String {
    format!("stream {id}{}", device.map_or(String::new(), |device| format!(" of device {device}")))
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

/// Index of the launch with `key` in a list sorted by key and start, both given by `of`. If the key was reused, takes
/// the last launch before `start_ns`, or the first one. `cursor` caches the position of the last search, because ids
/// mostly ascend.
pub(super) fn launch_before<T, K: Ord>(
    sorted: &[T],
    key: K,
    start_ns: i64,
    key_and_start: impl Fn(&T) -> (K, i64),
    cursor: &mut usize,
) -> u32 {
    let wanted = (key, start_ns);
    let after = seek(sorted, *cursor, |launch| key_and_start(launch) <= wanted);
    *cursor = after;
    let has_key = |at: &usize| sorted.get(*at).is_some_and(|launch| key_and_start(launch).0 == wanted.0);
    let found = after.checked_sub(1).filter(has_key).or(Some(after).filter(has_key));
    found.and_then(|at| u32::try_from(at).ok()).unwrap_or(NO_LAUNCH)
}

/// Work that cannot have run at its recorded time.
#[derive(Debug, Default)]
pub(super) struct Misplaced {
    /// Number of each piece of work to leave out, in order, and the reason.
    found: Vec<(usize, &'static str)>,
    /// Findings that affect too much of a file or stream to leave the work out.
    doubts: Vec<Doubt>,
    /// The same about so little of the GPU's time that no result changes.
    remarks: Vec<String>,
}

/// Finds work that cannot have run at its recorded time. `host` is the extent of all host events.
pub(super) fn misplaced(
    count: usize,
    at: impl Fn(usize) -> GpuWork + Sync,
    host: impl FnOnce() -> Extremes,
    stream_name: impl Fn(usize) -> String,
) -> Misplaced {
    let survey = Survey::from_works((0..count).map(&at));
    let mut of = Misplaced::default();
    let missing = missing_starts(&survey.zeros, count, &at);
    of.judge_early(survey.early.iter().filter(|number| !missing.contains(number)), survey.launched);
    of.leave_out(missing, NO_TIME);
    let late = survey.late();
    if is_few(late.len(), survey.launched) && 2 * late.len() < survey.launched {
        of.leave_out(late, LATE);
    }
    if survey.last_end.saturating_sub(survey.last_start) > OUTLASTING {
        of.find_endless(count, &at, host());
    }
    if !survey.is_in_order {
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.par_sort_by_key(|number| {
            let GpuWork { stream, start_ns, end_ns, identity, .. } = at(*number as usize);
            (stream, start_ns, Reverse(end_ns), identity, *number)
        });
        of.find_repeated(&mut order, &at);
        of.find_containers(&order, &at, stream_name);
    }
    of.found.sort_unstable();
    of.found.dedup_by_key(|(number, _)| *number);
    of
}

/// Result of one pass over all work; most recordings need no second one.
struct Survey {
    launched: usize,
    /// Work that starts long before its launch.
    early: Vec<usize>,
    /// Work with a start of exactly 0, by stream.
    zeros: BTreeMap<usize, Vec<usize>>,
    /// Work with a long queueing time, and its start.
    queued: Vec<(usize, i64)>,
    /// Extent of all other work, and of all launches.
    prompt: Extremes,
    last_start: i64,
    last_end: i64,
    /// True if on no stream work contains other work.
    is_in_order: bool,
}

impl Survey {
    fn from_works(works: impl Iterator<Item = GpuWork>) -> Self {
        let mut of = Self {
            launched: 0,
            early: Vec::new(),
            zeros: BTreeMap::new(),
            queued: Vec::new(),
            prompt: Extremes::default(),
            last_start: i64::MIN,
            last_end: i64::MIN,
            is_in_order: true,
        };
        // last start and end by stream
        let mut streams = Vec::new();
        for (number, GpuWork { stream, start_ns, end_ns, launch, .. }) in works.enumerate() {
            if start_ns == 0 {
                of.zeros.entry(stream).or_default().push(number);
            }
            let launch = launch.map(|(_, launch)| launch);
            if let Some(launch) = launch {
                of.launched += 1;
                of.early.extend(is_early(start_ns, launch).then_some(number));
                of.prompt.add((launch, launch));
            }
            if launch.is_some_and(|launch| start_ns.saturating_sub(launch) > LONGEST_QUEUED) {
                of.queued.push((number, start_ns));
            } else {
                of.prompt.add((start_ns, end_ns));
            }
            (of.last_start, of.last_end) = (of.last_start.max(start_ns), of.last_end.max(end_ns));
            if streams.len() <= stream {
                streams.resize(stream + 1, (i64::MIN, i64::MIN));
            }
            let (start, end) = &mut streams[stream];
            let follows = start_ns > *start || start_ns == *start && start_ns == end_ns;
            of.is_in_order &= follows && start_ns >= end.saturating_sub(NORMAL_OVERLAP);
            (*start, *end) = (start_ns, end_ns.max(*end));
        }
        of
    }

    /// Work that starts long after its launch, after all other work and launches.
    fn late(&self) -> Vec<usize> {
        let gap = self.prompt.extent().max(LONGEST_QUEUED);
        let late = self.queued.iter().filter(|(_, start)| start.saturating_sub(self.prompt.last) > gap);
        late.map(|(number, _)| *number).collect()
    }
}

/// Work whose start of 0 is a missing time: several pieces of a stream start at 0, and either all end long
/// before any other work starts, or all start long before their launch. Branches of a graph may start
/// together, right before more work.
fn missing_starts(
    zeros: &BTreeMap<usize, Vec<usize>>,
    count: usize,
    at: &impl Fn(usize) -> GpuWork,
) -> HashSet<usize> {
    let mut several = zeros.values().filter(|row| row.len() > 1).peekable();
    if several.peek().is_none() {
        return HashSet::new();
    }
    let next = (0..count).map(|number| at(number).start_ns).filter(|start| *start != 0).min();
    // all work starts at 0: nothing shows that this is no time
    let Some(next) = next else { return HashSet::new() };
    let is_missing = |number: &usize| {
        let GpuWork { end_ns, launch, .. } = at(*number);
        next > end_ns.saturating_mul(10).saturating_add(NORMAL_SKEW)
            || launch.is_some_and(|(_, launch)| is_early(0, launch))
    };
    several.filter(|row| row.iter().all(is_missing)).flatten().copied().collect()
}

impl Misplaced {
    /// Drops the work from a list and the list of its launches, and keeps the doubts and remarks. `note` adds a dropped
    /// piece to what is left out, with the reason.
    pub(super) fn drop_from<T>(
        self,
        works: &mut Vec<T>,
        launch_of: &mut Vec<u32>,
        left_out: &mut LeftOutEvents,
        mut note: impl FnMut(&mut LeftOutEvents, &T, &'static str),
    ) {
        left_out.doubt(self.doubts);
        left_out.remark(self.remarks);
        if self.found.is_empty() {
            return;
        }
        let mut keep = vec![true; works.len()];
        for (number, why) in self.found {
            note(left_out, &works[number], why);
            keep[number] = false;
        }
        let mut kept = keep.iter();
        works.retain(|_| kept.next().copied().unwrap_or(true));
        let mut kept = keep.iter();
        launch_of.retain(|_| kept.next().copied().unwrap_or(true));
    }

    fn leave_out(&mut self, numbers: impl IntoIterator<Item = usize>, why: &'static str) {
        self.found.extend(numbers.into_iter().map(|number| (number, why)));
    }

    /// Adds work that starts long before its launch, or the doubt about all launches.
    fn judge_early<'a>(&mut self, early: impl Iterator<Item = &'a usize>, launched: usize) {
        let early: Vec<usize> = early.copied().collect();
        if is_few(early.len(), launched) {
            return self.leave_out(early, EARLY);
        }
        self.doubts.push(Doubt {
            about: Doubted::Launches,
            sentence: format!(
                "{} of {launched} launched kernels and copies start long before their launch, too many to leave \
                 out: the clocks of host and GPU disagree, so waiting for the host is not judged",
                early.len()
            ),
        });
    }

    /// Adds work that ends long after all host events and after the start of all other work.
    fn find_endless(&mut self, count: usize, at: &impl Fn(usize) -> GpuWork, host: Extremes) {
        let gone: HashSet<usize> = self.found.iter().map(|(number, _)| *number).collect();
        let kept =
            || (0..count).filter(|number| !gone.contains(number)).map(|number| (number, at(number)));
        let mut rest = host;
        kept().for_each(|(_, placed)| rest.add((placed.start_ns, placed.start_ns)));
        let limit = rest.extent().saturating_mul(OUTLASTS).max(OUTLASTING);
        let is_endless =
            |(_, placed): &(usize, GpuWork)| placed.end_ns.saturating_sub(rest.last) > limit;
        let endless: Vec<usize> = kept().filter(is_endless).map(|(number, _)| number).collect();
        let others = count - gone.len() - endless.len();
        if others >= LEAST_OTHERS && is_few(endless.len(), others) {
            self.leave_out(endless, ENDLESS);
        }
    }

    /// Moves second records of the same work from `order` to the findings. In times of whole microseconds equal
    /// branches of a graph look the same; a graph was recorded twice only if all its nodes were.
    fn find_repeated(&mut self, order: &mut Vec<u32>, at: &impl Fn(usize) -> GpuWork) {
        let record = |number: u32| {
            let GpuWork { stream, start_ns, end_ns, identity, .. } = at(number as usize);
            (stream, start_ns, end_ns, identity)
        };
        let is_same = |a: &u32, b: &u32| record(*a) == record(*b);
        if order.array_windows().any(|[a, b]| is_same(a, b)) {
            let single = order.chunk_by(is_same).filter(|records| records.len() == 1);
            let single: HashSet<LaunchKey> =
                single.filter_map(|records| at(records[0] as usize).launch_key()).collect();
            order.dedup_by(|number, first| {
                let placed = at(*number as usize);
                let is_branch = placed.launch_key().is_some_and(|key| single.contains(&key));
                let is_again = is_same(number, first) && placed.length_ns() > 0 && !is_branch;
                self.found.extend(is_again.then_some((*number as usize, AGAIN)));
                is_again
            });
        }
    }

    /// Adds work that contains later work of its stream, or the doubt about the stream. `order` is sorted by
    /// stream and start, longest first.
    fn find_containers(
        &mut self,
        order: &[u32],
        at: &impl Fn(usize) -> GpuWork,
        stream_name: impl Fn(usize) -> String,
    ) {
        let stream = |number: u32| at(number as usize).stream;
        let mut kept: Vec<(&[u32], Vec<usize>)> = Vec::new();
        for row in order.chunk_by(|a, b| stream(*a) == stream(*b)) {
            let containers = containers(row, at);
            if containers.len() <= MOST_CONTAINERS && 2 * containers.len() <= row.len() {
                self.leave_out(containers, CONTAINS);
            } else {
                kept.push((row, containers));
            }
        }
        if kept.is_empty() {
            return;
        }
        let length = |number: usize| at(number).length_ns() as f64;
        let all: f64 = order.iter().map(|number| length(*number as usize)).sum();
        let doubtful: f64 =
            kept.iter().flat_map(|(_, containers)| containers).map(|at| length(*at)).sum();
        for (row, containers) in kept {
            let sentence = format!(
                "{} of {} kernels and copies of {} contain later ones, too many to leave out: their durations or \
                 the stream's number may be wrong",
                containers.len(),
                row.len(),
                stream_name(stream(row[0]))
            );
            match doubtful >= LEAST_DOUBTED * all {
                true => self.doubts.push(Doubt { about: Doubted::Durations, sentence }),
                false => self.remarks.push(sentence),
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
fn containers(row: &[u32], at: &impl Fn(usize) -> GpuWork) -> Vec<usize> {
    /// Maximum number of open pieces; older ones are dropped, so that damaged files cost no more than a
    /// sort.
    const MOST_OPEN: usize = 64;
    struct Open {
        number: usize,
        placed: GpuWork,
        contained: u32,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut found = Vec::new();
    for number in row.iter().map(|number| *number as usize) {
        let placed = at(number);
        open.retain(|outer| outer.placed.end_ns > placed.start_ns);
        for outer in &mut open {
            let is_deep = outer.placed.end_ns.saturating_sub(placed.start_ns) > NORMAL_OVERLAP;
            let is_within = placed.end_ns <= outer.placed.end_ns && placed.length_ns() > 0;
            if is_within && is_deep && !placed.is_beside(&outer.placed) {
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
        judged(list.len(), |number| placed(list, number)).found
    }

    fn placed(list: &[Work], number: usize) -> GpuWork {
        work(list[number], number)
    }

    fn work((stream, start, end, launch): Work, number: usize) -> GpuWork {
        GpuWork {
            stream,
            start_ns: start * 1000,
            end_ns: end * 1000,
            launch: launch.map(|(number, at)| (number, at * 1000)),
            correlation: None,
            identity: (0, number as i64),
        }
    }

    fn judged(count: usize, placed: impl Fn(usize) -> GpuWork + Sync) -> Misplaced {
        misplaced(count, placed, Extremes::default, |stream| format!("stream {stream}"))
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
        let early = |number: usize| {
            let start = 1000 * number as i64;
            work((7, start, start + 1, Some((number, start + 40_000 * (number as i64 % 2)))), number)
        };
        let Misplaced { found, doubts, .. } = judged(20, early);
        assert_eq!(found, []);
        assert!(
            doubts[0].sentence.starts_with("10 of 20 launched kernels and copies start long before"),
            "{doubts:?}"
        );
        let long = |number: usize| {
            let start = 200 * number as i64;
            let end = start + if number < 10 { 100_000 } else { 50 };
            work((7, start, end, Some((number, start - 1))), number)
        };
        let Misplaced { found, doubts, .. } = judged(20, long);
        assert_eq!(found, []);
        assert!(
            doubts[0].sentence.starts_with("10 of 20 kernels and copies of stream 7 contain later ones"),
            "{doubts:?}"
        );
        assert_eq!(doubts[0].about, Doubted::Durations);
        // a single kernel that starts before its launch is no proof of damage
        let Misplaced { found, doubts, .. } = judged(1, |_| early(1));
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
        let placed = |number: usize| GpuWork {
            stream: number % 2,
            start_ns: 10_000 * (number % 20) as i64,
            end_ns: 10_000 * (number % 20) as i64 + 5000,
            launch: None,
            correlation: correlation(0, 1 + (number % 20) as i64),
            identity: (1, (number % 20) as i64),
        };
        let Misplaced { found, doubts, .. } = judged(40, placed);
        assert_eq!(found, (20..40).map(|number| (number, AGAIN)).collect::<Vec<_>>());
        assert!(doubts.is_empty());
        // branches of a graph in profiles of whole microseconds: other names or ids
        let other = |number: usize| GpuWork { identity: (number as u32, 7), ..placed(number % 2) };
        assert_eq!(judged(4, other).found, []);
        let next = |number: usize| GpuWork { identity: (1, 7), ..placed(number % 2) };
        assert_eq!(judged(4, next).found, [(2, AGAIN), (3, AGAIN)]);
    }

    /// Nodes 0 and 1 are equal branches of a graph, node 2 follows; times are whole microseconds.
    #[test]
    fn equal_branches_of_a_graph_are_no_second_record() {
        let node = |number: usize, key: (i64, i64)| GpuWork {
            stream: 7,
            start_ns: 100_000 * (number as i64 / 2),
            end_ns: 100_000 * (number as i64 / 2) + 50_000,
            launch: None,
            correlation: Some(key),
            identity: (1, key.1),
        };
        for key in [(0, 5), (1, 5)] {
            assert_eq!(judged(3, |number| node(number, key)).found, []);
            let called = |number: usize| GpuWork { launch: Some((3, -10)), ..node(number, key) };
            assert_eq!(judged(3, called).found, []);
        }
        // the whole graph twice; beside it a graph of another process with the same id
        let twice = |number: usize| match number {
            0..6 => node(number % 3, (0, 5)),
            _ => GpuWork { stream: 8, ..node(number - 6, (1, 5)) },
        };
        let found = judged(9, twice).found;
        assert_eq!(found.len(), 4, "of nodes 0 and 1 three records, of node 2 one: {found:?}");
        assert!(found.iter().all(|(number, why)| *number < 6 && *why == AGAIN));
        // work without an id is no graph
        let single = |number: usize| GpuWork { correlation: None, ..node(number, (0, -1)) };
        assert_eq!(judged(3, single).found, [(1, AGAIN)]);
        assert_eq!([-1, 0, 5].map(|id| correlation(0, id)), [None, None, Some((0, 5))]);
    }

    /// All-reduces that contain their stream's next kernels: few are damage, many a convention.
    #[test]
    fn at_most_three_containers_of_a_stream_are_left_out() {
        let many = |containers: i64, length: i64| {
            let work = move |at: i64| match at % 20 {
                0 if at / 20 < containers => (7, 100 * at, 100 * at + length, None),
                _ => (7, 100 * at, 100 * at + 90, None),
            };
            (0..200).map(work).collect::<Vec<Work>>()
        };
        let of = |list: &[Work]| judged(list.len(), |number| placed(list, number));
        let three = of(&many(3, 300));
        assert_eq!(three.found, [(0, CONTAINS), (20, CONTAINS), (40, CONTAINS)]);
        let four = of(&many(4, 300));
        assert_eq!((four.found.len(), four.doubts.len()), (0, 1));
        assert!(four.doubts[0].sentence.starts_with("4 of 200 kernels and copies of stream 7 contain"));
        // below 2 % of the GPU work
        let mut list = many(4, 300);
        list.push((8, 0, 60_000, None));
        let little = of(&list);
        assert_eq!((little.found.len(), little.doubts.len()), (0, 0));
        assert!(little.remarks[0].starts_with("4 of 200 kernels"), "{little:?}");
    }

    #[test]
    fn kernels_that_share_a_correlation_id_are_one_graph() {
        let branch = |number: usize, id: i64| GpuWork {
            correlation: correlation(0, id),
            ..placed(
                &[(7, 10, 500, None), (7, 20, 90, None), (7, 100, 200, None), (7, 600, 700, None)],
                number,
            )
        };
        assert_eq!(judged(4, |number| branch(number, 77)).found, []);
        for none in [0, -1] {
            assert_eq!(judged(4, |number| branch(number, none)).found, [(0, CONTAINS)]);
        }
    }

    #[test]
    fn work_that_outlasts_everything_else_is_left_out() {
        let mut list: Vec<_> = (0..20).map(|at| (7, 100 * at, 100 * at + 90, None)).collect();
        list.push((7, 2_000, 3_600_000_000, None));
        list.push((8, 1_000, 20_000_000, None));
        assert_eq!(found(&list), [(20, ENDLESS), (21, ENDLESS)]);
        // a long all-reduce or a kernel that runs a whole model
        for end in [6_000, 27_000, 9_000_000] {
            list.truncate(20);
            list.push((7, 2_000, end, None));
            assert_eq!(found(&list), [], "{end}");
        }
        // the host waited for it
        list.push((8, 2_000, 60_000_000, None));
        assert_eq!(found(&list), [(21, ENDLESS)]);
        let mut host = Extremes::default();
        host.add((0, 60_010_000_000));
        let waited = misplaced(list.len(), |at| placed(&list, at), || host, |_| String::new());
        assert_eq!(waited.found, []);
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
