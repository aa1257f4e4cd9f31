//! Trust in a simulated number: fitted to measurements of this very cell, predicted within a known error, or not
//! validated. Every screen, the verdict, what-if and the command line take their words from here.
//!
//! A cell is compared with the published rows of its hardware and stack, option by option. Errors of rows that were
//! left out of a fit come from `calibrate` and `validate --left-out`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;

use super::set::{DataSet, Measure, Overrides};
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
pub(super) struct KnownError {
    pub(super) set: String,
    pub(super) stack: String,
    pub(super) hardware: String,
    pub(super) measure: Measure,
    /// Mean absolute error of the rows that the constants were fitted to (percent).
    pub(super) pct: f64,
    /// The same of speedups over standard; `None` if the rows have no other architecture.
    #[serde(default)]
    pub(super) speedup_pct: Option<f64>,
    /// Errors on rows that were left out of the fit.
    #[serde(default)]
    pub(super) held_out: Vec<HeldOut>,
    /// True if the rewired steps take other all-reduces than the traced ones.
    #[serde(default)]
    pub(super) other_reduces: bool,
    /// Cells of the set's rows on this hardware and stack.
    #[serde(skip)]
    rows: OnceLock<Vec<Spec>>,
}

/// Mean absolute error of rows that differ in some options from all rows of a fit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldOut {
    /// Rows left out together: `each TP`.
    by: String,
    options: Vec<String>,
    pct: f64,
    #[serde(default)]
    speedup_pct: Option<f64>,
}

/// Set and stack of rewired traces, whose kernels are measured; `hardware` is `cpu` for the cpu backend.
pub(super) const REWIRE: &str = "rewire";

#[derive(Deserialize)]
struct File {
    errors: Vec<KnownError>,
}

pub(super) static KNOWN: LazyLock<Vec<KnownError>> = LazyLock::new(|| {
    let file: Option<File> = toml::from_str(include_str!("sets/errors.toml")).ok();
    file.map(|file| file.errors).unwrap_or_default()
});

/// Validation of one simulated cell.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The constants were fitted to measurements of this cell.
    Fitted(Evidence),
    /// Measured cells near this one were predicted without being fitted.
    HeldOut(Evidence),
    /// Nothing measured covers the cell; the reason, such as `for desync:4 with gpt-fast on h100_sxm`.
    NotValidated(String),
}

/// Published rows near a cell.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    known: &'static KnownError,
    held_out: Option<&'static HeldOut>,
}

impl Trust {
    pub fn of(spec: &Spec) -> Self {
        let is = |known: &&'static KnownError| {
            known.stack == Stack::meant(&spec.stack) && known.hardware == Profile::meant(&spec.hardware)
        };
        let mut found: Option<(Self, usize)> = None;
        for known in KNOWN.iter().filter(is) {
            let near = known.trust(spec);
            if found.as_ref().is_none_or(|(_, worse)| near.1 < *worse) {
                found = Some(near);
            }
        }
        match found {
            None => Self::NotValidated("for this GPU and engine".into()),
            Some(_) if !spec.set.is_empty() => {
                Self::NotValidated("with other values of hardware or stack".into())
            }
            Some((trust, _)) => trust,
        }
    }

    /// Error of a simulated speedup (share); `None` if no measured pair covers the cell.
    fn speedup_error(&self) -> Option<f64> {
        let pct = match self {
            Self::Fitted(of) => of.known.speedup_pct,
            Self::HeldOut(of) => of.held_out?.speedup_pct,
            Self::NotValidated(_) => None,
        };
        Some(pct?.ceil() / 100.0)
    }

    /// Words beside a result: `fitted to these runs (2 % left)`, `within 12 %, held out`, `not validated`.
    pub fn badge(&self) -> String {
        match self {
            Self::Fitted(of) => format!("fitted to these runs ({:.0} % left)", of.pct().ceil()),
            Self::HeldOut(of) => format!("within {:.0} %, held out", of.pct().ceil()),
            Self::NotValidated(_) => "not validated".into(),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Fitted(_) => 0,
            Self::HeldOut(_) => 1,
            Self::NotValidated(_) => 2,
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fitted(of) => {
                let out = of.known.held_out.iter();
                let out: Vec<String> =
                    out.map(|out| format!("{:.0} % with {} held out", out.pct.ceil(), out.by)).collect();
                let out = if out.is_empty() { String::new() } else { format!("; {}", out.join(", ")) };
                let (measure, pct) = (of.known.measure.title(), of.pct().ceil());
                write!(f, "fitted to these runs ({pct:.0} % {measure} left{out}): {of}")
            }
            Self::HeldOut(of) => {
                let (measure, pct) = (of.known.measure.title(), of.pct().ceil());
                let by = of.held_out.map_or("", |out| &out.by);
                write!(f, "within {pct:.0} % {measure}, with {by} held out: {of}")
            }
            Self::NotValidated(why) => write!(f, "not validated {why}"),
        }
    }
}

