"""Windows over a mesh of all devices: windows.py CASE..., each in the world of one job."""

import gc
import os
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import local_parts, refused, sharded
from jax import lax
from jax.sharding import PartitionSpec as P
from kernels import several
from over_mesh import (
    SHAPE,
    each,
    equal,
    filled,
    main,
    meet,
    mesh,
    over,
    plain,
    ranks,
    value,
    values,
)

# ---- outside of programs ------------------------------------------------------------------


def looks():
    """What a window has, from all sides."""
    w = oriel.window(SHAPE, np.float32, mesh(), "x")
    assert (w.shape, w.dtype, w.ndim) == (SHAPE, np.float32, 2), w
    equal(w.read(), np.zeros(SHAPE))
    w.write(np.concatenate(values()))
    meet()
    for i in range(oriel.size()):
        equal(w.read(rank=i), value(i))
        equal(w.peer(i), value(i))
    each(w.array, values())
    first, second = w.array, w.array
    assert first is not second
    assert oriel.is_symmetric(w.array.addressable_shards[0].data)[0].number == w.number
    inside = oriel.is_symmetric(w.peer(oriel.size() - 1))
    assert inside[0].number == w.number and inside[1] == 0, inside
    assert oriel.is_symmetric(jnp.ones(3)) is None
    meet()
    w.write(w.array * 2)
    each(w.array, [2 * v for v in values()])
    w.write(value(9))
    equal(w.read(), value(9))
    for device in jax.local_devices():
        equal(w.read(device=device), value(9))
    refused(lambda: w.read(rank=oriel.size()), f"rank is {oriel.size()}")
    refused(lambda: w.write(np.zeros((2, 2), np.float32)), "(2, 2)", str(SHAPE))
    refused(lambda: w.write(np.zeros(SHAPE, np.int32)), "int32", "float32", kind=TypeError)
    assert f"number {w.number}" in repr(w), w
    w.free()
    w.free()
    for call in (lambda: w.array, lambda: w.read(), lambda: w.write(0), lambda: w.number):
        refused(call, "has been freed")
    refused(lambda: jax.jit(lambda w: oriel.load(w))(w), "has been freed")


def dtypes():
    """Round trips in every dtype that has whole bytes."""
    names = (
        "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64"
    )
    names += " complex64 complex128 float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e3m4"
    names += " float8_e5m2fnuz float8_e4m3fnuz float8_e4m3 float8_e8m0fnu"
    for name in names.split():
        dtype = jnp.dtype(name)
        w, v = filled(dtype=dtype), oriel.window(SHAPE, dtype, mesh(), "x")
        assert w.array.dtype == dtype
        copy = sharded(mesh(), lambda w, v: oriel.store(oriel.load(w), v), P("x"), P("x"))
        copy = sharded(mesh(), lambda w, v: oriel.store(oriel.load(w), v), (P("x"), P("x")), P("x"))
        jax.block_until_ready(copy(w, v))
        for rank in ranks():
            equal(
                v.read(device=jax.local_devices()[rank - oriel.rank()]).view(np.uint8),
                value(rank, dtype=dtype).view(np.uint8),
            )
    for name in ("int4", "uint4", "int2", "float4_e2m1fn", "O", "S3", "datetime64[s]"):
        refused(lambda: oriel.window(SHAPE, name, mesh(), "x"), kind=TypeError)


def arguments():
    m = mesh()
    refused(lambda: oriel.window("no", "f4", m, "x"), "shape", kind=TypeError)
    refused(lambda: oriel.window((3, 0), "f4", m, "x"), "(3, 0)")
    refused(lambda: oriel.window((3, -1), "f4", m, "x"), "(3, -1)")
    refused(lambda: oriel.window((), "f4", m, "x"), "shape is ()")
    refused(lambda: oriel.window((3,), "f4", m, "y"), "'y'", "('x',)")
    refused(lambda: oriel.window((3,), "f4", m), "axis_name is not")
    for wrong in ("x", m.abstract_mesh):
        refused(lambda: oriel.window((3,), "f4", wrong, "x"), "mesh must be", kind=TypeError)
    refused(lambda: oriel.window((3,), "f4", axis_name="x"), "jax.set_mesh")
    group = oriel.group([0])
    refused(lambda: oriel.window((3,), "f4", m, "x", group=group), "not both")
    refused(lambda: oriel.window((1 << 50,), "f4", m, "x"), "bytes", kind=oriel.OrielError)
    with jax.set_mesh(m):
        w = oriel.window((3,), "f4", axis_name="x")
        assert w.spec == P(("x",)) or w.spec == P("x"), w.spec
    refused(lambda: w.__reduce__(), "pickled", kind=TypeError)


