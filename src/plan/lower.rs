//! Lowering: optional passes that a software stack applies to a plan. Each pass keeps the `origins` of
//! the operations it merges, so that plans lowered differently can be compared.
//!
//! One pass merges a residual addition with the norm of its result, the other an all-reduce with both. In
//! ladder the norm may come a few modules after the all-reduce. The fused operation takes the all-reduce's
//! position and reads the residual, which must be written by then. It stays on the comm lane if modules run
//! in between; otherwise the compute lane would wait for it anyway and executes it itself. Some all-reduces
//! stay unfused: their sum joins differently (desync, delayed), the residual is normed only after a row
//! selection, or the fused operation would have to start after a later collective (another group's, the
//! head's).

use serde::{Deserialize, Serialize};

use super::{Cost, Kind, Lane, OpId, Operation, Plan, Quantity, ValueId};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Lowering {
    /// Shard the head by vocabulary; adds one collective, named `head`.
    pub shard_head: bool,
    /// Compute logits for every prefill position, not only the last.
    pub all_logits: bool,
    /// Select the last prefill position after the final norm instead of before it. The norm's output
    /// keeps one row per position ([`Plan::selected_from`]), so logits can be computed in slices. No
    /// effect with [`Lowering::all_logits`], which holds all logits at once.
    pub late_select: bool,
    /// Fuse a residual addition with the norm after it.
    pub fuse_add_norm: bool,
    /// Fuse an all-reduce with the residual addition of its sum and the norm after it.
    pub fuse_all_reduce: bool,
}

pub(super) fn lower(plan: Plan, lowering: &Lowering) -> Plan {
    let plan = if lowering.fuse_all_reduce { fuse_all_reduce(plan) } else { plan };
    if lowering.fuse_add_norm { fuse_add_norm(plan) } else { plan }
}

/// Fused kind of a residual addition and the norm of its result.
fn with_norm(kind: &Kind) -> Option<Kind> {
    match kind {
        Kind::Add => Some(Kind::AddNorm),
        Kind::Join { root } => Some(Kind::JoinNorm { root: *root }),
        _ => None,
    }
}

/// Fuses `Add` with the `Norm` of its result on the same lane into `AddNorm`, and `Join` into
/// `JoinNorm`.
fn fuse_add_norm(mut plan: Plan) -> Plan {
    let mut fused: Vec<Operation> = Vec::with_capacity(plan.operations.len());
    // new id of each old operation, for explicit edges
    let mut moved: Vec<OpId> = Vec::with_capacity(plan.operations.len());
    for operation in plan.operations.drain(..) {
        if operation.kind == Kind::Norm
            && let Some(at) = fused.iter().rposition(|o| o.lane == operation.lane)
            && let Some(kind) = with_norm(&fused[at].kind)
            && fused[at].writes == operation.reads
        {
            let add = &mut fused[at];
            add.name = match operation.name.strip_suffix("norm") {
                Some(prefix) => format!("{prefix}{}", kind.as_str()),
                None => operation.name.clone(),
            };
            add.kind = kind;
            add.writes.extend(operation.writes);
            add.weight = operation.weight;
            add.origins.extend(operation.origins);
            add.after.extend(operation.after);
            let sum_read = add.cost.bytes_written;
            add.cost.flops += operation.cost.flops;
            add.cost.bytes_written += operation.cost.bytes_written;
            // the sum is not read again, only the norm's weight
            let mut weight_read = operation.cost.bytes_read;
            weight_read.row -= sum_read.row;
            weight_read.sequence -= sum_read.sequence;
            add.cost.bytes_read += weight_read;
            moved.push(OpId(at as u32));
        } else {
            moved.push(OpId(fused.len() as u32));
            fused.push(operation);
        }
    }
    for operation in &mut fused {
        for edge in &mut operation.after {
            *edge = moved[edge.index()];
        }
    }
    plan.operations = fused;
    plan
}

/// Indices of an all-reduce, its addition and its norm, and of the operation before which the fused one
/// is inserted.
struct Trio {
    parts: [usize; 3],
    before: usize,
    residual: ValueId,
}

/// Merges each all-reduce with its addition and norm if no other operation reads the sum.
fn fuse_all_reduce(plan: Plan) -> Plan {
    let trios = trios(&plan);
    let Plan { operations, .. } = &plan;
    let mut part_of: Vec<Option<usize>> = vec![None; operations.len()];
    let mut before: Vec<Option<usize>> = vec![None; operations.len()];
    for (index, trio) in trios.iter().enumerate() {
        trio.parts.iter().for_each(|&part| part_of[part] = Some(index));
        before[trio.before] = Some(index);
    }
    let mut fused: Vec<Operation> = Vec::with_capacity(operations.len());
    // new id of each old operation, for explicit edges
    let mut moved = vec![OpId(0); operations.len()];
    for (at, operation) in operations.iter().enumerate() {
        if let Some(trio) = before[at].map(|index| &trios[index]) {
            trio.parts.iter().for_each(|&part| moved[part] = OpId(fused.len() as u32));
            let waits = (trio.before..trio.parts[2])
                .any(|at| operations[at].lane == Lane::Compute && part_of[at].is_none());
            let lane = if waits { Lane::Comm } else { Lane::Compute };
            fused.push(merged(trio.parts.map(|part| &operations[part]), trio.residual, lane));
        }
        if part_of[at].is_none() {
            moved[at] = OpId(fused.len() as u32);
            fused.push(operation.clone());
        }
    }
    for edge in fused.iter_mut().flat_map(|operation| &mut operation.after) {
        *edge = moved[edge.index()];
    }
    renumbered(Plan { operations: fused, ..plan })
}

