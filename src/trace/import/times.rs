//! Detection of impossible times: events that contradict their own clock, stream or launch.
//!
//! Profilers write a start of 0 for work whose record they lost, ends before starts, and durations of
//! years. One such event falsifies every sum. Importers check each file here: [`Clock`] compares times
//! with those of the file's other events, [`misplaced`] compares GPU work with its own stream and
//! launch, and [`LeftOut`] counts and names the dropped events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rayon::prelude::*;

use crate::{Doubt, Doubted};

/// Maximum gap in a recording and maximum duration of an event (ns).
const DAY: i64 = 24 * 3600 * 1_000_000_000;
/// A start of exactly 0 is a missing time if all other times are at least this far from 0 (ns).
const FAR_FROM_ZERO: i64 = 10_000_000_000;
/// Overlap of neighbours on a stream that programmatic launches and rounding explain (ns).
const NORMAL_OVERLAP: i64 = 20_000;
/// Maximum skew between host and device clocks (ns). A start that precedes its launch by more is wrong.
const NORMAL_SKEW: i64 = 100_000;
/// Distance, in lengths of the recording, beyond which a few stray events are assumed to have another
/// time unit.
const STRAY_LENGTHS: i64 = 1000;
/// Maximum number of stray events in a file, and minimum number of other events for each of them.
const MOST_STRAYS: usize = 3;
const EVENTS_A_STRAY: usize = 10;
/// Minimum and maximum time (ns) by which work may outlast everything else in a recording; in between,
/// [`OUTLASTS`] times the length of everything else.
const OUTLASTING: (i64, i64) = (10_000_000, 60_000_000_000);
const OUTLASTS: i64 = 10;
/// Minimum number of other events to judge work that outlasts them.
const MOST_SHORT: usize = 10;
/// Maximum plausible queueing time of work that also starts after everything else (ns).
const LONGEST_QUEUED: i64 = 1_000_000_000;
const MOST_NAMED: usize = 3;

/// Reasons found here; importers have more of their own.
pub(super) const NO_TIME: &str = "without a time";
pub(super) const FAR: &str = "more than a day away from the other events";
pub(super) const STRAY: &str = "over 1000 times the length of the recording away from the other events";
pub(super) const LATE: &str = "starting long after its launch and everything else";
pub(super) const LONG: &str = "lasting longer than a day";
pub(super) const CONTAINS: &str = "containing later work of its stream";
pub(super) const EARLY: &str = "starting long before its launch";
pub(super) const AGAIN: &str = "recorded a second time";
pub(super) const ENDLESS: &str = "ending long after everything else";

/// First start and last end of a set of events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extremes {
    first: i64,
    last: i64,
    /// True if an event starts at exactly 0.
    zero: bool,
}

impl Default for Extremes {
    fn default() -> Self {
        Self { first: i64::MAX, last: i64::MIN, zero: false }
    }
}

impl Extremes {
    #[inline]
    pub(super) fn add(&mut self, (start, end): (i64, i64)) {
        (self.first, self.last) = (self.first.min(start), self.last.max(end));
        self.zero |= start == 0;
    }

    pub(super) fn absorb(&mut self, other: Self) {
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
        self.zero |= other.zero;
    }

    /// True if no time of these events, or of a subset, can be impossible.
    pub(super) fn are_plausible(&self) -> bool {
        self.first > self.last || self.extent() <= FAR_FROM_ZERO
    }

    /// Time between the extremes (ns).
    fn extent(&self) -> i64 {
        self.last.checked_sub(self.first).unwrap_or(i64::MAX)
    }
}

/// Time ranges that contain a file's events.
#[derive(Debug)]
pub(super) struct Clock {
    /// First and last start of each range; empty if every time is plausible.
    stretches: Vec<(i64, i64)>,
    /// Maximum distance of a start from its range (ns).
    reach: i64,
    /// True if 0 is a valid time.
    zero: bool,
}

