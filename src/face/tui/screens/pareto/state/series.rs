//! What the legend lists: the series of a group, each with its glyphs and colour. A well-known
//! architecture looks the same in every group.

use std::collections::BTreeSet;

use crate::study::analysis::{ParetoPoint, Series};
use crate::study::plot;
use crate::table::P2p;

/// How points are drawn: on a frontier and dominated, P2P on (filled) and off (hollow).
const GLYPHS: [[&str; 4]; 8] = [
    ["●", "○", "•", "◦"],
    ["◆", "◇", "♦", "◊"],
    ["■", "□", "▪", "▫"],
    ["★", "☆", "✦", "✧"],
    ["▲", "△", "▴", "▵"],
    ["▼", "▽", "▾", "▿"],
    ["▶", "▷", "▸", "▹"],
    ["◀", "◁", "◂", "◃"],
];

/// The glyph of a point of look number `look`.
pub fn glyph(look: usize, p2p: P2p, dominated: bool) -> &'static str {
    GLYPHS[look % GLYPHS.len()][usize::from(p2p == P2p::Off) + 2 * usize::from(dominated)]
}

/// One series in the legend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The architecture, P2P and setting that its points share.
    pub series: Series,
    /// The number of its architecture's look: glyphs and colour.
    pub look: usize,
    /// The user has taken it off the plot.
    pub hidden: bool,
}

impl Entry {
    /// Its glyph on a frontier.
    pub fn glyph(&self) -> &'static str {
        glyph(self.look, self.series.p2p, false)
    }
}

/// The entries of the series that these points have, in order.
pub fn entries<'a>(
    points: impl Iterator<Item = &'a ParetoPoint>,
    hidden: &BTreeSet<Series>,
) -> Vec<Entry> {
    let series: BTreeSet<Series> = points.map(ParetoPoint::series).collect();
    let looks = plot::look_numbers(series.iter().map(|s| &s.architecture));
    let entry = |series: Series| Entry {
        look: looks.get(&series.architecture).copied().unwrap_or(0),
        hidden: hidden.contains(&series),
        series,
    };
    series.into_iter().map(entry).collect()
}

/// The letter of a point from elsewhere: its architecture's initial, a capital where P2P is off.
pub fn letter(architecture: &str, p2p: Option<P2p>) -> String {
    let initial =
        architecture.chars().find(char::is_ascii_alphabetic).unwrap_or('x').to_ascii_lowercase();
    match p2p {
        Some(P2p::Off) => initial.to_ascii_uppercase(),
        _ => initial,
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Architecture, LadderLayers};

    #[test]
    fn architectures_keep_their_look_and_variants_get_one_of_their_own() {
        let all = [
            Architecture::Standard,
            Architecture::Ladder(LadderLayers::All),
            Architecture::Ladder(LadderLayers::Last(4)),
            Architecture::UpperBound,
        ];
        let some = plot::look_numbers(all.iter());
        assert_eq!((some[&all[0]], some[&all[1]], some[&all[3]]), (0, 1, 4));
        assert_eq!(some.values().collect::<BTreeSet<_>>().len(), 4, "{some:?}");
        assert_eq!(plot::look_numbers(all[3..].iter())[&all[3]], 4);
        assert_eq!(
            (letter("ladder", Some(P2p::On)), letter("ladder", Some(P2p::Off))),
            ("l".into(), "L".into())
        );
    }
}
