//! Modules: attention, dense MLP and mixture of experts, from a normed input to partial outputs.

use super::builder::{Builder, PlanError};
use super::{ExpertShape, HeadStep, Kind, Latent, Module, RouterBias, Shard, Tensor, ValueId, WeightId};

/// Outputs of a module that have not been reduced.
pub(super) struct ModuleOutputs {
    /// Output of attention, of a dense MLP, or of shared experts.
    pub(super) own: Option<ValueId>,
    /// Output of routed experts.
    pub(super) routed: Option<ValueId>,
}

impl Builder<'_> {
    /// Emits biases or head norms if the model has them, then the rotation, if the layer has one. Returns the queries.
    fn rotate(&mut self, projected: ValueId, layer: u32, columns: u32) -> Result<ValueId, PlanError> {
        let (kind, shard, tensors) = match self.spec.shape.qkv {
            _ if !self.spec.shape.has_rope(layer) => {
                return self.emit("append", Kind::Append, &[projected], columns);
            }
            HeadStep::UnitNormed => {
                return self.emit("rope", Kind::NormRopeAppend, &[projected], columns);
            }
            HeadStep::Plain => return self.emit("rope", Kind::RopeAppend, &[projected], columns),
            HeadStep::Biased => {
                let biases =
                    vec![Tensor::QueryBias(layer), Tensor::KeyBias(layer), Tensor::ValueBias(layer)];
                (Kind::BiasRopeAppend, Shard::Rows, biases)
            }
            HeadStep::Normed => {
                let norms = vec![Tensor::QueryNorm(layer), Tensor::KeyNorm(layer)];
                (Kind::NormRopeAppend, Shard::Whole, norms)
            }
        };
        let weight = self.weight("rope", shard, &tensors);
        self.emit_with("rope", kind, &[projected], columns, Some((weight, shard)), &[])
    }

    /// Emits RoPE, cache append and attention for a projection that starts with q, k, v, then the output
    /// projection: sharded -> partial.
    fn attend(&mut self, projected: ValueId, layer: u32) -> Result<ValueId, PlanError> {
        let shape = &self.spec.shape;
        let columns = shape.attended_columns(self.spec.tp);
        let kind = match shape.window_of(layer) {
            Some(window) => Kind::WindowAttend { tokens: window.tokens, is_chunked: window.is_chunked },
            None => Kind::Attend,
        };
        let sinks = shape.attention.sinks.then_some(Tensor::Sinks(layer));
        let queries = self.rotate(projected, layer, columns)?;
        let sinks = sinks.map(|sinks| (self.weight("attend", Shard::Rows, &[sinks]), Shard::Rows));
        let attended = self.emit_with("attend", kind, &[queries], columns, sinks, &[])?;
        self.project(attended, layer)
    }

    /// Emits attention's output projection: sharded -> partial.
    fn project(&mut self, attended: ValueId, layer: u32) -> Result<ValueId, PlanError> {
        let bias = self.spec.shape.attention.output_bias.then_some(Tensor::OutputBias(layer));
        self.biased_matmul("out", attended, Shard::Columns, &[Tensor::Output(layer)], bias)
    }

    /// Emits latent attention (MLA).
    fn latent(&mut self, latent: Latent, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
        let mut queries = x;
        if let Some(rank) = latent.q_rank {
            let down = self.matmul("q_down", x, Shard::Whole, &[Tensor::QueryDown(layer)])?;
            let norm = self.weight("q_norm", Shard::Whole, &[Tensor::QueryLatentNorm(layer)]);
            let norm = Some((norm, Shard::Whole));
            queries = self.emit_with("q_norm", Kind::Norm, &[down], rank, norm, &[])?;
        }
        let queries = self.matmul("q", queries, Shard::Rows, &[Tensor::Query(layer)])?;
        let down = self.matmul("kv_down", x, Shard::Whole, &[Tensor::KeyValueDown(layer)])?;
        let norm = (self.weight("latent", Shard::Whole, &[Tensor::LatentNorm(layer)]), Shard::Whole);
        let cached = latent.cached();
        let new = self.emit_with("latent", Kind::LatentAppend, &[down], cached, Some(norm), &[])?;
        let up = (self.weight("attend", Shard::Rows, &[Tensor::KeyValueUp(layer)]), Shard::Rows);
        let columns = self.spec.shape.attended_columns(self.spec.tp);
        let reads = [queries, new];
        let mut attended =
            self.emit_with("attend", Kind::LatentAttend, &reads, columns, Some(up), &[])?;
        if latent.is_gated {
            let gate = self.matmul("gate", x, Shard::Rows, &[Tensor::AttentionGate(layer)])?;
            attended = self.emit("gated", Kind::SigmoidMul, &[attended, gate], columns)?;
        }
        self.project(attended, layer)
    }

    fn attention(&mut self, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
        if let Some(latent) = self.spec.shape.attention.latent {
            return self.latent(latent, layer, x);
        }
        let tensors = [Tensor::Query(layer), Tensor::Key(layer), Tensor::Value(layer)];
        let projected = self.matmul("qkv", x, Shard::Rows, &tensors)?;
        self.attend(projected, layer)
    }

    /// Emits gated activation and down projection: sharded -> partial.
    fn gated(&mut self, projected: ValueId, offset: u32, layer: u32) -> Result<ValueId, PlanError> {
        let columns = self.spec.shape.intermediate / self.spec.tp;
        let active = self.emit("act", Kind::SiluMul { offset }, &[projected], columns)?;
        self.matmul("down", active, Shard::Columns, &[Tensor::Down(layer)])
    }

    fn mlp(&mut self, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
        let tensors = [Tensor::Gate(layer), Tensor::Up(layer)];
        let projected = self.matmul("gate_up", x, Shard::Rows, &tensors)?;
        self.gated(projected, 0, layer)
    }

    /// Emits the shared experts, one MLP of their whole width, if there are any.
    fn shared(
        &mut self,
        experts: &ExpertShape,
        layer: u32,
        x: ValueId,
    ) -> Result<Option<ValueId>, PlanError> {
        if experts.shared_width == 0 {
            return Ok(None);
        }
        let columns = experts.shared_width / self.spec.tp;
        let tensors = [Tensor::SharedGate(layer), Tensor::SharedUp(layer)];
        let projected = self.matmul("shared_gate_up", x, Shard::Rows, &tensors)?;
        let kind = Kind::SiluMul { offset: 0 };
        let active = self.emit("shared_act", kind, &[projected], columns)?;
        self.matmul("shared_down", active, Shard::Columns, &[Tensor::SharedDown(layer)]).map(Some)
    }

    /// Emits the router; returns each token's choices.
    fn route(&mut self, experts: &ExpertShape, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
        let weight = (self.weight("router", Shard::Whole, &[Tensor::Router(layer)]), Shard::Whole);
        let has_bias = experts.routing.bias != RouterBias::None;
        let tensor = [Tensor::RouterBias(layer)];
        let bias = has_bias.then(|| self.weight("router/bias", Shard::Whole, &tensor));
        let bias: Vec<WeightId> = bias.into_iter().collect();
        self.emit_with("router", Kind::Router, &[x], experts.top_k, Some(weight), &bias)
    }

    /// Emits the routed experts for rows and their choices.
    fn routed(
        &mut self,
        experts: &ExpertShape,
        layer: u32,
        reads: [ValueId; 2],
        columns: u32,
    ) -> Result<ValueId, PlanError> {
        let is_whole = self.spec.variant.ep > 1;
        let shard = |sliced: Shard| if is_whole { Shard::Experts } else { sliced };
        let rows = shard(Shard::Rows);
        let gate_up = [Tensor::ExpertGate(layer), Tensor::ExpertUp(layer)];
        let gate_up = self.weight("experts", rows, &gate_up);
        let down = [Tensor::ExpertDown(layer)];
        let mut more = vec![self.weight("experts/down", shard(Shard::Columns), &down)];
        if experts.biased {
            let biases = [Tensor::ExpertGateBias(layer), Tensor::ExpertUpBias(layer)];
            more.push(self.weight("experts/bias", rows, &biases));
            let bias = [Tensor::ExpertDownBias(layer)];
            more.push(self.weight("experts/down_bias", shard(Shard::Whole), &bias));
        }
        self.emit_with("experts", Kind::Experts, &reads, columns, Some((gate_up, rows)), &more)
    }

    /// True if tokens are sent to the ranks of their experts.
    pub(super) fn dispatches(&self) -> bool {
        self.spec.variant.dp > 1 && !self.spec.architecture.is_limit()
    }

    /// Emits the shared experts of a layer, if there are any.
    pub(super) fn shared_experts(
        &mut self,
        layer: u32,
        x: ValueId,
    ) -> Result<Option<ValueId>, PlanError> {
        match self.spec.shape.experts_of(layer) {
            Some(experts) => self.shared(experts, layer, x),
            None => Ok(None),
        }
    }

    /// Emits router and routed experts of a layer whose ranks hold all tokens.
    pub(super) fn routed_experts(
        &mut self,
        layer: u32,
        x: ValueId,
    ) -> Result<Option<ValueId>, PlanError> {
        let Some(experts) = self.spec.shape.experts_of(layer) else { return Ok(None) };
        let choices = self.route(experts, layer, x)?;
        self.routed(experts, layer, [x, choices], self.spec.shape.hidden).map(Some)
    }

    /// Emits a mixture of experts. With data-parallel attention, shared experts run while tokens are on
    /// their way.
    fn moe(
        &mut self,
        experts: &ExpertShape,
        layer: u32,
        x: ValueId,
    ) -> Result<ModuleOutputs, PlanError> {
        let hidden = self.spec.shape.hidden;
        if !self.dispatches() {
            let own = self.shared(experts, layer, x)?;
            return Ok(ModuleOutputs { own, routed: self.routed_experts(layer, x)? });
        }
        let choices = self.route(experts, layer, x)?;
        let copies = experts.top_k * hidden;
        let sent = self.emit("dispatch", Kind::Dispatch, &[x, choices], copies)?;
        let own = self.shared(experts, layer, x)?;
        let outputs = self.routed(experts, layer, [sent, choices], copies)?;
        let routed = self.emit("combine", Kind::Combine, &[outputs, choices], hidden)?;
        Ok(ModuleOutputs { own, routed: Some(routed) })
    }

    /// Emits one module, from its (normed) input to its outputs.
    pub(super) fn module(
        &mut self,
        module: Module,
        layer: u32,
        x: ValueId,
    ) -> Result<ModuleOutputs, PlanError> {
        let shape = &self.spec.shape;
        let hidden = shape.hidden;
        let whole = |own: ValueId| ModuleOutputs { own: Some(own), routed: None };
        match (module, shape.experts_of(layer)) {
            (Module::Attn, _) => self.attention(layer, x).map(whole),
            (Module::Moe, Some(experts)) => self.moe(experts, layer, x),
            (Module::Block, experts) if experts.is_some() || shape.attention.latent.is_some() => {
                let attention = self.attention(layer, x)?;
                let parts = match experts {
                    Some(experts) => self.moe(experts, layer, x)?,
                    None => whole(self.mlp(layer, x)?),
                };
                let own = match parts.own {
                    Some(own) => self.emit("sum", Kind::Add, &[attention, own], hidden)?,
                    None => attention,
                };
                Ok(ModuleOutputs { own: Some(own), ..parts })
            }
            (Module::Block, _) => {
                let qkv = [Tensor::Query(layer), Tensor::Key(layer), Tensor::Value(layer)];
                let tensors: Vec<Tensor> =
                    qkv.into_iter().chain([Tensor::Gate(layer), Tensor::Up(layer)]).collect();
                let projected = self.matmul("in", x, Shard::Rows, &tensors)?;
                let heads = shape.heads / self.spec.tp + 2 * shape.kv_heads_of(self.spec.tp);
                let offset = heads * shape.head_dim;
                let attention = self.attend(projected, layer)?;
                let mlp = self.gated(projected, offset, layer)?;
                self.emit("sum", Kind::Add, &[attention, mlp], hidden).map(whole)
            }
            _ => self.mlp(layer, x).map(whole),
        }
    }
}
