"""Resources of each kernel on a GPU, as ptxas reports them while it generates machine code."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one kernel."""

    registers: int  # registers of each thread
    stack: int  # bytes of local memory of each thread; arrays whose indices are not known lie there
    spill_stores: int  # bytes that each thread writes there for want of registers
    spill_loads: int  # bytes that it reads back
    shared: int  # bytes of shared memory of each block, without what the launch adds

    @property
    def spills(self) -> bool:
        """Return whether it is slowed down by too few registers."""
        return bool(self.spill_stores or self.spill_loads)


def read_resources(log: str) -> dict[str, Resources]:
    """The resources of each kernel, by its name, from a log of ``ptxas -v`` for one architecture.

    Functions that were not inlined count towards the kernel that they are reported under.
    """
    parts = _ENTRY.split(log)[1:]
    return {name: _resources(text) for name, text in zip(parts[::3], parts[2::3], strict=True)}


def _resources(text: str) -> Resources:
    frames = [tuple(map(int, found)) for found in _FRAME.findall(text)]
    stack, stores, loads = (sum(numbers) for numbers in zip(*frames, strict=True))
    return Resources(
        registers=max(map(int, _USED.findall(text)), default=0),
        stack=stack,
        spill_stores=stores,
        spill_loads=loads,
        shared=sum(map(int, _SHARED.findall(text))),
    )
