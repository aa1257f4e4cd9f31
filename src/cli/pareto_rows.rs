//! Tables of `pareto`: points, frontiers at fixed latencies, areas gained, points from elsewhere.

use super::output::{Field, Rows};
use crate::analysis::{AreaGained, AtLimit, Axes, OverlayPoint, ParetoPoint, XAxis};

fn interval(ci: Option<[f64; 2]>, decimals: usize) -> Field {
    ci.map_or(Field::None, |[low, high]| Field::text(format!("[{low:.decimals$}, {high:.decimals$}]")))
}

/// The points of one group, for people.
pub fn people(axes: Axes, points: &[ParetoPoint]) -> String {
    let mut columns = vec![
        "frontier",
        "architecture",
        "tp",
        "batch",
        "p2p",
        "link",
        "completion ms",
        "tok/s/GPU",
        "TPOT ms",
    ];
    let extra: &[&str] = match axes.x {
        XAxis::Completion | XAxis::Tpot => &[],
        XAxis::Ttft => &["TTFT ms"],
        XAxis::User => &["tok/s/user"],
    };
    columns.extend(extra);
    columns.extend(["tok/s", "95% tok/s", "provenance", "run", "dominated by"]);
    let mut rows = Rows::new(columns);
    for point in points {
        let mark = match (point.on_frontier, point.on_series_frontier) {
            (true, _) => Field::text("●"),
            (false, true) => Field::text("○"),
            (false, false) => Field::None,
        };
        let mut row = vec![
            mark,
            Field::text(&point.spec.architecture),
            Field::Whole(point.spec.tp.into()),
            Field::Whole(point.spec.batch.into()),
            Field::text(point.spec.p2p.as_str()),
            Field::text(point.spec.link),
            Field::Number(point.completion_ms, 2),
            Field::Number(point.tokens_per_s_per_gpu, 2),
            Field::Number(point.tpot_ms, 3),
        ];
        match axes.x {
            XAxis::Completion | XAxis::Tpot => {}
            XAxis::Ttft => row.push(Field::number(point.ttft_ms, 2)),
            XAxis::User => row.push(Field::number(point.tokens_per_s_per_user, 2)),
        }
        row.extend([
            Field::Number(point.tokens_per_s, 2),
            interval(point.tokens_per_s_ci95, 2),
            Field::text(point.provenance),
            Field::text(&point.run),
            point.dominated_by.as_ref().map_or(Field::None, Field::text),
        ]);
        rows.push(row);
    }
    format!(
        "{}● on the frontier of {} against {}; ○ on that of its own architecture and P2P setting\n",
        rows.table(),
        axes.x.title(),
        axes.y.title()
    )
}

/// Frontiers at limits, all of them.
pub fn limits(at: &[AtLimit]) -> Rows {
    let mut rows = Rows::new([
        "group",
        "architecture",
        "p2p",
        "setting",
        "limit",
        "y",
        "tp",
        "batch",
        "x",
        "over_standard",
        "provenance",
        "run",
    ]);
    for row in at {
        let best = row.best.as_ref();
        rows.push(vec![
            Field::text(&row.group),
            Field::text(&row.architecture),
            Field::text(row.p2p.as_str()),
            Field::text(&row.setting),
            Field::Number(row.limit, 3),
            Field::number(best.map(|b| b.y), 3),
            best.map_or(Field::None, |b| Field::Whole(b.tp.into())),
            best.map_or(Field::None, |b| Field::Whole(b.batch.into())),
            Field::number(best.map(|b| b.x), 3),
            Field::number(best.and_then(|b| b.over_standard), 3),
            Field::text(row.provenance),
            best.map_or(Field::None, |b| Field::text(&b.run)),
        ]);
    }
    rows
}

