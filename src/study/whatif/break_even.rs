//! Break-even: the highest latency or lowest bandwidth at which an architecture keeps its communication hidden.

use serde::Serialize;

use super::answer::NetworkValues;
use super::question::{WhatIfQuestion, own_link};
use super::slider::{Slider, shown};
use super::variant::WhatIfVariant;
use base::error::{Error, Result};
use base::text::{digits, percent};
use run::sim::{LinkTimes, Simulator};
use table::Link;

/// Minimum hidden share (%) at which communication counts as hidden. Less than 100 because the last all-reduce of
/// a step has nothing to hide behind.
pub const HIDDEN_PCT: f64 = 95.0;

/// Quantity to search over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Over")]
pub enum BreakEvenQuantity {
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

/// Point at which communication stops being hidden, or begins to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Crossing {
    /// Break-even value, in the unit of the search.
    At(f64),
    /// Hidden from the present value to the slow end of the range.
    Always,
    /// Not hidden from the present value to the fast end of the range.
    Never,
}

/// Break-even of a variant's architecture, everything else unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakEven {
    /// Quantity of the search.
    pub over: BreakEvenQuantity,
    /// Link whose latency or bandwidth varies.
    pub link: CrossedLink,
    /// Minimum hidden share of the communication that counts as hidden (%).
    pub hidden_pct: f64,
    /// Value of the cell.
    pub now: f64,
    /// True if that is the hardware profile's, false if a slider or an option set it.
    pub is_of_profile: bool,
    /// Hidden share of the communication at that value (%).
    pub now_hidden_pct: f64,
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

/// Values between the present one and the end of the range at which the hidden share is computed; the first at which
/// communication changes from hidden to not hidden, or back, is bisected.
const SCANNED: i32 = 16;

/// Bisection steps on a logarithmic scale, for a relative precision of a thousandth.
const HALVINGS: usize = 10;

