"""Products with epilogues, and several of the same rows, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import tvm

from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.linear import linears
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linears
from maxtool.compiler.kernels.formulas import ACTIVATIONS
from maxtool.compiler.kernels.kernel_options import Epilogue, EpilogueStep
from maxtool.compiler.packing import pack_linear
from maxtool.compiler.quantized_layout import layout_of
from maxtool.compiler.quantized_packing import pack_quantized
from maxtool.parity.definitions import DEFINITIONS
from maxtool.quantization import QuantizationEncoding, dequantize

from .harness import HOST, TILE, compiled, error, normal
from .quantized_numbers import SAME_INTEGERS, blocks_of, rounded

MACHINE = instruction_set(HOST)
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# A row, few rows that quantized weights are unpacked for in registers, one more than a tile has.
ROWS = (1, 3, 17, 35)

PLAIN = Epilogue()
BIAS = Epilogue((True,))
GATED = Epilogue((False, False), (EpilogueStep("silu"), EpilogueStep("mul", "product")))
BIASED_GATE = Epilogue(
    (True, True),
    (EpilogueStep("gelu_tanh"), EpilogueStep("mul", "product"), EpilogueStep("add", "rows")),
)
RESIDUAL = Epilogue((False,), (EpilogueStep("add", "rows"),))
LONG = Epilogue(
    (True,),
    (EpilogueStep("mul", "rows"), EpilogueStep("relu"), EpilogueStep("add", "rows")),
)


@dataclass(frozen=True)
class Product:
    """A matrix as its kernel reads it, what it stands for, and the rows as the kernel sees them."""

    packed: np.ndarray
    matrix: np.ndarray
    seen: Callable[[np.ndarray], np.ndarray]


def product(seed: int, name: str, n: int, k: int) -> Product:
    if name in FLOATS:
        w = normal(seed, n, k).astype(FLOATS[name])
        packed = pack_linear(w, TILE.nr)
        bits = packed.view(np.uint16) if name == "bfloat16" else packed
        return Product(bits, w.astype("f8"), lambda x: x.astype("f8"))
    encoding = QuantizationEncoding[name]
    blocks = blocks_of(seed, encoding, n, k)
    span = layout_of(encoding).span
    packed = pack_quantized(blocks, encoding)
    return Product(packed, dequantize(blocks, encoding).astype("f8"), lambda x: rounded(x, span))


def run(
    x: np.ndarray,
    types: Sequence[Sequence[str]],
    epilogues: Sequence[Epilogue],
    sizes: Sequence[int],
    *,
    one_row: bool = False,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return what the kernel gives for each result, and what NumPy does."""
    rows, k = x.shape
    operands: list[np.ndarray] = []
    expected = []
    for number, (names, epilogue, n) in enumerate(zip(types, epilogues, sizes, strict=True)):
        values = []
        for index, (name, biased) in enumerate(zip(names, epilogue.biases, strict=True)):
            own = product(10 * number + index, name, n, k)
            bias = normal(50 + number + index, n)
            operands += [own.packed, bias] if biased else [own.packed]
            values.append(own.seen(x) @ own.matrix.T + (bias if biased else 0))
        result, *more = values
        for index, step in enumerate(epilogue.steps):
            others = more
            if step.other == "rows":
                others = [normal(70 + number + index, rows, n)]
                operands += others
            if step.op in ACTIVATIONS:
                others = []
            result = DEFINITIONS[step.op](result, *others)
        expected.append(result)
    options = tuple(map(tuple, types)), tuple(epilogues)
    if types[0][0] in FLOATS:
        function = compiled(linears, TILE, *options)
    else:
        function = compiled(quantized_linears, MACHINE, *options, one_row)
    outs = [tvm.runtime.tensor(np.full((rows, n), np.nan, "f4")) for n in sizes]
    function(*(tvm.runtime.tensor(np.ascontiguousarray(each)) for each in (x, *operands)), *outs)
    return [(out.numpy(), value) for out, value in zip(outs, expected, strict=True)]


