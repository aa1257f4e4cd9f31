//! Text of an experiment file as entries with their position. Everything that reads the file starts here: the
//! check (`file.rs`), edits ([`super::edit`]) and the editor of the workbench. Requires valid TOML and knows the
//! layout of the file, but checks neither names nor values.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Item, Key, TableLike, Value};

use base::error::{Error, Result};

/// Scope of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// One value for all cells.
    Setting,
    /// Values that the grid varies.
    Axis,
    /// Key of a table that is not about cells, such as `[evaluate]`, or of an unknown table.
    Other,
}

/// Key of an experiment file with its value.
#[derive(Clone, Debug)]
pub struct DocumentEntry {
    /// Option (`tp`), `question`, `rounds`, variable (`env.NCCL_ALGO`, `set.link.alpha_us`), link of a P2P setting
    /// (`links.on`), or the dotted path of another key.
    pub name: String,
    pub kind: EntryKind,
    /// Values as passed to cells; a setting has one.
    pub values: Vec<String>,
    pub(super) value: Value,
    /// Key (its last part) and value in the text. A list includes its brackets.
    pub(super) key_span: Range<usize>,
    pub(super) span: Range<usize>,
    /// All parts of the key, from the root.
    pub(super) path: Vec<String>,
    /// True inside an inline table (`{ ... }`).
    pub(super) inline: bool,
    /// Offset of the enclosing table's header; `None` at the top of the file.
    pub(super) header: Option<usize>,
}

impl DocumentEntry {
    /// Elements of a list, or the single value.
    pub(super) fn elements(&self) -> Vec<&Value> {
        self.value.as_array().map_or_else(|| vec![&self.value], |list| list.iter().collect())
    }
}

/// Table with a header (`[grid]`), or in braces.
#[derive(Clone, Debug)]
pub(super) struct DocumentSection {
    pub path: Vec<String>,
    pub key_span: Range<usize>,
    /// Header or braces of the table.
    pub span: Range<usize>,
    pub inline: bool,
}

#[derive(Clone, Debug)]
pub struct Document<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    /// Entries in text order.
    pub entries: Vec<DocumentEntry>,
    pub(super) sections: Vec<DocumentSection>,
}

