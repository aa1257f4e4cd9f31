//! What a user gives to `sbatch`: words as a shell has them, without those that Ladderscope itself says.

use std::str::FromStr;

use crate::base::error::Error;

/// Options that would take away how tasks are found again.
const OURS: [(&str, &str); 8] = [
    ("--array", "-a"),
    ("--job-name", "-J"),
    ("--output", "-o"),
    ("--parsable", ""),
    ("--wrap", ""),
    ("--wait", "-W"),
    ("--test-only", ""),
    ("--open-mode", ""),
];

/// Options of `sbatch`, as one word each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmOptions {
    /// The words, in the order in which they were given.
    pub words: Vec<String>,
}

impl SlurmOptions {
    /// The partition that they name, if one.
    pub fn partition(&self) -> Option<&str> {
        let mut found = None;
        for (at, word) in self.words.iter().enumerate() {
            let next = || self.words.get(at + 1).map(String::as_str);
            found = match word.as_str() {
                "-p" | "--partition" => next(),
                word => word
                    .strip_prefix("--partition=")
                    .or_else(|| word.strip_prefix("-p").filter(|rest| !rest.is_empty()))
                    .or(found),
            };
        }
        found
    }
}

impl FromStr for SlurmOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let words = shlex::split(text).ok_or_else(|| {
            Error::input_help(
                format!("'{text}': a quote is not closed"),
                "options of sbatch as a shell has them: --slurm '-p gpu --time 2:00:00'",
            )
        })?;
        for word in &words {
            let is_ours = |(long, short): &(&str, &str)| {
                let long_or_with_value = word == long || word.starts_with(&format!("{long}="));
                let is_short = !short.is_empty() && word.starts_with(short) && !word.starts_with("--");
                long_or_with_value || is_short
            };
            if let Some((long, _)) = OURS.iter().find(|ours| is_ours(ours)) {
                return Err(Error::input_help(
                    format!("'{word}' is not yours to say: sweep itself gives {long} to sbatch"),
                    "leave it out; partition, account, time, memory and nodes are yours",
                ));
            }
        }
        if let Some(word) = words.first().filter(|word| !word.starts_with('-')) {
            return Err(Error::input_help(
                format!("'{word}' is no option of sbatch"),
                "options begin with -: --slurm '-p gpu --time 2:00:00'",
            ));
        }
        Ok(Self { words })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_those_of_a_shell_and_ours_are_refused() {
        let read = |text: &str| text.parse::<SlurmOptions>().map(|options| options.words);
        assert_eq!(
            read("-p gpu --comment 'two words'").unwrap(),
            ["-p", "gpu", "--comment", "two words"]
        );
        assert!(read("").unwrap().is_empty());
        for refused in
            ["--array=0-3", "-a 1", "-J name", "--wrap hostname", "-o/tmp/x", "gpu", "-p 'gpu"]
        {
            assert_eq!(read(refused).unwrap_err().exit_code(), 2, "{refused}");
        }
        assert!(read("--account=x --exclusive --gres=gpu:h100:8 -t 10").is_ok());
    }

    #[test]
    fn the_partition_is_found_however_it_is_written() {
        for (text, name) in [
            ("-p gpu", Some("gpu")),
            ("-pgpu -t 5", Some("gpu")),
            ("--partition=a --partition b", Some("b")),
            ("-t 5", None),
        ] {
            assert_eq!(text.parse::<SlurmOptions>().unwrap().partition(), name, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_read_or_refused(text in ".{0,60}") {
            if let Ok(options) = text.parse::<SlurmOptions>() {
                let _ = options.partition();
            }
        }
    }
}
