//! `ladderscope evaluate`: measures how well architectures of a checkpoint predict a text, and their divergence from
//! `standard`.

use std::path::PathBuf;

use serde::Serialize;

use super::on_text::TextArgs;
use super::output::{self, Format, FormatArgs};
use super::progress::StepProgress;
use super::{interrupt, report};
use crate::desk::evaluate::{Asked, Case, Subject, TextQuality, evaluate};
use base::error::Result;
use lab::launch::Cancel;
use lab::store::Store;
use model::Model;
use plan::{Architecture, CommDType};
use table::render::{Shown, Sourced, Table};
use table::{Backend, Provenance, Quality};

/// Arguments of `ladderscope evaluate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub on: TextArgs,
    /// Architectures to evaluate (as in `run`), one case each: A,B,... [default: standard, or the checkpoint's]
    #[arg(long, value_delimiter = ',')]
    pub architecture: Vec<Architecture>,
    /// Reference checkpoint for the KL divergence, run as standard [default: --model]
    #[arg(long, value_name = "DIR")]
    pub reference: Option<String>,
    /// Number format of all-reduce messages (partial sums): activations, f8, int8
    #[arg(long, value_name = "FORMAT", default_value = "activations")]
    pub comm_dtype: CommDType,
    #[command(flatten)]
    pub output: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let backend = args.on.backend()?;
    let model = args.on.model()?;
    let mut architectures = args.architecture.clone();
    if architectures.is_empty() {
        let own = model.ladder_layers.as_ref().map(Architecture::from_ladder_layers);
        architectures.push(own.unwrap_or(Architecture::Standard));
    }
    let mut asked = args.on.asked(model, backend, architectures, args.comm_dtype)?;
    asked.reference = args.reference.as_deref().map(Model::resolve).transpose()?;
    let cancel = Cancel::default();
    interrupt::cancel_on_signals(&cancel, true)?;
    let mut shown = StepProgress::new();
    let (mut subject, store) = (Subject::default(), Store::open(dir));
    let evaluated = evaluate(&asked, &mut subject, backend, &store, &cancel, &mut |progress| {
        shown.evaluation(progress)
    });
    shown.finish();
    let evaluated = evaluated?;
    for note in &evaluated.notes {
        report::note(note);
    }
    print(&asked, &evaluated, args.output.format)?;
    Ok(0)
}

/// Output of `--format json`.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    /// Built-in name or directory of the model, as given.
    model: &'a str,
    /// Fingerprint of the weights.
    weights: &'a str,
    /// Reference model whose `standard` is compared with, if it is a different model.
    reference: Option<&'a str>,
    text: PrintedText<'a>,
    backend: Backend,
    context: usize,
    tokens: usize,
    windows: usize,
    predicted: u32,
    /// Provenance of the numbers.
    provenance: Provenance,
    cases: Vec<PrintedCase<'a>>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct PrintedText<'a> {
    /// File name.
    file: String,
    /// SHA-256 of the file.
    sha256: &'a str,
    /// Total tokens, of which `--tokens` may use fewer.
    tokens: usize,
}

#[derive(Serialize, schemars::JsonSchema)]
struct PrintedCase<'a> {
    #[schemars(with = "String")]
    architecture: &'a Architecture,
    tp: u32,
    #[serde(flatten)]
    quality: &'a Quality,
}