# ---- operands -----------------------------------------------------------------------------


def operations():
    n = oriel.size()
    ring = [(i, (i + 1) % n) for i in range(n)]
    found = {
        f"all_reduce {op}": (lambda v, op=op, **k: oriel.all_reduce(v, "x", op, **k))
        for op in ("sum", "max", "mean")
    }
    return found | {
        "all_gather": lambda v, **k: oriel.all_gather(v, "x", **k),
        "all_gather tiled": lambda v, **k: oriel.all_gather(v, "x", tiled=True, **k),
        "all_gather axis": lambda v, **k: oriel.all_gather(v, "x", axis=1, **k),
        "reduce_scatter": lambda v, **k: oriel.reduce_scatter(v, "x", tiled=True, **k),
        "all_to_all": lambda v, **k: oriel.all_to_all(v, "x", 0, 0, True, **k),
        "all_to_all across": lambda v, **k: oriel.all_to_all(v, "x", 0, 1, True, **k),
        "broadcast": lambda v, **k: oriel.broadcast(v, "x", root=n - 1, **k),
        "permute": lambda v, **k: oriel.permute(v, "x", ring, **k),
        "barrier": lambda v, **k: oriel.barrier(v, "x", **k),
        "gather": lambda v, **k: oriel.gather(v, "x", root=0, **k),
        "reduce": lambda v, **k: oriel.reduce(v, "x", root=n - 1, **k),
        "scan": lambda v, **k: oriel.scan(v, "x", **k),
    }


def shapes():
    """Small enough for the block of a cell, and larger: compiling is what takes time."""
    n = oriel.size()
    return [(12 * n, 5), (1024 * n, 96)] if os.environ.get("SOAK") else [(1024 * n, 96)]


def operands():
    """Operations on what lies in windows, and on what does not on one rank."""
    for shape in shapes():
        w, x = filled(shape), plain(shape)
        for name, function in operations().items():
            step = over(function, P("x"))
            wanted = local_parts(step(x))
            for got in (step(w), step(w.array), step(x if oriel.rank() == 0 else w.array)):
                for mine, other in zip(local_parts(got), wanted, strict=True):
                    np.testing.assert_array_equal(mine, other, err_msg=name)
        each(w.array, values(shape))


def results():
    """Results of operations go to a window, and come back from it."""
    for shape in shapes():
        w, x = filled(shape), plain(shape)
        for name, function in operations().items():
            wanted = local_parts(over(function, P("x"))(x))
            out = oriel.window(wanted[0].shape, np.float32, mesh(), "x")

            def step(w, out, function=function):
                ticket = function(w, into=out)
                return ticket, oriel.load(out, after=ticket)

            ticket, loaded = over(step, (P("x"), P("x")), (P("x"), P("x")))(w, out)
            assert ticket.shape == (oriel.size(),) and ticket.dtype == np.int32, ticket
            for mine, other in zip(local_parts(loaded), wanted, strict=True):
                np.testing.assert_array_equal(mine, other, err_msg=name)
            for device, other in zip(jax.local_devices(), wanted):
                np.testing.assert_array_equal(out.read(device=device), other, err_msg=name)


def kernels():
    """Kernels and their results in windows."""
    kernel = several(np.dtype("float32"), "SUM").pass_on
    shape = (64, 33)
    w, x, out = filled(shape), plain(shape), oriel.window(shape, "float32", mesh(), "x")
    more = {"hops": 1, "axis_name": "x"}
    wanted = local_parts(over(lambda v: kernel(v, **more)[0], P("x"))(x))
    got = over(lambda w: kernel(w, **more)[0], P("x"))(w)
    for mine, other in zip(local_parts(got), wanted, strict=True):
        equal(mine, other)

    def step(w, out):
        first, _ = kernel(w, **more)
        return oriel.store(first, out)

    over(step, (P("x"), P("x")))(w, out)
    each(out.array, dict(zip(ranks(), wanted)))


def in_place():
    """An operation whose result goes where its operand is."""
    w = filled((4096, 24))
    step = over(lambda w: oriel.all_reduce(w, "x", into=w), P("x"))
    jax.block_until_ready(step(w))
    each(w.array, [sum(values((4096, 24)))] * oriel.size())


# ---- orders -------------------------------------------------------------------------------


