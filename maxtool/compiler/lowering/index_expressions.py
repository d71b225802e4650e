"""Tensor expressions of operations that move elements: where each one of the result comes from.

Sizes that may be symbolic are operands too, so that TVM finds their variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from tvm import te, tirx

from maxtool.compiler.lowering.tensor_expressions import Compute, Expr, broadcast_index

Sizes: TypeAlias = Sequence[Any]


def copy(x: Expr) -> Expr:
    """The same elements in memory of their own."""
    return te.compute(x.shape, lambda *i: x(*i), name="copy")


def nothing(dtype: str) -> Compute:
    """A tensor without elements."""
    return lambda sizes: te.compute(sizes, lambda *_: tirx.const(0, dtype), name="nothing")


def broadcast_to(x: Expr, sizes: Sizes) -> Expr:
    """The elements repeated along dimensions that are missing or 1."""
    return te.compute(sizes, lambda *i: x(*broadcast_index(i, x.shape)), name="broadcast")


def slices(steps: Sequence[int]) -> Compute:
    """Take ``size`` elements of each dimension, the first at ``start``."""

    def compute(x: Expr, starts: Sizes, sizes: Sizes) -> Expr:
        def element(*index: Expr) -> Expr:
            dims = zip(starts, index, steps, strict=True)
            return x(*(start + at * step for start, at, step in dims))

        return te.compute(sizes, element, name="slice")

    return compute


def concat(axis: int) -> Compute:
    """The operands one after the other."""

    def compute(*operands: Expr) -> Expr:
        *tensors, sizes = operands
        ends = [tensors[0].shape[axis]]
        for tensor in tensors[1:]:
            ends.append(ends[-1] + tensor.shape[axis])

        def element(*index: Expr) -> Expr:
            at = index[axis]
            value = tensors[-1](*_moved(index, axis, ends[-2]))
            for number in range(len(tensors) - 2, -1, -1):
                start = ends[number - 1] if number else 0
                own = tensors[number](*_moved(index, axis, start))
                value = tirx.if_then_else(at < ends[number], own, value)
            return value

        return te.compute(sizes, element, name="concat")

    return compute


def _moved(index: Sequence[Expr], axis: int, by: Expr) -> list[Expr]:
    return [at - by if dim == axis else at for dim, at in enumerate(index)]


def pad(before: Sequence[int]) -> Compute:
    """The elements inside, one value around them."""

    def compute(x: Expr, value: Expr, sizes: Sizes) -> Expr:
        def element(*index: Expr) -> Expr:
            own = [at - low for at, low in zip(index, before, strict=True)]
            inside = [tirx.const(1, "bool")]  # for a scalar
            inside += [0 <= at for at in own]  # noqa: SIM300 - an expression on the left
            inside += [at < size for at, size in zip(own, x.shape, strict=True)]
            return tirx.if_then_else(tirx.all(*inside), x(*own), value())

        return te.compute(sizes, element, name="pad")

    return compute


def gather_nd(batch: int, depth: int) -> Compute:
    """Return elements by indices of ``depth`` dimensions each, after the first ``batch``."""

    def compute(x: Expr, indices: Expr) -> Expr:
        rows = len(indices.shape) - 1

        def element(*index: Expr) -> Expr:
            named = [
                nearest(indices(*index[:rows], number), x.shape[batch + number])
                for number in range(depth)
            ]
            return x(*index[:batch], *named, *index[rows:])

        sizes = [*indices.shape[:-1], *x.shape[batch + depth :]]
        return te.compute(sizes, element, name="gather")

    return compute


def rows_of(x: Expr, indices: Expr) -> Expr:
    """Return the row of a matrix that each index of the first dimensions of ``x`` is; -1 for none.

    ``indices`` is ``[m, k]``: numbers of elements in the first ``k`` dimensions of ``x``.
    """
    depth = int(indices.shape[1])
    limits = x.shape[:depth]

    def row(i: Expr) -> Expr:
        named = [from_first(indices(i, number), limits[number]) for number in range(depth)]
        checks = [at >= 0 for at in named]
        checks += [at < limit for at, limit in zip(named, limits, strict=True)]
        terms = [at * prod(limits[number + 1 :]) for number, at in enumerate(named)]
        total = sum(terms[1:], start=terms[0])
        return tirx.Select(tirx.all(*checks), total, tirx.const(-1, "int64"))

    return te.compute((indices.shape[0],), row, name="rows")


def nearest(index: Expr, size: Expr) -> Expr:
    """Return the nearest index that exists, if any does."""
    return tirx.max(tirx.min(from_first(index, size), size - 1), tirx.const(0, "int64"))


def from_first(index: Expr, size: Expr) -> Expr:
    """Return an index as an int64; a negative one counts from the last element."""
    if str(index.ty) == "uint64":  # so that none is negative afterwards
        index = tirx.min(index, tirx.const((1 << 63) - 1, "uint64"))
    wide = index.astype("int64")
    return wide if "u" in str(index.ty) else tirx.Select(wide < 0, wide + size, wide)


def last(x: Expr) -> Expr:
    """The last element of an int64 vector, as a vector; 0 where there is none."""
    size, zero = x.shape[0], tirx.const(0, "int64")
    return te.compute((1,), lambda _: tirx.if_then_else(size > 0, x(size - 1), zero), name="last")


def numbers(sizes: Sizes) -> Expr:
    """The numbers from 0 on."""
    return te.compute(sizes, lambda i: i.astype("int64"), name="numbers")


def sequence(start: Expr, step: Expr, sizes: Sizes) -> Expr:
    """``start``, ``start + step`` and so on."""
    dtype = str(start().ty)
    return te.compute(sizes, lambda i: start() + i.astype(dtype) * step(), name="range")


def shape(sizes: Sizes) -> Expr:
    """The sizes themselves."""

    def element(i: Expr) -> Expr:
        value = tirx.const(0, "int64")
        for number, size in enumerate(sizes):
            value = tirx.Select(tirx.EQ(i, number), size, value)
        return value

    return te.compute((len(sizes),), element, name="shape")
