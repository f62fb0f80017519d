"""The command under test."""

import os
import signal

import pytest
from launcher import Launcher, marked_processes


@pytest.fixture
def oriel():
    launcher = Launcher()
    yield launcher
    launcher.end()
    left = marked_processes(launcher.mark.encode())
    for pid, _ in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], "processes were left behind"
