"""oriel verify: reading the logs, and every end that it can come to, with a worker that does
as it is told. What XLA itself does is seen on a machine with GPUs (tests/gpu)."""

import json
import os
import sys
from pathlib import Path

import pytest
from oriel import __main__ as oriel_main
from oriel import _verify
from oriel._verify import log
from oriel._verify.worker import expected, values
from oriel.bench import launch
from support import find_oriel

SYMMETRIC, USER = _verify.FLAGS
HOPPER = {
    "jax": "0.11.2",
    "platform": "gpu",
    "gpus": ["NVIDIA H200"],
    "capability": "9.0",
    "nccl": {"version": 23007, "file": "/x/libnccl.so.2"},
}

# As of jaxlib 0.10: XLA's words, and NCCL 2.28's.
REGISTER = """\
I0000 00:00:1780.5  200 nccl_communicator.cc:444] [0] Register symmetric buffer for NCCL \
communicator; buffer=0x402000000; size=33554432; comm=0x7303a400a280
host:1:273 [0] NCCL INFO Symmetric VA size=96GB
host:1:200 [0] NCCL INFO register comm 0x7303a400a280 buffer 0x402000000 size 33554432
I0000 00:00:1790.5  200 nccl_communicator.cc:90] [0] Deregister symmetric buffer for NCCL \
communicator; handle=0x55; comm=0x7303a400a280
"""
# Of 0.11 on, with NCCL 2.30's kernels; the buffer is asked for twice.
CREATE = """\
I1115 20:00:00.1 200 nccl_symmetric_memory.cc:43] Create NCCL symmetric memory on \
comm=0x7303A400A280 from: ptr=0x404000000; size=2097152
[2026-11-15 20:00:00] host:1:200 [0] NCCL INFO register comm 0x7303a400a280 buffer 0x404000000 \
size 2097152
host:1:200 [0] NCCL INFO [0] Segment 0, Type : 1, numSegments : 1, Segment size : 2097152
I1115 20:00:00.2 200 nccl_symmetric_memory.cc:43] Create NCCL symmetric memory on \
comm=0x7303a400a280 from: ptr=0x404000000; size=2097152
host:1:200 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 2
host:1:200 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 2
I1115 20:00:00.3 200 nccl_symmetric_memory.cc:49] Destroy NcclSymmetricMemory(comm=0x7303a400a280, \
win=0x1, ptr=0x404000000, size=2097152)
"""
PLAIN = """\
I0000 nccl_communicator.cc:444] [0] Register buffer for NCCL communicator; buffer=0x40; size=64; \
comm=0x7
h:1:2 [0] NCCL INFO register comm 0x7 buffer 0x40 size 64
"""
ASKED = "I0 nccl_symmetric_memory.cc:43] Create NCCL symmetric memory on comm=0x7 from: ptr=0x40; size=8\n"
OTHER_WORDS = (
    "h:1:2 [0] NCCL INFO Symmetric VA size=96GB\n"
    "h:1:2 NCCL INFO register comm 0x7 buffer 0x40 size 64\n"
)


# Another size at the same address; the two logs come through two descriptors, in any order.
AGAIN = "".join(
    f"h:1:2 [0] NCCL INFO register comm 0x7 buffer 0x40 size {size}\n"
    f"I0 x.cc:85] Create NCCL symmetric memory on comm=0x7 from: ptr=0x40; size={size}\n"
    for size in (8, 16, 8)
)


def one(buffer, size, comm, xla=1, nccl=1):
    return {"buffer": buffer, "size": size, "comm": comm, "xla": xla, "nccl": nccl}


