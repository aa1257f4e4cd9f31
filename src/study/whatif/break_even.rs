//! Break-even: the highest latency or lowest bandwidth at which an architecture keeps its communication
//! hidden.

use serde::Serialize;

use super::engine::{Engine, Ready, link_of};
use super::variant::Variant;
use base::error::{Error, Result};
use machine::hardware::Target;
use run::sim::LinkTimes;
use table::{Link, Spec};

/// Minimum overlap at which communication counts as hidden (%). Less than 100 because the last all-reduce of
/// a step has nothing to hide behind.
pub const HIDDEN_PCT: f64 = 95.0;

/// Quantity to search over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Latency of an all-reduce (us): hidden below the break-even.
    AlphaUs,
    /// Message bandwidth (1e9 bytes/s): hidden above the break-even.
    GbS,
}

/// Link of the all-reduce whose latency or bandwidth varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrossedLink {
    /// Inside a node, or emulated: latency as measured by nccl-tests.
    Node,
    /// Between nodes: latency per doubling of the nodes, bandwidth of all network cards of a node.
    Network,
}

/// Point at which communication stops being hidden.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// Break-even value, in the unit of the search.
    At(f64),
    /// Hidden in the whole range.
    Always,
    /// Not hidden anywhere in the range.
    Never,
}

/// Break-even of a variant's architecture, everything else unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakEven {
    /// Quantity of the search.
    pub over: Over,
    /// Link whose latency or bandwidth varies.
    pub link: CrossedLink,
    /// Minimum overlap that counts as hidden (%).
    pub hidden_pct: f64,
    /// Lowest and highest value of the search.
    pub range: [f64; 2],
    /// Result of the search.
    pub crossing: Crossing,
    /// Latency of a decode step's all-reduce at the break-even, back to back as in nccl-tests (us); null
    /// without a crossing.
    pub all_reduce_us: Option<f64>,
    /// Same latency as the stack charges it within a model (us).
    pub charged_us: Option<f64>,
}

/// Bisection steps on a logarithmic scale, for a relative precision of about a thousandth.
const HALVINGS: usize = 14;

impl Over {
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::AlphaUs => [0.1, 2000.0],
            Self::GbS => [1.0, 2000.0],
        }
    }

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

    pub fn unit(self) -> &'static str {
        match self {
            Self::AlphaUs => "us",
            Self::GbS => "GB/s",
        }
    }
}

impl Engine {
    /// Finds the value at which the variant's architecture stops hiding at least `hidden_pct` of its
    /// communication, by bisection. If the overlap is not monotonic, the result is one of several crossings.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant is invalid or its architecture cannot run or does not communicate.
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
