//! `ladderscope pareto [RUNS|DIR]`: the frontier of latency against throughput, at fixed latencies too,
//! what area one architecture gains over another, and points from elsewhere laid over it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::output::{self, Format, FormatArgs};
use super::{figure, pareto_rows as tables, report, runs};
use crate::analysis::{
    self, AreaGained, AreaOptions, AtLimit, Axes, OverlayPoint, ParetoPoint, XAxis, YAxis,
};
use crate::error::{Error, Result};
use crate::plot;

/// Rows of the table at fixed latencies, where `--at auto` chooses them.
const LIMITS: usize = 6;

/// Arguments of `pareto`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all of --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// Only runs that meet these conditions (as in `runs`)
    #[arg(long, value_name = "CONDITIONS")]
    pub filter: Option<String>,
    /// Only the points on the frontier
    #[arg(long)]
    pub frontier: bool,
    /// Horizontal axis: completion (latency), tpot, ttft, user (tokens/s/user: more is better)
    #[arg(long, value_name = "AXIS", default_value_t)]
    pub x: XAxis,
    /// Vertical axis: per-gpu (tokens/s/GPU), total (tokens/s)
    #[arg(long, value_name = "AXIS", default_value_t)]
    pub y: YAxis,
    /// Logarithmic axes for --area: x, y or xy
    #[arg(long, value_name = "AXES", num_args = 0..=1, default_missing_value = "xy", require_equals = true)]
    pub log: Option<LogAxes>,
    /// Best throughput of each architecture and P2P setting within these x values: 1000,2000; round ones without
    #[arg(long, value_name = "LIMITS", num_args = 0..=1, default_missing_value = "auto")]
    pub at: Option<Limits>,
    /// Area each architecture's frontier gains over that of standard, with its reference point and interval
    #[arg(long)]
    pub area: bool,
    /// Reference point of --area: x,y [default: a tenth beyond the worst x; 0 tokens/s, or a tenth below the worst if logarithmic]
    #[arg(long, value_name = "X,Y", requires = "area")]
    pub reference: Option<Reference>,
    /// Points from elsewhere beside the runs: 'published' (arXiv 2501.06589, 70B) or a CSV file; they join no frontier
    #[arg(long, value_name = "published|FILE")]
    pub overlay: Vec<String>,
    /// Also write a figure (.svg, .png) or the points (.csv)
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Which axes are logarithmic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogAxes {
    /// The horizontal one.
    pub x: bool,
    /// The vertical one.
    pub y: bool,
}

impl std::str::FromStr for LogAxes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "x" => Ok(Self { x: true, y: false }),
            "y" => Ok(Self { x: false, y: true }),
            "xy" | "yx" => Ok(Self { x: true, y: true }),
            _ => Err(Error::unknown("axes", text, ["x", "y", "xy"])),
        }
    }
}

/// At which x values.
#[derive(Clone, Debug, PartialEq)]
pub enum Limits {
    /// Round ones across the values of each group.
    Auto,
    /// These.
    Given(Vec<f64>),
}

impl std::str::FromStr for Limits {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.split(',').map(positive).collect::<Result<_>>().map(Self::Given)
    }
}

/// A reference point of areas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// x and y.
    pub place: (f64, f64),
}

impl std::str::FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::input_help(
                format!("'{text}' is no reference point"),
                "write x,y in the units of the axes, for example 30000,0",
            )
        };
        let (x, y) = text.split_once(',').ok_or_else(bad)?;
        let number = |part: &str| part.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
        Ok(Self { place: number(x).zip(number(y)).ok_or_else(bad)? })
    }
}

fn positive(text: &str) -> Result<f64> {
    let number = text.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0);
    number.ok_or_else(|| {
        Error::input_help(
            format!("'{text}' is no limit"),
            "write numbers above 0 in the unit of the x axis, separated by commas: 1000,2000",
        )
    })
}

/// What is printed as JSON where more than points is asked for.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    axes: Axes,
    points: &'a [ParetoPoint],
    /// null where not asked for.
    at: Option<&'a [AtLimit]>,
    area: Option<&'a [AreaGained]>,
    overlay: Option<&'a [OverlayPoint]>,
}

/// Prints the points.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let export =
        args.export.as_deref().map(|path| Ok((path, export_format(path, &["svg", "png", "csv"])?)));
    let export = export.transpose()?;
    let overlay = read_overlays(&args.overlay)?;
    let options = area_options(args)?;
    let axes = Axes { x: args.x, y: args.y };
    let records = runs::filtered(runs::select(&args.runs, &dir)?, args.filter.as_deref(), None)?;
    let mut points = analysis::pareto_on(&records, axes);
    if points.is_empty() {
        report::note("no finished runs, so no frontier; `ladderscope runs` lists what is stored");
    }
    let x = |point: &ParetoPoint| axes.x.of(point).unwrap_or(f64::INFINITY);
    points.sort_by(|a, b| a.group.cmp(&b.group).then(x(a).total_cmp(&x(b))));
    if let Some((path, format)) = export {
        // The figure shows all points, the frontier among them.
        match format {
            "csv" => plot::write(path, analysis::points_csv(&points).as_bytes())?,
            _ if points.is_empty() => {
                return Err(Error::input("there is nothing to draw: no finished runs"));
            }
            _ if axes != Axes::default() => {
                return Err(Error::input_help(
                    format!(
                        "--export {}: the figure is of completion latency against tokens/s per GPU, not of \
                         {axes_x} against {axes_y}",
                        path.display(),
                        axes_x = axes.x,
                        axes_y = axes.y
                    ),
                    "write the points of other axes as .csv",
                ));
            }
            _ => {
                let facts = figure::facts(&records, &figure::stores(&args.runs, &dir));
                let overlay = plot::overlay(&overlay, &points);
                let data = plot::ParetoData { points: &points, overlay };
                plot::pareto_figure(&data, &facts, &plot::Options::default())?.save(path)?;
            }
        }
        report::note(&format!("wrote {}", path.display()));
    }
    let at = args.at.as_ref().map(|limits| at(&points, axes, limits));
    let area = args.area.then(|| analysis::area_gained(&records, options, None));
    let overlay = (!args.overlay.is_empty()).then_some(overlay);
    if args.frontier {
        points.retain(|point| point.on_frontier);
    }
    match args.output.format {
        Format::Json if at.is_none() && area.is_none() && overlay.is_none() => output::json(&points)?,
        Format::Json => output::json(&Answer {
            axes,
            points: &points,
            at: at.as_deref(),
            area: area.as_deref(),
            overlay: overlay.as_deref(),
        })?,
        Format::Csv => output::emit(&csv(&points, at.as_deref(), area.as_deref()))?,
        Format::Table => {
            output::emit(&text(axes, &points, at.as_deref(), area.as_deref(), overlay.as_deref()))?;
        }
    }
    Ok(0)
}

