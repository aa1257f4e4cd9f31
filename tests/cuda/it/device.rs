//! The software CUDA device of tests: builds the libraries in `device/` once per content and runs the
//! binary against them. Nothing in `src/` knows of them: the real loaders, the real calls.
//!
//! Where there is no C++ compiler, tests that need the device say so and pass, unless
//! `LADDERSCOPE_REQUIRE_TOOLCHAIN=1` says that there must be one (as in CI).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use base::checksum::hex;
use sha2::{Digest, Sha256};

use crate::support::{Done, Place, finish_within};

/// A test that hangs fails. Kernels are compiled by a C++ compiler on the first use of each.
const PATIENCE: Duration = Duration::from_secs(500);

/// Folder with the built libraries of the software device.
pub struct Device {
    folder: PathBuf,
}

/// With this variable a run times who does which product, as one does that is asked for nothing.
pub const TIMED: (&str, &str) = ("LADDERSCOPE_PRODUCTS", "");

/// Driver symbols that the library in `old/` lacks, as a driver from before CUDA 12 would.
const NEWER: &str = "cuLaunchKernelEx";

impl Device {
    /// The device, or `None` where there is no compiler for it (said on standard error).
    pub fn get() -> Option<&'static Self> {
        static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
        DEVICE.get_or_init(Self::build).as_ref()
    }

    fn build() -> Option<Self> {
        if Command::new(compiler()).arg("--version").output().is_err() {
            let required = std::env::var_os("LADDERSCOPE_REQUIRE_TOOLCHAIN").is_some_and(|v| v == "1");
            assert!(!required, "no C++ compiler ({}): apt-get install g++", compiler());
            eprintln!("skipped: the software CUDA device needs a C++ compiler ({})", compiler());
            return None;
        }
        let sources = sources();
        let mut hash = Sha256::new();
        for source in &sources {
            hash.update(source.file_name().expect("a file has a name").as_encoded_bytes());
            hash.update(std::fs::read(source).expect("a source file"));
        }
        let name = hex(&hash.finalize()[..8]);
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda");
        std::fs::create_dir_all(&base).expect("a folder for the device");
        // Test processes may run beside one another: one builds, the others wait.
        let lock = File::create(base.join("lock")).expect("a lock file");
        lock.lock().expect("the lock");
        let folder = base.join(name);
        if !folder.join("complete").exists() {
            build_all(&folder);
            std::fs::write(folder.join("complete"), "").expect("a mark");
        }
        Some(Self { folder })
    }

    /// One of the built libraries: `driver/libcuda.so.1`, `old/libcuda.so.1`, `lib/libnvrtc.so.13`, ….
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Variables under which the binary finds the device, with all its libraries.
    pub fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("LD_LIBRARY_PATH", self.file("driver")),
            ("LADDERSCOPE_NVRTC", self.file("lib/libnvrtc.so.13")),
            ("LADDERSCOPE_CUBLASLT", self.file("lib/libcublasLt.so.13")),
            ("LADDERSCOPE_NCCL", self.file("lib/libnccl.so.2")),
            ("FAKE_NVRTC_SHIM", source_file("shim.h")),
            ("FAKE_NVRTC_CACHE", self.file("kernels")),
        ]
    }

    /// `ladderscope` in `place`, to be run on this device.
    pub fn command(&self, place: &Place, arguments: &[&str]) -> Command {
        let mut command = place.command(arguments);
        command.envs(self.variables());
        // a check of the device before each first run would meet the faults that are meant for the run
        command.env("LADDERSCOPE_CHECK", "0");
        // by virtual clock cuBLASLt is the fastest: most runs need not find that out again, which is what takes them longest
        command.env("LADDERSCOPE_PRODUCTS", "library");
        // Compiled kernels are shared, but for tests of compiling.
        command.env("XDG_CACHE_HOME", self.file("cache"));
        for variable in ["CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"]
        {
            command.env_remove(variable);
        }
        let folder = place.path().join("ranks");
        std::fs::create_dir_all(&folder).expect("a folder where ranks meet");
        command.env("FAKE_NCCL_FOLDER", folder);
        command
    }

    /// Runs `ladderscope` in `place` on this device, with these variables more, to its end.
    pub fn run(&self, place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> Done {
        let mut command = self.command(place, arguments);
        command.envs(variables.iter().copied());
        finish_within(PATIENCE, command)
    }
}

