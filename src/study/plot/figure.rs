//! Finished figure, and atomic writing of its files.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use png::{BitDepth, ColorType, Compression, Encoder, PixelDimensions, Unit};

use super::paint::{self, FINE, Pixels};
use super::provenance::{ProvenanceSummary, Writer, without_places};
use super::scene::{Scene, SceneShape, Tip};
use super::style::{hex, page_color};
use base::atomic;
use base::error::{Error, Result};
use base::text::escape;

#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(super) scene: Scene,
    pub(super) provenance: ProvenanceSummary,
    pub(super) dpi: u32,
}

/// True for an SVG file, false for a PNG file, by the extension.
fn is_svg(path: &Path) -> Result<bool> {
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    let problem = match extension.as_deref() {
        Some("svg") => return Ok(true),
        Some("png") => return Ok(false),
        Some(other) => format!("unknown figure format '{other}'"),
        None => "no file extension to choose the format".into(),
    };
    let problem = format!("{}: {problem}", path.display());
    Err(Error::input_help(problem, "use a file name that ends in .svg or .png"))
}

/// Returns an error unless the extension is svg or png; called before any work.
pub fn check_format(path: &Path) -> Result<()> {
    is_svg(path).map(|_| ())
}

impl Figure {
    pub(super) fn new(
        mut scene: Scene,
        provenance: &ProvenanceSummary,
        options: &FigureOptions,
    ) -> Self {
        scene.title = without_places(&scene.title);
        scene.tips.iter_mut().for_each(|tip| tip.text = without_places(&tip.text));
        for shape in &mut scene.shapes {
            if let SceneShape::Text(text) = shape {
                text.text = without_places(&text.text);
            }
        }
        Self { scene, provenance: provenance.clone(), dpi: options.dpi }
    }

    pub fn title(&self) -> &str {
        &self.scene.title
    }

    pub fn aspect(&self) -> f64 {
        self.scene.height / self.scene.width
    }

    pub fn caption(&self) -> String {
        self.provenance.caption()
    }

    /// Standalone SVG document with metadata. Returns an error if painting fails.
    pub fn svg(&self) -> Result<String> {
        self.svg_from(&self.provenance)
    }

    fn svg_from(&self, provenance: &ProvenanceSummary) -> Result<String> {
        let mut metadata = String::from(
            "<metadata><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" \
             xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><rdf:Description rdf:about=\"\">\n",
        );
        let texts = [("title", self.scene.title.clone()), ("description", provenance.caption())];
        let pairs = provenance.pairs().into_iter().map(|(name, value)| match name {
            "Provenance" => ("source", value),
            "Software" => ("creator", value),
            "Creation Time" => ("date", value),
            _ => ("coverage", format!("{name}: {value}")),
        });
        for (element, text) in texts.into_iter().chain(pairs) {
            metadata += &format!("<dc:{element}>{}</dc:{element}>\n", escape(&text));
        }
        metadata += "</rdf:Description></rdf:RDF></metadata>\n";
        let (elements, size) = paint::svg(&self.scene)?;
        Ok(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}",
            self.document(size, &(metadata + &elements))
        ))
    }

    /// SVG element for a page. Colours follow the page's variables `--fig-ink`, `--fig-grey`, `--fig-grid`
    /// and `--fig-paper`. Returns an error if painting fails.
    pub fn element(&self) -> Result<String> {
        let (mut elements, size) = paint::svg(&self.scene)?;
        for color in self.scene.colors() {
            let hex = hex(color);
            elements = elements.replace(&format!("\"{hex}\""), &format!("\"{}\"", page_color(color)));
        }
        Ok(self.document(size, &elements))
    }

    /// SVG element of the painted elements, with tooltips above them.
    fn document(&self, (width, height): (u32, u32), elements: &str) -> String {
        let inches = |points: f64| (points / POINTS * 1e4).round() / 1e4;
        let unit = |points: f64| (points * FINE).round();
        let tip = |tip: &Tip| {
            let (x, y, r) = (unit(tip.at.0), unit(tip.at.1), unit(tip.radius));
            let title = escape(&tip.text);
            format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"><title>{title}</title></circle>\n")
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}in\" height=\"{}in\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n\
             {elements}<g fill=\"#000000\" fill-opacity=\"0\">\n{}</g>\n</svg>\n",
            inches(self.scene.width),
            inches(self.scene.height),
            escape(&self.scene.title),
            escape(&self.caption()),
            self.scene.tips.iter().map(tip).collect::<String>()
        )
    }

    /// Paints the figure at `width` pixels; the height follows from the aspect ratio. Returns an error if
    /// painting fails.
    pub fn pixels(&self, width: u32) -> Result<Pixels> {
        paint::pixels(&self.scene, f64::from(width.max(1)) * POINTS / self.scene.width)
    }

    /// Writes the figure in the format of the extension. Replaces an existing file atomically; writes
    /// directly to a device such as `/dev/stdout`.
    ///
    /// # Errors
    ///
    /// Returns an error if the extension is neither svg nor png or if painting fails, and the errors of
    /// [`write()`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let is_svg = is_svg(path)?;
        check_place(path)?;
        let mut provenance = self.provenance.clone();
        provenance.writer = Some(Writer::here());
        let bytes = match is_svg {
            true => self.svg_from(&provenance)?.into_bytes(),
            false => {
                let pixels = paint::pixels(&self.scene, f64::from(self.dpi))?;
                let texts = [("Title", self.scene.title.clone()), ("Description", self.caption())];
                let texts = texts.into_iter().chain(provenance.pairs());
                let size = (pixels.width, pixels.height);
                png_file(size, ColorType::Rgb, &pixels.rgb, Some(self.dpi), texts)?
            }
        };
        write(path, &bytes)
    }
}

