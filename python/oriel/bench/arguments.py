"""The command line of `oriel bench`: what it offers, and what it refuses."""

import argparse
import importlib.util
import pathlib

from oriel.bench import bars, native, plan
from oriel.bench.operations import OPERATIONS

_EXPLANATION = """\
columns:
  size    bytes of one rank's operand or result, whichever is larger
  oriel   median time of a call; a call ends when its slowest process has its result
  spread  distance between the quartiles, as a share of the median
  algbw   size / time in GB/s: how fast the caller's bytes are dealt with
  busbw   algbw times the share of the bytes that a rank must send, so that it
          compares with the speed of memory or of a link whatever n is: 2(n-1)/n
          for all_reduce; (n-1)/n for all_gather, reduce_scatter and all_to_all;
          1 for broadcast and permute; 3/4 for ragged_all_to_all with 2 ranks
  ratio   the peer's time / ours: above 1 oriel is faster; from C the median of
          the rounds' ratios, inside jit the ratio of the medians

with --check each size is a PASS, a MISS, or EVEN: it falls short of its bar, but the
repetitions do not tell it apart from that (95 % interval of their ratios); a PASS by
the median alone keeps its bar while that interval reaches below it

levels and their peers:
  jax     inside jax.jit
    jax     what lax has for it on the same mesh, or what one writes with lax where the
            CPU backend lacks it (broadcast, barrier: a psum; ragged_all_to_all: a padded
            all_to_all); between processes JAX uses gloo
    empty   an FFI call that does nothing, with the same operand and result: what
            any custom call costs
  c       C programs, no Python; the timing loop is the same for ours and MPI's
    mpi     Open MPI, with its usual calls on the same malloc'd buffers

At the level of JAX ours and the peers alternate within one run, in the same
processes. At the level of C the programs are started by turns, for several
rounds. Results are compared once per size.

examples:
  oriel bench all_reduce -n 2 --check
  oriel bench all_gather -n 4 --vs mpi --check --plot all_gather.svg
  oriel bench all_reduce --devices 2 --vs jax,empty --sizes 8:64K --json out.json
  oriel bench startup --plot startup.svg
"""


def _operation(text):
    if text == "startup":
        raise argparse.ArgumentTypeError("startup comes first: oriel bench startup ...")
    if text not in OPERATIONS:
        raise argparse.ArgumentTypeError(
            f"invalid choice: {text!r} (choose from {', '.join(OPERATIONS)}, startup)"
        )
    return text


