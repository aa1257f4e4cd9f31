//! Axes of Pareto plots: measures, and the direction that is better.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::ParetoPoint;
use crate::validate::TieBand;
use base::error::Error;
use table::{Better, MEASURES, Measure, MeasureScope, Provenance, Spec, Unit, measure};

/// Horizontal axis: the user's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XAxis {
    /// Completion latency: prefill and decode (ms).
    #[default]
    Completion,
    Tpot,
    Ttft,
    /// Throughput of one user: 1000 / TPOT in ms (tokens/s). More is better.
    User,
    /// Any other measure; points have its value if they were computed for these axes.
    Of(&'static Measure),
}

/// Vertical axis: the operator's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YAxis {
    /// Throughput of all sequences, divided by the number of GPUs (tokens/s).
    #[default]
    PerGpu,
    /// Throughput of all GPUs together (tokens/s).
    Total,
    /// Any other measure; points have its value if they were computed for these axes.
    Of(&'static Measure),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Axes {
    #[schemars(with = "String")]
    pub x: XAxis,
    #[schemars(with = "String")]
    pub y: YAxis,
}

/// Measure with this name; every standard axis has one.
fn known(name: &str) -> &'static Measure {
    measure(name).unwrap_or(&MEASURES[0])
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v > 0.0)
}

/// Finite value of at least 0; 0 is valid for some measures, such as the KL of `standard`.
fn placed(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v >= 0.0)
}

impl XAxis {
    /// Unit of the axis, such as `ms`; the measure's words if its unit has no symbol.
    pub fn unit(self) -> &'static str {
        let measure = self.measure();
        if measure.unit.symbol().is_empty() { measure.words } else { measure.unit.symbol() }
    }

    /// Unit for values up to `most`, and its divisor: seconds if milliseconds would need five digits. Screens and
    /// figures use the same.
    pub fn unit_for(self, most: f64) -> (&'static str, f64) {
        if self.unit() == "ms" && most >= 10_000.0 { ("s", 1e3) } else { (self.unit(), 1.0) }
    }

    pub fn title_in(self, unit: &str) -> String {
        match unit == self.unit() {
            true => self.title(),
            false => format!("{} ({unit})", self.measure().words),
        }
    }

    /// True if `x` is within a limit: at least as much if more is better, otherwise at most.
    pub fn keeps(self, x: f64, limit: f64) -> bool {
        if self.is_more_better() { x >= limit } else { x <= limit }
    }

    /// Loosest limit, which every value meets.
    pub fn widest(self) -> f64 {
        if self.is_more_better() { 0.0 } else { f64::INFINITY }
    }

    /// Value of a point; `None` if it cannot be plotted (not finite, or not above 0; other measures may be 0).
    pub fn value(self, point: &ParetoPoint) -> Option<f64> {
        positive(match self {
            Self::Completion => Some(point.completion_ms),
            Self::Tpot => Some(point.tpot_ms),
            Self::Ttft => point.ttft_ms,
            Self::User => point.tokens_per_s_per_user,
            Self::Of(_) => return placed(point.x),
        })
    }

    /// 95 % interval of the value; `None` for simulations and with too few samples. The interval of one user's
    /// throughput follows from that of TPOT; TTFT has one only if the points were computed for a TTFT axis.
    pub fn interval(self, point: &ParetoPoint) -> Option<[f64; 2]> {
        match self {
            Self::Completion => point.completion_ms_ci95,
            Self::Tpot => point.tpot_ms_ci95,
            Self::Ttft => point.ttft_ms_ci95,
            Self::User => {
                let [low, high] = point.tpot_ms_ci95?;
                (low > 0.0).then(|| [1000.0 / high, 1000.0 / low])
            }
            Self::Of(_) => point.x_ci95,
        }
    }
}

impl YAxis {
    /// Value of a point; `None` if it cannot be plotted (not finite, or not above 0; other measures may be 0).
    pub fn value(self, point: &ParetoPoint) -> Option<f64> {
        positive(match self {
            Self::PerGpu => Some(point.tokens_per_s_per_gpu),
            Self::Total => Some(point.tokens_per_s),
            Self::Of(_) => return placed(point.y),
        })
    }

    pub fn interval(self, point: &ParetoPoint) -> Option<[f64; 2]> {
        let gpus = match self {
            Self::PerGpu => f64::from(point.spec.ranks()),
            Self::Total => 1.0,
            Self::Of(_) => return point.y_ci95,
        };
        point.tokens_per_s_ci95.map(|ci| ci.map(|end| end / gpus))
    }
}

