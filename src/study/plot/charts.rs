//! What figures of several kinds share: how many charts there may be, the note under the title, the
//! legend of series.

use super::layout::{Entry, Key};
use super::options::Options;
use super::style::{Looks, PLAIN};
use base::error::Error;
use base::words::Words as _;
use table::Provenance;

/// Charts in one figure; with more of them nobody finds anything.
pub(super) const MOST_CHARTS: usize = 16;

/// The name of a group of comparable runs as a note under a title: provenance is said in the caption.
pub(super) fn group_note(name: &str) -> String {
    let words = name.split(", ");
    let words = words.filter(|word| !Provenance::WORDS.contains(word));
    words.collect::<Vec<_>>().join(", ")
}

pub(super) fn too_many(charts: usize, axis: &str) -> Error {
    Error::input_help(
        format!("{charts} charts do not fit in one figure (at most {MOST_CHARTS})"),
        format!("select fewer runs with --filter, for example '{axis}<=8'"),
    )
}

/// The page has no room for data beside the names of rows.
pub(super) fn too_narrow(options: &Options) -> Error {
    Error::input_help(
        format!("{} inches is too narrow for the row names", options.size.width),
        "use a wider --size",
    )
}

/// A line and marker for each architecture, and for P2P on and off where there are `both`.
pub(super) fn series_legend(looks: &Looks, both: bool) -> Vec<Entry> {
    let series = |look, filled| Key::Series { look, filled, dashed: !filled };
    let own = looks.iter().map(|(name, look)| Entry::new(series(*look, true), name.to_string()));
    let p2p = [(true, "P2P on"), (false, "P2P off")].into_iter().filter(|_| both);
    own.chain(p2p.map(|(filled, name)| Entry::new(series(PLAIN, filled), name))).collect()
}
