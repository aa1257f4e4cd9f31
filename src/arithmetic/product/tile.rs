//! `y = x W^T` over panels, for any instruction set: up to `most_rows` rows of x against one panel are summed in
//! registers; x is rearranged so that the numbers of these rows for one input lie side by side.

use std::ops::Range;

use half::bf16;

use super::InstructionSet;
use super::lanes::{Dots, Lanes};
use super::panels::{Line, Panels, WIDE};

/// Lines of a panel that several tiles of rows share while they are in the first-level cache: 16 KB.
const BLOCK: usize = 256;

/// Rows of x that are multiplied with all panels before the next: with a block of inputs
/// they stay in the second-level cache.
const MANY: usize = 512;

/// How many lines ahead a panel is asked for; measured. Many rows take long for a line, and
/// the processor's own prefetching sleeps meanwhile.
const fn ahead(rows: usize) -> usize {
    if rows < 8 { 8 } else { 32 }
}

/// How a line of weights meets rows of x.
pub(super) trait Unit<L: Lanes> {
    /// Inputs of a line: so many numbers of each row meet it.
    const INPUTS: usize;

    /// Adds the products of a line with `x[input][row]` to the sums of the rows.
    fn accumulate<const M: usize>(lanes: L, line: &Line, x: &[[f32; M]], sums: &mut [L::V; M]);
}

/// Weights in f32, multiplied as they are stored.
pub(super) struct Single;

impl<L: Lanes> Unit<L> for Single {
    const INPUTS: usize = 1;

    #[inline(always)]
    fn accumulate<const M: usize>(lanes: L, line: &Line, x: &[[f32; M]], sums: &mut [L::V; M]) {
        let w = lanes.line(line);
        for (sum, x) in sums.iter_mut().zip(&x[0]) {
            *sum = lanes.multiply_add(*sum, w, *x);
        }
    }
}

/// Weights in bf16, widened in registers.
pub(super) struct Widened;

impl<L: Lanes> Unit<L> for Widened {
    const INPUTS: usize = 2;

    #[inline(always)]
    fn accumulate<const M: usize>(lanes: L, line: &Line, x: &[[f32; M]], sums: &mut [L::V; M]) {
        let [first, second] = lanes.pairs(line);
        for (sum, x) in sums.iter_mut().zip(&x[0]) {
            *sum = lanes.multiply_add(*sum, first, *x);
        }
        for (sum, x) in sums.iter_mut().zip(&x[1]) {
            *sum = lanes.multiply_add(*sum, second, *x);
        }
    }
}

/// Weights in bf16, multiplied with rows that are rounded to bf16, two inputs at once.
pub(super) struct Dotted;

impl<L: Dots> Unit<L> for Dotted {
    /// Each number of a row stands for two, rounded.
    const INPUTS: usize = 1;

    #[inline(always)]
    fn accumulate<const M: usize>(lanes: L, line: &Line, x: &[[f32; M]], sums: &mut [L::V; M]) {
        let w = lanes.pairs_of(line);
        for (sum, x) in sums.iter_mut().zip(&x[0]) {
            *sum = lanes.dot(*sum, w, x.to_bits());
        }
    }
}

/// The bits of two numbers as bf16, the first in the low half; of one alone the other is 0.
fn pair(numbers: &[f32]) -> f32 {
    let bits = |at: usize| numbers.get(at).map_or(0, |x| u32::from(bf16::from_f32(*x).to_bits()));
    f32::from_bits(bits(0) | bits(1) << 16)
}

/// Rows of x, rearranged for panels: tiles of rows one after the other, `[depth x inputs of a line][rows of the tile]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arranged {
    rows: usize,
    most_rows: usize,
    /// Inputs of a row, padded to whole lines.
    inputs: usize,
    numbers: Vec<f32>,
}

impl Arranged {
    /// Takes in the rows of x, as the instruction set multiplies them with these weights.
    pub fn fill(&mut self, x: &[f32], w: &Panels, set: InstructionSet) {
        (self.rows, self.most_rows) = (x.len() / w.inputs, set.most_rows(w));
        let rounds = set.rounds(w);
        self.inputs = w.depth * if rounds { 1 } else { w.format.inputs() };
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

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(self.most_rows)
    }

    /// Tiles differ by one row at most.
    fn rows_of(&self, tile: usize) -> Range<usize> {
        let tiles = self.tiles();
        self.rows * tile / tiles..self.rows * (tile + 1) / tiles
    }

