//! Reader for the text that nccl-tests prints: a heading of comments, a table, a footer.
//!
//! Launchers and loggers put prefixes before lines. They are learned from the heading, whose lines are known: the text
//! before `#` is a prefix. Rows are then cut after a prefix of the same shape (`[1,0]<stdout>:`, `0:`,
//! `[pod/name/main]`, a time stamp): letters and digits may vary between lines, punctuation may not.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::rows::{NcclTestsColumns, foreign_unit, sides};
use super::{Job, Measured, Rank, Side, is_all_reduce, refused, several_jobs, wrong_results};
use base::error::{Error, Result};

/// Lines of heading and footer: counts of those that one job prints once, and the columns of its tables.
#[derive(Default)]
struct HeadingCounts {
    programs: usize,
    versions: usize,
    options: usize,
    footers: usize,
    headings: Vec<NcclTestsColumns>,
    /// Sides that the last line above a heading names.
    sides: Vec<Side>,
}

pub(super) fn read(file: &str, text: &str) -> Result<Job> {
    let mut job = Job::default();
    let (mut seen, mut prefixes) = (HeadingCounts::default(), Prefixes::default());
    let mut elsewhere: Option<&str> = None;
    'lines: for (number, line) in (1..).zip(text.lines()) {
        let place = || format!("{file}:{number}");
        elsewhere = elsewhere.or_else(|| program_of(line));
        for (at, _) in line.match_indices('#').take(4) {
            if seen.read_comment(&mut job, line[at + 1..].trim(), place)? {
                prefixes.learn(&line[..at]);
                continue 'lines;
            }
        }
        let Some(columns) = seen.headings.last() else { continue };
        let cut: Vec<&str> = prefixes.rows(line).into_iter().filter(|row| columns.is_row(row)).collect();
        let read = cut.iter().map(|row| columns.row(row));
        match read.reduce(|first, next| first.or(next)) {
            Some(Ok((bytes, sides))) => job.rows.push(Measured { place: place(), bytes, sides }),
            Some(Err(problem)) => return Err(refused(format!("{}: {problem}", place()))),
            None => {}
        }
    }
    seen.one_job(file)?;
    match seen.headings.first() {
        None => {
            return Err(refused(format!(
                "{file}: 0 rows of nccl-tests: no heading names columns (# size ... time algbw busbw)"
            )));
        }
        Some(columns) if columns.is_host_time() => {
            return Err(Error::input_help(
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

impl HeadingCounts {
    /// Reads a line of heading or footer after its `#`; false for another comment.
    fn read_comment(&mut self, job: &mut Job, text: &str, place: impl Fn() -> String) -> Result<bool> {
        let mut words = text.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let names = |name: &str| text.split_whitespace().any(|word| word.starts_with(name));
        match first {
            "" | "Using" | "Avg" => {}
            // nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808
            "nccl-tests" | "rccl-tests" if second == "version" => {
                self.versions += 1;
                job.version = after(text, "nccl-library=").and_then(version);
            }
            // Collective test starting: all_reduce_perf
            "Collective" => {
                if let Some((_, name)) = text.split_once("starting:") {
                    self.programs += 1;
                    job.program = Some(name.trim().to_owned());
                }
            }
            // nThread 1 nGpus 8 minBytes 8 ...
            "nThread" | "nThreads" => {
                self.options += 1;
                job.gpus_per_thread = after(text, "nGpus ").and_then(|count| count.parse().ok());
                job.aggregated = after(text, "agg iters: ").and_then(|count| count.parse().ok());
                job.in_graph = Some(after(text, "graph: ").is_some_and(|count| count != "0"));
            }
            "Rank" => job.ranks.extend(rank(text)),
            // Out of bounds values : 0 OK
            "Out" if text.starts_with("Out of bounds values") => {
                self.footers += 1;
                let count = after(text, ":").unwrap_or_default();
                if count.parse() != Ok(0.0) || text.contains("FAILED") {
                    let problem = format!("{}: out of bounds values: {count}", place());
                    return Err(wrong_results(problem));
                }
            }
            "in-place" | "out-of-place" => self.sides = sides(text),
            // size count type ...
            _ if names("size") && (names("time") || names("cputime") || names("algbw")) => {
                check_units(&place(), text)?;
                self.headings.extend(NcclTestsColumns::new(text, &self.sides));
            }
            // (B) (elements) (us) ...
            _ if first.starts_with('(') => check_units(&place(), text)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

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

fn after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark)?.1.split_whitespace().next()
}

fn check_units(place: &str, line: &str) -> Result<()> {
    match foreign_unit(line) {
        None => Ok(()),
        Some(unit) => Err(refused(format!(
            "{place}: unit ({unit}), where nccl-tests prints sizes in B, times in us and GB/s"
        ))),
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

    #[test]
    fn colours_and_titles_are_removed() {
        let text = "\u{feff}\u{1b}]0;title\u{7}\u{1b}[32m#  Rank\u{1b}[0m  0\n\u{1b}]open\nnext";
        assert_eq!(without_escapes(text), "#  Rank  0\n\nnext");
        assert!(matches!(without_escapes("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn rows_are_cut_behind_a_prefix_of_the_headings_shape() {
        for (heading, row) in [
            ("[1,0]<stdout>:", "[1,0]<stdout>:   8  2 float"),
            ("[prterun-gpu-a-41@1,0]<stdout>: ", "[prterun-gpu-a-41@1,0]<stdout>: 8  2 float"),
            (" 0: ", " 0:        8  2 float"),
            ("[pod/job-abc-0/main] ", "[pod/job-abc-0/main]   8  2 float"),
            ("[2026-11-27 12:00:00] ", "[2026-11-27 12:00:01]   8  2 float"),
            ("2026-11-27T12:00:00.123Z ", "2026-11-27T12:00:01.7Z 8  2 float"),
            ("Nov 27 12:00:00 ", "Dec 28 12:00:01    8  2 float"),
            ("worker-1  | ", "worker-1  |  8  2 float"),
            ("", "      8  2 float"),
        ] {
            let mut prefixes = Prefixes::default();
            prefixes.learn(heading);
            let rows: Vec<String> =
                prefixes.rows(row).iter().map(|row| row.split_whitespace().collect()).collect();
            assert_eq!(rows, ["82float"], "{heading:?}");
        }
        let mut prefixes = Prefixes::default();
        prefixes.learn("0: ");
        assert!(prefixes.rows("   8  2 float").is_empty());
        assert!(prefixes.rows("[1,1]<stdout>:gpu-a: 8 channels").is_empty());
    }
}
