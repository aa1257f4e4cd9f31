//! Round trips, and every kind of broken file.

use std::path::PathBuf;
use std::sync::LazyLock;

use polars_core::prelude::{Column, DataFrame};
use proptest::prelude::*;
use tempfile::TempDir;

use super::{TraceWriter, read, read_meta, write};
use crate::{
    CollectiveInfo, FORMAT_VERSION, LaunchSite, OperationInfo, ProcessGroup, Range, Span, Trace,
    TraceMeta, TraceStream,
};
use base::error::Error;
use plan::{Lane, Phase};
use table::Provenance;
use table::testing::cell;

fn operation(name: &str, lane: Lane) -> OperationInfo {
    OperationInfo {
        name: name.into(),
        phase: Phase::Decode,
        kind: "matmul".into(),
        module: "mlp".into(),
        layer: Some(3),
        lane,
        shape: "[rows, 8] x [8, 4]".into(),
        cost: plan::Cost::default(),
        origins: vec![name.into()],
        waits_for: vec![0],
        collective: None,
    }
}

fn trace(spans: Vec<Span>) -> Trace {
    Trace {
        meta: TraceMeta {
            run: Some("run-1".into()),
            spec: Some(cell("ladder:2", "tiny")),
            plan_hashes: vec!["aa".into(), "bb".into()],
            environment: [("cpu".to_owned(), serde_json::json!({ "cores": 2 }))].into(),
            clock: "monotonic".into(),
            recorder: "cpu".into(),
            streams: vec![
                TraceStream { rank: 0, process: Some(77), device: Some(0), context: Some(2), id: 7 },
                TraceStream { rank: 2, process: None, device: None, context: None, id: 20 },
            ],
            range_names: vec!["step".into(), "layer \"3\"".into()],
            ..TraceMeta::new(Provenance::EmulatedLink, 3)
        },
        operations: vec![operation("decode/a", Lane::Compute), operation("decode/ü \"b\"", Lane::Comm)],
        spans,
        ranges: vec![range(), Range { depth: 1, name: 1, start_ns: 20, end_ns: 25, ..range() }],
    }
}

fn range() -> Range {
    Range { rank: 1, on_device: false, thread: 3, depth: 0, name: 0, start_ns: -4, end_ns: 90 }
}

fn span() -> Span {
    Span {
        step: 4,
        rank: 2,
        lane: Lane::Comm,
        operation: 1,
        ready_ns: 5,
        start_ns: 10,
        end_ns: 30,
        last_arrival_ns: 12,
        ..Span::EMPTY
    }
}

/// A directory and a path in it.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    (dir, path)
}

fn written(trace: &Trace) -> Vec<u8> {
    let (_dir, path) = place();
    write(&path, trace).unwrap();
    std::fs::read(path).unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<Trace, Error> {
    let (_dir, path) = place();
    std::fs::write(&path, bytes).unwrap();
    let meta = read_meta(&path);
    let trace = read(&path);
    // metadata alone can be read wherever the whole can
    assert!(meta.is_ok() || trace.is_err());
    trace
}

fn refused(bytes: &[u8]) -> String {
    let error = read_bytes(bytes).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("t.trace: "), "{error}");
    error.to_string()
}

/// Names the first difference: a dump of all of them helps nobody.
#[track_caller]
fn same(found: &[Span], wanted: &[Span]) {
    assert_eq!(found.len(), wanted.len());
    if let Some((at, (found, wanted))) = found.iter().zip(wanted).enumerate().find(|(_, (a, b))| a != b)
    {
        panic!("span {at} is {found:?}, not {wanted:?}");
    }
}

#[test]
fn a_trace_without_spans_is_a_trace() {
    let empty = trace(Vec::new());
    assert_eq!(read_bytes(&written(&empty)).unwrap(), empty);
}

#[test]
fn more_than_a_row_group_in_uneven_pieces_keeps_its_order() {
    let spans: Vec<Span> = (0..600_000_i64)
        .map(|i| Span { start_ns: 7 * i, end_ns: 7 * i + i % 5, step: (i / 1000) as u32, ..span() })
        .collect();
    let whole = trace(spans);
    let (_dir, path) = place();
    let mut writer = TraceWriter::create(&path, &whole.meta, &whole.operations).unwrap();
    let (first, rest) = whole.spans.split_at(10);
    let (second, third) = rest.split_at(590_000);
    for piece in [first, second, third] {
        writer.write(piece).unwrap();
    }
    writer.finish().unwrap();
    same(&read(&path).unwrap().spans, &whole.spans);
    // regular spans cost a few bytes each, not the 56 they have in memory
    assert!(std::fs::metadata(&path).unwrap().len() < 600_000 * 6);
}

