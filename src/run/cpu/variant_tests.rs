//! What options change in a plan must not change its numbers, or as little as they say.

use super::attention::{RowRun, StepRows};
use super::engine::{self, CpuSetup, Worker};
use super::rank::{BoundProgram, Rank};
use crate::comm::RankFailure;
use crate::recorder::StepPlace;
use model::Model;
use plan::testing::ARCHITECTURES;
use plan::{CommDType, DType, Phase, Plan, Precision, SCALED_TOGETHER, Variant};
use table::Spec;

const PROMPT: usize = 7;
const STEPS: usize = 3;

/// The logits of a row, by its sequence and its position.
type Logits = Vec<((usize, usize), Vec<f32>)>;

/// One step; the logits of its rows in the order of sequences and positions, and the next tokens.
fn step(
    rank: &mut Rank,
    bound: &mut BoundProgram<'_>,
    rows: &StepRows,
    tokens: &[u32],
) -> Result<(Logits, Vec<u32>), RankFailure> {
    let place = StepPlace::default();
    let next = rank.step(bound, place, rows, tokens)?;
    let plan = &bound.program.plan;
    let mut logits = Vec::new();
    for (part, value) in rows.parts(plan.groups, tokens).iter().zip(&plan.logits) {
        let columns = plan.values[value.index()].columns as usize;
        let places = part
            .rows
            .runs
            .iter()
            .flat_map(|run| (0..run.count).map(move |at| (run.sequence, run.position + at)));
        logits.extend(places.zip(bound.value(*value).chunks(columns).map(<[f32]>::to_vec)));
    }
    logits.sort_by_key(|(place, _)| *place);
    Ok((logits, next))
}

/// Logits of every position of `batch` prompts and of the decode steps after them, as rank 0 has them. Tokens
/// are given, so that a rounding decides nothing but itself.
fn logits(architecture: &str, tp: u32, batch: usize, variant: Variant) -> Logits {
    logits_with(architecture, tp, batch, variant, 1, false)
}

/// The same with so many threads a rank, and with a head that the ranks divide.
fn logits_with(
    architecture: &str,
    tp: u32,
    batch: usize,
    variant: Variant,
    threads: u32,
    shard_head: bool,
) -> Logits {
    let model = Model::resolve("tiny").unwrap();
    let architecture = architecture.parse().unwrap();
    let setup = CpuSetup {
        threads,
        shard_head,
        sequences: batch,
        all_logits: true,
        variant,
        prefill_variant: variant,
        ..CpuSetup::new(&model, &architecture, (DType::F32, tp, 3), PROMPT + STEPS)
    };
    let token = |sequence: usize, at: usize| (sequence * 31 + at * 17 + 5) as u32 % 256;
    let body = |worker: &mut Worker<'_>, _: &crossbeam_channel::Sender<()>| {
        let runs = |position, count| StepRows {
            runs: (0..batch).map(|sequence| RowRun { sequence, position, count }).collect(),
        };
        let prompts: Vec<u32> =
            (0..batch).flat_map(|s| (0..PROMPT).map(move |at| token(s, at))).collect();
        let (mut all, next) = step(&mut worker.rank, &mut worker.prefill, &runs(0, PROMPT), &prompts)?;
        assert_eq!(next.len(), batch, "a token for each sequence");
        // a batch that is smaller than the number of groups has no decode steps
        let steps = if batch < variant.micro_batches as usize { 0 } else { STEPS };
        for at in PROMPT..PROMPT + steps {
            let tokens: Vec<u32> = (0..batch).map(|sequence| token(sequence, at)).collect();
            let (logits, next) = step(&mut worker.rank, &mut worker.decode, &runs(at, 1), &tokens)?;
            assert_eq!(next.len(), batch);
            all.extend(logits);
        }
        Ok(all)
    };
    let shared = engine::prepare(&setup).unwrap();
    let loaded = shared.weights(&setup).unwrap();
    let mut ranks = engine::run_ranks(&setup, &shared, &loaded, body, &|_| (), |_| Ok(())).unwrap();
    ranks.swap_remove(0)
}

fn farthest(a: &Logits, b: &Logits) -> f32 {
    a.iter()
        .zip(b)
        .flat_map(|((_, a), (_, b))| a.iter().zip(b).map(|(a, b)| (a - b).abs()))
        .fold(0.0, f32::max)
}

#[test]
fn micro_batches_change_no_logits() {
    for architecture in ARCHITECTURES {
        for tp in [1, 2, 4] {
            for (batch, groups) in [(4, 2), (5, 3), (1, 2), (2, 3)] {
                let whole = logits(architecture, tp, batch, Variant::default());
                let variant = Variant { micro_batches: groups, ..Variant::default() };
                let divided = logits(architecture, tp, batch, variant);
                let places =
                    |logits: &Logits| logits.iter().map(|(place, _)| *place).collect::<Vec<_>>();
                assert_eq!(places(&divided), places(&whole)[..divided.len()]);
                let off = farthest(&divided, &whole);
                assert!(off < 1e-4, "{architecture} tp{tp} {batch} in {groups}: {off}");
            }
        }
    }
}

