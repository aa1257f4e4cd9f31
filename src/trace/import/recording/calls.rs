//! Names of the host calls that the recorder keeps, by CUPTI's callback id.

/// Name of a call of the runtime or driver; `None` for one that launches nothing.
pub(super) fn name(runtime: bool, id: u32) -> Option<&'static str> {
    Some(match (runtime, id) {
        (false, 307 | 442) => "cuLaunchKernel",
        (false, 652 | 653) => "cuLaunchKernelEx",
        (false, 477 | 478) => "cuLaunchCooperativeKernel",
        (false, 514 | 515) => "cuGraphLaunch",
        (true, 211 | 214) => "cudaLaunchKernel",
        (true, 430 | 431) => "cudaLaunchKernelExC",
        (true, 269) => "cudaLaunchCooperativeKernel",
        (true, 311 | 312) => "cudaGraphLaunch",
        (true, 41) => "cudaMemcpyAsync",
        (true, 51) => "cudaMemsetAsync",
        (true, 131) => "cudaStreamSynchronize",
        (true, 137) => "cudaEventSynchronize",
        (true, 165) => "cudaDeviceSynchronize",
        _ => return None,
    })
}
