//! Placement of an operation's result, and the operands that it accepts.

use super::builder::{Builder, PlanError};
use super::{Kind, Placement, Shard, ValueId};

impl Builder<'_> {
    /// Placement of the result of `kind` given its operands' placements.
    pub(super) fn infer(
        &self,
        operation: &str,
        kind: &Kind,
        reads: &[ValueId],
        shard: Option<Shard>,
    ) -> Result<Placement, PlanError> {
        use Placement::{Divergent, Partial, Replicated, Scattered, Sharded};
        let wanted_operands = match kind {
            Kind::Add | Kind::AddNorm | Kind::AddMean | Kind::AllReduceAddNorm => 2,
            Kind::LatentAttend | Kind::SigmoidMul => 2,
            Kind::Experts | Kind::Dispatch | Kind::Combine => 2,
            Kind::Join { .. } | Kind::JoinNorm { .. } if reads.len() > 2 => reads.len().min(4),
            Kind::Join { .. } | Kind::JoinNorm { .. } => 2,
            _ => 1,
        };
        if reads.len() != wanted_operands {
            return Err(PlanError::Operands {
                operation: operation.into(),
                found: reads.len(),
                wanted: wanted_operands,
            });
        }
        let wrong = |operand: usize, wanted: &str| {
            let value = &self.values[reads[operand].index()];
            Err(PlanError::Placement {
                operation: operation.into(),
                value: value.name.clone(),
                found: value.placement,
                wanted: wanted.into(),
            })
        };
        let first = self.placement(reads[0]);
        let whole = matches!(first, Replicated | Divergent);
        match kind {
            // row selections keep the placement
            Kind::SelectLast if first == Sharded => Ok(Sharded),
            Kind::Embed if whole && self.scatters() => Ok(Scattered),
            Kind::Norm if first == Scattered => Ok(Scattered),
            Kind::Embed | Kind::Norm | Kind::SelectLast => {
                if whole {
                    Ok(first)
                } else {
                    wrong(0, "it must be replicated")
                }
            }
            Kind::Sample => match first {
                Replicated | Divergent => Ok(first),
                Sharded if self.may_diverge => Ok(Divergent),
                _ => wrong(0, "it must be replicated"),
            },
            Kind::Add | Kind::AddNorm => match (first, self.placement(reads[1])) {
                (Replicated, Replicated) => Ok(Replicated),
                (Partial, Partial) => Ok(Partial),
                (Scattered, Scattered) => Ok(Scattered),
                (Divergent, Replicated | Divergent) => Ok(Divergent),
                (Replicated | Divergent, Partial) if self.may_diverge => Ok(Divergent),
                (Replicated | Divergent, _) => wrong(
                    1,
                    "it must be replicated: reduce it first, or use an architecture that diverges",
                ),
                _ => wrong(0, "it must be replicated, or both partial"),
            },
            Kind::AddMean => match (first, self.placement(reads[1])) {
                _ if !self.may_diverge => wrong(0, "averaging residuals is for desync alone"),
                (Replicated | Divergent, Partial) => Ok(Partial),
                (Replicated | Divergent, _) => wrong(1, "it must be partial"),
                _ => wrong(0, "it must be a residual, replicated or divergent"),
            },
            Kind::Join { .. } | Kind::JoinNorm { .. } => {
                let wanted = [Divergent, Partial, Replicated, Partial];
                match reads.iter().zip(wanted).position(|(&value, wanted)| {
                    let found = self.placement(value);
                    found != wanted && !(wanted == Divergent && found == Replicated)
                }) {
                    _ if !self.may_diverge => {
                        wrong(0, "joining by parts is for delayed and partial alone")
                    }
                    Some(0) => wrong(0, "it must be a residual, replicated or divergent"),
                    Some(2) => wrong(2, "it must be the sum of an all-reduce"),
                    Some(operand) => wrong(operand, "it must be partial"),
                    None => Ok(Divergent),
                }
            }
            Kind::Narrow if first == Partial && self.may_diverge => Ok(Partial),
            Kind::Narrow => wrong(0, "it must be partial, and private channels are for partial alone"),
            Kind::MeanShare if whole && self.may_diverge => Ok(Partial),
            Kind::MeanShare => wrong(0, "it must be replicated or divergent"),
            Kind::Send | Kind::Receive => Ok(first),
            Kind::Quantize { .. } if first == Partial => Ok(Partial),
            Kind::Quantize { .. } => wrong(0, "it must be partial"),
            Kind::MatMul => match (shard, first) {
                (Some(Shard::Rows), Replicated | Divergent) => Ok(Sharded),
                (Some(Shard::Columns), Sharded) if self.spec.tp == 1 => Ok(Replicated),
                (Some(Shard::Columns), Sharded) => Ok(Partial),
                (Some(Shard::Whole), Replicated | Divergent) => Ok(first),
                (Some(Shard::Columns), _) => wrong(0, "it must be sharded"),
                _ => wrong(0, "it must be replicated"),
            },
            Kind::RopeAppend
            | Kind::BiasRopeAppend
            | Kind::NormRopeAppend
            | Kind::Attend
            | Kind::WindowAttend { .. }
            | Kind::SiluMul { .. } => {
                if first == Sharded {
                    Ok(Sharded)
                } else {
                    wrong(0, "it must be sharded")
                }
            }
            Kind::AllReduce | Kind::AllReduceAddNorm => {
                if first == Partial {
                    Ok(Replicated)
                } else {
                    wrong(0, "it must be partial")
                }
            }
            Kind::AllGather => {
                if matches!(first, Sharded | Scattered | Divergent) {
                    Ok(Replicated)
                } else {
                    wrong(0, "it must be sharded, scattered or divergent")
                }
            }
            Kind::LatentAppend if whole => Ok(first),
            Kind::LatentAppend => wrong(0, "it must be replicated"),
            Kind::LatentAttend | Kind::SigmoidMul => match (first, self.placement(reads[1])) {
                (Sharded, Sharded) if *kind == Kind::SigmoidMul => Ok(Sharded),
                (Sharded, Replicated | Divergent) if *kind == Kind::LatentAttend => Ok(Sharded),
                (Sharded, _) => wrong(1, "latents must be replicated, gates sharded"),
                _ => wrong(0, "it must be sharded"),
            },
            Kind::Router => match first {
                Replicated => Ok(Replicated),
                // the numbers of a limit are wrong anyway
                Divergent if self.spec.architecture.is_limit() => Ok(Divergent),
                _ => wrong(
                    0,
                    "it must be replicated: routers of different ranks would choose other experts",
                ),
            },
            Kind::Experts => match first {
                Sharded => Ok(Sharded),
                Replicated | Divergent if self.spec.tp == 1 => Ok(first),
                Replicated | Divergent => Ok(Partial),
                _ => wrong(0, "it must be replicated, or dispatched to the experts' ranks"),
            },
            Kind::Dispatch if first == Replicated && self.spec.tp == 1 => Ok(Sharded),
            Kind::Dispatch => wrong(0, "it must be whole rows of the rank's own tokens"),
            Kind::Combine if first == Sharded => Ok(Replicated),
            Kind::Combine => wrong(0, "it must be outputs of dispatched rows"),
            Kind::ReduceScatter if first == Partial => Ok(Scattered),
            Kind::ReduceScatter => wrong(0, "it must be partial"),
        }
    }
}
