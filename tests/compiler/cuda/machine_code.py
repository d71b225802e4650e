"""What kernels take of a GPU, as ptxas reports it, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm

from maxtool.compiler.cuda.binaries import device_code, source_kept
from maxtool.compiler.cuda.resources import Resources, read_resources
from maxtool.compiler.cuda.target import cuda_target
from maxtool.compiler.kernels.cuda.pipeline import register

TARGET = cuda_target("cuda:sm_80,sm_90")


def resources(functions: Mapping[str, Any]) -> Iterator[tuple[str, str, Resources]]:
    """Name, architecture and resources of each kernel; all are compiled together."""
    named = {name: one.with_attr("global_symbol", name) for name, one in functions.items()}
    with source_kept():
        module = tvm.IRModule(named)
        executable = tvm.compile(module, target=TARGET.tvm, tir_pipeline=register())
    for code in device_code(executable, TARGET):
        for name, found in read_resources(code.log).items():
            yield name, code.name, found
