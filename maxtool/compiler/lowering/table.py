"""The lowering rules of each kind of target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from maxtool.compiler.lowering.cuda.fusions import fused
from maxtool.compiler.lowering.cuda.rounding import Rounding, rounded_values
from maxtool.compiler.lowering.cuda.table import CUDA_RULES
from maxtool.compiler.lowering.function import Rule
from maxtool.compiler.lowering.rules import RULES
from maxtool.compiler.rewriting import Nodes
from maxtool.graph import Node, Tensor

# From nodes, the graph's outputs, and whether a node is lowered for the target, to other nodes.
Fusion: TypeAlias = Callable[[Nodes, Sequence[Tensor], Callable[[Node], bool]], Nodes]

RULES_OF: dict[str, dict[str, Rule]] = {"cpu": RULES, "cuda": CUDA_RULES}

# What is done to the nodes of a graph before they are lowered, on one kind of target.
FUSIONS_OF: dict[str, Fusion] = {"cuda": fused}

# Which values are read rounded only, there.
ROUNDING_OF: dict[str, Rounding] = {"cuda": rounded_values}
