//! Format of a part: the file of one recorded process.
//!
//! A part is a header of 16 bytes and chunks, each appended by one write: its length, a checksum, and events. A
//! process that is killed leaves a torn last chunk, which the reader cuts. Integers are little-endian; a text has its
//! length before it.

use std::fmt;

pub const MAGIC: [u8; 8] = *b"LSPART\x01\0";
pub const VERSION: u32 = 1;
/// Header length (bytes): magic, version, reserved.
pub const HEADER: usize = 16;
/// Length of a chunk's header (bytes): length, checksum.
pub const CHUNK_HEADER: usize = 8;
/// Maximum length of a chunk's events (bytes).
pub const MOST_CHUNK: usize = 32 << 20;
/// Maximum length of a text (bytes); longer ones are cut.
pub const MOST_TEXT: usize = 4096;
/// Suffix of a part's name.
pub const SUFFIX: &str = "lspart";

pub fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// FNV-1a over 8 bytes at a time: finds torn and damaged chunks, no protection against forgery.
pub fn checksum(bytes: &[u8]) -> u32 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        hash = (hash ^ word).wrapping_mul(PRIME);
    }
    for byte in words.remainder() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    (hash ^ (hash >> 32)) as u32
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The chunk ends within an event.
    Cut,
    Tag(u8),
    /// A text longer than [`MOST_TEXT`].
    Text(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("a chunk ends within an event"),
            Self::Tag(tag) => write!(f, "unknown event type {tag}"),
            Self::Text(length) => write!(f, "a text of {length} bytes"),
        }
    }
}

trait Field: Sized {
    fn put(&self, to: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Result<Self, DecodeError>;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Field for $integer {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
                let (bytes, rest) = from.split_first_chunk().ok_or(DecodeError::Cut)?;
                *from = rest;
                Ok(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 i32);

impl Field for [u64; 4] {
    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|word| word.put(to));
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok([u64::take(from)?, u64::take(from)?, u64::take(from)?, u64::take(from)?])
    }
}

impl Field for Vec<u8> {
    fn put(&self, to: &mut Vec<u8>) {
        let length = self.len().min(MOST_TEXT);
        (length as u16).put(to);
        to.extend_from_slice(&self[..length]);
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let length = usize::from(u16::take(from)?);
        if length > MOST_TEXT {
            return Err(DecodeError::Text(length));
        }
        let (text, rest) = from.split_at_checked(length).ok_or(DecodeError::Cut)?;
        *from = rest;
        Ok(text.to_vec())
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $tag:literal $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        /// One event of a part. Names, domains and functions are numbers of texts; times are in ns on the wall clock.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum RecordingEvent {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)*
        }

        impl RecordingEvent {
            pub fn encode(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$name { $($field,)* } => {
                        to.push($tag);
                        $($field.put(to);)*
                    })*
                }
            }

            /// Takes the next event off `from`.
            ///
            /// # Errors
            ///
            /// Returns an error for a damaged event; those after it in the chunk are lost.
            pub fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(match u8::take(from)? {
                    $($tag => Self::$name { $($field: Field::take(from)?,)* },)*
                    tag => return Err(DecodeError::Tag(tag)),
                })
            }
        }
    };
}

