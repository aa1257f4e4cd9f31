//! Recordings of `ladderscope record`: imports the parts that the processes wrote as one trace.
//!
//! `part` reads a part, `join` finds the collective of each NCCL kernel; this file decides which processes are ranks and
//! in what order. Placing spans, steps and ranges is shared with the import of Nsight Systems' exports, whose tables have
//! the same contents.

mod join;
mod part;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use self::join::{JoinedCollectives, NcclCollective, is_nccl};
use self::part::{RecordedWorkKind, RecordingPart};
use super::formats::{FormatSignature, Importer};
use crate::import::input::InputFile;
use crate::import::nsight::Notes;
use crate::import::nsight::assemble::{ImportParts, assemble};
use crate::import::nsight::gpu::{GpuActivity, GpuEvent, GpuStream};
use crate::import::nsight::host::{HostLaunch, HostLaunches, HostRange, HostRanges};
use crate::{CollectiveInfo, CopiedBytes, OperationKind, ProcessGroup, Trace, collective_kind};
use base::error::{Error, Result};
use base::text::natural_order;
use table::Environment;

pub(super) static PARTS: Importer = Importer::new(
    "a part of a recording of Ladderscope",
    "ladderscope's own",
    &[FormatSignature::Begins(&inject::format::MAGIC)],
    // the selection's notes are about the control file beside the parts
    |selection| {
        let files: Vec<InputFile> = selection.files.into_iter().map(|(input, _)| input).collect();
        import(&files)
    },
);

/// Reads bytes as a part and merges it, alone and with a second one, for the fuzz target.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let read = |name: &str| part::RecordingPart::read(name, &mut &bytes[..]);
    let _ = read("part").and_then(|part| merged(vec![part]));
    let _ = read("a").and_then(|a| merged(vec![a, read("b")?]));
}

const MOST_PARTS: usize = 32_000;
const RECORDER: &str = "cupti-injection";

/// Imports the parts of a recording, unclassified. Returns an error for a file that is no part, and those of merging.
pub(in crate::import) fn import(inputs: &[InputFile]) -> Result<Trace> {
    if inputs.len() > MOST_PARTS {
        return Err(Error::input(format!("{} parts; at most {MOST_PARTS} are read", inputs.len())));
    }
    let mut parts = Vec::new();
    for input in inputs {
        let name = input.shown();
        parts.push(RecordingPart::read(&name, &mut *input.unpacked()?.bytes)?);
    }
    merged(parts)
}

/// The trace of all parts. Returns an error if none has GPU work or ranges.
fn merged(mut parts: Vec<RecordingPart>) -> Result<Trace> {
    let processes = parts.len();
    let mut notes = Notes::default();
    for part in &mut parts {
        let described = join::communicators(part);
        part.communicators.extend(described);
    }
    let beside = take_beside(&mut parts);
    parts.iter().for_each(|part| remarks(part, &mut notes));
    left_out(&beside, &mut notes);
    let has_gpu = parts.iter().any(|part| !part.work.is_empty());
    parts.retain(|part| if has_gpu { !part.work.is_empty() } else { !part.ranges.is_empty() });
    if parts.is_empty() {
        let told = notes.first_warning().map(|sentence| format!(" ({sentence})")).unwrap_or_default();
        return Err(Error::input_help(
            format!(
                "{} recorded, none with GPU work or NVTX ranges{told}",
                format_args!("{processes} process{}", if processes == 1 { "" } else { "es" })
            ),
            "the program must be started by `ladderscope record`, inside its container",
        ));
    }
    let from = order(&mut parts);
    let hosts: BTreeSet<String> = parts.iter().map(|part| part.host.clone()).collect();
    let mut trace = joined(&parts, &mut notes)?;
    trace.meta.recorder = RECORDER.into();
    trace.meta.clock = match hosts.len() {
        1 => "wall clock of the host, the same for all processes".into(),
        hosts => format!("wall clocks of {hosts} hosts"),
    };
    trace.meta.import = Some(crate::ImportReport {
        files: parts.iter().map(|part| part.name.clone()).collect(),
        ranks_from: Some(from),
        clocks: Some(hosts.len() as u32),
        wall_clock: hosts.len() > 1,
        ..notes.report("recording of ladderscope", "the recording")
    });
    Ok(trace)
}

