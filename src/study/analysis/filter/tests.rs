//! The filter language: what it reads and prints, what it finds, what it offers.

use proptest::prelude::*;

use super::*;
use crate::analysis::RunTable;
use base::error::Error;
use lab::store::{AnnotationEdit, Annotations};
use table::testing::{record, sim_record};
use table::{Link, P2p, Record, Spec, Status};

fn records() -> Vec<Record> {
    let mut failed = record("c", |s| s.tp = 16, 0, &[(1.0, 1.0)]);
    (failed.status, failed.metrics) = (Status::Failed, None);
    failed.reason = Some("rank 1 said \"no\",\nand died".into());
    let a = |s: &mut Spec| {
        (s.tp, s.link) = (8, Link::Emulated { alpha_us: 1.0, gb_s: 2.0 });
        s.env.insert("NCCL_ALGO".into(), "Ring".into());
    };
    let d = |s: &mut Spec| {
        s.architecture = "upper-bound".parse().unwrap();
        (s.model, s.p2p) = ("llama-3-70b".into(), P2p::Off);
    };
    let e = |s: &mut Spec| s.architecture = "desync:4".parse().unwrap();
    vec![
        record("a", a, 0, &[(1.0, 3.12)]),
        sim_record("b", |_| (), 1.0, 2.0),
        failed,
        sim_record("d", d, 2500.0, 9.0),
        sim_record("e", e, 1.0, 4.0),
    ]
}

fn table() -> RunTable {
    let mut annotations = Annotations::default();
    annotations.edit(&["a".into(), "b".into()], &AnnotationEdit::tags("good paper").unwrap());
    annotations.edit(&["d".into()], &AnnotationEdit::tags("goodish").unwrap());
    annotations.edit(&["d".into()], &AnnotationEdit::note("after the Update"));
    RunTable::new(&records(), &annotations)
}

#[track_caller]
fn kept(filter: &str) -> String {
    let rows = Filter::parse(filter).rows(&table()).unwrap();
    rows.iter().map(|row| ["a", "b", "c", "d", "e"][*row as usize]).collect()
}

#[test]
fn a_word_matches_whole_numbers_and_ids_from_the_start_of_a_part() {
    let runs = [("20260101-02-b70bcf", 1), ("20260101-02-70c1", 16)];
    let all: Vec<Record> =
        runs.map(|(id, batch)| record(id, |s| s.batch = batch, 0, &[(1.0, 1.0)])).into();
    let table = RunTable::new(&all, &Annotations::default());
    let kept = |filter: &str| Filter::parse(filter).rows(&table).unwrap();
    assert_eq!((kept("b1"), kept("b16"), kept("\"b1\"")), (vec![0], vec![1], vec![0, 1]));
    assert_eq!((kept("70b"), kept("70"), kept("20260101")), (vec![], vec![1], vec![0, 1]));
}

#[test]
fn a_run_is_of_every_experiment_that_found_it_whatever_their_names() {
    let mut all = records();
    all[0].experiment = Some("my test".into());
    all[1].experiment = Some("p2p".into());
    let mut annotations = Annotations::default();
    annotations.edit(&["b".into(), "d".into()], &AnnotationEdit::found_by("my test"));
    let table = RunTable::new(&all, &annotations);
    let kept = |filter: &str| Filter::parse(filter).rows(&table).unwrap();
    assert_eq!(kept("experiment=\"my test\""), [0, 1, 3]);
    assert_eq!(kept("experiment=p2p"), [1]);
    assert_eq!(kept("experiment=my"), [0; 0], "a part of a name is not the name");
    assert_eq!(kept("experiment!=p2p"), [0, 2, 3, 4]);
    let offers = complete("experiment=", 11, &table, 9).offers;
    let offers: Vec<_> = offers.into_iter().map(|offer| (offer.text, offer.about)).collect();
    assert_eq!(offers, [("\"my test\"".into(), "3 runs".into()), ("p2p".into(), String::from("1 run"))]);
}

#[test]
fn a_filter_that_matches_nothing_says_why() {
    let why = |filter: &str| Filter::parse(filter).why_nothing(&table());
    assert_eq!(why("tp:8"), None);
    let told = why("p2p:off tp:5").expect("nothing matches");
    assert!(told.starts_with("'tp:5' matches none of 5 runs; values of tp: "), "{told}");
    assert!(told.contains("16"), "{told}");
    assert_eq!(why("qqqq").as_deref(), Some("'qqqq' matches none of 5 runs"));
    let told = why("link:off").expect("nothing matches");
    assert!(told.ends_with("; did you mean p2p:off?"), "{told}");
    let told = why("tpot>90").expect("nothing matches");
    assert!(told.ends_with("; values of tpot: 2.00 to 9.00"), "{told}");
    let both = why("arch:upper-bound tp:16").expect("each matches, not together");
    assert_eq!(both, "no run matches all of 'arch:upper-bound' (1 run), 'tp:16' (1 run)");
}

