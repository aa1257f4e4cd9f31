//! Resolves a cell's options into its [`Spec`]: backend `auto`, and defaults.

use std::collections::BTreeMap;

use super::backend::{HOST, PlanBackend, backend};
use super::{BACKENDS, GridContext};
use base::error::{Error, Result};
use machine::hardware::{Profile, Stack};
use model::Model;
use table::options::{ENV_PAIRS, OPTIONS, SET_PAIRS};
use table::{Backend, CellOptions, Link, P2p, Spec};

/// Resolution of cell options, as a trait because the options' crate knows no backends.
pub trait Resolve {
    /// Fills in defaults and picks the backend for `auto`; the second value explains the choice.
    /// [`super::feasibility::assess`] checks if the cell can run.
    ///
    /// # Errors
    ///
    /// Returns an input error for a value that is out of range or contradicts another, for an unknown model, hardware
    /// profile or stack, and if `auto` finds no backend.
    fn resolve(&self) -> Result<(Spec, Option<String>)> {
        self.resolve_with(&GridContext::default())
    }

    /// Like [`Resolve::resolve`] for one cell of many; reads models and profiles once.
    fn resolve_with(&self, shared: &GridContext) -> Result<(Spec, Option<String>)>;
}

impl Resolve for CellOptions {
    fn resolve_with(&self, shared: &GridContext) -> Result<(Spec, Option<String>)> {
        check_counts(self)?;
        let model = shared.simulator.model(self.model.as_deref().unwrap_or("llama-3.2-1b"))?;
        let mut notes = Vec::new();
        let chosen = match self.backend.unwrap_or(Backend::Auto) {
            Backend::Auto => {
                let (chosen, why) = choose(self, &model, shared)?;
                notes.push(format!("backend {}: {why}", chosen.name().as_str()));
                chosen
            }
            named => backend(named)?,
        };
        let spec = fill(self, &model, chosen, shared)?;
        // predictions read no weights
        if !chosen.name().is_simulated() {
            notes.extend(model.warnings.iter().cloned());
        }
        for other in BACKENDS.into_iter().rev().filter(|other| other.name() != chosen.name()) {
            let unused = other.asked_for(self);
            if !unused.is_empty() {
                notes.push(format!("{} only matter to {}", unused.join(", "), other.title()));
            }
        }
        let unheeded = self.given().filter(|option| !option.is_used_by(chosen.name()));
        notes.extend(unheeded.filter(|option| option.about.used_by.len() > 1).map(|option| {
            let heed: Vec<&str> = option.about.used_by.iter().map(|b| b.as_str()).collect();
            format!("{} only matters to {}", option.name, heed.join(" and "))
        }));
        let nccl = |name: &&String| name.starts_with("NCCL_") && !name.starts_with("NCCL_P2P_");
        let unread: Vec<&str> = spec.env.keys().filter(nccl).map(String::as_str).collect();
        if chosen.name() != Backend::Cuda && !unread.is_empty() {
            notes.push(format!("{} only matter to the cuda backend", unread.join(", ")));
        }
        Ok((spec, (!notes.is_empty()).then(|| notes.join("; "))))
    }
}

