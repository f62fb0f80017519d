"""What a build notes of the commit it was made from: cmake/commit.cmake."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

GIT = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@nowhere"]


def git(folder, *words):
    done = subprocess.run([*GIT, "-C", folder, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """A repository with one file, which may be changed."""
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "file").write_text("first")
    git(folder, "init", "-q")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def note(folder, out):
    subprocess.run(
        ["cmake", f"-DROOT={folder}", f"-DOUT={out}", "-P", job.ROOT / "cmake" / "commit.cmake"],
        check=True,
    )
    return out.read_text().split('"')[1]


def test_commit_of_a_repository(tree, tmp_path):
    out = tmp_path / "commit.c"
    commit = git(tree, "rev-parse", "--short", "HEAD")
    assert note(tree, out) == commit
    written = out.stat().st_mtime_ns
    assert note(tree, out) == commit and out.stat().st_mtime_ns == written
    (tree / "file").write_text("second")
    assert note(tree, out) == f"{commit}-dirty"


def test_no_commit_outside_a_repository(tree, tmp_path):
    """Nor one of a repository that it happens to lie in."""
    (tree / "unpacked").mkdir()
    assert note(tree / "unpacked", tmp_path / "commit.c") == "unknown"
    assert note(tmp_path, tmp_path / "commit.c") == "unknown"


def test_the_command_knows_its_commit():
    """That of its build, whatever the tree is at by now."""
    noted = (job.BUILD / "commit.c").read_text().split('"')[1]
    done = subprocess.run([job.BUILD / "oriel", "info"], capture_output=True, text=True, timeout=20)
    assert f"\ncommit      {noted}\n" in done.stdout
