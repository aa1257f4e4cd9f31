//! GPU activity: kernels, copies, fills, and CUDA graphs that were recorded as a whole.
//!
//! Copies and fills are named as PyTorch's profiler names them, so that the same rules match.

use std::collections::{BTreeSet, HashMap, HashSet};

use foldhash::fast::RandomState;
use indexmap::IndexSet;

use super::database::{Database, DatabaseRow};
use super::host::{ProcessId, process};
use super::{Notes, interval};
use crate::import::left_out::described;
use crate::{CopiedBytes, Doubt, Doubted};
use base::error::{Error, Result};

pub(super) const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const FILLS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
const STRINGS: &str = "StringIds";
/// Minimum share of the kernels' time without names that puts the split of the time in doubt.
const LEAST_UNNAMED: f64 = 0.02;
const COMMON: [&str; 7] =
    ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "contextId"];
const NEEDED: [&str; 4] = ["start", "end", "deviceId", "streamId"];
/// Columns with kernel names, in order of preference.
const NAMES: [&str; 3] = ["demangledName", "shortName", "mangledName"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::import) struct GpuStream {
    /// `None` if the export does not record it.
    pub process: Option<ProcessId>,
    pub device: i64,
    /// CUDA context: numbers of streams are unique only within one. `None` if unknown.
    pub context: Option<i64>,
    pub stream: i64,
}

/// A kernel, copy or fill on a GPU (times in ns).
#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct GpuEvent {
    pub start: i64,
    pub end: i64,
    /// Correlation id; 0 if unknown.
    pub correlation: u32,
    /// Name and kind: an index into [`GpuActivity::operations`].
    pub operation: u32,
    /// Stream: an index into [`GpuActivity::places`].
    pub place: u32,
    pub is_node: bool,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct GraphLaunch {
    pub start: i64,
    pub end: i64,
    pub graph: i64,
    /// Correlation id; 0 if unknown.
    pub correlation: u32,
    pub place: GpuStream,
}

