//! Segments of a step ([`Parts`]) and the CUDA events that bracket them ([`Marks`]).

use std::collections::HashMap;

use crate::cuda::schedule::{Item, Place, Schedule, StreamId};
use plan::{Lane, Operation, Plan};
use trace::OperationInfo;

/// Lanes and dependencies of operations, or of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    pub lanes: Vec<Lane>,
    /// Operations whose results each operation reads or awaits. Excludes the previous operation of the lane
    /// unless it is read.
    pub reads_from: Vec<Vec<u32>>,
}

impl Skeleton {
    pub fn of(plan: &Plan) -> Self {
        let writers = plan.writers();
        let reads_from = plan.operations.iter().map(|operation| {
            let read = operation.reads.iter().filter_map(|value| writers[value.index()]);
            let mut from: Vec<u32> =
                read.chain(operation.after.iter().copied()).map(|operation| operation.0).collect();
            from.sort_unstable();
            from.dedup();
            from
        });
        Self {
            lanes: plan.operations.iter().map(|operation| operation.lane).collect(),
            reads_from: reads_from.collect(),
        }
    }
}

/// Consecutive operations of one stream: the stream does not wait within them, and no other stream waits for
/// only some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Operations in plan order.
    pub operations: Vec<u32>,
    pub stream: Lane,
    /// Previous part on the stream, whose end is this part's start; `None` if the stream waits in between.
    pub follows: Option<usize>,
}

/// Parts of a step on one rank, in enqueue order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// All parts; each operation of the plan is in exactly one.
    pub parts: Vec<Part>,
    /// Part of each operation.
    part_of: Vec<u32>,
}

/// Newest part of a stream while a step is divided.
#[derive(Clone, Copy)]
struct LastPart {
    /// Index of the part.
    part: usize,
    /// True if more operations may join it: no other stream waits for it yet.
    is_open: bool,
}

/// True if two operations of one stream may be timed as one: same module, and not a collective.
fn belong_together(a: &Operation, b: &Operation) -> bool {
    let what = |o: &Operation| (o.module, o.layer, o.group, o.kind.is_collective());
    what(a) == what(b) && !a.kind.is_collective()
}

impl Parts {
    /// Divides `plan` into parts, as `schedule` executes it on its first rank.
    pub fn of(plan: &Plan, schedule: &Schedule) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut part_of = vec![0; plan.operations.len()];
        // last part of each stream since its last wait
        let mut last: HashMap<StreamId, LastPart> = HashMap::new();
        for item in &schedule.items {
            match *item {
                Item::Wait { stream, .. } => {
                    last.remove(&stream);
                }
                Item::Record { stream, .. } => {
                    last.entry(stream).and_modify(|last| last.is_open = false);
                }
                Item::Launch { stream, operation } if stream.rank == 0 => {
                    let before = last.get(&stream).copied();
                    let joins = |last: &LastPart| {
                        let first = parts[last.part].operations[0] as usize;
                        let (first, this) =
                            (&plan.operations[first], &plan.operations[operation as usize]);
                        last.is_open && belong_together(first, this)
                    };
                    let part = match before.filter(joins) {
                        Some(last) => last.part,
                        None => {
                            let follows = before.map(|last| last.part);
                            parts.push(Part { operations: Vec::new(), stream: stream.lane, follows });
                            parts.len() - 1
                        }
                    };
                    parts[part].operations.push(operation);
                    part_of[operation as usize] = part as u32;
                    last.insert(stream, LastPart { part, is_open: true });
                }
                Item::Launch { .. } | Item::Mark { .. } => {}
            }
        }
        Self { parts, part_of }
    }

    /// Lanes and dependencies of the parts.
    pub fn skeleton(&self, plan: &Plan) -> Skeleton {
        let each = Skeleton::of(plan);
        let reads_from = |(at, part): (usize, &Part)| {
            let read =
                part.operations.iter().flat_map(|operation| &each.reads_from[*operation as usize]);
            let mut from: Vec<u32> = read.map(|operation| self.part_of[*operation as usize]).collect();
            from.retain(|from| *from as usize != at);
            from.sort_unstable();
            from.dedup();
            from
        };
        Skeleton {
            lanes: self.parts.iter().map(|part| each.lanes[part.operations[0] as usize]).collect(),
            reads_from: self.parts.iter().enumerate().map(reads_from).collect(),
        }
    }

    /// Operations table of the parts, starting at index `base`. `operations` is the table of single
    /// operations, with the plan's operations starting at index `first`. A part with several operations is
    /// named after the scope of its first operation.
    pub fn table(&self, operations: &[OperationInfo], first: u32, base: u32) -> Vec<OperationInfo> {
        let info_of = |operation: u32| &operations[(first + operation) as usize];
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut info = |(at, part): (usize, &Part)| {
            let all = || part.operations.iter().map(|operation| info_of(*operation));
            let mut info = info_of(part.operations[0]).clone();
            if part.operations.len() > 1 {
                let scope = info.name.rsplit_once('/').map_or(info.name.as_str(), |(scope, _)| scope);
                let times = seen.entry(scope.to_owned()).and_modify(|times| *times += 1).or_insert(1);
                info.name = if *times == 1 { scope.to_owned() } else { format!("{scope}:{times}") };
                info.kind = "module".into();
                info.shape = String::new();
                info.origins = all().flat_map(|info| info.origins.iter().cloned()).collect();
                info.cost = all().skip(1).fold(info.cost, |sum, info| sum + info.cost);
            }
            let waits =
                all().flat_map(|info| &info.waits_for).map(|on| self.part_of[(on - first) as usize]);
            let mut waits: Vec<u32> = waits.filter(|on| *on as usize != at).collect();
            waits.sort_unstable();
            waits.dedup();
            info.waits_for = waits.into_iter().map(|on| base + on).collect();
            info
        };
        self.parts.iter().enumerate().map(&mut info).collect()
    }
}

