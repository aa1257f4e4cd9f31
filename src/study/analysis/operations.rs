//! Comparison of a step's operations in two runs, by the smallest groups with common origins: a fused operation is
//! compared with the two it replaces.
//!
//! In traces without origins (imported ones), the name of an operation is its origin.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::names::over_layers;
use plan::Lane;
use trace::overlap::intervals::{Coverage, TimeInterval, union};
use trace::overlap::{Class, ExposureCounter, StepKey, us};
use trace::{OperationInfo, Span, Trace};

/// Time of a group of operations in one run (us per rank, averaged over ranks).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationShare {
    /// Operations of the group in this run: `decode/L0/attn/add_norm`.
    pub names: Vec<String>,
    /// Executions, over all ranks.
    pub count: u64,
    /// Total duration, averaged over ranks (us).
    pub us: f64,
    /// Exposed part: communication while the rank computed nothing.
    pub exposed_us: f64,
    /// Time waiting for the last peer of a collective; `None` for computation, and if no arrival is known.
    pub peer_wait_us: Option<f64>,
    /// Index of the first execution's span, on the first rank that has one.
    pub first: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OperationDifference {
    /// Name of the group: from the run that needs fewer operations for it.
    pub name: String,
    pub lane: Lane,
    /// Time in the first run; `None` if it lacks the group.
    pub a: Option<OperationShare>,
    /// Time in the second run; `None` if it lacks the group.
    pub b: Option<OperationShare>,
    /// Second minus first (us); a missing group counts 0.
    pub delta_us: f64,
}

impl OperationDifference {
    /// Difference in exposed time, second minus first (us).
    pub fn delta_exposed_us(&self) -> f64 {
        let exposed =
            |share: &Option<OperationShare>| share.as_ref().map_or(0.0, |share| share.exposed_us);
        exposed(&self.b) - exposed(&self.a)
    }
}

/// Groups of one name and lane over all layers, with their sums.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationFamily {
    /// Sums of the groups under their common name: `decode/L*/mlp/down`. The first executions are those of the group
    /// with the largest difference.
    pub sum: OperationDifference,
    /// Indices of the groups, in order of layers.
    pub groups: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OperationDifferences {
    /// Steps: first run, second run.
    pub steps: (StepKey, StepKey),
    /// Time from the step's first start to its last end, over all ranks (us): first, second.
    pub lengths_us: (f64, f64),
    /// Exposed communication (us per rank, averaged over ranks): first, second.
    pub exposed_us: (f64, f64),
    pub groups: Vec<OperationDifference>,
    pub families: Vec<OperationFamily>,
    /// Indices of the families by difference in exposed time, the largest first; the order of `families` if exposed
    /// times are not comparable.
    pub by_exposed: Vec<usize>,
    /// Recording methods of the two runs, if they differ and exposed times are therefore not comparable. A simulation
    /// is comparable with any recording.
    pub recorders: Option<[String; 2]>,
}

/// Trace, and the times in which each rank computes: kernels of one step may run beside collectives of another.
pub struct ComputeTimes<'a> {
    trace: &'a Trace,
    by_rank: HashMap<u32, Coverage>,
}

impl<'a> ComputeTimes<'a> {
    pub fn from_trace(trace: &'a Trace) -> Self {
        let mut by_rank: HashMap<u32, Vec<TimeInterval>> = HashMap::new();
        for span in &trace.spans {
            let operation = trace.operations.get(span.operation as usize);
            if operation.is_some_and(|operation| Class::new(operation, span.lane) == Class::Compute) {
                by_rank.entry(span.rank).or_default().push((span.start_ns, span.end_ns));
            }
        }
        let coverage = |(rank, computes)| (rank, Coverage::new(union(computes)));
        Self { trace, by_rank: by_rank.into_iter().map(coverage).collect() }
    }
}

