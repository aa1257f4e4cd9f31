//! Search for the layers of a checkpoint to convert to ladder: measured quality loss on a text (shared with
//! `evaluate`'s stored results) against simulated speed on a target.
//!
//! First measures each layer alone, then sets that grow in the order of that cost, compared with the upper half, the
//! last and random layers. A greedy search tries every layer at each step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::evaluate::{self, EvaluationProgress, QualityRequest, TextCache, TextQuality};
use base::checksum;
use base::error::{Error, Result};
use base::text::layer_list;
use lab::launch::Cancel;
use lab::store::Store;
use lab::sweep::simulate_cells;
use model::Model;
use plan::{Architecture, LayerSet};
use run::Resolve;
use run::{Execute, Feasibility, feasibility};
use study::analysis::{
    self, Conversion, ConversionCandidate, ConversionPoint, ConversionReport, Origins, Unconverted,
};
use table::options::{OPTIONS, option};
use table::{Backend, CellOptions, Metrics, Provenance, Quality, Spec};

#[derive(Clone, Debug)]
pub struct ConversionRequest {
    /// Checkpoint and text; its architectures are ignored.
    pub quality: QualityRequest,
    pub target: Spec,
    /// Target wirings of the converted layers, one search each.
    pub conversions: Vec<Conversion>,
    pub greedy: bool,
    /// Number of random sets per size.
    pub draws: u32,
}

/// Parses a set of layers in the syntax of `ladder:`; brackets of a list are optional.
pub fn layer_set(text: &str) -> Result<LayerSet> {
    let list =
        if text.contains('+') && !text.starts_with('[') { format!("[{text}]") } else { text.into() };
    match format!("ladder:{list}").parse() {
        Ok(Architecture::Ladder(set)) => Ok(set),
        _ => Err(Error::input_help(
            format!("'{text}' is not a set of layers"),
            "write K for the last K layers, or a list such as [0+2+5]",
        )),
    }
}

/// Target options that the search itself sets.
const SEARCHED_OPTIONS: [&str; 2] = ["architecture", "backend"];

/// Parses a target such as `HARDWARE,tp=8,p2p=off,model=NAME`: any options of a cell; the model defaults to the
/// checkpoint's shape.
///
/// # Errors
///
/// Returns an input error for an unknown option or value, and for an infeasible cell, with the arithmetic.
pub fn target(text: &str, checkpoint: &str) -> Result<Spec> {
    let mut options = CellOptions { backend: Some(Backend::Sim), ..CellOptions::default() };
    for (at, word) in text.split(',').map(str::trim).enumerate() {
        let Some((name, value)) = word.split_once('=') else {
            if at > 0 || word.is_empty() {
                return Err(Error::input_help(
                    format!("--for {text}: '{word}' is not OPTION=VALUE"),
                    "write HARDWARE,OPTION=VALUE,...: h100_sxm,tp=8,p2p=off,model=llama-3-8b",
                ));
            }
            options.hardware = Some(word.to_owned());
            continue;
        };
        let name = name.trim().replace('-', "_");
        let found = option(&name).filter(|option| !SEARCHED_OPTIONS.contains(&option.name)).ok_or_else(
            || {
                let names = OPTIONS
                    .iter()
                    .map(|option| option.name)
                    .filter(|name| !SEARCHED_OPTIONS.contains(name));
                Error::unknown("option of --for", &name, names)
            },
        )?;
        found.ask(&mut options, value.trim())?;
    }
    options.model.get_or_insert_with(|| checkpoint.to_owned());
    let mut spec = options.resolve()?.0;
    spec.architecture = Architecture::Standard;
    match feasibility::assess(&spec)? {
        Feasibility::Runs => Ok(spec),
        Feasibility::Skipped(why) | Feasibility::Oom(why) => Err(Error::input_help(
            format!("--for {text}: {} cannot run: {why}", spec.model),
            "ask for another tp or batch, or for another model with model=NAME",
        )),
    }
}

