"""all_reduce by every via that is to be had, in jit: jax_vias.py [RUNS]. The fabric decides
which those are (ORIEL_FABRIC); XLA may capture all but NCCL's own call in graphs."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import own, poison, row, sharded, spread, start

CHAIN = 6
OPS = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}
DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "complex64")


def available():
    """Those that work; a sentence for each of the others."""
    vias = oriel.all_reduce_vias()
    for via, missing in vias.items():
        assert missing is None or f"all_reduce via {via}: " in missing, missing
        print(f"{via}: {missing or 'to be had'}", flush=True)
    return [via for via, missing in vias.items() if missing is None]


def check_values(mesh, via, rng):
    """Whole numbers so small that no order of a reduction shows: NCCL has its own. Of complex
    numbers it has sums alone."""
    n = oriel.size()
    for dtype in DTYPES:
        ops = OPS if dtype != "complex64" else {"sum": np.sum}

        def reduce_all(v):
            return [oriel.all_reduce(v, "x", op=op, via=via) for op in ops]

        step = sharded(mesh, reduce_all, check_vma=False)
        small, large = rng.integers(1, 10000), rng.integers(10000, 1 << 21)
        for count in (1, small, large) if dtype == "float32" else (small, large):
            x = rng.integers(0, 4, (n, count)).astype(jnp.dtype(dtype))
            exact = x.astype(np.complex128 if dtype == "complex64" else np.float64)
            for (op, reduction), result in zip(ops.items(), step(spread(mesh, x))):
                wanted = reduction(exact, axis=0)
                got = own(result)[0]
                message = f"{via} {op} of {count} {dtype}"
                np.testing.assert_array_equal(got.astype(wanted.dtype), wanted, message)


def check_chain(mesh, via, runs, rng):
    """The host far ahead of the devices, results on the way to the next call."""
    n = oriel.size()

    def chain(v):
        for _ in range(CHAIN):
            v = oriel.all_reduce(v, "x", via=via) * (1 / n)
        return v

    step = sharded(mesh, chain, check_vma=False)
    for count in (500, 300000):
        for run in range(runs):
            if run % 10 == 0:
                poison(8, 2)
            x = rng.integers(-500, 500, (n, count)).astype(np.float32) * n
            got = own(step(spread(mesh, x)))[0]
            np.testing.assert_allclose(got, x.mean(0), rtol=1e-6, err_msg=f"{via}, run {run}")


def check_gradient(mesh, via):
    n = oriel.size()
    x = np.arange(4.0 * n, dtype=np.float32).reshape(n, 4)
    step = sharded(
        mesh,
        jax.grad(lambda v: (oriel.all_reduce(v, "x", via=via) ** 2).sum()),
        check_vma=False,
    )
    # Each device's copy of the sum gets a cotangent, and they add up, as with lax.psum.
    np.testing.assert_allclose(own(step(spread(mesh, x)))[0], 2 * n * x.sum(0), rtol=1e-6)


def check_coloured(mesh, via, rng):
    """Operand and result in XLA's collective memory space."""
    n = oriel.size()

    def coloured(v):
        return oriel.all_reduce(v * 2, "x", via=via, memory_space="collective") + 1

    step = sharded(mesh, coloured, check_vma=False)
    for count in (100, 200000):
        x = rng.integers(-500, 500, (n, count)).astype(np.float32)
        text = step.lower(spread(mesh, x)).compile().as_text()
        lines = [line for line in text.splitlines() if "S(1)" in line.split(" custom-call(")[0]]
        assert any('custom_call_target="oriel_all_reduce' in line for line in lines), text
        assert len(lines) > 1, text  # what makes the operand, too
        for _ in range(3):
            got = own(step(spread(mesh, x)))[0]
            np.testing.assert_array_equal(got, 2 * x.sum(0) + 1, f"{via} {count}")


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    mesh = start()
    rng = np.random.default_rng(5)
    for via in available():
        check_values(mesh, via, rng)
        check_gradient(mesh, via)
        check_chain(mesh, via, runs, rng)
        row(f"via {via}")
        check_coloured(mesh, via, rng)
        row(f"coloured via {via}")
    oriel.finalize()
    row("finalize")


main()
