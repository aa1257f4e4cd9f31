//! Hardware profiles: capabilities of a GPU and its links, with sources; built in or from a TOML file. A
//! GPU's driver name finds a comparable profile, without the claim that it describes this machine.

use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::link::Links;
use super::tables::Tables;
use super::{CheckResult, Library, above, at_least, bandwidth, built_in, collective, latency, share};
use base::error::Result;
use base::input::InputKind;
use plan::DType;

/// Hardware profile. Keys carry their units; GB = 1e9 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name in `--hardware` and in records: `h100_sxm`.
    pub name: String,
    /// Remarks for users of the profile.
    pub note: Option<String>,
    /// GPU memory available to a run, in bytes (in GB in files, as `memory_gb`).
    #[serde(rename = "memory_gb", with = "gigabytes")]
    #[schemars(with = "f64")]
    pub memory_bytes: u64,
    /// Peak memory bandwidth (1e9 bytes a second).
    pub hbm_gb_s: f64,
    /// Share of the peak bandwidth that kernels reach, 0 to 1.
    pub hbm_efficiency: f64,
    /// Bandwidth of matrix-vector kernels relative to the stack's constants, which are for `h100_sxm`; 1
    /// if unknown.
    #[serde(default = "super::one")]
    pub matvec_scale: f64,
    /// Share of the peak arithmetic that large matrix products reach, 0 to 1.
    pub compute_efficiency: f64,
    /// Share of the peak bandwidth that decode attention without a latency table reaches, 0 to 1; that of other
    /// kernels by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_efficiency: Option<f64>,
    /// Fixed time of a kernel without a latency table beyond the stack's `launch_us` (us).
    #[serde(default)]
    pub kernel_us: f64,
    /// Host time per sequence relative to the stacks' constants, which are for machines of `h100_sxm`.
    #[serde(default = "super::one")]
    pub host_scale: f64,
    /// GPUs per node; a larger TP spans nodes.
    pub gpus_per_node: u32,
    /// Streaming multiprocessors of one GPU; only what-ifs of contention need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Built-in latency tables of matrix products and decode attention to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<String>,
    /// Name by which the driver knows the GPU; without it, no GPU is taken for this profile.
    #[serde(default, skip_serializing_if = "GpuName::is_none")]
    pub gpu: GpuName,
    /// Source of each number.
    pub sources: Vec<String>,
    /// Peak arithmetic by number format.
    pub tflops: Tflops,
    /// Variation between ranks.
    #[serde(default)]
    pub skew: Skew,
    /// All-reduce latencies.
    pub link: Links,
}

/// GPU name as the driver reports it: `NVIDIA H100 80GB HBM3` is the SXM board, `NVIDIA H100 PCIe` is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuName {
    /// Texts that the name contains.
    pub with: Vec<String>,
    /// Texts that it does not contain.
    pub without: Vec<String>,
}

impl GpuName {
    fn is_none(&self) -> bool {
        self.with.is_empty()
    }

    fn matches(&self, name: &str) -> bool {
        let has = |part: &String| name.contains(part.as_str());
        !self.is_none() && self.with.iter().all(has) && !self.without.iter().any(has)
    }
}

/// Variation between ranks: standard deviations of normal distributions, drawn with the run's seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Skew {
    /// Standard deviation of a rank's speed, fixed for a run (percent of its compute time).
    pub rank_pct: f64,
    /// Standard deviation of each operation's time (percent).
    pub operation_pct: f64,
}

impl Skew {
    pub fn is_none(&self) -> bool {
        self.rank_pct == 0.0 && self.operation_pct == 0.0
    }
}

/// Peak arithmetic by number format (1e12 floating-point operations a second, dense).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tflops {
    /// Peak with bfloat16 operands and f32 accumulation.
    pub bf16: f64,
    /// Peak with IEEE half-precision operands and f32 accumulation.
    pub f16: f64,
    /// Peak with IEEE single-precision operands, without reduced tensor-core formats.
    pub f32: f64,
    /// Peak with 8-bit floating-point operands, if the GPU supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<f64>,
    /// Peak with 4-bit floating-point operands, if the GPU supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp4: Option<f64>,
}

impl Tflops {
    /// Peak for activations and unquantized weights in this format (TFLOP/s).
    pub fn dense(&self, dtype: DType) -> f64 {
        match dtype {
            DType::F16 => self.f16,
            DType::F32 => self.f32,
            // quantized weights are expanded
            _ => self.bf16,
        }
    }

