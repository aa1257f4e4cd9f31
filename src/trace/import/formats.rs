//! Known file formats: their importers and signatures, and help for unsupported ones.
//!
//! One entry per format, in order of detection. Error messages and the list in `docs/files-and-formats.md` use
//! these names.

use std::path::{Path, PathBuf};

use super::directory::{self, Members};
use super::input::InputFile;
use super::rank::{self, RankClaim};
use super::{KernelLaunch, KernelQuery};
use super::{kineto, nsight, own, recording, sniff};
use crate::Trace;
use base::error::{Error, Result};

/// Importer of a profiler's files. A new one is a file with a static of this type, its `mod` line, and its line in
/// [`FORMATS`].
pub(super) struct Importer {
    /// Name of its files with an article: "an SQLite export of Nsight Systems".
    pub name: &'static str,
    /// Short form of the name, for directories with files of several profilers.
    pub short_name: &'static str,
    pub signatures: &'static [FormatSignature],
    /// Rank and time in the first bytes of a file, to tell recordings apart without reading them.
    pub glance: fn(&[u8]) -> RankClaim,
    pub import: fn(ImportSelection<'_>) -> Result<Trace>,
    /// Launch details of one kernel of imported files.
    pub kernel: fn(&[PathBuf], &KernelQuery) -> Result<Option<KernelLaunch>>,
    /// True if operations are classified by rules: they do not come from a plan.
    pub is_foreign: bool,
}

impl Importer {
    /// Foreign importer with neither ranks in the first bytes nor details of kernels.
    pub const fn new(
        name: &'static str,
        short_name: &'static str,
        signatures: &'static [FormatSignature],
        import: fn(ImportSelection<'_>) -> Result<Trace>,
    ) -> Self {
        Self {
            name,
            short_name,
            signatures,
            glance: |_| RankClaim::default(),
            import,
            kernel: |_, _| Ok(None),
            is_foreign: true,
        }
    }
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
    pub signatures: &'static [FormatSignature],
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

/// Signature of a format, which matches if any of its signatures does.
pub(super) enum FormatSignature {
    /// First bytes, after a byte order mark and whitespace.
    Begins(&'static [u8]),
    /// JSON with all of these texts in the head.
    Json(&'static [&'static [u8]]),
    /// Prefix of the file, and texts that must all be in the head.
    Within(&'static [u8], &'static [&'static [u8]]),
    /// Texts that must all be in the first line.
    Line(&'static [&'static [u8]]),
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
    signatures: &'static [FormatSignature],
) -> FileFormat {
    FileFormat { reader: Reader::None, name, help, signatures }
}

const fn read(reader: Reader, name: &'static str, signatures: &'static [FormatSignature]) -> FileFormat {
    FileFormat { reader, name, help: "", signatures }
}

const fn import(importer: &'static Importer) -> FileFormat {
    import_if(importer, importer.signatures)
}

/// Format with other signatures than its importer's.
const fn import_if(importer: &'static Importer, signatures: &'static [FormatSignature]) -> FileFormat {
    read(Reader::Importer(importer), importer.name, signatures)
}

/// All formats, the most specific signatures first. Of a directory with as many files of several importers, the first one
/// reads its own.
pub(super) static FORMATS: &[FileFormat] = {
    use FormatSignature::{Begins, Json, Line, Name, Table, Test, Within};
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
            &[Test(sniff::is_utf16)],
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
        import(&kineto::TRACE_EVENTS),
        import(&kineto::ROCPROF),
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
        import(&nsight::SQLITE),
        import(&recording::PARTS),
        // Parquet and Arrow
        refused(
            "a table of Nsight Systems' parquetdir export",
            EXPORT_SQLITE,
            &[Test(sniff::is_nsight_parquet)],
        ),
        import(&own::OWN),
        refused(
            "a Parquet file of another program",
            "of Parquet, only traces of Ladderscope can be read",
            &[Begins(b"PAR1")],
        ),
        refused(
            "an Arrow export of Nsight Systems",
            EXPORT_SQLITE,
            &[Begins(b"ARROW1\0\0"), Test(sniff::is_arrow_stream), Name(".arrow")],
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
        import_if(&kineto::TRACE_EVENTS, &[Json(&[b"\"ph\""])]),
        read(Reader::Json, "JSON, but without trace events", &[Json(&[])]),
        // archives
        read(
            Reader::Archive(directory::zip),
            "a zip archive",
            &[Begins(b"PK\x03\x04"), Begins(b"PK\x05\x06"), Begins(b"PK\x07\x08")],
        ),
        read(Reader::Archive(directory::tar), "a tar archive", &[Test(sniff::is_tar)]),
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
            &[Name(".nsys-rep"), Name(".qdrep"), Name(".qdstrm"), Test(sniff::is_nsight_report)],
        ),
        refused(
            "a report of Nsight Compute",
            "it has single kernels, not their times in a run: record with `nsys profile -t cuda,nvtx`",
            &[Begins(b"NVR\0"), Name(".ncu-rep"), Name(".nsight-cuprof-report")],
        ),
        refused(
            "an XSpace protobuf (JAX, XProf, TensorFlow)",
            JAX_JSON,
            &[Name(".xplane.pb"), Test(sniff::is_xspace)],
        ),
        refused(
            "a Chakra trace (protobuf)",
            "it contains dependencies but no GPU times; open the profiler traces that it was made from",
            &[Name(".et"), Name(".chakra"), Test(sniff::is_chakra)],
        ),
        refused(
            "a Perfetto trace (protobuf)",
            "export it as JSON: `traceconv json FILE NEW.json`",
            &[Name(".pftrace"), Name(".perfetto-trace"), Name(".perfetto"), Test(sniff::is_perfetto)],
        ),
        refused(
            "a dump of NCCL's flight recorder (pickle)",
            "it contains no kernel times; record with PyTorch's profiler",
            &[Within(b"\x80", &[b"pg_config"]), Within(b"\x80", &[b"entries", b"nccl_version"])],
        ),
        refused(
            "a Python pickle",
            "export the profiler's trace as JSON: `prof.export_chrome_trace(\"trace.json\")`",
            &[Test(sniff::is_pickle)],
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
            &[Test(sniff::is_html)],
        ),
        refused(
            "a table of ROCm's profiler (rocprof, CSV)",
            ROCPROF_JSON,
            &[
                Line(&[b"KernelName", b"gpu-id"]),
                Line(&[b"KernelName", b"BeginNs"]),
                Line(&[b"Kernel_Name", b"Dispatch_I"]),
                Line(&[b"Kernel_Name", b"Start_Timestamp"]),
                Line(&[b"Agent_Id", b"Start_Timestamp"]),
                Line(&[b"Start_Timestamp", b"Correlation_Id"]),
                Line(&[b"TotalDurationNs"]),
            ],
        ),
        refused(
            "statistics of Nsight Systems (nsys stats)",
            EXPORT_SQLITE,
            &[Line(&[b"Time (%)", b"Total Time (ns)"]), Line(&[b"Start (ns)", b"Duration (ns)"])],
        ),
    ]
};

/// Format of an SQLite database, by its table names; `None` if unknown.
pub(super) fn of_tables<'a>(
    tables: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'static FileFormat> {
    FORMATS.iter().find(|format| {
        let has = |prefix: &str| tables.clone().any(|table| table.starts_with(prefix));
        let mut signatures = format.signatures.iter();
        signatures.any(|signature| matches!(signature, FormatSignature::Table(prefix) if has(prefix)))
    })
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
