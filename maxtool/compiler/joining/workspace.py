"""Memory between the kernels of a region: large tensors share it with those that are not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import tirx

from maxtool.compiler.joining.sizes import Size, buffer_of, count_of, factors_of
from maxtool.dtype import DType

Buffer: TypeAlias = Any  # tvm ships no types

# Bytes below which a tensor has memory of its own. Memory that is used again makes threads wait for
# whoever reads what was there, and what is small stays in the caches anyway.
LEAST_SHARED = 1 << 16


@dataclass
class Workspace:
    """Memory that is taken for a region before its threads begin.

    Attributes:
        buffers: All that is taken, of one dimension.
    """

    buffers: list[Buffer] = field(default_factory=list)
    _free: list[Buffer] = field(default_factory=list)

    def take(self, sizes: Sequence[Size], dtype: str) -> Buffer:
        """Memory for a tensor: the smallest of what was given back that has room for it."""
        count = count_of(sizes)
        number, others = factors_of(count)
        fitting = [
            free
            for free in self._free
            if str(free.dtype) == dtype
            and _factors(free)[1] == others
            and _factors(free)[0] >= number
        ]
        if fitting:
            best = min(fitting, key=_factors)
            self._free = [free for free in self._free if free is not best]
            return best
        self.buffers.append(buffer_of("memory", [count], dtype))
        return self.buffers[-1]

    def give_back(self, buffer: Buffer) -> None:
        """Let other tensors have the memory of one that nothing reads any more, if it is large."""
        number, _ = _factors(buffer)
        if number * DType(str(buffer.dtype)).size_in_bytes >= LEAST_SHARED:
            self._free.append(buffer)

    @property
    def statements(self) -> list[tirx.AllocBuffer]:
        """The statements that take it."""
        return [tirx.AllocBuffer(buffer) for buffer in self.buffers]


def _factors(buffer: Buffer) -> tuple[int, str]:
    (count,) = buffer.shape
    return factors_of(count)
