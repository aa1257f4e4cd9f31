//! An experiment's text while it is edited: what it was, what it is, and what was undone.

use std::path::Path;

use super::{Edit, apply};
use base::error::Result;

/// Steps back that are kept.
const KEPT: usize = 500;

/// A text and its past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// What is on disk (or built in).
    saved: String,
    text: String,
    past: Vec<String>,
    future: Vec<String>,
}

impl Revisions {
    /// A text that was not changed.
    pub fn new(text: String) -> Self {
        Self { saved: text.clone(), text, past: Vec::new(), future: Vec::new() }
    }

    /// The text as it is now.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as it was read or saved last.
    pub fn saved(&self) -> &str {
        &self.saved
    }

    /// Whether it differs from what was read or saved last.
    pub fn is_edited(&self) -> bool {
        self.text != self.saved
    }

    /// Takes edits, which are undone together; whether the text changed.
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

    /// Takes a whole text, as one edit.
    pub fn replace(&mut self, text: String) {
        if text != self.text {
            self.past.push(std::mem::replace(&mut self.text, text));
            self.future.clear();
        }
    }

    /// Takes the last edit back; whether there was one.
    pub fn undo(&mut self) -> bool {
        let Some(text) = self.past.pop() else { return false };
        self.future.push(std::mem::replace(&mut self.text, text));
        true
    }

    /// Does again what was undone last; whether there was something.
    pub fn redo(&mut self) -> bool {
        let Some(text) = self.future.pop() else { return false };
        self.past.push(std::mem::replace(&mut self.text, text));
        true
    }

    /// A text of these revisions was written to the file; there may be edits since.
    pub fn wrote(&mut self, text: String) {
        self.saved = text;
    }

    /// The file was read again: what was not edited follows it. What was edited stays an edit of the text
    /// that it began with: so saving still finds that somebody else has changed the file.
    pub fn reread(&mut self, text: String) {
        if !self.is_edited() {
            *self = Self::new(text);
        } else if text == self.text {
            self.saved = text;
        }
    }
}
