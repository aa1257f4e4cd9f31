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