@pytest.mark.parametrize(
    "text, found",
    [
        (REGISTER, [one("0x402000000", 33554432, "0x7303a400a280")]),
        (CREATE, [one("0x404000000", 2097152, "0x7303a400a280", 2, 1)]),
        (AGAIN, [one("0x40", 8, "0x7", 2, 2), one("0x40", 16, "0x7", 1, 1)]),
        (PLAIN, []),
        (ASKED, [one("0x40", 8, "0x7", nccl=0)]),
        (ASKED + PLAIN.replace("0x7", "0x9"), [one("0x40", 8, "0x7", nccl=0)]),
        (OTHER_WORDS, [one("0x40", 64, "0x7", xla=0)]),
        ("h:1:2 NCCL INFO Skipping registration for buffer 0x4 size 8 of comm 0x7", []),
        ("", []),
    ],
    ids=[
        "register",
        "create",
        "again",
        "plain",
        "asked",
        "other-comm",
        "nccl-alone",
        "skipped",
        "empty",
    ],
)
def test_registrations(text, found):
    assert log.registrations(text) == found


def test_kernels():
    wanted = {"operation": "AllReduce", "bytes": 4096, "kernel": "AllReduce_AGxLL_R"}
    assert log.kernels(CREATE) == [wanted]


def test_expected_sums():
    parts = [values(rank, 6) for rank in range(3)]
    assert (expected("psum", 1, 3, 6) == parts[0] + parts[1] + parts[2]).all()
    assert (expected("psum_scatter", 1, 3, 6) == sum(parts)[2:4]).all()
    assert (expected("all_gather", 1, 3, 6) == [*parts[0][:2], *parts[1][:2], *parts[2][:2]]).all()


# ---- the command -----------------------------------------------------------------------


@pytest.fixture
def verify(monkeypatch, tmp_path, capsys):
    """verify(*words, log=…, here=…, **environment): (exit code, what was printed, JSON)."""
    monkeypatch.setattr(launch, "find_command", find_oriel)
    monkeypatch.delenv("XLA_FLAGS")

    def run(*words, text="", here=HOPPER, **environment):
        (tmp_path / "log").write_text(text)
        told = {"FAKE_HERE": json.dumps(here), "FAKE_LOG": str(tmp_path / "log")}
        for name, value in (told | environment).items():
            monkeypatch.setenv(name, value)
        worker = [sys.executable, "-I", "-S", str(Path(__file__).parent / "fake_verify.py")]
        code = _verify.main([*words, "--json", str(tmp_path / "json")], worker)
        return code, capsys.readouterr().out, json.loads((tmp_path / "json").read_text())

    return run


def test_seen_and_right(verify, tmp_path):
    code, out, content = verify(
        "-n", "2", "--sizes", "4K,1M", "--keep-log", str(tmp_path / "kept"), text=REGISTER + CREATE
    )
    assert code == 0
    assert out.endswith(
        "seen: XLA has registered buffers with NCCL as symmetric memory, 4 times in all, and all 6 "
        "results are right\n"
    )
    assert "      1  0x402000000           33554432  0x7303a400a280          1\n" in out
    assert "      1; 1 asked for by XLA and not done by NCCL\n" in out
    assert "NCCL's symmetric kernel for AllReduce: AllReduce_AGxLL_R" in out
    assert "psum               1 MiB  right" in out
    assert "NCCL    2.30.7, /x/libnccl.so.2" in out
    assert (content["verdict"], content["code"], content["ranks"]) == ("seen", 0, 2)
    assert [r["process"] for r in content["registrations"]] == [0, 0, 1, 1]
    kept = (tmp_path / "kept").read_text()
    assert "==> work, process 1, exit code 0 <==" in kept and REGISTER.splitlines()[1] in kept


def test_all_gpus_in_one_process(verify):
    code, out, content = verify(here=HOPPER | {"gpus": ["NVIDIA H200"] * 4}, text=CREATE)
    assert code == 0
    assert "ranks   4 in 1 process\n" in out and "4 x NVIDIA H200" in out
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in content["settings"]


def test_wrong_beats_seen(verify):
    code, out, content = verify("-n", "2", text=CREATE, FAKE_WRONG="1")
    assert code == 4 and content["verdict"] == "wrong results"
    assert out.endswith("psum of 4 KiB is wrong: rank 0: 1 of 8 elements are wrong\n")


