"""Control flow: one of two functions, or one again and again, as a tensor says.

Outside of graphs the functions are called at once. In a graph each is traced once, and may use
values of that graph; which of them run, and how often, is decided when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


def choose(
    pred: Tensor, then: NestedGraph, other: NestedGraph, types: Sequence[TensorType]
) -> list[Tensor]:
    """The outputs of one of two graphs, traced inside the current one, as ``pred`` chooses.

    Args:
        pred: A bool of rank 0: whether it is ``then``.
        then: A graph without inputs of its own.
        other: One whose outputs are of the same types, but for sizes.
        types: Those types, with new names for sizes that depend on which it is.
    """
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


@dataclass(frozen=True, slots=True)
class Growing:
    """A loop's state whose sizes change: its types each time, and in the end.

    Sizes that change have names of their own in either, which nothing else has.
    """

    each: Sequence[TensorType]
    ended: Sequence[TensorType]

    @property
    def names(self) -> frozenset[str]:
        """The names of sizes that change."""
        pairs = zip(self.each, self.ended, strict=True)
        dims = (dim for pair in pairs for dim in _changing(*pair))
        return frozenset(name for dim in dims for name in dim.names())

    def is_one(self, results: Sequence[TensorType]) -> bool:
        """Return whether results may be the state of the next time."""
        return len(results) == len(self.each) and all(
            (one.dtype, one.device, one.rank) == (own.dtype, own.device, own.rank)
            and all(
                dim == known or known in _changing(own, ended)
                for dim, known in zip(one.shape, own.shape, strict=True)
            )
            for one, own, ended in zip(results, self.each, self.ended, strict=True)
        )


def _changing(each: TensorType, ended: TensorType) -> list[Dim]:
    return [one for one, last in zip(each.shape, ended.shape, strict=True) if one != last]


def while_growing(
    initial_values: Sequence[Tensor],
    predicate: Callable[..., Tensor],
    body: Callable[..., Results],
    growing: Growing | None,
) -> list[Tensor]:
    """The values of :func:`while_loop`, some of which have other sizes each time.

    Args:
        initial_values: Tensors of a graph, of the types of ``growing``.
        predicate: From the values to a bool of rank 0.
        body: From the values to new ones.
        growing: The types of the values, if sizes change.
    """
    return _looped([*initial_values], predicate, body, growing=growing)


def repeat(
    turns: Dim,
    initial_values: Sequence[Tensor],
    body: Callable[..., Iterable[Tensor]],
    growing: Growing | None = None,
) -> list[Tensor]:
    """The values that are left when a function was called on them as often as a size says.

    Args:
        turns: The size.
        initial_values: Tensors.
        body: From the number of a turn, int64 of rank 0, and the values to new ones.
        growing: The types of that number and the values, if sizes change.
    """
    count = reshape(shape_to_tensor([turns]), [])
    first = as_tensor(np.zeros((), np.int64))

    def turn(number: Tensor, *values: Tensor) -> list[Tensor]:
        return [number + 1, *body(number, *values)]

    goes_on: Callable[..., Tensor] = lambda at, *_: less(at, count)  # noqa: E731
    return _looped([first, *initial_values], goes_on, turn, turns, growing)[1:]


def _looped(
    values: Sequence[Tensor],
    predicate: Callable[..., Tensor],
    body: Callable[..., Results],
    turns: Dim | None = None,
    growing: Growing | None = None,
) -> list[Tensor]:
    graph, given = Graph.current(), [value.type for value in values]
    wanted = given if growing is None else growing.each
    asked = _asking(predicate)
    again = _checking("while_loop: the body", body, wanted, growing)
    if graph is None:
        while asked(*values)[0]:
            values = again(*values)
        return [*values]
    name = f"while_{len(graph.subgraphs)}"
    parts = [
        NestedGraph(f"{name}_predicate", graph, asked, wanted),
        NestedGraph(f"{name}_body", graph, again, wanted),
    ]
    return _flowing(graph, (name, "while"), values, parts, wanted, turns, growing)


def _flowing(
    graph: Graph,
    named: tuple[str, Literal["cond", "while"]],
    own: Sequence[Tensor],
    parts: Sequence[NestedGraph],
    wanted: Sequence[TensorType],
    turns: Dim | None = None,
    growing: Growing | None = None,
) -> list[Tensor]:
    """Record the whole, of what decides it or is its state, and of what its parts use."""
    outside = list({id(value): value for part in parts for value in part.outside}.values())
    operands = [*map(graph.value, own), *outside]
    results = wanted if growing is None else growing.ended
    flow = FlowGraph(named[0], graph, named[1], [value.type for value in operands], results)
    flow.turns, flow.growing = turns, frozenset() if growing is None else growing.names
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
    what: str,
    function: Callable[..., Results],
    wanted: Sequence[TensorType],
    growing: Growing | None = None,
) -> Callable[..., list[Tensor]]:
    """A function whose results are of these types, or an error."""

    def checked(*values: Tensor) -> list[Tensor]:
        results = list(as_results(function(*values)))
        for result in results:
            if not isinstance(result, Tensor):
                raise TypeError(f"{what} returns tensors, not {type(result).__name__}")
        actual = [result.type for result in results]
        fits = [*map(_plain, actual)] == [*map(_plain, wanted)]
        if not (fits or (growing is not None and growing.is_one(actual))):
            listed = (", ".join(map(str, types)) or "nothing" for types in (actual, wanted))
            raise ValueError(f"{what} returns {', not '.join(listed)}")
        return results

    return checked


def _plain(tensor_type: TensorType) -> tuple[object, ...]:
    return tensor_type.dtype, tensor_type.shape, tensor_type.device
