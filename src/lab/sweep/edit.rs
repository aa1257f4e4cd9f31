//! Edits of an experiment's text. Each returns a new text with a minimal change: comments, order and formatting stay,
//! including comments of removed entries. [`super::Experiment::from_str`] validates the result and reports line and
//! column.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Array, RawString, Value};

use super::document::{Document, DocumentEntry, DocumentSection, EntryKind};
use base::error::{Error, Result};
use machine::hardware::Target;
use model::Model;
use table::Spec;
use table::options::variables::NCCL_CHOICES;
use table::options::{OPTIONS, OptionKind, option};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentEdit {
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
pub fn apply(text: &str, path: &Path, edit: &ExperimentEdit) -> Result<String> {
    let document = Document::parse(text, path)?;
    match edit {
        ExperimentEdit::Replace { axis, index, value } => document.edit_axis(axis, |axis, list| {
            check_index(axis, *index, list.len())?;
            list.replace(*index, toml_value(&axis.name, value, is_quoted(list)));
            Ok(())
        }),
        ExperimentEdit::Insert { axis, index, value } => document.edit_axis(axis, |axis, list| {
            check_index(axis, *index, list.len() + 1)?;
            insert(list, *index, toml_value(&axis.name, value, is_quoted(list)));
            Ok(())
        }),
        ExperimentEdit::Remove { axis, index } => document.edit_axis(axis, |axis, list| {
            check_index(axis, *index, list.len())?;
            remove(list, *index);
            Ok(())
        }),
        ExperimentEdit::Move { axis, from, to } => document.edit_axis(axis, |axis, list| {
            check_index(axis, *from, list.len())?;
            check_index(axis, *to, list.len())?;
            let mut values: Vec<Value> = list.iter().cloned().collect();
            let moved = values.remove(*from);
            values.insert(*to, moved);
            // each place keeps its comments
            values.into_iter().enumerate().for_each(|(index, value)| drop(list.replace(index, value)));
            Ok(())
        }),
        ExperimentEdit::Values { axis, values } => document.edit_axis(axis, |axis, list| {
            for (index, value) in values.iter().enumerate() {
                let new = toml_value(&axis.name, value, is_quoted(list));
                match axis.values.get(index) {
                    Some(old) if old == value => {}
                    Some(_) => drop(list.replace(index, new)),
                    None => insert(list, index, new),
                }
            }
            (values.len()..list.len()).rev().for_each(|index| remove(list, index));
            Ok(())
        }),
        ExperimentEdit::AddAxis { axis, values } => match document.get(axis) {
            Some(entry) if entry.kind == EntryKind::Axis => Err(Error::input_help(
                format!("{axis} is an axis already"),
                "add values to it, or remove it first",
            )),
            Some(entry) => Document::parse(&document.without(entry)?, path)?.with_axis(axis, values),
            None => document.with_axis(axis, values),
        },
        ExperimentEdit::Drop { name } => {
            let names = document.entries.iter().map(|entry| entry.name.as_str());
            let entry =
                document.get(name).ok_or_else(|| Error::unknown("setting or axis", name, names))?;
            document.without(entry)
        }
        ExperimentEdit::Set { name, value } => match document.get(name) {
            Some(entry) if entry.kind == EntryKind::Axis => {
                Ok(Document::parse(&document.without(entry)?, path)?.with_setting(name, value))
            }
            Some(entry) => Ok(document.with_value(entry, value)),
            None => Ok(document.with_setting(name, value)),
        },
    }
}

fn check_index(axis: &DocumentEntry, index: usize, count: usize) -> Result<()> {
    if index < count {
        return Ok(());
    }
    let (name, values) = (&axis.name, axis.values.len());
    Err(Error::input(format!("axis {name} has {values} values, so no value {}", index + 1)))
}

impl Document<'_> {
    /// Changes the values of an axis. A single value counts as a list, and becomes one when others join it.
    fn edit_axis(
        &self,
        name: &str,
        change: impl FnOnce(&DocumentEntry, &mut Array) -> Result<()>,
    ) -> Result<String> {
        let axis = self.axes().find(|entry| entry.name == name);
        let axis =
            axis.ok_or_else(|| Error::unknown("axis", name, self.axes().map(|e| e.name.as_str())))?;
        let written = self.text.get(axis.span.clone()).unwrap_or_default();
        let is_list = axis.value.is_array();
        let list = if is_list { written.to_owned() } else { format!("[{written}]") };
        // parsed apart from the document, so that it owns its comments
        let mut list: Value =
            list.parse().map_err(|_| Error::input(format!("axis {name} is not a list")))?;
        let Some(values) = list.as_array_mut() else { return Ok(self.text.to_owned()) };
        change(axis, values)?;
        let single = values.get(0).filter(|_| !is_list && values.len() == 1).map(ToString::to_string);
        let mut new = single.unwrap_or_else(|| list.to_string());
        if newline(self.text) == "\r\n" {
            // toml_edit writes no carriage returns
            new = new.replace('\n', "\r\n");
        }
        Ok(replaced(self.text, axis.span.clone(), &new))
    }

    fn with_axis(&self, name: &str, values: &[String]) -> Result<String> {
        let quoted = values.iter().any(|value| toml_value(name, value, false).is_str());
        let mut list = Array::new();
        for (index, value) in values.iter().enumerate() {
            insert(&mut list, index, toml_value(name, value, quoted));
        }
        Ok(self.with_entry(name, &Value::Array(list)))
    }

    fn with_setting(&self, name: &str, value: &str) -> String {
        self.with_entry(name, &toml_value(name, value, false))
    }

    /// Replaces the value of a setting.
    fn with_value(&self, entry: &DocumentEntry, value: &str) -> String {
        let new = toml_value(&entry.name, value, entry.value.is_str()).to_string();
        let text = replaced(self.text, entry.span.clone(), &new);
        // a built-in name does not belong under `path`
        if entry.path == ["model", "path"] && Model::built_in().iter().any(|model| model.name == value) {
            return replaced(&text, entry.key_span.clone(), "name");
        }
        text
    }

    /// Removes an entry, and `[model]` if that leaves it empty, which would be invalid. Comments stay in place.
    fn without(&self, entry: &DocumentEntry) -> Result<String> {
        let text = self.without_entry(entry);
        let rest = Document::parse(&text, self.path)?;
        match rest.section("model") {
            Some(section) if !rest.entries.iter().any(|entry| entry.path[0] == "model") => {
                Ok(rest.without_lines(section.span.clone(), Vec::new()))
            }
            _ => Ok(text),
        }
    }

    fn without_entry(&self, entry: &DocumentEntry) -> String {
        if entry.inline {
            return self.without_inline(entry);
        }
        let mut kept = Vec::new();
        if let Some(list) = entry.value.as_array() {
            let mut at = entry.span.start;
            for element in list.iter().filter_map(Value::span) {
                kept.extend(comments(self.text, at..element.start));
                at = element.end;
            }
            kept.extend(comments(self.text, at..entry.span.end));
        }
        self.without_lines(entry.key_span.start..entry.span.end, kept)
    }

    /// Removes whole lines except their comments: those in `kept`, and one after the range.
    fn without_lines<'t>(&'t self, range: Range<usize>, mut kept: Vec<&'t str>) -> String {
        let text = self.text;
        let (start, end) = (line_start(text, range.start), line_end(text, range.end));
        kept.extend(comments(text, range.end..end));
        if kept.is_empty() {
            return replaced(text, start..next_line(text, end), "");
        }
        let blanks = indent(text, start);
        replaced(text, start..end, &format!("{blanks}{}", kept.join(&self.new_line(start))))
    }

    /// Removes an entry of an inline table, with one comma.
    fn without_inline(&self, entry: &DocumentEntry) -> String {
        let (mut start, mut end) = (key_start(self.text, entry.key_span.start), entry.span.end);
        let inside = |section: &&DocumentSection| section.span.start < start && end <= section.span.end;
        let table =
            self.sections.iter().rfind(inside).map_or(start..end, |section| section.span.clone());
        let before =
            self.entries.iter().map(|e| e.span.end).filter(|at| *at <= start && *at > table.start);
        let after =
            self.entries.iter().map(|e| e.key_span.start).filter(|at| *at >= end && *at < table.end);
        let previous = before.max().unwrap_or(table.start + 1);
        let next = after.min().unwrap_or(table.end - 1);
        if let Some(comma) = comma(self.text, end..next) {
            let rest = self.text.get(comma + 1..next).unwrap_or_default();
            end = comma + 1 + rest.len() - rest.trim_start().len();
        } else if let Some(comma) = comma(self.text, previous..start) {
            start = comma;
        }
        replaced(self.text, start..end, "")
    }

    /// Adds a new entry in its table.
    fn with_entry(&self, name: &str, value: &Value) -> String {
        let text = self.text;
        let (table, key) = table_of(name, value.is_array());
        let section = table.and_then(|table| self.section(table));
        let within = section.map_or(0, |section| section.span.start);
        // an entry of a nested table in braces ends with the braces
        let end_of = |entry: &DocumentEntry| {
            let end = entry.span.end;
            let braces =
                self.sections.iter().filter(|section| section.inline).map(|section| &section.span);
            let nested =
                braces.filter(|span| within < span.start && span.start < end && end <= span.end);
            nested.map(|span| span.end).max().unwrap_or(end)
        };
        let last =
            |of: &dyn Fn(&&DocumentEntry) -> bool| self.entries.iter().filter(of).map(end_of).max();
        let top = |entry: &&DocumentEntry| entry.header.is_none() && !entry.inline;
        match (table, section) {
            (Some(_), Some(section)) if section.inline => {
                let inside = |entry: &&DocumentEntry| {
                    section.span.start < entry.key_span.start && entry.span.end < section.span.end
                };
                let (at, entry) = match last(&inside) {
                    Some(end) => (end, format!(", {key} = {value}")),
                    None => (section.span.start + 1, format!(" {key} = {value} ")),
                };
                replaced(text, at..at, &entry)
            }
            (Some(_), Some(section)) => {
                let at =
                    last(&|entry| entry.header == Some(section.span.start)).unwrap_or(section.span.end);
                self.with_line(at, &format!("{key} = {value}"))
            }
            (Some(table), None) => match last(&|entry| top(entry) && entry.path[0] == table) {
                Some(at) => self.with_line(at, &format!("{table}.{key} = {value}")),
                None => {
                    let gap = if text.trim().is_empty() { "" } else { newline(text) };
                    self.with_last_line(&format!("{gap}[{table}]{}{key} = {value}", newline(text)))
                }
            },
            (None, _) => match (last(&top), self.sections.iter().find(|section| !section.inline)) {
                (Some(at), _) => self.with_line(at, &format!("{key} = {value}")),
                (None, Some(table)) => {
                    let at = line_start(text, table.span.start);
                    replaced(text, at..at, &format!("{key} = {value}{}", newline(text).repeat(2)))
                }
                (None, None) => self.with_last_line(&format!("{key} = {value}")),
            },
        }
    }

    /// Inserts a line below the line of `at`.
    fn with_line(&self, at: usize, line: &str) -> String {
        let end = line_end(self.text, at);
        replaced(self.text, end..end, &format!("{}{line}", self.new_line(at)))
    }

    fn with_last_line(&self, line: &str) -> String {
        let (text, line_break) = (self.text, newline(self.text));
        let before = if text.is_empty() || text.ends_with('\n') { "" } else { line_break };
        format!("{text}{before}{line}{line_break}")
    }

    /// Newline plus the indentation of the line of `at`.
    fn new_line(&self, at: usize) -> String {
        format!("{}{}", newline(self.text), indent(self.text, at))
    }
}

