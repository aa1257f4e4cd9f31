//! Edits of stored runs and their undo: tags, notes, marks, deletions.

use std::collections::HashSet;

use super::state::MarkedRuns;
use super::{Act, Runs, named};
use crate::face::tui::format;
use crate::face::tui::prelude::*;
use base::offer::Offer;
use base::statistics::grouped;
use lab::store::AnnotationEdit;
use table::Record;

#[derive(Clone, Debug)]
pub enum RunEdit {
    /// Full ids of the deleted runs.
    Deleted(Vec<String>),
    /// Changed tags or notes of runs.
    Annotated {
        runs: Vec<String>,
        edit: AnnotationEdit,
        /// Inverse edits, each with its runs.
        back: Vec<(Vec<String>, AnnotationEdit)>,
    },
    Unmarked(MarkedRuns),
}

impl Runs {
    /// Drops marks of runs that no longer exist.
    pub(super) fn drop_marks_of_gone(&mut self, runs: &Snapshot) {
        if self.marked.is_empty() {
            return;
        }
        let known: HashSet<&str> = runs.records.iter().map(|record| record.run.as_str()).collect();
        self.marked.retain(|run| known.contains(run));
        self.only_marked &= !self.marked.is_empty();
    }

    pub(super) fn unmark(&mut self, cx: &mut Context) {
        if self.marked.is_empty() {
            return;
        }
        let undo = cx.key::<Self>(Act::Undo);
        cx.inform(format!("took away {}: {undo} brings them back", counted(self.marked.len(), "mark")));
        let marked = std::mem::take(&mut self.marked);
        self.record(RunEdit::Unmarked(marked));
        if std::mem::take(&mut self.only_marked) {
            self.rearrange(cx);
        }
    }

    /// Undoes the last edit. If nothing was changed in this session, asks whether to restore the latest deletion of an
    /// earlier one.
    pub(super) fn undo(&mut self, cx: &mut Context) {
        let Some(done) = self.done.pop() else {
            if cx.history.is_used {
                return cx.inform(NOTHING_TO_UNDO);
            }
            let text =
                "Nothing was changed in this session. Restore the runs deleted last, in an earlier one?";
            let restore = |_: &mut Self, cx: &mut Context| cx.perform(Effect::Store(StoreTask::Restore));
            return cx.confirm(text, restore);
        };
        match done.clone() {
            RunEdit::Unmarked(marked) => {
                // marks made since are kept
                let since = std::mem::replace(&mut self.marked, marked);
                cx.stored.iter().for_each(|runs| self.drop_marks_of_gone(runs));
                cx.inform(format!("{} again", counted(self.marked.len(), "mark")));
                since.as_slice().iter().for_each(|run| self.marked.insert(run.clone()));
            }
            RunEdit::Annotated { back, .. } => {
                let runs: usize = back.iter().map(|(runs, _)| runs.len()).sum();
                cx.inform(format!("restored tags and notes of {}", counted(runs, "run")));
                for (runs, edit) in back {
                    cx.perform(Effect::Store(StoreTask::Annotate { runs, edit }));
                }
            }
            RunEdit::Deleted(runs) => {
                self.restored = runs.into_iter().next();
                cx.perform(Effect::Store(StoreTask::Restore));
            }
        }
        self.undone.push(done);
    }

    /// Repeats the edit that was undone last.
    pub(super) fn redo(&mut self, cx: &mut Context) {
        let Some(undone) = self.undone.pop() else { return cx.inform("nothing to redo") };
        let others = std::mem::take(&mut self.undone);
        match undone {
            RunEdit::Unmarked(_) => self.unmark(cx),
            RunEdit::Deleted(runs) => self.delete(runs, cx),
            RunEdit::Annotated { runs, edit, back } => {
                cx.inform(format!("changed tags and notes of {} again", counted(runs.len(), "run")));
                cx.perform(Effect::Store(StoreTask::Annotate {
                    runs: runs.clone(),
                    edit: edit.clone(),
                }));
                self.record(RunEdit::Annotated { runs, edit, back });
            }
        }
        self.undone = others;
    }

    fn record(&mut self, done: RunEdit) {
        self.done.push(done);
        self.undone.clear();
    }