/// Compares a step of `a` with a step of `b`. Spans must be sorted.
pub fn operation_differences(
    a: &ComputeTimes<'_>,
    a_step: StepKey,
    b: &ComputeTimes<'_>,
    b_step: StepKey,
) -> OperationDifferences {
    let sides = [OperationSide::new(a, a_step), OperationSide::new(b, b_step)];
    let [a, b] = [a.trace, b.trace];
    let mut groups = Groups::default();
    for (side, which) in sides.iter().zip([0, 1]) {
        for (operation, cell) in &side.cells {
            groups.add(which, *operation, &side.trace.operations[*operation as usize], cell.lane);
        }
    }
    let mut rows: Vec<Row> =
        groups.parts().into_iter().map(|parts| difference(&sides, &parts)).collect();
    let order = |x: &OperationDifference, y: &OperationDifference| {
        y.delta_us.abs().total_cmp(&x.delta_us.abs()).then_with(|| x.name.cmp(&y.name))
    };
    rows.sort_by(|x, y| order(&x.difference, &y.difference));
    let mut families = families(&rows);
    families.sort_by(|x, y| order(&x.sum, &y.sum));
    let rows: Vec<OperationDifference> = rows.into_iter().map(|row| row.difference).collect();
    let exposed = |side: fn(&OperationDifference) -> &Option<OperationShare>| -> f64 {
        rows.iter().filter_map(|row| side(row).as_ref()).map(|share| share.exposed_us).sum()
    };
    let exposed_us = (exposed(|row| &row.a), exposed(|row| &row.b));
    let mut by_exposed: Vec<usize> = (0..families.len()).collect();
    let kinds = [a, b].map(|trace| trace.meta.recorder.as_str());
    let differ = kinds[0] != kinds[1] && !kinds.contains(&"sim");
    if !differ {
        let exposed = |at: &usize| families[*at].sum.delta_exposed_us().abs();
        // stable sort: ties keep the order of `families`
        by_exposed.sort_by(|x, y| exposed(y).total_cmp(&exposed(x)));
    }
    OperationDifferences {
        recorders: differ.then(|| kinds.map(str::to_owned)),
        families,
        by_exposed,
        exposed_us,
        steps: (a_step, b_step),
        lengths_us: (sides[0].length_us, sides[1].length_us),
        groups: rows,
    }
}

/// One operation in a step (ns, over all ranks).
#[derive(Clone, Copy, Debug)]
struct OperationSums {
    lane: Lane,
    count: u64,
    total: i64,
    exposed: i64,
    /// Peer wait (ns), summed over executions with a known last arrival; `None` without any.
    peer_wait: Option<i64>,
    first: usize,
}

struct OperationSide<'a> {
    trace: &'a Trace,
    ranks: usize,
    length_us: f64,
    cells: BTreeMap<u32, OperationSums>,
}

impl<'a> OperationSide<'a> {
    fn new(times: &ComputeTimes<'a>, step: StepKey) -> Self {
        let (trace, idle) = (times.trace, Coverage::new(Vec::new()));
        let places = step.spans(trace);
        let mut side = Self { trace, ranks: 0, length_us: 0.0, cells: BTreeMap::new() };
        let (mut place, mut extent) = (places.start, None);
        for of_rank in trace.spans[places].chunk_by(|x, y| x.rank == y.rank) {
            let compute = times.by_rank.get(&of_rank[0].rank).unwrap_or(&idle);
            side.ranks += 1;
            let mut exposure = ExposureCounter::default();
            for span in of_rank {
                let interval = (span.start_ns, span.end_ns.max(span.start_ns));
                let (from, to) = extent.unwrap_or(interval);
                extent = Some((interval.0.min(from), interval.1.max(to)));
                let exposed = if span.lane == Lane::Comm { exposure.add(interval, compute) } else { 0 };
                side.add(span, place, exposed);
                place += 1;
            }
        }
        side.length_us = extent.map_or(0.0, |(from, to)| us(to.saturating_sub(from)));
        side
    }