def _parser():
    parser = argparse.ArgumentParser(
        prog="oriel bench",
        description="Measures an operation on this machine, beside its peers.",
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    dtypes, reductions = ", ".join(plan.DTYPES), ", ".join(plan.REDUCTIONS)
    names = ", ".join(OPERATIONS)
    add = parser.add_argument
    add("operation", type=_operation, metavar="OP", help=f"one of {names}; or startup")
    add("-n", type=plan.count(1024), metavar="N", help="processes (2, or 1 with --devices)")
    add("--devices", type=plan.count(1024), metavar="D", help="devices of each process (1)")
    add(
        "--vs",
        type=plan.peers,
        metavar="P,...",
        help="peers: jax, empty, mpi, or none (jax, or mpi with --level c)",
    )
    add("--level", type=plan.levels, metavar="L,...", help="c, jax or both (what --vs needs)")
    add(
        "--sizes",
        type=plan.sizes,
        metavar="S",
        help="8,1K,64M, or 8:64M for both ends and the powers of four between them (8:64M)",
    )
    add("--dense", action="store_true", help="powers of two instead of four")
    add("--dtype", choices=plan.DTYPES, default="f32", metavar="T", help=f"of {dtypes} (f32)")
    add("--op", choices=plan.REDUCTIONS, default="sum", metavar="O", help=f"of {reductions} (sum)")
    add(
        "--iterations",
        type=plan.count(10**6),
        metavar="K",
        help="calls of each size, per round at the level of C (by size, and by time)",
    )
    add("--rounds", type=plan.count(1000), metavar="R", help="at the level of C (5)")
    add(
        "--bind",
        choices=("core", "none"),
        help="at the level of C: each process keeps to one core (where there are enough)",
    )
    add("--json", metavar="F", help="write the rows to F, with command, machine and commit")
    add("--plot", metavar="F", help="draw F.svg or F.png; without an ending both")
    add("--check", action="store_true", help="say for each size whether it keeps its bar")
    add("--strict", action="store_true", help="with --check: exit with 1 on a MISS")
    return parser


def _levels(a):
    """The levels asked for, or those of the peers."""
    if a.level:
        return a.level
    of_peers = {plan.PEERS[peer] for peer in a.vs or ["jax"]}
    return [level for level in plan.LEVELS if level in of_peers]


def _default_peers(a, wanted):
    if a.check and bars.peers_of(wanted):
        return bars.peers_of(wanted)
    return ["mpi"] if wanted.level == "c" else ["jax"]


def _plan(a, level):
    wanted = plan.Plan(
        operation=a.operation,
        level=level,
        processes=a.n or (1 if a.devices else 2),
        devices=a.devices or 1,
        peers=[peer for peer in a.vs or [] if plan.PEERS[peer] == level],
        sizes=[],
        dtype=a.dtype,
        op=a.op,
        iterations=a.iterations,
    )
    wanted.sizes = plan.choose_sizes(a.sizes, a.operation, wanted.unit, a.dense)
    if level == "c":
        wanted.rounds = a.rounds or 5
        wanted.bind = a.bind or ("core" if wanted.processes <= native.cores() else "none")
    if a.vs is None:
        wanted.peers = _default_peers(a, wanted)
    return wanted


def read(words):
    """(what argparse says, a plan for each level); ends the program on a bad
    argument."""
    parser = _parser()
    a = parser.parse_args(words)
    plans = [_plan(a, level) for level in _levels(a)]
    problems = [
        _problem_of_peers(a),
        *(_problem(a, wanted) for wanted in plans),
        problem_of_files(a),
    ]
    for problem in filter(None, problems):
        parser.error(problem)
    return a, plans


# ---- what no single argument shows to be wrong; each returns a sentence or None -------


def _problem_of_peers(a):
    for peer in a.vs or []:
        if plan.PEERS[peer] not in _levels(a):
            return f"argument --vs: {peer} belongs to --level {plan.PEERS[peer]}"
    if a.strict and not a.check:
        return "argument --strict: it says what a miss of --check means; give --check too"
    return None


def _problem(a, wanted):
    for nbytes in wanted.sizes:
        if nbytes % wanted.unit:
            return _misfit(wanted, nbytes)
    if OPERATIONS[a.operation].reduces and a.op in ("min", "max") and a.dtype.startswith("c"):
        return f"argument --op: complex numbers ({a.dtype}) have no {a.op}"
    problem = _problem_of_c(a, wanted) if wanted.level == "c" else _problem_of_jax(a, wanted)
    return problem or _problem_of_bars(a, wanted)


def _misfit(wanted, nbytes):
    itemsize = plan.DTYPES[wanted.dtype][1]
    if wanted.unit == itemsize:
        return f"argument --sizes: {nbytes} is no multiple of {wanted.dtype}'s {itemsize} bytes"
    return (
        f"argument --sizes: {nbytes} is no multiple of {wanted.unit}, one element of "
        f"{wanted.dtype} for each of {wanted.ranks} ranks"
    )


def _problem_of_c(a, wanted):
    if a.devices:
        return "argument --devices: at the level of C every process is one rank; give -n"
    if (a.dtype, a.op) != ("f32", "sum"):
        return f"argument --dtype, --op: the level of C measures f32 sum, not {a.dtype} {a.op}"
    if wanted.sizes[-1] > 1 << 30:
        return f"argument --sizes: at the level of C at most 1G, not {wanted.sizes[-1]}"
    if "mpi" in wanted.peers and (absent := native.find_mpi()):
        return f"argument --vs: {absent}"
    return None


def _problem_of_jax(a, wanted):
    if "jax" in wanted.peers and a.operation == "reduce_scatter" and a.op != "sum":
        return f"argument --op: lax has no reduce_scatter with {a.op}; give --vs empty or --vs none"
    if "jax" in wanted.peers and OPERATIONS[a.operation].reduces and a.op == "prod":
        return "argument --op: lax has no prod to compare with; give --vs empty or --vs none"
    if a.rounds or a.bind:
        option = "--rounds" if a.rounds else "--bind"
        return f"argument {option}: it belongs to --level c" if not _has_c(a) else None
    return None


def _has_c(a):
    return "c" in _levels(a)


def _problem_of_bars(a, wanted):
    if not a.check:
        return None
    needed = bars.peers_of(wanted)
    if not needed:
        return f"argument --check: no bars for {wanted.operation} with {wanted.layout}"
    if not set(needed) <= set(wanted.peers):
        return f"argument --check: its bars for {wanted.layout} need --vs {','.join(needed)}"
    return None


def problem_of_files(a):
    if a.plot is not None and pathlib.Path(a.plot).suffix not in ("", ".svg", ".png"):
        return f"argument --plot: {a.plot!r} ends neither in .svg nor in .png"
    if a.plot is not None and importlib.util.find_spec("matplotlib") is None:
        return "argument --plot: it needs matplotlib: pip install 'oriel[plot]'"
    if a.plot is not None and not pathlib.Path(a.plot).resolve().parent.is_dir():
        return f"argument --plot: there is no folder for {a.plot!r}"
    if a.json is not None:
        try:
            open(a.json, "a").close()
        except OSError as error:
            return f"argument --json: cannot write {a.json!r}: {error.strerror}"
    return None
