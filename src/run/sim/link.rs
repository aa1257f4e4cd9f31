//! Links of simulated cells: the collective that is charged and its latency, and the record's environment, which
//! explains them.

use serde_json::json;

use super::cell::Sources;
use super::simulator::lowering;
use machine::hardware::{CollectiveCost, CostSource, LinkBasis, Target};
use plan::Architecture;
use table::{Collective, Environment, Link, P2p, Spec};

/// Collective cost, and the all-reduce that is used (`None` on an emulated link).
pub(super) fn collective<'a>(
    spec: &Spec,
    target: &'a Target,
) -> (CollectiveCost<'a>, Option<Collective>) {
    let of = |p2p| {
        let scale = target.stack.collective;
        let engine = target.stack.engine;
        let (cost, used) = target.profile.collective_in(engine, spec.collective, p2p, spec.tp, scale);
        (cost, Some(used))
    };
    match (spec.link, p2p_of(spec)) {
        (Link::Emulated { alpha_us, gb_s }, _) => (CollectiveCost::Formula { alpha_us, gb_s }, None),
        (_, p2p) => of(p2p),
    }
}

fn p2p_of(spec: &Spec) -> P2p {
    match spec.link {
        Link::P2pOn => P2p::On,
        Link::P2pOff => P2p::Off,
        Link::Native | Link::Emulated { .. } => spec.p2p,
    }
}

pub fn link_problem(spec: &Spec, target: &Target) -> Option<String> {
    if matches!(spec.link, Link::Emulated { .. }) {
        return None;
    }
    let profile = &target.profile;
    let problem = profile.link_problem(spec.collective, p2p_of(spec), spec.tp)?;
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
}

pub fn link_times(spec: &Spec, target: &Target, bytes: f64) -> LinkTimes {
    let (cost, used) = collective(spec, target);
    let basis = cost.basis();
    let is_measured = basis.is_none_or(|basis| basis.note().is_none()) && cost.covers(bytes);
    let notes =
        [used.and_then(|used| another(spec, target, used)), cost.note().filter(|_| !is_measured)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    LinkTimes {
        alone_us: cost.alone_us(bytes),
        charged_us: cost.us(bytes).0,
        basis,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
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

/// The simulator's entries in the record's environment: everything that determines the results.
pub(super) fn environment(spec: &Spec, target: &Target, sources: &Sources) -> Environment {
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
    if spec.tp > 1 {
        let (cost, used) = collective(spec, target);
        let (small, large) = (cost.us(16384.0).0, cost.us(16_777_216.0).0);
        environment.insert(
            "link".to_owned(),
            match spec.link {
                Link::Emulated { alpha_us, gb_s } => json!({ "alpha_us": alpha_us, "gb_s": gb_s }),
                _ => json!({ "us_16KiB": small, "us_16MiB": large }),
            },
        );
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
        if let Some(ctas) = cost.ctas() {
            environment.insert("collective_ctas".to_owned(), json!(ctas));
        }
        if let Some(basis) = cost.basis().and_then(|basis| basis.note()) {
            environment.insert(LINK_BASIS.to_owned(), json!(basis));
        }
        if let Some(note) = cost.note() {
            environment.insert("link_note".to_owned(), json!(note));
        }
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
        "every rank norms all rows on its compute lane, which fused all-reduces spare it: hidden shares above 1 are real"
    } else {
        "every rank norms all rows, as the other architectures do"
    }
}

/// Share of the simulated time by cost source (0 to 1, three digits), for each phase.
fn shares(sources: &Sources) -> serde_json::Value {
    let of = |us: &[f64; 4]| -> serde_json::Value {
        let all: f64 = us.iter().sum();
        let share = |us: &f64| if all > 0.0 { (us / all * 1e3).round() / 1e3 } else { 0.0 };
        CostSource::ALL.iter().zip(us).map(|(source, us)| (source.as_str(), json!(share(us)))).collect()
    };
    sources.iter().map(|(phase, us)| ((*phase).to_owned(), of(us))).collect()
}
