//! `ladderscope completions SHELL`: prints a completion script. In bash, zsh and fish it calls the program
//! (`complete`) to offer models, stored runs and filter fields. If that returns nothing, and in other shells, a
//! static list of verbs and options is used.

use clap_complete::Shell;

use super::output;
use base::error::{Error, Result};

/// Arguments of `ladderscope completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = SWITCH_ON)]
pub struct Args {
    /// Shell to print the script for
    #[arg(value_enum)]
    pub shell: Shell,
}

const SWITCH_ON: &str = "\
Add one line to the shell's startup file:
  bash  source <(ladderscope completions bash)                 in ~/.bashrc
  zsh   source <(ladderscope completions zsh)                  in ~/.zshrc, after compinit
  fish  ladderscope completions fish | source                  in ~/.config/fish/config.fish
Completes models, architectures, hardware, runs, experiments, columns, filters and option values.";

/// Calls the program, which handles words that bash splits at colons.
const BASH: &str = r#"
_ladderscope_live() {
    local offer answer program="${COMP_WORDS[0]/#\~/$HOME}"
    answer=$("$program" __complete "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ -z $answer ]]; then
        _ladderscope "$@"
        return
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r offer _; do
        COMPREPLY+=("$offer")
    done <<< "$answer"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} =~ [=:,\>/]$ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _ladderscope_live -o nosort -o bashdefault -o default ladderscope 2>/dev/null ||
    complete -F _ladderscope_live -o bashdefault -o default ladderscope
"#;

const ZSH: &str = r#"
_ladderscope_live() {
    local -a answer texts shown open open_shown
    local offer
    answer=("${(@f)$(${(Q)~words[1]} __complete "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    if [[ -z "$answer" ]]; then
        _ladderscope "$@"
        return
    fi
    for offer in $answer; do
        if [[ "${offer%%$'\t'*}" == *[=:,\>/] ]]; then
            open+=("${offer%%$'\t'*}")
            open_shown+=("${offer/$'\t'/  -- }")
        else
            texts+=("${offer%%$'\t'*}")
            shown+=("${offer/$'\t'/  -- }")
        fi
    done
    compadd -V ladderscope -l -d shown -a texts
    compadd -V ladderscope -l -S '' -d open_shown -a open
}
compdef _ladderscope_live ladderscope
"#;

const FISH: &str = r#"
function __ladderscope_live
    ladderscope __complete (commandline -cp | string collect) 2>/dev/null
end
complete -c ladderscope -e
complete -c ladderscope -k -f -n 'count (__ladderscope_live) >/dev/null' -a '(__ladderscope_live)'
complete -c ladderscope -F -n 'not count (__ladderscope_live) >/dev/null'
"#;

pub fn run(args: &Args, command: &mut clap::Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "ladderscope", &mut script);
    let script =
        String::from_utf8(script).map_err(|e| Error::failed(format!("the completion script: {e}")))?;
    output::emit(&match args.shell {
        Shell::Bash => script + BASH,
        Shell::Zsh => script + ZSH,
        // fish combines all completions of a command, so the static list is limited to when the program is not found
        Shell::Fish => format!("if not command -q ladderscope\n{script}\nelse\n{FISH}\nend\n"),
        _ => script,
    })?;
    Ok(0)
}
