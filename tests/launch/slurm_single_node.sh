#!/usr/bin/env bash
# A real one-node Slurm on this machine, for tests of the Slurm launcher.
#   slurm_single_node.sh start DIR PORT   installs Debian's slurm and munge if missing, starts them with all state in DIR
#                                         on PORT and the one after, and prints the line to export (SLURM_CONF=...)
#   slurm_single_node.sh stop DIR         ends all jobs and stops exactly what start started
# Needs root. sbatch, srun, squeue, scancel --signal, scontrol requeue work; there is no accounting database (no sacct).
set -euo pipefail
verb=${1:?start or stop}; port=${3:-6817}; dir=$(mkdir -p "${2:?a folder for its state}" && cd "$2" && pwd)
case $verb in
start)
  command -v slurmctld >/dev/null || { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurm-wlm munge >"$dir/install.log" 2>&1; }
  mkdir -p "$dir"/{state,spool,log} /run/munge /var/log/munge /var/lib/munge
  chown -R munge:munge /run/munge /var/log/munge /var/lib/munge /etc/munge
  if [ ! -f /etc/munge/munge.key ]; then
    head -c 1024 /dev/urandom >/etc/munge/munge.key; chown munge /etc/munge/munge.key; chmod 400 /etc/munge/munge.key
  fi
  munge -n >/dev/null 2>&1 || { runuser -u munge -- /usr/sbin/munged; touch "$dir/started-munge"; }
  host=$(hostname)
  cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmdSpoolDir=$dir/spool
StateSaveLocation=$dir/state
SlurmUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo) State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  slurmctld -f "$dir/slurm.conf"; sleep 1; slurmd -f "$dir/slurm.conf"
  for _ in $(seq 20); do SLURM_CONF="$dir/slurm.conf" sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.5; done
  SLURM_CONF="$dir/slurm.conf" sinfo >&2
  echo "export SLURM_CONF=$dir/slurm.conf" ;;
stop)
  export SLURM_CONF="$dir/slurm.conf"
  timeout 10 scancel --user=root --signal=KILL --full 2>/dev/null || true
  timeout 10 scancel --user=root 2>/dev/null || true
  for _ in $(seq 20); do timeout 10 squeue -h 2>/dev/null | grep -q . || break; sleep 0.5; done
  for p in slurmd slurmctld; do [ -f "$dir/$p.pid" ] && kill "$(cat "$dir/$p.pid")" || true; done
  [ -f "$dir/started-munge" ] && kill "$(cat /run/munge/munged.pid)" && rm -f "$dir/started-munge" || true ;;
*) echo "start or stop" >&2; exit 2 ;;
esac
