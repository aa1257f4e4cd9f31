//! GPUs as reported by the driver and NVML, measurements, libraries required for decoding, and their lines in doctor's table.

use serde::Serialize;

use super::output::bytes;
use base::error::Result;
use base::text::counted;
use machine::driver::libraries::{self, Library};
use machine::driver::{self, Gpu as Device, GpuInfo, Peer};
use machine::nvml;
use machine::nvml::{GpuState, NvLink};
use run::cuda::blas;
use run::cuda::kernels::{GpuKernels, KernelOptions, Nvrtc};
use run::cuda::measure::{self, GemmRate, ReadBandwidth};

/// State of CUDA on this machine.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Gpus")]
pub struct CudaState {
    /// CUDA version that the driver supports, e.g. `13.0`.
    pub driver_api: Option<String>,
    /// Driver version, e.g. `580.65.06`.
    pub driver_version: Option<String>,
    /// GPUs visible to this process, in CUDA's order.
    pub gpus: Vec<GpuProperties>,
    /// Peer access: for each GPU, true for each other whose memory it can access directly.
    pub p2p: Vec<Vec<bool>>,
    /// Connection of each GPU to each other; null for itself.
    pub peers: Vec<Vec<Option<Peer>>>,
    /// Libraries required for decoding and recording on GPUs.
    pub libraries: Vec<LibraryState>,
    /// Reason why no GPU is usable.
    pub problem: Option<String>,
}

/// Properties and measurements of one GPU.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Gpu")]
pub struct GpuProperties {
    /// CUDA device number.
    pub index: usize,
    /// Product name.
    pub name: String,
    /// Total memory (bytes).
    pub memory_bytes: u64,
    /// Free memory (bytes); null if the GPU cannot be opened.
    pub memory_free_bytes: Option<u64>,
    /// Number of streaming multiprocessors (SMs).
    pub multiprocessors: u32,
    /// Compute capability, e.g. `9.0`.
    pub compute_capability: String,
    /// L2 cache size (bytes).
    pub l2_bytes: u64,
    /// Maximum shared memory per block.
    pub shared_per_block_bytes: u32,
    /// UUID as printed by nvidia-smi: `GPU-xxxxxxxx-…`.
    pub uuid: String,
    /// PCI address, e.g. `0000:1b:00.0`.
    pub pci: String,
    /// Clocks, power, throttling and memory errors before measuring; null if NVML does not report them.
    pub state: Option<GpuState>,
    /// Active NVLinks.
    pub nvlinks: Vec<nvml::NvLink>,
    /// Measured memory read bandwidth; null with `--quick` or on failure.
    pub read_bandwidth: Option<ReadBandwidth>,
    /// Reason for the missing measurement.
    pub read_bandwidth_problem: Option<String>,
    /// Measured rate of matrix products; null with `--quick` or on failure.
    pub gemm: Option<GemmRate>,
    /// Reason for the missing measurement.
    pub gemm_problem: Option<String>,
}

/// State of an NVIDIA library.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct LibraryState {
    /// Display name, e.g. `NVRTC`.
    pub name: &'static str,
    /// Version, if the library reports it.
    pub version: Option<String>,
    /// Path of the loaded file, if known.
    pub path: Option<String>,
    /// Reason why it cannot be used, with a remedy.
    pub problem: Option<String>,
}

/// Queries the driver and NVML. With `measure`, measures each GPU in turn (one to two seconds each).
pub fn probe(measure: bool) -> CudaState {
    let libraries =
        [Library::Nvrtc, Library::CublasLt, Library::Cupti, Library::Nvml].map(library).into();
    let driver_api = driver::version().map(driver::version_text);
    let driver_version = nvml::driver_version().ok();
    let found = Device::list().and_then(|gpus| Ok((peers(gpus.len())?, gpus)));
    let (peers, gpus) = match found {
        Ok(found) => found,
        Err(error) => {
            let problem = Some(error.to_string());
            return CudaState { driver_api, driver_version, libraries, problem, ..CudaState::default() };
        }
    };
    let can_reach =
        |row: &Vec<Option<Peer>>| row.iter().map(|peer| peer.is_some_and(|p| p.access)).collect();
    CudaState {
        driver_api,
        driver_version,
        p2p: peers.iter().map(can_reach).collect(),
        peers,
        gpus: gpus.iter().map(|info| gpu(info, measure)).collect(),
        libraries,
        problem: None,
    }
}

fn peers(count: usize) -> Result<Vec<Vec<Option<Peer>>>> {
    let peer = |from: usize, to: usize| match from == to {
        true => Ok(None),
        false => Device::peer(from, to).map(Some),
    };
    (0..count).map(|from| (0..count).map(|to| peer(from, to)).collect()).collect()
}

