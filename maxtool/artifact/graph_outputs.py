"""Outputs of an artifact's graphs in float64, asked for as those of the artifact are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.weights import computed_weights
from maxtool.nn.weight_binding import elements
from maxtool.parity import evaluate

Array: TypeAlias = np.ndarray[Any, Any]


class Elements(Mapping[str, Array]):
    """The decoded elements of weights, read each time they are asked for."""

    def __init__(self, contents: Contents) -> None:
        self._read = contents.read
        self._computed = computed_weights(contents)
        self._names = {name for graph in contents.graphs for name in graph.weight_values}

    def __getitem__(self, name: str) -> Array:
        if name in self._computed:
            return self._computed[name]()
        return elements(self._read(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class GraphRunner:
    """The functions of an artifact for one device, evaluated in NumPy float64."""

    def __init__(self, contents: Contents, *, rounds: bool = False) -> None:
        """``rounds`` is whether activations are rounded as kernels of quantized weights do."""
        self._functions = {function.name: function for function in contents.functions}
        self._weights = Elements(contents)
        self._rounding = contents.rounding if rounds else {}
        self._state = contents.state

    def entry(self, name: str) -> NamedGraph:
        """A function by name."""
        return self._functions[name]

    def new_state(self, **sizes: int) -> list[Array]:
        """The buffers of the function that has most of them, in zeros, floats in float64."""
        types = self._state.values()
        shapes = [[dim.size(sizes) for dim in type_.shape] for type_ in types]
        dtypes = ["f8" if kind.dtype.is_float() else kind.dtype.to_numpy() for kind in types]
        return [np.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def run(
        self, name: str, inputs: Mapping[str, Array], state: list[Array] | None = None
    ) -> dict[str, Array]:
        """Evaluate a function, and write the buffers of the state in place."""
        function = self._functions[name]
        buffers = (state or [])[: len(function.state)]
        arrays = [*(inputs[input_] for input_ in function.inputs), *buffers]
        outputs = evaluate(function.graph, arrays, self._weights, self._rounding)
        return dict(zip(function.outputs, outputs, strict=True))
