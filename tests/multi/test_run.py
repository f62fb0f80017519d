"""The command `oriel run`.

Every test starts the command with a mark in its environment, and when the test
is over no process with that mark may be left, whatever happened.
"""

import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time

import pytest
from launcher import (
    LIMIT,
    ORIEL,
    lines_of,
    marked_process_named,
    read_numbers,
    read_until,
    wait_for_end,
)

# ---- what a process gets ----------------------------------------------------


def test_environment_of_each_process(oriel):
    names = "$ORIEL_PROCESS_ID $ORIEL_NUM_PROCESSES $ORIEL_STORE $ORIEL_SECRET"
    outer = {"ORIEL_PROCESS_ID": "7", "ORIEL_SECRET": "outer", "KEPT": "kept"}
    done = oriel.sh(3, f"echo {names} $KEPT", env=outer)
    assert done.returncode == 0
    rows = [lines_of(done.stdout, i)[0].split() for i in range(3)]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert {row[1] for row in rows} == {"3"}
    assert {row[4] for row in rows} == {"kept"}
    (store,) = {row[2] for row in rows}
    (secret,) = {row[3] for row in rows}
    assert re.fullmatch(r"unix:@[^ ]+", store)
    assert re.fullmatch(r"[0-9a-f]{64}", secret)
    assert store.removeprefix("unix:") not in pathlib.Path("/proc/net/unix").read_text()


def test_each_variable_is_there_once(oriel):
    outer = {"ORIEL_PROCESS_ID": "7", "ORIEL_STORE": "outer"}
    lines = lines_of(oriel.run("run", "-n", 1, "env", env=outer).stdout, 0)
    names = sorted(line.split("=")[0] for line in lines if line.startswith("ORIEL_"))
    assert names == ["ORIEL_NUM_PROCESSES", "ORIEL_PROCESS_ID", "ORIEL_SECRET", "ORIEL_STORE"]


def test_each_run_has_its_own_secret(oriel):
    assert len({oriel.sh(1, "echo $ORIEL_SECRET").stdout for _ in range(2)}) == 2


def test_the_store_listens(oriel):
    connect = (
        "import os, socket\n"
        "name = os.environ['ORIEL_STORE'].removeprefix('unix:@')\n"
        "socket.socket(socket.AF_UNIX).connect(chr(0) + name)\n"
    )
    assert oriel.run("run", "-n", 2, "--", sys.executable, "-c", connect).returncode == 0


def test_input_is_empty(oriel):
    process = oriel.start("run", "-n", 2, "cat", stdin=subprocess.PIPE)
    assert process.wait(timeout=LIMIT) == 0
    process.stdin.close()


def test_each_process_leads_a_group(oriel):
    script = "import os; print(os.getpid() == os.getpgrp())"
    done = oriel.run("run", "-n", 2, sys.executable, "-c", script)
    assert sorted(done.stdout.splitlines()) == ["[0] True", "[1] True"]


