"""Products with chosen matrices, traced and eager, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops
from maxtool.parity.activation_rounding import rounded_to_bfloat16
from tests.effort import thinned

Array = np.ndarray[Any, Any]
F32, I64 = DType.float32, DType.int64
X, EACH = TensorType(F32, ["batch", "seq", 7]), TensorType(F32, ["batch", "seq", 2, 7])
CHOSEN = TensorType(I64, ["batch", "seq", 2])
rng = np.random.default_rng(0)


def expected(x: Array, weights: Array, chosen: Array) -> Array:
    rows = x[..., None, :] if x.ndim == chosen.ndim else x
    return np.einsum("...k,...nk->...n", rows.astype("f8"), weights[chosen].astype("f8"))


@pytest.mark.parametrize(
    "dtype", thinned([F32, DType.float16, DType.bfloat16], F32), ids=lambda d: d.value
)
@pytest.mark.parametrize("kind", [X, EACH], ids=["one row for all", "a row for each"])
def test_expert_linear(kind: TensorType, dtype: DType) -> None:
    """Packed, and as a plain weight that something else reads too."""
    values = rng.standard_normal((5, 9, 7)).astype(np.float32).astype(dtype.to_numpy())
    weight = Weight("w", dtype, [5, 9, 7])
    packed = Graph("p", lambda x, at: ops.expert_linear(x, weight, at), [kind, CHOSEN])
    plain = Graph("q", lambda x, at: [ops.expert_linear(x, weight, at), weight], [kind, CHOSEN])
    functions = [
        executor.find_executor().compile(graph, {"w": values}) for graph in (packed, plain)
    ]
    for batch, seq in ((1, 1), (2, 3), (1, 60), (1, 0)):
        chosen = rng.integers(0, 5, (batch, seq, 2))
        x = rng.standard_normal([batch, seq, *kind.shape[2:].static()])
        x = rounded_to_bfloat16(x).astype(np.float32)  # as some machines round it
        for function in functions:
            actual = function(Tensor(x), Tensor(chosen))[0].to_numpy()
            np.testing.assert_allclose(actual, expected(x, values, chosen), rtol=1e-4, atol=1e-5)


def test_eagerly() -> None:
    weights = rng.standard_normal((3, 4, 2)).astype(np.float32)
    x, chosen = rng.standard_normal((6, 2)).astype(np.float32), rng.integers(0, 3, (6, 2))
    actual = ops.expert_linear(x, Tensor(weights), chosen)
    np.testing.assert_allclose(
        actual.to_numpy(), expected(x, weights, chosen), rtol=1e-5, atol=1e-6
    )
    shares = rng.standard_normal((6, 2)).astype(np.float32)
    wanted = (actual.to_numpy() * shares[..., None]).sum(1)
    np.testing.assert_allclose(ops.weighted_sum(actual, shares).to_numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([[3, 7], [5, 9, 7], [3, "n"]], "how many choices there are is known"),
        ([[3, 6], [5, 9, 7], [3, 2]], r"the input is \[3, 7\] or \[3, 2, 7\]"),
        ([[3, 7], [5, 63], [3, 2]], r"\[experts, out, in\]"),
        ([[3, 7], [0, 9, 7], [3, 2]], "the weight is empty"),
    ],
)
def test_operands_that_do_not_fit(shapes: list[list[Any]], message: str) -> None:
    kinds = [TensorType(d, s) for d, s in zip((F32, F32, I64), shapes, strict=True)]
    with pytest.raises(ValueError, match=rf"expert_linear\(.*{message}"):
        Graph("g", ops.expert_linear, kinds)
    with pytest.raises(ValueError, match="a share for each row"):
        ops.weighted_sum(Tensor.zeros([3, 2, 4]), Tensor.zeros([3, 3]))