/// Inserts a value; on its own line if its neighbours are.
fn insert(list: &mut Array, index: usize, value: Value) {
    let count = list.len();
    if let Some(next) = list.get_mut(index) {
        let before = prefix(next);
        let between = own_line(&before).unwrap_or(" ").to_owned();
        next.decor_mut().set_prefix(between);
        list.insert_formatted(index, value.decorated(before, ""));
    } else if let Some(last) = list.get_mut(count.saturating_sub(1)) {
        let before = prefix(last);
        let after = suffix(last);
        let has_comma = list.trailing_comma();
        let tail = if has_comma { raw(list.trailing()) } else { after };
        // a comment in the last value's line stays there
        let (line, rest) = match own_line(&before) {
            Some(_) => tail.split_at(tail.find(['\r', '\n']).unwrap_or(0)),
            None => ("", tail.as_str()),
        };
        let new = format!("{line}{}", own_line(&before).unwrap_or(" "));
        if has_comma {
            list.set_trailing(rest);
            list.push_formatted(value.decorated(new, ""));
        } else {
            if let Some(last) = list.get_mut(count - 1) {
                last.decor_mut().set_suffix("");
            }
            list.push_formatted(value.decorated(new, rest));
        }
    } else {
        let blank = if raw(list.trailing()).starts_with('#') { " " } else { "" };
        list.push_formatted(value.decorated("", blank));
    }
}

