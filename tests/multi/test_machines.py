"""Worlds of several machines: processes that say so (ORIEL_HOSTID), and processes in network
namespaces, which share nothing but the network; started by hand and by `oriel run --hosts`."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

TOLD_WITHIN = 5.0  # seconds


def start(hosts, how, **options):
    store = job.fresh_store()
    return [
        job.Process(
            "machines",
            how,
            process_id=p,
            num_processes=len(hosts),
            store=store,
            hostid=host,
            **options,
        )
        for p, host in enumerate(hosts)
    ]


@pytest.mark.parametrize("hosts", ["aabb", "abacb"])
def test_layouts(hosts):
    """Everything within a machine, meetings, votes and refusals across."""
    processes = start(hosts, "once")
    for p, process in enumerate(processes):
        code, text = process.wait()
        here = hosts.count(hosts[p])
        assert code == 0, text
        assert f"clean: {len(set(hosts))} machines, {here} ranks here" in text.splitlines(), text


def check_told(process, since, *names):
    code, text = process.wait()
    assert code == 0, text
    when, status, sentence = re.search(r"^failed ([\d.]+) (\S+) (.*)$", text, re.M).groups()
    assert status == "ORIEL_ERR_PEER", text
    assert 0 < float(when) - since < TOLD_WITHIN * job.slowness(), text
    assert all(name in sentence for name in names), sentence


@pytest.mark.parametrize("victim", [0, 2, 3])  # the hub, the lead of another machine, neither
def test_killed(victim):
    processes = start("aabb", "forever")
    try:
        for process in processes:
            process.wait_for_line("ready")
        since = time.monotonic()
        processes[victim].child.send_signal(signal.SIGKILL)
        for p, process in enumerate(processes):
            if p != victim:
                check_told(process, since, f"process {victim} (pid ", "is gone")
    finally:
        for process in processes:
            process.end()


def test_doctor():
    """What is elsewhere is not dead."""
    processes = start("ab", "forever")
    try:
        for process in processes:
            process.wait_for_line("ready")
        seen = subprocess.run(
            [job.ORIEL, "doctor", "--job", str(processes[0].child.pid)],
            capture_output=True,
            text=True,
            timeout=job.LIMIT,
        ).stdout
        assert re.search(r"^ *0 +0 +\d+ +alive", seen, re.M), seen
        assert re.search(r"^ *1 +1 +\d+ +elsewhere", seen, re.M) and "dead" not in seen, seen
    finally:
        for process in processes:
            process.end()


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_launchers(launcher):
    """Their variables say who is who; where to meet must be said on several machines."""
    store = f"127.0.0.1:{job.free_port()}"

    def variables(p):
        if launcher == "mpirun":
            return {
                "OMPI_COMM_WORLD_RANK": p,
                "OMPI_COMM_WORLD_SIZE": 2,
                "OMPI_COMM_WORLD_LOCAL_RANK": 0,
                "OMPI_COMM_WORLD_LOCAL_SIZE": 1,
                "OMPI_MCA_ess_base_jobid": 7,
            }
        return {
            "SLURM_PROCID": p,
            "SLURM_STEP_NUM_TASKS": 2,
            "SLURM_STEP_NUM_NODES": 2,
            "SLURM_NODEID": p,
            "SLURM_LOCALID": 0,
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_JOB_ID": 7,
            "SLURM_STEP_ID": 0,
        }

    def start_one(p, **options):
        env = [f"{name}={value}" for name, value in variables(p).items()]
        return job.Process("machines", prefix=["env", *env], hostid=p, **options)

    code, text = start_one(0).wait()
    assert code != 0 and "on several machines" in text and "ORIEL_STORE" in text, text
    for process in [start_one(p, store=store, secret="shared") for p in range(2)]:
        code, text = process.wait()
        assert code == 0 and "clean: 2 machines, 1 ranks here" in text, text


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=20)


@pytest.fixture
def network():
    """Two namespaces on a switch, and this machine at its address ".254"."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    mark = f"o{os.getpid() % 100000}"
    names = [f"{mark}a", f"{mark}b"]
    net = f"10.213.{os.getpid() % 250}"
    steps = [
        ["link", "add", f"{mark}s", "type", "bridge"],
        ["addr", "add", f"{net}.254/24", "dev", f"{mark}s"],
        ["link", "set", f"{mark}s", "up"],
    ]
    for i, name in enumerate(names):
        steps += [
            ["netns", "add", name],
            ["link", "add", f"{mark}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name],
            ["link", "set", f"{mark}v{i}", "master", f"{mark}s", "up"],
            ["-n", name, "addr", "add", f"{net}.{i + 1}/24", "dev", "eth0"],
            ["-n", name, "link", "set", "eth0", "up"],
            ["-n", name, "link", "set", "lo", "up"],
        ]
    try:
        for step in steps:
            done = ip(*step)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: ip {' '.join(step)}: {done.stderr}")
        yield names, net, [f"{mark}v{i}" for i in range(2)]
    finally:
        for i, name in enumerate(names):
            ip("link", "del", f"{mark}v{i}")  # at once; a namespace takes its own with it later
            ip("netns", "del", name)
        ip("link", "del", f"{mark}s")


def run_hosts(names, net, *arguments):
    """`oriel run` on both namespaces, two processes on each."""
    return subprocess.run(
        [
            job.ORIEL,
            "run",
            "--hosts",
            f"{names[0]},{names[1]}:2",
            "-n",
            "2",
            "--ssh",
            "ip netns exec",
            "--address",
            f"{net}.254",
            "--grace",
            "0",
            "--",
            *arguments,
        ],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=job.LIMIT,
    )


def test_hosts(network):
    """Bootstrap and launch between namespaces; arguments arrive as they are; the first exit
    code is kept, and all others end."""
    names, net, _ = network
    done = run_hosts(names, net, job.program("machines"), "once")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("clean: 2 machines, 2 ranks here") == 4, done.stdout
    odd = "a 'b' \"c\" $HOME \\ \n"
    done = run_hosts(names, net, "printf", "%s|", odd, "")
    assert done.returncode == 0 and done.stdout.count("$HOME \\ ") == 4, done
    done = run_hosts(names, net, "sh", "-c", 'test "$ORIEL_PROCESS_ID" = 2 && exit 7; sleep 60')
    assert done.returncode == 7, done
    assert "process 2" in done.stderr and "code 7" in done.stderr, done.stderr


def test_vanished(network):
    """A machine that cannot be reached any more is named within 5 s."""
    names, net, wires = network
    options = {"store": f"{net}.1:{job.free_port()}", "secret": "shared", "num_processes": 2}
    processes = [
        job.Process(
            "machines", "forever", process_id=p, prefix=["ip", "netns", "exec", name], **options
        )
        for p, name in enumerate(names)
    ]
    try:
        for process in processes:
            process.wait_for_line("ready")
        since = time.monotonic()
        ip("link", "set", wires[1], "down")
        for p, process in enumerate(processes):
            check_told(process, since, f"process {1 - p} (pid ", "is gone")
    finally:
        for process in processes:
            process.end()
