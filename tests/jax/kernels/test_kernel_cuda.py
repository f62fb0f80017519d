"""Every kernel of the tree compiles for GPUs, without one: NVRTC from PyPI, as on a
user's machine. tests/expected_skips.txt says nothing about it, so CI has it."""

import ctypes

import oriel
import pytest
from kernels import KERNELS, TYPES
from oriel._compile import build as _build
from oriel._compile import nvrtc as _nvrtc
from oriel._compile import source as _source
from support import ROOT, SOAK

ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "sm_120"]
FILES = sorted(
    path
    for folder in (KERNELS, ROOT / "examples")
    for path in folder.rglob("*.cu")
    if path.name not in ("several.cu", "rows.cu") and "ORIEL_KERNEL" in path.read_text()
)


@pytest.fixture(scope="module", autouse=True)
def nvrtc():
    try:
        _nvrtc.load()
    except oriel.OrielError as error:
        pytest.skip(str(error))


def compile_for(path, arch, **defines):
    source = _source.read(path, defines)
    cubin = _build.for_cuda(source, arch).read_bytes()
    assert cubin.startswith(b"\x7fELF")
    for signature in source.signatures:
        assert f"oriel_entry_{signature.name}".encode() in cubin


def test_what_is_kept_is_of_one_nvrtc(monkeypatch, tmp_path):
    compiled = []
    paths = []
    source = _source.read(FILES[0], {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_nvrtc, "compile", lambda *args: compiled.append(args) or b"code")
    for version in ((13, 0), (13, 1), (13, 0)):
        monkeypatch.setattr(_nvrtc, "version", lambda version=version: version)
        paths.append(_build.for_cuda(source, "sm_90"))
    assert len(compiled) == 2 and paths[0] == paths[2] != paths[1]


# What users start from is compiled for all, what the tests call for one; but multicast,
# which some architectures have, for all.
CASES = [
    (path, arch)
    for path in FILES
    for arch in ARCHITECTURES
    if SOAK or path.parent != KERNELS or arch == "sm_90" or path.stem == "multimem"
]


NAMES = [f"{path.parent.name}-{path.stem}-{arch}" for path, arch in CASES]


@pytest.mark.parametrize("path, arch", CASES, ids=NAMES)
def test_compiles(path, arch):
    compile_for(path, arch)


def test_rows():
    compile_for(KERNELS / "rows.cu", "sm_90", T="oriel_bf16")


@pytest.mark.parametrize("type_", TYPES.values() if SOAK else ["oriel_bf16"])
def test_types(type_):
    for op in ("SUM", "MAX") if SOAK else ("MAX",):
        compile_for(KERNELS / "several.cu", "sm_90", T=type_, OP=f"ORIEL_OP_{op}")


def test_error_has_file_and_line(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(
        "#include <oriel/kernel.h>\n\n"
        "ORIEL_KERNEL(mine)(oriel_team *team, const float *x, float *y)\n"
        "{\n    y[0] = z[0];\n}\n"
    )
    with pytest.raises(oriel.OrielError) as caught:
        _build.for_cuda(_source.read(path), "sm_90")
    assert f"{path} does not compile with NVRTC for sm_90:" in str(caught.value)
    assert f'{path}:5: error: identifier "z" is undefined' in str(caught.value)


def test_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = _source.read(KERNELS / "fused.cu")
    first = _build.for_cuda(source, "sm_90")
    when = first.stat().st_mtime_ns
    assert _build.for_cuda(source, "sm_90").stat().st_mtime_ns == when
    assert _build.for_cuda(source, "sm_80") != first


def test_no_nvrtc(monkeypatch):
    def refuse(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(oriel.OrielError, match="pip install nvidia-cuda-nvrtc. Looked for"):
        _nvrtc.load.__wrapped__()
