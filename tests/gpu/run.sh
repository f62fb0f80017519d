#!/bin/sh
# Runs the GPU tests on this machine: run.sh BUILD OUT [PART...], all parts or those of c,
# sanitize, jax and bench; jax needs python3 (or $PYTHON) with JAX for CUDA, comparisons with NCCL a
# libnccl.so.2 from 2.30 on, which $NCCL_LIB names. Each row is "row NAME ok", "row NAME
# skipped ..." or "row NAME FAILED ..."; they and a table of times are printed at the end.
# Afterwards `tests/gpu/report.py write OUT` makes the JSON under results/ and
# bench/results/, from the sources that BUILD was made from.
build=${1:-build}
out=${2:-.}
[ $# -gt 2 ] && shift 2 && parts=" $* " || parts=" c sanitize jax bench "
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
folder=jax # of programs that use JAX
export PYTHONPATH="$here/../../python:$here/jax${PYTHONPATH:+:$PYTHONPATH}"
preload= # before python, where a test needs it
rows=$out/rows.txt
: > "$rows"

# try NAME COMMAND...: with a hard end; logs go to files, since a child that survives would
# keep a pipe open. `oriel run` puts "[process] " before each line. Where a process is to be
# killed, MUST is what the others say at the end: their exit codes do not count then.
try() {
    name=$1
    shift
    timeout -k 1 -s KILL "${LIMIT:-60}" "$@" > "$out/$name.log" 2>&1
    rc=$?
    sed 's/^\[[0-9]*\] //' "$out/$name.log" | grep '^row ' | sed "s|^row |row $name/|" >> "$rows"
    [ "$rc" = "${WANT:-0}" ] && ! grep -q "${MUST:-}" "$out/$name.log" && rc="without $MUST"
    case $rc in
    "${WANT:-0}") echo "row $name ok" >> "$rows" ;;
    77) echo "row $name skipped $(grep -v '^oriel run: ' "$out/$name.log" | tail -n 1)" >> "$rows" ;;
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
    try hard_threads_2 "$build/tests/hard" 2
    try hard_threads_8 "$build/tests/hard" 8
    try kernel_2 "$build/tests/kernel" "$here/../.." 2
    try kernel_4 "$build/tests/kernel" "$here/../.." 4
    ORIEL_DIRECT=0 try kernel_staged_3 "$build/tests/kernel" "$here/../.." 3
    try vias_2 "$build/tests/vias" 2 10000
    try vias_4 "$build/tests/vias" 4 10000
    ORIEL_GPU_CTAS=1024 try vias_grid_2 "$build/tests/vias" 2 0 grid
    nccl_ring vias_nccl_2 "$build/tests/vias" 2 10000
    nccl_ring vias_nccl_4 "$build/tests/vias" 4 10000
    NCCL_ALGO=allreduce:tree nccl vias_nccl_tree_2 "$build/tests/vias" 2 0 sums
    NCCL_ALGO=allreduce:tree nccl vias_nccl_tree_4 "$build/tests/vias" 4 0 sums
    nccl vias_differ "$build/tests/vias_fail" differ
    nccl vias_stuck "$build/tests/vias_fail" stuck
    # A client that is killed can leave the server sick: each of these has its own.
    mps_start
    for n in 2 4; do
        try "vias_mps_$n" "$build/oriel" run -n $n -- "$build/tests/vias" 1 10000
        nccl_ring "vias_nccl_mps_$n" "$build/oriel" run -n $n -- "$build/tests/vias" 1 10000
    done
    try mps_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1
    try mps_shared_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1 1
    try mps_shared_2x2 "$build/oriel" run -n 2 -- "$build/tests/ops" 2 1
    try mps_kernel_2 "$build/oriel" run -n 2 -- "$build/tests/kernel" "$here/../.." 1
    try mps_kernel_2x2 "$build/oriel" run -n 2 -- "$build/tests/kernel" "$here/../.." 2
    try mps_8 "$build/oriel" run -n 8 -- "$build/tests/ops" 1 1
    try hard_mps_2 "$build/oriel" run -n 2 -- "$build/tests/hard"
    try hard_mps_3 "$build/oriel" run -n 3 -- "$build/tests/hard"
    ORIEL_DIRECT=0 try hard_staged_2 "$build/oriel" run -n 2 -- "$build/tests/hard"
    mps_stop
    nccl_part
    [ -n "$NCCL_LIB" ] && span_part
    with_mps_of_its_own killed mps_killed
    with_mps_of_its_own killed mps_killed_busy busy
    for via in nccl lsa sym_peer; do
        with_mps_of_its_own killed_via "$via"
    done
    try sliced_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1 1 1
    killed sliced_killed
    killed sliced_killed_busy busy
}

