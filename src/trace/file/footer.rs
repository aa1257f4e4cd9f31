//! Integrity check of the footer, before any parser sees its bytes.
//!
//! A Parquet file ends with its footer (Thrift), the footer's length and a magic number. Polars trusts
//! the lengths in a footer and allocates accordingly, so a flipped bit could abort the process. The seal
//! prevents that: a SHA-256 of the footer, stored in the footer itself and computed with zeros in its
//! place. A footer without a seal is from another program; then only the lengths are checked.

use std::io::{Read as _, Seek, SeekFrom};
use std::ops::Range;

use sha2::{Digest, Sha256};

use super::problem::{Problem, Read};
use base::hash::hex;

const MAGIC: &[u8] = b"PAR1";
/// Size of the footer's length field and the magic number after it.
const TAIL: usize = 8;
/// Prefix of the seal's 64 hex digits.
const SEAL: &str = "ladderscope.footer.sha256=";
const DIGITS: usize = 64;

#[derive(Debug)]
pub(super) struct FooterBytes {
    pub(super) start: u64,
    /// The footer and the 8 bytes after it.
    pub(super) bytes: Vec<u8>,
}

/// Footer entry that reserves space for the seal.
pub(super) fn unsealed() -> String {
    format!("{SEAL}{}", "0".repeat(DIGITS))
}

impl FooterBytes {
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

    /// Computes the seal; returns it with the file offset of its digits.
    pub(super) fn seal(&self) -> Option<(u64, String)> {
        let place = self.place()?;
        Some((self.start + place.start as u64, self.hash(&place)))
    }

    /// Returns an error if the seal does not match, or if there is none and the lengths are
    /// inconsistent.
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

    pub(super) fn is_sealed(&self) -> bool {
        self.place().is_some()
    }

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

const STRUCT: u8 = 12;

/// Skips a value of Thrift's compact protocol; `None` if it extends past the end.
fn skip(rest: &mut &[u8], kind: u8, depth: u32) -> Option<()> {
    // no footer is nested deeper
    if depth > 32 {
        return None;
    }
    match kind {
        // boolean fields carry their value in the type
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
            // each element takes at least one byte, so a larger size is invalid
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
        // footers contain no maps
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
