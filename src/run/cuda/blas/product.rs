//! Shape, FLOPs and bytes of a matrix product.

use plan::DType;

/// `out[rows][outputs] = x[rows][inputs] w[outputs][inputs]^T`, all row-major and dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatMul {
    pub rows: u64,
    pub inputs: u64,
    pub outputs: u64,
    /// Format of input and weights.
    pub dtype: DType,
    /// True if the output is f32 instead of `dtype`.
    pub f32_output: bool,
    /// SMs available to the product while other kernels occupy the rest; `None` means all.
    pub sm_target: Option<u32>,
}

impl std::fmt::Display for MatMul {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rows, inputs, outputs, dtype, .. } = self;
        write!(f, "the product [{rows}x{inputs}] x [{outputs}x{inputs}]^T in {dtype}")?;
        if self.f32_output && self.dtype != DType::F32 {
            f.write_str(" to f32")?;
        }
        match self.sm_target {
            Some(multiprocessors) => write!(f, " for {multiprocessors} multiprocessors"),
            None => Ok(()),
        }
    }
}

impl MatMul {
    /// FLOPs, counting a multiply-add as two.
    pub fn flops(&self) -> f64 {
        2.0 * self.rows as f64 * self.inputs as f64 * self.outputs as f64
    }

    pub fn bytes(&self) -> [u64; 3] {
        let number = self.dtype.bytes();
        let out = if self.f32_output { 4 } else { number };
        [
            self.rows * self.inputs * number,
            self.outputs * self.inputs * number,
            self.rows * self.outputs * out,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_described_with_its_shape_and_costs() {
        let matmul = MatMul {
            rows: 3,
            inputs: 64,
            outputs: 100,
            dtype: DType::Bf16,
            f32_output: true,
            sm_target: Some(108),
        };
        assert_eq!(
            matmul.to_string(),
            "the product [3x64] x [100x64]^T in bf16 to f32 for 108 multiprocessors"
        );
        assert_eq!(matmul.flops(), 38_400.0);
        assert_eq!(matmul.bytes(), [384, 12_800, 1_200]);
    }
}
