"""A person's kernel as a function of arrays: oriel.kernel."""

import ctypes
import operator
import struct

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from oriel import _calls, _compat, _lib, _world
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives.primitive import Operation
from oriel._compile import build as _build
from oriel._compile import source as _source

_operation = Operation("kernel", multiple_results=True)
_MOST_SAID = 63  # letters; as in src/ffi/site.c


def kernel(path, *, defines=None, flags=()):
    """The kernels of a source file, written on oriel/kernel.h, as functions of arrays.

    They are the attributes of what this returns, by name; if there is one only, the
    object itself can be called as well. It is compiled here with `$CC` or `cc`, once
    for each content, and for GPUs with NVRTC where a program calls it there. `defines` are
    macros, by name, for the file and for the types in its signatures; `flags` are more words
    for the compiler.

        mine = oriel.kernel("mine.cu")
        y = mine(x, scale=2.0, axis_name="x")

    A call takes the operands in the order of the signature, and by keyword the
    attributes, of which every process gives the same, and
      axis_name    the axes whose devices take part, as in oriel.all_reduce
      out          shapes of the results: jax.ShapeDtypeStruct or a shape, a tuple of
                   those where there are several results; else that of the first operand
      replicated   the results are the same on all of them: their type does not vary
                   over the axes (the kernel must see to it)
    It works under jit, shard_map, scan and vmap (one entry after the other), and
    under grad where a rule was given: see Kernel.defvjp.
    """
    source = _source.read(path, defines, flags)
    built = _build.for_host(source)
    try:
        library = ctypes.CDLL(str(built))
    except OSError as error:
        raise _lib.OrielError(
            f"{source.path} compiles, but cannot be loaded: {error}", _lib.Status.INVALID
        ) from None
    finally:
        _build.release(built)
    kernels = {}
    for signature in source.signatures:
        number = source.number(signature)
        entry = ctypes.cast(getattr(library, f"oriel_entry_{signature.name}"), ctypes.c_void_p)
        _lib.call("oriel_ffi_kernel", number, signature.name.encode(), entry)
        kernels[signature.name] = Kernel(signature, number, source)
    return Kernels(source.path, kernels)


class Kernels:
    """The kernels of one file."""

    def __init__(self, path, kernels):
        self._path = path
        self._kernels = kernels

    def __getattr__(self, name):
        kernels = self.__dict__.get("_kernels", {})
        if name in kernels:
            return kernels[name]
        if name.startswith("_"):
            raise AttributeError(name)
        if len(kernels) == 1:
            return getattr(self._only(), name)
        raise AttributeError(f"{self._path} has no kernel {name!r}: {self._list()}")

    def __dir__(self):
        return [*super().__dir__(), *self._kernels]

    def __call__(self, /, *operands, **keywords):
        return self._only()(*operands, **keywords)

    def _only(self):
        if len(self._kernels) > 1:
            raise TypeError(f"{self._path} has several kernels, name one: {self._list()}")
        return next(iter(self._kernels.values()))

    def _list(self):
        return f"it has {', '.join(self._kernels)}"

    def __repr__(self):
        return f"<kernels of {self._path}: {', '.join(map(str, self._kernels.values()))}>"


class Function:
    """What kernels and host functions have in common: the call, and its derivative."""

    def __init__(self, label, name, number):
        self.name = name
        self._label = label  # for messages
        self._number = number  # what all processes know it by
        self._rule = None

    @_calls.operation
    def __call__(self, /, *operands, out=None, axis_name=None, replicated=False, **attributes):
        if not isinstance(replicated, (bool, np.bool_)):
            raise TypeError(f"{self._label}: replicated is True or False, got {replicated!r}")
        axes = _primitive.find_axes(self._label, axis_name)
        operands = _make_varying(self._check_operands(operands), axes)
        params = {
            "kernel": self,
            "outs": self._find_outs(operands, out),
            "values": self._pack(attributes),
            "said": _in_words(attributes),
            "axes": axes,
            "replicated": bool(replicated) and not _groups.over_ranks(axes),
        }
        if self._rule is None:
            results = _operation.bind(*operands, **params)
        else:
            keywords = {**attributes, "axis_name": axis_name}
            results = self._with_rule(params, keywords)(*operands)
        return results[0] if len(results) == 1 else tuple(results)

    def defvjp(self, rule):
        """Gives it a derivative, and returns the rule, so that it can be a decorator:

            @mine.defvjp
            def backward(operands, results, cotangents, **call):
                return (...,)      # one cotangent for each operand, None for zero

        `operands`, `results` and `cotangents` are tuples; `call` has the attributes
        and axis_name. Without a rule a gradient is an error."""
        self._rule = rule
        return rule

    def _with_rule(self, params, keywords):
        rule, made = self._rule, _calls.present()

        @jax.custom_vjp
        def call(*operands):
            with _calls.making(made):
                return _operation.bind(*operands, **params)

        def forward(*operands):
            results = call(*operands)
            return results, (operands, results)

        def backward(saved, cotangents):
            operands, results = saved
            found = rule(operands, tuple(results), tuple(cotangents), **keywords)
            if not isinstance(found, (tuple, list)) or len(found) != len(operands):
                raise TypeError(
                    f"{self._label}: its vjp rule must return a tuple of {len(operands)} "
                    f"cotangents, one for each operand; got {found!r}"
                )
            return tuple(map(_vary_like, found, operands))

        call.defvjp(forward, backward)
        return call

    def _check_shape(self, what, shape):
        if min(shape, default=0) < 0:
            raise ValueError(f"{self._label}: {what} has a negative dimension, {shape}")

    def _text(self, name, value):
        if "\0" in value:
            raise ValueError(
                f"{self._label}: attribute {name!r} holds a NUL, which ends a text in C: {value!r}"
            )
        return value.encode() + b"\0"

    target = "kernel"  # the custom call

    def load_for_gpu(self, arch):
        """Makes its code known that GPUs run; a host function brings its own."""

    # Programs are equal if they run the same source.
    def __eq__(self, other):
        return isinstance(other, Function) and self._number == other._number

    def __hash__(self):
        return hash(self._number)


