//! Archives and compressed files: the same traces as the files themselves.

use std::path::Path;

use rusqlite::Connection;

use super::super::{holds_traces, open, open_recording, unpack};
use super::{bzip2, export, gzip, packed, refusal, xz, zstd};
use crate::Trace;
use crate::rules::Rules;

/// A trace of PyTorch's profiler with one kernel of this name.
fn kineto(kernel: &str) -> Vec<u8> {
    format!(
        r#"{{"traceEvents": [{{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 7, "ts": 1, "dur": 2}}]}}"#
    )
    .into_bytes()
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        // as a hostile archive has them: `append_data` would refuse some names
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, *bytes).expect("packed");
    }
    builder.into_inner().expect("packed")
}

/// A zip archive: names, bytes, methods (0 stored, 8 deflate, others by number), and flags (1: encrypted).
fn zip(members: &[(&str, &[u8], u16, u16)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, method, flags) in members {
        let mut sum = flate2::Crc::new();
        sum.update(bytes);
        let packed = match method {
            8 => packed(flate2::read::DeflateEncoder::new(*bytes, flate2::Compression::fast())),
            12 => bzip2(bytes),
            93 => zstd(bytes),
            95 => xz(bytes),
            _ => bytes.to_vec(),
        };
        let mut common = Vec::new();
        for half in [20, *flags, *method, 0, 0] {
            common.extend_from_slice(&half.to_le_bytes());
        }
        for word in [sum.sum(), packed.len() as u32, bytes.len() as u32] {
            common.extend_from_slice(&word.to_le_bytes());
        }
        common.extend_from_slice(&(name.len() as u16).to_le_bytes());
        common.extend_from_slice(&0_u16.to_le_bytes());
        let offset = file.len() as u32;
        file.extend_from_slice(b"PK\x03\x04");
        file.extend_from_slice(&common);
        file.extend_from_slice(name.as_bytes());
        file.extend_from_slice(&packed);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let (start, length, count) = (file.len() as u32, directory.len() as u32, members.len() as u16);
    file.extend_from_slice(&directory);
    file.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(&start.to_le_bytes());
    file.extend_from_slice(&[0; 2]);
    file
}

/// The kernels of each rank, and the notes on the import.
fn opened(path: &Path) -> (Vec<(u32, String)>, Vec<String>) {
    let trace = open(path).expect("opens");
    let kernels = trace
        .spans
        .iter()
        .map(|span| (span.rank, trace.operations[span.operation as usize].name.clone()));
    let kernels = kernels.collect();
    (kernels, trace.meta.import.expect("a report").warnings)
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("traces");
    std::fs::write(&path, bytes).expect("written");
    (directory, path)
}

#[test]
fn an_archive_is_its_members_a_file_a_rank() {
    // more than nine, so that their order is by number
    let ranks: Vec<(String, Vec<u8>)> = (0..12)
        .rev()
        .map(|rank| (format!("run/rank{rank}.json"), kineto(&format!("kernel {rank}"))))
        .collect();
    let mut members: Vec<(&str, &[u8])> =
        ranks.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let others: [(&str, &[u8]); 3] =
        [("run/notes.txt", b"hello"), ("run/._rank0.json", b"\0\x05\x16\x07"), ("run/empty", b"")];
    members.extend(others);
    let plain = tar(&members);
    let zipped: Vec<_> = members
        .iter()
        .enumerate()
        .map(|(at, (name, bytes))| (*name, *bytes, [0, 8, 12, 93, 95][at % 5], 0))
        .collect();
    let expected: Vec<(u32, String)> = (0..12).map(|rank| (rank, format!("kernel {rank}"))).collect();
    let nested = zip(&[("a/traces.tar.gz", &gzip(&plain), 0, 0)]);
    for (what, bytes) in [
        ("tar", plain.clone()),
        ("tar.gz", gzip(&plain)),
        ("tar.zst", zstd(&plain)),
        ("tar.xz", xz(&plain)),
        ("tar.bz2", bzip2(&plain)),
        ("zip", zip(&zipped)),
        ("zip.gz", gzip(&zip(&zipped))),
        ("tar.gz in zip", nested),
        ("zip in tar", tar(&[("x.zip", &zip(&zipped))])),
    ] {
        let (_directory, path) = written(&bytes);
        let (kernels, notes) = opened(&path);
        assert_eq!(kernels, expected, "{what}");
        let said = |words: &str| notes.iter().any(|note| note.contains(words));
        assert!(said("notes.txt: a file of unknown format"), "{what}: {notes:?}");
        assert!(said("empty: the file is empty") && !said("._rank0"), "{what}: {notes:?}");
    }
}

#[test]
fn one_compressed_file_is_read_whatever_it_is_compressed_by() {
    let json = kineto("gemm");
    for bytes in [
        gzip(&json),
        xz(&json),
        bzip2(&json),
        zstd(&json),
        xz(&gzip(&json)),
        tar(&[("t.json", &json)]),
        tar(&[("t.json.xz", &xz(&json))]),
    ] {
        let (_directory, path) = written(&bytes);
        assert_eq!(opened(&path).0, [(0, "gemm".to_owned())]);
    }
}

#[test]
fn databases_and_own_traces_are_read_from_archives() {
    let directory = tempfile::tempdir().expect("a directory");
    let (sqlite, own) = (directory.path().join("a.sqlite"), directory.path().join("a.parquet"));
    export(&sqlite);
    let plain: Trace = open(&sqlite).expect("opens");
    crate::write(&own, &plain).expect("written");
    // a database of the other journal mode cannot be opened from memory as it is
    let log = directory.path().join("log.sqlite");
    std::fs::copy(&sqlite, &log).expect("copied");
    let db = Connection::open(&log).expect("opens");
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).expect("a log");
    drop(db);
    for file in [sqlite, own, log] {
        let bytes = std::fs::read(&file).expect("read");
        assert!(
            bytes.starts_with(b"PAR1") || file.ends_with("a.sqlite") == (bytes[18] == 1),
            "{file:?}"
        );
        for packed in [
            gzip(&bytes),
            bzip2(&bytes),
            tar(&[("t", &bytes)]),
            gzip(&tar(&[("t", &bytes)])),
            zip(&[("t", &bytes, 0, 0)]),
            zip(&[("t", &bytes, 8, 0)]),
        ] {
            let (_directory, path) = written(&packed);
            let trace = open(&path).expect("opens");
            assert_eq!((trace.spans, trace.operations), (plain.spans.clone(), plain.operations.clone()));
        }
    }
}

