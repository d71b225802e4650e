"""Operations that compute each element from the elements at its place, with broadcasting.

Floats of 16 bits are computed in float32 and rounded once. Whole numbers wrap around. Operands of
two types are computed in one by the rules of :mod:`maxtool.graph.ops.promotion`.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.ops.operation_table import apply, rule, ruled_by
from maxtool.graph.ops.plain_functions import binary, unary
from maxtool.graph.ops.require import require_floats, require_numbers
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

__all__ = ["abs", "ceil", "floor", "negate", "negative", "relu", "round", "trunc"]
__all__ += [
    "acos",
    "asin",
    "atan",
    "atanh",
    "cos",
    "erf",
    "exp",
    "log",
    "log1p",
    "rsqrt",
    "sin",
    "sqrt",
    "tanh",
]
__all__ += ["add", "div", "floordiv", "maximum", "minimum", "mod", "mul", "pow", "sub"]
__all__ += ["cast", "clamp", "clip", "gelu", "hard_swish", "sigmoid", "silu", "softplus"]

# The forms of :func:`gelu` by the name of the approximation.
GELU = {"none": "gelu", "quick": "gelu_quick", "tanh": "gelu_tanh"}


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of an elementwise result, by NumPy's rule: sizes agree or one of them is 1.

    A symbolic dimension agrees with itself and with 1 only.
    """
    pairs = zip_longest(reversed(first), reversed(second), fillvalue=Dim(1))
    return Shape([_broadcast_dim(left, right) for left, right in pairs][::-1])


def _broadcast_dim(left: Dim, right: Dim) -> Dim:
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    raise ValueError(f"dimensions {left} and {right} do not broadcast")


def _infer_binary(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    require_numbers(left)
    return (TensorType(left.dtype, broadcast(left.shape, right.shape), left.device),)


def _infer_division(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    require_floats(left)
    return _infer_binary(left, right)


def _infer_unary(tensor_type: TensorType) -> tuple[TensorType, ...]:
    require_numbers(tensor_type)
    return (TensorType(tensor_type.dtype, tensor_type.shape, tensor_type.device),)


@rule(*GELU.values())
def _infer_float(tensor_type: TensorType) -> tuple[TensorType, ...]:
    require_floats(tensor_type)
    return _infer_unary(tensor_type)


@rule("cast")
def _infer_cast(tensor_type: TensorType, dtype: DType) -> tuple[TensorType, ...]:
    return (TensorType(dtype, tensor_type.shape, tensor_type.device),)


_of_numbers = partial(unary, _infer_unary)
_of_floats = partial(unary, _infer_float)
_arithmetic = partial(binary, _infer_binary)

negative = _of_numbers("negative", "``-x``; that of 0.0 is -0.0.")
negate = negative
abs = _of_numbers("abs", "``x`` without its sign.")  # noqa: A001 - the operation's name
ceil = _of_numbers("ceil", "The least whole number that is not below ``x``, in the type of ``x``.")
floor = _of_numbers(
    "floor", "The greatest whole number that is not above ``x``, in the type of ``x``."
)
round = _of_numbers(  # noqa: A001
    "round", "The nearest whole number in the type of ``x``; of two that are as near, the even one."
)
trunc = _of_numbers("trunc", "``x`` without its digits after the point, in the type of ``x``.")
relu = _of_numbers("relu", "``max(x, 0)``.")

acos = _of_floats("acos", "The angle in radians whose cosine is ``x``; NaN outside of -1 to 1.")
asin = _of_floats("asin", "The angle in radians whose sine is ``x``; NaN outside of -1 to 1.")
atan = _of_floats("atan", "The angle in radians, of -pi / 2 to pi / 2, whose tangent is ``x``.")
atanh = _of_floats("atanh", "The number whose hyperbolic tangent is ``x``; NaN outside of -1 to 1.")
cos = _of_floats("cos", "The cosine of ``x``, an angle in radians.")
erf = _of_floats("erf", "The error function of ``x``.")
exp = _of_floats("exp", "E to the power of ``x``.")
log = _of_floats("log", "The natural logarithm of ``x``.")
log1p = _of_floats("log1p", "The natural logarithm of ``1 + x``, exact for a small ``x`` too.")
sin = _of_floats("sin", "The sine of ``x``, an angle in radians.")
sqrt = _of_floats("sqrt", "The square root of ``x``.")
rsqrt = _of_floats("rsqrt", "One over the square root of ``x``.")
tanh = _of_floats("tanh", "The hyperbolic tangent of ``x``.")
sigmoid = _of_floats("sigmoid", "``1 / (1 + exp(-x))``.")
hard_swish = _of_floats(
    "hard_swish", "``x * min(max(x / 6 + 1 / 2, 0), 1)``, of MobileNetV3 (arXiv:1905.02244)."
)
silu = _of_floats("silu", "``x * sigmoid(x)``, also called swish.")
softplus = _of_floats(
    "softplus", "``log(1 + exp(x))``, a smooth ``max(x, 0)``, computed so that nothing overflows."
)

add = _arithmetic("add", "``x + y``.")
sub = _arithmetic("sub", "``x - y``.")
mul = _arithmetic("mul", "``x * y``.")
div = binary(_infer_division, "div", "``x / y``, for floats: whole numbers are cast first.")
floordiv = _arithmetic(
    "floordiv", "``x / y`` rounded down; as NumPy, 0 for whole numbers divided by 0."
)
mod = _arithmetic(
    "mod",
    "Return the remainder of :func:`floordiv`, with the sign of ``y``; whole ``x`` mod 0 is 0.",
)
pow = _arithmetic(  # noqa: A001
    "pow",
    """``x`` to the power of ``y``.

    Of whole numbers, a negative power is rounded towards 0: it is 0 unless ``x`` is 1 or -1.
    """,
)
maximum = _arithmetic("maximum", "The larger of ``x`` and ``y``; NaN where either is.")
minimum = _arithmetic("minimum", "The smaller of ``x`` and ``y``; NaN where either is.")

UNARY = ruled_by(_infer_unary, _infer_float)
BINARY = ruled_by(_infer_binary, _infer_division)


def gelu(x: TensorLike, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution function at ``x`` (arXiv:1606.08415).

    Args:
        x: Floats.
        approximate: ``"none"`` for the error function, ``"tanh"`` for
            ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, ``"quick"`` for
            ``x * sigmoid(1.702 * x)``.

    Raises:
        ValueError: If it is none of these.
    """
    if approximate not in GELU:
        raise ValueError(f"gelu: approximate is one of {', '.join(GELU)}, not {approximate!r}")
    return apply(GELU[approximate], x)[0]


def clamp(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:  # noqa: A002
    """``x``, at least ``min`` and then at most ``max``, where these are given; NaN stays.

    Raises:
        ValueError: If neither is given.
    """
    if max is None:
        if min is None:
            raise ValueError("clamp: give min, max or both")
        return maximum(x, min)
    return minimum(x if min is None else maximum(x, min), max)


clip = clamp


def cast(x: TensorLike, dtype: DType) -> Tensor:
    """The elements of ``x`` in another type; float to integer truncates."""
    return apply("cast", x, dtype=dtype)[0]
