//! Checks an experiment file key by key: settings and axes, each valid on its own, with errors that name the position
//! and the nearest valid name. [`super::experiment`] resolves their combination (backend, dtype, feasibility).

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml_edit::Value;

use super::document::{Document, DocumentEntry};
use super::experiment::{Adapt, CONTEXT, Evaluate, TextSource};
use super::keys::{Accepts, FileKey, file_key, is_table, valid_names};
use base::error::{Error, Result};
use machine::hardware::{self, Profile};
use model::Model;
use run::HOST;
use table::options::{self, OptionKind, Pairs, variables};
use table::{CellOptions, Link, P2p};

const MAX_CELLS: usize = 100_000;

/// Setting (one value) or axis (one or more).
#[derive(Clone, Debug)]
pub(super) struct GridOption {
    /// Option, `env.NAME` or `set.KEY`.
    pub name: String,
    key_span: Range<usize>,
    /// Values with their position.
    pub values: Vec<(String, Range<usize>)>,
}

/// Checked contents of an experiment file.
#[derive(Clone, Debug, Default)]
pub(super) struct ExperimentFile {
    pub question: Option<String>,
    pub rounds: Option<u32>,
    /// Number of ranks of the combinations to keep.
    pub gpus: Option<u32>,
    /// Settings shared by all cells.
    settings: Vec<GridOption>,
    /// Axes of the grid, in file order; the first varies slowest.
    pub axes: Vec<GridOption>,
    /// Links for P2P on and off.
    on: Option<Link>,
    off: Option<Link>,
    pub evaluate: Option<Evaluate>,
    pub adapt: Option<Adapt>,
}

impl ExperimentFile {
    /// Parses a text. `path` appears in errors and is the base of relative paths in the text.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let document = &Document::parse(text, path)?;
        let mut check = Check { document, file: Self::default() };
        check.tables()?;
        document.entries.iter().try_for_each(|entry| check.entry(entry))?;
        check.links()?;
        // checked before any cell is created
        check.size(&check.file.axes)?;
        Ok(Self { evaluate: check.evaluate()?, adapt: check.adapt()?, ..check.file })
    }

    /// Copy with another model in all cells. Returns an error if it is neither built in nor a directory.
    pub fn of_model(mut self, model: &str) -> Result<Self> {
        Model::resolve(model)?;
        self.settings.retain(|setting| setting.name != "model");
        self.axes.retain(|axis| axis.name != "model");
        let values = vec![(model.to_owned(), 0..0)];
        self.settings.push(GridOption { name: "model".into(), key_span: 0..0, values });
        Ok(self)
    }

    /// Number of value combinations in the grid.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Options of a cell, in file order; the last axis varies fastest.
    pub fn cell(&self, index: usize) -> Result<CellOptions> {
        let mut cell = CellOptions::default();
        for setting in &self.settings {
            cell.set_option(&setting.name, &setting.values[0].0)?;
        }
        let mut below = self.count();
        for axis in &self.axes {
            // axes are never empty
            below /= axis.values.len();
            cell.set_option(&axis.name, &axis.values[index / below % axis.values.len()].0)?;
        }
        let link = match cell.p2p.unwrap_or(P2p::On) {
            P2p::On => self.on,
            P2p::Off => self.off,
        };
        cell.link = cell.link.or(link);
        Ok(cell)
    }

    fn get(&self, name: &str) -> Option<&GridOption> {
        self.axes.iter().chain(&self.settings).find(|axis| axis.name == name)
    }
}

struct Check<'a> {
    document: &'a Document<'a>,
    file: ExperimentFile,
}

