"""ragged_all_to_all against NumPy: XLA has no such operation for CPUs."""

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
from support import assert_bits, examples, make_mesh, over, picker

NAMES = ("operand", "output", "input_offsets", "send_sizes", "output_offsets", "recv_sizes")


def call(*arrays, axes="x"):
    """On each device: its own part of everything."""
    parts = [array.reshape(array.shape[1:]) for array in arrays]
    return oriel.ragged_all_to_all(*parts, axis_name=axes)[None]


def mapped(function=call, mesh=None, check_vma=True, out_specs=P("x")):
    return over(mesh or make_mesh(), function, (P("x"),) * 6, out_specs, check_vma)


def draw_call(pick, rng, *arguments):
    """Arrays in the shape of a mesh, the call over some of its axes, and what NumPy makes
    of such arrays."""
    mesh_shape, names, axes, order = cases.draw_mesh(pick)
    layout, n = (mesh_shape, names, axes), cases.size_of(mesh_shape, names, axes)
    groups = cases.draw_ragged_groups(rng, 8 // n, n, *arguments)
    lead, spec, mesh = len(names), P(*names), make_mesh(mesh_shape, tuple(names), order)

    def function(*parts):
        own = [part.reshape(part.shape[lead:]) for part in parts]
        return oriel.ragged_all_to_all(*own, axis_name=axes).reshape(parts[1].shape)

    def by_numpy(*arrays):
        members = zip(*(cases.in_groups(array, *layout) for array in arrays), strict=True)
        return cases.from_groups(np.stack([cases.ragged_by_numpy(*m) for m in members]), *layout)

    arrays = [cases.from_groups(array, *layout) for array in groups.values()]
    return arrays, over(mesh, function, (spec,) * 6, spec, pick([True, False])), by_numpy


@examples(15, soak=200)
@given(st.data())
def test_any_call(data):
    pick = picker(data)
    rng = np.random.default_rng(pick(list(range(100))))
    row = pick([(), (1,), (3,), (2, 5), (700,)])
    arrays, step, by_numpy = draw_call(
        pick, rng, pick([1, 2, 5]), pick([1, 9, 40]), row, pick(cases.DTYPES)
    )
    arrays[2:] = [array.astype(pick(["int32", "int64", "uint8"])) for array in arrays[2:]]
    assert_bits(step(*arrays), by_numpy(*arrays))


@examples(6, soak=60)
@given(st.data())
def test_any_derivatives(data):
    pick = picker(data)
    rng = np.random.default_rng(pick(list(range(100))))
    check_derivatives(rng, *draw_call(pick, rng, pick([1, 2]), 20, (2,), np.float64))


@pytest.mark.parametrize("check_vma", [True, False])
def test_derivatives(check_vma):
    rng = np.random.default_rng(7)
    arrays = list(cases.draw_ragged(rng, 8, 2, 20, (2,), np.float64).values())
    check_derivatives(rng, arrays, mapped(check_vma=check_vma), cases.ragged_by_numpy)


def check_derivatives(rng, arrays, step, by_numpy):
    rows, indices = arrays[:2], arrays[2:]
    tangents = [cases.draw_values(rng, x.shape, x.dtype) for x in rows]
    value, moved = jax.jvp(lambda *r: step(*r, *indices), rows, tangents)
    np.testing.assert_array_equal(value, by_numpy(*rows, *indices))
    np.testing.assert_array_equal(moved, by_numpy(*tangents, *indices))

    weights = cases.draw_values(rng, value.shape, value.dtype)
    gradients = jax.grad(lambda r: (step(*r, *indices) * weights).sum())(rows)
    # It is linear: <weights, f(tangents)> == <f^T(weights), tangents>
    for i in range(2):
        alone = [t if i == j else 0 * t for j, t in enumerate(tangents)]
        np.testing.assert_allclose(
            (gradients[i] * tangents[i]).sum(),
            (weights * by_numpy(*alone, *indices)).sum(),
            rtol=1e-12,
            atol=1e-10,
        )
    only = jax.grad(lambda r: (step(rows[0], r, *indices) * weights).sum())(rows[1])
    np.testing.assert_array_equal(only, gradients[1])


def test_gradient_inside():
    arrays = cases.draw_ragged(np.random.default_rng(8), 8, 1, 20, (2,), np.float64)

    def function(operand, *more):
        return jax.grad(lambda w: (call(w, *more) ** 2).sum() / 2)(operand)

    got = np.asarray(mapped(function)(*arrays.values()))
    sent = np.zeros(arrays["operand"].shape[:2], bool)
    for member, (starts, sizes) in enumerate(
        zip(arrays["input_offsets"], arrays["send_sizes"], strict=True)
    ):
        for start, size in zip(starts, sizes, strict=True):
            sent[member, start : start + size] = True
    np.testing.assert_array_equal(got, np.where(sent[..., None], arrays["operand"], 0))


def test_vmap():
    rng = np.random.default_rng(9)
    entries = [cases.draw_ragged(rng, 8, 2, 15, (3,)) for _ in range(3)]
    room = max(entry["output"].shape[1] for entry in entries)
    for entry in entries:
        entry["output"] = np.zeros((8, room, 3), np.float32)
    stacked = {name: np.stack([e[name] for e in entries], 2) for name in NAMES}
    stacked["operand"] = np.stack([e["operand"] for e in entries], 1)
    stacked["output"] = np.stack([e["output"] for e in entries], 1)

    def function(*parts):
        parts = [part[0] for part in parts]
        inner = lambda *a: oriel.ragged_all_to_all(*a, axis_name="x")  # noqa: E731
        return jax.vmap(inner, (0, 0, 1, 1, 1, 1), 1)(*parts)[None]

    with jax.numpy_rank_promotion("raise"):
        got = np.asarray(mapped(function)(*stacked.values()))
    for i, entry in enumerate(entries):
        np.testing.assert_array_equal(got[:, :, i], cases.ragged_by_numpy(**entry))


@pytest.mark.parametrize("entries", [1, 3])
def test_narrow_indices_reach_all_rows(entries):
    """Those of all entries that vmap joins, and the end of the last slice."""
    n, rows = 8, 16  # of devices; of a slice
    first = np.broadcast_to(np.arange(n, dtype=np.int8) * rows, (n, n))
    sizes = np.full((n, n), rows, np.int8)
    operand = np.arange(1.0, 1 + n * entries * n * rows).reshape(n, entries, n * rows)

    def inner(x, into, *indices):
        own = [index[0] for index in indices]
        mapped = jax.vmap(lambda v, w: oriel.ragged_all_to_all(v, w, *own, axis_name="x"))
        return mapped(x[0], into[0])[None]

    def loss(x, into):
        y = over(make_mesh(), inner, (P("x"),) * 6, P("x"))(x, into, first, sizes, first.T, sizes)
        return (y * y).sum() / 2, y

    step = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, got), (by_operand, by_output) = step(operand, np.ones_like(operand))
    blocks = operand.reshape(n, entries, n, rows)
    np.testing.assert_array_equal(got, blocks.transpose(2, 1, 0, 3).reshape(operand.shape))
    np.testing.assert_array_equal(by_operand, operand)
    np.testing.assert_array_equal(by_output, np.zeros_like(operand))


