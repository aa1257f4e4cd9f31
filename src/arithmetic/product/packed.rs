//! `y = x W^T` over panels of e2m1 numbers with powers of two (mxfp4), for any instruction set.
//!
//! A panel has 4.25 bits a weight. Per line of 128 weights and one row, AVX-512 needs 7 shifts, 8 look-ups, 8 FMAs and a
//! part of a block's 3 operations for scales: by count (not measured) about 12 cycles on two ports for 64 bytes.

use std::ops::Range;

use super::lanes::SimdLanes;
use super::panels::{LINE_SCALES, MXFP4_LINE_INPUTS, PanelLine, Panels};
use super::tile::{Arranged, ProductOutput, TileOutput};
use crate::mxfp4::MXFP4_BLOCK;

/// Product of arranged rows with some panels; outputs of the last panel beyond `columns` are dropped.
#[inline(always)]
pub(super) fn product<L: SimdLanes>(
    lanes: L,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    mut onto: ProductOutput<'_>,
) {
    for panel in panels.clone() {
        let lines = w.scaled_lines(panel);
        for tile in 0..x.tiles() {
            let rows = x.rows_of(tile);
            let of_rows = x.part(&rows, &(0..w.inputs), 1);
            let to = onto.sums(&rows, panel - panels.start, false);
            match rows.len() {
                1 => multiply::<L, 1, 4>(lanes, lines, of_rows, to),
                2 => multiply::<L, 2, 2>(lanes, lines, of_rows, to),
                3 => multiply::<L, 3, 2>(lanes, lines, of_rows, to),
                4 => multiply::<L, 4, 1>(lanes, lines, of_rows, to),
                5 => multiply::<L, 5, 1>(lanes, lines, of_rows, to),
                6 => multiply::<L, 6, 1>(lanes, lines, of_rows, to),
                7 => multiply::<L, 7, 1>(lanes, lines, of_rows, to),
                8 => multiply::<L, 8, 1>(lanes, lines, of_rows, to),
                _ => unreachable!("a tile has up to eight rows"),
            }
        }
    }
}

/// Multiplies `M` rows with one panel, the products of a block summed in `C` chains.
#[inline(always)]
fn multiply<L: SimdLanes, const M: usize, const C: usize>(
    lanes: L,
    [scales, numbers]: [&[PanelLine]; 2],
    x: &[f32],
    mut to: TileOutput<'_>,
) {
    let mut totals = [lanes.zero(); M];
    let blocks = numbers.as_chunks::<{ MXFP4_BLOCK / MXFP4_LINE_INPUTS }>().0.iter();
    let blocks = blocks.zip(x.as_chunks::<M>().0.as_chunks::<MXFP4_BLOCK>().0);
    for (block, (numbers, x)) in blocks.enumerate() {
        let mut sums = [[lanes.zero(); M]; C];
        for (line, x) in numbers.iter().zip(x.as_chunks::<MXFP4_LINE_INPUTS>().0) {
            lanes.prefetch(line);
            for (at, (w, x)) in lanes.e2m1(line).into_iter().zip(x).enumerate() {
                for (sum, x) in sums[at % C].iter_mut().zip(x) {
                    *sum = lanes.multiply_add(*sum, w, *x);
                }
            }
        }
        let scale = lanes.powers(&scales[block / LINE_SCALES], block % LINE_SCALES);
        for (m, total) in totals.iter_mut().enumerate() {
            let rest = sums[1..].iter().map(|chain| chain[m]);
            let sum = rest.fold(sums[0][m], |sum, chain| lanes.add(sum, chain));
            *total = lanes.multiply_add_each(*total, scale, sum);
        }
    }
    for (m, total) in totals.into_iter().enumerate() {
        to.write(lanes, m, total);
    }
}
