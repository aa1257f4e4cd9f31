//! Architectures as residual wirings (arXiv 2501.06589 and neighbours).
//!
//! An architecture says four things and nothing else: how stale the residual is that a module
//! reads, when partial outputs are reduced, in which layers attention's reduction is dropped, and whether
//! attention and MLP of a layer are one module.
//! The builder in [`super::build`] turns a [`Wiring`] into a plan. A new architecture is one variant
//! and one arm of [`Architecture::wiring`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::CommDType;
use base::error::Error;
use base::text::same_name;

/// The layers of a model that are wired in an architecture's way, the others being wired as standard
/// (`ladder_layers` of HF configs of Ladder Residual models).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerSet {
    /// Every layer of the model.
    All,
    /// The last K layers (`ladder:K`, `sync-drop:K`).
    Last(u32),
    /// Just these layers, ascending and each once (`ladder:[0+2+5]`).
    Only(Vec<u32>),
}

/// When the reduced output of a module joins the residual that later modules read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
    /// Staleness 0: a module reads the residual with all earlier outputs.
    Standard,
    /// Staleness 1 in the given layers: the newest output is still in flight.
    Ladder(LayerSet),
    /// Staleness S in every layer.
    Stale(u32),
    /// Attention and MLP of a layer read the same residual; one all-reduce for both.
    Parallel,
    /// Attention and MLP of a layer as in `Parallel`, with staleness 1: their one all-reduce may run
    /// while the next layer computes.
    ParallelLadder,
    /// Ranks keep their own residual and synchronise after every N-th module, and the last.
    Desync(u32),
    /// Delayed Tensor Parallelism (Kog, 2026): every rank keeps its own residual, which a module's own part
    /// joins at once and the other ranks' parts D modules later. `delayed:0` is `Standard`.
    Delayed(u32),
    /// Sync-Point Drop (SPD, arXiv 2502.20727): in the given layers the MLP reads the residual with the
    /// rank's own part of attention, and one all-reduce at the layer's end sums both.
    SyncDrop(LayerSet),
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
    /// After every module but the last D; a rank's own part joins its residual at once, the others' D modules
    /// later, and the mean over ranks of what the final norm makes of the residuals is taken.
    Delayed(u32),
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
    /// For each layer, whether attention's output is summed only together with the MLP's.
    pub dropped: Vec<bool>,
    /// Attention and MLP as one module with one fused input projection.
    pub fused_block: bool,
}

impl Wiring {
    /// Whether ranks may hold different residuals for a while.
    pub fn may_diverge(&self) -> bool {
        self.reduce != Reduce::Each || self.dropped.contains(&true)
    }
}

impl Architecture {
    /// Why a model of so many layers cannot be wired so: layers are named that it has not. `None` where it can.
    pub fn layer_problem(&self, layers: u32) -> Option<String> {
        let (Self::Ladder(set) | Self::SyncDrop(set)) = self else { return None };
        let problem = set.beyond(layers)?;
        Some(format!(
            "{self} names {problem}, and the model has {layers} (0 to {})",
            layers.saturating_sub(1)
        ))
    }

    /// Why the rows of the residual cannot be scattered over the ranks (sequence parallelism); `None` where they can.
    pub fn scatter_problem(&self, layers: u32) -> Option<String> {
        if *self == Self::UpperBound {
            return Some("upper-bound has no all-reduce that sequence parallelism could divide".into());
        }
        self.wiring(layers).may_diverge().then(|| {
            format!(
                "sequence parallelism scatters one residual over the ranks, and the ranks of {self} have residuals of \
                 their own"
            )
        })
    }

    /// Whether it computes the same numbers at every TP, but for the order of sums: no rank has a residual of its own,
    /// and no partial sum is rounded before it is added.
    pub fn is_of_any_tp(&self, comm_dtype: CommDType) -> bool {
        // what an architecture does in any layer it does in one of so many
        comm_dtype == CommDType::Activations && !self.wiring(4096).may_diverge()
    }

