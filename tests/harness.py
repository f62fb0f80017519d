"""What the suites stand on: running commands, building, reading results."""

import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
CORES = len(os.sched_getaffinity(0))
# Seconds for a suite that is made of tests with limits of their own: far more than it takes
# beside four busy loops.
PATIENCE = 1800

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Case:
    id: str
    outcome: str
    detail: str = ""
    properties: dict = field(default_factory=dict)  # what a test recorded: counts, seeds


class Session:
    """One run of the tests: its environment, its builds, the log of its suite."""

    def __init__(self, soak=False):
        self.soak = soak
        self.builds = {}
        self.log = None
        self.lock = threading.Lock()  # suites run commands side by side, ...
        self.building = threading.Lock()  # ... and one builds what the other waits for
        self.children = set()
        self.stopped = threading.Event()
        # A developer's own options and launcher must not change what is tested.
        foreign = ("ORIEL_", "OMPI_", "PMIX_", "SLURM_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        # The tools installed beside this Python go first: cmake, ninja, clang-format, oriel.
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        if soak:
            self.env["SOAK"] = "1"

    def of(self, suite):
        """The same session with a log for this suite."""
        LOGS.mkdir(parents=True, exist_ok=True)
        session = copy.copy(self)
        session.log = LOGS / f"{suite}.log"
        session.log.write_text("")
        return session

    def which(self, program):
        return shutil.which(program, path=self.env["PATH"])

    def sh(self, *command, timeout=900, **env):
        """Runs a command with its output in the log. Returns its exit status and
        output; past the timeout, 124. Nothing it started outlives it."""
        command = [str(word) for word in command]
        with tempfile.TemporaryFile("w+", dir=LOGS, errors="replace") as out:
            child = self.start(
                command,
                cwd=ROOT,
                env=self.env | env,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                status = child.wait(timeout)
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                end_group(child)
                with self.lock:
                    self.children.discard(child)
            out.seek(0)
            output = out.read()
        if status == 124:
            output += f"\nkilled: it took more than {timeout} s\n"
        with self.lock, open(self.log, "a") as log:
            log.write(f"$ {' '.join(command)}\n{output}\n")
        return status, output

    def start(self, *arguments, **options):
        with self.lock:
            if self.stopped.is_set():
                raise InterruptedError("the run was stopped")
            child = subprocess.Popen(*arguments, **options)
            self.children.add(child)
            return child

    def build(self, preset, *targets):
        """Builds once per run, everything or these; an error sentence, or "" when
        build/<preset> is there."""
        with self.building:
            if preset in self.builds:
                return self.builds[preset] and f"build/{preset} failed before"
            self.builds[preset] = self.build_now(preset, targets or ["all"])
            return self.builds[preset]

    def build_now(self, preset, targets):
        folder = ROOT / "build" / preset
        words = ("--build", folder, "-j", CORES, "--target", *targets)
        status, output = self.sh("cmake", "--preset", preset)
        if status == 0:
            status, output = self.sh("cmake", *words, timeout=600)
        if status == 0:
            return ""
        errors = [
            line
            for line in output.splitlines()
            if " error: " in line or "undefined reference" in line
        ]
        return "\n".join(errors[:8]) or last_lines(output, 12)

    def can_link(self, compiler, *flags):
        """Whether the compiler is there and its run-time libraries for `flags` too."""
        if not self.which(compiler):
            return False
        text = "int main(void) { return 0; }\n"
        if "-fsanitize=fuzzer" in flags:
            text = (
                "int LLVMFuzzerTestOneInput(const char *d, unsigned long n)\n"
                "{ (void)d; (void)n; return 0; }\n"
            )
        with tempfile.TemporaryDirectory(dir=LOGS) as folder:
            source = Path(folder) / "empty.c"
            source.write_text(text)
            return self.sh(compiler, *flags, source, "-o", Path(folder) / "empty")[0] == 0

    def stop(self):
        """Ends what runs; nothing else is started."""
        self.stopped.set()
        with self.lock:
            for child in self.children:
                end_group(child)


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def commit_of_tree():
    changes = git("status", "--porcelain", "--", ".", ":!tests/soak.json")
    return git("rev-parse", "HEAD") + ("+changes" if changes else "")


def end_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def last_lines(text, n):
    return "\n".join(text.strip().splitlines()[-n:])


REPORT = re.compile(
    r"^.*(?:WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:|"
    r"==\d+== (?:Invalid|Conditional|Use of|Syscall|Mismatched|\d)).*$",
    re.M,
)


def gist(output):
    """The lines to show of a failure: a tool's first report, else the last lines."""
    found = REPORT.search(output)
    if found:
        return "\n".join(output[found.start() :].splitlines()[:12])
    return last_lines(output, 12)


def check(session, case_id, *command, **keywords):
    """One command that is one case."""
    status, output = session.sh(*command, **keywords)
    if status == 0:
        return Case(case_id, PASSED)
    if status == 77:
        return Case(case_id, SKIPPED, last_lines(output, 1))
    return Case(case_id, FAILED, gist(output) or f"exit status {status}")


def read_junit(path, name_of):
    """Cases of a JUnit file; `name_of` makes an id of one element."""
    cases = []
    for element in xml.parse(path).getroot().iter("testcase"):
        case = Case(name_of(element), PASSED)
        for child in element:
            if child.tag in ("failure", "error"):
                case.outcome = FAILED
                case.detail = child.get("message") or last_lines(child.text or "", 12)
            elif child.tag == "skipped":
                case.outcome = SKIPPED
                case.detail = child.get("message") or ""
            elif child.tag == "properties":
                case.properties = {p.get("name"): p.get("value") for p in child}
        output = element.findtext("system-out") or ""
        if case.outcome == FAILED and element.find("failure") is not None and output:
            case.detail = f"{case.detail}\n{gist(output)}".strip()
        # ctest says only that a program returned 77; the program said why.
        if case.outcome == SKIPPED and "RETURN_CODE" in case.detail.upper():
            case.detail = last_lines(output, 1)
        cases.append(case)
    return cases


def run_ctest(session, suite, preset, *arguments, timeout=PATIENCE, wrapper=(), **env):
    """The ctest programs of one build, one case each. Half of their time they wait, the longest
    for deadlines, so twice as many run as there are cores."""
    error = session.build(preset)
    if error:
        return [Case(f"{suite}/build", FAILED, error)]
    report = LOGS / f"{suite}.xml"
    report.unlink(missing_ok=True)
    status, output = session.sh(
        *wrapper,
        "ctest",
        "--test-dir",
        ROOT / "build" / preset,
        "-j",
        2 * CORES,
        "--output-on-failure",
        "--output-junit",
        report,
        *arguments,
        timeout=timeout,
        **env,
    )
    if not report.exists():
        return [Case(f"{suite}/ctest", FAILED, last_lines(output, 12))]
    cases = read_junit(report, lambda element: f"{suite}/{element.get('name')}")
    if status != 0 and not any(case.outcome == FAILED for case in cases):
        cases.append(Case(f"{suite}/ctest", FAILED, last_lines(output, 12)))
    return cases


@dataclass
class Part:
    """Files of pytest that run one after the other, against one build of the C programs."""

    suite: str
    files: list
    preset: str = "normal"
    env: dict = field(default_factory=dict)


def split_files(folder, beside):
    """Those of a folder that are named, and the others."""
    files = sorted(folder.rglob("test_*.py"))
    named = [file for file in files if file.stem.removeprefix("test_") in beside]
    return named, [file for file in files if file not in named]


def run_lanes(session, *lanes):
    """Lists of parts: those of one list one after the other, beside those of the others. With
    full counts everything runs alone."""
    parts = [part for lane in lanes for part in lane]
    for part in parts:
        error = session.build(part.preset)
        if error:
            return [Case(f"{part.suite}/build", FAILED, error)]
    if CORES == 1 or session.soak:
        lanes = [parts]
    with ThreadPoolExecutor(len(lanes)) as pool:
        cases = pool.map(lambda lane: [run_pytest(session, part) for part in lane], lanes)
        return [case for lane in cases for part in lane for case in part]


def run_pytest(session, part):
    suite, files = part.suite, part.files
    report = LOGS / f"{suite}-{files[0].stem}.xml"
    report.unlink(missing_ok=True)
    limits = ["--timeout=7200"] if session.soak else []
    status, output = session.sh(
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-rs",
        "--junitxml",
        report,
        *limits,
        *files,
        timeout=PATIENCE * (60 if session.soak else 1),
        BUILD_DIR=str(ROOT / "build" / part.preset),
        **part.env,
    )
    if not report.exists():
        return [Case(f"{suite}/pytest", FAILED, last_lines(output, 12))]

    def name_of(element):
        folder = suite.removesuffix("_asan")
        module = (element.get("classname") or "").split(f"{folder}.", 1)[-1]
        return f"{suite}/{module}::{element.get('name')}"

    cases = read_junit(report, name_of)
    if status not in (0, 5) and not any(case.outcome == FAILED for case in cases):
        cases.append(Case(f"{suite}/pytest", FAILED, last_lines(output, 12)))
    return cases
