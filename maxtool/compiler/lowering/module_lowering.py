"""Graphs as one Relax module: a function for each entry and each subgraph, kernels shared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tvm import relax, tirx

from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.joining.functions import MARK
from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.kernels.requests import Pointwise
from maxtool.compiler.lowering.control_flow import FlowLowering
from maxtool.compiler.lowering.function_form import (
    JOINED,
    PLAIN,
    FunctionForm,
    can_join,
    is_convolutional,
)
from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.compiler.lowering.rule_table import ROUNDING_OF, RULES_OF
from maxtool.compiler.lowering.subgraphs import SubgraphModule, key_of
from maxtool.compiler.lowering.usual_sizes import add_choice, entry_parameters, split_inputs
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.placement import device_of
from maxtool.compiler.rewriting import is_for
from maxtool.compiler.storage import WeightStorage
from maxtool.dtype import DType
from maxtool.errors import CompilationFailed
from maxtool.graph import CallNode, Graph, Node
from maxtool.graph.nested_graph import FlowGraph
from maxtool.graph.type import HOST
from maxtool.runtime.loader.specs import SEPARATE


class ModuleLowering(SubgraphModule):
    """Lowering of graphs to one Relax module.

    An entry takes its inputs, then one array of the tensors it writes in place (if there are any),
    then one array of all weights of the module. A subgraph takes its inputs and weights one by one.
    Graphs may print where maxtool is: ``prints`` says that the module runs there.
    """

    def __init__(self, plan: LoweringPlan, *, prints: bool = False) -> None:
        super().__init__(plan.placement)
        self.prints = prints
        self.weights = plan.storage
        self._plan = plan

    def entry(
        self,
        graph: Graph,
        symbol: str | None = None,
        usual: Mapping[str, int] | None = None,
    ) -> None:
        """Add a public function that runs ``graph``, by its name or another.

        For the ``usual`` sizes of named dimensions it has code of its own, whose kernels are
        joined (:mod:`maxtool.compiler.joining`); those of convolutions are for all sizes. Artifacts
        have another function in which they are called one by one, which times them.
        """
        if not self.prints and (labels := list(_printed(graph))):
            raise CompilationFailed(
                f"{graph.name} prints {', '.join(labels)}, and an artifact runs without maxtool",
                hint="remove the calls of print, or the hook that prints, before compiling it",
            )
        symbol = graph.name if symbol is None else symbol
        if self.unique(symbol) != symbol:
            raise ValueError(f"the name {symbol!r} is taken by a kernel or another graph")
        is_joined = can_join(graph, self.placement)
        if usual and is_joined:
            form = FunctionForm.for_sizes(usual)
            joined = self._entry(graph, f"{symbol}_joined", form, private=True)
            separate = self._entry(graph, symbol + SEPARATE, PLAIN, private=True)
            add_choice(self, graph, symbol, usual, (joined, separate))
        elif is_joined and is_convolutional(graph):
            self._entry(graph, symbol, JOINED, private=False)
            if not self.prints:
                self._entry(graph, symbol + SEPARATE, PLAIN, private=True)
        else:
            self._entry(graph, symbol, PLAIN, private=False)

    def _entry(self, graph: Graph, symbol: str, form: FunctionForm, *, private: bool) -> Any:  # noqa: ANN401
        """Add a function that runs an entry's graph."""
        storages = {id(value): self.weights[name] for name, value in graph.weight_values.items()}
        self._add_subgraphs(graph, storages, form)
        function = FunctionLowering(self, form)
        plain, state = split_inputs(graph)
        parameters = entry_parameters(function, graph)
        order = {name: index for index, name in enumerate(self.weights)}

        def bind() -> None:
            for value, parameter in zip(plain, parameters, strict=False):
                function.set_whole(value, parameter)
            for index, value in enumerate(state):
                item = _item(parameters[-2], index, function.type(value.type))
                function.set_whole(value, function.emit(item))
            for name, value in graph.weight_values.items():
                stored = self.stored_type(value, self.weights[name])
                item = _item(parameters[-1], order[name], stored)
                function.set_weight(value, function.emit(item), storages[id(value)])

        name = self.unique(symbol) if private else symbol
        return self._add_function(function, graph, name, parameters, bind, private=private)

    def module(self) -> Any:  # noqa: ANN401 - tvm ships no types
        """Return the finished ``IRModule``.

        It always has a kernel: where there is none, TVM writes C source instead of machine code,
        and asks for a C compiler to run it.
        """
        functions = self.builder.get().functions.values()
        if not any(isinstance(function, tirx.PrimFunc) for function in functions):
            smallest = Pointwise(dim=1, inputs=1, steps=(ChainStep("add", (0, 0)),))
            self.kernel(smallest, self.placement.target(HOST))
        module = self.builder.get()
        if not self.placement.is_single:
            module.update_global_info("vdevice", self.placement.vdevices)
        return module

    def _add_subgraphs(
        self, graph: Graph, storages: Mapping[int, WeightStorage], form: FunctionForm
    ) -> None:
        """Add a function for each subgraph and each storage of its weights, inner ones first."""
        for node in graph.nodes:
            if isinstance(node, CallNode):
                passed = tuple(storages[id(value)] for value in node.weights)
                key = key_of(node, passed, form)
                if key not in self._subgraphs:
                    inner = dict(zip(map(id, node.callee.parameters()), passed, strict=True))
                    self._add_subgraphs(node.callee, inner, form)
                    self._subgraphs[key] = self._subgraph(node.callee, passed, form)

    def _subgraph(self, graph: Graph, storages: Sequence[WeightStorage], form: FunctionForm) -> Any:  # noqa: ANN401
        """Add a private function that runs ``graph``."""
        if isinstance(graph, FlowGraph):
            return FlowLowering(self, graph, storages).lowered()
        function = FunctionLowering(self, form)
        parameters = self.parameters(function, graph, storages)
        inputs, weights = parameters[: len(graph.inputs)], parameters[len(graph.inputs) :]

        def bind() -> None:
            for value, parameter in zip(graph.inputs, inputs, strict=True):
                expr = self._typed(function, parameter, function.type(value.type))
                function.set_whole(value, expr)
            stored = zip(graph.parameters(), weights, storages, strict=True)
            for value, parameter, storage in stored:
                expr = self._typed(function, parameter, self.stored_type(value, storage))
                function.set_weight(value, expr, storage)

        everything = [*self.sizes_parameter(function, graph), *parameters]
        name = self.unique(re.sub(r"[^0-9A-Za-z_]", "_", graph.name))
        return self._add_function(function, graph, name, everything, bind, private=True)

    def _add_function(
        self,
        function: FunctionLowering,
        graph: Graph,
        name: str,
        parameters: list[Any],
        bind: Callable[[], None],
        *,
        private: bool,
    ) -> Any:  # noqa: ANN401
        """Add a Relax function: bind its parameters, lower the nodes, return the outputs."""
        marks = {MARK: True} if function.form.joined else {}
        attributes = {"relax.force_pure": True, **marks}
        with self.builder.function(name, parameters, attrs=attributes, private=private):
            with self._dataflow():
                bind()
                output = self.builder.emit_output(self._body(function, graph))
            return self.builder.emit_func_output(output)

    @contextmanager
    def _dataflow(self) -> Iterator[None]:
        """Open a dataflow block, and close it after an error, else TVM would complain."""
        try:
            with self.builder.dataflow():
                yield
        except Exception:
            self.builder._end_block()
            raise

    def _body(self, function: FunctionLowering, graph: Graph) -> Any:  # noqa: ANN401
        """Lower every node; return the outputs, a tuple if there are several."""
        function.index = index = self._plan.rewritten(graph)
        function.rounded = self._rounded(index)
        for constant, value in graph.constants:
            function.constants[id(value)] = constant.to_numpy()
        for node in index.nodes:
            if isinstance(node, CallNode):
                self._call(function, node)
            else:
                self._lower(function, node)
        results = [function.get(value) for value in graph.outputs]
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def _rounded(self, index: NodeIndex) -> dict[int, DType]:
        """Return the types of the values that are read rounded only."""
        types: dict[int, DType] = {}
        for target_kind, rounded in ROUNDING_OF.items():
            types |= rounded(index, partial(is_for, target_kind, self.placement))
        return types

    def _lower(self, function: FunctionLowering, node: Node) -> None:
        """Lower one operation, where its operands are."""
        with function.on(device_of(node)):
            RULES_OF[function.target.kind][node.op](function, node)

    def _call(self, function: FunctionLowering, node: CallNode) -> None:
        """Call a subgraph's function."""
        stored = [function.storage[id(value)] for value in node.weights]
        callee = self.callee(node, stored, function.form)
        values = [function.get(value) for value in (*node.inputs, *node.weights)]
        result = function.emit(relax.Call(callee, [*self.sizes(function, node.callee), *values]))
        single = len(node.outputs) == 1
        for index, value in enumerate(node.outputs):
            part = result if single else function.emit(relax.TupleGetItem(result, index))
            if node.callee.given:
                part = self.builder.match_cast(part, function.type(value.type))
            function.set_whole(value, self._typed(function, part, function.type(value.type)))

    def _typed(self, function: FunctionLowering, value: Any, tensor_type: Any) -> Any:  # noqa: ANN401
        """Return what comes into a subgraph or out of it, with its device if there are several.

        TVM's passes forget the devices of values, and refuse a call by what they have forgotten.
        """
        if self.placement.is_single:
            return value
        items = function.emit(relax.Tuple([value]))
        return function.emit(_item(items, 0, tensor_type))


def _printed(graph: Graph) -> Iterator[str]:
    """Yield the labels of what a graph and its subgraphs print."""
    for node in graph.nodes:
        if isinstance(node, CallNode):
            yield from _printed(node.callee)
        elif node.op == "print":
            yield repr(node.attributes["label"])


def _item(array: Any, index: int, tensor_type: Any) -> Any:  # noqa: ANN401
    """Return an item of an array of tensors, taken to be of a type without looking.

    A tuple parameter would have each item checked on every call, and the code of the checks would
    cost more to compile than that of all layers. Callers see to the types: they come from one plan.
    """
    return relax.op.call_pure_packed(
        "vm.builtin.tuple_getitem", array, relax.prim_value(index), ty_args=[tensor_type]
    )
