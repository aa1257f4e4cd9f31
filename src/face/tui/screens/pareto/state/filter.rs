//! The filter: words that a point's description must contain, and conditions such as `tp:8`,
//! `batch>=16`, `arch:ladder`.

use std::cmp::Ordering;

use crate::study::analysis::ParetoPoint;

/// Comparisons, longer ones first. `:` is `=`.
const COMPARISONS: [&str; 7] = [">=", "<=", "!=", "=", ":", ">", "<"];

/// Short names of keys, and the full ones.
const SHORT: [(&str, &str); 3] = [("arch", "architecture"), ("b", "batch"), ("prov", "provenance")];

/// Conditions that points must meet to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// Empty: the value is looked for in the whole description.
    key: String,
    comparison: &'static str,
    value: String,
}

impl Filter {
    /// Reads what was typed: words, and keys with values.
    pub fn parse(text: &str) -> Self {
        let condition = |word: &str| {
            let at = word.find(['<', '>', '=', '!', ':']).filter(|at| *at > 0);
            let split = at.and_then(|at| {
                let comparison = COMPARISONS.into_iter().find(|c| word[at..].starts_with(c))?;
                Some((&word[..at], comparison, &word[at + comparison.len()..]))
            });
            let (key, comparison, value) = split.unwrap_or(("", "", word));
            let full = SHORT.iter().find(|(short, _)| *short == key).map_or(key, |(_, full)| full);
            let comparison = if comparison == ":" { "=" } else { comparison };
            Condition { key: full.into(), comparison, value: value.into() }
        };
        let conditions = text.to_lowercase().split_whitespace().map(condition).collect();
        Self { conditions }
    }

    /// Whether a point meets all conditions. One without a value yet says nothing.
    pub fn accepts(&self, point: &ParetoPoint) -> bool {
        self.conditions.iter().filter(|c| !c.value.is_empty()).all(|condition| {
            if condition.key.is_empty() {
                return describe(point).to_lowercase().contains(&condition.value);
            }
            let Some(value) = value(point, &condition.key) else { return false };
            let value = value.to_lowercase();
            let numbers = value.parse::<f64>().ok().zip(condition.value.parse::<f64>().ok());
            let order = numbers.map_or_else(|| value.cmp(&condition.value), |(a, b)| a.total_cmp(&b));
            match condition.comparison {
                "!=" => order != Ordering::Equal,
                ">" => order == Ordering::Greater,
                "<" => order == Ordering::Less,
                ">=" => order != Ordering::Less,
                "<=" => order != Ordering::Greater,
                _ => order == Ordering::Equal,
            }
        })
    }

    /// The conditions as the command line takes them.
    pub fn words(&self) -> impl Iterator<Item = String> + '_ {
        let given = self.conditions.iter().filter(|c| !c.value.is_empty());
        given.map(|c| format!("{}{}{}", c.key, c.comparison, c.value))
    }
}

fn value(point: &ParetoPoint, key: &str) -> Option<String> {
    let spec = &point.spec;
    Some(match key {
        "architecture" => spec.architecture.to_string(),
        "tp" => spec.tp.to_string(),
        "batch" => spec.batch.to_string(),
        "p2p" => spec.p2p.as_str().into(),
        "link" => spec.link.to_string(),
        "run" => point.run.clone(),
        "provenance" => point.provenance.to_string(),
        "completion_ms" => point.completion_ms.to_string(),
        "tokens_per_s" => point.tokens_per_s.to_string(),
        "tokens_per_s_per_gpu" => point.tokens_per_s_per_gpu.to_string(),
        _ => return None,
    })
}

fn describe(point: &ParetoPoint) -> String {
    format!("{} {} {} {}", point.spec.label(), point.spec.link, point.run, point.setting)
}
