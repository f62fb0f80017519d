"""The suites, in the order in which tests/run runs them: cheap ones first, then those
that wait, beside which others compute, and at last those that do both. Each
takes the session and returns its cases; a tool that is missing is a skip with a reason."""

import itertools
import json
import platform
import re
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import (
    CORES,
    FAILED,
    LOGS,
    PASSED,
    ROOT,
    SKIPPED,
    Case,
    Part,
    check,
    last_lines,
    run_ctest,
    run_lanes,
    split_files,
)

from examples import suite_examples

TESTS = ROOT / "tests"
# Valgrind has 128 GiB of addresses to give away, of which each rank's windows may have 64.
VALGRIND = {"ORIEL_WINDOWS": "1G"}
ASAN = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}
NO_ASAN = "the C compiler has no ASan run-time library"
TSAN = {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}


def c_files(*folders, suffixes=(".c", ".h")):
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes
    )


def missing(case_id, what, package):
    return [Case(case_id, SKIPPED, f"{what} is not installed ({package})")]


# ---- the text of the tree ----------------------------------------------------


def suite_format(session):
    files = c_files(
        "include",
        "src",
        "tools",
        "tests",
        "examples",
        "python",
        "bench",
        suffixes=(".c", ".h", ".cu", ".cuh"),
    )
    cases = []
    if session.which("clang-format"):
        words = ("clang-format", "--dry-run", "-Werror", *files)
        cases.append(check(session, "format/clang-format", *words))
    else:
        cases += missing("format/clang-format", "clang-format", "pip install clang-format==14.0.6")
    if session.which("ruff"):
        cases.append(check(session, "format/ruff-format", "ruff", "format", "--check", ROOT))
        cases.append(check(session, "format/ruff-check", "ruff", "check", "--quiet", ROOT))
    else:
        cases += missing("format/ruff", "ruff", "pip install ruff==0.17.4")
    return cases


def suite_layers(session):
    return [
        check(session, "layers/tree", sys.executable, TESTS / "layers.py"),
        check(session, "layers/self-test", sys.executable, TESTS / "test_layers.py"),
        check(session, "layers/sizes", sys.executable, TESTS / "sizes.py"),
        check(session, "layers/sizes-self-test", sys.executable, TESTS / "test_sizes.py"),
    ]


def suite_docs(session):
    return [
        check(session, "docs/api", sys.executable, TESTS / "api_page.py"),
        check(session, "docs/performance", sys.executable, ROOT / "bench" / "report.py", "--check"),
    ]


# (compiler, language, standard)
COMPILERS = [
    ("gcc", "c", "c11"),
    ("g++", "c++", "c++17"),
    ("clang", "c", "c11"),
    ("clang++", "c++", "c++17"),
]


def suite_headers(session):
    """Each public header alone, and those that a person includes with each other, in both
    languages, with both compilers; each inner header alone in the language it is for."""
    headers = [path.relative_to(ROOT / "include") for path in c_files("include")]
    outer = [path for path in headers if path.parent.name != "detail"]
    cases = []
    for compiler, language, standard in COMPILERS:
        if not session.which(compiler):
            what = f"headers/{compiler}-{standard}"
            cases += missing(what, compiler, compiler.replace("clang++", "clang"))
            continue
        words = (compiler, "-x", language, f"-std={standard}", "-pedantic")
        for names in [*((path,) for path in headers), *itertools.permutations(outer, 2)]:
            case_id = f"headers/{'+'.join(map(str, names))}-{compiler}-{standard}"
            included = [word for name in names for word in ("-include", name)]
            cases.append(check_syntax(session, case_id, *words, *included, "/dev/null"))
    inner = [
        check_syntax(
            session,
            f"headers/{header.name}",
            *("cc", "-x", "c", "-std=gnu11", "-D_GNU_SOURCE=", "-Wno-unused-function"),
            *("-I", ROOT / "src", header),
        )
        for header in c_files("src", suffixes=(".h",))
        if is_guarded(header)
    ]
    bad = [case for case in inner if case.outcome == FAILED]
    return cases + (bad or [Case("headers/inner", PASSED)])


def check_syntax(session, case_id, compiler, *words):
    strict = ("-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", ROOT / "include")
    return check(session, case_id, compiler, *strict, *words)


def is_guarded(header):
    """A header without a guard is a template, included with its parameters set."""
    return "#ifndef ORIEL_" in header.read_text()


def suite_static(session):
    error = session.build("normal")
    if error:
        return [Case("static/build", FAILED, error)]
    return run_cppcheck(session) + run_clang_tidy(session)


