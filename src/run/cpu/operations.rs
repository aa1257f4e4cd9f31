//! The compute operations of a rank.

use std::sync::Arc;

use super::attention::{
    self, AttentionLimits, HeadPreprocessing, PositionEncoding, Projected, StepPart, StepRows,
};
use super::experts::{ExpertWeights, add_bias, choose};
use super::kernels::quantize;
use super::program::StoredWeight;
use super::rank::{BoundProgram, Rank};
use arithmetic::product::Panels;
use model::Matrix;
use plan::{Kind, Operation, Placement, Rows, Weight, WeightId};

impl Rank {
    /// Executes a compute operation. Appends to `next` the tokens that it samples.
    pub(super) fn execute(
        &mut self,
        bound: &mut BoundProgram<'_>,
        operation: &Operation,
        part: &StepPart<'_>,
        next: &mut Vec<u32>,
    ) {
        let rows = &*part.rows;
        if operation.kind == Kind::Sample {
            return self.sample(bound, operation, rows, next);
        }
        let to = bound.slot(operation.writes[0]);
        let mut out = std::mem::take(&mut bound.slots[to]);
        let read = |i: usize| bound.slots[bound.slot(operation.reads[i])].as_slice();
        let weight = operation.weight.map(|w| &bound.weights[w.index()]);
        let further_weights: Vec<&StoredWeight> =
            operation.more.iter().map(|w| &bound.weights[w.index()]).collect();
        let further = |i: usize| further_weights.get(i).map_or(&[][..], |weight| weight.vector());
        let layer = (operation.layer.unwrap_or(0) as usize).saturating_sub(self.first_layer);
        match (&operation.kind, weight) {
            (Kind::Embed, Some(StoredWeight::Panels(table))) => {
                self.embed(bound, operation, table, &part.tokens, &mut out);
            }
            (Kind::Norm, Some(StoredWeight::Rows(weight))) => {
                self.kernels.norm(read(0), weight, self.shape.norm_eps as f32, &mut out);
            }
            (Kind::MatMul, Some(StoredWeight::Panels(weight))) => {
                self.kernels.matmul(read(0), weight, &mut out);
                let value = &bound.program.plan.values[operation.writes[0].index()];
                // one rank adds the bias of a sum
                if value.placement != Placement::Partial || self.index == 0 {
                    add_bias(&mut out, Some(further(0)));
                }
            }
            (Kind::Router, Some(StoredWeight::Panels(weight))) => {
                self.route(read(0), weight, further(0), &mut out);
            }
            (Kind::Experts, Some(gate_up)) => {
                let weight = &bound.program.plan.weights[operation.weight.map_or(0, WeightId::index)];
                self.experts((weight, gate_up), &further_weights, [read(0), read(1)], &mut out);
            }
            (Kind::Add, _) => self.kernels.add(read(0), read(1), &mut out),
            (Kind::AddMean, _) => {
                self.kernels.add_scaled(read(0), 1.0 / self.tp as f32, read(1), &mut out);
            }
            (Kind::Join { root }, _) => self.join(bound, operation, *root, &mut out),
            (Kind::Narrow, _) => {
                let [from, to] = [operation.reads[0], operation.writes[0]].map(|v| bound.columns(v));
                self.kernels.narrow(read(0), from, to, &mut out);
            }
            (Kind::Quantize { to }, _) => {
                let columns = bound.columns(operation.reads[0]);
                quantize(read(0), columns, *to, &mut out);
            }
            (Kind::MeanShare, _) => self.kernels.scale(read(0), 1.0 / self.tp as f32, &mut out),
            (
                kind @ (Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend | Kind::Append),
                weight,
            ) => {
                let projected = (read(0), bound.columns(operation.reads[0]));
                self.append((kind, layer), weight, rows, projected, &mut out);
            }
            (kind @ (Kind::Attend | Kind::WindowAttend { .. }), sinks) => {
                self.attend((kind, layer), sinks, rows, read(0), &mut out);
            }
            (Kind::LatentAppend, Some(StoredWeight::Rows(norm))) => {
                let norm = (&self.shape, &**norm);
                let cached = (&mut self.cache, layer);
                attention::append(&self.kernels, cached, &self.rope, rows, norm, read(0), &mut out);
            }
            (Kind::LatentAttend, Some(StoredWeight::Each(each))) => {
                let units = (&mut self.kernels, &mut self.attention);
                let (cached, up) = ((&self.cache, layer), (&self.shape, &**each));
                attention::attend(units, cached, &self.rope, rows, up, read(0), &mut out);
            }
            (Kind::SigmoidMul, _) => self.kernels.sigmoid_mul(read(0), read(1), &mut out),
            (Kind::SiluMul { offset }, _) => {
                let (columns, width) =
                    (bound.columns(operation.reads[0]), bound.columns(operation.writes[0]));
                self.kernels.silu_mul(read(0), columns, *offset as usize, width, &mut out);
            }
            (Kind::SelectLast, _) => {
                select_last(read(0), bound.columns(operation.reads[0]), rows, &mut out)
            }
            // plans for the cpu never contain these, and collectives are not executed here
            (kind, _) => unreachable!("{} is not a compute operation of the cpu backend", kind.as_str()),
        }
        bound.slots[to] = out;
    }

