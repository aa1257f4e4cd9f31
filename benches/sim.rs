//! The simulator and simulated sweeps: one large cell with and without its trace, the 96 cells of
//! paper-70b, a thousand cells of a synthetic grid (all of their steps, nothing stored), and what cells
//! share: plans, their hashes and buffers.
//!
//! A cell costs operations of a step x steps; a sweep costs cells over cores.

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lab::sweep::{Experiment, simulate_cells};
use machine::hardware::lowering;
use model::Model;
use plan::{Architecture, DType, LayerSet, Phase, Plan, PlanSpec, Precision};
use run::Feasibility;
use run::Resolve;
use run::sim::Simulator;
use table::CellOptions;
use table::{Backend, Spec};

/// 1,000 cells: five models and architectures, four TPs and batches, five context lengths.
const GRID: &str = r#"
backend = "sim"
hardware = "h100_sxm"
stack = "gpt-fast"
[workload]
output_tokens = 64
[grid]
model = ["1b", "llama-3.2-1b", "3b", "llama-3-8b", "stories-110m"]
architecture = ["standard", "ladder", "parallel", "desync:2", "upper-bound"]
tp = [1, 2]
batch = [1, 4, 16, 64]
prompt_tokens = [128, 256, 512, 1024, 2048]
"#;

fn large_cell() -> Spec {
    let options = CellOptions {
        architecture: Some(Architecture::Ladder(LayerSet::All)),
        model: Some("llama-3-70b".into()),
        dtype: Some(DType::F16),
        tp: Some(8),
        backend: Some(Backend::Sim),
        hardware: Some("h100_sxm".into()),
        stack: Some("gpt-fast".into()),
        ..CellOptions::default()
    };
    options.resolve().expect("valid options").0
}

/// A static KV cache (gpt-fast), whose steps are alike, and a growing one (native), where each is
/// simulated; with skew, where each rank is; and the prediction from a few steps.
fn cell(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cell_70b_tp8");
    group.sample_size(10);
    for stack in ["gpt-fast", "native"] {
        let spec = Spec { stack: stack.into(), ..large_cell() };
        for (name, record) in [("numbers", false), ("trace", true)] {
            group.bench_function(BenchmarkId::new(name, stack), |b| {
                b.iter(|| {
                    let simulator = Simulator::default();
                    simulator.cell(black_box(&spec)).and_then(|cell| cell.run(record)).expect("it runs")
                });
            });
        }
        let simulator = Simulator::default();
        let cell = simulator.cell(&spec).expect("TP divides it");
        group.bench_function(BenchmarkId::new("plans_at_hand", stack), |b| {
            b.iter(|| black_box(&cell).run(false));
        });
        group.bench_function(BenchmarkId::new("predict", stack), |b| {
            b.iter(|| black_box(&cell).predict());
        });
    }
    let mut spec = Spec { output_tokens: 32, ..large_cell() };
    spec.set.insert("skew.operation_pct".into(), "2".into());
    group.bench_function("skew_31_steps", |b| {
        b.iter(|| {
            let simulator = Simulator::default();
            simulator.cell(black_box(&spec)).and_then(|cell| cell.run(false)).expect("it runs")
        });
    });
    group.finish();
}

fn plans(criterion: &mut Criterion) {
    let spec = large_cell();
    let plan_spec = PlanSpec {
        shape: Model::resolve(&spec.model).expect("built in").shape,
        architecture: spec.architecture.clone(),
        tp: spec.tp,
        phase: Phase::Decode,
        precision: Precision::uniform(spec.dtype),
        lowering: lowering(&spec.stack).expect("built in"),
        variant: plan::Variant::default(),
        batch: 1,
        pp: 1,
    };
    let plan = Plan::new(&plan_spec).expect("TP divides it");
    let mut group = criterion.benchmark_group("plan_70b_tp8");
    group.bench_function("build", |b| b.iter(|| Plan::new(black_box(&plan_spec))));
    group.bench_function("hash", |b| b.iter(|| black_box(&plan).hash()));
    group.bench_function("buffers", |b| b.iter(|| black_box(&plan).buffers()));
    group.finish();
}

fn sweeps(criterion: &mut Criterion) {
    let paper = Experiment::open(Path::new("paper-70b")).expect("built in");
    let grid = Experiment::from_str(GRID, Path::new("grid.toml")).expect("a valid experiment");
    let mut group = criterion.benchmark_group("sweep");
    group.sample_size(10);
    for (name, experiment) in [("paper-70b", &paper), ("grid-1000", &grid)] {
        let cells = experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs);
        let specs: Vec<&Spec> = cells.map(|cell| &cell.spec).collect();
        group.throughput(Throughput::Elements(specs.len() as u64));
        group.bench_function(BenchmarkId::new("simulate", name), |b| {
            b.iter(|| {
                simulate_cells(black_box(&specs), |_, record| {
                    black_box(record);
                })
            });
        });
        group.throughput(Throughput::Elements(experiment.cells.len() as u64));
        group.bench_function(BenchmarkId::new("open", name), |b| {
            b.iter(|| Experiment::from_str(&experiment.text, &experiment.path).expect("valid"));
        });
    }
    group.finish();
}

criterion_group!(benches, cell, plans, sweeps);
criterion_main!(benches);
