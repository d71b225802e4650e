"""Expressions of symbolic sizes, in a form in which equal ones are equal.

A polynomial with whole coefficients in sizes that have names, and in quotients, rounded down, of
other polynomials by a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

# What a product is made of.
Atom: TypeAlias = "str | Quotient"
# The factors of a product in order; none of them for the constant.
Product: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True, slots=True)
class Quotient:
    """``dividend // divisor``; what can be divided exactly was taken out of the dividend."""

    dividend: Polynomial
    divisor: int

    def __str__(self) -> str:
        text = str(self.dividend)
        return f"{text} // {self.divisor}" if text.isidentifier() else f"({text}) // {self.divisor}"


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products, each with a coefficient other than 0, in order."""

    terms: tuple[tuple[Product, int], ...]

    @classmethod
    def of(cls, value: int | str | Polynomial) -> Polynomial:
        """A number, the size of that name, or a polynomial as it is."""
        if isinstance(value, Polynomial):
            return value
        return _sum([((value,), 1)]) if isinstance(value, str) else _sum([((), value)])

    @property
    def plain(self) -> int | str | Polynomial:
        """The number or the name that this is, if it is one."""
        if not self.terms:
            return 0
        (product, factor), *rest = self.terms
        if rest:
            return self
        if not product:
            return factor
        (atom, *others) = product
        return atom if factor == 1 and not others and isinstance(atom, str) else self

    @property
    def constant(self) -> int:
        """The constant term: the value where all sizes are 0 and quotients are left out."""
        return dict(self.terms).get((), 0)

    def names(self) -> Iterator[str]:
        """The names in it, in order, perhaps several times."""
        for product, _ in self.terms:
            for atom in product:
                yield from atom.dividend.names() if isinstance(atom, Quotient) else (atom,)

    def evaluate(self, sizes: Mapping[str, Any], unit: Any = 1) -> Any:  # noqa: ANN401
        """The value for sizes of any kind that can be added, multiplied and divided by ``//``.

        ``unit`` is the number 1 of that kind; a name without a size is a ``KeyError``.
        """
        total = 0 * unit
        for product, factor in self.terms:
            values = [_evaluate(atom, sizes, unit) for atom in product]
            total = total + prod(values, start=factor * unit)
        return total

    def __add__(self, other: Polynomial) -> Polynomial:
        return _sum((*self.terms, *other.terms))

    def __neg__(self) -> Polynomial:
        return _sum((product, -factor) for product, factor in self.terms)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        return _sum(
            (_ordered((*left, *right)), factor * times)
            for left, factor in self.terms
            for right, times in other.terms
        )

    def __floordiv__(self, divisor: int) -> Polynomial:
        """Divided and rounded down: the terms that can be divided, and a quotient of the others.

        A quotient that is divided once more is one of the product of both numbers.
        """
        if (inner := self._quotient()) is not None:
            more = Polynomial.of(self.constant * inner.divisor)
            return (inner.dividend + more) // (inner.divisor * divisor)
        whole = [(product, f // divisor) for product, f in self.terms if f % divisor == 0]
        rest = [(product, f) for product, f in self.terms if f % divisor]
        constant = dict(rest).get((), 0)
        whole.append(((), constant // divisor))
        left = _sum([*((p, f) for p, f in rest if p), ((), constant % divisor)])
        if not any(product for product, _ in left.terms):
            return _sum(whole)
        return _sum([*whole, ((Quotient(left, divisor),), 1)])

    def _quotient(self) -> Quotient | None:
        """The quotient that this is, apart from a constant."""
        parts = [(product, factor) for product, factor in self.terms if product]
        if len(parts) != 1 or parts[0][1] != 1 or len(parts[0][0]) != 1:
            return None
        (atom,) = parts[0][0]
        return atom if isinstance(atom, Quotient) else None

    def divided(self, divisor: Polynomial) -> Polynomial | None:
        """The polynomial that times ``divisor`` is this one; None if none is found.

        Of a divisor of several products only one that is a single product is.
        """
        if not divisor.terms:
            return None
        if len(divisor.terms) > 1:
            leading = Polynomial(self.terms[:1]).divided(Polynomial(divisor.terms[:1]))
            return leading if leading is not None and leading * divisor == self else None
        ((factors, number),) = divisor.terms
        parts = [_without(product, factors) for product, _ in self.terms]
        if any(part is None for part in parts) or any(f % number for _, f in self.terms):
            return None
        pairs = zip(parts, self.terms, strict=True)
        return _sum((part, f // number) for part, (_, f) in pairs if part is not None)

    def __str__(self) -> str:
        texts = [_text(product, factor) for product, factor in self.terms]
        return " + ".join(texts).replace("+ -", "- ") or "0"


def _evaluate(atom: Atom, sizes: Mapping[str, Any], unit: Any) -> Any:  # noqa: ANN401
    if isinstance(atom, str):
        return sizes[atom]
    return atom.dividend.evaluate(sizes, unit) // atom.divisor


def _sum(terms: Iterable[tuple[Product, int]]) -> Polynomial:
    """Terms in the order of their degree, the constant last; equal products joined."""
    total: Counter[Product] = Counter()
    for product, factor in terms:
        total[product] += factor
    present = [(product, factor) for product, factor in total.items() if factor]
    return Polynomial(tuple(sorted(present, key=lambda term: (-len(term[0]), str(term[0])))))


def _ordered(product: Product) -> Product:
    return tuple(sorted(product, key=str))


def _without(product: Product, factors: Product) -> Product | None:
    """``product`` without some of its factors; None if it has not all of them."""
    left = Counter(product)
    left.subtract(Counter(factors))
    if min(left.values(), default=0) < 0:
        return None
    return _ordered(tuple(left.elements()))


def _text(product: Product, factor: int) -> str:
    if not product:
        return str(factor)
    names = [f"({atom})" if isinstance(atom, Quotient) else atom for atom in product]
    if len(product) == 1 and factor == 1:
        return str(product[0])
    if factor == -1:
        return f"-{' * '.join(names)}"
    return " * ".join([*([] if factor == 1 else [str(factor)]), *names])
