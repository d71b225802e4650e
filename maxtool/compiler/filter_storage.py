"""The form in which a convolution's filter is stored: as its kernel reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.fusion.convolution_fusions import (
    INTEGER_DIRECT,
    OF_EACH_CHANNEL,
    PHASED,
    SPECIAL,
)
from maxtool.compiler.image_geometry import (
    are_pixels,
    image_channels,
    image_sizes,
    image_window,
    phases_of,
)
from maxtool.compiler.kernels.cpu.byte_dot import GROUP, best_byte_tile, byte_tiles, groups, runs
from maxtool.compiler.kernels.cpu.convolution_tiles import best_tile, joined_groups, tiles_of
from maxtool.compiler.kernels.cpu.winograd_tiles import that_pay
from maxtool.compiler.packing import pack_linear, packed_shape
from maxtool.compiler.targets import Target
from maxtool.compiler.winograd import WINOGRAD
from maxtool.graph import Node
from maxtool.runtime.loader.memory import aligned

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The dimensions of a filter in another order, and its features in blocks.

    ``is_exact`` says whether a filter can be had back from it.

    Attributes:
        order: Which dimension of the filter each one of the stored filter is. Where features are in
            blocks they come first, and the others are the terms of a product.
        block: Features of a block; None if they are not in blocks.
    """

    order: tuple[int, ...]
    block: int | None
    is_exact: ClassVar[bool] = True

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


