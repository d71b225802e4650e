"""Operations that compute each element from the elements at its place, with broadcasting."""

from __future__ import annotations

from itertools import zip_longest

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.ops.table import apply, define
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

UNARY = (
    "negative",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "relu",
    "silu",
    "gelu",
    "gelu_tanh",
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
# The operation of each approximation.
GELUS = {"none": "gelu", "tanh": "gelu_tanh"}
_ANY_NUMBER = frozenset({"negative", "abs", "relu"})


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of an elementwise result, by NumPy's rule: sizes agree or one of them is 1.

    Raises:
        ValueError: If they do not; a symbolic dimension agrees with itself and with 1 only.
    """
    pairs = zip_longest(reversed(first), reversed(second), fillvalue=Dim(1))
    return Shape([_broadcast_dim(one, two) for one, two in pairs][::-1])


def _broadcast_dim(one: Dim, two: Dim) -> Dim:
    if one == two or two == 1:
        return one
    if one == 1:
        return two
    raise ValueError(f"dimensions {one} and {two} do not broadcast")


def _infer_binary(one: TensorType, two: TensorType) -> tuple[TensorType, ...]:
    _require_numbers(one)
    if one.dtype != two.dtype:
        raise ValueError(f"dtypes differ ({one.dtype.value}, {two.dtype.value}); cast one of them")
    return (TensorType(one.dtype, broadcast(one.shape, two.shape), one.device),)


def _infer_division(one: TensorType, two: TensorType) -> tuple[TensorType, ...]:
    _require_float(one)
    return _infer_binary(one, two)


def _require_numbers(kind: TensorType) -> None:
    if kind.dtype is DType.bool:
        raise ValueError("needs numbers, not bool; cast the operand")


def _require_float(kind: TensorType) -> None:
    if not kind.dtype.is_float():
        raise ValueError(f"needs floating-point operands, not {kind.dtype.value}")


def _infer_unary(kind: TensorType) -> tuple[TensorType, ...]:
    _require_numbers(kind)
    return (TensorType(kind.dtype, kind.shape, kind.device),)


def _infer_float(kind: TensorType) -> tuple[TensorType, ...]:
    _require_float(kind)
    return _infer_unary(kind)


def _infer_cast(kind: TensorType, dtype: DType) -> tuple[TensorType, ...]:
    return (TensorType(dtype, kind.shape, kind.device),)


for _name in UNARY:
    define(_name, _infer_unary if _name in _ANY_NUMBER else _infer_float)
for _name in BINARY:
    define(_name, _infer_division if _name == "div" else _infer_binary)
define("cast", _infer_cast)


def _unary(name: str, x: TensorLike) -> Tensor:
    return apply(name, x)[0]


def negative(x: TensorLike) -> Tensor:
    """``-x``."""
    return _unary("negative", x)


def abs(x: TensorLike) -> Tensor:  # noqa: A001 - the operation's name
    """``x`` without its sign."""
    return _unary("abs", x)


def exp(x: TensorLike) -> Tensor:
    """E to the power of ``x``."""
    return _unary("exp", x)


def log(x: TensorLike) -> Tensor:
    """The natural logarithm of ``x``."""
    return _unary("log", x)


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


def gelu(x: TensorLike, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution function at ``x``.

    Args:
        x: Floats.
        approximate: ``none``, by the error function; or ``tanh``, ``x * (1 + tanh(sqrt(2 / pi) *
            (x + 0.044715 * x**3))) / 2`` (Hendrycks & Gimpel 2016).

    Raises:
        ValueError: If the approximation is another one.
    """
    if approximate not in GELUS:
        raise ValueError(f"gelu: approximate is {' or '.join(GELUS)}, not {approximate!r}")
    return _unary(GELUS[approximate], x)


def add(x: TensorLike, y: TensorLike) -> Tensor:
    """``x + y``."""
    return apply("add", x, y)[0]


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    """``x - y``."""
    return apply("sub", x, y)[0]


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """``x * y``."""
    return apply("mul", x, y)[0]


def div(x: TensorLike, y: TensorLike) -> Tensor:
    """``x / y``, for floats: whole numbers are cast first."""
    return apply("div", x, y)[0]


def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of ``x`` and ``y``; NaN where either is."""
    return apply("maximum", x, y)[0]


def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of ``x`` and ``y``; NaN where either is."""
    return apply("minimum", x, y)[0]


def cast(x: TensorLike, dtype: DType) -> Tensor:
    """The elements of ``x`` in another type; float to integer truncates."""
    return apply("cast", x, dtype=dtype)[0]