/// PNG file with eight bits per channel, its resolution in `pHYs`, and texts by keyword in `iTXt`.
pub fn png_file(
    (width, height): (u32, u32),
    channels: ColorType,
    bytes: &[u8],
    dpi: Option<u32>,
    texts: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<Vec<u8>> {
    let failed = |error: png::EncodingError| Error::failed(format!("png: {error}"));
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(channels);
    encoder.set_depth(BitDepth::Eight);
    // files of figures are kept, those for terminals shown at once
    encoder.set_compression(if dpi.is_some() { Compression::High } else { Compression::Balanced });
    encoder.set_pixel_dims(dpi.map(|dpi| {
        let per_metre = (f64::from(dpi) / 0.0254).round() as u32;
        PixelDimensions { xppu: per_metre, yppu: per_metre, unit: Unit::Meter }
    }));
    for (name, text) in texts {
        encoder.add_itxt_chunk(name.to_owned(), text).map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(bytes).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

/// Writes a file atomically; writes directly to devices and pipes, which cannot be replaced.
///
/// # Errors
///
/// Returns an error if the parent directory does not exist (probably a mistyped path), if the path is a
/// directory, or if writing fails.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    check_place(path)?;
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.and_then(|mut file| file.write_all(bytes)).map_err(Error::io(path))
        }
        _ => atomic::write(path, bytes),
    }
}

/// Fails like [`write()`] if no file can be created at the path; called before rasterizing.
fn check_place(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = parent.filter(|dir| !dir.exists()) {
        return Err(Error::input_help(
            format!("{}: no such directory: {}", path.display(), dir.display()),
            "create it first, or write elsewhere",
        ));
    }
    if path.is_dir() { Err(Error::input(format!("{}: is a directory", path.display()))) } else { Ok(()) }
}

/// Points per inch.
pub const POINTS: f64 = 72.0;

/// Column width of common two-column styles, in inches (ACM, IEEE, USENIX: 3.33; ICML, MLSys: 3.25).
const COLUMN: f64 = 3.33;
/// Width of both columns, or of a one-column page, in inches.
const PAGE: f64 = 6.9;

/// Maximum pixels of a PNG, to bound memory.
const MOST_PIXELS: f64 = 1.5e8;

/// Size, resolution and text size of a figure. The text size does not scale with the figure.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub struct FigureOptions {
    /// Size in inches, such as 3.3x2.5; a width alone, column (3.33) or page (6.9) fits the height to the content
    #[arg(long, value_name = "SIZE", default_value = "page")]
    pub size: Size,
    /// PNG resolution, in pixels per inch
    #[arg(long, value_name = "DPI", default_value_t = 300)]
    pub dpi: u32,
    // of labels; ticks and captions are a little smaller
    /// Font size in points, independent of the size of the figure
    #[arg(long, value_name = "POINTS", default_value_t = 8.0)]
    pub font: f64,
}

impl Default for FigureOptions {
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

impl FigureOptions {
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
        let with = |change: fn(&mut FigureOptions)| {
            let mut options = FigureOptions::default();
            change(&mut options);
            options.check().is_ok()
        };
        assert!(with(|_| ()));
        assert!(!with(|o| o.dpi = 10) && !with(|o| o.font = 2.0));
        assert!(!with(|o| (o.size, o.dpi) = (Size { width: 60.0, height: None }, 2400)));
    }
}
