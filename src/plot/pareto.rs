//! The Pareto figure: completion latency against throughput per GPU, a panel a group of comparable
//! runs, a frontier line per architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::axis::{Axis, draw_horizontal, draw_vertical};
use super::scene::{Area, Color, Scene, Text};
use super::style::{GREY, INK, LABEL, Marker, NOTE, TITLE, faded, looks, provenance};
use super::surface::{check_format, save, text_width};
use crate::analysis::{ParetoPoint, frontier};
use crate::error::{Error, Result};
use crate::plan::Architecture;
use crate::spec::P2p;

/// Panels in one figure; with more of them nobody finds anything.
const MOST_PANELS: usize = 12;

type Looks = BTreeMap<Architecture, (Color, Marker)>;

/// Latency against per-GPU throughput, frontier per architecture; format by extension (svg, png). Runs
/// that are not comparable (other model, workload, hardware, provenance) get a panel each.
pub fn pareto(points: &[ParetoPoint], path: &Path) -> Result<()> {
    check_format(path)?;
    save(&scene(points)?, path)
}

/// The figure, laid out.
pub(super) fn scene(points: &[ParetoPoint]) -> Result<Scene> {
    let mut groups: Vec<(&str, Vec<&ParetoPoint>)> = Vec::new();
    for point in points {
        match groups.iter_mut().find(|(name, _)| *name == point.group) {
            Some((_, members)) => members.push(point),
            None => groups.push((&point.group, vec![point])),
        }
    }
    let Some((_, first)) = groups.first() else {
        return Err(Error::input_help(
            "no run to plot: none of them ended well",
            "`ladderscope runs` lists them and says why",
        ));
    };
    if groups.len() > MOST_PANELS {
        return Err(Error::input_help(
            format!("{} groups of runs that are not comparable with each other", groups.len()),
            format!("choose runs of at most {MOST_PANELS} models, workloads and machines"),
        ));
    }

    let looks = looks(points.iter().map(|point| &point.spec.architecture));
    let (columns, rows) = match groups.len() {
        1 => (1, 1),
        n => (2, n.div_ceil(2)),
    };
    let legend = legend_width(&looks);
    let panel =
        (if columns == 1 { 1600.0 - legend } else { 1000.0 }, if columns == 1 { 860.0 } else { 820.0 });
    let top = 140.0;
    let width = panel.0 * columns as f64 + legend;
    let mut scene = Scene::new(width as u32, (top + panel.1 * rows as f64) as u32);

    let spec = &first[0].spec;
    let title = match groups.len() {
        1 => format!(
            "{}, {} prompt + {} output tokens",
            spec.model, spec.prompt_tokens, spec.output_tokens
        ),
        n => format!("Latency and throughput per GPU, {n} groups of runs"),
    };
    scene.text(Text::new((40.0, 46.0), title, TITLE).bold());
    let origin = provenance(points.iter().map(|point| point.provenance));
    scene.text(Text::new((40.0, 100.0), origin, LABEL).color(GREY));

    for (index, (name, members)) in groups.iter().enumerate() {
        let (left, above) =
            ((index % columns) as f64 * panel.0, top + (index / columns) as f64 * panel.1);
        let note = Text::new((left + 40.0, above + 8.0), *name, NOTE).color(GREY);
        let below = scene.paragraph(&note, panel.0 - 60.0);
        let area = Area {
            left: left + 190.0,
            right: left + panel.0 - 30.0,
            top: below + 10.0,
            bottom: above + panel.1 - 130.0,
        };
        draw_panel(&mut scene, area, members, &looks);
    }
    draw_legend(&mut scene, width - legend + 20.0, top + 60.0, &looks, points);
    Ok(scene)
}

fn draw_panel(scene: &mut Scene, area: Area, points: &[&ParetoPoint], looks: &Looks) {
    let x = Axis::fit(points.iter().map(|p| p.completion_ms), area.left, area.right);
    let y = Axis::fit(points.iter().map(|p| p.tokens_per_s_per_gpu), area.bottom, area.top);
    draw_horizontal(scene, &x, &area, "completion latency (ms)");
    draw_vertical(scene, &y, &area, "tokens/s per GPU");
    scene.frame(area, INK, 2);
    scene.data.push(area);

    let place = |p: &ParetoPoint| (x.place(p.completion_ms), y.place(p.tokens_per_s_per_gpu));
    let owned: Vec<ParetoPoint> = points.iter().map(|point| (*point).clone()).collect();
    // Lines first, then what is dominated, then the frontiers, so that what matters is never covered.
    let mut best: BTreeSet<&str> = BTreeSet::new();
    for (architecture, (color, _)) in looks {
        let line = frontier(&owned, |point| point.spec.architecture == *architecture);
        best.extend(line.iter().map(|point| point.run.as_str()));
        let line: Vec<_> = line.into_iter().map(place).collect();
        if *architecture == Architecture::UpperBound {
            scene.dashed(&line, *color, 3);
        } else if line.len() > 1 {
            scene.line(line, *color, 4);
        }
    }
    for on_frontier in [false, true] {
        for point in owned.iter().filter(|point| best.contains(point.run.as_str()) == on_frontier) {
            let Some(&(color, marker)) = looks.get(&point.spec.architecture) else { continue };
            let (color, radius) = if on_frontier { (color, 12.0) } else { (faded(color), 9.0) };
            scene.marker(place(point), marker, radius, color, point.spec.p2p == P2p::On);
        }
    }
}

/// Texts of the legend below the architectures, by what is shown.
const P2P: [(P2p, &str); 2] = [(P2p::On, "P2P on"), (P2p::Off, "P2P off")];
const DOMINATED: &str = "dominated";

fn legend_width(looks: &Looks) -> f64 {
    let names =
        looks.keys().map(Architecture::to_string).chain([DOMINATED.to_owned(), "P2P off".into()]);
    names.map(|name| text_width(&name, LABEL, false)).fold(0.0, f64::max) + 130.0
}

fn draw_legend(scene: &mut Scene, left: f64, top: f64, looks: &Looks, points: &[ParetoPoint]) {
    let mut y = top;
    let mut entry = |scene: &mut Scene, name: String| {
        let at = (left + 35.0, y);
        scene.text(Text::new((left + 80.0, y), name, LABEL));
        y += 56.0;
        at
    };
    for (architecture, (color, marker)) in looks {
        let at = entry(scene, architecture.to_string());
        let line = [(at.0 - 32.0, at.1), (at.0 + 32.0, at.1)];
        if *architecture == Architecture::UpperBound {
            scene.dashed(&line, *color, 3);
        } else {
            scene.line(line.to_vec(), *color, 4);
        }
        scene.marker(at, *marker, 12.0, *color, true);
    }
    for (p2p, name) in P2P.into_iter().filter(|(p2p, _)| points.iter().any(|p| p.spec.p2p == *p2p)) {
        let at = entry(scene, name.into());
        scene.marker(at, Marker::Circle, 12.0, GREY, p2p == P2p::On);
    }
    let at = entry(scene, DOMINATED.into());
    scene.marker(at, Marker::Circle, 9.0, faded(GREY), true);
}