/// Picks the backend for `auto`, with the reason: the last suitable one of the list.
fn choose(
    options: &CellOptions,
    model: &Model,
    shared: &GridContext,
) -> Result<(&'static dyn PlanBackend, String)> {
    // options that only a predicting backend honors select it
    for predicts in BACKENDS.into_iter().filter(|backend| backend.name().is_simulated()) {
        let asked_for = predicts.asked_for(options);
        if !asked_for.is_empty() {
            let ask = if asked_for.len() == 1 { "needs" } else { "need" };
            let why = format!("{} {ask} {}", asked_for.join(", "), predicts.title());
            return Ok((predicts, why));
        }
    }
    if options.model.is_none()
        && let Some(predicts) = BACKENDS.into_iter().find(|backend| backend.name().is_simulated())
    {
        return Ok((
            predicts,
            "no model given; simulating the default llama-3.2-1b (pass --model to run it)".into(),
        ));
    }
    if shared.is_remote {
        return Err(Error::input_help(
            "backend auto checks the local machine, but the cells run on another",
            "set the backend: backend = \"cuda\" or backend = \"cpu\"",
        ));
    }
    let mut reasons = Vec::new();
    for backend in BACKENDS.into_iter().rev() {
        let kv = options.kv_dtype.unwrap_or_default();
        let lacks = options.collective.and_then(|collective| backend.lacks_collective(collective));
        let dtype = options.dtype.unwrap_or(backend.defaults(model).dtype);
        let lacks = lacks
            .or_else(|| backend.lacks_format(dtype, kv))
            .or_else(|| backend.lacks_shape(&model.shape));
        let suits = match lacks {
            Some(why) => Err(format!("not {}: {why}", backend.name().as_str())),
            None => backend.auto_fit(options, model, shared)?,
        };
        let is_chosen = suits.is_ok();
        reasons.extend(Some(suits.unwrap_or_else(|why| why)).filter(|why| !why.is_empty()));
        if is_chosen {
            return Ok((backend, reasons.join("; ")));
        }
    }
    Err(Error::input(format!("no backend can run it: {}", reasons.join("; "))))
}

fn check_counts(options: &CellOptions) -> Result<()> {
    OPTIONS.iter().try_for_each(|option| option.check(options))?;
    if options.prompt_tokens.unwrap_or(0).checked_add(options.output_tokens.unwrap_or(0)).is_none() {
        return Err(Error::input("prompt_tokens and output_tokens are together above 4294967295"));
    }
    Ok(())
}