    /// Samples each sequence's next token. With pipeline stages, also writes it, for the first stage.
    fn sample(
        &mut self,
        bound: &mut BoundProgram<'_>,
        operation: &Operation,
        rows: &StepRows,
        next: &mut Vec<u32>,
    ) {
        let columns = bound.columns(operation.reads[0]);
        let logits = &bound.slots[bound.slot(operation.reads[0])];
        // one branch-free pass: a thousandth of the cost of the head's product
        self.not_finite += logits.iter().map(|logit| u64::from(!logit.is_finite())).sum::<u64>();
        let before = next.len();
        next.extend(logits.chunks_exact(columns).zip(&rows.runs).map(|(logits, run)| {
            self.sampling.choose(logits, run.sequence, run.position + run.count - 1)
        }));
        if self.to_next.is_some() {
            // for the first stage; token ids are exact in f32 up to 2^24
            let slot = bound.slot(operation.writes[0]);
            bound.slots[slot].clear();
            bound.slots[slot].extend(next[before..].iter().map(|token| *token as f32));
        }
    }

    /// Embeds the rank's rows of the new tokens, which the last pipeline stage may have sent.
    fn embed(
        &self,
        bound: &BoundProgram<'_>,
        operation: &Operation,
        table: &Panels,
        tokens: &[u32],
        out: &mut [f32],
    ) {
        let received: Vec<u32>;
        let tokens = if bound.program.plan.tokens.contains(&operation.reads[0]) {
            tokens
        } else {
            let sent = bound.value(operation.reads[0]);
            received = sent.iter().map(|token| *token as u32).collect();
            &received
        };
        let own = match bound.program.plan.values[operation.writes[0].index()].rows {
            Rows::Share => &tokens[Rows::share(tokens.len(), self.index, self.tp)],
            Rows::Tokens | Rows::Sequences => tokens,
        };
        for (token, out) in own.iter().zip(out.chunks_exact_mut(table.inputs)) {
            table.row(*token as usize, out);
        }
    }

    fn join(&self, bound: &BoundProgram<'_>, operation: &Operation, root: bool, out: &mut [f32]) {
        let scale = if root { (self.tp as f32).sqrt() } else { 1.0 };
        let read = |i: usize| bound.value(operation.reads[i]);
        let own = [read(0), read(1)];
        if let [residual, _, sum] = operation.reads[..] {
            let (columns, sum) = (bound.columns(residual), (read(2), bound.columns(sum)));
            self.kernels.join_channels(own, scale, sum, columns, out);
        } else {
            let others = (operation.reads.len() == 4).then(|| [read(2), read(3)]);
            self.kernels.join(own, scale, others, out);
        }
    }

