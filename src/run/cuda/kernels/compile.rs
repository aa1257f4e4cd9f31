//! Sources of the kernels, and their compilation and cache.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{LazyLock, OnceLock};

use libloading::os::unix::{Library as UnixLibrary, RTLD_GLOBAL, RTLD_NOW};
use sha2::{Digest, Sha256};

use crate::cuda::kernels::KernelOptions;
use base::checksum::hex;
use base::error::{Error, Result};
use machine::driver::functions::functions;
use machine::driver::libraries::{self, Library};
use plan::DType;

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
pub struct Output {
    pub bytes: Vec<u8>,
    /// Warnings, and the output of `--ptxas-options=-v`.
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
        let found = libraries::open_with_path(Library::Nvrtc).map_err(|error| error.to_string())?;
        let path = found.path.display();
        let api = Api::load(&found.library).map_err(|missing| {
            format!("{path} is not NVRTC of CUDA 12 or newer: no symbol {}", missing.join(", "))
        })?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two ints to valid addresses.
        let code = unsafe { (api.nvrtcVersion)(&mut major, &mut minor) };
        let numbers = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
        let Some(version) = numbers.filter(|_| code == 0) else {
            return Err(format!("cannot read the version of {path} (error {code})"));
        };
        load_builtins(&found.path, version);
        Ok(Self { api, version })
    }

    /// CUDA version, e.g. (13, 0).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Compiles a program to machine code. `headers` are pairs of name and text that it may include.
    ///
    /// # Errors
    ///
    /// Returns an error with NVRTC's log and the place of the first error in the source, or an input error if NVRTC
    /// does not know an option, e.g. a newer architecture.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Output> {
        let failed = |problem: String| Error::failed(format!("{name}: {problem}"));
        let with = options.join(" ");
        let c = |text: &str| CString::new(text).map_err(|_| failed(format!("a zero byte in {text:?}")));
        let strings =
            |texts: &mut dyn Iterator<Item = &str>| -> Result<Vec<CString>> { texts.map(c).collect() };
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
        self.check(code, "creating a program").map_err(failed)?;
        let option_pointers = pointers(&options);
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program exists; `options` holds `count` zero-terminated texts.
        let code =
            unsafe { (self.api.nvrtcCompileProgram)(program.program, count, option_pointers.as_ptr()) };
        let log = program.text(self.api.nvrtcGetProgramLogSize, self.api.nvrtcGetProgramLog);
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
        match code {
            COMPILATION => {
                return Err(Error::failed(format!(
                    "{} (compiled with {with}). The compiler's own words:\n{log}",
                    first_error(&log).unwrap_or_else(|| format!("{name} does not compile"))
                )));
            }
            INVALID_OPTION => {
                return Err(Error::input_help(
                    format!("{name}: NVRTC {} refuses {with}: {log}", version(self)),
                    "an NVRTC that knows this GPU: pip install --upgrade nvidia-cuda-nvrtc",
                ));
            }
            _ => self.check(code, "compiling").map_err(|problem| failed(format!("{problem}\n{log}")))?,
        }
        let bytes = program.text(self.api.nvrtcGetCUBINSize, self.api.nvrtcGetCUBIN);
        if bytes.is_empty() {
            return Err(failed("NVRTC compiled, but gave no machine code".into()));
        }
        Ok(Output { bytes, log })
    }

    fn check(&self, code: u32, what: &str) -> Result<(), String> {
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
        Err(format!("NVRTC, {what}: {text}"))
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

/// Sorted name and value pairs; the value of a flag is empty.
pub type Defines = Vec<(String, String)>;

/// Defines of a unit: number format, the options it reads, and `constants`.
pub fn defines(
    unit: &TranslationUnit,
    options: &KernelOptions,
    constants: &[(&str, u32)],
    sm: (u32, u32),
) -> Defines {
    let number = match options.dtype {
        DType::F32 => "NUMBER_F32",
        DType::F16 => "NUMBER_F16",
        // all other numbers of a quantized model are bf16
        _ => "NUMBER_BF16",
    };
    let mut defines: Defines = vec![(number.to_owned(), String::new())];
    if options.programmatic && sm >= (9, 0) {
        defines.push(("PROGRAMMATIC".to_owned(), String::new()));
        if !options.prefetch {
            defines.push(("NO_PREFETCH".to_owned(), String::new()));
        }
    }
    for (name, value) in [("HEAD_DIM", options.head_dim), ("GROUP", options.group)] {
        if unit.source.contains(name) {
            defines.push((name.to_owned(), value.to_string()));
        }
    }
    for (name, value) in constants {
        defines.retain(|(known, _)| known != name);
        defines.push(((*name).to_owned(), value.to_string()));
    }
    defines.sort();
    defines
}

pub fn options_for(defines: &Defines, (major, minor): (u32, u32)) -> Vec<String> {
    let mut options = vec!["-std=c++17".to_owned(), format!("--gpu-architecture=sm_{major}{minor}")];
    options.extend(defines.iter().map(|(name, value)| match value.as_str() {
        "" => format!("-D{name}"),
        value => format!("-D{name}={value}"),
    }));
    options
}

pub fn cubin(nvrtc: &Nvrtc, unit: &TranslationUnit, options: &[String]) -> Result<Output> {
    nvrtc.compile(&format!("kernels/{}", unit.name), unit.source, HEADERS, options)
}

/// Compiler version, e.g. `13.0`.
pub(super) fn version(nvrtc: &Nvrtc) -> String {
    let (major, minor) = nvrtc.version();
    format!("{major}.{minor}")
}

/// First error as `file:line:column: message`. NVRTC prints `file(line): error: message`, the source line
/// indented by two columns, and a `^` below the column.
fn first_error(log: &str) -> Option<String> {
    let mut lines = log.lines();
    while let Some(line) = lines.next() {
        let Some((place, what)) =
            line.split_once(": error: ").or_else(|| line.split_once(": catastrophic error: "))
        else {
            continue;
        };
        let Some((file, number)) = place.strip_suffix(')').and_then(|place| place.rsplit_once('('))
        else {
            continue;
        };
        let caret = lines.take(6).find_map(|line| {
            let before = line.strip_suffix('^')?;
            before.trim().is_empty().then(|| before.chars().count().saturating_sub(2) + 1)
        });
        let column = caret.map_or(String::new(), |column| format!(":{column}"));
        return Some(format!("{file}:{number}{column}: {what}"));
    }
    None
}

/// Hash of everything that determines the machine code: source, headers, options (including the architecture)
/// and compiler version.
pub fn cache_key(unit: &TranslationUnit, options: &[String], (major, minor): (u32, u32)) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(unit.name);
    add(unit.source);
    for (name, text) in HEADERS {
        add(name);
        add(text);
    }
    for option in options {
        add(option);
    }
    add(&format!("nvrtc {major}.{minor}"));
    format!("{}.cubin", hex(hash.finalize()))
}

