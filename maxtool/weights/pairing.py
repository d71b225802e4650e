"""Pairs of tensors that say the same in two checkpoints, and how far their values lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from maxtool.weights.checkpoint import Checkpoint
from maxtool.weights.distance import Distance, apart
from maxtool.weights.names import selected
from maxtool.weights.tensor_info import TensorInfo
from maxtool.weights.weight_elements import Elements, FlatElements

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of a tensor: the names of its types, and the bits that an element takes."""

    types: str
    bits: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors of one shape.

    Attributes:
        name: Their name, in the first checkpoint.
        first: How the first is stored.
        second: How the second is, or the tensors that it is made from.
        nbytes: Bytes of the first's payload.
        opened: Makes what reads the elements of both.
    """

    name: str
    shape: Shape
    first: Storage
    second: Storage
    nbytes: int
    opened: Callable[[], tuple[Elements, Elements]] = field(repr=False)

    def measure(self, progress: Callable[[int], None] | None = None) -> Difference:
        """Read both and measure; ``progress`` is told the bytes of the first just done."""
        distance = apart(*self.opened(), progress)
        return Difference(self.name, self.shape, self.first, self.second, distance)


@dataclass(frozen=True, slots=True)
class Difference:
    """Distance of the values of two tensors of one name and shape."""

    name: str
    shape: Shape
    first: Storage
    second: Storage
    distance: Distance

    @property
    def at(self) -> Shape | None:
        """The index of the element with the largest difference; ``None`` if nothing differs."""
        if self.distance.at is None:
            return None
        if not self.shape:
            return ()
        return tuple(int(index) for index in np.unravel_index(self.distance.at, self.shape))


@dataclass(frozen=True, slots=True)
class Pairing:
    """The tensors of two checkpoints, paired.

    Attributes:
        pairs: Those of one shape in both, in natural order of names.
        only_first: Names of tensors that only the first has.
        only_second: Names of tensors that only the second has, in its own dialect.
        misshapen: Tensors that have another shape in each.
        recipe: What said which tensors of another dialect are meant; ``None`` where names did.
        notes: Why names had to do, of checkpoints in two dialects.
    """

    pairs: tuple[Pair, ...]
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()
    misshapen: tuple[tuple[str, Shape, Shape], ...] = ()
    recipe: str | None = None
    notes: tuple[str, ...] = ()


def by_names(left: Checkpoint, right: Checkpoint, pattern: str | None = None) -> Pairing:
    """Pair the tensors that have the same name in both, those that match a shell pattern."""
    names = selected(dict.fromkeys([*left.tensors, *right.tensors]), pattern)
    both = [name for name in names if name in left.tensors and name in right.tensors]
    shapes = [(name, left.tensors[name].shape, right.tensors[name].shape) for name in both]
    return Pairing(
        pairs=tuple(_named(left, right, name) for name, one, other in shapes if one == other),
        only_first=tuple(name for name in names if name not in right.tensors),
        only_second=tuple(name for name in names if name not in left.tensors),
        misshapen=tuple(entry for entry in shapes if entry[1] != entry[2]),
    )


def _named(left: Checkpoint, right: Checkpoint, name: str) -> Pair:
    one, other = left.tensors[name], right.tensors[name]

    def opened() -> tuple[Elements, Elements]:
        return FlatElements(left.stored(name)), FlatElements(right.stored(name))

    return Pair(name, one.shape, storage_of([one]), storage_of([other]), one.nbytes, opened)


def storage_of(tensors: Sequence[TensorInfo]) -> Storage:
    """Storage of what is made from some tensors."""
    types = "+".join(dict.fromkeys(tensor.type_name for tensor in tensors))
    elements = sum(math.prod(tensor.shape) for tensor in tensors)
    bits = 8 * sum(tensor.nbytes for tensor in tensors) / elements if elements else 0.0
    return Storage(types, bits)


def bits_per_weight(stored: Iterable[tuple[Shape, Storage]]) -> float:
    """The mean of the bits per element of tensors, weighted by their sizes."""
    sizes = [(math.prod(shape), storage.bits) for shape, storage in stored]
    elements = sum(size for size, _ in sizes)
    return sum(size * bits for size, bits in sizes) / elements if elements else 0.0
