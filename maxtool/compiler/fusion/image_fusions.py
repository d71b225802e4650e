"""Operations on whole images, on CPUs: means over all pixels, and factors for each channel.

Both come from blocks that scale the channels of an image by what its means say
(arXiv:1709.01507).
"""

from __future__ import annotations

from maxtool.compiler.fusion.convolution_fusions import DIRECT
from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.dtype import DType
from maxtool.graph import Node


def _pooled(match: Match) -> Node | None:
    """Return the mean over all pixels as a pool, which leaves the channels where they are."""
    (node,) = match.nodes
    x = node.inputs[0]
    spatial = x.rank - 2
    kernel = x.shape[1:-1]
    known = spatial in (1, 2, 3) and x.shape[1:].is_static and 0 not in x.shape[1:]
    if not known or node.attributes["axes"] != tuple(range(1, spatial + 1)) or reads_buffers(node):
        return None
    attributes = {
        "kernel": kernel.static(),
        "stride": (1,) * spatial,
        "dilation": (1,) * spatial,
        "padding": (0,) * 2 * spatial,
        "ceil_mode": False,
        "count_boundary": False,
    }
    return Node(f"avg_pool{spatial}d", (x,), attributes, node.outputs)


def _joined(match: Match) -> Node | None:
    """Return the mean of a mean as one."""
    second, first = match.nodes
    x = first.inputs[0]
    axes = tuple(sorted({*first.attributes["axes"], *second.attributes["axes"]}))
    if reads_buffers(first) or x.dtype is not DType.float32:
        return None
    return Node("mean", (x,), {"axes": axes}, second.outputs)


def _scaled(match: Match) -> Node | None:
    """Return the convolution of single pixels with the factors of its input's channels."""
    node, product = match.nodes
    x, gate = match["x"], match["gate"]
    if x.rank != 4 or gate.rank != 4 or x.shape != match["scaled"].shape or reads_buffers(product):
        return None
    if [*gate.shape] != [x.shape[0], 1, 1, x.shape[-1]]:
        return None
    if node.attributes["groups"] > 1:
        return None
    order = node.attributes["order"]
    window = [node.inputs[1].shape[axis] for axis in order[:-2]]
    if any(size != 1 for size in window) or any(node.attributes["padding"]):
        return None
    operands = (x, match["filter"], match["bias"], gate)
    return Node(DIRECT, operands, node.attributes, node.outputs)


IMAGE_FUSIONS = (
    Fusion((op("mean", "means -> y"), op("mean", "x -> means")), _joined),
    Fusion((op("mean", "x -> y"),), _pooled),
    Fusion(
        (
            op(DIRECT, "scaled filter bias -> y"),
            op("mul", "x gate -> scaled", commutes=True),
        ),
        _scaled,
    ),
)
