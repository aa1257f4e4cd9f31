//! An entry of the table of options: what is said of an option, and how its value is read and written.

use std::borrow::Cow;
use std::fmt;

use super::{Backend, CellOptions, Collective, Link, Nvls, P2p, Recorder, Spec};
use crate::render::Shown;
use base::error::{Error, Result};
use base::words::Words;
use plan::{Architecture, CommDType, DType};

/// What the value of an option is in files and in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string: a word that its type knows, or any text.
    Text,
    /// A whole number of up to 32 bits.
    Count,
    /// A whole number of up to 64 bits.
    Large,
    /// A switch: `true` or `false`.
    Flag,
}

/// What is said of an option, beside its name and the sentence that documents it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Values it takes, as they are typed: all of them where `closed`, else examples.
    pub values: &'static [&'static str],
    /// What each of them means, in a few words, in the same order; empty where the type says it.
    pub meanings: &'static [&'static str],
    /// What an option that is not given stands for, in words.
    pub default: &'static str,
    /// What stands for the value in the help of the command line.
    pub value_name: &'static str,
    /// The least number that it takes.
    pub least: u64,
    /// The title of its column, where that is shorter than its name.
    pub title: Option<&'static str>,
    /// Other names that its column goes by; the first is the one to type.
    pub aliases: &'static [&'static str],
    /// What stands before its value in a label of a cell: `tp` makes `tp8`. A flag that is set is
    /// labelled by this alone.
    pub label: &'static str,
    /// Whether words of a filter are looked for in its values.
    pub is_searched: bool,
    /// The backends that heed it, where not all do; what is given to others is told to be without effect.
    pub heeded_by: &'static [Backend],
    /// An experiment file that is written anew has it in `[workload]`, not at the top.
    pub in_workload: bool,
    /// The value that others are compared with. Without cells of that value there is no comparison: a
    /// ratio to anything else would mean something else.
    pub baseline: Option<&'static str>,
}

/// An option that nothing needs to be said of: every backend heeds it.
pub(super) const PLAIN: About = About {
    values: &[],
    meanings: &[],
    default: "",
    value_name: "",
    least: 0,
    title: None,
    aliases: &[],
    label: "",
    is_searched: true,
    heeded_by: &[],
    in_workload: false,
    baseline: None,
};

/// An option of a cell.
#[derive(Clone, Copy)]
pub struct OptionEntry {
    /// The name in files: `prompt_tokens`.
    pub name: &'static str,
    /// The name on the command line, without the dashes before it: `prompt-tokens`.
    pub flag: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Whether the words that its type knows are all that it takes.
    pub closed: bool,
    /// What is said of it.
    pub about: About,
    /// A record without it cannot be read; of others one that lacks it has the default.
    pub is_required: bool,
    pub(super) documentation: &'static str,
    pub(super) words: &'static [&'static str],
    pub(super) meanings: &'static [&'static str],
    pub(super) access: Access,
}

/// How the value of an option is reached in a [`Spec`] and in [`CellOptions`].
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub text: fn(&Spec) -> Cow<'_, str>,
    pub number: fn(&Spec) -> Option<u64>,
    pub read: fn(&mut Spec, &OptionEntry, &str) -> Result<()>,
    pub put: fn(&mut Spec, u64) -> bool,
    pub is_default: fn(&Spec) -> bool,
    pub same: fn(&Spec, &Spec) -> bool,
    pub ask: fn(&mut CellOptions, &OptionEntry, &str) -> Result<()>,
    pub asked: fn(&CellOptions) -> Option<Cow<'_, str>>,
    pub asked_number: fn(&CellOptions) -> Option<u64>,
    pub apply: fn(&CellOptions, &mut Spec),
}

