//! Checks of `attend_decode` with `attend_combine`, and of `attend_prefill`.

use super::{Bench, DTYPES, Handle, assert_close, checks, random};
use plan::DType;
use run::testing::cpu::CpuKernels;
use run::testing::cpu::{AttentionLimits, AttentionScratch, Heads, KvCache, RowRun, StepRows};
use run::testing::cuda::geometry;

checks!(
    decode_attends_as_the_cpu_backend_does,
    splits_without_keys_count_for_nothing,
    large_groups_and_heads_are_attended_in_parts,
    prefill_attends_as_the_cpu_backend_does,
    prefill_goes_on_after_what_the_cache_holds,
);

/// Sizes and shares of heads: every size with some group, every group with some size.
const HEADS: [(usize, usize); 6] = [(72, 2), (128, 8), (8, 3), (64, 1), (112, 4), (128, 1)];

/// Heads to check in this format: all in bf16, few in f16, which differs in conversions alone.
fn heads_in(dtype: DType) -> &'static [(usize, usize)] {
    if dtype == DType::F16 { &HEADS[..2] } else { &HEADS }
}

/// Queries and a cache on the bench, and the same for the cpu backend.
struct Case {
    heads: Heads,
    capacity: usize,
    step: StepRows,
    /// Queries as they lie on the device.
    queries: Handle,
    keys: Handle,
    values: Handle,
    positions: Handle,
    scale: f32,
    /// What the cpu backend makes of it.
    wanted: Vec<f32>,
}

impl Case {
    /// Sequences whose new tokens begin at `positions`. What a cache holds after them is poison.
    fn new(
        bench: &mut Bench<'_>,
        (dim, group): (usize, usize),
        kv: usize,
        positions: &[u32],
        tokens: usize,
        capacity: usize,
    ) -> Self {
        bench.options.head_dim = dim as u32;
        bench.options.group = group as u32;
        let heads = Heads { query: kv * group, kv, dim };
        let sequences = positions.len();
        let mut cached = |seed| {
            let mut x = random(seed, sequences * kv * capacity * dim);
            for (x, position) in x.chunks_exact_mut(kv * capacity * dim).zip(positions) {
                for x in x.chunks_exact_mut(capacity * dim) {
                    x[(*position as usize + tokens) * dim..].fill(f32::NAN);
                }
            }
            bench.numbers(&x)
        };
        // values with a mean, so that errors in weights do not cancel
        let (keys, values) = (cached(1), cached(2));
        let queries = bench.numbers(&random(3, sequences * tokens * heads.query * dim));
        let run = |(sequence, position): (usize, &u32)| RowRun {
            sequence,
            position: *position as usize,
            count: tokens,
        };
        let step = StepRows { runs: positions.iter().enumerate().map(run).collect() };
        let mut cache = KvCache::new(heads, 1, sequences, capacity);
        cache.replace(0, bench.read_numbers(keys), bench.read_numbers(values));
        let mut wanted = vec![0.0; step.rows() * heads.query * dim];
        let asked = bench.read_numbers(queries);
        AttentionScratch::default().attend(
            &CpuKernels::default(),
            (&cache, 0),
            AttentionLimits::ALL,
            &step,
            &asked,
            &mut wanted,
        );
        let positions = bench.input(positions);
        let scale = 1.0 / (dim as f32).sqrt();
        Self { heads, capacity, step, queries, keys, values, positions, scale, wanted }
    }

    fn describe(&self) -> String {
        let Self { heads, capacity, step, .. } = self;
        format!("{heads:?}, capacity {capacity}, {:?}", step.runs)
    }

