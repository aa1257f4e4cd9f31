//! Best throughput of each series within latency limits.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::axes::Axes;
use super::points::{ParetoPoint, Series};
use plan::Architecture;
use table::{P2p, Provenance};

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AtLimit {
    /// Group (model, workload, hardware, provenance).
    pub group: String,
    pub provenance: Provenance,
    #[schemars(with = "String")]
    pub architecture: Architecture,
    pub p2p: P2p,
    /// Settings that separate the series besides architecture and P2P (see [`ParetoPoint::setting`]).
    pub setting: String,
    /// Upper limit of x; lower limit if more x is better.
    pub limit: f64,
    pub best: Option<BestAtLimit>,
}

/// Run of a series with the highest y within a limit.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BestAtLimit {
    pub run: String,
    pub tp: u32,
    pub batch: u32,
    pub x: f64,
    pub y: f64,
    /// 95 % interval of `y`; null if the point has none.
    pub y_ci95: Option<[f64; 2]>,
    /// Ratio of y to that of `standard` with the same limit, P2P and setting; null if no such run meets the limit.
    pub over_standard: Option<f64>,
    pub standard_batch: Option<u32>,
}

type Placed<'a> = (&'a ParetoPoint, (f64, f64));

/// One row per series and limit, ordered by group, series and limit.
pub fn at_limits<'a>(
    points: impl IntoIterator<Item = &'a ParetoPoint>,
    axes: Axes,
    limits: &[f64],
) -> Vec<AtLimit> {
    let mut series: BTreeMap<(&str, Series), Vec<Placed<'_>>> = BTreeMap::new();
    for point in points {
        if let Some(place) = axes.of(point) {
            series.entry((&point.group, point.series())).or_default().push((point, place));
        }
    }
    let mut rows = Vec::with_capacity(series.len() * limits.len());
    for ((group, of), members) in &series {
        let standard =
            series.get(&(*group, Series { architecture: Architecture::Standard, ..of.clone() }));
        let Some((first, _)) = members.first() else { continue };
        for &limit in limits {
            let baseline = standard.and_then(|cells| within(cells, axes, limit));
            let best = within(members, axes, limit).map(|(point, (x, y))| BestAtLimit {
                run: point.run.clone(),
                tp: point.spec.tp,
                batch: point.spec.batch,
                x,
                y,
                y_ci95: axes.y.interval(point),
                over_standard: baseline
                    .map(|(_, (_, of_standard))| y / of_standard)
                    .filter(|ratio| ratio.is_finite()),
                standard_batch: baseline.map(|(point, _)| point.spec.batch),
            });
            rows.push(AtLimit {
                group: (*group).to_owned(),
                provenance: first.provenance,
                architecture: of.architecture.clone(),
                p2p: of.p2p,
                setting: of.setting.clone(),
                limit,
                best,
            });
        }
    }
    rows
}

/// Point with the highest y within the limit; ties go to the better x.
fn within<'a>(
    points: &[(&'a ParetoPoint, (f64, f64))],
    axes: Axes,
    limit: f64,
) -> Option<(&'a ParetoPoint, (f64, f64))> {
    let keeps = |x: f64| if axes.x.is_more_better() { x >= limit } else { x <= limit };
    let within = points.iter().copied().filter(|(_, (x, _))| keeps(*x));
    within.max_by(|(_, a), (_, b)| {
        let (a, b) = (axes.turned(*a), axes.turned(*b));
        a.1.total_cmp(&b.1).then(b.0.total_cmp(&a.0))
    })
}

/// Round limits across the x values of these points, at most `most`, ascending: 1, 2, 5 of each decade, or finer steps
/// if the values span little.
pub fn round_limits<'a>(
    points: impl IntoIterator<Item = &'a ParetoPoint>,
    axes: Axes,
    most: usize,
) -> Vec<f64> {
    const FINER: [&[f64]; 4] = [
        &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
        &[1.0, 2.0, 5.0],
        &[1.0],
    ];
    let values = points.into_iter().filter_map(|p| axes.x.of(p));
    // there are no round numbers near 0
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    if low > high {
        return Vec::new();
    }
    let decades = low.log10().floor() as i32..=high.log10().floor() as i32 + 1;
    let choice = |digits: &[f64]| -> Vec<f64> {
        let all: BTreeSet<u64> = decades
            .clone()
            // parsed from text, so that 2e-1 is exactly 0.2
            .flat_map(|e| digits.iter().filter_map(move |d| format!("{d}e{e}").parse::<f64>().ok()))
            .map(f64::to_bits)
            .collect();
        let all: Vec<f64> = all.into_iter().map(f64::from_bits).collect();
        if axes.x.is_more_better() {
            // starts at or below the smallest value, so that one limit includes all points
            let from = all.iter().rposition(|v| *v <= low).unwrap_or(0);
            all[from..].iter().copied().filter(|v| *v <= high).collect()
        } else {
            let to = all.iter().position(|v| *v >= high).map_or(all.len(), |at| at + 1);
            all[..to].iter().copied().filter(|v| *v >= low).collect()
        }
    };
    let choices = FINER.map(choice);
    let mut limits = choices.iter().find(|limits| limits.len() <= most).unwrap_or(&choices[3]).clone();
    limits.truncate(most);
    limits
}
