//! Architectures as residual wirings (arXiv 2501.06589 and neighbours).
//!
//! An architecture defines five things: how stale the residual is when a module reads it, when partial
//! outputs are reduced, which layers drop attention's reduction, if a rank reads its own part of missing
//! outputs, and whether attention and MLP form one module. [`super::build`] turns the resulting [`Wiring`] into
//! a plan; a new architecture needs one variant and one arm of [`Architecture::wiring`].
//!
//! Published wirings that are not here need weights of their own, so that no arm can express them and no
//! checkpoint that we read has them:
//!
//! - FAL (arXiv 2510.14614): from layer 1 on, MLPs read the first layer's attention instead of their own, through a
//!   norm that its abstract does not describe.
//! - ScMoE (arXiv 2404.05019) and LongCat-Flash: routed experts read an earlier residual, through a norm of their
//!   own; LongCat-Flash has two attentions and two dense MLPs a layer.
//! - Arctic: a dense MLP with a norm of its own beside experts that read the layer's input.
//! - Hyper-connections: a residual of several rows per token, mixed by learned matrices.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CommDType, ModelShape, Module};
use base::error::Error;
use base::text::same_name;

/// Layers wired by an architecture; all others are wired as standard (`ladder_layers` and `farskip_layers`
/// in HF configs).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerSet {
    All,
    /// The last K layers (`ladder:K`, `sync-drop:K`).
    Last(u32),
    /// Exactly these layers, ascending and without duplicates (`ladder:[0+2+5]`).
    Only(Vec<u32>),
}

/// Share of a residual's channels, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channels(u32);

impl Channels {
    pub const ALL: Self = Self(1000);

    /// Parses a share above 0 and of at most 1, with up to three decimals.
    fn parse(text: &str) -> Option<Self> {
        let share: f64 = text.parse().ok()?;
        let thousandths = (share * 1000.0).round();
        let is_exact = (share * 1000.0 - thousandths).abs() < 1e-6;
        (is_exact && (1.0..=1000.0).contains(&thousandths)).then_some(Self(thousandths as u32))
    }

    pub fn thousandths(self) -> u32 {
        self.0
    }

    /// The first channels of `hidden`, rounded down.
    pub fn count(self, hidden: u32) -> u32 {
        (u64::from(hidden) * u64::from(self.0) / 1000) as u32
    }
}

impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// Residual wiring: when the reduced output of a module joins the residual that later modules read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
    /// Staleness 0: a module reads the residual with all earlier outputs.
    Standard,
    /// Staleness 1 in the given layers: the newest output is still in flight.
    Ladder(LayerSet),
    Stale(u32),
    /// Attention and MLP of a layer read the same residual; one all-reduce for both.
    Parallel,
    /// FarSkip-Collective (arXiv 2511.11505). Attention sees everything but the routed experts' output of
    /// the layer before, experts everything but attention of their own layer; attention and shared experts
    /// share an all-reduce. In dense layers that is `Parallel`, with the MLP's own norm. Attention of a
    /// layer in the set skips the routed output only of a layer in the set, as in the authors' code.
    FarSkip(LayerSet),
    /// `Parallel` with staleness 1: the layer's single all-reduce may overlap with the next layer.
    ParallelLadder,
    /// Every rank keeps its own residual; ranks synchronize after every N-th module and after the last.
    Desync(u32),
    /// Delayed Tensor Parallelism (Kog, 2026): every rank keeps its own residual. It adds its own part
    /// of a module's output at once and the other ranks' parts D modules later. `delayed:0` is
    /// `Standard`.
    Delayed(u32),
    /// Sync-Point Drop (SPD, arXiv 2502.20727): in the given layers the MLP reads a residual that
    /// contains only the rank's own part of attention, and one all-reduce at the end of the layer sums
    /// both.
    SyncDrop(LayerSet),
    /// Kraken (arXiv 2408.07802), as inferred from its descriptions: sync-point drop in every layer, and
    /// the next attention reads only the rank's own part of the layer, whose all-reduce is in flight.
    Kraken,
    /// Parallel Track Transformer (arXiv 2602.07306): every rank keeps its own residual; ranks average
    /// their residuals, which contain the newest outputs, after every D-th layer and after the last. The
    /// paper does not say if the residuals are averaged or summed; the mean is our choice.
    Tracks(u32),
    /// CAAT-Net (arXiv 2506.19645): only the first channels of a module's output are summed; in the others
    /// every rank keeps its own part times sqrt(L). Every rank norms its own residual, and makes the logits
    /// of its part of the vocabulary from it. `partial:1` is `Standard`.
    Partial(Channels),
    /// `Partial` with staleness 1: neither the summed channels of the newest output nor the rank's own part
    /// of the others have joined the residual that a module reads.
    PartialLadder(Channels),
    /// No all-reduce at all: numerically wrong on purpose, the upper bound on hidden communication.
    UpperBound,
}