class Kernel(Function):
    """One kernel; see oriel.kernel for how it is called."""

    def __init__(self, signature, number, source):
        super().__init__(f"kernel {signature.name}", signature.name, number)
        self._signature = signature
        self._source = source

    def load_for_gpu(self, arch):
        built = _build.for_cuda(self._source, arch)
        cubin = built.read_bytes()
        _build.release(built)
        _lib.call("oriel_ffi_cuda_kernel", self._number, self.name.encode(), cubin, len(cubin))

    # ---- arguments --------------------------------------------------------------

    def _check_operands(self, operands):
        wanted = self._signature.operands
        if len(operands) != len(wanted):
            raise TypeError(
                f"{self._label} takes {len(wanted)} operands ("
                f"{', '.join(p.name for p in wanted)}), got {len(operands)}"
            )
        for p, operand in zip(wanted, operands):
            _primitive.check_array(self._label, operand, p.name)
            if jax.typeof(operand).dtype != p.dtype:
                raise TypeError(
                    f"{self._label}: operand {p.name} is {jax.typeof(operand).str_short()}, "
                    f"the kernel takes const {p.type} *, which is {p.dtype}"
                )
        return operands

    def _find_outs(self, operands, out):
        """(shape, dtype) of every result."""
        results = self._signature.results
        shape = jax.typeof(operands[0]).shape
        if out is None:
            out = [shape] * len(results)
        elif len(results) == 1 and not is_list_of_shapes(out):
            out = [out]
        if not isinstance(out, (tuple, list)) or len(out) != len(results):
            raise TypeError(
                f"{self._label} has {len(results)} results "
                f"({', '.join(p.name for p in results)}), out is {out!r}"
            )
        return tuple(self._check_out(p, given) for p, given in zip(results, out))

    def _check_out(self, p, given):
        if hasattr(given, "shape") and hasattr(given, "dtype"):
            if np.dtype(given.dtype) != p.dtype:
                raise TypeError(
                    f"{self._label}: out for {p.name} has dtype {given.dtype}, the kernel "
                    f"writes {p.type} *, which is {p.dtype}"
                )
            given = given.shape
        try:
            given = (given,) if isinstance(given, int) else given
            shape = tuple(map(operator.index, given))
        except TypeError:
            raise TypeError(
                f"{self._label}: out for {p.name} must be a shape or a "
                f"jax.ShapeDtypeStruct, got {given!r}"
            ) from None
        self._check_shape(f"out for {p.name}", shape)
        return shape, p.dtype

    def _pack(self, attributes):
        """As docs/kernels.md says: one number each, then the bytes of strings."""
        wanted = self._signature.attributes
        for name in attributes:
            if name not in (p.name for p in wanted):
                have = ", ".join(p.name for p in wanted) or "none"
                raise TypeError(f"{self._label} has no attribute {name!r}; it has {have}")
        numbers, text = [], b""
        for p in wanted:
            if p.name not in attributes:
                raise TypeError(f"{self._label}: attribute {p.name!r} ({p.type}) is missing")
            value = attributes[p.name]
            if isinstance(value, jax.core.Tracer):
                raise TypeError(
                    f"{self._label}: attribute {p.name!r} must be known when the program is "
                    f"traced, got {value}: make it an operand"
                )
            if p.kind == "string":
                numbers.append(8 * len(wanted) + len(text))
                text += self._string(p, value)
            else:
                numbers.append(self._number_of(p, value))
        return tuple(numbers + as_numbers(text))

    def _string(self, p, value):
        if not isinstance(value, str):
            raise TypeError(f"{self._label}: attribute {p.name!r} is text, got {value!r}")
        return self._text(p.name, value)

    def _number_of(self, p, value):
        try:
            if p.kind == "real" and not isinstance(value, str):
                return struct.unpack("<q", struct.pack("<d", float(value)))[0]
            number = operator.index(bool(value) if isinstance(value, np.bool_) else value)
        except (TypeError, ValueError):
            what = "a number" if p.kind == "real" else "a whole number"
            raise TypeError(
                f"{self._label}: attribute {p.name!r} ({p.type}) is {what}, got {value!r}"
            ) from None
        least, most = _source.INTEGERS[p.type]
        if not least <= number <= most:
            raise ValueError(
                f"{self._label}: attribute {p.name!r} ({p.type}) goes from {least} to {most}, "
                f"got {number}"
            )
        return number

    def __repr__(self):
        parameters = ", ".join(
            f"{'const ' * (p.kind in ('operand', 'string'))}{p.type} "
            f"{'*' * (p.kind in ('operand', 'result', 'string'))}{p.name}"
            for p in self._signature.parameters
        )
        return f"<{self._label}({parameters})>"


