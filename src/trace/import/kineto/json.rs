//! JSON of one event, read in place: keys, values, strings, and exact times.
//!
//! Parses only as much as needed to find the next key, so an unused value may even be `NaN`. Microseconds in
//! text become integer nanoseconds without floating point.

use super::blocks::after_close;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) at: usize,
    pub(super) expected: &'static str,
    /// True if the bytes ended too early, so more of them may fix the error.
    pub(super) ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonValue<'a> {
    /// Text between the quotes, with escapes unresolved.
    String(&'a [u8]),
    /// An object or array with its brackets, and its offset.
    Nested(&'a [u8], usize),
    /// A number, `true`, `null`, or invalid text.
    Scalar(&'a [u8]),
}

impl<'a> JsonValue<'a> {
    #[inline]
    pub(super) fn text(self) -> Option<&'a [u8]> {
        match self {
            Self::String(text) => Some(text.trim_ascii()),
            Self::Scalar(text) => Some(text),
            Self::Nested(..) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    fn broken(&self, expected: &'static str) -> JsonError {
        JsonError { at: self.at, expected, ended: self.at >= self.bytes.len() }
    }

    /// Error for something that is not closed within the bytes.
    fn unclosed(&self, expected: &'static str) -> JsonError {
        JsonError { ended: true, ..self.broken(expected) }
    }

    /// Skips whitespace and returns the next byte without consuming it.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if byte > b' ' {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    #[inline]
    pub(super) fn enter(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.broken("{")),
        }
    }

    /// Next key of the object, with the cursor before its value. At the end of the object returns `None`
    /// and moves past it.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Option<&'a [u8]>, JsonError> {
        let mut next = self.peek();
        while next == Some(b',') {
            self.at += 1;
            next = self.peek();
        }
        match next {
            Some(b'"') => {}
            Some(b'}') => {
                self.at += 1;
                return Ok(None);
            }
            _ => return Err(self.broken("a key in quotes, or }")),
        }
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.broken(":"));
        }
        self.at += 1;
        Ok(Some(key))
    }

    #[inline]
    fn string(&mut self) -> Result<&'a [u8], JsonError> {
        let start = self.at + 1;
        let end = closing_quote(self.bytes, start).ok_or(self.unclosed("the string's closing quote"))?;
        self.at = end + 1;
        Ok(&self.bytes[start..end])
    }

    #[inline]
    pub(super) fn value(&mut self) -> Result<JsonValue<'a>, JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(JsonValue::String),
            Some(b'{' | b'[') => {
                let start = self.at;
                let end = after_close(self.bytes, start, 0)
                    .ok_or(self.unclosed("an object or array that is closed"))?;
                self.at = end;
                Ok(JsonValue::Nested(&self.bytes[start..end], start))
            }
            Some(b',' | b'}' | b']' | b':') | None => Err(self.broken("a value")),
            Some(_) => {
                let start = self.at;
                let end = scalar_end(self.bytes, start);
                // invalid outside strings, and scanners would disagree about the quote after it
                if self.bytes.get(end) == Some(&b'\\') {
                    return Err(self.broken("a value"));
                }
                self.at = end;
                Ok(JsonValue::Scalar(&self.bytes[start..end]))
            }
        }
    }
}

/// One and the highest bit of each byte, for arithmetic on eight bytes at a time.
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}

/// Marks the bytes of a word outside `first..=last`. The lowest mark is exact; a borrow may set higher ones.
#[inline]
fn outside(word: u64, first: u8, last: u8) -> u64 {
    let below = word.wrapping_sub(LOW * u64::from(first)) & !word;
    let above = ((word & !HIGH) + LOW * u64::from(0x7f - last)) | word;
    (below | above) & HIGH
}

/// Position after the scalar at `from`. Numbers without an exponent are skipped by words.
#[inline]
fn scalar_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(word) = word_at(bytes, at) {
        // `-`, `.`, `/` and the digits: none of them ends a scalar
        let other = outside(word, b'-', b'9');
        if other != 0 {
            at += other.trailing_zeros() as usize / 8;
            break;
        }
        at += 8;
    }
    let rest = bytes[at..].iter();
    at + rest.take_while(|byte| !ENDS_SCALAR[usize::from(**byte)]).count()
}

