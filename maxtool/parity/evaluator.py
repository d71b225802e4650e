"""A graph evaluated in NumPy float64, one operation after the other, without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import BufferType, CallNode, Dim, Graph, Node, Shape, Tensor
from maxtool.graph.nested_graph import FlowGraph, NestedGraph
from maxtool.graph.ops.operation_table import OPS
from maxtool.graph.ops.slicing import IndexRange
from maxtool.parity.activation_rounding import PRODUCTS, Rounding, RoundingWeight
from maxtool.parity.array_types import Array
from maxtool.parity.definitions import COMPUTED, DEFINITIONS, UNDEFINED

Sizes: TypeAlias = dict[str, int]
# By the identity of a traced tensor: its elements, or the function that reads those of a weight.
Values: TypeAlias = dict[int, "Array | Callable[[], Array]"]


def evaluate(
    graph: Graph,
    inputs: Sequence[Array],
    weights: Mapping[str, Array] | None = None,
    rounding: Mapping[str, Rounding] | None = None,
) -> list[Array]:
    """Compute the outputs of a graph.

    Floats are float64 from the first operation to the last; only a cast to fewer than 32 bits
    rounds, and what ``rounding`` says. A weight is widened for the one operation that uses it.

    Args:
        graph: A graph for one device.
        inputs: An array for each input. That of a ``BufferType`` is written in place, in its own
            element type: give float64.
        weights: The elements of every weight by its full name, decoded. It is asked each time a
            weight is used, so that it may read them from a file.
        rounding: How what a weight is multiplied with is rounded first, by the weight's name.

    Returns:
        An array for each output: floats in float64, others in their own type.

    Raises:
        KeyError: If a weight is missing.
        ValueError: If an array does not have the shape that the graph says, or an operation has no
            meaning on one device.
    """
    read = (weights or {}).__getitem__
    values: Values = {id(one): partial(read, name) for name, one in graph.weight_values.items()}
    for name in graph.weight_values.keys() & (rounding or {}).keys():
        value = graph.weight_values[name]
        values[id(value)] = RoundingWeight(partial(read, name), (rounding or {})[name])
    with np.errstate(all="ignore"):
        results = _run(graph, inputs, values, {})
    return [_typed(one, array) for one, array in zip(graph.outputs, results, strict=True)]


def _run(graph: Graph, inputs: Sequence[Array], values: Values, sizes: Sizes) -> list[Array]:
    """Compute the outputs of a graph whose parameters are among ``values`` already."""
    values |= {id(value): constant.to_numpy() for constant, value in graph.constants}
    _bind(graph.name, graph.inputs, inputs, values, sizes)
    named = [value for value in graph.parameters() if not value.shape.is_static]
    _measure(graph.name, named, _arrays(named, values), sizes)
    if isinstance(graph, FlowGraph):
        return FLOWS[graph.flow](graph, values, sizes)
    for node in graph.nodes:
        if isinstance(node, CallNode):
            name, results = node.callee.name, _call(node, values, sizes)
        else:
            name, results = node.op, _results(node, _operands(node, values), sizes)
        _bind(name, node.outputs, results, values, sizes)
        _keep_rounding(node, results, values)
    return _arrays(graph.outputs, values)


def _operands(node: Node, values: Values) -> list[Array]:
    """The operands of an operation, activations rounded where the weight does so."""
    operands = _arrays(node.inputs, values)
    weight = values[id(node.inputs[1])] if node.op in PRODUCTS else None
    if isinstance(weight, RoundingWeight):
        operands[0] = weight.rounded(operands[0])
    if node.op == "cast" and not node.attributes["dtype"].is_float():
        operands[0] = _as_stored(operands[0], node.inputs[0].dtype)
    return operands


def _as_stored(x: Array, dtype: DType) -> Array:
    """Elements as their type has them: -6 in float32, where float64 would be cut to -5."""
    if dtype is not DType.float32:
        return x
    with np.errstate(over="ignore"):
        return x.astype(np.float32).astype(x.dtype)


def _keep_rounding(node: Node | CallNode, results: Sequence[Array], values: Values) -> None:
    """Let a transposed weight round as the weight does: one kernel is all of ``x @ w.T``."""
    if isinstance(node, CallNode) or node.op != "permute":
        return
    weight, (result,) = values[id(node.inputs[0])], results
    if isinstance(weight, RoundingWeight):
        values[id(node.outputs[0])] = RoundingWeight(lambda: result, weight.rounded)


def _arrays(tensors: Iterable[Tensor], values: Values) -> list[Array]:
    held = (values[id(tensor)] for tensor in tensors)
    return [one if isinstance(one, np.ndarray) else one() for one in held]


def _bind(
    by: str, tensors: Sequence[Tensor], arrays: Sequence[Array], values: Values, sizes: Sizes
) -> None:
    """Enter arrays as the values of tensors, and the sizes that they bring."""
    _measure(by, tensors, arrays, sizes)
    values |= dict(zip(map(id, tensors), arrays, strict=True))


def _measure(by: str, tensors: Sequence[Tensor], arrays: Sequence[Array], sizes: Sizes) -> None:
    """Enter the sizes of names that have none yet, and require all others."""
    for tensor, array in zip(tensors, arrays, strict=True):
        if array.ndim == tensor.rank:
            for dim, size in zip(tensor.shape, array.shape, strict=True):
                if isinstance(dim.value, str):
                    sizes.setdefault(dim.value, size)
        if array.shape != _known(tensor.shape, sizes):
            raise ValueError(f"{by}: {tensor.type} has the shape {list(array.shape)}")


def _call(node: CallNode, values: Values, sizes: Sizes) -> list[Array]:
    """Evaluate a subgraph on the weights of this call."""
    callee = node.callee
    bound = zip(callee.parameters(), node.weights, strict=True)
    inner: Values = {id(parameter): values[id(weight)] for parameter, weight in bound}
    known = dict(sizes) if isinstance(callee, FlowGraph | NestedGraph) else {}
    return _run(callee, _arrays(node.inputs, values), inner, known)


def _branch(graph: FlowGraph, values: Values, sizes: Sizes) -> list[Array]:
    """Evaluate the first of two calls if the first input is true, else the second."""
    (predicate,) = _arrays(graph.inputs[:1], values)
    return _call(_calls(graph)[0 if predicate else 1], values, sizes)


def _loop(graph: FlowGraph, values: Values, sizes: Sizes) -> list[Array]:
    """Evaluate the second of two calls on the state as long as the first gives true."""
    predicate, body = _calls(graph)
    state = graph.inputs[: len(graph.outputs)]
    sizes = {name: size for name, size in sizes.items() if name not in graph.growing}
    while _call(predicate, values, sizes)[0]:
        values |= dict(zip(map(id, state), _call(body, values, sizes), strict=True))
    return _arrays(state, values)


def _calls(graph: FlowGraph) -> list[CallNode]:
    return [node for node in graph.nodes if isinstance(node, CallNode)]


FLOWS: Mapping[str, Callable[[FlowGraph, Values, Sizes], list[Array]]] = {
    "cond": _branch,
    "while": _loop,
}


def _results(node: Node, operands: list[Array], sizes: Sizes) -> list[Array]:
    """Apply the definition of an operation."""
    if node.op in UNDEFINED:
        raise ValueError(f"{node.op} cannot be evaluated: {UNDEFINED[node.op]}")
    if node.op in COMPUTED:
        operands = [_wide(operand) for operand in operands]
    written = OPS[node.op].writes
    if written is not None and not isinstance(node.inputs[written].type, BufferType):
        operands[written] = _typed(node.inputs[written], operands[written]).copy()
    attributes = {name: _known(given, sizes) for name, given in node.attributes.items()}
    results = DEFINITIONS[node.op](*operands, **attributes)
    listed = results if isinstance(results, tuple) else (results,)
    if written is not None:
        return list(listed)
    buffers = [
        array
        for value, array in zip(node.inputs, operands, strict=True)
        if isinstance(value.type, BufferType)
    ]
    return [
        _apart(_typed(value, array), buffers)
        for value, array in zip(node.outputs, listed, strict=True)
    ]


def _apart(array: Array, buffers: Sequence[Array]) -> Array:
    """Return an array that later writes into the buffers do not change."""
    shared = any(np.may_share_memory(array, buffer) for buffer in buffers)
    return array.copy() if shared else array


def _wide(array: Array) -> Array:
    return array if array.dtype.kind in "biu" else array.astype(np.float64, copy=False)


def _typed(tensor: Tensor, array: Any) -> Array:  # noqa: ANN401 - a NumPy function's result
    """An array in the type that stands for the tensor's: float64 for all floats."""
    dtype = tensor.dtype
    return np.asarray(array).astype(
        np.float64 if dtype.is_float() else dtype.to_numpy(), copy=False
    )


def _known(attribute: Any, sizes: Sizes) -> Any:  # noqa: ANN401 - of any operation
    """An attribute with numbers for its sizes; None for a size that is not known before."""
    if isinstance(attribute, IndexRange):
        return attribute.window(sizes)
    if isinstance(attribute, Dim):
        return attribute.size(sizes) if sizes.keys() >= set(attribute.names()) else None
    if isinstance(attribute, Shape | tuple):
        return tuple(_known(one, sizes) for one in attribute)
    return attribute
