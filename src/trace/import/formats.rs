//! Known file formats: detection by first bytes and file name, and help for unsupported ones.
//!
//! One entry per format, in order of detection. Error messages and the list in `docs/files-and-formats.md` use
//! these names.

use std::io::Read;
use std::path::{Path, PathBuf};

use memchr::memmem::find;

use super::directory::{self, Members};
use super::input::{self, InputFile};
use super::rank::{self, RankClaim};
use super::{KernelLaunch, KernelQuery};
use super::{kineto, nsight, recording};
use crate::Trace;
use base::error::{Error, Result};

/// Number of unpacked bytes inspected for detection: enough for the device descriptions that profilers
/// write first.
pub(super) const HEAD: usize = 256 << 10;

/// Importer of a profiler's files. A new one is a file with a static of this type, its `mod` line, and its line in
/// [`FORMATS`].
pub(super) struct Importer {
    /// Name of its files with an article: "an SQLite export of Nsight Systems".
    pub name: &'static str,
    /// Short form of the name, for directories with files of several profilers.
    pub word: &'static str,
    pub marks: &'static [FormatSignature],
    /// Rank and time in the first bytes of a file, to tell recordings apart without reading them.
    pub glance: fn(&[u8]) -> RankClaim,
    pub import: fn(ImportSelection<'_>) -> Result<Trace>,
    /// Launch details of one kernel of imported files.
    pub kernel: fn(&[PathBuf], &KernelQuery) -> Result<Option<KernelLaunch>>,
    /// True if operations are classified by rules: they do not come from a plan.
    pub is_foreign: bool,
}

impl Importer {
    /// Neither ranks in the first bytes nor details of kernels.
    pub const PLAIN: Self = Self {
        name: "",
        word: "",
        marks: &[],
        glance: |_| RankClaim::default(),
        import: |selection| Err(refusal(selection.path, None, &[])),
        kernel: |_, _| Ok(None),
        is_foreign: true,
    };
}

#[derive(Clone, Copy)]
pub(super) enum Reader {
    Importer(&'static Importer),
    /// Lists the members; the flag is true if the archive itself is compressed.
    Archive(fn(&InputFile, bool) -> Result<Members>),
    /// JSON without a known key in its head; trace events may follow later.
    Json,
    None,
}

pub(super) struct FileFormat {
    pub reader: Reader,
    /// Name with an article: "a report of Nsight Systems".
    pub name: &'static str,
    pub help: &'static str,
    marks: &'static [FormatSignature],
}

/// Files to import, and which of their recordings.
pub(super) struct ImportSelection<'a> {
    pub path: &'a Path,
    pub files: Vec<(InputFile, RankClaim)>,
    pub recording: Option<&'a str>,
    /// Sentences for the import's report.
    pub notes: Vec<String>,
}

impl ImportSelection<'_> {
    /// Files of the wanted recording, or of the newest complete one, as far as their beginnings tell, and whether that
    /// is certain. Adds notes on the choice.
    pub(super) fn choose(&mut self) -> Result<(Vec<InputFile>, rank::RecordingChoice)> {
        let claims: Vec<RankClaim> = self.files.iter().map(|(_, claim)| claim.clone()).collect();
        let mut chosen = rank::choose(&claims, self.recording)?;
        self.notes.append(&mut chosen.notes);
        Ok((chosen.files.iter().map(|at| self.files[*at].0.clone()).collect(), chosen))
    }

    /// The trace with the notes before its own.
    pub(super) fn noted(self, mut trace: Trace) -> Trace {
        if let Some(report) = &mut trace.meta.import {
            report.warnings.splice(0..0, self.notes);
        }
        trace
    }
}