/// Removes a value, but not its comments.
fn remove(list: &mut Array, index: usize) {
    let removed = list.remove(index);
    let (before, after) = (prefix(&removed), suffix(&removed));
    let count = list.len();
    let join = |rest: &str| {
        let before = if before.contains(['\n', '#']) { before.as_str() } else { "" };
        format!("{before}{after}{rest}")
    };
    if let Some(next) = list.get_mut(index) {
        let rest = prefix(next);
        let has_comments = after.contains('#') || rest.contains('#');
        next.decor_mut().set_prefix(if has_comments { join(&rest) } else { before.clone() });
        return;
    }
    let has_comma = list.trailing_comma();
    let rest = if has_comma { raw(list.trailing()) } else { String::new() };
    let has_comments = [&before, &after, &rest].iter().any(|text| text.contains('#'));
    let tail = if has_comments { join(&rest) } else { format!("{after}{rest}") };
    match count.checked_sub(1).and_then(|last| list.get_mut(last)) {
        Some(last) if !has_comma => {
            let tail = suffix(last) + &tail;
            last.decor_mut().set_suffix(tail);
        }
        Some(_) => list.set_trailing(tail),
        None => {
            list.set_trailing_comma(false);
            list.set_trailing(if has_comments { tail } else { String::new() });
        }
    }
}

