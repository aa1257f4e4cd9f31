//! SHA-256 in lowercase hex: file checksums, and keys of content.

use sha2::{Digest, Sha256};

pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of `bytes`, 64 hex digits.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(bytes))
}

/// First 16 digits of [`sha256`], used as key of cells and plans in records and file names.
pub fn short_key(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_sha256sum() {
        assert_eq!(sha256("ladder"), "5605a516a7ebf33bbfc1189be3b201f380d9c721b124098eda2894544e2771d7");
        assert_eq!(short_key("ladder"), sha256("ladder")[..16]);
    }
}
