//! P2P figure: tokens/s with P2P on and off by architecture and TP, one chart per batch size, and the cost of
//! switching it off, for one set of comparable cells ([`crate::analysis::comparable`]).

use super::axis::Axis;
use super::bars::{self, Bar, Group};
use super::figure::Figure;
use super::layout::{Entry, Key, Sheet};
use super::options::{Options, POINTS};
use super::provenance::ProvenanceSummary;
use super::style::{GREY, Looks, looks};
use super::{MOST_CHARTS, group_note, too_many};
use crate::analysis::CellSet;
use base::error::{Error, Result};
use table::{P2p, Record};

const OFF: usize = 1;

/// Draws the P2P figure of a set of comparable cells.
///
/// # Errors
///
/// Returns an error if the set has only one P2P setting, or there are too many charts.
pub fn p2p_figure(set: &CellSet, provenance: &ProvenanceSummary, options: &Options) -> Result<Figure> {
    if set.values(|spec| spec.p2p).len() < 2 {
        return Err(Error::input_help(
            "nothing to plot: all runs have the same P2P setting",
            "run the same cells with --p2p on and --p2p off",
        ));
    }
    let batches = set.values(|spec| spec.batch);
    if batches.len() > MOST_CHARTS {
        return Err(too_many(batches.len(), "batch"));
    }
    let looks = looks(&set.values(|spec| spec.architecture.clone()));
    let mut legend: Vec<Entry> = looks
        .iter()
        .map(|(architecture, look)| {
            Entry::new(Key::Bar { color: look.color, hatch: 0 }, architecture.to_string())
        })
        .collect();
    for (hatch, name) in [(0, "P2P on"), (OFF, "P2P off")] {
        legend.push(Entry::new(Key::Bar { color: GREY, hatch }, name));
    }
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
    let (mut scene, cells, sizes) = sheet.charts(
        (batches.len(), columns),
        (0.5, 95.0..=180.0),
        (50.0, 46.0),
        ("TP (GPUs)", "tokens/s"),
    )?;
    let tps = set.values(|spec| spec.tp);
    let charts = batches.into_iter().map(|batch| {
        let groups: Vec<Group> = tps.iter().map(|tp| group(set, *tp, batch, &looks)).collect();
        let y = Axis::from_zero(bars::values(&groups).into_iter());
        (format!("batch {batch}"), groups, y)
    });
    bars::draw(&mut scene, &cells, &charts.collect::<Vec<_>>(), &sizes);
    Ok(Figure::new(scene, provenance, options))
}

fn group(set: &CellSet, tp: u32, batch: u32, looks: &Looks) -> Group {
    let mut group = Group { name: tp.to_string(), ..Group::default() };
    for (architecture, look) in looks {
        let of = |p2p| set.get(architecture, tp, batch, p2p);
        let bar = |record: Option<&Record>, hatch| {
            let metrics = record?.metrics.as_ref()?;
            let interval = metrics.tokens_per_s_ci95;
            Some(Bar { value: metrics.tokens_per_s, interval, color: look.color, hatch })
        };
        let (on, off) = (bar(of(P2p::On), 0), bar(of(P2p::Off), OFF));
        if let (Some(on), Some(off)) = (&on, &off)
            && on.value > 0.0
        {
            let change = 100.0 * (off.value / on.value - 1.0);
            let at = group.bars.len();
            let text = match change.round() {
                0.0 => "0 %".into(),
                less if less < 0.0 => format!("−{:.0} %", -less),
                more => format!("+{more:.0} %"),
            };
            group.words.push((at, at + 1, text));
        }
        group.bars.extend([on, off]);
    }
    group
}