/// Notes processes that are no ranks.
fn left_out(beside: &[RecordingPart], notes: &mut Notes) {
    const NAMED: usize = 4;
    if beside.is_empty() {
        return;
    }
    let mut named: Vec<String> = Vec::new();
    for part in beside {
        notes.count(part.events);
        notes.ignore("GPU work of processes beside the ranks", part.work.len() as u64);
        let command: String = part.command.chars().take(60).collect();
        named.push(format!("{} ({command})", part.pid));
    }
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    notes.warn(format!(
        "left out as no ranks: {}: parents or children of a rank with far less GPU work and no communicator of the ranks",
        named.join(", ")
    ));
}

/// Losses and problems of a part.
fn remarks(part: &RecordingPart, notes: &mut Notes) {
    let who = format!("process {}", part.pid);
    for note in part.notes.iter().filter(|note| !note.starts_with("CUPTI version")) {
        notes.warn(format!("{who}: {note}"));
    }
    if let Some(cut) = &part.cut {
        notes.warn(format!("{}: {cut}; everything before it was read", part.name));
    }
    if part.lost > 0 {
        notes.warn(format!("{who}: {} events were dropped because they came too fast", part.lost));
    }
    if part.dropped > 0 {
        notes.warn(format!("{who}: CUPTI dropped {} records", part.dropped));
    }
    let all = part.work.len() as u64 + part.untimed;
    if part.untimed * 100 > all {
        notes.warn(format!(
            "{who}: CUPTI had no times for {} of {all} GPU records; record a shorter window",
            part.untimed
        ));
    }
    if part.clock_step > 1_000_000 {
        notes.warn(format!(
            "{who}: the host's clock was set by {:.1} ms during the recording",
            part.clock_step as f64 / 1e6
        ));
    }
    if !part.is_ended && !part.work.is_empty() {
        notes.warn(format!("{who} was killed, or ended by _exit: its last 0.1 s may be missing"));
    }
}

fn joined(parts: &[RecordingPart], notes: &mut Notes) -> Result<Trace> {
    let starts = parts.iter().flat_map(|part| {
        let work = part.work.iter().map(|work| work.start);
        work.chain(part.ranges.iter().map(|range| range.start)).chain(part.calls.iter().map(|c| c.start))
    });
    // no event at 0: that is a missing time elsewhere
    let base = starts.min().unwrap_or(0).saturating_sub(1000);
    let (groups, number_of) = groups(parts);
    let mut tables = Tables::default();
    let mut launches = HostLaunches::default();
    let mut names: HashMap<i64, String> = HashMap::new();
    let mut ranges = HostRanges::default();
    let mut by_name = IndexSet::new();
    let (mut unjoined, mut nccl_kernels) = (0u64, 0u64);
    for (part, order) in parts.iter().zip(0i64..) {
        let process = order << 24 | i64::from(part.pid & 0xFF_FFFF);
        let thread_of = |thread: u32| process << 24 | i64::from(thread & 0xFF_FFFF);
        notes.count(part.events);
        let joined = join::join(part);
        unjoined += joined.unjoined;
        nccl_kernels += tables.add_work(part, process, base, &joined, &number_of, notes);
        if part.work.is_empty() {
            // a process with ranges alone is a rank without streams of its own
            let process = Some(process);
            tables.places.insert(GpuStream { process, device: 0, context: None, stream: 0 });
        }
        for call in &part.calls {
            let name = i64::from(call.id) << 1 | i64::from(call.runtime) | 1 << 40;
            if let Some(spelt) = part::name(call.runtime, call.id) {
                names.entry(name).or_insert_with(|| spelt.to_owned());
            }
            launches.rows += 1;
            launches.calls.push(HostLaunch {
                correlation: call.correlation,
                name: if names.contains_key(&name) { name } else { 0 },
                rows: 1,
                start: call.start - base,
                end: call.end - base,
                thread: thread_of(call.thread),
            });
        }
        for range in &part.ranges {
            let text = part.text(range.name);
            if text.is_empty() {
                continue;
            }
            let name = by_name.insert_full(text.to_owned()).0 as u32;
            ranges.list.push(HostRange {
                start: range.start - base,
                end: range.end.map(|end| end - base),
                thread: thread_of(range.thread),
                name,
            });
        }
    }
    if unjoined > 0 {
        notes.warn(format!(
            "{unjoined} of {nccl_kernels} NCCL kernels could not be joined with their call: no bytes and no group"
        ));
    }
    ranges.names = by_name.into_iter().collect();
    let (gpu, infos) = tables.finish();
    let environment = environment(parts);
    let mut trace = assemble(ImportParts { gpu, launches, calls: names, ranges, environment }, notes)
        .map_err(Error::input)?;
    for (operation, info) in trace.operations.iter_mut().zip(infos) {
        operation.collective = info;
    }
    trace.meta.groups = groups;
    Ok(trace)
}

