"""The plan of a module: graphs rewritten once, for the storage of weights and for lowering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.placement import Placed, placed
from maxtool.compiler.rewriting import rewrite
from maxtool.compiler.storage import plan_storage
from maxtool.graph import Graph
from maxtool.quantization import QuantizationEncoding


class LoweringPlan:
    """Facts about a module, before the graphs that become its functions are lowered.

    They are its devices, and the storage of every weight that any graph needs, sorted by name.

    Args:
        graphs: The graphs.
        target: What they are compiled for.
        encodings: How the values of weights are encoded that come as bytes of blocks.
    """

    def __init__(
        self,
        graphs: Iterable[Graph],
        target: Placed,
        encodings: Mapping[str, QuantizationEncoding] | None = None,
    ) -> None:
        self.placement = placed(target)
        self._rewritten: dict[Graph, NodeIndex] = {}
        self.storage = plan_storage(graphs, self.placement, self.rewritten, encodings or {})

    def rewritten(self, graph: Graph) -> NodeIndex:
        """Return the nodes of a graph, or of a subgraph, as they are lowered."""
        if graph not in self._rewritten:
            self._rewritten[graph] = rewrite(graph, self.placement)
        return self._rewritten[graph]
