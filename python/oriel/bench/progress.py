"""A bar on a terminal's stderr; nothing where stderr is no terminal."""

import sys

_WIDTH = 24


class Progress:
    def __init__(self, steps):
        self._steps = steps
        self._done = 0
        self._shown = sys.stderr.isatty()

    def show(self, text):
        """What is being done now."""
        filled = _WIDTH * self._done // max(self._steps, 1)
        bar = "━" * filled + "─" * (_WIDTH - filled)
        self._write(f"\r{bar} {self._done}/{self._steps}  {text}\x1b[K")

    def step(self):
        self._done += 1

    def clear(self):
        self._write("\r\x1b[K")

    def _write(self, text):
        if self._shown:
            sys.stderr.write(text)
            sys.stderr.flush()
