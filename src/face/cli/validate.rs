//! `ladderscope validate`: compares the simulator with published data and prints errors per number and on average.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::output::{self, FormatArgs};
use super::stderr;
use base::error::Result;
use base::text::counted;
use study::plot::{FigureOptions, check_format, validation_figure};
use study::validate::{
    CrossValidation, DataSet, LargestResidual, Measure, Overrides, RankOrder, Score, ServingGroup,
    Slice, UnpredictedRow, ValidationResidual, card, left_out, orders_table,
};
use table::Provenance;
use table::render::{Shown, Sourced, Table};

/// Arguments of `ladderscope validate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data sets: paper_70b, prefill_h100, decode_a100_gptfast, decode_a100_lmdeploy, serving_dense, serving_moe,
    /// mi300x_static [default: all]
    #[arg(value_name = "SET")]
    pub sets: Vec<String>,
    /// Validate against your own measured runs instead: a CSV file with the columns of a set (without SET, the
    /// columns determine it)
    #[arg(long, alias = "csv", value_name = "FILE.csv")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Also fit each engine without a third of its settings in turn, without each GPU and without each model, and
    /// print the errors on the rows left out (serving_dense, serving_moe; takes a minute)
    #[arg(long, conflicts_with_all = ["data", "hardware", "stack", "set"])]
    pub left_out: bool,
    /// Also write a figure of the errors
    #[arg(short, long, alias = "export", value_name = "FILE.svg|FILE.png")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub look: FigureOptions,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub fn run(args: &Args) -> Result<u8> {
    args.look.check()?;
    args.output.as_deref().map_or(Ok(()), check_format)?;
    let scores: Vec<Score> = match &args.data {
        Some(path) => vec![Score::of_file(&args.sets, path, &args.overrides)?],
        None => {
            let score = |set: &DataSet| Score::new(set, &set.runs(&args.overrides)?);
            DataSet::named(&args.sets)?.iter().map(score).collect::<Result<_>>()?
        }
    };
    let is_asked = |score: &Score| args.left_out && (score.set.serving || !args.sets.is_empty());
    let left_out_of =
        |score: &Score| if is_asked(score) { left_out(&score.set) } else { Ok(Vec::new()) };
    let kept: Vec<Vec<CrossValidation>> = scores.iter().map(left_out_of).collect::<Result<_>>()?;
    let printed = PrintedValidation {
        sets: scores.iter().zip(&kept).map(|(score, kept)| PrintedSet::new(score, kept)).collect(),
    };
    let csv = || residuals(&scores).csv(Sourced::ByRow);
    output::print(args.format.format, &printed, csv, || text(&scores, &kept.concat()))?;
    if let Some(path) = &args.output {
        let figure = validation_figure(&scores, &args.look)?;
        figure.save(path)?;
        stderr::note(&format!("wrote {}: {}", path.display(), figure.title()));
    }
    for score in &scores {
        let mut reasons: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for not in &score.not_run {
            reasons.entry(&not.reason).or_default().push(not.line);
        }
        for (reason, lines) in reasons {
            let lines = match lines.as_slice() {
                [line] => format!("line {line}"),
                [first, ..] => format!("{} rows from line {first} on", lines.len()),
                [] => continue,
            };
            stderr::note(&format!("{}, {lines}: skipped: {reason}", score.set.name));
        }
    }
    Ok(0)
}

/// Output of all sets in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedValidation<'a> {
    sets: Vec<PrintedSet<'a>>,
}

