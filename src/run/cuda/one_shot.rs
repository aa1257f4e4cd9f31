//! One-shot all-reduces (`--collective one-shot` and `fused`): ranks of one process read each other's memory
//! directly. Allocates the regions used by kernels/one_shot.cu and reports unsupported cells.

use std::sync::Arc;

use super::kernels::geometry;
use super::launches::{Binder, OperationCall};
use super::program::StepSize;
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Gpu, Memory, arguments};
use plan::{CommDType, Kind, Lane, Operation, Plan};
use table::{Collective, P2p, Spec};

/// Maximum number of ranks in a region.
const MOST_RANKS: u32 = 16;

/// Size of a region's header (bytes), as in the kernels: addresses, counters, flags.
pub const HEAD_BYTES: u64 = 256 + 4 * (geometry::ONE_SHOT_BLOCKS as u64) * (MOST_RANKS as u64);

/// All-reduce of decode steps on GPUs. [`GpuAllReduce::from_collective`] is the only place that chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuAllReduce {
    Nccl,
    /// Kernel `one_shot_sum`.
    OneShot,
    /// Kernel `one_shot_add_norm`.
    OneShotAddNorm,
}

impl GpuAllReduce {
    /// All-reduce of an option. Exhaustive: records name the option's value, so a collective without a kernel of its
    /// own must not run another's. Returns an input error for those that only sim predicts.
    pub fn from_collective(collective: Collective) -> Result<Self> {
        match collective {
            Collective::Nccl => Ok(Self::Nccl),
            Collective::OneShot => Ok(Self::OneShot),
            Collective::Fused => Ok(Self::OneShotAddNorm),
            Collective::Symmetric | Collective::TwoShot | Collective::Multimem | Collective::Fastest => {
                Err(Error::input(format!(
                    "the cuda backend has no kernel for the {collective} all-reduce"
                )))
            }
        }
    }
}

/// Explains why a cell's all-reduces cannot run on GPUs, if so.
pub(super) fn all_reduce_problem(spec: &Spec) -> Option<String> {
    let collective = spec.collective;
    match GpuAllReduce::from_collective(collective) {
        _ if spec.tp == 1 => return None,
        Err(error) => return Some(error.to_string()),
        Ok(GpuAllReduce::Nccl) => return None,
        Ok(_) => {}
    }
    let why = if spec.link.is_emulated() {
        "needs one GPU per rank; an emulated link runs one rank and takes its latency from the hardware profile".to_owned()
    } else if spec.p2p == P2p::Off {
        "needs P2P, because it reads the memory of other ranks".to_owned()
    } else if spec.sequence_parallel || spec.comm_dtype != CommDType::Activations {
        "sums whole rows of activations: neither shares of them (sequence parallelism) nor messages in 8 bits"
            .to_owned()
    } else if spec.tp > MOST_RANKS {
        format!("sums over up to {MOST_RANKS} ranks")
    } else {
        return None;
    };
    Some(format!("the {collective} all-reduce of the cuda backend {why}"))
}

/// Explains why ranks in separate processes cannot run a one-shot all-reduce.
pub(super) fn process_problem(collective: Collective) -> String {
    format!(
        "the {collective} all-reduce of the cuda backend needs all ranks in one process; the launcher started one process \
         per rank (LADDERSCOPE_LAUNCHER=none ignores the launcher)"
    )
}

/// Regions of all ranks. Shared, so that no region is freed while another rank may still read it.
#[derive(Debug)]
pub struct OneShotRegions {
    /// Regions by lane and rank; empty for a lane without all-reduces. Launches that share a region must be
    /// sequential, which the order within a lane ensures.
    regions: [Vec<Memory>; 2],
    /// Size of half a region, for one message (bytes).
    half: u64,
}

impl OneShotRegions {
    /// Allocates regions for a plan's all-reduces of up to `rows` rows of `row` bytes each, on one GPU per
    /// rank starting at GPU `first`. Returns an error if a GPU cannot access another's memory or has too
    /// little memory.
    pub fn allocate(first: usize, plan: &Plan, rows: u32, row: u64) -> Result<Arc<Self>> {
        let gpus: Vec<Gpu> =
            (0..plan.tp as usize).map(|rank| Gpu::open(first + rank)).collect::<Result<_>>()?;
        for gpu in &gpus {
            for other in gpus.iter().filter(|other| other.info().index != gpu.info().index) {
                gpu.reach(other)?;
            }
        }
        let half = (u64::from(rows) * row).next_multiple_of(256);
        let regions = |lane: Lane| -> Result<Vec<Memory>> {
            let is_all_reduce = |kind: &Kind| matches!(kind, Kind::AllReduce | Kind::AllReduceAddNorm);
            if !plan.operations.iter().any(|o| o.lane == lane && is_all_reduce(&o.kind)) {
                return Ok(Vec::new());
            }
            let bytes = HEAD_BYTES + 2 * half;
            let allocate = |gpu: &Gpu| gpu.allocate(bytes, "what other ranks read of all-reduces");
            let regions = gpus.iter().map(allocate).collect::<Result<Vec<Memory>>>()?;
            let mut head = vec![0u8; HEAD_BYTES as usize];
            for (at, region) in head.chunks_exact_mut(8).zip(&regions) {
                at.copy_from_slice(&region.ptr().0.to_ne_bytes());
            }
            regions.iter().try_for_each(|region| region.upload(0, &head))?;
            Ok(regions)
        };
        let regions = [regions(Lane::Compute)?, regions(Lane::Comm)?];
        Ok(Arc::new(Self { regions, half }))
    }
}

