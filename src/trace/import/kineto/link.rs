//! Links GPU work to its launch call, and through it to a step, a range and an operator. Drops events
//! with impossible times.

use std::collections::HashMap;

use indexmap::IndexSet;
use plan::Phase;
use rayon::prelude::*;

use super::assemble::stream_key;
use super::event::GpuCategory;
use super::host::HostEvents;
use super::json::unescape;
use super::names::{Calls, KINDS};
use super::parts::CorrelationGroups;
use super::table::{CommsOperator, EventTable, LaunchCall, PART};
use crate::import::enclosing::{Enclosing, ThreadRange};
use crate::import::left_out::{Extremes, TimeRanges, described};
use crate::import::misplaced::{
    GpuWork, NO_LAUNCH, correlation, forget_reused, is_early, launch_before, misplaced, stream_name,
};
use crate::import::steps::{FileSteps, StepName, step_name};
use crate::overlap::StepKey;
use crate::{LaunchSite, NO_STEP, Range, Span};

/// Sets step, launch time, range (an index into the host ranges) and operator (an index into
/// [`EventTable::names`]) of every span. Takes the table's launches and operators. Returns the number of spans with a known
/// launch, and warnings.
pub(super) fn link(table: &mut EventTable, groups: &CorrelationGroups) -> (usize, Vec<String>) {
    let launches = plausible_launches(table, groups);
    let launch_of = leave_out_misplaced(table, &launches, groups);
    let processes = processes(table);
    table.host = HostEvents::new(&table.operators, &launches);
    let steps = StepFinder::new(table, &processes, groups, &launches);
    let calls = Calls::from_table(table);
    let sites = SiteFinder::new(table, &processes);
    let replay_starts = sites.replay_starts(&table.spans, &launch_of, &launches);
    let has_times = !table.left_out.doubts_launches();
    let launched = table
        .spans
        .par_iter_mut()
        .zip(&launch_of)
        .with_min_len(4096)
        .map_init(<[usize; 3]>::default, |near, (span, at)| {
            let Some(launch) = launches.get(*at as usize) else {
                let key = steps.without_launch(span);
                (span.sample, span.phase, span.step) = (key.sample, key.phase, key.step);
                span.ready_ns = span.start_ns;
                return 0;
            };
            let process = processes[launch.thread as usize];
            let key = steps.of_launch(span, launch, process);
            (span.sample, span.phase, span.step) = (key.sample, key.phase, key.step);
            span.launched = sites.site(launch, process, near);
            // all kernels of a graph replay share one launch
            let first = replay_starts.get(at).copied().unwrap_or(span.start_ns);
            span.ready_ns = if has_times { Span::launched(launch.end_ns, first) } else { span.start_ns };
            1
        })
        .sum();
    calls.mark_later(table, &launches, &launch_of);
    (launched, steps.warnings(&table.spans))
}

/// Launches by group, after collectives have their arguments and events with implausible times are dropped.
fn plausible_launches(table: &mut EventTable, groups: &CorrelationGroups) -> Vec<LaunchCall> {
    let mut launches = std::mem::take(&mut table.launches);
    launches.par_sort_by_key(|launch| (groups.of_process[launch.process as usize], *launch));
    // before any span is dropped: kernels of collectives are stored by index
    arguments(table, groups, &launches);
    table.launches = launches;
    leave_out_far(table);
    std::mem::take(&mut table.launches)
}

/// Steps of a file, by ranges of the host and by annotations of streams.
struct StepFinder<'g> {
    host: FileSteps,
    device: FileSteps,
    groups: &'g CorrelationGroups,
    group_of_process: Vec<usize>,
    /// True for groups with recorded launches.
    has_launches: Vec<bool>,
}

impl<'g> StepFinder<'g> {
    fn new(
        table: &EventTable,
        processes: &[u32],
        groups: &'g CorrelationGroups,
        launches: &[LaunchCall],
    ) -> Self {
        let names = names_of_steps(table);
        let candidate =
            |range: &Range, process: u32| (i64::from(process), ThreadRange::new(range, range.name));
        let on_host = |range: &Range| candidate(range, processes[range.thread as usize]);
        // device annotations apply to their own stream only
        let on_stream = |range: &Range| candidate(range, range.thread.into());
        let mut has_launches = vec![false; groups.count];
        for launch in launches {
            has_launches[groups.of_process[launch.process as usize]] = true;
        }
        let mut group_of_process = vec![0; processes.iter().max().map_or(0, |most| *most as usize + 1)];
        for (process, group) in processes.iter().zip(&groups.of_thread) {
            group_of_process[*process as usize] = *group;
        }
        Self {
            host: FileSteps::new(table.host_ranges.iter().map(on_host), &names),
            device: FileSteps::new(table.device_ranges.iter().map(on_stream), &names),
            groups,
            group_of_process,
            has_launches,
        }
    }