/// A detection rule. A format matches if any of its rules does.
pub(super) enum FormatSignature {
    /// First bytes, after a byte order mark and whitespace.
    Begins(&'static [u8]),
    /// JSON with all of these texts in the head.
    Json(&'static [&'static [u8]]),
    /// Prefix of the file, and texts that must all be in the head.
    Within(&'static [u8], &'static [&'static [u8]]),
    Name(&'static str),
    Table(&'static str),
    Test(fn(&[u8]) -> bool),
}

const RECORD: &str = "record with PyTorch's profiler, or with `nsys profile -t cuda,nvtx` and export it by `nsys export --type sqlite`";
const EXPORT_SQLITE: &str =
    "export the report as SQLite instead: `nsys export --type sqlite REPORT.nsys-rep`";
const ROCPROF_JSON: &str = "record with `rocprofv3 --kernel-trace --memory-copy-trace --output-format json`, or with PyTorch's profiler";
const UNPACK: &str = "unpack it first";
const JAX_JSON: &str = "open the NAME.trace.json.gz that JAX writes to the same directory";

const fn refused(
    name: &'static str,
    help: &'static str,
    marks: &'static [FormatSignature],
) -> FileFormat {
    FileFormat { reader: Reader::None, name, help, marks }
}

const fn read(reader: Reader, name: &'static str, marks: &'static [FormatSignature]) -> FileFormat {
    FileFormat { reader, name, help: "", marks }
}

const fn import(importer: &'static Importer, marks: &'static [FormatSignature]) -> FileFormat {
    read(Reader::Importer(importer), importer.name, marks)
}

/// All formats, the most specific rules first. Of a directory with as many files of several importers, the first one
/// reads its own.
pub(super) static FORMATS: &[FileFormat] = {
    use FormatSignature::{Begins, Json, Name, Table, Test, Within};
    &[
        refused(
            "a Git LFS pointer",
            "run `git lfs pull` in its repository",
            &[
                Begins(b"version https://git-lfs.github.com/spec/"),
                Begins(b"version https://hawser.github.com/spec/"),
            ],
        ),
        refused(
            "text in UTF-16",
            "convert it: `iconv -f UTF-16 -t UTF-8 FILE > NEW`",
            &[Test(is_utf16)],
        ),
        // JSON with GPU work
        refused(
            "a trace of rocprof v1 or v2",
            ROCPROF_JSON,
            &[Json(&[b"\"traceEvents\"", b"\"BeginNs\"", b"\"DurationNs\""])],
        ),
        refused(
            "a trace of Intel's unitrace",
            "record with PyTorch's profiler",
            &[Json(&[b"\"traceEvents\"", b"\"gpu_op\""])],
        ),
        import(&kineto::TRACE_EVENTS, kineto::TRACE_EVENTS.marks),
        import(&kineto::ROCPROF, kineto::ROCPROF.marks),
        // SQLite, distinguished by table names
        refused(
            "a database of ROCm's profiler (rocpd, rocprof)",
            ROCPROF_JSON,
            &[Table("rocpd_"), Table("rocprofiler_")],
        ),
        refused(
            "a profile of nvprof",
            "record with Nsight Systems: `nsys profile -t cuda,nvtx`",
            &[Table("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")],
        ),
        import(&nsight::SQLITE, nsight::SQLITE.marks),
        import(&recording::PARTS, recording::PARTS.marks),
        // Parquet and Arrow
        refused(
            "a table of Nsight Systems' parquetdir export",
            EXPORT_SQLITE,
            &[Test(is_nsight_parquet)],
        ),
        import(&OWN, OWN.marks),
        refused(
            "a Parquet file of another program",
            "of Parquet, only traces of Ladderscope can be read",
            &[Begins(b"PAR1")],
        ),
        refused(
            "an Arrow export of Nsight Systems",
            EXPORT_SQLITE,
            &[Begins(b"ARROW1\0\0"), Test(is_arrow_stream), Name(".arrow")],
        ),
        refused("an HDF5 export of Nsight Systems", EXPORT_SQLITE, &[Begins(b"\x89HDF\r\n\x1a\n")]),
        // other JSON
        refused(
            "a PyTorch execution trace",
            "it contains operators but no GPU times: open the profiler trace that was recorded with it",
            &[
                Json(&[b"\"nodes\"", b"[pytorch|profiler|execution_"]),
                Json(&[b"\"nodes\"", b"\"rf_id\""]),
            ],
        ),
        refused(
            "a Chakra trace (JSON)",
            "it contains dependencies but no GPU times; open the profiler traces that it was made from",
            &[
                Json(&[b"\"workload_graph\""]),
                Json(&[b"\"COMP_NODE\""]),
                Json(&[b"\"COMM_COLL_NODE\""]),
                Json(&[b"\"ctrlDeps\""]),
            ],
        ),
        refused(
            "a dump of NCCL's flight recorder (JSON)",
            "it contains no kernel times; record with PyTorch's profiler",
            &[Json(&[b"\"pg_config\"", b"\"entries\""]), Json(&[b"\"pg_status\"", b"\"entries\""])],
        ),
        refused(
            "measurements of NCCL (nccl-tests or NCCL Inspector)",
            "name it to `ladderscope calibrate --collectives`",
            &[
                Json(&[b"\"coll_perf\""]),
                Json(&[b"\"bus_bw\"", b"\"out_of_place\""]),
                Begins(b"# nThread"),
                Begins(b"# nccl-tests version"),
            ],
        ),
        refused(
            "a JSON lines export of Nsight Systems",
            EXPORT_SQLITE,
            &[
                Json(&[b"\"TraceProcessEvent\""]),
                Json(&[b"\"CudaEvent\""]),
                Json(&[b"\"NvtxEvent\""]),
                Json(&[b"\"globalTid\"", b"\"nameId\""]),
                Json(&[b"\"CUPTI_ACTIVITY_KIND_"]),
                Name(".jsonl"),
            ],
        ),
        refused(
            "a sampling profile (speedscope)",
            RECORD,
            &[Json(&[b"speedscope.app/file-format-schema"])],
        ),
        refused("an index of safetensors", "open the profiler's trace", &[Json(&[b"\"weight_map\""])]),
        import(&kineto::TRACE_EVENTS, &[Json(&[b"\"ph\""])]),
        read(Reader::Json, "JSON, but without trace events", &[Json(&[])]),
        // archives
        read(
            Reader::Archive(directory::zip),
            "a zip archive",
            &[Begins(b"PK\x03\x04"), Begins(b"PK\x05\x06"), Begins(b"PK\x07\x08")],
        ),
        read(Reader::Archive(directory::tar), "a tar archive", &[Test(is_tar)]),
        refused("a 7-Zip archive", UNPACK, &[Begins(b"7z\xbc\xaf\x27\x1c")]),
        refused("a RAR archive", UNPACK, &[Begins(b"Rar!\x1a\x07")]),
        refused(
            "a file compressed by lz4",
            "unpack it first: `lz4 -d FILE`",
            &[Begins(b"\x04\x22\x4d\x18")],
        ),
        refused(
            "a file compressed by LZMA",
            "unpack it first: `xz --format=lzma -d FILE`",
            &[Begins(b"\x5d\x00\x00\x80\x00"), Begins(b"\x5d\x00\x00\x00\x04"), Name(".lzma")],
        ),
        refused(
            "a file compressed by compress",
            "unpack it first: `gzip -d FILE`",
            &[Begins(b"\x1f\x9d")],
        ),
        refused("a file compressed by brotli", "unpack it first: `brotli -d FILE`", &[Name(".br")]),
        // binary formats
        refused(
            "a report of Nsight Systems",
            "export it: `nsys export --type sqlite FILE`",
            &[Name(".nsys-rep"), Name(".qdrep"), Name(".qdstrm"), Test(is_nsight_report)],
        ),
        refused(
            "a report of Nsight Compute",
            "it has single kernels, not their times in a run: record with `nsys profile -t cuda,nvtx`",
            &[Begins(b"NVR\0"), Name(".ncu-rep"), Name(".nsight-cuprof-report")],
        ),
        refused(
            "an XSpace protobuf (JAX, XProf, TensorFlow)",
            JAX_JSON,
            &[Name(".xplane.pb"), Test(is_xspace)],
        ),
        refused(
            "a Chakra trace (protobuf)",
            "it contains dependencies but no GPU times; open the profiler traces that it was made from",
            &[Name(".et"), Name(".chakra"), Test(is_chakra)],
        ),
        refused(
            "a Perfetto trace (protobuf)",
            "export it as JSON: `traceconv json FILE NEW.json`",
            &[Name(".pftrace"), Name(".perfetto-trace"), Name(".perfetto"), Test(is_perfetto)],
        ),
        refused(
            "a dump of NCCL's flight recorder (pickle)",
            "it contains no kernel times; record with PyTorch's profiler",
            &[Within(b"\x80", &[b"pg_config"]), Within(b"\x80", &[b"entries", b"nccl_version"])],
        ),
        refused(
            "a Python pickle",
            "export the profiler's trace as JSON: `prof.export_chrome_trace(\"trace.json\")`",
            &[Test(is_pickle)],
        ),
        refused("an OTF2 trace", ROCPROF_JSON, &[Name(".otf2"), Begins(b"OTF2"), Begins(b"\x01OTF2")]),
        refused(
            "a result of Intel VTune",
            "record with PyTorch's profiler",
            &[
                Name(".vtune"),
                Begins(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<bag"),
                Name(".amplxeproj"),
            ],
        ),
        refused("a recording of Linux perf", RECORD, &[Begins(b"PERFILE2")]),
        refused(
            "a recording of NVIDIA's profiler tools (.nvvp, .nvprof)",
            "record with Nsight Systems: `nsys profile -t cuda,nvtx`",
            &[Name(".nvvp"), Name(".nvprof")],
        ),
        // text
        refused(
            "an HTML page",
            "download the file itself, not the page that shows it",
            &[Test(is_html)],
        ),
        refused("a table of ROCm's profiler (rocprof, CSV)", ROCPROF_JSON, &[Test(is_rocprof_csv)]),
        refused("statistics of Nsight Systems (nsys stats)", EXPORT_SQLITE, &[Test(is_nsys_stats)]),
    ]
};

/// Format of an SQLite database, by its table names; `None` if unknown.
pub(super) fn of_tables<'a>(
    tables: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'static FileFormat> {
    FORMATS.iter().find(|format| {
        let has = |prefix: &str| tables.clone().any(|table| table.starts_with(prefix));
        format.marks.iter().any(|mark| matches!(mark, FormatSignature::Table(prefix) if has(prefix)))
    })
}

pub(super) fn of_head(path: &Path, head: &[u8]) -> Option<&'static FileFormat> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let is_json = is_json(text);
    let name = path.to_string_lossy().to_lowercase();
    let mut name = name.as_str();
    for ending in [".gz", ".zst", ".xz", ".bz2"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    FORMATS.iter().find(|format| {
        format.marks.iter().any(|mark| match mark {
            FormatSignature::Begins(bytes) => head.starts_with(bytes) || text.starts_with(bytes),
            FormatSignature::Json(keys) => is_json && keys.iter().all(|key| find(text, key).is_some()),
            FormatSignature::Within(start, texts) => {
                head.starts_with(start) && texts.iter().all(|text| find(head, text).is_some())
            }
            FormatSignature::Name(ending) => name.ends_with(ending),
            FormatSignature::Table(_) => false,
            FormatSignature::Test(test) => test(head),
        })
    })
}

/// True if the text starts like a JSON object or array. Checks two characters, because a protobuf field
/// length may look like a brace.
fn is_json(text: &[u8]) -> bool {
    let Some((b'{' | b'[', rest)) = text.split_first() else { return false };
    rest.trim_ascii_start().first().is_none_or(|byte| b"\"{}[]-0123456789tfn".contains(byte))
}

pub(super) fn refusal(path: &Path, format: Option<&FileFormat>, head: &[u8]) -> Error {
    match format {
        Some(FileFormat { name, help, .. }) => {
            Error::input_help(format!("{}: cannot import {name}", path.display()), *help)
        }
        None => Error::input_help(
            format!(
                "{}: unknown trace format (the file starts with '{}')",
                path.display(),
                beginning(head)
            ),
            readable(),
        ),
    }
}

pub(super) const UNKNOWN: &str = "a file of unknown format";

fn readable() -> String {
    let mut names: Vec<&str> = importers().into_iter().map(|importer| importer.name).collect();
    names.extend(["a zip archive", "a tar archive"]);
    format!("supported formats: {}; plain or compressed (gzip, zstd, xz, bzip2)", names.join(", "))
}

/// All importers, in order of [`FORMATS`].
pub(super) fn importers() -> Vec<&'static Importer> {
    let mut all: Vec<&'static Importer> = Vec::new();
    for format in FORMATS {
        if let Reader::Importer(importer) = format.reader
            && all.iter().all(|known| known.name != importer.name)
        {
            all.push(importer);
        }
    }
    all
}

fn beginning(head: &[u8]) -> String {
    head.iter().take(16).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect()
}

fn is_utf16(head: &[u8]) -> bool {
    let (marked, little, big) = match head {
        [0xff, 0xfe, rest @ ..] => (true, rest, &[][..]),
        [0xfe, 0xff, rest @ ..] => (true, &[][..], rest),
        _ => (false, head, head),
    };
    let is_text = |bytes: &[u8], zero: usize| {
        bytes.len() >= 4
            && bytes.chunks_exact(2).take(8).all(|pair| pair[zero] == 0 && pair[1 - zero] != 0)
            && (marked || matches!(bytes[1 - zero], b'{' | b'['))
    };
    is_text(little, 1) || is_text(big, 0)
}

fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.first_chunk::<512>() else { return false };
    let field = &header[148..156];
    let digits: Vec<u8> = field.iter().copied().filter(u8::is_ascii_digit).collect();
    let stated = std::str::from_utf8(&digits).ok().and_then(|text| u32::from_str_radix(text, 8).ok());
    let sum = |byte: (usize, &u8)| if (148..156).contains(&byte.0) { 32 } else { u32::from(*byte.1) };
    header[0] != 0 && stated == Some(header.iter().enumerate().map(sum).sum())
}

/// True for Parquet with CUPTI's column names, as Nsight Systems writes. `head` contains the first and
/// the last bytes of the file.
fn is_nsight_parquet(head: &[u8]) -> bool {
    let has = |text: &[u8]| find(head, text).is_some();
    head.starts_with(b"PAR1")
        && !has(b"ladderscope.")
        && (has(b"globalPid") || has(b"globalTid") || has(b"correlationId"))
}

/// Traces that Ladderscope wrote.
static OWN: Importer = Importer {
    name: "a trace of Ladderscope (Parquet)",
    word: "ladderscope's own",
    marks: &[FormatSignature::Test(is_own)],
    import: |selection| match selection.files.as_slice() {
        // a compressed file or archive member is unpacked into an anonymous temporary file
        [(file, _)] if file.begins_plain(b"PAR1")? => crate::read(&file.path),
        [(file, _)] => crate::read_file(file.to_whole_file()?, &file.path),
        files => Err(Error::input_help(
            format!(
                "{}: {} traces of ladderscope, each with all its ranks",
                selection.path.display(),
                files.len()
            ),
            "name one of them",
        )),
    },
    is_foreign: false,
    ..Importer::PLAIN
};

/// True for Parquet with a Ladderscope footer entry, or without any footer (a truncated trace).
fn is_own(head: &[u8]) -> bool {
    head.starts_with(b"PAR1") && (!head.ends_with(b"PAR1") || find(head, b"ladderscope.").is_some())
}

/// Arrow stream: a continuation marker, the length of the schema, a flatbuffer.
fn is_arrow_stream(head: &[u8]) -> bool {
    head.len() > 8 && head.starts_with(&[0xff; 4]) && head[6..8] == [0, 0] && head[4].is_multiple_of(8)
}

fn is_nsight_report(head: &[u8]) -> bool {
    let start = &head[..head.len().min(4096)];
    let is_binary = start.contains(&0);
    is_binary
        && [&b"QuadD"[..], b"quadd", b"NVIDIA Nsight Systems"]
            .iter()
            .any(|mark| find(start, mark).is_some())
}

fn is_html(head: &[u8]) -> bool {
    let start = head.trim_ascii_start();
    let begins =
        |text: &str| start.get(..text.len()).is_some_and(|s| s.eq_ignore_ascii_case(text.as_bytes()));
    begins("<!doctype html") || begins("<html")
}

fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 2..=5, ..]) && !head.starts_with(b"\x80\x04PK")
}

