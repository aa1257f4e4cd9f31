//! Labels of matched cells: the main options always, other options only if cells differ in them.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::matching::PooledCell;
use table::Spec;
use table::options::{OPTIONS, PAIRS};

/// Builds labels from the settings that cells share.
#[derive(Debug)]
pub(in crate::analysis) struct Label {
    axis: Option<Axis>,
    varying: Vec<&'static str>,
}

/// Options that every label names; others appear only if cells differ in them.
const ALWAYS: [&str; 6] = ["architecture", "model", "tp", "batch", "p2p", "backend"];

impl Label {
    /// Takes all cells of a comparison along `axis`; `None` if there is no axis.
    pub fn new(cells: &[PooledCell], axis: Option<&Axis>) -> Self {
        let mut varying = Vec::new();
        if let Some((first, rest)) = cells.split_first() {
            let of = |cell: &PooledCell| parts(&cell.record.spec, cell.host.as_deref());
            let first = of(first);
            for cell in rest {
                for (a, b) in first.iter().zip(of(cell)) {
                    if a.1 != b.1 && !varying.contains(&a.0) {
                        varying.push(a.0);
                    }
                }
            }
        }
        Self { axis: axis.cloned(), varying }
    }

    /// Label of two matched cells without the axis; if their links differ, it shows both.
    pub fn pair(&self, a: &PooledCell, b: &PooledCell) -> String {
        self.words(a, b, &[])
    }

    /// Label without the axis, TP and batch: the fixed part of a map.
    pub fn rest(&self, a: &PooledCell, b: &PooledCell) -> String {
        self.words(a, b, &["tp", "batch"])
    }

    fn words(&self, a: &PooledCell, b: &PooledCell, without: &[&str]) -> String {
        let p2p = self.axis == Some(Axis::P2P);
        let is_axis = |name: &str| matches!(self.axis, Some(Axis::Option(axis)) if axis == name);
        // Variables set because of P2P repeat what P2P says.
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

    /// [`parts`] without the variable, profile value or file of the axis.
    fn parts(&self, cell: &PooledCell) -> Vec<(&'static str, String)> {
        let mut parts = parts(&cell.record.spec, cell.host.as_deref());
        let spec = &cell.record.spec;
        let (name, left) = match &self.axis {
            Some(Axis::Option(option)) => ("files", list(&spec.files, Some(&(*option).to_owned()))),
            Some(Axis::Env(key)) => ("env", list(&spec.env, Some(key))),
            Some(Axis::Set(key)) => ("set", list(&spec.set, Some(key))),
            _ => return parts,
        };
        parts.iter_mut().filter(|part| part.0 == name).for_each(|part| part.1.clone_from(&left));
        parts
    }
}

/// Entries of a map as `KEY=VALUE`, without one key.
fn list(map: &BTreeMap<String, String>, but: Option<&String>) -> String {
    let kept = map.iter().filter(|(key, _)| Some(*key) != but);
    kept.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Settings of a cell and its host, as name and text, in label order: options, host, variables, profile values, file
/// hashes.
pub(in crate::analysis) fn parts(spec: &Spec, host: Option<&str>) -> Vec<(&'static str, String)> {
    let mut parts: Vec<(&str, String)> =
        OPTIONS.iter().map(|option| (option.name, option.label(spec))).collect();
    parts.push(("host", host.unwrap_or_default().to_owned()));
    parts.extend(PAIRS.iter().map(|pairs| (pairs.name, list((pairs.of)(spec), None))));
    parts.push(("files", list(&spec.files, None)));
    parts
}
