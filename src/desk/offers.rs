//! Completions for an option, an axis or a name, with their meanings, for the workbench and for shells.

use base::offer::Offer;
use base::text::si;
use lab::sweep::edit::axis_names;
use machine::hardware::{Profile, Stack, Target};
use model::Model;
use table::Spec;
use table::options::variables::{NcclVariable, nccl};
use table::options::{OptionEntry, option, value};

/// Values of an option: all of them, or those with names.
pub fn values(option: &OptionEntry) -> Vec<Offer> {
    match option.name {
        "model" => models(),
        "hardware" => {
            let profile = |profile: &Profile| Offer::new(&profile.name, gpus(profile));
            Profile::built_in().iter().map(profile).collect()
        }
        "stack" => {
            let stack = |stack: &Stack| Offer::new(&stack.name, stack.note.clone().unwrap_or_default());
            Stack::built_in().iter().map(stack).collect()
        }
        _ => option.meanings().map(|(value, meaning)| Offer::new(value, meaning)).collect(),
    }
}

pub fn models() -> Vec<Offer> {
    let model = |model: &Model| {
        let shape = &model.shape;
        let about = format!("{} layers, hidden {}, {} heads", shape.layers, shape.hidden, shape.heads);
        Offer::new(&model.name, about)
    };
    Model::built_in().iter().map(model).collect()
}

fn gpus(profile: &Profile) -> String {
    let memory = si(profile.memory_bytes as f64, "B");
    format!("{memory} at {} GB/s, {} GPUs per node", profile.hbm_gb_s, profile.gpus_per_node)
}

/// Variable of NCCL as an axis: `env.NCCL_ALGO`.
fn nccl_axis(name: &str) -> Option<&'static NcclVariable> {
    name.strip_prefix("env.").and_then(nccl)
}

/// Values of an axis: an option, `env.NCCL_ALGO`, `set.link.alpha_us`.
pub fn axis_values(name: &str) -> Vec<Offer> {
    match (option(name), nccl_axis(name)) {
        (Some(option), _) => values(option),
        (None, Some(nccl)) => nccl.values.iter().map(|value| Offer::new(*value, "")).collect(),
        (None, None) => Vec::new(),
    }
}

/// Keys of the option `env` (NCCL variables) or `set` (values of the default profile and stack), with their meanings.
pub fn keys(option: &str) -> Vec<Offer> {
    let prefix = format!("{option}.");
    let names = axis_names(Some(&Spec::default())).into_iter();
    names.filter_map(|(name, about)| Some(Offer::new(name.strip_prefix(&prefix)?, about))).collect()
}

/// Describes an axis: meaning, unit and current value, in at most three sentences.
pub fn about(name: &str, spec: Option<&Spec>) -> String {
    let current = spec.and_then(|spec| value(spec, name)).map(|current| current.into_owned());
    let (about, default) = if let Some(option) = option(name) {
        let default = option.about.default;
        let gap = if default.is_empty() { "" } else { "; default " };
        (format!("{}{gap}{default}", option.help()), None)
    } else if let Some(variable) = nccl_axis(name) {
        (format!("{}, a variable of NCCL", variable.about), Some("unset".to_owned()))
    } else if let Some(key) = name.strip_prefix("set.") {
        let target = spec.and_then(|spec| Target::from_spec(spec).ok());
        let known = target.map(|target| target.described()).unwrap_or_default();
        match known.into_iter().find(|described| described.key == key) {
            Some(described) => (described.about, Some(described.value)),
            None => ("a value of the hardware profile or the stack".to_owned(), None),
        }
    } else if name == "question" {
        ("what the experiment answers, in one sentence".to_owned(), None)
    } else {
        ("a variable of the run's process".to_owned(), Some("unset".to_owned()))
    };
    let current = current.or(default).filter(|current| !current.is_empty());
    let current = current.map(|current| format!(". Now {current}")).unwrap_or_default();
    format!("{about}{current}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::options::OPTIONS;

    #[test]
    fn every_offered_value_has_a_meaning() {
        for option in OPTIONS.iter().filter(|option| option.kind == table::options::OptionKind::Text) {
            let offers = values(option);
            assert!(!offers.is_empty(), "{option:?} offers nothing");
            for offer in offers {
                assert!(!offer.about.is_empty(), "{option:?}: {offer:?}");
            }
        }
    }

    #[test]
    fn an_axis_is_described_with_unit_and_current_value() {
        let spec = Spec { tp: 8, ..Spec::default() };
        assert_eq!(about("tp", Some(&spec)), "Tensor-parallel size (ranks); default 1. Now 8");
        let alpha = about("set.link.alpha_us", Some(&spec));
        assert!(
            alpha.starts_with("Latency of a small message (us)") && alpha.contains(". Now "),
            "{alpha}"
        );
        assert_eq!(about("env.NCCL_ALGO", Some(&spec)), "algorithm, a variable of NCCL. Now unset");
        let values: Vec<String> =
            axis_values("env.NCCL_ALGO").into_iter().map(|offer| offer.text).collect();
        assert_eq!(values, ["Ring", "Tree", "NVLS", "NVLSTree"]);
    }
}
