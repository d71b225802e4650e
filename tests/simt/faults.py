"""Faults that the interpreter reports, each with its place in the program."""

from __future__ import annotations


class KernelFault(AssertionError):
    """A kernel does what a GPU would not do, or would do without saying that it is wrong.

    Args:
        problem: What is wrong, naming buffer, index and threads.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.statement = ""
        self.kernel = ""

    def __str__(self) -> str:
        at = f"\n  in: {self.statement}" if self.statement else ""
        return f"{self.kernel + ': ' if self.kernel else ''}{self.problem}{at}"


class Uninitialised(KernelFault):
    """A read of memory that nothing wrote."""


class OutOfBounds(KernelFault):
    """An access outside of an allocation."""


class Misaligned(KernelFault):
    """A vector access at an address that is not a multiple of its size."""


class Race(KernelFault):
    """Two threads touch one place, one of them writes, and no barrier lies between."""


class Divergence(KernelFault):
    """A barrier, shuffle or warp-wide instruction that not every thread it needs takes part in."""


class BadLaunch(KernelFault):
    """A grid, block or amount of shared memory that no GPU takes."""


class Aliased(KernelFault):
    """Two parameters that are one memory, of which something is written."""


class Unsupported(KernelFault):
    """The interpreter does not know the construct; it never guesses."""
