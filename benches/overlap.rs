//! Analysis of generated traces, 10^4 to 10^7 spans: an own trace (ranks, two lanes, steps), an imported
//! one whose streams interleave, one rank alone, and one in no order at all.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plan::{Lane, Phase};
use study::analysis::{critical_path, steps, trace_report};
use table::Provenance;
use trace::overlap::{Selection, exposed_intervals, overlap};
use trace::{ImportReport, OperationInfo, Span, Trace, TraceMeta};

/// Operations of a step on a rank; every fifth is a collective.
const OPERATIONS: usize = 1000;

fn operation(at: usize) -> OperationInfo {
    let comm = at % 5 == 4;
    OperationInfo {
        module: if at % 10 < 5 { "attn" } else { "mlp" }.into(),
        layer: Some(at as u32 / 10),
        lane: if comm { Lane::Comm } else { Lane::Compute },
        waits_for: at.checked_sub(if comm { 1 } else { 2 }).map(|at| at as u32).into_iter().collect(),
        ..OperationInfo::imported(
            format!("decode/L{}/{at}", at / 10),
            if comm { "all_reduce" } else { "matmul" },
        )
    }
}

fn meta(ranks: u32, import: Option<ImportReport>) -> TraceMeta {
    TraceMeta {
        clock: "made up".into(),
        recorder: "bench".into(),
        import,
        ..TraceMeta::new(Provenance::Measured, ranks)
    }
}

/// An own trace: compute runs on with small gaps, collectives overlap it in part.
fn own(spans: usize, ranks: u32) -> Trace {
    let mut random = fastrand::Rng::with_seed(7);
    let steps = spans.div_ceil(OPERATIONS * ranks as usize);
    let mut all = Vec::with_capacity(steps * OPERATIONS * ranks as usize);
    for step in 0..steps {
        for rank in 0..ranks {
            for lane in [Lane::Compute, Lane::Comm] {
                let mut clock = step as i64 * 10_000_000;
                for at in (0..OPERATIONS).filter(|at| (at % 5 == 4) == (lane == Lane::Comm)) {
                    let length = if lane == Lane::Comm { 30_000 } else { 9_000 } + random.i64(0..2_000);
                    let start_ns = clock + random.i64(0..1_000);
                    let end_ns = start_ns + length;
                    let last_arrival_ns = if lane == Lane::Comm { start_ns + 500 } else { -1 };
                    all.push(Span {
                        step: step as u32,
                        rank,
                        lane,
                        operation: at as u32,
                        ready_ns: clock,
                        start_ns,
                        end_ns,
                        last_arrival_ns,
                        ..Span::EMPTY
                    });
                    clock = end_ns;
                }
            }
        }
    }
    let operations = (0..OPERATIONS).map(operation).collect();
    Trace { meta: meta(ranks, None), operations, spans: all, ranges: Vec::new() }
}

/// An imported trace of one step number: each lane's spans sorted, eight streams interleaved.
fn imported(spans: usize, ranks: u32) -> Trace {
    let mut trace = own(spans, ranks);
    trace.operations.iter_mut().for_each(|operation| operation.waits_for.clear());
    for (at, span) in trace.spans.iter_mut().enumerate() {
        span.step = 0;
        span.last_arrival_ns = -1;
        span.stream = (at % 8) as u16;
        span.end_ns += (at % 8) as i64 * 3_000;
    }
    trace.spans.sort_by_key(|s| (s.rank, s.lane, s.start_ns));
    trace.meta.import = Some(ImportReport::default());
    trace
}

fn shuffled(spans: usize) -> Trace {
    let mut trace = own(spans, 2);
    fastrand::Rng::with_seed(7).shuffle(&mut trace.spans);
    trace
}

fn benches(criterion: &mut Criterion) {
    let everything = Selection::default();
    let mut group = criterion.benchmark_group("overlap");
    group.sample_size(10);
    for spans in [10_000, 100_000, 1_000_000, 10_000_000] {
        group.throughput(Throughput::Elements(spans as u64));
        for (name, trace) in [
            ("own, 16 ranks", own(spans, 16)),
            ("own, 1 rank", own(spans, 1)),
            ("imported, 2 ranks", imported(spans, 2)),
        ] {
            group.bench_function(BenchmarkId::new(name, spans), |bench| {
                bench.iter(|| black_box(overlap(&trace, &everything)));
            });
            group.bench_function(BenchmarkId::new(format!("everything: {name}"), spans), |bench| {
                bench.iter(|| black_box(trace_report(&trace, &everything)));
            });
        }
        if spans <= 1_000_000 {
            let trace = shuffled(spans);
            group.bench_function(BenchmarkId::new("own, in no order", spans), |bench| {
                bench.iter(|| black_box(overlap(&trace, &everything)));
            });
        }
    }
    let trace = own(10_000_000, 16);
    group.bench_function("steps of 10^7 spans", |bench| bench.iter(|| black_box(steps(&trace))));
    group.bench_function("critical path of one step in 10^7 spans", |bench| {
        bench.iter(|| black_box(critical_path(&trace, 0, Phase::Decode, 300)));
    });
    group.bench_function("exposed intervals of one step in 10^7 spans", |bench| {
        bench.iter(|| black_box(exposed_intervals(&trace, 3, 3_000_000_000, 3_010_000_000)));
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
