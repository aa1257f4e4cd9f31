//! Option `--gate` of `compare`, `sweep` and `diff`, for pipelines: prints how runs or traces compare with a baseline, and
//! turns the verdict into an exit status.

use super::app::exit_status;
use super::output::{self, OutputFormat};
use super::stderr;
use base::error::{Error, Result};
use base::text::counted;
use study::analysis::{GateOutcome, GateReport, GateRow, gate_table};
use table::render::Sourced;

/// Verdict of all gates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateVerdict {
    /// No gate is violated, and every cell of the baseline was judged.
    Passed,
    Violated,
    /// Some gate is undecided, which `--strict` does not accept.
    TooUncertain,
    /// No cell of the baseline has a partner or a reason for lacking one.
    NothingToCompare,
    /// Some cells of the baseline could not be judged.
    Incomplete,
}

impl GateVerdict {
    fn of_report(report: &GateReport, strict: bool) -> Self {
        let has = |outcome| report.rows.iter().any(|row| row.outcome == outcome);
        if has(GateOutcome::Violated) {
            Self::Violated
        } else if strict && has(GateOutcome::Undecided) {
            Self::TooUncertain
        } else if !report.without_partner.is_empty() {
            Self::Incomplete
        } else if report.rows.is_empty() {
            Self::NothingToCompare
        } else {
            Self::Passed
        }
    }

    fn exit_status(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Violated | Self::TooUncertain => exit_status::GATE_FAILED,
            Self::NothingToCompare | Self::Incomplete => exit_status::INVALID,
        }
    }
}

/// Prints the comparisons on standard output, and [`print_gate_summary`]. Returns the exit status.
pub fn print_gates(report: &GateReport, strict: bool, format: OutputFormat) -> Result<u8> {
    if format != OutputFormat::Table || !report.rows.is_empty() {
        output::table(format, report, &gate_table(report), Sourced::ByRow)?;
    }
    Ok(print_gate_summary(report, strict))
}

/// Prints warnings and the verdict on standard error. Returns the exit status.
pub fn print_gate_summary(report: &GateReport, strict: bool) -> u8 {
    print_skipped(report);
    let verdict = GateVerdict::of_report(report, strict);
    let (rows, name) = (counted(report.rows.len(), "comparison"), &report.baseline);
    let rows_with =
        |outcome| -> Vec<&GateRow> { report.rows.iter().filter(|row| row.outcome == outcome).collect() };
    let undecided = rows_with(GateOutcome::Undecided);
    if let Some(GateRow { gate, cell, undecided: why, .. }) = undecided.first() {
        let text = format!(
            "{} of {rows} against baseline {name} undecided, the first {} of {cell}: {}",
            undecided.len(),
            gate.text,
            why.as_deref().unwrap_or_default()
        );
        match verdict {
            GateVerdict::TooUncertain => {
                stderr::print_error(&Error::failed(format!("{text} (--strict)")));
            }
            _ => stderr::warn(&text),
        }
    }
    match verdict {
        GateVerdict::Violated => {
            let violated = rows_with(GateOutcome::Violated);
            let first = violated.first().map(|first| format!("{} of {}", first.gate.text, first.cell));
            stderr::print_error(&Error::failed(format!(
                "{} of {rows} against baseline {name} beyond their limits, the first {}",
                violated.len(),
                first.unwrap_or_default()
            )));
        }
        GateVerdict::TooUncertain => {}
        GateVerdict::NothingToCompare => stderr::print_error(&Error::input_help(
            format!("baseline {name}: no cells to compare"),
            "choose cells that the baseline has, and a measure that they have",
        )),
        GateVerdict::Incomplete => stderr::print_error(&Error::input_help(
            format!("baseline {name}: no verdict for {}", counted(report.without_partner.len(), "cell")),
            "rerun these cells with `ladderscope sweep FILE --again`, or set a baseline without them",
        )),
        GateVerdict::Passed => stderr::line(&match undecided.len() {
            0 => format!("{rows} against baseline {name}: all gates hold"),
            more => format!(
                "{rows} against baseline {name}: {} hold, {more} undecided (--strict exits with {})",
                report.rows.len() - more,
                exit_status::GATE_FAILED
            ),
        }),
    }
    verdict.exit_status()
}

/// Prints warnings, and the numbers of cells and comparisons that the gates do not cover.
fn print_skipped(report: &GateReport) {
    report.warnings.iter().for_each(|warning| stderr::warn(warning));
    if report.not_in_baseline > 0 {
        stderr::note(&format!(
            "{} not in baseline {}, and not judged",
            counted(report.not_in_baseline, "cell"),
            report.baseline
        ));
    }
    if report.without_communication > 0 {
        stderr::note(&format!(
            "{} of communication skipped: no communication on either side",
            counted(report.without_communication, "comparison")
        ));
    }
    report.without_partner.iter().for_each(|why| stderr::warn(why));
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::analysis::judge;
    use table::Record;
    use table::testing::record;

    /// Compares two runs of TPOT 10 ms and `tpot_ms` by one gate; `cells` are the TPs of the new runs.
    fn report(gate: &str, tpot_ms: f64, cells: &[u32]) -> GateReport {
        let run = |id: &str, tp: u32, ms: f64| record(id, |spec| spec.tp = tp, 0, &[(1.0, ms); 3]);
        let baseline = [run("before", 2, 10.0)];
        let now: Vec<Record> = cells.iter().map(|tp| run(&format!("now-{tp}"), *tp, tpot_ms)).collect();
        judge(("main", ""), &baseline, &now, &[gate.parse().unwrap()])
    }

    #[test]
    fn the_verdict_decides_the_exit_status() {
        let verdict = |report: &GateReport, strict| {
            let verdict = GateVerdict::of_report(report, strict);
            (verdict, verdict.exit_status())
        };
        let with = |outcomes: &[GateOutcome]| {
            let mut report = report("tpot<+3%", 10.0, &[2]);
            let row = report.rows[0].clone();
            report.rows =
                outcomes.iter().map(|outcome| GateRow { outcome: *outcome, ..row.clone() }).collect();
            report
        };
        use GateOutcome::{Holds, Undecided, Violated};
        assert_eq!(verdict(&with(&[Holds, Holds]), true), (GateVerdict::Passed, 0));
        assert_eq!(verdict(&with(&[Holds, Undecided]), false), (GateVerdict::Passed, 0));
        assert_eq!(verdict(&with(&[Holds, Undecided]), true), (GateVerdict::TooUncertain, 4));
        assert_eq!(verdict(&with(&[Undecided, Violated]), true), (GateVerdict::Violated, 4));
        assert_eq!(verdict(&with(&[]), false), (GateVerdict::NothingToCompare, 2));
        let missing = report("tpot<+3%", 10.0, &[4]);
        assert_eq!(verdict(&missing, false), (GateVerdict::Incomplete, 2));
    }
}
