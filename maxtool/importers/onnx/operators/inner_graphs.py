"""Graphs inside of nodes, run with the forms of truth values that they declare."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.protos import GraphProto, ValueInfoProto
from maxtool.importers.onnx.values import Value


def run_declared(call: OperatorCall, graph: GraphProto, values: Sequence[Value]) -> list[Value]:
    """The outputs of a graph, one truth value with as many dimensions as is declared.

    Some exporters give a condition a dimension, and say that it has none.
    """
    results = call.run_graph(graph, values)
    return [_as_declared(*pair) for pair in zip(results, graph.output, strict=True)]


def _as_declared(value: Value, info: ValueInfoProto) -> Value:
    kind = info.type.tensor_type
    if not (isinstance(value, Tensor) and value.dtype is DType.bool and kind.HasField("shape")):
        return value
    rank = len(kind.shape.dim)
    is_one = value.shape.volume() == 1 and value.rank != rank
    return ops.reshape(value, [1] * rank) if is_one else value
