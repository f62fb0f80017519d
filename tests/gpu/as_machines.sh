#!/bin/sh
# Runs a process of a job as if on another machine: as_machines.sh EACH COMMAND..., under `oriel
# run`, puts EACH processes on a machine; NCCL takes the machines for such, and its sockets.
each=$1
shift
export ORIEL_HOSTID="machine$((ORIEL_PROCESS_ID / each))"
export NCCL_HOSTID=$ORIEL_HOSTID NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
exec "$@"