impl Evidence {
    /// Mean absolute error: left after the fit, or of rows left out of it (percent).
    fn pct(&self) -> f64 {
        self.held_out.map_or(self.known.pct, |out| out.pct.max(self.known.pct))
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.known.place(), self.known.set)
    }
}

impl KnownError {
    /// Engine and hardware: `vLLM 0.12 on h100_sxm`.
    fn place(&self) -> String {
        let title = Stack::load(&self.stack).map_or_else(|_| self.stack.clone(), |stack| stack.title());
        format!("{title} on {}", self.hardware)
    }

    fn rows(&self) -> &[Spec] {
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
    fn trust(&'static self, spec: &Spec) -> (Trust, usize) {
        let compared: Vec<&OptionEntry> = OPTIONS
            .iter()
            .filter(|option| option.is_heeded_by(Backend::Sim) && !IGNORED.contains(&option.name))
            .collect();
        let differing = |row: &Spec| -> Vec<&OptionEntry> {
            compared.iter().copied().filter(|option| !is_alike(option, spec, row)).collect()
        };
        let mut nearest: Option<Vec<&OptionEntry>> = None;
        let mut held_out: Option<(&HeldOut, usize)> = None;
        for options in self.rows().iter().map(differing) {
            for out in self.held_out.iter().filter(|_| !options.is_empty()) {
                let is_better = held_out.is_none_or(|(known, _)| out.pct < known.pct);
                if is_better && options.iter().all(|option| self.covers(out, option, spec)) {
                    held_out = Some((out, options.len()));
                }
            }
            if nearest.as_ref().is_none_or(|nearest| options.len() < nearest.len()) {
                nearest = Some(options);
            }
        }
        let nearest = nearest.unwrap_or_default();
        match held_out {
            _ if nearest.is_empty() => (Trust::Fitted(Evidence { known: self, held_out: None }), 0),
            Some((out, differ)) => {
                (Trust::HeldOut(Evidence { known: self, held_out: Some(out) }), differ)
            }
            None => {
                let named: Vec<String> = nearest.iter().map(|option| phrase(option, spec)).collect();
                let why = format!("for {} with {}", named.join(", "), self.place());
                // a row that covers the cell is nearer
                (Trust::NotValidated(why), OPTIONS.len() + nearest.len())
            }
        }
    }

    /// True if rows left out this way may differ in an option, and the cell's value lies among the rows'.
    fn covers(&self, out: &HeldOut, option: &OptionEntry, spec: &Spec) -> bool {
        let has_experts = |spec: &Spec| has_experts(&spec.model);
        out.options.iter().any(|name| name == option.name)
            && match option.number(spec) {
                Some(number) => {
                    let is_model =
                        |row: &&Spec| named("model").is_some_and(|model| is_alike(model, spec, row));
                    let rows = self.rows().iter();
                    let of_model: Vec<&Spec> = rows.clone().filter(is_model).collect();
                    let rows = if of_model.is_empty() { rows.collect() } else { of_model };
                    let numbers = || rows.iter().filter_map(|row| option.number(row));
                    numbers().min() <= Some(number) && Some(number) <= numbers().max()
                }
                None if option.name == "model" => {
                    built_in(&spec.model).is_some()
                        && self.rows().first().map(has_experts) == Some(has_experts(spec))
                }
                None => true,
            }
    }
}

/// Options that rows are chosen by, or that change no simulated latency.
const IGNORED: [&str; 6] = ["backend", "hardware", "stack", "samples", "warmup", "seed"];

/// True if an option has the same value in both cells, or the difference changes no latency.
fn is_alike(option: &OptionEntry, a: &Spec, b: &Spec) -> bool {
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

/// True if two built-in models have layers of the same sizes.
fn is_same_shape(a: &str, b: &str) -> bool {
    let sizes = |shape: ModelShape| {
        let ModelShape { layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, .. } = shape;
        ([layers, hidden, heads, kv_heads, head_dim, intermediate, vocab], shape.experts)
    };
    built_in(a).map(sizes).is_some_and(|a| built_in(b).map(sizes) == Some(a))
}

fn built_in(name: &str) -> Option<ModelShape> {
    Some(Model::built_in().into_iter().find(|known| same_name(&known.name, name))?.shape)
}

/// Value of an option in a sentence: `TP 16`, `prompts of 2048 tokens`.
fn phrase(option: &OptionEntry, spec: &Spec) -> String {
    match option.name {
        "prompt_tokens" => format!("prompts of {} tokens", spec.prompt_tokens),
        "output_tokens" => format!("outputs of {}", counted(spec.output_tokens as usize, "token")),
        "concurrency" if spec.concurrency == 0 => "static batches".into(),
        "concurrency" => format!("{} in flight", counted(spec.concurrency as usize, "request")),
        "collective" => format!("{} all-reduces", spec.collective),
        name => Axis::Option(name).phrase(spec),
    }
}

/// True for a built-in mixture of experts.
pub(super) fn has_experts(model: &str) -> bool {
    built_in(model).is_some_and(|shape| shape.experts.is_some())
}

/// Validation of a simulated cell in words: `fitted to these runs (2 % TPOT left; ...): gpt-fast on h100_sxm
/// (paper_70b)`, `within 5 % TPOT, with each TP held out: ...`, or `not validated for ...`.
pub fn nearest_error(spec: &Spec) -> String {
    Trust::of(spec).to_string()
}

/// Validations of the simulated ones of these cells, one line each, with their numbers of cells if there are several.
pub fn nearest_errors<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Vec<String> {
    let (groups, total) = grouped(specs);
    let several = groups.len() > 1;
    let line = |(cells, trust): &(usize, Trust)| match several {
        true => format!("{cells} of {}: {trust}", counted(total, "cell")),
        false => trust.to_string(),
    };
    groups.iter().map(line).collect()
}

/// Words beside the result of these cells; `None` if none of them is simulated: `fitted to these runs (2 % left)`, or
/// with several validations `fitted to these runs (2 % left) in 60 of 80 cells, not validated in 20`.
pub fn badge<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Option<String> {
    let (groups, total) = grouped(specs);
    let mut by: Vec<(String, usize)> = Vec::new();
    for (cells, trust) in &groups {
        let badge = trust.badge();
        match by.iter_mut().find(|(known, _)| *known == badge) {
            Some((_, known)) => *known += cells,
            None => by.push((badge, *cells)),
        }
    }
    Some(match by.as_slice() {
        [] => return None,
        [(badge, _)] => badge.clone(),
        [(badge, first), rest @ ..] => {
            let rest = rest.iter().map(|(badge, cells)| format!(", {badge} in {cells}"));
            format!("{badge} in {first} of {}{}", counted(total, "cell"), rest.collect::<String>())
        }
    })
}

/// Simulated cells by validation, the best validated first, and their number. All cells that are not validated with one
/// hardware and stack are a group, named by the first.
fn grouped<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> (Vec<(usize, Trust)>, usize) {
    let mut by: BTreeMap<(u8, String), (usize, Trust)> = BTreeMap::new();
    let mut total = 0;
    for spec in specs.into_iter().filter(|spec| spec.backend.is_simulated()) {
        let trust = Trust::of(spec);
        let name = match &trust {
            Trust::NotValidated(_) => format!("{} on {}", spec.stack, spec.hardware),
            known => known.to_string(),
        };
        let trust = || match trust.clone() {
            Trust::NotValidated(why) if why.ends_with("this GPU and engine") => {
                Trust::NotValidated(format!("for stack {} on {}", spec.stack, spec.hardware))
            }
            trust => trust,
        };
        by.entry((trust().rank(), name)).or_insert_with(|| (0, trust())).0 += 1;
        total += 1;
    }
    (by.into_values().collect(), total)
}

/// Smallest simulated lead that is called one: the error of the speedups near two cells, rounded up to a whole percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TieBand {
    /// Lead, as a share.
    pub share: f64,
    /// True if measured speedups cover both cells.
    pub is_known: bool,
}

impl TieBand {
    /// Band of cells that no measured speedup covers: twice the mean error of the paper's speedups with each TP held
    /// out (2.5 %), as other models, engines and hardware are farther from the fit.
    pub const UNKNOWN: Self = Self { share: 0.05, is_known: false };

