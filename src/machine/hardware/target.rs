//! Simulation target of a cell: a hardware profile and a software stack with the cell's overrides.

use super::{Profile, Stack, overrides};
use base::error::Result;
use table::Spec;

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub profile: Profile,
    pub stack: Stack,
}

impl Target {
    /// Target of a cell: hardware and stack with the `--set` overrides.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown profile or stack (with the nearest name), an invalid file
    /// (with line and column), or an unknown key (with the nearest valid one).
    pub fn of(spec: &Spec) -> Result<Self> {
        let target = Self { profile: Profile::load(&spec.hardware)?, stack: Stack::load(&spec.stack)? };
        target.with(&spec.set)
    }

    /// Target with overridden values. Keys are dotted paths in the profile (`hbm_gb_s`,
    /// `link.p2p_on.tp.8.gb_s`) or in the stack, with or without `stack.` (`stack.launch_us`,
    /// `contention.memory`). A link's values can be set for all TPs (`link.p2p_on.alpha_us`) or for all
    /// intra-node links (`link.alpha_us`, `link.gb_s`). Shorter keys are applied first, so that longer
    /// ones refine them.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown key (with the nearest valid one) or an invalid value.
    pub fn with(&self, set: &std::collections::BTreeMap<String, String>) -> Result<Self> {
        if set.is_empty() {
            return Ok(self.clone());
        }
        overrides::apply(self, set)
    }
}
