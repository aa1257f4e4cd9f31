//! Longest stretches of exposed communication, each with the collective that fills it and the compute that waited for
//! it.

use rayon::prelude::*;
use serde::Serialize;

use table::render::{Shown, Table};
use trace::overlap::intervals::{Interval, difference};
use trace::overlap::{Class, Lanes, Runs, Selection, StepKey, us};
use trace::{Span, Trace};

const MOST: usize = 1_000;

/// Stretch in which a rank communicated and computed nothing.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ExposedStretch {
    /// Ranks with exactly this stretch, ascending; the other fields describe the first rank.
    pub ranks: Vec<u32>,
    /// Start since the trace's first start (us).
    pub at_us: f64,
    pub length_us: f64,
    #[serde(flatten)]
    pub step: StepKey,
    /// Collective that fills most of the stretch.
    pub collective: String,
    /// Next compute operation on the rank; null if there is none.
    pub waited: Option<String>,
    #[serde(skip)]
    pub span: usize,
    /// Start and end (ns, trace clock).
    #[serde(skip)]
    pub interval: Interval,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ExposedStretches {
    /// Number of stretches; one shared by several ranks counts once.
    pub count: u64,
    /// Total per rank, averaged over ranks (us).
    pub total_us: f64,
    /// The longest stretches, at most 1000, longest first.
    pub longest: Vec<ExposedStretch>,
}

pub fn exposed_stretches(trace: &Trace, selection: &Selection) -> ExposedStretches {
    let runs = Runs::new(trace, selection);
    exposed(&runs, &Lanes::of(&runs))
}

pub fn stretches_table(stretches: &[ExposedStretch]) -> Table {
    let us = Shown::Time;
    let ranks = |s: &ExposedStretch| s.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    Table::of(
        stretches,
        &[
            ("at_us|start_us", &|s| us(s.at_us)),
            ("length_us", &|s| us(s.length_us)),
            ("ranks", &|s| Shown::text(ranks(s))),
            ("sample", &|s| s.step.sample.into()),
            ("phase|", &|s| Shown::text(s.step.phase.as_str())),
            ("step", &|s| s.step.step.into()),
            ("~collective", &|s| Shown::text(&s.collective)),
            ("~waited|delayed", &|s| s.waited.as_ref().map_or(Shown::None, Shown::text)),
        ],
    )
    .least(&["sample", "ranks"])
}

/// Stretch before its collective is known: index of the rank, start and end (ns).
#[derive(Clone, Copy)]
struct Bare {
    rank: usize,
    interval: Interval,
}

/// Longest stretches from collected lanes: one sort, plus a pass over the spans of the ranks involved.
pub(super) fn exposed(runs: &Runs, lanes: &[Lanes]) -> ExposedStretches {
    let of_rank = |(rank, lanes): (usize, &Lanes)| -> Vec<Bare> {
        let all = difference(&lanes.comm, lanes.compute.union());
        all.into_iter().map(|interval| Bare { rank, interval }).collect()
    };
    let mut all: Vec<Bare> = lanes.par_iter().enumerate().map(of_rank).flatten_iter().collect();
    let length = |(start, end): Interval| end.saturating_sub(start);
    let sum: i64 = all.iter().map(|bare| length(bare.interval)).sum();
    let total_us = sum as f64 / 1e3 / lanes.len().max(1) as f64;
    all.par_sort_unstable_by_key(|bare| {
        (std::cmp::Reverse(length(bare.interval)), bare.interval.0, bare.rank)
    });
    let mut groups: Vec<&[Bare]> = all.chunk_by(|a, b| a.interval == b.interval).collect();
    let count = groups.len() as u64;
    groups.truncate(MOST);
    let mut longest: Vec<ExposedStretch> = (0..lanes.len())
        .into_par_iter()
        .flat_map_iter(|rank| {
            let own: Vec<&[Bare]> =
                groups.iter().copied().filter(|group| group[0].rank == rank).collect();
            told(runs, rank, own)
        })
        .collect();
    longest.sort_by_key(|s| (std::cmp::Reverse(length(s.interval)), s.interval.0, s.ranks.clone()));
    ExposedStretches { count, total_us, longest }
}

