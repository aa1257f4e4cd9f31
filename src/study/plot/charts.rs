//! What figures of several charts share: how many there may be, and the note under the title.

use crate::base::error::Error;

/// Charts in one figure; with more of them nobody finds anything.
pub(super) const MOST_CHARTS: usize = 16;

/// The name of a group of comparable runs as a note under a title: provenance is said in the caption.
pub(super) fn group_note(name: &str) -> String {
    let words = name.split(", ");
    let words = words.filter(|word| !["measured", "emulated-link", "simulated"].contains(word));
    words.collect::<Vec<_>>().join(", ")
}

pub(super) fn too_many(charts: usize, axis: &str) -> Error {
    Error::input_help(
        format!("{charts} charts are too many for one figure: at most {MOST_CHARTS}"),
        format!("choose runs with --filter, for example '{axis}<=8'"),
    )
}
