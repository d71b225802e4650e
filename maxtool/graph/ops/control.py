"""Control flow: one of two functions, or one again and again, as a tensor says.

Outside of graphs the functions are called at once. In a graph each is traced once, and may use
values of that graph; which of them run, and how often, is decided when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim
from maxtool.graph.graph import Graph
from maxtool.graph.nested_graph import FlowGraph, NestedGraph, as_results
from maxtool.graph.ops.comparison import less
from maxtool.graph.ops.creation import shape_to_tensor
from maxtool.graph.ops.layout import reshape
from maxtool.graph.ops.operation_table import as_tensor, is_traced
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import BufferType, TensorType

Results: TypeAlias = "Tensor | Iterable[Tensor] | None"


def cond(
    pred: TensorLike,
    out_types: Iterable[TensorType] | None,
    then_fn: Callable[[], Results],
    else_fn: Callable[[], Results],
) -> list[Tensor]:
    """The results of one of two functions, as ``pred`` chooses.

    Args:
        pred: A bool of rank 0: whether it is ``then_fn``.
        out_types: The types of what either returns; None for nothing.
        then_fn: Called without arguments.
        else_fn: Likewise.

    Raises:
        TypeError: If a function returns something else than tensors.
        ValueError: If the predicate is not one bool, or a function returns other types.
    """
    chosen = as_tensor(pred)
    _require_bool("cond: the predicate", chosen)
    wanted = list(out_types or ())
    graph = Graph.current()
    then = _checking("cond: then_fn", then_fn, wanted)
    other = _checking("cond: else_fn", else_fn, wanted)
    if graph is None or not is_traced(chosen):
        return then() if chosen else other()
    name = f"cond_{len(graph.subgraphs)}"
    # Of a function that returns nothing the runtime would know no result.
    more = [] if wanted else [chosen]
    branches = [
        NestedGraph(f"{name}_then", graph, lambda: [*then(), *more]),
        NestedGraph(f"{name}_else", graph, lambda: [*other(), *more]),
    ]
    types = [*wanted, *(value.type for value in more)]
    return _flowing(graph, (name, "cond"), [chosen], branches, types)[: len(wanted)]


def choose(pred: Tensor, then: NestedGraph, other: NestedGraph) -> list[Tensor]:
    """The outputs of one of two graphs, traced inside the current one, as ``pred`` chooses.

    Args:
        pred: A bool of rank 0: whether it is ``then``.
        then: A graph without inputs of its own.
        other: One whose outputs are of the same types.
    """
    types = [value.type for value in then.outputs]
    name = f"cond_{len(then.outer.subgraphs)}"
    return _flowing(then.outer, (name, "cond"), [pred], [then, other], types)


def while_loop(
    initial_values: Tensor | Iterable[TensorLike],
    predicate: Callable[..., Tensor],
    body: Callable[..., Results],
) -> list[Tensor]:
    """The values that are left when a function was called on them as long as a predicate holds.

    Args:
        initial_values: One tensor or several.
        predicate: From the values to a bool of rank 0: whether the body is to be called.
        body: From the values to new ones, as many and of the same types.

    Raises:
        TypeError: If a function returns something else than tensors.
        ValueError: If there are no values, a value is a buffer, the predicate is not one bool, or
            the body returns other types.
    """
    initial = [initial_values] if isinstance(initial_values, Tensor) else list(initial_values)
    values = [as_tensor(one) for one in initial]
    if not values:
        raise ValueError("while_loop: there are no initial values")
    if buffers := [tensor for tensor in values if isinstance(tensor.type, BufferType)]:
        raise ValueError(f"while_loop: {buffers[0].type} cannot be a value of a loop; copy it")
    return _looped(values, predicate, body)


def repeat(
    turns: Dim, initial_values: Sequence[Tensor], body: Callable[..., Iterable[Tensor]]
) -> list[Tensor]:
    """The values that are left when a function was called on them as often as a size says.

    Args:
        turns: The size.
        initial_values: Tensors.
        body: From the number of a turn, int64 of rank 0, and the values to new ones.
    """
    count = reshape(shape_to_tensor([turns]), [])
    first = as_tensor(np.zeros((), np.int64))

    def turn(number: Tensor, *values: Tensor) -> list[Tensor]:
        return [number + 1, *body(number, *values)]

    return _looped([first, *initial_values], lambda at, *_: less(at, count), turn, turns)[1:]


def _looped(
    values: Sequence[Tensor],
    predicate: Callable[..., Tensor],
    body: Callable[..., Results],
    turns: Dim | None = None,
) -> list[Tensor]:
    graph, wanted = Graph.current(), [value.type for value in values]
    asked, again = _asking(predicate), _checking("while_loop: the body", body, wanted)
    if graph is None:
        while asked(*values)[0]:
            values = again(*values)
        return [*values]
    name = f"while_{len(graph.subgraphs)}"
    parts = [
        NestedGraph(f"{name}_predicate", graph, asked, wanted),
        NestedGraph(f"{name}_body", graph, again, wanted),
    ]
    return _flowing(graph, (name, "while"), values, parts, wanted, turns)


def _flowing(
    graph: Graph,
    named: tuple[str, Literal["cond", "while"]],
    own: Sequence[Tensor],
    parts: Sequence[NestedGraph],
    wanted: Sequence[TensorType],
    turns: Dim | None = None,
) -> list[Tensor]:
    """Record the whole, of what decides it or is its state, and of what its parts use."""
    outside = list({id(value): value for part in parts for value in part.outside}.values())
    operands = [*map(graph.value, own), *outside]
    flow = FlowGraph(named[0], graph, named[1], [value.type for value in operands], wanted)
    flow.turns = turns
    inside = dict(zip(map(id, outside), flow.inputs[len(own) :], strict=True))
    state = flow.inputs[: len(own)] if named[1] == "while" else ()
    for part in parts:
        flow.add_call(part, *state, *(inside[id(value)] for value in part.outside))
    return list(graph.call(flow, *operands, prefix=graph.weight_prefix or ""))


def _asking(predicate: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """A predicate that gives one bool, or an error."""

    def asked(*values: Tensor) -> list[Tensor]:
        answers = as_results(predicate(*values))
        if len(answers) != 1:
            raise ValueError(
                f"while_loop: the predicate returns one bool, not {len(answers)} values"
            )
        answer = as_tensor(answers[0])
        _require_bool("while_loop: the predicate", answer)
        return [answer]

    return asked


def _require_bool(what: str, value: Tensor) -> None:
    if value.dtype is not DType.bool or value.rank:
        raise ValueError(f"{what} is a bool of rank 0, not {value.type}")


def _checking(
    what: str, function: Callable[..., Results], wanted: Sequence[TensorType]
) -> Callable[..., list[Tensor]]:
    """A function whose results are of these types, or an error."""

    def checked(*values: Tensor) -> list[Tensor]:
        results = list(as_results(function(*values)))
        for result in results:
            if not isinstance(result, Tensor):
                raise TypeError(f"{what} returns tensors, not {type(result).__name__}")
        actual = [result.type for result in results]
        if [*map(_plain, actual)] != [*map(_plain, wanted)]:
            listed = (", ".join(map(str, types)) or "nothing" for types in (actual, wanted))
            raise ValueError(f"{what} returns {', not '.join(listed)}")
        return results

    return checked


def _plain(tensor_type: TensorType) -> tuple[object, ...]:
    return tensor_type.dtype, tensor_type.shape, tensor_type.device
