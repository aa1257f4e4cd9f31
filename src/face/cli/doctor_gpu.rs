//! GPUs: what the driver, NVML and measurements tell of them, and the libraries that decoding needs.

use serde::Serialize;

use base::error::Result;
use machine::driver::libraries::{self, Library};
use machine::driver::{self, Gpu as Device, GpuInfo, Peer};
use machine::nvml;
use run::cuda::blas;
use run::cuda::kernels::{KernelOptions, Kernels, Nvrtc};
use run::cuda::measure::{self, GemmRate, ReadBandwidth};

/// What the CUDA driver answers.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Gpus {
    /// The CUDA version the driver supports: `13.0`.
    pub driver_api: Option<String>,
    /// The driver's own version: `580.65.06`.
    pub driver_version: Option<String>,
    /// The GPUs that this process may see, in CUDA's order.
    pub gpus: Vec<Gpu>,
    /// For each GPU, which others' memory it can reach directly.
    pub p2p: Vec<Vec<bool>>,
    /// For each GPU, how well it reaches each other one; null for itself.
    pub peers: Vec<Vec<Option<Peer>>>,
    /// The libraries that decoding and recording on GPUs need.
    pub libraries: Vec<LibraryState>,
    /// Why there is no usable GPU.
    pub problem: Option<String>,
}

/// What is known of one GPU, asked or measured.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Gpu {
    /// CUDA's number of it.
    pub index: usize,
    /// NVIDIA's name of it.
    pub name: String,
    /// All of its memory (bytes).
    pub memory_bytes: u64,
    /// Memory that is free; null where it cannot be opened.
    pub memory_free_bytes: Option<u64>,
    /// How many streaming multiprocessors (SMs) it has.
    pub multiprocessors: u32,
    /// Its compute capability, major and minor: `9.0`.
    pub compute_capability: String,
    /// The size of its level-2 cache (bytes).
    pub l2_bytes: u64,
    /// The most shared memory a block can have.
    pub shared_per_block_bytes: u32,
    /// Its identity, as nvidia-smi prints it: `GPU-xxxxxxxx-…`.
    pub uuid: String,
    /// The PCI address of its slot: `0000:1b:00.0`.
    pub pci: String,
    /// Clocks, power, throttling, memory errors before measuring; null where NVML does not tell.
    pub state: Option<nvml::State>,
    /// NVLinks that are up.
    pub nvlinks: Vec<nvml::Link>,
    /// The rate at which it reads its memory, measured; null with `--quick` or a problem.
    pub read_bandwidth: Option<ReadBandwidth>,
    /// Why it was not measured.
    pub read_bandwidth_problem: Option<String>,
    /// The rate at which it multiplies matrices, measured; null with `--quick` or a problem.
    pub gemm: Option<GemmRate>,
    /// Why it was not measured.
    pub gemm_problem: Option<String>,
}

/// A library of NVIDIA's.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct LibraryState {
    /// The library's name for people: `NVRTC`.
    pub name: &'static str,
    /// Its version, where it tells.
    pub version: Option<String>,
    /// The file that was loaded, where it can be told.
    pub path: Option<String>,
    /// Why it cannot be used, and what to do.
    pub problem: Option<String>,
}

/// Asks the driver and NVML, and may measure each GPU in turn (a second or two each).
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
    // Before a context is made, so that an idle GPU is shown as one.
    let state = nvml::state(&info.uuid, &info.pci).ok();
    let nvlinks = nvml::links(&info.uuid, &info.pci).unwrap_or_default();
    // A context takes memory of the GPU: none is made where nothing is measured.
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
