//! Known errors of the simulator, from `sets/errors.toml`, and the cells that they cover.

use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;

use super::super::set::{DataSet, Measure, Overrides};
use super::{Evidence, Trust, has_experts};
use crate::analysis::Axis;
use base::text::{counted, same_name};
use machine::hardware::{Profile, Stack};
use model::Model;
use plan::{DType, ModelShape};
use table::options::{OPTIONS, OptionEntry, option as named};
use table::{Backend, Spec};

/// Mean error of a stack on a GPU; a test compares it with the data sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::validate) struct KnownError {
    pub set: String,
    pub stack: String,
    pub hardware: String,
    pub measure: Measure,
    /// Mean absolute error of the rows that the constants were fitted to (percent).
    pub pct: f64,
    /// The same of speedups over standard; `None` if the rows have no other architecture.
    #[serde(default)]
    pub speedup_pct: Option<f64>,
    /// Errors on rows that were left out of the fit.
    #[serde(default)]
    pub held_out: Vec<HeldOutError>,
    /// True if the rewired steps take other all-reduces than the traced ones.
    #[serde(default)]
    pub other_reduces: bool,
    /// Cells of the set's rows on this hardware and stack.
    #[serde(skip)]
    pub rows: OnceLock<Vec<Spec>>,
}

/// Mean absolute error of rows that differ in some options from all rows of a fit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::validate) struct HeldOutError {
    /// Rows left out together: `each TP`.
    pub by: String,
    pub options: Vec<String>,
    pub pct: f64,
    #[serde(default)]
    pub speedup_pct: Option<f64>,
}

/// Set and stack of rewired traces, whose kernels are measured; `hardware` is `cpu` for the cpu backend.
pub(in crate::validate) const REWIRE: &str = "rewire";

/// Mean absolute error of a set's first tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::validate) struct FirstTokenError {
    pub set: String,
    pub pct: f64,
}

/// Pairs of two architectures in paper_70b, and those of them that the simulator reverses; a test counts both.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::validate) struct KnownOrder {
    pub architectures: [String; 2],
    pub stack: String,
    pub hardware: String,
    pub pairs: usize,
    pub reversed: usize,
}

impl KnownOrder {
    /// `ladder/parallel order reversed in 5 of 14 published pairs`.
    pub fn words(&self) -> String {
        let Self { architectures: [a, b], pairs, reversed, .. } = self;
        format!("{a}/{b} order reversed in {reversed} of {pairs} published pairs")
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::validate) struct KnownErrors {
    errors: Vec<KnownError>,
    /// Errors of static prefills, of served dense models and of served mixtures.
    pub first_tokens: Vec<FirstTokenError>,
    /// Architectures whose published order the simulator often reverses.
    pub orders: Vec<KnownOrder>,
}

pub(in crate::validate) static KNOWN: LazyLock<KnownErrors> =
    LazyLock::new(|| toml::from_str(include_str!("../sets/errors.toml")).unwrap_or_default());

/// Mean errors by stack and GPU.
pub(in crate::validate) fn known_errors() -> &'static [KnownError] {
    &KNOWN.errors
}

impl FirstTokenError {
    /// Error of the first token of cells like this one.
    pub fn from_spec(spec: &Spec) -> Option<&'static Self> {
        let set = if has_experts(&spec.model) || spec.ep > 1 {
            "serving_moe"
        } else if spec.concurrency > 0 {
            "serving_dense"
        } else {
            "paper_70b"
        };
        KNOWN.first_tokens.iter().find(|error| error.set == set)
    }
}

impl KnownError {
    /// Engine and hardware: `vLLM 0.12 on h100_sxm`.
    pub fn place(&self) -> String {
        let title = Stack::load(&self.stack).map_or_else(|_| self.stack.clone(), |stack| stack.title());
        format!("{title} on {}", self.hardware)
    }