impl Binder<'_> {
    pub(super) fn one_shot_sum(&self, operation: &Operation, size: &StepSize) -> Result<OperationCall> {
        let (region, half) = self.region(operation)?;
        let (read, written) = (operation.reads[0], operation.writes[0]);
        let elements = self.elements(written, size);
        let (index, tp) = (self.rank.index, self.program.plan.tp);
        let arguments =
            arguments![region, self.value(read), self.value(written), index, tp, half, elements];
        self.kernel("one_shot_sum", geometry::one_shot(elements), arguments)
    }

    /// Kernel of an all-reduce fused with the following addition and norm.
    pub(super) fn one_shot_add_norm(
        &self,
        operation: &Operation,
        rows: u32,
        weight: DevicePtr,
    ) -> Result<OperationCall> {
        let (region, half) = self.region(operation)?;
        let columns = self.columns(operation.writes[0]);
        let mut arguments = arguments![region];
        for read in &operation.reads {
            arguments.push(self.value(*read));
        }
        arguments.push(weight);
        for written in &operation.writes {
            arguments.push(self.value(*written));
        }
        arguments.push(self.rank.index).push(self.program.plan.tp).push(half);
        arguments.push(rows).push(columns).push(self.shape.norm_eps as f32);
        self.kernel("one_shot_add_norm", geometry::one_shot_rows(rows, columns), arguments)
    }

    /// Region of the rank and the operation's lane, with the size of half a region (bytes).
    fn region(&self, operation: &Operation) -> Result<(DevicePtr, u64)> {
        let found = self.one_shot.and_then(|all| {
            let region = all.regions[operation.lane as usize].get(self.rank.index as usize)?;
            Some((region.ptr(), all.half))
        });
        found.ok_or_else(|| Error::failed(format!("{}: nobody sums in one shot", operation.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::spec;
    use table::{Backend, Link};

    #[test]
    fn each_collective_of_the_backend_has_its_own_kernel() {
        let kernel = |collective| GpuAllReduce::from_collective(collective).ok();
        let kernels: Vec<GpuAllReduce> = Collective::ALL.into_iter().filter_map(kernel).collect();
        for (index, kernel) in kernels.iter().enumerate() {
            assert!(!kernels[..index].contains(kernel), "{kernel:?} would run under two names");
        }
        for collective in Collective::ALL {
            let is_supported = collective.about().backends.contains(&Backend::Cuda);
            assert_eq!(kernel(collective).is_some(), is_supported, "{collective}");
        }
    }

    #[test]
    fn unsupported_cells_name_the_reason() {
        let (backend, collective) = (Backend::Cuda, Collective::Fused);
        let native = Spec { link: Link::Native, p2p: P2p::On, ..spec("standard", "tiny") };
        let cell = Spec { backend, collective, tp: 2, ..native };
        let why = |spec: Spec| all_reduce_problem(&spec).unwrap_or_default();
        assert_eq!(all_reduce_problem(&cell), None);
        assert!(why(Spec { link: Link::P2pOn, ..cell.clone() }).contains("needs one GPU per rank"));
        let off = Spec { p2p: P2p::Off, collective: Collective::OneShot, ..cell.clone() };
        assert!(why(off.clone()).starts_with("the one-shot all-reduce of the cuda backend needs P2P"));
        assert_eq!(all_reduce_problem(&Spec { collective: Collective::Nccl, ..off.clone() }), None);
        assert_eq!(all_reduce_problem(&Spec { tp: 1, ..off }), None);
        assert!(why(Spec { sequence_parallel: true, ..cell.clone() }).contains("whole rows"));
        assert!(why(Spec { comm_dtype: CommDType::Int8, ..cell.clone() }).contains("8 bits"));
        assert!(why(Spec { tp: 32, ..cell }).contains("up to 16 ranks"));
    }
}
