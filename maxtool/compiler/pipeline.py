"""Passes from a Relax module to machine code, in order.

Operators are lowered and fused before (``lowering/``), so none of TVM's own fusion runs here: it
may drop a call whose only effect is a write in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from maxtool.compiler import multi_device
from maxtool.compiler import schedule as cpu_schedule
from maxtool.compiler.cuda import schedule as cuda_schedule
from maxtool.compiler.cuda.binaries import GeneratedModule, compile_apart
from maxtool.compiler.joining.functions import join_kernels
from maxtool.compiler.kernels.cpu import cpu_passes as cpu_pipeline
from maxtool.compiler.kernels.cuda import cuda_passes as cuda_pipeline
from maxtool.compiler.placement import Placed, Placement, placed
from maxtool.compiler.shape_functions import settle_shape_functions
from maxtool.errors import CompilationFailed

# TVM calls back into Python, where Ctrl-C may arrive; it knows only errors that are registered, and
# any other comes out as a RuntimeError.
tvm_ffi.error.register_error("KeyboardInterrupt", KeyboardInterrupt)

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
    settle_shape_functions,
    relax.transform.AttachGlobalSymbol,
)

# What holds for modules on one device only: it hands the memory of one device to another's values.
SINGLE_DEVICE = (relax.transform.StaticPlanBlockMemory,)


@dataclass(frozen=True, slots=True)
class Backend:
    """Compiler of the functions of one kind of target."""

    schedule: Callable[[Any], Any]  # gives a schedule to every PrimFunc of a module that has none
    register: Callable[[], str]  # makes the passes that lower PrimFuncs known to TVM; their name


BACKENDS = {
    "cpu": Backend(cpu_schedule.schedule_all, cpu_pipeline.register),
    "cuda": Backend(cuda_schedule.schedule_all, cuda_pipeline.register),
}


def compile_module(module: Any, target: Placed, *, asserts: bool = True) -> GeneratedModule:  # noqa: ANN401 - tvm ships no types
    """Compile a Relax module; an error has the compiler's own last words.

    With ``asserts`` every kernel checks its arguments. The calls of one module are typed when it is
    built, and only its entries are called from outside; the checks take a quarter of the compile
    time and most of the code.
    """
    placement = placed(target)
    main = placement.target(placement.devices[0])
    backend, aim = _backend(placement), main.tvm
    config = {"tirx.disable_assert": not asserts}
    skipped = () if placement.is_single else SINGLE_DEVICE
    try:
        with aim, tvm.transform.PassContext(config=config):
            passes = tvm.transform.Sequential([make() for make in PASSES if make not in skipped])
            lowered = passes(join_kernels()(backend.schedule(module)))
            name = backend.register()
            return compile_apart(lowered, aim, relax_pipeline=None, tir_pipeline=name)
    except Exception as error:  # TVM raises classes of its own and any of Python's
        last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise CompilationFailed(f"TVM could not compile the model: {last[0]}") from error


def _backend(placement: Placement) -> Backend:
    """Return the backend for the functions of a module, which may be of several kinds of target."""
    kinds = sorted({placement.target(device).kind for device in placement.devices})
    if len(kinds) == 1:
        return BACKENDS[kinds[0]]
    schedules = {target_kind: BACKENDS[target_kind].schedule for target_kind in kinds}
    return Backend(
        partial(multi_device.treated, treatments=schedules),
        lambda: multi_device.register({kind: BACKENDS[kind].register() for kind in kinds}),
    )
