"""Ensembles of decision trees, of ONNX's operators for classical models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import StaticDim, Tensor, ops
from maxtool.importers.onnx.attributes import array_of
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import CLASSICAL, operator
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.trees import AGGREGATES, MODES, Trees, votes_by_leaf
from maxtool.importers.onnx.values import known

Array: TypeAlias = NDArray[Any]

LEAF = "LEAF"
PREFIX = "BRANCH_"
NEARLY_ZERO = 1e-7
"""Scores up to this leave a target out of ``SOFTMAX_ZERO``, as in onnxruntime."""
TRANSFORM_NAMES = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _softmax_zero(x: Tensor) -> Tensor:
    """Softmax of what is not 0."""
    counts = ops.greater(ops.abs(x), NEARLY_ZERO)
    raised = ops.where(counts, ops.exp(x - ops.max(x, axis=1)), 0.0)
    return raised / ops.sum(raised, 1)


TRANSFORMS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: ops.softmax(x, 1),
    "LOGISTIC": ops.sigmoid,
    "SOFTMAX_ZERO": _softmax_zero,
}


def transformed(scores: Tensor, name: str) -> Tensor:
    """Scores ``[rows, targets]`` as ``post_transform`` has them."""
    require(name in TRANSFORMS, f"the transform {name!r} is not supported")
    return TRANSFORMS[name](scores)


@operator("TreeEnsemble", domain=CLASSICAL, since=5)
def tree_ensemble(call: OperatorCall) -> Tensor:
    """Scores of targets by trees whose leaves are numbered apart from their nodes."""
    x, modes = _table(call), array_of(call.attribute("nodes_modes"))
    count = len(modes)
    weights = array_of(call.attribute("leaf_weights"))
    splits = array_of(call.attribute("nodes_splits"))
    require(len(splits) == count, f"it has {len(splits)} splits for {count} nodes")
    targets = _integers(call, "leaf_targetids", len(weights))
    places = np.arange(len(weights))
    votes, has = votes_by_leaf(places, targets, weights, len(weights), call.number("n_targets"))
    yes, no = (
        _integers(call, f"nodes_{way}nodeids", count)
        + count * (_integers(call, f"nodes_{way}leafs", count) != 0)
        for way in ("true", "false")
    )
    trees = Trees(
        features=_integers(call, "nodes_featureids", count),
        splits=splits,
        modes=modes,
        yes=yes,
        no=no,
        missing=_missing(call, count),
        members=[*_members(call)],
        roots=np.array(call.numbers("tree_roots"), np.int64),
        votes=votes,
        has=has,
    )
    aggregate = _numbered(call, "aggregate_function", AGGREGATES, 1)
    found, _ = _votes(x, trees, aggregate)
    return transformed(found, _numbered(call, "post_transform", TRANSFORM_NAMES, 0))


@operator("TreeEnsembleRegressor", domain=CLASSICAL)
def tree_ensemble_regressor(call: OperatorCall) -> Tensor:
    """Scores of targets by trees whose leaves are nodes, and may vote on several."""
    x = _table(call)
    size = call.number("n_targets", 1)
    trees = _trees_of_nodes(call, "target", size)
    found, _ = _votes(x, trees, call.text("aggregate_function", "SUM"))
    if base := _base_values(call):
        require(len(base) == size, f"it has {len(base)} base values for {size} targets")
        found = found + known(np.array(base, found.dtype.to_numpy()))
    found = transformed(found, call.text("post_transform", "NONE"))
    return ops.cast(found, DType.float32)


@operator("TreeEnsembleClassifier", domain=CLASSICAL)
def tree_ensemble_classifier(call: OperatorCall) -> list[Tensor]:
    """The best of some classes, and the scores of all; of two, trees may vote on one alone."""
    x, labels = _table(call), class_labels(call, "classlabels_int64s")
    trees = _trees_of_nodes(call, "class", len(labels))
    found, _ = _votes(x, trees, "SUM")
    found, base = ops.cast(found, DType.float32), _base_values(call)
    transform = call.text("post_transform", "NONE")
    if len(labels) > 2:
        require(len(base) in (0, len(labels)), f"it has {len(base)} base values")
        found = found + known(np.array(base, np.float32)) if base else found
        return [labelled(found, labels), transformed(found, transform)]
    voted = trees.has.any(axis=0).tolist()
    alone = len(labels) == 2 and voted == [True, False] and len(base) <= 1
    require(alone, "of two classes trees must vote on the first alone, with one base value at most")
    require(transform in ("NONE", "LOGISTIC"), f"{transform} of one vote is not supported")
    score = ops.slice_tensor(found, (slice(None), slice(0, 1))) + (base[0] if base else 0.0)
    return _of_two(score, labels, transform, is_share=bool((trees.votes >= 0).all()))


def _of_two(score: Tensor, labels: Array, transform: str, *, is_share: bool) -> list[Tensor]:
    """The class of a vote on the second of two, as onnxruntime has it.

    Args:
        score: ``[rows, 1]``; that of the second class, whatever class the trees name.
        labels: Both.
        transform: NONE or LOGISTIC.
        is_share: Whether no leaf votes against it: then half a vote decides, elsewhere its sign.
    """
    second = ops.greater(score, 0.5 if is_share else 0.0)
    chosen = ops.gather(known(labels), ops.cast(second, DType.int64), 0)
    if transform == "LOGISTIC":
        scores = [ops.sigmoid(-score), ops.sigmoid(score)]
    else:
        scores = [1.0 - score if is_share else -score, score]
    return [ops.reshape(chosen, [score.shape[0]]), ops.concat(scores, 1)]


def class_labels(call: OperatorCall, name: str) -> Array:
    """The whole numbers that classes are called."""
    require(not call.attributes.get("classlabels_strings"), "classes called by texts are not taken")
    return np.array(call.numbers(name), np.int64)


def labelled(scores: Tensor, labels: Array) -> Tensor:
    """The label of the first best class of each row."""
    best = ops.argmax(scores, 1)
    return ops.gather(known(labels), ops.reshape(best, [scores.shape[0]]), 0)


def _votes(x: Tensor, trees: Trees, aggregate: str) -> tuple[Tensor, Tensor]:
    require(aggregate in AGGREGATES, f"there is no aggregate function {aggregate!r}")
    columns = x.shape[1]
    trees.check(int(columns) if isinstance(columns, StaticDim) else None)
    return trees.votes_of(x, aggregate)


def _table(call: OperatorCall) -> Tensor:
    """The rows that are looked at, as floats; a single one may have one dimension."""
    x = call.x()
    require(x.rank in (1, 2), "its input has one dimension, or two")
    x = x if x.rank == 2 else ops.unsqueeze(x, 0)
    return x if x.dtype.is_float() else ops.cast(x, DType.float32)


def _integers(call: OperatorCall, name: str, count: int) -> Array:
    numbers = call.numbers(name)
    require(
        len(numbers) == count, f"its attribute {name!r} has {len(numbers)} entries, not {count}"
    )
    return np.array(numbers, np.int64)


def _missing(call: OperatorCall, count: int) -> Array:
    name = "nodes_missing_value_tracks_true"
    if not call.attributes.get(name):
        return np.zeros(count, np.bool_)
    return _integers(call, name, count).astype(np.bool_)


def _numbered(call: OperatorCall, name: str, names: Sequence[str], default: int) -> str:
    number = call.number(name, default)
    require(0 <= number < len(names), f"its attribute {name!r} is {number}")
    return names[number]


def _members(call: OperatorCall) -> Iterator[Array]:
    """The sets of nodes of the mode MEMBER, which NaN ends."""
    tensor = call.attributes.get("membership_values")
    values = array_of(tensor) if tensor is not None else np.zeros(0, np.float32)
    start = 0
    for end in np.flatnonzero(np.isnan(values)):
        yield values[start:end]
        start = int(end) + 1
    if start < len(values):
        yield values[start:]


def _base_values(call: OperatorCall) -> list[float]:
    tensor = call.attributes.get("base_values_as_tensor")
    if tensor is not None:
        return [float(one) for one in array_of(tensor)]
    return [float(one) for one in call.attributes.get("base_values", ())]


def _floats(call: OperatorCall, name: str) -> Array:
    """A list of floats, or the tensor of doubles that stands for it."""
    tensor = call.attributes.get(f"{name}_as_tensor")
    if tensor is not None:
        return array_of(tensor)
    return np.array(call.attribute(name), np.float32)


def _trees_of_nodes(call: OperatorCall, votes_on: str, size: int) -> Trees:
    """Trees whose nodes have numbers within their tree, and whose leaves are nodes.

    Args:
        call: The node of the graph.
        votes_on: What its attributes call what leaves vote on.
        size: How many of them there are.
    """
    modes = [str(one).removeprefix(PREFIX) for one in call.attribute("nodes_modes")]
    count = len(modes)
    unknown = sorted({*modes} - {*MODES[:-1], LEAF})
    require(not unknown, f"there are no modes {', '.join(map(repr, unknown))}")
    ids = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    tree, node, feature, yes, no = (_integers(call, f"nodes_{name}", count) for name in ids)
    splits = _floats(call, "nodes_values")
    require(len(splits) == count, f"it has {len(splits)} values for {count} nodes")
    is_leaf = np.array([mode == LEAF for mode in modes], np.bool_)
    number = np.where(is_leaf, np.cumsum(is_leaf) - 1 + (~is_leaf).sum(), np.cumsum(~is_leaf) - 1)
    place = dict(zip(zip(tree.tolist(), node.tolist(), strict=True), number.tolist(), strict=True))
    require(len(place) == count, "a node of a tree is there twice")
    weights = _floats(call, f"{votes_on}_weights")
    voting = (
        _integers(call, f"{votes_on}_{name}", len(weights)) for name in ("treeids", "nodeids")
    )
    nodes = int((~is_leaf).sum())
    leaves = _places(place, *voting) - nodes
    require(not len(leaves) or leaves.min() >= 0, "a node that is no leaf votes")
    targets = _integers(call, f"{votes_on}_ids", len(weights))
    votes, has = votes_by_leaf(leaves, targets, weights, count - nodes, size)
    inner = ~is_leaf
    first = [next(each)[1] for _, each in groupby(zip(tree, number, strict=True), lambda p: p[0])]
    return Trees(
        features=feature[inner],
        splits=splits[inner],
        modes=np.array([MODES.index(mode) for mode in modes if mode != LEAF], np.uint8),
        yes=_places(place, tree[inner], yes[inner]),
        no=_places(place, tree[inner], no[inner]),
        missing=_missing(call, count)[inner],
        members=(),
        roots=np.array(first, np.int64),
        votes=votes,
        has=has,
    )


def _places(place: Mapping[tuple[int, int], int], trees: Array, nodes: Array) -> Array:
    """Numbers of nodes that are known by their tree and their number within it; -1 for none."""
    pairs = zip(trees.tolist(), nodes.tolist(), strict=True)
    return np.array([place.get(pair, -1) for pair in pairs], np.int64)