events! {
    /// Definition of a text.
    1 Text { id: u32, text: Vec<u8>, }
    /// The process, first in its part; again after its end, with the facts known only then.
    2 Process { pid: u32, parent: u32, start_ns: u64, host: Vec<u8>, command: Vec<u8>, }
    /// An environment variable of a launcher: `RANK=3`.
    3 Variable { text: Vec<u8>, }
    /// Wall clock and monotonic clock at one time: shows steps of the wall clock.
    4 Clock { realtime_ns: u64, monotonic_ns: u64, }
    /// Problem of the recorder in the process, as a sentence.
    5 Note { text: Vec<u8>, }
    /// End of the part, written at exit of the process.
    6 End {
        time_ns: u64,
        /// Events that were dropped because a buffer was full.
        lost: u64,
        /// CPU time of the recorder's thread.
        cpu_ns: u64,
    }
    7 Device { device: u32, uuid: [u64; 4], bus: u32, name: Vec<u8>, }
    10 Kernel {
        start_ns: u64, end_ns: u64, device: u32, context: u32, stream: u32, correlation: u32, name: u32, node: u64,
        graph: u32,
    }
    /// A copy, or a fill if `is_fill`; `kind` is CUPTI's.
    11 Copy {
        start_ns: u64, end_ns: u64, device: u32, stream: u32, correlation: u32, kind: u8, is_fill: u8, bytes: u64,
        node: u64,
    }
    /// A host call of the driver (0) or runtime (1), by CUPTI's callback id.
    12 Call { start_ns: u64, end_ns: u64, thread: u32, correlation: u32, id: u32, runtime: u8, }
    /// Activity records without usable times, and records that CUPTI dropped.
    13 Untimed { count: u64, dropped: u64, }
    /// A graph node that the thread created, mostly by capture.
    14 NodeCreated { time_ns: u64, thread: u32, node: u64, }
    /// A node of an instantiated graph, and the node that it was cloned from.
    15 NodeCloned { original: u64, node: u64, }
    20 Push { time_ns: u64, thread: u32, domain: u32, name: u32, schema: u64, payload: [u64; 4], }
    21 Pop { time_ns: u64, thread: u32, domain: u32, schema: u64, payload: [u64; 4], }
    22 Start { time_ns: u64, thread: u32, domain: u32, name: u32, id: u64, schema: u64, payload: [u64; 4], }
    23 Stop { time_ns: u64, id: u64, }
    24 Mark { time_ns: u64, thread: u32, domain: u32, name: u32, }
    25 ThreadName { thread: u32, name: u32, }
    /// A communicator, when NCCL's profiler plugin is initialised.
    30 Communicator { time_ns: u64, id: u64, plugin: u8, nodes: u32, ranks: u32, rank: u32, device: i32, name: Vec<u8>, }
    /// A collective or point-to-point operation as NCCL enqueues it. `kind` is the plugin's event type.
    31 Collective {
        time_ns: u64, thread: u32, communicator: u64, kind: u32, function: u32, datatype: u32, count: u64, sequence: u64,
        captured: u8, algorithm: u32, protocol: u32, channels: u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<RecordingEvent> {
        vec![
            RecordingEvent::Text { id: 1, text: b"gemm".to_vec() },
            RecordingEvent::Kernel {
                start_ns: 5,
                end_ns: 9,
                device: 1,
                context: 2,
                stream: 7,
                correlation: 3,
                name: 1,
                node: 1 << 40,
                graph: 4,
            },
            RecordingEvent::Pop {
                time_ns: 7,
                thread: 1,
                domain: 0,
                schema: 2,
                payload: [1, 2, 3, u64::MAX],
            },
        ]
    }

    #[test]
    fn events_are_read_as_written_and_a_cut_is_found_at_every_byte() {
        let mut bytes = Vec::new();
        some().iter().for_each(|event| event.encode(&mut bytes));
        let mut rest = &bytes[..];
        let read: Vec<RecordingEvent> =
            some().iter().map(|_| RecordingEvent::decode(&mut rest).unwrap()).collect();
        assert_eq!((read, rest.len()), (some(), 0));
        for length in 0..bytes.len() {
            let mut rest = &bytes[..length];
            while !rest.is_empty() {
                match RecordingEvent::decode(&mut rest) {
                    Ok(event) => assert!(some().contains(&event)),
                    Err(broken) => {
                        assert_eq!(broken, DecodeError::Cut, "{length}");
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_changes_the_checksum() {
        let bytes: Vec<u8> = (0..101).collect();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_ne!(checksum(&flipped), checksum(&bytes), "bit {bit} of byte {at}");
            }
        }
    }
}
