"""The factories of the kernels of NVIDIA GPUs, by the type of their requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from maxtool.compiler.cuda.cuda_target import CudaTarget
from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.cuda import gpu_requests as g
from maxtool.compiler.kernels.cuda.attention import attention, dot_attention
from maxtool.compiler.kernels.cuda.backend import CudaBackend
from maxtool.compiler.kernels.cuda.depthwise import depthwise
from maxtool.compiler.kernels.cuda.embedding import embedding
from maxtool.compiler.kernels.cuda.expert_sort import expert_order
from maxtool.compiler.kernels.cuda.experts import expert_linear
from maxtool.compiler.kernels.cuda.fused_gemv import gated_linear, linears
from maxtool.compiler.kernels.cuda.implicit_gemm import implicit_gemm
from maxtool.compiler.kernels.cuda.linear import linear
from maxtool.compiler.kernels.cuda.norm import chain_rms_norm, rms_norm
from maxtool.compiler.kernels.cuda.rope import rope
from maxtool.compiler.kernels.cuda.rope_into_cache import rope_into_cache
from maxtool.compiler.kernels.cuda.round_activations import narrow
from maxtool.compiler.kernels.cuda.split_kv import attention_step, split_kv_attention
from maxtool.compiler.kernels.cuda.split_kv_combine import combine_splits
from maxtool.compiler.kernels.requests import PrimFunc, Request, Row, row, row_with
from maxtool.compiler.kernels.shared import on_backend

KERNELS: tuple[Row, ...] = (
    row(g.ChainRmsNorm)(chain_rms_norm),
    row(g.AttentionJoin)(combine_splits),
    row(g.AttentionSplit)(split_kv_attention),
    row(g.AttentionStep)(attention_step),
    row(g.Depthwise)(depthwise),
    row(r.Embedding)(embedding),
    row(g.ExpertOrder)(expert_order),
    row(g.Narrow)(narrow),
    row(r.RmsNorm)(rms_norm),
    row(r.Rope)(rope),
    row(g.RopeIntoCache)(rope_into_cache),
)
# Kernels whose tiles are as large as the shared memory of a block allows.
TILED: tuple[Row, ...] = (
    row_with(int, g.CachedAttention)(attention),
    row_with(int, r.DotAttention)(dot_attention),
    row_with(int, g.ExpertLinear)(expert_linear),
    row_with(int, g.GatedLinear)(gated_linear),
    row_with(int, g.ImplicitGemm)(implicit_gemm),
    row_with(int, g.Linear)(linear),
    row_with(int, g.Linears)(linears),
)


def kernels(target: CudaTarget) -> dict[Callable[..., Request], Callable[..., PrimFunc]]:
    """Return the factory of each kernel for GPUs, by the type of its requests."""
    tiled = {request: partial(factory, target.shared_memory) for request, factory in TILED}
    shared = on_backend(CudaBackend())
    return {**tiled, **shared, **dict(KERNELS)}
