"""The command `oriel`: arguments, info, doctor and the hand-over to Python."""

import re
import shutil
from pathlib import Path

import pytest
from launcher import ORIEL, findings_of

# ---- arguments --------------------------------------------------------------


@pytest.mark.parametrize(
    "args, words",
    [
        (["-n", "0", "true"], '-n takes a whole number from 1 to 1024, not "0"'),
        (["-n", "1025", "true"], 'not "1025"'),
        (["-n", "-3", "true"], 'not "-3"'),
        (["-n", "4x", "true"], 'not "4x"'),
        (["-n", "", "true"], 'not ""'),
        (["-n"], "-n needs a value"),
        (["true"], "-n N is missing"),
        (["-n", "2"], "there is no command to start"),
        (["-n", "2", "--"], "there is no command to start"),
        (
            ["-n", "2", "--timeout", "0", "true"],
            '--timeout takes seconds from 0.001 to 1e+09, not "0"',
        ),
        (["-n", "2", "--timeout", "soon", "true"], 'not "soon"'),
        (["-n", "2", "--timeout=nan", "true"], 'not "nan"'),
        (["-n", "2", "--grace", "-1", "true"], '--grace takes seconds from 0 to 1e+09, not "-1"'),
        (["-n", "2", "--grace", "inf", "true"], 'not "inf"'),
        (["-n", "2", "--grace"], "--grace needs a value"),
        (["-n", "2", "--nodes", "3", "true"], 'there is no option "--nodes"'),
        (["--hosts", "a,,b", "true"], 'a host of --hosts is name or name:count, not ""'),
        (["-x", "true"], 'there is no option "-x"'),
    ],
)
def test_bad_arguments(oriel, args, words):
    done = oriel.run("run", *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Try: oriel help run" in done.stderr
    assert done.stdout == ""


def test_command_options_are_the_commands(oriel):
    assert oriel.run("run", "-n", 1, "echo", "-n", "--help", "x").stdout == "[0] --help x\n"


def test_help_and_version(oriel):
    assert re.fullmatch(r"oriel \d+\.\d+\.\d+\n", oriel.run("--version").stdout)
    listing = oriel.run("--help")
    assert listing.returncode == 0
    for name in ("run", "info", "doctor", "bench", "verify"):
        assert f"\n  {name} " in listing.stdout
        assert oriel.run("help", name).stdout.startswith(f"usage: oriel {name}")
    assert oriel.run("run", "--help").stdout == oriel.run("help", "run").stdout
    nothing = oriel.run()
    assert (nothing.returncode, nothing.stdout) == (2, "")


@pytest.mark.parametrize("args", [["rnu"], ["help", "rnu"], ["runn"]])
def test_unknown_command(oriel, args):
    done = oriel.run(*args)
    assert done.returncode == 2
    assert f'there is no command "{args[-1]}"; did you mean "run"?' in done.stderr


def test_unknown_command_like_no_other(oriel):
    done = oriel.run("concertina")
    assert done.returncode == 2
    assert "did you mean" not in done.stderr


# ---- info and doctor --------------------------------------------------------


def test_info(oriel):
    done = oriel.run("info", env={"ORIEL_TIMEOUT": "12", "ORIEL_SECRET": "hush"})
    assert done.returncode == 0
    assert re.search(r"^oriel \d+\.\d+\.\d+$", done.stdout, re.M)
    assert re.search(r"^ORIEL_TIMEOUT +12 +environment ", done.stdout, re.M)
    assert re.search(r"^ORIEL_CHUNK +\S+ +default ", done.stdout, re.M)
    assert re.search(r"^fabrics +host; on GPUs cuda, nccl", done.stdout, re.M)
    assert re.search(
        r"^operations +all_reduce .* barrier ragged_all_to_all .*scan", done.stdout, re.M
    )
    assert "hush" not in done.stdout + done.stderr


def test_choices(oriel):
    done = oriel.run("info", "--choices", "2")
    assert done.returncode == 0, done.stderr
    assert "calls from XLA" in done.stdout
    assert "all_reduce      up to" in done.stdout
    blind = oriel.run("info", "--choices", "8", env={"ORIEL_DIRECT": "0"})
    assert "pulled" in done.stdout and "pulled" not in blind.stdout
    for wrong in (("1",), ("1025",), ("x",), ("2", "0"), ("2", "x")):
        done = oriel.run("info", "--choices", *wrong)
        assert done.returncode == 2
        assert f'not "{wrong[-1]}"' in done.stderr


def test_choices_on_gpus(oriel):
    """Of a machine without one, too."""
    done = oriel.run("info", "--choices", "2")
    assert re.search(r"GPU of 132 multiprocessors .* 2 processes .* 66 thread blocks", done.stdout)
    assert re.search(r"up to 1048576 +wide +64 of 512 +at its end", done.stdout)
    few = oriel.run("info", "--choices", "4", "16", env={"ORIEL_GPU_CTAS": "8"})
    assert re.search(r"GPU of 16 multiprocessors .* 4 processes .* 2 thread blocks", few.stdout)
    assert re.search(r"more +large +2 of 512", few.stdout)


def test_info_with_a_bad_option(oriel):
    done = oriel.run("info", env={"ORIEL_TIMEOUT": "soon"})
    assert done.returncode == 1
    assert "ORIEL_TIMEOUT" in done.stderr and "soon" in done.stderr


def test_info_of_headers(oriel):
    done = oriel.run("info", "--include")
    assert done.returncode == 0
    assert Path(done.stdout.strip(), "oriel", "kernel.h").is_file()
    assert f"headers     {done.stdout}" in oriel.run("info").stdout


def test_info_takes_no_other_argument(oriel):
    done = oriel.run("info", "--all")
    assert done.returncode == 2
    assert 'there is no argument "--all"' in done.stderr


def test_doctor(oriel):
    done = oriel.run("doctor", "--json")
    found = findings_of(done)
    assert done.returncode == 0
    wanted = [
        "kernel",
        "cores",
        "memory",
        "open files",
        "/proc",
        "C compiler",
        "memfd",
        "futex",
        "record locks",
    ]
    wanted += ["options", "fabric", "store of oriel run", "store", "python"]
    wanted += ["CUDA driver", "NVRTC", "NCCL", "UCX", "NIXL"]
    assert set(wanted) <= set(found)
    for name in ("memfd", "futex", "record locks", "fabric", "store of oriel run"):
        assert found[name]["status"] == "ok"
    text = oriel.run("doctor")
    assert text.returncode == 0
    for name in wanted:
        assert re.search(rf"^(ok|warn|missing|error) +{name}: ", text.stdout, re.M)
    assert re.search(r"^\d+ ok, \d+ warnings, \d+ missing, 0 errors$", text.stdout, re.M)


@pytest.mark.parametrize(
    "env, name, status, words",
    [
        ({"ORIEL_STORE": "127.0.0.1:1"}, "store", "error", "without a secret"),
        ({"ORIEL_STORE": "127.0.0.1:1", "ORIEL_SECRET": "s"}, "store", "warn", "not encrypted"),
        ({"ORIEL_STORE": "unix:@x"}, "store", "warn", "only the user id"),
        ({"ORIEL_STORE": "unix:@x", "ORIEL_SECRET": "s"}, "store", "ok", "same user"),
        ({"ORIEL_TIMEOUT": 'so"on\\'}, "options", "error", 'so"on\\'),
        ({"PATH": "/nonexistent"}, "python", "missing", "no python3"),
        ({"CC": "nocc -m64"}, "C compiler", "missing", "nocc is not found"),
    ],
)
def test_doctor_judges(oriel, env, name, status, words):
    done = oriel.run("doctor", "--json", env=env)
    finding = findings_of(done)[name]
    assert finding["status"] == status
    assert words in " ".join((finding["what"], finding["why"], finding["mend"]))
    assert done.returncode == (1 if status == "error" else 0)
    if status != "ok":
        assert finding["mend"]


def test_doctor_does_not_wait_for_python(oriel, tmp_path):
    """An interpreter that answers nonsense is a finding, not a failure."""
    (tmp_path / "python3").write_text("#!/bin/sh\necho what\n")
    (tmp_path / "python3").chmod(0o755)
    done = oriel.run("doctor", "--json", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert findings_of(done)["python"]["status"] == "warn"


# ---- the hand-over to Python ------------------------------------------------


@pytest.mark.parametrize("name", ["bench", "verify"])
@pytest.mark.parametrize("python", ["python3", "python"])
def test_hand_over_to_the_python_beside(oriel, tmp_path, name, python):
    shutil.copy(ORIEL, tmp_path / "oriel")
    (tmp_path / python).write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    (tmp_path / python).chmod(0o755)
    done = oriel.run(name, "all_reduce", "--help", command=str(tmp_path / "oriel"))
    assert done.returncode == 7
    assert done.stdout == f"-m oriel {name} all_reduce --help\n"


def test_hand_over_to_the_python_on_the_path(oriel, tmp_path):
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    done = oriel.run("bench", "x", env={"PATH": f"/nonexistent:{tmp_path}"})
    assert done.stdout == "-m oriel bench x\n"


def test_hand_over_without_python(oriel):
    done = oriel.run("bench", env={"PATH": "/nonexistent"})
    assert done.returncode == 127
    assert "needs Python" in done.stderr
