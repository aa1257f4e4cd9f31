//! Checks of `rope_append`.

use super::{Bench, DTYPES, assert_close, checks, random};
use crate::model::Model;
use crate::plan::ModelShape;
use crate::run::cpu::attention::{Heads, KvCache, RopeTable, RowRun, StepRows};
use crate::run::cuda::kernels::geometry;

checks!(rope_rotates_and_appends_as_the_cpu_backend_does);

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
    dtype: crate::plan::DType,
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
    cache.append(0, &step, &rope, &bench.read_numbers(qkv), stride, &mut queries);
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
