//! `y = x W^T` over panels of e2m1 numbers with powers of two (mxfp4), in integers, with AVX-512 VNNI and VBMI.
//!
//! Twice an e2m1 number is an integer, and 64 are looked up at once. 32 numbers of a row are integers times a power of
//! two, written as four digits of base 256, and one instruction multiplies a digit of four inputs with their weights
//! for sixteen outputs. Numbers above 1/64 of the largest of the 32 are exact, all others within 2^-30 of it, and sums
//! of 32 products are rounded once: errors are those of f32 or less, unless the largest number is thousands of times
//! the others and its weights are 0.
//!
//! Per line of 128 weights and one row: 1 shift, 2 look-ups, 8 products and a quarter of a block's 12 operations for
//! scales, instead of 23 and a quarter of 7 in f32.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::SimdLanes;
use super::panels::{LINE_SCALES, PanelLine, Panels};
use super::tile::{Arranged, ProductOutput, TileOutput};
use super::x86::Avx512;
use crate::mxfp4::{E2M1, MXFP4_BLOCK};

/// Most rows of a tile: sums of four digits each, and totals.
pub(super) const MOST_ROWS: usize = 4;

const BASE_SQUARED: f32 = 65536.0;

/// Added to twice a weight: one factor of a product is unsigned.
const OFFSET: i32 = 12;

#[repr(C, align(64))]
struct Bytes([u8; 64]);

/// [`OFFSET`] plus twice each e2m1 number, four times over: a look-up reads six bits of each index.
static WEIGHTS: Bytes = {
    let mut all = [0; 64];
    let mut at = 0;
    while at < 64 {
        all[at] = (OFFSET as f32 + 2.0 * E2M1[at % 16]) as u8;
        at += 1;
    }
    Bytes(all)
};

/// Places of the bytes of sixteen inputs' digits in [`Block::digits`].
static ORDER: Bytes = {
    let mut all = [0; 64];
    let mut at = 0;
    while at < 64 {
        let (group, digit, input) = (at / 16, at / 4 % 4, at % 4);
        all[at] = (4 * (group / 2 * 8 + 2 * input + group % 2) + digit) as u8;
        at += 1;
    }
    Bytes(all)
};

/// 32 numbers of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(super) struct Block {
    /// Four digits, lowest first, of each four inputs: the even ones of the first eight, the odd ones, and so on.
    digits: [[i32; 4]; MXFP4_BLOCK / 4],
    /// Initial sums of the lower and the upper two digits, which cancel [`OFFSET`].
    initial: [i32; 2],
    /// Half the value of 1 in the lowest digit; NaN if any number is not finite.
    scale: f32,
}

