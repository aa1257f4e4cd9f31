//! Experiments, runs, traces and sweeps made by hand, and a driver that presses keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use crate::face::tui::context::Snapshot;
use crate::face::tui::context::{Context, Opening, Request};
use crate::face::tui::screen::{State, Tab};
use crate::face::tui::screens::compare::compared::{AxisComparison, KeptCells};
use crate::face::tui::screens::compare::state::{ComparisonFindings, ComparisonRequest};
use crate::face::tui::screens::experiments::state::ExperimentEntry;
use crate::face::tui::screens::timeline::state::TraceIndex;
use crate::face::tui::theme::Theme;
use crate::face::tui::update::update;
use crate::face::tui::update::{BackgroundJob, Effect, Message, SweepEnd};
use crate::face::tui::view;
use lab::sweep::{Cell, Experiment, SweepEvent};
use plan::{Architecture, Cost, DType, Lane, Phase, Quantity};
use run::Feasibility;
use run::RunEvent;
use study::analysis::{Axes, Flag, FlagKind, ParetoPoint};
use table::{Backend, Link, Metrics, Overlap, P2p, Percentiles, Record, Sample, Spec, Status};
use trace::{ImportReport, OperationInfo, Range, Span, Trace, TraceMeta, TraceStream};

pub fn spec(architecture: &str, tp: u32, p2p: P2p, backend: Backend) -> Spec {
    let emulated = Link::Emulated { alpha_us: 100.0, gb_s: 20.0 };
    Spec {
        architecture: architecture.parse().unwrap_or(Architecture::Standard),
        model: "tiny".into(),
        dtype: DType::F32,
        tp,
        batch: 4,
        prompt_tokens: 32,
        output_tokens: 33,
        p2p,
        backend,
        link: if backend == Backend::Cpu { emulated } else { Link::Native },
        hardware: if backend == Backend::Cpu { "host".into() } else { "h100_sxm".into() },
        samples: 4,
        warmup: 1,
        ..Spec::default()
    }
}

pub fn experiment() -> Experiment {
    let cell = |name, tp, feasibility| Cell { spec: spec(name, tp, P2p::On, Backend::Cpu), feasibility };
    Experiment {
        name: "quickstart".into(),
        path: "experiments/quickstart.toml".into(),
        question: Some("How much of decoding is exposed communication, and does ladder hide it?".into()),
        text: "question = \"How much?\"\nbackend = \"cpu\"\n[grid]\ntp = [2, 3, 64]\n".into(),
        rounds: 2,
        axes: vec!["architecture".into(), "tp".into()],
        cells: vec![
            cell("standard", 2, Feasibility::Runs),
            cell("ladder", 2, Feasibility::Runs),
            cell(
                "ladder",
                3,
                Feasibility::Skipped("TP 3 does not divide 8 heads: 8 = 2 x 3 + 2".into()),
            ),
            cell(
                "ladder",
                64,
                Feasibility::Oom("weights 70.6 GB + KV cache 9.4 GB = 80.0 GB > 64 GB".into()),
            ),
        ],
        ..Experiment::default()
    }
}

pub fn entries() -> Vec<ExperimentEntry> {
    let good = experiment();
    let broken =
        base::error::Error::input_help("unknown key 'architectur'", "did you mean 'architecture'?");
    vec![
        ExperimentEntry::new("quickstart", "built in", good.text.clone(), Ok(good)),
        ExperimentEntry::new(
            "broken",
            "experiments/broken.toml",
            "architectur = 1\n".into(),
            Err(broken),
        ),
    ]
}

