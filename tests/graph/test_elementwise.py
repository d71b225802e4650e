"""Elementwise operations beside NumPy and ml_dtypes, for every type, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops

Array = np.ndarray[Any, Any]
Reference = Callable[..., Any]
Pairs = dict[str, Reference]

KINDS = [dtype for dtype in DType if "float8" not in dtype.value]
SLOW = (
    *(DType.int16, DType.int32, DType.uint8, DType.uint16, DType.uint64),
    *(DType.float16, DType.float64),
)


def types(kinds: list[DType]) -> Any:
    """A test for each type; those that add little to the others are slow ones."""
    marks = {dtype: [pytest.mark.slow] if dtype in SLOW else [] for dtype in kinds}
    result = [pytest.param(dtype, marks=marks[dtype], id=dtype.value) for dtype in kinds]
    return pytest.mark.parametrize("dtype", result)


NUMBERS = [dtype for dtype in KINDS if dtype is not DType.bool]
WHOLE = [dtype for dtype in KINDS if dtype.is_integral()]
FLOATS = [dtype for dtype in KINDS if dtype.is_float()]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 60.0, np.inf, -np.inf, np.nan]

COMPARE: Pairs = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}
ARITHMETIC: Pairs = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
LOGICAL: Pairs = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
ONE_NUMBER: Pairs = {
    "abs": np.abs,
    "negative": np.negative,
    "relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
}
ROUNDING: Pairs = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "trunc": np.trunc,
}
TESTS: Pairs = {"is_nan": np.isnan, "is_inf": np.isinf}


def _gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2


# In float64, which the results are rounded from.
ROUNDED: Pairs = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "softplus": lambda x: np.logaddexp(x, 0),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
# Sums of large terms that nearly cancel: what is stated is the error beside 1.
ACTIVATIONS: Pairs = {
    "gelu": _gelu,
    "gelu_quick": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def run(call: Callable[..., list[Tensor]], *operands: Array) -> list[Array]:
    """Return the results of a graph of symbolic shapes."""
    kinds = [
        TensorType(
            DType.from_numpy(operand.dtype), ["m", "n"][-operand.ndim :] if operand.ndim else []
        )
        for operand in operands
    ]
    compiled = executor.find_executor().compile(Graph("g", call, kinds), {})
    return [value.to_numpy() for value in compiled(*map(Tensor, operands))]


def all_of(names: Pairs) -> Callable[..., list[Tensor]]:
    return lambda *operands: [ops.apply(name, *operands)[0] for name in names]


def samples(dtype: DType) -> Array:
    """Every special value beside every other one."""
    if dtype.is_float():
        return np.array(SPECIAL).astype(dtype.to_numpy())
    if dtype is DType.bool:
        return np.array([False, True])
    limits = np.iinfo(dtype.to_numpy())
    edges = [limits.min, limits.min + 1, 0, 1, 2, 3, 7, limits.max - 1, limits.max]
    below = [-1, -2, -7] if limits.min else []
    return np.array([*edges, *below], dtype.to_numpy())


def pairs(dtype: DType) -> tuple[Array, Array]:
    values = samples(dtype)
    count = len(values)
    return np.repeat(values, count).reshape(count, count), np.tile(values, count).reshape(count, -1)


def same(got: Array, wanted: Any, name: str, *, zeros: bool = True) -> None:
    """Equal bit for bit, but for the payload of a NaN, and for the sign of 0 where it is open."""
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype, name
    wide = (got, wanted) if wanted.dtype.kind in "biu" else (_wide(got), _wide(wanted))
    np.testing.assert_array_equal(*wide, err_msg=name)
    if wanted.dtype.kind not in "biu" and zeros:
        number = ~np.isnan(wide[1])
        signs = [np.signbit(one)[number] for one in wide]
        np.testing.assert_array_equal(*signs, err_msg=f"sign of {name}")


def _wide(x: Array) -> Array:
    return x.astype(np.float64)


@types(KINDS)
def test_two_operands(dtype: DType) -> None:
    """Comparisons, arithmetic, overflow and division by zero, as NumPy and ml_dtypes have them."""
    names = COMPARE | (LOGICAL if dtype is DType.bool else ARITHMETIC)
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        expected = [numpy(x, y) for numpy in names.values()]
    for name, got, wanted in zip(names, run(all_of(names), x, y), expected, strict=True):
        same(got, wanted, name, zeros=name not in ("maximum", "minimum"))


@types(NUMBERS)
def test_one_operand(dtype: DType) -> None:
    """Rounding leaves whole numbers as they are."""
    rounded = ROUNDING if dtype.is_float() else dict.fromkeys(ROUNDING, np.copy)
    names = ONE_NUMBER | rounded | (TESTS if dtype.is_float() else {})
    x = samples(dtype)
    with np.errstate(all="ignore"):
        expected = [numpy(x) for numpy in names.values()]
    for name, got, wanted in zip(names, run(all_of(names), x), expected, strict=True):
        same(got, wanted, name, zeros=name != "relu")


@types(FLOATS)
def test_functions_of_floats(dtype: DType) -> None:
    """Agree within 4 units in the last place of rounded float64; 1 for 16-bit types."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.array(SPECIAL), 4 * rng.normal(size=500), rng.uniform(-1, 1, 200)])
    x = x.astype(dtype.to_numpy())
    names = ROUNDED | ACTIVATIONS
    ulps = 1 if dtype.size_in_bytes == 2 else 4
    spacing = 2.0 ** -{"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype.value]
    for (name, numpy), got in zip(names.items(), run(all_of(names), x), strict=True):
        with np.errstate(all="ignore"):
            exact = numpy(_wide(x))
            wanted = _wide(exact.astype(x.dtype))
        at_zero = 4 * spacing if name in ACTIVATIONS else 1e-300
        np.testing.assert_allclose(
            _wide(got), wanted, rtol=ulps * spacing, atol=at_zero, err_msg=name
        )


@types(FLOATS)
def test_quotients_and_powers_of_floats(dtype: DType) -> None:
    x, y = pairs(dtype)
    quotient, power = run(lambda x, y: [x / y, x**y], x, y)
    with np.errstate(all="ignore"):
        same(quotient, x / y, "div")
        wanted = np.power(_wide(x), _wide(y)).astype(x.dtype)
    np.testing.assert_allclose(
        _wide(power), _wide(wanted), rtol=2.0 ** (1 - {2: 7, 4: 22, 8: 51}[x.dtype.itemsize])
    )


@types(WHOLE)
def test_powers_of_whole_numbers(dtype: DType) -> None:
    x, y = pairs(dtype)
    (got,) = run(lambda x, y: [x**y], x, y)
    bits = 8 * x.dtype.itemsize
    wanted = [_power(int(a), int(b), bits) for a, b in zip(x.flat, y.flat, strict=True)]
    np.testing.assert_array_equal(got, np.array(wanted, np.uint64).astype(x.dtype).reshape(x.shape))


def _power(x: int, y: int, bits: int) -> int:
    """Python's power, of which the last bits are left; below 1 cut to 0."""
    if y >= 0:
        return pow(x, y, 1 << bits)
    return {1: 1, -1: (-1) ** -y % (1 << bits)}.get(x, 0)


@types(list(DType))
def test_a_choice(dtype: DType) -> None:
    """Bits are moved and not computed with; all three operands broadcast."""
    values = samples(dtype)
    condition = np.arange(3)[:, None] % 2 == 0
    (got,) = run(
        lambda c, x, y: [ops.where(c, x, y)],
        condition.repeat(len(values), 1),
        values,
        values[::-1].copy(),
    )
    wanted = np.where(condition, values, values[::-1])
    assert got.tobytes() == wanted.tobytes()
    eager = ops.where(Tensor(condition), Tensor(values), values[::-1])
    assert eager.to_numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [DType.float32, DType.int32])