    /// The numbers of a tile that meet some lines of a panel.
    fn part(&self, rows: &Range<usize>, lines: &Range<usize>, inputs: usize) -> &[f32] {
        let from = rows.start * self.inputs + lines.start * inputs * rows.len();
        &self.numbers[from..][..lines.len() * inputs * rows.len()]
    }
}

/// Where a product goes: `columns` numbers a row, of which the first is of the first panel.
#[derive(Debug)]
pub struct Onto<'a> {
    /// The numbers, `[rows, columns]`.
    pub y: &'a mut [f32],
    /// Numbers of a row.
    pub columns: usize,
}

/// The product of arranged rows with some panels; what of the last panel is beyond `columns` is dropped.
#[inline(always)]
pub(super) fn product<L: Lanes, U: Unit<L>>(
    lanes: L,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    onto: Onto<'_>,
) {
    let Onto { y, columns } = onto;
    let tiles = x.tiles();
    // one tile reads a panel once: no need to divide it
    let block = if tiles == 1 { w.depth } else { BLOCK };
    let blocks = w.depth.div_ceil(block.max(1));
    let group = MANY.div_ceil(x.most_rows);
    for first_tile in (0..tiles).step_by(group) {
        let tiles = first_tile..(first_tile + group).min(tiles);
        // few rows read a panel from its beginning to its end; many leave x in the cache
        let (outer, inner) = if tiles.len() >= group.min(4) { (blocks, 1) } else { (1, blocks) };
        for outer in 0..outer {
            for panel in panels.clone() {
                for block_at in outer..outer + inner {
                    let lines = block_at * block..((block_at + 1) * block).min(w.depth);
                    let from = w.lines(panel, lines.clone());
                    for tile in tiles.clone() {
                        let rows = x.rows_of(tile);
                        let numbers = x.part(&rows, &lines, U::INPUTS);
                        let column = (panel - panels.start) * WIDE;
                        let wide = WIDE.min(columns - column);
                        let y = &mut y[rows.start * columns + column..];
                        let to = To { y, columns, wide, adds: block_at > 0 };
                        one_tile::<L, U>(lanes, from, numbers, rows.len(), to);
                    }
                }
            }
        }
    }
}

/// Where a tile's sums go.
struct To<'a> {
    y: &'a mut [f32],
    columns: usize,
    /// How many of the panel's outputs there are.
    wide: usize,
    /// Whether they are added to what is there.
    adds: bool,
}

#[inline(always)]
fn one_tile<L: Lanes, U: Unit<L>>(lanes: L, lines: &[Line], x: &[f32], rows: usize, to: To<'_>) {
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
    // few rows have several sums each: one alone would wait for the adder's latency
    by_rows!(
        1 in 4, 2 in 2, 3 in 2, 4 in 1, 5 in 1, 6 in 1, 7 in 1, 8 in 1, 9 in 1, 10 in 1, 11 in 1, 12 in 1,
        13 in 1, 14 in 1, 15 in 1, 16 in 1
    );
}

/// `M` rows by one panel, each product summed in `C` chains.
#[inline(always)]
fn tile<L: Lanes, U: Unit<L>, const M: usize, const C: usize>(
    lanes: L,
    lines: &[Line],
    x: &[f32],
    to: To<'_>,
) {
    let x = x.as_chunks::<M>().0;
    let mut sums = [[lanes.zero(); M]; C];
    let (chunks, rest) = lines.as_chunks::<C>();
    let (of_chunks, of_rest) = x.split_at(chunks.len() * C * U::INPUTS);
    for (lines, x) in chunks.iter().zip(of_chunks.chunks_exact(C * U::INPUTS)) {
        for ((line, x), sums) in lines.iter().zip(x.chunks_exact(U::INPUTS)).zip(&mut sums) {
            lanes.prefetch((&raw const *line).wrapping_add(ahead(M)));
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
        let row = &mut to.y[m * to.columns..][..to.wide];
        if let Some(whole) = row.first_chunk_mut::<WIDE>() {
            let sum = if to.adds { lanes.add(sum, lanes.load(whole)) } else { sum };
            lanes.store(sum, whole);
        } else {
            let mut numbers = [0.0; WIDE];
            lanes.store(sum, &mut numbers);
            for (y, number) in row.iter_mut().zip(numbers) {
                *y = if to.adds { *y + number } else { number };
            }
        }
    }
}
