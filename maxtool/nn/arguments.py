"""Checking the arguments of a compiled module: nothing that does not fit reaches a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from maxtool.graph import BufferType, Dim, Tensor, TensorType
from maxtool.nn.pytree import flatten

# The name of an argument, a type in it, and the tensor given.
Given: TypeAlias = tuple[str, TensorType, Tensor]


@dataclass(frozen=True)
class Arguments:
    """Names and types of a module's arguments, and the least sizes of dimensions, if above 0."""

    names: Sequence[str]
    types: Sequence[Any]
    least: Mapping[Dim, int]

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of a call in order, each of its type.

        Raises:
            ValueError: Naming each argument that does not fit, what was expected and what it is.
        """
        values = zip(self.names, self.types, self._ordered(args, kwargs), strict=True)
        leaves = [
            leaf for name, expected, value in values for leaf in _leaves(name, expected, value)
        ]
        _raise(problem for one in leaves if (problem := _misfit(*one)))
        _raise([*_disagreements(leaves), *_too_small(leaves, self.least)])
        return [tensor for _, _, tensor in leaves]

    def _ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Positional and named arguments in one list."""
        named = dict(zip(self.names, args, strict=False))
        missing = [name for name in self.names if name not in named and name not in kwargs]
        extra = [name for name in kwargs if name not in self.names or name in named]
        if missing or extra or len(args) > len(self.names):
            takes = f"takes {len(self.names)} arguments ({', '.join(self.names)})"
            got = f"got {len(args)}" + "".join(f" and {name!r}" for name in kwargs)
            raise ValueError(f"the compiled module {takes}, {got}")
        return [named[name] if name in named else kwargs[name] for name in self.names]


def _raise(problems: Iterable[str]) -> None:
    if listed := list(problems):
        raise ValueError("; ".join(listed))


def _leaves(name: str, expected: Any, value: Any) -> Iterator[Given]:  # noqa: ANN401 - nested
    """Each type in ``expected`` with the tensor that stands in its place in ``value``."""
    kinds, nesting = flatten(expected, TensorType)
    try:
        arrays, structure = flatten(value, (Tensor, np.ndarray))
    except TypeError:
        arrays, structure = [], None
    if structure != nesting:
        wanted, got = _described(expected), _described(value)
        raise ValueError(f"argument {name!r}: expected {wanted}, got {got}")
    for leaf_type, array in zip(kinds, arrays, strict=True):
        try:
            yield name, leaf_type, array if isinstance(array, Tensor) else Tensor(array)
        except ValueError as error:
            raise ValueError(f"argument {name!r}: expected {leaf_type}; {error}") from None


def _misfit(name: str, tensor_type: TensorType, tensor: Tensor) -> str:
    """Return the problem with one tensor; empty if there is none."""
    sizes = zip(tensor_type.shape, tensor.shape, strict=False)
    agree = all(size == dim or not dim.is_static for dim, size in sizes)
    if tensor.is_traced:
        return f"argument {name!r}: expected {tensor_type}, got a value of a graph being traced"
    if tensor.dtype is not tensor_type.dtype or tensor.rank != tensor_type.rank or not agree:
        return f"argument {name!r}: expected {tensor_type}, got {tensor.type}"
    on_host = tensor.device_array is None
    if isinstance(tensor_type, BufferType) and on_host and not tensor.to_numpy().flags.writeable:
        return f"argument {name!r}: expected {tensor_type}, got a read-only array"
    return ""


def _sizes(leaves: Iterable[Given]) -> Iterator[tuple[Dim, int, str]]:
    """Each dimension that is not a number, its size, and the argument that has it."""
    for name, leaf_type, tensor in leaves:
        for dim, size in zip(leaf_type.shape, tensor.shape, strict=True):
            if not dim.is_static:
                yield dim, int(size), name


def _disagreements(leaves: Sequence[Given]) -> Iterator[str]:
    first: dict[str, tuple[int, str]] = {}
    for dim, size, name in _sizes(leaves):
        if isinstance(dim.value, str):
            known, where = first.setdefault(dim.value, (size, name))
            if size != known:
                yield (
                    f"argument {name!r}: expected {dim.value!r} to be {known} as in {where!r},"
                    f" got {size}"
                )
    yield from _contradictions(leaves, {dim: size for dim, (size, _) in first.items()})


def _contradictions(leaves: Iterable[Given], sizes: Mapping[str, int]) -> Iterator[str]:
    """Dimensions that are expressions, and are not what the names in them say."""
    for dim, size, name in _sizes(leaves):
        if not isinstance(dim.value, str) and dim.size(sizes) != size:
            yield f"argument {name!r}: expected {dim} to be {dim.size(sizes)}, got {size}"


def _too_small(leaves: Sequence[Given], least: Mapping[Dim, int]) -> Iterator[str]:
    sizes = {dim.value: size for dim, size, _ in _sizes(leaves) if isinstance(dim.value, str)}
    for dim, size, name in _sizes(leaves):
        if size < least.get(dim, 0):
            wanted = f"{str(dim)!r} to be at least {least[dim]}"
            yield f"argument {name!r}: expected {wanted}, got {size}"
    shown = {dim for dim, _, _ in _sizes(leaves)}
    for dim, bound in least.items():
        known = dim not in shown and sizes.keys() >= set(dim.names())
        if known and dim.size(sizes) < bound:
            yield f"expected {str(dim)!r} to be at least {bound}, got {dim.size(sizes)}"


def _described(value: Any) -> str:  # noqa: ANN401 - types, tensors and whatever was passed
    if isinstance(value, TensorType):
        return str(value)
    if isinstance(value, Tensor):
        return str(value.type)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_described(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_described, value))
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return type(value).__name__
