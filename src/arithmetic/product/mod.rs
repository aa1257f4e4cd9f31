//! Products of rows with weights, on the fastest instruction set of this machine.
//!
//! With few rows a product is bound by reading weights from memory, with many by arithmetic. One kernel
//! handles both: it walks a panel of sixteen outputs input by input and multiplies each line with up to
//! `most_rows` rows.
//!
//! | file | purpose |
//! |---|---|
//! | `panels` | weights in the order they are read |
//! | `tile` | the kernel and its outer loops |
//! | `packed` | the same for mxfp4 |
//! | `digits` | mxfp4 in integers |
//! | `lanes`, `x86`, `neon` | sixteen numbers in the registers of an instruction set |
//!
//! `avx512_bf16` multiplies pairs of bf16 at once. It is opt-in, because it rounds rows to bf16 (as
//! PyTorch does), with errors as large as the differences between architectures. Splitting rows into two
//! bf16 halves is exact enough but not faster than widened weights (104 vs 107 GFLOP/s per core on Zen
//! 4, 16 rows).

#[cfg(target_arch = "x86_64")]
mod digits;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod packed;
mod panels;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;
use std::sync::OnceLock;

use lanes::Portable;
pub use panels::{PANEL_WIDTH, PanelFormat, Panels, with_large_pages};
#[cfg(target_arch = "x86_64")]
use tile::Dotted;
pub use tile::{Arranged, ProductOutput};
use tile::{Single, Widened, product};

/// Environment variable that overrides the instruction set.
pub const VARIABLE: &str = "LADDERSCOPE_INSTRUCTION_SET";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Plain loops, compiled for any processor.
    Portable,
    /// AVX2 with FMA: sixteen numbers in two registers.
    Avx2,
    /// AVX-512: sixteen numbers in one register.
    Avx512,
    /// AVX-512 with products of 8-bit integers, for mxfp4 weights.
    Avx512Vnni,
    /// AVX-512 with bf16 products: rounds rows to bf16 if the weights are bf16.
    Avx512Bf16,
    /// NEON of 64-bit ARM: sixteen numbers in four registers.
    Neon,
}

