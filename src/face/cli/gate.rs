//! `--gate`: holds runs against a stored baseline, for pipelines. `compare` and `sweep` have it.

use super::output::{self, Format};
use super::report;
use crate::base::error::{Error, Result};
use crate::base::text::counted;
use crate::lab::store::Store;
use crate::study::analysis::{Gate, GateReport, gate_table, judge};
use crate::table::Record;

/// Exit status when a gate does not hold.
const NOT_HELD: u8 = 4;

/// Exit status when a cell of the baseline cannot be judged.
const INCOMPLETE: u8 = 2;

/// Holds records against a baseline of the store, or of a file.
///
/// # Errors
///
/// Those of [`Store::baseline`].
pub fn held(store: &Store, name: &str, now: &[Record], gates: &[Gate]) -> Result<GateReport> {
    let baseline = store.baseline(name)?;
    Ok(judge((&baseline.name, &baseline.created), &baseline.records, now, gates))
}

/// Prints what the gates say, and the exit status that follows.
pub fn print(report: &GateReport, format: Format) -> Result<u8> {
    let table = gate_table(report);
    match format {
        Format::Json => output::json(report)?,
        Format::Csv => output::emit(&table.csv())?,
        Format::Table if report.rows.is_empty() => {}
        Format::Table => output::emit(&output::aligned(&table))?,
    }
    Ok(tell(report))
}

/// Says on standard error whether the gates hold; the exit status that follows.
pub fn tell(report: &GateReport) -> u8 {
    report.warnings.iter().for_each(|warning| report::warn(warning));
    if report.not_in_baseline > 0 {
        report::note(&format!(
            "{} not in baseline {}, and not judged",
            counted(report.not_in_baseline, "cell"),
            report.baseline
        ));
    }
    let failed = report.rows.iter().filter(|row| !row.held).count();
    if !report.without_partner.is_empty() {
        for why in &report.without_partner {
            report::warn(why);
        }
        let help = "run these cells (`ladderscope sweep --again` also runs what is stored), or set a smaller baseline";
        report::print(&Error::input_help(
            format!(
                "baseline {}: {} cannot be judged",
                report.baseline,
                counted(report.without_partner.len(), "cell")
            ),
            help,
        ));
    }
    match (failed, report.without_partner.len()) {
        (0, 0) => {
            report::line(&format!(
                "{} against baseline {}: all gates hold",
                counted(report.rows.len(), "comparison"),
                report.baseline
            ));
            0
        }
        (0, _) => INCOMPLETE,
        (failed, _) => {
            report::line(&format!(
                "{failed} of {} against baseline {} beyond their limits",
                counted(report.rows.len(), "comparison"),
                report.baseline
            ));
            NOT_HELD
        }
    }
}
