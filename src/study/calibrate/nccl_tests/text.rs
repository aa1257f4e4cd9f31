//! Reader for the text that nccl-tests prints: a heading of comments, a table, a footer.
//!
//! A heading first names the columns of a message (`size count type redop root`), then those of each side
//! (`time algbw busbw #wrong`): out of place, in place, or both. Versions differ: with or without `root`,
//! `error` for `#wrong`, `cputime` for `time`, and unnamed columns of single iterations after each side.
//!
//! Launchers and loggers put prefixes before lines. They are learned from the heading, whose lines are known: the
//! text before `#` is a prefix. Rows are then cut after a prefix of the same shape (`[1,0]<stdout>:`, `0:`,
//! `[pod/name/main]`, a time stamp): letters and digits may vary between lines, punctuation may not.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{
    HELP, Job, Measured, Rank, Side, Timing, is_all_reduce, refused, several_jobs, wrong_results,
};
use base::error::Result;

/// Known lines of heading and footer, with the text after their `#`.
enum Comment<'a> {
    /// `nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808`
    Version(&'a str),
    /// `Collective test starting: all_reduce_perf`
    Program(&'a str),
    /// `nThread 1 nGpus 8 minBytes 8 ...`
    Options(&'a str),
    Rank(&'a str),
    /// `out-of-place in-place`
    Sides(&'a str),
    /// `size count type ...`
    Columns(&'a str),
    /// `(B) (elements) (us) ...`
    Units(&'a str),
    /// `Out of bounds values : 0 OK`
    OutOfBounds(&'a str),
    Known,
}

/// Counts of the lines that one job prints once.
#[derive(Default)]
struct Seen {
    programs: usize,
    versions: usize,
    options: usize,
    footers: usize,
    headings: Vec<Columns>,
}

pub(super) fn read(file: &str, text: &str) -> Result<Job> {
    let mut job = Job::default();
    let (mut seen, mut prefixes) = (Seen::default(), Prefixes::default());
    let mut above: Vec<Side> = Vec::new();
    let mut elsewhere: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let place = || format!("{file}:{number}");
        elsewhere = elsewhere.or_else(|| program_of(line));
        if let Some((prefix, comment)) = comment(line) {
            prefixes.learn(prefix);
            match comment {
                Comment::Version(line) => {
                    seen.versions += 1;
                    job.version = after(line, "nccl-library=").and_then(version);
                }
                Comment::Program(name) => {
                    seen.programs += 1;
                    job.program = Some(name.to_owned());
                }
                Comment::Options(line) => {
                    seen.options += 1;
                    job.gpus_per_thread = after(line, "nGpus ").and_then(|count| count.parse().ok());
                    job.in_graph = Some(after(line, "graph: ").is_some_and(|count| count != "0"));
                }
                Comment::Rank(line) => job.ranks.extend(rank(line)),
                Comment::Sides(line) => above = sides(line),
                Comment::Columns(line) => {
                    units(&place(), line)?;
                    seen.headings.extend(Columns::of(line, &above));
                }
                Comment::Units(line) => units(&place(), line)?,
                Comment::OutOfBounds(line) => {
                    seen.footers += 1;
                    let count = after(line, ":").unwrap_or_default();
                    if count.parse() != Ok(0.0) || line.contains("FAILED") {
                        let problem = format!("{}: out of bounds values: {count}", place());
                        return Err(wrong_results(problem));
                    }
                }
                Comment::Known => {}
            }
            continue;
        }
        let Some(columns) = seen.headings.last() else { continue };
        let cut: Vec<&str> = prefixes.rows(line).into_iter().filter(|row| columns.is_row(row)).collect();
        let read = cut.iter().map(|row| columns.row(row));
        match read.reduce(|first, next| first.or(next)) {
            Some(Ok(row)) => {
                let (place, bytes, sides) = (place(), row.bytes, row.sides);
                job.rows.push(Measured { place, bytes, sides });
            }
            Some(Err(problem)) => return Err(refused(format!("{}: {problem}", place()), HELP)),
            None => {}
        }
    }
    seen.one_job(file)?;
    match seen.headings.first() {
        None => {
            return Err(refused(
                format!(
                    "{file}: 0 rows of nccl-tests: no heading names columns (# size ... time algbw busbw)"
                ),
                HELP,
            ));
        }
        Some(columns) if columns.is_host_time() => {
            return Err(refused(
                format!(
                    "{file}: times are those of the host (cputime), which does not wait for the GPU"
                ),
                "measure without -C (--report_cputime)",
            ));
        }
        Some(_) => {}
    }
    job.program = job.program.or_else(|| elsewhere.map(str::to_owned));
    Ok(job)
}

impl Seen {
    fn one_job(&self, file: &str) -> Result<()> {
        for (count, line) in [
            (self.programs, "Collective test starting"),
            (self.versions, "nccl-tests version"),
            (self.options, "nThread"),
            (self.footers, "Out of bounds values"),
        ] {
            if count > 1 {
                return Err(several_jobs(file, &format!("the line '# {line}' occurs {count} times")));
            }
        }
        match self.headings.array_windows().any(|[a, b]| a != b) {
            true => Err(several_jobs(file, "its headings name different columns")),
            false => Ok(()),
        }
    }
}

/// nccl-tests comment in a line, and the prefix before it.
fn comment(line: &str) -> Option<(&str, Comment<'_>)> {
    line.match_indices('#').take(4).find_map(|(at, _)| {
        let text = line[at + 1..].trim();
        Some((&line[..at], known(text)?))
    })
}

fn known(text: &str) -> Option<Comment<'_>> {
    let mut words = text.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let names = |name: &str| text.split_whitespace().any(|word| word.starts_with(name));
    Some(match first {
        "" | "Using" | "Avg" => Comment::Known,
        "nccl-tests" | "rccl-tests" if second == "version" => Comment::Version(text),
        "Collective" => match text.split_once("starting:") {
            Some((_, name)) => Comment::Program(name.trim()),
            None => Comment::Known,
        },
        "nThread" | "nThreads" => Comment::Options(text),
        "Rank" => Comment::Rank(text),
        "Out" if text.starts_with("Out of bounds values") => Comment::OutOfBounds(text),
        "in-place" | "out-of-place" => Comment::Sides(text),
        _ if names("size") && (names("time") || names("cputime") || names("algbw")) => {
            Comment::Columns(text)
        }
        _ if first.starts_with('(') => Comment::Units(text),
        _ => return None,
    })
}

fn after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark)?.1.split_whitespace().next()
}

fn units(place: &str, line: &str) -> Result<()> {
    match foreign_unit(line) {
        None => Ok(()),
        Some(unit) => Err(refused(
            format!("{place}: unit ({unit}), where nccl-tests prints sizes in B, times in us and GB/s"),
            HELP,
        )),
    }
}

/// Version from `NCCL_VERSION_CODE` (format since 2.9).
pub(super) fn version(code: &str) -> Option<String> {
    let code = code.parse::<u32>().ok().filter(|code| *code >= 20_000)?;
    Some(format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100))
}

fn rank(line: &str) -> Option<Rank> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).map(|word| (*word).to_owned())
    };
    let gpu = line.split_once(']').map(|(_, name)| name.trim().to_owned());
    Some(Rank {
        rank: words.get(1)?.parse().ok()?,
        group: after("Group"),
        pid: after("Pid"),
        host: after("on"),
        gpu: gpu.filter(|name| !name.is_empty()),
    })
}

