//! Backend interface and registry; the rest of the code knows a backend only by its [`Backend`] name and its entry in
//! [`BACKENDS`].

use std::process::Command;

use super::generate::{Emit, EvaluateRequest, GenerateOptions, StatusCallback};
use super::{
    BACKENDS, Feasibility, GenerateRequest, GenerationResult, GridContext, Job, RunEvent, RunResult,
};
use base::error::{Error, Result};
use machine::hardware::MemoryNeed;
use model::Model;
use plan::{DType, KvDType, Lowering, ModelShape, Precision};
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

/// Backend that executes cells. Returns an input error for a backend that only predicts.
pub fn executor(name: Backend) -> Result<&'static dyn Execute> {
    executing(name, "executes nothing")
}

/// Backend that generates tokens. Returns an input error for a backend that only predicts.
pub fn generator(name: Backend) -> Result<&'static dyn Execute> {
    executing(name, "computes no numbers: it generates no tokens")
}

/// Backend that evaluates quality. Returns an input error for a backend that only predicts.
pub fn evaluator(name: Backend) -> Result<&'static dyn Execute> {
    executing(name, "does not evaluate quality")
}

fn executing(name: Backend, lacks: &str) -> Result<&'static dyn Execute> {
    let backend = backend(name)?;
    backend.executor().ok_or_else(|| {
        let others = BACKENDS.into_iter().filter_map(|other| other.executor());
        let others: Vec<&str> = others.map(|other| other.name().as_str()).collect();
        Error::input_help(
            format!("{} {lacks}", backend.title()),
            format!("choose another backend: {}", others.join(", ")),
        )
    })
}

/// Default cell for a backend that decodes large models on this machine in the checkpoint's dtype.
pub fn default_spec(model: &Model) -> Spec {
    Spec {
        dtype: model.dtype.map_or(DType::Bf16, DType::activations),
        hardware: HOST.into(),
        ..Spec::default()
    }
}

/// Reason why `auto` picks a backend (`Ok`) or rejects it (`Err`). Empty reasons are not printed.
pub type AutoFit = std::result::Result<String, String>;

/// Describes a backend: the cells that it can run, and if it computes them ([`Execute`]). A backend that only predicts
/// ([`Backend::is_simulated`]) runs in the calling process.
pub trait PlanBackend: Sync {
    fn name(&self) -> Backend;

    fn title(&self) -> String {
        format!("the {} backend", self.name().as_str())
    }

    fn available(&self) -> std::result::Result<String, String>;

    /// Default cell. Its hardware is a profile on predicting backends and [`HOST`] on all others.
    fn defaults(&self, model: &Model) -> Spec {
        default_spec(model)
    }

    /// Formats of weights, activations (and thus messages) and KV cache for a cell's dtype.
    fn precision(&self, dtype: DType) -> Precision {
        Precision::gpu(dtype)
    }

