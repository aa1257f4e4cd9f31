//! Ticks of a time axis: round times since an origin, and their labels.

use crate::face::tui::screens::timeline::state::window::TimeWindow;

/// Tick: its column, and its label if there is room for it.
type Tick = (usize, Option<String>);

/// Ticks of an axis since `origin`. The ticks are as few as give four labels with room between them, else two labels; a
/// label hides the ticks that it covers.
pub fn labelled(window: TimeWindow, origin: i64, columns: usize) -> Vec<Tick> {
    let fewest = (columns / 14).max(1);
    let place = |wanted: usize| placed(window, origin, columns, wanted);
    let labels = |ticks: &[Tick]| ticks.iter().filter(|(_, label)| label.is_some()).count();
    let is_roomy = |ticks: &[Tick]| {
        let is_apart = |pair: &[Tick]| {
            let end = pair[0].0 + 1 + pair[0].1.as_ref().map_or(0, String::len);
            pair[1].0 > end + 1
        };
        ticks.windows(2).all(is_apart)
    };
    let with = |least: usize| (fewest..=columns / 4).map(place).find(|ticks| labels(ticks) >= least);
    let roomy = with(4).filter(|ticks| is_roomy(ticks));
    roomy.or_else(|| with(2)).unwrap_or_else(|| place(fewest))
}

fn placed(
    window: TimeWindow,
    origin: i64,
    columns: usize,
    wanted: usize,
) -> Vec<(usize, Option<String>)> {
    let ticks = ticks(window, origin, wanted);
    let (mut placed, mut free) = (Vec::new(), 0);
    for (tick, label) in ticks.0.iter().zip(tick_labels(&ticks)) {
        let column = window.column(origin.saturating_add(*tick), columns);
        let Some(column) = column.filter(|column| *column >= free) else { continue };
        // a truncated number would look like a different one
        let label = Some(label).filter(|label| column + 1 + label.len() <= columns);
        free = column + 1 + label.as_ref().map_or(0, String::len);
        placed.push((column, label));
    }
    placed
}

/// Ticks (ns since `origin`) at multiples of a round step, at most one more than wanted, and the step.
fn ticks(window: TimeWindow, origin: i64, wanted: usize) -> (Vec<i64>, i64) {
    let rough = window.width() as f64 / wanted as f64;
    let power = 10f64.powf(rough.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
    let step = (step as i64).max(1);
    let [from, to] = [window.from, window.to].map(|time| time.saturating_sub(origin));
    let first = from.div_euclid(step) + i64::from(from.rem_euclid(step) > 0);
    let ticks = (first..=to.div_euclid(step)).map(|i| i * step).take(wanted + 1);
    (ticks.collect(), step)
}

/// Labels of ticks in the unit of the largest one, with the decimals that tell them apart: `1.25 ms`.
fn tick_labels((ticks, step): &(Vec<i64>, i64)) -> Vec<String> {
    let most = ticks.iter().map(|tick| tick.unsigned_abs()).max().unwrap_or(0);
    let (unit, name) = match most {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let is_exact = |decimals: &usize| step.saturating_mul(10_i64.pow(*decimals as u32)) % unit == 0;
    let decimals = (0..9).find(is_exact).unwrap_or(9);
    let label = |tick: &i64| format!("{:.*} {name}", decimals, *tick as f64 / unit as f64);
    ticks.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_not_crowded() {
        assert_eq!(ticks(TimeWindow::new(7, 1007), 7, 5).0, [0, 200, 400, 600, 800, 1000]);
        assert_eq!(ticks(TimeWindow::new(7, 1007), 500, 5).0, [-400, -200, 0, 200, 400]);
        assert!(ticks(TimeWindow::new(0, i64::MAX), 0, 5).0.len() <= 6);
    }

    #[test]
    fn two_ticks_have_labels_at_every_zoom() {
        for columns in 40..200 {
            for (from, width) in [
                (46_130_000, 3_900_000),
                (183_050_000, 3_380_000),
                (900, 1_700),
                (0, 90_000),
                (-999, 1_500),
            ] {
                let ticks = labelled(TimeWindow::new(from, from + width), 0, columns);
                let labels = ticks.iter().filter(|(_, label)| label.is_some()).count();
                assert!(labels >= 2, "{columns} columns from {from}: {ticks:?}");
            }
        }
    }

    #[test]
    fn four_ticks_have_labels_where_they_fit() {
        let labels = |from: i64, width: i64, columns: usize| {
            let ticks = labelled(TimeWindow::new(from, from + width), 0, columns);
            ticks.into_iter().filter_map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(0, 84_500_000, 64), ["0 ms", "20 ms", "40 ms", "60 ms"]);
        // at half a millisecond, labels would touch
        assert_eq!(labels(46_130_000, 3_900_000, 64), ["47 ms", "48 ms", "49 ms"]);
    }

    #[test]
    fn labels_of_ticks_differ_however_far_from_the_origin() {
        let labels = |from: i64, to: i64| tick_labels(&ticks(TimeWindow::new(from, to), 0, 5));
        assert_eq!(labels(0, 90_000), ["0 us", "20 us", "40 us", "60 us", "80 us"]);
        assert_eq!(labels(1_234_000, 1_234_900)[..2], ["1.2340 ms", "1.2342 ms"]);
        assert_eq!(labels(-500, 400)[..2], ["-400 ns", "-200 ns"]);
    }
}
