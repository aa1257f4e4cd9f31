//! Heat map over TP and batch: a shade and a number per cell, with marks on cells without a clear difference.

use super::pivot::{TIE_MARK, UNKNOWN_MARK, tie_mark, tie_meaning};
use super::state::Compare;
use super::{Act, compared::Compared};
use crate::face::tui::prelude::*;
use study::analysis::{Comparison, HeatCell, HeatMap, HeatValue};

const SHADES: [&str; 5] = ["··", "░░", "▒▒", "▓▓", "██"];

/// Minimum top of the exposed-communication scale, as a share of TPOT in percent.
const LEAST_PERCENT: f64 = 5.0;

const CELL: u16 = 10;
const LABELS: u16 = 7;

/// Columns of a cell's shade, and of the number beside it.
const SHADE: u16 = 2;
const NUMBER: usize = 7;

/// Rows above the cells: the slice name, the scale, and the batch labels.
pub const HEAD: u16 = 3;

/// Placement of the cells in a window: whole columns, from the first visible one on.
#[derive(Clone, Copy, Debug)]
struct MapGrid {
    area: Rect,
    first_column: usize,
}

impl MapGrid {
    /// Scrolls so that the column of the cursor is visible.
    fn new(area: Rect, cursor_column: usize) -> Self {
        let grid = Self { area, first_column: 0 };
        Self { first_column: (cursor_column + 1).saturating_sub(grid.visible_columns()), ..grid }
    }

    fn visible_columns(&self) -> usize {
        usize::from(self.area.width.saturating_sub(LABELS) / CELL).max(1)
    }

    /// Columns of a map that fit, with their first column in the window.
    fn columns(&self, map: &HeatMap) -> impl Iterator<Item = (usize, u16)> + use<> {
        let columns = self.first_column..map.batches.len();
        let first_x = self.area.x + LABELS;
        let shown = (0..).zip(columns).take(self.visible_columns());
        shown.map(move |(place, column)| (column, first_x + place * CELL))
    }

    fn y(&self, row: usize) -> u16 {
        self.area.y + HEAD + row as u16
    }
}

/// Cell (TP index, batch index) at a window position.
pub fn cell_at(area: Rect, map: &HeatMap, cursor_column: usize, at: Position) -> Option<(usize, usize)> {
    let grid = MapGrid::new(area, cursor_column);
    let row = usize::from(at.y.checked_sub(area.y + HEAD)?);
    let (column, _) = grid.columns(map).find(|(_, x)| (*x..x + CELL).contains(&at.x))?;
    (row < map.tps.len()).then_some((row, column))
}

pub fn draw_map(
    buf: &mut Buffer,
    area: Rect,
    (map, compare, compared): (&HeatMap, &Compare, &Compared),
    cx: &Context,
) {
    let theme = cx.theme;
    let (dim, title) = (theme.style(Role::Dim), theme.style(Role::Title));
    draw_title(buf, area, map, compare, compared, theme);
    line(buf, area, 1, &[(&legend(map, compare, compared, area.width, cx), dim)]);
    let grid = MapGrid::new(area, compare.cursor.1);
    put(buf, area, area.x, area.y + 2, " batch", title);
    for (column, x) in grid.columns(map) {
        put(buf, area, x, area.y + 2, &format!("{:>9}", map.batches[column]), title);
    }
    let scale = Scale::of(map, compare.value);
    for (row, tp) in map.tps.iter().enumerate() {
        put(buf, area, area.x, grid.y(row), &format!(" tp{tp:<3}"), title);
        for (column, x) in grid.columns(map) {
            let place = Rect { x, y: grid.y(row), width: CELL, height: 1 }.intersection(area);
            let is_selected = (row, column) == compare.cursor;
            let selected = is_selected.then(|| theme.style(Role::Selected));
            match map.cell(*tp, map.batches[column]) {
                Some(cell) => draw_cell(buf, place, (cell, scale), selected, compare, theme),
                None => {
                    // as far right as a number
                    let why = format!("{:>9}", compare.why_none(*tp, map.batches[column]));
                    put(buf, place, place.x, place.y, &why, selected.unwrap_or(dim));
                }
            }
        }
        if grid.first_column + grid.visible_columns() < map.batches.len() {
            put(buf, area, area.right().saturating_sub(1), grid.y(row), "›", dim);
        }
    }
    let more: usize = map.cells.iter().map(|cell| cell.more).sum();
    if more > 0 {
        let words = format!(" + {more} further pairs at the same TP and batch are in the list");
        put(buf, area, area.x, grid.y(map.tps.len()), &words, theme.style(Role::Warn));
    }
}

