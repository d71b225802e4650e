"""The form in which a convolution's filter is stored: as its kernel reads it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.fusion.convolution_fusions import DEPTHWISE, DIRECT
from maxtool.compiler.image_geometry import image_window
from maxtool.compiler.kernels.cpu.convolution_tiles import tiles_of
from maxtool.compiler.packing import pack_linear, packed_shape
from maxtool.compiler.targets import Target
from maxtool.graph import Node
from maxtool.runtime.loader.memory import aligned

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The dimensions of a filter in another order, and its features in blocks.

    Attributes:
        order: Which dimension of the filter each one of the stored filter is. Where features are in
            blocks they come first, and the others are the terms of a product.
        block: Features of a block; None if they are not in blocks.
    """

    order: tuple[int, ...]
    block: int | None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the stored filter."""
        ordered = tuple(shape[axis] for axis in self.order)
        if self.block is None:
            return ordered
        return packed_shape(ordered[0], prod(ordered[1:]), self.block)

    def store(self, values: Array) -> Array:
        """Return a filter as it is stored, aligned."""
        ordered = values.transpose(self.order)
        if self.block is not None:
            return pack_linear(ordered.reshape(ordered.shape[0], -1), self.block)
        laid = aligned(ordered.shape, values.dtype, np.empty)
        laid[...] = ordered
        return laid

    def restore(self, stored: Array, shape: tuple[int, ...]) -> Array:
        """Return a filter of a shape from what is stored."""
        ordered = tuple(shape[axis] for axis in self.order)
        if self.block is not None:
            terms = stored.shape[1]
            stored = stored.swapaxes(1, 2).reshape(-1, terms)[: ordered[0]]
        back = np.argsort(self.order)
        return np.ascontiguousarray(stored.reshape(ordered).transpose(back))


def filter_form(node: Node, target: Target) -> FilterForm | None:
    """Return how a node reads its second operand if that is a filter in a form of its own."""
    if node.op not in (DIRECT, DEPTHWISE) or not isinstance(target, CpuTarget):
        return None
    order = node.attributes["order"]
    if node.op == DEPTHWISE:
        return FilterForm(order, None)
    features, channels = int(node.outputs[0].shape[-1]), int(node.inputs[0].shape[-1])
    block = tiles_of(target.tile, *image_window(node), channels, features).block
    # Rows, columns, channels, features become features, rows, columns, channels.
    return FilterForm((order[-1], *order[:-1]), block)
