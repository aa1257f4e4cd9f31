//! The targets of `fuzz/` for some seconds: their seeds, and inputs that are made from them, the same ones
//! every time. Where one panics it is written to a file, so that the target can be run on it alone.

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

/// Inputs that are made for each target.
const INPUTS: usize = 150;

#[test]
fn every_parser_takes_any_bytes() {
    for target in targets::TARGETS {
        let mut random = Rng::with_seed(7);
        let made = (0..INPUTS).map(|at| made(target.seeds[at % target.seeds.len()], &mut random));
        for input in target.seeds.iter().map(|seed| seed.to_vec()).chain(made) {
            if catch_unwind(AssertUnwindSafe(|| (target.check)(&input))).is_err() {
                let path = std::env::temp_dir().join(format!("ladderscope-fuzz-{}", target.name));
                std::fs::write(&path, &input).unwrap();
                panic!("the target {} panics at {}", target.name, path.display());
            }
        }
    }
}

/// A seed with some pieces changed, doubled, dropped or cut off.
fn made(seed: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.usize(..4) {
        let mut below = |n: usize| random.usize(..n.max(1));
        let from = below(bytes.len() + 1);
        let to = (from + 1 + below(8)).min(bytes.len());
        match below(6) {
            0 => bytes.truncate(from),
            1 => drop(bytes.drain(from..to)),
            2 => bytes.splice(from..from, bytes[from..to].to_vec()).for_each(drop),
            3 => bytes.splice(from..to, b"-99999999999".iter().copied()).for_each(drop),
            _ => bytes[from..to].iter_mut().for_each(|byte| *byte ^= 1 << below(8)),
        }
    }
    bytes
}
