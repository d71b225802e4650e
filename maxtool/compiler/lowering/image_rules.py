"""Rules for convolutions and pooling."""

from __future__ import annotations

from maxtool.compiler.image_geometry import window_of
from maxtool.compiler.kernels.requests import Convolution, Pool, PoolIndices
from maxtool.compiler.lowering.function_lowering import Rule, kernel_rule
from maxtool.graph import Node
from maxtool.graph.ops.convolution import TRANSPOSED
from maxtool.graph.ops.pooling import POOLS


def _convolution(node: Node) -> Convolution:
    x, weight, _ = node.inputs
    return Convolution(
        dtype=x.dtype.value,
        window=window_of(node, tuple(int(dim) for dim in weight.shape[:-2])),
        channels=int(x.shape[-1]),
        features=int(weight.shape[-1]),
        groups=node.attributes["groups"],
        transposed=node.op in TRANSPOSED,
    )


def _pool(node: Node) -> Pool:
    (x,) = node.inputs
    return Pool(
        op=node.op.removesuffix(f"{x.rank - 2}d"),
        dtype=x.dtype.value,
        window=window_of(node, node.attributes["kernel"]),
        channels=int(x.shape[-1]),
        count_padding=node.attributes["count_boundary"],
    )


def _pool_indices(node: Node) -> PoolIndices:
    (x,) = node.inputs
    return PoolIndices(
        dtype=x.dtype.value,
        window=window_of(node, node.attributes["kernel"]),
        channels=int(x.shape[-1]),
    )


POOLED = (*POOLS["max_pool"], *POOLS["sum_pool"], *POOLS["avg_pool"])

IMAGES: dict[str, Rule] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", *TRANSPOSED), kernel_rule(_convolution)),
    **dict.fromkeys(POOLED, kernel_rule(_pool)),
    **dict.fromkeys(POOLS["max_pool_indices"], kernel_rule(_pool_indices)),
}
