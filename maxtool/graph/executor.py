"""Eager execution, seen from below: a protocol, and the one lazy import that finds the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType

if TYPE_CHECKING:
    from maxtool.graph.graph import Graph


class Executor(Protocol):
    """What can run operations and graphs."""

    def evaluate(
        self,
        op: str,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one operation on concrete operands."""
        ...

    def compile(self, graph: Graph) -> Callable[..., tuple[Tensor, ...]]:
        """Compile a graph whose weights all have data; the result takes its inputs."""
        ...


@cache
def find() -> Executor:
    """The compiler's executor. Importing it costs a second and 200 MB, so nothing else does."""
    from maxtool.compiler.execute import CompilingExecutor

    return CompilingExecutor()


def evaluate(
    op: str,
    operands: Sequence[Tensor],
    attributes: Mapping[str, Any],
    results: Sequence[TensorType],
) -> tuple[Tensor, ...]:
    """Run one operation on concrete operands through the compiler."""
    return find().evaluate(op, operands, attributes, results)
