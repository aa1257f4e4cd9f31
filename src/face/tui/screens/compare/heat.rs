//! Heat map over TP and batch, or over two other settings: a shade and a number per cell, with marks on cells without a
//! clear difference.

use super::Act;
use super::compared::{AxisComparison, side_names};
use super::state::Compare;
use crate::face::tui::prelude::*;
use study::analysis::{Axis, Comparison, HeatCell, HeatMap, HeatValue};

const SHADES: [&str; 5] = ["··", "░░", "▒▒", "▓▓", "██"];

/// Minimum top of the exposed-communication scale, as a share of TPOT in percent.
const LEAST_PERCENT: f64 = 5.0;

/// Least widths of a cell, and of the labels of the rows.
const CELL: u16 = 10;
const LABELS: u16 = 7;

/// Greatest width of a label; longer ones are cut.
const LONGEST_LABEL: u16 = 18;

/// Columns of a cell's shade, and of the number beside it.
const SHADE: u16 = 2;
const NUMBER: usize = 7;

/// Rows above the cells: the slice name, the scale, and the labels of the columns.
pub const HEAD: u16 = 3;

/// Placement of the cells in a window: whole columns, from the first visible one on.
#[derive(Clone, Copy, Debug)]
struct MapGrid {
    area: Rect,
    labels: u16,
    cell: u16,
    first_column: usize,
}

impl MapGrid {
    /// Scrolls so that the column of the cursor is visible.
    fn new(area: Rect, map: &HeatMap, cursor_column: usize) -> Self {
        let widest = |labels: &[String]| {
            labels.iter().map(|label| label.width() as u16).max().unwrap_or(0).min(LONGEST_LABEL)
        };
        let rows: Vec<String> =
            (0..map.rows.len()).map(|row| row_label(map, row)).chain([corner(map)]).collect();
        let labels = (widest(&rows) + 2).max(LABELS);
        let cell = (widest(&map.columns) + 2).max(CELL);
        let grid = Self { area, labels, cell, first_column: 0 };
        Self { first_column: (cursor_column + 1).saturating_sub(grid.visible_columns()), ..grid }
    }

    fn visible_columns(&self) -> usize {
        usize::from(self.area.width.saturating_sub(self.labels) / self.cell).max(1)
    }

    /// Columns of a map that fit, with their first column in the window.
    fn columns(&self, map: &HeatMap) -> impl Iterator<Item = (usize, u16)> + use<> {
        let columns = self.first_column..map.columns.len();
        let (first_x, width) = (self.area.x + self.labels, self.cell);
        let shown = (0..).zip(columns).take(self.visible_columns());
        shown.map(move |(place, column)| (column, first_x + place * width))
    }

    fn y(&self, row: usize) -> u16 {
        self.area.y + HEAD + row as u16
    }

    /// Text as far right as the numbers of a column.
    fn right_aligned(&self, text: &str) -> String {
        let width = usize::from(self.cell - 1);
        format!("{:>width$}", cut(text, self.cell - 1))
    }
}

/// Label of a row: `tp8`, or the value of another setting.
fn row_label(map: &HeatMap, row: usize) -> String {
    match map.slice.axes.rows {
        Axis::TP => format!("tp{}", map.rows[row]),
        _ => map.rows[row].clone(),
    }
}

/// Names of the settings: that of the columns, and that of the rows unless these name it.
fn corner(map: &HeatMap) -> String {
    let axes = &map.slice.axes;
    match axes.rows {
        Axis::TP => axes.columns.to_string(),
        _ => format!("{} / {}", axes.rows, axes.columns),
    }
}

/// Cell (row, column) at a window position.
pub fn cell_at(area: Rect, map: &HeatMap, cursor_column: usize, at: Position) -> Option<(usize, usize)> {
    let grid = MapGrid::new(area, map, cursor_column);
    let row = usize::from(at.y.checked_sub(area.y + HEAD)?);
    let (column, _) = grid.columns(map).find(|(_, x)| (*x..x + grid.cell).contains(&at.x))?;
    (row < map.rows.len()).then_some((row, column))
}

