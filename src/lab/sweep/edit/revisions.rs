//! Text of an experiment during editing, with undo and redo.

use std::path::Path;

use super::{Edit, apply};
use base::error::Result;

/// Maximum number of undo steps.
const KEPT: usize = 500;

/// Text with its undo and redo history.
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
    pub fn edit(&mut self, path: &Path, edits: &[Edit]) -> Result<bool> {
        let mut text = self.text.clone();
        for edit in edits {
            text = apply(&text, path, edit)?;
        }
        if text == self.text {
            return Ok(false);
        }
        self.past.push(std::mem::replace(&mut self.text, text));
        if self.past.len() > KEPT {
            self.past.remove(0);
        }
        self.future.clear();
        Ok(true)
    }

    /// Replaces the whole text, as one undo step.
    pub fn replace(&mut self, text: String) {
        if text != self.text {
            self.past.push(std::mem::replace(&mut self.text, text));
            self.future.clear();
        }
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
