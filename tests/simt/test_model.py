"""Modules lowered for GPUs run here, kernel by kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from maxtool.compiler.cuda.cuda_target import cuda_target
from tests.simt.faults import OutOfBounds
from tests.simt.model import TARGET, Simulation


def module(*, shift: int = 0) -> Any:
    """Two kernels of tensor expressions, one after the other."""
    builder, rows = relax.BlockBuilder(), tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType([rows, 70], "float32"))
    with builder.function("main", [x], attrs={"relax.force_pure": True}):
        with builder.dataflow():
            sums = builder.emit_te(row_sums, x, primfunc_name_hint="sums")
            output = builder.emit_output(
                builder.emit_te(
                    lambda a, b: te.compute(a.shape, lambda i, j: a[i, j] - b[i + shift]), x, sums
                )
            )
        builder.emit_func_output(output)
    return builder.get()


def row_sums(x: Any) -> Any:
    j = te.reduce_axis((0, x.shape[1]))
    return te.compute((x.shape[0],), lambda i: te.sum(x[i, j], j))


def machine(simulation: Simulation, **options: int) -> Any:
    compiled = simulation.compile_module(module(**options), cuda_target(TARGET))
    return relax.VirtualMachine(compiled.executable, tvm.cpu())["main"]


@pytest.mark.parametrize("rows", [1, 9])
def test_a_module_of_tensor_expressions(rows: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, 70), dtype="f4")
    result = machine(Simulation())(tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(result, x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_what_is_wrong_with_a_kernel_is_left_behind() -> None:
    simulation = Simulation()
    run = machine(simulation, shift=1)
    with pytest.raises(Exception, match="uses element 3"):
        run(tvm.runtime.tensor(np.zeros((3, 70), "f4")))
    assert isinstance(simulation.faults.pop(), OutOfBounds)
