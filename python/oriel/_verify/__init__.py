"""oriel verify: whether XLA's own collectives use symmetric memory of NCCL here.

They do without any code of one's own where two flags of XLA are set. The proof is in the
logs of XLA and NCCL, so the collectives run in processes of `oriel run`, which keeps what
comes out of their descriptors, and ends them in time.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import jaxlib

from oriel import _meet
from oriel._verify import log
from oriel._verify.worker import MARK
from oriel.bench import launch, plan, table

FLAGS = (
    "--xla_gpu_experimental_enable_nccl_symmetric_buffers=true",
    "--xla_gpu_enable_nccl_user_buffers=true",
)
# Exit codes; 2 is a wrong argument.
SEEN, FAILED, NOT_SEEN, WRONG, NOT_HERE, TIMEOUT = 0, 1, 3, 4, 77, 124
WORDS = {
    SEEN: "seen",
    FAILED: "failed",
    NOT_SEEN: "no registration seen",
    WRONG: "wrong results",
    NOT_HERE: "not available here",
    TIMEOUT: "timeout",
}
_EXPLANATION = f"""\
exit codes:
  {SEEN:3}  every process has registered symmetric buffers, and every result is right
  {FAILED:3}  the processes failed, or oriel verify itself
  {NOT_SEEN:3}  the results are right, but no registration was seen
  {WRONG:3}  a result is wrong
  {NOT_HERE:3}  not available here: no GPU, fewer than two ranks, a flag that this jaxlib does not
       know, an NCCL that is too old for ranks that share a GPU
  {TIMEOUT:3}  the time was up

examples:
  oriel verify                                  all GPUs of this machine, in one process
  oriel verify -n 2 --nccl ./libnccl.so.2       two processes, which share a GPU if need be
"""
SHARING = 23000  # the first NCCL that lets ranks share a GPU
_KILL_GRACE = 15.0  # seconds in which `oriel run` ends its processes, and itself

_WORKER = [sys.executable, "-m", "oriel._verify.worker"]


class Verdict(Exception):
    """The end of the matter: an exit code and a sentence."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


# ---- processes ---------------------------------------------------------------------------


@dataclasses.dataclass
class Run:
    """Processes that have ended: the exit code, and what each wrote."""

    code: int
    logs: list
    said: str  # what `oriel run` had to say itself

    def reports(self, process):
        lines = self.logs[process].splitlines()
        return [json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK)]

    @property
    def why(self):
        """Of a failure: the most telling line of its logs, or what the launcher said."""
        complaint = log.complaint("\n".join(self.logs))
        return complaint or self.said or f"exit code {self.code}"


class Runner:
    """Starts the worker's processes, all within one deadline, and keeps their logs."""

    def __init__(self, worker, options):
        self.worker = worker
        self.command = launch.find_command()
        self.timeout = options.timeout
        self.deadline = time.monotonic() + options.timeout
        self.preload = options.nccl
        self.kept = []

    def run(self, words, processes=1, **environment):
        left = self.deadline - time.monotonic()
        if left <= 0:
            self._give_up()
        with tempfile.TemporaryDirectory(prefix="oriel-verify-") as folder:
            command = [self.command, "run", "-n", str(processes), "--timeout", f"{left:.3f}"]
            command += ["--grace", "2", "--log-dir", folder, "--", *self._preloading()]
            said = pathlib.Path(folder) / "said"
            with open(said, "w") as err:
                code = _call([*command, *self.worker, *words], left + _KILL_GRACE, err, environment)
            logs = [pathlib.Path(folder) / f"{i}.log" for i in range(processes)]
            done = Run(code, [_read(file) for file in logs], _own_words(_read(said)))
        self._keep(words, done)
        if code == TIMEOUT:
            self._give_up()
        return done

    def _preloading(self):
        """Of the worker alone: the launcher has no use for NCCL."""
        if self.preload is None:
            return []
        others = os.environ.get("LD_PRELOAD")
        return ["env", f"LD_PRELOAD={self.preload}{':' + others if others else ''}"]

    def _keep(self, words, done):
        for process, text in enumerate(done.logs):
            self.kept.append(
                f"==> {words[0]}, process {process}, exit code {done.code} <==\n{text}"
            )

    def _give_up(self):
        raise Verdict(TIMEOUT, f"it was not done within {self.timeout:g} s (--timeout)")


