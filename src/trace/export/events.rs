//! Streaming writer for the events of a Chrome trace, with exact times.

use std::fmt;
use std::io::{self, Write};

use base::text::escaped_json;

/// Time in ns, displayed in microseconds with three decimals and never converted to a float.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub(super) i128);

impl Micros {
    pub(super) fn at(ns: i64) -> Self {
        Self(ns.into())
    }

    /// Duration between two times; may exceed the range of i64.
    pub(super) fn between(start_ns: i64, end_ns: i64) -> Self {
        Self(i128::from(end_ns) - i128::from(start_ns))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, ns) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}.{:03}", ns / 1000, ns % 1000)
    }
}

/// Encodes text as a JSON string, with quotes.
pub(super) fn quoted(text: &str) -> String {
    // serializing a string cannot fail
    serde_json::to_string(text).map_or_else(|_| "\"\"".into(), |json| escaped_json(&json).into_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

pub(super) struct Events<W> {
    out: W,
    first: bool,
}

impl<W: Write> Events<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, first: true }
    }

    /// Writes an event with a duration. `name` is [`quoted`]; `args` is the body of a JSON object.
    pub(super) fn complete(
        &mut self,
        (cat, name): (&str, &str),
        row: Row,
        (start_ns, end_ns): (i64, i64),
        args: fmt::Arguments<'_>,
    ) -> io::Result<()> {
        let (ts, dur) = (Micros::at(start_ns), Micros::between(start_ns, end_ns));
        self.comma()?;
        write!(
            self.out,
            r#"{{"ph":"X","cat":"{cat}","name":{name},"pid":{},"tid":{},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#,
            row.pid, row.tid
        )
    }

    pub(super) fn arrow(
        &mut self,
        (cat, id): (&str, u64),
        from: (Row, i64),
        to: (Row, i64),
    ) -> io::Result<()> {
        for (ph, (row, at)) in [(r#""s""#, from), (r#""f","bp":"e""#, to)] {
            self.comma()?;
            write!(
                self.out,
                r#"{{"ph":{ph},"id":{id},"cat":"{cat}","name":"{cat}","pid":{},"tid":{},"ts":{}}}"#,
                row.pid,
                row.tid,
                Micros::at(at)
            )?;
        }
        Ok(())
    }

    pub(super) fn about(&mut self, what: &str, row: Row, args: fmt::Arguments<'_>) -> io::Result<()> {
        self.comma()?;
        write!(
            self.out,
            r#"{{"ph":"M","name":"{what}","pid":{},"tid":{},"ts":0,"args":{{{args}}}}}"#,
            row.pid, row.tid
        )
    }

    fn comma(&mut self) -> io::Result<()> {
        let before: &[u8] = if std::mem::take(&mut self.first) { b"\n" } else { b",\n" };
        self.out.write_all(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_even_at_the_ends_of_the_clock() {
        for (ns, text) in [
            (0, "0.000"),
            (1, "0.001"),
            (-1, "-0.001"),
            (1_234_567, "1234.567"),
            (-1_000, "-1.000"),
            (i64::MAX, "9223372036854775.807"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            assert_eq!(Micros::at(ns).to_string(), text);
        }
        assert_eq!(Micros::between(i64::MIN, i64::MAX).to_string(), "18446744073709551.615");
    }
}
