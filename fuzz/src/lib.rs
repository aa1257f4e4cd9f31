//! What is fuzzed: a function a target, from any bytes to nothing or a panic. The targets of libFuzzer
//! (`fuzz_targets/`) call them, and so does `tests/fuzz.rs` for some seconds with every `cargo test`.
//!
//! Bytes that must be in a shape to be read at all (SQLite, Parquet) are taken as changes of a whole file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lab::store::Store;
use lab::sweep::Experiment;
use lab::sweep::document::Document;
use ladderscope::face::tui::config::{Surroundings, WorkbenchConfig};
use model::{Model, Tokenizer, WeightSource};
use study::analysis::filter::Filter;
use table::Record;
use trace::Trace;
use trace::import::{self, kineto as pytorch};
use trace::rules::Rules;

/// A target: its name, what it does with bytes, and bytes to begin with.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of the target: `cargo fuzz run NAME`.
    pub name: &'static str,
    /// Whether the bytes were read and not refused; panics where they find a defect.
    pub check: fn(&[u8]) -> bool,
    /// Inputs that reach far, from which others are made; the first one is read and not refused.
    pub seeds: &'static [&'static [u8]],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "kineto", check: kineto, seeds: &[include_bytes!("../seeds/kineto.json")] },
    Target { name: "nsight", check: nsight, seeds: &[&[], &[0, 16, 13, 7, 200, 1, 0, 9]] },
    Target {
        name: "formats",
        check: formats,
        seeds: &[
            include_bytes!("../seeds/jax.json"),
            include_bytes!("../seeds/rocprof.json"),
            include_bytes!("../seeds/traces.tar"),
            include_bytes!("../seeds/traces.zip"),
        ],
    },
    Target { name: "own", check: own, seeds: &[&[], &[0, 40, 200, 9], &[1, 0, 0, 255, 0, 0, 9, 1]] },
    Target {
        name: "part",
        check: part,
        // a text, a range and a kernel
        seeds: &[
            &[0],
            &[
                0, 1, 1, 0, 0, 0, 4, 0, b'N', b'C', b'C', b'L', 23, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0,
                0, 0, 0, 0,
            ],
            &[1, 76, 83, 80, 65, 82, 84, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ],
    },
    Target {
        name: "rules",
        check: rules,
        seeds: &[include_bytes!("../../src/trace/rules/default.toml")],
    },
    Target { name: "record", check: record, seeds: &[include_bytes!("../seeds/record.json")] },
    Target {
        name: "store",
        check: store,
        seeds: &[
            &[0],
            &[0, 0, 60, 7, 9],
            &[1, 1, 3, 0, 9],
            &[2, 0, 9, 34, 9],
            &[3, 0, 3, 1, 9],
            // a page of -1 rows, for which a Parquet reader would allocate two exabytes
            &[
                0xe0, 0xfb, 0x1d, 0xc0, 0x16, 0x10, 0xff, 1, 0x63, 0x63, 0x63, 0x63, 0x63, 0x24, 2,
                0xff, 0xff,
            ],
            // no checksum any more, and another number of rows
            &[
                0xe0, 0xfb, 0x1d, 0x0d, 0x51, 0, 0x80, 0xe0, 0xfb, 0x1d, 0x2d, 0, 0x80, 0x64, 0x75,
                0x40, 0x30,
            ],
        ],
    },
    Target {
        name: "experiment",
        check: experiment,
        seeds: &[
            include_bytes!("../../experiments/quickstart.toml"),
            include_bytes!("../../experiments/staleness.toml"),
        ],
    },
    Target { name: "settings", check: settings, seeds: &[include_bytes!("../seeds/settings.toml")] },
    Target { name: "checkpoint", check: checkpoint, seeds: &[include_bytes!("../seeds/checkpoint")] },
    Target { name: "tokenizer", check: tokenizer, seeds: &[include_bytes!("../seeds/tokenizer.json")] },
    Target {
        name: "filter",
        check: filter,
        seeds: &[b"arch:ladder -failed tp:2..8 \"llama-3\" tok/s>1000"],
    },
    #[cfg(fuzzing)]
    Target { name: "wire", check: wire, seeds: &[include_bytes!("../seeds/wire")] },
];

/// Spans end after they begin, and name operations, ranks and streams that the trace has.
fn is_sound(trace: &Trace) {
    for span in &trace.spans {
        assert!(span.end_ns >= span.start_ns && span.rank < trace.meta.ranks);
        assert!((span.operation as usize) < trace.operations.len());
        assert!((span.stream as usize) < trace.meta.streams.len());
    }
}

