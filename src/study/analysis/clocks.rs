//! Alignment of the clocks of ranks traced by separate profilers, which may also drift.
//!
//! A collective ends on all its ranks within a few hundred nanoseconds (in one node), so the median difference between
//! the ends of the same collectives is the offset of two clocks. Ranks without a common collective are aligned through
//! other ranks.
//!
//! Alignment of the steps of two traces: for `diff`, and for timelines one above the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use super::matched::CollectiveMatching;
use base::statistics::{median, percentile};
use base::text::rank_label;
use plan::Phase;
use trace::overlap::StepKey;
use trace::{NO_STEP, Trace};

/// Clock offsets of the ranks of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clocks {
    /// Offset to add to a rank's times so that collectives end together, by rank (ns).
    pub offsets: HashMap<u32, i64>,
    /// Ranks that no collective connects to the first rank, ascending; their clocks stay unaligned.
    pub untied: Vec<u32>,
    /// Largest number of collectives that align a rank with another.
    pub collectives: usize,
    /// 90th percentile of the distance between ends after alignment (ns).
    pub apart_ns: i64,
    /// Median of that distance (ns).
    pub typically_apart_ns: i64,
    /// The same for each rank that is not the first of its collectives.
    pub(super) typically_apart_by_rank: BTreeMap<u32, i64>,
}

/// Aligns the ranks of an imported trace that comes from several files. Own traces and single files have one clock and
/// need no offsets. Ranks without matched collectives keep their times.
pub fn clocks(trace: &Trace) -> Clocks {
    if has_one_clock(trace) {
        return Clocks::default();
    }
    Clocks::new(trace, &CollectiveMatching::from_trace(trace))
}

/// Moves all ranks to the clock of the first, as far as collectives connect them, so that equal times mean the same
/// moment, unless one clock timed all ranks. Gives steps with common collectives one number on all ranks.
pub fn tie_clocks(trace: &mut Trace) {
    if trace.meta.import.is_none() || trace.meta.ranks < 2 {
        return;
    }
    let mut matching = CollectiveMatching::candidates(trace);
    let drifts = drifts(trace, &matching);
    if drifts.is_empty() {
        matching.drop_contradicted(trace);
    } else {
        remove_drifts(trace, &drifts);
        matching = CollectiveMatching::from_trace(trace);
    }
    let clocks = Clocks::new(trace, &matching);
    matching.renumber_steps(trace);
    if clocks.offsets.values().all(|offset| *offset == 0) {
        return;
    }
    let starts = trace.spans.iter().map(|span| span.start_ns.saturating_add(clocks.offset(span.rank)));
    // times stay positive: -1 means unknown
    let lift = starts.min().map_or(0, |first| first.saturating_neg().max(0));
    let mut offset =
        vec![lift; trace.spans.iter().map(|span| span.rank as usize + 1).max().unwrap_or(0)];
    for (rank, of_rank) in offset.iter_mut().enumerate() {
        *of_rank = of_rank.saturating_add(clocks.offset(rank as u32));
    }
    change_times(trace, |time, rank| {
        time.saturating_add(offset.get(rank as usize).copied().unwrap_or(lift))
    });
}

/// Changes all known times of a trace; `change` gets a time and its rank.
fn change_times(trace: &mut Trace, change: impl Fn(i64, u32) -> i64) {
    for span in &mut trace.spans {
        for time in [&mut span.ready_ns, &mut span.start_ns, &mut span.end_ns] {
            *time = change(*time, span.rank);
        }
        if span.last_arrival_ns >= 0 {
            span.last_arrival_ns = change(span.last_arrival_ns, span.rank);
        }
    }
    let host = &mut Arc::make_mut(&mut trace.meta.host).events;
    for range in trace.ranges.iter_mut().chain(host) {
        range.start_ns = change(range.start_ns, range.rank);
        range.end_ns = change(range.end_ns, range.rank);
    }
}

/// Drift of a rank's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drift {
    /// Time of the rank's clock at which nothing is added (ns).
    from_ns: i64,
    /// Time to add in a second (ns).
    per_s: f64,
}

/// Largest drift between two clocks (ns in a second): oscillators are off by up to 50 ppm each, with a margin.
const LARGEST_DRIFT: f64 = 120_000.0;

