"""Running what was compiled in this very process: eager operations, and ``Module.compile``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from maxtool.compiler.device_memory import upload
from maxtool.compiler.eager import EagerPrograms
from maxtool.compiler.program import Program
from maxtool.compiler.storage import encodings_of
from maxtool.compiler.targets import Targets
from maxtool.graph import Graph, Tensor
from maxtool.graph.executor import register
from maxtool.quantization import QuantizationEncoding
from maxtool.runtime.loader.host import set_threads
from maxtool.weights.weight_data import WeightData

Array = np.ndarray[Any, Any]


class BoundGraph:
    """A compiled graph with copies of its weights."""

    def __init__(self, graph: Graph, program: Program, weights: Mapping[str, Array]) -> None:
        self._program, self._bound = program, program.bind(weights)
        self._kept = program.kept(weights)
        results = [value.type for value in graph.outputs]
        self._run = program.function(graph.name, self._bound, results)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run it on its inputs."""
        return self._run(inputs)

    @property
    def encodings(self) -> Mapping[str, QuantizationEncoding]:
        """Encodings of the weights that are stored quantized, by name."""
        return encodings_of(self._program.storage)

    def weight(self, name: str) -> WeightData:
        """A copy of a weight as it was when the graph was compiled; quantized if it is so."""
        if name in self._kept:
            storage = self._program.storage[name]
            return WeightData(self._kept[name].copy(), name, storage.dtype, storage.shape)
        return self._program.weight(name, self._bound)


class CompilingExecutor:
    """Runs operations and graphs by compiling them for this machine.

    Eager operations are compiled when they are first used; see :class:`EagerPrograms`.
    """

    def __init__(self) -> None:
        set_threads(0)
        self._targets = Targets()
        self.prepared = EagerPrograms(self._targets).prepared
        self.upload = upload

    def compile(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        encodings: Mapping[str, QuantizationEncoding] | None = None,
    ) -> BoundGraph:
        """Compile a graph for this machine; the result takes its inputs as tensors.

        The values of the weights are copied: what happens to the arrays later changes nothing. They
        are elements, or bytes of blocks for those that ``encodings`` names.
        """
        return BoundGraph(graph, Program([graph], self._targets, encodings), weights)


@cache
def executor() -> CompilingExecutor:
    """The one executor of the process."""
    return CompilingExecutor()


register(executor)
