//! `ladderscope doctor --check`: checks the program's results on the GPUs of this machine.

use super::output::{self, Format};
use super::report;
use base::error::Result;
use machine::driver::Gpu;
use run::cuda::check::{self, CHECKS, Checked, Found};
use run::cuda::gpus;
use table::render::{Shown, Sourced, Table};

/// Checks every GPU, stores the results for later runs and prints them. Returns exit status 0 if nothing failed, 1 if
/// something did, 2 without a GPU.
pub(super) fn run(format: Format) -> Result<u8> {
    let gpus = match gpus::usable() {
        Ok(gpus) if !gpus.is_empty() => gpus,
        Ok(_) => return nothing_to_check("no GPU", format),
        Err(why) => return nothing_to_check(&why.to_string(), format),
    };
    let mut all = Vec::new();
    for info in &gpus {
        let gpu = Gpu::open(info.index)?;
        let checked =
            check::check(&gpu, &mut |what| report::note(&format!("GPU {}: {what}", info.index)));
        check::keep(&gpu, &checked);
        all.push((format!("{} ({})", info.index, info.name), checked));
    }
    let is_good = all.iter().all(|(_, checked)| check::passed(checked));
    print(&all, format)?;
    Ok(u8::from(!is_good))
}

/// Lists the checks as not done, if there is no GPU.
fn nothing_to_check(why: &str, format: Format) -> Result<u8> {
    let all: Vec<Checked> = CHECKS
        .iter()
        .map(|(name, asks)| Checked {
            name: (*name).into(),
            found: Found::NotDone,
            said: format!("not run; checks that {asks}"),
        })
        .collect();
    print(&[("none".into(), all)], format)?;
    report::warn(&format!("nothing was checked: {why}"));
    Ok(2)
}

/// Output of the checks in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    gpus: Vec<PrintedGpu<'a>>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedGpu<'a> {
    /// Number and name of the GPU; `none` without a GPU.
    gpu: &'a str,
    /// True if checks ran and none failed.
    passed: bool,
    checks: &'a [Checked],
}

fn print(all: &[(String, Vec<Checked>)], format: Format) -> Result<()> {
    if format == Format::Json {
        let gpus = all.iter().map(|(gpu, checks)| {
            let is_any = checks.iter().any(|check| check.found == Found::Passed);
            PrintedGpu { gpu, passed: is_any && check::passed(checks), checks }
        });
        return output::json(&Printed { gpus: gpus.collect() });
    }
    let mut table = Table::new(["gpu", "check", "found", "result"]);
    for (gpu, checks) in all {
        for check in checks {
            let row = [gpu.as_str(), &check.name, check.found.as_str(), &check.said];
            table.push(row.into_iter().map(Shown::text).collect());
        }
    }
    output::emit(&if format == Format::Csv {
        table.csv(Sourced::NoRuns)
    } else {
        output::aligned(&table)
    })
}