    fn of_launch(&self, span: &Span, launch: &LaunchCall, process: u32) -> StepKey {
        let steps = self.host.of_process(process.into());
        let by_launch = steps.and_then(|steps| steps.at(launch.start_ns, Some(launch.thread.into())));
        // if the host has steps, a launch outside all of them is final
        let by_stream = || self.on_stream(span).filter(|_| self.host.is_empty());
        by_launch.or_else(by_stream).unwrap_or_else(|| self.no_step())
    }

    /// Step of a span whose launch was not recorded.
    fn without_launch(&self, span: &Span) -> StepKey {
        let group = self.groups.of_stream[span.stream as usize];
        let is_own = |process: i64| self.group_of_process[process as usize] == group;
        // work launched before the profile started belongs to no host step
        let on_host = || self.host.any(span.start_ns, is_own).filter(|_| !self.has_launches[group]);
        self.on_stream(span).or_else(on_host).unwrap_or_else(|| self.no_step())
    }

    fn on_stream(&self, span: &Span) -> Option<StepKey> {
        self.device.of_process(span.stream.into()).and_then(|steps| steps.at(span.start_ns, None))
    }

    fn no_step(&self) -> StepKey {
        let has_none = self.host.is_empty() && self.device.is_empty();
        StepKey { sample: 0, phase: Phase::Decode, step: if has_none { 0 } else { NO_STEP } }
    }

    fn warnings(&self, spans: &[Span]) -> Vec<String> {
        let mut warnings = Vec::new();
        if let (Some((kinds, count)), false) = (&self.host.kinds, self.host.others.is_empty()) {
            warnings.push(format!(
                "using the {count} ranges named '{}' as steps, not '{}'",
                kinds.join("' and '"),
                self.host.others.join("', '")
            ));
        }
        warnings.extend([&self.host, &self.device].into_iter().find_map(FileSteps::warning));
        let outside = spans.iter().filter(|span| span.step == NO_STEP).count();
        if outside > 0 {
            warnings.push(format!(
                "{outside} of {} GPU events were launched outside any profiler step and are not assigned to a step",
                spans.len()
            ));
        }
        warnings
    }
}

/// Ranges and operators around launches.
struct SiteFinder {
    ranges: Enclosing,
    operators: Enclosing,
    /// Annotated threads by process.
    annotated: Vec<Vec<i64>>,
    /// True for calls that launch a graph, by name.
    is_graph: Vec<bool>,
}

impl SiteFinder {
    fn new(table: &mut EventTable, processes: &[u32]) -> Self {
        let ranges = table.host_ranges.iter().zip(0..).map(|(range, at)| ThreadRange::new(range, at));
        let ranges = Enclosing::new(ranges.collect());
        let operators = std::mem::take(&mut table.operators);
        let operators = operators.iter().map(|range| ThreadRange::new(range, range.name));
        let operators = Enclosing::new(operators.collect());
        let is_graph = |text: &&[u8]| memchr::memmem::find(text, b"GraphLaunch").is_some();
        let is_graph = table.names.texts().iter().map(is_graph).collect();
        Self { ranges, operators, annotated: annotated_threads(table, processes), is_graph }
    }

    /// Range and operator around a launch. `near` caches the positions of the caller's last searches.
    fn site(&self, launch: &LaunchCall, process: u32, near: &mut [usize; 3]) -> LaunchSite {
        let thread = i64::from(launch.thread);
        let of_own_thread = self.ranges.innermost(thread, launch.start_ns, &mut near[0]);
        let of_others = |near: &mut usize| {
            let others = self.annotated[process as usize].iter().filter(|other| **other != thread);
            let mut around =
                others.filter_map(|other| self.ranges.innermost(*other, launch.start_ns, near));
            around.next().filter(|_| around.next().is_none())
        };
        let range = of_own_thread.or_else(|| of_others(&mut near[2])).unwrap_or(LaunchSite::OUTSIDE);
        // the operator around a graph launch did not launch the individual kernels
        let operator = match self.is_graph[launch.name as usize] {
            true => None,
            false => self.operators.innermost(thread, launch.start_ns, &mut near[1]),
        };
        LaunchSite { range, operator: operator.unwrap_or(launch.name) }
    }

    /// Start of the first kernel of each graph launch: the call may return after it.
    fn replay_starts(
        &self,
        spans: &[Span],
        launch_of: &[u32],
        launches: &[LaunchCall],
    ) -> HashMap<u32, i64> {
        let mut starts: HashMap<u32, i64> = HashMap::new();
        for (span, at) in spans.iter().zip(launch_of) {
            if launches.get(*at as usize).is_some_and(|launch| self.is_graph[launch.name as usize]) {
                let first = starts.entry(*at).or_insert(span.start_ns);
                *first = span.start_ns.min(*first);
            }
        }
        starts
    }
}

