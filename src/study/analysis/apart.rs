//! Rounds measured apart: runs of compared cells that have the same round, but ran so long after each other that the
//! machine may have changed in between, as after a pause or a resume. Comparisons leave such rounds out.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use table::Record;

/// Time between two runs of a round that never sets them apart.
const BESIDE: SignedDuration = SignedDuration::from_mins(10);

/// The same for cells with a single round, which gives no time between rounds.
const SINGLE_ROUND: SignedDuration = SignedDuration::from_hours(1);

/// Runs of compared cells that were measured apart from the first run of their round, with the time in between. The limit
/// is the shortest time between successive rounds of a cell, and at least [`BESIDE`]. Runs outside of experiments are in no round.
pub(super) fn runs_apart<'a>(
    cells: impl IntoIterator<Item = impl IntoIterator<Item = &'a Record>>,
) -> Vec<(&'a Record, SignedDuration)> {
    let mut first: BTreeMap<u32, Timestamp> = BTreeMap::new();
    let (mut runs, mut between_rounds) = (Vec::new(), Vec::new());
    for cell in cells {
        let mut of_cell: BTreeMap<u32, Timestamp> = BTreeMap::new();
        for run in cell.into_iter().filter(|run| run.experiment.is_some()) {
            let Ok(created) = run.created.parse::<Timestamp>() else { continue };
            of_cell.entry(run.round).and_modify(|first| *first = created.min(*first)).or_insert(created);
            runs.push((run, created));
        }
        let times: Vec<Timestamp> = of_cell.values().copied().collect();
        between_rounds.extend(times.windows(2).map(|pair| pair[1].duration_since(pair[0]).abs()));
        for (round, created) in of_cell {
            first.entry(round).and_modify(|first| *first = created.min(*first)).or_insert(created);
        }
    }
    let limit = between_rounds.into_iter().min().map_or(SINGLE_ROUND, |between| between.max(BESIDE));
    let since_first = |(run, created): (&'a Record, Timestamp)| {
        (run, first.get(&run.round).map_or(SignedDuration::ZERO, |first| created.duration_since(*first)))
    };
    runs.into_iter().map(since_first).filter(|(_, since)| *since > limit).collect()
}

/// Longest time from a run of the baseline to one of the cell in a round that was measured apart, negative if the cell ran
/// first; `None` if they share no such round. Takes the runs of both.
pub(super) fn measured_apart<'a>(
    baseline: impl IntoIterator<Item = &'a Record>,
    cell: impl IntoIterator<Item = &'a Record>,
) -> Option<SignedDuration> {
    let baseline: Vec<&Record> = baseline.into_iter().collect();
    let cell: Vec<&Record> = cell.into_iter().collect();
    let has = |runs: &[&Record], round: u32| runs.iter().any(|run| run.round == round);
    let late = runs_apart([baseline.iter().copied(), cell.iter().copied()]).into_iter();
    let shared = late.filter(|(run, _)| has(&baseline, run.round) && has(&cell, run.round));
    let (run, since) = shared.max_by_key(|(_, since)| *since)?;
    let is_of_baseline = baseline.iter().any(|of| std::ptr::eq(*of, run));
    Some(if is_of_baseline { -since } else { since })
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::testing::record;

    /// Runs of a cell in rounds 0, 1, ... at these minutes.
    fn runs_at(minutes: &[u32]) -> Vec<Record> {
        let run = |(round, minute): (u32, &u32)| {
            let mut run = record("r", |_| (), round, &[(1.0, 1.0)]);
            run.experiment = Some("hide".into());
            run.created = format!("2026-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60);
            run
        };
        (0..).zip(minutes).map(run).collect()
    }

    /// Minutes by which runs are apart, of two cells that ran at these minutes.
    fn apart(cells: [&[u32]; 2]) -> Vec<(u32, i64)> {
        let cells = cells.map(runs_at);
        let apart = runs_apart(&cells);
        apart.iter().map(|(run, since)| (run.round, since.as_mins())).collect()
    }

    #[test]
    fn rounds_are_apart_by_time() {
        assert_eq!(apart([&[0, 2, 4], &[1, 3, 5]]), [], "in turns");
        assert_eq!(apart([&[0, 2, 4], &[5, 6, 7]]), [], "resumed at once");
        assert_eq!(apart([&[0, 2, 44], &[1, 43, 45]]), [(1, 41)], "paused in the second round");
        assert_eq!(apart([&[0, 1, 2], &[90, 91, 92]]), [(0, 90), (1, 90), (2, 90)], "resumed later");
        assert_eq!(apart([&[0, 60, 120], &[50, 110, 170]]), [], "rounds that last an hour");
        assert_eq!(apart([&[0], &[50]]), [], "a single round says nothing about its length");
        assert_eq!(apart([&[0], &[70]]), [(0, 70)]);
    }

    #[test]
    fn a_cell_is_measured_after_or_before_its_baseline() {
        let minutes = |baseline: &[u32], cell: &[u32]| {
            let [baseline, cell] = [baseline, cell].map(runs_at);
            measured_apart(&baseline, &cell).map(|apart| apart.as_mins())
        };
        assert_eq!(minutes(&[0, 2, 4], &[1, 3, 45]), Some(41));
        assert_eq!(minutes(&[0, 2, 45], &[1, 3, 4]), Some(-41));
        assert_eq!(minutes(&[0, 2, 4], &[1, 3, 5]), None);
    }
}
