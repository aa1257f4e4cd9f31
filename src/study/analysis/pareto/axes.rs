//! What a Pareto plot has on its axes: measures, and which direction of them is better.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::points::ParetoPoint;
use crate::analysis::is_too_close;
use base::error::Error;
use table::{Better, MEASURES, Measure, Scope, Unit, measure};

/// The horizontal axis: what a user of the model feels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum XAxis {
    /// Completion latency: prefill and decode (ms).
    #[default]
    Completion,
    /// Median time of an output token (ms).
    Tpot,
    /// Time to the first token (ms).
    Ttft,
    /// Tokens a second that one user sees: 1000 / TPOT in ms. More is better.
    User,
    /// Any other measure. Points have its value where they were made for these axes.
    Of(&'static Measure),
}

/// The vertical axis: what the operator gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum YAxis {
    /// Tokens/s of all sequences, divided by TP.
    #[default]
    PerGpu,
    /// Tokens/s of all GPUs together.
    Total,
    /// Any other measure. Points have its value where they were made for these axes.
    Of(&'static Measure),
}

/// What a plot has on both its axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct Axes {
    /// What is on the horizontal axis.
    #[schemars(with = "String")]
    pub x: XAxis,
    /// What is on the vertical axis.
    #[schemars(with = "String")]
    pub y: YAxis,
}

/// The measure of this name; every axis is one.
fn known(name: &str) -> &'static Measure {
    measure(name).unwrap_or(&MEASURES[0])
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v > 0.0)
}

/// A value that has a place on an axis, which for some measures is 0: the KL of `standard`.
fn placed(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v >= 0.0)
}

impl XAxis {
    /// The unit of the axis, such as `ms`; the measure in words where its unit has no symbol.
    pub fn unit(self) -> &'static str {
        let measure = self.measure();
        if measure.unit.symbol().is_empty() { measure.words } else { measure.unit.symbol() }
    }

    /// The unit to write values in of which this is the greatest, and by what they are divided: seconds
    /// where milliseconds would need five digits, the same on screens and in figures.
    pub fn unit_for(self, most: f64) -> (&'static str, f64) {
        if self.unit() == "ms" && most >= 10_000.0 { ("s", 1e3) } else { (self.unit(), 1.0) }
    }

    /// The name at the axis, with the unit that values are written in.
    pub fn title_in(self, unit: &str) -> String {
        match unit == self.unit() {
            true => self.title(),
            false => format!("{} ({unit})", self.measure().words),
        }
    }

    /// The point's value; `None` where it has none that could be plotted (finite, above 0;
    /// of other measures not below).
    pub fn of(self, point: &ParetoPoint) -> Option<f64> {
        positive(match self {
            Self::Completion => Some(point.completion_ms),
            Self::Tpot => Some(point.tpot_ms),
            Self::Ttft => point.ttft_ms,
            Self::User => point.tokens_per_s_per_user,
            Self::Of(_) => return placed(point.x),
        })
    }

    /// The value's 95 % interval; `None` for simulations and with too few samples. That of one user's
    /// throughput follows from the interval of TPOT; that of TTFT is there where the points were made
    /// for an axis of TTFT.
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
    /// The point's value; `None` where it has none that could be plotted (finite, above 0;
    /// of other measures not below).
    pub fn of(self, point: &ParetoPoint) -> Option<f64> {
        positive(match self {
            Self::PerGpu => Some(point.tokens_per_s_per_gpu),
            Self::Total => Some(point.tokens_per_s),
            Self::Of(_) => return placed(point.y),
        })
    }

    /// The value's 95 % interval.
    pub fn interval(self, point: &ParetoPoint) -> Option<[f64; 2]> {
        let gpus = match self {
            Self::PerGpu => f64::from(point.spec.tp.max(1)),
            Self::Total => 1.0,
            Self::Of(_) => return point.y_ci95,
        };
        point.tokens_per_s_ci95.map(|ci| ci.map(|end| end / gpus))
    }
}

impl Axes {
    /// The axis of quality, if one of them is: its numbers are of an evaluation, not of the run.
    pub fn quality(self) -> Option<&'static Measure> {
        [self.x.measure(), self.y.measure()].into_iter().find(|measure| measure.scope == Scope::Quality)
    }

    /// What the quality of these points rests on, a sentence for each text; nothing where no axis is of quality.
    pub fn quality_basis<'a>(self, points: impl IntoIterator<Item = &'a ParetoPoint>) -> Vec<String> {
        let Some(measure) = self.quality() else { return Vec::new() };
        let bases: BTreeSet<String> =
            points.into_iter().filter_map(|point| Some(point.quality.as_ref()?.basis())).collect();
        bases.into_iter().map(|basis| format!("{}: {basis}", measure.title)).collect()
    }

    /// Whether areas are gained on them: over the quantities whose samples can be drawn anew, against throughput.
    pub fn has_area(self) -> bool {
        XAxis::ALL.contains(&self.x) && YAxis::ALL.contains(&self.y)
    }

    /// Where a point lies; `None` where it has no value on one of them.
    pub fn of(self, point: &ParetoPoint) -> Option<(f64, f64)> {
        self.x.of(point).zip(self.y.of(point))
    }

    /// A place with its axes turned, if need be, so that less x and more y are better.
    pub(super) fn turned(self, (x, y): (f64, f64)) -> (f64, f64) {
        let turn = |value: f64, turn: bool| if turn { -value } else { value };
        (turn(x, self.x.is_more_better()), turn(y, !self.y.is_more_better()))
    }

    /// Whether `a` is at least as good as `b` on both and better on one.
    pub fn dominates(self, a: (f64, f64), b: (f64, f64)) -> bool {
        let (a, b) = (self.turned(a), self.turned(b));
        let (faster, more) = (a.0.total_cmp(&b.0), a.1.total_cmp(&b.1));
        faster.is_le() && more.is_ge() && (faster.is_lt() || more.is_gt())
    }

    /// True if two simulated places lie within the simulator's error on both axes; measures that are no latency and no
    /// throughput are exact.
    pub(super) fn are_too_close(self, a: (f64, f64), b: (f64, f64)) -> bool {
        let near = |measure: &Measure, a: f64, b: f64| match measure.unit {
            Unit::Ms | Unit::Rate => is_too_close(a / b),
            _ => a == b,
        };
        near(self.x.measure(), a.0, b.0) && near(self.y.measure(), a.1, b.1)
    }
}

/// What both axes have in common, from the names of those that are offered.
macro_rules! axis {
    ($axis:ident, $what:literal, $($offered:ident = $name:literal),*) => {
        impl $axis {
            /// Those that are offered, in that order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$offered),*];

            /// The name on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$offered => $name,)*
                    Self::Of(measure) => measure.name,
                }
            }

            /// The measure on it.
            pub fn measure(self) -> &'static Measure {
                if let Self::Of(measure) = self { measure } else { known(self.as_str()) }
            }

            /// The name at the axis, with its unit.
            pub fn title(self) -> String {
                self.measure().axis_title()
            }

            /// Whether more is better.
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

            /// One that is offered by its name, any other measure by its.
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
