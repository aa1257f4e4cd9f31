//! NVRTC, NVIDIA's CUDA C++ compiler, loaded at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libloading::os::unix::{Library as UnixLibrary, RTLD_GLOBAL, RTLD_NOW};

use base::error::{Error, Result};
use machine::driver::functions::functions;
use machine::driver::libraries::{self, Library};

type Program = *mut c_void;

functions! {
    struct Api;
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> u32;
    fn nvrtcGetErrorString(code: u32) -> *const c_char;
    fn nvrtcCreateProgram(
        program: *mut Program, source: *const c_char, name: *const c_char, headers: c_int,
        header_sources: *const *const c_char, header_names: *const *const c_char,
    ) -> u32;
    fn nvrtcCompileProgram(program: Program, count: c_int, options: *const *const c_char) -> u32;
    fn nvrtcGetProgramLogSize(program: Program, bytes: *mut usize) -> u32;
    fn nvrtcGetProgramLog(program: Program, text: *mut c_char) -> u32;
    fn nvrtcGetCUBINSize(program: Program, bytes: *mut usize) -> u32;
    fn nvrtcGetCUBIN(program: Program, code: *mut c_char) -> u32;
    fn nvrtcDestroyProgram(program: *mut Program) -> u32;
}

/// `NVRTC_ERROR_COMPILATION`: the source does not compile.
const COMPILATION: u32 = 6;
/// `NVRTC_ERROR_INVALID_OPTION`: an unknown option, e.g. an architecture newer than this NVRTC.
const INVALID_OPTION: u32 = 5;

/// NVRTC function table; usable from any thread.
pub struct Nvrtc {
    api: Api,
    version: (u32, u32),
}

#[derive(Debug)]
pub(super) enum Refusal {
    /// Compiler log of a source error.
    Source(String),
    /// Compiler log of an unknown option.
    Option(String),
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Output {
    pub bytes: Vec<u8>,
    /// Warnings, and the output of `--ptxas-options=-v`.
    #[cfg_attr(not(test), expect(dead_code, reason = "checks read registers from it"))]
    pub log: String,
}

impl Nvrtc {
    /// Loads NVRTC once per process. Returns an input error if it is missing, with the paths tried and how to
    /// install it.
    pub fn get() -> Result<&'static Self> {
        static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        NVRTC.get_or_init(Self::load).as_ref().map_err(Error::input)
    }

    fn load() -> Result<Self, String> {
        let found = libraries::found(Library::Nvrtc).map_err(|error| error.to_string())?;
        let path = found.path.display();
        let api = Api::load(&found.library).map_err(|missing| {
            format!("{path} is no NVRTC of CUDA 12 or newer: it has no {}", missing.join(", "))
        })?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two ints to valid addresses.
        let code = unsafe { (api.nvrtcVersion)(&mut major, &mut minor) };
        let numbers = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
        let Some(version) = numbers.filter(|_| code == 0) else {
            return Err(format!("{path} does not tell its version (error {code})"));
        };
        load_builtins(&found.path, version);
        Ok(Self { api, version })
    }

    /// CUDA version, e.g. (13, 0).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Compiles a program to machine code. `headers` are pairs of name and text that it may include.
    pub(super) fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Output, Refusal> {
        let c = |text: &str| {
            CString::new(text).map_err(|_| Refusal::Failed(format!("{name}: a zero byte in {text:?}")))
        };
        let strings = |texts: &mut dyn Iterator<Item = &str>| -> Result<Vec<CString>, Refusal> {
            texts.map(c).collect()
        };
        let (source, name_of_program) = (c(source)?, c(name)?);
        let header_names = strings(&mut headers.iter().map(|(name, _)| *name))?;
        let header_texts = strings(&mut headers.iter().map(|(_, text)| *text))?;
        let options = strings(&mut options.iter().map(String::as_str))?;
        let pointers =
            |texts: &[CString]| -> Vec<*const c_char> { texts.iter().map(|t| t.as_ptr()).collect() };

        let mut program = OwnProgram { api: &self.api, program: ptr::null_mut() };
        // SAFETY: all texts are zero-terminated and outlive the call, which copies them; the lengths match.
        let code = unsafe {
            (self.api.nvrtcCreateProgram)(
                &mut program.program,
                source.as_ptr(),
                name_of_program.as_ptr(),
                c_int::try_from(headers.len()).unwrap_or(c_int::MAX),
                pointers(&header_texts).as_ptr(),
                pointers(&header_names).as_ptr(),
            )
        };
        self.check(code, "creating a program")?;
        let option_pointers = pointers(&options);
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program exists; `options` holds `count` zero-terminated texts.
        let code =
            unsafe { (self.api.nvrtcCompileProgram)(program.program, count, option_pointers.as_ptr()) };
        let log = program.text(self.api.nvrtcGetProgramLogSize, self.api.nvrtcGetProgramLog);
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
        match code {
            0 => {}
            COMPILATION => return Err(Refusal::Source(log)),
            INVALID_OPTION => return Err(Refusal::Option(log)),
            _ => {
                self.check(code, "compiling").map_err(|refusal| match refusal {
                    Refusal::Failed(problem) => Refusal::Failed(format!("{problem}\n{log}")),
                    other => other,
                })?;
            }
        }
        let bytes = program.text(self.api.nvrtcGetCUBINSize, self.api.nvrtcGetCUBIN);
        if bytes.is_empty() {
            return Err(Refusal::Failed("NVRTC compiled, but gave no machine code".into()));
        }
        Ok(Output { bytes, log })
    }

    fn check(&self, code: u32, what: &str) -> Result<(), Refusal> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any number and returns a constant text, or null.
        let text = unsafe { (self.api.nvrtcGetErrorString)(code) };
        let text = if text.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: not null, so a constant zero-terminated text.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Refusal::Failed(format!("NVRTC, {what}: {text}")))
    }
}

/// Preloads NVRTC's builtins from its own directory. NVRTC opens them by file name only, and the directory of
/// a Python package is not on the library path. If they are missing, NVRTC reports it.
fn load_builtins(nvrtc: &Path, (major, minor): (u32, u32)) {
    let name = format!("libnvrtc-builtins.so.{major}.{minor}");
    let real = nvrtc.canonicalize().ok();
    let beside = [Some(nvrtc), real.as_deref()].into_iter().flatten().filter_map(Path::parent);
    for path in beside.map(|folder| folder.join(&name)).filter(|path| path.is_file()) {
        // SAFETY: NVIDIA's library of constants; its initializers have no preconditions.
        if let Ok(library) = unsafe { UnixLibrary::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
            std::mem::forget(library); // stays loaded, as NVRTC does
            return;
        }
    }
}

struct OwnProgram<'a> {
    api: &'a Api,
    program: Program,
}

impl OwnProgram<'_> {
    /// One of the program's outputs; empty if it has none.
    fn text(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> u32,
        get: unsafe extern "C" fn(Program, *mut c_char) -> u32,
    ) -> Vec<u8> {
        let mut bytes = 0;
        // SAFETY: the program exists; writes one number.
        if unsafe { size(self.program, &mut bytes) } != 0 || bytes == 0 {
            return Vec::new();
        }
        let mut text = vec![0u8; bytes];
        // SAFETY: the buffer has the reported size.
        match unsafe { get(self.program, text.as_mut_ptr().cast()) } {
            0 => text,
            _ => Vec::new(),
        }
    }
}

impl Drop for OwnProgram<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: created by this API, destroyed once.
            unsafe { (self.api.nvrtcDestroyProgram)(&mut self.program) };
        }
    }
}
