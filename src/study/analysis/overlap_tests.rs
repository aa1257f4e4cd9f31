//! Overlap against cases on paper (`tests/overlap/*.toml`: spans in, percentages out) and laws.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde::Deserialize;

use super::{StepTime, steps, trace_report};
use plan::{Lane, Phase};
use trace::overlap::intervals::clip;
use trace::overlap::{
    LaneNanoseconds, Selection, StepKey, decode_overlap, exposed_intervals, origin_ns, overlap,
};
use trace::testing::{span, trace};
use trace::{Span, Trace};

/// A case file: what happened, what is looked at, what must come out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Purpose of the case; shown when it fails.
    about: String,
    #[serde(default)]
    select: Window,
    /// The trace was imported.
    #[serde(default)]
    imported: bool,
    spans: Vec<Entry>,
    expect: Expected,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    phase: Option<Phase>,
    step: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    rank: u32,
    lane: Lane,
    /// Start and end (ns).
    ns: (i64, i64),
    /// The last peer's arrival (ns).
    arrived: Option<i64>,
    phase: Option<Phase>,
    #[serde(default)]
    step: u32,
    #[serde(default)]
    sample: u32,
    /// `memcpy` or `memset` for imported copies.
    kind: Option<String>,
    /// Time at which it was ready or launched (ns); its start if missing.
    ready: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Overlap of all ranks; missing where it must be null.
    overlap_pct: Option<f64>,
    /// Per rank: column name to number.
    ranks: Vec<BTreeMap<String, f64>>,
    /// Per rank, where the case is about idle time: column name to number.
    idle: Option<Vec<BTreeMap<String, f64>>>,
}

#[test]
fn cases_on_paper() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/overlap");
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 10, "cases are missing from {}", dir.display());
    for file in files {
        let case: Case = toml::from_str(&std::fs::read_to_string(&file).unwrap())
            .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let name = format!("{} ({})", file.display(), case.about);
        let (trace, selection) = (case.trace(), case.select.selection());
        let report = overlap(&trace, &selection);
        assert_eq!(report.all.overlap_pct, case.expect.overlap_pct, "{name}: overlap % of all ranks");
        assert_eq!(report.ranks.len(), case.expect.ranks.len(), "{name}: ranks");
        for (rank, expected) in report.ranks.iter().zip(&case.expect.ranks) {
            let json = serde_json::to_value(rank).unwrap();
            for (column, expected) in expected {
                let actual = json[column].as_f64();
                assert_eq!(actual, Some(*expected), "{name}: {column} of rank {:?}", rank.rank);
            }
            let pct_is_null = !expected.contains_key("overlap_pct");
            assert_eq!(rank.overlap_pct.is_none(), pct_is_null, "{name}: rank {:?}", rank.rank);
        }
        for (at, expected) in case.expect.idle.iter().flatten().enumerate() {
            let idle = serde_json::to_value(&trace_report(&trace, &selection).idle[at]).unwrap();
            for (column, expected) in expected {
                assert_eq!(idle[column].as_f64(), Some(*expected), "{name}: {column} of rank {at}");
            }
        }
    }
}

impl Case {
    fn trace(&self) -> Trace {
        let mut trace = trace(Vec::new());
        for entry in &self.spans {
            let mut one = span(entry.rank, entry.lane, entry.ns.0, entry.ns.1);
            one.phase = entry.phase.unwrap_or(Phase::Decode);
            one.step = entry.step;
            one.sample = entry.sample;
            one.last_arrival_ns = entry.arrived.unwrap_or(-1);
            one.ready_ns = entry.ready.unwrap_or(one.start_ns);
            if let Some(kind) = &entry.kind {
                one.operation = trace.operations.len() as u32;
                let mut operation = trace.operations[0].clone();
                operation.kind = kind.as_str().into();
                trace.operations.push(operation);
            }
            trace.spans.push(one);
        }
        // all ranks were recorded
        trace.meta.ranks = self.spans.iter().map(|entry| entry.rank + 1).max().unwrap_or(0);
        trace.meta.spec.iter_mut().for_each(|spec| spec.tp = trace.meta.ranks);
        trace.meta.import = self.imported.then(Default::default);
        trace
    }
}