fn area_options(args: &Args) -> Result<AreaOptions> {
    let log = args.log.unwrap_or_default();
    let reference = args.reference.map(|reference| reference.place);
    if let Some((x, y)) = reference
        && ((log.x && x == 0.0) || (log.y && y == 0.0))
    {
        return Err(Error::input_help(
            format!("--reference {x},{y}: 0 has no place on a logarithmic axis"),
            "write a number above 0",
        ));
    }
    let axes = Axes { x: args.x, y: args.y };
    Ok(AreaOptions { axes, log_x: log.x, log_y: log.y, reference })
}

/// Points of all overlays that were named.
pub fn read_overlays(names: &[String]) -> Result<Vec<OverlayPoint>> {
    let mut points = Vec::new();
    for name in names {
        points.extend(match name.as_str() {
            "published" => analysis::published()?,
            path => analysis::read_overlay(Path::new(path))?,
        });
    }
    Ok(points)
}

/// The table at limits: those given, or round ones for each group.
fn at(points: &[ParetoPoint], axes: Axes, limits: &Limits) -> Vec<AtLimit> {
    match limits {
        Limits::Given(limits) => analysis::at_limits(points, axes, limits),
        Limits::Auto => points
            .chunk_by(|a, b| a.group == b.group)
            .flat_map(|group| {
                analysis::at_limits(group, axes, &analysis::round_limits(group, axes, LIMITS))
            })
            .collect(),
    }
}

/// One table: the most particular of those asked for.
fn csv(points: &[ParetoPoint], at: Option<&[AtLimit]>, area: Option<&[AreaGained]>) -> String {
    match (area, at) {
        (Some(area), _) => tables::areas(area).csv(),
        (None, Some(at)) => tables::limits(at).csv(),
        (None, None) => analysis::points_csv(points),
    }
}

/// Tables for people, a block a group: points of different groups are not comparable.
fn text(
    axes: Axes,
    points: &[ParetoPoint],
    at: Option<&[AtLimit]>,
    area: Option<&[AreaGained]>,
    overlay: Option<&[OverlayPoint]>,
) -> String {
    let mut text = String::new();
    for group in points.chunk_by(|a, b| a.group == b.group) {
        let (name, spec) = (&group[0].group, &group[0].spec);
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{name}\n{}", tables::people(axes, group));
        if let Some(at) = at {
            let mine: Vec<&AtLimit> = at.iter().filter(|row| row.group == *name).collect();
            text += &tables::limits_for_people(axes, &mine);
        }
        if let Some(area) = area {
            let mine: Vec<&AreaGained> = area.iter().filter(|row| row.group == *name).collect();
            text += &tables::areas_for_people(axes, &mine);
        }
        if let Some(overlay) = overlay {
            let mine: Vec<&OverlayPoint> = overlay.iter().filter(|p| p.goes_with(spec)).collect();
            text += &tables::overlay_for_people(axes, &mine);
        }
    }
    text
}

/// The extension of an export, if it is one of `valid`.
pub fn export_format<'a>(path: &Path, valid: &[&'a str]) -> Result<&'a str> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    valid.iter().find(|format| **format == extension).copied().ok_or_else(|| {
        Error::input_help(
            format!(
                "--export {}: the format follows from the extension, and '{extension}' is none",
                path.display()
            ),
            format!("valid: .{}", valid.join(", .")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_export_format_follows_from_the_extension() {
        assert_eq!(export_format(Path::new("a/b.SVG"), &["svg", "png"]).ok(), Some("svg"));
        for path in ["figure", "figure.pdf", "svg"] {
            let error = export_format(Path::new(path), &["svg", "png"]).err();
            assert_eq!(error.map(|e| e.exit_code()), Some(2), "{path}");
        }
    }

    #[test]
    fn limits_and_references_are_numbers() {
        assert_eq!("1000,2e3".parse::<Limits>().ok(), Some(Limits::Given(vec![1000.0, 2000.0])));
        assert_eq!("auto".parse::<Limits>().ok(), Some(Limits::Auto));
        assert_eq!("30000,0".parse::<Reference>().ok().map(|r| r.place), Some((30000.0, 0.0)));
        for bad in ["", "1,,2", "-1", "soon"] {
            assert_eq!(bad.parse::<Limits>().map_err(|e| e.exit_code()).err(), Some(2), "{bad}");
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }
}
