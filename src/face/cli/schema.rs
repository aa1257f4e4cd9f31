//! `ladderscope schema KIND`: JSON schema of a kind of file, or of a verb's `--format json` output. Output schemas
//! are generated from the printed types.

use clap::ValueEnum;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::output;
use super::record_table::Annotated;
use super::{
    adapt, baseline, calibrate, calibrate_collectives, catalog, diff, doctor, generate, hardware,
    import, overlap, pareto, rewire, show, stderr, sweep, trace, validate, whatif,
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
    pub kind: Kind,
}

/// Defines the kinds of files and outputs that have a schema: description, name, and schema.
macro_rules! kinds {
    ($($(#[$help:meta])* $name:ident = $schema:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum Kind {
            $($(#[$help])* $name,)*
        }

        impl Kind {
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
    DryRun = of::<sweep::PrintedPlan<'_>>();
    /// Hardware profile file
    Hardware = schemars::schema_for!(machine::hardware::Profile).to_value();
    /// Output of `runs`: records with tags and notes
    Runs = of::<Vec<Annotated<'_>>>();
    /// Output of `runs trash`
    Trash = of::<Trash>();
    /// Output of `show --format json`
    Show = of::<show::PrintedRun<'_>>();
    /// Output of `overlap --format json`
    Overlap = of::<overlap::PrintedOverlap<'_>>();
    /// Output of `pareto`: points
    Pareto = of::<Vec<ParetoPoint>>();
    /// Output of `pareto` with --at, --area or --overlay
    ParetoMore = of::<pareto::PrintedPareto<'_>>();
    /// Output of `compare --format json`
    Compare = of::<ComparisonReport>();
    /// Output of `compare --heatmap`
    CompareHeatmap = of::<Vec<HeatMap>>();
    /// Output of `compare --baseline`; a sweep reports the number of failed gates and the first one
    Gate = of::<GateReport>();
    /// Output of `diff --format json`
    Diff = of::<diff::PrintedDiff<'_>>();
    /// Output of `baseline list`
    Baselines = of::<Vec<baseline::ListedBaseline>>();
    /// Output of `whatif --format json`
    Whatif = of::<whatif::PrintedWhatif<'_>>();
    /// Output of `rewire --format json`
    Rewire = of::<rewire::PrintedRewiring<'_>>();
    /// Output of `validate --format json`
    Validate = of::<validate::PrintedValidation<'_>>();
    /// Output of `calibrate --format json`
    Calibrate = of::<calibrate::PrintedFit<'_>>();
    /// Output of `calibrate --collectives`
    CalibrateCollectives = of::<calibrate_collectives::PrintedCollectives<'_>>();
    /// Output of `generate --format json`
    Generate = of::<generate::PrintedGeneration<'_>>();
    /// Output of `evaluate --format json`
    Evaluate = of::<crate::desk::evaluate::TextQuality>();
    /// Output of `convert --format json`
    Convert = of::<ConversionReport>();
    /// Output of `adapt --format json`
    Adapt = of::<adapt::PrintedTrainings<'_>>();
    /// Output of `trace convert`
    TraceConvert = of::<trace::Converted>();
    /// Output of `import --format json`
    Import = of::<import::PrintedImport<'_>>();
    /// Output of `models --format json`
    Models = of::<Vec<catalog::PrintedModel<'_>>>();
    /// Output of `hardware`: profiles with their links
    HardwareList = of::<Vec<hardware::PrintedProfile<'_>>>();
    /// Output of `hardware NAME --collectives`
    HardwareCollectives = of::<Vec<hardware::PrintedCollective>>();
    /// Output of `experiments --format json`
    Experiments = of::<Vec<catalog::PrintedExperiment<'_>>>();
    /// Output of `doctor --format json`
    Doctor = of::<doctor::PrintedMachine>();
    /// Output of `doctor --check --format json`
    DoctorCheck = of::<doctor::PrintedChecks<'_>>();
    /// Output of `doctor --store DIR --format json`
    DoctorStore = of::<lab::store::StoreCheck>();
    /// Error: the last line on standard error
    Error = of::<stderr::PrintedError>();
}

pub fn run(args: &Args) -> Result<u8> {
    let mut schema = args.kind.schema();
    if args.kind == Kind::Runs {
        // single timings are not printed
        may_lack(&mut schema, "Annotated", "samples");
        may_lack(&mut schema, "Instrumented", "steps_ms");
    }
    output::json(&schema)?;
    Ok(0)
}

/// Schema of a type's serialized form.
fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Marks a member that the output may omit as optional.
fn may_lack(schema: &mut Value, of: &str, member: &str) {
    let required = schema.pointer_mut(&format!("/$defs/{of}/required"));
    if let Some(required) = required.and_then(Value::as_array_mut) {
        required.retain(|name| name != member);
    }
}
