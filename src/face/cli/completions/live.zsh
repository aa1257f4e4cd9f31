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