/// Value and slice of the map, after the provenance unless the status row has it.
fn draw_title(
    buf: &mut Buffer,
    area: Rect,
    map: &HeatMap,
    compare: &Compare,
    compared: &Compared,
    theme: Theme,
) {
    let is_shared = compare.pair_settings(compared).provenance.is_some();
    let provenance = pairs_of(map, compare).map(|pair| pair.provenance).max().filter(|_| !is_shared);
    let label = provenance.map_or_else(String::new, |provenance| format!(" [{provenance}]"));
    let style = provenance.map_or(theme.style(Role::Dim), |provenance| theme.provenance(provenance));
    let short_name = match compare.value {
        HeatValue::Speedup => "tokens/s",
        HeatValue::ExposedPct => "exposed, % of TPOT",
        HeatValue::GapClosed => "gap closed",
    };
    let names = [compare.value.name(), short_name].map(|name| format!(" {name}: "));
    let used = label.width() + compare.slice_name().width();
    let name = first_fitting(&names, area.width.saturating_sub(used as u16));
    let pieces = [
        (label.as_str(), style),
        (name, theme.style(Role::Title)),
        (compare.slice_name(), theme.style(Role::Text)),
    ];
    line(buf, area, 0, &pieces);
}

/// Draws the shade, the number and the mark of a cell; `selected` replaces the style of the number.
fn draw_cell(
    buf: &mut Buffer,
    place: Rect,
    (cell, scale): (&HeatCell, Option<Scale>),
    selected: Option<Style>,
    compare: &Compare,
    theme: Theme,
) {
    let value = compare.value;
    let pair = compare.pairs().get(cell.pair);
    let shade = value.number(cell).zip(scale).map(|(number, scale)| SHADES[scale.shade(number)]);
    let role = match value {
        HeatValue::Speedup if !cell.differs => Role::Dim,
        HeatValue::Speedup if cell.speedup < 1.0 => Role::Bad,
        HeatValue::ExposedPct => Role::Exposed,
        _ => Role::Good,
    };
    put(buf, place, place.x, place.y, shade.unwrap_or("  "), theme.style(role));
    let mark = match cell.more {
        _ if pair.is_some_and(|pair| compare.is_marked(pair)) => "●",
        0 => "",
        _ => "+",
    };
    let tie = pair.filter(|_| value == HeatValue::Speedup).map_or("", |pair| tie_mark(pair.verdict));
    let number = value.number(cell).map_or_else(|| "-".to_owned(), |number| with_unit(value, number));
    let text = format!("{:>NUMBER$}{mark}", format!("{tie}{number}"));
    put(buf, place, place.x + SHADE, place.y, &text, selected.unwrap_or(theme.style(Role::Text)));
}

fn pairs_of<'a>(map: &HeatMap, compare: &'a Compare) -> impl Iterator<Item = &'a Comparison> {
    map.cells.iter().filter_map(move |cell| compare.pairs().get(cell.pair))
}

fn with_unit(value: HeatValue, number: f64) -> String {
    let decimals = value.decimals();
    match value {
        HeatValue::Speedup => format!("{number:.decimals$}x"),
        HeatValue::ExposedPct => format!("{number:.decimals$} %"),
        HeatValue::GapClosed => format!("{number:.decimals$}"),
    }
}

/// Scale of the shades, in fifths.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// Ratios, by their distance from 1, so that the largest slowdown is as solid as the largest gain, in a different
    /// colour.
    Ratio { farthest: f64 },
    /// Shares, from 0 and over a minimum width, so that small values do not look large.
    Share { low: f64, high: f64 },
}

impl Scale {
    /// Scale of a map's numbers; `None` if they all round to the same one, and the map has no shades.
    fn of(map: &HeatMap, value: HeatValue) -> Option<Self> {
        map.range(value).filter(|range| !is_one(value, *range)).map(|range| Self::over(value, range))
    }

    fn over(value: HeatValue, [low, high]: [f64; 2]) -> Self {
        let share_of = |least: f64| Self::Share { low: low.min(0.0), high: high.max(least) };
        match value {
            HeatValue::Speedup => Self::Ratio { farthest: distance(low).max(distance(high)) },
            HeatValue::ExposedPct => share_of(LEAST_PERCENT),
            HeatValue::GapClosed => share_of(1.0),
        }
    }

    /// Index of the shade of a number.
    fn shade(self, number: f64) -> usize {
        match self {
            Self::Ratio { farthest } => fifth(distance(number), [0.0, farthest]),
            Self::Share { low, high } => fifth(number, [low, high]),
        }
    }

    /// Least number of a shade.
    fn bound(self, shade: usize) -> f64 {
        let share = shade as f64 / SHADES.len() as f64;
        match self {
            Self::Ratio { farthest } => (farthest * share).exp(),
            Self::Share { low, high } => low + (high - low) * share,
        }
    }

    /// Shades with their least numbers: ` · 1.00 ░ 1.11 ▒ 1.22 ▓ 1.35 █ 1.50`.
    fn words(self, value: HeatValue) -> String {
        let decimals = value.decimals();
        let shades = SHADES.iter().enumerate().map(|(index, shade)| {
            let glyph = &shade[..shade.len() / 2];
            format!(" {glyph} {:.decimals$}", self.bound(index))
        });
        let end = match self {
            Self::Ratio { .. } => "x".to_owned(),
            Self::Share { high, .. } => format!(" to {}", with_unit(value, high)),
        };
        shades.collect::<String>() + &end
    }
}

