//! Hardware: profiles of GPUs and links, measured latency tables, software stacks, and memory estimates.

mod built_in {
    include!(concat!(env!("OUT_DIR"), "/built_in.rs"));
}
mod collective;
mod link;
mod memory;
mod profile;
mod routed;
mod stack;
mod tables;
mod target;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use serde::de::DeserializeOwned;

use base::error::Error;
use base::input::InputKind;
use base::text::same_name;
use base::words::words;
use table::{BANDWIDTHS_GB_S, LATENCIES_US};

pub use collective::CollectiveCost;
pub use link::{BasisRows, Fabric, InterNode, LargeMessages, LinkBasis, LinkPoint, LinkTable, Links};
pub use memory::{MemoryNeed, PlanMemory};
pub use profile::{GpuName, Profile, SIMULATED_GPU, Skew, Tflops, profile_named, profile_of};
pub use routed::{AllToAll, ExpertSizes, TransferCost};
pub use stack::{
    ActivationScales, AttentionKind, CollectiveScale, Contention, Engine, EngineVersion, STACKS,
    Schedule, Serving, Stack, lowering,
};
pub use tables::{AttentionSizes, Peaks, Tables};
pub use target::{HardwareParameter, Target};

words! {
    /// Source of an operation's latency, most certain first.
    CostSource, "cost source" {
        /// Point of a latency table.
        Table = "table",
        /// Interpolated between points of a latency table.
        Interpolated = "interpolated",
        /// Bytes or FLOPs / the rate that the profile states for kernels.
        Roofline = "roofline",
        /// Bytes or FLOPs / a rate fitted to measured runs.
        Calibrated = "calibrated",
    }
}

/// Values that are built in by name or come from a TOML file: profiles and stacks.
struct Library<T: 'static> {
    /// Kind of value in errors: `hardware profile`.
    what: &'static str,
    /// Word for a file of it in help texts: `profile`.
    word: &'static str,
    input: InputKind,
    texts: &'static [(&'static str, &'static str)],
    read: fn(&str, &str) -> Result<T, Error>,
    /// Values by position in `texts`, each parsed once, when a cell needs it.
    parsed: LazyLock<Vec<OnceLock<Option<T>>>>,
}

/// Default of factors in files.
fn one() -> f64 {
    1.0
}

/// Key with an invalid value, and the problem.
type CheckResult = Result<(), (String, String)>;

impl<T: Clone + DeserializeOwned> Library<T> {
    /// Loads a built-in value by name, or a TOML file. Returns an input error for an unknown name (with the nearest
    /// one) or an invalid file (with line and column).
    fn load(&self, typed: &str) -> Result<T, Error> {
        let at = self.texts.iter().position(|(name, _)| same_name(name, typed));
        if let Some(value) = at.and_then(|at| self.at(at)) {
            return Ok(value.clone());
        }
        let Some(path) = self.file(typed) else {
            return Err(Error::unknown(self.what, typed, self.texts.iter().map(|(name, _)| *name)));
        };
        (self.read)(typed, &self.input.text(path)?)
    }

    fn at(&self, at: usize) -> Option<&T> {
        let (name, text) = self.texts.get(at)?;
        let read = || (self.read)(&format!("{name}.toml"), text).ok();
        self.parsed.get(at)?.get_or_init(read).as_ref()
    }

    fn built_in(&self) -> Vec<T> {
        (0..self.texts.len()).filter_map(|at| self.at(at)).cloned().collect()
    }

    /// File the argument refers to; `None` for a built-in name or a missing file.
    fn file<'a>(&self, typed: &'a str) -> Option<&'a Path> {
        let path = Path::new(typed);
        // anything except a directory: readers report pipes and devices themselves
        let is_there = path.exists() && !path.is_dir();
        let is_file = typed.ends_with(".toml") || path.components().count() > 1 || is_there;
        (is_file && self.text(typed).is_none()).then_some(path)
    }

    /// Canonical name of a built-in value, ignoring case and dashes; other text, such as a file name, is returned
    /// unchanged.
    fn canonical_name<'a>(&self, typed: &'a str) -> &'a str {
        self.texts.iter().find(|(name, _)| same_name(name, typed)).map_or(typed, |(name, _)| name)
    }

    /// TOML text of a built-in value.
    fn text(&self, typed: &str) -> Option<&'static str> {
        self.texts.iter().find(|(name, _)| same_name(name, typed)).map(|(_, text)| *text)
    }

    /// Parses and checks a value; `file` is its name in errors.
    fn parse(&self, file: &str, text: &str, check: fn(&T) -> CheckResult) -> Result<T, Error> {
        let value: T = toml::from_str(text).map_err(|error| Error::toml(file, text, &error))?;
        check(&value).map_err(|(key, problem)| {
            let help = format!("correct the {} and try again", self.word);
            Error::input_help(format!("{file}: {key} {problem}"), help)
        })?;
        Ok(value)
    }
}

fn above(key: &str, value: f64, least: f64) -> CheckResult {
    that(key, value, value.is_finite() && value > least, &format!("above {least}"))
}

fn at_least(key: &str, value: f64, least: f64) -> CheckResult {
    that(key, value, value.is_finite() && value >= least, &format!("at least {least}"))
}

/// Checks a link latency in us.
fn latency(key: &str, us: f64) -> CheckResult {
    within(key, us, &LATENCIES_US)
}

/// Checks a link bandwidth in 1e9 bytes per second.
fn bandwidth(key: &str, gb_s: f64) -> CheckResult {
    within(key, gb_s, &BANDWIDTHS_GB_S)
}

/// Checks a share: above 0, at most 1.
fn share(key: &str, value: f64) -> CheckResult {
    that(key, value, value > 0.0 && value <= 1.0, "above 0 and at most 1")
}

/// Checks a loss: at least 0, below 1.
fn loss(key: &str, value: f64) -> CheckResult {
    that(key, value, (0.0..1.0).contains(&value), "at least 0 and below 1")
}

fn within(key: &str, value: f64, allowed: &RangeInclusive<f64>) -> CheckResult {
    let (least, most) = (allowed.start(), allowed.end());
    that(key, value, allowed.contains(&value), &format!("from {} to {}", short(*least), short(*most)))
}

fn that(key: &str, value: f64, fine: bool, wanted: &str) -> CheckResult {
    if fine {
        Ok(())
    } else {
        Err((key.to_owned(), format!("is {}; it must be {wanted}", short(value))))
    }
}

/// Compact form of a number of any magnitude.
fn short(value: f64) -> String {
    let is_plain = value == 0.0 || !value.is_finite() || (1e-4..1e9).contains(&value.abs());
    if is_plain { value.to_string() } else { format!("{value:e}") }
}