impl<'a> Document<'a> {
    /// Parses a text. Returns an error with its position if it is not TOML; `path` names the text in errors and is the
    /// base of relative paths in it.
    pub fn parse(text: &'a str, path: &'a Path) -> Result<Self> {
        let mut document = Self { path, text, entries: Vec::new(), sections: Vec::new() };
        let parsed = toml_edit::Document::parse(text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            document.error(&error.span().unwrap_or(0..0), message, "")
        })?;
        document.add_table(parsed.as_table(), &mut Vec::new(), None, false);
        document.entries.sort_by_key(|entry| entry.key_span.start);
        document.sections.sort_by_key(|section| section.span.start);
        Ok(document)
    }

    pub fn axes(&self) -> impl Iterator<Item = &DocumentEntry> {
        self.entries.iter().filter(|entry| entry.kind == EntryKind::Axis)
    }

    pub fn get(&self, name: &str) -> Option<&DocumentEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// True if the file has the table, even without keys.
    pub(super) fn has_table(&self, name: &str) -> bool {
        self.section(name).is_some() || self.entries.iter().any(|entry| entry.path[0] == name)
    }

    pub(super) fn section(&self, path: &str) -> Option<&DocumentSection> {
        self.sections.iter().find(|section| section.path == [path])
    }

    /// Key of a table, or of its first entry if the table is dotted.
    pub(super) fn table_span(&self, name: &str) -> Range<usize> {
        let section = self.section(name).map(|section| section.key_span.clone());
        let entry = || self.entries.iter().find(|entry| entry.path[0] == name);
        section.or_else(|| entry().map(|entry| entry.key_span.clone())).unwrap_or_default()
    }

    fn add_table(
        &mut self,
        table: &dyn TableLike,
        path: &mut Vec<String>,
        header: Option<usize>,
        inline: bool,
    ) {
        for (name, item) in table.iter() {
            let Some(key_span) = table.key(name).and_then(Key::span) else { continue };
            path.push(name.to_owned());
            let (span, is_dotted) = (item.span(), item.as_table_like().is_some_and(|t| t.is_dotted()));
            let mut section = |span: Range<usize>, inline: bool| {
                let path = path.clone();
                self.sections.push(DocumentSection { path, key_span: key_span.clone(), span, inline });
            };
            match (item, span) {
                (Item::Table(table), Some(span)) if !is_dotted => {
                    let start = span.start;
                    section(span, false);
                    self.add_table(table, path, Some(start), inline);
                }
                (Item::Table(table), _) => self.add_table(table, path, header, inline),
                (Item::Value(Value::InlineTable(table)), span) => {
                    if let (Some(span), false) = (span, is_dotted) {
                        section(span, true);
                    }
                    self.add_table(table, path, header, inline || !is_dotted);
                }
                (Item::Value(value), Some(span)) => {
                    self.add_entry(path, key_span, value, span, inline, header)
                }
                (Item::ArrayOfTables(tables), _) => {
                    // valid nowhere: kept for the error
                    let list = Value::Array(tables.clone().into_array());
                    self.add_entry(path, key_span.clone(), &list, key_span, inline, header);
                }
                (Item::Value(_) | Item::None, _) => {}
            }
            path.pop();
        }
    }

    fn add_entry(
        &mut self,
        path: &[String],
        key_span: Range<usize>,
        value: &Value,
        span: Range<usize>,
        inline: bool,
        header: Option<usize>,
    ) {
        let (name, kind) = name_and_kind(path, value.is_array());
        let (value, path, values) = (value.clone(), path.to_vec(), Vec::new());
        let mut entry =
            DocumentEntry { name, kind, values, value, key_span, span, path, inline, header };
        entry.values = entry.elements().into_iter().map(|element| self.cell_value(element)).collect();
        self.entries.push(entry);
    }

    /// Value as passed to cells.
    fn cell_value(&self, value: &Value) -> String {
        match value {
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            // as written, but for TOML's separators of digits
            Value::Float(_) => self.source_text(value).replace('_', ""),
            other => self.source_text(other).to_owned(),
        }
    }

    fn source_text(&self, value: &Value) -> &'a str {
        value.span().and_then(|span| self.text.get(span)).unwrap_or_default()
    }

    /// Error at a byte range of the text; its message begins with `FILE:LINE:COLUMN`. `help` may be empty.
    pub(super) fn error(&self, at: &Range<usize>, message: impl AsRef<str>, help: &str) -> Error {
        let help = Some(help.to_owned()).filter(|help| !help.is_empty());
        Error::at(&self.path.display().to_string(), self.text, at.clone(), message, help)
    }

    /// Moves an error of a value to the value's position.
    pub(super) fn relocate(&self, at: &Range<usize>, error: Error) -> Error {
        match error {
            // drops the position in another file
            Error::Input { message, help } | Error::At { message, help, .. } => {
                self.error(at, message, &help.unwrap_or_default())
            }
            other => self.error(at, other.to_string(), ""),
        }
    }
}

/// Name for users and kind of a key in the file.
fn name_and_kind(path: &[String], is_list: bool) -> (String, EntryKind) {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let variable = if is_list { EntryKind::Axis } else { EntryKind::Setting };
    match parts.as_slice() {
        ["env" | "set", _, ..] => (parts.join("."), variable),
        ["grid", "env" | "set", _, ..] => (parts[1..].join("."), variable),
        ["grid", name] => ((*name).to_owned(), EntryKind::Axis),
        ["model", "name" | "path"] => ("model".to_owned(), EntryKind::Setting),
        ["links", _] => (parts.join("."), EntryKind::Setting),
        ["workload", name] | [name] => ((*name).to_owned(), EntryKind::Setting),
        _ => (parts.join("."), EntryKind::Other),
    }
}
