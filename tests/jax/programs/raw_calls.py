"""Custom calls as src/ffi/ffi.h describes them, made without the functions of oriel, whose shapes
differ between ranks: raw_calls.py, one device for each process."""

import ctypes
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report
from oriel import _lib

names = itertools.count(1)  # the same on all ranks, which make the same calls


def raw(kind, operand, shape, name=None, group=None, **numbers):
    """A jitted call; its operand is an array, its result has the shape."""
    group = list(range(oriel.size())) if group is None else group
    numbers = {
        "version": ctypes.c_int64.in_dll(_lib.load(), "oriel_ffi_version").value,
        "kind": _lib.OPERATIONS.index(kind) + 1,
        "group_size": len(group),
        "name": next(names) if name is None else name,
        "program": 1,
        "world": oriel.size(),
    } | numbers
    result = jax.ShapeDtypeStruct(shape, operand.dtype)

    def call(x):
        f = jax.ffi.ffi_call(f"oriel_{kind}", result, has_side_effect=True)
        attributes = {key: np.int64(value) for key, value in numbers.items()}
        return f(x, groups=np.array(group, np.int64), **attributes)

    return jax.jit(call)(operand)


def values(rank, shape):
    return np.random.default_rng(rank).normal(size=shape).astype(np.float32)


def check_kinds(count):
    me, n = oriel.rank(), oriel.size()
    all_values = [values(r, count) for r in range(n)]
    mine = jnp.asarray(all_values[me])
    total = np.sum(all_values, 0, np.float32)
    for root in range(n):
        got = raw("gather", mine, (n, count) if me == root else (count,), root=root)
        np.testing.assert_array_equal(got, all_values if me == root else mine)
        got = raw("gather", mine, (n, count), root=root)
        np.testing.assert_array_equal(got, all_values if me == root else np.zeros((n, count)))

        given = jnp.asarray(all_values) if me == root else jnp.zeros(count, jnp.float32)
        np.testing.assert_array_equal(raw("scatter", given, (count,), root=root), mine)
        given = jnp.asarray(all_values) if me == root else jnp.zeros((n, count), jnp.float32)
        np.testing.assert_array_equal(raw("scatter", given, (count,), root=root), mine)

        got = raw("reduce", mine, (count,), root=root, reduce=0)
        np.testing.assert_array_equal(got, total if me == root else mine)
    got = raw("scan", mine, (count,), reduce=0)
    np.testing.assert_array_equal(got, np.cumsum(all_values, 0, np.float32)[me])


def check_refusals():
    """With sizes that fit nothing."""
    me, n = oriel.rank(), oriel.size()
    for kind, operand, result in (("gather", 4, 4 * n + 1), ("reduce", 4, 5), ("scatter", 5, 4)):
        root = (me + 1) % n  # each is none
        try:
            raw(kind, jnp.ones(operand), (result,), root=root).block_until_ready()
            raise AssertionError(f"{kind} was accepted")
        except jax.errors.JaxRuntimeError as error:
            assert f"an operand of {operand} and a result of {result}" in str(error), error


def main():
    oriel.init()
    for count in (0, 1, 100, 5000, 300_000):
        check_kinds(count)
    check_refusals()
    report(ok=True)


main()
