//! What options of a run change in the plan of an architecture, whatever the architecture is.

use serde::{Deserialize, Serialize};

use base::words::words;

words! {
    /// The format in which partial sums are sent.
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

/// How many numbers of a message in 8 bits share a scale.
pub const SCALED_TOGETHER: u32 = 128;

/// What options change in a plan; by default nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// Into how many groups the batch is divided, whose operations alternate on the compute lane.
    pub micro_batches: u32,
    /// The format of the messages of all-reduces.
    pub comm_dtype: CommDType,
    /// Whether each rank adds and norms its share of the rows alone, with a reduce-scatter before and an all-gather
    /// behind instead of an all-reduce (Korthikanti et al., 2022).
    #[serde(default)]
    pub sequence_parallel: bool,
}

impl Variant {
    /// The same where sequences are processed one by one: a single one is not divided into groups.
    pub fn undivided(self) -> Self {
        Self { micro_batches: 1, ..self }
    }
}

impl Default for Variant {
    fn default() -> Self {
        Self { micro_batches: 1, comm_dtype: CommDType::Activations, sequence_parallel: false }
    }
}
