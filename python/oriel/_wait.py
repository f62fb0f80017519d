"""Waits for other processes that Ctrl-C ends.

A signal handler of Python's runs in the main thread, and not before a call into C has
returned. So such calls run in a thread of their own, for which the caller waits.
"""

import threading

from oriel import _lib

_LOOK = 0.05  # seconds between two looks at what else may end a wait


class _Call:
    """A function that runs in a thread of its own."""

    def __init__(self, function):
        self._function = function
        self._begun = threading.Lock()
        self._ended = threading.Event()
        self._result = self._error = None

    def start(self):
        try:
            threading.Thread(target=self.run, name="oriel-wait", daemon=True).start()
        except RuntimeError:  # Python is about to exit and starts no threads
            self.run()

    def run(self):
        """In the thread that comes first: what interrupts `start` may leave it without one."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def wait(self, seconds):
        return self._ended.wait(seconds)

    def result(self):
        if self._error is not None:
            raise self._error
        return self._result


def run(function, *, look=None, give_up=None, undo=None, leave=False):
    """What `function` returns, or raises.

    `look` is called while it runs, and may raise, as a signal handler may. Then the waits of the
    library end, which others hear of, after `give_up` if there is one; `undo` gets what came of
    the call all the same. `leave`: the function cannot be ended, and is left behind."""
    call = _Call(function)
    try:
        call.start()
        while not call.wait(_LOOK):
            if not threading.main_thread().is_alive():
                raise KeyboardInterrupt
            if look is not None:
                look()
    except BaseException as error:
        _end(call, error, give_up, undo, leave)
        raise
    return call.result()


def _end(call, error, give_up, undo, leave):
    lib = _lib.load()
    lib.oriel_interrupt(sentence_of(error).encode())
    try:
        if give_up is not None:
            give_up()
        if leave:
            return
        call.run()
        while not _wait_patiently(call):
            pass
        if undo is not None:
            undo(call.result())
    except Exception:
        pass  # what ended the call is already on its way
    finally:
        lib.oriel_interrupt(None)


def _wait_patiently(call):
    """Another Ctrl-C changes nothing: the call is about to end."""
    try:
        return call.wait(_LOOK)
    except KeyboardInterrupt:
        return False


def sentence_of(error):
    """What others are told of an error here."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted (Ctrl-C)"
    text = "".join(str(error).splitlines()[:1])
    if isinstance(error, _lib.OrielError):
        return text
    return f"{type(error).__name__}{': ' if text else ''}{text}"
