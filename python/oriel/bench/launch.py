"""Starts the processes of a benchmark and reads what they print."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[3]  # of a source tree
_THREADS_PER_DEVICE = 4
_LEAST_THREADS = 16


class LaunchError(Exception):
    """A sentence for the person at the keyboard."""


def find_command():
    """The `oriel` command: beside this Python, on PATH, or built in the tree."""
    beside = pathlib.Path(sys.executable).parent / "oriel"
    built = [_ROOT / "build" / "oriel", _ROOT / "build" / "normal" / "oriel"]
    for place in (beside, shutil.which("oriel"), *built):
        if place is not None and os.access(place, os.X_OK):
            return str(place)
    raise LaunchError(
        f"there is no oriel command at {beside}, on PATH or in {_ROOT / 'build'}, and several "
        "processes need it: install the oriel package, or build the source tree"
    )


def lines(command, environment=None, **options):
    """Yields the lines a command prints; raises when it fails."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)
    # So that a kill of this process ends the others too.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield from child.stdout
    except BaseException:
        child.terminate()
        raise
    finally:
        child.stdout.close()
        code = child.wait()
        signal.signal(signal.SIGTERM, before)
    if code != 0:
        raise LaunchError(f"the measuring processes ended with exit code {code}; see above")


def _command(plan):
    worker = [sys.executable, "-m", "oriel.bench.worker", plan.to_json()]
    if plan.processes == 1:
        return worker
    return [find_command(), "run", "-n", str(plan.processes), "--no-tag", "--", *worker]


def _environment(plan):
    """Equal pools for all that is measured, whatever importing oriel chose here."""
    threads = max(_LEAST_THREADS, _THREADS_PER_DEVICE * plan.devices)
    return os.environ | {"PJRT_NPROC": str(threads)}


def reports(plan):
    """Yields, for each size in order, the reports of all processes of JAX."""
    arrived = {nbytes: [] for nbytes in plan.sizes}
    for text in lines(_command(plan), _environment(plan)):
        report = json.loads(text)
        same = arrived[report["bytes"]]
        same.append(report)
        if len(same) == plan.processes:
            yield same
