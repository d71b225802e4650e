"""The operators of a model: how many nodes have each, and which of them are not supported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from maxtool.errors import InputError
from maxtool.importers.onnx import operators  # noqa: F401 - it fills the table
from maxtool.importers.onnx.function_bodies import has_body
from maxtool.importers.onnx.limits import MOST_DEPTH, MOST_NODES
from maxtool.importers.onnx.operator_table import find_operator
from maxtool.importers.onnx.ordering import graphs_in
from maxtool.importers.onnx.problems import NodeName
from maxtool.importers.onnx.protos import NodeProto
from maxtool.importers.onnx.refusals import RefusedNode
from maxtool.importers.onnx.structure import DEFAULT_DOMAIN, OnnxModel, domain_of, opsets_of


@dataclass(frozen=True, slots=True)
class SurveyedNode:
    """A node, wherever in the model it is.

    Attributes:
        name: The node in messages.
        why: Why it is not supported; empty if it is.
    """

    name: NodeName
    why: str


def named(node: NodeProto, version: int, where: str = "") -> NodeName:
    """A node as messages name it."""
    label = node.name or next(filter(None, node.output), "") or node.op_type
    domain = "" if not domain_of(node.domain) else f"{node.domain}."
    return NodeName(label[:200], f"{domain}{node.op_type}"[:200], version, where)


def nodes_of(model: OnnxModel) -> Iterator[SurveyedNode]:
    """Every node of the graph, of the graphs inside it, and of the model's functions."""
    yield from _graph(model, model.graph.node, model.opsets, "")
    for (_, name, _), function in model.functions.items():
        where = f" of the function {name!r}"
        yield from _graph(model, function.node, opsets_of(function), where)


def _graph(
    model: OnnxModel, nodes: Sequence[NodeProto], opsets: Mapping[str, int], where: str
) -> Iterator[SurveyedNode]:
    """The nodes of a graph and of those inside it."""
    waiting = [(nodes, 0)]
    count = 0
    while waiting:
        inner, depth = waiting.pop()
        for node in inner:
            count += 1
            if count > MOST_NODES or depth > MOST_DEPTH:
                what = f"more than {MOST_NODES} nodes, or graphs nested deeper than {MOST_DEPTH}"
                raise InputError(what, file=model.path)
            yield _surveyed(model, node, opsets, where)
            waiting += [(graph.node, depth + 1) for graph in graphs_in(node)]


# What to do about operators that many models have.
ADVICE = {
    "ZipMap": ": it makes a map of each row of a tensor; skl2onnx leaves it out with zipmap=False"
}


def _surveyed(
    model: OnnxModel, node: NodeProto, opsets: Mapping[str, int], where: str
) -> SurveyedNode:
    domain = domain_of(node.domain)
    version = opsets.get(domain, 0)
    name = named(node, version, where)
    if (domain, node.op_type, node.overload) in model.functions:
        return SurveyedNode(name, "")
    if domain not in opsets:
        return SurveyedNode(name, f"the model imports no opset of {domain or DEFAULT_DOMAIN!r}")
    if find_operator(domain, node.op_type, version) or has_body(domain, node.op_type, version):
        return SurveyedNode(name, "")
    return SurveyedNode(name, "the operator is not supported" + ADVICE.get(node.op_type, ""))


def unsupported(model: OnnxModel) -> Iterator[tuple[NodeName, RefusedNode]]:
    """The nodes whose operators are not supported, and why."""
    for node in nodes_of(model):
        if node.why:
            yield node.name, RefusedNode(node.why)
