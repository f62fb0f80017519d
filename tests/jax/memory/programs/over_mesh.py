"""What the programs about windows over a mesh of all devices have in common."""

import sys

import jax
import numpy as np
import oriel
from common import local_parts, make_mesh, run_cases, sharded, spread
from jax.sharding import PartitionSpec as P

SHAPE = (6, 4)


def mesh():
    return make_mesh((oriel.size(),), ("x",))


def value(rank, shape=SHAPE, dtype=np.float32):
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 10 * rank).astype(dtype)


def filled(shape=SHAPE, dtype=np.float32, over=None):
    """A window whose parts have the value of their rank."""
    window = oriel.window(shape, dtype, over or mesh(), "x")
    window.write(np.concatenate([value(rank, shape, dtype) for rank in range(oriel.size())]))
    return window


def values(shape=SHAPE, dtype=np.float32):
    return [value(rank, shape, dtype) for rank in range(oriel.size())]


def plain(shape=SHAPE, dtype=np.float32):
    return spread(mesh(), np.concatenate(values(shape, dtype)), P("x"))


def meet():
    """A barrier of all processes."""
    jax.block_until_ready(sharded(mesh(), lambda v: oriel.all_reduce(v, "x"))(plain()))


def equal(got, wanted):
    np.testing.assert_array_equal(np.asarray(got), wanted)


def each(array, wanted):
    """The parts of this process, each as `wanted` has it by rank."""
    first = oriel.rank()
    for i, part in enumerate(local_parts(array)):
        equal(part, wanted[first + i])


def ranks():
    return range(oriel.rank(), oriel.rank() + oriel.local_size())


def over(function, inputs, outputs=P("x")):
    return sharded(mesh(), function, inputs, outputs, check_vma=False)


def main(cases):
    """Runs those that are named."""
    jax.config.update("jax_enable_x64", True)
    oriel.init()
    run_cases(cases, sys.argv[1:])
    oriel.finalize()
