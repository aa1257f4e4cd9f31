//! Verdicts on small traces: causes, shares and words.

use super::words::percent;
use super::*;
use crate::analysis::trace_report;
use plan::{Lane, Phase};
use trace::testing::{span, trace};
use trace::{CollectiveInfo, ProcessGroup};

fn judged(spans: Vec<trace::Span>) -> Verdict {
    let trace = trace(spans);
    let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
    verdict(&trace, &trace_report(&trace, &decode), &decode, &Setting::default())
}

/// Two ranks that compute for so long, and then reduce until 100 us.
fn ranks(first: i64, second: i64) -> Vec<trace::Span> {
    let of = |rank, at| [span(rank, Lane::Compute, 0, at), span(rank, Lane::Comm, at, 100_000)];
    of(0, first).into_iter().chain(of(1, second)).collect()
}

#[test]
fn transfer_is_told_from_waiting_by_the_last_rank_to_arrive() {
    for (second, cause) in [
        (40_000, Cause::TransferDominated),
        (60_000, Cause::TransferDominated),
        (78_000, Cause::Mixed),
        (98_000, Cause::SkewDominated),
    ] {
        let found = judged(ranks(40_000, second));
        assert_eq!(found.cause, cause, "{second}: {:?}", found.collectives);
        assert_eq!(found.collectives[0].cause, cause);
        assert!(found.sentences.iter().any(|said| said.contains(cause.as_str())), "{found:?}");
    }
    let alone = judged(vec![span(0, Lane::Compute, 0, 40), span(0, Lane::Comm, 40, 100)]);
    assert_eq!((alone.cause, alone.skew), (Cause::Inconclusive, None));
    assert!(alone.needs[0].contains("all ranks"), "{:?}", alone.needs);
}

#[test]
fn a_cause_holds_only_if_no_missing_rank_can_change_it() {
    assert_eq!(Cause::of(1.0, 9.0, 0.0), Cause::SkewDominated);
    assert_eq!(Cause::of(0.0, 8.0, 2.0), Cause::SkewDominated, "at least 80 % wait");
    assert_eq!(Cause::of(0.0, 1.0, 9.0), Cause::Inconclusive, "transfer, or waiting for a missing rank");
    assert_eq!(Cause::of(0.0, 5.0, 5.0), Cause::Inconclusive);
    assert_eq!(Cause::of(5.0, 5.0, 0.1), Cause::Mixed);
    assert_eq!(Cause::of(0.0, 0.0, 0.0), Cause::Inconclusive);
    let mut trace = trace(ranks(40_000, 60_000));
    let group =
        ProcessGroup { name: "1".into(), size: 4, ranks: vec![0, 1, 2, 3], ..Default::default() };
    trace.meta.groups = vec![group];
    trace.operations[1].collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
    trace.meta.import = Some(Default::default());
    let all = Selection::default();
    let found = verdict(&trace, &trace_report(&trace, &all), &all, &Setting::default());
    let row = &found.collectives[0];
    assert_eq!(
        (found.cause, row.cause, row.transfer_share),
        (Cause::Inconclusive, Cause::Inconclusive, None)
    );
    // rank 0 waits 20 of its 60 us, rank 1 none of its 40
    assert_eq!(row.waited_share_at_least, Some(0.2));
    assert!(
        found.sentences[1].contains("(at least 20 % of its time waits for slower ranks)"),
        "{found:?}"
    );
    assert!(found.needs[0].contains("ranks were not recorded"), "{:?}", found.needs);
    assert!(!found.sentences.concat().contains("is transfer"), "{:?}", found.sentences);
}

