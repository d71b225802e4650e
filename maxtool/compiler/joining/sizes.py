"""Sizes of tensors, some of which are known when a model runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import tvm
from tvm import tirx
from tvm_ffi import structural_equal, structural_map, structural_walk

Expr: TypeAlias = Any  # tvm ships no types
Buffer: TypeAlias = Any
# A number, or an expression of variables.
Size: TypeAlias = Any


def sizes_of(tensor_type: Expr) -> tuple[Size, ...]:
    """The sizes of a tensor: numbers where they are fixed, expressions elsewhere."""
    return tuple(
        int(size) if isinstance(size, tirx.IntImm) else size for size in tensor_type.shape.values
    )


def variables_of(sizes: Iterable[Size]) -> dict[int, Expr]:
    """The variables that sizes are known by, by their identity."""
    found: list[Expr] = []
    for size in sizes:
        if not isinstance(size, int):
            structural_walk(size, (tvm.ir.Var, found.append))
    return {hash(each): each for each in found}


def renamed(expr: Expr, names: Mapping[int, Expr]) -> Expr:
    """An expression or a statement with other variables, or expressions, for some of its own."""
    return structural_map(expr, (tvm.ir.Var, lambda one: names.get(hash(one), one)))


def count_of(sizes: Sequence[Size]) -> Size:
    """The number of elements of so many sizes, simplified."""
    known = prod(size for size in sizes if isinstance(size, int))
    others = [size for size in sizes if not isinstance(size, int)]
    if not others:
        return known
    return tvm.sym.Analyzer().simplify(prod(others[1:], start=others[0]) * known)


def factors_of(count: Size) -> tuple[int, str]:
    """The number in a simplified count, and the text of what it is multiplied with.

    Counts with the same text are in the order of their numbers, whatever the variables are.
    """
    if isinstance(count, int | tirx.IntImm):
        return int(count), ""
    if isinstance(count, tirx.Mul) and isinstance(count.b, tirx.IntImm):
        return int(count.b), str(count.a)
    return 1, str(count)


def buffer_of(name: str, sizes: Sequence[Size], dtype: str) -> Buffer:
    """A buffer of some sizes."""
    return tirx.decl_buffer([integer(size) for size in sizes], dtype, name=name, layout=None)


def integer(size: Size) -> Expr:
    """A size as an expression."""
    return tirx.IntImm("int64", size) if isinstance(size, int) else size


def are_same(sizes: Sequence[Size], others: Sequence[Size]) -> bool:
    """Return whether sizes are equal by what is written."""
    pairs = zip(sizes, others, strict=False)
    return len(sizes) == len(others) and all(
        structural_equal(integer(one), integer(other), map_free_vars=False) for one, other in pairs
    )
