//! Labels, keys and provenance of cells.

use super::options::{Backend, Link, OPTIONS, OptionEntry, P2p, Spec, option};
use crate::shared_gpu;
use base::error::{Error, Result};
use base::words::words;
use plan::{Lowering, ModelShape, Phase, PlanSpec, Precision, Variant};

words! {
    /// Origin of numbers. Every table, figure and file with numbers shows it; [`crate::Metrics`] are
    /// inaccessible without it.
    Provenance, "provenance" {
        /// Executed and timed, over the machine's own link.
        Measured = "measured",
        /// Executed and timed, but all-reduces were delayed by an emulated link.
        EmulatedLink = "emulated-link",
        /// Predicted by the simulator.
        Simulated = "simulated",
        /// Executed by ranks that share one GPU, as a correctness check: latencies are meaningless and excluded.
        SharedGpu = "shared-gpu",
    }
}

impl Provenance {
    /// True if such numbers may be compared, plotted and used for calibration.
    pub fn is_evidence(self) -> bool {
        match self {
            Self::Measured | Self::EmulatedLink | Self::Simulated => true,
            Self::SharedGpu => false,
        }
    }

    /// Rejects times of `name` that are no evidence.
    ///
    /// # Errors
    ///
    /// Returns an input error for runs whose ranks shared a GPU.
    pub fn require_evidence(self, name: &str) -> Result<()> {
        if self.is_evidence() {
            return Ok(());
        }
        Err(Error::input_help(
            format!(
                "{name} is {self}: it ran with LADDERSCOPE_SHARED_GPU=1, so its latencies are meaningless"
            ),
            "use a run with one GPU per rank",
        ))
    }
}

/// Options that modify the plan of any architecture ([`Variant`]).
pub const VARIANTS: [&str; 3] = ["micro_batches", "comm_dtype", "sequence_parallel"];

/// Options that [`Spec::settings`] leaves out: the model and its workload, the machine, the division among ranks, and how
/// often a cell is timed. Any other option is a setting, new ones included.
const NO_SETTINGS: [&str; 21] = [
    "architecture",
    "model",
    "dtype",
    "prompt_tokens",
    "output_tokens",
    "expert_load",
    "concurrency",
    "backend",
    "hardware",
    "stack",
    "no_graph",
    "link",
    "p2p",
    "tp",
    "pp",
    "ep",
    "dp",
    "batch",
    "samples",
    "warmup",
    "seed",
];

impl Spec {
    /// Provenance of a run of this cell by this process.
    pub fn provenance(&self) -> Provenance {
        if self.backend.is_simulated() {
            Provenance::Simulated
        } else if self.backend == Backend::Cuda && self.shares_gpu() {
            // also at TP 1 and over an emulated link: the variable changes how steps are enqueued

            Provenance::SharedGpu
        } else if self.link.is_emulated() {
            Provenance::EmulatedLink
        } else {
            Provenance::Measured
        }
    }

    /// True if the run's process has `LADDERSCOPE_SHARED_GPU=1`, from the cell's variables or from this process.
    fn shares_gpu(&self) -> bool {
        let own = self.env.get(shared_gpu::VARIABLE);
        own.map_or_else(shared_gpu::is_on, |value| value.trim() == "1")
    }

    pub fn variant(&self) -> Variant {
        let Self { micro_batches, comm_dtype, sequence_parallel, ep, dp, .. } = *self;
        Variant { micro_batches, comm_dtype, sequence_parallel, ep, dp }
    }

    /// Label of the differences from the plain cell: `micro2 comm-f8`; empty if none.
    pub fn variant_label(&self) -> String {
        let changed = VARIANTS.iter().filter_map(|name| option(name));
        let labels: Vec<String> =
            changed.filter(|option| !option.is_default(self)).map(|option| option.label(self)).collect();
        labels.join(" ")
    }