fn first_line(head: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\n', head).unwrap_or(head.len()).min(4096);
    head.strip_prefix(b"\xef\xbb\xbf").map_or(&head[..end], |text| &text[..end.saturating_sub(3)])
}

fn is_rocprof_csv(head: &[u8]) -> bool {
    let line = first_line(head);
    let has = |text: &[u8]| find(line, text).is_some();
    has(b"KernelName") && (has(b"gpu-id") || has(b"BeginNs"))
        || has(b"Kernel_Name") && (has(b"Dispatch_I") || has(b"Start_Timestamp"))
        || has(b"Agent_Id") && has(b"Start_Timestamp")
        || has(b"Start_Timestamp") && has(b"Correlation_Id")
        || has(b"TotalDurationNs")
}

fn is_nsys_stats(head: &[u8]) -> bool {
    let line = first_line(head);
    let has = |text: &[u8]| find(line, text).is_some();
    has(b"Time (%)") && has(b"Total Time (ns)") || has(b"Start (ns)") && has(b"Duration (ns)")
}

/// Decodes a leading protobuf varint; returns it with the remaining bytes.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 127).checked_shl(7 * at as u32)?;
        if *byte < 128 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Splits off a leading protobuf field with this tag, possibly truncated; returns it with the remaining
/// bytes.
fn field(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = varint(bytes.strip_prefix(&[tag])?)?;
    Some(rest.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(rest.len())))
}

