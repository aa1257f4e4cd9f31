//! Labeled lines about one run: options, results, prediction sources, machine. Every interface shows the same lines
//! in its own way.

use serde_json::{Number, Value};

use base::text::{binary_size, counted, digits, latency, si};
use lab::store::Annotation;
use machine::hardware::CostSource;
use table::{MEASURES, Measure, MeasureScope, Provenance, Record, Status, is_unsteady};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSection {
    /// Empty for the lines that identify the run.
    pub title: &'static str,
    /// Subject of the measures that the section lists; `None` if it lists none.
    pub scope: Option<MeasureScope>,
    /// Basis of the measures: the samples, the recorded sample, the evaluation. Empty if unknown.
    pub basis: String,
    /// Provenance of numbers that the run itself yields.
    pub provenance: Option<Provenance>,
    pub lines: Vec<(String, String)>,
}

impl RunSection {
    fn new(title: &'static str) -> Self {
        Self { title, ..Self::default() }
    }

    /// Title with the basis: `Metrics: medians over 8 samples (simulated)`.
    pub fn heading(&self) -> String {
        let basis = if self.scope.is_some() { format!(": {}", self.basis) } else { String::new() };
        let provenance =
            self.provenance.map_or_else(String::new, |provenance| format!(" ({provenance})"));
        format!("{}{basis}{provenance}", self.title)
    }

    fn line(&mut self, about: &str, says: impl Into<String>) {
        self.lines.push((about.to_owned(), says.into()));
    }
}

/// Formats a measure of a run, with its interval; `None` without a value.
pub type FormatMeasure = fn(&Measure, &Record) -> Option<String>;

/// Returns the nonempty sections of a run; the machine's is last.
pub fn describe(
    record: &Record,
    annotation: Option<&Annotation>,
    format: FormatMeasure,
) -> Vec<RunSection> {
    let sections = [
        options_section(record, annotation),
        measures_section(record, MeasureScope::Run, format),
        measures_section(record, MeasureScope::Lanes, format),
        measures_section(record, MeasureScope::Quality, format),
        measures_section(record, MeasureScope::Training, format),
        cost_sources_section(record),
        stored_section(record),
        environment_section(record),
    ];
    sections.into_iter().filter(|section| !section.lines.is_empty()).collect()
}

/// Platform of a run: `cpu`, or `h100_sxm gpt-fast` if simulated.
pub fn platform(record: &Record) -> String {
    let spec = &record.spec;
    match spec.backend.is_simulated() {
        true => format!("{} {}", spec.hardware, spec.stack),
        false => spec.backend.as_str().to_owned(),
    }
}

