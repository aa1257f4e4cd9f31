//! Break-even: the highest latency or lowest bandwidth at which an architecture keeps its communication
//! hidden.

use serde::Serialize;

use super::answer::Question;
use super::variant::Variant;
use base::error::{Error, Result};
use run::sim::{LinkTimes, Simulator};
use table::Link;

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

impl Variant {
    /// Finds the value at which the variant's architecture stops hiding at least `hidden_pct` of its
    /// communication, by bisection. If the overlap is not monotonic, the result is one of several crossings.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant is invalid or its architecture cannot run or does not communicate.
    pub fn break_even(&self, simulator: &Simulator, over: Over, hidden_pct: f64) -> Result<BreakEven> {
        let question = Question::new(simulator, self)?;
        let is_emulated = matches!(question.spec.link, Link::Emulated { .. });
        let link = match question.spec.tp > question.target.profile.gpus_per_node && !is_emulated {
            true => CrossedLink::Network,
            false => CrossedLink::Node,
        };
        let at = |value: f64| Question::new(simulator, &over.set(link, self, value));
        let hidden = |value: f64| -> Result<bool> { Ok(overlap_pct(&at(value)?)? >= hidden_pct) };
        let [low, high] = over.range();
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
        let there: Option<LinkTimes> = match crossing {
            Crossing::At(value) => Some(at(value)?.link().times),
            _ => None,
        };
        Ok(BreakEven {
            over,
            link,
            hidden_pct,
            range: over.range(),
            crossing,
            all_reduce_us: there.as_ref().map(|times| times.alone_us),
            charged_us: there.map(|times| times.charged_us),
        })
    }
}

fn overlap_pct(question: &Question<'_>) -> Result<f64> {
    let (numbers, _) = question.numbers(&question.spec).map_err(Error::input)?;
    numbers.overlap_pct.ok_or_else(|| {
        Error::input_help(
            format!("{} at TP {} does not communicate", question.spec.architecture, question.spec.tp),
            "choose an architecture and a TP that do",
        )
    })
}
