#!/bin/sh
# Runs the GPU tests on this machine: run.sh BUILD OUT [PART...], all parts or those of c,
# jax and bench; jax needs python3 (or $PYTHON) with JAX for CUDA. Each row is "row NAME ok" or
# "row NAME FAILED ..."; they and a table of times are printed at the end. Afterwards
# `tests/gpu/report.py write OUT` makes the JSON under results/, from the sources that BUILD
# was made from.
build=${1:-build}
out=${2:-.}
[ $# -gt 2 ] && shift 2 && parts=" $* " || parts=" c jax bench "
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$here/../../python${PYTHONPATH:+:$PYTHONPATH}"
rows=$out/rows.txt
: > "$rows"

# try NAME COMMAND...: with a hard end; logs go to files, since a child that survives would
# keep a pipe open. `oriel run` puts "[process] " before each line.
try() {
    name=$1
    shift
    timeout -k 1 -s KILL "${LIMIT:-60}" "$@" > "$out/$name.log" 2>&1
    rc=$?
    sed 's/^\[[0-9]*\] //' "$out/$name.log" | grep '^row ' | sed "s|^row |row $name/|" >> "$rows"
    case $rc in
    "${WANT:-0}") echo "row $name ok" >> "$rows" ;;
    77) echo "row $name skipped $(tail -n 1 "$out/$name.log")" >> "$rows" ;;
    *) echo "row $name FAILED $rc: $(tail -n 1 "$out/$name.log")" >> "$rows" ;;
    esac
}

mps_start() {
    export CUDA_MPS_PIPE_DIRECTORY=$out/mps CUDA_MPS_LOG_DIRECTORY=$out/mps
    mkdir -p "$out/mps"
    nvidia-cuda-mps-control -d > "$out/mps.log" 2>&1
}

mps_stop() {
    echo quit | timeout -k 1 -s KILL 10 nvidia-cuda-mps-control > /dev/null 2>&1
    rm -rf "$out/mps"
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

has() {
    case $parts in *" $1 "*) return 0 ;; esac
    return 1
}

c_part() {
    try fail "$build/tests/fail"
    try threads_1 "$build/tests/ops" 1
    try threads_2 "$build/tests/ops" 2
    try threads_4 "$build/tests/ops" 4
    ORIEL_DIRECT=0 try staged_3 "$build/tests/ops" 3
    ORIEL_DIRECT=0 ORIEL_GPU_STAGE=1M try staged_little_3 "$build/tests/ops" 3
    ORIEL_GPU_CTAS=264 try ctas_264 "$build/tests/ops" 2
    try doctor "$build/oriel" doctor
    try threads_8 "$build/tests/ops" 8
    # A client that is killed can leave the server sick: each of these has its own.
    mps_start
    try mps_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1
    try mps_shared_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1 1
    try mps_shared_2x2 "$build/oriel" run -n 2 -- "$build/tests/ops" 2 1
    try mps_8 "$build/oriel" run -n 8 -- "$build/tests/ops" 1 1
    mps_stop
    mps_start
    WANT=137 try mps_killed "$build/oriel" run -n 2 -- "$build/tests/killed"
    mps_stop
    try sliced_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1 1 1
    WANT=137 try sliced_killed "$build/oriel" run -n 2 -- "$build/tests/killed"
}

# jax NAME RANKS PROGRAM ...
jax() {
    name=$1
    ranks=$2
    shift 2
    try "$name" "$build/oriel" run -n "$ranks" -- "$python" "$here/$@"
}

jax_part() {
    mps_start
    jax jax_ops_2 2 jax_ops.py
    jax jax_replay_2 2 jax_replay.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_graphs_2 2 jax_replay.py
    ORIEL_DIRECT=0 jax jax_staged_2 2 jax_replay.py 40
    jax jax_kernel_2 2 jax_kernel.py
    jax bench_initialize_2 2 jax_initialize.py
    jax jax_trace_2 2 jax_trace.py "$out/trace"
    jax jax_nvtx_2 2 jax_trace.py "$out/trace_nvtx" nvtx
    jax jax_fail_2 2 jax_fail.py
    jax jax_fail_3 3 jax_fail.py
    ORIEL_SYNC=1 jax jax_sync_2 2 jax_fail.py sync
    mps_stop
}

bench_part() {
    timeout -k 1 -s KILL 60 "$build/tests/bench" 2 > "$out/bench_2.log" 2>&1
    timeout -k 1 -s KILL 60 "$build/tests/bench" 4 > "$out/bench_4.log" 2>&1
    timeout -k 1 -s KILL 60 "$build/tests/sms" 2 > "$out/bench_sms_2.log" 2>&1
    mps_start
    timeout -k 1 -s KILL 60 "$build/oriel" run -n 2 -- "$build/tests/bench" 1 1 > "$out/bench_mps_2.log" 2>&1
    mps_stop
}

jax_bench_part() {
    mps_start
    timeout -k 1 -s KILL 100 "$build/oriel" run -n 2 -- "$python" "$here/jax_bench.py" > "$out/bench_jax_2.log" 2>&1
    mps_stop
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$out/gpu.txt"
has c && c_part
has jax && jax_part
has bench && bench_part
has jax && jax_bench_part
cat "$rows"
sed 's/^\[[0-9]*\] //' "$out"/bench_*.log | grep '^copy\|^host\|^bench'