/// Measures the sets of layers, predicts their speed, and stores the report. Stored windows are reused. The second
/// value has notes for the user.
///
/// # Errors
///
/// Returns the errors of [`evaluate::evaluate`]; an input error for sync-drop on one rank, where it drops nothing,
/// and for a checkpoint that is a ladder already; an error if the simulation fails.
pub fn convert(
    request: &ConversionRequest,
    backend: &dyn Execute,
    store: &Store,
    cancel: &Cancel,
    progress: &mut dyn FnMut(EvaluationProgress<'_>),
) -> Result<(ConversionReport, Vec<String>)> {
    check(request)?;
    let layers = request.quality.model.shape.layers;
    let mut search = ConversionSearch {
        request,
        backend,
        store,
        cancel,
        progress,
        cache: TextCache::default(),
        measured: BTreeMap::new(),
        text: None,
    };
    let mut sets: Vec<ConversionCandidate> =
        request.conversions.iter().flat_map(|one| analysis::alone(*one, layers)).collect();
    search.measure(&sets)?;
    for conversion in &request.conversions {
        let costs: Vec<f64> = (0..layers).map(|layer| search.kl(*conversion, &[layer])).collect();
        sets.extend(analysis::ordered(*conversion, &costs));
        sets.extend(analysis::comparators(*conversion, layers, request.draws));
    }
    search.measure(&sets)?;
    if request.greedy {
        for conversion in &request.conversions {
            sets.extend(search.greedy(*conversion)?);
        }
    }
    (search.progress)(EvaluationProgress::Doing("predicting speed"));
    let ConversionSearch { measured, text: Some(text), .. } = search else {
        return Err(Error::failed("nothing was measured"));
    };
    let report = report(request, &text, sets, &measured)?;
    let identity = (
        (&report.model, &report.text, report.context, report.tokens, report.tp, report.dtype),
        (&report.target, request.greedy, request.draws, &request.conversions, request.quality.seed),
    );
    let key = checksum::short_key(serde_json::to_string(&identity).unwrap_or_default());
    store.add_conversion(&key, &report)?;
    Ok((report, text.notes))
}

/// Ladder layers of a point. Returns an input error for sync-drop, which `config.json` cannot express.
pub fn recorded_wiring(point: &ConversionPoint) -> Result<&Architecture> {
    match &point.architecture {
        one if one.recorded_layers().is_some() => Ok(one),
        other => Err(Error::input(format!(
            "point {} is {other}, but config.json can only record layers of ladder and farskip",
            point.number
        ))),
    }
}

/// Returns the stored reports, newest first, and the problems of unreadable ones.
pub fn stored(store: &Store) -> Result<(Vec<ConversionReport>, Vec<String>)> {
    let (reports, mut problems) = store.conversions::<ConversionReport>()?;
    let (known, newer): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|report| report.version <= ConversionReport::VERSION);
    problems.extend(newer.iter().map(|report| {
        format!(
            "a conversion of {} has format {}, this program reads up to {}",
            report.model,
            report.version,
            ConversionReport::VERSION
        )
    }));
    Ok((known, problems))
}

/// Writes a checkpoint with the layers of a stored point of `model`, which had `layers` layers; returns a summary.
pub fn write_stored(model: &str, layers: u32, point: &ConversionPoint, out: &Path) -> Result<String> {
    let wiring = recorded_wiring(point)?;
    let model = Model::resolve(model)?;
    if model.shape.layers != layers {
        return Err(Error::input(format!(
            "{} has {} layers now, and had {layers} when it was measured",
            model.name, model.shape.layers
        )));
    }
    model.write_converted(wiring, out)?;
    Ok(write_note(&model, wiring, out))
}

/// Summary of a written checkpoint.
pub fn write_note(model: &Model, wiring: &Architecture, out: &Path) -> String {
    let name = if matches!(wiring, Architecture::FarSkip(_)) { "farskip" } else { "ladder" };
    let list = wiring.recorded_layers().and_then(|set| set.layers(model.shape.layers).ok());
    format!("wrote {}: {name} in layers {}", out.display(), layer_list(&list.unwrap_or_default()))
}

fn check(request: &ConversionRequest) -> Result<()> {
    let model = &request.quality.model;
    if let Some(wiring) = &model.wiring {
        return Err(Error::input_help(
            format!("{} is converted already: its config.json says {wiring}", model.name),
            "pass the original checkpoint",
        ));
    }
    if request.conversions.contains(&Conversion::SyncDrop) && request.quality.tp == 1 {
        return Err(Error::input_help(
            "sync-drop has no effect on one rank, so its cost would be 0",
            "measure quality at the TP it will run at, with --tp N",
        ));
    }
    Ok(())
}

struct ConversionSearch<'a> {
    request: &'a ConversionRequest,
    backend: &'a dyn Execute,
    store: &'a Store,
    cancel: &'a Cancel,
    progress: &'a mut dyn FnMut(EvaluationProgress<'_>),
    cache: TextCache,
    measured: BTreeMap<Architecture, Quality>,
    /// Latest evaluation; its text is the same each time.
    text: Option<TextQuality>,
}

impl ConversionSearch<'_> {
    fn measure(&mut self, sets: &[ConversionCandidate]) -> Result<()> {
        let layers = self.request.quality.model.shape.layers;
        let wirings: BTreeSet<Architecture> =
            sets.iter().map(|set| set.conversion.architecture(&set.layers, layers)).collect();
        let missing: Vec<Architecture> =
            wirings.into_iter().filter(|one| !self.measured.contains_key(one)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let quality = QualityRequest {
            architectures: std::iter::once(Architecture::Standard).chain(missing).collect(),
            counts: false,
            ..self.request.quality.clone()
        };
        let Self { cache, backend, store, cancel, progress, .. } = self;
        let text = evaluate::evaluate(&quality, cache, *backend, store, cancel, progress)?;
        let cases = text.cases.iter().map(|case| (case.architecture.clone(), case.quality));
        self.measured.extend(cases);
        self.text = Some(text);
        Ok(())
    }

    fn kl(&self, conversion: Conversion, layers: &[u32]) -> f64 {
        self.measured[&conversion.architecture(layers, self.request.quality.model.shape.layers)].kl
    }

    /// Adds layers one at a time, each time the one with the lowest divergence.
    fn greedy(&mut self, conversion: Conversion) -> Result<Vec<ConversionCandidate>> {
        let (mut set, mut steps) = (Vec::new(), Vec::new());
        loop {
            let ways = analysis::extended(conversion, &set, self.request.quality.model.shape.layers);
            self.measure(&ways)?;
            let kl = |way: &ConversionCandidate| self.kl(conversion, &way.layers);
            let Some(best) = ways.into_iter().min_by(|a, b| kl(a).total_cmp(&kl(b))) else {
                return Ok(steps);
            };
            set.clone_from(&best.layers);
            steps.push(best);
        }
    }
}

