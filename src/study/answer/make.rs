use std::collections::BTreeMap;

use super::doubt::doubt;
use super::quality::quality;
use super::question::{MOST_NAMED, Question};
use crate::analysis::{Axis, Cells, Flag, Varied};
use base::text::counted;
use table::render::Table;
use table::{Link, P2p, Provenance, Record, Status, aggregate, host};

/// Maximum number of runs for an answer in sentences; larger grids need comparisons and the report.
pub const MOST_RUNS: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Provenance, number of cells and samples, and what all cells have in common.
    pub basis: String,
    pub sentences: Vec<String>,
    /// True if the first sentence says that the numbers are not trustworthy.
    pub doubtful: bool,
    /// Cells with their ratios, in the order of the comparison; at most twelve rows.
    pub table: Table,
    pub left_out: usize,
    /// Axis of the comparison, in the syntax of `compare --by`; empty without a comparison.
    pub by: String,
}

impl Answer {
    /// Answers the runs of each provenance and machine separately; numbers of different origin are never
    /// compared. The first answer also counts the runs without numbers.
    pub fn of(records: Vec<Record>) -> Vec<Self> {
        let (with, without): (Vec<Record>, Vec<Record>) =
            records.into_iter().partition(Record::has_numbers);
        let mut origins: BTreeMap<(Provenance, Option<String>), Vec<Record>> = BTreeMap::new();
        for record in with {
            origins.entry((record.provenance, host(&record))).or_default().push(record);
        }
        let several = origins.len() > 1;
        let of = |((_, host), records): (&(Provenance, Option<String>), &Vec<Record>)| {
            Self::of_origin(records, host.as_deref().filter(|_| several))
        };
        let mut answers: Vec<Self> = origins.iter().map(of).collect();
        let unfinished = unfinished(&without);
        match answers.first_mut() {
            Some(first) => first.sentences.extend(unfinished),
            None => answers.extend(unfinished.map(|sentence| Self {
                basis: "no run has numbers".into(),
                sentences: vec![sentence],
                doubtful: false,
                table: Table::default(),
                left_out: 0,
                by: String::new(),
            })),
        }
        answers
    }

    /// Sentences, each with true if it says that the numbers are not trustworthy.
    pub fn told(&self) -> impl Iterator<Item = (&str, bool)> {
        let doubts = |at| at == 0 && self.doubtful;
        self.sentences.iter().enumerate().map(move |(at, sentence)| (sentence.as_str(), doubts(at)))
    }

    /// Answers the runs of one provenance and machine; `host` is given only if there are several machines.
    fn of_origin(records: &[Record], host: Option<&str>) -> Self {
        let cells = Cells::of(records);
        let specs = || cells.specs();
        let varied = Varied::of(specs());
        let mut basis = basis(records, &cells, &varied);
        basis.extend(host.map(|host| format!(" on {host}")));
        let axes = cells.axes();
        let has = |axis: &Axis| axes.iter().any(|count| count.axis == *axis && count.pairs > 0);
        let natural = [Axis::ARCHITECTURE, Axis::P2P].into_iter().find(has);
        let first = || axes.iter().find(|count| count.pairs > 0).map(|count| count.axis.clone());
        let compared = natural.or_else(first).and_then(|axis| {
            let report = cells.compare(&axis, None).ok()?;
            Some((axis, report))
        });
        let Some((axis, report)) = compared else {
            let doubt = doubt(records, &varied, None);
            let (doubtful, left_out) = (doubt.is_some(), 0);
            let sentences = doubt.into_iter().chain(alone(records)).collect();
            return Self {
                basis,
                sentences,
                doubtful,
                table: Table::default(),
                left_out,
                by: String::new(),
            };
        };
        let settings = varied.without(&axis);
        let question = Question { axis: &axis, report: &report, settings: &settings };
        let doubt = doubt(records, &varied, Some(&question));
        let doubtful = doubt.is_some();
        let mut sentences: Vec<String> = doubt.into_iter().chain(question.winner()).collect();
        if axis == Axis::ARCHITECTURE {
            if has(&Axis::P2P)
                && let Ok(by_p2p) = cells.compare(&Axis::P2P, None)
            {
                let settings = varied.without(&Axis::P2P);
                sentences.extend(
                    Question { axis: &Axis::P2P, report: &by_p2p, settings: &settings }.without_p2p(),
                );
            }
            sentences.extend(question.hidden());
            sentences.extend(question.beaten_limit());
            sentences.extend(quality(records, &question));
        }
        sentences.extend(question.unclear());
        sentences.extend(warnings(&report.flags));
        let (table, left_out) = question.table();
        Self { basis, sentences, doubtful, table, left_out, by: axis.to_string() }
    }
}

