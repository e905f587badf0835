"""SIMD vectors of 512 bits for numba kernels (16 float32 or 8 float64), and the lock around parallel kernels.

Vectors are values: ``load``, arithmetic, ``store``. LLVM splits them if the processor's are narrower. The operators may
fuse, reorder and use approximate reciprocals with a Newton step: they are accurate to a few units in the last place,
and give the same bits for the same inputs. On short rows, such as those of images, they are faster than loops that
numba vectorizes by itself.
"""

import operator
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numpy.typing import DTypeLike, NDArray

BYTES = 64
# numba's fallback threading layer ends the process if two Python threads run parallel kernels at the same time.
_one_kernel_at_a_time = threading.Lock()
_compiled: Any = intrinsic  # untyped: callers of an intrinsic do not give its first argument


def exclusive(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let one Python thread at a time run a parallel kernel, which uses all cores by itself."""

    @wraps(kernel)
    def run(*arguments: Any) -> Any:
        with _one_kernel_at_a_time:
            return kernel(*arguments)

    return run


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
    """Return how many numbers of a dtype a vector holds."""
    return BYTES // np.dtype(dtype).itemsize


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """Return zeros that begin at a cache line: vectors that straddle two lines load half as fast."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + BYTES, np.uint8)
    begin = -memory.ctypes.data % BYTES
    return memory[begin : begin + size].view(dtype).reshape(shape)


def _pointer(context, builder, array_type, array, position, vector):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), vector.as_pointer())


@_compiled
def load(typing_context, array, position):
    """Load the vector that begins at a position of a flat array."""
    kind = _KINDS[array.dtype]

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], kind.vector)
        # Aligned to a number, not to a vector.
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), generate


@_compiled
def store(typing_context, array, position, lanes):
    """Store a vector at a position of a flat array."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], lanes.vector)
        builder.store(arguments[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@_compiled
def splat(typing_context, number):
    """Return a vector of equal numbers."""
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
    """Return the sum of a vector's numbers."""

    def generate(context, builder, signature, arguments):
        scalar = lanes.vector.element
        name = f"llvm.vector.reduce.fadd.v{lanes.count}f{lanes.dtype.bitwidth}"
        return _call(builder, name, scalar, [ir.Constant(scalar, 0.0), arguments[0]], fastmath=("fast",))

    return lanes.dtype(lanes), generate


@_compiled
def magnitude(typing_context, lanes):
    """Return the absolute values of a vector's numbers."""

    def generate(context, builder, signature, arguments):
        name = f"llvm.fabs.v{lanes.count}f{lanes.dtype.bitwidth}"
        return _call(builder, name, lanes.vector, [arguments[0]])

    return lanes(lanes), generate


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