def loops():
    """Writes and reads in a loop, in their order; a window as it goes through jit, scan and cond."""
    w, out = filled(), oriel.window(SHAPE, "float32", mesh(), "x")

    def body(i, carry):
        w, out, total, ticket = carry
        ticket = oriel.store(total, out, after=ticket)
        total = oriel.all_reduce(out, "x", after=ticket) / oriel.size() + 1
        return w, out, total, (ticket, total)

    def step(w, out):
        start = oriel.load(w)
        ticket = oriel.store(start, out)
        carry = (w, out, start, (ticket, start))
        return lax.fori_loop(0, 5, body, carry)[2]

    got = over(step, (P("x"), P("x")))(w, out)
    each(got, [sum(values()) / oriel.size() + 5] * oriel.size())

    @jax.jit
    def inner(w, out, after):
        return oriel.store(oriel.load(w) * 2, out, after=after)

    def outer(w, out):
        ticket = inner(w, out, jnp.zeros(1, jnp.int32))
        flag = oriel.load(out, after=ticket).sum() > -1
        read = lax.cond(
            flag, lambda o: oriel.load(o, after=ticket), lambda o: 0 * oriel.load(o), out
        )
        return read

    each(over(outer, (P("x"), P("x")))(w, out), [2 * v for v in values()])


def order_refused():
    w = filled()
    unordered = "nothing says which is first"

    def both(w):
        return oriel.all_reduce(w, "x"), oriel.store(oriel.load(w) * 2, w)

    def ordinary(w):
        return w._operand() + 1, oriel.store(jnp.ones(SHAPE, np.float32), w)

    def inner(w):
        return oriel.load(w), jax.jit(lambda w: oriel.store(jnp.ones(SHAPE, np.float32), w))(w)

    def loop(w):
        ticket = lax.fori_loop(
            0, 2, lambda i, t: oriel.store(t * jnp.ones(SHAPE, np.float32), w), jnp.zeros(1)
        )
        return ticket, oriel.load(w)

    for function in (both, ordinary, inner):
        refused(lambda f=function: over(f, P("x"), (P("x"), P("x")))(w), unordered)
    x = jnp.ones(SHAPE, np.float32)
    refused(lambda: over(lambda v: oriel.all_reduce(v, "x", after=v), P("x"))(plain()), "after")
    refused(
        lambda: over(lambda w: oriel.store(jnp.ones(3, np.float32), w), P("x"))(w),
        "float32[3]",
        "float32[6,4]",
    )
    wrong = over(lambda w, v: oriel.all_reduce(v, "x", into=v), (P("x"), P("x")))
    refused(lambda: wrong(w, plain()), "into must be an oriel.Window", kind=TypeError)
    refused(lambda: jax.jit(lambda v: oriel.load(w) + v)(x), "closed over")
    refused(lambda: oriel.load(x), "window must be", kind=TypeError)
    # What is between makes a copy, which is no window.
    copied = over(lambda w: _store_to_copy(w), P("x"))
    refused(lambda: jax.block_until_ready(copied(w)), "in no window", kind=Exception)


def _store_to_copy(w):
    from oriel._memory import access

    return access._store.bind(jnp.sin(w._operand()), jnp.ones(SHAPE, np.float32), effect=False)


def outstanding():
    """What is looked at outside waits for what has been dispatched, from any thread."""
    shape = (256, 64)
    w, out = filled(shape), oriel.window(shape, "float32", mesh(), "x")

    def slow(w, out):
        v = oriel.load(w)
        start = jnp.full((100, 100), v[0, 0])
        late = lax.fori_loop(0, 400, lambda _, u: jnp.sin(u), start)
        return oriel.store(v + 0 * late.sum(), out)

    step = over(slow, (P("x"), P("x")))
    step(w, out)
    for i in range(5):
        out.write(np.zeros(shape, np.float32))
        step(w, out)  # whose ticket nobody has
        if i % 2:
            each(out.array, values(shape))
        else:
            equal(out.read(), value(oriel.rank(), shape))


# ---- transformations ------------------------------------------------------------------------


def transformations():
    w, x = filled(), plain()

    def loss(w):
        return (oriel.all_reduce(w, "x") ** 2).sum() + (oriel.load(w) ** 3).sum()

    def array_loss(v):
        return (oriel.all_reduce(v, "x") ** 2).sum() + (v**3).sum()

    grad = over(lambda w: jax.grad(lambda v: loss(v))(w)._operand(), P("x"))
    wanted = over(jax.grad(array_loss), P("x"))(x)
    for mine, other in zip(local_parts(grad(w)), local_parts(wanted), strict=True):
        equal(mine, other)
    remat = over(lambda w: jax.grad(jax.checkpoint(loss))(w)._operand(), P("x"))
    for mine, other in zip(local_parts(remat(w)), local_parts(wanted), strict=True):
        equal(mine, other)
    mapped = over(lambda w: jax.vmap(lambda row: oriel.all_reduce(row, "x"))(w._operand()), P("x"))
    each(mapped(w), [sum(values())] * oriel.size())
    rows = over(lambda w: jax.vmap(lambda r: oriel.load(r))(w), P("x"))
    each(rows(w), values())

    def scanned(w):
        def body(total, row):
            return total + oriel.all_reduce(row, "x"), None

        return lax.scan(body, jnp.zeros(4), w._operand())[0]

    each(over(scanned, P("x"))(w), [sum(values()).sum(0)] * oriel.size())

    def through(w):
        return jax.grad(lambda v: oriel.store(v, w)[0] * 1.0)(jnp.ones(SHAPE, np.float32))

    refused(lambda: over(through, P("x"))(w), "no derivative", kind=TypeError)
    each(w.array, values())


