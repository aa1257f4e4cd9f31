//! Sweeps with an executor that executes nothing; what its runs yield is decided by the test.

use std::sync::Mutex;

use super::simulate::{SimulationEvent, Simulations};
use super::*;
use crate::launch::{Cancel, Executor, ExecutorEvent, RunRequest};
use crate::store::{Store, sample_record, sample_spec, sample_store as store};
use run::Feasibility;
use run::sim::Simulator;
use table::{Backend, Record, Spec, Status};

/// Ends runs as `fate` says, and remembers their order.
struct Mock<F> {
    fate: F,
    ran: Mutex<Vec<(usize, u32)>>,
}

fn mock<F: Fn(&RunRequest<'_>) -> Status + Sync>(fate: F) -> Mock<F> {
    Mock { fate, ran: Mutex::default() }
}

impl<F> Mock<F> {
    fn ran(&self) -> Vec<(usize, u32)> {
        self.ran.lock().unwrap().clone()
    }
}

impl<F: Fn(&RunRequest<'_>) -> Status + Sync> Executor for Mock<F> {
    fn run(&self, request: &RunRequest<'_>, emit: &mut dyn FnMut(ExecutorEvent)) -> Record {
        self.ran.lock().unwrap().push((request.cell, request.round));
        let run = request.store.begin(request.spec, request.experiment, request.round).unwrap();
        emit(ExecutorEvent::Started(run.id.clone()));
        let status = (self.fate)(request);
        let spec = request.spec.clone();
        let reason = format!("so it was decided, in round {}", request.round);
        let mut record = match status {
            Status::Ok => sample_record(spec, 30.0 + f64::from(request.round)),
            _ => Record::new(spec, status, Some(reason)),
        };
        record.run = run.id;
        record.created = request.store.now();
        record.round = request.round;
        record.experiment = request.experiment.map(str::to_owned);
        request.store.finish(&record).unwrap();
        record
    }
}

fn experiment(cells: Vec<Cell>, rounds: u32) -> Experiment {
    Experiment {
        name: "test".into(),
        path: "test.toml".into(),
        rounds,
        axes: vec!["architecture".into()],
        cells,
        ..Experiment::default()
    }
}

fn cell(architecture: &str) -> Cell {
    Cell { spec: sample_spec(architecture), feasibility: Feasibility::Runs }
}

fn three() -> Vec<Cell> {
    vec![cell("standard"), cell("ladder"), cell("parallel")]
}

/// Runs the experiment; the outcome, and what happened in few words.
fn sweep(experiment: &Experiment, store: &Store, executor: &dyn Executor) -> (Outcome, Vec<String>) {
    sweep_until(experiment, store, executor, &Cancel::default())
}

/// End of a sweep, with the cells' records from its events.
struct Outcome {
    cells: Vec<Record>,
    failed: usize,
    interrupted: bool,
}

fn sweep_until(
    experiment: &Experiment,
    store: &Store,
    executor: &dyn Executor,
    cancel: &Cancel,
) -> (Outcome, Vec<String>) {
    sweep_some(experiment, store, executor, SweepSelection::Missing, cancel)
}

fn sweep_some(
    experiment: &Experiment,
    store: &Store,
    executor: &dyn Executor,
    choice: SweepSelection,
    cancel: &Cancel,
) -> (Outcome, Vec<String>) {
    let (mut events, mut cells) = (Vec::new(), Vec::new());
    let outcome = execute(experiment, store, executor, choice, cancel, &mut |event| {
        events.push(match event {
            SweepEvent::CellSettled { cell, round, record } => {
                format!("settled {cell} {round} {}", record.status.as_str())
            }
            SweepEvent::RunStarted { cell, round, .. } => format!("started {cell} {round}"),
            SweepEvent::Paused => "paused".to_owned(),
            SweepEvent::Resumed => "resumed".to_owned(),
            SweepEvent::RunEnded { cell, round, record } => {
                format!("ended {cell} {round} {}", record.status.as_str())
            }
            SweepEvent::CellDone { cell, record } => {
                assert_eq!(cell, cells.len(), "cells end in order, each once");
                return cells.push(*record);
            }
            SweepEvent::Run { .. } | SweepEvent::Log { .. } => return,
            SweepEvent::Evaluating { .. } | SweepEvent::Training { .. } | SweepEvent::Note(_) => return,
        });
    })
    .unwrap();
    assert_eq!(cells.len(), experiment.cells.len());
    assert_eq!(outcome.cells.values().sum::<usize>(), cells.len());
    (Outcome { cells, failed: outcome.failed, interrupted: outcome.interrupted }, events)
}

