//! Machine and software of a run. A store holds thousands of runs and few readers look at their
//! environments, so a record's environment stays JSON text until it is used. Copies share it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

type Names = BTreeMap<String, Value>;

/// Machine, software, clocks and variables needed to reproduce a run; names mapped to JSON values.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "Names")]
pub struct Environment(Arc<Lazy>);

#[derive(Clone, Default)]
struct Lazy {
    /// JSON of the object, until it is parsed.
    text: Option<Box<RawValue>>,
    names: OnceLock<Names>,
}

impl Lazy {
    fn names(&self) -> &Names {
        let parse = |text: &RawValue| serde_json::from_str(text.get()).unwrap_or_default();
        self.names.get_or_init(|| self.text.as_deref().map(parse).unwrap_or_default())
    }
}

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// Deserializes JSON without parsing what is in the object. Returns an error for anything but an object.
    pub fn unparsed<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        if !text.get().starts_with('{') {
            return Err(D::Error::custom("the environment is not an object"));
        }
        Ok(Self(Arc::new(Lazy { text: Some(text), names: OnceLock::new() })))
    }
}

impl From<Names> for Environment {
    fn from(names: Names) -> Self {
        Self(Arc::new(Lazy { text: None, names: names.into() }))
    }
}

impl Deref for Environment {
    type Target = Names;

    fn deref(&self) -> &Names {
        self.0.names()
    }
}

impl DerefMut for Environment {
    fn deref_mut(&mut self) -> &mut Names {
        let lazy = Arc::make_mut(&mut self.0);
        lazy.names();
        lazy.text = None;
        lazy.names.get_mut().unwrap_or_else(|| unreachable!("parsed above"))
    }
}

impl PartialEq for Environment {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(to)
    }
}

impl<const N: usize> From<[(String, Value); N]> for Environment {
    fn from(names: [(String, Value); N]) -> Self {
        Names::from(names).into()
    }
}

impl IntoIterator for Environment {
    type Item = (String, Value);
    type IntoIter = std::collections::btree_map::IntoIter<String, Value>;

    fn into_iter(mut self) -> Self::IntoIter {
        std::mem::take(&mut *self).into_iter()
    }
}

impl<'a> IntoIterator for &'a Environment {
    type Item = (&'a String, &'a Value);
    type IntoIter = std::collections::btree_map::Iter<'a, String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for Environment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_until_one_changes_and_json_is_a_plain_object() {
        let first = Environment::from([("host".to_owned(), Value::from("a"))]);
        let mut second = first.clone();
        second.insert("load".into(), Value::from(1));
        assert_eq!((first.len(), second.len()), (1, 2));
        let text = serde_json::to_string(&second).unwrap();
        assert_eq!(text, r#"{"host":"a","load":1}"#);
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), second);
        let unparsed = |text| Environment::unparsed(&mut serde_json::Deserializer::from_str(text));
        let mut third = unparsed(&text).unwrap();
        assert_eq!(third, second);
        third.remove("load");
        assert_eq!((third, unparsed("[1]").is_err()), (first, true));
    }
}
