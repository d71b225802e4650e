"""Functions of subgraphs: their parameters, and which of them a call calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from maxtool.compiler.lowering.function_form import PLAIN, FunctionForm
from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.compiler.lowering.relax_module import RelaxModule
from maxtool.compiler.placement import Placement
from maxtool.compiler.storage import WeightStorage
from maxtool.graph import CallNode, Graph, Tensor
from maxtool.graph.nested_graph import InnerGraph, names_in


class SubgraphModule(RelaxModule):
    """A Relax module with a private function for each subgraph and each storage of its weights."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self._subgraphs: dict[tuple[object, ...], Any] = {}

    def stored_type(self, value: Tensor, storage: WeightStorage) -> Any:  # noqa: ANN401 - tvm ships no types
        """Return the type of a weight as it is stored."""
        vdevice = self.placement.vdevice(value.device)
        return relax.TensorType(list(storage.stored_shape), storage.stored_dtype, vdevice=vdevice)

    def parameters(
        self, function: FunctionLowering, graph: Graph, storages: Sequence[WeightStorage]
    ) -> list[Any]:
        """Return the parameters of a private function: the inputs of a graph, then its weights."""
        inputs = [function.type(value.type) for value in graph.inputs]
        stored = [
            self.stored_type(*pair) for pair in zip(graph.parameters(), storages, strict=True)
        ]
        return [
            *(relax.Var(f"input_{i}", _anywhere(each)) for i, each in enumerate(inputs)),
            *(relax.Var(f"weight_{i}", _anywhere(each)) for i, each in enumerate(stored)),
        ]

    def sizes(self, function: FunctionLowering, graph: Graph) -> list[Any]:
        """Return the argument with the sizes of names for a nested graph; others take none.

        Its inputs may have a size such as ``n + 1`` only, and its nodes read any that is known.
        """
        if not isinstance(graph, InnerGraph):
            return []
        return [relax.ShapeExpr([function.dim(name) for name in names_in(graph)])]

    def sizes_parameter(self, function: FunctionLowering, graph: Graph) -> list[Any]:
        """Return the parameter for :meth:`sizes`."""
        return [
            relax.Var("sizes", relax.ShapeType(list(shape.values)))
            for shape in self.sizes(function, graph)
        ]

    def callee(
        self,
        node: CallNode,
        storages: Sequence[WeightStorage],
        form: FunctionForm = PLAIN,
    ) -> Any:  # noqa: ANN401
        """Return the function of a subgraph whose weights are stored so, in a form."""
        return self._subgraphs[key_of(node, storages, form)]


def _anywhere(tensor_type: Any) -> Any:  # noqa: ANN401 - tvm ships no types
    """Return a type without its device."""
    return relax.TensorType(tensor_type.shape, tensor_type.dtype)


def key_of(
    node: CallNode, storages: Sequence[WeightStorage], form: FunctionForm
) -> tuple[object, ...]:
    """Return a key that calls of one subgraph share when forms and the storage of weights agree."""
    return (
        id(node.callee),
        form,
        *(
            (each.dtype, each.shape, each.block, each.encoding, each.terms, each.form)
            for each in storages
        ),
    )
