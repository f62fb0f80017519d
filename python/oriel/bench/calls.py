"""What is measured inside jax.jit: each operation as oriel and as lax have it, its
operands, and the right results."""

import ctypes
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import oriel
from oriel import _lib
from oriel.bench.operations import ragged_begin
from oriel.bench.plan import OURS

AXIS = "ranks"
_LAX = {"sum": lax.psum, "mean": lax.pmean, "min": lax.pmin, "max": lax.pmax}
_NUMPY = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _ring(n):
    return [(i, (i + 1) % n) for i in range(n)]


# ---- oriel's and lax's -----------------------------------------------------------

# operation: of a plan, the function of one rank's operand
_OURS = {
    "all_reduce": lambda p: lambda x: oriel.all_reduce(x, AXIS, p.op),
    "all_gather": lambda p: lambda x: oriel.all_gather(x, AXIS, tiled=True),
    "reduce_scatter": lambda p: lambda x: oriel.reduce_scatter(x, AXIS, tiled=True, op=p.op),
    "all_to_all": lambda p: lambda x: oriel.all_to_all(x, AXIS, 0, 0, tiled=True),
    "broadcast": lambda p: lambda x: oriel.broadcast(x, AXIS, root=0),
    "permute": lambda p: lambda x: oriel.permute(x, AXIS, _ring(p.ranks)),
    "barrier": lambda p: lambda x: oriel.barrier(x, AXIS),
    "ragged_all_to_all": lambda p: lambda x: _ragged(x, p),
}


def _from_root(x):
    """XLA's CPU backend has no pbroadcast; this is what one writes instead."""
    return lax.psum(jnp.where(lax.axis_index(AXIS) == 0, x, jnp.zeros_like(x)), AXIS)


def _padded(x, plan):
    """XLA's CPU backend has no ragged_all_to_all. What one writes instead: every part padded
    to the largest, an all_to_all of those, and a gather of what is no padding."""
    n, me, count = plan.ranks, lax.axis_index(AXIS), x.shape[0]
    # As in a program that learns them when it runs: not to be folded into constants.
    begins = lax.optimization_barrier(jnp.array(_begins(plan, count), jnp.int32))
    largest = max(end - begin for begin, end in itertools.pairwise(_begins(plan, count)))
    to = (jnp.arange(n) - me) % n
    parts = x.at[begins[to][:, None] + jnp.arange(largest)].get(mode="clip")
    parts = lax.all_to_all(parts, AXIS, 0, 0)
    at = jnp.arange(count)
    distance = jnp.searchsorted(begins, at, side="right", method="compare_all") - 1
    return parts[(me - distance) % n, at - begins[distance]]


_THEIRS = {
    "all_reduce": lambda p: lambda x: _LAX[p.op](x, AXIS),
    "all_gather": lambda p: lambda x: lax.all_gather(x, AXIS, tiled=True),
    "reduce_scatter": lambda p: lambda x: lax.psum_scatter(x, AXIS, tiled=True),
    "all_to_all": lambda p: lambda x: lax.all_to_all(x, AXIS, 0, 0, tiled=True),
    "broadcast": lambda p: _from_root,
    "permute": lambda p: lambda x: lax.ppermute(x, AXIS, _ring(p.ranks)),
    # lax has no barrier; a sum of one element is what one writes instead.
    "barrier": lambda p: lambda x: lax.psum(x, AXIS),
    "ragged_all_to_all": lambda p: lambda x: _padded(x, p),
}


def _begins(plan, count):
    """Where the parts for the ranks 0, 1, 2 ... further on begin, and where the last ends."""
    return [ragged_begin(plan.ranks, d, count) for d in range(plan.ranks + 1)]