#[test]
fn members_have_the_ranks_and_recordings_that_a_folder_gives_its_files() {
    let kernels = ["a", "b", "c", "d"].map(kineto);
    let [a, b, c, d] = kernels.each_ref().map(Vec::as_slice);
    let by_file: [(&str, &[u8]); 4] = [
        ("p/worker0_step_12.json", a),
        ("p/worker1_step_12.json", b),
        ("p/worker0_step_24.json", c),
        ("p/worker1_step_24.json", d),
    ];
    // the folder says the rank; each rank's archive does
    let by_folder: [(&str, &[u8]); 4] = [
        ("step_12/rank_0/trace.json", a),
        ("step_12/rank_1/trace.json", b),
        ("step_24/rank_0/trace.json", c),
        ("step_24/rank_1/trace.json", d),
    ];
    let rank0 = gzip(&tar(&[("step_12.json", a), ("step_24.json", c)]));
    let rank1 = zip(&[("step_12.json", b, 8, 0), ("step_24.json", d, 8, 0)]);
    let by_archive: [(&str, &[u8]); 2] = [("1.zip", &rank1), ("0.tar.gz", &rank0)];
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("below")).expect("made");
    std::fs::write(folder.path().join("below/all.tar.gz"), gzip(&tar(&by_file))).expect("written");
    // an archive without a trace is not one
    std::fs::write(folder.path().join("logs.tar"), tar(&[("log.txt", b"hello")])).expect("written");
    let (_files, file) = written(&gzip(&tar(&by_file)));
    let (_folders, folders) = written(&tar(&by_folder));
    let (_archives, archives) = written(&tar(&by_archive));
    for path in [file.as_path(), &folders, &archives, folder.path()] {
        for (recording, expected) in [(None, ["c", "d"]), (Some("step_12"), ["a", "b"])] {
            let (trace, _) = open_recording(path, recording, &Rules::default()).expect("opens");
            let names = |span: &crate::Span| trace.operations[span.operation as usize].name.clone();
            let ranks: Vec<_> = trace.spans.iter().map(|span| (span.rank, names(span))).collect();
            assert_eq!(ranks, [(0, expected[0].to_owned()), (1, expected[1].to_owned())], "{path:?}");
            let report = trace.meta.import.as_ref().expect("a report");
            assert_eq!(report.ranks_from.as_deref(), Some("ranks from file names"), "{path:?}");
            assert!(report.warnings.iter().any(|said| said.contains("2 recordings")), "{path:?}");
        }
        let error = open_recording(path, Some("step_13"), &Rules::default()).expect_err("refused");
        assert!(error.to_string().contains("no recording 'step_13'"), "{error}");
    }
}