pub fn draw_map(
    buf: &mut Buffer,
    area: Rect,
    (map, compare, compared): (&HeatMap, &Compare, &AxisComparison),
    legend: &MapLegend,
    theme: Theme,
) {
    let (dim, title) = (theme.style(Role::Dim), theme.style(Role::Title));
    draw_title(buf, area, map, compare, compared, theme);
    line(buf, area, 1, &[(&legend.row, dim)]);
    let grid = MapGrid::new(area, map, compare.cursor.1);
    put(buf, area, area.x + 1, area.y + 2, &cut(&corner(map), grid.labels - 2), title);
    for (column, x) in grid.columns(map) {
        put(buf, area, x, area.y + 2, &grid.right_aligned(&map.columns[column]), title);
    }
    for row in 0..map.rows.len() {
        put(buf, area, area.x + 1, grid.y(row), &cut(&row_label(map, row), grid.labels - 2), title);
        for (column, x) in grid.columns(map) {
            let place = Rect { x, y: grid.y(row), width: grid.cell, height: 1 }.intersection(area);
            let is_selected = (row, column) == compare.cursor;
            let selected = is_selected.then(|| theme.style(Role::Selected));
            match map.cell(row, column) {
                Some(cell) => {
                    // as far right as the label of the column
                    let place = cut_left(place, grid.cell - CELL).1;
                    draw_cell(buf, place, (cell, legend.scale), selected, compare, theme);
                }
                None => {
                    let why = grid.right_aligned(compare.why_none(row, column));
                    put(buf, place, place.x, place.y, &why, selected.unwrap_or(dim));
                }
            }
        }
        if grid.first_column + grid.visible_columns() < map.columns.len() {
            put(buf, area, area.right().saturating_sub(1), grid.y(row), "›", dim);
        }
    }
    let more: usize = map.cells.iter().map(|cell| cell.more).sum();
    if more > 0 {
        let words = format!(" + {more} further pairs at the same place are in the list");
        put(buf, area, area.x, grid.y(map.rows.len()), &words, theme.style(Role::Warn));
    }
}

/// Value and slice of the map, after the provenance unless the status row has it.
fn draw_title(
    buf: &mut Buffer,
    area: Rect,
    map: &HeatMap,
    compare: &Compare,
    compared: &AxisComparison,
    theme: Theme,
) {
    let is_shared = compare.pair_settings(compared).provenance.is_some();
    let provenance = pairs_of(map, compare).map(|pair| pair.provenance).max().filter(|_| !is_shared);
    let label = provenance.map_or_else(String::new, |provenance| format!(" [{provenance}]"));
    let style = provenance.map_or(theme.style(Role::Dim), |provenance| theme.provenance(provenance));
    let pair = pairs_of(map, compare).next().filter(|_| map.slice.value.is_some());
    let compared = pair.map(|pair| side_names(&compared.axis, pair)[1].clone());
    let names = titles(map, compare.value, compare.slice_name(), compared.as_deref());
    let name = first_fitting(&names, area.width.saturating_sub(label.width() as u16));
    line(buf, area, 0, &[(&label, style), (name, theme.style(Role::Title))]);
}

/// Titles of a map, the longest first; the first ones start with the question that the map answers. Ratios name both sides,
/// other values only the compared one; `compared` is its name, `P2P off`.
fn titles(map: &HeatMap, value: HeatValue, slice_name: &str, compared: Option<&str>) -> Vec<String> {
    let ratio = map.slice.named("");
    let setting = slice_name.strip_prefix(&ratio).unwrap_or_default();
    let own = |word: &str| compared.map_or_else(String::new, |compared| format!(" {word} {compared}"));
    let (of, by) = (own("of"), own("by"));
    let names = match value {
        HeatValue::Speedup => {
            [format!(" {}: {slice_name}", value.name()), format!(" tokens/s: {slice_name}")]
        }
        HeatValue::ExposedPct => [
            format!(" exposed communication{of}, % of TPOT{setting}"),
            format!(" exposed{of}, % of TPOT{setting}"),
        ],
        HeatValue::GapClosed => [
            format!(" gap closed{by}: 1 is as fast as upper-bound{setting}"),
            format!(" gap closed{by}{setting}"),
        ],
    };
    let question = compared.map(|compared| match value {
        HeatValue::Speedup => format!(" Where is {compared} faster?"),
        HeatValue::ExposedPct => format!(" Where does {compared} still wait?"),
        HeatValue::GapClosed => format!(" How close is {compared} to upper-bound?"),
    });
    let asked: Vec<String> = question
        .iter()
        .flat_map(|question| names.iter().map(move |name| format!("{question}{name}")))
        .collect();
    asked.into_iter().chain(names.iter().cloned()).collect()
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
    let number = pair.and_then(|pair| value.number(pair));
    let shade = number.zip(scale).map(|(number, scale)| SHADES[scale.shade(number, value)]);
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
    let tie = if value == HeatValue::Speedup { compare.marks_of(cell.pair) } else { String::new() };
    let number = number.map_or_else(|| "-".to_owned(), |number| with_unit(value, number));
    let text = format!("{:>NUMBER$}{mark}", format!("{tie}{number}"));
    put(buf, place, place.x + SHADE, place.y, &text, selected.unwrap_or(theme.style(Role::Text)));
}

