//! The workbench with many runs: listing them, again and again; a key typed into
//! the filter and a change of the order, with five thousand and a hundred thousand runs; drawing the page.
//!
//! Runs are made up, but their records are whole: 4 samples of 63 decode steps, an environment.

#[path = "made_up/mod.rs"]
mod made_up;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lab::store::{Annotations, Store};
use ladderscope::face::tui::Preview;
use study::analysis::RunTable;
use study::analysis::filter::Filter;
use table::{Backend, Record};

use made_up::{directory, record};

const RUNS: usize = 5_000;
const SIZES: [usize; 2] = [RUNS, 100_000];

fn list(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    directory(dir.path(), RUNS);
    let mut group = c.benchmark_group("list 5,000 runs");
    group.sample_size(10);
    group.bench_function("once", |b| {
        b.iter(|| assert_eq!(Store::open(dir.path()).list().expect("a listing").records.len(), RUNS));
    });
    let open = Store::open(dir.path()).remembering();
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
        preview.press('\n');
        // the key does sort: the frame is another
        let before = preview.draw().clone();
        preview.press('r');
        assert_ne!(before, *preview.draw());
        group.bench_function(BenchmarkId::new("key that sorts, and the frame", size), |b| {
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
