//! Sixel encoding: bands of six rows, painted one palette colour after the other. (VT330/VT340
//! Programmer Reference Manual, volume 2, chapter 14)

use std::collections::HashMap;
use std::fmt::Write;

use foldhash::fast::FixedState;

use study::plot::Pixels;

/// Palette size that terminals commonly support.
const COLORS: usize = 256;

/// Rows of a band: a character has one bit for each.
const BAND: usize = 6;

/// Encodes pixels as Sixel; pixels of colour `clear` are left unpainted.
///
/// Costs a few passes over the pixels, plus one pass over the width for each colour in each band.
pub fn encode_sixel(pixels: &Pixels, clear: Option<[u8; 3]>) -> String {
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let (colors, indices) = palette(pixels.rgb.as_chunks().0, clear);
    // P2=1 leaves unpainted pixels alone; square pixels
    let mut sequence = format!("\x1bP0;1;0q\"1;1;{width};{height}");
    for (index, color) in colors.iter().enumerate() {
        let [r, g, b] = color.map(|part| (u32::from(part) * 100 + 127) / 255);
        write!(sequence, "#{index};2;{r};{g};{b}").expect("strings take any text");
    }
    // six-row bit columns, one buffer per colour
    let mut bits = vec![vec![0u8; width]; colors.len()];
    let mut used = vec![false; colors.len()];
    for band in indices.chunks(width * BAND) {
        for (row, indices) in band.chunks(width).enumerate() {
            for (column, index) in indices.iter().enumerate() {
                if let Some(index) = index {
                    let index = usize::from(*index);
                    bits[index][column] |= 1 << row;
                    used[index] = true;
                }
            }
        }
        for (index, bits) in bits.iter_mut().enumerate() {
            if std::mem::take(&mut used[index]) {
                write!(sequence, "#{index}").expect("strings take any text");
                run_lengths(bits, &mut sequence);
                sequence.push('$');
                bits.fill(0);
            }
        }
        sequence.push('-');
    }
    sequence + "\x1b\\"
}

/// Run-length encodes one colour of a band, dropping trailing empty columns.
fn run_lengths(bits: &[u8], sequence: &mut String) {
    let painted = bits.iter().rposition(|bits| *bits != 0).map_or(0, |last| last + 1);
    for run in bits[..painted].chunk_by(|a, b| a == b) {
        let sixel = char::from(b'?' + run[0]);
        if run.len() > 3 {
            write!(sequence, "!{}{sixel}", run.len()).expect("strings take any text");
        } else {
            sequence.extend(run.iter().map(|_| sixel));
        }
    }
}

/// Colours, and the colour index of each pixel.
type Palette = (Vec<[u8; 3]>, Vec<Option<u8>>);

/// Palette of the pixels: exact if it fits, else quantized to as many high bits as fit.
fn palette(rgb: &[[u8; 3]], clear: Option<[u8; 3]>) -> Palette {
    // two bits per channel give 64 colours, which always fit
    (2..=8).rev().find_map(|kept| by_bits(rgb, clear, kept)).unwrap_or_default()
}

/// Palette by the `kept` high bits of each channel, if it fits. Each entry is the mean of its pixels.
fn by_bits(rgb: &[[u8; 3]], clear: Option<[u8; 3]>, kept: u8) -> Option<Palette> {
    let mut found: HashMap<[u8; 3], u8, FixedState> = HashMap::default();
    let mut sums: Vec<([u64; 3], u64)> = Vec::new();
    let mut indices = Vec::with_capacity(rgb.len());
    for pixel in rgb {
        if Some(*pixel) == clear {
            indices.push(None);
            continue;
        }
        let key = pixel.map(|part| part >> (8 - kept));
        let index = match found.get(&key) {
            Some(index) => *index,
            None if sums.len() == COLORS => return None,
            None => {
                let index = sums.len() as u8;
                sums.push(([0; 3], 0));
                found.insert(key, index);
                index
            }
        };
        let (sum, count) = &mut sums[usize::from(index)];
        sum.iter_mut().zip(pixel).for_each(|(sum, part)| *sum += u64::from(*part));
        *count += 1;
        indices.push(Some(index));
    }
    let mean = |(sum, count): &([u64; 3], u64)| sum.map(|sum| ((sum + count / 2) / count) as u8);
    Some((sums.iter().map(mean).collect(), indices))
}
