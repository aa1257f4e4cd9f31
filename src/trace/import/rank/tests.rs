//! Ranks and recordings by names and claims.

use super::*;
use base::error::Error;

fn named(names: &[&str]) -> Vec<Claim> {
    let claim = |name: &&str| Claim { name: Name::parse(name), parts: vec![None], ..Claim::default() };
    names.iter().map(claim).collect()
}

fn with_own(names: &[(&str, u32)], world_size: u64) -> Vec<Claim> {
    let claim = |(name, own): &(&str, u32)| Claim {
        name: Name::parse(name),
        own: Some(*own),
        world_size: Some(world_size),
        parts: vec![None],
        ..Claim::default()
    };
    names.iter().map(claim).collect()
}

fn ranks(claims: &[Claim]) -> (Vec<u32>, String) {
    let decision = decide(claims);
    (decision.ranks.concat(), decision.how.unwrap_or_default())
}

fn warned(claims: &[Claim], words: &str) -> bool {
    decide(claims).warnings.iter().any(|warning| warning.contains(words))
}

/// Names of the chosen recording's files, and the note.
fn chosen(claims: &[Claim], wanted: Option<&str>) -> (Vec<String>, String) {
    let chosen = choose(claims, wanted).unwrap();
    (chosen.files.iter().map(|at| claims[*at].name.text.clone()).collect(), chosen.notes.join("; "))
}

#[test]
fn names_give_ranks_where_they_differ_as_ranks_do() {
    for (names, expected, how) in [
        (&["rank_1.json", "rank_0.json", "rank_10.json"][..], &[1, 0, 10][..], "ranks from file names"),
        (&["a_1.json", "a_0.json"], &[1, 0], "ranks from file names"),
        (&["p-TP-0.json", "p-TP-1.json"], &[0, 1], "ranks from file names"),
        (&["tp0.json", "tp1.json"], &[0, 1], "ranks from file names"),
        (&["h_71.1694128201501.json", "h_72.1694128201502.json"], &[0, 1], "ranks from order"),
        (&["h_0.1694128201501.json", "h_1.1694128201502.json"], &[0, 1], "ranks from file names"),
        (&["trace_48213.json", "trace_48214.json"], &[0, 1], "ranks from order"),
        (&["b200.json", "h100.json"], &[0, 1], "ranks from order"),
        (&["llama_tp8.json", "qwen_tp8.json"], &[0, 1], "ranks from order"),
        (&["frankfurt_3.json", "oslo_7.json"], &[0, 1], "ranks from order"),
        (&["frankfurt_3.json", "frankfurt_7.json"], &[3, 7], "ranks from file names"),
        (&["report1.sqlite", "report2.sqlite"], &[0, 1], "ranks from order"),
        (&["report_rank1.sqlite", "report_rank0.sqlite"], &[1, 0], "ranks from file names"),
        (&["nodeb_rank12.json", "nodea_rank4.json"], &[12, 4], "ranks from file names"),
        (&["rank_1/trace.json", "rank_0/trace.json"], &[1, 0], "ranks from file names"),
        (&["1/trace.json", "0/trace.json"], &[1, 0], "ranks from file names"),
        (
            &["x-TP-0-DP-1.json", "x-TP-1-DP-0.json", "x-TP-0-DP-0.json", "x-TP-1-DP-1.json"],
            &[2, 1, 0, 3],
            "ranks from file names",
        ),
        (&["b200_tp8.json"], &[0], ""),
        (&["rank3.json"], &[3], "ranks from file names"),
    ] {
        let (ranks, found) = ranks(&named(names));
        assert_eq!(ranks, expected, "{names:?}: {found}");
        assert!(found.starts_with(how), "{names:?}: {found}");
    }
}

