"""oriel.kernel on 8 devices of one process: right elements for any shape, dtype and
group, and every transformation."""

import re
import sys
import tempfile

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from kernels import KERNELS, TYPES, several
from support import (
    ROOT,
    SOAK,
    assert_bits,
    assert_same,
    environment,
    find_oriel,
    make_mesh,
    over,
    run,
    run_processes,
)

attributes = oriel.kernel(KERNELS / "attributes.cu")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


MESHES = [
    ((8,), "x", ("x",)),
    ((4, 2), "xy", ("x",)),
    ((4, 2), "xy", ("y",)),
    ((2, 2, 2), "xyz", ("z", "x")),
    ((2, 4), "xy", ("y", "x")),
]


@settings(
    max_examples=300 if SOAK else 8,
    deadline=None,
    database=None,
    derandomize=not SOAK,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_any_call(data):
    def pick(options):
        return data.draw(st.sampled_from(options))

    shape, names, axes = pick(MESHES)
    order = pick([tuple(range(8)), (5, 3, 0, 7, 1, 6, 2, 4)])
    dtype, op = pick(sorted(TYPES)), pick(["SUM", "MIN", "MAX", "PROD"])
    local = pick([(1,), (7,), (3, 5), (64,), (1000,), (2, 513)])
    name = pick(["reduce", "reduce_all", "gather", "pass_on"])
    check(shape, tuple(names), axes, order, np.dtype(dtype), op, local, name, pick(range(9)))


def check(shape, names, axes, order, dtype, op, local, name, seed):
    mesh = make_mesh(shape, names, order)
    kernel = getattr(several(dtype, op), name)
    whole = cases.draw_values(np.random.default_rng(seed), (8, *local), dtype)
    size = int(np.prod([shape[names.index(a)] for a in axes]))
    hops = 3

    def ours(x):
        x = x[0]
        if name == "gather":
            return kernel(x, out=(size, *local), axis_name=axes)[None]
        if name == "pass_on":
            return kernel(x, hops=hops, axis_name=axes)[0][None]
        return kernel(x, axis_name=axes)[None]

    def theirs(x):
        gathered = oriel.all_gather(x[0], axes)
        if name == "gather":
            return gathered[None]
        if name == "pass_on":
            return lax.dynamic_index_in_dim(gathered, (lax.axis_index(axes) - hops) % size)
        return gathered[None]

    got = over(mesh, ours, P(names), P(names))(whole)
    expected = np.asarray(over(mesh, theirs, P(names), P(names))(whole))
    if name.startswith("reduce"):
        expected = np.stack([cases.by_hand(parts, op.lower()) for parts in expected])
    assert_bits(got, expected)


@pytest.mark.parametrize(
    "rows, cols, dtype", [(3, 1000, "float"), (5, 7, "float"), (2, 300, "oriel_bf16")]
)
def test_rows(rows, cols, dtype):
    """What follows a reduction, in stretches of a row."""
    kernel = oriel.kernel(KERNELS / "rows.cu", defines={"T": dtype})
    element = jnp.bfloat16 if dtype == "oriel_bf16" else jnp.float32
    x = jnp.arange(8 * 8 * rows * cols).reshape(-1, cols).astype(element) % 13
    weight = jnp.arange(cols, dtype=jnp.float32) / 4
    got = over(
        make_mesh(), lambda v: kernel(v, weight, out=(rows, cols), axis_name="x"), P("x"), P("x")
    )(x)
    sums = np.asarray(x, np.float32).reshape(8, 8, rows, cols).sum(0)
    wanted = sums + 100 * np.arange(rows)[:, None] + np.asarray(weight)
    assert_bits(got, jnp.asarray(wanted.reshape(-1, cols)).astype(element))


def test_attributes():
    got = over(
        make_mesh(),
        lambda x: attributes.echo(
            x,
            title="halo, (wörld)",
            small=-5,
            big=2**40,
            real=0.5,
            exact=0.1,
            yes=np.True_,
            other="",
            axis_name="x",
            out=((9,), (16,)),
        ),
        P("x"),
        P("x"),
    )(jnp.arange(8, dtype=jnp.int32))
    numbers, letters = np.asarray(got[0]).reshape(8, 9), np.asarray(got[1]).reshape(8, 16)
    for r in range(8):
        np.testing.assert_array_equal(numbers[r], [-5, 2**40, 0.5, 0.1, 1, r, r, 8, 0])
        assert bytes(letters[r]).rstrip(b"\0").decode() == "halo, (wörld)"


def test_shapes_of_results():
    kernel = several(np.dtype("float32"), "SUM").gather
    x = jnp.arange(8.0, dtype=jnp.float32)
    for out in [(8, 1), [8, 1], jax.ShapeDtypeStruct((8, 1), jnp.float32), [(8, 1)]]:
        got = over(make_mesh(), lambda v: kernel(v, out=out, axis_name="x"), P("x"), P("x"))(x)
        assert got.shape == (64, 1)


def test_nothing_to_compute():
    kernel = several(np.dtype("float32"), "SUM").reduce
    x = jnp.zeros((8, 0), jnp.float32)
    got = over(make_mesh(), lambda v: kernel(v, axis_name="x"), P("x"), P("x"))(x)
    assert got.shape == (8, 0)


# ---- transformations -----------------------------------------------------------------


def reduce_of(axis_name="x", **keywords):
    kernel = several(np.dtype("float32"), "SUM").reduce
    return lambda v: kernel(v, axis_name=axis_name, **keywords)


def test_vmap_scan_and_while():
    x = jnp.arange(24.0, dtype=jnp.float32).reshape(8, 3)
    mesh = make_mesh()
    ours, theirs = reduce_of(replicated=True), lambda v: lax.psum(v, "x")
    for function in (
        lambda f: lambda v: jax.vmap(f)(v[0]),
        lambda f: lambda v: jax.vmap(f, in_axes=1, out_axes=1)(v),
        lambda f: lambda v: lax.scan(lambda c, u: (c + f(u), c), jnp.zeros(()), v[0])[0],
        lambda f: lambda v: lax.fori_loop(0, 4, lambda i, c: c + f(v[0] * i), jnp.zeros(3)),
    ):
        specs = {"in_specs": P("x"), "out_specs": P()}
        expected = over(mesh, function(theirs), **specs)(x)
        assert_same(over(mesh, function(ours), **specs)(x), expected)


def test_vmap_of_some_operands():
    kernel = oriel.kernel(KERNELS / "fused.cu")
    x = jnp.arange(16.0, dtype=jnp.float32).reshape(8, 2)

    def each(f):
        return over(
            make_mesh(),
            lambda v: jax.vmap(f, in_axes=(None, 0))(
                v[0], jnp.arange(6.0, dtype=jnp.float32).reshape(3, 2)
            )[None],
            P("x"),
            P("x"),
        )(x)

    assert_same(
        each(lambda a, b: kernel(a, b, axis_name="x")), each(lambda a, b: lax.psum(a, "x") + b)
    )


def test_types_that_vary():
    """check_vma: a result varies unless it is said to be replicated."""
    x = jnp.arange(8.0, dtype=jnp.float32)
    over(make_mesh(), reduce_of(replicated=True), P("x"), P())(x)
    with pytest.raises(Exception, match="replicated"):
        over(make_mesh(), reduce_of(), P("x"), P())(x)
    over(make_mesh(), reduce_of(), P("x"), P(), check_vma=False)(x)


def test_several_calls_in_one_program():
    x = jnp.arange(8.0, dtype=jnp.float32)
    one = reduce_of(replicated=True)

    def function(v):
        return [one(v * i) for i in range(5)]

    for i, got in enumerate(over(make_mesh(), function, P("x"), [P()] * 5)(x)):
        np.testing.assert_array_equal(got, [28.0 * i])


def test_multimem():
    """Where there is no multicast it is peers' loads and stores, in rank order."""
    kernel = oriel.kernel(KERNELS / "multimem.cu")
    x = jnp.linspace(0, 1, 8 * 64, dtype=jnp.float32).reshape(8, 64)
    out = (jax.ShapeDtypeStruct((64,), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.int32))

    def function(v):
        y, has = kernel(v[0], axis_name="x", out=out)
        return y[None], has, oriel.all_reduce(v, "x")

    y, has, wanted = over(make_mesh(), function, P("x"), P("x"), check_vma=False)(x)
    assert_bits(y, wanted)
    assert not np.asarray(has).any()


def test_gradient():
    mine = oriel.kernel(KERNELS / "fused.cu")
    x = jnp.arange(16.0, dtype=jnp.float32).reshape(8, 2)

    def loss(f):
        def function(v):
            return jax.grad(lambda u: jnp.sum(f(u) ** 2))(v[0])[None]

        return over(make_mesh(), function, P("x"), P("x"), check_vma=False)(x)

    bias = jnp.ones(2, jnp.float32)
    with pytest.raises(TypeError, match=r"kernel sum_bias has no derivative.*defvjp"):
        loss(lambda u: mine(u, bias, axis_name="x"))

    @mine.defvjp
    def backward(operands, results, cotangents, axis_name):
        assert len(operands) == 2 and results[0].shape == (2,)
        return oriel.all_reduce(cotangents[0], axis_name), cotangents[0]

    assert_same(
        loss(lambda u: mine(u, bias, axis_name="x")), loss(lambda u: lax.psum(u, "x") + bias)
    )

    def both(f):
        """With types that say what varies: `bias` does not, so its parts add up."""

        def function(v, b):
            return jax.grad(lambda u, c: jnp.sum(f(u, c) ** 2), (0, 1))(v[0], b)

        checked = over(
            make_mesh(),
            lambda v, b: (function(v, b)[0][None], function(v, b)[1]),
            (P("x"), P()),
            (P("x"), P()),
        )
        return checked(x, bias)

    assert_same(
        both(lambda u, b: mine(u, b, axis_name="x")),
        both(lambda u, b: lax.pcast(lax.psum(u, "x"), "x", to="varying") + b),
    )

    mine.defvjp(lambda *args, axis_name: (None,))
    with pytest.raises(TypeError, match="a tuple of 2 cotangents"):
        loss(lambda u: mine(u, bias, axis_name="x"))


def test_a_world_of_one_axis_member():
    """A group of one runs the kernel too."""
    mesh = make_mesh((8, 1), ("x", "y"))
    x = jnp.arange(8.0, dtype=jnp.float32)
    assert_same(over(mesh, reduce_of("y"), P(("x", "y")), P(("x", "y")))(x), x)


# ---- building ------------------------------------------------------------------------


def test_cache(own_cache, monkeypatch, tmp_path):
    source = tmp_path / "mine.cu"
    source.write_text((KERNELS / "fused.cu").read_text())
    monkeypatch.setenv("CC", "cc")
    oriel.kernel(source)
    (kept,) = own_cache.rglob("*.so")
    when = kept.stat().st_mtime_ns
    oriel.kernel(source)
    assert [p.stat().st_mtime_ns for p in own_cache.rglob("*.so")] == [when]
    oriel.kernel(source, defines={"A": 1})
    oriel.kernel(source, flags=["-O1"])
    source.write_text(source.read_text() + "\n")
    oriel.kernel(source)
    assert len(list(own_cache.rglob("*"))) == 2 + 4  # two folders, nothing half done


TIMES = """#include <oriel/kernel.h>
ORIEL_KERNEL(times)(oriel_team *team, const float *x, float *y)
{
    oriel_for_each (i, team, oriel_count(team, x)) { y[i] = FACTOR * x[i]; }
}
"""


def check_times(times, factor):
    x = jnp.arange(8.0, dtype=jnp.float32)
    got = over(make_mesh(), lambda v: times(v, axis_name="x"), P("x"), P("x"))(x)
    np.testing.assert_array_equal(got, factor * x)


@pytest.mark.parametrize("folder", [".", "inc"])
def test_cache_sees_included_files(own_cache, tmp_path, folder):
    (tmp_path / "inc").mkdir()
    (tmp_path / "mine.cu").write_text('#include "part.h"\n' + TIMES)
    for factor in (2, 3):
        (tmp_path / folder / "part.h").write_text(f"#define FACTOR {factor}\n")
        check_times(oriel.kernel(tmp_path / "mine.cu", flags=["-I", tmp_path / "inc"]), factor)


def test_flags_make_another_kernel(own_cache, tmp_path):
    (tmp_path / "mine.cu").write_text(TIMES)
    twice, thrice = (oriel.kernel(tmp_path / "mine.cu", flags=[f"-DFACTOR={i}"]) for i in (2, 3))
    check_times(twice, 2)
    check_times(thrice, 3)


def test_cache_that_others_can_write(own_cache):
    folder = own_cache / "oriel" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match=f"{folder} cannot be written"):
        oriel.kernel(KERNELS / "fused.cu")
    assert not list(folder.iterdir())