    fn add(&mut self, span: &Span, place: usize, exposed: i64) {
        if self.trace.operations.get(span.operation as usize).is_none() {
            return;
        }
        let new = OperationSums {
            lane: span.lane,
            count: 0,
            total: 0,
            exposed: 0,
            peer_wait: None,
            first: place,
        };
        let cell = self.cells.entry(span.operation).or_insert(new);
        let end = span.end_ns.max(span.start_ns);
        cell.count += 1;
        cell.total = cell.total.saturating_add(end.saturating_sub(span.start_ns));
        if span.lane == Lane::Comm {
            cell.exposed = cell.exposed.saturating_add(exposed);
            if let Some(arrival) = self.trace.arrival(span) {
                let waited = arrival.saturating_sub(span.start_ns);
                cell.peer_wait = Some(cell.peer_wait.unwrap_or(0).saturating_add(waited));
            }
        }
    }

    fn share(&self, operations: &[u32]) -> Option<OperationShare> {
        let cells = operations.iter().filter_map(|o| self.cells.get(o));
        let first = cells.clone().map(|cell| cell.first).min()?;
        let per_rank = |ns: i64| us(ns) / self.ranks.max(1) as f64;
        let average =
            |of: fn(&OperationSums) -> i64| per_rank(cells.clone().map(of).fold(0, i64::saturating_add));
        let peer_wait = cells.clone().filter_map(|cell| cell.peer_wait).reduce(i64::saturating_add);
        Some(OperationShare {
            names: operations
                .iter()
                .filter_map(|o| Some(self.trace.operations.get(*o as usize)?.name.clone()))
                .collect(),
            count: cells.clone().map(|cell| cell.count).sum(),
            us: average(|cell| cell.total),
            exposed_us: average(|cell| cell.exposed),
            peer_wait_us: peer_wait.map(per_rank),
            first,
        })
    }
}

/// Operations of both runs, joined by common origins (union-find).
#[derive(Default)]
struct Groups<'a> {
    /// Every operation of both runs: run (0 or 1), index in its trace, lane.
    members: Vec<(usize, u32, Lane)>,
    /// Parent of each member in the union-find forest; roots point to themselves.
    parent: Vec<usize>,
    origins: HashMap<&'a str, usize>,
}

impl<'a> Groups<'a> {
    fn add(&mut self, run: usize, operation: u32, info: &'a OperationInfo, lane: Lane) {
        let own = self.members.len();
        self.members.push((run, operation, lane));
        self.parent.push(own);
        let name = std::slice::from_ref(&info.name);
        let origins = if info.origins.is_empty() { name } else { &info.origins[..] };
        for origin in origins {
            let other = *self.origins.entry(origin).or_insert(own);
            let (own, other) = (self.root(own), self.root(other));
            self.parent[own.max(other)] = own.min(other);
        }
    }

    fn root(&mut self, mut member: usize) -> usize {
        while self.parent[member] != member {
            // path halving
            self.parent[member] = self.parent[self.parent[member]];
            member = self.parent[member];
        }
        member
    }

    /// Groups: operations of the first run, of the second, and their lane.
    fn parts(mut self) -> Vec<([Vec<u32>; 2], Lane)> {
        let mut parts: BTreeMap<usize, ([Vec<u32>; 2], Lane)> = BTreeMap::new();
        for member in 0..self.members.len() {
            let root = self.root(member);
            let (run, operation, lane) = self.members[member];
            parts.entry(root).or_insert_with(|| (Default::default(), lane)).0[run].push(operation);
        }
        parts.into_values().collect()
    }
}

/// Group with its layer and its name without the layer.
struct Row {
    difference: OperationDifference,
    family: String,
    layer: Option<u32>,
}

fn difference(sides: &[OperationSide; 2], (operations, lane): &([Vec<u32>; 2], Lane)) -> Row {
    let (a, b) = (sides[0].share(&operations[0]), sides[1].share(&operations[1]));
    let us_of = |share: &Option<OperationShare>| share.as_ref().map_or(0.0, |share| share.us);
    // names come from the side with fewer operations
    let sayers = sides.iter().zip(operations).filter(|(_, operations)| !operations.is_empty());
    let sayer = sayers.min_by_key(|(_, operations)| operations.len());
    let infos: Vec<&OperationInfo> = sayer
        .map(|(side, operations)| {
            operations.iter().filter_map(|o| side.trace.operations.get(*o as usize)).collect()
        })
        .unwrap_or_default();
    let said = |name: fn(&OperationInfo) -> Cow<'_, str>| {
        infos.iter().map(|info| name(info)).collect::<Vec<_>>().join(" + ")
    };
    Row {
        family: said(over_layers),
        layer: infos.iter().filter_map(|info| info.layer).min(),
        difference: OperationDifference {
            name: said(|info| info.name.as_str().into()),
            lane: *lane,
            delta_us: us_of(&b) - us_of(&a),
            a,
            b,
        },
    }
}