/// Programs of nccl-tests and rccl-tests, without `_perf`.
const PROGRAMS: [&str; 12] = [
    "all_gather",
    "all_reduce",
    "all_reduce_bias",
    "alltoall",
    "alltoallv",
    "broadcast",
    "gather",
    "hypercube",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
];

/// Program named in a line, such as the shell's echo of the command or the footer; prefers any other than
/// `all_reduce_perf`.
fn program_of(line: &str) -> Option<&str> {
    if !line.contains("_perf") {
        return None;
    }
    let words = line.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
    let is_program = |word: &&str| {
        word.split_once("_perf").is_some_and(|(name, suffix)| {
            PROGRAMS.contains(&name) && (suffix.is_empty() || suffix.starts_with('_'))
        })
    };
    words.filter(is_program).max_by_key(|word| !is_all_reduce(word))
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Columns {
    names: Vec<String>,
    sides: Vec<Side>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub bytes: u64,
    pub sides: Vec<(Side, Timing)>,
}

const TYPES: [&str; 16] = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16",
    "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "char", "int",
];

const UNITS: [&str; 6] = ["B", "bytes", "elements", "us", "usec", "GB/s"];

/// First unit in parentheses that nccl-tests does not print.
pub(super) fn foreign_unit(line: &str) -> Option<&str> {
    let units = line.split('(').skip(1).filter_map(|rest| rest.split_once(')'));
    units.map(|(unit, _)| unit).find(|unit| !UNITS.contains(unit))
}