def test_eager_operations(dtype: DType) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        for name, numpy in (COMPARE | ARITHMETIC).items():
            got = ops.apply(name, Tensor(x), Tensor(y))[0].to_numpy()
            same(got, numpy(x, y), name, zeros=name not in ("maximum", "minimum"))


def test_limits() -> None:
    x = np.array([-np.inf, -2, 0.25, 7, np.nan], np.float32)
    np.testing.assert_array_equal(ops.clamp(x, 0, 1).to_numpy(), np.clip(x, 0, 1))
    np.testing.assert_array_equal(ops.clip(Tensor(x), min=0).to_numpy(), np.clip(x, 0, None))
    np.testing.assert_array_equal(Tensor(x).clip(max=Tensor(1.0)).to_numpy(), np.clip(x, None, 1))
    with pytest.raises(ValueError, match="clamp: give min, max"):
        ops.clamp(x)


sizes = st.lists(st.integers(0, 3), max_size=3)


@given(sizes, sizes, sizes)
@settings(max_examples=30)
def test_broadcasting(one: list[int], two: list[int], three: list[int]) -> None:
    arrays = [np.arange(np.prod(shape), dtype=np.int32).reshape(shape) for shape in (one, two)]
    condition = np.arange(np.prod(three)).reshape(three) % 2 == 0
    try:
        wanted = np.where(condition, *arrays)
    except ValueError:
        with pytest.raises(ValueError, match=r"where\(bool.*do not broadcast"):
            ops.where(Tensor(condition), *arrays)
        return
    np.testing.assert_array_equal(ops.where(Tensor(condition), *arrays).to_numpy(), wanted)


