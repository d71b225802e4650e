"""The lowering rules of each kind of target."""

from __future__ import annotations

from maxtool.compiler.lowering.cuda.table import CUDA_RULES
from maxtool.compiler.lowering.rules import RULES, Rule

RULES_OF: dict[str, dict[str, Rule]] = {"cpu": RULES, "cuda": CUDA_RULES}
