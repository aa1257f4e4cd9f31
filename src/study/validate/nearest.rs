//! Error of the validated data nearest to a simulated cell.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use base::text::same_name;
use machine::hardware::{Profile, Stack};
use model::Model;
use plan::Architecture;
use table::Spec;

/// Mean error of a stack on a GPU; a test compares it with the data sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownError {
    pub(super) set: String,
    pub(super) stack: String,
    pub(super) hardware: String,
    pub(super) measure: super::Measure,
    /// Mean absolute error (percent).
    pub(super) pct: f64,
    /// True if the data has no other architecture than standard.
    #[serde(default)]
    pub(super) standard_only: bool,
    /// True if the data is of mixtures of experts.
    #[serde(default)]
    pub(super) experts: bool,
    /// True if the rewired steps take other all-reduces than the traced ones.
    #[serde(default)]
    pub(super) other_reduces: bool,
}

/// Set and stack of rewired traces, whose kernels are measured; `hardware` is `cpu` for the cpu backend.
pub(super) const REWIRE: &str = "rewire";

const NOT_VALIDATED: &str = "not validated for this GPU and engine";

#[derive(Deserialize)]
struct File {
    errors: Vec<KnownError>,
}

pub(super) static KNOWN: LazyLock<Vec<KnownError>> = LazyLock::new(|| {
    let file: Option<File> = toml::from_str(include_str!("sets/errors.toml")).ok();
    file.map(|file| file.errors).unwrap_or_default()
});

/// Error of a simulated cell's engine and GPU in words: `±3 % TPOT: vLLM 0.12 on h100_sxm, validated (serving_dense)`,
/// or that there is no data. Errors of dense models are not shown for mixtures of experts.
pub fn nearest_error(spec: &Spec) -> String {
    let is = |known: &&KnownError| {
        known.stack == Stack::meant(&spec.stack) && known.hardware == Profile::meant(&spec.hardware)
    };
    let has_experts = has_experts(&spec.model);
    let alike = KNOWN.iter().filter(is).find(|known| known.experts == has_experts);
    let Some(known) = alike.or_else(|| KNOWN.iter().find(is).filter(|_| !has_experts)) else {
        return NOT_VALIDATED.to_owned();
    };
    if !spec.set.is_empty() {
        return "not validated: values of hardware or stack are overridden".to_owned();
    }
    let stack = Stack::load(&known.stack).ok();
    let title = stack.as_ref().map_or_else(|| known.stack.clone(), Stack::title);
    let mut of = "validated".to_owned();
    if known.standard_only && spec.architecture != Architecture::Standard {
        of += " for standard";
    }
    let own = stack.and_then(|stack| Some(stack.serving?.collective_on(&known.hardware)));
    if let Some(own) = own.filter(|own| spec.tp > 1 && *own != spec.collective) {
        of += &format!(" with {own} all-reduces");
    }
    known.in_words(&title, &of)
}

impl KnownError {
    fn in_words(&self, title: &str, of: &str) -> String {
        let (measure, set) = (self.measure.title(), &self.set);
        format!("±{:.0} % {measure}: {title} on {}, {of} ({set})", self.pct.ceil(), self.hardware)
    }
}

/// The same for steps of a trace that are rewired: the error of traces of standard on this hardware against runs of the
/// other wirings. Their links are emulated, so it holds without contention between the lanes.
pub(crate) fn rewired_error(hardware: Option<&str>, changes: &Changes) -> String {
    if let Changes { uncovered: Some(what), .. } = changes {
        return format!("not validated for {what}");
    }
    let is = |known: &&KnownError| {
        known.stack == REWIRE
            && hardware.is_some_and(|hardware| known.hardware == Profile::meant(hardware))
            && known.other_reduces == changes.other_reduces
    };
    let title = if changes.other_reduces { "rewired trace, other link," } else { "rewired trace" };
    let of = "validated on an emulated link, without contention";
    KNOWN.iter().find(is).map_or_else(|| NOT_VALIDATED.to_owned(), |known| known.in_words(title, of))
}

/// Changes of a rewired trace that its error depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// True if the all-reduces are not those of the trace.
    pub(crate) other_reduces: bool,
    /// Change that no validated trace has: `another TP`.
    pub(crate) uncovered: Option<&'static str>,
}

/// True for a built-in mixture of experts.
pub(super) fn has_experts(model: &str) -> bool {
    let known = Model::built_in();
    known.iter().any(|known| same_name(&known.name, model) && known.shape.experts.is_some())
}

/// Distinct errors of simulated cells: `vllm-0.12 on h100_sxm: ±3 % TPOT: ...`, a line each.
pub fn nearest_errors<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Vec<String> {
    let simulated = specs.into_iter().filter(|spec| spec.backend.is_simulated());
    let lines: BTreeSet<String> = simulated
        .map(|spec| {
            let error = nearest_error(spec);
            match error.starts_with('±') {
                true => error,
                false => format!("{} on {}: {error}", spec.stack, spec.hardware),
            }
        })
        .collect();
    lines.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(stack: &str, hardware: &str, architecture: Architecture) -> String {
        nearest_error(&Spec {
            stack: stack.into(),
            hardware: hardware.into(),
            architecture,
            ..Spec::default()
        })
    }

    #[test]
    fn a_number_says_the_error_of_its_engine_and_gpu_or_that_there_is_none() {
        let standard = || Architecture::Standard;
        let fitted = said("gpt-fast", "H100-SXM", Architecture::Ladder(plan::LayerSet::All));
        assert!(
            fitted.starts_with('±') && fitted.ends_with("gpt-fast on h100_sxm, validated (paper_70b)"),
            "{fitted}"
        );
        for (stack, hardware) in [("native", "h100_sxm"), ("vllm-0.12", "l40s")] {
            assert_eq!(said(stack, hardware, standard()), "not validated for this GPU and engine");
        }
        let of = |model: &str, stack: &str| {
            nearest_error(&Spec {
                model: model.into(),
                stack: stack.into(),
                hardware: "h100_sxm".into(),
                ..Spec::default()
            })
        };
        assert!(of("gpt-oss-120b", "vllm-0.15").ends_with("validated (serving_moe)"));
        assert_eq!(of("gpt-oss-120b", "vllm-0.12"), "not validated for this GPU and engine");
        assert!(of("qwen3-235b-a22b", "trtllm-1.0").ends_with("validated (serving_moe)"));
        assert!(of("qwen3-32b", "trtllm-1.0").ends_with("validated (serving_dense)"));
        let nccl = Spec { stack: "vllm-0.12".into(), tp: 8, ..Spec::default() };
        let said = nearest_error(&nccl);
        assert!(said.ends_with("validated with one-shot all-reduces (serving_dense)"), "{said}");
        let own = Spec { collective: table::Collective::OneShot, ..nccl };
        assert!(nearest_error(&own).ends_with("validated (serving_dense)"), "{}", nearest_error(&own));
        let set = [("hbm_gb_s".to_owned(), "1000".to_owned())].into();
        let changed = Spec { stack: "gpt-fast".into(), set, ..Spec::default() };
        assert!(
            nearest_error(&changed).starts_with("not validated: values"),
            "{}",
            nearest_error(&changed)
        );
    }
}
