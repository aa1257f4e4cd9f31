//! Kernels on a CPU: each unit compiled as C++ with the shim in `device/`, once for each set of constants.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libloading::Library;
use sha2::{Digest, Sha256};

use super::{Allocation, Bench, Device, Launch, skip, toolchain_is_required};
use base::checksum::hex;
use run::testing::cuda::{Defines, defines};
use run::testing::cuda::{HEADERS, TranslationUnit, unit_of};

/// Runs a check on the CPU, with the threads of a block in several orders: what depends on an order that
/// no barrier ensures differs.
pub(super) fn run(check: fn(&mut Bench<'_>)) {
    let Some(compiler) = compiler() else {
        skip(NO_COMPILER, toolchain_is_required());
        return;
    };
    for order in [0, 1, 2] {
        check(&mut Bench::new(&Shim::new(compiler, order, None)));
    }
}

/// Runs a check of the kernels of `unit` with the threads of a block in one order.
pub(super) fn run_unit(unit: &'static TranslationUnit, order: u64, check: impl FnOnce(&mut Bench<'_>)) {
    match compiler() {
        Some(compiler) => check(&mut Bench::new(&Shim::new(compiler, order, Some(unit)))),
        None => skip(NO_COMPILER, toolchain_is_required()),
    }
}

const NO_COMPILER: &str = "there is no C++ compiler (g++, or what $CXX names)";

/// The C++ compiler, if one answers.
fn compiler() -> Option<&'static str> {
    static COMPILER: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let named = std::env::var("CXX").ok().filter(|name| !name.is_empty());
        let name = named.unwrap_or_else(|| "g++".into());
        let answer = Command::new(&name).arg("--version").output().ok()?;
        answer.status.success().then_some(name)
    };
    COMPILER.get_or_init(find).as_deref()
}

/// A CPU, and the order in which it runs threads.
struct Shim {
    compiler: &'static str,
    order: u64,
    /// The unit in which kernels are looked up, instead of those of `kernels/`.
    unit: Option<&'static TranslationUnit>,
    /// What kernels were launched from.
    used: RefCell<Vec<Arc<Mutex<Library>>>>,
}

impl Shim {
    fn new(compiler: &'static str, order: u64, unit: Option<&'static TranslationUnit>) -> Self {
        Self { compiler, order, unit, used: RefCell::default() }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        // a stack for each CUDA thread, in each of hundreds of libraries, is more than a process may map
        for library in self.used.take() {
            let library = library.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the export's type; no launch is under way, since the library is locked.
            if let Ok(rest) = unsafe { library.get::<unsafe extern "C" fn()>(b"shim_rest") } {
                // SAFETY: as above.
                unsafe { rest() };
            }
        }
    }
}

/// A buffer, aligned as CUDA aligns its.
struct Host {
    blocks: Vec<Block>,
}

#[derive(Clone, Copy)]
#[repr(align(256))]
struct Block(#[expect(dead_code, reason = "read and written through its address")] [u8; 256]);

impl Host {
    fn bytes(&self) -> *mut u8 {
        self.blocks.as_ptr().cast::<u8>().cast_mut()
    }
}

impl Allocation for Host {
    fn address(&self) -> u64 {
        self.bytes() as u64
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.blocks.len() * 256);
        // SAFETY: within the blocks, which are this buffer's own.
        unsafe { self.blocks.as_mut_ptr().cast::<u8>().add(at).copy_from(bytes.as_ptr(), bytes.len()) };
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.blocks.len() * 256);
        // SAFETY: within the blocks; no kernel runs meanwhile.
        unsafe { self.bytes().add(at).copy_to(bytes.as_mut_ptr(), bytes.len()) };
    }
}

type Run =
    unsafe extern "C" fn(*const u32, *const u32, u32, *mut *mut std::ffi::c_void) -> std::ffi::c_int;

type SetClock = unsafe extern "C" fn(
    Option<unsafe extern "C" fn(*mut u64) -> u64>,
    Option<unsafe extern "C" fn(*mut u64, u32)>,
    *mut u64,
);

unsafe extern "C" fn read_clock(now: *mut u64) -> u64 {
    // SAFETY: the address that was given to `shim_clock`, valid while the kernel runs on this thread.
    unsafe {
        *now += 32;
        *now
    }
}

unsafe extern "C" fn sleep(now: *mut u64, ns: u32) {
    // SAFETY: as above.
    unsafe { *now += u64::from(ns) };
}

impl Device for Shim {
    fn allocate(&self, bytes: usize) -> Box<dyn Allocation> {
        Box::new(Host { blocks: vec![Block([0; 256]); bytes.div_ceil(256)] })
    }

    fn launch(&self, launch: &Launch<'_>, arguments: &[u64]) -> Result<Duration, String> {
        match self.attempt(launch, arguments, 0)? {
            (took, None) => Ok(took),
            (_, Some(_)) => Err("waits for another kernel".into()),
        }
    }

