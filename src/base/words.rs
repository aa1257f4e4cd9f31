//! Enumerations whose values each have a word.

use std::str::FromStr;

use super::error::Error;

/// An enumeration whose values each have a word, as the macro `words!` makes them.
pub trait Words: Copy + PartialEq + FromStr<Err = Error> + 'static {
    /// The word of each value, in the order in which they are shown.
    const WORDS: &'static [&'static str];

    /// What each value means, in a sentence, in the same order.
    const ABOUT: &'static [&'static str];

    /// The word in files, on the command line and in tables.
    fn word(self) -> &'static str;
}

/// Makes an enumeration whose values each have a word, which stands for it in files, on the command line
/// and in tables. The literal behind its name is what an unknown word is said to be none of.
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $name:ident, $what:literal {
            $(#[doc = $about:literal] $(#[$more:meta])* $value:ident = $word:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize,
            serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $name {
            $(#[doc = $about] $(#[$more])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// All values, in the order in which they are shown.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// The word in files, on the command line and in tables.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }

        impl $crate::words::Words for $name {
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