/// A `.cu` file, compiled on its own.
#[derive(Debug)]
pub struct TranslationUnit {
    pub name: &'static str,
    pub source: &'static str,
}

impl TranslationUnit {
    /// Kernels in the order of their definitions, `KERNEL(name, ...)` or `BOUNDED_KERNEL(name, ...)`.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> {
        let definitions = self.source.lines().filter_map(|line| {
            line.strip_prefix("KERNEL(").or_else(|| line.strip_prefix("BOUNDED_KERNEL("))
        });
        definitions.filter_map(|rest| rest.split([',', ')']).next())
    }
}

macro_rules! unit {
    ($name:literal) => {
        TranslationUnit { name: $name, source: include_str!(concat!("../../../../kernels/", $name)) }
    };
}

pub const UNITS: &[TranslationUnit] = &[
    unit!("embed.cu"),
    unit!("norm.cu"),
    unit!("elementwise.cu"),
    unit!("rope.cu"),
    unit!("attend_decode.cu"),
    unit!("attend_prefill.cu"),
    unit!("matvec.cu"),
    unit!("experts.cu"),
    unit!("sample.cu"),
    unit!("collective.cu"),
    unit!("one_shot.cu"),
    unit!("eight.cu"),
    unit!("random.cu"),
    unit!("fp8.cu"),
    unit!("measure.cu"),
    unit!("stamp.cu"),
];

pub const HEADERS: &[(&str, &str)] = &[
    ("number.cuh", include_str!("../../../../kernels/number.cuh")),
    ("block.cuh", include_str!("../../../../kernels/block.cuh")),
    ("join.cuh", include_str!("../../../../kernels/join.cuh")),
    ("norm.cuh", include_str!("../../../../kernels/norm.cuh")),
    ("hash.cuh", include_str!("../../../../kernels/hash.cuh")),
    ("e4m3.cuh", include_str!("../../../../kernels/e4m3.cuh")),
    ("mma.cuh", include_str!("../../../../kernels/mma.cuh")),
    ("softmax.cuh", include_str!("../../../../kernels/softmax.cuh")),
    ("stream.cuh", include_str!("../../../../kernels/stream.cuh")),
    ("weight.cuh", include_str!("../../../../kernels/weight.cuh")),
    ("ring.cuh", include_str!("../../../../kernels/ring.cuh")),
    ("activation.cuh", include_str!("../../../../kernels/activation.cuh")),
];

