//! How a figure is made: its size in inches, its resolution, the size of its text.

use std::str::FromStr;

use base::error::{Error, Result};

/// Typographic points of an inch, the unit in which scenes are laid out.
pub const POINTS: f64 = 72.0;

/// Inches of a text column of common two-column styles (ACM, IEEE, USENIX: 3.33; ICML, MLSys: 3.25).
const COLUMN: f64 = 3.33;
/// Inches of both columns, or of the text of a one-column style.
const PAGE: f64 = 6.9;

/// Pixels of the largest PNG: beyond it a figure is no figure, and memory runs out.
const MOST_PIXELS: f64 = 1.5e8;

/// Size, resolution and text of a figure. Text keeps its size, whatever the figure's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Width and height of the page in inches.
    pub size: Size,
    /// Pixels an inch of a PNG; an SVG has none.
    pub dpi: u32,
    /// Height of the font in points: labels have it, ticks and captions a little less.
    pub font: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { size: Size { width: PAGE, height: None }, dpi: 300, font: 8.0 }
    }
}

/// Width and height in inches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The width of the page in inches.
    pub width: f64,
    /// Inches; `None`: what the figure's content asks for at this width.
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
    /// Refuses what cannot be painted.
    ///
    /// # Errors
    ///
    /// An input error for a resolution outside 50 to 2400 dpi, a font outside 4 to 24 points, and for
    /// more pixels than can be painted.
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
