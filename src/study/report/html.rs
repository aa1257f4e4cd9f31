//! HTML text: escaped elements, and the frame of a page with its style.

use std::fmt::Write as _;

use base::text::{escape, printable};
use table::Provenance;
use table::render::Table;

#[derive(Clone, Debug, Default)]
pub struct Html {
    pub text: String,
}

impl Html {
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Appends an element with escaped text. `open` is the inside of the tag: `p`, `p class="note"`.
    pub fn element(&mut self, open: &str, text: &str) -> &mut Self {
        let name = open.split(' ').next().unwrap_or(open);
        // writing to a String cannot fail, here and below
        let _ = writeln!(self.text, "<{open}>{}</{name}>", escape(&printable(text)));
        self
    }

    pub fn command(&mut self, command: &str) -> &mut Self {
        let _ = writeln!(self.text, "<p class=\"command\"><code>{}</code></p>", escape(command));
        self
    }

    /// Appends a table with its caption and at most `most` rows; `whole` is the command that shows all of
    /// them.
    pub fn table(&mut self, caption: &str, table: &Table, most: usize, whole: &str) -> &mut Self {
        self.raw(&table.html(caption, most, whole))
    }

    pub fn badges(&mut self, provenances: impl IntoIterator<Item = Provenance>) -> &mut Self {
        let badge = |of: Provenance| format!("<span class=\"badge {of}\">{of}</span>");
        let badges = provenances.into_iter().map(badge).collect::<String>();
        self.raw("<p>").raw(&badges).raw("</p>\n")
    }
}

/// Whole page; `script` runs at its end.
pub fn document(title: &str, body: &str, script: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"ladderscope {}\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}<script>\n{script}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&printable(title)),
        include_str!("style.css"),
    )
}
