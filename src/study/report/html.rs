//! HTML, escaped: text, tables that a script may sort, the page around them.

use std::fmt::Write as _;

use base::text::escape;
use table::render::Table;

/// A document under construction.
#[derive(Clone, Debug, Default)]
pub struct Html {
    text: String,
}

impl Html {
    /// Appends markup as it is, without escaping anything in it.
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// An element with text in it. `open` is a tag's inside: `p`, `p class="note"`.
    pub fn element(&mut self, open: &str, text: &str) -> &mut Self {
        let name = open.split(' ').next().unwrap_or(open);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "<{open}>{}</{name}>", escape(text));
        self
    }

    /// Appends the command that shows in a terminal what the page shows here.
    pub fn command(&mut self, command: &str) -> &mut Self {
        let _ = writeln!(self.text, "<p class=\"command\"><code>{}</code></p>", escape(command));
        self
    }

    /// A table with its caption and at most `most` rows; `whole` is the command that shows all of them.
    pub fn table(&mut self, caption: &str, table: &Table, most: usize, whole: &str) -> &mut Self {
        self.raw(&table.html(caption, most, whole))
    }

    /// The HTML that was built so far.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The page around a body.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"ladderscope {}\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}<script>\n{}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escape(title),
        include_str!("style.css"),
        include_str!("sort.js")
    )
}
