//! Edits of an experiment's text and their implementation.

use std::ops::Range;
use std::path::Path;

use super::outline::{Entry, EntryKind, Outline, Section};
use super::splice::{Splices, comma, comments, indent, line_end, line_start, newline, next_line};
use super::written::{list, table_of, written};
use base::error::{Error, Result};
use model::Model;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Replaces one value of an axis.
    Replace { axis: String, index: usize, value: String },
    /// Inserts a value before the one at `index`.
    Insert {
        axis: String,
        /// Position from 0; the number of values appends.
        index: usize,
        value: String,
    },
    /// Removes one value of an axis.
    Remove { axis: String, index: usize },
    /// Moves a value of an axis to another position.
    Move { axis: String, from: usize, to: usize },
    /// Replaces all values of an axis.
    Values { axis: String, values: Vec<String> },
    /// Adds an axis, replacing a setting of the same name.
    AddAxis {
        /// Option, `env.NAME` or `set.KEY`.
        axis: String,
        values: Vec<String>,
    },
    /// Removes an axis or a setting.
    Drop { name: String },
    /// Sets a value for all cells, replacing an axis of the same name.
    Set {
        /// Option, `question`, `rounds`, `env.NAME`, `set.KEY`, `links.on` or `links.off`.
        name: String,
        value: String,
    },
}

/// Applies an edit and returns the new text. Returns an error if the text is not TOML or lacks the axis or value;
/// `path` names the text in errors.
pub fn apply(text: &str, path: &Path, edit: &Edit) -> Result<String> {
    let outline = Outline::of(text, path)?;
    let editor = Editor { text, outline: &outline };
    match edit {
        Edit::Replace { axis, index, value } => editor.replace(editor.axis(axis)?, *index, value),
        Edit::Insert { axis, index, value } => editor.insert(editor.axis(axis)?, *index, value),
        Edit::Remove { axis, index } => editor.remove(editor.axis(axis)?, *index),
        Edit::Move { axis, from, to } => editor.shift(editor.axis(axis)?, *from, *to),
        Edit::Values { axis, values } => all_values(text, path, editor.axis(axis)?, values),
        Edit::AddAxis { axis, values } => match outline.get(axis) {
            Some(entry) if entry.kind == EntryKind::Axis => Err(Error::input_help(
                format!("{axis} is an axis already"),
                "add values to it, or remove it first",
            )),
            Some(entry) => {
                let text = without_empty_model(editor.drop(entry), path)?;
                let outline = Outline::of(&text, path)?;
                Ok(Editor { text: &text, outline: &outline }.add(axis, &list(axis, values)))
            }
            None => Ok(editor.add(axis, &list(axis, values))),
        },
        Edit::Drop { name } => without_empty_model(editor.drop(editor.entry(name)?), path),
        Edit::Set { name, value } => match outline.get(name) {
            Some(entry) if entry.kind == EntryKind::Axis => {
                let text = editor.drop(entry);
                let outline = Outline::of(&text, path)?;
                Ok(Editor { text: &text, outline: &outline }.add_setting(name, value))
            }
            Some(entry) => Ok(editor.set(entry, value)),
            None => Ok(editor.add_setting(name, value)),
        },
    }
}

/// Removes a `[model]` section left empty by an edit, since it would be invalid. Keeps its comment.
fn without_empty_model(text: String, path: &Path) -> Result<String> {
    let outline = Outline::of(&text, path)?;
    let Some(section) = outline.section("model") else { return Ok(text) };
    if outline.entries.iter().any(|entry| entry.place.path.first().is_some_and(|p| p == "model")) {
        return Ok(text);
    }
    let (start, end) = (line_start(&text, section.span.start), line_end(&text, section.span.end));
    let kept = comments(&text, section.span.end..end);
    let mut splices = Splices::default();
    match kept.first() {
        Some(comment) => splices.replace(start..end, *comment),
        None => splices.replace(start..next_line(&text, end), ""),
    }
    Ok(splices.apply(&text))
}

