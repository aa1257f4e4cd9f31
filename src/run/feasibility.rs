//! Feasibility of a cell, checked before anything starts.

use super::GridContext;
use super::backend::backend;
use base::error::Result;
use base::text::counted;
use plan::{CommDType, ExpertLoad, Groups, ModelShape, Phase, Step, stage_problem};
use table::{Collective, Link, P2p, Spec, Status};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feasibility {
    Runs,
    /// Reason: TP does not divide the heads, or the backend lacks the all-reduce or a format.
    Skipped(String),
    Oom(String),
}

impl Feasibility {
    /// Status and reason of a cell that cannot run.
    pub fn obstacle(&self) -> Option<(Status, &str)> {
        match self {
            Self::Runs => None,
            Self::Skipped(reason) => Some((Status::Skipped, reason)),
            Self::Oom(reason) => Some((Status::Oom, reason)),
        }
    }
}

/// Checks a cell: TP must divide the model and the backend must support it. Returns an error if the model or hardware
/// profile cannot be read.
pub fn assess(spec: &Spec) -> Result<Feasibility> {
    assess_with(spec, &GridContext::default())
}

/// Like [`assess`] for one cell of many; reads models and profiles once.
pub fn assess_with(spec: &Spec, shared: &GridContext) -> Result<Feasibility> {
    let model = shared.simulator.model(&spec.model)?;
    let backend = backend(spec.backend)?;
    let problem = problem(spec, &model.shape)
        .or_else(|| backend.lacks_collective(spec.collective))
        .or_else(|| backend.lacks_format(spec.dtype, spec.kv_dtype))
        .or_else(|| backend.lacks_shape(&model.shape));
    match problem {
        Some(problem) => Ok(Feasibility::Skipped(problem)),
        None => backend.feasibility(spec, &model.shape, shared),
    }
}

/// Explains why no backend can run the cell, if so. The first problem counts.
pub fn problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    shape
        .tp_problem(spec.tp)
        .or_else(|| spec.architecture.model_problem(shape, spec.tp))
        .or_else(|| stage_problem(shape.layers, spec.pp))
        .or_else(|| micro_batch_problem(spec))
        .or_else(|| sharded_head_problem(spec, shape))
        .or_else(|| shape.expert_problem(spec.tp, spec.ep, spec.dp))
        .or_else(|| expert_load_problem(spec, shape))
        .or_else(|| dp_batch_problem(spec))
        .or_else(|| dp_attention_problem(spec, shape))
        .or_else(|| sequence_parallel_problem(spec, shape))
        .or_else(|| fused_dtype_problem(spec))
        .or_else(|| link_problem(spec))
}

/// Rejects counts of tokens that are not one per expert.
fn expert_load_problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    let (ExpertLoad::Counts(counts), Some(experts)) = (&spec.expert_load, &shape.experts) else {
        return None;
    };
    (counts.len() != experts.count as usize).then(|| {
        format!(
            "expert load {} has {} counts, and the model has {} experts; write one count per expert",
            spec.expert_load,
            counts.len(),
            experts.count
        )
    })
}

/// Rejects options that affect only all-reduces if attention is data-parallel: its experts exchange rows instead.
fn dp_attention_problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    if spec.dp <= 1 {
        return None;
    }
    let (what, remedy) = match spec.collective {
        _ if spec.architecture.changes_only_sums(shape.layers) => (
            spec.architecture.to_string(),
            "use standard, ladder, farskip, parallel, stale:S or upper-bound",
        ),
        Collective::Nccl if spec.sequence_parallel => {
            ("sequence parallelism".to_owned(), "leave it off")
        }
        Collective::Nccl => return None,
        collective => (format!("collective {collective}"), "use nccl"),
    };
    Some(format!(
        "{what} changes all-reduces, but with data-parallel attention (DP {}) experts exchange tokens instead; {remedy}",
        spec.dp
    ))
}

