"""Waits for other processes that a Ctrl-C ends, at the moments that a test of processes seldom
hits."""

import threading

import pytest
from oriel import _wait


@pytest.mark.parametrize("begun", [False, True])
def test_while_its_thread_starts(monkeypatch, begun):
    """The function runs once, whether or not a thread for it has begun, and is waited for."""
    start = threading.Thread.start

    def interrupted(thread):
        if begun:
            start(thread)
        raise KeyboardInterrupt

    made, undone = [], []

    def function():
        made.append(1)
        return len(made)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _wait.run(function, undo=undone.append)
    assert made == [1] and undone == [1]