    /// Labels of settings not at their default (`one-shot`, `comm-f8`, `kv-f8`, `nvls-off`): two cells with
    /// different settings do the same work in different ways.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        let set = Self::setting_options().filter(|option| !option.is_default(self));
        set.map(|option| option.label(self))
    }

    /// Options that are settings.
    pub fn setting_options() -> impl Iterator<Item = &'static OptionEntry> {
        OPTIONS.iter().filter(|option| !NO_SETTINGS.contains(&option.name))
    }

    /// Architecture with variant: `ladder micro2`. Comparisons group cells by this label, against plain
    /// `standard`.
    pub fn architecture_label(&self) -> String {
        let variant = self.variant_label();
        if variant.is_empty() {
            return self.architecture.to_string();
        }
        format!("{} {variant}", self.architecture)
    }

    /// Same cell without plan variants.
    pub fn plain(&self) -> Self {
        let Variant { micro_batches, comm_dtype, sequence_parallel, .. } = Variant::default();
        Self { micro_batches, comm_dtype, sequence_parallel, ..self.clone() }
    }

    /// Inputs of the plan for one phase of the cell, with the backend's formats and lowering.
    pub fn plan(
        &self,
        shape: &ModelShape,
        phase: Phase,
        precision: Precision,
        lowering: Lowering,
    ) -> PlanSpec {
        PlanSpec {
            shape: shape.clone(),
            architecture: self.architecture.clone(),
            tp: self.tp,
            phase,
            precision,
            lowering,
            variant: self.variant(),
            batch: self.sequences_of_rank(),
            pp: self.pp,
        }
    }

    /// Hash of everything that decides what runs (SHA-256, first 16 hex digits). Specs with the same key
    /// are the same cell; `sweep` does not repeat a finished one.
    pub fn key(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        base::checksum::short_key(text)
    }

    /// True if the link has the name of the P2P setting, so that labels name both once: `p2p-on`.
    pub fn has_link_of_p2p(&self) -> bool {
        matches!((self.link, self.p2p), (Link::P2pOn, P2p::On) | (Link::P2pOff, P2p::Off))
    }

    /// Number of ranks, one GPU each: TP x PP x DP. Rank r is rank r mod TP of stage r / TP.
    pub fn ranks(&self) -> u32 {
        self.tp.max(1).saturating_mul(self.pp.max(1)).saturating_mul(self.dp.max(1))
    }

    /// Sequences of a static batch that one rank decodes: all, or with data parallelism the largest share.
    pub fn sequences_of_rank(&self) -> u32 {
        self.batch.div_ceil(self.dp.max(1))
    }

    /// Short name for tables and logs: `ladder tp2 b1 p2p-on`, with pipeline stages `ladder tp2 pp2 ...`.
    pub fn label(&self) -> String {
        let settings = Self::setting_options().filter(|option| !VARIANTS.contains(&option.name));
        let settings = settings.filter(|option| !option.is_default(self)).map(|o| o.label(self));
        let parts = [self.architecture_label(), self.place_label()].into_iter().chain(settings);
        parts.collect::<Vec<_>>().join(" ")
    }

    /// The label's part after the architecture.
    pub fn place_label(&self) -> String {
        let more = |name: &str, n: u32| if n > 1 { format!(" {name}{n}") } else { String::new() };
        let more = [("pp", self.pp), ("ep", self.ep), ("dp", self.dp)].map(|(name, n)| more(name, n));
        format!("tp{}{} {} p2p-{}", self.tp, more.concat(), self.load_label(), self.p2p.as_str())
    }

    /// Static batch or requests in flight: `b4`, `c64`.
    pub fn load_label(&self) -> String {
        match self.concurrency {
            0 => format!("b{}", self.batch),
            requests => format!("c{requests}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OptionKind;
    use crate::testing::change_option;

    /// Specs as records of the first format have them, each with its key.
    const KEYS: [(&str, &str); 5] = [
        (
            "4173eff626554b2e",
            r#"{"architecture":"ladder","model":"llama-3-70b","dtype":"f16","tp":8,"batch":1,"prompt_tokens":1024,"output_tokens":512,"p2p":"on","backend":"sim","link":"native","hardware":"h100_sxm","stack":"gpt-fast","collective":"nccl","samples":1,"warmup":0,"seed":0,"env":{},"set":{}}"#,
        ),
        (
            "ab526864db48dbda",
            r#"{"architecture":"ladder:[0+2]","model":"stories-110m","dtype":"f32","tp":2,"batch":4,"prompt_tokens":32,"output_tokens":32,"p2p":"off","backend":"cpu","link":"emulated:alpha_us=200,gb_s=2.5","hardware":"host","stack":"native","collective":"nccl","samples":10,"warmup":2,"seed":7,"env":{"NCCL_ALGO":"Ring","NCCL_P2P_DISABLE":"1"},"set":{}}"#,
        ),
        (
            "8ee815ffc2a4dae6",
            r#"{"architecture":"desync:4","model":"llama-3-8b","dtype":"bf16","tp":4,"batch":16,"prompt_tokens":512,"output_tokens":64,"p2p":"on","backend":"sim","link":"p2p-off","hardware":"a100_sxm","stack":"native","collective":"one-shot","samples":1,"warmup":0,"seed":9223372036854775807,"env":{},"set":{"hbm_gb_s":"1000","link.alpha_us":"5"}}"#,
        ),
        (
            "53ed2498c8dad432",
            r#"{"architecture":"upper-bound","model":"1b","dtype":"bf16","tp":1,"batch":1,"prompt_tokens":1024,"output_tokens":512,"p2p":"on","backend":"cuda","link":"native","hardware":"host","stack":"native","collective":"nccl","samples":10,"warmup":2,"seed":0,"env":{},"set":{},"recorder":"cupti","no_graph":true}"#,
        ),
        (
            "c96024d19a157626",
            r#"{"architecture":"parallel+ladder","model":"1b","dtype":"bf16","tp":2,"batch":1,"prompt_tokens":1024,"output_tokens":512,"p2p":"on","backend":"cuda","link":"native","hardware":"host","stack":"native","collective":"nccl","samples":10,"warmup":2,"seed":0,"env":{},"set":{},"recorder":"off"}"#,
        ),
    ];

    #[test]
    fn a_label_has_the_settings_of_its_cell_once() {
        let plain = Spec::default().label();
        let set = Spec { collective: "one-shot".parse().unwrap(), micro_batches: 2, ..Spec::default() };
        assert!(plain.starts_with("standard tp"), "{plain}");
        assert_eq!(set.label(), format!("{} one-shot", plain.replace("standard", "standard micro2")));
    }

    /// Every option that a plain cell is without is one that labels and comparisons know.
    #[test]
    fn plain_cells_are_those_without_a_variant() {
        let members = serde_json::to_value(Variant::default()).unwrap();
        let members: Vec<&String> = members.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), VARIANTS.len(), "{members:?}");
        for name in VARIANTS {
            let mut spec = Spec::default();
            let entry = option(name).unwrap();
            let other = entry.values().last().map_or("3", |value| value);
            entry.read(&mut spec, other).unwrap();
            assert_ne!(spec.variant(), Variant::default(), "{name}");
            let said = if other == "true" { "" } else { other };
            assert_eq!(spec.variant_label(), format!("{}{said}", entry.about.label));
            assert_eq!(spec.plain(), Spec::default(), "{name}");
        }
    }

    /// A setting is its label alone: without one, a number or a flag would not say what it is.
    #[test]
    fn every_setting_says_what_it_sets() {
        for option in OPTIONS.iter().filter(|option| !NO_SETTINGS.contains(&option.name)) {
            let mut spec = Spec::default();
            change_option(option, &mut spec);
            assert_eq!(spec.settings().collect::<Vec<_>>(), [option.label(&spec)], "{}", option.name);
            let has_words = option.kind == OptionKind::Text;
            assert!(has_words || !option.about.label.is_empty(), "{} needs a label", option.name);
        }
    }

    #[test]
    fn cells_of_today_keep_the_keys_that_finished_runs_are_found_by() {
        for (key, text) in KEYS {
            let spec: Spec = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&spec).unwrap(), text);
            assert_eq!(spec.key(), key, "{text}");
        }
        // what the oldest records left out
        let (key, text) = KEYS[0];
        let old = text.replace(r#""collective":"nccl","#, "").replace(r#","env":{},"set":{}"#, "");
        assert_eq!(serde_json::from_str::<Spec>(&old).unwrap().key(), key);
        // an option that is gone
        let (key, text) = KEYS[3];
        let old = text.replace(r#""no_graph""#, r#""coverage":"full","no_graph""#);
        assert_eq!(serde_json::from_str::<Spec>(&old).unwrap().key(), key);
        for name in NO_SETTINGS {
            assert!(option(name).is_some(), "{name}");
        }
        let (_, text) = KEYS[0];
        let broken = text.replace(r#""tp":8,"#, "");
        assert!(serde_json::from_str::<Spec>(&broken).unwrap_err().to_string().contains("`tp`"));
    }
}
