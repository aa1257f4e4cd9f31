//! That every unit compiles, with NVIDIA's own compiler, for every architecture that is cared for; no GPU is
//! needed for it. Registers of each kernel are told, and one that keeps many of them in memory fails.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::{DTYPES, skip, toolchain_is_required};
use machine::driver::libraries::{self, Library};
use plan::DType;
use run::testing::cuda::geometry::grouped;
use run::testing::cuda::matvec::matvec_geometry;
use run::testing::cuda::{HEADERS, TranslationUnit, UNITS};
use run::testing::cuda::{KernelOptions, Nvrtc};
use run::testing::cuda::{cubin, defines, options_for};

/// Bytes a thread that ptxas may move to memory: a word or a few outside of loops cost nothing to speak of.
const MOST_SPILLED: u32 = 16;

pub(super) const ARCHITECTURES: [(u32, u32); 4] = [(8, 0), (9, 0), (10, 0), (10, 3)];

/// NVRTC, where it is there; says why not, and fails where it must be there.
pub(super) fn nvrtc() -> Option<&'static Nvrtc> {
    match Nvrtc::get() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            skip(&format!("there is no NVRTC: {error}"), toolchain_is_required());
            None
        }
    }
}

/// A unit with everything that it is told.
struct Variant {
    unit: &'static TranslationUnit,
    options: KernelOptions,
    constants: Vec<(&'static str, u32)>,
}

/// Products of few rows: (rows, inputs, outputs), one of a model and one without whole packs;
/// more are in `matvec`.
const PRODUCTS: [(u32, u32, u32); 2] = [(1, 4096, 14_336), (2, 37, 5)];

/// Products with weights in fp8, by one tile of rows and by two.
const FP8_PRODUCTS: [(u32, u32, u32); 2] = [(1, 4096, 14_336), (16, 4096, 14_336)];

/// The formats and constants that a unit is compiled with, a few of each.
fn variants(unit: &'static TranslationUnit) -> Vec<Variant> {
    let reads = |constant: &str| unit.source.contains(constant);
    // each size and each group once, and both groups with the size that most models have
    let heads: &[(u32, u32)] = match (reads("HEAD_DIM"), reads("GROUP")) {
        (true, true) => &[(8, 8), (64, 8), (72, 1), (128, 1), (128, 8), (256, 8)],
        (true, false) => &[(8, 1), (64, 1), (72, 1), (128, 1), (256, 1)],
        (false, true) => &[(128, 1), (128, 8)],
        (false, false) => &[(128, 1)],
    };
    let mut all = Vec::new();
    for dtype in DTYPES {
        for (head_dim, group) in heads.iter().copied() {
            let options =
                KernelOptions { dtype, head_dim, group, programmatic: true, ..KernelOptions::default() };
            if unit.name == "matvec.cu" {
                let products = PRODUCTS.map(|product| (dtype, product)).into_iter();
                let fp8 = FP8_PRODUCTS.map(|product| (DType::Fp8, product)).into_iter();
                let products = products.chain(fp8.filter(|_| dtype == DType::Bf16));
                all.extend(products.map(|(weights, (rows, inputs, outputs))| {
                    let constants = matvec_geometry(weights, rows, inputs, outputs, 132).defines;
                    Variant { unit, options, constants }
                }));
            } else if unit.name == "experts.cu" {
                // gpt-oss' width with few and many rows; rows without whole packs
                let products = [(dtype, 8, 2880), (dtype, 16, 2880), (dtype, 16, 37)].into_iter();
                let fp8 = [(DType::Fp8, 8, 2880), (DType::Fp8, 16, 2880)].into_iter();
                let products = products.chain(fp8.filter(|_| dtype == DType::Bf16));
                all.extend(products.map(|(weights, rows, inputs)| {
                    let constants = grouped(weights, rows, inputs, 132).defines;
                    Variant { unit, options, constants }
                }));
            } else {
                all.push(Variant { unit, options, constants: Vec::new() });
                if unit.name.starts_with("attend") && [64, 128].contains(&head_dim) {
                    let constants = vec![("WINDOW", 128), ("SINKS", 1)];
                    all.push(Variant { unit, options, constants });
                }
            }
        }
    }
    // such as say when they ran, too
    let of_16_bits = all
        .iter()
        .filter(|variant| variant.options.dtype == DType::Bf16 && variant.options.head_dim == 128);
    // such as prefetch for the next product
    let ahead = of_16_bits.clone().filter(|_| ["matvec.cu", "attend_decode.cu"].contains(&unit.name));
    let ahead: Vec<Variant> = ahead
        .map(|Variant { unit, options, constants }| Variant {
            unit,
            options: *options,
            constants: constants.iter().copied().chain([("AHEAD", 65_536)]).collect(),
        })
        .collect();
    let stamped: Vec<Variant> = of_16_bits
        .map(|Variant { unit, options, constants }| Variant {
            unit,
            options: *options,
            constants: constants.iter().copied().chain([("STAMPED", 1)]).collect(),
        })
        .collect();
    all.into_iter().chain(ahead).chain(stamped).collect()
}

/// Compiles a variant; its kernels with their registers.
fn compiled(nvrtc: &Nvrtc, variant: &Variant, sm: (u32, u32)) -> Result<Vec<(String, u32)>, String> {
    let Variant { unit, options, constants } = variant;
    let mut with = options_for(&defines(unit, options, constants, sm), sm);
    with.push("--ptxas-options=-v".to_owned());
    let output = cubin(nvrtc, unit, &with).map_err(|error| error.to_string())?;
    if !output.bytes.starts_with(b"\x7fELF") {
        return Err(format!("{}: no machine code, {}", unit.name, with.join(" ")));
    }
    let mut kernels = Vec::new();
    for (kernel, registers, spilled) in registers(&output.log) {
        if spilled > MOST_SPILLED {
            return Err(format!(
                "{kernel} keeps {spilled} bytes of registers in memory, {}",
                with.join(" ")
            ));
        }
        kernels.push((kernel, registers));
    }
    Ok(kernels)
}

/// Name, registers and spilled bytes of each kernel, from what ptxas tells.
pub(super) fn registers(log: &str) -> Vec<(String, u32, u32)> {
    let mut all: Vec<(String, u32, u32)> = Vec::new();
    let number_before = |line: &str, what: &str| -> Option<u32> {
        line.split(what)
            .next()
            .filter(|before| before.len() < line.len())?
            .split_whitespace()
            .last()?
            .parse()
            .ok()
    };
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            all.push((rest.split('\'').next().unwrap_or_default().to_owned(), 0, 0));
        } else if let Some(last) = all.last_mut() {
            if let Some(bytes) = number_before(line, " bytes spill stores") {
                last.2 = bytes;
            }
            if let Some(count) = number_before(line, " registers") {
                last.1 = count;
            }
        }
    }
    all
}

