//! Annotations of runs: tags, notes, and deleted rows of batches. One file in the runs directory,
//! `annotations.jsonl`, gets one line per edit, appended under a lock. Records are never rewritten, and two processes
//! never overwrite each other's tags. Replaying the lines in order gives the state.
//!
//! ```text
//! {"version":1,"at":"2026-11-21T04:30:12.000000Z","runs":["ID","BATCH:3-9"],"tag":["good"],"note":"why"}
//! ```
//!
//! An edit is one line for any number of runs, which makes it atomic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rangemap::{RangeInclusiveMap, RangeInclusiveSet};
use serde::{Deserialize, Serialize};

use super::directory::Store;
use super::log;
use base::error::{Error, Result};

const VERSION: u32 = 1;

pub(super) const FILE: &str = "annotations.jsonl";

/// Maximum length of a tag, in characters.
const LONGEST_TAG: usize = 40;

/// Maximum length of a note, in characters.
const LONGEST_NOTE: usize = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    pub tags: BTreeSet<String>,
    /// Empty without a note.
    pub note: String,
    /// Experiments that reused the run instead of running their cell again.
    pub experiments: BTreeSet<String>,
}

impl Annotation {
    fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.note.is_empty() && self.experiments.is_empty()
    }

    pub fn tags_in_a_line(&self) -> String {
        self.tags.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnotationEdit {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tag: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untag: Vec<String>,
    /// New note; empty removes it, `None` keeps the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Experiments that reused the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) experiment: Vec<String>,
}

impl AnnotationEdit {
    /// Parses `good, -bad`: tags to add, and tags to remove with a leading `-`.
    ///
    /// # Errors
    ///
    /// Returns an input error for a tag that is empty, too long, or contains characters with a meaning in filters.
    pub fn tags(text: &str) -> Result<Self> {
        let mut edit = Self::default();
        for word in text.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            match word.strip_prefix('-') {
                Some(tag) => edit.untag.push(checked_tag(tag)?),
                None => edit.tag.push(checked_tag(word.strip_prefix('+').unwrap_or(word))?),
            }
        }
        Ok(edit)
    }

    pub fn note(text: &str) -> Self {
        Self { note: Some(text.trim().to_owned()), ..Self::default() }
    }

    /// Edit that records an experiment that reused the runs.
    pub fn found_by(experiment: &str) -> Self {
        Self { experiment: vec![experiment.to_owned()], ..Self::default() }
    }

    /// Edit that restores the tags and the note from before this one. Experiments are kept.
    pub fn inverse(&self, before: Option<&Annotation>) -> Self {
        let had = |tag: &&String| before.is_some_and(|before| before.tags.contains(*tag));
        let note = || before.map_or_else(String::new, |before| before.note.clone());
        Self {
            tag: self.untag.iter().filter(had).cloned().collect(),
            untag: self.tag.iter().filter(|tag| !had(tag)).cloned().collect(),
            note: self.note.as_ref().map(|_| note()),
            experiment: Vec::new(),
        }
    }

    fn apply(&self, annotation: &mut Annotation) {
        annotation.experiments.extend(self.experiment.iter().cloned());
        annotation.tags.extend(self.tag.iter().cloned());
        annotation.tags.retain(|tag| !self.untag.contains(tag));
        if let Some(note) = &self.note {
            // a file written by another program may hold a longer one
            annotation.note = note.chars().take(LONGEST_NOTE).collect();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tag.is_empty() && self.untag.is_empty() && self.note.is_none() && self.experiment.is_empty()
    }
}

fn checked_tag(tag: &str) -> Result<String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.+/#=@%".contains(c);
    if tag.is_empty() || !tag.chars().all(fits) || tag.chars().count() > LONGEST_TAG {
        return Err(Error::input_help(
            format!("'{tag}' cannot be a tag"),
            format!(
                "a tag is letters, digits and any of -_.+/#=@% without blanks, at most {LONGEST_TAG}"
            ),
        ));
    }
    Ok(tag.to_owned())
}

