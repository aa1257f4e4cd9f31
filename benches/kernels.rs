//! Matrix-vector products against the machine's read bandwidth: bytes of weights a second.

use std::sync::Arc;

use arithmetic::mxfp4;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::bf16;
use model::{Matrix, MatrixData};
use run::cpu::{CpuKernels, Panels};

/// 128 MB of f32: four times the largest cache of common server CPUs' share.
const OUTPUTS: usize = 16384;
const INPUTS: usize = 2048;

fn matvec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matvec");
    group.sample_size(10);
    let numbers: Vec<f32> = (0..OUTPUTS * INPUTS).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    let narrow = MatrixData::Bf16(numbers.iter().map(|n| bf16::from_f32(*n)).collect());
    let mut packed = (vec![0; OUTPUTS * INPUTS / 2], vec![0; OUTPUTS * INPUTS / mxfp4::MXFP4_BLOCK]);
    mxfp4::quantize(&numbers, &mut packed.0, &mut packed.1);
    let packed = MatrixData::Mxfp4 { blocks: packed.0, scales: packed.1 };
    for (name, data) in [("mxfp4", packed), ("bf16", narrow), ("f32", MatrixData::F32(numbers))] {
        let bytes = data.bytes();
        let matrix = Arc::new(Panels::from_matrix(&Matrix { outputs: OUTPUTS, inputs: INPUTS, data }));
        group.throughput(Throughput::Bytes(bytes));
        for rows in [1, 2, 4, 8, 16] {
            let x = vec![0.25; rows * INPUTS];
            let mut y = vec![0.0; rows * OUTPUTS];
            let mut kernels = CpuKernels::default();
            group.bench_function(BenchmarkId::new(name, rows), |b| {
                b.iter(|| kernels.matmul(&x, &matrix, &mut y));
            });
        }
    }
    // the yardstick: the same machine's plain reads, by one thread
    group.throughput(Throughput::Elements(1));
    group.bench_function("read_bandwidth", |b| b.iter(|| ladderscope::face::cli::read_bandwidth(1)));
    group.finish();
}

criterion_group!(benches, matvec);
criterion_main!(benches);