/// Frontiers of one group at limits, for people.
pub fn limits_for_people(axes: Axes, at: &[&AtLimit]) -> String {
    let mut rows = Rows::new([
        "limit",
        "architecture",
        "p2p",
        "setting",
        "best",
        "95%",
        "tp x batch",
        "x",
        "/ standard",
    ]);
    let mut ordered = at.to_vec();
    ordered.sort_by(|a, b| a.limit.total_cmp(&b.limit));
    for row in ordered {
        let best = row.best.as_ref();
        rows.push(vec![
            Field::text(row.limit),
            Field::text(&row.architecture),
            Field::text(row.p2p.as_str()),
            if row.setting.is_empty() { Field::None } else { Field::text(&row.setting) },
            Field::number(best.map(|b| b.y), 2),
            interval(best.and_then(|b| b.y_ci95), 2),
            best.map_or(Field::None, |b| Field::text(format!("{}x{}", b.tp, b.batch))),
            Field::number(best.map(|b| b.x), 2),
            Field::number(best.and_then(|b| b.over_standard), 3),
        ]);
    }
    let bound = if axes.x.is_more_better() { "at least" } else { "at most" };
    let origin = at.first().map_or("", |row| row.provenance.as_str());
    format!(
        "\nBest {} with {} {bound} the limit ({origin})\n{}",
        axes.y.title(),
        axes.x.title(),
        rows.table()
    )
}

/// Areas gained, all of them.
pub fn areas(area: &[AreaGained]) -> Rows {
    let mut rows = Rows::new([
        "group",
        "architecture",
        "baseline",
        "p2p",
        "setting",
        "gained_pct",
        "gained_pct_low",
        "gained_pct_high",
        "area",
        "baseline_area",
        "x_scale",
        "y_scale",
        "reference_x",
        "reference_y",
        "cells",
        "left_out",
        "provenance",
        "no_interval",
    ]);
    for row in area {
        rows.push(vec![
            Field::text(&row.group),
            Field::text(&row.architecture),
            Field::text(&row.baseline),
            Field::text(row.p2p.as_str()),
            Field::text(&row.setting),
            Field::number(row.gained_pct, 2),
            Field::number(row.gained_pct_ci95.map(|ci| ci[0]), 2),
            Field::number(row.gained_pct_ci95.map(|ci| ci[1]), 2),
            Field::Number(row.area, 3),
            Field::Number(row.baseline_area, 3),
            Field::text(row.x_scale),
            Field::text(row.y_scale),
            Field::Number(row.reference[0], 3),
            Field::Number(row.reference[1], 3),
            Field::Whole(row.cells as u64),
            Field::Whole(row.left_out as u64),
            Field::text(row.provenance),
            row.no_interval.as_ref().map_or(Field::None, Field::text),
        ]);
    }
    rows
}

/// Areas gained in one group, for people.
pub fn areas_for_people(axes: Axes, area: &[&AreaGained]) -> String {
    let Some(first) = area.first() else {
        return "\nno area gained: standard and another architecture need cells in common\n".into();
    };
    let mut rows = Rows::new([
        "architecture",
        "p2p",
        "setting",
        "area gained %",
        "95%",
        "cells",
        "left out",
        "reference",
    ]);
    for row in area {
        rows.push(vec![
            Field::text(&row.architecture),
            Field::text(row.p2p.as_str()),
            if row.setting.is_empty() { Field::None } else { Field::text(&row.setting) },
            Field::number(row.gained_pct, 2),
            interval(row.gained_pct_ci95, 2),
            Field::Whole(row.cells as u64),
            if row.left_out == 0 { Field::None } else { Field::Whole(row.left_out as u64) },
            Field::text(format!("{:.2}, {:.2}", row.reference[0], row.reference[1])),
        ]);
    }
    let why = first.no_interval.as_ref().map(|why| format!("no interval: {why}\n")).unwrap_or_default();
    format!(
        "\nArea gained over {} in {} ({}) against {} ({}), over the cells that both have ({})\n{}{why}",
        first.baseline,
        axes.x.title(),
        first.x_scale,
        axes.y.title(),
        first.y_scale,
        first.provenance,
        rows.table()
    )
}

/// Points from elsewhere that go with a group, for people.
pub fn overlay_for_people(axes: Axes, overlay: &[&OverlayPoint]) -> String {
    if overlay.is_empty() {
        return "\nno point from elsewhere is of this model and workload\n".into();
    }
    let mut rows = Rows::new(["source", "architecture", "label", "p2p", axes.x.title(), axes.y.title()]);
    for point in overlay {
        let place = point.place(axes);
        rows.push(vec![
            Field::text(&point.source),
            Field::text(&point.architecture),
            Field::text(point.name()),
            point.p2p.map_or(Field::None, |p2p| Field::text(p2p.as_str())),
            Field::number(place.map(|p| p.0), 2),
            Field::number(place.map(|p| p.1), 2),
        ]);
    }
    format!("\nFrom elsewhere, on no frontier\n{}", rows.table())
}
