//! Cpu backend: default options and feasibility of cells.

use crate::backend::{AutoFit, Execute, PlanBackend, default_spec};
use crate::generate::{Emit, EvaluateRequest, GenerateOptions, StatusCallback};
use crate::{
    Feasibility, GenerateRequest, GenerationResult, GridContext, Job, RunEvent, RunResult, resolve,
};
use arithmetic::product::InstructionSet;
use base::error::Result;
use machine::environment::available_memory;
use machine::hardware::MemoryNeed;
use model::{Model, mxfp4_problem};
use plan::{DType, Lowering, ModelShape, Precision};
use table::{Backend, CellOptions, Spec};

/// Maximum parameters for `auto` to pick this backend; larger models decode too slowly.
const MOST_PARAMETERS: u64 = 1_500_000_000;

#[derive(Debug)]
pub struct CpuBackend;

impl PlanBackend for CpuBackend {
    fn name(&self) -> Backend {
        Backend::Cpu
    }

    fn available(&self) -> std::result::Result<String, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = available_memory().map_or("memory".into(), |m| format!("{:.1} GB", gb(m)));
        Ok(format!("models that fit in {memory}; a core for each rank up to TP {threads}"))
    }

    fn defaults(&self, model: &Model) -> Spec {
        let dtype = model.dtype.filter(|dtype| *dtype != DType::F16).unwrap_or(DType::F32);
        Spec { dtype, prompt_tokens: 32, output_tokens: 32, ..default_spec(model) }
    }

    /// Weights stored in mxfp4 become bf16, with the same numbers, where ranks hold parts of blocks.
    fn complete(&self, options: &CellOptions, shared: &GridContext, spec: &mut Spec) -> Result<()> {
        if options.dtype.is_none() && spec.dtype == DType::Mxfp4 {
            let shape = &shared.simulator.model(&spec.model)?.shape;
            if packed_problem(spec.dtype, [spec.tp, spec.ep], shape).is_some() {
                spec.dtype = DType::Bf16;
            }
        }
        Ok(())
    }

    fn auto_fit(&self, options: &CellOptions, model: &Model, shared: &GridContext) -> Result<AutoFit> {
        let parameters = model.shape.parameters();
        let billions = parameters as f64 / 1e9;
        if parameters > MOST_PARAMETERS {
            return Ok(Err(format!(
                "{} has {billions:.1} B parameters, too many for cpu (limit {:.1} B)",
                model.name,
                MOST_PARAMETERS as f64 / 1e9,
            )));
        }
        let spec = resolve::fill(options, model, self, shared)?;
        Ok(match fits(&spec, &self.memory(&spec, &model.shape, shared), shared.available_memory()) {
            Feasibility::Oom(arithmetic) => Err(format!("not cpu: {arithmetic}")),
            _ => Ok(format!("{} has {billions:.2} B parameters and fits in memory", model.name)),
        })
    }

    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &GridContext) -> Result<Feasibility> {
        let problem = threads_problem(spec)
            .or_else(InstructionSet::problem)
            .or_else(|| packed_problem(spec.dtype, [spec.tp, spec.ep], shape));
        Ok(match problem {
            Some(problem) => Feasibility::Skipped(problem),
            None => fits(spec, &self.memory(spec, shape, shared), shared.available_memory()),
        })
    }

    fn formats(&self) -> &'static [DType] {
        &[DType::F32, DType::Bf16, DType::Fp8, DType::Mxfp4]
    }

    fn precision(&self, dtype: DType) -> Precision {
        Precision::cpu(dtype)
    }

    fn generation_dtype(&self, model: &Model, tp: u32, ep: u32) -> DType {
        let is_whole = packed_problem(DType::Mxfp4, [tp, ep], &model.shape).is_none();
        match model.dtype {
            Some(DType::Mxfp4) if is_whole => DType::Mxfp4,
            // the same numbers in half the memory of f32
            Some(DType::Mxfp4) => DType::Bf16,
            _ => DType::F32,
        }
    }

    fn executor(&self) -> Option<&dyn Execute> {
        Some(self)
    }
}

impl Execute for CpuBackend {
    fn run(&self, job: &Job, emit: &mut dyn FnMut(RunEvent)) -> RunResult {
        super::run::run(job, emit)
    }

    fn suits_generation(&self, model: &Model, _: Option<DType>) -> AutoFit {
        let parameters = model.shape.parameters();
        Ok(match parameters > MOST_PARAMETERS {
            true => format!("{:.1} B parameters are slow on it", parameters as f64 / 1e9),
            false => String::new(),
        })
    }

