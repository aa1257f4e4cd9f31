//! Tables of `overlap`: one list of columns per kind of row. Columns ending in `_us` are in microseconds; files use
//! the keys of JSON.

use super::overlap::By;
use study::analysis::{
    GroupRow, LayerRow, OperatorRow, RangeRow, RankArrivals, StepSummary, Stragglers, TraceReport,
    collectives_table, names_table, products_table, stretches_table,
};
use table::render::{Shown, Table};
use trace::overlap::{OverlapReport, RankOverlap};

fn us(time: f64) -> Shown {
    Shown::Number(time, 1)
}

/// Table of ranks. `with_all`, for people, adds a row with the sum and leaves out times that are zero on all ranks.
pub fn ranks(report: &OverlapReport, with_all: bool) -> Table {
    let all = (with_all && report.ranks.len() > 1).then_some(&report.all);
    let rows: Vec<(Shown, &RankOverlap)> = (report.ranks.iter().map(|rank| (rank.rank.into(), rank)))
        .chain(all.map(|all| (Shown::text("all"), all)))
        .collect();
    let some = |sum: f64, time: f64| if with_all && sum == 0.0 { Shown::None } else { us(time) };
    Table::of(
        &rows,
        &[
            ("rank", &|r| r.0.clone()),
            ("comm_us|comm", &|r| us(r.1.comm_us)),
            ("compute_us|compute", &|r| us(r.1.compute_us)),
            ("memory_us|memory", &|r| some(report.all.memory_us, r.1.memory_us)),
            ("overlap_us|overlap", &|r| us(r.1.overlap_us)),
            ("exposed_comm_us|exposed", &|r| us(r.1.exposed_comm_us)),
            ("overlap_pct|overlap %", &|r| Shown::number(r.1.overlap_pct, 1)),
            // omitted for people (span minus idle), to fit seconds of trace into 100 columns
            ("busy_us|", &|r| us(r.1.busy_us)),
            ("idle_us|idle", &|r| us(r.1.idle_us)),
            ("span_us|span", &|r| us(r.1.span_us)),
            ("peer_wait_us|peer wait", &|r| {
                r.1.peer_wait_us
                    .map_or(Shown::None, |own| some(report.all.peer_wait_us.unwrap_or(0.0), own))
            }),
        ],
    )
}

pub fn by(report: &TraceReport, by: By) -> Table {
    match by {
        By::Step => steps(&report.steps),
        By::Layer => layers(&report.layers),
        By::Collective => collectives_table(&report.collectives),
        By::Range => ranges(&report.ranges),
        By::Operator => operators(&report.operators),
        By::Product => products_table(&report.products.rows),
        By::Kind => groups("kind", &report.kinds),
        By::Name => names_table(&report.names),
        By::Exposed => stretches_table(&report.exposed_stretches.longest),
    }
}

fn steps(steps: &[StepSummary]) -> Table {
    Table::of(
        steps,
        &[
            ("sample", &|s| s.sample.into()),
            ("phase", &|s| Shown::text(s.phase.as_str())),
            ("step", &|s| s.step.into()),
            ("batch", &|s| s.batch.map_or(Shown::None, Shown::from)),
            ("start_us", &|s| us(s.start_ns as f64 / 1e3)),
            ("duration_us", &|s| us(s.duration_us)),
            ("compute_us", &|s| us(s.compute_us)),
            ("comm_us", &|s| us(s.comm_us)),
            ("exposed_us", &|s| us(s.exposed_us)),
            ("overlap_pct", &|s| Shown::number(s.overlap_pct, 1)),
            ("idle_us", &|s| us(s.idle_us)),
        ],
    )
}

fn layers(layers: &[LayerRow]) -> Table {
    Table::of(
        layers,
        &[
            ("layer", &|l| l.layer.map_or(Shown::text("none"), Shown::from)),
            ("count", &|l| l.count.into()),
            ("compute_us", &|l| us(l.compute_us)),
            ("comm_us", &|l| us(l.comm_us)),
            ("exposed_us", &|l| us(l.exposed_us)),
            ("hidden_pct", &|l| {
                let hidden = 100.0 * (1.0 - l.exposed_us / l.comm_us);
                Shown::number((l.comm_us > 0.0).then_some(hidden), 1)
            }),
        ],
    )
}

fn ranges(ranges: &[RangeRow]) -> Table {
    Table::of(
        ranges,
        &[
            ("~range", &|r| Shown::text(&r.name)),
            ("count", &|r| r.count.into()),
            ("time_us", &|r| us(r.time_us)),
            ("device_us", &|r| r.device_us.map_or(Shown::None, us)),
            ("busy_us", &|r| us(r.busy_us)),
            ("compute_us", &|r| us(r.compute_us)),
            ("comm_us", &|r| us(r.comm_us)),
            ("exposed_us", &|r| us(r.exposed_us)),
        ],
    )
}

/// Table of operators that launched GPU work.
pub fn operators(operators: &[OperatorRow]) -> Table {
    Table::of(
        operators,
        &[
            ("~operator", &|o| Shown::text(&o.name)),
            ("count", &|o| o.count.into()),
            ("total_us", &|o| us(o.total_us)),
            ("comm_us", &|o| us(o.comm_us)),
            ("exposed_us", &|o| us(o.exposed_us)),
        ],
    )
}

pub fn groups(name: &'static str, groups: &[GroupRow]) -> Table {
    Table::of(
        groups,
        &[
            (&format!("~{name}"), &|g| Shown::text(&g.name)),
            ("lane", &|g| Shown::text(g.lane)),
            ("count", &|g| g.count.into()),
            ("total_us", &|g| us(g.total_us)),
            ("exposed_us", &|g| us(g.exposed_us)),
            ("hidden_pct", &|g| Shown::number(g.hidden_pct, 1)),
        ],
    )
}

/// Table of stragglers: ranks that were late at collectives.
pub fn stragglers(stragglers: &Stragglers) -> Table {
    Table::of(
        &stragglers.ranks,
        &[
            ("rank", &|r: &RankArrivals| r.rank.into()),
            ("times last", &|r| r.times_last.into()),
            ("%", &|r| Shown::Number(100.0 * r.share, 1)),
            ("late (median)", &|r| us(r.late_median_us)),
            ("late (most)", &|r| us(r.late_max_us)),
            ("others waited", &|r| us(r.caused_us)),
            ("waited", &|r| us(r.waited_us)),
        ],
    )
}