/// A file of this name with these bytes, in a directory of its own.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join(name);
    fs::File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("written");
    (dir, path)
}

/// A whole file with changes: three bytes a place (scaled to the file's length), one its value.
fn changed(whole: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for change in changes.chunks_exact(4) {
        let share = usize::from(change[0]) << 16 | usize::from(change[1]) << 8 | usize::from(change[2]);
        let at = share * bytes.len() / (1 << 24);
        bytes[at] = change[3];
    }
    bytes
}

/// Any bytes are a trace of the PyTorch profiler or an error: no event is unaccounted for, and the trace
/// is the same whatever the pieces it was read in.
pub fn kineto(bytes: &[u8]) -> bool {
    let options = |piece| pytorch::KinetoOptions { parsers: 0, piece };
    let read = |piece| pytorch::import_bytes("fuzz", bytes, options(piece));
    let (Ok(trace), Ok(again)) = (read(64), read(1 << 20)) else { return false };
    assert_eq!(trace.spans, again.spans);
    is_sound(&trace);
    let report = trace.meta.import.expect("imported");
    assert_eq!(report.used.values().sum::<u64>() + report.ignored.values().sum::<u64>(), report.events);
    true
}

/// A damaged export of Nsight Systems is read as a sound trace, or refused.
pub fn nsight(bytes: &[u8]) -> bool {
    let whole = include_bytes!("../seeds/nsight.sqlite");
    let (_dir, path) = file("t.sqlite", &changed(whole, bytes));
    let Ok(trace) = import::open(&path) else { return false };
    is_sound(&trace);
    true
}

/// Any bytes are a trace or an archive of traces, which is read as a sound one, or refused.
pub fn formats(bytes: &[u8]) -> bool {
    let (_dir, path) = file("t", bytes);
    let Ok(trace) = import::open(&path) else { return false };
    is_sound(&trace);
    true
}

/// A damaged trace file of ladderscope is read as it was written, or refused.
pub fn own(bytes: &[u8]) -> bool {
    let whole = include_bytes!("../../traces/cpu-ladder-tp2-600us.parquet");
    let read = |bytes: &[u8]| trace::read(&file("t.parquet", bytes).1);
    static SPANS: LazyLock<Vec<trace::Span>> = LazyLock::new(|| {
        let (_dir, path) =
            file("t.parquet", include_bytes!("../../traces/cpu-ladder-tp2-600us.parquet"));
        trace::read(&path).expect("the whole file is fine").spans
    });
    // only Parquet's page index, which nobody reads, has no checksum
    let Ok(trace) = read(&changed(whole, bytes)) else { return false };
    assert_eq!(trace.spans, *SPANS);
    true
}

/// Any text is a rule file or an error that names the file.
pub fn rules(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Err(error) = Rules::parse("fuzz.toml", text) else { return true };
    assert!(error.to_string().contains("fuzz.toml"), "{error}");
    false
}

/// A record that is read is written as what is read again.
pub fn record(bytes: &[u8]) -> bool {
    let Ok(record) = table::parse(bytes) else { return false };
    let written = serde_json::to_vec(&record).expect("a record is written");
    let again: Record = table::parse(&written).expect("what was written is read");
    assert_eq!(written, serde_json::to_vec(&again).expect("written"));
    true
}

/// A store in which one file is damaged (the first byte says which) is listed: what is not damaged is
/// listed as before and read one by one, and what is gone is named.
pub fn store(bytes: &[u8]) -> bool {
    let Some((which, changes)) = bytes.split_first() else { return false };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let which = usize::from(*which) % STORE.len();
    put(dir.path(), |at, whole| if at == which { changed(whole, changes) } else { whole.to_vec() });
    let store = Store::open(dir.path());
    let Ok(listing) = store.list() else { return false };
    let (_, damaged) = store.batches().expect("batches that cannot be read are named");
    let name = STORE[which].0;
    // the run, or the batch, that the damaged file is of
    let spoiled = name.split('/').nth(usize::from(name.starts_with("batches/"))).unwrap_or_default();
    let spoiled = spoiled.trim_end_matches(".parquet");
    let named = listing.damaged.iter().chain(&damaged).any(|why| why.contains(spoiled));
    for whole in WHOLE.iter() {
        let listed = listing.records.iter().find(|record| record.run == whole.run);
        if whole.run.starts_with(spoiled) {
            assert!(listed.is_some() || named, "{} is gone, and nobody says why", whole.run);
            continue;
        }
        let record = listed.unwrap_or_else(|| panic!("{} is gone with a damaged {name}", whole.run));
        assert_eq!(record, whole, "damage of {name}");
        assert_eq!(store.get(&whole.run).expect("what is listed is there").metrics, whole.metrics);
    }
    let _ = (store.finished().map(|finished| finished.len()), store.trash());
    true
}

