"""Requests to edit the tensors and the metadata of an output."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from maxtool.dtype import DType

ANY = "*"  # a segment in a rename


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

    def casts_tensor(self, name: str) -> bool:
        """Return whether a tensor, of this name before it is renamed, is cast if it has floats."""
        for old, new in self.renames:
            name = renamed(name, old, new)
        return _matches(name, tuple(pattern for pattern, _ in self.casts))


@dataclass(frozen=True)
class MetadataEdits:
    """Edits of metadata: values by key, as text, and keys that are removed."""

    settings: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()


def renamed(name: str, old: str, new: str) -> str:
    """Return a name with ``new`` for each run of its segments that is ``old``.

    A ``*`` in ``old`` is any one segment, and the next ``*`` in ``new`` stands for the same, of
    which there are no more.
    """
    parts, wanted, result = name.split("."), old.split("."), []
    while parts:
        run = parts[: len(wanted)]
        if len(run) == len(wanted) and all(w in (ANY, p) for w, p in zip(wanted, run, strict=True)):
            result += _filled(new, [p for w, p in zip(wanted, run, strict=True) if w == ANY])
            parts = parts[len(wanted) :]
        else:
            result.append(parts.pop(0))
    return ".".join(result)


def _filled(new: str, segments: list[str]) -> list[str]:
    """The segments of ``new``, with those that were there for each ``*``."""
    rest = iter(segments)
    return [next(rest) if part == ANY else part for part in new.split(".") if part]


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
