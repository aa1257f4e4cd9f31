//! Progress of a run in words and shapes, and the look of a cell that is not running: its simulation and memory.

use std::collections::VecDeque;

use super::state::CellPreview;
use plan::Phase;
use run::{GridContext, RunEvent, StepLanes, backend};
use table::Spec;
use trace::overlap::intervals;

/// Length of the sparkline history.
const POINTS: usize = 240;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProgress {
    /// `loading weights`, `warm-up 1/2`, `sample 3/10`; empty before the first event.
    pub phase: String,
    /// Finished and total decode steps of this generation; `None` outside decoding.
    pub step: Option<(u32, u32)>,
    /// Mean latency of the latest steps, in ms.
    pub step_ms: Option<f64>,
    /// Throughput of recent steps in tokens/s, oldest first.
    pub speed: VecDeque<f64>,
    /// Lanes of the latest step that reported them, by rank.
    pub lanes: Vec<StepLanes>,
    /// Number of the decode step in `lanes`, from 1.
    pub lanes_of: u32,
    /// Largest resident memory of the run's process, in bytes.
    pub resident_bytes: Option<u64>,
}

impl RunProgress {
    pub fn hear(&mut self, event: &RunEvent, batch: u32) {
        match event {
            RunEvent::Phase { name } => {
                self.phase.clone_from(name);
                self.step = None;
            }
            RunEvent::Step { done, of, steps, ms, lanes } => {
                self.step = Some((*done, *of));
                if *steps > 0 && *ms > 0.0 {
                    let each = ms / f64::from(*steps);
                    self.step_ms = Some(each);
                    if self.speed.len() == POINTS {
                        self.speed.pop_front();
                    }
                    self.speed.push_back(f64::from(batch) / each * 1e3);
                }
                if !lanes.is_empty() {
                    self.lanes.clone_from(lanes);
                    self.lanes_of = *done;
                }
            }
            // a process that ends has little left
            RunEvent::Memory { resident_bytes } => {
                self.resident_bytes = self.resident_bytes.max(Some(*resident_bytes));
            }
            RunEvent::SampleDone { .. }
            | RunEvent::Warning { .. }
            | RunEvent::End { .. }
            | RunEvent::Error { .. } => {}
        }
    }

    /// Description: `sample 3/10 · prefill`, `sample 3/10 · decode step 17/31`.
    pub fn text(&self) -> String {
        let generation = self.phase.starts_with("sample") || self.phase.starts_with("warm-up");
        match self.step {
            Some((done, of)) => format!("{} · decode step {done}/{of}", self.phase),
            None if generation => format!("{} · prefill", self.phase),
            None => self.phase.clone(),
        }
    }

    /// Finished share of this generation's decode steps, 0 to 1.
    pub fn fraction(&self) -> f64 {
        self.step.map_or(0.0, |(done, of)| f64::from(done) / f64::from(of.max(1)))
    }
}

/// Busy share (0 to 1) of a lane in each of `columns` columns spanning `end` ns.
pub fn coverage(busy: &[[u32; 2]], end: u32, columns: usize) -> Vec<f64> {
    let mut covered = vec![0.0; columns];
    let scale = columns as f64 / f64::from(end.max(1));
    for [start, stop] in busy {
        let (from, to) = (f64::from(*start) * scale, f64::from(*stop) * scale);
        let last = (to.ceil() as usize).min(columns);
        for (column, covered) in covered.iter_mut().enumerate().take(last).skip(from as usize) {
            let (left, right) = (column as f64, column as f64 + 1.0);
            *covered += (to.min(right) - from.max(left)).max(0.0);
        }
    }
    covered
}

/// Intervals of communication that no computation hides.
pub fn exposed(lanes: &StepLanes) -> Vec<[u32; 2]> {
    let wide = |lane: &[[u32; 2]]| -> Vec<(i64, i64)> {
        lane.iter().map(|[start, end]| (i64::from(*start), i64::from(*end))).collect()
    };
    let bare = intervals::difference(&wide(&lanes.comm), &wide(&lanes.compute));
    bare.into_iter().map(|(start, end)| [start as u32, end as u32]).collect()
}

