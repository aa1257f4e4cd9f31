//! Writing and reading traces of 10^4 to 10^7 spans: Llama 3.1 405B on 16 ranks, each with noise of its
//! own. Throughput is in spans; the sizes of the files are printed before.

#[path = "made_up/trace.rs"]
mod made_up;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use made_up::big;
use trace::TraceWriter;

const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

fn files(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut trace = big("llama-3.1-405b", 16, SIZES[SIZES.len() - 1]);
    println!("a span in memory: {} bytes", size_of::<trace::Span>());
    let mut group = criterion.benchmark_group("trace");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    for size in SIZES.into_iter().rev() {
        trace.spans.truncate(size);
        let path = dir.path().join(format!("{size}.parquet"));
        // whatever is measured, the file to read is there
        trace::write(&path, &trace).expect("the disk has room");
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(BenchmarkId::new("write", size), |bencher| {
            bencher.iter(|| trace::write(&path, &trace).expect("the disk has room"));
        });
        let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        println!("{size} spans: {bytes} bytes, {:.2} a span", bytes as f64 / size as f64);
        // as a backend that records while it runs
        group.bench_function(BenchmarkId::new("write in pieces", size), |bencher| {
            bencher.iter(|| {
                let mut writer =
                    TraceWriter::create(&path, &trace.meta, &trace.operations).expect("a new file");
                for piece in trace.spans.chunks(1000) {
                    writer.write(piece).expect("the disk has room");
                }
                writer.finish().expect("the disk has room");
            });
        });
        group.bench_function(BenchmarkId::new("read", size), |bencher| {
            bencher.iter_with_large_drop(|| trace::read(&path).expect("it was written just now"));
        });
    }
    group.finish();
}

criterion_group!(benches, files);
criterion_main!(benches);
