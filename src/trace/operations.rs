//! Operations of a trace, which its spans execute.

use serde::{Deserialize, Serialize};

use super::demangle::demangled;
use super::{CollectiveInfo, OperationKind, ProcessGroup};
use plan::{Cost, Lane, Operation, Phase, Plan, Quantity};

/// An operation of the plan, or of an imported trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationInfo {
    /// Name with its phase: `decode/L12/mlp/down`.
    pub name: String,
    pub phase: Phase,
    pub kind: OperationKind,
    /// Module in the spelling of [`plan::Module::as_str`]: `mlp`; of an imported trace as the operation's name has it, or
    /// empty.
    pub module: String,
    pub layer: Option<u32>,
    pub lane: Lane,
    /// Shape on one rank, for display: `[rows, 2048] x [2048, 8192]`.
    pub shape: String,
    /// FLOPs and bytes as functions of the step.
    pub cost: Cost,
    /// Names of the operations from which it was lowered.
    pub origins: Vec<String>,
    /// Operations (indices into this table) whose results it reads or waits for.
    pub waits_for: Vec<u32>,
    /// Collective arguments, if an imported trace has them. Kernels with equal names but different
    /// arguments are different operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveInfo>,
}

impl OperationInfo {
    /// An operation of a plan, without dependencies and process group.
    fn native(plan: &Plan, operation: &Operation) -> Self {
        Self {
            name: format!("{}/{}", plan.phase.as_str(), operation.name),
            phase: plan.phase,
            kind: OperationKind::from(&operation.kind),
            module: operation.module.as_str().into(),
            layer: operation.layer,
            lane: operation.lane,
            shape: shape(plan, operation),
            cost: operation.cost,
            origins: operation.origins.clone(),
            waits_for: Vec::new(),
            collective: None,
        }
    }

    /// An operation of an imported trace, with nothing known but kind and name, which may be mangled. The names in an
    /// export of a native trace contain layer and module.
    pub fn imported(name: String, kind: impl Into<OperationKind>) -> Self {
        let (layer, module) = layer_and_module(&name).unwrap_or_default();
        let module = module.to_owned();
        Self {
            name: demangled(name),
            phase: Phase::Decode,
            kind: kind.into(),
            module,
            layer,
            lane: Lane::Compute,
            shape: String::new(),
            cost: Cost::default(),
            origins: Vec::new(),
            waits_for: Vec::new(),
            collective: None,
        }
    }
}

/// Layer and module in the name of a native operation (`decode/L12/mlp/down`), which an exported collective has as its
/// parameter.
fn layer_and_module(name: &str) -> Option<(Option<u32>, &str)> {
    let path = name.split_once('(').map_or(name, |(_, path)| path.trim_end_matches(')'));
    let mut parts = path.split('/');
    matches!(parts.next()?, "prefill" | "decode").then_some(())?;
    let first = parts.next()?;
    match first.strip_prefix('L').and_then(|number| number.parse().ok()) {
        Some(layer) => Some((Some(layer), parts.next()?)),
        None => Some((None, first)),
    }
}

/// Total bytes written by a copy or fill, as the profiler recorded them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopiedBytes {
    bytes: u64,
    executions: u64,
    /// True if the size of any execution is unknown.
    is_partial: bool,
}

impl CopiedBytes {
    /// Adds an execution; `None` if its size is unknown.
    pub fn add(&mut self, bytes: Option<u64>) {
        self.executions += 1;
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        self.is_partial |= bytes.is_none();
    }

    pub fn merge(&mut self, other: &Self) {
        self.executions += other.executions;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.is_partial |= other.is_partial;
    }

    /// Mean bytes written per execution; 0 if the size of any is unknown.
    pub fn cost(&self) -> Cost {
        let known = if self.is_partial { 0 } else { self.bytes / self.executions.max(1) };
        Cost { bytes_written: Quantity { fixed: known, ..Quantity::ZERO }, ..Cost::default() }
    }
}

/// Operations of a run: for each pipeline stage the prefill plan's, then the decode plan's. An
/// operation's index is its index in the plan plus the length of the plans before it.
pub fn operations<'a>(
    prefill: impl IntoIterator<Item = &'a Plan>,
    decode: impl IntoIterator<Item = &'a Plan>,
) -> Vec<OperationInfo> {
    let stages: Vec<(&Plan, &Plan)> = prefill.into_iter().zip(decode).collect();
    let mut table = Vec::new();
    for (stage, &(prefill, decode)) in stages.iter().enumerate() {
        for plan in [prefill, decode] {
            let base = table.len() as u32;
            let operations = plan.operations.iter().zip(plan.dependencies());
            table.extend(operations.map(|(operation, waits)| OperationInfo {
                waits_for: waits.iter().map(|op| base + op.0).collect(),
                collective: stage_collective(operation, stage, stages.len()),
                ..OperationInfo::native(plan, operation)
            }));
        }
    }
    table
}

/// Process group of a communication operation ([`stage_groups`]); `None` without pipeline stages.
fn stage_collective(operation: &Operation, stage: usize, stages: usize) -> Option<CollectiveInfo> {
    let group = match &operation.kind {
        plan::Kind::Send => stages,
        kind if kind.is_collective() => stage,
        _ => return None,
    };
    (stages > 1).then(|| CollectiveInfo {
        name: operation.kind.as_str().into(),
        group: Some(group as u32),
        ..CollectiveInfo::default()
    })
}

/// Process groups of a run with pipeline stages: the ranks of each stage, then all ranks, which transfers between
/// stages connect. Empty without stages.
pub fn stage_groups(tp: u32, pp: u32) -> Vec<ProcessGroup> {
    let group = |description: &str, name: String, ranks: std::ops::Range<u32>| ProcessGroup {
        name,
        description: description.into(),
        size: ranks.len() as u32,
        ranks: ranks.collect(),
    };
    let stages =
        (0..pp).map(|stage| group("TP", format!("stage {stage}"), stage * tp..(stage + 1) * tp));
    let all = group("PP", "stages".into(), 0..tp * pp);
    stages.chain([all]).filter(|_| pp > 1).collect()
}

fn shape(plan: &Plan, operation: &Operation) -> String {
    let columns = |values: &[plan::ValueId]| values.last().map_or(0, |v| plan.values[v.index()].columns);
    match operation.weight {
        Some(weight) if operation.kind == plan::Kind::MatMul => {
            let w = &plan.weights[weight.index()];
            format!("[rows, {}] x [{}, {}]", w.inputs, w.inputs, w.outputs)
        }
        _ if operation.kind == plan::Kind::Send => format!("[rows, {}]", columns(&operation.reads)),
        _ => format!("[rows, {}]", columns(&operation.writes)),
    }
}
