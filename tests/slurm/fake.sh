#!/bin/sh
# Stands for sbatch, squeue, sinfo and scancel, by the name it is called by, where there is no Slurm: tasks are processes of
# this host. Its state is a file for each task in $FAKE_SLURM: NAME|JOB|TASK|STATE|NODE|REASON.
set -u
state=$FAKE_SLURM
case ${0##*/} in
sinfo)
    echo "$@" >> "$state/asked-sinfo"
    echo "4+|gpu:h100:8(S:0-1)"
    ;;
sbatch)
    [ -e "$state/refuse" ] && { echo "sbatch: error: invalid partition specified: nowhere" >&2; exit 1; }
    echo "$@" >> "$state/asked-sbatch"
    for word in "$@"; do
        case $word in
        --job-name=*) name=${word#*=} ;;
        --array=*) last=${word#*-0-} last=${last##*-} ;;
        --output=*) logs=${word#*=} logs=${logs%/*} ;;
        esac
        script=$word
    done
    job=$(($(ls "$state" | grep -c '^job-') + 100))
    : > "$state/job-$job"
    task=0
    while [ "$task" -le "$last" ]; do
        file=$state/task-$job-$task
        echo "$name|$job|$task|RUNNING|node$task|None" > "$file"
        SLURM_JOB_ID=$((job + task)) SLURM_ARRAY_JOB_ID=$job SLURM_ARRAY_TASK_ID=$task \
            setsid sh -c 'echo $$ > "$1.pid"; sh "$2" > "$3" 2>&1; status=$?
                grep -q RUNNING "$1" || exit 0
                [ $status = 0 ] && word=COMPLETED || word=FAILED
                sed "s/RUNNING/$word/" "$1" > "$1.new"; mv "$1.new" "$1"' \
            sh "$file" "$script" "$logs/$name-$task.log" < /dev/null > /dev/null 2>&1 &
        task=$((task + 1))
    done
    echo "$job"
    ;;
squeue)
    names=
    for word in "$@"; do
        case $word in
        --name=*) names=,${word#*=}, ;;
        esac
    done
    cat "$state"/task-*-[0-9] 2>/dev/null | while IFS='|' read -r name rest; do
        case $names in *",$name,"*) echo "$name|$rest" ;; esac
    done
    exit 0
    ;;
scancel)
    while [ $# -gt 0 ]; do [ "$1" = --name ] && name=$2; shift; done
    for file in $(grep -l "^$name|.*|RUNNING|" "$state"/task-*-[0-9]); do
        sed 's/RUNNING/CANCELLED/' "$file" > "$file.new"
        mv "$file.new" "$file"
        kill -TERM -- "-$(cat "$file.pid")" || true
    done
    ;;
esac
