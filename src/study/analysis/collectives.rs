//! Collectives by operation (process group, message size, data type, algorithm, time, waiting, bandwidth), and overlap
//! by kind of process group.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::arrivals::{MatchedTime, times_by_operation};
use super::clocks::Clocks;
use super::matched::{CollectiveMatching, MatchObstacle};
use super::names::over_layers;
use super::report::{GroupRow, group};
use base::statistics::{distinct, median};
use plan::Lane;
use table::overlap_pct;
use table::render::{Shown, Table};
use trace::overlap::intervals::{UnionBuilder, common_length, length};
use trace::overlap::{Class, Lanes, SpanRuns, Tally, starts, us};
use trace::{CollectiveInfo, OperationInfo, OperationKind, ProcessGroup, nccl_algorithm};

/// Executions of one collective kernel in one process group, with one message size and data type.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CollectiveRow {
    /// Name, count, time and exposed time.
    #[serde(flatten)]
    pub executed: GroupRow,
    /// Name, with `L*` for the layer.
    #[serde(skip)]
    pub family: String,
    /// `all_reduce`, `all_gather`, ...
    #[schemars(with = "String")]
    pub kind: OperationKind,
    /// Kind of process group (`TP`), else the group's name; null if the trace does not name it.
    pub group: Option<String>,
    /// Global ranks of the group; null if the trace does not list them, or if more ranks use the group than it has.
    pub ranks: Option<Vec<u32>>,
    pub group_size: Option<u32>,
    /// Message size as nccl-tests counts it: the larger of a rank's input and output, in bytes; null if unknown.
    pub message_bytes: Option<u64>,
    /// `trace`, or `calibration` for an estimate from the transfer time by a hardware profile; null without a size.
    pub message_bytes_from: Option<&'static str>,
    /// Upper bound on the message size by the profile, if the time does not determine the size.
    pub message_bytes_at_most: Option<u64>,
    pub dtype: Option<String>,
    /// NCCL algorithm (`RING`), as NCCL reports it to a recording, else from the kernel's name; null if unknown.
    pub algorithm: Option<String>,
    /// NCCL protocol (`LL`); null if unknown.
    pub protocol: Option<String>,
    /// NCCL's channels; null if unknown.
    pub channels: Option<u32>,
    pub mean_us: f64,
    pub median_us: f64,
    /// Part of the mean that moves data, after the last rank's arrival (us); null if ranks are unmatched or were not
    /// recorded.
    pub transfer_us: Option<f64>,
    /// Part of the mean spent waiting for the last rank (us); null if ranks are unmatched or were not recorded.
    pub waited_us: Option<f64>,
    /// Part of the mean spent waiting for the last recorded rank (us), if ranks were not recorded: a lower bound, since
    /// one of them may arrive later.
    pub waited_at_least_us: Option<f64>,
    /// Message size over the time in `bandwidth_of` (GB/s); null if the size is unknown.
    pub algorithm_gb_s: Option<f64>,
    /// Algorithm bandwidth times nccl-tests' factor for the collective (GB/s); null if size or ranks are unknown.
    pub bus_gb_s: Option<f64>,
    /// Time used for the bandwidths: `transfer`, or `duration` (the median, including waiting: a lower bound); null
    /// without bandwidth.
    pub bandwidth_of: Option<&'static str>,
}

/// Overlap of communication in one kind of process group. Times per rank, averaged over all ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GroupOverlap {
    /// `TP`, `DP`, `PP`, `EP`, else the group's name; null for communication without a group.
    pub group: Option<String>,
    pub groups: u64,
    /// Executions, over all ranks.
    pub count: u64,
    pub comm_us: f64,
    /// Hidden part: the compute lane was busy.
    pub overlap_us: f64,
    /// Exposed part: the rank communicated and did not compute. Where several groups communicate at once, the time
    /// counts for the collective that started first, so that rows add up to the rank's exposed time.
    pub exposed_comm_us: f64,
    pub overlap_pct: Option<f64>,
}

