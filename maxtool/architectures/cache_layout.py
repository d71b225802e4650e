"""The form of a decoder's cache, which the kernels of a target decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from maxtool.dtype import DType
from maxtool.graph import BufferType, DimLike, Tensor, ops
from maxtool.graph.ops.quantized_cache import BLOCK, WORD

# Keys and values; quantized, the scales of each follow it.
Cache: TypeAlias = tuple[Tensor, ...]

# The order in which a cache has the dimensions of ``[batch, seq, heads, width]``, by the axis of
# positions.
ORDERS = {2: [0, 2, 1, 3], 3: [0, 2, 3, 1]}

# Where tokens ``[batch, seq]`` stand: the position of the first, int32 ``[1]``, in a cache with a
# row for each text. Or positions and slots, int32 ``[batch]`` both, in a cache with slots.
Location: TypeAlias = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Layout of keys and values in memory; by default as the kernels of a CPU read them."""

    # Or float16, or bfloat16. int8 is in blocks of Q8_0, with a scale for each 32 elements of a
    # head, and keys are transposed, four elements of a head in an int32.
    dtype: DType = DType.float32
    # Whether keys are ``[batch, kv_heads, head_dim, context]``, so that the scores of neighbouring
    # keys are neighbours, rather than as values are: ``[batch, kv_heads, context, head_dim]``.
    transposed: bool = True
    # Whether a layer with a window keeps no more positions than that: :mod:`.sliding_cache`.
    slides: bool = False
    # Texts that a state holds side by side, each in a slot of its own. With a single one caches are
    # for any batch of texts that go on together.
    slots: int = 1
    # Whether a token sees none of those behind it that are read in the same call.
    causal: bool = True

    @property
    def rows(self) -> DimLike:
        """The first dimension of a cache."""
        return "batch" if self.slots == 1 else self.slots

    def room(self, window: int | None, context: int) -> int:
        """Positions that the cache of a layer has room for."""
        return min(window, context) if self.slides and window is not None else context

    @property
    def is_quantized(self) -> bool:
        """Return whether it is in blocks."""
        return self.dtype is DType.int8

    @property
    def positions(self) -> dict[str, int]:
        """The axis of positions of each part, by name."""
        axes = {"key": 3 if self.transposed else 2, "value": 2}
        return {name + suffix: axis for name, axis in axes.items() for suffix in self._suffixes}

    @property
    def axes(self) -> tuple[int, ...]:
        """The axis of positions of each part, in order."""
        return tuple(self.positions.values())

    @property
    def _suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of what keys, or values, consist of."""
        return ("", "_scale") if self.is_quantized else ("",)

    def buffers(self, heads: int, dim: int, context: int) -> dict[str, BufferType]:
        """The parts of the cache of one layer, by name."""
        parts = {}
        for name, is_turned in (("key", self.transposed), ("value", False)):
            for suffix in self._suffixes:
                width, dtype = dim, self.dtype
                if suffix:
                    width, dtype = dim // BLOCK, DType.float16
                elif self.is_quantized and is_turned:
                    width, dtype = dim // WORD, DType.int32
                sizes = (width, context) if is_turned else (context, width)
                parts[name + suffix] = BufferType(dtype, [self.rows, heads, *sizes])
        return parts

    def parts(self, key: Tensor, value: Tensor) -> Cache:
        """Keys and values ``[batch, seq, kv_heads, head_dim]`` as they are written."""
        if not self.is_quantized:
            return key, value
        return *ops.quantize_q8_0(key, packed=True), *ops.quantize_q8_0(value)

    def laid(self, parts: Cache) -> Cache:
        """New parts as a cache would hold them."""
        return tuple(self._laid(part, axis) for part, axis in zip(parts, self.axes, strict=True))

    def _laid(self, part: Tensor, axis: int) -> Tensor:
        if part.dtype is not self.dtype and not self.is_quantized:
            part = part.cast(self.dtype)
        return part.permute(ORDERS[axis])

    def written(self, cache: Cache, parts: Cache, location: Location) -> Cache:
        """A cache with new parts in it."""
        (at, slot), half = location, len(parts) // 2
        pairs = list(zip(cache, parts, strict=True))
        keys = [
            ops.cache_write_key(kept, new, at, transposed=self.transposed, slot=slot)
            for kept, new in pairs[:half]
        ]
        values = (ops.cache_write_value(kept, new, at, slot=slot) for kept, new in pairs[half:])
        return *keys, *values

    def attention(
        self,
        query: Tensor,
        cache: Cache,
        location: Location,
        **options: Any,  # noqa: ANN401 - of scores, and sinks
    ) -> Tensor:
        """Attention of queries ``[batch, seq, heads, head_dim]`` to what a cache holds."""
        position, slot = location
        options |= {"slot": slot, "causal": self.causal}
        if self.is_quantized:
            key, key_scale, value, value_scale = cache
            keys, values = (key, key_scale), (value, value_scale)
            return ops.quantized_attention(query, keys, values, position, **options)
        key, value = cache
        return ops.attention(query, key, value, position, transposed=self.transposed, **options)

    def attention_to_all(
        self, query: Tensor, cache: Cache, mask: Tensor | None, *, scale: float
    ) -> Tensor:
        """Attention of queries ``[batch, seq, heads, head_dim]`` to all that a cache has room for.

        ``mask`` is as :func:`maxtool.graph.ops.scaled_dot_product_attention` has it.
        """
        key, value = (part.cast(query.dtype) for part in cache)
        keys = key.permute([0, 1, 3, 2]) if self.transposed else key
        heads = query.permute([0, 2, 1, 3])
        mixed = ops.scaled_dot_product_attention(heads, keys, value, mask, scale=scale)
        return mixed.permute([0, 2, 1, 3])
