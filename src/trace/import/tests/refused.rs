//! Files that are no traces, by name and with the way to one.

use std::path::Path;

use rusqlite::Connection;

use super::super::formats::{FORMATS, Reader};
use super::super::{is_known_file, open};
use super::refusal;
use crate::export;

/// A protobuf field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3) | 2];
    let mut length = bytes.len();
    while length > 127 {
        out.push(length as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// Files under these names are refused with these words, which name the format and the way to a trace.
fn cases() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:07\nsize 831488\n".to_vec();
    let utf16 = |big: bool| -> Vec<u8> {
        let mark = ['\u{feff}'];
        let text: Vec<u16> =
            mark.iter().copied().chain("{\"traceEvents\": []}".chars()).map(|c| c as u16).collect();
        text.iter().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    let plane = |name: &str| field(1, &[vec![8, 7], field(2, name.as_bytes())].concat());
    let packet = |time: u8| field(1, &[0x40, time, 0x50, 1]);
    let parquet = |words: &str| [&b"PAR1"[..], words.as_bytes(), b"PAR1"].concat();
    let long = "x".repeat(300);
    vec![
        ("a", Vec::new(), "the file is empty", "copy it again"),
        ("a.json", b"\x1f\x8bbroken".to_vec(), "the gzip stream breaks after 0 unpacked bytes", "cut off or damaged"),
        ("a.json", b"{\"traceEvents\": [".to_vec(), "at byte 17, inside the array of events, and no event", "cut off"),
        ("hello", b"hello, world".to_vec(), "starts with 'hello, world'", "supported formats: trace events (JSON)"),
        ("p.sqlite", pointer.clone(), "a Git LFS pointer", "git lfs pull"),
        ("p.json.gz", pointer, "a Git LFS pointer", "git lfs pull"),
        ("u.json", utf16(false), "text in UTF-16", "iconv"),
        ("u.json", utf16(true), "text in UTF-16", "iconv"),
        ("u.json", utf16(false)[2..].to_vec(), "text in UTF-16", "iconv"),
        ("r.nsys-rep", b"\x01\x02quadd".to_vec(), "a report of Nsight Systems", "nsys export --type sqlite"),
        ("r.QDREP", b"whatever".to_vec(), "a report of Nsight Systems", "nsys export --type sqlite"),
        ("r", b"\x00\x01..QuadDCommon\x00..".to_vec(), "a report of Nsight Systems", "nsys export --type sqlite"),
        ("n.ncu-rep", b"NVR\0...".to_vec(), "a report of Nsight Compute", "nsys profile"),
        ("h.xplane.pb", [plane("/host:metadata"), plane("/device:GPU:0")].concat(), "an XSpace protobuf", "trace.json.gz"),
        ("h.pb", plane("/device:TPU:0"), "an XSpace protobuf", "trace.json.gz"),
        ("h", field(1, &field(2, long.replace('x', "/host").as_bytes())), "an XSpace protobuf", "trace.json.gz"),
        ("c.0.et", b"whatever".to_vec(), "a Chakra trace (protobuf)", "no GPU times"),
        ("c", b"\x07\x0a\x050.0.4\x05\x08\x01\x12\x01a".to_vec(), "a Chakra trace (protobuf)", "no GPU times"),
        ("c.json", b"{\"workload_graph\": [{\"Id\": 1}]}".to_vec(), "a Chakra trace (JSON)", "no GPU times"),
        (
            "et.json",
            b"{\"schema\": \"1.0.1\", \"nodes\": [{\"name\": \"[pytorch|profiler|execution_graph|thread]\"}]}".to_vec(),
            "a PyTorch execution trace",
            "no GPU times",
        ),
        ("p.pftrace", b"whatever".to_vec(), "a Perfetto trace (protobuf)", "traceconv json"),
        ("p", [packet(1), packet(2), packet(3)].concat(), "a Perfetto trace (protobuf)", "traceconv json"),
        ("f.pkl", b"\x80\x04\x95..pg_config..entries".to_vec(), "NCCL's flight recorder (pickle)", "PyTorch's profiler"),
        ("f.json", b"{\"pg_config\": {}, \"entries\": []}".to_vec(), "NCCL's flight recorder (JSON)", "PyTorch's profiler"),
        ("m.pickle", b"\x80\x04\x95\x10".to_vec(), "a Python pickle", "export_chrome_trace"),
        ("i.json", b"{\"header\": {}, \"coll_perf\": {}}".to_vec(), "measurements of NCCL", "calibrate --collectives"),
        (
            "CUPTI_ACTIVITY_KIND_KERNEL.parquet",
            parquet("start end globalPid correlationId"),
            "a table of Nsight Systems' parquetdir export",
            "nsys export --type sqlite",
        ),
        ("other.parquet", parquet("a column"), "a Parquet file of another program", "only traces of Ladderscope"),
        ("r.arrow", b"ARROW1\0\0".to_vec(), "an Arrow export of Nsight Systems", "nsys export --type sqlite"),
        ("r.h5", b"\x89HDF\r\n\x1a\n...".to_vec(), "an HDF5 export of Nsight Systems", "nsys export --type sqlite"),
        ("r.jsonl", b"{\"CudaEvent\": {}}".to_vec(), "a JSON lines export of Nsight Systems", "nsys export"),
        ("i.html", b"  <!DOCTYPE HTML><html>".to_vec(), "an HTML page", "download the file itself"),
        (
            "kernel_trace.csv",
            b"\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Kernel_Name\",\"Start_Timestamp\"\n".to_vec(),
            "a table of ROCm's profiler",
            "rocprofv3",
        ),
        ("results.csv", b"\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\"\n".to_vec(), "a table of ROCm's profiler", "rocprofv3"),
        ("stats.csv", b"Time (%),Total Time (ns),Instances\n".to_vec(), "statistics of Nsight Systems", "nsys export"),
        (
            "rocprof.json",
            b"{\"traceEvents\": [{\"ph\": \"X\", \"args\": {\"BeginNs\": \"1\", \"DurationNs\": \"2\"}}]}".to_vec(),
            "a trace of rocprof v1 or v2",
            "rocprofv3",
        ),
        ("u.json", b"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"gpu_op\"}]}".to_vec(), "a trace of Intel's unitrace", "PyTorch"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c..".to_vec(), "a 7-Zip archive", "unpack it"),
        ("a.lz4", b"\x04\x22\x4d\x18..".to_vec(), "compressed by lz4", "lz4 -d"),
        ("a.lzma", b"\x5d\x00\x00\x80\x00..".to_vec(), "compressed by LZMA", "xz"),
        ("s.zip", b"PK\x03\x04zip".to_vec(), "a zip archive that cannot be read", "copy it again"),
        ("s.sqlite", b"SQLite format 3\0 and no more".to_vec(), "not a readable SQLite database", "export it again"),
    ]
}

#[test]
fn formats_that_are_not_read_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, content, words, help) in cases() {
        let path = directory.path().join(name);
        std::fs::write(&path, &content).expect("written");
        let message = refusal(&path);
        assert!(message.contains(words) && message.contains(help), "{name}: {message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
        std::fs::remove_file(&path).expect("removed");
        // the same within a folder: named beside a trace
        if !content.is_empty()
            && words.starts_with("a ")
            && content.len() > 20
            && !words.contains("cannot be read")
        {
            let folder = tempfile::tempdir().expect("a directory");
            std::fs::write(folder.path().join(name), &content).expect("written");
            super::export(&folder.path().join("rank0.sqlite"));
            let report = open(folder.path()).expect("opens").meta.import.expect("a report");
            let said =
                report.warnings.iter().any(|text| text.starts_with(&format!("skipped {name}: {words}")));
            assert!(said, "{name}: {:?}", report.warnings);
        }
    }
    assert!(refusal(directory.path()).contains("no trace among its 0 files"));
    let none = open(&directory.path().join("none"));
    assert_eq!(none.map_err(|error| error.exit_code()).err(), Some(2));
}

#[test]
fn a_folder_without_a_trace_names_the_format_of_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    for rank in 0..3 {
        std::fs::write(directory.path().join(format!("rank{rank}.nsys-rep")), "binary")
            .expect("written");
    }
    let message = refusal(directory.path());
    assert!(
        message.contains("no trace among its 3 files: rank0.nsys-rep is a report of Nsight Systems"),
        "{message}"
    );
    assert!(message.contains("nsys export --type sqlite"), "{message}");
    assert!(["rank1", "rank2"].iter().all(|rank| message.contains(rank)), "{message}");
}

#[test]
fn databases_of_other_profilers_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    for (table, words) in [
        ("rocpd_kernel_dispatch_0000", "a database of ROCm's profiler"),
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "a profile of nvprof"),
        ("moz_places", "an SQLite database, but no export of Nsight Systems; it has moz_places"),
    ] {
        let path = directory.path().join(table);
        let db = Connection::open(&path).expect("a database");
        db.execute_batch(&format!("CREATE TABLE {table} (a)")).expect("a table");
        drop(db);
        let message = refusal(&path);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn pipes_are_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pipe.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("a pipe");
    assert!(open(&path).expect_err("refused").to_string().contains("a named pipe"));
}

#[test]
fn our_own_traces_and_exports_are_not_taken_for_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let foreign = directory.path().join("f.sqlite");
    super::export(&foreign);
    let trace = open(&foreign).expect("opens");
    for name in ["t.parquet", "t.json", "t.json.gz"] {
        let path = directory.path().join(name);
        export::write(&trace, &path).expect("written");
        assert!(is_known_file(&path), "{name}");
        assert_eq!(open(&path).expect("opens").spans.len(), 2, "{name}");
    }
}

#[test]
fn the_documents_list_every_format_that_is_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/files-and-formats.md");
    let page = std::fs::read_to_string(page).expect("docs/files-and-formats.md");
    for format in
        FORMATS.iter().filter(|format| matches!(format.reader, Reader::Importer(_) | Reader::Archive(_)))
    {
        let name = format.name.trim_start_matches("an ").trim_start_matches("a ");
        assert!(page.contains(name), "docs/files-and-formats.md does not name {name}");
    }
}