    /// Appends the keys and values of projected rows to a layer's cache and writes the queries.
    fn append(
        &mut self,
        (kind, layer): (&Kind, usize),
        weight: Option<&StoredWeight>,
        rows: &StepRows,
        (x, columns): (&[f32], usize),
        queries: &mut [f32],
    ) {
        let weight = weight.and_then(StoredWeight::rows).map(Matrix::numbers);
        let before = match (kind, &weight) {
            (Kind::BiasRopeAppend, Some(bias)) => HeadPreprocessing::Bias(bias),
            (Kind::NormRopeAppend, norms) => {
                let norms = norms.as_ref().map_or(&[][..], |norms| norms);
                HeadPreprocessing::Norm(norms, self.shape.norm_eps as f32)
            }
            _ => HeadPreprocessing::Nothing,
        };
        let turn = match kind {
            Kind::Append => PositionEncoding::Scale(self.shape.attention.temperature),
            _ => PositionEncoding::Rope(&self.rope),
        };
        self.cache.append(layer, rows, turn, Projected { x, columns, before }, queries);
    }

    fn attend(
        &mut self,
        (kind, layer): (&Kind, usize),
        sinks: Option<&StoredWeight>,
        rows: &StepRows,
        queries: &[f32],
        out: &mut [f32],
    ) {
        let (window, is_chunked) = match kind {
            Kind::WindowAttend { tokens, is_chunked } => (*tokens as usize, *is_chunked),
            _ => (usize::MAX, false),
        };
        let sinks = sinks.map_or(&[][..], StoredWeight::vector);
        let sight = AttentionLimits { window, is_chunked, sinks };
        let cached = (&self.cache, layer);
        self.attention.attend(&self.kernels, cached, sight, rows, queries, out);
    }

    /// Chooses each row's experts.
    fn route(&mut self, x: &[f32], weight: &Arc<Panels>, bias: &[f32], choices: &mut [f32]) {
        let Some(of) = &self.shape.experts else { return };
        let (experts, top_k) = (of.count as usize, of.top_k as usize);
        let mut logits = vec![0.0; x.len() / weight.inputs * experts];
        self.kernels.matmul(x, weight, &mut logits);
        let rows = logits.chunks_exact_mut(experts).zip(choices.chunks_exact_mut(2 * top_k));
        rows.for_each(|(logits, choice)| choose(&of.routing, bias, logits, choice));
    }

    /// MLPs of the experts of a weight `gate_up` and its `further` ones: down, and biases if the model has them.
    fn experts(
        &mut self,
        gate_up: (&Weight, &StoredWeight),
        further: &[&StoredWeight],
        [x, choices]: [&[f32]; 2],
        out: &mut [f32],
    ) {
        let Some(of) = &self.shape.experts else { return };
        let (weight, gate_up) = gate_up;
        let part = weight.parts.first();
        let own = part.map_or(0..0, |part| part.experts(&self.shape, self.index, self.tp));
        // with a slice of every expert, one rank adds the bias of the sum
        let is_alone = own.len() < of.count as usize || self.index == 0;
        let vector = |i: usize| further.get(i).map_or(&[][..], |weight| weight.vector());
        let experts = ExpertWeights {
            own: own.start as usize..own.end as usize,
            top_k: of.top_k as usize,
            gate_up: gate_up.each(),
            down: further.first().map_or(&[][..], |down| down.each()),
            gate_up_bias: vector(1),
            down_bias: if is_alone { vector(2) } else { &[] },
            activation: of.activation,
            weighs_input: of.routing.weighs_input,
        };
        self.kernels.experts(&experts, choices, x, out);
    }
}

fn select_last(x: &[f32], columns: usize, rows: &StepRows, out: &mut [f32]) {
    let mut end = 0;
    for (run, out) in rows.runs.iter().zip(out.chunks_exact_mut(columns)) {
        end += run.count;
        out.copy_from_slice(&x[(end - 1) * columns..end * columns]);
    }
}