impl Window {
    fn selection(&self) -> Selection {
        Selection {
            phase: self.phase,
            step: self.step,
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            ..Selection::default()
        }
    }
}

#[test]
fn an_empty_trace_has_no_ranks_and_no_percentage() {
    let report = overlap(&trace(Vec::new()), &Selection::default());
    assert!(report.ranks.is_empty());
    assert_eq!(report.all.overlap_pct, None);
    assert_eq!(decode_overlap(&[], 2, false), None);
}

#[test]
fn breakdown_shares_add_up_and_exposure_lies_with_communication() {
    let spans = vec![
        span(0, Lane::Compute, 0, 600),
        span(0, Lane::Comm, 400, 1000),
        span(1, Lane::Compute, 0, 1000),
        span(1, Lane::Comm, 400, 1000),
    ];
    let rows = overlap(&trace(spans), &Selection::default()).breakdown;
    let comm = rows.iter().find(|r| r.lane == "comm").unwrap();
    assert_eq!((comm.kind.as_str(), comm.count), ("all_reduce", 2));
    assert_eq!((comm.total_us, comm.exposed_us, comm.share), (0.6, 0.2, 1.0));
    let compute = rows.iter().find(|r| r.lane == "compute").unwrap();
    assert_eq!((compute.total_us, compute.exposed_us), (0.8, 0.0));
    assert_eq!(rows[0].lane, "compute", "the longest comes first");
}

#[test]
fn a_decode_overlap_is_averaged_over_ranks_and_samples() {
    let mut spans = vec![
        span(0, Lane::Compute, 0, 3_000_000),
        span(0, Lane::Comm, 2_000_000, 4_000_000),
        span(1, Lane::Compute, 0, 2_000_000),
        span(1, Lane::Comm, 2_000_000, 4_000_000),
        span(1, Lane::Compute, 5_000_000, 6_000_000),
    ];
    let one = decode_overlap(&spans, 2, false).unwrap();
    assert_eq!((one.comm_ms, one.exposed_comm_ms, one.overlap_pct), (2.0, 1.5, Some(25.0)));
    assert_eq!((one.compute_ms, one.idle_ms), (3.0, 0.5));
    // The same again an hour later: an average, and the hour is not idle time.
    let again: Vec<Span> = spans
        .iter()
        .map(|s| Span {
            sample: 1,
            start_ns: s.start_ns + 3_600_000_000_000,
            end_ns: s.end_ns + 3_600_000_000_000,
            ..*s
        })
        .collect();
    spans.extend(again);
    assert_eq!(decode_overlap(&spans, 2, false), Some(one));
    // A prefill is none of decode's business.
    spans.push(Span { phase: Phase::Prefill, ..span(0, Lane::Comm, -9_000_000, -1_000_000) });
    assert_eq!(decode_overlap(&spans, 2, false), Some(one));
}

/// Computation hides the first half of the wait of rank 0; rank 1 arrives last.
#[test]
fn the_exposed_wait_for_the_last_rank_is_known_if_all_arrivals_are() {
    let arriving = |rank, start, last_arrival_ns| Span {
        last_arrival_ns,
        ..span(rank, Lane::Comm, start, 4_000_000)
    };
    let mut spans = vec![
        span(0, Lane::Compute, 0, 2_000_000),
        arriving(0, 1_000_000, 3_000_000),
        arriving(1, 3_000_000, 3_000_000),
    ];
    let wait = |spans: &[Span], lacks_ranks| {
        decode_overlap(spans, 2, lacks_ranks).and_then(|overlap| overlap.peer_wait_ms())
    };
    assert_eq!((wait(&spans, false), wait(&spans, true)), (Some(0.5), None));
    spans[2].last_arrival_ns = -1;
    assert_eq!(wait(&spans, false), None);
    // nothing arrives without communication
    assert_eq!(wait(&spans[..1], true), Some(0.0));
}

#[test]
fn steps_are_told_apart() {
    let at = |step, lane, from, to| Span { step, ..span(0, lane, from, to) };
    let trace = trace(vec![
        at(0, Lane::Compute, 1000, 2000),
        at(0, Lane::Comm, 1500, 3000),
        at(1, Lane::Compute, 3000, 4000),
        at(1, Lane::Comm, 4000, 5000),
    ]);
    let steps = steps(&trace);
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].start_ns, steps[0].end_ns), (0, 2000));
    assert_eq!((steps[0].comm_us, steps[0].exposed_us, steps[0].compute_us), (1.5, 1.0, 1.0));
    assert_eq!(steps[1].overlap_pct, Some(0.0));
    assert_eq!(exposed_intervals(&trace, 0, 0, 3500), [(1000, 2000), (3000, 3500)]);
    assert_eq!(exposed_intervals(&trace, 1, 0, 3500), []);
}

