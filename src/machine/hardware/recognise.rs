//! Recognition of GPUs by their driver name, to find a comparable built-in profile. No claim that the
//! profile describes this machine.

use super::Profile;

/// Required and excluded parts of a GPU's name per profile. `NVIDIA H100 80GB HBM3` is the SXM board;
/// `NVIDIA H100 PCIe` and `NVIDIA H100 NVL` are not.
const NAMES: [(&str, &[&str], &[&str]); 6] = [
    ("h100_sxm", &["H100", "HBM3"], &["PCIe", "NVL", "GH", "HBM3e", "MIG"]),
    ("h200_sxm", &["H200"], &["NVL", "GH", "MIG"]),
    ("a100_sxm", &["A100", "SXM"], &["MIG"]),
    ("b200_sxm", &["B200"], &["GB200", "MIG"]),
    ("l40s", &["L40S"], &["MIG"]),
    ("mi300x", &["MI300X"], &[]),
];

/// Accepted ratio of a GPU's memory to the profile's; drivers count differently.
const MEMORY: std::ops::RangeInclusive<f64> = 0.9..=1.15;

/// Profile of a GPU with this name and memory in bytes, if known.
pub fn profile_of(name: &str, memory_bytes: u64) -> Option<&'static str> {
    let known = NAMES.iter().find(|(_, with, without)| {
        with.iter().all(|part| name.contains(part)) && !without.iter().any(|part| name.contains(part))
    });
    let (profile, ..) = known?;
    let expected = Profile::load(profile).ok()?.memory_bytes;
    MEMORY.contains(&(memory_bytes as f64 / expected as f64)).then_some(*profile)
}

/// Profile of a GPU known only by name.
pub fn profile_named(name: &str) -> Option<&'static str> {
    let stated = memory_in_name(name);
    let memory = |profile: &Profile| stated.unwrap_or(profile.memory_bytes);
    Profile::built_in().iter().find_map(|profile| profile_of(name, memory(profile)))
}

/// Memory stated in a name, in bytes: `NVIDIA A100-SXM4-40GB` has 40 GB.
fn memory_in_name(name: &str) -> Option<u64> {
    let number = |word: &str| word.strip_suffix("GB")?.parse::<u64>().ok();
    name.split([' ', '-']).find_map(number).and_then(|gb| gb.checked_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_are_told_apart_by_name_and_memory() {
        let gib = |n: f64| (n * f64::from(1 << 30)) as u64;
        for (name, memory, profile) in [
            ("NVIDIA H100 80GB HBM3", gib(79.2), Some("h100_sxm")),
            ("NVIDIA H100 PCIe", gib(79.2), None),
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
            ("NVIDIA GeForce RTX 4090", gib(23.6), None),
        ] {
            assert_eq!(profile_of(name, memory), profile, "{name}");
            assert!(profile_named(name) == profile || profile.is_none(), "{name}");
        }
        assert_eq!(profile_named("NVIDIA A100-SXM4-40GB"), None, "its name says its memory");
    }
}
