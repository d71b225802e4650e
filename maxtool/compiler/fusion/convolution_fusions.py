"""Convolutions that a kind of target has special kernels for, with their filter as it lies.

The kernels read a filter in an order of their own, in which the weights file has it. What a graph
does to the order of its dimensions before is taken in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.compiler.image_geometry import window_of
from maxtool.compiler.kernels.cuda.depthwise import WIDEST
from maxtool.compiler.kernels.cuda.image_matrix import PLACE_BITS, is_matrix
from maxtool.compiler.kernels.cuda.matrix import PIECE
from maxtool.dtype import DType
from maxtool.graph import Node, Tensor
from maxtool.graph.ops.convolution import TRANSPOSED

DIRECT, DEPTHWISE = "direct_convolution", "depthwise_convolution"
INTEGER_DIRECT = "direct_integer_convolution"
INTEGER_DEPTHWISE = "depthwise_integer_convolution"
PHASED = "phased_convolution"  # a transposed one
SPECIAL = (DIRECT, DEPTHWISE, INTEGER_DIRECT, INTEGER_DEPTHWISE, PHASED)
OF_EACH_CHANNEL = (DEPTHWISE, INTEGER_DEPTHWISE)

# The convolutions that each kind of target may have a kernel for, by name.
_ON_CPUS = "conv1d conv2d conv3d integer_convolution conv_transpose1d conv_transpose2d"
_ON_GPUS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d"
# Features of a group from which on it fills tiles of a product well enough.
_FEATURES = 16
# The same where other kernels read much that they do not use.
_FEW = 4
# The types of images, and the names with kernels of their own for them.
_NAMES = {
    DType.float32: (DIRECT, DEPTHWISE),
    DType.int8: (INTEGER_DIRECT, INTEGER_DEPTHWISE),
    DType.uint8: (INTEGER_DIRECT, INTEGER_DEPTHWISE),
}


def _name_on_cpus(node: Node) -> str | None:
    """Return the name of the convolution that has a kernel of its own; None if none has."""
    x, filter_, _ = node.inputs
    groups, channels = node.attributes["groups"], int(filter_.shape[-1])
    sizes = x.shape[1:], node.outputs[0].shape[1:]
    if x.dtype not in _NAMES or any(0 in size for size in sizes):
        return None
    direct, depthwise = _NAMES[x.dtype]
    if node.op in TRANSPOSED or x.rank == 5:
        plain = groups == 1 and (x.shape[1:].is_static or x.rank < 5)
        name = PHASED if node.op in TRANSPOSED else DIRECT
        fits = name == DIRECT or max(node.attributes["dilation"]) == 1
        return name if direct == DIRECT and plain and fits else None
    if groups == channels == x.shape[-1] and groups > 1:
        return depthwise
    return direct if groups == 1 or direct == DIRECT else None


def _name_on_gpus(node: Node) -> str | None:
    """Return the same for GPUs, whose kernels take images of any size."""
    x, filter_, _ = node.inputs
    groups = node.attributes["groups"]
    *size, inner, features = filter_.shape.static()
    if x.dtype.value not in PIECE:
        return None
    if node.op in TRANSPOSED:
        plain = groups == 1 == max(node.attributes["dilation"])
        few = sum(-(-n // step) for n, step in zip(size, node.attributes["stride"], strict=True))
        return PHASED if plain and few <= PLACE_BITS and features >= _FEW else None
    if groups == inner * groups == features:
        return DEPTHWISE if size[-1] <= WIDEST else None
    if not is_matrix(window_of(node, tuple(size))):
        return None
    fills = inner % PIECE[x.dtype.value] == 0 and features // groups >= _FEATURES
    return DIRECT if groups == 1 or fills else None


def _fusions(names: str, special: Callable[[Node], str | None]) -> tuple[Fusion, ...]:
    """Return the fusions of a kind of target, given the name of what each convolution becomes."""

    def made(node: Node, weight: Tensor, order: tuple[int, ...]) -> Node | None:
        """Return a convolution whose filter is ``weight`` with its dimensions in an order."""
        x, _, bias = node.inputs
        name = None if reads_buffers(node) else special(node)
        if name is None:
            return None
        attributes: Mapping[str, object] = {**node.attributes, "order": order}
        return Node(name, (x, weight, bias), attributes, node.outputs)

    def of_plain(match: Match) -> Node | None:
        (node,) = match.nodes
        return made(node, match["filter"], tuple(range(match["filter"].rank)))

    def of_permuted(match: Match) -> Node | None:
        """Return the convolution with the filter as it was before it was permuted."""
        node, permute = match.nodes
        if reads_buffers(permute):
            return None
        return made(node, match["given"], permute.attributes["dims"])

    convolution = op(names, "x filter bias -> y")
    return (
        Fusion((convolution, op("permute", "given -> filter", kept=True)), of_permuted),
        Fusion((convolution,), of_plain),
    )


CONVOLUTION_FUSIONS = _fusions(_ON_CPUS, _name_on_cpus)
GPU_CONVOLUTION_FUSIONS = _fusions(_ON_GPUS, _name_on_gpus)
