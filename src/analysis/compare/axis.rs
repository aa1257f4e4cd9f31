//! What cells may be compared by: a field of the spec, a variable of the run's process, or a value
//! of the hardware profile that a cell sets.

use std::fmt;

use crate::error::{Error, Result};
use crate::spec::Spec;

/// Fields of a spec that are axes.
pub const AXES: [&str; 16] = [
    "architecture",
    "p2p",
    "tp",
    "batch",
    "link",
    "model",
    "hardware",
    "backend",
    "dtype",
    "collective",
    "stack",
    "prompt_tokens",
    "output_tokens",
    "recorder",
    "coverage",
    "no_graph",
];

/// The value of a variable that a cell does not set.
pub const UNSET: &str = "unset";

/// An axis of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// One of [`AXES`].
    Field(&'static str),
    /// A variable of the run's process: `NCCL_ALGO`.
    Env(String),
    /// A profile value: `link.alpha_us`.
    Set(String),
}

impl Axis {
    /// By architecture.
    pub const ARCHITECTURE: Self = Self::Field("architecture");
    /// By P2P.
    pub const P2P: Self = Self::Field("p2p");
    /// By TP.
    pub const TP: Self = Self::Field("tp");

    /// The axis of this name: one of [`AXES`], a variable in capitals (`NCCL_ALGO`, or any after
    /// `env:`), or a dotted profile value (`link.alpha_us`, or any after `set:`).
    pub fn parse(name: &str) -> Result<Self> {
        if let Some(field) = AXES.iter().find(|axis| **axis == name) {
            return Ok(Self::Field(field));
        }
        let named = |key: &str| (!key.is_empty()).then(|| key.to_owned());
        let capitals = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let env = match name.strip_prefix("env:") {
            None if name.chars().all(capitals) => named(name),
            rest => rest.and_then(named),
        };
        let set = match name.strip_prefix("set:") {
            None if name.contains('.') => named(name),
            rest => rest.and_then(named),
        };
        match (env, set) {
            (Some(key), _) => Ok(Self::Env(key)),
            (_, Some(key)) => Ok(Self::Set(key)),
            _ => Err(Error::unknown("axis", name, AXES.into_iter().chain(["NCCL_ALGO (any variable)"]))),
        }
    }

    /// A cell's value on the axis, as a user writes it.
    pub fn value(&self, spec: &Spec) -> String {
        let of = |map: &std::collections::BTreeMap<String, String>, key: &str| {
            map.get(key).cloned().unwrap_or_else(|| UNSET.into())
        };
        match self {
            Self::Field(name) => field(spec, name),
            Self::Env(key) => of(&spec.env, key),
            Self::Set(key) => of(&spec.set, key),
        }
    }

    /// What is compared with, where the user does not say: `standard`, P2P on, the variable unset;
    /// `None` where the first value met is as good as any.
    pub fn natural_baseline(&self) -> Option<&'static str> {
        match self {
            Self::Field("architecture") => Some("standard"),
            Self::Field("p2p") => Some("on"),
            Self::Env(_) | Self::Set(_) => Some(UNSET),
            Self::Field(_) => None,
        }
    }

    /// Whether cells without the natural baseline cannot be compared at all: against anything else
    /// than `standard`, or P2P on, a ratio would mean something else.
    pub fn needs_baseline(&self) -> bool {
        matches!(self, Self::Field("architecture" | "p2p"))
    }

    /// The name of the axis among the fields that cells are matched by (see `matching::fields`).
    pub(super) fn key(&self) -> String {
        match self {
            Self::Field(name) => (*name).to_owned(),
            Self::Env(key) => format!("env:{key}"),
            Self::Set(key) => format!("set:{key}"),
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            // what would not be understood again without its prefix keeps it
            Self::Env(key) if Self::parse(key).is_ok_and(|axis| axis == *self) => f.write_str(key),
            Self::Env(key) => write!(f, "env:{key}"),
            Self::Set(key) if Self::parse(key).is_ok_and(|axis| axis == *self) => f.write_str(key),
            Self::Set(key) => write!(f, "set:{key}"),
        }
    }
}

/// The value of a field.
pub(super) fn field(spec: &Spec, name: &str) -> String {
    match name {
        "architecture" => spec.architecture.to_string(),
        "p2p" => spec.p2p.as_str().into(),
        "tp" => spec.tp.to_string(),
        "batch" => spec.batch.to_string(),
        "link" => spec.link.to_string(),
        "model" => spec.model.clone(),
        "hardware" => spec.hardware.clone(),
        "backend" => spec.backend.as_str().into(),
        "dtype" => spec.dtype.to_string(),
        "stack" => spec.stack.clone(),
        "prompt_tokens" => spec.prompt_tokens.to_string(),
        "output_tokens" => spec.output_tokens.to_string(),
        "collective" => spec.collective.as_str().into(),
        "recorder" => spec.recorder.as_str().into(),
        "coverage" => spec.coverage.as_str().into(),
        "no_graph" => spec.no_graph.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_given() {
        for name in AXES.into_iter().chain([
            "NCCL_ALGO",
            "CUDA_VISIBLE_DEVICES",
            "env:lower",
            "link.alpha_us",
            "set:x",
        ]) {
            assert_eq!(Axis::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Axis::parse("env:NCCL_ALGO").unwrap(), Axis::Env("NCCL_ALGO".into()));
        for wrong in ["", "env:", "set:", "archtecture", "nccl_algo"] {
            assert_eq!(Axis::parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
