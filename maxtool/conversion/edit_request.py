"""Requests to edit the tensors and the metadata of an output."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from maxtool.dtype import DType


@dataclass(frozen=True)
class TensorEdits:
    """Edits of the tensors of an output.

    Attributes:
        include: Patterns of names that are kept; all if there is none.
        exclude: Patterns of names that are left out.
        renames: Dotted segments, and what is written for them.
        casts: Patterns of names, and the element type of what matches; the last one counts.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    casts: tuple[tuple[str, DType], ...] = ()

    def selects(self, name: str) -> bool:
        """Return whether a tensor of this name is written."""
        included = not self.include or _matches(name, self.include)
        return included and not _matches(name, self.exclude)


@dataclass(frozen=True)
class MetadataEdits:
    """Edits of metadata: values by key, as text, and keys that are removed."""

    settings: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