@pytest.mark.parametrize(
    ("call", "numpy"),
    [
        (lambda x: 7 - x, lambda x: 7 - x),
        (lambda x: 7 // x, lambda x: 7 // x),
        (lambda x: 7 % x, lambda x: 7 % x),
        (lambda x: 2**x, lambda x: 2**x),
        (lambda x: 2 < x, lambda x: 2 < x),  # noqa: SIM300 - the reflected operator
        (lambda x: (x > 1) & (x != 2) | ~(x >= 3), lambda x: (x > 1) & (x != 2) | ~(x >= 3)),
        (lambda x: (x > 1) ^ True, lambda x: (x > 1) ^ True),
        (lambda x: [[1, 0, 0]] @ (x + 0 * x.reshape([3, 1])), lambda x: [[*x]]),
        (lambda x: +abs(-x), lambda x: x),
    ],
)
def test_operators_and_python_numbers(call: Reference, numpy: Reference) -> None:
    x = np.array([1, 2, 3], np.int64)
    np.testing.assert_array_equal(call(Tensor(x)).to_numpy(), numpy(x))


def test_numbers_at_the_limits_of_a_type() -> None:
    largest = Tensor(np.array([1], np.uint64)) * (2**64 - 1)
    assert largest.item() == 2**64 - 1
    assert (Tensor([1.0]) * float("inf")).item() == np.inf
    assert (Tensor(np.array([True])) == 1).item() is True


def test_identity_decides_in_sets_and_dictionaries() -> None:
    left, right = Tensor([1.0]), Tensor([1.0])
    assert len({left, right, left}) == 2
    assert {left: "a", right: "b"}[right] == "b"
    assert {"w": left} == {"w": left}
    assert (left == None) is False  # noqa: E711 - what Python says of things that are not numbers
    assert left != "text"
    with pytest.raises(TypeError, match="unsupported operand"):
        left + "text"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("one", "two", "result"),
    [
        (DType.float16, DType.float32, DType.float32),
        (DType.bfloat16, DType.float64, DType.float64),
        (DType.int8, DType.bfloat16, DType.bfloat16),
        (DType.uint8, DType.int16, DType.int16),
        (DType.bool, DType.int64, DType.int64),
        (DType.int32, DType.float64, DType.float64),
    ],
)
def test_the_type_that_holds_the_other_is_the_result_s(
    one: DType, two: DType, result: DType
) -> None:
    values = [np.array([0, 1, 1]).astype(dtype.to_numpy()) for dtype in (one, two)]
    for x, y in (values, values[::-1]):
        total = Tensor(x) + Tensor(y)
        assert total.dtype is result
        np.testing.assert_array_equal(total.to_numpy().astype(float), [0, 2, 2])
    assert ops.where([True, False, True], *values).dtype is result


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (DType.float16, DType.bfloat16),
        (DType.int32, DType.uint32),
        (DType.float32, DType.int32),
        (DType.float8_e4m3fn, DType.float32),
        (DType.bool, DType.float8_e5m2),
    ],
)
def test_types_of_which_none_holds_the_other(one: DType, two: DType) -> None:
    x, y = (Tensor(np.zeros(2, dtype.to_numpy())) for dtype in (one, two))
    with pytest.raises(ValueError, match=rf"add\({one.value}\[2\], {two.value}\[2\]\): dtypes"):
        x + y


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tensor([1.0]) & Tensor([True]), r"logical_and\(float32\[1\], bool\[1\]\).*bool"),
        (lambda: ~Tensor([1.0]), r"logical_not\(float32\[1\]\): needs bool"),
        (lambda: ops.is_nan(np.array([1])), r"is_nan\(int64\[1\]\): needs floating-point"),
        (lambda: ops.where(Tensor([1.0]), 1, 2), r"where\(float32\[1\].*needs bool"),
        (lambda: Tensor(np.array([1], np.int8)) * 1000, "mul: 1000 beside int8"),
        (lambda: Tensor([1.0, 2.0]) < Tensor([1.0, 2.0, 3.0]), r"less\(float32\[2\], float32\[3\]"),
        (lambda: Tensor(np.ones(1, np.float16)) * 1e5, "mul: 100000.0 beside float16"),
        (lambda: Tensor([1.0]) * 1e300, "mul: 1e[+]300 beside float32"),
        (lambda: Tensor([True]) == 2, "equal: 2 beside bool"),
        (lambda: Tensor(np.ones(1, np.int64)) + 2**63, "add: 9223372036854775808 beside int64"),
        (lambda: Tensor([True]) * True, r"mul\(bool.*needs numbers"),
    ],
)
def test_operands_that_do_not_fit(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


EVERYTHING = COMPARE | ARITHMETIC | {"div": np.divide, "pow": np.power}


@types([DType.float32, DType.int32])
def test_shapes_of_all_kinds(dtype: DType) -> None:
    """Cover no elements, one element, any rank, and broadcasts, against NumPy."""
    names = {name: one for name, one in EVERYTHING.items() if dtype.is_float() or name != "div"}
    kinds = [TensorType(dtype, shape) for shape in (["n", "m"], ["n", 1], [1, "m"], [])]

    def call(*operands: Tensor) -> list[Tensor]:
        x, *others = operands
        return [ops.apply(name, x, other)[0] for name in names for other in (x, *others)]

    compiled = executor.find_executor().compile(Graph("g", call, kinds), {})
    for n, m in ((0, 3), (2, 0), (1, 1), (3, 2)):
        shapes = ((n, m), (n, 1), (1, m), ())
        x, *others = (np.full(shape, 3, dtype.to_numpy()) for shape in shapes)
        result = compiled(*map(Tensor, (x, *others)))
        wanted = [numpy(x, other) for numpy in names.values() for other in (x, *others)]
        for got, exact in zip(result, wanted, strict=True):
            assert got.shape == list(exact.shape)
            np.testing.assert_array_equal(got.to_numpy(), exact)
    for shape in ((0, 3), (), (2, 1, 2)):
        x = np.full(shape, 3, dtype.to_numpy())
        for name in ("add", "less"):
            got = ops.apply(name, Tensor(x), Tensor(x))[0].to_numpy()
            np.testing.assert_array_equal(got, names[name](x, x))
