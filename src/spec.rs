//! What one run is asked to do: the resolved cell of a grid, and where its result may claim to come from.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model::DType;
use crate::plan::Architecture;

/// Who runs a plan.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Whichever of the others this machine can do; resolved before anything runs.
    Auto,
    /// Discrete-event simulation.
    Sim,
    /// Real decoding on CPU threads.
    Cpu,
    /// Real decoding on NVIDIA GPUs.
    Cuda,
}

impl Backend {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sim => "sim",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

impl FromStr for Backend {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "sim" => Ok(Self::Sim),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            _ => Err(Error::unknown("backend", text, ["auto", "sim", "cpu", "cuda"])),
        }
    }
}

/// Whether GPUs may talk to each other directly.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum P2p {
    /// Peer to peer (NVLink where there is one).
    On,
    /// Through host memory (`NCCL_P2P_DISABLE=1`).
    Off,
}

impl P2p {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl FromStr for P2p {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(Error::unknown("p2p", text, ["on", "off"])),
        }
    }
}

/// The link all-reduces go over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Link {
    /// What the machine or the simulated hardware has, p2p applied.
    Native,
    /// Emulated, from the hardware profile's link with P2P.
    P2pOn,
    /// Emulated, from the hardware profile's link without P2P.
    P2pOff,
    /// Emulated: an all-reduce takes `alpha_us + message bytes / (gb_s x 1e9)`.
    Emulated {
        /// Latency of one all-reduce in microseconds.
        alpha_us: f64,
        /// Message (not bus) bandwidth in 1e9 bytes a second.
        gb_s: f64,
    },
}

impl Link {
    /// Whether a run over this link is labelled `emulated-link`.
    pub fn is_emulated(&self) -> bool {
        !matches!(self, Self::Native)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("native"),
            Self::P2pOn => f.write_str("p2p-on"),
            Self::P2pOff => f.write_str("p2p-off"),
            Self::Emulated { alpha_us, gb_s } => write!(f, "emulated:alpha_us={alpha_us},gb_s={gb_s}"),
        }
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parameters = match text {
            "native" => return Ok(Self::Native),
            "p2p-on" => return Ok(Self::P2pOn),
            "p2p-off" => return Ok(Self::P2pOff),
            _ => text.strip_prefix("emulated:"),
        };
        let bad = |what: String| {
            Error::input_help(
                format!("link '{text}': {what}"),
                "write native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50 (gb_s: 1e9 message bytes a second)",
            )
        };
        let Some(parameters) = parameters else { return Err(bad("not a link".into())) };
        let (mut alpha_us, mut gb_s) = (None, None);
        for pair in parameters.split(',') {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| bad(format!("'{pair}' is not key=value")))?;
            let number: f64 = value
                .trim()
                .parse()
                .ok()
                .filter(|v: &f64| v.is_finite() && *v >= 0.0)
                .ok_or_else(|| bad(format!("{key} = '{value}' is not a number of at least 0")))?;
            match key.trim() {
                "alpha_us" => alpha_us = Some(number),
                "gb_s" if number > 0.0 => gb_s = Some(number),
                "gb_s" => return Err(bad("gb_s must be above 0".into())),
                other => return Err(bad(format!("unknown parameter '{other}'"))),
            }
        }
        match (alpha_us, gb_s) {
            (Some(alpha_us), Some(gb_s)) => Ok(Self::Emulated { alpha_us, gb_s }),
            _ => Err(bad("alpha_us and gb_s are both needed".into())),
        }
    }
}

/// Which all-reduce the simulator assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// NCCL's ring or tree.
    Nccl,
    /// A custom one-shot all-reduce in a CUDA graph.
    OneShot,
}

impl Collective {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::OneShot => "one-shot",
        }
    }
}

impl FromStr for Collective {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "nccl" => Ok(Self::Nccl),
            "one-shot" => Ok(Self::OneShot),
            _ => Err(Error::unknown("collective", text, ["nccl", "one-shot"])),
        }
    }
}

/// What records the operations of a run on GPUs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Recorder {
    /// CUDA events around operations, on both streams.
    #[default]
    Events,
    /// CUPTI's activity records.
    Cupti,
    /// Nothing: the run has no trace and no overlap.
    Off,
}

impl Recorder {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Cupti => "cupti",
            Self::Off => "off",
        }
    }
}

impl FromStr for Recorder {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "events" => Ok(Self::Events),
            "cupti" => Ok(Self::Cupti),
            "off" => Ok(Self::Off),
            _ => Err(Error::unknown("recorder", text, ["events", "cupti", "off"])),
        }
    }
}

/// How many of a decode step's operations CUDA events time at once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Coverage {
    /// Each replay times the next part of the operations; consecutive replays make up a step.
    #[default]
    Rotating,
    /// Each replay times all operations, which stretches the step.
    Full,
}