#[test]
fn words_and_their_letters_in_order() {
    assert_eq!(kept(""), "abcde");
    assert_eq!(kept("died"), "c");
    assert_eq!(kept("upb"), "d", "letters in order find upper-bound");
    assert_eq!(kept("\"upb\""), "", "quoted they do not");
    assert_eq!(kept("-simulated"), "ac");
    assert_eq!(kept("SIMULATED llama"), "d");
    assert_eq!(kept("\"said \\\"no\\\"\""), "c");
    assert_eq!(kept("desync:4"), "e", "a colon within a word");
    assert_eq!(kept("tp16"), "c", "as labels write it");
    assert_eq!(kept("nothing-of-the-kind"), "");
}

#[test]
fn fields() {
    assert_eq!(kept("tp>=8"), "ac");
    assert_eq!(kept("tp>=8 status=ok"), "a");
    assert_eq!(kept("tpot_p50_ms<2.5"), "b");
    assert_eq!(kept("tpot:3.1"), "a", "what is shown as 3.1");
    assert_eq!(kept("tpot=3.1"), "");
    assert_eq!(kept("provenance!=simulated"), "ac");
    assert_eq!(kept("link=emulated:alpha_us=1,gb_s=2"), "a");
    assert_eq!(kept("model~IN"), "abce");
    assert_eq!(kept("arch:upper p2p:off model:70b"), "d");
    assert_eq!(kept("model:70"), "d");
    assert_eq!(kept("arch:desync|upper"), "de");
    assert_eq!(kept("arch:desync,upper"), "de");
    assert_eq!(kept("tp:8,16"), "ac");
    assert_eq!(kept("tp:8,"), "a", "the second is not typed yet");
    assert_eq!(kept("tp:2..4,16"), "bcde");
    assert_eq!(kept("tp!=8,16"), "bde", "neither");
    assert_eq!(kept("-tp:8,16"), "bde");
    assert_eq!(kept("link:emulated:alpha_us=1,gb_s=2"), "a", "a comma of the value itself");
    assert_eq!(kept("link:emulated:alpha_us=1,gb_s=2,native"), "abcde");
    assert_eq!(kept("link:alpha_us=7,gb_s=2"), "a", "no link is so: two that may be");
    assert_eq!(kept("tp:2..8"), "abde");
    assert_eq!(kept("tp:9.."), "c");
    assert_eq!(kept("ttft>2s"), "d");
    assert_eq!(kept("-tp:2"), "ac");
    assert_eq!(kept("NCCL_ALGO:ring"), "a");
    assert_eq!(kept("env.NCCL_ALGO=ring"), "a");
    assert_eq!(kept("NCCL_ALGO!=ring"), "bcde", "what has none is not it");
    assert_eq!(kept("tpot>0"), "abde", "a run without numbers meets no condition on them");
    let table = table();
    let typing = Filter::parse("tp:").bind(&table).0;
    assert_eq!(typing.rows(&table).len(), 5, "a value that is not typed yet");
}

#[test]
fn exposed_and_hidden_are_shares_and_with_a_unit_of_time_a_time() {
    let mut all = records();
    // 20 % of a long decode phase, 60 % of a short one
    for (record, (exposed_ms, rest_ms)) in all.iter_mut().zip([(40.0, 160.0), (6.0, 4.0)]) {
        let overlap = record.overlap.get_or_insert_default();
        (overlap.comm_ms, overlap.exposed_comm_ms) = (2.0 * exposed_ms, exposed_ms);
        (overlap.compute_ms, overlap.idle_ms, overlap.overlap_pct) = (rest_ms, 0.0, Some(50.0));
    }
    all.truncate(2);
    let table = RunTable::new(&all, &Annotations::default());
    let kept = |filter: &str| Filter::parse(filter).rows(&table).unwrap();
    for filter in ["exposed>30", "exposed>30%", "exposed_pct>30%", "exposed<9ms", "exposed_ms<9"] {
        assert_eq!(kept(filter), [1], "{filter}");
    }
    let times =
        ["exposed>9ms", "exposed_ms>9", "exposed_comm_ms>9ms", "exposed:10ms..50ms", "exposed>0.01s"];
    for filter in times {
        assert_eq!(kept(filter), [0], "{filter}");
    }
    assert_eq!(kept("hidden>20%"), [0, 1]);
    assert!(Filter::parse("hidden>20ms").rows(&table).is_err(), "no column has the hidden time");
    assert!(Filter::parse("exposed_ms>20%").rows(&table).is_err());
    let offers = complete("exposed", 7, &table, 5).offers;
    let offers: Vec<_> =
        offers.iter().map(|offer| (offer.text.as_str(), offer.about.as_str())).collect();
    assert_eq!(offers[..2], [("exposed>", "exposed %"), ("exposed_ms>", "exposed ms")]);
}

