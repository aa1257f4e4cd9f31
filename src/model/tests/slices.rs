//! Slices of a TP: whatever the number of ranks, together they hold the same model.

use safetensors::Dtype;

use super::{
    CONFIG, LOADED, model_dir, numbers, resolve, safetensors, stored, weight_of, weight_of_all,
};
use crate::{Matrix, Model, WeightSource};
use plan::{
    Architecture, DType, ModelShape, Phase, Plan, PlanSpec, Precision, Shard, Tensor, WeightPart,
};

/// A checkpoint's source and a random one, both of the same small shape (KV heads 2: up to TP 2).
fn sources() -> (tempfile::TempDir, Model, [WeightSource; 2]) {
    let dir = model_dir(CONFIG);
    let model = resolve(dir.path()).expect("valid");
    let random = WeightSource::open(&model, 11).expect("random");
    let bytes = safetensors(&stored(&model.shape, Dtype::BF16));
    std::fs::write(dir.path().join("model.safetensors"), bytes).expect("write");
    let model = resolve(dir.path()).expect("valid");
    let checkpoint = WeightSource::open(&model, 11).expect("opens");
    (dir, model, [checkpoint, random])
}

fn load(
    source: &WeightSource,
    shape: &ModelShape,
    tensor: Tensor,
    shard: Shard,
    rank: u32,
    tp: u32,
) -> Matrix {
    source.load(&weight_of(tensor, shard, shape, tp), rank, tp, DType::F32).expect("loads")
}

#[test]
fn ranks_together_hold_the_whole() {
    let (_dir, model, sources) = sources();
    let shape = &model.shape;
    for source in &sources {
        for tensor in Tensor::all(shape) {
            let whole = load(source, shape, tensor, Shard::Whole, 0, 1);
            for tp in [1, 2, 4] {
                let (rows, columns) = tensor.dimensions(shape);
                if rows.is_multiple_of(tp) {
                    // more ranks than KV heads hold copies
                    let part = WeightPart { tensor, shard: Shard::Rows };
                    let first = |rank| part.slice(shape, rank, tp).0.start;
                    let joined: Vec<f32> = (0..tp)
                        .filter(|rank| *rank == 0 || first(*rank) != first(rank - 1))
                        .flat_map(|rank| numbers(&load(source, shape, tensor, Shard::Rows, rank, tp)))
                        .collect();
                    assert_eq!(joined, numbers(&whole), "rows of {tensor:?}, TP {tp}");
                }
                let ranks: Vec<Vec<f32>> = (0..tp)
                    .map(|rank| numbers(&load(source, shape, tensor, Shard::Columns, rank, tp)))
                    .collect();
                let each = (columns / tp) as usize;
                let joined: Vec<f32> = (0..rows as usize)
                    .flat_map(|row| ranks.iter().flat_map(move |r| &r[row * each..(row + 1) * each]))
                    .copied()
                    .collect();
                assert_eq!(joined, numbers(&whole), "columns of {tensor:?}, TP {tp}");
            }
        }
    }
}

#[test]
fn a_fused_weight_is_its_parts_one_below_the_other() {
    let (_dir, model, sources) = sources();
    let shape = &model.shape;
    let parts = [Tensor::Query(1), Tensor::Key(1), Tensor::Value(1), Tensor::Gate(1), Tensor::Up(1)];
    let weight = weight_of_all(&parts, Shard::Rows, shape, 2);
    for source in &sources {
        for rank in 0..2 {
            let fused = source.load(&weight, rank, 2, DType::F32).expect("loads");
            let joined: Vec<f32> = parts
                .iter()
                .flat_map(|part| numbers(&load(source, shape, *part, Shard::Rows, rank, 2)))
                .collect();
            assert_eq!(numbers(&fused), joined);
            assert_eq!((fused.outputs, fused.inputs), ((8 + 4 + 4 + 12 + 12) / 2, 8));
        }
    }
}

