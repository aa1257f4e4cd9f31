//! Macros that generate the fields of a cell and its keys in files from the option table.

use std::borrow::Cow;

use super::{OPTIONS, OptionEntry, Spec, pair};

pub fn option(name: &str) -> Option<&'static OptionEntry> {
    OPTIONS.iter().find(|option| option.name == name)
}

/// Value of a cell under a key of experiment files, as a user writes it: an option, or a pair like
/// `env.NCCL_ALGO` or `set.link.alpha_us`.
pub fn value<'a>(spec: &'a Spec, name: &str) -> Option<Cow<'a, str>> {
    if let Some(option) = option(name) {
        return Some(option.text(spec));
    }
    let (pairs, key) = pair(name)?;
    (pairs.get)(spec).get(key).map(|value| value.as_str().into())
}

/// Command-line spelling of a name: underscores become dashes.
pub(super) const fn dashed<const N: usize>(name: &str) -> [u8; N] {
    let (name, mut dashed, mut at) = (name.as_bytes(), [0; N], 0);
    while at < N {
        dashed[at] = if name[at] == b'_' { b'-' } else { name[at] };
        at += 1;
    }
    dashed
}

/// Generates [`super::Spec`], [`super::CellOptions`] and [`super::OPTIONS`] from the table's entries.
///
/// Options of the first record format are always written, followed by `env` and `set`. Later options
/// come last and are written only if they differ from the default, so that adding an option does not
/// change existing cell keys ([`super::Spec::key`], a hash of the written text).
macro_rules! options {
    (
        first {$(
            #[doc = $doc:literal]
            $(#[serde $serde:tt])?
            $name:ident: $type:ty = $default:expr, $about:expr;
        )*}
        later {$(
            #[doc = $later_doc:literal]
            $later:ident: $later_type:ty = $later_default:expr, $later_about:expr;
        )*}
    ) => {
        /// Fully resolved cell: everything that decides what a run does.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Spec {
            $(#[doc = $doc] pub $name: $type,)*
            /// Environment variables of the run's process, mainly NCCL's.
            pub env: BTreeMap<String, String>,
            /// Overrides of the simulated hardware and stack.
            pub set: BTreeMap<String, String>,
            $(#[doc = $later_doc] pub $later: $later_type,)*
            /// Hashes of the files that options name (hardware, stack, model), by option name: a changed
            /// file makes a new cell.
            pub files: BTreeMap<String, String>,
        }

        impl Default for Spec {
            fn default() -> Self {
                Self {
                    $($name: $default,)*
                    env: BTreeMap::new(),
                    set: BTreeMap::new(),
                    $($later: $later_default,)*
                    files: BTreeMap::new(),
                }
            }
        }

        impl serde::Serialize for Spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut spec = serializer.serialize_struct("Spec", OPTIONS.len() + 3)?;
                $(spec.serialize_field(stringify!($name), &self.$name)?;)*
                spec.serialize_field("env", &self.env)?;
                spec.serialize_field("set", &self.set)?;
                $(
                    if self.$later == $later_default {
                        spec.skip_field(stringify!($later))?;
                    } else {
                        spec.serialize_field(stringify!($later), &self.$later)?;
                    }
                )*
                if self.files.is_empty() {
                    spec.skip_field("files")?;
                } else {
                    spec.serialize_field("files", &self.files)?;
                }
                spec.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for Spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                struct Written {
                    $($(#[serde $serde])? $name: $type,)*
                    #[serde(default)]
                    env: BTreeMap<String, String>,
                    #[serde(default)]
                    set: BTreeMap<String, String>,
                    $(#[serde(default)] $later: Option<$later_type>,)*
                    #[serde(default)]
                    files: BTreeMap<String, String>,
                }
                let written = Written::deserialize(deserializer)?;
                Ok(Self {
                    $($name: written.$name,)*
                    env: written.env,
                    set: written.set,
                    $($later: written.$later.unwrap_or($later_default),)*
                    files: written.files,
                })
            }
        }

        /// Requested options of a cell. Options not given get defaults that fit the backend when the
        /// cell is resolved.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct CellOptions {
            $(#[doc = $doc] pub $name: Option<$type>,)*
            $(#[doc = $later_doc] pub $later: Option<$later_type>,)*
            /// `KEY=VALUE`: environment variables of the run's process.
            pub env: Vec<String>,
            /// `KEY=VALUE`: overrides of the simulated hardware and stack.
            pub set: Vec<String>,
        }

        /// All single-valued options, in the order of files and tables.
        pub static OPTIONS: &[OptionEntry] = &[
            $(entry!($name: $type = $default, $doc, $about, stringify!($($serde)?).is_empty()),)*
            $(entry!($later: $later_type = $later_default, $later_doc, $later_about, false),)*
        ];
    };
}

macro_rules! entry {
    ($name:ident: $type:ty = $default:expr, $doc:literal, $about:expr, $is_required:expr) => {
        OptionEntry {
            name: stringify!($name),
            flag: {
                const FLAG: &[u8] = &dashed::<{ stringify!($name).len() }>(stringify!($name));
                match std::str::from_utf8(FLAG) {
                    Ok(flag) => flag,
                    Err(_) => stringify!($name),
                }
            },
            kind: <$type>::KIND,
            closed: !<$type>::WORDS.is_empty(),
            about: $about,
            is_required: $is_required,
            documentation: $doc,
            words: <$type>::WORDS,
            meanings: <$type>::ABOUT,
            access: Access {
                text: |spec| spec.$name.text(),
                number: |spec| spec.$name.number(),
                read: |spec, option, text| {
                    spec.$name = OptionValue::read(option, text)?;
                    Ok(())
                },
                put: |spec, number| match <$type>::of_number(number) {
                    Some(value) => {
                        spec.$name = value;
                        true
                    }
                    None => false,
                },
                is_default: |spec| {
                    let default: $type = $default;
                    spec.$name == default
                },
                same: |a, b| a.$name == b.$name,
                ask: |options, option, text| {
                    options.$name = Some(OptionValue::read(option, text)?);
                    Ok(())
                },
                asked: |options| options.$name.as_ref().map(OptionValue::text),
                apply: |options, spec| {
                    if let Some(value) = &options.$name {
                        spec.$name = value.clone();
                    }
                },
            },
        }
    };
}

pub(super) use {entry, options};
