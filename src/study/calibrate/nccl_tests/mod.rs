//! Reader for the output of `all_reduce_perf` of NVIDIA's nccl-tests or AMD's rccl-tests: all-reduce latency
//! by message size.
//!
//! Text and JSON (`-J`) both become a [`Job`], which checks the program, verified results, ranks of one job
//! on one node, and times that match their bandwidths. In-place times are preferred, because decoders sum in
//! place.

mod rows;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use base::error::{Error, Result};
use base::statistics::median;
use base::text::counted;

/// Relative tolerance of the ratio of two printed numbers: bandwidths have two decimals.
const ROUNDING: f64 = 0.05;

/// Minimum bandwidth (GB/s) at which two decimals suffice for the ratio of two bandwidths.
const TELLING: f64 = 1.0;

/// Maximum deviation in the `error` column of old versions; anything above is a wrong result for every type.
const WRONG_ERROR: f64 = 0.1;

const PROGRAM: &str = "all_reduce_perf";

/// True for the all-reduce program, also built with a suffix of its name (`NAME_SUFFIX=_mpi`).
fn is_all_reduce(program: &str) -> bool {
    program.strip_prefix(PROGRAM).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('_'))
}

/// Measured all-reduces over one number of ranks, by message size.
#[derive(Clone, Debug, PartialEq)]
pub struct AllReduces {
    /// `nccl-tests`, `NCCL Inspector` or `a trace`.
    pub origin: &'static str,
    pub ranks: u32,
    pub gpu: Option<String>,
    /// True if CUDA graphs replayed the collectives, without launch cost; `None` if unknown.
    pub in_graph: Option<bool>,
    /// NCCL version, if known: `2.28.8`.
    pub version: Option<String>,
    /// Message bytes and in-place latency (us), ascending and unique by bytes.
    pub points: Vec<(u64, f64)>,
    pub warnings: Vec<String>,
}

/// Origin of all-reduces that ran back to back, with nothing else.
const NCCL_TESTS: &str = "nccl-tests";

/// Placement of the result: in the input buffer, or in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    OutOfPlace,
    InPlace,
    /// Only one, not named by the heading.
    Unnamed,
}

/// Timing of a message on one side; `None` for `N/A` and for missing columns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Timing {
    us: Option<f64>,
    algorithm_gb_s: Option<f64>,
    bus_gb_s: Option<f64>,
    wrong: Option<f64>,
    error: Option<f64>,
}

/// Message with its source (`a.txt:12`) and the timing of each side.
#[derive(Clone, Debug)]
struct Measured {
    place: String,
    bytes: u64,
    sides: Vec<(Side, Timing)>,
}

#[derive(Clone, Debug, Default)]
struct Rank {
    rank: u32,
    group: Option<String>,
    pid: Option<String>,
    host: Option<String>,
    gpu: Option<String>,
}

#[derive(Debug, Default)]
struct Job {
    /// Program in the output; the heading takes precedence.
    program: Option<String>,
    ranks: Vec<Rank>,
    /// GPUs that one thread drives, if the heading says so.
    gpus_per_thread: Option<u32>,
    in_graph: Option<bool>,
    /// All-reduces that a launch performs together (-m).
    aggregated: Option<u32>,
    version: Option<String>,
    rows: Vec<Measured>,
}

fn refused(problem: String) -> Error {
    Error::input_help(problem, HELP)
}

fn wrong_results(problem: String) -> Error {
    Error::input_help(
        problem,
        "the all-reduce computed wrong sums, so its times mean nothing; repair the installation and measure again",
    )
}

fn several_jobs(file: &str, evidence: &str) -> Error {
    Error::input_help(
        format!("{file}: several jobs in one file: {evidence}"),
        "give one file for each job; ranks that each start a job of their own need nccl-tests built with MPI=1",
    )
}

impl AllReduces {
    /// True if the all-reduces ran inside a model, among its kernels.
    pub fn are_of_a_model(&self) -> bool {
        self.origin != NCCL_TESTS
    }

    /// True if the start of a file looks like nccl-tests output, by words that traces do not contain.
    pub fn is_output(head: &[u8]) -> bool {
        [&b"busbw"[..], b"bus_bw", b"nThread "]
            .iter()
            .any(|word| head.windows(word.len()).any(|at| at == *word))
    }

