//! Classification of a trace by rules, and its report: operations per rule, and uncertain ones.

use indexmap::IndexMap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::exchange::name_exchanges;
use super::file::{Rule, RuleClass, Rules, function};
use crate::{CollectiveInfo, OperationInfo, OperationKind, Span, Trace};
use plan::Lane;

const HINTS: [&str; 26] = [
    "reduce",
    "gather",
    "scatter",
    "alltoall",
    "all2all",
    "all_to_all",
    "nccl",
    "rccl",
    "comm",
    "p2p",
    "peer",
    "dist",
    "shmem",
    "symm",
    "send",
    "recv",
    "broadcast",
    "bcast",
    "dispatch",
    "combine",
    "barrier",
    "exchange",
    "a2a",
    "rdma",
    "nvlink",
    "collective",
];

/// Inverse of the minimum share of the total operation time for an operation to count as long.
const LONG: u64 = 1000;

const MOST_UNSURE: usize = 20;

/// Basis of an operation's classification.
enum ClassificationBasis<'a> {
    Category,
    /// The kernel's arguments name a collective of this kind.
    Arguments(OperationKind),
    Rule(usize, &'a Rule),
    Nothing,
}

impl Rules {
    /// Sets lane and kind (`all_reduce`; `memcpy` and `memset` are memory) of every operation and span
    /// of an imported trace. Expects the kinds that importers assign. Sorts the spans again, because
    /// their order depends on the lane.
    pub fn classify(&self, trace: &mut Trace) -> RuleReport {
        let totals = totals(&trace.operations, &trace.spans);
        let mut matched: Vec<Vec<Matched>> = vec![Vec::new(); self.rules.len()];
        let (mut category, mut arguments, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
        let mut unsure = Vec::new();
        let everything = totals.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let classes: Vec<ClassificationBasis> =
            trace.operations.par_iter().map(|operation| self.decide(operation)).collect();
        for ((operation, by), (count, total_ns)) in trace.operations.iter_mut().zip(classes).zip(totals)
        {
            let entry = Matched { name: operation.name.clone(), count, total_ns };
            if let Some((taken_for, why)) = doubt(operation, &by)
                && total_ns > 0
                && total_ns >= everything / LONG
            {
                unsure.push(UnsureOperation { operation: entry.clone(), taken_for, why });
            }
            apply(operation, &by);
            match by {
                ClassificationBasis::Category => category.push(entry),
                ClassificationBasis::Arguments(_) => arguments.push(entry),
                ClassificationBasis::Rule(index, _) => matched[index].push(entry),
                ClassificationBasis::Nothing => nothing.push(entry),
            }
        }
        let lanes: Vec<Lane> = trace.operations.iter().map(|operation| operation.lane).collect();
        for span in &mut trace.spans {
            span.lane = lanes.get(span.operation as usize).copied().unwrap_or(span.lane);
        }
        name_exchanges(trace);
        sort(&mut trace.spans);

        unsure.sort_by(|a, b| longest_first(&a.operation, &b.operation));
        unsure.truncate(MOST_UNSURE);
        if let Some(import) = &mut trace.meta.import {
            import.unsure.clone_from(&unsure);
            for kernel in &mut import.ignored_kernels {
                kernel.is_communication = self.is_communication(&kernel.name);
            }
        }
        let by_rule =
            self.rules.iter().zip(matched).map(|(rule, found)| (rule.name.as_str(), rule.what, found));
        let matches =
            std::iter::once(("copies and fills (profiler category)", RuleClass::Memory, category))
                .chain(by_rule)
                .chain([
                    ("arguments that name a collective", RuleClass::Communication, arguments),
                    ("no rule", RuleClass::Compute, nothing),
                ])
                .filter(|(.., found)| !found.is_empty())
                .map(|(rule, what, found)| {
                    let mut operations = by_name(found);
                    operations.sort_by(longest_first);
                    RuleMatches { rule: rule.into(), what, operations }
                })
                .collect();
        RuleReport { rules: self.name.clone(), matches, unsure }
    }

    fn is_communication(&self, kernel: &str) -> bool {
        let by = self.decide(&OperationInfo::imported(kernel.to_owned(), OperationKind::Kernel));
        matches!(by, ClassificationBasis::Rule(_, rule) if rule.what == RuleClass::Communication)
    }

    fn decide(&self, operation: &OperationInfo) -> ClassificationBasis<'_> {
        if self.memory_by_category && operation.kind.is_memory() {
            return ClassificationBasis::Category;
        }
        let name = &operation.name;
        let (folded, function) = (name.to_ascii_lowercase(), function(name));
        let folded_function = function.to_ascii_lowercase();
        let found = self.rules.iter().enumerate().find(|(_, rule)| {
            let (name, folded) =
                if rule.function_only { (&function, &folded_function) } else { (name, &folded) };
            rule.patterns.iter().any(|pattern| pattern.matches(name, folded))
        });
        if let Some((index, rule)) = found {
            return ClassificationBasis::Rule(index, rule);
        }
        let named = operation.collective.as_ref().filter(|_| self.arguments);
        named.map_or(ClassificationBasis::Nothing, |info| {
            ClassificationBasis::Arguments(info.kind().unwrap_or(OperationKind::Collective))
        })
    }
}

