"""The machine that pickles are programs for: a stack of plain values, and names never imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from maxtool.weights.cursor import Cursor

# So many names that are refused are told.
MAX_FOREIGN = 20

Arguments = tuple[Any, ...]
Call = Callable[[Arguments], object]


@dataclass(frozen=True, slots=True)
class ImportedName:
    """A name that a pickle wants imported. Nothing is."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class BadArguments(ValueError):
    """Error of a call in the table about malformed arguments."""


class Unsupported(ValueError):
    """Error of a call about valid arguments that are not supported."""


# Stands for an object whose name is not in the table.
FOREIGN = object()


class Machine:
    """The stack, the marks and the memo of one pickle; see :func:`pickle_reader.read`."""

    def __init__(
        self, cursor: Cursor, calls: Mapping[ImportedName, Call | None], persistent: Call
    ) -> None:
        self.cursor, self.calls, self.persistent = cursor, calls, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.foreign: dict[str, None] = {}

    def pop(self) -> Any:  # noqa: ANN401 - any value
        """Take the topmost value that belongs to the open mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise BadArguments("nothing is on the stack")
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        """Take everything since the last mark."""
        if not self.marks:
            raise BadArguments("no mark is on the stack")
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def top(self, type_: type) -> Any:  # noqa: ANN401 - of the type asked for, or foreign
        """The topmost value, left where it is; ``BadArguments`` if it is not of ``type_``."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise BadArguments("nothing is on the stack")
        value = self.stack[-1]
        if isinstance(value, type_) or value is FOREIGN:
            return value
        raise BadArguments(f"{type(value).__name__} where {type_.__name__} must be")

    def find(self, module: str, name: str) -> None:
        """Push a name; one that is not in the table is remembered and stands for nothing."""
        wanted = ImportedName(module, name)
        if wanted in self.calls:
            self.stack.append(wanted)
        else:
            if len(self.foreign) < MAX_FOREIGN:
                self.foreign[str(wanted)] = None
            self.stack.append(FOREIGN)

    def call(self, function: object, arguments: object) -> None:
        """Push what a name of the table makes of its arguments."""
        if function is FOREIGN or is_foreign(arguments):
            self.stack.append(FOREIGN)
            return
        call = self.calls.get(function) if isinstance(function, ImportedName) else None
        if call is None or not isinstance(arguments, tuple):
            raise BadArguments("the called object is not callable")
        self.stack.append(call(arguments))


def is_foreign(arguments: object) -> bool:
    """Return whether arguments hold what was not imported."""
    return isinstance(arguments, tuple) and any(item is FOREIGN for item in arguments)
