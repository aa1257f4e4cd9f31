//! A checker that knows nothing of how schedules are made: it computes what happens before what from
//! the list alone, and compares that with the plan. Every single wait is dropped once: the checker
//! must object.

use std::collections::HashMap;

use super::*;
use crate::cuda::program::GpuProgram;
use model::Model;
use plan::testing::ARCHITECTURES;
use plan::{DType, Lowering, ModelShape, OpId, Phase, PlanSpec, Precision, ValueId, Variant};

/// What each stream knows to have completed, as counts of launches by stream.
type Clock = HashMap<StreamId, u32>;

fn join(into: &mut Clock, from: &Clock) {
    for (stream, count) in from {
        let known = into.entry(*stream).or_default();
        *known = (*known).max(*count);
    }
}

/// One launch of one replay: where, its number there, and what had completed when it started.
#[derive(Clone, Debug)]
struct Launched {
    replay: u32,
    stream: StreamId,
    operation: usize,
    number: u32,
    before: Clock,
}

impl Launched {
    fn after(&self, earlier: &Self) -> bool {
        self.before.get(&earlier.stream).copied().unwrap_or(0) >= earlier.number
    }
}

/// Executes the list `replays` times, each stream in order, and notes what each launch knows. Also
/// what the first compute stream knows in the end.
fn execute(items: &[StreamOperation], replays: u32) -> Result<(Vec<Launched>, Clock), String> {
    let mut known: HashMap<StreamId, Clock> = HashMap::new();
    let mut counts: Clock = Clock::new();
    let mut events: HashMap<u32, Clock> = HashMap::new();
    let mut launched = Vec::new();
    for replay in 0..replays {
        events.clear();
        for item in items {
            match *item {
                StreamOperation::Launch { stream, operation } => {
                    let number = counts.entry(stream).or_default();
                    *number += 1;
                    let clock = known.entry(stream).or_default();
                    let before = clock.clone();
                    clock.insert(stream, *number);
                    launched.push(Launched {
                        replay,
                        stream,
                        operation: operation as usize,
                        number: *number,
                        before,
                    });
                }
                StreamOperation::Record { stream, event } => {
                    let clock = known.entry(stream).or_default().clone();
                    if events.insert(event, clock).is_some() {
                        return Err(format!("event {event} is recorded twice"));
                    }
                }
                StreamOperation::Wait { stream, event } => {
                    let clock = events.get(&event).ok_or(format!("event {event} is not recorded"))?;
                    join(known.entry(stream).or_default(), clock);
                }
                StreamOperation::Mark { .. } => {}
            }
        }
    }
    let first = StreamId { rank: 0, lane: Lane::Compute };
    Ok((launched, known.remove(&first).unwrap_or_default()))
}