#[test]
fn rounds_interleave_the_cells() {
    let (_dir, store) = store();
    let executor = mock(|_| Status::Failed);
    let (outcome, events) = sweep(&experiment(three(), 2), &store, &executor);
    assert_eq!(executor.ran(), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
    assert_eq!(events[..4], ["started 0 0", "ended 0 0 failed", "started 1 0", "ended 1 0 failed"]);
    assert_eq!((outcome.failed, outcome.interrupted), (6, false));
    let statuses: Vec<Status> = outcome.cells.iter().map(|r| r.status).collect();
    assert_eq!(statuses, [Status::Failed; 3]);
    assert_eq!(outcome.cells[0].reason.as_deref(), Some("so it was decided, in round 1"));
}

#[test]
fn one_failed_run_spoils_neither_the_sweep_nor_its_cell() {
    let (_dir, store) = store();
    let executor = mock(|r| if (r.cell, r.round) == (1, 0) { Status::Failed } else { Status::Ok });
    let (outcome, _) = sweep(&experiment(three(), 3), &store, &executor);
    assert_eq!(executor.ran().len(), 9);
    assert_eq!(outcome.failed, 1);
    assert!(outcome.cells.iter().all(|r| r.status == Status::Ok && r.metrics.is_some()));
    assert_eq!(outcome.cells[0].runs.len(), 3);
    let architectures: Vec<String> =
        outcome.cells.iter().map(|r| r.spec.architecture.to_string()).collect();
    assert_eq!(architectures, ["standard", "ladder", "parallel"]);
}

#[test]
fn what_was_interrupted_resumes_where_it_stopped() {
    let (_dir, store) = store();
    let experiment = experiment(three(), 2);
    let cancel = Cancel::default();
    let interrupting = mock(|r| {
        if (r.cell, r.round) == (1, 1) {
            cancel.all();
            Status::Interrupted
        } else {
            Status::Ok
        }
    });
    let (outcome, events) = sweep_until(&experiment, &store, &interrupting, &cancel);
    assert!(outcome.interrupted);
    assert_eq!(events.last().unwrap(), "ended 1 1 interrupted");
    // the cell that ended well in round 0 still has its numbers
    assert!(outcome.cells.iter().all(|r| r.status == Status::Ok));

    let again = mock(|_| Status::Ok);
    let (outcome, events) = sweep(&experiment, &store, &again);
    assert_eq!(again.ran(), [(1, 1), (2, 1)], "only what was not finished");
    assert_eq!(events[..4], ["settled 0 0 ok", "settled 1 0 ok", "settled 2 0 ok", "settled 0 1 ok"]);
    assert!(!outcome.interrupted);
    assert!(outcome.cells.iter().all(|r| r.runs.len() == 2));

    let nothing = mock(|_| Status::Ok);
    sweep(&experiment, &store, &nothing);
    assert_eq!(nothing.ran(), []);
}

#[test]
fn an_interrupted_repetition_goes_on_with_what_it_has_not_repeated() {
    let (_dir, store) = store();
    let experiment = experiment(three(), 2);
    sweep(&experiment, &store, &mock(|_| Status::Ok));
    let cancel = Cancel::default();
    let again = SweepSelection::Again(store.now().parse().unwrap());
    let interrupting = mock(|r| match (r.cell, r.round) {
        (2, 0) => {
            cancel.all();
            Status::Interrupted
        }
        _ => Status::Ok,
    });
    sweep_some(&experiment, &store, &interrupting, again, &cancel);
    let rest = mock(|_| Status::Ok);
    let (outcome, _) = sweep_some(&experiment, &store, &rest, again, &Cancel::default());
    assert_eq!(rest.ran(), [(2, 0), (0, 1), (1, 1), (2, 1)]);
    // and its runs replace those of the first time
    assert!(outcome.cells.iter().all(|cell| cell.runs.len() == 2));
    let pooled = table::aggregate(&store.list().unwrap().records);
    assert!(pooled.iter().all(|cell| cell.runs.len() == 2), "{pooled:?}");
}

#[test]
fn a_paused_sweep_ends_its_run_and_starts_no_other_until_it_goes_on() {
    let (_dir, store) = store();
    let cancel = Cancel::default();
    let executor = mock(|r| {
        if r.cell == 1 {
            cancel.pause();
            let cancel = cancel.clone();
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(120));
                cancel.resume();
            });
        }
        Status::Ok
    });
    let began = std::time::Instant::now();
    let (outcome, events) = sweep_until(&experiment(three(), 1), &store, &executor, &cancel);
    assert!(began.elapsed().as_millis() >= 120 && !outcome.interrupted);
    assert_eq!(
        events[2..8],
        ["started 1 0", "ended 1 0 ok", "paused", "resumed", "started 2 0", "ended 2 0 ok"]
    );

    // what is cancelled does not wait
    let cancel = Cancel::default();
    let executor = mock(|_| {
        cancel.pause();
        cancel.all();
        Status::Interrupted
    });
    let (outcome, events) = sweep_until(&experiment(three(), 2), &store, &executor, &cancel);
    assert!(outcome.interrupted && !events.contains(&"paused".to_owned()));
}