/// Annotated threads by process. A launch outside all ranges of its own thread belongs to the range of the only other
/// thread of its process that is in one: PyTorch's backward pass launches from a thread of its own while the thread
/// that called it waits.
fn annotated_threads(table: &EventTable, processes: &[u32]) -> Vec<Vec<i64>> {
    let mut annotated = vec![false; processes.len()];
    table.host_ranges.iter().for_each(|range| annotated[range.thread as usize] = true);
    let mut of_process = vec![Vec::new(); processes.iter().max().map_or(0, |most| *most as usize + 1)];
    for (thread, process) in processes.iter().enumerate().filter(|(thread, _)| annotated[*thread]) {
        of_process[*process as usize].push(thread as i64);
    }
    of_process
}

/// Copies arguments to collective kernels without their own, from the operator that launched them: the
/// one with the same external id, or the only one that contains the launch.
fn arguments(table: &mut EventTable, groups: &CorrelationGroups, launches: &[LaunchCall]) {
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
    // (name, arguments) to the name of both
    let mut both: HashMap<(u32, u32), u32> = HashMap::new();
    let texts: Vec<Vec<u8>> = table.names.texts().into_iter().map(<[u8]>::to_vec).collect();
    let mut near = 0;
    for kernel in bare {
        let Some(span) = table.spans.get_mut(kernel.span) else { continue };
        let group = groups.of_stream[span.stream as usize];
        let (operators, by_start) = (&by_id[group], &by_start[group]);
        let of_id = || {
            let at = operators.partition_point(|operator| operator.link < kernel.link);
            let found = operators.get(at).filter(|operator| operator.link == kernel.link)?;
            (kernel.link != -1).then_some(*found)
        };
        let mut by_time = || {
            let of_group = |launch: &LaunchCall| groups.of_process[launch.process as usize];
            let at = place_of(launches, (group, span.ready_ns), span.start_ns, of_group, &mut near);
            let start = launches.get(at as usize)?.start_ns;
            let before = by_start.partition_point(|operator| operator.start_ns <= start);
            let near = &by_start[before.saturating_sub(MOST_THREADS)..before];
            let mut around = near.iter().filter(|operator| start < operator.end_ns);
            let found: Option<&CommsOperator> = around.next();
            found.copied().filter(|_| around.next().is_none())
        };
        let Some(operator) = of_id().or_else(&mut by_time) else { continue };
        let name = span.operation / KINDS as u32;
        let number = *both.entry((name, operator.arguments)).or_insert_with(|| {
            let mut text = texts[name as usize].clone();
            text.extend_from_slice(&texts[operator.arguments as usize]);
            debug_assert!(text.contains(&PART));
            table.names.intern(&text)
        });
        span.operation = number.saturating_mul(KINDS as u32).saturating_add(GpuCategory::Kernel as u32);
        span.sequence = operator.sequence;
    }
}

/// Maximum number of threads that launch collectives concurrently.
const MOST_THREADS: usize = 8;

/// Drops events whose time is implausible compared with all other events.
fn leave_out_far(table: &mut EventTable) {
    if table.extremes.are_plausible() {
        return;
    }
    let of_range = |range: &Range| (range.start_ns, range.end_ns);
    let spans = table.spans.iter().map(|span| (span.start_ns, span.end_ns));
    let ranges = [&table.host_ranges, &table.device_ranges, &table.operators].into_iter().flatten();
    let launches = table.launches.iter().map(|launch| (launch.start_ns, launch.end_ns));
    let clock = TimeRanges::from_times(spans.chain(launches).chain(ranges.map(of_range)));
    if clock.accepts_all() {
        return;
    }
    let names: Vec<Box<[u8]>> = table.names.texts().into_iter().map(Into::into).collect();
    let EventTable { left_out, used, launches_read, operators_read, .. } = table;
    let mut keeps = |what, name: u32, (start_ns, end_ns): (i64, i64)| {
        let Some(why) = clock.fault((start_ns, end_ns)) else { return true };
        left_out
            .add(what, why, start_ns, || described(&bare_name(&names[name as usize]), start_ns, end_ns));
        false
    };
    table.spans.retain(|span| {
        let gpu = GpuCategory::ALL[span.operation as usize % KINDS];
        let kept = keeps(gpu.as_str(), span.operation / KINDS as u32, (span.start_ns, span.end_ns));
        used[gpu as usize] -= u64::from(!kept);
        kept
    });
    table.launches.retain(|launch| {
        let kept = keeps("launch", launch.name, (launch.start_ns, launch.end_ns));
        *launches_read -= u64::from(!kept);
        kept
    });
    table.operators.retain(|range| {
        let kept = keeps("operator", range.name, of_range(range));
        *operators_read -= u64::from(!kept);
        kept
    });
    table.host_ranges.retain(|range| keeps("annotation", range.name, of_range(range)));
    table.device_ranges.retain(|range| keeps("annotation", range.name, of_range(range)));
    // reported as launches
    table.long_calls.retain(|range| clock.fault(of_range(range)).is_none());
}

