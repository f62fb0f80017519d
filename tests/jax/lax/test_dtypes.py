"""What only moves data takes PRNG keys and all of JAX's narrow dtypes, of which nothing but the
bits counts: compared with lax on these bits."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from support import examples, make_mesh, over

INTEGERS = [name for name in ("int2", "uint2", "int4", "uint4") if hasattr(jnp, name)]
FLOATS = [
    f"float{name}"
    for name in "4_e2m1fn 8_e3m4 8_e4m3 8_e4m3b11fnuz 8_e4m3fnuz 8_e5m2fnuz 8_e8m0fnu".split()
    if hasattr(jnp, f"float{name}")
]
KEYS = ["threefry2x32", "rbg"]
ROOT, PERM = 5, [(0, 3), (3, 0), (7, 1)]


def ragged(library, v):
    """Row i of every device goes to device i; by lax with what it has on CPUs."""
    if library is lax:
        return lax.all_to_all(v, "x", 0, 0, tiled=True)
    one, place = jnp.ones(8, "int32"), jnp.arange(8, dtype="int32")
    there = jnp.full(8, lax.axis_index("x"), "int32")
    return oriel.ragged_all_to_all(v, v, place, one, there, one, axis_name="x")


def from_root(library, v):
    if library is oriel:
        return oriel.broadcast(v, "x", ROOT)
    return lax.all_gather(v, "x")[ROOT]


def at_root(library, v):
    if library is oriel:
        return oriel.gather(v, "x", ROOT)
    everything = lax.all_gather(v, "x")
    return jnp.where(lax.axis_index("x") == ROOT, everything, jnp.zeros_like(everything))


def of_root(library, v):
    if library is oriel:
        return oriel.scatter(v, "x", ROOT, axis=0)
    return lax.all_gather(v, "x")[ROOT, lax.axis_index("x")]


MOVES = {  # of an array of 8 rows
    "all_gather": lambda o, v: o.all_gather(v, "x", axis=-1),
    "tiled": lambda o, v: o.all_gather(v, "x", axis=1, tiled=True),
    "all_to_all": lambda o, v: o.all_to_all(v, "x", 0, 1),
    "permute": lambda o, v: (o.permute if o is oriel else o.ppermute)(v, "x", PERM),
    "barrier": lambda o, v: o.barrier(v, "x") if o is oriel else v,
    "ragged": ragged,
    "broadcast": from_root,
    "gather": at_root,
    "scatter": of_root,
}


def all_moves(library, v):
    """One program for all: what takes time here is compiling."""
    return jax.tree.map(lambda y: y[None], [move(library, v[0]) for move in MOVES.values()])


def bits_of(array, kind):
    """As lax moves them here."""
    if kind in KEYS:
        return jax.random.key_data(array)
    if kind in INTEGERS:
        return np.asarray(array).astype(np.int8)
    return np.asarray(array).view(np.uint8)


def draw(kind, seed):
    """(8 devices, 8 rows, 3), as it is and as bits."""
    if kind in KEYS:
        keys = jax.random.split(jax.random.key(seed, impl=kind), (8, 8, 3))
        return keys, bits_of(keys, kind)
    raw = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    dtype = np.dtype(getattr(ml_dtypes, kind))
    if kind in INTEGERS:
        array = raw.astype(dtype)
    elif ml_dtypes.finfo(dtype).bits == 4:
        array = (raw & 15).view(dtype)
    else:
        array = raw.view(dtype)
    return array, bits_of(array, kind)


@functools.cache
def by_lax(keys):
    """Of keys it moves the numbers, which lie along one dimension more."""
    function = functools.partial(all_moves, lax)
    return over(make_mesh(), jax.vmap(function, -1, -1) if keys else function, P("x"), P("x"))


@pytest.mark.parametrize("kind", KEYS + INTEGERS + FLOATS)
def test_bits(kind):
    array, bits = draw(kind, 1)
    ours = over(make_mesh(), functools.partial(all_moves, oriel), P("x"), P("x"))(array)
    theirs = by_lax(kind in KEYS)(bits)
    for name, got, wanted in zip(MOVES, ours, theirs, strict=True):
        assert got.dtype == array.dtype, name
        np.testing.assert_array_equal(bits_of(got, kind), wanted, err_msg=name)


@examples(3, soak=60)
@given(st.sampled_from(KEYS + INTEGERS + FLOATS), st.sampled_from(list(MOVES)), st.integers(0, 99))
def test_vmap(kind, name, seed):
    """As many calls as entries give the same."""
    array, _ = draw(kind, seed)

    def move(column):
        return MOVES[name](oriel, column[:, None])

    def function(v):
        each = jax.vmap(move, in_axes=-1, out_axes=0)(v[0])
        return each[None], jnp.stack([move(v[0, ..., i]) for i in range(3)])[None]

    each, stacked = over(make_mesh(), function, P("x"), P("x"))(array)
    np.testing.assert_array_equal(bits_of(each, kind), bits_of(stacked, kind))


LINEAR = {  # with a transpose that sums, or one that moves
    "all_gather": MOVES["tiled"],
    "all_to_all": lambda o, v: o.all_to_all(v, "x", 0, 1, tiled=True).reshape(8, 3),
    "permute": MOVES["permute"],
    "broadcast": from_root,
    "ragged": ragged,
    "gather": at_root,
    "scatter": of_root,
}


def pulled(library, v):
    results = []
    for function in LINEAR.values():
        y, back = jax.vjp(functools.partial(function, library), v[0])
        weights = jnp.arange(y.size, dtype=jnp.float32).reshape(y.shape) % 2
        results.append(back(weights.astype(y.dtype))[0])
    return jnp.stack(results)[None]


@functools.cache
def derivatives(library):
    return over(make_mesh(), functools.partial(pulled, library), P("x"), P("x"), False)


@pytest.mark.parametrize("kind", [name for name in FLOATS if name != "float8_e8m0fnu"])
def test_derivatives(kind):
    """Those of lax in f32, rounded once. e8m0fnu has no zero, and hence no derivatives."""
    dtype = np.dtype(getattr(ml_dtypes, kind))
    rng = np.random.default_rng(4)
    x = rng.choice([-1.0, 0.0, 0.5, 1.5], (8, 8, 3)).astype(np.float32)
    ours = np.asarray(derivatives(oriel)(x.astype(dtype)))
    np.testing.assert_array_equal(ours, np.asarray(derivatives(lax)(x)).astype(dtype))


@pytest.mark.parametrize("reduce", ["all_reduce", "reduce_scatter", "reduce", "scan"])
def test_reductions_say_what_takes_them(reduce):
    for array in (jax.random.split(jax.random.key(0), 8), np.zeros(8, ml_dtypes.int4)):
        step = over(make_mesh(), lambda v: getattr(oriel, reduce)(v, "x"), P("x"), P("x"))
        with pytest.raises(TypeError, match=f"{reduce} does not take dtype .*; all_gather, .* it;"):
            step(array)


def test_ranks_whose_dtypes_differ_do_not_meet():
    """They are bytes on their way: the calls carry what they stand for."""
    texts = []
    for kind in ("float8_e3m4", "float8_e4m3"):
        x = jax.ShapeDtypeStruct((8, 3), getattr(jnp, kind))
        step = over(make_mesh(), lambda v: oriel.permute(v, "x", PERM), P("x"), P("x"))
        (line,) = (t for t in step.lower(x).as_text().splitlines() if "@oriel_permute" in t)
        texts.append(line.partition("program = ")[2].partition(",")[0])
    assert texts[0] and texts[0] != texts[1]
