"""The passes that lower PrimFuncs to launches on the host and CUDA C++ for the device.

Kernels come with their threads bound and their synchronisation placed, so that of TVM's own list
what plans copies, tensor cores and barriers is left out, as is what the compiler of the C++ does
again: it unrolls the loops that say so, and leaves out what does nothing.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from maxtool.compiler.kernels.cuda.deduplicate import share_kernels

# Pass it as ``tvm.compile(module, target, tir_pipeline=NAME)``.
NAME = "maxtool_cuda"


def register() -> str:
    """Make the pipeline known to TVM; its name."""
    compilation_pipeline.register_tir_pipeline(NAME, _pipeline)
    return NAME


def _pipeline() -> tuple[Any, Any, Any]:
    """Return TVM's pipeline: the lowering, and the last passes for host and device functions."""
    host = compilation_pipeline.finalize_host_passes
    return tvm.ir.transform.Sequential([*lowering_passes(), *_splitting_passes()]), host, _device


def lowering_passes() -> list[Any]:
    """Return the passes from scheduled PrimFuncs to flat loops, launches still inside functions."""
    blocks = s_tir.transform
    plain = tirx.transform
    return [
        blocks.LowerInitBlock(),
        blocks.PlanAndUpdateBufferAllocationLocation(),
        blocks.ConvertBlocksToOpaque(),
        blocks.LiftThreadBinding(),
        blocks.UnifyThreadBinding(),
        blocks.LowerMatchBuffer(),
        blocks.LowerOpaqueBlock(),
        plain.FlattenBuffer(),
        plain.BF16ComputeLegalize(),
        plain.NarrowDataType(32),
        plain.VectorizeLoop(True),
        plain.StmtSimplify(),
        plain.FP8ComputeLegalize(),
        plain.VerifyMemory(),
        plain.AnnotateEntryFunc(),
        blocks.MergeSharedMemoryAllocations(),
    ]


def _splitting_passes() -> list[Any]:
    """Return the passes that split flat loops into a host function and a kernel for each launch."""
    plain = tirx.transform
    return [
        plain.SplitHostDevice(),
        share_kernels(),
        plain.MakePackedAPI(),
        plain.FP8StorageLegalize(),
        plain.BF16StorageLegalize(),
    ]


def _device() -> Any:  # noqa: ANN401
    """The last passes of device functions, which are simplified and need no warp memory."""
    return tvm.ir.transform.Sequential([tirx.transform.LowerIntrin()])
