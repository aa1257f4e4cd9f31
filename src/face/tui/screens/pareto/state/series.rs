//! Legend entries: series of a group with glyph and colour. A well-known architecture looks the same in
//! every group.

use std::collections::{BTreeMap, BTreeSet};

use crate::face::tui::widgets::scatter::mark;
use study::analysis::{ParetoPoint, Series};
use study::plot;
use table::P2p;

/// Glyph of a look: filled for P2P on, hollow for off, small for dominated points.
pub fn glyph(look: usize, p2p: P2p, dominated: bool) -> &'static str {
    mark(look, p2p == P2p::Off, dominated)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesEntry {
    pub series: Series,
    /// Index of its architecture's glyph and colour.
    pub look: usize,
    /// Suffix that distinguishes series with the same glyph: empty for the first, then `²`, `³`.
    pub suffix: &'static str,
    pub hidden: bool,
}

/// Suffixes that distinguish series with the same glyph, even without colour.
const SUFFIXES: [&str; 10] = ["", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹", "⁺"];

impl SeriesEntry {
    pub fn mark(&self) -> String {
        format!("{}{}", glyph(self.look, self.series.p2p, false), self.suffix)
    }
}

pub fn entries<'a>(
    points: impl Iterator<Item = &'a ParetoPoint>,
    hidden: &BTreeSet<Series>,
) -> Vec<SeriesEntry> {
    let series: BTreeSet<Series> = points.map(ParetoPoint::series).collect();
    let looks = plot::look_numbers(series.iter().map(|s| &s.architecture));
    let mut alike: BTreeMap<&'static str, usize> = BTreeMap::new();
    let entry = |series: Series| {
        let look = looks.get(&series.architecture).copied().unwrap_or(0);
        let before = alike.entry(glyph(look, series.p2p, false)).or_default();
        let suffix = SUFFIXES[(*before).min(SUFFIXES.len() - 1)];
        *before += 1;
        SeriesEntry { look, suffix, hidden: hidden.contains(&series), series }
    };
    series.into_iter().map(entry).collect()
}

/// Words that the settings of all series with this suffix add to those of the series without one; `None` if they differ,
/// or if the filter hides that series.
pub fn setting_of(suffix: &str, entries: &[SeriesEntry]) -> Option<String> {
    let added = |entry: &SeriesEntry| {
        let is_alike = |other: &&SeriesEntry| {
            other.suffix.is_empty() && other.look == entry.look && other.series.p2p == entry.series.p2p
        };
        let plain = entries.iter().find(is_alike)?;
        let plain: Vec<&str> = plain.series.setting.split(' ').collect();
        let words = entry.series.setting.split(' ').filter(|word| !plain.contains(word));
        Some(words.collect::<Vec<_>>().join(" ")).filter(|words| !words.is_empty())
    };
    let mut all = entries.iter().filter(|entry| entry.suffix == suffix).map(added);
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

/// Letter of an overlay point: its architecture's initial, upper case with P2P on.
pub fn letter(architecture: &str, p2p: Option<P2p>) -> String {
    let initial = architecture.chars().find(char::is_ascii_alphabetic).unwrap_or('x');
    match p2p {
        Some(P2p::On) => initial.to_ascii_uppercase(),
        _ => initial.to_ascii_lowercase(),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Architecture, LayerSet};

    #[test]
    fn architectures_keep_their_look_and_variants_get_one_of_their_own() {
        let all = [
            Architecture::Standard,
            Architecture::Ladder(LayerSet::All),
            Architecture::Ladder(LayerSet::Last(4)),
            Architecture::UpperBound,
        ];
        let some = plot::look_numbers(all.iter());
        assert_eq!((some[&all[0]], some[&all[1]], some[&all[3]]), (0, 1, 4));
        assert_eq!(some.values().collect::<BTreeSet<_>>().len(), 4, "{some:?}");
        assert_eq!(plot::look_numbers(all[3..].iter())[&all[3]], 4);
        // the shapes are those of figures
        let marks = [0, 1, 2, 3, 4].map(|look| glyph(look, P2p::On, false));
        assert_eq!(marks, ["●", "■", "▲", "◆", "▼"]);
        let letters = [Some(P2p::On), Some(P2p::Off), None].map(|p2p| letter("ladder", p2p));
        assert_eq!(letters, ["L", "l", "l"]);
    }
}
