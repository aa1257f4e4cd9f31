//! An experiment file's text as settings and axes, checked one by one. What the settings mean together
//! (backend, dtype, whether cells can run) is [`super::experiment`]'s.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::position::Source;
use super::quality::{CONTEXT, Evaluate, Text};
use crate::base::error::{Error, Result};
use crate::machine::hardware::Profile;
use crate::model::Model;
use crate::run::HOST;
use crate::table::options::{self, Kind, OPTIONS, Pairs, variables};
use crate::table::{CellOptions, Link, P2p};

/// More cells than anybody can want.
const MAX_CELLS: usize = 100_000;
/// More rounds than anybody can want.
pub(super) const MAX_ROUNDS: i64 = 10_000;
/// Tables of a file.
const TABLES: [&str; 7] = ["model", "workload", "grid", "links", "env", "set", "evaluate"];
/// More tokens of a window than any model takes.
const MAX_CONTEXT: i64 = 1 << 24;

/// What a setting or an axis sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    /// An option of a cell.
    Option(&'static str),
    /// A variable of the run's process.
    Env(String),
    /// A value of the hardware profile.
    Set(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => f.write_str(name),
            Self::Env(name) => write!(f, "env.{name}"),
            Self::Set(name) => write!(f, "set.{name}"),
        }
    }
}

/// A value and where it stands.
pub(super) type Placed = (String, Range<usize>);

/// One or, in an axis, several values of something.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub name: Name,
    /// Where the name stands.
    pub at: Range<usize>,
    pub values: Vec<Placed>,
}

/// An experiment file, each value of it checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub question: Option<String>,
    pub rounds: Option<u32>,
    /// What all cells share.
    pub settings: Vec<Axis>,
    /// What the grid varies, in file order; the first varies slowest.
    pub axes: Vec<Axis>,
    /// What p2p on and off mean.
    pub on: Option<Link>,
    pub off: Option<Link>,
    /// On which text quality is evaluated.
    pub evaluate: Option<Evaluate>,
}

/// Reads an experiment's text; `path` names it in errors and is what relative paths in it start from.
pub(super) fn parse(text: &str, path: &Path) -> Result<Draft> {
    let source = Source { path, text };
    let document = DeTable::parse(text).map_err(|e| {
        let message = e.message().lines().next().unwrap_or("not TOML").to_owned();
        source.error(e.span().unwrap_or(0..0), message, None)
    })?;
    let mut reader = Reader { source, draft: Draft::default() };
    reader.file(document.get_ref())?;
    reader.finish()
}

struct Reader<'a> {
    source: Source<'a>,
    draft: Draft,
}

type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// A table's entries in file order.
fn entries<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<Entry<'a, 'i>> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Names of all options of a cell.
fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|option| option.name)
}

