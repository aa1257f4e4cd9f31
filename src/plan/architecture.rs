//! Architectures as residual wirings (arXiv 2501.06589 and neighbours).
//!
//! An architecture says three things and nothing else: how stale the residual is that a module
//! reads, when partial outputs are reduced, and whether attention and MLP of a layer are one module.
//! The builder in [`super::build`] turns a [`Wiring`] into a plan. A new architecture is one variant
//! and one arm of [`Architecture::wiring`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::error::Error;
use crate::base::text::same_name;

/// Which layers of a Ladder Residual model are wired as ladder (`ladder_layers` of HF configs).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LadderLayers {
    /// Every layer of the model is wired as ladder.
    All,
    /// The last K layers are wired as ladder, those before them as standard (`ladder:K`).
    Last(u32),
    /// Just these layers are wired as ladder, ascending and each once.
    Only(Vec<u32>),
}

/// When the reduced output of a module joins the residual that later modules read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
    /// Staleness 0: a module reads the residual with all earlier outputs.
    Standard,
    /// Staleness 1 in the given layers: the newest output is still in flight.
    Ladder(LadderLayers),
    /// Staleness S in every layer.
    Stale(u32),
    /// Attention and MLP of a layer read the same residual; one all-reduce for both.
    Parallel,
    /// `Parallel` with staleness 1.
    ParallelLadder,
    /// Ranks keep their own residual and synchronise after every N-th module, and the last.
    Desync(u32),
    /// No all-reduce at all: numerically wrong on purpose, the limit of hiding.
    UpperBound,
}

/// When partial outputs are summed over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Partial outputs are summed after every module, so that each ends in an all-reduce.
    Each,
    /// After every N-th module, and the last; the residual is averaged with it.
    Every(u32),
    /// Partial outputs are never summed: every rank goes on with what it has
    /// (`upper-bound`, or one rank).
    Never,
}

/// What an architecture means to the builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// For each layer, how many of the newest outputs its modules do not yet see.
    pub staleness: Vec<u32>,
    /// When partial outputs are summed.
    pub reduce: Reduce,
    /// Attention and MLP as one module with one fused input projection.
    pub fused_block: bool,
}

impl Architecture {
    /// The wiring of this architecture for a model of `layers` layers.
    pub fn wiring(&self, layers: u32) -> Wiring {
        let uniform = |staleness| Wiring {
            staleness: vec![staleness; layers as usize],
            reduce: Reduce::Each,
            fused_block: false,
        };
        match self {
            Self::Standard => uniform(0),
            Self::Stale(staleness) => uniform(*staleness),
            Self::Ladder(which) => Wiring {
                staleness: (0..layers).map(|l| u32::from(which.contains(l, layers))).collect(),
                ..uniform(0)
            },
            Self::Parallel => Wiring { fused_block: true, ..uniform(0) },
            Self::ParallelLadder => Wiring { fused_block: true, ..uniform(1) },
            Self::Desync(every) => Wiring { reduce: Reduce::Every(*every), ..uniform(0) },
            Self::UpperBound => Wiring { reduce: Reduce::Never, ..uniform(0) },
        }
    }

    /// Whether it is a limit and no choice: it computes nothing right, and shows how far others could go.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::UpperBound)
    }

    /// The ladder of an HF config's `ladder_layers`, if it has one.
    pub fn from_ladder_layers(value: &LadderLayers) -> Self {
        Self::Ladder(value.clone())
    }

    /// The forms a user can type.
    pub const FORMS: [&'static str; 8] = [
        "standard",
        "ladder",
        "ladder:K",
        "parallel",
        "desync:N",
        "upper-bound",
        "stale:S",
        "parallel+ladder",
    ];

    /// What each of them is, in a few words, in the same order.
    pub const MEANINGS: [&'static str; Self::FORMS.len()] = [
        "modules read the residual with all earlier outputs",
        "modules read the residual without the newest output",
        "ladder in the last K layers; ladder:[0+2] in these",
        "attention and MLP read alike; one all-reduce a layer",
        "ranks' own residuals, synchronised every N modules",
        "no all-reduce: wrong on purpose, the speed limit",
        "as ladder, without the newest S outputs",
        "parallel without the newest output",
    ];
}

impl LadderLayers {
    /// Whether layer `layer` of `layers` is wired as ladder.
    pub fn contains(&self, layer: u32, layers: u32) -> bool {
        match self {
            Self::All => true,
            Self::Last(last) => layer + last >= layers,
            Self::Only(list) => list.binary_search(&layer).is_ok(),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard"),
            Self::Ladder(LadderLayers::All) => f.write_str("ladder"),
            Self::Ladder(LadderLayers::Last(k)) => write!(f, "ladder:{k}"),
            Self::Ladder(LadderLayers::Only(list)) => {
                let list: Vec<String> = list.iter().map(u32::to_string).collect();
                write!(f, "ladder:[{}]", list.join("+"))
            }
            Self::Stale(s) => write!(f, "stale:{s}"),
            Self::Parallel => f.write_str("parallel"),
            Self::ParallelLadder => f.write_str("parallel+ladder"),
            Self::Desync(n) => write!(f, "desync:{n}"),
            Self::UpperBound => f.write_str("upper-bound"),
        }
    }
}

impl FromStr for Architecture {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let mut known = Self::FORMS.iter().filter_map(|form| form.split(':').next());
        let name = known.find(|known| same_name(known, name)).unwrap_or(name);
        let number = |what: &str, least: u32| -> Result<u32, Error> {
            argument.and_then(|a| a.parse().ok()).filter(|n| *n >= least).ok_or_else(|| {
                Error::input_help(
                    format!("architecture '{text}': {what} is missing or not a number"),
                    format!(
                        "write {name}:N with N at least {least}, for example {name}:{}",
                        least.max(2)
                    ),
                )
            })
        };
        match (name, argument) {
            ("standard", None) => Ok(Self::Standard),
            ("ladder", None) => Ok(Self::Ladder(LadderLayers::All)),
            ("ladder", Some(list)) if list.starts_with('[') => {
                let inner = list.trim_start_matches('[').trim_end_matches(']');
                let mut layers = inner
                    .split('+')
                    .filter(|l| !l.trim().is_empty())
                    .map(|l| l.trim().parse::<u32>())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_| {
                        Error::input_help(
                            format!("architecture '{text}': not a list of layers"),
                            "write ladder:[0+2+5]",
                        )
                    })?;
                layers.sort_unstable();
                layers.dedup();
                Ok(Self::Ladder(LadderLayers::Only(layers)))
            }
            ("ladder", Some(_)) => Ok(Self::Ladder(LadderLayers::Last(number("K", 0)?))),
            ("stale", _) => Ok(Self::Stale(number("S", 0)?)),
            ("desync", _) => Ok(Self::Desync(number("N", 1)?)),
            ("parallel", None) => Ok(Self::Parallel),
            ("parallel+ladder", None) => Ok(Self::ParallelLadder),
            ("upper-bound", None) => Ok(Self::UpperBound),
            _ => Err(Error::unknown("architecture", text, Self::FORMS)),
        }
    }
}

impl Serialize for Architecture {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