    /// Band of the ratio of simulated cells: the widest of theirs.
    pub fn of<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Self {
        let mut share: f64 = 0.0;
        for spec in specs {
            let Some(error) = Trust::of(spec).speedup_error() else { return Self::UNKNOWN };
            share = share.max(error);
        }
        Self { share, is_known: true }
    }

    /// True if the ratio of two throughputs or latencies lies within the band.
    pub fn holds(self, ratio: f64) -> bool {
        ratio.max(1.0 / ratio) - 1.0 < self.share
    }

    /// Error of a speedup in words: `simulator error 2 %`, `simulator error unknown, ties within 5 %`.
    pub fn words(self) -> String {
        let pct = 100.0 * self.share;
        match self.is_known {
            true => format!("simulator error {pct:.0} %"),
            false => format!("simulator error unknown, ties within {pct:.0} %"),
        }
    }

    pub fn wider(self, other: Self) -> Self {
        if self.share < other.share { other } else { self }
    }

    /// Verdict on leads within this band: `too close to call (simulator error 2 %)`.
    pub fn too_close(self) -> String {
        format!("too close to call ({})", self.words())
    }

    /// Bands of several ratios in words: `within 2 %`, `within 2 to 5 %`.
    pub fn within(bands: impl IntoIterator<Item = Self>) -> String {
        let shares: Vec<f64> = bands.into_iter().map(|band| 100.0 * band.share).collect();
        let low = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let high = shares.iter().copied().fold(0.0, f64::max);
        match low < high {
            true => format!("within {low:.0} to {high:.0} %"),
            false => format!("within {high:.0} %"),
        }
    }
}

/// Error of the rewired steps of a trace, in words: traces of standard on this hardware, compared with runs of the other
/// wirings, to which nothing was fitted. Their links are emulated, so it holds without contention between the lanes.
pub(crate) fn rewired_error(hardware: Option<&str>, changes: &Changes) -> String {
    if let Changes { uncovered: Some(what), .. } = changes {
        return format!("not validated for {what}");
    }
    let is = |known: &&KnownError| {
        known.stack == REWIRE
            && hardware.is_some_and(|hardware| known.hardware == Profile::meant(hardware))
            && known.other_reduces == changes.other_reduces
    };
    let title =
        if changes.other_reduces { "rewired traces with another link" } else { "rewired traces" };
    let Some(known) = KNOWN.iter().find(is) else {
        return Trust::NotValidated("for this GPU and engine".into()).to_string();
    };
    let (measure, pct) = (known.measure.title(), known.pct.ceil());
    let hardware = &known.hardware;
    format!("within {pct:.0} % {measure}, held out: {title} on {hardware}, emulated link, no contention")
}

/// Changes of a rewired trace that its error depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// True if the all-reduces are not those of the trace.
    pub(crate) other_reduces: bool,
    /// Change that no validated trace has: `another TP`.
    pub(crate) uncovered: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Architecture, LayerSet};
    use table::P2p;

    fn paper(tp: u32, batch: u32, p2p: P2p) -> Spec {
        Spec {
            model: "llama-3-70b".into(),
            stack: "gpt-fast".into(),
            hardware: "H100-SXM".into(),
            dtype: DType::F16,
            architecture: Architecture::Ladder(LayerSet::All),
            tp,
            batch,
            p2p,
            ..Spec::default()
        }
    }

    #[test]
    fn published_cells_are_fitted_their_neighbours_held_out_and_others_not_validated() {
        for p2p in [P2p::On, P2p::Off] {
            let said = nearest_error(&paper(8, 1, p2p));
            assert_eq!(
                said,
                "fitted to these runs (2 % TPOT left; 5 % with each TP held out, 12 % with each batch \
                 size held out): gpt-fast on h100_sxm (paper_70b)"
            );
        }
        let between = Trust::of(&paper(8, 4, P2p::On));
        assert_eq!(between.badge(), "within 12 %, held out");
        assert!(between.to_string().starts_with("within 12 % TPOT, with each batch size held out"));
        // TP 2 was measured, but not with this batch
        assert_eq!(Trust::of(&paper(2, 16, P2p::On)).badge(), "within 5 %, held out");
        // P2P changes nothing without communication
        let limit = Spec { architecture: Architecture::UpperBound, ..paper(8, 16, P2p::Off) };
        assert_eq!(Trust::of(&limit).badge(), "fitted to these runs (2 % left)");
        let bf16 = Spec { dtype: DType::Bf16, ..paper(8, 1, P2p::On) };
        assert_eq!(Trust::of(&bf16).badge(), "fitted to these runs (2 % left)");
        let desync: Architecture = "desync:4".parse().unwrap();
        for (spec, why) in [
            (paper(16, 1, P2p::On), "TP 16"),
            (paper(8, 128, P2p::On), "batch 128"),
            (Spec { architecture: desync, ..paper(8, 1, P2p::On) }, "desync:4"),
            (Spec { model: "llama-3-8b".into(), ..paper(8, 1, P2p::On) }, "llama-3-8b"),
            (Spec { prompt_tokens: 2048, ..paper(8, 1, P2p::On) }, "prompts of 2048 tokens"),
            (Spec { output_tokens: 1, ..paper(8, 1, P2p::On) }, "outputs of 1 token"),
        ] {
            let said = nearest_error(&spec);
            assert_eq!(said, format!("not validated for {why} with gpt-fast on h100_sxm"));
            assert_eq!(Trust::of(&spec).badge(), "not validated");
        }
        let set = [("hbm_gb_s".to_owned(), "1000".to_owned())].into();
        let changed = nearest_error(&Spec { set, ..paper(8, 1, P2p::On) });
        assert_eq!(changed, "not validated with other values of hardware or stack");
    }

    #[test]
    fn served_cells_are_validated_with_the_engines_own_models_and_all_reduces() {
        let of = |model: &str, stack: &str, change: fn(&mut Spec)| {
            let mut spec = Spec {
                model: model.into(),
                stack: stack.into(),
                tp: 4,
                concurrency: 16,
                output_tokens: 1024,
                collective: table::Collective::OneShot,
                ..Spec::default()
            };
            change(&mut spec);
            nearest_error(&spec)
        };
        assert!(of("qwen3-32b", "vllm-0.12", |_| ()).contains("vLLM 0.12 on h100_sxm (serving_dense)"));
        for (change, why) in [
            (
                (|spec| spec.architecture = Architecture::Ladder(LayerSet::All)) as fn(&mut Spec),
                "ladder",
            ),
            (|spec| spec.collective = table::Collective::Nccl, "nccl all-reduces"),
            (|spec| spec.concurrency = 0, "static batches"),
        ] {
            let said = of("qwen3-32b", "vllm-0.12", change);
            assert!(said.starts_with(&format!("not validated for {why} with vLLM 0.12")), "{said}");
        }
        // the engine's rows are of one model
        assert!(of("llama-3-8b", "vllm-0.12", |_| ()).starts_with("not validated for llama-3-8b"));
        for (stack, hardware) in [("native", "h100_sxm"), ("vllm-0.12", "l40s")] {
            let spec = Spec { stack: stack.into(), hardware: hardware.into(), ..Spec::default() };
            assert_eq!(nearest_error(&spec), "not validated for this GPU and engine");
        }
        let experts = of("gpt-oss-120b", "vllm-0.12", |_| ());
        assert!(experts.starts_with("not validated for gpt-oss-120b"), "{experts}");
    }

    #[test]
    fn results_of_several_cells_say_how_many_are_validated() {
        let desync: Architecture = "desync:4".parse().unwrap();
        let cells = [
            paper(8, 1, P2p::On),
            paper(8, 4, P2p::On),
            paper(8, 1, P2p::Off),
            Spec { architecture: desync, ..paper(8, 1, P2p::On) },
            Spec { stack: "native".into(), ..paper(8, 1, P2p::On) },
        ];
        assert_eq!(badge(&cells[..1]).unwrap(), "fitted to these runs (2 % left)");
        assert_eq!(
            badge(&cells).unwrap(),
            "fitted to these runs (2 % left) in 2 of 5 cells, within 12 %, held out in 1, not validated in 2"
        );
        let lines = nearest_errors(&cells);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].starts_with("2 of 5 cells: fitted to these runs"), "{lines:?}");
        assert_eq!(lines[3], "1 of 5 cells: not validated for stack native on H100-SXM");
        let measured = Spec { backend: Backend::Cpu, ..Spec::default() };
        assert_eq!((badge([&measured]), nearest_errors([&measured])), (None, Vec::new()));
    }

    #[test]
    fn ties_are_as_wide_as_the_error_of_the_cells_and_wider_if_nothing_covers_them() {
        let [fitted, held_out] = [1, 4].map(|batch| paper(8, batch, P2p::On));
        let native = Spec { stack: "native".into(), ..fitted.clone() };
        assert_eq!(TieBand::of([&fitted]).words(), "simulator error 2 %");
        assert_eq!(TieBand::of([&fitted, &held_out]).words(), "simulator error 3 %");
        let unknown = TieBand::of([&fitted, &native]);
        assert_eq!(unknown.words(), "simulator error unknown, ties within 5 %");
        assert!(unknown.holds(1.049) && !unknown.holds(1.051) && unknown.holds(1.0 / 1.049));
        assert_eq!(TieBand::within([unknown, TieBand::of([&fitted])]), "within 2 to 5 %");
    }
}
