//! Work of the groups of ranks: the distinct programs, their common prefixes, and the queue of windows.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::backend::CpuBackend;
use super::program::Program;
use crate::Evaluate;
use crate::evaluate::{EvaluateRequest, Window, evaluation_plan};
use base::error::Result;
use plan::{Architecture, CommDType, Plan, Precision};

pub(super) const REFERENCE: usize = 0;

pub(super) struct Work<'a> {
    pub(super) request: &'a EvaluateRequest,
    /// Distinct programs, `standard` first; `program_of` maps each architecture to its program.
    pub(super) programs: Vec<Program>,
    pub(super) program_of: Vec<usize>,
    /// Length of the common prefix of each pair of programs.
    common: Vec<OnceLock<usize>>,
    pub(super) queue: Queue<'a>,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        request: &'a EvaluateRequest,
        plans: Plans,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let programs: Vec<Program> = plans.plans.into_iter().map(|plan| Program::of(plan, 0)).collect();
        let common = (0..programs.len().pow(2)).map(|_| OnceLock::new()).collect();
        let queue = Queue::new(1, request.windows.len(), stop);
        Self { request, programs, program_of: plans.of, common, queue }
    }

    pub(super) fn programs_of(&self, window: &Window) -> Vec<usize> {
        let mut programs = vec![REFERENCE];
        for program in window.wanted.iter().map(|wanted| self.program_of[*wanted]) {
            if !programs.contains(&program) {
                programs.push(program);
            }
        }
        programs
    }

    /// Operations at which other programs diverge from the first one, with those programs.
    pub(super) fn leaving(&self, programs: &[usize]) -> BTreeMap<usize, Vec<usize>> {
        let mut leave: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let Some((first, others)) = programs.split_first() else { return leave };
        for other in others {
            let common = &self.common[first * self.programs.len() + other];
            let plan = |program: usize| &self.programs[program].plan;
            let at = *common.get_or_init(|| plan(*first).common_with(plan(*other)));
            leave.entry(at).or_default().push(*other);
        }
        leave
    }

    /// Maximum bytes of shared prefix values that a rank keeps at a time, over all windows.
    pub(super) fn kept_bytes(&self) -> u64 {
        let mut seen: HashSet<Vec<usize>> = HashSet::new();
        let mut most = 0;
        for window in &self.request.windows {
            let programs = self.programs_of(window);
            if seen.insert(programs.clone()) {
                most = most.max(self.kept_columns(programs));
            }
        }
        most * self.request.context() as u64 * size_of::<f32>() as u64
    }

    /// Like [`Self::kept_bytes`] for programs on one window, in values per token.
    fn kept_columns(&self, programs: Vec<usize>) -> u64 {
        let (mut branches, mut kept, mut most) = (vec![(programs, 0)], 0, 0);
        while let Some((programs, columns)) = branches.pop() {
            let plan = &self.programs[programs[0]].plan;
            for (at, programs) in self.leaving(&programs) {
                let live = plan.live_after(at);
                let columns = live.iter().map(|v| u64::from(plan.values[v.index()].columns)).sum();
                kept += columns;
                branches.push((programs, columns));
            }
            most = most.max(kept);
            // the program's own buffers replace the kept values
            kept -= columns;
        }
        most
    }
}

/// Distinct plans, `standard` first; `of` maps each architecture to its plan.
pub(super) struct Plans {
    pub(super) plans: Vec<Plan>,
    of: Vec<usize>,
}

impl Plans {
    pub(super) fn of(request: &EvaluateRequest) -> Result<Self> {
        let plan = |architecture: &Architecture, sent: CommDType| {
            let precision = Precision::cpu(request.dtype);
            // logits are computed later, in slices, from the value named by `Plan::selected_from`
            let lowering = CpuBackend.evaluation_lowering();
            evaluation_plan(&request.model, architecture, request.tp, precision, sent, lowering)
        };
        let mut plans = vec![plan(&Architecture::Standard, CommDType::Activations)?];
        let mut of = Vec::with_capacity(request.architectures.len());
        for architecture in &request.architectures {
            let plan = plan(architecture, request.comm_dtype)?;
            // another reference model's `standard` is never this model's program
            let own = usize::from(request.reference.is_some());
            let there = plans.iter().skip(own).position(|known| *known == plan).map(|at| own + at);
            of.push(there.unwrap_or(plans.len()));
            if there.is_none() {
                plans.push(plan);
            }
        }
        Ok(Self { plans, of })
    }
}

/// Windows not started yet; groups take one after another.
pub(super) struct Queue<'a> {
    next: AtomicUsize,
    count: usize,
    /// Decisions per group and turn: its ranks arrive one by one and must all do the same.
    taken: Vec<Mutex<Vec<Option<usize>>>>,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Queue<'a> {
    pub(super) fn new(groups: usize, count: usize, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let taken = (0..groups).map(|_| Mutex::default()).collect();
        Self { next: AtomicUsize::new(0), count, taken, stop }
    }

    pub(super) fn take(&self, group: usize, turn: &mut usize) -> Option<usize> {
        let next = || Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|next| *next < self.count);
        self.agree(group, turn, next)
    }

    pub(super) fn goes_on(&self, group: usize, turn: &mut usize) -> bool {
        self.agree(group, turn, || Some(0)).is_some()
    }

    /// Decision of a turn, made by the first rank of the group to reach it; `None` on stop.
    fn agree(
        &self,
        group: usize,
        turn: &mut usize,
        decide: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let mut taken = self.taken[group].lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() == *turn {
            taken.push(if (self.stop)() { None } else { decide() });
        }
        *turn += 1;
        taken.get(*turn - 1).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Model;
    use plan::DType;

    #[test]
    fn what_is_kept_for_architectures_that_go_on_is_counted() {
        let kept = |architectures: &[&str], lengths: &[usize]| {
            let model = Model::resolve("tiny").unwrap();
            let wanted: Vec<usize> = (0..architectures.len()).collect();
            let window = |length: &usize| Window { tokens: vec![1; *length], wanted: wanted.clone() };
            let request = EvaluateRequest {
                model,
                architectures: architectures.iter().map(|a| a.parse().unwrap()).collect(),
                dtype: DType::F32,
                tp: 1,
                reference: None,
                comm_dtype: CommDType::Activations,
                seed: 0,
                windows: lengths.iter().map(window).collect(),
            };
            Work::new(&request, Plans::of(&request).unwrap(), &|| false).kept_bytes()
        };
        let hidden = u64::from(Model::resolve("tiny").unwrap().shape.hidden);
        // the residual and the output of the module before, at each point where ladders leave standard
        let point = 2 * hidden * 4 * 10;
        assert_eq!(kept(&["standard"], &[10]), 0);
        assert_eq!(kept(&["ladder:[1]"], &[10, 3]), point);
        assert_eq!(kept(&["ladder:[1]", "ladder:[2]", "ladder:[3]"], &[10]), 3 * point);
        // those that leave together keep once until they part, with a ladder's two outputs under way: where the other
        // one has ended, this and what they came from
        let ladders = hidden * 4 * 10 * 3;
        assert_eq!(kept(&["ladder:[1+2]", "ladder:[1+3]", "ladder:[3]"], &[10]), point + ladders);
    }
}