@pytest.mark.parametrize(
    "text, gpu, said",
    [
        (ASKED, "9.0", "XLA asked for it, and NCCL did not do it, nor say why"),
        (PLAIN, "9.0a", "but the log of process 0, 1 tells of none\n"),
        (PLAIN, "8.0", "XLA does it from Hopper (9.0) on, this GPU is 8.0"),
        ("h NCCL INFO Symmetric registration is not supported here.\n", "9.0", "not supported"),
    ],
    ids=["asked", "plain", "old-gpu", "refused"],
)
def test_nothing_seen(verify, text, gpu, said):
    code, out, _ = verify("-n", "2", text=text, here=HOPPER | {"capability": gpu})
    assert code == 3
    assert "no registration seen: the results are right, but" in out and said in out


def test_processes_fail(verify):
    code, out, _ = verify("-n", "2", FAKE_END="abort")
    assert code == 1
    assert "failed: XLA's collectives failed: Duplicate GPU detected : rank 0 and rank 1" in out


@pytest.mark.parametrize(
    "words, here, said",
    [
        ([], HOPPER | {"platform": "cpu"}, "JAX finds no GPU"),
        ([], HOPPER, "fewer than two ranks: there is one GPU"),
        (["-n", "1"], HOPPER, "fewer than two ranks: -n 1"),
        (
            ["-n", "2"],
            HOPPER | {"nccl": {"version": 22809, "file": "/y"}},
            "2 ranks on 1 GPU would have to share, which NCCL 2.28.9 (/y) refuses",
        ),
    ],
    ids=["no-gpu", "one-gpu", "one-process", "old-nccl"],
)
def test_not_here(verify, words, here, said):
    code, out, content = verify(*words, here=here)
    assert code == 77 and content["code"] == 77
    assert out.startswith("not available here: ") and said in out and out.count("\n") == 1


@pytest.mark.parametrize(
    "unknown, said",
    [
        (f"{USER} {SYMMETRIC}", f"know {SYMMETRIC.split('=')[0]} and {USER.split('=')[0]}\n"),
        ("--xla_mine=1", "does not know --xla_mine, which the environment's XLA_FLAGS has\n"),
    ],
    ids=["ours", "environment"],
)
def test_unknown_flag(verify, unknown, said):
    code, out, _ = verify(FAKE_UNKNOWN=unknown, XLA_FLAGS="--xla_mine=1")
    assert code == 77
    assert out.startswith("not available here: jaxlib ") and out.endswith(said)


def test_environment_of_ranks_that_share(verify, tmp_path):
    library = tmp_path / "libnccl.so.2"
    library.write_text("")
    code, _, content = verify("-n", "3", "--nccl", str(library), text=CREATE, XLA_FLAGS="--mine=1")
    assert code == 0
    seen = content["results"][0]
    assert seen["LD_PRELOAD"] == str(library)
    assert (seen["NCCL_MULTI_RANK_GPU_ENABLE"], seen["NCCL_MAX_CTAS"]) == ("1", "32")
    assert seen["XLA_FLAGS"].split() == ["--mine=1", SYMMETRIC, USER]


def test_deadline_ends_a_hanging_child_and_its_child(verify, tmp_path):
    pids = tmp_path / "pids"
    code, out, _ = verify("-n", "2", "--timeout", "1", FAKE_END="hang", FAKE_PIDS=str(pids))
    assert code == 124
    assert out == "timeout: it was not done within 1 s (--timeout)\n"
    found = [pid for i in range(2) for pid in Path(f"{pids}.{i}").read_text().split()]
    assert len(found) == 4
    assert not [pid for pid in found if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    "words",
    [["-n", "0"], ["--timeout", "no"], ["--nccl", "/nowhere"], ["--json", "/no/such"], ["x"]],
)
def test_bad_arguments(words, capsys):
    with pytest.raises(SystemExit) as end:
        _verify.main(words)
    assert end.value.code == 2
    assert "oriel verify: error: " in capsys.readouterr().err


def test_without_a_gpu(monkeypatch, capsys):
    """The real worker, on CPUs."""
    monkeypatch.setattr(launch, "find_command", find_oriel)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert oriel_main.main(["verify"]) == 77
    assert capsys.readouterr().out.startswith("not available here: JAX finds no GPU")
