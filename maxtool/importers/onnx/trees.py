"""Decision trees: nodes in arrays, and the leaf that each row of a table arrives at.

Nodes and leaves are numbered together, the leaves behind the nodes, and a leaf leads to itself: all
rows go as many steps as the deepest tree has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operators.indexing import along
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

Array: TypeAlias = NDArray[Any]

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Comparisons of a feature with a number, in the order of their numbers in ONNX."""
MEMBER = MODES.index("MEMBER")
COMPARISONS = {
    "LEQ": ops.less_equal,
    "LT": ops.less,
    "GTE": ops.greater_equal,
    "GT": ops.greater,
    "EQ": ops.equal,
    "NEQ": ops.not_equal,
}
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MOST_VOTES = 1 << 26
"""Leaves times targets."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees over the features of a row.

    Attributes:
        features: int64 ``[nodes]``, the feature that a node looks at.
        splits: ``[nodes]``, what it is compared with.
        modes: uint8 ``[nodes]``, numbers of ``MODES``.
        yes: int64 ``[nodes]``, the node or leaf that follows where the comparison holds.
        no: int64 ``[nodes]``, the one that follows elsewhere.
        missing: bool ``[nodes]``, whether a feature that is NaN goes where it holds.
        members: Sets of numbers, one for each node of the mode MEMBER in their order.
        roots: int64 ``[trees]``.
        votes: ``[leaves, targets]``.
        has: bool ``[leaves, targets]``, whether a leaf votes on a target.
    """

    features: Array
    splits: Array
    modes: Array
    yes: Array
    no: Array
    missing: Array
    members: Sequence[Array]
    roots: Array
    votes: Array
    has: Array

    def check(self, columns: int | None) -> None:
        """Refuse numbers beyond what there is, and nodes that lead back to themselves.

        Args:
            columns: Features of a row; None if only a call says it.
        """
        nodes, total = len(self.features), len(self.features) + len(self.votes)
        require(total > 0 and len(self.roots) > 0, "it has no trees")
        for name, places in (("root", self.roots), ("node", self.yes), ("node", self.no)):
            inside = ((places >= 0) & (places < total)).all()
            require(bool(inside), f"a {name} leads to none of its {total} nodes and leaves")
        first = not len(self.features) or self.features.min() >= 0
        require(bool(first), "a node looks at a feature below 0")
        if columns is not None and nodes:
            most = int(self.features.max())
            require(most < columns, f"a node looks at feature {most}; a row has {columns}")
        require(bool((self.modes < len(MODES)).all()), "a node has an unknown mode")
        sets = int((self.modes == MEMBER).sum())
        require(sets == len(self.members), f"it has {len(self.members)} sets for {sets} nodes")

    def depth(self) -> int:
        """Count the nodes on the longest way from a root to a leaf."""
        nodes = len(self.features)
        level = np.unique(self.roots[self.roots < nodes])
        steps = 0
        while len(level):
            steps += 1
            require(steps <= nodes, "nodes lead back to themselves")
            after = np.concatenate((self.yes[level], self.no[level]))
            level = np.unique(after[after < nodes])
        return steps

    def leaves(self, x: Tensor) -> Tensor:
        """The leaf of each row in each tree, int64 ``[rows, trees]``."""
        nodes, count = len(self.features), len(self.votes)
        itself = np.arange(nodes, nodes + count)
        yes, no = (known(np.concatenate((part, itself))) for part in (self.yes, self.no))
        padded = {name: self._padded(name) for name in ("features", "splits", "modes", "missing")}
        sets = known(self._sets(x.dtype))

        def step(done: Tensor, at: Tensor) -> list[Tensor]:
            here = {name: ops.gather(array, at, 0) for name, array in padded.items()}
            feature = along(x, here["features"], 1)
            holds = self._holds(feature, here, ops.gather(sets, at, 0))
            holds = ops.logical_or(holds, ops.logical_and(here["missing"], ops.is_nan(feature)))
            return [done + 1, ops.where(holds, ops.gather(yes, at, 0), ops.gather(no, at, 0))]

        depth = known(np.array(self.depth(), np.int64))
        roots = known(self.roots.reshape(1, -1))
        start = ops.broadcast_to(roots, [x.shape[0], len(self.roots)])
        zero = known(np.zeros((), np.int64))
        _, ends = ops.while_loop([zero, start], lambda done, _: ops.less(done, depth), step)
        return ends - nodes

    def _padded(self, name: str) -> Tensor:
        """Facts of nodes, followed by zeros for the leaves."""
        array = getattr(self, name)
        return known(np.concatenate((array, np.zeros(len(self.votes), array.dtype))))

    def _holds(self, feature: Tensor, here: Mapping[str, Tensor], members: Tensor) -> Tensor:
        """Outcome of the comparison of each node, bool ``[rows, trees]``.

        Args:
            feature: What each node looks at.
            here: Facts of the nodes.
            members: Their sets, ``[rows, trees, members]``.
        """
        present = [int(mode) for mode in np.unique(self.modes)] or [0]
        results = []
        for mode in present:
            if mode == MEMBER:
                found = ops.any(ops.equal(ops.unsqueeze(feature, 2), members), 2)
                results.append(ops.reshape(found, feature.shape))
            else:
                results.append(COMPARISONS[MODES[mode]](feature, here["splits"]))
        holds = results[0]
        for mode, result in zip(present[1:], results[1:], strict=True):
            holds = ops.where(ops.equal(here["modes"], mode), result, holds)
        return holds

    def _sets(self, dtype: DType) -> Array:
        """The set of each node and leaf, ``[nodes and leaves, members]``: NaN equals nothing."""
        width = max(map(len, self.members), default=0)
        result = np.full((len(self.features) + len(self.votes), width), np.nan, dtype.to_numpy())
        owners = np.flatnonzero(self.modes == MEMBER)
        for owner, members in zip(owners, self.members, strict=True):
            result[owner, : len(members)] = members
        return result

    def votes_of(self, x: Tensor, aggregate: str) -> tuple[Tensor, Tensor]:
        """Scores of targets by all trees, ``[rows, targets]``, and whether any votes on each."""
        leaves = self.leaves(x)
        votes, has = (ops.gather(known(one), leaves, 0) for one in (self.votes, self.has))
        rows, targets = x.shape[0], self.votes.shape[1]
        some = ops.reshape(ops.any(has, 1), [rows, targets])
        if aggregate in ("SUM", "AVERAGE"):
            found = ops.sum(votes, 1)
            found = found / float(len(self.roots)) if aggregate == "AVERAGE" else found
            return ops.reshape(found, [rows, targets]), some
        low = aggregate == "MIN"
        none = float("inf") if low else float("-inf")
        best = (ops.min if low else ops.max)(ops.where(has, votes, none), axis=1)
        return ops.where(some, ops.reshape(best, [rows, targets]), 0.0), some


def votes_by_leaf(
    leaves: Array, targets: Array, weights: Array, count: int, size: int
) -> tuple[Array, Array]:
    """Votes of leaves on targets as a table ``[count, size]``, and which of them there are."""
    require(size > 0 and count * size <= MOST_VOTES, f"{count} leaves vote on {size} targets")
    inside = ((targets >= 0) & (targets < size)).all() and len(leaves) == len(targets)
    require(bool(inside) and len(weights) == len(targets), "a leaf votes on no target")
    votes, has = np.zeros((count, size), weights.dtype), np.zeros((count, size), np.bool_)
    np.add.at(votes, (leaves, targets), weights)
    has[leaves, targets] = True
    return votes, has
