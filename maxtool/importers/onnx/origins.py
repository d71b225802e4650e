"""Floats that are scaled whole numbers, so that operators can compute with those instead.

A model that is quantized has floats only between operators: what is read is made of bytes, and what
is computed becomes bytes again. Each such float tensor is traced as its operator says; where it is
remembered what it is made of, an operator may leave it unread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import BYTES, DType
from maxtool.graph import Graph, Tensor, Weight, ops
from maxtool.importers.onnx.values import is_known, known


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Whole numbers less a zero point, times a scale; both broadcast with the numbers."""

    numbers: Tensor
    zero: NDArray[Any]
    scale: NDArray[np.float32]

    @property
    def is_plain(self) -> bool:
        """Return whether all numbers have one scale, above 0, and one zero point."""
        return self.zero.ndim == self.scale.ndim == 0 and bool(self.scale > 0)

    def over(self, unit: float) -> Tensor:
        """The floats over another scale."""
        wide = ops.cast(self.numbers, DType.float32)
        if self.zero.any():
            wide = wide - known(self.zero.astype(np.float32))
        return wide * known((self.scale / np.float32(unit)).astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Sum that floats are, of some parts and of numbers that broadcast with them.

    Attributes:
        parts: The parts.
        offset: The numbers, if there are any.
        positive: Whether floats below 0 are 0 instead.
    """

    parts: tuple[Part, ...]
    offset: NDArray[np.float32] | None = None
    positive: bool = False

    @property
    def plain(self) -> Part | None:
        """The bytes with one scale that the floats are; None if they are something else."""
        part, *others = self.parts
        alone = not others and self.offset is None and not self.positive
        is_bytes = part.numbers.dtype in BYTES
        return part if alone and is_bytes and part.is_plain else None

    def over(self, unit: float, *, cut: bool) -> Tensor:
        """The floats over a scale; ``cut`` if those below 0 need no care, as they are cut later."""
        first, *others = (part.over(unit) for part in self.parts)
        for other in others:
            first = first + other
        if self.offset is not None:
            first = first + known((self.offset / np.float32(unit)).astype(np.float32))
        return ops.relu(first) if self.positive and not cut else first


class Origins:
    """Record of what tensors are made of; those of a graph that is traced inside are its own.

    Attributes:
        are_kept: Whether anything is remembered: not where floats are to be computed with.
    """

    def __init__(self, *, are_kept: bool = True) -> None:
        self.are_kept = are_kept
        self._origins: dict[int, tuple[Tensor, Graph | None, Origin]] = {}
        self._unsigned: dict[int, tuple[Tensor, Graph | None, Tensor]] = {}

    def note(self, tensor: Tensor, origin: Origin) -> Tensor:
        """Remember what a tensor is made of."""
        if self.are_kept:
            self._origins[id(tensor)] = (tensor, Graph.current(), origin)
        return tensor

    def of(self, tensor: Tensor | None) -> Origin | None:
        """Return what a tensor is made of, if that is known here."""
        _, graph, origin = self._origins.get(id(tensor), (None, None, None))
        return origin if graph is Graph.current() else None

    def note_unsigned(self, signed: Tensor, unsigned: Tensor) -> Tensor:
        """Remember that int8 are uint8 less 128."""
        self._unsigned[id(signed)] = (signed, Graph.current(), unsigned)
        return signed

    def levels(self, tensor: Tensor, zero: NDArray[Any]) -> tuple[Tensor, NDArray[Any]]:
        """Bytes and their zero point, without a sign if they are known so: kernels prefer that."""
        _, graph, unsigned = self._unsigned.get(id(tensor), (None, None, None))
        if unsigned is None or graph is not Graph.current():
            return tensor, zero
        return unsigned, zero.astype(np.int32) + 128


def elements(tensor: Tensor | None) -> NDArray[Any] | None:
    """The elements of a tensor that is known or a weight; None of others."""
    if tensor is None or not (isinstance(tensor, Weight) or is_known(tensor)):
        return None
    return tensor.to_numpy()