impl OptionEntry {
    /// What it means, in a few words.
    pub fn help(&self) -> &'static str {
        self.documentation.trim().trim_end_matches('.')
    }

    /// What it means, and which values it takes.
    pub fn help_with_values(&self) -> String {
        let values = self.values();
        let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
        format!("{}{values}", self.help())
    }

    /// Values it takes, as they are typed: all of them where it is [`Self::closed`], else examples.
    pub fn values(&self) -> &'static [&'static str] {
        if self.about.values.is_empty() { self.words } else { self.about.values }
    }

    /// The values of [`Self::values`], each with what it means.
    pub fn meanings(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = if self.about.meanings.is_empty() { self.meanings } else { self.about.meanings };
        let meaning = |at: usize| own.get(at).map_or("", |text| text.trim().trim_end_matches('.'));
        self.values().iter().enumerate().map(move |(at, value)| (*value, meaning(at)))
    }

    /// The title of its column.
    pub fn title(&self) -> &'static str {
        self.about.title.unwrap_or(self.name)
    }

    /// Whether a backend heeds it.
    pub fn is_heeded_by(&self, backend: Backend) -> bool {
        self.about.heeded_by.is_empty() || self.about.heeded_by.contains(&backend)
    }

    /// A cell's value, as a user writes it.
    pub fn text<'a>(&self, spec: &'a Spec) -> Cow<'a, str> {
        (self.access.text)(spec)
    }

    /// A cell's value where it is a number.
    pub fn number(&self, spec: &Spec) -> Option<u64> {
        (self.access.number)(spec)
    }

    /// A cell's value as a table shows it.
    pub fn shown(&self, spec: &Spec) -> Shown {
        self.number(spec).map_or_else(|| Shown::text(self.text(spec)), Shown::Whole)
    }

    /// A cell's value as a label has it: `tp8`, `p2p-on`; empty for a flag that is not set.
    pub fn label(&self, spec: &Spec) -> String {
        let text = self.text(spec);
        match (self.kind, text.as_ref()) {
            (Kind::Flag, "true") => self.about.label.to_owned(),
            (Kind::Flag, _) => String::new(),
            (_, text) => format!("{}{text}", self.about.label),
        }
    }

    /// Whether a cell has it at the default of [`Spec`].
    pub fn is_default(&self, spec: &Spec) -> bool {
        (self.access.is_default)(spec)
    }

    /// Whether two cells have the same value of it. Makes no text of values.
    pub fn same(&self, a: &Spec, b: &Spec) -> bool {
        (self.access.same)(a, b)
    }

    /// Gives a cell the option's value that a text stands for. An input error where the text stands for
    /// none, with what would be right.
    pub fn read(&self, spec: &mut Spec, text: &str) -> Result<()> {
        (self.access.read)(spec, self, text)
    }

    /// Gives a cell a number; false where the option takes no such number.
    pub fn put(&self, spec: &mut Spec, number: u64) -> bool {
        number >= self.about.least && (self.access.put)(spec, number)
    }

    /// Asks, among the options of a cell, for the value that a text stands for. An input error where the
    /// text stands for none, with what would be right.
    pub fn ask(&self, options: &mut CellOptions, text: &str) -> Result<()> {
        (self.access.ask)(options, self, text)
    }

    /// Refuses a number that is below the option's least: not everything that is asked for was read from
    /// text. The input error names the least.
    pub fn check(&self, options: &CellOptions) -> Result<()> {
        match (self.access.asked_number)(options) {
            Some(number) if number < self.about.least => Err(Error::input(format!(
                "{} is {number}; it must be at least {}",
                self.name, self.about.least
            ))),
            _ => Ok(()),
        }
    }

    /// What is asked for, as a user writes it.
    pub fn asked<'a>(&self, options: &'a CellOptions) -> Option<Cow<'a, str>> {
        (self.access.asked)(options)
    }

    /// Gives a cell what is asked for, if anything is.
    pub fn apply(&self, options: &CellOptions, spec: &mut Spec) {
        (self.access.apply)(options, spec);
    }
}

impl fmt::Debug for OptionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A type that values of options have.
pub trait Value: Clone + PartialEq {
    /// What a value is in files.
    const KIND: Kind = Kind::Text;
    /// The words that stand for its values; empty where there are endlessly many.
    const WORDS: &'static [&'static str] = &[];
    /// What each of these means.
    const ABOUT: &'static [&'static str] = &[];

    /// The value that a text stands for. An input error where it stands for none, with
    /// what would be right.
    fn read(option: &OptionEntry, text: &str) -> Result<Self>;

    /// The value as a user writes it.
    fn text(&self) -> Cow<'_, str>;

    /// The value where it is a number.
    fn number(&self) -> Option<u64> {
        None
    }

    /// The value that is this number.
    fn of_number(_: u64) -> Option<Self> {
        None
    }
}

impl Value for String {
    fn read(_: &OptionEntry, text: &str) -> Result<Self> {
        Ok(text.to_owned())
    }

    fn text(&self) -> Cow<'_, str> {
        self.as_str().into()
    }
}

impl Value for bool {
    const KIND: Kind = Kind::Flag;
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
        impl Value for $type {
            const KIND: Kind = Kind::$kind;

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
        impl Value for $type {
            const WORDS: &'static [&'static str] = <Self as Words>::WORDS;
            const ABOUT: &'static [&'static str] = <Self as Words>::ABOUT;

            fn read(_: &OptionEntry, text: &str) -> Result<Self> {
                text.parse()
            }

            fn text(&self) -> Cow<'_, str> {
                self.word().into()
            }
        }
    )*};
}
worded!(Backend, Collective, CommDType, DType, Nvls, P2p, Recorder);

macro_rules! parsed {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn read(_: &OptionEntry, text: &str) -> Result<Self> {
                text.parse()
            }

            fn text(&self) -> Cow<'_, str> {
                self.to_string().into()
            }
        }
    )*};
}
parsed!(Architecture, Link);
