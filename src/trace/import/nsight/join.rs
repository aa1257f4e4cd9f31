//! Joins the exports of several nodes or ranks into one trace.

use std::collections::HashMap;

use super::import::MOST;
use crate::import::rank::Decision;
use crate::rules::sort;
use crate::{ImportReport, LaunchSite, OperationInfo, Range, Trace};
use base::error::{Error, Result};
use plan::Cost;

/// Joins several traces, each with the wall-clock time of its zero (ns since 1970) if known. `decision`
/// gives their ranks.
pub(super) fn join(traces: Vec<(Trace, Option<i64>)>, decision: Decision) -> Result<Trace> {
    let began: Option<Vec<i64>> = traces.iter().map(|(_, began)| *began).collect();
    let earliest = began.as_ref().and_then(|began| began.iter().min().copied());
    let several = traces.len() > 1;
    let mut traces = traces.into_iter();
    let Some((mut all, began)) = traces.next() else {
        return Err(Error::input("no file to import"));
    };
    let mut ranks = decision.ranks.iter();
    renumber(&mut all, ranks.next());
    if let Some(report) = &mut all.meta.import {
        report.ranks_from = decision.how;
        report.missing_ranks = decision.missing;
        report.warnings.extend(decision.warnings);
    }
    if !several {
        return Ok(all);
    }
    shift(&mut all, began, earliest);
    let key = |operation: &OperationInfo| (operation.name.clone(), operation.kind.clone());
    let mut operations: HashMap<_, u32> = all.operations.iter().map(key).zip(0..).collect();
    let mut names: HashMap<String, u32> = all.meta.range_names.iter().cloned().zip(0..).collect();
    for (mut trace, began) in traces {
        shift(&mut trace, began, earliest);
        renumber(&mut trace, ranks.next());
        let first_stream = all.meta.streams.len();
        if first_stream + trace.meta.streams.len() > usize::from(u16::MAX) {
            return Err(Error::input_help(
                "more than 65535 streams in these files",
                "import fewer at once",
            ));
        }
        let to: Vec<u32> = trace
            .operations
            .into_iter()
            .map(|operation| {
                let number = *operations.entry(key(&operation)).or_insert_with(|| {
                    all.operations.push(operation.clone());
                    all.operations.len() as u32 - 1
                });
                // mean copy sizes of the files differ, so the joint mean is unknown
                let known = &mut all.operations[number as usize];
                if known.cost != operation.cost {
                    known.cost = Cost::default();
                }
                number
            })
            .collect();
        let name_to: Vec<u32> = trace
            .meta
            .range_names
            .into_iter()
            .map(|name| {
                *names.entry(name).or_insert_with_key(|name| {
                    all.meta.range_names.push(name.clone());
                    all.meta.range_names.len() as u32 - 1
                })
            })
            .collect();
        let first_range = all.ranges.len() as u32;
        all.spans.extend(trace.spans.into_iter().map(|mut span| {
            let launched = &mut span.launched;
            if launched.range < LaunchSite::OUTSIDE {
                launched.range += first_range;
            }
            launched.operator =
                name_to.get(launched.operator as usize).copied().unwrap_or(LaunchSite::NONE);
            span.stream += first_stream as u16;
            span.operation = to[span.operation as usize];
            span
        }));
        all.ranges.extend(trace.ranges.into_iter().map(|mut range| {
            range.name = name_to[range.name as usize];
            range
        }));
        all.meta.streams.extend(trace.meta.streams);
        all.meta.ranks = all.meta.ranks.max(trace.meta.ranks);
        if let (Some(report), Some(more)) = (&mut all.meta.import, trace.meta.import) {
            add(report, more);
        }
    }
    sort(&mut all.spans);
    sort_ranges(&mut all);
    let clock = match earliest {
        Some(_) => {
            "Nsight Systems: files put together by the wall clocks of their hosts, good to about a millisecond"
        }
        None => "Nsight Systems: each file on a clock of its own; they are not put together",
    };
    all.meta.clock = clock.into();
    if let Some(report) = &mut all.meta.import {
        report.warnings.push(format!("several files: {}", clock.replace("Nsight Systems: ", "")));
    }
    Ok(all)
}

fn renumber(trace: &mut Trace, ranks: Option<&Vec<u32>>) {
    let Some(ranks) = ranks.filter(|ranks| ranks.iter().copied().ne(0..trace.meta.ranks)) else {
        return;
    };
    let rank = |own: u32| ranks.get(own as usize).copied().unwrap_or(own);
    trace.spans.iter_mut().for_each(|span| span.rank = rank(span.rank));
    trace.ranges.iter_mut().for_each(|range| range.rank = rank(range.rank));
    trace.meta.streams.iter_mut().for_each(|stream| stream.rank = rank(stream.rank));
    trace.meta.ranks = ranks.iter().max().map_or(1, |most| most + 1);
    sort_ranges(trace);
}

/// Sorts the ranges, and updates the range index of every span.
fn sort_ranges(trace: &mut Trace) {
    let mut numbered: Vec<(usize, Range)> = trace.ranges.iter().copied().enumerate().collect();
    numbered.sort_by_key(|(_, range)| {
        (range.rank, range.thread, range.start_ns, std::cmp::Reverse(range.end_ns))
    });
    let mut places = vec![0; numbered.len()];
    for ((at, (before, range)), sorted) in (0..).zip(numbered).zip(&mut trace.ranges) {
        places[before] = at;
        *sorted = range;
    }
    for span in &mut trace.spans {
        let range = &mut span.launched.range;
        *range = places.get(*range as usize).copied().unwrap_or(*range);
    }
}

fn shift(trace: &mut Trace, began: Option<i64>, earliest: Option<i64>) {
    let by = began.zip(earliest).and_then(|(began, earliest)| began.checked_sub(earliest));
    let Some(by) = by.filter(|by| by.unsigned_abs() <= MOST) else { return };
    let moved = |time: i64| time.saturating_add(by);
    for span in &mut trace.spans {
        span.ready_ns = moved(span.ready_ns);
        span.start_ns = moved(span.start_ns);
        span.end_ns = moved(span.end_ns);
    }
    for range in &mut trace.ranges {
        range.start_ns = moved(range.start_ns);
        range.end_ns = moved(range.end_ns);
    }
}

fn add(report: &mut ImportReport, more: ImportReport) {
    let file = more.files.first().cloned().unwrap_or_default();
    report.files.extend(more.files);
    report.events += more.events;
    for (what, count) in more.used {
        *report.used.entry(what).or_default() += count;
    }
    for (why, count) in more.ignored {
        *report.ignored.entry(why).or_default() += count;
    }
    report.doubts.extend(more.doubts);
    report.ignored_kernels.extend(more.ignored_kernels);
    report.warnings.extend(more.warnings.into_iter().map(|warning| format!("{file}: {warning}")));
}
