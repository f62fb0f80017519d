"""Messages between ranks whose programs differ: messages.py, one device for each process, two or
more of them. All is compared with NumPy. messages.py permutes: as on GPUs, where a message is a
permutation of two ranks, and the one waits for the other."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report
from oriel import mpi
from oriel._collectives import message

SHAPE = 2, 3


def values(rank, k=0, shape=SHAPE):
    return np.random.default_rng([rank, k]).normal(size=shape)


def near(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def check_both_send_first(count):
    """XLA runs a small program one call after the other: a send that waited would never end."""
    rank = oriel.rank()
    if rank > 1:
        return
    other = 1 - rank
    mine, theirs = values(rank, 1, count), values(other, 1, count)

    def exchange(x):
        oriel.send(x, other)
        oriel.send(2 * x, other, tag="twice")
        oriel.send(3 * x, other)
        late = oriel.recv(x, other, tag="twice")
        return oriel.recv(x, other), late, oriel.recv(jax.ShapeDtypeStruct(x.shape, x.dtype), other)

    for function in (exchange, jax.jit(exchange)) if count == 1 else (jax.jit(exchange),):
        for _ in range(2):
            for got, factor in zip(function(jnp.asarray(mine)), (1, 2, 3)):
                near(got, factor * theirs)


def check_more_than_there_is_room_for():
    """All send first, more small messages than the heap has blocks for."""
    rank, n, count = oriel.rank(), oriel.size(), 600
    after, before = (rank + 1) % n, (rank - 1) % n

    @jax.jit
    def exchange(x):
        def give(i, x):
            oriel.send(x + i, after, effect=True)
            return x

        x = jax.lax.fori_loop(0, count, give, x)
        take = lambda x, _: (x, oriel.recv(x, before))  # noqa: E731
        return jax.lax.scan(take, x, None, length=count)[1]

    near(exchange(jnp.float64(1000 * rank)), 1000 * before + np.arange(count))


def check_sendrecv_is_one_call():
    rank, n = oriel.rank(), oriel.size()
    after, before = (rank + 1) % n, (rank - 1) % n

    def shift(x):
        return oriel.sendrecv(x, x, before, after)

    for function in (shift, lambda x: jax.vjp(shift, x)[1](x)):
        lowered = jax.jit(function).lower(jnp.ones(3)).as_text()
        assert lowered.count("custom_call @oriel_") == lowered.count("@oriel_sendrecv"), lowered
    for count in (1, 5_000, 700_000):
        near(jax.jit(shift)(jnp.asarray(values(rank, 3, count))), values(before, 3, count))


def check_sendrecv_meets_send_and_recv():
    """Rank 0 does both at once, rank 1 one after the other; the two differ in shape and dtype."""
    rank = oriel.rank()
    if rank > 1:
        return
    there, back = values(0, 4, 70_000), np.arange(6, dtype=np.int16).reshape(SHAPE)

    @jax.jit
    def at_once(x):
        return oriel.sendrecv(x, jnp.zeros(SHAPE, jnp.int16), 1, 1)

    @jax.jit
    def receives_first(y):
        got = oriel.recv(jax.ShapeDtypeStruct((70_000,), jnp.float64), 0)
        oriel.send(y, 0)
        return got

    @jax.jit
    def sends_first(y):
        oriel.send(y, 0)
        return oriel.recv(jax.ShapeDtypeStruct((70_000,), jnp.float64), 0)

    for function in (receives_first, sends_first):
        if rank == 0:
            near(at_once(jnp.asarray(there)), back)
        else:
            near(function(jnp.asarray(back)), there)


def check_trees_of_sendrecv():
    """As many arrays need not come as go; all go before the first that comes is waited for."""
    rank = oriel.rank()
    if rank > 1:
        return
    other = 1 - rank
    large = [jnp.asarray(values(rank, 5 + k, 40_000)) for k in range(3)]
    theirs = [values(other, 5 + k, 40_000) for k in range(3)]
    if rank == 0:
        got = jax.jit(lambda x: oriel.sendrecv(x, x[:1], other, other))(large)
        near(got, theirs[:1])
        assert oriel.sendrecv([], large[1:], other, other)[1].shape == (40_000,)
    else:
        got = jax.jit(lambda x: oriel.sendrecv(x[:1], tuple(x), other, other))(large)
        near(got, theirs)
        assert oriel.sendrecv(tuple(large[1:]), [], other, other) == []


def check_sendrecv_derivatives():
    """Where what comes differs from what goes, and the other one does them one by one."""
    rank = oriel.rank()
    if rank > 1:
        return
    x, w = jnp.asarray(values(rank)), np.cos(values(rank, 6))

    def at_once(x):
        y = oriel.sendrecv(x**2, jnp.zeros(4), 1, 1)
        return (y * jnp.arange(4.0)).sum() + (x * w).sum()

    def one_by_one(x):
        sent = oriel.send(jnp.sin(x.ravel()[:4]), 0)
        got = oriel.recv(x, 0)
        return (got * w).sum() + (sent * 2).sum()

    if rank == 0:
        wanted = 2 * values(0) * np.cos(values(1, 6)) + w
        sent = lambda x: [x, x]  # noqa: E731
    else:
        wanted = np.full(SHAPE, 0.0)
        wanted.ravel()[:4] = np.cos(values(1).ravel()[:4]) * (np.arange(4) + 2)
        sent = lambda x: [x, 2 * x]  # noqa: E731
    step = jax.grad(at_once if rank == 0 else one_by_one)
    near(step(x), wanted)
    near(jax.jit(step)(x), wanted)

    def tree(x):
        a, b = oriel.sendrecv(sent(x), [x, x], 1 - rank, 1 - rank)
        return a.sum() + 3 * b.sum()

    near(jax.jit(jax.grad(tree))(x), np.full(SHAPE, 4.0 if rank == 0 else 7.0))


def check_order():
    """Rank 0 sends what the others count, in loops, branches and inner functions, and beside it all
    make other calls."""
    rank, n = oriel.rank(), oriel.size()
    base = jnp.arange(4.0)

    @jax.jit
    def send_all(x):
        def inner(x, to):
            return oriel.send(x, to)

        for to in range(1, n):
            x = oriel.send(x, to)
            x = jax.jit(inner, static_argnums=1)(x + 1, to)
            x = jax.lax.fori_loop(0, 3, lambda i, x, to=to: oriel.send(x + 1, to), x)
            x = jax.lax.cond(x[0] > -1, lambda x, to=to: oriel.send(x + 1, to), lambda x: x, x)
            x = x - 5
        return oriel.all_reduce(x, tag="sum")

    @jax.jit
    def receive_all(x):
        first = jnp.stack([oriel.recv(x, 0) for _ in range(2)])
        rest = jax.lax.scan(lambda c, _: (c, oriel.recv(x, 0)), 0, None, length=4)[1]
        return first, rest, oriel.all_reduce(x, tag="sum")

    for _ in range(3):
        if rank == 0:
            total = send_all(base)
        else:
            first, rest, total = receive_all(base)
            near(jnp.concatenate([first, rest]), np.arange(4.0) + np.arange(6)[:, None])
        near(total, n * np.arange(4.0))


def check_derivatives():
    """Of the sum over ranks of what each computes: round a ring, and from one to another."""
    rank, n = oriel.rank(), oriel.size()
    after, before = (rank + 1) % n, (rank - 1) % n
    x, w = jnp.asarray(values(rank)), [np.cos(values(r, 2)) for r in range(n)]

    def ring(x):
        y = oriel.sendrecv(x, x, before, after) * w[rank]
        return (oriel.sendrecv(y, y, before, after, tag="again") ** 2).sum()

    def twice(x):  # with one tag
        y = oriel.sendrecv(x, x, before, after) * w[rank]
        return (oriel.sendrecv(y, y, before, after) ** 2).sum()

    wanted = 2 * values(rank) * w[after] ** 2  # rank + 2 has x * w of rank + 1
    for function in (ring, twice):
        near(jax.grad(function)(x), wanted)
        near(jax.jit(jax.grad(function))(x), wanted)
    step = np.sin(np.arange(6).reshape(SHAPE))
    there = [values(r) * w[(r + 1) % n] for r in range(n)]
    near(jax.jacrev(ring)(x), wanted)  # which vmap makes of the cotangents
    near(jax.jit(jax.jacfwd(lambda x: oriel.sendrecv(x, x, before, after)))(x).sum((2, 3)), 1.0)
    tangent = jax.jvp(ring, (x,), (jnp.asarray(step),))[1]
    near(tangent, (2 * there[before - 1] * (step * w[before])).sum())

    if rank == 0:
        got = jax.jit(jax.grad(lambda x: (oriel.send(x**2, 1) * w[0]).sum()))(x)
        near(got, 2 * values(0) * (w[0] + w[1]))
    elif rank == 1:
        got = jax.jit(jax.grad(lambda x: (oriel.recv(x, 0) * w[1] + x).sum()))(x)
        near(got, np.ones(SHAPE))


def check_vmap():
    """Each end maps another dimension; it stays one message."""
    rank, n = oriel.rank(), oriel.size()
    after, before = (rank + 1) % n, (rank - 1) % n
    dim = rank % 2
    x = np.moveaxis(values(rank), 0, dim)
    mapped = jax.vmap(lambda v: oriel.sendrecv(v, v, before, after), in_axes=dim, out_axes=dim)
    for function in (mapped, jax.jit(mapped)):
        near(function(jnp.asarray(x)), np.moveaxis(values(before), 0, dim))


def check_groups_and_trees():
    """Ranks are places in the group, and messages of groups do not mix."""
    rank, n = oriel.rank(), oriel.size()
    turned = oriel.group(range(n - 1, -1, -1))
    tree = {
        "a": jnp.full(3, rank, jnp.int32),
        "b": (jnp.asarray(values(rank)), jnp.bool_(rank % 2)),
    }
    if rank == 0:
        oriel.send(tree, n - 1)
        oriel.send(jax.tree.map(lambda x: x[..., None], tree), 0, group=turned)
    elif rank == n - 1:
        got = oriel.recv(jax.tree.map(lambda x: x[..., None], tree), n - 1, group=turned)
        near(got["b"][0][..., 0], values(0))
        got = oriel.recv(tree, 0)
        near(got["a"], np.zeros(3))
        near(got["b"][0], values(0))
        assert not got["b"][1]
    own = oriel.sendrecv(tree, tree, rank, rank)
    near(own["a"], tree["a"])


def check_permutations():
    """Of two ranks, as many as there are messages, and less where two go both ways."""
    rank, n = oriel.rank(), oriel.size()
    after, before = (rank + 1) % n, (rank - 1) % n
    count = 1 if n == 2 else 2
    tree = {"a": jnp.asarray(values(rank, 7)), "b": [jnp.arange(4) + rank, jnp.ones(0)]}

    def shift(x):
        return oriel.sendrecv(x, x, before, after)

    text = jax.jit(shift).lower(tree).as_text()
    assert text.count("custom_call @oriel_") == text.count("@oriel_permute") == 2 * count, text
    for function in (shift, jax.jit(shift)):
        got = function(tree)
        near(got["a"], values(before, 7))
        near(got["b"][0], np.arange(4) + before)
        assert got["b"][1].shape == (0,)

    def tagged(x):
        return mpi.sendrecv(x, x, before, after, sendtag=rank, recvtag=before)

    near(jax.jit(tagged)(tree["a"]), values(before, 7))
    near(jax.jit(jax.grad(lambda x: (tagged(x) ** 2).sum()))(tree["a"]), 2 * values(rank, 7))
    turned = oriel.group([1, 0])
    if rank == 0:
        got = jax.jit(lambda x: oriel.sendrecv([x, 2 * x], [x], 0, 0, group=turned))(tree["a"])
        near(got[0], values(1, 7))
    elif rank == 1:
        got = jax.jit(lambda x: oriel.sendrecv([x], [x, x], 1, 1, group=turned))(tree["a"])
        near(got[0], values(0, 7))
        near(got[1], 2 * values(0, 7))
    if rank < 2:
        x = jnp.ones(3)
        other = 1 - rank
        refused(lambda: oriel.sendrecv(x, x[:2], other, other), ValueError, "like is float64[2]")


def check_dtypes():
    rank = oriel.rank()
    for name in ("bool", "int8", "uint16", "float16", "bfloat16", "complex64", "float8_e5m2"):
        x = jnp.arange(5).astype(name)
        if rank == 0:
            oriel.send(x, 1)
            oriel.send(x[:0], 1)
        elif rank == 1:
            got = oriel.recv(x, 0)
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(x))
            assert oriel.recv(x[:0], 0).shape == (0,)


def refused(function, kind, words):
    try:
        function()
        raise AssertionError(f"accepted: {words}")
    except kind as error:
        assert words in str(error), error


def check_errors():
    rank, n = oriel.rank(), oriel.size()
    x = jnp.ones(3)
    refused(lambda: oriel.send(x, rank), ValueError, f"dest is {rank}, which is this rank itself")
    refused(lambda: oriel.recv(x, n), ValueError, f"source is {n}, but there are {n} ranks")
    refused(lambda: oriel.send(x, 0.5), TypeError, "dest must be a whole number, got 0.5")
    refused(lambda: oriel.send(x, (rank + 1) % n, tag=""), TypeError, "tag must be a text")
    refused(lambda: oriel.send("x", 1 - rank if rank < 2 else 0), TypeError, "takes arrays")
    refused(lambda: oriel.sendrecv(x, x[:1], rank, rank), ValueError, "sends shape (3,) to itself")


def check_as_on_cpus():
    for count in (1, 5_000, 700_000):
        check_both_send_first(count)
    check_more_than_there_is_room_for()
    check_sendrecv_is_one_call()
    check_sendrecv_meets_send_and_recv()
    check_trees_of_sendrecv()
    check_sendrecv_derivatives()
    check_groups_and_trees()


def main():
    jax.config.update("jax_enable_x64", True)
    oriel.init(distributed=False)
    message.PERMUTES = "permutes" in sys.argv
    if message.PERMUTES:
        check_permutations()
    else:
        check_as_on_cpus()
    check_order()
    check_derivatives()
    check_vmap()
    check_dtypes()
    check_errors()
    report(ok=True)


main()
