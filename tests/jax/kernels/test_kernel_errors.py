"""Kernels that are wrong, or called wrongly: a sentence with the file and line, or with
the argument and its value; and kernels that fail while they run."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax.sharding import PartitionSpec as P
from kernels import KERNELS, several
from support import make_mesh, over, run_processes

HEAD = "#include <oriel/kernel.h>\n"


def load(tmp_path, text):
    path = tmp_path / "mine.cu"
    path.write_text(text)
    return oriel.kernel(path)


GOOD = "ORIEL_KERNEL(mine)(oriel_team *team, const float *x, float *y)\n{\n    y[0] = x[0];\n}\n"
SOURCES = {  # text, what the error says after the file's name
    "nothing": ("int x;\n", "has no kernel: nothing says ORIEL_KERNEL"),
    "in_comment": ("/* ORIEL_KERNEL(a)(oriel_team *team) */\n", "has no kernel"),
    "team": (
        "\n\nORIEL_KERNEL(mine)(const float *x, float *y) {}",
        ":3: kernel mine: the first parameter is 'oriel_team *team', not 'const float *x'",
    ),
    "type": (
        "ORIEL_KERNEL(mine)(oriel_team *team,\n    const half *x,\n    float *y) {}",
        ":2: kernel mine: 'const half *x' is no parameter of a kernel. It takes",
    ),
    "matrix": (
        "ORIEL_KERNEL(mine)(oriel_team *team, const float **x, float *y) {}",
        ":1: kernel mine: 'const float **x' is no parameter",
    ),
    "no_result": (
        "\nORIEL_KERNEL(mine)(oriel_team *team, const float *x) {}",
        ":2: kernel mine has no result",
    ),
    "no_operand": (
        "ORIEL_KERNEL(mine)(oriel_team *team, float *x) {}",
        ":1: kernel mine has no operand",
    ),
    "twice": (GOOD + GOOD, ":5: there are two kernels mine"),
    "taken": (
        "ORIEL_KERNEL(mine)(oriel_team *team, const float *x, float *y, int out) {}",
        ":1: kernel mine: 'out' is taken",
    ),
    "cut": ("ORIEL_KERNEL(mine)(oriel_team *team", ":1: ORIEL_KERNEL needs a name and parameters"),
    "condition": (
        "#ifndef A /* #endif */\n#if 0\n#endif\n" + GOOD + "#endif\n",
        ":4: kernel mine is inside #if: kernels are found before the preprocessor",
    ),
    "symbol": (
        HEAD + "float nowhere(float);\n" + GOOD.replace("x[0];", "nowhere(x[0]);"),
        " compiles, but cannot be loaded: ",
    ),
    "syntax": (
        HEAD + "\n" + GOOD.replace("y[0] = x[0];", "y[0] = z[0];"),
        " does not compile with cc:",
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_source(name, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "cc")
    text, said = SOURCES[name]
    with pytest.raises(oriel.OrielError) as caught:
        load(tmp_path, text)
    assert caught.value.status == oriel.Status.INVALID
    assert str(caught.value).startswith(str(tmp_path / "mine.cu"))
    assert said in str(caught.value)
    if name == "syntax":
        assert re.search(rf"{tmp_path}/mine.cu:5:\d+: error: .*z", str(caught.value))


def test_flags_that_are_no_list():
    with pytest.raises(TypeError, match="flags is a list of words, got '-lm'"):
        oriel.kernel(KERNELS / "fused.cu", flags="-lm")


def test_defines_that_are_no_dict():
    with pytest.raises(TypeError, match=r"defines is a dict of macros by name, got \['A'\]"):
        oriel.kernel(KERNELS / "fused.cu", defines=["A"])


def test_no_file(tmp_path):
    with pytest.raises(oriel.OrielError, match="nowhere.cu cannot be read: No such file"):
        oriel.kernel(tmp_path / "nowhere.cu")


def test_any_name_of_the_team(tmp_path):
    kernel = load(tmp_path, GOOD.replace("*team", "*t"))
    assert repr(kernel.mine) == "<kernel mine(const float *x, float *y)>"


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(oriel.OrielError, match="no C compiler: 'no-such-compiler' cannot be run"):
        oriel.kernel(KERNELS / "fused.cu")


# ---- calls -----------------------------------------------------------------------------

X = np.zeros(8, np.float32)
GIVEN = {"title": "", "small": 1, "big": 1, "real": 1.0, "exact": 1.0, "yes": 1, "other": ""}
WRONG = {  # operands, keywords, error, what it says
    "operands": ([X, X], {}, TypeError, r"kernel echo takes 1 operands \(x\), got 2"),
    "dtype": (
        [X],
        {},
        TypeError,
        r"operand x is float32\[\d\], the kernel takes const int32_t \*, which is int32",
    ),
    "no_array": (["text"], {}, TypeError, "takes arrays; x holds 'text'"),
    "missing": (None, {"big": None}, TypeError, r"attribute 'big' \(int64_t\) is missing"),
    "unknown": (None, {"size": 1}, TypeError, "has no attribute 'size'; it has title, small, big"),
    "range": (
        None,
        {"small": 128},
        ValueError,
        r"attribute 'small' \(int8_t\) goes from -128 to 127, got 128",
    ),
    "whole": (
        None,
        {"big": 0.5},
        TypeError,
        r"attribute 'big' \(int64_t\) is a whole number, got 0.5",
    ),
    "number": (None, {"real": "2"}, TypeError, r"attribute 'real' \(float\) is a number, got '2'"),
    "text": (None, {"title": 3}, TypeError, "attribute 'title' is text, got 3"),
    "out_number": (
        None,
        {"out": ((9,),)},
        TypeError,
        r"has 2 results \(numbers, letters\), out is",
    ),
    "out_dtype": (
        None,
        {"out": (jax.ShapeDtypeStruct((9,), "float32"), (16,))},
        TypeError,
        r"out for numbers has dtype float32, the kernel writes double \*, which is ",
    ),
    "out_shape": (None, {"out": ((9,), "x")}, TypeError, "out for letters must be a shape"),
    "out_negative": (
        None,
        {"out": ((9,), (-1,))},
        ValueError,
        r"out for letters has a negative dimension, \(-1,\)",
    ),
    "nul": (None, {"title": "a\0b"}, ValueError, "attribute 'title' holds a NUL"),
    "replicated": (
        None,
        {"replicated": "yes"},
        TypeError,
        "replicated is True or False, got 'yes'",
    ),
    "axis": (None, {"axis_name": "q"}, NameError, "unbound axis name: 'q'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_call(name):
    echo = oriel.kernel(KERNELS / "attributes.cu").echo
    operands, changed, error, said = WRONG[name]
    keywords = {**GIVEN, "axis_name": "x", "out": ((9,), (16,)), **changed}
    keywords = {k: v for k, v in keywords.items() if v is not None}

    def function(v):
        return echo(*([v] if operands is None else operands), **keywords)

    with pytest.raises(error, match=said):
        over(make_mesh(), function, P("x"), P("x"))(np.zeros(8, np.int32))


def test_traced_attribute():
    kernel = several(np.dtype("float32"), "SUM").pass_on
    with pytest.raises(TypeError, match="attribute 'hops' must be known when the program is"):
        over(
            make_mesh(), lambda v: kernel(v, hops=v[0].astype(int), axis_name="x"), P("x"), P("x")
        )(X)


def test_outside_shard_map():
    kernel = several(np.dtype("float32"), "SUM").reduce
    with pytest.raises(ValueError, match="without axis_name needs one device per process"):
        kernel(jnp.asarray(X))


def test_axis_of_vmap():
    kernel = several(np.dtype("float32"), "SUM").reduce
    with pytest.raises(NotImplementedError, match="kernel reduce over 'b', an axis of vmap"):
        jax.vmap(lambda v: kernel(v, axis_name="b"), axis_name="b")(jnp.ones((2, 3), jnp.float32))


# ---- while it runs ---------------------------------------------------------------------

RUN = "kernel {}(f32[4]) -> f32[4] on rank {}"
FAILS = {
    "never_signals": "rank 0 waits in oriel_wait for signal 3 to reach 2, it is 1, after 0.5 s",
    "stray_pointer": "kernel stray_pointer asked about a pointer that is in none of its operands",
    "stray_rank": "kernel stray_rank named rank 3 of 3",
    "stray_slot": "kernel stray_slot named signal 64 of 64",
    "one_fails": "rank 2: kernel one_fails named rank -1 of 3",
    "lonely_barrier": "rank 1 waits in oriel_barrier_all, after 0.5 s",
}


@pytest.mark.parametrize(
    "processes, devices, names",
    [
        (3, 1, list(FAILS)),
        (1, 3, ["never_signals", "one_fails"]),
    ],
)
def test_kernel_that_fails(processes, devices, names):
    """On all ranks, with the reason; and the next world works."""
    status, output, reports = run_processes(
        "kernel_fail.py", *names, processes=processes, devices=devices
    )
    assert status == 0, output
    assert sorted(reports) == list(range(processes)), output
    for process, entries in reports.items():
        assert [entry["kernel"] for entry in entries] == [*names, "reduce"]
        for entry in entries[:-1]:
            ranks = [process] if devices == 1 else [0, 1, 2]
            assert any(RUN.format(entry["kernel"], rank) in entry["raised"] for rank in ranks)
            assert FAILS[entry["kernel"]] in entry["raised"]
        assert entries[-1]["raised"] is None


def test_ranks_that_call_different_kernels():
    status, output, reports = run_processes("kernel_mismatch.py", processes=2, ORIEL_WARN_AFTER="1")
    assert status == 0, output
    for rank in (0, 1):
        sizes, names, hops = reports[rank]
        both = {"kernel reduce(f32[4]) -> f32[4]", "kernel reduce(f32[5]) -> f32[5]"}
        said = re.search(r"rank (\d) asked for (.*), rank (\d) for (.*)$", sizes["raised"])
        assert said and {said[2], said[4]} == both, sizes
        assert "kernel reduce(f32[4]) -> f32[4]" in names["raised"]
        assert "kernel reduce_all(f32[4]) -> f32[4]" in names["raised"]
        assert re.search(
            r"rank \d asked for kernel pass_on\(.* with hops=\d, rank \d for kernel "
            r"pass_on\(.* with hops=\d",
            hops["raised"],
        ), hops


def test_killed_process():
    """In the middle of a kernel that waits for it."""
    status, output, reports = run_processes("kernel_killed.py", processes=3)
    assert status == 128 + 9, output
    died = reports.pop(1)[0]["died"]
    assert sorted(reports) == [0, 2], output
    for rank, (entry,) in reports.items():
        assert entry["raised"] - died < 8.0
        assert f"kernel forever(f32[1000]) -> f32[1000] on rank {rank}" in entry["text"]
        assert "rank 1 is missing: process 1" in entry["text"]
