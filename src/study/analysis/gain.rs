//! Gain of architectures as a function of all-reduce latency: whether converting a model pays on a faster or slower
//! link, which the frontier of one machine cannot show.

use std::collections::{BTreeMap, HashMap};

use super::{Axis, Comparison, Varied, compare};
use base::error::{Error, Result};
use base::text::natural_order;
use machine::hardware::{CollectiveScale, LinkTable, Profile};
use plan::Architecture;
use run::{GridContext, backend, emulated_link, sim};
use table::{Collective, Link, P2p, Provenance, Record, Spec, host};

#[derive(Clone, Debug)]
pub struct GainPoint {
    /// Latency of one all-reduce of a decode step (us).
    pub all_reduce_us: f64,
    pub pair: Comparison,
}

/// Points of cells that differ only in link and architecture.
#[derive(Clone, Debug)]
pub struct GainGroup {
    /// Shared settings, `llama-3-70b tp8 b1`, plus anything that separates the group from others.
    pub name: String,
    /// Points by architecture and variant label (`micro2`, usually empty), fastest link first.
    pub lines: BTreeMap<(Architecture, String), Vec<GainPoint>>,
    /// All-reduce latencies of the same message on built-in machines, fastest first.
    pub marks: Vec<GainMark>,
}

/// Latency of one all-reduce on a machine with a built-in hardware profile.
#[derive(Clone, Debug, PartialEq)]
pub struct GainMark {
    /// Machine and algorithm: `h100_sxm NCCL`.
    pub name: String,
    pub us: f64,
}

/// Key of a group: provenance, host, and the rest of the cell.
pub(crate) type GroupKey = (Provenance, Option<String>, String);

/// Gain of every architecture over `standard`, in groups of cells that differ only in their links and share provenance
/// and machine. Returns an error if no cell has a `standard` on the same link, if a link's latency is unknown, or if a
/// model is missing (its hidden size gives the message size).
pub fn gains(records: &[Record]) -> Result<Vec<GainGroup>> {
    let shared = GridContext::default();
    let hosts: HashMap<&str, Option<String>> =
        records.iter().map(|record| (record.run.as_str(), host(record))).collect();
    let mut groups: BTreeMap<GroupKey, (Spec, GainGroup)> = BTreeMap::new();
    for pair in compare(records, "architecture")?.pairs {
        let spec = &pair.side.spec;
        // one rank has no all-reduce; skip other baselines
        if spec.tp == 1 || pair.baseline_side.spec.architecture != Architecture::Standard {
            continue;
        }
        let hidden = shared.simulator.model(&spec.model)?.shape.hidden;
        let number = backend(spec.backend)?.precision(spec.dtype).activations.bytes();
        let bytes = f64::from(spec.batch) * f64::from(hidden) * number as f64;
        let (all_reduce_us, scale) = link_us(spec, bytes, &shared)?;
        let rest = but_for_its_link(spec);
        let key = (pair.provenance, hosts.get(pair.run.as_str()).cloned().flatten(), rest.key());
        let (_, group) = groups.entry(key).or_insert_with(|| {
            let marks = marks(spec.tp, bytes, scale);
            (rest, GainGroup { name: String::new(), lines: BTreeMap::new(), marks })
        });
        let line = group.lines.entry((spec.architecture.clone(), spec.variant_label())).or_default();
        line.push(GainPoint { all_reduce_us, pair });
    }
    let keys: Vec<(&GroupKey, &Spec)> = groups.iter().map(|(key, (spec, _))| (key, spec)).collect();
    let names = group_names(&keys);
    let named = groups.into_values().zip(names).map(|((_, group), name)| GainGroup { name, ..group });
    let mut groups: Vec<GainGroup> = named.collect();
    groups.sort_by(|a, b| natural_order(&a.name, &b.name));
    for line in groups.iter_mut().flat_map(|group| group.lines.values_mut()) {
        line.sort_by(|a, b| a.all_reduce_us.total_cmp(&b.all_reduce_us));
    }
    match groups.is_empty() {
        false => Ok(groups),
        true => Err(Error::input_help(
            "no cell has a matching 'standard' on the same link",
            "`ladderscope sweep gain-by-latency` makes some",
        )),
    }
}

/// Cell without the settings that determine all-reduce latency, without architecture and variant: cells with an equal
/// rest share a chart.
fn but_for_its_link(spec: &Spec) -> Spec {
    let mut rest = Spec {
        architecture: Architecture::Standard,
        link: Link::Native,
        p2p: P2p::On,
        collective: Collective::Nccl,
        ..spec.plain()
    };
    rest.set.retain(|key, _| !key.starts_with("link."));
    rest
}