fn print(asked: &Asked, evaluated: &TextQuality, format: Format) -> Result<()> {
    if format == Format::Json {
        let cases = evaluated.cases.iter();
        let cases = cases.map(|case| PrintedCase {
            architecture: &case.architecture,
            tp: case.tp,
            quality: &case.quality,
        });
        return output::json_line(&Printed {
            model: &asked.model.name,
            weights: &evaluated.weights,
            reference: asked.reference.as_ref().map(|model| model.name.as_str()),
            text: PrintedText {
                file: asked.text.name(),
                sha256: &evaluated.text_sha256,
                tokens: evaluated.all_tokens,
            },
            backend: evaluated.backend,
            context: evaluated.context,
            tokens: evaluated.tokens,
            windows: evaluated.windows,
            predicted: evaluated.predicted,
            provenance: Provenance::Measured,
            cases: cases.collect(),
        });
    }
    let low = |ci: Option<[f64; 2]>| Shown::number(ci.map(|ci| ci[0]), 4);
    let high = |ci: Option<[f64; 2]>| Shown::number(ci.map(|ci| ci[1]), 4);
    // files have separate columns for the ends of the 95 % intervals
    let table = Table::of(
        &evaluated.cases,
        &[
            ("architecture", &|case: &Case| Shown::text(&case.architecture)),
            ("tp", &|case| case.tp.into()),
            ("nll|NLL", &|case| Shown::interval(Some(case.quality.nll), case.quality.nll_ci95, 4)),
            ("perplexity", &|case| {
                Shown::interval(Some(case.quality.perplexity), case.quality.perplexity_ci95, 2)
            }),
            ("kl|KL", &|case| Shown::interval(Some(case.quality.kl), case.quality.kl_ci95, 4)),
            ("agreement", &|case| {
                Shown::interval(Some(case.quality.agreement), case.quality.agreement_ci95, 3)
            }),
            ("nll_low|", &|case| low(case.quality.nll_ci95)),
            ("nll_high|", &|case| high(case.quality.nll_ci95)),
            ("perplexity_low|", &|case| low(case.quality.perplexity_ci95)),
            ("perplexity_high|", &|case| high(case.quality.perplexity_ci95)),
            ("kl_low|", &|case| low(case.quality.kl_ci95)),
            ("kl_high|", &|case| high(case.quality.kl_ci95)),
            ("agreement_low|", &|case| low(case.quality.agreement_ci95)),
            ("agreement_high|", &|case| high(case.quality.agreement_ci95)),
        ],
    )
    // follows from the NLL
    .least(&["perplexity"]);
    if format == Format::Csv {
        return output::emit(&table.csv(Sourced::All(Provenance::Measured)));
    }
    let windows = base::text::counted(evaluated.windows, "window");
    let heading = format!(
        "measured on {}: {} of {} tokens, {} predicted; NLL and KL (against standard) in nats/token",
        evaluated.backend, windows, evaluated.context, evaluated.predicted
    );
    let answer = output::wrapped("", &headline(asked, evaluated), 0);
    output::emit(&(answer + &output::wrapped("", &heading, 2) + &output::aligned(&table)))
}

/// Case closest to `standard` and the farthest one, or the likelihood of a `standard` alone.
fn headline(asked: &Asked, evaluated: &TextQuality) -> String {
    let is_reference =
        |case: &&Case| asked.reference.is_none() && case.architecture == Architecture::Standard;
    let distance = |case: &Case| {
        let Quality { kl, agreement, .. } = case.quality;
        format!(
            "{} (KL {kl:.4}, same top token {:.1} % of the time)",
            case.architecture,
            100.0 * agreement
        )
    };
    let reference = asked.reference.as_ref().map_or("standard", |model| model.name.as_str());
    let mut others: Vec<&Case> = evaluated.cases.iter().filter(|case| !is_reference(case)).collect();
    others.sort_by(|a, b| a.quality.kl.total_cmp(&b.quality.kl));
    match (&others[..], evaluated.cases.first()) {
        ([], None) => String::new(),
        ([], Some(case)) => {
            let Quality { nll, perplexity, .. } = case.quality;
            format!("{}: NLL {nll:.3} nats/token, perplexity {perplexity:.2}.", case.architecture)
        }
        ([one], _) => format!("Divergence from {reference}: {}.", distance(one)),
        ([closest, .., farthest], _) => {
            format!("Closest to {reference}: {}; farthest: {}.", distance(closest), distance(farthest))
        }
    }
}
