"""The passes that lower PrimFuncs to machine code, without those that CPU kernels do not need.

TVM's own list has passes for threads, shared memory and tensor cores; one that shrinks buffers and
alone takes longer on these kernels than all the rest; and one that merges buffers, after which
every small one is taken from a pool each time instead of living in registers or on the stack.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from maxtool.compiler.kernels.cpu.subroutines import with_subroutines

# Pass it as ``tvm.compile(module, target, tir_pipeline=NAME)``.
NAME = "maxtool_cpu"

# The attribute of functions without blocks whose buffers have one dimension. Long ones would be
# searched for nothing, which takes seconds.
FLAT = "maxtool.flat"


def register() -> str:
    """Make the pipeline known to TVM; its name."""
    compilation_pipeline.register_tir_pipeline(NAME, _pipeline)
    return NAME


def _pipeline() -> tuple[Any, Any, Any]:
    """Return TVM's pipeline: the lowering, and the last passes for host and device functions."""
    last = compilation_pipeline.finalize_host_passes
    return tvm.ir.transform.Sequential(_passes()), last, last


def _passes() -> list[Any]:
    plain = tirx.transform
    return [
        tvm.transform.module_pass(lambda module, _: _flat(module), 0, "maxtool.Flatten"),
        plain.BF16ComputeLegalize(),
        plain.NarrowDataType(32),
        plain.VectorizeLoop(True),
        plain.UnrollLoop(),
        plain.StmtSimplify(),
        plain.FP8ComputeLegalize(),
        plain.VerifyMemory(),
        plain.AnnotateEntryFunc(),
        plain.SplitHostDevice(),
        plain.MakePackedAPI(),
        plain.FP8StorageLegalize(),
        plain.BF16StorageLegalize(),
    ]


def _flat(module: Any) -> Any:  # noqa: ANN401 - tvm ships no types
    """A module with all that its functions call, without blocks."""
    return flattened(with_subroutines(module))


def flattened(module: Any) -> Any:  # noqa: ANN401 - tvm ships no types
    """A module without blocks, and with buffers of one dimension."""
    blocks = s_tir.transform
    passes = (
        blocks.LowerInitBlock(),
        blocks.PlanAndUpdateBufferAllocationLocation(),
        blocks.ConvertBlocksToOpaque(),
        blocks.LowerMatchBuffer(),
        blocks.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
    )
    functions = dict(module.functions.items())
    flat = {name: function for name, function in functions.items() if FLAT in function.attrs}
    rest = {name: function for name, function in functions.items() if name not in flat}
    lowered = tvm.transform.Sequential(passes)(tvm.IRModule(rest, attrs=module.attrs))
    lowered.update(tvm.IRModule(flat))
    return lowered
