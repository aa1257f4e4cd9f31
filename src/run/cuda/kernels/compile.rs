//! Compilation of a unit to a cubin: compiler options, and errors with file, line and column.

use super::KernelOptions;
use super::nvrtc::{Nvrtc, Output, Refusal};
use super::sources::{Constant, HEADERS, Unit};
use base::error::{Error, Result};
use plan::DType;

/// Sorted name and value pairs; the value of a flag is empty.
pub(super) type Defines = Vec<(String, String)>;

/// Defines of a unit: number format, the options it reads, and `constants`.
pub(super) fn defines(
    unit: &Unit,
    options: &KernelOptions,
    constants: &[(&str, u32)],
    sm: (u32, u32),
) -> Defines {
    let number = match options.dtype {
        DType::F32 => "NUMBER_F32",
        // all other numbers of an fp8 model are bf16
        DType::Bf16 | DType::Fp8 => "NUMBER_BF16",
        DType::F16 => "NUMBER_F16",
    };
    let mut defines: Defines = vec![(number.to_owned(), String::new())];
    if options.programmatic && sm >= (9, 0) {
        defines.push(("PROGRAMMATIC".to_owned(), String::new()));
        if !options.prefetch {
            defines.push(("NO_PREFETCH".to_owned(), String::new()));
        }
    }
    for constant in unit.constants {
        let (name, value) = match constant {
            Constant::HeadDim => ("HEAD_DIM", options.head_dim),
            Constant::Group => ("GROUP", options.group),
        };
        defines.push((name.to_owned(), value.to_string()));
    }
    for (name, value) in constants {
        defines.retain(|(known, _)| known != name);
        defines.push(((*name).to_owned(), value.to_string()));
    }
    defines.sort();
    defines
}

pub(super) fn options_for(defines: &Defines, (major, minor): (u32, u32)) -> Vec<String> {
    let mut options = vec!["-std=c++17".to_owned(), format!("--gpu-architecture=sm_{major}{minor}")];
    options.extend(defines.iter().map(|(name, value)| match value.as_str() {
        "" => format!("-D{name}"),
        value => format!("-D{name}={value}"),
    }));
    options
}

pub(super) fn cubin(nvrtc: &Nvrtc, unit: &Unit, options: &[String]) -> Result<Output> {
    let file = format!("kernels/{}", unit.name);
    nvrtc.compile(&file, unit.source, HEADERS, options).map_err(|refusal| {
        let with = options.join(" ");
        match refusal {
            Refusal::Source(log) => Error::failed(format!(
                "{} (compiled with {with}). The compiler's own words:\n{log}",
                first_error(&log).unwrap_or_else(|| format!("{file} does not compile"))
            )),
            Refusal::Option(log) => Error::input_help(
                format!("{file}: NVRTC {} refuses {with}: {log}", version(nvrtc)),
                "an NVRTC that knows this GPU: pip install --upgrade nvidia-cuda-nvrtc",
            ),
            Refusal::Failed(problem) => Error::failed(format!("{file}: {problem}")),
        }
    })
}

fn version(nvrtc: &Nvrtc) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::sources::unit_of;

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
}