/// Bytes that end a scalar. One load a byte instead of nine comparisons.
const ENDS_SCALAR: [bool; 256] = {
    let mut ends = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is_bracket_or_mark =
            matches!(byte as u8, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':' | b'\\');
        ends[byte] = byte <= b' ' as usize || is_bracket_or_mark;
        byte += 1;
    }
    ends
};

#[inline]
pub(super) fn closing_quote(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at = quote_or_backslash(bytes, at)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Word-at-a-time search for short strings, for which a call of memchr costs more than it saves.
#[inline]
fn quote_or_backslash(bytes: &[u8], from: usize) -> Option<usize> {
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let mut at = from;
    for _ in 0..3 {
        let Some(word) = word_at(bytes, at) else { break };
        // the lowest set bit is exact; only higher ones may be false positives
        let hits = zeros(word ^ (LOW * u64::from(b'"'))) | zeros(word ^ (LOW * u64::from(b'\\')));
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr::memchr2(b'"', b'\\', bytes.get(at..)?).map(|found| at + found)
}

/// Resolves escapes and replaces invalid UTF-8. The flag is true if anything was replaced.
pub(super) fn unescape(raw: &[u8]) -> (String, bool) {
    let bytes = if raw.contains(&b'\\') { resolve(raw) } else { raw.to_vec() };
    match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(wrong) => (String::from_utf8_lossy(wrong.as_bytes()).into_owned(), true),
    }
}

fn resolve(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        at += 1;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let Some(escape) = raw.get(at) else { break };
        at += 1;
        match escape {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'u' => {
                let (character, used) = unicode(&raw[at..]);
                at += used;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            // unknown escapes yield the character itself
            other => bytes.push(*other),
        }
    }
    bytes
}

/// Decodes `XXXX`, or a surrogate pair `XXXX\uXXXX`; returns the number of bytes used.
fn unicode(text: &[u8]) -> (char, usize) {
    let Some(first) = hex4(text) else { return (char::REPLACEMENT_CHARACTER, 0) };
    if let Some(character) = char::from_u32(first) {
        return (character, 4);
    }
    let second = text.get(4..6).filter(|next| *next == b"\\u").and_then(|_| hex4(&text[6..]));
    match second {
        Some(low @ 0xDC00..=0xDFFF) if first < 0xDC00 => {
            let code = 0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00);
            (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 10)
        }
        _ => (char::REPLACEMENT_CHARACTER, 4),
    }
}

fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotATime {
    /// Not a JSON number (`NaN`, `null`, words).
    NotANumber,
    /// Overflows 63 bits of nanoseconds.
    TooLarge,
}

/// Parses a time in microseconds. Truncates digits below 1 ns.
#[inline]
pub(super) fn nanoseconds(text: &[u8]) -> Result<i64, NotATime> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let magnitude = short(digits).map_or_else(|| any_number(digits), Ok)?;
    Ok(if negative { -magnitude } else { magnitude })
}

/// Fast path: up to 15 digits with an optional fraction.
#[inline]
fn short(text: &[u8]) -> Option<i64> {
    let (whole, length) = leading_digits(text);
    if length == 0 || length > 15 {
        return None;
    }
    let Some((point, fraction)) = text[length..].split_first() else { return Some(whole * 1000) };
    if *point != b'.' || fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let kept = fraction.len().min(3);
    Some(digits(whole, &fraction[..kept]) * [1000, 100, 10, 1][kept])
}

/// Value and number of the digits at the beginning. The value is meaningless beyond 18 of them.
#[inline]
fn leading_digits(text: &[u8]) -> (i64, usize) {
    let (mut value, mut at) = (0i64, 0);
    while let Some(word) = word_at(text, at).filter(|word| outside(*word, b'0', b'9') == 0) {
        value = value.wrapping_mul(100_000_000).wrapping_add(eight_digits(word));
        at += 8;
    }
    let rest = text[at..].iter().take_while(|byte| byte.is_ascii_digit());
    rest.fold((value, at), |(value, at), byte| {
        (value.wrapping_mul(10).wrapping_add(i64::from(byte - b'0')), at + 1)
    })
}

