//! `ladderscope pareto [RUNS|DIR]`: the frontier of completion latency against per-GPU throughput.

use std::path::{Path, PathBuf};

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::{figure, report, runs};
use crate::analysis::{self, ParetoPoint};
use crate::error::{Error, Result};
use crate::plot;

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
    /// Also write a figure (.svg, .png) or the points (.csv)
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Prints the points.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let export =
        args.export.as_deref().map(|path| Ok((path, export_format(path, &["svg", "png", "csv"])?)));
    let export = export.transpose()?;
    let records = runs::filtered(runs::select(&args.runs, &dir)?, args.filter.as_deref(), None)?;
    let mut points = analysis::pareto(&records);
    if points.is_empty() {
        report::note("no finished runs, so no frontier; `ladderscope runs` lists what is stored");
    }
    points.sort_by(|a, b| a.group.cmp(&b.group).then(a.completion_ms.total_cmp(&b.completion_ms)));
    if let Some((path, format)) = export {
        // The figure shows all points, the frontier among them.
        match format {
            "csv" => plot::write(path, rows(&points).csv().as_bytes())?,
            _ if points.is_empty() => {
                return Err(Error::input("there is nothing to draw: no finished runs"));
            }
            _ => {
                let facts = figure::facts(&records, &figure::stores(&args.runs, &dir));
                let intervals = plot::intervals(&records);
                let data = plot::ParetoData { points: &points, intervals, overlay: Vec::new() };
                plot::pareto_figure(&data, &facts, &plot::Options::default())?.save(path)?;
            }
        }
        report::note(&format!("wrote {}", path.display()));
    }
    if args.frontier {
        points.retain(|point| point.on_frontier);
    }
    match args.output.format {
        Format::Json => output::json(&points)?,
        Format::Csv => output::emit(&rows(&points).csv())?,
        Format::Table if points.is_empty() => {}
        Format::Table => output::emit(&table(&points))?,
    }
    Ok(0)
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

/// A table for each group: points of different groups are not comparable.
fn table(points: &[ParetoPoint]) -> String {
    let mut text = String::new();
    for group in points.chunk_by(|a, b| a.group == b.group) {
        let mut rows = Rows::new([
            "frontier",
            "architecture",
            "tp",
            "batch",
            "p2p",
            "link",
            "completion ms",
            "tok/s/GPU",
            "TPOT ms",
            "provenance",
            "run",
        ]);
        for point in group {
            rows.push(vec![
                if point.on_frontier { Field::text("●") } else { Field::None },
                Field::text(&point.spec.architecture),
                Field::Whole(point.spec.tp.into()),
                Field::Whole(point.spec.batch.into()),
                Field::text(point.spec.p2p.as_str()),
                Field::text(point.spec.link),
                Field::Number(point.completion_ms, 2),
                Field::Number(point.tokens_per_s_per_gpu, 2),
                Field::Number(point.tpot_ms, 3),
                Field::text(point.provenance),
                Field::text(&point.run),
            ]);
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{}\n{}", group[0].group, rows.table());
    }
    text
}

fn rows(points: &[ParetoPoint]) -> Rows {
    let mut rows = Rows::new([
        "group",
        "on_frontier",
        "architecture",
        "model",
        "dtype",
        "tp",
        "batch",
        "prompt_tokens",
        "output_tokens",
        "p2p",
        "backend",
        "link",
        "hardware",
        "stack",
        "completion_ms",
        "tokens_per_s_per_gpu",
        "tpot_ms",
        "provenance",
        "run",
    ]);
    for point in points {
        let spec = &point.spec;
        rows.push(vec![
            Field::text(&point.group),
            Field::text(point.on_frontier),
            Field::text(&spec.architecture),
            Field::text(&spec.model),
            Field::text(spec.dtype),
            Field::Whole(spec.tp.into()),
            Field::Whole(spec.batch.into()),
            Field::Whole(spec.prompt_tokens.into()),
            Field::Whole(spec.output_tokens.into()),
            Field::text(spec.p2p.as_str()),
            Field::text(spec.backend.as_str()),
            Field::text(spec.link),
            Field::text(&spec.hardware),
            Field::text(&spec.stack),
            Field::Number(point.completion_ms, 3),
            Field::Number(point.tokens_per_s_per_gpu, 3),
            Field::Number(point.tpot_ms, 3),
            Field::text(point.provenance),
            Field::text(&point.run),
        ]);
    }
    rows
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
}
