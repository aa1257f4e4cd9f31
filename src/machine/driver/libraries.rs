//! Lookup of NVIDIA's libraries at run time: by environment variable, through the loader, and in the
//! folders of toolkits and Python packages.
//!
//! Each library is opened once and stays loaded until exit, with global symbols, so that later lookups
//! by the same name get the same file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as UnixLibrary, RTLD_GLOBAL, RTLD_NOW};

use base::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    Driver,
    /// NVRTC: run-time compilation of CUDA C++ to a cubin.
    Nvrtc,
    CublasLt,
    Nccl,
    Cupti,
    /// NVML: clocks, links and throttling; installed with the kernel driver.
    Nvml,
}

/// Loaded library and its location.
#[derive(Debug)]
pub struct LoadedLibrary {
    pub library: libloading::Library,
    /// Path of the file, or the loader's name for it if the path is unknown.
    pub path: PathBuf,
}

impl Library {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Driver => "NVIDIA driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Nccl => "NCCL",
            Self::Cupti => "CUPTI",
            Self::Nvml => "NVML",
        }
    }

    /// True for the libraries that are installed with the kernel driver and must match it.
    fn comes_with_driver(self) -> bool {
        matches!(self, Self::Driver | Self::Nvml)
    }

    /// Environment variable with the file to use exclusively.
    fn override_variable(self) -> Option<&'static str> {
        match self {
            Self::Driver | Self::Nvml => None,
            Self::Nvrtc => Some("LADDERSCOPE_NVRTC"),
            Self::CublasLt => Some("LADDERSCOPE_CUBLASLT"),
            Self::Nccl => Some("LADDERSCOPE_NCCL"),
            Self::Cupti => Some("LADDERSCOPE_CUPTI"),
        }
    }

    /// File names, preferred first. Toolkit libraries newer than the driver's major version come last:
    /// CUDA is compatible only within a major version. Only toolkit libraries call `driver_major`.
    fn names(self, driver_major: impl Fn() -> u32) -> Vec<String> {
        let toolkit = |stem: &str| {
            let majors = if driver_major() == 12 { [12, 13] } else { [13, 12] };
            let versioned = majors.iter().map(|major| format!("lib{stem}.so.{major}"));
            versioned.chain([format!("lib{stem}.so")]).collect()
        };
        match self {
            Self::Driver => vec!["libcuda.so.1".into(), "libcuda.so".into()],
            Self::Nvml => vec!["libnvidia-ml.so.1".into(), "libnvidia-ml.so".into()],
            Self::Nccl => vec!["libnccl.so.2".into(), "libnccl.so".into()],
            Self::Nvrtc => toolkit("nvrtc"),
            Self::CublasLt => toolkit("cublasLt"),
            Self::Cupti => toolkit("cupti"),
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Driver | Self::Nvml => {
                "install NVIDIA's driver (in a container: start it with the GPUs, as with --gpus all)"
            }
            Self::Nvrtc => "pip install nvidia-cuda-nvrtc (CUDA 12: nvidia-cuda-nvrtc-cu12)",
            Self::CublasLt => "pip install nvidia-cublas (CUDA 12: nvidia-cublas-cu12)",
            Self::Nccl => {
                "pip install nvidia-nccl-cu13 (CUDA 12: nvidia-nccl-cu12), or install libnccl2"
            }
            Self::Cupti => "pip install nvidia-cuda-cupti (CUDA 12: nvidia-cuda-cupti-cu12)",
        }
    }

    fn loaded(self) -> &'static OnceLock<Result<LoadedLibrary, String>> {
        static LOADED: [OnceLock<Result<LoadedLibrary, String>>; 6] = [const { OnceLock::new() }; 6];
        &LOADED[self as usize]
    }
}

/// Opens a library, or returns it if already loaded. Returns the same errors as [`open_with_path`], identical on
/// every call.
pub fn open(library: Library) -> Result<&'static libloading::Library> {
    open_with_path(library).map(|loaded| &loaded.library)
}

/// Opens a library like [`open`] and returns its path as well.
///
/// Returns an input error if the library is missing or fails to load, listing what was tried and what to
/// install.
pub fn open_with_path(library: Library) -> Result<&'static LoadedLibrary> {
    let environment = |name: &str| std::env::var_os(name);
    let search = || search(library, environment, &library_folders(environment, Path::new("/")));
    library.loaded().get_or_init(search).as_ref().map_err(|message| Error::input(message.clone()))
}