/// Timing event of one rank: index into the step's events.
pub type Mark = u32;

/// Events before and after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    pub start: Mark,
    pub end: Mark,
}

/// Timing events of a step. If a part directly follows another on its stream without a wait, they share the
/// event in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    start: Option<Mark>,
    /// Event before each operation of the plan.
    before: Vec<Option<Mark>>,
    after: Vec<Option<Mark>>,
    /// Events around each part; `None` if it is not timed.
    brackets: Vec<Option<Bracket>>,
    count: Mark,
}

impl Marks {
    /// Places events around the parts selected by `is_timed`, and at the start of the step if `starts`.
    pub fn around(parts: &Parts, starts: bool, is_timed: impl Fn(&Part) -> bool) -> Self {
        let operations = parts.parts.iter().map(|part| part.operations.len()).sum();
        let mut marks = Self {
            start: starts.then_some(0),
            before: vec![None; operations],
            after: vec![None; operations],
            brackets: Vec::with_capacity(parts.parts.len()),
            count: u32::from(starts),
        };
        for part in &parts.parts {
            let (Some(first), Some(last)) = (part.operations.first(), part.operations.last()) else {
                continue;
            };
            if !is_timed(part) {
                marks.brackets.push(None);
                continue;
            }
            let before = part.follows.and_then(|before| marks.brackets[before]);
            let start = before.map_or_else(|| marks.next(), |before| before.end);
            if before.is_none() {
                marks.before[*first as usize] = Some(start);
            }
            let end = marks.next();
            marks.after[*last as usize] = Some(end);
            marks.brackets.push(Some(Bracket { start, end }));
        }
        marks
    }

    fn next(&mut self) -> Mark {
        self.count += 1;
        self.count - 1
    }

    pub fn count(&self) -> usize {
        self.count as usize
    }

    pub fn at(&self, place: Place) -> Option<Mark> {
        let beside = |all: &[Option<Mark>], operation: usize| all.get(operation).copied().flatten();
        match place {
            Place::Start => self.start,
            Place::Before(operation) => beside(&self.before, operation),
            Place::After(operation) => beside(&self.after, operation),
        }
    }

    pub fn start(&self) -> Option<Mark> {
        self.start
    }

    /// Events around a part; `None` if it is not timed.
    pub fn bracket(&self, part: usize) -> Option<Bracket> {
        self.brackets.get(part).copied().flatten()
    }
}