#[test]
fn only_what_failed_is_run_again_where_that_was_asked_for() {
    let (_dir, store) = store();
    let cancel = Cancel::default();
    let experiment = experiment(three(), 2);
    // cell 1 fails once, cell 2 is interrupted in round 1 and everything ends
    let executor = mock(|r| match (r.cell, r.round) {
        (1, 0) => Status::Failed,
        (2, 0) => {
            cancel.all();
            Status::Interrupted
        }
        _ => Status::Ok,
    });
    sweep_until(&experiment, &store, &executor, &cancel);
    assert_eq!(executor.ran(), [(0, 0), (1, 0), (2, 0)]);

    let retried = mock(|r| if r.cell == 1 { Status::Ok } else { Status::Failed });
    let retry = |executor: &dyn Executor| {
        sweep_some(&experiment, &store, executor, SweepSelection::Failed, &Cancel::default())
    };
    let (outcome, _) = retry(&retried);
    assert_eq!(retried.ran(), [(1, 0), (2, 0)], "round 1 was never run, and is not now");
    assert_eq!((outcome.failed, outcome.interrupted), (1, false));
    let statuses: Vec<Status> = outcome.cells.iter().map(|r| r.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::Ok, Status::Failed]);

    let last = mock(|_| Status::Ok);
    retry(&last);
    assert_eq!(last.ran(), [(2, 0)], "what ended well since then is not run again");
    let nothing = mock(|_| Status::Ok);
    retry(&nothing);
    assert_eq!(nothing.ran(), []);
}