def test_signals_of_a_process_are_the_callers(oriel):
    done = oriel.run("run", "-n", 1, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    # Signals 32 and 33 are the C library's own, and make leaves them ignored.
    own = 0b11 << 31
    sets = [int(line.split()[1], 16) & ~own for line in lines_of(done.stdout, 0)]
    assert sets == [0, 0]


def test_limits_of_a_process_are_the_callers(oriel):
    script = f"ulimit -Sn 300; {ORIEL} run -n 1 sh -c 'ulimit -Sn; ulimit -Hn'"
    done = oriel.run("-c", f"ulimit -Hn; {script}", command="/bin/sh")
    hard, *inner = done.stdout.split("\n")
    assert inner[:2] == ["[0] 300", f"[0] {hard}"]


# ---- exit codes -------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 77, 255])
def test_exit_code_is_kept(oriel, code):
    done = oriel.sh(2, f"test $ORIEL_PROCESS_ID = 0 || exit {code}")
    assert done.returncode == code
    assert (f"exited with code {code}" in done.stderr) == (code != 0)


def test_killed_process_is_named(oriel):
    done = oriel.sh(3, "if [ $ORIEL_PROCESS_ID = 2 ]; then echo pid $$; kill -9 $$; fi")
    pid = lines_of(done.stdout, 2)[0].split()[1]
    assert done.returncode == 128 + 9
    assert f"oriel run: process 2 (pid {pid}) was killed by signal 9 (Killed)" in done.stderr


def test_last_words_come_before_the_sentence(oriel):
    count = 500_000  # more than fits into the buffers on the way
    done = oriel.sh(1, f"seq {count} >&2; exit 4")
    lines = done.stderr.splitlines()
    assert lines[:-1] == [f"[0] {i}" for i in range(1, count + 1)]
    assert re.fullmatch(r"oriel run: process 0 \(pid \d+\) exited with code 4", lines[-1])


def test_code_of_the_first_failure_is_kept(oriel):
    script = 'trap "exit 9" TERM; [ $ORIEL_PROCESS_ID = 1 ] && exit 3; while :; do sleep 0.1; done'
    done = oriel.sh(3, script, "--grace", 0)
    assert done.returncode == 3
    assert done.stderr.count("exited with code") == 1


def test_program_that_is_not_there(oriel):
    start = time.monotonic()
    done = oriel.run("run", "-n", 4, "--", "no-such-program")
    assert done.returncode == 127
    assert time.monotonic() - start < 9
    assert 'oriel run: cannot start "no-such-program": No such file' in done.stderr


def test_program_that_cannot_be_started(oriel, tmp_path):
    (tmp_path / "plain").write_text("text")
    done = oriel.run("run", "-n", 2, tmp_path / "plain")
    assert done.returncode == 126
    assert "Permission denied" in done.stderr


def test_many_processes(oriel):
    start = time.monotonic()
    done = oriel.run("run", "-n", 64, "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - start < 20
    assert oriel.sh(200, "echo $ORIEL_PROCESS_ID").stdout.count("\n") == 200


# ---- output -----------------------------------------------------------------


def test_burst_loses_nothing(oriel):
    count = 100_000
    done = oriel.sh(4, f"seq {count} & seq {count} >&2; wait")
    assert done.returncode == 0
    wanted = [str(i) for i in range(1, count + 1)]
    for text in (done.stdout, done.stderr):
        assert text.count("\n") == 4 * count
        for process in range(4):
            assert lines_of(text, process) == wanted


def test_stdout_and_stderr_stay_apart(oriel):
    done = oriel.sh(2, "echo out; echo err >&2")
    assert sorted(done.stdout.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(done.stderr.splitlines()) == ["[0] err", "[1] err"]


def test_lines_stay_whole(oriel):
    script = "for i in 1 2 3 4 5 6 7 8 9; do printf aaaa; printf 'bbbb\\n'; done"
    done = oriel.sh(4, script)
    assert set(done.stdout.splitlines()) == {f"[{i}] aaaabbbb" for i in range(4)}


def test_unfinished_last_line(oriel):
    done = oriel.sh(3, "printf unfinished")
    assert sorted(done.stdout.splitlines()) == [f"[{i}] unfinished" for i in range(3)]


def binary_program(tmp_path, data):
    (tmp_path / "data").write_bytes(data)
    return ["cat", tmp_path / "data"]


def test_bytes_pass_unchanged(oriel, tmp_path):
    data = bytes(range(256)) * 300 + b"\n" + b"x" * (3 << 20) + b"\nend without newline \0\r"
    process = oriel.start("run", "-n", 1, "--no-tag", "--", *binary_program(tmp_path, data))
    assert process.communicate(timeout=LIMIT)[0] == data
    process = oriel.start("run", "-n", 1, "--", *binary_program(tmp_path, data))
    tagged = b"\n".join(b"[0] " + line for line in data.split(b"\n")) + b"\n"
    assert process.communicate(timeout=LIMIT)[0] == tagged


def test_carriage_return_ends_a_line_on_a_terminal(oriel):
    """So a progress bar moves; in a file the line stays whole."""
    script = "printf '1%%\\r2%%\\rdone\\r\\n'"
    controller, terminal = pty.openpty()
    process = oriel.start("run", "-n", 1, "--", "sh", "-c", script, stdout=terminal)
    os.close(terminal)
    assert process.wait(timeout=LIMIT) == 0
    assert os.read(controller, 4096) == b"[0] 1%\r[0] 2%\r[0] done\r\r\n"
    os.close(controller)
    process = oriel.start("run", "-n", 1, "--", "sh", "-c", script)
    assert process.communicate(timeout=LIMIT)[0] == b"[0] 1%\r2%\rdone\r\n"


def test_very_long_line_comes_in_pieces(oriel):
    done = oriel.sh(1, "head -c 40000000 /dev/zero | tr '\\0' x; echo")
    assert done.stdout.count("x") == 40_000_000
    assert all(line.startswith("[0] ") for line in done.stdout.splitlines())


def test_log_folder(oriel, tmp_path):
    folder = tmp_path / "logs"
    done = oriel.sh(3, "echo out $ORIEL_PROCESS_ID; echo err >&2; printf x", "--log-dir", folder)
    assert done.returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["0.log", "1.log", "2.log"]
    for i in range(3):
        text = (folder / f"{i}.log").read_text()
        assert text in (f"out {i}\nerr\nx", f"out {i}\nxerr\n", f"err\nout {i}\nx")


def test_log_folder_that_cannot_be_made(oriel, tmp_path):
    done = oriel.sh(1, "true", "--log-dir", tmp_path / "no" / "such")
    assert done.returncode == 1
    assert "cannot make the folder" in done.stderr


def test_reader_that_does_not_read(oriel):
    """A full pipe keeps the launcher neither from its limit nor from its end."""
    script = "head -c 8000000 /dev/zero | tr '\\0' '\\n'"
    process = oriel.start("run", "-n", 2, "--timeout", 1, "--", "sh", "-c", script)
    assert process.wait(timeout=LIMIT) == 124


def test_reader_that_goes_away(oriel):
    process = oriel.start("run", "-n", 2, "--", "yes")
    assert process.stdout.readline() in (b"[0] y\n", b"[1] y\n")
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=LIMIT) == 128 + signal.SIGPIPE
    assert b"was killed by signal 13" in err


# ---- how a run ends ---------------------------------------------------------


def test_grace_lets_the_others_finish(oriel, tmp_path):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    script = f'[ $ORIEL_PROCESS_ID = 0 ] && exit 3; read word < {fifo}; echo "late $word"'
    process = oriel.start("run", "-n", 2, "--grace", 50, "--", "sh", "-c", script)
    read_until(process.stderr, r"process 0 .* exited with code 3; waiting 50 s for the others")
    fifo.write_text("words\n")
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3
    assert out == b"[1] late words\n"
    assert b"SIGTERM" not in err


def fail_after(others, folder):
    """The start of a script: process 0 exits with code 3 once the `others` have said
    in a pipe that they are prepared."""
    os.mkfifo(folder / "prepared")
    waiting = "read word; " * others
    return f"[ $ORIEL_PROCESS_ID = 0 ] && {{ exec <>prepared; {waiting} exit 3; }};"


def test_sigterm_after_the_grace(oriel, tmp_path):
    script = (
        f'{fail_after(2, tmp_path)} trap "echo told; exit 0" TERM; echo >prepared;'
        "while :; do sleep 0.05; done"
    )
    start = time.monotonic()
    done = oriel.sh(3, script, "--grace", 0.4, cwd=tmp_path)
    assert time.monotonic() - start >= 0.4
    assert done.returncode == 3
    assert sorted(done.stdout.splitlines()) == ["[1] told", "[2] told"]
    assert "processes 1, 2 still run after 0.4 s; sending SIGTERM" in done.stderr


def test_sigkill_for_those_that_ignore_sigterm(oriel, tmp_path):
    script = f'{fail_after(1, tmp_path)} trap "" TERM; echo >prepared; sleep 1000'
    start = time.monotonic()
    done = oriel.sh(2, script, "--grace", 0.1, cwd=tmp_path)
    assert 2.1 <= time.monotonic() - start < 20
    assert done.returncode == 3
    assert "process 1 still runs 2 s after SIGTERM; sending SIGKILL" in done.stderr


def test_stopped_process_is_ended(oriel):
    script = "[ $ORIEL_PROCESS_ID = 0 ] && exit 3; kill -STOP $$"
    done = oriel.sh(2, script, "--grace", 0.1)
    assert done.returncode == 3
    assert "SIGTERM" in done.stderr and "SIGKILL" not in done.stderr


@pytest.mark.parametrize("code", [0, 5])
@pytest.mark.parametrize("start", ["sleep 1000", "setsid sleep 1000", "setsid -f sleep 1000"])
def test_nothing_is_left_of_grandchildren(oriel, start, code):
    """In the group, in a session of its own, and orphaned at once; the fixture
    looks for what is left."""
    done = oriel.sh(2, f"{start} >&2 & echo $!; exit {code}")
    assert done.returncode == code
    for i in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(int(lines_of(done.stdout, i)[0]), 0)


def test_grandchildren_that_ignore_sigterm(oriel):
    done = oriel.sh(2, 'trap "" TERM; setsid sleep 1000 & exit 0')
    assert done.returncode == 0
    assert "left behind still run 2 s after SIGTERM; sending SIGKILL" in done.stderr


def test_output_of_grandchildren_is_kept(oriel):
    done = oriel.sh(2, "(sleep 0.1; seq 1000) &")
    assert done.returncode == 0
    for i in range(2):
        assert lines_of(done.stdout, i) == [str(k) for k in range(1, 1001)]


def test_orphans_are_collected_while_the_run_goes_on(oriel, tmp_path):
    for name in ("parent", "orphan"):
        os.mkfifo(tmp_path / name)
    script = "(cat orphan & echo $!); read word < parent"
    process = oriel.start("run", "-n", 1, "--", "sh", "-c", script, cwd=tmp_path)
    (pid,) = read_numbers(process.stdout, 1)
    (tmp_path / "orphan").write_text("")  # ends it
    deadline = time.monotonic() + 10
    while pathlib.Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the orphan stays a zombie"
        os.sched_yield()
    (tmp_path / "parent").write_text("go on\n")
    assert process.wait(timeout=LIMIT) == 0


def test_time_limit(oriel):
    start = time.monotonic()
    done = oriel.sh(2, "sleep 1000", "--timeout", 0.5)
    assert 0.5 <= time.monotonic() - start < 20
    assert done.returncode == 124
    assert (
        "the limit of 0.5 s has passed and processes 0, 1 still run; sending SIGTERM" in done.stderr
    )


def test_time_limit_that_is_not_reached(oriel):
    assert oriel.sh(2, "true", "--timeout", 50).returncode == 0


def test_failure_before_the_time_limit_keeps_its_code(oriel):
    script = "[ $ORIEL_PROCESS_ID = 0 ] && exit 3; sleep 1000"
    done = oriel.sh(2, script, "--timeout", 3, "--grace", 50)
    assert done.returncode == 3


@pytest.mark.parametrize("name, code", [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)])
def test_signal_is_passed_on(oriel, name, code):
    script = f'trap "echo told; exit 0" {name}; echo 1; while :; do sleep 0.05; done'
    process = oriel.start("run", "-n", 3, "--", "sh", "-c", script)
    read_numbers(process.stdout, 3)
    process.send_signal(getattr(signal, f"SIG{name}"))
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code
    assert sorted(out.decode().splitlines()) == ["[0] told", "[1] told", "[2] told"]
    assert f"SIG{name} is passed on to all processes".encode() in err


def test_process_that_ignores_the_signal_is_killed_after_the_grace(oriel):
    script = 'trap "" INT; echo 1; sleep 1000'
    process = oriel.start("run", "-n", 2, "--grace", 0.2, "--", "sh", "-c", script)
    read_numbers(process.stdout, 2)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130
    assert b"processes 0, 1 still run after 0.2 s; sending SIGKILL" in err


def test_second_interrupt_kills_at_once(oriel):
    script = 'trap "" INT TERM; echo 1; sleep 1000'
    process = oriel.start("run", "-n", 2, "--grace", 1000, "--", "sh", "-c", script)
    read_numbers(process.stdout, 2)
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "SIGINT is passed on")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130


