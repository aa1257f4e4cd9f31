//! `ladderscope calibrate`: fits the free constants of a stack and its links to measured runs.

use std::path::{Path, PathBuf};

use super::calibrate_collectives::{self, CollectiveFiles};
use super::filter::FilterArgs;
use super::output::{self, FormatArgs};
use super::stderr;
use crate::desk::calibrate::{rounded, write_fit};
use base::error::{Error, Result};
use base::text::counted;
use machine::hardware::{LinkTable, Profile, Stack, Target};
use study::calibrate::{
    self, CalibrationPoint, Errors, Fit, FitResidual, FittedConstant, HeldOutErrors, PARAMETERS,
};
use table::Provenance;
use table::render::{Shown, Sourced, Table};

/// Arguments of `ladderscope calibrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub links: CollectiveFiles,
    /// Measured runs as CSV with the columns model, architecture, tp, batch, p2p, prompt_tokens, output_tokens,
    /// tokens_per_s and optionally decode_s, prefill_s, collective, dtype [default: stored runs, except simulated ones]
    #[arg(long, value_name = "FILE.csv")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Hardware profile of the machine: a built-in name or a TOML file [default with --collectives: the GPU's]
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "collectives")]
    pub hardware: Option<String>,
    /// Software stack to fit: a built-in name or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "gpt-fast")]
    pub stack: String,
    /// Constants to fit [default: all that the data constrain, except hbm_efficiency, matvec_scale, step_us,
    /// attention.prefill_efficiency and collective.transfer_scale]
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub fit: Option<Vec<String>>,
    /// Directory for the resulting TOML files (profile, and stack if fitted)
    #[arg(short, long, alias = "write", value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Skip cross-validation
    #[arg(long)]
    pub no_cross_validation: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    if let Some(unknown) = args.fit.iter().flatten().find(|k| PARAMETERS.iter().all(|p| p.key != **k)) {
        return Err(Error::unknown("constant", unknown, PARAMETERS.iter().map(|p| p.key)));
    }
    if !args.links.collectives.is_empty() {
        return calibrate_collectives::run(args, &dir);
    }
    if args.links.opening.rules.is_some() || args.links.opening.recording.is_some() {
        return Err(Error::input("--rules and --recording are for traces, so they need --collectives"));
    }
    let Some(hardware) = &args.hardware else {
        return Err(Error::input("no machine: pass its profile with --hardware NAME|FILE"));
    };
    fit_runs(args, hardware, &dir)
}

/// Fits constants of the stack and its links to measured runs.
fn fit_runs(args: &Args, hardware: &str, dir: &Path) -> Result<u8> {
    let target = Target { profile: Profile::load(hardware)?, stack: Stack::load(&args.stack)? };
    let points = measured_points(args, dir)?;
    let points: Vec<&CalibrationPoint> = points.iter().collect();
    let keys = args.fit.as_deref();
    stderr::line(&format!("fitting {}", counted(points.len(), "run")));
    let fit = calibrate::fit(&points, &target, keys)?;
    let residuals = calibrate::residuals(&points, &fit.target)?;
    let held_out = if args.no_cross_validation {
        Vec::new()
    } else {
        stderr::line("cross-validating: leaving out one TP or batch size at a time");
        calibrate::cross_validate(&points, &target, keys)?
    };
    let printed = PrintedFit::new(&fit, &residuals, &held_out);
    let csv = || residuals_table(&residuals).csv(Sourced::ByRow);
    output::print(args.format.format, &printed, csv, || text(&fit, &residuals, &held_out))?;
    if let Some(into) = &args.output {
        for path in write_fit(&fit, hardware, &args.stack, into)? {
            stderr::line(&format!("wrote {}", path.display()));
        }
    }
    Ok(0)
}

/// Measured runs of the CSV file or of the store, at least one.
fn measured_points(args: &Args, dir: &Path) -> Result<Vec<CalibrationPoint>> {
    if let Some(path) = &args.data {
        return calibrate::read_csv(path);
    }
    let points = calibrate::of_records(&args.filter.records(&[], dir)?);
    if points.is_empty() {
        let runs = match args.filter.typed() {
            Some(filter) => format!("no measured run in {} matches '{filter}'", dir.display()),
            None => format!("{} has no measured runs", dir.display()),
        };
        return Err(Error::input_help(
            format!("{runs}, so there is nothing to fit"),
            "simulated runs do not count; pass measured ones with --data FILE.csv",
        ));
    }
    Ok(points)
}