pub(super) fn fill(
    options: &CellOptions,
    model: &Model,
    backend: &dyn PlanBackend,
    shared: &GridContext,
) -> Result<Spec> {
    let defaults = backend.defaults(model);
    let link = options.link.unwrap_or(Link::Native);
    let from_profile = matches!(link, Link::P2pOn | Link::P2pOff);
    let named = options.hardware.as_ref().filter(|_| from_profile || defaults.hardware != HOST);
    let hardware = Profile::canonical_name(named.unwrap_or(&defaults.hardware)).to_owned();
    if from_profile && !backend.name().is_simulated() {
        if hardware == HOST {
            return Err(Error::input_help(
                format!("link '{link}' is emulated from a hardware profile, but none is set"),
                "set hardware, for example h100_sxm (`ladderscope hardware` lists profiles)",
            ));
        }
        shared.simulator.target(&hardware, "native", &BTreeMap::new())?;
    }
    let mut spec = defaults;
    if let Some(wiring) = &model.wiring {
        spec.architecture.clone_from(wiring);
    }
    // a profile's link is one with P2P or without
    spec.p2p = if link == Link::P2pOff { P2p::Off } else { P2p::On };
    for option in OPTIONS.iter().filter(|option| option.is_used_by(backend.name())) {
        option.apply(options, &mut spec);
    }
    spec.model.clone_from(&model.name);
    spec.stack = Stack::canonical_name(&spec.stack).to_owned();
    (spec.backend, spec.hardware) = (backend.name(), hardware);
    spec.env = ENV_PAIRS.read(&options.env)?;
    // invalid overrides are errors on every backend
    SET_PAIRS.read(&options.set)?;
    backend.complete(options, shared, &mut spec)?;
    spec.files = shared.files(model, &spec.hardware, &spec.stack)?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{AvailableGpus, made_up_gpus};
    use plan::Architecture;

    fn chosen(options: &CellOptions, gpus: &AvailableGpus) -> (Backend, String) {
        let shared = GridContext::with_gpus(gpus.clone());
        let model = shared.simulator.model(options.model.as_deref().unwrap()).unwrap();
        let (backend, why) = choose(options, &model, &shared).unwrap();
        (backend.name(), why)
    }

    #[test]
    fn a_name_is_recorded_as_it_is_written_however_it_was_typed() {
        let options = CellOptions {
            architecture: Some("Upper_Bound".parse().unwrap()),
            model: Some("Llama_3-70B".into()),
            backend: Some("SIM".parse().unwrap()),
            hardware: Some("H100-SXM".into()),
            stack: Some("gpt_fast".into()),
            ..CellOptions::default()
        };
        let spec = options.resolve().unwrap().0;
        assert_eq!((spec.model.as_str(), spec.architecture), ("llama-3-70b", Architecture::UpperBound));
        assert_eq!((spec.hardware.as_str(), spec.stack.as_str()), ("h100_sxm", "gpt-fast"));
    }

    #[test]
    fn a_link_without_p2p_is_recorded_as_one() {
        let p2p = |link: &str, p2p| {
            let options = CellOptions {
                backend: Some(Backend::Cpu),
                hardware: Some("h100_sxm".into()),
                link: Some(link.parse().unwrap()),
                p2p,
                ..CellOptions::default()
            };
            options.resolve().unwrap().0.p2p
        };
        assert_eq!((p2p("p2p-on", None), p2p("p2p-off", None)), (P2p::On, P2p::Off));
        assert_eq!(p2p("native", None), P2p::On);
        // what is said outright holds
        assert_eq!(p2p("p2p-off", Some(P2p::On)), P2p::On);
    }

    #[test]
    fn auto_takes_gpus_where_there_are_enough_and_the_model_fits() {
        let of = |model: &str, tp: u32| CellOptions {
            model: Some(model.into()),
            tp: Some(tp),
            ..CellOptions::default()
        };
        const H200: u64 = 150_000_000_000;
        let (backend, why) = chosen(&of("llama-3-70b", 4), &made_up_gpus(8, H200));
        assert_eq!((backend, why.as_str()), (Backend::Cuda, "8 x NVIDIA H200 answer"));
        let (backend, why) = chosen(&of("llama-3-70b", 4), &made_up_gpus(1, H200));
        assert_eq!(backend, Backend::Sim);
        assert!(
            why.starts_with("not cuda: tp 4 needs 4 GPUs") && why.contains("too many for cpu"),
            "{why}"
        );
        let (backend, why) = chosen(&of("tiny", 4), &made_up_gpus(1, H200));
        assert_eq!(backend, Backend::Cpu);
        assert!(why.starts_with("not cuda: tp 4 needs 4 GPUs") && why.contains("; tiny has"), "{why}");
        let link = Some(Link::Emulated { alpha_us: 5.0, gb_s: 300.0 });
        let (backend, why) =
            chosen(&CellOptions { link, ..of("llama-3-70b", 8) }, &made_up_gpus(1, H200));
        assert_eq!(
            (backend, why.as_str()),
            (Backend::Cuda, "NVIDIA H200 answers; it runs one rank's shard of 8")
        );
        let none = AvailableGpus { found: Err("no driver".into()), launched: Ok(None) };
        let (backend, why) = chosen(&of("tiny", 2), &none);
        assert_eq!(backend, Backend::Cpu);
        assert!(why.starts_with("no GPU found; tiny has"), "{why}");
        let stack = Some("gpt-fast".to_owned());
        let asked = CellOptions { stack, ..of("tiny", 1) };
        assert_eq!(chosen(&asked, &made_up_gpus(8, H200)).0, Backend::Sim);
        // an option of the simulator that has its default does not ask for it
        let stack = Some("native".to_owned());
        let defaults = CellOptions { stack, dp: Some(1), concurrency: Some(0), ..of("llama-3-70b", 4) };
        assert_eq!(chosen(&defaults, &made_up_gpus(8, H200)).0, Backend::Cuda);
    }
}