fn raw(text: &RawString) -> String {
    text.as_str().unwrap_or_default().to_owned()
}

/// Blanks, comments and newlines between the comma before a value and the value.
fn prefix(value: &Value) -> String {
    value.decor().prefix().map(raw).unwrap_or_default()
}

/// Blanks, comments and newlines between a value and the comma or bracket after it.
fn suffix(value: &Value) -> String {
    value.decor().suffix().map(raw).unwrap_or_default()
}

/// Last newline of a prefix, with the indentation after it.
fn own_line(prefix: &str) -> Option<&str> {
    let at = prefix.rfind('\n')?;
    prefix.get(if prefix[..at].ends_with('\r') { at - 1 } else { at }..)
}

fn replaced(text: &str, range: Range<usize>, with: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(range, with);
    text
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Offset of the end of the line of `at`, excluding the newline.
fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    if text[at..end].ends_with('\r') { end - 1 } else { end }
}

fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

fn indent(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Start of a dotted key whose last part begins at `at`.
fn key_start(text: &str, mut at: usize) -> usize {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    loop {
        let before = text[..at].trim_end_matches([' ', '\t']);
        let Some(before) = before.strip_suffix('.') else { return at };
        let before = before.trim_end_matches([' ', '\t']);
        at = match before.chars().next_back() {
            Some(quote @ ('"' | '\'')) => before[..before.len() - 1].rfind(quote).unwrap_or_default(),
            _ => before.trim_end_matches(is_bare).len(),
        };
    }
}

/// Offset of the comma in a gap between values (blanks, comments, newlines and at most one comma).
fn comma(text: &str, gap: Range<usize>) -> Option<usize> {
    let mut at = gap.start;
    for line in text.get(gap)?.split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default();
        if let Some(comma) = code.find(',') {
            return Some(at + comma);
        }
        at += line.len();
    }
    None
}

