//! `ladderscope schema KIND`: JSON schema of a kind of file, or of a verb's `--format json` output. Output schemas
//! are generated from the printed types.

use clap::ValueEnum;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::output::{self, Annotated};
use super::{
    adapt, baseline, calibrate, calibrate_collectives, catalog, diff, doctor, doctor_check, generate,
    hardware, import, overlap, pareto, rewire, show, stderr, sweep_dry_run, trace, validate, whatif,
};
use base::error::Result;
use lab::store::Trash;
use study::analysis::{ComparisonReport, ConversionReport, GateReport, HeatMap, ParetoPoint};
use table::Record;

/// Arguments of `ladderscope schema`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kind of file or output
    #[arg(value_enum)]
    pub kind: SchemaKind,
}

/// Defines the kinds of files and outputs that have a schema: description, name, and schema.
macro_rules! kinds {
    ($($(#[$help:meta])* $name:ident = $schema:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum SchemaKind {
            $($(#[$help])* $name,)*
        }

        impl SchemaKind {
            fn schema(self) -> Value {
                match self {
                    $(Self::$name => $schema,)*
                }
            }
        }
    };
}
kinds! {
    /// Record of a run: its file, the output of `run`, and a line of the output of `sweep`
    // schema for reading: fields missing in older files are not required
    Record = schemars::schema_for!(Record).to_value();
    /// Experiment file for `sweep`
    Experiment = lab::sweep::experiment_schema();
    /// Output of `sweep --dry-run`
    DryRun = output_schema::<sweep_dry_run::PrintedPlan<'_>>();
    /// Hardware profile file
    Hardware = schemars::schema_for!(machine::hardware::Profile).to_value();
    /// Output of `runs`: records with tags and notes
    Runs = output_schema::<Vec<Annotated<'_>>>();
    /// Output of `runs trash`
    Trash = output_schema::<Trash>();
    /// Output of `show --format json`
    Show = output_schema::<show::PrintedRun<'_>>();
    /// Output of `overlap --format json`
    Overlap = output_schema::<overlap::PrintedOverlap<'_>>();
    /// Output of `pareto`: points
    Pareto = output_schema::<Vec<ParetoPoint>>();
    /// Output of `pareto` with --at, --area or --overlay
    ParetoMore = output_schema::<pareto::PrintedPareto<'_>>();
    /// Output of `compare --format json`
    Compare = output_schema::<ComparisonReport>();
    /// Output of `compare --heatmap`
    CompareHeatmap = output_schema::<Vec<HeatMap>>();
    /// Output of `compare --baseline`; a sweep reports the number of failed gates and the first one
    Gate = output_schema::<GateReport>();
    /// Output of `diff --format json`
    Diff = output_schema::<diff::PrintedDiff<'_>>();
    /// Output of `baseline list`
    Baselines = output_schema::<Vec<baseline::ListedBaseline>>();
    /// Output of `whatif --format json`
    Whatif = output_schema::<whatif::PrintedWhatif<'_>>();
    /// Output of `rewire --format json`
    Rewire = output_schema::<rewire::PrintedRewiring<'_>>();
    /// Output of `validate --format json`
    Validate = output_schema::<validate::PrintedValidation<'_>>();
    /// Output of `calibrate --format json`
    Calibrate = output_schema::<calibrate::PrintedFit<'_>>();
    /// Output of `calibrate --collectives`
    CalibrateCollectives = output_schema::<calibrate_collectives::PrintedCollectives<'_>>();
    /// Output of `generate --format json`
    Generate = output_schema::<generate::PrintedGeneration<'_>>();
    /// Output of `evaluate --format json`
    Evaluate = output_schema::<crate::desk::evaluate::TextQuality>();
    /// Output of `convert --format json`
    Convert = output_schema::<ConversionReport>();
    /// Output of `adapt --format json`
    Adapt = output_schema::<adapt::PrintedTrainings<'_>>();
    /// Output of `trace convert`
    TraceConvert = output_schema::<trace::Converted>();
    /// Output of `import --format json`
    Import = output_schema::<import::PrintedImport<'_>>();
    /// Output of `models --format json`
    Models = output_schema::<Vec<catalog::PrintedModel<'_>>>();
    /// Output of `hardware`: profiles with their links
    HardwareList = output_schema::<Vec<hardware::PrintedProfile<'_>>>();
    /// Output of `hardware NAME --collectives`
    HardwareCollectives = output_schema::<Vec<hardware::PrintedCollective>>();
    /// Output of `experiments --format json`
    Experiments = output_schema::<Vec<catalog::PrintedExperiment<'_>>>();
    /// Output of `doctor --format json`
    Doctor = output_schema::<doctor::PrintedMachine>();
    /// Output of `doctor --check --format json`
    DoctorCheck = output_schema::<doctor_check::PrintedChecks>();
    /// Output of `doctor --store DIR --format json`
    DoctorStore = output_schema::<lab::store::StoreCheck>();
    /// Error: the last line on standard error
    Error = output_schema::<stderr::PrintedError>();
}

pub fn run(args: &Args) -> Result<u8> {
    let mut schema = args.kind.schema();
    if args.kind == SchemaKind::Runs {
        // single timings are not printed
        make_optional(&mut schema, "Annotated", "samples");
        make_optional(&mut schema, "Instrumented", "steps_ms");
    }
    output::json(&schema)?;
    Ok(0)
}

/// Schema of a type's serialized form.
fn output_schema<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Marks a member that the output may omit as optional.
fn make_optional(schema: &mut Value, definition: &str, member: &str) {
    let required = schema.pointer_mut(&format!("/$defs/{definition}/required"));
    if let Some(required) = required.and_then(Value::as_array_mut) {
        required.retain(|name| name != member);
    }
}
