"""Operations that take several arrays of one dtype as one call.

Each has two primitives: one for an array, and one for a list of them, whose rules follow from the
same functions. These work on lists; the primitive for one array gives them lists of one."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import ad, mlir

from oriel._collectives import primitive as _primitive
from oriel._collectives.primitive import Operation


class ListOperation:
    """`lead`: how many dimensions of operands, and of results, are in front of a member's block."""

    def __init__(self, name, lead=(0, 0)):
        self._one = Operation(name)
        self._many = Operation(name, multiple_results=True)
        self._lead = lead
        self.groups = self._one.groups

    def bind(self, arrays, **params):
        """The results of `arrays`, a list. Those of one dtype are one call, whatever is left of
        the tree that they were: so all ranks make the same calls."""
        results = [None] * len(arrays)
        for places in _by_dtype(arrays):
            for place, result in zip(places, self._bind([arrays[i] for i in places], **params)):
                results[place] = result
        return results

    def _bind(self, arrays, **params):
        if len(arrays) == 1:
            return [self._one.bind(*arrays, **params)]
        return self._many.bind(*arrays, **params)

    def define(self, abstract_eval, batch, lower, transpose, check=None):
        """`batch(axis_data, arrays, dims, **params)` and `transpose(cotangents, **params)` give
        lists, `lower(ctx, arrays, **params)` a list by means of self.lower. `check(**params)`
        raises where there is no derivative."""

        def one_batched(axis_data, args, dims, **params):
            (x,), (dim,) = batch(axis_data, args, dims, **params)
            return x, dim

        def one_transposed(cotangent, x, **params):
            return transpose([cotangent], **params)

        def types(*avals, **params):
            each = [abstract_eval(aval, **params) for aval in avals]
            return [aval for aval, _ in each], set().union(*(effects for _, effects in each))

        def transposed(cotangents, *operands, **params):
            return _transposed(transpose, cotangents, operands, params)

        def lowered(ctx, *arrays, **params):
            return lower(ctx, arrays, **params)

        self._one.define(
            abstract_eval,
            one_batched,
            lowered,
            jvp=self._jvp_of(self._one, check),
            linear=one_transposed,
        )
        self._many.define(
            types, batch, lowered, jvp=self._jvp_of(self._many, check), transpose=transposed
        )

    def _jvp_of(self, operation, check):
        def jvp(primals, tangents, **params):
            if check is not None:
                check(**params)
            # Zeros are sent, too: which tangents are zero may differ between programs.
            tangents = map(ad.instantiate_zeros, tangents)
            return operation.bind(*primals, **params), operation.bind_tangents(*tangents, **params)

        return jvp

    def lower(self, ctx, arrays, groups, **attributes):
        """The custom call of a lowering rule; copies where nothing has to be sent."""
        results = [None] * len(arrays)
        sent = []
        for i, array in enumerate(arrays):
            here = _part_of(ctx, [i])
            if _primitive.is_copy(here, groups):
                (results[i],) = _primitive.lower_copy(here, array)
            else:
                sent.append(i)
        if sent:
            call = self._call_packed if _packs(ctx) and len(sent) > 1 else self._one.call
            got = call(_part_of(ctx, sent), [arrays[i] for i in sent], groups, **attributes)
            for i, result in zip(sent, got, strict=True):
                results[i] = result
        return results

    def _call_packed(self, ctx, arrays, groups, **attributes):
        """By way of one array: kernels of GPUs take one. XLA joins and divides in one kernel
        each."""
        front, back = self._lead
        lengths = [_block(aval, front) for aval in ctx.avals_in]
        packed_in, packed_out = (
            ShapedArray((*avals[0].shape[:lead], sum(lengths)), avals[0].dtype)
            for avals, lead in ((ctx.avals_in, front), (ctx.avals_out, back))
        )

        def join(*arrays):
            return jnp.concatenate([x.reshape(*x.shape[:front], -1) for x in arrays], axis=front)

        def divide(packed):
            parts = jnp.split(packed, np.cumsum(lengths)[:-1], axis=back)
            return [x.reshape(aval.shape) for x, aval in zip(parts, ctx.avals_out, strict=True)]

        packed = _lower(join, ctx.replace(avals_out=[packed_in]), *arrays)
        results = self._one.call(
            ctx.replace(avals_in=[packed_in], avals_out=[packed_out]), packed, groups, **attributes
        )
        return _lower(divide, ctx.replace(avals_in=[packed_out]), *results)


def _by_dtype(arrays):
    """The places of those of each dtype."""
    places = {}
    for i, array in enumerate(arrays):
        places.setdefault(jax.typeof(array).dtype, []).append(i)
    return places.values()


def _transposed(transpose, cotangents, operands, params):
    """All cotangents are sent, zeros too, and those of operands whose tangents are known: each rank
    may differentiate by others of them."""
    wanted = [ad.is_undefined_primal(x) for x in operands]
    if all(type(cotangent) is ad.Zero for cotangent in cotangents):
        return [ad.Zero(x.aval.to_ct_aval()) if w else None for x, w in zip(operands, wanted)]
    got = transpose([ad.instantiate_zeros(cotangent) for cotangent in cotangents], **params)
    return [cotangent if w else None for cotangent, w in zip(got, wanted, strict=True)]


# ---- lowering ------------------------------------------------------------------------


def _part_of(ctx, places):
    return ctx.replace(
        avals_in=[ctx.avals_in[i] for i in places], avals_out=[ctx.avals_out[i] for i in places]
    )


def _packs(ctx):
    return ctx.module_context.platforms[0] != "cpu"


def _block(aval, lead):
    return int(np.prod(aval.shape[lead:], dtype=int))


def _lower(function, ctx, *arrays):
    """A function that gives an array or a list, as values."""
    return mlir.lower_fun(function, multiple_results=len(ctx.avals_out) > 1)(ctx, *arrays)
