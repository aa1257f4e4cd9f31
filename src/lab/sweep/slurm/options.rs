//! User options for `sbatch`: split like a shell, parsed like `sbatch`, and limited to options that do not conflict
//! with those Ladderscope sets.

use std::str::FromStr;

use base::error::{Error, nearest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// Optional value after `=`.
    Perhaps,
}

use Takes::{Nothing, Perhaps, Value};

/// Allowed options of `sbatch` (resources, time, choice of nodes, accounting) as `long,short`. `=` marks options with a
/// value, `?` those with an optional one.
const ALLOWED: &str = "\
    account,A= acctg-freq= batch= bb= bbf= begin,b= comment= constraint,C= contiguous core-spec,S= \
    cores-per-socket= cpu-freq= cpus-per-gpu= cpus-per-task,c= deadline= delay-boot= dependency,d= \
    distribution,m= exclude,x= exclusive? export= extra-node-info,B= get-user-env? gpu-bind= \
    gpu-freq= gpus,G= gpus-per-node= gpus-per-socket= gpus-per-task= gres= gres-flags= hint= hold,H \
    kill-on-invalid-dep= licenses,L= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= \
    mem-per-gpu= mincpus= network= nice? no-kill,k? no-requeue nodefile,F= nodelist,w= nodes,N= \
    ntasks,n= ntasks-per-core= ntasks-per-gpu= ntasks-per-node= ntasks-per-socket= overcommit,O \
    oversubscribe,s partition,p= power= prefer= priority= profile= propagate? qos,q= quiet,Q reboot \
    requeue reservation= signal= sockets-per-node= spread-job switches= thread-spec= \
    threads-per-core= time,t= time-min= tmp= tres-bind= tres-per-task= use-min-nodes verbose,v \
    wait-all-nodes= wckey=";

struct Allowed {
    long: &'static str,
    short: Option<char>,
    takes: Takes,
}

fn allowed() -> impl Iterator<Item = Allowed> + Clone {
    ALLOWED.split_whitespace().map(|word| {
        let names = word.trim_end_matches(['=', '?']);
        let (long, short) = names.split_once(',').unwrap_or((names, ""));
        let takes = match word.chars().last() {
            Some('=') => Value,
            Some('?') => Perhaps,
            _ => Nothing,
        };
        Allowed { long, short: short.chars().next(), takes }
    })
}

/// Options of `sbatch`, each as one word with its long name, which leaves no ambiguity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmOptions {
    /// Words in the order given.
    pub words: Vec<String>,
}

impl SlurmOptions {
    /// Partition named by the options, if any.
    pub fn partition(&self) -> Option<&str> {
        self.words.iter().rev().find_map(|word| word.strip_prefix("--partition="))
    }
}

impl FromStr for SlurmOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let given = shlex::split(text).ok_or_else(|| {
            Error::input_help(
                format!("'{text}': a quote is not closed"),
                "options of sbatch as a shell has them: --slurm '-p gpu --time 2:00:00'",
            )
        })?;
        let mut given = given.into_iter();
        let mut words = Vec::new();
        while let Some(word) = given.next() {
            match word.strip_prefix("--") {
                Some("") => return Err(no_option(&word)),
                Some(long) => words.push(long_option(&word, long, &mut given)?),
                None => match word.strip_prefix('-').filter(|shorts| !shorts.is_empty()) {
                    Some(shorts) => short_options(&word, shorts, &mut given, &mut words)?,
                    None => return Err(no_option(&word)),
                },
            }
        }
        Ok(Self { words })
    }
}

/// Parses `--name`, `--name=value`, or `--name` with its value in the next word.
fn long_option(
    word: &str,
    long: &str,
    rest: &mut impl Iterator<Item = String>,
) -> Result<String, Error> {
    let (name, value) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (long, None),
    };
    let Some(known) = allowed().find(|known| known.long == name) else {
        return Err(refused(word, name));
    };
    written(&known, value, word, rest)
}

/// Parses short options in one word. The rest of the word is the value of the first that takes one.
fn short_options(
    word: &str,
    shorts: &str,
    rest: &mut impl Iterator<Item = String>,
    words: &mut Vec<String>,
) -> Result<(), Error> {
    let mut letters = shorts.chars();
    while let Some(letter) = letters.next() {
        let Some(known) = allowed().find(|known| known.short == Some(letter)) else {
            return Err(refused(word, &letter.to_string()));
        };
        // optional values exist only in the long form
        let value = Some(letters.as_str()).filter(|rest| known.takes == Value && !rest.is_empty());
        let value = value.map(str::to_owned);
        let is_last = value.is_some();
        words.push(written(&known, value, word, rest)?);
        if is_last {
            break;
        }
    }
    Ok(())
}

