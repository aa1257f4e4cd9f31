//! Options of a cell. Each entry of the table in `list.rs` is a field of [`Spec`], a key of records and
//! experiment files, a command-line argument, an axis of grids and comparisons, a column of runs, and a
//! filter condition. Apart from the table, only the backend that uses an option needs to know it.

mod asked;
mod collective;
mod link;
mod list;
mod make;
pub mod variables;

pub use asked::{ENV_PAIRS, PAIRS, Pairs, SET_PAIRS, pair};
pub use collective::{AboutCollective, Collective};
pub use link::{BANDWIDTHS_GB_S, LATENCIES_US, Link};
pub use list::{Backend, CellOptions, Nvls, OPTIONS, P2p, Recorder, Spec};
pub use make::{option, value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, json};

use std::borrow::Cow;
use std::fmt;

use crate::render::Shown;
use base::error::{Error, Result};
use base::words::KeywordEnum;
use plan::{Architecture, CommDType, DType, ExpertLoad, KvDType};

/// Type of an option's value in files and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// String: a keyword or any text.
    Text,
    Count,
    Large,
    Flag,
}

/// Description of an option, apart from its name and documentation.
#[derive(Clone, Copy, Debug)]
pub struct OptionDescription {
    /// Accepted values as typed: all of them if `closed`, else examples.
    pub values: &'static [&'static str],
    /// Short description of each of `values`, in order; empty if the type provides them.
    pub meanings: &'static [&'static str],
    /// Default, in words.
    pub default: &'static str,
    /// Placeholder for the value in command-line help.
    pub value_name: &'static str,
    pub least: u64,
    /// Column title, if shorter than the name.
    pub title: Option<&'static str>,
    /// Other column names; the first is the preferred one.
    pub aliases: &'static [&'static str],
    /// Prefix of the value in cell labels: `tp` gives `tp8`. For a flag, the whole label.
    pub label: &'static str,
    /// True if free-text search includes the values.
    pub is_searched: bool,
    /// Backends that use the option, if not all; for others it has no effect and causes a warning.
    pub used_by: &'static [Backend],
    /// True if newly written experiment files place it in `[workload]` instead of at the top.
    pub in_workload: bool,
    /// Baseline value. Cells are compared only if cells with this value exist, because a ratio to
    /// anything else would mean something different.
    pub baseline: Option<&'static str>,
}

/// Default description; every backend uses the option.
const PLAIN: OptionDescription = OptionDescription {
    values: &[],
    meanings: &[],
    default: "",
    value_name: "",
    least: 0,
    title: None,
    aliases: &[],
    label: "",
    is_searched: true,
    used_by: &[],
    in_workload: false,
    baseline: None,
};

#[derive(Clone, Copy)]
pub struct OptionEntry {
    /// Name in files: `prompt_tokens`.
    pub name: &'static str,
    /// Name on the command line without dashes in front: `prompt-tokens`.
    pub flag: &'static str,
    pub kind: OptionKind,
    /// True if only the keywords of the type are accepted.
    pub closed: bool,
    pub about: OptionDescription,
    /// True if records must contain it; otherwise a missing value means the default.
    pub is_required: bool,
    documentation: &'static str,
    words: &'static [&'static str],
    meanings: &'static [&'static str],
    access: Access,
}

/// Accessors of an option in [`Spec`] and [`CellOptions`].
#[derive(Clone, Copy)]
struct Access {
    pub text: fn(&Spec) -> Cow<'_, str>,
    pub number: fn(&Spec) -> Option<u64>,
    pub read: fn(&mut Spec, &OptionEntry, &str) -> Result<()>,
    pub put: fn(&mut Spec, u64) -> bool,
    pub is_default: fn(&Spec) -> bool,
    pub same: fn(&Spec, &Spec) -> bool,
    pub ask: fn(&mut CellOptions, &OptionEntry, &str) -> Result<()>,
    pub asked: fn(&CellOptions) -> Option<Cow<'_, str>>,
    pub apply: fn(&CellOptions, &mut Spec),
}

