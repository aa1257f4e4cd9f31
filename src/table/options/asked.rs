//! What is asked of a cell: from the command line, and `KEY=VALUE` pairs, which are options with many values.

use std::collections::BTreeMap;

use super::{CellOptions, Kind, OPTIONS, OptionEntry, Spec, option};
use base::error::{Error, Result};

/// Options that are given as `KEY=VALUE`, as often as one likes.
pub struct Pairs {
    /// The name in files and on the command line: `env`.
    pub name: &'static str,
    /// What they mean, in a few words.
    pub help: &'static str,
    /// A pair as it may be typed.
    pub example: &'static str,
    /// The pairs of a cell.
    pub of: fn(&Spec) -> &BTreeMap<String, String>,
    /// What is asked for, a text a pair.
    pub asked: fn(&mut CellOptions) -> &mut Vec<String>,
}

/// Variables of the run's process, and values of the simulated hardware and stack.
pub static PAIRS: [Pairs; 2] = [
    Pairs {
        name: "env",
        help: "Environment variable for the run's process",
        example: "NCCL_ALGO=Ring",
        of: |spec| &spec.env,
        asked: |options| &mut options.env,
    },
    Pairs {
        name: "set",
        help: "Override for a value of the simulated hardware or stack",
        example: "link.alpha_us=5",
        of: |spec| &spec.set,
        asked: |options| &mut options.set,
    },
];

impl Pairs {
    /// Reads texts of the form `KEY=VALUE` into a map; of one key the last counts. An input error for a
    /// text of another form, with an example of a right one.
    pub fn read(&self, given: &[String]) -> Result<BTreeMap<String, String>> {
        let pair = |pair: &String| match pair.split_once('=') {
            Some((key, value)) if Self::is_key(key.trim()) => {
                Ok((key.trim().to_owned(), value.to_owned()))
            }
            _ => Err(Error::input_help(
                format!("{} '{pair}' is not KEY=VALUE", self.name),
                format!("for example {}", self.example),
            )),
        };
        given.iter().map(pair).collect()
    }

    /// Whether this can name a variable: neither empty nor with what no environment can hold.
    pub fn is_key(key: &str) -> bool {
        !key.is_empty() && !key.contains(['=', '\0'])
    }
}

impl CellOptions {
    /// Asks for one option by its name in files, such as `tp` or `batch`. An input error where
    /// there is no such option, with the nearest name, or where the text is none of its values, with
    /// what would be right.
    pub fn set_option(&mut self, name: &str, text: &str) -> Result<()> {
        let names = || OPTIONS.iter().map(|option| option.name);
        option(name).ok_or_else(|| Error::unknown("option", name, names()))?.ask(self, text)
    }

    /// Options that are asked for.
    pub fn given(&self) -> impl Iterator<Item = &'static OptionEntry> {
        OPTIONS.iter().filter(|option| option.asked(self).is_some())
    }
}

impl clap::Args for CellOptions {
    fn augment_args(command: clap::Command) -> clap::Command {
        let option = |option: &'static OptionEntry| {
            let default = match option.about.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            let argument = clap::Arg::new(option.name).long(option.flag);
            match option.kind {
                Kind::Flag => argument.help(option.help()).action(clap::ArgAction::SetTrue),
                _ => argument
                    .help(option.help_with_values() + &default)
                    .value_name(option.about.value_name)
                    .hide_possible_values(true)
                    .value_parser(Parser(option)),
            }
        };
        let pairs = |pairs: &'static Pairs| {
            clap::Arg::new(pairs.name)
                .long(pairs.name)
                .help(format!("{}, for example {} (repeatable)", pairs.help, pairs.example))
                .value_name("KEY=VALUE")
                .action(clap::ArgAction::Append)
        };
        command.args(OPTIONS.iter().map(option)).args(PAIRS.iter().map(pairs))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for CellOptions {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        for option in OPTIONS {
            let text = match option.kind {
                Kind::Flag => matches.get_flag(option.name).then_some("true"),
                _ => matches.get_one::<String>(option.name).map(String::as_str),
            };
            let asked = text.map_or(Ok(()), |text| option.ask(self, text));
            asked.map_err(|e| clap::Error::raw(clap::error::ErrorKind::ValueValidation, e))?;
        }
        for pairs in &PAIRS {
            let given = matches.get_many::<String>(pairs.name).into_iter().flatten();
            (pairs.asked)(self).extend(given.cloned());
        }
        Ok(())
    }
}

/// Reads the value of an option from the command line; shells offer the values that it takes.
#[derive(Clone)]
struct Parser(&'static OptionEntry);

impl clap::builder::TypedValueParser for Parser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let option = self.0;
        let checked = move |text: &str| -> Result<String> {
            option.ask(&mut CellOptions::default(), text)?;
            Ok(text.to_owned())
        };
        checked.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        let values = self.0.values();
        (!values.is_empty()).then(|| Box::new(values.iter().map(clap::builder::PossibleValue::new)) as _)
    }
}
