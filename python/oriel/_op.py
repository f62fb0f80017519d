"""A person's host function as a function of arrays: oriel.op."""

import ctypes
import hashlib
import numbers
import operator
import os
import pathlib
import struct

import jax
import jax.numpy as jnp
import numpy as np

from oriel import _lib
from oriel._collectives import dtypes as _dtypes
from oriel._collectives import primitive as _primitive
from oriel._kernel import Function, as_numbers, is_list_of_shapes
from oriel._lib import OrielError, Status

# As in oriel/op.h and src/ops/kernel/kernel.h.
_INTEGER, _REAL, _STRING = range(3)
_MOST_BUFFERS, _MOST_ATTRIBUTES, _MOST_DIMENSIONS = 64, 64, 8


def op(library, name, *, capture=False):
    """Function `name` of a shared library, written on oriel/op.h, as a function of
    arrays: `oriel_status name(oriel_call *call)`.

        mine = oriel.op("./libmine.so", "my_op")
        y = mine(x, out=jax.ShapeDtypeStruct((4, 8), "float32"), axis_name="x", root=0)

    It is called as kernels are (see oriel.kernel), with operands of any number and
    dtype. `out` is a jax.ShapeDtypeStruct, or a shape with the dtype of the first operand, or
    a tuple of those where there are several results; else like the first operand.
    Attributes are integers, floats and text.
    Every process loads the same library.

    On GPUs it puts its work on XLA's stream. With `capture=True` XLA may keep that in a
    CUDA graph and run it again without calling the function: for those that do nothing but
    enqueue, and would enqueue the same again.
    """
    if not isinstance(library, (str, os.PathLike)):
        raise TypeError(f"oriel.op: library must be a path, got {library!r}")
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"oriel.op: name must be that of a function, got {name!r}")
    path = pathlib.Path(library).resolve()
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
        function = getattr(ctypes.CDLL(str(path)), name)
    except OSError as error:
        raise OrielError(f"{path} cannot be loaded: {error}", Status.INVALID) from None
    except AttributeError:
        raise OrielError(f"{path} exports no function {name!r}", Status.INVALID) from None
    said = hashlib.sha256(digest + name.encode() + b"/capture" * bool(capture)).digest()
    number = int.from_bytes(said[:8], "little") >> 1
    _lib.call("oriel_ffi_op", number, name.encode(), ctypes.cast(function, ctypes.c_void_p))
    return Op(name, number, path, capture)


class Op(Function):
    """One host function; see oriel.op for how it is called."""

    def __init__(self, name, number, path, capture):
        super().__init__(f"op {name}", name, number)
        self._path = path
        self.target = "kernel" if capture else "op"

    def _check_operands(self, operands):
        if not operands:
            raise TypeError(f"{self._label} needs an operand")
        for i, operand in enumerate(operands):
            _primitive.check_array(self._label, operand, f"operand {i}")
            self._check_dimensions(f"operand {i}", jax.typeof(operand).shape)
        return operands

    def _check_dimensions(self, what, shape):
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError(
                f"{self._label}: {what} has {len(shape)} dimensions, more than {_MOST_DIMENSIONS}"
            )

    def _find_outs(self, operands, out):
        if out is None:
            out = jax.typeof(operands[0])
        outs = out if is_list_of_shapes(out) else (out,)
        if len(operands) + len(outs) > _MOST_BUFFERS:
            raise ValueError(
                f"{self._label}: {len(operands)} operands and {len(outs)} results are more than "
                f"{_MOST_BUFFERS}"
            )
        dtype = jax.typeof(operands[0]).dtype
        return tuple(self._check_out(i, given, dtype) for i, given in enumerate(outs))

    def _check_out(self, i, given, dtype):
        if hasattr(given, "shape") and hasattr(given, "dtype"):
            given, dtype = given.shape, given.dtype
        try:
            shape = tuple(map(operator.index, (given,) if isinstance(given, int) else given))
        except TypeError:
            raise TypeError(
                f"{self._label}: out {i} must be a shape or a jax.ShapeDtypeStruct, got {given!r}"
            ) from None
        self._check_dimensions(f"out {i}", shape)
        self._check_shape(f"out {i}", shape)
        _dtypes.check(self._label, jnp.dtype(dtype))
        return shape, jnp.dtype(dtype).name

    def _pack(self, attributes):
        """How many; then for each where its name begins, its type and its value, a
        string's being where it begins; then names and strings."""
        if len(attributes) > _MOST_ATTRIBUTES:
            raise ValueError(
                f"{self._label}: {len(attributes)} attributes, more than {_MOST_ATTRIBUTES}"
            )
        words, text = [len(attributes)], b""
        start = 8 * (1 + 3 * len(attributes))
        for name, value in attributes.items():
            words.append(start + len(text))
            text += name.encode() + b"\0"
            kind, value = self._encode(name, value)
            if kind == _STRING:
                value, text = start + len(text), text + value
            words += [kind, value]
        return tuple(words + as_numbers(text))

    def _encode(self, name, value):
        if isinstance(value, str):
            return _STRING, self._text(name, value)
        if isinstance(value, (np.bool_, numbers.Integral)) and -(2**63) <= int(value) < 2**63:
            return _INTEGER, int(value)
        if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
            return _REAL, struct.unpack("<q", struct.pack("<d", float(value)))[0]
        raise TypeError(
            f"{self._label}: attribute {name!r} must be an integer of 64 bits, a float or text, "
            f"known when the program is traced; got {value!r}"
        )

    def __repr__(self):
        return f"<op {self.name} of {self._path}>"