    pub fn rows(&self) -> &[Spec] {
        self.rows.get_or_init(|| {
            let set = DataSet::named(std::slice::from_ref(&self.set)).unwrap_or_default().pop();
            let runs = set.and_then(|set| set.runs(&Overrides::default()).ok()).unwrap_or_default();
            let specs = runs.into_iter().flatten().map(|run| run.spec);
            let is_own = |spec: &Spec| spec.stack == self.stack && spec.hardware == self.hardware;
            let mut rows: Vec<Spec> = Vec::new();
            for spec in specs.filter(is_own) {
                if rows.last() != Some(&spec) {
                    rows.push(spec);
                }
            }
            rows
        })
    }

    /// Validation of a cell by these rows, and the number of options in which the nearest row differs.
    pub fn trust(&'static self, spec: &Spec) -> (Trust, usize) {
        let compared: Vec<&OptionEntry> = OPTIONS
            .iter()
            .filter(|option| option.is_used_by(Backend::Sim) && !IGNORED.contains(&option.name))
            .collect();
        let differing = |row: &Spec| -> Vec<&OptionEntry> {
            compared.iter().copied().filter(|option| !is_alike(option, spec, row)).collect()
        };
        let peers = self.peers(spec);
        let mut nearest: Option<Vec<&OptionEntry>> = None;
        let mut held_out: Option<(&HeldOutError, usize)> = None;
        for options in self.rows().iter().map(differing) {
            for out in self.held_out.iter().filter(|_| !options.is_empty()) {
                let is_better = held_out.is_none_or(|(known, _)| out.pct < known.pct);
                if is_better && options.iter().all(|option| out.covers(option, spec, &peers)) {
                    held_out = Some((out, options.len()));
                }
            }
            if nearest.as_ref().is_none_or(|nearest| options.len() < nearest.len()) {
                nearest = Some(options);
            }
        }
        // a row that covers the cell is nearer
        let not_validated =
            |why: String, differ: usize| (Trust::NotValidated(why), OPTIONS.len() + differ);
        let Some(nearest) = nearest else {
            return not_validated(format!("with {}", self.place()), OPTIONS.len());
        };
        match held_out {
            _ if nearest.is_empty() => (Trust::Fitted(Evidence { known: self, held_out: None }), 0),
            Some((out, differ)) => {
                (Trust::HeldOut(Evidence { known: self, held_out: Some(out) }), differ)
            }
            None => {
                let named: Vec<String> = nearest.iter().map(|option| phrase(option, spec)).collect();
                not_validated(format!("for {} with {}", named.join(", "), self.place()), nearest.len())
            }
        }
    }

    /// Published rows of the cell's model and GPU in another version of its engine, in words, if its own version has none:
    /// `published rows of this model are of vllm-0.15 (30 of its 95 rows, which have 9 % mean TPOT error)`. Reads all
    /// published rows of the engine.
    pub fn of_other_version(spec: &Spec) -> Option<String> {
        let (stack, hardware) =
            (Stack::canonical_name(&spec.stack), Profile::canonical_name(&spec.hardware));
        let engine = engine_of_version(stack)?;
        let known = known_errors().iter().filter(|known| {
            engine_of_version(&known.stack) == Some(engine) && known.hardware == hardware
        });
        let rows = |known: &Self| known.rows().iter().filter(|row| is_of_model(row, spec)).count();
        let mut counted: Vec<(&Self, usize)> =
            known.map(|known| (known, rows(known))).filter(|(_, rows)| *rows > 0).collect();
        if counted.iter().any(|(known, _)| known.stack == stack) {
            return None;
        }
        counted.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        let (known, rows) = counted.first()?;
        let (Self { stack, measure, .. }, all) = (known, known.rows().len());
        let (measure, pct) = (measure.title(), known.pct.ceil());
        let rows = match *rows == all {
            true => format!("{rows} rows with"),
            false => format!("{rows} of its {all} rows, which have"),
        };
        Some(format!(
            "published rows of this model are of {stack} ({rows} {pct:.0} % mean {measure} error)"
        ))
    }