impl CollectiveRow {
    /// Message size in bytes for display; an estimate is rounded to two digits.
    pub fn shown_bytes(&self) -> Shown {
        let two_digits = |bytes: u64| {
            let unit = 10u64.pow(bytes.max(10).ilog10() - 1);
            (bytes + unit / 2) / unit * unit
        };
        match (self.message_bytes, self.message_bytes_at_most) {
            (Some(bytes), _) if self.message_bytes_from == Some("trace") => bytes.into(),
            (Some(bytes), _) => Shown::text(format!("~{}", two_digits(bytes))),
            (None, Some(most)) => Shown::text(format!("at most {}", two_digits(most))),
            (None, None) => Shown::None,
        }
    }
}

fn group_of<'a>(runs: &SpanRuns<'a>, operation: &OperationInfo) -> Option<&'a ProcessGroup> {
    runs.trace.meta.groups.get(operation.collective.as_ref()?.group? as usize)
}

/// Collectives by operation, the most exposed first.
pub(super) fn collectives(
    runs: &SpanRuns,
    tally: &Tally,
    matching: &CollectiveMatching,
    clocks: &Clocks,
) -> Vec<CollectiveRow> {
    let times = times_by_operation(runs, matching, clocks);
    let mut durations: Vec<Vec<f64>> = vec![Vec::new(); runs.trace.operations.len()];
    let mut bytes: Vec<Option<u64>> = vec![None; runs.trace.operations.len()];
    // operations whose group lacks a rank that runs them
    let mut foreign: Vec<bool> = vec![false; runs.trace.operations.len()];
    runs.each(runs.by_rank.iter().flatten(), |span, piece| {
        let at = span.operation as usize;
        if runs.class(span) != Class::Comm || at >= durations.len() || !starts(span, piece) {
            return;
        }
        durations[at].push(us(span.end_ns.saturating_sub(span.start_ns).max(0)));
        let group = group_of(runs, &runs.trace.operations[at]);
        foreign[at] |= group.is_some_and(|group| group.ranks.binary_search(&span.rank).is_err());
        if bytes[at].is_none() {
            let step = runs.trace.step(span);
            let planned = step.map(|step| runs.trace.operations[at].cost.message_bytes.at(&step));
            bytes[at] = planned.filter(|bytes| *bytes > 0);
        }
    });
    let executed = runs.trace.operations.iter().enumerate().filter(|(at, operation)| {
        Class::new(operation, Lane::Comm) == Class::Comm && !tally.comm(*at).is_empty()
    });
    let is_crowded = matching.obstacles.contains(&MatchObstacle::SeveralJobs);
    let mut rows: Vec<CollectiveRow> = executed
        .map(|(at, operation)| {
            let executed = group(&operation.name, "comm", &tally.comm(at), runs.ranks.len());
            let matched = times.get(&(at as u32)).copied().filter(|time| time.spans > 0);
            let row = row(runs, operation, executed, (&durations[at], bytes[at], matched));
            CollectiveRow { ranks: row.ranks.filter(|_| !(is_crowded && foreign[at])), ..row }
        })
        .collect();
    let most = |row: &CollectiveRow| (row.executed.exposed_us, row.executed.total_us);
    rows.sort_by(|a, b| most(b).partial_cmp(&most(a)).unwrap_or(std::cmp::Ordering::Equal));
    rows
}

