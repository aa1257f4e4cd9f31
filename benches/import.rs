//! Importing generated traces of the PyTorch profiler: bytes of JSON a second, plain and packed, by size.

use std::hint::black_box;
use std::io::Write;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use trace::import::kineto::{KinetoOptions, import_bytes};
use trace::testing::kineto::{Shape, Style, generate};

fn kineto(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kineto");
    group.sample_size(10);
    for events in [10_000, 100_000, 1_000_000] {
        let shape = Shape { events, steps: 5, ..Shape::default() };
        let json = generate(shape, Style::default()).json;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let packed =
            encoder.write_all(json.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default();
        group.throughput(Throughput::Bytes(json.len() as u64));
        for (packing, bytes) in [("plain", json.as_bytes()), ("gzip", &packed)] {
            group.bench_with_input(BenchmarkId::new(packing, events), bytes, |bencher, bytes| {
                bencher.iter(|| import_bytes("generated", black_box(bytes), KinetoOptions::default()));
            });
        }
        let serial = KinetoOptions { parsers: 0, ..KinetoOptions::default() };
        group.bench_function(BenchmarkId::new("plain, one thread", events), |bencher| {
            bencher.iter(|| import_bytes("generated", black_box(json.as_bytes()), serial));
        });
    }
    group.finish();
}

criterion_group!(benches, kineto);
criterion_main!(benches);
