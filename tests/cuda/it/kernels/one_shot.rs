//! Checks of all-reduces in one shot. Ranks take turns at random, as far as the others let them, so that one may be a launch ahead;
//! what a rank has summed, and what it gave, is gone as soon as its launch has ended.

use super::bench::Handle;
use super::shim::run;
use super::{Argument, Bench, DTYPES, random, rounded};
use machine::driver::Launch;
use plan::DType;
use run::testing::cuda::HEAD_BYTES;
use run::testing::cuda::geometry;

const EPS: f32 = 1e-5;

/// What is summed: rows and columns.
#[derive(Clone, Copy)]
struct Message {
    rows: usize,
    columns: usize,
}

impl Message {
    fn numbers(self) -> usize {
        self.rows * self.columns
    }
}

/// Ranks with their regions.
struct Ranks {
    regions: Vec<Handle>,
    half: u64,
    is_fused: bool,
}

/// A launch of a rank under way.
struct Under {
    arguments: Vec<Argument>,
    geometry: Launch,
    ended: u64,
    /// Sum, and norm where there is one.
    outputs: Vec<Handle>,
}

impl Ranks {
    /// Whose region's epoch is `epoch`, and of whose region a half has room for so many numbers.
    fn new(bench: &mut Bench<'_>, ranks: usize, room: usize, epoch: u32, is_fused: bool) -> Self {
        let half = (room as u64 * bench.dtype().bytes()).next_multiple_of(256);
        let words = (HEAD_BYTES + 2 * half) as usize / 4;
        let mut head = vec![0u32; words];
        // addresses, counters, and flags as if that many launches had been
        head[32] = epoch;
        head[64..HEAD_BYTES as usize / 4].fill(epoch);
        let regions: Vec<Handle> = (0..ranks).map(|_| bench.state(&head)).collect();
        let addresses: Vec<u64> = regions.iter().map(|region| bench.address(*region)).collect();
        for region in &regions {
            bench.write(*region, bytemuck::cast_slice(&addresses));
        }
        Self { regions, half, is_fused }
    }

    fn kernel(&self) -> &'static str {
        if self.is_fused { "one_shot_add_norm" } else { "one_shot_sum" }
    }

    /// What rank gives in a launch: whole numbers, so that sums are exact, and a residual that all ranks share.
    fn given(rank: usize, launch: usize, message: Message) -> Vec<f32> {
        let of = |i: usize| ((i * 7 + rank * 13 + launch * 29) % 31) as f32 - 15.0;
        (0..message.numbers()).map(of).collect()
    }

    fn begin(&self, bench: &mut Bench<'_>, rank: usize, launch: usize, message: Message) -> Under {
        let input = bench.numbers_to_change(&Self::given(rank, launch, message));
        let outputs: Vec<Handle> = (0..1 + usize::from(self.is_fused))
            .map(|_| bench.output_numbers(message.numbers()))
            .collect();
        let mut arguments: Vec<Argument> = vec![self.regions[rank].into(), input.into()];
        if self.is_fused {
            arguments.push(bench.numbers(&random(launch as u64, message.numbers())).into());
            arguments.push(bench.numbers(&random(77, message.columns)).into());
        }
        arguments.extend(outputs.iter().map(|output| Argument::from(*output)));
        let (rows, columns) = (message.rows as u32, message.columns as u32);
        let ranks = self.regions.len() as u32;
        arguments.extend([Argument::U32(rank as u32), ranks.into(), self.half.into()]);
        let geometry = if self.is_fused {
            arguments.extend([Argument::U32(rows), columns.into(), EPS.into()]);
            geometry::one_shot_rows(rows, columns)
        } else {
            arguments.push((message.numbers() as u64).into());
            // where there is one block alone, nothing but the halves keeps a rank from another's part
            Launch { grid: [1 + launch as u32 % 3, 1, 1], block: [32, 1, 1], ..geometry::one_shot(1) }
        };
        Under { arguments, geometry, ended: 0, outputs }
    }

    /// Lets every rank do these launches, at speeds that change at random; the outputs of each rank and launch.
    fn take_turns(
        &self,
        bench: &mut Bench<'_>,
        messages: &[Message],
        seed: u64,
    ) -> Vec<Vec<Vec<Vec<f32>>>> {
        let ranks = self.regions.len();
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut under: Vec<Option<Under>> = (0..ranks).map(|_| None).collect();
        let mut done: Vec<Vec<Vec<Vec<f32>>>> = vec![Vec::new(); ranks];
        let (mut turns, mut favourite) = (0usize, 0);
        while done.iter().any(|done| done.len() < messages.len()) {
            // for a while one goes on as far as the others let it
            if dice.u32(0..8) == 0 {
                favourite = dice.usize(0..ranks);
            }
            let rank = if dice.bool() { favourite } else { dice.usize(0..ranks) };
            let Some(message) = messages.get(done[rank].len()) else { continue };
            let launch = done[rank].len();
            let mut one =
                under[rank].take().unwrap_or_else(|| self.begin(bench, rank, launch, *message));
            let (_, waits) = bench.attempt(self.kernel(), &[], &one.geometry, &one.arguments, one.ended);
            match waits {
                Some(ended) => {
                    one.ended = ended;
                    under[rank] = Some(one);
                }
                None => {
                    done[rank].push(one.outputs.iter().map(|out| bench.read_numbers(*out)).collect())
                }
            }
            turns += 1;
            assert!(turns < 10_000 * messages.len(), "ranks wait for one another for ever");
        }
        done
    }
}