def test_control_c_on_a_terminal(oriel):
    """The terminal signals the foreground group, which is the launcher alone."""
    script = 'trap "echo told; exit 0" INT; echo 1; while :; do sleep 0.05; done'
    controller, terminal = pty.openpty()
    process = oriel.start("run", "-n", 2, "--", "sh", "-c", script, terminal=terminal)
    read_numbers(process.stdout, 2)
    os.write(controller, b"\x03")
    out = process.communicate(timeout=LIMIT)[0]
    os.close(controller)
    assert process.returncode == 130
    assert sorted(out.splitlines()) == [b"[0] told", b"[1] told"]


def test_hangup_is_ignored_under_nohup(oriel):
    process = oriel.start(
        "run", "-n", 1, "--", "sh", "-c", "echo 1; sleep 1000", ignore=[signal.SIGHUP]
    )
    read_numbers(process.stdout, 1)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 143


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_killed_launcher_leaves_nothing(oriel, kill):
    script = 'trap "" TERM HUP; sleep 1000 & echo $!; echo $$; wait'
    process = oriel.start("run", "-n", 3, "--", "sh", "-c", script, start_new_session=True)
    pids = read_numbers(process.stdout, 6)
    # A keeper that was just forked still has the launcher's name.
    pids.append(marked_process_named("oriel-keeper", oriel.mark.encode()))
    pidfds = [os.pidfd_open(pid) for pid in pids]
    kill(process.pid, signal.SIGKILL)
    wait_for_end(pidfds)
