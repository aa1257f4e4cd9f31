//! A trace, indexed for drawing: spans per rank and lane by start, unions of what the lanes did, the
//! steps. Built once, off the terminal's thread; looked up in logarithmic time.

use std::collections::BTreeMap;

use super::cover::Cover;
use crate::analysis::OverlapReport;
use crate::plan::{Lane, Phase};
use crate::spec::Provenance;
use crate::trace::{Span, Trace};
use crate::tui::state::window::Window;

/// A step of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepKey {
    /// Which timed generation.
    pub sample: u32,
    /// Prefill or decode.
    pub phase: Phase,
    /// Decode step from 0; 0 in prefill.
    pub step: u32,
}

impl StepKey {
    fn of(span: &Span) -> Self {
        Self { sample: span.sample, phase: span.phase, step: span.step }
    }

    /// `prefill`, `step 12`.
    pub fn label(&self) -> String {
        match self.phase {
            Phase::Prefill => "prefill".into(),
            Phase::Decode => format!("step {}", self.step),
        }
    }
}

/// A step and the time it takes over all ranks and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    /// Which.
    pub key: StepKey,
    /// First start to last end.
    pub window: Window,
}

/// A rank's lane.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rank.
    pub rank: u32,
    /// The lane.
    pub lane: Lane,
    /// Indices into the trace's spans, by start.
    spans: Vec<u32>,
    /// The latest end up to each span (ends need not ascend in imported traces).
    latest_end: Vec<i64>,
    /// When the lane was busy.
    pub busy: Cover,
    /// When it waited for a peer (comm lanes only).
    pub waiting: Cover,
}

/// A trace with everything that drawing it needs.
#[derive(Debug)]
pub struct TraceIndex {
    /// The trace.
    pub trace: Trace,
    /// What to call it.
    pub title: String,
    /// First start to last end.
    pub bounds: Window,
    /// Two a rank: compute, comm.
    pub rows: Vec<Row>,
    /// For each rank, when its comm lane was busy and its compute lane was not.
    pub exposed: Vec<Cover>,
    /// By time.
    pub steps: Vec<StepRange>,
    /// Overlap of the decode phase (%), where it was computed and there is communication.
    pub decode_overlap_pct: Option<f64>,
    step_places: BTreeMap<StepKey, usize>,
}

impl Row {
    fn new(rank: u32, lane: Lane, spans: Vec<u32>, all: &[Span]) -> Self {
        let mut latest = i64::MIN;
        let latest_end = spans
            .iter()
            .map(|i| {
                latest = latest.max(all[*i as usize].end_ns);
                latest
            })
            .collect();
        let of = |i: &u32| all[*i as usize];
        let busy = Cover::of(spans.iter().map(of).map(|s| (s.start_ns, s.end_ns)));
        let waiting = Cover::of(
            spans
                .iter()
                .map(of)
                .filter(|s| s.last_arrival_ns >= 0)
                .map(|s| (s.start_ns, s.last_arrival_ns.min(s.end_ns))),
        );
        Self { rank, lane, spans, latest_end, busy, waiting }
    }

    /// How many spans it has.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The places of the spans that may touch a stretch of time.
    pub fn places(&self, all: &[Span], from: i64, to: i64) -> std::ops::Range<usize> {
        let first = self.latest_end.partition_point(|end| *end <= from);
        let last = self.spans.partition_point(|i| all[*i as usize].start_ns < to);
        first.min(last)..last
    }

    /// The place of the first span that starts at or after the time, or of the last one.
    pub fn from(&self, all: &[Span], time: i64) -> usize {
        let place = self.spans.partition_point(|i| all[*i as usize].start_ns < time);
        place.min(self.len().saturating_sub(1))
    }

    /// The place of the span nearest to the time.
    pub fn nearest(&self, all: &[Span], time: i64) -> usize {
        let next = self.spans.partition_point(|i| all[*i as usize].start_ns <= time);
        let Some(before) = next.checked_sub(1) else { return 0 };
        let gap_before = time - all[self.spans[before] as usize].end_ns;
        match self.spans.get(next) {
            Some(i) if gap_before > 0 && all[*i as usize].start_ns - time < gap_before => next,
            _ => before,
        }
    }

    /// The index in the trace of the span at a place.
    pub fn span(&self, place: usize) -> Option<usize> {
        self.spans.get(place).map(|i| *i as usize)
    }
}

impl TraceIndex {
    /// Indexes a trace. `decode` is the overlap of its decode phase.
    pub fn new(title: String, trace: Trace, decode: Option<&OverlapReport>) -> Self {
        let mut lanes: BTreeMap<(u32, Lane), Vec<u32>> = BTreeMap::new();
        let mut ranges: BTreeMap<StepKey, (i64, i64)> = BTreeMap::new();
        for (i, span) in trace.spans.iter().enumerate() {
            lanes.entry((span.rank, Lane::Compute)).or_default();
            lanes.entry((span.rank, Lane::Comm)).or_default();
            lanes.entry((span.rank, span.lane)).or_default().push(i as u32);
            let range = ranges.entry(StepKey::of(span)).or_insert((span.start_ns, span.end_ns));
            *range = (range.0.min(span.start_ns), range.1.max(span.end_ns));
        }
        let rows: Vec<Row> = lanes
            .into_iter()
            .map(|((rank, lane), mut spans)| {
                spans.sort_by_key(|i| trace.spans[*i as usize].start_ns);
                Row::new(rank, lane, spans, &trace.spans)
            })
            .collect();
        let exposed = rows.chunks(2).map(|pair| pair[1].busy.minus(&pair[0].busy)).collect();
        let start = trace.spans.iter().map(|s| s.start_ns).min().unwrap_or(0);
        let end = trace.spans.iter().map(|s| s.end_ns).max().unwrap_or(1);
        let mut steps: Vec<StepRange> = ranges
            .into_iter()
            .map(|(key, (from, to))| StepRange { key, window: Window::new(from, to) })
            .collect();
        steps.sort_by_key(|s| (s.window.from, s.key));
        let step_places = steps.iter().enumerate().map(|(i, s)| (s.key, i)).collect();
        let decode_overlap_pct = decode.and_then(|report| report.all.overlap_pct);
        let bounds = Window::new(start, end);
        Self { trace, title, bounds, rows, exposed, steps, decode_overlap_pct, step_places }
    }

    /// Where its numbers come from.
    pub fn provenance(&self) -> Provenance {
        self.trace.meta.provenance
    }

    /// Ranks that have spans.
    pub fn ranks(&self) -> usize {
        self.exposed.len()
    }

    /// Which of the ranks a row belongs to.
    pub fn rank_of_row(&self, row: usize) -> usize {
        row / 2
    }

    /// The span at a place of a row.
    pub fn span(&self, row: usize, place: usize) -> Option<&Span> {
        self.trace.spans.get(self.rows.get(row)?.span(place)?)
    }

    /// The step of a span, an index into the steps.
    pub fn step_of(&self, span: &Span) -> Option<usize> {
        self.step_places.get(&StepKey::of(span)).copied()
    }
}
