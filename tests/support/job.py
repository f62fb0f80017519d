"""Starts the C test programs as jobs: under `oriel run`, or by hand, process by
process. Nothing a test starts outlives it."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD_DIR", "build/normal")
ORIEL = os.environ.get("ORIEL_BIN") or str(BUILD / "oriel")
PROGRAMS = Path(os.environ.get("ORIEL_TEST_PROGRAMS") or BUILD / "tests")
# An unoptimised or instrumented build on a busy machine needs patience, a hang
# needs an end.
LIMIT = 90
OPERATIONS = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "permute",
    "barrier",
    "ragged_all_to_all",
    "gather",
    "scatter",
    "reduce",
    "scan",
]
# Full counts, for `make soak`.
SOAK = bool(os.environ.get("SOAK"))


def environment(**options):
    """A plain environment; `chunk="1K"` sets ORIEL_CHUNK."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ORIEL_")}
    env.update({f"ORIEL_{name.upper()}": str(value) for name, value in options.items()})
    return env


def program(name):
    return str(PROGRAMS / name)


def fresh_store():
    return f"unix:@oriel-test-{uuid.uuid4().hex[:16]}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Output:
    status: int
    text: str

    def lines(self, process=None):
        """What the processes printed, without the launcher's tags."""
        tag = r"\d+" if process is None else str(process)
        return re.findall(rf"^\[{tag}\] (.*)$", self.text, re.M)


def slowness():
    """How many times longer than alone a process takes here at the moment: the real time of a
    computation by its CPU time, 1 at least. Times that are promises, as "told within 3 s", are
    those of a machine with a core for each that is told: tests allow so many times as much."""
    begun, cpu = time.monotonic(), time.thread_time()
    while time.thread_time() - cpu < 0.03:
        pass
    return max(1.0, (time.monotonic() - begun) / (time.thread_time() - cpu))


def check_told(text, times, within, word="told"):
    """The `times` lines "told after T s" of processes, each in time."""
    told = [float(seconds) for seconds in re.findall(rf"{word} after ([\d.]+) s", text)]
    assert len(told) == times, text
    assert max(told) < within * slowness(), text


def end_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def bind_to_one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def run(processes, name, *arguments, limit=LIMIT, one_core=False, **options):
    """A whole job under `oriel run`; its output goes to a file, so that a process
    left behind holds no pipe open."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        child = subprocess.Popen(
            [ORIEL, "run", "-n", str(processes), "--", program(name), *map(str, arguments)],
            env=environment(**options),
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=bind_to_one_core if one_core else None,
        )
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(child)
        out.seek(0)
        output = Output(status, out.read())
    assert status is not None, f"not done within {limit} s:\n{output.text}"
    return output


def check(processes, name, *arguments, **keywords):
    """A job that must succeed."""
    output = run(processes, name, *arguments, **keywords)
    assert output.status == 0, output.text
    return output


class Process:
    """One process of a job that is started by hand; `env`: variables that are no options."""

    def __init__(
        self,
        name,
        *arguments,
        prefix=(),
        one_core=False,
        env=None,
        stdin=subprocess.DEVNULL,
        **options,
    ):
        more = {name: str(value) for name, value in (env or {}).items()}
        self.out = tempfile.TemporaryFile("w+", errors="replace")
        self.child = subprocess.Popen(
            [*prefix, program(name), *map(str, arguments)],
            env=environment(**options) | more,
            stdout=self.out,
            stderr=self.out,
            stdin=stdin,
            start_new_session=True,
            preexec_fn=bind_to_one_core if one_core else None,
        )

    def text(self):
        # The descriptor is shared with the child: do not move its position.
        return os.pread(self.out.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_for_line(self, line, limit=LIMIT):
        deadline = time.monotonic() + limit
        while line not in self.text().splitlines():
            assert self.child.poll() is None, self.text()
            assert time.monotonic() < deadline, f"no line {line!r}:\n{self.text()}"
            time.sleep(0.005)

    def wait(self, limit=LIMIT):
        """Its exit status and what it printed."""
        try:
            status = self.child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(self.child)
        text = self.text()
        self.out.close()
        assert status is not None, f"not done within {limit} s:\n{text}"
        return status, text

    def end(self):
        end_group(self.child)
        self.out.close()