/// Names of groups by model, TP and batch, plus the settings, provenance and machine that separate them.
pub(crate) fn group_names(groups: &[(&GroupKey, &Spec)]) -> Vec<String> {
    let mut rest = Varied::from_specs(groups.iter().map(|(_, spec)| *spec));
    for axis in ["model", "tp", "batch"] {
        rest = rest.without(&Axis::Option(axis));
    }
    let differ =
        |of: fn(&GroupKey) -> String| groups.windows(2).any(|pair| of(pair[0].0) != of(pair[1].0));
    let provenance = |key: &GroupKey| key.0.to_string();
    let host = |key: &GroupKey| key.1.clone().unwrap_or_default();
    let (provenances, hosts) = (differ(provenance), differ(host));
    let name = |(key, spec): &(&GroupKey, &Spec)| {
        let mut words = vec![format!("{} tp{} b{}", spec.model, spec.tp, spec.batch), rest.words(spec)];
        words.extend(provenances.then(|| provenance(key)));
        words.extend(hosts.then(|| host(key)));
        words.retain(|word| !word.is_empty());
        words.join(" ")
    };
    groups.iter().map(name).collect()
}

/// Latency of one all-reduce of a message on a cell's link (us), and the stack's scale for collective times.
fn link_us(spec: &Spec, bytes: f64, shared: &GridContext) -> Result<(f64, CollectiveScale)> {
    if spec.backend.is_simulated() {
        let target = shared.simulator.target(&spec.hardware, &spec.stack, &spec.set)?;
        let scale = target.stack.collective;
        return Ok((sim::all_reduce_us(spec, &target, bytes), scale));
    }
    match emulated_link(spec)? {
        Some(link) => Ok((link.us(bytes.round() as u64), CollectiveScale::ALONE)),
        None => Err(Error::input_help(
            format!("{}: unknown all-reduce latency of its link", spec.label()),
            "select simulated cells or emulated links with --filter 'link:emulated' or backend:sim",
        )),
    }
}

