"""One process of a job whose init or finalize goes wrong: worlds.py HOW MODE

MODE: global (jax.distributed) or local. HOW: early (process 1 makes one call less), platform
(process 1 asks for devices that it has not), dies (process 1 kills itself in init), kept (a second
init of a failed world), init (waits there), thread (waits there in another thread), finalize
(process 0 waits there), compile (renewals compile nothing), timeout and name (process 1 gives init
a wrong one, and does not come again), flight (finalize while programs that nobody has looked at
have yet to begin), alone (those of process 0, which the others never run), unmade (process 1 is
interrupted when the others have their world)"""

import os
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report
from jax import monitoring
from oriel import _lib, _world

HOW, MODE = sys.argv[1:3]
DISTRIBUTED = False if MODE == "local" else None


def init(**more):
    oriel.init(distributed=DISTRIBUTED, **more)


def make_step():
    return jax.jit(lambda v: oriel.all_reduce(v))


def check(step):
    got = step(jnp.full(3, oriel.rank(), jnp.float32))
    np.testing.assert_array_equal(got, sum(range(oriel.size())))


def tell(error):
    report(
        at=time.monotonic(),
        text=str(error),
        kind=type(error).__name__,
        status=getattr(getattr(error, "status", None), "name", None),
    )


def attempt(function, *arguments, **keywords):
    """Whether it went well; else it says what was wrong."""
    try:
        function(*arguments, **keywords)
    except (Exception, KeyboardInterrupt) as error:
        tell(error)
        return False
    return True


def early():
    init()
    step = make_step()
    check(step)
    me = oriel.process_id()
    report(left=time.monotonic())
    if me != 1:
        assert not attempt(check, step)
    attempt(oriel.finalize)
    init()
    check(jax.jit(lambda v: oriel.all_reduce(v + 1) - oriel.size()))
    report(ok=True)


def platform():
    me = int(os.environ["ORIEL_PROCESS_ID"])
    assert not attempt(init, platform="cuda" if me == 1 else None)
    init()
    check(make_step())
    report(ok=True)


def argument(name, value):
    wrong = {name: value} if int(os.environ["ORIEL_PROCESS_ID"]) == 1 else {}
    assert not attempt(init, **wrong)


@jax.jit
def add_slowly(value):
    """Adds nothing: what takes it is dispatched long before it begins."""
    return value + jax.lax.fori_loop(0, 1000, lambda _, v: jnp.sin(v), jnp.zeros(10_000)).sum()


def flight():
    init()
    n = oriel.size()
    step = jax.jit(lambda v: oriel.all_reduce(v) / n)
    value = add_slowly(jnp.full(3, oriel.rank() + 1.0))
    for _ in range(5):
        value = step(value)
    assert attempt(oriel.finalize)
    np.testing.assert_array_equal(value, (n + 1) / 2)
    report(ok=True)


def alone():
    init()
    step = make_step()
    check(step)
    held = [step(add_slowly(jnp.ones(3)))] if oriel.process_id() == 0 else []
    attempt(oriel.finalize)
    report(ok=True, held=len(held))


def dies():
    if int(os.environ["ORIEL_PROCESS_ID"]) == 1:
        _world._find_devices = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    assert not attempt(init)


def unmade():
    if int(os.environ["ORIEL_PROCESS_ID"]) == 1:

        def interrupted(**_):
            raise KeyboardInterrupt

        made, _world.World = _world.World, interrupted
        assert not attempt(init)
        _world.World = made
    else:
        init()
        assert not attempt(check, make_step())
        oriel.finalize()
    init()
    check(make_step())
    report(ok=True)


def kept():
    init()
    if oriel.process_id() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    assert not attempt(check, make_step())
    assert not attempt(init)
    oriel.finalize()
    oriel.init(process_id=0, num_processes=1, distributed=False)
    report(ok=True)


def wait_in_init():
    print("in", flush=True)
    assert not attempt(init)


def wait_in_thread():
    threading.Thread(target=wait_in_init).start()
    threading.Event().wait()  # a join that is interrupted takes the thread for one that has ended


def finalize():
    init()
    check(make_step())
    if oriel.process_id() == 0:
        assert not attempt(oriel.finalize)
        sys.stdin.read()  # until process 1 has heard of it
        return
    while _lib.load().oriel_comm_leaving(_world.current().comm) == 0:
        time.sleep(0.001)
    print("process 0 waits", flush=True)
    sys.stdin.read()  # until process 0 has been interrupted
    assert not attempt(check, make_step())


def compile():
    compiled = []
    monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "compile" in event else None
    )
    init()
    step = make_step()
    check(step)
    assert compiled
    operand = jnp.full(3, oriel.rank(), jnp.float32)
    for _ in range(3):
        compiled.clear()
        oriel.finalize()
        init()
        got = step(operand)
        assert not compiled, compiled
        np.testing.assert_array_equal(got, sum(range(oriel.size())))
    report(ok=True)


{
    "early": early,
    "platform": platform,
    "timeout": lambda: argument("timeout", -1),
    "name": lambda: argument("platform", "abacus"),
    "flight": flight,
    "alone": alone,
    "dies": dies,
    "unmade": unmade,
    "kept": kept,
    "init": wait_in_init,
    "thread": wait_in_thread,
    "finalize": finalize,
    "compile": compile,
}[HOW]()
