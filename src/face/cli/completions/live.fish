function __ladderscope_live
    ladderscope __complete (commandline -cp | string collect) 2>/dev/null
end
complete -c ladderscope -e
complete -c ladderscope -k -f -n 'count (__ladderscope_live) >/dev/null' -a '(__ladderscope_live)'
complete -c ladderscope -F -n 'not count (__ladderscope_live) >/dev/null'
