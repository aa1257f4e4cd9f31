//! What a cell is simulated on: a hardware profile and a software stack, with the values that the
//! cell sets.

use super::{Profile, Stack, overrides};
use base::error::Result;
use table::Spec;

/// A hardware profile and a software stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The GPUs, their memory and their links.
    pub profile: Profile,
    /// The software that runs on them.
    pub stack: Stack,
}

impl Target {
    /// The target of a cell: its hardware, its stack, and what `--set` changes in either.
    ///
    /// # Errors
    ///
    /// Input errors: a profile or stack that there is not, with the nearest name, or a file that is
    /// wrong, with line and column; a key that neither has, with the nearest valid one.
    pub fn of(spec: &Spec) -> Result<Self> {
        let target = Self { profile: Profile::load(&spec.hardware)?, stack: Stack::load(&spec.stack)? };
        target.with(&spec.set)
    }

    /// The target with values replaced: keys of the profile are dotted paths (`hbm_gb_s`,
    /// `link.p2p_on.tp.8.gb_s`). A link's numbers may be set for all TPs at once
    /// (`link.p2p_on.alpha_us`), or for all links inside a node (`link.alpha_us`, `link.gb_s`). Shorter
    /// keys are applied first, so that a longer one refines them. Keys of the stack are dotted paths
    /// too, with or without `stack.` before them (`stack.launch_us`, `contention.memory`).
    ///
    /// # Errors
    ///
    /// An input error for a key that neither has, with the nearest valid one, and for a value
    /// that does not fit.
    pub fn with(&self, set: &std::collections::BTreeMap<String, String>) -> Result<Self> {
        if set.is_empty() {
            return Ok(self.clone());
        }
        overrides::apply(self, set)
    }
}
