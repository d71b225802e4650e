"""Graphs as they are lowered: fused by the rules of the targets of their nodes.

Graphs stay as they were traced; only the nodes that are lowered differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from maxtool.compiler.fusion.activation_fusions import ACTIVATION_FUSIONS
from maxtool.compiler.fusion.attention_fusions import ATTENTION_FUSIONS
from maxtool.compiler.fusion.cache_fusions import CACHE_FUSIONS
from maxtool.compiler.fusion.channel_order import with_moved_permutes
from maxtool.compiler.fusion.convolution_fusions import (
    CONVOLUTION_FUSIONS,
    GPU_CONVOLUTION_FUSIONS,
)
from maxtool.compiler.fusion.decomposed_fusions import DECOMPOSED_FUSIONS, with_turned_keys
from maxtool.compiler.fusion.epilogue_fusions import EPILOGUE_FUSIONS
from maxtool.compiler.fusion.image_fusions import IMAGE_FUSIONS
from maxtool.compiler.fusion.linear_fusions import LINEAR_FUSIONS
from maxtool.compiler.fusion.matcher import Fusion
from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.fusion.product_fusions import PRODUCT_FUSIONS
from maxtool.compiler.placement import Placement, device_of
from maxtool.graph import Graph, Node

Condition: TypeAlias = Callable[[Node], bool]

# The fusions of each kind of target, after those of all.
TARGET_FUSIONS: dict[str, tuple[Fusion, ...]] = {
    "cpu": (*ATTENTION_FUSIONS, *EPILOGUE_FUSIONS, *CONVOLUTION_FUSIONS, *IMAGE_FUSIONS),
    "cuda": (*CACHE_FUSIONS, *PRODUCT_FUSIONS, *GPU_CONVOLUTION_FUSIONS),
}


def rewrite(graph: Graph, placement: Placement) -> NodeIndex:
    """Return the nodes of a graph to lower, which compute the same outputs."""
    nodes = with_turned_keys(with_moved_permutes(graph), graph)
    index = NodeIndex(nodes, graph.outputs, graph.constants)
    for fusion in (*ACTIVATION_FUSIONS, *DECOMPOSED_FUSIONS, *LINEAR_FUSIONS):
        fusion.apply(index, lambda _: True)
    _drop_unread(index)
    for kind, fusions in TARGET_FUSIONS.items():
        for fusion in fusions:
            fusion.apply(index, partial(is_for, kind, placement))
    _drop_unread(index)
    return index


def is_for(kind: str, placement: Placement, node: Node) -> bool:
    """Return whether a node is lowered for a kind of target."""
    return placement.target(device_of(node)).kind == kind


def _drop_unread(index: NodeIndex) -> None:
    """Remove transpositions that products and convolutions have taken in."""
    unread = [
        node
        for node in index.nodes
        if isinstance(node, Node) and node.op == "permute" and not index.uses(node.outputs[0])
    ]
    for node in unread:
        index.remove(node)