# The same programs on the nccl fabric, and its own, which says why where it cannot be.
nccl_part() {
    ORIEL_NCCL="${NCCL_LIB:-libnccl.so.2}" try nccl_2 "$build/tests/nccl" 2
    [ -n "$NCCL_LIB" ] || return
    export ORIEL_FABRIC=nccl ORIEL_NCCL="$NCCL_LIB"
    try nccl_4 "$build/tests/nccl" 4
    try nccl_threads_4 "$build/tests/ops" 4
    try nccl_kernel_4 "$build/tests/kernel" "$here/../.." 4
    mps_start
    try nccl_mps_2 "$build/oriel" run -n 2 -- "$build/tests/nccl" 1
    try nccl_mps_2x2 "$build/oriel" run -n 2 -- "$build/tests/nccl" 2
    try nccl_mps_leave "$build/oriel" run -n 2 -- "$build/tests/nccl" 1 leave
    try nccl_mps_shared_2 "$build/oriel" run -n 2 -- "$build/tests/ops" 1 1
    try nccl_mps_shared_2x2 "$build/oriel" run -n 2 -- "$build/tests/ops" 2 1
    try nccl_mps_kernel_2 "$build/oriel" run -n 2 -- "$build/tests/kernel" "$here/../.." 1
    try nccl_hard_mps_2 "$build/oriel" run -n 2 -- "$build/tests/hard"
    MUST="ORIEL_FABRIC is" WANT=1 try nccl_mps_differs "$build/oriel" run -n 2 -- \
        sh -c "[ \$ORIEL_PROCESS_ID = 1 ] && export ORIEL_FABRIC=cuda; exec '$build/tests/ops' 1 1 1"
    mps_stop
    with_mps_of_its_own killed nccl_mps_killed
    with_mps_of_its_own killed nccl_mps_killed_busy busy
    unset ORIEL_FABRIC ORIEL_NCCL
}

# span NAME PROCESSES EACH PROGRAM...: processes that count as machines, EACH on one.
span() {
    name=$1
    processes=$2
    each=$3
    shift 3
    ORIEL_NCCL=$NCCL_LIB LIMIT=20 try "$name" "$build/oriel" run --grace 8 -n "$processes" -- \
        sh "$here/as_machines.sh" "$each" "$@"
}

span_part() {
    mps_start
    span span_2 2 1 "$build/tests/ops" 1 1
    span span_2x2 4 2 "$build/tests/ops" 1 1
    span span_threads_2x2 2 1 "$build/tests/ops" 2 1 2
    span span_mismatch 2 1 "$build/tests/span" mismatch
    span span_late 2 1 "$build/tests/span" late
    mps_stop
    mps_start
    MUST="row death" WANT=137 span span_killed 2 1 "$build/tests/span" killed
    mps_stop
    with_mps_of_its_own gin_part
}

# Kernels of one's own between machines; what lacks, a NIC, tests/fake/gin.c stands for.
gin_part() {
    span gin_off 2 1 "$build/tests/gin" "$here/../.." refused "ORIEL_GIN is 0"
    export ORIEL_GIN=1
    span gin_none 2 1 "$build/tests/gin" "$here/../.." refused "finds no GIN"
    export NCCL_RMA_PLUGIN="$build/tests/fake/libnccl-rma-test.so" GIN_TEST_DELAY_US=20000
    span gin_2 2 1 "$build/tests/gin" "$here/../.." right
    span gin_2x2 4 2 "$build/tests/gin" "$here/../.." right
    span gin_ops_2x2 4 2 "$build/tests/ops" 1 1
    span gin_stuck 2 1 "$build/tests/gin" "$here/../.." stuck
    span gin_address_2x2 4 2 "$build/tests/gin" "$here/../.." address
    span gin_plain_2x2 4 2 "$build/tests/gin" "$here/../.." plain
    unset ORIEL_GIN NCCL_RMA_PLUGIN GIN_TEST_DELAY_US
    try gin_one_machine "$build/oriel" run -n 2 -- "$build/tests/gin" "$here/../.." right
}