pub fn record(run: &str, spec: Spec, tokens_per_s: f64) -> Record {
    let tp = f64::from(spec.tp);
    let tpot = 4000.0 / tokens_per_s;
    Record {
        run: run.into(),
        metrics: Some(Metrics {
            prefill_ms: tpot,
            decode_ms: tpot * 32.0,
            completion_ms: tpot * 33.0,
            tpot_ms: Percentiles { p50: tpot, p90: tpot * 1.1, p99: tpot * 1.5 },
            tokens_per_s,
            tokens_per_s_per_gpu: tokens_per_s / tp,
            samples: 8,
            tokens_per_s_ci95: Some([tokens_per_s * 0.9, tokens_per_s * 1.1]),
            memory_bytes_per_rank: 12_300_000,
            ..Metrics::default()
        }),
        overlap: Some(Overlap {
            comm_ms: 10.0,
            exposed_comm_ms: 2.5,
            overlap_pct: (spec.tp > 1).then_some(75.0),
            compute_ms: 30.0,
            idle_ms: 1.0,
            peer_wait_ms: None,
            split: None,
        }),
        environment: [("host".into(), "bench-1".into()), ("cores".into(), 16.into())].into(),
        trace: Some(format!("{run}/trace.parquet")),
        created: "2026-01-02T03:04:05Z".into(),
        experiment: Some("quickstart".into()),
        warnings: vec!["clocks throttled in sample 3".into()],
        ..Record::new(spec, Status::Ok, None)
    }
}

pub fn records() -> Vec<Record> {
    let mut failed = record("20260102-0304-4", spec("desync:2", 2, P2p::On, Backend::Cpu), 1.0);
    failed.status = Status::Failed;
    failed.reason = Some("rank 1 died of signal 9".into());
    (failed.metrics, failed.overlap, failed.trace) = (None, None, None);
    vec![
        record("20260102-0304-1", spec("standard", 2, P2p::On, Backend::Cpu), 800.0),
        record("20260102-0304-2", spec("ladder", 2, P2p::On, Backend::Cpu), 1000.0),
        record("20260102-0304-3", spec("ladder", 2, P2p::Off, Backend::Cpu), 900.0),
        failed,
        record("batch-1:0", spec("upper-bound", 8, P2p::On, Backend::Sim), 16_000.0),
        record("batch-1:1", spec("parallel", 1, P2p::On, Backend::Sim), 900.0),
    ]
}

pub fn points() -> Vec<ParetoPoint> {
    let mut all = records();
    let mut slow = record("20260102-0304-0", spec("standard", 2, P2p::On, Backend::Cpu), 160.0);
    slow.spec.batch = 8;
    if let Some(metrics) = &mut slow.metrics {
        (metrics.completion_ms, metrics.tokens_per_s_per_gpu) = (2400.0, 480.0);
    }
    all.push(slow);
    study::analysis::pareto(&all)
}

/// Rounds of a cell as an emulated link would give them: three rounds that drift, `samples` each.
pub fn rounds(name: &str, spec: &Spec, step_ms: f64, samples: usize) -> Vec<Record> {
    let steps = spec.output_tokens as usize - 1;
    let of_round = |round: u32| {
        let drift = 1.0 + 0.1 * f64::from(round);
        let sample = |i: usize| {
            let step = step_ms * drift * (1.0 + 0.01 * (i as f64 - 1.0));
            let decode_ms = step * steps as f64;
            Sample { prefill_ms: step, decode_ms, steps_ms: vec![step; steps], overlap: None }
        };
        let samples: Vec<Sample> = (0..samples).map(sample).collect();
        let mut record = record(&format!("{name}-{round}"), spec.clone(), 1.0);
        record.metrics = table::metrics(spec, &[&samples], 12_300_000);
        let exposed = match spec.architecture {
            Architecture::Standard => 0.4,
            Architecture::UpperBound => 0.0,
            _ => 0.1,
        };
        let decode_ms = step_ms * steps as f64;
        let communicates = spec.architecture != Architecture::UpperBound;
        record.overlap = Some(Overlap {
            comm_ms: if communicates { 0.4 * decode_ms } else { 0.0 },
            exposed_comm_ms: exposed * decode_ms,
            overlap_pct: communicates.then(|| 100.0 * (1.0 - exposed / 0.4)),
            compute_ms: 0.9 * decode_ms,
            idle_ms: 0.02 * decode_ms,
            peer_wait_ms: None,
            split: None,
        });
        (record.round, record.samples, record.warnings) = (round, samples.into(), Vec::new());
        record
    };
    (0..3).map(of_round).collect()
}

