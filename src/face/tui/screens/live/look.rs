//! Facts about a cell that need no run: planned memory, and, if it is simulated, the lanes of a decode
//! step. Takes milliseconds; runs in the background.

use super::state::Looked;
use plan::Phase;
use run::{Shared, StepLanes, backend};
use table::Spec;

/// Inspects a cell; unknown parts are left empty.
pub fn look(spec: &Spec) -> Looked {
    let shared = Shared::default();
    let (Ok(model), Ok(backend)) = (shared.model(&spec.model), backend(spec.backend)) else {
        return Looked::default();
    };
    let bytes = backend.memory(spec, &model.shape, &shared).total();
    let simulated = if spec.backend.is_simulated() { simulated(spec, &shared) } else { None };
    Looked { rank_bytes: (bytes > 0).then_some(bytes), simulated: simulated.unwrap_or_default() }
}

/// Simulates the lanes of the first decode step.
fn simulated(spec: &Spec, shared: &Shared) -> Option<Vec<StepLanes>> {
    let spec = Spec { output_tokens: spec.output_tokens.min(2), ..spec.clone() };
    let (_, trace) = shared.simulator.cell(&spec).ok()?.run(true).ok()?;
    let spans: Vec<_> = trace?.spans.into_iter().filter(|s| s.phase == Phase::Decode).collect();
    Some(StepLanes::of_step(&spans))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::screens::live::state::Looked;
    use run::Resolve;
    use table::{Backend, CellOptions};

    fn of(architecture: &str, backend: Backend) -> Looked {
        let options = CellOptions {
            architecture: Some(architecture.parse().unwrap()),
            model: Some("llama-3.2-1b".into()),
            tp: Some(4),
            backend: Some(backend),
            ..CellOptions::default()
        };
        look(&options.resolve().unwrap().0)
    }

    #[test]
    fn a_simulated_cell_shows_the_lanes_of_every_rank_and_ladder_hides_what_standard_exposes() {
        let exposed = |architecture| {
            let looked = of(architecture, Backend::Sim);
            assert_eq!(looked.simulated.len(), 4);
            let (comm, exposed) = super::super::progress::communication(&looked.simulated[0]);
            exposed as f64 / comm as f64
        };
        assert!(exposed("standard") > 0.99 && exposed("ladder") < 0.5);
    }

    #[test]
    fn the_memory_of_a_rank_is_known_before_it_runs() {
        // 1.24e9 parameters of 4 bytes, a quarter of the layers on each rank, the embedding on all
        let bytes = of("ladder", Backend::Cpu).rank_bytes.unwrap();
        assert!((1.2e9..4.0e9).contains(&(bytes as f64)), "{bytes}");
        assert!(of("ladder", Backend::Cpu).simulated.is_empty());
    }
}
