//! `ladderscope convert`: chooses layers of a checkpoint to convert to ladder or farskip. Prints sets of layers with quality
//! cost and speedup, draws the figure, and writes a checkpoint with the chosen layers.

use std::path::{Path, PathBuf};

use super::evaluate::{TextArgs, model_of};
use super::output::{self, FormatArgs, OutputFormat};
use super::running::{OnHangUp, cancel_on_signals};
use super::stderr;
use super::step_progress::StepProgress;
use crate::desk::convert::{self, ConversionRequest, convert};
use crate::desk::export::{self, FileKind};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Store;
use model::{Model, check_place};
use plan::{Architecture, CommDType, LayerSet};
use study::analysis::{Conversion, ConversionPoint, ConversionReport};
use study::plot::FigureOptions;
use table::Spec;
use table::render::Sourced;

/// Arguments of `ladderscope convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub text: TextArgs,
    /// Target of the speed prediction: a hardware profile and options of `run`, such as h100_sxm,tp=8,p2p=off; with
    /// model=NAME, the speed of that model with layers at the same relative depth
    #[arg(long = "for", value_name = "HARDWARE,OPTION=VALUE,...", required_unless_present = "layers")]
    pub target: Option<String>,
    /// Search these conversions too: sync-drop, farskip
    #[arg(long, value_name = "CONVERSION", value_delimiter = ',', value_parser = conversion)]
    pub with: Vec<Conversion>,
    /// Search greedily too, layer by layer; measures L(L+1)/2 sets for L layers
    #[arg(long)]
    pub greedy: bool,
    /// Number of random sets to measure per size, for comparison
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub random: u32,
    /// HF directory to write: the layers in config.json, and links to the weights; needs --layers, --budget or --point
    #[arg(long, value_name = "OUT", requires = "chosen")]
    pub write: Option<PathBuf>,
    /// Layers to convert to ladder and write: K (the last K) or a set such as [0+2+5]; farskip:K or farskip:[0+2] to
    /// farskip. Without --for, nothing is measured
    #[arg(long, value_name = "LAYERS", value_parser = wiring, group = "chosen", requires = "write")]
    pub layers: Option<Architecture>,
    /// Write the fastest set with a KL divergence of at most X: 'kl<=0.05'
    #[arg(long, value_name = "kl<=X", value_parser = budget, group = "chosen", requires = "write")]
    pub budget: Option<f64>,
    /// Write the set with this number in the table
    #[arg(long, value_name = "N", group = "chosen", requires = "write")]
    pub point: Option<usize>,
    /// Also write a figure of KL divergence over speedup (.svg, .png) or the table (.csv)
    #[arg(short, long, alias = "export", value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub look: FigureOptions,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Parses a set of layers, or a wiring that a config records.
fn wiring(text: &str) -> Result<Architecture> {
    let named = text.contains(char::is_alphabetic).then(|| text.parse::<Architecture>().ok()).flatten();
    match named.filter(|one| one.recorded_layers().is_some()) {
        Some(wiring) => Ok(wiring),
        None => convert::layer_set(text).map(Architecture::Ladder),
    }
}

/// Parses a conversion; explains why other architectures are none.
fn conversion(text: &str) -> Result<Conversion> {
    text.parse().map_err(|unknown| match text.parse::<Architecture>() {
        Ok(other) if other != Architecture::Standard && !other.is_limit() => Error::input_help(
            format!("{other} is no conversion of single layers: its weights must be trained with it"),
            format!("train it with adapt --architecture {other}, or convert with ladder, sync-drop or farskip"),
        ),
        _ => unknown,
    })
}

/// Parses the divergence in `kl<=X`, in nats per token.
fn budget(text: &str) -> Result<f64> {
    let number = text.trim().strip_prefix("kl").map(str::trim_start).and_then(|t| t.strip_prefix("<="));
    let number =
        number.and_then(|n| n.trim().parse().ok()).filter(|kl: &f64| kl.is_finite() && *kl >= 0.0);
    number.ok_or_else(|| {
        Error::input_help(
            format!("'{text}' is not a budget"),
            "write 'kl<=X' with the KL divergence in nats/token, for example 'kl<=0.05'",
        )
    })
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    // checks output paths before slow work
    args.write.as_deref().map(check_place).transpose()?;
    args.output.as_deref().map(|path| FileKind::check(path, &FileKind::ALL)).transpose()?;
    args.look.check()?;
    let model = model_of(&args.text.model, args.text.seed)?;
    if let Some(problem) = args.layers.as_ref().and_then(|one| one.layer_problem(model.shape.layers)) {
        return Err(Error::input(problem));
    }
    let Some(target) = &args.target else {
        return match (&args.write, &args.layers) {
            (Some(out), Some(wiring)) => write(&model, wiring, out, "").map(|()| 0),
            _ => Err(Error::input("pass a machine with --for HARDWARE,...")),
        };
    };
    let report = search(args, &model, convert::target(target, &model.name)?, dir)?;
    print(&report, args.format.format)?;
    if let Some(path) = &args.output {
        export::conversion(path, &report, &args.look)?;
    }
    let Some(out) = &args.write else { return Ok(0) };
    let point = match (args.budget, args.point) {
        (Some(kl), _) => report.within(kl)?,
        (_, Some(number)) => report.point(number)?,
        _ => {
            let all = Architecture::Ladder(LayerSet::All);
            return write(&model, args.layers.as_ref().unwrap_or(&all), out, "").map(|()| 0);
        }
    };
    let about = format!(
        ", point {}: KL {:.4} (measured), {:.2}x faster (simulated)",
        point.number, point.quality.kl, point.speedup
    );
    write(&model, convert::recorded_wiring(point)?, out, &about)?;
    Ok(0)
}

