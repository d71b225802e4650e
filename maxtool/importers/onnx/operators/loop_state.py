"""State that a loop carries: tensors whose sizes stay, or change with each turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Dim, Graph, Tensor, TensorType, ops
from maxtool.graph.nested_graph import NestedGraph
from maxtool.graph.ops.control import Growing
from maxtool.importers.onnx.dead_state import unread_state
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.inner_graphs import run_declared
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import Sizes, Value, as_tensor, known


@dataclass(frozen=True)
class LoopState:
    """Tensors that a loop carries.

    Attributes:
        first: Their values before the first turn.
        kinds: Their types in a turn; a size that changes has a name of its own.
        ended: Their types behind the last turn; a size that changes has another name.
    """

    first: Sequence[Tensor]
    kinds: Sequence[TensorType]
    ended: Sequence[TensorType]

    def growing(self, before: Sequence[Tensor], behind: Sequence[Tensor] = ()) -> Growing | None:
        """The types of the state among other tensors, if sizes change."""
        if self.kinds == self.ended:
            return None
        ahead, more = ([one.type for one in each] for each in (before, behind))
        return Growing([*ahead, *self.kinds, *more], [*ahead, *self.ended, *more])

    def claimed(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The values after a turn, claimed to have the sizes that do not change."""
        require_as_many(values, self.kinds)
        triples = zip(values, self.kinds, self.ended, strict=True)
        return [_claimed(*each) for each in triples]


def steady_state(values: Sequence[Tensor]) -> LoopState:
    """A state whose sizes stay as they are."""
    kinds = [one.type for one in values]
    return LoopState(values, kinds, kinds)


def growing_state(call: OperatorCall, values: Sequence[Tensor]) -> LoopState:
    """The state of a ``Loop``, of whose sizes those that a turn changes have names of their own."""
    given = [one.type for one in values]
    before: list[TensorType] = []
    kinds = given
    while before != kinds:
        before, kinds = kinds, _named(call, given, kinds, _after_a_turn(call, kinds))
    ended = _named(call, given, given, kinds)
    pairs = zip(values, kinds, strict=True)
    first = [one if one.type == kind else ops.rebind(one, kind.shape) for one, kind in pairs]
    return LoopState(first, kinds, ended)


def with_stand_ins(call: OperatorCall, values: Sequence[Tensor]) -> list[Tensor]:
    """The first values, with zeros for those that no turn reads and that become another type.

    Exporters need some value of a variable that is set in the loop. There has to be a turn.
    """
    unread = unread_state(call.attribute("body"))
    if not unread:
        return [*values]
    given = [one.type for one in values]
    trial = _trial(call, given)
    kinds = [one.type for one in trial.outputs]
    require_as_many(kinds, given)
    pairs = enumerate(zip(values, kinds, strict=True))
    return [
        _zeros(kind, trial.known_before) if at in unread and _is_other(one.type, kind) else one
        for at, (one, kind) in pairs
    ]


def _is_other(one: TensorType, kind: TensorType) -> bool:
    return (one.dtype, one.rank) != (kind.dtype, kind.rank)


def _zeros(kind: TensorType, names: Collection[str]) -> Tensor:
    """Zeros of a type, none of them along a dimension that only a turn knows."""
    sizes = [dim if {*dim.names()} <= {*names} else 0 for dim in kind.shape]
    return in_graph(full(known(np.zeros((), kind.dtype.to_numpy())), sizes))


def _after_a_turn(call: OperatorCall, kinds: Sequence[TensorType]) -> list[TensorType]:
    """The types that a state of some types has behind a turn."""
    return [one.type for one in _trial(call, kinds).outputs]


def _trial(call: OperatorCall, kinds: Sequence[TensorType]) -> NestedGraph:
    """A turn, traced for the types alone of what it gives."""
    graph = Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")

    def forward(number: Tensor, going: Tensor, *values: Tensor) -> list[Tensor]:
        results = run_declared(call, call.attribute("body"), [number, going, *values])
        return tensors_of(results[1 : 1 + len(kinds)])

    counters = [TensorType(DType.int64, []), TensorType(DType.bool, [])]
    return NestedGraph("trial", graph, forward, [*counters, *kinds])


def _named(
    call: OperatorCall,
    given: Sequence[TensorType],
    kinds: Sequence[TensorType],
    after: Sequence[TensorType],
) -> list[TensorType]:
    """Types with new names for sizes that change; those that are not as given have such names."""
    require_as_many(after, given)
    return [_with_names(call, *each) for each in zip(given, kinds, after, strict=True)]


def _with_names(
    call: OperatorCall, given: TensorType, kind: TensorType, after: TensorType
) -> TensorType:
    require_alike(after, kind)
    shape = [
        Dim(call.new_name("grown")) if now == first and now != then else now
        for first, now, then in zip(given.shape, kind.shape, after.shape, strict=True)
    ]
    return TensorType(kind.dtype, shape, kind.device)


def require_as_many(values: Sequence[object], kinds: Sequence[TensorType]) -> None:
    """Refuse a turn that gives more or fewer values than are carried."""
    require(len(values) == len(kinds), f"it carries {len(kinds)} values, and gives {len(values)}")


def require_alike(after: TensorType, kind: TensorType) -> None:
    """Refuse a value whose element type or number of dimensions changes."""
    fits = (after.dtype, after.rank) == (kind.dtype, kind.rank)
    require(fits, _changes(after, kind))


def _changes(after: TensorType, kind: TensorType) -> str:
    return f"a value that it carries on changes from {kind} to {after}"


def _claimed(value: Tensor, kind: TensorType, ended: TensorType) -> Tensor:
    """A value claimed to have the sizes that it had before, but for those that change."""
    require_alike(value.type, kind)
    shape = [
        before if before == last else now
        for now, before, last in zip(value.shape, kind.shape, ended.shape, strict=True)
    ]
    if value.shape == shape:
        return value
    message = _changes(value.type, kind)
    pairs = zip(value.shape, shape, strict=True)
    never = any(one.is_static and other.is_static and one != other for one, other in pairs)
    require(not never, message)
    return ops.rebind(value, shape, message)


def in_graph(value: Tensor) -> Tensor:
    """A tensor as a value of the graph that is traced."""
    graph = Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")
    return graph.value(value)


def tensors_of(values: Sequence[Value]) -> list[Tensor]:
    """The outputs of a graph, which are tensors, as values of the graph that is traced."""
    tensors = [as_tensor(one) for one in values if isinstance(one, Tensor | Sizes)]
    require(len(tensors) == len(values), "a graph inside of it gives what is not a tensor")
    return [*map(in_graph, tensors)]
