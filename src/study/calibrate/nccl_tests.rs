//! What `all_reduce_perf` of NVIDIA's nccl-tests prints: how long an all-reduce takes, by message.
//!
//! Read are the heading's ranks, hosts and GPUs, `graph`, the library's version where it is told, and of each row its
//! size and its in-place time, which is what a decoder asks for. Which collective it was follows from the numbers: bus
//! bandwidth over algorithm bandwidth is 2 (n - 1) / n for an all-reduce alone (nccl-tests, `doc/PERFORMANCE.md`).

use crate::base::error::{Error, Result};

/// How far the ratio of the two bandwidths may be from an all-reduce's: they are printed with two decimals.
const ROUNDING: f64 = 0.05;

/// From which bandwidth on (GB/s) two decimals tell the ratio of two of them.
const TELLING: f64 = 1.0;

/// Measured all-reduces over so many ranks, by message.
#[derive(Clone, Debug, PartialEq)]
pub struct AllReduces {
    /// What measured them: `nccl-tests`, `a trace`.
    pub origin: &'static str,
    /// Ranks that took part.
    pub ranks: u32,
    /// The GPU, as its driver names it, where the heading tells it.
    pub gpu: Option<String>,
    /// Whether collectives were replayed from CUDA graphs, without the cost of launching each; `None` where nothing tells.
    pub in_graph: Option<bool>,
    /// The version of NCCL, where it is told: `2.28.8`.
    pub version: Option<String>,
    /// Message bytes and in-place latency (us), by bytes ascending, none twice.
    pub points: Vec<(u64, f64)>,
}

impl AllReduces {
    /// Reads what `all_reduce_perf` printed; `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// Input errors, with the line: text that is no such output, another collective, wrong results, ranks on several
    /// hosts (a profile's links between nodes are a formula), fewer than two sizes.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let wrong = |line: usize, problem: String| {
            Error::input_help(
                format!("{file}:{}: {problem}", line + 1),
                "give what `all_reduce_perf -b 8 -e 512M -f 2 -g GPUS` of nccl-tests printed",
            )
        };
        let mut heading = Heading::default();
        let mut points: Vec<(u64, f64)> = Vec::new();
        let mut ratio = None;
        for (at, line) in text.lines().enumerate() {
            if let Some(comment) = line.trim_start().strip_prefix('#') {
                heading.read(comment);
                continue;
            }
            let Some(row) = Row::of(line) else { continue };
            if row.wrong > 0 {
                return Err(wrong(at, format!("{} wrong results at {} bytes", row.wrong, row.bytes)));
            }
            if row.algorithm_gb_s >= TELLING {
                ratio = Some((at, row.bus_gb_s / row.algorithm_gb_s));
            }
            if row.bytes > 0 && row.us > 0.0 {
                points.push((row.bytes, row.us));
            }
        }
        points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup_by_key(|point| point.0);
        let last = text.lines().count().saturating_sub(1);
        if points.len() < 2 {
            let found = format!("{} rows of sizes and times, where at least 2 are needed", points.len());
            return Err(wrong(last, found));
        }
        if heading.hosts.len() > 1 {
            let hosts = heading.hosts.len();
            return Err(wrong(
                last,
                format!("ranks on {hosts} hosts; a profile has points within a node"),
            ));
        }
        let ranks = heading.ranks;
        if ranks < 2 {
            return Err(wrong(
                last,
                format!("{ranks} ranks in the heading's `Rank` lines; at least 2 are needed"),
            ));
        }
        let expected = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
        if let Some((at, ratio)) = ratio
            && (ratio / expected - 1.0).abs() > ROUNDING
        {
            let problem = format!(
                "bus over algorithm bandwidth is {ratio:.2}; an all-reduce over {ranks} ranks has {expected:.2}, so that this is another collective"
            );
            return Err(wrong(at, problem));
        }
        let Heading { gpu, in_graph, version, .. } = heading;
        Ok(Self { origin: "nccl-tests", ranks, gpu, in_graph: Some(in_graph), version, points })
    }
}

/// What the lines that begin with `#` tell.
#[derive(Default)]
struct Heading {
    ranks: u32,
    hosts: Vec<String>,
    gpu: Option<String>,
    in_graph: bool,
    version: Option<String>,
}

impl Heading {
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after =
            |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1));
        if words.first() == Some(&"Rank") {
            self.ranks = self.ranks.saturating_add(1);
            if let Some(host) = after("on").filter(|host| !self.hosts.iter().any(|known| known == *host))
            {
                self.hosts.push((*host).to_owned());
            }
            if let Some((_, name)) = line.split_once(']').filter(|_| self.gpu.is_none()) {
                self.gpu = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
            }
        }
        self.in_graph |= after("graph:").is_some_and(|count| *count != "0");
        let library = words.iter().find_map(|word| word.strip_prefix("nccl-library="));
        let code = library.and_then(|code| code.parse::<u32>().ok());
        // NCCL's NCCL_VERSION_CODE since 2.9
        if let Some(code) = code.filter(|code| *code >= 20_000) {
            let [major, minor, patch] = [code / 10_000, code / 100 % 100, code % 100];
            self.version = Some(format!("{major}.{minor}.{patch}"));
        }
    }
}

