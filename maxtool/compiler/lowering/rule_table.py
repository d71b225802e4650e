"""The lowering rules of each kind of target."""

from __future__ import annotations

from maxtool.compiler.lowering.cuda.cuda_attention_rules import ATTENTION
from maxtool.compiler.lowering.cuda.cuda_convolution_rules import CONVOLUTIONS
from maxtool.compiler.lowering.cuda.cuda_norm_rules import NORMS
from maxtool.compiler.lowering.cuda.cuda_product_rules import PRODUCTS
from maxtool.compiler.lowering.cuda.rounding import Rounding, rounded_values
from maxtool.compiler.lowering.function_lowering import Rule
from maxtool.compiler.lowering.rules import RULES

RULES_OF: dict[str, dict[str, Rule]] = {
    "cpu": RULES,
    "cuda": {**RULES, **ATTENTION, **CONVOLUTIONS, **NORMS, **PRODUCTS},
}

# Which values are read rounded only, on one kind of target.
ROUNDING_OF: dict[str, Rounding] = {"cuda": rounded_values}