impl OptionEntry {
    pub fn help(&self) -> &'static str {
        self.documentation.trim().trim_end_matches('.')
    }

    /// Short description with the accepted values.
    pub fn help_with_values(&self) -> String {
        let values = self.values();
        let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
        format!("{}{values}", self.help())
    }

    /// Accepted values as typed: all of them if [`Self::closed`], else examples.
    pub fn values(&self) -> &'static [&'static str] {
        if self.about.values.is_empty() { self.words } else { self.about.values }
    }

    /// Pairs of [`Self::values`] and their descriptions.
    pub fn meanings(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = if self.about.meanings.is_empty() { self.meanings } else { self.about.meanings };
        let meaning = |at: usize| own.get(at).map_or("", |text| text.trim().trim_end_matches('.'));
        self.values().iter().enumerate().map(move |(at, value)| (*value, meaning(at)))
    }

    pub fn title(&self) -> &'static str {
        self.about.title.unwrap_or(self.name)
    }

    pub fn is_used_by(&self, backend: Backend) -> bool {
        self.about.used_by.is_empty() || self.about.used_by.contains(&backend)
    }

    /// Value in a cell, as a user writes it.
    pub fn text<'a>(&self, spec: &'a Spec) -> Cow<'a, str> {
        (self.access.text)(spec)
    }

    /// Numeric value in a cell.
    pub fn number(&self, spec: &Spec) -> Option<u64> {
        (self.access.number)(spec)
    }

    /// Value in a cell, as a table cell.
    pub fn shown(&self, spec: &Spec) -> Shown {
        self.number(spec).map_or_else(|| Shown::text(self.text(spec)), Shown::Whole)
    }

    /// Value in a cell as a label: `tp8`, `p2p-on`; empty for an unset flag.
    pub fn label(&self, spec: &Spec) -> String {
        let text = self.text(spec);
        match (self.kind, text.as_ref()) {
            (OptionKind::Flag, "true") => self.about.label.to_owned(),
            (OptionKind::Flag, _) => String::new(),
            (_, text) => format!("{}{text}", self.about.label),
        }
    }

    /// True if the cell has the default of [`Spec`].
    pub fn is_default(&self, spec: &Spec) -> bool {
        (self.access.is_default)(spec)
    }

    /// True if both cells have the same value; does not allocate.
    pub fn same(&self, a: &Spec, b: &Spec) -> bool {
        (self.access.same)(a, b)
    }

    /// Parses a value and stores it in a cell. Returns an input error with the valid values if it cannot
    /// be parsed.
    pub fn read(&self, spec: &mut Spec, text: &str) -> Result<()> {
        (self.access.read)(spec, self, text)
    }

    /// Stores a number in a cell; returns false if the option does not accept it.
    pub fn put(&self, spec: &mut Spec, number: u64) -> bool {
        number >= self.about.least && (self.access.put)(spec, number)
    }

    /// Parses a value and requests it in `options`. Returns an input error with the valid values if it
    /// cannot be parsed.
    pub fn ask(&self, options: &mut CellOptions, text: &str) -> Result<()> {
        (self.access.ask)(options, self, text)
    }

    /// Returns an input error if a requested number is below the minimum. Needed because requests do not
    /// always come from parsed text.
    pub fn check(&self, options: &CellOptions) -> Result<()> {
        let number =
            self.asked(options).filter(|_| matches!(self.kind, OptionKind::Count | OptionKind::Large));
        number.map_or(Ok(()), |text| self.ask(&mut CellOptions::default(), &text))
    }

    /// Requested value, as a user writes it.
    pub fn asked<'a>(&self, options: &'a CellOptions) -> Option<Cow<'a, str>> {
        (self.access.asked)(options)
    }

    /// Stores the requested value, if any, in a cell.
    pub fn apply(&self, options: &CellOptions, spec: &mut Spec) {
        (self.access.apply)(options, spec);
    }
}

impl fmt::Debug for OptionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

