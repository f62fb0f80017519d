"""Sets up .venv for this tree: python3 scripts/setup.py demo|test|tools

    tools   the virtual environment with cmake and ninja
    demo    and jax, and the package itself, built and installed
    test    and what the tests use

A step is skipped when its stamp under .setup/ still matches: each stamp is a
hash of what the step depends on. Only the standard library is used here, and
nothing needs root.
"""

import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMPS = ROOT / ".setup"
TOOLS = ["cmake", "ninja"]
SOURCES = [
    "CMakeLists.txt",
    "LICENSE",
    "pyproject.toml",
    "README.md",
    "cmake",
    "include",
    "python",
    "src",
    "tools",
]
STEPS = {"tools": 2, "demo": 4, "test": 3}  # the demo's fourth is the Makefile's
INSIDE_VENV = ["packages-tools", "packages-demo", "packages-test", "oriel"]


class SetupError(Exception):
    """A sentence for the person at the keyboard."""


def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def digest_of_sources():
    parts = []
    for name in SOURCES:
        path = ROOT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                parts += [str(file.relative_to(ROOT)), content]
    return digest(*parts)


class Step:
    """One line "[2/4] installing jax ... 31 s", and one stamp."""

    def __init__(self, number, total, name, text, key):
        self.stamp = STAMPS / name
        self.key = key
        self.head = f"[{number}/{total}] {text} ..."
        self.log = STAMPS / f"{name}.log"

    def run(self, work):
        if self.stamp.exists() and self.stamp.read_text() == self.key:
            print(f"{self.head} done before", flush=True)
            return
        print(self.head, end=" ", flush=True)
        start = time.monotonic()
        self.stamp.unlink(missing_ok=True)
        try:
            with open(self.log, "w") as log:
                work(log)
        except (SetupError, OSError, subprocess.CalledProcessError):
            print("failed", flush=True)
            raise
        self.stamp.write_text(self.key)
        print(f"{time.monotonic() - start:.0f} s", flush=True)


def call(log, *command):
    environment = dict(os.environ, PATH=f"{VENV}/bin:{os.environ['PATH']}")
    environment.pop("PYTHONPATH", None)
    subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        check=True,
    )


def pip(log, *arguments):
    call(log, f"{VENV}/bin/python", "-m", "pip", "--disable-pip-version-check", *arguments)


# ---- the steps --------------------------------------------------------------


def create_venv(log):
    shutil.rmtree(VENV, ignore_errors=True)
    for name in INSIDE_VENV:
        (STAMPS / name).unlink(missing_ok=True)
    attempts = [
        [sys.executable, "-m", "venv", str(VENV)],
        [sys.executable, "-m", "virtualenv", str(VENV)],
    ]
    for command in attempts:
        try:
            call(log, *command)
            return
        except subprocess.CalledProcessError:
            shutil.rmtree(VENV, ignore_errors=True)
    try:
        call(log, sys.executable, "-m", "venv", "--without-pip", str(VENV))
        install_pip(log)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(VENV, ignore_errors=True)
        raise SetupError(
            f"{sys.executable} cannot make a virtual environment ({error}); on Debian "
            "and Ubuntu: apt install python3-venv"
        ) from error


def install_pip(log):
    """Debian keeps pip out of venv unless python3-venv is there. pip's own wheel
    can be run in place to install itself."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    with urllib.request.urlopen(index, timeout=60) as answer:
        page = html.unescape(answer.read().decode())
    link = re.compile(r'href="([^"]*/(pip-[0-9.]+-py3-none-any\.whl)[^"]*#sha256=([0-9a-f]+))"')
    wheels = link.findall(page)
    if not wheels:
        raise OSError(f"{index} lists no wheel of pip")
    url, name, wanted = max(
        wheels, key=lambda wheel: [int(part) for part in wheel[1].split("-")[1].split(".")]
    )
    with urllib.request.urlopen(urllib.parse.urljoin(index, url), timeout=60) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != wanted:
        raise OSError(f"{name} arrived damaged")
    path = STAMPS / name
    path.write_bytes(content)
    call(log, f"{VENV}/bin/python", f"{path}/pip", "install", "--no-index", str(path))


def requirements(target):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = TOOLS + project["build-system"]["requires"]
    if target != "tools":
        wanted += project["project"]["dependencies"]
    if target == "test":
        wanted += project["project"]["optional-dependencies"]["test"]
    return wanted


def install_package(log):
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        raise SetupError("no C compiler was found; on Debian and Ubuntu: apt install gcc libc6-dev")
    pip(log, "install", "--no-build-isolation", "--no-deps", "--force-reinstall", ".")


def python_key():
    return digest(sys.version, str(VENV), sysconfig.get_platform())


def set_up(target):
    total = STEPS[target]
    STAMPS.mkdir(exist_ok=True)
    if not (VENV / "bin" / "python").exists():
        (STAMPS / "venv").unlink(missing_ok=True)

    version = ".".join(map(str, sys.version_info[:3]))
    key = python_key()
    Step(1, total, "venv", f"creating .venv with Python {version}", key).run(create_venv)

    wanted = requirements(target)
    key = digest(key, *wanted)
    names = {
        "tools": "the build tools",
        "demo": "jax and the build tools",
        "test": "jax, the build tools and the test tools",
    }[target]
    Step(2, total, f"packages-{target}", f"installing {names} from PyPI", key).run(
        lambda log: pip(log, "install", *wanted)
    )

    if target != "tools":
        key = digest(python_key(), digest_of_sources())
        Step(3, total, "oriel", "building and installing oriel", key).run(install_package)


def main():
    target = sys.argv[1] if len(sys.argv) == 2 else ""
    if target not in STEPS:
        sys.exit(__doc__)
    try:
        set_up(target)
    except SetupError as error:
        sys.exit(f"setup: {error}")
    except subprocess.CalledProcessError as error:
        logs = sorted(STAMPS.glob("*.log"), key=lambda path: path.stat().st_mtime)
        print("".join(logs[-1].read_text(errors="replace").splitlines(True)[-25:]), file=sys.stderr)
        command = " ".join(map(str, error.cmd))
        sys.exit(f'setup: "{command}" failed; all of its output is in {logs[-1]}')


if __name__ == "__main__":
    main()
