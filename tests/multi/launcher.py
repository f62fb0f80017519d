"""Starts the command `oriel` for tests, each time with a mark in its environment."""

import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import termios
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 60  # seconds: a hang needs an end; no test needs more than a few


def find_command():
    if "ORIEL_BIN" in os.environ:
        return os.environ["ORIEL_BIN"]
    folder = ROOT / os.environ.get("BUILD_DIR", "build/normal")
    return str(folder / "oriel" if (folder / "oriel").exists() else ROOT / "build" / "oriel")


ORIEL = find_command()


def marked_processes(mark):
    """Those with the mark in their environment that have not ended."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                found.append((int(entry.name), (entry / "comm").read_text().strip()))
        except OSError:
            continue
    return found


def marked_process_named(name, mark):
    """The one with the mark that has taken this name, once it has."""
    deadline = time.monotonic() + LIMIT
    while not (found := [pid for pid, comm in marked_processes(mark) if comm == name]):
        assert time.monotonic() < deadline, f"no {name}: {marked_processes(mark)}"
        time.sleep(0.01)
    (pid,) = found
    return pid


def wait_for_end(pidfds):
    """Waits until every process behind the descriptors has ended."""
    deadline = time.monotonic() + LIMIT
    for fd in pidfds:
        ready = select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]
        assert ready, "a process is still alive"
        os.close(fd)


needs_mpirun = pytest.mark.skipif(
    not shutil.which("mpirun"), reason="mpirun is not installed (openmpi-bin)"
)


def mpirun_command(n, *words):
    return [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        str(n),
        *map(str, words),
    ]


class Launcher:
    """The command under test, started with plain signals and a mark."""

    def __init__(self):
        self.mark = f"ORIEL_TEST_MARK_{uuid.uuid4().hex}"
        self.started = []

    def environment(self, extra=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("ORIEL_")}
        env[self.mark.removeprefix("ORIEL_")] = self.mark
        env.update(extra or {})
        return env

    def start(self, *args, env=None, ignore=(), terminal=None, command=ORIEL, **options):
        def prepare():
            # A test run in the background may ignore SIGINT.
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN if number in ignore else signal.SIG_DFL)
            if terminal is not None:
                os.setsid()
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        process = subprocess.Popen(
            [command, *map(str, args)],
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            env=self.environment(env),
            preexec_fn=prepare,
            **options,
        )
        if terminal is not None:
            os.close(terminal)
        self.started.append(process)
        return process

    def run(self, *args, **options):
        process = self.start(*args, **options)
        out, err = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(args, process.returncode, out.decode(), err.decode())

    def sh(self, n, script, *options, **more):
        return self.run("run", "-n", n, *options, "--", "sh", "-c", script, **more)

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=LIMIT)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def lines_of(text, process):
    tag = f"[{process}] "
    return [line.removeprefix(tag) for line in text.splitlines() if line.startswith(tag)]


def read_until(stream, pattern):
    """Reads lines until one matches; the command's own deadlines bound it."""
    for line in stream:
        found = re.search(pattern, line.decode())
        if found:
            return found
    raise AssertionError(f"the output ended without {pattern!r}")


def read_numbers(stream, count):
    """One number from each of `count` lines "[i] number"."""
    return [int(read_until(stream, r"\] (\d+)$")[1]) for _ in range(count)]


def findings_of(done):
    """What `oriel doctor --json` printed, by name."""
    report = json.loads(done.stdout)
    assert set(report) == {"version", "findings", "cuda"}
    for finding in report["findings"]:
        assert set(finding) == {"name", "status", "what", "why", "mend"}
        assert finding["status"] in ("ok", "warn", "missing", "error")
        assert finding["what"]
    found = {finding["name"]: finding for finding in report["findings"]}
    assert len(found) == len(report["findings"])
    return found