def run_cppcheck(session):
    if not session.which("cppcheck"):
        return missing("static/cppcheck", "cppcheck", "cppcheck")
    # It takes a parameter `char *x[4]` for four bytes, and what a function gets
    # the address of for what it returns.
    wrong = ["bufferAccessOutOfBounds", "returnDanglingLifetime"]
    return [
        check(
            session,
            "static/cppcheck",
            "cppcheck",
            "--quiet",
            "--error-exitcode=1",
            "--enable=warning,performance,portability",
            "--inline-suppr",
            "--std=c11",
            "-D_GNU_SOURCE",
            "-D__x86_64__",
            *[f"--suppress={name}" for name in wrong],
            "-j",
            CORES,
            "-I",
            ROOT / "include",
            "-I",
            ROOT / "src",
            ROOT / "src",
            ROOT / "tools",
        )
    ]


def run_clang_tidy(session):
    if not session.which("clang-tidy"):
        return missing("static/clang-tidy", "clang-tidy", "clang-tidy")
    files = c_files("src", "tools", suffixes=(".c",))
    groups = [files[i::CORES] for i in range(CORES)]
    # The flags are gcc's: those for the linker mean nothing to it.
    more = ["-Wno-ignored-optimization-argument"]
    # The steps it takes along the paths of a function; 225,000 by itself, and in the soak. Of the
    # 912 leaks, planted at the ends of functions, that it finds then, it finds 906 with these.
    if not session.soak:
        more += ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=20000"]
    with ThreadPoolExecutor(CORES) as pool:
        cases = list(
            pool.map(
                lambda group: check(
                    session,
                    "static/clang-tidy",
                    "clang-tidy",
                    "--quiet",
                    *(f"--extra-arg={word}" for word in more),
                    "-p",
                    ROOT / "build" / "normal",
                    *group,
                ),
                groups,
            )
        )
    return [case for case in cases if case.outcome == FAILED][:1] or cases[:1]


# ---- C programs --------------------------------------------------------------


def has_cmocka():
    cache = ROOT / "build" / "normal" / "CMakeCache.txt"
    return cache.exists() and "CMOCKA_LIBRARY-NOTFOUND" not in cache.read_text()


def suite_unit(session):
    cases = run_ctest(session, "unit", "normal")
    if session.build("normal"):
        return cases
    if not has_cmocka():
        cases += missing("unit/cmocka", "cmocka", "libcmocka-dev")
    library = ROOT / "build" / "normal" / "liboriel.so"
    return cases + [check(session, "unit/exports", sys.executable, TESTS / "exports.py", library)]


def has_asan(session):
    return session.can_link("cc", "-fsanitize=address,undefined")


def suite_asan(session):
    if not has_asan(session):
        return [Case("asan/build", SKIPPED, NO_ASAN)]
    return run_ctest(session, "asan", "asan", **ASAN)


def suite_tsan(session):
    if not session.can_link("cc", "-fsanitize=thread"):
        return [Case("tsan/build", SKIPPED, "the C compiler has no TSan run-time library")]
    # TSan cannot start where the kernel places memory too randomly.
    fixed = ("setarch", platform.machine(), "-R")
    wrapper = fixed if session.sh(*fixed, "true")[0] == 0 else ()
    return run_ctest(session, "tsan", "tsan", "-L", "^tsan$", wrapper=wrapper, **TSAN)


def suite_valgrind(session):
    """For memory that was never set, which ASan does not see. The programs labelled
    valgrind-soak take longest and do one thing again and again: with full counts only."""
    if not session.which("valgrind"):
        return missing("valgrind/all", "valgrind", "valgrind")
    error = session.build("normal")
    if error:
        return [Case("valgrind/build", FAILED, error)]
    labels = "^valgrind(-soak)?$" if session.soak else "^valgrind$"
    status, output = session.sh(
        "ctest", "--test-dir", ROOT / "build" / "normal", "-L", labels, "--show-only=json-v1"
    )
    if status != 0:
        return [Case("valgrind/ctest", FAILED, last_lines(output, 12))]
    programs = json.loads(output[output.index("{") :])["tests"]
    valgrind = [
        "valgrind",
        "--quiet",
        "--trace-children=yes",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite,indirect,possible",
        "--error-exitcode=99",
    ]
    with ThreadPoolExecutor(CORES) as pool:
        return list(
            pool.map(
                lambda program: check(
                    session,
                    f"valgrind/{program['name']}",
                    *valgrind,
                    *program["command"],
                    **VALGRIND,
                ),
                programs,
            )
        )