/// A title that can be typed names its own column.
#[test]
fn titles_of_columns_are_not_names_of_others() {
    let table = table();
    for (at, column) in table.columns().iter().enumerate() {
        let title = column.field.title.trim_end_matches('%').trim_end();
        assert!(table.find(title).is_none_or(|found| found == at), "{title}");
    }
}

#[test]
fn where_no_more_is_typed_a_condition_has_a_value_and_a_range_an_order() {
    let table = table();
    let refused = |text: &str| Filter::parse(text).rows(&table).unwrap_err().to_string();
    assert!(refused("arch:ladder tp:").contains("'tp:' in the filter has no value"));
    assert!(refused("-tpot>").contains("'-tpot>' in the filter has no value"));
    assert!(refused("tp:4..2").contains("ends before it begins"));
    assert!(Filter::parse("tp:2..2 tag:*").rows(&table).is_ok());
}

#[test]
fn dashes_and_underscores_are_alike() {
    assert_eq!(kept("model:llama_3_70B"), "d");
    assert_eq!(kept("model=LLAMA_3-70b"), "d");
    assert_eq!(kept("upper_bound"), "d", "a word");
    assert_eq!(kept("\"upper_bound\""), "d", "a quoted one, too");
    assert_eq!(kept("prompt-tokens>0"), "abcde", "a name of a field");
    assert_eq!(kept("nccl-algo:ring"), "a");
}

#[test]
fn tags_and_notes() {
    assert_eq!(kept("tag:good"), "abd");
    assert_eq!(kept("tag=good"), "ab");
    assert_eq!(kept("tag=paper tag=good"), "ab");
    assert_eq!(kept("-tag:*"), "ce");
    assert_eq!(kept("note:\"the update\""), "d");
    assert_eq!(kept("note:*"), "d");
    assert_eq!(kept("tags!=good"), "cde");
}

