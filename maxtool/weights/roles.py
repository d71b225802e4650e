"""Roles of tensors: what the names of the same tensor of all layers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from maxtool.weights.names import MAX_DIGITS
from maxtool.weights.summary import ranges

Item = TypeVar("Item")

ANY = "*"
# Of numbers in a label; more are not told one by one.
LONGEST = 14


def numbered(name: str) -> tuple[str, tuple[str, ...]]:
    """The role of a tensor, ``*`` where its name has a number for a segment, and these numbers."""
    segments = name.split(".")
    role = ".".join(ANY if _is_number(segment) else segment for segment in segments)
    return role, tuple(segment for segment in segments if _is_number(segment))


def parted(name: str) -> tuple[str, str]:
    """A name at its first number: ``model.layers.3`` and the role within; nothing and the name."""
    segments = name.split(".")
    for index, segment in enumerate(segments[:-1]):
        if _is_number(segment):
            rest, _ = numbered(".".join(segments[index + 1 :]))
            return ".".join(segments[: index + 1]), rest
    return "", name


def layer_of(name: str) -> int | None:
    """The number of the layer that a tensor is of, the first in its name; ``None`` without one."""
    layer, _ = parted(name)
    return int(layer.rpartition(".")[2]) if layer else None


@dataclass(frozen=True, slots=True)
class Group(Generic[Item]):
    """Items of one role that are alike, with one label: ``blk.{0..21}.attn_q.weight``."""

    label: str
    items: tuple[Item, ...]


def groups(
    items: Iterable[Item], name: Callable[[Item], str], kind: Callable[[Item], object]
) -> list[Group[Item]]:
    """Items of one role and one ``kind``, together, in the order in which they begin."""
    alike: dict[object, list[Item]] = {}
    for item in items:
        alike.setdefault((numbered(name(item))[0], kind(item)), []).append(item)
    return [Group(label([name(item) for item in group]), tuple(group)) for group in alike.values()]


def label(names: Sequence[str]) -> str:
    """One label for names of one role, with ranges of their numbers."""
    role, _ = numbered(names[0])
    parts = iter(zip(*(numbered(name)[1] for name in names), strict=True))
    return ".".join(
        _range(next(parts)) if segment == ANY else segment for segment in role.split(".")
    )


def _range(numbers: Sequence[str]) -> str:
    different = sorted(set(numbers), key=int)
    if len(different) == 1:
        return different[0]
    text = f"{{{ranges(different)}}}"
    return text if len(text) <= LONGEST else ANY


def _is_number(segment: str) -> bool:
    return segment.isascii() and segment.isdigit() and len(segment) <= MAX_DIGITS
