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
INTEGER_DIRECT = "direct_integer_convolution"
INTEGER_DEPTHWISE = "depthwise_integer_convolution"
SPECIAL = (DIRECT, DEPTHWISE, INTEGER_DIRECT, INTEGER_DEPTHWISE)
OF_EACH_CHANNEL = (DEPTHWISE, INTEGER_DEPTHWISE)

# The convolutions that may be of an image or a line, by name.
_CONVOLUTION = "conv1d conv2d integer_convolution"
# The types of images, and the names with kernels of their own for them.
_NAMES = {
    DType.float32: (DIRECT, DEPTHWISE),
    DType.int8: (INTEGER_DIRECT, INTEGER_DEPTHWISE),
    DType.uint8: (INTEGER_DIRECT, INTEGER_DEPTHWISE),
}


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
    if x.dtype not in _NAMES or x.rank > 4 or not known or reads_buffers(node):
        return None
    if 0 in node.outputs[0].shape[1:]:
        return None
    direct, depthwise = _NAMES[x.dtype]
    if groups == 1:
        name = direct
    elif groups == channels == x.shape[-1]:
        name = depthwise
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