/// Comments in a gap between values.
fn comments(text: &str, gap: Range<usize>) -> Vec<&str> {
    let lines = text.get(gap).unwrap_or_default().lines();
    lines.filter_map(|line| line.find('#').map(|at| line[at..].trim_end())).collect()
}

/// Table of a new entry (`None` for the top of the file) and its key there.
fn table_of(name: &str, is_axis: bool) -> (Option<&str>, String) {
    let key = |name: &str| toml_edit::Key::new(name).to_string();
    match name.split_once('.') {
        Some((table @ ("env" | "set" | "links"), rest)) => (Some(table), key(rest)),
        _ if is_axis => (Some("grid"), key(name)),
        _ if name == "model" => (Some("model"), "name".to_owned()),
        _ if name == "rounds" || option(name).is_some_and(|option| option.about.in_workload) => {
            (Some("workload"), key(name))
        }
        _ => (None, key(name)),
    }
}

fn is_quoted(list: &Array) -> bool {
    list.get(0).is_some_and(Value::is_str)
}

/// Value as TOML. Bare are flags, whole numbers for numeric options, and numbers of variables unless their other
/// values are strings. Everything else is quoted.
fn toml_value(name: &str, value: &str, others_quoted: bool) -> Value {
    let kind = option(name).map(|option| option.kind);
    let is_whole = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    let is_bare = match kind {
        Some(OptionKind::Flag) => matches!(value, "true" | "false"),
        Some(OptionKind::Count | OptionKind::Large) => is_whole,
        Some(OptionKind::Text) => false,
        None if name == "rounds" => is_whole,
        None if name.starts_with("env.") || name.starts_with("set.") => {
            !others_quoted && (is_whole || is_plain_decimal(value))
        }
        None => false,
    };
    let bare = if is_bare { value.parse().ok() } else { None };
    bare.unwrap_or_else(|| Value::from(value)).decorated("", "")
}

/// True for `digits.digits`, which TOML preserves exactly.
fn is_plain_decimal(value: &str) -> bool {
    let is_whole = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    value.strip_prefix('-').unwrap_or(value).split_once('.').is_some_and(|(before, after)| {
        is_whole(before) && is_whole(after) && (before == "0" || !before.starts_with('0'))
    })
}

/// All names that can be an axis, with a short description: options, NCCL variables, and the values of the hardware
/// profile and stack that `spec` is simulated on.
pub fn axis_names(spec: Option<&Spec>) -> Vec<(String, String)> {
    let options = OPTIONS.iter().map(|option| (option.name.to_owned(), option.help_with_values()));
    let variables = NCCL_CHOICES.iter().map(|variable| {
        let values =
            if variable.values == ["0", "1"] { String::new() } else { variable.values.join(" ") };
        let gap = if values.is_empty() { "" } else { ": " };
        (format!("env.{}", variable.name), format!("{}{gap}{values}", variable.about))
    });
    let described = spec.and_then(|spec| Target::from_spec(spec).ok()).map(|target| target.described());
    let values = described.into_iter().flatten().map(|value| {
        // without the digits left by rounding
        let number = value.value.parse::<f64>().ok().filter(|_| value.value.len() > 8);
        let rounded = number.and_then(|number| format!("{number:.5e}").parse::<f64>().ok());
        let short = rounded.map_or_else(|| value.value.clone(), |number| number.to_string());
        (format!("set.{}", value.key), format!("{}: {short}", value.about))
    });
    options.chain(variables).chain(values).collect()
}

