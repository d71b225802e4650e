"""``Module.compile``: a traced module as a function of this process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Protocol

import numpy as np

from maxtool.graph import Graph, Tensor, TensorType, Weight, executor
from maxtool.graph.limits import least_sizes
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.arguments import Arguments
from maxtool.nn.called import Called, signature_of
from maxtool.nn.pytree import flatten, unflatten
from maxtool.nn.tracing import trace
from maxtool.weights.data import WeightData

Array = np.ndarray[Any, Any]


class Session(Protocol):
    """What knows the devices that a module may use."""

    def check(self, graph: Graph) -> None:
        """Raise a ``ValueError`` unless the graph can run there."""


class CompiledModule:
    """Result of :meth:`Base.compile`: call it as the module, with tensors or NumPy arrays.

    Args:
        name: The module's class.
        arguments: What it takes.
        run: Runs the compiled graph on the flat inputs.
        nesting: How ``forward`` nests its results.
    """

    def __init__(
        self,
        name: str,
        arguments: Arguments,
        run: Callable[..., tuple[Tensor, ...]],
        nesting: Hashable,
    ) -> None:
        self._name = name
        self._arguments = arguments
        self._run = run
        self._nesting = nesting

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any nesting
        """Run it.

        Raises:
            ValueError: Naming each argument that does not fit, what was expected and what it is.
        """
        return unflatten(self._nesting, self._run(*self._arguments.tensors(args, kwargs)))

    def __repr__(self) -> str:
        pairs = zip(self._arguments.names, self._arguments.types, strict=True)
        return f"CompiledModule({self._name}, {', '.join(f'{n}: {kind}' for n, kind in pairs)})"


def compile_module(
    module: Called[..., Any],
    input_types: Sequence[Any],
    weights: Mapping[str, states.Value] | None,
    session: Session | None,
) -> CompiledModule:
    """Compile a module, as :meth:`Base.compile` does."""
    found = states.fitting(tree.leaves(module), weights, align=1) if weights is not None else {}
    given = {name: one.data for name, one in found.items()}
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
    run = executor.find().compile(graph, _values(graph, _bound(graph, module) | given))
    arguments = Arguments(_names(module, len(input_types)), input_types, least_sizes(graph))
    return CompiledModule(type(module).__name__, arguments, run, results[0])


def _values(graph: Graph, data: Mapping[str, WeightData]) -> dict[str, Array]:
    """The elements of every weight of the graph that has data; of a split one, each part's."""
    parts = {
        name: part.strategy.cut(data[part.whole], part.index)
        for name, part in graph.parts.items()
        if part.whole in data
    }
    known = {**data, **parts}
    return {name: _elements(known[name]) for name in graph.weight_values if name in known}


def _bound(graph: Graph, module: Called[..., Any]) -> dict[str, WeightData]:
    """Every parameter that has data: those of the tree, and others it reads."""
    found = {name: graph.weight(name) for name in graph.weight_values}
    used = {name: one for name, one in found.items() if one is not None and one.name == name}
    tensors: dict[str, Tensor] = {
        **used,
        **{leaf.name: leaf.tensor for leaf in tree.leaves(module)},
    }
    return {name: _data(name, tensor) for name, tensor in tensors.items() if _is_bound(tensor)}


def _is_bound(tensor: Tensor) -> bool:
    return not isinstance(tensor, Weight) or tensor.is_bound


def _data(name: str, tensor: Tensor) -> WeightData:
    array = tensor.to_numpy()
    if isinstance(tensor, Weight) and tensor.quantization_encoding:
        shape = tensor.shape.static()
        return WeightData(array, name, tensor.dtype, shape, tensor.quantization_encoding)
    return WeightData.from_numpy(array, name)


def _elements(data: WeightData) -> Array:
    """The elements, decoded if they are quantized."""
    return data.data if data.quantization_encoding is None else data.astype(data.dtype).data


def _names(module: Called[..., Any], count: int) -> list[str]:
    """What ``forward`` calls its arguments; those it gathers with a star are called by position."""
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature_of(module).parameters.values()
    names = [one.name for one in parameters if one.kind in positional]
    return [*names[:count], *(str(place) for place in range(len(names), count))]
