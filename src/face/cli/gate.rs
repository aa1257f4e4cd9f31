//! Option `--gate` of `compare` and `sweep`: judges runs against a stored baseline, for pipelines.

use super::output::{self, Format};
use super::report;
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Baseline;
use study::analysis::{Gate, GateOutcome, GateReport, GateRow, gate_table, judge};
use table::Record;
use table::render::Sourced;

/// Exit status if a gate is violated, or with `--strict` undecided.
const NOT_HELD: u8 = 4;

/// Exit status if a cell of the baseline cannot be judged.
const INCOMPLETE: u8 = 2;

/// Judges runs against a baseline. If the user named no runs, only those since the baseline was set count.
pub fn held(baseline: &Baseline, mut now: Vec<Record>, named: bool, gates: &[Gate]) -> GateReport {
    now.retain(|record| named || record.created >= baseline.created);
    judge((&baseline.name, &baseline.created), &baseline.records, &now, gates)
}

/// Prints the results of the gates and returns the exit status.
pub fn print(report: &GateReport, strict: bool, format: Format) -> Result<u8> {
    if format != Format::Table || !report.rows.is_empty() {
        output::table(format, report, &gate_table(report), Sourced::ByRow)?;
    }
    Ok(summarize(report, strict))
}

/// Prints a summary of the gates on standard error and returns the exit status.
pub fn summarize(report: &GateReport, strict: bool) -> u8 {
    report.warnings.iter().for_each(|warning| report::warn(warning));
    if report.not_in_baseline > 0 {
        report::note(&format!(
            "{} not in baseline {}, and not judged",
            counted(report.not_in_baseline, "cell"),
            report.baseline
        ));
    }
    if report.without_communication > 0 {
        report::note(&format!(
            "{} of communication skipped: no communication on either side",
            counted(report.without_communication, "comparison")
        ));
    }
    report.without_partner.iter().for_each(|why| report::warn(why));
    let (rows, name) = (counted(report.rows.len(), "comparison"), &report.baseline);
    let of =
        |outcome| -> Vec<&GateRow> { report.rows.iter().filter(|row| row.outcome == outcome).collect() };
    let undecided = of(GateOutcome::Undecided);
    let unclear = undecided.first().map(|first| {
        let why = first.undecided.as_deref().unwrap_or_default();
        let first = format!("the first {} of {}: {why}", first.gate.text, first.cell);
        format!("{} of {rows} against baseline {name} undecided, {first}", undecided.len())
    });
    if let [first, ..] = of(GateOutcome::Violated)[..] {
        unclear.iter().for_each(|unclear| report::warn(unclear));
        report::print(&Error::failed(format!(
            "{} of {rows} against baseline {name} beyond their limits, the first {} of {}",
            of(GateOutcome::Violated).len(),
            first.gate.text,
            first.cell
        )));
        return NOT_HELD;
    }
    if let Some(unclear) = &unclear {
        if strict {
            report::print(&Error::failed(format!("{unclear} (--strict)")));
            return NOT_HELD;
        }
        report::warn(unclear);
    }
    if report.rows.is_empty() && report.without_partner.is_empty() {
        report::print(&Error::input_help(
            format!("baseline {name}: no cells to compare"),
            "choose cells that the baseline has, and a measure that they have",
        ));
        return INCOMPLETE;
    }
    if !report.without_partner.is_empty() {
        let cells = counted(report.without_partner.len(), "cell");
        report::print(&Error::input_help(
            format!("baseline {name}: no verdict for {cells}"),
            "rerun these cells with `ladderscope sweep FILE --again`, or set a baseline without them",
        ));
        return INCOMPLETE;
    }
    report::line(&match undecided.len() {
        0 => format!("{rows} against baseline {name}: all gates hold"),
        more => format!(
            "{rows} against baseline {name}: {} hold, {more} undecided (--strict exits with {NOT_HELD})",
            report.rows.len() - more
        ),
    });
    0
}
