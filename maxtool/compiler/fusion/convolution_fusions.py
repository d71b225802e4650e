"""Convolutions that CPUs have kernels for: of images of known sizes, with their filter as it lies.

The kernels read a filter in an order of their own, in which the weights file has it. What a graph
does to the order of its dimensions before is taken in.
"""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.dtype import DType
from maxtool.graph import Node, Tensor

DIRECT, DEPTHWISE = "direct_convolution", "depthwise_convolution"

# The convolutions of an image or a line, by name.
_CONVOLUTION = "conv1d conv2d"


def _of_plain(match: Match) -> Node | None:
    """Return the convolution as one with a kernel of its own."""
    (node,) = match.nodes
    return _special(node, match["filter"], tuple(range(match["filter"].rank)))


def _of_permuted(match: Match) -> Node | None:
    """Return the convolution with the filter as it was before it was permuted."""
    node, permute = match.nodes
    if reads_buffers(permute):
        return None
    return _special(node, match["given"], permute.attributes["dims"])


def _special(node: Node, weight: Tensor, order: tuple[int, ...]) -> Node | None:
    """Return a convolution whose filter is ``weight`` with its dimensions in an order."""
    x, filter_, bias = node.inputs
    groups, channels = node.attributes["groups"], int(filter_.shape[-1])
    known = x.shape[1:].is_static and 0 not in x.shape[1:]
    if x.dtype is not DType.float32 or not known or reads_buffers(node):
        return None
    if 0 in node.outputs[0].shape[1:]:
        return None
    if groups == 1:
        name = DIRECT
    elif groups == channels == x.shape[-1]:
        name = DEPTHWISE
    else:
        return None
    attributes: Mapping[str, object] = {**node.attributes, "order": order}
    return Node(name, (x, weight, bias), attributes, node.outputs)


CONVOLUTION_FUSIONS = (
    Fusion(
        (
            op(_CONVOLUTION, "x filter bias -> y"),
            op("permute", "given -> filter", kept=True),
        ),
        _of_permuted,
    ),
    Fusion((op(_CONVOLUTION, "x filter bias -> y"),), _of_plain),
)