#[test]
fn the_files_own_words_win_and_contradictions_are_named() {
    let claims = with_own(&[("rank_1.json", 3), ("rank_2.json", 2)], 4);
    assert_eq!(ranks(&claims), (vec![3, 2], "ranks from distributedInfo".into()));
    assert!(warned(&claims, "rank_1.json: the name says rank 1, the file rank 3; taken as rank 3"));
    assert!(warned(&claims, "2 of 4 ranks here; no trace of ranks 0-1"));
    assert_eq!(decide(&claims).missing, 2);

    let claims = with_own(&[("rank_1.json", 0), ("rank_0.json", 0)], 2);
    assert_eq!(ranks(&claims), (vec![1, 0], "ranks from file names".into()));
    assert!(warned(&claims, "2 files say in distributedInfo that they are rank 0"));

    // every engine of a data-parallel pair is rank 0 of 1
    assert_eq!(ranks(&with_own(&[("dp1.json", 0), ("dp0.json", 0)], 1)).0, [1, 0]);

    let mut claims = named(&["a.json", "b.json"]);
    for (claim, text) in claims.iter_mut().zip(["[TP01] 0", "[TP00] 0"]) {
        claim.parts = vec![label(text)];
    }
    assert_eq!(ranks(&claims), (vec![1, 0], "ranks from labels or communicators of processes".into()));

    let mut claims = with_own(&[("rank_0.json", 0), ("rank_5.json", 0)], 8);
    claims[1].own = None;
    assert_eq!(ranks(&claims).0, [0, 5]);
    assert!(warned(&claims, "2 of 8 ranks here; no trace of ranks 1-4, 6-7"));
}

#[test]
fn parts_of_merged_files_are_ranks_by_their_labels_or_in_order() {
    let mut claims = named(&["merged.json"]);
    claims[0].parts = vec![label("[TP01] 0"), label("[TP00] 0")];
    assert_eq!(decide(&claims).ranks, [[1, 0]]);
    claims[0].parts = vec![None; 3];
    claims.extend(named(&["other.json"]));
    assert_eq!(decide(&claims).ranks, [vec![0, 1, 2], vec![3]]);
}

#[test]
fn recordings_are_told_apart_by_step_stage_time_and_name() {
    let steps = named(&[
        "worker0_step_12.16941282015012.pt.trace.json",
        "worker0_step_24.16941282015024.pt.trace.json",
        "worker1_step_12.16941282015112.pt.trace.json",
        "worker1_step_24.16941282015124.pt.trace.json",
    ]);
    let (files, note) = chosen(&steps, None);
    assert_eq!(files, [steps[1].name.text.as_str(), &steps[3].name.text]);
    assert!(
        note.starts_with(
            "2 recordings of the same ranks; opened 'step_24' (2 ranks, the newest that has all"
        ),
        "{note}"
    );
    assert!(note.ends_with("chooses another: 'step_12' (2 ranks)"), "{note}");
    assert_eq!(chosen(&steps, Some("STEP_12")).0, [steps[0].name.text.as_str(), &steps[2].name.text]);
    let error = choose(&steps, Some("step_1")).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let Error::Input { message, help } = error else { panic!("an input error") };
    assert_eq!(message, "no recording 'step_1'");
    assert!(help.unwrap().contains("'step_24' (2 ranks), 'step_12' (2 ranks)"));

    // the newest lacks a rank
    assert_eq!(chosen(&steps[..3], None).0, [steps[0].name.text.as_str(), &steps[2].name.text]);

    let mut stages =
        named(&["7-TP-0-DECODE.json", "7-TP-0-EXTEND.json", "7-TP-1-DECODE.json", "7-TP-1-EXTEND.json"]);
    for (claim, time) in stages.iter_mut().zip([5, 9, 6, 8]) {
        claim.time_ns = Some(time);
    }
    assert_eq!(
        chosen(&stages, None).0,
        ["7-TP-0-EXTEND.json", "7-TP-1-EXTEND.json"],
        "the later in time"
    );
    assert_eq!(chosen(&stages, Some("decode")).0, ["7-TP-0-DECODE.json", "7-TP-1-DECODE.json"]);

    let profiles = named(&["41-TP-0.json", "41-TP-1.json", "52-TP-0.json", "52-TP-1.json"]);
    assert_eq!(chosen(&profiles, None).0, ["52-TP-0.json", "52-TP-1.json"]);
    assert_eq!(chosen(&profiles, Some("41")).0, ["41-TP-0.json", "41-TP-1.json"]);

    let one = named(&["rank0.json", "rank1.json", "nodeb_rank2.json"]);
    assert_eq!(
        chosen(&one, None),
        (vec!["rank0.json".into(), "rank1.json".into(), "nodeb_rank2.json".into()], String::new())
    );
    assert!(choose(&one, Some("x")).unwrap().found(Some("x")).is_err());
}

