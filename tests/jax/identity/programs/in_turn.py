"""Runs the cases of a program one after the other, each in a world of its own, so that one that
fails leaves the next alone."""

import sys
import time
import traceback

import oriel
from common import report


def run_case(name, case):
    begun = time.monotonic()
    try:
        case()
        report(case=name, ok=True, seconds=time.monotonic() - begun)
    except Exception:
        report(case=name, ok=False, text=traceback.format_exc())
    try:
        oriel.finalize()
    except oriel.OrielError as error:
        print(f"{name}: {error}", file=sys.stderr)


def main(cases):
    """Of the module `cases`, those that the command line names."""
    for name in sys.argv[1:]:
        oriel.init()
        run_case(name, cases[name])
