//! Comparison figure: speedup of each matched pair from [`crate::analysis::compare()`] with its interval, and
//! a line at 1.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{self, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{self, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Fill, SceneText};
use super::style::{FigureSizes, INK, Look, PLAIN, look, looks};
use super::{font, too_narrow};
use crate::analysis::{Comparison, ComparisonReport};
use base::error::{Error, Result};
use base::text::counted;
use plan::Architecture;

/// Maximum pairs in one figure; the caption says if there are more.
const MOST_PAIRS: usize = 60;

/// Draws speedups of matched pairs with their intervals, up to the maximum number of pairs. Returns an error
/// if there are no pairs or the page is too small for them.
pub fn comparison_figure(
    report: &ComparisonReport,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let pairs = &report.pairs[..report.pairs.len().min(MOST_PAIRS)];
    if pairs.is_empty() {
        return Err(Error::input_help(
            format!("nothing to plot: no two runs differ only by {}", report.by),
            "run cells that differ along this axis, or choose another with --by",
        ));
    }
    let only = |of: fn(&Comparison) -> &str| -> Option<&str> {
        let all: BTreeSet<&str> = pairs.iter().map(of).collect();
        all.first().copied().filter(|_| all.len() == 1)
    };
    let (matched, baseline, value) = (only(|p| &p.matched), only(|p| &p.baseline), only(|p| &p.value));
    // words that all rows share move to the title, but no row stays without a name
    let value = value.filter(|_| matched.is_none());
    let names: Vec<String> =
        pairs.iter().map(|pair| row_name(pair, [value, baseline, matched])).collect();
    let ratios: Vec<String> = pairs.iter().map(ratio).collect();

    // a filter may have left some of the pairs
    let mut remark = match report.pairs.len() {
        all if all == report.comparisons => counted(all, "comparison"),
        shown => format!("{shown} of {}", counted(report.comparisons, "comparison")),
    };
    if pairs.len() < report.pairs.len() {
        remark.push_str(&format!(", first {} shown", pairs.len()));
    }
    let looks = looks_of(report);
    let look_of = |pair: &Comparison| looks.get(pair.value.as_str()).copied().unwrap_or_else(|| look(1));
    // a shape of the chart; grey if several colours have it
    let shown = look_of(&pairs[0]);
    let is_one = pairs.iter().all(|pair| pair.value == pairs[0].value);
    let color = if is_one { shown.color } else { PLAIN.color };
    let key = |fill| LegendKey::Marker { look: Look { color, ..shown }, fill };
    let sheet = Sheet {
        options,
        provenance,
        title: title(&report.by, value, baseline),
        note: matched.map(str::to_owned).unwrap_or_default(),
        remark,
        legend: vec![
            LegendEntry::new(key(Fill::Solid), "differs from 1"),
            LegendEntry::new(key(Fill::Hollow), "no difference, or too few samples"),
        ],
    };
    let sizes = FigureSizes::new(options.font);
    let count = pairs.len() as f64;
    let under = axis::under(&sizes) + 1.4 * sizes.label;
    let (mut scene, all) = sheet.lay_out(
        count * 1.55 * sizes.tick + under + 0.5 * sizes.tick,
        (150.0, count * 1.2 * sizes.note + under),
    )?;
    let widest =
        |texts: &[String]| texts.iter().map(|t| font::width(t, sizes.note, false)).fold(0.0, f64::max);
    let names_width = widest(&names).min(0.5 * all.width());
    let area = Area {
        left: all.left + names_width + 0.9 * sizes.tick,
        right: all.right - widest(&ratios) - 0.9 * sizes.tick,
        top: all.top + 0.3 * sizes.tick,
        bottom: all.bottom - under,
    };
    if area.width() < 40.0 {
        return Err(too_narrow(options));
    }
    let values = pairs
        .iter()
        .flat_map(|p| p.speedup_ci95.unwrap_or([p.speedup; 2]).into_iter().chain([p.speedup]));
    let x = ValueAxis::fit(values.chain([1.0])).over(area.left, area.right);
    axis::horizontal(&mut scene, &x, &area);
    layout::name_below(&mut scene, all, area.center().0, "speedup in tokens/s (above 1: faster)");
    scene.line(vec![(x.place(1.0), area.top), (x.place(1.0), area.bottom)], INK, sizes.line * 0.7);
    layout::frame(&mut scene, area);

    let row = area.height() / count;
    for (index, pair) in pairs.iter().enumerate() {
        let look = look_of(pair);
        let y = area.top + row * (index as f64 + 0.5);
        let name = font::fit(&names[index], sizes.note, names_width);
        let at = (area.left - 0.6 * sizes.tick, y);
        scene.text(SceneText::new(at, name, sizes.note).align(Align::Right));
        let at = (area.right + 0.6 * sizes.tick, y);
        scene.text(SceneText::new(at, ratios[index].as_str(), sizes.note));
        if let Some([low, high]) = pair.speedup_ci95 {
            scene.interval((x.place(low), y), (x.place(high), y), look.color, sizes.line * 0.8);
        }
        let fill = if pair.matters() { Fill::Solid } else { Fill::Hollow };
        scene.marker((x.place(pair.speedup), y), look, sizes.marker, fill);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn title(by: &str, value: Option<&str>, baseline: Option<&str>) -> String {
    // an architecture's name explains itself; `on` or `8` does not
    let axis = if by == "architecture" { String::new() } else { format!("{by} ") };
    let value_words = value.map(|value| format!(" of {axis}{value}")).unwrap_or_default();
    match baseline {
        Some(baseline) => format!("Speedup{value_words} over {axis}{baseline}"),
        None => format!("Speedup{value_words} over the baseline, by {by}"),
    }
}

/// Name of a pair's row: the words that not all rows share.
fn row_name(pair: &Comparison, [value, baseline, matched]: [Option<&str>; 3]) -> String {
    let words = [
        value.is_none().then(|| pair.value.clone()),
        baseline.is_none().then(|| format!("/ {}", pair.baseline)),
        matched.is_none().then(|| format!(" {}", pair.matched)),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ").trim_start().to_owned()
}

/// Look of each value, with the usual looks for architectures. The first look is reserved for the baseline.
fn looks_of(report: &ComparisonReport) -> BTreeMap<&str, Look> {
    let values: BTreeSet<&str> = report.pairs.iter().map(|pair| pair.value.as_str()).collect();
    let architectures: Vec<Architecture> = match report.by.as_str() {
        "architecture" => values.iter().filter_map(|value| value.parse().ok()).collect(),
        _ => Vec::new(),
    };
    let known = looks(architectures.iter().chain([&Architecture::Standard]));
    let look_of = |index: usize, value: &str| {
        let architecture = value.parse::<Architecture>().ok();
        architecture.and_then(|a| known.get(&a).copied()).unwrap_or_else(|| look(index + 1))
    };
    values.into_iter().enumerate().map(|(index, value)| (value, look_of(index, value))).collect()
}

fn ratio(pair: &Comparison) -> String {
    match pair.speedup_ci95 {
        Some([low, high]) => format!("{:.3}  [{low:.3}, {high:.3}]", pair.speedup),
        None => format!("{:.3}", pair.speedup),
    }
}
