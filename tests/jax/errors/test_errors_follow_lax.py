"""Wrong arguments where lax has the operation: it raises and so do we, with its type
of exception or one derived from it. Where ours differs, the reason stands beside it."""

import jax
import jax.numpy as jnp
import oriel
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from support import make_mesh, over

PAIRS = {
    "all_reduce": (oriel.all_reduce, lax.psum),
    "all_gather": (oriel.all_gather, lax.all_gather),
    "reduce_scatter": (oriel.reduce_scatter, lax.psum_scatter),
    "all_to_all": (oriel.all_to_all, lax.all_to_all),
    "broadcast": (oriel.broadcast, lax.pbroadcast),
    "permute": (oriel.permute, lax.ppermute),
}
# The tables are those of 0.10. Later ones raise a ValueError where that had an IndexError,
# and take what it refused: an axis twice in a sum, dimensions counted from the end.
LATER = jax.__version_info__ >= (0, 11)
MORE = {"all_to_all": (0, 0), "broadcast": (0,), "permute": ([(0, 1)],)}  # after the axes


def raised(f, call):
    """The type of the exception of call(f, x) for x of shape (8, 8), up to the module:
    lax.ppermute looks at its pairs as late as that. check_vma is off, with it some of
    lax's checks of types end in a bare assert before those of the arguments."""
    step = over(make_mesh(), lambda v: call(f, v), P("x"), P("x"), check_vma=False)
    try:
        step.trace(jnp.ones((64, 8))).lower()
    except Exception as error:  # noqa: BLE001
        return type(error)
    return None


def over_axes(axes):
    return {op: lambda f, v, op=op: f(v, axes, *MORE.get(op, ())) for op in PAIRS}


def of_value(x):
    return {op: lambda f, v, op=op: f(x, "x", *MORE.get(op, ())) for op in PAIRS}


def gather(**more):
    return {"all_gather": lambda f, v: f(v, "x", **more)}


def scatter(part=slice(None), **more):
    return {"reduce_scatter": lambda f, v: f(v[part], "x", **more)}


def exchange(split, concat, part=slice(None), **more):
    return {"all_to_all": lambda f, v: f(v[part], "x", split, concat, **more)}


def permute(perm):
    return {"permute": lambda f, v: f(v, "x", perm)}


def but(calls, *operations):
    return {op: call for op, call in calls.items() if op not in operations}


def only(calls, operation):
    return {operation: calls[operation]}


def listed(table):
    return [
        pytest.param(op, call, *more, id=f"{op}-{what}")
        for what, (calls, *more) in table.items()
        for op, call in calls.items()
    ]


ALIKE = {
    "unbound": (over_axes("y"),),
    "one-unbound": (over_axes(("x", "y")),),
    "number": (only(over_axes(0), "permute"),),
    "no-dimension": (only(over_axes(2), "all_reduce"),),
    "no-name": (but(over_axes({}), "broadcast"),),
    "repeated": (but(over_axes(("x", "x")), "broadcast"),),
    "string": (but(of_value("abc"), "all_to_all"),),
    "object": (but(of_value(object()), "all_to_all"),),
    "axis-3": (gather(axis=3),),
    "axis--4": (gather(axis=-4),),
    "axis-2-tiled": (gather(axis=2, tiled=True),),
    "axis-text": (gather(axis="0"),),
    "axis-None": (gather(axis=None),),
    "dimension-half": (scatter(scatter_dimension=0.5),),
    "dimension-text-tiled": (scatter(scatter_dimension="0", tiled=True),),
    "length-3": (scatter(slice(3)),),
    "length-3-tiled": (scatter(slice(3), tiled=True),),
    "split-3": (exchange(0, 0, slice(3)),),
    "split-3-tiled": (exchange(0, 0, slice(3), tiled=True),),
    "split-None": (exchange(None, 0),),
    "concat-2": (exchange(0, 2),),
    "concat-half": (exchange(0, 0.5),),
    "concat-text-tiled": (exchange(0, "0", tiled=True),),
    "source-twice": (permute([(0, 1), (0, 2)]),),
    "destination-twice": (permute([(0, 1), (2, 1)]),),
    "source-twice-from-the-end": (permute([(0, 1), (-8, 2)]),),
    "no-pairs": (permute([0, 1]),),
    "no-list": (permute(3),),
    "half-a-device": (permute([(0.5, 1)]),),
}

# what: calls, our exception (None: it works), why
INDEX = "lax lets a tuple's own IndexError out; ours names the argument and its value"
DIFFERENT = {
    "dimension-2": (scatter(scatter_dimension=2), ValueError, INDEX),
    "dimension--3-tiled": (scatter(scatter_dimension=-3, tiled=True), ValueError, INDEX),
    "split-2": (exchange(2, 0), ValueError, INDEX),
    "concat-2-tiled": (exchange(0, 2, tiled=True), ValueError, INDEX),
    "no-such-device": (permute([(0, 8)]), ValueError, INDEX),
    "triple": (
        permute([(0, 1, 2)]),
        TypeError,
        "what is no pair of numbers has the wrong type, whatever it holds instead",
    ),
    "number": (
        but(over_axes(0), "all_reduce", "broadcast", "permute"),
        NameError,
        "numbers are dimensions in all_reduce alone; elsewhere they are names, unbound",
    ),
    "string": (
        only(of_value("abc"), "all_to_all"),
        TypeError,
        "lax asks for its shape, an AttributeError; all of ours say that x is no array",
    ),
    "list": (
        but(over_axes(["x"]), "all_reduce", "broadcast"),
        None,
        "lax takes a list of names in psum alone; all of ours do",
    ),
    "None": (
        but(over_axes(None), "all_reduce", "broadcast"),
        ValueError,
        "None is the world, which belongs outside of shard_map",
    ),
    "dimension--1": (
        scatter(scatter_dimension=-1),
        None,
        "lax counts from the end in all_gather alone; all of ours do",
    ),
}


@pytest.mark.parametrize("operation, call", listed(ALIKE))
def test_alike(operation, call):
    ours, theirs = (raised(f, call) for f in PAIRS[operation])
    assert theirs is not None or LATER, "lax takes it"
    assert ours is not None and issubclass(ours, theirs or ours), f"ours {ours}, lax's {theirs}"


@pytest.mark.parametrize("operation, call, ours, why", listed(DIFFERENT))
def test_different(operation, call, ours, why):
    """Not for nothing: an entry that is needless fails."""
    got, theirs = (raised(f, call) for f in PAIRS[operation])
    assert got is ours
    differs = theirs is not None and not (got and issubclass(got, theirs))
    assert differs or LATER, f"no more: {why}"


def test_right_arguments():
    """Nothing that is tested here fails by itself."""
    for operation, call in over_axes("x").items():
        ours, theirs = (raised(f, call) for f in PAIRS[operation])
        assert ours is None, operation
        # XLA has this one for GPUs alone.
        assert theirs is (NotImplementedError if operation == "broadcast" else None), operation
