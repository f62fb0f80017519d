"""init, finalize, check, and what importing does."""

import ctypes
import os
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from oriel import __main__ as oriel_main
from oriel import _lib, _meet, _threads
from support import ROOT, environment, make_mesh, over, run, run_plain


def step():
    return over(make_mesh(), lambda v: oriel.all_reduce(v, "x"))


def test_who_is_who():
    assert oriel.is_initialized()
    assert (oriel.size(), oriel.local_size(), oriel.rank()) == (8, 8, 0)
    assert (oriel.process_id(), oriel.num_processes()) == (0, 1)
    oriel.check()


def test_init_twice():
    oriel.init()
    oriel.init(process_id=0, num_processes=1)
    with pytest.raises(oriel.OrielError, match="num_processes: it was 1 and is 2"):
        oriel.init(process_id=0, num_processes=2)
    with pytest.raises(oriel.OrielError, match="another timeout"):
        oriel.init(timeout=17)


def test_finalize_and_init_again():
    x = jnp.arange(16.0).reshape(8, 2)
    compiled = step()
    expected = np.asarray(compiled(x))
    for _ in range(3):
        oriel.finalize()
        oriel.finalize()
        assert not oriel.is_initialized()
        with pytest.raises(oriel.OrielError, match="oriel.init"):
            oriel.size()
        with pytest.raises(oriel.OrielError, match="oriel.init"):
            oriel.check()
        with pytest.raises(Exception, match="not initialised"):
            compiled(x).block_until_ready()
        oriel.init()
        np.testing.assert_array_equal(compiled(x), expected)


def test_check_while_it_comes_and_goes():
    status, output = run_plain("coming_and_going.py", devices=2)
    assert status == 0 and "all saw it whole" in output, (status, output)


def test_no_world_when_lowered():
    oriel.finalize()
    try:
        with pytest.raises(oriel.OrielError, match="oriel.init"):
            step()(jnp.ones((8, 3)))
        assert jax.eval_shape(step(), jax.ShapeDtypeStruct((8, 3), np.float32)).shape == (1, 3)
    finally:
        oriel.init()


def test_arguments_of_init():
    oriel.finalize()
    try:
        for arguments, sentence in [
            ({"process_id": 0}, "together"),
            ({"num_processes": 2}, "together"),
            (
                {"process_id": 2, "num_processes": 2, "distributed": False},
                "process_id must be below",
            ),
            (
                {"process_id": -4, "num_processes": 2, "distributed": False},
                "process_id must be .* -4",
            ),
            ({"process_id": 0, "num_processes": 2, "distributed": False}, "no store"),
            ({"process_id": 0, "num_processes": 2, "store": "@"}, "before the first JAX"),
            (
                {"process_id": 5, "num_processes": 2},
                "process_id must be below",
            ),  # before JAX's state
            ({"process_id": 0.5, "num_processes": 2}, "process_id must be a whole number .* 0.5"),
            (
                {"process_id": 0, "num_processes": "a"},
                "num_processes must be a whole number .* 'a'",
            ),
            ({"timeout": -1.0}, "timeout must be a positive number of seconds, got -1"),
            ({"timeout": 0}, "timeout must be a positive number of seconds, got 0"),
            ({"timeout": "a"}, "timeout must be .* got 'a'"),
            ({"store": 5}, "store must be text, got 5"),
            ({"secret": 3}, "secret must be text, got <class 'int'>"),
            ({"distributed": "no"}, "distributed must be True, False or None, got 'no'"),
        ]:
            with pytest.raises(oriel.OrielError, match=sentence) as caught:
                oriel.init(**arguments)
            assert caught.value.status == oriel.Status.INVALID
            assert not oriel.is_initialized()
        with pytest.raises(oriel.OrielError, match="JAX has no devices of platform 'cuda' here"):
            oriel.init(platform="cuda")
    finally:
        oriel.init()


def test_error_type():
    error = oriel.OrielError("a sentence", 4)
    assert isinstance(error, RuntimeError)
    assert (str(error), error.status) == ("a sentence", oriel.Status.TIMEOUT)


def test_status_is_that_of_the_header():
    header = (ROOT / "include" / "oriel" / "oriel.h").read_text()
    named = re.findall(r"ORIEL_(?:ERR_)?([A-Z_]+) = (\d+)", header.split("} oriel_status;")[0])
    assert [(s.name, str(s.value)) for s in oriel.Status] == named


def test_codes_are_those_of_the_header():
    header = (ROOT / "include" / "oriel" / "oriel.h").read_text()
    named = re.findall(r"ORIEL_([A-Z]+) = (\d)", header.split("oriel_redop {")[1].split("}")[0])
    assert {k.upper(): str(v) for k, v in oriel._collectives.reduction.CODES.items()} == dict(named)