/// Sides that a comment names, in order; empty if none.
pub(super) fn sides(comment: &str) -> Vec<Side> {
    let side = |word| match word {
        "out-of-place" => Some(Side::OutOfPlace),
        "in-place" => Some(Side::InPlace),
        _ => None,
    };
    comment.split_whitespace().filter_map(side).collect()
}

impl Columns {
    /// Columns that a comment names; `None` if it is not a heading. `sides` are those of the line above.
    pub(super) fn of(comment: &str, sides: &[Side]) -> Option<Self> {
        let name = |word: &str| {
            let name = word.split('(').next().unwrap_or(word).trim_start_matches('#').to_lowercase();
            if name == "errors" { "error".into() } else { name }
        };
        let names: Vec<String> =
            comment.split_whitespace().map(name).filter(|name| !is_stamp_name(name)).collect();
        let has = |name: &str| names.iter().any(|known| known == name);
        if !has("size") || !(has("time") || has("cputime") || has("algbw")) {
            return None;
        }
        let count = |name: &str| names.iter().filter(|known| *known == name).count();
        let groups = count("time").max(count("cputime")).max(count("algbw"));
        let sides = match (groups, sides) {
            (groups, sides) if sides.len() == groups => sides.to_vec(),
            (1, _) => vec![Side::Unnamed],
            _ => vec![Side::OutOfPlace, Side::InPlace],
        };
        Some(Self { names, sides })
    }

    pub(super) fn is_host_time(&self) -> bool {
        !self.names.iter().any(|name| name == "time")
    }

    /// True if a line looks like a row, even a malformed one.
    pub(super) fn is_row(&self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words.iter().filter(|word| word.parse::<f64>().is_ok()).count();
        let has_type = words.iter().take(6).any(|word| TYPES.contains(word));
        // row cut off after size and number of elements
        let whole = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let is_cut = whole(0).zip(whole(1)).is_some_and(|(bytes, count)| {
            [1, 2, 4, 8].iter().any(|size| count.checked_mul(*size) == Some(bytes))
        });
        words.len() > 1 && (has_type || is_cut || (words.len() >= 5 && 2 * numbers > words.len()))
    }