fn environment(parts: &[RecordingPart]) -> Environment {
    let mut environment = Environment::new();
    let hosts: BTreeSet<&str> = parts.iter().map(|part| part.host.as_str()).collect();
    environment.insert("host".into(), hosts.into_iter().collect::<Vec<_>>().join(", ").into());
    let cupti = parts.iter().flat_map(|part| &part.notes);
    if let Some(version) = cupti.filter_map(|note| note.strip_prefix("CUPTI version ")).next() {
        environment.insert("cupti".into(), version.into());
    }
    environment
}

/// Communicators as process groups, with the number of each by NCCL's hash.
fn groups(parts: &[RecordingPart]) -> (Vec<ProcessGroup>, HashMap<u64, (u32, u32)>) {
    let mut found: BTreeMap<u64, (u32, String, BTreeSet<u32>)> = BTreeMap::new();
    for (part, order) in parts.iter().zip(0..) {
        for communicator in &part.communicators {
            let (ranks, name, members) = found.entry(communicator.id).or_default();
            *ranks = (*ranks).max(communicator.ranks);
            if name.is_empty() {
                name.clone_from(&communicator.name);
            }
            members.insert(order);
        }
    }
    let numbers = found.iter().zip(0..).map(|((id, (size, ..)), at)| (*id, (at, *size))).collect();
    let groups = found
        .into_iter()
        .map(|(id, (size, name, members))| ProcessGroup {
            name: format!("{id:016x}"),
            description: name,
            size,
            // a process that drives several GPUs is several ranks, of which NCCL tells no device here
            ranks: match members.len() == size as usize {
                true => members.into_iter().collect(),
                false => Vec::new(),
            },
        })
        .collect();
    (groups, numbers)
}

/// Places and operations, numbered by first use.
#[derive(Default)]
struct Tables {
    events: Vec<GpuEvent>,
    places: IndexSet<GpuStream, RandomState>,
    operations: IndexSet<(String, &'static str, Option<CollectiveInfo>)>,
    copied: HashMap<u32, CopiedBytes>,
}

impl Tables {
    /// Adds the GPU work of a part; returns the number of NCCL kernels.
    fn add_work(
        &mut self,
        part: &RecordingPart,
        process: i64,
        base: i64,
        joined: &JoinedCollectives,
        number_of: &HashMap<u64, (u32, u32)>,
        notes: &mut Notes,
    ) -> u64 {
        let mut kernels: HashMap<(u32, Option<&NcclCollective>), u32> = HashMap::new();
        let mut nccl = 0;
        for work in &part.work {
            let operation = match work.what {
                RecordedWorkKind::Kernel(name) => {
                    notes.use_("kernel", 1);
                    let found = match work.node {
                        0 => joined.by_correlation.get(&work.correlation),
                        node => joined.by_node.get(&node),
                    };
                    let text = part.text(name);
                    nccl += u64::from(is_nccl(text));
                    let found = found.filter(|_| is_nccl(text));
                    match kernels.get(&(name, found)) {
                        Some(known) => *known,
                        None => {
                            let info = found.map(|found| info(found, number_of));
                            let text = match text {
                                "" => "kernel (its name is missing)",
                                text => text,
                            };
                            let at =
                                self.operations.insert_full((text.to_owned(), "kernel", info)).0 as u32;
                            kernels.insert((name, found), at);
                            at
                        }
                    }
                }
                RecordedWorkKind::Copy { kind, bytes } => {
                    notes.use_("memcpy", 1);
                    let name = match kind {
                        1 => "Memcpy HtoD",
                        2 => "Memcpy DtoH",
                        8 => "Memcpy DtoD",
                        9 => "Memcpy HtoH",
                        10 => "Memcpy PtoP",
                        _ => "Memcpy",
                    };
                    self.copy(name, "memcpy", bytes)
                }
                RecordedWorkKind::Fill { bytes } => {
                    notes.use_("memset", 1);
                    self.copy("Memset", "memset", bytes)
                }
            };
            let (device, stream) = (i64::from(work.device), i64::from(work.stream));
            let context = work.context.map(i64::from);
            let place = GpuStream { process: Some(process), device, context, stream };
            let place = self.places.insert_full(place).0 as u32;
            self.events.push(GpuEvent {
                start: work.start - base,
                end: work.end - base,
                correlation: work.correlation,
                operation,
                place,
                is_node: work.node != 0,
            });
        }
        nccl
    }