#[test]
fn words_of_packed_members_say_ranks_that_their_names_do_not() {
    let member = |rank: u32, kernel: &str| {
        let info = format!(r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "#);
        let json = String::from_utf8(kineto(kernel)).expect("text");
        json.replacen('{', &info, 1).into_bytes()
    };
    let (one, zero) = (member(1, "one"), member(0, "zero"));
    let (_directory, path) =
        written(&gzip(&tar(&[("a.json.gz", &gzip(&one)), ("b.json.xz", &xz(&zero))])));
    let expected = [(0, "zero".to_owned()), (1, "one".to_owned())];
    assert_eq!(opened(&path).0, expected);
    let (_directory, path) = written(&zip(&[("a", &one, 12, 0), ("b", &zero, 93, 0)]));
    assert_eq!(opened(&path).0, expected);
}

#[test]
fn a_member_that_is_there_twice_is_read_once() {
    let (first, second) = (kineto("first"), kineto("second"));
    // `tar -r` appends a newer version under the same name
    let (_directory, path) = written(&tar(&[("rank0.json", &first), ("rank0.json", &second)]));
    assert_eq!(opened(&path).0, [(0, "second".to_owned())]);
    // unpacked beside the archive: the files are read
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("all.tar"), tar(&[("rank0.json", &first)])).expect("written");
    std::fs::write(directory.path().join("rank0.json"), &first).expect("written");
    let trace = open(directory.path()).expect("opens");
    let report = trace.meta.import.expect("a report");
    assert_eq!((trace.spans.len(), report.files.len()), (1, 1));
    assert!(report.files[0].ends_with("/rank0.json") && !report.files[0].contains("all.tar"));
    assert!(
        report
            .warnings
            .iter()
            .any(|said| said == "skipped all.tar/rank0.json: the same trace as rank0.json")
    );
}

#[test]
fn profiles_of_jax_are_recordings_in_folders_with_stamps() {
    let jax = |kernel: &str| {
        let thread = r##"{"ph":"M","name":"thread_name","pid":1,"tid":20,"args":{"name":"Stream #20(Compute)"}}"##;
        format!(
            r#"{{"traceEvents":[{{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{{"name":"/device:GPU:0"}}}},{thread},
               {{"ph":"X","pid":1,"tid":20,"name":"{kernel}","ts":1,"dur":2}}]}}"#
        )
    };
    let directory = tempfile::tempdir().expect("a directory");
    for (stamp, kernel) in [("2024_05_01_12_00_00", "older"), ("2024_05_01_12_30_00", "newer")] {
        let folder = directory.path().join("plugins/profile").join(stamp);
        std::fs::create_dir_all(&folder).expect("made");
        let packed = gzip(jax(kernel).as_bytes());
        std::fs::write(folder.join("host.trace.json.gz"), &packed).expect("written");
        std::fs::write(folder.join("perfetto_trace.json.gz"), &packed).expect("written");
    }
    let (kernels, notes) = opened(directory.path());
    assert_eq!(kernels, [(0, "newer".to_owned())]);
    for words in ["2 recordings of the same ranks", "a second copy of the trace"] {
        assert!(notes.iter().any(|note| note.contains(words)), "{words}: {notes:?}");
    }
    let recording = Some("2024_05_01_12_00_00");
    let (trace, _) = open_recording(directory.path(), recording, &Rules::default()).expect("opens");
    assert_eq!(trace.operations[trace.spans[0].operation as usize].name, "older");
}

#[test]
fn names_of_members_lead_nowhere() {
    let json = kineto("gemm");
    let outside = std::env::temp_dir().join("ladderscope-escaped.json");
    let names = [
        "../../../../../../../../tmp/ladderscope-escaped.json",
        "/tmp/ladderscope-escaped.json",
        "a/../../b.json",
    ];
    for name in names {
        for bytes in [tar(&[(name, &json)]), zip(&[(name, &json, 8, 0)])] {
            let (directory, path) = written(&bytes);
            assert_eq!(opened(&path).0, [(0, "gemm".to_owned())]);
            assert_eq!(
                std::fs::read_dir(directory.path()).expect("a directory").count(),
                1,
                "nothing is written"
            );
            assert!(!outside.exists());
        }
    }
}

