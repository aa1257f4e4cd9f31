//! Descriptions of the values of a profile and a stack: the sentence from the JSON schema and the
//! current value.

use serde_json::Value as Json;

use super::overrides::Values;
use super::{Profile, Stack, Target};

/// Value of a profile or stack that a cell can override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Dotted path, as in `--set`.
    pub key: String,
    pub about: String,
    /// Current value; if the key covers several, the smallest and the largest.
    pub value: String,
}

impl Target {
    /// All values that can be overridden: shorthands for all links, then the profile's values, then the
    /// stack's with prefix `stack.`. Reads two schemas, which takes a few milliseconds.
    pub fn described(&self) -> Vec<Described> {
        let mut all = Vec::new();
        if let Ok(values) = Values::of("profile", &self.profile.name, &self.profile) {
            let schema = serde_json::to_value(schemars::schema_for!(Profile)).unwrap_or_default();
            let shorthands = ["link.alpha_us", "link.gb_s"].map(str::to_owned);
            let texts = ["name", "note", "tables"];
            let own = values.keys.iter().filter(|key| !texts.contains(&last(key))).cloned();
            all.extend(
                shorthands.into_iter().chain(own).map(|key| described("", key, &values, &schema)),
            );
        }
        if let Ok(values) = Values::of("stack", &self.stack.name, &self.stack) {
            let schema = serde_json::to_value(schemars::schema_for!(Stack)).unwrap_or_default();
            let own = values.keys.iter().filter(|key| !["name", "note"].contains(&key.as_str()));
            all.extend(own.map(|key| described("stack.", key.clone(), &values, &schema)));
        }
        all
    }
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn described(prefix: &str, key: String, values: &Values, schema: &Json) -> Described {
    let meant = values.meant(&key);
    let path = meant.first().map_or(key.as_str(), |(path, _)| path.as_str());
    let about = sentence(schema, path);
    let of_all = if meant.len() > 1 { ", of all links inside a node" } else { "" };
    let mut numbers: Vec<f64> = meant.iter().filter_map(|(_, value)| value.parse().ok()).collect();
    numbers.sort_by(f64::total_cmp);
    let value = match (meant.as_slice(), numbers.first().zip(numbers.last())) {
        ([(_, value)], None) => value.clone(),
        (_, Some((least, most))) if least < most => format!("{least} to {most}"),
        (_, Some((least, _))) => least.to_string(),
        _ => String::new(),
    };
    Described { key: format!("{prefix}{key}"), about: about + of_all, value }
}

/// Schema description of the value at a dotted path, without the final period.
fn sentence(schema: &Json, path: &str) -> String {
    let mut at = schema;
    for (part, is_last) in path.split('.').zip((0..path.split('.').count()).rev().map(|rest| rest == 0))
    {
        let inner = resolved(schema, at);
        let member = inner.get("properties").and_then(|members| members.get(part));
        let Some(member) = member.or_else(|| any_member(inner)) else { return String::new() };
        if is_last {
            let said = member.get("description").or_else(|| resolved(schema, member).get("description"));
            return said.and_then(Json::as_str).map(first_sentence).unwrap_or_default();
        }
        at = member;
    }
    String::new()
}

/// Schema of the members of a map.
fn any_member(schema: &Json) -> Option<&Json> {
    let patterns = schema.get("patternProperties").and_then(Json::as_object);
    let pattern = patterns.and_then(|patterns| patterns.values().next());
    pattern.or_else(|| schema.get("additionalProperties").filter(|members| members.is_object()))
}

/// Resolves a reference; for an optional schema, its non-null variant.
fn resolved<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let named = |schema: &'a Json| {
        let name = schema.get("$ref")?.as_str()?.rsplit('/').next()?;
        root.get("$defs")?.get(name)
    };
    let choices = schema.get("anyOf").and_then(Json::as_array).into_iter().flatten();
    named(schema).or_else(|| choices.filter_map(named).next()).unwrap_or(schema)
}

fn first_sentence(text: &str) -> String {
    let text = text.replace('\n', " ");
    let end = text.find(". ").unwrap_or(text.len());
    text[..end].trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_every_profile_and_stack_is_described() {
        for profile in Profile::built_in() {
            for stack in Stack::built_in() {
                for described in (Target { profile: profile.clone(), stack }).described() {
                    assert!(!described.about.is_empty(), "{described:?}");
                    assert!(!described.value.is_empty(), "{described:?}");
                }
            }
        }
    }

    #[test]
    fn a_shorthand_tells_what_it_stands_for() {
        let target = Target {
            profile: Profile::load("h100_sxm").unwrap(),
            stack: Stack::load("native").unwrap(),
        };
        let all = target.described();
        let of = |key: &str| all.iter().find(|described| described.key == key).unwrap();
        let alpha = of("link.alpha_us");
        assert_eq!(alpha.about, "Latency of a small message (us), of all links inside a node");
        assert!(alpha.value.contains(" to "), "{alpha:?}");
        assert_eq!(of("hbm_gb_s").about, "Peak memory bandwidth (1e9 bytes a second)");
        assert_eq!(of("hbm_gb_s").value, target.profile.hbm_gb_s.to_string());
        assert!(of("stack.launch_us").about.contains("(us)"));
    }
}
