//! What a user may say about a cell, on the command line or in an experiment file, and its resolution
//! into a [`Spec`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::{DType, Model};
use crate::plan::Architecture;
use crate::spec::{Backend, Collective, Coverage, Link, P2p, Recorder, Spec};

use super::Verdict;
use super::gpus::Gpus;
use super::shared::Shared;

/// Options of a cell; what is missing gets a sensible default in [`CellOptions::resolve`].
/// Names are the contract's: dashes on the command line, underscores in files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct CellOptions {
    /// Residual wiring: standard, ladder, ladder:K, parallel, desync:N, upper-bound, stale:S, parallel+ladder [default: standard, or the checkpoint's]
    #[arg(long)]
    pub architecture: Option<Architecture>,
    /// A built-in shape (see `ladderscope models`) or an HF directory [default: llama-3.2-1b]
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Format of the weights: f32, bf16, f16 [default: the checkpoint's, else bf16; on cpu f32]
    #[arg(long)]
    pub dtype: Option<DType>,
    /// Ranks of tensor parallelism [default: 1]
    #[arg(long)]
    pub tp: Option<u32>,
    /// Sequences decoded together [default: 1]
    #[arg(long)]
    pub batch: Option<u32>,
    /// Tokens of each prompt [default: 1024; on cpu 32]
    #[arg(long, value_name = "N")]
    pub prompt_tokens: Option<u32>,
    /// New tokens of each sequence [default: 512; on cpu 32]
    #[arg(long, value_name = "N")]
    pub output_tokens: Option<u32>,
    /// Whether GPUs may talk to each other directly: on, off [default: on; with link p2p-off, off]
    #[arg(long)]
    pub p2p: Option<P2p>,
    /// Who runs it: auto, sim, cpu, cuda [default: auto]
    #[arg(long)]
    pub backend: Option<Backend>,
    /// Hardware profile (see `ladderscope hardware`) or a TOML file [default: h100_sxm; on cpu the host]
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// Link of all-reduces: native, p2p-on, p2p-off, emulated:alpha_us=20,gb_s=50 [default: native]
    #[arg(long)]
    pub link: Option<Link>,
    /// Timed generations [default: 10; on sim 1]
    #[arg(long, value_name = "N")]
    pub samples: Option<u32>,
    /// Untimed generations before them [default: 2; on sim 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Seed of random weights, prompts and sampling [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Software stack for the simulator: native, gpt-fast or a file [default: native]
    #[arg(long, value_name = "NAME|FILE")]
    pub stack: Option<String>,
    /// All-reduce for the simulator: nccl, one-shot [default: nccl]
    #[arg(long)]
    pub collective: Option<Collective>,
    /// What records the operations of a cuda run: events, cupti, off [default: events]
    #[arg(long)]
    pub recorder: Option<Recorder>,
    /// How much of a step CUDA events time at once: rotating (a part), full [default: rotating]
    #[arg(long)]
    pub coverage: Option<Coverage>,
    /// Enqueue the operations of a cuda run one by one instead of replaying a graph
    #[arg(long)]
    pub no_graph: bool,
    /// A variable of the run's process, for example NCCL_ALGO=Ring (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// Override a profile value, for example link.alpha_us=5 (simulator; repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// What an option's value is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A string.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
}

/// Every option that has one value, as files spell it, and what its value is.
pub(super) const OPTIONS: [(&str, Takes); 19] = [
    ("architecture", Takes::Text),
    ("model", Takes::Text),
    ("dtype", Takes::Text),
    ("tp", Takes::Number),
    ("batch", Takes::Number),
    ("prompt_tokens", Takes::Number),
    ("output_tokens", Takes::Number),
    ("p2p", Takes::Text),
    ("backend", Takes::Text),
    ("hardware", Takes::Text),
    ("link", Takes::Text),
    ("samples", Takes::Number),
    ("warmup", Takes::Number),
    ("seed", Takes::Number),
    ("stack", Takes::Text),
    ("collective", Takes::Text),
    ("recorder", Takes::Text),
    ("coverage", Takes::Text),
    ("no_graph", Takes::Flag),
];