#[test]
fn the_hosts_time_before_a_simulated_step_is_idle_time_of_the_step() {
    let at = |step, lane, from, to| Span { step, ..span(0, lane, from, to) };
    let prefill = Span { phase: Phase::Prefill, ..span(0, Lane::Compute, 0, 1000) };
    let trace = trace(vec![
        prefill,
        at(0, Lane::Compute, 1300, 2000),
        at(0, Lane::Comm, 2000, 3000),
        at(1, Lane::Compute, 3400, 5000),
    ]);
    let found = steps(&trace);
    let times: Vec<_> = found.iter().map(|s| (s.start_ns, s.duration_us, s.idle_and_gap_us)).collect();
    assert_eq!(times, [(0, 1.0, 0.0), (1000, 2.0, 0.3), (3000, 2.0, 0.4)]);
    assert_eq!((found[1].time.step_us, found[1].time.idle_us, found[1].time.gap_us), (2.0, 0.3, 0.0));
    let of = |selection: Selection| {
        let report = trace_report(&trace, &selection);
        assert_eq!(report.idle[0].idle_us, report.overlap.all.idle_us);
        (report.overlap.all.span_us, report.overlap.all.idle_us, report.idle[0].host_us)
    };
    // after a collective the next operation waits for its result
    assert_eq!(of(Selection { step: Some(1), ..Selection::default() }), (2.0, 0.4, 0.0));
    let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
    assert_eq!(of(decode), (4.0, 0.7, 0.3));
    // a window without the begin of a step
    assert_eq!(of(Selection { from_ns: Some(3200), ..decode }), (1.8, 0.2, 0.0));
}

/// A prefill between decode steps, and a kernel outside of steps.
#[test]
fn the_time_of_a_step_does_not_depend_on_the_selected_steps() {
    let at = |step: u32, from, to| Span { step, ..span(0, Lane::Compute, from, to) };
    let mut spans: Vec<Span> =
        (0..5).map(|step| at(step, 100 * i64::from(step), 100 * i64::from(step) + 48)).collect();
    spans[2].phase = Phase::Prefill;
    spans.push(at(trace::NO_STEP, 360, 370));
    spans.sort_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
    let mut trace = trace(spans);
    (trace.meta.spec, trace.meta.import) = (None, Some(Default::default()));
    let times = |selection: Selection| -> Vec<_> {
        let steps = trace_report(&trace, &selection).steps;
        steps.iter().map(|step| (step.step, step.time)).collect()
    };
    let all = times(Selection::default());
    let (_, time) = all[3];
    assert_eq!((time.step_us, time.gap_us, time.outside_us, time.until_next), (0.1, 0.03, 0.01, true));
    assert_eq!((all[1].1.step_us, all[4].1.until_next), (0.1, false));
    for (step, row) in all.iter().enumerate() {
        let phase = Some(if step == 2 { Phase::Prefill } else { Phase::Decode });
        let selection = Selection { phase, step: Some(step as u32), ..Selection::default() };
        assert_eq!(times(selection), [*row]);
    }
    // a step, its time as a window, and its row are one thing
    for (step, (_, time)) in all.iter().enumerate() {
        let phase = Some(if step == 2 { Phase::Prefill } else { Phase::Decode });
        let from = 100 * step as i64;
        let window = (Some(from), Some(from + (1e3 * time.step_us).round() as i64));
        for selection in [
            Selection { phase, step: Some(step as u32), ..Selection::default() },
            Selection { from_ns: window.0, to_ns: window.1, ..Selection::default() },
        ] {
            let report = trace_report(&trace, &selection);
            let found = &report.overlap.ranks[0];
            let parts = [found.span_us, found.compute_us, found.idle_us];
            let of_row = [time.step_us, time.compute_us, time.idle_and_gap_us()];
            let differs = parts.iter().zip(of_row).any(|(a, b)| (a - b).abs() > 1e-9);
            assert!(!differs, "{selection:?}: {parts:?}, not {of_row:?}");
            assert_eq!(report.idle[0].idle_ns, found.exact.idle_ns, "{selection:?}");
        }
    }
    // the prefill's time is no idle time of decoding
    let decoding = Selection { phase: Some(Phase::Decode), ..Selection::default() };
    let report = trace_report(&trace, &decoding);
    let sum: f64 = report.steps.iter().map(|step| step.duration_us).sum();
    assert!((report.overlap.ranks[0].span_us - sum).abs() < 1e-9, "{sum}");
    let decode = times(decoding);
    assert_eq!(decode, [all[0], all[1], all[3], all[4]]);
    // a window ends the last step in it
    let cut = times(Selection { to_ns: Some(250), ..Selection::default() });
    assert_eq!((cut.len(), cut[1], cut[2].1.until_next), (3, all[1], false));
}

