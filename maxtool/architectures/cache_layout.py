"""The form of a decoder's cache, which the kernels of a target decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from maxtool.dtype import DType
from maxtool.graph import BufferType, DimLike, Tensor, ops

# Keys and values.
Cache: TypeAlias = tuple[Tensor, Tensor]

# Where tokens ``[batch, seq]`` stand: the position of the first, int32 ``[1]``, in a cache with a
# row for each text. Or positions and slots, int32 ``[batch]`` both, in a cache with slots.
Location: TypeAlias = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Layout of keys and values in memory; by default as the kernels of a CPU read them."""

    dtype: DType = DType.float32  # or float16, or bfloat16
    # Whether keys are ``[batch, kv_heads, head_dim, context]``, so that the scores of neighbouring
    # keys are neighbours, rather than as values are: ``[batch, kv_heads, context, head_dim]``.
    transposed: bool = True
    # Whether a layer with a window keeps no more positions than that: :mod:`.sliding_cache`.
    slides: bool = False
    # Texts that a state holds side by side, each in a slot of its own. With a single one caches are
    # for any batch of texts that go on together.
    slots: int = 1

    @property
    def rows(self) -> DimLike:
        """The first dimension of a cache."""
        return "batch" if self.slots == 1 else self.slots

    def room(self, window: int | None, context: int) -> int:
        """Positions that the cache of a layer has room for."""
        return min(window, context) if self.slides and window is not None else context

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of positions, of keys and of values."""
        return (3 if self.transposed else 2), 2

    def buffers(self, heads: int, dim: int, context: int) -> tuple[BufferType, BufferType]:
        """The types of the keys and the values of one layer."""
        sizes = (dim, context) if self.transposed else (context, dim)
        key = BufferType(self.dtype, [self.rows, heads, *sizes])
        return key, BufferType(self.dtype, [self.rows, heads, context, dim])

    def laid(self, key: Tensor, value: Tensor) -> Cache:
        """Keys and values ``[batch, seq, kv_heads, head_dim]`` as a cache would hold them."""
        if self.dtype is not key.dtype:
            key, value = key.cast(self.dtype), value.cast(self.dtype)
        order = [0, 2, 3, 1] if self.transposed else [0, 2, 1, 3]
        return key.permute(order), value.permute([0, 2, 1, 3])

    def written(self, cache: Cache, key: Tensor, value: Tensor, location: Location) -> Cache:
        """A cache with new keys and values, ``[batch, seq, kv_heads, head_dim]``, in it."""
        (keys, values), (at, slot) = cache, location
        written = ops.cache_write_key(keys, key, at, transposed=self.transposed, slot=slot)
        return written, ops.cache_write_value(values, value, at, slot=slot)