#[test]
fn recordings_of_handlers_are_told_apart_by_the_nearest_time_stamps() {
    // two processes, each rank profiled twice; rank 1 lost its first trace
    let names =
        [("a_71.1694128201000.json", 0), ("a_71.1694128901000.json", 0), ("a_72.1694128901900.json", 1)];
    let (files, note) = chosen(&with_own(&names, 2), None);
    assert_eq!(files, ["a_71.1694128901000.json", "a_72.1694128901900.json"]);
    assert!(note.contains("'1694128201000' (1 rank)"), "{note}");
    // without ranks in the files, processes are ranks
    let names = [
        "a_71.100000000001.json",
        "a_72.100000000002.json",
        "a_71.100000000101.json",
        "a_72.100000000103.json",
    ];
    assert_eq!(chosen(&named(&names), None).0, names[2..]);
    // a front end's trace goes with the recording of its time
    let names = [
        "rank0.100000000001.json",
        "rank0.100000000101.json",
        "h.async_llm.100000000002.json",
        "h.async_llm.100000000102.json",
    ];
    assert_eq!(chosen(&named(&names), None).0, [names[1], names[3]]);
}

fn at(coordinates: &[(Dimension, u32)]) -> Position {
    let mut position = Position::default();
    coordinates.iter().for_each(|(dimension, at)| position.set(*dimension, *at));
    position
}

#[test]
fn ranks_follow_from_the_fewest_dimensions_that_tell_positions_apart() {
    use Dimension::{Dp, Ep, Node, Pp, Rank, Tp};
    for (positions, expected) in [
        (vec![at(&[(Rank, 3), (Tp, 1)]), at(&[(Rank, 0), (Tp, 0)])], Some(vec![3, 0])),
        (
            vec![at(&[(Tp, 0), (Dp, 0)]), at(&[(Tp, 1), (Dp, 0)]), at(&[(Tp, 2), (Dp, 1)])],
            Some(vec![0, 1, 2]),
        ),
        (
            vec![
                at(&[(Tp, 0), (Dp, 0)]),
                at(&[(Tp, 1), (Dp, 0)]),
                at(&[(Tp, 0), (Dp, 1)]),
                at(&[(Tp, 1), (Dp, 1)]),
            ],
            Some(vec![0, 1, 2, 3]),
        ),
        (vec![at(&[(Tp, 1), (Pp, 1)]), at(&[(Tp, 1), (Pp, 0)])], Some(vec![3, 1])),
        (vec![at(&[(Node, 17), (Rank, 1)]), at(&[(Node, 4), (Rank, 1)])], Some(vec![3, 1])),
        (vec![at(&[(Ep, 5)]), at(&[(Ep, 6)])], Some(vec![5, 6])),
        (vec![at(&[(Dp, 2), (Tp, 5)]), at(&[(Dp, 0), (Tp, 1)])], Some(vec![5, 1])),
        (vec![at(&[(Dp, 2)]), at(&[(Dp, 0)])], Some(vec![2, 0])),
        (vec![at(&[(Dp, 2)]), at(&[(Tp, 2)])], None),
        (vec![at(&[(Dp, 60_000), (Tp, 2)]), at(&[(Dp, 1), (Tp, 2)]), at(&[(Dp, 1), (Tp, 0)])], None),
    ] {
        assert_eq!(ranks_at(&positions), expected, "{positions:?}");
    }
}
