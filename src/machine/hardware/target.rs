//! Simulation target of a cell: a hardware profile and a software stack, with values overridden by
//! `--set KEY=VALUE` and described by the JSON schema.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::{Profile, Stack};
use base::error::{Error, Result, nearest};
use table::Spec;

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub profile: Profile,
    pub stack: Stack,
}

impl Target {
    /// Target of a cell: hardware and stack with the `--set` overrides.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown profile or stack (with the nearest name), an invalid file
    /// (with line and column), or an unknown key (with the nearest valid one).
    pub fn from_spec(spec: &Spec) -> Result<Self> {
        let target = Self { profile: Profile::load(&spec.hardware)?, stack: Stack::load(&spec.stack)? };
        target.with(&spec.set)
    }

    /// Target with overridden values. Keys are dotted paths in the profile (`hbm_gb_s`,
    /// `link.p2p_on.tp.8.gb_s`) or in the stack, with or without `stack.` (`stack.launch_us`,
    /// `contention.memory`). A link's values can be set for all TPs (`link.p2p_on.alpha_us`) or for all
    /// intra-node links (`link.alpha_us`, `link.gb_s`). Shorter keys are applied first, so that longer
    /// ones refine them.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown key (with the nearest valid one) or an invalid value.
    pub fn with(&self, set: &BTreeMap<String, String>) -> Result<Self> {
        if set.is_empty() {
            return Ok(self.clone());
        }
        let mut profile = Values::new("profile", &self.profile.name, &self.profile)?;
        let mut stack = Values::new("stack", &self.stack.name, &self.stack)?;
        let mut ordered: Vec<(&String, &String)> = set.iter().collect();
        // shorter keys first, so that longer ones refine them
        ordered.sort_by_key(|(key, _)| key.split('.').count());
        for (key, value) in ordered {
            let of_stack = key.strip_prefix("stack.");
            let done = of_stack.is_none() && profile.set(key, key, value)?
                || stack.set(of_stack.unwrap_or(key), key, value)?;
            if !done {
                return Err(unknown(key, &profile, &stack));
            }
        }
        let (mut profile, stack): (Profile, Stack) = (profile.parsed()?, stack.parsed()?);
        profile.link.keep_scaled(&self.profile.link);
        let checked = profile.check().and_then(|()| stack.check());
        checked.map_err(|(key, problem)| Error::input(format!("--set: {key} {problem}")))?;
        Ok(Self { profile, stack })
    }

    /// Checks overrides without a machine: all profiles and all stacks have the same keys.
    ///
    /// # Errors
    ///
    /// Returns those of [`Target::with`].
    pub fn check_overrides(set: &BTreeMap<String, String>) -> Result<()> {
        let any = Self { profile: Profile::load("h100_sxm")?, stack: Stack::load("native")? };
        any.with(set).map(drop)
    }
}

/// Values of a profile or stack as a TOML table.
struct Values {
    table: Table,
    /// Dotted paths of all values except lists.
    pub keys: Vec<String>,
}

impl Values {
    pub fn new<T: Serialize>(what: &str, name: &str, value: &T) -> Result<Self> {
        let failed = |problem: String| Error::failed(format!("{what} {name}: {problem}"));
        // via text, because the table form does not allow numeric keys
        let text = toml::to_string(value).map_err(|error| failed(error.to_string()))?;
        let table: Table = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let mut keys = Vec::new();
        leaves(&table, "", &mut keys);
        Ok(Self { table, keys })
    }

