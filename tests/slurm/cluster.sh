#!/usr/bin/env bash
# A Slurm cluster on one host, for tests: a controller and several node daemons (slurmd -N), which keep everything in
# one folder. It needs the programs of Slurm and MUNGE (on Debian: apt-get install slurm-wlm munge), no systemd and no
# control groups, and runs as root or as whoever may run slurmctld.
#
#   cluster.sh start DIR [NODES [CPUS]]    SLURM_CONF=DIR/slurm.conf makes sbatch, squeue and scancel use it
#   cluster.sh kill DIR NODE               the node dies with all that runs on it
#   cluster.sh revive DIR NODE
#   cluster.sh stop DIR
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"

verb=$1 dir=$(mkdir -p "$2" && cd "$2" && pwd)
export SLURM_CONF=$dir/slurm.conf

start() {
    local nodes=${1:-3} cpus=${2:-4} host user port
    host=$(hostname -s) user=$(id -un)
    # ports that hardly anybody has: by the number of this process
    port=$((20000 + $$ % 2000 * 10))
    chmod 755 "$dir"
    mkdir -p "$dir/state" "$dir/munge"
    chmod 700 "$dir/munge"
    head -c 1024 /dev/urandom > "$dir/munge/key"
    chmod 600 "$dir/munge/key"
    # it would refuse a folder below one that others may write to, such as /tmp
    munged --force --socket="$dir/munge.socket" --key-file="$dir/munge/key" --pid-file="$dir/munge/pid" \
        --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" --num-threads=2 2>>"$dir/munge.err"
    {
        cat <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
MpiDefault=none
SwitchType=switch/none
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
Waittime=0
ReturnToService=2
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
        for ((n = 1; n <= nodes; n++)); do
            echo "NodeName=n$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + n)) CPUs=$cpus Gres=gpu:2 State=UNKNOWN"
        done
    } > "$SLURM_CONF"
    # files stand for GPUs that nobody has
    touch "$dir/gpu0" "$dir/gpu1"
    echo "Name=gpu File=$dir/gpu[0-1]" > "$dir/gres.conf"
    slurmctld -c
    for ((n = 1; n <= nodes; n++)); do revive "n$n"; done
    for ((tries = 0; tries < 100; tries++)); do
        [[ $(sinfo --noheader --Node --format='%N %T' 2>/dev/null | grep -c ' idle$') == "$nodes" ]] && return
        sleep 0.2
    done
    echo "the nodes do not come up:" >&2
    tail -n 5 "$dir"/slurm*.log >&2
    return 1
}

revive() {
    mkdir -p "$dir/spool-$1"
    slurmd -N "$1"
}

# The processes of jobs on a node, and the daemon's own for each of them.
processes() {
    local pid
    for pid in $(grep -lzs "^SLURMD_NODENAME=$1\$" /proc/[0-9]*/environ | cut -d/ -f3); do
        grep -qzs "^SLURM_CONF=$SLURM_CONF\$" "/proc/$pid/environ" || continue
        echo "$pid"
        awk '/^PPid:/ { print $2 }' "/proc/$pid/status" 2>/dev/null | while read -r parent; do
            grep -qs '^slurmstepd' "/proc/$parent/comm" && echo "$parent"
        done
    done | sort -u
}

kill_node() {
    local pid
    # the daemon first: it would tell the controller
    for pid in $(cat "$dir/slurmd-$1.pid") $(processes "$1"); do
        kill -9 "$pid" 2>/dev/null || true
    done
}

stop() {
    local node file
    for file in "$dir"/slurmd-*.pid; do
        node=${file##*/slurmd-} node=${node%.pid}
        kill_node "$node"
    done
    for file in "$dir/slurmctld.pid" "$dir/munge/pid"; do
        [[ -f $file ]] && kill "$(cat "$file")" 2>/dev/null || true
    done
}

case $verb in
    start) start "${@:3}" ;;
    revive) revive "$3" ;;
    kill) kill_node "$3" ;;
    stop) stop ;;
    *) echo "cluster.sh start|kill|revive|stop DIR ..." >&2; exit 2 ;;
esac
