"""Random calls of the operations that reduce or move blocks, with what lax and NumPy
make of them. Where the randomness comes from is the caller's business: `pick` chooses one
of a list."""

import dataclasses
import functools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
from jax import lax
from jax.sharding import PartitionSpec as P

DTYPES = [
    np.dtype(name)
    for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
    "complex64 complex128".split()
] + [
    np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
]
FLOATS = [dtype for dtype in DTYPES if dtype.kind not in "biu"]
NARROW = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
STEP = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
MESHES = [((8,), "x"), ((4, 2), "xy"), ((2, 4), "xy"), ((2, 2, 2), "xyz"), ((1, 8), "xy")]
OPERATIONS = ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "permute")
REDUCTIONS = ("all_reduce", "reduce_scatter")


def draw_values(rng, shape, dtype):
    if dtype == bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    real = rng.normal(size=shape) * 3
    if dtype.kind == "c":
        real = real + 1j * rng.normal(size=shape)
    return real.astype(dtype)


def by_hand(parts, op):
    """parts[0] op parts[1] op ..., from left to right."""
    dtype = parts.dtype
    if dtype == bool and op in ("sum", "prod"):
        parts = parts.astype(np.int32)
    elif dtype.name in NARROW:
        parts = parts.astype(np.float32)
    with np.errstate(all="ignore"):
        result = functools.reduce(STEP[op], parts)
        return result.astype(dtype) if dtype.name in NARROW else result


def size_of(mesh_shape, names, axes):
    return int(np.prod([mesh_shape[names.index(name)] for name in axes]))


