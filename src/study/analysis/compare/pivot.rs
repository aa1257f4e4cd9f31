//! Comparison as a pivot table: one row per setting, one column per compared value, and the fastest value of each row.
//!
//! Axes of comparison: an option of the cell, an environment variable of the run, or an override of the hardware
//! profile.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::tables::RowSettings;
use super::{Comparison, ComparisonReport, PairVerdict, is_beaten_by_noise};
use crate::analysis::is_measured_apart;
use base::error::{Error, Result};
use base::text::{counted, same_name};
use table::Spec;
use table::options::{self, OPTIONS};
use table::render::{Shown, Table};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pivot {
    /// Compared values, `upper-bound` last.
    pub values: Vec<String>,
    pub rows: Vec<PivotRow>,
}

/// Pairs that share a baseline cell; pairs and columns are indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PivotRow {
    /// Pair in the report of each value; `None` if the value was not run at this setting.
    pub pairs: Vec<Option<usize>>,
    /// Columns that beat the baseline by most: several if they tie, none if nothing is faster. `upper-bound` is a limit
    /// and never among them.
    pub fastest: Vec<usize>,
    /// Column with the highest ratio, if possible not `upper-bound`.
    pub best: usize,
    /// True if everything compared with the baseline is slower.
    pub baseline_wins: bool,
    /// True if nothing is faster than the baseline, and something ties with it.
    pub baseline_ties: bool,
}

impl Pivot {
    /// Arranges these pairs of a report, in their order.
    pub fn new(report: &ComparisonReport, pairs: &[usize]) -> Self {
        let mut limits: BTreeMap<&str, bool> = BTreeMap::new();
        for pair in pairs.iter().map(|at| &report.pairs[*at]) {
            *limits.entry(&pair.value).or_insert(true) &= pair.is_limit();
        }
        let mut values = report.values.clone();
        values.retain(|value| limits.contains_key(value.as_str()));
        values.sort_by_key(|value| limits[value.as_str()]);
        let mut rows: Vec<Vec<Option<usize>>> = Vec::new();
        let mut row_of: HashMap<&str, usize> = HashMap::new();
        for &at in pairs {
            let pair = &report.pairs[at];
            let Some(column) = values.iter().position(|value| *value == pair.value) else { continue };
            let row = row_of.get(pair.baseline_run.as_str()).copied();
            let row = row.filter(|row| rows[*row][column].is_none()).unwrap_or_else(|| {
                rows.push(vec![None; values.len()]);
                row_of.insert(&pair.baseline_run, rows.len() - 1);
                rows.len() - 1
            });
            rows[row][column] = Some(at);
        }
        let rows = rows.into_iter().map(|pairs| PivotRow::new(report, pairs)).collect();
        Self { values, rows }
    }

    /// Number of settings in which each value is the fastest, alone or tied: `fastest of 20 settings: ladder 18,
    /// parallel 12`.
    pub fn wins(&self) -> String {
        let count = |column: usize| self.rows.iter().filter(|row| row.fastest.contains(&column)).count();
        let wins = self.values.iter().enumerate().map(|(column, value)| (value, count(column)));
        let wins: Vec<String> = wins
            .filter(|(_, count)| *count > 0)
            .map(|(value, count)| format!("{value} {count}"))
            .collect();
        let wins = if wins.is_empty() { "none".to_owned() } else { wins.join(", ") };
        format!("fastest of {}: {wins}", counted(self.rows.len(), "setting"))
    }
}

