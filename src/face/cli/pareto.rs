//! `ladderscope pareto [RUNS|DIR]`: frontier of latency against throughput, with values at fixed latencies, area
//! gained by an architecture, and external points.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::filter::FilterArgs;
use super::output::{self, FormatArgs, OutputFormat};
use super::stderr;
use crate::desk::Stores;
use crate::desk::export::{self, FileKind};
use base::error::{Error, Result};
use base::text::counted;
use study::analysis::{
    self, AreaGained, AreaOptions, AtLimit, Axes, OverlayPoint, ParetoPoint, XAxis, YAxis,
};
use study::plot::{self, ParetoData};
use table::render::{Shown, Sourced, Table};

/// Number of limits that `--at auto` chooses.
const AUTO_LIMITS: usize = 6;

/// Arguments of `ladderscope pareto`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Show only points on the frontier
    #[arg(long)]
    pub frontier: bool,
    /// Horizontal axis: completion (latency), tpot, ttft, user (tokens/s/user: higher is better), or any metric of
    /// `runs --columns`
    #[arg(long, value_name = "AXIS", default_value_t)]
    pub x: XAxis,
    /// Vertical axis: per-gpu (tokens/s/GPU), total (tokens/s), or any metric
    #[arg(long, value_name = "AXIS", default_value_t)]
    pub y: YAxis,
    /// Logarithmic axes for --area: x, y or xy [without a value: xy]
    #[arg(long, value_name = "AXES", num_args = 0..=1, default_missing_value = "xy", require_equals = true, value_parser = log_axes)]
    pub log: Option<(bool, bool)>,
    /// Print the best y of each architecture and P2P setting at or below these values of x, for example 1000,2000
    /// [without values: round values]
    #[arg(long, value_name = "LIMITS", num_args = 0..=1, default_missing_value = "auto", value_parser = limits)]
    pub at: Option<AxisLimits>,
    /// Print by how much each architecture enlarges the area under standard's frontier, with confidence interval
    #[arg(long)]
    pub area: bool,
    /// Reference point of --area [default: 10 % beyond the worst x; y = 0, or 10 % below the worst y if logarithmic]
    #[arg(long, value_name = "X,Y", requires = "area", value_parser = reference)]
    pub reference: Option<(f64, f64)>,
    /// External points to overlay: 'published' (arXiv 2501.06589, 70B) or a CSV file; they do not change frontiers
    #[arg(long, value_name = "published|FILE")]
    pub overlay: Vec<String>,
    /// Also write a figure (.svg, .png) or the points (.csv)
    #[arg(short, long, alias = "export", value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Parses which of x and y are logarithmic.
fn log_axes(text: &str) -> Result<(bool, bool)> {
    match text {
        "x" => Ok((true, false)),
        "y" => Ok((false, true)),
        "xy" | "yx" => Ok((true, true)),
        _ => Err(Error::unknown("axes", text, ["x", "y", "xy"])),
    }
}

/// Limits on the horizontal axis (`--at`).
#[derive(Clone, Debug, PartialEq)]
pub enum AxisLimits {
    /// Round limits across the values of each group.
    Auto,
    /// Limits in the unit of the horizontal axis, as typed.
    Given(Vec<f64>),
}

fn limits(text: &str) -> Result<AxisLimits> {
    if text == "auto" {
        return Ok(AxisLimits::Auto);
    }
    text.split(',').map(positive).collect::<Result<_>>().map(AxisLimits::Given)
}

/// Parses a reference point for areas: x and y, in the units of the axes.
fn reference(text: &str) -> Result<(f64, f64)> {
    let number = |part: &str| part.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
    let place = text.split_once(',').and_then(|(x, y)| number(x).zip(number(y)));
    place.ok_or_else(|| {
        Error::input_help(
            format!("'{text}' is not a point"),
            "write x,y in the units of the axes, for example 30000,0",
        )
    })
}

fn positive(text: &str) -> Result<f64> {
    let number = text.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0);
    number.ok_or_else(|| {
        Error::input_help(
            format!("'{text}' is not a number"),
            "write numbers above 0 in the unit of the x axis, separated by commas: 1000,2000",
        )
    })
}

/// Output in JSON if more than points is requested.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct PrintedPareto<'a> {
    axes: Axes,
    points: &'a [ParetoPoint],
    /// Null if not requested.
    at: Option<&'a [AtLimit]>,
    area: Option<&'a [AreaGained]>,
    overlay: Option<&'a [OverlayPoint]>,
}