/// Total and exposed communication, in ns.
pub fn communication(lanes: &StepLanes) -> (u64, u64) {
    let sum = |intervals: &[[u32; 2]]| intervals.iter().map(|[start, end]| u64::from(end - start)).sum();
    (sum(&lanes.comm), sum(&exposed(lanes)))
}

/// Time of one rank from its first interval to its last, in ns.
pub fn duration(lanes: &StepLanes) -> u32 {
    let starts = lanes.compute.iter().chain(&lanes.comm).map(|[start, _]| *start);
    lanes.end().saturating_sub(starts.min().unwrap_or(0))
}

/// The first of the ranks with the same lanes, and the others.
pub fn alike(lanes: &[StepLanes]) -> Vec<(&StepLanes, Vec<u32>)> {
    let mut groups: Vec<(&StepLanes, Vec<u32>)> = Vec::new();
    for own in lanes {
        let is_same = |first: &StepLanes| first.compute == own.compute && first.comm == own.comm;
        match groups.iter_mut().find(|(first, _)| is_same(first)) {
            Some((_, others)) => others.push(own.rank),
            None => groups.push((own, Vec::new())),
        }
    }
    groups
}

/// Renders the latest values as a sparkline of eight heights, from minimum to maximum.
pub fn sparkline(values: &VecDeque<f64>, columns: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.iter().skip(values.len().saturating_sub(columns));
    let least = shown.clone().copied().fold(f64::INFINITY, f64::min);
    let most = shown.clone().copied().fold(0.0, f64::max);
    // keep variations below 1% flat
    let range = (most - least).max(most / 100.0);
    shown
        .map(|value| {
            let height = if range > 0.0 { (value - least) / range * 7.0 } else { 0.0 };
            HEIGHTS[(height.round() as usize).min(7)]
        })
        .collect()
}

/// Inspects a cell; unknown parts are left empty.
pub fn look(spec: &Spec) -> CellPreview {
    let shared = GridContext::default();
    let (Ok(model), Ok(backend)) = (shared.simulator.model(&spec.model), backend(spec.backend)) else {
        return CellPreview::default();
    };
    let bytes = backend.memory(spec, &model.shape, &shared).total();
    let simulated = if spec.backend.is_simulated() { simulated(spec, &shared) } else { None };
    CellPreview { rank_bytes: (bytes > 0).then_some(bytes), simulated: simulated.unwrap_or_default() }
}