/// A row: `size count type redop root`, then out of place and in place `time algbw busbw #wrong`.
struct Row {
    bytes: u64,
    us: f64,
    algorithm_gb_s: f64,
    bus_gb_s: f64,
    wrong: u64,
}

impl Row {
    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [bytes, _count, _type, _redop, _root, rest @ ..] = words.as_slice() else { return None };
        let [_, _, _, out_of_place, us, algorithm, bus, in_place] = rest else { return None };
        let number = |word: &str| word.parse::<f64>().ok().filter(|value| value.is_finite());
        // N/A where nobody checked
        let wrong = [out_of_place, in_place].map(|word| word.parse::<u64>().unwrap_or_default());
        Some(Self {
            bytes: bytes.parse().ok()?,
            us: number(us)?,
            algorithm_gb_s: number(algorithm)?,
            bus_gb_s: number(bus)?,
            wrong: wrong[0].saturating_add(wrong[1]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An output in the program's format over so many ranks, for these rows of bytes and us.
    fn output(ranks: u32, graph: u32, factor: f64, rows: &[(u64, f64)]) -> String {
        let mut text = format!(
            "# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808\n\
             # nThread 1 nGpus {ranks} minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: {graph}\n#\n# Using devices\n"
        );
        for rank in 0..ranks {
            text += &format!(
                "#  Rank  {rank} Group  0 Pid   4711 on node-a device  {rank} [0000:1b:00] NVIDIA H100 80GB HBM3\n"
            );
        }
        text += "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n";
        for (bytes, us) in rows {
            let algorithm = *bytes as f64 / us / 1e3;
            let [algorithm, bus] = [algorithm, algorithm * factor].map(|value| format!("{value:.2}"));
            text += &format!(
                "{bytes:12} {:12}  float     sum      -1  {:7.2} {algorithm} {bus} 0  {us:7.2} {algorithm} {bus} N/A\n",
                bytes / 4,
                us + 1.0
            );
        }
        text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 123.4\n"
    }

    const ROWS: [(u64, f64); 4] = [(8, 12.5), (1024, 12.75), (1 << 20, 25.0), (1 << 30, 4200.0)];

    #[test]
    fn in_place_times_ranks_gpu_and_version_are_read() {
        let test = AllReduces::parse("a.txt", &output(8, 1, 1.75, &ROWS)).unwrap();
        assert_eq!(test.points, ROWS);
        assert_eq!((test.ranks, test.in_graph), (8, Some(true)));
        assert_eq!(
            (test.gpu.as_deref(), test.version.as_deref()),
            (Some("NVIDIA H100 80GB HBM3"), Some("2.28.8"))
        );
        let eager = AllReduces::parse("a.txt", &output(8, 0, 1.75, &ROWS)).unwrap();
        assert_eq!(eager.in_graph, Some(false));
    }

    #[test]
    fn what_is_no_all_reduce_of_a_node_is_refused_with_the_reason() {
        let problem = |text: &str| {
            let error = AllReduces::parse("a.txt", text).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        // all_gather and reduce_scatter move half as much
        let other = problem(&output(8, 0, 0.875, &ROWS));
        assert!(
            other.contains("is 0.87; an all-reduce over 8 ranks has 1.75") || other.contains("0.88;"),
            "{other}"
        );
        let good = output(4, 0, 1.5, &ROWS);
        let two = problem(&good.replacen("on node-a", "on node-b", 1));
        assert!(two.contains("2 hosts"), "{two}");
        let wrong = problem(&good.replacen(" 0  ", " 3  ", 1));
        assert!(wrong.starts_with("a.txt:10: 3 wrong results at 8 bytes"), "{wrong}");
        let few = problem(&output(4, 0, 1.5, &ROWS[..1]));
        assert!(few.contains("1 rows of sizes"), "{few}");
        assert!(problem("hello").contains("0 rows"), "no such output");
    }

    proptest! {
        #[test]
        fn damaged_output_is_read_or_refused(at in 0_usize..1500, with in "\\PC{0,9}", cut in 0_usize..1500) {
            let mut text: Vec<char> = output(2, 0, 1.0, &ROWS).chars().collect();
            let at = at.min(text.len());
            text.splice(at..(at + cut).min(text.len()), with.chars());
            let text: String = text.into_iter().collect();
            if let Ok(test) = AllReduces::parse("a.txt", &text) {
                prop_assert!(test.points.is_sorted_by(|a, b| a.0 < b.0));
                prop_assert!(test.points.iter().all(|(bytes, us)| *bytes > 0 && *us > 0.0));
            }
        }
    }
}