fn basis(records: &[Record], cells: &Cells, varied: &Varied) -> String {
    let samples: Vec<usize> = cells.samples().collect();
    let (least, most) = (samples.iter().min().copied(), samples.iter().max().copied());
    let samples = match (least, most) {
        // simulations repeat exactly
        _ if records.iter().all(|record| record.provenance == Provenance::Simulated) => String::new(),
        (Some(1), Some(1)) => ", 1 sample each".into(),
        (Some(least), Some(most)) if least == most => format!(", {most} samples each, [95 % intervals]"),
        (Some(least), Some(most)) => format!(", {least} to {most} samples each, [95 % intervals]"),
        _ => String::new(),
    };
    let common = records.first().map(|record| varied.common(&record.spec)).unwrap_or_default();
    let provenance = records.first().map_or("", |record| record.provenance.as_str());
    // name the simulated hardware even if it is the default
    let machine = records.first().filter(|record| {
        let (hardware, stack) = (&record.spec.hardware, &record.spec.stack);
        record.provenance == Provenance::Simulated
            && !common.contains(hardware.as_str())
            && cells.specs().all(|spec| spec.hardware == *hardware && spec.stack == *stack)
    });
    let machine = machine.map_or(String::new(), |record| {
        let stack = Some(&record.spec.stack).filter(|stack| !common.contains(stack.as_str()));
        let stack = stack.map_or(String::new(), |stack| format!(" with the stack {stack}"));
        format!(", predicted for {}{stack}", record.spec.hardware)
    });
    let links = links(cells);
    format!(
        "{provenance}: {}{samples}; {common}{machine}{links}",
        counted(cells.specs().count(), "cell")
    )
}

/// Links that emulate P2P on and off, if both are emulated; else empty.
fn links(cells: &Cells) -> String {
    let mut links: Vec<(P2p, Link)> = Vec::new();
    for spec in cells.specs().filter(|spec| matches!(spec.link, Link::Emulated { .. })) {
        if !links.contains(&(spec.p2p, spec.link)) {
            links.push((spec.p2p, spec.link));
        }
    }
    links.sort_by_key(|(p2p, _)| *p2p);
    let [(P2p::On, on), (P2p::Off, off)] = &links[..] else { return String::new() };
    let told = |link: &Link| match link {
        Link::Emulated { alpha_us, gb_s } => format!("{alpha_us} us + bytes / {gb_s} GB/s"),
        other => other.to_string(),
    };
    format!("; an all-reduce takes {} p2p-on, {} p2p-off", told(on), told(off))
}

/// Latency of each cell, for cells that cannot be compared with one another.
fn alone(records: &[Record]) -> Vec<String> {
    let cells = aggregate(records);
    let took = cells.iter().filter_map(|cell| {
        let metrics = cell.metrics.as_ref()?;
        let (tpot, ci) = (metrics.tpot_ms.p50, metrics.tpot_ms_ci95);
        let ci = ci.map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
        Some(format!("{} takes {tpot:.2} ms{ci} a token.", cell.spec.label()))
    });
    let mut sentences: Vec<String> = took.take(MOST_NAMED).collect();
    sentences.push(match cells.len() {
        1 => "There is one cell alone: nothing is compared.".into(),
        _ => "No two cells differ in one option alone: nothing is compared.".into(),
    });
    sentences
}

fn unfinished(records: &[Record]) -> Option<String> {
    let mut by: BTreeMap<Status, Vec<&Record>> = BTreeMap::new();
    records.iter().for_each(|record| by.entry(record.status).or_default().push(record));
    let part = |(status, records): (&Status, &Vec<&Record>)| {
        let count = counted(records.len(), "cell");
        let what = match status {
            Status::Oom => "would not fit in memory",
            Status::Skipped => "cannot run",
            Status::Interrupted => "did not end",
            Status::Running => "still running",
            Status::Failed => "failed",
            Status::Ok if records.iter().any(|record| !record.provenance.is_evidence()) => {
                "checked ranks on one GPU"
            }
            Status::Ok => "left no numbers",
        };
        let why = records.iter().find_map(|record| record.reason.as_deref()?.lines().next());
        let why = why.map_or(String::new(), |why| format!(" ({}: {why})", records[0].spec.label()));
        format!("{count} {what}{why}")
    };
    let parts: Vec<String> = by.iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// One sentence about extrapolated links, and one about other flags.
fn warnings(flags: &[Flag]) -> Vec<String> {
    let (extrapolated, wrong): (Vec<&Flag>, Vec<&Flag>) =
        flags.iter().partition(|flag| flag.is_extrapolation);
    let sentence = |flags: &[&Flag], one: &str, several: &str| {
        let first = &flags.first()?.text;
        let end = if first.ends_with(['.', '?']) { "" } else { "." };
        Some(match flags.len() {
            1 => format!("{one}: {first}{end}"),
            more => format!("{more} {several}, the first: {first}{end}"),
        })
    };
    let extrapolated = sentence(
        &extrapolated,
        "The link of one cell is extrapolated to its TP",
        "cells have links extrapolated to their TP",
    );
    let wrong = sentence(&wrong, "One thing looks wrong", "things look wrong");
    [extrapolated, wrong].into_iter().flatten().collect()
}