impl CellOptions {
    /// Sets one option by its name (as in files) from text. Errors name the value and what would be right.
    pub fn set_option(&mut self, name: &str, text: &str) -> Result<()> {
        match name {
            "architecture" => self.architecture = Some(text.parse()?),
            "model" => self.model = Some(text.to_owned()),
            "dtype" => self.dtype = Some(text.parse()?),
            "tp" => self.tp = Some(number(name, text, 1)?),
            "batch" => self.batch = Some(number(name, text, 1)?),
            "prompt_tokens" => self.prompt_tokens = Some(number(name, text, 1)?),
            "output_tokens" => self.output_tokens = Some(number(name, text, 1)?),
            "p2p" => self.p2p = Some(text.parse()?),
            "backend" => self.backend = Some(text.parse()?),
            "hardware" => self.hardware = Some(text.to_owned()),
            "link" => self.link = Some(text.parse()?),
            "samples" => self.samples = Some(number(name, text, 1)?),
            "warmup" => self.warmup = Some(number(name, text, 0)?),
            "seed" => {
                self.seed = Some(text.parse().map_err(|_| {
                    Error::input_help(
                        format!("seed '{text}' is not a whole number"),
                        "write a number from 0 to 2^63 - 1",
                    )
                })?);
            }
            "stack" => self.stack = Some(text.to_owned()),
            "collective" => self.collective = Some(text.parse()?),
            "recorder" => self.recorder = Some(text.parse()?),
            "coverage" => self.coverage = Some(text.parse()?),
            "no_graph" => {
                self.no_graph = text.parse().map_err(|_| {
                    Error::input(format!("no_graph is {text}; it must be true or false"))
                })?;
            }
            _ => return Err(Error::unknown("option", name, OPTIONS.map(|(name, _)| name))),
        }
        Ok(())
    }

    /// Fills in defaults, picks the backend where it is `auto`, and says which and why (second value).
    /// Errors where a value is wrong; whether the cell can run is [`super::verdict`]'s.
    pub fn resolve(&self) -> Result<(Spec, Option<String>)> {
        self.resolve_with(&Shared::default())
    }

    /// Likewise, of one cell of many.
    pub(super) fn resolve_with(&self, shared: &Shared) -> Result<(Spec, Option<String>)> {
        self.check_counts()?;
        let model = shared.model(self.model.as_deref().unwrap_or("llama-3.2-1b"))?;
        let (backend, mut notes) = match self.backend.unwrap_or(Backend::Auto) {
            Backend::Auto => {
                let (backend, why) = self.choose(&model, shared, Gpus::of_machine())?;
                (backend, vec![format!("backend {}: {why}", backend.as_str())])
            }
            backend => (backend, Vec::new()),
        };
        let spec = self.fill(&model, backend, shared)?;
        if backend != Backend::Cuda {
            let unused = self.cuda_options();
            if !unused.is_empty() {
                notes.push(format!("{} only matter to the cuda backend", unused.join(", ")));
            }
        } else if self.coverage.is_some() && spec.recorder != Recorder::Events {
            notes.push("coverage only matters to recorder events".into());
        }
        if backend != Backend::Sim {
            let unused = self.simulator_options(spec.link);
            if !unused.is_empty() {
                notes.push(format!("{} only matter to the simulator", unused.join(", ")));
            }
        }
        Ok((spec, (!notes.is_empty()).then(|| notes.join("; "))))
    }

    /// Which backend `auto` means here, and why.
    fn choose(&self, model: &Model, shared: &Shared, gpus: &Gpus) -> Result<(Backend, String)> {
        let simulator = self.simulator_options(self.link.unwrap_or(Link::Native));
        if !simulator.is_empty() {
            return Ok((Backend::Sim, format!("{} ask for the simulator", simulator.join(", "))));
        }
        let not_cuda = match self.on_gpus(model, shared, gpus)? {
            Ok(why) => return Ok((Backend::Cuda, why)),
            Err(why) => why,
        };
        let parameters = model.shape.parameters();
        let billions = parameters as f64 / 1e9;
        if parameters > CPU_PARAMETERS {
            let why = format!(
                "{not_cuda}; {} has {billions:.1}e9 parameters, too many for cpu (up to {:.1}e9)",
                model.name,
                CPU_PARAMETERS as f64 / 1e9,
            );
            return Ok((Backend::Sim, why));
        }
        let on_cpu = self.fill(model, Backend::Cpu, shared)?;
        if let Verdict::Oom(arithmetic) = super::verdict::memory(&on_cpu, &model.shape, shared)? {
            return Ok((Backend::Sim, format!("{not_cuda}; not cpu: {arithmetic}")));
        }
        let why =
            format!("{not_cuda}; {} has {billions:.2}e9 parameters and fits in memory", model.name);
        Ok((Backend::Cpu, why))
    }

