"""Kernels as the compiler lowers them for a GPU, up to where host and device part."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from maxtool.compiler.cuda.target import cuda_target
from maxtool.compiler.kernels.cuda.pipeline import lowering_passes

TARGET = cuda_target("cuda:sm_80,sm_90").tvm


def lower(function: Any) -> Any:
    """A PrimFunc as a kernel factory returns it, lowered."""
    name = str(function.attrs.get("global_symbol", "kernel")) if function.attrs else "kernel"
    (lowered,) = _lowered(tvm.IRModule({name: function})).functions.values()
    return lowered


def device_functions(module: Any) -> dict[str, Any]:
    """The device functions that the PrimFuncs of a module are split into, by name."""
    kernels = {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    split = tirx.transform.SplitHostDevice()(_lowered(tvm.IRModule(kernels)))
    return {
        variable.name_hint: function
        for variable, function in split.functions.items()
        if variable.name_hint not in kernels
    }


def _lowered(module: Any) -> Any:
    for variable, function in module.functions.items():
        module[variable] = function.with_attr("global_symbol", variable.name_hint)
    with TARGET:
        passes = tvm.transform.Sequential([tirx.transform.BindTarget(TARGET), *lowering_passes()])
        return passes(module)
