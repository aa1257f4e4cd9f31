//! Text report of `overlap`: sections of at most 100 columns, without empty ones.

use std::fmt::Write as _;

use super::overlap::OverlapGrouping;
use super::{output, overlap, show};
use base::error::{Error, Result};
use base::statistics::median;
use base::text::{counted, fitting_name, latency, rank_label};
use study::analysis::{
    CollectiveRow, ExpertTimes, ExposedStretch, GroupRow, NextCompute, PathSummary, Products,
    StepSummary, Stragglers, TraceReport, experts_table, group_overlap_table, ranks_table,
};
use study::verdict::Verdict;
use trace::ImportReport;
use trace::rules::{Matched, RuleClass, RuleReport};

/// Maximum number of collectives in the report; `--by collective` has all.
const SHOWN_COLLECTIVES: usize = 10;

/// Maximum number of exposed stretches in the text of `--by exposed`; files have more.
const SHOWN_STRETCHES: usize = 40;

/// Maximum number of kernels per rule, and of uncertain ones, in the rules section.
const SHOWN_MATCHES: usize = 4;

/// Minimum share of matrix products in compute time (%) for the report to include MFU.
const LEAST_COVERED_PCT: f64 = 50.0;

/// All nonempty sections of the report. `without_profile` is the reason for a missing hardware profile.
pub fn report_text(
    report: &TraceReport,
    verdict: &Verdict,
    matched: &RuleReport,
    without_profile: Option<&str>,
) -> String {
    let sections = [
        Some(verdict_text(verdict)),
        report.import.as_ref().map(import_text),
        rules_section(matched, verdict.one_rank),
        Some(ranks_section(report)),
        idle_section(report),
        mfu_section(&report.products, without_profile),
        collectives_section(report),
        groups_section(report),
        steps_section(report),
        report.critical_path.as_ref().map(critical_path_section),
        report.stragglers.as_ref().and_then(stragglers_section),
        report.experts.as_ref().map(experts_section),
        breakdown_section(report),
        Some(
            "More tables: --by step|layer|collective|range|operator|product|kind|name|exposed\n".into(),
        ),
    ];
    sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn verdict_text(verdict: &Verdict) -> String {
    // lines of its table stay as they are
    let lines = verdict.sentences.iter().map(|sentence| match sentence.starts_with("  ") {
        true => format!("  {sentence}\n"),
        false => output::wrapped("  ", sentence, 2),
    });
    format!("Verdict\n{}", lines.collect::<String>())
}

/// Table for `--by`. Returns an error with the reason if it is empty.
pub fn table_text(
    report: &TraceReport,
    by: OverlapGrouping,
    without_profile: Option<&str>,
) -> Result<String> {
    let provenance = provenance(report);
    let (title, missing) = match by {
        OverlapGrouping::Step => {
            ("By step: times per rank, averaged over ranks", "the selection is empty")
        }
        OverlapGrouping::Layer => match report.layers.first() {
            Some(row) if row.from == "ranges" => (
                "By layer, from range names: GPU work launched inside the ranges of the layer, per rank",
                "",
            ),
            Some(row) if row.from == "collectives" => (
                "By layer, counted from the first with two all-reduces or dispatch and combine: sum of durations per rank",
                "",
            ),
            _ => (
                "By layer: sum of durations per rank",
                "no layers in this trace: no operation or NVTX range has a layer number, and its collectives do not repeat",
            ),
        },
        OverlapGrouping::Collective => (
            "By collective: total and exposed per rank; mean, median, transfer and waiting per call; count over all ranks",
            "the selection contains no communication",
        ),
        OverlapGrouping::Range => (
            "By range: GPU work that the range launched on its own thread, per rank",
            "the selection contains no NVTX ranges or annotations",
        ),
        OverlapGrouping::Operator => (
            "By operator that launched the kernels: total per rank; count over all ranks",
            "the trace records neither operators nor host launches",
        ),
        OverlapGrouping::Product => (
            "By matrix product or attention: total per rank, mean per call; count over all ranks",
            "the trace records no shapes of matrix products (profile with record_shapes=True; kernels of CUDA graphs have none)",
        ),
        OverlapGrouping::Kind => {
            ("By kind: sum of durations per rank; count over all ranks", "the selection is empty")
        }
        OverlapGrouping::Exposed => (
            "Longest exposed communication, and its effect on the next operation",
            "the selection contains no exposed communication",
        ),
        OverlapGrouping::Name => (
            "By kernel name: total per rank, mean and max per call; count over all ranks",
            "the selection is empty",
        ),
    };
    let table = overlap::table_by(&shortened(report), by);
    if table.is_empty() {
        return Err(Error::input(format!("--by {}: {missing}", by.name())));
    }
    let all = report.exposed_stretches.count;
    let shown = report.exposed_stretches.longest.len().min(SHOWN_STRETCHES) as u64;
    let part = match by {
        // a row combines all ranks with the same stretch
        OverlapGrouping::Exposed if shown < all => format!("; {shown} longest of {all}"),
        _ => String::new(),
    };
    let notes = match by {
        OverlapGrouping::Product => product_notes(&report.products, without_profile),
        _ => String::new(),
    };
    Ok(format!("{title} ({provenance}{part})\n{}{notes}", output::aligned(&table)))
}

/// Notes below the table of products.
fn product_notes(products: &Products, without_profile: Option<&str>) -> String {
    let without = without_profile
        .map(|why| format!("MFU not available: {why}. Name the GPU with --hardware NAME|FILE"));
    let notes = products.notes().into_iter().chain(without);
    let mut text: String = notes.map(|note| output::wrapped("  ", &note, 2)).collect();
    text += &mfu_section(products, None).unwrap_or_default();
    text
}

/// Line on MFU, if products are most of the compute time.
fn mfu_section(products: &Products, without_profile: Option<&str>) -> Option<String> {
    let mfu = products.mfu.as_ref().filter(|mfu| mfu.compute_pct >= LEAST_COVERED_PCT)?;
    let covered = format!("matrix products and attention: {:.0} % of the compute time", mfu.compute_pct);
    let line = match (&mfu.profile, mfu.mfu_pct, mfu.kernel_mfu_pct) {
        (Some(profile), Some(all), Some(running)) => format!(
            "MFU {all:.1} % of {profile}'s peak; {running:.1} % ({:.1} TFLOP/s per GPU) while these kernels run ({covered})",
            mfu.tflop_s
        ),
        _ => {
            let why = without_profile.map_or(String::new(), |why| format!("; no MFU: {why}"));
            format!("{:.1} TFLOP/s per GPU while these kernels run ({covered}){why}", mfu.tflop_s)
        }
    };
    Some(output::wrapped("", &line, 2))
}

fn provenance(report: &TraceReport) -> &'static str {
    report.overlap.provenance.map(|p| p.as_str()).unwrap_or_default()
}

