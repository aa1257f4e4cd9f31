//! The gain of architectures over the latency of one all-reduce: what a frontier of one machine cannot say,
//! whether converting a model pays on a link that is faster or slower.

use std::collections::BTreeMap;

use super::{Comparison, compare};
use crate::base::error::{Error, Result};
use crate::machine::hardware::Profile;
use crate::plan::{Architecture, Precision};
use crate::run::{Shared, sim};
use crate::table::{Collective, Link, P2p, Record, Spec};

/// An architecture's tokens/s over those of `standard` on one link.
#[derive(Clone, Debug)]
pub struct GainPoint {
    /// How long the link takes for one all-reduce of a decode step (us).
    pub all_reduce_us: f64,
    /// The comparison with `standard` on the same link.
    pub pair: Comparison,
}

/// The points of one model, TP and batch, over links that differ.
#[derive(Clone, Debug)]
pub struct GainGroup {
    /// What all points have in common: `llama-3-70b tp8 b1`.
    pub name: String,
    /// By architecture its points, the fastest link first.
    pub lines: BTreeMap<Architecture, Vec<GainPoint>>,
    /// What all-reduces of the same message take on built-in machines, the fastest first.
    pub marks: Vec<GainMark>,
}

/// The latency of one all-reduce on a machine with a built-in hardware profile.
#[derive(Clone, Debug, PartialEq)]
pub struct GainMark {
    /// The machine and the all-reduce: `h100_sxm NCCL`.
    pub name: String,
    /// How long it takes for the group's message (us).
    pub us: f64,
}

/// The gain of every architecture over `standard`, grouped by model, TP and batch. Fails where no cell
/// has a `standard` beside it on the same link, and where a model is not there any more: the size of
/// its messages is needed.
pub fn gains(records: &[Record]) -> Result<Vec<GainGroup>> {
    let shared = Shared::default();
    let mut groups: BTreeMap<(String, u32, u32), GainGroup> = BTreeMap::new();
    for pair in compare(records, "architecture")?.pairs {
        let spec = &pair.side.spec;
        // one rank has no all-reduce, and other baselines are no standard
        if spec.tp == 1 || pair.baseline_side.spec.architecture != Architecture::Standard {
            continue;
        }
        let hidden = shared.model(&spec.model)?.shape.hidden;
        let precision = match spec.backend.is_simulated() {
            true => Precision::uniform(spec.dtype),
            false => Precision::cpu(spec.dtype),
        };
        let bytes = f64::from(spec.batch) * f64::from(hidden) * precision.activations.bytes() as f64;
        let all_reduce_us = link_us(spec, bytes, &shared)?;
        let key = (spec.model.clone(), spec.tp, spec.batch);
        let group = groups.entry(key).or_insert_with(|| GainGroup {
            name: format!("{} tp{} b{}", spec.model, spec.tp, spec.batch),
            lines: BTreeMap::new(),
            marks: marks(spec.tp, bytes),
        });
        let line = group.lines.entry(spec.architecture.clone()).or_default();
        line.push(GainPoint { all_reduce_us, pair });
    }
    for line in groups.values_mut().flat_map(|group| group.lines.values_mut()) {
        line.sort_by(|a, b| a.all_reduce_us.total_cmp(&b.all_reduce_us));
    }
    match groups.is_empty() {
        false => Ok(groups.into_values().collect()),
        true => Err(Error::input_help(
            "no cell has a 'standard' beside it on the same link",
            "`ladderscope sweep gain-by-latency` makes some",
        )),
    }
}

/// How long one all-reduce of a message takes on the link of a cell (us).
fn link_us(spec: &Spec, bytes: f64, shared: &Shared) -> Result<f64> {
    match spec.link {
        Link::Emulated { alpha_us, gb_s } => Ok(alpha_us + bytes / (gb_s * 1e3)),
        _ if spec.backend.is_simulated() => {
            let target = shared.target(&spec.hardware, &spec.stack, &spec.set)?;
            Ok(sim::all_reduce_us(spec, &target, bytes))
        }
        _ => Err(Error::input_help(
            format!("{}: how long one all-reduce takes on its link is not known", spec.label()),
            "simulated cells and emulated links tell it; choose with --filter 'link:emulated' or backend:sim",
        )),
    }
}