/// Errors of a set. Null for measures that no row has.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedSet<'a> {
    name: &'a str,
    rows: usize,
    /// Rows that could not be predicted.
    not_run: usize,
    /// Mean absolute error by measure (percent).
    mean_abs_pct: BTreeMap<&'static str, Option<f64>>,
    /// Maximum absolute error by measure (percent).
    max_abs_pct: BTreeMap<&'static str, Option<f64>>,
    /// Errors of served rows by model, GPU, engine and format; empty for other sets.
    groups: &'a [ServingGroup],
    /// Errors of served rows by TP and by concurrency; empty for other sets.
    slices: &'a [Slice],
    /// Errors on served rows left out of a fit; empty without `--left-out`.
    left_out: &'a [CrossValidation],
    /// Lines of served rows whose requests wait for KV cache.
    queued_lines: &'a [usize],
    /// Errors of the gain over standard (speedup minus 1), in points.
    gain_points: Option<MeanAndMax>,
    /// Errors of the share of communication, in points.
    communication_share_points: Option<MeanAndMax>,
    /// Cells with two measured architectures, and those whose order the simulator reverses.
    rank_order: &'a [RankOrder],
    about: &'a str,
    source: &'a str,
    hardware: &'a str,
    stack: &'a str,
    /// Overridden values of hardware and stack, as `KEY=VALUE`.
    set: &'a [String],
    /// True if the rows are the published ones of the set.
    published: bool,
    /// Constants fitted to the rows; null if unknown.
    fitted: Option<&'a [String]>,
    /// Unknown properties of the set.
    unknown: &'a [String],
    /// Rows without a prediction, with reasons.
    reasons: &'a [UnpredictedRow],
    /// Three largest residuals of decoding and of first tokens, with their likely causes.
    largest: Vec<LargestResidual<'a>>,
    residuals: &'a [ValidationResidual],
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct MeanAndMax {
    mean: f64,
    max: f64,
}

impl<'a> PrintedSet<'a> {
    fn new(score: &'a Score, left_out: &'a [CrossValidation]) -> Self {
        let by_measure = |which: fn((f64, f64)) -> f64| {
            let in_percent = Measure::ALL.iter().filter(|measure| measure.unit() == "%");
            in_percent.map(|measure| (measure.as_str(), score.errors(*measure).map(which))).collect()
        };
        let points = |measure| score.errors(measure).map(|(mean, max)| MeanAndMax { mean, max });
        let set = &score.set;
        Self {
            name: &set.name,
            rows: score.rows,
            not_run: score.not_run.len(),
            mean_abs_pct: by_measure(|(mean, _)| mean),
            max_abs_pct: by_measure(|(_, max)| max),
            groups: &score.groups,
            slices: &score.slices,
            left_out,
            queued_lines: &score.queued,
            gain_points: points(Measure::Gain),
            communication_share_points: points(Measure::CommunicationShare),
            rank_order: &score.orders,
            about: &set.about,
            source: &set.source,
            hardware: &score.hardware,
            stack: &score.stack,
            set: &score.values,
            published: score.is_published,
            fitted: score.fitted.as_deref(),
            unknown: &set.unknown,
            reasons: &score.not_run,
            largest: score.worst(),
            residuals: &score.residuals,
        }
    }
}

/// Mean absolute error of each measure in percent, as a range over the sets, and the reversed rankings.
fn headline(scores: &[Score]) -> String {
    let mean = |measure: &Measure| {
        let means = scores.iter().filter_map(|score| score.errors(*measure)).map(|(mean, _)| mean);
        let range = output::range_text(means, |mean| format!("{mean:.1}"))?;
        Some(format!("{} {range} %", measure.title()))
    };
    let in_percent = Measure::ALL.iter().filter(|measure| measure.unit() == "%");
    let errors: Vec<String> = in_percent.filter_map(mean).collect();
    let rows = counted(scores.iter().map(|score| score.rows).sum(), "row");
    if errors.is_empty() {
        return format!("None of {rows} could be predicted.");
    }
    let orders = || scores.iter().flat_map(|score| &score.orders);
    let pairs: usize = orders().map(|order| order.pairs).sum();
    let reversed: usize = orders().map(|order| order.reversed.len()).sum();
    let ranking = match pairs {
        0 => String::new(),
        _ => format!(
            " The simulator ranks two architectures as measured in {} of {pairs} cells.",
            pairs - reversed
        ),
    };
    let scope = if scores.len() > 1 {
        format!(" by set, {} with", counted(scores.len(), "set"))
    } else {
        " over".into()
    };
    format!("Mean error{scope} {rows}: {}.{ranking}", errors.join(", "))
}

