"""The suite of the examples: what their READMEs say to run, against the package that
is installed beside this Python. What a person should see, the tests want to see."""

import re
import shutil
import sys

from harness import FAILED, LOGS, PASSED, ROOT, SKIPPED, Case, last_lines

EXAMPLES = ROOT / "examples"
FOUR_DEVICES = "--xla_force_host_platform_device_count=4"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def expect(session, case_id, *command, lines, status=0, **env):
    """A command whose exit status is `status` and in whose output each of the
    patterns `lines` is a whole line. mpirun may put lines of two processes on one."""
    got, output = session.sh(*command, timeout=120, **env)
    whole = "{}" if command[0] == "mpirun" else "^{}$"
    absent = [line for line in lines if not re.search(whole.format(line), output, re.M)]
    if got == status and not absent:
        return Case(case_id, PASSED)
    wanted = "".join(f"\nno line {line}" for line in absent)
    return Case(case_id, FAILED, f"exit status {got}{wanted}\n{last_lines(output, 12)}")


def oriel_run(processes, *command):
    return ["oriel", "run", "--no-tag", "--grace", "60", "-n", processes, "--", *command]


def from_each(processes, text):
    return [rf"\[proc {i}/{processes}\] {text}" for i in range(processes)]


def run_python(session, case_id, script, *arguments, processes, lines, **keywords):
    """With 0 processes: in one, without a launcher."""
    script = next(EXAMPLES.glob(script if "/" in script else f"*/{script}"))
    command = [sys.executable, script, *arguments]
    return expect(
        session,
        f"examples/{case_id}",
        *(oriel_run(processes, *command) if processes else command),
        lines=lines,
        **keywords,
    )


def build(session, name, oriel="oriel"):
    """A copy of the example, built with its Makefile against the library of the command
    `oriel`; the folder, or a case that says why not."""
    case_id = f"examples/{name}"
    status, config = session.sh(oriel, "info", "--pkg-config")
    if status != 0:
        return None, Case(case_id, FAILED, config)
    if not session.which("pkg-config"):
        return None, Case(case_id, SKIPPED, "pkg-config is not installed (pkg-config)")
    folder = LOGS / "examples" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(EXAMPLES / name, folder)
    status, output = session.sh(
        "make",
        "-C",
        folder,
        PKG_CONFIG_PATH=config.strip(),
        CFLAGS="-O2 -std=c11 -Wall -Wextra -Werror",
    )
    if status != 0:
        return None, Case(case_id, FAILED, last_lines(output, 12))
    return folder, None


def heat_line():
    """The same digits whoever computes them, and those of the README."""
    text = (EXAMPLES / "02_c_program" / "README.md").read_text()
    return re.escape(re.search(r"^\[0\] (64 cells.*)$", text, re.M)[1])


def summed(ranks):
    """What 01_all_reduce prints: each rank brings its number."""
    total = ranks * (ranks - 1) / 2
    return rf"N=1048576 expected={total} got\[0\]={total} got\[-1\]={total} ALL_OK=True"


def run_heat(session):
    folder, problem = build(session, "02_c_program")
    if problem:
        return [problem]
    heat = folder / "heat"
    cases = [
        expect(session, f"examples/02_c_program-{n}", *oriel_run(n, heat), lines=[heat_line()])
        for n in (1, 4)
    ]
    cases.append(run_installed(session))
    few = r"heat: 3 cells are too few for 4 ranks"
    return cases + [
        expect(
            session, "examples/02_c_program-failure", *oriel_run(4, heat, 3), lines=[few], status=1
        )
    ]


def run_installed(session):
    """The library and the command alone, without Python, where cmake --install put them."""
    case_id = "examples/02_c_program-installed"
    prefix = LOGS / "examples" / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    problem = session.build("normal")
    status, output = session.sh("cmake", "--install", ROOT / "build/normal", "--prefix", prefix)
    if problem or status != 0:
        return Case(case_id, FAILED, problem or last_lines(output, 12))
    command = prefix / "bin" / "oriel"
    folder, problem = build(session, "02_c_program", command)
    return problem or expect(
        session, case_id, command, *oriel_run(2, folder / "heat")[1:], lines=[heat_line()]
    )


def run_mpirun(session):
    if not session.which("mpicc") or not session.which("mpirun"):
        return [
            Case(
                "examples/06_mpirun",
                SKIPPED,
                "mpicc or mpirun is not installed (libopenmpi-dev, openmpi-bin)",
            )
        ]
    folder, problem = build(session, "06_mpirun")
    if problem:
        return [problem]
    lines = [f"rank {i} of 3: the same sums" for i in range(3)]
    cases = [
        expect(session, "examples/06_mpirun", *MPIRUN, "-n", "3", folder / "both", lines=lines)
    ]
    heat, problem = build(session, "02_c_program")
    cases.append(
        problem
        or expect(
            session,
            "examples/06_mpirun-heat",
            *MPIRUN,
            "-n",
            "2",
            heat / "heat",
            lines=[heat_line()],
        )
    )
    return [
        *cases,
        expect(
            session,
            "examples/06_mpirun-jax",
            *MPIRUN,
            "-n",
            "2",
            sys.executable,
            EXAMPLES / "01_all_reduce" / "all_reduce.py",
            lines=from_each(2, summed(2)),
        ),
    ]


def run_host_function(session):
    folder, problem = build(session, "10_host_function")
    if problem:
        return [problem]
    expected = r"N=1001 expected=1\.0 got\[0\]=1\.0 got\[-1\]=1\.0 ALL_OK=True"
    return [
        run_python(
            session,
            "10_host_function",
            "10_*/run.py",
            1001,
            folder / "liball_reduce.so",
            processes=2,
            lines=from_each(2, expected),
        )
    ]


