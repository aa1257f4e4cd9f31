//! NCCL's choices (algorithms, transports, channels), parsed from its debug log, and its environment variables, for
//! the run record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Variables that make NCCL log its choices. Logging costs time, so they are never set in timed runs. [`DEBUG_FILE`]
/// names the log file.
pub const DEBUG_VARIABLES: [(&str, &str); 2] =
    [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH,TUNING")];

/// Controls in-switch reduction (NVLS): 0 off, 1 on, 2 automatic.
pub const NVLS: &str = "NCCL_NVLS_ENABLE";

pub const DEBUG_FILE: &str = "NCCL_DEBUG_FILE";

/// NCCL's choices, as far as its log reports them; that differs by version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// NCCL version with its CUDA version: `2.27.3+cuda12.9`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Transports between ranks: `P2P/CUMEM`, `SHM/direct`, `NET/IB`.
    pub transports: BTreeSet<String>,
    /// Network between hosts: `IB`, `Socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// True if in-switch reduction (NVLS) was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvls: Option<bool>,
    /// Algorithm and protocol (`RING LL`) by all-reduce size (bytes).
    pub all_reduce: BTreeMap<u64, String>,
    /// Channels, one thread block each, by all-reduce size (bytes).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<u64, u32>,
    /// Environment variables that NCCL reports to have applied.
    pub heeded: BTreeSet<String>,
    pub warnings: Vec<String>,
}

impl Chosen {
    /// Sizes (bytes) of all-reduces that use in-switch reduction (NVLS); empty if NVLS is available but the log lists
    /// no sizes, `None` if it is not used.
    pub fn through_the_switch(&self) -> Option<Vec<u64>> {
        let nvls = self.all_reduce.iter().filter(|(_, how)| how.starts_with("NVLS"));
        let bytes: Vec<u64> = nvls.map(|(bytes, _)| *bytes).collect();
        let is_told = !self.all_reduce.is_empty();
        (!bytes.is_empty() || (!is_told && self.nvls == Some(true))).then_some(bytes)
    }

    /// Note for runs without P2P in which NCCL still reduces in the NVLink switch.
    pub fn switch_without_p2p(&self) -> Option<String> {
        let bytes = self.through_the_switch()?;
        let which = match bytes.as_slice() {
            [] => "it may choose NVLS".to_owned(),
            bytes => format!(
                "NVLS for messages of {} bytes",
                bytes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ),
        };
        Some(format!(
            "P2P is off, but NCCL sums within NVLink's switch all the same ({which}), at NVLink's speed: nothing ties \
             the one to the other; --nvls off (NCCL_NVLS_ENABLE=0) takes that away, too"
        ))
    }
}

const WARNINGS: usize = 20;

/// Parses the log that this process's NCCL wrote to `NCCL_DEBUG_FILE`; `None` if there is no log.
pub fn chosen() -> Option<Chosen> {
    let name = std::env::var(DEBUG_FILE).ok()?;
    // NCCL's placeholders: %p is the process id, %h the host name
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = host.split('.').next().unwrap_or_default();
    let of = |host: &str| name.replace("%p", &std::process::id().to_string()).replace("%h", host);
    let text = [of(&host), of(short)].iter().find_map(|path| std::fs::read(Path::new(path)).ok())?;
    Some(parse(&String::from_utf8_lossy(&text)))
}

pub fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("NCCL_"))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}

fn parse(text: &str) -> Chosen {
    let mut chosen = Chosen::default();
    for line in text.lines() {
        if let Some((_, said)) = line.split_once("NCCL INFO ") {
            information(&mut chosen, said.trim());
        } else if let Some((_, said)) = line.split_once("NCCL WARN ")
            && chosen.warnings.len() < WARNINGS
        {
            chosen.warnings.push(said.trim().to_owned());
        } else if let Some((_, version)) = line.split_once("NCCL version ") {
            chosen.version.get_or_insert_with(|| first_word(version));
        }
    }
    chosen
}

