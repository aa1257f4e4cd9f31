//! What cells differ in, and what they have in common, in words: a table whose rows look alike says
//! nothing, and what all rows share needs to be said once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::compare::Axis;
use crate::table::options::{self, OPTIONS};
use crate::table::{P2p, Record, Spec};

/// What is said of all cells in any case; other options where they are not at their defaults.
const ALWAYS: [&str; 6] = ["model", "dtype", "tp", "batch", "prompt_tokens", "output_tokens"];

/// What says how often something was timed, and not what was.
const COUNTS: [&str; 2] = ["samples", "warmup"];

fn joined(words: impl Iterator<Item = String>) -> String {
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The axes in which cells differ, in the order of the table of options, variables and profile values last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Varied {
    axes: Vec<Axis>,
    /// The links of the cells follow from P2P alone: P2P says it all.
    link_follows: bool,
}

impl Varied {
    /// What these cells differ in. Costs a look at every option of every cell.
    pub fn of<'a>(specs: impl Iterator<Item = &'a Spec> + Clone) -> Self {
        let Some(first) = specs.clone().next() else { return Self::default() };
        let mut keys: BTreeSet<Axis> = BTreeSet::new();
        for spec in specs.clone() {
            keys.extend(
                spec.env.keys().filter(|key| !key.starts_with("NCCL_P2P_")).cloned().map(Axis::Env),
            );
            keys.extend(spec.set.keys().cloned().map(Axis::Set));
        }
        let axes = OPTIONS.iter().map(|option| Axis::Option(option.name)).chain(keys);
        let differs = |axis: &Axis| match axis {
            Axis::Option(name) => options::option(name).is_some_and(|option| {
                let (number, text) = (option.number(first), option.text(first));
                // numbers are compared without making texts of them
                specs.clone().any(|spec| match number {
                    Some(_) => option.number(spec) != number,
                    None => option.text(spec) != text,
                })
            }),
            _ => {
                let value = axis.value(first);
                specs.clone().any(|spec| axis.value(spec) != value)
            }
        };
        let axes: Vec<Axis> = axes.filter(differs).collect();
        let mut links: BTreeMap<P2p, BTreeSet<String>> = BTreeMap::new();
        specs.for_each(|spec| {
            links.entry(spec.p2p).or_default().insert(spec.link.to_string());
        });
        let link_follows = links.len() > 1 && links.values().all(|links| links.len() == 1);
        Self { axes, link_follows }
    }

    /// What else varies.
    pub fn without(&self, axis: &Axis) -> Self {
        let mut other = self.clone();
        other.axes.retain(|varied| varied != axis);
        if *axis == Axis::P2P && self.link_follows {
            other.axes.retain(|varied| *varied != Axis::Option("link"));
        }
        other
    }

    /// Whether the cells differ in nothing.
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// The axes, those that only follow from others left out.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().filter(|axis| !(self.link_follows && **axis == Axis::Option("link")))
    }

    /// A cell by what varies: `tp8 p2p-off link.alpha_us=20`; empty where nothing does.
    pub fn words(&self, spec: &Spec) -> String {
        joined(self.axes().map(|axis| axis.label(spec)))
    }

    /// What all cells have in common with this one of them: `tiny f32 tp2 b1 ...`.
    pub fn common(&self, spec: &Spec) -> String {
        let telling = OPTIONS.iter().filter(|option| {
            let heeded_by = option.about.heeded_by;
            let heeded = heeded_by.is_empty() || heeded_by.contains(&spec.backend);
            let told = heeded && !option.is_default(spec) && !COUNTS.contains(&option.name);
            ALWAYS.contains(&option.name) || told
        });
        let options = telling.map(|option| Axis::Option(option.name));
        let keys = spec.env.keys().cloned().map(Axis::Env);
        let keys = keys.chain(spec.set.keys().cloned().map(Axis::Set));
        let same = options.chain(keys).filter(|axis| !self.axes.contains(axis));
        joined(same.map(|axis| axis.label(spec)))
    }
}

/// What sets each run apart from the others of its experiment, but for the options of these names, which
/// stand beside it: `link.alpha_us=20`; empty where nothing does.
pub fn settings(records: &[Record], but: &[&str]) -> Vec<String> {
    let mut experiments: HashMap<Option<&str>, Vec<usize>> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        experiments.entry(record.experiment.as_deref()).or_default().push(at);
    }
    let mut settings = vec![String::new(); records.len()];
    for (experiment, runs) in experiments {
        let mut varied = Varied::of(runs.iter().map(|at| &records[*at].spec));
        varied.axes.retain(|axis| match axis {
            // runs of no experiment were never meant to differ in what they are of
            Axis::Option(name) => experiment.is_some() && !but.contains(name),
            Axis::Env(_) | Axis::Set(_) => true,
        });
        if !varied.is_empty() {
            runs.into_iter().for_each(|at| settings[at] = varied.words(&records[at].spec));
        }
    }
    settings
}

impl Axis {
    /// A cell's value on the axis as labels have it: `tp8`, `p2p-off`, `link.alpha_us=20`.
    pub fn label(&self, spec: &Spec) -> String {
        match self {
            Self::Option(name) => {
                options::option(name).map(|option| option.label(spec)).unwrap_or_default()
            }
            Self::Env(key) | Self::Set(key) => format!("{key}={}", self.value(spec)),
        }
    }
}
