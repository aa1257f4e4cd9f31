//! Break-even: up to which latency, or down to which bandwidth, an architecture keeps its communication
//! hidden.

use serde::Serialize;

use super::engine::{Engine, Ready, link_of};
use super::variant::Variant;
use base::error::{Error, Result};
use machine::hardware::Target;
use run::sim::LinkTimes;
use table::{Link, Spec};

/// From this overlap on communication counts as hidden (%). Not 100: the last all-reduce of a step has
/// nothing to hide behind.
pub const HIDDEN_PCT: f64 = 95.0;

/// What is searched over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Latency of an all-reduce (us): hidden up to some.
    AlphaUs,
    /// Message bandwidth (1e9 bytes a second): hidden down to some.
    GbS,
}

/// The link that an all-reduce crosses and that is searched over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrossedLink {
    /// Inside a node, or emulated: latency as nccl-tests measures it there.
    Node,
    /// Between nodes: latency for each doubling of the nodes, bandwidth of a node's network cards together.
    Network,
}

/// Where communication stops to be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// It stops to be hidden at this value of what was searched over.
    At(f64),
    /// It is hidden in the whole range searched.
    Always,
    /// It is hidden nowhere in it.
    Never,
}

/// The break-even of a variant's architecture, all else as it is.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakEven {
    /// What was searched over.
    pub over: Over,
    /// The link whose latency or bandwidth it is.
    pub link: CrossedLink,
    /// From this overlap on communication counts as hidden (%).
    pub hidden_pct: f64,
    /// The lowest and the highest value that were tried.
    pub range: [f64; 2],
    /// Where it stops to be hidden.
    pub crossing: Crossing,
    /// A decode step's all-reduce there as nccl-tests measures it, back to back (us); null without a crossing.
    pub all_reduce_us: Option<f64>,
    /// The same as the stack charges it within a model (us).
    pub charged_us: Option<f64>,
}

/// Halvings of the range: to a thousandth of it, in logarithms.
const HALVINGS: usize = 14;

impl Over {
    /// The lowest and the highest value that are tried.
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::AlphaUs => [0.1, 2000.0],
            Self::GbS => [1.0, 2000.0],
        }
    }

    /// The variant with this value of what is searched over.
    pub fn set(self, link: CrossedLink, variant: &Variant, value: f64) -> Variant {
        let mut changed = variant.clone();
        let network = |name: &str| (format!("link.inter_node.{name}"), value.to_string());
        match (self, link) {
            (Self::AlphaUs, CrossedLink::Node) => changed.alpha_us = Some(value),
            (Self::GbS, CrossedLink::Node) => changed.gb_s = Some(value),
            (Self::AlphaUs, CrossedLink::Network) => changed.cell.set.extend([network("alpha_us")]),
            (Self::GbS, CrossedLink::Network) => changed.cell.set.extend([network("gb_s")]),
        }
        changed
    }

    /// The unit of what is searched over, for tables.
    pub fn unit(self) -> &'static str {
        match self {
            Self::AlphaUs => "us",
            Self::GbS => "GB/s",
        }
    }
}

impl Engine {
    /// Where the variant's architecture stops to hide at least `hidden_pct` of its
    /// communication: by bisection, so that where it hides more of it at some place in between,
    /// one crossing is found of several.
    ///
    /// # Errors
    ///
    /// An input error where the variant makes no sense, where its architecture cannot run, or where
    /// that does not communicate.
    pub fn break_even(&self, variant: &Variant, over: Over, hidden_pct: f64) -> Result<BreakEven> {
        let ready = self.ready(variant)?;
        let is_emulated = matches!(ready.spec.link, Link::Emulated { .. });
        let link = match ready.spec.tp > ready.target.profile.gpus_per_node && !is_emulated {
            true => CrossedLink::Network,
            false => CrossedLink::Node,
        };
        let [low, high] = over.range();
        let hidden = |value: f64| -> Result<bool> {
            Ok(self.overlap_pct(&ready, &over.set(link, variant, value))? >= hidden_pct)
        };
        // easy: where most is hidden
        let (mut easy, mut hard) = match over {
            Over::AlphaUs => (low, high),
            Over::GbS => (high, low),
        };
        let crossing = match (hidden(easy)?, hidden(hard)?) {
            (false, _) => Crossing::Never,
            (true, true) => Crossing::Always,
            (true, false) => {
                for _ in 0..HALVINGS {
                    let middle = (easy * hard).sqrt();
                    if hidden(middle)? { easy = middle } else { hard = middle }
                }
                Crossing::At(easy)
            }
        };
        let there = match crossing {
            Crossing::At(value) => {
                let spec = over.set(link, variant, value).spec()?;
                let target = Target::of(&spec)?;
                Some(link_of(&Ready { spec, shape: ready.shape, target }).times)
            }
            _ => None,
        };
        Ok(BreakEven {
            over,
            link,
            hidden_pct,
            range: over.range(),
            crossing,
            all_reduce_us: there.as_ref().map(|times: &LinkTimes| times.alone_us),
            charged_us: there.map(|times| times.charged_us),
        })
    }

    /// Overlap of the variant's architecture (%).
    fn overlap_pct(&self, ready: &Ready, variant: &Variant) -> Result<f64> {
        let spec: Spec = variant.spec()?;
        let target = Target::of(&spec)?;
        let changed = Ready { spec, shape: ready.shape.clone(), target };
        let architecture = changed.spec.architecture.clone();
        let (numbers, _) = self.simulate(&changed, &architecture).map_err(Error::input)?;
        numbers.overlap_pct.ok_or_else(|| {
            Error::input_help(
                format!("{architecture} at TP {} does not communicate", changed.spec.tp),
                "choose an architecture and a TP that do",
            )
        })
    }
}
