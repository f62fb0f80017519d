"""Custom calls that nothing but a person's hand makes: hand_made.py CASE, on two devices."""

import ctypes
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import PartitionSpec as P
from oriel import _lib

ROWS = np.zeros((4, 3), np.float32)
ARRAY = np.zeros(2, np.int64)
CASES = {
    "operands": [ROWS, ROWS],
    "scalar": [ROWS[0, 0], ROWS, ARRAY, ARRAY, ARRAY, ARRAY],
    "rows": [ROWS, ROWS[:, :2], ARRAY, ARRAY, ARRAY, ARRAY],
    "no rows": [ROWS[:0], ROWS, np.full(2, 7), ARRAY, ARRAY, ARRAY],
    "output": [ROWS, np.zeros((8, 3), np.float32), ARRAY, ARRAY, ARRAY, ARRAY],
    "arrays": [ROWS, ROWS, ARRAY, np.zeros(4, np.int64), ARRAY, ARRAY],
}


def main():
    jax.config.update("jax_enable_x64", True)
    oriel.init()
    operands = CASES[sys.argv[1]]
    numbers = {
        "version": ctypes.c_int64.in_dll(_lib.load(), "oriel_ffi_version").value,
        "kind": _lib.OPERATIONS.index("ragged_all_to_all") + 1,
        "group_size": 2,
        "name": 1,
        "program": 1,
        "world": 2,
    }
    like = operands[0 if sys.argv[1] == "output" else 1]
    result = jax.ShapeDtypeStruct(like.shape, like.dtype)

    def call(*args):
        attributes = {name: np.int64(value) for name, value in numbers.items()}
        groups = np.arange(2, dtype=np.int64)
        f = jax.ffi.ffi_call("oriel_ragged_all_to_all", result)
        return f(*args, groups=groups, **attributes)[None]

    mesh = jax.make_mesh((2,), ("x",))
    f = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=P(), out_specs=P("x"), check_vma=False))
    try:
        jax.block_until_ready(f(*map(jnp.asarray, operands)))
        print("was accepted")
    except jax.errors.JaxRuntimeError as error:
        print(error)


main()
