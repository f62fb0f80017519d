"""Processes that mpirun or srun started: who they are, and how they meet. mpirun
is Open MPI's own; srun is its environment, set by the test."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from launcher import mpirun_command, needs_mpirun

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job
from slurm import fresh_job, step

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
NOBODY = 65534


def environment(variables, **options):
    """Nothing of a launcher around the tests, then `variables`."""
    foreign = ("SLURM_", "OMPI_", "PMIX_")
    env = {k: v for k, v in job.environment(**options).items() if not k.startswith(foreign)}
    return env | {name: str(value) for name, value in variables.items()}


class Started:
    """A process with a given environment; nothing of it outlives the test."""

    def __init__(self, command, env, user=None):
        self.child = subprocess.Popen(
            [str(word) for word in command],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            user=user,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def result(self, limit=job.LIMIT):
        try:
            text, _ = self.child.communicate(timeout=limit)
        finally:
            job.end_group(self.child)
        return self.child.returncode, text

    def line(self):
        """The last line of one that must end well."""
        status, text = self.result()
        assert status == 0, text
        return text.strip().splitlines()[-1]

    def kill(self):
        job.end_group(self.child)
        self.child.stdout.close()


def srun(count, job_id, name="by_hand", *arguments, ids=None, user=None, more=None, **options):
    ids = range(count) if ids is None else ids
    return [
        Started(
            [job.program(name), *arguments],
            environment(step(p, count, job_id, **(more or {})), **options),
            user,
        )
        for p in ids
    ]


def lines(started):
    return [process.line() for process in started]


# ---- who am I -----------------------------------------------------------------------


MPI = {
    "OMPI_COMM_WORLD_RANK": 2,
    "OMPI_COMM_WORLD_SIZE": 4,
    "OMPI_COMM_WORLD_LOCAL_RANK": 0,
    "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
    "OMPI_MCA_ess_base_jobid": 77,
}
LEFT_OVER = {"SLURM_JOB_ID": 9, "SLURM_NTASKS": 4, "SLURM_NPROCS": 4, "SLURM_NNODES": 1}
MANY = {"SLURM_NNODES": 3, "SLURM_STEP_NUM_NODES": 3, "SLURM_NODEID": 2}


@pytest.mark.parametrize(
    "variables, said",
    [
        ({}, "none: process 0 of 1"),
        (MPI, "mpirun: process 2 of 4; on this machine number 0 of 2"),
        (step(1, 3, 5), "srun: process 1 of 3; on this machine number 1 of 3"),
        (
            step(4, 5, 5, SLURM_LOCALID=0, **MANY, SLURM_STEP_TASKS_PER_NODE="2(x2),1"),
            "srun: process 4 of 5; on this machine number 0 of 1",
        ),
        (
            step(1, 5, 5, **MANY, SLURM_STEP_TASKS_PER_NODE="nonsense"),
            "srun: process 1 of 5, on several machines",
        ),
        # The step's count, not that of the allocation around it.
        (step(0, 2, 5, SLURM_NTASKS=8), "srun: process 0 of 2; on this machine number 0 of 2"),
        # A shell of an allocation and a batch script are no step.
        (LEFT_OVER, "none: process 0 of 1"),
        (LEFT_OVER | {"SLURM_PROCID": 0, "SLURM_LOCALID": 0}, "none: process 0 of 1"),
        (step(0, 4, 5, SLURM_STEP_ID=4294967291), "none: process 0 of 1"),
        # mpirun inside an allocation or a step.
        (LEFT_OVER | MPI, "mpirun: process 2 of 4; on this machine number 0 of 2"),
        (
            step(0, 8, 5, SLURM_TASK_PID=1) | MPI,
            "mpirun: process 2 of 4; on this machine number 0 of 2",
        ),
        (
            MPI | {"ORIEL_PROCESS_ID": 0, "ORIEL_NUM_PROCESSES": 2},
            "process 0 of 2, by ORIEL_PROCESS_ID and ORIEL_NUM_PROCESSES",
        ),
    ],
)
def test_place(variables, said):
    status, text = Started([job.ORIEL, "info"], environment(variables)).result()
    assert status == 0, text
    assert re.search(rf"^launcher +{re.escape(said)}$", text, re.M), text


def test_srun_inside_mpirun():
    """Slurm started this very process: it is the inner one."""
    script = f"SLURM_TASK_PID=$$ exec {job.ORIEL} info"
    env = environment(step(1, 3, 5) | MPI)
    status, text = Started(["sh", "-c", script], env).result()
    assert status == 0 and "srun: process 1 of 3;" in text, text


@pytest.mark.parametrize(
    "variables, words",
    [
        ({"ORIEL_NUM_PROCESSES": 2}, ["ORIEL_NUM_PROCESSES is 2, but ORIEL_PROCESS_ID is not set"]),
        ({"ORIEL_PROCESS_ID": 1}, ["ORIEL_PROCESS_ID is 1, but ORIEL_NUM_PROCESSES is not set"]),
        (
            MPI | {"OMPI_COMM_WORLD_RANK": 4},
            ['OMPI_COMM_WORLD_RANK="4" of mpirun is not a whole number from 0 to 3'],
        ),
        (MPI | {"OMPI_COMM_WORLD_RANK": "two"}, ['OMPI_COMM_WORLD_RANK="two"', "whole number"]),
        (MPI | {"OMPI_COMM_WORLD_SIZE": "0"}, ['OMPI_COMM_WORLD_SIZE="0"', "from 1"]),
        (MPI | {"OMPI_COMM_WORLD_SIZE": ""}, ["OMPI_COMM_WORLD_SIZE is not set"]),
        (MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "5"}, ['OMPI_COMM_WORLD_LOCAL_SIZE="5"', "1 to 4"]),
        (MPI, ["mpirun started 4 processes on several machines", "ORIEL_STORE", "ORIEL_SECRET"]),
        (
            MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": 4, "OMPI_MCA_ess_base_jobid": ""},
            ["mpirun set no variable that names its job", "ORIEL_STORE"],
        ),
        (step(3, 3, 5), ['SLURM_PROCID="3" of srun is not a whole number from 0 to 2']),
        (step("1e1", 3, 5), ['SLURM_PROCID="1e1"']),
        (step(1, "99999999999999999999", 5), ['SLURM_STEP_NUM_TASKS="99999999999999999999"']),
        (
            step(1, 5, 5, **MANY, SLURM_STEP_TASKS_PER_NODE="2(x2),1"),
            ["srun started 5 processes on several machines", "ORIEL_STORE", "ORIEL_SECRET"],
        ),
    ],
)
def test_wrong_environment(variables, words):
    (line,) = lines([Started([job.program("by_hand")], environment(variables))])
    assert line.startswith("ORIEL_ERR_INVALID ")
    for word in words:
        assert word in line


def test_arguments_win():
    """Whoever says its place itself is not asked for a launcher's variables."""
    store = job.fresh_store()
    env = environment(MPI | {"OMPI_COMM_WORLD_RANK": "two"})
    started = [Started([job.program("by_hand"), p, 2, store], env) for p in range(2)]
    assert lines(started) == ["ORIEL_OK"] * 2


