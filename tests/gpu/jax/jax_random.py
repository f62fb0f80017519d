"""Random operations, shapes, dtypes and groups inside jit, against float64 and against the
CPU's bits: jax_random.py SEED FOLDER. Where JAX's devices are CPUs the results' digests are
written to FOLDER, where they are GPUs they are compared with those."""

import hashlib
import json
import pathlib
import sys

import jax
import ml_dtypes
import numpy as np
import oriel
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_common import own, row

jax.config.update("jax_enable_x64", True)

PROGRAMS, CALLS = 6, 12
REAL = [np.dtype(name) for name in "float16 float32 float64".split()] + [
    np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
]
COMPLEX = [np.dtype(name) for name in "complex64 complex128".split()]
WHOLE = [np.dtype(name) for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()]
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "permute")
AXES = ("a", "b", ("a", "b"))
FOLDS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def draw_case(rng, sizes):
    dtype = [*REAL, *COMPLEX, *WHOLE, np.dtype(bool)][rng.integers(17)]
    kind = KINDS[rng.choice(6, p=[0.35, 0.25, 0.1, 0.1, 0.1, 0.1])]
    axis = AXES[rng.integers(3)]
    ops = ("min", "max") if dtype == bool else ("sum",) if dtype.kind == "c" else tuple(FOLDS)
    most = int(rng.choice([50, 3000, 300000]))
    shape = tuple(rng.integers(1, 40, rng.integers(0, 2))) + (int(rng.integers(1, most + 1)),)
    while np.prod(shape) > most:
        shape = shape[1:] if len(shape) > 1 else (most,)
    group = int(np.prod([sizes[name] for name in (axis if isinstance(axis, tuple) else (axis,))]))
    shift = int(rng.integers(group))
    return {
        "kind": kind,
        "dtype": dtype,
        "axis": axis,
        "op": str(rng.choice(ops)),
        "shape": tuple(map(int, shape)),
        "group": group,
        "root": int(rng.integers(group)),
        "pairs": [(i, (i + shift) % group) for i in range(group) if rng.random() < 0.8],
    }


def draw_values(rng, shape, dtype):
    if dtype == bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    values = rng.normal(size=shape) * 2.0 ** rng.integers(-4, 5, shape)
    if dtype.kind == "c":
        return (values + 1j * rng.normal(size=shape)).astype(dtype)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7], shape)
    return np.where(rng.random(shape) < 0.01, special, values).astype(dtype)


def apply(case, v):
    kind, axis, op = case["kind"], case["axis"], case["op"]
    if kind == "all_reduce":
        return oriel.all_reduce(v, axis, op)
    if kind == "reduce_scatter":
        return oriel.reduce_scatter(v, axis, op=op)
    if kind == "all_gather":
        return oriel.all_gather(v, axis)
    if kind == "all_to_all":
        return oriel.all_to_all(v, axis, 0, 0)
    if kind == "broadcast":
        return oriel.broadcast(v, axis, root=case["root"])
    return oriel.permute(v, axis, case["pairs"])


def check_close(got, parts, op, what):
    """Against float64, as near as so many roundings allow."""
    wide = parts.astype(np.complex128 if parts.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        wanted = FOLDS[op].reduce(wide, 0)
        scale = np.abs(wide).sum(0) if op == "sum" else np.abs(wanted)
        most = float(ml_dtypes.finfo(parts.dtype).max)
        eps = float(ml_dtypes.finfo(parts.dtype).eps)
        least = float(ml_dtypes.finfo(parts.dtype).smallest_normal)
        fine = np.isfinite(wanted) & (np.abs(wanted) < most / 2) & np.isfinite(scale)
        error = np.abs(got.astype(wide.dtype) - wanted)
        bound = len(parts) * (eps * scale + least)
    assert (error[fine] <= bound[fine]).all(), (what, error[fine].max())


def check(case, got, members, me, what):
    """`members`: what the group's ranks sent, in order, of which `me` is this one."""
    kind = case["kind"]
    if kind in ("all_reduce", "reduce_scatter"):
        parts = members if kind == "all_reduce" else members[:, me]
        if case["dtype"].kind in "iub":
            wanted = FOLDS[case["op"]].reduce(parts, 0, dtype=parts.dtype)
            np.testing.assert_array_equal(got, wanted, err_msg=what)
        else:
            check_close(got, parts, case["op"], what)
        return
    source = next((i for i, k in case["pairs"] if k == me), None)
    wanted = {
        "all_gather": lambda: members,
        "all_to_all": lambda: members[:, me],
        "broadcast": lambda: members[case["root"]],
        "permute": lambda: np.zeros_like(members[0]) if source is None else members[source],
    }[kind]()
    assert got.shape == wanted.shape and got.tobytes() == wanted.tobytes(), what


def run_program(mesh, place, cases, rng):
    """Place: of this rank in the mesh. Digests of the results, each looked at."""
    count = mesh.devices.size
    inputs = [
        draw_values(
            rng,
            (
                count,
                *([case["group"]] if case["kind"] in ("reduce_scatter", "all_to_all") else []),
                *case["shape"],
            ),
            case["dtype"],
        )
        for case in cases
    ]
    spec = P(("a", "b"))
    sharding = NamedSharding(mesh, spec)
    arrays = [jax.make_array_from_callback(x.shape, sharding, lambda i, x=x: x[i]) for x in inputs]
    step = jax.jit(
        jax.shard_map(
            lambda *parts: tuple(
                apply(case, part[0])[None] for case, part in zip(cases, parts, strict=True)
            ),
            mesh=mesh,
            in_specs=(spec,) * len(cases),
            out_specs=(spec,) * len(cases),
            check_vma=False,
        )
    )
    digests = []
    for _ in range(3):  # the first through the stages, others direct
        results = [own(array)[0] for array in step(*arrays)]
        digests.append([hashlib.sha256(got.tobytes()).hexdigest()[:16] for got in results])
    assert digests[0] == digests[1] == digests[2], "runs differ"
    table = np.arange(count).reshape(mesh.devices.shape)
    i, k = divmod(place, table.shape[1])
    for case, x, got in zip(cases, inputs, results, strict=True):
        group = {"a": table[:, k], "b": table[i], ("a", "b"): table.ravel()}[case["axis"]]
        check(case, got, x[group], list(group).index(place), str(case))
    return digests[0]


def main(seed, folder):
    oriel.init(timeout=60)
    rng = np.random.default_rng(seed)
    print(f"seed {seed}", flush=True)
    n = oriel.size()
    order = rng.permutation(n)
    mesh = Mesh(
        np.array(jax.devices())[order].reshape(2, n // 2),
        ("a", "b"),
        axis_types=(AxisType.Auto,) * 2,
    )
    place = list(order).index(oriel.rank())
    cases = [[draw_case(rng, mesh.shape) for _ in range(CALLS)] for _ in range(PROGRAMS)]
    found = [run_program(mesh, place, some, rng) for some in cases]
    path = pathlib.Path(folder, f"random_{seed}_{n}_{oriel.rank()}.json")
    if jax.devices()[0].platform == "cpu":
        path.write_text(json.dumps(found))
    else:
        for some, wanted, got in zip(cases, json.loads(path.read_text()), found, strict=True):
            for case, one, other in zip(some, wanted, got, strict=True):
                assert one == other, f"not the CPU's bits: {case}"
    oriel.check()
    oriel.finalize()
    row(
        f"{PROGRAMS * CALLS} random calls of seed {seed} against float64"
        + (", bits equal to the CPU's" if jax.devices()[0].platform == "gpu" else "")
    )


main(int(sys.argv[1]), sys.argv[2])