fn information(chosen: &mut Chosen, said: &str) {
    if let Some(version) = said.strip_prefix("NCCL version ") {
        chosen.version.get_or_insert_with(|| first_word(version));
    } else if let Some((channels, _)) = said.split_once(" coll channels") {
        chosen.channels = channels.trim().parse().ok().or(chosen.channels);
        // versions before 2.17 have no NVLS channels and do not log them
        if let Some(nvls) = said.split(',').find_map(|part| part.trim().strip_suffix(" nvls channels")) {
            chosen.nvls = nvls.parse::<u32>().ok().map(|channels| channels > 0).or(chosen.nvls);
        }
    } else if let Some((_, way)) = said.split_once(" via ")
        && said.starts_with("Channel ")
    {
        chosen.transports.insert(transport(way));
    } else if let Some(network) = said.strip_prefix("Using network ") {
        chosen.network.get_or_insert_with(|| first_word(network));
    } else if let Some((name, _)) = said.split_once(" set by environment to ") {
        chosen.heeded.insert(first_word(name));
    } else if let Some((bytes, how)) =
        said.strip_prefix("AllReduce: ").and_then(|rest| rest.split_once(" Bytes -> "))
        && let Ok(bytes) = bytes.trim().parse()
        && let Some(named) = algorithm(how)
    {
        chosen.all_reduce.insert(bytes, named);
        chosen.blocks.extend(channels(how).map(|channels| (bytes, channels)));
    }
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Shortens `P2P/CUMEM/read` to `P2P/CUMEM` and drops the card number of a network.
fn transport(way: &str) -> String {
    first_word(way).split('/').take(2).collect::<Vec<_>>().join("/")
}

/// Number of channels in `channel{Lo..Hi}={0..1}`.
fn channels(how: &str) -> Option<u32> {
    let (_, range) = how.split_once("channel{Lo..Hi}={")?;
    let (low, high) = range.split_once('}')?.0.split_once("..")?;
    let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    high.checked_sub(low)?.checked_add(1)
}

/// Parses `Algo RING proto LL channel{...}`; versions before 2.24 log numbers instead of names.
fn algorithm(how: &str) -> Option<String> {
    const ALGORITHMS: [&str; 7] =
        ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
    const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];
    let words: Vec<&str> = how.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(name))?;
        words.get(at + 1).copied()
    };
    let named = |word: &str, names: &[&str]| match word.parse::<usize>() {
        Ok(number) => names.get(number).map_or_else(|| word.to_owned(), |name| (*name).to_owned()),
        Err(_) => word.to_uppercase(),
    };
    let (algorithm, protocol) = (after("algo")?, after("proto")?);
    Some(format!("{} {}", named(algorithm, &ALGORITHMS), named(protocol, &PROTOCOLS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_from_debug_lines() {
        let text = "\
node1:812:812 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node1:812:812 [0] NCCL INFO NCCL_ALGO set by environment to Ring
node1:812:830 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.
node1:812:830 [0] NCCL INFO Using network Socket
node1:812:830 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels
node1:812:830 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:812:830 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA
node1:812:812 [0] NCCL INFO AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
node1:812:812 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo 5 proto 2 time 801.5
node1:812:812 [0] NCCL INFO Broadcast: 4 Bytes -> Algo RING proto LL

node1:812:830 [0] misc/socket.cc:123 NCCL WARN socketStart: Connect failed
no line of NCCL's at all";
        let chosen = parse(text);
        assert_eq!(chosen.version.as_deref(), Some("2.27.3+cuda12.9"));
        assert_eq!((chosen.channels, chosen.network.as_deref()), (Some(24), Some("Socket")));
        assert_eq!((chosen.nvls, chosen.switch_without_p2p().is_some()), (Some(false), true));
        assert_eq!(chosen.transports, ["NET/IB", "P2P/CUMEM"].map(String::from).into());
        assert_eq!(chosen.heeded, ["NCCL_ALGO", "NCCL_P2P_DISABLE"].map(String::from).into());
        let by_size = [(16_384, "RING LL".to_owned()), (268_435_456, "NVLS_TREE SIMPLE".to_owned())];
        assert_eq!(chosen.all_reduce, by_size.into());
        assert_eq!(chosen.blocks, [(16_384, 2)].into(), "older versions do not tell");
        assert_eq!(chosen.warnings, ["socketStart: Connect failed"]);
        assert_eq!(parse(""), Chosen::default());
    }

    #[test]
    fn sums_within_the_switch_are_told_where_p2p_is_off() {
        let channels = "a:1:1 [0] NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 32 p2p channels";
        let of = |lines: &str| parse(&format!("{channels}\n{lines}")).switch_without_p2p();
        let (ring, nvls) = (
            "a:1:1 [0] NCCL INFO AllReduce: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
            "a:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
        );
        assert_eq!(of(ring), None);
        let said = of(&format!("{ring}\n{nvls}")).unwrap_or_default();
        assert!(
            said.contains("NVLS for messages of 1048576 bytes") && said.contains("--nvls off"),
            "{said}"
        );
        assert!(of("").is_some_and(|said| said.contains("it may choose NVLS")));
    }
}