#[test]
fn sequence_numbers_and_process_groups_come_back() {
    let numbered =
        |at: u32| Span { sequence: if at.is_multiple_of(3) { Span::NO_SEQUENCE } else { at }, ..span() };
    let mut trace = trace((0..70_000).map(numbered).collect());
    let group = ProcessGroup { name: "1".into(), description: "TP".into(), size: 2, ranks: vec![0, 1] };
    trace.meta.groups = vec![ProcessGroup::default(), group];
    trace.operations[1].collective = Some(CollectiveInfo {
        name: "allreduce".into(),
        group: Some(1),
        in_elements: Some(8192),
        dtype: "BFloat16".into(),
        algorithm: "RING".into(),
        channels: Some(2),
        ..CollectiveInfo::default()
    });
    let back = read_bytes(&written(&trace)).unwrap();
    assert_eq!((&back.meta, &back.operations), (&trace.meta, &trace.operations));
    same(&back.spans, &trace.spans);
}

#[test]
fn nothing_is_there_until_it_is_whole_and_nothing_stays_of_what_was_dropped() {
    let (dir, path) = place();
    let trace = trace(vec![span()]);
    let mut writer = TraceWriter::create(&path, &trace.meta, &trace.operations).unwrap();
    writer.write(&trace.spans).unwrap();
    assert!(!path.exists());
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn wrong_spans_are_refused_when_written() {
    let (_dir, path) = place();
    let trace = trace(Vec::new());
    for (wrong, text) in [
        (Span { operation: 2, ..span() }, "operation is 2, but there are 2 operations"),
        (Span { rank: 3, ..span() }, "rank is 3, but there are 3 ranks"),
        (Span { stream: 2, ..span() }, "stream is 2, but there are 2 streams"),
        (Span { end_ns: 9, ..span() }, "ends at 9 ns, before it starts at 10 ns"),
    ] {
        let mut writer = TraceWriter::create(&path, &trace.meta, &trace.operations).unwrap();
        let error = writer.write(&[wrong]).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn wrong_ranges_are_refused_when_written() {
    let (_dir, path) = place();
    let trace = trace(Vec::new());
    for (wrong, text) in [
        (Range { name: 2, ..range() }, "name is 2, but there are 2 names"),
        (Range { rank: 3, ..range() }, "rank is 3, but there are 3 ranks"),
        (Range { end_ns: -5, ..range() }, "ends at -5 ns, before it starts at -4 ns"),
    ] {
        let mut writer = TraceWriter::create(&path, &trace.meta, &trace.operations).unwrap();
        let error = writer.write_ranges(&[wrong]).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn without_a_table_of_streams_lanes_are_the_streams() {
    let mut bare = trace(vec![span()]);
    bare.meta.streams.clear();
    assert_eq!(read_bytes(&written(&bare)).unwrap(), bare);
    bare.spans[0].stream = 1;
    let error = write(&place().1, &bare).unwrap_err().to_string();
    assert!(error.contains("stream is 1, but there are 0 streams"), "{error}");
}

#[test]
fn spans_and_ranges_may_be_written_in_turns() {
    let whole = trace((0..200_000).map(|i| Span { start_ns: i, end_ns: i + 2, ..span() }).collect());
    let mut whole = Trace { ranges: Vec::new(), ..whole };
    whole.ranges = (0..100_000).map(|i| Range { start_ns: i, end_ns: i + 9, ..range() }).collect();
    let (_dir, path) = place();
    let mut writer = TraceWriter::create(&path, &whole.meta, &whole.operations).unwrap();
    for (spans, ranges) in whole.spans.chunks(1500).zip(whole.ranges.chunks(750)) {
        writer.write(spans).unwrap();
        writer.write_ranges(ranges).unwrap();
    }
    writer.finish().unwrap();
    assert!(read(&path).unwrap() == whole);
}

/// The recorded traces that come with the repository.
#[test]
fn shipped_traces_are_read_and_their_damage_is_found() {
    for name in ["cpu-standard-tp2-600us", "cpu-ladder-tp2-600us"] {
        let path = format!("{}/../../traces/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
        let whole = std::fs::read(path).unwrap();
        let trace = read_bytes(&whole).unwrap();
        assert_eq!((trace.meta.version, trace.meta.ranks), (FORMAT_VERSION, 2));
        assert_eq!((trace.spans.len(), trace.ranges.len()), (7682, 0));
        for at in [5, 1000, whole.len() / 2, whole.len() - 30_000, whole.len() - 100, whole.len() - 6] {
            let mut bytes = whole.clone();
            bytes[at] ^= 64;
            let message = refused(&bytes);
            assert!(message.contains("damaged trace"), "{name}, byte {at}: {message}");
        }
    }
}

#[test]
fn what_is_not_parquet_is_said_to_be_foreign() {
    assert!(refused(b"").contains("not a Ladderscope trace: it is empty"));
    assert!(refused(b"{\"traceEvents\": []}").contains("begins with the bytes 7b 22 74 72"));
    let missing = read(std::path::Path::new("/no/such/trace")).unwrap_err();
    assert_eq!(missing.exit_code(), 2);
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let bytes = written(&trace(vec![span(); 100]));
    for length in [4, 7, 11, bytes.len() / 2, bytes.len() - 1] {
        assert!(refused(&bytes[..length]).contains("cut off"), "{length} bytes");
    }
}

#[test]
fn changed_data_is_found_by_the_checksum() {
    let mut bytes = written(&trace(vec![span(); 100]));
    bytes[60] ^= 1;
    assert!(refused(&bytes).contains("do not match its checksum"));
    let (_dir, path) = place();
    std::fs::write(&path, &bytes).unwrap();
    assert!(super::check(&path).unwrap_err().contains("do not match its checksum"));
    bytes[60] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    super::check(&path).unwrap();
}

/// A Parquet file of some other program, with these columns and entries of its footer.
fn foreign(columns: Vec<Column>, entries: Vec<(String, String)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let frame = DataFrame::new_infer_height(columns).unwrap();
    let mut writer = base::parquet::writer(&mut bytes, frame.schema(), 1, |_| None, entries).unwrap();
    writer.write_batch(&frame).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

/// The same with a checksum, as only this program writes it.
fn with_checksum(columns: Vec<Column>, mut entries: Vec<(String, String)>) -> Vec<u8> {
    entries.push((super::SEAL.to_owned(), super::CHECKSUM.blank()));
    let mut bytes = foreign(columns, entries);
    let [.., a, b, c, d, _, _, _, _] = bytes[..] else { panic!("no footer") };
    let footer = bytes.len() - 8 - u32::from_le_bytes([a, b, c, d]) as usize;
    assert!(super::CHECKSUM.fill(&mut bytes[footer..]));
    bytes
}

/// The columns of a trace, as another program might have them.
fn all_columns() -> Vec<Column> {
    super::columns::schema()
        .into_iter()
        .map(|column| {
            Column::new_scalar(column.name.into(), polars_core::prelude::Scalar::null(column.dtype), 1)
        })
        .collect()
}

#[test]
fn foreign_parquet_is_told_what_it_lacks() {
    let id = || Column::new("sample".into(), [1_u32, 2]);
    assert!(
        refused(&foreign(vec![id()], Vec::new()))
            .contains("not a Ladderscope trace: its footer has no checksum")
    );
    let decode = Column::new("decode".into(), [1_i64, 0]);
    assert!(refused(&with_checksum(vec![id()], Vec::new())).contains("it has no column decode"));
    assert!(
        refused(&with_checksum(vec![id(), decode], Vec::new()))
            .contains("its column decode is i64, not bool")
    );
    let bytes = with_checksum(all_columns(), Vec::new());
    assert!(refused(&bytes).contains("its footer has no entry ladderscope.version"));
}

#[test]
fn a_newer_format_is_read_where_it_fits() {
    let mut newer = trace(vec![span()]);
    newer.meta.version = FORMAT_VERSION + 1;
    assert_eq!(read_bytes(&written(&newer)).unwrap(), newer);
}

/// A file that says it is a trace of this format, and has other columns.
fn of_format(version: u32) -> Vec<u8> {
    let entries = vec![(super::VERSION.to_owned(), version.to_string())];
    with_checksum(vec![Column::new("sample".into(), [1_u64])], entries)
}

#[test]
fn an_older_format_is_refused_with_its_version() {
    let message = refused(&of_format(FORMAT_VERSION - 1));
    assert!(message.contains("trace format 1 is older than 2 and no longer read"), "{message}");
}

#[test]
fn a_newer_format_that_does_not_fit_says_which_version_it_needs() {
    let message = refused(&of_format(FORMAT_VERSION + 1));
    assert!(
        message.contains("trace format 3 is newer than 2") && message.contains("column sample"),
        "{message}"
    );
}

#[test]
fn an_operation_that_does_not_exist_is_named_with_its_row() {
    // a writer that believes in one operation more than it has
    let trace = trace(vec![span(), Span { operation: 2, ..span() }]);
    let (_dir, path) = place();
    let mut writer = TraceWriter::create(&path, &trace.meta, &trace.operations).unwrap();
    writer.limits.operations = 3;
    writer.write(&trace.spans).unwrap();
    writer.finish().unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("row 1: operation is 2, but there are 2 operations"), "{error}");
}

#[test]
fn a_file_without_checksums_of_its_rows_is_not_decoded() {
    let trace = trace(Vec::new());
    let entries = vec![
        (super::VERSION.to_owned(), FORMAT_VERSION.to_string()),
        (super::META.to_owned(), serde_json::to_string(&trace.meta).unwrap()),
        (super::OPERATIONS.to_owned(), serde_json::to_string(&trace.operations).unwrap()),
    ];
    let bytes = with_checksum(all_columns(), entries.clone());
    assert!(refused(&bytes).contains("its footer has no entry ladderscope.groups"));
    let groups = r#"[{"holds":"spans","rows":2,"bytes":1,"sha256":""}]"#;
    let entries = [entries, vec![(super::GROUPS.to_owned(), groups.into())]].concat();
    assert!(
        refused(&with_checksum(all_columns(), entries)).contains("row groups that it does not contain")
    );
}

prop_compose! {
    fn any_span()(
        sample in any::<u32>(), decode in any::<bool>(), step in any::<u32>(), rank in 0..3_u32,
        comm in any::<bool>(), operation in 0..2_u32, ready_ns in any::<i64>(),
        bounds in any::<(i64, i64)>(), stream in 0..2_u16, last_arrival_ns in prop_oneof![Just(-1), any::<i64>()],
        launch in prop_oneof![Just((LaunchSite::NONE, LaunchSite::NONE)), any::<(u32, u32)>()],
    ) -> Span {
        Span {
            sample, step, rank, operation, ready_ns, last_arrival_ns,
            phase: if decode { Phase::Decode } else { Phase::Prefill },
            lane: if comm { Lane::Comm } else { Lane::Compute },
            stream,
            start_ns: bounds.0.min(bounds.1),
            end_ns: bounds.0.max(bounds.1),
            launched: LaunchSite { range: launch.0, operator: launch.1 },
            ..Span::EMPTY
        }
    }
}

prop_compose! {
    fn any_range()(
        rank in 0..3_u32, on_device in any::<bool>(), thread in any::<u16>(), depth in any::<u16>(), name in 0..2_u32,
        bounds in any::<(i64, i64)>(),
    ) -> Range {
        let (start_ns, end_ns) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
        Range { rank, on_device, thread, depth, name, start_ns, end_ns }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_spans_and_ranges_come_back(
        spans in proptest::collection::vec(any_span(), 0..600),
        ranges in proptest::collection::vec(any_range(), 0..20),
    ) {
        let whole = Trace { ranges, ..trace(spans) };
        prop_assert_eq!(read_bytes(&written(&whole)).unwrap(), whole);
    }
}

/// A trace and its file, written once.
static WHOLE: LazyLock<(Trace, Vec<u8>)> = LazyLock::new(|| {
    let whole = trace((0..50).map(|i| Span { start_ns: i, end_ns: 3 * i, ..span() }).collect());
    let bytes = written(&whole);
    (whole, bytes)
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Damage anywhere is an error or makes no difference; it never panics, and is never a wrong number.
    #[test]
    fn damage_never_panics_and_never_changes_a_number(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..4),
        in_footer in any::<bool>(),
    ) {
        let (whole, bytes) = &*WHOLE;
        let mut bytes = bytes.clone();
        let from = if in_footer { bytes.len() / 2 } else { 0 };
        let length = bytes.len() - from;
        for (index, change) in changes {
            bytes[from + index.index(length)] ^= change;
        }
        if let Ok(read) = read_bytes(&bytes) {
            prop_assert!(read == *whole);
        }
    }
}