    /// Decodes twice, to see that nothing depends on timing.
    fn decode(&self, bench: &mut Bench<'_>, splits: u32) {
        let Heads { query, kv, dim } = self.heads;
        let (sequences, heads) = (self.step.runs.len() as u32, query as u32);
        let what = format!("{}, {splits} splits", self.describe());
        let mut before: Option<Vec<f32>> = None;
        for _ in 0..2 {
            let partial = bench.output::<f32>(sequences as usize * query * splits as usize * (dim + 2));
            let arguments = [
                self.queries.into(),
                self.keys.into(),
                self.values.into(),
                partial.into(),
                self.positions.into(),
                (kv as u32).into(),
                (self.capacity as u32).into(),
                splits.into(),
                self.scale.into(),
            ];
            let geometry = geometry::attend_decode(splits, kv as u32, sequences);
            bench.launch("attend_decode", &geometry, &arguments);
            let out = bench.output_numbers(self.wanted.len());
            let geometry = geometry::attend_combine(heads, sequences);
            bench.launch("attend_combine", &geometry, &[partial.into(), out.into(), splits.into()]);
            let got = bench.read_numbers(out);
            assert_close(&what, bench.dtype(), &got, &self.wanted);
            if let Some(before) = before.replace(got.clone()) {
                assert_eq!(before, got, "{what}: not the same twice");
            }
        }
    }

    fn prefill(&self, bench: &mut Bench<'_>) {
        let Heads { query, kv, dim } = self.heads;
        let (sequences, tokens) = (self.step.runs.len() as u32, self.step.runs[0].count as u32);
        let out = bench.output_numbers(self.wanted.len());
        let arguments = [
            self.queries.into(),
            self.keys.into(),
            self.values.into(),
            out.into(),
            self.positions.into(),
            tokens.into(),
            0_u32.into(),
            (query as u32).into(),
            (kv as u32).into(),
            (self.capacity as u32).into(),
            self.scale.into(),
        ];
        let dtype = bench.dtype();
        let geometry = geometry::attend_prefill(dtype, dim as u32, tokens, query as u32, sequences);
        bench.launch("attend_prefill", &geometry, &arguments);
        assert_close(&self.describe(), dtype, &bench.read_numbers(out), &self.wanted);
    }
}

fn decode_attends_as_the_cpu_backend_does(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for heads in heads_in(dtype).iter().copied() {
            for (positions, kv, capacity) in
                [(vec![0, 1, 62, 63, 64], 1, 65), (vec![9, 150], 2, 160), (vec![999], 1, 1000)]
            {
                bench.start(dtype);
                let case = Case::new(bench, heads, kv, &positions, 1, capacity);
                let (sequences, capacity) = (positions.len() as u32, capacity as u32);
                for multiprocessors in [1, 4] {
                    case.decode(
                        bench,
                        geometry::splits(sequences, kv as u32, capacity, multiprocessors),
                    );
                }
            }
        }
    }
}

fn splits_without_keys_count_for_nothing(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        bench.start(dtype);
        // a cache with room for far more than it holds, and more splits than one look of a block takes
        Case::new(bench, (64, 1), 2, &[0, 70, 129], 1, 520).decode(bench, 9);
        Case::new(bench, (64, 1), 1, &[63], 1, 64).decode(bench, 300);
    }
}

fn large_groups_and_heads_are_attended_in_parts(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for heads in [(64, 12), (256, 9)] {
            bench.start(dtype);
            Case::new(bench, heads, 1, &[3, 100], 1, 101).decode(bench, 2);
        }
    }
}

fn prefill_attends_as_the_cpu_backend_does(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for heads in heads_in(dtype).iter().copied() {
            // around the sizes of tiles: 32, 64, 128
            for (tokens, sequences, kv) in [(1, 2, 1), (33, 1, 2), (64, 1, 1), (65, 1, 1), (130, 2, 1)] {
                bench.start(dtype);
                Case::new(bench, heads, kv, &vec![0; sequences], tokens, tokens + 3).prefill(bench);
            }
        }
        bench.start(dtype);
        Case::new(bench, (256, 2), 1, &[0], 70, 70).prefill(bench);
        bench.start(dtype);
        Case::new(bench, (128, 1), 1, &[0], 300, 300).prefill(bench);
    }
}

fn prefill_goes_on_after_what_the_cache_holds(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for heads in [(72, 2), (128, 1)] {
            for tokens in [1, 40, 129] {
                bench.start(dtype);
                let positions = [64, 1, 63, 200];
                Case::new(bench, heads, 1, &positions, tokens, 200 + tokens).prefill(bench);
            }
        }
    }
}
