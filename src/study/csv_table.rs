//! CSV or TSV files of measured runs: columns by name, and errors that give file, line, column and the fix.

use std::str::FromStr;

use csv::StringRecord;

use base::error::{Error, Result, nearest};

const WHOLE: &str = "it must be a whole number of at least 1";

/// Field delimiter of a file with this header: a tab if it contains one, else a comma.
pub(super) fn delimiter(header: &str) -> char {
    if header.contains('\t') { '\t' } else { ',' }
}

/// CSV file with a header and one run per line; skips empty lines and lines that start with `#`. Fields may be quoted, but
/// not contain line breaks.
#[derive(Clone, Debug)]
pub(super) struct CsvTable<'a> {
    file: &'a str,
    columns: StringRecord,
    rows: Vec<(usize, StringRecord)>,
}

impl<'a> CsvTable<'a> {
    /// Splits a file into rows. Returns an error if a column is unknown or repeated, a required one is
    /// missing, a row has another number of fields than the header, or there are no rows.
    pub(super) fn parse(file: &'a str, text: &str, required: &[&str], known: &[&str]) -> Result<Self> {
        Self::parse_with(file, text, (required, known), |_| false)
    }

    /// Like [`Self::parse`]; also accepts columns for which `is_ignored` is true.
    pub(super) fn parse_with(
        file: &'a str,
        text: &str,
        (required, known): (&[&str], &[&str]),
        is_ignored: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
            .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let wanted = || format!("columns are {}", listed(required, known));
        let Some((head, header)) = lines.next() else {
            return Err(Error::input_help(format!("{file}: it is empty"), wanted()));
        };
        let between = delimiter(header);
        let columns = fields(header, between);
        for (at, name) in columns.iter().enumerate() {
            if !known.contains(&name) && !is_ignored(name) {
                let guess = nearest(name, known.iter().copied());
                let guess = guess.map(|g| format!("did you mean '{g}'? ")).unwrap_or_default();
                let message = format!("{file}:{head}: unknown column '{name}'");
                return Err(Error::input_help(message, format!("{guess}{}", wanted())));
            }
            if columns.iter().take(at).any(|other| other == name) {
                return Err(Error::input(format!("{file}:{head}: column '{name}' appears twice")));
            }
        }
        let has = |name: &str| columns.iter().any(|column| column == name);
        if let Some(missing) = required.iter().find(|name| !has(name)) {
            let message = format!("{file}:{head}: it has no column '{missing}'");
            return Err(Error::input_help(message, wanted()));
        }
        let mut rows = Vec::new();
        for (line, text) in lines {
            let fields = fields(text, between);
            if fields.len() != columns.len() {
                let open = if text.matches('"').count() % 2 == 1 {
                    "; a quote is not closed on this line"
                } else {
                    ""
                };
                let problem = format!("has {} fields, the header {}{open}", fields.len(), columns.len());
                return Err(Error::input(format!("{file}:{line}: {problem}")));
            }
            rows.push((line, fields));
        }
        if rows.is_empty() {
            return Err(Error::input(format!("{file}: it has a header and no rows")));
        }
        Ok(Self { file, columns, rows })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = CsvRow<'_>> {
        let (file, columns) = (self.file, &self.columns);
        self.rows.iter().map(move |(line, fields)| CsvRow { file, line: *line, columns, fields })
    }

    /// True if the file has one of these columns.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        self.columns.iter().any(|column| names.contains(&column))
    }
}

/// Fields of a line, without the blanks around them.
fn fields(line: &str, delimiter: char) -> StringRecord {
    if !line.contains('"') {
        return line.split(delimiter).map(str::trim).collect();
    }
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).delimiter(delimiter as u8).trim(csv::Trim::All);
    // text is valid, and a line alone cannot have another number of fields than itself
    reader.from_reader(line.as_bytes()).into_records().flatten().next().unwrap_or_default()
}

/// Column list for error messages: `a,b; optional: c`.
fn listed(required: &[&str], known: &[&str]) -> String {
    let optional: Vec<&str> = known.iter().filter(|name| !required.contains(name)).copied().collect();
    let more = if optional.is_empty() || required.is_empty() { "" } else { "; optional: " };
    format!("{}{more}{}", required.join(","), optional.join(","))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CsvRow<'a> {
    file: &'a str,
    pub(super) line: usize,
    columns: &'a StringRecord,
    fields: &'a StringRecord,
}

impl CsvRow<'_> {
    /// Value of a column; `None` if it is empty or the column does not exist.
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.fields.get(at).filter(|text| !text.is_empty())
    }

    pub(super) fn wrong(&self, column: &str, wanted: &str) -> Error {
        let text = self.text(column).unwrap_or_default();
        Error::input(format!("{}:{}: {column} is '{text}'; {wanted}", self.file, self.line))
    }

    /// Parses a whole number of at least 1; `default` applies only if the file lacks the column.
    pub(super) fn whole(&self, column: &str, default: Option<u32>) -> Result<u32> {
        if let (false, Some(default)) = (self.columns.iter().any(|name| name == column), default) {
            return Ok(default);
        }
        self.count(column)?.ok_or_else(|| self.wrong(column, WHOLE))
    }

    /// Parses a whole number of at least 1; `None` if the value is empty or the column does not exist.
    pub(super) fn count(&self, column: &str) -> Result<Option<u32>> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let value = text.parse().ok().filter(|n: &u32| *n > 0);
        value.map(Some).ok_or_else(|| self.wrong(column, WHOLE))
    }

    /// Parses a number above 0; `None` if the value is empty or the column does not exist.
    pub(super) fn positive(&self, column: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let value = text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
        value.map(Some).ok_or_else(|| self.wrong(column, "it must be a number above 0, or empty"))
    }

    pub(super) fn parsed<T: FromStr>(&self, column: &str, default: &str, wanted: &str) -> Result<T> {
        self.text(column).unwrap_or(default).parse().map_err(|_| self.wrong(column, wanted))
    }
}
