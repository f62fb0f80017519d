"""Messages that do not arrive, each in a world of its own. Rank 0 sends, rank 1 receives: shape (another one
is received), late (rank 1 sends nothing), taken (rank 1 does not receive what rank 0 has left, and
rank 0 hears of it in finalize), turns (rank 1 transposes one message by itself, rank 0 two), both
(another one is received by a sendrecv), half (rank 1 sends to a sendrecv, and receives nothing). lost.py permutes: as on GPUs, besides
first (both ranks send before they receive) and mixed (a sendrecv meets a send)"""

import sys

import jax
import jax.numpy as jnp
import oriel
from common import report
from oriel._collectives import message

LARGE = 1 << 20


def shape():
    if oriel.rank() == 0:
        oriel.send(jnp.ones(3), 1)
    else:
        oriel.recv(jnp.ones((3, 1)), 0).block_until_ready()


def late():
    if oriel.rank() == 0:
        oriel.recv(jnp.ones(3), 1).block_until_ready()


def taken():
    if oriel.rank() == 0:
        oriel.send(jnp.ones(LARGE), 1)


def turns():
    x = jnp.ones(3)
    if oriel.rank() == 0:
        ends = lambda x: (oriel.send(oriel.send(x, 1), 1)).sum()  # noqa: E731
        jax.jit(jax.grad(ends))(x).block_until_ready()
    else:
        for _ in range(2):
            jax.jit(jax.grad(lambda x: oriel.recv(x, 0).sum()))(x).block_until_ready()


def both():
    x = jnp.ones(3)
    sent = x if oriel.rank() == 0 else x[:, None]
    oriel.sendrecv(sent, x, 1 - oriel.rank(), 1 - oriel.rank()).block_until_ready()


def half():
    if oriel.rank() == 0:
        oriel.sendrecv(jnp.ones(LARGE), jnp.ones(3), 1, 1).block_until_ready()
    else:
        oriel.send(jnp.ones(3), 0)


def first():
    x = jnp.ones(3)
    oriel.send(x, 1 - oriel.rank())
    oriel.recv(x, 1 - oriel.rank()).block_until_ready()


def mixed():
    x = jnp.ones(3)
    if oriel.rank() == 0:
        oriel.sendrecv(x, x, 1, 1).block_until_ready()
    else:
        oriel.send(x, 0).block_until_ready()
        oriel.recv(x, 0).block_until_ready()


def until_told():
    while True:
        oriel.check()


def text_of(how):
    try:
        oriel.init(distributed=False)
        how()
        if how in (late, half) and oriel.rank() == 1:
            until_told()
        oriel.finalize()
        return ""
    except Exception as error:
        return str(error)


def main():
    message.PERMUTES = "permutes" in sys.argv
    cases = (shape, late, taken, turns, both, half)
    for how in (shape, late, both, first, mixed) if message.PERMUTES else cases:
        report(how=how.__name__, text=text_of(how))
        try:
            oriel.finalize()
        except oriel.OrielError:
            pass  # it was told


main()