    /// Rows of the cell's model; all rows if the model has none.
    pub fn peers(&self, spec: &Spec) -> Vec<&Spec> {
        let own: Vec<&Spec> = self.rows().iter().filter(|row| is_of_model(row, spec)).collect();
        if own.is_empty() { self.rows().iter().collect() } else { own }
    }
}

impl HeldOutError {
    /// True if rows left out this way may differ in an option, and the cell's value lies among those of its peers.
    pub fn covers(&self, option: &OptionEntry, spec: &Spec, peers: &[&Spec]) -> bool {
        self.options.iter().any(|name| name == option.name)
            && match option.number(spec) {
                Some(number) => {
                    let numbers = || peers.iter().filter_map(|row| option.number(row));
                    numbers().min() <= Some(number) && Some(number) <= numbers().max()
                }
                None if option.name == "model" => {
                    built_in(&spec.model).is_some()
                        && peers
                            .first()
                            .is_some_and(|row| has_experts(&row.model) == has_experts(&spec.model))
                }
                None => peers.iter().any(|row| is_alike(option, spec, row)),
            }
    }
}

/// Options that rows are chosen by, or that change no simulated latency.
pub(super) const IGNORED: [&str; 6] = ["backend", "hardware", "stack", "samples", "warmup", "seed"];

/// True if an option has the same value in both cells, or the difference changes no latency.
pub(super) fn is_alike(option: &OptionEntry, a: &Spec, b: &Spec) -> bool {
    let is_16_bit = |spec: &Spec| matches!(spec.dtype, DType::Bf16 | DType::F16);
    option.same(a, b)
        || match option.name {
            "model" => same_name(&a.model, &b.model) || is_same_shape(&a.model, &b.model),
            "dtype" => is_16_bit(a) && is_16_bit(b),
            "batch" => a.concurrency.max(b.concurrency) > 0,
            "p2p" | "collective" => a.architecture.is_limit() || a.tp * a.dp == 1,
            _ => false,
        }
}

/// Engine of a stack that is one version of it: `vllm` of `vllm-0.15`; `None` for `native` and `gpt-fast`.
pub(super) fn engine_of_version(stack: &str) -> Option<&str> {
    let (engine, version) = stack.rsplit_once('-')?;
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(engine)
}

/// True if a row is of the cell's model.
pub(super) fn is_of_model(row: &Spec, spec: &Spec) -> bool {
    named("model").is_some_and(|model| is_alike(model, spec, row))
}

/// True if two built-in models have layers of the same sizes.
pub(super) fn is_same_shape(a: &str, b: &str) -> bool {
    let sizes = |shape: ModelShape| {
        let ModelShape { layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, .. } = shape;
        ([layers, hidden, heads, kv_heads, head_dim, intermediate, vocab], shape.experts)
    };
    built_in(a).map(sizes).is_some_and(|a| built_in(b).map(sizes) == Some(a))
}

pub(super) fn built_in(name: &str) -> Option<ModelShape> {
    static SHAPES: LazyLock<Vec<(String, ModelShape)>> =
        LazyLock::new(|| Model::built_in().into_iter().map(|model| (model.name, model.shape)).collect());
    SHAPES.iter().find(|(known, _)| same_name(known, name)).map(|(_, shape)| shape.clone())
}

/// Value of an option in a sentence: `TP 16`, `prompts of 2048 tokens`.
pub(super) fn phrase(option: &OptionEntry, spec: &Spec) -> String {
    match option.name {
        "prompt_tokens" => format!("prompts of {} tokens", spec.prompt_tokens),
        "output_tokens" => format!("outputs of {}", counted(spec.output_tokens as usize, "token")),
        "concurrency" if spec.concurrency == 0 => "static batches".into(),
        "concurrency" => format!("{} in flight", counted(spec.concurrency as usize, "request")),
        "collective" => format!("{} all-reduces", spec.collective),
        name => Axis::Option(name).phrase(spec),
    }
}
