"""Kernels as the compiler lowers them for a GPU, up to where host and device part."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from maxtool.compiler.kernels.cuda.pipeline import lowering_passes

TARGET = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_threads_per_block": 1024,
    "max_num_threads": 1024,
    "thread_warp_size": 32,
    "max_shared_memory_per_block": 49152,
    "host": {"kind": "llvm", "mcpu": "x86-64-v3"},
}


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
    target = tvm.target.Target(TARGET)
    with target:
        for one in (tirx.transform.BindTarget(target), *lowering_passes()):
            module = one(module)
    return module