/// True if all numbers round to the same displayed value.
fn is_one(value: HeatValue, [low, high]: [f64; 2]) -> bool {
    let decimals = value.decimals();
    format!("{low:.decimals$}") == format!("{high:.decimals$}")
}

/// Distance of a ratio from 1, symmetric for 2x and 0.5x.
fn distance(ratio: f64) -> f64 {
    ratio.max(f64::MIN_POSITIVE).ln().abs()
}

/// Fifth of the range in which a number falls.
fn fifth(number: f64, [low, high]: [f64; 2]) -> usize {
    // a value on a boundary belongs above it, despite rounding
    (((number - low) / (high - low) * SHADES.len() as f64 + 1e-9) as usize).min(SHADES.len() - 1)
}

/// Key of the slices, scale of the shades and meaning of the marks; remarks that do not fit are left out.
fn legend(map: &HeatMap, compare: &Compare, compared: &Compared, width: u16, cx: &Context) -> String {
    let slice = match compared.slices.len() {
        ..2 => String::new(),
        slices => {
            format!(" {}: slice {} of {slices} ", cx.key::<Compare>(Act::PickSlice), compare.slice + 1)
        }
    };
    let scale = slice + &scale_words(map.range(compare.value), compare.value);
    if compare.value != HeatValue::Speedup {
        return scale;
    }
    let has_mark = |mark: &str| pairs_of(map, compare).any(|pair| tie_mark(pair.verdict) == mark);
    let tie = tie_meaning(compare, compared);
    let meanings = |tie: &str| {
        let marks = [(TIE_MARK, tie), (UNKNOWN_MARK, "too few samples")];
        let used = marks.into_iter().filter(|(mark, _)| has_mark(mark));
        used.map(|(mark, meaning)| format!("  {mark} {meaning}")).collect::<String>()
    };
    let texts = [
        format!("{scale} faster or slower{}", meanings(&tie)),
        format!("{scale}{}", meanings(&tie)),
        format!("{scale}{}", meanings("tie")),
        scale,
    ];
    first_fitting(&texts, width).to_owned()
}

fn scale_words(range: Option<[f64; 2]>, value: HeatValue) -> String {
    match range {
        None => " no values for these cells".to_owned(),
        Some(range) if is_one(value, range) => format!(" {} everywhere", with_unit(value, range[0])),
        Some(range) => Scale::over(value, range).words(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_are_fifths_of_the_range() {
        let shades: Vec<usize> = [1.0, 1.19, 1.2, 1.5, 1.99, 2.0].map(|v| fifth(v, [1.0, 2.0])).into();
        assert_eq!(shades, [0, 0, 1, 2, 4, 4]);
        let alike = |value, number: f64| is_one(value, [number, number + 1e-4]);
        assert!(alike(HeatValue::ExposedPct, 5.0) && alike(HeatValue::Speedup, 2.0));
        assert!(!is_one(HeatValue::GapClosed, [0.5, 0.52]));
        let shade = |value, number: f64, range| Scale::over(value, range).shade(number);
        // a fifth of a percent is nothing, also where it is the most
        let shown = [0.0, 0.2, 27.0].map(|v| shade(HeatValue::ExposedPct, v, [0.0, v.max(0.2)]));
        assert_eq!(shown, [0, 0, 4]);
        assert_eq!(shade(HeatValue::GapClosed, 0.5, [0.4, 0.5]), 2, "half of all");
        // half as fast is as far from 1 as twice as fast
        let ratios = [0.5, 0.96, 1.04, 2.0].map(|v| shade(HeatValue::Speedup, v, [0.5, 2.0]));
        assert_eq!(ratios, [4, 0, 0, 4]);
    }

    #[test]
    fn a_scale_has_the_unit_of_its_numbers() {
        let words = |value, range| scale_words(Some(range), value);
        assert_eq!(words(HeatValue::Speedup, [2.0, 2.0]), " 2.00x everywhere");
        assert_eq!(words(HeatValue::ExposedPct, [0.0, 0.0]), " 0.0 % everywhere");
        assert_eq!(
            words(HeatValue::ExposedPct, [0.0, 20.0]),
            " · 0.0 ░ 4.0 ▒ 8.0 ▓ 12.0 █ 16.0 to 20.0 %"
        );
        assert!(words(HeatValue::Speedup, [0.5, 2.0]).ends_with("█ 1.74x"));
    }

    #[test]
    fn only_whole_columns_are_shown() {
        let grid = MapGrid::new(Rect::new(0, 0, 60, 16), 6);
        assert_eq!((grid.visible_columns(), grid.first_column), (5, 2));
    }
}
