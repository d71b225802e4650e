"""Memory between the kernels of a region: large tensors share it with those that are not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import tirx

from maxtool.compiler.joining.sizes import Buffer, Size, buffer_of, count_of, factors_of
from maxtool.dtype import DType

# Bytes from which on a tensor shares memory with others. Memory that is used again makes threads
# wait for whoever reads what was there, and what is small stays in the caches anyway. Of a tensor
# whose size is known when a model runs, the number in it counts, such as the bytes of one image.
LEAST_SHARED = 1 << 16


@dataclass
class Workspace:
    """Memory that a region needs before its threads begin.

    Attributes:
        shared: What the caller gives, for large tensors one after the other: what a kernel has
            taken itself would be lost where it cannot have all.
        own: What the kernel takes itself, for small ones.
    """

    shared: list[Buffer] = field(default_factory=list)
    own: list[Buffer] = field(default_factory=list)
    _free: list[Buffer] = field(default_factory=list)

    def take(self, sizes: Sequence[Size], dtype: str) -> Buffer:
        """Memory for a tensor: the smallest of what was given back that has room for it."""
        count = count_of(sizes)
        buffer = buffer_of("memory", [count], dtype)
        if not _is_large(buffer):
            self.own.append(buffer)
            return buffer
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
        self.shared.append(buffer)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        """Let other tensors have the memory of one that nothing reads any more, if it is large."""
        if _is_large(buffer):
            self._free.append(buffer)

    @property
    def statements(self) -> list[tirx.AllocBuffer]:
        """The statements that take what the kernel takes itself."""
        return [tirx.AllocBuffer(buffer) for buffer in self.own]


def _is_large(buffer: Buffer) -> bool:
    return _factors(buffer)[0] * DType(str(buffer.dtype)).size_in_bytes >= LEAST_SHARED


def _factors(buffer: Buffer) -> tuple[int, str]:
    (count,) = buffer.shape
    return factors_of(count)