fn row(
    runs: &SpanRuns,
    operation: &OperationInfo,
    executed: GroupRow,
    (durations, planned, matched): (&[f64], Option<u64>, Option<MatchedTime>),
) -> CollectiveRow {
    let meta = &runs.trace.meta;
    let (info, of) = (operation.collective.as_ref(), group_of(runs, operation));
    let named = nccl_algorithm(&operation.name).filter(|_| meta.import.is_some());
    let reported = |text: fn(&CollectiveInfo) -> &String| {
        info.map(|info| text(info).clone()).filter(|text| !text.is_empty())
    };
    let group_size = match (of, &meta.spec) {
        (Some(group), _) => Some(group.size).filter(|size| *size > 0),
        (None, Some(spec)) => Some(spec.tp),
        // matched over all recorded ranks
        (None, None) => matched.map(|_| runs.ranks.len() as u32),
    };
    let message_bytes = info.and_then(|info| info.message_bytes).or(planned);
    let per_span = |ns: i64, time: MatchedTime| us(ns) / time.spans as f64;
    let whole = matched.filter(|time| !time.is_partial);
    let transfer_us = whole.map(|time| per_span(time.moved_ns, time));
    let median_us = median(durations).unwrap_or(0.0);
    let (time, bandwidth_of) = match transfer_us.filter(|us| *us > 0.0) {
        Some(transfer) => (transfer, "transfer"),
        None => (median_us, "duration"),
    };
    let algorithm_gb_s = message_bytes.filter(|_| time > 0.0).map(|bytes| bytes as f64 / time / 1e3);
    let factor = group_size.and_then(|ranks| operation.kind.bus_factor(ranks));
    CollectiveRow {
        family: over_layers(operation).into_owned(),
        kind: operation.kind.clone(),
        group: of.map(ProcessGroup::kind),
        ranks: of.map(|group| group.ranks.clone()).filter(|ranks| !ranks.is_empty()),
        group_size,
        message_bytes,
        message_bytes_from: message_bytes.map(|_| "trace"),
        message_bytes_at_most: None,
        dtype: match (info, &meta.spec) {
            (Some(info), _) => Some(info.dtype.clone()).filter(|dtype| !dtype.is_empty()),
            (None, spec) => spec.as_ref().map(|spec| spec.dtype.to_string()),
        },
        algorithm: reported(|info| &info.algorithm).or(named.map(|named| named.algorithm.to_owned())),
        protocol: reported(|info| &info.protocol)
            .or(named.and_then(|named| named.protocol).map(str::to_owned)),
        channels: info.and_then(|info| info.channels),
        mean_us: durations.iter().sum::<f64>() / durations.len().max(1) as f64,
        median_us,
        transfer_us,
        waited_us: whole.map(|time| per_span(time.waited_ns, time)),
        waited_at_least_us: matched
            .filter(|time| time.is_partial)
            .map(|time| per_span(time.waited_ns, time)),
        algorithm_gb_s,
        bus_gb_s: algorithm_gb_s.zip(factor).map(|(gb_s, factor)| gb_s * factor),
        bandwidth_of: algorithm_gb_s.map(|_| bandwidth_of),
        executed,
    }
}

/// Overlap by kind of process group, the longest first; empty if the trace names no groups.
pub(super) fn by_group(runs: &SpanRuns, lanes: &[Lanes], tally: &Tally) -> Vec<GroupOverlap> {
    if runs.trace.meta.groups.is_empty() {
        return Vec::new();
    }
    let of_groups = || runs.trace.meta.groups.iter().map(|group| Some(group.kind()));
    let kinds: Vec<Option<String>> = distinct(std::iter::once(None).chain(of_groups()));
    let number = |kind: Option<String>| kinds.iter().position(|other| *other == kind).unwrap_or(0);
    let of_group: Vec<usize> = of_groups().map(number).collect();
    let kind_of = |operation: &OperationInfo| {
        let group = operation.collective.as_ref().and_then(|info| info.group);
        group.and_then(|group| of_group.get(group as usize)).copied().unwrap_or(0)
    };
    let of_operation: Vec<usize> = runs.trace.operations.iter().map(kind_of).collect();
    let mut exposed = vec![0i64; kinds.len()];
    for (at, (operation, kind)) in runs.trace.operations.iter().zip(&of_operation).enumerate() {
        if Class::new(operation, Lane::Comm) == Class::Comm {
            exposed[*kind] = exposed[*kind].saturating_add(tally.comm(at).exposed_ns);
        }
    }
    let of_rank = |(rank, lanes): (usize, &Lanes)| -> BTreeMap<usize, (u64, i64, i64)> {
        let mut unions: BTreeMap<usize, (u64, UnionBuilder)> = BTreeMap::new();
        runs.each(&runs.by_rank[rank], |span, interval| {
            if runs.class(span) == Class::Comm {
                let kind = of_operation.get(span.operation as usize).copied().unwrap_or(0);
                let (count, union) = unions.entry(kind).or_default();
                *count += u64::from(starts(span, interval));
                union.add(interval);
            }
        });
        let sums = |(kind, (count, union)): (usize, (u64, UnionBuilder))| {
            let comm = union.finish();
            (kind, (count, length(&comm), common_length(&comm, lanes.compute.union())))
        };
        unions.into_iter().map(sums).collect()
    };
    let ranks: Vec<BTreeMap<usize, (u64, i64, i64)>> =
        lanes.par_iter().enumerate().map(of_rank).collect();
    let average = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    let mut rows: Vec<GroupOverlap> = kinds
        .iter()
        .enumerate()
        .filter_map(|(at, kind)| {
            let found = ranks.iter().filter_map(|rank| rank.get(&at));
            let (count, comm, hidden) =
                found.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
            (count > 0 || comm > 0).then(|| GroupOverlap {
                group: kind.clone(),
                groups: of_group.iter().filter(|of| **of == at).count() as u64,
                count,
                comm_us: average(comm),
                overlap_us: average(hidden),
                exposed_comm_us: average(exposed[at]),
                overlap_pct: overlap_pct((comm - hidden) as f64, comm as f64),
            })
        })
        .collect();
    rows.sort_by(|a, b| b.comm_us.total_cmp(&a.comm_us));
    rows
}

