"""Dimensions: numbers known now, names whose numbers a call brings, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import total_ordering
from math import prod
from numbers import Integral
from operator import add, index, mul, sub
from typing import Self, TypeAlias, overload

from maxtool.graph.polynomial import Polynomial

DimLike: TypeAlias = "int | str | Dim"
ShapeLike: TypeAlias = "Iterable[DimLike]"


def _operator(
    combine: Callable[[Polynomial, Polynomial], Polynomial],
) -> Callable[[Dim, DimLike], Dim]:
    def operate(dim: Dim, other: DimLike) -> Dim:
        if isinstance(other, Integral):  # which may be negative, as no dimension is
            return Dim.of(combine(dim.polynomial, Polynomial.of(int(other))))
        if isinstance(other, Dim | str):
            return Dim.of(combine(dim.polynomial, Dim(other).polynomial))
        other_side: Dim = NotImplemented
        return other_side

    return operate


class Dim:
    """One dimension of a shape: static (an ``int``), symbolic (a name), or algebraic.

    A symbolic name stands for one number in all the inputs of a call: ``"batch"`` in two input
    types means that their sizes agree, and a call in which they do not is refused. Sums,
    differences and products of dimensions, and quotients rounded down, are dimensions::

        Dim("n") + 1, 2 * Dim("n") * Dim("m"), Dim("n") // 2

    Args:
        value: A size of at least 0, a name, or a ``Dim``, which is copied.

    Raises:
        TypeError: If it is neither a whole number nor a name, or not what the kind of dimension is.
        ValueError: If the size is negative or the name is no identifier.
    """

    __slots__ = ("value",)

    value: int | str | Polynomial

    def __new__(cls, value: DimLike | Polynomial) -> Self:
        """A dimension of the kind that ``value`` is of."""
        plain = value.value if isinstance(value, Dim) else value
        named = SymbolicDim if isinstance(plain, str) else StaticDim
        dim_type: type[Dim] = AlgebraicDim if isinstance(plain, Polynomial) else named
        if not issubclass(dim_type, cls):
            raise TypeError(f"{plain!r} is not a valid {cls.__name__}")
        return object.__new__(dim_type)

    def __getnewargs__(self) -> tuple[int | str | Polynomial]:
        return (self.value,)

    def __init__(self, value: DimLike | Polynomial) -> None:
        plain = value.value if isinstance(value, Dim) else value
        self.value = plain if isinstance(plain, str | Polynomial) else index(plain)
        if isinstance(self.value, str) and not self.value.isidentifier():
            raise ValueError(f"a symbolic dimension is named by an identifier, not {plain!r}")
        if isinstance(self.value, int) and self.value < 0:
            raise ValueError(f"a dimension cannot be {self.value}")

    @classmethod
    def of(cls, polynomial: Polynomial) -> Dim:
        """The dimension that a polynomial is; a ``ValueError`` for a negative number."""
        return cls(polynomial.plain)

    @property
    def is_static(self) -> bool:
        """Return whether the size is known now."""
        return isinstance(self.value, int)

    @property
    def polynomial(self) -> Polynomial:
        """The size as a polynomial in names."""
        return Polynomial.of(self.value)

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbolic dimensions that the size depends on."""
        return [SymbolicDim(name) for name in self.names()]

    def names(self) -> list[str]:
        """The names that the size depends on."""
        return list(dict.fromkeys(self.polynomial.names()))

    def size(self, sizes: Mapping[str, int]) -> int:
        """The size, where those of the names are known; a ``KeyError`` if one is not."""
        return int(self.polynomial.evaluate(sizes))

    def __int__(self) -> int:
        if not isinstance(self.value, int):
            raise TypeError(f"dimension {str(self)!r} is symbolic: its size is not known yet")
        return self.value

    __index__ = __int__

    __add__ = __radd__ = _operator(add)
    __mul__ = __rmul__ = _operator(mul)
    __sub__, __rsub__ = _operator(sub), _operator(lambda left, right: right - left)

    def __neg__(self) -> Dim:
        return self * -1

    def __floordiv__(self, other: DimLike) -> Dim:
        """Divided and rounded down.

        Raises:
            ValueError: If the divisor is not a number above 0, and does not divide exactly either.
        """
        divisor = Dim(other)
        if isinstance(divisor.value, int) and divisor.value > 0:
            return Dim.of(self.polynomial // divisor.value)
        exact = None if divisor == 0 else self.polynomial.divided(divisor.polynomial)
        if exact is None:
            raise ValueError(f"dimension {self} cannot be divided by {divisor}")
        return Dim.of(exact)

    def __rfloordiv__(self, other: int) -> Dim:
        return Dim(other) // self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self.value == other.value
        return self.value == other if isinstance(other, Integral | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Dim({self.value!r})" if isinstance(self.value, int | str) else f"Dim({self})"

    def __str__(self) -> str:
        return str(self.value)


@total_ordering
class StaticDim(Dim):
    """A dimension whose size is known now. It is ordered as its size is."""

    __slots__ = ()

    @property
    def dim(self) -> int:
        """The size."""
        return int(self)

    def __lt__(self, other: object) -> bool:
        if isinstance(other, StaticDim | Integral):
            return int(self) < int(other)
        return NotImplemented

    # total_ordering takes these from the class itself.
    __eq__ = Dim.__eq__
    __hash__ = Dim.__hash__


class SymbolicDim(Dim):
    """A dimension known by a name, whose size each call brings."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name."""
        return str(self)


class AlgebraicDim(Dim):
    """A dimension computed from symbolic ones; made by computing with them."""

    __slots__ = ()


class Shape(Sequence[Dim]):
    """The dimensions of a tensor, slowest first. Equal to any sequence of the same sizes."""

    __slots__ = ("dims",)

    def __init__(self, dims: ShapeLike = ()) -> None:
        self.dims = tuple(dim if isinstance(dim, Dim) else Dim(dim) for dim in dims)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """Return whether every size is known now."""
        return all(dim.is_static for dim in self.dims)

    def static(self) -> tuple[int, ...]:
        """The sizes as numbers; a ``TypeError`` if a dimension is symbolic."""
        return tuple(int(dim) for dim in self.dims)

    def volume(self) -> Dim:
        """The element count."""
        known = Dim(prod(dim.value for dim in self.dims if isinstance(dim.value, int)))
        return prod((dim for dim in self.dims if not dim.is_static), start=known)

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
            return len(self) == len(other) and all(left == right for left, right in pairs)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dims)

    def __repr__(self) -> str:
        return f"[{', '.join(str(dim) for dim in self.dims)}]"
