//! HTML, escaped: text, tables that a script may sort, the page around them.

use std::fmt::Write as _;

use crate::plot::escape;

/// A document under construction.
#[derive(Clone, Debug, Default)]
pub struct Html {
    text: String,
}

/// A field of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// Words.
    Text(String),
    /// A number and its decimals.
    Number(f64, usize),
    /// A number with its 95% interval.
    Interval(f64, Option<[f64; 2]>, usize),
    /// Nothing to say.
    None,
}

impl Field {
    /// Words.
    pub fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    /// A whole number.
    pub fn whole(number: u32) -> Self {
        Self::Number(number.into(), 0)
    }

    /// A number, or nothing.
    pub fn number(value: Option<f64>, decimals: usize) -> Self {
        value.filter(|v| v.is_finite()).map_or(Self::None, |v| Self::Number(v, decimals))
    }

    /// What it says, and what it is sorted by.
    fn shown(&self) -> (String, String) {
        match self {
            Self::Text(text) => (escape(text), String::new()),
            Self::Number(value, decimals) => (format!("{value:.decimals$}"), value.to_string()),
            Self::Interval(value, None, decimals) => (format!("{value:.decimals$}"), value.to_string()),
            Self::Interval(value, Some([low, high]), decimals) => (
                format!("{value:.decimals$} <small>[{low:.decimals$}, {high:.decimals$}]</small>"),
                value.to_string(),
            ),
            Self::None => ("–".into(), "-Infinity".into()),
        }
    }
}

/// A table: a header, and at most as many rows as a page can carry.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Field>>,
}

impl Table {
    /// Without rows.
    pub fn new(columns: impl IntoIterator<Item = &'static str>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row: a field a column.
    pub fn push(&mut self, row: Vec<Field>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a field a column");
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Html {
    /// Markup as it is.
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

    /// A command that shows the same.
    pub fn command(&mut self, command: &str) -> &mut Self {
        let _ = writeln!(self.text, "<p class=\"command\"><code>{}</code></p>", escape(command));
        self
    }

    /// A table with its caption, its first `most` rows; what is left out is said. Columns in which no row
    /// says anything are left out.
    pub fn table(&mut self, caption: &str, table: &Table, most: usize, whole: &str) -> &mut Self {
        let says = |column: usize| table.rows.iter().any(|row| row[column] != Field::None);
        let kept: Vec<usize> = (0..table.columns.len()).filter(|column| says(*column)).collect();
        let numeric =
            |column: usize| table.rows.iter().all(|row| !matches!(row[column], Field::Text(_)));
        let _ = write!(self.text, "<div class=\"scroll\"><table><caption>{}", escape(caption));
        if table.rows.len() > most {
            let _ = write!(
                self.text,
                " <strong>The first {most} of {} rows; all: <code>{}</code></strong>",
                table.rows.len(),
                escape(whole)
            );
        }
        self.raw("</caption>\n<thead><tr>");
        for &column in &kept {
            let class = if numeric(column) { " class=\"n\"" } else { "" };
            let _ = write!(self.text, "<th scope=\"col\"{class}>{}</th>", escape(table.columns[column]));
        }
        self.raw("</tr></thead>\n<tbody>\n");
        for row in table.rows.iter().take(most) {
            self.raw("<tr>");
            for &column in &kept {
                let (shown, key) = row[column].shown();
                let class = if numeric(column) { " class=\"n\"" } else { "" };
                let key = if key.is_empty() || key == shown {
                    String::new()
                } else {
                    format!(" data-v=\"{key}\"")
                };
                let _ = write!(self.text, "<td{class}{key}>{shown}</td>");
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n")
    }

    /// What was built.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_it_leaves_out() {
        let mut table = Table::new(["name", "ms", "nothing"]);
        for n in 0..5 {
            table.push(vec![Field::text("<b>"), Field::whole(n), Field::None]);
        }
        let mut html = Html::default();
        html.table("Cells", &table, 3, "ladderscope runs").command("a  'b  c'");
        let text = html.into_text();
        assert_eq!(text.matches("<tr>").count(), 4);
        assert!(text.contains("The first 3 of 5 rows"), "{text}");
        assert!(text.contains("&lt;b&gt;") && !text.contains("<b>"), "{text}");
        assert!(text.contains("<code>a  &#39;b  c&#39;</code>"), "as it is: {text}");
        assert!(!text.contains("nothing"), "a column that says nothing: {text}");
    }
}
