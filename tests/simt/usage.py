"""Uses of each allocation: how narrow its accesses are, and whether it is written."""

from __future__ import annotations


class Usage:
    """Record of accesses, filled while a program is compiled, read when it runs."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}
        self._widths: dict[int, int] = {}
        self._written: set[int] = set()
        self._units: dict[int, int] = {}

    def alias(self, buffer: int, data: int) -> None:
        """``buffer`` is another name of the memory of ``data``."""
        self._roots[buffer] = data

    def access(self, buffer: int, width: int, *, writes: bool) -> None:
        """An access of ``width`` bytes."""
        self._widths[buffer] = min(width, self._widths.get(buffer, width))
        if writes:
            self._written.add(buffer)

    def root(self, buffer: int) -> int:
        """The parameter or allocation that a buffer is a name of."""
        while buffer in self._roots:
            buffer = self._roots[buffer]
        return buffer

    def unit(self, root: int) -> int:
        """Bytes of the narrowest access to an allocation."""
        if root not in self._units:
            widths = [width for buffer, width in self._widths.items() if self.root(buffer) == root]
            self._units[root] = min(widths, default=1)
        return self._units[root]

    def is_written(self, root: int) -> bool:
        """Return whether anything writes to an allocation."""
        return any(self.root(buffer) == root for buffer in self._written)
