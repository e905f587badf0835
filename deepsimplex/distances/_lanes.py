"""Vectors of 512 bits for compiled kernels: sixteen float32 or eight float64 side by side.

numba leaves it to LLVM to find out which loops can run on vectors, and for loops as short as a row of an image the
checks cost more than the vectors save. Here vectors are values of their own: ``load``, arithmetic, ``store``. LLVM
splits them where the processor's are narrower. The operators may fuse, reorder and use approximate reciprocals with a
Newton step: a few units in the last place, and the same bits for the same inputs.
"""

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numpy.typing import DTypeLike, NDArray

BYTES = 64


class _Lanes(types.Type):
    def __init__(self, dtype: types.Float) -> None:
        self.dtype, self.count = dtype, BYTES * 8 // dtype.bitwidth
        scalar = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.vector = ir.VectorType(scalar, self.count)
        super().__init__(name=f"Lanes({self.count} x {dtype})")


_KINDS = {dtype: _Lanes(dtype) for dtype in (types.float32, types.float64)}


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.vector)


def lanes_of(dtype: DTypeLike) -> int:
    """How many numbers of a dtype stand side by side."""
    return BYTES // np.dtype(dtype).itemsize


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """Zeros whose first element lies at the beginning of a cache line: vectors that straddle two load half as fast."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + BYTES, np.uint8)
    begin = -memory.ctypes.data % BYTES
    return memory[begin : begin + size].view(dtype).reshape(shape)


def _compiled(generate: Callable[..., Any]) -> Any:
    """An intrinsic of numba. Type checkers see its first argument, which callers do not give."""
    return intrinsic(generate)


def _pointer(context, builder, array_type, array, position, vector):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), vector.as_pointer())


@_compiled
def load(typing_context, array, position):
    """The vector that begins at a position of a flat array."""
    kind = _KINDS[array.dtype]

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], kind.vector)
        # No more is promised than that numbers begin where numbers begin.
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), generate


@_compiled
def store(typing_context, array, position, lanes):
    """Write a vector to a position of a flat array."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], lanes.vector)
        builder.store(arguments[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@_compiled
def splat(typing_context, number):
    """A vector of equal numbers."""
    kind = _KINDS[number]

    def generate(context, builder, signature, arguments):
        nothing = ir.Constant(kind.vector, ir.Undefined)
        first = builder.insert_element(nothing, arguments[0], ir.Constant(ir.IntType(32), 0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
        return builder.shuffle_vector(first, nothing, places)

    return kind(number), generate


def _call(builder, name, result, arguments, **options):
    function = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments, **options)


@_compiled
def total(typing_context, lanes):
    """The sum of a vector's numbers."""

    def generate(context, builder, signature, arguments):
        scalar = lanes.vector.element
        name = f"llvm.vector.reduce.fadd.v{lanes.count}f{lanes.dtype.bitwidth}"
        return _call(builder, name, scalar, [ir.Constant(scalar, 0.0), arguments[0]], fastmath=("fast",))

    return lanes.dtype(lanes), generate


@_compiled
def magnitude(typing_context, lanes):
    """The absolute values of a vector's numbers."""

    def generate(context, builder, signature, arguments):
        name = f"llvm.fabs.v{lanes.count}f{lanes.dtype.bitwidth}"
        return _call(builder, name, lanes.vector, [arguments[0]])

    return lanes(lanes), generate


@_compiled
def not_above(typing_context, lanes, others):
    """Where the one vector's numbers are at most the other's: a whole number with a bit for every place."""

    def generate(context, builder, signature, arguments):
        places = builder.fcmp_ordered("<=", *arguments)
        return builder.zext(builder.bitcast(places, ir.IntType(lanes.count)), ir.IntType(64))

    return types.uint64(lanes, others), generate


def _define(operation, instruction):
    @infer_global(operation)
    class Operation(ConcreteTemplate):
        cases: ClassVar = [signature(kind, kind, kind) for kind in _KINDS.values()]

    for kind in _KINDS.values():

        @lower_builtin(operation, kind, kind)
        def generate(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments, flags=("contract", "arcp", "nnan", "ninf", "nsz"))


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")