/// Planes (field 1), each with an optional id (field 1) before its name (field 2). The name starts with
/// `/` or is a known one.
fn is_xspace(head: &[u8]) -> bool {
    let Some((plane, _)) = field(head, 0x0a) else { return false };
    let named = match plane.strip_prefix(b"\x08").and_then(varint) {
        Some((_, rest)) => rest,
        None => plane,
    };
    let known = |name: &[u8]| name.starts_with(b"/") && name.len() > 4 || name == b"Task Environment";
    field(named, 0x12).is_some_and(|(name, _)| known(name))
}

/// Length-prefixed messages, the first with a version, `0.0.4`.
fn is_chakra(head: &[u8]) -> bool {
    let Some((length, message)) = varint(head) else { return false };
    let Some((version, _)) = field(message, 0x0a) else { return false };
    let is_version = version.contains(&b'.') && version.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    is_version && version.len() as u64 + 2 == length
}

/// Packets (field 1). The first ones are complete and start with a field of packets: a clock (6), a time
/// (8), a sequence (10).
fn is_perfetto(head: &[u8]) -> bool {
    let mut rest = head;
    for _ in 0..2 {
        let Some((packet, after)) = field(rest, 0x0a) else { return false };
        if !matches!(packet.first(), Some(0x32 | 0x40 | 0x50 | 0x18)) || after.is_empty() {
            return false;
        }
        rest = after;
    }
    true
}

