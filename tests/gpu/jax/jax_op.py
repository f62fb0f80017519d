"""Host functions of one's own on GPUs, built here by nvcc: what they get, graphs, the
example, and what can go wrong. jax_op.py fault: a kernel that faults, which costs its
process the context; not under MPS, where it costs all of them theirs."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import failure_of, own, poison, row, sharded, spread, start, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = [
    ROOT / "tests" / "kernels" / "gpu_op.cu",
    ROOT / "examples" / "10_host_function" / "all_reduce.cu",
]
# The processes have one parent, `oriel run`.
FOLDER = pathlib.Path(tempfile.gettempdir(), f"oriel-op-{os.getppid()}")
TIMEOUT = 3.0


def build():
    """By process 0, for all: libraries are compared by content."""
    libraries = [FOLDER / f"lib{source.stem}.so" for source in SOURCES]
    if os.environ.get("ORIEL_PROCESS_ID", "0") == "0":
        FOLDER.mkdir(exist_ok=True)
        parts = [library.with_suffix(".part") for library in libraries]
        compilers = [
            subprocess.Popen(
                [
                    "nvcc",
                    "-shared",
                    "-Xcompiler",
                    "-fPIC",
                    "-arch=native",
                    f"-I{ROOT / 'include'}",
                    source,
                    "-o",
                    part,
                ]
            )
            for source, part in zip(SOURCES, parts)
        ]
        assert [compiler.wait() for compiler in compilers] == [0, 0]
        for part, library in zip(parts, libraries):
            part.rename(library)
    wait_for(lambda: all(library.exists() for library in libraries), 60)
    return libraries


def rows_of(count, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(oriel.size(), count)).astype(np.float32)


# ---- what works -----------------------------------------------------------------------


def check_everything(mesh, mine):
    add_up = oriel.op(mine, "add_up")
    for shape in ((2, 3), (100, 1001), (1024, 4096)):

        def step(v):
            return add_up(v[0], axis_name="x", factor=0.5, title="wörld", count=-7)[None]

        program = sharded(mesh, step, check_vma=False)
        for run in range(5):
            poison(8, 2)
            x = rows_of(shape[0] * shape[1], run).reshape(-1, *shape)
            wanted = x[0] * 0
            for part in x:
                wanted = wanted + part
            np.testing.assert_array_equal(own(program(spread(mesh, x)))[0], 0.5 * wanted)
    row("everything it gets")


def check_barrier(mesh, mine):
    two_on = oriel.op(mine, "two_on")
    n = oriel.size()

    def step(v):
        out = jax.ShapeDtypeStruct(v[0].shape, v.dtype)
        return two_on(v[0], out=(out, out), axis_name="x")[1][None]

    program = sharded(mesh, step, check_vma=False)
    for run in range(30):
        poison(8, 2)
        x = rows_of(70000, run)
        np.testing.assert_array_equal(own(program(spread(mesh, x)))[0], x[(oriel.rank() - 2) % n])
    row("a barrier on the stream")


def check_capture(mesh, mine):
    """Captured it is called less often than executed, and right; otherwise each time."""
    called = ctypes.CDLL(str(mine)).times_called
    for capture in (False, True):
        add_up = oriel.op(mine, "add_up", capture=capture)

        def step(v):
            for _ in range(6):
                v = add_up(v[0], axis_name="x", factor=0.5, title="wörld", count=-7)[None] + 1
            return v

        program = sharded(mesh, step, check_vma=False)
        before = called()
        for run in range(20):
            x = rows_of(1000, run).reshape(-1, 10, 100)
            wanted = x.astype(np.float64)
            for _ in range(6):
                wanted = np.broadcast_to(0.5 * wanted.sum(0) + 1, x.shape)
            got = own(program(spread(mesh, x)))[0]
            np.testing.assert_allclose(got, wanted[0], rtol=1e-4, atol=1e-4)
        times = called() - before
        print(f"capture={capture}: 120 calls in 20 executions, called {times} times", flush=True)
        assert times == 120 or capture, times
        if capture and "graph_min_graph_size=1" in os.environ.get("XLA_FLAGS", ""):
            assert times < 120, times
    row("graphs")


def check_example(mesh, example):
    all_reduce = oriel.op(example, "all_reduce", capture=True)
    for count in (1, 1001, 1 << 20):
        program = sharded(
            mesh,
            lambda v: (all_reduce(v[0], axis_name="x")[None], oriel.all_reduce(v, "x")),
            check_vma=False,
        )
        for run in range(10):
            poison(8, 2)
            mine, total = program(spread(mesh, rows_of(count, run)))
            np.testing.assert_array_equal(own(mine), own(total))
    row("the example, with the bits of oriel.all_reduce")


def check_nothing(mesh, mine):
    """Nothing enqueued is nothing written, and no failure; so is a launch that failed and
    was not looked at. What comes next works."""
    nothing, bad_launch = oriel.op(mine, "nothing"), oriel.op(mine, "bad_launch")
    x = spread(mesh, rows_of(1000, 0))
    jax.block_until_ready(sharded(mesh, lambda v: nothing(v, axis_name="x"), check_vma=False)(x))
    jax.block_until_ready(
        sharded(mesh, lambda v: bad_launch(v, axis_name="x", check=0), check_vma=False)(x)
    )
    oriel.check()
    row("nothing enqueued")


# ---- what does not ---------------------------------------------------------------------------


def call_once(mesh, op, **attributes):
    """The result must be NaN, if there is one: a rank that comes after the failure finds
    it, and has none."""
    step = sharded(mesh, lambda v: op(v, axis_name="x", **attributes), check_vma=False)
    assert np.isnan(own(step(spread(mesh, rows_of(1000, 0))))).all()
    oriel.check()


def fails(mine, name, *words, **attributes):
    """All ranks get an error with these words, and JAX goes on."""
    mesh = start(timeout=TIMEOUT)
    said = failure_of(lambda: call_once(mesh, oriel.op(mine, name), **attributes))
    print(f"{name}: {said}", flush=True)
    assert all(word in said for word in words), said
    assert float(jnp.arange(10.0).sum()) == 45.0
    oriel.finalize()
    row(f"failure: {name}")


def check_failures(mine):
    fails(mine, "refuse", "op refuse: rank 1 has no wish to")
    fails(mine, "no_status", "op no_status returned 99, which is no status")
    fails(mine, "bad_launch", "op bad_launch: launching copy: cudaErrorInvalid", check=1)
    fails(mine, "uneven", "the end of op uneven", "barrier 2 of op uneven")
    fails(mine, "waits", "op waits: rank 1 does not wait")


def check_fault(mine):
    """Rank 1 hears what CUDA says; the others that it did not come. Process 0 has JAX's
    coordinator and so ends last."""
    mesh = start(timeout=TIMEOUT)
    said = failure_of(lambda: call_once(mesh, oriel.op(mine, "fault")))
    print(f"rank {oriel.rank()}: {said}", flush=True)
    heard = FOLDER / "heard"
    if oriel.rank() == 1:
        assert "ILLEGAL_ADDRESS" in said.upper().replace(" ", "_"), said
        row("failure: fault, here")
        heard.touch()
        os._exit(0)  # nothing of CUDA can be taken down any more
    assert "op fault" in said and "rank 1" in said, said
    wait_for(heard.exists, 20)
    row("failure: fault, there")
    os._exit(0)


def main(fault):
    mine, example = build()
    if fault:
        check_fault(mine)
        return
    mesh = start(timeout=20)
    check_everything(mesh, mine)
    check_barrier(mesh, mine)
    check_capture(mesh, mine)
    check_example(mesh, example)
    check_nothing(mesh, mine)
    oriel.finalize()
    check_failures(mine)
    row("end")


main("fault" in sys.argv[1:])
