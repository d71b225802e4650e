"""Sizes of an operation's operands: those that vary from call to call and those always equal.

A program is compiled for names in the place of sizes that have varied. Two places have one name
while their sizes have been equal in every call: what an operation demands to be equal always is,
and what was equal by chance gets a name of its own once it differs. So of sizes that vary, every
new combination brings an operation nearer to the program that takes them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

Sizes: TypeAlias = "tuple[tuple[int, ...], ...]"
# Sizes, with names for some.
Named: TypeAlias = "tuple[tuple[int | str, ...], ...]"
# A dimension of an operand.
Place: TypeAlias = "tuple[int, int]"
# Whether an operation takes operands of these sizes.
Takes: TypeAlias = Callable[[Named], bool]

# Families that are remembered of one operation: one for each shape of a weight, for example.
KEPT = 64


class ObservedSizes:
    """Record of what the calls of one operation have shown of its operands' sizes.

    Calls are of one family when 0 and 1, which have rules of their own (an empty sum, a dimension
    to broadcast), are in the same places, and so are the sizes that the operation must know.
    """

    def __init__(self) -> None:
        self._families: dict[tuple[Sizes, tuple[int, ...]], _Family] = {}
        self._known: set[Place] = set()
        self._varied: set[Place] = set()

    def __len__(self) -> int:
        return len(self._families)

    def named(self, sizes: Sizes, takes: Takes) -> Named:
        """The sizes of a call, with a name for each that varies and need not be known."""
        if (wider := self._without_ones(sizes)) is not None and takes(wider):
            return wider
        for _ in range(2):
            family = self._family(sizes)
            family.learn(sizes)
            self._varied |= family.varied()
            if takes(found := family.named()):
                return found
            self._known |= _demanded(family, takes)
            self._family(family.first)  # which is of another family now
        return sizes

    def _family(self, sizes: Sizes) -> _Family:
        key = self._key(sizes, {0, 1})
        if key not in self._families:
            while len(self._families) >= KEPT:
                del self._families[next(iter(self._families))]
            self._families[key] = _Family(sizes, self._varied, self._known)
        return self._families[key]

    def _without_ones(self, sizes: Sizes) -> Named | None:
        """The sizes as named in calls without ones, if a size of 1 is like any other to them."""
        family = self._families.get(self._key(sizes, {0}))
        return family.named() if family is not None and family.holds(sizes) else None

    def _key(self, sizes: Sizes, special: set[int]) -> tuple[Sizes, tuple[int, ...]]:
        pattern = tuple(tuple(min(n, 2) if n in special else 2 for n in size) for size in sizes)
        return pattern, tuple(sizes[i][axis] for i, axis in sorted(self._known))


class _Family:
    """The calls of one family, from the first one's sizes on: classes of places equal each time.

    Other families have shown which places vary; those that are ``known`` never get a name.
    """

    def __init__(self, sizes: Sizes, varied: set[Place], known: set[Place]) -> None:
        self.first = sizes
        self._ranks = [len(size) for size in sizes]
        self._varied = {member for member in varied if _size(sizes, member) > 1}
        free = [place for place in _places(sizes) if place not in known]
        self.classes = list(_together(free, lambda place: _size(sizes, place)))

    def holds(self, sizes: Sizes) -> bool:
        """Return whether sizes are equal where they always were, and vary where they did."""
        return all(
            {_size(sizes, member) for member in class_} == {_size(sizes, class_[0])}
            and (self._varies(class_) or _size(sizes, class_[0]) == _size(self.first, class_[0]))
            for class_ in self.classes
        )

    def learn(self, sizes: Sizes) -> None:
        """Take note of one more call."""
        self.classes = [
            part for class_ in self.classes for part in _together(class_, lambda p: _size(sizes, p))
        ]
        self._varied |= {
            member for member in _places(sizes) if _size(sizes, member) != _size(self.first, member)
        }

    def varied(self) -> set[Place]:
        """The places that vary."""
        return {member for class_ in self.varying() for member in class_}

    def varying(self) -> list[list[Place]]:
        """The classes that vary."""
        return [class_ for class_ in self.classes if self._varies(class_)]

    def named(self, only: Sequence[list[Place]] | None = None) -> Named:
        """The sizes with a name for each class that varies, or for some of them."""
        chosen = sorted(self.varying() if only is None else only)
        names = {member: f"n{number}" for number, class_ in enumerate(chosen) for member in class_}
        return tuple(
            tuple(names.get((i, axis), _size(self.first, (i, axis))) for axis in range(rank))
            for i, rank in enumerate(self._ranks)
        )

    def _varies(self, class_: list[Place]) -> bool:
        return any(member in self._varied for member in class_)


def _demanded(family: _Family, takes: Takes) -> set[Place]:
    """The places whose sizes an operation must know, as it does not take names in all."""
    classes = family.varying()
    refused = {member for class_ in classes for member in _refused(family, class_, takes)}
    return refused or family.varied()


def _refused(family: _Family, class_: list[Place], takes: Takes) -> set[Place]:
    """The places that cannot have a name, of those that may be equal by chance only."""
    if takes(family.named([class_])):
        return set()
    parts = list(_together(class_, lambda pair: pair[1]))
    if len(parts) == 1:
        parts = list(_together(class_, lambda place: place[0]))
    if len(parts) == 1:
        return set(class_)
    return {member for part in parts for member in _refused(family, part, takes)}


def _places(sizes: Sizes) -> Iterator[Place]:
    return ((i, axis) for i, shape in enumerate(sizes) for axis in range(len(shape)))


def _size(sizes: Sizes, axis: Place) -> int:
    return sizes[axis[0]][axis[1]]


def _together(places: list[Place], key: Callable[[Place], int]) -> Iterator[list[Place]]:
    """The places of each size, in the order in which they come first."""
    parts: dict[int, list[Place]] = {}
    for member in places:
        parts.setdefault(key(member), []).append(member)
    yield from parts.values()
