"""Exchange within a warp, and barriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.dtypes import Array, Value
from tests.simt.faults import Divergence, Uninitialised, Unsupported
from tests.simt.memory import thread_name
from tests.simt.scope import WARP, WARP_BITS, WARP_SHIFT, Chunk, Scope

EVERY_LANE = (1 << WARP) - 1


def _chunk(scope: Scope) -> Chunk:
    if scope.chunk is None:
        raise Unsupported("something that only a kernel does, on the host")
    return scope.chunk


def _exchange(source: Callable[[Array, Array, int], Array]) -> Callable[..., Value]:
    """A shuffle: ``source(lane, argument, width)`` is the lane a thread reads, or itself."""

    def apply(
        scope: Scope, mask: Value, value: Value, argument: Value, width: Value, *_: Value
    ) -> Value:
        chunk = _chunk(scope)
        _require_named(scope, mask)
        lane = scope.of(chunk.thread) % WARP
        away = source(lane, scope.full(argument), int(width)) - lane
        result = np.arange(scope.size) + away if _whole(scope) else _found(scope, away)
        return value[..., result] if np.ndim(value) else value

    return apply


def _found(scope: Scope, away: Array) -> Array:
    """Return the positions, among a scope's lanes, of the threads at a distance."""
    chunk = _chunk(scope)
    reads = scope.lanes + away
    position = np.full(len(chunk.everyone), -1)
    position[scope.lanes] = np.arange(scope.size)
    inside = np.clip(reads, 0, len(position) - 1)
    result: Array = position[inside]
    same_block = (inside == reads) & (chunk.block[inside] == scope.of(chunk.block))
    if (missing := (result < 0) | ~same_block).any():
        who = thread_name(scope, int(np.flatnonzero(missing)[0]))
        raise Uninitialised(f"{who} shuffles from a thread that takes no part")
    return result


def _whole(scope: Scope) -> bool:
    """Return whether the lanes are whole warps."""
    chunk = _chunk(scope)
    if chunk.threads % WARP or scope.size % WARP:
        return False
    warps = scope.lanes >> WARP_SHIFT
    return scope.is_all or not (warps[::WARP] != warps[WARP - 1 :: WARP]).any()


def _require_named(scope: Scope, mask: Value) -> None:
    """Every thread that the mask names takes part, and only those."""
    chunk = _chunk(scope)
    if np.ndim(mask) == 0 and mask == EVERY_LANE and _whole(scope):
        return
    lane = scope.of(chunk.thread) % WARP
    warp = scope.lanes - lane
    present = np.zeros(len(chunk.everyone), np.uint64)
    np.bitwise_or.at(present, warp, np.uint64(1) << lane.astype(np.uint64))
    exists = np.minimum(WARP, chunk.threads - (scope.of(chunk.thread) - lane))
    named = np.asarray(scope.full(mask)).astype(np.uint64) & np.uint64(0xFFFFFFFF)
    named &= (np.uint64(1) << exists.astype(np.uint64)) - np.uint64(1)
    if (wrong := named != present[warp]).any():
        at = int(np.flatnonzero(wrong)[0])
        raise Divergence(
            f"{thread_name(scope, at)} shuffles with the mask {int(named[at]):#x}, "
            f"and threads {int(present[warp][at]):#x} of its warp take part"
        )


def _xor(lane: Array, argument: Array, width: int) -> Array:
    other = lane ^ argument
    return np.where(other // width <= lane // width, other, lane)


def _down(lane: Array, argument: Array, width: int) -> Array:
    other = lane + argument
    return np.where(other // width == lane // width, other, lane)


def _up(lane: Array, argument: Array, width: int) -> Array:
    other = lane - argument.astype(np.int64)
    return np.where(other >= lane // width * width, other, lane)


def _any(lane: Array, argument: Array, width: int) -> Array:
    source: Array = lane // width * width + argument % width
    return source


def require_warps(scope: Scope, what: str) -> None:
    """Require that whole warps take part.

    Raises:
        Divergence: If some threads of a warp do not.
    """
    chunk = _chunk(scope)
    if chunk.threads % WARP:
        raise Divergence(f"{what} in a block of {chunk.threads} threads, not of whole warps")
    if not _whole(scope):
        raise Divergence(f"{what} by a part of a warp")


def storage_sync(scope: Scope, kind: str, *_: Value) -> Value:
    """``__syncthreads`` or ``__syncwarp``."""
    if kind in ("shared", "shared.dyn"):
        return _block_barrier(scope)
    if kind == "warp":
        return _warp_barrier(scope)
    raise Unsupported(f"a barrier of kind {kind!r}")


def _block_barrier(scope: Scope) -> None:
    chunk = _chunk(scope)
    if not scope.is_all:
        arrived = np.bincount(scope.lanes // chunk.threads)
        if (late := (arrived != 0) & (arrived != chunk.threads)).any():
            block = int(np.flatnonzero(late)[0])
            raise Divergence(
                f"{arrived[block]} of {chunk.threads} threads arrive at a barrier "
                f"of block {block + chunk.first}"
            )
    chunk.time[scope.lanes] = ((chunk.time[scope.lanes] >> WARP_BITS) + 1) << WARP_BITS


def _warp_barrier(scope: Scope) -> None:
    chunk = _chunk(scope)
    if chunk.threads % WARP == 0:
        require_warps(scope, "__syncwarp")
    elif not scope.is_all:
        raise Divergence("__syncwarp by a part of a block that is not made of whole warps")
    chunk.time[scope.lanes] += 1


COLLECTIVES: dict[str, Callable[..., Any]] = {
    "tirx.tvm_warp_shuffle_xor": _exchange(_xor),
    "tirx.tvm_warp_shuffle_down": _exchange(_down),
    "tirx.tvm_warp_shuffle_up": _exchange(_up),
    "tirx.tvm_warp_shuffle": _exchange(_any),
    "tirx.cuda.__shfl_xor_sync": _exchange(_xor),
    "tirx.cuda.__shfl_down_sync": _exchange(_down),
    "tirx.cuda.__shfl_up_sync": _exchange(_up),
    "tirx.cuda.__shfl_sync": _exchange(_any),
    "tirx.tvm_storage_sync": storage_sync,
    "tirx.cuda.cta_sync": lambda scope: _block_barrier(scope),
    "tirx.cuda.warp_sync": lambda scope: _warp_barrier(scope),
}


def known(name: str) -> Callable[..., Any] | None:
    """The function of a name, if there is one; it takes the scope first."""
    return COLLECTIVES.get(name)
