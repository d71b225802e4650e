"""Every kernel that a rule asks for is there on GPUs, with the same options and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

import pytest

from maxtool.compiler.cuda.target import cuda_target
from maxtool.compiler.kernels.cpu.table import kernels as cpu_kernels
from maxtool.compiler.kernels.cuda.table import kernels as cuda_kernels
from maxtool.compiler.kernels.forms import Heads, Mask, Step, Window
from maxtool.compiler.target import cpu_target

CPU, CUDA = cpu_kernels(cpu_target()), cuda_kernels(cuda_target("cuda:sm_80"))
# Matrices lie on GPUs as they are.
PACKED = {"pack_columns"}


def test_gpus_have_every_kernel() -> None:
    assert CPU.keys() - CUDA.keys() == PACKED


# What the rules of GPUs ask for with options of their own.
OTHER = {"expert_linear", "linear"}


@pytest.mark.parametrize("name", sorted(CPU.keys() - PACKED - OTHER))
def test_a_kernel_takes_the_options_that_rules_give(name: str) -> None:
    given = {
        option
        for option, parameter in signature(CPU[name]).parameters.items()
        if option not in ("tile", "lanes")
    }
    parameters = signature(CUDA[name]).parameters.values()
    needed = {one.name for one in parameters if one.default is Parameter.empty}
    assert needed - {"dtype"} <= given <= {one.name for one in parameters}


# Values of options by their name, and what some kernels have otherwise.
VALUES: dict[str, Any] = {
    "ascending": True,
    "causal": True,
    "channels": 8,
    "count": 3,
    "count_padding": True,
    "dim": 64,
    "dims": (1, 0, 2),
    "dtype": "bfloat16",
    "eps": 1e-5,
    "exclusive": False,
    "factor": 8.0,
    "features": 6,
    "function": "cos",
    "groups": 2,
    "half": 16,
    "head_dim": 64,
    "heads": 4,
    "hidden": 64,
    "inputs": 2,
    "kv_heads": 2,
    "mask": Mask("float32", (True, False, False, False)),
    "offset": 1.0,
    "op": "sum",
    "original": 128,
    "places": "int32",
    "rank": 2,
    "reverse": False,
    "round_first": True,
    "scale": 0.125,
    "steps": (Step("mul", (0, 1)),),
    "vocab": 100,
    "weight": "float32",
    "weight_dtype": "float16",
    "window": Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
}
OTHERWISE: dict[str, dict[str, Any]] = {
    "attention": {"window": None, "softcap": None, "dtype": "float32"},
    "dot_attention": {"heads": Heads(4, 2, 64, 64)},
    "index_rows": {"op": "argmax"},
    "integer_power": {"dtype": "int32"},
    "pool": {"op": "max_pool2d"},
    "softmax_rows": {"op": "softmax"},
}


def parameters(kernel: Callable[..., Any], options: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Name, type and sizes of each parameter of a kernel."""
    known = signature(kernel).parameters
    function = kernel(**{name: value for name, value in options.items() if name in known})
    return [(one.name, str(one.dtype), *map(str, one.shape)) for one in function.params]


# Keys lie transposed for a CPU, and tables packed.
LAID_OUT = {"attention", "embedding"}


@pytest.mark.parametrize("name", sorted(CPU.keys() - PACKED - OTHER - LAID_OUT))
def test_a_kernel_has_the_same_parameters_everywhere(name: str) -> None:
    options = {**VALUES, **OTHERWISE.get(name, {})}
    assert parameters(CPU[name], options) == parameters(CUDA[name], options)
