//! `ladderscope convert`: which layers of a checkpoint to convert to ladder. Sets of layers with what they lose on a
//! text and give on a target, the figure of that, and a checkpoint with the layers that were chosen.

use std::path::{Path, PathBuf};

use super::figure::LookArgs;
use super::output::{self, Format, FormatArgs};
use super::{evaluate, interrupt, report};
use crate::base::error::{Error, Result};
use crate::base::text::counted;
use crate::desk::convert::{self, Wanted, convert};
use crate::desk::evaluate::{Asked, Text};
use crate::desk::export::{self, FileKind};
use crate::lab::launch::Cancel;
use crate::lab::store::Store;
use crate::model::{Model, check_place};
use crate::plan::{Architecture, CommDType, DType, LayerSet};
use crate::run::backend;
use crate::study::analysis::{Conversion, ConversionReport};
use crate::table::Backend;

/// The command line's arguments of `ladderscope convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An HF directory: config.json, safetensors, and for --text tokenizer.json
    #[arg(long, value_name = "DIR")]
    pub weights: PathBuf,
    /// The text that is predicted, through the directory's tokenizer.json without special tokens
    #[arg(long, value_name = "FILE", required_unless_present_any = ["tokens_file", "layers"])]
    pub text: Option<PathBuf>,
    /// The text as token ids separated by blanks, taken as they are
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub tokens_file: Option<PathBuf>,
    /// Whose speed is predicted: a hardware profile, then options of a cell: h100_sxm,tp=8,p2p=off. With model=NAME the
    /// speed of that model with layers at the same depth, else the checkpoint's own shape
    #[arg(long = "for", value_name = "HARDWARE,OPTION=VALUE,...", required_unless_present = "layers")]
    pub target: Option<String>,
    /// Besides ladder also search layers for these: sync-drop
    #[arg(long, value_name = "CONVERSION", value_delimiter = ',')]
    pub with: Vec<Conversion>,
    /// Also measure every way to add a layer, step by step: L(L+1)/2 sets of L layers
    #[arg(long)]
    pub greedy: bool,
    /// Random sets of a size that are measured beside
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub random: u32,
    /// Ranks with which the quality is measured; changes sync-drop alone
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: u32,
    /// Tokens of a window
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub context: u32,
    /// Use the text's first tokens alone
    #[arg(long, value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Format of the weights: f32, bf16 (on cpu computed in f32) [default: f32]
    #[arg(long)]
    pub dtype: Option<DType>,
    /// Seed of random weights, where the directory has none
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Write an HF directory with ladder_layers in config.json, weights linked; needs one of the three below
    #[arg(long, value_name = "OUT", requires = "chosen")]
    pub write: Option<PathBuf>,
    /// The layers to write: K (the last ones) or [0+2+5]; nothing is measured without --for
    #[arg(long, value_name = "LAYERS", value_parser = layers, group = "chosen", requires = "write")]
    pub layers: Option<LayerSet>,
    /// Write the fastest set whose KL is at most this: 'kl<=0.05'
    #[arg(long, value_name = "kl<=X", value_parser = budget, group = "chosen", requires = "write")]
    pub budget: Option<f64>,
    /// Write the point of this number of the table
    #[arg(long, value_name = "N", group = "chosen", requires = "write")]
    pub point: Option<usize>,
    /// Also write a figure of KL over speed-up (.svg, .png) or the table (.csv)
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub look: LookArgs,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// A set of layers as `ladder:` takes it; a list may stand without its brackets.
fn layers(text: &str) -> Result<LayerSet> {
    let list =
        if text.contains('+') && !text.starts_with('[') { format!("[{text}]") } else { text.into() };
    match format!("ladder:{list}").parse() {
        Ok(Architecture::Ladder(set)) => Ok(set),
        _ => Err(Error::input_help(
            format!("'{text}' is no set of layers"),
            "write K for the last K layers, or [0+2+5] for these",
        )),
    }
}

/// The divergence in `kl<=X`, in nats a token.
fn budget(text: &str) -> Result<f64> {
    let number = text.trim().strip_prefix("kl").map(str::trim_start).and_then(|t| t.strip_prefix("<="));
    let number =
        number.and_then(|n| n.trim().parse().ok()).filter(|kl: &f64| kl.is_finite() && *kl >= 0.0);
    number.ok_or_else(|| {
        Error::input_help(format!("'{text}' is no budget"), "write 'kl<=0.05', in nats a token")
    })
}

