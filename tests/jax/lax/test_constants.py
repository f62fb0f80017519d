"""Constants as operands: Python's numbers and NumPy's scalars and arrays, with lax's results, dtypes
and weak types."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from support import assert_same, make_mesh, over

CONSTANTS = {
    "float": 1.5,
    "int": 3,
    "bool": True,
    "complex": 2j,
    "float32": np.float32(2),
    "float64": np.float64(2),
    "int8": np.int8(3),
    "bool_": np.bool_(True),
    "array": np.arange(8, dtype=np.int16),
    "row": np.arange(8.0)[None],
}
PAIRS = {
    "sum": (lambda x: oriel.all_reduce(x, "x"), lambda x: lax.psum(x, "x")),
    "mean": (lambda x: oriel.all_reduce(x, "x", "mean"), lambda x: lax.pmean(x, "x")),
    "max": (lambda x: oriel.all_reduce(x, "x", "max"), lambda x: lax.pmax(x, "x")),
    "min": (lambda x: oriel.all_reduce(x, "x", "min"), lambda x: lax.pmin(x, "x")),
    "all_gather": (lambda x: oriel.all_gather(x, "x"), lambda x: lax.all_gather(x, "x")),
    "invarying": (
        lambda x: oriel.all_gather(x, "x", to="invarying"),
        lambda x: lax.all_gather(x, "x", to="invarying"),
    ),
    "permute": (
        lambda x: oriel.permute(x, "x", [(0, 1)]),
        lambda x: lax.ppermute(x, "x", [(0, 1)]),
    ),
    "reduce_scatter": (
        lambda x: oriel.reduce_scatter(x, "x"),
        lambda x: lax.psum_scatter(x, "x"),
    ),
    "all_to_all": (
        lambda x: oriel.all_to_all(x, "x", 0, 0),
        lambda x: lax.all_to_all(x, "x", 0, 0),
    ),
    "list": (lambda x: oriel.all_gather([x, x], "x"), lambda x: lax.all_gather([x, x], "x")),
}


def constants(reduction=None):
    """XLA has no maximum of complex numbers."""
    weak = jnp.asarray(1.5)
    more = {"jax": jnp.arange(8.0), "weak": weak, "weak row": lax.broadcast(weak, (8,))}
    drop = "complex" if reduction in ("max", "min") else None
    return {name: x for name, x in (CONSTANTS | more).items() if name != drop}


def observed(function, given, check_vma):
    """{constant: the type of the result, and itself}; None: refused. One program for all."""
    types = {}

    def inner(v):
        results = {}
        for name, x in given.items():
            try:
                y = function(x)
            except (ValueError, IndexError, AttributeError):  # lax lets others' errors out
                types[name] = None
                continue
            avals = list(map(jax.typeof, jax.tree.leaves(y)))
            types[name] = [(aval.str_short(True), aval.weak_type) for aval in avals]
            results[name] = jax.tree.map(lambda w: jnp.asarray(w)[None], y)
        return results

    step = over(make_mesh(), inner, P("x"), P("x"), check_vma)
    return types, step(jnp.zeros(8))


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_as_lax(name, check_vma):
    ours, theirs = PAIRS[name]
    given = constants(name)
    types, results = observed(ours, given, check_vma)
    wanted, expected = observed(theirs, given, check_vma)
    assert types == wanted
    assert_same(results, expected)


def test_broadcast_of_constants():
    """XLA's CPUs have no lax.pbroadcast."""
    types, results = observed(lambda x: oriel.broadcast(x, "x", 1), constants(), True)
    for name, x in constants().items():
        assert_same(results[name], jnp.broadcast_to(jnp.asarray(x), (8, *jnp.shape(x))))
        assert types[name][0][1] == jax.typeof(x).weak_type