/// Rejects data parallelism with more ranks than sequences.
fn dp_batch_problem(spec: &Spec) -> Option<String> {
    let (option, sequences) = match spec.concurrency {
        0 => ("batch", spec.batch),
        concurrency => ("concurrency", concurrency),
    };
    let dp = spec.dp;
    (dp > sequences).then(|| {
        format!(
            "DP {dp} needs at least one sequence per rank, but {option} is {sequences}; set {option} to {dp} or more \
             (--{option} {dp})"
        )
    })
}

fn sharded_head_problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    let (tp, vocab) = (spec.tp.max(1), shape.vocab);
    (spec.shard_head && !vocab.is_multiple_of(tp))
        .then(|| format!("TP {tp} does not divide the vocabulary of {vocab} that a sharded head needs"))
}

fn link_problem(spec: &Spec) -> Option<String> {
    let (link, p2p) = (spec.link, spec.p2p);
    matches!((link, p2p), (Link::P2pOn, P2p::Off) | (Link::P2pOff, P2p::On))
        .then(|| format!("link {link} contradicts p2p {}; set only one of them", p2p.as_str()))
}

/// Rejects 8-bit messages in fused all-reduces: there are no measurements of them.
fn fused_dtype_problem(spec: &Spec) -> Option<String> {
    (spec.collective == Collective::Fused && spec.comm_dtype != CommDType::Activations)
        .then(|| format!("no fused all-reduce for {} messages; use another collective", spec.comm_dtype))
}

/// Explains why the residual cannot be scattered over the ranks: wrong architecture, or too few rows in a step.
fn sequence_parallel_problem(spec: &Spec, shape: &ModelShape) -> Option<String> {
    let Spec { tp, batch, prompt_tokens, output_tokens, .. } = *spec;
    if !spec.sequence_parallel || tp == 1 {
        return None;
    }
    if spec.collective == Collective::Fused {
        return Some("sequence parallelism has no all-reduce that could be fused".into());
    }
    // fewest rows of a group in a step
    let rows = |phase: Phase, step: Step| {
        let groups = Groups::new(phase, batch, spec.micro_batches);
        step.of_group(groups, groups.count - 1).rows()
    };
    let decode = (output_tokens > 1).then(|| rows(Phase::Decode, Step::decode(batch.into(), 1, 0)));
    let prefill = rows(Phase::Prefill, Step::prefill(batch.into(), prompt_tokens.into()));
    spec.architecture.scatter_problem(shape.layers).or_else(|| {
        let (step, rows, remedy) = match decode {
            Some(rows) if rows < tp.into() => (
                "a decode step",
                rows,
                "the batch must be at least TP (a prefill alone, output_tokens 1, shares the prompt's tokens)",
            ),
            _ => ("the prefill", prefill, "the prompt must be longer"),
        };
        (rows < tp.into())
            .then(|| format!("{step} has {rows} rows, which {tp} ranks cannot share; {remedy}"))
    })
}

