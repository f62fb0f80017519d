"""oriel.mpi beside mpi4jax, in one run and in the same processes, inside jit:

    mpirun -n 2 python3 bench/against_mpi4jax.py [--sizes 8,1K,64K,1M,16M] [--calls allreduce,...]
        [--as-given] [--floor] [--json out.json] [--check]

Needs mpi4py and mpi4jax (`pip install mpi4jax`, which builds against libopenmpi-dev). Each program
adds the rank, as a constant, to its operand and makes one call (--as-given: it makes the call alone).
--floor tells what XLA takes for that sum, for a custom call that does nothing, and for both. Each repetition runs both, in an
order that changes and is the same in all processes; before each the processes meet in MPI's barrier,
and the slowest one's time counts. Reported is the median, in microseconds."""

import argparse
import ctypes
import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import mpi4jax
import numpy as np
import oriel
import oriel.mpi
from mpi4py import MPI

_COMM = MPI.COMM_WORLD
_UNITS = {"K": 1 << 10, "M": 1 << 20}
_SMALL = 64 << 10
_LEAST = {True: {"allreduce": 10, "sendrecv": 10}, False: {"allreduce": 1.5, "sendrecv": 1.5}}
_ELSE = {True: 5, False: 0}


def calls(library, rank, n):
    """name: a function of an array with a row for each rank"""
    after, before = (rank + 1) % n, (rank - 1) % n
    ring = {"source": before, "dest": after}

    def pass_on(x):  # there and back, in opposite orders
        if rank == 0:
            library.send(x, after)
            return library.recv(x, before)
        y = library.recv(x, before)
        library.send(y, after)
        return y

    return {
        "allreduce": lambda x: library.allreduce(x, op=MPI.SUM),
        "sendrecv": lambda x: library.sendrecv(x, x, **ring),
        "send_recv": pass_on,
        "allgather": lambda x: library.allgather(x),
        "alltoall": lambda x: library.alltoall(x),
        "bcast": lambda x: library.bcast(x, 0),
        "gather": lambda x: library.gather(x, 0),
        "reduce": lambda x: library.reduce(x, MPI.SUM, 0),
        "scan": lambda x: library.scan(x, MPI.SUM),
        "scatter": lambda x: library.scatter(x if rank == 0 else x[0], 0),
    }


def floors(rank):
    """The same with nothing in it."""
    handler = ctypes.cast(oriel._lib.load().oriel_ffi_empty, ctypes.c_void_p)
    jax.ffi.register_ffi_target("oriel_empty", jax.ffi.pycapsule(handler), platform="cpu")

    def nothing(x):
        kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call("oriel_empty", kind)(x)

    return {"sum": lambda x: x + rank, "empty": nothing, "both": lambda x: nothing(x + rank)}


def time_of(function, x):
    _COMM.Barrier()
    begun = time.perf_counter()
    jax.block_until_ready(function(x))
    return time.perf_counter() - begun


def operand(size):
    n = _COMM.Get_size()
    return jnp.arange(max(size // 4 // n, 1) * n, dtype=jnp.float32).reshape(n, -1) % 7


def times_of(programs, x, repetitions):
    """{name: seconds of each repetition}"""
    times = {label: [] for label in programs}
    for i in range(repetitions + 3):
        for label in sorted(programs, reverse=i % 2 == 1):
            taken = _COMM.allreduce(time_of(programs[label], x), op=MPI.MAX)
            if i >= 3:
                times[label].append(taken)
    return times


def measure(name, size, repetitions, as_given):
    """{library: seconds of each repetition}, with equal results."""
    rank, x = _COMM.Get_rank(), operand(size)
    programs = {}
    for label, library in {"oriel": oriel.mpi, "mpi4jax": mpi4jax}.items():
        call = calls(library, rank, _COMM.Get_size())[name]
        programs[label] = jax.jit(call if as_given else lambda x, call=call: call(x + rank))
    results = {label: np.asarray(program(x)) for label, program in programs.items()}
    np.testing.assert_allclose(results["oriel"], results["mpi4jax"], rtol=1e-6)
    return times_of(programs, x, repetitions)


def show_floor(sizes, repetitions):
    programs = {name: jax.jit(program) for name, program in floors(_COMM.Get_rank()).items()}
    rows = []
    for size in sizes:
        times = times_of(programs, operand(size), repetitions or 500)
        rows.append({"bytes": size} | {k: 1e6 * statistics.median(v) for k, v in times.items()})
        if _COMM.Get_rank() == 0:
            told = "  ".join(f"{name} {rows[-1][name]:.1f}" for name in programs)
            print(f"floor {size:>14} B  {told}", flush=True)
    return rows


def least_of(name, size):
    small = size <= _SMALL
    return _LEAST[small].get(name, _ELSE[small])


def size_of(text):
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def main():
    names = list(calls(oriel.mpi, 0, 2))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="8,1K,64K,1M,16M", help="bytes of an operand")
    parser.add_argument("--calls", default=",".join(names))
    parser.add_argument("--repetitions", type=int, help="else 500 or fewer, by size")
    parser.add_argument("--as-given", action="store_true", help="do not add the rank")
    parser.add_argument("--floor", action="store_true", help="what XLA takes, besides")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is too small")
    given = parser.parse_args()
    oriel.init(distributed=False)
    rows, sizes = [], [size_of(text) for text in given.sizes.split(",")]
    floor = show_floor(sizes, given.repetitions) if given.floor else []
    for name in given.calls.split(","):
        for size in sizes:
            repetitions = given.repetitions or max(30, min(500, (256 << 20) // size))
            times = measure(name, size, repetitions, given.as_given)
            ours, theirs = (1e6 * statistics.median(times[k]) for k in ("oriel", "mpi4jax"))
            row = {"call": name, "bytes": size, "oriel_us": ours, "mpi4jax_us": theirs}
            rows.append(row | {"ratio": theirs / ours, "least": least_of(name, size)})
            if _COMM.Get_rank() == 0:
                print(
                    f"{name:10} {size:>9} B  oriel {ours:10.1f}  mpi4jax {theirs:10.1f}  ratio "
                    f"{theirs / ours:6.2f}  of {least_of(name, size):g}",
                    flush=True,
                )
    if given.json and _COMM.Get_rank() == 0:
        found = {"ranks": _COMM.Get_size(), "commit": oriel._lib.commit(), "rows": rows}
        found |= {"floor": floor, "as_given": given.as_given}
        with open(given.json, "w") as out:
            json.dump(found, out)
    oriel.finalize()
    if given.check and any(row["ratio"] < row["least"] for row in rows):
        sys.exit(1)


main()