fn families(rows: &[Row]) -> Vec<OperationFamily> {
    let mut of_name: BTreeMap<(&str, Lane), Vec<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        of_name.entry((&row.family, row.difference.lane)).or_default().push(at);
    }
    let family = |((name, lane), mut groups): ((&str, Lane), Vec<usize>)| {
        let sum = |side: fn(&OperationDifference) -> &Option<OperationShare>| {
            // rows are sorted by difference, so the first one provides the first execution
            let shares = groups.iter().filter_map(|at| side(&rows[*at].difference).as_ref());
            shares.cloned().reduce(|mut all, one| {
                all.names.extend(one.names);
                all.count += one.count;
                all.us += one.us;
                all.exposed_us += one.exposed_us;
                let waits = [all.peer_wait_us, one.peer_wait_us].into_iter().flatten();
                all.peer_wait_us = waits.reduce(|a, b| a + b);
                all
            })
        };
        let (a, b) = (sum(|row| &row.a), sum(|row| &row.b));
        let delta_us = groups.iter().map(|at| rows[*at].difference.delta_us).sum();
        let sum = OperationDifference { name: name.to_owned(), lane, a, b, delta_us };
        groups.sort_by_key(|at| (rows[*at].layer.is_none(), rows[*at].layer, *at));
        OperationFamily { sum, groups }
    };
    of_name.into_iter().map(family).collect()
}

#[cfg(test)]
mod tests {
    //! Differences by operation: groups of origins, and sums that add up.

    use proptest::prelude::*;

    use super::*;
    use plan::Phase;
    use table::testing::spec;
    use trace::testing::{span, trace};

    const STEP: StepKey = StepKey { sample: 0, phase: Phase::Decode, step: 0 };

    fn differences(a: &Trace, a_step: StepKey, b: &Trace, b_step: StepKey) -> OperationDifferences {
        operation_differences(&ComputeTimes::from_trace(a), a_step, &ComputeTimes::from_trace(b), b_step)
    }

    fn simulated(change: impl Fn(&mut table::Spec)) -> Trace {
        let mut spec = spec();
        change(&mut spec);
        run::testing::simulated(&spec)
    }

    #[test]
    fn a_fused_operation_stands_against_those_it_was_made_of() {
        let fused = simulated(|_| {});
        let apart = simulated(|spec| {
            spec.set.insert("stack.fuse_add_norm".into(), "false".into());
        });
        let stacks = [&fused, &apart]
            .map(|t| t.operations.iter().any(|o| o.kind == trace::OperationKind::AddNorm));
        assert_ne!(stacks[0], stacks[1], "one of the stacks fuses, the other does not");
        let report = differences(&fused, STEP, &apart, STEP);
        let group = report.groups.iter().find(|g| {
            let names = |share: &Option<OperationShare>| share.as_ref().map_or(0, |s| s.names.len());
            names(&g.a) + names(&g.b) == 3
        });
        let group = group.expect("an add and a norm against an add_norm");
        assert!(group.name.ends_with("add_norm"), "the coarser side names it: {}", group.name);
        let (a, b) = (group.a.as_ref().unwrap(), group.b.as_ref().unwrap());
        assert!(a.names.len() != b.names.len() && a.us > 0.0 && b.us > 0.0);
        assert!((group.delta_us - (b.us - a.us)).abs() < 1e-9);
    }

