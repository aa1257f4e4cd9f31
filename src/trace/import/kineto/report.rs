//! Import summary of the Kineto importer.

use std::collections::BTreeMap;

use super::assemble::ReadFile;
use super::event::Gpu;
use crate::ImportReport;
use base::text::counted;

pub(super) fn report(files: &[ReadFile]) -> ImportReport {
    let mut report = ImportReport {
        format: files.first().map_or("", |file| file.profiler.format()).into(),
        files: files.iter().map(|file| file.name.clone()).collect(),
        ..ImportReport::default()
    };
    let add = |counts: &mut BTreeMap<String, u64>, what: String, count: u64| {
        if count > 0 {
            *counts.entry(what).or_default() += count;
        }
    };
    for ReadFile { table, .. } in files {
        report.events += table.events;
        for (gpu, count) in Gpu::ALL.iter().zip(table.used) {
            add(&mut report.used, gpu.as_str().into(), count);
        }
        let ranges = table.host_ranges.len() + table.device_ranges.len();
        add(&mut report.used, "range".into(), ranges as u64);
        add(&mut report.used, "launch".into(), table.launches_read);
        add(&mut report.used, "operator".into(), table.operators_read);
        report.doubts.extend(table.left_out.doubts());
        table.left_out.counts().for_each(|(what, count)| add(&mut report.ignored, what, count));
        for category in &table.categories {
            let name = String::from_utf8_lossy(&category.name);
            let what = match &*name {
                "python_function" => "category python_function: Python's stack".into(),
                "overhead" => "category overhead: the profiler's own".into(),
                "Trace" => "category Trace: the profiler's own".into(),
                name => format!("category {name}"),
            };
            add(&mut report.ignored, what, category.ignored);
        }
        for (phase, count) in &table.phases {
            let what = match phase {
                b'M' => "metadata (ph M)",
                b's' | b't' | b'f' => "flow arrows (ph s, t, f)",
                b'C' => "counters (ph C)",
                b'i' | b'I' | b'R' => "instants (ph i, I, R)",
                b'B' | b'E' => "begin or end alone (ph B, E); only whole events (ph X) are read",
                b'b' | b'n' | b'e' | b'S' | b'T' | b'p' | b'F' => "asynchronous events (ph b, n, e)",
                _ => "events of another phase (ph)",
            };
            add(&mut report.ignored, what.into(), *count);
        }
        add(&mut report.ignored, "event: broken JSON, or no event".into(), table.lost.elements);
        for ((what, why), count) in &table.odd {
            add(&mut report.ignored, format!("{what}: {why}"), *count);
        }
    }
    report
}

pub(super) fn warnings(files: &[ReadFile]) -> Vec<String> {
    let mut said = Vec::new();
    for file in files {
        let name = &file.name;
        let mut say = |text: String| said.push(format!("{name}: {text}"));
        file.warnings
            .iter()
            .chain(&file.metadata.warnings)
            .chain(&file.parts.notes)
            .for_each(|text| say(text.clone()));
        let lost = &file.table.lost;
        if let Some((offset, expected)) = lost.first {
            say(format!(
                "byte {offset}: broken JSON, expected {expected}; left out: {} ({} bytes)",
                counted(lost.elements as usize, "such element"),
                lost.bytes
            ));
        }
        let halves = file.table.phases.iter().filter(|(phase, _)| matches!(phase, b'B' | b'E'));
        let halves: u64 = halves.map(|(_, count)| *count).sum();
        if halves > 0 {
            say(format!(
                "{halves} events begin or end alone (ph B, E) and are not read: if they are GPU work, it is missing"
            ));
        }
        file.table.left_out.sentences().for_each(&mut say);
        for ((what, why), count) in &file.table.odd {
            if *why != super::table::NO_CORRELATION {
                say(format!("{count} ignored ({what}): {why}"));
            }
        }
        let spans = file.table.used.iter().sum::<u64>();
        if spans == 0 {
            say("no GPU events: none of category kernel, gpu_memcpy or gpu_memset".into());
        } else if file.table.launches_read == 0 {
            say("no launches of the host: waiting for the host cannot be told from other idle time"
                .into());
        } else if (file.launched as u64) < spans {
            let rest = spans - file.launched as u64;
            say(format!(
                "{rest} of {spans} GPU events without a launch of the host: taken as ready when they start"
            ));
        }
    }
    said
}
