//! What many cells of a grid share: models, profiles and plans, read or built once.
//!
//! A cache lives as long as one grid is looked at, so that a changed file is seen by the next look. It
//! never grows with the grid: a table that is full is emptied, which costs no more than having had none.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, RwLock};

use crate::error::Result;
use crate::hardware::{MemoryNeed, Profile, lowering};
use crate::model::{Model, ModelShape};
use crate::plan::{Phase, Plan, PlanSpec, Precision};
use crate::spec::Spec;

/// Models and profiles that are kept.
const SMALL: usize = 1024;
/// Pairs of plans that are kept; a large model's take about a megabyte.
const LARGE: usize = 64;

/// Models, profiles and plans by what they follow from.
#[derive(Debug, Default)]
pub(super) struct Shared {
    models: Table<String, Model>,
    /// By hardware and overrides.
    profiles: Table<(String, Vec<(String, String)>), Profile>,
    /// Prefill and decode, by everything but the workload that they depend on; `None` where TP does
    /// not divide the model.
    plans: Table<String, Option<(Plan, Plan)>>,
}

impl Shared {
    /// [`Model::resolve`].
    pub fn model(&self, name_or_dir: &str) -> Result<Arc<Model>> {
        self.models.get(name_or_dir.to_owned(), SMALL, || Model::resolve(name_or_dir))
    }

    /// [`Profile::load`] with these overrides.
    pub fn profile(
        &self,
        name_or_file: &str,
        set: &std::collections::BTreeMap<String, String>,
    ) -> Result<Arc<Profile>> {
        let own = |pairs: &std::collections::BTreeMap<String, String>| {
            pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let base = || {
            self.profiles
                .get((name_or_file.to_owned(), Vec::new()), SMALL, || Profile::load(name_or_file))
        };
        if set.is_empty() {
            return base();
        }
        self.profiles.get((name_or_file.to_owned(), own(set)), SMALL, || base()?.with(set))
    }

    /// [`MemoryNeed::of`], from plans that cells share.
    pub fn memory(&self, spec: &Spec, shape: &ModelShape, precision: Precision) -> MemoryNeed {
        let key =
            format!("{}\n{}\n{}\n{}\n{precision:?}", spec.model, spec.stack, spec.architecture, spec.tp);
        let plans = self.plans.get(key, LARGE, || {
            let plan = |phase| {
                let (shape, architecture) = (shape.clone(), spec.architecture.clone());
                let lowering = lowering(&spec.stack).unwrap_or_default();
                Plan::new(&PlanSpec { shape, architecture, tp: spec.tp, phase, precision, lowering })
                    .ok()
            };
            Ok(plan(Phase::Prefill).zip(plan(Phase::Decode)))
        });
        match plans.as_deref() {
            Ok(Some((prefill, decode))) => MemoryNeed::of_plans(spec, shape, precision, prefill, decode),
            _ => MemoryNeed::default(),
        }
    }
}

/// Values by key, shared between threads.
#[derive(Debug)]
struct Table<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// The value of `key`; made where it is not there. Errors are not kept: each cell says its own.
    fn get(&self, key: K, most: usize, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if let Some(there) = self.0.read().ok().and_then(|table| table.get(&key).cloned()) {
            return Ok(there);
        }
        // two threads may make the same at once; nobody waits for a slow one
        let made = Arc::new(make()?);
        if let Ok(mut table) = self.0.write() {
            if table.len() >= most {
                table.clear();
            }
            table.insert(key, Arc::clone(&made));
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_makes_a_value_once_and_never_holds_more_than_it_may() {
        let table: Table<u32, u32> = Table::default();
        for _ in 0..3 {
            assert_eq!(*table.get(7, 4, || Ok(49)).unwrap(), 49);
        }
        assert_eq!(*table.get(7, 4, || Ok(0)).unwrap(), 49, "made once");
        for key in 0..100 {
            table.get(key, 4, || Ok(key)).unwrap();
            assert!(table.0.read().unwrap().len() <= 4);
        }
    }

    #[test]
    fn a_profile_with_overrides_is_another_profile() {
        let shared = Shared::default();
        let set = |text: &str| [("hbm_gb_s".to_owned(), text.to_owned())].into();
        let plain = shared.profile("h100_sxm", &Default::default()).unwrap();
        let half = shared.profile("h100_sxm", &set("1000")).unwrap();
        let less = shared.profile("h100_sxm", &set("500")).unwrap();
        assert!(plain.hbm_gb_s > half.hbm_gb_s && half.hbm_gb_s > less.hbm_gb_s);
        assert!(shared.profile("h100_sxm", &set("fast")).is_err());
        assert!(shared.profile("h100_sxn", &Default::default()).is_err());
    }
}
