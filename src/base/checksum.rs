//! Checksums and short keys (SHA-256).

use std::io::{self, Read};
use std::ops::Range;

use sha2::{Digest, Sha256};

const SHA256_DIGITS: usize = 64;
const ZEROS: [u8; SHA256_DIGITS] = [b'0'; SHA256_DIGITS];

/// Place of a file format's checksum.
#[derive(Clone, Copy, Debug)]
pub struct Checksum {
    /// Text before the digits. The last one in a file counts.
    pub mark: &'static str,
    /// True if the digits count as zeros, false if they are left out.
    pub zeroed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Intact,
    /// Changed after it was written.
    Changed,
    /// The file has no checksum.
    Missing,
}

impl Checksum {
    /// Mark and zeros, to write where [`Checksum::fill`] puts the digits.
    pub fn blank(&self) -> String {
        format!("{}{}", self.mark, "0".repeat(SHA256_DIGITS))
    }

    /// Computes the digits and puts them in their place. Returns false if there is none.
    pub fn fill(&self, bytes: &mut [u8]) -> bool {
        let Some(place) = self.place(bytes) else { return false };
        let digits = self.digits(bytes, &place);
        bytes[place].copy_from_slice(digits.as_bytes());
        true
    }

    pub fn check(&self, bytes: &[u8]) -> Check {
        match self.place(bytes) {
            Some(place) if self.digits(bytes, &place).as_bytes() == &bytes[place.clone()] => {
                Check::Intact
            }
            Some(_) => Check::Changed,
            None => Check::Missing,
        }
    }

    fn place(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let start = memchr::memmem::rfind(bytes, self.mark.as_bytes())? + self.mark.len();
        let range = start..start.checked_add(SHA256_DIGITS)?;
        bytes.get(range.clone()).map(|_| range)
    }

    fn digits(&self, bytes: &[u8], place: &Range<usize>) -> String {
        let blank = if self.zeroed { ZEROS.as_slice() } else { &[] };
        let hash = Sha256::new().chain_update(&bytes[..place.start]).chain_update(blank);
        hex(hash.chain_update(&bytes[place.end..]).finalize())
    }
}

pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of `bytes`, 64 hex digits.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(bytes))
}

/// SHA-256 of all that is left to read.
pub fn digest(mut from: impl Read) -> io::Result<impl AsRef<[u8]>> {
    let (mut digest, mut chunk) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(digest.finalize()),
            count => digest.update(&chunk[..count]),
        }
    }
}

/// First 16 digits of [`sha256`], used as key of cells and plans in records and file names.
pub fn short_key(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_holds_until_any_byte_changes() {
        for zeroed in [false, true] {
            let checksum = Checksum { mark: "sum:", zeroed };
            let mut bytes = format!("sum: early {}later", checksum.blank()).into_bytes();
            assert_eq!(checksum.check(&bytes), Check::Changed, "not filled");
            assert!(checksum.fill(&mut bytes));
            assert_eq!(checksum.check(&bytes), Check::Intact);
            for at in [0, 11, 20, bytes.len() - 1] {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1;
                assert_ne!(checksum.check(&wrong), Check::Intact, "byte {at}");
            }
            assert_eq!(checksum.check(b"sum:12"), Check::Missing);
            assert!(!checksum.fill(&mut b"nothing".to_vec()));
        }
    }

    #[test]
    fn digits_are_those_of_sha256sum() {
        assert_eq!(sha256("ladder"), "5605a516a7ebf33bbfc1189be3b201f380d9c721b124098eda2894544e2771d7");
        assert_eq!(short_key("ladder"), sha256("ladder")[..16]);
    }
}