    /// The wiring of this architecture for a model of `layers` layers.
    pub fn wiring(&self, layers: u32) -> Wiring {
        let uniform = |staleness| Wiring {
            staleness: vec![staleness; layers as usize],
            reduce: Reduce::Each,
            dropped: vec![false; layers as usize],
            fused_block: false,
        };
        let each = |which: &LayerSet| (0..layers).map(|l| which.contains(l, layers)).collect::<Vec<_>>();
        match self {
            Self::Standard | Self::Delayed(0) => uniform(0),
            Self::Stale(staleness) => uniform(*staleness),
            Self::Ladder(which) => {
                Wiring { staleness: each(which).into_iter().map(u32::from).collect(), ..uniform(0) }
            }
            Self::Parallel => Wiring { fused_block: true, ..uniform(0) },
            Self::ParallelLadder => Wiring { fused_block: true, ..uniform(1) },
            Self::Desync(every) => Wiring { reduce: Reduce::Every(*every), ..uniform(0) },
            Self::Delayed(delay) => Wiring { reduce: Reduce::Delayed(*delay), ..uniform(0) },
            Self::SyncDrop(which) => Wiring { dropped: each(which), ..uniform(0) },
            Self::UpperBound => Wiring { reduce: Reduce::Never, ..uniform(0) },
        }
    }

    /// Whether it is a limit and no choice: it computes nothing right, and shows how far others could go.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::UpperBound)
    }

    /// The ladder of an HF config's `ladder_layers`, if it has one.
    pub fn from_ladder_layers(value: &LayerSet) -> Self {
        Self::Ladder(value.clone())
    }

    /// The forms a user can type.
    pub const FORMS: [&'static str; 10] = [
        "standard",
        "ladder",
        "ladder:K",
        "parallel",
        "desync:N",
        "delayed:D",
        "sync-drop:K",
        "upper-bound",
        "stale:S",
        "parallel+ladder",
    ];

    /// What each of them is, in a few words, in the same order.
    pub const MEANINGS: [&'static str; Self::FORMS.len()] = [
        "modules read the residual with all earlier outputs",
        "modules read the residual without the newest output",
        "ladder in the last K layers; ladder:[0+2]: layers 0, 2",
        "attention and MLP in parallel; one all-reduce per layer",
        "one residual per rank, synchronised every N modules",
        "other ranks' partial sums join D modules later",
        "one all-reduce per layer in the last K layers; sync-drop:[0+2]: in layers 0, 2",
        "no all-reduce: wrong on purpose, the speed limit",
        "like ladder, without the newest S outputs",
        "parallel, without the newest output",
    ];
}

impl LayerSet {
    /// The set of these layers of a model of `layers`, in the shortest form: all, the last ones, or a list.
    pub fn of(chosen: &[u32], layers: u32) -> Self {
        let mut list = chosen.to_vec();
        list.sort_unstable();
        list.dedup();
        let count = list.len() as u32;
        match list.first() {
            Some(0) if count == layers => Self::All,
            Some(first) if first + count == layers => Self::Last(count),
            _ => Self::Only(list),
        }
    }

    /// Its layers in a model of `layers`, ascending.
    ///
    /// # Errors
    ///
    /// An input error where it names layers that the model has not.
    pub fn layers(&self, layers: u32) -> Result<Vec<u32>, Error> {
        match self.beyond(layers) {
            Some(what) => Err(Error::input_help(
                format!("the model has no such layers: {what} of {layers}"),
                format!("its layers are 0 to {}", layers.saturating_sub(1)),
            )),
            None => Ok((0..layers).filter(|layer| self.contains(*layer, layers)).collect()),
        }
    }

    /// Those of its layers that a model of `layers` has not, in words.
    fn beyond(&self, layers: u32) -> Option<String> {
        match self {
            Self::All => None,
            Self::Last(count) => (*count > layers).then(|| format!("the last {count} layers")),
            Self::Only(list) => list.last().filter(|l| **l >= layers).map(|l| format!("layer {l}")),
        }
    }