    /// Parses a row.
    ///
    /// # Errors
    ///
    /// Returns a message if the number of columns differs from the heading's or a value is not a number.
    pub(super) fn row(&self, line: &str) -> Result<Row, String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        while words.last().is_some_and(|word| is_time_stamp(word)) {
            words.pop();
        }
        let first = self.names.iter().position(|name| is_of_side(name)).unwrap_or(self.names.len());
        let (groups, named) = (self.sides.len(), self.names.len() - first);
        let has_more = words.len() > self.names.len() && named.is_multiple_of(groups);
        let (own, width) = match words.len() - first.min(words.len()) {
            rest if rest == named => (true, 0),
            rest if has_more && rest.is_multiple_of(groups) => (false, rest / groups),
            _ => {
                let problem =
                    format!("has {} columns, the heading names {}", words.len(), self.names.len());
                return Err(problem);
            }
        };
        // value of the column with this name in the given group
        let word = |name: &str, group: usize| -> Option<&str> {
            if own {
                let mut places = (0..self.names.len()).filter(|at| self.names[*at] == name);
                return places.nth(group).map(|at| words[at]);
            }
            let of_group = &self.names[first..first + named / groups];
            let at = of_group.iter().position(|known| known == name)?;
            words.get(first + group * width + at).copied()
        };
        let size = self.names.iter().position(|name| name == "size").map_or("", |at| words[at]);
        let bytes = size.parse().map_err(|_| format!("column size: '{size}' is no number of bytes"))?;
        let mut sides = Vec::with_capacity(groups);
        for (group, side) in self.sides.iter().enumerate() {
            let number = |name: &'static str| match word(name, group) {
                None | Some("N/A" | "n/a" | "-") => Ok(None),
                Some(text) => match text.parse::<f64>() {
                    Ok(value) => Ok(Some(value)),
                    Err(_) => Err(format!("column {name}: '{text}' is no number")),
                },
            };
            let measured = |name: &'static str| match number(name)? {
                Some(value) if !value.is_finite() || value < 0.0 => {
                    Err(format!("column {name}: {value} cannot be measured"))
                }
                value => Ok(value),
            };
            let timing = Timing {
                us: measured("time")?,
                algorithm_gb_s: measured("algbw")?,
                bus_gb_s: measured("busbw")?,
                wrong: number("wrong")?,
                error: number("error")?,
            };
            sides.push((*side, timing));
        }
        Ok(Row { bytes, sides })
    }
}

fn is_of_side(name: &str) -> bool {
    ["time", "cputime", "algbw", "busbw", "wrong", "error"].contains(&name)
}

fn is_stamp_name(name: &str) -> bool {
    name == "date" || name.contains("stamp")
}

/// True for a date or time of day: `2026-11-27`, `12:00:00`, `2026-11-27T12:00:00`.
fn is_time_stamp(word: &str) -> bool {
    let marks = |mark: char| word.matches(mark).count();
    let begins = word.trim_start_matches('[').starts_with(|char: char| char.is_ascii_digit());
    begins && word.parse::<f64>().is_err() && (marks(':') > 0 || marks('-') == 2 || marks('/') == 2)
}