/// What is wrong with a list of items for this program, if anything.
fn problem(program: &GpuProgram, layout: &RankLayout, items: &[StreamOperation]) -> Option<String> {
    let plan = &program.plan;
    let (launched, end) = match execute(items, 2) {
        Ok(executed) => executed,
        Err(problem) => return Some(problem),
    };
    let joint = |operation: usize| layout.joint && plan.operations[operation].lane == Lane::Comm;
    let find = |replay: u32, rank: u32, operation: usize| {
        launched.iter().find(|l| {
            (l.replay, l.operation) == (replay, operation) && (l.stream.rank == rank || joint(operation))
        })
    };
    let name = |operation: usize| &plan.operations[operation].name;
    // a stream takes part in a capture, and begins after what preceded the step, once it waits for
    // one that does
    let mut forked = vec![StreamId { rank: 0, lane: Lane::Compute }];
    let mut recorded: HashMap<u32, StreamId> = HashMap::new();
    for item in items {
        match *item {
            StreamOperation::Wait { stream, event } => {
                if recorded.get(&event).is_some_and(|by| forked.contains(by)) {
                    forked.push(stream);
                }
            }
            StreamOperation::Record { stream, event } => {
                recorded.insert(event, stream);
            }
            StreamOperation::Launch { stream, .. } | StreamOperation::Mark { stream, .. } => {
                if !forked.contains(&stream) {
                    return Some(format!("{stream:?} is not forked from the first stream"));
                }
            }
        }
    }
    // every operation is launched once on each rank, and starts after what the plan says
    for rank in 0..layout.ranks {
        for (operation, waits) in plan.dependencies().iter().enumerate() {
            let Some(this) = find(0, rank, operation) else {
                return Some(format!("{} is not launched on rank {rank}", name(operation)));
            };
            // a joint collective needs the operands of all ranks
            let needed = if joint(operation) { 0..layout.ranks } else { rank..rank + 1 };
            for (wait, rank) in waits.iter().flat_map(|w| needed.clone().map(move |r| (w.index(), r))) {
                if !find(0, rank, wait).is_some_and(|earlier| this.after(earlier)) {
                    return Some(format!(
                        "{} does not wait for {} of rank {rank}",
                        name(operation),
                        name(wait)
                    ));
                }
            }
        }
    }
    let expected: usize = (0..plan.operations.len())
        .map(|operation| if joint(operation) { 1 } else { layout.ranks as usize })
        .sum();
    if launched.len() != 2 * expected {
        return Some(format!("{} launches in two replays of {expected}", launched.len()));
    }
    // two users of a buffer, at least one of which writes it, never run at the same time, neither
    // within a step nor over two
    for rank in 0..layout.ranks {
        let mut users: HashMap<usize, Vec<(&Launched, bool)>> = HashMap::new();
        for one in launched.iter().filter(|l| l.stream.rank == rank || joint(l.operation)) {
            let operation = &plan.operations[one.operation];
            let buffer = |value: &ValueId| program.buffer(*value);
            for value in &operation.reads {
                users.entry(buffer(value)).or_default().push((one, false));
            }
            for value in &operation.writes {
                users.entry(buffer(value)).or_default().push((one, true));
            }
        }
        for users in users.values() {
            for (index, (earlier, first_writes)) in users.iter().enumerate() {
                for (later, writes) in &users[index + 1..] {
                    let same = (earlier.replay, earlier.operation) == (later.replay, later.operation);
                    if (*first_writes || *writes) && !same && !later.after(earlier) {
                        return Some(format!(
                            "{} (replay {}) uses a buffer of {} (replay {})",
                            name(later.operation),
                            later.replay,
                            name(earlier.operation),
                            earlier.replay
                        ));
                    }
                }
            }
        }
    }
    // a capture that leaves work unjoined is invalid
    let unjoined = launched.iter().find(|l| end.get(&l.stream).copied().unwrap_or(0) < l.number);
    unjoined.map(|l| format!("{} is not joined", name(l.operation)))
}

/// Collectives on a stream of their own, whether or not anything may compute beside them.
const APART: RankLayout = RankLayout { chained: false, ..RankLayout::ONE };

fn shape() -> ModelShape {
    ModelShape { layers: 3, ..Model::resolve("tiny").expect("built in").shape }
}

/// Two ranks with a batch of one.
fn two_ranks(architecture: &str, phase: Phase, lowering: Lowering) -> PlanSpec {
    let architecture = architecture.parse().expect("an architecture");
    let cell = table::Spec { architecture, tp: 2, ..table::Spec::default() };
    cell.plan(&shape(), phase, Precision::uniform(DType::Bf16), lowering)
}

/// A decode step whose all-reduces are one with the addition and the norm behind them.
fn fused(architecture: &str) -> GpuProgram {
    let lowering = Lowering { fuse_all_reduce: true, ..GpuProgram::lowering(false) };
    GpuProgram::new(&two_ranks(architecture, Phase::Decode, lowering), 0).expect("a plan")
}

fn plain(architecture: &str, tp: u32, phase: Phase, all_logits: bool) -> GpuProgram {
    GpuProgram::plain(&shape(), architecture, tp, DType::Bf16, phase, all_logits)
}

#[test]
fn standard_with_fused_all_reduces_goes_on_one_stream_and_ladder_on_two() {
    let waits = |architecture: &str| {
        let schedule = Schedule::new(&fused(architecture).plan, &RankLayout::ONE, None);
        let waits =
            schedule.items.iter().filter(|item| matches!(item, StreamOperation::Wait { .. })).count();
        (schedule.streams().len(), waits)
    };
    assert_eq!(waits("standard"), (1, 0));
    let (streams, waits) = waits("ladder");
    assert!(streams == 2 && waits > 6, "{waits}");
}