/// Drifts against the first rank of each set that collectives connect. Ranks whose clocks hardly drift have none.
fn drifts(trace: &Trace, matching: &CollectiveMatching) -> BTreeMap<u32, Drift> {
    if has_one_clock(trace) {
        return BTreeMap::new();
    }
    let mut starts: BTreeMap<u32, i64> = BTreeMap::new();
    let edge = |(pair, ends): ((u32, u32), Vec<(i64, f64)>)| -> Option<RankEdge> {
        let (time, difference) = *ends.first()?;
        starts.entry(pair.0).or_insert(time.saturating_add(difference as i64));
        starts.entry(pair.1).or_insert(time);
        Some((pair, ends.len(), slope(&ends)?.round() as i64))
    };
    let edges: Vec<RankEdge> = ends_of_pairs(trace, matching).into_iter().filter_map(edge).collect();
    if edges.iter().all(|(_, _, per_s)| *per_s == 0) {
        return BTreeMap::new();
    }
    let of_rank = |(rank, (_, per_s)): (u32, (u32, i64))| {
        let from_ns = *starts.get(&rank)?;
        (per_s != 0).then_some((rank, Drift { from_ns, per_s: per_s as f64 }))
    };
    offsets(edges).into_iter().filter_map(of_rank).collect()
}

/// Ends of collectives on two ranks, the first of the collective and another one: time on the other, and the difference of
/// the first one's (ns).
fn ends_of_pairs(trace: &Trace, matching: &CollectiveMatching) -> BTreeMap<(u32, u32), Vec<(i64, f64)>> {
    let mut pairs: BTreeMap<(u32, u32), Vec<(i64, f64)>> = BTreeMap::new();
    for collective in matching.collectives() {
        let mut spans = collective.places.iter().map(|place| &trace.spans[*place]);
        let Some(first) = spans.next() else { continue };
        for other in spans {
            let difference = first.end_ns.saturating_sub(other.end_ns) as f64;
            pairs.entry((first.rank, other.rank)).or_default().push((other.end_ns, difference));
        }
    }
    pairs
}

/// Slope (ns in a second) of differences of ends over time, as the median of that of all pairs; 0 unless it explains most
/// of their change. `None` if it is no clock's.
fn slope(ends: &[(i64, f64)]) -> Option<f64> {
    /// Maximum number of compared ends.
    const COMPARED: usize = 64;
    /// Minimum number of ends, of which half may be late without moving the medians. Chosen, not measured.
    const LEAST: usize = 8;
    /// Minimum typical distance of ends from one offset (ns): separates drift from the few hundred ns between the ends of
    /// one collective. Chosen above these.
    const LEAST_APART: f64 = 1_000.0;
    /// Factor by which ends must be closer to a line than to one offset: separates drift, which leaves the distance of
    /// single ends, from scatter, which a line explains as little as an offset. Chosen, not measured.
    const CLOSER: f64 = 4.0;
    let apart = |per_s: f64| {
        let rest: Vec<f64> =
            ends.iter().map(|(time, apart)| apart - per_s * seconds(ends[0].0, *time)).collect();
        let middle = median(&rest)?;
        median(&rest.iter().map(|one| (one - middle).abs()).collect::<Vec<_>>())
    };
    let constant = apart(0.0)?;
    if ends.len() < LEAST || constant < LEAST_APART {
        return Some(0.0);
    }
    let compared: Vec<(i64, f64)> =
        ends.iter().step_by(ends.len().div_ceil(COMPARED)).copied().collect();
    let later = |at: usize| compared[at + 1..].iter().map(move |later| (at, later));
    let slopes = (0..compared.len()).flat_map(later).filter_map(|(at, later)| {
        let (time, apart) = compared[at];
        (later.0 > time).then(|| (later.1 - apart) / seconds(time, later.0))
    });
    let per_s = median(&slopes.collect::<Vec<_>>())?;
    let is_line = CLOSER * apart(per_s)? <= constant;
    (per_s.abs() <= LARGEST_DRIFT).then_some(if is_line { per_s } else { 0.0 })
}

