//! Settings and axes of an experiment's text with their positions, for display and editing. Requires valid TOML;
//! checks nothing else.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, Table, TableLike, Value};

use base::error::{Error, Result};

/// Kind of an entry: the same for all cells, or varied by the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Same value in all cells.
    Setting,
    /// List of values in the grid.
    Axis,
}

/// Setting or axis of an experiment's text.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Option (`tp`), `question`, `rounds`, variable (`env.NCCL_ALGO`, `set.link.alpha_us`), or link of a P2P setting
    /// (`links.on`).
    pub name: String,
    pub kind: EntryKind,
    /// Values as passed to cells; a setting has one.
    pub values: Vec<String>,
    pub(super) place: Place,
}

/// Position of an entry, in bytes of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Last part of its key.
    pub key: Range<usize>,
    /// Value, including brackets.
    pub value: Range<usize>,
    /// Elements of a list; empty for a single value.
    pub elements: Vec<Range<usize>>,
    pub list: bool,
    /// True if the values are strings.
    pub quoted: bool,
    /// True inside an inline table (`{ ... }`).
    pub inline: bool,
    /// Offset of the enclosing table's header; `None` at the top of the file.
    pub header: Option<usize>,
    /// All parts of the key, from the root.
    pub path: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Section {
    pub path: Vec<String>,
    /// Header or braces of the table.
    pub span: Range<usize>,
    pub inline: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// Entries in text order.
    pub entries: Vec<Entry>,
    pub(super) sections: Vec<Section>,
}

impl Outline {
    /// Parses a text. Returns an error with its position if it is not TOML; `path` names the text in errors.
    pub fn of(text: &str, path: &Path) -> Result<Self> {
        let document = Document::parse(text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            Error::at(
                &path.display().to_string(),
                text,
                error.span().unwrap_or(0..0),
                message,
                Some("fix the TOML in a text editor, then reload the file".into()),
            )
        })?;
        let mut reader = Reader { text, outline: Self::default() };
        reader.table(document.as_table(), &mut Vec::new(), None);
        let Self { mut entries, mut sections } = reader.outline;
        entries.sort_by_key(|entry| entry.place.key.start);
        sections.sort_by_key(|section| section.span.start);
        Ok(Self { entries, sections })
    }

    pub fn axes(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind == EntryKind::Axis)
    }

    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    pub(super) fn section(&self, path: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.path == [path])
    }
}

struct Reader<'a> {
    text: &'a str,
    outline: Outline,
}

impl Reader<'_> {
    /// Adds a table with a header, a dotted table, or the root. `header` is the enclosing header of its lines.
    fn table(&mut self, table: &Table, path: &mut Vec<String>, header: Option<usize>) {
        let header = match table.span().filter(|_| !path.is_empty() && !table.is_dotted()) {
            Some(span) => {
                let start = span.start;
                self.outline.sections.push(Section { path: path.clone(), span, inline: false });
                Some(start)
            }
            None => header,
        };
        self.items(table, path, header, false);
    }

    fn items(
        &mut self,
        table: &dyn TableLike,
        path: &mut Vec<String>,
        header: Option<usize>,
        inline: bool,
    ) {
        for (name, item) in table.iter() {
            let key = table.key(name).and_then(toml_edit::Key::span);
            path.push(name.to_owned());
            match item {
                Item::Table(table) => self.table(table, path, header),
                Item::Value(Value::InlineTable(table)) => {
                    if let (Some(span), false) = (table.span(), table.is_dotted()) {
                        self.outline.sections.push(Section { path: path.clone(), span, inline: true });
                    }
                    self.items(table, path, header, inline || !table.is_dotted());
                }
                Item::Value(value) => {
                    if let (Some(key), Some(span)) = (key, value.span()) {
                        self.entry(path, key, value, span, header, inline);
                    }
                }
                Item::None | Item::ArrayOfTables(_) => {}
            }
            path.pop();
        }
    }

    fn entry(
        &mut self,
        path: &[String],
        key: Range<usize>,
        value: &Value,
        span: Range<usize>,
        header: Option<usize>,
        inline: bool,
    ) {
        let list = value.as_array();
        let Some((name, kind)) = meaning(path, list.is_some()) else { return };
        let elements: Vec<&Value> = list.map_or_else(Vec::new, |list| list.iter().collect());
        let spans = elements.iter().filter_map(|element| element.span()).collect();
        let first = if list.is_some() { elements.first().copied() } else { Some(value) };
        let place = Place {
            key,
            elements: spans,
            list: list.is_some(),
            quoted: first.is_some_and(Value::is_str),
            inline,
            header,
            path: path.to_vec(),
            value: span,
        };
        let values = match list {
            Some(_) => elements.iter().map(|element| self.plain(element)).collect(),
            None => vec![self.plain(value)],
        };
        self.outline.entries.push(Entry { name, kind, values, place });
    }

    /// Value as passed to cells.
    fn plain(&self, value: &Value) -> String {
        match value {
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            other => {
                let written = other.span().and_then(|span| self.text.get(span));
                written.unwrap_or_default().to_owned()
            }
        }
    }
}

/// Name for users and kind of a key in the file; `None` for other keys.
fn meaning(path: &[String], list: bool) -> Option<(String, EntryKind)> {
    use EntryKind::{Axis, Setting};
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let variable = if list { Axis } else { Setting };
    Some(match parts.as_slice() {
        [table @ ("env" | "set"), rest @ ..] if !rest.is_empty() => {
            (format!("{table}.{}", rest.join(".")), variable)
        }
        ["grid", table @ ("env" | "set"), rest @ ..] if !rest.is_empty() => {
            (format!("{table}.{}", rest.join(".")), variable)
        }
        ["grid", name] => ((*name).to_owned(), Axis),
        ["model", "name" | "path"] => ("model".to_owned(), Setting),
        ["links", side] => (format!("links.{side}"), Setting),
        ["workload", name] | [name] => ((*name).to_owned(), Setting),
        _ => return None,
    })
}
