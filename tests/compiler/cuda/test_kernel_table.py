"""Every kernel that a rule asks for is there on GPUs, and is built from the same options."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest

from maxtool.compiler.cuda.target import cuda_target
from maxtool.compiler.kernels.cpu.table import kernels as cpu_kernels
from maxtool.compiler.kernels.cuda.table import kernels as cuda_kernels
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
