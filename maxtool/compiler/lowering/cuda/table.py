"""The lowering table of NVIDIA GPUs: that of the CPU, but for what has rules of its own."""

from __future__ import annotations

from maxtool.compiler.lowering.cuda.attention import ATTENTION
from maxtool.compiler.lowering.cuda.caching import CACHING
from maxtool.compiler.lowering.cuda.experts import EXPERTS
from maxtool.compiler.lowering.cuda.few_products import FEW_PRODUCTS
from maxtool.compiler.lowering.cuda.norms import NORMS
from maxtool.compiler.lowering.cuda.products import PRODUCTS
from maxtool.compiler.lowering.function import Rule
from maxtool.compiler.lowering.rules import RULES

CUDA_RULES: dict[str, Rule] = {
    **RULES,
    **ATTENTION,
    **CACHING,
    **EXPERTS,
    **FEW_PRODUCTS,
    **NORMS,
    **PRODUCTS,
}
