//! Checks of `rope_append`, and of what is done to heads before it.

use super::{Bench, DTYPES, assert_close, checks, random};
use model::Model;
use plan::ModelShape;
use run::testing::cpu::{
    HeadPreprocessing, Heads, KvCache, PositionEncoding, Projected, RopeTable, RowRun, StepRows,
};
use run::testing::cuda::geometry;

checks!(
    rope_rotates_and_appends_as_the_cpu_backend_does,
    biases_and_norms_of_heads_are_the_cpu_backends,
);

const CAPACITY: usize = 40;

fn shape(head_dim: u32) -> ModelShape {
    let mut shape = Model::resolve("tiny").expect("built in").shape;
    shape.head_dim = head_dim;
    shape
}

fn rope_rotates_and_appends_as_the_cpu_backend_does(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for head_dim in [8, 64, 72, 112, 128] {
            for (heads, kv_heads) in [(1, 1), (8, 2), (6, 6)] {
                let heads = Heads { query: heads, kv: kv_heads, dim: head_dim };
                // sequences at several positions, one new token or several
                for (positions, tokens) in [(vec![0], 1), (vec![38, 0, 7], 1), (vec![3, 0], 5)] {
                    one(bench, dtype, heads, &positions, tokens, 0);
                }
            }
        }
        // more numbers after q, k and v, as some fused projections have; rows that do not begin on 16 bytes
        one(bench, dtype, Heads { query: 2, kv: 1, dim: 64 }, &[5, 6], 2, 24);
        one(bench, dtype, Heads { query: 2, kv: 1, dim: 64 }, &[5, 6], 2, 3);
    }
}

fn one(
    bench: &mut Bench<'_>,
    dtype: plan::DType,
    heads: Heads,
    positions: &[u32],
    tokens: usize,
    extra: usize,
) {
    let Heads { query, kv, dim } = heads;
    let shape = shape(dim as u32);
    bench.start(dtype);
    bench.options.head_dim = dim as u32;
    let (sequences, rows) = (positions.len(), positions.len() * tokens);
    let stride = (query + 2 * kv) * dim + extra;
    let qkv = bench.numbers(&random(dim as u64, rows * stride));
    let q = bench.output_numbers(rows * query * dim);
    // what the cache holds besides the new tokens stays
    let held = random(77, sequences * kv * CAPACITY * dim);
    let (keys, values) = (bench.numbers_to_change(&held), bench.numbers_to_change(&held));
    let held = bench.read_numbers(keys);
    let rope = RopeTable::new(&shape, CAPACITY);
    let table = bench.input(&rope.pairs());
    let position_handle = bench.input(positions);
    let arguments = [
        qkv.into(),
        q.into(),
        keys.into(),
        values.into(),
        position_handle.into(),
        table.into(),
        (stride as u32).into(),
        (query as u32).into(),
        (kv as u32).into(),
        (tokens as u32).into(),
        0_u32.into(),
        (CAPACITY as u32).into(),
    ];
    let geometry = geometry::rope_append(rows as u32, query as u32, kv as u32, dim as u32);
    bench.launch("rope_append", &geometry, &arguments);

    let mut cache = KvCache::new(heads, 1, sequences, CAPACITY);
    let mut queries = vec![0.0; rows * query * dim];
    let runs = positions.iter().enumerate().map(|(sequence, position)| RowRun {
        sequence,
        position: *position as usize,
        count: tokens,
    });
    let step = StepRows { runs: runs.collect() };
    let x = bench.read_numbers(qkv);
    let projected = Projected { x: &x, columns: stride, before: HeadPreprocessing::Nothing };
    cache.append(0, &step, PositionEncoding::Rope(&rope), projected, &mut queries);
    let what = format!("{heads:?} at {positions:?}, {tokens} tokens, {extra} more");
    assert_close(&what, dtype, &bench.read_numbers(q), &queries);
    let (mut want_keys, mut want_values) = (held.clone(), held);
    let (new_keys, new_values) = cache.layer(0);
    for run in &step.runs {
        for head in 0..kv {
            let at = ((run.sequence * kv + head) * CAPACITY + run.position) * dim;
            let appended = at..at + run.count * dim;
            want_keys[appended.clone()].copy_from_slice(&new_keys[appended.clone()]);
            want_values[appended.clone()].copy_from_slice(&new_values[appended]);
        }
    }
    assert_close(&what, dtype, &bench.read_numbers(keys), &want_keys);
    assert_eq!(bench.read_numbers(values), want_values, "{what}, {dtype}");
}

/// At position 0 nothing is rotated: what the cpu backend appends there is what was done to the heads before.
fn biases_and_norms_of_heads_are_the_cpu_backends(bench: &mut Bench<'_>) {
    const EPS: f32 = 1e-6;
    for dtype in DTYPES {
        for (query, kv, dim, extra) in [(1, 1, 8, 0), (8, 2, 64, 5), (3, 3, 72, 24), (5, 1, 128, 3)] {
            for normed in [false, true] {
                let heads = Heads { query, kv, dim };
                bench.start(dtype);
                bench.options.head_dim = dim as u32;
                let (rows, columns) = (3, (query + 2 * kv) * dim);
                let stride = columns + extra;
                let before = random(1, rows * stride);
                let qkv = bench.numbers_to_change(&before);
                let weight = bench.numbers(&random(2, if normed { 2 * dim } else { columns }));
                let (x, weights) = (bench.read_numbers(qkv), bench.read_numbers(weight));
                let number = |n: usize| n as u32;
                let shared = [qkv.into(), weight.into(), number(stride).into()];
                if normed {
                    let geometry = geometry::norm_heads(number(rows), number(query + kv));
                    let own = [number(query).into(), number(kv).into(), EPS.into()];
                    bench.launch("norm_heads", &geometry, &[shared, own].concat());
                } else {
                    let geometry = geometry::bias_heads(number(rows), number(columns));
                    let own = [number(columns).into()];
                    bench.launch("bias_heads", &geometry, &[&shared[..], &own].concat());
                }
                let before = if normed {
                    HeadPreprocessing::Norm(&weights, EPS)
                } else {
                    HeadPreprocessing::Bias(&weights)
                };
                let shape = shape(number(dim));
                let mut cache = KvCache::new(heads, 1, rows, 1);
                let runs = (0..rows).map(|sequence| RowRun { sequence, position: 0, count: 1 });
                let mut queries = vec![0.0; rows * query * dim];
                let step = StepRows { runs: runs.collect() };
                let projected = Projected { x: &x, columns: stride, before };
                cache.append(
                    0,
                    &step,
                    PositionEncoding::Rope(&RopeTable::new(&shape, 1)),
                    projected,
                    &mut queries,
                );
                let (keys, values) = cache.layer(0);
                let part = |numbers: &[f32], row: usize, heads: usize| {
                    numbers[row * heads * dim..(row + 1) * heads * dim].to_vec()
                };
                let want: Vec<f32> = (0..rows)
                    .flat_map(|row| {
                        let rest = &x[row * stride + columns..(row + 1) * stride];
                        let all =
                            [part(&queries, row, query), part(keys, row, kv), part(values, row, kv)];
                        [all.concat(), rest.to_vec()].concat()
                    })
                    .collect();
                let what = format!("{heads:?}, {extra} more, normed: {normed}");
                assert_close(&what, dtype, &bench.read_numbers(qkv), &want);
            }
        }
    }
}