    fn generate(
        &self,
        request: &GenerateRequest,
        _: &GenerateOptions,
        on_token: &mut dyn FnMut(usize),
        _: &mut StatusCallback<'_>,
    ) -> Result<GenerationResult> {
        super::run::generate(request, on_token)
    }

    fn evaluation_lowering(&self) -> Lowering {
        Lowering { late_select: true, ..Lowering::default() }
    }

    fn evaluate(
        &self,
        request: &EvaluateRequest,
        stop: &(dyn Fn() -> bool + Sync),
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        super::evaluate::evaluate(request, stop, emit)
    }
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn threads_problem(spec: &Spec) -> Option<String> {
    let (threads, ranks) = (spec.threads, spec.ranks());
    let divisor = if spec.pp > 1 { "TP x PP" } else { "TP" };
    (!threads.is_multiple_of(ranks)).then(|| {
        format!(
            "{ranks} ranks cannot share {threads} threads evenly; threads must be a multiple of {divisor}"
        )
    })
}

/// Explains why a rank's rows cannot be held in mxfp4, if so.
fn packed_problem(dtype: DType, [tp, ep]: [u32; 2], shape: &ModelShape) -> Option<String> {
    if dtype != DType::Mxfp4 {
        return None;
    }
    let inputs = match &shape.experts {
        Some(experts) if ep > 1 => vec![experts.width],
        Some(experts) => vec![experts.width / tp],
        None => vec![shape.heads * shape.head_dim / tp, shape.intermediate / tp],
    };
    std::iter::once(shape.hidden).chain(inputs).find_map(mxfp4_problem)
}

/// Checks if all ranks together fit in `capacity`. An unknown capacity counts as enough.
fn fits(spec: &Spec, need: &MemoryNeed, capacity: Option<u64>) -> Feasibility {
    let ranks = u64::from(spec.ranks());
    let total = need.total().saturating_mul(ranks);
    match capacity.filter(|capacity| total > *capacity) {
        None => Feasibility::Runs,
        Some(capacity) => Feasibility::Oom(format!(
            "a rank needs {}; {ranks} ranks need {:.1} GB, and {:.1} GB of memory are available",
            need.arithmetic(),
            gb(total),
            gb(capacity)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{shape_70b, spec};

    #[test]
    fn threads_and_a_head_that_ranks_cannot_share_are_told_with_the_arithmetic() {
        let cell = |tp, threads, shard_head| {
            let plain = Spec { tp, threads, shard_head, ..spec("ladder", "stories-110m") };
            crate::testing::skip_reason(&Spec { backend: Backend::Cpu, dtype: DType::F32, ..plain })
        };
        assert_eq!(cell(2, 4, true), "Runs");
        assert_eq!(cell(2, 0, false), "Runs");
        let why = cell(2, 3, false);
        assert!(why.starts_with("2 ranks cannot share 3 threads"), "{why}");
        let shape = ModelShape { vocab: 32_001, ..shape_70b() };
        let sharded = Spec { tp: 2, shard_head: true, ..spec("ladder", "llama-3-70b") };
        let why = crate::feasibility::problem(&sharded, &shape).unwrap();
        assert!(why.contains("TP 2 does not divide the vocabulary of 32001"), "{why}");
    }

    #[test]
    fn a_cell_that_all_ranks_together_have_no_memory_for_is_told_with_the_arithmetic() {
        let cell = Spec { tp: 4, dtype: DType::Bf16, ..spec("ladder", "llama-3-70b") };
        let need = CpuBackend.memory(&cell, &shape_70b(), &GridContext::default());
        assert_eq!(fits(&cell, &need, Some(4 * need.total())), Feasibility::Runs);
        assert_eq!(fits(&cell, &need, None), Feasibility::Runs);
        let Feasibility::Oom(why) = fits(&cell, &need, Some(64_000_000_000)) else {
            panic!("140 GB of weights")
        };
        assert!(why.starts_with("a rank needs weights"), "{why}");
        assert!(
            why.contains("; 4 ranks need ") && why.ends_with("64.0 GB of memory are available"),
            "{why}"
        );
        let huge = Spec { backend: Backend::Cpu, model: "llama-3.1-405b".into(), tp: 1, ..cell };
        let found = crate::feasibility::assess(&huge).unwrap();
        assert!(matches!(found, Feasibility::Oom(_)), "asked for outright: {found:?}");
    }
}