    /// Parses the output of `all_reduce_perf`, text or JSON; `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// Returns an error, with line and column if possible, if the text is not such an output, or is from
    /// another program, and for wrong results, several jobs, ranks on several hosts, host times, or fewer
    /// than two sizes.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let text = text::without_escapes(text);
        let job = match text.trim_start().starts_with('{') {
            true => rows::read(file, &text)?,
            false => text::read(file, &text::with_single_blanks(&text))?,
        };
        job.all_reduces(file)
    }
}

impl Job {
    fn all_reduces(self, file: &str) -> Result<AllReduces> {
        if let Some(other) = self.program.as_deref().filter(|program| !is_all_reduce(program)) {
            return Err(refused(format!(
                "{file}: output of {other}, where only {PROGRAM} measures an all-reduce"
            )));
        }
        if let Some(count) = self.aggregated.filter(|count| *count > 1) {
            return Err(Error::input_help(
                format!(
                    "{file}: {count} all-reduces a launch (-m {count}): its times are shares of their latency"
                ),
                "measure one all-reduce a launch, without -m (--agg_iters)",
            ));
        }
        self.check_results()?;
        let mut warnings = Vec::new();
        let points = self.points(file, &mut warnings)?;
        let ranks = self.check_ranks(file)?;
        self.check_bandwidths(file, ranks)?;
        let verified =
            |row: &Measured| row.sides.iter().any(|(_, timing)| timing.wrong.or(timing.error).is_some());
        if !self.rows.iter().any(verified) {
            warnings.push("results were not verified (#wrong is N/A)".into());
        }
        if self.in_graph != Some(true) && self.drives_several(ranks) {
            warnings.push(format!(
                "one process launches on {ranks} GPUs, one after another: small messages measure launches. Start a \
                 process for each GPU (`mpirun -np {ranks} {PROGRAM} -g 1`, built with MPI=1), or replay graphs (-G 1)"
            ));
        }
        let mut gpus: Vec<&str> = self.ranks.iter().filter_map(|rank| rank.gpu.as_deref()).collect();
        gpus.dedup();
        if let [one, other, ..] = gpus.as_slice() {
            warnings.push(format!("ranks on different GPUs: {one}, {other}"));
        }
        let gpu = gpus.first().map(|gpu| (*gpu).to_owned());
        let Self { in_graph, version, .. } = self;
        Ok(AllReduces { origin: NCCL_TESTS, ranks, gpu, in_graph, version, points, warnings })
    }

    fn check_results(&self) -> Result<()> {
        for Measured { place, bytes, sides } in &self.rows {
            for (_, timing) in sides {
                if let Some(wrong) = timing.wrong.filter(|wrong| *wrong != 0.0) {
                    return Err(wrong_results(format!(
                        "{place}: {wrong} wrong results at {bytes} bytes"
                    )));
                }
                if let Some(error) = timing.error.filter(|error| !(0.0..=WRONG_ERROR).contains(error)) {
                    return Err(wrong_results(format!("{place}: an error of {error} at {bytes} bytes")));
                }
            }
        }
        Ok(())
    }

    /// Number of ranks; checks that they belong to one job on one node.
    fn check_ranks(&self, file: &str) -> Result<u32> {
        let count = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let mut numbers: Vec<u32> = self.ranks.iter().map(|rank| rank.rank).collect();
        numbers.sort_unstable();
        if let Some([twice, _]) = numbers.array_windows().find(|[a, b]| a == b) {
            return Err(several_jobs(file, &format!("rank {twice} is listed twice")));
        }
        if let Some((missing, _)) = (0..).zip(&numbers).find(|(wanted, found)| wanted != *found) {
            let listed = numbers.len();
            return Err(Error::input_help(
                format!("{file}: the heading lists {listed} ranks, but not rank {missing}"),
                "give the whole output, with a `Rank` line for each rank",
            ));
        }
        let distinct = |of: fn(&Rank) -> Option<&String>| {
            self.ranks.iter().filter_map(of).collect::<BTreeSet<_>>().len()
        };
        let groups = distinct(|rank| rank.group.as_ref());
        if groups > 1 {
            return Err(Error::input_help(
                format!("{file}: ranks in {groups} groups that all measure at once (NCCL_TESTS_SPLIT)"),
                "measure one group of ranks at a time",
            ));
        }
        let hosts = distinct(|rank| rank.host.as_ref());
        if hosts > 1 {
            return Err(Error::input_help(
                format!("{file}: ranks on {hosts} hosts; a profile has points within a node"),
                "measure ranks of one node",
            ));
        }
        if count < 2 {
            return Err(refused(format!(
                "{file}: {count} ranks in the heading's `Rank` lines; at least 2 are needed"
            )));
        }
        Ok(count)
    }