/// Value of eight digits, the first one in the lowest byte: pairs, then fours, then all.
#[inline]
fn eight_digits(word: u64) -> i64 {
    let pairs = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    ((fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32) as i64
}

#[inline]
fn digits(start: i64, text: &[u8]) -> i64 {
    text.iter().fold(start, |value, byte| value * 10 + i64::from(byte - b'0'))
}

/// Slow path for any number: a 128-bit mantissa and a power of ten.
#[cold]
fn any_number(text: &[u8]) -> Result<i64, NotATime> {
    const MOST: u128 = u128::MAX / 10 - 1;
    let (mut mantissa, mut power) = (0u128, 3i64);
    let (mut at, mut seen, mut fraction) = (0, false, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                seen = true;
                // digits that do not fit are below 1 ns, or the number overflows anyway
                if mantissa <= MOST {
                    mantissa = mantissa * 10 + u128::from(byte - b'0');
                    power -= i64::from(fraction);
                } else {
                    power += i64::from(!fraction);
                }
            }
            b'.' if !fraction => fraction = true,
            b'e' | b'E' if seen => {
                power += exponent(&text[at + 1..])?;
                at = text.len();
                continue;
            }
            _ => return Err(NotATime::NotANumber),
        }
        at += 1;
    }
    if !seen {
        return Err(NotATime::NotANumber);
    }
    let scale = 10u128.checked_pow(power.unsigned_abs().min(u64::from(u32::MAX)) as u32);
    let nanoseconds = match (mantissa, power, scale) {
        (0, _, _) => Some(0),
        (_, 0.., Some(scale)) => mantissa.checked_mul(scale),
        (_, 0.., None) => None,
        (_, _, Some(scale)) => Some(mantissa / scale),
        (_, _, None) => Some(0),
    };
    nanoseconds.and_then(|ns| i64::try_from(ns).ok()).ok_or(NotATime::TooLarge)
}

fn exponent(text: &[u8]) -> Result<i64, NotATime> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotATime::NotANumber);
    }
    let value =
        digits.iter().fold(0i64, |value, byte| (value * 10 + i64::from(byte - b'0')).min(1 << 40));
    Ok(if negative { -value } else { value })
}

