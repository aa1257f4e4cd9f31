//! Backend interface and registry; the rest of the code knows a backend only by its [`Backend`] name and its entry in
//! [`BACKENDS`].

use std::process::Command;

use super::evaluate::{Emit, EvaluateRequest};
use super::generate::{GenerateOptions, Saying};
use super::{BACKENDS, Feasibility, GenerateRequest, Generated, Job, RunEvent, RunResult, Shared};
use base::error::{Error, Result};
use machine::hardware::MemoryNeed;
use model::Model;
use plan::{DType, Lowering, ModelShape, Precision};
use table::{Backend, CellOptions, Collective, Environment, Spec};

pub const HOST: &str = "host";

/// Returns an input error for `auto`, which has no backend until the cell is resolved.
pub fn backend(name: Backend) -> Result<&'static dyn PlanBackend> {
    BACKENDS.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
        let names: Vec<&str> = BACKENDS.iter().map(|backend| backend.name().as_str()).collect();
        Error::input_help(
            format!("backend '{}' is not resolved", name.as_str()),
            format!("resolve the cell first: it becomes one of {}", names.join(", ")),
        )
    })
}

pub fn is_supervised(spec: &Spec) -> bool {
    backend(spec.backend).is_ok_and(|backend| backend.is_supervised())
}

/// Default cell for a backend that decodes large models on this machine in the checkpoint's dtype.
pub fn usual(model: &Model) -> Spec {
    Spec { dtype: model.dtype.unwrap_or(DType::Bf16), hardware: HOST.into(), ..Spec::default() }
}

/// Reason why `auto` picks a backend (`Ok`) or rejects it (`Err`). Empty reasons are not printed.
pub type Suits = std::result::Result<String, String>;

/// Executes plans or predicts their execution.
///
/// A predicting backend ([`Backend::is_simulated`]) runs in the calling process and implements
/// [`PlanBackend::predict`]; every other backend runs in its own process and implements [`PlanBackend::run`].
pub trait PlanBackend: Sync {
    fn name(&self) -> Backend;

    fn title(&self) -> String {
        format!("the {} backend", self.name().as_str())
    }

    fn available(&self) -> std::result::Result<String, String>;

    /// Default cell. Its hardware is a profile on predicting backends and [`HOST`] on all others.
    fn defaults(&self, model: &Model) -> Spec;

    /// Formats of weights, activations (and thus messages) and KV cache for a cell's dtype.
    fn precision(&self, dtype: DType) -> Precision {
        Precision::gpu(dtype)
    }

    /// Supported all-reduces. Cells that ask for another are skipped; `nccl` means the backend's own.
    fn collectives(&self) -> &'static [Collective] {
        &[Collective::Nccl]
    }

    /// Returns an explanation if the backend does not support this all-reduce.
    fn lacks(&self, collective: Collective) -> Option<String> {
        let has = self.collectives();
        (!has.contains(&collective)).then(|| {
            let has: Vec<&str> = has.iter().map(|collective| collective.as_str()).collect();
            let name = self.name().as_str();
            let has = has.join(", ");
            format!("the {name} backend has no {collective} all-reduce, only its own ({has}); sim predicts this cell")
        })
    }

    /// Names of the given options that only this backend honors; other backends warn that they have no effect.
    fn asked_for(&self, options: &CellOptions) -> Vec<&'static str> {
        let own = options.given().filter(|option| option.about.heeded_by == [self.name()]);
        let own = own.filter(|option| option.asked(options).as_deref() != Some("false"));
        own.map(|option| option.name).collect()
    }

    /// Resolves options that depend on each other, after all others are filled in; rejects invalid cells.
    fn complete(&self, _: &CellOptions, _: &Shared, _: &mut Spec) -> Result<()> {
        Ok(())
    }

    /// Decides if `auto` picks this backend for a cell; the default never does. Options that are invalid on every
    /// backend are an error.
    fn suits(&self, _: &CellOptions, _: &Model, _: &Shared) -> Result<Suits> {
        Ok(Err(String::new()))
    }

    /// Checks if a cell can run here, with the arithmetic if it cannot. Its TP divides the model.
    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &Shared) -> Result<Feasibility>;

    fn memory(&self, spec: &Spec, shape: &ModelShape, shared: &Shared) -> MemoryNeed;

    fn run(&self, job: &Job, on_event: &mut dyn FnMut(RunEvent)) -> RunResult;

    /// True if runs have their own watchdog: they report progress, and a hung process may be killed.
    fn is_supervised(&self) -> bool {
        false
    }

    fn gpus(&self, _: &Spec) -> u32 {
        0
    }

    /// True if a launcher that started several processes makes each of them one rank of the cell.
    fn takes_processes(&self, _: &Spec) -> bool {
        false
    }

    fn prepare(&self, _: &mut Command, _: &Spec) {}

    /// Adds facts about the machine that are known only after a run; returns warnings for the user.
    fn after(&self, _: &Job, _: &mut Environment) -> Vec<String> {
        Vec::new()
    }

    /// Decides if `auto` picks this backend to generate tokens. The default rejects every model.
    fn suits_generation(&self, _: &Model, _: Option<DType>) -> Suits {
        Err(String::new())
    }

    fn generation_dtype(&self, model: &Model) -> DType {
        self.defaults(model).dtype
    }

    /// Generates tokens. Calls `on_token` periodically with the number of tokens per sequence; `say` receives status
    /// messages. Always an error on a backend that only predicts.
    fn generate(
        &self,
        _: &GenerateRequest,
        _: &GenerateOptions,
        _on_token: &mut dyn FnMut(usize),
        _say: &mut Saying<'_>,
    ) -> Result<Generated> {
        let valid =
            BACKENDS.iter().map(|b| b.name().as_str()).filter(|name| *name != self.name().as_str());
        Err(Error::input_help(
            format!("{} computes no numbers: it generates no tokens", self.title()),
            format!("use another one: auto, {}", valid.collect::<Vec<_>>().join(", ")),
        ))
    }

    /// Lowering of evaluated plans; part of the cache key, so backends with equal lowering share results.
    fn evaluation_lowering(&self) -> Lowering {
        Lowering { late_select: true, ..Lowering::default() }
    }

    /// Evaluates architectures on windows of a text and sends results to `emit` as they complete. Starts no more
    /// windows once `stop` returns true. Always an error on a backend that does not evaluate.
    fn evaluate(
        &self,
        _: &EvaluateRequest,
        _stop: &(dyn Fn() -> bool + Sync),
        _emit: &mut Emit<'_>,
    ) -> Result<()> {
        Err(Error::input_help(
            format!("{} does not evaluate quality", self.title()),
            "use another one: cpu, cuda",
        ))
    }
}