/// The runs of the store before it is damaged.
static WHOLE: LazyLock<Vec<Record>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a temporary directory");
    put(dir.path(), |_, whole| whole.to_vec());
    let records = Store::open(dir.path()).list().expect("the store is fine").records;
    assert_eq!(records.len(), 3);
    records
});

/// Writes the store, each file as it is made of its place and of what is in it.
fn put(dir: &Path, made: impl Fn(usize, &[u8]) -> Vec<u8>) {
    for (at, (name, whole)) in STORE.iter().enumerate() {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, made(at, whole)).expect("written");
    }
}

/// A file of the store in `tests/stores/3`: its name there, and what is in it.
macro_rules! stored {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../tests/stores/3/", $name)))),*]
    };
}

/// The files of the store that is damaged.
const STORE: &[(&str, &[u8])] = stored![
    "20261122-192855-ladder-ecee5d/record.json",
    "20261122-192855-ladder-ecee5d/spec.json",
    "batches/20261122-192855-sim-9042f3.parquet",
    "annotations.jsonl",
    ".trash/20261122-192856-standard-ab806b/record.json",
    ".trash/20261122-192856-standard-ab806b/spec.json",
];

/// Any text is an experiment or an error that names the file; what the editor sees of it agrees.
pub fn experiment(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let path = Path::new("fuzz.toml");
    let document = Document::parse(text, path);
    match Experiment::from_str(text, path) {
        Ok(experiment) => {
            assert!(!experiment.cells.is_empty() && document.is_ok());
            true
        }
        Err(error) => {
            assert!(error.to_string().contains("fuzz.toml"), "{error}");
            false
        }
    }
}

/// Any text is a file of settings, and what is wrong in it is named with its line.
pub fn settings(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let config = WorkbenchConfig::parse(text, Path::new("fuzz.toml"), &Surroundings::default());
    assert!(config.wrong.iter().all(|wrong| wrong.starts_with("fuzz.toml:")), "{:?}", config.wrong);
    config.wrong.is_empty()
}

/// Any directory is a checkpoint or an error: the bytes are `config.json` up to a line of dashes,
/// `model.safetensors` behind it.
pub fn checkpoint(bytes: &[u8]) -> bool {
    const CUT: &[u8] = b"\n----\n";
    let at = bytes.windows(CUT.len()).position(|window| window == CUT).unwrap_or(bytes.len());
    let (dir, _) = file("config.json", &bytes[..at]);
    fs::write(dir.path().join("model.safetensors"), bytes.get(at + CUT.len()..).unwrap_or_default())
        .expect("written");
    let name = dir.path().to_str().expect("a path in UTF-8");
    Model::resolve(name).is_ok_and(|model| WeightSource::open(&model, 1).is_ok())
}

/// Any bytes are a tokenizer or an error; one that opens turns text into tokens and back without a panic.
pub fn tokenizer(bytes: &[u8]) -> bool {
    let (dir, _) = file("tokenizer.json", bytes);
    let Ok(tokenizer) = Tokenizer::open(dir.path()) else { return false };
    if let Ok(ids) = tokenizer.encode("Once upon a time, 1000 ladders \u{e9}\u{1f600}") {
        let _ = tokenizer.decode(&ids);
    }
    let _ = tokenizer.decode(&[0, 1, u32::MAX]);
    true
}

/// Any text is a filter, and what a filter is printed as is the same filter.
pub fn filter(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let printed = Filter::parse(text).to_string();
    assert_eq!(Filter::parse(&printed).to_string(), printed, "from {text:?}");
    true
}

/// Whatever another process sends is a message of the meeting or an error. The library's own tests do the
/// same for some seconds: nothing else but fuzzing sees the wire.
#[cfg(fuzzing)]
pub fn wire(bytes: &[u8]) -> bool {
    run::comm::read_any_message(bytes);
    true
}

/// A part of a recording: after a 0, events in a chunk whose checksum is right; else the whole file.
pub fn part(bytes: &[u8]) -> bool {
    let Some((first, rest)) = bytes.split_first() else { return true };
    if *first != 0 {
        import::recording::fuzz(rest);
        return true;
    }
    let mut file = inject::format::header().to_vec();
    file.extend((rest.len() as u32).to_le_bytes());
    file.extend(inject::format::checksum(rest).to_le_bytes());
    file.extend(rest);
    import::recording::fuzz(&file);
    true
}