pub fn unit_of(kernel: &str) -> Result<&'static TranslationUnit> {
    static UNIT_OF: LazyLock<HashMap<&str, &TranslationUnit>> = LazyLock::new(|| {
        UNITS.iter().flat_map(|unit| unit.kernels().map(move |kernel| (kernel, unit))).collect()
    });
    let unit = UNIT_OF.get(kernel).copied();
    unit.ok_or_else(|| Error::failed(format!("no file of kernels/ defines '{kernel}'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_told_what_it_reads_and_no_more() {
        let options = KernelOptions {
            dtype: DType::F16,
            head_dim: 72,
            group: 4,
            programmatic: true,
            prefetch: false,
            ..KernelOptions::default()
        };
        let flags = |kernel, constants: &[(&str, u32)], sm| {
            let unit = unit_of(kernel).expect("a kernel");
            options_for(&defines(unit, &options, constants, sm), sm)
        };
        assert_eq!(
            flags("rope_append", &[], (9, 0)),
            [
                "-std=c++17",
                "--gpu-architecture=sm_90",
                "-DHEAD_DIM=72",
                "-DNO_PREFETCH",
                "-DNUMBER_F16",
                "-DPROGRAMMATIC"
            ]
        );
        // another head size makes no other norm; no early start before sm_90
        assert_eq!(
            flags("rms_norm", &[("ROWS", 3)], (8, 0)),
            ["-std=c++17", "--gpu-architecture=sm_80", "-DNUMBER_F16", "-DROWS=3"]
        );
        // a constant overrides an option
        assert!(flags("rope_append", &[("HEAD_DIM", 64)], (9, 0)).contains(&"-DHEAD_DIM=64".to_owned()));
    }

    #[test]
    fn an_error_is_named_by_file_line_and_column() {
        let log = "kernels/a.cu(3): error: identifier \"foo\" is undefined\n      int y = foo + 1;\n              ^\n\n1 error detected";
        assert_eq!(
            first_error(log).as_deref(),
            Some("kernels/a.cu:3:13: identifier \"foo\" is undefined")
        );
        let log = "a.cu(12): warning #1: x\nb.cuh(7): error: no caret";
        assert_eq!(first_error(log).as_deref(), Some("b.cuh:7: no caret"));
        assert_eq!(first_error("nothing of the kind"), None);
    }

    #[test]
    fn keys_differ_by_all_that_code_follows_from() {
        let options = |text: &str| vec![text.to_owned()];
        let keys = [
            cache_key(&UNITS[0], &options("-DA"), (13, 0)),
            cache_key(&UNITS[1], &options("-DA"), (13, 0)),
            cache_key(&UNITS[0], &options("-DB"), (13, 0)),
            cache_key(&UNITS[0], &options("-DA"), (12, 9)),
            cache_key(&UNITS[0], &["-D".to_owned(), "A".to_owned()], (13, 0)),
        ];
        let distinct: std::collections::HashSet<&String> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], cache_key(&UNITS[0], &options("-DA"), (13, 0)));
        assert_eq!(keys[0].len(), 64 + ".cubin".len());
    }

    /// A kernel that did not would have no times in a trace.
    #[test]
    fn every_kernel_can_say_when_it_ran() {
        for unit in UNITS {
            let said = unit.source.matches("    SAY_WHEN();").count();
            let kernels = unit.kernels().count();
            assert_eq!(said, kernels, "{}: each kernel begins with SAY_WHEN();", unit.name);
        }
    }

    #[test]
    fn every_file_is_in_the_binary() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
        for entry in std::fs::read_dir(folder).expect("the folder of kernels") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            let known = UNITS.iter().any(|unit| unit.name == name)
                || HEADERS.iter().any(|(header, _)| *header == name);
            assert!(known, "kernels/{name} is in no list");
        }
    }

    #[test]
    fn a_kernel_belongs_to_one_unit() {
        let all: Vec<&str> = UNITS.iter().flat_map(|unit| unit.kernels()).collect();
        let distinct: std::collections::HashSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len());
        let problem = unit_of("no_such_kernel").expect_err("unknown").to_string();
        assert!(problem.contains("no_such_kernel"), "{problem}");
    }
}