/// Snapshot of all annotations of a runs directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    of_runs: HashMap<String, Annotation>,
    /// Annotations of batch rows, by batch. Consecutive rows are one range, so an edit costs time in proportion to
    /// its line, not to its rows.
    of_rows: HashMap<String, RangeInclusiveMap<u32, Annotation>>,
    deleted: HashMap<String, RangeInclusiveSet<u32>>,
    /// Runs of each deletion as written in its line, oldest first.
    pub(super) deletions: Vec<Vec<String>>,
    /// Unreadable lines, with the reason.
    pub damaged: Vec<String>,
}

impl Annotations {
    pub fn of(&self, run: &str) -> Option<&Annotation> {
        match row_of(run) {
            Some((batch, row)) => self.of_rows.get(batch)?.get(&row),
            None => self.of_runs.get(run),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.of_runs.is_empty() && self.of_rows.values().all(|rows| rows.is_empty())
    }

    /// Adds the annotations of another directory.
    pub fn extend(&mut self, other: &Self) {
        self.of_runs
            .extend(other.of_runs.iter().map(|(run, annotation)| (run.clone(), annotation.clone())));
        for (batch, rows) in &other.of_rows {
            let rows = rows.iter().map(|(rows, annotation)| (rows.clone(), annotation.clone()));
            self.of_rows.entry(batch.clone()).or_default().extend(rows);
        }
    }

    /// Tags in use, sorted, with the number of runs.
    pub fn tags(&self) -> BTreeMap<&str, usize> {
        let mut tags = BTreeMap::new();
        let rows = self.of_rows.values().flat_map(|rows| rows.iter());
        let rows = rows.map(|(rows, annotation)| (annotation, (rows.end() - rows.start()) as usize + 1));
        for (annotation, runs) in self.of_runs.values().map(|annotation| (annotation, 1)).chain(rows) {
            for tag in &annotation.tags {
                *tags.entry(tag.as_str()).or_default() += runs;
            }
        }
        tags
    }

    /// Applies an edit. `runs` are ids; consecutive rows may be one word.
    pub fn edit(&mut self, runs: &[String], edit: &AnnotationEdit) {
        for run in runs {
            let Some((batch, rows)) = rows_of(run) else {
                let annotation = self.of_runs.entry(run.clone()).or_default();
                edit.apply(annotation);
                if annotation.is_empty() {
                    self.of_runs.remove(run);
                }
                continue;
            };
            let there = self.of_rows.entry(batch.to_owned()).or_default();
            let within = |part: &RangeInclusive<u32>| {
                *part.start().max(rows.start())..=*part.end().min(rows.end())
            };
            let annotated = there.overlapping(&rows).map(|(part, known)| (within(part), known.clone()));
            let bare = there.gaps(&rows).map(|part| (part, Annotation::default()));
            for (part, mut annotation) in annotated.chain(bare).collect::<Vec<_>>() {
                edit.apply(&mut annotation);
                match annotation.is_empty() {
                    true => there.remove(part),
                    false => there.insert(part, annotation),
                }
            }
        }
    }

    /// Deleted rows of a batch; `None` if there are none.
    pub(super) fn deleted(&self, batch: &str) -> Option<&RangeInclusiveSet<u32>> {
        self.deleted.get(batch).filter(|rows| !rows.is_empty())
    }

    pub(super) fn is_deleted(&self, batch: &str, row: u32) -> bool {
        self.deleted.get(batch).is_some_and(|rows| rows.contains(&row))
    }

    /// Batches with deleted rows, sorted.
    pub(super) fn batches_with_deleted(&self) -> Vec<&str> {
        let some = self.deleted.iter().filter(|(_, rows)| !rows.is_empty());
        let mut batches: Vec<&str> = some.map(|(batch, _)| batch.as_str()).collect();
        batches.sort_unstable();
        batches
    }

    fn apply(&mut self, line: AnnotationLine) {
        if let Some(deleted) = line.deleted {
            for (batch, rows) in line.runs.iter().filter_map(|run| rows_of(run)) {
                let there = self.deleted.entry(batch.to_owned()).or_default();
                match deleted {
                    true => there.insert(rows),
                    false => there.remove(rows),
                }
            }
        }
        if !line.edit.is_empty() {
            self.edit(&line.runs, &line.edit);
        }
        if line.deleted == Some(true) {
            self.deletions.push(line.runs);
        }
    }
}

/// Line of the file: one edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnnotationLine {
    version: u32,
    /// Time, RFC 3339 in UTC.
    #[serde(default)]
    at: String,
    /// Ids; consecutive rows as `BATCH:FIRST-LAST`.
    runs: Vec<String>,
    #[serde(flatten)]
    edit: AnnotationEdit,
    /// True if the runs were deleted, false if restored. Only for rows of batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

/// Splits an id such as `BATCH:ROW`; `None` for other ids.
pub(super) fn row_of(run: &str) -> Option<(&str, u32)> {
    let (batch, row) = run.split_once(':')?;
    Some((batch, row.parse().ok()?))
}

/// Joins ids of consecutive rows into ranges.
fn compressed(runs: &[String]) -> Vec<String> {
    let follows = |before: &String, run: &String| {
        let next = row_of(before).and_then(|(batch, row)| Some((batch, row.checked_add(1)?)));
        next.is_some() && next == row_of(run)
    };
    let word = |runs: &[String]| match (&runs[0], runs.last().and_then(|run| row_of(run))) {
        (first, Some((_, last))) if runs.len() > 1 => format!("{first}-{last}"),
        (only, _) => only.clone(),
    };
    runs.chunk_by(follows).map(word).collect()
}

/// Parses a word of [`compressed`] into its batch and rows; `None` for a run's id.
pub(super) fn rows_of(word: &str) -> Option<(&str, RangeInclusive<u32>)> {
    if let Some((batch, row)) = row_of(word) {
        return Some((batch, row..=row));
    }
    let (batch, rows) = word.split_once(':')?;
    let (first, last) = rows.split_once('-')?;
    let rows = first.parse().ok()?..=last.parse().ok()?;
    (!rows.is_empty()).then_some((batch, rows))
}

fn parse(path: &Path, bytes: &[u8]) -> Annotations {
    let mut all = Annotations::default();
    for (at, line) in log::parse::<serde_json::Value>(bytes).enumerate() {
        // lines of a newer version are skipped
        if line.as_ref().is_ok_and(|line| line["version"].as_u64() > Some(VERSION.into())) {
            continue;
        }
        match line.and_then(serde_json::from_value::<AnnotationLine>) {
            Ok(line) => all.apply(line),
            Err(why) => all.damaged.push(format!(
                "{}:{}: {why}: this edit of tags or notes is lost, the others are kept",
                path.display(),
                at + 1
            )),
        }
    }
    all
}

impl Store {
    /// Current tags, notes and deleted rows. Unreadable lines are in `damaged`.
    pub fn annotations(&self) -> Arc<Annotations> {
        let path = self.annotations_path();
        self.annotated.get(&path, |read| match read {
            Ok(bytes) => parse(&path, &bytes),
            Err(e) => Annotations {
                damaged: vec![format!("{}: {e}", path.display())],
                ..Annotations::default()
            },
        })
    }