impl BreakEvenQuantity {
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::AlphaUs => [0.1, 2000.0],
            Self::GbS => [1.0, 2000.0],
        }
    }

    pub fn set(self, link: CrossedLink, variant: &WhatIfVariant, value: f64) -> WhatIfVariant {
        let mut changed = variant.clone();
        match (self, link) {
            (Self::AlphaUs, CrossedLink::Node) => changed.alpha_us = Some(value),
            (Self::GbS, CrossedLink::Node) => changed.gb_s = Some(value),
            (Self::AlphaUs, CrossedLink::Network) => changed.network_alpha_us = Some(value),
            (Self::GbS, CrossedLink::Network) => changed.network_gb_s = Some(value),
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

impl WhatIfVariant {
    /// Finds the value nearest to the present one at which the variant's architecture stops hiding at least
    /// `hidden_pct` of its communication on a slower link, or, if it does not hide it now, begins to on a faster one.
    /// The value is on the hidden side.
    ///
    /// # Errors
    ///
    /// Returns an error if the variant is invalid, its architecture cannot run or does not communicate, or the link
    /// does not change its communication.
    pub fn break_even(
        &self,
        simulator: &Simulator,
        over: BreakEvenQuantity,
        hidden_pct: f64,
    ) -> Result<BreakEven> {
        let question = WhatIfQuestion::new(simulator, self)?;
        if let Some(why) = question.no_link() {
            return Err(Error::input(why));
        }
        let link = match NetworkValues::new(&question.target.profile, &question.spec) {
            Some(_) => CrossedLink::Network,
            None => CrossedLink::Node,
        };
        let now = self.link_value(&question, over, link)?;
        let at = |value: f64| WhatIfQuestion::new(simulator, &over.set(link, self, value));
        let hidden = |value: f64| -> Result<bool> { Ok(at(value)?.overlap_pct()? >= hidden_pct) };
        let now_hidden_pct = question.overlap_pct()?;
        let is_hidden = now_hidden_pct >= hidden_pct;
        let [low, high] = over.range();
        let end = match (over, is_hidden) {
            (BreakEvenQuantity::AlphaUs, true) | (BreakEvenQuantity::GbS, false) => high.max(now),
            (BreakEvenQuantity::AlphaUs, false) | (BreakEvenQuantity::GbS, true) => low.min(now),
        };
        // a latency may be 0
        let from = now.max(low * 1e-3);
        let mut before = from;
        let mut found = None;
        for step in 1..=SCANNED {
            let value = from * (end / from).powf(f64::from(step) / f64::from(SCANNED));
            if hidden(value)? != is_hidden {
                found = Some((before, value));
                break;
            }
            before = value;
        }
        let crossing = match found {
            None if is_hidden => Crossing::Always,
            None => Crossing::Never,
            Some((mut like_now, mut other)) => {
                for _ in 0..HALVINGS {
                    let middle = (like_now * other).sqrt();
                    if hidden(middle)? == is_hidden { like_now = middle } else { other = middle }
                }
                Crossing::At(if is_hidden { like_now } else { other })
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
            now,
            is_of_profile: self.is_of_profile(over, link),
            now_hidden_pct,
            range: over.range(),
            crossing,
            all_reduce_us: there.as_ref().map(|times| times.alone_us),
            charged_us: there.map(|times| times.charged_us),
        })
    }

    /// True if the hardware profile alone decides a value of a link.
    fn is_of_profile(&self, over: BreakEvenQuantity, link: CrossedLink) -> bool {
        let (own, name) = match (over, link) {
            (BreakEvenQuantity::AlphaUs, CrossedLink::Node) => (self.alpha_us, "alpha_us"),
            (BreakEvenQuantity::GbS, CrossedLink::Node) => (self.gb_s, "gb_s"),
            (BreakEvenQuantity::AlphaUs, CrossedLink::Network) => (self.network_alpha_us, "alpha_us"),
            (BreakEvenQuantity::GbS, CrossedLink::Network) => (self.network_gb_s, "gb_s"),
        };
        let is_set = |key: &String| key.starts_with("link.") && key.ends_with(name);
        let is_emulated = matches!(self.cell.link, Link::Emulated { .. });
        let is_profiled = link == CrossedLink::Network || !is_emulated;
        own.is_none() && is_profiled && !self.cell.set.keys().any(is_set)
    }

    /// Present latency or bandwidth of a link.
    fn link_value(
        &self,
        question: &WhatIfQuestion<'_>,
        over: BreakEvenQuantity,
        link: CrossedLink,
    ) -> Result<f64> {
        if link == CrossedLink::Network {
            let network = &question.target.profile.link.inter_node;
            return Ok(if over == BreakEvenQuantity::AlphaUs { network.alpha_us } else { network.gb_s });
        }
        let own = if over == BreakEvenQuantity::AlphaUs { self.alpha_us } else { self.gb_s };
        let values = || {
            let (alpha_us, gb_s, _) = own_link(&self.plain_target()?.profile, &self.cell);
            Ok(if over == BreakEvenQuantity::AlphaUs { alpha_us } else { gb_s })
        };
        own.map_or_else(values, Ok)
    }
}

impl BreakEven {
    /// Sentence on the searches of a cell: hidden share on its link, and the limits beyond which it changes. Limits are rounded
    /// to the hidden side.
    pub fn in_words(found: &[Self]) -> String {
        let Some(Self { hidden_pct, now_hidden_pct, .. }) = found.first() else { return String::new() };
        let limits: Vec<String> = found.iter().map(Self::limit_in_words).collect();
        // the profile is named once if all values are its own
        let all_of_profile = found.iter().all(|one| one.is_of_profile);
        let values = found.iter().enumerate().map(|(at, one)| match one.is_of_profile {
            true if at == 0 || !all_of_profile => format!("the profile's {}", one.value_in_words()),
            _ => one.value_in_words(),
        });
        let values: Vec<String> = values.collect();
        let charged = found.iter().find_map(|one| one.charged_us);
        let charged = charged.map_or_else(String::new, |us| {
            format!("; at the break-even an all-reduce takes {us:.1} us inside the model")
        });
        format!(
            "hides {} of its communication at {}; for at least {hidden_pct} %, each alone: {}{charged}",
            hidden_words(*now_hidden_pct),
            values.join(" and "),
            limits.join(", "),
        )
    }

    /// The same in few words, the limits first, for a reader who sees the values of the link: `hides 95 % at AR latency
    /// <= 22.9 us, bandwidth >= 1.49 GB/s (each alone); now 99.6 % at 15.9 us`, or `hides 95 % at AR latency <= 59.4 us;
    /// bandwidth alone cannot; now 61.0 % at 100 us`. With the stack's factor on latencies, each is followed by the latency
    /// inside the model, as beside the slider: `22.9 us x1.485=34.0`.
    pub fn beside_values(found: &[Self], latency_scale: Option<f64>) -> String {
        let Some(Self { hidden_pct, now_hidden_pct, .. }) = found.first() else { return String::new() };
        let scaled = |one: &Self, us: f64| match latency_scale {
            Some(scale) if one.slider() == Slider::Alpha => format!(" x{scale}={}", digits(scale * us)),
            _ => String::new(),
        };
        let (never, limited): (Vec<&Self>, Vec<&Self>) =
            found.iter().partition(|one| one.crossing == Crossing::Never);
        let limit = |one: &Self| match one.crossing {
            // of the limit as shown
            Crossing::At(us) => {
                let shown = rounded(us, f64::floor).parse().unwrap_or(us);
                one.brief_limit() + &scaled(one, shown)
            }
            _ => one.brief_limit(),
        };
        let limits: Vec<String> = limited.into_iter().map(limit).collect();
        let each = if limits.len() > 1 { " (each alone)" } else { "" };
        let limits = limits.join(", ");
        let never: Vec<&str> = never.into_iter().map(|one| one.slider().name()).collect();
        let never = never.join(" or ");
        let hides = match (limits.as_str(), never.as_str()) {
            ("", never) => format!("cannot hide {hidden_pct} % by {never} alone"),
            (limits, "") => format!("hides {hidden_pct} % at {limits}{each}"),
            (limits, never) => format!("hides {hidden_pct} % at {limits}; {never} alone cannot"),
        };
        let latency = found.iter().find(|one| one.over == BreakEvenQuantity::AlphaUs);
        let at = latency.map_or_else(String::new, |one| {
            format!(" at {}{}", one.value_in_words(), scaled(one, one.now))
        });
        format!("{hides}; now {}{at}", percent(Some(*now_hidden_pct)))
    }

    fn value_in_words(&self) -> String {
        format!("{} {}", shown(self.now), self.over.unit())
    }

    fn limit_in_words(&self) -> String {
        let name = match self.slider() {
            Slider::Alpha => "latency (alpha)",
            Slider::NetworkLatency => "network latency",
            Slider::NetworkBandwidth => "network bandwidth",
            slider => slider.name(),
        };
        let limit = self.limit(name, ["at most", "at least"]);
        match (self.crossing, self.over) {
            (Crossing::Never, BreakEvenQuantity::AlphaUs) => format!("{limit} is low enough"),
            (Crossing::Never, BreakEvenQuantity::GbS) => format!("{limit} is high enough"),
            _ => limit,
        }
    }

    fn brief_limit(&self) -> String {
        self.limit(self.slider().name(), ["<=", ">="])
    }

    fn slider(&self) -> Slider {
        match (self.over, self.link) {
            (BreakEvenQuantity::AlphaUs, CrossedLink::Node) => Slider::Alpha,
            (BreakEvenQuantity::GbS, CrossedLink::Node) => Slider::Bandwidth,
            (BreakEvenQuantity::AlphaUs, CrossedLink::Network) => Slider::NetworkLatency,
            (BreakEvenQuantity::GbS, CrossedLink::Network) => Slider::NetworkBandwidth,
        }
    }

    /// Limit with the words for a highest and a lowest value.
    fn limit(&self, name: &str, [most, least]: [&str; 2]) -> String {
        let unit = self.over.unit();
        let [low, high] = self.range;
        match (self.crossing, self.over) {
            (Crossing::At(at), BreakEvenQuantity::AlphaUs) => {
                format!("{name} {most} {} {unit}", rounded(at, f64::floor))
            }
            (Crossing::At(at), BreakEvenQuantity::GbS) => {
                format!("{name} {least} {} {unit}", rounded(at, f64::ceil))
            }
            (Crossing::Always, BreakEvenQuantity::AlphaUs) => format!("any {name} up to {high} {unit}"),
            (Crossing::Always, BreakEvenQuantity::GbS) => format!("any {name} from {low} {unit}"),
            (Crossing::Never, BreakEvenQuantity::AlphaUs) => format!("no {name} down to {low} {unit}"),
            (Crossing::Never, BreakEvenQuantity::GbS) => format!("no {name} up to {high} {unit}"),
        }
    }
}

/// Hidden share of communication (%) in whole percent, 100 only if all is hidden.
pub fn whole_pct(pct: f64) -> f64 {
    match pct.round() {
        whole if whole >= 100.0 && pct < 99.95 => 99.0,
        whole => whole,
    }
}

/// Hidden share of communication for people: `85 %`.
pub fn hidden_words(pct: f64) -> String {
    format!("{:.0} %", whole_pct(pct))
}

/// Three significant digits, rounded one way.
fn rounded(value: f64, way: fn(f64) -> f64) -> String {
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    // a value of three digits stays, in spite of its binary form
    let digits = value / unit;
    let whole = if (digits - digits.round()).abs() < 1e-9 { digits.round() } else { way(digits) };
    shown(whole * unit)
}
