//! `ladderscope calibrate`: fits the free constants of a stack and its links to measured runs.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Value};

use super::output::{self, FormatArgs};
use super::report;
use super::select::FilterArgs;
use super::select::OpenArgs;
use crate::desk::OpenOptions;
use base::atomic;
use base::error::{Error, Result};
use base::input::InputKind;
use base::text::counted;
use machine::hardware::{LinkTable, Profile, Stack, Target};
use study::calibrate::{self, Constant, Errors, Fit, Held, PARAMETERS, Point, Residual};
use table::render::{Shown, Sourced, Table};
use table::{P2p, Provenance};

/// Arguments of `ladderscope calibrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measurements, one per number of GPUs, separated by commas: output of `all_reduce_perf` from nccl-tests (text,
    /// or JSON from -J), NCCL Inspector JSON lines (directory or files of all ranks), or a trace of all ranks
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', conflicts_with_all = ["data", "filter", "fit", "stack", "no_cross_validation"])]
    pub collectives: Vec<PathBuf>,
    /// P2P setting of the measured all-reduces (off: NCCL_P2P_DISABLE=1)
    #[arg(long, value_name = "on|off", default_value = "on", requires = "collectives")]
    pub p2p: P2p,
    /// Message size in bytes (batch x hidden size x bytes per element) for traces that do not record it; in other
    /// traces, use only messages of this size
    #[arg(long, value_name = "BYTES", requires = "collectives", value_parser = clap::value_parser!(u64).range(1..))]
    pub message_bytes: Option<u64>,
    /// Use the latencies of a single measured TP for other TPs too; without it, cells at other TPs are skipped
    #[arg(long, requires = "collectives")]
    pub extrapolate: bool,
    #[command(flatten)]
    pub opening: OpenArgs,
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
    let OpenOptions { rules, recording, .. } = args.opening.options(None);
    if args.collectives.is_empty() && (rules.is_some() || recording.is_some()) {
        return Err(Error::input("--rules and --recording are for traces, so they need --collectives"));
    }
    if !args.collectives.is_empty() {
        return super::calibrate_collectives::run(args, &dir);
    }
    let hardware = args.hardware.as_deref().unwrap_or_default();
    let target = Target { profile: Profile::load(hardware)?, stack: Stack::load(&args.stack)? };
    let points = match &args.data {
        Some(path) => calibrate::read_csv(path)?,
        None => calibrate::of_records(&args.filter.records(&[], &dir)?),
    };
    if points.is_empty() {
        return Err(Error::input_help(
            format!("{}: only simulated runs are stored, so there is nothing to fit", dir.display()),
            "pass measured runs with --data FILE.csv",
        ));
    }
    let points: Vec<&Point> = points.iter().collect();
    let keys = args.fit.as_deref();
    report::line(&format!("fitting {}", counted(points.len(), "run")));
    let fit = calibrate::fit(&points, &target, keys)?;
    let residuals = calibrate::residuals(&points, &fit.target)?;
    let held = if args.no_cross_validation {
        Vec::new()
    } else {
        report::line("cross-validating: leaving out one TP or batch size at a time");
        calibrate::cross_validate(&points, &target, keys)?
    };
    let report = Report { fit: &fit, residuals: &residuals, held: &held };
    let csv = || report.residual_rows().csv(Sourced::ByRow);
    output::print(args.format.format, &report.printed(), csv, || report.text())?;
    if let Some(into) = &args.output {
        write(args, &fit, into)?;
    }
    Ok(0)
}

/// Output of a fit in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    constants: Vec<PrintedConstant>,
    /// Mean absolute errors; null without points.
    errors_pct: Option<Errors>,
    /// Errors on held-out data, if requested.
    held_out: &'a [Held],
    residuals: &'a [Residual],
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

struct Report<'a> {
    fit: &'a Fit,
    residuals: &'a [Residual],
    held: &'a [Held],
}