/// What the comparison of [`comparison`] is made of.
pub fn compared() -> Vec<Record> {
    let cell = |architecture, step_ms, samples| {
        rounds(architecture, &spec(architecture, 2, P2p::On, Backend::Cpu), step_ms, samples)
    };
    [
        cell("standard", 5.0, 3),
        cell("ladder", 4.0, 3),
        cell("parallel", 6.25, 3),
        cell("desync:2", 4.95, 1),
        cell("upper-bound", 3.4, 3),
    ]
    .concat()
}

pub fn comparison() -> AxisComparison {
    let snapshot = Arc::new(Snapshot::new(compared(), Vec::new()));
    let asked = ComparisonRequest { axis: study::analysis::Axis::ARCHITECTURE, baseline: None };
    let mut compared =
        AxisComparison::new(&KeptCells::default().of(&snapshot, Path::new("runs")), &asked).unwrap();
    let pair = compared.report.pairs.iter().find(|pair| pair.value == "parallel");
    compared.report.flags.push(Flag {
        text: "tp 4 is slower than tp 2 for parallel b4 p2p-off".into(),
        runs: pair.map(|pair| pair.run.clone()).into_iter().collect(),
        kind: FlagKind::Other,
    });
    compared
}

/// [`trace`] on a slower machine, without the last decode step.
pub fn slower() -> TraceIndex {
    let mut trace = trace().trace;
    trace.spans.retain(|span| span.step < 3);
    for span in &mut trace.spans {
        let times = [&mut span.ready_ns, &mut span.start_ns, &mut span.end_ns];
        times.into_iter().for_each(|time| *time = *time * 13 / 10);
        if span.last_arrival_ns >= 0 {
            span.last_arrival_ns = span.last_arrival_ns * 13 / 10;
        }
    }
    TraceIndex::new("slower".into(), trace)
}

/// Two ranks, prefill and four decode steps of norm, up, all_reduce; rank 1 arrives late.
pub fn trace() -> TraceIndex {
    let operation = |name: &str, phase, lane, module: &str, waits_for: Vec<u32>| OperationInfo {
        name: name.into(),
        phase,
        kind: if lane == Lane::Comm { "all_reduce".into() } else { "matmul".into() },
        module: module.into(),
        layer: Some(0),
        lane,
        shape: "[rows, 64] x [64, 160]".into(),
        cost: Cost {
            flops: Quantity { row: 20_480, ..Quantity::ZERO },
            bytes_read: Quantity { fixed: 20_480, row: 256, ..Quantity::ZERO },
            bytes_written: Quantity { row: 640, ..Quantity::ZERO },
            message_bytes: Quantity { row: if lane == Lane::Comm { 256 } else { 0 }, ..Quantity::ZERO },
            routed: None,
        },
        origins: vec![name.into()],
        waits_for,
        collective: None,
    };
    let mut operations = Vec::new();
    for phase in [Phase::Prefill, Phase::Decode] {
        let base = operations.len() as u32;
        let name = |tail: &str| format!("{}/L0/{tail}", phase.as_str());
        operations.push(operation(&name("attn/qkv"), phase, Lane::Compute, "attn", vec![]));
        operations.push(operation(&name("mlp/up"), phase, Lane::Compute, "mlp", vec![base]));
        operations.push(operation(&name("mlp/reduce"), phase, Lane::Comm, "mlp", vec![base + 1]));
    }
    let mut spans = Vec::new();
    let mut clock = 5_000;
    for step in 0..5u32 {
        let (phase, number, base) = match step {
            0 => (Phase::Prefill, 0, 0),
            n => (Phase::Decode, n - 1, 3),
        };
        for rank in 0..2 {
            let late = i64::from(rank) * 2_000;
            let mut span = |lane, operation: u32, start: i64, end: i64, arrival: i64| {
                spans.push(Span {
                    phase,
                    step: number,
                    rank,
                    lane,
                    operation: base + operation,
                    ready_ns: start - 300,
                    start_ns: start,
                    end_ns: end,
                    last_arrival_ns: arrival,
                    ..Span::EMPTY
                });
            };
            span(Lane::Compute, 0, clock, clock + 10_000, -1);
            span(Lane::Compute, 1, clock + 10_000 + late, clock + 30_000 + late, -1);
            span(Lane::Comm, 2, clock + 30_000 + late, clock + 45_000, clock + 32_000);
        }
        clock += 46_000;
    }
    let spec = spec("standard", 2, P2p::On, Backend::Cpu);
    let provenance = spec.provenance();
    let meta = TraceMeta {
        run: Some("20260102-0304-1".into()),
        spec: Some(spec),
        clock: "one clock".into(),
        recorder: "own".into(),
        ..TraceMeta::new(provenance, 2)
    };
    TraceIndex::new(
        "20260102-0304-1  tiny standard tp2".into(),
        Trace { meta, operations, spans, ranges: Vec::new() },
    )
}

