//! Export of figures and tables; the file's extension selects the format.

use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use study::analysis::{self, Axes, ComparisonReport, ConversionReport, OverlayPoint, ParetoPoint};
use study::plot::{self, Options, ParetoData, ProvenanceSummary};
use table::render::Sourced;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    Svg,
    Png,
    Csv,
}

impl FileKind {
    pub const ALL: [Self; 3] = [Self::Svg, Self::Png, Self::Csv];
    pub const FIGURES: [Self; 2] = [Self::Svg, Self::Png];

    pub fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Csv => "csv",
        }
    }

    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| kind.extension() == extension)
    }

    /// Kind of an output file. Returns an input error that lists `valid` for any other extension.
    pub fn check(path: &Path, valid: &[Self]) -> Result<Self> {
        Self::of(path).filter(|kind| valid.contains(kind)).ok_or_else(|| {
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            let valid: Vec<String> = valid.iter().map(|kind| format!(".{}", kind.extension())).collect();
            Error::input_help(
                format!(
                    "{}: unknown figure format '{}'; use .svg or .png",
                    path.display(),
                    extension.to_ascii_lowercase()
                ),
                format!("valid: {}", valid.join(", ")),
            )
        })
    }
}

/// Writes to the path or, if it exists, to the first free numbered name; returns the written path.
pub fn write_free(path: PathBuf, write: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let path = free(path);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    }
    write(&path)?;
    Ok(path)
}

/// Returns the path or, if it exists, the first free one of `name-2`, `name-3`, ...
fn free(path: PathBuf) -> PathBuf {
    if !path.exists() {
        return path;
    }
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let numbered = |n| path.with_file_name(format!("{stem}-{n}.{extension}"));
    (2..u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or(path.clone())
}

/// Writes Pareto points as a figure with external points, or as a table. Only a figure calls `provenance`. Returns an
/// error if there is nothing to draw.
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
        return Err(Error::input("nothing to plot: no finished runs"));
    }
    let data = ParetoData { points, axes, overlay: plot::overlay(others, points, axes) };
    plot::pareto_figure(&data, &provenance(), &Options::default())?.save(path)
}

/// Writes a comparison as a figure, or its pairs as a table. Only a figure calls `provenance`. Returns an error if
/// there is nothing to draw.
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
        return Err(Error::input("nothing to plot: no matched pairs"));
    }
    plot::comparison_figure(report, &provenance(), &Options::default())?.save(path)
}

/// Writes a conversion report as a figure, or its points as a table.
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