/// Renumbers values in the order they are written and drops those without a writer (sums inside fused
/// operations).
fn renumbered(mut plan: Plan) -> Plan {
    let written = plan.operations.iter().flat_map(|operation| operation.writes.iter().copied());
    let order: Vec<ValueId> = plan.tokens.iter().copied().chain(written).collect();
    let mut ids = vec![ValueId(0); plan.values.len()];
    order.iter().zip(0..).for_each(|(old, new)| ids[old.index()] = ValueId(new));
    plan.values = order.iter().map(|old| plan.values[old.index()].clone()).collect();
    let own = [&mut plan.tokens, &mut plan.logits, &mut plan.outputs].into_iter().flatten();
    let of_operations = plan.operations.iter_mut().flat_map(|o| o.reads.iter_mut().chain(&mut o.writes));
    own.chain(of_operations).for_each(|value| *value = ids[value.index()]);
    plan
}

/// Trios of a plan, in the order of their all-reduces.
fn trios(plan: &Plan) -> Vec<Trio> {
    let operations = &plan.operations;
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); plan.values.len()];
    // index of the first operation that can read each value: one after its writer
    let mut there = vec![0; plan.values.len()];
    for (at, operation) in operations.iter().enumerate() {
        operation.reads.iter().for_each(|read| readers[read.index()].push(at));
        operation.writes.iter().for_each(|written| there[written.index()] = at + 1);
    }
    let mut trios: Vec<Trio> = Vec::new();
    for (reduce, operation) in operations.iter().enumerate().filter(|(_, o)| o.kind == Kind::AllReduce) {
        let sum = operation.writes[0];
        let &[add] = readers[sum.index()].as_slice() else { continue };
        let joins = &operations[add];
        let other = joins.reads.iter().copied().find(|&read| read != sum);
        let Some(residual) = other.filter(|_| joins.kind == Kind::Add) else { continue };
        let normed = |&&reader: &&usize| operations[reader].kind == Kind::Norm;
        let Some(&norm) = readers[joins.writes[0].index()].iter().find(normed) else { continue };
        let before = there[residual.index()].max(reduce);
        // all ranks run collectives in the same order; keep that order
        let overtaken = |at: usize| operations[at].lane == Lane::Comm;
        if before > add || (reduce + 1..before).any(overtaken) {
            continue;
        }
        there[joins.writes[0].index()] = before;
        trios.push(Trio { parts: [reduce, add, norm], before, residual });
    }
    trios
}

/// Merges three operations into one that reads the partial value and the residual once, and writes the
/// new residual and its norm.
fn merged([reduce, add, norm]: [&Operation; 3], residual: ValueId, lane: Lane) -> Operation {
    let kind = Kind::AllReduceAddNorm;
    let name = match reduce.name.strip_suffix(Kind::AllReduce.as_str()) {
        Some(prefix) => format!("{prefix}{}", kind.as_str()),
        None => reduce.name.clone(),
    };
    let parts = [reduce, add, norm];
    let all = |quantity: fn(&Operation) -> Quantity| {
        parts.map(quantity).into_iter().fold(Quantity::ZERO, |a, b| a + b)
    };
    // neither the reduced sum nor the new residual is read from memory again
    let passed_on = reduce.cost.bytes_written + add.cost.bytes_written;
    let cost = Cost {
        flops: all(|o| o.cost.flops),
        bytes_read: less(all(|o| o.cost.bytes_read), passed_on),
        bytes_written: add.cost.bytes_written + norm.cost.bytes_written,
        message_bytes: reduce.cost.message_bytes,
        routed: None,
    };
    Operation {
        name,
        kind,
        lane,
        reads: vec![reduce.reads[0], residual],
        writes: vec![add.writes[0], norm.writes[0]],
        weight: norm.weight,
        more: Vec::new(),
        layer: reduce.layer,
        module: reduce.module,
        group: reduce.group,
        cost,
        origins: parts.iter().flat_map(|o| o.origins.clone()).collect(),
        after: parts.iter().flat_map(|o| o.after.clone()).collect(),
    }
}

/// Subtracts the bytes per row and per sequence.
fn less(all: Quantity, taken: Quantity) -> Quantity {
    Quantity { row: all.row - taken.row, sequence: all.sequence - taken.sequence, ..all }
}