/// What a profiler recorded: two ranks, each a process with a device, streams 7 (kernels and a copy) and
/// 13 (collectives, of which the second is exposed), three profiler steps with a layer each.
pub fn imported() -> TraceIndex {
    let operation = |name: &str, kind: &str, lane| OperationInfo {
        lane,
        ..OperationInfo::imported(name.into(), kind)
    };
    let operations = vec![
        operation("void cutlass::gemm_kernel<128, 64>(int)", "kernel", Lane::Compute),
        operation("Memcpy DtoD (Device -> Device)", "memcpy", Lane::Compute),
        operation("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "all_reduce", Lane::Comm),
    ];
    let mut streams = Vec::new();
    let (mut spans, mut ranges) = (Vec::new(), Vec::new());
    for rank in 0..2u32 {
        for id in [7, 13] {
            let process = Some(4700 + i64::from(rank));
            streams.push(TraceStream { rank, process, device: Some(rank.into()), id, context: None });
        }
        for step in 0..3u32 {
            let at = 1_000_000 + i64::from(step) * 100_000 + i64::from(rank) * 500;
            let range = |depth, name, start_ns, end_ns| Range {
                rank,
                on_device: false,
                thread: 0,
                depth,
                name,
                start_ns,
                end_ns,
            };
            ranges.push(range(0, step, at - 5_000, at + 90_000));
            ranges.push(range(1, 3, at, at + 60_000));
            let mut span = |lane, stream: u32, operation, start: i64, length: i64| {
                spans.push(Span {
                    step,
                    rank,
                    lane,
                    stream: (rank * 2 + stream) as u16,
                    operation,
                    ready_ns: at + start - 4_000,
                    start_ns: at + start,
                    end_ns: at + start + length,
                    ..Span::EMPTY
                });
            };
            span(Lane::Compute, 0, 0, 0, 30_000);
            span(Lane::Compute, 0, 0, 32_000, 20_000);
            span(Lane::Compute, 0, 1, 53_000, 6_000);
            span(Lane::Comm, 1, 2, 10_000, 15_000);
            span(Lane::Comm, 1, 2, 55_000, 25_000);
        }
    }
    ranges.sort_by_key(|r| (r.rank, r.thread, r.start_ns, std::cmp::Reverse(r.end_ns)));
    spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
    let names = ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2", "layer 0"];
    let import = ImportReport { format: "Kineto JSON".into(), ..ImportReport::default() };
    let meta = TraceMeta {
        clock: "one clock".into(),
        recorder: "kineto".into(),
        streams,
        range_names: names.map(String::from).into(),
        import: Some(import),
        ..TraceMeta::new(table::Provenance::Measured, 2)
    };
    TraceIndex::new("vllm.json.gz  Kineto JSON".into(), Trace { meta, operations, spans, ranges })
}

/// What the sweep says.
pub fn news(event: SweepEvent) -> Message {
    Message::Request(Request::SweepNews(Box::new(event)))
}

/// The end of the sweep: how many of its runs failed, and whether it was cancelled.
pub fn ended(failed: usize, interrupted: bool) -> Message {
    Message::Request(Request::SweepEnded(Ok(SweepEnd { failed, interrupted })))
}

/// Drives a workbench in tests: sends keys, answers questions, looks at frames.
pub struct Driver {
    pub state: State,
}

impl Driver {
    /// A workbench in a window of this size that has read nothing yet.
    pub fn empty(columns: u16, rows: u16) -> Self {
        Self {
            state: State::new(Context::new(PathBuf::from("runs"), Theme::new(true), (columns, rows))),
        }
    }

    /// A workbench that has read everything and shows all runs.
    pub fn full(columns: u16, rows: u16) -> Self {
        let mut driver = Self::empty(columns, rows);
        driver.state.cx.scope.is_all = true;
        driver.read(entries());
        let stored = Arc::new(Snapshot::new(records(), Vec::new()));
        driver.send(Message::Runs(Ok(stored.clone())));
        driver.state.pareto.set(Axes::default(), points(), stored);
        let compare = &mut driver.state.compare;
        compare.set(Ok(Arc::new(comparison())));
        compare.answer = compare.answer_of().map(|of| {
            let answer = ComparisonFindings { winners: None, ..of.0.answer(&of.1) };
            (of, answer)
        });
        driver.show(vec![trace()]);
        driver
    }

    /// Opens traces as if they had been asked for, and answers what is asked about them.
    pub fn show(&mut self, traces: Vec<TraceIndex>) {
        let (timeline, cx) = (&mut self.state.timeline, &mut self.state.cx);
        timeline.show(traces.into_iter().map(Arc::new).collect(), Opening::Alone(None), cx);
        // tests count steps from the first one
        if let Some(view) = &mut timeline.view {
            view.reopen_at_first_step();
        }
        let (columns, rows) = self.state.cx.size;
        let effects = self.send(Message::Resize(columns, rows));
        self.answer(effects);
    }

    /// Answers what screens ask for, until they ask for nothing more. Overlaps are made up.
    pub fn answer(&mut self, mut effects: Vec<Effect>) {
        while let Some(effect) = effects.pop() {
            match effect {
                // slow work is not waited for; files of this directory stay as they are
                Effect::Ask(task)
                    if !["break-even", "check", "look", "files", "rest", "save"]
                        .contains(&task.slot.name) =>
                {
                    effects.extend(self.send(Message::Answered(task.run())));
                }
                Effect::Do(BackgroundJob(work)) => effects.extend(self.send(Message::Notified(work()))),
                _ => {}
            }
        }
        for pane in self.state.timeline.view.iter_mut().flat_map(|view| &mut view.panes) {
            for (part, overlap_pct) in &mut pane.overlap {
                *overlap_pct = Some(if part.is_some() { 68.9 } else { 71.2 });
            }
        }
    }

    /// Shows experiments as if their files had been read.
    pub fn read(&mut self, entries: Vec<ExperimentEntry>) -> Vec<Effect> {
        self.state.experiments.set(entries, self.state.cx.stored.as_deref());
        self.send(Message::Resize(self.state.cx.size.0, self.state.cx.size.1))
    }

    pub fn send(&mut self, message: Message) -> Vec<Effect> {
        update(&mut self.state, message)
    }

    pub fn press(&mut self, code: KeyCode) -> Vec<Effect> {
        self.send(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    /// Presses each character; the effects of all of them.
    pub fn keys(&mut self, text: &str) -> Vec<Effect> {
        text.chars().flat_map(|c| self.press(KeyCode::Char(c))).collect()
    }

    /// Presses a key and answers what is asked for.
    pub fn tap(&mut self, code: KeyCode) {
        let effects = self.press(code);
        self.answer(effects);
    }

    /// Presses each character and answers what is asked for after each.
    pub fn taps(&mut self, text: &str) {
        text.chars().for_each(|c| self.tap(KeyCode::Char(c)));
    }

    /// Presses a key with modifiers and answers what is asked for.
    pub fn chord(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        let effects = self.send(Message::Key(KeyEvent::new(code, modifiers)));
        self.answer(effects);
    }

    /// Moves or presses the mouse at a cell of the window.
    pub fn mouse(&mut self, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Effect> {
        self.mouse_with(kind, (column, row), KeyModifiers::NONE)
    }

    pub fn mouse_with(
        &mut self,
        kind: MouseEventKind,
        (column, row): (u16, u16),
        modifiers: KeyModifiers,
    ) -> Vec<Effect> {
        self.send(Message::Mouse(MouseEvent { kind, column, row, modifiers }))
    }

    pub fn enter(&mut self) -> Vec<Effect> {
        self.press(KeyCode::Enter)
    }

    /// A sweep that has settled two cells, finished one, and is in the middle of another.
    pub fn with_sweep(mut self) -> Self {
        self.state.cx.tab = Tab::Experiments;
        self.state.experiments.list.selected = 0;
        self.send(Message::Clock(1_000));
        self.keys("r");
        let settled = |cell: usize, status: Status, why: &str| {
            let mut record = record("-", experiment().cells[cell].spec.clone(), 1.0);
            (record.status, record.reason, record.metrics) = (status, Some(why.into()), None);
            SweepEvent::CellSettled { cell, round: 0, record: Box::new(record) }
        };
        let sample = Sample { prefill_ms: 4.0, decode_ms: 128.0, steps_ms: Vec::new(), overlap: None };
        let done = record("20260102-0304-9", experiment().cells[0].spec.clone(), 800.0);
        let run = |event| SweepEvent::Run { cell: 1, round: 0, event };
        let events = [
            (1_000, settled(2, Status::Skipped, "TP 3 does not divide 8 heads")),
            (1_000, settled(3, Status::Oom, "80.0 GB > 64 GB")),
            (1_000, SweepEvent::RunStarted { cell: 0, round: 0, run: "20260102-0304-9".into() }),
            (9_000, SweepEvent::RunEnded { cell: 0, round: 0, record: Box::new(done) }),
            (9_000, SweepEvent::RunStarted { cell: 1, round: 0, run: "20260102-0304-10".into() }),
            (10_000, SweepEvent::Log { cell: 1, line: "loading 12 MB of weights".into() }),
            (13_000, run(RunEvent::SampleDone { index: 1, of: 4, sample })),
            (13_000, run(RunEvent::Phase { name: "sample 3/4".into() })),
        ];
        for (at, event) in events {
            self.send(Message::Clock(at));
            self.send(news(event));
        }
        self
    }

    pub fn buffer(&self) -> Buffer {
        let (columns, rows) = self.state.cx.size;
        let mut terminal =
            Terminal::new(TestBackend::new(columns, rows)).expect("a test terminal opens");
        terminal
            .draw(|frame| view::draw(frame.buffer_mut(), &self.state))
            .expect("a test terminal draws");
        terminal.backend().buffer().clone()
    }

    /// Asserts that the window contains a text.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        let screen = self.screen();
        assert!(screen.contains(text), "'{text}' is missing:\n{screen}");
    }

    /// Asserts that the window does not contain a text.
    #[track_caller]
    pub fn hides(&self, text: &str) {
        let screen = self.screen();
        assert!(!screen.contains(text), "'{text}' is shown:\n{screen}");
    }

    /// The window as text.
    pub fn screen(&self) -> String {
        let buffer = self.buffer();
        let (columns, rows) = self.state.cx.size;
        (0..rows)
            .map(|y| {
                let line: String = (0..columns).map(|x| buffer[(x, y)].symbol()).collect();
                line.trim_end().to_string() + "\n"
            })
            .collect()
    }
}
