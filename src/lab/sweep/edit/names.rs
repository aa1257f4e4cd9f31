//! Names of possible axes, and parsing of value lists as typed by users.

use machine::hardware::Target;
use table::Spec;
use table::options::{OPTIONS, OptionEntry};

/// Name that can be an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisName {
    /// Name in experiment files, e.g. `tp`, `env.NCCL_ALGO` or `set.link.alpha_us`.
    pub name: String,
    /// Short description with valid values.
    pub about: String,
}

/// NCCL variable that affects the latency of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclVariable {
    /// Name in the environment, e.g. `NCCL_ALGO`.
    pub name: &'static str,
    pub about: &'static str,
    /// Valid values, if they are few.
    pub values: &'static [&'static str],
}

const fn variable(
    name: &'static str,
    about: &'static str,
    values: &'static [&'static str],
) -> NcclVariable {
    NcclVariable { name, about, values }
}

/// Variables offered for selection. Users can type any other.
const NCCL: [NcclVariable; 18] = [
    variable("NCCL_ALGO", "algorithm", &["Ring", "Tree", "NVLS", "NVLSTree"]),
    variable("NCCL_PROTO", "protocol", &["LL", "LL128", "Simple"]),
    variable("NCCL_P2P_DISABLE", "1: no direct access between GPUs", &["0", "1"]),
    variable(
        "NCCL_P2P_LEVEL",
        "largest distance for direct GPU access",
        &["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"],
    ),
    variable("NCCL_SHM_DISABLE", "1: no shared memory between processes", &["0", "1"]),
    variable("NCCL_NVLS_ENABLE", "NVLink SHARP", &["0", "1", "2"]),
    variable("NCCL_MIN_CTAS", "minimum thread blocks per collective", &[]),
    variable("NCCL_MAX_CTAS", "maximum thread blocks per collective (SMs taken from compute)", &[]),
    variable("NCCL_MIN_NCHANNELS", "minimum channels", &[]),
    variable("NCCL_MAX_NCHANNELS", "maximum channels", &[]),
    variable("NCCL_NTHREADS", "threads per block", &["64", "128", "256", "512"]),
    variable("NCCL_BUFFSIZE", "buffer size between two GPUs, in bytes", &[]),
    variable("NCCL_CGA_CLUSTER_SIZE", "size of thread block clusters", &["0", "1", "2", "4", "8"]),
    variable("NCCL_CUMEM_ENABLE", "memory allocation through cuMem", &["0", "1"]),
    variable(
        "NCCL_NET_GDR_LEVEL",
        "largest GPU-to-NIC distance for GPUDirect",
        &["LOC", "PIX", "PXB", "PHB", "SYS"],
    ),
    variable("NCCL_IB_DISABLE", "1: sockets instead of InfiniBand", &["0", "1"]),
    variable("NCCL_CROSS_NIC", "rings across several NICs", &["0", "1", "2"]),
    variable("NCCL_GRAPH_MIXING_SUPPORT", "1: mix captured and uncaptured collectives", &["0", "1"]),
];

/// Looks up an offered variable by name.
pub fn nccl(name: &str) -> Option<&'static NcclVariable> {
    NCCL.iter().find(|variable| variable.name == name)
}

/// All possible axes: options, NCCL variables, and the values of the hardware profile and stack that `spec` is
/// simulated on.
pub fn axis_names(spec: Option<&Spec>) -> Vec<AxisName> {
    let option = |option: &OptionEntry| AxisName {
        name: option.name.to_owned(),
        about: option.help_with_values(),
    };
    let nccl = |variable: &NcclVariable| {
        let switch = variable.values == ["0", "1"];
        let values = if switch { String::new() } else { variable.values.join(" ") };
        let gap = if values.is_empty() { "" } else { ": " };
        let about = format!("{}{gap}{values}", variable.about);
        AxisName { name: format!("env.{}", variable.name), about }
    };
    let mut names: Vec<AxisName> = OPTIONS.iter().map(option).chain(NCCL.iter().map(nccl)).collect();
    let target = spec.and_then(|spec| Target::of(spec).ok());
    for value in target.iter().flat_map(Target::described) {
        names.push(AxisName {
            name: format!("set.{}", value.key),
            about: format!("{}: {}", value.about, short(&value.value)),
        });
    }
    names
}

/// Formats a profile value for display, without the digits left by rounding.
fn short(value: &str) -> String {
    let number = value.parse::<f64>().ok().filter(|_| value.len() > 8);
    let rounded = number.and_then(|number| format!("{number:.5e}").parse::<f64>().ok());
    rounded.map_or_else(|| value.to_owned(), |number| number.to_string())
}

/// Splits a typed list at blanks or commas, respecting quotes. Links and variables contain commas, so for them a
/// comma separates only before a blank. `1..64*2` expands to 1 2 4 8 16 32 64, `1..4` to 1 2 3 4. Drops duplicates.
pub fn split_values(name: &str, typed: &str) -> Vec<String> {
    let commas = name != "link" && !name.starts_with("env.") && !name.starts_with("links.");
    let mut values: Vec<String> = Vec::new();
    let (mut value, mut quoted, mut in_quotes) = (String::new(), false, false);
    let mut push = |value: &mut String, quoted: &mut bool| {
        let text = std::mem::take(value);
        let was_quoted = std::mem::take(quoted);
        let text = if was_quoted || commas { text } else { text.trim_end_matches(',').to_owned() };
        if text.is_empty() && !was_quoted {
            return;
        }
        for value in if was_quoted { vec![text] } else { range(&text).unwrap_or_else(|| vec![text]) } {
            if !values.contains(&value) {
                values.push(value);
            }
        }
    };
    for c in typed.chars() {
        match c {
            '"' => {
                in_quotes = !in_quotes;
                quoted = true;
            }
            c if !in_quotes && (c.is_whitespace() || (commas && c == ',')) => {
                push(&mut value, &mut quoted);
            }
            // brackets of TOML lists are ignored
            '[' | ']' if !in_quotes => {}
            c => value.push(c),
        }
    }
    push(&mut value, &mut quoted);
    values
}

/// Expands `1..64*2` or `1..4`, up to 64 values.
fn range(text: &str) -> Option<Vec<String>> {
    let (from, to) = text.split_once("..")?;
    let (to, factor) = to.split_once('*').map_or((to, None), |(to, factor)| (to, Some(factor)));
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    let factor: Option<u64> = factor.map(str::parse).transpose().ok()?;
    if from > to || from == 0 || factor.is_some_and(|factor| factor < 2) {
        return None;
    }
    let next = |n: &u64| factor.map_or(n.checked_add(1), |factor| n.checked_mul(factor));
    let values: Vec<u64> =
        std::iter::successors(Some(from), next).take_while(|n| *n <= to).take(65).collect();
    (values.len() <= 64).then(|| values.iter().map(u64::to_string).collect())
}