    #[test]
    fn what_only_one_run_does_is_told() {
        let standard = simulated(|_| {});
        let none = simulated(|spec| spec.architecture = "upper-bound".parse().unwrap());
        let report = differences(&standard, STEP, &none, STEP);
        let reduces: Vec<_> = report.groups.iter().filter(|g| g.lane == Lane::Comm).collect();
        assert_eq!(reduces.len(), 8, "two all-reduces in each of the four layers");
        for group in reduces {
            let share = group.a.as_ref().unwrap();
            assert!(group.b.is_none() && (group.delta_us + share.us).abs() < 1e-9);
            assert!((share.exposed_us - share.us).abs() < 1e-9, "standard hides nothing");
        }
        let first = &report.families[report.by_exposed[0]].sum;
        assert!(first.lane == Lane::Comm && first.delta_exposed_us() < 0.0);
        assert!(
            report.exposed_us.0 > 8.0 * 7.0 && report.exposed_us.1 == 0.0,
            "{:?}",
            report.exposed_us
        );
    }

    #[test]
    fn layers_are_one_family_with_their_sums() {
        let standard = simulated(|_| {});
        let none = simulated(|spec| spec.architecture = "upper-bound".parse().unwrap());
        let report = differences(&standard, STEP, &none, STEP);
        let of_name = |name: &str| report.families.iter().find(|family| family.sum.name == name);
        let reduces = of_name("decode/L*/mlp/all_reduce").expect("one of all layers");
        let names: Vec<&str> =
            reduces.groups.iter().map(|at| report.groups[*at].name.as_str()).collect();
        let layers = ["L0", "L1", "L2", "L3"].map(|layer| format!("decode/{layer}/mlp/all_reduce"));
        assert_eq!(names, layers, "in order of layers");
        let sum: f64 = reduces.groups.iter().map(|at| report.groups[*at].delta_us).sum();
        assert!((reduces.sum.delta_us - sum).abs() < 1e-9 && reduces.sum.b.is_none());
        assert_eq!(reduces.sum.a.as_ref().map(|share| share.count), Some(8), "four layers, two ranks");
        let deltas: Vec<f64> = report.families.iter().map(|family| family.sum.delta_us.abs()).collect();
        assert!(deltas.windows(2).all(|pair| pair[0] >= pair[1]), "the largest first");
        let mut all: Vec<usize> = report.families.iter().flat_map(|f| f.groups.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..report.groups.len()).collect::<Vec<_>>(), "each group in one family");
        assert!(of_name("decode/embed/tokens").is_some_and(|family| family.groups.len() == 1));
    }

    #[test]
    fn what_was_recorded_in_different_ways_is_not_compared_in_what_was_exposed() {
        let by = |recorder: &str| {
            let mut trace = simulated(|_| {});
            trace.meta.recorder = recorder.into();
            trace
        };
        let of = |a: &str, b: &str| differences(&by(a), STEP, &by(b), STEP).recorders;
        assert_eq!(of("stamps", "stamps"), None);
        assert_eq!(of("stamps", "sim"), None, "a prediction is held against whatever was measured");
        assert_eq!(of("stamps", "cupti"), Some(["stamps".to_owned(), "cupti".to_owned()]));
        // how traces of before are marked, each composed of replays
        assert!(of("cuda events, rotating K=8", "stamps").is_some());
        // nor is anything sorted by it
        let order = |recorder: &str| {
            let mut none = simulated(|spec| spec.architecture = "upper-bound".parse().unwrap());
            none.meta.recorder = recorder.into();
            // what differs most in time is no communication
            none.spans.iter_mut().for_each(|span| span.end_ns += 1_000_000);
            differences(&by("stamps"), STEP, &none, STEP).by_exposed
        };
        let by_time: Vec<usize> = (0..order("stamps").len()).collect();
        assert_ne!(order("stamps"), by_time);
        assert_eq!(order("cupti"), by_time);
    }

    /// An emulated collective of the only recorded rank begins when that rank arrives, whenever the others would.
    #[test]
    fn a_trace_without_some_ranks_does_not_know_its_waiting() {
        let reduce = Span { last_arrival_ns: 130, ..span(0, Lane::Comm, 100, 200) };
        let of_ranks = |ranks: u32| {
            let mut trace = trace(vec![span(0, Lane::Compute, 0, 100), reduce]);
            trace.meta.spec.iter_mut().for_each(|spec| spec.tp = ranks);
            trace
        };
        let report = differences(&of_ranks(1), STEP, &of_ranks(8), STEP);
        let waited = |share: &Option<OperationShare>| share.as_ref().expect("in both").peer_wait_us;
        let of_lane = |lane: Lane| {
            let family = report.families.iter().find(|family| family.sum.lane == lane);
            family.map(|family| (waited(&family.sum.a), waited(&family.sum.b)))
        };
        assert_eq!(of_lane(Lane::Comm), Some((Some(0.03), None)));
        assert_eq!(of_lane(Lane::Compute), Some((None, None)));
    }

    #[test]
    fn the_same_step_differs_in_nothing() {
        let trace = simulated(|_| {});
        let report = differences(&trace, STEP, &trace, STEP);
        assert!(report.groups.len() > 20 && report.groups.iter().all(|g| g.delta_us == 0.0));
        assert_eq!(report.lengths_us.0, report.lengths_us.1);
    }

    #[test]
    fn a_step_that_is_not_there_compares_with_nothing() {
        let trace = simulated(|_| {});
        let report = differences(&trace, STEP, &trace, StepKey { step: 999, ..STEP });
        assert!(report.groups.iter().all(|g| g.b.is_none()));
        assert_eq!(report.lengths_us.1, 0.0);
    }

    proptest! {
        #[test]
        fn groups_hold_every_span_once(
            a in prop::collection::vec((0u32..3, 0u32..5, 0i64..300, 0i64..60), 0..40),
            b in prop::collection::vec((0u32..3, 0u32..5, 0i64..300, 0i64..60), 0..40),
            origins in prop::collection::vec(prop::collection::vec(0u32..8, 0..3), 10),
        ) {
            let build = |list: Vec<(u32, u32, i64, i64)>, origins: &[Vec<u32>]| {
                let mut spans: Vec<Span> = list
                    .into_iter()
                    .map(|(rank, operation, start, width)| {
                        let lane = if operation == 1 { Lane::Comm } else { Lane::Compute };
                        Span { operation, ..span(rank, lane, start, start + width) }
                    })
                    .collect();
                spans.sort_by_key(|s| (s.rank, s.lane, s.start_ns));
                let mut trace = trace(spans);
                for (operation, origins) in trace.operations.iter_mut().zip(origins) {
                    operation.origins = origins.iter().map(|o| o.to_string()).collect();
                }
                trace
            };
            let (a, b) = (build(a, &origins[..5]), build(b, &origins[5..]));
            let report = differences(&a, STEP, &b, STEP);
            for (trace, first) in [(&a, true), (&b, false)] {
                let share = |group: &'_ OperationDifference| {
                    let (a, b) = (group.a.clone(), group.b.clone());
                    if first { a } else { b }
                };
                let shares: Vec<OperationShare> = report.groups.iter().filter_map(share).collect();
                let count: u64 = shares.iter().map(|s| s.count).sum();
                prop_assert_eq!(count, trace.spans.len() as u64);
                let mut ranks: Vec<u32> = trace.spans.iter().map(|s| s.rank).collect();
                ranks.dedup();
                let total: i64 = trace.spans.iter().map(|s| s.end_ns - s.start_ns).sum();
                let sum: f64 = shares.iter().map(|s| s.us).sum();
                prop_assert!((sum * ranks.len().max(1) as f64 - total as f64 / 1e3).abs() < 1e-6);
                for share in shares {
                    let waited_us = share.peer_wait_us.unwrap_or(0.0);
                    prop_assert!(share.exposed_us <= share.us + 1e-9 && waited_us <= share.us + 1e-9);
                }
            }
            let mut names: Vec<&String> = report
                .groups
                .iter()
                .flat_map(|g| [&g.a, &g.b])
                .flatten()
                .flat_map(|s| &s.names)
                .collect();
            let all = names.len();
            names.sort();
            names.dedup();
            prop_assert!(all <= 2 * names.len(), "no operation is in two groups");
        }
    }
}
