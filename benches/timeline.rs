//! The timeline: indexing a trace, and drawing a frame of it while zooming and panning, from ten
//! thousand to ten million spans. Spans are those of 16 ranks that decode with 126 layers.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ladderscope::face::tui::Preview;
use plan::{Lane, Phase};
use table::Provenance;
use trace::{OperationInfo, Span, Trace, TraceMeta};

const RANKS: u32 = 16;
const LAYERS: i64 = 126;
/// Operations of a layer on each lane: compute, comm.
const OPERATIONS: (i64, i64) = (7, 2);
const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

fn trace(spans: usize) -> Trace {
    let operation = |name: String, lane| OperationInfo {
        module: "mlp".into(),
        layer: None,
        lane,
        ..OperationInfo::imported(name, "matmul")
    };
    let lanes = [(Lane::Compute, OPERATIONS.0), (Lane::Comm, OPERATIONS.1)];
    // an operation waits for the one before it on its lane; a collective for what is computed by then
    let operations = lanes
        .iter()
        .flat_map(|(lane, n)| (0..LAYERS * n).map(move |i| (*lane, i)))
        .map(|(lane, i)| {
            let waits = if lane == Lane::Comm { i * 7 / 2 } else { i - 1 };
            let waits_for = u32::try_from(waits).into_iter().collect();
            let name = format!("decode/L{}/{}", i / 7, lane.as_str());
            OperationInfo { waits_for, ..operation(name, lane) }
        })
        .collect();
    let mut list = Vec::with_capacity(spans);
    let mut random = fastrand::Rng::with_seed(7);
    'steps: for step in 0.. {
        for rank in 0..RANKS {
            for (lane, n) in lanes {
                let (base, every) = if lane == Lane::Comm { (LAYERS * 7, 17_500) } else { (0, 5_000) };
                for i in 0..LAYERS * n {
                    if list.len() == spans {
                        break 'steps;
                    }
                    let start = i64::from(step) * LAYERS * 35_000 + i * every + random.i64(0..400);
                    let end = start + every - random.i64(500..2_000);
                    list.push(Span {
                        sample: 0,
                        phase: Phase::Decode,
                        step,
                        rank,
                        lane,
                        stream: 0,
                        operation: (base + i) as u32,
                        ready_ns: start - 100,
                        start_ns: start,
                        end_ns: end,
                        last_arrival_ns: if lane == Lane::Comm { start + 900 } else { -1 },
                        ..Span::EMPTY
                    });
                }
            }
        }
    }
    let meta = TraceMeta::new(Provenance::Simulated, RANKS);
    Trace { meta, operations, spans: list, ranges: Vec::new() }
}

fn timeline(criterion: &mut Criterion) {
    for spans in SIZES {
        let trace = trace(spans);
        let mut group = criterion.benchmark_group("timeline");
        group.sample_size(10).throughput(Throughput::Elements(spans as u64));
        group.bench_function(BenchmarkId::new("index", spans), |b| {
            b.iter_batched(
                || vec![trace.clone()],
                |traces| Preview::open(traces, (200, 60)),
                BatchSize::PerIteration,
            );
        });
        let mut preview = Preview::open(vec![trace], (200, 60));
        println!("index: {:.1} bytes a span", preview.index_bytes() as f64 / spans as f64);
        group.throughput(Throughput::Elements(1));
        // `f` fits the whole trace; then deeper and deeper, and a step to the side
        for (name, keys) in
            [("whole", "f"), ("16th", "f++++"), ("4096th", "f++++++++++++"), ("pan", "f++++l")]
        {
            preview.press('f');
            keys.chars().for_each(|key| preview.press(key));
            group.bench_function(BenchmarkId::new(format!("frame_{name}"), spans), |b| {
                b.iter(|| preview.draw().area);
            });
        }
        // the overview of the whole trace, made off the terminal's thread; then frames with a stretch
        // selected and with the critical path of the step lit
        group.bench_function(BenchmarkId::new("overview", spans), |b| b.iter(|| preview.overview(184)));
        for (name, keys) in [("selection", "f++++v"), ("path", "f++++p")] {
            keys.chars().for_each(|key| preview.press(key));
            group.bench_function(BenchmarkId::new(format!("frame_{name}"), spans), |b| {
                b.iter(|| preview.draw().area);
            });
        }
        // a key that moves the cursor, and the frame after it
        group.bench_function(BenchmarkId::new("key_and_frame", spans), |b| {
            b.iter(|| {
                preview.tap('.');
                preview.draw().area
            });
        });
        group.finish();
    }
}

criterion_group!(benches, timeline);
criterion_main!(benches);
