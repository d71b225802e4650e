"""Kernels built for a target, by request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from maxtool.compiler.kernels.cpu import cpu_kernels as cpu
from maxtool.compiler.kernels.cuda import cuda_kernels as cuda
from maxtool.compiler.kernels.requests import PrimFunc, Request
from maxtool.compiler.targets import Target
from maxtool.errors import CompilationFailed

TABLES: dict[str, Callable[[Any], Mapping[Callable[..., Request], Callable[..., PrimFunc]]]] = {
    "cpu": cpu.kernels,
    "cuda": cuda.kernels,
}


def build(request: Request, target: Target) -> PrimFunc:
    """Build the kernel of a request for a target; CompilationFailed if it has none."""
    factory = TABLES[target.kind](target).get(type(request))
    if factory is None:
        raise CompilationFailed(f"there is no kernel {type(request).__name__} for {target.kind}")
    return factory(**vars(request))
