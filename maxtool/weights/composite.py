"""A weight that several tensors of a checkpoint make together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from maxtool.weights.tensor_info import TensorInfo

# Gives the data of a tensor as it is stored.
View = Callable[[TensorInfo], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class CompositeTensor(TensorInfo):
    """A weight seen as one tensor; name, type and shape are the weight's.

    File and offset are those of the part that holds the numbers.
    """

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The tensors of the file that make it."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def is_in_order(self) -> bool:
        """Return that no part of the file is the weight."""
        return False

    def read(self, view: View) -> NDArray[Any]:
        """The weight, or its blocks, from the data of its parts."""
        raise NotImplementedError


def stored_parts(info: TensorInfo) -> tuple[TensorInfo, ...]:
    """The tensors of the file behind a tensor: its parts, or itself."""
    return info.parts if isinstance(info, CompositeTensor) else (info,)