/// Schedule of the sums of partial outputs over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    Each,
    /// After every N-th module and after the last; the residual is averaged in the same all-reduce.
    Every(u32),
    /// After every N-th module and after the last, of the residual with the module's output instead of
    /// the output: the mean over ranks.
    Mean(u32),
    /// After every module, of the first channels alone; a rank keeps its own part of the others. The head is
    /// divided by vocabulary, and each rank's part reads its own residual.
    Channels(Channels),
    /// After every module except the last D. A rank adds its own part at once and the others' parts D
    /// modules later. The final norm runs on each rank's residual, and the results are averaged over
    /// ranks.
    Delayed(u32),
    /// Partial outputs are never summed; each rank continues with its own (`upper-bound`, or a single
    /// rank).
    Never,
}

/// Number of newest outputs that a layer's modules do not see yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    pub attention: u32,
    /// Of the MLP or the experts.
    pub mlp: u32,
}

impl Staleness {
    fn uniform(outputs: u32) -> Self {
        Self { attention: outputs, mlp: outputs }
    }
}

/// Architecture as the builder reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// Staleness of each layer.
    pub staleness: Vec<Staleness>,
    pub reduce: Reduce,
    /// For each layer, true if attention's output is summed only together with the MLP's.
    pub dropped: Vec<bool>,
    /// True if a module reads the rank's own part of outputs whose sum it does not see yet: dropped ones,
    /// and those that staleness excludes.
    pub own_part: bool,
    /// True if attention and MLP form one module with one fused input projection.
    pub fused_block: bool,
    /// For each layer, true if routed experts' output is an output of its own, reduced after that of
    /// attention and shared experts.
    pub apart: Vec<bool>,
}

impl Wiring {
    /// Number of newest outputs that a module does not see yet.
    pub(super) fn unseen(&self, module: Module, layer: u32) -> u32 {
        let staleness = self.staleness.get(layer as usize).copied().unwrap_or_default();
        if matches!(module, Module::Mlp | Module::Moe) { staleness.mlp } else { staleness.attention }
    }

    /// True if ranks may temporarily hold different residuals.
    pub fn may_diverge(&self) -> bool {
        self.reduce != Reduce::Each || (self.own_part && self.dropped.contains(&true))
    }

    /// True if every rank makes the logits of its part of the vocabulary from its own residual.
    pub fn divides_head(&self) -> bool {
        matches!(self.reduce, Reduce::Channels(_))
    }
}

