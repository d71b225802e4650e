"""Chains of elementwise operations on GPUs against float64."""

from __future__ import annotations

from math import erf, erfc, sqrt

import numpy as np
import pytest

from maxtool.compiler.kernels.formulas import CHAINED
from maxtool.compiler.kernels.kernel_options import SILU_MUL, ChainStep
from tests.compiler.cuda.harness import build, elements, numpy_type, resources, run

FUNCTIONS = {
    "abs": np.abs,
    "ceil": np.ceil,
    "erf": np.vectorize(erf, otypes=["f8"]),
    "exp": np.exp,
    "floor": np.floor,
    "gelu": lambda x: x * np.vectorize(erfc, otypes=["f8"])(-x / sqrt(2)) / 2,
    "gelu_quick": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_tanh": lambda x: x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.round,
    "sqrt": np.sqrt,
    "trunc": np.trunc,
    "negative": np.negative,
}
# Functions that end as their definition does.
EXACT = ("abs", "ceil", "erf", "exp", "floor", "negative", "relu", "round", "sqrt", "trunc")
PAIRS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def one(name: str, x: np.ndarray) -> np.ndarray:
    rows = x.astype("f4").reshape(1, -1)
    steps = (ChainStep(name, (0,)),)
    return run(
        "pointwise", rows, into=np.full_like(rows, 7), dim=rows.shape[1], inputs=1, steps=steps
    )[0]


def test_every_operation_of_a_chain_is_known_and_tried() -> None:
    assert CHAINED.keys() == FUNCTIONS.keys() | PAIRS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 997), 10.0 ** np.arange(-30, 0), [0.0]]).astype("f4")
    x = abs(x) if name == "sqrt" else x
    actual, expected = one(name, x), FUNCTIONS[name](x.astype("f8"))
    # An argument of exp that is rounded costs as many digits more as it is large.
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-36)
    near = np.abs(x) < 3
    np.testing.assert_allclose(actual[near], expected[near], rtol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ends(name: str) -> None:
    ends = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, -0.0], "f4")
    result = one(name, ends)
    assert np.isnan(result[2])
    if name in EXACT:
        with np.errstate(invalid="ignore", over="ignore"):
            np.testing.assert_array_equal(result, FUNCTIONS[name](ends))
        return
    high = [np.inf, 1e30] if name.startswith(("gelu", "hard", "silu")) else [1, 1]
    np.testing.assert_allclose(result[[0, 3]], high)
    np.testing.assert_allclose(result[4], -1 if name == "tanh" else 0)
    assert result[5] == (0.5 if name == "sigmoid" else 0)


@pytest.mark.parametrize("name", PAIRS)
def test_two_operands(name: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-40], "f4")
    x, y = (side.reshape(1, -1).copy() for side in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        expected = PAIRS[name](x, y)
    steps = (ChainStep(name, (0, 1)),)
    actual = run("pointwise", x, y, into=np.full_like(x, 7), dim=x.shape[1], inputs=2, steps=steps)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dim", [1, 2, 5, 6, 64, 172])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_gate_of_any_width(dim: int, dtype: str) -> None:
    for rows in (0, 1, 3, 130):
        gate, up = 5 * elements(rows, (rows, dim), "float32"), elements(9, (rows, dim), "float32")
        out = np.full((rows, dim), 7, numpy_type(dtype))
        run("pointwise", gate, up, into=out, dim=dim, inputs=2, steps=SILU_MUL, out=dtype)
        wide = gate.astype("f8")
        rtol = {"float32": 1e-6, "float16": 2**-10, "bfloat16": 2**-8}[dtype]
        expected = wide / (1 + np.exp(-wide)) * up
        np.testing.assert_allclose(out.astype("f8"), expected, rtol=rtol, atol=1e-7)


def test_constants_of_a_chain_are_exact() -> None:
    x = elements(0, (3, 8), "float32")
    steps = (ChainStep("mul", (0, (0.1).hex())), ChainStep("add", (1, (-0.0).hex())))
    result = run("pointwise", x, into=np.zeros_like(x), dim=8, inputs=1, steps=steps)
    np.testing.assert_array_equal(result, x * np.float32(0.1))


@pytest.mark.slow
def test_what_they_take_of_a_gpu() -> None:
    long = tuple(ChainStep("silu", (index,)) for index in range(16))
    many = (
        ChainStep("add", (0, 1)),
        *(ChainStep("add", (index + 6, index)) for index in range(2, 8)),
    )
    functions = {
        "silu_mul": build("pointwise", dim=4096, inputs=2, steps=SILU_MUL),
        "silu_mul_half": build("pointwise", dim=4096, inputs=2, steps=SILU_MUL, out="float16"),
        "narrow_rows": build("pointwise", dim=173, inputs=2, steps=SILU_MUL, out="bfloat16"),
        "long": build("pointwise", dim=64, inputs=1, steps=long),
        "many": build("pointwise", dim=64, inputs=8, steps=many),
        **{
            name: build("pointwise", dim=64, inputs=1, steps=(ChainStep(name, (0,)),))
            for name in FUNCTIONS
        },
    }
    result = dict(resources(functions))
    assert len(result) == 2 * len(functions)
    assert not [name for name, one in result.items() if one.stack or one.spills]
