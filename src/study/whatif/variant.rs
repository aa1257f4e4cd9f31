//! Cell with the values that sliders changed, and the spec and command line that follow from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::answer::NetworkValues;
use base::error::{Error, Result};
use machine::hardware::{LinkPoint, Profile, Target};
use model::Model;
use plan::{Architecture, DType, LayerSet};
use table::options::{OPTIONS, OptionKind, PAIRS};
use table::{Backend, Link, P2p, Spec};

/// Substitute hardware for cells that ran on a machine without a profile.
const INSTEAD_OF_HOST: &str = "h100_sxm";

/// Simulated cell and the hardware values that sliders changed; `None` keeps the profile's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIfVariant {
    /// Cell on the simulator backend, with its own overrides in `set`.
    pub cell: Spec,
    /// Latency of a small all-reduce inside a node (us).
    pub alpha_us: Option<f64>,
    /// Message bandwidth of an all-reduce inside a node (1e9 bytes/s).
    pub gb_s: Option<f64>,
    /// Latency that the network between nodes adds per doubling of the nodes (us).
    pub network_alpha_us: Option<f64>,
    /// Combined bandwidth of a node's network cards (1e9 bytes/s).
    pub network_gb_s: Option<f64>,
    /// SMs' worth of work that a large all-reduce takes from compute.
    pub sms: Option<f64>,
    /// Share of its rate that an all-reduce loses while compute runs (%).
    pub comm_loss_pct: Option<f64>,
    /// Peak memory bandwidth (1e9 bytes/s).
    pub hbm_gb_s: Option<f64>,
    /// Fixed time of a kernel (us).
    pub launch_us: Option<f64>,
    /// True if no kernel waits for its launch, as in a CUDA graph; changes steps of a trace alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_launch_gaps: bool,
    /// Division of the GPUs that returns when TP rises from 1, by index; one GPU has nothing to divide.
    #[serde(skip)]
    pub division_above_one: Remembered<usize>,
    /// Weight format that returns when a model of 16-bit weights follows one of quantized weights.
    #[serde(skip)]
    pub dtype_of_16_bits: Remembered<Option<DType>>,
}

/// Value to return to. It takes no part in comparisons, because it changes no number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remembered<T>(pub T);

impl<T> PartialEq for Remembered<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Default for WhatIfVariant {
    /// 70B in fp16, TP 8, batch 1, on H100 with gpt-fast: the cell of the Ladder Residual paper.
    fn default() -> Self {
        Self::new(Spec {
            architecture: Architecture::Ladder(LayerSet::All),
            model: "llama-3-70b".into(),
            dtype: DType::F16,
            tp: 8,
            hardware: INSTEAD_OF_HOST.into(),
            stack: "gpt-fast".into(),
            samples: 1,
            warmup: 0,
            ..Spec::default()
        })
    }
}

impl WhatIfVariant {
    pub(super) fn new(cell: Spec) -> Self {
        Self {
            cell,
            alpha_us: None,
            gb_s: None,
            network_alpha_us: None,
            network_gb_s: None,
            sms: None,
            comm_loss_pct: None,
            hbm_gb_s: None,
            launch_us: None,
            no_launch_gaps: false,
            division_above_one: Remembered::default(),
            dtype_of_16_bits: Remembered::default(),
        }
    }

    /// Simulated version of any cell. A machine without a profile becomes an H100 (the second value is a note
    /// about it); links taken from a profile become the profile's own P2P setting.
    pub fn from_spec(spec: &Spec) -> (Self, Option<String>) {
        let mut cell = Spec { backend: Backend::Sim, samples: 1, warmup: 0, ..spec.clone() };
        (cell.p2p, cell.link) = match cell.link {
            Link::P2pOn => (P2p::On, Link::Native),
            Link::P2pOff => (P2p::Off, Link::Native),
            other => (cell.p2p, other),
        };
        let note = (cell.hardware == "host").then(|| {
            cell.hardware = INSTEAD_OF_HOST.into();
            format!("no profile for this run's machine; simulated on {INSTEAD_OF_HOST}")
        });
        (Self::new(cell), note)
    }