/// Returns an error if more than one table is requested, since CSV has one.
fn check_one_table(args: &Args) -> Result<()> {
    let asked = [
        ("--area", args.area),
        ("--at", args.at.is_some()),
        ("--overlay", !args.overlay.is_empty() && args.output.is_none()),
    ];
    let asked: Vec<&str> = asked.into_iter().filter_map(|(name, asked)| asked.then_some(name)).collect();
    match asked[..] {
        [] | ["--area" | "--at"] => Ok(()),
        _ => Err(Error::input_help(
            format!("{}: CSV has one table: the points, or --area, or --at", asked.join(" ")),
            "ask for one at a time, or for all of them with --format json",
        )),
    }
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let export = args.output.as_deref();
    export.map(|path| FileKind::check(path, &FileKind::ALL)).transpose()?;
    if args.format.format == OutputFormat::Csv {
        check_one_table(args)?;
    }
    let overlay = read_overlays(&args.overlay)?;
    let options = area_options(args)?;
    let axes = Axes { x: args.x, y: args.y };
    let records = args.filter.records(&args.runs, &dir)?;
    let mut points = analysis::pareto_on(&records, axes);
    if points.is_empty() {
        stderr::note("no finished runs, so no frontier; `ladderscope runs` lists stored runs");
    }
    let x = |point: &ParetoPoint| axes.x.value(point).unwrap_or(f64::INFINITY);
    points.sort_by(|a, b| a.group.cmp(&b.group).then(x(a).total_cmp(&x(b))));
    if let Some(path) = export {
        // The figure shows all points, including the frontier.
        let provenance = || Stores::named(&args.runs, &dir).provenance(&records);
        let limits = match &args.at {
            Some(AxisLimits::Given(limits)) => limits.clone(),
            _ => Vec::new(),
        };
        let overlay = plot::overlay(&overlay, &points, axes);
        let data = ParetoData { points: &points, axes, overlay, limits };
        export::pareto(path, &data, provenance)?;
        stderr::note(&format!("wrote {}", path.display()));
    }
    let at = args.at.as_ref().map(|limits| at(&points, axes, limits));
    let area = args.area.then(|| analysis::area_gained(&records, options, None));
    let overlay = (!args.overlay.is_empty()).then_some(overlay);
    if args.frontier {
        points.retain(|point| point.on_frontier);
    }
    let printed = PrintedPareto {
        axes,
        points: &points,
        at: at.as_deref(),
        area: area.as_deref(),
        overlay: overlay.as_deref(),
    };
    match args.format.format {
        OutputFormat::Json if at.is_none() && area.is_none() && overlay.is_none() => {
            output::json(&points)?
        }
        OutputFormat::Json => output::json(&printed)?,
        OutputFormat::Csv => output::emit(&csv(&printed))?,
        OutputFormat::Table => {
            output::emit(&text(&printed))?;
            stderr::note_simulator_errors(records.iter().map(|record| &record.spec));
        }
    }
    Ok(0)
}

fn area_options(args: &Args) -> Result<AreaOptions> {
    let (log_x, log_y) = args.log.unwrap_or_default();
    if let Some((x, y)) = args.reference
        && ((log_x && x == 0.0) || (log_y && y == 0.0))
    {
        return Err(Error::input_help(
            format!("--reference {x},{y}: a logarithmic axis has no 0"),
            "write a number above 0",
        ));
    }
    let axes = Axes { x: args.x, y: args.y };
    if args.area && !axes.has_area() {
        return Err(Error::input_help(
            format!("--area is not available for x {} and y {}", args.x, args.y),
            "use x completion, tpot, ttft or user, and y per-gpu or total",
        ));
    }
    Ok(AreaOptions { axes, log_x, log_y, reference: args.reference })
}

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

/// Values at the given limits, or at round ones for each group.
fn at(points: &[ParetoPoint], axes: Axes, limits: &AxisLimits) -> Vec<AtLimit> {
    match limits {
        AxisLimits::Given(limits) => analysis::at_limits(points, axes, limits),
        AxisLimits::Auto => points
            .chunk_by(|a, b| a.group == b.group)
            .flat_map(|group| {
                analysis::at_limits(group, axes, &analysis::round_limits(group, axes, AUTO_LIMITS))
            })
            .collect(),
    }
}

/// Table for CSV: the most specific one requested.
fn csv(printed: &PrintedPareto<'_>) -> String {
    let table = match (printed.area, printed.at) {
        (Some(area), _) => analysis::areas_table(area),
        (None, Some(at)) => analysis::limits_table(at),
        (None, None) => analysis::points_table(printed.points, printed.axes),
    };
    table.csv(Sourced::ByRow)
}

