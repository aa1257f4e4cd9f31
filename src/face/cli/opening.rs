//! Options of every verb that opens a trace from another profiler: `--rules`, `--recording`.

use crate::desk::OpenOptions;

const DEFAULT: &str = "default";

/// The options, to be flattened into a verb's arguments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OpenArgs {
    /// Rules that identify communication in an imported trace: default, nccl-name, hta, or a rule file (TOML)
    #[arg(long, value_name = "RULES", default_value = DEFAULT)]
    pub rules: String,
    /// Recording to open from a directory with several of the same ranks (another step, stage or time) [default:
    /// the newest with all ranks]
    #[arg(long, value_name = "NAME")]
    pub recording: Option<String>,
}

impl OpenArgs {
    /// Options for opening a trace of which at least the steps up to `upto` are needed.
    pub fn options(&self, upto: Option<u32>) -> OpenOptions<'_> {
        OpenOptions {
            rules: (self.rules != DEFAULT).then_some(self.rules.as_str()),
            recording: self.recording.as_deref(),
            upto,
        }
    }
}