/// A collective runs through a prefill between two decode steps.
#[test]
fn work_that_reaches_two_selected_parts_counts_in_both() {
    let at = |step: u32, lane, from, to| Span { step, ..span(0, lane, from, to) };
    let mut trace = trace(vec![
        at(0, Lane::Compute, 0, 1000),
        at(0, Lane::Comm, 500, 2500),
        Span { phase: Phase::Prefill, ..at(1, Lane::Compute, 1000, 2000) },
        at(2, Lane::Compute, 2000, 2200),
        at(2, Lane::Compute, 2600, 3000),
    ]);
    trace.meta.import = Some(Default::default());
    let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
    let report = trace_report(&trace, &decode);
    let found = report.overlap.ranks[0].exact;
    let times = (found.comm_ns, found.exposed_comm_ns, found.idle_ns, found.span_ns);
    assert_eq!(times, (1000, 300, 100, 2000));
    let row = report.names.iter().find(|row| row.lane == "comm").unwrap();
    assert_eq!((row.count, row.total_us, row.exposed_us), (1, 1.0, 0.3));
    let row = &report.collectives[0];
    assert_eq!((row.executed.count, row.mean_us), (1, 2.0), "one execution");
    let stretches = &report.exposed_stretches;
    assert_eq!((stretches.count, stretches.longest.len()), (1, 1), "filled by the collective");
    assert_eq!(stretches.longest[0].length_us, 0.3);
}

/// Events without length where two steps meet, and at the end of the last one.
#[test]
fn an_event_without_length_counts_in_its_step_only() {
    let at = |step: u32, from, to| Span { step, ..span(0, Lane::Compute, from, to) };
    for import in [None, Some(Default::default())] {
        let mut trace = trace(vec![at(0, 0, 100), at(0, 100, 100), at(1, 100, 200), at(1, 200, 200)]);
        trace.meta.import = import;
        let count = |selection: Selection| overlap(&trace, &selection).breakdown[0].count;
        let of_step = |step| count(Selection { step: Some(step), ..Selection::default() });
        assert_eq!([0, 1].map(of_step), [2, 2]);
        assert_eq!(count(Selection::default()), 4);
        let until =
            |to_ns| count(Selection { to_ns: Some(to_ns), step: Some(0), ..Selection::default() });
        assert_eq!((until(100), until(101)), (1, 2), "a window excludes its end");
    }
}