/// Neither threads of a rank nor a head that ranks divide change what is computed; a divided head gives every rank
/// all of the logits, of several rows too.
#[test]
fn threads_and_a_sharded_head_change_no_logits() {
    for architecture in ["standard", "ladder", "desync:2"] {
        let whole = logits(architecture, 1, 3, Variant::default());
        for (tp, threads, shard_head) in [(1, 2, false), (2, 1, true), (2, 2, false), (4, 1, true)] {
            if architecture == "desync:2" && tp > 1 {
                continue; // more ranks compute something else
            }
            let found = logits_with(architecture, tp, 3, Variant::default(), threads, shard_head);
            let widths = |logits: &Logits| logits.iter().map(|(_, row)| row.len()).collect::<Vec<_>>();
            assert_eq!(widths(&found), widths(&whole));
            let off = farthest(&found, &whole);
            assert!(off < 1e-4, "{architecture} tp{tp} {threads} threads, {shard_head}: {off}");
        }
    }
}

#[test]
fn a_scattered_residual_changes_no_logits() {
    for architecture in ["standard", "ladder", "ladder:[0]", "parallel", "parallel+ladder", "stale:2"] {
        for tp in [1, 2, 4] {
            // shares of unlike size, a rank without rows in decode, and groups of shares
            for (batch, micro_batches) in [(4, 1), (5, 1), (5, 2)] {
                let variant = Variant { micro_batches, ..Variant::default() };
                let whole = logits(architecture, tp, batch, variant);
                let scattered = Variant { sequence_parallel: true, ..variant };
                let off = farthest(&logits(architecture, tp, batch, scattered), &whole);
                assert!(off < 1e-5, "{architecture} tp{tp} {batch} in {micro_batches}: {off}");
            }
        }
    }
    // messages in 8 bits are scattered as they are reduced
    let of = |sequence_parallel| Variant {
        comm_dtype: CommDType::Int8,
        sequence_parallel,
        ..Variant::default()
    };
    let off = farthest(&logits("standard", 4, 5, of(true)), &logits("standard", 4, 5, of(false)));
    assert!(off < 1e-5, "{off}");
}

/// What is paid for on an emulated link is the plan's message, not the f32 in which the cpu holds it.
#[test]
fn the_link_counts_the_bytes_of_the_format() {
    let model = Model::resolve("tiny").unwrap();
    let message = |comm_dtype: CommDType| {
        let spec = Spec { tp: 2, batch: 3, comm_dtype, ..Spec::default() };
        let lowering = plan::Lowering::default();
        let plan = spec.plan(&model.shape, Phase::Decode, Precision::cpu(DType::F32), lowering);
        let plan = Plan::new(&plan).unwrap();
        let reduce = &plan.operations[plan.find("L0/attn/all_reduce").unwrap().index()];
        let rows = StepRows {
            runs: (0..3).map(|sequence| RowRun { sequence, position: 9, count: 1 }).collect(),
        };
        rows.parts(plan.groups, &[1, 2, 3])[0].bytes(&reduce.cost.message_bytes)
    };
    let numbers = 3 * u64::from(model.shape.hidden);
    assert_eq!(message(CommDType::Activations), 4 * numbers);
    let scales = 3 * u64::from(model.shape.hidden.div_ceil(SCALED_TOGETHER));
    assert_eq!(message(CommDType::Int8), numbers + 4 * scales);
}

#[test]
fn messages_in_8_bits_are_close_and_not_the_same() {
    let plain = logits("standard", 2, 2, Variant::default());
    let most = plain.iter().flat_map(|(_, row)| row).fold(0.0_f32, |most, x| most.max(x.abs()));
    for architecture in ["standard", "ladder", "delayed:2", "desync:2"] {
        let plain = logits(architecture, 2, 2, Variant::default());
        for (comm_dtype, close) in [(CommDType::Int8, 0.02), (CommDType::F8, 0.08)] {
            let variant = Variant { comm_dtype, ..Variant::default() };
            let off = farthest(&logits(architecture, 2, 2, variant), &plain);
            assert!(off > 0.0 && off < close * most, "{architecture} {comm_dtype}: {off} of {most}");
        }
    }
    // one rank sends nothing
    let one = Variant { comm_dtype: CommDType::F8, ..Variant::default() };
    assert_eq!(logits("standard", 1, 2, one), logits("standard", 1, 2, Variant::default()));
}
