//! Finished figure, and atomic writing of its files.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use super::options::Options;
use super::png::{self, Pixels};
use super::provenance::{ProvenanceSummary, Writer, without_places};
use super::scene::{Scene, Shape};
use super::svg::{Place, svg};
use base::atomic;
use base::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(super) scene: Scene,
    pub(super) provenance: ProvenanceSummary,
    pub(super) dpi: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            Some(other) => Err(Error::input_help(
                format!("{}: unknown figure format '{other}'", path.display()),
                "use a file name that ends in .svg or .png",
            )),
            None => Err(Error::input_help(
                format!("{}: no file extension to choose the format", path.display()),
                "use a file name that ends in .svg or .png",
            )),
        }
    }
}

/// Returns an error unless the extension is svg or png; called before any work.
pub fn check_format(path: &Path) -> Result<()> {
    Format::of(path).map(|_| ())
}

impl Figure {
    pub(super) fn new(mut scene: Scene, provenance: &ProvenanceSummary, options: &Options) -> Self {
        scene.title = without_places(&scene.title);
        scene.tips.iter_mut().for_each(|tip| tip.text = without_places(&tip.text));
        for shape in &mut scene.shapes {
            if let Shape::Text(text) = shape {
                text.text = without_places(&text.text);
            }
        }
        Self { scene, provenance: provenance.clone(), dpi: options.dpi }
    }

    /// Wraps a scene for a screen, without provenance.
    pub fn plain(scene: Scene) -> Self {
        Self { scene, provenance: ProvenanceSummary::default(), dpi: 72 }
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

    /// Standalone SVG document with embedded glyph outlines. Returns an error if the bundled font cannot be
    /// read.
    pub fn svg(&self) -> Result<String> {
        svg(&self.scene, &self.provenance, Place::File).ok_or_else(no_font)
    }

    /// SVG element for a page; `name` prefixes its ids to keep them unique. Colours follow the page's
    /// variables `--fig-ink`, `--fig-grey`, `--fig-grid` and `--fig-paper`. Returns an error if the bundled
    /// font cannot be read.
    pub fn element(&self, name: &str) -> Result<String> {
        svg(&self.scene, &self.provenance, Place::Page(name)).ok_or_else(no_font)
    }

    /// Rasterizes the figure at `width` pixels; the height follows from the aspect ratio. Returns an error if
    /// rasterizing fails.
    pub fn pixels(&self, width: u32) -> Result<Pixels> {
        let dpi = f64::from(width.max(1)) * super::options::POINTS / self.scene.width;
        self.painted(dpi).map_err(|reason| Error::failed(format!("painting the figure: {reason}")))
    }

    fn painted(&self, dpi: f64) -> Result<Pixels, String> {
        let svg = self.svg().map_err(|e| e.to_string())?;
        png::paint(&svg, (self.scene.width, self.scene.height), dpi)
    }

    /// Writes the figure in the format of the extension. Replaces an existing file atomically; writes
    /// directly to a device such as `/dev/stdout`.
    ///
    /// # Errors
    ///
    /// Returns an error if the extension is neither svg nor png or if rasterizing fails, and the errors of
    /// [`write()`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let format = Format::of(path)?;
        check_place(path)?;
        let mut provenance = self.provenance.clone();
        provenance.writer = Some(Writer::here());
        let bytes = match format {
            Format::Svg => svg(&self.scene, &provenance, Place::File).ok_or_else(no_font)?.into_bytes(),
            Format::Png => self
                .painted(f64::from(self.dpi))
                .and_then(|pixels| png::encode(&pixels, self.dpi, &self.scene.title, &provenance))
                .map_err(|reason| {
                    Error::failed(format!("{}: painting the figure failed: {reason}", path.display()))
                })?,
        };
        write(path, &bytes)
    }
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
    match path.is_dir() {
        true => Err(Error::input(format!("{}: is a directory", path.display()))),
        false => Ok(()),
    }
}

fn no_font() -> Error {
    Error::failed("the bundled font cannot be read")
}
