//! `--rules`: what is communication in a trace that another profiler recorded.

/// The rules that hold where nobody asks for others.
const DEFAULT: &str = "default";

/// The option, to be flattened into a verb's arguments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RulesArgs {
    /// What is communication in an imported trace: default, nccl-name, hta, or a rule file (TOML)
    #[arg(long, value_name = "RULES", default_value = DEFAULT)]
    pub rules: String,
}

impl RulesArgs {
    /// Their name, where they are not the default ones.
    pub fn named(&self) -> Option<&str> {
        (self.rules != DEFAULT).then_some(self.rules.as_str())
    }
}
