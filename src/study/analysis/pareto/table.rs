//! Tables of points, limits and areas: one list of columns each, for terminal, files and pages.

use super::area::AreaGained;
use super::axes::{Axes, XAxis, YAxis};
use super::limits::AtLimit;
use super::points::ParetoPoint;
use table::Measure;
use table::render::{Shown, Table};

/// Table with one row per point. Files have all digits and columns that an overlay can read; `low` and `high` are the
/// ends of 95 % intervals.
pub fn points_table<'a>(points: impl IntoIterator<Item = &'a ParetoPoint>, axes: Axes) -> Table {
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 3);
    let (ttft, user) = match axes.x {
        XAxis::Ttft => ("ttft_ms|TTFT ms", "tokens_per_s_per_user|"),
        XAxis::User => ("ttft_ms|", "tokens_per_s_per_user|tok/s/user"),
        _ => ("ttft_ms|", "tokens_per_s_per_user|"),
    };
    // extra column for an axis without its own, readable by an overlay
    let other = |column: &str, measure: Option<&Measure>| match measure {
        Some(measure) => [format!("{column}|{}", measure.title), format!("{column}_measure|")],
        None => Default::default(),
    };
    let [x, x_measure] = other("x", if let XAxis::Of(measure) = axes.x { Some(measure) } else { None });
    let [y, y_measure] = other("y", if let YAxis::Of(measure) = axes.y { Some(measure) } else { None });
    let decimals = [axes.x.measure().decimals, axes.y.measure().decimals];
    Table::of(
        points,
        &[
            ("group|", &|p| Shown::text(&p.group)),
            ("on_frontier|", &|p| Shown::text(p.on_frontier)),
            ("|frontier", &|p| {
                let place = match (p.on_frontier, p.on_series_frontier) {
                    (true, _) => "●",
                    (false, true) => "○",
                    (false, false) => "",
                };
                Shown::some(format!("{place}{}", if p.too_close { "≈" } else { "" }))
            }),
            ("architecture", &|p| Shown::text(&p.spec.architecture)),
            ("model|", &|p| Shown::text(&p.spec.model)),
            ("dtype|", &|p| Shown::text(p.spec.dtype)),
            ("tp", &|p| p.spec.tp.into()),
            ("batch", &|p| p.spec.batch.into()),
            ("prompt_tokens|", &|p| p.spec.prompt_tokens.into()),
            ("output_tokens|", &|p| p.spec.output_tokens.into()),
            ("p2p", &|p| Shown::text(p.spec.p2p.as_str())),
            ("backend|", &|p| Shown::text(p.spec.backend.as_str())),
            ("link", &|p| Shown::text(p.spec.link)),
            ("|setting", &|p| Shown::some(&p.setting)),
            ("hardware|", &|p| Shown::text(&p.spec.hardware)),
            ("stack|", &|p| Shown::text(&p.spec.stack)),
            (&x, &|p| Shown::interval(p.x, p.x_ci95, decimals[0])),
            (&x_measure, &|_| Shown::text(axes.x.measure().name)),
            (&y, &|p| Shown::interval(p.y, p.y_ci95, decimals[1])),
            (&y_measure, &|_| Shown::text(axes.y.measure().name)),
            ("completion_ms|completion ms", &|p| Shown::Number(p.completion_ms, 2)),
            ("tokens_per_s_per_gpu|tok/s/GPU", &|p| Shown::Number(p.tokens_per_s_per_gpu, 2)),
            // no TPOT if no token was decoded
            ("tpot_ms|TPOT ms", &|p| Shown::number(Some(p.tpot_ms).filter(|ms| *ms > 0.0), 3)),
            (ttft, &|p| Shown::number(p.ttft_ms, 2)),
            (user, &|p| Shown::number(p.tokens_per_s_per_user, 2)),
            ("tokens_per_s|tok/s", &|p| Shown::Interval(p.tokens_per_s, p.tokens_per_s_ci95, 2)),
            ("completion_ms_low|", &|p| end(p.completion_ms_ci95, 0)),
            ("completion_ms_high|", &|p| end(p.completion_ms_ci95, 1)),
            ("tpot_ms_low|", &|p| end(p.tpot_ms_ci95, 0)),
            ("tpot_ms_high|", &|p| end(p.tpot_ms_ci95, 1)),
            ("tokens_per_s_low|", &|p| end(p.tokens_per_s_ci95, 0)),
            ("tokens_per_s_high|", &|p| end(p.tokens_per_s_ci95, 1)),
            ("!provenance", &|p| Shown::text(p.provenance)),
            ("run", &|p| Shown::text(&p.run)),
            ("setting|", &|p| Shown::text(&p.setting)),
            ("on_series_frontier|", &|p| Shown::text(p.on_series_frontier)),
            ("too_close|", &|p| Shown::text(p.too_close)),
            ("dominated_by|dominated by", &|p| p.dominated_by.as_deref().into()),
        ],
    )
    .least(&["tok/s", "link", "run", "dominated by"])
}