/// Removes terminal escape sequences and the byte order mark.
pub(super) fn without_escapes(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    if !text.contains('\u{1b}') {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '\u{1b}' {
            plain.push(char);
            continue;
        }
        match chars.next() {
            // a control sequence ends with a letter or one of @[\]^_`{|}~
            Some('[') => drop(chars.by_ref().find(|char| ('@'..='~').contains(char))),
            // a title ends with a bell or an escaped backslash, at the latest at the end of the line
            Some(']') => {
                while chars.peek().is_some_and(|char| *char != '\n') {
                    if matches!(chars.next(), Some('\u{7}' | '\\')) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    plain.into()
}

/// Replaces every run of blanks (spaces, tabs, no-break spaces) by one space, so that tools that change blanks
/// change no meaning. Line numbers stay.
pub(super) fn with_single_blanks(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        for (at, word) in line.split_whitespace().enumerate() {
            lines.push_str(if at > 0 { " " } else { "" });
            lines.push_str(word);
        }
        lines.push('\n');
    }
    lines
}

/// Maximum length of a prefix (bytes).
const LONGEST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Prefixes(BTreeSet<String>);

impl Prefixes {
    pub(super) fn learn(&mut self, prefix: &str) {
        self.0.insert(shape(prefix));
    }

    /// Candidate rows after removing known prefixes, longest prefix first; each starts with a digit.
    pub(super) fn rows<'a>(&self, line: &'a str) -> Vec<&'a str> {
        let mut before = ' ';
        let mut rows = Vec::new();
        for (at, char) in line.char_indices().take_while(|(at, _)| *at <= LONGEST) {
            if char.is_ascii_digit() && !is_word(before) && self.0.contains(&shape(&line[..at])) {
                rows.push(&line[at..]);
            }
            before = char;
        }
        rows.reverse();
        rows
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Shape of a prefix: every word and number becomes `w`, runs of blanks become one, and trailing blanks go.
fn shape(prefix: &str) -> String {
    let mut shape = String::new();
    for char in prefix.trim().chars() {
        let class = match char {
            char if is_word(char) => 'w',
            char if char.is_whitespace() => ' ',
            char => char,
        };
        if !(matches!(class, 'w' | ' ') && shape.ends_with(class)) {
            shape.push(class);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(names: &str, of: &[Side]) -> Columns {
        Columns::of(names, of).unwrap()
    }

    /// Bytes, and the times of a row's ways.
    fn times(columns: &Columns, line: &str) -> (u64, Vec<(Side, Option<f64>)>) {
        let row = columns.row(line).unwrap();
        (row.bytes, row.sides.into_iter().map(|(side, timing)| (side, timing.us)).collect())
    }

    #[test]
    fn every_layout_is_read_by_its_names() {
        use Side::{InPlace, OutOfPlace, Unnamed};
        let both = [OutOfPlace, InPlace];
        let found = (1024, vec![(OutOfPlace, Some(14.0)), (InPlace, Some(13.5))]);
        for (names, row) in [
            (
                "size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.5 0.08 0.11 N/A",
            ),
            (
                "size count type redop time algbw busbw error time algbw busbw error",
                "1024 256 half sum 14.00 0.07 0.11 2e-07 13.5 0.08 0.11 2e-07",
            ),
            (
                "count size type time #wrong algbw busbw time #wrong algbw busbw",
                "256 1024 float 14.00 0 0.07 0.11 13.5 0 0.08 0.11",
            ),
            // columns of iterations, named and not; time stamps
            (
                "size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.1 15.9 15.5 13.5 0.08 0.11 0 13.0 15.7 15.2",
            ),
            (
                "size count type redop root time algbw busbw #wrong min max time algbw busbw #wrong min max",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.1 15.9 13.5 0.08 0.11 0 13.0 15.7",
            ),
            (
                "size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.5 0.08 0.11 0 2026-11-27 12:00:01",
            ),
        ] {
            assert_eq!(times(&columns(names, &both), row), found, "{names}");
        }
        let swapped = columns("size time algbw time algbw", &[InPlace, OutOfPlace]);
        let (_, sides) = times(&swapped, "1024 13.5 0.08 14.0 0.07");
        assert_eq!(sides, [(InPlace, Some(13.5)), (OutOfPlace, Some(14.0))]);
        let names = "size count type redop root time algbw busbw #wrong";
        let row = "1024 256 float sum -1 13.5 0.08 0.11 0";
        assert_eq!(times(&columns(names, &[InPlace]), row).1, [(InPlace, Some(13.5))]);
        assert_eq!(times(&columns(names, &[]), row).1, [(Unnamed, Some(13.5))]);
    }

    #[test]
    fn colours_and_titles_are_removed() {
        let text = "\u{feff}\u{1b}]0;title\u{7}\u{1b}[32m#  Rank\u{1b}[0m  0\n\u{1b}]open\nnext";
        assert_eq!(without_escapes(text), "#  Rank  0\n\nnext");
        assert!(matches!(without_escapes("plain"), Cow::Borrowed("plain")));
    }
}