/// Section on the import: events read, used and ignored.
fn import_text(import: &ImportReport) -> String {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!(
        "Read {}: {} of {}\n",
        import.format,
        counted(import.events as usize, "event"),
        counted(import.files.len(), "file")
    );
    for (what, counts) in [("used", &import.used), ("ignored", &import.ignored)] {
        if !counts.is_empty() {
            text += &output::wrapped(&format!("  {what:<8}"), &list(counts), 4);
        }
    }
    if let Some(ranks) = &import.ranks_from {
        text += &output::wrapped("  ranks   ", ranks.strip_prefix("ranks ").unwrap_or(ranks), 4);
    }
    for warning in &import.warnings {
        text += &output::wrapped("  warning ", warning, 4);
    }
    text
}

/// Section on rules: operations matched as communication by each, and uncertain ones.
fn rules_section(report: &RuleReport, one_rank: bool) -> Option<String> {
    if report.is_empty() {
        return None;
    }
    let line = |matched: &Matched| {
        let ms = matched.total_ns as f64 / 1e6;
        let name = fitting_name(&matched.name, output::NAME_WIDTH);
        format!("    {:>7} x {ms:>9.3} ms  {name}\n", matched.count)
    };
    let mut text = format!("Kernels classified as communication (rules: {})\n", report.rules);
    let communication: Vec<_> =
        report.matches.iter().filter(|matches| matches.what == RuleClass::Communication).collect();
    if communication.is_empty() {
        text += match one_rank && report.unsure.is_empty() {
            true => "  none: one rank of one has no communication to find\n",
            false => "  none: no kernel matches a communication rule (add one with --rules FILE)\n",
        };
    }
    for matches in communication {
        let _ = writeln!(text, "  {}: {}", matches.rule, counted(matches.operations.len(), "kernel"));
        text.extend(matches.operations.iter().take(SHOWN_MATCHES).map(line));
    }
    if !report.unsure.is_empty() {
        let kernels = counted(report.unsure.len(), "kernel");
        let _ = writeln!(text, "  {kernels} may be communication; confirm with --rules FILE");
        for unsure in report.unsure.iter().take(SHOWN_MATCHES) {
            text += &line(&unsure.operation);
            text += &output::wrapped(
                "            ",
                &format!("counted as {}: {}", unsure.taken_for.as_str(), unsure.why),
                4,
            );
        }
    }
    Some(text)
}

