//! Checks of `read_bandwidth` and `clock_probe`.

use super::{Bench, checks};
use machine::driver::Launch;

checks!(read_bandwidth_reads_every_word, the_clock_rises);

fn read_bandwidth_reads_every_word(bench: &mut Bench<'_>) {
    for count in [1usize, 7, 1000, 100_003] {
        let mut random = fastrand::Rng::with_seed(count as u64);
        let words: Vec<u32> = (0..4 * count).map(|_| random.u32(..)).collect();
        bench.start(plan::DType::Bf16);
        let (data, sink) = (bench.input(&words), bench.state(&[0u32]));
        let arguments = [data.into(), (count as u64).into(), sink.into()];
        bench.launch("read_bandwidth", &Launch::flat(4, 512), &arguments);
        assert_eq!(bench.read::<u32>(sink), [words.iter().fold(0, |all, word| all ^ word)]);
    }
}

/// Collectives over an emulated link last as long as this clock says.
fn the_clock_rises(bench: &mut Bench<'_>) {
    bench.start(plan::DType::Bf16);
    let out = bench.output::<u64>(20);
    bench.launch("clock_probe", &Launch::flat(1, 1), &[out.into(), 20u32.into()]);
    let times = bench.read::<u64>(out);
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert!(times[19] - times[0] < 1_000_000_000, "{times:?}");
}