#[test]
fn every_unit_compiles_for_every_architecture() {
    let Some(nvrtc) = nvrtc() else { return };
    let all: Vec<Variant> = UNITS.iter().flat_map(variants).collect();
    // 10.3 has the code of 10.0: one format tells whether its compiler takes it
    let pays = |variant: &Variant, sm| sm != (10, 3) || variant.options.dtype == DType::Bf16;
    let jobs: Vec<(&Variant, (u32, u32))> = all
        .iter()
        .flat_map(|variant| ARCHITECTURES.map(|sm| (variant, sm)))
        .filter(|(variant, sm)| pays(variant, *sm))
        .collect();
    let results: Vec<_> = jobs.par_iter().map(|(variant, sm)| compiled(nvrtc, variant, *sm)).collect();
    let problems: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(problems.is_empty(), "{} of {}: {problems:#?}", problems.len(), results.len());

    let mut most = BTreeMap::new();
    for (kernel, registers) in results.into_iter().flatten().flatten() {
        let most = most.entry(kernel).or_insert(0);
        *most = registers.max(*most);
    }
    for kernel in UNITS.iter().flat_map(|unit| unit.kernels()) {
        let registers = most.get(kernel).copied().unwrap_or(0);
        assert!(registers > 0, "the compiler tells nothing of {kernel}");
        println!("{kernel}: at most {registers} registers");
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_with_its_place() {
    let Some(nvrtc) = nvrtc() else { return };
    let broken = TranslationUnit {
        name: "broken.cu",
        source: "#include \"block.cuh\"\nKERNEL(broken, T* out) {\n    out[0] = nobody;\n}\n",
    };
    let sm = (9, 0);
    let options = options_for(&defines(&broken, &KernelOptions::default(), &[], sm), sm);
    let message = cubin(nvrtc, &broken, &options).expect_err("broken").to_string();
    assert!(
        message.starts_with("kernels/broken.cu:3:14: identifier \"nobody\" is undefined"),
        "{message}"
    );
    // an architecture that no compiler knows
    let options = options_for(&defines(&broken, &KernelOptions::default(), &[], sm), (98, 7));
    let message = cubin(nvrtc, &broken, &options).expect_err("unknown").to_string();
    assert!(message.contains("refuses") && message.contains("sm_987"), "{message}");
}

#[test]
fn errors_in_headers_name_the_header() {
    let Some(nvrtc) = nvrtc() else { return };
    let headers: Vec<(&str, &str)> =
        HEADERS.iter().map(|(name, _)| (*name, "int x = nothing;\n")).collect();
    let options = ["--gpu-architecture=sm_90".to_owned()];
    let refusal = nvrtc.compile("a.cu", "#include \"block.cuh\"\n", &headers, &options);
    assert!(format!("{refusal:?}").contains("block.cuh(1): error"), "{refusal:?}");
}

#[test]
fn where_nvrtc_comes_from_is_told() {
    let Some(nvrtc) = nvrtc() else { return };
    let path = libraries::open_with_path(Library::Nvrtc).expect("it is there").path.display();
    println!("NVRTC {:?} at {path}", nvrtc.version());
    assert!(nvrtc.version() >= (12, 0));
}

#[test]
fn registers_are_read_from_what_ptxas_tells() {
    let log = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'a' for 'sm_90'\n\
        ptxas         .     0 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
        ptxas info    : Used 44 registers, used 0 barriers\n\
        ptxas info    : Compiling entry function 'b' for 'sm_90'\nptxas info    : Used 8 registers\n";
    assert_eq!(registers(log), [("a".to_owned(), 44, 12), ("b".to_owned(), 8, 0)]);
}
