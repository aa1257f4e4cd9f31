//! Costs of collectives.

use super::*;
use crate::hardware::{CollectiveScale, CostSource};

fn us(profile: &Profile, collective: Collective, tp: u32, bytes: u64) -> (f64, CostSource) {
    let (cost, used) = profile.collective(collective, P2p::On, tp, CollectiveScale::ALONE);
    assert_eq!(used, collective, "{}", profile.name);
    cost.us(bytes as f64)
}

#[test]
fn every_measured_point_comes_back_on_its_gpu_and_tp() {
    assert!(MEASURED.len() >= 7, "the rows parse");
    for rows in MEASURED.iter() {
        assert_eq!(rows.bytes.len(), rows.us.len());
        assert!(rows.beside.is_none() || rows.beside_us.len() == rows.us.len());
        for gpu in rows.gpus.iter().filter(|gpu| *gpu != "gb300") {
            let profile = Profile::load(gpu).unwrap();
            for (&bytes, &wanted) in rows.bytes.iter().zip(&rows.us) {
                let (found, source) = us(&profile, rows.collective, rows.tp, bytes);
                assert!((found / wanted - 1.0).abs() < 1e-9, "{gpu} {bytes}: {found} for {wanted}");
                assert_eq!(source, CostSource::Table);
            }
        }
    }
}

#[test]
fn an_engines_kernels_come_back_and_nccl_takes_what_it_reduces_faster() {
    let of = |gpu: &str, engine: EngineVersion, collective, tp, bytes: u64| {
        let profile = Profile::load(gpu).unwrap();
        let (cost, used) =
            profile.collective_in(Some(engine), collective, P2p::On, tp, CollectiveScale::ALONE);
        assert_eq!(used, collective);
        let (us, source) = cost.us(bytes as f64);
        assert!((cost.alone_us(bytes as f64) / us - 1.0).abs() < 1e-12);
        (us, source)
    };
    let us = |gpu, engine, collective, tp, bytes| of(gpu, (engine, None), collective, tp, bytes);
    let one_shot = Collective::OneShot;
    let near = |(us, source): (f64, CostSource), wanted: f64| {
        assert!((us / wanted - 1.0).abs() < 1e-9 && source == CostSource::Table, "{us} for {wanted}");
    };
    near(us("h100_sxm", Engine::Vllm, one_shot, 8, 16_384), 5.31);
    near(us("h100_sxm", Engine::TrtLlm, one_shot, 8, 16_384), 3.56);
    near(us("b200_sxm", Engine::Sglang, one_shot, 4, 65_536), 5.53);
    // the oldest version that is not older: 0.5.9 for 0.5, 1.2 for 1.1, 0.19 for 0.15
    near(of("b200_sxm", (Engine::Sglang, Some([0, 5])), one_shot, 4, 65_536), 7.96);
    near(of("h100_sxm", (Engine::TrtLlm, Some([1, 1])), one_shot, 8, 16_384), 3.98);
    near(of("h100_sxm", (Engine::Vllm, Some([0, 15])), one_shot, 8, 262_144), 10.7);
    near(of("h100_sxm", (Engine::Vllm, Some([0, 12])), one_shot, 8, 262_144), 14.7);
    // a fused all-reduce is FlashInfer's, whatever the engine
    near(us("b200_sxm", Engine::Vllm, Collective::Fused, 8, 16_384), 5.93);
    // behind PCIe switches NCCL is faster for 1 MiB
    let nccl = |bytes: u64| {
        let profile = Profile::load("l40s").unwrap();
        profile.collective(Collective::Nccl, P2p::On, 4, CollectiveScale::ALONE).0.us(bytes as f64)
    };
    assert_eq!(us("l40s", Engine::Vllm, one_shot, 4, 1 << 20), nccl(1 << 20));
    // without an engine the profile's own table
    let profile = Profile::load("h100_sxm").unwrap();
    let plain = |engine| {
        let scale = CollectiveScale::ALONE;
        profile.collective_in(engine, one_shot, P2p::On, 8, scale).0.us(16_384.0)
    };
    assert_eq!(plain(None), super::tests::us(&profile, one_shot, 8, 16_384));
}

#[test]
fn no_message_takes_less_than_a_smaller_one_and_every_scaled_number_says_by_what() {
    let family = [Collective::Symmetric, Collective::TwoShot, Collective::Multimem, Collective::Fused];
    for profile in Profile::built_in() {
        for collective in family.into_iter().filter(|one| !profile.link.lacks(*one)) {
            for tp in [2, 4, 8] {
                let times: Vec<f64> = (16..124)
                    .map(|quarter| {
                        us(&profile, collective, tp, 2_f64.powf(f64::from(quarter) / 4.0) as u64).0
                    })
                    .collect();
                let rises = times.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-9));
                assert!(rises && times[0] > 1.0, "{} {collective} tp {tp}: {times:?}", profile.name);
            }
            let table = profile.link.table(collective).unwrap();
            for point in table.tp.values() {
                let note = point.note.as_deref().unwrap();
                let (low, _) = point.measured_bytes.unwrap();
                assert_eq!(
                    low == 0,
                    note.contains("not measured") || note.contains("as at TP"),
                    "{note}"
                );
                assert!(note.contains("scaled") || note.contains("in proportion"), "{note}");
            }
        }
    }
}

