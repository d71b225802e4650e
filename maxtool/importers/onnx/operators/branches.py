"""The operator that runs one of two graphs inside of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from maxtool.graph import Dim, Graph, Node, Tensor, TensorType, ops
from maxtool.graph.nested_graph import NestedGraph
from maxtool.graph.ops.control import choose
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.inner_graphs import run_declared
from maxtool.importers.onnx.protos import GraphProto
from maxtool.importers.onnx.refusals import RefusedNode
from maxtool.importers.onnx.values import (
    Sizes,
    TensorSequence,
    Value,
    as_tensor,
    is_known,
)


@operator("If")
def if_(call: OperatorCall) -> list[Value]:
    """The outputs of one of two graphs; only that one is imported where it is known which."""
    condition = call.x()
    branches = [call.attribute("then_branch"), call.attribute("else_branch")]
    if is_known(condition):
        return call.run_graph(branches[0 if condition.to_numpy().reshape(-1)[0] else 1], [])
    graph = Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")
    name = f"branch_{len(graph.subgraphs)}"
    then, form = _traced(call, f"{name}_then", branches[0], [])
    wanted = [value.type for value in then.outputs]
    other, form_of_other = _traced(call, f"{name}_else", branches[1], wanted)
    types = [value.type for value in other.outputs]
    if types != wanted and _claims(then, _equality(graph, condition)):
        return call.run_graph(branches[0], [])
    if form == form_of_other and [*map(_plain, types)] == [*map(_plain, wanted)]:
        pred = graph.value(ops.reshape(condition, []))
        kinds = [_either(call, *pair) for pair in zip(wanted, types, strict=True)]
        return _formed(choose(pred, then, other, kinds), form)
    raise RefusedNode(
        f"its branches give {_listed(wanted, form)} and {_listed(types, form_of_other)}"
    )


def _plain(kind: TensorType) -> tuple[object, ...]:
    return kind.dtype, kind.device, kind.rank


def _either(call: OperatorCall, one: TensorType, other: TensorType) -> TensorType:
    """The type of what is one or the other, with a new name for a size in which they differ."""
    pairs = zip(one.shape, other.shape, strict=True)
    shape = [size if size == last else call.dim("either") for size, last in pairs]
    return TensorType(one.dtype, shape, one.device)


def _listed(types: Sequence[TensorType], form: Sequence[int | None]) -> str:
    sequences = [f"a sequence of {count}" for count in form if count is not None]
    return ", ".join([*map(str, types), *sequences]) or "nothing"


def _traced(
    call: OperatorCall, name: str, branch: GraphProto, wanted: Sequence[TensorType]
) -> tuple[NestedGraph, list[int | None]]:
    """A branch as a graph of tensors, and of each output how many tensors a sequence has.

    Sizes that may be those that are wanted are claimed to be.
    """
    form: list[int | None] = []

    def forward() -> list[Tensor]:
        values = run_declared(call, branch, [])
        form.extend(len(one.items) if isinstance(one, TensorSequence) else None for one in values)
        tensors = [tensor for one in values for tensor in _tensors(one)]
        return _as_wanted(tensors, wanted)

    outer = Graph.current()
    if outer is None:
        raise RefusedNode("no graph is traced")
    return NestedGraph(name, outer, forward), form


def _tensors(value: Value) -> list[Tensor]:
    """The tensors of an output, in the graph that is traced."""
    graph = Graph.current()
    if isinstance(value, TensorSequence):
        return [tensor for item in value.items for tensor in _tensors(item)]
    if graph is None or not isinstance(value, Tensor | Sizes):
        raise RefusedNode("a graph inside of it gives an optional that is empty")
    return [graph.value(as_tensor(value))]


def _as_wanted(tensors: list[Tensor], wanted: Sequence[TensorType]) -> list[Tensor]:
    if len(tensors) != len(wanted):
        return tensors
    return [_rebound(one, kind) for one, kind in zip(tensors, wanted, strict=True)]


def _rebound(x: Tensor, wanted: TensorType) -> Tensor:
    """A tensor with the claim that its sizes are those of the other branch, where they may be.

    A size that a branch alone knows has nothing to do with those of the other.
    """
    if x.rank != wanted.rank or x.shape == wanted.shape:
        return x
    graph = Graph.current()
    outside = graph.known_before if isinstance(graph, NestedGraph) else frozenset()
    pairs = zip(x.shape, wanted.shape, strict=True)
    shape = [last if _may_be(one, last, outside) else one for one, last in pairs]
    if x.shape == shape:
        return x
    return ops.rebind(x, shape, "If needs branches whose results are of one shape")


def _may_be(one: Dim, other: Dim, outside: Collection[str]) -> bool:
    """Return whether two sizes may be the same in every call, as n and m may, not n and 2 * n."""
    names, others = {*one.names()}, {*other.names()}
    return names != others and all(name in outside for name in names | others)


def _formed(tensors: Iterable[Tensor], form: Sequence[int | None]) -> list[Value]:
    """Outputs from the tensors that they were made of."""
    following = iter(tensors)
    return [
        next(following)
        if count is None
        else TensorSequence(tuple(next(following) for _ in range(count)))
        for count in form
    ]


def _claims(graph: Graph, equality: tuple[Dim, Dim] | None) -> bool:
    """Return whether a graph claims that two sizes are the same, as ``Squeeze`` does."""
    rebinds = (node for node in graph.nodes if isinstance(node, Node) and node.op == "rebind")
    claims = (
        pair
        for node in rebinds
        for pair in zip(node.inputs[0].shape, node.attributes["shape"], strict=True)
    )
    return equality is not None and equality in claims


def _equality(graph: Graph, condition: Tensor) -> tuple[Dim, Dim] | None:
    """The size, and the number that it is compared with, if that is what a condition is."""
    makers = {
        id(value): node for node in graph.nodes if isinstance(node, Node) for value in node.outputs
    }
    node = _beneath(makers, condition)
    if node is None or node.op != "equal":
        return None
    known = {id(value): constant for constant, value in graph.constants}
    for size, number in (node.inputs, node.inputs[::-1]):
        maker = _beneath(makers, size)
        if maker is not None and maker.op == "shape_to_tensor" and id(number) in known:
            (dim,) = maker.attributes["shape"]
            return dim, Dim(int(known[id(number)].to_numpy().reshape(())))
    return None


def _beneath(makers: dict[int, Node], value: Tensor) -> Node | None:
    """The node that computes a value, apart from changes of its shape and type."""
    node = makers.get(id(value))
    while node is not None and node.op in ("reshape", "cast"):
        node = makers.get(id(node.inputs[0]))
    return node