fn ranks_section(report: &TraceReport) -> String {
    format!(
        "Overlap by rank ({})\n{}",
        provenance(report),
        output::aligned(&ranks_table(&report.overlap, true))
    )
}

fn idle_section(report: &TraceReport) -> Option<String> {
    let ranks = report.idle.len().max(1) as f64;
    let sum =
        |of: fn(&study::analysis::IdleSplit) -> f64| report.idle.iter().map(of).sum::<f64>() / ranks;
    let all = sum(|r| r.idle_us);
    let longest = report.idle.iter().max_by_key(|rank| rank.longest_ns)?;
    if all <= 0.0 {
        return None;
    }
    let parts = [
        ("host-bound", sum(|r| r.host_us - r.between_graphs_us)),
        ("host-bound, between CUDA graphs", sum(|r| r.between_graphs_us)),
        ("on communication", sum(|r| r.communication_us)),
        ("between kernels", sum(|r| r.between_us)),
        ("outside the timed generations", sum(|r| r.outside_us)),
    ];
    let head = format!("Idle per rank (mean): {} = ", latency(all));
    let mut text = output::wrapped(&head, &parts_of(&parts, all), 4);
    if longest.longest_ns > 0 {
        let _ = writeln!(
            text,
            "  longest idle gap: {} on rank {}, starting at {}",
            latency(longest.longest_ns as f64 / 1e3),
            longest.rank,
            latency(longest.longest_at_ns as f64 / 1e3)
        );
    }
    Some(text)
}

/// Formats the nonzero parts of a time, each with its share.
fn parts_of(parts: &[(&str, f64)], all: f64) -> String {
    let some = parts.iter().filter(|(_, us)| *us > 0.0);
    let parts =
        some.map(|(what, us)| format!("{what} {} ({:.0}\u{a0}%)", latency(*us), 100.0 * us / all));
    parts.collect::<Vec<_>>().join(" + ")
}

/// Report with names that fit into tables, and the longest exposed intervals only.
fn shortened(report: &TraceReport) -> TraceReport {
    let mut report = report.clone();
    report.names.iter_mut().for_each(|row| row.name = fitting_name(&row.name, output::NAME_WIDTH));
    report.operators.iter_mut().for_each(|row| row.name = fitting_name(&row.name, output::NAME_WIDTH));
    for row in &mut report.collectives {
        row.executed.name = fitting_name(&row.executed.name, output::NAME_WIDTH / 2);
    }
    report.exposed_stretches.longest.truncate(SHOWN_STRETCHES);
    for row in &mut report.exposed_stretches.longest {
        row.collective = fitting_name(&row.collective, output::NAME_WIDTH / 2);
        row.waited = row.waited.as_deref().map(|name| fitting_name(name, output::NAME_WIDTH / 2));
    }
    report
}