/// Two ranks match in one group; nearly all of the time is in a group whose other rank has no file.
#[test]
fn collectives_without_a_match_have_no_cause() {
    let mut trace = trace(ranks(40_000, 60_000));
    let group = |name: &str, ranks: Vec<u32>| ProcessGroup {
        name: name.into(),
        size: ranks.len() as u32,
        ranks,
        ..Default::default()
    };
    trace.meta.groups = vec![group("1", vec![0, 1]), group("2", vec![0, 5])];
    trace.meta.import = Some(Default::default());
    let matched = &mut trace.operations[1];
    matched.collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
    let mut other = matched.clone();
    other.name = "decode/L0/mlp/other".into();
    other.collective = Some(CollectiveInfo { group: Some(1), ..Default::default() });
    trace.operations.push(other);
    let operation = trace.operations.len() as u32 - 1;
    trace.spans.push(Span { operation, ..span(0, Lane::Comm, 200_000, 2_000_000) });
    trace.spans.sort_by_key(|span| (span.rank, span.start_ns));
    let all = Selection::default();
    let found = verdict(&trace, &trace_report(&trace, &all), &all, &Setting::default());
    assert_eq!(found.cause, Cause::Inconclusive, "{:?}", found.collectives);
    assert!(found.needs[0].contains("no match on another rank"), "{:?}", found.needs);
}

#[test]
fn what_does_not_communicate_has_nothing_to_mend() {
    let found = judged(vec![span(0, Lane::Compute, 0, 40)]);
    assert_eq!(found.headline, "no communication, 100 % kernels in decode/L*/mlp/down");
    assert!(found.remedies.is_empty() && found.not_rewired.is_none() && found.needs.is_empty());
}

#[test]
fn shares_are_neither_nothing_nor_all_where_they_are_not() {
    let told = |share: f64| percent(share);
    let shares = [0.0, 0.004, 0.0253, 0.05, 0.126, 0.995, 1.0];
    let words = ["0 %", "0.4 %", "2.5 %", "5 %", "13 %", "99.5 %", "100 %"];
    assert_eq!(shares.map(told), words);
}

/// One stage computes while the other waits, and the reverse.
#[test]
fn bubbles_of_pipeline_stages_are_named_with_their_share() {
    let stage = |rank, at| span(rank, Lane::Compute, at, at + 40_000);
    let mut trace = trace(vec![stage(0, 0), stage(1, 40_000), stage(0, 80_000), stage(1, 120_000)]);
    let of = |trace: &Trace| {
        let all = Selection::default();
        verdict(trace, &trace_report(trace, &all), &all, &Setting::default())
    };
    assert_eq!(of(&trace).stages, None);
    trace.meta.spec = Some(table::Spec { pp: 2, ..Default::default() });
    let found = of(&trace);
    let stages = found.stages.unwrap();
    assert_eq!((stages.pp, stages.micro_batches), (2, 1));
    let idle = format!("The 2 pipeline stages are idle {} of the time", percent(stages.idle_share));
    assert!(stages.idle_share > 0.3 && stages.idle_share <= 0.5, "{stages:?}");
    assert!(found.sentences.iter().any(|said| said.starts_with(&idle)), "{:?}", found.sentences);
}

/// A run of our own with an engine's host time between its operations.
#[test]
fn waiting_for_the_host_in_an_own_trace_is_one_number() {
    let with_host = |us: i64| {
        let at = 40_000 + 1_000 * us;
        judged(vec![
            span(0, Lane::Compute, 0, 40_000),
            span(0, Lane::Compute, at, at + 50_000),
            span(0, Lane::Comm, at + 50_000, at + 60_000),
        ])
    };
    let much = with_host(100);
    assert_eq!((much.host_share, much.has_graphs), (Some(0.5), false));
    assert!(much.headline.starts_with("50 % waiting for the host, "), "{}", much.headline);
    let waits = "The GPU waits for the host 100 of 200 us (50 %) per rank. First reduce the host's work";
    assert!(much.sentences[0].starts_with(waits), "{:?}", much.sentences);
    let some = with_host(15);
    let share = some.host_share.unwrap();
    assert!((share - 15.0 / 115.0).abs() < 1e-9, "{share}");
    let idle = format!("(13 %) per rank: {} waiting for the host.", percent(share));
    assert!(some.sentences[0].ends_with(&idle), "{:?}", some.sentences);
}
