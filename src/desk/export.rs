//! Export of figures and tables; the file's extension selects the format.
//!
//! Export of stored runs as one Parquet file for notebooks: one row per run, one column per option and measure, with
//! units in the metadata of the file and of its columns.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use polars_core::prelude::{
    Column as Series, DataFrame, Int64Chunked, IntoColumn, PolarsError, PolarsResult, TimeUnit, TimeZone,
};
use serde_json::{Map, Value, json};

use base::atomic::AtomicFile;
use base::error::{Error, Result};
use base::parquet;
use study::analysis::{self, ComparisonReport, ConversionReport, RunCell, RunTable, RunTableColumn};
use study::plot::{self, FigureOptions, ParetoData, ProvenanceSummary};
use table::options::OptionKind;
use table::render::Sourced;
use table::{FieldSource, Record};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    Svg,
    Png,
    Csv,
    /// Page of a trace.
    Html,
}

impl FileKind {
    /// Kinds of figures and tables.
    pub const ALL: [Self; 3] = [Self::Svg, Self::Png, Self::Csv];
    pub const FIGURES: [Self; 2] = [Self::Svg, Self::Png];

    pub fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Csv => "csv",
            Self::Html => "html",
        }
    }

    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL.into_iter().chain([Self::Html]).find(|kind| kind.extension() == extension)
    }

    /// Kind of an output file. Returns an input error that lists `valid` for any other extension.
    pub fn check(path: &Path, valid: &[Self]) -> Result<Self> {
        Self::from_path(path).filter(|kind| valid.contains(kind)).ok_or_else(|| {
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
    let path = free_path(path);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    }
    write(&path)?;
    Ok(path)
}

/// Returns the path or, if it exists, the first free one of `name-2`, `name-3`, ...
fn free_path(path: PathBuf) -> PathBuf {
    if !path.exists() {
        return path;
    }
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let numbered = |n| path.with_file_name(format!("{stem}-{n}.{extension}"));
    (2..u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or(path.clone())
}

/// Writes Pareto points as a figure with external points and limits, or as a table. Only a figure calls `provenance`.
/// Returns an error if there is nothing to draw.
pub fn pareto(
    path: &Path,
    data: &ParetoData<'_>,
    provenance: impl FnOnce() -> ProvenanceSummary,
) -> Result<()> {
    if FileKind::from_path(path) == Some(FileKind::Csv) {
        let table = analysis::points_table(data.points, data.axes);
        return plot::write(path, table.csv(Sourced::ByRow).as_bytes());
    }
    plot::check_format(path)?;
    if data.points.is_empty() {
        return Err(Error::input("nothing to plot: no finished runs"));
    }
    plot::pareto_figure(data, &provenance(), &FigureOptions::default())?.save(path)
}

/// Writes a comparison as a figure, or its pairs as a table. Only a figure calls `provenance`. Returns an error if
/// there is nothing to draw.
pub fn comparison(
    path: &Path,
    report: &ComparisonReport,
    provenance: impl FnOnce() -> ProvenanceSummary,
) -> Result<()> {
    if FileKind::from_path(path) == Some(FileKind::Csv) {
        return plot::write(path, analysis::pairs_table(report).csv(Sourced::ByRow).as_bytes());
    }
    plot::check_format(path)?;
    if report.pairs.is_empty() {
        return Err(Error::input("nothing to plot: no matched pairs"));
    }
    plot::comparison_figure(report, &provenance(), &FigureOptions::default())?.save(path)
}

/// Writes a conversion report as a figure, or its points as a table.
pub fn conversion(path: &Path, report: &ConversionReport, options: &FigureOptions) -> Result<()> {
    if FileKind::from_path(path) == Some(FileKind::Csv) {
        return plot::write(path, report.file().csv(Sourced::ByRow).as_bytes());
    }
    plot::conversion_figure(report, options)?.save(path)
}

/// Version of the Parquet file.
const FORMAT_VERSION: u32 = 2;

/// Rows per Parquet row group.
const ROW_GROUP: usize = 1 << 18;

const VERSION_KEY: &str = "ladderscope.runs";

/// Metadata key of a JSON object with the title and, for numbers, the unit of each column.
const COLUMNS_KEY: &str = "ladderscope.columns";

/// Writes some rows of the run table atomically; returns the number of columns. Returns an input error for an
/// extension other than `.parquet`.
pub fn runs(path: &Path, records: &[Record], table: &RunTable, rows: &[u32]) -> Result<usize> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !extension.eq_ignore_ascii_case("parquet") {
        return Err(Error::input_help(
            format!("{}: runs are exported as Parquet; use a .parquet file name", path.display()),
            "`ladderscope runs --format csv` and `--format json` print the same runs as text",
        ));
    }
    let columns: Vec<&RunTableColumn> = table
        .csv_columns()
        .into_iter()
        .filter_map(|at| table.columns().get(at))
        .map(AsRef::as_ref)
        .collect();
    let failed = |e: PolarsError| Error::failed(format!("{}: {e}", path.display()));
    let series = columns.iter().map(|column| series(column, records, rows)).collect();
    let frame = DataFrame::new(rows.len(), series).map_err(failed)?;
    let described: Map<String, Value> =
        columns.iter().map(|column| (column.field.name.to_string(), column_metadata(column))).collect();
    let metadata = vec![
        (VERSION_KEY.to_owned(), FORMAT_VERSION.to_string()),
        (COLUMNS_KEY.to_owned(), Value::Object(described).to_string()),
    ];
    let mut file = AtomicFile::create_all(path)?;
    let sink = file.file_mut().try_clone().map_err(Error::io(path))?;
    let unit = |name: &str| {
        let column = columns.iter().find(|column| column.field.name == name)?;
        column.field.unit.is_number().then(|| column.field.unit.in_files())
    };
    let write = || -> PolarsResult<()> {
        let mut writer = parquet::writer(sink, frame.schema(), 3, unit, metadata)?;
        for first in (0..frame.height()).step_by(ROW_GROUP) {
            writer.write_batch(&frame.slice(first as i64, ROW_GROUP))?;
        }
        writer.finish().map(drop)
    };
    write().map_err(failed)?;
    file.flush().map_err(Error::io(path))?;
    file.finish()?;
    Ok(columns.len())
}

const CREATED: &str = "created";

/// Values of a column. Whole numbers are Int64, those that may need 64 bits UInt64, other numbers Float64, flags
/// booleans, times microseconds since 1970, everything else text; missing values are null.
fn series(column: &RunTableColumn, records: &[Record], rows: &[u32]) -> Series {
    let name = column.field.name.as_ref().into();
    if let Some(option) = column.field.large_option() {
        let number = |row: &u32| option.number(&records.get(*row as usize)?.spec);
        return Series::new(name, rows.iter().map(number).collect::<Vec<_>>());
    }
    let number = |row: &u32| match column.cell(*row as usize) {
        RunCell::Number(value) => Some(value),
        _ => None,
    };
    if column.field.unit.is_whole() {
        // counts and bytes are below 2^53, so a table's f64 holds them exactly
        return Series::new(
            name,
            rows.iter().map(|row| number(row).map(|n| n as i64)).collect::<Vec<_>>(),
        );
    }
    if column.field.unit.is_number() {
        return Series::new(name, rows.iter().map(number).collect::<Vec<_>>());
    }
    let text = |row: &u32| match column.cell(*row as usize) {
        RunCell::Text(text) => Some(text),
        _ => None,
    };
    if column.field.name == CREATED {
        let time = |row: &u32| Some(text(row)?.parse::<Timestamp>().ok()?.as_microsecond());
        let times: Int64Chunked = rows.iter().map(time).collect();
        let times = times.into_datetime(TimeUnit::Microseconds, Some(TimeZone::UTC));
        return times.into_column().with_name(name);
    }
    if matches!(column.field.source, FieldSource::Option(option) if option.kind == OptionKind::Flag) {
        let is_set = |row: &u32| text(row).map(|text| text == "true");
        return Series::new(name, rows.iter().map(is_set).collect::<Vec<_>>());
    }
    Series::new(name, rows.iter().map(text).collect::<Vec<_>>())
}

/// Metadata of a column: title and unit.
fn column_metadata(column: &RunTableColumn) -> Value {
    let (title, unit) = (column.field.title.as_ref(), column.field.unit);
    match unit.is_number() {
        true => json!({ "title": title, "unit": unit.in_files() }),
        false => json!({ "title": title }),
    }
}

#[cfg(test)]
mod tests {
    use polars_core::prelude::{ArrowDataType, ArrowTimeUnit};

    use super::*;
    use base::parquet::ParquetFile;
    use lab::store::Annotations;
    use table::testing::record;

    #[test]
    fn the_export_format_follows_from_the_extension() {
        let check = |path: &str| FileKind::check(Path::new(path), &FileKind::FIGURES);
        assert_eq!(check("a/b.SVG").ok(), Some(FileKind::Svg));
        for path in ["figure", "figure.pdf", "svg", "points.csv"] {
            assert_eq!(check(path).err().map(|e| e.exit_code()), Some(2), "{path}");
        }
    }

    #[test]
    fn an_existing_file_gets_a_numbered_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pareto.svg");
        assert_eq!(free_path(path.clone()), path);
        std::fs::write(&path, "").unwrap();
        assert_eq!(free_path(path.clone()), dir.path().join("pareto-2.svg"));
        std::fs::write(dir.path().join("pareto-2.svg"), "").unwrap();
        assert_eq!(free_path(path), dir.path().join("pareto-3.svg"));
    }

    #[test]
    fn the_parquet_file_has_exact_numbers_and_units() {
        let records = [
            record("a", |s| s.tp = 4, 0, &[(1.25, 2.5)]),
            record("b", |s| s.seed = u64::MAX, 0, &[(3.0, 4.0)]),
        ];
        let table = RunTable::new(&records, &Annotations::default());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x/runs.parquet");
        let columns = runs(&path, &records, &table, &[1, 0]).unwrap();
        let file = ParquetFile::open(std::fs::read(&path).unwrap()).unwrap();
        let of = |key: &str| file.entry(key).unwrap();
        assert_eq!(of(VERSION_KEY), "2");
        let described: Value = serde_json::from_str(of(COLUMNS_KEY)).unwrap();
        assert_eq!(described["prefill_ms"]["unit"], "ms");
        assert_eq!(described["tokens_per_s"]["unit"], "tokens/s");
        assert!(described["model"].get("unit").is_none());
        let created = &file.schema().get(CREATED).unwrap().dtype;
        assert_eq!(*created, ArrowDataType::Timestamp(ArrowTimeUnit::Microsecond, Some("UTC".into())));
        let names: Vec<&str> = file.schema().iter_names().map(|name| name.as_str()).collect();
        let frame = file.columns(&names, 0..usize::MAX).unwrap();
        assert_eq!((frame.height(), frame.width()), (2, columns));
        let prefill: Vec<Option<f64>> =
            frame.column("prefill_ms").unwrap().f64().unwrap().iter().collect();
        assert_eq!(prefill, [Some(3.0), Some(1.25)], "in the order asked for");
        let tp: Vec<Option<i64>> = frame.column("tp").unwrap().i64().unwrap().iter().collect();
        assert_eq!(tp[1], Some(4));
        let seeds: Vec<Option<u64>> = frame.column("seed").unwrap().u64().unwrap().iter().collect();
        assert_eq!(seeds[0], Some(u64::MAX), "to the last digit");
        assert_eq!(frame.column("overlap_pct").unwrap().null_count(), 2);
        assert_eq!(described.as_object().unwrap().len(), columns);
    }

    #[test]
    fn another_extension_is_refused_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.xlsx");
        let error = runs(&path, &[], &RunTable::default(), &[]).unwrap_err().to_string();
        assert!(error.contains("runs.xlsx") && error.contains(".parquet"), "{error}");
        assert!(!path.exists());
    }
}