CASES: dict[str, tuple[Sequence[Sequence[str]], Sequence[Epilogue], Sequence[int]]] = {
    "bias": ([["float32"]], [BIAS], [37]),
    "gate": ([["float32", "float32"]], [GATED], [45]),
    "gate of two types": ([["bfloat16", "float16"]], [BIASED_GATE], [33]),
    "residual": ([["bfloat16"]], [RESIDUAL], [511]),
    "long": ([["float16"]], [LONG], [1]),
    "three": ([["bfloat16"], ["float32"], ["bfloat16"]], [PLAIN, BIAS, PLAIN], [64, 5, 37]),
    "quantized bias": ([["Q8_0"]], [BIAS], [37]),
    "quantized gate": ([["Q4_0", "Q4_0"]], [GATED], [45]),
    "gate of two encodings": ([["Q4_K", "Q6_K"]], [BIASED_GATE], [33]),
    "gate with other spans": ([["Q4_K", "Q8_0"]], [GATED], [16]),
    "gate of many scales": ([["Q6_K", "Q6_K"]], [GATED], [21]),
    "quantized residual": ([["Q5_1"]], [RESIDUAL], [171]),
    "quantized long": ([["Q4_K"]], [LONG], [1]),
    "Q4_K_M": ([["Q4_K"], ["Q4_K"], ["Q6_K"]], [PLAIN, BIAS, PLAIN], [64, 5, 37]),
    "all spans": ([["Q4_0"], ["Q8_0"], ["Q5_K"], ["Q3_K"]], [PLAIN] * 4, [16, 40, 1, 33]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_numpy_computes(case: str) -> None:
    types, epilogues, sizes = CASES[case]
    for rows in ROWS:
        for actual, expected in run(normal(rows, rows, 512), types, epilogues, sizes):
            assert error(actual, expected) < SAME_INTEGERS * 4, rows


def test_many_columns_of_one_row() -> None:
    """Enough blocks that a task may read more of them side by side, with a rest."""
    types = [["Q4_0"], ["Q4_0", "Q4_0"], ["Q6_K"]]
    epilogues, sizes = [PLAIN, GATED, PLAIN], [2053, 997, 37]
    for actual, expected in run(normal(0, 1, 256), types, epilogues, sizes, one_row=True):
        assert error(actual, expected) < SAME_INTEGERS * 4


@pytest.mark.parametrize("op", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", ["float32", "Q4_0"])
def test_activations(op: str, dtype: str) -> None:
    epilogue = Epilogue((False,), (EpilogueStep(op),))
    for rows in (1, 3):
        # Small enough that an activation does not hide what a product is off by.
        x = normal(rows, rows, 64) / 16
        ((actual, expected),) = run(x, [[dtype]], [epilogue], [21])
        assert error(actual, expected) < SAME_INTEGERS * 4


@pytest.mark.parametrize("dtype", ["float32", "Q4_0", "Q4_K"])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(dtype: str, rows: int, value: float) -> None:
    """A row with it is what NumPy makes of it, or NaN with quantized weights; others are finite."""
    x = normal(0, rows, 256)
    x[-1, 200] = value
    with np.errstate(invalid="ignore", over="ignore"):
        ((actual, expected),) = run(x, [[dtype, dtype]], [GATED], [21])
    shown = expected[-1] if dtype == "float32" else np.full(21, np.nan)
    np.testing.assert_array_equal(np.isnan(actual[-1]), np.isnan(shown))
    assert np.isfinite(actual[:-1]).all()


def test_no_rows() -> None:
    for types in ([["float32"], ["float32"]], [["Q4_0"], ["Q8_0"]]):
        found = run(np.zeros((0, 32), "f4"), types, [RESIDUAL, BIAS], [5, 40])
        assert [actual.shape for actual, _ in found] == [(0, 5), (0, 40)]


def test_bits_do_not_depend_on_threads() -> None:
    """Tasks share no sum."""
    types, epilogues, sizes = CASES["Q4_K_M"]
    config = tvm.get_global_func("runtime.config_threadpool")
    x = normal(1, 3, 512)
    found = []
    for threads in (1, 2, 3):
        config(1, threads)
        found.append([actual for actual, _ in run(x, types, epilogues, sizes)])
    config(1, 0)
    for other in found[1:]:
        for actual, first in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(actual, first)
