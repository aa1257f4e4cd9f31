//! Lowering: what a software stack does to a plan. A list of passes, each optional, each keeping the
//! `origins` of what it merges, so that plans lowered differently can be compared.

use serde::{Deserialize, Serialize};

use super::fuse::fuse_all_reduce;
use super::{Kind, OpId, Operation, Plan};

/// What a stack does to a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Lowering {
    /// Shard the head by vocabulary; one more collective, named `head`.
    pub shard_head: bool,
    /// Prefill computes logits for every position, not only the last.
    pub all_logits: bool,
    /// Prefill takes the last position out behind the final norm, not before it: what the norm gives has a row
    /// a position ([`Plan::selected_from`]), of which logits can be computed a slice at a time. Without effect where
    /// [`Lowering::all_logits`] is set, which holds them all at once.
    pub late_select: bool,
    /// Fuse a residual addition with the norm that follows it.
    pub fuse_add_norm: bool,
    /// Fuse an all-reduce with the addition of its sum to the residual and the norm of that.
    pub fuse_all_reduce: bool,
}

/// Applies the passes that `lowering` asks for.
pub(super) fn lower(plan: Plan, lowering: &Lowering) -> Plan {
    let plan = if lowering.fuse_all_reduce { fuse_all_reduce(plan) } else { plan };
    if lowering.fuse_add_norm { fuse_add_norm(plan) } else { plan }
}

/// The fused kind of an addition to the residual and the norm of its result.
fn with_norm(kind: &Kind) -> Option<Kind> {
    match kind {
        Kind::Add => Some(Kind::AddNorm),
        Kind::Join { root } => Some(Kind::JoinNorm { root: *root }),
        _ => None,
    }
}

/// `Add` followed on its lane by the `Norm` of its result becomes one `AddNorm`, and `Join` a `JoinNorm`.
fn fuse_add_norm(mut plan: Plan) -> Plan {
    let mut fused: Vec<Operation> = Vec::with_capacity(plan.operations.len());
    // where each old operation went, for explicit edges
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
            // the sum is not read again: only the norm's weight is
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
