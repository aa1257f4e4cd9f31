//! `ladderscope schema KIND`: JSON schema of a kind of file, or of a verb's `--format json` output. Output schemas
//! are generated from the printed types.

use clap::ValueEnum;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::output;
use super::record_table::Annotated;
use super::{
    adapt, baseline, calibrate, calibrate_collectives, diff, doctor, doctor_check, evaluate,
    experiments, generate, hardware, hardware_collectives, models, overlap, pareto, report, rewire,
    show, trace, validate, whatif,
};
use base::error::{Error, Result};
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

/// Kinds of files and outputs that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Record of a run: its file, the output of `run`, and a line of the output of `sweep`
    Record,
    /// Experiment file for `sweep`
    Experiment,
    /// Hardware profile file
    Hardware,
    /// Output of `runs`: records with tags and notes
    Runs,
    /// Output of `runs trash`
    Trash,
    /// Output of `show --format json`
    Show,
    /// Output of `overlap --format json`
    Overlap,
    /// Output of `pareto`: points
    Pareto,
    /// Output of `pareto` with --at, --area or --overlay
    ParetoMore,
    /// Output of `compare --format json`
    Compare,
    /// Output of `compare --heatmap`
    CompareHeatmap,
    /// Output of `compare --baseline`; a sweep reports the number of failed gates and the first one
    Gate,
    /// Output of `diff --format json`
    Diff,
    /// Output of `baseline list`
    Baselines,
    /// Output of `whatif --format json`
    Whatif,
    /// Output of `rewire --format json`
    Rewire,
    /// Output of `validate --format json`
    Validate,
    /// Output of `calibrate --format json`
    Calibrate,
    /// Output of `calibrate --collectives`
    CalibrateCollectives,
    /// Output of `generate --format json`
    Generate,
    /// Output of `evaluate --format json`
    Evaluate,
    /// Output of `convert --format json`
    Convert,
    /// Output of `adapt --format json`
    Adapt,
    /// Output of `trace convert`
    TraceConvert,
    /// Output of `models --format json`
    Models,
    /// Output of `hardware`: profiles with their links
    HardwareList,
    /// Output of `hardware NAME --collectives`
    HardwareCollectives,
    /// Output of `experiments --format json`
    Experiments,
    /// Output of `doctor --format json`
    Doctor,
    /// Output of `doctor --check --format json`
    DoctorCheck,
    /// Output of `doctor --store DIR --format json`
    DoctorStore,
    /// Error: the last line on standard error
    Error,
}

pub fn run(args: &Args) -> Result<u8> {
    output::json(&schema(args.kind)?)?;
    Ok(0)
}

fn schema(kind: Kind) -> Result<Value> {
    let schema = match kind {
        // schema for reading: fields missing in older files are not required
        Kind::Record => schemars::schema_for!(Record),
        Kind::Experiment => return Ok(lab::sweep::experiment_schema()),
        Kind::Hardware => schemars::schema_for!(machine::hardware::Profile),
        Kind::Runs => of::<Vec<Annotated<'_>>>(),
        Kind::Trash => of::<Trash>(),
        Kind::Show => of::<show::Printed<'_>>(),
        Kind::Overlap => of::<overlap::Printed<'_>>(),
        Kind::Pareto => of::<Vec<ParetoPoint>>(),
        Kind::ParetoMore => of::<pareto::Answer<'_>>(),
        Kind::Compare => of::<ComparisonReport>(),
        Kind::CompareHeatmap => of::<Vec<HeatMap>>(),
        Kind::Gate => of::<GateReport>(),
        Kind::Diff => of::<diff::Printed<'_>>(),
        Kind::Baselines => of::<Vec<baseline::Listed>>(),
        Kind::Whatif => of::<whatif::Printed<'_>>(),
        Kind::Rewire => of::<rewire::Printed<'_>>(),
        Kind::Validate => of::<validate::Printed<'_>>(),
        Kind::Calibrate => of::<calibrate::Printed<'_>>(),
        Kind::CalibrateCollectives => of::<calibrate_collectives::Printed<'_>>(),
        Kind::Generate => of::<generate::Printed<'_>>(),
        Kind::Evaluate => of::<evaluate::Printed<'_>>(),
        Kind::Convert => of::<ConversionReport>(),
        Kind::Adapt => of::<adapt::Printed<'_>>(),
        Kind::TraceConvert => of::<trace::Converted>(),
        Kind::Models => of::<Vec<models::Printed<'_>>>(),
        Kind::HardwareList => of::<Vec<hardware::Printed<'_>>>(),
        Kind::HardwareCollectives => of::<Vec<hardware_collectives::Printed>>(),
        Kind::Experiments => of::<Vec<experiments::Printed<'_>>>(),
        Kind::Doctor => of::<doctor::Report>(),
        Kind::DoctorCheck => of::<doctor_check::Printed<'_>>(),
        Kind::DoctorStore => of::<lab::store::StoreCheck>(),
        Kind::Error => of::<report::Printed>(),
    };
    let mut schema =
        serde_json::to_value(schema).map_err(|e| Error::failed(format!("a schema: {e}")))?;
    if matches!(kind, Kind::Runs) {
        // single timings are not printed
        may_lack(&mut schema, "Annotated", "samples");
        may_lack(&mut schema, "Instrumented", "steps_ms");
    }
    Ok(schema)
}

/// Schema of a type's serialized form.
fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Marks a member that the output may omit as optional.
fn may_lack(schema: &mut Value, of: &str, member: &str) {
    let required = schema.pointer_mut(&format!("/$defs/{of}/required"));
    if let Some(required) = required.and_then(Value::as_array_mut) {
        required.retain(|name| name != member);
    }
}