fn seconds(from_ns: i64, to_ns: i64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// Moves the times of ranks as if their clocks had not drifted, and reports it.
fn remove_drifts(trace: &mut Trace, drifts: &BTreeMap<u32, Drift>) {
    change_times(trace, |time, rank| match drifts.get(&rank) {
        Some(Drift { from_ns, per_s }) => {
            time.saturating_add((per_s * seconds(*from_ns, time)).round() as i64)
        }
        None => time,
    });
    if let Some(import) = &mut trace.meta.import {
        let most = drifts.values().map(|drift| drift.per_s.abs()).fold(0.0, f64::max);
        let ranks: Vec<u32> = drifts.keys().copied().collect();
        import.warnings.push(format!(
            "clocks of {} drift by up to {:.1} ppm; corrected at the ends of matched collectives",
            rank_label(&ranks),
            most / 1e3
        ));
    }
}

/// Warning about times compared across unaligned clocks; `None` if all ranks have one clock.
pub fn untied_clocks(trace: &Trace) -> Option<String> {
    let untied = clocks(trace).untied;
    (!untied.is_empty()).then(|| {
        format!(
            "no matched collectives tie the clocks of {} to rank {}'s: --from and --to cut each by its own clock",
            rank_label(&untied),
            trace.spans.iter().map(|span| span.rank).min().unwrap_or(0)
        )
    })
}

/// True if one clock timed all ranks: own traces, the output of one profiler, and exports of these.
fn has_one_clock(trace: &Trace) -> bool {
    trace
        .meta
        .import
        .as_ref()
        .is_none_or(|import| import.clocks.map_or(import.files.len(), |clocks| clocks as usize) < 2)
}

/// True if equal times of two ranks are about the same moment: one clock timed them, or their files count from one moment.
pub(super) fn clocks_agree(trace: &Trace) -> bool {
    has_one_clock(trace) || trace.meta.import.as_ref().is_some_and(|import| import.wall_clock)
}

/// Two ranks, the number of collectives that they share, and what to add to the second to get to the first.
pub(super) type RankEdge = ((u32, u32), usize, i64);

/// First rank of the connected set of each rank, and what to add to the rank to get to it. Follows the edges with the
/// most collectives.
pub(super) fn offsets(mut edges: Vec<RankEdge>) -> BTreeMap<u32, (u32, i64)> {
    edges.sort_by_key(|(pair, count, _)| (Reverse(*count), *pair));
    let mut of_rank: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, ((a, b), ..)) in edges.iter().enumerate() {
        of_rank.entry(*a).or_default().push(at);
        of_rank.entry(*b).or_default().push(at);
    }
    let mut found: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
    // edges with an aligned end
    let mut open: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
    for (start, of_start) in &of_rank {
        if found.contains_key(start) {
            continue;
        }
        found.insert(*start, (*start, 0));
        open.extend(of_start.iter().copied().map(Reverse));
        while let Some(Reverse(at)) = open.pop() {
            let ((a, b), _, offset) = edges[at];
            let (rank, own) = match (found.get(&a), found.get(&b)) {
                (Some((_, known)), None) => (b, known.saturating_add(offset)),
                (None, Some((_, known))) => (a, known.saturating_sub(offset)),
                _ => continue,
            };
            found.insert(rank, (*start, own));
            open.extend(of_rank[&rank].iter().copied().map(Reverse));
        }
    }
    found
}