impl Check<'_> {
    fn fail<T>(&self, at: &Range<usize>, message: impl AsRef<str>, help: &str) -> Result<T> {
        Err(self.document.error(at, message, help))
    }

    /// Returns an error for an unknown table, a table in place of a value, and an empty `[model]`.
    fn tables(&self) -> Result<()> {
        for section in &self.document.sections {
            let path: Vec<&str> = section.path.iter().map(String::as_str).collect();
            let (table, name) = match path.as_slice() {
                ["env" | "set", ..] | ["grid", "env" | "set", ..] => continue,
                ["model"] if !self.document.entries.iter().any(|entry| entry.path[0] == "model") => {
                    return self.fail(&section.span, "[model] is empty", "write name or path");
                }
                [name] if is_table(name) => continue,
                [table, name, ..] if is_table(table) => (*table, *name),
                [name, ..] => ("", *name),
                [] => continue,
            };
            if valid_names(table).contains(&name) {
                let message = format!("'{name}' is a key, and this is a table");
                return self.fail(&section.key_span, message, &format!("write {name} = VALUE"));
            }
            return Err(self.unknown(table, name, "table", &section.key_span));
        }
        Ok(())
    }

    /// Error for a name that `table` does not have.
    fn unknown(&self, table: &str, name: &str, what: &str, at: &Range<usize>) -> Error {
        let what = match table {
            "" => what.to_owned(),
            "grid" => "axis in [grid]".to_owned(),
            _ => format!("key in [{table}]"),
        };
        self.document.relocate(at, Error::unknown(&what, name, valid_names(table)))
    }

    fn entry(&mut self, entry: &DocumentEntry) -> Result<()> {
        let path: Vec<&str> = entry.path.iter().map(String::as_str).collect();
        let (table, name) = match path.as_slice() {
            // `model` may be a name instead of a table
            [name] if is_table(name) && *name != "model" => {
                return self.fail(
                    &entry.span,
                    format!("'{name}' is a table, and this is {}", article(entry.value.type_name())),
                    &format!("write it as a section [{name}]"),
                );
            }
            ["env" | "set", _, ..] | ["grid", "env" | "set", _, ..] => {
                let is_axis = entry.value.is_array();
                return if is_axis { self.axis(entry) } else { self.setting(entry) };
            }
            [name] => ("", (*name).to_owned()),
            [table, ..] if !is_table(table) => {
                return Err(self.unknown("", table, "table", &entry.key_span));
            }
            [table, names @ ..] => (*table, names.join(".")),
            [] => return Ok(()),
        };
        let name = name.as_str();
        let value = &entry.value;
        if let Some(key) = file_key(table, name) {
            self.check_value(key, value)?;
        }
        match (table, name) {
            ("" | "workload", "rounds") => {
                let rounds = value.as_integer().map(|rounds| rounds as u32);
                if std::mem::replace(&mut self.file.rounds, rounds).is_some() {
                    return self.fail(&entry.span, "rounds is set twice", "");
                }
            }
            ("", "gpus") => self.file.gpus = value.as_integer().map(|gpus| gpus as u32),
            ("", "question") => self.file.question = value.as_str().map(str::to_owned),
            ("model", "path") => {
                let dir = self.beside(value.as_str().unwrap_or_default());
                self.check_option("model", &dir, &entry.span)?;
                self.add_setting(entry, dir)?;
            }
            ("model", "name") => self.setting(entry)?,
            ("links", "on") => self.file.on = value.as_str().and_then(|link| link.parse().ok()),
            ("links", "off") => self.file.off = value.as_str().and_then(|link| link.parse().ok()),
            ("grid", "rounds") => {
                return self.fail(
                    &entry.key_span,
                    "rounds is not an axis: all cells run the same number of rounds",
                    "write it in [workload]",
                );
            }
            ("grid", name) if options::option(name).is_some() || options::pair(name).is_some() => {
                self.axis(entry)?;
            }
            ("" | "workload", name) if options::option(name).is_some() => self.setting(entry)?,
            ("evaluate" | "adapt", _) if file_key(table, name).is_some() => {}
            _ => return Err(self.unknown(table, name, "key", &entry.key_span)),
        }
        Ok(())
    }

    fn check_value(&self, key: &FileKey, value: &Value) -> Result<()> {
        let name = key.name;
        let text = || value.as_str().ok_or_else(|| self.wrong_kind(name, "a string", value));
        let whole = |value: &Value, least: i64, most: i64| {
            let number =
                value.as_integer().ok_or_else(|| self.wrong_kind(name, "a whole number", value))?;
            if !(least..=most).contains(&number) {
                let range = format!("it must be a whole number from {least} to {most}");
                return self.fail(&span(value), format!("{name} is {number}; {range}"), "");
            }
            Ok(())
        };
        match key.accepts {
            Accepts::Text => text().map(drop),
            Accepts::Words(valid) => match text()? {
                word if valid.contains(&word) => Ok(()),
                word => {
                    let unknown = Error::unknown(name, word, valid.iter().copied());
                    Err(self.document.relocate(&span(value), unknown))
                }
            },
            Accepts::Whole(least, most) => whole(value, least, most),
            Accepts::Positive => match number(value) {
                Some(number) if number.is_finite() && number > 0.0 => Ok(()),
                Some(number) => self.fail(
                    &span(value),
                    format!("{name} is {number}; it must be a number above 0"),
                    "",
                ),
                None => Err(self.wrong_kind(name, "a number", value)),
            },
            Accepts::Seeds => match value.as_array() {
                Some(seeds) if !seeds.is_empty() => {
                    seeds.iter().try_for_each(|seed| whole(seed, 0, i64::MAX))
                }
                _ => Err(self.wrong_kind(name, "a list of numbers", value)),
            },
            Accepts::Link => match text()?.parse::<Link>() {
                Ok(_) => Ok(()),
                Err(error) => Err(self.document.relocate(&span(value), error)),
            },
            Accepts::Directory | Accepts::File => {
                let path = PathBuf::from(self.beside(text()?));
                let message = match key.accepts {
                    Accepts::Directory if !path.is_dir() => {
                        format!("model path '{}' is not a directory", path.display())
                    }
                    Accepts::File if !path.is_file() => {
                        format!("{name} '{}' is not a file", path.display())
                    }
                    _ => return Ok(()),
                };
                let help = "a relative path starts at the experiment file's directory";
                self.fail(&span(value), message, help)
            }
        }
    }

    fn setting(&mut self, entry: &DocumentEntry) -> Result<()> {
        let name = &entry.name;
        if entry.value.is_array() {
            let help = format!("write {name} in [grid] to vary it");
            return self.fail(&entry.span, format!("{name} is a list here"), &help);
        }
        let text = self.option_text(name, &entry.value, &entry.values[0])?;
        self.add_setting(entry, text)
    }

    fn add_setting(&mut self, entry: &DocumentEntry, value: String) -> Result<()> {
        self.once(entry)?;
        let (name, key_span) = (entry.name.clone(), entry.key_span.clone());
        self.file.settings.push(GridOption {
            name,
            key_span,
            values: vec![(value, entry.span.clone())],
        });
        Ok(())
    }

    fn axis(&mut self, entry: &DocumentEntry) -> Result<()> {
        self.once(entry)?;
        let name = &entry.name;
        let elements = entry.elements();
        let mut axis =
            GridOption { name: name.clone(), key_span: entry.key_span.clone(), values: Vec::new() };
        if elements.is_empty() {
            let help = "write at least one value, or remove the axis";
            return self.fail(&entry.span, format!("axis {name} has no values"), help);
        }
        // one axis alone may be too long, so its length is checked before its values
        if elements.len() > MAX_CELLS {
            axis.values = vec![Default::default(); elements.len()];
            return self.size(&[axis]);
        }
        let mut seen = HashSet::new();
        for (element, text) in elements.into_iter().zip(&entry.values) {
            let text = self.option_text(name, element, text)?;
            if !seen.insert(text.clone()) {
                let message = format!("'{text}' appears twice in {name}");
                return self.fail(&span(element), message, "remove one");
            }
            axis.values.push((text, span(element)));
        }
        self.file.axes.push(axis);
        Ok(())
    }

    /// Returns an error if a name is set twice.
    fn once(&self, entry: &DocumentEntry) -> Result<()> {
        let Some(first) = self.file.get(&entry.name) else { return Ok(()) };
        let before = self.document.text.get(..first.key_span.start).unwrap_or_default();
        let message =
            format!("{} is set twice, first in line {}", entry.name, before.matches('\n').count() + 1);
        self.fail(&entry.key_span, message, "remove one of the two")
    }

    /// Checks a value of an option or variable; `text` is it as passed to cells. Returns that with paths resolved.
    fn option_text(&self, name: &str, value: &Value, text: &str) -> Result<String> {
        let Some(option) = options::option(name) else { return self.variable_text(name, value, text) };
        let (fits, wanted) = match option.kind {
            OptionKind::Count => (value.is_integer(), "a whole number"),
            // TOML's integers end at i64::MAX; larger ones are written as strings
            OptionKind::Large => {
                let is_above = |text: &str| text.parse::<u64>().is_ok_and(|n| i64::try_from(n).is_err());
                (value.is_integer() || value.as_str().is_some_and(is_above), "a whole number")
            }
            OptionKind::Text => (value.is_str(), "a string"),
            OptionKind::Flag => (value.is_bool(), "true or false"),
        };
        if !fits {
            return Err(self.wrong_kind(name, wanted, value));
        }
        // a built-in name takes precedence; anything else may be a path
        let may_be_path = match name {
            "model" => !Model::is_built_in(text),
            "hardware" | "stack" => text.ends_with(".toml"),
            _ => false,
        };
        let path = self.beside(text);
        let is_path = may_be_path && !text.is_empty() && Path::new(&path).exists();
        let text = if is_path { path } else { text.to_owned() };
        self.check_option(name, &text, &span(value))?;
        Ok(text)
    }

    fn variable_text(&self, name: &str, value: &Value, text: &str) -> Result<String> {
        if !(value.is_str() || value.is_integer() || value.is_float() || value.is_bool()) {
            return Err(self.wrong_kind(name, "a string or a number", value));
        }
        let (pairs, key) = name.split_once('.').unwrap_or(("", name));
        if !Pairs::is_key(key) || text.contains('\0') {
            let message = format!("'{}' cannot name or be a variable", key.escape_debug());
            return self.fail(&span(value), message, "");
        }
        match variables::refusal(key, text) {
            Some((message, help)) if pairs == "env" => self.fail(&span(value), message, &help),
            _ => Ok(text.to_owned()),
        }
    }

    /// Returns an error with its position if no cell could use the value.
    fn check_option(&self, name: &str, text: &str, at: &Range<usize>) -> Result<()> {
        let checked = CellOptions::default().set_option(name, text).and_then(|()| match name {
            "model" => Model::resolve(text).map(drop),
            "hardware" if text != HOST => Profile::load(text).map(drop),
            "stack" => hardware::lowering(text).map(drop),
            _ => Ok(()),
        });
        checked.map_err(|error| self.document.relocate(at, error))
    }

    /// Resolves a path relative to the experiment file's directory.
    fn beside(&self, path: &str) -> String {
        let dir = self.document.path.parent().unwrap_or(Path::new(""));
        dir.join(path).to_string_lossy().into_owned()
    }

    fn wrong_kind(&self, name: &str, wanted: &str, value: &Value) -> Error {
        let help = match value {
            Value::Boolean(on) if name == "p2p" && *on.value() => "write \"on\"",
            Value::Boolean(_) if name == "p2p" => "write \"off\"",
            Value::String(text) if text.value().parse::<u64>().is_ok() => "write it without quotes",
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) if wanted == "a string" => {
                "write it in quotes"
            }
            _ => "",
        };
        let message = format!("{name} must be {wanted}, and this is {}", article(value.type_name()));
        self.document.error(&span(value), message, help)
    }

    /// Returns an error if a grid with these axes has more than [`MAX_CELLS`] cells.
    fn size(&self, axes: &[GridOption]) -> Result<()> {
        let cells = axes.iter().map(|axis| axis.values.len() as f64).product::<f64>();
        if cells <= MAX_CELLS as f64 {
            return Ok(());
        }
        let several = axes.iter().filter(|axis| axis.values.len() > 1);
        let sizes: Vec<String> =
            several.map(|axis| format!("{} {}", axis.values.len(), axis.name)).collect();
        let message = format!(
            "the grid has {} = {} cells, more than {}",
            sizes.join(" x "),
            grouped(cells),
            grouped(MAX_CELLS as f64)
        );
        let help = "use fewer values per axis, or split the grid into several files";
        self.fail(&axes[0].key_span, message, help)
    }

    /// Returns an error if P2P on and off would run over links that are not comparable (an emulated and the native
    /// link, or the same link twice), or if a link is set twice.
    fn links(&self) -> Result<()> {
        let file = &self.file;
        let has = |wanted: P2p| match file.get("p2p") {
            Some(p2p) => p2p.values.iter().any(|(value, _)| value.parse().ok() == Some(wanted)),
            None => wanted == P2p::On,
        };
        let links = [(P2p::On, file.on), (P2p::Off, file.off)];
        let link = file.get("link");
        let table = || self.document.table_span("links");
        if links.iter().any(|(_, link)| link.is_some()) {
            if let Some((missing, _)) = links.iter().find(|(p2p, link)| has(*p2p) && link.is_none()) {
                let message = format!(
                    "[links] has no link for P2P {}, which cells use: they would run over the native link, which is \
                     not comparable with the other",
                    missing.as_str()
                );
                let help = "write both on and off in [links], or remove the table";
                return self.fail(&table(), message, help);
            }
            let is_native = |link: Option<Link>| link == Some(Link::Native);
            if has(P2p::On) && has(P2p::Off) && is_native(file.on) != is_native(file.off) {
                let message = "one of the links for P2P on and off is native and the other emulated, and both are in \
                               the grid: their results are not comparable";
                let help = "write on and off both as native, or both as emulated links (p2p-on, p2p-off, emulated:...)";
                return self.fail(&table(), message, help);
            }
            if let Some(link) = link {
                return self.fail(
                    &link.key_span,
                    "link is set, but [links] already sets the links for p2p on and off",
                    "remove one of the two",
                );
            }
        }
        let emulated = link.iter().flat_map(|link| &link.values);
        let mut emulated = emulated.filter(|(value, _)| value.parse().ok() != Some(Link::Native));
        match emulated.next().filter(|_| has(P2p::On) && has(P2p::Off)) {
            None => Ok(()),
            Some((value, at)) => self.fail(
                at,
                format!("link '{value}' is the same for P2P on and off, and both are in the grid"),
                "define both links in [links] (on, off), or run one P2P setting",
            ),
        }
    }

    /// Evaluation of quality: a text (the built-in one by default) and its division into windows.
    fn evaluate(&self) -> Result<Option<Evaluate>> {
        if !self.document.has_table("evaluate") {
            return Ok(None);
        }
        let whole = |name| self.whole("evaluate", name).map(|number| number as usize);
        let evaluate = Evaluate {
            text: self.text("evaluate")?,
            context: whole("context").unwrap_or(CONTEXT),
            limit: whole("tokens"),
        };
        if let Some(limit) = evaluate.limit.filter(|limit| *limit < evaluate.context) {
            let message = format!("tokens is {limit}, and a window has {} (context)", evaluate.context);
            let at = self.document.get("evaluate.tokens").map(|entry| entry.key_span.clone());
            let help = "use more tokens, or a smaller context";
            return self.fail(&at.unwrap_or_default(), message, help);
        }
        Ok(Some(evaluate))
    }

    /// Training of the cells' models.
    fn adapt(&self) -> Result<Option<Adapt>> {
        if !self.document.has_table("adapt") {
            return Ok(None);
        }
        let value = |name: &str| self.document.get(&format!("adapt.{name}")).map(|entry| &entry.value);
        let whole = |name| self.whole("adapt", name).map(|number| number as u32);
        let Some(steps) = whole("steps") else {
            return self.fail(
                &self.document.table_span("adapt"),
                "[adapt] needs steps",
                "add steps, for example steps = 200",
            );
        };
        let seeds = value("seeds").and_then(Value::as_array);
        Ok(Some(Adapt {
            text: self.text("adapt")?,
            limit: whole("tokens").map(|tokens| tokens as usize),
            steps,
            batch: whole("batch").unwrap_or(8),
            context: whole("context").unwrap_or(256),
            lr: value("lr").and_then(number),
            distil: value("distil").and_then(number),
            all_layers: value("layers").and_then(Value::as_str) == Some("all"),
            seeds: seeds.map_or(vec![0], |all| {
                all.iter().filter_map(Value::as_integer).map(|seed| seed as u64).collect()
            }),
        }))
    }

    /// Whole number that was checked before.
    fn whole(&self, table: &str, name: &str) -> Option<i64> {
        self.document.get(&format!("{table}.{name}")).and_then(|entry| entry.value.as_integer())
    }

    /// Text given by `text` or `tokens_file`; only one may be set.
    fn text(&self, table: &str) -> Result<TextSource> {
        let get = |name: &str| self.document.get(&format!("{table}.{name}"));
        let path = |entry: &DocumentEntry| PathBuf::from(self.beside(&entry.values[0]));
        match (get("text"), get("tokens_file")) {
            (Some(text), Some(ids)) => self.fail(
                &if text.key_span.start < ids.key_span.start { ids } else { text }.key_span,
                "text and tokens_file are both set",
                "remove one",
            ),
            (Some(text), None) => Ok(TextSource::Words(path(text))),
            (None, Some(ids)) => Ok(TextSource::Ids(path(ids))),
            (None, None) => Ok(TextSource::Own),
        }
    }
}

fn span(value: &Value) -> Range<usize> {
    value.span().unwrap_or_default()
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|number| number as f64))
}

fn article(kind: &str) -> String {
    format!("{} {kind}", if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" })
}

/// Formats a whole number with thousands separators, or as a power of ten from 1e15.
fn grouped(number: f64) -> String {
    if number >= 1e15 {
        return format!("{number:.1e}");
    }
    let digits = format!("{number:.0}");
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}
