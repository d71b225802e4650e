"""Functions of one tensor or of two that apply an operation and do nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from maxtool.graph.ops.operation_table import Infer, apply, rule
from maxtool.graph.tensor import Tensor, TensorLike


class Unary(Protocol):
    """Function of a tensor."""

    def __call__(self, x: TensorLike) -> Tensor:
        """Apply the operation."""
        ...


class Binary(Protocol):
    """Function of two tensors."""

    def __call__(self, x: TensorLike, y: TensorLike) -> Tensor:
        """Apply the operation."""
        ...


Function = TypeVar("Function", bound=Callable[..., Any])


def unary(infer: Infer, name: str, doc: str) -> Unary:
    """Define an operation on one tensor; the function that applies it, in its rule's module."""
    rule(name)(infer)

    def operation(x: TensorLike) -> Tensor:
        return apply(name, x)[0]

    return _named(operation, infer, name, doc)


def binary(infer: Infer, name: str, doc: str, alike: slice | None = slice(0, 2)) -> Binary:
    """Define an operation on two tensors, computed in one type unless ``alike`` says otherwise."""
    rule(name, alike=alike)(infer)

    def operation(x: TensorLike, y: TensorLike) -> Tensor:
        return apply(name, x, y)[0]

    return _named(operation, infer, name, doc)


def _named(function: Function, infer: Infer, name: str, doc: str) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = infer.__module__, doc
    return function
