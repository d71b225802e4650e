"""Control flow as Relax functions: they choose which of the functions of its graphs is called.

A loop is not a recursion, which would need a frame of the virtual machine for each time round. Step
``d`` calls step ``d - 1`` and, if the loop goes on, once more: ``2 ** d`` times round in ``d``
frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias

from tvm import relax

from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.compiler.lowering.subgraphs import SubgraphModule
from maxtool.compiler.storage import WeightStorage
from maxtool.graph import CallNode
from maxtool.graph.nested_graph import FlowGraph

Expr: TypeAlias = Any  # tvm ships no types
# The inputs and weights of the graph in a function.
Values: TypeAlias = Sequence[Expr]

# A loop goes round 2 ** STEPS times at most: for ever.
STEPS = 48


class FlowLowering:
    """The functions of one piece of control flow, whose weights are stored so."""

    def __init__(
        self, module: SubgraphModule, graph: FlowGraph, storages: Sequence[WeightStorage]
    ) -> None:
        self._module, self._emit = module, module.builder.emit
        self._graph = graph
        self._storages = storages
        self._count = len(graph.outputs)
        self._calls = [node for node in graph.nodes if isinstance(node, CallNode)]

    def lowered(self) -> Expr:
        """The global name of a private function of the sizes, the inputs and the weights."""
        return {"cond": self._condition, "while": self._loop}[self._graph.flow]()

    def _condition(self) -> Expr:
        def body(function: FunctionLowering, values: Values) -> Expr:
            then, other = self._calls
            return self._chosen(
                values[0],
                lambda: self._called(function, then, values),
                lambda: self._called(function, other, values),
            )

        return self._function(self._graph.name, body)

    def _loop(self) -> Expr:
        step = self._function(f"{self._graph.name}_step", self._once, goes=True)
        for _ in range(1, STEPS):
            step = self._function(f"{self._graph.name}_step", self._twice(step), goes=True)
        return self._function(self._graph.name, self._whole(step))

    def _once(self, function: FunctionLowering, values: Values) -> Expr:
        """One iteration, if the loop goes on now: whether it goes on after that, and its state."""
        going, *rest = values
        asking, again = self._calls

        def round_() -> Expr:
            result = self._emit(self._called(function, again, rest))
            state = [result] if self._count == 1 else self._items(result, 0)
            then, state = self._measured(function, state)
            after = [*state, *rest[self._count :]]
            return relax.Tuple([self._emit(self._called(then, asking, after)), *state])

        return self._chosen(going, round_, lambda: relax.Tuple(values[: 1 + self._count]))

    def _twice(self, step: Expr) -> Callable[[FunctionLowering, Values], Expr]:
        """The body that takes a step, and another one if the loop goes on then."""

        def body(function: FunctionLowering, values: Values) -> Expr:
            sizes = self._module.sizes(function, self._graph)
            first = self._emit(relax.Call(step, [*sizes, *values]))
            going, *state = self._items(first, 0, more=1)

            def again() -> Expr:
                then, measured = self._measured(function, state)
                after = [going, *measured, *values[1 + self._count :]]
                return relax.Call(step, [*self._module.sizes(then, self._graph), *after])

            return self._chosen(going, again, lambda: first)

        return body

    def _whole(self, step: Expr) -> Callable[[FunctionLowering, Values], Expr]:
        """The state that is left, from the initial one."""

        def body(function: FunctionLowering, values: Values) -> Expr:
            going = self._emit(self._called(function, self._calls[0], values))
            sizes = self._module.sizes(function, self._graph)
            last = self._emit(relax.Call(step, [*sizes, going, *values]))
            state = self._items(last, 1)
            return state[0] if self._count == 1 else relax.Tuple(state)

        return body

    def _measured(
        self, function: FunctionLowering, state: list[Expr]
    ) -> tuple[FunctionLowering, list[Expr]]:
        """The state after a time round, and the function as it is then: with sizes of its own."""
        if not self._graph.growing:
            return function, state
        then = function.with_other_sizes(self._graph.growing)
        types = [then.type(value.type) for value in self._graph.inputs[: self._count]]
        pairs = zip(state, types, strict=True)
        return then, [self._module.builder.match_cast(*pair) for pair in pairs]

    def _function(
        self,
        name: str,
        body: Callable[[FunctionLowering, Values], Expr],
        *,
        goes: bool = False,
    ) -> Expr:
        """Add a function of the inputs and weights, and before them of whether a loop goes on."""
        function, builder = FunctionLowering(self._module), self._module.builder
        going = [relax.Var("going", relax.TensorType((), "bool"))] if goes else []
        values = [*going, *self._module.parameters(function, self._graph, self._storages)]
        sizes = self._module.sizes_parameter(function, self._graph)
        attributes = {"relax.force_pure": True}
        unique = self._module.unique(name)
        with builder.function(unique, [*sizes, *values], attrs=attributes, private=True):
            return builder.emit_func_output(self._emit(body(function, values)))

    def _called(self, function: FunctionLowering, node: CallNode, values: Values) -> Expr:
        """A call of one of the graphs, whose operands are among the inputs and weights."""
        every = (*self._graph.inputs, *self._graph.parameters())
        known = dict(zip(map(id, every), values, strict=True))
        stored = dict(zip(map(id, self._graph.parameters()), self._storages, strict=True))
        callee = self._module.callee(node, [stored[id(value)] for value in node.weights])
        operands = [known[id(value)] for value in chain(node.inputs, node.weights)]
        return relax.Call(callee, [*self._module.sizes(function, node.callee), *operands])

    def _chosen(self, going: Expr, then: Callable[[], Expr], other: Callable[[], Expr]) -> Expr:
        builder, branches = self._module.builder, []
        for make in (then, other):
            builder._begin_binding_block()
            result = self._emit(make())
            branches.append(relax.SeqExpr([builder._end_block()], result))
        return relax.If(going, *branches)

    def _items(self, value: Expr, first: int, more: int = 0) -> list[Expr]:
        """The state in a tuple, from one of its items on, and what comes before."""
        indices = range(first, first + more + self._count)
        return [self._emit(relax.TupleGetItem(value, index)) for index in indices]
