//! Overlap of a trace's lanes, per rank and in total, from unions of intervals.
//!
//! Source of each overlap that people see:
//!
//! | shown | computed by |
//! |---|---|
//! | a run's `overlap_pct`, `exposed_comm_ms` and other lane measures (run tables, frontier, compare, gates) | its record: on sim `LaneTimes::overlap` in `src/run/sim/lane_times.rs`, without a trace; on cpu and cuda [`decode_overlap`] over the recorded spans |
//! | the report of a trace (`overlap`, the timeline's panels, figures of a trace) | [`summarise`], called by `study::analysis::trace_report` |
//! | one step or window of a trace (the timeline's measurement, `show`) | [`overlap()`], which is [`summarise`] without the rest of the report |
//!
//! Tests in `src/run/sim` compare the first with the last.

pub mod intervals;
mod report;
mod runs;

pub use report::{
    BreakdownRow, ExposureCounter, LaneNanoseconds, Lanes, LanesBuilder, OverlapReport, RankOverlap,
    Tally, TallyCell, decode_overlap, exposed_intervals, overlap, summarise, us,
};
pub use runs::{
    Class, Launches, Replays, Selection, SpanRun, SpanRuns, StepKey, StepWindow, origin_ns, starts,
};
