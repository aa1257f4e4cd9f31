//! Counts and names of the events that an import leaves out, and its doubts about those that it keeps. Events are left
//! out whose times contradict the clock of the file: starts of 0, times far from all others, endless events.
//!
//! Profilers write a start of 0 for work whose record they lost, and durations of years. One such event
//! falsifies every sum.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::misplaced::AGAIN;
use crate::{Doubt, Doubted, IgnoredKernel};
use base::text::{file_name, fitting_name};

/// Maximum number of events that are named for each reason.
const MOST_NAMED: usize = 3;

/// Maximum number of names of kernels that are counted.
const MOST_KERNELS: usize = 1000;

#[derive(Clone, Debug, Default)]
pub(super) struct LeftOutEvents {
    named: BTreeMap<(&'static str, &'static str), Named>,
    /// Number of events by kernel, without second records.
    kernels: BTreeMap<String, u64>,
    doubts: BTreeSet<Doubt>,
    remarks: BTreeSet<String>,
}

/// Name of an event, and its time in words.
pub(super) struct EventDescription {
    pub(super) name: String,
    pub(super) time: String,
}

#[derive(Clone, Debug, Default)]
struct Named {
    count: u64,
    /// Sort key (file offset or time), and description of the event.
    first: Vec<(i64, String)>,
}

impl LeftOutEvents {
    /// Counts an event. Keeps the descriptions of the events with the smallest `order`.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        why: &'static str,
        order: i64,
        describe: impl FnOnce() -> EventDescription,
    ) {
        let EventDescription { name, time } = describe();
        let named = self.named.entry((what, why)).or_default();
        named.count += 1;
        if named.first.len() < MOST_NAMED || named.first.last().is_some_and(|(last, _)| order < *last) {
            named.insert(order, format!("{} {time}", fitting_name(&name, 60)));
        }
        if what == "kernel" && why != AGAIN {
            self.count_kernel(name, 1);
        }
    }

    fn count_kernel(&mut self, name: String, count: u64) {
        if self.kernels.len() < MOST_KERNELS || self.kernels.contains_key(&name) {
            *self.kernels.entry(name).or_default() += count;
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.doubts.extend(other.doubts);
        self.remarks.extend(other.remarks);
        other.kernels.into_iter().for_each(|(name, count)| self.count_kernel(name, count));
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

    /// Adds warnings about events that were kept and change no result.
    pub(super) fn remark(&mut self, remarks: impl IntoIterator<Item = String>) {
        self.remarks.extend(remarks);
    }

    /// One sentence per reason: `3 kernels without a time ignored: gemm at 0 us, ...`; then those on kept events.
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
        let kept = self.doubts.iter().map(|doubt| &doubt.sentence).chain(&self.remarks);
        left_out.chain(kept.cloned())
    }

    pub(super) fn doubts_launches(&self) -> bool {
        self.doubts.iter().any(|doubt| doubt.about == Doubted::Launches)
    }

    /// Doubts about the file at this path.
    pub(super) fn doubts(&self, path: &str) -> impl Iterator<Item = Doubt> {
        let file = file_name(path);
        let named = move |Doubt { about, sentence }: Doubt| Doubt {
            about,
            sentence: format!("{file}: {sentence}"),
        };
        self.doubts.iter().cloned().map(named)
    }

    pub(super) fn kernels(&self) -> impl Iterator<Item = IgnoredKernel> {
        let kernel = |(name, count): (&String, &u64)| IgnoredKernel {
            name: name.clone(),
            count: *count,
            is_communication: false,
        };
        self.kernels.iter().map(kernel)
    }
}

impl Named {
    fn insert(&mut self, order: i64, name: String) {
        let at = self.first.partition_point(|(other, _)| *other <= order);
        self.first.insert(at, (order, name));
        self.first.truncate(MOST_NAMED);
    }
}

pub(super) fn described(name: &str, start_ns: i64, end_ns: i64) -> EventDescription {
    let us = |ns: i128| {
        let text = format!("{}.{:03}", ns / 1000, (ns % 1000).abs());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let length = i128::from(end_ns) - i128::from(start_ns);
    let time = format!("at {} us for {} us", us(start_ns.into()), us(length));
    EventDescription { name: name.to_owned(), time }
}

/// Maximum gap in a recording and maximum duration of an event (ns).
const DAY: i64 = 24 * 3600 * 1_000_000_000;
/// A start of exactly 0 is a missing time if all other times are at least this far from 0 (ns).
const FAR_FROM_ZERO: i64 = 10_000_000_000;
/// Minimum distance of a stray event, in lengths of the recording.
const STRAY_LENGTHS: i64 = 1000;
/// Ratios of time units that profilers confuse.
const UNITS: [i64; 2] = [1000, 1_000_000];
/// Finest time unit that is cut when a time is written in a coarser one (ns).
const FINEST_UNIT: i64 = 1000;
/// Maximum number of stray events in a file, and minimum number of other events for each of them.
const MOST_STRAYS: usize = 3;
const EVENTS_A_STRAY: usize = 10;

pub(super) const NO_TIME: &str = "without a time";
const FAR: &str = "more than a day away from the other events";
const STRAY: &str = "in another time unit than the other events";
const LONG: &str = "lasting longer than a day";

/// First start and last end of a set of events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extremes {
    pub(super) first: i64,
    pub(super) last: i64,
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

    pub(super) fn merge(&mut self, other: Self) {
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
        self.zero |= other.zero;
    }

    /// True if no time of these events, or of a subset, can be impossible.
    pub(super) fn are_plausible(&self) -> bool {
        self.first > self.last || self.extent() <= FAR_FROM_ZERO
    }

    /// Time between the extremes (ns).
    pub(super) fn extent(&self) -> i64 {
        self.last.checked_sub(self.first).unwrap_or(i64::MAX)
    }
}