impl Clock {
    /// Analyses the start and end of all events of a file. Takes one pass if nothing is implausible.
    pub(super) fn of(times: impl Iterator<Item = (i64, i64)> + Clone) -> Self {
        let mut extremes = Extremes::default();
        times.clone().for_each(|times| extremes.add(times));
        let all = Self { stretches: Vec::new(), reach: DAY, zero: true };
        if extremes.are_plausible() {
            return all;
        }
        let extent = extremes.extent();
        if extent <= DAY
            && let Some(recording) = without_strays(times.clone(), (extremes.first, extent))
        {
            let reach = (recording.1 - recording.0).saturating_mul(STRAY_LENGTHS).max(FAR_FROM_ZERO);
            let zero = recording.0 <= reach && recording.1 >= -reach;
            return Self { stretches: vec![recording], reach, zero };
        }
        if extent <= DAY && !extremes.zero {
            return all;
        }
        let mut starts: Vec<i64> = times.map(|(start, _)| start).filter(|start| *start != 0).collect();
        starts.par_sort_unstable();
        let gap = |a: &i64, b: &i64| b.checked_sub(*a).is_some_and(|gap| gap <= DAY);
        let stretches: Vec<&[i64]> = starts.chunk_by(gap).collect();
        let most = stretches.iter().map(|stretch| stretch.len()).max().unwrap_or(0);
        // keep recordings of two machines that are far apart, but no small outlying groups
        let kept = stretches.into_iter().filter(|stretch| 2 * stretch.len() > most);
        let stretches: Vec<(i64, i64)> =
            kept.map(|stretch| (stretch[0], stretch[stretch.len() - 1])).collect();
        let near = stretches.iter().any(|(from, to)| {
            let far = FAR_FROM_ZERO.max(to.saturating_sub(*from).saturating_mul(10));
            *from <= far && *to >= -far
        });
        Self { zero: near || stretches.is_empty(), stretches, reach: DAY }
    }

    pub(super) fn accepts_all(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Reason why a time is impossible; `None` for a plausible one.
    #[inline]
    pub(super) fn fault(&self, (start, end): (i64, i64)) -> Option<&'static str> {
        if self.stretches.is_empty() {
            return None;
        }
        let within = |(from, to): &(i64, i64)| {
            start >= from.saturating_sub(self.reach) && start <= to.saturating_add(self.reach)
        };
        if start == 0 && !self.zero {
            Some(NO_TIME)
        } else if !self.stretches.iter().any(within) {
            Some(if self.reach < DAY { STRAY } else { FAR })
        } else if end.saturating_sub(start) > DAY {
            Some(LONG)
        } else {
            None
        }
    }
}

/// First and last start of a recording, if a few events start [`STRAY_LENGTHS`] lengths away from it.
/// The first pass builds a histogram of starts; the second runs only if nearly all are in one part.
fn without_strays(
    times: impl Iterator<Item = (i64, i64)> + Clone,
    (first, extent): (i64, i64),
) -> Option<(i64, i64)> {
    const PARTS: i64 = 2 * STRAY_LENGTHS;
    let width = extent / PARTS + 1;
    let mut counts = [0usize; PARTS as usize + 1];
    // a start may be after every end
    let part = |start: i64| (start.saturating_sub(first) / width).min(PARTS) as usize;
    times.clone().for_each(|(start, _)| counts[part(start)] += 1);
    let all: usize = counts.iter().sum();
    // the recording may cross the border of two parts
    let (at, most) = counts.windows(2).map(|two| two[0] + two[1]).enumerate().max_by_key(|(_, n)| *n)?;
    let strays = all - most;
    if strays == 0 || strays > MOST_STRAYS || most < EVENTS_A_STRAY * strays {
        return None;
    }
    let from = first + at as i64 * width;
    let inside = times.map(|(start, _)| start).filter(|start| (from..from + 2 * width).contains(start));
    let (start, end) = inside.fold((i64::MAX, i64::MIN), |(a, b), start| (a.min(start), b.max(start)));
    (start <= end).then_some((start, end))
}

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
        if others >= MOST_SHORT && is_few(endless.len(), others) {
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

#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    named: BTreeMap<(&'static str, &'static str), Named>,
    doubts: BTreeSet<Doubt>,
}

