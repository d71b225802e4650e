"""Fragments lie in registers as TVM's own tensor intrinsics say, which are tried on real GPUs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cuda import builder as b
from tests.simt import run

SIDE, WARP = 16, 32
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LAYOUT = "ldmatrix_32x8_to_shared_16x16_layout"


def layout_of_tvm() -> Callable[[int, int], tuple[int, int]]:
    """The function ``LAYOUT`` alone: to import its module builds every intrinsic, in a minute."""
    source = Path(tvm.__file__).parent / "s_tir" / "tensor_intrin" / "cuda.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if getattr(node, "name", "") == LAYOUT]
    result: dict[str, Any] = {}
    exec(compile(tree, str(source), "exec"), result)  # noqa: S102 - TVM's own code
    layout: Callable[[int, int], tuple[int, int]] = result[LAYOUT]
    return layout


# Of thread t and its i-th value, the row and the column in a 16x16 tile.
ROW, COLUMN = np.vectorize(layout_of_tvm())(np.arange(WARP)[:, None], np.arange(8))


def copy_tile(tile: Any, source: Any, lane: Any) -> None:
    for i in range(SIDE * SIDE // WARP):
        at = lane + i * WARP
        row, column = T.truncdiv(at, SIDE), T.truncmod(at, SIDE)
        b.store(tile, source[row, column], (row, column), 1)


def rows_of_a(lane: Any) -> tuple[Any, Any]:
    """Return each thread's rows: ``get_ldmatrix_intrin`` in tvm.s_tir.tensor_intrin.cuda."""
    return lane % SIDE, T.truncdiv(lane, SIDE) * 8


def rows_of_transposed(lane: Any) -> tuple[Any, Any]:
    """The same of operands that are stored transposed."""
    return T.truncdiv(lane, SIDE) * 8 + lane % 8, T.truncdiv(lane % SIDE, 8) * 8


def registers(function: str) -> Any:
    """A kernel that writes what ``ldmatrix`` puts into registers, [lanes, 4] of uint32."""
    with b.kernel("registers") as kernel:
        x = kernel.argument("x", (SIDE, SIDE), "uint16")
        out = kernel.argument("out", (WARP, 4), "uint32")
        with b.launch([1], WARP) as (_, lane):
            tile, result = b.shared((SIDE, SIDE), "uint16"), b.scratch((4,), "uint32")
            copy_tile(tile, x, lane)
            b.barrier()
            row, column = (rows_of_a if function == "mt_ldmatrix_x4" else rows_of_transposed)(lane)
            b.do(b.call(function, b.pointer(result, 0), b.pointer(tile, row, column)))
            b.do(b.call("mt_store_16", b.pointer(out, lane, 0), b.pointer(result, 0)))
    return kernel.function


def test_ldmatrix_loads_the_fragment_of_a_tile() -> None:
    tile = np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE)
    out = np.zeros((WARP, 4), np.uint32)
    run(registers("mt_ldmatrix_x4"), tile, out)
    assert (out.view(np.uint16) == tile[ROW, COLUMN]).all()


def test_transposed_ldmatrix_loads_the_fragment_of_the_transposed_tile() -> None:
    tile = np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE)
    out = np.zeros((WARP, 4), np.uint32)
    run(registers("mt_ldmatrix_x4_trans"), tile, out)
    assert (out.view(np.uint16) == tile.T[ROW, COLUMN]).all()


def product(half: str, *, transposed: bool) -> Any:
    """``a @ b`` of two tiles as TVM's intrinsics put it together: two mma, 8 columns each."""
    with b.kernel("tile") as kernel:
        a = kernel.argument("a", (SIDE, SIDE), "uint16")
        second = kernel.argument("b", (SIDE, SIDE), "uint16")
        out = kernel.argument("out", (WARP, 8))
        with b.launch([1], WARP) as (_, lane):
            left, right = b.shared((SIDE, SIDE), "uint16"), b.shared((SIDE, SIDE), "uint16")
            copy_tile(left, a, lane)
            copy_tile(right, second, lane)
            b.barrier()
            of_a, of_b = b.scratch((4,), "uint32"), b.scratch((4,), "uint32")
            b.do(b.call("mt_ldmatrix_x4", b.pointer(of_a, 0), b.pointer(left, *rows_of_a(lane))))
            load = "mt_ldmatrix_x4" if transposed else "mt_ldmatrix_x4_trans"
            rows = (rows_of_transposed if transposed else rows_of_a)(lane)
            b.do(b.call(load, b.pointer(of_b, 0), b.pointer(right, *rows)))
            sums = b.scratch((8,))
            for i in range(8):
                b.store(sums, T.float32(0.5), (i,), 1)
            name = {"float16": "mt_mma_f16", "bfloat16": "mt_mma_bf16"}[half]
            for i in range(2):
                pointers = b.pointer(sums, 4 * i), b.pointer(of_a, 0), b.pointer(of_b, 2 * i)
                b.do(b.call(name, *pointers))
            for i in range(8):
                b.store(out, sums[i], (lane, i), 1)
    return kernel.function


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("half", HALVES)
def test_mma_multiplies_tiles_loaded_as_tvm_loads_them(half: str, transposed: bool) -> None:
    random = np.random.default_rng(2)
    a, second = random.integers(-8, 9, (2, SIDE, SIDE)).astype(HALVES[half])
    out = np.zeros((WARP, 8), "f4")
    run(product(half, transposed=transposed), a, second, out)
    wide = second.astype("f4")
    expected = a.astype("f4") @ (wide.T if transposed else wide) + 0.5
    assert (out == expected[ROW, COLUMN]).all()
