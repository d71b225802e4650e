"""Descriptions of models: their operators with counts, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from maxtool.importers.onnx.graph_inputs import type_of
from maxtool.importers.onnx.operator_call import dtype_of
from maxtool.importers.onnx.protos import ValueInfoProto
from maxtool.importers.onnx.refusals import RefusedNode
from maxtool.importers.onnx.structure import OnnxModel
from maxtool.importers.onnx.survey import nodes_of


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """An operator of a model.

    Attributes:
        name: Its name, with the domain where that is not ONNX's own.
        opset: The version of its domain.
        count: How many nodes have it, those of functions and inner graphs once each.
        problem: Why it is not supported; empty if it is.
    """

    name: str
    opset: int
    count: int
    problem: str


@dataclass(frozen=True, slots=True)
class GraphDescription:
    """A model's graph: operators by their number of nodes, and types of inputs and outputs."""

    operators: tuple[OperatorCount, ...]
    inputs: dict[str, str]
    outputs: dict[str, str]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return sum(one.count for one in self.operators)


def describe(model: OnnxModel) -> GraphDescription:
    """Describe the graph of a model, from its structure alone."""
    counts: dict[tuple[str, int, str], int] = {}
    for node in nodes_of(model):
        key = (node.name.operator, node.name.version, node.why)
        counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    operators = tuple(
        OperatorCount(name, opset, count, why) for (name, opset, why), count in ordered
    )
    given = [one for one in model.graph.input if one.name not in model.checkpoint.tensors]
    return GraphDescription(operators, _types(given), _types(model.graph.output))


def _types(values: Iterable[ValueInfoProto]) -> dict[str, str]:
    return {info.name: _type(info) for info in values}


def _type(info: ValueInfoProto) -> str:
    """The type of an input or an output, or why there is none here."""
    tensor = info.type.tensor_type
    try:
        if info.type.HasField("tensor_type") and not tensor.HasField("shape"):
            return f"{dtype_of(tensor.elem_type).value} of any shape"
        return str(type_of(info, None))
    except (RefusedNode, ValueError) as error:
        return f"({error})"
