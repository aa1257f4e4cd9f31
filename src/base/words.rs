//! Enums whose variants have a keyword each.

use std::str::FromStr;

use super::error::Error;

/// Enum made by the macro `words!`, with one keyword per variant.
pub trait KeywordEnum: Copy + PartialEq + FromStr<Err = Error> + 'static {
    /// Keywords in display order.
    const WORDS: &'static [&'static str];

    /// Description of each variant, one sentence, in the same order.
    const ABOUT: &'static [&'static str];

    /// Keyword in files, on the command line and in tables.
    fn word(self) -> &'static str;
}

/// Defines an enum with a keyword per variant for files, command line and tables. The literal after its
/// name appears in errors about unknown keywords; variants' doc comments become `KeywordEnum::ABOUT`.
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $name:ident, $what:literal {
            $(#[doc = $about:literal] $(#[$more:meta])* $value:ident = $word:literal,)*
        }
    ) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize,
            serde::Deserialize, schemars::JsonSchema,
        )]
        $(#[$attribute])*
        pub enum $name {
            $(#[doc = $about] $(#[$more])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// All variants, in display order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Keyword in files, on the command line and in tables.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }

        impl $crate::words::KeywordEnum for $name {
            const WORDS: &'static [&'static str] = &[$($word),*];
            const ABOUT: &'static [&'static str] = &[$($about),*];

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|value| $crate::text::same_name(value.as_str(), text));
                found.ok_or_else(|| {
                    $crate::error::Error::unknown($what, text, [$($word),*])
                })
            }
        }
    };
}

pub use words;