/// Syntax forms users can type, each with a short description.
const SYNTAX: [[&str; 2]; 15] = [
    ["standard", "modules read the residual with all earlier outputs"],
    ["ladder", "modules read the residual without the newest output"],
    ["ladder:K", "ladder in the last K layers; ladder:[0+2]: layers 0, 2"],
    ["parallel", "attention and MLP in parallel; one all-reduce per layer"],
    ["desync:N", "one residual per rank, synchronised every N modules"],
    ["delayed:D", "other ranks' partial sums join D modules later"],
    ["sync-drop:K", "one all-reduce per layer in the last K layers; sync-drop:[0+2]: in layers 0, 2"],
    [
        "kraken",
        "one all-reduce per layer, behind the next attention, which reads only the rank's own part",
    ],
    ["tracks:D", "one residual per rank, averaged every D layers"],
    [
        "farskip:K",
        "in the last K layers (farskip: in all), experts skip attention, and the next attention the routed experts",
    ],
    [
        "partial:P",
        "only the share P of the channels is summed, partial:0.5; the others stay on their rank",
    ],
    ["partial:P+ladder", "partial, without the newest output"],
    ["upper-bound", "no all-reduce: wrong on purpose, the speed limit"],
    ["stale:S", "like ladder, without the newest S outputs"],
    ["parallel+ladder", "parallel, without the newest output"],
];

/// Column of [`SYNTAX`]: 0 for the forms, 1 for their descriptions.
const fn syntax(column: usize) -> [&'static str; SYNTAX.len()] {
    let mut all = [""; SYNTAX.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = SYNTAX[at][column];
        at += 1;
    }
    all
}

impl Architecture {
    /// Explains why the architecture does not fit a model at this TP: layers that do not exist, no channel
    /// to sum, or a vocabulary that cannot be divided; `None` if it fits.
    pub fn model_problem(&self, shape: &ModelShape, tp: u32) -> Option<String> {
        let of_wiring = || {
            let Reduce::Channels(share) = self.wiring(shape.layers).reduce else { return None };
            let (hidden, vocab) = (shape.hidden, shape.vocab);
            if tp > 1 && share.count(hidden) == 0 {
                return Some(format!("{self} sums none of {hidden} channels"));
            }
            let uneven = tp > 1 && !vocab.is_multiple_of(tp);
            uneven.then(|| {
                format!("{self} divides the head, and TP {tp} does not divide the vocabulary of {vocab}")
            })
        };
        let of_experts = || {
            let diverges = tp > 1 && !self.is_limit() && self.wiring(shape.layers).may_diverge();
            shape.experts.as_ref().filter(|_| diverges).map(|_| {
                format!(
                    "{self} needs a dense model: its ranks have residuals of their own, so that their routers would \
                     choose different experts"
                )
            })
        };
        self.layer_problem(shape.layers).or_else(of_wiring).or_else(of_experts)
    }

    /// Explains why the architecture does not fit a model with `layers` layers (it names layers that do
    /// not exist); `None` if it fits.
    pub fn layer_problem(&self, layers: u32) -> Option<String> {
        let (Self::Ladder(set) | Self::SyncDrop(set) | Self::FarSkip(set)) = self else { return None };
        let problem = set.beyond(layers)?;
        Some(format!(
            "{self} refers to {problem}, but the model has only {layers} (0 to {})",
            layers.saturating_sub(1)
        ))
    }

    /// True if the architecture changes only all-reduces. Data-parallel attention with whole experts per rank has none: it
    /// dispatches rows to experts and combines their outputs.
    pub fn changes_only_sums(&self, layers: u32) -> bool {
        let wiring = self.wiring(layers);
        !self.is_limit() && (wiring.may_diverge() || wiring.own_part)
    }

    /// Explains why sequence parallelism cannot scatter the residual's rows over the ranks; `None` if it
    /// can.
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

    /// True if the result does not depend on TP, except for the order of sums: no rank keeps its own
    /// residual and no partial sum is rounded before the addition.
    pub fn is_of_any_tp(&self, comm_dtype: CommDType) -> bool {
        // 4096 layers are enough to cover everything an architecture does in any layer
        comm_dtype == CommDType::Activations && !self.wiring(4096).may_diverge()
    }