    fn formats(&self) -> &'static [DType] {
        &[DType::F32, DType::Bf16, DType::F16, DType::Fp8]
    }

    /// Returns an explanation if the backend does not support this weight format or KV cache.
    fn lacks_format(&self, dtype: DType, kv: KvDType) -> Option<String> {
        let name = self.name().as_str();
        if !self.formats().contains(&dtype) {
            let has: Vec<&str> = self.formats().iter().map(|format| format.as_str()).collect();
            let has = has.join(", ");
            return Some(format!(
                "the {name} backend has no {dtype} weights, only {has}; sim predicts this cell"
            ));
        }
        let lacks = kv != KvDType::Activations && !self.name().is_simulated();
        lacks.then(|| format!("the {name} backend has no {kv} KV cache; sim predicts this cell"))
    }

    /// Returns an explanation if the backend cannot compute a model of this shape.
    fn lacks_shape(&self, _: &ModelShape) -> Option<String> {
        None
    }

    /// Returns an input error for a weight format in which the backend cannot compute.
    fn check_format(&self, dtype: DType) -> Result<()> {
        self.lacks_format(dtype, KvDType::Activations).map_or(Ok(()), |why| Err(Error::input(why)))
    }

    /// Returns an explanation if the backend does not support this all-reduce. Cells that ask for it are skipped.
    fn lacks_collective(&self, collective: Collective) -> Option<String> {
        let has = |one: &Collective| one.about().backends.contains(&self.name());
        (!has(&collective)).then(|| {
            let has: Vec<&str> = Collective::ALL.iter().filter(|one| has(one)).map(|one| one.as_str()).collect();
            let name = self.name().as_str();
            let has = has.join(", ");
            format!("the {name} backend has no {collective} all-reduce, only its own ({has}); sim predicts this cell")
        })
    }

    /// Names of the given options that only this backend honors; other backends warn that they have no effect.
    fn asked_for(&self, options: &CellOptions) -> Vec<&'static str> {
        let own = options.given().filter(|option| option.about.used_by == [self.name()]);
        let own = own.filter(|option| option.asked(options).as_deref() != Some("false"));
        own.map(|option| option.name).collect()
    }

    /// Resolves options that depend on each other, after all others are filled in; rejects invalid cells.
    fn complete(&self, _: &CellOptions, _: &GridContext, _: &mut Spec) -> Result<()> {
        Ok(())
    }

    /// Decides if `auto` picks this backend for a cell; the default never does. Options that are invalid on every
    /// backend are an error.
    fn auto_fit(&self, _: &CellOptions, _: &Model, _: &GridContext) -> Result<AutoFit> {
        Ok(Err(String::new()))
    }

    /// Checks if a cell can run here, with the arithmetic if it cannot. Its TP divides the model.
    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &GridContext) -> Result<Feasibility>;

    fn memory(&self, spec: &Spec, shape: &ModelShape, _: &GridContext) -> MemoryNeed {
        MemoryNeed::new(spec, shape, self.precision(spec.dtype))
    }

    /// Default weight format to generate tokens or evaluate in.
    fn generation_dtype(&self, model: &Model, _tp: u32, _ep: u32) -> DType {
        self.defaults(model).dtype
    }

    /// `None` for a backend that only predicts.
    fn executor(&self) -> Option<&dyn Execute> {
        None
    }
}

/// Computes numbers: runs cells, generates tokens, and evaluates quality.
pub trait Execute: PlanBackend {
    /// Runs a cell and measures it, in a process of its own.
    fn run(&self, job: &Job, on_event: &mut dyn FnMut(RunEvent)) -> RunResult;

    /// True if runs have their own watchdog: they report progress, and a hung process may be killed.
    fn is_supervised(&self) -> bool {
        false
    }

    /// Number of GPUs that a cell needs.
    fn gpus(&self, _: &Spec) -> u32 {
        0
    }

    /// True if a launcher that started several processes makes each of them one rank of the cell.
    fn takes_processes(&self, _: &Spec) -> bool {
        false
    }

    /// Sets the environment of a run's process.
    fn prepare(&self, _: &mut Command, _: &Spec) {}

    /// Adds facts about the machine that are known only after a run; returns warnings for the user.
    fn after(&self, _: &Job, _: &mut Environment) -> Vec<String> {
        Vec::new()
    }

    /// Decides if `auto` picks this backend to generate tokens.
    fn suits_generation(&self, model: &Model, dtype: Option<DType>) -> AutoFit;

    /// Generates tokens. Calls `on_token` periodically with the number of tokens per sequence; `say` receives status
    /// messages.
    fn generate(
        &self,
        request: &GenerateRequest,
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(usize),
        say: &mut StatusCallback<'_>,
    ) -> Result<GenerationResult>;

    /// Lowering of evaluated plans; part of the cache key, so backends with equal lowering share results.
    fn evaluation_lowering(&self) -> Lowering;

    /// Evaluates architectures on windows of a text and sends results to `emit` as they complete. Starts no more
    /// windows once `stop` returns true.
    fn evaluate(
        &self,
        request: &EvaluateRequest,
        stop: &(dyn Fn() -> bool + Sync),
        emit: &mut Emit<'_>,
    ) -> Result<()>;
}