fn gpu(info: &GpuInfo, measure: bool) -> GpuProperties {
    // Before creating a context, so that an idle GPU is shown as idle.
    let state = nvml::state(&info.uuid, &info.pci).ok();
    let nvlinks = nvml::links(&info.uuid, &info.pci).unwrap_or_default();
    // A context uses GPU memory, so none is created without measurements.
    let device = measure.then(|| Device::open(info.index));
    let memory = |gpu: &Device| gpu.memory().ok().map(|(free, _)| free);
    let memory_free_bytes = device.as_ref().and_then(|gpu| gpu.as_ref().ok()).and_then(memory);
    let on_device = || match &device {
        Some(Ok(gpu)) if gpu.is_abandoned() => Err("the GPU stopped responding".into()),
        Some(Ok(gpu)) => Ok(gpu),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("--quick".to_owned()),
    };
    let read = on_device().and_then(|gpu| read_bandwidth(gpu).map_err(|error| error.to_string()));
    let gemm = on_device().and_then(|gpu| measure::gemm_rate(gpu).map_err(|error| error.to_string()));
    let (read_bandwidth, read_bandwidth_problem) = value_and_problem(read);
    let (gemm, gemm_problem) = value_and_problem(gemm);
    GpuProperties {
        index: info.index,
        name: info.name.clone(),
        memory_bytes: info.memory_bytes,
        memory_free_bytes,
        multiprocessors: info.multiprocessors,
        compute_capability: format!("{}.{}", info.sm.0, info.sm.1),
        l2_bytes: info.l2_bytes,
        shared_per_block_bytes: info.shared_per_block,
        uuid: info.uuid.clone(),
        pci: info.pci.clone(),
        state,
        nvlinks,
        read_bandwidth,
        read_bandwidth_problem,
        gemm,
        gemm_problem,
    }
}

fn read_bandwidth(gpu: &Device) -> Result<ReadBandwidth> {
    let kernels = GpuKernels::new(gpu, &KernelOptions::default())?;
    measure::read_bandwidth(gpu, &kernels.get("read_bandwidth")?)
}

/// Value or problem, for two fields of the JSON output.
fn value_and_problem<T>(result: std::result::Result<T, String>) -> (Option<T>, Option<String>) {
    result.map_or_else(|problem| (None, Some(problem)), |value| (Some(value), None))
}

fn library(library: Library) -> LibraryState {
    let found = libraries::open_with_path(library);
    let version = match library {
        Library::Nvrtc => Nvrtc::get().map(|nvrtc| {
            let (major, minor) = nvrtc.version();
            Some(format!("{major}.{minor}"))
        }),
        Library::CublasLt => blas::version().map(Some),
        Library::Nvml => nvml::driver_version().map(Some),
        _ => Ok(None),
    };
    let (path, missing) = value_and_problem(found.map_err(|error| error.to_string()));
    let (version, unusable) = value_and_problem(version.map_err(|error| error.to_string()));
    LibraryState {
        name: library.as_str(),
        version: version.flatten(),
        path: path.map(|found| found.path.display().to_string()),
        problem: missing.or(unusable),
    }
}

pub fn lines(cuda: &CudaState) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push((name.to_owned(), text));
    match &cuda.problem {
        Some(problem) => line("CUDA", format!("✘ {problem}")),
        None => line(
            "CUDA",
            format!(
                "✔ driver {}for CUDA {}, {}",
                cuda.driver_version.as_deref().map_or(String::new(), |version| format!("{version} ")),
                cuda.driver_api.as_deref().unwrap_or("unknown"),
                counted(cuda.gpus.len(), "GPU")
            ),
        ),
    }
    for gpu in &cuda.gpus {
        line(&format!("  GPU {}", gpu.index), properties_text(gpu));
        if let Some(state) = &gpu.state {
            line("", state_text(state));
        }
        line("", measurements_text(gpu));
        if !gpu.nvlinks.is_empty() {
            line("", nvlinks_text(&gpu.nvlinks, &cuda.gpus));
        }
    }
    if cuda.gpus.len() > 1 {
        line(
            "  P2P",
            "✔ can access the peer's memory; number: performance rank (lower is better); a: native atomics".into(),
        );
        for (from, row) in cuda.peers.iter().enumerate() {
            line(&format!("    {from}"), row.iter().map(peer).collect::<Vec<_>>().join(" "));
        }
    }
    // Without a driver the other libraries are irrelevant; the problem above says what to do first.
    for library in
        cuda.libraries.iter().filter(|library| cuda.problem.is_none() || library.path.is_some())
    {
        let text = match (&library.problem, &library.path) {
            (Some(problem), _) => format!("✘ {problem}"),
            (None, path) => {
                let version = library.version.as_deref().map_or(String::new(), |v| format!("{v} "));
                format!("✔ {version}({})", path.as_deref().unwrap_or(""))
            }
        };
        line(library.name, text);
    }
    lines
}

