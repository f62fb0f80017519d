"""oriel.mpi over any number of processes with one device each, as its programs are: with rank
constants and rank branches, in jit, grad and vmap, against NumPy."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import oriel.mpi as mpi
from common import report
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

SHAPE = 2, 3


def values(rank, shape=SHAPE):
    return np.random.default_rng(rank).integers(1, 9, size=shape).astype(float)


def near(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def table(n):
    return np.stack([values(r) for r in range(n)])


REDUCTIONS = {
    mpi.SUM: np.add,
    mpi.PROD: np.multiply,
    mpi.MIN: np.minimum,
    mpi.MAX: np.maximum,
    mpi.LAND: np.logical_and,
    mpi.LOR: np.logical_or,
    mpi.LXOR: np.logical_xor,
    mpi.BAND: np.bitwise_and,
    mpi.BOR: np.bitwise_or,
    mpi.BXOR: np.bitwise_xor,
}


def cases(rank, n, root):
    """name: (function, what this rank gives, what it gets)"""
    mine, all_of = values(rank), table(n)
    blocks = np.stack([values(n * rank + i) for i in range(n)])
    from_all = np.stack([values(n * r + rank) for r in range(n)])
    spread = np.stack([values(100 + i) for i in range(n)])
    return {
        "allgather": (mpi.allgather, mine, all_of),
        "allreduce": (lambda x: mpi.allreduce(x, mpi.SUM), mine, all_of.sum(0)),
        "alltoall": (mpi.alltoall, blocks, from_all),
        "bcast": (lambda x: mpi.bcast(x, root), mine, all_of[root]),
        "gather": (lambda x: mpi.gather(x, root), mine, all_of if rank == root else mine),
        "reduce": (
            lambda x: mpi.reduce(x, mpi.SUM, root),
            mine,
            all_of.sum(0) if rank == root else mine,
        ),
        "scan": (lambda x: mpi.scan(x, mpi.SUM), mine, all_of[: rank + 1].sum(0)),
        "scatter": (
            lambda x: mpi.scatter(x, root),
            spread if rank == root else np.zeros(SHAPE),
            spread[rank],
        ),
        "sendrecv": (
            lambda x: mpi.sendrecv(x, x, (rank - 1) % n, (rank + 1) % n),
            mine,
            all_of[rank - 1],
        ),
    }


MAPPED = "allreduce", "bcast", "reduce", "scan", "sendrecv"


def check_values(rank, n):
    """By hand; all in one program; and vmap over a dimension that stays where it is."""
    for function, given, wanted in cases(rank, n, n - 1).values():
        near(function(jnp.asarray(given)), wanted)
    table = cases(rank, n, 0)

    @jax.jit
    def at_once(given):
        results = {name: function(given[name]) for name, (function, *_) in table.items()}
        for name in MAPPED:
            mapped = jax.vmap(table[name][0], in_axes=1, out_axes=1)
            results[f"{name} mapped"] = mapped(given[name])
        return results

    results = at_once({name: jnp.asarray(given) for name, (_, given, _) in table.items()})
    for name, got in results.items():
        near(got, table[name.removesuffix(" mapped")][2])


def check_reductions(rank, n):
    """Of integers; and rank constants that are Python's."""
    draw = np.random.default_rng(3).integers(0, 4, size=(n, 7))
    results = jax.jit(
        lambda x: {
            op: (mpi.allreduce(x, op), mpi.scan(x, op), mpi.reduce(x, op, 0)) for op in REDUCTIONS
        }
    )(jnp.asarray(draw[rank]))
    for op, combine in REDUCTIONS.items():
        given = draw.astype(bool) if op.startswith("L") else draw
        total = combine.reduce(given)
        near(results[op][0], total)
        near(results[op][1], combine.accumulate(given)[rank])
        near(results[op][2], total if rank == 0 else draw[rank])
    near(mpi.allreduce(rank, mpi.SUM), sum(range(n)))
    near(jax.jit(lambda: mpi.allgather(rank + 0.5))(), np.arange(n) + 0.5)
    assert mpi.allreduce(rank == 0, mpi.LOR).dtype == bool


def check_derivatives(rank, n):
    """The transpose of a sum is the identity, and that of this the sum."""
    x, w = jnp.asarray(values(rank)), jnp.asarray(np.cos(values(rank)))

    def total(x):
        return mpi.allreduce(x, mpi.SUM)

    def back(y):
        return jax.linear_transpose(total, x)(y)[0]

    @jax.jit
    def derive(x, w):
        return (
            jax.grad(lambda x: (total(x**2) * w).sum())(x),
            back(w),
            jax.linear_transpose(back, x)(x)[0],
            jax.jvp(total, (x,), (2 * x,))[1],
        )

    wanted = 2 * x * w, w, table(n).sum(0), 2 * table(n).sum(0)
    for got, right in zip(derive(x, w), wanted):
        near(got, right)
    near(jax.grad(lambda v: total(v) + 3 * total(v))(2.0), 4.0)

    def round_ring(x):
        return (mpi.sendrecv(x, x, (rank - 1) % n, (rank + 1) % n) * (rank + 1)).sum()

    near(jax.jit(jax.grad(round_ring))(x), np.full(SHAPE, (rank + 1) % n + 1.0))
    try:
        jax.grad(lambda x: mpi.recv(x, (rank + 1) % n).sum())(x)
        raise AssertionError("recv has a derivative")
    except NotImplementedError as error:
        assert "sendrecv has" in str(error)