def suite_fuzz(session):
    if not session.can_link("clang", "-fsanitize=fuzzer"):
        return [
            Case(
                "fuzz/build",
                SKIPPED,
                "clang with libFuzzer is not installed (clang, libclang-rt-dev)",
            )
        ]
    sources = c_files("tests/fuzz", suffixes=(".c",))
    error = session.build("fuzz", *(source.stem for source in sources))
    if error:
        return [Case("fuzz/build", FAILED, error)]
    seconds = 120 if session.soak else 10
    cases = []
    for source in sources:
        found = LOGS / f"{source.stem}-found"
        found.mkdir(exist_ok=True)
        corpus = TESTS / "fuzz" / "corpus" / source.stem.removeprefix("fuzz_")
        cases.append(
            check(
                session,
                f"fuzz/{source.stem}",
                ROOT / "build" / "fuzz" / "tests" / source.stem,
                f"-max_total_time={seconds}",
                "-timeout=10",
                "-error_exitcode=1",
                "-timeout_exitcode=1",
                f"-artifact_prefix={found}/",
                found,
                corpus,
                timeout=seconds + 60,
            )
        )
    return cases


# ---- models, several processes, JAX -------------------------------------------


def suite_model(session):
    """tests/model/run.sh prints one line "PASS name" or "FAIL name" per model."""
    script = TESTS / "model" / "run.sh"
    if not script.exists():
        return []
    if not session.which("spin"):
        return missing("model/spin", "spin", "spin")
    status, output = session.sh("sh", script, timeout=600)
    cases = [
        Case(f"model/{name}", PASSED if word == "PASS" else FAILED, detail.strip())
        for word, name, detail in re.findall(r"^(PASS|FAIL) (\S+)(.*)$", output, re.M)
    ]
    if status == 77:
        return [Case("model/run.sh", SKIPPED, last_lines(output, 1))]
    if not cases or (status != 0) != any(case.outcome == FAILED for case in cases):
        cases.append(Case("model/run.sh", FAILED, last_lines(output, 12)))
    return cases


ARCHITECTURES = ("80", "90", "100", "120")


def find_nvrtc():
    """From a wheel of the running Python, or of the toolkit; "": the loader's own."""
    folders = [*(Path(folder) / "nvidia" for folder in sys.path), Path("/usr/local/cuda")]
    found = [
        path
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.glob("**/lib*/libnvrtc.so.1[0-9]"))
    ]
    return str(found[0]) if found else ""


def suite_gpu(session):
    """What can be said of the GPU without one: kernels compile, and the results that were
    committed belong to these sources. All parts only in the soak: they take minutes."""
    error = session.build("normal")
    if error:
        return [Case("gpu/build", FAILED, error)]
    programs = ROOT / "build" / "normal" / "tests"
    parts = "7" if session.soak else "1"
    nvrtc = find_nvrtc()
    with ThreadPoolExecutor(CORES) as pool:
        compiled = list(
            pool.map(
                lambda arch: check(
                    session,
                    f"gpu/compile-sm_{arch}",
                    programs / "compile",
                    parts,
                    arch,
                    timeout=600,
                    ORIEL_NVRTC=nvrtc,
                ),
                ARCHITECTURES,
            )
        )
    return [
        *compiled,
        check(session, "gpu/abi", programs / "abi"),
        check(session, "gpu/results", sys.executable, TESTS / "gpu" / "report.py", "check"),
        check(session, "gpu/results-self-test", sys.executable, TESTS / "gpu" / "test_report.py"),
    ]


# Tests of starts and of the command, which wait for graces and deadlines to end.
COMMAND_TESTS = ("c_world", "command", "doctor_gpu", "doctor_job", "launchers", "machines", "run")
# Tests that wait for deadlines more than they compute.
DEADLINE_TESTS = ("fault_fabric", "kill")
# Tests that start Python processes and wait for them: so many that they take as long as the others.
PROCESS_TESTS = (
    "failure",
    "groups",
    "kernel_cuda",
    "kernel_errors",
    "mpirun_srun",
    "op",
    "order",
    "processes",
    "programs",
    "rows",
    "verify",
    "world",
    "world_calls",
)


def suite_multi(session):
    waiting, others = split_files(TESTS / "multi", COMMAND_TESTS)
    asan = asan_part(session, "multi", others, waiting)
    return run_lanes(session, [Part("multi", waiting)], [Part("multi", others), *asan])


def suite_fault(session):
    """What fails one call after the other is for ASan, which sees what leaks."""
    waiting, others = split_files(TESTS / "fault", DEADLINE_TESTS)
    asan = asan_part(session, "fault", others, waiting)
    plain = [] if asan and not session.soak else [Part("fault", others)]
    return run_lanes(session, [Part("fault", waiting)], [*plain, *asan])


def asan_part(session, name, files, waiting):
    """The files against the build with ASan; with full counts those that mostly wait, too."""
    if not has_asan(session):
        return []
    return [Part(f"{name}_asan", files + (waiting if session.soak else []), "asan", ASAN)]


# With full counts a suite of its own: it takes longer than all others together.
RANDOM_PROGRAMS = TESTS / "jax" / "identity" / "test_programs.py"