/// Drops work that contradicts its stream or launch. Returns each span's index into the sorted launches.
fn leave_out_misplaced(
    table: &mut EventTable,
    launches: &[LaunchCall],
    groups: &CorrelationGroups,
) -> Vec<u32> {
    let of_group = |launch: &LaunchCall| groups.of_process[launch.process as usize];
    let mut launch_of: Vec<u32> = table
        .spans
        .par_iter()
        .with_min_len(4096)
        .map_init(usize::default, |near, span| {
            let group = groups.of_stream[span.stream as usize];
            place_of(launches, (group, span.ready_ns), span.start_ns, of_group, near)
        })
        .collect();
    let again = || {
        let mut pairs = launches.windows(2);
        pairs.any(|pair| {
            let key = |launch: &LaunchCall| (of_group(launch), launch.link);
            key(&pair[0]) == key(&pair[1]) && pair[1].start_ns > pair[0].end_ns
        })
    };
    forget_reused(&mut launch_of, again, |at, launch| {
        is_early(table.spans[at].start_ns, launches[launch as usize].start_ns)
    });
    let spans = &table.spans;
    let placed = |number: usize| {
        let (span, at) = (&spans[number], launch_of[number]);
        GpuWork {
            stream: span.stream.into(),
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            launch: launches.get(at as usize).map(|launch| (at as usize, launch.start_ns)),
            correlation: correlation(groups.of_stream[span.stream as usize] as i64, span.ready_ns),
            identity: (span.operation, span.ready_ns),
        }
    };
    let host = || {
        let mut host = Extremes::default();
        launches.iter().for_each(|launch| host.add((launch.start_ns, launch.end_ns)));
        let ranges = table.host_ranges.iter().chain(&table.operators);
        ranges.for_each(|range| host.add((range.start_ns, range.end_ns)));
        host
    };
    let stream_name = |stream: usize| {
        let key = stream_key(table.streams.texts()[stream]);
        stream_name(key.id.unwrap_or_default(), key.device)
    };
    let misplaced = misplaced(spans.len(), placed, host, stream_name);
    let EventTable { spans, left_out, names, used, .. } = table;
    let names = names.texts();
    misplaced.drop_from(spans, &mut launch_of, left_out, |left_out, span, why| {
        let gpu = GpuCategory::ALL[span.operation as usize % KINDS];
        left_out.add(gpu.as_str(), why, span.start_ns, || {
            let name = bare_name(names[span.operation as usize / KINDS]);
            described(&name, span.start_ns, span.end_ns)
        });
        used[gpu as usize] -= 1;
    });
    launch_of
}

/// Index of the launch with a link in a group; see [`launch_before`]. A link of -1 has none.
fn place_of(
    sorted: &[LaunchCall],
    key: (usize, i64),
    start_ns: i64,
    group: impl Fn(&LaunchCall) -> usize,
    near: &mut usize,
) -> u32 {
    let key_of = |launch: &LaunchCall| ((group(launch), launch.link), launch.start_ns);
    if key.1 == -1 { NO_LAUNCH } else { launch_before(sorted, key, start_ns, key_of, near) }
}

/// Name without the arguments behind it.
pub(super) fn bare_name(text: &[u8]) -> String {
    unescape(text.split(|byte| *byte == PART).next().unwrap_or_default()).0
}

fn names_of_steps(table: &EventTable) -> Vec<Option<StepName>> {
    let mut used = vec![false; table.names.len()];
    let ranges = table.host_ranges.iter().chain(&table.device_ranges);
    ranges.for_each(|range| used[range.name as usize] = true);
    let name = |(text, used): (&[u8], bool)| used.then(|| step_name(&unescape(text).0)).flatten();
    table.names.texts().into_iter().zip(used).map(name).collect()
}

/// Process of each thread, as a small number.
fn processes(table: &EventTable) -> Vec<u32> {
    let mut numbers = IndexSet::new();
    let end = |key: &[u8]| key.iter().position(|byte| *byte == PART).unwrap_or(key.len());
    table.threads.texts().into_iter().map(|key| numbers.insert_full(&key[..end(key)]).0 as u32).collect()
}