fn collectives_section(report: &TraceReport) -> Option<String> {
    let all = &report.collectives;
    let shown = &all[..all.len().min(SHOWN_COLLECTIVES)];
    let title = if all.len() > shown.len() {
        format!(
            "Exposed communication per rank: the {SHOWN_COLLECTIVES} most exposed of {} collectives",
            all.len()
        )
    } else {
        "Exposed communication per rank, by collective".into()
    };
    let longest = report.exposed_stretches.longest.first().map_or(String::new(), |stretch| {
        let words = format!(
            "{} on rank {} at {}; {}",
            latency(stretch.length_us),
            stretch.ranks[0],
            latency(stretch.at_us),
            effect(stretch)
        );
        output::wrapped("  longest exposed interval: ", &words, 4)
    });
    (!all.is_empty()).then(|| {
        let rows: Vec<GroupRow> = shown
            .iter()
            .map(|row| GroupRow { name: collective_label(row, all), ..row.executed.clone() })
            .collect();
        let table = output::aligned(&overlap::groups_table("collective", &rows));
        format!("{title}\n{table}{longest}")
    })
}

/// Effect of an exposed interval on the next compute operation of its rank.
fn effect(stretch: &ExposedStretch) -> String {
    let Some(name) = &stretch.waited else { return "no compute follows it".into() };
    let name = fitting_name(name, output::NAME_WIDTH);
    match stretch.effect {
        NextCompute::HeldUp => format!("it holds up {name}"),
        NextCompute::LaunchedLater(late) => {
            format!(
                "it holds up nothing: {name} was launched {} after it ended",
                latency(late as f64 / 1e3)
            )
        }
        NextCompute::Unrelated => format!("the next operation is {name}"),
    }
}

/// Name of a collective, with its process group and message size if the trace has them, and the group's ranks if
/// several groups share a name.
fn collective_label(row: &CollectiveRow, all: &[CollectiveRow]) -> String {
    let bytes = row.message_bytes.filter(|_| row.group.is_some());
    let bytes = bytes.map(|_| format!("{} B", row.shown_bytes()));
    let is_one_of_several = all.iter().any(|other| other.group == row.group && other.ranks != row.ranks);
    let ranks = row.ranks.as_deref().filter(|_| is_one_of_several).map(rank_label);
    let group = row.group.as_ref().map(|group| match ranks {
        Some(ranks) => format!("{group} {ranks}"),
        None => group.clone(),
    });
    let more: Vec<String> = group.into_iter().chain(bytes).collect();
    if more.is_empty() {
        return fitting_name(&row.executed.name, output::NAME_WIDTH);
    }
    let more = format!(" ({})", more.join(", "));
    fitting_name(&row.executed.name, output::NAME_WIDTH.saturating_sub(more.chars().count())) + &more
}

/// Overlap by kind of process group, if there are several.
fn groups_section(report: &TraceReport) -> Option<String> {
    (report.groups.len() > 1).then(|| {
        let table = output::aligned(&group_overlap_table(&report.groups));
        format!("Overlap by kind of process group, per rank\n{table}")
    })
}

fn steps_section(report: &TraceReport) -> Option<String> {
    // the latency of a step is known if the next one was recorded
    let is_ended = |step: &&StepSummary| step.time.until_next;
    let all: Vec<&StepSummary> = report.steps.iter().collect();
    let ended: Vec<&StepSummary> = report.steps.iter().filter(is_ended).collect();
    let ended = if ended.is_empty() { &all } else { &ended };
    let median_and_max = |steps: &[&StepSummary], value: fn(&StepSummary) -> f64| {
        let worst = steps.iter().copied().max_by(|a, b| value(a).total_cmp(&value(b)))?;
        let median = median(&steps.iter().map(|step| value(step)).collect::<Vec<_>>())?;
        let sample =
            if worst.sample > 0 { format!(" of sample {}", worst.sample) } else { String::new() };
        let place = match worst.phase {
            "prefill" if report.import.is_none() => "prefill".into(),
            _ => format!("step {}", worst.step),
        };
        Some(format!("median {}, max {} ({place}{sample})", latency(median), latency(value(worst))))
    };
    if report.steps.len() < 2 {
        return None;
    }
    let unended = match all.len() - ended.len() {
        0 => String::new(),
        count => format!(" (the end of {count} is unknown: not in duration and idle)"),
    };
    Some(format!(
        "Steps: {}{unended}\n  duration              {}\n  exposed communication {}\n  idle                  {}\n",
        all.len(),
        median_and_max(ended, |s| s.duration_us)?,
        median_and_max(&all, |s| s.exposed_us)?,
        median_and_max(ended, |s| s.idle_and_gap_us)?
    ))
}