#[test]
fn cells_without_a_run_say_whether_they_were_cancelled_or_not_meant() {
    let (_dir, store) = store();
    let cancel = Cancel::default();
    let experiment = experiment(three(), 1);
    // cells 0 and 1 fail, cell 2 is not reached
    let executor = mock(|r| {
        if r.cell == 1 {
            cancel.all();
        }
        Status::Failed
    });
    sweep_until(&experiment, &store, &executor, &cancel);
    assert_eq!(executor.ran(), [(0, 0), (1, 0)]);
    let cancel = Cancel::default();
    let retried = mock(|_| {
        cancel.all();
        Status::Interrupted
    });
    let (outcome, _) = sweep_some(&experiment, &store, &retried, SweepSelection::Failed, &cancel);
    assert_eq!(retried.ran(), [(0, 0)]);
    let reasons: Vec<&str> = outcome.cells.iter().filter_map(|r| r.reason.as_deref()).collect();
    assert_eq!(
        reasons[1..],
        ["cancelled before it ran", "only failed cells are run again, and it did not fail"]
    );
}

#[test]
fn cells_that_were_not_reached_have_a_record_too() {
    let (_dir, store) = store();
    let cancel = Cancel::default();
    let executor = mock(|_| {
        cancel.all();
        Status::Interrupted
    });
    let (outcome, _) = sweep_until(&experiment(three(), 3), &store, &executor, &cancel);
    assert_eq!(executor.ran(), [(0, 0)]);
    assert_eq!(outcome.cells.len(), 3);
    assert!(outcome.cells.iter().all(|r| r.status == Status::Interrupted && !r.run.is_empty()));
    assert_eq!(outcome.cells[2].reason.as_deref(), Some("cancelled before it ran"));
}

#[test]
fn one_cell_can_be_cancelled_in_all_rounds() {
    let (_dir, store) = store();
    let cancel = Cancel::default();
    let executor = mock(|r| {
        cancel.cell(1);
        if r.cell == 1 { Status::Interrupted } else { Status::Failed }
    });
    let (outcome, _) = sweep_until(&experiment(three(), 2), &store, &executor, &cancel);
    assert_eq!(executor.ran(), [(0, 0), (2, 0), (0, 1), (2, 1)]);
    assert!(!outcome.interrupted, "the others ran to their end");
    assert_eq!(outcome.cells[1].status, Status::Interrupted);
}

#[test]
fn a_restored_cell_runs_in_the_rounds_that_were_not_reached() {
    let (_dir, store) = store();
    let cancel = Cancel::default();
    let executor = mock(|r| {
        match (r.cell, r.round) {
            (0, 0) => [1, 2].into_iter().for_each(|cell| cancel.cell(cell)),
            (0, 1) => cancel.restore_cell(2),
            _ => {}
        }
        Status::Failed
    });
    sweep_until(&experiment(three(), 2), &store, &executor, &cancel);
    assert_eq!(executor.ran(), [(0, 0), (0, 1), (2, 1)]);
}

#[test]
fn cells_that_cannot_run_are_told_once_and_not_stored() {
    let (_dir, store) = store();
    let mut cells = three();
    cells[0].feasibility = Feasibility::Skipped("TP 3 does not divide 32 heads (32 mod 3 = 2)".into());
    cells[2].feasibility = Feasibility::Oom("weights 1 GB + ...".into());
    let executor = mock(|_| Status::Failed);
    let (outcome, events) = sweep(&experiment(cells.clone(), 2), &store, &executor);
    assert_eq!(executor.ran(), [(1, 0), (1, 1)]);
    assert_eq!(events[..2], ["settled 0 0 skipped", "settled 2 0 oom"]);
    assert_eq!(events.len(), 6);
    assert_eq!(outcome.cells[0].reason.as_deref(), Some("TP 3 does not divide 32 heads (32 mod 3 = 2)"));
    assert_eq!(outcome.cells[0].run, format!("skipped-{}", cells[0].spec.key()));
    assert_eq!(outcome.cells[2].status, Status::Oom);
    assert_eq!(store.list().unwrap().records.len(), 2);
}