#[test]
fn a_gpu_without_the_switch_has_nothing_of_it() {
    let profile = Profile::load("mi300x").unwrap();
    for collective in [Collective::Multimem, Collective::Symmetric] {
        let (_, used) = profile.collective(collective, P2p::On, 8, CollectiveScale::ALONE);
        assert_eq!(used, Collective::Nccl, "{collective}");
    }
    for gpu in ["l40s", "rtx_pro_6000", "h100_pcie"] {
        let profile = Profile::load(gpu).unwrap();
        let (_, used) = profile.collective(Collective::Fused, P2p::On, 4, CollectiveScale::ALONE);
        assert_eq!(used, Collective::Nccl, "{gpu}");
    }
    assert!(
        !profile.link.p2p_on.is_measured(8)
            || profile.link.p2p_on.note(8).unwrap().contains("not measured")
    );
}

#[test]
fn faster_collectives_stay_faster_where_they_were_not_measured() {
    let h100 = Profile::load("h100_sxm").unwrap();
    for tp in [2, 4, 8] {
        for bytes in [16_384, 262_144] {
            let nccl = us(&h100, Collective::Nccl, tp, bytes).0;
            for collective in [Collective::Symmetric, Collective::Multimem, Collective::Fused] {
                let (faster, source) = us(&h100, collective, tp, bytes);
                assert!(faster < nccl && source == CostSource::Calibrated, "{collective} {tp} {bytes}");
            }
        }
    }
    // a fused all-reduce of one row takes about what a one-shot one takes
    let fused = us(&h100, Collective::Fused, 8, 16_384).0;
    let one_shot = us(&h100, Collective::OneShot, 8, 16_384).0;
    assert!(fused > one_shot && fused < 1.3 * one_shot, "{fused} {one_shot}");
}

#[test]
fn the_fastest_collective_is_the_minimum_and_switches_where_curves_cross() {
    let h100 = Profile::load("h100_sxm").unwrap();
    for tp in [2, 4, 8] {
        let (cost, used) = h100.collective(Collective::Fastest, P2p::On, tp, CollectiveScale::ALONE);
        assert_eq!(used, Collective::Fastest);
        let least = |bytes: u64| {
            let of = |one| us(&h100, one, tp, bytes).0;
            let all = Collective::ALL.into_iter().filter(|one| one.about().is_choice);
            all.map(of).fold(f64::INFINITY, f64::min)
        };
        let switches = cost.switches();
        assert!(switches.len() > 1 && switches[0].0 == 0, "{tp}: {switches:?}");
        for pair in switches.windows(2) {
            assert!(pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1);
        }
        for bytes in [1024, 16_384, 300_000, 1 << 20, 1 << 24, 1 << 28] {
            assert_eq!(cost.us(bytes as f64).0, least(bytes), "{tp} {bytes}");
            let (_, named) = switches.iter().rev().find(|(from, _)| *from <= bytes).unwrap();
            assert_eq!(cost.choice(bytes as f64), Some(*named), "{tp} {bytes}");
            assert_eq!(us(&h100, *named, tp, bytes).0, least(bytes));
        }
    }
    // nothing to choose from without P2P or across nodes
    for (p2p, tp) in [(P2p::Off, 8), (P2p::On, 16)] {
        let (cost, used) = h100.collective(Collective::Fastest, p2p, tp, CollectiveScale::ALONE);
        assert_eq!((used, cost.switches()), (Collective::Nccl, vec![]));
    }
}

#[test]
fn an_engine_takes_nccl_from_the_size_at_which_its_own_kernels_are_slower() {
    let h100 = Profile::load("h100_sxm").unwrap();
    let of = |engine: Option<Engine>, bytes: f64| {
        let scale = CollectiveScale::ALONE;
        let engine = engine.map(|engine| (engine, None));
        let (cost, _) = h100.collective_in(engine, Collective::OneShot, P2p::On, 8, scale);
        (cost.us(bytes).0, cost.choice(bytes), cost.switches())
    };
    let (_, small, switches) = of(Some(Engine::Vllm), 16_384.0);
    assert_eq!(small, Some(Collective::OneShot));
    assert_eq!(
        switches.iter().map(|s| s.1).collect::<Vec<_>>(),
        [Collective::OneShot, Collective::Nccl]
    );
    let from = switches[1].0 as f64;
    let nccl = |bytes| us(&h100, Collective::Nccl, 8, bytes as u64).0;
    assert!(of(Some(Engine::Vllm), from - 1.0).0 <= nccl(from - 1.0));
    assert_eq!(of(Some(Engine::Vllm), from).0, nccl(from));
    // without an engine's tables one collective serves all sizes
    assert_eq!((of(None, 16_384.0).1, of(None, 16_384.0).2), (None, vec![]));
}

#[test]
fn a_gpu_of_more_bandwidth_is_scaled_from_the_reference_in_bandwidth_alone() {
    let (h100, b200) = (Profile::load("h100_sxm").unwrap(), Profile::load("b200_sxm").unwrap());
    let of = |profile: &Profile, bytes| us(profile, Collective::Multimem, 8, bytes).0;
    assert!((of(&h100, 512) / of(&b200, 512) - 1.0).abs() < 0.01);
    let ratio = b200.link.p2p_on.at(8).1 / h100.link.p2p_on.at(8).1;
    let large = of(&h100, 1 << 30) / of(&b200, 1 << 30);
    assert!(large > 0.95 * ratio && large <= ratio, "{large} of {ratio}");
    let mut mine = toml::from_str::<Profile>(Profile::built_in_text("h100_sxm").unwrap()).unwrap();
    complete(&mut mine.link, "mine");
    assert!((of(&mine, 1 << 24) / of(&h100, 1 << 24) - 1.0).abs() < 1e-3);
    let note = mine.link.multimem.unwrap().tp[&8].note.clone().unwrap();
    assert!(note.contains("not measured on mine") && note.contains("bandwidth x 1.00"), "{note}");
}