fn options_section(record: &Record, annotation: Option<&Annotation>) -> RunSection {
    let (spec, mut section) = (&record.spec, RunSection::default());
    let mut line = |about: &str, says: String| section.line(about, says);
    if let Some(reason) = &record.reason {
        line("reason", reason.clone());
    }
    line("model", format!("{} in {}", spec.model, spec.dtype));
    let (prompt, output) = (spec.prompt_tokens, spec.output_tokens);
    let batch = spec.batch;
    line("workload", format!("batch {batch}, {prompt} prompt tokens, {output} output tokens"));
    let (tp, p2p, link) = (spec.tp, spec.p2p.as_str(), spec.link);
    let stages = if spec.pp > 1 { format!(" x PP {}", spec.pp) } else { String::new() };
    line("runs on", format!("{}, TP {tp}{stages}, P2P {p2p}, link {link}", platform(record)));
    if let Some(all_reduces) = all_reduces(record) {
        line("all-reduces", all_reduces);
    }
    let done = record.metrics.as_ref().map_or(spec.samples, |metrics| metrics.samples as _);
    let samples = match done {
        done if done < spec.samples => format!("{done} of {}", spec.samples),
        done if done > spec.samples => format!("{done}, {} a round,", spec.samples),
        done => done.to_string(),
    };
    line("samples", format!("{samples} after {} warm-up, seed {}", spec.warmup, spec.seed));
    for (about, pairs) in
        [("variables", &spec.env), ("overrides", &spec.set), ("file hashes", &spec.files)]
    {
        if !pairs.is_empty() {
            line(about, pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "));
        }
    }
    record.warnings.iter().for_each(|warning| line("warning", warning.clone()));
    if let Some(annotation) = annotation {
        let tags = annotation.tags_in_a_line();
        (!tags.is_empty()).then(|| line("tags", tags));
        annotation.note.lines().for_each(|note| line("note", note.to_owned()));
    }
    section
}

/// All-reduces of a simulated run by phase: `prefill multimem (16 MiB, 78.3 us), decode one-shot (16 KiB, 6.62 us)`.
fn all_reduces(record: &Record) -> Option<String> {
    let all = record.environment.get("all_reduces")?.as_object()?;
    let words = ["prefill", "decode"].into_iter().filter_map(|phase| {
        let one = all.get(phase)?;
        let (bytes, us) = (one.get("message_bytes")?.as_f64()?, one.get("us")?.as_f64()?);
        let name = one.get("collective")?.as_str()?;
        // nothing is reduced
        (bytes > 0.0).then(|| format!("{phase} {name} ({}, {})", binary_size(bytes), latency(us)))
    });
    let mut words = words.collect::<Vec<_>>().join(", ");
    if let Some(switches) = record.environment.get("collective_switches").and_then(|v| v.as_str()) {
        words += &format!("; by message size: {switches}");
    }
    (!words.is_empty()).then_some(words)
}

fn stored_section(record: &Record) -> RunSection {
    let mut section = RunSection::new("Stored");
    // predicted not to run, so never stored
    if matches!(record.status, Status::Skipped | Status::Oom) {
        return section;
    }
    if !record.created.is_empty() {
        // without the fraction of the second
        let created = record.created.split_once('.').map(|(seconds, _)| format!("{seconds}Z"));
        section.line("created", created.unwrap_or_else(|| record.created.clone()));
        section.line("round", (record.round + 1).to_string());
        record.experiment.iter().for_each(|experiment| section.line("experiment", experiment));
    }
    if record.runs.len() > 1 {
        section.line("pooled from", record.runs.join(" "));
    }
    record.trace.iter().for_each(|trace| section.line("trace", trace));
    section
}

fn measures_section(record: &Record, scope: MeasureScope, format: FormatMeasure) -> RunSection {
    let metrics = record.metrics.as_ref();
    // a pool of simulations has the numbers of one of them: they are equal
    let pooled = Some(record.runs.len());
    let pooled = pooled.filter(|runs| *runs > 1 && record.provenance != Provenance::Simulated);
    let (title, basis) = match scope {
        MeasureScope::Run => {
            let samples = counted(metrics.map_or(0, |m| m.samples as usize), "sample");
            let has_intervals = metrics.is_some_and(|m| m.tokens_per_s_ci95.is_some());
            let intervals = if has_intervals { " [95 % interval]" } else { "" };
            let of = pooled.map_or_else(String::new, |runs| format!(" of {}", counted(runs, "round")));
            ("Metrics", format!("medians{intervals} over {samples}{of}"))
        }
        MeasureScope::Quality => {
            let about = record.quality.as_ref().map(|quality| quality.full_basis());
            ("Quality", about.unwrap_or_default())
        }
        MeasureScope::Training => {
            let about = record.training.as_ref().map(|training| training.basis());
            ("Training", about.unwrap_or_default())
        }
        MeasureScope::Lanes | MeasureScope::Runs => {
            let basis = match pooled {
                Some(_) => "decode phase of one sample per round, mean over rounds and ranks",
                None => "decode phase of one sample, mean over ranks",
            };
            ("Overlap", basis.to_owned())
        }
    };
    let is_timed = matches!(scope, MeasureScope::Run | MeasureScope::Lanes);
    let provenance = is_timed.then_some(record.provenance);
    let mut section = RunSection { scope: Some(scope), basis, provenance, ..RunSection::new(title) };
    // the options say how many samples there are
    let shown = |measure: &&Measure| measure.scope == scope && measure.name != "samples_done";
    for measure in MEASURES.iter().filter(shown) {
        let Some(value) = format(measure, record) else { continue };
        let aside = match measure.name {
            "completion_ms" => mean_aside(record),
            "tokens_per_s" | "tokens_per_s_per_gpu" => "  (with prefill)".to_owned(),
            "tokens_per_s_per_user" => "  (decode steps only)".to_owned(),
            _ => String::new(),
        };
        section.line(measure.words, value + &aside);
    }
    if let Some(pass) = record.instrumented.as_ref().filter(|_| scope == MeasureScope::Lanes) {
        let cost = pass.overhead.map(|overhead| format!(", {overhead:.3}x the samples' TPOT"));
        section.line("operations timed by", pass.recorder.clone() + &cost.unwrap_or_default());
    }
    section
}

/// Mean completion latency (ms) of the samples if it is [unsteady](is_unsteady) against the median.
pub fn unsteady_mean_ms(record: &Record) -> Option<f64> {
    let times: Vec<f64> = record.samples.iter().map(|s| s.prefill_ms + s.decode_ms).collect();
    let metrics = record.metrics.as_ref().filter(|_| !times.is_empty())?;
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    is_unsteady(mean, metrics.completion_ms).then_some(mean)
}

fn mean_aside(record: &Record) -> String {
    let aside = |mean: f64| format!("  (mean {}; samples vary widely)", latency(mean * 1e3));
    unsteady_mean_ms(record).map_or_else(String::new, aside)
}

fn cost_sources_section(record: &Record) -> RunSection {
    let mut section = RunSection::new("Cost sources, by share of operation time (simulated)");
    let phases = record.environment.get("cost_sources").and_then(|v| v.as_object());
    for phase in ["prefill", "decode"] {
        let Some(shares) = phases.and_then(|all| all.get(phase)?.as_object()) else { continue };
        let share = |source: CostSource| {
            let share = shares.get(source.as_str()).and_then(|v| v.as_f64()).unwrap_or_default();
            let what = match source {
                CostSource::Table => "measured latency tables",
                CostSource::Interpolated => "between measured latency tables",
                CostSource::Roofline => "roofline",
                CostSource::Calibrated => "calibrated constants",
            };
            (share > 0.0).then(|| format!("{what} {:.1} %", 100.0 * share))
        };
        section
            .line(phase, CostSource::ALL.into_iter().filter_map(share).collect::<Vec<_>>().join(", "));
    }
    if !section.lines.is_empty() {
        section.line("error", study::validate::nearest_error(&record.spec));
    }
    section
}

/// JSON value as text for people: `a 1, b 2`, without unknown parts; numbers have the unit that ends their key.
fn value_text(key: &str, value: &Value) -> String {
    let joined =
        |words: Vec<String>| if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => joined(all.iter().map(|value| value_text("", value)).collect()),
        Value::Object(all) => {
            let known = all.iter().filter(|(_, value)| is_known(value));
            let part = |(key, value): (&String, &Value)| {
                format!("{}: {}", key_in_words(key), value_text(key, value))
            };
            joined(known.map(part).collect())
        }
        Value::Number(number) => number_with_unit(key, number),
        other => other.to_string(),
    }
}

