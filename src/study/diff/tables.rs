//! Tables of the differences between two traces.

use super::{ChangedLayer, ChangedOperation, ChangedPart, PerStep, TraceDiff};
use table::render::{Shown, Table};

pub fn parts_table(diff: &TraceDiff) -> Table {
    let total = ChangedPart {
        part: "step",
        a_us: diff.a.step_us,
        b_us: diff.b.step_us,
        delta_us: diff.b.step_us - diff.a.step_us,
        explains_pct: None,
    };
    let rows: Vec<&ChangedPart> = std::iter::once(&total).chain(&diff.parts).collect();
    Table::from_rows(
        rows,
        &[
            ("part", &|p| Shown::text(p.part)),
            ("first_us", &|p| Shown::Time(p.a_us)),
            ("second_us", &|p| Shown::Time(p.b_us)),
            ("delta_us", &|p| Shown::Time(p.delta_us)),
            ("explains_pct|explains %", &|p| Shown::number(p.explains_pct, 0)),
        ],
    )
}

pub fn operations_table(operations: &[ChangedOperation]) -> Table {
    let us = |side: Option<PerStep>, of: fn(&PerStep) -> f64| {
        side.as_ref().map_or(Shown::None, |s| Shown::Time(of(s)))
    };
    let count = |side: Option<PerStep>| Shown::number(side.map(|s| s.count), 1);
    let exposed = |one: &ChangedOperation, side: Option<PerStep>| match one.lane {
        "comm" => us(side, |s| s.exposed_us),
        _ => Shown::None,
    };
    Table::from_rows(
        operations,
        &[
            ("~operation", &|o: &ChangedOperation| Shown::text(&o.name)),
            ("lane", &|o| Shown::text(o.lane)),
            ("first_us", &|o| us(o.a, |s| s.us)),
            ("second_us", &|o| us(o.b, |s| s.us)),
            ("delta_us", &|o| Shown::Time(o.delta_us)),
            ("delaying_us|delays step", &|o| Shown::Time(o.delaying_us)),
            ("first_exposed_us|exposed", &|o| exposed(o, o.a)),
            ("second_exposed_us|exposed", &|o| exposed(o, o.b)),
            ("first_count|count", &|o| count(o.a)),
            ("second_count|count", &|o| count(o.b)),
        ],
    )
    .least(&["second_exposed_us", "first_exposed_us", "second_count", "first_count", "lane"])
}

pub fn layers_table(layers: &[ChangedLayer]) -> Table {
    let us = Shown::Time;
    Table::from_rows(
        layers,
        &[
            ("layer", &|l: &ChangedLayer| l.layer.map_or(Shown::text("none"), Shown::from)),
            ("first_compute_us", &|l| us(l.a_compute_us)),
            ("second_compute_us", &|l| us(l.b_compute_us)),
            ("first_exposed_us", &|l| us(l.a_exposed_us)),
            ("second_exposed_us", &|l| us(l.b_exposed_us)),
            ("delta_us", &|l| us(l.delta_us)),
        ],
    )
}
