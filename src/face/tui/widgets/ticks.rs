//! Ticks of a time axis: round times since an origin, and their labels.

use crate::face::tui::screens::timeline::state::window::TimeWindow;

/// Ticks (ns since `origin`) of an axis of this width, at multiples of a round step, and the step.
pub fn ticks(window: TimeWindow, origin: i64, columns: usize) -> (Vec<i64>, i64) {
    let wanted = (columns / 14).max(1) as f64;
    let rough = window.width() as f64 / wanted;
    let power = 10f64.powf(rough.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
    let step = (step as i64).max(1);
    let [from, to] = [window.from, window.to].map(|time| time.saturating_sub(origin));
    let first = from.div_euclid(step) + i64::from(from.rem_euclid(step) > 0);
    let ticks = (first..=to.div_euclid(step)).map(|i| i * step).take(columns.max(1));
    (ticks.collect(), step)
}

/// Labels of ticks in the unit of the largest one, with the decimals that tell them apart: `1.25 ms`.
pub fn tick_labels((ticks, step): &(Vec<i64>, i64)) -> Vec<String> {
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
        assert_eq!(ticks(TimeWindow::new(7, 1007), 7, 70).0, [0, 200, 400, 600, 800, 1000]);
        assert_eq!(ticks(TimeWindow::new(7, 1007), 500, 70).0, [-400, -200, 0, 200, 400]);
        assert!(ticks(TimeWindow::new(0, i64::MAX), 0, 70).0.len() <= 6);
    }

    #[test]
    fn labels_of_ticks_differ_however_far_from_the_origin() {
        let labels = |from: i64, to: i64| tick_labels(&ticks(TimeWindow::new(from, to), 0, 70));
        assert_eq!(labels(0, 90_000), ["0 us", "20 us", "40 us", "60 us", "80 us"]);
        assert_eq!(labels(1_234_000, 1_234_900)[..2], ["1.2340 ms", "1.2342 ms"]);
        assert_eq!(labels(-500, 400)[..2], ["-400 ns", "-200 ns"]);
    }
}
