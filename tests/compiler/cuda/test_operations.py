"""Tensor expressions on GPUs give the bits that they give on a CPU, to which other tests see.

Only functions of the mathematics library may differ, in the last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from maxtool.compiler.cuda.binaries import device_code
from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.cuda.resources import read_resources
from maxtool.compiler.kernels.formulas import FORMULAS
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.pipeline import compile_module
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from maxtool.graph.ops.bits import BITWISE
from maxtool.graph.ops.comparison import COMPARISONS, LOGICAL, TESTS
from maxtool.graph.ops.elementwise import BINARY, UNARY
from maxtool.graph.ops.operation_table import apply
from tests.effort import thinned
from tests.simt.model import TARGET, Simulation

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 60.0, 7e4, np.inf, -np.inf, np.nan]
WIDE = [dtype for dtype in DType if not dtype.value.startswith("float8")]
FLOATS = [dtype for dtype in WIDE if dtype.is_float()]
NARROWEST = [dtype for dtype in DType if dtype.value.startswith("float8")]
PAIRS = {*BINARY, *COMPARISONS, *LOGICAL, *BITWISE} - {"bitwise_not"}
# What a type must be for an operation to take it.
ONLY_BOOL = {*LOGICAL, "logical_not"}
NOT_WHOLE = {"div", "hard_swish", "sqrt", "rsqrt", "is_nan", "is_inf", "pow"}
# Those whose last digits are the library's.
LIBRARY = {
    "acos",
    "asin",
    "atan",
    "atanh",
    "cos",
    "erf",
    "exp",
    "gelu",
    "gelu_quick",
    "gelu_tanh",
    "log",
    "log1p",
}
LIBRARY |= {"pow", "rsqrt", "sigmoid", "silu", "sin", "softplus", "tanh"}


def values(dtype: DType) -> np.ndarray:
    """Numbers of a type, the awkward ones among them."""
    if dtype is DType.bool:
        return np.array([True, False, True])
    if dtype.is_integral():
        limits = np.iinfo(dtype.to_numpy())
        low = [limits.min, limits.min + 1, -3, -1] if limits.min else []
        return np.array([*low, 0, 1, 2, 7, limits.max - 1, limits.max], dtype.to_numpy())
    with np.errstate(over="ignore"):
        return np.array(SPECIAL).astype(dtype.to_numpy())


def on_a_gpu(function: Callable[..., Sequence[Tensor]], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the results of a function on a GPU."""
    types = [TensorType(Tensor(array).dtype, array.shape) for array in arrays]
    graph = Graph("g", function, types)
    simulation = Simulation()
    program = simulation.program([graph])
    results = [value.type for value in graph.outputs]
    result = program.function("g", program.bind({}), results)([Tensor(one) for one in arrays])
    return [one.to_numpy() for one in result]


def on_a_cpu(function: Callable[..., Sequence[Tensor]], *arrays: np.ndarray) -> list[np.ndarray]:
    types = [TensorType(Tensor(array).dtype, array.shape) for array in arrays]
    run = executor.find_executor().compile(Graph("g", function, types), {})
    return [one.to_numpy() for one in run(*map(Tensor, arrays))]


def taken(op: str, dtype: DType) -> bool:
    """Return whether an operation is defined for a type."""
    if op in ONLY_BOOL:
        return dtype is DType.bool
    if dtype is DType.bool:
        return op in ("equal", "not_equal")
    if op in BITWISE:
        unsigned = dtype.value.startswith("uint")
        return dtype.is_integral() and (unsigned or not op.startswith("shift"))
    return dtype.is_float() or op not in LIBRARY | NOT_WHOLE


def elementwise(dtype: DType) -> tuple[list[str], Callable[[Tensor, Tensor], list[Tensor]]]:
    """Every operation that takes a type, and a function of all of their results."""
    names = [op for op in FORMULAS if taken(op, dtype)]

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        return [apply(op, *((x, y) if op in PAIRS else (x,)))[0] for op in names]

    return names, function


def test_every_operation_of_elements_has_a_formula() -> None:
    operations = {*UNARY, *BINARY, *BITWISE, *COMPARISONS, *LOGICAL, *TESTS, "logical_not"}
    assert FORMULAS.keys() == operations


# One type of each kind; the arithmetic of the others is that of wider and narrower ones.
ENDS = (DType.bfloat16, DType.float32, DType.int64, DType.uint8, DType.bool)


@pytest.mark.long
@pytest.mark.parametrize("dtype", thinned(WIDE, *ENDS))
def test_every_operation_on_every_pair_of_numbers(dtype: DType) -> None:
    names, function = elementwise(dtype)
    x, y = (side.reshape(-1).copy() for side in np.meshgrid(values(dtype), values(dtype)))
    for op, left, right in zip(
        names, on_a_gpu(function, x, y), on_a_cpu(function, x, y), strict=True
    ):
        if left.dtype.kind in "bui":
            np.testing.assert_array_equal(left, right, err_msg=op)
            continue
        actual, expected = left.astype("f8"), right.astype("f8")
        close = {"rtol": 1e-5, "atol": 1e-37} if op in LIBRARY else {"rtol": 0, "atol": 0}
        np.testing.assert_allclose(actual, expected, err_msg=op, **close)
        numbers = ~np.isnan(expected) & (op not in LIBRARY)
        np.testing.assert_array_equal(
            np.signbit(actual)[numbers], np.signbit(expected)[numbers], err_msg=op
        )


