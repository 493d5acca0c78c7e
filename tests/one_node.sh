#!/usr/bin/env bash
# A Slurm of one node, this machine, for tests/test_slurm.py. `tests/one_node.sh start DIR` keeps everything of it in DIR and
# ends once the node takes jobs; `tests/one_node.sh stop DIR` ends it. It takes root, and Debian's slurm-wlm and munge.
set -euo pipefail

dir="$(realpath -m "$2")"

start() {
  mkdir -p "$dir"/{state,spool,munge,log}
  chmod 700 "$dir/munge"
  head -c 128 /dev/urandom > "$dir/munge/key"
  chmod 400 "$dir/munge/key"
  munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
  cat > "$dir/slurm.conf" << CONF
ClusterName=one
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,requeue_setup_env_fail
MailProg=/bin/true
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc --all) State=UNKNOWN
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF="$dir/slurm.conf"
  slurmctld
  slurmd
  for _ in $(seq 50); do
    if [[ "$(sinfo --noheader --format=%T 2> /dev/null)" == idle ]]; then return; fi
    sleep 0.2
  done
  sinfo >&2 || true
  tail -n 20 "$dir"/log/* >&2
  return 1
}

stop() {
  for pid in "$dir/slurmd.pid" "$dir/slurmctld.pid" "$dir/munge/pid"; do
    if [[ -s "$pid" ]]; then kill "$(cat "$pid")" || true; fi
  done
}

"$1"