def _call(command, seconds, err, environment):
    """Runs it to its end, at most for `seconds`; its exit code."""
    child = subprocess.Popen(
        command,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the log files have it
        stderr=err,
    )
    # So that a kill of this process ends the others too.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return TIMEOUT
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_KILL_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        signal.signal(signal.SIGTERM, before)


def _environment(changes):
    """The caller's, so changed that XLA and NCCL speak, and to their descriptors."""
    spoken = {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "nccl_symmetric_memory=3,nccl_communicator=3",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,REG,TUNING",
        # NCCL's memory comes from outside of XLA's pool, which would take nearly all.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONUNBUFFERED": "1",
    }
    mine = {k: v for k, v in os.environ.items() if k != "NCCL_DEBUG_FILE"}
    return mine | spoken | changes


def _read(file):
    return file.read_text(errors="replace") if file.exists() else ""


def _own_words(text):
    """What the launcher said, not its processes, whose lines are tagged."""
    lines = (line.removeprefix("oriel run: ") for line in text.splitlines() if line[:1] != "[")
    return "; ".join(line.split("; waiting")[0] for line in lines)


# ---- what is here ------------------------------------------------------------------------


def find_here(runner):
    """What JAX finds with the flags set: the worker's report."""
    done = runner.run(["look"], XLA_FLAGS=_with(FLAGS))
    if done.code != 0:
        if log.unknown_flags(done.logs[0]) is not None:
            raise Verdict(NOT_HERE, _who_is_unknown(runner))
        raise Verdict(FAILED, f"JAX does not start: {done.why}")
    here = done.reports(0)[0]
    if here["platform"] not in ("gpu", "cuda"):
        raise Verdict(NOT_HERE, f"JAX finds no GPU: its devices are of the kind {here['platform']}")
    return here


def _with(flags):
    return " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])


def _who_is_unknown(runner):
    """A sentence that names the flags. XLA's own list is not trusted to be whole."""
    version = f"jaxlib {jaxlib.__version__}"
    if os.environ.get("XLA_FLAGS") and (names := _refused(runner, ())):
        return f"{version} does not know {names[0]}, which the environment's XLA_FLAGS has"
    names = [name for flag in FLAGS for name in _refused(runner, (flag,))]
    if not names:
        return f"{version} does not take {' and '.join(FLAGS)} together"
    return f"{version} does not know {' and '.join(names)}"


def _refused(runner, flags):
    done = runner.run(["look"], XLA_FLAGS=_with(flags))
    unknown = log.unknown_flags(done.logs[0])
    return [] if unknown is None else [flag.split("=")[0] for flag in unknown or flags]


