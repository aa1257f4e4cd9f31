//! Plan hash: SHA-256 over a byte encoding of operations, values and weights.
//!
//! The encoding covers everything that decides what runs. Texts are prefixed with their length and lists
//! with their count, so different plans never share an encoding. It depends on neither machine nor
//! compiler: enums are written by name, numbers as LEB128. A plan of 80 layers takes a few hundred
//! kilobytes.

use super::{Cost, Kind, OpId, Operation, Plan, Quantity, Value, ValueId, Weight};
use base::hash::short_key;

/// Header of the encoding; bump the number when the encoding changes.
const VERSION: &[u8] = b"ladderscope plan 2\n";

/// Returns the first 16 hex digits of a plan's SHA-256.
pub(super) fn digest(plan: &Plan) -> String {
    let mut bytes = Bytes(Vec::with_capacity(160 * plan.operations.len()));
    bytes.0.extend_from_slice(VERSION);
    bytes.list(&plan.operations, Bytes::operation);
    bytes.list(&plan.values, Bytes::value);
    bytes.list(&plan.weights, Bytes::weight);
    short_key(bytes.0)
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, list: &[T], each: fn(&mut Self, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|item| each(self, item));
    }

    /// Writes an optional number: 0 if absent, else the number plus one.
    fn maybe(&mut self, number: Option<u32>) {
        self.number(number.map_or(0, |number| u64::from(number) + 1));
    }

    /// Writes the name of an enum variant as in the code.
    fn name(&mut self, value: &dyn std::fmt::Debug) {
        use std::io::Write as _;
        let at = self.0.len();
        // writing to a vector cannot fail
        let _ = write!(self.0, "{value:?}");
        debug_assert!(self.0.len() > at);
        self.0.push(0);
    }

    fn operation(&mut self, operation: &Operation) {
        let Operation {
            name,
            kind,
            lane,
            reads,
            writes,
            weight,
            layer,
            module,
            group,
            cost,
            origins,
            after,
        } = operation;
        self.text(name);
        self.kind(kind);
        self.text(lane.as_str());
        self.list(reads, |bytes, id: &ValueId| bytes.number(id.0.into()));
        self.list(writes, |bytes, id: &ValueId| bytes.number(id.0.into()));
        self.maybe(weight.map(|weight| weight.0));
        self.maybe(*layer);
        self.text(module.as_str());
        self.number((*group).into());
        self.cost(cost);
        self.list(origins, |bytes, origin: &String| bytes.text(origin));
        self.list(after, |bytes, id: &OpId| bytes.number(id.0.into()));
    }

    fn kind(&mut self, kind: &Kind) {
        self.text(kind.as_str());
        match kind {
            Kind::Join { root } | Kind::JoinNorm { root } => self.number(u64::from(*root)),
            Kind::Quantize { to } => self.text(to.as_str()),
            Kind::SiluMul { offset } => self.number((*offset).into()),
            _ => {}
        }
    }

    fn cost(&mut self, cost: &Cost) {
        let Cost { flops, bytes_read, bytes_written, message_bytes } = cost;
        for quantity in [flops, bytes_read, bytes_written, message_bytes] {
            let Quantity { fixed, row, sequence, kv_token, pair } = *quantity;
            [fixed, row, sequence, kv_token, pair].into_iter().for_each(|number| self.number(number));
        }
    }

    fn value(&mut self, value: &Value) {
        let Value { name, placement, rows, columns, element, group } = value;
        self.text(name);
        self.name(placement);
        self.name(rows);
        self.number((*columns).into());
        self.name(element);
        self.number((*group).into());
    }

    fn weight(&mut self, weight: &Weight) {
        let Weight { name, parts, outputs, inputs } = weight;
        self.text(name);
        self.number(parts.len() as u64);
        for part in parts {
            self.text(&part.tensor.hf_name());
            self.name(&part.shard);
        }
        self.number((*outputs).into());
        self.number((*inputs).into());
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::spec;
    use crate::{Phase, Plan};

    fn plan(architecture: &str) -> Plan {
        Plan::new(&spec(&architecture.parse().unwrap(), 3, 2, Phase::Decode)).unwrap()
    }

    /// Hashes stand in records: these stay what they are.
    #[test]
    fn hashes_are_the_same_on_every_machine() {
        assert_eq!(plan("standard").hash(), "84b2066a5a17fcb8");
        assert_eq!(plan("standard").json_hash(), "b5b55cda60a1e7a7");
    }

    #[test]
    fn every_part_of_a_plan_is_hashed() {
        let standard = plan("standard");
        let hash = standard.hash();
        let changed: [fn(&mut Plan); 13] = [
            |plan| plan.operations[1].name.push('x'),
            |plan| plan.operations.swap(0, 1),
            |plan| plan.operations[1].cost.flops.row += 1,
            |plan| plan.operations[1].reads.clear(),
            |plan| plan.operations[1].layer = None,
            |plan| plan.operations[1].group += 1,
            |plan| plan.operations[2].weight = None,
            |plan| plan.operations[1].origins.clear(),
            |plan| plan.operations[1].after.push(crate::OpId(0)),
            |plan| plan.operations[1].kind = crate::Kind::Add,
            |plan| plan.values[1].columns += 1,
            |plan| plan.values[1].placement = crate::Placement::Divergent,
            |plan| plan.weights[1].parts.clear(),
        ];
        for (at, change) in changed.iter().enumerate() {
            let mut other = standard.clone();
            change(&mut other);
            assert_ne!(other.hash(), hash, "change {at}");
        }
        assert_ne!(plan("ladder").hash(), hash);
    }
}
