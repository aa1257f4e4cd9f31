//! Range checks for values of profiles and stacks. Errors name the key, the value and the valid range.

use std::ops::RangeInclusive;

use table::{BANDWIDTHS_GB_S, LATENCIES_US};

type Checked = Result<(), (String, String)>;

pub(super) fn above(key: &str, value: f64, least: f64) -> Checked {
    that(key, value, value.is_finite() && value > least, &format!("above {least}"))
}

pub(super) fn at_least(key: &str, value: f64, least: f64) -> Checked {
    that(key, value, value.is_finite() && value >= least, &format!("at least {least}"))
}

/// Checks a link latency in us.
pub(super) fn latency(key: &str, us: f64) -> Checked {
    within(key, us, &LATENCIES_US)
}

/// Checks a link bandwidth in 1e9 bytes per second.
pub(super) fn bandwidth(key: &str, gb_s: f64) -> Checked {
    within(key, gb_s, &BANDWIDTHS_GB_S)
}

/// Checks a share: above 0, at most 1.
pub(super) fn share(key: &str, value: f64) -> Checked {
    that(key, value, value > 0.0 && value <= 1.0, "above 0 and at most 1")
}

/// Checks a loss: at least 0, below 1.
pub(super) fn loss(key: &str, value: f64) -> Checked {
    that(key, value, (0.0..1.0).contains(&value), "at least 0 and below 1")
}

fn within(key: &str, value: f64, allowed: &RangeInclusive<f64>) -> Checked {
    let (least, most) = (allowed.start(), allowed.end());
    that(key, value, allowed.contains(&value), &format!("from {} to {}", short(*least), short(*most)))
}

fn that(key: &str, value: f64, fine: bool, wanted: &str) -> Checked {
    if fine {
        Ok(())
    } else {
        Err((key.to_owned(), format!("is {}; it must be {wanted}", short(value))))
    }
}

/// Compact form of a number of any magnitude.
fn short(value: f64) -> String {
    let is_plain = value == 0.0 || !value.is_finite() || (1e-4..1e9).contains(&value.abs());
    if is_plain { value.to_string() } else { format!("{value:e}") }
}
