//! Measured all-reduces as links of a hardware profile: latency and bandwidth at each TP, the rows of the profile that
//! stay, and the values that no message measures.

use std::path::{Path, PathBuf};

use super::AllReduces;
use base::error::{Error, Result};
use base::text::{binary_size, counted, latency, si};
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

/// Links through small messages keep this value, with the measured change in latency.
const LARGE_LATENCY: KeptValue =
    KeptValue { name: "latency of larger messages", reason: "only small messages measured" };

/// Factor between a message's latency and those of both neighboring sizes above which it is an outlier: separates a
/// disturbed measurement from the curve. Chosen, not measured: above the factor of 2 by which latency grows at most if the
/// size doubles.
const OUTLIER: f64 = 3.0;

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
        let links = tests.into_iter().map(|(file, mut test)| {
            leave_out_outliers(&mut test);
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

/// Leaves out messages whose latency is far above or below that of both neighboring sizes, with a warning.
fn leave_out_outliers(test: &mut AllReduces) {
    // slow ones first: a message between a slow one and a large one is no fast one
    let tests: [fn(f64, f64, f64) -> bool; 2] = [
        |below_us, us, above_us| us > OUTLIER * below_us.max(above_us),
        |below_us, us, above_us| us < below_us.min(above_us) / OUTLIER,
    ];
    for is_outlier in tests {
        let outliers: Vec<(u64, f64)> = (test.points.array_windows::<3>())
            .filter(|[below, point, above]| is_outlier(below.1, point.1, above.1))
            .map(|[_, point, _]| *point)
            .collect();
        for (bytes, us) in outliers {
            test.points.retain(|point| point.0 != bytes);
            test.warnings.push(format!(
                "ignoring {} in {}: over {OUTLIER:.0}x away from both neighboring sizes; measure again",
                binary_size(bytes as f64),
                latency(us)
            ));
        }
    }
}

/// Link through the measured points, and the value kept from the profile: the latency of larger messages if only
/// small ones were measured, that of small ones if the smallest measured one mostly waits for its bytes.
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
    let [smallest, ref larger @ ..] = test.points[..] else {
        return Err(refused("no all-reduce was measured"));
    };
    let (bytes, us) = smallest;
    let largest = larger.last().copied().unwrap_or(smallest);
    let measured_bytes = Some((bytes, largest.0));
    if transfer_us(largest.0, gb_s) <= alpha_us {
        let points = test.points.iter().copied().chain(larger_points(test.ranks, largest, before));
        let link = LinkPoint { measured_bytes, ..LinkPoint::through(points.collect(), gb_s) };
        return Ok((link, Some(LARGE_LATENCY)));
    }
    let (alpha_us, gb_s) = if larger.is_empty() {
        if us <= alpha_us {
            return Err(refused(&format!(
                "one message of {} takes {}, less than the profile's latency of small ones ({}), so neither latency nor bandwidth follows",
                si(bytes as f64, "B"),
                latency(us),
                latency(alpha_us)
            )));
        }
        (alpha_us, bytes as f64 / (us - alpha_us) / 1e3)
    } else {
        let fitted = LinkPoint::of_points(test.points.clone()).ok_or_else(|| {
            refused(
                "the largest messages are not slower than small ones, so the bandwidth cannot be fitted",
            )
        })?;
        let wait_us = (us - transfer_us(bytes, fitted.gb_s)).max(0.0);
        if wait_us >= us / 2.0 {
            return Ok((fitted, None));
        }
        (alpha_us.min(wait_us), fitted.gb_s)
    };
    // without points in the profile, a formula: a stack scales the latency of points only
    let link = if before.is_scaled(test.ranks) {
        let points =
            smaller_points(test.ranks, smallest, gb_s, before).chain(test.points.iter().copied());
        LinkPoint { measured_bytes, ..LinkPoint::through(points.collect(), gb_s) }
    } else {
        LinkPoint::formula(alpha_us, gb_s)
    };
    Ok((link, Some(SMALL_LATENCY)))
}

/// Message sizes kept from the profile, in bytes: those of `all_reduce_perf -b 512 -e 512M -f 2`.
fn kept_sizes() -> impl Iterator<Item = u64> {
    (9..=29).map(|power| 1_u64 << power)
}

/// The profile's messages above the largest measured one, with the change of its latency: the factor or the
/// difference, whichever makes a message slower.
fn larger_points(
    tp: u32,
    (bytes, us): (u64, f64),
    before: &LinkTable,
) -> impl Iterator<Item = (u64, f64)> {
    let (_, gb_s) = before.at(tp);
    let latency_us = move |bytes: u64, us: f64| (us - transfer_us(bytes, gb_s)).max(0.0);
    let measured_us = latency_us(bytes, us);
    let profile_us = latency_us(bytes, before.alone_us(tp, bytes as f64));
    kept_sizes().filter(move |larger| *larger > bytes).map(move |larger| {
        let whole_us = before.alone_us(tp, larger as f64);
        let kept_us = latency_us(larger, whole_us);
        let scaled_us = kept_us * measured_us / profile_us.max(1e-3);
        let changed_us = scaled_us.max(kept_us + measured_us - profile_us);
        (larger, (whole_us - kept_us + changed_us).max(us))
    })
}

/// The profile's messages below the smallest measured one, with its latency and the measured bandwidth; none is
/// slower than the measured one.
fn smaller_points(
    tp: u32,
    (bytes, us): (u64, f64),
    gb_s: f64,
    before: &LinkTable,
) -> impl Iterator<Item = (u64, f64)> {
    let (_, profile_gb_s) = before.at(tp);
    // larger ones would count as measurements of the bandwidth
    let below = bytes.min(LinkPoint::LARGE);
    kept_sizes().filter(move |smaller| *smaller < below).map(move |smaller| {
        let whole_us = before.alone_us(tp, smaller as f64);
        let moved_us = transfer_us(smaller, profile_gb_s).min(whole_us);
        (smaller, (whole_us - moved_us + moved_us * profile_gb_s / gb_s).min(us))
    })
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
    let table = match options.p2p {
        P2p::On => &mut after.link.p2p_on,
        P2p::Off => &mut after.link.p2p_off,
    };
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
        assert!((link.gb_s / gb_s - 1.0).abs() < 0.01, "{link:?}");
        assert_eq!((link.measured_bytes, kept), (Some((8, 512)), Some(LARGE_LATENCY)));
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

    /// Latency (us) at TP 8 of an H100 in the profile with these measured points.
    fn us_after(measured: &[(u64, f64)], bytes: u64) -> f64 {
        let found = links(&[test(H100, 8, measured)], None).unwrap();
        found.table_after().alone_us(8, bytes as f64)
    }

    #[test]
    fn slow_large_messages_never_make_small_ones_faster() {
        // nccl-tests, 100 GB/s; the profile has 262.6 GB/s, and 16.635 us at 16 KiB
        let large = [(32 << 20, 355.54), (256 << 20, 2704.35)];
        let us = |bytes| us_after(&large, bytes);
        assert!((us(16 << 10) - 16.74).abs() < 0.01, "{}", us(16 << 10));
        // 122.285 us, of which 63.9 us of transfer become 167.8
        assert!((us(16 << 20) - 226.2).abs() < 0.2, "{}", us(16 << 20));
        assert!((us(32 << 20) - 355.54).abs() < 0.01, "{}", us(32 << 20));
        // a stack scales the latency of points, so the profile's have to stay points
        let found = links(&[test(H100, 8, &large)], None).unwrap();
        assert!(found.table_after().is_scaled(8));
    }

    #[test]
    fn slow_small_messages_never_make_large_ones_faster() {
        let small = [(8, 20.0), (64, 20.0), (1024, 20.01), (16_384, 20.16)];
        let us = |bytes| us_after(&small, bytes);
        assert!((us(16_384) - 20.16).abs() < 0.01, "{}", us(16_384));
        // 122.285 us, of which 58.4 us of latency become 1.213x as many
        assert!((us(16 << 20) - 134.7).abs() < 0.1, "{}", us(16 << 20));
        let profile = Profile::load("h100_sxm").unwrap().link.p2p_on;
        for bytes in (14..=30).map(|power| 1_u64 << power) {
            assert!(us(bytes) >= profile.alone_us(8, bytes as f64), "{bytes}: {}", us(bytes));
        }
    }

    #[test]
    fn a_message_far_from_both_neighbors_is_left_out_with_a_warning() {
        let mut all = points(20.0, 100.0, &[8, 8192, 16_384, 32_768, 1 << 26, 1 << 28]);
        all[2].1 = 900.0;
        let found = links(&[test(H100, 8, &all)], None).unwrap();
        let MeasuredLink { test, link, .. } = &found.links[0];
        let said = "ignoring 16 KiB in 900 us: over 3x away from both neighboring sizes; measure again";
        assert_eq!(test.warnings, [said]);
        assert_eq!((test.points.len(), link.points.len()), (5, 5));
        assert!((found.table_after().alone_us(8, 16_384.0) - 20.2).abs() < 0.1, "{link:?}");
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