def check_branches(rank, n):
    """Calls of a communicator belong together by their order, wherever they stand."""

    def step(x):
        if rank == 0:
            x = mpi.bcast(x + 1, 0)
            for other in range(1, n):
                mpi.send(x * other, other, tag=other)
            got = x * 0
            for other in range(1, n):
                got += mpi.recv(x, other, tag=7)
        else:
            x = mpi.bcast(x, 0)
            got = mpi.recv(x, 0, tag=rank)
            mpi.send(got, 0, tag=7)
        mpi.barrier()
        inner = jax.jit(lambda v: mpi.allreduce(v, mpi.MAX))
        got = jax.lax.fori_loop(0, 2, lambda i, v: inner(v) + mpi.scan(v * 0, mpi.SUM), got)
        return mpi.allreduce(got, mpi.SUM)

    most = max(n - 1, n * (n - 1) // 2)
    for function in (step, jax.jit(step)):
        near(function(jnp.full(3, float(rank))), np.full(3, float(n * most)))


def check_groups(rank, n):
    some = oriel.group([n - 1, 0])
    if some.index is not None:
        near(mpi.allgather(rank, comm=some), [n - 1, 0])
        other = 1 - some.index
        near(mpi.sendrecv(rank, rank, other, other, comm=some), some.ranks[other])
        near(mpi.recv(rank, comm=some) if rank else _sent(rank, some), 0)


def check_tags(rank, n):
    """Each rank names the tag of what it sends alone; and both."""
    before, after = (rank - 1) % n, (rank + 1) % n
    for tags in ({"sendtag": 3}, {"sendtag": rank, "recvtag": before}):
        status = Status()
        near(mpi.sendrecv(rank, rank, before, after, status=status, **tags), before)
        assert (status.source, status.tag) == (before, tags.get("recvtag", 3))


class Status:
    """As mpi4py's."""

    def Set_source(self, source):
        self.source = source

    def Set_tag(self, tag):
        self.tag = tag


class Op:
    """As mpi4py's, like the next one."""


class Comm:
    def __init__(self, ranks):
        self.ranks = list(ranks)

    def Get_rank(self):
        return self.ranks.index(oriel.rank())

    def Get_size(self):
        return len(self.ranks)

    def Get_group(self):
        return self.ranks


def translate_ranks(group, places, world):
    return [world.index(group[place]) for place in places]


def check_mpi4py(rank, n):
    """What a program takes of mpi4py's, with the numbers that MPICH has."""
    ops = {name: Op() for name in ("MAXLOC", *mpi._NAMES)}
    module = types.SimpleNamespace(Op=Op, Intracomm=Comm, ANY_SOURCE=-2, COMM_WORLD=Comm(range(n)))
    module.Group = types.SimpleNamespace(Translate_ranks=translate_ranks)
    vars(module).update(ops)
    sys.modules["mpi4py.MPI"] = module
    near(mpi.allreduce(rank, ops["MAX"], comm=module.COMM_WORLD), n - 1)
    near(mpi.allgather(rank, comm=Comm(reversed(range(n)))), np.arange(n)[::-1])
    refused(lambda: mpi.allreduce(rank, ops["MAXLOC"]), ValueError, "op must be one of SUM, PROD")
    if n == 2:
        near(mpi.sendrecv(rank, rank, module.ANY_SOURCE, 1 - rank), 1 - rank)
    module.COMM_WORLD = Comm(range(n + 1))
    refused(lambda: mpi.barrier(comm=Comm([rank])), ValueError, f"of {n + 1} in MPI's")
    del sys.modules["mpi4py.MPI"]


def _sent(rank, some):
    mpi.send(rank, 0, comm=some)
    return rank


def refused(function, kind, words):
    try:
        function()
        raise AssertionError(f"accepted: {words}")
    except kind as error:
        assert words in str(error), error


def check_errors(rank, n):
    x = jnp.ones((n + 1, 2))
    refused(lambda: mpi.alltoall(x), ValueError, "must have shape (nproc, ...)")
    refused(lambda: mpi.allreduce(x, "mean"), ValueError, "op must be one of SUM, PROD")
    refused(lambda: mpi.allreduce(x, mpi.BAND), TypeError, "BAND takes integers and booleans")
    refused(lambda: mpi.allreduce(x, mpi.SUM, token=None), RuntimeError, "leave token= out")
    other = oriel.group([(rank + 1) % n])
    inside = jax.shard_map(
        lambda v: mpi.allreduce(v, mpi.SUM),
        mesh=Mesh(jax.devices(), "x"),
        in_specs=P(),
        out_specs=P(),
    )
    refused(lambda: mpi.allreduce(x, mpi.SUM, comm=other), ValueError, "only its members make")
    refused(
        lambda: inside(x), ValueError, "mpi.allreduce without axis_name is over the whole world"
    )
    refused(lambda: mpi.allreduce(x.astype("int4"), mpi.SUM), TypeError, "not take dtype int4")
    refused(lambda: mpi.bcast(x, 0, comm=3), TypeError, "comm must be an oriel.group")
    refused(lambda: mpi.send(x, 0, tag=1.5), TypeError, "tag must be a whole number")
    if n > 2:
        refused(lambda: mpi.recv(x), ValueError, "source must be a rank, got ANY_SOURCE")


def main():
    jax.config.update("jax_enable_x64", True)
    assert not oriel.is_initialized()
    mpi.barrier()  # the first call makes the world
    rank, n = oriel.rank(), oriel.size()
    for check in (
        check_values,
        check_reductions,
        check_derivatives,
        check_branches,
        check_groups,
        check_tags,
        check_mpi4py,
        check_errors,
    ):
        check(rank, n)
    report(ok=True)


main()