/// Where nothing may compute beside them all-reduces cost no event; where something may, and where communication has
/// multiprocessors of its own, they have a stream. They are of the comm lane either way.
#[test]
fn collectives_that_nothing_may_run_beside_follow_what_they_need_on_its_stream() {
    for (architecture, is_chained) in [
        ("standard", true),
        ("parallel", true),
        ("sync-drop:2", true),
        ("ladder", false),
        ("desync:2", true),
    ] {
        for phase in [Phase::Prefill, Phase::Decode] {
            let plan = plain(architecture, 4, phase, false).plan;
            let found = |layout: &RankLayout| {
                let schedule = Schedule::new(&plan, layout, None);
                (
                    schedule.streams().len(),
                    schedule.events > 0,
                    schedule.streams().iter().any(|stream| stream.lane == Lane::Comm),
                )
            };
            let apart = (2, true, true);
            let wanted = if is_chained { (1, false, false) } else { apart };
            assert_eq!(found(&RankLayout::ONE), wanted, "{architecture}");
            assert_eq!(found(&APART), apart, "{architecture}");
            // one stream for each of the ranks, and events between those
            let joint = Schedule::new(&plan, &RankLayout::loopback(4), None);
            assert_eq!(joint.streams().len(), if is_chained { 4 } else { 5 }, "{architecture}");
            assert!(plan.operations.iter().any(|operation| operation.lane == Lane::Comm));
        }
    }
}

/// Every architecture, TP, phase and layout.
fn programs() -> Vec<(String, GpuProgram, RankLayout)> {
    let mut all = Vec::new();
    for text in ARCHITECTURES {
        for tp in [1, 2, 4] {
            for (phase, all_logits) in
                [(Phase::Prefill, false), (Phase::Prefill, true), (Phase::Decode, false)]
            {
                let program = plain(text, tp, phase, all_logits);
                for layout in [RankLayout::ONE, APART, RankLayout::loopback(tp)] {
                    let name = format!("{text} tp {tp} {} {layout:?}", phase.as_str());
                    all.push((name, program.clone(), layout));
                }
                if tp == 2 && phase == Phase::Decode {
                    let name = format!("{text} with fused all-reduces");
                    all.push((name, fused(text), RankLayout::ONE));
                }
                // a batch of one is divided by tokens, in prefill
                for batch in if tp == 2 { 1..3 } else { 0..0 } {
                    let variant = Variant { micro_batches: 2, ..Variant::default() };
                    let spec = two_ranks(text, phase, GpuProgram::lowering(all_logits));
                    let program = GpuProgram::new(&PlanSpec { variant, batch, ..spec }, 0);
                    let name = format!("{text} in two groups, {} of {batch}", phase.as_str());
                    all.push((name, program.expect("a plan"), RankLayout::loopback(tp)));
                }
            }
        }
    }
    all
}

#[test]
fn schedules_keep_every_dependency_and_no_wait_is_superfluous() {
    let (mut waits, mut mutants) = (0, 0);
    for (name, program, layout) in programs() {
        let schedule = Schedule::new(&program.plan, &layout, None);
        assert_eq!(problem(&program, &layout, &schedule.items), None, "{name}");
        for at in 0..schedule.items.len() {
            if !matches!(schedule.items[at], StreamOperation::Wait { .. }) {
                continue;
            }
            waits += 1;
            let mut items = schedule.items.clone();
            items.remove(at);
            let found = problem(&program, &layout, &items);
            assert!(found.is_some(), "{name}: nothing depends on {:?}", schedule.items[at]);
            mutants += 1;
        }
    }
    assert_eq!(waits, mutants);
    assert!(waits > 1000, "only {waits} waits were tried");
}

#[test]
fn a_record_that_comes_too_early_or_a_launch_that_is_missing_is_noticed() {
    let program = plain("ladder", 2, Phase::Decode, false);
    let layout = RankLayout::loopback(2);
    let schedule = Schedule::new(&program.plan, &layout, None);
    let mut tried = 0;
    for at in 1..schedule.items.len() {
        let mut items = schedule.items.clone();
        match (items[at - 1], items[at]) {
            (StreamOperation::Launch { stream, .. }, StreamOperation::Record { stream: of, .. })
                if stream == of =>
            {
                items.swap(at - 1, at);
            }
            (_, StreamOperation::Launch { .. }) => {
                items.remove(at);
            }
            _ => continue,
        }
        tried += 1;
        assert!(problem(&program, &layout, &items).is_some(), "{:?}", schedule.items[at]);
    }
    assert!(tried > 20);
}

