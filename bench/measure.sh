#!/bin/sh
# Measures what docs/performance.md shows of CPUs, into bench/results/, in 21 or 31 rounds.
# Takes over an hour on a machine that does nothing else; then: bench/report.py. What it shows of a GPU comes from tests/gpu/run.sh.
#
#   bench/measure.sh [words for the level of C, such as --rounds 5]
#
# The Python is $PYTHON, else that of .venv, else python3.
set -e
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
[ -n "$PYTHON" ] || [ ! -x .venv/bin/python ] || python=.venv/bin/python
operations="all_reduce all_gather reduce_scatter all_to_all broadcast permute barrier
    ragged_all_to_all"

measure() {
    name=$1
    shift
    echo "== $name"
    "$python" -m oriel bench "$@" --json "bench/results/$name.json"
}

# More where calls are short, and for the exchanges that are near their bars.
rounds_of() {
    case $1_$2 in
    *_2 | *all_to_all_8 | permute_8) echo 31 ;;
    *) echo 21 ;;
    esac
}

for operation in $operations; do
    for n in 2 4 8; do
        rounds=$(rounds_of "$operation" $n)
        # Of two --rounds the last one counts.
        measure "${operation}_c_$n" "$operation" --vs mpi -n $n --check --rounds "$rounds" "$@"
    done
done
for operation in $operations; do
    check=
    [ "$operation" = all_reduce ] && check=--check
    peers=jax
    # shellcheck disable=SC2086 # it is no word or one
    measure "${operation}_jax_processes_2" "$operation" -n 2 --vs $peers $check
    [ "$operation" = all_reduce ] && peers=jax,empty
    # shellcheck disable=SC2086
    measure "${operation}_jax_devices_2" "$operation" --devices 2 --vs $peers $check
done
measure startup startup --check