/// Scorecard with one line per set and measure, then the sources of the numbers.
fn text(scores: &[Score], left_out: &[CrossValidation]) -> String {
    let mut text = output::wrapped("", &headline(scores), 0) + &output::aligned(&card(scores));
    let orders = scores.iter().flat_map(|score| score.orders.iter().map(|o| (&*score.set.name, o)));
    let orders = orders_table(orders);
    let section = |title: &str, table: &Table| format!("\n{title}\n{}", output::aligned(table));
    if !orders.is_empty() {
        text += &section("Ranking: does the simulator order two architectures as measured?", &orders);
    }
    let groups: Vec<&ServingGroup> = scores.iter().flat_map(|score| &score.groups).collect();
    if !groups.is_empty() {
        let title = "Served rows (queued: requests wait for KV cache, left out of the errors)";
        text += &section(title, &groups_table(&groups));
        text += &section("The same by TP and concurrency", &slices_table(scores));
    }
    if !left_out.is_empty() {
        let title = "Rows left out of the fit of their engine's constants";
        text += &section(title, &left_out_table(left_out));
    }
    for score in scores {
        let set = &score.set;
        let rows = counted(score.rows, "row");
        text += &output::wrapped("\n", &format!("{}: {}; {rows}", set.name, set.about), 2);
        text += &output::wrapped("  source    ", &set.source, 12);
        text += &format!("  predicted {}, stack {}\n", score.hardware, score.stack_and_values());
        let fitted: Vec<&str> = match &score.fitted {
            None => vec!["not known for these rows and constants"],
            Some(none) if none.is_empty() => vec!["nothing"],
            Some(fitted) => fitted.iter().map(String::as_str).collect(),
        };
        let worst = |LargestResidual { residual, cause }: &LargestResidual<'_>| {
            let ValidationResidual { line, cell, measure, error, .. } = residual;
            let cause = cause.map_or(String::new(), |cause| format!("; likely: {cause}"));
            format!("{} {error:+.1} %, line {line} ({cell}){cause}", measure.title())
        };
        text += &listed("fitted", fitted);
        text += &listed("unknown", &set.unknown);
        text += &listed("largest", score.worst().iter().map(worst));
    }
    text + "\nPredictions are simulated. Error = predicted / measured - 1; for measures in points, predicted - measured.\n"
}

/// Wraps paragraphs to the right of a title.
fn listed<S: AsRef<str>>(title: &str, paragraphs: impl IntoIterator<Item = S>) -> String {
    let titles = std::iter::once(title).chain(std::iter::repeat(""));
    let wrapped =
        |(title, text): (&str, S)| output::wrapped(&format!("  {title:<10}"), text.as_ref(), 12);
    titles.zip(paragraphs).map(wrapped).collect()
}

/// Error of a measure in percent, as a cell of a table.
fn error(of: &BTreeMap<&'static str, Option<f64>>, measure: Measure) -> Shown {
    Shown::number(of.get(measure.as_str()).copied().flatten(), 1)
}

fn slices_table(scores: &[Score]) -> Table {
    let lines: Vec<(&Score, &Slice)> =
        scores.iter().flat_map(|score| score.slices.iter().map(move |slice| (score, slice))).collect();
    Table::from_rows(
        &lines,
        &[
            ("set", &|(score, _): &(&Score, &Slice)| Shown::text(&score.set.name)),
            ("by|of", &|(_, slice)| Shown::some(format!("{} {}", slice.by, slice.value))),
            ("rows", &|(_, slice)| slice.rows.into()),
            ("tpot_%|TPOT %", &|(_, slice)| error(&slice.mean_abs_pct, Measure::Tpot)),
            ("tpot_bias_%|bias %", &|(_, slice)| error(&slice.bias_pct, Measure::Tpot)),
            ("ttft_%|TTFT %", &|(_, slice)| error(&slice.mean_abs_pct, Measure::Ttft)),
            ("ttft_bias_%|TTFT bias %", &|(_, slice)| error(&slice.bias_pct, Measure::Ttft)),
        ],
    )
}

