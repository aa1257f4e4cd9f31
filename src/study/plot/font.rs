//! Bundled font (DejaVu Sans): glyph positions, and texts measured, truncated and wrapped.

use std::sync::OnceLock;

use ab_glyph::{Font as _, FontRef};
use plotters::style::{FontStyle, register_font};

/// Font family of texts in SVG files; Verdana is as wide.
pub const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// Regular and bold face, registered with plotters; `None` if the bundled bytes cannot be read.
pub fn faces() -> Option<&'static [FontRef<'static>; 2]> {
    static FACES: OnceLock<Option<[FontRef<'static>; 2]>> = OnceLock::new();
    let face = |style, bytes: &'static [u8]| {
        register_font(FAMILY, style, bytes).ok()?;
        FontRef::try_from_slice(bytes).ok()
    };
    let read = || {
        let regular = face(FontStyle::Normal, dejavu::sans::regular())?;
        Some([regular, face(FontStyle::Bold, dejavu::sans::bold())?])
    };
    FACES.get_or_init(read).as_ref()
}

/// Height of a line, from ascender to descender (em).
pub fn line_height() -> f64 {
    let height = |face: &FontRef| Some(f64::from(face.height_unscaled() / face.units_per_em()?));
    faces().and_then(|faces| height(&faces[0])).unwrap_or(1.0)
}

/// Glyphs of a text with the left edges of their ink, and the width of the text, in the unit of `size`.
pub fn glyphs(text: &str, size: f64, bold: bool) -> (Vec<(char, f64)>, f64) {
    let Some(face) = faces().map(|faces| &faces[usize::from(bold)]) else { return (Vec::new(), 0.0) };
    let scale = size / f64::from(face.units_per_em().unwrap_or(2048.0));
    let (mut x, mut before) = (0.0, None);
    let place = |c: char| {
        let glyph = face.glyph_id(c);
        x += before.map_or(0.0, |before| face.kern_unscaled(before, glyph));
        let ink = x + face.h_side_bearing_unscaled(glyph);
        x += face.h_advance_unscaled(glyph);
        before = Some(glyph);
        (c, f64::from(ink) * scale)
    };
    let placed = text.chars().map(place).collect();
    (placed, f64::from(x) * scale)
}

/// Width of a text, in the unit of `size`.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    glyphs(text, size, bold).1
}

/// Text, truncated with an ellipsis if it is wider than `most`.
pub fn fit(text: &str, size: f64, most: f64) -> String {
    if width(text, size, false) <= most {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while !kept.is_empty() && width(&format!("{kept}…"), size, false) > most {
        kept.pop();
    }
    if kept.is_empty() { kept } else { kept + "…" }
}

/// Wraps a text at blanks to lines of at most `most`; splits words that are wider.
pub fn wrap(text: &str, size: f64, bold: bool, most: f64) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let fits = |line: &str| width(line, size, bold) <= most;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if fits(&format!("{line} {word}")) => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
        while let Some(line) = lines.last_mut().filter(|line| !fits(line) && line.chars().count() > 1) {
            let ends = line.char_indices().map(|(at, _)| at).skip(1);
            let end = ends.take_while(|end| fits(&line[..*end])).last();
            let rest = line.split_off(end.unwrap_or(line.ceil_char_boundary(1)));
            lines.push(rest);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_add_up_and_scale() {
        let (a, b) = (width("latency", 8.0, false), width("latency", 16.0, false));
        assert!((b - 2.0 * a).abs() < 1e-4 && a > 20.0 && a < 40.0, "{a} {b}");
        assert!(width("latency", 8.0, true) > a, "bold is wider");
        assert!(width("AV", 8.0, false) < width("A", 8.0, false) + width("V", 8.0, false), "kerning");
    }

    #[test]
    fn long_texts_end_in_an_ellipsis_or_are_wrapped() {
        assert_eq!(fit("short", 8.0, 100.0), "short");
        let cut = fit("a rather long name of a model", 8.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 8.0, false) <= 60.0, "{cut}");
        assert_eq!(fit("x", 8.0, 0.0), "");
        assert_eq!(
            wrap("one two three-and-µµ four", 8.0, false, 40.0),
            ["one two", "three-and", "-µµ four"]
        );
        assert_eq!(wrap("µs", 8.0, false, 0.0), ["µ", "s"]);
        assert_eq!(wrap("", 8.0, false, 9.0), [""; 0]);
    }
}
