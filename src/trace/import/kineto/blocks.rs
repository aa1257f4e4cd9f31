//! SIMD scan for JSON brackets, 64 bytes at a time. Four bit masks mark quotes, backslashes and
//! brackets; the masks give the positions inside strings without a branch per byte.
//!
//! `{` and `[` differ in one bit, as do `}` and `]`, so two comparisons find all four. The scan does not
//! check that brackets match: depth is enough to find the end of an event.

use wide::{CmpEq, i8x16};

/// Bytes per block: the number of bits in a mask.
pub(super) const BLOCK: usize = 64;

/// One bit per byte of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Masks {
    quote: u64,
    backslash: u64,
    open: u64,
    close: u64,
}

#[inline(always)]
fn masks(block: &[u8; BLOCK]) -> Masks {
    let mut masks = Masks::default();
    for part in 0..BLOCK / 16 {
        let mut bytes = [0u8; 16];
        bytes.copy_from_slice(&block[part * 16..part * 16 + 16]);
        let bytes: i8x16 = bytemuck::cast(bytes);
        let mask = |bytes: i8x16, byte: u8| {
            let equal = bytes.cmp_eq(i8x16::splat(byte as i8)).move_mask();
            u64::from(equal as u16) << (part * 16)
        };
        let folded = bytes | i8x16::splat(0x20);
        masks.quote |= mask(bytes, b'"');
        masks.backslash |= mask(bytes, b'\\');
        masks.open |= mask(folded, b'{');
        masks.close |= mask(folded, b'}');
    }
    masks
}

/// String state between two blocks. `inside` is all ones within a string; `escape` is true after a
/// backslash.
#[derive(Clone, Copy, Debug, Default)]
struct Strings {
    inside: u64,
    escape: bool,
}

impl Strings {
    /// Opening and closing brackets outside strings. Only the first `valid` bytes count.
    #[inline(always)]
    fn brackets(&mut self, block: &[u8; BLOCK], valid: usize) -> (u64, u64) {
        let masks = masks(block);
        let mut quotes = masks.quote;
        if masks.backslash != 0 || self.escape {
            quotes &= !self.escaped(masks.backslash, valid);
        }
        let inside = running_xor(quotes) ^ self.inside;
        self.inside = ((inside as i64) >> 63) as u64;
        (masks.open & !inside, masks.close & !inside)
    }

    #[cold]
    fn escaped(&mut self, mut backslash: u64, valid: usize) -> u64 {
        let mut escaped = u64::from(self.escape);
        backslash &= !escaped;
        let mut carry = false;
        while backslash != 0 {
            let at = backslash.trailing_zeros();
            carry = at as usize + 1 == valid;
            escaped |= (1u64 << at) << 1;
            backslash &= !(3u64 << at);
        }
        // an empty block keeps the state
        self.escape = if valid == 0 { self.escape } else { carry };
        escaped
    }
}

