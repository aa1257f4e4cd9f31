//! How long a run may show no progress: an option of all verbs that run something.

use std::time::Duration;

use crate::run::TIMEOUT;

/// The option of all verbs that run something on GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Patience {
    /// End a run on GPUs in which a rank shows no progress, or does not come, for so long
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Patience {
    /// The option's value as a duration.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