def test_cache_that_cannot_be_written(own_cache, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own_cache.write_text("no folder")
    with pytest.warns(UserWarning, match="compiled anew in each process"):
        assert oriel.kernel(KERNELS / "fused.cu") is not None
    assert list(tmp_path.iterdir()) == [own_cache]  # what was built is loaded, and gone


def test_cache_of_its_own(own_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("ORIEL_CACHE", str(tmp_path / "mine"))
    (tmp_path / "one.cu").write_text((KERNELS / "fused.cu").read_text())
    oriel.kernel(tmp_path / "one.cu")
    assert [p.parent for p in tmp_path.rglob("*.so")] == [tmp_path / "mine" / "kernels"]


def test_what_is_shown():
    assert repr(attributes.echo).startswith(
        "<kernel echo(double *numbers, const char *title, int8_t small, const int32_t *x, "
    )
    assert "echo" in dir(attributes)
    kernels = several(np.dtype("float32"), "SUM")
    with pytest.raises(AttributeError, match="has no kernel 'nothing': it has reduce, reduce_all"):
        kernels.nothing
    with pytest.raises(TypeError, match="several kernels, name one: it has reduce"):
        kernels(jnp.zeros(8, jnp.float32))


# ---- several processes ---------------------------------------------------------------


@pytest.mark.parametrize("processes, devices", [(2, 2), (3, 1)] if SOAK else [(2, 2)])
@pytest.mark.parametrize("seed", range(10 if SOAK else 1))
def test_processes(processes, devices, seed):
    status, output, reports = run_processes(
        "kernel_any.py",
        40 if SOAK else 5,
        seed,
        processes=processes,
        devices=devices,
        JAX_ENABLE_X64="1",
        ORIEL_JITTER="50" if seed else "0",
    )
    assert status == 0, output
    assert reports == {i: [{"wrong": []}] for i in range(processes)}, output


def test_pages(tmp_path, capsys):
    """The first kernel of docs/kernels.md does what the page says, and so does the program
    of README.md, in one process too."""
    page = (ROOT / "docs" / "kernels.md").read_text()
    blocks = dict(re.findall(r"`(mine\.\w+)`.*?:\n\n```\w+\n(.*?)```", page, re.S))
    assert sorted(blocks) == ["mine.cu", "mine.py"]
    (blocks["step.py"],) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    for name, text in blocks.items():
        (tmp_path / name).write_text(text)
    exec(blocks["step.py"], {})  # with the 8 devices of this process
    assert capsys.readouterr().out == "[28.]\n"
    command = [
        find_oriel(),
        "run",
        "--no-tag",
        "-n",
        2,
        "--",
        sys.executable,
        "-c",
        "import mine, step",
    ]
    status, output = run(command, env=environment(1), cwd=tmp_path)
    assert status == 0 and output.count("0.5\n") == 2, output
    assert output.count("[ 4.  6.  8. 10.]\n") == 2, output
