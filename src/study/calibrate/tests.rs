//! Calibration finds constants that are known, says what the data do not tell, and refuses bad data.

use super::points::parse;
use super::*;
use machine::hardware::{Profile, Stack, Target};
use run::sim::Simulator;

const HEADER: &str =
    "model,architecture,tp,batch,p2p,prompt_tokens,output_tokens,tokens_per_s,decode_s,prefill_s";

fn target() -> Target {
    Target { profile: Profile::load("h100_sxm").unwrap(), stack: Stack::load("gpt-fast").unwrap() }
}

/// Predictions of `truth` for some cells of a small model, as if they were measured.
fn measured(truth: &Target) -> Vec<CalibrationPoint> {
    let mut text = format!("{HEADER}\n");
    for architecture in ["standard", "ladder", "upper-bound"] {
        for tp in [2, 4, 8] {
            for batch in [1, 16] {
                text += &format!("llama-3.2-1b,{architecture},{tp},{batch},on,512,64,1,,\n");
            }
        }
    }
    let mut points = parse("made.csv", &text).unwrap();
    let simulator = Simulator::default();
    for point in &mut points {
        let shape = simulator.model(&point.spec.model).unwrap().shape.clone();
        let cell = simulator.cell_on(&point.spec, &shape, truth.clone().into()).unwrap();
        let prediction = cell.predict();
        let (decode, prefill) = (prediction.decode_ms / 1e3, prediction.prefill_ms / 1e3);
        point.decode_s = Some(decode);
        point.prefill_s = Some(prefill);
        let tokens = f64::from(point.spec.batch * point.spec.output_tokens);
        point.tokens_per_s = tokens / (decode + prefill);
    }
    points
}

#[test]
fn known_constants_are_found_again_and_others_are_left_alone() {
    let mut truth = target();
    truth.stack.launch_us = 3.7;
    truth.stack.matvec.efficiency = 0.71;
    truth.stack.collective.latency_scale = 1.9;
    let points = measured(&truth);
    let points: Vec<&CalibrationPoint> = points.iter().collect();
    let keys = ["launch_us", "matvec.efficiency", "collective.latency_scale"].map(str::to_owned);
    let found = fit(&points, &target(), Some(&keys)).unwrap();
    for (constant, value) in found.constants.iter().zip([3.7, 0.71, 1.9]) {
        let off = (constant.value / value - 1.0).abs();
        assert!(off < 0.01, "{}: {} for {value}", constant.parameter.key, constant.value);
        assert!(constant.interval.is_some());
    }
    let all = errors(&residuals(&points, &found.target).unwrap()).unwrap();
    assert!(all.tokens_per_s_pct < 0.1 && all.speedup_pct.unwrap() < 0.1, "{all:?}");
    assert_eq!(found.target.stack.contention, target().stack.contention);
}

#[test]
fn what_a_machine_reaches_is_fitted_where_it_is_named() {
    let mut truth = target();
    truth.profile.matvec_scale = 0.8;
    let points = measured(&truth);
    let points: Vec<&CalibrationPoint> = points.iter().collect();
    // else it stays, and so do the others of them
    let others = fit(&points, &target(), None).unwrap();
    assert!(others.constants.iter().all(|constant| !constant.parameter.is_by_name()));
    assert_eq!(others.target.profile.matvec_scale, target().profile.matvec_scale);
    let found = fit(&points, &target(), Some(&["matvec_scale".to_owned()])).unwrap();
    assert!((found.constants[0].value / 0.8 - 1.0).abs() < 0.01, "{}", found.constants[0].value);
    assert_eq!(found.target.profile.matvec_scale, found.constants[0].value);
}

#[test]
fn data_with_p2p_on_say_nothing_of_the_link_without() {
    let points = measured(&target());
    let points: Vec<&CalibrationPoint> = points.iter().collect();
    let found = fit(&points, &target(), None).unwrap();
    assert!(found.constants.iter().all(|c| !c.parameter.is_host_link()));
    assert!(found.constants.iter().all(|c| c.parameter.key != "link.inter_node.alpha_us"));
    assert_eq!(found.target.profile.link, target().profile.link);
}

#[test]
fn held_out_parts_are_named_and_summed() {
    let points = measured(&target());
    let points: Vec<&CalibrationPoint> = points.iter().collect();
    let keys = ["launch_us".to_owned(), "matvec.efficiency".to_owned()];
    let held = cross_validate(&points, &target(), Some(&keys)).unwrap();
    let names: Vec<&str> = held.iter().map(|h| h.held_out.as_str()).collect();
    assert_eq!(
        names,
        ["tp 2", "tp 4", "tp 8", "each tp in turn", "batch 1", "batch 16", "each batch in turn"]
    );
    assert_eq!(held.iter().map(|h| h.errors.points).collect::<Vec<_>>(), [6, 6, 6, 18, 9, 9, 18]);
}

#[test]
fn every_constant_starts_within_its_bounds() {
    for parameter in &PARAMETERS {
        let (low, high) = parameter.bounds;
        assert!(low < parameter.start && parameter.start < high, "{}", parameter.key);
        assert!(!parameter.meaning.is_empty());
        // where it is written to, there it is
        let Target { profile, stack } = target();
        let file = match parameter.is_of_profile() {
            true => serde_json::to_value(profile).unwrap(),
            false => serde_json::to_value(stack).unwrap(),
        };
        let there = parameter.key.split('.').try_fold(&file, |at, key| at.get(key));
        assert_eq!(there.is_some(), !parameter.is_host_link(), "{}", parameter.key);
    }
}

#[test]
fn the_published_table_can_be_fitted_as_it_is() {
    let text = include_str!("../analysis/published/ladder-residual.tsv");
    let points = parse("ladder-residual.tsv", text).unwrap();
    assert_eq!(points.len(), 52);
    let (decode, prefill) = (points[0].decode_s.unwrap(), points[0].prefill_s.unwrap());
    assert!((decode - 511.0 * 0.02798).abs() < 1e-9 && (prefill - 0.2152).abs() < 1e-9);
    assert_eq!((points[51].decode_s, points[51].prefill_s), (None, None));
}

#[test]
fn bad_data_are_refused_with_their_place() {
    let refused = |text: &str| parse("d.csv", text).unwrap_err().to_string();
    let row = "llama-3-70b,standard,2,1,on,1024,512,35.42,14.3,0.2";
    assert!(refused("").contains("d.csv: it is empty"));
    assert!(refused(HEADER).contains("no rows"));
    assert!(
        refused(&format!("{}\n{row}", HEADER.replace("batch", "bach")))
            .contains("unknown column 'bach'")
    );
    assert!(refused(&format!("{HEADER}\n{row},7")).contains("d.csv:2: has 11 fields, the header 10"));
    for (from, to, message) in [
        (",2,1,", ",0,1,", "d.csv:2: tp is '0'"),
        (",on,", ",yes,", "d.csv:2: p2p is 'yes'"),
        ("35.42", "-1", "d.csv:2: tokens_per_s is '-1'"),
        ("35.42", "", "d.csv:2: tokens_per_s is ''"),
        ("standard", "standart", "d.csv:2: architecture is 'standart'"),
    ] {
        let message_of = refused(&format!("{HEADER}\n{}", row.replacen(from, to, 1)));
        assert!(message_of.contains(message), "{message_of}");
    }
    assert_eq!(parse("d.csv", &format!("{HEADER}\n\n# a note\n{row}\n")).unwrap().len(), 1);
}