/// Existing library folders of toolkits and Python packages, from environment variables and below
/// `root` (`/`).
fn library_folders(environment: impl Fn(&str) -> Option<OsString>, root: &Path) -> Vec<PathBuf> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut folders = Vec::new();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set);
    for toolkit in toolkits.chain([root.join("usr/local/cuda")]) {
        folders.push(toolkit.join("lib64"));
        folders.push(toolkit.join("lib"));
        folders.push(toolkit.join("extras/CUPTI/lib64"));
    }
    let virtual_environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set);
    let user_prefix = set("HOME").map(|home| home.join(".local"));
    // prefixes of Python installations on PATH: /opt/conda for /opt/conda/bin/python3
    let path = environment("PATH").unwrap_or_default();
    let pythons: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.join("python3").is_file())
        .filter_map(|folder| Some(folder.parent()?.to_path_buf()))
        .collect();
    let libs = virtual_environments.chain(pythons).chain(user_prefix).map(|prefix| prefix.join("lib"));
    for lib in libs.chain([root.join("usr/local/lib"), root.join("usr/lib")]) {
        for python in matching_entries(&lib, |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                for vendor in matching_entries(&python.join(packages).join("nvidia"), |_| true) {
                    folders.push(vendor.join("lib"));
                }
            }
        }
    }
    let mut known = std::collections::HashSet::new();
    folders.retain(|folder| folder.is_dir() && known.insert(folder.clone()));
    folders
}

/// Paths in a folder with matching names, in descending order (newer Pythons first).
fn matching_entries(folder: &Path, pass: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&pass))
        .map(|entry| entry.path())
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// Searches a library; `Err` lists what was tried and gives advice.
fn search(
    library: Library,
    environment: impl Fn(&str) -> Option<OsString>,
    folders: &[PathBuf],
) -> Result<LoadedLibrary, String> {
    if let Some(variable) = library.override_variable()
        && let Some(file) = environment(variable).filter(|file| !file.is_empty())
    {
        return load_named_file(library, variable, file.into());
    }
    let names = library.names(driver_major);
    // a libcuda in a toolkit folder is a link-time stub
    let folders: &[PathBuf] = if library.comes_with_driver() { &[] } else { folders };
    let mut broken = Vec::new();
    // the right version in any folder takes precedence over another version in the first one
    for soname in &names {
        match load(Path::new(soname)) {
            Ok(library) => {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
                let path = mapped_file(&maps, soname).unwrap_or_else(|| soname.into());
                return Ok(LoadedLibrary { library, path });
            }
            Err(problem) if is_absent(&problem, soname) => {}
            Err(problem) => broken.push(problem),
        }
        for path in folders.iter().map(|folder| folder.join(soname)).filter(|path| path.is_file()) {
            match load(&path) {
                Ok(library) => return Ok(LoadedLibrary { library, path }),
                Err(problem) => broken.push(format!("{}: {problem}", path.display())),
            }
        }
    }
    Err(not_found_message(library, &names, folders, &broken))
}

/// Loads the file that the user names by `variable`.
fn load_named_file(library: Library, variable: &str, path: PathBuf) -> Result<LoadedLibrary, String> {
    match load(&path) {
        Ok(library) => Ok(LoadedLibrary { library, path }),
        Err(problem) => Err(format!(
            "{}: ${variable} names {}, which cannot be loaded: {problem}; name a {} or unset the variable",
            library.as_str(),
            path.display(),
            library.names(|| u32::MAX).first().map_or("library", String::as_str)
        )),
    }
}

/// Message with the searched names and folders, or the `broken` files, and advice.
fn not_found_message(
    library: Library,
    names: &[String],
    folders: &[PathBuf],
    broken: &[String],
) -> String {
    let elsewhere = match (library.comes_with_driver(), folders.len()) {
        (true, _) => String::new(),
        (false, 0) => " (nor in CUDA toolkits and NVIDIA's Python packages)".to_owned(),
        (false, count) => {
            let mut listed: Vec<String> =
                folders.iter().take(4).map(|folder| folder.display().to_string()).collect();
            if count > listed.len() {
                listed.push(format!("{} more folders", count - listed.len()));
            }
            format!(" (nor in {})", listed.join(", "))
        }
    };
    let hint = library
        .override_variable()
        .map_or(String::new(), |variable| format!(", or set ${variable} to the file"));
    let problem = match library {
        Library::Driver => "no NVIDIA driver".to_owned(),
        _ => format!("no {}", library.as_str()),
    };
    let tried = match broken.is_empty() {
        true => format!("{} not found{elsewhere}", names.join(", ")),
        // a library that fails to load says more than the list of searched folders
        false => broken.join("; "),
    };
    format!("{problem}: {tried}; {}{hint}", library.advice())
}