impl std::fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl InstructionSet {
    /// Keyword in records and in [`VARIABLE`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Vnni => "avx512_vnni",
            Self::Avx512Bf16 => "avx512_bf16",
            Self::Neon => "neon",
        }
    }

    /// Instruction set of this machine with this keyword.
    fn by_name(name: &str) -> Option<Self> {
        Self::named().into_iter().find(|set| set.as_str() == name)
    }

    /// Supported instruction sets that do not round rows, fastest first.
    pub fn here() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(x86::Avx512::with_integers().map(|_| Self::Avx512Vnni));
            all.extend(x86::Avx512::new().map(|_| Self::Avx512));
            all.extend(x86::Avx2::new().map(|_| Self::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        all.push(Self::Neon);
        all.push(Self::Portable);
        all
    }

    /// Supported instruction sets, including those that round.
    pub fn named() -> Vec<Self> {
        let mut all = Self::here();
        #[cfg(target_arch = "x86_64")]
        all.extend(x86::Avx512::with_bf16().map(|_| Self::Avx512Bf16));
        all
    }

    /// True if rows are rounded to bf16 before the product with these weights.
    pub(super) fn rounds(self, w: &Panels) -> bool {
        self == Self::Avx512Bf16 && matches!(w.format, PanelFormat::Bf16)
    }

    /// The fastest supported set, or the one named by `LADDERSCOPE_INSTRUCTION_SET` if supported.
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<InstructionSet> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let named = std::env::var(VARIABLE).ok().and_then(|name| Self::by_name(&name));
            named.unwrap_or(Self::here()[0])
        })
    }

    /// Instructions for products in integers, if this set multiplies these weights so.
    #[cfg(target_arch = "x86_64")]
    fn with_digits(self, w: &Panels) -> Option<x86::Avx512> {
        x86::Avx512::with_integers()
            .filter(|_| self == Self::Avx512Vnni && w.format == PanelFormat::Mxfp4)
    }

    /// Explains why `LADDERSCOPE_INSTRUCTION_SET` cannot be honored, if so.
    pub fn problem() -> Option<String> {
        let name = std::env::var(VARIABLE).ok()?;
        if Self::by_name(&name).is_some() {
            return None;
        }
        let names: Vec<&str> = Self::named().iter().map(|set| set.as_str()).collect();
        Some(format!("{VARIABLE} is {name:?}, and this machine has {}", names.join(", ")))
    }

    /// Rows whose sums fit into registers next to the operands; widened bf16 needs twice as many
    /// registers as f32.
    pub(super) fn most_rows(self, w: &Panels) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.with_digits(w).is_some() {
            return digits::MOST_ROWS;
        }
        match (self, w.format) {
            // sums of a block and of all blocks
            (Self::Avx512 | Self::Avx512Vnni | Self::Avx512Bf16, PanelFormat::Mxfp4) => 8,
            (Self::Avx512 | Self::Avx512Vnni | Self::Avx512Bf16, _) => 16,
            (Self::Avx2, PanelFormat::F32) => 6,
            (Self::Avx2 | Self::Neon, PanelFormat::Mxfp4) => 3,
            (Self::Avx2, PanelFormat::Bf16) | (Self::Neon, _) => 5,
            (Self::Portable, _) => 2,
        }
    }

    /// `y = x W^T` for some of the weight's panels.
    pub fn product(self, x: &Arranged, w: &Panels, panels: Range<usize>, onto: ProductOutput<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = self.with_digits(w) {
            // SAFETY: the value exists, so the processor supports the instructions
            return unsafe { digits::product(lanes, x, w, panels, onto) };
        }
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Avx512 | Self::Avx512Vnni => {
                if let Some(lanes) = x86::Avx512::new() {
                    // SAFETY: the value exists, so the processor supports the instructions
                    return unsafe { with_avx512(lanes, x, w, panels, onto) };
                }
            }
            Self::Avx512Bf16 => {
                if let Some(lanes) = x86::Avx512::with_bf16() {
                    // SAFETY: the value exists, so the processor supports the instructions
                    return unsafe { with_avx512_bf16(lanes, x, w, panels, onto) };
                }
            }
            Self::Avx2 => {
                if let Some(lanes) = x86::Avx2::new() {
                    // SAFETY: the value exists, so the processor supports the instructions
                    return unsafe { with_avx2(lanes, x, w, panels, onto) };
                }
            }
            Self::Portable | Self::Neon => {}
        }
        #[cfg(target_arch = "aarch64")]
        if self == Self::Neon {
            return either(neon::Neon, x, w, panels, onto);
        }
        either(Portable, x, w, panels, onto);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512(
    lanes: x86::Avx512,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    onto: ProductOutput<'_>,
) {
    either(lanes, x, w, panels, onto);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn with_avx512_bf16(
    lanes: x86::Avx512<true>,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    onto: ProductOutput<'_>,
) {
    match w.format {
        PanelFormat::F32 => product::<_, Single>(lanes, x, w, panels, onto),
        PanelFormat::Bf16 => product::<_, Dotted>(lanes, x, w, panels, onto),
        PanelFormat::Mxfp4 => packed::product(lanes, x, w, panels, onto),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2(lanes: x86::Avx2, x: &Arranged, w: &Panels, panels: Range<usize>, onto: ProductOutput<'_>) {
    either(lanes, x, w, panels, onto);
}

/// Dispatches on the weights' format; inlined into a function with the target features.
#[inline(always)]
fn either<L: lanes::SimdLanes>(
    lanes: L,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    onto: ProductOutput<'_>,
) {
    match w.format {
        PanelFormat::F32 => product::<L, Single>(lanes, x, w, panels, onto),
        PanelFormat::Bf16 => product::<L, Widened>(lanes, x, w, panels, onto),
        PanelFormat::Mxfp4 => packed::product(lanes, x, w, panels, onto),
    }
}

#[cfg(test)]
mod tests;
