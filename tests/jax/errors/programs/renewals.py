"""One of several processes whose worlds fail and are renewed: renewals.py SEED ROUNDS START

In each round one process does what `plan` says, and all find a world again. A process that kills
itself says in which round; a process that takes its place starts in the next. All learn the round
from process 0, since one that is interrupted may have missed a world."""

import ctypes
import os
import random
import signal
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report
from oriel import _lib, _world

CALLS = 5  # of a round
TRIES = 4  # to find a world
KINDS = ("raise", "platform", "kill", "interrupt", "good")


def plan(seed, number, processes, rounds):
    """What happens in a round, to which process, before which call, and after how many seconds.
    Nothing in the last one: a process that is interrupted there has come to its end, and the
    others would wait for it in vain."""
    draw = random.Random(f"{seed} {number}")
    kind = draw.choice(KINDS) if number < rounds - 1 else "good"
    return kind, draw.randrange(processes), draw.randrange(CALLS), draw.random() / 5


def say(number, kind, victim, error):
    report(number=number, kind=kind, victim=victim, text=str(error), name=type(error).__name__)


def share(number):
    """Process 0's."""
    text = ctypes.create_string_buffer(str(number).encode(), 16)
    _lib.call("oriel_comm_share", _world.current().comm, 0, text, len(text), 0.0)
    return int(text.value)


def find_world(number, kind, victim):
    """By init, which fails on all if it fails on one."""
    me = int(os.environ["ORIEL_PROCESS_ID"])
    for i in range(TRIES):
        platform = "cuda" if kind == "platform" and victim == me and i == 0 else None
        try:
            oriel.init(distributed=False, platform=platform)
            return share(number)
        except oriel.OrielError as error:
            say(number, kind, victim, error)
            end_world()
    raise SystemExit(f"no world in {TRIES} tries")


def end_world():
    """What failed has been said by then, but not to the one that calls no more."""
    try:
        oriel.finalize()
    except oriel.OrielError:
        pass


def call(number, kind, victim, at):
    """Each world has a program of its own: how often a process has run one is counted."""
    step = jax.jit(lambda v: oriel.all_reduce(v + number))
    me, n = oriel.process_id(), oriel.size()
    for i in range(CALLS):
        if kind in ("kill", "raise") and (me, i) == (victim, at):
            if kind == "kill":
                report(killed=number)
                os.kill(os.getpid(), signal.SIGKILL)
            return
        got = step(jnp.full(3, me, jnp.float32))
        np.testing.assert_array_equal(got, sum(range(n)) + number * n)


class Interrupt:
    """A Ctrl-C somewhere in a round, and nowhere else."""

    def __init__(self):
        self.armed = False
        signal.signal(signal.SIGINT, self.raise_it)

    def raise_it(self, *_):
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def come_after(self, seconds):
        self.armed = True
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def play(seed, number, processes, rounds, interrupt):
    """A round; the number that it had."""
    me = int(os.environ["ORIEL_PROCESS_ID"])
    kind, victim, at, after = plan(seed, number, processes, rounds)
    try:
        if (kind, victim) == ("interrupt", me):
            interrupt.come_after(after)
        number = find_world(number, kind, victim)
        kind, victim, at, _ = plan(seed, number, processes, rounds)
        call(number, kind, victim, at)
        end_world()
        interrupt.armed = False
    except (jax.errors.JaxRuntimeError, ValueError, KeyboardInterrupt) as error:
        interrupt.armed = False
        say(number, kind, victim, error)
    end_world()
    return number


def main():
    seed, rounds, number = map(int, sys.argv[1:])
    processes = int(os.environ["ORIEL_NUM_PROCESSES"])
    # JAX imports parts of itself when it first needs them, and is of no use after a Ctrl-C there.
    jax.block_until_ready(jax.jit(lambda v: v + 1)(jnp.full(3, 1, jnp.float32)))
    interrupt = Interrupt()
    while number < rounds:
        number = play(seed, number, processes, rounds, interrupt) + 1
    report(ended=number)


if __name__ == "__main__":
    main()
