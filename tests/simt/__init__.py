"""Running CUDA kernels without a GPU: lowered TensorIR, thread by thread, in NumPy.

>>> run(kernel, x, weight, out)  # what the kernel writes is written to ``out``
"""

from __future__ import annotations

from typing import Any

from tests.simt.lowering import lower
from tests.simt.program import Program

__all__ = ["Program", "lower", "program", "run"]


def program(function: Any, *, shared_memory: int | None = None) -> Program:
    """A PrimFunc as a kernel factory returns it, to be called with arrays."""
    lowered = lower(function)
    if shared_memory is None:
        return Program(lowered)
    return Program(lowered, shared_memory=shared_memory)


def run(function: Any, *arguments: Any, updated: tuple[int, ...] = ()) -> None:
    """Run a PrimFunc once; see :class:`Program`."""
    program(function)(*arguments, updated=updated)