fn properties_text(gpu: &GpuProperties) -> String {
    let free = gpu.memory_free_bytes.map_or(String::new(), |free| format!(" ({} free)", bytes(free)));
    format!(
        "{}, {}{free}, {} SMs, compute capability {}",
        gpu.name,
        bytes(gpu.memory_bytes),
        gpu.multiprocessors,
        gpu.compute_capability
    )
}

fn state_text(state: &GpuState) -> String {
    let mut parts = Vec::new();
    for (name, now, most) in [
        ("SMs", state.sm_clock_mhz, state.sm_clock_max_mhz),
        ("memory", state.memory_clock_mhz, state.memory_clock_max_mhz),
    ] {
        match (now, most) {
            (Some(now), Some(most)) => parts.push(format!("{name} at {now} of {most} MHz")),
            (Some(now), None) => parts.push(format!("{name} at {now} MHz")),
            _ => {}
        }
    }
    match (state.power_w, state.power_limit_w) {
        (Some(power), Some(limit)) => parts.push(format!("{power:.0} of {limit:.0} W")),
        (None, Some(limit)) => parts.push(format!("limit {limit:.0} W")),
        (Some(power), None) => parts.push(format!("{power:.0} W")),
        (None, None) => {}
    }
    parts.extend(state.temperature_c.map(|degrees| format!("{degrees} °C")));
    parts.extend(state.ecc.map(|ecc| format!("ECC {}", if ecc { "on" } else { "off" })));
    if let Some(errors) = state.ecc_uncorrected.filter(|errors| *errors > 0) {
        parts.push(format!("{errors} uncorrected memory errors"));
    }
    if state.mig == Some(true) {
        parts.push("MIG on: an instance is not a whole GPU".into());
    }
    // Throttle reasons of an idle GPU are expected.
    let reasons: Vec<&str> = state.throttle_reasons.iter().flatten().map(String::as_str).collect();
    let reasons: Vec<&str> = reasons.into_iter().filter(|reason| *reason != "gpu_idle").collect();
    if !reasons.is_empty() {
        parts.push(format!("throttled: {}", reasons.join(", ")));
    }
    if let Some(processes) = state.processes.filter(|processes| *processes > 0) {
        parts.push(format!("used by {processes} process(es)"));
    }
    match parts.is_empty() {
        true => "NVML reports no data".into(),
        false => parts.join(", "),
    }
}

fn measurements_text(gpu: &GpuProperties) -> String {
    let read = match (&gpu.read_bandwidth, &gpu.read_bandwidth_problem) {
        (Some(read), _) => format!(
            "{:.1} GB/s read (median of {} passes over {}{})",
            read.gb_s,
            read.passes,
            bytes(read.buffer_bytes),
            if read.exceeds_caches { "" } else { "; may include cache hits" }
        ),
        (None, problem) => {
            format!("memory bandwidth not measured: {}", problem.as_deref().unwrap_or("unknown"))
        }
    };
    let gemm = match (&gpu.gemm, &gpu.gemm_problem) {
        (Some(gemm), _) => format!(
            "{:.1} TFLOP/s in bf16 ({size} x {size} x {size} products; {:.1} sustained, median of {})",
            gemm.tflops,
            gemm.sustained_tflops,
            gemm.products,
            size = gemm.size
        ),
        (None, problem) => {
            format!("matrix products not measured: {}", problem.as_deref().unwrap_or("unknown"))
        }
    };
    format!("{read}; {gemm}")
}

/// NVLinks grouped by remote end, e.g. `18 NVLinks to switches, 26.6 GB/s each way`.
fn nvlinks_text(links: &[NvLink], gpus: &[GpuProperties]) -> String {
    let mut ends: Vec<(String, usize)> = Vec::new();
    for link in links {
        let gpu =
            gpus.iter().find(|gpu| link.remote.as_deref().is_some_and(|pci| same_pci(pci, &gpu.pci)));
        let end = match (gpu, &link.remote) {
            (Some(gpu), _) => format!("GPU {}", gpu.index),
            (None, Some(_)) => "switches".into(),
            (None, None) => "unknown ends".into(),
        };
        match ends.iter_mut().find(|(known, _)| *known == end) {
            Some((_, count)) => *count += 1,
            None => ends.push((end, 1)),
        }
    }
    let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{count} to {end}")).collect();
    let speed = links
        .first()
        .and_then(|link| link.gb_s)
        .map_or(String::new(), |gb_s| format!(", {gb_s:.1} GB/s each in one direction"));
    format!("{} NVLinks: {}{speed}", links.len(), ends.join(", "))
}

