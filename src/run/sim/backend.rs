//! Simulator as a backend; it suits every cell and needs no hardware.

use super::link::link_problem;
use crate::backend::{HOST, PlanBackend, Suits, usual};
use crate::{Feasibility, Shared};
use base::error::{Error, Result};
use machine::hardware::{MemoryNeed, STACKS, Stack, Target};
use model::Model;
use plan::{DType, ModelShape};
use table::options::{OptionEntry, PAIRS};
use table::{Backend, CellOptions, Link, Spec};

/// Discrete-event simulation on a hardware profile and a software stack.
#[derive(Debug)]
pub struct SimBackend;

impl PlanBackend for SimBackend {
    fn name(&self) -> Backend {
        Backend::Sim
    }

    fn title(&self) -> String {
        "the simulator".into()
    }

    fn available(&self) -> std::result::Result<String, String> {
        Ok("always available; results are predictions".into())
    }

    fn defaults(&self, model: &Model) -> Spec {
        Spec { hardware: "h100_sxm".into(), samples: 1, warmup: 0, ..usual(model) }
    }

    fn formats(&self) -> &'static [DType] {
        &DType::ALL
    }

    fn asked_for(&self, options: &CellOptions) -> Vec<&'static str> {
        // an emulated link from a profile needs the profile on every backend
        let from_profile = matches!(options.link, Some(Link::P2pOn | Link::P2pOff));
        let hardware = options.hardware.as_deref().is_some_and(|h| h != HOST) && !from_profile;
        // options equal to their defaults do not select the simulator
        let asked = |option: &&OptionEntry| match option.name {
            "hardware" => hardware,
            _ => option.asked(options).is_some_and(|text| text != option.about.default),
        };
        let own = options.given().filter(|option| option.about.heeded_by == [self.name()]);
        let set = (!options.set.is_empty()).then_some("set");
        set.into_iter().chain(own.filter(asked).map(|option| option.name)).collect()
    }

    fn complete(&self, options: &CellOptions, shared: &Shared, spec: &mut Spec) -> Result<()> {
        if spec.hardware == HOST {
            return Err(Error::input_help(
                "hardware 'host': the simulator needs a hardware profile",
                "set hardware, for example h100_sxm (`ladderscope hardware` lists profiles)",
            ));
        }
        spec.set = PAIRS[1].read(&options.set)?;
        let target = shared.target(&spec.hardware, &spec.stack, &spec.set)?;
        if spec.concurrency > 0 {
            serving_problem(options, spec, &target).map_or(Ok(()), Err)?;
            spec.batch = spec.concurrency;
        }
        Ok(())
    }

    fn suits(&self, _: &CellOptions, _: &Model, _: &Shared) -> Result<Suits> {
        Ok(Ok(String::new()))
    }

    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &Shared) -> Result<Feasibility> {
        let target = shared.target(&spec.hardware, &spec.stack, &spec.set)?;
        if let Some(problem) = link_problem(spec, &target) {
            return Ok(Feasibility::Skipped(problem));
        }
        let (need, capacity) = (self.memory(spec, shape, shared), target.profile.memory_bytes);
        Ok(match need.fits(capacity) {
            true => Feasibility::Runs,
            false => Feasibility::Oom(format!(
                "a rank needs {}; {} has {:.1} GB",
                need.arithmetic(),
                spec.hardware,
                capacity as f64 / 1e9
            )),
        })
    }

    fn memory(&self, spec: &Spec, shape: &ModelShape, shared: &Shared) -> MemoryNeed {
        let target = shared.target(&spec.hardware, &spec.stack, &spec.set);
        let need = target.and_then(|target| shared.simulator.memory(spec, shape, &target));
        need.unwrap_or_default()
    }
}

/// Most requests in flight; the simulation of a closed loop grows with their square.
const MOST_REQUESTS: u32 = 4096;

fn serving_problem(options: &CellOptions, spec: &Spec, target: &Target) -> Option<Error> {
    let concurrency = spec.concurrency;
    if target.stack.serving.is_none() {
        let serving = STACKS.iter().filter(|name| Stack::load(name).is_ok_and(|s| s.serving.is_some()));
        let serving: Vec<&str> = serving.copied().collect();
        return Some(Error::input_help(
            format!(
                "concurrency {concurrency}: stack {} decodes static batches only",
                target.stack.name
            ),
            format!("set stack to one with a scheduler: {}", serving.join(", ")),
        ));
    }
    if spec.pp > 1 {
        return Some(Error::input(format!(
            "concurrency {concurrency} with pp {}: pipelines decode static batches only",
            spec.pp
        )));
    }
    if concurrency > MOST_REQUESTS {
        return Some(Error::input(format!(
            "concurrency is {concurrency}; it must be at most {MOST_REQUESTS}"
        )));
    }
    let batch = options.batch.filter(|batch| *batch != 1 && *batch != concurrency)?;
    Some(Error::input_help(
        format!("batch {batch} contradicts concurrency {concurrency}"),
        "set only one: batch for a static batch, concurrency for requests in flight",
    ))
}