/// Number of executions and sum of durations (ns) per operation.
fn totals(operations: &[OperationInfo], spans: &[Span]) -> Vec<(u64, u64)> {
    let mut totals = vec![(0u64, 0u64); operations.len()];
    for span in spans {
        if let Some((count, ns)) = totals.get_mut(span.operation as usize) {
            *count += 1;
            *ns = ns.saturating_add(span.end_ns.abs_diff(span.start_ns));
        }
    }
    totals
}

fn apply(operation: &mut OperationInfo, by: &ClassificationBasis) {
    let (lane, kind) = match by {
        ClassificationBasis::Category => return,
        ClassificationBasis::Arguments(kind) => (Lane::Comm, kind.clone()),
        ClassificationBasis::Rule(_, rule) if rule.what == RuleClass::Communication => {
            // arguments are more specific than names: RCCL runs all collectives in one kernel
            let named = operation.collective.as_ref().and_then(CollectiveInfo::kind);
            let named = named.filter(|kind| *kind != OperationKind::Collective);
            (Lane::Comm, named.unwrap_or_else(|| rule.kind.clone()))
        }
        ClassificationBasis::Rule(_, rule) => (Lane::Compute, rule.kind.clone()),
        ClassificationBasis::Nothing => (Lane::Compute, OperationKind::Kernel),
    };
    (operation.lane, operation.kind) = (lane, kind);
}

/// Reason why an operation that is not classified as communication may be some.
fn doubt(operation: &OperationInfo, by: &ClassificationBasis) -> Option<(RuleClass, String)> {
    if operation.name.starts_with("Memcpy PtoP") {
        let taken_for = if matches!(by, ClassificationBasis::Category) {
            RuleClass::Memory
        } else {
            RuleClass::Compute
        };
        let why = "a copy between GPUs, as in collectives that use copy engines".to_owned();
        return Some((taken_for, why));
    }
    if !matches!(by, ClassificationBasis::Nothing) {
        return None;
    }
    let function = function(&operation.name).to_ascii_lowercase();
    let hint = HINTS.iter().find(|hint| function.contains(**hint))?;
    Some((RuleClass::Compute, format!("its name contains '{hint}', but no rule matches it")))
}

/// Merges operations with equal names, such as collective kernels with different arguments.
fn by_name(operations: Vec<Matched>) -> Vec<Matched> {
    let mut merged: IndexMap<String, Matched> = IndexMap::new();
    for operation in operations {
        let Matched { count, total_ns, .. } = operation;
        let entry = merged.entry(operation.name.clone()).and_modify(|there| {
            there.count += count;
            there.total_ns = there.total_ns.saturating_add(total_ns);
        });
        entry.or_insert(operation);
    }
    merged.into_values().collect()
}

fn longest_first(a: &Matched, b: &Matched) -> std::cmp::Ordering {
    b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name))
}

/// Sorts spans into the order of [`Trace`]: by (sample, phase, step, rank, lane, start).
pub fn sort(spans: &mut [Span]) {
    let key = |span: &Span| {
        (
            span.sample,
            span.phase as u8,
            span.step,
            span.rank,
            span.lane as u8,
            span.start_ns,
            span.stream,
        )
    };
    if !spans.is_sorted_by_key(key) {
        spans.par_sort_by_key(key);
    }
}

/// Result of classifying a trace. Empty for native traces, whose plan defines every operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleReport {
    /// Rule set: `default`, `nccl-name`, `hta`, or the path of the file.
    pub rules: String,
    /// Rules with matches, in order of evaluation; unmatched operations come last, as computation.
    pub matches: Vec<RuleMatches>,
    /// Long operations classified as computation or memory whose names suggest communication, longest
    /// first.
    pub unsure: Vec<UnsureOperation>,
}

/// Matches of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleMatches {
    /// Name of the rule in its file.
    pub rule: String,
    /// Class that the rule assigns.
    pub what: RuleClass,
    /// Matching operations, by descending total time.
    pub operations: Vec<Matched>,
}

/// Executions of one operation on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Matched {
    /// Kernel name as the rules saw it.
    pub name: String,
    /// Number of executions on all ranks.
    pub count: u64,
    /// Sum of the durations (ns).
    pub total_ns: u64,
}

/// An operation that may be communication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Unsure")]
pub struct UnsureOperation {
    /// Operation with its count and total time.
    #[serde(flatten)]
    pub operation: Matched,
    /// Class that the rules assigned.
    pub taken_for: RuleClass,
    /// Reason for the doubt.
    pub why: String,
}

impl RuleReport {
    /// True if no rules were applied.
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Operations classified as communication, by descending total time.
    pub fn communication(&self) -> Vec<&Matched> {
        let mut found: Vec<&Matched> = self
            .matches
            .iter()
            .filter(|rule| rule.what == RuleClass::Communication)
            .flat_map(|rule| &rule.operations)
            .collect();
        found.sort_by(|a, b| longest_first(a, b));
        found
    }
}