    fn attempt(
        &self,
        launch: &Launch<'_>,
        arguments: &[u64],
        ended: u64,
    ) -> Result<(Duration, Option<u64>), String> {
        let unit = match self.unit {
            Some(unit) => unit,
            None => unit_of(launch.kernel).map_err(|error| error.to_string())?,
        };
        let defines = defines(unit, launch.options, launch.constants, (9, 0));
        let library = library(self.compiler, unit, &defines)?;
        if self.unit.is_none() {
            super::fill::compile_for_gpu(unit, launch.options, launch.constants)?;
        }
        let mut used = self.used.borrow_mut();
        if !used.iter().any(|other| Arc::ptr_eq(other, &library)) {
            used.push(Arc::clone(&library));
        }
        drop(used);
        // the order of threads belongs to the library
        let library = library.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = arguments.to_vec();
        let mut pointers: Vec<_> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast::<std::ffi::c_void>()).collect();
        let name = launch.kernel;
        let geometry = launch.geometry;
        // SAFETY: the exports of `device/shim.h` have these types; the number of arguments is checked before
        // the call, which reads each from its own word.
        unsafe {
            let wanted = library.get::<*const u32>(format!("shim_{name}_args").as_bytes());
            let wanted = **wanted.map_err(|e| e.to_string())? as usize;
            if wanted != words.len() {
                return Err(format!("takes {wanted} arguments, not {}", words.len()));
            }
            let order =
                library.get::<unsafe extern "C" fn(u64)>(b"shim_order").map_err(|e| e.to_string())?;
            order(self.order);
            let ended_blocks = library.get::<unsafe extern "C" fn(u64) -> u64>(b"shim_ended_blocks");
            let ended_blocks = ended_blocks.map_err(|e| e.to_string())?;
            ended_blocks(ended);
            // a clock that runs by being read and slept on
            let mut now = 0u64;
            let clock = library.get::<SetClock>(b"shim_clock").map_err(|e| e.to_string())?;
            clock(Some(read_clock), Some(sleep), &raw mut now);
            let run =
                library.get::<Run>(format!("shim_{name}").as_bytes()).map_err(|e| e.to_string())?;
            let code = run(
                geometry.grid.as_ptr(),
                geometry.block.as_ptr(),
                geometry.shared_bytes,
                pointers.as_mut_ptr(),
            );
            clock(None, None, std::ptr::null_mut());
            // what waits is asked which blocks have ended; none of the next launch have
            let waits = ended_blocks(0);
            if code != 1 {
                return Ok((Duration::from_nanos(now), (code == 2).then_some(waits)));
            }
            let error = library
                .get::<unsafe extern "C" fn() -> *const std::ffi::c_char>(b"shim_error")
                .map_err(|e| e.to_string())?;
            Err(std::ffi::CStr::from_ptr(error()).to_string_lossy().into_owned())
        }
    }
}

/// A unit compiled with these constants, loaded once in a process.
fn library(
    compiler: &str,
    unit: &TranslationUnit,
    defines: &Defines,
) -> Result<Arc<Mutex<Library>>, String> {
    type Slot = Arc<OnceLock<Result<Arc<Mutex<Library>>, String>>>;
    static LIBRARIES: OnceLock<Mutex<HashMap<(String, Defines), Slot>>> = OnceLock::new();
    let slot = {
        let mut all =
            LIBRARIES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((unit.name.to_owned(), defines.clone())).or_default())
    };
    // others may compile other units meanwhile
    slot.get_or_init(|| {
        let file = compiled(compiler, unit, defines)?;
        // SAFETY: our own source: it has no initialisers but those of constants.
        let library = unsafe { Library::new(&file) }.map_err(|error| error.to_string())?;
        Ok(Arc::new(Mutex::new(library)))
    })
    .clone()
}

/// The shared object of a unit, in the target folder; compiled where it is not there yet.
fn compiled(compiler: &str, unit: &TranslationUnit, defines: &Defines) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (device, kernels) = (root.join("device"), root.join("../../kernels"));
    let shim = device.join("shim.h");
    let mut hash = Sha256::new();
    let mut parts = vec![unit.source.to_owned(), format!("{compiler} {defines:?}")];
    parts.extend(HEADERS.iter().map(|(_, text)| (*text).to_owned()));
    for file in ["shim.h", "shim/copies.h", "shim/fibers.h", "shim/launch.h", "shim/warp.h"] {
        let file = device.join(file);
        parts.push(std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?);
    }
    for part in &parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let key = hex(&hash.finalize()[..12]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels-on-cpu");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let file = folder.join(format!("{}-{key}.so", unit.name.trim_end_matches(".cu")));
    if file.is_file() {
        return Ok(file);
    }
    let own = tempfile::Builder::new().prefix(unit.name).tempfile_in(&folder);
    let own = own.map_err(|error| format!("{}: {error}", folder.display()))?.into_temp_path();
    // under its own name, whether or not it lies in kernels/
    let mut source =
        tempfile::Builder::new().suffix(".cu").tempfile_in(&folder).map_err(|e| e.to_string())?;
    write!(source, "#line 1 \"kernels/{}\"\n{}", unit.name, unit.source).map_err(|e| e.to_string())?;
    let mut command = Command::new(compiler);
    // kernels run briefly here: optimising them for longer would take longer than it spares
    command.args([
        "-x",
        "c++",
        "-std=c++17",
        "-O1",
        "-finline-small-functions",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-ignored-optimization-argument",
    ]);
    command.args(["-Wno-unknown-pragmas", "-include"]).arg(&shim).arg("-I").arg(kernels);
    command.args(defines.iter().map(|(name, value)| match value.as_str() {
        "" => format!("-D{name}"),
        value => format!("-D{name}={value}"),
    }));
    command.arg(source.path()).arg("-o").arg(&own);
    let answer = command.output().map_err(|error| format!("{compiler}: {error}"))?;
    if !answer.status.success() {
        return Err(format!("{}: {}", unit.name, String::from_utf8_lossy(&answer.stderr)));
    }
    own.persist(&file).map_err(|error| error.to_string())?;
    Ok(file)
}
