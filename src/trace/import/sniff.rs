//! Detection of formats that need more than fixed bytes. `head` is the beginning of a file, unpacked.

use memchr::memmem::find;

/// True if the text starts like a JSON object or array. Checks two characters, because a protobuf field
/// length may look like a brace.
pub(super) fn is_json(text: &[u8]) -> bool {
    let Some((b'{' | b'[', rest)) = text.split_first() else { return false };
    rest.trim_ascii_start().first().is_none_or(|byte| b"\"{}[]-0123456789tfn".contains(byte))
}

pub(super) fn is_utf16(head: &[u8]) -> bool {
    let (marked, little, big) = match head {
        [0xff, 0xfe, rest @ ..] => (true, rest, &[][..]),
        [0xfe, 0xff, rest @ ..] => (true, &[][..], rest),
        _ => (false, head, head),
    };
    let is_text = |bytes: &[u8], zero: usize| {
        bytes.len() >= 4
            && bytes.chunks_exact(2).take(8).all(|pair| pair[zero] == 0 && pair[1 - zero] != 0)
            && (marked || matches!(bytes[1 - zero], b'{' | b'['))
    };
    is_text(little, 1) || is_text(big, 0)
}

pub(super) fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.first_chunk::<512>() else { return false };
    let field = &header[148..156];
    let digits: Vec<u8> = field.iter().copied().filter(u8::is_ascii_digit).collect();
    let stated = std::str::from_utf8(&digits).ok().and_then(|text| u32::from_str_radix(text, 8).ok());
    let sum = |byte: (usize, &u8)| if (148..156).contains(&byte.0) { 32 } else { u32::from(*byte.1) };
    header[0] != 0 && stated == Some(header.iter().enumerate().map(sum).sum())
}

/// True for Parquet with CUPTI's column names, as Nsight Systems writes. `head` contains the first and
/// the last bytes of the file.
pub(super) fn is_nsight_parquet(head: &[u8]) -> bool {
    let has = |text: &[u8]| find(head, text).is_some();
    head.starts_with(b"PAR1")
        && !has(b"ladderscope.")
        && (has(b"globalPid") || has(b"globalTid") || has(b"correlationId"))
}

/// Arrow stream: a continuation marker, the length of the schema, a flatbuffer.
pub(super) fn is_arrow_stream(head: &[u8]) -> bool {
    head.len() > 8 && head.starts_with(&[0xff; 4]) && head[6..8] == [0, 0] && head[4].is_multiple_of(8)
}

pub(super) fn is_nsight_report(head: &[u8]) -> bool {
    let start = &head[..head.len().min(4096)];
    let is_binary = start.contains(&0);
    is_binary
        && [&b"QuadD"[..], b"quadd", b"NVIDIA Nsight Systems"]
            .iter()
            .any(|text| find(start, text).is_some())
}

pub(super) fn is_html(head: &[u8]) -> bool {
    let start = head.trim_ascii_start();
    let begins =
        |text: &str| start.get(..text.len()).is_some_and(|s| s.eq_ignore_ascii_case(text.as_bytes()));
    begins("<!doctype html") || begins("<html")
}

pub(super) fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 2..=5, ..]) && !head.starts_with(b"\x80\x04PK")
}

pub(super) fn first_line(head: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\n', head).unwrap_or(head.len()).min(4096);
    head.strip_prefix(b"\xef\xbb\xbf").map_or(&head[..end], |text| &text[..end.saturating_sub(3)])
}

/// Decodes a leading protobuf varint; returns it with the remaining bytes.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 127).checked_shl(7 * at as u32)?;
        if *byte < 128 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Splits off a leading protobuf field with this tag, possibly truncated; returns it with the remaining
/// bytes.
fn field(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = varint(bytes.strip_prefix(&[tag])?)?;
    Some(rest.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(rest.len())))
}

/// Planes (field 1), each with an optional id (field 1) before its name (field 2). The name starts with
/// `/` or is a known one.
pub(super) fn is_xspace(head: &[u8]) -> bool {
    let Some((plane, _)) = field(head, 0x0a) else { return false };
    let named = match plane.strip_prefix(b"\x08").and_then(varint) {
        Some((_, rest)) => rest,
        None => plane,
    };
    let known = |name: &[u8]| name.starts_with(b"/") && name.len() > 4 || name == b"Task Environment";
    field(named, 0x12).is_some_and(|(name, _)| known(name))
}

/// Length-prefixed messages, the first with a version, `0.0.4`.
pub(super) fn is_chakra(head: &[u8]) -> bool {
    let Some((length, message)) = varint(head) else { return false };
    let Some((version, _)) = field(message, 0x0a) else { return false };
    let is_version = version.contains(&b'.') && version.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    is_version && version.len() as u64 + 2 == length
}

/// Packets (field 1). The first ones are complete and start with a field of packets: a clock (6), a time
/// (8), a sequence (10).
pub(super) fn is_perfetto(head: &[u8]) -> bool {
    let mut rest = head;
    for _ in 0..2 {
        let Some((packet, after)) = field(rest, 0x0a) else { return false };
        if !matches!(packet.first(), Some(0x32 | 0x40 | 0x50 | 0x18)) || after.is_empty() {
            return false;
        }
        rest = after;
    }
    true
}