fn search(args: &Args, model: &Model, target: Spec, dir: PathBuf) -> Result<ConversionReport> {
    let backend = args.text.backend()?;
    let mut conversions = vec![Conversion::Ladder];
    conversions.extend(args.with.iter().filter(|with| **with != Conversion::Ladder));
    conversions.dedup();
    let request = ConversionRequest {
        quality: args.text.request(model.clone(), backend, Vec::new(), CommDType::default())?,
        target,
        conversions,
        greedy: args.greedy,
        draws: args.random,
    };
    let cancel = cancel_on_signals(OnHangUp::Cancel)?;
    let mut shown = StepProgress::new();
    let found = convert(&request, backend, &Store::open(dir), &cancel, &mut |p| shown.evaluation(p));
    shown.finish();
    let (found, notes) = found?;
    notes.iter().for_each(|note| stderr::note(note));
    Ok(found)
}

fn write(model: &Model, wiring: &Architecture, out: &Path, about: &str) -> Result<()> {
    model.write_converted(wiring, out)?;
    stderr::note(&format!("{}{about}", convert::write_note(model, wiring, out)));
    Ok(())
}

fn print(report: &ConversionReport, format: OutputFormat) -> Result<()> {
    match format {
        OutputFormat::Json => output::json_line(report),
        OutputFormat::Csv => output::emit(&report.file().csv(Sourced::ByRow)),
        OutputFormat::Table => output::emit(&format!(
            "{}{}{}{}",
            headline(report),
            output::wrapped("", &heading(report), 2),
            output::aligned(&report.table()),
            random(report)
        )),
    }
}

fn heading(report: &ConversionReport) -> String {
    let standard = &report.standard;
    format!(
        "KL divergence from standard in nats/token (measured on {} of {} tokens, {} predicted; NLL of standard {:.4}); \
         speed simulated for {}, standard: {:.1} tokens/s",
        counted(report.windows, "window"),
        report.context,
        report.predicted,
        standard.quality.nll,
        report.target_label(),
        standard.tokens_per_s
    )
}

/// Largest KL divergence (nats/token) of a conversion that the headline calls cheap.
const CHEAP_KL: f64 = 0.05;

/// Fastest conversion within [`CHEAP_KL`], and the fastest of all.
fn headline(report: &ConversionReport) -> String {
    let fastest = |most: f64| {
        let within =
            report.points.iter().filter(|point| point.quality.kl <= most && !point.layers.is_empty());
        within.max_by(|a, b| a.speedup.total_cmp(&b.speedup))
    };
    let words = |point: &ConversionPoint| {
        format!(
            "{} in {} (point {}), {:.2}x at KL {:.4}",
            point.conversion,
            counted(point.layers.len(), "layer"),
            point.number,
            point.speedup,
            point.quality.kl
        )
    };
    let Some(all) = fastest(f64::INFINITY) else { return String::new() };
    let cheap = fastest(CHEAP_KL).map_or_else(
        || format!("no conversion has a KL of at most {CHEAP_KL}"),
        |point| format!("fastest within KL {CHEAP_KL}: {}", words(point)),
    );
    output::wrapped("", &format!("Fastest: {}; {cheap}.", words(all)), 0)
}

/// Cost of random sets, one line per size.
fn random(report: &ConversionReport) -> String {
    let conversions = Conversion::ALL.into_iter();
    let draws = conversions.flat_map(|one| report.draws(one).into_iter().map(move |draws| (one, draws)));
    let lines = draws.map(|(conversion, draws)| {
        format!(
            "{} random {conversion}: KL {:.4} [{:.4}, {:.4}] ({})\n",
            counted(draws.count, "layer"),
            draws.kl,
            draws.range[0],
            draws.range[1],
            counted(draws.sets, "set")
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_budgets_are_parsed_and_invalid_ones_named() {
        assert_eq!(convert::layer_set("3").unwrap(), LayerSet::Last(3));
        assert_eq!(convert::layer_set("2+0").unwrap(), LayerSet::Only(vec![0, 2]));
        assert_eq!(wiring("2+0").unwrap(), Architecture::Ladder(LayerSet::Only(vec![0, 2])));
        assert_eq!(wiring("farskip:2").unwrap(), Architecture::FarSkip(LayerSet::Last(2)));
        assert!(wiring("parallel").unwrap_err().to_string().contains("'parallel'"));
        assert_eq!(convert::layer_set("[7]").unwrap(), LayerSet::Only(vec![7]));
        assert!(convert::layer_set("0-3").unwrap_err().to_string().contains("'0-3'"));
        assert_eq!(conversion("sync-drop").unwrap(), Conversion::SyncDrop);
        for (other, part) in [("kraken", "kraken is no conversion"), ("sync-dorp", "sync-drop")] {
            let error = conversion(other).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let help = format!("{error} {:?}", miette::Diagnostic::help(&error).map(|h| h.to_string()));
            assert!(help.contains(part), "{help}");
        }
        assert_eq!((budget("kl<=0.05").unwrap(), budget("kl <= 1").unwrap()), (0.05, 1.0));
        for wrong in ["0.05", "kl<=-1", "kl<0.1", "nll<=1", "kl<=x"] {
            assert!(budget(wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
