//! GPUs as reported by the driver and NVML, measurements, and libraries required for decoding.

use serde::Serialize;

use base::error::Result;
use machine::driver::libraries::{self, Library};
use machine::driver::{self, Gpu as Device, GpuInfo, Peer};
use machine::nvml;
use run::cuda::blas;
use run::cuda::kernels::{KernelOptions, Kernels, Nvrtc};
use run::cuda::measure::{self, GemmRate, ReadBandwidth};

/// State of CUDA on this machine.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Gpus {
    /// CUDA version that the driver supports, e.g. `13.0`.
    pub driver_api: Option<String>,
    /// Driver version, e.g. `580.65.06`.
    pub driver_version: Option<String>,
    /// GPUs visible to this process, in CUDA's order.
    pub gpus: Vec<Gpu>,
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
pub struct Gpu {
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
    pub state: Option<nvml::State>,
    /// Active NVLinks.
    pub nvlinks: Vec<nvml::Link>,
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
pub fn probe(measure: bool) -> Gpus {
    let libraries =
        [Library::Nvrtc, Library::CublasLt, Library::Cupti, Library::Nvml].map(library).into();
    let driver_api = driver::version().map(driver::version_text);
    let driver_version = nvml::driver_version().ok();
    let found = Device::list().and_then(|gpus| Ok((peers(gpus.len())?, gpus)));
    let (peers, gpus) = match found {
        Ok(found) => found,
        Err(error) => {
            let problem = Some(error.to_string());
            return Gpus { driver_api, driver_version, libraries, problem, ..Gpus::default() };
        }
    };
    let can_reach =
        |row: &Vec<Option<Peer>>| row.iter().map(|peer| peer.is_some_and(|p| p.access)).collect();
    Gpus {
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

fn gpu(info: &GpuInfo, measure: bool) -> Gpu {
    // Before creating a context, so that an idle GPU is shown as idle.
    let state = nvml::state(&info.uuid, &info.pci).ok();
    let nvlinks = nvml::links(&info.uuid, &info.pci).unwrap_or_default();
    // A context uses GPU memory, so none is created without measurements.
    let device = measure.then(|| Device::open(info.index));
    let memory = |gpu: &Device| gpu.memory().ok().map(|(free, _)| free);
    let memory_free_bytes = device.as_ref().and_then(|gpu| gpu.as_ref().ok()).and_then(memory);
    let on_device = || match &device {
        Some(Ok(gpu)) if gpu.is_abandoned() => Err("the GPU does not answer any more".into()),
        Some(Ok(gpu)) => Ok(gpu),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("--quick".to_owned()),
    };
    let read = on_device().and_then(|gpu| read_bandwidth(gpu).map_err(|error| error.to_string()));
    let gemm = on_device().and_then(|gpu| measure::gemm_rate(gpu).map_err(|error| error.to_string()));
    let (read_bandwidth, read_bandwidth_problem) = split(read);
    let (gemm, gemm_problem) = split(gemm);
    Gpu {
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
    let kernels = Kernels::new(gpu, &KernelOptions::default())?;
    measure::read_bandwidth(gpu, &kernels.get("read_bandwidth")?)
}

fn split<T>(result: std::result::Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(problem) => (None, Some(problem)),
    }
}

fn library(library: Library) -> LibraryState {
    let found = libraries::found(library);
    let version = match library {
        Library::Nvrtc => Nvrtc::get().map(|nvrtc| {
            let (major, minor) = nvrtc.version();
            Some(format!("{major}.{minor}"))
        }),
        Library::CublasLt => blas::version().map(Some),
        Library::Nvml => nvml::driver_version().map(Some),
        _ => Ok(None),
    };
    let (path, missing) = split(found.map_err(|error| error.to_string()));
    let (version, unusable) = split(version.map_err(|error| error.to_string()));
    LibraryState {
        name: library.as_str(),
        version: version.flatten(),
        path: path.map(|found| found.path.display().to_string()),
        problem: missing.or(unusable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_answers_with_gpus_or_with_a_reason() {
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
}
