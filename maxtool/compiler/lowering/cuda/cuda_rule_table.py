"""The lowering table of NVIDIA GPUs: that of the CPU, but for what has rules of its own."""

from __future__ import annotations

from maxtool.compiler.lowering.cuda.cuda_attention_rules import ATTENTION
from maxtool.compiler.lowering.cuda.cuda_cache_rules import CACHING
from maxtool.compiler.lowering.cuda.cuda_expert_rules import EXPERTS
from maxtool.compiler.lowering.cuda.cuda_gemv_rules import FUSED_GEMV
from maxtool.compiler.lowering.cuda.cuda_norm_rules import NORMS
from maxtool.compiler.lowering.cuda.cuda_product_rules import PRODUCTS
from maxtool.compiler.lowering.function_lowering import Rule
from maxtool.compiler.lowering.rules import RULES

CUDA_RULES: dict[str, Rule] = {
    **RULES,
    **ATTENTION,
    **CACHING,
    **EXPERTS,
    **FUSED_GEMV,
    **NORMS,
    **PRODUCTS,
}