#[test]
fn one_rank_that_never_communicates_uses_one_stream_and_no_event() {
    for (text, tp) in [("standard", 1), ("upper-bound", 4)] {
        let program = plain(text, tp, Phase::Decode, false);
        let schedule = Schedule::new(&program.plan, &RankLayout::ONE, None);
        assert_eq!((schedule.events, schedule.streams().len()), (0, 1));
        assert!(schedule.items.iter().all(|item| matches!(item, StreamOperation::Launch { .. })));
    }
    // standard: an all-reduce waits for its operand, the next operation for the all-reduce
    let program = plain("standard", 2, Phase::Decode, false);
    let schedule = Schedule::new(&program.plan, &APART, None);
    let waits =
        schedule.items.iter().filter(|item| matches!(item, StreamOperation::Wait { .. })).count();
    // of six all-reduces
    assert_eq!((waits, schedule.events as usize), (12, 12));
    assert_eq!(schedule.streams().len(), 2);
    let mut waiting = vec![false; program.plan.operations.len()];
    for pair in schedule.items.windows(2) {
        if let [StreamOperation::Wait { .. }, StreamOperation::Launch { operation, .. }] = pair {
            waiting[*operation as usize] = true;
        }
    }
    for (index, operation) in program.plan.operations.iter().enumerate() {
        let from_comm = program.plan.dependencies()[index]
            .iter()
            .any(|OpId(op)| program.plan.operations[*op as usize].lane != operation.lane);
        assert_eq!(waiting[index], from_comm, "{}", operation.name);
    }
}

#[test]
fn marks_stand_around_launches_nobody_waits_for_them_and_nothing_else_changes() {
    for (name, program, layout) in programs() {
        let plain = Schedule::new(&program.plan, &layout, None);
        let some = |place| match place {
            EventPosition::Start => Some(0),
            EventPosition::Before(operation) => (operation % 3 != 0).then_some(1 + 2 * operation as u32),
            EventPosition::After(operation) => (operation % 2 == 0).then_some(2 + 2 * operation as u32),
        };
        let marked = Schedule::new(&program.plan, &layout, Some(&some));
        let without: Vec<StreamOperation> = marked
            .items
            .iter()
            .copied()
            .filter(|i| !matches!(i, StreamOperation::Mark { .. }))
            .collect();
        assert_eq!(without, plain.items, "{name}");
        let first = StreamId { rank: 0, lane: Lane::Compute };
        assert_eq!(
            marked.items.first(),
            Some(&StreamOperation::Mark { stream: first, mark: 0 }),
            "{name}"
        );
        for (at, item) in marked.items.iter().enumerate() {
            let StreamOperation::Launch { stream, operation } = *item else { continue };
            let mark = |mark: u32| StreamOperation::Mark { stream, mark };
            if let Some(before) = some(EventPosition::Before(operation as usize)) {
                assert_eq!(marked.items[at - 1], mark(before), "{name}");
            }
            if let Some(after) = some(EventPosition::After(operation as usize)) {
                // behind the event for which others wait, but for the last one, behind which a capture would not be joined
                let on_stream = |item: &StreamOperation| matches!(item, StreamOperation::Launch { stream: other, .. } if *other == stream);
                let is_last = stream != first && !marked.items[at + 1..].iter().any(on_stream);
                let recorded = matches!(marked.items[at + 1], StreamOperation::Record { .. });
                assert!(!(is_last && recorded), "{name}");
                assert_eq!(marked.items[at + 1 + usize::from(recorded)], mark(after), "{name}");
            }
        }
    }
}

#[test]
fn a_launch_after_a_wait_or_a_mark_follows_no_launch() {
    let program = plain("standard", 2, Phase::Decode, false);
    let find = |name: &str| program.plan.find(name).expect("an operation").0;
    let following = |marks: Option<EventLookup<'_>>| {
        Schedule::new(&program.plan, &APART, marks).early_starts(|_, _| true)
    };
    let plain = following(None);
    assert!(!plain.contains_key(&(0, find("embed/tokens"))), "nothing is before it");
    assert_eq!(plain.get(&(0, find("L0/attn/qkv"))), Some(&find("L0/attn/norm")));
    assert!(!plain.contains_key(&(0, find("L0/mlp/add_norm"))), "it waits for the all-reduce");
    let chained = Schedule::new(&program.plan, &RankLayout::ONE, None).early_starts(|_, _| true);
    assert_eq!(chained.get(&(0, find("L0/mlp/add_norm"))), Some(&find("L0/attn/all_reduce")));
    assert_eq!(plain.get(&(0, find("L0/mlp/gate_up"))), Some(&find("L0/mlp/add_norm")));
    let out = find("L0/attn/out") as usize;
    let marked = following(Some(&|place| (place == EventPosition::Before(out)).then_some(2)));
    assert!(plain.contains_key(&(0, out as u32)) && !marked.contains_key(&(0, out as u32)));
    // what another kernel does, too, is nothing between two others
    let norm = find("L0/mlp/add_norm");
    let one_less = Schedule::new(&program.plan, &APART, None)
        .early_starts(|_, operation| operation != find("L0/mlp/act"));
    assert_eq!(one_less.get(&(0, find("L0/mlp/down"))), Some(&find("L0/mlp/gate_up")));
    assert_eq!(one_less.get(&(0, norm)), plain.get(&(0, norm)));
}