#[derive(Debug, Default)]
pub(in crate::import) struct GpuActivity {
    pub events: Vec<GpuEvent>,
    pub places: Vec<GpuStream>,
    pub operations: Vec<(String, &'static str)>,
    pub copied: HashMap<u32, CopiedBytes>,
    pub graphs: Vec<GraphLaunch>,
}

/// Numbers places and operations in order of first use.
#[derive(Default)]
struct Tables {
    places: IndexSet<GpuStream, RandomState>,
    last_place: Option<(GpuStream, u32)>,
    operations: IndexSet<(String, &'static str)>,
    /// Operations by the ids in a row, so that each name is built only once.
    by_key: HashMap<(&'static str, [i64; 3]), u32>,
}

impl GpuActivity {
    pub(super) fn read(db: &Database, notes: &mut Notes) -> Result<Self> {
        let mut gpu = Self::default();
        let mut tables = Tables::default();
        db.other_names().for_each(|sentence| notes.warn(sentence));
        if db.has(KERNELS) {
            let mut missing = db.missing(KERNELS, &NEEDED);
            if db.missing(KERNELS, &NAMES).len() == NAMES.len() {
                missing.push(NAMES[0]);
            }
            if !missing.is_empty() {
                return Err(Error::input_help(
                    format!(
                        "{}: table {KERNELS} has no column {}",
                        db.path().display(),
                        missing.join(", ")
                    ),
                    "this is no export of Nsight Systems, or of a version that is not known; export it again with \
                     a newer `nsys export --type sqlite`",
                ));
            }
            gpu.kernels(db, &mut tables, notes)?;
        } else if let Some(kind) = db.unread(KERNELS) {
            return Err(Error::input_help(
                format!("{}: {KERNELS} is {kind}, and only tables are read", db.path().display()),
                "export the recording again with `nsys export --type sqlite`",
            ));
        } else {
            notes.warn(format!("no table {KERNELS}: no kernel was recorded"));
        }
        gpu.memory(db, &mut tables, notes);
        gpu.graphs(db, notes);
        gpu.places = tables.places.into_iter().collect();
        gpu.operations = tables.operations.into_iter().collect();
        Ok(gpu)
    }

    /// Drops the context of all streams but those whose number another context of the process and device uses too.
    pub(super) fn drop_lone_contexts(&mut self) {
        let without = |place: GpuStream| GpuStream { context: None, ..place };
        let mut contexts: HashMap<GpuStream, BTreeSet<i64>> = HashMap::new();
        for place in &self.places {
            contexts.entry(without(*place)).or_default().extend(place.context);
        }
        let needed = |place: GpuStream| match contexts.get(&without(place)) {
            Some(several) if several.len() > 1 => place,
            _ => without(place),
        };
        let mut places = IndexSet::new();
        let number_of: Vec<u32> =
            self.places.iter().map(|place| places.insert_full(needed(*place)).0 as u32).collect();
        self.events.iter_mut().for_each(|event| event.place = number_of[event.place as usize]);
        self.graphs.iter_mut().for_each(|graph| graph.place = needed(graph.place));
        self.places = places.into_iter().collect();
    }

    fn kernels(&mut self, db: &Database, tables: &mut Tables, notes: &mut Notes) -> Result<()> {
        let columns: Vec<&str> = COMMON.into_iter().chain(NAMES).chain(["graphNodeId"]).collect();
        // operations whose name is missing
        let mut unnamed: HashSet<u32> = HashSet::new();
        let mut nodes = 0u64;
        let read = db.rows(KERNELS, &columns, |row| {
            let name = NAMES.len() + COMMON.len();
            let id = (COMMON.len()..name).find_map(|column| row.integer(column));
            let text = (COMMON.len()..name).find_map(|column| row.text(column));
            let spelt =
                || id.and_then(|id| db.string(id)).or(text.map(str::to_owned)).unwrap_or_default();
            let Some(mut event) = tables.event(row, "kernel", notes, spelt) else { return };
            event.is_node = row.integer(name).is_some_and(|node| node != 0);
            nodes += u64::from(event.is_node);
            let mut is_unnamed = false;
            event.operation = match (id, text) {
                // exports with names inline
                (None, Some(text)) => {
                    tables.operations.insert_full((text.to_owned(), "kernel")).0 as u32
                }
                _ => tables.operation("kernel", [id.unwrap_or(-1), 0, 0], || {
                    let name = id.and_then(|id| db.string(id));
                    is_unnamed = name.is_none();
                    name.unwrap_or_else(|| match id {
                        Some(id) => format!("kernel {id} (its name is missing)"),
                        None => "kernel (its name is missing)".to_owned(),
                    })
                }),
            };
            if is_unnamed {
                unnamed.insert(event.operation);
            }
            self.events.push(event);
        });
        notes.use_("kernel", self.events.len() as u64);
        notes.read_gpu_work(&read);
        self.check_names(db, &unnamed, notes)?;
        if nodes > 0 {
            notes.warn(format!(
                "{nodes} kernels are nodes of CUDA graphs: the whole graph's launch counts as theirs"
            ));
        }
        Ok(())
    }

    /// Warns of kernels without names. Returns an error if no kernel has one: nothing would be
    /// communication.
    fn check_names(&self, db: &Database, unnamed: &HashSet<u32>, notes: &mut Notes) -> Result<()> {
        if unnamed.is_empty() {
            return Ok(());
        }
        let length = |event: &GpuEvent| event.end.saturating_sub(event.start) as f64;
        let (mut count, mut time, mut all) = (0usize, 0.0, 0.0);
        for event in &self.events {
            let is_unnamed = unnamed.contains(&event.operation);
            count += usize::from(is_unnamed);
            time += if is_unnamed { length(event) } else { 0.0 };
            all += length(event);
        }
        let strings = match (db.has(STRINGS), db.unread(STRINGS)) {
            (true, _) if !db.missing(STRINGS, &["value"]).is_empty() => {
                format!("table {STRINGS} has no stored column value (generated ones are not read)")
            }
            (true, _) => format!("table {STRINGS} does not have the ids of their names"),
            (false, Some(kind)) => format!("{STRINGS} is {kind}, and only tables are read"),
            (false, None) => format!("table {STRINGS} is missing"),
        };
        if count == self.events.len() {
            return Err(Error::input_help(
                format!("{}: no kernel has a name: {strings}", db.path().display()),
                "communication is recognised by kernel names; export the recording again with `nsys export --type sqlite`",
            ));
        }
        let share = if all > 0.0 { time / all } else { 1.0 };
        let sentence = format!(
            "{count} of {} kernels ({:.0} % of their time) have no name: {strings}",
            self.events.len(),
            100.0 * share
        );
        if share >= LEAST_UNNAMED {
            notes.left_out.doubt([Doubt { about: Doubted::Names, sentence }]);
        } else {
            notes.warn(sentence);
        }
        Ok(())
    }

    fn memory(&mut self, db: &Database, tables: &mut Tables, notes: &mut Notes) {
        for (table, kind, more) in [
            (COPIES, "memcpy", ["copyKind", "srcKind", "dstKind"]),
            (FILLS, "memset", ["memKind", "", ""]),
        ] {
            if !db.has(table) {
                // nsys omits empty tables
                continue;
            }
            let missing = db.missing(table, &NEEDED);
            if !missing.is_empty() {
                notes.warn(format!("ignored table {table}: no column {}", missing.join(", ")));
                continue;
            }
            let columns: Vec<&str> =
                COMMON.into_iter().chain(more).chain(["graphNodeId", "bytes"]).collect();
            let before = self.events.len();
            let read = db.rows(table, &columns, |row| {
                let details = [7, 8, 9].map(|column| row.integer(column));
                let name = || match kind {
                    "memcpy" => copy_name(details[0], details[1], details[2]),
                    _ => memory_kind(details[0])
                        .map_or("Memset".into(), |place| format!("Memset ({place})")),
                };
                let Some(mut event) = tables.event(row, kind, notes, name) else { return };
                let key = details.map(|detail| detail.unwrap_or(-1));
                event.operation = tables.operation(kind, key, name);
                event.is_node = row.integer(10).is_some_and(|node| node != 0);
                let bytes = row.integer(11).and_then(|bytes| u64::try_from(bytes).ok());
                self.copied.entry(event.operation).or_default().add(bytes);
                self.events.push(event);
            });
            notes.use_(kind, (self.events.len() - before) as u64);
            notes.read_gpu_work(&read);
        }
    }

    fn graphs(&mut self, db: &Database, notes: &mut Notes) {
        if !db.missing(GRAPHS, &NEEDED).is_empty() {
            return;
        }
        let columns: Vec<&str> = COMMON.into_iter().chain(["graphId"]).collect();
        let read = db.rows(GRAPHS, &columns, |row| {
            let name = || format!("graph {}", row.integer(7).unwrap_or(0));
            let Some((start, end)) = interval(row, "graph launch", notes, name) else { return };
            let Some(place) = place(row) else {
                notes.ignore("graph launch without a device or stream", 1);
                return;
            };
            let (correlation, graph) = (correlation(row), row.integer(7).unwrap_or(0));
            self.graphs.push(GraphLaunch { start, end, graph, correlation, place });
        });
        notes.read_gpu_work(&read);
        if !self.graphs.is_empty() {
            notes.warn(format!(
                "{} launches of CUDA graphs were recorded as a whole, without their kernels: their time counts \
                 neither as compute nor as communication, and they are shown as ranges. Record with `nsys \
                 profile --cuda-graph-trace=node`",
                self.graphs.len()
            ));
        }
    }
}

fn place(row: &DatabaseRow) -> Option<GpuStream> {
    Some(GpuStream {
        process: row.integer(5).map(process),
        device: row.integer(2)?,
        context: row.integer(6),
        stream: row.integer(3)?,
    })
}

fn correlation(row: &DatabaseRow) -> u32 {
    row.integer(4).and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

impl Tables {
    fn event(
        &mut self,
        row: &DatabaseRow,
        kind: &'static str,
        notes: &mut Notes,
        name: impl Fn() -> String,
    ) -> Option<GpuEvent> {
        let (start, end) = interval(row, kind, notes, &name)?;
        let Some(place) = place(row) else {
            let described = || described(&name(), start, end);
            notes.left_out.add(kind, "without a device or stream", start, described);
            return None;
        };
        let number = match self.last_place {
            Some((last, number)) if last == place => number,
            _ => self.places.insert_full(place).0 as u32,
        };
        self.last_place = Some((place, number));
        Some(GpuEvent {
            start,
            end,
            correlation: correlation(row),
            operation: 0,
            place: number,
            is_node: false,
        })
    }

    fn operation(&mut self, kind: &'static str, key: [i64; 3], name: impl FnOnce() -> String) -> u32 {
        if let Some(number) = self.by_key.get(&(kind, key)) {
            return *number;
        }
        let number = self.operations.insert_full((name(), kind)).0 as u32;
        self.by_key.insert((kind, key), number);
        number
    }
}

/// Name of a copy: `Memcpy HtoD (Pinned -> Device)`.
fn copy_name(kind: Option<i64>, source: Option<i64>, destination: Option<i64>) -> String {
    let direction = match kind {
        Some(1) => "HtoD",
        Some(2) => "DtoH",
        Some(3) => "HtoA",
        Some(4) => "AtoH",
        Some(5) => "AtoA",
        Some(6) => "AtoD",
        Some(7) => "DtoA",
        Some(8) => "DtoD",
        Some(9) => "HtoH",
        Some(10) => "PtoP",
        Some(11) => "Unified HtoD",
        Some(12) => "Unified DtoH",
        Some(13) => "Unified DtoD",
        _ => "unknown",
    };
    match (memory_kind(source), memory_kind(destination)) {
        (None, None) => format!("Memcpy {direction}"),
        (from, to) => {
            format!("Memcpy {direction} ({} -> {})", from.unwrap_or("Unknown"), to.unwrap_or("Unknown"))
        }
    }
}

fn memory_kind(number: Option<i64>) -> Option<&'static str> {
    const KINDS: [&str; 7] =
        ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];
    KINDS.get(usize::try_from(number?).ok()?).copied()
}
