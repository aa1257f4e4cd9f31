//! Weights in the layout of products: panels of sixteen outputs, with the numbers for one input
//! adjacent.
//!
//! A panel is one sequential memory stream for any register width and number of rows, and sums need no
//! horizontal additions. Panels are built when weights are loaded. All panels of a rank share one
//! allocation, so that even small ones are on large pages, because hardware prefetching stops at page
//! boundaries.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use crate::matrix::{Matrix, MatrixData};
use crate::mxfp4::{E2M1, MXFP4_BLOCK};

pub const PANEL_WIDTH: usize = 16;

/// Cache line of a panel (64 bytes): sixteen f32 for one input, sixteen bf16 pairs for two inputs with the first in the
/// low half of each u32, or e2m1 numbers for eight inputs, four bits each from the lowest on.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct PanelLine(pub [u32; PANEL_WIDTH]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelFormat {
    F32,
    /// bfloat16, in pairs.
    Bf16,
    /// e2m1, eight inputs a line, behind lines with the powers of two of four times 32 inputs.
    Mxfp4,
}

/// Inputs in a line of [`PanelFormat::Mxfp4`].
pub(super) const MXFP4_LINE_INPUTS: usize = 8;
/// Powers of two per output in a line of scales.
pub(super) const LINE_SCALES: usize = 4;

impl PanelFormat {
    fn from_matrix(matrix: &Matrix) -> Self {
        match &matrix.data {
            MatrixData::F32(_) => Self::F32,
            MatrixData::Bf16(_) => Self::Bf16,
            MatrixData::Mxfp4 { .. } => Self::Mxfp4,
        }
    }

    /// Inputs including padding.
    pub(super) fn padded(self, inputs: usize) -> usize {
        match self {
            Self::F32 | Self::Mxfp4 => inputs,
            Self::Bf16 => inputs.next_multiple_of(2),
        }
    }

    /// Lines of scales at the start of a panel.
    fn scale_lines(self, inputs: usize) -> usize {
        if self == Self::Mxfp4 { inputs.div_ceil(LINE_SCALES * MXFP4_BLOCK) } else { 0 }
    }

    /// Lines of a panel.
    fn lines(self, inputs: usize) -> usize {
        match self {
            Self::F32 => inputs,
            Self::Bf16 => inputs.div_ceil(2),
            Self::Mxfp4 => self.scale_lines(inputs) + inputs.div_ceil(MXFP4_LINE_INPUTS),
        }
    }
}

/// Weight matrix in panels: `[outputs / 16][inputs][16]` in f32, `[outputs / 16][inputs / 2][16][2]` in
/// bf16, `[outputs / 16]` times `[inputs / 128][16][4]` scales and `[inputs / 8][16][8]` numbers in mxfp4. The last panel
/// and an odd last input are padded with 0.
#[derive(Clone, Debug)]
pub struct Panels {
    pub outputs: usize,
    pub inputs: usize,
    pub(super) format: PanelFormat,
    pub(super) depth: usize,
    /// Index of the first line in the shared memory.
    first: usize,
    memory: Arc<Vec<PanelLine>>,
}

impl Panels {
    /// Copies a matrix into panels.
    pub fn from_matrix(matrix: &Matrix) -> Self {
        let lines = lines_of((matrix.outputs, matrix.inputs, PanelFormat::from_matrix(matrix)));
        let mut memory = with_large_pages(lines);
        let (depth, format) = fill(&mut memory, matrix);
        let (outputs, inputs) = (matrix.outputs, matrix.inputs);
        Self { outputs, inputs, format, depth, first: 0, memory: Arc::new(memory) }
    }