    /// Why the cell runs on these GPUs, or why it does not.
    fn on_gpus(
        &self,
        model: &Model,
        shared: &Shared,
        gpus: &Gpus,
    ) -> Result<std::result::Result<String, String>> {
        let Some(gpu) = gpus.smallest() else { return Ok(Err("no GPU answers".into())) };
        let spec = self.fill(model, Backend::Cuda, shared)?;
        if model.shape.tp_problem(spec.tp).is_some() {
            // no backend can: the usual one says why
            return Ok(Err("no backend divides it".into()));
        }
        Ok(match super::verdict::on_gpus(&spec, &model.shape, gpus, shared) {
            Verdict::Runs if spec.tp > 1 && spec.link.is_emulated() => {
                Ok(format!("{} answers; it runs one rank's shard of {}", gpu.name, spec.tp))
            }
            Verdict::Runs => Ok(match &gpus.launched {
                Ok(Some(ranks)) => {
                    format!("the launcher started {ranks} ranks, and {} answers", gpu.name)
                }
                _ => {
                    let count = gpus.found.iter().flatten().count();
                    format!("{count} x {} answer{}", gpu.name, if count == 1 { "s" } else { "" })
                }
            }),
            Verdict::Skipped(why) | Verdict::Oom(why) => Err(format!("not cuda: {why}")),
        })
    }

    /// Names of the options given that only the simulator heeds.
    fn simulator_options(&self, link: Link) -> Vec<&'static str> {
        // an emulated link of a profile needs the profile on every backend
        let from_profile = matches!(link, Link::P2pOn | Link::P2pOff);
        let hardware = self.hardware.as_deref().is_some_and(|h| h != HOST) && !from_profile;
        let given = [
            ("stack", self.stack.as_deref().is_some_and(|s| s != "native")),
            ("collective", self.collective.is_some()),
            ("set", !self.set.is_empty()),
            ("hardware", hardware),
        ];
        given.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
    }

    /// Names of the options given that only the cuda backend heeds.
    fn cuda_options(&self) -> Vec<&'static str> {
        let given = [
            ("recorder", self.recorder.is_some()),
            ("coverage", self.coverage.is_some()),
            ("no_graph", self.no_graph),
        ];
        given.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
    }

    /// The spec on a given backend.
    fn fill(&self, model: &Model, backend: Backend, shared: &Shared) -> Result<Spec> {
        let sim = backend == Backend::Sim;
        let cpu = backend == Backend::Cpu;
        let cuda = backend == Backend::Cuda;
        let recorder = self.recorder.filter(|_| cuda).unwrap_or_default();
        let link = self.link.unwrap_or(Link::Native);
        let from_profile = matches!(link, Link::P2pOn | Link::P2pOff);
        let hardware = match self.hardware.as_deref() {
            None if sim => "h100_sxm",
            Some(hardware) if sim || from_profile => hardware,
            _ => HOST,
        };
        if hardware == HOST && (sim || from_profile) {
            return Err(Error::input_help(
                if sim {
                    "hardware 'host': the simulator needs a hardware profile".to_owned()
                } else {
                    format!("link '{link}' is emulated from a hardware profile, and none is named")
                },
                "name one as hardware, for example h100_sxm (`ladderscope hardware` lists them)",
            ));
        }
        let mut set = pairs("set", &self.set)?;
        let stack = if sim { self.stack.as_deref().unwrap_or("native") } else { "native" };
        if sim {
            shared.target(hardware, stack, &set)?;
        } else {
            if from_profile {
                shared.target(hardware, stack, &BTreeMap::new())?;
            }
            set.clear();
        }
        let checkpoint = model.dtype.filter(|dtype| !cpu || *dtype != DType::F16);
        let architecture = self.architecture.clone().unwrap_or_else(|| {
            model.ladder_layers.as_ref().map_or(Architecture::Standard, Architecture::from_ladder_layers)
        });
        Ok(Spec {
            architecture,
            model: model.name.clone(),
            dtype: self.dtype.or(checkpoint).unwrap_or(if cpu { DType::F32 } else { DType::Bf16 }),
            tp: self.tp.unwrap_or(1),
            batch: self.batch.unwrap_or(1),
            prompt_tokens: self.prompt_tokens.unwrap_or(if cpu { 32 } else { 1024 }),
            output_tokens: self.output_tokens.unwrap_or(if cpu { 32 } else { 512 }),
            // a link of the profile is one with P2P or without
            p2p: self.p2p.unwrap_or(if link == Link::P2pOff { P2p::Off } else { P2p::On }),
            backend,
            link,
            hardware: hardware.to_owned(),
            stack: stack.to_owned(),
            collective: self.collective.filter(|_| sim).unwrap_or(Collective::Nccl),
            samples: self.samples.unwrap_or(if sim { 1 } else { 10 }),
            warmup: self.warmup.unwrap_or(if sim { 0 } else { 2 }),
            seed: self.seed.unwrap_or(0),
            env: pairs("env", &self.env)?,
            set,
            recorder,
            coverage: self.coverage.filter(|_| cuda && recorder == Recorder::Events).unwrap_or_default(),
            no_graph: self.no_graph && cuda,
        })
    }

    /// What the command line's own parser lets through.
    fn check_counts(&self) -> Result<()> {
        let counts = [
            ("tp", self.tp),
            ("batch", self.batch),
            ("prompt_tokens", self.prompt_tokens),
            ("output_tokens", self.output_tokens),
            ("samples", self.samples),
        ];
        for (name, count) in counts {
            if count == Some(0) {
                return Err(Error::input(format!("{name} is 0; it must be at least 1")));
            }
        }
        if self.prompt_tokens.unwrap_or(0).checked_add(self.output_tokens.unwrap_or(0)).is_none() {
            return Err(Error::input("prompt_tokens and output_tokens are together above 4294967295"));
        }
        Ok(())
    }
}

