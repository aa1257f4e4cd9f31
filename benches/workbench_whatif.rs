//! The what-if screen: one slider moved, and every number of the screen anew. The bound is 50 ms from the
//! key to the frame.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use run::sim::Simulator;
use study::whatif::{BreakEvenQuantity, HIDDEN_PCT, WhatIfVariant};

fn sliders(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("whatif_70b");
    group.sample_size(20);
    let simulator = Simulator::default();
    let mut step = 0u32;
    // plans and sizes are at hand: the key is held on alpha
    for stack in ["gpt-fast", "native"] {
        let mut variant = WhatIfVariant::default();
        variant.cell.stack = stack.into();
        group.bench_function(format!("alpha/{stack}"), |b| {
            b.iter(|| {
                step += 1;
                variant.alpha_us = Some(5.0 + f64::from(step % 90));
                black_box(&variant).answer(&simulator).expect("it runs")
            });
        });
    }
    // sizes of memory follow the prompt, which no two answers share
    let mut variant = WhatIfVariant::default();
    group.bench_function("prompt", |b| {
        b.iter(|| {
            step += 1;
            variant.cell.prompt_tokens = 128 + step % 3000;
            black_box(&variant).answer(&simulator).expect("it runs")
        });
    });
    // and the plans of all architectures, where the TP or the model was not met before
    group.bench_function("tp/first", |b| {
        b.iter(|| {
            let mut variant = WhatIfVariant::default();
            variant.cell.tp = 4;
            black_box(&variant).answer(&Simulator::default()).expect("it runs")
        });
    });
    let variant = WhatIfVariant::default();
    group.bench_function("break_even/alpha", |b| {
        b.iter(|| {
            black_box(&variant)
                .break_even(&simulator, BreakEvenQuantity::AlphaUs, HIDDEN_PCT)
                .expect("it runs")
        });
    });
    group.finish();
}

criterion_group!(benches, sliders);
criterion_main!(benches);
