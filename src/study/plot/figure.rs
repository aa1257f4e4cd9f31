//! A finished figure, and its files: whole or not there at all.

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

/// A figure, laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(super) scene: Scene,
    pub(super) provenance: ProvenanceSummary,
    pub(super) dpi: u32,
}

/// What a figure can be written as.
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

/// Refuses a path whose extension is neither svg nor png, before any work is done.
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

    /// A scene as it is, for a screen: nothing in it says where its numbers come from.
    pub fn plain(scene: Scene) -> Self {
        Self { scene, provenance: ProvenanceSummary::default(), dpi: 72 }
    }

    /// The figure's title: what it shows, of which model and workload.
    pub fn title(&self) -> &str {
        &self.scene.title
    }

    /// Its height over its width.
    pub fn aspect(&self) -> f64 {
        self.scene.height / self.scene.width
    }

    /// The line under it: where its numbers come from.
    pub fn caption(&self) -> String {
        self.provenance.caption()
    }

    /// The figure as an SVG document of its own, the font's outlines included. Fails where the bundled
    /// font cannot be read.
    pub fn svg(&self) -> Result<String> {
        svg(&self.scene, &self.provenance, Place::File).ok_or_else(no_font)
    }

    /// The figure as an element of a page, whose `name` keeps its ids apart from other figures'. Ink and paper
    /// follow the page's `--fig-ink`, `--fig-grey`, `--fig-grid` and `--fig-paper`. Fails where the bundled
    /// font cannot be read.
    pub fn element(&self, name: &str) -> Result<String> {
        svg(&self.scene, &self.provenance, Place::Page(name)).ok_or_else(no_font)
    }

    /// The figure as pixels, `width` of them across; the height follows from the figure's shape.
    /// Fails where painting fails.
    pub fn pixels(&self, width: u32) -> Result<Pixels> {
        let dpi = f64::from(width.max(1)) * super::options::POINTS / self.scene.width;
        self.painted(dpi).map_err(|reason| Error::failed(format!("painting the figure: {reason}")))
    }

    fn painted(&self, dpi: f64) -> Result<Pixels, String> {
        let svg = self.svg().map_err(|e| e.to_string())?;
        png::paint(&svg, (self.scene.width, self.scene.height), dpi)
    }

    /// Writes the figure; the format follows from the extension. The file is replaced only by a whole
    /// one. A device (`/dev/stdout`) is written to as it is.
    ///
    /// # Errors
    ///
    /// An input error for another extension than svg and png; a failure where painting fails; else
    /// the errors of [`write()`].
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

/// Writes a file that is there whole or not at all; what is no plain file (a device, a pipe) cannot be
/// replaced, and is written to.
///
/// # Errors
///
/// An input error where the directory of the file is not there, since a mistyped path is to be refused,
/// or where a directory stands in the file's place; a failure where writing fails.
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

/// Fails, as [`write()`] does, where no file can be put at a path: before the work of painting one.
fn check_place(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = parent.filter(|dir| !dir.exists()) {
        return Err(Error::input_help(
            format!("{}: there is no directory {}", path.display(), dir.display()),
            "make it, or name another place",
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