/// Appends rows of whole blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
pub(super) fn arrange(x: &[f32], blocks: &mut Vec<Block>) {
    blocks.extend(x.as_chunks().0.iter().map(|x| block(x)));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn block(x: &[f32; MXFP4_BLOCK]) -> Block {
    // SAFETY: 32 f32 are two vectors of the same size
    let bits: [__m512i; 2] = unsafe { std::mem::transmute::<[f32; MXFP4_BLOCK], [__m512i; 2]>(*x) };
    let mask = _mm512_set1_epi32(i32::MAX);
    let sizes = bits.map(|bits| _mm512_and_si512(bits, mask));
    // magnitudes are ordered like their bits, with infinity and NaN at the top
    let largest = _mm512_reduce_max_epi32(_mm512_max_epi32(sizes[0], sizes[1])) >> 23;
    let is_finite = largest < 0xFF;
    // below 2^30 in units of the lowest digit, whose scale is not subnormal
    let exponent = largest.clamp(32, 0xFE).cast_unsigned();
    let inverse = _mm512_set1_ps(f32::from_bits((283 - exponent) << 23));
    let mut sums = [0; 2];
    let digits = bits.map(|bits| {
        let number = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(bits), inverse));
        let half = _mm512_set1_epi32(0x8080);
        let low = _mm512_and_si512(_mm512_add_epi32(number, half), _mm512_set1_epi32(0xFFFF));
        let low = _mm512_sub_epi32(low, half);
        let high = _mm512_srai_epi32::<16>(_mm512_sub_epi32(number, low));
        sums[0] += _mm512_reduce_add_epi32(low);
        sums[1] += _mm512_reduce_add_epi32(high);
        // digits from 0 to 255 of the number plus 128 in each digit, less 128
        let each = _mm512_set1_epi32(0x8080_8080_u32.cast_signed());
        let digits = _mm512_xor_si512(_mm512_add_epi32(number, each), each);
        _mm512_permutexvar_epi8(load(&ORDER), digits)
    });
    Block {
        // SAFETY: two vectors are 32 i32 of the same size
        digits: unsafe { std::mem::transmute::<[__m512i; 2], [[i32; 4]; MXFP4_BLOCK / 4]>(digits) },
        initial: sums.map(|sum| -OFFSET * sum),
        scale: if is_finite { f32::from_bits((exponent - 30) << 23) } else { f32::NAN },
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load<T>(from: &T) -> __m512i {
    const { assert!(size_of::<T>() == 64 && align_of::<T>() == 64) }
    // SAFETY: 64 aligned bytes are read
    unsafe { _mm512_load_si512((&raw const *from).cast()) }
}

/// Product of rows in [`Block`]s with some panels; outputs of the last panel beyond `columns` are dropped.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
pub(super) fn product(
    lanes: Avx512,
    x: &Arranged,
    w: &Panels,
    panels: Range<usize>,
    mut onto: ProductOutput<'_>,
) {
    for panel in panels.clone() {
        let lines = w.scaled_lines(panel);
        for tile in 0..x.tiles() {
            let rows = x.rows_of(tile);
            let of_rows = x.blocks(&rows);
            let to = onto.sums(&rows, panel - panels.start, false);
            match rows.len() {
                1 => multiply::<1>(lanes, lines, of_rows, to),
                2 => multiply::<2>(lanes, lines, of_rows, to),
                3 => multiply::<3>(lanes, lines, of_rows, to),
                _ => multiply::<MOST_ROWS>(lanes, lines, of_rows, to),
            }
        }
    }
}

/// Multiplies `M` rows, one behind the other, with one panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn multiply<const M: usize>(
    lanes: Avx512,
    [scales, numbers]: [&[PanelLine]; 2],
    x: &[Block],
    mut to: TileOutput<'_>,
) {
    let blocks = numbers.as_chunks::<4>().0;
    let rows: [&[Block]; M] = std::array::from_fn(|m| &x[m * blocks.len()..][..blocks.len()]);
    let table = load(&WEIGHTS);
    let mut totals = [_mm512_setzero_ps(); M];
    for (at, lines) in blocks.iter().enumerate() {
        let x = rows.map(|row| &row[at]);
        // before the products: a possible panic between them and their use keeps loads from being operands of theirs
        let scale = lanes.powers(&scales[at / LINE_SCALES], at % LINE_SCALES);
        let zero = _mm512_setzero_si512();
        let mut sums =
            x.map(|x| [_mm512_set1_epi32(x.initial[0]), zero, _mm512_set1_epi32(x.initial[1]), zero]);
        for (eight, line) in lines.iter().enumerate() {
            lanes.prefetch(line);
            let line = load(line);
            let even = _mm512_permutexvar_epi8(line, table);
            let odd = _mm512_permutexvar_epi8(_mm512_srli_epi32::<4>(line), table);
            for (half, w) in [even, odd].into_iter().enumerate() {
                for (sums, x) in sums.iter_mut().zip(x) {
                    for (sum, digit) in sums.iter_mut().zip(&x.digits[2 * eight + half]) {
                        *sum = _mm512_dpbusd_epi32(*sum, w, _mm512_set1_epi32(*digit));
                    }
                }
            }
        }
        for (total, (sums, x)) in totals.iter_mut().zip(sums.into_iter().zip(x)) {
            // two digits fit into 24 bits, so that only their sum is rounded
            let [low, high] = [[sums[0], sums[1]], [sums[2], sums[3]]].map(|[lower, upper]| {
                _mm512_cvtepi32_ps(_mm512_add_epi32(lower, _mm512_slli_epi32::<8>(upper)))
            });
            let sum = _mm512_fmadd_ps(high, _mm512_set1_ps(BASE_SQUARED), low);
            *total = _mm512_fmadd_ps(_mm512_mul_ps(sum, _mm512_set1_ps(x.scale)), scale, *total);
        }
    }
    for (m, total) in totals.into_iter().enumerate() {
        to.write(lanes, m, total);
    }
}