def in_groups(array, mesh_shape, names, axes):
    """What has one entry for each device, in the shape of the mesh, as (groups, members)."""
    order, sizes = _group_order(mesh_shape, names, axes)
    lead = len(names)
    array = np.transpose(array, order + list(range(lead, array.ndim)))
    size = size_of(mesh_shape, names, axes)
    return array.reshape(int(np.prod(sizes)) // size, size, *array.shape[lead:])


def from_groups(array, mesh_shape, names, axes):
    """The way back."""
    order, sizes = _group_order(mesh_shape, names, axes)
    array = array.reshape(*sizes, *array.shape[2:])
    return np.transpose(array, np.argsort(order).tolist() + list(range(len(names), array.ndim)))


def _group_order(mesh_shape, names, axes):
    """Dimensions of the mesh and their sizes, those of `axes` last and in their order."""
    places = [names.index(name) for name in axes]
    order = [i for i in range(len(names)) if i not in places] + places
    return order, [mesh_shape[i] for i in order]


@dataclasses.dataclass(frozen=True)
class Case:
    operation: str
    shape: tuple  # of one device's operand
    dtype: np.dtype
    mesh_shape: tuple
    names: str
    axes: tuple
    order: tuple  # of the devices
    arguments: dict

    @property
    def spec(self):
        return P(*self.names)

    def draw(self, seed):
        """One operand for each device, in the shape of the mesh."""
        return draw_values(np.random.default_rng(seed), (*self.mesh_shape, *self.shape), self.dtype)

    def ours(self, v):
        function = getattr(oriel, self.operation)
        return self._around(lambda x: function(x, self.axes, **self.arguments), v)

    def theirs(self, v):
        return self._around(lambda x: BY_LAX[self.operation](x, self.axes, **self.arguments), v)

    def _around(self, function, v):
        y = function(v.reshape(self.shape))
        return y.reshape(*(1,) * len(self.mesh_shape), *y.shape)

    def theirs_derived(self, v):
        by_lax = SOUND_BY_LAX[self.operation]
        return self._around(lambda x: by_lax(x, self.axes, **self.arguments), v)

    @property
    def layout(self):
        return self.mesh_shape, self.names, self.axes

    def lax_has_it(self):
        """What XLA knows how to reduce; its gathers and scatters refuse operands
        without elements."""
        if self.operation in ("all_gather", "reduce_scatter") and 0 in self.shape:
            return False
        if self.operation not in REDUCTIONS:
            return True
        ordered = self.operation == "all_reduce" and self.dtype.kind != "c"
        ops = ("sum", "min", "max") if ordered else ("sum",)
        return self.arguments["op"] in ops and self.dtype != bool

    def rounds(self):
        return self.arguments.get("op") in ("sum", "prod") and self.dtype in FLOATS

    def expected(self, parts):
        """What NumPy makes of all operands: all results, in the shape of the mesh."""
        groups = in_groups(parts, *self.layout)
        results = np.stack([np.stack(self._by_numpy(group)) for group in groups])
        return from_groups(results, *self.layout)

    def in_float64(self, parts):
        """What a reduction of floats is without rounding, as nearly as float64 tells, and
        the sums or products of magnitudes, to which errors are in proportion."""
        wide = parts.astype("complex128" if self.dtype.kind == "c" else "float64")
        return self.expected(wide), self.expected(np.abs(wide))

    def error(self, value, scale, narrow=False):
        """How far a result may be from `value`. The steps are taken in the dtype itself or,
        where it is narrow, in float32 and rounded once; unless they are `narrow`, too."""
        info = ml_dtypes.finfo(self.dtype)
        steps = 8 if self.dtype.kind != "c" else 24
        if narrow or self.dtype.name not in NARROW:
            return steps * float(info.eps) * scale
        once = float(info.eps) / 2 * np.abs(value) + float(info.smallest_subnormal)
        return once + steps * float(np.finfo(np.float32).eps) * scale

    def _by_numpy(self, group):
        if self.operation in REDUCTIONS:
            # Added in the order of the mesh, whatever the order of the axes.
            sizes = [self.mesh_shape[self.names.index(name)] for name in self.axes]
            index = np.arange(len(group)).reshape(sizes)
            index = index.transpose(np.argsort([self.names.index(name) for name in self.axes]))
            return BY_NUMPY[self.operation](group[index.ravel()], **self.arguments)
        return BY_NUMPY[self.operation](group, **self.arguments)


def reduce_by_numpy(group, op):
    return [by_hand(group, op)] * len(group)


def scatter_by_numpy(group, scatter_dimension, tiled, op):
    parts = np.split(by_hand(group, op), len(group), scatter_dimension)
    return parts if tiled else [part.squeeze(scatter_dimension) for part in parts]


def gather_by_numpy(group, axis, tiled):
    return [np.concatenate(group, axis) if tiled else np.stack(group, axis)] * len(group)


def all_to_all_by_numpy(group, split_axis, concat_axis, tiled):
    pieces = [np.split(part, len(group), split_axis) for part in group]
    results = []
    for i in range(len(group)):
        came = [piece[i] for piece in pieces]
        if tiled:
            results.append(np.concatenate(came, concat_axis))
        else:
            results.append(np.stack([part.squeeze(split_axis) for part in came], concat_axis))
    return results


def broadcast_by_numpy(group, root):
    return [group[root]] * len(group)


def permute_by_numpy(group, perm):
    results = np.zeros_like(group)
    for source, to in perm:
        results[to] = group[source]
    return list(results)


BY_NUMPY = {
    "all_reduce": reduce_by_numpy,
    "reduce_scatter": scatter_by_numpy,
    "all_gather": gather_by_numpy,
    "all_to_all": all_to_all_by_numpy,
    "broadcast": broadcast_by_numpy,
    "permute": permute_by_numpy,
}


def broadcast_by_lax(x, axes, root):
    """What lax.pbroadcast is by definition; XLA has it for GPUs alone."""
    mask = lax.axis_index(axes) == root
    y = lax.psum(jnp.where(mask, x, jnp.zeros_like(x)), axes).astype(x.dtype)
    return oriel._collectives.primitive.make_varying(
        y, axes if isinstance(axes, tuple) else (axes,)
    )


def reduce_by_lax(x, axes, op="sum"):
    return {"sum": lax.psum, "mean": lax.pmean, "min": lax.pmin, "max": lax.pmax}[op](x, axes)


def scatter_by_lax(x, axes, scatter_dimension=0, tiled=False, op="sum"):
    total = lax.psum_scatter(x, axes, scatter_dimension=scatter_dimension, tiled=tiled)
    assert op in ("sum", "mean")
    return total if op == "sum" else total / lax.psum(1, axes)


def sound_scatter_by_lax(x, axes, scatter_dimension=0, tiled=False, op="sum"):
    y = scatter_by_lax(x, axes, scatter_dimension, True, op)
    return y if tiled else y.squeeze(scatter_dimension)


def sound_all_to_all_by_lax(x, axes, split_axis, concat_axis, tiled=False):
    if tiled:
        return lax.all_to_all(x, axes, split_axis, concat_axis, tiled=True)
    x = jnp.moveaxis(x, split_axis, 0)
    return jnp.moveaxis(lax.all_to_all(x, axes, 0, 0), 0, concat_axis)


BY_LAX = {
    "all_reduce": reduce_by_lax,
    "all_gather": lax.all_gather,
    "reduce_scatter": scatter_by_lax,
    "all_to_all": lax.all_to_all,
    "broadcast": broadcast_by_lax,
    "permute": lax.ppermute,
}
# The part of lax that is right under every transformation: of what is not tiled, it
# neither batches psum_scatter nor transposes all_to_all.
SOUND_BY_LAX = BY_LAX | {
    "reduce_scatter": sound_scatter_by_lax,
    "all_to_all": sound_all_to_all_by_lax,
}


# ---- drawing -----------------------------------------------------------------


def draw_mesh(pick, any_order=True):
    """Shape and names of a mesh, the axes of a call in the order of the mesh or in
    another, and the order of the devices."""
    mesh_shape, names = pick(MESHES)
    axes = [name for name in names if pick([True, True, False])] or [pick(list(names))]
    if any_order and pick([False, True]):
        axes = axes[::-1]
    order = list(range(8))
    if pick([False, True]):
        order = order[3:] + order[:3][::-1]
    return mesh_shape, names, tuple(axes), tuple(order)


def draw_case(pick, operation, dtypes=DTYPES, ops=tuple(STEP), lengths=(1, 2, 3, 5, 0)):
    mesh_shape, names, axes, order = draw_mesh(pick, any_order=operation != "permute")
    shape = [pick(list(lengths)) for _ in range(pick([1, 2, 3]))]
    arguments = DRAW[operation](pick, shape, size_of(mesh_shape, names, axes))
    if operation in REDUCTIONS:
        arguments["op"] = pick(list(ops))
    return Case(operation, tuple(shape), pick(dtypes), mesh_shape, names, axes, order, arguments)


def _dimension(pick, ndim):
    """Counted from the front or from the end."""
    return pick(list(range(-ndim, ndim)))


def _draw_gather(pick, shape, size):
    tiled = pick([False, True])
    return {"axis": _dimension(pick, len(shape) + (not tiled)), "tiled": tiled}


def _draw_split(pick, shape, size):
    """Which dimension is split; `shape` is changed so that it can be."""
    dim, tiled = _dimension(pick, len(shape)), pick([False, True])
    shape[dim] = size * shape[dim] if tiled else size
    return dim, tiled


def _draw_scatter(pick, shape, size):
    dim, tiled = _draw_split(pick, shape, size)
    return {"scatter_dimension": dim % len(shape), "tiled": tiled}


def _draw_all_to_all(pick, shape, size):
    dim, tiled = _draw_split(pick, shape, size)
    other = _dimension(pick, len(shape)) % len(shape)
    return {"split_axis": dim % len(shape), "concat_axis": other, "tiled": tiled}


def _draw_broadcast(pick, shape, size):
    return {"root": pick(list(range(size)))}


def _draw_permute(pick, shape, size):
    free = list(range(size))
    pairs = []
    for source in range(size):
        if pick([True, True, False]):
            to = pick(free)
            free.remove(to)
            pairs.append((source, to))
    return {"perm": pairs}


DRAW = {
    "all_reduce": lambda pick, shape, size: {},
    "all_gather": _draw_gather,
    "reduce_scatter": _draw_scatter,
    "all_to_all": _draw_all_to_all,
    "broadcast": _draw_broadcast,
    "permute": _draw_permute,
}


# ---- ragged_all_to_all --------------------------------------------------------


def draw_ragged(rng, n, slices, rows, row=(), dtype=np.float32):
    """Operands of all members: slices of any length, nowhere two in one place."""
    sizes = rng.multinomial(rows, np.ones(n * slices) / (n * slices), size=n)  # sender, entry
    sizes = sizes * rng.integers(0, 2, sizes.shape)
    received = sizes.reshape(n, n, slices).transpose(1, 0, 2).reshape(n, n * slices).copy()
    room = int(received.sum(1).max()) + 3
    return {
        "operand": draw_values(rng, (n, rows, *row), np.dtype(dtype)),
        "output": draw_values(rng, (n, room, *row), np.dtype(dtype)),
        "input_offsets": _spread(rng, sizes, rows),
        "send_sizes": sizes,
        "output_offsets": _spread(rng, received, room)
        .reshape(n, n, slices)
        .transpose(1, 0, 2)
        .reshape(n, n * slices),
        "recv_sizes": received,
    }


def draw_ragged_groups(rng, groups, n, *arguments):
    """Operands of several groups of n members each, with the same room for all."""
    drawn = [draw_ragged(rng, n, *arguments) for _ in range(groups)]
    room = max(len(arrays["output"][0]) for arrays in drawn)
    for arrays in drawn:
        output = arrays["output"]
        more = np.zeros((n, room - output.shape[1], *output.shape[2:]), output.dtype)
        arrays["output"] = np.concatenate([output, more], 1)
    return {name: np.stack([arrays[name] for arrays in drawn]) for name in drawn[0]}


def _spread(rng, sizes, rows):
    """Offsets for slices of each line of `sizes`, in random order, without overlap."""
    offsets = np.zeros_like(sizes)
    for line, into in zip(sizes, offsets, strict=True):
        start = int(rng.integers(0, rows - line.sum() + 1))
        for k in rng.permutation(len(line)):
            into[k] = start
            start += line[k]
    return offsets


def ragged_by_numpy(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes):
    results = output.copy()
    n = len(operand)
    slices = input_offsets.shape[1] // n
    for source in range(n):
        for k in range(n * slices):
            start, size = input_offsets[source, k], send_sizes[source, k]
            to = output_offsets[source, k]
            results[k // slices, to : to + size] = operand[source, start : start + size]
    return results