    /// Edits tags or notes of the runs chosen when the prompt was opened, regardless of the current
    /// selection.
    fn annotate(&mut self, runs: Vec<String>, edit: AnnotationEdit, cx: &mut Context) {
        if edit.is_empty() {
            return;
        }
        let before = |run: &String| cx.stored.as_ref().and_then(|stored| stored.annotations.of(run));
        let inverses = grouped(runs.iter().map(|run| (edit.inverse(before(run)), run.clone())));
        let changed = inverses.into_iter().filter(|(inverse, _)| !inverse.is_empty());
        let back: Vec<(Vec<String>, AnnotationEdit)> =
            changed.map(|(inverse, runs)| (runs, inverse)).collect();
        let tags = |sign: &str, tags: &[String]| -> Vec<String> {
            tags.iter().map(|tag| format!("{sign}{tag}")).collect()
        };
        let what = match edit.note.as_deref() {
            Some("") => "took the note away".to_owned(),
            Some(_) => "wrote the note".to_owned(),
            None => [tags("+", &edit.tag), tags("-", &edit.untag)].concat().join(" "),
        };
        if back.is_empty() {
            // as far as this process knows; the store may have changed since
            cx.inform(format!("{}: {what} changes nothing", named(&runs)));
        } else {
            let undo = cx.key::<Self>(Act::Undo);
            cx.inform(format!("{}: {what}; {undo} undoes it", named(&runs)));
            self.record(RunEdit::Annotated { runs: runs.clone(), edit: edit.clone(), back });
        }
        cx.perform(Effect::Store(StoreTask::Annotate { runs, edit }));
    }

    /// Deletes the marked runs, or those under the cursor. Asks first unless it is only the run under the cursor.
    pub(super) fn delete_chosen(&mut self, cx: &mut Context) {
        let Some(stored) = cx.stored.clone() else { return };
        let (runs, selected) = (self.chosen(Some(&stored)), self.under_cursor(Some(&stored)));
        if runs.is_empty() || Self::is_refused(&runs, cx) {
            return;
        }
        if runs.len() == 1 && runs == selected {
            return self.delete(runs, cx);
        }
        let names = labels(runs.iter().filter_map(|run| stored.find(run)));
        let text = format!("Delete {}: {names}? The trash keeps them.", self.chosen_words(&runs, cx));
        let is_marked = !self.marked.is_empty();
        let yes = move |screen: &mut Self, cx: &mut Context| screen.delete(runs, cx);
        if !is_marked {
            return cx.confirm(text, yes);
        }
        let only_selected = move |screen: &mut Self, cx: &mut Context| match selected.is_empty() {
            false => screen.delete(selected, cx),
            true => cx.inform("no run is selected"),
        };
        cx.confirm_or_selected(text, yes, only_selected);
    }

    /// Names the runs that an edit changes. For marked runs, adds if none is under the cursor or some are out of view:
    /// marks outlive a session and scroll out of the window.
    fn chosen_words(&self, runs: &[String], cx: &Context) -> String {
        let Some(stored) = cx.stored.as_ref().filter(|_| !self.marked.is_empty()) else {
            return named(runs);
        };
        let height = usize::from(self.areas(cx.body()).table.height.saturating_sub(1));
        let lines = self.lines.iter().skip(self.list.offset).take(height);
        let rows = lines.flat_map(|line| self.rows_of(line));
        let in_view = rows.filter_map(|row| Some(stored.records.get(*row as usize)?.run.as_str()));
        let in_view: HashSet<&str> = in_view.collect();
        let hidden = runs.iter().filter(|run| !in_view.contains(run.as_str())).count();
        let selected = self.under_cursor(Some(stored));
        let mut aside = Vec::new();
        if !selected.iter().any(|run| self.marked.contains(run)) {
            aside.push("not the row under the cursor".to_owned());
        }
        match hidden {
            0 => {}
            hidden if hidden == runs.len() => aside.push("none in view".to_owned()),
            hidden => aside.push(format!("{hidden} not in view")),
        }
        match (runs, aside.is_empty()) {
            ([run], true) => run.clone(),
            (_, true) => counted(runs.len(), "marked run"),
            _ => format!("{} ({})", counted(runs.len(), "marked run"), aside.join("; ")),
        }
    }

