//! Links of simulated cells: the collective that is charged and its latency, and the record's environment, which
//! explains them.

use base::text::binary_size;
use serde_json::json;

use super::cell::Sources;
use super::simulator::lowering;
use machine::hardware::{CollectiveCost, CostSource, LinkBasis, Target, TransferCost};
use plan::{Architecture, stage_layers};
use table::{Collective, Environment, Link, P2p, Spec};

/// Collective cost, and the all-reduce that is used (`None` on an emulated link).
pub(super) fn collective<'a>(
    spec: &Spec,
    target: &'a Target,
) -> (CollectiveCost<'a>, Option<Collective>) {
    if let Link::Emulated { alpha_us, gb_s } = spec.link {
        return (CollectiveCost::Formula { alpha_us, gb_s }, None);
    }
    let (p2p, ranks) = (p2p_of(spec), spec.tp.max(spec.dp));
    let (engine, scale) = (target.stack.engine_version(), target.stack.collective);
    let (cost, used) = target.profile.collective_in(engine, spec.collective, p2p, ranks, scale);
    (cost, Some(used))
}

/// Cost of a send from each pipeline stage to the next.
pub(super) fn transfers<'a>(spec: &Spec, target: &'a Target) -> Vec<TransferCost<'a>> {
    match spec.link {
        Link::Emulated { alpha_us, gb_s } => {
            vec![TransferCost::Formula { alpha_us, gb_s }; spec.pp.max(1) as usize]
        }
        _ => target.profile.transfers(p2p_of(spec), (spec.tp, spec.pp.max(1))),
    }
}

pub fn p2p_of(spec: &Spec) -> P2p {
    match spec.link {
        Link::P2pOn => P2p::On,
        Link::P2pOff => P2p::Off,
        Link::Native | Link::Emulated { .. } => spec.p2p,
    }
}

pub fn link_problem(spec: &Spec, target: &Target) -> Option<String> {
    if spec.pp > 1 && !target.profile.skew.is_none() {
        return Some(
            "skew between ranks is not simulated with pipeline stages; set skew to 0, or pp to 1".into(),
        );
    }
    if matches!(spec.link, Link::Emulated { .. }) {
        return None;
    }
    let profile = &target.profile;
    let problem = profile.link_problem(spec.collective, p2p_of(spec), spec.tp.max(spec.dp));
    let problem = problem.or_else(|| profile.transfer_problem(p2p_of(spec), (spec.tp, spec.pp)))?;
    Some(format!("{}: {problem}", profile.name))
}

#[derive(Clone, Debug, PartialEq)]
pub struct LinkTimes {
    /// Latency as nccl-tests measures it, back to back (us).
    pub alone_us: f64,
    /// Latency used in the simulation, with the stack's scale factors (us).
    pub charged_us: f64,
    /// Profile rows used; `None` on an emulated link.
    pub basis: Option<LinkBasis>,
    /// Source of the latencies, unless this collective, TP and message size were measured.
    pub note: Option<String>,
    /// All-reduce of this message and the message sizes (bytes) from which each is used, if the cell switches by size.
    pub taken: Option<(Collective, Vec<(u64, Collective)>)>,
}

