//! PNG of a figure: its SVG rasterized by resvg, so that both look the same, with resolution and metadata.

use png::{BitDepth, ColorType, Encoder, PixelDimensions, Unit};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, Tree};

use super::options::POINTS;
use super::provenance::ProvenanceSummary;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    /// Rows from top to bottom, three bytes (red, green, blue) per pixel.
    pub rgb: Vec<u8>,
}

/// Rasterizes an SVG of `width` x `height` points at `dpi` pixels per inch.
pub fn paint(svg: &str, (width, height): (f64, f64), dpi: f64) -> Result<Pixels, String> {
    let tree = Tree::from_str(svg, &usvg::Options::default()).map_err(|e| e.to_string())?;
    let pixels = |points: f64| (points / POINTS * dpi).round().max(1.0);
    let (across, down) = (pixels(width), pixels(height));
    let mut map = Pixmap::new(across as u32, down as u32)
        .ok_or_else(|| format!("{across} x {down} pixels do not fit in memory"))?;
    let size = tree.size();
    let scale = (across as f32 / size.width(), down as f32 / size.height());
    resvg::render(&tree, Transform::from_scale(scale.0, scale.1), &mut map.as_mut());
    // the paper is opaque, so premultiplied and plain colours are equal
    let rgb = map.pixels().iter().flat_map(|p| [p.red(), p.green(), p.blue()]).collect();
    Ok(Pixels { width: map.width(), height: map.height(), rgb })
}

/// PNG file with eight bits per channel and no metadata.
pub fn png_file(
    (width, height): (u32, u32),
    channels: ColorType,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(channels);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|e| format!("png: {e}"))?;
    writer.write_image_data(bytes).map_err(|e| format!("png: {e}"))?;
    writer.finish().map_err(|e| format!("png: {e}"))?;
    Ok(file)
}

/// PNG file with the resolution in `pHYs`, and title and provenance in `iTXt`.
pub fn encode(
    pixels: &Pixels,
    dpi: u32,
    title: &str,
    provenance: &ProvenanceSummary,
) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, pixels.width, pixels.height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let per_metre = (f64::from(dpi) / 0.0254).round() as u32;
    encoder.set_pixel_dims(Some(PixelDimensions {
        xppu: per_metre,
        yppu: per_metre,
        unit: Unit::Meter,
    }));
    let texts = [("Title", title.to_owned()), ("Description", provenance.caption())];
    for (name, text) in texts.into_iter().chain(provenance.pairs()) {
        encoder.add_itxt_chunk(name.to_owned(), text).map_err(|e| e.to_string())?;
    }
    let mut writer = encoder.write_header().map_err(|e| e.to_string())?;
    writer.write_image_data(&pixels.rgb).map_err(|e| e.to_string())?;
    writer.finish().map_err(|e| e.to_string())?;
    Ok(file)
}