    /// True if one of these runs is running, which the store does not delete; shows that as an error.
    fn is_refused(runs: &[String], cx: &mut Context) -> bool {
        let Some(stored) = cx.stored.clone() else { return false };
        let running: HashSet<&str> = stored.running_runs().collect();
        let refused = runs.iter().find(|run| running.contains(run.as_str()));
        if let Some(run) = refused {
            cx.fail(format!("run {run} is still running: cancel it first; nothing was deleted"));
        }
        refused.is_some()
    }

    fn delete(&mut self, runs: Vec<String>, cx: &mut Context) {
        if Self::is_refused(&runs, cx) {
            return;
        }
        let undo = cx.key::<Self>(Act::Undo);
        cx.inform(format!("deleted {}: {undo} undoes it", named(&runs)));
        self.deleting.extend(runs.iter().cloned());
        let gone: HashSet<&str> = runs.iter().map(String::as_str).collect();
        self.marked.retain(|run| !gone.contains(run));
        self.only_marked &= !self.marked.is_empty();
        let at = self.list.selected;
        self.rearrange(cx);
        // the next run moves up to the selection
        self.list.selected = at.min(self.lines.len().saturating_sub(1));
        self.record(RunEdit::Deleted(runs.clone()));
        cx.perform(Effect::Store(StoreTask::Delete(runs)));
    }

    pub(super) fn ask_for_a_note(&self, cx: &mut Context) {
        let runs = self.chosen(cx.stored.as_ref());
        let Some(stored) = cx.stored.clone() else { return };
        let Some(first) = runs.first() else { return };
        let note = stored.annotations.of(first).map(|a| a.note.clone()).unwrap_or_default();
        let same = runs.iter().all(|run| stored.annotations.of(run).is_none_or(|a| a.note == note));
        let hint = "it is kept with the run; an empty one takes it away";
        let text = if same { note } else { String::new() };
        let title = format!("note on {}", self.chosen_words(&runs, cx));
        cx.prompt(PromptCompletion::Nothing, title, hint, text, move |screen: &mut Self, typed, cx| {
            screen.annotate(runs.clone(), AnnotationEdit::note(typed), cx);
            Ok(())
        });
        // a note is edited, not replaced
        if let Some(prompt) = cx.top_mut::<Prompt>() {
            prompt.field.proposed = false;
        }
    }

    pub(super) fn ask_for_tags(&self, cx: &mut Context) {
        let runs = self.chosen(cx.stored.as_ref());
        let Some(stored) = cx.stored.clone() else { return };
        let Some(first) = runs.first() else { return };
        let tags = stored.annotations.tags();
        let mut known: Vec<(&str, usize)> = tags.into_iter().collect();
        known.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let tag = |(tag, count): (&str, usize)| Offer::new(tag, counted(count, "run"));
        let known = PromptCompletion::Words(known.into_iter().map(tag).collect());
        let has = stored.annotations.of(first).map(|a| a.tags.clone()).unwrap_or_default();
        let has = has.into_iter().collect::<Vec<_>>().join(" ");
        let has = if has.is_empty() { String::new() } else { format!("\nit has: {has}") };
        let hint = format!("words to add; -word removes one{has}");
        let title = format!("tag {}", self.chosen_words(&runs, cx));
        cx.prompt(known, title, hint, "", move |screen: &mut Self, typed, cx| {
            let edit = AnnotationEdit::tags(typed).map_err(|error| format::error(&error))?;
            screen.annotate(runs.clone(), edit, cx);
            Ok(())
        });
    }
}

/// Cells of these runs: `ladder tp2 b1 p2p-on (3 runs), standard tp2 b1 p2p-on`.
fn labels<'a>(runs: impl Iterator<Item = &'a Record>) -> String {
    /// Maximum number of cells that are named.
    const NAMED: usize = 4;
    let cells = grouped(runs.map(|run| (run.spec.label(), ())));
    let name = |(label, runs): &(String, Vec<()>)| match runs.len() {
        1 => label.clone(),
        runs => format!("{label} ({runs} runs)"),
    };
    let mut names: Vec<String> = cells.iter().take(NAMED).map(name).collect();
    if cells.len() > NAMED {
        let rest: usize = cells.iter().skip(NAMED).map(|(_, runs)| runs.len()).sum();
        names.push(format!("{rest} more"));
    }
    names.join(", ")
}