fn simulated(architecture: &str, batch: u32) -> Cell {
    let mut spec =
        Spec { backend: Backend::Sim, hardware: "h100_sxm".into(), batch, ..sample_spec(architecture) };
    spec.dtype = plan::DType::Bf16;
    Cell { spec, feasibility: Feasibility::Runs }
}

#[test]
fn simulations_run_here_in_order_as_one_batch_and_once() {
    let (_dir, store) = store();
    let cells: Vec<Cell> =
        (1..=20).map(|batch| simulated("ladder", batch)).chain([cell("standard")]).collect();
    let experiment = experiment(cells, 1);
    let executor = mock(|_| Status::Failed);
    let (outcome, events) = sweep(&experiment, &store, &executor);
    assert_eq!(executor.ran(), [(20, 0)], "only what is not simulated");
    let ended: Vec<String> = (0..20).map(|cell| format!("ended {cell} 0 ok")).collect();
    let events: Vec<String> =
        events.into_iter().filter(|line| line.starts_with("ended")).take(20).collect();
    assert_eq!(events, ended);
    assert_eq!(outcome.failed, 1);
    assert!(outcome.cells[..20].iter().all(|r| r.provenance == table::Provenance::Simulated));
    let batches: Vec<_> = std::fs::read_dir(store.dir().join("batches")).unwrap().collect();
    assert_eq!(batches.len(), 1);
    let (_, events) = sweep(&experiment, &store, &executor);
    assert_eq!(events[..20], (0..20).map(|cell| format!("settled {cell} 0 ok")).collect::<Vec<_>>());
}

