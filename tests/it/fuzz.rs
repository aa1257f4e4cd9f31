//! The targets of `fuzz/` for some seconds: their seeds, and inputs that are made from them, the same ones
//! every time. Where one panics it is written to a file, so that the target can be run on it alone.
//!
//! ```text
//! LADDERSCOPE_FUZZ_SECONDS=600 LADDERSCOPE_FUZZ_TARGET=tokenizer cargo test --test it fuzz -- --nocapture
//! ```
//!
//! That goes on for so long with one target, or with each, from a seed that is printed (`LADDERSCOPE_FUZZ_SEED`
//! repeats it). `fuzz/run.sh` searches for new paths instead.

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Inputs that are made for each target.
const INPUTS: usize = 150;

#[test]
fn every_parser_takes_any_bytes() {
    let seconds = variable("LADDERSCOPE_FUZZ_SECONDS").and_then(|text| text.parse().ok());
    let only = variable("LADDERSCOPE_FUZZ_TARGET");
    let known = |name: &String| targets::TARGETS.iter().any(|target| target.name == name);
    assert!(only.as_ref().is_none_or(known), "LADDERSCOPE_FUZZ_TARGET: there is no target {only:?}");
    let seed = variable("LADDERSCOPE_FUZZ_SEED").and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| seconds.map_or(7, |_: u64| fastrand::u64(..)));
    for target in targets::TARGETS.iter().filter(|t| only.as_ref().is_none_or(|name| t.name == name)) {
        let mut random = Rng::with_seed(seed);
        for (at, whole) in target.seeds.iter().enumerate() {
            let is_read = check(target, whole);
            assert!(is_read || at > 0, "the first seed of {} is refused", target.name);
        }
        let began = Instant::now();
        let goes_on = |inputs: usize| match seconds {
            Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
            None => inputs < INPUTS,
        };
        let mut inputs = 0;
        while goes_on(inputs) {
            check(target, &made(target.seeds[inputs % target.seeds.len()], &mut random));
            inputs += 1;
        }
        if seconds.is_some() {
            println!("{}: {inputs} inputs from the seed {seed}, no panic", target.name);
        }
    }
}

/// Gives an input to a target; returns whether it was read. One that makes the target panic is kept.
fn check(target: &targets::Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.check)(input))).unwrap_or_else(|_| {
        let path = std::env::temp_dir().join(format!("ladderscope-fuzz-{}", target.name));
        std::fs::write(&path, input).unwrap();
        panic!("the target {} panics at {}", target.name, path.display());
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
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