def version_text(code):
    """2.30.7 of NCCL's 23007."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def check_ranks(options, here):
    """How many ranks of one GPU there will be; ends the matter where NCCL needs more."""
    gpus = len(here["gpus"])
    if options.n is None and gpus < 2:
        raise Verdict(
            NOT_HERE,
            "fewer than two ranks: there is one GPU; with -n 2 two processes share it "
            "(NCCL 2.30 or later)",
        )
    if options.n == 1:
        raise Verdict(NOT_HERE, "fewer than two ranks: -n 1 is one process with one GPU")
    sharing = -(-(options.n or gpus) // gpus)
    nccl = here["nccl"]
    if sharing > 1 and nccl is not None and nccl["version"] < SHARING:
        raise Verdict(
            NOT_HERE,
            f"{options.n} ranks on {gpus} GPU{'s' if gpus > 1 else ''} would have to share, which "
            f"NCCL {version_text(nccl['version'])} ({nccl['file']}) refuses and 2.30 does not: "
            "name one by --nccl",
        )
    return sharing


# ---- the work ----------------------------------------------------------------------------


def run_collectives(runner, options, here, sharing):
    processes = options.n or 1
    settings = {"XLA_FLAGS": _with(FLAGS)}
    if sharing > 1:
        settings["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    if sharing > 2 and "NCCL_MAX_CTAS" not in os.environ:
        # NCCL's kernels wait for each other, so those of all ranks must be resident together.
        settings["NCCL_MAX_CTAS"] = str(min(32, 120 // sharing))
    wanted = {
        "processes": processes,
        "gpus": len(here["gpus"]),
        "sizes": options.sizes,
        "coordinator": f"127.0.0.1:{_meet._free_port('127.0.0.1')}",
    }
    done = runner.run(["work", json.dumps(wanted)], processes, **settings)
    if done.code != 0:
        raise Verdict(FAILED, f"XLA's collectives failed: {done.why}")
    return done, settings


def read_work(done):
    """What the processes found: registrations, NCCL's kernels, results."""
    found = {"registrations": [], "kernels": [], "results": [], "ranks": 0, "nccl": None}
    for process, text in enumerate(done.logs):
        tag = {"process": process}
        found["registrations"] += [tag | one for one in log.registrations(text)]
        found["kernels"] += [tag | one for one in log.kernels(text)]
        for report in done.reports(process):
            if "operation" in report:
                found["results"].append(tag | report)
            else:
                found |= {key: report[key] for key in ("ranks", "nccl") if key in report}
    return found


def judge(found, here, processes, text):
    """Raises the verdict."""
    wrong = [result for result in found["results"] if result["wrong"]]
    if wrong:
        one = wrong[0]
        size = table.size_text(one["bytes"])
        raise Verdict(WRONG, f"{one['operation']} of {size} is wrong: {one['wrong']}")
    if not found["results"]:
        raise Verdict(FAILED, "the processes ended without a result")
    # NCCL refuses without an error, so that XLA has asked says nothing.
    silent = set(range(processes)) - {r["process"] for r in found["registrations"] if r["nccl"]}
    if silent:
        raise Verdict(NOT_SEEN, _why_not_seen(found, here, silent, text))
    count = sum(one["nccl"] for one in found["registrations"])
    raise Verdict(
        SEEN,
        f"XLA has registered buffers with NCCL as symmetric memory, {count} times in all, and all "
        f"{len(found['results'])} results are right",
    )


def _why_not_seen(found, here, silent, text):
    where = ", ".join(map(str, sorted(silent)))
    start = f"the results are right, but the log of process {where} tells of none"
    asked = any(one["xla"] for one in found["registrations"])
    capability = here.get("capability") or ""
    if complaint := log.complaint(text):
        return f"{start}: {complaint}"
    if asked:
        return f"{start}: XLA asked for it, and NCCL did not do it, nor say why"
    if re.match(r"[1-8]\.", capability):
        return f"{start}: XLA does it from Hopper (9.0) on, this GPU is {capability}"
    if not any(result["coloured"] for result in found["results"]):
        return f"{start}: XLA has placed no buffer in the memory space of collectives"
    return start


# ---- what the person sees ----------------------------------------------------------------


def print_here(here, ranks, processes, settings, nccl):
    kinds = ", ".join(
        f"{here['gpus'].count(kind)} x {kind}" for kind in dict.fromkeys(here["gpus"])
    )
    print(f"jaxlib  {jaxlib.__version__}")
    print(f"GPUs    {kinds}")
    print(f"ranks   {ranks} in {processes} process{'es' if processes > 1 else ''}")
    if nccl:
        print(f"NCCL    {version_text(nccl['version'])}, {nccl['file']}")
    for name, value in settings.items():
        print(f"set     {name}={shlex.quote(value)}")


