//! Machine and software of a run. A store holds thousands of runs of one machine, so copied records
//! share one environment, copied on write.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

type Names = BTreeMap<String, Value>;

/// Machine, software, clocks and variables needed to reproduce a run; names mapped to JSON values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment(Arc<Names>);

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Deref for Environment {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.0
    }
}

impl DerefMut for Environment {
    fn deref_mut(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.0)
    }
}

impl<const N: usize> From<[(String, Value); N]> for Environment {
    fn from(names: [(String, Value); N]) -> Self {
        Self(Arc::new(names.into()))
    }
}

impl IntoIterator for Environment {
    type Item = (String, Value);
    type IntoIter = std::collections::btree_map::IntoIter<String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'a> IntoIterator for &'a Environment {
    type Item = (&'a String, &'a Value);
    type IntoIter = std::collections::btree_map::Iter<'a, String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Serialize for Environment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Names::deserialize(from).map(|names| Self(Arc::new(names)))
    }
}

impl JsonSchema for Environment {
    fn inline_schema() -> bool {
        Names::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        Names::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Names::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_until_one_changes_and_json_is_a_plain_object() {
        let first = Environment::from([("host".to_owned(), Value::from("a"))]);
        let mut second = first.clone();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        second.insert("load".into(), Value::from(1));
        assert_eq!((first.len(), second.len()), (1, 2));
        let text = serde_json::to_string(&second).unwrap();
        assert_eq!(text, r#"{"host":"a","load":1}"#);
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), second);
    }
}