fn report(
    request: &ConversionRequest,
    text: &TextQuality,
    sets: Vec<ConversionCandidate>,
    measured: &BTreeMap<Architecture, Quality>,
) -> Result<ConversionReport> {
    let ConversionRequest { quality, target, .. } = request;
    let layers = quality.model.shape.layers;
    let of_target = Model::resolve(&target.model)?.shape.layers;
    let carried = |set: &ConversionCandidate| {
        set.conversion.architecture(&analysis::carried_over(&set.layers, layers, of_target), of_target)
    };
    let speeds = speeds(target, sets.iter().map(carried))?;
    let standard = &speeds[&Architecture::Standard];
    let point = |(at, set): (usize, ConversionCandidate)| {
        let target_architecture = carried(&set);
        let speed = &speeds[&target_architecture];
        let architecture = set.conversion.architecture(&set.layers, layers);
        ConversionPoint {
            number: at + 1,
            conversion: set.conversion,
            series: set.series,
            quality: measured[&architecture],
            architecture,
            layers: set.layers,
            tokens_per_s: speed.tokens_per_s,
            tpot_ms: speed.tpot_ms.p50,
            speedup: speed.tokens_per_s / standard.tokens_per_s,
            target_architecture,
        }
    };
    Ok(ConversionReport {
        version: ConversionReport::VERSION,
        // a relative path would name another checkpoint from another directory
        model: std::path::absolute(&quality.model.name)
            .map_or_else(|_| quality.model.name.clone(), |path| path.to_string_lossy().into_owned()),
        layers,
        text: quality.text.path().display().to_string(),
        context: text.context,
        tokens: text.tokens,
        windows: text.windows,
        predicted: text.predicted,
        tp: quality.tp,
        dtype: quality.dtype,
        target: target.clone(),
        provenance: Origins { quality: Provenance::Measured, speed: target.provenance() },
        standard: Unconverted {
            quality: measured[&Architecture::Standard],
            tokens_per_s: standard.tokens_per_s,
            tpot_ms: standard.tpot_ms.p50,
        },
        points: sets.into_iter().enumerate().map(point).collect(),
    })
}

fn speeds(
    target: &Spec,
    wirings: impl Iterator<Item = Architecture>,
) -> Result<BTreeMap<Architecture, Metrics>> {
    let all: BTreeSet<Architecture> = wirings.chain([Architecture::Standard]).collect();
    let specs: Vec<Spec> =
        all.into_iter().map(|architecture| Spec { architecture, ..target.clone() }).collect();
    let mut found = BTreeMap::new();
    let mut failed = None;
    simulate_cells(&specs.iter().collect::<Vec<_>>(), |_, record| match record.metrics {
        Some(metrics) => drop(found.insert(record.spec.architecture, metrics)),
        None => failed = record.reason.or(Some("it was not simulated".into())),
    });
    match failed {
        Some(why) => Err(Error::failed(format!("predicting the speed of {}: {why}", target.label()))),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_accepts_any_option_and_names_invalid_ones() {
        let spec = target("h100-sxm,tp=8,p2p=off,model=llama-3-8b,batch=4", "tiny").unwrap();
        assert_eq!(spec.label(), "standard tp8 b4 p2p-off");
        assert_eq!((spec.hardware.as_str(), spec.model.as_str()), ("h100_sxm", "llama-3-8b"));
        assert_eq!(target("h100_sxm,tp=2", "tiny").unwrap().model, "tiny", "the checkpoint's shape");
        for (text, part) in [
            ("h100,tp=8", "h100"),
            ("h100_sxm,tpp=8", "'tpp'"),
            ("h100_sxm,tp=x", "x"),
            ("h100_sxm,8", "'8'"),
            ("h100_sxm,architecture=ladder", "'architecture'"),
            ("h100_sxm,tp=3", "TP 3"),
            ("h100_sxm,model=llama-3.1-405b", "GB"),
            ("", "''"),
        ] {
            let error = target(text, "tiny").unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}: {error}");
            let told = format!("{error} {:?}", miette::Diagnostic::help(&error).map(|h| h.to_string()));
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
