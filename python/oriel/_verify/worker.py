"""One process of `oriel verify`: XLA's own collectives, nothing of oriel's.

    python -m oriel._verify.worker look              what JAX finds here
    python -m oriel._verify.worker work PLAN         the collectives of PLAN (JSON), checked

What it has to say are lines of JSON behind MARK. All else that comes out of its two
descriptors is the log of JAX, XLA and NCCL.
"""

import ctypes
import functools
import json
import os
import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from oriel import _wheels

MARK = "oriel-verify "
AXIS = "x"
REPEATS = 2  # what is registered once is used again


def say(**what):
    sys.stdout.write(f"{MARK}{json.dumps(what)}\n")
    sys.stdout.flush()


# ---- look ------------------------------------------------------------------------------


def look():
    devices = jax.devices()
    say(
        jax=jax.__version__,
        platform=devices[0].platform,
        gpus=[device.device_kind for device in devices],
        capability=str(getattr(devices[0], "compute_capability", "")),
        nccl=find_nccl(),
    )


def find_nccl():
    """The NCCL that XLA calls in this process, or would: {version, file}, or None. Several
    may be loaded; the loader gives XLA the first, which is one that was preloaded."""
    loaded = functools.partial(ctypes.CDLL, "libnccl.so.2", os.RTLD_NOLOAD | os.RTLD_NOW)
    places = [_wheels.nccl(), "libnccl.so.2"]  # XLA's plugin looks beside itself first
    others = [functools.partial(ctypes.CDLL, file) for file in places if file]
    for load in (loaded, *others):
        version = ctypes.c_int()
        try:
            library = load()
            if library.ncclGetVersion(ctypes.byref(version)) == 0:
                return {"version": version.value, "file": _file_of(library.ncclGetVersion)}
        except (OSError, AttributeError):
            continue
    return None


class _Symbol(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _file_of(function):
    found = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found))
    return os.fsdecode(found.file or b"")


# ---- work ------------------------------------------------------------------------------

OPERATIONS = {
    "psum": lambda x, n: lax.psum(x, AXIS),
    "all_gather": lambda x, n: lax.all_gather(x[: x.size // n], AXIS, tiled=True),
    "psum_scatter": lambda x, n: lax.psum_scatter(x, AXIS, tiled=True),
}


def values(rank, count):
    """Whole numbers so small that floats hold their sums exactly, in any order."""
    return (np.arange(count, dtype=np.int64) * 7 + rank * 131) % 1009


def expected(operation, rank, ranks, count):
    part = count // ranks
    if operation == "all_gather":
        return np.concatenate([values(r, part) for r in range(ranks)])
    total = sum(values(r, count) for r in range(ranks))
    return total if operation == "psum" else total[rank * part : (rank + 1) * part]


def difference(operation, result, ranks, count):
    """What is wrong on this process's devices, or None."""
    for shard in result.addressable_shards:
        rank = shard.index[0].start // shard.data.size if shard.index[0].start else 0
        got, wanted = np.asarray(shard.data), expected(operation, rank, ranks, count)
        wrong = np.flatnonzero(got != wanted) if got.shape == wanted.shape else [0]
        if len(wrong):
            at = int(wrong[0])
            return (
                f"rank {rank}: {len(wrong)} of {wanted.size} elements are wrong, element {at} "
                f"is {got[at]}, not {wanted[at]}"
            )
    return None


def check(operation, mesh, nbytes):
    ranks = mesh.size
    count = max(1, nbytes // 4 // ranks) * ranks
    x = jax.make_array_from_callback(
        (ranks * count,),
        NamedSharding(mesh, P(AXIS)),
        lambda index: values((index[0].start or 0) // count, count).astype(np.float32),
    )
    program = jax.jit(
        jax.shard_map(
            lambda v: OPERATIONS[operation](v, ranks),
            mesh=mesh,
            in_specs=P(AXIS),
            out_specs=P(AXIS),
            check_vma=False,
        )
    )
    compiled = program.lower(x).compile()
    for _ in range(REPEATS):
        wrong = difference(operation, compiled(x), ranks, count)
        if wrong:
            break
    say(
        operation=operation,
        bytes=4 * count,
        wrong=wrong,
        coloured="S(1)" in compiled.as_text(),  # XLA's memory space of collectives
    )


def work(plan):
    process = int(os.environ["ORIEL_PROCESS_ID"])
    if plan["processes"] > 1:
        jax.distributed.initialize(
            plan["coordinator"],
            plan["processes"],
            process,
            cluster_detection_method="deactivate",
            coordinator_bind_address=plan["coordinator"],
            local_device_ids=[process % plan["gpus"]],
        )
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    say(ranks=mesh.size, process=process)
    for nbytes in plan["sizes"]:
        for operation in OPERATIONS:
            check(operation, mesh, nbytes)
    say(nccl=find_nccl())


if __name__ == "__main__":
    if sys.argv[1] == "look":
        look()
    else:
        work(json.loads(sys.argv[2]))
