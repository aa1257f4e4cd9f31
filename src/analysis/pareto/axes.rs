//! What a Pareto plot has on its axes, and which direction is better.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::points::ParetoPoint;
use crate::error::Error;

/// The horizontal axis: what a user of the model feels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
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
}

/// The vertical axis: what the operator gets. More is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum YAxis {
    /// Tokens/s by TP.
    #[default]
    PerGpu,
    /// Tokens/s of all GPUs together.
    Total,
}

/// Both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Axes {
    /// Horizontal.
    pub x: XAxis,
    /// Vertical.
    pub y: YAxis,
}

impl XAxis {
    /// All, in the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::Completion, Self::Tpot, Self::Ttft, Self::User];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Tpot => "tpot",
            Self::Ttft => "ttft",
            Self::User => "user",
        }
    }

    /// The name at the axis, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Self::Completion => "completion latency (ms)",
            Self::Tpot => "TPOT (ms)",
            Self::Ttft => "TTFT (ms)",
            Self::User => "tokens/s/user",
        }
    }

    /// The unit alone.
    pub fn unit(self) -> &'static str {
        if self == Self::User { "tokens/s/user" } else { "ms" }
    }

    /// Whether more is better.
    pub fn is_more_better(self) -> bool {
        self == Self::User
    }

    /// The point's value; `None` where it has none that could be plotted (finite, above 0).
    pub fn of(self, point: &ParetoPoint) -> Option<f64> {
        let value = match self {
            Self::Completion => Some(point.completion_ms),
            Self::Tpot => Some(point.tpot_ms),
            Self::Ttft => point.ttft_ms,
            Self::User => point.tokens_per_s_per_user,
        };
        value.filter(|v| v.is_finite() && *v > 0.0)
    }

    /// The value's 95 % interval; null for simulations and with few samples. That of TTFT exists where
    /// it is the axis.
    pub fn interval(self, point: &ParetoPoint) -> Option<[f64; 2]> {
        match self {
            Self::Completion => point.completion_ms_ci95,
            Self::Tpot => point.tpot_ms_ci95,
            Self::Ttft => point.ttft_ms_ci95,
            Self::User => {
                let [low, high] = point.tpot_ms_ci95?;
                (low > 0.0).then(|| [1000.0 / high, 1000.0 / low])
            }
        }
    }
}

impl YAxis {
    /// All, in the order in which they are offered.
    pub const ALL: [Self; 2] = [Self::PerGpu, Self::Total];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PerGpu => "per-gpu",
            Self::Total => "total",
        }
    }

    /// The name at the axis, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Self::PerGpu => "tokens/s/GPU",
            Self::Total => "tokens/s",
        }
    }

    /// The point's value; `None` where it has none that could be plotted (finite, above 0).
    pub fn of(self, point: &ParetoPoint) -> Option<f64> {
        let value = match self {
            Self::PerGpu => point.tokens_per_s_per_gpu,
            Self::Total => point.tokens_per_s,
        };
        Some(value).filter(|v| v.is_finite() && *v > 0.0)
    }

    /// The value's 95 % interval.
    pub fn interval(self, point: &ParetoPoint) -> Option<[f64; 2]> {
        let [low, high] = point.tokens_per_s_ci95?;
        let gpus = if self == Self::PerGpu { f64::from(point.spec.tp.max(1)) } else { 1.0 };
        Some([low / gpus, high / gpus])
    }
}

impl Axes {
    /// Where a point lies; `None` where it has no value on one of them.
    pub fn of(self, point: &ParetoPoint) -> Option<(f64, f64)> {
        self.x.of(point).zip(self.y.of(point))
    }

    /// The same with x turned, if need be, so that less is better.
    pub(super) fn toward_less(self, (x, y): (f64, f64)) -> (f64, f64) {
        (if self.x.is_more_better() { -x } else { x }, y)
    }

    /// Whether `a` is at least as good as `b` on both and better on one.
    pub fn dominates(self, a: (f64, f64), b: (f64, f64)) -> bool {
        let (a, b) = (self.toward_less(a), self.toward_less(b));
        let (faster, more) = (a.0.total_cmp(&b.0), a.1.total_cmp(&b.1));
        faster.is_le() && more.is_ge() && (faster.is_lt() || more.is_gt())
    }
}

impl fmt::Display for XAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for YAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for XAxis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|axis| axis.as_str() == text);
        found.ok_or_else(|| Error::unknown("x axis", text, Self::ALL.map(Self::as_str)))
    }
}

impl FromStr for YAxis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|axis| axis.as_str() == text);
        found.ok_or_else(|| Error::unknown("y axis", text, Self::ALL.map(Self::as_str)))
    }
}