/// What all-reduces of a message take at `tp` ranks on each built-in machine that holds so many in a node.
fn marks(tp: u32, bytes: f64) -> Vec<GainMark> {
    let mut marks = Vec::new();
    for profile in Profile::built_in().iter().filter(|profile| tp <= profile.gpus_per_node) {
        let ways = [
            ("NCCL", Collective::Nccl, P2p::On),
            ("one-shot", Collective::OneShot, P2p::On),
            ("no P2P", Collective::Nccl, P2p::Off),
        ];
        for (way, collective, p2p) in ways {
            let (cost, used) = profile.collective(collective, p2p, tp, 1.0);
            if used == collective {
                let name = format!("{} {way}", profile.name);
                marks.push(GainMark { name, us: cost.us(bytes).0 });
            }
        }
    }
    marks.sort_by(|a, b| a.us.total_cmp(&b.us));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::hardware::Target;
    use crate::model::Model;
    use crate::study::analysis::testing::sim_record;

    fn simulated(architecture: &str, alpha_us: f64) -> Record {
        let text = format!(
            r#"{{"architecture":"{architecture}","model":"llama-3-8b","dtype":"bf16","tp":8,"batch":1,"prompt_tokens":64,"output_tokens":4,"p2p":"on","backend":"sim","link":"emulated:alpha_us={alpha_us},gb_s=300","hardware":"h100_sxm","stack":"native","samples":1,"warmup":0,"seed":0}}"#
        );
        let spec: Spec = serde_json::from_str(&text).unwrap();
        let shape = Model::resolve(&spec.model).unwrap().shape;
        let (outcome, _) = sim::simulate(&spec, &shape, &Target::of(&spec).unwrap(), false).unwrap();
        let sample = &outcome.samples[0];
        sim_record(architecture, |s| *s = spec.clone(), sample.prefill_ms, sample.steps_ms[0])
    }

    /// Where all-reduces take nothing there is nothing to hide; the slower they are, the more there is, until
    /// they outlast what ladder computes meanwhile.
    #[test]
    fn ladder_gains_with_the_latency_until_compute_is_too_short_to_hide_it() {
        let alphas = [0.001, 2.0, 5.0, 10.0, 50.0, 400.0];
        let cells = alphas.iter().flat_map(|alpha| ["standard", "ladder"].map(|a| simulated(a, *alpha)));
        let groups = gains(&cells.collect::<Vec<_>>()).unwrap();
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].name, "llama-3-8b tp8 b1");
        let line = &groups[0].lines[&"ladder".parse::<Architecture>().unwrap()];
        let us: Vec<f64> = line.iter().map(|point| point.all_reduce_us).collect();
        // 4096 numbers of 2 bytes at 300 GB/s
        let wanted = alphas.map(|alpha| alpha + 8192.0 / 300e3);
        assert!(us.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{us:?}");
        let gain: Vec<f64> = line.iter().map(|point| point.pair.speedup).collect();
        assert!(gain[..4].is_sorted() && gain[0] < 1.02 && gain[5] < gain[3], "{gain:?}");
    }

    #[test]
    fn marks_are_the_machines_own_latencies() {
        let marks = marks(8, 16384.0);
        let us = |name: &str| marks.iter().find(|mark| mark.name == name).map(|mark| mark.us);
        let h100 = Profile::load("h100_sxm").unwrap();
        let nccl = h100.collective(Collective::Nccl, P2p::On, 8, 1.0).0.us(16384.0).0;
        assert_eq!(us("h100_sxm NCCL"), Some(nccl));
        assert!(
            us("h100_sxm one-shot") < us("h100_sxm NCCL") && us("h100_sxm no P2P") > us("h100_sxm NCCL")
        );
        assert_eq!(us("a100_sxm one-shot"), None, "it was not measured there");
        assert!(marks.is_sorted_by(|a, b| a.us <= b.us));
    }

    #[test]
    fn cells_without_a_standard_are_explained() {
        let error = gains(&[simulated("ladder", 5.0)]).unwrap_err().to_string();
        assert!(error.contains("standard"), "{error}");
    }
}
