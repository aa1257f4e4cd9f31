//! A check of `read_bandwidth`.

use super::{Bench, checks};
use crate::machine::driver::Launch;

checks!(read_bandwidth_reads_every_word);

fn read_bandwidth_reads_every_word(bench: &mut Bench<'_>) {
    for count in [1usize, 7, 1000, 100_003] {
        let mut random = fastrand::Rng::with_seed(count as u64);
        let words: Vec<u32> = (0..4 * count).map(|_| random.u32(..)).collect();
        bench.start(crate::plan::DType::Bf16);
        let (data, sink) = (bench.input(&words), bench.state(&[0u32]));
        let arguments = [data.into(), (count as u64).into(), sink.into()];
        bench.launch("read_bandwidth", &Launch::flat(4, 512), &arguments);
        assert_eq!(bench.read::<u32>(sink), [words.iter().fold(0, |all, word| all ^ word)]);
    }
}