@dataclass(frozen=True, slots=True)
class GroupedFilterForm(FilterForm):
    """A filter of groups, each in blocks of its own: ``[groups * blocks, terms, block]``.

    Attributes:
        given: How many groups the filter has.
        groups: How many it is stored as. Where these are fewer, each has the channels of several,
            and zeros for those of another than a feature's own.
    """

    given: int = 1
    groups: int = 1

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the stored filter."""
        features, terms = self._matrix(shape)
        blocks, *sizes = packed_shape(features, terms, self.block or 1)
        return self.groups * blocks, *sizes

    def store(self, values: Array) -> Array:
        """Return a filter as it is stored, aligned."""
        features, terms = self._matrix(values.shape)
        parts = self._parts(values.transpose(self.order))
        own = np.zeros((*parts.shape[:4], self._together, parts.shape[4]), values.dtype)
        for index in range(self._together):
            own[:, index, :, :, index] = parts[:, index]
        laid = aligned(self.shape(values.shape), values.dtype, np.empty)
        for matrix, out in zip(own, np.split(laid, self.groups), strict=True):
            pack_linear(matrix.reshape(features, terms), self.block or 1, out=out)
        return laid

    def restore(self, stored: Array, shape: tuple[int, ...]) -> Array:
        """Return a filter of a shape from what is stored."""
        features, terms = self._matrix(shape)
        ordered = np.empty([shape[axis] for axis in self.order], stored.dtype)
        parts = self._parts(ordered)
        blocks = stored.reshape(self.groups, -1, terms, self.block or 1).swapaxes(2, 3)
        own = blocks.reshape(self.groups, -1, terms)[:, :features].reshape(
            *parts.shape[:4], self._together, parts.shape[4]
        )
        for index in range(self._together):
            parts[:, index] = own[:, index, :, :, index]
        return np.ascontiguousarray(ordered.transpose(np.argsort(self.order)))

    @property
    def _together(self) -> int:
        """Groups of the filter that one stored group has."""
        return self.given // self.groups

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Features of a stored group, and terms of each."""
        features, *terms = (shape[axis] for axis in self.order)
        return features // self.groups, prod(terms) * self._together

    def _parts(self, ordered: Array) -> Array:
        """A view ``[groups, groups of each, features, places, channels]`` of features first."""
        features, *_, inner = ordered.shape
        return ordered.reshape(self.groups, self._together, features // self.given, -1, inner)


@dataclass(frozen=True, slots=True)
class PhasedFilterForm(FilterForm):
    """A filter of a transposed convolution: ``[phases * blocks, terms, block]``.

    Each phase has every ``stride``-th row and column of it, turned around, at the end of a window
    that has as many for all phases.

    Attributes:
        stride: Rows and columns from a pixel of the result to the next one of its phase.
    """

    stride: tuple[int, ...] = (1, 1)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the stored filter."""
        features, *sizes, channels = self._sizes(shape)
        terms = prod(-(-size // step) for size, step in zip(sizes, self.stride, strict=True))
        blocks, *packed = packed_shape(features, terms * channels, self.block or 1)
        return prod(self.stride) * blocks, *packed

    def store(self, values: Array) -> Array:
        """Return a filter as it is stored, aligned."""
        ordered = values.transpose(self.order).reshape(self._sizes(values.shape))
        laid = aligned(self.shape(values.shape), values.dtype, np.empty)
        own = np.zeros((*self._phase(ordered),), values.dtype)
        for phase, out in zip(self._phases, np.split(laid, prod(self.stride)), strict=True):
            own[:] = 0
            self._of(own, phase, ordered)[:] = self._given(ordered, phase)
            pack_linear(own.reshape(len(own), -1), self.block or 1, out=out)
        return laid

    def restore(self, stored: Array, shape: tuple[int, ...]) -> Array:
        """Return a filter of a shape from what is stored."""
        ordered = np.empty(self._sizes(shape), stored.dtype)
        features, *window = self._phase(ordered)
        for phase, part in zip(self._phases, np.split(stored, prod(self.stride)), strict=True):
            rows = part.swapaxes(1, 2).reshape(-1, prod(window))[:features]
            own = rows.reshape(features, *window)
            self._given(ordered, phase)[:] = self._of(own, phase, ordered)
        given = ordered.reshape([shape[axis] for axis in self.order])
        return np.ascontiguousarray(given.transpose(np.argsort(self.order)))

    @property
    def _phases(self) -> Iterator[tuple[int, ...]]:
        return np.ndindex(*self.stride)

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        """Features, rows, columns and channels; a line has one row."""
        features, *sizes, channels = (shape[axis] for axis in self.order)
        rows, columns = sizes if len(sizes) > 1 else (1, *sizes)
        return features, rows, columns, channels

    def _phase(self, ordered: Array) -> tuple[int, int, int, int]:
        """The same of a phase."""
        features, rows, columns, channels = ordered.shape
        down, across = self.stride
        return features, -(-rows // down), -(-columns // across), channels

    def _given(self, ordered: Array, phase: tuple[int, ...]) -> Array:
        """A view of what a phase has of a filter, turned around."""
        down, across = self.stride
        return ordered[:, phase[0] :: down, phase[1] :: across][:, ::-1, ::-1]

    def _of(self, own: Array, phase: tuple[int, ...], ordered: Array) -> Array:
        """A view of the same in the window of a phase: its end."""
        _, rows, columns, _ = self._given(ordered, phase).shape
        _, down, across, _ = own.shape
        return own[:, down - rows :, across - columns :]


@dataclass(frozen=True, slots=True)
class IntegerFilterForm(FilterForm):
    """A filter of bytes in groups of terms, which begin anew in each run of neighbours.

    A block is ``[1 + groups, block, 4]``. In front are the sums of all terms of its features, each
    an int32 in 4 bytes.

    Attributes:
        runs: How many runs of neighbouring terms a window has.
    """

    runs: int = 1

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the stored filter."""
        features, terms = self._matrix(shape)
        steps = self.runs * groups(terms // self.runs)
        return -(-features // self._width), 1 + steps, self._width, GROUP

    def store(self, values: Array) -> Array:
        """Return a filter as it is stored, aligned."""
        features, terms = self._matrix(values.shape)
        blocks, rows, width, _ = self.shape(values.shape)
        each = terms // self.runs
        filled = np.zeros((blocks * width, self.runs, groups(each) * GROUP), np.int8)
        filled[:features, :, :each] = values.transpose(self.order).reshape(features, -1, each)
        laid = aligned((blocks, rows, width, GROUP), np.dtype(np.int8), np.empty)
        sums = filled.sum((1, 2), dtype="<i4")
        laid[:, 0] = sums.view(np.int8).reshape(blocks, width, GROUP)
        laid[:, 1:] = filled.reshape(blocks, width, rows - 1, GROUP).swapaxes(1, 2)
        return laid

    def restore(self, stored: Array, shape: tuple[int, ...]) -> Array:
        """Return a filter of a shape from what is stored."""
        features, terms = self._matrix(shape)
        rows = (
            stored[:, 1:]
            .swapaxes(1, 2)
            .reshape(-1, self.runs, (stored.shape[1] - 1) // self.runs * GROUP)
        )
        kept = rows[:features, :, : terms // self.runs]
        ordered = tuple(shape[axis] for axis in self.order)
        return np.ascontiguousarray(kept.reshape(ordered).transpose(np.argsort(self.order)))

    @property
    def _width(self) -> int:
        return self.block or 1

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Features, and terms of each."""
        features, *others = (shape[axis] for axis in self.order)
        return features, prod(others)


@dataclass(frozen=True, slots=True)
class WinogradFilterForm(FilterForm):
    """A filter of 3 x 3 windows, transformed: ``[blocks, products of a tile, channels, block]``.

    It is transformed in float64, and rounded once.

    Attributes:
        outputs: Rows of a tile's outputs; see ``WINOGRAD``.
    """

    outputs: int = 2
    is_exact: ClassVar[bool] = False

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the stored filter."""
        features, _, _, channels = (shape[axis] for axis in self.order)
        width = self.block or 1
        return -(-features // width), WINOGRAD[self.outputs].products, channels, width

    def store(self, values: Array) -> Array:
        """Return a filter as it is stored, aligned; little memory is used beside that."""
        laid = aligned(self.shape(values.shape), values.dtype, np.empty)
        rows = WINOGRAD[self.outputs].of_filters
        both = np.kron(rows, rows)
        ordered = values.transpose(self.order)
        for block, out in enumerate(laid):
            *_, channels, width = laid.shape
            part = ordered[block * width : (block + 1) * width].astype(np.float64)
            terms = part.reshape(len(part), -1, channels).transpose(1, 2, 0)
            whole = (both @ terms.reshape(len(terms), -1)).reshape(len(both), channels, -1)
            out[..., : len(part)] = whole
            out[..., len(part) :] = 0
        return laid

    def restore(self, stored: Array, shape: tuple[int, ...]) -> Array:  # noqa: ARG002
        """Refuse: what is stored was rounded."""
        raise ValueError("a transformed filter cannot be had back")


def filter_forms(node: Node, target: Target) -> tuple[FilterForm, ...]:
    """Return the ways in which a node could read its second operand, the best first.

    There are none if that is no filter in a form of its own.
    """
    if node.op not in SPECIAL:
        return ()
    order = node.attributes["order"]
    # Rows, columns, channels, features become features, rows, columns, channels.
    turned = (order[-1], *order[:-1])
    if node.op in OF_EACH_CHANNEL:
        return (FilterForm(order, None),)
    if not isinstance(target, CpuTarget):
        if node.op == PHASED:
            return (PhasedFilterForm(turned, 1, phases_of(node)[1].stride),)
        return (FilterForm(turned, None),)
    return _forms_of_cpus(node, target, turned)


def _forms_of_cpus(
    node: Node, target: CpuTarget, turned: tuple[int, ...]
) -> tuple[FilterForm, ...]:
    features, channels = int(node.outputs[0].shape[-1]), image_channels(node)
    given = node.attributes["groups"]
    image = None if are_pixels(node) else image_sizes(node.inputs[0])
    window, phases = phases_of(node) if node.op == PHASED else (image_window(node), None)
    if node.op == INTEGER_DIRECT:
        if image is None:
            block, _ = best_byte_tile(target, window, channels, features)
        else:
            block = byte_tiles(target, window, image, channels, features).block
        return (IntegerFilterForm(turned, block, runs(window, channels)[0]),)
    groups = joined_groups(target.tile, features, given)
    if image is None:
        block, _ = best_tile(target.tile, window, channels, features // groups)
    else:
        sizes = target.tile, window, image, channels, features
        block = tiles_of(*sizes, groups=groups, phases=phases).block
    if phases is not None:
        return (PhasedFilterForm(turned, block, phases.stride),)
    if given > 1:
        return (GroupedFilterForm(turned, block, given, groups),)
    if len(turned) == 5:  # with the slices of a volume next to its channels
        return (FilterForm((turned[0], *turned[2:4], turned[1], turned[4]), block),)
    if image is None or node.attributes.get("exact"):
        return (FilterForm(turned, block),)
    batch = node.inputs[0].shape[0]
    transformed = (
        WinogradFilterForm(turned, tiles.block, tiles.winograd.outputs)
        for tiles in that_pay(*sizes, int(batch) if batch.is_static else 1)
    )
    return (*transformed, FilterForm(turned, block))