with_mps_of_its_own() {
    mps_start
    "$@"
    mps_stop
}

killed() {
    name=$1
    shift
    MUST="row context" WANT=137 try "$name" "$build/oriel" run --grace 20 -n 2 -- "$build/tests/killed" "$@"
}

# nccl NAME ...: with the nccl fabric, where its library is named.
nccl() {
    ORIEL_FABRIC=nccl ORIEL_NCCL=${NCCL_LIB:-libnccl.so.2} try "$@"
}

# nccl_ring NAME ...: for all reductions, of which an NCCL built for tests may have the ring alone.
nccl_ring() {
    NCCL_ALGO=allreduce:ring nccl "$@"
}

killed_via() {
    MUST="row context" WANT=137 nccl "mps_killed_$1" "$build/oriel" run --grace 20 -n 2 -- \
        "$build/tests/vias_fail" killed "$1"
}

# Kernels of all ranks must run at the same time, so ranks are processes, which take turns:
# memcheck looks at all that ops does quickly, racecheck at the kernels that have shared
# memory, which are the large ones.
sanitize_part() {
    for tool in memcheck racecheck; do
        LIMIT=100 try "sanitize_$tool" "$build/oriel" run -n 2 -- compute-sanitizer \
            --error-exitcode 9 --tool "$tool" "$build/tests/ops" 1 1 2
    done
}

# jax NAME RANKS PROGRAM ...
jax() {
    name=$1
    ranks=$2
    shift 2
    try "$name" "$build/oriel" run -n "$ranks" -- $preload "$python" "$here/$folder/$@"
}

# jax_nccl NAME ...: the same with that NCCL in place of JAX's own, where it is named.
jax_nccl() {
    [ -n "$NCCL_LIB" ] && preload="env LD_PRELOAD=$NCCL_LIB NCCL_MULTI_RANK_GPU_ENABLE=1"
    jax "$@"
    preload=
}

# verify NAME ARGUMENTS: XLA's own collectives; the command is looked for on PATH.
verify() {
    name=$1
    shift
    try "$name" env PATH="$build:$PATH" "$python" -m oriel verify --timeout 50 \
        ${NCCL_LIB:+--nccl "$NCCL_LIB"} --keep-log "$out/$name.xla" "$@"
}

# jax_span NAME PROGRAM ...
jax_span() {
    name=$1
    shift
    try "$name" "$build/oriel" run -n 2 -- sh "$here/as_machines.sh" 1 \
        env LD_PRELOAD="$NCCL_LIB" NCCL_MULTI_RANK_GPU_ENABLE=1 "$python" "$here/$folder/$@"
}