    /// Changes the tags and notes of these runs (full ids), all or none.
    ///
    /// # Errors
    ///
    /// Returns an input error for an invalid tag or a note that is too long, and a failure if the file cannot be
    /// appended to.
    pub fn annotate(&self, runs: &[String], edit: &AnnotationEdit) -> Result<()> {
        if runs.is_empty() || edit.is_empty() {
            return Ok(());
        }
        for tag in edit.tag.iter().chain(&edit.untag) {
            checked_tag(tag)?;
        }
        let length = edit.note.as_ref().map_or(0, |note| note.chars().count());
        if length > LONGEST_NOTE {
            return Err(Error::input(format!(
                "the note has {length} characters; at most {LONGEST_NOTE} are kept"
            )));
        }
        self.append(AnnotationLine { edit: edit.clone(), ..self.line(runs) })
    }

    /// Records that an experiment reused these runs (full ids). Skips runs that already have it. Fails if the file
    /// cannot be appended to.
    pub fn found_by(&self, runs: &[String], experiment: &str) -> Result<()> {
        let known = self.annotations();
        let is_known = |run: &&String| known.of(run).is_some_and(|a| a.experiments.contains(experiment));
        let runs: Vec<String> = runs.iter().filter(|run| !is_known(run)).cloned().collect();
        self.annotate(&runs, &AnnotationEdit::found_by(experiment))
    }