@pytest.mark.parametrize(
    "variables, status, words",
    [
        (MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": 4}, "ok", "job of mpirun"),
        (step(0, 2, 5), "ok", "other users"),
        (MPI, "error", "several machines"),
    ],
)
def test_doctor_names_the_store(oriel, variables, status, words):
    env = {name: str(value) for name, value in variables.items()}
    done = oriel.run("doctor", env=env)
    found = re.search(rf"^{status} +store: ((?:.*\n)(?: .*\n)*)", done.stdout, re.M)
    assert found and words in " ".join(found[1].split()), done.stdout
    launcher = "srun" if "SLURM_STEP_ID" in env else "mpirun"
    assert re.search(rf"^ok +launcher: {launcher}: process", done.stdout, re.M)


# ---- mpirun -------------------------------------------------------------------------


@needs_mpirun
def test_mpirun():
    status, text = Started(mpirun_command(4, job.program("by_hand")), environment({})).result()
    assert status == 0, text
    assert text.split() == ["ORIEL_OK"] * 4


@needs_mpirun
def test_mpirun_comm_after_comm():
    command = mpirun_command(3, job.program("lifecycle"), 20)
    status, text = Started(command, environment({})).result()
    assert status == 0, text


@needs_mpirun
def test_mpirun_jobs_do_not_mix(tmp_path_factory):
    """Three jobs at once, in an allocation's shell; each counts its own processes. Each has a
    session folder of its own: mpiruns that make the shared one at a time may fail to."""
    started = []
    for n in (2, 3, 2):
        own = LEFT_OVER | {"OMPI_MCA_orte_tmpdir_base": tmp_path_factory.mktemp("mpi")}
        started.append(Started(mpirun_command(n, job.program("by_hand")), environment(own)))
    assert [s.result()[1].split() for s in started] == [["ORIEL_OK"] * n for n in (2, 3, 2)]


# ---- srun, by its environment ---------------------------------------------------------


def test_srun():
    assert lines(srun(3, fresh_job())) == ["ORIEL_OK"] * 3


def test_srun_comm_after_comm():
    for process in srun(2, fresh_job(), "lifecycle", 20):
        process.line()


def test_srun_on_several_machines_with_a_store():
    """ORIEL_STORE and ORIEL_SECRET are used where they are set."""
    options = {"store": job.fresh_store(), "secret": "shared"}
    more = {"SLURM_NNODES": 2, "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert lines(srun(2, fresh_job(), more=more, **options)) == ["ORIEL_OK"] * 2


def test_srun_jobs_do_not_mix():
    """Two steps of one job, and one job queued again, at once: process 0 of each
    comes last, so that the others could go astray."""
    number = fresh_job()
    kinds = [{}, {"SLURM_STEP_ID": 1}, {"SLURM_RESTART_COUNT": 1}]
    started = [srun(n, number, more=more, ids=range(1, n)) for n, more in zip((2, 3, 2), kinds)]
    started += [srun(n, number, more=more, ids=[0]) for n, more in zip((2, 3, 2), kinds)]
    assert [line for group in started for line in lines(group)] == ["ORIEL_OK"] * 7


def name_of(number):
    """Of the socket where process 1 of such a job looks for process 0."""
    (line,) = lines(srun(2, number, ids=[1], init_timeout=0.01))
    return re.search(r"unix:(@oriel-\S+?):", line)[1]


def wait_for(name):
    deadline = time.monotonic() + 30
    while name not in Path("/proc/net/unix").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_rerun():
    """The same job and step again: after a good end, and after a kill in the
    middle of the start."""
    number = fresh_job()
    assert lines(srun(2, number)) == ["ORIEL_OK"] * 2
    name = name_of(number)
    half = srun(3, number, ids=[0, 1])
    wait_for(name)
    for process in half:
        process.kill()
    assert lines(srun(3, number)) == ["ORIEL_OK"] * 3


def test_process_0_is_there_twice():
    """A second process 0 does not take part in the first one's job."""
    number = fresh_job()
    name = name_of(number)
    first = srun(2, number, ids=[0])
    wait_for(name)
    (line,) = lines(srun(2, number, ids=[0]))
    assert line.startswith("ORIEL_ERR_SYSTEM process 0 of srun cannot hold the store")
    assert lines(first + srun(2, number, ids=[1])) == ["ORIEL_OK"] * 2


# ---- other users -----------------------------------------------------------------------


@pytest.fixture
def open_folder():
    """One that other users may read; pytest's own are closed again by its next session."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_another_user_cannot_join(open_folder):
    """It looks under its own name; sent to the right one, it is refused by its uid."""
    program = open_folder / "by_hand"
    shutil.copy(job.program("by_hand"), program)
    number = fresh_job()
    name = name_of(number)
    first = srun(2, number, ids=[0])
    wait_for(name)
    alone, sent = (
        Started(
            [program, *words], environment(step(1, 2, number), init_timeout=limit), user=NOBODY
        ).line()
        for words, limit in (([], 0.5), (["", "", f"unix:{name}"], 60))
    )
    assert alone.startswith(f"ORIEL_ERR_TIMEOUT store at unix:@oriel-{NOBODY}-srun-")
    assert sent.startswith("ORIEL_ERR_AUTH") and f"user 0, not of user {NOBODY}" in sent
    assert lines(first + srun(2, number, ids=[1])) == ["ORIEL_OK"] * 2


@needs_root
def test_another_user_cannot_hold_the_store():
    """Abstract names belong to whoever comes first: the connecting side checks."""
    number = fresh_job()
    name = name_of(number)
    script = (
        "import os, socket, sys; os.setuid(int(sys.argv[2])); s = socket.socket("
        "socket.AF_UNIX); s.bind('\\0' + sys.argv[1][1:]); s.listen(); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, name, str(NOBODY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as squatter:
        assert squatter.stdout.readline() == b"\n"
        zero, one = lines(srun(2, number, init_timeout=20))
        squatter.stdin.close()
    assert zero.startswith("ORIEL_ERR_SYSTEM process 0 of srun cannot hold the store")
    assert one.startswith("ORIEL_ERR_AUTH") and f"of user {NOBODY}, not of user 0" in one
