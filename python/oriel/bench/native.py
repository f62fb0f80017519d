"""The level of C: programs without Python, ours and MPI's, built on the spot and
started by turns. On a machine that is no larger than the job, two jobs at a time
would measure each other."""

import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

from oriel import _lib
from oriel.bench import launch, table
from oriel.bench.plan import OURS

SOURCES = pathlib.Path(__file__).resolve().parent / "c"
_LIMIT_S = 900  # of one start of one program


def cores():
    return len(os.sched_getaffinity(0))


# ---- building ----------------------------------------------------------------------


def _include():
    """Where oriel/oriel.h lies: in the installed package, or in a source tree."""
    package = pathlib.Path(_lib.__file__).resolve().parent
    for folder in (package / "include", package.parents[1] / "include"):
        if (folder / "oriel" / "oriel.h").exists():
            return folder
    raise launch.LaunchError(
        f"oriel/oriel.h is neither in {package} nor in a source tree around it"
    )


def _compile(compiler, source, target, *flags):
    command = [compiler, "-O2", "-D_GNU_SOURCE", SOURCES / source, "-o", target, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise launch.LaunchError(f"{compiler} cannot build {source}:\n{done.stderr.strip()}")
    return target


def build_oriel(source, folder):
    """Builds one of c/*.c with the header and the library in use here."""
    compiler = next(filter(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")), None)
    if compiler is None:
        raise launch.LaunchError(
            "the level of C needs a C compiler (cc, gcc or clang); on Debian and Ubuntu: "
            "apt install gcc libc6-dev"
        )
    library = pathlib.Path(_lib.load()._name)
    where = ["-I", _include(), library, f"-Wl,-rpath,{library.parent}"]
    return _compile(compiler, source, folder / pathlib.Path(source).stem, *where)


def find_mpi():
    """A sentence when Open MPI is not here, else None."""
    absent = [name for name in ("mpicc", "mpirun") if shutil.which(name) is None]
    if not absent:
        return None
    return (
        f"there is no {' and no '.join(absent)} on PATH; on Debian and Ubuntu: apt install "
        "libopenmpi-dev openmpi-bin, or leave mpi out of --vs"
    )


def mpi_version():
    """As "Open MPI 4.1.4"."""
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True)
    return re.sub(r"^mpirun \((.*)\)", r"\1", done.stdout.partition("\n")[0].strip())


# ---- starting ----------------------------------------------------------------------


def run_command(processes):
    """Up to the program; each start has a time limit."""
    command = [launch.find_command(), "run", "-n", str(processes), "--no-tag"]
    return [*command, "--timeout", str(_LIMIT_S), "--"]


def mpirun_command(processes):
    """The programs pin themselves, ours and MPI's alike, so mpirun does not. Where
    there are more processes than cores, MPI is told to yield: without it they
    spin against each other."""
    command = ["mpirun", "-n", str(processes), "--bind-to", "none", "--timeout", str(_LIMIT_S)]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if processes > cores():
        command += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    return command


def _programs(plan, folder):
    """name: the words that start it, without its arguments"""
    programs = {OURS: [*run_command(plan.processes), build_oriel("oriel_bench.c", folder)]}
    if "mpi" in plan.peers:
        program = _compile("mpicc", "mpi_bench.c", folder / "mpi_bench")
        programs["mpi"] = [*mpirun_command(plan.processes), program]
    return programs


def steps(plan):
    """How often `measure` steps the progress."""
    return plan.rounds * (1 + len(plan.peers)) * len(plan.sizes)


def measure(plan, progress):
    """Returns, for each size, the microseconds of ours and of each peer: one
    figure per round, the median of the round's batches."""
    samples = {nbytes: {name: [] for name in (OURS, *plan.peers)} for nbytes in plan.sizes}
    batches, calls = plan.batches()
    arguments = [plan.operation, batches, calls, plan.bind, *plan.sizes]
    with tempfile.TemporaryDirectory(prefix="oriel-bench-") as folder:
        programs = _programs(plan, pathlib.Path(folder))
        for turn in range(plan.rounds):
            # The one that goes first changes, so that a machine that warms up favours nobody.
            for name in list(programs)[:: -1 if turn % 2 else 1]:
                command = [str(word) for word in (*programs[name], *arguments)]
                for at, text in enumerate(launch.lines(command)):
                    report = json.loads(text)
                    samples[report["bytes"]][name].append(statistics.median(report["us"]))
                    progress.step()
                    _show(progress, plan, turn, name, at + 1)
    return samples


def _show(progress, plan, turn, name, at):
    if at < len(plan.sizes):
        who = "oriel" if name == OURS else name
        size = table.size_text(plan.sizes[at])
        progress.show(f"{plan.operation}: round {turn + 1} of {plan.rounds}, {who}, {size}")
