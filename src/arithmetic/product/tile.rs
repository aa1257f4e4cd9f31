//! `y = x W^T` over panels, for any instruction set. Up to `most_rows` rows of x are multiplied with one
//! panel, with sums in registers; x is rearranged so that these rows' numbers for one input are
//! adjacent.

use std::ops::Range;

use half::bf16;

use super::InstructionSet;
#[cfg(target_arch = "x86_64")]
use super::digits::{self, Block};
use super::lanes::{Dots, SimdLanes};
use super::panels::{PANEL_WIDTH, PanelLine, Panels};

/// Lines of a panel reused by several tiles while in the L1 cache: 16 KB.
const LINES_PER_BLOCK: usize = 256;

/// Rows of x multiplied with all panels before the next group; with a block of inputs they stay in the
/// L2 cache.
const ROWS_PER_GROUP: usize = 512;

/// Multiplication of a line of weights with rows of x.
pub(super) trait LineProduct<L: SimdLanes> {
    const INPUTS: usize;

    /// Adds the products of a line with `x[input][row]` to the rows' sums.
    fn accumulate<const M: usize>(lanes: L, line: &PanelLine, x: &[[f32; M]], sums: &mut [L::V; M]);
}

/// f32 weights, multiplied as stored.
pub(super) struct Single;

impl<L: SimdLanes> LineProduct<L> for Single {
    const INPUTS: usize = 1;

    #[inline(always)]
    fn accumulate<const M: usize>(lanes: L, line: &PanelLine, x: &[[f32; M]], sums: &mut [L::V; M]) {
        let w = lanes.line(line);
        for (sum, x) in sums.iter_mut().zip(&x[0]) {
            *sum = lanes.multiply_add(*sum, w, *x);
        }
    }
}

/// bf16 weights, widened in registers.
pub(super) struct Widened;

impl<L: SimdLanes> LineProduct<L> for Widened {
    const INPUTS: usize = 2;

    #[inline(always)]
    fn accumulate<const M: usize>(lanes: L, line: &PanelLine, x: &[[f32; M]], sums: &mut [L::V; M]) {
        let [first, second] = lanes.pairs(line);
        for (sum, x) in sums.iter_mut().zip(&x[0]) {
            *sum = lanes.multiply_add(*sum, first, *x);
        }
        for (sum, x) in sums.iter_mut().zip(&x[1]) {
            *sum = lanes.multiply_add(*sum, second, *x);
        }
    }
}

/// bf16 weights, multiplied with rows rounded to bf16, two inputs at once.
pub(super) struct Dotted;

impl<L: Dots> LineProduct<L> for Dotted {
    /// Each number of a row holds a rounded pair.
    const INPUTS: usize = 1;

    #[inline(always)]
    fn accumulate<const M: usize>(lanes: L, line: &PanelLine, x: &[[f32; M]], sums: &mut [L::V; M]) {
        let w = lanes.pairs_of(line);
        for (sum, x) in sums.iter_mut().zip(&x[0]) {
            *sum = lanes.dot(*sum, w, x.to_bits());
        }
    }
}

/// Packs two numbers as bf16, the first in the low half; a missing second one is 0.
fn pair(numbers: &[f32]) -> f32 {
    let bits = |at: usize| numbers.get(at).map_or(0, |x| u32::from(bf16::from_f32(*x).to_bits()));
    f32::from_bits(bits(0) | bits(1) << 16)
}

/// Rows of x, rearranged for panels: consecutive tiles of `[depth x inputs per line][rows of the tile]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arranged {
    rows: usize,
    most_rows: usize,
    /// Inputs per row, padded to whole lines.
    inputs: usize,
    numbers: Vec<f32>,
    /// Rows instead of `numbers`, for products in integers.
    #[cfg(target_arch = "x86_64")]
    blocks: Vec<Block>,
}