/// Output of a fit in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedFit<'a> {
    constants: Vec<PrintedConstant>,
    /// Mean absolute errors; null without points.
    errors_pct: Option<Errors>,
    /// Errors on held-out data, if requested.
    held_out: &'a [HeldOutErrors],
    residuals: &'a [FitResidual],
    /// Fitted link without P2P.
    link_p2p_off: &'a LinkTable,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedConstant {
    key: &'static str,
    value: f64,
    /// Null if the data do not determine it.
    interval95: Option<(f64, f64)>,
    unit: &'static str,
    /// Physical lower and upper bound.
    bounds: (f64, f64),
    meaning: &'static str,
}

impl<'a> PrintedFit<'a> {
    fn new(fit: &'a Fit, residuals: &'a [FitResidual], held_out: &'a [HeldOutErrors]) -> Self {
        let constant = |c: &FittedConstant| PrintedConstant {
            key: c.parameter.key,
            value: c.value,
            interval95: c.interval,
            unit: c.parameter.unit,
            bounds: c.parameter.bounds,
            meaning: c.parameter.meaning,
        };
        Self {
            constants: fit.constants.iter().map(constant).collect(),
            errors_pct: calibrate::errors(residuals),
            held_out,
            residuals,
            link_p2p_off: &fit.target.profile.link.p2p_off,
        }
    }
}

fn text(fit: &Fit, residuals: &[FitResidual], held_out: &[HeldOutErrors]) -> String {
    let constants = Table::from_rows(
        &fit.constants,
        &[
            ("constant", &|c: &FittedConstant| c.parameter.key.into()),
            ("value", &|c| digits(c.value).into()),
            ("95 % interval", &|c| match c.interval {
                Some((low, high)) => format!("[{}, {}]", digits(low), digits(high)).into(),
                None => "not determined".into(),
            }),
            ("unit", &|c| c.parameter.unit.into()),
            ("bounds", &|FittedConstant { parameter: p, .. }| {
                format!("[{}, {}]", p.bounds.0, p.bounds.1).into()
            }),
            ("meaning", &|c| c.parameter.meaning.into()),
        ],
    );
    let all = calibrate::errors(residuals);
    let headline = all.as_ref().map_or(String::new(), |errors| {
        format!(
            "Fitted {} to {}: mean error of tokens/s {:.1} %.\n",
            counted(fit.constants.len(), "constant"),
            counted(errors.points, "run"),
            errors.tokens_per_s_pct
        )
    });
    let all = all.map(|errors| ("all runs".to_owned(), errors));
    let held = held_out.iter().map(|held| (format!("held out: {}", held.held_out), held.errors));
    let errors: Vec<(String, Errors)> = all.into_iter().chain(held).collect();
    let errors = Table::from_rows(
        &errors,
        &[
            ("mean absolute error, %", &|(name, _): &(String, Errors)| Shown::text(name)),
            ("runs", &|(_, e)| e.points.into()),
            ("tokens/s", &|(_, e)| Shown::Number(e.tokens_per_s_pct, 2)),
            ("speedup", &|(_, e)| Shown::number(e.speedup_pct, 2)),
            ("decode", &|(_, e)| Shown::number(e.decode_pct, 2)),
            ("prefill", &|(_, e)| Shown::number(e.prefill_pct, 2)),
        ],
    );
    format!(
        "{headline}\nConstants\n{}\nPredicted against measured (error = predicted / measured - 1)\n{}\nErrors\n{}",
        output::aligned(&constants),
        output::aligned(&residuals_table(residuals)),
        output::aligned(&errors)
    )
}

fn residuals_table(residuals: &[FitResidual]) -> Table {
    Table::from_rows(
        residuals,
        &[
            ("cell", &|r: &FitResidual| Shown::text(&r.cell)),
            ("measured_tokens_per_s|measured tok/s", &|r| Shown::Number(r.measured_tokens_per_s, 1)),
            ("predicted_tokens_per_s|predicted tok/s", &|r| Shown::Number(r.predicted_tokens_per_s, 1)),
            ("error_pct|error %", &|r| Shown::Number(r.error_pct, 1)),
            ("decode_error_pct|decode %", &|r| Shown::number(r.decode_error_pct, 1)),
            ("prefill_error_pct|prefill %", &|r| Shown::number(r.prefill_error_pct, 1)),
            ("speedup_error_pct|speedup %", &|r| Shown::number(r.speedup_error_pct, 1)),
            ("predicted_provenance|", &|_| Shown::text(Provenance::Simulated)),
        ],
    )
}

/// Formats a value with four significant digits.
fn digits(value: f64) -> String {
    rounded(value).to_string()
}