fn left_out_table(left_out: &[CrossValidation]) -> Table {
    Table::from_rows(
        left_out,
        &[
            ("engine", &|part: &CrossValidation| Shown::text(&part.engine)),
            ("left_out|left out", &|part| Shown::text(&part.left_out)),
            ("rows", &|part| part.rows.into()),
            ("tpot_%|TPOT %", &|part| error(&part.mean_abs_pct, Measure::Tpot)),
            ("tpot_bias_%|bias %", &|part| error(&part.bias_pct, Measure::Tpot)),
            ("ttft_%|TTFT %", &|part| error(&part.mean_abs_pct, Measure::Ttft)),
        ],
    )
}

fn groups_table(groups: &[&ServingGroup]) -> Table {
    Table::from_rows(
        groups,
        &[
            ("model", &|group: &&ServingGroup| Shown::text(&group.model)),
            ("weights", &|group| Shown::text(&group.weights)),
            ("system", &|group| Shown::text(&group.system)),
            ("engine", &|group| Shown::text(&group.engine)),
            ("rows", &|group| group.rows.into()),
            ("not_run", &|group| group.not_run.into()),
            ("queued", &|group| group.queued.into()),
            ("tpot_%|TPOT %", &|group| error(&group.mean_abs_pct, Measure::Tpot)),
            ("tpot_bias_%|bias %", &|group| error(&group.bias_pct, Measure::Tpot)),
            ("ttft_%|TTFT %", &|group| error(&group.mean_abs_pct, Measure::Ttft)),
        ],
    )
}

fn residuals(scores: &[Score]) -> Table {
    let lines: Vec<(&Score, &ValidationResidual)> =
        scores.iter().flat_map(|score| score.residuals.iter().map(move |r| (score, r))).collect();
    Table::from_rows(
        &lines,
        &[
            ("set", &|(score, _): &(&Score, &ValidationResidual)| Shown::text(&score.set.name)),
            ("line", &|(_, r)| r.line.into()),
            ("cell", &|(_, r)| Shown::text(&r.cell)),
            ("measure", &|(_, r)| r.measure.as_str().into()),
            ("measured", &|(_, r)| Shown::Number(r.measured, 3)),
            ("predicted", &|(_, r)| Shown::Number(r.predicted, 3)),
            ("error", &|(_, r)| Shown::Number(r.error, 2)),
            ("predicted_provenance|", &|_| Shown::text(Provenance::Simulated)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_constants_are_shown_only_for_published_rows_and_constants() {
        let set = DataSet::named(&["decode_a100_gptfast".into()]).unwrap().remove(0);
        let score = |overrides: &Overrides| Score::new(&set, &set.runs(overrides).unwrap()).unwrap();
        let fitted = score(&Overrides::default());
        assert!(
            text(std::slice::from_ref(&fitted), &[]).contains("\n  fitted    a100_mesh: matvec_scale")
        );
        assert_eq!(PrintedSet::new(&fitted, &[]).fitted.unwrap()[0], set.fitted[0]);
        let nothing = Score { fitted: Some(Vec::new()), ..fitted };
        assert!(text(&[nothing], &[]).contains("\n  fitted    nothing\n"));
        for overrides in [
            Overrides { set: vec!["hbm_gb_s=1000".into()], ..Overrides::default() },
            Overrides { stack: Some("native".into()), ..Overrides::default() },
            Overrides { hardware: Some("a100_sxm".into()), ..Overrides::default() },
        ] {
            let other = score(&overrides);
            let shown = text(std::slice::from_ref(&other), &[]);
            assert!(shown.contains("\n  fitted    not known for"), "{shown}");
            assert!(PrintedSet::new(&other, &[]).fitted.is_none() && other.is_published);
            assert_eq!(other.values, overrides.set);
            assert!(overrides.set.iter().all(|pair| shown.contains(pair)), "{shown}");
        }
    }
}
