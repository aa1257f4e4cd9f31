//! `--set KEY=VALUE`: overrides of profile and stack values by their dotted TOML path.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Profile, Stack, Target};
use base::error::{Error, Result, nearest};

pub(super) fn apply(target: &Target, set: &BTreeMap<String, String>) -> Result<Target> {
    let mut profile = Values::of("profile", &target.profile.name, &target.profile)?;
    let mut stack = Values::of("stack", &target.stack.name, &target.stack)?;
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
    profile.link.keep_scaled(&target.profile.link);
    let checked = profile.check().and_then(|()| stack.check());
    checked.map_err(|(key, problem)| Error::input(format!("--set: {key} {problem}")))?;
    Ok(Target { profile, stack })
}

/// Values of a profile or stack as a TOML table.
pub(super) struct Values {
    table: Table,
    /// Dotted paths of all values except lists.
    pub keys: Vec<String>,
}

impl Values {
    pub fn of<T: Serialize>(what: &str, name: &str, value: &T) -> Result<Self> {
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
}