    pub(super) fn mark_deleted(&self, runs: &[String], deleted: bool) -> Result<()> {
        self.append(AnnotationLine { deleted: Some(deleted), ..self.line(runs) })
    }

    fn line(&self, runs: &[String]) -> AnnotationLine {
        AnnotationLine {
            version: VERSION,
            at: self.now(),
            runs: compressed(runs),
            ..AnnotationLine::default()
        }
    }

    fn append(&self, line: AnnotationLine) -> Result<()> {
        log::append(&self.annotations_path(), |_| log::line(&line))
    }

    pub(super) fn annotations_path(&self) -> PathBuf {
        self.dir().join(FILE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_come_back_whatever_follows_whatever(
            picks in prop::collection::vec((0..3usize, 0u32..12), 0..60),
        ) {
            let runs: Vec<String> = picks
                .iter()
                .map(|(kind, row)| match kind {
                    0 => format!("20261121-0430{row:02}-ladder-aaaaaa"),
                    1 => format!("20261121-043012-sim-bbbbbb:{row}"),
                    _ => format!("20261121-043013-sim-cccccc:{row}"),
                })
                .collect();
            let words = compressed(&runs);
            prop_assert!(words.len() <= runs.len());
            let expanded: Vec<String> = words
                .iter()
                .flat_map(|word| match rows_of(word) {
                    Some((batch, rows)) => rows.map(|row| format!("{batch}:{row}")).collect(),
                    None => vec![word.clone()],
                })
                .collect();
            prop_assert_eq!(expanded, runs);
        }

        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(Path::new("f"), &bytes);
        }
    }

    #[test]
    fn a_line_costs_what_it_is_long_however_many_rows_it_names() {
        let lines = "{\"version\":1,\"runs\":[\"b:0-4294967295\"],\"tag\":[\"x\"]}\n\
                     {\"version\":1,\"runs\":[\"b:7-9\"],\"tag\":[\"y\"],\"untag\":[\"x\"]}\n\
                     {\"version\":1,\"runs\":[\"b:1-4000000000\"],\"deleted\":true}\n\
                     {\"version\":1,\"runs\":[\"b:5\"],\"deleted\":false}\n";
        let all = parse(Path::new("f"), lines.as_bytes());
        let tags = |run: &str| all.of(run).map(|a| Vec::from_iter(a.tags.iter().map(String::as_str)));
        assert_eq!(tags("b:6"), Some(vec!["x"]));
        assert_eq!(tags("b:8"), Some(vec!["y"]));
        assert_eq!((tags("b:4294967295"), tags("c:6")), (Some(vec!["x"]), None));
        assert_eq!(
            [0, 4, 5, 4_000_000_000].map(|row| all.is_deleted("b", row)),
            [false, true, false, true]
        );
    }

    #[test]
    fn tags_are_checked_before_they_are_stored() {
        let edit = AnnotationEdit::tags("good, +nvlink4 -bad").unwrap();
        assert_eq!((edit.tag, edit.untag), (vec!["good".into(), "nvlink4".into()], vec!["bad".into()]));
        for wrong in ["a\"b", "-", "x:y", &"long".repeat(20)] {
            let error = AnnotationEdit::tags(wrong).unwrap_err();
            assert!(error.to_string().contains("cannot be a tag"), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