def run_recovery(session):
    what = r"step \d+: .*all_reduce sum of 4000 bytes of f32 at __main__:23 on rank {} \(process .\): {}"
    gone = r"rank 1 is missing: process 1 \(pid \d+\) is gone, after .* s"
    fault = "process 1: call 20 of operation failed, as ORIEL_FAULT asks.*"
    left = r"\[proc {}\] {} processes left, 40 steps, ALL_OK=True"
    return [
        run_python(
            session,
            "05_recovery-killed",
            "recovery.py",
            20,
            1,
            processes=3,
            status=128 + 9,
            lines=[line for i in (0, 2) for line in (what.format(i, gone), left.format(i, 2))],
        ),
        run_python(
            session,
            "05_recovery-fault",
            "recovery.py",
            processes=3,
            ORIEL_FAULT="operation:20=fail@1",
            lines=[line for i in range(3) for line in (what.format(i, fault), left.format(i, 3))],
        ),
    ]


def run_kernels(session):
    added = r"1001 elements, got\[0\]=1\.0 got\[-1\]=\S+, bits as oriel\.all_reduce: True"
    cooled = r"32 x 32 cells, 50 steps in one call, heat left 0\.\d+, ALL_OK=True"
    fused = "8 x 100: in one kernel as one after the other, ALL_OK=True"
    picture = LOGS / "heat.png"
    picture.unlink(missing_ok=True)
    cases = [
        run_python(
            session, "07_my_all_reduce", "07_*/run.py", 1001, processes=2, lines=from_each(2, added)
        ),
        run_python(
            session,
            "07_my_all_reduce-devices",
            "07_*/run.py",
            1001,
            processes=0,
            lines=from_each(1, added.replace("1\\.0", "6\\.0")),
            XLA_FLAGS=FOUR_DEVICES,
        ),
        run_python(
            session,
            "08_halo_exchange",
            "08_*/run.py",
            32,
            50,
            picture,
            processes=3,
            lines=[*from_each(3, cooled.replace("32 x 32", "30 x 30")), f"wrote {picture}"],
        ),
        run_python(
            session,
            "09_fused_reduce_scatter",
            "09_*/run.py",
            8,
            100,
            processes=2,
            lines=from_each(2, fused),
        ),
    ]
    long = [
        path for path in EXAMPLES.glob("0[789]_*/*.cu") if len(path.read_text().splitlines()) > 60
    ]
    return [
        *cases,
        Case(
            "examples/kernels-are-short",
            FAILED if long else PASSED,
            f"more than 60 lines: {', '.join(map(str, long))}" if long else "",
        ),
    ]


def run_data_parallel(session):
    trained = r"100 arrays, 211200 bytes, loss (\S+), with lax \1, on one device \S+, ALL_OK=True"
    picture = LOGS / "steps.png"
    picture.unlink(missing_ok=True)
    shown = rf"wrote {picture}|matplotlib is not installed; milliseconds of each step:"
    times = r"a step, median: oriel \d+ us, lax \d+ us"
    return [
        run_python(
            session,
            "12_data_parallel",
            "12_*/train.py",
            5,
            picture,
            processes=2,
            lines=[*from_each(2, trained), times, f"(?:{shown})"],
        ),
        run_python(
            session,
            "12_data_parallel-devices",
            "12_*/train.py",
            5,
            processes=0,
            lines=[*from_each(1, trained), times],
            XLA_FLAGS=FOUR_DEVICES,
        ),
    ]


def run_windows(session):
    steps = [rf"\[proc 0/4\] step {k}: mean of the sums {6 + 4 * k}\.0" for k in range(3)]
    ends = [rf"\[proc {i}/4\] right={2 + (i + 1) % 4}\.0 one_address=True" for i in range(4)]
    lines = [*steps, *ends]
    return run_python(session, "14_windows", "14_*/run.py", processes=4, lines=lines)


def suite_examples(session):
    trained = r"96 parameters, 48 on each device, loss \S+, on one device \S+, ALL_OK=True"
    return [
        run_python(
            session, "01_all_reduce", "all_reduce.py", processes=4, lines=from_each(4, summed(4))
        ),
        *run_heat(session),
        run_python(
            session,
            "13_ring",
            "ring.py",
            processes=3,
            lines=[rf"\[proc {i}/3\] total=3\.0 slope={6 * i}\.0" for i in range(3)],
        ),
        run_windows(session),
        run_python(
            session,
            "03_sharded_optimizer",
            "03_*/train.py",
            20,
            processes=2,
            lines=from_each(2, trained),
        ),
        run_python(
            session,
            "03_sharded_optimizer-devices",
            "03_*/train.py",
            20,
            processes=0,
            lines=from_each(1, trained.replace("48", "24")),
            XLA_FLAGS=FOUR_DEVICES,
        ),
        run_python(
            session,
            "04_token_exchange",
            "exchange.py",
            100,
            processes=2,
            lines=from_each(2, "200 tokens to 4 experts and back, ALL_OK=True"),
        ),
        *run_recovery(session),
        *run_mpirun(session),
        *run_kernels(session),
        *run_host_function(session),
        run_python(
            session,
            "11_vias",
            "vias.py",
            1001,
            processes=2,
            lines=[
                r"auto +right, \d+ us",
                r"peer +right, \d+ us",
                "lsa +not here: all_reduce via 'lsa' needs ranks that are GPUs; .*",
            ],
        ),
        *run_data_parallel(session),
    ]
