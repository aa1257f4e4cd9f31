//! What belongs to what: GPU work to the host's call that launched it, and both to a profiler step.

use std::collections::HashMap;

use rayon::prelude::*;

use super::event::Gpu;
use super::operations::KINDS;
use super::parts::Groups;
use super::scan::unescape;
use super::table::{CommsOperator, Launch, PART, Table};
use crate::trace::Range;

/// The profiler's name of a step, before its number.
const STEP: &[u8] = b"ProfilerStep#";

/// When a step of the profiler (`ProfilerStep#N`) began and ended on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StepTime {
    start_ns: i64,
    end_ns: i64,
    step: u32,
}

/// Gives every span its step and the time it was launched at, within its group of processes. Returns how many spans
/// found their launch.
pub(super) fn link(table: &mut Table, groups: &Groups) -> usize {
    let launches = by_group(std::mem::take(&mut table.launches), groups);
    arguments(table, groups, &launches);
    let numbers = step_numbers(table);
    let host: Vec<Vec<StepTime>> = (0..groups.count)
        .map(|group| {
            let is_own = |range: &&Range| groups.of_thread[range.thread as usize] == group;
            steps(&numbers, table.host_ranges.iter().filter(is_own))
        })
        .collect();
    let mut device: HashMap<u16, Vec<StepTime>> = HashMap::new();
    for range in table.device_ranges.iter().filter(|range| numbers.contains_key(&range.name)) {
        device.entry(range.thread).or_insert_with(|| {
            steps(&numbers, table.device_ranges.iter().filter(|other| other.thread == range.thread))
        });
    }
    table
        .spans
        .par_iter_mut()
        .with_min_len(4096)
        .map(|span| {
            let group = groups.of_stream[span.stream as usize];
            let host = &host[group];
            let launch = launch(&launches[group], span.ready_ns, span.start_ns);
            let by_launch = launch.and_then(|launch| at(host, launch.start_ns));
            // a launch outside all steps settles it, where the host has steps at all
            let settled = launch.is_some() && !host.is_empty();
            let seen = || device.get(&span.stream).and_then(|steps| at(steps, span.start_ns));
            span.step = match by_launch {
                Some(step) => step,
                None if settled => 0,
                None => seen().or_else(|| at(host, span.start_ns)).unwrap_or(0),
            };
            // a kernel may start before the call that launched it returns
            span.ready_ns = launch.map_or(span.start_ns, |launch| launch.end_ns.min(span.start_ns));
            usize::from(launch.is_some())
        })
        .sum()
}

/// The launches of each group, sorted.
fn by_group(launches: Vec<Launch>, groups: &Groups) -> Vec<Vec<Launch>> {
    let mut sorted = match groups.count {
        1 => vec![launches],
        count => {
            let mut sorted = vec![Vec::new(); count];
            for launch in launches {
                sorted[groups.of_process[launch.process as usize]].push(launch);
            }
            sorted
        }
    };
    sorted.iter_mut().for_each(|launches| launches.par_sort_unstable());
    sorted
}

/// Gives kernels of collectives without arguments those of the operator that launched them: the one of the same external id,
/// else the only one during which the launch began.
fn arguments(table: &mut Table, groups: &Groups, launches: &[Vec<Launch>]) {
    let (operators, bare) = (std::mem::take(&mut table.comms), std::mem::take(&mut table.bare));
    if operators.is_empty() || bare.is_empty() {
        return;
    }
    let mut by_id = vec![Vec::new(); groups.count];
    for operator in operators {
        by_id[groups.of_process[operator.process as usize]].push(operator);
    }
    let mut by_start = by_id.clone();
    by_id.iter_mut().for_each(|operators| operators.par_sort_unstable());
    by_start
        .iter_mut()
        .for_each(|operators| operators.sort_unstable_by_key(|operator| operator.start_ns));
    // number of name and number of arguments: number of both
    let mut both: HashMap<(u32, u32), u32> = HashMap::new();
    let texts: Vec<Vec<u8>> = table.names.texts().into_iter().map(<[u8]>::to_vec).collect();
    for kernel in bare {
        let Some(span) = table.spans.get_mut(kernel.span) else { continue };
        let group = groups.of_stream[span.stream as usize];
        let (operators, by_start) = (&by_id[group], &by_start[group]);
        let of_id = || {
            let at = operators.partition_point(|operator| operator.link < kernel.link);
            let found = operators.get(at).filter(|operator| operator.link == kernel.link)?;
            (kernel.link != -1).then_some(*found)
        };
        let by_time = || {
            let start = launch(&launches[group], span.ready_ns, span.start_ns)?.start_ns;
            let before = by_start.partition_point(|operator| operator.start_ns <= start);
            let near = &by_start[before.saturating_sub(MOST_THREADS)..before];
            let mut around = near.iter().filter(|operator| start < operator.end_ns);
            let found: Option<&CommsOperator> = around.next();
            found.copied().filter(|_| around.next().is_none())
        };
        let Some(operator) = of_id().or_else(by_time) else { continue };
        let name = span.operation / KINDS as u32;
        let number = *both.entry((name, operator.arguments)).or_insert_with(|| {
            let mut text = texts[name as usize].clone();
            text.extend_from_slice(&texts[operator.arguments as usize]);
            debug_assert!(text.contains(&PART));
            table.names.intern(&text)
        });
        span.operation = number.saturating_mul(KINDS as u32).saturating_add(Gpu::Kernel as u32);
        span.sequence = operator.sequence;
    }
}

/// Threads that may communicate at once.
const MOST_THREADS: usize = 8;

/// The launch of a link. Where files of several processes were merged, numbers come again: the last
/// before the work's start is the likely one.
fn launch(sorted: &[Launch], link: i64, start_ns: i64) -> Option<Launch> {
    if link == -1 {
        return None;
    }
    let before = sorted.partition_point(|launch| (launch.link, launch.start_ns) <= (link, start_ns));
    let of_link = |at: usize| sorted.get(at).copied().filter(|launch| launch.link == link);
    before.checked_sub(1).and_then(of_link).or_else(|| of_link(before))
}

/// Numbers of steps by number of name.
fn step_numbers(table: &Table) -> HashMap<u32, u32> {
    let numbered = |(number, text): (usize, &[u8])| {
        let (step, _) = unescape(text.strip_prefix(STEP)?);
        Some((number as u32, step.trim().parse().ok()?))
    };
    table.names.texts().into_iter().enumerate().filter_map(numbered).collect()
}

fn steps<'a>(numbers: &HashMap<u32, u32>, ranges: impl Iterator<Item = &'a Range>) -> Vec<StepTime> {
    let mut steps: Vec<_> = ranges
        .filter_map(|range| {
            let step = *numbers.get(&range.name)?;
            Some(StepTime { start_ns: range.start_ns, end_ns: range.end_ns, step })
        })
        .collect();
    steps.sort_unstable();
    steps
}

/// The number of the step during which a moment lies, if one does.
fn at(steps: &[StepTime], time_ns: i64) -> Option<u32> {
    let before = steps.partition_point(|step| step.start_ns <= time_ns);
    let step = steps.get(before.checked_sub(1)?)?;
    (time_ns < step.end_ns).then_some(step.step)
}
