//! Damaged exports, and random ones against what is in them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::generate::{Export, global};
use super::import;
use crate::import::input::InputFile;
use crate::rules::Rules;

/// An export of several pages in every table.
fn whole() -> Vec<u8> {
    let mut export = Export::new();
    export.sql("BEGIN");
    for k in 0..200 {
        export.kernel(&format!("kernel {k}"), (1 + k % 2, 0, 7), k + 1, (k * 10, k * 10 + 5));
        export.launch((1 + k % 2, 1), k + 1, (k * 10 - 5, k * 10 - 2));
        export.range((1 + k % 2, 1), &format!("step {k}"), (k * 10 - 9, Some(k * 10)));
    }
    export.sql("COMMIT");
    std::fs::read(&export.path).expect("written")
}

#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Flip(Vec<(usize, u8)>),
    Zero(usize, usize),
}

fn damage(length: usize) -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..length).prop_map(Damage::Cut),
        prop::collection::vec((0..length, 1u8..), 1..40).prop_map(Damage::Flip),
        (0..length, 1..5000usize).prop_map(|(at, count)| Damage::Zero(at, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_damaged_export_is_an_error_or_what_could_be_read(damage in damage(whole().len())) {
        let mut bytes = whole();
        match damage {
            Damage::Cut(length) => bytes.truncate(length),
            Damage::Flip(flips) => flips.into_iter().for_each(|(at, with)| bytes[at] ^= with),
            Damage::Zero(at, count) => bytes.iter_mut().skip(at).take(count).for_each(|byte| *byte = 0),
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        match import(&[InputFile::from_path(file.path())]) {
            Ok(mut trace) => {
                Rules::default().classify(&mut trace);
                for span in &trace.spans {
                    prop_assert!(span.ready_ns <= span.start_ns && span.start_ns <= span.end_ns);
                    prop_assert!(span.rank < trace.meta.ranks);
                    prop_assert!((span.operation as usize) < trace.operations.len());
                    prop_assert!(usize::from(span.stream) < trace.meta.streams.len());
                }
            }
            Err(error) => prop_assert!(error.to_string().contains(&file.path().display().to_string()), "{error}"),
        }
    }
}

/// An event: process, device, stream, start, length.
fn events() -> impl Strategy<Value = Vec<(i64, i64, i64, i64, i64)>> {
    let beyond = prop_oneof![(1i64 << 61) + 1..i64::MAX, i64::MIN..-(1i64 << 61)];
    let time = prop_oneof![8 => 0i64..1000, 1 => beyond];
    let length = prop_oneof![8 => 0i64..50, 1 => -20i64..0];
    prop::collection::vec((1i64..4, 0i64..3, 7i64..9, time, length), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_event_that_makes_sense_is_there_and_every_other_is_counted(events in events()) {
        let mut export = Export::new();
        let mut expected: BTreeMap<(i64, i64), Vec<(i64, i64)>> = BTreeMap::new();
        for (process, device, stream, start, length) in &events {
            let end = start.saturating_add(*length);
            export.kernel("k", (*process, *device, *stream), 0, (*start, end));
            if *length >= 0 && start.unsigned_abs() <= 1 << 61 && end.unsigned_abs() <= 1 << 61 {
                expected.entry((*process, *device)).or_default().push((*start, end));
            }
        }
        expected.values_mut().for_each(|list| list.sort_unstable());
        let Ok(trace) = import(&[InputFile::from_path(&export.path)]) else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        super::assert_accounted(&trace);
        prop_assert_eq!(trace.meta.ranks as usize, expected.len());
        for (rank, list) in expected.values().enumerate() {
            let mut found: Vec<_> = trace
                .spans
                .iter()
                .filter(|span| span.rank as usize == rank)
                .map(|span| (span.start_ns, span.end_ns))
                .collect();
            found.sort_unstable();
            prop_assert_eq!(&found, list);
        }
        prop_assert_eq!(global(1) >> 24 & 0xFF_FFFF, 1);
    }
}

#[test]
fn generated_columns_and_endless_texts_are_not_read() {
    let export = Export::without_tables();
    export.sql(super::generate::KERNEL);
    // half a gigabyte of text for each row, if anybody asks
    export.sql(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT GENERATED ALWAYS AS (hex(zeroblob(250000000))));\
         INSERT INTO StringIds (id) VALUES (5);\
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 0, 7, 1, 281474993487872, 5, 5, NULL)",
    );
    assert!(super::refused(&export).contains("no kernel has a name"));
    export.sql(
        "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);\
         INSERT INTO StringIds VALUES (5, hex(zeroblob(20000000)))",
    );
    assert!(super::refused(&export).contains("no kernel has a name"));
    // ids that are no key are found all the same
    export.sql(
        "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER, value TEXT);\
         INSERT INTO StringIds VALUES (4, 'other'), (5, 'gemm')",
    );
    assert_eq!(super::imported(&export).operations[0].name, "gemm");
}

/// An export of ten kernels, of which so many lost their name.
fn unnamed(count: i64) -> Export {
    let mut export = Export::new();
    for k in 0..10 {
        export.kernel(&format!("kernel {k}"), (1, 0, 7), 0, (k * 100, k * 100 + 50));
    }
    export.sql(&format!(
        "DELETE FROM StringIds WHERE value LIKE 'kernel %' AND CAST(substr(value, 8) AS INTEGER) < {count}"
    ));
    export
}

#[test]
fn kernels_without_names_are_refused_or_put_the_verdict_in_doubt() {
    let problem = |change: &str| {
        let export = unnamed(0);
        export.sql(change);
        super::refused(&export)
    };
    let missing = problem("DROP TABLE StringIds");
    assert!(missing.contains("no kernel has a name: table StringIds is missing"), "{missing}");
    let view =
        problem("ALTER TABLE StringIds RENAME TO Texts; CREATE VIEW StringIds AS SELECT * FROM Texts");
    assert!(view.contains("StringIds is a view"), "{view}");
    let index = problem("DROP TABLE StringIds; CREATE TABLE StringIds_idx (segid, term, pgno)");
    assert!(index.contains("table StringIds is missing"), "{index}");
    let none = problem("DELETE FROM StringIds");
    assert!(none.contains("does not have the ids of their names"), "{none}");
    let kernels = problem(
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO K; CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM K",
    );
    assert!(kernels.contains("CUPTI_ACTIVITY_KIND_KERNEL is a view"), "{kernels}");

    let suffixed = unnamed(0);
    suffixed.sql(
        "ALTER TABLE StringIds RENAME TO StringIds_V2; CREATE TABLE StringIds_idx (segid, term, pgno)",
    );
    let trace = super::imported(&suffixed);
    assert!(trace.operations.iter().all(|operation| operation.name.starts_with("kernel ")));
    assert!(super::warned(&trace, "table StringIds_V2 is read as StringIds"));

    let doubts = |count| {
        let trace = super::imported(&unnamed(count));
        trace.meta.import.unwrap().doubts
    };
    assert_eq!(doubts(0), []);
    let some = doubts(3);
    assert_eq!(some[0].about, crate::Doubted::Names);
    assert!(
        some[0].sentence.contains(": 3 of 10 kernels (30 % of their time) have no name"),
        "{some:?}"
    );
}