fn written(
    known: &Allowed,
    value: Option<String>,
    word: &str,
    rest: &mut impl Iterator<Item = String>,
) -> Result<String, Error> {
    let name = known.long;
    match (known.takes, value) {
        (Nothing, Some(_)) => Err(Error::input(format!("'{word}': --{name} of sbatch takes no value"))),
        (Value, None) => match rest.next() {
            Some(value) => Ok(format!("--{name}={value}")),
            None => Err(Error::input(format!("'{word}': --{name} of sbatch needs a value"))),
        },
        (_, Some(value)) => Ok(format!("--{name}={value}")),
        (_, None) => Ok(format!("--{name}")),
    }
}

/// Error for an option that the sweep sets itself, that `sbatch` lacks, or that is abbreviated.
fn refused(word: &str, name: &str) -> Error {
    let mut all = allowed().map(|known| known.long);
    let whole = all.clone().find(|long| name.len() > 1 && long.starts_with(name));
    let whole = whole.or_else(|| nearest(name, &mut all));
    let near = whole.map(|long| format!("did you mean --{long}? ")).unwrap_or_default();
    Error::input_help(
        format!("'{word}' cannot be passed to sbatch here"),
        format!(
            "{near}write names in full; sweep sets the script, the array and the output files itself; you can set \
             partition, account, time, memory and nodes"
        ),
    )
}

fn no_option(word: &str) -> Error {
    Error::input_help(
        format!("'{word}' is not an option of sbatch"),
        "options begin with -, and the script is sweep's: --slurm '-p gpu --time 2:00:00'",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<String>, Error> {
        text.parse::<SlurmOptions>().map(|options| options.words)
    }

    #[test]
    fn options_are_read_as_sbatch_reads_them_and_written_out() {
        for (text, words) in [
            ("", &[][..]),
            ("-p gpu --comment 'two words'", &["--partition=gpu", "--comment=two words"]),
            ("-pgpu -t10", &["--partition=gpu", "--time=10"]),
            ("-QHp gpu", &["--quiet", "--hold", "--partition=gpu"]),
            ("-QHpgpu", &["--quiet", "--hold", "--partition=gpu"]),
            ("-p -t", &["--partition=-t"]),
            (
                "--account=x --exclusive --gres=gpu:h100:8",
                &["--account=x", "--exclusive", "--gres=gpu:h100:8"],
            ),
            ("--exclusive=user --nice=-5 --mem=0", &["--exclusive=user", "--nice=-5", "--mem=0"]),
            ("-t 10 --requeue", &["--time=10", "--requeue"]),
            ("--comment --wrap=x", &["--comment=--wrap=x"]),
            ("-sk", &["--oversubscribe", "--no-kill"]),
        ] {
            assert_eq!(read(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn what_sweep_says_itself_is_refused_however_it_is_written() {
        let refused = "\
            --array=0-3 | --array 0-3 | --arr=1 | -a 1 | -a1 | -Qa1 | -Ha 1 | -J name | -Jname | \
            -QJx | --job-name=x | --job | --j=x | --wrap hostname | --wrap=hostname | --wra hostname \
            | --wra=hostname | --wr=x | -o/tmp/x | -o x | -Qox | --output=x | --out=x | -e x | \
            --error=x | -i x | --input=x | --open-mode=append | --ope=append | --parsable | --pars | \
            --wait | -W | -QW | --test-only | --tes | -D / | --chdir=/ | -M other | --clusters=other \
            | --export-file=x | --uid=0 | --gid=0 | -h | --help | --usage | -V | --version | \
            --container=x | --ignore-pbs | --part gpu | --no-such | -Z | -0 | -é | script.sh | -p \
            gpu script.sh | -Q script.sh | -p gpu -- script.sh | -- | - | '' | -p gpu : -N 2 | -p \
            'gpu | -p | --partition | -Qp | --quiet=x | --requeue=1";
        for refused in refused.split(" | ") {
            assert_eq!(read(refused).unwrap_err().exit_code(), 2, "{refused}");
        }
        let Error::Input { help: Some(help), .. } = read("--part gpu").unwrap_err() else { panic!() };
        assert!(help.contains("did you mean --partition?"), "{help}");
    }

    #[test]
    fn the_partition_is_found_however_it_is_written() {
        for (text, name) in [
            ("-p gpu", Some("gpu")),
            ("-pgpu -t 5", Some("gpu")),
            ("-Qpgpu", Some("gpu")),
            ("--partition=a --partition b", Some("b")),
            ("--comment -pgpu", None),
            ("-t 5", None),
        ] {
            assert_eq!(text.parse::<SlurmOptions>().unwrap().partition(), name, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_read_or_refused(text in "[-=a-zA-Z' 0-9]{0,60}|.{0,60}") {
            if let Ok(options) = text.parse::<SlurmOptions>() {
                let _ = options.partition();
                for word in &options.words {
                    let name = word.split('=').next().unwrap_or_default();
                    let name = name.strip_prefix("--").expect("a long name");
                    prop_assert!(allowed().any(|known| known.long == name));
                }
            }
        }
    }
}
