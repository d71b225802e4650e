"""The cache of a layer with a window, which has no more room than the window is wide.

Position ``p`` lies at ``p`` modulo the window, so a token takes the place of the one that no later
query sees. A step of one token writes, and attends to all that is there: in which order keys lie
does not matter to attention. Several tokens may overwrite keys that the first of them see; so old
keys are put in order in front of the new ones, attention reads those, and the cache is written for
the steps to come.

Chunks are as long as such a cache, so that each lies in it from its first place on. The keys of the
chunk that a step goes on are in order there, in front of which a query of it sees nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.dtype import DType
from maxtool.graph import Dim, Tensor, ops


class Seen(NamedTuple):
    """Keys and values that queries see up to their own, and the cache after the write."""

    parts: Cache
    location: Location  # of the first query among them
    cache: Cache | None


def attended_parts(
    form: CacheLayout,
    new: Cache,
    location: Location,
    cache: Cache | None,
    window: int | None,
    *,
    chunked: bool = False,
) -> Seen:
    """The keys and values that are attended to, and the written cache.

    Args:
        form: How they lie.
        new: Parts of new tokens.
        location: Where the first of them stands.
        cache: What was kept before them; None where nothing is kept.
        window: The positions that the cache has room for, where these are fewer than there may be.
        chunked: Whether so many positions are a chunk, and queries see none before their own.
    """
    if cache is None:
        return Seen(form.laid(new), location, None)
    if window is not None:
        return read_and_write(form, cache, new, location, window, chunked=chunked)
    written = form.written(cache, new, location)
    return Seen(written, location, written)


def place_among(
    location: Location, length: Dim, window: int | None, *, chunked: bool = False
) -> Location:
    """The place of the first of as many queries among what :func:`attended_parts` gave for them.

    ``window`` and ``chunked`` are as they are there, the former None where nothing is kept.
    """
    position, slot = location
    if window is None:
        return location
    before = position % window if chunked else ops.clamp(position, max=window)
    return (ops.clamp(before, max=window - 1), slot) if length == 1 else (before, None)


def read_and_write(
    form: CacheLayout,
    cache: Cache,
    new: Cache,
    location: Location,
    window: int,
    *,
    chunked: bool = False,
) -> Seen:
    """Write new parts, ``[batch, seq, kv_heads, ...]``, the first token's at ``location``.

    ``cache`` has room for ``window`` positions. Several tokens are of one text where it has slots.
    """
    (position, slot), length = location, new[0].shape[1]
    if length == 1:
        written = form.written(cache, new, (position % window, slot))
        place = place_among(location, length, window, chunked=chunked)
        return Seen(written, place, written)
    old = own_parts(cache, slot) if chunked else _in_order(form, cache, location, window)
    laid = form.laid(new)
    axes = form.axes
    joined = tuple(ops.concat(pair, axis) for *pair, axis in zip(old, laid, axes, strict=True))
    # Behind those of the old ones that there are, or that its chunk has.
    count = place_among(location, length, window, chunked=chunked)
    seen = form.written(joined, new, count)
    return Seen(seen, count, _overwritten(form, cache, new, location, window))


def _in_order(form: CacheLayout, cache: Cache, location: Location, window: int) -> Cache:
    """The positions before the first of ``location``, from the oldest in the window on."""
    position, slot = location
    first = ops.clamp(position - window, min=0)
    order = (first + ops.range(0, window, dtype=DType.int32, device=position.device)) % window
    return tuple(
        ops.gather(buffer, order, axis)
        for buffer, axis in zip(own_parts(cache, slot), form.axes, strict=True)
    )


def own_parts(cache: Cache, slot: Tensor | None) -> Cache:
    """The part of a text, which a cache with slots has beside others."""
    return cache if slot is None else tuple(ops.gather(buffer, slot, 0) for buffer in cache)


def _overwritten(
    form: CacheLayout, cache: Cache, new: Cache, location: Location, window: int
) -> Cache:
    """The cache with the last of the new parts in it.

    They end at some place in the cache, and go on from its end backwards; a write drops what lies
    outside. The latter are written first: they reach into the places of the former if there are
    more than fit.
    """
    (position, slot), length = location, new[0].shape[1]
    start = (position + count_of(length)) % window - count_of(length)
    behind = form.written(cache, new, (start + window, slot))
    return form.written(behind, new, (start, slot))


def count_of(size: Dim) -> Tensor | int:
    """A size as it is added to a position: a number where it is known."""
    if size.is_static:
        return int(size)
    return ops.shape_to_tensor([size]).cast(DType.int32)