    /// Peak for quantized weights and activations, if the GPU supports it (TFLOP/s).
    pub fn quantized(&self, weights: DType) -> Option<f64> {
        match weights {
            DType::Fp8 | DType::Fp8Block => self.fp8,
            DType::Nvfp4 => self.fp4,
            // beside 8-bit activations
            DType::Mxfp4 => self.fp4.and(self.fp8),
            DType::F32 | DType::Bf16 | DType::F16 => None,
        }
    }
}

/// Bytes in memory, GB in files.
mod gigabytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*bytes as f64 / 1e9)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let gigabytes = f64::deserialize(deserializer)?;
        if gigabytes.is_finite() && gigabytes > 0.0 {
            Ok((gigabytes * 1e9).round() as u64)
        } else {
            Err(serde::de::Error::custom(format!("{gigabytes} GB of memory; it must be above 0")))
        }
    }
}

static PROFILES: Library<Profile> = Library {
    what: "hardware profile",
    word: "profile",
    input: InputKind::HARDWARE,
    texts: &built_in::PROFILES,
    read: Profile::parse,
    parsed: LazyLock::new(|| built_in::PROFILES.iter().map(|_| OnceLock::new()).collect()),
};

impl Profile {
    /// Loads a built-in profile by name, or a TOML file.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown profile (with the nearest name) or an invalid file (with
    /// line and column).
    pub fn load(name_or_file: &str) -> Result<Self> {
        PROFILES.load(name_or_file)
    }

    /// File the argument refers to; `None` for a built-in name or a missing file.
    pub fn file(name_or_file: &str) -> Option<&Path> {
        PROFILES.file(name_or_file)
    }

    pub fn names() -> [&'static str; built_in::PROFILES.len()] {
        built_in::PROFILES_NAMES
    }

    /// All built-in profiles, in the order of [`Profile::names`].
    pub fn built_in() -> Vec<Self> {
        PROFILES.built_in()
    }

    /// Canonical name of a built-in profile, ignoring case and dashes (`H100-SXM` is `h100_sxm`); other
    /// text, such as a file name, is returned unchanged.
    pub fn canonical_name(typed: &str) -> &str {
        PROFILES.canonical_name(typed)
    }

    /// TOML text of a built-in profile.
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        PROFILES.text(name)
    }

    /// Parses and checks a profile; `file` is its name in errors.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self> {
        let mut profile = PROFILES.parse(file, text, Self::check)?;
        collective::complete(&mut profile.link, &profile.name);
        Ok(profile)
    }

    /// Returns the first key with an invalid value, and the problem.
    pub(super) fn check(&self) -> CheckResult {
        above("hbm_gb_s", self.hbm_gb_s, 0.0)?;
        share("hbm_efficiency", self.hbm_efficiency)?;
        above("matvec_scale", self.matvec_scale, 0.0)?;
        share("compute_efficiency", self.compute_efficiency)?;
        share("attention_efficiency", self.attention_efficiency.unwrap_or(1.0))?;
        at_least("kernel_us", self.kernel_us, 0.0)?;
        above("host_scale", self.host_scale, 0.0)?;
        above("gpus_per_node", f64::from(self.gpus_per_node), 0.0)?;
        if let Some(sms) = self.sms {
            above("sms", f64::from(sms), 0.0)?;
        }
        above("tflops.bf16", self.tflops.bf16, 0.0)?;
        above("tflops.f16", self.tflops.f16, 0.0)?;
        above("tflops.f32", self.tflops.f32, 0.0)?;
        for (key, peak) in [("tflops.fp8", self.tflops.fp8), ("tflops.fp4", self.tflops.fp4)] {
            above(key, peak.unwrap_or(1.0), 0.0)?;
        }
        at_least("skew.rank_pct", self.skew.rank_pct, 0.0)?;
        at_least("skew.operation_pct", self.skew.operation_pct, 0.0)?;
        if let Some(name) = self.tables.as_deref().filter(|name| Tables::from_name(name).is_none()) {
            let valid = Tables::names().join(", ");
            return Err(("tables".into(), format!("is '{name}'; built in are {valid}")));
        }
        let links = &self.link;
        for (name, table) in links.tables() {
            if table.tp.is_empty() {
                return Err((format!("link.{name}.tp"), "is empty; it needs at least one TP".into()));
            }
            for (tp, point) in &table.tp {
                let key = format!("link.{name}.tp.{tp}");
                above(&key, f64::from(*tp), 1.0)?;
                latency(&format!("{key}.alpha_us"), point.alpha_us)?;
                bandwidth(&format!("{key}.gb_s"), point.gb_s)?;
                if let Some(large) = point.large {
                    latency(&format!("{key}.large.alpha_us"), large.alpha_us)?;
                    bandwidth(&format!("{key}.large.gb_s"), large.gb_s)?;
                }
                for (_, us) in &point.points {
                    above(&format!("{key}.points: a latency"), *us, 0.0)?;
                    latency(&format!("{key}.points: a latency"), *us)?;
                }
                if let Some(pair) = point.points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
                    let problem =
                        format!("has {} bytes before {}; bytes must ascend", pair[0].0, pair[1].0);
                    return Err((format!("{key}.points"), problem));
                }
                if let Some((0, _)) = point.points.first() {
                    return Err((format!("{key}.points"), "has a message of 0 bytes".into()));
                }
            }
        }
        latency("link.inter_node.alpha_us", links.inter_node.alpha_us)?;
        bandwidth("link.inter_node.gb_s", links.inter_node.gb_s)
    }
}

