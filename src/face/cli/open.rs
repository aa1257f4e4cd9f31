//! Options of every verb that opens a trace from another profiler: `--rules`, `--recording`.

use crate::desk::OpenOptions;

const DEFAULT_RULES: &str = "default";

/// Options of every verb that opens a trace, to be flattened into its arguments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OpenArgs {
    /// Rules that identify communication in an imported trace: default, nccl-name, hta, or a rule file (TOML)
    #[arg(long, value_name = "RULES", default_value = DEFAULT_RULES)]
    pub rules: String,
    /// Recording to open if a directory holds several of the same ranks, by name [default: the newest with all ranks]
    #[arg(long, value_name = "NAME")]
    pub recording: Option<String>,
}

impl OpenArgs {
    /// Converts to the options of [`crate::desk::open`]; `upto` is the last step that the verb needs, if not all.
    pub fn options(&self, upto: Option<u32>) -> OpenOptions<'_> {
        OpenOptions {
            rules: (self.rules != DEFAULT_RULES).then_some(self.rules.as_str()),
            recording: self.recording.as_deref(),
            upto,
        }
    }
}