pub fn link_times(spec: &Spec, target: &Target, bytes: f64) -> LinkTimes {
    let (cost, used) = collective(spec, target);
    let basis = cost.basis();
    let is_stand_in = target.profile.stand_in(spec.collective, p2p_of(spec), spec.tp).is_some();
    let is_measured =
        basis.is_none_or(|basis| basis.note().is_none()) && cost.covers(bytes) && !is_stand_in;
    let notes =
        [used.and_then(|used| another(spec, target, used)), cost.note().filter(|_| !is_measured)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    LinkTimes {
        alone_us: cost.alone_us(bytes),
        charged_us: cost.us(bytes).0,
        basis,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        taken: cost.choice(bytes).map(|choice| (choice, cost.switches())),
    }
}

/// Size ranges of the all-reduces in use: `one-shot, multimem from 350 KiB`.
pub fn switches_in_words(switches: &[(u64, Collective)]) -> String {
    let words = switches.iter().map(|(from, collective)| match from {
        0 => collective.to_string(),
        _ => format!("{collective} from {}", binary_size(*from as f64)),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Latency of one all-reduce of `bytes` bytes in a simulated cell, alone on its lane (us).
pub fn all_reduce_us(spec: &Spec, target: &Target, bytes: f64) -> f64 {
    collective(spec, target).0.us(bytes).0
}

/// Environment key that explains why a cell uses another collective than requested; shown as a warning.
pub const COLLECTIVE_NOTE: &str = "collective_note";

/// Environment key for a link that was not measured at the cell's TP.
const LINK_BASIS: &str = "link_basis";

pub const LINK_WARNING: &str = "link: ";

pub fn link_warning(environment: &Environment) -> Option<String> {
    let basis = environment.get(LINK_BASIS)?.as_str()?;
    basis.contains("extrapolated").then(|| format!("{LINK_WARNING}{basis}"))
}

/// The simulator's entries in the record's environment: everything that determines the results. `messages` are the
/// all-reduce sizes by phase (bytes).
pub(super) fn environment(
    spec: &Spec,
    target: &Target,
    (layers, messages): (u32, [(&'static str, f64); 2]),
    sources: &Sources,
) -> Environment {
    let Target { profile, stack } = target;
    let mut environment = Environment::from([
        ("simulator".to_owned(), json!("discrete events; latency tables, rooflines, contention")),
        ("hardware_profile".to_owned(), json!(profile.name)),
        ("stack".to_owned(), json!(stack.name)),
        ("stack_note".to_owned(), json!(stack.note)),
        ("cost_sources".to_owned(), shares(sources)),
    ]);
    if !profile.skew.is_none() {
        environment.insert("skew".to_owned(), json!(profile.skew));
    }
    if spec.pp > 1 {
        let us = |cost: &TransferCost<'_>| json!({ "us_16KiB": cost.us(16384.0), "us_16MiB": cost.us(16_777_216.0), "basis": cost.note() });
        let hops: Vec<_> = transfers(spec, target).iter().map(us).collect();
        environment.insert("stage_links".to_owned(), json!(hops));
        let ranges = stage_layers(layers, spec.pp);
        let ranges = ranges.iter().map(|own| format!("{} to {}", own.start, own.end.saturating_sub(1)));
        environment.insert("stage_layers".to_owned(), json!(ranges.collect::<Vec<_>>()));
    }
    if spec.tp > 1 {
        let (cost, used) = collective(spec, target);
        let (small, large) = (cost.us(16384.0).0, cost.us(16_777_216.0).0);
        let link = match spec.link {
            Link::Emulated { alpha_us, gb_s } => json!({ "alpha_us": alpha_us, "gb_s": gb_s }),
            _ => json!({ "us_16KiB": small, "us_16MiB": large }),
        };
        environment.insert("link".to_owned(), link);
        let collective = match used {
            None if spec.collective == Collective::Fused => "fused, emulated".to_owned(),
            None => "emulated".to_owned(),
            Some(used) if used == spec.collective => used.to_string(),
            Some(used) => {
                environment.insert(COLLECTIVE_NOTE.to_owned(), json!(another(spec, target, used)));
                format!("{used} ({} {})", spec.collective, instead(spec, target))
            }
        };
        environment.insert("collective".to_owned(), json!(collective));
        let taken = messages.map(|(phase, bytes)| {
            let taken = cost.choice(bytes).or(used).map_or("emulated".into(), |used| used.to_string());
            let us = cost.us(bytes).0;
            (phase.to_owned(), json!({ "message_bytes": bytes, "collective": taken, "us": us }))
        });
        environment.insert("all_reduces".to_owned(), taken.into_iter().collect());
        let switches = Some(cost.switches()).filter(|switches| !switches.is_empty());
        let ctas = cost.ctas(16384.0).filter(|_| spec.collective != Collective::Fastest);
        let basis = cost.basis().and_then(|basis| basis.note());
        let notes = [
            ("collective_switches", switches.map(|switches| json!(switches_in_words(&switches)))),
            ("collective_ctas", ctas.map(|ctas| json!(ctas))),
            (LINK_BASIS, basis.map(|basis| json!(basis))),
            ("link_note", cost.note().map(|note| json!(note))),
        ];
        environment.extend(notes.into_iter().filter_map(|(name, note)| Some((name.to_owned(), note?))));
        if spec.architecture == Architecture::UpperBound {
            environment.insert("norm".to_owned(), json!(norm_of_the_bound(spec, target)));
        }
    }
    if !spec.set.is_empty() {
        environment.insert("overrides".to_owned(), json!(spec.set));
    }
    environment
}

/// Explains why another collective than requested is used; `None` if it is the requested one.
fn another(spec: &Spec, target: &Target, used: Collective) -> Option<String> {
    (used != spec.collective).then(|| {
        format!("all-reduces are those of {used}, not {}: {}", spec.collective, instead(spec, target))
    })
}

/// Reason why the requested collective is not used.
fn instead(spec: &Spec, target: &Target) -> String {
    if p2p_of(spec) == P2p::Off {
        return "needs P2P".to_owned();
    }
    if spec.tp > target.profile.gpus_per_node {
        return format!("needs all ranks in one node, of {} GPUs here", target.profile.gpus_per_node);
    }
    format!("has no measurement on {}", target.profile.name)
}

/// Norm cost assumed for the upper bound, in words.
fn norm_of_the_bound(spec: &Spec, target: &Target) -> &'static str {
    if lowering(spec, target).fuse_all_reduce {
        "every rank norms all rows on its compute lane, which fused all-reduces spare it: gaps closed above 1 are real"
    } else {
        "every rank norms all rows, as the other architectures do"
    }
}

/// Share of the simulated time by cost source (0 to 1, three digits), for each phase.
fn shares(sources: &Sources) -> serde_json::Value {
    let phase_shares = |us: &[f64; 4]| -> serde_json::Value {
        let all: f64 = us.iter().sum();
        let share = |us: &f64| if all > 0.0 { (us / all * 1e3).round() / 1e3 } else { 0.0 };
        CostSource::ALL.iter().zip(us).map(|(source, us)| (source.as_str(), json!(share(us)))).collect()
    };
    sources.iter().map(|(phase, us)| ((*phase).to_owned(), phase_shares(us))).collect()
}