/// Bytes at the end of a Parquet file that contain its column names.
const TAIL: u64 = 64 << 10;

pub(super) struct Recognised {
    pub format: Option<&'static FileFormat>,
    pub packed: Option<&'static str>,
    /// First [`HEAD`] bytes, unpacked.
    pub head: Vec<u8>,
}

impl Recognised {
    pub(super) fn reader(&self) -> Reader {
        self.format.map_or(Reader::None, |format| format.reader)
    }
}

/// Detects the format of an input by its first bytes. Returns an error if the file is empty, unreadable
/// or cannot be unpacked.
pub(super) fn recognise(input: &InputFile) -> Result<Recognised> {
    let name = input.shown();
    let stored = input.stored()?;
    if stored.length() == 0 {
        return Err(empty(&name));
    }
    let source = input.unpacked()?;
    let mut head = Vec::new();
    let read = source.bytes.take(HEAD as u64).read_to_end(&mut head);
    match (read, source.packed) {
        // the format of a broken file may still be detectable
        (Err(error), None) if head.is_empty() => return Err(Error::io(&input.path)(error)),
        (Err(error), Some(packed)) if head.is_empty() => {
            return Err(input::broken(&name, packed, 0, &error));
        }
        (Ok(_), Some(_)) if head.is_empty() => return Err(empty(&name)),
        _ => {}
    }
    let format = if head.starts_with(b"PAR1") && source.packed.is_none() {
        let mut sample = head.clone();
        stored.tail(TAIL).read_to_end(&mut sample).map_err(Error::io(&input.path))?;
        of_head(&input.path, &sample)
    } else {
        of_head(&input.path, &head)
    };
    Ok(Recognised { format, packed: source.packed, head })
}

fn empty(name: &str) -> Error {
    Error::input_help(format!("{name}: the file is empty"), "copy it again, or record it again")
}

/// False for a readable file of unknown format, such as a log. Any other file is one to open as a trace: that reads it, or
/// says what it is (a known format that is no trace, an empty file, a broken one).
pub fn is_known_file(path: &Path) -> bool {
    recognise(&InputFile::from_path(path)).map_or(true, |found| found.format.is_some())
}
