//! Classification of a trace by rules.

use indexmap::IndexMap;
use rayon::prelude::*;

use super::exchange::name_exchanges;
use super::file::{Rule, RuleClass, Rules, function};
use super::report::{Matched, RuleMatches, RuleReport, UnsureOperation};
use crate::{CollectiveInfo, OperationInfo, OperationKind, Span, Trace, sort_spans};
use plan::Lane;

/// Words in kernel names that suggest communication.
const HINTS: &str = "reduce gather scatter alltoall all2all all_to_all nccl rccl comm p2p peer dist shmem symm send recv \
                     broadcast bcast dispatch combine barrier exchange a2a rdma nvlink collective";

/// Inverse of the minimum share of the total operation time for an operation to count as long.
const LONG_FRACTION: u64 = 1000;

const MAX_UNSURE: usize = 20;

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
        let all_ns = totals.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let bases: Vec<ClassificationBasis> =
            trace.operations.par_iter().map(|operation| self.decide(operation)).collect();
        for ((operation, basis), (count, total_ns)) in trace.operations.iter_mut().zip(bases).zip(totals)
        {
            let entry = Matched { name: operation.name.clone(), count, total_ns };
            if let Some((taken_for, why)) = doubt(operation, &basis)
                && total_ns > 0
                && total_ns >= all_ns / LONG_FRACTION
            {
                unsure.push(UnsureOperation { operation: entry.clone(), taken_for, why });
            }
            apply(operation, &basis);
            match basis {
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
        sort_spans(&mut trace.spans);

        unsure.sort_by(|a, b| a.operation.longest_first(&b.operation));
        unsure.truncate(MAX_UNSURE);
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
                    let mut operations = merge_by_name(found);
                    operations.sort_by(Matched::longest_first);
                    RuleMatches { rule: rule.into(), what, operations }
                })
                .collect();
        RuleReport { rules: self.name.clone(), matches, unsure }
    }

    fn is_communication(&self, kernel: &str) -> bool {
        let basis = self.decide(&OperationInfo::imported(kernel.to_owned(), OperationKind::Kernel));
        matches!(basis, ClassificationBasis::Rule(_, rule) if rule.what == RuleClass::Communication)
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

fn apply(operation: &mut OperationInfo, basis: &ClassificationBasis) {
    let (lane, kind) = match basis {
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
fn doubt(operation: &OperationInfo, basis: &ClassificationBasis) -> Option<(RuleClass, String)> {
    if operation.name.starts_with("Memcpy PtoP") {
        let taken_for = if matches!(basis, ClassificationBasis::Category) {
            RuleClass::Memory
        } else {
            RuleClass::Compute
        };
        let why = "a copy between GPUs, as in collectives that use copy engines".to_owned();
        return Some((taken_for, why));
    }
    if !matches!(basis, ClassificationBasis::Nothing) {
        return None;
    }
    let function = function(&operation.name).to_ascii_lowercase();
    let hint = HINTS.split(' ').find(|hint| function.contains(hint))?;
    Some((RuleClass::Compute, format!("its name contains '{hint}', but no rule matches it")))
}

/// Merges operations with equal names, such as collective kernels with different arguments.
fn merge_by_name(operations: Vec<Matched>) -> Vec<Matched> {
    let mut merged: IndexMap<String, Matched> = IndexMap::new();
    for operation in operations {
        let Matched { count, total_ns, .. } = operation;
        let entry = merged.entry(operation.name.clone()).and_modify(|known| {
            known.count += count;
            known.total_ns = known.total_ns.saturating_add(total_ns);
        });
        entry.or_insert(operation);
    }
    merged.into_values().collect()
}