    /// Copies several matrices into panels in one allocation, dropping each matrix once copied.
    ///
    /// # Errors
    ///
    /// Returns the first error of the `matrices` iterator.
    pub fn of_all<E>(
        sizes: impl Iterator<Item = (usize, usize, PanelFormat)>,
        matrices: impl Iterator<Item = Result<Matrix, E>>,
    ) -> Result<Vec<Self>, E> {
        let lines = sizes.map(lines_of).sum();
        let mut memory = with_large_pages(lines);
        let mut made = Vec::new();
        for matrix in matrices {
            let matrix = matrix?;
            let first = memory.len();
            let (depth, format) = fill(&mut memory, &matrix);
            made.push((matrix.outputs, matrix.inputs, format, depth, first));
        }
        let memory = Arc::new(memory);
        let made = made.into_iter().map(|(outputs, inputs, format, depth, first)| {
            let memory = Arc::clone(&memory);
            Self { outputs, inputs, format, depth, first, memory }
        });
        Ok(made.collect())
    }

    pub(super) fn lines(&self, panel: usize, lines: Range<usize>) -> &[PanelLine] {
        let first = self.first + panel * self.depth;
        &self.memory[first + lines.start..first + lines.end]
    }

    /// Scales and numbers of a panel of [`PanelFormat::Mxfp4`].
    pub(super) fn scaled_lines(&self, panel: usize) -> [&[PanelLine]; 2] {
        self.lines(panel, 0..self.depth).split_at(self.format.scale_lines(self.inputs)).into()
    }

    pub fn panel_bytes(&self) -> usize {
        self.depth * size_of::<PanelLine>()
    }

    /// Writes one row of the matrix as f32, such as a row of the embedding.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (row / PANEL_WIDTH, row % PANEL_WIDTH);
        let lines = self.lines(panel, 0..self.depth);
        match self.format {
            PanelFormat::F32 => {
                for (out, line) in out[..self.inputs].iter_mut().zip(lines) {
                    *out = f32::from_bits(line.0[lane]);
                }
            }
            PanelFormat::Bf16 => {
                for (out, line) in out[..self.inputs].chunks_mut(2).zip(lines) {
                    let pair = line.0[lane];
                    for (out, bits) in out.iter_mut().zip([pair << 16, pair & 0xFFFF_0000]) {
                        *out = f32::from_bits(bits);
                    }
                }
            }
            PanelFormat::Mxfp4 => {
                let [scales, lines] = self.scaled_lines(panel);
                for (input, out) in out[..self.inputs].iter_mut().enumerate() {
                    let block = input / MXFP4_BLOCK;
                    let scale = scales[block / LINE_SCALES].0[lane] >> (block % LINE_SCALES * 8);
                    let number =
                        lines[input / MXFP4_LINE_INPUTS].0[lane] >> (input % MXFP4_LINE_INPUTS * 4);
                    *out = E2M1[number as usize & 15] * f32::from_bits((scale & 0xFF) << 23);
                }
            }
        }
    }

    /// Bytes including padding.
    pub fn bytes(&self) -> u64 {
        (self.outputs.div_ceil(PANEL_WIDTH) * self.panel_bytes()) as u64
    }
}

fn lines_of((outputs, inputs, format): (usize, usize, PanelFormat)) -> usize {
    outputs.div_ceil(PANEL_WIDTH) * format.lines(inputs)
}

