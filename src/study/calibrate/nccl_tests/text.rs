//! Reader for the text that nccl-tests prints: a heading of comments, a table, a footer.

use super::lines::Prefixes;
use super::rows::{Columns, foreign_unit, sides};
use super::{HELP, Job, Measured, Rank, Side, is_all_reduce, refused, several_jobs, wrong_results};
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