impl Axes {
    /// Quality measure on one of the axes, if any; its values come from an evaluation, not from the run.
    pub fn quality(self) -> Option<&'static Measure> {
        [self.x.measure(), self.y.measure()]
            .into_iter()
            .find(|measure| measure.scope == MeasureScope::Quality)
    }

    /// Basis of the points' quality, one sentence per text; empty if no axis shows quality.
    pub fn quality_basis<'a>(self, points: impl IntoIterator<Item = &'a ParetoPoint>) -> Vec<String> {
        let Some(measure) = self.quality() else { return Vec::new() };
        let bases: BTreeSet<String> =
            points.into_iter().filter_map(|point| Some(point.quality.as_ref()?.basis())).collect();
        bases.into_iter().map(|basis| format!("{}: {basis}", measure.title)).collect()
    }

    /// True if areas can be computed: for measures that can be resampled, against throughput.
    pub fn has_area(self) -> bool {
        XAxis::ALL.contains(&self.x) && YAxis::ALL.contains(&self.y)
    }

    /// Coordinates of a point; `None` if one is missing.
    pub fn coordinates(self, point: &ParetoPoint) -> Option<(f64, f64)> {
        self.x.value(point).zip(self.y.value(point))
    }

    /// Coordinates turned so that less x and more y are better.
    pub(super) fn turned(self, (x, y): (f64, f64)) -> (f64, f64) {
        let turn = |value: f64, turn: bool| if turn { -value } else { value };
        (turn(x, self.x.is_more_better()), turn(y, !self.y.is_more_better()))
    }

    /// True if `a` is at least as good as `b` on both axes and better on one.
    pub fn dominates(self, a: (f64, f64), b: (f64, f64)) -> bool {
        let (a, b) = (self.turned(a), self.turned(b));
        let (faster, more) = (a.0.total_cmp(&b.0), a.1.total_cmp(&b.1));
        faster.is_le() && more.is_ge() && (faster.is_lt() || more.is_gt())
    }

    /// Bands of simulated cells on both axes: of first tokens, or of speedups.
    pub(super) fn bands(self, specs: &[&Spec]) -> [TieBand; 2] {
        // prefills alone take as long as their first token
        let are_prefills = specs.iter().all(|spec| spec.output_tokens == 1);
        let is_first =
            [self.x.measure(), self.y.measure()].map(|measure| are_prefills || measure.is("ttft"));
        let first = is_first.contains(&true).then(|| TieBand::of_first_tokens(specs.iter().copied()));
        let other = is_first.contains(&false).then(|| TieBand::from_specs(specs.iter().copied()));
        is_first.map(|is_first| if is_first { first } else { other }.unwrap_or(TieBand::UNKNOWN))
    }

    /// True if the 95 % intervals of two points overlap on both axes; false without intervals.
    pub(super) fn overlap(self, a: &ParetoPoint, b: &ParetoPoint) -> bool {
        meet(self.x.interval(a), self.x.interval(b)) && meet(self.y.interval(a), self.y.interval(b))
    }

    /// True if two simulated places are within the bands on both axes.
    pub(super) fn are_too_close(self, a: (f64, f64), b: (f64, f64), bands: [TieBand; 2]) -> bool {
        are_near(self.x.measure(), a.0, b.0, bands[0]) && are_near(self.y.measure(), a.1, b.1, bands[1])
    }

    /// True if no lead in y is shown between two points of a group: simulated ones within the simulator's error of each
    /// other, measured ones with overlapping 95 % intervals.
    pub fn are_tied_in_y(self, a: &ParetoPoint, b: &ParetoPoint) -> bool {
        match self.y.value(a).zip(self.y.value(b)) {
            Some((y, other)) if a.provenance == Provenance::Simulated => {
                are_near(self.y.measure(), y, other, self.bands(&[&a.spec, &b.spec])[1])
            }
            _ => meet(self.y.interval(a), self.y.interval(b)),
        }
    }
}

/// True if two intervals overlap; false without both.
fn meet(a: Option<[f64; 2]>, b: Option<[f64; 2]>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a[0] <= b[1] && b[0] <= a[1])
}

/// True if two simulated values are within a band. Measures other than latency and throughput are exact.
fn are_near(measure: &Measure, a: f64, b: f64, band: TieBand) -> bool {
    match measure.unit {
        Unit::Ms | Unit::Rate => band.holds(a / b),
        _ => a == b,
    }
}

/// Implements the common parts of both axes, from the names of the standard axes.
macro_rules! axis {
    ($axis:ident, $what:literal, $($offered:ident = $name:literal),*) => {
        impl $axis {
            /// Standard axes, in display order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$offered),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$offered => $name,)*
                    Self::Of(measure) => measure.name,
                }
            }

            pub fn measure(self) -> &'static Measure {
                if let Self::Of(measure) = self { measure } else { known(self.as_str()) }
            }

            pub fn title(self) -> String {
                self.measure().axis_title()
            }

            pub fn is_more_better(self) -> bool {
                self.measure().better == Better::More
            }
        }

        impl fmt::Display for $axis {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $axis {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl FromStr for $axis {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let offered = Self::ALL.into_iter().find(|axis| axis.as_str() == text);
                let names = Self::ALL.map(Self::as_str).into_iter();
                let known = || names.chain(MEASURES.iter().map(|measure| measure.name));
                offered
                    .or_else(|| measure(text).map(Self::Of))
                    .ok_or_else(|| Error::unknown($what, text, known()))
            }
        }
    };
}
axis!(XAxis, "x axis", Completion = "completion", Tpot = "tpot", Ttft = "ttft", User = "user");
axis!(YAxis, "y axis", PerGpu = "per-gpu", Total = "total");