#[test]
fn pieces_put_together_are_the_whole_in_every_format() {
    let (_dir, model, sources) = sources();
    let parts = [Tensor::Query(1), Tensor::Key(1), Tensor::Value(1), Tensor::Gate(1), Tensor::Up(1)];
    let fused = weight_of_all(&parts, Shard::Rows, &model.shape, 2);
    let columns = weight_of(Tensor::Down(0), Shard::Columns, &model.shape, 2);
    for (source, weight) in sources.iter().flat_map(|s| [(s, &fused), (s, &columns)]) {
        let rows = weight.outputs as usize;
        let exact = numbers(&source.load(weight, 1, 2, DType::F32).expect("loads"));
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for each in [1, 3, rows, rows + 1] {
                let pieces: Vec<u8> = (0..rows)
                    .step_by(each)
                    .flat_map(|first| {
                        let rows = first..(first + each).min(rows);
                        source.bytes(weight, 1, 2, dtype, rows).expect("loads")
                    })
                    .collect();
                let wanted: Vec<u8> = exact
                    .iter()
                    .flat_map(|x| match dtype {
                        DType::F32 => x.to_ne_bytes().to_vec(),
                        DType::Bf16 => half::bf16::from_f32(*x).to_ne_bytes().to_vec(),
                        DType::F16 => half::f16::from_f32(*x).to_ne_bytes().to_vec(),
                        _ => unreachable!("below"),
                    })
                    .collect();
                assert!(pieces == wanted, "{} in pieces of {each} rows as {dtype}", weight.name);
            }
        }
        assert!(source.bytes(weight, 1, 2, DType::F16, 1..rows + 1).is_err());
        // fp8 has scales beside its bytes
        assert!(source.bytes(weight, 1, 2, DType::Fp8, 0..rows).is_err());
        let whole = source.fp8(weight, 1, 2, 0..rows).expect("loads");
        for each in [1, 3, rows] {
            let pieces = (0..rows).step_by(each).map(|first| first..(first + each).min(rows));
            let pieces: Vec<_> =
                pieces.map(|rows| source.fp8(weight, 1, 2, rows).expect("loads")).collect();
            let bits: Vec<u8> = pieces.iter().flat_map(|piece| piece.bits.clone()).collect();
            let scales: Vec<f32> = pieces.iter().flat_map(|piece| piece.scales.clone()).collect();
            assert!(bits == whole.bits && scales == whole.scales, "{} by {each} rows", weight.name);
        }
    }
}

/// Every weight of a real plan loads, with the dimensions that the plan says.
#[test]
fn plans_of_every_tp_load() {
    let model = Model::resolve("tiny").expect("built in");
    let source = WeightSource::open(&model, 1).expect("random");
    for architecture in [Architecture::Standard, Architecture::Parallel] {
        for tp in [1, 2, 4] {
            let spec = PlanSpec {
                shape: model.shape.clone(),
                architecture: architecture.clone(),
                tp,
                phase: Phase::Decode,
                precision: Precision::uniform(DType::Bf16),
                lowering: plan::Lowering::default(),
                variant: plan::Variant::default(),
                batch: 1,
                pp: 1,
            };
            let plan = Plan::new(&spec).expect("a plan");
            for weight in &plan.weights {
                for dtype in LOADED {
                    let matrix = source.load(weight, tp - 1, tp, dtype).expect("loads");
                    assert_eq!(numbers(&matrix).len() as u32, weight.outputs * weight.inputs);
                }
            }
        }
    }
}

/// The numbers are part of what a record means: a seed must name the same model in every version.
#[test]
fn the_numbers_of_a_seed_never_change() {
    let model = Model::resolve("tiny").expect("built in");
    let source = WeightSource::open(&model, 0).expect("random");
    let first = |tensor| numbers(&load(&source, &model.shape, tensor, Shard::Whole, 0, 1))[..3].to_vec();
    // worked out apart from this program, from the description in `random`
    assert_eq!(first(Tensor::Embedding), [0.079_814_25, -0.225_462_48, 0.234_673_16]);
    assert_eq!(first(Tensor::Down(3)), [0.047_413_774, 0.037_015_572, -0.041_662_8]);
}