    /// Experts and top-k of a built-in mixture.
    pub fn experts(&self) -> Option<[u32; 2]> {
        Model::experts_of_built_in(&self.cell.model)
    }

    /// Changes one of [`Self::experts`]; `None` keeps it.
    pub(super) fn set_experts(&mut self, at: usize, value: Option<f64>) {
        let Some((mut experts, value)) = self.experts().zip(value) else { return };
        experts[at] = value as u32;
        self.cell.model = Model::named_with_experts(&self.cell.model, experts);
    }

    /// Profile and stack without the slider changes. Returns the errors of [`Target::from_spec`] for the variant's
    /// hardware and stack.
    pub fn plain_target(&self) -> Result<Target> {
        Target::from_spec(&self.cell)
    }

    /// Latency and bandwidth of the network that sliders changed; none within a node, where they have no effect.
    pub(super) fn network_changes(&self, profile: &Profile) -> [Option<f64>; 2] {
        let changes = [self.network_alpha_us, self.network_gb_s];
        let spans_nodes = NetworkValues::new(profile, &self.cell).is_some();
        changes.map(|value| value.filter(|_| spans_nodes))
    }

    /// Cell with all slider changes, as for `ladderscope run`. Returns the errors of [`Target::from_spec`], and an
    /// error if communication takes more SMs than the GPU has or the profile lacks the number of SMs.
    pub fn spec(&self) -> Result<Spec> {
        let mut spec = self.cell.clone();
        if spec.concurrency > 0 {
            spec.concurrency = spec.batch;
        }
        if let Link::Emulated { alpha_us, gb_s } = spec.link {
            let (alpha_us, gb_s) = (self.alpha_us.unwrap_or(alpha_us), self.gb_s.unwrap_or(gb_s));
            spec.link = Link::Emulated { alpha_us, gb_s };
        } else if self.alpha_us.is_some() || self.gb_s.is_some() {
            let profile = self.plain_target()?.profile;
            set_link(&mut spec.set, &profile, "alpha_us", self.alpha_us);
            set_link(&mut spec.set, &profile, "gb_s", self.gb_s);
        }
        if self.network_alpha_us.or(self.network_gb_s).is_some() {
            let changes = self.network_changes(&self.plain_target()?.profile);
            for (key, value) in NETWORK_KEYS.into_iter().zip(changes) {
                spec.set.extend(value.map(|value| (key.to_owned(), number(value))));
            }
        }
        if let Some(sms) = self.sms {
            let plain = self.plain_target()?;
            let total = f64::from(sms_of(&plain.profile)?);
            if sms > total {
                return Err(Error::input(format!(
                    "communication takes {sms} SMs, but {} has {total}",
                    plain.profile.name
                )));
            }
            let contention = &plain.stack.contention;
            let lost = (sms / total).clamp(0.0, MOST_LOST);
            // memory-bound compute loses in proportion
            let memory = if contention.arithmetic > 0.0 {
                contention.memory * lost / contention.arithmetic
            } else {
                lost
            };
            spec.set.insert("stack.contention.arithmetic".into(), number(lost));
            spec.set.insert("stack.contention.memory".into(), number(memory.min(MOST_LOST)));
        }
        let mut set = |key: &str, value: Option<f64>| {
            if let Some(value) = value {
                spec.set.insert(key.into(), number(value));
            }
        };
        set("stack.contention.comm", self.comm_loss_pct.map(|pct| pct / 100.0));
        set("hbm_gb_s", self.hbm_gb_s);
        set("stack.launch_us", self.launch_us);
        Ok(spec)
    }

    /// Arguments of the command that reproduces these numbers, starting with `run`. Returns the errors of
    /// [`Self::spec`].
    pub fn arguments(&self) -> Result<Vec<String>> {
        let words = ["run", "--backend", "sim"].map(str::to_owned).into_iter();
        Ok(words.chain(option_words(&self.spec()?)).collect())
    }