fn critical_path_section(path: &PathSummary) -> String {
    let parts = [
        ("compute", path.compute_us),
        ("transfer", path.transfer_us),
        ("waiting for ranks", path.peer_us),
        ("gaps", path.gap_us),
    ];
    let steps = if path.steps == 1 {
        "the step".into()
    } else {
        let all = if path.of_steps > path.steps { format!(" of {}", path.of_steps) } else { "".into() };
        format!("a step, averaged over {}{all}", path.steps)
    };
    let mut text = output::wrapped(
        &format!("Critical path of {steps}: {} = ", latency(path.length_us)),
        &parts_of(&parts, path.length_us),
        4,
    );
    let named = path.parts.iter().filter(|part| part.share >= 0.005).take(8);
    let named: Vec<String> = named
        .map(|part| format!("{}\u{a0}{}\u{a0}{:.0}\u{a0}%", part.module, part.kind, 100.0 * part.share))
        .collect();
    if !named.is_empty() {
        text += &output::wrapped("  mostly ", &named.join(", "), 4);
    }
    if path.rank_changes > 0.0 {
        let _ =
            writeln!(text, "  switches {:.1} times to the rank that arrives last", path.rank_changes);
    }
    text
}

fn stragglers_section(stragglers: &Stragglers) -> Option<String> {
    let clocks = stragglers.clocks_apart_us.map(|apart| {
        format!(
            "  clocks: ends of matched collectives differ by {} between ranks (90th percentile)\n",
            latency(apart)
        )
    });
    let Some(worst) = stragglers.worst.first() else {
        return clocks
            .map(|clocks| format!("All ranks arrive at collectives at the same time\n{clocks}"));
    };
    let mut text = format!(
        "Stragglers: ranks that arrived last at {}\n{}",
        counted(stragglers.matched as usize, "matched collective"),
        output::aligned(&overlap::stragglers_table(stragglers))
    );
    let _ = writeln!(
        text,
        "  worst: rank {} at {}, {} after the second-last rank; the others waited {} in all",
        worst.last,
        latency(worst.at_ns as f64 / 1e3),
        latency(worst.late_ns as f64 / 1e3),
        latency(worst.waited_ns as f64 / 1e3)
    );
    if stragglers.unmatched > 0 {
        let unmatched = counted(stragglers.unmatched as usize, "collective call");
        let _ = writeln!(text, "  without a match on other ranks: {unmatched}");
    }
    text.extend(clocks);
    if let Some(note) = &stragglers.note {
        text += &output::wrapped("  note: ", note, 4);
    }
    Some(text)
}

/// Section on the experts of a mixture.
fn experts_section(experts: &ExpertTimes) -> String {
    let parts = [
        ("experts", experts.experts_us),
        ("router", experts.router_us),
        ("dispatch", experts.dispatch_us),
        ("combine", experts.combine_us),
    ];
    let some = parts.iter().filter(|(_, us)| *us > 0.0);
    let parts: Vec<String> = some.map(|(name, us)| format!("{name} {}", latency(*us))).collect();
    let mut text = output::wrapped("", &format!("Experts per rank (mean): {}", parts.join(", ")), 2);
    let waited = experts.waited_us.filter(|us| *us > 0.0);
    let waited =
        waited.map_or(String::new(), |us| format!("; a rank waited {} for the last", latency(us)));
    if let Some(imbalance) = experts.imbalance {
        let line = format!(
            "the rank with the longest experts of a layer took {imbalance:.2}x the mean{waited}"
        );
        text += &output::wrapped("  ", &line, 2);
        text += &output::aligned(&experts_table(experts));
    }
    text
}