/// Accepted ratio of a GPU's memory to the profile's; drivers count differently.
const MEMORY_RATIO: std::ops::RangeInclusive<f64> = 0.9..=1.15;

/// Profile of a GPU with this name and memory in bytes, if known.
pub fn profile_of(name: &str, memory_bytes: u64) -> Option<&'static str> {
    let profile = board(name)?;
    let expected = Profile::load(profile).ok()?.memory_bytes;
    MEMORY_RATIO.contains(&(memory_bytes as f64 / expected as f64)).then_some(profile)
}

/// Profile of a GPU known only by name. Parses no profile unless the name states a memory size.
pub fn profile_named(name: &str) -> Option<&'static str> {
    if let Some(simulated) = name.strip_prefix(SIMULATED_GPU) {
        let profile = Profile::canonical_name(simulated);
        return Profile::names().into_iter().find(|known| *known == profile);
    }
    memory_in_name(name).map_or_else(|| board(name), |memory| profile_of(name, memory))
}

/// Start of the GPU's name in an exported trace of a simulated run; the profile's name follows.
pub const SIMULATED_GPU: &str = "simulated ";

fn board(name: &str) -> Option<&'static str> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        gpu: GpuName,
    }
    static NAMES: LazyLock<Vec<(&str, GpuName)>> = LazyLock::new(|| {
        let read =
            |text| toml::from_str(text).map_or_else(|_| GpuName::default(), |file: File| file.gpu);
        built_in::PROFILES.iter().map(|(profile, text)| (*profile, read(text))).collect()
    });
    NAMES.iter().find(|(_, gpu)| gpu.matches(name)).map(|(profile, _)| *profile)
}