#[test]
fn runs_that_another_experiment_left_are_known_to_be_of_both() {
    let (_dir, store) = store();
    let executor = mock(|_| Status::Ok);
    let first = experiment(vec![simulated("ladder", 1), simulated("ladder", 2), cell("standard")], 1);
    let second = Experiment {
        name: "second one".into(),
        ..experiment(vec![simulated("ladder", 2), simulated("ladder", 4), cell("standard")], 1)
    };
    sweep(&first, &store, &executor);
    sweep(&second, &store, &executor);
    sweep(&second, &store, &executor);
    let found = |run: &Record| {
        let experiments = store.annotations().of(&run.run).map(|a| a.experiments.clone());
        experiments.unwrap_or_default().into_iter().collect::<Vec<_>>()
    };
    for run in store.list().unwrap().records {
        let shared = run.spec.batch == 2 || run.spec == cell("standard").spec;
        let wanted: &[&str] = if shared { &["second one"] } else { &[] };
        assert_eq!(found(&run), wanted, "{}", run.spec.label());
    }
    // once: what is known is not written again
    let text = std::fs::read_to_string(store.dir().join("annotations.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_simulation_that_fails_does_not_stop_the_others() {
    let (_dir, store) = store();
    let mut broken = simulated("ladder", 1);
    broken.spec.hardware = "no_such_gpu".into();
    let cells = vec![broken, simulated("ladder", 2)];
    let (outcome, events) = sweep(&experiment(cells, 1), &store, &mock(|_| Status::Failed));
    assert_eq!(events[2..], ["ended 0 0 failed", "ended 1 0 ok"]);
    assert_eq!(outcome.failed, 1);
    assert!(outcome.cells[0].reason.as_deref().unwrap().contains("no_such_gpu"));
}

#[test]
fn one_cell_runs_as_often_as_asked_whatever_is_stored() {
    let (_dir, store) = store();
    for _ in 0..2 {
        let executor = mock(|_| Status::Ok);
        let (spec, cancel) = (sample_spec("ladder"), Cancel::default());
        let record =
            run_one(&spec, &run::GridContext::default(), 2, &store, &executor, &cancel, &mut |_| ())
                .unwrap();
        assert_eq!(executor.ran(), [(0, 0), (0, 1)]);
        assert_eq!((record.status, record.experiment), (Status::Ok, None));
    }
    let mut impossible = sample_spec("ladder");
    impossible.tp = 3;
    let executor = mock(|_| Status::Ok);
    let record = run_one(
        &impossible,
        &run::GridContext::default(),
        1,
        &store,
        &executor,
        &Cancel::default(),
        &mut |_| (),
    )
    .unwrap();
    assert_eq!(record.status, Status::Skipped);
    assert!(record.reason.unwrap().contains("8 mod 3 = 2"));
    assert_eq!(executor.ran(), []);
}

#[test]
fn one_simulated_cell_is_stored_once_a_round() {
    let (_dir, store) = store();
    let executor = mock(|_| unreachable!("it is simulated"));
    let (spec, shared, cancel) =
        (simulated("ladder", 1).spec, run::GridContext::default(), Cancel::default());
    let mut events = Vec::new();
    let mut emit = |event| {
        events.push(match event {
            SweepEvent::RunStarted { round, run, .. } => format!("started {round} {run}"),
            SweepEvent::RunEnded { round, record, .. } => format!("ended {round} {}", record.run),
            event => format!("{event:?}"),
        });
    };
    let record = run_one(&spec, &shared, 2, &store, &executor, &cancel, &mut emit).unwrap();
    let stored = store.list().unwrap().records;
    assert_eq!((record.status, record.runs.len(), stored.len()), (Status::Ok, 2, 2));
    let expected: Vec<String> = (0..2)
        .flat_map(|round| {
            let run = &stored.iter().find(|record| record.round == round).unwrap().run;
            [format!("started {round} {run}"), format!("ended {round} {run}")]
        })
        .collect();
    assert_eq!(events, expected);
    cancel.all();
    let record = run_one(&spec, &shared, 1, &store, &executor, &cancel, &mut |_| ()).unwrap();
    assert_eq!((record.status, store.list().unwrap().records.len()), (Status::Interrupted, 2));
}

#[test]
fn a_simulated_sweep_stores_the_same_rows_on_any_number_of_threads() {
    let cells: Vec<Cell> =
        (1..=150).flat_map(|b| [simulated("ladder", b), simulated("standard", b)]).collect();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (_dir, store) = store();
            let simulations = Simulations {
                cells: cells.iter().map(|cell| &cell.spec).enumerate().collect(),
                // what the machine did at that moment is part of the environment
                environment: Default::default(),
                experiment: None,
                round: 0,
            };
            let (mut started, mut stored) = (Vec::new(), Vec::new());
            let emit = &mut |cell, event| match event {
                SimulationEvent::Started(_) => started.push(cell),
                SimulationEvent::Stored(_) => stored.push(cell),
            };
            simulations.run(&Simulator::default(), &store, &Cancel::default(), emit).unwrap();
            let all: Vec<usize> = (0..cells.len()).collect();
            assert_eq!((started, stored), (all.clone(), all));
            store.list().unwrap().records
        })
    };
    let one = on(1);
    assert!(one == on(2), "rows differ on 2 threads");
    assert!(one == on(5), "rows differ on 5 threads");
}

#[test]
fn cells_are_told_in_order_though_simulations_come_before_runs() {
    let (_dir, store) = store();
    let cells = vec![simulated("ladder", 1), cell("ladder"), simulated("ladder", 2), cell("standard")];
    let experiment = experiment(cells, 2);
    let (outcome, events) = sweep(&experiment, &store, &mock(|_| Status::Ok));
    assert_eq!(outcome.cells.iter().map(|r| r.runs.len()).collect::<Vec<_>>(), [2; 4]);
    assert_eq!(events[..4], ["started 0 0", "started 2 0", "ended 0 0 ok", "ended 2 0 ok"]);
    let (again, events) = sweep(&experiment, &store, &mock(|_| Status::Failed));
    assert_eq!(events.len(), 8, "all were finished: {events:?}");
    for (first, second) in outcome.cells.iter().zip(&again.cells) {
        assert_eq!(first.metrics, second.metrics);
        assert_eq!(first.environment, second.environment);
    }
}