/// Number with the unit that its key names: `us_16KiB` and `us` are latencies, `memory_bytes` is a size.
fn number_with_unit(key: &str, number: &Number) -> String {
    let value = number.as_f64().unwrap_or(f64::NAN);
    let has = |unit: &str| key.split('_').any(|part| part == unit);
    if has("us") {
        latency(value)
    } else if has("bytes") {
        si(value, "B")
    } else if has("mhz") {
        format!("{} MHz", digits(value))
    } else if number.is_f64() {
        digits(value)
    } else {
        number.to_string()
    }
}

/// Key in words: `memory_available_bytes` is `memory available`.
fn key_in_words(key: &str) -> String {
    let parts: Vec<&str> =
        key.split('_').filter(|part| !["us", "bytes", "mhz"].contains(part)).collect();
    if parts.is_empty() { key.replace("us", "latency") } else { parts.join(" ") }
}

/// False for null, and for lists and objects that contain only null.
fn is_known(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(all) => all.is_empty() || all.iter().any(is_known),
        Value::Object(all) => all.is_empty() || all.values().any(is_known),
        _ => true,
    }
}

fn environment_section(record: &Record) -> RunSection {
    let mut section = RunSection::new("Environment");
    // printed with the options and the sources of the costs
    let is_elsewhere = |key: &str| ["cost_sources", "all_reduces", "collective_switches"].contains(&key);
    let shown = record.environment.iter().filter(|(key, value)| !is_elsewhere(key) && is_known(value));
    for (key, value) in shown {
        // elsewhere the word means that of a model
        let name = if key == "architecture" { "cpu architecture".into() } else { key_in_words(key) };
        section.line(&name, value_text(key, value));
    }
    section
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_with_and_without_prefill_are_told_apart() {
        let metrics = table::Metrics {
            tokens_per_s: 800.0,
            tpot_ms: table::Percentiles { p50: 4.0, p90: 4.0, p99: 4.0 },
            ..table::Metrics::default()
        };
        let record = Record::new(table::Spec::default(), Status::Ok, None);
        let record = Record { metrics: Some(metrics), ..record };
        let section = measures_section(&record, MeasureScope::Run, Measure::cell_with_interval);
        let value = |name: &str| section.lines.iter().find(|(about, _)| about == name).map(|(_, v)| v);
        assert!(value("tokens/s").is_some_and(|value| value.ends_with("(with prefill)")));
        assert!(value("tokens/s/user").is_some_and(|value| value.ends_with("(decode steps only)")));
    }

    #[test]
    fn the_environment_is_shown_with_units_and_without_unknown_values() {
        let environment = json!({
            "architecture": "x86_64",
            "commit": null,
            "clocks": {"cpu_mhz_max": 2100.0, "governor": null},
            "gpus": {"driver": null},
            "link": {"us_16KiB": 64.06158779301194},
            "memory_bytes": 25_325_268_992_u64,
            "load_average": [2.664, 1.5],
            "cores": 2,
        });
        let mut record = Record::new(table::Spec::default(), Status::Ok, None);
        record.environment = serde_json::from_value(environment).unwrap();
        let lines = environment_section(&record).lines;
        let said: Vec<String> = lines.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        assert_eq!(
            said,
            [
                "cpu architecture = x86_64",
                "clocks = cpu max: 2100 MHz",
                "cores = 2",
                "link = 16KiB: 64.1 us",
                "load average = 2.66, 1.50",
                "memory = 25.3 GB",
            ]
        );
    }
}