/// Adds the collective and the waiting operation to the stretches of a rank.
fn told(runs: &Runs, rank: usize, mut groups: Vec<&[Bare]>) -> Vec<ExposedStretch> {
    if groups.is_empty() {
        return Vec::new();
    }
    groups.sort_unstable_by_key(|group| group[0].interval);
    let intervals: Vec<Interval> = groups.iter().map(|group| group[0].interval).collect();
    // per stretch: overlap and index of the best collective so far; the next compute span
    let mut filled: Vec<Option<(i64, usize)>> = vec![None; groups.len()];
    let mut next: Vec<Option<&Span>> = vec![None; groups.len()];
    for place in runs.by_rank[rank].iter().flat_map(|run| run.at.clone()) {
        let span = &runs.trace.spans[place];
        let Some((start, end)) = runs.clip(span) else { continue };
        match runs.class(span) {
            Class::Comm => {
                let first = intervals.partition_point(|interval| interval.1 <= start);
                for (at, interval) in intervals.iter().enumerate().skip(first) {
                    let common = end.min(interval.1).saturating_sub(start.max(interval.0));
                    if common <= 0 {
                        break;
                    }
                    if filled[at].is_none_or(|(most, _)| common > most) {
                        filled[at] = Some((common, place));
                    }
                }
            }
            Class::Compute if start < end => {
                let behind = intervals.partition_point(|interval| interval.1 <= start);
                if let Some(at) = behind.checked_sub(1)
                    && next[at].is_none_or(|next| start < next.start_ns)
                {
                    next[at] = Some(span);
                }
            }
            _ => {}
        }
    }
    // with no compute between two stretches, both waited for the same span
    for at in (1..next.len()).rev() {
        next[at - 1] = next[at - 1].or(next[at]);
    }
    let name = |span: &Span| {
        let operation = runs.trace.operations.get(span.operation as usize);
        operation.map_or_else(|| "?".to_owned(), |operation| operation.name.clone())
    };
    let stretch = |at: usize| {
        let (group, (_, place)) = (groups[at], filled[at]?);
        let (span, interval) = (&runs.trace.spans[place], group[0].interval);
        Some(ExposedStretch {
            ranks: group.iter().map(|bare| runs.ranks[bare.rank]).collect(),
            at_us: us(interval.0.saturating_sub(runs.origin)),
            length_us: us(interval.1.saturating_sub(interval.0)),
            step: StepKey::of(span),
            collective: name(span),
            waited: next[at].map(name),
            span: place,
            interval,
        })
    };
    (0..groups.len()).filter_map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
    use trace::testing::{span, trace};

    #[test]
    fn stretches_tell_what_was_exposed_and_what_waited() {
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let with = |operation: u32, span: Span| Span { operation, ..span };
        let trace = trace(vec![
            span(0, compute, 100, 200),
            // of two collectives the longer one fills the stretch
            with(4, span(0, comm, 150, 240)),
            span(0, comm, 240, 400),
            with(2, span(0, compute, 450, 500)),
            span(0, comm, 480, 530),
            span(0, comm, 540, 545),
            with(3, span(0, compute, 550, 600)),
            span(1, compute, 100, 200),
            span(1, comm, 200, 400),
            span(1, comm, 700, 710),
        ]);
        let told = exposed_stretches(&trace, &Selection::default());
        assert_eq!(told.count, 4, "what both ranks have is one");
        let rows: Vec<_> = told
            .longest
            .iter()
            .map(|s| (&s.ranks[..], s.at_us, s.length_us, s.collective.as_str(), s.waited.as_deref()))
            .collect();
        let (reduce, attend, norm) =
            ("decode/L0/mlp/reduce", "decode/L0/attn/attend", "decode/L0/attn/norm");
        assert_eq!(
            rows,
            [
                (&[0, 1][..], 0.1, 0.2, reduce, Some(attend)),
                (&[0], 0.4, 0.03, reduce, Some(norm)),
                (&[1], 0.6, 0.01, reduce, None),
                (&[0], 0.44, 0.005, reduce, Some(norm)),
            ]
        );
        assert_eq!(told.longest[0].span, 2);
        let selection = Selection { from_ns: Some(420), ..Selection::default() };
        let late = exposed_stretches(&trace, &selection);
        assert_eq!((late.count, late.longest[0].length_us), (3, 0.01), "clipped to what is selected");
    }
}