def test_operations_are_those_of_the_library():
    header = (ROOT / "src" / "core" / "world" / "record.h").read_text()
    named = re.findall(r"ORIEL_KIND_([A-Z_]+)", header.split("enum oriel_kind {")[1].split("}")[0])
    assert [name.upper() for name in _lib.OPERATIONS] + ["COUNT"] == named


def test_structures_are_those_of_the_library():
    params = _lib.CommParams(struct_size=1)
    with pytest.raises(oriel.OrielError, match=f"is 1 instead of {ctypes.sizeof(params)}:"):
        _lib.call("oriel_comm_create", ctypes.byref(params), ctypes.byref(ctypes.c_void_p()))


def test_options_come_from_the_library():
    assert _lib.option("ORIEL_STORE") == ""
    with pytest.raises(KeyError):
        _lib.option("ORIEL_NO_SUCH")


def test_store_over_jax():
    """The coordinator's store as oriel_store, with a client of straw."""

    class Client:
        def __init__(self):
            self.values = {}

        def key_value_set_bytes(self, key, value):
            if key == "bad":
                raise RuntimeError("INTERNAL: broken")
            self.values[key] = value

        def blocking_key_value_get_bytes(self, key, milliseconds):
            if key not in self.values:
                raise RuntimeError(f"DEADLINE_EXCEEDED: {milliseconds} ms")
            return self.values[key]

    store = _meet._JaxStore(Client())
    value = ctypes.create_string_buffer(b"\0seven\0", 7)
    assert store.table.set(None, b"k", value, 7) == oriel.Status.OK
    got, length = ctypes.create_string_buffer(4), ctypes.c_size_t()
    assert store.table.get(None, b"k", 1.0, got, 4, ctypes.byref(length)) == oriel.Status.OK
    assert (got.raw, length.value) == (b"\0sev", 7)
    assert store.table.get(None, b"none", 0.5, got, 4, ctypes.byref(length)) == oriel.Status.TIMEOUT
    assert store.table.set(None, b"bad", value, 7) == oriel.Status.SYSTEM
    with pytest.raises(oriel.OrielError, match="INTERNAL: broken"):

        def fail():
            raise oriel.OrielError("", oriel.Status.SYSTEM)

        store.run(fail)


# ---- importing -------------------------------------------------------------


@pytest.mark.parametrize(
    "env, threads",
    [
        ({}, "32"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, "16"),
        ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=24"}, "96"),
        ({"PJRT_NPROC": "3"}, "3"),
        ({"NPROC": "3"}, None),
    ],
)
def test_threads_asked_for(monkeypatch, env, threads):
    for name in ("PJRT_NPROC", "NPROC", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_threads, "_client_exists", lambda: False)
    monkeypatch.setattr(_threads, "_reserved", None)
    _threads.reserve()
    assert os.environ.get("PJRT_NPROC") == threads


def test_more_devices_are_known_later(monkeypatch):
    monkeypatch.setattr(_threads, "_client_exists", lambda: False)
    monkeypatch.setattr(_threads, "_reserved", "32")
    monkeypatch.setattr(_threads, "devices_asked", lambda: 20)
    monkeypatch.setenv("PJRT_NPROC", "32")
    _threads.reserve()
    assert os.environ["PJRT_NPROC"] == "80"


def test_shortage(monkeypatch):
    monkeypatch.setattr(_threads, "_early_pool", None)
    assert _threads.shortage(8) is None
    assert "PJRT_NPROC=4000" in _threads.shortage(1000)
    monkeypatch.setattr(_threads, "_early_pool", 1)
    assert _threads.shortage(1) is None
    assert "1 threads for 2 devices" in _threads.shortage(2)


def test_import_is_light():
    code = (
        "import oriel, os, sys\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('torch', 'mpi4py', 'cupy')])\n"
        "print([l for l in open('/proc/self/maps') if 'libcuda' in l or 'libnccl' in l])\n"
        "from jax._src import xla_bridge\n"
        "print(xla_bridge.backends_are_initialized(), os.environ['PJRT_NPROC'])"
    )
    status, output = run([sys.executable, "-c", code], env=environment(JAX_NUM_CPU_DEVICES="5"))
    assert status == 0, output
    assert output.split() == ["[]", "[]", "False", "20"]


def test_devices_before_import():
    status, output = run_plain("late_import.py", 8)
    assert status == 0 and "refused: JAX's CPU client has 4 threads for 8 devices" in output
    assert "PJRT_NPROC=32" in output


@pytest.mark.parametrize("arguments, said", [(["x"], "no command 'x'"), ([], "no command ''")])
def test_module_command(arguments, said, capsys):
    assert oriel_main.main(arguments) == 2
    assert said in capsys.readouterr().err