#[derive(Clone, Debug, Default)]
struct Named {
    count: u64,
    /// Sort key (file offset or time), and description of the event.
    first: Vec<(i64, String)>,
}

impl LeftOut {
    /// Counts an event. Keeps the descriptions of the events with the smallest `order`.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        why: &'static str,
        order: i64,
        name: impl FnOnce() -> String,
    ) {
        let named = self.named.entry((what, why)).or_default();
        named.count += 1;
        if named.first.len() < MOST_NAMED || named.first.last().is_some_and(|(last, _)| order < *last) {
            named.insert(order, name());
        }
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.doubts.extend(other.doubts);
        for (key, more) in other.named {
            let named = self.named.entry(key).or_default();
            named.count += more.count;
            more.first.into_iter().for_each(|(order, name)| named.insert(order, name));
        }
    }

    /// Number of dropped events by phrase: `kernel without a time`.
    pub(super) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        self.named.iter().map(|((what, why), named)| (format!("{what} {why}"), named.count))
    }

    /// Adds findings on doubtful events that were kept.
    pub(super) fn doubt(&mut self, doubts: impl IntoIterator<Item = Doubt>) {
        self.doubts.extend(doubts);
    }

    /// One sentence per reason: `3 kernels without a time ignored: gemm at 0 us, ...`; then those on doubtful events.
    pub(super) fn sentences(&self) -> impl Iterator<Item = String> {
        let left_out = self.named.iter().map(|((what, why), named)| {
            let names: Vec<&str> = named.first.iter().map(|(_, name)| name.as_str()).collect();
            let plural = match (named.count, *what) {
                (1, what) => what.to_owned(),
                (_, "memcpy" | "memset") => format!("{what} events"),
                (_, "launch" | "graph launch") => format!("{what}es"),
                (_, what) => format!("{what}s"),
            };
            let more = named.count - names.len() as u64;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} {plural} {why} ignored: {}{more}", named.count, names.join(", "))
        });
        left_out.chain(self.doubts.iter().map(|doubt| doubt.sentence.clone()))
    }

    pub(super) fn doubts(&self) -> impl Iterator<Item = Doubt> {
        self.doubts.iter().cloned()
    }
}

impl Named {
    fn insert(&mut self, order: i64, name: String) {
        let at = self.first.partition_point(|(other, _)| *other <= order);
        self.first.insert(at, (order, name));
        self.first.truncate(MOST_NAMED);
    }
}