/// Activity of one rank, a flag a nanosecond: comm, compute, memory.
fn grid(trace: &Trace, rank: u32, bounds: (i64, i64)) -> LaneNanoseconds {
    let memory = |s: &Span| trace.operations[s.operation as usize].kind == trace::OperationKind::Memcpy;
    let of = |wanted: &dyn Fn(&Span) -> bool| -> Vec<bool> {
        let busy = |t: i64| {
            let mut spans = trace.spans.iter().filter(|s| s.rank == rank && wanted(s));
            spans.any(|s| s.start_ns <= t && t < s.end_ns)
        };
        (bounds.0..bounds.1).map(busy).collect()
    };
    let comm = of(&|s| s.lane == Lane::Comm && !memory(s));
    let compute = of(&|s| s.lane == Lane::Compute && !memory(s));
    let memory = of(&memory);
    let count = |of: &dyn Fn(usize) -> bool| (0..comm.len()).filter(|t| of(*t)).count() as i64;
    // Events without length count here: the first and the last are where the rank begins and ends.
    let spans = trace.spans.iter().filter(|s| s.rank == rank);
    let whole = spans.map(|s| (s.start_ns, s.end_ns)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (start, end) = whole.and_then(|whole| clip(whole, bounds)).unwrap_or((0, 0));
    let busy = count(&|t| comm[t] || compute[t] || memory[t]);
    LaneNanoseconds {
        comm_ns: count(&|t| comm[t]),
        compute_ns: count(&|t| compute[t]),
        memory_ns: count(&|t| memory[t]),
        overlap_ns: count(&|t| comm[t] && compute[t]),
        exposed_comm_ns: count(&|t| comm[t] && !compute[t]),
        busy_ns: busy,
        idle_ns: end - start - busy,
        span_ns: end - start,
        peer_wait_ns: 0,
    }
}

/// Spans of several ranks, steps and kinds, without length among them, in any order.
fn mixed() -> impl Strategy<Value = Trace> {
    let one = (0u32..3, 0u32..3, 0u32..3, 0i64..600, 0i64..90, -30i64..60);
    prop::collection::vec(one, 1..60).prop_flat_map(|spans| {
        let spans: Vec<Span> = spans
            .into_iter()
            .map(|(rank, what, step, start, length, ready)| {
                let lane = if what == 1 { Lane::Comm } else { Lane::Compute };
                let (operation, ready_ns) = (if what == 2 { 5 } else { what }, start - ready);
                Span { step, operation, ready_ns, ..span(rank, lane, start, start + length) }
            })
            .collect();
        (Just(spans), any::<bool>(), any::<bool>()).prop_map(|(mut spans, sorted, imported)| {
            if sorted {
                spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
            }
            with_copies(spans, imported)
        })
    })
}

/// Consecutive steps of two ranks whose spans may run on in the next steps. The last step ends last.
fn stepped() -> impl Strategy<Value = Trace> {
    let one = (0u32..2, 0u32..3, 0i64..100, 0i64..150);
    let step = (any::<bool>(), prop::collection::vec(one, 1..8));
    (prop::collection::vec(step, 1..5), any::<bool>()).prop_map(|(steps, imported)| {
        let (mut spans, last) = (Vec::new(), steps.len() - 1);
        for (step, (prefill, of_step)) in steps.into_iter().enumerate() {
            let phase = if imported && prefill { Phase::Prefill } else { Phase::Decode };
            let end = if step == last { 400 } else { 70 };
            for (rank, what, from, to) in (0..2).map(|rank| (rank, 0, 60, end)).chain(
                of_step.into_iter().map(|(rank, what, from, length)| (rank, what, from, from + length)),
            ) {
                let begin = 100 * step as i64;
                let lane = if what == 1 { Lane::Comm } else { Lane::Compute };
                let operation = if what == 2 { 5 } else { what };
                let span = span(rank, lane, begin + from, begin + to);
                spans.push(Span { step: step as u32, phase, operation, ..span });
            }
        }
        spans.sort_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
        with_copies(spans, imported)
    })
}

/// A trace of these spans, in which operation 5 is a copy.
fn with_copies(spans: Vec<Span>, imported: bool) -> Trace {
    let mut trace = trace(spans);
    let mut copy = trace.operations[0].clone();
    copy.kind = "memcpy".into();
    trace.operations.push(copy);
    trace.meta.import = imported.then(Default::default);
    trace
}

/// Spans of two ranks; the last rank arrives before, during or after a collective.
fn arriving() -> impl Strategy<Value = Vec<Span>> {
    let one = (0u32..2, any::<bool>(), 0i64..400, 0i64..90, -30i64..120);
    let one = one.prop_map(|(rank, comm, start, length, arrival)| match comm {
        true => Span {
            last_arrival_ns: (start + arrival).max(0),
            ..span(rank, Lane::Comm, start, start + length)
        },
        false => span(rank, Lane::Compute, start, start + length),
    });
    prop::collection::vec(one, 1..40)
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let one = (0u32..3, any::<bool>(), 0i64..5000, 0i64..900).prop_map(|(rank, comm, start, length)| {
        span(rank, if comm { Lane::Comm } else { Lane::Compute }, start, start + length)
    });
    prop::collection::vec(one, 1..40)
}

proptest! {
    #[test]
    fn every_number_agrees_with_a_grid(trace in mixed(), cut in (0i64..300, 300i64..700)) {
        for rank in overlap(&trace, &Selection::default()).ranks {
            prop_assert_eq!(rank.exact, grid(&trace, rank.rank.unwrap(), (0, 800)));
        }
        let origin = origin_ns(&trace);
        let window = Selection { from_ns: Some(cut.0), to_ns: Some(cut.1), ..Selection::default() };
        for rank in overlap(&trace, &window).ranks {
            prop_assert_eq!(rank.exact, grid(&trace, rank.rank.unwrap(), (origin + cut.0, origin + cut.1)));
        }
    }

    #[test]
    fn what_operations_expose_adds_up_to_what_ranks_expose(trace in mixed(), from in 0i64..300) {
        let selection = Selection { from_ns: Some(from), ..Selection::default() };
        let report = trace_report(&trace, &selection);
        let all = report.overlap.all.exposed_comm_us;
        let sum = |rows: &mut dyn Iterator<Item = f64>| rows.sum::<f64>() * report.overlap.ranks.len() as f64;
        for rows in [
            sum(&mut report.names.iter().map(|row| row.exposed_us)),
            sum(&mut report.kinds.iter().map(|row| row.exposed_us)),
            sum(&mut report.overlap.breakdown.iter().map(|row| row.exposed_us)),
        ] {
            prop_assert!((rows - all).abs() < 1e-6, "{} {}", rows, all);
        }
    }

    #[test]
    fn idle_time_splits_without_rest(trace in mixed(), from in 0i64..300) {
        for from_ns in [None, Some(from)] {
            let report = trace_report(&trace, &Selection { from_ns, ..Selection::default() });
            for (idle, rank) in report.idle.iter().zip(&report.overlap.ranks) {
                prop_assert_eq!(idle.idle_ns, rank.exact.idle_ns);
                prop_assert!([idle.host_ns, idle.communication_ns, idle.between_ns, idle.outside_ns].iter().all(|n| *n >= 0));
            }
        }
    }

    #[test]
    fn collectives_kinds_and_layers_are_the_breakdown_grouped_otherwise(trace in mixed()) {
        let report = trace_report(&trace, &Selection::default());
        let sum = |rows: &[crate::analysis::GroupRow]| rows.iter().map(|r| r.exposed_us).sum::<f64>();
        let exposed: f64 = report.overlap.breakdown.iter().map(|r| r.exposed_us).sum();
        let layers: f64 = report.layers.iter().map(|r| r.exposed_us).sum();
        let collectives = report.collectives.iter().map(|row| row.executed.exposed_us).sum();
        for other in [collectives, sum(&report.kinds), layers] {
            prop_assert!((exposed - other).abs() < 1e-6);
        }
    }

    #[test]
    fn the_parts_add_up(spans in spans()) {
        for rank in overlap(&trace(spans), &Selection::default()).ranks {
            prop_assert!((rank.overlap_us + rank.exposed_comm_us - rank.comm_us).abs() < 1e-6);
            prop_assert!((rank.comm_us + rank.compute_us - rank.overlap_us - rank.busy_us).abs() < 1e-6);
            prop_assert!((rank.busy_us + rank.idle_us - rank.span_us).abs() < 1e-6);
            prop_assert!(rank.overlap_pct.is_none_or(|pct| (0.0..=100.0).contains(&pct)));
        }
    }

    #[test]
    fn the_wait_for_the_last_rank_agrees_with_a_grid_and_is_exposed(spans in arriving()) {
        let found = decode_overlap(&spans, 2, false).unwrap();
        let wait_ms = found.peer_wait_ms().unwrap();
        prop_assert!((0.0..=found.exposed_comm_ms).contains(&wait_ms), "{} of {}", wait_ms, found.exposed_comm_ms);
        let is_waiting = |rank: u32, time: i64| {
            let is_busy = |lane: Lane, end: fn(&Span) -> i64| {
                let mut of_lane = spans.iter().filter(|span| (span.rank, span.lane) == (rank, lane));
                of_lane.any(|span| (span.start_ns..end(span)).contains(&time))
            };
            is_busy(Lane::Comm, |span| span.end_ns.min(span.last_arrival_ns))
                && !is_busy(Lane::Compute, |span| span.end_ns)
        };
        let of_rank = |rank: u32| (0..500).filter(|time| is_waiting(rank, *time)).count();
        let expected_ms = (of_rank(0) + of_rank(1)) as f64 / 2e6;
        prop_assert!((wait_ms - expected_ms).abs() < 1e-9, "{} not {}", wait_ms, expected_ms);
    }

    #[test]
    fn two_windows_add_up_to_the_whole(spans in spans(), cut in 0i64..5000) {
        let trace = trace(spans);
        let of = |from_ns, to_ns| overlap(&trace, &Selection { from_ns, to_ns, ..Selection::default() }).all;
        let (whole, left, right) = (of(None, None), of(None, Some(cut)), of(Some(cut), None));
        prop_assert!((left.comm_us + right.comm_us - whole.comm_us).abs() < 1e-6);
        prop_assert!((left.exposed_comm_us + right.exposed_comm_us - whole.exposed_comm_us).abs() < 1e-6);
    }

    #[test]
    fn steps_and_phases_add_up_to_the_whole(trace in stepped()) {
        let of = |selection: Selection| overlap(&trace, &selection).all.exact;
        let sum = |selections: &mut dyn Iterator<Item = Selection>| -> LaneNanoseconds {
            selections.map(of).sum()
        };
        let keys: BTreeSet<StepKey> = trace.spans.iter().map(StepKey::from_span).collect();
        let whole = of(Selection::default());
        prop_assert_eq!(sum(&mut keys.into_iter().map(Selection::of_step)), whole);
        let of_phase = |phase| Selection { phase: Some(phase), ..Selection::default() };
        prop_assert_eq!(sum(&mut [Phase::Prefill, Phase::Decode].into_iter().map(of_phase)), whole);
    }

    #[test]
    fn a_selected_step_or_phase_has_the_times_of_its_rows(trace in stepped(), to_ns in 1i64..600) {
        let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
        let all = steps(&trace);
        let of_step = all.iter().map(|row| Selection::of_step(row.key));
        for selection in of_step.chain([decode, Selection { to_ns: Some(to_ns), ..decode }]) {
            let report = trace_report(&trace, &selection);
            let expected = overlap(&trace, &selection);
            prop_assert_eq!(&report.overlap, &expected, "from the lanes of the whole trace");
            for (rank, idle) in report.overlap.ranks.iter().zip(&report.idle) {
                let exact = rank.exact;
                prop_assert_eq!(exact.overlap_ns + exact.exposed_comm_ns, exact.comm_ns);
                prop_assert_eq!(exact.busy_ns + exact.idle_ns, exact.span_ns);
                prop_assert_eq!(idle.idle_ns, exact.idle_ns);
            }
            // the end of a window may be in the host's time before a step, which has no row then
            if selection.to_ns.is_some() {
                continue;
            }
            let sum = |of: fn(&StepTime) -> f64| -> f64 {
                report.steps.iter().map(|row| of(&row.time) * f64::from(row.ranks)).sum()
            };
            let all = &report.overlap.all;
            for (whole, rows) in [
                (all.comm_us, sum(|time| time.comm_us)),
                (all.compute_us, sum(|time| time.compute_us)),
                (all.exposed_comm_us, sum(|time| time.exposed_us)),
                (all.idle_us, sum(StepTime::idle_and_gap_us)),
                (all.span_us, sum(|time| time.step_us)),
            ] {
                prop_assert!((whole - rows).abs() < 1e-6, "{selection:?}: {whole}, not {rows}");
            }
        }
    }

    #[test]
    fn moving_a_trace_in_time_changes_nothing(spans in spans(), by in -1_000_000i64..1_000_000) {
        let moved = spans
            .iter()
            .map(|s| Span { start_ns: s.start_ns + by, end_ns: s.end_ns + by, ..*s })
            .collect();
        let (a, b) = (trace(spans), trace(moved));
        let window = Selection { from_ns: Some(100), to_ns: Some(3000), ..Selection::default() };
        prop_assert_eq!(overlap(&a, &window), overlap(&b, &window));
        prop_assert_eq!(exposed_intervals(&a, 0, 0, 900), exposed_intervals(&b, 0, 0, 900));
    }
}