def _ragged(x, plan):
    """The shares of c/loop.h: the part for the rank d further on begins, in operand
    and result, at ragged_begin(d)."""
    n, me = plan.ranks, lax.axis_index(AXIS)
    begins = jnp.array(_begins(plan, x.shape[0]), jnp.int32)
    to = (jnp.arange(n) - me) % n
    from_ = (me - jnp.arange(n)) % n
    return oriel.ragged_all_to_all(
        x,
        jnp.zeros_like(x),
        begins[to],
        begins[to + 1] - begins[to],
        begins[to],
        begins[from_ + 1] - begins[from_],
        axis_name=AXIS,
    )


def _empty(shape):
    handler = ctypes.cast(_lib.load().oriel_ffi_empty, ctypes.c_void_p)
    jax.ffi.register_ffi_target("oriel_empty", jax.ffi.pycapsule(handler), platform="cpu")
    return lambda x: jax.ffi.ffi_call("oriel_empty", jax.ShapeDtypeStruct(shape, x.dtype))(x)


def program(name, plan, mesh, nbytes):
    if name == "empty":
        body = _empty((_result_count(plan, nbytes),))
    else:
        body = (_OURS if name == OURS else _THEIRS)[plan.operation](plan)
    # Only the results of all_reduce are known to be the same on all devices.
    same = plan.operation == "all_reduce"
    mapped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=P(AXIS),
        out_specs=P() if same else P(AXIS),
        check_vma=same and name != "empty",
    )
    return jax.jit(mapped)


# ---- data ------------------------------------------------------------------------


def _count(plan, nbytes):
    """Elements of the larger of operand and result; a barrier passes one on."""
    return max(nbytes // jnp.dtype(plan.numpy_dtype).itemsize, 1)


def _operand_count(plan, nbytes):
    count = _count(plan, nbytes)
    return count // plan.ranks if plan.operation == "all_gather" else count


def _result_count(plan, nbytes):
    count = _count(plan, nbytes)
    return count // plan.ranks if plan.operation == "reduce_scatter" else count


def _operand(dtype, count, rank):
    """A rank's elements. Their sums are exact in every dtype, and a period of
    five shows a chunk that landed in the wrong place."""
    return (np.arange(count) % 5 + rank % 2 + 1).astype(dtype)


def place(plan, mesh, nbytes):
    dtype = jnp.dtype(plan.numpy_dtype)
    count = _operand_count(plan, nbytes)
    x = jax.make_array_from_callback(
        (count * mesh.size,),
        NamedSharding(mesh, P(AXIS)),
        lambda index: _operand(dtype, count, (index[0].start or 0) // count),
    )
    return jax.block_until_ready(x)


def _wide(plan):
    """A type in which any result of `plan` can be compared."""
    kind = np.dtype(plan.numpy_dtype).kind if plan.dtype != "bf16" else "f"
    return {"i": np.int64, "u": np.int64, "f": np.float64, "c": np.complex128}[kind]


def _reduced(plan, parts):
    total = _NUMPY[plan.op].reduce(parts)
    if plan.op == "mean":
        return total / plan.ranks
    return total.astype(jnp.dtype(plan.numpy_dtype)).astype(_wide(plan))


def _ragged_result(plan, parts, rank):
    begins = _begins(plan, len(parts[0]))
    return np.concatenate(
        [parts[(rank - d) % plan.ranks][begins[d] : begins[d + 1]] for d in range(plan.ranks)]
    )


def expected(plan, nbytes, rank):
    """What `rank` should have."""
    n, count = plan.ranks, _operand_count(plan, nbytes)
    parts = [_operand(_wide(plan), count, j) for j in range(n)]
    mine = slice(rank * (count // n), (rank + 1) * (count // n))
    return {
        "all_reduce": lambda: _reduced(plan, parts),
        "all_gather": lambda: np.concatenate(parts),
        "reduce_scatter": lambda: _reduced(plan, [part[mine] for part in parts]),
        "all_to_all": lambda: np.concatenate([part[mine] for part in parts]),
        "broadcast": lambda: parts[0],
        "permute": lambda: parts[(rank - 1) % n],
        "barrier": lambda: parts[rank],
        "ragged_all_to_all": lambda: _ragged_result(plan, parts, rank),
    }[plan.operation]()
