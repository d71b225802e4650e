"""The factories of the CPU's kernels, by the type of their requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from maxtool.compiler.cpu_target import CpuTarget, RegisterTile
from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.cpu import cpu_requests as c
from maxtool.compiler.kernels.cpu.attention import attention, quantized_attention, slot_attention
from maxtool.compiler.kernels.cpu.backend import CpuBackend
from maxtool.compiler.kernels.cpu.block_attention import block_attention
from maxtool.compiler.kernels.cpu.depthwise_convolution import depthwise_convolution
from maxtool.compiler.kernels.cpu.direct_convolution import direct_convolution
from maxtool.compiler.kernels.cpu.dot_attention import dot_attention
from maxtool.compiler.kernels.cpu.embedding import embedding
from maxtool.compiler.kernels.cpu.experts import expert_linear
from maxtool.compiler.kernels.cpu.integer_convolution import integer_convolution
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet, instruction_set
from maxtool.compiler.kernels.cpu.linear import linear, linears
from maxtool.compiler.kernels.cpu.norm import rms_norm
from maxtool.compiler.kernels.cpu.pack_columns import pack_columns
from maxtool.compiler.kernels.cpu.permute import permute
from maxtool.compiler.kernels.cpu.quantize_q8_0 import quantize_q8_0
from maxtool.compiler.kernels.cpu.quantized_embedding import quantized_embedding
from maxtool.compiler.kernels.cpu.quantized_experts import quantized_expert_linear
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linear, quantized_linears
from maxtool.compiler.kernels.cpu.rope import rope
from maxtool.compiler.kernels.cpu.row_parts import cut_rows, join_rows
from maxtool.compiler.kernels.cpu.stack_depth import stack_depth
from maxtool.compiler.kernels.cpu.winograd_convolution import winograd_convolution
from maxtool.compiler.kernels.requests import PrimFunc, Request, Row, row_with
from maxtool.compiler.kernels.shared import on_backend

# Kernels whose inner loops are as wide as the register tile, or as a vector register.
KERNELS: tuple[Row, ...] = (
    row_with(RegisterTile, c.CachedAttention)(attention),
    row_with(RegisterTile, c.BlockAttention)(block_attention),
    row_with(RegisterTile, c.CutRows)(cut_rows),
    row_with(RegisterTile, c.DepthwiseConvolution)(depthwise_convolution),
    row_with(RegisterTile, c.DirectConvolution)(direct_convolution),
    row_with(RegisterTile, r.DotAttention)(dot_attention),
    row_with(RegisterTile, c.JoinRows)(join_rows),
    row_with(RegisterTile, c.StackDepth)(stack_depth),
    row_with(RegisterTile, c.PackedEmbedding)(embedding),
    row_with(RegisterTile, c.PackedExpertLinear)(expert_linear),
    row_with(RegisterTile, c.PackedLinear)(linear),
    row_with(RegisterTile, c.PackedLinears)(linears),
    row_with(RegisterTile, c.PackColumns)(pack_columns),
    row_with(RegisterTile, r.Permute)(permute),
    row_with(RegisterTile, c.QuantizeQ8)(quantize_q8_0),
    row_with(RegisterTile, r.RmsNorm)(rms_norm),
    row_with(RegisterTile, r.Rope)(rope),
    row_with(RegisterTile, c.SlotAttention)(slot_attention),
    row_with(RegisterTile, c.WinogradConvolution)(winograd_convolution),
)

# Kernels of quantized weights, whose products are of integers.
QUANTIZED: tuple[Row, ...] = (
    row_with(InstructionSet, c.QuantizedLinear)(quantized_linear),
    row_with(InstructionSet, c.QuantizedLinears)(quantized_linears),
    row_with(InstructionSet, c.QuantizedEmbedding)(quantized_embedding),
    row_with(InstructionSet, c.QuantizedExpertLinear)(quantized_expert_linear),
)

# Kernels that need both.
BOTH: tuple[Row, ...] = (
    row_with(CpuTarget, c.IntegerConvolution)(integer_convolution),
    row_with(CpuTarget, c.QuantizedAttention)(quantized_attention),
)


def kernels(target: CpuTarget) -> dict[Callable[..., Request], Callable[..., PrimFunc]]:
    """Return the factory of each kernel for a CPU, by the type of its requests; its own first."""
    own = {request: partial(factory, target.tile) for request, factory in KERNELS}
    machine = instruction_set(target)
    integers = {request: partial(factory, machine) for request, factory in QUANTIZED}
    both = {request: partial(factory, target) for request, factory in BOTH}
    return on_backend(CpuBackend(target.tile)) | own | integers | both