fn breakdown_section(report: &TraceReport) -> Option<String> {
    let rows = &report.overlap.breakdown;
    (!rows.is_empty()).then(|| {
        format!(
            "By module and kind: sum of durations per rank (mean)\n{}",
            output::aligned(&show::breakdown_rows(rows))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Phase;
    use trace::overlap::StepKey;

    #[test]
    fn ignored_events_of_an_import_are_listed() {
        let report = ImportReport {
            format: "Kineto JSON".into(),
            files: vec!["a.json".into()],
            events: 12,
            used: [("kernel".to_owned(), 5)].into(),
            ignored: [("cpu_op".to_owned(), 7)].into(),
            ranks_from: Some("ranks from file names".into()),
            warnings: vec!["the file ends in the middle of an event".into()],
            ..ImportReport::default()
        };
        let text = import_text(&report);
        for part in
            ["12 events of 1 file", "5 kernel", "7 cpu_op", "ranks   from file", "warning the file ends"]
        {
            assert!(text.contains(part), "'{part}' is missing in {text}");
        }
    }

    #[test]
    fn a_kernel_that_the_host_launched_later_is_not_held_up() {
        let words = |next: NextCompute, name: Option<&str>| {
            effect(&ExposedStretch {
                ranks: vec![0],
                at_us: 0.0,
                length_us: 20.0,
                step: StepKey { sample: 0, phase: Phase::Decode, step: 0 },
                collective: "all_reduce".into(),
                waited: name.map(str::to_owned),
                effect: next,
                span: 0,
                interval: (0, 20_000),
            })
        };
        assert_eq!(words(NextCompute::HeldUp, Some("gemm")), "it holds up gemm");
        assert_eq!(
            words(NextCompute::LaunchedLater(3_000), Some("gemm")),
            "it holds up nothing: gemm was launched 3.00 us after it ended"
        );
        assert_eq!(words(NextCompute::Unrelated, None), "no compute follows it");
    }

    /// Two groups of one description: their rows would look the same without the ranks.
    #[test]
    fn collectives_are_labeled_with_group_ranks_and_message_size() {
        let row = |group: Option<&str>, ranks: &[u32], bytes| CollectiveRow {
            executed: GroupRow {
                name: "ncclAllReduce".into(),
                lane: "comm",
                count: 1,
                total_us: 1.0,
                exposed_us: 1.0,
                hidden_pct: None,
            },
            family: "ncclAllReduce".into(),
            kind: "all_reduce".into(),
            group: group.map(str::to_owned),
            ranks: Some(ranks.to_vec()).filter(|ranks| !ranks.is_empty()),
            group_size: None,
            message_bytes: bytes,
            message_bytes_from: bytes.map(|_| "trace"),
            message_bytes_at_most: None,
            dtype: None,
            algorithm: None,
            protocol: None,
            channels: None,
            mean_us: 1.0,
            median_us: 1.0,
            transfer_us: None,
            waited_us: None,
            waited_at_least_us: None,
            algorithm_gb_s: None,
            bus_gb_s: None,
            bandwidth_of: None,
        };
        let rows = [
            row(Some("TP"), &[0, 1], Some(16_384)),
            row(Some("TP"), &[2, 3], None),
            row(Some("DP"), &[0, 2], None),
            row(None, &[], Some(4)),
        ];
        assert_eq!(
            rows.each_ref().map(|row| collective_label(row, &rows)),
            [
                "ncclAllReduce (TP r0..r1, 16384 B)",
                "ncclAllReduce (TP r2..r3)",
                "ncclAllReduce (DP)",
                "ncclAllReduce"
            ]
        );
        let long = CollectiveRow {
            executed: GroupRow { name: "k".repeat(90), ..rows[0].executed.clone() },
            ..rows[0].clone()
        };
        let shown = collective_label(&long, &rows);
        assert!(
            shown.chars().count() <= output::NAME_WIDTH && shown.ends_with(" (TP r0..r1, 16384 B)"),
            "{shown}"
        );
    }
}