    /// Wiring in a model of this shape.
    pub(super) fn wiring_of(&self, shape: &ModelShape) -> Wiring {
        let mut wiring = self.wiring(shape.layers);
        let (Self::FarSkip(set), Some(experts)) = (self, &shape.experts) else { return wiring };
        // experts do not see attention of their layer, nor attention the routed output of the layer before
        let has_shared = experts.shared_width > 0;
        let is_apart = |layer: &u32| experts.is_routed(*layer) && set.contains(*layer, shape.layers);
        for layer in (0..shape.layers).filter(|layer| set.contains(*layer, shape.layers)) {
            let at = layer as usize;
            let skips = layer.checked_sub(1).is_some_and(|before| is_apart(&before));
            wiring.staleness[at] = Staleness { attention: u32::from(skips), mlp: 0 };
            if is_apart(&layer) {
                wiring.apart[at] = true;
                wiring.dropped[at] = has_shared;
                wiring.staleness[at].mlp = u32::from(!has_shared);
            }
        }
        wiring
    }

    /// Wiring of a dense model.
    pub fn wiring(&self, layers: u32) -> Wiring {
        let uniform = |staleness| Wiring {
            staleness: vec![Staleness::uniform(staleness); layers as usize],
            reduce: Reduce::Each,
            dropped: vec![false; layers as usize],
            own_part: false,
            fused_block: false,
            apart: vec![false; layers as usize],
        };
        let each = |which: &LayerSet| (0..layers).map(|l| which.contains(l, layers)).collect::<Vec<_>>();
        match self {
            Self::Standard | Self::Delayed(0) => uniform(0),
            Self::Stale(staleness) => uniform(*staleness),
            Self::Ladder(which) => {
                let staleness = |is_ladder: bool| Staleness::uniform(u32::from(is_ladder));
                Wiring { staleness: each(which).into_iter().map(staleness).collect(), ..uniform(0) }
            }
            Self::Parallel => Wiring { fused_block: true, ..uniform(0) },
            Self::FarSkip(which) => Wiring { dropped: each(which), ..uniform(0) },
            Self::ParallelLadder => Wiring { fused_block: true, ..uniform(1) },
            Self::Desync(every) => Wiring { reduce: Reduce::Every(*every), ..uniform(0) },
            Self::Delayed(delay) => Wiring { reduce: Reduce::Delayed(*delay), ..uniform(0) },
            Self::SyncDrop(which) => Wiring { dropped: each(which), own_part: true, ..uniform(0) },
            Self::Kraken => Wiring { dropped: each(&LayerSet::All), own_part: true, ..uniform(1) },
            Self::Tracks(every) => {
                Wiring { reduce: Reduce::Mean(every.saturating_mul(2)), ..uniform(0) }
            }
            Self::Partial(Channels::ALL) => uniform(0),
            Self::PartialLadder(Channels::ALL) => uniform(1),
            Self::Partial(share) => Wiring { reduce: Reduce::Channels(*share), ..uniform(0) },
            Self::PartialLadder(share) => Wiring { reduce: Reduce::Channels(*share), ..uniform(1) },
            Self::UpperBound => Wiring { reduce: Reduce::Never, ..uniform(0) },
        }
    }