pub trait OptionValue: Clone + PartialEq {
    const KIND: OptionKind = OptionKind::Text;
    /// Keywords; empty if the set of values is open.
    const WORDS: &'static [&'static str] = &[];
    /// Short description of each keyword.
    const ABOUT: &'static [&'static str] = &[];

    /// Parses a value. Returns an input error with the valid values if that fails.
    fn read(option: &OptionEntry, text: &str) -> Result<Self>;

    /// Value as a user writes it.
    fn text(&self) -> Cow<'_, str>;

    fn number(&self) -> Option<u64> {
        None
    }

    fn of_number(_: u64) -> Option<Self> {
        None
    }
}

impl OptionValue for String {
    fn read(_: &OptionEntry, text: &str) -> Result<Self> {
        Ok(text.to_owned())
    }

    fn text(&self) -> Cow<'_, str> {
        self.as_str().into()
    }
}

impl OptionValue for bool {
    const KIND: OptionKind = OptionKind::Flag;
    const WORDS: &'static [&'static str] = &["false", "true"];

    fn read(option: &OptionEntry, text: &str) -> Result<Self> {
        let wrong = || Error::input(format!("{} is {text}; it must be true or false", option.name));
        text.parse().map_err(|_| wrong())
    }

    fn text(&self) -> Cow<'_, str> {
        if *self { "true" } else { "false" }.into()
    }
}

macro_rules! numbers {
    ($($type:ident is $kind:ident),*) => {$(
        impl OptionValue for $type {
            const KIND: OptionKind = OptionKind::$kind;

            fn read(option: &OptionEntry, text: &str) -> Result<Self> {
                let least = option.about.least;
                let number = text.parse().ok().filter(|number: &$type| u64::from(*number) >= least);
                number.ok_or_else(|| {
                    let most = $type::MAX;
                    let name = option.name;
                    Error::input(format!(
                        "{name} is {text}; it must be a whole number from {least} to {most}"
                    ))
                })
            }

            fn text(&self) -> Cow<'_, str> {
                self.to_string().into()
            }

            fn number(&self) -> Option<u64> {
                Some((*self).into())
            }

            fn of_number(number: u64) -> Option<Self> {
                number.try_into().ok()
            }
        }
    )*};
}
numbers!(u32 is Count, u64 is Large);

macro_rules! worded {
    ($($type:ty),*) => {$(
        impl OptionValue for $type {
            const WORDS: &'static [&'static str] = <Self as KeywordEnum>::WORDS;
            const ABOUT: &'static [&'static str] = <Self as KeywordEnum>::ABOUT;

            fn read(_: &OptionEntry, text: &str) -> Result<Self> {
                text.parse()
            }

            fn text(&self) -> Cow<'_, str> {
                self.word().into()
            }
        }
    )*};
}
worded!(Backend, Collective, CommDType, DType, KvDType, Nvls, P2p, Recorder);

macro_rules! parsed {
    ($($type:ty),*) => {$(
        impl OptionValue for $type {
            fn read(_: &OptionEntry, text: &str) -> Result<Self> {
                text.parse()
            }

            fn text(&self) -> Cow<'_, str> {
                self.to_string().into()
            }
        }
    )*};
}
parsed!(Architecture, ExpertLoad, Link);

impl OptionEntry {
    /// JSON schema of the option's value.
    pub fn schema(&self) -> serde_json::Value {
        let mut schema = match self.kind {
            OptionKind::Text if self.closed => json!({ "type": "string", "enum": self.values() }),
            OptionKind::Text if self.values().is_empty() => json!({ "type": "string" }),
            OptionKind::Text => json!({ "type": "string", "examples": self.values() }),
            OptionKind::Count => {
                json!({ "type": "integer", "minimum": self.about.least, "maximum": u32::MAX })
            }
            OptionKind::Large => json!({ "type": "integer", "minimum": self.about.least }),
            OptionKind::Flag => json!({ "type": "boolean" }),
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
        let mut properties: Map<String, serde_json::Value> =
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