def test_vmap_of_the_axis_is_refused():
    a = cases.draw_ragged(np.random.default_rng(1), 8, 1, 4)
    with pytest.raises(NotImplementedError, match="over an axis of vmap"):
        jax.vmap(lambda *v: oriel.ragged_all_to_all(*v, axis_name="v"), axis_name="v")(*a.values())


BAD = {
    "input_offsets": (lambda a: a.astype(np.float32), "input_offsets must be integer type"),
    "send_sizes": (lambda a: a[:, :-1], "send_sizes must have the same number of entries"),
    "output_offsets": (lambda a: a[:, :, None], "output_offsets must be rank 1 with positive"),
    "recv_sizes": (lambda a: np.tile(a, (1, 2)), "recv_sizes has shape .*, input_offsets has"),
    "output": (lambda a: a.astype(np.int32), "rows of operand and output must be alike"),
    "operand": (lambda a: a[..., None], "rows of operand and output must be alike"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arrays(name):
    arrays = cases.draw_ragged(np.random.default_rng(1), 8, 1, 9)
    change, text = BAD[name]
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=text):
        mapped()(*arrays.values())


@pytest.mark.parametrize(
    "change", [lambda a: a.astype(float), lambda a: a[:, None], lambda a: a[:0]]
)
@pytest.mark.parametrize("name", NAMES[2:])
def test_bad_arrays_have_the_words_of_lax(name, change):
    def said(library):
        arrays = [jnp.zeros(24) if i < 2 else jnp.zeros(8, "int32") for i in range(6)]
        arrays[NAMES.index(name)] = change(arrays[NAMES.index(name)])
        step = over(
            make_mesh(), lambda v: library.ragged_all_to_all(*arrays, axis_name="x"), P("x"), P("x")
        )
        with pytest.raises(ValueError) as error:
            step.trace(jnp.zeros(8))
        return str(error.value)

    assert said(lax).rstrip(".") in said(oriel)


@pytest.mark.parametrize(
    "name, row",
    [("input_offsets", 1000), ("output_offsets", -1), ("send_sizes", 1000), ("recv_sizes", 3)],
)
def test_bad_numbers_end_the_world(name, row):
    """Of one device alone: what it was given the others cannot know."""
    arrays = cases.draw_ragged(np.random.default_rng(1), 8, 1, 9)
    arrays["send_sizes"][:], arrays["recv_sizes"][:] = 1, 1
    arrays["input_offsets"][:] = 0
    arrays["output_offsets"][:] = np.arange(8)[:, None]
    arrays["output"] = np.zeros((8, 8), np.float32)
    arrays[name][3, 5] = row
    try:
        with pytest.raises(Exception, match="ragged_all_to_all"):
            mapped()(*arrays.values()).block_until_ready()
        with pytest.raises(oriel.OrielError):
            oriel.check()
    finally:
        oriel.finalize()
        oriel.init()
    arrays[name][3, 5] = {"input_offsets": 0, "output_offsets": 3}.get(name, 1)
    assert_bits(mapped()(*arrays.values()), cases.ragged_by_numpy(**arrays))


def test_nothing_to_send():
    zeros = np.zeros((8, 8), np.int32)
    output = np.arange(24.0).reshape(8, 3)
    got = mapped()(np.zeros((8, 0)), output, zeros, zeros, zeros, zeros)
    np.testing.assert_array_equal(got, output)


def test_output_stays():
    """The operation writes into a copy where the old one is still needed."""
    arrays = cases.draw_ragged(np.random.default_rng(2), 8, 1, 30)

    def function(operand, output, *indices):
        return call(operand, output, *indices) + output

    got = mapped(function)(*map(jnp.asarray, arrays.values()))
    np.testing.assert_array_equal(got, cases.ragged_by_numpy(**arrays) + arrays["output"])