pub fn collectives_table(rows: &[CollectiveRow]) -> Table {
    let ranks = |row: &CollectiveRow| match (&row.ranks, row.group_size) {
        (Some(ranks), _) => Shown::text(ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
        (None, size) => size.map(|size| format!("{size} ranks")).into(),
    };
    Table::from_rows(
        rows,
        &[
            ("~collective", &|r| Shown::text(&r.executed.name)),
            ("kind|", &|r| Shown::text(&r.kind)),
            ("group", &|r| r.group.as_deref().into()),
            ("ranks", &ranks),
            ("message_bytes|", &|r| r.message_bytes.into()),
            ("message_bytes_from|", &|r| r.message_bytes_from.into()),
            ("message_bytes_at_most|", &|r| r.message_bytes_at_most.into()),
            ("|bytes", &CollectiveRow::shown_bytes),
            ("dtype", &|r| r.dtype.as_deref().into()),
            ("algorithm", &|r| r.algorithm.as_deref().into()),
            ("protocol|", &|r| r.protocol.as_deref().into()),
            ("channels|", &|r| r.channels.into()),
            ("lane|", &|r| Shown::text(r.executed.lane)),
            ("count|count, all ranks", &|r| r.executed.count.into()),
            ("total_us|total", &|r| Shown::Time(r.executed.total_us)),
            ("exposed_us|exposed", &|r| Shown::Time(r.executed.exposed_us)),
            ("hidden_pct|overlap %", &|r| Shown::number(r.executed.hidden_pct, 1)),
            ("mean_us|mean", &|r| Shown::Time(r.mean_us)),
            ("median_us|", &|r| Shown::Time(r.median_us)),
            ("transfer_us|transfer", &|r| Shown::time(r.transfer_us)),
            ("waited_us|waited", &|r| Shown::time(r.waited_us)),
            ("waited_at_least_us|waited at least", &|r| Shown::time(r.waited_at_least_us)),
            ("algorithm_gb_s|alg GB/s", &|r| Shown::number(r.algorithm_gb_s, 1)),
            ("bus_gb_s|bus GB/s", &|r| Shown::number(r.bus_gb_s, 1)),
            ("bandwidth_of|", &|r| r.bandwidth_of.into()),
        ],
    )
    .least(&["group", "bytes", "bus_gb_s", "dtype", "algorithm_gb_s", "ranks", "algorithm"])
}

pub fn group_overlap_table(rows: &[GroupOverlap]) -> Table {
    Table::from_rows(
        rows,
        &[
            ("group", &|r| Shown::text(r.group.as_deref().unwrap_or("no group"))),
            ("groups|process groups", &|r| r.groups.into()),
            ("count|count, all ranks", &|r| r.count.into()),
            ("comm_us|comm", &|r| Shown::Time(r.comm_us)),
            ("overlap_us|overlap", &|r| Shown::Time(r.overlap_us)),
            ("exposed_comm_us|exposed", &|r| Shown::Time(r.exposed_comm_us)),
            ("overlap_pct|overlap %", &|r| Shown::number(r.overlap_pct, 1)),
        ],
    )
}
