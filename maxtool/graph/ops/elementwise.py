"""Operations that compute each element from the elements at its place, with broadcasting.

Floats of 16 bits are computed in float32 and rounded once. Whole numbers wrap around. Operands of
two types are computed in one by the rules of :mod:`maxtool.graph.ops.promotion`.
"""

from __future__ import annotations

from itertools import zip_longest

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.ops.operation_table import apply, define
from maxtool.graph.ops.require import require_floats, require_numbers
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

__all__ = [
    "abs",
    "acos",
    "add",
    "atanh",
    "cast",
    "ceil",
    "clamp",
    "clip",
    "cos",
    "div",
    "erf",
    "exp",
    "floor",
    "floordiv",
    "gelu",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "negate",
    "negative",
    "pow",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "sub",
    "tanh",
    "trunc",
]

OF_NUMBERS = ("negative", "abs", "relu", "ceil", "floor", "round", "trunc")
OF_FLOATS = (
    "acos",
    "atanh",
    "cos",
    "erf",
    "exp",
    "gelu",
    "gelu_quick",
    "gelu_tanh",
    "log",
    "log1p",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "tanh",
)
UNARY = (*OF_NUMBERS, *OF_FLOATS)
BINARY = ("add", "sub", "mul", "div", "floordiv", "mod", "pow", "maximum", "minimum")

# The forms of :func:`gelu` by the name of the approximation.
GELU = {"none": "gelu", "quick": "gelu_quick", "tanh": "gelu_tanh"}


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of an elementwise result, by NumPy's rule: sizes agree or one of them is 1.

    Raises:
        ValueError: If they do not; a symbolic dimension agrees with itself and with 1 only.
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


def _infer_float(tensor_type: TensorType) -> tuple[TensorType, ...]:
    require_floats(tensor_type)
    return _infer_unary(tensor_type)


def _infer_cast(tensor_type: TensorType, dtype: DType) -> tuple[TensorType, ...]:
    return (TensorType(dtype, tensor_type.shape, tensor_type.device),)


for _name in OF_NUMBERS:
    define(_name, _infer_unary)
for _name in OF_FLOATS:
    define(_name, _infer_float)
for _name in BINARY:
    define(_name, _infer_division if _name == "div" else _infer_binary, alike=slice(0, 2))
define("cast", _infer_cast)


def _unary(name: str, x: TensorLike) -> Tensor:
    return apply(name, x)[0]


def _binary(name: str, x: TensorLike, y: TensorLike) -> Tensor:
    return apply(name, x, y)[0]


def negative(x: TensorLike) -> Tensor:
    """``-x``; that of 0.0 is -0.0."""
    return _unary("negative", x)


negate = negative


def abs(x: TensorLike) -> Tensor:  # noqa: A001 - the operation's name
    """``x`` without its sign."""
    return _unary("abs", x)


def ceil(x: TensorLike) -> Tensor:
    """The least whole number that is not below ``x``, in the type of ``x``."""
    return _unary("ceil", x)


def floor(x: TensorLike) -> Tensor:
    """The greatest whole number that is not above ``x``, in the type of ``x``."""
    return _unary("floor", x)


def round(x: TensorLike) -> Tensor:  # noqa: A001 - the operation's name
    """The nearest whole number in the type of ``x``; of two that are as near, the even one."""
    return _unary("round", x)


def trunc(x: TensorLike) -> Tensor:
    """``x`` without its digits after the point, in the type of ``x``."""
    return _unary("trunc", x)


def acos(x: TensorLike) -> Tensor:
    """The angle in radians whose cosine is ``x``; NaN outside of -1 to 1."""
    return _unary("acos", x)


def atanh(x: TensorLike) -> Tensor:
    """The number whose hyperbolic tangent is ``x``; NaN outside of -1 to 1."""
    return _unary("atanh", x)


def cos(x: TensorLike) -> Tensor:
    """The cosine of ``x``, an angle in radians."""
    return _unary("cos", x)


def erf(x: TensorLike) -> Tensor:
    """The error function of ``x``."""
    return _unary("erf", x)


def exp(x: TensorLike) -> Tensor:
    """E to the power of ``x``."""
    return _unary("exp", x)


def log(x: TensorLike) -> Tensor:
    """The natural logarithm of ``x``."""
    return _unary("log", x)


def log1p(x: TensorLike) -> Tensor:
    """The natural logarithm of ``1 + x``, exact for a small ``x`` too."""
    return _unary("log1p", x)


def sin(x: TensorLike) -> Tensor:
    """The sine of ``x``, an angle in radians."""
    return _unary("sin", x)


def sqrt(x: TensorLike) -> Tensor:
    """The square root of ``x``."""
    return _unary("sqrt", x)


def rsqrt(x: TensorLike) -> Tensor:
    """One over the square root of ``x``."""
    return _unary("rsqrt", x)


def tanh(x: TensorLike) -> Tensor:
    """The hyperbolic tangent of ``x``."""
    return _unary("tanh", x)


def sigmoid(x: TensorLike) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return _unary("sigmoid", x)


def relu(x: TensorLike) -> Tensor:
    """``max(x, 0)``."""
    return _unary("relu", x)


def silu(x: TensorLike) -> Tensor:
    """``x * sigmoid(x)``, also called swish."""
    return _unary("silu", x)


def softplus(x: TensorLike) -> Tensor:
    """``log(1 + exp(x))``, a smooth ``max(x, 0)``, computed so that nothing overflows."""
    return _unary("softplus", x)


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
    return _unary(GELU[approximate], x)


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """``x + y``."""
    return _binary("add", x, y)


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """``x - y``."""
    return _binary("sub", x, y)


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """``x * y``."""
    return _binary("mul", x, y)


def div(x: TensorLike, y: TensorLike) -> Tensor:
    """``x / y``, for floats: whole numbers are cast first."""
    return _binary("div", x, y)


def floordiv(x: TensorLike, y: TensorLike) -> Tensor:
    """``x / y`` rounded down; as NumPy, 0 for whole numbers divided by 0."""
    return _binary("floordiv", x, y)


def mod(x: TensorLike, y: TensorLike) -> Tensor:
    """Return the remainder of :func:`floordiv`, with the sign of ``y``; whole ``x`` mod 0 is 0."""
    return _binary("mod", x, y)


def pow(x: TensorLike, y: TensorLike) -> Tensor:  # noqa: A001 - the operation's name
    """``x`` to the power of ``y``.

    Of whole numbers, a negative power is rounded towards 0: it is 0 unless ``x`` is 1 or -1.
    """
    return _binary("pow", x, y)


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of ``x`` and ``y``; NaN where either is."""
    return _binary("maximum", x, y)


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of ``x`` and ``y``; NaN where either is."""
    return _binary("minimum", x, y)


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
