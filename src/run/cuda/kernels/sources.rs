//! Kernel sources embedded in the binary: units, compiled one by one, and headers that units include.

use base::error::{Error, Result};

/// A `.cu` file, compiled on its own.
#[derive(Debug)]
pub struct Unit {
    pub name: &'static str,
    pub source: &'static str,
    /// Kernels defined with `KERNEL` or `BOUNDED_KERNEL`.
    pub kernels: &'static [&'static str],
    /// Model options the unit reads, in addition to the number format.
    pub constants: &'static [Constant],
}

/// Model option that a unit is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    HeadDim,
    /// Query heads per KV head.
    Group,
}

macro_rules! unit {
    ($name:literal, [$($kernel:literal),*], [$($constant:ident),*]) => {
        Unit {
            name: $name,
            source: include_str!(concat!("../../../../kernels/", $name)),
            kernels: &[$($kernel),*],
            constants: &[$(Constant::$constant),*],
        }
    };
}

pub const UNITS: &[Unit] = &[
    unit!("embed.cu", ["embed", "select_last", "narrow"], []),
    unit!("norm.cu", ["rms_norm", "add_norm", "join_norm"], []),
    unit!("elementwise.cu", ["add", "add_mean", "join", "mean_share", "silu_mul"], []),
    unit!("rope.cu", ["rope_append", "bias_heads", "norm_heads"], [HeadDim]),
    unit!("attend_decode.cu", ["attend_decode", "attend_combine"], [HeadDim, Group]),
    unit!("attend_prefill.cu", ["attend_prefill"], [HeadDim]),
    unit!("matvec.cu", ["matvec", "matvec_logits"], []),
    unit!(
        "experts.cu",
        ["choose_experts", "group_choices", "experts_up", "experts_down", "sum_experts"],
        []
    ),
    unit!("sample.cu", ["sample_part", "sample_greedy", "sample_random"], []),
    unit!(
        "collective.cu",
        [
            "loopback_sum",
            "loopback_scatter",
            "loopback_gather",
            "loopback_columns",
            "order_columns",
            "emulated_collective"
        ],
        []
    ),
    unit!("one_shot.cu", ["one_shot_sum", "one_shot_add_norm"], []),
    unit!("eight.cu", ["quantize", "sum_eight", "loopback_eight"], []),
    unit!("random.cu", ["random_fill"], []),
    unit!("fp8.cu", ["random_fp8", "expand_fp8"], []),
    unit!("measure.cu", ["read_bandwidth", "clock_probe"], []),
    unit!("stamp.cu", ["stamp", "keep_stamps"], []),
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

pub fn unit_of(kernel: &str) -> Result<&'static Unit> {
    UNITS
        .iter()
        .find(|unit| unit.kernels.contains(&kernel))
        .ok_or_else(|| Error::failed(format!("no file of kernels/ defines '{kernel}'")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Names in KERNEL(name, ...) and BOUNDED_KERNEL(name, ...), in order.
    fn defined(source: &str) -> Vec<&str> {
        let starts = source.lines().filter_map(|line| {
            line.strip_prefix("KERNEL(").or_else(|| line.strip_prefix("BOUNDED_KERNEL("))
        });
        starts.filter_map(|rest| rest.split([',', ')']).next()).collect()
    }

    #[test]
    fn units_list_what_their_files_define() {
        for unit in UNITS {
            let (mut listed, mut defined) = (unit.kernels.to_vec(), defined(unit.source));
            listed.sort_unstable();
            defined.sort_unstable();
            assert_eq!(listed, defined, "{}", unit.name);
            for (constant, text) in [(Constant::HeadDim, "HEAD_DIM"), (Constant::Group, "GROUP")] {
                assert_eq!(
                    unit.constants.contains(&constant),
                    unit.source.contains(text),
                    "{}: {text}",
                    unit.name
                );
            }
        }
    }

    /// A kernel that did not would have no times in a trace.
    #[test]
    fn every_kernel_can_say_when_it_ran() {
        for unit in UNITS {
            let said = unit.source.matches("    SAY_WHEN();").count();
            assert_eq!(said, unit.kernels.len(), "{}: each kernel begins with SAY_WHEN();", unit.name);
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
        let all: Vec<&str> = UNITS.iter().flat_map(|unit| unit.kernels).copied().collect();
        let distinct: std::collections::HashSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len());
        let problem = unit_of("no_such_kernel").expect_err("unknown").to_string();
        assert!(problem.contains("no_such_kernel"), "{problem}");
    }
}
