"""What is done to the nodes of a graph before they are lowered for GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from maxtool.compiler.lowering.cuda.caching import with_cache_writes, with_steps
from maxtool.compiler.lowering.cuda.few_products import with_few_products
from maxtool.compiler.lowering.cuda.residuals import with_residuals
from maxtool.compiler.rewriting import Nodes
from maxtool.graph import Node, Tensor

# Products take their residuals before those of decode steps are joined.
FUSIONS = (with_cache_writes, with_steps, with_residuals, with_few_products)


def fused(nodes: Nodes, outputs: Sequence[Tensor], is_here: Callable[[Node], bool]) -> Nodes:
    """Nodes that compute the same in fewer launches.

    Args:
        nodes: What is to be lowered, in order.
        outputs: The outputs of the graph.
        is_here: Whether a node is lowered for a GPU.
    """
    for fusion in FUSIONS:
        nodes = fusion(nodes, outputs, is_here)
    return nodes
