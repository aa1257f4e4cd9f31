//! Tables of runs: order, CSV, gap closed.

use super::*;
use ::table::testing::{record, sim_record};
use ::table::{Link, Record, Spec, Status};
use base::error::Error;
use lab::store::Annotations;

pub(crate) fn records() -> Vec<Record> {
    let mut failed = record("c", |s| s.tp = 16, 0, &[(1.0, 1.0)]);
    (failed.status, failed.metrics) = (Status::Failed, None);
    failed.reason = Some("rank 1 said \"no\",\nand died".into());
    let link = |s: &mut Spec| (s.tp, s.link) = (8, Link::Emulated { alpha_us: 1.0, gb_s: 2.0 });
    vec![record("a", link, 0, &[(1.0, 3.0)]), sim_record("b", |_| (), 1.0, 2.0), failed]
}

fn table(records: &[Record]) -> RunTable {
    RunTable::new(records, &Annotations::default())
}

fn sorted(table: &RunTable, keys: &str) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..table.len() as u32).collect();
    table.sort(&mut rows, &table.sort_keys(keys).unwrap());
    rows
}

#[test]
fn numbers_sort_as_numbers_and_nothing_comes_last() {
    let table = table(&records());
    assert_eq!(sorted(&table, "tpot_p50_ms"), [1, 0, 2]);
    assert_eq!(sorted(&table, "-tpot_p50_ms"), [0, 1, 2]);
    assert_eq!(sorted(&table, "tpot:desc"), [0, 1, 2]);
    assert_eq!(sorted(&table, "tp:desc"), [2, 0, 1]);
    assert_eq!(sorted(&table, ""), [0, 1, 2]);
    let Error::Input { help: Some(help), .. } = table.sort_keys("tpot_p50").unwrap_err() else {
        panic!("no help")
    };
    assert!(help.contains("'tpot_p50_ms'"), "{help}");
}

#[test]
fn equal_rows_stay_in_order_and_a_second_key_decides_between_them() {
    let of = |arch: &str, tp| {
        let arch: plan::Architecture = arch.parse().unwrap();
        sim_record("x", move |s| (s.architecture, s.tp) = (arch.clone(), tp), 1.0, 1.0)
    };
    let table = table(&[
        of("standard", 8),
        of("ladder:16", 2),
        of("standard", 2),
        of("ladder:8", 8),
        of("standard", 2),
    ]);
    assert_eq!(sorted(&table, "arch"), [3, 1, 0, 2, 4], "ladder:8 comes before ladder:16");
    assert_eq!(sorted(&table, "arch:desc"), [0, 2, 4, 1, 3], "equal ones stay in their order");
    assert_eq!(sorted(&table, "tp,arch:desc"), [2, 4, 1, 0, 3]);
}

#[test]
fn few_rows_of_a_long_column_sort_as_many_do() {
    let records: Vec<Record> =
        (0..500).map(|i| sim_record("x", |_| (), 1.0, f64::from((i * 7919) % 500))).collect();
    let table = table(&records);
    let all = sorted(&table, "tpot:desc");
    let mut few: Vec<u32> = all.iter().copied().filter(|row| row % 50 == 0).collect();
    let wanted = few.clone();
    few.sort_unstable();
    table.sort(&mut few, &table.sort_keys("tpot:desc").unwrap());
    assert_eq!(few, wanted);
}

#[test]
fn csv_reads_back_and_an_empty_table_has_its_columns() {
    let table = table(&records());
    let csv = table.csv(&[0, 1, 2], &table.columns_of_records());
    let (head, body) = csv.split_once('\n').unwrap();
    assert!(head.starts_with("run,status,provenance,architecture,model"));
    assert!(body.starts_with(
        "a,ok,emulated-link,standard,tiny,f32,8,1,16,5,on,cpu,\"emulated:alpha_us=1,gb_s=2\","
    ));
    assert!(body.contains(",\"rank 1 said \"\"no\"\",\nand died\","));
    assert!(!head.contains("hidden_share"), "other runs decide it");
    let empty = self::table(&[]);
    assert_eq!(empty.csv(&[], &empty.csv_columns()).lines().count(), 1);
    assert!(sorted(&empty, "tp").is_empty());
}

#[test]
fn variables_and_overrides_are_columns_of_their_own() {
    let set = |s: &mut Spec| {
        s.env.insert("NCCL_ALGO".into(), "Ring".into());
        s.set.insert("link.alpha_us".into(), "5".into());
    };
    let table = table(&[sim_record("a", set, 1.0, 1.0), sim_record("b", |_| (), 1.0, 1.0)]);
    let at = table.find("nccl_algo").unwrap();
    assert_eq!(table.find("env.NCCL_ALGO"), Some(at));
    assert_eq!((table.cell(0, at), table.cell(1, at)), (Cell::Text("Ring"), Cell::Nothing));
    assert_eq!(table.cell(0, table.find("set.link.alpha_us").unwrap()), Cell::Text("5"));
}

#[test]
fn the_gap_closed_is_that_of_matching_runs() {
    let of = |arch: &str, tp, ms| {
        let arch: plan::Architecture = arch.parse().unwrap();
        sim_record("x", move |s| (s.architecture, s.tp) = (arch.clone(), tp), 1.0, ms)
    };
    let records = [
        of("standard", 2, 10.0),
        of("upper-bound", 2, 6.0),
        of("ladder", 2, 7.0),
        of("ladder", 4, 7.0),
        of("standard", 8, 5.0),
        of("upper-bound", 8, 5.0),
        of("ladder", 8, 4.0),
    ];
    let table = table(&records);
    let at = table.find("gap").unwrap();
    let share = |row| match table.cell(row, at) {
        Cell::Number(share) => Some(share),
        _ => None,
    };
    assert_eq!((share(0), share(1), share(2)), (Some(0.0), Some(1.0), Some(0.75)));
    assert_eq!(share(3), None, "TP 4 has no standard to compare with");
    assert_eq!(share(6), None, "there is nothing to hide");
}