/// CUDA major version of the driver, or the maximum without a driver.
fn driver_major() -> u32 {
    super::api::version().map_or(u32::MAX, |version| version / 1000)
}

/// Loads a path or a loader name; `Err` is the loader's message.
fn load(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: initializers of NVIDIA's libraries have no preconditions.
    let library = unsafe { UnixLibrary::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.map(libloading::Library::from).map_err(|error| {
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    })
}

/// True if the loader reports a missing file rather than a broken one.
fn is_absent(problem: &str, soname: &str) -> bool {
    problem.starts_with(&format!("{soname}: cannot open shared object file"))
}

/// File behind a loaded name in `maps`, the process's memory map. The map has the resolved file: libcuda.so.580.65.06
/// for libcuda.so.1.
fn mapped_file(maps: &str, soname: &str) -> Option<PathBuf> {
    let stem = soname.split(".so").next()?;
    let start = format!("{stem}.so");
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start)))
        .map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn the_drivers_major_version_comes_first() {
        let names = |major| Library::Nvrtc.names(|| major);
        assert_eq!(names(13), ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]);
        assert_eq!(names(12), ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"]);
        assert_eq!(names(u32::MAX), names(13));
    }

    #[test]
    fn a_named_file_is_the_only_one_tried() {
        let set = |name: &str| (name == "LADDERSCOPE_NCCL").then(|| "/no/such/libnccl.so.2".into());
        let problem = search(Library::Nccl, set, &[]).err().unwrap_or_default();
        assert!(problem.contains("$LADDERSCOPE_NCCL names /no/such/libnccl.so.2"), "{problem}");
    }

    #[test]
    fn folders_of_toolkits_and_python_packages_are_found() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let make = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(&path).expect("a folder");
            path
        };
        let toolkit = make("opt/cuda/lib64");
        let old = make("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
        let new = make("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
        let system = make("usr/lib/python3/dist-packages/nvidia/nccl/lib");
        make("venv/lib/python2.7/site-packages/nvidia/nccl/lib");
        let conda = make("opt/conda/lib/python3.12/site-packages/nvidia/cublas/lib");
        let bin = make("opt/conda/bin");
        std::fs::write(bin.join("python3"), "").expect("a file");
        let environment = |name: &str| match name {
            "CUDA_HOME" => Some(root.path().join("opt/cuda").into_os_string()),
            "VIRTUAL_ENV" => Some(root.path().join("venv").into_os_string()),
            "PATH" => std::env::join_paths([root.path().join("no/such/bin"), bin.clone()]).ok(),
            _ => None,
        };
        assert_eq!(library_folders(environment, root.path()), [toolkit, new, old, conda, system]);
    }

    #[test]
    fn a_file_in_a_folder_is_loaded_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folders = [folder.path().to_path_buf()];
        let path = folder.path().join("libcupti.so");
        std::fs::write(&path, "not a library").expect("a file");
        if driver_major() == u32::MAX {
            let problem = search(Library::Cupti, nothing, &folders).err().unwrap_or_default();
            assert!(problem.contains(&path.display().to_string()), "{problem}");
            assert!(problem.contains("pip install"), "{problem}");
        }
    }

    #[test]
    fn a_version_for_the_driver_is_found_before_another_one() {
        // names decide, so any shared library will do
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let Some(any) = mapped_file(&maps, "libgcc_s.so.1") else { return };
        // where the linker finds one by name, folders are not looked into
        if search(Library::Cupti, nothing, &[]).is_ok() {
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folders = [folder.path().to_path_buf()];
        for name in ["libcupti.so", "libcupti.so.12", "libcupti.so.13"] {
            std::fs::copy(&any, folder.path().join(name)).expect("a copy");
        }
        let found = search(Library::Cupti, nothing, &folders).map(|found| found.path);
        let first = &Library::Cupti.names(driver_major)[0];
        assert_eq!(found, Ok(folder.path().join(first)));
    }

    #[test]
    fn the_memory_map_names_the_resolved_file() {
        let maps = "7f00-7f01 r-xp 0 08:01 12   /usr/lib/libcudart.so.13\n\
                    7f02-7f03 r-xp 0 08:01 13   /usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06\n\
                    7f04-7f05 rw-p 0 00:00 0\n";
        assert_eq!(
            mapped_file(maps, "libcuda.so.1"),
            Some("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06".into())
        );
        assert_eq!(mapped_file(maps, "libnccl.so.2"), None);
    }
}
