//! The footer's bytes, checked before any parser sees them.
//!
//! A Parquet file ends with its footer (Thrift), the footer's length and a magic. Polars believes the
//! lengths that stand in a footer and allocates accordingly, so a flipped bit could end the process.
//! Hence the seal: a SHA-256 of the footer that stands in the footer itself, computed with zeros in its
//! place. A footer without a seal is somebody else's; of those, the lengths are checked.

use std::io::{Read as _, Seek, SeekFrom};
use std::ops::Range;

use sha2::{Digest, Sha256};

use super::problem::{Problem, Read};
use base::hash::hex;

/// What begins and ends every Parquet file.
const MAGIC: &[u8] = b"PAR1";
/// Length of the footer's length and the magic behind it.
const TAIL: usize = 8;
/// What stands before the seal's 64 hex digits.
const SEAL: &str = "ladderscope.footer.sha256=";
const DIGITS: usize = 64;

/// A file's footer as bytes, of which the length and the seal are checked.
#[derive(Debug)]
pub(super) struct FooterBytes {
    /// Where it begins: what lies before is data.
    pub(super) start: u64,
    /// The footer and the 8 bytes behind it.
    pub(super) bytes: Vec<u8>,
}

/// The value of the footer's entry that becomes the seal.
pub(super) fn unsealed() -> String {
    format!("{SEAL}{}", "0".repeat(DIGITS))
}

impl FooterBytes {
    /// Finds the footer of what looks like a Parquet file.
    pub(super) fn locate<R: std::io::Read + Seek>(source: &mut R) -> Read<Self> {
        let length = source.seek(SeekFrom::End(0))?;
        source.rewind()?;
        let mut head = Vec::new();
        source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
        if head != MAGIC {
            let shown: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Problem::Foreign(match shown.join(" ").as_str() {
                "" => "it is empty".into(),
                shown => {
                    format!("it begins with the bytes {shown}, Parquet files with 50 41 52 31 (PAR1)")
                }
            }));
        }
        let cut = || Problem::Damaged("it is cut off: the footer at its end is missing".into());
        let end =
            length.checked_sub(TAIL as u64).filter(|end| *end >= MAGIC.len() as u64).ok_or_else(cut)?;
        let mut tail = [0; TAIL];
        source.seek(SeekFrom::Start(end))?;
        source.read_exact(&mut tail)?;
        let [a, b, c, d, magic @ ..] = tail;
        if magic != *MAGIC {
            return Err(cut());
        }
        let claimed = u32::from_le_bytes([a, b, c, d]);
        let start = end.checked_sub(u64::from(claimed)).filter(|start| *start >= MAGIC.len() as u64);
        let Some(start) = start else {
            return Err(Problem::Damaged(format!(
                "its last 8 bytes speak of a footer of {claimed} bytes, but the file has {length}"
            )));
        };
        let mut bytes = Vec::new();
        source.seek(SeekFrom::Start(start))?;
        source.read_to_end(&mut bytes)?;
        source.rewind()?;
        Ok(Self { start, bytes })
    }

    /// The seal that this footer should have, and where its digits stand in the file.
    pub(super) fn seal(&self) -> Option<(u64, String)> {
        let place = self.place()?;
        Some((self.start + place.start as u64, self.hash(&place)))
    }

    /// An error if this footer's seal is broken, or if it has none and its lengths make no sense.
    pub(super) fn check(&self) -> Read<()> {
        let sound = match self.place() {
            Some(place) => self.hash(&place).as_bytes() == &self.bytes[place],
            None => {
                let mut rest = &self.bytes[..self.bytes.len().saturating_sub(TAIL)];
                skip(&mut rest, STRUCT, 0).is_some()
            }
        };
        if sound {
            return Ok(());
        }
        Err(Problem::Damaged("its footer is not what was written".into()))
    }

    /// Whether this footer has a seal.
    pub(super) fn is_sealed(&self) -> bool {
        self.place().is_some()
    }

    /// Where the seal's digits are.
    fn place(&self) -> Option<Range<usize>> {
        let at = self.bytes.windows(SEAL.len()).rposition(|window| window == SEAL.as_bytes())?;
        let digits = at + SEAL.len()..at + SEAL.len() + DIGITS;
        (digits.end <= self.bytes.len()).then_some(digits)
    }

    fn hash(&self, place: &Range<usize>) -> String {
        let hash = Sha256::new()
            .chain_update(&self.bytes[..place.start])
            .chain_update([b'0'; DIGITS])
            .chain_update(&self.bytes[place.end..]);
        hex(hash.finalize())
    }
}

/// Types of Thrift's compact protocol that are of interest here.
const STRUCT: u8 = 12;

/// Skips a value of Thrift's compact protocol; `None` where it does not fit into what is there.
fn skip(rest: &mut &[u8], kind: u8, depth: u32) -> Option<()> {
    // deeper than any footer is nested
    if depth > 32 {
        return None;
    }
    match kind {
        // booleans as fields have their value in the type
        1 | 2 => Some(()),
        3 => bytes(rest, 1),
        4..=6 => varint(rest).map(|_| ()),
        7 => bytes(rest, 8),
        8 => {
            let length = varint(rest)?;
            bytes(rest, length)
        }
        9 | 10 => {
            let header = byte(rest)?;
            let size = if header >> 4 == 15 { varint(rest)? } else { u64::from(header >> 4) };
            // every element takes a byte at least: what claims more claims too much
            if size > rest.len() as u64 {
                return None;
            }
            let element = header & 15;
            (0..size).try_for_each(|_| match element {
                1 | 2 => bytes(rest, 1),
                _ => skip(rest, element, depth + 1),
            })
        }
        STRUCT => loop {
            let header = byte(rest)?;
            if header == 0 {
                return Some(());
            }
            if header >> 4 == 0 {
                varint(rest)?;
            }
            skip(rest, header & 15, depth + 1)?;
        },
        // maps: footers have none
        _ => None,
    }
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    Some(*first)
}

fn bytes(rest: &mut &[u8], count: u64) -> Option<()> {
    *rest = rest.get(usize::try_from(count).ok()?..)?;
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(rest)?;
        value |= u64::from(next & 127) << shift;
        if next < 128 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thrift_lengths_that_exceed_what_is_there_are_found() {
        let fits = |mut rest: &[u8]| skip(&mut rest, STRUCT, 0).is_some() && rest.is_empty();
        // a string of 2 bytes, then a list of 3 32-bit numbers
        assert!(fits(&[0x18, 2, b'a', b'b', 0x19, 0x35, 1, 2, 3, 0]));
        assert!(!fits(&[0x18, 200, 1, b'a', b'b', 0]));
        assert!(!fits(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3, 0]));
        assert!(!fits(&[0x18, 2, b'a', b'b']), "no end");
        assert!(!fits(&[0x1c; 100]), "nested too deep");
    }

    #[test]
    fn a_seal_holds_until_anything_changes() {
        let mut footer =
            FooterBytes { start: 100, bytes: format!("xx{}yyyyyyyyyy", unsealed()).into_bytes() };
        let (at, digits) = footer.seal().unwrap();
        assert_eq!(at, 100 + 2 + SEAL.len() as u64);
        assert!(footer.check().is_err());
        let from = (at - 100) as usize;
        footer.bytes[from..from + DIGITS].copy_from_slice(digits.as_bytes());
        footer.check().unwrap();
        for at in [0, from, footer.bytes.len() - 1] {
            footer.bytes[at] ^= 1;
            assert!(footer.check().is_err(), "byte {at}");
            footer.bytes[at] ^= 1;
        }
    }
}