/// Parses the integer at the end of `7`, or of `stream 7` as older versions write. `None` if there are
/// no digits, or too many.
pub(super) fn last_integer(text: &[u8]) -> Option<i64> {
    let start = text.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    let negative = start == 1 && text[0] == b'-';
    let digits = std::str::from_utf8(&text[start..]).ok()?;
    let value: i64 = digits.parse().ok()?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_and_values_come_in_order_with_any_blanks() {
        let text = br#" { "a" : 1.5e3,"b":"x\"y" , "c":{"d":[1,{"e":"}"}]},"f": NaN, }rest"#;
        let mut cursor = Cursor::new(text, 0);
        cursor.enter().unwrap();
        let mut seen = Vec::new();
        while let Some(key) = cursor.key().unwrap() {
            let value = match cursor.value().unwrap() {
                JsonValue::String(text) | JsonValue::Nested(text, _) | JsonValue::Scalar(text) => text,
            };
            seen.push(format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value)));
        }
        assert_eq!(seen, ["a=1.5e3", r#"b=x\"y"#, r#"c={"d":[1,{"e":"}"}]}"#, "f=NaN"]);
        assert_eq!(&text[cursor.at..], b"rest");
    }

    #[test]
    fn broken_json_says_where_and_what_was_expected() {
        for (text, at, expected, ended) in [
            (r#"{"a" 1}"#, 5, ":", false),
            (r#"{a:1}"#, 1, "a key in quotes, or }", false),
            (r#"{"a":}"#, 5, "a value", false),
            (r#"{"a":"#, 5, "a value", true),
            (r#"{"a":"b"#, 5, "the string's closing quote", true),
            (r#"{"a":[1"#, 5, "an object or array that is closed", true),
        ] {
            let mut cursor = Cursor::new(text.as_bytes(), 0);
            cursor.enter().unwrap();
            let broken = cursor.key().and_then(|_| cursor.value()).unwrap_err();
            assert_eq!(broken, JsonError { at, expected, ended }, "{text}");
        }
    }

    #[test]
    fn escapes_are_resolved_and_bad_bytes_replaced() {
        for (raw, text, lossy) in [
            (&b"plain"[..], "plain", false),
            (br#"a\"b\\c\/d\n\u00e9\ud83d\ude00"#, "a\"b\\c/d\né😀", false),
            (br"\ud800x\uZZ\q", "\u{fffd}x\u{fffd}ZZq", false),
            (b"\xffx", "\u{fffd}x", true),
            (b"x\\", "x", false),
        ] {
            assert_eq!(unescape(raw), (text.to_owned(), lossy));
        }
    }

    proptest! {
        #[test]
        fn strings_read_back_as_they_were(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            let end = closing_quote(json.as_bytes(), 1);
            prop_assert_eq!(end, Some(json.len() - 1));
            prop_assert_eq!(unescape(&json.as_bytes()[1..json.len() - 1]).0, text);
        }

        #[test]
        fn quotes_are_found_where_a_search_byte_by_byte_finds_them(text in "[a\"\\\\\u{ff}]{0,60}", from in 0..5usize) {
            let bytes = text.as_bytes();
            let plain = (from..bytes.len()).find(|at| matches!(bytes[*at], b'"' | b'\\'));
            prop_assert_eq!(quote_or_backslash(bytes, from), plain);
        }

        #[test]
        fn scalars_end_where_a_search_byte_by_byte_ends_them(text in r"[-+./0-9eE :,}\\\u{ff}]{0,40}", from in 0..5usize) {
            let bytes = text.as_bytes();
            let from = from.min(bytes.len());
            let plain = bytes[from..].iter().take_while(|byte| !ENDS_SCALAR[usize::from(**byte)]).count();
            prop_assert_eq!(scalar_end(bytes, from), from + plain);
        }
    }

    #[test]
    fn times_are_exact_and_cut_below_a_nanosecond() {
        let cases: [(&str, i64); 17] = [
            ("0", 0),
            ("12", 12_000),
            ("1365627862757.064", 1_365_627_862_757_064),
            ("0.0019", 1),
            ("0.9999999", 999),
            ("-1.5", -1_500),
            ("-0.0009", 0),
            ("1.5e3", 1_500_000),
            ("1.365627862757064e15", 1_365_627_862_757_064_000),
            ("1E-3", 1),
            ("1e-4", 0),
            ("19e-4", 1),
            ("0e99999999999999999999", 0),
            ("9223372036854775.807", i64::MAX),
            ("1000000000000000000000000000000000000000000000e-42", 1_000_000),
            ("0.000000000000000000000000000000000000000000001e45", 1_000),
            ("0.30000000000000004", 300),
        ];
        for (text, expected) in cases {
            assert_eq!(nanoseconds(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_says_why() {
        for text in ["", "-", ".", "NaN", "null", "1.", "1.2.3", "1e", "1e+", "0x10", "--1", "1 2", "e5"]
        {
            let expected = if text == "1." { Ok(1000) } else { Err(NotATime::NotANumber) };
            assert_eq!(nanoseconds(text.as_bytes()), expected, "{text}");
        }
        for text in ["9223372036854775808", "9223372036854775.808", "1e300", "1e99999999999999999999"] {
            assert_eq!(nanoseconds(text.as_bytes()), Err(NotATime::TooLarge), "{text}");
        }
    }

    #[test]
    fn integers_are_found_at_the_end() {
        assert_eq!(last_integer(b"7"), Some(7));
        assert_eq!(last_integer(b"-1"), Some(-1));
        assert_eq!(last_integer(b"stream 20"), Some(20));
        assert_eq!(last_integer(b"Spans"), None);
        assert_eq!(last_integer(b"99999999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn every_way_to_write_a_time_is_the_same_time(ns in 0..i64::MAX, shift in 0..30i32) {
            let plain = format!("{}.{:03}", ns / 1000, ns % 1000);
            prop_assert_eq!(nanoseconds(plain.as_bytes()), Ok(ns));
            prop_assert_eq!(nanoseconds(format!("-{plain}77").as_bytes()), Ok(-ns));
            prop_assert_eq!(nanoseconds(format!("{ns}e-3").as_bytes()), Ok(ns));
            let zeros = "0".repeat(shift as usize);
            prop_assert_eq!(nanoseconds(format!("{ns}{zeros}E-{}", 3 + shift).as_bytes()), Ok(ns));
        }

        #[test]
        fn any_text_is_a_time_or_an_error(text in "[-+0-9.eE]{0,60}") {
            let exact = nanoseconds(text.as_bytes());
            if let (Ok(ns), Ok(float)) = (exact, text.parse::<f64>()) {
                let expected = float * 1000.0;
                prop_assert!((ns as f64 - expected).abs() <= 1.0 + expected.abs() * 1e-12, "{text}: {ns}");
            }
        }
    }
}