fn sums(dtype: DType, ranks: usize, launch: usize, message: Message) -> Vec<f32> {
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| Ranks::given(rank, launch, message)).collect();
    (0..message.numbers()).map(|i| rounded(dtype, all.iter().map(|x| x[i]).sum())).collect()
}

/// Whole packs, less than one, and more than a block's.
const MESSAGES: [Message; 4] = [
    Message { rows: 2, columns: 64 },
    Message { rows: 1, columns: 37 },
    Message { rows: 5, columns: 200 },
    Message { rows: 3, columns: 8 },
];

fn series(launches: usize) -> Vec<Message> {
    (0..launches).map(|launch| MESSAGES[launch / 2 % MESSAGES.len()]).collect()
}

#[test]
fn ranks_of_any_speed_get_the_exact_sums_of_every_launch() {
    run(|bench| {
        for dtype in DTYPES {
            for (ranks, seed) in [(2, 1), (3, 2), (8, 3)] {
                bench.start(dtype);
                // beyond the largest number that counts them
                let all = Ranks::new(bench, ranks, 1000, u32::MAX - 5, false);
                let messages = series(16);
                for (rank, done) in all.take_turns(bench, &messages, seed).iter().enumerate() {
                    for (launch, outputs) in done.iter().enumerate() {
                        let wanted = sums(dtype, ranks, launch, messages[launch]);
                        assert_eq!(
                            outputs[0], wanted,
                            "{dtype}, rank {rank} of {ranks}, launch {launch}"
                        );
                    }
                }
            }
        }
    });
}

/// The control of the test above: where parts of odd and even launches lie at the same place, a fast rank writes over
/// what a slow one still reads, and the test sees it.
#[test]
fn one_half_alone_is_written_over() {
    run(|bench| {
        bench.start(DType::F32);
        let all = Ranks { half: 0, ..Ranks::new(bench, 3, 1000, 0, false) };
        let messages = series(16);
        let done = all.take_turns(bench, &messages, 2);
        let is_wrong = |(launch, outputs): (usize, &Vec<Vec<f32>>)| {
            outputs[0] != sums(DType::F32, 3, launch, messages[launch])
        };
        assert!(done.iter().any(|done| done.iter().enumerate().any(is_wrong)));
    });
}

/// The same bits as the sum, the addition and the norm by kernels of their own, on every rank.
#[test]
fn the_fused_one_is_a_sum_an_addition_and_a_norm() {
    run(|bench| {
        for dtype in DTYPES {
            let (ranks, messages) = (3, series(8));
            bench.start(dtype);
            let all = Ranks::new(bench, ranks, 1000, 0, true);
            let done = all.take_turns(bench, &messages, 5);
            for (launch, message) in messages.iter().enumerate() {
                let count = message.numbers();
                let sum = bench.numbers(&sums(dtype, ranks, launch, *message));
                let residual = bench.numbers(&random(launch as u64, count));
                let weight = bench.numbers(&random(77, message.columns));
                let (to, out) = (bench.output_numbers(count), bench.output_numbers(count));
                let columns = message.columns as u32;
                let arguments = [sum, residual, weight, to, out].map(Argument::from);
                let more = [Argument::from(columns), EPS.into()];
                let arguments: Vec<Argument> = arguments.into_iter().chain(more).collect();
                bench.launch(
                    "add_norm",
                    &geometry::one_shot_rows(message.rows as u32, columns),
                    &arguments,
                );
                let wanted = [bench.read_numbers(to), bench.read_numbers(out)];
                for (rank, done) in done.iter().enumerate() {
                    assert_eq!(done[launch], wanted, "{dtype}, rank {rank}, launch {launch}");
                }
            }
        }
    });
}

/// More rows than there are flags.
#[test]
fn a_block_takes_several_rows() {
    run(|bench| {
        bench.start(DType::Bf16);
        let message = Message { rows: geometry::ONE_SHOT_BLOCKS as usize + 3, columns: 8 };
        let all = Ranks::new(bench, 2, message.numbers(), 0, true);
        let done = all.take_turns(bench, &[message], 1);
        assert_eq!(done[0], done[1]);
        let residual = random(0, message.numbers());
        let wanted = sums(DType::Bf16, 2, 0, message).into_iter().zip(residual);
        let wanted: Vec<f32> = wanted
            .map(|(sum, residual)| rounded(DType::Bf16, sum + rounded(DType::Bf16, residual)))
            .collect();
        assert_eq!(done[0][0][0], wanted);
    });
}