def suite_jax(session):
    waiting, others = split_files(TESTS / "jax", PROCESS_TESTS)
    if session.soak:
        waiting.remove(RANDOM_PROGRAMS)
    return run_lanes(session, [Part("jax", others)], [Part("jax", waiting)])


def suite_identity(session):
    return run_lanes(session, [Part("identity", [RANDOM_PROGRAMS])])


# ---- the wheel -----------------------------------------------------------------

PROGRAM = """#include <oriel/oriel.h>
#include <string.h>
int main(void) { return strcmp(oriel_version(), ORIEL_VERSION_STRING) != 0; }
"""

# Compiles with the headers that the wheel has installed.
KERNEL = """import oriel, pathlib, sys
kernels = oriel.kernel(sys.argv[1])
site = pathlib.Path(sys.argv[2]).resolve()
assert oriel._compile.source.include_folder().is_relative_to(site)
print(kernels)
"""


def suite_wheel(session):
    folder = LOGS / "wheel"
    session.sh("rm", "-rf", folder)
    status, output = session.sh(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        ROOT,
    )
    if status != 0:
        return [Case("wheel/build", FAILED, last_lines(output, 12))]
    wheel = next(folder.glob("*.whl"))
    status, output = session.sh(
        sys.executable, "-m", "pip", "install", "--no-deps", "--target", folder / "site", wheel
    )
    if status != 0:
        return [Case("wheel/install", FAILED, last_lines(output, 12))]
    return [
        check_tag(wheel),
        check_contents(wheel),
        check_c_program(session, folder),
        check(
            session,
            "wheel/kernel",
            sys.executable,
            "-c",
            KERNEL,
            ROOT / "examples/07_my_all_reduce/my_all_reduce.cu",
            folder / "site",
            PYTHONPATH=str(folder / "site"),
            XDG_CACHE_HOME=str(folder / "cache"),
        ),
        check(session, "wheel/command", folder / "site" / "bin" / "oriel", "info", "--pkg-config"),
    ]


def check_tag(wheel):
    version = re.search(
        r'ORIEL_VERSION_STRING "([^"]+)"', (ROOT / "include/oriel/oriel.h").read_text()
    ).group(1)
    good = re.fullmatch(rf"oriel-{re.escape(version)}-py3-none-\w+\.whl", wheel.name)
    return Case("wheel/tag", PASSED if good else FAILED, wheel.name)


def check_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    kinds = (".py", ".pyi", ".typed", ".c", ".h")
    modules = [path for path in (ROOT / "python").rglob("*") if path.suffix in kinds]
    wanted = [
        "oriel/lib/liboriel.so",
        "oriel/lib/pkgconfig/oriel.pc",
        *[f"oriel/{path.relative_to(ROOT)}" for path in (ROOT / "include").rglob("*.h")],
        "/scripts/oriel",
        *[path.relative_to(ROOT / "python").as_posix() for path in modules],
    ]
    absent = [name for name in wanted if not any(n.endswith(name) for n in names)]
    return Case("wheel/contents", FAILED if absent else PASSED, f"missing: {', '.join(absent)}")


def check_c_program(session, folder):
    """A user's C program, outside the tree, built with nothing but pkg-config and the
    command that is installed."""
    case_id = "wheel/pkg-config"
    if not session.which("pkg-config"):
        return missing(case_id, "pkg-config", "pkg-config")[0]
    (folder / "user.c").write_text(PROGRAM)
    script = (
        'cd "$1" && export PKG_CONFIG_PATH="$(site/bin/oriel info --pkg-config)"'
        " && cc -Wall -Werror user.c $(pkg-config --cflags --libs oriel) -o user && ./user"
    )
    return check(session, case_id, "sh", "-c", script, "sh", folder)


SUITES = [
    suite_format,
    suite_layers,
    suite_docs,
    suite_headers,
    suite_unit,
    suite_static,
    suite_model,
    suite_fuzz,
    suite_gpu,
    suite_valgrind,
    suite_multi,
    suite_fault,
    suite_asan,
    suite_tsan,
    suite_wheel,
    suite_examples,
    suite_jax,
]
# They run one after the other beside the others, of which the first ones mostly wait: what needs
# cores alone, and that no clock judges, and C programs, whose clocks allow for a busy machine.
BESIDE = [
    suite_headers,
    suite_static,
    suite_model,
    suite_fuzz,
    suite_gpu,
    suite_valgrind,
    suite_asan,
    suite_tsan,
    suite_wheel,
]
SOAK_SUITES = [
    suite_model,
    suite_static,
    suite_valgrind,
    suite_fuzz,
    suite_gpu,
    suite_multi,
    suite_fault,
    suite_jax,
    suite_identity,
]
