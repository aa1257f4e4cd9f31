//! Parses the values of an experiment file: checks the type, the option's own limits, and that each is set once.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::{Axis, Name, Placed, Reader, check_size};
use crate::sweep::position::Source;
use base::error::{Error, Result};
use machine::hardware::{self, Profile};
use model::Model;
use run::HOST;
use table::CellOptions;
use table::options::{self, Kind, Pairs, variables};

pub(in crate::sweep) const MAX_ROUNDS: i64 = 10_000;
/// Upper limit on tokens of a window, above the context of any model.
const MAX_CONTEXT: i64 = 1 << 24;

/// Key and value, each with its span.
type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// Entries of a table in file order.
pub(super) fn entries<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<Entry<'a, 'i>> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

impl Reader<'_> {
    pub(super) fn whole(&self, name: &str, value: &Spanned<DeValue<'_>>, least: i64) -> Result<usize> {
        let Some(number) = value.get_ref().as_integer() else {
            return Err(wrong_kind(&self.source, name, "a whole number", value));
        };
        let number = decimal(number);
        let fits = number.parse::<i64>().ok().filter(|n| (least..=MAX_CONTEXT).contains(n));
        fits.map(|n| n as usize).ok_or_else(|| {
            let message =
                format!("{name} is {number}; it must be a whole number from {least} to {MAX_CONTEXT}");
            self.source.error(value.span(), message, None)
        })
    }

    /// Parses `[env]` and `[set]`: scalars are settings, lists are axes, nested tables are dotted names.
    pub(super) fn variables(&mut self, what: &str, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            self.variable(what, key.get_ref().to_string(), key.span(), value)?;
        }
        Ok(())
    }

    fn variable(
        &mut self,
        what: &str,
        name: String,
        at: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<()> {
        match value.get_ref() {
            DeValue::Table(table) => {
                for (key, value) in entries(table) {
                    self.variable(what, format!("{name}.{}", key.get_ref()), key.span(), value)?;
                }
                Ok(())
            }
            DeValue::Array(_) => self.axis(variable_name(what, name), at, value),
            _ => self.setting(variable_name(what, name), at, value),
        }
    }

    pub(super) fn setting(
        &mut self,
        name: Name,
        at: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<()> {
        if value.get_ref().is_array() {
            let help = format!("write {name} in [grid] to vary it");
            return Err(self.source.error(value.span(), format!("{name} is a list here"), Some(help)));
        }
        let text = self.scalar(&name, value)?;
        self.add_setting(name, at, (text, value.span()))
    }

    pub(super) fn add_setting(&mut self, name: Name, at: Range<usize>, value: Placed) -> Result<()> {
        self.once(&name, &at)?;
        self.draft.settings.push(Axis { name, at, values: vec![value] });
        Ok(())
    }

    pub(super) fn axis(
        &mut self,
        name: Name,
        at: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<()> {
        self.once(&name, &at)?;
        let mut values: Vec<Placed> = Vec::new();
        let mut seen = HashSet::new();
        let list: Vec<_> = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => vec![value],
        };
        // one axis alone may be too long, so its length is checked before its values
        check_size(&self.source, std::iter::once((list.len(), &name)), &at)?;
        for element in list {
            let text = self.scalar(&name, element)?;
            if !seen.insert(text.clone()) {
                let message = format!("'{text}' appears twice in {name}");
                return Err(self.source.error(element.span(), message, Some("remove one".into())));
            }
            values.push((text, element.span()));
        }
        if values.is_empty() {
            let help = Some("write at least one value, or remove the axis".into());
            return Err(self.source.error(value.span(), format!("axis {name} has no values"), help));
        }
        self.draft.axes.push(Axis { name, at, values });
        Ok(())
    }

    /// Returns an error if a name is set twice.
    fn once(&self, name: &Name, at: &Range<usize>) -> Result<()> {
        let all = self.draft.settings.iter().chain(&self.draft.axes);
        let Some(there) = all.into_iter().find(|axis| axis.name == *name) else { return Ok(()) };
        // tables are visited in file order of their first keys; the error names the earlier place as first
        let (first, second) = if there.at.start < at.start { (&there.at, at) } else { (at, &there.at) };
        let line = self.source.text.get(..first.start).unwrap_or_default().matches('\n').count() + 1;
        let message = format!("{name} is set twice, first in line {line}");
        Err(self.source.error(second.clone(), message, Some("remove one of the two".into())))
    }

    pub(super) fn rounds(&mut self, value: &Spanned<DeValue<'_>>) -> Result<()> {
        let text = match value.get_ref().as_integer() {
            Some(number) => number.to_string(),
            None => return Err(wrong_kind(&self.source, "rounds", "a whole number", value)),
        };
        let rounds =
            text.parse::<i64>().ok().filter(|n| (1..=MAX_ROUNDS).contains(n)).ok_or_else(|| {
                let message =
                    format!("rounds is {text}; it must be a whole number from 1 to {MAX_ROUNDS}");
                self.source.error(value.span(), message, None)
            })?;
        if self.draft.rounds.replace(rounds as u32).is_some() {
            return Err(self.source.error(value.span(), "rounds is set twice", None));
        }
        Ok(())
    }

    pub(super) fn string<'v>(&self, name: &str, value: &'v Spanned<DeValue<'_>>) -> Result<&'v str> {
        value.get_ref().as_str().ok_or_else(|| wrong_kind(&self.source, name, "a string", value))
    }

    /// Converts a value to text, checking its type and that the option accepts it.
    pub(super) fn scalar(&self, name: &Name, value: &Spanned<DeValue<'_>>) -> Result<String> {
        let Name::Option(option) = name else {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => decimal(number),
                DeValue::Float(number) => number.to_string(),
                DeValue::Boolean(flag) => flag.to_string(),
                _ => {
                    return Err(wrong_kind(
                        &self.source,
                        &name.to_string(),
                        "a string or a number",
                        value,
                    ));
                }
            };
            let (Name::Env(key) | Name::Set(key)) = name else { return Ok(text) };
            if !Pairs::is_key(key) || text.contains('\0') {
                let message = format!("'{}' cannot name or be a variable", key.escape_debug());
                return Err(self.source.error(value.span(), message, None));
            }
            if let Name::Env(key) = name
                && let Some((message, help)) = variables::refusal(key, &text)
            {
                return Err(self.source.error(value.span(), message, Some(help)));
            }
            return Ok(text);
        };
        let kind = options::option(option).map_or(Kind::Text, |option| option.kind);
        let text = match (value.get_ref(), kind) {
            (DeValue::Integer(number), Kind::Count | Kind::Large) => decimal(number),
            (DeValue::String(text), Kind::Text) => text.to_string(),
            (DeValue::Boolean(flag), Kind::Flag) => flag.to_string(),
            _ => {
                let wanted = match kind {
                    Kind::Count | Kind::Large => "a whole number",
                    Kind::Text => "a string",
                    Kind::Flag => "true or false",
                };
                return Err(wrong_kind(&self.source, option, wanted, value));
            }
        };
        let text = match *option {
            // a built-in name takes precedence; anything else may be a path
            "model" if Model::built_in().iter().all(|m| m.name != text) => self.beside_if_there(text),
            "hardware" | "stack" if text.ends_with(".toml") => self.beside_if_there(text),
            _ => text,
        };
        self.checked(name, &text, value.span())?;
        Ok(text)
    }

    /// Returns an error with its position if no cell could use the value.
    pub(super) fn checked(&self, name: &Name, text: &str, at: Range<usize>) -> Result<()> {
        let Name::Option(option) = name else { return Ok(()) };
        let checked = CellOptions::default().set_option(option, text).and_then(|()| match *option {
            "model" => Model::resolve(text).map(|_| ()),
            "hardware" if text != HOST => Profile::load(text).map(|_| ()),
            "stack" => hardware::lowering(text).map(|_| ()),
            _ => Ok(()),
        });
        checked.map_err(|e| self.source.blame(at, e))
    }

    /// Resolves a path relative to the experiment file's directory.
    pub(super) fn beside(&self, path: &str) -> String {
        let dir = self.source.path.parent().unwrap_or(Path::new(""));
        dir.join(path).to_string_lossy().into_owned()
    }

    pub(super) fn beside_if_there(&self, text: String) -> String {
        let path = self.beside(&text);
        if !text.is_empty() && Path::new(&path).exists() { path } else { text }
    }
}

pub(super) fn variable_name(what: &str, name: String) -> Name {
    if what == "env" { Name::Env(name) } else { Name::Set(name) }
}

/// Formats an integer in decimal, for any radix.
pub(super) fn decimal(number: &DeInteger<'_>) -> String {
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(decimal) => decimal.to_string(),
        Err(_) => number.to_string(),
    }
}

pub(super) fn wrong_kind(
    source: &Source<'_>,
    name: &str,
    wanted: &str,
    value: &Spanned<DeValue<'_>>,
) -> Error {
    let kind = value.get_ref().type_str();
    let article = if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    let help = match value.get_ref() {
        DeValue::Boolean(on) if name == "p2p" => {
            Some(format!("write \"{}\"", if *on { "on" } else { "off" }))
        }
        DeValue::String(text) if text.parse::<u64>().is_ok() => {
            Some(format!("write {text} without quotes"))
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) if wanted == "a string" => {
            Some("write it in quotes".into())
        }
        _ => None,
    };
    source.error(value.span(), format!("{name} must be {wanted}, and this is {article} {kind}"), help)
}
