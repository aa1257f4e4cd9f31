//! What matched cells have in common, in words: always what matters most, the rest where cells differ
//! in it.

use std::collections::BTreeMap;

use super::axis::{Axis, field};
use super::matching::Arm;
use crate::spec::Spec;

/// Names what cells have in common.
#[derive(Debug)]
pub(in crate::analysis) struct Label {
    axis: Option<Axis>,
    varying: Vec<&'static str>,
}

/// What is always said.
const ALWAYS: [&str; 6] = ["architecture", "model", "tp", "batch", "p2p", "backend"];

impl Label {
    /// For cells that are compared along `axis`, or along none.
    pub fn new(arms: &[Arm], axis: Option<&Axis>) -> Self {
        let mut varying = Vec::new();
        if let Some((first, rest)) = arms.split_first() {
            let of = |arm: &Arm| parts(&arm.record.spec, arm.host.as_deref());
            let first = of(first);
            for arm in rest {
                for (a, b) in first.iter().zip(of(arm)) {
                    if a.1 != b.1 && !varying.contains(&a.0) {
                        varying.push(a.0);
                    }
                }
            }
        }
        Self { axis: axis.cloned(), varying }
    }

    /// What two cells have in common but the axis; where a link differs, both.
    pub fn pair(&self, a: &Arm, b: &Arm) -> String {
        self.words(a, b, &[])
    }

    /// Likewise without TP and batch: what a map over these is a slice of.
    pub fn rest(&self, a: &Arm, b: &Arm) -> String {
        self.words(a, b, &["tp", "batch"])
    }

    fn words(&self, a: &Arm, b: &Arm, without: &[&str]) -> String {
        let p2p = self.axis == Some(Axis::P2P);
        let is_axis = |name: &str| matches!(self.axis, Some(Axis::Field(axis)) if axis == name);
        // Variables that P2P brings with it say no more than P2P does.
        let brought = p2p && a.record.spec.env != b.record.spec.env;
        let left_out =
            |name: &str| is_axis(name) || without.contains(&name) || (brought && name == "env");
        let shown = |name: &str, text: &str| {
            !left_out(name)
                && !text.is_empty()
                && (ALWAYS.contains(&name)
                    || self.varying.contains(&name)
                    || (name == "link" && text != "native"))
        };
        let both = self.parts(a).into_iter().zip(self.parts(b));
        let words = both
            .filter(|(a, b)| shown(a.0, &a.1) || shown(b.0, &b.1))
            .map(|(a, b)| if a.1 == b.1 { a.1 } else { format!("{}|{}", a.1, b.1) });
        words.collect::<Vec<_>>().join(" ")
    }

    /// [`parts`] without the variable, or the profile value, that is the axis.
    fn parts(&self, arm: &Arm) -> [(&'static str, String); 22] {
        let mut parts = parts(&arm.record.spec, arm.host.as_deref());
        let spec = &arm.record.spec;
        match &self.axis {
            Some(Axis::Env(key)) => parts[20].1 = list(&spec.env, Some(key)),
            Some(Axis::Set(key)) => parts[21].1 = list(&spec.set, Some(key)),
            _ => {}
        }
        parts
    }
}

/// `KEY=VALUE` pairs but one.
fn list(map: &BTreeMap<String, String>, but: Option<&String>) -> String {
    let kept = map.iter().filter(|(key, _)| Some(*key) != but);
    kept.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// A cell's fields in words, in the order in which a label shows them.
pub(in crate::analysis) fn parts(spec: &Spec, host: Option<&str>) -> [(&'static str, String); 22] {
    [
        ("architecture", spec.architecture.to_string()),
        ("model", spec.model.clone()),
        ("dtype", spec.dtype.to_string()),
        ("tp", format!("tp{}", spec.tp)),
        ("batch", format!("b{}", spec.batch)),
        ("prompt_tokens", format!("prompt{}", spec.prompt_tokens)),
        ("output_tokens", format!("output{}", spec.output_tokens)),
        ("p2p", format!("p2p-{}", spec.p2p.as_str())),
        ("backend", spec.backend.as_str().into()),
        ("link", spec.link.to_string()),
        ("hardware", spec.hardware.clone()),
        ("host", host.unwrap_or_default().to_owned()),
        ("stack", format!("stack-{}", spec.stack)),
        ("collective", field(spec, "collective")),
        ("recorder", format!("recorder-{}", spec.recorder.as_str())),
        ("coverage", format!("coverage-{}", spec.coverage.as_str())),
        ("no_graph", if spec.no_graph { "eager".into() } else { String::new() }),
        ("samples", format!("samples{}", spec.samples)),
        ("warmup", format!("warmup{}", spec.warmup)),
        ("seed", format!("seed{}", spec.seed)),
        ("env", list(&spec.env, None)),
        ("set", list(&spec.set, None)),
    ]
}
