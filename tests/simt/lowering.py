"""Kernels as the compiler lowers them for a GPU, up to where host and device part."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.kernels.cuda.cuda_passes import lowering_passes

TARGET = cuda_target("cuda:sm_80,sm_90").tvm


def lower(function: Any) -> Any:
    """A PrimFunc as a kernel factory returns it, lowered."""
    name = str(function.attrs.get("global_symbol", "kernel")) if function.attrs else "kernel"
    module = tvm.IRModule({name: function.with_attr("global_symbol", name)})
    with TARGET:
        passes = tvm.transform.Sequential([tirx.transform.BindTarget(TARGET), *lowering_passes()])
        (lowered,) = passes(module).functions.values()
    return lowered
