"""Collectives among devices that run one model: sums and concatenations of their parts.

Compiled code calls two functions of this name with a tensor to read and one to write; each thread
that runs a part of a model has joined a group before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from .errors import RunError
from .ffi import import_ffi
from .memory import Array
from .processor import Processor

ALL_REDUCE, ALL_GATHER = "maxtool.all_reduce", "maxtool.all_gather"
ALONE = "another device failed"

_joined = threading.local()
# From the arrays of all devices, in order of rank.
Combine: TypeAlias = Callable[[Sequence[Array]], Array]


class DeviceGroup:
    """Devices that run one model, each by a thread of its own; what they tell goes by the host."""

    def __init__(self, processors: list[Processor]) -> None:
        self._processors = processors
        self._parts: list[Any] = [None] * len(processors)
        self._meeting = threading.Barrier(len(processors))

    @contextmanager
    def joined(self, rank: int) -> Iterator[None]:
        """Run this thread as device ``rank`` inside the block; its failure ends all waiting."""
        _joined.member = (self, rank)
        try:
            yield
        except BaseException:
            self._meeting.abort()
            raise
        finally:
            _joined.member = None

    def begin(self) -> None:
        """Forget a call that failed."""
        self._meeting.reset()

    def exchange(
        self,
        rank: int,
        tensor: Any,  # noqa: ANN401 - tvm_ffi has no types
        result: Any,  # noqa: ANN401
        combine: Combine,
    ) -> None:
        """Write to a tensor what those of all devices, in order of rank, are combined to."""
        self._parts[rank] = self._processors[rank].arrays([tensor])[0]
        self._wait()
        combined = combine(self._parts)
        self._wait()  # until all have read the parts
        self._processors[rank].write(result, combined)

    def _wait(self) -> None:
        """Wait for all devices."""
        try:
            self._meeting.wait()
        except threading.BrokenBarrierError:
            raise RunError(ALONE) from None


def register() -> None:
    """Make the functions known to TVM's runtime, once, if there is one."""
    try:
        tvm_ffi = import_ffi()
    except ImportError:
        return
    for name, combine in COMBINED.items():
        if tvm_ffi.get_global_func(name, allow_missing=True) is None:
            tvm_ffi.register_global_func(name, partial(_exchange, combine))


def _exchange(combine: Combine, tensor: Any, result: Any) -> None:  # noqa: ANN401
    member = getattr(_joined, "member", None)
    if member is None:
        raise RunError("this is one part of a model on several devices, and runs with the others")
    group, rank = member
    group.exchange(rank, tensor, result, combine)


def _sum(parts: Sequence[Array]) -> Array:
    total = np.array(parts[0])
    for part in parts[1:]:  # in one order, so that all devices have the same sum
        total += part
    return total


COMBINED: dict[str, Combine] = {ALL_REDUCE: _sum, ALL_GATHER: np.stack}