impl Report<'_> {
    fn printed(&self) -> Printed<'_> {
        let constant = |c: &Constant| PrintedConstant {
            key: c.parameter.key,
            value: c.value,
            interval95: c.interval,
            unit: c.parameter.unit,
            bounds: c.parameter.bounds,
            meaning: c.parameter.meaning,
        };
        Printed {
            constants: self.fit.constants.iter().map(constant).collect(),
            errors_pct: calibrate::errors(self.residuals),
            held_out: self.held,
            residuals: self.residuals,
            link_p2p_off: &self.fit.target.profile.link.p2p_off,
        }
    }

    fn text(&self) -> String {
        let constants = Table::of(
            &self.fit.constants,
            &[
                ("constant", &|c: &Constant| c.parameter.key.into()),
                ("value", &|c| digits(c.value).into()),
                ("95 % interval", &|c| match c.interval {
                    Some((low, high)) => format!("[{}, {}]", digits(low), digits(high)).into(),
                    None => "not determined".into(),
                }),
                ("unit", &|c| c.parameter.unit.into()),
                ("bounds", &|Constant { parameter: p, .. }| {
                    format!("[{}, {}]", p.bounds.0, p.bounds.1).into()
                }),
                ("meaning", &|c| c.parameter.meaning.into()),
            ],
        );
        let all = calibrate::errors(self.residuals).map(|errors| ("all runs".to_owned(), errors));
        let held = self.held.iter().map(|held| (format!("held out: {}", held.held_out), held.errors));
        let errors: Vec<(String, Errors)> = all.into_iter().chain(held).collect();
        let errors = Table::of(
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
        let headline = match calibrate::errors(self.residuals) {
            Some(errors) => format!(
                "Fitted {} to {}: mean error of tokens/s {:.1} %.\n",
                counted(self.fit.constants.len(), "constant"),
                counted(errors.points, "run"),
                errors.tokens_per_s_pct
            ),
            None => String::new(),
        };
        format!(
            "{headline}\nConstants\n{}\nPredicted against measured (error = predicted / measured - 1)\n{}\nErrors\n{}",
            output::aligned(&constants),
            output::aligned(&self.residual_rows()),
            output::aligned(&errors)
        )
    }

    fn residual_rows(&self) -> Table {
        Table::of(
            self.residuals,
            &[
                ("cell", &|r: &Residual| Shown::text(&r.cell)),
                ("measured_tokens_per_s|measured tok/s", &|r| Shown::Number(r.measured_tokens_per_s, 1)),
                ("predicted_tokens_per_s|predicted tok/s", &|r| {
                    Shown::Number(r.predicted_tokens_per_s, 1)
                }),
                ("error_pct|error %", &|r| Shown::Number(r.error_pct, 1)),
                ("decode_error_pct|decode %", &|r| Shown::number(r.decode_error_pct, 1)),
                ("prefill_error_pct|prefill %", &|r| Shown::number(r.prefill_error_pct, 1)),
                ("speedup_error_pct|speedup %", &|r| Shown::number(r.speedup_error_pct, 1)),
                ("predicted_provenance|", &|_| Shown::text(Provenance::Simulated)),
            ],
        )
    }
}

/// Formats a value with four significant digits.
fn digits(value: f64) -> String {
    rounded(value).to_string()
}

pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Writes the files of the stack and the profile with the fitted constants, keeping comments.
fn write(args: &Args, fit: &Fit, into: &Path) -> Result<()> {
    std::fs::create_dir_all(into).map_err(Error::io(into))?;
    let (profile, stack) = (&fit.target.profile, &fit.target.stack);
    let mut stack_file = document(&args.stack, Stack::built_in_text(&args.stack))?;
    let mut profile_file = profile_document(args.hardware.as_deref().unwrap_or_default())?;
    let mut link = false;
    for Constant { parameter, value, .. } in &fit.constants {
        if parameter.is_host_link() {
            link = true;
        } else if parameter.is_of_profile() {
            set(&mut profile_file, parameter.key, *value);
        } else {
            set(&mut stack_file, parameter.key, *value);
        }
    }
    if link {
        for (tp, point) in &profile.link.p2p_off.tp {
            let key = |name: &str| format!("link.p2p_off.tp.{tp}.{name}");
            set(&mut profile_file, &key("alpha_us"), point.alpha_us);
            set(&mut profile_file, &key("gb_s"), point.gb_s);
            if let Some(large) = point.large {
                set(&mut profile_file, &key("large.alpha_us"), large.alpha_us);
                set(&mut profile_file, &key("large.gb_s"), large.gb_s);
            }
        }
    }
    save(into, &stack.name, &stack_file)?;
    save(into, &profile.name, &profile_file).map(drop)
}

/// Writes a profile or stack file into a directory and returns its path.
pub(super) fn save(into: &Path, name: &str, file: &DocumentMut) -> Result<PathBuf> {
    let path = into.join(format!("{name}.toml"));
    atomic::write(&path, file.to_string().as_bytes())?;
    report::line(&format!("wrote {}", path.display()));
    Ok(path)
}

/// Text of a hardware profile, with comments.
pub(super) fn profile_document(name_or_file: &str) -> Result<DocumentMut> {
    document(name_or_file, Profile::built_in_text(name_or_file))
}

fn document(name_or_file: &str, built_in: Option<&str>) -> Result<DocumentMut> {
    let text = match built_in {
        Some(text) => text.to_owned(),
        None => InputKind::HARDWARE.text(Path::new(name_or_file))?,
    };
    text.parse().map_err(|error| Error::failed(format!("{name_or_file}: {error}")))
}

/// Sets the value at a dotted path, keeping surrounding comments and blanks.
pub(super) fn set(document: &mut DocumentMut, path: &str, value: f64) {
    let mut item: &mut Item = document.as_item_mut();
    for key in path.split('.') {
        item = &mut item[key];
    }
    let decor = item.as_value().map(|old| old.decor().clone());
    let mut new = Value::from(rounded(value));
    if let Some(decor) = decor {
        *new.decor_mut() = decor;
    }
    *item = Item::Value(new);
}
