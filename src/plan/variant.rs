//! Run options that change the plan of any architecture.

use serde::{Deserialize, Serialize};

use base::words::words;

words! {
    /// Format of partial sums in messages.
    #[derive(Default)]
    CommDType, "comm dtype" {
        /// The format of the activations.
        #[default]
        Activations = "activations",
        /// 8-bit floating point (e4m3: up to 448), with one f32 scale for 128 numbers.
        F8 = "f8",
        /// 8-bit integers from -127 to 127, with one f32 scale for 128 numbers.
        Int8 = "int8",
    }
}

/// Numbers of an 8-bit message that share a scale.
pub const SCALED_TOGETHER: u32 = 128;

/// Plan changes by run options; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// Groups into which the batch is divided; their operations alternate on the compute lane.
    pub micro_batches: u32,
    pub comm_dtype: CommDType,
    /// True if each rank adds and norms only its share of the rows, with a reduce-scatter before and an
    /// all-gather after instead of an all-reduce (Korthikanti et al., 2022).
    #[serde(default)]
    pub sequence_parallel: bool,
}

impl Variant {
    /// Variant for a single sequence, which is not divided into groups.
    pub fn undivided(self) -> Self {
        Self { micro_batches: 1, ..self }
    }
}

impl Default for Variant {
    fn default() -> Self {
        Self { micro_batches: 1, comm_dtype: CommDType::Activations, sequence_parallel: false }
    }
}