impl Arranged {
    /// Rearranges the rows of x for an instruction set and these weights.
    pub fn fill(&mut self, x: &[f32], w: &Panels, set: InstructionSet) {
        (self.rows, self.most_rows) = (x.len() / w.inputs, set.most_rows(w));
        #[cfg(target_arch = "x86_64")]
        if set.with_digits(w).is_some() {
            self.blocks.clear();
            // SAFETY: the processor supports the instructions
            return unsafe { digits::arrange(x, &mut self.blocks) };
        }
        let rounds = set.rounds(w);
        self.inputs = if rounds { w.depth } else { w.format.padded(w.inputs) };
        self.numbers.clear();
        self.numbers.resize(self.rows * self.inputs, 0.0);
        for tile in 0..self.tiles() {
            let rows = self.rows_of(tile);
            let count = rows.len();
            let to = &mut self.numbers[rows.start * self.inputs..][..count * self.inputs];
            if rounds {
                for (at, row) in rows.enumerate() {
                    let x = &x[row * w.inputs..][..w.inputs];
                    for (to, x) in to.chunks_exact_mut(count).zip(x.chunks(2)) {
                        to[at] = pair(x);
                    }
                }
                continue;
            }
            if count == 1 {
                to[..w.inputs].copy_from_slice(&x[rows.start * w.inputs..][..w.inputs]);
                continue;
            }
            for (at, row) in rows.enumerate() {
                let x = &x[row * w.inputs..][..w.inputs];
                for (to, x) in to.chunks_exact_mut(count).zip(x) {
                    to[at] = *x;
                }
            }
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn tiles(&self) -> usize {
        self.rows.div_ceil(self.most_rows)
    }

    /// Row range of a tile; tiles differ by at most one row.
    pub(super) fn rows_of(&self, tile: usize) -> Range<usize> {
        let tiles = self.tiles();
        self.rows * tile / tiles..self.rows * (tile + 1) / tiles
    }

    /// Numbers of a tile for some lines of a panel.
    pub(super) fn part(&self, rows: &Range<usize>, lines: &Range<usize>, inputs: usize) -> &[f32] {
        let from = rows.start * self.inputs + lines.start * inputs * rows.len();
        &self.numbers[from..][..lines.len() * inputs * rows.len()]
    }
}

#[cfg(target_arch = "x86_64")]
impl Arranged {
    /// Blocks of a tile's rows, one row behind the other.
    pub(super) fn blocks(&self, rows: &Range<usize>) -> &[Block] {
        let each = self.blocks.len() / self.rows;
        &self.blocks[rows.start * each..rows.end * each]
    }
}

/// Destination of a product: `columns` numbers per row, starting with the first panel.
#[derive(Debug)]
pub struct ProductOutput<'a> {
    /// Output, `[rows, columns]`.
    pub y: &'a mut [f32],
    pub columns: usize,
}

impl ProductOutput<'_> {
    /// Place of some rows' sums of a panel, counted from the first.
    #[inline(always)]
    pub(super) fn sums(&mut self, rows: &Range<usize>, panel: usize, adds: bool) -> TileOutput<'_> {
        let (columns, column) = (self.columns, panel * PANEL_WIDTH);
        let y = &mut self.y[rows.start * columns + column..];
        TileOutput { y, columns, wide: PANEL_WIDTH.min(columns - column), adds }
    }
}

/// Product of arranged rows with some panels; outputs of the last panel beyond `columns` are dropped.
#[inline(always)]
pub(super) fn product<L: SimdLanes, U: LineProduct<L>>(
    lanes: L,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    mut onto: ProductOutput<'_>,
) {
    let tiles = x.tiles();
    // a single tile reads each panel once, so blocking is useless
    let block = if tiles == 1 { w.depth } else { LINES_PER_BLOCK };
    let blocks = w.depth.div_ceil(block.max(1));
    let group = ROWS_PER_GROUP.div_ceil(x.most_rows);
    for first_tile in (0..tiles).step_by(group) {
        let tiles = first_tile..(first_tile + group).min(tiles);
        // with few rows, read each panel from start to end; with many, keep x in the cache
        let (outer, inner) = if tiles.len() >= group.min(4) { (blocks, 1) } else { (1, blocks) };
        for outer in 0..outer {
            for panel in panels.clone() {
                for block_at in outer..outer + inner {
                    let lines = block_at * block..((block_at + 1) * block).min(w.depth);
                    let from = w.lines(panel, lines.clone());
                    for tile in tiles.clone() {
                        let rows = x.rows_of(tile);
                        let numbers = x.part(&rows, &lines, U::INPUTS);
                        let to = onto.sums(&rows, panel - panels.start, block_at > 0);
                        one_tile::<L, U>(lanes, from, numbers, rows.len(), to);
                    }
                }
            }
        }
    }
}

