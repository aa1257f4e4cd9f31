//! How a recorder is called in traces and records.

use crate::table::{Coverage, Recorder};

/// What recorded the spans, as traces and records name it.
pub fn recorder_name(recorder: Recorder, coverage: Coverage, windows: usize) -> String {
    match (recorder, coverage) {
        (Recorder::Off, _) => "off".into(),
        (Recorder::Cupti, _) => "cupti".into(),
        (Recorder::Stamps, _) => "stamps".into(),
        (Recorder::Events, Coverage::Full) => "cuda events, full".into(),
        (Recorder::Events, Coverage::Rotating) => format!("cuda events, rotating K={windows}"),
    }
}
