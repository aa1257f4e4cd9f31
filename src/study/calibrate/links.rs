//! Measured all-reduces as links of a hardware profile: latency and bandwidth at each TP, the rows of the profile that
//! stay, and the values that no message measures.

use std::path::{Path, PathBuf};

use super::AllReduces;
use base::error::{Error, Result};
use base::text::{counted, latency, si};
use machine::hardware::{LinkPoint, LinkTable, Profile, profile_named};
use table::P2p;

/// Value of a link that the measured messages do not determine, kept from the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptValue {
    pub name: &'static str,
    pub reason: &'static str,
}

/// Links fitted to large messages keep this value.
const SMALL_LATENCY: KeptValue =
    KeptValue { name: "latency of small messages", reason: "only large ones measured" };

/// Links through small messages keep this value.
const BANDWIDTH: KeptValue = KeptValue { name: "bandwidth", reason: "only small messages measured" };

/// All-reduces of a file, and the link through them.
#[derive(Clone, Debug)]
pub struct MeasuredLink {
    pub file: PathBuf,
    pub test: AllReduces,
    pub link: LinkPoint,
    pub kept: Option<KeptValue>,
}

/// Profile to add links to, and their properties.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions<'a> {
    pub p2p: P2p,
    /// Profile by name or file; `None` for that of the GPU that the files name.
    pub hardware: Option<&'a str>,
    /// Use the only measured TP for the others.
    pub extrapolate: bool,
}

/// Profile with measured all-reduces in its links.
#[derive(Clone, Debug)]
pub struct MeasuredLinks {
    pub p2p: P2p,
    /// Name or file of the profile.
    pub hardware: String,
    pub before: Profile,
    pub after: Profile,
    /// By ascending TP.
    pub links: Vec<MeasuredLink>,
    /// GPUs that are not those of the profile, one sentence each.
    pub warnings: Vec<String>,
}

impl MeasuredLinks {
    /// Loads a profile and adds measured all-reduces, one file per TP, to it.
    ///
    /// # Errors
    ///
    /// Returns an input error if two files have the same TP, no profile is named or known for their GPU, or the
    /// messages of a file determine neither latency nor bandwidth.
    pub fn of_tests(mut tests: Vec<(PathBuf, AllReduces)>, options: LinkOptions<'_>) -> Result<Self> {
        tests.sort_by_key(|(_, test)| test.ranks);
        if let Some([(a, test), (b, _)]) =
            tests.array_windows().find(|[(_, a), (_, b)]| a.ranks == b.ranks)
        {
            return Err(Error::input_help(
                format!(
                    "{} and {} were both measured on {}",
                    a.display(),
                    b.display(),
                    counted(test.ranks as usize, "GPU")
                ),
                "pass one file per number of GPUs",
            ));
        }
        let mut gpus: Vec<&str> = tests.iter().filter_map(|(_, test)| test.gpu.as_deref()).collect();
        gpus.sort_unstable();
        gpus.dedup();
        let hardware = match options.hardware {
            Some(named) => named.to_owned(),
            None => profile_of_gpus(&gpus)?,
        };
        let before = Profile::load(&hardware)?;
        let warnings = match options.hardware {
            Some(_) => other_gpus(&gpus, &before),
            None => Vec::new(),
        };
        let table = link_table(&before, options.p2p);
        let links = tests.into_iter().map(|(file, test)| {
            let (link, kept) = fit_link(&file, &test, table)?;
            Ok(MeasuredLink { file, test, link, kept })
        });
        let links = links.collect::<Result<Vec<_>>>()?;
        let after = updated_profile(&hardware, &before, &links, options);
        Ok(Self { p2p: options.p2p, hardware, before, after, links, warnings })
    }

    pub fn table_before(&self) -> &LinkTable {
        link_table(&self.before, self.p2p)
    }

    pub fn table_after(&self) -> &LinkTable {
        link_table(&self.after, self.p2p)
    }

