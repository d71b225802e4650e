"""Running what was compiled in this very process: eager operations, and ``Module.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from maxtool.compiler.eager import EagerPrograms
from maxtool.compiler.program import Program
from maxtool.compiler.target import cpu_target
from maxtool.errors import MachineLacks
from maxtool.graph import Graph, Tensor, TensorType
from maxtool.graph.limits import devices
from maxtool.runtime.loader import set_threads

Array = np.ndarray[Any, Any]


class CompilingExecutor:
    """Runs operations and graphs by compiling them for this machine.

    Eager operations are compiled when they are first used; see :class:`EagerPrograms`.
    """

    def __init__(self) -> None:
        set_threads(0)
        self._target = cpu_target()
        self._operations = EagerPrograms(self._target)

    def evaluate(
        self,
        op: str,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one operation on concrete operands, of which none is changed."""
        return self._operations.evaluate(op, operands, attributes, results)

    def compile(
        self, graph: Graph, weights: Mapping[str, Array]
    ) -> Callable[..., tuple[Tensor, ...]]:
        """Compile a graph for this machine; the result takes its inputs as tensors.

        The values of the weights are copied: what happens to the arrays later changes nothing.

        Raises:
            MachineLacks: If something is to run on another device.
            MissingWeight: Listing the weights of the graph that ``weights`` lacks.
            MisshapenWeight: Listing those of another dtype or shape than the graph declares.
        """
        _require_host(graph)
        program = Program([graph], self._target)
        bound = program.bind(weights)
        results = [value.type for value in graph.outputs]
        return lambda *inputs: program.run(
            graph.name, [tensor.to_numpy() for tensor in inputs], bound, results
        )


@cache
def executor() -> CompilingExecutor:
    """The one executor of the process."""
    return CompilingExecutor()


def _require_host(graph: Graph) -> None:
    """Refuse a graph that names another device than the host, which alone is compiled for here."""
    if others := sorted(device.name for device in devices(graph) if not device.is_cpu()):
        raise MachineLacks(f"nothing here compiles for {', '.join(others)}; there is the host only")
