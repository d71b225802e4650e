"""The table of operations, and how one is applied: traced into a graph, or run at once.

An operation is a name, a rule that infers the result types, and nothing else: what it computes is
said once, by the compiler's lowering of that name, for traced and for eager use alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import executor
from maxtool.graph.graph import Graph
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType
from maxtool.graph.weight import Weight

Infer: TypeAlias = Callable[..., tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True)
class Op:
    """An operation.

    Attributes:
        name: Its name in graphs, in the lowering table and in messages.
        infer: From operand types and attributes to result types; ValueError if they do not fit.
        writes: Index of the operand that the first result overwrites in place, if any.
    """

    name: str
    infer: Infer
    writes: int | None = None


OPS: dict[str, Op] = {}


def define(name: str, infer: Infer, *, writes: int | None = None) -> Op:
    """Enter an operation in the table."""
    OPS[name] = Op(name, infer, writes)
    return OPS[name]


def apply(name: str, *operands: TensorLike, **attributes: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    """Apply an operation: trace it when an operand is symbolic, run it when all are concrete.

    Raises:
        ValueError: If the operands do not fit; the message names the operation and their types.
    """
    tensors = as_tensors(operands)
    types = [tensor.type for tensor in tensors]
    try:
        results = OPS[name].infer(*types, **attributes)
    except ValueError as error:
        listed = ", ".join(str(kind) for kind in types)
        raise ValueError(f"{name}({listed}): {error}") from None
    graph = Graph.current()
    symbolic = any(tensor.is_traced or isinstance(tensor, Weight) for tensor in tensors)
    if graph is not None and symbolic:
        return graph.add_node(name, tensors, attributes, results)
    if any(tensor.is_traced for tensor in tensors):
        raise ValueError(f"{name}: a traced value can only be used while its graph is traced")
    return executor.evaluate(name, tensors, attributes, results)


def as_tensors(operands: tuple[TensorLike, ...]) -> list[Tensor]:
    """Operands as tensors; Python numbers take the dtype of the first tensor beside them."""
    dtype = next((operand.dtype for operand in operands if isinstance(operand, Tensor)), None)
    return [_as_tensor(operand, dtype) for operand in operands]


def _as_tensor(operand: TensorLike, dtype: DType | None) -> Tensor:
    if isinstance(operand, Tensor):
        return operand
    if isinstance(operand, np.ndarray | np.generic):
        return Tensor(operand)
    return Tensor(operand, dtype)