/// True if point tables have this column; overlays ignore it.
pub(super) fn is_own(column: &str) -> bool {
    points_table([], Axes::default()).has(column)
}

pub fn limits_table<'a>(rows: impl IntoIterator<Item = &'a AtLimit>) -> Table {
    Table::of(
        rows,
        &[
            ("group|", &|r| Shown::text(&r.group)),
            ("limit", &|r| Shown::Number(r.limit, 3)),
            ("architecture", &|r| Shown::text(&r.architecture)),
            ("p2p", &|r| Shown::text(r.p2p.as_str())),
            ("setting", &|r| Shown::some(&r.setting)),
            ("y|best", &|r| r.best.as_ref().map_or(Shown::None, |b| Shown::Interval(b.y, b.y_ci95, 2))),
            ("tp", &|r| r.best.as_ref().map(|b| b.tp).into()),
            ("batch", &|r| r.best.as_ref().map(|b| b.batch).into()),
            ("x|at", &|r| Shown::number(r.best.as_ref().map(|b| b.x), 2)),
            ("over_standard|x standard", &|r| {
                Shown::number(r.best.as_ref().and_then(|b| b.over_standard), 3)
            }),
            ("standard_batch|", &|r| r.best.as_ref().and_then(|b| b.standard_batch).into()),
            ("provenance|", &|r| Shown::text(r.provenance)),
            ("run|", &|r| r.best.as_ref().map(|b| b.run.as_str()).into()),
        ],
    )
}

pub fn areas_table<'a>(rows: impl IntoIterator<Item = &'a AreaGained>) -> Table {
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 2);
    Table::of(
        rows,
        &[
            ("group|", &|r| Shown::text(&r.group)),
            ("architecture", &|r| Shown::text(&r.architecture)),
            ("baseline|", &|r| Shown::text(&r.baseline)),
            ("p2p", &|r| Shown::text(r.p2p.as_str())),
            ("setting", &|r| Shown::some(&r.setting)),
            ("gained_pct|area gained %", &|r| Shown::interval(r.gained_pct, r.gained_pct_ci95, 2)),
            ("gained_pct_low|", &|r| end(r.gained_pct_ci95, 0)),
            ("gained_pct_high|", &|r| end(r.gained_pct_ci95, 1)),
            ("area|", &|r| Shown::Number(r.area, 3)),
            ("baseline_area|", &|r| Shown::Number(r.baseline_area, 3)),
            ("x_scale|", &|r| Shown::text(r.x_scale)),
            ("y_scale|", &|r| Shown::text(r.y_scale)),
            ("reference_x|", &|r| Shown::Number(r.reference[0], 3)),
            ("reference_y|", &|r| Shown::Number(r.reference[1], 3)),
            ("cells", &|r| r.cells.into()),
            ("left_out|cells left out", &|r| r.left_out.into()),
            ("|reference", &|r| Shown::text(format!("{:.2}, {:.2}", r.reference[0], r.reference[1]))),
            ("provenance|", &|r| Shown::text(r.provenance)),
            ("no_interval|", &|r| r.no_interval.as_deref().into()),
        ],
    )
}