    fn copy(&mut self, name: &str, kind: &'static str, bytes: u64) -> u32 {
        let operation = self.operations.insert_full((name.to_owned(), kind, None)).0 as u32;
        self.copied.entry(operation).or_default().add(Some(bytes));
        operation
    }

    /// GPU work, and the arguments of each operation.
    fn finish(self) -> (GpuActivity, Vec<Option<CollectiveInfo>>) {
        let operations = self.operations.into_iter();
        let (operations, infos) = operations.map(|(name, kind, info)| ((name, kind), info)).unzip();
        let (events, places, copied) = (self.events, self.places.into_iter().collect(), self.copied);
        (GpuActivity { events, places, operations, copied, graphs: Vec::new() }, infos)
    }
}

/// Arguments of a collective; the message is the larger of a rank's input and output.
fn info(found: &NcclCollective, number_of: &HashMap<u64, (u32, u32)>) -> CollectiveInfo {
    let group = found.communicator.and_then(|id| number_of.get(&id));
    let bytes = match collective_kind(&found.name) {
        Some(OperationKind::AllGather | OperationKind::ReduceScatter) => {
            group.map(|(_, ranks)| found.bytes.saturating_mul(u64::from(*ranks)))
        }
        _ => Some(found.bytes),
    };
    CollectiveInfo {
        name: found.name.clone(),
        group: group.map(|(at, _)| *at),
        message_bytes: bytes.filter(|bytes| *bytes > 0),
        algorithm: found.chosen.algorithm.clone(),
        protocol: found.chosen.protocol.clone(),
        channels: Some(u32::from(found.chosen.channels)).filter(|channels| *channels > 0),
        ..CollectiveInfo::default()
    }
}

const LAUNCHERS: [&str; 5] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
/// Most processes that a rank can number.
const MOST: u32 = 1 << 20;

/// A process is beside the ranks if one that it started, or was started by, does this many times its GPU work.
const FAR_MORE: usize = 10;
/// Maximum distance of relatives: launchers and shells stand between an engine and its workers.
const MOST_ANCESTORS: usize = 32;

/// Removes processes that use a GPU beside the ranks, such as an engine's front end or a short probe: a parent or child
/// of a rank with far less GPU work, no communicator in common, and no launcher's rank of its own.
fn take_beside(parts: &mut Vec<RecordingPart>) -> Vec<RecordingPart> {
    let teams = teams(parts);
    let parents = parents(parts);
    // GPU work and processes of each team
    let mut sizes = vec![(0, 0); parts.len()];
    for (part, team) in parts.iter().zip(&teams).filter(|(part, _)| !part.work.is_empty()) {
        sizes[*team].0 += part.work.len();
        sizes[*team].1 += 1;
    }
    let mut is_beside = vec![false; parts.len()];
    for one in 0..parts.len() {
        let mut at = one;
        for _ in 0..MOST_ANCESTORS {
            let Some(parent) = parents[at] else { break };
            for (small, large) in [(one, parent), (parent, one)] {
                let ((work, processes), (more, of)) = (sizes[teams[small]], sizes[teams[large]]);
                let is_far_less = work > 0 && more > 0 && FAR_MORE * work * of <= more * processes;
                if is_far_less && !has_own_rank(parts, &teams, small, teams[large]) {
                    is_beside[teams[small]] = true;
                }
            }
            at = parent;
        }
    }
    let mut taken = teams.iter().map(|team| is_beside[*team]);
    parts.extract_if(.., |part| taken.next().unwrap_or(false) && !part.work.is_empty()).collect()
}

/// Number of each part's team: the parts that share a communicator with it, directly or through others.
fn teams(parts: &[RecordingPart]) -> Vec<usize> {
    let mut teams: Vec<usize> = (0..parts.len()).collect();
    let mut first: HashMap<u64, usize> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        for communicator in &part.communicators {
            let (from, to) = (teams[at], teams[*first.entry(communicator.id).or_insert(at)]);
            if from != to {
                teams.iter_mut().filter(|team| **team == from).for_each(|team| *team = to);
            }
        }
    }
    teams
}

