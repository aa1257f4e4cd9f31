//! Search of a picker: matching lines, and completion of the typed text.

use std::sync::Arc;

use super::Pick;
use crate::desk::files::folder_of;
use crate::face::tui::palette::{NOT_FOUND, PALETTE};
use crate::face::tui::prelude::*;
use crate::face::tui::ranking::{by_group, by_letters, by_words};
use crate::face::tui::trace_picker::counterpart_rank;
use base::offer::Completion;
use base::text::folded;
use study::analysis::filter::{Filter, complete};

#[derive(Clone, Debug, Default)]
pub enum PickSearch {
    #[default]
    Letters,
    /// Fuzzy match of names, or a path.
    Paths,
    /// Filter expression over these runs, words of a file's name, or a path. The first lines are the runs in the same
    /// order; then files. Matches show files opened before, then runs, the newest first, then other files; these come
    /// before the runs if the open trace is a file.
    Runs(Arc<Snapshot>),
}

impl Pick {
    /// Searches again, after lines were changed.
    pub fn search_again(&mut self) {
        self.searched = None;
        self.refresh();
    }

    /// Searches for the input unless it is unchanged.
    pub(super) fn refresh(&mut self) {
        if self.searched.as_deref() == Some(self.field.value()) {
            return;
        }
        self.found = if self.title == PALETTE {
            by_group(&mut self.lines, self.field.value())
        } else {
            match (&self.search, self.path()) {
                (_, Some(path)) => self.matching_files(path),
                (PickSearch::Runs(stored), None) => self.matching_runs(stored),
                _ => by_letters(&self.lines, self.field.value()),
            }
        };
        self.searched = Some(self.field.value().to_owned());
        self.selected = self.selected.min(self.found.len().saturating_sub(1));
    }

    /// Files of the listed folder whose names have the typed end of the path; those that begin with it come first.
    fn matching_files(&self, path: &str) -> Vec<usize> {
        let typed = folded(&path[folder_of(path).len()..]);
        let entries = self.folder.iter().flat_map(|(folder, entries)| {
            entries.iter().enumerate().map(move |(at, entry)| (at, &entry.path[folder.len()..]))
        });
        // hidden files only match a typed dot; `.` is the folder itself
        let shown = |name: &str| typed.starts_with('.') || name == "." || !name.starts_with('.');
        let mut found: Vec<(bool, usize)> = entries
            .filter(|(_, name)| shown(name))
            .filter_map(|(at, name)| Some((folded(name).find(&typed)? > 0, at)))
            .collect();
        found.sort_by_key(|(within, _)| *within);
        found.into_iter().map(|(_, at)| at).collect()
    }

    /// Lines of stored runs and of other files, in the order of [`PickSearch::Runs`].
    fn matching_runs(&self, stored: &Snapshot) -> Vec<usize> {
        let typed = self.field.value();
        let (bound, _) = Filter::parse(typed).bind(&stored.table);
        let runs = bound.rows(&stored.table).into_iter().rev().map(|row| row as usize);
        // a run without a timeline comes last
        let (mut with, without): (Vec<_>, Vec<_>) =
            runs.partition(|row| stored.records[*row].metrics.is_some());
        // below an open run, those to compare it with come first
        if let Some(open) = self.left_out.first().and_then(|run| stored.find(run)) {
            with.sort_by_cached_key(|row| counterpart_rank(open, &stored.records[*row]));
        }
        // runs are found by the filter
        let first = stored.records.len().min(self.lines.len());
        let files = by_words(&self.lines[first..], typed).into_iter().map(|at| at + first);
        let (before, near): (Vec<_>, Vec<_>) = files.partition(|at| *at < self.fixed);
        let name = |at: &usize| match stored.records.get(*at) {
            Some(record) => &record.run,
            None => &self.lines[*at].name,
        };
        let is_file_open = self.left_out.first().is_some_and(|open| stored.find(open).is_none());
        let (second, third) = if is_file_open { (near, with) } else { (with, near) };
        let mut found = [before, second, third, without].concat();
        found.retain(|at| !self.left_out.contains(name(at)));
        found
    }

    /// Typed path, if the picker accepts paths.
    pub(super) fn path(&self) -> Option<&str> {
        let text = self.field.value();
        let meant = match &self.search {
            // column and model names may contain slashes, too
            PickSearch::Runs(_) => {
                text.starts_with(['~', '/', '.'])
                    || (text.contains('/') && !text.contains([':', '=', '<', '>', ' ']))
            }
            _ => text.starts_with('~') || text.contains('/'),
        };
        (meant && !matches!(self.search, PickSearch::Letters)).then_some(text)
    }

    /// Reason why no line is listed, and what to type.
    pub(super) fn nothing(&self) -> &'static str {
        match (self.field.value().is_empty(), &self.search) {
            (true, PickSearch::Paths) => {
                "no trace near this folder: type a path, such as ~/ or ../; its files are listed here"
            }
            (true, PickSearch::Runs(_)) => {
                "no other trace or stored run yet: type a path, such as ~/ or ../; its files are listed here"
            }
            (true, PickSearch::Letters) => "nothing to choose from yet",
            (false, _) if self.title == PALETTE => NOT_FOUND,
            (false, PickSearch::Paths) => {
                "no trace here has these letters: type a path, such as ~/ or ../; its files are listed here"
            }
            (false, PickSearch::Runs(_)) => {
                "no run matches this filter, no trace has these words: type ladder, tp:8, or a path such as ~/"
            }
            (false, PickSearch::Letters) => "nothing matches",
        }
    }

    /// Text that Tab completes a name to: the line selected with the arrow keys, or the only one; else, as in a shell, the
    /// common prefix of all names that begin as typed.
    fn completed(&self) -> Option<String> {
        let typed = self.field.value();
        let is_chosen = self.selected > 0 || matches!(self.search, PickSearch::Letters);
        if is_chosen || self.found.len() == 1 {
            let at = *self.found.get(self.selected)?;
            let (name, _) = self.line(at).filter(|_| !self.is_more(at))?;
            return Some(name.to_owned());
        }
        let names = self.found.iter().filter_map(|at| Some(self.line(*at)?.0));
        // `.` is the folder itself
        let names = names.filter(|name| name.starts_with(typed) && !name.ends_with("/."));
        names.reduce(in_common).filter(|common| common.len() > typed.len()).map(str::to_owned)
    }

    /// Tab: completes the name in the input, or a filter of runs.
    pub(super) fn complete(&mut self) {
        let text = self.field.value();
        let (bytes, completed) = match &self.search {
            PickSearch::Runs(stored) if self.path().is_none() => {
                let Completion { replaces, offers } =
                    complete(text, self.field.cursor(), &stored.table, 1);
                (replaces, offers.into_iter().next().map(|offer| offer.text))
            }
            _ => (0..text.len(), self.completed()),
        };
        if let Some(completed) = completed {
            self.field.replace(bytes, &completed);
            self.selected = 0;
            self.refresh();
        }
    }
}

/// Common prefix of two names.
fn in_common<'a>(a: &'a str, b: &'a str) -> &'a str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(letter, _)| letter.len_utf8()).sum()]
}