/// Destination of a tile's sums.
pub(super) struct TileOutput<'a> {
    pub y: &'a mut [f32],
    pub columns: usize,
    /// Number of outputs in the panel.
    pub wide: usize,
    /// True if sums are added to existing values.
    pub adds: bool,
}

impl TileOutput<'_> {
    /// Stores the panel's sums of row `m`.
    #[inline(always)]
    pub fn write<L: SimdLanes>(&mut self, lanes: L, m: usize, sum: L::V) {
        let row = &mut self.y[m * self.columns..][..self.wide];
        if let Some(whole) = row.first_chunk_mut::<PANEL_WIDTH>() {
            let sum = if self.adds { lanes.add(sum, lanes.load(whole)) } else { sum };
            lanes.store(sum, whole);
        } else {
            let mut numbers = [0.0; PANEL_WIDTH];
            lanes.store(sum, &mut numbers);
            for (y, number) in row.iter_mut().zip(numbers) {
                *y = if self.adds { *y + number } else { number };
            }
        }
    }
}

#[inline(always)]
fn one_tile<L: SimdLanes, U: LineProduct<L>>(
    lanes: L,
    lines: &[PanelLine],
    x: &[f32],
    rows: usize,
    to: TileOutput<'_>,
) {
    macro_rules! by_rows {
        ($($rows:literal in $chains:literal),*) => {
            match rows {
                $($rows => tile::<L, U, $rows, $chains>(lanes, lines, x, to),)*
                _ => unreachable!("a tile has up to sixteen rows"),
            }
        };
    }
    if (4..=L::TWO_SUMS).contains(&rows) {
        return by_rows!(4 in 2, 5 in 2, 6 in 2, 7 in 2, 8 in 2, 9 in 2, 10 in 2, 11 in 2, 12 in 2);
    }
    // few rows use several sums each, because a single chain would be bound by addition latency
    by_rows!(
        1 in 4, 2 in 2, 3 in 2, 4 in 1, 5 in 1, 6 in 1, 7 in 1, 8 in 1, 9 in 1, 10 in 1, 11 in 1, 12 in 1,
        13 in 1, 14 in 1, 15 in 1, 16 in 1
    );
}

/// Multiplies `M` rows with one panel, each product summed in `C` chains.
#[inline(always)]
fn tile<L: SimdLanes, U: LineProduct<L>, const M: usize, const C: usize>(
    lanes: L,
    lines: &[PanelLine],
    x: &[f32],
    mut to: TileOutput<'_>,
) {
    let x = x.as_chunks::<M>().0;
    let mut sums = [[lanes.zero(); M]; C];
    let (chunks, rest) = lines.as_chunks::<C>();
    let (of_chunks, of_rest) = x.split_at(chunks.len() * C * U::INPUTS);
    for (lines, x) in chunks.iter().zip(of_chunks.chunks_exact(C * U::INPUTS)) {
        for ((line, x), sums) in lines.iter().zip(x.chunks_exact(U::INPUTS)).zip(&mut sums) {
            lanes.prefetch(line);
            U::accumulate(lanes, line, x, sums);
        }
    }
    for (line, x) in rest.iter().zip(of_rest.chunks_exact(U::INPUTS)) {
        U::accumulate(lanes, line, x, &mut sums[0]);
    }
    for m in 0..M {
        let mut sum = sums[0][m];
        for chain in &sums[1..] {
            sum = lanes.add(sum, chain[m]);
        }
        to.write(lanes, m, sum);
    }
}
