//! A made-up trace for benches: Llama 3.1 405B on 16 ranks, each with noise of its own.

use ladderscope::sweep::CellOptions;
use ladderscope::trace::{Trace, testing};

/// Decode steps of it, `spans` spans in all.
pub fn big(spans: usize) -> Trace {
    let options = CellOptions {
        architecture: Some("ladder".parse().expect("an architecture")),
        model: Some("llama-3.1-405b".into()),
        backend: Some(ladderscope::spec::Backend::Sim),
        hardware: Some("h100_sxm".into()),
        tp: Some(16),
        ..CellOptions::default()
    };
    let (spec, _) = options.resolve().expect("the options are valid");
    testing::big(&spec, spans).expect("it is simulated anywhere")
}