/// The part of each process's parent, if it was recorded.
fn parents(parts: &[RecordingPart]) -> Vec<Option<usize>> {
    let mut by_process: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        by_process.entry((part.host.as_str(), part.pid)).or_default().push(at);
    }
    let parent = |part: &RecordingPart| {
        let known = by_process.get(&(part.host.as_str(), part.parent))?;
        // process ids are used again: the last before the child
        let earlier = known.iter().copied().filter(|at| parts[*at].start <= part.start);
        earlier.max_by_key(|at| parts[*at].start).filter(|_| part.parent != part.pid)
    };
    parts.iter().map(parent).collect()
}

/// True if a launcher gave the process a rank that no process of the team has: an inherited one is not its own.
fn has_own_rank(parts: &[RecordingPart], teams: &[usize], one: usize, team: usize) -> bool {
    LAUNCHERS.iter().any(|variable| {
        let rank = |part: &RecordingPart| part.variables.get(*variable).cloned();
        let mut theirs =
            parts.iter().zip(teams).filter(|(_, of)| **of == team).map(|(part, _)| rank(part));
        rank(&parts[one]).is_some_and(|own| theirs.all(|of| of.is_some_and(|of| of != own)))
    })
}

/// Sorts the parts by rank, and says where the ranks came from.
fn order(parts: &mut [RecordingPart]) -> String {
    for variable in LAUNCHERS {
        let ranks: Option<Vec<u32>> =
            parts.iter().map(|part| part.variables.get(variable)?.parse().ok()).collect();
        if let Some(ranks) = ranks.filter(|ranks| are_ranks(ranks)) {
            sort(parts, &ranks);
            return format!("ranks from the launcher's {variable}");
        }
    }
    if let Some(ranks) = communicator_ranks(parts) {
        sort(parts, &ranks);
        return "ranks from NCCL's largest communicator".into();
    }
    // sglang and vLLM title their workers: `VLLM::Worker_TP1`, `sglang::scheduler_DP0_PP1_TP0`
    let titled = |part: &RecordingPart| {
        let title = part.command.split_whitespace().next().unwrap_or_default();
        title.contains("::").then(|| title.to_owned())
    };
    let titles: Option<Vec<String>> = parts.iter().map(titled).collect();
    if let Some(titles) = titles.filter(|titles| titles.len() > 1 && are_distinct(titles)) {
        let mut places: Vec<usize> = (0..titles.len()).collect();
        places.sort_by(|a, b| natural_order(&titles[*a], &titles[*b]));
        let mut ranks = vec![0; places.len()];
        places.iter().zip(0..).for_each(|(place, rank)| ranks[*place] = rank);
        sort(parts, &ranks);
        return "ranks from the titles of the processes".into();
    }
    let device = |part: &RecordingPart| part.work.iter().map(|work| work.device).min();
    parts.sort_by_cached_key(|part| (part.host.clone(), device(part), part.start, part.pid));
    "ranks by host, device and start of the process".into()
}

fn are_ranks(ranks: &[u32]) -> bool {
    ranks.iter().all(|rank| *rank < MOST) && are_distinct(ranks)
}

fn are_distinct<T: Ord>(list: &[T]) -> bool {
    list.iter().collect::<BTreeSet<_>>().len() == list.len()
}

fn sort(parts: &mut [RecordingPart], ranks: &[u32]) {
    let rank_of: HashMap<String, u32> =
        parts.iter().zip(ranks).map(|(part, rank)| (part.name.clone(), *rank)).collect();
    parts.sort_by_key(|part| rank_of.get(&part.name).copied());
}

/// Rank of each part in the largest communicator that all of them share.
fn communicator_ranks(parts: &[RecordingPart]) -> Option<Vec<u32>> {
    let first = parts.first().filter(|_| parts.len() > 1)?;
    let mut shared: Vec<(u32, u64)> =
        first.communicators.iter().map(|found| (found.ranks, found.id)).collect();
    shared.sort_unstable();
    shared.iter().rev().find_map(|(_, id)| {
        let found_in = |part: &RecordingPart| {
            part.communicators.iter().find(|found| found.id == *id).map(|f| f.rank)
        };
        let ranks: Option<Vec<u32>> = parts.iter().map(found_in).collect();
        ranks.filter(|ranks| are_ranks(ranks))
    })
}

#[cfg(test)]
mod tests;
