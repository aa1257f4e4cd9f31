//! Helpers for several kinds of figures: limit on the number of charts, note below the title, legend.

use super::layout::{Entry, Key};
use super::options::Options;
use super::style::{Looks, PLAIN};
use base::error::Error;
use base::words::Words as _;
use table::Provenance;

pub(super) const MOST_CHARTS: usize = 16;

/// Name of a group of comparable runs, without the provenance, which the caption contains.
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

pub(super) fn too_narrow(options: &Options) -> Error {
    Error::input_help(
        format!("{} inches is too narrow for the row names", options.size.width),
        "use a wider --size",
    )
}

/// Legend entries: line and marker of each architecture, and of P2P on and off if there are `both`.
pub(super) fn series_legend(looks: &Looks, both: bool) -> Vec<Entry> {
    let series = |look, filled| Key::Series { look, filled, dashed: !filled };
    let own = looks.iter().map(|(name, look)| Entry::new(series(*look, true), name.to_string()));
    let p2p = [(true, "P2P on"), (false, "P2P off")].into_iter().filter(|_| both);
    own.chain(p2p.map(|(filled, name)| Entry::new(series(PLAIN, filled), name))).collect()
}