    /// Arguments of the `whatif` that shows these numbers, starting with the verb. `has_link` is false if no value of the
    /// link has an effect; `whatif` refuses those. Returns the errors of [`Self::spec`].
    pub fn whatif_arguments(&self, has_link: bool) -> Result<Vec<String>> {
        let [network_alpha_us, network_gb_s] = self.network_changes(&self.plain_target()?.profile);
        let own = [
            ("alpha-us", self.alpha_us),
            ("gb-s", self.gb_s),
            ("network-alpha-us", network_alpha_us),
            ("network-gb-s", network_gb_s),
            ("sms", self.sms),
        ];
        let mut rest = Self { alpha_us: None, gb_s: None, sms: None, ..self.clone() };
        (rest.network_alpha_us, rest.network_gb_s) = (None, None);
        // `whatif` has no seed and no variables
        let mut spec = Spec { seed: Spec::default().seed, env: BTreeMap::new(), ..rest.spec()? };
        if !has_link {
            spec.p2p = P2p::On;
            spec.set.retain(|key, _| !key.starts_with("link."));
        }
        let mut words = vec!["whatif".to_owned()];
        words.extend(option_words(&spec));
        for (name, value) in own {
            let value = value.filter(|_| has_link || name == "sms");
            words.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value.to_string()]));
        }
        Ok(words)
    }
}

/// Options of a simulated cell as the command line takes them, without the backend.
fn option_words(spec: &Spec) -> Vec<String> {
    let mut words = Vec::new();
    for option in OPTIONS.iter().filter(|option| option.is_used_by(Backend::Sim)) {
        let text = option.text(spec);
        match (option.name, option.kind) {
            // already set, or fixed by the simulator
            ("backend" | "samples" | "warmup", _) => {}
            (_, OptionKind::Flag) => {
                words.extend((text == "true").then(|| format!("--{}", option.flag)));
            }
            ("link" | "seed", _) if option.is_default(spec) => {}
            _ if !option.is_required && option.is_default(spec) => {}
            _ => words.extend([format!("--{}", option.flag), text.into_owned()]),
        }
    }
    for pairs in &PAIRS {
        let pair = |(key, value)| [format!("--{}", pairs.name), format!("{key}={value}")];
        words.extend((pairs.get)(spec).iter().flat_map(pair));
    }
    words
}

const MOST_LOST: f64 = 0.99;

/// Values of a profile that the sliders of the network change: latency and bandwidth.
pub(crate) const NETWORK_KEYS: [&str; 2] = ["link.inter_node.alpha_us", "link.inter_node.gb_s"];

/// Number of SMs of the profile's GPU; an error if the profile does not state it.
pub(super) fn sms_of(profile: &Profile) -> Result<u32> {
    profile.sms.ok_or_else(|| {
        Error::input_help(
            format!("hardware profile {} does not say how many SMs the GPU has", profile.name),
            "add sms = N to the profile",
        )
    })
}

/// Overrides `alpha_us` or `gb_s` of every link inside a node, and scales the large-message values in
/// proportion.
pub fn set_link(set: &mut BTreeMap<String, String>, profile: &Profile, name: &str, value: Option<f64>) {
    let Some(value) = value else { return };
    // a more specific key would override the new value
    let refines = |key: &str| {
        key.starts_with("link.") && !key.starts_with("link.inter_node") && key.ends_with(name)
    };
    set.retain(|key, _| !refines(key));
    set.insert(format!("link.{name}"), number(value));
    let of: fn(&LinkPoint) -> f64 = if name == "gb_s" { |p| p.gb_s } else { |p| p.alpha_us };
    for (table, rows) in profile.link.tables() {
        for (tp, point) in &rows.tp {
            let Some(large) = point.large.filter(|_| of(point) > 0.0) else { continue };
            let large = if name == "gb_s" { large.gb_s } else { large.alpha_us };
            let key = format!("link.{table}.tp.{tp}.large.{name}");
            set.insert(key, number(large * value / of(point)));
        }
    }
}

/// Rounds to six significant digits, so that screen, simulation and command agree.
fn number(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    rounded.to_string()
}