/// Text with one block per group, since points of different groups are not comparable.
fn text(&PrintedPareto { axes, points, at, area, overlay }: &PrintedPareto<'_>) -> String {
    let (x, y) = (axes.x.title(), axes.y.title());
    let mut text = String::new();
    for group in points.chunk_by(|a, b| a.group == b.group) {
        let (name, spec, provenance) = (&group[0].group, &group[0].spec, group[0].provenance);
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{name}\n{}", headline(group));
        // --at and --area print their tables instead of the points
        if at.is_none() && area.is_none() {
            text += &points_text(axes, group);
        }
        for basis in axes.quality_basis(group) {
            text += &format!("{basis}; times are {provenance}\n");
        }
        if let Some(at) = at {
            let mut mine: Vec<&AtLimit> = at.iter().filter(|row| row.group == *name).collect();
            mine.sort_by(|a, b| a.limit.total_cmp(&b.limit));
            let bound = if axes.x.is_more_better() { "at least" } else { "at most" };
            let table = output::aligned(&analysis::limits_table(mine));
            text += &format!("\nBest {y} with {x} {bound} the limit ({provenance})\n{table}");
        }
        if let Some(area) = area {
            let mine: Vec<&AreaGained> = area.iter().filter(|row| row.group == *name).collect();
            text += &areas_text(&x, &y, &mine);
        }
        if let Some(overlay) = overlay {
            let mine: Vec<&OverlayPoint> = overlay.iter().filter(|p| p.goes_with(spec)).collect();
            text += &external_points_text(axes, &mine);
        }
    }
    text
}

/// Points of a group, with the meaning of their marks.
fn points_text(axes: Axes, group: &[ParetoPoint]) -> String {
    let (x, y) = (axes.x.title(), axes.y.title());
    let mut text = output::aligned(&analysis::points_table(group, axes));
    text += &output::wrapped(
        "",
        &format!(
            "● on the overall frontier ({x} vs {y}); ○ on the frontier of its series (architecture, P2P and setting); - dominated"
        ),
        2,
    );
    if let Some(close) = group.iter().find(|point| point.too_close) {
        let words = match close.band {
            Some(band) => {
                format!("≈ {}: a point of another series is within this error", band.too_close())
            }
            None => "≈ within noise: its intervals overlap those of another series".to_owned(),
        };
        text += &output::wrapped("", &words, 2);
    }
    text
}

/// Architectures on the frontier of a group, the most frequent first.
fn headline(group: &[ParetoPoint]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for point in group.iter().filter(|point| point.on_frontier) {
        *counts.entry(point.spec.architecture.to_string()).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let by_architecture: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let all = counts.iter().map(|(_, count)| count).sum();
    output::wrapped(
        "",
        &format!("Frontier of {}: {}.", counted(all, "point"), by_architecture.join(", ")),
        0,
    )
}

fn areas_text(x: &str, y: &str, area: &[&AreaGained]) -> String {
    let Some(first) = area.first() else {
        return "\nno area: no architecture shares cells with standard\n".into();
    };
    let why = first.no_interval.as_ref().map(|why| format!("no interval: {why}\n")).unwrap_or_default();
    let few = area.iter().filter(|row| row.cells < analysis::LEAST_CELLS).count();
    let few = match few {
        0 => String::new(),
        _ => format!(
            "{few} of these areas rest on fewer than {} cells and depend mostly on their spacing\n",
            analysis::LEAST_CELLS
        ),
    };
    format!(
        "\nFrontier area gained over {}, {x} ({}) vs {y} ({}), common cells only ({})\n{}{few}{why}",
        first.baseline,
        first.x_scale,
        first.y_scale,
        first.provenance,
        output::aligned(&analysis::areas_table(area.iter().copied()))
    )
}

/// External points of a group.
fn external_points_text(axes: Axes, overlay: &[&OverlayPoint]) -> String {
    if overlay.is_empty() {
        return "\nno external point matches this model and workload\n".into();
    }
    let table = Table::from_rows(
        overlay.iter().copied(),
        &[
            ("source", &|p: &OverlayPoint| Shown::text(&p.source)),
            ("architecture", &|p| Shown::text(&p.architecture)),
            ("label", &|p| Shown::text(p.name())),
            ("p2p", &|p| p.p2p.map(|p2p| p2p.as_str()).into()),
            (&axes.x.title(), &|p| Shown::number(p.place(axes).map(|p| p.0), 2)),
            (&axes.y.title(), &|p| Shown::number(p.place(axes).map(|p| p.1), 2)),
        ],
    );
    format!("\nExternal points (not part of any frontier)\n{}", output::aligned(&table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_references_are_numbers() {
        assert_eq!(limits("1000,2e3").ok(), Some(AxisLimits::Given(vec![1000.0, 2000.0])));
        assert_eq!(limits("auto").ok(), Some(AxisLimits::Auto));
        assert_eq!(reference("30000,0").ok(), Some((30000.0, 0.0)));
        for bad in ["", "1,,2", "-1", "soon"] {
            assert_eq!(limits(bad).map_err(|e| e.exit_code()).err(), Some(2), "{bad}");
            assert!(reference(bad).is_err(), "{bad}");
        }
    }
}