def print_found(found):
    print("\nregistrations of symmetric memory")
    print("process  buffer                    size  communicator        times")
    for one in found["registrations"]:
        missing = one["xla"] - one["nccl"]
        told = f"; {missing} asked for by XLA and not done by NCCL" if missing > 0 else ""
        print(
            f"{one['process']:7}  {one['buffer']:18}  {one['size']:10}  {one['comm'] or '?':18}  "
            f"{one['nccl']:5}{told}"
        )
    if not found["registrations"]:
        print("(none)")
    names = {(one["operation"], one["kernel"]) for one in found["kernels"]}
    for operation, kernel in sorted(names):
        print(f"NCCL's symmetric kernel for {operation}: {kernel}")
    print("\nresults")
    for name, size in dict.fromkeys((r["operation"], r["bytes"]) for r in found["results"]):
        same = [r for r in found["results"] if (r["operation"], r["bytes"]) == (name, size)]
        wrong = [f"process {r['process']}, {r['wrong']}" for r in same if r["wrong"]]
        print(f"{name:14}{table.size_text(size):>10}  {'; '.join(wrong) or 'right'}")
    print()


def write_files(options, runner, facts, verdict):
    if options.keep_log is not None:
        pathlib.Path(options.keep_log).write_text("\n".join(runner.kept) + "\n")
    if options.json is not None:
        outcome = {"verdict": WORDS[verdict.code], "code": verdict.code, "sentence": str(verdict)}
        content = outcome | {"jaxlib": jaxlib.__version__, "flags": FLAGS} | facts
        pathlib.Path(options.json).write_text(json.dumps(content, indent=1) + "\n")


# ---- the command -------------------------------------------------------------------------


def _seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _sizes(text):
    ends = plan.sizes(text)
    return ends if isinstance(ends, list) else plan.spread_sizes(ends, 4, 4)


def _parser():
    parser = argparse.ArgumentParser(
        prog="oriel verify",
        description="Runs XLA's own collectives (psum, all_gather, psum_scatter) with the flags "
        "that make it register their buffers with NCCL as symmetric memory, shows each "
        "registration that XLA's and NCCL's logs tell of, and compares every result.",
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "-n",
        type=plan.count(1024),
        metavar="N",
        help="processes with one GPU each, which they share where there are fewer "
        "(one process with all GPUs)",
    )
    add(
        "--sizes",
        type=_sizes,
        default=[4 << 10, 1 << 20, 32 << 20],
        metavar="S",
        help="bytes of a rank's larger buffer, as 4K,1M or 4K:64M (4K,1M,32M)",
    )
    add("--nccl", metavar="FILE", help="preload this libnccl.so.2 instead of JAX's own")
    add("--timeout", type=_seconds, default=240.0, metavar="S", help="seconds for it all (240)")
    add("--json", metavar="F", help="write what was found to F")
    add("--keep-log", metavar="F", help="write the logs of all processes to F")
    return parser


def read_arguments(words):
    """Ends the program on a bad argument."""
    parser = _parser()
    options = parser.parse_args(words)
    if options.nccl is not None:
        options.nccl = str(pathlib.Path(options.nccl).resolve())
        if not os.access(options.nccl, os.R_OK):
            parser.error(f"argument --nccl: {options.nccl} is not there, or not readable")
    for name in ("json", "keep_log"):
        path = getattr(options, name)
        if path is not None and not pathlib.Path(path).resolve().parent.is_dir():
            parser.error(f"argument --{name.replace('_', '-')}: there is no folder for {path!r}")
    return options


def verify(runner, options, facts):
    """Raises a Verdict; `facts` gets what was found on the way."""
    here = find_here(runner)
    facts |= here
    sharing = check_ranks(options, here)
    done, settings = run_collectives(runner, options, here, sharing)
    found = read_work(done)
    facts |= found | {"settings": settings, "processes": options.n or 1}
    print_here(here, found["ranks"], options.n or 1, settings, found["nccl"])
    print_found(found)
    judge(found, here, options.n or 1, "\n".join(done.logs))


def main(words, worker=None):
    """The exit code. `worker`: another command in place of the worker's."""
    options = read_arguments(words)
    facts = {}
    try:
        runner = Runner(worker or _WORKER, options)
        try:
            verify(runner, options, facts)
        except Verdict as verdict:
            write_files(options, runner, facts, verdict)
            print(f"{WORDS[verdict.code]}: {verdict}")
            return verdict.code
    except (launch.LaunchError, OSError) as error:
        print(f"oriel verify: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
