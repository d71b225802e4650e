"""The lowering rules of each kind of target."""

from __future__ import annotations

from maxtool.compiler.lowering.cuda.caching import Fusion, with_cache_writes
from maxtool.compiler.lowering.cuda.rounding import Rounding, rounded_values
from maxtool.compiler.lowering.cuda.table import CUDA_RULES
from maxtool.compiler.lowering.rules import RULES, Rule

RULES_OF: dict[str, dict[str, Rule]] = {"cpu": RULES, "cuda": CUDA_RULES}

# What is done to the nodes of a graph before they are lowered, on one kind of target.
FUSIONS_OF: dict[str, Fusion] = {"cuda": with_cache_writes}

# Which values are read rounded only, there.
ROUNDING_OF: dict[str, Rounding] = {"cuda": rounded_values}
