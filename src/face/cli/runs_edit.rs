//! `ladderscope runs tag|note|delete|restore|trash|empty-trash`: edits of stored runs. Records themselves never
//! change.

use std::collections::HashSet;
use std::path::Path;

use clap::Subcommand;

use super::filter::{self, FilterArgs};
use super::output::{self, Format, FormatArgs};
use super::report;
use crate::desk;
use base::error::{Error, Result};
use base::text::counted;
use lab::store::{self, Store};
use table::render::{Shown, Sourced, Table};

/// Actions on stored runs.
#[derive(Debug, Subcommand)]
pub enum Edit {
    /// Add tags to runs; a leading '-' removes a tag
    Tag {
        /// Tags, for example good or good,-doubtful
        #[arg(value_name = "TAGS", allow_hyphen_values = true)]
        tags: String,
        #[command(flatten)]
        which: Which,
    },
    /// Set the note of runs; '' removes it
    Note {
        /// Text of the note
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: String,
        #[command(flatten)]
        which: Which,
    },
    /// Move runs to the trash, where other verbs ignore them
    Delete {
        #[command(flatten)]
        which: Which,
    },
    /// Restore runs from the trash [default: the most recent deletion]
    Restore {
        /// Ids and batches (all their deleted rows), as listed by 'runs trash', or BATCH:ROW
        #[arg(value_name = "RUN")]
        runs: Vec<String>,
    },
    /// List runs in the trash
    Trash {
        #[command(flatten)]
        output: FormatArgs,
    },
    /// Delete all runs in the trash permanently
    EmptyTrash,
}

/// Runs to edit.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Run ids, prefixes of ids, 'last', batches (all their rows) or BATCH:ROW
    #[arg(value_name = "RUN", required_unless_present = "filter")]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
}

impl Which {
    /// Selected ids, at least one. Names refer only to runs in this directory, because others have their own
    /// annotations and trash.
    fn ids(&self, store: &Store) -> Result<Vec<String>> {
        let mut chosen = filter::select(&[], store.dir())?;
        if !self.runs.is_empty() {
            if let Some(name) = self.runs.iter().find(|name| name.contains(std::path::MAIN_SEPARATOR)) {
                return Err(Error::input_help(
                    format!("'{name}' is not a run"),
                    "to edit the runs of another directory: --dir DIRECTORY",
                ));
            }
            chosen.records.clear();
            for name in &self.runs {
                let (records, damaged) = desk::stored(store, name)?;
                damaged.iter().for_each(|damaged| report::warn(damaged));
                chosen.records.extend(records);
            }
            let mut seen = HashSet::new();
            chosen.records.retain(|record| seen.insert(record.run.clone()));
        }
        let records = desk::filtered(chosen, self.filter.typed(), None)?;
        if records.is_empty() {
            return Err(Error::input_help(
                format!("no runs in {} are meant: nothing was done", store.dir().display()),
                "`ladderscope runs --filter ...` shows what a filter chooses",
            ));
        }
        Ok(records.into_iter().map(|record| record.run).collect())
    }
}

pub fn run(edit: &Edit, dir: &Path) -> Result<u8> {
    let store = Store::open(dir);
    match edit {
        Edit::Tag { tags, which } => {
            let edit = store::Edit::tags(tags)?;
            if edit.is_empty() {
                return Err(Error::input_help("no tags", "for example: runs tag good,-doubtful last"));
            }
            annotate(&store, which, &edit, "tagged")?;
        }
        Edit::Note { text, which } => annotate(&store, which, &store::Edit::note(text), "noted")?,
        Edit::Delete { which } => {
            let ids = which.ids(&store)?;
            store.delete(&ids)?;
            report::note(&format!(
                "deleted {}; to have them back: ladderscope runs restore",
                counted(ids.len(), "run")
            ));
        }
        Edit::Restore { runs } => restore(&store, runs)?,
        Edit::Trash { output } => list(&store, output.format)?,
        Edit::EmptyTrash => {
            let emptied = store.empty_trash()?;
            let hidden = match emptied.hidden_rows {
                0 => String::new(),
                rows => format!(
                    "; of batches that have other rows, {} hidden",
                    if rows == 1 {
                        "1 deleted row stays".into()
                    } else {
                        format!("{rows} deleted rows stay")
                    }
                ),
            };
            report::note(&format!(
                "removed {} and {}{hidden}",
                counted(emptied.runs, "run"),
                counted(emptied.batches, "batch file")
            ));
        }
    }
    Ok(0)
}

fn annotate(store: &Store, which: &Which, edit: &store::Edit, done: &str) -> Result<()> {
    let ids = which.ids(store)?;
    store.annotate(&ids, edit)?;
    report::note(&format!("{done} {}", counted(ids.len(), "run")));
    Ok(())
}

fn restore(store: &Store, runs: &[String]) -> Result<()> {
    if runs.is_empty() {
        match store.restore_last()?.len() {
            0 => report::note("the trash is empty: nothing to restore"),
            count => report::note(&format!("restored {}", counted(count, "run"))),
        }
        return Ok(());
    }
    let mut restored = 0;
    for run in runs {
        let rows = store.deleted_rows(run);
        let ids = if rows.is_empty() { std::slice::from_ref(run) } else { &rows };
        let count = store.restore(ids)?;
        if count == 0 {
            return Err(Error::input_help(
                format!("'{run}' is not in the trash"),
                "`ladderscope runs trash` lists what is",
            ));
        }
        restored += count;
    }
    report::note(&format!("restored {}", counted(restored, "run")));
    Ok(())
}

fn list(store: &Store, format: Format) -> Result<()> {
    let trash = store.trash()?;
    let mut rows = Table::new(["deleted", "runs"]);
    for run in &trash.runs {
        rows.push(vec![Shown::text(run), Shown::Whole(1)]);
    }
    for (batch, count) in &trash.rows {
        rows.push(vec![Shown::text(batch), Shown::Whole(*count as u64)]);
    }
    match format {
        Format::Json => output::json(&trash),
        Format::Csv => output::emit(&rows.csv(Sourced::NoRuns)),
        Format::Table if trash.is_empty() => {
            report::note("the trash is empty");
            Ok(())
        }
        Format::Table => output::emit(&output::aligned(&rows)),
    }
}
