//! Typed navigation targets: a time, an interval, a step, an operation.

/// Target in a trace. Times are ns since the trace's first start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Interval: `12.5ms..13ms`.
    Interval(i64, i64),
    /// Time to centre in the current window: `12.5ms`.
    Time(i64),
    /// Interval around the cursor: `+-50us`.
    Around(i64),
    /// First and last decode step: `step 12`, `step 12..14`.
    Steps(u32, u32),
    /// Prefill of the sample at the cursor.
    Prefill,
    All,
    Marks,
    /// Operation or range, by words of its name: `decode/L12/mlp/down`.
    Name(String),
}

pub const FORMS: &str =
    "type 12.5ms..13ms, 12.5ms, +-50us, step 12, step 12..14, prefill, all, A..B, or words of a name";

impl Target {
    /// Parses typed text; returns the reason if it has none of the forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let lower = text.to_lowercase();
        match lower.as_str() {
            "" => return Err(FORMS.into()),
            "all" => return Ok(Self::All),
            "prefill" => return Ok(Self::Prefill),
            "a..b" | "b..a" => return Ok(Self::Marks),
            _ => {}
        }
        let around = ["+-", "±", "+/-"].iter().find_map(|sign| lower.strip_prefix(sign));
        if let Some(width) = around {
            return match time(width).filter(|ns| *ns > 0) {
                Some(ns) => Ok(Self::Around(ns)),
                None => Err(format!("'{text}': {}", wanted(width))),
            };
        }
        // `steps_fused` is a name
        if let Some(rest) =
            lower.strip_prefix("step").filter(|rest| rest.starts_with([' ', '.']) || is_number(rest))
        {
            return steps(rest).ok_or_else(|| {
                format!(
                    "'{text}': steps are numbers from 0: step 12, or step 12..14 with the first first"
                )
            });
        }
        if let Some((from, to)) = lower.split_once("..") {
            return match (time(from), time(to)) {
                (Some(from), Some(to)) if from < to => Ok(Self::Interval(from, to)),
                (Some(_), Some(_)) => Err(format!("'{text}': its end is not behind its start")),
                (None, _) => Err(format!("'{text}': {}", wanted(from))),
                _ => Err(format!("'{text}': {}", wanted(to))),
            };
        }
        match time(&lower) {
            Some(ns) => Ok(Self::Time(ns)),
            None => Ok(Self::Name(text.into())),
        }
    }
}

fn wanted(text: &str) -> String {
    format!("'{}' is no time; write a number with ns, us, ms or s, such as 12.5ms", text.trim())
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn steps(text: &str) -> Option<Target> {
    let text = text.trim().trim_start_matches("step");
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(Target::Steps(first, last))
}

/// Parses a time with its unit, in ns.
fn time(text: &str) -> Option<i64> {
    let text = text.trim().trim_start_matches('+').replace('µ', "u");
    let (number, scale) = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), *scale)))?;
    // Rust also parses `inf` and `nan`
    if !is_number(number) && !number.starts_with('.') {
        return None;
    }
    let ns = number.parse::<f64>().ok()? * scale;
    (ns.is_finite() && ns < 9e18).then(|| ns.round() as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_understood() {
        let cases = [
            ("12.5ms..13ms", Target::Interval(12_500_000, 13_000_000)),
            (" 0s .. 1.000000001 s ", Target::Interval(0, 1_000_000_001)),
            ("46us", Target::Time(46_000)),
            ("+46.5 µs", Target::Time(46_500)),
            ("+-50us", Target::Around(50_000)),
            ("±1ms", Target::Around(1_000_000)),
            ("step 12", Target::Steps(12, 12)),
            ("step12..14", Target::Steps(12, 14)),
            ("Step 3 .. 3", Target::Steps(3, 3)),
            ("prefill", Target::Prefill),
            ("all", Target::All),
            ("A..B", Target::Marks),
            ("decode/L12/mlp/down", Target::Name("decode/L12/mlp/down".into())),
            ("L2 norms", Target::Name("L2 norms".into())),
            ("steps_fused", Target::Name("steps_fused".into())),
            ("AllReduce Ring", Target::Name("AllReduce Ring".into())),
        ];
        for (text, target) in cases {
            assert_eq!(Target::parse(text), Ok(target), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        for (text, why) in [
            ("", "type 12.5ms..13ms"),
            ("3ms..1ms", "its end is not behind its start"),
            ("3ms..soon", "'soon' is no time"),
            ("3..4", "'3' is no time; write a number with ns"),
            ("+-", "is no time"),
            ("+-0us", "is no time"),
            ("step x", "steps are numbers from 0"),
            ("step 5..2", "with the first first"),
        ] {
            let error = Target::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_typed_panics(text in ".{0,30}", odd in "[-+±0-9.munsep ]{0,20}") {
            for text in [text, odd] {
                if let Ok(Target::Interval(from, to)) = Target::parse(&text) {
                    prop_assert!(0 <= from && from < to);
                }
            }
        }
    }
}