/// Measures, prints, and writes what is asked for.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    // what cannot be written in the end is refused before anything takes long
    args.write.as_deref().map(check_place).transpose()?;
    args.export.as_deref().map(|path| FileKind::check(path, &FileKind::ALL)).transpose()?;
    let look = args.look.options()?;
    let model = evaluate::model(&args.weights, args.seed)?;
    if let Some(layers) = &args.layers {
        layers.layers(model.shape.layers)?;
    }
    let (Some(target), Some(text)) = (&args.target, text(args)) else {
        return match (&args.write, &args.layers) {
            (Some(out), Some(layers)) => write(&model, layers, out, "").map(|()| 0),
            _ => Err(Error::input("give --text FILE and --for HARDWARE,...")),
        };
    };
    let report = search(args, &model, convert::target(target, &model.name)?, text, dir)?;
    print(&report, args.output.format)?;
    if let Some(path) = &args.export {
        export::conversion(path, &report, &look)?;
    }
    let Some(out) = &args.write else { return Ok(0) };
    let point = match (args.budget, args.point) {
        (Some(kl), _) => report.within(kl)?,
        (_, Some(number)) => report.point(number)?,
        _ => {
            let layers = args.layers.as_ref().unwrap_or(&LayerSet::All);
            return write(&model, layers, out, "").map(|()| 0);
        }
    };
    let about = format!(
        ", point {}: kl {:.4} (measured), {:.3} times as fast (simulated)",
        point.number, point.quality.kl, point.speedup
    );
    write(&model, convert::written(point)?, out, &about)?;
    Ok(0)
}

/// Where the text comes from; none where only layers are to be written.
fn text(args: &Args) -> Option<Text> {
    let ids = || args.tokens_file.clone().map(Text::Ids);
    args.text.clone().map(Text::Words).or_else(ids)
}

fn search(
    args: &Args,
    model: &Model,
    target: crate::table::Spec,
    text: Text,
    dir: PathBuf,
) -> Result<ConversionReport> {
    let backend = backend(Backend::Cpu)?;
    let mut conversions = vec![Conversion::Ladder];
    conversions.extend(args.with.iter().filter(|with| **with != Conversion::Ladder));
    conversions.dedup();
    let wanted = Wanted {
        asked: Asked {
            dtype: args.dtype.unwrap_or_else(|| backend.generation_dtype(model)),
            model: model.clone(),
            text,
            architectures: Vec::new(),
            tp: args.tp,
            comm_dtype: CommDType::default(),
            context: args.context as usize,
            limit: args.tokens.map(|limit| limit as usize),
            seed: args.seed,
        },
        target,
        conversions,
        greedy: args.greedy,
        draws: args.random,
    };
    let cancel = Cancel::default();
    interrupt::cancel_on_signals(&cancel)?;
    let mut shown = evaluate::Shower::new();
    let found = convert(&wanted, backend, &Store::open(dir), &cancel, &mut |p| shown.show(p));
    shown.finish();
    let (found, notes) = found?;
    notes.iter().for_each(|note| report::note(note));
    Ok(found)
}

fn write(model: &Model, layers: &LayerSet, out: &Path, about: &str) -> Result<()> {
    model.write_converted(layers, out)?;
    report::note(&format!("{}{about}", convert::told(model, layers, out)));
    Ok(())
}

fn print(report: &ConversionReport, format: Format) -> Result<()> {
    match format {
        Format::Json => output::json_line(report),
        Format::Csv => output::emit(&report.table().csv()),
        Format::Table => output::emit(&format!(
            "{}\n{}{}",
            heading(report),
            output::aligned(&report.table()),
            random(report)
        )),
    }
}

fn heading(report: &ConversionReport) -> String {
    let standard = &report.standard;
    format!(
        "{} of {} tokens, {} predicted; kl (measured) in nats a token against standard, whose nll is {:.4}\n\
         speed (simulated): {}, over standard's {:.1} tokens/s",
        counted(report.windows, "window"),
        report.context,
        report.predicted,
        standard.quality.nll,
        report.target_label(),
        standard.tokens_per_s
    )
}

/// What random sets cost: a line a size.
fn random(report: &ConversionReport) -> String {
    let conversions = Conversion::ALL.into_iter();
    let draws = conversions.flat_map(|one| report.draws(one).into_iter().map(move |draws| (one, draws)));
    let lines = draws.map(|(conversion, draws)| {
        format!(
            "{} random {conversion}: kl {:.4}, from {:.4} to {:.4} ({})\n",
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
    fn sets_and_budgets_are_read_and_mistakes_told() {
        assert_eq!(layers("3").unwrap(), LayerSet::Last(3));
        assert_eq!(layers("2+0").unwrap(), LayerSet::Only(vec![0, 2]));
        assert_eq!(layers("[7]").unwrap(), LayerSet::Only(vec![7]));
        assert!(layers("0-3").unwrap_err().to_string().contains("'0-3'"));
        assert_eq!((budget("kl<=0.05").unwrap(), budget("kl <= 1").unwrap()), (0.05, 1.0));
        for wrong in ["0.05", "kl<=-1", "kl<0.1", "nll<=1", "kl<=x"] {
            assert!(budget(wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