impl Clocks {
    pub fn new(trace: &Trace, matching: &CollectiveMatching) -> Self {
        if has_one_clock(trace) {
            return Self::default();
        }
        let differences = |ends: Vec<(i64, f64)>| ends.into_iter().map(|(_, apart)| apart).collect();
        let pairs: BTreeMap<(u32, u32), Vec<f64>> = ends_of_pairs(trace, matching)
            .into_iter()
            .map(|(pair, ends)| (pair, differences(ends)))
            .collect();
        let edge = |(pair, differences): (&(u32, u32), &Vec<f64>)| -> Option<RankEdge> {
            // rounds halves up, so that aligning again gives 0
            Some((*pair, differences.len(), (median(differences)? + 0.5).floor() as i64))
        };
        let edges: Vec<RankEdge> = pairs.iter().filter_map(edge).collect();
        let mut clocks = Self {
            collectives: edges.iter().map(|(_, count, _)| *count).max().unwrap_or(0),
            ..Self::default()
        };
        let found = offsets(edges);
        clocks.offsets = found.iter().map(|(rank, (_, offset))| (*rank, *offset)).collect();
        let ranks: BTreeSet<u32> =
            trace.spans.chunk_by(|a, b| a.rank == b.rank).map(|of_rank| of_rank[0].rank).collect();
        let first = ranks.first().copied();
        let is_tied = |rank: &u32| found.get(rank).map(|(start, _)| *start) == first;
        clocks.untied =
            ranks.iter().copied().filter(|rank| Some(*rank) != first && !is_tied(rank)).collect();
        let offset = |rank: &u32| clocks.offsets.get(rank).copied().unwrap_or(0);
        let mut by_rank: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for ((a, b), differences) in &pairs {
            let tied = offset(b).saturating_sub(offset(a)) as f64;
            let apart = differences.iter().map(|difference| (difference - tied).abs());
            by_rank.entry(*b).or_default().extend(apart);
        }
        let apart: Vec<f64> = by_rank.values().flatten().copied().collect();
        let rounded = |ns: Option<f64>| ns.map_or(0, |ns| ns.round() as i64);
        let typically = |(rank, apart): (&u32, &Vec<f64>)| (*rank, rounded(median(apart)));
        clocks.typically_apart_by_rank = by_rank.iter().map(typically).collect();
        clocks.apart_ns = rounded(percentile(&apart, 90.0));
        clocks.typically_apart_ns = rounded(median(&apart));
        clocks
    }

    /// Offset to add to the times of a rank (ns).
    pub fn offset(&self, rank: u32) -> i64 {
        self.offsets.get(&rank).copied().unwrap_or(0)
    }
}

/// Steps of two traces that do the same work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepAlignment {
    /// Indices into the two lists of steps, in order of the first.
    pub pairs: Vec<(usize, usize)>,
    /// True if steps are paired by their order because the traces number them differently.
    pub by_order: bool,
}

impl StepAlignment {
    /// Pairs steps of the same kind of work (phase, batch): those of one number (preferably of one sample) if the traces
    /// share at least half of the numbers of the shorter one, else in order.
    pub fn new<K: Clone + Ord>(a: &[(StepKey, K)], b: &[(StepKey, K)]) -> Self {
        let mut numbers: BTreeMap<(u32, &K), Vec<usize>> = BTreeMap::new();
        for (at, (key, kind)) in b.iter().enumerate().filter(|(_, (key, _))| key.step != NO_STEP) {
            numbers.entry((key.step, kind)).or_default().push(at);
        }
        let like = |(key, kind): &(StepKey, K)| {
            let same = numbers.get(&(key.step, kind))?;
            same.iter().copied().find(|at| b[*at].0.sample == key.sample).or(same.first().copied())
        };
        let numbered = a.iter().enumerate().filter_map(|(at, step)| Some((at, like(step)?)));
        let pairs: Vec<(usize, usize)> = numbered.collect();
        let (of_a, of_b) = (distinct(a), distinct(b));
        let common = of_a.intersection(&of_b).count();
        if !pairs.is_empty() && 2 * common >= of_a.len().min(of_b.len()) {
            return Self { pairs, by_order: false };
        }
        let mut left: BTreeMap<&K, Vec<usize>> = BTreeMap::new();
        for (at, (_, kind)) in b.iter().enumerate().rev() {
            left.entry(kind).or_default().push(at);
        }
        let next = |(at, (_, kind)): (usize, &(StepKey, K))| Some((at, left.get_mut(kind)?.pop()?));
        Self { pairs: a.iter().enumerate().filter_map(next).collect(), by_order: true }
    }

    /// Alignment of steps by their keys alone.
    pub fn of_keys(a: impl Iterator<Item = StepKey>, b: impl Iterator<Item = StepKey>) -> Self {
        let kinds = |key: StepKey| (key, key.phase);
        Self::new(&a.map(kinds).collect::<Vec<_>>(), &b.map(kinds).collect::<Vec<(StepKey, Phase)>>())
    }

    /// Step of the other trace: of the second for a step of the first, and the other way round.
    pub fn partner(&self, of_first: bool, at: usize) -> Option<usize> {
        let mut pairs = self.pairs.iter();
        match of_first {
            true => pairs.find(|pair| pair.0 == at).map(|pair| pair.1),
            false => pairs.find(|pair| pair.1 == at).map(|pair| pair.0),
        }
    }
}