/// Time ranges that contain a file's events.
#[derive(Debug)]
pub(super) struct TimeRanges {
    /// First and last start of each range; empty if every time is plausible.
    stretches: Vec<(i64, i64)>,
    /// Maximum distance of a start from its range (ns).
    reach: i64,
    /// True if only times in another unit are impossible outside of the range.
    is_by_unit: bool,
    /// True if 0 is a valid time.
    zero: bool,
}

impl TimeRanges {
    /// Analyses the start and end of all events of a file. Takes one pass if nothing is implausible.
    pub(super) fn from_times(times: impl Iterator<Item = (i64, i64)> + Clone) -> Self {
        let mut extremes = Extremes::default();
        times.clone().for_each(|times| extremes.add(times));
        let all = Self { stretches: Vec::new(), reach: DAY, is_by_unit: false, zero: true };
        if extremes.are_plausible() {
            return all;
        }
        let extent = extremes.extent();
        if extent <= DAY
            && let Some(recording) = without_strays(times.clone(), (extremes.first, extent))
        {
            let reach = (recording.1 - recording.0).saturating_mul(STRAY_LENGTHS).max(FAR_FROM_ZERO);
            let zero = recording.0 <= reach && recording.1 >= -reach;
            return Self { stretches: vec![recording], reach, is_by_unit: true, zero };
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
        Self { zero: near || stretches.is_empty(), stretches, reach: DAY, is_by_unit: false }
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
            match self.is_by_unit {
                true => self.stretches.iter().any(|of| is_stray((start, end), *of)).then_some(STRAY),
                false => Some(FAR),
            }
        } else if end.saturating_sub(start) > DAY {
            Some(LONG)
        } else {
            None
        }
    }
}

/// True if an event far from the recording gets there in another time unit. A range that encloses the
/// recording may have begun long before it.
fn is_stray((start, end): (i64, i64), (first, last): (i64, i64)) -> bool {
    let length = last.saturating_sub(first);
    let lands = |start: i64, unit: i64| {
        let slack = length.saturating_add(unit * FINEST_UNIT);
        start >= first.saturating_sub(slack) && start <= last.saturating_add(slack)
    };
    let encloses = start <= first && end >= last;
    !encloses
        && UNITS
            .iter()
            .any(|unit| lands(start.saturating_mul(*unit), *unit) || lands(start / unit, *unit))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_are_named() {
        let mut left = LeftOutEvents::default();
        for at in (0..5).rev() {
            left.add("kernel", "without a time", at, || described("gemm", at, at + 1500));
        }
        let mut other = LeftOutEvents::default();
        other.add("memcpy", "lasting longer than a day", 0, || described("copy", 0, i64::MAX));
        other.add("kernel", AGAIN, 0, || described("gemm", 0, 1));
        left.merge(other);
        let sentences: Vec<_> = left.sentences().collect();
        assert_eq!(
            sentences,
            [
                "1 kernel recorded a second time ignored: gemm at 0 us for 0.001 us",
                "5 kernels without a time ignored: gemm at 0 us for 1.5 us, gemm at 0.001 us for 1.5 us, gemm at \
                 0.002 us for 1.5 us and 2 more",
                "1 memcpy lasting longer than a day ignored: copy at 0 us for 9223372036854775.807 us",
            ]
        );
        assert_eq!(left.counts().map(|(_, count)| count).sum::<u64>(), 7);
        let kernels: Vec<_> = left.kernels().map(|kernel| (kernel.name, kernel.count)).collect();
        assert_eq!(kernels, [("gemm".to_owned(), 5)], "a second record is no loss");
    }

    const YEAR_2021: i64 = 1_615_207_264_505_000_000;

    fn faults(times: &[(i64, i64)]) -> Vec<Option<&'static str>> {
        let clock = TimeRanges::from_times(times.iter().copied());
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
        // a minute before the recording, and in the same unit: loading
        let mut times: Vec<(i64, i64)> =
            (0..50).map(|at| (hour + 100_000 * at, hour + 100_000 * at + 9)).collect();
        let before = hour - 60_000_000_000;
        times.push((before, before + 9));
        // a range around the whole recording, whose start in another unit lies in it
        times.push((hour / 1000, hour + 10_000_000));
        assert_eq!(faults(&times), vec![None; 52]);
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
}