def compiled():
    """XLA copies no operand, and no result, of a call on windows."""
    w, out = filled(), oriel.window(SHAPE, "float32", mesh(), "x")

    def step(w, out):
        ticket = oriel.all_reduce(w, "x", into=out)
        y = oriel.all_reduce(jnp.reshape(oriel.load(out, after=ticket), (8, 3)), "x")
        return y, ticket

    text = over(step, (P("x"), P("x")), (P("x"), P("x"))).lower(w, out).compile().as_text()
    lines = [line for line in text.splitlines() if "custom-call" in line and "oriel_" in line]
    assert len(lines) == 2, text
    assert not any(" copy(" in line or "oriel_load" in line for line in text.splitlines()), text


def donated():
    """A window is never consumed."""
    w = filled()

    def donating(function, out_specs=P("x")):
        mapped = jax.shard_map(function, mesh=mesh(), in_specs=P("x"), out_specs=out_specs)
        return jax.jit(mapped, donate_argnums=0)

    for _ in range(3):
        each(donating(lambda w: oriel.load(w) + 1)(w), [v + 1 for v in values()])
        each(donating(lambda w: oriel.all_reduce(w, "x"), P())(w), [sum(values())] * oriel.size())

    def through(w):
        return oriel.load(w, after=oriel.store(jnp.ones(SHAPE, np.float32), w))

    write = donating(through)
    refused(lambda: jax.block_until_ready(write(w)), "in no window", "donated", kind=Exception)
    array = w.array
    jax.block_until_ready(jax.jit(lambda v: v + 1, donate_argnums=0)(array))
    each(w.array, values())


# ---- lives ----------------------------------------------------------------------------------


def lives():
    """Arrays outlive what they lie in; memory is used again when nothing does."""
    w = filled()
    number, array = w.number, w.array
    memory = weakref.ref(w._memory)
    w.free()
    gc.collect()
    assert memory() is not None
    each(array, values())
    del array
    gc.collect()
    assert memory() is None
    meet()
    again = oriel.window(SHAPE, np.float32, mesh(), "x")
    assert again.number > number
    equal(again.read(), np.zeros(SHAPE))
    left = filled()
    given = sharded(mesh(), lambda w: oriel.load(w), P("x"), P("x"))(left)
    memory = weakref.ref(left._memory)
    del left
    jax.block_until_ready(given)
    gc.collect()
    assert memory() is None


def many():
    """Windows of all sizes come and go in any order, in the same one on all."""
    rng, alive = np.random.default_rng(3), {}
    for i in range(60):
        if alive and rng.random() < 0.45:
            key = sorted(alive)[rng.integers(len(alive))]
            alive.pop(key)[0].free()
        else:
            shape = (int(rng.integers(1, 5000)),)
            w = oriel.window(shape, np.float32, mesh(), "x")
            equal(w.read(), np.zeros(shape))
            w.write(np.full(shape[0] * oriel.size(), i, np.float32))
            alive[i] = w, shape
    meet()
    for i, (w, shape) in alive.items():
        for peer in range(oriel.size()):
            equal(w.read(rank=peer), np.full(shape, i))
    meet()


def renewed():
    """A window of a world that is gone is refused by name; its arrays are good."""
    w = filled()
    array, step = w.array, sharded(mesh(), lambda w: oriel.load(w) + 0, P("x"), P("x"))
    each(step(w), values())
    rank = oriel.rank()
    kept = w.array.addressable_shards[0].data
    oriel.finalize()
    equal(kept, value(rank))
    equal(array.addressable_shards[0].data, value(rank))
    oriel.init()
    for call in (lambda: w.array, lambda: w.peer(0), lambda: w.read()):
        refused(call, "world that has been finalized", kind=oriel.OrielError)
    refused(lambda: step(w), "world that has been finalized", kind=oriel.OrielError)
    new = filled()
    each(step(new), values())
    array = kept = w = None
    gc.collect()
    equal(new.read(), value(rank))


main(globals())
