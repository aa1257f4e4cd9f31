//! Checks of `sample_part`, `sample_greedy` and `sample_random`: the very tokens that the cpu backend takes.

use super::{Bench, Handle, checks, random};
use plan::DType;
use run::testing::Sampling;
use run::testing::cuda::geometry;

checks!(greedy_takes_the_cpu_backends_tokens, random_draws_are_the_cpu_backends);

/// Vocabularies: one part, parts without whole packs, many parts.
const VOCABS: [usize; 5] = [1, 256, 4099, 32_000, 128_256];

/// The step's state of a batch, some steps into a generation.
struct State {
    tokens: Handle,
    history: Handle,
    steps: Handle,
    positions: Handle,
    before: [Vec<u32>; 2],
}

const STEPS: usize = 6;

impl State {
    fn new(bench: &mut Bench<'_>, batch: usize) -> Self {
        let steps: Vec<u32> = (0..batch).map(|s| (s % STEPS) as u32).collect();
        let positions: Vec<u32> = (0..batch).map(|s| 100 + 3 * s as u32).collect();
        Self {
            tokens: bench.state(&vec![7u32; batch]),
            history: bench.output::<u32>(STEPS * batch),
            steps: bench.state(&steps),
            positions: bench.state(&positions),
            before: [steps, positions],
        }
    }

    /// Checks that the step ended with these tokens.
    fn check(&self, bench: &Bench<'_>, what: &str, want: &[u32], advance: u32) {
        let [steps, positions] = &self.before;
        let batch = want.len();
        assert_eq!(bench.read::<u32>(self.tokens), want, "{what}");
        let mut history = vec![u32::MAX; STEPS * batch];
        for (sequence, token) in want.iter().enumerate() {
            history[steps[sequence] as usize * batch + sequence] = *token;
        }
        assert_eq!(bench.read::<u32>(self.history), history, "{what}");
        let moved = |from: &[u32], by: u32| from.iter().map(|x| x + by).collect::<Vec<_>>();
        assert_eq!(bench.read::<u32>(self.steps), moved(steps, 1), "{what}");
        assert_eq!(bench.read::<u32>(self.positions), moved(positions, advance), "{what}");
    }
}

/// Logits of several sequences that make choices hard: equal ones, NaN, infinities, nothing but one value.
fn hard_logits(vocab: usize) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = (0..6).map(|row| random(row + vocab as u64, vocab)).collect();
    let (third, last) = (vocab / 3, vocab - 1);
    // the highest twice; the highest last; NaN among them; all equal; nothing above -infinity; zeros of two signs
    (rows[0][third], rows[0][last]) = (9.0, 9.0);
    rows[1][last] = 50.0;
    (rows[2][0], rows[2][third]) = (f32::NAN, f32::INFINITY);
    rows[3].fill(-1.5);
    rows[4].fill(f32::NEG_INFINITY);
    rows[5].iter_mut().for_each(|x| *x = -x.abs());
    (rows[5][third], rows[5][last]) = (-0.0, 0.0);
    rows
}

fn greedy_takes_the_cpu_backends_tokens(bench: &mut Bench<'_>) {
    for vocab in VOCABS {
        bench.start(DType::Bf16);
        let rows = hard_logits(vocab);
        let (batch, parts) = (rows.len(), geometry::sample_parts(vocab as u32));
        let logits = bench.input(&rows.concat());
        let value = bench.output::<f32>(batch * parts as usize);
        let index = bench.output::<u32>(batch * parts as usize);
        let not_finite = bench.state(&[3u32]);
        let arguments =
            [logits.into(), (vocab as u32).into(), value.into(), index.into(), not_finite.into()];
        bench.launch("sample_part", &geometry::sample_part(parts, batch as u32), &arguments);
        let odd = rows.iter().flatten().filter(|logit| !logit.is_finite()).count() as u32;
        assert_eq!(bench.read::<u32>(not_finite), [3 + odd], "vocabulary of {vocab}");
        let state = State::new(bench, batch);
        let arguments = [
            value.into(),
            index.into(),
            parts.into(),
            state.tokens.into(),
            state.history.into(),
            state.steps.into(),
            state.positions.into(),
            (batch as u32).into(),
            13u32.into(),
        ];
        bench.launch("sample_greedy", &geometry::sample_greedy(batch as u32), &arguments);
        let want: Vec<u32> = rows.iter().map(|row| Sampling::Greedy.choose(row, 0, 0)).collect();
        state.check(bench, &format!("vocabulary of {vocab}"), &want, 13);
    }
}

fn random_draws_are_the_cpu_backends(bench: &mut Bench<'_>) {
    for (vocab, top_k) in [
        (1, 1),
        (256, 40),
        (256, 1000),
        (4099, 1),
        (4099, 0),
        (32_000, 50),
        (32_000, 1024),
        (32_000, 1500),
        (4099, 4099),
        (128_256, 50),
    ] {
        for (seed, temperature) in [(1, 1.0f32), (u64::MAX, 0.3)] {
            bench.start(DType::Bf16);
            let mut rows = hard_logits(vocab);
            // a row of plain logits for draws far from the top
            rows[3] = random(seed, vocab);
            let batch = rows.len() as u32;
            let logits = bench.input(&rows.concat());
            let scratch = geometry::sample_scratch(vocab as u32, top_k, batch) as usize / 8;
            let scratch =
                if scratch == 0 { super::Argument::Null } else { bench.output::<u64>(scratch).into() };
            let state = State::new(bench, rows.len());
            let (first_sequence, advance) = (5u32, 2u32);
            let arguments = [
                logits.into(),
                (vocab as u32).into(),
                temperature.into(),
                top_k.into(),
                seed.into(),
                first_sequence.into(),
                scratch,
                state.tokens.into(),
                state.history.into(),
                state.steps.into(),
                state.positions.into(),
                batch.into(),
                advance.into(),
            ];
            bench.launch("sample_random", &geometry::sample_random(batch), &arguments);
            let sampling = Sampling::Random { temperature, top_k: top_k as usize, seed };
            let positions = &state.before[1];
            let want: Vec<u32> = rows
                .iter()
                .enumerate()
                .map(|(i, row)| {
                    let position = (positions[i] + advance - 1) as usize;
                    sampling.choose(row, first_sequence as usize + i, position)
                })
                .collect();
            state.check(bench, &format!("{top_k} of {vocab}, seed {seed}"), &want, advance);
        }
    }
}