def as_numbers(text):
    """Bytes, eight in each."""
    text += b"\0" * (-len(text) % 8)
    return list(struct.unpack(f"<{len(text) // 8}q", text))


def is_list_of_shapes(out):
    return isinstance(out, (tuple, list)) and any(
        hasattr(entry, "shape") or isinstance(entry, (tuple, list)) for entry in out
    )


# ---- the primitive -----------------------------------------------------------------


def _make_varying(operands, axes):
    """All over the same axes. Outside of a rule for the derivative, so that JAX adds up
    the cotangents of what does not vary."""
    names = frozenset(_primitive.split_mapped(_groups.names_of(axes))[0])
    names = tuple(names.union(*map(_compat.varying_axes, operands)))
    return [_compat.make_varying(x, names) for x in operands]


def _vary_like(cotangent, operand):
    if cotangent is None:
        return None
    return _compat.make_varying(cotangent, tuple(_compat.varying_axes(operand)))


def _in_words(attributes):
    """For messages: which attribute two ranks have given differently."""
    words = []
    for name, value in sorted(attributes.items()):
        words.append(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}")
    return ", ".join(words)[:_MOST_SAID]


def _abstract_eval(*avals, kernel, outs, values, said, axes, replicated):
    results = []
    effects = _primitive.axis_effects(axes)
    for shape, dtype in outs:
        aval, _ = _primitive.result_type(
            kernel._label, avals[0], axes, lead=shape, drop=avals[0].ndim
        )
        if replicated:
            aval, more = _compat.reduced_type(aval, _primitive.split_mapped(axes)[0])
            effects = effects | more
        results.append(aval.update(dtype=jnp.dtype(dtype)))
    return results, effects


def _jvp(primals, tangents, *, kernel, **params):
    raise TypeError(
        f"{kernel._label} has no derivative: give it one with {kernel.name}.defvjp(rule), or "
        "stop the gradient with jax.lax.stop_gradient"
    )


def _batch(axis_data, args, dims, *, kernel, axes, **params):
    if axis_data.name in _groups.names_of(axes):
        raise NotImplementedError(
            f"{kernel._label} over {axis_data.name!r}, an axis of vmap: its ranks are devices"
        )
    mapped = [jnp.moveaxis(x, d, 0) for x, d in zip(args, dims) if d is not None]

    def one(entries):
        entries = iter(entries)
        operands = [x if d is None else next(entries) for x, d in zip(args, dims)]
        return _operation.bind(*operands, kernel=kernel, axes=axes, **params)

    results = lax.map(one, mapped)
    return results, [0] * len(results)


def _lower(ctx, *operands, kernel, outs, values, said, axes, replicated):
    groups = _operation.groups(ctx, axes)
    if arch := _world.gpu_arch():
        kernel.load_for_gpu(arch)
    if all(0 in shape for shape, _ in outs):  # nothing to compute
        empty = [jnp.zeros(shape, dtype) for shape, dtype in outs]
        return mlir.lower_fun(lambda *_: empty, multiple_results=True)(ctx, *operands)
    return _operation.call(
        ctx,
        operands,
        groups,
        # What may wait for other machines is not captured in graphs: see span.c.
        target="op" if _world.current().num_machines > 1 else kernel.target,
        kernel=kernel._number,
        values=list(values) or [0],
        **({"said": as_numbers(said.encode(errors="replace"))} if said else {}),
    )


_operation.define(_abstract_eval, _batch, _lower, jvp=_jvp)