impl Coverage {
    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rotating => "rotating",
            Self::Full => "full",
        }
    }
}

impl FromStr for Coverage {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "rotating" => Ok(Self::Rotating),
            "full" => Ok(Self::Full),
            _ => Err(Error::unknown("coverage", text, ["rotating", "full"])),
        }
    }
}

/// Where numbers come from. Every table, figure and file that shows numbers shows this with them:
/// [`crate::store::Metrics`] cannot be had without it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// Executed and timed, over the machine's own link.
    Measured,
    /// Executed and timed, but all-reduces were delayed by an emulated link.
    EmulatedLink,
    /// Predicted by the simulator.
    Simulated,
}

impl Provenance {
    /// All of them, the nearest to a measurement first.
    pub const ALL: [Self; 3] = [Self::Measured, Self::EmulatedLink, Self::Simulated];

    /// The name in files and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::EmulatedLink => "emulated-link",
            Self::Simulated => "simulated",
        }
    }
}

impl FromStr for Provenance {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|provenance| provenance.as_str() == text);
        found.ok_or_else(|| Error::unknown("provenance", text, Self::ALL.map(Self::as_str)))
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
as_text!(Link);

/// A fully resolved cell: everything that decides what a run does. Fields are contract keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spec {
    /// Residual wiring.
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// A built-in shape's name, or a path to an HF directory.
    pub model: String,
    /// Format of the weights.
    pub dtype: DType,
    /// Ranks.
    pub tp: u32,
    /// Sequences.
    pub batch: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// New tokens of each sequence; prefill yields the first.
    pub output_tokens: u32,
    /// Whether GPUs talk directly.
    pub p2p: P2p,
    /// Who runs it; never `auto` in a record.
    pub backend: Backend,
    /// The link of all-reduces.
    #[schemars(with = "String")]
    pub link: Link,
    /// Hardware profile's name or file; `host` on cpu.
    pub hardware: String,
    /// Software stack (sim only; `native` elsewhere).
    pub stack: String,
    /// Which all-reduce (sim only).
    #[serde(default = "nccl")]
    pub collective: Collective,
    /// Timed generations.
    pub samples: u32,
    /// Untimed generations before them.
    pub warmup: u32,
    /// Seed of random weights, prompts and sampling.
    pub seed: u64,
    /// NCCL (and other) variables of the run's process.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Overrides of profile values (sim only).
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// What records the operations (cuda only). Written where it is not the default, so that a cell
    /// keeps its key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recorder: Recorder,
    /// How many operations of a step are timed at once (cuda with recorder events only).
    #[serde(default, skip_serializing_if = "is_default")]
    pub coverage: Coverage,
    /// Decode steps are enqueued one operation after the other, not replayed as a graph (cuda only).
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_graph: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn nccl() -> Collective {
    Collective::Nccl
}

impl Spec {
    /// What numbers of this run may be called.
    pub fn provenance(&self) -> Provenance {
        match self.backend {
            Backend::Sim => Provenance::Simulated,
            _ if self.link.is_emulated() => Provenance::EmulatedLink,
            _ => Provenance::Measured,
        }
    }

    /// A hash of everything that decides what is executed (SHA-256, first 16 hex digits): two specs
    /// with the same key are the same cell, and `sweep` does not run a finished one again.
    pub fn key(&self) -> String {
        use sha2::{Digest, Sha256};
        let text = serde_json::to_string(self).unwrap_or_default();
        Sha256::digest(text.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
    }

    /// A short name for tables and logs: `ladder tp2 b1 p2p-on`.
    pub fn label(&self) -> String {
        format!("{} tp{} b{} p2p-{}", self.architecture, self.tp, self.batch, self.p2p.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn links_round_trip(alpha_us in 0.0f64..1e6, gb_s in 1e-3f64..1e6) {
            let link = Link::Emulated { alpha_us, gb_s };
            prop_assert_eq!(link.to_string().parse::<Link>().unwrap(), link);
        }

        #[test]
        fn the_link_parser_never_panics(text in "(emulated:)?[a-z_=0-9.,:-]{0,40}") {
            let _ = text.parse::<Link>();
        }
    }

    #[test]
    fn bad_links_say_what_would_be_right() {
        for (text, wanted) in [
            ("emulated:alpha_us=5", "alpha_us and gb_s are both needed"),
            ("emulated:alpha_us=5,gb_s=0", "gb_s must be above 0"),
            ("emulated:alpha_us=x,gb_s=1", "alpha_us = 'x' is not a number"),
            ("emulated:alfa=5,gb_s=1", "unknown parameter 'alfa'"),
            ("nvlink", "not a link"),
        ] {
            let error = text.parse::<Link>().unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