/// Compares PCI addresses: NVML writes the domain with eight digits, CUDA with four.
fn same_pci(one: &str, other: &str) -> bool {
    let parts = |pci: &str| {
        let pci = pci.to_ascii_lowercase();
        pci.split_once(':').map(|(domain, rest)| (u32::from_str_radix(domain, 16).ok(), rest.to_owned()))
    };
    parts(one).is_some_and(|one| Some(one) == parts(other))
}

fn peer(peer: &Option<Peer>) -> String {
    let Some(peer) = peer else { return "·  ".into() };
    let rank = peer.performance_rank.map_or("?".into(), |rank| rank.to_string());
    let atomics = if peer.native_atomics == Some(true) { "a" } else { " " };
    match peer.access {
        true => format!("✔{rank}{atomics}"),
        false => "✘  ".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::cuda::measure::{GemmRate, ReadBandwidth};

    #[test]
    fn probing_finds_gpus_or_a_reason() {
        let found = probe(false);
        assert_eq!(found.gpus.is_empty(), found.problem.is_some());
        assert_eq!(found.p2p.len(), found.gpus.len());
        assert_eq!(found.libraries.len(), 4);
        for gpu in &found.gpus {
            let problems = [&gpu.read_bandwidth_problem, &gpu.gemm_problem];
            assert_eq!(problems.map(Option::as_deref), [Some("--quick"); 2]);
        }
        for library in &found.libraries {
            assert!(library.path.is_some() || library.problem.is_some(), "{library:?}");
        }
    }

    fn h100(index: usize) -> GpuProperties {
        GpuProperties {
            index,
            name: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: 80 << 30,
            memory_free_bytes: Some(79 << 30),
            multiprocessors: 132,
            compute_capability: "9.0".into(),
            l2_bytes: 50 << 20,
            shared_per_block_bytes: 232_448,
            uuid: format!("GPU-{index}"),
            pci: format!("0000:{index}b:00.0"),
            state: Some(GpuState {
                sm_clock_mhz: Some(1200),
                sm_clock_max_mhz: Some(1980),
                power_w: Some(301.4),
                power_limit_w: Some(700.0),
                temperature_c: Some(45),
                ecc: Some(true),
                throttle_reasons: Some(vec!["gpu_idle".into(), "sw_power_cap".into()]),
                ..GpuState::default()
            }),
            nvlinks: (0..18)
                .map(|link| NvLink {
                    link,
                    version: Some(4),
                    gb_s: Some(26.562),
                    remote: Some(match link {
                        0 | 1 => format!("00000000:{}B:00.0", 1 - index),
                        _ => "00000000:C0:00.0".into(),
                    }),
                })
                .collect(),
            read_bandwidth: Some(ReadBandwidth {
                gb_s: 2987.65,
                buffer_bytes: 4 << 30,
                passes: 11,
                exceeds_caches: true,
            }),
            read_bandwidth_problem: None,
            gemm: None,
            gemm_problem: Some("no cuBLASLt".into()),
        }
    }

    fn two_gpus() -> CudaState {
        let access = Peer { access: true, performance_rank: Some(0), native_atomics: Some(true) };
        CudaState {
            driver_api: Some("13.0".into()),
            driver_version: Some("580.65.06".into()),
            gpus: vec![h100(0), h100(1)],
            p2p: vec![vec![false, true], vec![false, false]],
            peers: vec![vec![None, Some(access)], vec![Some(Peer::default()), None]],
            libraries: vec![
                LibraryState {
                    name: "NVRTC",
                    version: Some("13.0".into()),
                    path: Some("/usr/lib/libnvrtc.so.13".into()),
                    problem: None,
                },
                LibraryState {
                    name: "cuBLASLt",
                    version: None,
                    path: None,
                    problem: Some("no cuBLASLt: install it".into()),
                },
            ],
            problem: None,
        }
    }

    #[test]
    fn two_gpus_are_shown_with_links_and_libraries() {
        let text: Vec<String> =
            lines(&two_gpus()).iter().map(|(name, text)| format!("{name}|{text}")).collect();
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn a_measured_product_is_shown_with_its_size() {
        let rate = GemmRate {
            tflops: 712.34,
            sustained_tflops: 603.21,
            size: 8192,
            products: 11,
            algorithms: 8,
        };
        let gpu = GpuProperties { gemm: Some(rate), gemm_problem: None, ..h100(0) };
        let text = measurements_text(&gpu);
        assert!(
            text.ends_with(
                "712.3 TFLOP/s in bf16 (8192 x 8192 x 8192 products; 603.2 sustained, median of 11)"
            ),
            "{text}"
        );
    }

    #[test]
    fn pci_addresses_are_the_same_with_domains_of_any_length() {
        assert!(same_pci("00000000:1B:00.0", "0000:1b:00.0"));
        assert!(!same_pci("00000001:1b:00.0", "0000:1b:00.0"));
        assert!(!same_pci("", ""));
    }
}
