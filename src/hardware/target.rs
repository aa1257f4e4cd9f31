//! What a cell is simulated on: a hardware profile and a software stack, with the values that the
//! cell sets.

use super::{Profile, Stack, overrides};
use crate::error::Result;
use crate::spec::Spec;

/// A hardware profile and a software stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The GPUs and their links.
    pub profile: Profile,
    /// What runs on them.
    pub stack: Stack,
}

impl Target {
    /// Of a cell: its hardware, its stack, and what `--set` changes in either.
    pub fn of(spec: &Spec) -> Result<Self> {
        let target = Self { profile: Profile::load(&spec.hardware)?, stack: Stack::load(&spec.stack)? };
        target.with(&spec.set)
    }

    /// Likewise with values replaced; see [`Profile::with`] for keys of the profile. Keys of the stack
    /// are dotted paths too, with or without `stack.` before them (`stack.launch_us`,
    /// `contention.memory`). Keys that neither has are errors that name the nearest valid one.
    pub fn with(&self, set: &std::collections::BTreeMap<String, String>) -> Result<Self> {
        if set.is_empty() {
            return Ok(self.clone());
        }
        overrides::apply(self, set)
    }
}