/// Prefix XOR: bit i is the parity of bits 0 to i, so it is set between an odd and an even quote.
#[inline(always)]
fn running_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Block at `from`, padded with spaces, and its number of valid bytes.
#[inline(always)]
fn block_at(bytes: &[u8], from: usize) -> ([u8; BLOCK], usize) {
    let rest = &bytes[from..];
    if let Some(block) = rest.first_chunk::<BLOCK>() {
        return (*block, BLOCK);
    }
    let mut block = [b' '; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    (block, rest.len())
}

/// Position after the bracket that closes `depth` levels, counted from `from`, which must be outside
/// strings. `None` if the bytes end first.
pub(super) fn after_close(bytes: &[u8], from: usize, depth: u32) -> Option<usize> {
    let mut strings = Strings::default();
    let mut depth = u64::from(depth);
    let mut at = from.min(bytes.len());
    while at < bytes.len() {
        let (block, valid) = block_at(bytes, at);
        let (open, close) = strings.brackets(&block, valid);
        if u64::from(close.count_ones()) < depth {
            depth = depth + u64::from(open.count_ones()) - u64::from(close.count_ones());
        } else {
            let mut both = open | close;
            while both != 0 {
                let bit = both & both.wrapping_neg();
                both ^= bit;
                if open & bit != 0 {
                    depth += 1;
                } else {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(at + bit.trailing_zeros() as usize + 1);
                    }
                }
            }
        }
        at += BLOCK;
    }
    None
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elements {
    strings: Strings,
    depth: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ElementEnds {
    /// Position after the last complete object or array that ends in the piece.
    pub(super) complete: Option<usize>,
    /// Position of the array's closing bracket, if the piece contains it.
    pub(super) end: Option<usize>,
}

impl Elements {
    pub(super) fn is_inside(&self) -> bool {
        self.depth > 0 || self.strings.inside != 0
    }

    pub(super) fn scan(&mut self, bytes: &[u8], from: usize) -> ElementEnds {
        let mut found = ElementEnds::default();
        let (mut strings, mut depth) = (self.strings, self.depth);
        let mut at = from;
        while at < bytes.len() {
            let (block, valid) = block_at(bytes, at);
            let (open, close) = strings.brackets(&block, valid);
            let closes = u64::from(close.count_ones());
            if closes < depth || open | close == 0 {
                depth = depth + u64::from(open.count_ones()) - closes;
            } else {
                let mut both = open | close;
                while both != 0 {
                    let bit = both & both.wrapping_neg();
                    both ^= bit;
                    let place = at + bit.trailing_zeros() as usize;
                    if open & bit != 0 {
                        depth += 1;
                    } else if depth == 0 {
                        found.end = Some(place);
                        return found;
                    } else {
                        depth -= 1;
                        if depth == 0 {
                            found.complete = Some(place + 1);
                        }
                    }
                }
            }
            at += BLOCK;
        }
        (self.strings, self.depth) = (strings, depth);
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain_masks(block: &[u8; BLOCK]) -> Masks {
        let mut masks = Masks::default();
        for (at, byte) in block.iter().enumerate() {
            masks.quote |= u64::from(*byte == b'"') << at;
            masks.backslash |= u64::from(*byte == b'\\') << at;
            masks.open |= u64::from(byte | 0x20 == b'{') << at;
            masks.close |= u64::from(byte | 0x20 == b'}') << at;
        }
        masks
    }

    /// Byte by byte, as one would write it first.
    fn plain_after_close(bytes: &[u8], from: usize, mut depth: u32) -> Option<usize> {
        let (mut inside, mut escape) = (false, false);
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            // a backslash keeps a quote from ending a string; outside strings it has no business
            let escaped = std::mem::take(&mut escape);
            match byte {
                b'\\' => escape = !escaped,
                b'"' => inside ^= !escaped,
                b'{' | b'[' if !inside => depth += 1,
                b'}' | b']' if !inside => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn brackety() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(br#""""\\{{[}]}  ab"#.to_vec());
        prop::collection::vec(byte, 0..300)
    }

    proptest! {
        #[test]
        fn masks_are_those_found_byte_by_byte(block in any::<[u8; 32]>(), other in any::<[u8; 32]>()) {
            let mut bytes = [0; BLOCK];
            bytes[..32].copy_from_slice(&block);
            bytes[32..].copy_from_slice(&other);
            prop_assert_eq!(masks(&bytes), plain_masks(&bytes));
        }

        #[test]
        fn the_closing_bracket_is_the_one_found_byte_by_byte(bytes in brackety(), depth in 1..4u32) {
            prop_assert_eq!(after_close(&bytes, 0, depth), plain_after_close(&bytes, 0, depth));
        }

        #[test]
        fn pieces_of_any_size_find_the_same_ends(bytes in brackety(), cut in 0..300usize) {
            let cut = cut.min(bytes.len());
            let whole = Elements::default().scan(&bytes, 0);
            let mut scan = Elements::default();
            let first = scan.scan(&bytes[..cut], 0);
            let parts = match first.end {
                Some(_) => first,
                None => {
                    let second = scan.scan(&bytes, cut);
                    ElementEnds { complete: second.complete.or(first.complete), end: second.end }
                }
            };
            prop_assert_eq!(parts, whole);
        }
    }
}
