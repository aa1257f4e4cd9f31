//! The workbench with many runs: listing them, with and without the cache of records; a key typed into
//! the filter and a change of the order, with five thousand and a hundred thousand runs; drawing the page.
//!
//! Runs are made up, but their records are whole: 4 samples of 63 decode steps, an environment.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ladderscope::analysis::filter::Filter;
use ladderscope::analysis::{RunTable, metrics};
use ladderscope::model::DType;
use ladderscope::spec::{Backend, Collective, Link, P2p, Spec};
use ladderscope::store::{Annotations, Overlap, Record, Sample, Status, Store};
use ladderscope::tui::Preview;

const RUNS: usize = 5_000;
const SIZES: [usize; 2] = [RUNS, 100_000];

/// The runs of a grid over architecture, TP, batch, P2P and model, round after round.
fn record(i: usize, backend: Backend) -> Record {
    let pick = |of: &[&'static str], by: usize| of[i / by % of.len()];
    let architecture = pick(&["standard", "ladder", "parallel", "desync:4", "upper-bound"], 1);
    let p2p = [P2p::On, P2p::Off][i / 5 % 2];
    let mut spec = Spec {
        architecture: architecture.parse().expect("an architecture"),
        model: pick(&["llama-3-8b", "llama-3-70b", "llama-3.1-405b"], 10).into(),
        dtype: DType::F16,
        tp: [1, 2, 4, 8][i / 30 % 4],
        batch: [1, 4, 16, 64, 256][i / 120 % 5],
        prompt_tokens: 1024,
        output_tokens: 64,
        p2p,
        backend,
        link: Link::Native,
        hardware: if backend == Backend::Sim { "h100_sxm".into() } else { "host".into() },
        stack: "gpt-fast".into(),
        collective: Collective::Nccl,
        samples: 4,
        warmup: 1,
        seed: 0,
        env: BTreeMap::new(),
        set: BTreeMap::new(),
    };
    spec.env.insert("NCCL_ALGO".into(), pick(&["Ring", "Tree"], 600).into());
    let failed = i.is_multiple_of(97);
    let status = if failed { Status::Failed } else { Status::Ok };
    let mut record = Record::new(spec, status, failed.then(|| "rank 1 died of signal 9".into()));
    let second = i / 2;
    record.run = match backend {
        Backend::Sim => format!("20261121-043012-sim-4f2a91:{i}"),
        _ => format!(
            "202611{:02}-{:02}{:02}{:02}-{}-{i:06x}",
            1 + second / 86_400 % 28,
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            architecture.replace(':', "")
        ),
    };
    record.created = format!("2026-11-21T04:30:12.{i:06}Z");
    record.round = (i / 1200) as u32;
    record.experiment = Some("paper-70b".into());
    if status == Status::Ok {
        let mut random = fastrand::Rng::with_seed(i as u64);
        let sample = |random: &mut fastrand::Rng| {
            let steps: Vec<f64> = (0..63).map(|_| 8.0 + random.f64()).collect();
            Sample {
                prefill_ms: 40.0 + random.f64(),
                decode_ms: steps.iter().sum(),
                steps_ms: if backend == Backend::Sim { Vec::new() } else { steps },
                overlap: None,
            }
        };
        let count = if backend == Backend::Sim { 1 } else { 4 };
        record.samples = (0..count).map(|_| sample(&mut random)).collect();
        record.metrics = metrics(&record.spec, &[&record.samples], 12_300_000_000);
        record.overlap = Some(Overlap {
            comm_ms: 90.0,
            exposed_comm_ms: 90.0 * random.f64(),
            overlap_pct: Some(100.0 * random.f64()),
            compute_ms: 400.0,
            idle_ms: 3.0,
            split: None,
        });
    }
    let words = ["host", "cpu", "os", "kernel", "driver", "nccl", "commit", "recorder", "compiler"];
    for (at, word) in words.iter().enumerate() {
        record.environment.insert((*word).into(), format!("{word} as it was found, {at}").into());
    }
    record.environment.insert("clocks_mhz".into(), serde_json::json!([1980, 1980, 1975 + i % 5, 1980]));
    record
}

/// A runs directory, written without syncing each file.
fn directory(dir: &Path) {
    for i in 0..RUNS {
        let record = record(i, Backend::Cpu);
        let run = dir.join(&record.run);
        std::fs::create_dir_all(&run).expect("a directory");
        let json = serde_json::to_vec_pretty(&record).expect("JSON");
        std::fs::write(run.join("record.json"), json).expect("a file");
    }
}

fn list(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    directory(dir.path());
    let mut group = c.benchmark_group("list 5,000 runs");
    group.sample_size(10);
    group.bench_function("without a cache", |b| {
        b.iter(|| {
            let _ = std::fs::remove_file(dir.path().join("records.cache"));
            assert_eq!(Store::open(dir.path()).list().expect("a listing").records.len(), RUNS);
        });
    });
    Store::open(dir.path()).list().expect("a listing");
    group.bench_function("with the cache", |b| {
        b.iter(|| assert_eq!(Store::open(dir.path()).list().expect("a listing").records.len(), RUNS));
    });
    let open = Store::open(dir.path());
    open.list().expect("a listing");
    group.bench_function("again in one process", |b| {
        b.iter(|| black_box(open.list().expect("a listing")))
    });
    group.finish();

    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path());
    let mut records: Vec<Record> = (0..RUNS).map(|i| record(i, Backend::Sim)).collect();
    store.write_batch(&mut records).expect("a batch");
    c.bench_function("list a batch of 5,000 rows", |b| {
        b.iter(|| assert_eq!(Store::open(dir.path()).list().expect("a listing").records.len(), RUNS));
    });
}