impl PivotRow {
    fn new(report: &ComparisonReport, pairs: Vec<Option<usize>>) -> Self {
        let known = || pairs.iter().enumerate().filter_map(|(column, at)| Some((column, (*at)?)));
        let cells: Vec<(usize, &Comparison)> =
            known().map(|(column, at)| (column, &report.pairs[at])).collect();
        let choices: Vec<&Comparison> =
            cells.iter().map(|(_, pair)| *pair).filter(|pair| !pair.is_limit()).collect();
        let column = |fast: &Comparison| cells.iter().find(|(_, pair)| std::ptr::eq(*pair, fast));
        let fastest: Vec<usize> = fastest(&choices)
            .into_iter()
            .filter(|pair| !pair.is_above_limit)
            .filter_map(|pair| Some(column(pair)?.0))
            .collect();
        let rank = |pair: &Comparison| (!pair.is_limit(), pair.speedup);
        let highest = cells.iter().max_by(|(_, a), (_, b)| {
            let [a, b] = [rank(a), rank(b)];
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        Self {
            best: fastest.first().copied().or(highest.map(|(column, _)| *column)).unwrap_or_default(),
            baseline_wins: !choices.is_empty()
                && choices.iter().all(|pair| pair.verdict == PairVerdict::Slower),
            baseline_ties: fastest.is_empty() && choices.iter().any(|pair| pair.verdict.is_tie()),
            fastest,
            pairs,
        }
    }

    /// Indices in the report of the row's pairs.
    pub fn known(&self) -> impl Iterator<Item = usize> + '_ {
        self.pairs.iter().copied().flatten()
    }

    /// Values that are fastest, the best first, or the baseline with those that tie with it; empty if the samples decide
    /// nothing.
    pub fn winners<'a>(&self, report: &'a ComparisonReport) -> Vec<&'a str> {
        let fastest = self.fastest.iter().filter_map(|column| self.pairs[*column]);
        // only if nothing is faster than the baseline
        let tied = self.known().filter(|at| self.ties_as_fastest(report, &report.pairs[*at]));
        let values = fastest.chain(tied).map(|at| report.pairs[at].value.as_str());
        let first = self.known().next().filter(|_| self.baseline_wins || self.baseline_ties);
        let baseline = first.map(|at| report.pairs[at].baseline.as_str());
        baseline.into_iter().chain(values).collect()
    }

    /// Marks of the baseline: `★` if everything else is slower, `★≈` if nothing is faster and something ties with it.
    pub fn baseline_marks(&self) -> &'static str {
        match (self.baseline_wins, self.baseline_ties) {
            (true, _) => "★",
            (_, true) => "★≈",
            _ => "",
        }
    }

    /// Ratio of a cell after its [marks](Self::marks); `-` without a pair.
    pub fn words(&self, report: &ComparisonReport, column: usize) -> String {
        let pair = self.pairs[column].map(|at| &report.pairs[at]);
        pair.map_or("-".into(), |pair| format!("{}{:.2}x", self.marks(report, column), pair.speedup))
    }

    /// Marks of a cell: `★` the fastest, `★≈` tied for the fastest, `≈` no clear difference from the baseline, `?` too few samples, `!` above
    /// the upper bound, or the bound itself, `†` a published speedup that differs by more than the tie band.
    pub fn marks(&self, report: &ComparisonReport, column: usize) -> String {
        let Some(pair) = self.pairs[column].map(|at| &report.pairs[at]) else { return String::new() };
        let wins = self.fastest.contains(&column) || self.ties_as_fastest(report, pair);
        let tie = match pair.verdict.mark() {
            _ if pair.is_above_limit || self.is_beaten(report, column) => "!",
            "" if wins && self.fastest.len() > 1 => "≈",
            mark => mark,
        };
        let misses = pair.published_speedup.is_some_and(|of| !pair.is_tie(1.0 + of.error_pct / 100.0));
        let published = if misses { "†" } else { "" };
        format!("{}{tie}{published}", if wins { "★" } else { "" })
    }

    /// True if a pair of the row ties with the baseline, and nothing is faster than the two.
    fn ties_as_fastest(&self, report: &ComparisonReport, pair: &Comparison) -> bool {
        let is_led = || self.known().any(|at| report.pairs[at].leads(pair));
        self.baseline_ties && pair.verdict.is_tie() && !pair.is_limit() && !is_led()
    }

    /// True if the column is an upper bound that noise put below another column.
    pub fn is_beaten(&self, report: &ComparisonReport, column: usize) -> bool {
        let pair = |at: usize| &report.pairs[at];
        let Some(limit) = self.pairs[column].map(pair).filter(|limit| limit.is_limit()) else {
            return false;
        };
        self.known().any(|at| is_beaten_by_noise(limit, [pair(at)]))
    }
}

/// Fastest of the pairs that beat the baseline, best first, with those that [tie](Comparison::ties_with) with it; simulations
/// whether or not they beat the baseline too, unless another pair leads them.
pub(crate) fn fastest<'a>(pairs: &[&'a Comparison]) -> Vec<&'a Comparison> {
    let mut fastest = pairs.to_vec();
    fastest.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    let is_faster = |pair: &&&Comparison| pair.verdict == PairVerdict::Faster;
    let Some(best) = fastest.iter().find(is_faster).copied() else { return Vec::new() };
    let is_led = |pair: &Comparison| pairs.iter().any(|rival| rival.leads(pair));
    let ties = |pair: &Comparison| pair.verdict != PairVerdict::Slower && pair.ties_with(best);
    fastest.retain(|pair| std::ptr::eq(*pair, best) || ties(pair) && !is_led(pair));
    fastest
}

