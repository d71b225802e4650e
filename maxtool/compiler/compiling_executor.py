"""Running what was compiled in this very process: eager operations, and ``Module.compile``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from maxtool.compiler.device_memory import upload
from maxtool.compiler.eager import EagerPrograms
from maxtool.compiler.program import Program
from maxtool.compiler.targets import Targets
from maxtool.graph import Graph, Tensor
from maxtool.graph.executor import register
from maxtool.runtime.loader.host import set_threads

Array = np.ndarray[Any, Any]


class BoundGraph:
    """A compiled graph with copies of its weights."""

    def __init__(self, graph: Graph, program: Program, weights: Mapping[str, Array]) -> None:
        self._program, self._bound = program, program.bind(weights)
        results = [value.type for value in graph.outputs]
        self._run = program.function(graph.name, self._bound, results)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run it on its inputs."""
        return self._run(inputs)

    def weight(self, name: str) -> Array:
        """The elements of a weight, as they were when the graph was compiled."""
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

    def compile(self, graph: Graph, weights: Mapping[str, Array]) -> BoundGraph:
        """Compile a graph for this machine; the result takes its inputs as tensors.

        The values of the weights are copied: what happens to the arrays later changes nothing.
        """
        return BoundGraph(graph, Program([graph], self._targets), weights)


@cache
def executor() -> CompilingExecutor:
    """The one executor of the process."""
    return CompilingExecutor()


register(executor)
