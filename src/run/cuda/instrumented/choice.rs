//! Choice of the recorder: stamps need a fine clock.

use super::InstrumentedRun;
use crate::cuda::cupti::CuptiSession;
use crate::cuda::ranks::{broadcast, gather};
use crate::cuda::timing::Tick;
use base::error::Result;
use table::Recorder;

/// Maximum tick of the stamp clock (ns) that still resolves the kernels of a decode step.
const MAX_STAMP_TICK_NS: f64 = 2_100.0;

/// Selects the same recorder on all ranks: CUPTI instead of stamps if the clock of any rank is too coarse and
/// CUPTI works on all ranks. Also returns a warning on rank 0.
pub(super) fn choose_recorder(
    context: &InstrumentedRun<'_>,
    tick: &Tick,
) -> Result<(Recorder, Option<String>)> {
    if context.spec.recorder != Recorder::Stamps {
        return Ok((context.spec.recorder, None));
    }
    // CUPTI allows one recording per process
    let tries = context.peers.is_none_or(|peers| !peers.in_one_process() || peers.rank() == 0);
    let clock = context.clock;
    let lacks = || CuptiSession::start(move || clock.now()).err().map(|why| why.to_string());
    let own = (tick.ns, (tries && tick.ns > MAX_STAMP_TICK_NS).then(lacks).flatten());
    let all = gather(context.peers, "ticks of clocks", own)?;
    let (recorder, warning) = all.map_or((Recorder::Stamps, None), |all| recorder_for_ticks(&all));
    Ok((broadcast(context.peers, "recorder", recorder)?, warning))
}

/// Selects the recorder, with a warning, from each rank's clock tick (ns) and the reason why CUPTI failed, if tried.
fn recorder_for_ticks(ranks: &[(f64, Option<String>)]) -> (Recorder, Option<String>) {
    let tick = ranks.iter().map(|(tick, _)| *tick).fold(0.0, f64::max);
    if tick <= MAX_STAMP_TICK_NS {
        return (Recorder::Stamps, None);
    }
    let coarse = format!(
        "the GPU's clock ticks every {:.1} us, too rarely for stamps of short kernels",
        tick / 1e3
    );
    match ranks.iter().find_map(|(_, lacks)| lacks.as_ref()) {
        None => (Recorder::Cupti, Some(format!("{coarse}: CUPTI timed the operations"))),
        Some(why) => (Recorder::Stamps, Some(format!("{coarse}, and CUPTI cannot time them: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_clock_selects_cupti_if_it_works() {
        assert_eq!(recorder_for_ticks(&[(1_000.0, None), (32.0, None)]), (Recorder::Stamps, None));
        let (recorder, warning) = recorder_for_ticks(&[(32.0, None), (4_096.0, None)]);
        assert_eq!(recorder, Recorder::Cupti);
        let warning = warning.unwrap();
        assert!(warning.contains("every 4.1 us") && warning.ends_with("CUPTI timed the operations"));
        let (recorder, warning) =
            recorder_for_ticks(&[(4_096.0, Some("no libcupti".into())), (32.0, None)]);
        assert_eq!(recorder, Recorder::Stamps, "better than nothing");
        assert!(warning.is_some_and(|text| text.ends_with("CUPTI cannot time them: no libcupti")));
    }
}
