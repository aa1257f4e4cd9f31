//! Bundled font (DejaVu Sans): text widths and glyph outlines.
//!
//! Figures contain text as outlines, each glyph once, so that browsers, Inkscape, rsvg and LaTeX show the
//! same picture. Inkscape and rsvg ignore fonts embedded as `@font-face` and would substitute one with other
//! widths. The text itself stays available as `aria-label`.

use std::fmt::Write as _;
use std::sync::OnceLock;

use ab_glyph::{Font as _, FontRef, GlyphId, OutlineCurve};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glyph {
    pub bold: bool,
    pub id: u16,
}

/// Both faces; `None` if the bundled bytes cannot be read.
fn faces() -> Option<&'static [FontRef<'static>; 2]> {
    static FACES: OnceLock<Option<[FontRef<'static>; 2]>> = OnceLock::new();
    let read = || {
        let face = |bytes: &'static [u8]| FontRef::try_from_slice(bytes).ok();
        Some([face(dejavu::sans::regular())?, face(dejavu::sans::bold())?])
    };
    FACES.get_or_init(read).as_ref()
}

fn face(bold: bool) -> Option<&'static FontRef<'static>> {
    faces().map(|faces| &faces[usize::from(bold)])
}

/// True if the font is usable; nothing can be drawn without it.
pub fn is_there() -> bool {
    faces().is_some()
}

/// Font units per em, the unit of outlines and glyph positions.
pub fn units(bold: bool) -> f64 {
    face(bold).and_then(|face| face.units_per_em()).map_or(2048.0, f64::from)
}

/// Glyphs of a text with their x positions, and the text's width, in font units.
pub fn glyphs(text: &str, bold: bool) -> (Vec<(Glyph, f64)>, f64) {
    let Some(face) = face(bold) else { return (Vec::new(), 0.0) };
    let (mut x, mut before): (f64, Option<GlyphId>) = (0.0, None);
    let place = |c: char| {
        let id = face.glyph_id(c);
        if let Some(before) = before {
            x += f64::from(face.kern_unscaled(before, id));
        }
        let at = x;
        x += f64::from(face.h_advance_unscaled(id));
        before = Some(id);
        (Glyph { bold, id: id.0 }, at)
    };
    let placed = text.chars().map(place).collect();
    (placed, x)
}

/// Width of a text, in the unit of `size`.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    glyphs(text, bold).1 / units(bold) * size
}

/// Outline of a glyph as SVG path data in font units, `y` upwards; empty for blanks.
pub fn outline(glyph: Glyph) -> String {
    let mut data = String::new();
    let Some(outline) = face(glyph.bold).and_then(|face| face.outline(GlyphId(glyph.id))) else {
        return data;
    };
    let mut pen = None;
    for curve in outline.curves {
        let (from, rest) = match &curve {
            OutlineCurve::Line(a, b) => (a, vec![b]),
            OutlineCurve::Quad(a, b, c) => (a, vec![b, c]),
            OutlineCurve::Cubic(a, b, c, d) => (a, vec![b, c, d]),
        };
        if pen != Some(*from) {
            let _ = write!(data, "{}M{} {}", if pen.is_some() { "Z" } else { "" }, from.x, from.y);
        }
        data.push(['L', 'Q', 'C'][rest.len() - 1]);
        for (index, point) in rest.iter().enumerate() {
            let _ = write!(data, "{}{} {}", if index > 0 { " " } else { "" }, point.x, point.y);
        }
        pen = rest.last().map(|point| **point);
    }
    if pen.is_some() {
        data.push('Z');
    }
    data
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_add_up_and_scale() {
        assert!(is_there());
        let (a, b) = (width("latency", 8.0, false), width("latency", 16.0, false));
        assert!((b - 2.0 * a).abs() < 1e-9 && a > 20.0 && a < 40.0, "{a} {b}");
        assert!(width("latency", 8.0, true) > a, "bold is wider");
        assert!(width("AV", 8.0, false) < width("A", 8.0, false) + width("V", 8.0, false), "kerning");
    }

    #[test]
    fn outlines_are_closed_paths() {
        let (glyphs, _) = glyphs("i o", false);
        let paths: Vec<String> = glyphs.iter().map(|(glyph, _)| outline(*glyph)).collect();
        assert_eq!(paths[0].matches('M').count(), 2, "a stem and a dot: {}", paths[0]);
        assert_eq!(paths[0].matches('Z').count(), 2);
        assert!(paths[1].is_empty(), "a blank");
        assert_eq!(paths[2].matches('M').count(), 2, "a ring");
    }

    #[test]
    fn long_texts_end_in_an_ellipsis() {
        assert_eq!(fit("short", 8.0, 100.0), "short");
        let cut = fit("a rather long name of a model", 8.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 8.0, false) <= 60.0, "{cut}");
        assert_eq!(fit("x", 8.0, 0.0), "");
    }
}