    /// Whether layer `layer` of `layers` is one of them.
    pub fn contains(&self, layer: u32, layers: u32) -> bool {
        match self {
            Self::All => true,
            Self::Last(last) => layers.saturating_sub(layer) <= *last,
            Self::Only(list) => list.binary_search(&layer).is_ok(),
        }
    }
}

/// What follows an architecture's name: nothing for all layers, `:K` or `:[0+2+5]`.
impl fmt::Display for LayerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Last(k) => write!(f, ":{k}"),
            Self::Only(list) => {
                let list: Vec<String> = list.iter().map(u32::to_string).collect();
                write!(f, ":[{}]", list.join("+"))
            }
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard"),
            Self::Ladder(which) => write!(f, "ladder{which}"),
            Self::Stale(s) => write!(f, "stale:{s}"),
            Self::Parallel => f.write_str("parallel"),
            Self::ParallelLadder => f.write_str("parallel+ladder"),
            Self::Desync(n) => write!(f, "desync:{n}"),
            Self::Delayed(d) => write!(f, "delayed:{d}"),
            Self::SyncDrop(which) => write!(f, "sync-drop{which}"),
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
        let layers = || match argument {
            None => Ok(LayerSet::All),
            Some(list) if list.starts_with('[') => {
                let inner = list.trim_start_matches('[').trim_end_matches(']');
                let mut layers = inner
                    .split('+')
                    .filter(|l| !l.trim().is_empty())
                    .map(|l| l.trim().parse::<u32>())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_| {
                        Error::input_help(
                            format!("architecture '{text}': not a list of layers"),
                            format!("write {name}:[0+2+5]"),
                        )
                    })?;
                layers.sort_unstable();
                layers.dedup();
                Ok(LayerSet::Only(layers))
            }
            Some(_) => number("K", 0).map(LayerSet::Last),
        };
        match (name, argument) {
            ("standard", None) => Ok(Self::Standard),
            ("ladder", _) => Ok(Self::Ladder(layers()?)),
            ("sync-drop", _) => Ok(Self::SyncDrop(layers()?)),
            ("stale", _) => Ok(Self::Stale(number("S", 0)?)),
            ("desync", _) => Ok(Self::Desync(number("N", 1)?)),
            ("delayed", _) => Ok(Self::Delayed(number("D", 0)?)),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_set_has_the_shortest_form_and_layers_beyond_the_model_are_refused() {
        let form = |chosen: &[u32]| Architecture::Ladder(LayerSet::of(chosen, 4)).to_string();
        assert_eq!(form(&[3, 0, 2, 1]), "ladder");
        assert_eq!(form(&[3, 2]), "ladder:2");
        assert_eq!(form(&[2, 0, 2]), "ladder:[0+2]");
        assert_eq!(form(&[]), "ladder:[]");
        for (set, part) in [(LayerSet::Last(5), "last 5"), (LayerSet::Only(vec![1, 4]), "layer 4")] {
            let error = set.layers(4).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(part), "{error}");
            for architecture in [Architecture::Ladder(set.clone()), Architecture::SyncDrop(set)] {
                let problem = architecture.layer_problem(4).unwrap();
                assert!(problem.contains(part) && problem.contains("has 4 (0 to 3)"), "{problem}");
                assert_eq!(architecture.layer_problem(5), None);
            }
        }
        assert_eq!(Architecture::Delayed(99).layer_problem(4), None, "modules, not layers");
    }

    proptest! {
        #[test]
        fn sets_are_what_they_were_made_of_and_are_read_as_they_are_written(
            mut chosen in proptest::collection::btree_set(0u32..6, 0..7), layers in 6u32..8,
        ) {
            let list: Vec<u32> = std::mem::take(&mut chosen).into_iter().collect();
            let set = LayerSet::of(&list, layers);
            prop_assert_eq!(&set.layers(layers).unwrap(), &list);
            for architecture in [Architecture::Ladder(set.clone()), Architecture::SyncDrop(set)] {
                prop_assert_eq!(architecture.to_string().parse::<Architecture>().unwrap(), architecture);
            }
        }
    }
}
