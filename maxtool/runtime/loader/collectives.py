"""Collectives among devices that run one model: sums and concatenations of their parts.

Compiled code calls two functions of this name with a tensor to read and one to write; each thread
that runs a part of a model has joined a group before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .errors import RunError
from .processor import Processor

ALL_REDUCE, ALL_GATHER = "maxtool.all_reduce", "maxtool.all_gather"
ALONE = "another device failed"

_joined = threading.local()


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

    def exchange(self, rank: int, tensor: Any) -> list[Any]:  # noqa: ANN401 - tvm_ffi has no types
        """Return every device's tensor, in order of rank.

        It is theirs until all have come back here: call :meth:`done` when it was read.
        """
        self._parts[rank] = self._processors[rank].arrays([tensor])[0]
        self.done()
        return self._parts

    def done(self) -> None:
        """Wait for all devices."""
        try:
            self._meeting.wait()
        except threading.BrokenBarrierError:
            raise RunError(ALONE) from None

    def write(self, rank: int, tensor: Any, array: Any) -> None:  # noqa: ANN401
        """Copy an array into a tensor of a device."""
        self._processors[rank].write(tensor, array)


def register() -> None:
    """Make the functions known to TVM's runtime, once, if there is one."""
    try:
        import tvm_ffi
    except ImportError:
        return
    for name, function in ((ALL_REDUCE, _all_reduce), (ALL_GATHER, _all_gather)):
        if tvm_ffi.get_global_func(name, allow_missing=True) is None:
            tvm_ffi.register_global_func(name, function)


def _all_reduce(tensor: Any, result: Any) -> None:  # noqa: ANN401 - tvm_ffi has no types
    group, rank = _member()
    parts = group.exchange(rank, tensor)
    total = np.array(parts[0])
    for part in parts[1:]:  # in one order, so that all devices have the same sum
        total += part
    group.done()
    group.write(rank, result, total)


def _all_gather(tensor: Any, result: Any) -> None:  # noqa: ANN401
    group, rank = _member()
    stacked = np.stack(group.exchange(rank, tensor))
    group.done()
    group.write(rank, result, stacked)


def _member() -> tuple[DeviceGroup, int]:
    member = getattr(_joined, "member", None)
    if member is None:
        raise RunError("this is one part of a model on several devices, and runs with the others")
    group, rank = member
    return group, rank
