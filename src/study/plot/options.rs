use std::str::FromStr;

use base::error::{Error, Result};

pub const POINTS: f64 = 72.0;

/// Column width of common two-column styles, in inches (ACM, IEEE, USENIX: 3.33; ICML, MLSys: 3.25).
const COLUMN: f64 = 3.33;
/// Width of both columns, or of a one-column page, in inches.
const PAGE: f64 = 6.9;

/// Maximum pixels of a PNG, to bound memory.
const MOST_PIXELS: f64 = 1.5e8;

/// Size, resolution and text size of a figure. The text size does not scale with the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    pub size: Size,
    /// Pixels per inch of a PNG; unused for SVG.
    pub dpi: u32,
    /// Font size of labels in points; ticks and captions are a little smaller.
    pub font: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { size: Size { width: PAGE, height: None }, dpi: 300, font: 8.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub width: f64,
    /// Height in inches; `None` fits the content at this width.
    pub height: Option<f64>,
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let inches = |text: &str| {
            let number = text.trim().trim_end_matches("in").trim().parse::<f64>().ok();
            number.filter(|inches| (0.5..=60.0).contains(inches))
        };
        let size = match text {
            "column" => Some(Self { width: COLUMN, height: None }),
            "page" => Some(Self { width: PAGE, height: None }),
            _ => match text.split_once(['x', 'X', '×']) {
                Some((width, height)) => inches(width)
                    .zip(inches(height))
                    .map(|(width, height)| Self { width, height: Some(height) }),
                None => inches(text).map(|width| Self { width, height: None }),
            },
        };
        size.ok_or_else(|| {
            Error::input_help(
                format!("'{text}' is not a figure size"),
                format!(
                    "use inches from 0.5 to 60, for example 3.3x2.5 or only a width, or column ({COLUMN}) or page ({PAGE})"
                ),
            )
        })
    }
}

impl Options {
    /// True for the width of one column.
    pub(super) fn is_narrow(&self) -> bool {
        self.size.width * POINTS < 300.0
    }

    /// Validates the options.
    ///
    /// # Errors
    ///
    /// Returns an error if the resolution is outside 50 to 2400 dpi, the font outside 4 to 24 points, or the
    /// page has too many pixels.
    pub fn check(&self) -> Result<()> {
        if !(50..=2400).contains(&self.dpi) {
            return Err(Error::input_help(
                format!("{} dpi is out of range", self.dpi),
                "use 50 to 2400; journals ask for 300 to 600",
            ));
        }
        if !(4.0..=24.0).contains(&self.font) {
            return Err(Error::input_help(
                format!("font size {} pt is out of range", self.font),
                "use 4 to 24 points; journals ask for 6 to 10",
            ));
        }
        let dpi = f64::from(self.dpi);
        let height = self.size.height.unwrap_or(self.size.width);
        if self.size.width * dpi * height * dpi > MOST_PIXELS {
            return Err(Error::input_help(
                format!("{} x {height} inches at {dpi} dpi is too many pixels", self.size.width),
                "use a smaller --size or --dpi, or write an SVG",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_inches_or_names() {
        for (text, width, height) in [
            ("3.3x2.5", 3.3, Some(2.5)),
            ("column", 3.33, None),
            ("page", 6.9, None),
            ("7", 7.0, None),
            ("5in x 4in", 5.0, Some(4.0)),
        ] {
            assert_eq!(text.parse::<Size>().unwrap(), Size { width, height }, "{text}");
        }
        for text in ["", "x", "3.3x", "-1x2", "1e9x2", "NaN", "A4", "3cmx2cm"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.to_string().contains(text) && error.exit_code() == 2, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_painted_is_refused() {
        let with = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().is_ok()
        };
        assert!(with(|_| ()));
        assert!(!with(|o| o.dpi = 10) && !with(|o| o.font = 2.0));
        assert!(!with(|o| (o.size, o.dpi) = (Size { width: 60.0, height: None }, 2400)));
    }
}
