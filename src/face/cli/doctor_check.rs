//! `ladderscope doctor --check`: verifies the program's results and speed on each GPU of this machine.

use super::output::{self, OutputFormat};
use super::stderr;
use base::error::Result;
use machine::driver::Gpu;
use run::cuda::check::{self, CHECKS, CheckOutcome, CheckResult};
use run::cuda::usable_gpus;
use table::render::{Shown, Sourced, Table};

/// Checks every GPU, stores the results for later runs and prints them. Returns exit status 0 if nothing failed, 1 if
/// something did, 2 without a GPU.
pub(super) fn check_gpus(format: OutputFormat) -> Result<u8> {
    let gpus = match usable_gpus() {
        Ok(gpus) if !gpus.is_empty() => gpus,
        Ok(_) => return nothing_to_check("no GPU", format),
        Err(why) => return nothing_to_check(&why.to_string(), format),
    };
    let mut all = Vec::new();
    for info in &gpus {
        let gpu = Gpu::open(info.index)?;
        let checked =
            check::check(&gpu, &mut |what| stderr::note(&format!("GPU {}: {what}", info.index)));
        check::keep(&gpu, &checked);
        all.push(PrintedGpuChecks::new(format!("{} ({})", info.index, info.name), checked));
    }
    let is_good = all.iter().all(|gpu| check::passed(&gpu.checks));
    print_checks(all, format)?;
    Ok(u8::from(!is_good))
}

/// Lists the checks as not done, if there is no GPU.
fn nothing_to_check(why: &str, format: OutputFormat) -> Result<u8> {
    let checks: Vec<CheckResult> = CHECKS
        .iter()
        .map(|(name, asks)| CheckResult {
            name: (*name).into(),
            found: CheckOutcome::NotDone,
            said: format!("not run; checks that {asks}"),
        })
        .collect();
    print_checks(vec![PrintedGpuChecks::new("none".into(), checks)], format)?;
    stderr::warn(&format!("nothing was checked: {why}"));
    Ok(2)
}

/// Output of the checks in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedChecks {
    gpus: Vec<PrintedGpuChecks>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedGpuChecks {
    /// Number and name of the GPU; `none` without a GPU.
    gpu: String,
    /// True if checks ran and none failed.
    passed: bool,
    checks: Vec<CheckResult>,
}

impl PrintedGpuChecks {
    fn new(gpu: String, checks: Vec<CheckResult>) -> Self {
        let is_any = checks.iter().any(|check| check.found == CheckOutcome::Passed);
        Self { gpu, passed: is_any && check::passed(&checks), checks }
    }
}

fn print_checks(gpus: Vec<PrintedGpuChecks>, format: OutputFormat) -> Result<()> {
    let mut table = Table::new(["gpu", "check", "found", "result"]);
    for PrintedGpuChecks { gpu, checks, .. } in &gpus {
        for check in checks {
            let row = [gpu.as_str(), &check.name, check.found.as_str(), &check.said];
            table.push(row.into_iter().map(Shown::text).collect());
        }
    }
    output::table(format, &PrintedChecks { gpus }, &table, Sourced::NoRuns)
}