fn choose(c: &mut Criterion) {
    for size in SIZES {
        let records: Vec<Record> = (0..size).map(|i| record(i, Backend::Sim)).collect();
        let mut group = c.benchmark_group("table of runs");
        group.sample_size(10);
        group.bench_with_input(BenchmarkId::new("made", size), &records, |b, records| {
            b.iter(|| RunTable::new(records, &Annotations::default()));
        });
        let table = RunTable::new(&records, &Annotations::default());
        for filter in ["ladder", "upb", "arch:ladder tp:8 p2p:off tpot<9 -tag:bad", "4f2a91:77"] {
            group.bench_with_input(
                BenchmarkId::new(format!("filter {filter}"), size),
                filter,
                |b, text| {
                    b.iter(|| Filter::parse(text).rows(&table).expect("a filter"));
                },
            );
        }
        let keys = table.sort_keys("arch,tpot:desc").expect("columns");
        group.bench_function(BenchmarkId::new("sort by two columns", size), |b| {
            b.iter(|| {
                let mut rows: Vec<u32> = (0..size as u32).collect();
                table.sort(&mut rows, &keys);
                rows
            });
        });
        group.finish();

        let mut group = c.benchmark_group("page of runs");
        let mut preview = Preview::runs(records, (200, 60));
        preview.press('/');
        "ladder tok/s>".chars().for_each(|key| preview.press(key));
        let mut odd = false;
        group.bench_function(BenchmarkId::new("key typed into the filter, and the frame", size), |b| {
            b.iter(|| {
                odd = !odd;
                preview.press(if odd { '4' } else { '\u{8}' });
                black_box(preview.draw());
            });
        });
        assert!(preview.shown_runs() < size / 2);
        group.bench_function(BenchmarkId::new("key that sorts, and the frame", size), |b| {
            preview.press('\n');
            b.iter(|| {
                preview.press('r');
                black_box(preview.draw());
            });
        });
        group.bench_function(BenchmarkId::new("frame", size), |b| {
            b.iter(|| black_box(preview.draw()).area)
        });
        group.finish();
    }
}

criterion_group!(benches, list, choose);
criterion_main!(benches);