impl Reader<'_> {
    fn file(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let name = key.get_ref().as_ref();
            match (name, value.get_ref().as_table()) {
                ("model", Some(table)) => self.model(key, value, table)?,
                ("workload", Some(table)) => self.workload(table)?,
                ("grid", Some(table)) => self.grid(table)?,
                ("links", Some(table)) => self.links(table)?,
                ("env" | "set", Some(table)) => self.variables(name, table)?,
                ("evaluate", Some(table)) => self.evaluate(table)?,
                ("question", None) => {
                    self.draft.question = Some(self.string(name, value)?.to_owned());
                }
                ("rounds", None) => self.rounds(value)?,
                ("workload" | "grid" | "links" | "env" | "set" | "evaluate", None) => {
                    let kind = value.get_ref().type_str();
                    return Err(self.source.error(
                        value.span(),
                        format!("'{name}' is a table, and this is a {kind}"),
                        Some(format!("write a section [{name}]")),
                    ));
                }
                _ => match options::option(name) {
                    Some(option) => self.setting(Name::Option(option.name), key.span(), value)?,
                    None => {
                        let mut valid = vec!["question", "rounds"];
                        valid.extend(TABLES);
                        valid.extend(names().filter(|name| *name != "model"));
                        let what = if value.get_ref().is_table() { "table" } else { "key" };
                        return Err(self.source.unknown(key.span(), what, name, &valid));
                    }
                },
            }
        }
        Ok(())
    }

    /// `[model]`: a name or a path.
    fn model(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        whole: &Spanned<DeValue<'_>>,
        table: &DeTable<'_>,
    ) -> Result<()> {
        for (key, value) in entries(table) {
            match key.get_ref().as_ref() {
                "name" => self.setting(Name::Option("model"), key.span(), value)?,
                "path" => {
                    let dir = self.beside(self.string("path", value)?);
                    if !Path::new(&dir).is_dir() {
                        let message = format!("model path '{dir}' is not a directory");
                        let help = "a relative path starts at the experiment file's directory";
                        return Err(self.source.error(value.span(), message, Some(help.into())));
                    }
                    self.checked(&Name::Option("model"), &dir, value.span())?;
                    self.add_setting(Name::Option("model"), key.span(), (dir, value.span()))?;
                }
                other => {
                    return Err(self.source.unknown(
                        key.span(),
                        "key in [model]",
                        other,
                        &["name", "path"],
                    ));
                }
            }
        }
        if table.is_empty() {
            let at = if whole.span().is_empty() { key.span() } else { whole.span() };
            return Err(self.source.error(at, "[model] is empty", Some("write name or path".into())));
        }
        Ok(())
    }

    fn workload(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let name = key.get_ref().as_ref();
            match options::option(name) {
                _ if name == "rounds" => self.rounds(value)?,
                Some(option) => self.setting(Name::Option(option.name), key.span(), value)?,
                None => {
                    let mut valid = vec!["rounds"];
                    valid.extend(names());
                    return Err(self.source.unknown(key.span(), "key in [workload]", name, &valid));
                }
            }
        }
        Ok(())
    }

    fn grid(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let name = key.get_ref().as_ref();
            let prefixed = name.split_once('.').filter(|(start, _)| matches!(*start, "env" | "set"));
            match (name, value.get_ref(), prefixed) {
                ("env" | "set", DeValue::Table(variables), _) => self.variables(name, variables)?,
                (_, _, Some((start, variable))) => {
                    let variable = variable_name(start, variable.to_owned());
                    self.axis(variable, key.span(), value)?;
                }
                ("rounds", ..) => {
                    let message = "rounds is no axis: every cell gets as many";
                    return Err(self.source.error(
                        key.span(),
                        message,
                        Some("write it in [workload]".into()),
                    ));
                }
                _ => match options::option(name) {
                    Some(option) => self.axis(Name::Option(option.name), key.span(), value)?,
                    None => {
                        let mut valid: Vec<&str> = names().collect();
                        valid.extend(["env.NAME", "set.KEY"]);
                        return Err(self.source.unknown(key.span(), "axis in [grid]", name, &valid));
                    }
                },
            }
        }
        Ok(())
    }

    fn links(&mut self, table: &DeTable<'_>) -> Result<()> {
        for (key, value) in entries(table) {
            let place = match key.get_ref().as_ref() {
                "on" => &mut self.draft.on,
                "off" => &mut self.draft.off,
                other => {
                    return Err(self.source.unknown(
                        key.span(),
                        "key in [links]",
                        other,
                        &["on", "off"],
                    ));
                }
            };
            let Some(text) = value.get_ref().as_str() else {
                return Err(wrong_kind(&self.source, "a link", "a string", value));
            };
            *place = Some(text.parse().map_err(|e| self.source.blame(value.span(), e))?);
        }
        Ok(())
    }

    /// `[evaluate]`: a text, the program's own where none is named, and how it is cut into windows.
    fn evaluate(&mut self, table: &DeTable<'_>) -> Result<()> {
        let mut evaluate = Evaluate { text: Text::Own, context: CONTEXT, limit: None };
        for (key, value) in entries(table) {
            match key.get_ref().as_ref() {
                name @ ("text" | "tokens_file") => {
                    if evaluate.text != Text::Own {
                        let message = "text and tokens_file both name a text";
                        return Err(self.source.error(key.span(), message, Some("remove one".into())));
                    }
                    let path = PathBuf::from(self.beside(self.string(name, value)?));
                    if !path.is_file() {
                        let message = format!("{name} '{}' is not a file", path.display());
                        let help = "a relative path starts at the experiment file's directory";
                        return Err(self.source.error(value.span(), message, Some(help.into())));
                    }
                    evaluate.text = if name == "text" { Text::Words(path) } else { Text::Ids(path) };
                }
                "context" => evaluate.context = self.whole("context", value, 2)?,
                "tokens" => evaluate.limit = Some(self.whole("tokens", value, 1)?),
                other => {
                    let valid = ["text", "tokens_file", "context", "tokens"];
                    return Err(self.source.unknown(key.span(), "key in [evaluate]", other, &valid));
                }
            }
        }
        if let Some(limit) = evaluate.limit.filter(|limit| *limit < evaluate.context) {
            let (key, _) = entries(table).into_iter().find(|(key, _)| key.get_ref() == "tokens").unzip();
            let message = format!("tokens is {limit}, and a window has {} (context)", evaluate.context);
            let at = key.map_or(0..0, Spanned::span);
            return Err(self.source.error(
                at,
                message,
                Some("use more tokens, or a smaller context".into()),
            ));
        }
        self.draft.evaluate = Some(evaluate);
        Ok(())
    }

    /// A whole number that is not less than `least`.
    fn whole(&self, name: &str, value: &Spanned<DeValue<'_>>, least: i64) -> Result<usize> {
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

    /// `[env]` and `[set]`: scalars are settings, lists are axes; tables within are dotted names.
    fn variables(&mut self, what: &str, table: &DeTable<'_>) -> Result<()> {
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

    fn setting(&mut self, name: Name, at: Range<usize>, value: &Spanned<DeValue<'_>>) -> Result<()> {
        if value.get_ref().is_array() {
            let help = format!("write {name} in [grid] to vary it");
            return Err(self.source.error(value.span(), format!("{name} is a list here"), Some(help)));
        }
        let text = self.scalar(&name, value)?;
        self.add_setting(name, at, (text, value.span()))
    }

    fn add_setting(&mut self, name: Name, at: Range<usize>, value: Placed) -> Result<()> {
        self.once(&name, &at)?;
        self.draft.settings.push(Axis { name, at, values: vec![value] });
        Ok(())
    }

    fn axis(&mut self, name: Name, at: Range<usize>, value: &Spanned<DeValue<'_>>) -> Result<()> {
        self.once(&name, &at)?;
        let mut values: Vec<Placed> = Vec::new();
        let list = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => vec![value],
        };
        for element in list {
            let text = self.scalar(&name, element)?;
            if values.iter().any(|(there, _)| *there == text) {
                let message = format!("'{text}' stands twice in {name}");
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

    /// Whatever is set twice is a mistake in one of the places.
    fn once(&self, name: &Name, at: &Range<usize>) -> Result<()> {
        let all = self.draft.settings.iter().chain(&self.draft.axes);
        let Some(there) = all.into_iter().find(|axis| axis.name == *name) else { return Ok(()) };
        // tables are visited in file order of their first keys; name the place that comes first
        let (first, second) = if there.at.start < at.start { (&there.at, at) } else { (at, &there.at) };
        let line = self.source.text.get(..first.start).unwrap_or_default().matches('\n').count() + 1;
        let message = format!("{name} is set twice, first in line {line}");
        Err(self.source.error(second.clone(), message, Some("remove one of the two".into())))
    }

    fn rounds(&mut self, value: &Spanned<DeValue<'_>>) -> Result<()> {
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

    fn string<'v>(&self, name: &str, value: &'v Spanned<DeValue<'_>>) -> Result<&'v str> {
        value.get_ref().as_str().ok_or_else(|| wrong_kind(&self.source, name, "a string", value))
    }

    /// A value as text, of the kind that `name` wants, and one that it accepts.
    fn scalar(&self, name: &Name, value: &Spanned<DeValue<'_>>) -> Result<String> {
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
            // a name that is built in means that, anything else may be a path
            "model" if Model::built_in().iter().all(|m| m.name != text) => self.beside_if_there(text),
            "hardware" | "stack" if text.ends_with(".toml") => self.beside_if_there(text),
            _ => text,
        };
        self.checked(name, &text, value.span())?;
        Ok(text)
    }

    /// Refuses a value that no cell could use, where it stands.
    fn checked(&self, name: &Name, text: &str, at: Range<usize>) -> Result<()> {
        let Name::Option(option) = name else { return Ok(()) };
        let checked = CellOptions::default().set_option(option, text).and_then(|()| match *option {
            "model" => Model::resolve(text).map(|_| ()),
            "hardware" if text != HOST => Profile::load(text).map(|_| ()),
            "stack" => crate::machine::hardware::lowering(text).map(|_| ()),
            _ => Ok(()),
        });
        checked.map_err(|e| self.source.blame(at, e))
    }

    /// A path as the file means it: from the file's own directory.
    fn beside(&self, path: &str) -> String {
        let dir = self.source.path.parent().unwrap_or(Path::new(""));
        dir.join(path).to_string_lossy().into_owned()
    }

    fn beside_if_there(&self, text: String) -> String {
        let path = self.beside(&text);
        if !text.is_empty() && Path::new(&path).exists() { path } else { text }
    }

    /// What can only be checked when all was read.
    fn finish(self) -> Result<Draft> {
        let draft = self.draft;
        let set_link = draft.settings.iter().chain(&draft.axes).find(|a| a.name == Name::Option("link"));
        if let Some(link) = set_link
            && (draft.on.is_some() || draft.off.is_some())
        {
            let message = "link is set although [links] says which link p2p on and off mean";
            return Err(self.source.error(
                link.at.clone(),
                message,
                Some("remove one of the two".into()),
            ));
        }
        // counted before any cell is made
        let cells = draft.axes.iter().map(|axis| axis.values.len() as f64).product::<f64>();
        if cells > MAX_CELLS as f64 {
            let at = draft.axes.first().map_or(0..0, |axis| axis.at.clone());
            let sizes: Vec<String> = draft
                .axes
                .iter()
                .filter(|axis| axis.values.len() > 1)
                .map(|axis| format!("{} {}", axis.values.len(), axis.name))
                .collect();
            let message = format!(
                "the grid has {} = {} cells, more than {}",
                sizes.join(" x "),
                grouped(cells),
                grouped(MAX_CELLS as f64)
            );
            let help = "give an axis fewer values, or split the grid over several files";
            return Err(self.source.error(at, message, Some(help.into())));
        }
        Ok(draft)
    }
}

impl Draft {
    /// The same with all cells of another model; errors where it is neither built in nor a directory.
    pub fn of_model(mut self, model: &str) -> Result<Self> {
        Model::resolve(model)?;
        let name = Name::Option("model");
        self.settings.retain(|setting| setting.name != name);
        self.axes.retain(|axis| axis.name != name);
        self.settings.push(Axis { name, at: 0..0, values: vec![(model.to_owned(), 0..0)] });
        Ok(self)
    }

    /// Cells of the grid.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Options of a cell, in file order: the last axis varies fastest.
    pub fn cell(&self, index: usize) -> Result<CellOptions> {
        let mut cell = CellOptions::default();
        for setting in &self.settings {
            if let Some((value, _)) = setting.values.first() {
                apply(&mut cell, &setting.name, value)?;
            }
        }
        let mut below = self.count();
        for axis in &self.axes {
            // an axis has values, so that no count is 0
            below /= axis.values.len().max(1);
            if let Some((value, _)) = axis.values.get(index / below.max(1) % axis.values.len().max(1)) {
                apply(&mut cell, &axis.name, value)?;
            }
        }
        let link = match cell.p2p.unwrap_or(P2p::On) {
            P2p::On => self.on,
            P2p::Off => self.off,
        };
        cell.link = cell.link.or(link);
        Ok(cell)
    }
}

fn apply(cell: &mut CellOptions, name: &Name, value: &str) -> Result<(), Error> {
    match name {
        Name::Option(option) => cell.set_option(option, value)?,
        Name::Env(variable) => cell.env.push(format!("{variable}={value}")),
        Name::Set(key) => cell.set.push(format!("{key}={value}")),
    }
    Ok(())
}

/// A whole number with its thousands apart; in powers of ten where nobody would count the digits.
fn grouped(number: f64) -> String {
    if number >= 1e15 {
        return format!("{number:.1e}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn variable_name(what: &str, name: String) -> Name {
    if what == "env" { Name::Env(name) } else { Name::Set(name) }
}

/// A number in decimal digits, however it was written.
fn decimal(number: &toml::de::DeInteger<'_>) -> String {
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(decimal) => decimal.to_string(),
        Err(_) => number.to_string(),
    }
}

fn wrong_kind(source: &Source<'_>, name: &str, wanted: &str, value: &Spanned<DeValue<'_>>) -> Error {
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