jax_part() {
    # Those on CPUs take nothing from the GPU.
    (random_on_cpu 4 1; random_on_cpu 4 2; random_on_cpu 8 3) &
    on_cpus=$!
    mps_start
    verify verify_2 -n 2
    verify verify_4 -n 4 --sizes 1M
    # Where NCCL has no virtual memory it registers nothing, and says success.
    NCCL_CUMEM_ENABLE=0 WANT=3 verify verify_no_windows_2 -n 2 --sizes 1M
    WANT=77 verify verify_alone
    jax jax_ops_2 2 jax_ops.py
    jax jax_replay_2 2 jax_replay.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_graphs_2 2 jax_replay.py
    ORIEL_DIRECT=0 jax jax_staged_2 2 jax_replay.py 40
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_renew_2 2 jax_renew.py
    XLA_FLAGS=--xla_gpu_enable_command_buffer= jax jax_renew_uncaptured_2 2 jax_renew.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_renew_moved_2 2 jax_renew.py moved
    jax jax_kernel_2 2 jax_kernel.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_kernel_graphs_2 2 jax_kernel.py right
    ORIEL_DIRECT=0 jax jax_kernel_staged_2 2 jax_kernel.py right
    ORIEL_GPU_ARENA=8M jax jax_kernel_no_room_2 2 jax_kernel.py right
    jax jax_op_2 2 jax_op.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_op_graphs_2 2 jax_op.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_vias_graphs_2 2 jax_vias.py
    jax jax_trace_2 2 jax_trace.py "$out/trace"
    jax jax_nvtx_2 2 jax_trace.py "$out/trace_nvtx" nvtx
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 LIMIT=280 jax jax_calls_2 2 jax_calls.py 50
    jax jax_calls_3 3 jax_calls.py 5
    jax jax_calls_differ_2 2 jax_calls.py differ
    jax jax_groups_2 2 jax_groups.py
    jax jax_groups_4 4 jax_groups.py
    jax jax_groups_3 3 jax_groups.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_groups_graphs_3 3 jax_groups.py
    for n in 2 3 4; do
        jax jax_early_$n $n jax_replay.py early
        XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax jax_early_graphs_$n $n jax_replay.py early
    done
    jax jax_calls_ahead_2 2 jax_calls.py ahead
    jax jax_calls_extra_2 2 jax_calls.py extra
    jax jax_fail_2 2 jax_fail.py
    jax jax_fail_3 3 jax_fail.py
    ORIEL_SYNC=1 jax jax_sync_2 2 jax_fail.py sync
    LIMIT=120
    jax jax_turns_2 2 jax_turns.py 2000
    jax jax_turns_8 8 jax_turns.py 300
    wait "$on_cpus"
    jax bench_initialize_2 2 jax_initialize.py
    random 4 1
    random 4 2
    random 8 3
    jax_nccl jax_overlap_2 2 jax_overlap.py
    [ -n "$NCCL_LIB" ] && nccl_jax_part
    # Room for NCCL's CTAs, 32 of each rank, beside all of oriel's.
    ORIEL_GPU_CTAS=64 jax_nccl jax_overlap_reserve_2 2 jax_overlap.py 1000 1048576
    ORIEL_NCCL_COMM=xla jax_nccl jax_borrow_2 2 jax_borrow.py
    ORIEL_NCCL_COMM=xla XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax_nccl jax_borrow_graphs_2 2 jax_borrow.py
    jax_nccl jax_borrow_via_2 2 jax_borrow.py via
    ORIEL_NCCL_COMM=none jax_nccl jax_borrow_none_2 2 jax_borrow.py without
    ORIEL_NCCL_COMM=xla jax jax_borrow_refused_2 2 jax_borrow.py refused
    jax jax_borrow_auto_2 2 jax_borrow.py refused
    mps_stop
}

# Those that need an MPS of their own or none, and the longest.
jax_end_part() {
    LIMIT=120
    with_mps_of_its_own borrow_killed jax_borrow_killed
    with_mps_of_its_own killed_jax jax_killed_mps
    with_mps_of_its_own jax jax_endless_2 2 jax_endless.py "$out"
    jax jax_turns_sliced_2 2 jax_turns.py 20
    killed_jax jax_killed_sliced
    jax jax_op_fault_2 2 jax_op.py fault
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 with_mps_of_its_own jax jax_turns_graphs_2 2 jax_turns.py
}

nccl_jax_part() {
    export ORIEL_FABRIC=nccl
    jax_nccl nccl_jax_ops_2 2 jax_ops.py
    jax_nccl nccl_jax_kernel_2 2 jax_kernel.py right
    jax_nccl nccl_jax_replay_2 2 jax_replay.py 40
    jax_nccl nccl_jax_groups_3 3 jax_groups.py
    export NCCL_ALGO=allreduce:ring # see nccl_ring
    jax_nccl nccl_jax_vias_2 2 jax_vias.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax_nccl nccl_jax_vias_graphs_2 2 jax_vias.py
    unset ORIEL_FABRIC NCCL_ALGO
    # As two machines.
    jax_span jax_span_2 jax_ops.py
    XLA_FLAGS=--xla_gpu_graph_min_graph_size=1 jax_span jax_span_graphs_2 jax_replay.py 40
    export ORIEL_GIN=1 NCCL_RMA_PLUGIN="$build/tests/fake/libnccl-rma-test.so" GIN_TEST_DELAY_US=20000
    jax_span jax_gin_2 jax_gin.py
    unset ORIEL_GIN NCCL_RMA_PLUGIN GIN_TEST_DELAY_US
}

