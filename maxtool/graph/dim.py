"""Dimensions: a number known now, or a name whose number every call brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from numbers import Integral
from operator import index
from typing import TypeAlias, overload

DimLike: TypeAlias = "int | str | Dim"
ShapeLike: TypeAlias = "Iterable[DimLike]"


class Dim:
    """One dimension of a shape: static (an ``int``) or symbolic (a name).

    A symbolic name stands for one number in all the inputs of a call: ``"batch"`` in two input
    types means that their sizes agree, and a call in which they do not is refused.

    Args:
        value: A size of at least 0, a name, or a ``Dim``, which is copied.

    Raises:
        TypeError: If it is neither a whole number nor a name.
        ValueError: If the size is negative or the name is no identifier.
    """

    __slots__ = ("value",)

    def __init__(self, value: DimLike) -> None:
        plain = value.value if isinstance(value, Dim) else value
        if isinstance(plain, str):
            if not plain.isidentifier():
                raise ValueError(f"a symbolic dimension is named by an identifier, not {plain!r}")
            self.value: int | str = plain
        else:
            self.value = index(plain)
            if self.value < 0:
                raise ValueError(f"a dimension cannot be {self.value}")

    @property
    def is_static(self) -> bool:
        """Whether the size is known now."""
        return isinstance(self.value, int)

    def __int__(self) -> int:
        if isinstance(self.value, str):
            raise TypeError(f"dimension {self.value!r} is symbolic: its size is not known yet")
        return self.value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self.value == other.value
        return self.value == other if isinstance(other, Integral | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Dim({self.value!r})"

    def __str__(self) -> str:
        return str(self.value)


class Shape(Sequence[Dim]):
    """The dimensions of a tensor, slowest first. Equal to any sequence of the same sizes."""

    __slots__ = ("dims",)

    def __init__(self, dims: ShapeLike = ()) -> None:
        self.dims = tuple(dim if isinstance(dim, Dim) else Dim(dim) for dim in dims)

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """Whether every size is known now."""
        return all(dim.is_static for dim in self.dims)

    def static(self) -> tuple[int, ...]:
        """The sizes as numbers.

        Raises:
            TypeError: If a dimension is symbolic.
        """
        return tuple(int(dim) for dim in self.dims)

    def volume(self) -> tuple[int, Counter[str]]:
        """The element count: the product of the static sizes, and the symbolic factors."""
        static = prod(dim.value for dim in self.dims if isinstance(dim.value, int))
        return static, Counter(dim.value for dim in self.dims if isinstance(dim.value, str))

    @overload
    def __getitem__(self, index: int) -> Dim: ...
    @overload
    def __getitem__(self, index: slice) -> Shape: ...
    def __getitem__(self, index: int | slice) -> Dim | Shape:
        return Shape(self.dims[index]) if isinstance(index, slice) else self.dims[index]

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Iterator[Dim]:
        return iter(self.dims)

    def __add__(self, other: ShapeLike) -> Shape:
        return Shape([*self, *other])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Shape):
            return self.dims == other.dims
        if isinstance(other, tuple | list):
            pairs = zip(self.dims, other, strict=False)
            return len(self) == len(other) and all(one == two for one, two in pairs)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dims)

    def __repr__(self) -> str:
        return f"[{', '.join(str(dim) for dim in self.dims)}]"
