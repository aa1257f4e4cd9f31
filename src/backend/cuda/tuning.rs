//! What can be changed of how steps run on a GPU, for experiments: variables of the run's process, which
//! its record names with their effect.

use crate::error::{Error, Result};

/// Whether kernels may start early: 0 or 1.
const PROGRAMMATIC: &str = "LADDERSCOPE_PROGRAMMATIC";
/// Multiprocessors that kernels beside a collective leave to it: a number.
const SMS_FOR_COMM: &str = "LADDERSCOPE_SMS_FOR_COMM";

/// How steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Whether kernels may start before those before them have ended, where the GPU can do that and
    /// nothing speaks against it.
    pub programmatic: bool,
    /// Multiprocessors that kernels beside a collective leave to it; what it takes, where none are named.
    pub sms_for_comm: Option<u32>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { programmatic: true, sms_for_comm: None }
    }
}

impl Tuning {
    /// As this process's variables say.
    pub fn of_process() -> Result<Self> {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name| variable(name).filter(|text| !text.trim().is_empty());
        let programmatic = match set(PROGRAMMATIC).as_deref().map(str::trim) {
            None | Some("1") => true,
            Some("0") => false,
            Some(other) => {
                return Err(Error::input(format!("{PROGRAMMATIC} is '{other}'; it must be 0 or 1")));
            }
        };
        let number = |text: String| {
            text.trim().parse().map_err(|_| {
                let wanted = "it must be a number of multiprocessors, such as 24, or 0";
                Error::input(format!("{SMS_FOR_COMM} is '{text}'; {wanted}"))
            })
        };
        let sms_for_comm = set(SMS_FOR_COMM).map(number).transpose()?;
        Ok(Self { programmatic, sms_for_comm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(programmatic: &str, sms: &str) -> Result<Tuning> {
        Tuning::of(|name| Some(if name == PROGRAMMATIC { programmatic } else { sms }.to_owned()))
    }

    #[test]
    fn variables_are_read_and_wrong_ones_refused() {
        assert_eq!(Tuning::of(|_| None).ok(), Some(Tuning::default()));
        assert_eq!(of("", " ").ok(), Some(Tuning::default()));
        let wanted = Tuning { programmatic: false, sms_for_comm: Some(8) };
        assert_eq!(of("0", "8").ok(), Some(wanted));
        for (programmatic, sms, name) in [("yes", "8", PROGRAMMATIC), ("1", "-1", SMS_FOR_COMM)] {
            let error = of(programmatic, sms).expect_err("wrong");
            assert!(error.to_string().starts_with(name) && error.exit_code() == 2, "{error}");
        }
    }
}
