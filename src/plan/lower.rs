//! Lowering: optional passes that a software stack applies to a plan. Each pass keeps the `origins` of
//! the operations it merges, so that plans lowered differently can be compared.

use serde::{Deserialize, Serialize};

use super::fuse::fuse_all_reduce;
use super::{Kind, OpId, Operation, Plan};

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
            add.cost.flops = add.cost.flops + operation.cost.flops;
            add.cost.bytes_written = add.cost.bytes_written + operation.cost.bytes_written;
            // the sum is not read again, only the norm's weight
            let mut weight_read = operation.cost.bytes_read;
            weight_read.row -= sum_read.row;
            weight_read.sequence -= sum_read.sequence;
            add.cost.bytes_read = add.cost.bytes_read + weight_read;
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
