//! The JSON schema of experiment files, for editors (`ladderscope schema experiment`). The types here
//! describe the file; [`super::draft`] is what reads it, with better errors than a schema's.

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// The schema of an experiment file.
pub fn experiment_schema() -> serde_json::Value {
    schemars::schema_for!(ExperimentFile).to_value()
}

/// An experiment: a question, and the grid of cells that answers it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape is used")]
struct ExperimentFile {
    /// What the experiment asks, in a sentence.
    question: Option<String>,
    /// Passes over the cells; each a fresh process a cell, cells interleaved [default: 3, simulated: 1].
    #[schemars(range(min = 1, max = 10_000))]
    rounds: Option<u32>,
    /// The model; or its name as a string.
    model: Option<OrName>,
    /// What is decoded; also takes every option of a cell.
    workload: Option<Workload>,
    /// Axes: any option of a cell, a value or a list of values. The last varies fastest.
    grid: Option<Grid>,
    /// What p2p on and off mean: native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50.
    links: Option<Links>,
    /// Variables of the run's process; a list makes an axis.
    env: Option<BTreeMap<String, OneOrMany<Scalar>>>,
    /// Overrides of the hardware profile's values (simulator); a list makes an axis.
    set: Option<BTreeMap<String, OneOrMany<Scalar>>>,
    #[schemars(flatten)]
    options: Options,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the shape is used")]
enum OrName {
    Name(String),
    Model(ModelTable),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape is used")]
struct ModelTable {
    /// A built-in shape.
    name: Option<String>,
    /// An HF directory; relative to the experiment file.
    path: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape is used")]
struct Workload {
    /// Passes over the cells.
    #[schemars(range(min = 1, max = 10_000))]
    rounds: Option<u32>,
    #[schemars(flatten)]
    options: Options,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape is used")]
struct Links {
    /// The link where p2p is on.
    on: Option<String>,
    /// The link where p2p is off.
    off: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the shape is used")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the shape is used")]
enum Scalar {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// Declares the options once for single values and once for axes.
macro_rules! options {
    ($($(#[$about:meta])* $name:ident: $kind:ty,)*) => {
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only the shape is used")]
        struct Options {
            $($(#[$about])* $name: Option<$kind>,)*
        }

        #[derive(JsonSchema)]
        #[schemars(deny_unknown_fields)]
        #[expect(dead_code, reason = "only the shape is used")]
        struct Grid {
            /// Models by name or path.
            model: Option<OneOrMany<String>>,
            $($(#[$about])* $name: Option<OneOrMany<$kind>>,)*
            /// Variables of the run's process.
            env: Option<BTreeMap<String, OneOrMany<Scalar>>>,
            /// Overrides of the hardware profile's values.
            set: Option<BTreeMap<String, OneOrMany<Scalar>>>,
        }
    };
}

options! {
    /// standard, ladder, ladder:K, parallel, desync:N, upper-bound, stale:S or parallel+ladder.
    architecture: String,
    /// Format of the weights.
    dtype: crate::model::DType,
    /// Ranks of tensor parallelism.
    tp: u32,
    /// Sequences decoded together.
    batch: u32,
    /// Tokens of each prompt.
    prompt_tokens: u32,
    /// New tokens of each sequence.
    output_tokens: u32,
    /// Whether GPUs may talk to each other directly.
    p2p: crate::spec::P2p,
    /// Who runs it.
    backend: crate::spec::Backend,
    /// A hardware profile's name, or a TOML file.
    hardware: String,
    /// native, p2p-on, p2p-off or emulated:alpha_us=20,gb_s=50.
    link: String,
    /// Timed generations.
    samples: u32,
    /// Untimed generations before them.
    warmup: u32,
    /// Seed of random weights, prompts and sampling.
    seed: u64,
    /// Software stack (simulator): native or gpt-fast.
    stack: String,
    /// All-reduce (simulator).
    collective: crate::spec::Collective,
    /// What records the operations of a run on GPUs.
    recorder: crate::spec::Recorder,
    /// How much of a step CUDA events time at once.
    coverage: crate::spec::Coverage,
    /// Operations on GPUs are enqueued one by one, without a graph.
    no_graph: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::options::OPTIONS;

    #[test]
    fn every_option_that_the_parser_knows_is_in_the_schema_and_none_else() {
        let schema = experiment_schema();
        let names = |table: &serde_json::Value| -> std::collections::BTreeSet<String> {
            table["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let options: Vec<String> = OPTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let with = |more: &[&str]| -> std::collections::BTreeSet<String> {
            options.iter().cloned().chain(more.iter().map(|m| (*m).to_owned())).collect()
        };
        let top = with(&["question", "rounds", "workload", "grid", "links", "env", "set"]);
        assert_eq!(names(&schema), top);
        assert_eq!(names(&schema["$defs"]["Grid"]), with(&["env", "set"]));
    }
}