    /// True for an upper bound rather than a usable architecture: its numbers are wrong, its speed is
    /// the limit.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::UpperBound)
    }

    /// Layers that a checkpoint's config records: of `ladder` and `farskip`.
    pub fn recorded_layers(&self) -> Option<&LayerSet> {
        match self {
            Self::Ladder(layers) | Self::FarSkip(layers) => Some(layers),
            _ => None,
        }
    }

    /// Syntax forms users can type.
    pub const FORMS: [&'static str; SYNTAX.len()] = syntax(0);

    /// Short description of each of [`Self::FORMS`], in the same order.
    pub const MEANINGS: [&'static str; SYNTAX.len()] = syntax(1);

    /// Error for two architectures that are not combined, with the reason; `None` if `text` names none or
    /// one.
    fn combination(text: &str) -> Option<Error> {
        let (first, second) = text.rsplit_once('+')?;
        let both = [first, second].map(|name| name.parse::<Self>());
        let [Ok(first), Ok(second)] = both else { return None };
        let (other, ladder) = match first {
            Self::Ladder(_) => (second, first),
            _ => (first, second),
        };
        let why = match (&other, &ladder) {
            (_, Self::Ladder(set)) if *set != LayerSet::All => "only ladder in all layers is combined",
            (Self::Standard | Self::Ladder(_), Self::Ladder(_)) => "that is ladder",
            (Self::Stale(_), Self::Ladder(_)) => "ladder is stale:1; write stale:S with another S",
            (Self::Delayed(_), Self::Ladder(_)) => "delayed:D delays sums already; choose another D",
            (Self::Kraken, Self::Ladder(_)) => {
                "kraken already hides its all-reduce behind the next attention"
            }
            (Self::SyncDrop(_), Self::Ladder(_)) => "kraken is sync-drop with a delayed sum",
            (Self::FarSkip(_), Self::Ladder(_)) => "parallel+ladder delays the same sum, with one norm",
            (Self::Desync(_) | Self::Tracks(_), Self::Ladder(_)) => {
                "its ranks exchange residuals, and ladder delays the output of a module"
            }
            (Self::UpperBound, Self::Ladder(_)) => "upper-bound has no all-reduce to hide",
            (Self::Parallel | Self::Partial(_), Self::Ladder(_)) => "write the other name first",
            _ => "only parallel and partial:P are combined, each with ladder",
        };
        Some(Error::input_help(
            format!("architecture '{text}' does not exist: {why}"),
            "combinations are parallel+ladder and partial:P+ladder",
        ))
    }
}

impl LayerSet {
    /// Shortest form of a set of layers in a model with `layers` layers: all, the last K, or a list.
    pub fn new(chosen: &[u32], layers: u32) -> Self {
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

    /// Layer indices in a model with `layers` layers, ascending.
    ///
    /// # Errors
    ///
    /// Returns an input error if the set names layers that the model does not have.
    pub fn layers(&self, layers: u32) -> Result<Vec<u32>, Error> {
        match self.beyond(layers) {
            Some(what) => Err(Error::input_help(
                format!("the model has no such layers: {what} of {layers}"),
                format!("its layers are 0 to {}", layers.saturating_sub(1)),
            )),
            None => Ok((0..layers).filter(|layer| self.contains(*layer, layers)).collect()),
        }
    }

    /// Describes the layers of the set that exceed a model with `layers` layers.
    fn beyond(&self, layers: u32) -> Option<String> {
        match self {
            Self::All => None,
            Self::Last(count) => (*count > layers).then(|| format!("the last {count} layers")),
            Self::Only(list) => list.last().filter(|l| **l >= layers).map(|l| format!("layer {l}")),
        }
    }

    /// True if layer `layer` of `layers` is in the set.
    pub fn contains(&self, layer: u32, layers: u32) -> bool {
        match self {
            Self::All => true,
            Self::Last(last) => layers.saturating_sub(layer) <= *last,
            Self::Only(list) => list.binary_search(&layer).is_ok(),
        }
    }
}

/// Suffix after an architecture's name: empty for all layers, else `:K` or `:[0+2+5]`.
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
            Self::Kraken => f.write_str("kraken"),
            Self::FarSkip(which) => write!(f, "farskip{which}"),
            Self::Tracks(d) => write!(f, "tracks:{d}"),
            Self::Partial(share) => write!(f, "partial:{share}"),
            Self::PartialLadder(share) => write!(f, "partial:{share}+ladder"),
            Self::UpperBound => f.write_str("upper-bound"),
        }
    }
}

impl FromStr for Architecture {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).map_err(|error| Self::combination(text).unwrap_or(error))
    }
}