/// Replaces all values of an axis through a sequence of single edits.
fn all_values(text: &str, path: &Path, axis: &Entry, values: &[String]) -> Result<String> {
    let (name, old) = (&axis.name, &axis.values);
    let mut text = text.to_owned();
    let mut change = |edit: &Edit| -> Result<()> {
        text = apply(&text, path, edit)?;
        Ok(())
    };
    for (index, value) in values.iter().enumerate() {
        let (axis, value) = (name.clone(), value.clone());
        match old.get(index) {
            Some(old) if *old == value => {}
            Some(_) => change(&Edit::Replace { axis, index, value })?,
            None => change(&Edit::Insert { axis, index, value })?,
        }
    }
    for index in (values.len()..old.len()).rev() {
        change(&Edit::Remove { axis: name.clone(), index })?;
    }
    Ok(text)
}

struct Editor<'a> {
    text: &'a str,
    outline: &'a Outline,
}

impl Editor<'_> {
    fn entry(&self, name: &str) -> Result<&Entry> {
        self.outline.get(name).ok_or_else(|| {
            Error::unknown("setting or axis", name, self.outline.entries.iter().map(|e| e.name.as_str()))
        })
    }

    fn axis(&self, name: &str) -> Result<&Entry> {
        let axes = self.outline.axes().map(|e| e.name.as_str());
        self.outline
            .axes()
            .find(|entry| entry.name == name)
            .ok_or_else(|| Error::unknown("axis", name, axes))
    }

    fn replace(&self, axis: &Entry, index: usize, value: &str) -> Result<String> {
        check_index(axis, index, axis.values.len())?;
        let place = &axis.place;
        let range = if place.list { place.elements.get(index) } else { Some(&place.value) };
        let mut splices = Splices::default();
        if let Some(range) = range {
            splices.replace(range.clone(), written(&axis.name, value, place.quoted));
        }
        Ok(splices.apply(self.text))
    }

    fn insert(&self, axis: &Entry, index: usize, value: &str) -> Result<String> {
        check_index(axis, index, axis.values.len() + 1)?;
        let (text, place) = (self.text, &axis.place);
        let value = written(&axis.name, value, place.quoted && !axis.values.is_empty());
        let mut splices = Splices::default();
        if !place.list {
            // a single value becomes a list of two
            let old = text.get(place.value.clone()).unwrap_or_default();
            let (first, second) = if index == 0 { (value.as_str(), old) } else { (old, value.as_str()) };
            splices.replace(place.value.clone(), format!("[{first}, {second}]"));
            return Ok(splices.apply(text));
        }
        if let Some(next) = place.elements.get(index) {
            let separator =
                if self.on_own_line(next) { self.new_line(next.start) } else { " ".to_owned() };
            splices.replace(next.start..next.start, format!("{value},{separator}"));
            return Ok(splices.apply(text));
        }
        let close = place.value.end - 1;
        let Some(last) = place.elements.last() else {
            let open = place.value.start + 1;
            let blank = if text.as_bytes().get(open) == Some(&b'#') { " " } else { "" };
            splices.replace(open..open, format!("{value}{blank}"));
            return Ok(splices.apply(text));
        };
        let trailing = comma(text, last.end..close);
        if !self.on_own_line(last) || line_end(text, last.end) >= close {
            let at = trailing.map_or(last.end, |comma| comma + 1);
            let separator = match trailing {
                Some(_) => " ".to_owned(),
                None if self.on_own_line(last) => format!(",{}", self.new_line(last.start)),
                None => ", ".to_owned(),
            };
            // keeps a trailing comma
            let end = if trailing.is_some() { "," } else { "" };
            splices.replace(at..at, format!("{separator}{value}{end}"));
            return Ok(splices.apply(text));
        }
        // adds a line below the last value and its comment
        let end = if trailing.is_some() { "," } else { "" };
        if trailing.is_none() {
            splices.replace(last.end..last.end, ",");
        }
        let at = line_end(text, trailing.unwrap_or(last.end));
        splices.replace(at..at, format!("{}{value}{end}", self.new_line(last.start)));
        Ok(splices.apply(text))
    }

    fn remove(&self, axis: &Entry, index: usize) -> Result<String> {
        check_index(axis, index, axis.values.len())?;
        let (text, place) = (self.text, &axis.place);
        let mut splices = Splices::default();
        let Some(element) = place.elements.get(index) else {
            // the axis is a single value, not a list
            splices.replace(place.value.clone(), "[]");
            return Ok(splices.apply(text));
        };
        let close = place.value.end - 1;
        let next = place.elements.get(index + 1).map_or(close, |next| next.start);
        let after = comma(text, element.end..next);
        let previous = index.checked_sub(1).and_then(|i| place.elements.get(i));
        let before = previous.and_then(|previous| comma(text, previous.end..element.start));
        let blank = |range: Range<usize>| {
            text.get(range).is_some_and(|gap| gap.chars().all(|c| c == ' ' || c == '\t'))
        };
        let mut cut = element.clone();
        match (after, before) {
            (Some(comma), _) if blank(element.end..comma) => {
                cut.end = comma + 1;
                let rest = text.get(cut.end..next).unwrap_or_default();
                let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
                // keeps the blanks before a comment
                if !rest.trim_start_matches([' ', '\t']).starts_with('#') {
                    cut.end += blanks;
                }
            }
            (Some(comma), _) => splices.replace(comma..comma + 1, ""),
            (None, Some(comma)) if blank(comma + 1..element.start) => cut.start = comma,
            (None, Some(comma)) => splices.replace(comma..comma + 1, ""),
            (None, None) => {}
        }
        // removes the whole line if nothing else is on it
        let (start, end) = (line_start(text, cut.start), line_end(text, cut.end));
        if blank(start..cut.start) && blank(cut.end..end) && start > place.value.start && end < close {
            cut = start..next_line(text, cut.end);
        }
        splices.replace(cut, "");
        Ok(splices.apply(text))
    }

    fn shift(&self, axis: &Entry, from: usize, to: usize) -> Result<String> {
        check_index(axis, from, axis.values.len())?;
        check_index(axis, to, axis.values.len())?;
        let mut order: Vec<&Range<usize>> = axis.place.elements.iter().collect();
        if from < order.len() && to < order.len() {
            let moved = order.remove(from);
            order.insert(to, moved);
        }
        let mut splices = Splices::default();
        for (place, element) in axis.place.elements.iter().zip(order) {
            let written = self.text.get(element.clone()).unwrap_or_default();
            splices.replace(place.clone(), written);
        }
        Ok(splices.apply(self.text))
    }

    /// Removes an entry; its comments stay in place.
    fn drop(&self, entry: &Entry) -> String {
        let (text, place) = (self.text, &entry.place);
        let mut kept = Vec::new();
        let mut at = place.value.start;
        for element in &place.elements {
            kept.extend(comments(text, at..element.start));
            at = element.end;
        }
        if place.list {
            kept.extend(comments(text, at..place.value.end));
        }
        let mut splices = Splices::default();
        if place.inline {
            let section = self.outline.sections.iter().rfind(|section| {
                section.span.start < place.key.start && place.value.end <= section.span.end
            });
            let (open, close) = section.map_or((place.key.start, place.value.end), |section| {
                (section.span.start + 1, section.span.end - 1)
            });
            let (mut start, mut end) = (place.key.start, place.value.end);
            let same = |entry: &&Entry| entry.place.value.end <= start && entry.place.key.start >= open;
            let previous = self.outline.entries.iter().rfind(same).map_or(open, |e| e.place.value.end);
            let following = self.outline.entries.iter().find(|e| e.place.key.start >= end);
            let next = following.map_or(close, |e| e.place.key.start.min(close));
            if let Some(comma) = comma(text, end..next) {
                end = comma + 1;
                end += text.get(end..next).map_or(0, |gap| gap.len() - gap.trim_start().len());
            } else if let Some(comma) = comma(text, previous..start) {
                start = comma;
            }
            splices.replace(start..end, "");
            return splices.apply(text);
        }
        let (start, end) = (line_start(text, place.key.start), line_end(text, place.value.end));
        kept.extend(comments(text, place.value.end..end));
        if kept.is_empty() {
            splices.replace(start..next_line(text, end), "");
        } else {
            let blanks = indent(text, start);
            let separator = format!("{}{blanks}", newline(text));
            splices.replace(start..end, format!("{blanks}{}", kept.join(&separator)));
        }
        splices.apply(text)
    }

    /// Replaces the value of an existing setting.
    fn set(&self, entry: &Entry, value: &str) -> String {
        let mut splices = Splices::default();
        let place = &entry.place;
        // a built-in name does not belong under `path`
        if place.path == ["model", "path"] && Model::built_in().iter().any(|m| m.name == value) {
            splices.replace(place.key.clone(), "name");
        }
        splices.replace(place.value.clone(), written(&entry.name, value, place.quoted));
        splices.apply(self.text)
    }

    fn add_setting(&self, name: &str, value: &str) -> String {
        self.add(name, &written(name, value, false))
    }

    /// Adds a new entry in its table. `value` is TOML.
    fn add(&self, name: &str, value: &str) -> String {
        let axis = value.starts_with('[');
        let (table, key) = table_of(name, axis);
        let text = self.text;
        let mut splices = Splices::default();
        let Some(table) = table else {
            let last = self.outline.entries.iter().filter(|e| e.place.header.is_none());
            let last = last.filter(|e| !e.place.inline).map(|e| e.place.value.end).max();
            let first_table = self.outline.sections.iter().find(|section| !section.inline);
            match (last, first_table) {
                (Some(end), _) => self.write_line(&mut splices, end, &format!("{key} = {value}")),
                (None, Some(table)) => {
                    let at = line_start(text, table.span.start);
                    let line_break = newline(text);
                    splices.replace(at..at, format!("{key} = {value}{line_break}{line_break}"));
                }
                (None, None) => {
                    let before = self.line_break_at_end();
                    splices.replace(
                        text.len()..text.len(),
                        format!("{before}{key} = {value}{}", newline(text)),
                    );
                }
            }
            return splices.apply(text);
        };
        let dotted = self.outline.entries.iter().rfind(|entry| {
            entry.place.header.is_none()
                && !entry.place.inline
                && entry.place.path.first().is_some_and(|first| first == table)
        });
        match (self.outline.section(table), dotted) {
            (Some(section), _) if section.inline => {
                self.write_inline(&mut splices, section, &key, value)
            }
            (Some(section), _) => {
                let here = |entry: &&Entry| entry.place.header == Some(section.span.start);
                let last = self.outline.entries.iter().filter(here).map(|e| e.place.value.end).max();
                let at = last.unwrap_or(section.span.end);
                self.write_line(&mut splices, at, &format!("{key} = {value}"));
            }
            (None, Some(entry)) => {
                self.write_line(
                    &mut splices,
                    entry.place.value.end,
                    &format!("{table}.{key} = {value}"),
                );
            }
            (None, None) => {
                let line_break = newline(text);
                let before = self.line_break_at_end();
                let gap = if text.trim().is_empty() { "" } else { line_break };
                splices.replace(
                    text.len()..text.len(),
                    format!("{before}{gap}[{table}]{line_break}{key} = {value}{line_break}"),
                );
            }
        }
        splices.apply(text)
    }

    /// Inserts a line below the line of `at`.
    fn write_line(&self, splices: &mut Splices, at: usize, line: &str) {
        let end = line_end(self.text, at);
        splices.replace(end..end, format!("{}{line}", self.new_line(at)));
    }

    fn write_inline(&self, splices: &mut Splices, section: &Section, key: &str, value: &str) {
        let inside = |entry: &&Entry| {
            section.span.start < entry.place.key.start && entry.place.value.end < section.span.end
        };
        match self.outline.entries.iter().filter(inside).map(|e| e.place.value.end).max() {
            Some(end) => splices.replace(end..end, format!(", {key} = {value}")),
            None => {
                let open = section.span.start + 1;
                splices.replace(open..open, format!(" {key} = {value} "));
            }
        }
    }

    fn on_own_line(&self, element: &Range<usize>) -> bool {
        let before = self.text.get(line_start(self.text, element.start)..element.start);
        before.is_some_and(|before| before.trim().is_empty())
    }

    /// Newline plus the indentation of the line of `at`.
    fn new_line(&self, at: usize) -> String {
        format!("{}{}", newline(self.text), indent(self.text, at))
    }

    /// Newline if the text does not end with one.
    fn line_break_at_end(&self) -> &'static str {
        if self.text.is_empty() || self.text.ends_with('\n') { "" } else { newline(self.text) }
    }
}

fn check_index(axis: &Entry, index: usize, count: usize) -> Result<()> {
    if index < count {
        return Ok(());
    }
    Err(Error::input(format!(
        "axis {} has {} values; there is no value {}",
        axis.name,
        axis.values.len(),
        index + 1
    )))
}