pub(super) fn described(name: &str, start_ns: i64, end_ns: i64) -> String {
    let us = |ns: i128| {
        let text = format!("{}.{:03}", ns / 1000, (ns % 1000).abs());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let length = i128::from(end_ns) - i128::from(start_ns);
    let name = base::text::fitting_name(name, 60);
    format!("{name} at {} us for {} us", us(start_ns.into()), us(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_2021: i64 = 1_615_207_264_505_000_000;

    fn faults(times: &[(i64, i64)]) -> Vec<Option<&'static str>> {
        let clock = Clock::of(times.iter().copied());
        times.iter().map(|time| clock.fault(*time)).collect()
    }

    #[test]
    fn starts_of_zero_are_no_times_among_real_ones() {
        let real = (YEAR_2021, YEAR_2021 + 1000);
        assert_eq!(faults(&[real, (0, 0), (0, 5), real]), [None, Some(NO_TIME), Some(NO_TIME), None]);
        // a majority without times is still without times
        assert_eq!(faults(&[(0, 0), (0, 0), (0, 0), real])[3], None);
        // seconds since the machine started
        let uptime = (5_000_000_000_000, 5_000_000_001_000);
        assert_eq!(faults(&[uptime, (0, 9), uptime]), [None, Some(NO_TIME), None]);
    }

    #[test]
    fn clocks_that_begin_at_zero_are_plausible() {
        assert_eq!(faults(&[(0, 100), (1_000, 2_000), (3_000_000_000, 3_000_000_001)]), [None; 3]);
        assert_eq!(faults(&[(0, 0)]), [None]);
        assert_eq!(faults(&[]), []);
        assert_eq!(faults(&[(0, 10), (-500, 20), (0, 3)]), [None; 3]);
        // 30 s of loading before a minute of work
        assert_eq!(
            faults(&[(0, 9), (30_000_000_000, 90_000_000_000), (90_000_000_000, 90_000_000_001)]),
            [None; 3]
        );
    }

    #[test]
    fn strays_and_endless_events_are_found_whatever_the_unit() {
        let real = |at: i64| (YEAR_2021 + at, YEAR_2021 + at + 10);
        let times = [
            real(0),
            real(100),
            (YEAR_2021 / 1000, YEAR_2021 / 1000 + 10), // milliseconds taken for microseconds
            real(200),
            (YEAR_2021 + 300, i64::MAX),
            real(400),
            (i64::MIN, YEAR_2021),
            (1_000_000, 1_000_010), // 1970
        ];
        assert_eq!(
            faults(&times),
            [None, None, Some(FAR), None, Some(LONG), None, Some(FAR), Some(FAR)]
        );
    }

    #[test]
    fn a_time_in_another_unit_is_found_within_a_day() {
        // an hour after the machine started, 20 events within 2 ms; one has milliseconds for microseconds
        let hour = 3_600_000_000_000;
        let mut times: Vec<(i64, i64)> =
            (0..20).map(|at| (hour + 100_000 * at, hour + 100_000 * at + 9)).collect();
        times.insert(7, (hour / 1000, hour / 1000 + 9));
        let found = faults(&times);
        assert_eq!((found[7], found.iter().flatten().count()), (Some(STRAY), 1));
        // the same of times that count from 0: one is a thousand times too late
        let mut times: Vec<(i64, i64)> =
            (0..20).map(|at| (1_000_000 * at, 1_000_000 * at + 9)).collect();
        times.push((19_000_000_000, 19_000_000_009));
        assert_eq!(faults(&times)[20], None, "1000 times the recording, and no further");
        times[20].0 = 25_000_000_000;
        assert_eq!(faults(&times)[20], Some(STRAY));
        // a second of work after a minute of loading that left three events
        let mut times: Vec<(i64, i64)> =
            (0..50).map(|at| (60_000_000_000 + 20_000_000 * at, 0)).collect();
        times.extend([(0, 9), (10, 19), (20, 29)]);
        assert_eq!(faults(&times), vec![None; 53]);
        // four events of their own are a recording
        let mut times: Vec<(i64, i64)> =
            (0..90).map(|at| (hour + 100 * at, hour + 100 * at + 9)).collect();
        times.extend((0..4).map(|at| (at, at + 1)));
        assert_eq!(faults(&times), vec![None; 94]);
    }

    #[test]
    fn two_recordings_of_equal_size_stay() {
        let times = [(10, 20), (30, 40), (YEAR_2021, YEAR_2021 + 5), (YEAR_2021 + 9, YEAR_2021 + 10)];
        assert_eq!(faults(&times), [None; 4]);
    }

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

    /// Half of a stream without times: too many for a rule of few, and still no times.
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

    #[test]
    fn the_first_three_are_named() {
        let mut left = LeftOut::default();
        for at in (0..5).rev() {
            left.add("kernel", NO_TIME, at, || described("gemm", at, at + 1500));
        }
        let mut other = LeftOut::default();
        other.add("memcpy", LONG, 0, || "copy".into());
        left.absorb(other);
        let sentences: Vec<_> = left.sentences().collect();
        assert_eq!(
            sentences,
            [
                "5 kernels without a time ignored: gemm at 0 us for 1.5 us, gemm at 0.001 us for 1.5 us, gemm at \
                 0.002 us for 1.5 us and 2 more",
                "1 memcpy lasting longer than a day ignored: copy",
            ]
        );
        assert_eq!(left.counts().map(|(_, count)| count).sum::<u64>(), 6);
    }
}