    /// Describes the values that the profile still takes from elsewhere; `measured` are the links of all measured P2P
    /// settings.
    pub fn assumed(&self, measured: &[Self]) -> Vec<String> {
        let all_reduces = |p2p: P2p| format!("all-reduces with P2P {}", p2p.as_str());
        let kept = self.links.iter().filter_map(|measured| {
            let KeptValue { name, reason } = measured.kept?;
            Some(format!("{name} at TP {} ({reason})", measured.test.ranks))
        });
        let mut assumed: Vec<String> = kept.collect();
        let is_measured = |tp: u32| self.links.iter().any(|measured| measured.test.ranks == tp);
        let others = self.table_after().tp.keys().filter(|tp| !is_measured(**tp));
        let others: Vec<String> = others.map(u32::to_string).collect();
        if !others.is_empty() {
            assumed.push(format!("{} at TP {}", all_reduces(self.p2p), others.join(", ")));
        }
        if measured.iter().all(|links| links.p2p == self.p2p) {
            assumed.push(all_reduces(if self.p2p == P2p::On { P2p::Off } else { P2p::On }));
        }
        assumed.extend(
            [
                "latencies of collectives other than NCCL",
                "inter-node links",
                "GPU memory bandwidth and peak FLOP/s",
                "slowdown of compute during a collective (from the stack)",
            ]
            .map(str::to_owned),
        );
        assumed
    }
}

fn link_table(profile: &Profile, p2p: P2p) -> &LinkTable {
    match p2p {
        P2p::On => &profile.link.p2p_on,
        P2p::Off => &profile.link.p2p_off,
    }
}

fn link_table_mut(profile: &mut Profile, p2p: P2p) -> &mut LinkTable {
    match p2p {
        P2p::On => &mut profile.link.p2p_on,
        P2p::Off => &mut profile.link.p2p_off,
    }
}

/// Built-in profile of the only measured GPU.
fn profile_of_gpus(gpus: &[&str]) -> Result<String> {
    if let [one, other, ..] = gpus {
        return Err(Error::input_help(
            format!("the files were measured on different GPUs: {one}, {other}"),
            "pass the files of one GPU, or name the profile with --hardware",
        ));
    }
    let gpu = gpus.first().copied();
    gpu.and_then(profile_named).map(str::to_owned).ok_or_else(|| {
        Error::input_help(
            match gpu {
                Some(gpu) => format!("no built-in profile for this GPU: {gpu}"),
                None => "the files do not name the GPU".to_owned(),
            },
            format!("name the nearest one with --hardware: {}", Profile::names().join(", ")),
        )
    })
}

/// Warnings about measured GPUs that are not those of the profile. A GPU without a built-in profile and a profile of
/// the user's are compared by words of their names.
fn other_gpus(gpus: &[&str], profile: &Profile) -> Vec<String> {
    let name = profile.name.to_ascii_lowercase();
    // h100_sxm: H100
    let is_named = |model: &str| name.contains(&model.to_ascii_lowercase());
    let is_own = |gpu: &str| match profile_named(gpu) {
        Some(known) if Profile::names().contains(&profile.name.as_str()) => known == profile.name,
        Some(known) => is_named(known.split('_').next().unwrap_or(known)),
        None => gpu
            .split([' ', '-'])
            .any(|word| word.contains(|c: char| c.is_ascii_digit()) && is_named(word)),
    };
    let others = gpus.iter().filter(|gpu| !is_own(gpu));
    let warning = |gpu: &&str| {
        format!("measured on {gpu}, but used for the links of {} (--hardware)", profile.name)
    };
    others.map(warning).collect()
}

