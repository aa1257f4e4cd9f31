//! First-token figure: time to first token by prompt length, and in percent of standard's; a row of charts per group of
//! cells that differ only in architecture and prompt length.

use std::collections::BTreeMap;

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Fill, Scene, Stroke};
use super::style::{Looks, looks};
use super::{check_charts, series_legend};
use crate::analysis::{GroupKey, group_names};
use base::error::{Error, Result};
use plan::Architecture;
use table::{Record, Spec, aggregate, host};

/// Latencies (ms) by prompt length, with their cells.
type FirstTokenLine<'a> = BTreeMap<u32, (f64, &'a Record)>;

/// Cells that differ only in architecture and prompt length.
struct FirstTokenGroup<'a> {
    spec: Spec,
    lines: BTreeMap<Architecture, FirstTokenLine<'a>>,
}

impl FirstTokenGroup<'_> {
    /// Percent of standard's latency; `None` without it.
    fn percent(&self, prompt: u32, ms: f64) -> Option<f64> {
        let (standard_ms, _) = self.lines.get(&Architecture::Standard)?.get(&prompt)?;
        Some(100.0 * ms / standard_ms)
    }
}

/// Draws cells that differ only in architecture and prompt length, two charts per group.
///
/// # Errors
///
/// Returns an error if no cells differ only in architecture and prompt length, if there are too many charts, or if the
/// page is too small.
pub fn first_token_figure(
    records: &[Record],
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let cells = aggregate(records);
    let mut groups: BTreeMap<GroupKey, FirstTokenGroup<'_>> = BTreeMap::new();
    for cell in &cells {
        let Some(metrics) = &cell.metrics else { continue };
        let (architecture, prompt) = (cell.spec.architecture.clone(), cell.spec.prompt_tokens);
        let spec = Spec { architecture: Architecture::Standard, prompt_tokens: 1, ..cell.spec.clone() };
        let group = groups.entry((cell.provenance, host(cell), spec.key()));
        let group = group.or_insert_with(|| FirstTokenGroup { spec, lines: BTreeMap::new() });
        group.lines.entry(architecture).or_default().insert(prompt, (metrics.prefill_ms, cell));
    }
    groups.retain(|_, group| group.lines.values().any(|line| line.len() > 1));
    if groups.is_empty() {
        return Err(Error::input_help(
            "no cells differ only in architecture and prompt length",
            "`ladderscope sweep farskip` makes some",
        ));
    }
    check_charts(2 * groups.len(), "batch")?;
    let looks = looks(groups.values().flat_map(|group| group.lines.keys()));
    let keys: Vec<_> = groups.iter().map(|(key, group)| (key, &group.spec)).collect();
    let names = group_names(&keys);
    let sheet = Sheet {
        options,
        provenance,
        title: "Time to first token by prompt length".into(),
        note: String::new(),
        remark: String::new(),
        legend: series_legend(&looks, false),
    };
    let columns = if options.is_narrow() { 1 } else { 2 };
    let axes = ("prompt (tokens)", "time to first token");
    let size = ChartSize { aspect: 0.5, height: 110.0..=230.0, least: (90.0, 80.0) };
    let (mut scene, areas) = sheet.charts((2 * groups.len(), columns), size, axes)?;
    for ((areas, group), name) in areas.chunks_exact(2).zip(groups.values()).zip(names) {
        let percent = |prompt, ms| group.percent(prompt, ms);
        draw(&mut scene, areas[0], &format!("{name} (ms)"), group, |_, ms| Some(ms), &looks);
        draw(&mut scene, areas[1], &format!("{name} (% of standard)"), group, percent, &looks);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn draw(
    scene: &mut Scene,
    area: Area,
    header: &str,
    group: &FirstTokenGroup<'_>,
    shown: impl Fn(u32, f64) -> Option<f64>,
    looks: &Looks,
) {
    let points = |line: &FirstTokenLine<'_>| -> Vec<(f64, f64)> {
        let point = |(prompt, (ms, _)): (&u32, &(f64, &Record))| {
            Some((f64::from(*prompt), shown(*prompt, *ms)?))
        };
        line.iter().filter_map(point).collect()
    };
    let all = || group.lines.values().flat_map(points);
    let axes = (ValueAxis::fit(all().map(|point| point.0)), ValueAxis::fit(all().map(|point| point.1)));
    let mut chart = Chart::new(scene, area, Some(header), axes).numbered();
    for (architecture, line) in &group.lines {
        let look = looks[architecture];
        chart.line(points(line), look.color, Stroke::Solid);
        for (prompt, (ms, record)) in line {
            let Some(value) = shown(*prompt, *ms) else { continue };
            let percent =
                group.percent(*prompt, *ms).map(|percent| format!(", {percent:.1} % of standard"));
            let (label, provenance) = (record.spec.label(), record.provenance);
            let tip = format!("{label}: {ms:.2} ms{} ({provenance})", percent.unwrap_or_default());
            chart.mark((f64::from(*prompt), value), look, Fill::Solid, tip);
        }
    }
}
