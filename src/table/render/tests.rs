//! Numbers, units and tables as they are printed.

use super::*;

fn table() -> Table {
    let mut table = Table::new(["name", "ms", "reason", "low|", "|95%"]);
    table.push(vec![
        Shown::text("a,\"b\""),
        Shown::Number(1.23456, 2),
        Shown::None,
        Shown::Whole(1),
        Shown::text("[1.0, 2.0]"),
    ]);
    table.push(vec![Shown::text("<c>"), 7_u32.into(), Shown::None, 2_u32.into(), Shown::None]);
    table
}

#[test]
fn csv_keeps_every_digit_and_quotes_what_needs_it() {
    assert_eq!(
        table().csv(Sourced::NoRuns),
        "name,ms,reason,low\n\"a,\"\"b\"\"\",1.23456,,1\n<c>,7,,2\n"
    );
}

#[test]
fn text_that_a_spreadsheet_would_execute_gets_an_apostrophe_and_numbers_stay() {
    let of = |text: &str| csv(["x"], [[text]]).trim_start_matches("x\n").trim_end().to_owned();
    for formula in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "=HYPERLINK(1)", "\t=1", "＝1"] {
        assert!(of(formula).trim_start_matches('"').starts_with('\''), "{formula}: {}", of(formula));
    }
    for plain in ["-1.5", "+3", "-1e-9", "1-2", "a=b", "-", "ladder", "", "-inf", "µ"] {
        assert_eq!(csv(["x"], [["a", plain]]), format!("x\na,{plain}\n"));
    }
    assert_eq!(of("\u{1b}[31mred\u{9b}\u{202e}"), "�[31mred��");
    assert_eq!(csv(["=x"], [["1"]]), "'=x\n1\n", "names of columns too");
}

#[test]
fn a_file_says_where_all_numbers_come_from() {
    let mut table = Table::new(["ms"]);
    table.push(vec![1_u32.into()]);
    assert_eq!(table.csv(Sourced::All(Provenance::EmulatedLink)), "ms,provenance\n1,emulated-link\n");
    assert_eq!(
        table.clone().with("lower_provenance", &Shown::None).csv(Sourced::ByRow).lines().count(),
        2
    );
    let forgotten = std::panic::catch_unwind(|| table.csv(Sourced::ByRow));
    assert_eq!(forgotten.is_err(), cfg!(debug_assertions), "no column says it");
}

#[test]
fn a_table_rounds_and_leaves_out_columns_without_content_and_those_of_files() {
    let text = table().aligned();
    assert!(text.contains("1.23") && !text.contains("1.234") && text.contains("[1.0, 2.0]"), "{text}");
    assert!(!text.contains("reason") && !text.contains("low"), "{text}");
}

#[test]
fn what_does_not_fit_loses_its_least_columns_and_names_them() {
    let whole = table().aligned();
    let widest = |text: &str| text.lines().map(UnicodeWidthStr::width).max();
    let wide = widest(&whole).unwrap();
    let left_out = |table: Table, width| table.fitted(width).left_out;
    assert_eq!(table().fitted(wide), FittedTable { text: whole, left_out: Vec::new() }, "it just fits");
    assert_eq!(left_out(table(), wide - 1), ["95%"], "the last column goes first");
    let fitted = table().least(&["95%", "ms", "other"]).fitted(24);
    assert_eq!(fitted.left_out, ["ms"], "{}", fitted.text);
    assert!(fitted.text.contains("2.0]") && !fitted.text.contains("1.23"), "{}", fitted.text);
    assert!(widest(&fitted.text).unwrap() <= 24, "{}", fitted.text);
    assert_eq!(left_out(table(), 3), ["95%", "ms"], "what is left may be wider");
    let mut room = Table::new(["name", "wide", "b"]);
    room.push(vec![Shown::text("a"), Shown::text("w".repeat(40)), Shown::text("b")]);
    assert_eq!(left_out(room.least(&["wide", "b"]), 30), ["wide"], "b has room again");
    let mut stays = Table::new(["a", "!provenance", "b"]);
    stays.push(vec![Shown::text("a"), Shown::text("simulated"), Shown::text("b")]);
    let FittedTable { text, left_out } = stays.fitted(5);
    assert!(text.contains("simulated") && left_out == ["b"], "{text}");
}

