//! P2P figure: tokens/s with P2P on and off by architecture and TP, one chart per batch size, and the cost of
//! switching it off, for one set of comparable cells ([`crate::analysis::comparable`]).

use super::axis::ValueAxis;
use super::bars::{Bar, BarChart, BarGroup, BarLabel, draw, values};
use super::figure::{Figure, FigureOptions, POINTS};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::Hatch;
use super::style::{GREY, Look, Looks, looks};
use super::{check_charts, group_note};
use crate::analysis::CellSet;
use base::error::{Error, Result};
use plan::Architecture;
use table::{P2p, Record};

/// Hatch of bars without P2P.
const OFF: Hatch = Hatch::Rising;

/// Draws the P2P figure of a set of comparable cells.
///
/// # Errors
///
/// Returns an error if the set has only one P2P setting, or there are too many charts.
pub fn p2p_figure(
    set: &CellSet,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    if set.values(|spec| spec.p2p).len() < 2 {
        return Err(Error::input_help(
            "nothing to plot: all runs have the same P2P setting",
            "run the same cells with --p2p on and --p2p off",
        ));
    }
    let batches = set.values(|spec| spec.batch);
    check_charts(batches.len(), "batch")?;
    let looks = looks(&set.values(|spec| spec.architecture.clone()));
    let entry = |(architecture, look): (&Architecture, &Look)| {
        LegendEntry::new(LegendKey::Bar { color: look.color, hatch: Hatch::None }, architecture)
    };
    let setting =
        |(hatch, name): (Hatch, &str)| LegendEntry::new(LegendKey::Bar { color: GREY, hatch }, name);
    let settings = [(Hatch::None, "P2P on"), (OFF, "P2P off")].map(setting);
    let legend = looks.iter().map(entry).chain(settings).collect();
    let mut remark = String::from("Above each pair: change in tokens/s with P2P off. No bar: no run");
    if set.has_intervals() {
        remark += ". Whiskers: 95 % bootstrap intervals";
    }
    let sheet = Sheet {
        options,
        provenance,
        title: "Throughput with P2P on and off".into(),
        note: group_note(&set.name),
        remark,
        legend,
    };
    let width = options.size.width * POINTS;
    let bars_in_all = looks.len() * 2 * set.values(|spec| spec.tp).len();
    // a bar of less than four points looks like a line
    let columns = ((width - 60.0) / (bars_in_all as f64 * 5.0).max(60.0)).floor();
    let columns = (columns.max(1.0) as usize).min(4);
    let names = ("TP (GPUs)", "tokens/s");
    let size = ChartSize { aspect: 0.5, height: 95.0..=180.0, least: (50.0, 46.0) };
    let (mut scene, cells) = sheet.charts((batches.len(), columns), size, names)?;
    let tps = set.values(|spec| spec.tp);
    let charts = batches.into_iter().map(|batch| {
        let groups: Vec<BarGroup> = tps.iter().map(|tp| p2p_group(set, *tp, batch, &looks)).collect();
        let y = ValueAxis::from_zero(values(&groups).into_iter());
        BarChart { title: format!("batch {batch}"), groups, y }
    });
    draw(&mut scene, &cells, &charts.collect::<Vec<_>>());
    Ok(Figure::new(scene, provenance, options))
}

fn p2p_group(set: &CellSet, tp: u32, batch: u32, looks: &Looks) -> BarGroup {
    let mut group = BarGroup { name: tp.to_string(), ..BarGroup::default() };
    for (architecture, look) in looks {
        let record_of = |p2p| set.get(architecture, tp, batch, p2p);
        let bar = |record: Option<&Record>, hatch| {
            let metrics = record?.metrics.as_ref()?;
            let interval = metrics.tokens_per_s_ci95;
            Some(Bar { value: metrics.tokens_per_s, interval, color: look.color, hatch })
        };
        let (on, off) = (bar(record_of(P2p::On), Hatch::None), bar(record_of(P2p::Off), OFF));
        if let (Some(on), Some(off)) = (&on, &off)
            && on.value > 0.0
        {
            let change = 100.0 * (off.value / on.value - 1.0);
            let first = group.bars.len();
            let text = match change.round() {
                0.0 => "0 %".into(),
                less if less < 0.0 => format!("−{:.0} %", -less),
                more => format!("+{more:.0} %"),
            };
            group.labels.push(BarLabel { first, last: first + 1, text });
        }
        group.bars.extend([on, off]);
    }
    group
}
