//! Control file of a recording: `ladderscope record` writes it, every recorded process reads it again and again.

/// Name of the control file in the directory of a recording.
pub const CONTROL_FILE: &str = "control";
/// Directory of the recording, for recorded processes.
pub const DIRECTORY_VARIABLE: &str = "LADDERSCOPE_RECORD";

const MAGIC: [u8; 8] = *b"LSCTRL\x01\0";

/// Recording window and size limit. Times are in ns on the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Events before this time are dropped; [`u64::MAX`] until somebody starts the window.
    pub start_ns: u64,
    /// Events at or after this time are dropped; [`u64::MAX`] if the window stays open.
    pub stop_ns: u64,
    /// Maximum size of a process's file (bytes).
    pub limit: u64,
}

impl Control {
    pub const BYTES: usize = 32;

    /// Whole run, with a limit per process.
    pub const fn always(limit: u64) -> Self {
        Self { start_ns: 0, stop_ns: u64::MAX, limit }
    }

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (at, word) in
            [u64::from_le_bytes(MAGIC), self.start_ns, self.stop_ns, self.limit].into_iter().enumerate()
        {
            bytes[8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` for bytes of another kind.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(8 * at..8 * at + 8)?.try_into().ok()?));
        (word(0)? == u64::from_le_bytes(MAGIC)).then_some(())?;
        Some(Self { start_ns: word(1)?, stop_ns: word(2)?, limit: word(3)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_read_as_written_and_nothing_else_is() {
        let control = Control { start_ns: 5, stop_ns: 9, limit: 1 << 32 };
        assert_eq!(Control::decode(&control.encode()), Some(control));
        assert_eq!(Control::decode(&control.encode()[..31]), None);
        assert_eq!(Control::decode(&[0; 64]), None);
    }
}