#[test]
fn damage_of_archives_is_named() {
    let (first, second) = (kineto("first"), kineto("second"));
    let whole = tar(&[("rank0.json", &first), ("rank1.json", &second)]);
    // in the second member: at its last event, and before its first
    let cut = &whole[..1024 + 512 + second.len() - 2];
    for bytes in [cut.to_vec(), gzip(cut)] {
        let (_directory, path) = written(&bytes);
        let (kernels, notes) = opened(&path);
        assert_eq!(kernels, [(0, "first".to_owned()), (1, "second".to_owned())]);
        assert!(notes.iter().any(|note| note.contains("rank1.json: cut off:")), "{notes:?}");
    }
    let (_directory, path) = written(&whole[..1024 + 512 + 20]);
    assert!(
        refusal(&path).contains("rank1.json: the file ends at byte 20, inside an event, and no event")
    );
    let packed = gzip(&[whole.clone(), (0..100_000_u32).flat_map(u32::to_le_bytes).collect()].concat());
    let (_directory, path) = written(&packed[..packed.len() - 1000]);
    let (kernels, notes) = opened(&path);
    assert_eq!(kernels.len(), 2);
    assert!(notes.iter().any(|note| note.contains("breaks off after")), "{notes:?}");

    let mut archive = zip(&[("a.json", &first, 0, 0)]);
    let at = archive.windows(5).position(|bytes| bytes == b"first").expect("stored");
    archive[at] = b'F';
    let (_directory, path) = written(&archive);
    let message = match open(&path) {
        Err(error) => error.to_string(),
        Ok(trace) => trace.meta.import.expect("a report").warnings.join("; "),
    };
    assert!(message.contains("checksum"), "{message}");

    for (bytes, words) in [
        (
            zip(&[("a.json", &first, 0, 1)]),
            "a.json is encrypted: unpack the archive with its password first",
        ),
        (zip(&[("a.json", &first, 98, 0)]), "method 98"),
        (zip(&[("a.json", &first, 8, 0)])[..60].to_vec(), "a zip archive that cannot be read"),
        (tar(&[("a.txt", b"hello")]), "a.txt is a file of unknown format"),
        (
            tar(&[("jsonData/chakra.0.json", br#"{"workload_graph": []}"#)]),
            "no trace among its 1 files: jsonData/chakra.0.json is a Chakra trace (JSON)",
        ),
    ] {
        let (_directory, path) = written(&bytes);
        let message = refusal(&path);
        assert!(message.contains(words), "{words}: {message}");
    }
}

#[test]
fn an_archive_of_too_many_members_is_not_unpacked() {
    let mut builder = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(::tar::EntryType::Symlink);
    header.set_size(0);
    header.as_old_mut().name[..4].copy_from_slice(b"link");
    header.set_cksum();
    for _ in 0..10_000 {
        builder.append(&header, std::io::empty()).expect("packed");
    }
    let links = builder.into_inner().expect("packed");
    // without the two blocks of zeros at its end
    let links = &links[..10_000 * 512];
    let trace = tar(&[("rank0.json", &kineto("gemm"))]);
    let into = tempfile::tempdir().expect("a directory");
    let (_directory, path) = written(&[links, trace.as_slice()].concat());
    let error = unpack(&path, || Ok(into.path().to_owned())).expect_err("refused");
    assert!(error.to_string().contains("more than 10000 members"), "{error}");
    assert_eq!(std::fs::read_dir(into.path()).expect("a directory").count(), 0);
    let message = refusal(&path);
    assert!(message.contains("no trace among its 10000 files"), "{message}");
    let (_directory, path) = written(&[&links[512..], trace.as_slice()].concat());
    assert_eq!(opened(&path).0, [(0, "gemm".to_owned())]);
    // of two files with one path, the later is there, as tar does it
    let (_directory, path) = written(&tar(&[("a/b", b"older"), ("./a//b", b"newer")]));
    assert_eq!(unpack(&path, || Ok(into.path().to_owned())).expect("unpacked"), [""; 0]);
    assert_eq!(std::fs::read(into.path().join("a/b")).expect("a file"), b"newer");
}

#[test]
fn a_folder_with_an_archive_may_hold_traces_and_only_opening_it_tells() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("notes.txt"), "hello").expect("written");
    assert!(!holds_traces(directory.path()));
    // a zip archive lists its members at its end
    let cut = &zip(&[("rank0.json", &kineto("gemm"), 0, 0)])[..60];
    std::fs::create_dir(directory.path().join("below")).expect("made");
    std::fs::write(directory.path().join("below/all.zip"), cut).expect("written");
    assert!(holds_traces(directory.path()));
    assert!(refusal(directory.path()).contains("below/all.zip is a zip archive that cannot be read"));
    std::fs::write(directory.path().join("below/all.zip"), kineto("gemm")).expect("written");
    assert!(holds_traces(directory.path()));
}

#[test]
fn what_jax_writes_twice_is_read_once() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["host.trace.json.gz", "perfetto_trace.json.gz"] {
        std::fs::write(directory.path().join(name), gzip(&kineto("gemm"))).expect("written");
    }
    let (kernels, notes) = opened(directory.path());
    assert_eq!(kernels, [(0, "gemm".to_owned())]);
    assert!(
        notes.iter().any(|note| note.contains("perfetto_trace.json.gz: a second copy of the trace")),
        "{notes:?}"
    );
}
