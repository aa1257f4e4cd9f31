//! `ladderscope schema KIND`: JSON schema of a kind of file, or of a verb's `--format json` output. Output schemas
//! are generated from the printed types.

use clap::ValueEnum;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::output;
use super::record_table::Annotated;
use super::{
    adapt, baseline, calibrate, calibrate_collectives, doctor, doctor_check, evaluate, experiments,
    generate, hardware, models, overlap, pareto, report, rewire, show, trace, validate, whatif,
};
use base::error::{Error, Result};
use lab::store::Trash;
use study::analysis::{ComparisonReport, ConversionReport, GateReport, HeatMap, ParetoPoint};
use table::Record;

/// The command line's arguments of `ladderscope schema`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The kind of file or output
    #[arg(value_enum)]
    pub kind: Kind,
}

/// Kinds of files and outputs that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A run's record: its file, what run prints, and a line of what sweep prints
    Record,
    /// An experiment file, as `sweep` takes it
    Experiment,
    /// A hardware profile's file
    Hardware,
    /// What runs prints: records with tags and notes
    Runs,
    /// What runs trash prints
    Trash,
    /// What `show --format json` prints
    Show,
    /// What `overlap --format json` prints
    Overlap,
    /// What pareto prints: points
    Pareto,
    /// What pareto prints with --at, --area or --overlay
    ParetoMore,
    /// What `compare --format json` prints
    Compare,
    /// What compare --heatmap prints
    CompareHeatmap,
    /// What `compare --baseline` prints; a sweep tells how many gates do not hold, and the first
    Gate,
    /// What baseline list prints
    Baselines,
    /// What `whatif --format json` prints
    Whatif,
    /// What `rewire --format json` prints
    Rewire,
    /// What `validate --format json` prints
    Validate,
    /// What `calibrate --format json` prints
    Calibrate,
    /// What calibrate --collectives prints
    CalibrateCollectives,
    /// What `generate --format json` prints
    Generate,
    /// What `evaluate --format json` prints
    Evaluate,
    /// What `convert --format json` prints
    Convert,
    /// What `adapt --format json` prints
    Adapt,
    /// What trace convert prints
    TraceConvert,
    /// What `models --format json` prints
    Models,
    /// What hardware prints: profiles with their links
    HardwareList,
    /// What `experiments --format json` prints
    Experiments,
    /// What `doctor --format json` prints
    Doctor,
    /// What `doctor --check --format json` prints
    DoctorCheck,
    /// An error, the last line on standard error
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
        Kind::Experiments => of::<Vec<experiments::Printed<'_>>>(),
        Kind::Doctor => of::<doctor::Report>(),
        Kind::DoctorCheck => of::<doctor_check::Printed<'_>>(),
        Kind::Error => of::<report::Printed>(),
    };
    let mut schema =
        serde_json::to_value(schema).map_err(|e| Error::failed(format!("a schema: {e}")))?;
    if matches!(kind, Kind::Runs) {
        // single timings are not printed
        may_lack(&mut schema, "Annotated", "samples");
        may_lack(&mut schema, "Instrumented", "steps_ms");
    }
    if matches!(kind, Kind::Overlap) {
        // the sum over ranks has no rank
        may_lack(&mut schema, "RankOverlap", "rank");
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
