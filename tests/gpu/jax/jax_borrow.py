"""XLA's own communicator, borrowed: jax_borrow.py [PART]. The parts, with ORIEL_NCCL_COMM as
named, and but for `refused` with NCCL 2.30 preloaded:
  right    xla: values, one registration for many executions, new buffers, buffers that are new
           on one rank alone, beside lax.psum on the same communicator
  via      auto: a call that needs NCCL borrows, and its buffers go without
  without  own or none: nothing is borrowed
  refused  xla with an NCCL that does not let ranks share a GPU: the sentence; auto: the values
  killed   xla: process 1 dies while all run
"""

import ctypes
import os
import sys
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
from jax import lax
from jax_common import (
    failure_of,
    finalize_within,
    nccl_refusal,
    outlive_process_1,
    own,
    poison,
    row,
    sharded,
    spread,
    start,
)
from oriel import _lib

LARGE = 1 << 20  # elements: goes direct once it can
FIELDS = "lent meetings windows fillers dropped refused registered ready".split()


class Borrowed(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in FIELDS]


def borrowed():
    found = Borrowed()
    _lib.load().oriel_ffi_cuda_borrowed(ctypes.byref(found))
    return found


def say(what):
    counts = borrowed()
    print(f"borrowed {what}: " + ", ".join(f"{n} {getattr(counts, n)}" for n in FIELDS), flush=True)


def whole(rng, shape, dtype=np.float32):
    return rng.integers(-8, 8, shape).astype(dtype)  # sums are exact in every dtype


def everything(v):
    v = v[0]
    found = {
        "all_reduce": oriel.all_reduce(v, "x"),
        "reduce_scatter": oriel.reduce_scatter(v, "x"),
        "all_gather": oriel.all_gather(v[0], "x"),
        "all_to_all": oriel.all_to_all(v, "x", 0, 0),
        "broadcast": oriel.broadcast(v, "x", root=1),
    }
    return jax.tree.map(lambda a: a[None], found)


def check_values(mesh, rng):
    n, me = oriel.size(), oriel.rank()
    step = sharded(mesh, everything, check_vma=False)
    for dtype in (np.float32, np.int8, ml_dtypes.bfloat16):
        for count in (3, 100003, LARGE):
            x = whole(rng, (n, n, count), dtype)
            total = x.astype(np.float32).sum(0).astype(dtype)
            wanted = {
                "all_reduce": total,
                "reduce_scatter": total[me],
                "all_gather": x[:, 0],
                "all_to_all": x[:, me],
                "broadcast": x[1],
            }
            for turn in range(3):
                poison(8, 2)
                for name, got in step(spread(mesh, x)).items():
                    np.testing.assert_array_equal(
                        own(got)[0].astype(np.float32),
                        wanted[name].astype(np.float32),
                        err_msg=f"{name} of {count} {np.dtype(dtype).name}, run {turn}",
                    )
    row("values")


def run_until_ready(step, x, wanted):
    """Until buffers can be touched by peers: as many executions as on all others."""
    for turn in range(40):
        np.testing.assert_array_equal(own(step(x)), wanted, err_msg=f"run {turn}")
        time.sleep(0.01)  # the registrar looks now and then; no result depends on it
    assert borrowed().ready > 0, "no window is ready"


def check_many(mesh, rng, executions):
    n = oriel.size()
    host = whole(rng, (n, LARGE))
    wanted = np.broadcast_to(host.sum(0), (1, LARGE))
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    x = spread(mesh, host)
    run_until_ready(step, x, wanted)
    before = borrowed()
    for _ in range(executions):
        y = step(x)
    np.testing.assert_array_equal(own(y), wanted)
    after = borrowed()
    assert after.lent == before.lent + executions, (after.lent, before.lent)
    assert after.windows <= before.windows + 1, (after.windows, before.windows)
    say(f"after {executions} executions")
    row(f"{executions} executions, {after.windows} windows")