    /// Paths matched by `key`, each with its value as text.
    pub fn meant(&self, key: &str) -> Vec<(String, String)> {
        let paths = self.keys.iter().filter(|path| means(key, path));
        let value = |path: &String| {
            let mut parts = path.split('.');
            let first = self.table.get(parts.next()?)?;
            let value = parts.try_fold(first, |value, part| value.get(part))?;
            Some((path.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        };
        paths.filter_map(value).collect()
    }

    /// Replaces all values matched by `key`; returns false if there are none. `given` is the key as
    /// typed.
    fn set(&mut self, key: &str, given: &str, value: &str) -> Result<bool> {
        let targets: Vec<String> = self.keys.iter().filter(|path| means(key, path)).cloned().collect();
        for path in &targets {
            if let Some(place) = place(&mut self.table, path) {
                *place = converted(given, value, place)?;
            }
        }
        Ok(!targets.is_empty())
    }

    fn parsed<T: DeserializeOwned>(&self) -> Result<T> {
        let text = toml::to_string(&self.table).map_err(|error| Error::failed(error.to_string()))?;
        toml::from_str(&text).map_err(|error| Error::input(format!("--set: {}", error.message())))
    }
}

/// Collects dotted paths of all values except lists.
fn leaves(table: &Table, prefix: &str, into: &mut Vec<String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => leaves(inner, &format!("{prefix}{key}."), into),
            Value::Array(_) => {}
            _ => into.push(format!("{prefix}{key}")),
        }
    }
}

/// True if `key` equals `path` or is a shorthand for intra-node links that covers it.
fn means(key: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('.').collect();
    let shorthand = match (key.split('.').collect::<Vec<_>>().as_slice(), parts.as_slice()) {
        (["link", wanted], ["link", _, "tp", _, name]) => wanted == name,
        (["link", link, wanted], ["link", table, "tp", _, name]) => link == table && wanted == name,
        _ => false,
    };
    key == path || shorthand
}

fn place<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    match path.split_once('.') {
        None => table.get_mut(path),
        Some((first, rest)) => place(table.get_mut(first)?.as_table_mut()?, rest),
    }
}