def casts(*tensor: Tensor) -> list[Tensor]:
    """Each as every type."""
    return [one.cast(dtype) for one in tensor for dtype in DType]


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(WIDE, id="wide", marks=pytest.mark.slow),
        pytest.param(list(ENDS), id="ends"),
        pytest.param(NARROWEST, id="float8"),
    ],
)
def test_every_cast(part: list[DType]) -> None:
    """Leave out casts of floats without a number in the target, where C++ and LLVM differ."""

    def safe(dtype: DType) -> np.ndarray:
        if dtype in NARROWEST:
            return np.arange(256, dtype="u1").view(dtype.to_numpy())
        if not dtype.is_float():
            return values(dtype)
        return np.array([0.0, -0.0, 1.0, 0.3, 2.5, 3.5, 60.0, 100.7, 1e-3]).astype(dtype.to_numpy())

    arrays = [safe(dtype) for dtype in part]
    for left, right in zip(on_a_gpu(casts, *arrays), on_a_cpu(casts, *arrays), strict=True):
        bits = np.dtype(f"u{left.dtype.itemsize}")
        numbers = ~np.isnan(right.astype("f8"))
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left.view(bits)[numbers], right.view(bits)[numbers])
        assert np.isnan(left.astype("f8")[~numbers]).all()


def moved(x: Tensor, places: Tensor) -> list[Tensor]:
    """Return results of operations that move elements, one of each kind."""
    pairs = ops.stack([places, places], axis=-1)
    return [
        x[1:, ::2],
        x[:, -1],
        ops.concat([x, x * 2, x[:1]], axis=0),
        ops.pad(x, [1, 0, 2, 1], value=3),
        ops.broadcast_to(x[0], [2, 3, 5]),
        ops.gather(x, places, axis=1),
        ops.gather_nd(x, pairs),
        ops.scatter_add(x, x[:, :3], ops.broadcast_to(places * 0 + 1, [3, 3]), axis=1),
        ops.scatter_nd(x, x[0, :3], pairs),
        ops.where(x > 0, x, -x),
        ops.range(1, 6, 2, dtype=DType.int32),
        *ops.top_k(x, 2),
        ops.argsort(x),
        x.permute([1, 0]) @ x,
    ]


@pytest.mark.parametrize(
    "dtype", thinned([DType.float32, DType.float64, DType.bfloat16], DType.bfloat16)
)
def test_what_moves_elements(dtype: DType) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(dtype.to_numpy())
    places = np.array([0, 2, -1])
    for left, right in zip(on_a_gpu(moved, x, places), on_a_cpu(moved, x, places), strict=True):
        rtol = 2**-7 if dtype is DType.bfloat16 else 1e-6
        np.testing.assert_allclose(left.astype("f8"), right.astype("f8"), rtol=rtol, atol=rtol)


def test_a_sum_of_sizes_between_others() -> None:
    """TVM cannot simplify a division by such a sum, which fusing the loops would bring."""
    x, y = (np.arange(2 * n * 4, dtype=np.float32).reshape(2, n, 4) for n in (3, 5))
    kinds = [TensorType(DType.float32, ["batch", size, 4]) for size in (3, "seq")]
    graph = Graph("g", lambda x, y: ops.pad(ops.concat([x, y], 1), [0, 0, 1, 2, 0, 0]), kinds)
    program = Simulation().program([graph])
    run = program.function("g", program.bind({}), [value.type for value in graph.outputs])
    (result,) = run([Tensor(x), Tensor(y)])
    wanted = np.pad(np.concatenate([x, y], 1), [(0, 0), (1, 2), (0, 0)])
    np.testing.assert_array_equal(result.to_numpy(), wanted)


def controlled(pred: Tensor, x: Tensor) -> list[Tensor]:
    """Control flow whose branches and bodies launch kernels."""
    (chosen,) = ops.cond(pred, [x.type], lambda: ops.softmax(x), lambda: x * 2 + 1)
    count, power = ops.while_loop(
        [Tensor(0, DType.int64), chosen], lambda i, _: i < 5, lambda i, y: (i + 1, y @ x)
    )
    return [chosen, count, power]


@pytest.mark.parametrize("pred", [True, False])
def test_control_flow(pred: bool) -> None:
    x = np.random.default_rng(0).standard_normal((4, 4)).astype("f4")
    inputs = np.array(pred), x
    for left, right in zip(
        on_a_gpu(controlled, *inputs), on_a_cpu(controlled, *inputs), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_what_is_not_zero() -> None:
    x = np.random.default_rng(0).integers(0, 2, (6, 7)).astype("f4")

    def found(x: Tensor) -> list[Tensor]:
        return [ops.nonzero(x, "k") * 3]

    (places,) = on_a_gpu(found, x)
    np.testing.assert_array_equal(places, np.argwhere(x) * 3)


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Tensor) -> list[Tensor]:
        ops.print(x * 2, "twice")
        return [x + 1]

    (result,) = on_a_gpu(function, np.arange(3, dtype="f4"))
    np.testing.assert_array_equal(result, [1, 2, 3])
    assert "twice" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("dtype", WIDE)
def test_every_operation_compiles(dtype: DType) -> None:
    target = cuda_target(TARGET)
    kind = TensorType(dtype, ["n"])
    _, function = elementwise(dtype)
    graph = Graph("g", lambda x, y: [*function(x, y), *casts(x)], [kind, kind])
    lowering = ModuleLowering(LoweringPlan([graph], target))
    lowering.entry(graph)
    compiled = compile_module(lowering.module(), target, asserts=False)
    for code in device_code(compiled, target):
        result = read_resources(code.log)
        assert len(result) > 10
        assert not [name for name, one in result.items() if one.spills]