/// Appends the lines of a matrix; returns the lines per panel and the format.
fn fill(memory: &mut Vec<PanelLine>, matrix: &Matrix) -> (usize, PanelFormat) {
    let (outputs, inputs, format) = (matrix.outputs, matrix.inputs, PanelFormat::from_matrix(matrix));
    let depth = format.lines(inputs);
    let start = memory.len();
    memory.resize(start + lines_of((outputs, inputs, format)), PanelLine([0; PANEL_WIDTH]));
    let panels = memory[start..].chunks_exact_mut(depth.max(1));
    for (first, panel) in (0..outputs).step_by(PANEL_WIDTH).zip(panels) {
        let rows = first..(first + PANEL_WIDTH).min(outputs);
        match &matrix.data {
            MatrixData::F32(data) => {
                for (lane, row) in rows.enumerate() {
                    for (line, number) in panel.iter_mut().zip(&data[row * inputs..][..inputs]) {
                        line.0[lane] = number.to_bits();
                    }
                }
            }
            MatrixData::Bf16(data) => {
                let bits = |number: &bf16| u32::from(number.to_bits());
                for (lane, row) in rows.enumerate() {
                    let pairs = data[row * inputs..][..inputs].chunks(2);
                    for (line, pair) in panel.iter_mut().zip(pairs) {
                        line.0[lane] = bits(&pair[0]) | pair.get(1).map_or(0, bits) << 16;
                    }
                }
            }
            MatrixData::Mxfp4 { blocks, scales } => {
                assert!(inputs.is_multiple_of(MXFP4_BLOCK), "rows of mxfp4 are whole blocks");
                let (of_scales, of_numbers) = panel.split_at_mut(format.scale_lines(inputs));
                for (lane, row) in rows.enumerate() {
                    let scales =
                        scales[row * inputs / MXFP4_BLOCK..][..inputs / MXFP4_BLOCK].chunks(LINE_SCALES);
                    for (line, scales) in of_scales.iter_mut().zip(scales) {
                        let mut four = [0; LINE_SCALES];
                        four[..scales.len()].copy_from_slice(scales);
                        line.0[lane] = u32::from_le_bytes(four);
                    }
                    let eights = blocks[row * inputs / 2..][..inputs / 2].as_chunks().0;
                    for (line, eight) in of_numbers.iter_mut().zip(eights) {
                        line.0[lane] = u32::from_le_bytes(*eight);
                    }
                }
            }
        }
    }
    (depth, format)
}

/// Empty vector with capacity for `items`, on large pages if it fills any. The advice is given before
/// the memory is touched; systems that ignore it use ordinary pages.
pub fn with_large_pages<T>(items: usize) -> Vec<T> {
    let memory = Vec::with_capacity(items);
    #[cfg(target_os = "linux")]
    advise(&memory);
    memory
}

#[cfg(target_os = "linux")]
fn advise<T>(memory: &Vec<T>) {
    use rustix::mm::{Advice, madvise};
    const PAGE_BYTES: usize = 4096;
    const HUGE_PAGE_BYTES: usize = 2 << 20;
    let bytes = memory.capacity() * size_of::<T>();
    let start = memory.as_ptr().cast::<u8>();
    let skipped = start.align_offset(PAGE_BYTES);
    if bytes < HUGE_PAGE_BYTES + skipped {
        return;
    }
    let whole = (bytes - skipped) / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: the range consists of whole pages within the vector's memory, and the advice changes no
    // contents
    let _ =
        unsafe { madvise(start.wrapping_add(skipped).cast_mut().cast(), whole, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(outputs in 1usize..70, inputs in 1usize..40, seed: u64) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let narrow: Vec<bf16> = (0..outputs * inputs).map(|_| bf16::from_f32(rng.f32() - 0.5)).collect();
            let wide: Vec<f32> = narrow.iter().map(|number| number.to_f32()).collect();
            let blocks = outputs * inputs.div_ceil(MXFP4_BLOCK);
            let packed = MatrixData::Mxfp4 {
                blocks: (0..blocks * MXFP4_BLOCK / 2).map(|_| rng.u8(..)).collect(),
                scales: (0..blocks).map(|_| rng.u8(100..140)).collect(),
            };
            let packed = Matrix { outputs, inputs: inputs.next_multiple_of(MXFP4_BLOCK), data: packed };
            for matrix in [
                Matrix { outputs, inputs, data: MatrixData::Bf16(narrow) },
                Matrix { outputs, inputs, data: MatrixData::F32(wide.clone()) },
                packed,
            ] {
                let panels = Panels::from_matrix(&matrix);
                let mut row = vec![f32::NAN; matrix.inputs];
                for (at, wanted) in matrix.numbers().chunks_exact(matrix.inputs).enumerate() {
                    panels.row(at, &mut row);
                    prop_assert_eq!(&row[..], wanted);
                }
            }
        }
    }
    #[test]
    fn there_is_room_for_what_was_asked_of_any_size() {
        for items in [0, 1, 100, 3 << 20] {
            let mut memory: Vec<u32> = with_large_pages(items);
            assert!(memory.capacity() >= items && memory.is_empty());
            memory.resize(items, 7);
            assert!(memory.iter().all(|item| *item == 7));
        }
    }
}