# random RANKS SEED: compared with what random_on_cpu has found.
random() {
    jax "jax_random_$1_$2" "$1" jax_random.py "$2" "$out"
}

random_on_cpu() {
    JAX_PLATFORMS=cpu jax "jax_random_cpu_$1_$2" "$1" jax_random.py "$2" "$out"
}

killed_jax() {
    MUST="row finalize" WANT=137 try "$1" "$build/oriel" run --grace 40 -n 3 -- "$python" "$here/jax/jax_killed.py"
}

borrow_killed() {
    [ -n "$NCCL_LIB" ] && preload="env LD_PRELOAD=$NCCL_LIB NCCL_MULTI_RANK_GPU_ENABLE=1"
    ORIEL_NCCL_COMM=xla MUST="row finalize" WANT=137 try "$1" "$build/oriel" run --grace 40 -n 2 -- \
        $preload "$python" "$here/jax/jax_borrow.py" killed
    preload=
}

# Memory and time with and without communicators; nothing else runs on the GPU.
borrow_costs() {
    for whose in none xla own; do
        jax_nccl "bench_cost_${whose}_2" 2 jax_borrow_cost.py $whose
    done
    jax_nccl bench_cost_none_psum_2 2 jax_borrow_cost.py none psum
    jax_nccl bench_cost_xla_psum_2 2 jax_borrow_cost.py xla psum
}

bench_part() {
    try bench_2 "$build/tests/bench" 2
    try bench_4 "$build/tests/bench" 4
    try bench_nccl_2 "$build/tests/bench_nccl" 2 "${NCCL_LIB:-libnccl.so.2}"
    try bench_nccl_4 "$build/tests/bench_nccl" 4 "${NCCL_LIB:-libnccl.so.2}"
    ORIEL_FABRIC=nccl try bench_nccl_fabric_2 "$build/tests/bench_nccl" 2 "${NCCL_LIB:-libnccl.so.2}"
    ORIEL_FABRIC=nccl try bench_nccl_fabric_4 "$build/tests/bench_nccl" 4 "${NCCL_LIB:-libnccl.so.2}"
    try bench_kernel_2 "$build/tests/kernel" "$here/../.." 2 1
    try bench_kernel_4 "$build/tests/kernel" "$here/../.." 4 1
    try bench_sms_2 "$build/tests/sms" 2
    mps_start
    try bench_kernel_mps_2 "$build/oriel" run -n 2 -- "$build/tests/kernel" "$here/../.." 1 1
    try bench_mps_2 "$build/oriel" run -n 2 -- "$build/tests/bench" 1 1
    ORIEL_FABRIC=nccl try bench_nccl_fabric_mps_2 "$build/oriel" run -n 2 -- "$build/tests/bench_nccl" 1 "${NCCL_LIB:-libnccl.so.2}"
    try bench_nccl_mps_2 "$build/oriel" run -n 2 -- "$build/tests/bench_nccl" 1 "${NCCL_LIB:-libnccl.so.2}"
    mps_stop
}

jax_bench_part() {
    folder=bench
    mps_start
    LIMIT=200 jax_nccl bench_jax_2 2 jax_bench.py
    ORIEL_FABRIC=nccl jax_nccl bench_jax_nccl_2 2 jax_bench.py 20 65536 nccl
    ORIEL_NCCL_COMM=xla jax_nccl bench_jax_borrowed_2 2 jax_bench.py 20 65536 xla
    borrow_costs
    folder=../../bench
    jax_nccl bench_jax_tree_2 2 tree.py
    folder=bench
    jax bench_jax_kernel_2 2 jax_kernel_bench.py
    folder=jax
    jax bench_jax_fused_2 2 jax_fused.py
    mps_stop
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$out/gpu.txt"
has c && c_part
has sanitize && sanitize_part
has jax && jax_part
has bench && bench_part
has jax && jax_bench_part
has jax && jax_end_part
cat "$rows"
sed 's/^\[[0-9]*\] //' "$out"/bench_*.log | grep '^copy\|^host\|^bench'