/// Table with one row per setting: the baseline's TPOT and the ratio of tokens/s of each value.
pub fn pivot_table(report: &ComparisonReport, pivot: &Pivot) -> Table {
    let latency = match report.latency() {
        "TPOT" => "baseline_tpot_ms|baseline TPOT ms",
        _ => "baseline_ttft_ms|baseline TTFT ms",
    };
    let fixed = ["matched|", "~|cell", "by|", "baseline", latency].map(str::to_owned);
    // files name the measure, titles only the value
    let measure = if report.latency() == "TPOT" { "tokens_per_s" } else { "ttft" };
    let values = pivot.values.iter().map(|value| value.replace('|', "/"));
    let values = values.flat_map(|value| {
        let ratio = format!("{value}_{measure}_ratio");
        let of_file = ["ci95_low", "ci95_high"].map(|end| format!("{ratio}_{end}|"));
        [format!("{ratio}|{value}")].into_iter().chain(of_file).chain([format!("{value}_verdict|")])
    });
    let last = ["fastest", "!provenance", "baseline_run|"].map(str::to_owned);
    let settings = RowSettings::from_report(report);
    let mut table = Table::new(fixed.into_iter().chain(values).chain(last));
    for row in &pivot.rows {
        let Some(first) = row.known().next().map(|at| &report.pairs[at]) else { continue };
        let fastest = row.winners(report).join(" ≈ ");
        let of_pair = |at: &Option<usize>| {
            let Some(pair) = at.map(|at| &report.pairs[at]) else { return [const { Shown::None }; 4] };
            let end = |at: usize| Shown::number(pair.speedup_ci95.map(|ends| ends[at]), 3);
            match is_measured_apart(pair) {
                true => [Shown::None, Shown::None, Shown::None, Shown::text(pair.why_unknown())],
                false => [
                    Shown::Interval(pair.speedup, pair.speedup_ci95, 2),
                    end(0),
                    end(1),
                    Shown::text(pair.verdict_word()),
                ],
            }
        };
        let mut cells = vec![
            Shown::text(&first.matched),
            Shown::some(settings.name(first)),
            Shown::text(&report.by),
            Shown::text(&first.baseline),
            Shown::number(
                Some(first.latencies_ms()[0]).filter(|_| first.latency() == report.latency()),
                3,
            ),
        ];
        cells.extend(row.pairs.iter().flat_map(of_pair));
        cells.extend([
            Shown::some(fastest),
            Shown::text(first.provenance),
            Shown::text(&first.baseline_run),
        ]);
        table.push(cells);
    }
    table
}

/// Value shown for a variable that a cell does not set.
pub const UNSET: &str = "unset";

/// Name of [`Axis::Division`].
const DIVISION: &str = "division";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Option of a cell, by its name in files.
    Option(&'static str),
    /// Division of equally many GPUs into TP, EP and DP: `tp8`, `tp8+ep8`, `dp8+ep8`.
    Division,
    /// Environment variable of the run: `NCCL_ALGO`.
    Env(String),
    /// Override of a profile value: `link.alpha_us`.
    Set(String),
}

impl Axis {
    pub const ARCHITECTURE: Self = Self::Option("architecture");
    pub const P2P: Self = Self::Option("p2p");
    pub const TP: Self = Self::Option("tp");
    /// Options that [`Self::Division`] replaces.
    pub const DIVIDED: [&str; 3] = ["tp", "ep", "dp"];