/// Beyond so many parameters decoding on a CPU takes too long to be chosen unasked.
const CPU_PARAMETERS: u64 = 1_500_000_000;

/// The hardware of runs that are executed on this machine.
pub(super) const HOST: &str = "host";

fn number(name: &str, text: &str, least: u32) -> Result<u32> {
    text.parse().ok().filter(|n| *n >= least).ok_or_else(|| {
        Error::input(format!("{name} is {text}; it must be a whole number from {least} to {}", u32::MAX))
    })
}

/// `KEY=VALUE` pairs; of one key the last counts.
fn pairs(what: &str, given: &[String]) -> Result<BTreeMap<String, String>> {
    given
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if is_key(key.trim()) => Ok((key.trim().to_owned(), value.to_owned())),
            _ => Err(Error::input_help(format!("{what} '{pair}' is not KEY=VALUE"), {
                if what == "env" { "for example NCCL_ALGO=Ring" } else { "for example link.alpha_us=5" }
            })),
        })
        .collect()
}

/// Whether this can name a variable: neither empty nor with what no environment can hold.
pub(super) fn is_key(key: &str) -> bool {
    !key.is_empty() && !key.contains(['=', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::gpus::made_up;

    fn chosen(options: &CellOptions, gpus: &Gpus) -> (Backend, String) {
        let shared = Shared::default();
        let model = shared.model(options.model.as_deref().unwrap()).unwrap();
        options.choose(&model, &shared, gpus).unwrap()
    }

    #[test]
    fn a_link_without_p2p_is_recorded_as_one() {
        let p2p = |link: &str, p2p| {
            let options = CellOptions {
                backend: Some(Backend::Cpu),
                hardware: Some("h100_sxm".into()),
                link: Some(link.parse().unwrap()),
                p2p,
                ..CellOptions::default()
            };
            options.resolve().unwrap().0.p2p
        };
        assert_eq!((p2p("p2p-on", None), p2p("p2p-off", None)), (P2p::On, P2p::Off));
        assert_eq!(p2p("native", None), P2p::On);
        // what is said outright holds
        assert_eq!(p2p("p2p-off", Some(P2p::On)), P2p::On);
    }

    #[test]
    fn auto_takes_gpus_where_there_are_enough_and_the_model_fits() {
        let of = |model: &str, tp: u32| CellOptions {
            model: Some(model.into()),
            tp: Some(tp),
            ..CellOptions::default()
        };
        const H200: u64 = 150_000_000_000;
        let (backend, why) = chosen(&of("llama-3-70b", 4), &made_up(8, H200));
        assert_eq!((backend, why.as_str()), (Backend::Cuda, "8 x NVIDIA H200 answer"));
        let (backend, why) = chosen(&of("llama-3-70b", 4), &made_up(1, H200));
        assert_eq!(backend, Backend::Sim);
        assert!(
            why.starts_with("not cuda: tp 4 needs 4 GPUs") && why.contains("too many for cpu"),
            "{why}"
        );
        let (backend, why) = chosen(&of("tiny", 4), &made_up(1, H200));
        assert_eq!(backend, Backend::Cpu);
        assert!(why.starts_with("not cuda: tp 4 needs 4 GPUs") && why.contains("; tiny has"), "{why}");
        let link = Some(Link::Emulated { alpha_us: 5.0, gb_s: 300.0 });
        let (backend, why) = chosen(&CellOptions { link, ..of("llama-3-70b", 8) }, &made_up(1, H200));
        assert_eq!(
            (backend, why.as_str()),
            (Backend::Cuda, "NVIDIA H200 answers; it runs one rank's shard of 8")
        );
        let none = Gpus { found: Err("no driver".into()), launched: Ok(None) };
        let (backend, why) = chosen(&of("tiny", 2), &none);
        assert_eq!(backend, Backend::Cpu);
        assert!(why.starts_with("no GPU answers; tiny has"), "{why}");
        let stack = Some("gpt-fast".to_owned());
        let asked = CellOptions { stack, ..of("tiny", 1) };
        assert_eq!(chosen(&asked, &made_up(8, H200)).0, Backend::Sim);
    }
}
