//! Exact conversion of microseconds in text to integer nanoseconds, without floating point.

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
    let magnitude = short(digits).map_or_else(|| any(digits), Ok)?;
    Ok(if negative { -magnitude } else { magnitude })
}

/// Fast path: up to 15 digits with an optional fraction.
#[inline]
fn short(text: &[u8]) -> Option<i64> {
    let whole = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if whole == 0 || whole > 15 {
        return None;
    }
    let mut value = digits(0, &text[..whole]);
    let rest = &text[whole..];
    let Some((point, fraction)) = rest.split_first() else { return Some(value * 1000) };
    if *point != b'.' || fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let kept = fraction.len().min(3);
    value = digits(value, &fraction[..kept]);
    Some(value * [1000, 100, 10, 1][kept])
}

#[inline]
fn digits(start: i64, text: &[u8]) -> i64 {
    text.iter().fold(start, |value, byte| value * 10 + i64::from(byte - b'0'))
}

/// Slow path for any number: a 128-bit mantissa and a power of ten.
#[cold]
fn any(text: &[u8]) -> Result<i64, NotATime> {
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
