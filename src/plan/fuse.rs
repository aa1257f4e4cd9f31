//! One operation of an all-reduce, the addition that joins its sum to the residual, and the norm of that: a pass.
//!
//! Where a plan has the three, the last of them may lie some modules later (ladder). The operation stands where the
//! all-reduce stood, and reads the residual that it adds to, which an operation before it wrote. Where modules lie
//! between, it stays on the comm lane; where nothing does, the compute lane would wait for it anyway and executes
//! it. An all-reduce whose sum joins in another way (desync, delayed), whose residual is normed only after a
//! selection of rows, or whose fused operation would have to start after a later collective (another group's, the
//! head's), stays as it is.

use super::{Cost, Kind, Lane, OpId, Operation, Plan, Quantity, ValueId};

/// An all-reduce, its addition and its norm, as indices into the operations;
/// and before which operation the fused one stands.
struct Trio {
    parts: [usize; 3],
    before: usize,
    /// The residual that the sum joins.
    residual: ValueId,
}

/// Merges each all-reduce with the addition and the norm that follow from it alone.
pub(super) fn fuse_all_reduce(plan: Plan) -> Plan {
    let trios = trios(&plan);
    let Plan { operations, .. } = &plan;
    let mut part_of: Vec<Option<usize>> = vec![None; operations.len()];
    let mut before: Vec<Option<usize>> = vec![None; operations.len()];
    for (index, trio) in trios.iter().enumerate() {
        trio.parts.iter().for_each(|&part| part_of[part] = Some(index));
        before[trio.before] = Some(index);
    }
    let mut fused: Vec<Operation> = Vec::with_capacity(operations.len());
    // where each old operation went, for explicit edges
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

/// The plan with its values in the order in which they are written; those that nobody writes any more, the sums
/// between merged operations, are gone.
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

/// The trios of a plan, in the order of their all-reduces.
fn trios(plan: &Plan) -> Vec<Trio> {
    let operations = &plan.operations;
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); plan.values.len()];
    // before which operation each value is there: the one behind its writer
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
        // the order of collectives is the same on every rank, and stays
        let overtaken = |at: usize| operations[at].lane == Lane::Comm;
        if before > add || (reduce + 1..before).any(overtaken) {
            continue;
        }
        there[joins.writes[0].index()] = before;
        trios.push(Trio { parts: [reduce, add, norm], before, residual });
    }
    trios
}

/// The operation that does what the three did: it reads the partial value and the residual once, and writes the
/// new residual and its norm.
fn merged([reduce, add, norm]: [&Operation; 3], residual: ValueId, lane: Lane) -> Operation {
    let kind = Kind::AllReduceAddNorm;
    let name = match reduce.name.strip_suffix(Kind::AllReduce.as_str()) {
        Some(prefix) => format!("{prefix}{}", kind.as_str()),
        None => reduce.name.clone(),
    };
    let parts = [reduce, add, norm];
    let all =
        |of: fn(&Operation) -> Quantity| parts.map(of).into_iter().fold(Quantity::ZERO, |a, b| a + b);
    // neither the reduced sum nor the new residual is read again
    let passed_on = reduce.cost.bytes_written + add.cost.bytes_written;
    let cost = Cost {
        flops: all(|o| o.cost.flops),
        bytes_read: less(all(|o| o.cost.bytes_read), passed_on),
        bytes_written: add.cost.bytes_written + norm.cost.bytes_written,
        message_bytes: reduce.cost.message_bytes,
    };
    Operation {
        name,
        kind,
        lane,
        reads: vec![reduce.reads[0], residual],
        writes: vec![add.writes[0], norm.writes[0]],
        weight: norm.weight,
        layer: reduce.layer,
        module: reduce.module,
        group: reduce.group,
        cost,
        origins: parts.iter().flat_map(|o| o.origins.clone()).collect(),
        after: parts.iter().flat_map(|o| o.after.clone()).collect(),
    }
}

/// What is left of a quantity of activations.
fn less(all: Quantity, taken: Quantity) -> Quantity {
    Quantity { row: all.row - taken.row, sequence: all.sequence - taken.sequence, ..all }
}
