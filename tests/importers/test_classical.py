"""Operators of classical models and on bits and n-grams beside onnxruntime, beyond ONNX's cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from maxtool.errors import MaxtoolError
from maxtool.importers.onnx import import_model, open_model
from tests.importers.backend_suite import by_definitions
from tests.importers.beside_onnxruntime import require_equal
from tests.importers.models import model, saved, value

GRAMS: dict[str, Any] = {
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 2,
    "ngram_counts": [0, 3, 9],
    "ngram_indexes": [6, 1, 0, 3, 5, 2, 4, 7],
    "pool_int64s": [*(1, 2, 0), *(1, 2, 2, 2, 0, 1), *(1, 1, 2, 2, 1, 0)],
}
WEIGHTS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]


ML = "ai.onnx.ml"


def of_one(
    op_type: str,
    inputs: dict[str, Any],
    outputs: dict[str, int],
    domain: str = "",
    opset: int = 20,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; inputs by name with a shape and an element type, outputs with a type."""
    node = helper.make_node(op_type, [*inputs], [*outputs], domain=domain, **attributes)
    values = [value(name, *each) for name, each in inputs.items()]
    proto = model([node], values, [*outputs], opset=opset, domains={ML: 5} if domain else None)
    for result, dtype in zip(proto.graph.output, outputs.values(), strict=True):
        result.type.tensor_type.elem_type = dtype
    return proto


@pytest.mark.peers
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("shape", [[9], [3, 7], ["n", "c"], ["n", 1]])
def test_n_grams(mode: str, shape: list[Any], tmp_path: Path) -> None:
    proto = of_one(
        "TfIdfVectorizer",
        {"x": (shape, TensorProto.INT64)},
        {"y": TensorProto.FLOAT},
        mode=mode,
        weights=WEIGHTS,
        **GRAMS,
    )
    sizes = [5 if isinstance(size, str) else size for size in shape]
    x = np.random.default_rng(0).integers(0, 3, sizes)
    require_equal(proto, {"x": x}, tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": "IFD"}, "there is no mode 'IFD'"),
        ({"min_gram_length": 4}, "there are no lengths from 4 to 3"),
        ({"ngram_counts": [0, 3, 8]}, "the pool has a part of a sequence of 2"),
        ({"ngram_counts": [3, 0, 9]}, "no order"),
        ({"ngram_indexes": [-1, *range(7)]}, "a negative place"),
        ({"ngram_indexes": [0, 1, 2]}, "another length"),
        ({"pool_int64s": [1, 2, 2, *GRAMS["pool_int64s"][3:]]}, "a sequence twice"),
        ({"max_skip_count": -1}, "it cannot skip -1"),
        ({"max_skip_count": 1 << 40}, "at most"),
        ({"weights": [1.0], "mode": "IDF"}, "1 weights for 8"),
    ],
)
def test_n_grams_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    attributes = {"mode": "TF", **GRAMS, **changes}
    proto = of_one(
        "TfIdfVectorizer",
        {"x": (["n", "c"], TensorProto.INT64)},
        {"y": TensorProto.FLOAT},
        **attributes,
    )
    with pytest.raises(MaxtoolError) as error:
        import_model(open_model(saved(proto, tmp_path)))
    assert problem in str(error.value)


@pytest.mark.peers
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("shape", [[7, 2, 3], ["n", "m", 2], [1, 4, 1]])
def test_distinct_slices(axis: int, in_order: int, shape: list[Any], tmp_path: Path) -> None:
    outputs = dict.fromkeys(("y", "first", "inverse", "counts"), TensorProto.INT64)
    proto = of_one("Unique", {"x": (shape, TensorProto.INT64)}, outputs, axis=axis, sorted=in_order)
    sizes = [5 if isinstance(size, str) else size for size in shape]
    x = np.random.default_rng(1).integers(0, 2, sizes)
    require_equal(proto, {"x": x}, tmp_path)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_shifts_of_numbers_with_signs(direction: str, dtype: type, tmp_path: Path) -> None:
    """NumPy's, which shifts by less than the width; Python's integers beyond it."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = {"x": (["n"], kind), "y": (["n"], kind)}
    proto = of_one("BitShift", inputs, {"z": kind}, opset=28, direction=direction)
    width = np.dtype(dtype).itemsize * 8
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).max, -1, 0, 1, -77]
    pairs = [(x, places) for x in ends for places in (*range(width + 2), -1, -width)]
    graph = import_model(open_model(saved(proto, tmp_path)))
    x, y = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    beyond = [0 <= places < width for _, places in pairs]
    right = [
        (value >> places if inside else -(value < 0))
        for (value, places), inside in zip(pairs, beyond, strict=True)
    ]
    left = [
        (value << places if inside else 0)
        for (value, places), inside in zip(pairs, beyond, strict=True)
    ]
    wanted = np.array(right if direction == "RIGHT" else left, object)
    wrapped = ((wanted + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))).astype(dtype)
    (found,) = by_definitions(graph, {"x": x, "y": y})
    np.testing.assert_array_equal(found, wrapped)
