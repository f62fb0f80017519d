"""oriel bench: ours and its peers, measured side by side through jax.jit."""

import argparse
import json
import shlex
import sys

from oriel.bench import bars, launch, machine, plan, table

_METHOD = (
    "every repetition calls ours and each peer once, in random order, the same in all processes; "
    "the processes meet before each call; each call blocks until its result is ready; a call "
    "takes as long as its slowest process; medians over the repetitions; spread: distance of the "
    "quartiles / median; ratio: peer / ours"
)

_EXPLANATION = """\
columns:
  size    bytes of one rank's operand
  oriel   median time of a call; a call ends when its slowest process has its result
  spread  distance between the quartiles, as a share of the median
  algbw   size / time in GB/s: how fast the caller's bytes are dealt with
  busbw   algbw * 2(n-1)/n for n ranks: what each rank must send and receive in an
          all-reduce, so that it compares with the speed of memory or of a link
          whatever n is
  ratio   the peer's time / ours: above 1 oriel is faster

peers:
  jax     lax.psum (pmean, pmin, pmax) on the same mesh; between processes JAX uses gloo
  empty   an FFI call that does nothing, with the same operand and result: what any
          custom call costs

Ours and the peers alternate within one run, in the same processes with the same
number of XLA threads. Operands lie on their devices before the clock runs, and
results are compared once per size.

examples:
  oriel bench all_reduce -n 2 --check
  oriel bench all_reduce --devices 2 --vs jax,empty --sizes 8:64K --json out.json
"""


def _parser():
    parser = argparse.ArgumentParser(
        prog="oriel bench",
        description="Measures an operation inside jax.jit on this machine, beside its peers.",
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    dtypes, reductions = ", ".join(plan.DTYPES), ", ".join(plan.REDUCTIONS)
    add = parser.add_argument
    add("operation", choices=plan.OPERATIONS)
    add("-n", type=plan.count(1024), metavar="N", help="processes (2, or 1 with --devices)")
    add("--devices", type=plan.count(1024), metavar="D", help="devices of each process (1)")
    add("--vs", type=plan.peers, metavar="P,...", help="peers: jax, empty, or none (jax)")
    add(
        "--sizes",
        type=plan.sizes,
        metavar="S",
        help="8,1K,64M, or 8:64M for both ends and the powers of four between them (8:64M)",
    )
    add("--dtype", choices=plan.DTYPES, default="f32", metavar="T", help=f"of {dtypes} (f32)")
    add("--op", choices=plan.REDUCTIONS, default="sum", metavar="O", help=f"of {reductions} (sum)")
    add(
        "--iterations",
        type=plan.count(10**6),
        metavar="K",
        help="repetitions of each size (1000, fewer above 1 MiB, 30 at least)",
    )
    add("--json", metavar="F", help="write the rows to F, with machine, commit and method")
    add(
        "--check",
        action="store_true",
        help="say for each size whether it keeps its bar (for -n 2 and for --devices 2)",
    )
    add("--strict", action="store_true", help="with --check: exit with 1 on a miss")
    return parser


def _read_arguments(arguments):
    """(what argparse says, the plan); ends the program on a bad argument."""
    parser = _parser()
    a = parser.parse_args(arguments)
    wanted = plan.Plan(
        operation=a.operation,
        processes=a.n or (1 if a.devices else 2),
        devices=a.devices or 1,
        peers=a.vs,
        sizes=a.sizes or plan.default_sizes(a.dtype),
        dtype=a.dtype,
        op=a.op,
        iterations=a.iterations,
    )
    if wanted.peers is None:
        wanted.peers = (a.check and bars.peers_of(wanted)) or ["jax"]
    if problem := _problem(a, wanted):
        parser.error(problem)
    return a, wanted


def _problem(a, wanted):
    """What no single argument shows to be wrong, or None."""
    itemsize = plan.DTYPES[a.dtype][1]
    for nbytes in wanted.sizes:
        if nbytes % itemsize:
            return f"argument --sizes: {nbytes} is no multiple of {a.dtype}'s {itemsize} bytes"
    if a.op == "prod" and "jax" in wanted.peers:
        return "argument --op: lax has no prod to compare with; give --vs empty or --vs none"
    if a.op in ("min", "max") and a.dtype.startswith("c"):
        return f"argument --op: complex numbers ({a.dtype}) have no {a.op}"
    if a.strict and not a.check:
        return "argument --strict: it says what a miss of --check means; give --check too"
    if a.check and not bars.bars_of(wanted):
        return f"argument --check: no bars for {wanted.layout}; for -n 2 and for --devices 2"
    if a.check and not set(bars.peers_of(wanted)) <= set(wanted.peers):
        needed = ",".join(bars.peers_of(wanted))
        return f"argument --check: its bars for {wanted.layout} need --vs {needed}"
    if a.json is not None:
        try:
            open(a.json, "a").close()
        except OSError as error:
            return f"argument --json: cannot write {a.json!r}: {error.strerror}"
    return None


class _Progress:
    """A line on stderr that the next line of the table replaces."""

    def __init__(self, wanted):
        self._sizes = wanted.sizes
        self._shown = sys.stderr.isatty()

    def show(self, done):
        if self._shown and done < len(self._sizes):
            text = table.size_text(self._sizes[done])
            sys.stderr.write(f"\rmeasuring {text}, {done + 1} of {len(self._sizes)} ...\x1b[K")
            sys.stderr.flush()

    def clear(self):
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _measure(wanted, checked):
    print(f"{wanted.operation} {wanted.dtype} {wanted.op}, {wanted.layout}")
    print(table.header(wanted), flush=True)
    progress = _Progress(wanted)
    rows = []
    progress.show(0)
    try:
        for done, reports in enumerate(launch.reports(wanted), start=1):
            new = table.make_rows(wanted, reports[0]["bytes"], reports, checked)
            progress.clear()
            print(table.line(wanted, new), flush=True)
            progress.show(done)
            rows += new
    finally:
        progress.clear()
    return rows


def _say_verdict(rows):
    """Returns the number of misses."""
    judged = [row for row in rows if "met" in row]
    misses = [row for row in judged if not row["met"]]
    print(f"{len(judged) - len(misses)} of {len(judged)} bars are met")
    for row in misses:
        print(f"missed at {table.size_text(row['bytes'])}: {row['bar']}, it is {row['ratio']:.2f}")
    return len(misses)


def _write(path, arguments, origin, rows):
    result = {"command": shlex.join(["oriel", "bench", *arguments])} | origin
    result |= {"method": _METHOD, "rows": rows}
    with open(path, "w") as out:
        json.dump(result, out, indent=1)
        out.write("\n")


def main(arguments):
    a, wanted = _read_arguments(arguments)
    origin = machine.describe()
    try:
        rows = _measure(wanted, a.check)
    except launch.LaunchError as error:
        print(f"oriel bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    misses = _say_verdict(rows) if a.check else 0
    if a.json is not None:
        _write(a.json, arguments, origin, rows)
    return 1 if a.strict and misses else 0
