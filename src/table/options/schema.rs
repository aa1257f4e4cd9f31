//! JSON schemas of options.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{Kind, OPTIONS, OptionEntry, PAIRS, Spec};

impl OptionEntry {
    pub fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text if self.closed => json!({ "type": "string", "enum": self.values() }),
            Kind::Text if self.values().is_empty() => json!({ "type": "string" }),
            Kind::Text => json!({ "type": "string", "examples": self.values() }),
            Kind::Count => {
                json!({ "type": "integer", "minimum": self.about.least, "maximum": u32::MAX })
            }
            Kind::Large => json!({ "type": "integer", "minimum": self.about.least }),
            Kind::Flag => json!({ "type": "boolean" }),
        };
        schema["description"] = self.help().into();
        schema
    }
}

impl JsonSchema for Spec {
    fn schema_name() -> Cow<'static, str> {
        "Spec".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut properties: Map<String, Value> =
            OPTIONS.iter().map(|option| (option.name.to_owned(), option.schema())).collect();
        for pairs in &PAIRS {
            let texts = json!({ "type": "string" });
            let map =
                json!({ "type": "object", "additionalProperties": texts, "description": pairs.help });
            properties.insert(pairs.name.to_owned(), map);
        }
        properties.insert(
            "files".to_owned(),
            json!({
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Hashes of the files given as options, by option name; absent if there are none",
            }),
        );
        let required: Vec<&str> =
            OPTIONS.iter().filter(|option| option.is_required).map(|option| option.name).collect();
        json_schema!({
            "description": "Fully resolved cell: every option that affects a run",
            "type": "object",
            "properties": properties,
            "required": required,
        })
    }
}