/// The device, or the end of a test that cannot have one.
macro_rules! device {
    () => {
        match crate::device::Device::get() {
            Some(device) => device,
            None => return,
        }
    };
}
pub(crate) use device;

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "g++".into())
}

/// A source file of the device.
fn source_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("device").join(path)
}

/// Everything that the libraries are made of, in a fixed order.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![source_file("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder of the device").flatten() {
            let path = entry.path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "cpp" || extension == "h" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn build_all(folder: &Path) {
    // What an interrupted build left is built again.
    let _ = std::fs::remove_dir_all(folder);
    for name in ["driver", "old", "lib", "nvml", "kernels", "objects"] {
        std::fs::create_dir_all(folder.join(name)).expect("a folder of the device");
    }
    let driver: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
        .filter(|path| path.parent() == Some(&source_file("driver")))
        .collect();
    let object = |source: &Path| {
        folder.join("objects").join(source.file_stem().expect("a name")).with_extension("o")
    };
    // Two at a time: compiling is most of the time that this takes.
    for pair in driver.chunks(2) {
        let mut running: Vec<_> = pair
            .iter()
            .map(|source| {
                let mut command = compile();
                command.arg("-c").arg(source).arg("-o").arg(object(source));
                (command.spawn().expect("the compiler starts"), command)
            })
            .collect();
        for (child, command) in &mut running {
            assert!(child.wait().expect("the compiler ends").success(), "{command:?}");
        }
    }
    let hidden = folder.join("objects/old.map");
    std::fs::write(&hidden, format!("{{ global: cu*; fake*; local: {NEWER}; }};")).expect("a file");
    for (name, script) in [("driver", None), ("old", Some(&hidden))] {
        let mut link = compile();
        link.args(["-shared", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(folder.join(name).join("libcuda.so.1"));
        link.args(driver.iter().map(|source| object(source)));
        if let Some(script) = script {
            link.arg(format!("-Wl,--version-script={}", script.display()));
        }
        succeeds(link.args(["-ldl", "-lpthread"]));
    }
    let others = [
        ("fake_nvrtc.cpp", "lib", "libnvrtc.so.13"),
        ("fake_cublaslt.cpp", "lib", "libcublasLt.so.13"),
        ("nccl/fake_nccl.cpp", "lib", "libnccl.so.2"),
        ("fake_cupti.cpp", "lib", "libcupti.so.13"),
        ("fake_clock.cpp", "lib", "libclock.so"),
        ("nvml/fake_nvml.cpp", "nvml", "libnvidia-ml.so.1"),
    ];
    for (source, place, library) in others {
        let mut command = compile();
        command.arg("-shared").arg(format!("-Wl,-soname,{library}"));
        command.arg("-o").arg(folder.join(place).join(library));
        succeeds(command.arg(source_file(source)).args(["-ldl", "-lpthread"]));
    }
    build_rules(folder);
}

/// The checks of the device itself, and a kernel for them.
fn build_rules(folder: &Path) {
    let mut command = compile();
    command.arg("-o").arg(folder.join("rules")).arg(source_file("rules.cpp"));
    succeeds(command.args(["-ldl", "-lpthread"]));
    for name in ["copy", "other"] {
        let kernel = folder.join(format!("objects/{name}.cu"));
        let text = format!(
            "KERNEL({name}, const unsigned* in, unsigned* out, unsigned n) {{\n    \
             for (unsigned i = threadIdx.x; i < n; i += blockDim.x) out[i] = in[i];\n}}\n"
        );
        std::fs::write(&kernel, text).expect("a file");
        let mut command = Command::new(compiler());
        command.args(["-x", "c++", "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-include"]);
        command.arg(source_file("shim.h")).arg("-o").arg(folder.join(format!("{name}.so")));
        succeeds(command.arg(kernel));
    }
}

fn compile() -> Command {
    let mut command = Command::new(compiler());
    command.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"]);
    command
}

fn succeeds(command: &mut Command) {
    let status = command.status().expect("the compiler starts");
    assert!(status.success(), "{command:?}");
}