#[test]
fn what_all_rows_say_alike_makes_room_before_anything_is_lost() {
    let mut table = Table::new(["~cell", "link", "ms", "!provenance"]);
    for (cell, ms) in [("standard llama-3-70b tp8 b1 p2p-on", 12.2), ("ladder", 9.3)] {
        let ms = Shown::Number(ms, 1);
        table.push(vec![Shown::text(cell), Shown::text("native"), ms, Shown::text("simulated")]);
    }
    let FittedTable { text, left_out } = table.fitted(46);
    assert!(text.starts_with("all 2 rows: link native, provenance simulated\n"), "{text}");
    assert!(left_out.is_empty() && text.contains("b1 p2p-on ") && text.contains("12.2"), "{text}");
    // a name loses its middle, and as little of it as must be
    let FittedTable { text, left_out } = table.fitted(40);
    let line = text.lines().find(|line| line.contains("standard")).unwrap();
    assert!(line.contains("standard llama-…b tp8 b1 p2p-on"), "{text}");
    assert!(left_out.is_empty() && line.width() <= 40 && text.contains("12.2"), "{text}");
    assert!(!table.fitted(200).text.contains("all 2"), "what has room keeps its columns");
}

#[test]
fn a_name_that_all_rows_share_moves_above_and_gives_way_to_columns_that_stay() {
    let table = |names: [&str; 3]| {
        let mut table = Table::new(["~setting", "!architecture", "TPOT ms", "!tok/s vs standard"]);
        let rows = [("standard", 2.85), ("delayed:1", 1.97), ("upper-bound", 1.80)];
        for (name, (architecture, ms)) in names.into_iter().zip(rows) {
            let numbers = [Shown::Number(ms, 2), Shown::Number(2.85 / ms, 2)];
            let row = [Shown::text(name), Shown::text(architecture)].into_iter().chain(numbers);
            table.push(row.collect());
        }
        table.least(&["TPOT ms"]).fitted(56)
    };
    let FittedTable { text, left_out } = table(["llama-3-8b tp8 b1 p2p-on", "", ""]);
    assert!(text.starts_with("all 3 rows: setting llama-3-8b tp8 b1 p2p-on\n"), "{text}");
    assert!(left_out.is_empty() && text.contains("delayed:1") && text.contains("1.97"), "{text}");
    let FittedTable { text, left_out } =
        table(["llama-3-8b tp8 b1 p2p-on", "", "llama-3-70b tp4 b16 p2p-off"]);
    assert!(left_out == ["TPOT ms"] && text.contains("delayed:1"), "{text}");
    assert!(text.lines().all(|line| line.width() <= 56), "{text}");
}

#[test]
fn rows_keep_the_words_that_tell_them_apart() {
    let mut table = Table::new(["~cell", "ms"]);
    for (cell, ms) in [("llama-3-70b tp4 b1 p2p-on sim", 12.2), ("llama-3-70b tp8 b1 p2p-on sim", 9.3)] {
        table.push(vec![Shown::text(cell), Shown::Number(ms, 1)]);
    }
    let FittedTable { text, left_out } = table.fitted(34);
    assert!(text.starts_with("all 2 rows:\n  cell llama-3-70b b1 p2p-on sim\n"), "{text}");
    assert!(left_out.is_empty() && text.contains(" tp4 ") && text.contains(" tp8 "), "{text}");
    assert!(table.fitted(80).text.contains("llama-3-70b tp8"), "what has room stays whole");
    // also if a text has a word more
    let cells = ["llama-3-70b tp8 b1 p2p-on", "llama-3-70b tp8 b16 p2p-on sharded-head"];
    let table = Table::from_rows(
        &cells,
        &[("~cell", &|cell| Shown::text(cell)), ("ms", &|_| Shown::Number(1.0, 1))],
    );
    let text = table.fitted(30).text;
    assert!(text.starts_with("all 2 rows:\n  cell llama-3-70b tp8 p2p-on\n"), "{text}");
    assert!(text.contains(" b1 ") && text.contains(" b16 sharded-head "), "{text}");
}

#[test]
fn a_page_says_what_it_leaves_out() {
    let html = table().html("Cells", 1, "ladderscope runs 'a  b'");
    assert_eq!(html.matches("<tr>").count(), 2, "{html}");
    assert!(
        html.contains("The first 1 of 2 rows; all: <code>ladderscope runs &#39;a  b&#39;"),
        "{html}"
    );
    assert!(!html.contains("reason"), "a column that says nothing: {html}");
    assert!(table().html("", 9, "").contains("&lt;c&gt;"));
}

#[test]
fn numbers_on_screens_are_written_as_their_unit_asks() {
    for (value, unit, shown) in [
        (1.0204, Unit::Factor, "1.020"),
        (0.9966, Unit::Factor, "0.997"),
        (4.0, Unit::Count, "4"),
        (0.031, Unit::Share, "3.1 %"),
        (62.5, Unit::Percent, "62.5 %"),
        (12.345, Unit::Ms, "12.3"),
    ] {
        assert_eq!(unit.cell(value), shown, "{unit:?}");
    }
}