/// All-reduce latencies of a message at `tp` ranks on each built-in machine with enough GPUs per node, scaled for the
/// stack.
fn marks(tp: u32, bytes: f64, scale: CollectiveScale) -> Vec<GainMark> {
    let mut marks = Vec::new();
    for profile in Profile::built_in().iter().filter(|profile| tp <= profile.gpus_per_node) {
        let ways = [
            ("NCCL", Collective::Nccl, P2p::On),
            ("one-shot", Collective::OneShot, P2p::On),
            ("no P2P", Collective::Nccl, P2p::Off),
        ];
        for (way, collective, p2p) in ways {
            let (cost, used) = profile.collective(collective, p2p, tp, scale);
            // posted outputs and stand-ins mark no machine
            let is_own =
                |note: &String| !["indication", "stand-in"].iter().any(|mark| note.starts_with(mark));
            let measured =
                |table: &LinkTable| table.is_measured(tp) && table.note.as_ref().is_none_or(is_own);
            if used == collective && profile.link.table(collective).is_some_and(measured) {
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
    use plan::DType;
    use table::Backend;
    use table::testing::sim_record;

    fn simulated(architecture: &str, alpha_us: f64) -> Record {
        simulated_with(architecture, alpha_us, |_| ())
    }

    fn simulated_with(architecture: &str, alpha_us: f64, change: impl Fn(&mut Spec)) -> Record {
        let text = format!(
            r#"{{"architecture":"{architecture}","model":"llama-3-8b","dtype":"bf16","tp":8,"batch":1,"prompt_tokens":64,"output_tokens":4,"p2p":"on","backend":"sim","link":"emulated:alpha_us={alpha_us},gb_s=300","hardware":"h100_sxm","stack":"native","samples":1,"warmup":0,"seed":0}}"#
        );
        let mut spec: Spec = serde_json::from_str(&text).unwrap();
        change(&mut spec);
        let (outcome, _) = sim::Simulator::default().cell(&spec).unwrap().run(false).unwrap();
        let sample = &outcome.samples[0];
        sim_record(architecture, |s| *s = spec.clone(), sample.prefill_ms, sample.steps_ms[0])
    }

    /// The line of a plain architecture.
    fn line(architecture: &str) -> (Architecture, String) {
        (architecture.parse().unwrap(), String::new())
    }

    /// Micro-batches are a line of the chart in which the architectures are, over the same plain standard.
    #[test]
    fn micro_batches_are_drawn_beside_architectures() {
        let mut cells = Vec::new();
        for (architecture, groups) in [("standard", 1), ("ladder", 1), ("standard", 2)] {
            cells.push(simulated_with(architecture, 10.0, |spec| {
                (spec.batch, spec.micro_batches) = (4, groups);
            }));
        }
        let groups = gains(&cells).unwrap();
        assert_eq!(groups.len(), 1);
        let divided = (Architecture::Standard, "micro2".to_owned());
        assert_eq!(groups[0].lines.keys().collect::<Vec<_>>(), [&divided, &line("ladder")]);
        let of = |key| &groups[0].lines[key][0];
        let tpot = |record: &Record| record.metrics.as_ref().unwrap().decode_ms;
        let faster = tpot(&cells[0]) > tpot(&cells[2]);
        assert_eq!(of(&divided).pair.speedup > 1.0, faster, "{:?}", of(&divided));
        assert_eq!(of(&divided).all_reduce_us, of(&line("ladder")).all_reduce_us);
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
        let line = &groups[0].lines[&line("ladder")];
        let us: Vec<f64> = line.iter().map(|point| point.all_reduce_us).collect();
        // 4096 numbers of 2 bytes at 300 GB/s
        let wanted = alphas.map(|alpha| alpha + 8192.0 / 300e3);
        assert!(us.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{us:?}");
        let gain: Vec<f64> = line.iter().map(|point| point.pair.speedup).collect();
        assert!(gain[..4].is_sorted() && gain[0] < 1.02 && gain[5] < gain[3], "{gain:?}");
    }

    /// Cells of other stacks are no points of the same line, and a chart says which it is of.
    #[test]
    fn what_differs_in_more_than_its_link_stands_apart() {
        let cells = ["standard", "ladder"].map(|architecture| simulated(architecture, 10.0));
        let mut slower = cells.clone();
        slower.iter_mut().for_each(|cell| cell.spec.stack = "gpt-fast".into());
        let mut native = cells.clone();
        native.iter_mut().for_each(|cell| (cell.spec.link, cell.spec.p2p) = (Link::Native, P2p::Off));
        let groups = gains(&[cells, slower, native].concat()).unwrap();
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(groups.len(), 2, "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("llama-3-8b tp8 b1 ")), "{names:?}");
        assert!(names.iter().any(|name| name.ends_with("gpt-fast")), "{names:?}");
        let points: Vec<usize> = groups.iter().flat_map(|g| g.lines.values().map(Vec::len)).collect();
        assert!(points == [1, 2] || points == [2, 1], "{points:?}");
    }

    /// A machine's mark stands where that machine's own simulated cells stand.
    #[test]
    fn a_machines_mark_is_above_its_own_cells() {
        let mut cells = ["standard", "ladder"].map(|architecture| simulated(architecture, 10.0));
        cells.iter_mut().for_each(|cell| cell.spec.link = Link::Native);
        let group = gains(&cells).unwrap().remove(0);
        let point = &group.lines[&line("ladder")][0];
        let mark = group.marks.iter().find(|mark| mark.name == "h100_sxm NCCL").unwrap();
        assert!((mark.us - point.all_reduce_us).abs() < 1e-9, "{mark:?} {}", point.all_reduce_us);
    }

    /// Emulated links of the cpu backend, whose messages are f32 whatever its weights are; each machine by itself.
    #[test]
    fn emulated_links_are_known_also_from_profiles_and_machines_stand_apart() {
        let cell = |run: &str, architecture: &str, link: &str, host: &str| {
            let mut record = sim_record(
                run,
                |s| {
                    (s.architecture, s.link) = (architecture.parse().unwrap(), link.parse().unwrap());
                    (s.backend, s.dtype, s.hardware) = (Backend::Cpu, DType::Bf16, "h100_sxm".into());
                },
                5.0,
                2.0,
            );
            record.environment.insert("host".into(), host.into());
            record
        };
        let mut all = Vec::new();
        for (host, link) in [("a", "emulated:alpha_us=10,gb_s=1"), ("b", "p2p-on")] {
            for architecture in ["standard", "ladder"] {
                all.push(cell(&format!("{host}-{architecture}"), architecture, link, host));
            }
        }
        let groups = gains(&all).unwrap();
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["tiny tp2 b1 a", "tiny tp2 b1 b"]);
        let us: Vec<f64> =
            groups.iter().flat_map(|g| g.lines.values().flatten().map(|p| p.all_reduce_us)).collect();
        // 64 numbers of 4 bytes at 1 GB/s
        assert!((us[0] - 10.256).abs() < 1e-9, "{us:?}");
        let h100 = Profile::load("h100_sxm").unwrap();
        let nccl = h100.collective(Collective::Nccl, P2p::On, 2, CollectiveScale::ALONE).0;
        assert!((us[1] - nccl.us(256.0).0).abs() < 1e-9, "{us:?}");
    }

    #[test]
    fn marks_are_the_machines_own_latencies() {
        let marks = marks(8, 16384.0, CollectiveScale::ALONE);
        let us = |name: &str| marks.iter().find(|mark| mark.name == name).map(|mark| mark.us);
        let h100 = Profile::load("h100_sxm").unwrap();
        let nccl = h100.collective(Collective::Nccl, P2p::On, 8, CollectiveScale::ALONE).0.us(16384.0).0;
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
