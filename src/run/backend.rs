//! What a backend is. A backend lives in a folder of its own; the word for it in [`Backend`] and a line in
//! [`BACKENDS`] are all that the rest of the house knows of it.

use std::process::Command;

use super::evaluate::{Emit, EvaluateRequest};
use super::generate::{GenerateOptions, Saying};
use super::{BACKENDS, Feasibility, GenerateRequest, Generated, Job, RunEvent, RunResult, Shared};
use base::error::{Error, Result};
use machine::hardware::MemoryNeed;
use model::Model;
use plan::{DType, Lowering, ModelShape, Precision};
use table::{Backend, CellOptions, Collective, Environment, Spec};

/// The hardware of runs that are executed on this machine.
pub const HOST: &str = "host";

/// The backend of this name.
///
/// # Errors
///
/// An input error for `auto`, which names none until a cell is resolved.
pub fn backend(name: Backend) -> Result<&'static dyn PlanBackend> {
    BACKENDS.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
        let names: Vec<&str> = BACKENDS.iter().map(|backend| backend.name().as_str()).collect();
        Error::input_help(
            format!("backend '{}' is not resolved", name.as_str()),
            format!("resolve the cell first: it becomes one of {}", names.join(", ")),
        )
    })
}

/// Whether runs of a cell have a watchdog of their own ([`PlanBackend::is_supervised`]).
pub fn is_supervised(spec: &Spec) -> bool {
    backend(spec.backend).is_ok_and(|backend| backend.is_supervised())
}

/// A cell of which nothing is said, on a machine that decodes large models in the checkpoint's own format.
pub fn usual(model: &Model) -> Spec {
    Spec { dtype: model.dtype.unwrap_or(DType::Bf16), hardware: HOST.into(), ..Spec::default() }
}

/// Why `auto` takes a backend (`Ok`), or why not (`Err`); an empty reason is not told.
pub type Suits = std::result::Result<String, String>;

/// Executes plans, or predicts how they would execute.
///
/// A backend that predicts ([`Backend::is_simulated`]) is run in the process that asks for
/// it and implements [`PlanBackend::predict`]; every other one is run in a process of its
/// own and implements [`PlanBackend::run`].
pub trait PlanBackend: Sync {
    /// The word that users type.
    fn name(&self) -> Backend;

    /// What sentences call it.
    fn title(&self) -> String {
        format!("the {} backend", self.name().as_str())
    }

    /// What it can do on this machine, or what is missing.
    fn available(&self) -> std::result::Result<String, String>;

    /// A cell of which nothing is said. Backends that only predict have a hardware
    /// profile there, others [`HOST`].
    fn defaults(&self, model: &Model) -> Spec;

    /// The formats in which it holds weights, activations (and so messages) and the KV cache of a cell.
    fn precision(&self, dtype: DType) -> Precision {
        Precision::gpu(dtype)
    }

    /// The all-reduces that it has. A cell that asks for another is skipped; `nccl` stands for a backend's own.
    fn collectives(&self) -> &'static [Collective] {
        &[Collective::Nccl]
    }

    /// Why it does not reduce in the way that is asked for, if so.
    fn lacks(&self, collective: Collective) -> Option<String> {
        let has = self.collectives();
        (!has.contains(&collective)).then(|| {
            let has: Vec<&str> = has.iter().map(|collective| collective.as_str()).collect();
            let name = self.name().as_str();
            let has = has.join(", ");
            format!("the {name} backend has no {collective} all-reduce, only its own ({has}); sim predicts this cell")
        })
    }

    /// Names of the options that are given and that it alone heeds; other backends tell that
    /// these are without effect.
    fn asked_for(&self, options: &CellOptions) -> Vec<&'static str> {
        let own = options.given().filter(|option| option.about.heeded_by == [self.name()]);
        let own = own.filter(|option| option.asked(options).as_deref() != Some("false"));
        own.map(|option| option.name).collect()
    }

    /// Completes a cell that has all options which it heeds: what options say of one another.
    ///
    /// # Errors
    ///
    /// Where the cell makes no sense on it.
    fn complete(&self, _: &CellOptions, _: &Shared, _: &mut Spec) -> Result<()> {
        Ok(())
    }

    /// Whether `auto` takes it for a cell. By default it never does.
    ///
    /// # Errors
    ///
    /// Where what is asked for makes no sense on any backend.
    fn suits(&self, _: &CellOptions, _: &Model, _: &Shared) -> Result<Suits> {
        Ok(Err(String::new()))
    }

    /// Whether a cell, whose TP divides the model, can run here; the arithmetic if it cannot.
    ///
    /// # Errors
    ///
    /// Where what it needs to know of the cell cannot be read.
    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &Shared) -> Result<Feasibility>;

    /// What a rank of a cell needs of memory, as far as that is known before it runs.
    fn memory(&self, spec: &Spec, shape: &ModelShape, shared: &Shared) -> MemoryNeed;

    /// Executes a job; events of the run go to `emit` meanwhile. Records spans where the job asks for it.
    ///
    /// # Errors
    ///
    /// Whatever ends the run.
    fn run(&self, job: &Job, _: &mut dyn FnMut(RunEvent)) -> RunResult {
        self.predict(&job.spec, &Shared::default(), job.record)
    }

    /// Predicts a cell, with its spans if `record`; the same each time.
    ///
    /// # Errors
    ///
    /// Where nothing can be said of the cell; always on a backend that executes.
    fn predict(&self, _: &Spec, _: &Shared, _record: bool) -> RunResult {
        Err(Error::failed(format!("{} predicts nothing", self.title())))
    }

    /// Whether a run has a watchdog of its own: it tells of its progress, and a process in which it hangs
    /// is left without ceremony.
    fn is_supervised(&self) -> bool {
        false
    }

    /// How many GPUs a cell takes.
    fn gpus(&self, _: &Spec) -> u32 {
        0
    }

    /// Whether a cell is executed by a process a rank where a launcher started several.
    fn takes_processes(&self, _: &Spec) -> bool {
        false
    }

    /// Sets variables of the run's process.
    fn prepare(&self, _: &mut Command, _: &Spec) {}

    /// Adds what is known of the machine only after a run; what the user should be warned of.
    fn after(&self, _: &Job, _: &mut Environment) -> Vec<String> {
        Vec::new()
    }

    /// Whether `auto` takes it to generate tokens of a model. By default it never does.
    fn suits_generation(&self, _: &Model, _: Option<DType>) -> Suits {
        Err(String::new())
    }

    /// Format in which it generates where nothing is said.
    fn generation_dtype(&self, model: &Model) -> DType {
        self.defaults(model).dtype
    }

    /// Generates tokens; `on_token` is called now and then with the number of tokens each sequence has,
    /// `say` hears in words what goes on.
    ///
    /// # Errors
    ///
    /// Whatever ends the generation; always on a backend that computes no numbers.
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

    /// How plans are lowered that it evaluates: by it, results of backends are told apart that differ in nothing else.
    fn evaluation_lowering(&self) -> Lowering {
        Lowering { late_select: true, ..Lowering::default() }
    }

    /// Evaluates architectures on windows of a text; results go to `emit` as they come. Begins no more
    /// windows after `stop` says so.
    ///
    /// # Errors
    ///
    /// Whatever ends the evaluation, `emit`'s errors too; always on a backend that does not evaluate.
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