#[test]
fn what_is_wrong_is_told_and_the_rest_holds() {
    for (filter, wanted, help) in [
        ("tpp=2", "'tpp'", "'tp'"),
        ("arhc:ladder", "'arhc'", "'arch'"),
        ("btch:4", "'btch'", "'batch'"),
        ("tp>many", "'many' is not a number", "2..8"),
        ("tp<\"=5\"", "tp<\"=5\": '=5' is not a number", "2..8"),
        ("memory>3lb", "'3lb'", "GB"),
        ("tp:2..x", "'2..x'", "2..8"),
    ] {
        let error = Filter::parse(filter).rows(&table()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let Error::Input { message, help: Some(told) } = error else { panic!("{filter}") };
        assert!(message.contains(wanted) && told.contains(help), "{message}: {told}");
    }
    let (bound, wrong) = Filter::parse("arch:upper tpp=2").bind(&table());
    assert_eq!((bound.rows(&table()), wrong.len()), (vec![3], 1));
}

#[test]
fn letters_that_were_found_are_known() {
    let table = table();
    let found = |filter: &str, name: &str, shown: &str| -> String {
        let (bound, _) = Filter::parse(filter).bind(&table);
        let at = table.find(name).unwrap();
        let mut marks = bound.highlight(at, &table.columns()[at], shown);
        marks.sort_by_key(|m| m.start);
        marks.into_iter().map(|m| &shown[m]).collect::<Vec<_>>().join("|")
    };
    assert_eq!(found("upb", "arch", "upper-bound"), "u|p|b");
    assert_eq!(found("PER", "arch", "upper-bound"), "per");
    assert_eq!(found("model:70b", "model", "llama-3-70b"), "70b");
    assert_eq!(found("model:70b", "hw", "70b"), "", "another column");
    assert_eq!(found("-model:70b -upper", "model", "llama-3-70b upper"), "", "what is not wanted");
    assert_eq!(found("İx", "model", "İx"), "");
}

#[test]
fn names_and_values_are_offered() {
    let table = table();
    let offers = |text: &str| -> Vec<String> {
        complete(text, text.len(), &table, 5).offers.into_iter().map(|o| o.text).collect()
    };
    assert_eq!(offers("arc"), ["arch:"]);
    assert!(offers("tp").starts_with(&["tp:".into(), "tpot>".into()]), "{:?}", offers("tp"));
    assert_eq!(offers("nccl"), ["NCCL_ALGO:"]);
    // as columns are headed
    assert_eq!(offers("sourc"), ["source:"]);
    assert_eq!(offers("differs"), ["setting:"]);
    assert_eq!(offers("ladder arch:"), ["desync:4", "standard", "upper-bound"]);
    assert_eq!(offers("arch:up"), ["upper-bound"]);
    assert_eq!(offers("arch:desync:4|st"), ["standard"]);
    assert_eq!(offers("arch:desync:4,st"), ["standard"]);
    assert_eq!(offers("arch:upper_b"), ["upper-bound"]);
    assert_eq!(offers("link:emulated:alpha_us=1,"), ["emulated:alpha_us=1,gb_s=2"]);
    assert_eq!(offers("-tag:"), ["good", "paper", "goodish"]);
    assert_eq!(offers("tp:"), ["2", "8", "16"]);
    assert_eq!(offers("note:a"), ["\"after the Update\""]);
    assert!(offers("tpot>").is_empty() && offers("").is_empty() && offers("arch:x").is_empty());
    let completion = complete("tp:8 -arch:up more", 13, &table, 5);
    assert_eq!(completion.replaces, 11..13);
    assert_eq!(completion.offers[0].about, "1 run");
}

/// Texts that are likely to hold what the language knows.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("arch:"),
        Just("tp"),
        Just(">="),
        Just("<"),
        Just("!="),
        Just("="),
        Just(":"),
        Just("~"),
        Just("-"),
        Just("\""),
        Just("\\"),
        Just(" "),
        Just("  "),
        Just("2"),
        Just(".."),
        Just("|"),
        Just("*"),
        Just("ladder"),
        Just("tag:"),
        Just("é"),
        Just("tok/s"),
        Just("70b"),
        Just("\t"),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// A line within a value parts no alternatives where a run has that value.
#[test]
fn a_value_with_a_line_in_it_is_one() {
    let mut annotations = Annotations::default();
    annotations.edit(&["d".into()], &AnnotationEdit::note("left"));
    annotations.edit(&["e".into()], &AnnotationEdit::note("left|right"));
    let table = RunTable::new(&records(), &annotations);
    let kept = |filter: &str| Filter::parse(filter).rows(&table).unwrap();
    assert_eq!(kept("note=left|right"), [4]);
    assert_eq!(kept("note=left|other"), [3]);
    assert_eq!(kept("note=left"), [3]);
    let completion = complete("note=left|", 10, &table, 9);
    assert_eq!((completion.replaces, completion.offers.len()), (5..10, 1));
    assert_eq!(completion.offers[0].text, "left|right");
}

/// A value that begins as a longer operator ends is not taken for its end, and a backslash stays one.
#[test]
fn values_that_would_be_read_as_something_else_are_quoted() {
    for text in ["2<\"=\"", "tpot>\"=5\"", "tag:\"a|b\"", "note:\"a\\\\ b\"", "tag=\"=x\""] {
        let filter = Filter::parse(text);
        assert_eq!(Filter::parse(&filter.to_string()), filter, "{text} prints as {filter}");
    }
    assert_eq!(Filter::parse("2<\"=\"").to_string(), "2<\"=\"");
    assert_eq!(Filter::parse("tp=\"8\"").to_string(), "tp=8");
}

proptest! {
    #[test]
    fn what_was_read_prints_as_what_reads_the_same(text in text()) {
        let filter = Filter::parse(&text);
        let printed = filter.to_string();
        prop_assert_eq!(Filter::parse(&printed), filter, "{}", printed);
    }

    #[test]
    fn any_text_is_a_filter_and_can_be_completed(text in "\\PC{0,40}", other in text(), cut in 0usize..60) {
        let table = table();
        for text in [text, other] {
            let (bound, _) = Filter::parse(&text).bind(&table);
            prop_assert!(bound.rows(&table).is_sorted());
            let completion = complete(&text, cut, &table, 8);
            for offer in completion.offers {
                let mut taken = text.clone();
                taken.replace_range(completion.replaces.clone(), &offer.text);
                Filter::parse(&taken).bind(&table);
            }
            for (at, column) in table.columns().iter().enumerate() {
                for found in bound.highlight(at, column, &text) {
                    prop_assert!(text.get(found).is_some());
                }
            }
        }
    }

    #[test]
    fn a_term_and_its_opposite_part_the_runs(text in "[a-z0-9:=<>.*|]{1,10}") {
        let table = table();
        let (yes, no) = (Filter::parse(&text), Filter::parse(&format!("-{text}")));
        if let ([_], Ok(yes), Ok(no)) = (yes.terms.as_slice(), yes.rows(&table), no.rows(&table)) {
            // a value that is not typed yet is no condition
            prop_assume!(yes.len() < 5 || no.len() < 5);
            let mut all = [yes, no].concat();
            all.sort_unstable();
            prop_assert_eq!(all, [0, 1, 2, 3, 4]);
        }
    }
}