/// Simulates the lanes of the first decode step.
fn simulated(spec: &Spec, shared: &GridContext) -> Option<Vec<StepLanes>> {
    let spec = Spec { output_tokens: spec.output_tokens.min(2), ..spec.clone() };
    let (_, trace) = shared.simulator.cell(&spec).ok()?.run(true).ok()?;
    let spans: Vec<_> = trace?.spans.into_iter().filter(|s| s.phase == Phase::Decode).collect();
    Some(StepLanes::of_step(&spans))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use table::{Backend, CellOptions};

    fn lanes(compute: &[[u32; 2]], comm: &[[u32; 2]]) -> StepLanes {
        StepLanes { rank: 0, compute: compute.to_vec(), comm: comm.to_vec() }
    }

    #[test]
    fn what_computation_does_not_hide_is_exposed() {
        let of = |compute: &[[u32; 2]], comm: &[[u32; 2]]| exposed(&lanes(compute, comm));
        assert_eq!(of(&[[0, 10], [20, 30]], &[[5, 25]]), [[10, 20]]);
        assert_eq!(of(&[[0, 10]], &[[10, 15], [18, 20]]), [[10, 15], [18, 20]]);
        assert_eq!(of(&[[0, 30]], &[[5, 25]]), [[0u32; 2]; 0]);
        assert_eq!(of(&[[8, 9], [10, 12]], &[[5, 20]]), [[5, 8], [9, 10], [12, 20]]);
        assert_eq!(communication(&lanes(&[[8, 9], [10, 12]], &[[5, 20]])), (15, 12));
        assert_eq!(duration(&lanes(&[[8, 9], [10, 12]], &[])), 4);
    }

    #[test]
    fn ranks_with_the_same_lanes_are_alike() {
        let of = |rank, compute: &[[u32; 2]]| StepLanes { rank, ..lanes(compute, &[[5, 9]]) };
        let all = [of(0, &[[0, 4]]), of(1, &[[0, 5]]), of(2, &[[0, 4]]), of(3, &[[0, 4]])];
        let groups = alike(&all).into_iter().map(|(first, others)| (first.rank, others));
        assert_eq!(groups.collect::<Vec<_>>(), [(0, vec![2, 3]), (1, Vec::new())]);
    }

    proptest! {
        #[test]
        fn coverage_loses_nothing(cuts in prop::collection::btree_set(0u32..100_000, 2..40), columns in 1usize..200) {
            let cuts: Vec<u32> = cuts.into_iter().collect();
            let busy: Vec<[u32; 2]> = cuts.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
            let end = 100_000;
            let covered = coverage(&busy, end, columns);
            prop_assert_eq!(covered.len(), columns);
            prop_assert!(covered.iter().all(|share| (-1e-9..=1.0 + 1e-6).contains(share)));
            let total: f64 = covered.iter().sum::<f64>() / columns as f64 * f64::from(end);
            let wanted: u32 = busy.iter().map(|[start, end]| end - start).sum();
            prop_assert!((total - f64::from(wanted)).abs() < 1.0);
        }
    }

    #[test]
    fn phases_are_told_in_words() {
        let mut doing = RunProgress::default();
        let step = |done, steps, ms| RunEvent::Step { done, of: 31, steps, ms, lanes: Vec::new() };
        let says = |doing: &mut RunProgress, event: RunEvent| {
            doing.hear(&event, 4);
            doing.text()
        };
        let phase = |name: &str| RunEvent::Phase { name: name.into() };
        assert_eq!(says(&mut doing, phase("loading weights")), "loading weights");
        assert_eq!(says(&mut doing, phase("warm-up 1/2")), "warm-up 1/2 · prefill");
        assert_eq!(says(&mut doing, step(0, 0, 0.0)), "warm-up 1/2 · decode step 0/31");
        assert_eq!(says(&mut doing, step(17, 17, 34.0)), "warm-up 1/2 · decode step 17/31");
        assert_eq!((doing.step_ms, doing.speed.back()), (Some(2.0), Some(&2000.0)));
        assert_eq!(says(&mut doing, phase("sample 1/10")), "sample 1/10 · prefill");
    }

    #[test]
    fn sparklines_show_the_newest_and_no_mountains_of_noise() {
        let of = |values: &[f64], columns| sparkline(&values.iter().copied().collect(), columns);
        assert_eq!(of(&[1.0, 2.0, 3.0, 8.0], 3), "▁▂█");
        assert_eq!(of(&[100.0, 100.1], 9), "▁▂");
        assert_eq!(of(&[], 9), "");
    }

    use run::Resolve;

    fn preview(architecture: &str, backend: Backend) -> CellPreview {
        let options = CellOptions {
            architecture: Some(architecture.parse().unwrap()),
            model: Some("llama-3.2-1b".into()),
            tp: Some(4),
            backend: Some(backend),
            ..CellOptions::default()
        };
        look(&options.resolve().unwrap().0)
    }

    #[test]
    fn a_simulated_cell_shows_the_lanes_of_every_rank_and_ladder_hides_what_standard_exposes() {
        let exposed = |architecture| {
            let looked = preview(architecture, Backend::Sim);
            assert_eq!(looked.simulated.len(), 4);
            let (comm, exposed) = super::communication(&looked.simulated[0]);
            exposed as f64 / comm as f64
        };
        assert!(exposed("standard") > 0.99 && exposed("ladder") < 0.5);
    }

    #[test]
    fn the_memory_of_a_rank_is_known_before_it_runs() {
        // 1.24e9 parameters of 4 bytes, a quarter of the layers on each rank, the embedding on all
        let bytes = preview("ladder", Backend::Cpu).rank_bytes.unwrap();
        assert!((1.2e9..4.0e9).contains(&(bytes as f64)), "{bytes}");
        assert!(preview("ladder", Backend::Cpu).simulated.is_empty());
    }
}