impl Architecture {
    fn parse(text: &str) -> Result<Self, Error> {
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
        let stale = argument.and_then(|share| share.strip_suffix("+ladder"));
        let share = || {
            stale.or(argument).and_then(Channels::parse).ok_or_else(|| {
                Error::input_help(
                    format!("architecture '{text}': P is missing or not a share of the channels"),
                    "write partial:P with P above 0 and at most 1, in thousandths, for example partial:0.5",
                )
            })
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
            ("tracks", _) => Ok(Self::Tracks(number("D", 1)?)),
            ("farskip", _) => Ok(Self::FarSkip(layers()?)),
            ("kraken", None) => Ok(Self::Kraken),
            ("partial", _) if stale.is_some() => Ok(Self::PartialLadder(share()?)),
            ("partial", _) => Ok(Self::Partial(share()?)),
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
        let form = |chosen: &[u32]| Architecture::Ladder(LayerSet::new(chosen, 4)).to_string();
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
                assert!(problem.contains(part) && problem.contains("has only 4 (0 to 3)"), "{problem}");
                assert_eq!(architecture.layer_problem(5), None);
            }
        }
        assert_eq!(Architecture::Delayed(99).layer_problem(4), None, "modules, not layers");
    }

    #[test]
    fn tests_of_all_architectures_have_every_form() {
        let name = |text: &str| text.split_once(':').map_or(text, |(name, _)| name).to_owned();
        for form in Architecture::FORMS {
            let is_ladder = form.ends_with("+ladder");
            let is_same =
                |text: &&&str| name(text) == name(form) && text.ends_with("+ladder") == is_ladder;
            assert!(crate::testing::ARCHITECTURES.iter().any(|text| is_same(&text)), "{form}");
        }
    }

    #[test]
    fn combinations_that_make_no_sense_are_refused_by_name() {
        let share = Channels::parse("0.5").unwrap();
        assert_eq!(
            "Partial:0.5+ladder".parse::<Architecture>().unwrap(),
            Architecture::PartialLadder(share)
        );
        assert_eq!("partial:0.50".parse::<Architecture>().unwrap().to_string(), "partial:0.5");
        for (text, part) in [
            ("kraken+ladder", "behind the next attention"),
            ("tracks:2+ladder", "exchange residuals"),
            ("desync:2+ladder", "exchange residuals"),
            ("delayed:2+ladder", "choose another D"),
            ("stale:2+ladder", "stale:1"),
            ("sync-drop+ladder", "kraken is sync-drop"),
            ("farskip+ladder", "parallel+ladder"),
            ("upper-bound+ladder", "no all-reduce"),
            ("ladder+standard", "that is ladder"),
            ("ladder+partial:0.5", "other name first"),
            ("parallel+ladder:2", "ladder in all layers"),
            ("partial:0.5+kraken", "only parallel and partial:P"),
            ("partial:0.5+ladder+ladder", "only parallel and partial:P"),
        ] {
            let error = text.parse::<Architecture>().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.contains(text) && error.contains(part), "{error}");
        }
        let unknown = "krakn+ladder".parse::<Architecture>().unwrap_err().to_string();
        assert!(unknown.contains("unknown architecture"), "{unknown}");
    }

    proptest! {
        #[test]
        fn sets_are_what_they_were_made_of_and_are_read_as_they_are_written(
            mut chosen in proptest::collection::btree_set(0u32..6, 0..7), layers in 6u32..8,
        ) {
            let list: Vec<u32> = std::mem::take(&mut chosen).into_iter().collect();
            let set = LayerSet::new(&list, layers);
            prop_assert_eq!(&set.layers(layers).unwrap(), &list);
            for architecture in [Architecture::Ladder(set.clone()), Architecture::SyncDrop(set)] {
                prop_assert_eq!(architecture.to_string().parse::<Architecture>().unwrap(), architecture);
            }
        }
    }
}
