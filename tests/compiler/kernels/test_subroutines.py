"""Subroutines of kernels: built once, called with whatever memory and numbers, never inlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it
from tvm_ffi import structural_walk

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines

from .assembly import assembly

WIDTH = 8


@dataclass(frozen=True)
class Row:
    """A row of some memory, and what it is multiplied with."""

    memory: Any
    row: Any
    factor: float = 1.0


def add_rows(result: Any, rows: Sequence[Row]) -> None:
    """Write the sum of rows."""
    for at in range(WIDTH):
        total = b.let(T.float32(0))
        for each in rows:
            total = total + b.load(each.memory, (each.row, at)) * T.float32(each.factor)
        b.store(result, total, (at,))


def summing(*factors: float) -> Any:
    """A kernel that writes ``2 x[i] f + ...`` of rows that it doubles itself before the call."""
    with b.kernel("summing") as kernel:
        rows = kernel.dim("rows")
        x, y = (kernel.argument(name, (rows, WIDTH)) for name in "xy")

        def row(i: Any) -> None:
            doubled, sums = b.scratch((1, WIDTH)), b.scratch((WIDTH,))
            for at in range(WIDTH):
                b.store(doubled, b.load(x, (i, at)) * T.float32(2), (0, at))
                b.store(sums, T.float32(7), (at,))
            operands = [Row(doubled, b.integer(0), factor) for factor in factors]
            subroutines.call(add_rows, [sums], operands)
            for at in range(WIDTH):
                b.store(y, b.load(sums, (at,)), (i, at))

        b.each(rows, row, threads=True)
    return kernel.function


def called(*functions: Any) -> set[str]:
    """The names of the subroutines of a module with these functions."""
    named = {f"kernel{i}": function for i, function in enumerate(functions)}
    module = subroutines.with_subroutines(tvm.IRModule(named))
    names = {str(name.name_hint) for name in module.get_global_vars()} - set(named)
    assert all(name.startswith("add_rows_") for name in names)
    return names


def test_equal_calls_share_a_function() -> None:
    """Memory and sizes are arguments; constants are not."""
    assert len(called(summing(3.0), summing(3.0))) == 1
    assert len(called(summing(3.0), summing(5.0), summing(3.0, 5.0))) == 3
    assert called(summing(3.0)) == called(summing(3.0))


@pytest.mark.usefixtures("optimised")
def test_memory_is_the_same_on_both_sides() -> None:
    """Values written before the call are read in it, and those that it writes behind it.

    LLVM is told that memory of different names is not the same. Inlined, that would not hold.
    """
    x = np.arange(5 * WIDTH, dtype=np.float32).reshape(5, WIDTH)
    y = tvm.runtime.tensor(np.zeros_like(x))
    function = summing(3.0, 0.5)
    b.build({"kernel": function}, cpu_target().tvm)["kernel"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), 7 * x)
    assert "add_rows" in assembly(cpu_target(), function)


def test_what_a_call_writes() -> None:
    """The memory that comes first; each once, though it is an operand of several."""
    calls: list[Any] = []
    with b.kernel("call") as kernel:
        x, y, z = (kernel.argument(name, (kernel.dim(name * 2), WIDTH)) for name in "xyz")
        rows = [Row(y, b.integer(0)), Row(z, b.integer(1)), Row(y, b.integer(2))]
        subroutines.call(copy_rows, [Row(x, b.integer(1))], rows)
    structural_walk(kernel.function.body, (tvm.ir.Call, calls.append))
    (call,) = (each for each in calls if isinstance(each.op, tvm.ir.GlobalVar))
    assert [str(each.name) for each in subroutines.written_by(call)] == ["x"]
    pointers = [each for each in call.args if isinstance(each, tvm.ir.Call)]
    assert len(pointers) == 3
    assert isinstance(call.args[0], tirx.IntImm)


def copy_rows(to: Row, rows: Sequence[Row]) -> None:
    """Copy the last of some rows."""
    b.store(to.memory, b.load(rows[-1].memory, (rows[-1].row, 0)), (to.row, 0))
