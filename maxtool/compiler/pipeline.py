"""From a Relax module to machine code: the passes, in order.

Operators are lowered and fused before (``lowering/``), so none of TVM's own fusion runs here: it
may drop a call whose only effect is a write in place.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from maxtool.compiler.kernels.cpu import pipeline as kernel_pipeline
from maxtool.compiler.schedule import schedule_all
from maxtool.compiler.target import CpuTarget
from maxtool.errors import CompilationFailed

PASSES = (
    relax.transform.ToNonDataflow,
    relax.transform.RemovePurityChecking,
    relax.transform.CallTIRRewrite,
    relax.transform.StaticPlanBlockMemory,
    relax.transform.LowerAllocTensor,
    relax.transform.KillAfterLastUse,
    relax.transform.LowerRuntimeBuiltin,
    relax.transform.ComputePrimValue,
    relax.transform.VMShapeLower,
    relax.transform.AttachGlobalSymbol,
)


def compile_module(module: Any, target: CpuTarget, *, asserts: bool = True) -> Any:  # noqa: ANN401 - tvm ships no types
    """Compile a Relax module.

    Args:
        module: The module.
        target: What to compile for.
        asserts: Whether every kernel checks its arguments. The calls of one module are typed when
            it is built, and only its entries are called from outside; the checks take a quarter of
            the compile time and most of the code.

    Returns:
        TVM's executable: run it in a virtual machine, or export it as a library.

    Raises:
        CompilationFailed: With the compiler's own last words.
    """
    try:
        with target.tvm, tvm.transform.PassContext(config={"tirx.disable_assert": not asserts}):
            lowered = tvm.transform.Sequential([make() for make in PASSES])(schedule_all(module))
            kernels = kernel_pipeline.register()
            return tvm.compile(
                lowered, target=target.tvm, relax_pipeline=None, tir_pipeline=kernels
            )
    except Exception as error:  # TVM raises classes of its own and any of Python's
        last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise CompilationFailed(f"TVM could not compile the model: {last[0]}") from error
