//! Checks of `random_fill`: the same bits as the host's random weights.

use super::{Bench, DTYPES, checks};
use model::{Model, WeightSource};
use plan::{ModelShape, Shard, Tensor, Weight, WeightPart};
use run::testing::cuda::geometry;

checks!(random_weights_are_the_hosts, slices_that_begin_within_a_pair_are_the_hosts);

/// Fills one part of a weight as a rank would, and compares it with the host's bytes.
fn one(bench: &mut Bench<'_>, model: &Model, tensor: Tensor, shard: Shard, rank: u32, tp: u32) {
    let shape: &ModelShape = &model.shape;
    let part = WeightPart { tensor, shard };
    let (rows, columns) = part.slice(shape, rank, tp);
    let weight = Weight {
        name: format!("{tensor:?}"),
        outputs: rows.len() as u32,
        inputs: columns.len() as u32,
        parts: vec![part],
    };
    let source = WeightSource::open(model, 42).expect("random weights");
    let stream = source.random_stream(tensor).expect("no checkpoint");
    let dtype = bench.dtype();
    bench.start(dtype);
    let out = bench.output_numbers(rows.len() * columns.len());
    let width = tensor.dimensions(shape).1;
    let arguments = [
        out.into(),
        stream.key.into(),
        stream.mean.into(),
        stream.step.into(),
        u32::from(stream.signs).into(),
        (rows.start as u64 * u64::from(width) + columns.start as u64).into(),
        u64::from(width).into(),
        (columns.len() as u32).into(),
        (rows.len() as u64).into(),
    ];
    bench.launch("random_fill", &geometry::elements((rows.len() * columns.len()) as u64, 2), &arguments);
    let want = source.bytes(&weight, rank, tp, dtype, 0..rows.len()).expect("made on the host");
    assert!(bench.read::<u8>(out) == want, "{tensor:?}, {shard:?}, rank {rank} of {tp}, {dtype}");
}

fn random_weights_are_the_hosts(bench: &mut Bench<'_>) {
    let model = Model::resolve("tiny").expect("built in");
    for dtype in DTYPES {
        bench.start(dtype);
        for tensor in [Tensor::Embedding, Tensor::Query(1), Tensor::Down(2), Tensor::FinalNorm] {
            one(bench, &model, tensor, Shard::Whole, 0, 1);
        }
        for rank in [0, 1] {
            one(bench, &model, Tensor::Gate(0), Shard::Rows, rank, 2);
            one(bench, &model, Tensor::Down(0), Shard::Columns, rank, 2);
        }
        // a tied head: the final norm's signs
        let tied = Model::resolve("stories-110m").expect("built in");
        assert!(tied.shape.tied_embeddings);
        one(bench, &tied, Tensor::FinalNorm, Shard::Whole, 0, 1);
    }
}

fn slices_that_begin_within_a_pair_are_the_hosts(bench: &mut Bench<'_>) {
    let mut model = Model::resolve("tiny").expect("built in");
    model.shape.intermediate = 3 * 37;
    for dtype in DTYPES {
        bench.start(dtype);
        for rank in 0..3 {
            one(bench, &model, Tensor::Down(0), Shard::Columns, rank, 3);
            one(bench, &model, Tensor::Up(0), Shard::Rows, rank, 3);
        }
    }
}
