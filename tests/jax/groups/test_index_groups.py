"""axis_index_groups: the devices along axes in groups, as lax has them."""

from pathlib import Path

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from support import assert_same, examples, make_mesh, over, picker, run_processes

UNEVEN = [[5, 0, 3], [1], [7, 2, 4, 6]]
EVEN = [[5, 0], [3, 1], [7, 2], [4, 6]]
REDUCE = {"sum": lax.psum, "mean": lax.pmean, "min": lax.pmin, "max": lax.pmax}


def draw_groups(pick, size, even):
    """A partition of the indices in any order."""
    left = list(np.random.default_rng(pick(range(100))).permutation(size))
    length = pick([n for n in range(1, size + 1) if size % n == 0])
    groups = []
    while left:
        n = length if even else pick(range(1, len(left) + 1))
        groups.append([int(i) for i in left[:n]])
        left = left[n:]
    return groups


def by_oriel(x, axes, groups, op="sum"):
    """All operations; `x` has 24 rows, which any group divides."""
    m, more = len(groups[0]), {"axis_index_groups": groups}
    blocks = x[: m * (24 // m)].reshape(m, -1, *x.shape[1:])
    return [
        oriel.all_reduce(x, axes, op, **more),
        oriel.all_gather(x, axes, 1, **more),
        oriel.all_gather(x, axes, tiled=True, **more),
        oriel.reduce_scatter(blocks, axes, **more),
        oriel.reduce_scatter(blocks, axes, 0, True, **more),
        oriel.all_to_all(blocks, axes, 0, 0, **more),
        oriel.all_to_all(blocks, axes, 0, 1, tiled=True, **more),
    ]


def by_lax(x, axes, groups, op="sum"):
    m, more = len(groups[0]), {"axis_index_groups": groups}
    blocks = x[: m * (24 // m)].reshape(m, -1, *x.shape[1:])
    return [
        REDUCE[op](x, axes, **more),
        lax.all_gather(x, axes, axis=1, **more),
        lax.all_gather(x, axes, tiled=True, **more),
        lax.psum_scatter(blocks, axes, **more),
        lax.psum_scatter(blocks, axes, tiled=True, **more),
        lax.all_to_all(blocks, axes, 0, 0, **more),
        lax.all_to_all(blocks, axes, 0, 1, tiled=True, **more),
    ]


def values(rng, *shape):
    """Whole numbers, whose sums are exact."""
    return jnp.asarray(rng.integers(-9, 9, shape).astype("float64"))


@given(st.data())
@examples(4, soak=200)
def test_values_and_derivatives(data):
    """Of all operations, on any mesh, along any axes."""
    pick = picker(data)
    shape, names, axes, order = cases.draw_mesh(pick)
    mesh, spec = make_mesh(shape, tuple(names), order), P(tuple(names))
    groups = draw_groups(pick, cases.size_of(shape, names, axes), even=True)
    rng = np.random.default_rng(0)
    x, t = values(rng, 8 * 24, 2), values(rng, 8 * 24, 2)

    def all_of(operations):
        def function(x, t):
            results, back = jax.vjp(lambda v: operations(v, axes, groups), x)
            _, tangents = jax.jvp(lambda v: operations(v, axes, groups), (x,), (t,))
            weights = [jnp.cos(jnp.arange(y.size)).round(1).reshape(y.shape) * 10 for y in results]
            return results, tangents, back(weights)

        return over(mesh, function, spec, spec, check_vma=False)(x, t)

    assert_same(all_of(by_oriel), all_of(by_lax))


def test_types_vary():
    """With check_vma, where lax does not take a sum's groups: a group's result varies."""
    mesh, x = make_mesh(), values(np.random.default_rng(1), 8 * 24, 2)

    def loss(operations, check_vma):
        def function(v):
            results = operations(v, "x", EVEN)
            weights = [jnp.arange(1.0, y.size + 1).reshape(y.shape) for y in results]
            return [(y * w).sum()[None] for y, w in zip(results, weights, strict=True)]

        step = over(mesh, function, P("x"), P("x"), check_vma=check_vma)
        return jax.value_and_grad(lambda x: sum(y.sum() for y in step(x)))(x)

    assert_same(loss(by_oriel, True), loss(by_lax, False))
    step = over(mesh, lambda v: oriel.all_reduce(v, "x", axis_index_groups=EVEN), P("x"), P())
    with pytest.raises(ValueError, match="out_specs"):
        step(x)


@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_groups_of_different_size(op):
    """All_reduce takes them."""
    x = values(np.random.default_rng(2), 8, 5)

    def step(call):
        return over(make_mesh(), call, P("x"), P("x"), check_vma=False)(x)

    ours = step(lambda v: oriel.all_reduce(v, "x", op, axis_index_groups=UNEVEN))
    assert_same(ours, step(lambda v: REDUCE[op](v, "x", axis_index_groups=UNEVEN)))


# What lax lacks, or does otherwise: it divides by the size of the first group.
FUNCTIONS = {
    "prod": lambda part: np.prod(part, 0),
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
    "mean": lambda part: part.sum(0) / len(part),
}


def by_numpy(function, x, groups):
    """`function` of each group's rows, on all of them."""
    wanted = np.zeros_like(x)
    for group in groups:
        wanted[group] = function(x[group])
    return wanted


def both_ways(x, op, groups):
    """all_reduce on devices, and where vmap maps the axis."""

    def call(v, name):
        return oriel.all_reduce(v, name, op, axis_index_groups=groups)

    yield over(make_mesh(), lambda v: call(v, "x"), P("x"), P("x"))(x)
    yield jax.jit(jax.vmap(lambda v: call(v, "i"), axis_name="i"))(x)


@pytest.mark.parametrize("groups", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_what_lax_has_not(op, groups):
    x = np.random.default_rng(3).integers(1, 5, (8, 4))
    x = x if op in ("and", "or", "xor") else x.astype("float64")
    for got in both_ways(x, op, groups):
        assert got.dtype == x.dtype
        # XLA may multiply by the reciprocal of a mean's size.
        np.testing.assert_allclose(got, by_numpy(FUNCTIONS[op], x, groups), rtol=1e-15)


def test_places():
    """Along the axes, of several the lowest."""
    x = np.random.default_rng(3).integers(1, 4, (8, 30))
    lowest = by_numpy(lambda part: part.min(0), x, UNEVEN)
    for best, place in both_ways(x, "minloc", UNEVEN):
        assert_same(best, lowest)
        for group in UNEVEN:
            first = np.where(x == lowest[group[0]], np.arange(8)[:, None], 8)[group].min(0)
            np.testing.assert_array_equal(place[np.array(group)], np.stack([first] * len(group)))


def test_vmap_over_the_axis():
    """What lax refuses; by what it gives on devices."""
    rng = np.random.default_rng(4)
    x, w = values(rng, 8, 24, 2), values(rng, 24, 2)

    def ours(x, w):
        return jax.vmap(lambda v: by_oriel(v * w, "i", EVEN), axis_name="i")(x)

    def theirs(x, w):
        def one(v):
            return [y[None] for y in by_lax(v[0] * w, "x", EVEN)]

        return over(make_mesh(), one, P("x"), P("x"), check_vma=False)(x)

    def both(function):
        """Values, and a derivative."""

        def loss(x):
            results = function(x, w)
            return sum((y**2).sum() for y in results), results

        return jax.jit(jax.grad(loss, has_aux=True))(x)

    assert_same(both(ours), both(theirs))
    alone = jax.vmap(  # of what is not mapped
        lambda v: oriel.all_reduce(w, "i", axis_index_groups=UNEVEN), axis_name="i"
    )
    assert_same(jax.jit(alone)(x), by_numpy(lambda part: part.sum(0), np.stack([w] * 8), UNEVEN))


def test_vmap_over_another_axis():
    """By lax without vmap, which refuses some and gets others wrong."""
    x = values(np.random.default_rng(5), 8 * 24, 3, 2)

    def ours(v):
        return jax.vmap(lambda w: by_oriel(w, "x", EVEN), in_axes=1, out_axes=2)(v)

    def theirs(v):
        each = [by_lax(v[:, k], "x", EVEN) for k in range(3)]
        return [jnp.stack(some, 2) for some in zip(*each, strict=True)]

    def step(function):
        return over(make_mesh(), function, P("x"), P("x"), check_vma=False)(x)

    assert_same(step(ours), step(theirs))


def test_a_tree():
    """Arrays of one dtype are one call; on devices, and where vmap maps the axis."""
    rng = np.random.default_rng(8)
    tree = {"a": values(rng, 8, 3), "b": values(rng, 8, 2, 2), "c": jnp.arange(8)}

    def step(call):
        return over(make_mesh(), lambda t: call(t, "x"), P("x"), P("x"), check_vma=False)(tree)

    more = {"axis_index_groups": UNEVEN}
    wanted = step(lambda t, name: lax.psum(t, name, **more))
    assert_same(step(lambda t, name: oriel.all_reduce(t, name, **more)), wanted)
    mapped = jax.vmap(lambda t: oriel.all_reduce(t, "i", **more), axis_name="i")
    assert_same(jax.jit(mapped)(tree), wanted)


def test_between_processes():
    program = Path(__file__).resolve().parent / "programs" / "across.py"
    status, output, reports = run_processes(program, processes=2, devices=4)
    assert status == 0 and reports == {p: [{"ok": True}] for p in range(2)}, output


def test_pmap():
    x = values(np.random.default_rng(6), 8, 24, 2)

    def step(operations):
        return jax.pmap(lambda v: operations(v, "i", EVEN), axis_name="i")(x)

    assert_same(step(by_oriel), step(by_lax))


def test_ragged_all_to_all():
    """In two groups of four, forward and back, by one call for each group without them."""
    groups = [[6, 1, 4, 3], [0, 7, 2, 5]]
    drawn = cases.draw_ragged_groups(np.random.default_rng(7), 2, 4, 2, 12, (3,), "float64")
    order = np.argsort(np.ravel(groups))
    arrays = [array.reshape(8, *array.shape[2:])[order] for array in drawn.values()]
    parts = [cases.ragged_by_numpy(*(array[g] for array in drawn.values())) for g in range(2)]

    def loss(*arrays, **more):
        got = oriel.ragged_all_to_all(*(a[0] for a in arrays), **more)
        weights = jnp.arange(1.0, got.size + 1).reshape(got.shape)
        return got[None], jax.grad(
            lambda v: (
                oriel.ragged_all_to_all(v, *(a[0] for a in arrays[1:]), **more) * weights
            ).sum()
        )(arrays[0][0])[None]

    step = over(
        make_mesh(),
        lambda *a: loss(*a, axis_name="x", axis_index_groups=groups),
        (P("x"),) * 6,
        P("x"),
    )
    got, slope = step(*arrays)
    assert_same(got, np.concatenate(parts)[order])
    half = make_mesh((2, 4), ("g", "x"), sum(groups, []))
    apart = over(half, lambda *a: loss(*a, axis_name="x"), (P(("g", "x")),) * 6, P(("g", "x")))
    assert_same(slope, np.asarray(apart(*(a[np.ravel(groups)] for a in arrays))[1])[order])


def test_the_size_of_a_group():
    """psum of a number is one, as in lax."""
    seen = []

    def function(v):
        seen.append(oriel.all_reduce(1, "x", axis_index_groups=EVEN))
        return v

    over(make_mesh(), function, P("x"), P("x"))(jnp.arange(8.0))
    assert seen == [2] and isinstance(seen[0], int)


# ---- what is refused ------------------------------------------------------------------

OPERATIONS = {
    "all_reduce": (lambda v, a, g: oriel.all_reduce(v, a, axis_index_groups=g), lax.psum),
    "all_gather": (lambda v, a, g: oriel.all_gather(v, a, axis_index_groups=g), lax.all_gather),
    "reduce_scatter": (
        lambda v, a, g: oriel.reduce_scatter(v, a, axis_index_groups=g),
        lax.psum_scatter,
    ),
    "all_to_all": (
        lambda v, a, g: oriel.all_to_all(v, a, 0, 0, axis_index_groups=g),
        lambda v, a, axis_index_groups: lax.all_to_all(
            v, a, 0, 0, axis_index_groups=axis_index_groups
        ),
    ),
}
WRONG = {
    "index-twice": ([[0, 1, 2, 3], [4, 5, 6, 6]], ValueError, "cover all indices exactly once"),
    "index-beyond": ([[0, 1, 2, 3], [4, 5, 6, 8]], ValueError, "cover all indices exactly once"),
    "index-missing": ([[0, 1], [2, 3]], ValueError, "here 0 to 7 of .'x',."),
    "empty": ([[0, 1, 2, 3], [4, 5, 6, 7], []], ValueError, "groups that are not empty"),
    "flat": ([0, 1, 2, 3, 4, 5, 6, 7], TypeError, "must be a list of lists"),
    "number": (3, TypeError, "must be a list of lists of indices, got 3"),
    "half": ([[0, 1, 2, 3], [4, 5, 6, 7.5]], TypeError, "must be a list of lists"),
}


def traced(call):
    return over(make_mesh(), call, P("x"), P("x"), check_vma=False).lower(jnp.ones((32, 4)))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("what", WRONG)
def test_wrong_groups(operation, what):
    """lax raises the same, where it looks."""
    groups, error, words = WRONG[what]
    ours, theirs = OPERATIONS[operation]
    with pytest.raises(error, match=f"oriel.{operation}: axis_index_groups .*{words}"):
        traced(lambda v: ours(v, "x", groups))
    if what == "index-missing" or operation != "all_reduce" or what in ("empty", "half"):
        return  # XLA refuses it, or nobody does
    with pytest.raises(error):
        traced(lambda v: theirs(v, "x", axis_index_groups=groups))


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_to_all"])
def test_sizes_that_differ(operation):
    with pytest.raises(ValueError, match=f"oriel.{operation}: .*must be of one size"):
        traced(lambda v: OPERATIONS[operation][0](v, "x", UNEVEN))


def test_beside_other_axes():
    """Dimensions of the array; no axes; an axis of vmap among several."""
    with pytest.raises(ValueError, match="named axes alone"):
        traced(lambda v: oriel.all_reduce(v, ("x", 0), axis_index_groups=EVEN))
    with pytest.raises(ValueError, match="named axes"):
        traced(lambda v: lax.psum(v, ("x", 0), axis_index_groups=EVEN))
    with pytest.raises(ValueError, match="divides the devices along axis_name"):
        oriel.all_reduce(1.0, axis_index_groups=EVEN)
    with pytest.raises(NotImplementedError, match="of which vmap maps 'i', together"):
        groups = [list(range(16))]
        mapped = jax.vmap(
            lambda v: oriel.all_reduce(v, ("x", "i"), axis_index_groups=groups), axis_name="i"
        )
        traced(lambda v: mapped(v[:2]))


def unreduced(v):
    return lax.pcast(v, "x", to="unreduced")


TYPES = {
    "sum": (
        lambda v, **g: oriel.all_reduce(unreduced(v), "x", **g),
        lambda v, **g: lax.psum(unreduced(v), "x", **g),
    ),
    "scatter": (
        lambda v, **g: oriel.reduce_scatter(unreduced(v), "x", tiled=True, **g),
        lambda v, **g: lax.psum_scatter(unreduced(v), "x", tiled=True, **g),
    ),
    "gather": (
        lambda v, **g: oriel.all_gather(v, "x", to="reduced", **g),
        lambda v, **g: lax.all_gather(v, "x", to="reduced", **g),
    ),
}


def test_a_gather_without_types():
    """Without check_vma `to` is nothing, as in newer lax."""

    def gather(v, **more):
        return oriel.all_gather(v, "x", axis_index_groups=EVEN, **more)

    got = [
        over(make_mesh(), lambda v, to=to: gather(v, to=to), P("x"), P("x"), check_vma=False)(
            jnp.arange(8.0)
        )
        for to in ("varying", "reduced")
    ]
    assert_same(*got)


@pytest.mark.parametrize("what", TYPES)
def test_types_that_groups_have_not(what):
    for call in TYPES[what]:
        with pytest.raises(NotImplementedError):
            step = over(make_mesh(), lambda v: call(v, axis_index_groups=EVEN), P("x"), P("x"))
            step.lower(jnp.ones((32, 4)))
