"""Requests that both kinds of target have kernels for, and the parameters of these kernels."""

from __future__ import annotations

from typing import Any

import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.cpu import cpu_kernels as cpu
from maxtool.compiler.kernels.cuda import cuda_kernels as cuda
from maxtool.compiler.kernels.cuda import gpu_requests as g
from maxtool.compiler.kernels.kernel_options import ChainStep, HeadSizes, Mask, Window
from maxtool.compiler.kernels.kernel_table import build
from maxtool.errors import CompilationFailed

CPU, CUDA = cpu_target(), cuda_target("cuda:sm_80")

WINDOW = Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
ATTENDED: dict[str, Any] = {
    "dtype": "bfloat16",
    "heads": HeadSizes(4, 2, 64, 64),
    "mask": Mask("float32", (True, False, False, False)),
    "causal": True,
    "scale": 0.125,
    "out": "bfloat16",
}
# A request of each kind that a rule makes for any target.
SHARED = [
    r.AddPositions(hidden=64, weight_dtype="float16"),
    r.CacheWrite(kv_heads=2, head_dim=64, dtype="bfloat16", transposed=True),
    r.CacheWrite(kv_heads=2, head_dim=64, dtype="bfloat16", transposed=False),
    r.CausalConvolution(taps=3, channels=64),
    r.Convolution(dtype="bfloat16", window=WINDOW, channels=8, features=6, groups=2),
    r.CumsumRows(dtype="bfloat16", exclusive=False, reverse=False),
    r.DotAttention(**ATTENDED),
    r.GatherRows(dtype="bfloat16", places="int32"),
    r.GroupNormRows(dtype="bfloat16", weight="float32", eps=1e-5, groups=2, channels=8),
    r.IndexRows(op="argmax", dtype="bfloat16"),
    r.IntegerPower(dtype="int32"),
    r.L2NormRows(dtype="bfloat16", eps=1e-6),
    r.LayerNormRows(dtype="bfloat16", weight="float32", eps=1e-5, out="bfloat16"),
    r.LinearAttention(key_heads=1, heads=2, key_dim=8, value_dim=16, delta=True),
    r.NonzeroPlaces(rank=2),
    r.Permute(dtype="bfloat16", dims=(1, 0, 2)),
    r.Pointwise(dim=64, inputs=2, steps=(ChainStep("mul", (0, 1)),)),
    r.Pool(op="max_pool", dtype="bfloat16", window=WINDOW, channels=8, count_padding=True),
    r.PoolIndices(dtype="bfloat16", window=WINDOW, channels=8),
    r.ReduceRows(op="sum", dtype="bfloat16"),
    r.RmsNorm(dim=64, eps=1e-5),
    r.RmsNormRows(dtype="bfloat16", weight="float32", eps=1e-5, offset=1.0, round_first=True),
    r.Rope(head_dim=64, dim=64),
    r.RopeAngles(half=16, original=128, factor=8.0, long_factor=4.0, function="cos"),
    r.Sample(),
    r.ScatterBlocks(dtype="bfloat16"),
    r.ScatterRows(dtype="bfloat16", places="int32", adds=False),
    r.SelectiveScan(state_dim=16, channels=64),
    r.SoftmaxRows(op="softmax", dtype="bfloat16"),
    r.SortedPlaces(dtype="bfloat16", ascending=True),
    r.TopRows(dtype="bfloat16", count=3),
    r.WeightedSum(),
]


def parameters(function: Any) -> list[tuple[str, ...]]:
    """Name, type and sizes of each parameter of a kernel."""
    return [(param.name, str(param.dtype), *map(str, param.shape)) for param in function.params]


def test_every_request_for_any_target_is_here() -> None:
    assert {type(one) for one in SHARED} == set(cpu.kernels(CPU)) & set(cuda.kernels(CUDA))


@pytest.mark.parametrize("request_", SHARED, ids=lambda one: type(one).__name__)
def test_a_kernel_has_the_same_parameters_everywhere(request_: r.Request) -> None:
    assert parameters(build(request_, CPU)) == parameters(build(request_, CUDA))


def test_a_target_without_a_kernel_says_so() -> None:
    with pytest.raises(CompilationFailed, match="there is no kernel Narrow for cpu"):
        build(g.Narrow(dtype="float16"), CPU)


def test_requests_are_keys() -> None:
    assert len({r.RmsNorm(dim=64, eps=1e-5), r.RmsNorm(dim=64, eps=1e-5, out="float32")}) == 1
    assert r.RmsNorm(dim=64, eps=1e-5, out="float16") != r.RmsNorm(dim=64, eps=1e-5)
