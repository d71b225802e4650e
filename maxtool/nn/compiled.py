"""``Module.compile``: a traced module as a function of this process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from inspect import Parameter
from os import PathLike
from typing import Any, Protocol

import numpy as np

from maxtool.graph import Graph, Tensor, TensorType, Weight, executor
from maxtool.graph.executor import CompiledGraph
from maxtool.graph.limits import least_sizes
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.arguments import Arguments
from maxtool.nn.called import Called, signature_of
from maxtool.nn.leaf_names import argument_names, result_names
from maxtool.nn.pytree import flatten, unflatten
from maxtool.nn.saving import CompiledFunction
from maxtool.nn.tracing import trace
from maxtool.nn.weight_binding import bound_data, weight_values
from maxtool.weights.weight_data import WeightData

Array = np.ndarray[Any, Any]


class DeviceSession(Protocol):
    """Protocol of a session: it knows the devices that a module may use."""

    def check(self, graph: Graph) -> None:
        """Raise a ``ValueError`` unless the graph can run there."""


class CompiledModule:
    """A module compiled for this machine: call it as the module, with tensors or NumPy arrays."""

    def __init__(
        self, name: str, graph: Graph, arguments: Arguments, run: CompiledGraph, nesting: Hashable
    ) -> None:
        self._name = name
        self._graph = graph
        self._arguments = arguments
        self._run = run
        self._nesting = nesting

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any nesting
        """Run it.

        Raises:
            ValueError: Naming each argument that does not fit, what was expected and what it is.
        """
        return unflatten(self._nesting, self._run(*self._arguments.tensors(args, kwargs)))

    def save(
        self,
        folder: str | PathLike[str],
        *,
        force: bool = False,
        check: bool = False,
        standalone: bool = False,
    ) -> None:
        """Write it as an artifact, the folder that ``maxtool compile`` makes.

        Its one entry is ``forward``, whose inputs have the names of the arguments; tensors in
        tuples, lists and dicts have their numbers and keys behind it (``pair_0``). Outputs are
        named likewise: ``output``, ``output_0``, or the keys of a dict.

        Args:
            folder: The folder to make.
            force: Whether an existing artifact is replaced.
            check: Whether its outputs are compared with the graph in float64 first.
            standalone: Whether TVM's runtime library is put into the folder.

        Raises:
            OutputExists: If something is there already.
            ModelMismatch: If the module is not a function of arrays alone: if it writes buffers
                in place, runs on several devices, or needs sizes that nothing checks.
            ParityFailed: If the outputs are not those of the graph.
            MachineLacks: If the disk has no room, or the machine no linker.
        """
        function = CompiledFunction(
            name=self._name,
            graph=self._graph,
            inputs=argument_names(self._arguments.names, self._arguments.types),
            outputs=result_names(self._nesting),
            weight=self._run.weight,
            encodings=self._run.encodings,
        )
        function.save(folder, force=force, check=check, standalone=standalone)

    def __repr__(self) -> str:
        pairs = zip(self._arguments.names, self._arguments.types, strict=True)
        return f"CompiledModule({self._name}, {', '.join(f'{n}: {type_}' for n, type_ in pairs)})"


def compile_module(
    module: Called[..., Any],
    input_types: Sequence[Any],
    weights: Mapping[str, states.Value] | None,
    session: DeviceSession | None,
) -> CompiledModule:
    """Compile a module, as :meth:`Base.compile` does."""
    given = states.fitting(tree.leaves(module), weights, align=1) if weights is not None else {}
    data = {name: value.data for name, value in given.items()}
    kinds, nesting = flatten(input_types, TensorType)
    results: list[Hashable] = []

    def function(*inputs: Tensor) -> list[Tensor]:
        call: Callable[..., Any] = module
        outputs, structure = flatten(call(*unflatten(nesting, inputs)))
        results.append(structure)
        return outputs

    graph = trace(module, "main", kinds, function)
    if not graph.outputs:
        raise ValueError(f"{type(module).__name__} returns no tensor")
    states.require_sizes(graph)
    if session is not None:
        session.check(graph)
    values = weight_values(graph, _bound(graph, module) | data)
    run = executor.find_executor().compile(graph, values.arrays, values.encodings)
    arguments = Arguments(_names(module, len(input_types)), input_types, least_sizes(graph))
    return CompiledModule(type(module).__name__, graph, arguments, run, results[0])


def _bound(graph: Graph, module: Called[..., Any]) -> dict[str, WeightData]:
    """Return the data of each parameter that has some: of the tree's, and of others it reads.

    Parts of split weights have none of their own here: they are cut from the whole.
    """
    read = {name: graph.weight(name) for name in graph.weight_values if name not in graph.parts}
    tensors: dict[str, Tensor] = {
        name: weight for name, weight in read.items() if weight is not None and weight.name == name
    }
    tensors |= {leaf.name: leaf.tensor for leaf in tree.leaves(module)}
    return {
        name: bound_data(name, tensor)
        for name, tensor in tensors.items()
        if not isinstance(tensor, Weight) or tensor.is_bound
    }


def _names(module: Called[..., Any], count: int) -> list[str]:
    """Return the argument names of ``forward``; starred arguments are passed by position."""
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature_of(module).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return [*names[:count], *(str(index) for index in range(len(names), count))]
