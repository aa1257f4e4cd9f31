//! The comparison figure: the speed-up of each matched pair with its interval, and a line at 1.

use std::collections::BTreeSet;
use std::path::Path;

use super::axis::{Axis, draw_horizontal};
use super::scene::{Align, Area, Color, Scene, Text};
use super::style::{GREY, INK, LABEL, Marker, NOTE, TICK, TITLE, look, provenance};
use super::surface::{check_format, save, text_width};
use crate::analysis::{Comparison, ComparisonReport};
use crate::error::{Error, Result};

const WIDTH: f64 = 1600.0;
const TOP: f64 = 180.0;
const ROW: f64 = 58.0;
/// Pairs in one figure; more are left out, and the figure says so.
const MOST_PAIRS: usize = 60;

/// Speed-ups of matched pairs with their intervals; format by extension (svg, png).
pub fn comparison(report: &ComparisonReport, path: &Path) -> Result<()> {
    check_format(path)?;
    save(&scene(report)?, path)
}

/// The figure, laid out.
pub(super) fn scene(report: &ComparisonReport) -> Result<Scene> {
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
    let (matched, baseline) = (only(|p| &p.matched), only(|p| &p.baseline));
    let names: Vec<String> = pairs.iter().map(|pair| row_name(pair, matched, baseline)).collect();
    let ratios: Vec<String> = pairs.iter().map(ratio).collect();
    let widest =
        |texts: &[String]| texts.iter().map(|text| text_width(text, NOTE, false)).fold(0.0, f64::max);
    let names_width = widest(&names).min(760.0);
    let area = Area {
        left: names_width + 70.0,
        right: WIDTH - widest(&ratios) - 60.0,
        top: TOP,
        bottom: TOP + ROW * pairs.len() as f64 + 20.0,
    };
    let mut scene = Scene::new(WIDTH as u32, (area.bottom + 190.0) as u32);

    scene.text(
        Text::new((40.0, 46.0), format!("Speed-up over {}", baseline.unwrap_or("the baseline")), TITLE)
            .bold(),
    );
    let mut subtitle = format!(
        "{}; {} comparisons",
        provenance(pairs.iter().map(|p| p.provenance)),
        report.comparisons
    );
    if pairs.len() < report.pairs.len() {
        subtitle.push_str(&format!(", the first {} shown", pairs.len()));
    }
    scene.text(Text::new((40.0, 98.0), subtitle, LABEL - 4.0).color(GREY));
    if let Some(matched) = matched {
        scene.text(Text::new((40.0, 144.0), fit(matched, WIDTH - 80.0), NOTE).color(GREY));
    }

    let values = pairs
        .iter()
        .flat_map(|p| p.speedup_ci95.unwrap_or([p.speedup; 2]).into_iter().chain([p.speedup]));
    let x = Axis::fit(values.chain([1.0]), area.left, area.right);
    draw_horizontal(&mut scene, &x, &area, "ratio of tokens/s (above 1: faster)");
    scene.line(vec![(x.place(1.0), area.top), (x.place(1.0), area.bottom)], INK, 3);
    scene.frame(area, INK, 2);
    scene.data.push(area);

    let mut values: Vec<&str> = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        if !values.contains(&pair.value.as_str()) {
            values.push(&pair.value);
        }
        let number = values.iter().position(|value| *value == pair.value).unwrap_or(0);
        // The baseline would have had the first look.
        let (color, marker) = look(number + 1);
        let y = area.top + 10.0 + ROW * (index as f64 + 0.5);
        scene.text(
            Text::new((area.left - 20.0, y), fit(&names[index], names_width), NOTE).align(Align::Right),
        );
        scene.text(Text::new((area.right + 20.0, y), ratios[index].as_str(), NOTE));
        if let Some([low, high]) = pair.speedup_ci95 {
            whisker(&mut scene, x.place(low), x.place(high), y, color);
        }
        scene.marker((x.place(pair.speedup), y), marker, 11.0, color, pair.differs);
    }
    draw_legend(&mut scene, area.bottom + 146.0);
    Ok(scene)
}

fn row_name(pair: &Comparison, matched: Option<&str>, baseline: Option<&str>) -> String {
    let mut name = pair.value.clone();
    if baseline.is_none() {
        name.push_str(&format!(" / {}", pair.baseline));
    }
    if matched.is_none() {
        name.push_str(&format!("  {}", pair.matched));
    }
    name
}

fn ratio(pair: &Comparison) -> String {
    match pair.speedup_ci95 {
        Some([low, high]) => format!("{:.3}  [{low:.3}, {high:.3}]", pair.speedup),
        None => format!("{:.3}", pair.speedup),
    }
}

/// The text, or its beginning where it is too wide.
fn fit(text: &str, width: f64) -> String {
    if text_width(text, NOTE, false) <= width {
        return text.to_owned();
    }
    let mut kept: String = text.to_owned();
    while !kept.is_empty() && text_width(&format!("{kept}…"), NOTE, false) > width {
        kept.pop();
    }
    kept + "…"
}

/// An interval: a line with ends.
fn whisker(scene: &mut Scene, from: f64, to: f64, y: f64, color: Color) {
    scene.line(vec![(from, y), (to, y)], color, 4);
    for x in [from, to] {
        scene.line(vec![(x, y - 10.0), (x, y + 10.0)], color, 4);
    }
}

fn draw_legend(scene: &mut Scene, y: f64) {
    let mut left = 60.0;
    for (filled, name) in [(true, "differs from 1"), (false, "does not, or too few samples to say")] {
        scene.marker((left, y), Marker::Circle, 11.0, GREY, filled);
        scene.text(Text::new((left + 30.0, y), name, TICK));
        left += text_width(name, TICK, false) + 110.0;
    }
}
