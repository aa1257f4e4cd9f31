//! What goes wrong on GPUs, on the software device: memory that runs out, libraries that are missing,
//! kernels that do not compile, calls and kernels that fail. Every one ends in time, with exit status and
//! words that say what to do.

use crate::device::{Device, device};
use crate::support::{Done, Place};

fn generate(device: &Device, variables: &[(&str, &str)]) -> Done {
    let place = Place::new();
    // rows enough that cuBLASLt does the products of the prompt
    place.write("prompts.txt", "1 2 3 4 5 6\n");
    let arguments = ["generate", "--model", "tiny", "--backend", "cuda", "--tp", "2", "--dtype", "f32"];
    let more = ["--prompt-tokens-file", "prompts.txt", "--output-tokens", "4"];
    let all: Vec<&str> = arguments.into_iter().chain(more).collect();
    device.run(&place, &all, variables)
}

/// Fails in words that hold all of `words`, and in no panic's.
#[track_caller]
fn fails_with(done: Done, words: &[&str]) {
    assert!(done.code == 1 || done.code == 2, "{done:?}");
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    // messages are wrapped for people
    let text = done.stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_the_arithmetic() {
    fails_with(generate(device!(), &[("FAKE_CUDA_MEMORY", "1000000")]), &["memory", "free"]);
}

#[test]
fn memory_that_runs_out_while_loading_is_an_error_that_says_for_what() {
    let device = device!();
    for call in ["cuMemAlloc_v2:1=2", "cuMemAlloc_v2:5=2", "cuMemAlloc_v2:20=2"] {
        fails_with(generate(device, &[("FAKE_CUDA_FAIL", call)]), &["memory"]);
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_named_with_its_line() {
    let empty = tempfile::tempdir().unwrap();
    let cache = ("XDG_CACHE_HOME", empty.path().to_str().unwrap());
    let done = generate(device!(), &[cache, ("FAKE_NVRTC_BREAK", "kernels/norm.cu")]);
    fails_with(done, &["kernels/norm.cu:", "expected unqualified-id before 'this'"]);
}

#[test]
fn libraries_that_are_missing_are_named_with_what_to_install() {
    let device = device!();
    let empty = tempfile::tempdir().unwrap();
    let cache = ("XDG_CACHE_HOME", empty.path().to_str().unwrap());
    for (variable, name) in [("LADDERSCOPE_NVRTC", "NVRTC"), ("LADDERSCOPE_CUBLASLT", "cuBLASLt")] {
        let done = generate(device, &[cache, (variable, "/no/such/library.so")]);
        fails_with(done, &[name, "/no/such/library.so"]);
    }
}

#[test]
fn no_driver_and_an_old_one_are_errors_with_what_to_do() {
    let device = device!();
    fails_with(generate(device, &[("LD_LIBRARY_PATH", "/nonexistent")]), &["driver"]);
    let old = device.file("old");
    let done = generate(device, &[("LD_LIBRARY_PATH", old.to_str().unwrap())]);
    fails_with(done, &["driver", "cuLaunchKernelEx"]);
    fails_with(generate(device, &[("FAKE_CUDA_DRIVER_VERSION", "11080")]), &["driver", "11.8"]);
}

#[test]
fn calls_that_the_driver_refuses_end_the_generation() {
    let device = device!();
    let calls = [
        // the cubin that was kept, then the fresh one that stands in for it
        "cuModuleLoadData:1=209,cuModuleLoadData:2=209",
        "cuStreamCreateWithPriority:1=999",
        "cuLaunchKernelEx:3=701",
        "cuStreamBeginCapture_v2:1=900",
        "cuStreamEndCapture:1=901",
        "cuGraphInstantiateWithFlags:1=2",
        "cuGraphLaunch:2=719",
        "cuEventRecord:1=400",
    ];
    for call in calls {
        fails_with(generate(device, &[("FAKE_CUDA_FAIL", call)]), &["CUDA"]);
    }
    fails_with(generate(device, &[("FAKE_CUDA_FAIL", "fakeCudaEnqueue:1=1")]), &["cuBLAS"]);
}

/// A compiler of a later CUDA than the driver's makes what the driver does not take.
#[test]
fn machine_code_that_is_too_new_for_the_driver_names_both_versions() {
    let empty = tempfile::tempdir().unwrap();
    let cache = ("XDG_CACHE_HOME", empty.path().to_str().unwrap());
    let refused = ("FAKE_CUDA_FAIL", "cuModuleLoadData:1=209");
    let done = generate(device!(), &[cache, refused, ("FAKE_CUDA_DRIVER_VERSION", "12080")]);
    fails_with(done, &["NVRTC 13.", "the driver is for CUDA 12.8", "nvidia-cuda-nvrtc-cu12"]);
}

#[test]
fn a_kernel_that_faults_ends_the_generation() {
    let device = device!();
    for kernel in ["rms_norm:1=700", "attend_decode:2=700", "loopback_sum:9=719"] {
        fails_with(generate(device, &[("FAKE_CUDA_BREAK", kernel)]), &["CUDA"]);
    }
}