/// Link through the measured points, and the value kept from the profile: the bandwidth if only small messages were
/// measured, the latency of small messages if the smallest measured one mostly waits for its bytes.
fn fit_link(
    file: &Path,
    test: &AllReduces,
    before: &LinkTable,
) -> Result<(LinkPoint, Option<KeptValue>)> {
    let refused = |problem: &str| {
        let problem = format!("{}: {problem}", file.display());
        Error::input_help(problem, "measure from 8 B to 512 MB: `all_reduce_perf -b 8 -e 512M -f 2`")
    };
    let (alpha_us, gb_s) = before.at(test.ranks);
    let [(bytes, us), ref larger @ ..] = test.points[..] else {
        return Err(refused("no all-reduce was measured"));
    };
    let largest = larger.last().map_or(bytes, |(bytes, _)| *bytes);
    if transfer_us(largest, gb_s) <= alpha_us {
        // stored as points, so that measured messages get exactly their measured latencies
        let link = LinkPoint { points: test.points.clone(), ..LinkPoint::formula(us, gb_s) };
        return Ok((link, Some(BANDWIDTH)));
    }
    if larger.is_empty() {
        if us <= alpha_us {
            return Err(refused(&format!(
                "one message of {} takes {}, less than the profile's latency of small ones ({}), so neither latency nor bandwidth follows",
                si(bytes as f64, "B"),
                latency(us),
                latency(alpha_us)
            )));
        }
        let gb_s = bytes as f64 / (us - alpha_us) / 1e3;
        return Ok((LinkPoint::formula(alpha_us, gb_s), Some(SMALL_LATENCY)));
    }
    let fitted = LinkPoint::of_points(test.points.clone()).ok_or_else(|| {
        refused("the largest messages are not slower than small ones, so the bandwidth cannot be fitted")
    })?;
    let wait_us = (us - transfer_us(bytes, fitted.gb_s)).max(0.0);
    if wait_us >= us / 2.0 {
        Ok((fitted, None))
    } else {
        Ok((LinkPoint::formula(alpha_us.min(wait_us), fitted.gb_s), Some(SMALL_LATENCY)))
    }
}

fn transfer_us(bytes: u64, gb_s: f64) -> f64 {
    bytes as f64 / gb_s / 1e3
}

