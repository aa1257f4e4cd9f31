//! What can be an axis: names to choose from, and lists of values as people type them.

use machine::hardware::Target;
use table::Spec;
use table::options::{OPTIONS, OptionEntry};

/// Something that can be varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisName {
    /// The name by which files know it: `tp`, `env.NCCL_ALGO`, `set.link.alpha_us`.
    pub name: String,
    /// What it is, in a few words, with values it takes.
    pub about: String,
}

/// A variable of NCCL that changes how fast an all-reduce is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclVariable {
    /// Its name in the environment of a run: `NCCL_ALGO`.
    pub name: &'static str,
    /// What it decides, in a few words.
    pub about: &'static str,
    /// The values it takes, where they are few.
    pub values: &'static [&'static str],
}

const fn variable(
    name: &'static str,
    about: &'static str,
    values: &'static [&'static str],
) -> NcclVariable {
    NcclVariable { name, about, values }
}

/// The variables that are offered. Any other can be typed.
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

/// The variable of this name, where it is one of those that are offered.
pub fn nccl(name: &str) -> Option<&'static NcclVariable> {
    NCCL.iter().find(|variable| variable.name == name)
}

/// Everything that can be varied: options, NCCL variables, and each value of the hardware profile and
/// the stack that `spec` is simulated on.
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

/// A profile's value as it is read: a number of a scale, say, without the digits that rounding left behind.
fn short(value: &str) -> String {
    let number = value.parse::<f64>().ok().filter(|_| value.len() > 8);
    let rounded = number.and_then(|number| format!("{number:.5e}").parse::<f64>().ok());
    rounded.map_or_else(|| value.to_owned(), |number| number.to_string())
}

/// A list as people type it: values between blanks or commas, in quotes where they have either. Links
/// and variables have commas in them: there a comma separates only before a blank. `1..64*2` stands
/// for 1 2 4 8 16 32 64, `1..4` for 1 2 3 4. What stands twice counts once.
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
            // as it stands in the file
            '[' | ']' if !in_quotes => {}
            c => value.push(c),
        }
    }
    push(&mut value, &mut quoted);
    values
}

/// `1..64*2` or `1..4`, of at most 64 values.
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
