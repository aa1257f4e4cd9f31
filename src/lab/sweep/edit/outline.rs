//! What an experiment's text sets and varies, and where each value stands: what an editor shows and
//! where it writes. Nothing is checked here but that the text is TOML.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, Table, TableLike, Value};

use base::error::{Error, Result};

/// Whether something is the same for all cells or varied by the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The same for all cells.
    Setting,
    /// A list that makes cells.
    Axis,
}

/// A setting or an axis of an experiment's text.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// An option (`tp`), `question`, `rounds`, a variable (`env.NCCL_ALGO`, `set.link.alpha_us`), or
    /// what P2P means (`links.on`).
    pub name: String,
    /// Whether it is a setting or an axis.
    pub kind: EntryKind,
    /// Its values as cells get them; one of a setting.
    pub values: Vec<String>,
    pub(super) place: Place,
}

/// Where an entry stands, in bytes of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// The last part of its key.
    pub key: Range<usize>,
    /// Its value, brackets included.
    pub value: Range<usize>,
    /// Each value of its list; none where it is no list.
    pub elements: Vec<Range<usize>>,
    /// It is a list.
    pub list: bool,
    /// Its values are strings.
    pub quoted: bool,
    /// It stands in braces, not on a line of its own.
    pub inline: bool,
    /// The table's header that it stands under (its first byte); `None` at the top of the file.
    pub header: Option<usize>,
    /// All parts of its key, from the root.
    pub path: Vec<String>,
}

/// A table of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Section {
    pub path: Vec<String>,
    /// Its header, or its braces.
    pub span: Range<usize>,
    pub inline: bool,
}

/// Settings and axes of an experiment's text, in the order in which they stand there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// The settings and axes, in the order in which they stand in the text.
    pub entries: Vec<Entry>,
    pub(super) sections: Vec<Section>,
}

impl Outline {
    /// Of a text; an error, with its place, where it is not TOML. `path` names it in errors.
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

    /// The entries that are axes.
    pub fn axes(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind == EntryKind::Axis)
    }

    /// A setting or an axis by its name.
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
    /// A table with a header, dotted, or the root. `header`: the header that its lines stand under.
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

    /// A value as cells get it.
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

/// What a key of the file means: its name for users, and whether it varies.
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