/// Profile with the measured points in its links. Rows of a built-in profile at other TPs stay only if the measured
/// GPU is the profile's; otherwise they describe another machine.
fn updated_profile(
    hardware: &str,
    before: &Profile,
    links: &[MeasuredLink],
    options: LinkOptions<'_>,
) -> Profile {
    let mut after = before.clone();
    let table = link_table_mut(&mut after, options.p2p);
    let mut gpus = links.iter().filter_map(|measured| measured.test.gpu.as_deref());
    let is_built_in = Profile::file(hardware).is_none();
    if is_built_in && gpus.any(|gpu| profile_named(gpu) != Some(before.name.as_str())) {
        table.tp.clear();
    }
    table.extrapolate |= options.extrapolate;
    table.tp.extend(links.iter().map(|measured| (measured.test.ranks, measured.link.clone())));
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: &str = "NVIDIA H100 80GB HBM3";

    fn test(gpu: &str, ranks: u32, points: &[(u64, f64)]) -> AllReduces {
        AllReduces {
            origin: "nccl-tests",
            ranks,
            gpu: Some(gpu.to_owned()),
            in_graph: Some(true),
            version: None,
            points: points.to_vec(),
            warnings: Vec::new(),
        }
    }

    /// Points of a link: `alpha_us` plus the transfer at `gb_s`.
    fn points(alpha_us: f64, gb_s: f64, bytes: &[u64]) -> Vec<(u64, f64)> {
        bytes.iter().map(|bytes| (*bytes, alpha_us + transfer_us(*bytes, gb_s))).collect()
    }

    fn links(tests: &[AllReduces], hardware: Option<&str>) -> Result<MeasuredLinks> {
        let files = tests.iter().enumerate();
        let tests = files.map(|(at, test)| (format!("{at}.txt").into(), test.clone())).collect();
        MeasuredLinks::of_tests(tests, LinkOptions { p2p: P2p::On, hardware, extrapolate: false })
    }

    #[test]
    fn latency_and_bandwidth_follow_from_small_and_large_messages() {
        let all = points(30.0, 100.0, &[8, 1 << 10, 1 << 16, 1 << 24, 1 << 26, 1 << 28]);
        let found = links(&[test(H100, 8, &all)], None).unwrap();
        let MeasuredLink { link, kept, .. } = &found.links[0];
        assert!((link.alpha_us - 30.0).abs() < 0.1 && (link.gb_s - 100.0).abs() < 0.1, "{link:?}");
        assert_eq!(*kept, None);
        assert_eq!(found.after.link.p2p_on.tp[&8], *link);
        assert_eq!(found.after.link.p2p_off, found.before.link.p2p_off);
    }

    #[test]
    fn values_that_the_messages_do_not_measure_stay() {
        let table = Profile::load("h100_sxm").unwrap().link.p2p_on;
        let (alpha_us, gb_s) = table.at(8);
        let one = |points: &[(u64, f64)]| {
            let found = links(&[test(H100, 8, points)], None).unwrap();
            (found.links[0].link.clone(), found.links[0].kept)
        };
        let (link, kept) = one(&points(50.0, gb_s, &[8, 64, 512]));
        assert_eq!((link.gb_s, link.points.len(), kept), (gb_s, 3, Some(BANDWIDTH)));
        for large in [vec![1 << 28], vec![1 << 26, 1 << 27, 1 << 28]] {
            let (link, kept) = one(&points(alpha_us, 2.0 * gb_s, &large));
            assert!((link.gb_s / (2.0 * gb_s) - 1.0).abs() < 0.01, "{link:?}");
            assert!(link.alpha_us <= alpha_us * 1.001, "{link:?}");
            assert_eq!(kept, Some(SMALL_LATENCY));
        }
        let too_fast = links(&[test(H100, 8, &[(1 << 28, alpha_us / 2.0)])], None).unwrap_err();
        assert!(too_fast.to_string().contains("neither latency nor bandwidth follows"), "{too_fast}");
        let none = links(&[test(H100, 8, &[])], None).unwrap_err();
        assert!(none.to_string().contains("no all-reduce was measured"), "{none}");
    }

    #[test]
    fn other_rows_stay_only_for_the_profiles_own_gpu() {
        let all = points(30.0, 100.0, &[8, 1 << 16, 1 << 26, 1 << 28]);
        let tps = |found: &MeasuredLinks| found.after.link.p2p_on.tp.keys().copied().collect::<Vec<_>>();
        let own = links(&[test(H100, 4, &all)], Some("h100_sxm")).unwrap();
        assert_eq!(tps(&own), own.before.link.p2p_on.tp.keys().copied().collect::<Vec<_>>());
        assert!(own.warnings.is_empty());
        let other = links(&[test("NVIDIA GeForce RTX 4090", 4, &all)], Some("h100_sxm")).unwrap();
        assert_eq!(tps(&other), [4]);
        assert_eq!(other.warnings.len(), 1);
        let assumed = other.assumed(std::slice::from_ref(&other));
        assert!(assumed[0].starts_with("all-reduces with P2P off"), "{assumed:?}");
        let p2p_off = MeasuredLinks { p2p: P2p::Off, ..other.clone() };
        let assumed = other.assumed(&[other.clone(), p2p_off]);
        assert!(!assumed[0].contains("P2P off"), "both were measured: {assumed:?}");
    }

    #[test]
    fn files_of_one_tp_or_of_several_gpus_are_refused() {
        let all = points(30.0, 100.0, &[8, 1 << 16, 1 << 26, 1 << 28]);
        let twice = links(&[test(H100, 4, &all), test(H100, 4, &all)], None).unwrap_err();
        assert!(twice.to_string().contains("both measured on 4 GPUs"), "{twice}");
        let mixed = links(&[test(H100, 4, &all), test("NVIDIA H200", 8, &all)], None).unwrap_err();
        assert!(mixed.to_string().contains("different GPUs"), "{mixed}");
    }
}