/// Step numbers, by kind of work.
fn distinct<K: Ord>(steps: &[(StepKey, K)]) -> BTreeSet<(u32, &K)> {
    steps.iter().map(|(key, kind)| (key.step, kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
    use trace::overlap::{Selection, overlap};
    use trace::testing::{span, trace};
    use trace::{ImportReport, Range, Span};

    #[test]
    fn clocks_of_several_files_are_tied_by_the_ends_of_collectives() {
        let mut spans = Vec::new();
        for at in 0..9 {
            let end = 10_000 * (at + 1);
            spans.push(span(0, Lane::Comm, end - 5_000, end));
            // its clock is a second ahead, and it sees the ends up to 40 ns later
            let late = 1_000_000_000 + 10 * (at % 5);
            spans.push(span(1, Lane::Comm, end - 2_000 + late, end + late));
        }
        let mut trace = trace(spans);
        assert_eq!(clocks(&trace), Clocks::default(), "our own have one clock");
        let files =
            |count: usize| ImportReport { files: vec![String::new(); count], ..Default::default() };
        trace.meta.import = Some(files(1));
        assert_eq!(clocks(&trace), Clocks::default(), "so has one file");
        trace.meta.import = Some(ImportReport { clocks: Some(2), ..files(1) });
        assert_eq!(clocks(&trace).offsets.len(), 2, "an export of two files");
        trace.meta.import = Some(ImportReport { clocks: Some(1), ..files(2) });
        assert_eq!(clocks(&trace), Clocks::default());
        trace.meta.import = Some(files(2));
        let found = clocks(&trace);
        assert_eq!((found.offsets[&0], found.offsets[&1], found.collectives), (0, -1_000_000_020, 9));
        assert!((10..=20).contains(&found.apart_ns), "{found:?}");
        // a rank with another number of them is left as it is
        trace.spans.pop();
        assert_eq!(clocks(&trace).offsets.get(&1), None);
    }

    /// A time after which a clock that is a second behind is still positive (ns).
    const BASE: i64 = 5_000_000_000;

    /// Two files of two ranks, whose clocks are a second apart.
    fn two_files(apart: i64) -> Trace {
        let mut spans = Vec::new();
        for at in 0..9 {
            let begin = BASE + 10_000 * (at + 1);
            spans.push(span(0, Lane::Compute, begin, begin + 2_000));
            spans.push(span(0, Lane::Comm, begin + 2_000, begin + 5_000));
            let begin = begin + apart;
            spans.push(span(1, Lane::Compute, begin, begin + 3_000));
            // one end is 1 ns late: the median is a half
            let end = begin + 5_000 + at % 2;
            spans.push(Span {
                last_arrival_ns: begin + 3_000,
                ..span(1, Lane::Comm, begin + 3_000, end)
            });
        }
        spans.sort_by_key(|s| (s.rank, s.lane, s.start_ns));
        let mut trace = trace(spans);
        let files = vec!["a".into(), "b".into()];
        trace.meta.import = Some(ImportReport { files, ..Default::default() });
        let (depth, name) = (0, 0);
        let range = |rank, start_ns: i64| Range {
            rank,
            on_device: false,
            thread: 0,
            depth,
            name,
            start_ns,
            end_ns: start_ns + 9_000,
        };
        trace.ranges = vec![range(0, BASE + 10_000), range(1, BASE + 10_000 + apart)];
        trace
    }

    #[test]
    fn tied_ranks_are_cut_at_the_same_moment() {
        for apart in [0, 1_000_000_000, -1_000_000_000] {
            let mut trace = two_files(apart);
            tie_clocks(&mut trace);
            assert_eq!(untied_clocks(&trace), None);
            assert!(clocks(&trace).offsets.values().all(|offset| *offset == 0), "tied once for all");
            let starts =
                |rank| trace.spans.iter().filter(move |s| s.rank == rank).map(|s| s.start_ns).min();
            assert_eq!(starts(0), starts(1), "{apart}");
            assert!(starts(0) >= Some(0), "{apart}");
            let [first, second] = &trace.ranges[..] else { panic!("{:?}", trace.ranges) };
            assert_eq!((Some(first.start_ns), first.end_ns), (starts(0), second.end_ns));
            // one step of each rank, and the same one
            let selection =
                Selection { from_ns: Some(20_000), to_ns: Some(30_000), ..Selection::default() };
            let ranks = overlap(&trace, &selection).ranks;
            let times = |at: usize| (ranks[at].compute_us, ranks[at].comm_us, ranks[at].peer_wait_us);
            assert_eq!((times(0), times(1)), ((2.0, 3.0, Some(0.0)), (3.0, 2.0, Some(0.0))), "{apart}");
        }
    }

    #[test]
    fn clocks_that_drift_are_straightened() {
        let mut spans = Vec::new();
        for at in 0..20 {
            let end = BASE + 100_000_000 * (at + 1);
            spans.push(span(0, Lane::Comm, end - 20_000, end));
            // 50 ppm
            let drifted = |time: i64| time + 1_000_000_000 + (time - BASE) / 20_000;
            spans.push(span(1, Lane::Comm, drifted(end - 20_000), drifted(end)));
        }
        spans.sort_by_key(|s| (s.rank, s.start_ns));
        let mut trace = trace(spans);
        let files = vec!["a".into(), "b".into()];
        trace.meta.import = Some(ImportReport { files, ..Default::default() });
        tie_clocks(&mut trace);
        let ends = |rank| trace.spans.iter().filter(move |s| s.rank == rank).map(|s| s.end_ns);
        let apart: Vec<i64> = ends(0).zip(ends(1)).map(|(a, b)| (a - b).abs()).collect();
        assert!(apart.len() == 20 && apart.iter().all(|ns| *ns <= 2), "{apart:?}");
        let warnings = &trace.meta.import.as_ref().unwrap().warnings;
        assert!(warnings[0].starts_with("clocks of r1 drift by up to 50.0 ppm"), "{warnings:?}");
    }

    #[test]
    fn ranks_without_common_collectives_keep_their_clocks_and_are_named() {
        let mut trace = two_files(1_000_000_000);
        trace.spans.retain(|span| span.rank == 0 || span.lane == Lane::Compute);
        let before = trace.clone();
        tie_clocks(&mut trace);
        assert_eq!(trace, before);
        let said = untied_clocks(&trace).unwrap();
        assert!(said.contains("tie the clocks of r1 to rank 0's"), "{said}");
        trace.meta.import = None;
        assert_eq!(untied_clocks(&trace), None, "one clock timed them");
    }

    fn keys(numbers: &[u32]) -> Vec<StepKey> {
        let key = |step: &u32| StepKey { sample: 0, phase: Phase::Decode, step: *step };
        numbers.iter().map(key).collect()
    }

    fn aligned(a: &[u32], b: &[u32]) -> StepAlignment {
        StepAlignment::of_keys(keys(a).into_iter(), keys(b).into_iter())
    }

    #[test]
    fn steps_are_paired_by_number_where_the_traces_share_them_else_in_order() {
        let by_number = aligned(&[0, 1, 2, 3], &[2, 3, 4, 5]);
        assert_eq!((by_number.pairs.as_slice(), by_number.by_order), (&[(2, 0), (3, 1)][..], false));
        assert_eq!((by_number.partner(true, 3), by_number.partner(false, 0)), (Some(1), Some(2)));
        assert_eq!(by_number.partner(true, 0), None);
        let by_order = aligned(&[3, 4, 5, 6], &[6, 7, 8, 9]);
        assert_eq!(by_order.pairs, [(0, 0), (1, 1), (2, 2), (3, 3)]);
        assert!(by_order.by_order, "one number in common is chance");
        assert!(aligned(&[1], &[]).pairs.is_empty());
    }

    #[test]
    fn steps_of_another_kind_are_never_paired() {
        let steps_of = |kinds: &[&'static str]| -> Vec<(StepKey, &'static str)> {
            keys(&[0, 1, 2, 3]).into_iter().zip(kinds.iter().copied()).collect()
        };
        let a = steps_of(&["decode", "prefill", "decode", "decode"]);
        let b = steps_of(&["prefill", "decode", "decode", "mixed"]);
        let aligned = StepAlignment::new(&a, &b);
        assert!(aligned.pairs.iter().all(|(x, y)| a[*x].1 == b[*y].1), "{aligned:?}");
        assert!(!aligned.pairs.is_empty());
    }
}