    /// Parses the name of an axis: an option, `division`, a variable in capitals (`NCCL_ALGO`, or any name after `env:`), or a
    /// dotted profile value (`link.alpha_us`, or any name after `set:`). Returns an error with the nearest option for
    /// other names.
    pub fn parse(name: &str) -> Result<Self> {
        if let Some(option) = OPTIONS.iter().find(|option| same_name(option.name, name)) {
            return Ok(Self::Option(option.name));
        }
        if same_name(DIVISION, name) {
            return Ok(Self::Division);
        }
        let named = |key: &str| (!key.is_empty()).then(|| key.to_owned());
        let capitals = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        // filters and experiment files use a dot
        let prefixed = |with: [&str; 2]| with.iter().find_map(|prefix| name.strip_prefix(prefix));
        let env = match prefixed(["env:", "env."]) {
            None if name.chars().all(capitals) => named(name),
            rest => rest.and_then(named),
        };
        let set = match prefixed(["set:", "set."]) {
            None if name.contains('.') => named(name),
            rest => rest.and_then(named),
        };
        match (env, set) {
            (Some(key), _) => Ok(Self::Env(key)),
            (_, Some(key)) => Ok(Self::Set(key)),
            _ => {
                let options = OPTIONS.iter().map(|option| option.name);
                Err(Error::unknown("axis", name, options.chain([DIVISION, "NCCL_ALGO (any variable)"])))
            }
        }
    }

    /// Value of a cell on the axis, as users write it.
    pub fn value(&self, spec: &Spec) -> String {
        let of = |map: &std::collections::BTreeMap<String, String>, key: &str| {
            map.get(key).cloned().unwrap_or_else(|| UNSET.into())
        };
        match self {
            Self::Option("architecture") => spec.architecture_label(),
            Self::Option(name) => options::value(spec, name).unwrap_or_default().into_owned(),
            Self::Division => {
                let parts = [("tp", spec.tp), ("dp", spec.dp), ("ep", spec.ep)];
                let parts = parts.into_iter().filter(|(_, ranks)| *ranks > 1);
                let parts: Vec<String> = parts.map(|(name, ranks)| format!("{name}{ranks}")).collect();
                if parts.is_empty() { "tp1".into() } else { parts.join("+") }
            }
            Self::Env(key) => of(&spec.env, key),
            Self::Set(key) => of(&spec.set, key),
        }
    }

    /// True if cells on this axis may differ in the option.
    pub(crate) fn spans(&self, option: &str) -> bool {
        match self {
            Self::Option(name) => *name == option,
            Self::Division => Self::DIVIDED.contains(&option),
            Self::Env(_) | Self::Set(_) => false,
        }
    }

    /// Default baseline: `standard`, P2P on, or the variable unset; `None` if any value will do.
    pub fn natural_baseline(&self) -> Option<&'static str> {
        match self {
            Self::Option(name) => options::option(name).and_then(|option| option.about.baseline),
            Self::Division => None,
            Self::Env(_) | Self::Set(_) => Some(UNSET),
        }
    }

    /// True if cells cannot be compared without the default baseline: relative to anything but `standard` or P2P on,
    /// the ratio would mean something else.
    pub fn needs_baseline(&self) -> bool {
        matches!(self, Self::Option(_)) && self.natural_baseline().is_some()
    }

    /// Name of the axis among the fields that cells are matched by (see `matching::fields`).
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Option(name) => (*name).to_owned(),
            Self::Division => DIVISION.to_owned(),
            Self::Env(key) => format!("env:{key}"),
            Self::Set(key) => format!("set:{key}"),
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => f.write_str(name),
            Self::Division => f.write_str(DIVISION),
            // keep the prefix if the bare name would parse differently
            Self::Env(key) if Self::parse(key).is_ok_and(|axis| axis == *self) => f.write_str(key),
            Self::Env(key) => write!(f, "env:{key}"),
            Self::Set(key) if Self::parse(key).is_ok_and(|axis| axis == *self) => f.write_str(key),
            Self::Set(key) => write!(f, "set:{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_given() {
        for name in OPTIONS.iter().map(|option| option.name).chain([
            "division",
            "NCCL_ALGO",
            "CUDA_VISIBLE_DEVICES",
            "env:lower",
            "link.alpha_us",
            "set:x",
        ]) {
            assert_eq!(Axis::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Axis::parse("env:NCCL_ALGO").unwrap(), Axis::Env("NCCL_ALGO".into()));
        assert_eq!(Axis::parse("env.NCCL_ALGO").unwrap(), Axis::Env("NCCL_ALGO".into()));
        assert_eq!(Axis::parse("set.link.alpha_us").unwrap(), Axis::Set("link.alpha_us".into()));
        for wrong in ["", "env:", "set:", "archtecture", "nccl_algo"] {
            assert_eq!(Axis::parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