fn pairs_of<'a>(map: &HeatMap, compare: &'a Compare) -> impl Iterator<Item = &'a Comparison> {
    map.cells.iter().filter_map(move |cell| compare.pairs().get(cell.pair))
}

fn with_unit(value: HeatValue, number: f64) -> String {
    let decimals = value.decimals();
    format!("{number:.decimals$}{}", unit(value))
}

fn unit(value: HeatValue) -> &'static str {
    match value {
        HeatValue::Speedup => "x",
        HeatValue::ExposedPct => " %",
        HeatValue::GapClosed => "",
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
    fn over(value: HeatValue, [low, high]: [f64; 2]) -> Self {
        let share_of = |least: f64| Self::Share { low: low.min(0.0), high: high.max(least) };
        match value {
            HeatValue::Speedup => Self::Ratio { farthest: distance(low).max(distance(high)) },
            HeatValue::ExposedPct => share_of(LEAST_PERCENT),
            HeatValue::GapClosed => share_of(1.0),
        }
    }

    /// Index of the shade of a number. Both the number and the bounds count as they are shown, so that no cell contradicts
    /// the key.
    fn shade(self, number: f64, value: HeatValue) -> usize {
        let number = match self {
            Self::Ratio { .. } if number < 1.0 => 1.0 / number.max(f64::MIN_POSITIVE),
            _ => number,
        };
        let shown = |number: f64| (number * 10f64.powf(value.decimals() as f64)).round();
        (1..SHADES.len()).take_while(|shade| shown(number) >= shown(self.bound(*shade))).count()
    }

    /// Least number of a shade: the shades are fifths of the scale.
    fn bound(self, shade: usize) -> f64 {
        let share = shade as f64 / SHADES.len() as f64;
        match self {
            Self::Ratio { farthest } => (farthest * share).exp(),
            Self::Share { low, high } => low + (high - low) * share,
        }
    }

    /// Shades with the numbers that have them: ` ·· <1.11  ░░ ≥1.11  ▒▒ ≥1.22  ▓▓ ≥1.35  ██ ≥1.50x`.
    fn words(self, value: HeatValue, is_short: bool) -> String {
        let decimals = value.decimals();
        let (columns, gap) = if is_short { (1, " ") } else { (2, "  ") };
        let shades: Vec<String> = SHADES
            .iter()
            .enumerate()
            .map(|(index, shade)| {
                let glyph: String = shade.chars().take(columns).collect();
                match index {
                    0 => format!("{glyph} <{:.decimals$}", self.bound(1)),
                    _ => format!("{glyph} ≥{:.decimals$}", self.bound(index)),
                }
            })
            .collect();
        format!(" {}{}", shades.join(gap), unit(value))
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

/// Explanation of the shades and marks of a map.
pub struct MapLegend {
    /// Scale of the numbers of all slices; `None` if they all round to the same one, and the map has no shades.
    scale: Option<Scale>,
    /// Key of the slices, scale, and meanings of the marks if they fit.
    row: String,
    /// Meanings of the marks, if the row has no room for them.
    pub marks: String,
}

impl MapLegend {
    pub fn new(map: &HeatMap, compare: &Compare, width: u16, cx: &Context) -> Self {
        let (value, slices) = (compare.value, &compare.slices_shown);
        let range = compare.ranges[value as usize];
        let scale = range.filter(|range| !is_one(value, *range)).map(|range| Scale::over(value, range));
        let at = slices.iter().position(|(slice, _)| *slice == compare.slice).unwrap_or_default();
        let (slice, [same, all]) = match slices.len() {
            ..2 => (String::new(), ["", ""]),
            count => {
                let slice =
                    format!(" {}: slice {} of {count} ", cx.key::<Compare>(Act::PickSlice), at + 1);
                (slice, [", the same in all slices", ", all slices"])
            }
        };
        let [long, short] = [false, true].map(|is_short| scale_words(range, value, is_short));
        let [marks, brief] =
            [compare.marks.tie.as_str(), "tie"].map(|tie| mark_meanings(map, compare, tie));
        let with_marks = [
            format!("{slice}{long}{same}{marks}"),
            format!("{slice}{long}{all}{marks}"),
            format!("{slice}{short}{all}{marks}"),
            format!("{slice}{short}{all}{brief}"),
            format!("{slice}{short}{brief}"),
        ];
        let fits = |text: &&String| text.width() <= width.into();
        match with_marks.iter().find(fits) {
            Some(row) => Self { scale, row: row.clone(), marks: String::new() },
            None => {
                let row = first_fitting(&[format!("{slice}{short}"), short], width).to_owned();
                Self { scale, row, marks }
            }
        }
    }
}

/// Meanings of the marks on a map, of which ratios alone have some.
fn mark_meanings(map: &HeatMap, compare: &Compare, tie: &str) -> String {
    let marks: String = match compare.value {
        HeatValue::Speedup => map.cells.iter().map(|cell| compare.marks_of(cell.pair)).collect(),
        _ => String::new(),
    };
    let all = [
        ("★", "fastest"),
        ("≈", tie),
        ("?", compare.marks.unknown),
        ("!", "above the upper bound: noise"),
    ];
    let used = all.into_iter().filter(|(mark, _)| marks.contains(mark));
    used.map(|(mark, meaning)| format!("  {mark} {meaning}")).collect()
}

fn scale_words(range: Option<[f64; 2]>, value: HeatValue, is_short: bool) -> String {
    match range {
        None => " no values for these cells".to_owned(),
        Some(range) if is_one(value, range) => format!(" {} everywhere", with_unit(value, range[0])),
        Some(range) => {
            let scale = Scale::over(value, range);
            let last = scale.bound(SHADES.len() - 1);
            let slower = match value {
                HeatValue::Speedup if range[0] < 1.0 => format!(" or ≤{:.2}x", 1.0 / last),
                _ => String::new(),
            };
            scale.words(value, is_short) + &slower
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::analysis::{HeatAxes, HeatSlice};

    #[test]
    fn shades_are_fifths_of_the_range() {
        let alike = |value, number: f64| is_one(value, [number, number + 1e-4]);
        assert!(alike(HeatValue::ExposedPct, 5.0) && alike(HeatValue::Speedup, 2.0));
        assert!(!is_one(HeatValue::GapClosed, [0.5, 0.52]));
        let shade = |value, number: f64, range| Scale::over(value, range).shade(number, value);
        // a fifth of a percent is nothing, also where it is the most
        let shown = [0.0, 0.2, 27.0].map(|v| shade(HeatValue::ExposedPct, v, [0.0, v.max(0.2)]));
        assert_eq!(shown, [0, 0, 4]);
        assert_eq!(shade(HeatValue::GapClosed, 0.5, [0.4, 0.5]), 2, "half of all");
        // half as fast is as far from 1 as twice as fast
        let ratios = [0.5, 0.96, 1.04, 2.0].map(|v| shade(HeatValue::Speedup, v, [0.5, 2.0]));
        assert_eq!(ratios, [4, 0, 0, 4]);
        // the key says <1.06 or ≥1.06, and the cell 1.06x
        let bound = Scale::over(HeatValue::Speedup, [1.0, 1.34]).bound(1);
        assert!(1.06 < bound && bound < 1.065, "{bound}");
        assert_eq!(shade(HeatValue::Speedup, 1.0601, [1.0, 1.34]), 1);
    }

    #[test]
    fn a_scale_has_the_unit_of_its_numbers() {
        let words = |value, range| scale_words(Some(range), value, true);
        assert_eq!(words(HeatValue::Speedup, [2.0, 2.0]), " 2.00x everywhere");
        assert_eq!(words(HeatValue::ExposedPct, [0.0, 0.0]), " 0.0 % everywhere");
        assert_eq!(words(HeatValue::ExposedPct, [0.0, 20.0]), " · <4.0 ░ ≥4.0 ▒ ≥8.0 ▓ ≥12.0 █ ≥16.0 %");
        assert!(words(HeatValue::Speedup, [0.5, 2.0]).ends_with("█ ≥1.74x or ≤0.57x"));
        assert!(words(HeatValue::Speedup, [1.0, 2.0]).ends_with("█ ≥1.74x"));
    }

    #[test]
    fn only_whole_columns_are_shown_and_a_share_is_of_one_side() {
        let map = HeatMap {
            by: "architecture".into(),
            slice: HeatSlice {
                baseline: "standard".into(),
                value: Some("ladder".into()),
                rest: String::new(),
                pairs: 0,
                members: Vec::new(),
                axes: HeatAxes::default(),
            },
            tps: vec![2],
            batches: (1..=8).collect(),
            rows: vec!["2".into()],
            columns: (1..=8).map(|batch| batch.to_string()).collect(),
            cells: Vec::new(),
        };
        let grid = MapGrid::new(Rect::new(0, 0, 60, 16), &map, 6);
        assert_eq!((grid.visible_columns(), grid.first_column), (5, 2));
        let titles = titles(&map, HeatValue::ExposedPct, "ladder / standard  p2p-on", Some("ladder"));
        let short = " exposed of ladder, % of TPOT  p2p-on";
        assert_eq!(titles.last().map(String::as_str), Some(short), "a share has one side");
        assert_eq!(titles[1], format!(" Where does ladder still wait?{short}"));
    }
}
