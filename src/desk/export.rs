//! What is shown as a file: a figure or a table, by the file's extension.

use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use study::analysis::{self, Axes, ComparisonReport, ConversionReport, OverlayPoint, ParetoPoint};
use study::plot::{self, Options, ParetoData, ProvenanceSummary};
use table::render::Sourced;

/// Kinds of exported files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A figure of lines and outlines, sharp at every size.
    Svg,
    /// A figure of pixels, with its resolution.
    Png,
    /// A table of what is shown, fields separated by commas.
    Csv,
}

impl FileKind {
    /// All kinds of file, in the order in which messages name them.
    pub const ALL: [Self; 3] = [Self::Svg, Self::Png, Self::Csv];
    /// The kinds of file that hold a picture.
    pub const FIGURES: [Self; 2] = [Self::Svg, Self::Png];

    /// The extension by which a file is of this kind.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Csv => "csv",
        }
    }

    /// The kind of a file, by its extension.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| kind.extension() == extension)
    }

    /// The kind of a file that `--export` names, if it is one of `valid`.
    ///
    /// # Errors
    ///
    /// An input error for another extension than those of `valid`, which it lists.
    pub fn check(path: &Path, valid: &[Self]) -> Result<Self> {
        Self::of(path).filter(|kind| valid.contains(kind)).ok_or_else(|| {
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            let valid: Vec<String> = valid.iter().map(|kind| format!(".{}", kind.extension())).collect();
            Error::input_help(
                format!(
                    "--export {}: the format follows from the extension, and '{}' is none",
                    path.display(),
                    extension.to_ascii_lowercase()
                ),
                format!("valid: {}", valid.join(", ")),
            )
        })
    }
}

/// Writes to the path, or where there is such a file to the first free name beside it; the file that was
/// written. Directories on the way are made.
///
/// # Errors
///
/// A failure where a directory cannot be made, and whatever `write` gives.
pub fn write_free(path: PathBuf, write: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let path = free(path);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    }
    write(&path)?;
    Ok(path)
}

/// The path, or where there is such a file the first free one of `name-2`, `name-3`, ...
fn free(path: PathBuf) -> PathBuf {
    if !path.exists() {
        return path;
    }
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let numbered = |n| path.with_file_name(format!("{stem}-{n}.{extension}"));
    (2..u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or(path.clone())
}

/// Writes points of a frontier: their figure with points from elsewhere beside them, or a table. `provenance`
/// is asked where a figure says where its numbers come from.
///
/// # Errors
///
/// Where there is nothing to draw, and where the file cannot be written.
pub fn pareto(
    path: &Path,
    points: &[ParetoPoint],
    axes: Axes,
    others: &[OverlayPoint],
    provenance: impl FnOnce() -> ProvenanceSummary,
) -> Result<()> {
    if FileKind::of(path) == Some(FileKind::Csv) {
        return plot::write(path, analysis::points_table(points, axes).csv(Sourced::ByRow).as_bytes());
    }
    plot::check_format(path)?;
    if points.is_empty() {
        return Err(Error::input("there is nothing to draw: no finished runs"));
    }
    let data = ParetoData { points, axes, overlay: plot::overlay(others, points, axes) };
    plot::pareto_figure(&data, &provenance(), &Options::default())?.save(path)
}

/// Writes a comparison: its figure, or the pairs as a table. See [`pareto`] for `provenance`.
///
/// # Errors
///
/// Where there is nothing to draw, and where the file cannot be written.
pub fn comparison(
    path: &Path,
    report: &ComparisonReport,
    provenance: impl FnOnce() -> ProvenanceSummary,
) -> Result<()> {
    if FileKind::of(path) == Some(FileKind::Csv) {
        return plot::write(path, analysis::pairs_table(report).csv(Sourced::ByRow).as_bytes());
    }
    plot::check_format(path)?;
    if report.pairs.is_empty() {
        return Err(Error::input("there is nothing to draw: no pairs"));
    }
    plot::comparison_figure(report, &provenance(), &Options::default())?.save(path)
}

/// Writes what converting layers costs and gives: its figure, or its points as a table.
///
/// # Errors
///
/// Where there is nothing to draw, and where the file cannot be written.
pub fn conversion(path: &Path, report: &ConversionReport, options: &Options) -> Result<()> {
    if FileKind::of(path) == Some(FileKind::Csv) {
        return plot::write(path, report.file().csv(Sourced::ByRow).as_bytes());
    }
    plot::conversion_figure(report, options)?.save(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_export_format_follows_from_the_extension() {
        let check = |path: &str| FileKind::check(Path::new(path), &FileKind::FIGURES);
        assert_eq!(check("a/b.SVG").ok(), Some(FileKind::Svg));
        for path in ["figure", "figure.pdf", "svg", "points.csv"] {
            assert_eq!(check(path).err().map(|e| e.exit_code()), Some(2), "{path}");
        }
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pareto.svg");
        assert_eq!(free(path.clone()), path);
        std::fs::write(&path, "").unwrap();
        assert_eq!(free(path.clone()), dir.path().join("pareto-2.svg"));
        std::fs::write(dir.path().join("pareto-2.svg"), "").unwrap();
        assert_eq!(free(path), dir.path().join("pareto-3.svg"));
    }
}
