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


def random_nodes(rng: np.random.Generator, trees: int, size: int, label: str) -> dict[str, Any]:
    """Attributes of random trees whose leaves vote on one or two of some targets."""
    nodes: dict[str, list[Any]] = {name: [] for name in NODE_FACTS}
    votes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        waiting, count = [(0, 0)], 1
        while waiting:
            node, depth = waiting.pop()
            is_leaf = depth == 4 or (depth and rng.random() < 0.3)
            after = (0, 0) if is_leaf else (count, count + 1)
            modes = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]
            mode = "LEAF" if is_leaf else f"BRANCH_{rng.choice(modes)}"
            facts = (
                tree,
                node,
                rng.integers(3),
                *after,
                rng.integers(-2, 3),
                mode,
                rng.integers(2),
            )
            for name, fact in zip(NODE_FACTS, facts, strict=True):
                nodes[name].append(fact if isinstance(fact, str) else int(fact))
            if is_leaf:
                for target in rng.permutation(size)[: rng.integers(1, 3)]:
                    vote = (tree, node, int(target), float(rng.normal()))
                    for name, fact in zip(votes, vote, strict=True):
                        votes[name].append(fact)
            else:
                count += 2
                waiting += [(one, depth + 1) for one in after]
    nodes["values"] = [float(one) for one in nodes["values"]]
    made = {f"nodes_{name}": each for name, each in nodes.items()}
    return made | {f"{label}_{name}": each for name, each in votes.items()}


NODE_FACTS = (
    *("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "values", "modes"),
    "missing_value_tracks_true",
)


def table(rng: np.random.Generator) -> np.ndarray:
    """Whole numbers, so that some are equal to what they are compared with, and some NaN."""
    x = rng.integers(-3, 4, (17, 3)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.peers
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("trees", "size"), [(1, 1), (5, 3)])
def test_regression_by_trees(aggregate: str, trees: int, size: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(trees)
    attributes = random_nodes(rng, trees, size, "target")
    attributes |= {"n_targets": size, "aggregate_function": aggregate}
    proto = of_one(
        "TreeEnsembleRegressor",
        {"x": (["n", 3], TensorProto.FLOAT)},
        {"y": TensorProto.FLOAT},
        ML,
        **attributes,
    )
    proto.opset_import[1].version = 3
    require_equal(proto, {"x": table(rng)}, tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"nodes_featureids": 3}, "looks at feature 3; a row has 3"),
        ({"nodes_featureids": -1}, "below 0"),
        ({"nodes_truenodeids": 99}, "leads to none of its"),
        ({"nodes_truenodeids": 0}, "lead back to themselves"),
        ({"nodes_modes": "BRANCH_NEAR"}, "no modes 'NEAR'"),
        ({"target_ids": 7}, "votes on no target"),
        ({"target_nodeids": 0}, "a node that is no leaf votes"),
        ({"nodes_nodeids": 1}, "is there twice"),
    ],
)
def test_trees_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    attributes = random_nodes(np.random.default_rng(3), 2, 2, "target")
    for name, first in changes.items():
        attributes[name][0] = first
    inputs = {"x": (["n", 3], TensorProto.FLOAT)}
    gives = {"y": TensorProto.FLOAT}
    proto = of_one("TreeEnsembleRegressor", inputs, gives, ML, n_targets=2, **attributes)
    with pytest.raises(MaxtoolError) as error:
        import_model(open_model(saved(proto, tmp_path)))
    assert problem in str(error.value)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Binarizer", {"threshold": 0.5}),
        ("Scaler", {"offset": [1.0, 2.0, 0.5], "scale": [0.5, 2.0, 1.5]}),
        ("Scaler", {"offset": [1.0], "scale": [0.5]}),
        ("Normalizer", {"norm": "MAX"}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Imputer", {"imputed_value_floats": [5.0, 6.0, 7.0], "replaced_value_float": 1.0}),
        ("Imputer", {"imputed_value_floats": [5.0], "replaced_value_float": float("nan")}),
        ("LinearRegressor", {"coefficients": [0.5, 1.0, -2.0], "intercepts": [1.0]}),
        (
            "LinearRegressor",
            {"coefficients": [*map(float, range(6))], "targets": 2, "post_transform": "SOFTMAX"},
        ),
    ],
)
def test_columns(op_type: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    inputs = {"x": (["n", 3], TensorProto.FLOAT)}
    proto = of_one(op_type, inputs, {"y": TensorProto.FLOAT}, ML, **attributes)
    proto.opset_import[1].version = 1
    x = np.random.default_rng(5).integers(-2, 3, (9, 3)).astype(np.float32)
    x[0] = 0
    if op_type == "Imputer":
        x[3, 1] = np.nan
    require_equal(proto, {"x": x}, tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("base", [[], [0.25]])
@pytest.mark.parametrize("low", [0.0, -1.0])
def test_two_classes_by_trees(
    transform: str, base: list[float], low: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(11)
    attributes = random_nodes(rng, 4, 1, "class")
    weights = rng.uniform(low, 0.4, len(attributes["class_weights"]))
    attributes |= {"class_weights": weights.tolist(), "post_transform": transform}
    attributes |= {"classlabels_int64s": [10, 20], **({"base_values": base} if base else {})}
    require_equal(classifier("TreeEnsembleClassifier", **attributes), {"x": table(rng)}, tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("base", [[], [0.25, -0.5, 0.0]])
def test_classes_by_trees(transform: str, base: list[float], tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    attributes = random_nodes(rng, 9, 3, "class")
    attributes |= {"classlabels_int64s": [7, 3, 5], "post_transform": transform}
    attributes |= {"base_values": base} if base else {}
    require_equal(classifier("TreeEnsembleClassifier", **attributes), {"x": table(rng)}, tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("count", [2, 3])
def test_linear_classes(transform: str, count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    proto = classifier(
        "LinearClassifier",
        coefficients=rng.normal(size=count * 3).tolist(),
        intercepts=rng.normal(size=count).tolist(),
        classlabels_ints=[9, 4, 6][:count],
        post_transform=transform,
    )
    require_equal(proto, {"x": rng.normal(size=(17, 3)).astype(np.float32)}, tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"classlabels_strings": ["a", "b"]}, "classes called by texts"),
        ({"class_ids": [1]}, "on the first alone"),
        ({"base_values": [1.0, 2.0]}, "one base value at most"),
        ({"post_transform": "SOFTMAX"}, "SOFTMAX of one vote"),
        ({"post_transform": "PROBIT"}, "PROBIT"),
    ],
)
def test_classes_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    attributes = random_nodes(np.random.default_rng(3), 1, 1, "class")
    attributes |= {"classlabels_int64s": [0, 1]} | changes
    attributes["class_ids"] = len(attributes["class_weights"]) * changes.get("class_ids", [0])
    with pytest.raises(MaxtoolError) as error:
        proto = classifier("TreeEnsembleClassifier", **attributes)
        import_model(open_model(saved(proto, tmp_path)))
    assert problem in str(error.value)


def classifier(op_type: str, **attributes: Any) -> onnx.ModelProto:
    """A model that gives labels and scores."""
    gives = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    inputs = {"x": (["n", 3], TensorProto.FLOAT)}
    proto = of_one(op_type, inputs, gives, ML, **attributes)
    proto.opset_import[1].version = 1 if op_type.startswith("Linear") else 3
    return proto
