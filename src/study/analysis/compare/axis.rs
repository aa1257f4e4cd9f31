//! Axes of comparison: an option of the cell, an environment variable of the run, or an override of the hardware
//! profile.

use std::fmt;

use base::error::{Error, Result};
use base::text::same_name;
use table::Spec;
use table::options::{self, OPTIONS};

/// Value shown for a variable that a cell does not set.
pub const UNSET: &str = "unset";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Option of a cell, by its name in files.
    Option(&'static str),
    /// Environment variable of the run: `NCCL_ALGO`.
    Env(String),
    /// Override of a profile value: `link.alpha_us`.
    Set(String),
}

impl Axis {
    pub const ARCHITECTURE: Self = Self::Option("architecture");
    pub const P2P: Self = Self::Option("p2p");
    pub const TP: Self = Self::Option("tp");

    /// Parses the name of an axis: an option, a variable in capitals (`NCCL_ALGO`, or any name after `env:`), or a
    /// dotted profile value (`link.alpha_us`, or any name after `set:`). Returns an error with the nearest option for
    /// other names.
    pub fn parse(name: &str) -> Result<Self> {
        if let Some(option) = OPTIONS.iter().find(|option| same_name(option.name, name)) {
            return Ok(Self::Option(option.name));
        }
        let named = |key: &str| (!key.is_empty()).then(|| key.to_owned());
        let capitals = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        // filters and experiment files use a dot
        let prefixed = |with: [&str; 2]| with.iter().find_map(|prefix| name.strip_prefix(prefix));
        let env = match prefixed(["env:", "env."]) {
            None if name.chars().all(capitals) => named(name),
            rest => rest.and_then(named),
        };
        let set = match prefixed(["set:", "set."]) {
            None if name.contains('.') => named(name),
            rest => rest.and_then(named),
        };
        match (env, set) {
            (Some(key), _) => Ok(Self::Env(key)),
            (_, Some(key)) => Ok(Self::Set(key)),
            _ => {
                let options = OPTIONS.iter().map(|option| option.name);
                Err(Error::unknown("axis", name, options.chain(["NCCL_ALGO (any variable)"])))
            }
        }
    }

    /// Value of a cell on the axis, as users write it.
    pub fn value(&self, spec: &Spec) -> String {
        let of = |map: &std::collections::BTreeMap<String, String>, key: &str| {
            map.get(key).cloned().unwrap_or_else(|| UNSET.into())
        };
        match self {
            Self::Option("architecture") => spec.architecture_label(),
            Self::Option(name) => options::value(spec, name).unwrap_or_default().into_owned(),
            Self::Env(key) => of(&spec.env, key),
            Self::Set(key) => of(&spec.set, key),
        }
    }

    /// Default baseline: `standard`, P2P on, or the variable unset; `None` if any value will do.
    pub fn natural_baseline(&self) -> Option<&'static str> {
        match self {
            Self::Option(name) => options::option(name).and_then(|option| option.about.baseline),
            Self::Env(_) | Self::Set(_) => Some(UNSET),
        }
    }

    /// True if cells cannot be compared without the default baseline: relative to anything but `standard` or P2P on,
    /// the ratio would mean something else.
    pub fn needs_baseline(&self) -> bool {
        matches!(self, Self::Option(_)) && self.natural_baseline().is_some()
    }

    /// Name of the axis among the fields that cells are matched by (see `matching::fields`).
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Option(name) => (*name).to_owned(),
            Self::Env(key) => format!("env:{key}"),
            Self::Set(key) => format!("set:{key}"),
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => f.write_str(name),
            // keep the prefix if the bare name would parse differently
            Self::Env(key) if Self::parse(key).is_ok_and(|axis| axis == *self) => f.write_str(key),
            Self::Env(key) => write!(f, "env:{key}"),
            Self::Set(key) if Self::parse(key).is_ok_and(|axis| axis == *self) => f.write_str(key),
            Self::Set(key) => write!(f, "set:{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_given() {
        for name in OPTIONS.iter().map(|option| option.name).chain([
            "NCCL_ALGO",
            "CUDA_VISIBLE_DEVICES",
            "env:lower",
            "link.alpha_us",
            "set:x",
        ]) {
            assert_eq!(Axis::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Axis::parse("env:NCCL_ALGO").unwrap(), Axis::Env("NCCL_ALGO".into()));
        assert_eq!(Axis::parse("env.NCCL_ALGO").unwrap(), Axis::Env("NCCL_ALGO".into()));
        assert_eq!(Axis::parse("set.link.alpha_us").unwrap(), Axis::Set("link.alpha_us".into()));
        for wrong in ["", "env:", "set:", "archtecture", "nccl_algo"] {
            assert_eq!(Axis::parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