/// Memory stated in a name, in bytes: `NVIDIA A100-SXM4-40GB` has 40 GB.
fn memory_in_name(name: &str) -> Option<u64> {
    let number = |word: &str| word.strip_suffix("GB")?.parse::<u64>().ok();
    name.split([' ', '-']).find_map(number).and_then(|gb| gb.checked_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::Error;
    use table::P2p;

    fn text() -> &'static str {
        built_in::PROFILES[0].1
    }

    #[test]
    fn every_built_in_profile_loads_by_its_own_name_and_says_where_its_numbers_come_from() {
        assert_eq!(Profile::built_in().len(), built_in::PROFILES.len());
        for (name, _) in built_in::PROFILES {
            let profile = Profile::load(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.sources.len() >= 4, "{name} lacks sources");
            let off = profile.link.p2p_off.note.as_deref().unwrap();
            let marks = ["stand-in", "calibrated", "posted"];
            assert!(
                marks.iter().any(|mark| off.starts_with(mark)),
                "{name}: its note opens with none of {marks:?}"
            );
            for word in
                ["memory, bandwidth", "efficienc", "link.p2p_on", "link.p2p_off", "link.inter_node"]
            {
                let is_named = |source: &String| {
                    source.contains(word) || (word == "link.p2p_off" && source.contains("without P2P"))
                };
                assert!(profile.sources.iter().any(is_named), "{name} has no source for {word}");
            }
            assert!(
                profile.tables.is_none() || profile.sources.iter().any(|s| s.contains("tables")),
                "{name}"
            );
            for tp in [2, 4, 8] {
                let (on, off) = (profile.link(P2p::On, tp), profile.link(P2p::Off, tp));
                assert!(on.1 >= off.1, "{name} tp {tp}: P2P must not lower the bandwidth");
            }
        }
        assert_eq!(Profile::load("h100_sxm").unwrap().memory_bytes, 80_000_000_000);
    }

    #[test]
    fn a_profile_survives_toml() {
        for profile in Profile::built_in() {
            let text = toml::to_string(&profile).unwrap();
            let mut again = Profile::parse("again", &text).unwrap();
            again.link.keep_scaled(&profile.link);
            assert_eq!(again, profile);
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let Err(Error::Input { message, help }) = Profile::load("h100_sx") else { panic!("accepted") };
        assert!(message.contains("'h100_sx'"));
        assert!(help.unwrap().contains("did you mean 'h100_sxm'?"));
        assert_eq!(Profile::load("no/such/file.toml").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_misspelt_key_is_named_with_line_column_and_the_right_one() {
        let wrong = text().replace("hbm_gb_s = 3350.0", "hbm_gbs = 3350.0");
        let line = wrong.lines().position(|l| l.starts_with("hbm_gbs")).unwrap() + 1;
        let Err(Error::At { message, help, .. }) = Profile::parse("my.toml", &wrong) else {
            panic!("accepted")
        };
        assert!(message.starts_with(&format!("my.toml:{line}:1: unknown field `hbm_gbs`")), "{message}");
        assert_eq!(help.as_deref(), Some("did you mean 'hbm_gb_s'?"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_name() {
        for (from, to, key) in [
            ("hbm_efficiency = 0.88", "hbm_efficiency = 1.2", "hbm_efficiency is 1.2"),
            ("rank_pct = 0.0", "rank_pct = -1.0", "skew.rank_pct is -1"),
            ("tables = \"h100_sxm\"", "tables = \"h100\"", "tables is 'h100'"),
            ("[512, 6.2], [1024, 6.39]", "[1024, 6.2], [512, 6.39]", "link.p2p_on.tp.2.points has 1024"),
            ("gb_s = 400.0", "gb_s = 0.0", "link.inter_node.gb_s is 0"),
            ("memory_gb = 80.0", "memory_gb = 0.0", "0 GB of memory"),
            ("[link.p2p_on.tp.2]", "[link.p2p_on.tp.1]", "link.p2p_on.tp.1 is 1"),
        ] {
            let wrong = text().replace(from, to);
            assert_ne!(wrong, text());
            let message = Profile::parse("my.toml", &wrong).unwrap_err().to_string();
            assert!(message.contains("my.toml") && message.contains(key), "{message}");
        }
    }

    #[test]
    fn boards_are_told_apart_by_name_and_memory() {
        let gib = |n: f64| (n * f64::from(1 << 30)) as u64;
        for (name, memory, profile) in [
            ("NVIDIA H100 80GB HBM3", gib(79.2), Some("h100_sxm")),
            ("NVIDIA H100 PCIe", gib(79.2), Some("h100_pcie")),
            ("NVIDIA H100 NVL", gib(93.1), None),
            ("NVIDIA GH200 480GB", gib(94.5), None),
            ("NVIDIA H200", gib(139.8), Some("h200_sxm")),
            ("NVIDIA H200 NVL", gib(139.8), None),
            ("NVIDIA H200 MIG 1g.18gb", gib(16.0), None),
            ("NVIDIA A100-SXM4-80GB", gib(79.2), Some("a100_sxm")),
            ("NVIDIA A100-SXM4-40GB", gib(39.4), None),
            ("NVIDIA B200", gib(178.4), Some("b200_sxm")),
            ("NVIDIA L40S", gib(44.4), Some("l40s")),
            ("AMD Instinct MI300X", gib(192.0), Some("mi300x")),
            ("NVIDIA GeForce RTX 4090", gib(23.6), Some("rtx_4090")),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", gib(15.6), None),
            ("NVIDIA GeForce RTX 5090", gib(31.8), Some("rtx_5090")),
            ("NVIDIA B300 SXM6 AC", gib(268.0), Some("b300_sxm")),
            ("NVIDIA GB200", gib(184.0), Some("gb200")),
            ("NVIDIA A100 80GB PCIe", gib(79.2), Some("a100_pcie")),
            ("NVIDIA A100-PCIE-40GB", gib(39.4), None),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", gib(95.0), Some("rtx_pro_6000")),
            ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", gib(95.0), None),
        ] {
            assert_eq!(profile_of(name, memory), profile, "{name}");
            assert!(profile_named(name) == profile || profile.is_none(), "{name}");
        }
        assert_eq!(profile_named("NVIDIA A100-SXM4-40GB"), None, "its name says its memory");
    }
}
