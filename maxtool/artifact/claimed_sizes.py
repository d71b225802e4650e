"""Sizes of named dimensions with which everything holds that a graph claims of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from maxtool.artifact.pure_graphs import nested
from maxtool.graph import CallNode, Dim, Graph

# Two dimensions that are to be the same.
Claim: TypeAlias = "tuple[Dim, Dim]"
STEPS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Sizes of images are tried as multiples of these: networks halve them again and again."""
TRIED = np.arange(1, 1025)
"""Sizes that are tried where a claim does not say one."""
PASSES = 4
"""How often sizes are set to what they are claimed to be, each perhaps after another."""


def claims_of(graph: Graph) -> list[Claim]:
    """The claims about dimensions that follow from the sizes of the inputs alone."""
    names = {name for value in graph.inputs for dim in value.shape for name in dim.names()}
    claims = (claim for callee in nested(graph, set()) for claim in _made(callee))
    return list(dict.fromkeys(one for one in claims if {*one[0].names(), *one[1].names()} <= names))


def _made(graph: Graph) -> Iterator[Claim]:
    for node in graph.nodes:
        if not isinstance(node, CallNode) and node.op == "rebind":
            pairs = zip(node.inputs[0].shape, node.attributes["shape"], strict=True)
            yield from ((old, new) for old, new in pairs if old != new)


def fitting(sizes: Mapping[str, int], claims: Sequence[Claim]) -> dict[str, int] | None:
    """Sizes near those that are given with which all claims hold; None if none are found.

    Claims about few names come first: those about many follow from them, or hold of empty images.
    """
    claims = sorted(claims, key=lambda claim: len({*claim[0].names(), *claim[1].names()}))
    for step in STEPS:
        tried = {name: -(-size // step) * step for name, size in sizes.items()}
        for _ in range(PASSES):
            for claim in claims:
                tried |= _solved(claim, tried)
        if all(left.size(tried) == right.size(tried) for left, right in claims):
            return tried
    return None


def _solved(claim: Claim, sizes: Mapping[str, int]) -> dict[str, int]:
    """The size of a name with which a claim holds: what it says, or one that is tried."""
    for name, other in (claim, claim[::-1]):
        if isinstance(name.value, str) and name.value not in other.names():
            return {name.value: other.size(sizes)}
    left, right = claim
    if left.size(sizes) == right.size(sizes):
        return {}
    return next(_tried(claim, sizes), {})


def _tried(claim: Claim, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The nearest size of each name with which a claim holds, the others being as they are."""
    for name in sorted({name for dim in claim for name in dim.names()}):
        left, right = (dim.polynomial.evaluate({**sizes, name: TRIED}) for dim in claim)
        found = TRIED[np.broadcast_to(left == right, TRIED.shape)]
        if found.size:
            yield {name: int(found[np.abs(found - sizes[name]).argmin()])}