    /// Checks that times, sizes and bandwidths are consistent and that bandwidths are those of an all-reduce.
    fn check_bandwidths(&self, file: &str, ranks: u32) -> Result<()> {
        let mut telling: Option<(&str, f64, f64)> = None;
        for Measured { place, bytes, sides } in &self.rows {
            for (_, timing) in sides {
                let (Some(us), Some(algorithm)) = (timing.us, timing.algorithm_gb_s) else { continue };
                let follows = *bytes as f64 / us / 1e3;
                if *bytes > 0 && us > 0.0 && (follows - algorithm).abs() > 0.02 + ROUNDING * follows {
                    return Err(Error::input_help(
                        format!(
                            "{place}: {bytes} bytes in {us} us are {follows:.2} GB/s; column algbw says {algorithm}"
                        ),
                        "columns or units are not those of nccl-tests: sizes in bytes, times in us, GB/s of 1e9 bytes",
                    ));
                }
                let is_most = telling.is_none_or(|(_, most, _)| algorithm > most);
                if let Some(bus) = timing.bus_gb_s.filter(|_| algorithm >= TELLING && is_most) {
                    telling = Some((place, algorithm, bus / algorithm));
                }
            }
        }
        // bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)
        let expected = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
        if let Some((place, _, ratio)) = telling.filter(|it| (it.2 / expected - 1.0).abs() > ROUNDING) {
            return Err(refused(format!(
                "{place}: bus over algorithm bandwidth is {ratio:.2}; an all-reduce over {ranks} ranks has \
                     {expected:.2}, so that this is another collective or number of ranks"
            )));
        }
        let why = match (&self.program, telling) {
            (Some(_), _) => return Ok(()),
            (None, _) if ranks == 2 => {
                "2 ranks have the same bandwidths in a broadcast, reduce or sendrecv"
            }
            (None, None) => "its messages are too small for their bandwidths to show the collective",
            (None, Some(_)) => return Ok(()),
        };
        Err(Error::input_help(
            format!("{file}: the output does not name its program, and {why}"),
            "if it was all_reduce_perf, add the line '# Collective test starting: all_reduce_perf', which nccl-tests \
             prints since 2.17",
        ))
    }

    fn drives_several(&self, ranks: u32) -> bool {
        let mut pids: Vec<&String> = self.ranks.iter().filter_map(|rank| rank.pid.as_ref()).collect();
        pids.dedup();
        self.gpus_per_thread.map_or(ranks > 1 && pids.len() == 1, |gpus| gpus > 1)
    }

    /// Latency by message size, ascending: in place if every row has it, else out of place; the median if a
    /// size was measured several times.
    fn points(&self, file: &str, warnings: &mut Vec<String>) -> Result<Vec<(u64, f64)>> {
        let rows = || self.rows.iter().filter(|row| row.bytes > 0);
        let of = |row: &Measured, wanted: Side| {
            row.sides.iter().find(|(side, _)| *side == wanted).and_then(|(_, timing)| timing.us)
        };
        let taken = [Side::InPlace, Side::Unnamed, Side::OutOfPlace]
            .into_iter()
            .find(|side| rows().all(|row| of(row, *side).is_some()));
        let Some(side) = taken else {
            let lacks = rows().find(|row| of(row, Side::InPlace).is_none());
            let place = lacks.map_or(file, |row| &row.place);
            return Err(refused(format!("{place}: no time in a row where others have one")));
        };
        match side {
            Side::InPlace => {}
            Side::OutOfPlace => warnings.push("only out-of-place times: taken as in-place ones".into()),
            Side::Unnamed => {
                warnings
                    .push("the heading does not say whether times are in-place: taken as such".into());
            }
        }
        let mut by: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for row in rows() {
            let us = of(row, side).unwrap_or_default();
            if us <= 0.0 {
                return Err(refused(format!("{}: column time: {us} us", row.place)));
            }
            by.entry(row.bytes).or_default().push(us);
        }
        if by.len() < 2 {
            return Err(refused(format!(
                "{file}: {} with a time, where at least 2 are needed",
                counted(by.len(), "size")
            )));
        }
        let most = by.values().map(Vec::len).max().unwrap_or_default();
        if most > 1 {
            warnings.push(format!("sizes were measured up to {most} times: medians are taken"));
        }
        Ok(by.into_iter().filter_map(|(bytes, us)| Some((bytes, median(&us)?))).collect())
    }
}

const HELP: &str = "give the whole output of `all_reduce_perf -b 8 -e 512M -f 2` of nccl-tests";

#[cfg(test)]
mod tests;