/// Parses `text` as the type of `old`.
fn converted(key: &str, text: &str, old: &Value) -> Result<Value> {
    let wrong = |wanted: &str| Error::input(format!("--set {key}={text}: '{text}' is not {wanted}"));
    let text = text.trim();
    match old {
        Value::Float(_) => text.parse().map(Value::Float).map_err(|_| wrong("a number")),
        Value::Boolean(_) => text.parse().map(Value::Boolean).map_err(|_| wrong("true or false")),
        Value::Integer(_) => text.parse().map(Value::Integer).map_err(|_| wrong("a whole number")),
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn unknown(key: &str, profile: &Values, stack: &Values) -> Error {
    let shorthands = ["link.alpha_us", "link.gb_s"].map(str::to_owned);
    let of_stack = stack.keys.iter().flat_map(|key| [key.clone(), format!("stack.{key}")]);
    let valid: Vec<String> = profile.keys.iter().cloned().chain(shorthands).chain(of_stack).collect();
    let guess = nearest(key, valid.iter().map(String::as_str))
        .map(|name| format!("did you mean '{name}'? "))
        .unwrap_or_default();
    Error::input_help(
        format!("--set {key}: neither the hardware profile nor the stack has such a value"),
        format!(
            "{guess}any key of either works, for example hbm_gb_s, link.alpha_us, link.p2p_off.gb_s, stack.launch_us"
        ),
    )
}

/// Value of a profile or stack that a cell can override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareParameter {
    /// Dotted path, as in `--set`.
    pub key: String,
    pub about: String,
    /// Current value; if the key covers several, the smallest and the largest.
    pub value: String,
}

impl Target {
    /// All values that can be overridden: shorthands for all links, then the profile's values, then the
    /// stack's with prefix `stack.`. Reads two schemas, which takes a few milliseconds.
    pub fn described(&self) -> Vec<HardwareParameter> {
        let mut all = Vec::new();
        if let Ok(values) = Values::new("profile", &self.profile.name, &self.profile) {
            let schema = serde_json::to_value(schemars::schema_for!(Profile)).unwrap_or_default();
            let shorthands = ["link.alpha_us", "link.gb_s"].map(str::to_owned);
            let texts = ["name", "note", "tables"];
            let own = values.keys.iter().filter(|key| !texts.contains(&last(key))).cloned();
            all.extend(
                shorthands.into_iter().chain(own).map(|key| described("", key, &values, &schema)),
            );
        }
        if let Ok(values) = Values::new("stack", &self.stack.name, &self.stack) {
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

fn described(prefix: &str, key: String, values: &Values, schema: &Json) -> HardwareParameter {
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
    HardwareParameter { key: format!("{prefix}{key}"), about: about + of_all, value }
}

/// Schema description of the value at a dotted path, without the final period.
fn sentence(schema: &Json, path: &str) -> String {
    let member = path.split('.').try_fold(schema, |at, part| {
        let inner = resolved(schema, at);
        let member = inner.get("properties").and_then(|members| members.get(part));
        member.or_else(|| any_member(inner))
    });
    let of = |schema: &Json| Some(first_sentence(schema.get("description")?.as_str()?));
    member.and_then(|member| of(member).or_else(|| of(resolved(schema, member)))).unwrap_or_default()
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
    use table::P2p;

    fn set(pairs: &[(&str, &str)]) -> Result<Profile> {
        let set = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let target = Target { profile: Profile::load("h100_sxm")?, stack: Stack::load("native")? };
        target.with(&set).map(|target| target.profile)
    }

    #[test]
    fn any_path_can_be_set_and_nothing_else_changes() {
        let before = Profile::load("h100_sxm").unwrap();
        let after =
            set(&[("link.p2p_on.tp.8.gb_s", "1000"), ("memory_gb", "96"), ("gpus_per_node", "4")])
                .unwrap();
        assert_eq!(after.link.p2p_on.tp[&8].gb_s, 1000.0);
        assert_eq!(after.memory_bytes, 96_000_000_000);
        assert_eq!(after.gpus_per_node, 4);
        let mut expected = before;
        expected.memory_bytes = after.memory_bytes;
        expected.gpus_per_node = 4;
        if let Some(point) = expected.link.p2p_on.tp.get_mut(&8) {
            point.gb_s = 1000.0;
        }
        assert_eq!(after, expected);
    }

    #[test]
    fn shorthands_set_all_links_and_a_longer_key_refines_them() {
        let profile = set(&[
            ("link.alpha_us", "5"),
            ("link.p2p_off.alpha_us", "50"),
            ("link.p2p_off.tp.8.alpha_us", "80"),
        ])
        .unwrap();
        for tp in [2, 4, 8] {
            assert_eq!(profile.link(P2p::On, tp).0, 5.0);
        }
        assert_eq!(profile.link(P2p::Off, 4).0, 50.0);
        assert_eq!(profile.link(P2p::Off, 8).0, 80.0);
    }

    #[test]
    fn numbers_out_of_bounds_are_written_short() {
        for (value, said) in [("1e-300", "is 1e-300;"), ("1e300", "is 1e300;"), ("0", "is 0;")] {
            let message = set(&[("link.gb_s", value)]).unwrap_err().to_string();
            assert!(message.contains(said) && message.contains("from 1e-6 to 1e9"), "{message}");
            assert!(message.len() < 120, "{message}");
        }
    }

    #[test]
    fn wrong_keys_and_values_are_explained() {
        let Err(Error::Input { message, help }) = set(&[("lunch_us", "1")]) else { panic!("accepted") };
        assert!(message.contains("lunch_us"));
        assert!(help.unwrap().contains("did you mean 'launch_us'?"));
        for (key, value) in [
            ("stack.launch_us", "fast"),
            ("gpus_per_node", "2.5"),
            ("link.gb_s", "0"),
            ("hbm_efficiency", "nan"),
            ("memory_gb", "-1"),
        ] {
            let error = set(&[(key, value)]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("--set"), "{error}");
        }
    }

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