/// Explains why the batch cannot be divided into the micro-batches: every group needs work in every step.
fn micro_batch_problem(spec: &Spec) -> Option<String> {
    let Spec { micro_batches, batch, prompt_tokens, output_tokens, .. } = *spec;
    if batch >= micro_batches {
        return None;
    }
    let sequences = counted(batch as usize, "sequence");
    if output_tokens > 1 {
        return Some(format!(
            "a decode step of {sequences} cannot be split into {micro_batches} micro-batches; the batch must be \
             at least {micro_batches} (a prefill alone, output_tokens 1, divides the prompt's tokens)"
        ));
    }
    (prompt_tokens < micro_batches).then(|| {
        format!(
            "{sequences} of {prompt_tokens} tokens cannot be split into {micro_batches} micro-batches"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::spec;
    use crate::testing::skip_reason;
    use model::Model;
    use plan::{DType, KvDType};
    use table::Backend;

    #[test]
    fn dp_attention_rejects_options_that_affect_only_all_reduces() {
        let plain = Spec { tp: 1, ep: 4, dp: 4, batch: 8, ..spec("standard", "tiny-moe") };
        let shape = Model::resolve("gpt-oss-20b").unwrap().shape;
        let of = |cell: Spec| problem(&cell, &shape);
        let named = |name: &str| Spec { architecture: name.parse().unwrap(), ..plain.clone() };
        for name in ["standard", "ladder", "farskip", "parallel", "stale:2", "upper-bound"] {
            assert_eq!(of(named(name)), None, "{name}");
        }
        for name in ["desync:2", "delayed:2", "sync-drop", "kraken", "tracks:4", "partial:0.5"] {
            let why = of(named(name)).unwrap();
            assert!(why.starts_with(&format!("{name} changes all-reduces")), "{why}");
        }
        let why = of(Spec { sequence_parallel: true, ..plain.clone() }).unwrap();
        assert!(why.starts_with("sequence parallelism changes all-reduces"), "{why}");
        let why = of(Spec { collective: Collective::OneShot, ..plain.clone() }).unwrap();
        assert!(
            why.contains("collective one-shot changes all-reduces") && why.contains("DP 4"),
            "{why}"
        );
        let load = |text: &str| Spec { expert_load: text.parse().unwrap(), ..plain.clone() };
        let why = of(load("counts:1+2")).unwrap();
        assert!(why.contains("has 2 counts, and the model has 32 experts"), "{why}");
        assert_eq!(of(load(&format!("counts:{}", vec!["3"; 32].join("+")))), None);
    }

    #[test]
    fn a_batch_that_cannot_be_divided_is_skipped_with_the_arithmetic() {
        let cell = |batch, output_tokens, prompt_tokens, micro_batches| {
            let plain = spec("standard", "tiny");
            let cell = Spec { batch, output_tokens, prompt_tokens, micro_batches, ..plain };
            skip_reason(&cell)
        };
        assert_eq!(cell(2, 8, 8, 2), "Runs");
        assert!(cell(1, 8, 8, 2).starts_with("a decode step of 1 sequence cannot be split into 2"));
        // a prefill alone divides its tokens, where there are enough
        assert_eq!(cell(1, 1, 8, 4), "Runs");
        assert_eq!(cell(3, 1, 3, 4), "3 sequences of 3 tokens cannot be split into 4 micro-batches");
    }

    #[test]
    fn data_parallel_ranks_without_a_sequence_name_the_option() {
        let shape = Model::resolve("gpt-oss-120b").unwrap().shape;
        let cell = |batch, concurrency| {
            let plain = spec("standard", "gpt-oss-120b");
            problem(&Spec { tp: 1, ep: 8, dp: 8, batch, concurrency, ..plain }, &shape)
        };
        assert!(cell(1, 0).unwrap().ends_with("batch is 1; set batch to 8 or more (--batch 8)"));
        assert!(cell(8, 4).unwrap().contains("concurrency is 4; set concurrency to 8"));
        assert_eq!(cell(8, 0), None);
    }

    #[test]
    fn unsupported_formats_are_skipped_by_name_and_sim_has_all() {
        let cell =
            |backend, dtype, kv_dtype| Spec { backend, dtype, kv_dtype, ..spec("standard", "tiny") };
        for (backend, name) in [(Backend::Cpu, "cpu"), (Backend::Cuda, "cuda")] {
            for dtype in [DType::Fp8Block, DType::Nvfp4] {
                let why = skip_reason(&cell(backend, dtype, KvDType::Activations));
                assert!(why.starts_with(&format!("the {name} backend has no {dtype} weights")), "{why}");
            }
            let why = skip_reason(&cell(backend, DType::F32, KvDType::Fp8));
            assert_eq!(why, format!("the {name} backend has no fp8 KV cache; sim predicts this cell"));
        }
        let mxfp4 = cell(Backend::Cuda, DType::Mxfp4, KvDType::Activations);
        assert!(matches!(assess(&mxfp4).unwrap(), Feasibility::Skipped(_)));
        // 160 columns of the MLP
        let packed = |tp| Spec { tp, ..cell(Backend::Cpu, DType::Mxfp4, KvDType::Activations) };
        assert_eq!(assess(&packed(1)).unwrap(), Feasibility::Runs);
        assert!(skip_reason(&packed(2)).contains("80 mod 32 = 16"));
        for dtype in DType::ALL {
            for kv in KvDType::ALL {
                assert_eq!(skip_reason(&cell(Backend::Sim, dtype, kv)), "Runs", "{dtype} {kv}");
            }
        }
    }

    /// Smaller weights and caches fit where bf16 does not.
    #[test]
    fn memory_follows_the_formats_of_weights_and_cache() {
        let shared = GridContext::default();
        let need = |dtype, kv_dtype| {
            let cell = Spec { tp: 2, batch: 64, dtype, kv_dtype, ..spec("standard", "llama-3-70b") };
            let shape = shared.simulator.model(&cell.model).unwrap().shape.clone();
            let fits = assess_with(&cell, &shared).unwrap() == Feasibility::Runs;
            (backend(Backend::Sim).unwrap().memory(&cell, &shape, &shared), fits)
        };
        let plain = KvDType::Activations;
        let (wide, fits) = need(DType::Bf16, plain);
        assert!(!fits, "{}", wide.arithmetic());
        let (h, v) = (8192_u64, 128_256_u64);
        let numbers = (h * h + 2 * h * 1024 + h * h + 3 * h * 28672) / 2;
        for (dtype, layer) in [
            (DType::Fp8Block, numbers + 4 * numbers / (128 * 128)),
            // of qkv, output, gate and up, down one more scale each
            (DType::Nvfp4, numbers / 2 + numbers / 16 + 4 * 4),
            (DType::Mxfp4, numbers / 2 + numbers / 32),
        ] {
            let (need, fits) = need(dtype, plain);
            assert_eq!(need.weights, 80 * (layer + 4 * h) + 2 * (2 * v * h + h), "{dtype}");
            assert!(fits && need.kv == wide.kv, "{dtype}: {}", need.arithmetic());
        }
        assert_eq!(2 * need(DType::Bf16, KvDType::Fp8).0.kv, wide.kv);
    }

    #[test]
    fn a_link_and_p2p_that_contradict_each_other_are_skipped() {
        let shape = Model::resolve("tiny").unwrap().shape;
        let cell = |link, p2p| problem(&Spec { link, p2p, ..spec("standard", "tiny") }, &shape);
        for (link, p2p) in [(Link::P2pOn, P2p::On), (Link::P2pOff, P2p::Off), (Link::Native, P2p::Off)] {
            assert_eq!(cell(link, p2p), None);
        }
        let why = cell(Link::P2pOff, P2p::On).unwrap();
        assert!(why.starts_with("link p2p-off contradicts p2p on"), "{why}");
        assert!(cell(Link::P2pOn, P2p::Off).is_some());
    }

    #[test]
    fn a_residual_that_cannot_be_scattered_is_skipped_with_the_reason() {
        let cell = |architecture: &str, batch, output_tokens, micro_batches| {
            let plain = spec(architecture, "tiny");
            let cell =
                Spec { tp: 4, sequence_parallel: true, batch, output_tokens, micro_batches, ..plain };
            skip_reason(&cell)
        };
        // a prefill alone shares the prompt's tokens
        for (batch, output_tokens, micro_batches) in [(4, 8, 1), (8, 8, 2), (1, 1, 1)] {
            assert_eq!(cell("ladder", batch, output_tokens, micro_batches), "Runs");
        }
        assert!(
            cell("ladder", 3, 8, 1).starts_with("a decode step has 3 rows, which 4 ranks cannot share")
        );
        // a group must have rows for every rank
        assert!(cell("ladder", 7, 8, 2).starts_with("a decode step has 3 rows"));
        assert!(cell("desync:2", 4, 8, 1).contains("the ranks of desync:2 have residuals of their own"));
        assert!(cell("upper-bound", 4, 8, 1).contains("has no all-reduce"));
    }
}