def check_uneven(mesh, rng):
    """Rank 0 works on new memory, which XLA has to ask the driver for, the others on old."""
    n, me = oriel.size(), oriel.rank()
    host = whole(rng, (n, LARGE))
    wanted = np.broadcast_to(host.sum(0), (1, LARGE))
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    before = borrowed()
    kept = []
    for turn in range(30):
        if me == 0:
            kept.append(jax.block_until_ready([jnp.zeros(LARGE) for _ in range(16)]))
        x = spread(mesh, host)
        kept.append(x)
        np.testing.assert_array_equal(own(step(x)), wanted, err_msg=f"run {turn}")
    after = borrowed()
    say("with new memory on rank 0 alone")
    if me != 0:
        assert after.fillers > before.fillers, "no other rank had anything new"
    row("new memory on one rank alone")


def check_beside_psum(mesh, rng, executions):
    """XLA's own collectives on the communicator that windows were registered on."""
    n = oriel.size()

    def both(v):
        # One after the other: side by side their kernels might not all find room.
        return lax.psum(oriel.all_reduce(v, "x"), "x")

    for count in (1000, LARGE):
        host = whole(rng, (n, count))
        wanted = np.broadcast_to(n * host.sum(0), (1, count))
        step = sharded(mesh, both, check_vma=False)
        kept = []
        for turn in range(executions):
            x = spread(mesh, host)
            got = step(x)
            if turn % 10 == 0:
                np.testing.assert_array_equal(own(got), wanted, err_msg=f"run {turn} of {count}")
                kept = [*kept[-3:], x, jnp.zeros((oriel.rank() + 1) * 1000)]
    row("beside psum")


def check_via_nccl(mesh, rng):
    """ncclAllReduce itself, on the communicator that is lent."""
    n = oriel.size()
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x", via="nccl"), check_vma=False)
    before = borrowed().lent
    runs = 0
    for dtype in (np.float32, np.int8, ml_dtypes.bfloat16):
        for count in (999, LARGE):
            host = whole(rng, (n, count), dtype)
            wanted = host.astype(np.float32).sum(0)
            for turn in range(10):
                np.testing.assert_array_equal(
                    own(step(spread(mesh, host)))[0].astype(np.float32),
                    wanted,
                    err_msg=f"run {turn} of {count} {np.dtype(dtype).name}",
                )
                runs += 1
    assert borrowed().lent >= before + 2 * runs, "initialize and execute had none"
    row("via nccl")


def via():
    mesh = start(timeout=20)
    rng = np.random.default_rng(3)
    check_via_nccl(mesh, rng)
    assert borrowed().windows == 0
    oriel.finalize()
    row("end")


def right():
    mesh = start(timeout=20)
    rng = np.random.default_rng(3)
    check_values(mesh, rng)
    say("after values")
    check_many(mesh, rng, 3000)
    check_uneven(mesh, rng)
    check_many(mesh, rng, 100)
    check_via_nccl(mesh, rng)
    check_beside_psum(mesh, rng, 200)
    assert borrowed().refused == 0
    oriel.check()
    oriel.finalize()
    row("end")


def without():
    mesh = start(timeout=20)
    host = whole(np.random.default_rng(3), (oriel.size(), LARGE))
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    for _ in range(20):
        np.testing.assert_array_equal(own(step(spread(mesh, host)))[0], host.sum(0))
    counts = borrowed()
    assert all(getattr(counts, name) == 0 for name in FIELDS)
    oriel.finalize()
    row("end")


def refused():
    mesh = start(timeout=20)
    n = oriel.size()
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    x = spread(mesh, np.ones((n, 10), np.float32))
    if os.environ.get("ORIEL_NCCL_COMM") != "xla":
        assert own(step(x))[0, 0] == n
        row("auto goes without")
    else:
        said = failure_of(lambda: jax.block_until_ready(step(x)))
        assert "ORIEL_NCCL_COMM is xla, but ranks share a GPU" in said, said
        row("xla says why not")
    oriel.finalize()
    row("end")


def killed():
    mesh = start(timeout=120.0)
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x") * 0.5, check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), LARGE), np.float32))
    y = x
    for _ in range(20):
        y = jax.block_until_ready(step(y))
    say("before the death")
    outlive_process_1(step, y, 20.0)
    finalize_within(20.0)
    os._exit(0)  # XLA waits for its communicator, whose other end is gone


def main(part):
    if part != "refused" and (why := nccl_refusal()):
        print(why, flush=True)
        sys.exit(77)
    {"right": right, "via": via, "without": without, "refused": refused, "killed": killed}[part]()


main(sys.argv[1] if len(sys.argv) > 1 else "right")