#[test]
fn what_cannot_be_loaded_is_refused() {
    let (_dir, model, sources) = sources();
    let weight = weight_of(Tensor::Gate(0), Shard::Rows, &model.shape, 2);
    for source in &sources {
        let f16 = source.load(&weight, 0, 2, DType::F16).expect_err("f16");
        assert_eq!(f16.exit_code(), 2);
        // these are faults of the caller, not of the user
        assert_eq!(source.load(&weight, 2, 2, DType::F32).expect_err("rank").exit_code(), 1);
        assert_eq!(source.load(&weight, 0, 1, DType::F32).expect_err("other TP").exit_code(), 1);
    }
    let [checkpoint, _] = &sources;
    let beyond = weight_of(Tensor::Gate(9), Shard::Rows, &model.shape, 2);
    let message = checkpoint.load(&beyond, 0, 2, DType::F32).expect_err("layer 9 of 2").to_string();
    assert!(message.contains("model.layers.9.mlp.gate_proj.weight"), "{message}");
}

/// The numbers of a rank's slice that fp8 stands for.
fn fp8(
    source: &WeightSource,
    shape: &ModelShape,
    tensor: Tensor,
    shard: Shard,
    rank: u32,
    tp: u32,
) -> Vec<f32> {
    let weight = weight_of(tensor, shard, shape, tp);
    numbers(&source.load(&weight, rank, tp, DType::Fp8).expect("loads"))
}

/// A scale is of the whole tensor's row, whichever columns of it a rank has.
#[test]
fn ranks_together_hold_the_same_fp8_numbers_at_every_tp() {
    let (_dir, model, sources) = sources();
    let shape = &model.shape;
    for source in &sources {
        let tensors = Tensor::all(shape).into_iter();
        for tensor in
            tensors.filter(|tensor| weight_of(*tensor, Shard::Whole, shape, 1).is_quantized(shape))
        {
            let whole = fp8(source, shape, tensor, Shard::Whole, 0, 1);
            let exact = numbers(&load(source, shape, tensor, Shard::Whole, 0, 1));
            let (rows, columns) = tensor.dimensions(shape);
            for (row, exact) in whole.chunks(columns as usize).zip(exact.chunks(columns as usize)) {
                let largest = exact.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                for (x, exact) in row.iter().zip(exact) {
                    let most = (exact.abs() / 16.0).max(largest / 448.0 / 1024.0) * 1.0001;
                    assert!((x - exact).abs() <= most, "{tensor:?}: {x} for {exact}");
                }
                assert!(row.iter().any(|x| (x.abs() - largest).abs() <= 1e-6 * largest), "{tensor:?}");
            }
            let ranks = |shard| [0, 1].map(|rank| fp8(source, shape, tensor, shard, rank, 2));
            assert_eq!(ranks(Shard::Rows).concat(), whole, "rows of {tensor:?}");
            let (each, halves) = (columns as usize / 2, ranks(Shard::Columns));
            let joined = (0..rows as usize)
                .flat_map(|row| halves.iter().flat_map(move |half| &half[row * each..(row + 1) * each]));
            assert!(joined.eq(&whole), "columns of {tensor:?}");
        }
    }
}

#[test]
fn fp8_leaves_embedding_norms_and_a_tied_head_as_they_are() {
    let (_dir, model, sources) = sources();
    let tied = ModelShape { tied_embeddings: true, ..model.shape.clone() };
    let quantized = |shape: &ModelShape| -> Vec<Tensor> {
        let is = |tensor: &Tensor| weight_of(*tensor, Shard::Whole, shape, 1).is_quantized(shape);
        Tensor::all(shape).into_iter().filter(is).collect()
    };
    let own_head = ModelShape { tied_embeddings: false, ..model.shape.clone() };
    let layers = model.shape.layers as usize;
    assert_eq!((quantized(&tied).len(), quantized(&own_head).len()), (7 * layers, 7 * layers + 1));
    for source in &sources {
        for tensor in [Tensor::Embedding, Tensor::InputNorm(0), Tensor::FinalNorm] {
            let exact = numbers(&load(source, &model.shape, tensor, Shard::Whole, 0, 1));
            assert_eq!(fp8(source, &model.shape, tensor, Shard::Whole, 0, 1), exact, "{tensor:?}");
        }
    }
}