/// Splits a typed list at blanks or commas, respecting quotes. Links and variables contain commas, so for them a
/// comma separates only before a blank. `1..64*2` expands to 1 2 4 8 16 32 64, `1..4` to 1 2 3 4. Drops duplicates.
pub fn split_values(name: &str, typed: &str) -> Vec<String> {
    let at_commas = name != "link" && !name.starts_with("env.") && !name.starts_with("links.");
    let (mut words, mut word, mut is_quoted) = (Vec::new(), (String::new(), false), false);
    for c in typed.chars() {
        match c {
            '"' => (is_quoted, word.1) = (!is_quoted, true),
            c if is_quoted => word.0.push(c),
            c if c.is_whitespace() || (at_commas && c == ',') => words.push(std::mem::take(&mut word)),
            // brackets around a TOML list, but not those of `ladder:[0+2]`
            '[' if word.0.is_empty() => {}
            ']' if !word.0.contains('[') => {}
            c => word.0.push(c),
        }
    }
    words.push(word);
    let mut values: Vec<String> = Vec::new();
    for (word, was_quoted) in words {
        let several = match was_quoted {
            true => vec![word],
            false => {
                let word = if at_commas { word.as_str() } else { word.trim_end_matches(',') };
                range(word)
                    .unwrap_or_else(|| (!word.is_empty()).then(|| word.to_owned()).into_iter().collect())
            }
        };
        let new: Vec<String> = several.into_iter().filter(|value| !values.contains(value)).collect();
        values.extend(new);
    }
    values
}

/// Expands `1..64*2` or `1..4`, up to 64 values.
fn range(text: &str) -> Option<Vec<String>> {
    let (from, to) = text.split_once("..")?;
    let (to, factor) = to.split_once('*').map_or((to, None), |(to, factor)| (to, Some(factor)));
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    let factor: Option<u64> = factor.map(str::parse).transpose().ok()?;
    if from > to || from == 0 || factor.is_some_and(|factor| factor < 2) {
        return None;
    }
    let next = |n: &u64| factor.map_or(n.checked_add(1), |factor| n.checked_mul(factor));
    let values: Vec<u64> =
        std::iter::successors(Some(from), next).take_while(|n| *n <= to).take(65).collect();
    (values.len() <= 64).then(|| values.iter().map(u64::to_string).collect())
}

/// Maximum number of undo steps.
const UNDO_STEPS: usize = 500;

/// Text of an experiment during editing, with its undo and redo history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// Text on disk, or of the built-in experiment.
    saved: String,
    text: String,
    past: Vec<String>,
    future: Vec<String>,
}

impl Revisions {
    /// Starts with an unedited text.
    pub fn new(text: String) -> Self {
        Self { saved: text.clone(), text, past: Vec::new(), future: Vec::new() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Text as last read or saved.
    pub fn saved(&self) -> &str {
        &self.saved
    }

    /// True if the text differs from the last read or saved one.
    pub fn is_edited(&self) -> bool {
        self.text != self.saved
    }

    /// Applies edits as one undo step. Returns true if the text changed.
    pub fn edit(&mut self, path: &Path, edits: &[ExperimentEdit]) -> Result<bool> {
        let edited = edits.iter().try_fold(self.text.clone(), |text, edit| apply(&text, path, edit));
        Ok(self.replace(edited?))
    }

    /// Replaces the whole text, as one undo step. Returns true if it changed.
    pub fn replace(&mut self, text: String) -> bool {
        if text == self.text {
            return false;
        }
        self.past.push(std::mem::replace(&mut self.text, text));
        if self.past.len() > UNDO_STEPS {
            self.past.remove(0);
        }
        self.future.clear();
        true
    }

    pub fn can_undo(&self) -> bool {
        !self.past.is_empty()
    }

    /// Undoes the last edit. Returns false if there is none.
    pub fn undo(&mut self) -> bool {
        let Some(text) = self.past.pop() else { return false };
        self.future.push(std::mem::replace(&mut self.text, text));
        true
    }

    /// Redoes the last undone edit. Returns false if there is none.
    pub fn redo(&mut self) -> bool {
        let Some(text) = self.future.pop() else { return false };
        self.past.push(std::mem::replace(&mut self.text, text));
        true
    }

    /// Marks a text of these revisions as saved. Later edits stay unsaved.
    pub fn wrote(&mut self, text: String) {
        self.saved = text;
    }

    /// Adopts the file's new text if nothing was edited. With unsaved edits it keeps the old base, so that saving
    /// still detects the change by someone else.
    pub fn reread(&mut self, text: String) {
        if !self.is_edited() {
            *self = Self::new(text);
        } else if text == self.text {
            self.saved = text;
        }
    }
}
