//! Requested options of a cell: command-line arguments and repeatable `KEY=VALUE` pairs.

use std::collections::BTreeMap;

use super::{CellOptions, OPTIONS, OptionEntry, OptionKind, Spec, option};
use base::error::{Error, Result};

/// Repeatable option of the form `KEY=VALUE`.
pub struct Pairs {
    /// Name in files and on the command line: `env`.
    pub name: &'static str,
    pub help: &'static str,
    pub example: &'static str,
    /// Pairs of a cell.
    pub get: fn(&Spec) -> &BTreeMap<String, String>,
    /// Requested pairs, one text each.
    pub asked: fn(&mut CellOptions) -> &mut Vec<String>,
}

pub const ENV_PAIRS: Pairs = Pairs {
    name: "env",
    help: "Environment variable for the run's process",
    example: "NCCL_ALGO=Ring",
    get: |spec| &spec.env,
    asked: |options| &mut options.env,
};

pub const SET_PAIRS: Pairs = Pairs {
    name: "set",
    help: "Override for a value of the simulated hardware or stack",
    example: "link.alpha_us=5",
    get: |spec| &spec.set,
    asked: |options| &mut options.set,
};

pub static PAIRS: [Pairs; 2] = [ENV_PAIRS, SET_PAIRS];

/// Pairs and key of a name in files, such as `env.NCCL_ALGO` or `set.link.alpha_us`.
pub fn pair(name: &str) -> Option<(&'static Pairs, &str)> {
    let (prefix, key) = name.split_once('.')?;
    Some((PAIRS.iter().find(|pairs| pairs.name == prefix)?, key))
}

impl Pairs {
    /// Parses `KEY=VALUE` texts into a map; the last value of a key wins. Returns an input error with an
    /// example for malformed text.
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

    /// True for a valid variable name: not empty and without `=` or NUL.
    pub fn is_key(key: &str) -> bool {
        !key.is_empty() && !key.contains(['=', '\0'])
    }
}

impl CellOptions {
    /// Requests an option by its name in files, such as `tp` or `env.NCCL_ALGO`. Returns an input error for an
    /// unknown option (with the nearest name) or an invalid value (with the valid ones).
    pub fn set_option(&mut self, name: &str, text: &str) -> Result<()> {
        if let Some((pairs, key)) = pair(name) {
            (pairs.asked)(self).push(format!("{key}={text}"));
            return Ok(());
        }
        let names = || OPTIONS.iter().map(|option| option.name);
        option(name).ok_or_else(|| Error::unknown("option", name, names()))?.ask(self, text)
    }

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
                OptionKind::Flag => argument.help(option.help()).action(clap::ArgAction::SetTrue),
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
                OptionKind::Flag => matches.get_flag(option.name).then_some("true"),
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

/// Command-line value parser of an option; shells complete its values.
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
