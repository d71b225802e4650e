"""Kernels of the usual kinds give what NumPy gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.kernel_builder import workspace
from tests.simt import run
from tests.simt.faults import Uninitialised


def rms_norm(dim: int, threads: int = 128) -> object:
    with b.kernel("rms_norm") as kernel:
        rows = kernel.dim("rows")
        x, weight = kernel.argument("x", (rows, dim)), kernel.argument("weight", (dim,), "float16")
        out = kernel.argument("out", (rows, dim))
        with b.launch([rows], threads) as (row, thread):
            total = b.scratch((1,))
            partial = b.shared((threads // 32,))
            b.store(total, T.float32(0), (0,), 1)
            at = b.index(b.place(thread)[0])
            with T.serial(-(-dim // threads)) as i:
                column = b.index(at + i * threads)
                with b.when(column < dim):
                    b.store(total, total[0] + x[row, column] * x[row, column], (0,), 1)
            warps = b.warp_reduce(total[0], b.add)
            summed = b.join_warps(warps, b.add, thread, partial)
            factor = b.let(T.rsqrt(summed / T.float32(dim) + T.float32(1e-6)))
            with T.serial(-(-dim // threads)) as i:
                column = b.index(at + i * threads)
                with b.when(column < dim):
                    scale = T.Cast("float32", weight[column])
                    b.store(out, x[row, column] * factor * scale, (row, column), 1)
    return kernel.function


@pytest.mark.parametrize(("rows", "dim"), [(1, 128), (7, 100), (300, 130), (0, 64)])
def test_norm(rows: int, dim: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, dim), dtype="f4")
    weight = random.standard_normal(dim, dtype="f4").astype("f2")
    out = np.zeros_like(x)
    run(rms_norm(dim), x, weight, out)
    expected = x / np.sqrt((x.astype("f8") ** 2).mean(-1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def product(n: int, k: int, half: str) -> object:
    """``out = x @ weight.T`` by tensor cores: a warp for 16 rows and all columns."""
    with b.kernel("product") as kernel:
        rows = kernel.dim("rows")
        x = kernel.argument("x", (rows, k), b.STORAGE[half])
        weight = kernel.argument("weight", (n, k), b.STORAGE[half])
        out = kernel.argument("out", (rows, n))
        short = {"float16": "f16", "bfloat16": "bf16"}[half]
        with b.launch([b.ceildiv(rows, 16)], 32) as (tile, lane):
            left = b.shared((16, 16), b.STORAGE[half])
            right = b.shared((n, 16), b.STORAGE[half])
            sums = b.scratch((n // 8 * 4,))
            a, second = b.scratch((4,), "uint32"), b.scratch((4,), "uint32")
            for i in range(n // 8 * 4):
                b.store(sums, T.float32(0), (i,), 1)
            with T.serial(k // 16) as step:
                b.barrier()
                row = b.index(T.truncdiv(lane, 2))
                half_row = b.index(T.truncmod(lane, 2) * 8)
                source = b.index(T.min(tile * 16 + row, rows - 1))
                column = b.index(T.Cast("int64", step) * 16 + half_row)
                size = T.if_then_else(tile * 16 + row < rows, 16, 0)
                b.do(
                    b.call(
                        "mt_cp_async_16",
                        b.pointer(left, row, half_row),
                        b.pointer(x, source, column),
                        size,
                    )
                )
                with T.serial(n // 16) as block:
                    there = b.index(T.Cast("int64", block) * 16 + row)
                    b.do(
                        b.call(
                            "mt_cp_async_16",
                            b.pointer(right, there, half_row),
                            b.pointer(weight, there, column),
                            16,
                        )
                    )
                b.do(b.call("mt_cp_async_commit"))
                b.do(b.call("mt_cp_async_wait", 0))
                b.barrier()
                b.do(
                    b.call(
                        "mt_ldmatrix_x4",
                        b.pointer(a, 0),
                        b.pointer(left, T.truncmod(lane, 16), T.truncdiv(lane, 16) * 8),
                    )
                )
                for pair in range(n // 16):
                    # Matrices of the lower 8 columns of k, both halves of n, then of the upper 8.
                    at = pair * 16 + T.truncdiv(lane, 16) * 8 + T.truncmod(lane, 8)
                    b.do(
                        b.call(
                            "mt_ldmatrix_x4",
                            b.pointer(second, 0),
                            b.pointer(right, at, T.truncmod(T.truncdiv(lane, 8), 2) * 8),
                        )
                    )
                    for j in range(2):
                        b.do(
                            b.call(
                                f"mt_mma_{short}",
                                b.pointer(sums, (pair * 2 + j) * 4),
                                b.pointer(a, 0),
                                b.pointer(second, j * 2),
                            )
                        )
            for j in range(n // 8):
                for i in range(4):
                    row = b.index(tile * 16 + T.truncdiv(lane, 4) + 8 * (i // 2))
                    with b.when(row < rows):
                        column = j * 8 + T.truncmod(lane, 4) * 2 + i % 2
                        b.store(out, sums[j * 4 + i], (row, column), 1)
    return kernel.function


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_product_on_tensor_cores(half: str) -> None:
    dtype = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[half]
    random = np.random.default_rng(1)
    x = random.standard_normal((37, 48), dtype="f4").astype(dtype)
    weight = random.standard_normal((32, 48), dtype="f4").astype(dtype)
    out = np.zeros((37, 32), "f4")
    run(product(32, 48, half), x, weight, out)
    expected = x.astype("f8") @ weight.astype("f8").T
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_loop_that_some_threads_run_alone_counts_anew() -> None:
    """Forget, in a loop of a few threads, values computed in the same loop of all threads."""
    with b.kernel("counted") as kernel:
        out = kernel.argument("out", (2, 4, 32), "int64")
        with (
            b.launch([1], 32) as (_, thread),
            T.serial(b.integer(2)) as turn,
            b.when(b.place(thread)[0] >= turn * 7),
            T.serial(b.integer(4)) as step,
        ):
            b.store(out, step * 6 + turn, (turn, step, thread), 1)
    actual = np.zeros((2, 4, 32), np.int64)
    run(kernel.function, actual)
    expected = np.arange(4)[:, None] * 6 + np.array([0, 1])[:, None, None]
    expected = np.broadcast_to(expected, (2, 4, 32)).copy()
    expected[1, :, :7] = 0
    np.testing.assert_array_equal(actual, expected)


def two_launches(*, flipped: bool) -> object:
    """Sums of blocks into a workspace, then their sum; ``flipped``: the second launch first."""
    with b.kernel("two_launches") as kernel:
        n = kernel.dim("n")
        x, out = kernel.argument("x", (n,)), kernel.argument("out", (1,))
        partial = workspace((b.ceildiv(n, 32),))

        def each_block() -> None:
            with b.launch([b.ceildiv(n, 32)], 32) as (block, thread):
                at = block * 32 + thread
                mine = b.let(T.if_then_else(at < n, x[at], T.float32(0)))
                total = b.let(b.warp_reduce(mine, lambda a, c: a + c))
                with b.when(thread == 0):
                    b.store(partial, total, (block,), 1)

        def all_blocks() -> None:
            with b.launch([1], 1) as (_, _thread):
                total = b.scratch((1,))
                b.store(total, T.float32(0), (0,), 1)
                with T.serial(b.ceildiv(n, 32)) as i:
                    b.store(total, total[0] + partial[i], (0,), 1)
                b.store(out, total[0], (0,), 1)

        for stage in (all_blocks, each_block) if flipped else (each_block, all_blocks):
            stage()
    return kernel.function


def test_a_workspace_between_two_launches() -> None:
    x, out = np.arange(1000, dtype="f4"), np.zeros(1, "f4")
    run(two_launches(flipped=False), x, out)
    assert out[0] == x.sum()
    with pytest.raises(Uninitialised, match="nothing wrote"):
        run(two_launches(flipped=True), x, out)


def zero_filled(size: int, groups: int) -> object:
    """Rows of 8 float16, the last ``8 - size / 2`` of them zeros, by copies in several groups."""
    with b.kernel("zero_filled") as kernel:
        x = kernel.argument("x", (groups, 32, 8), "float16")
        out = kernel.argument("out", (groups, 32, 8), "float16")
        with b.launch([1], 32) as (_, thread):
            rows = b.shared((groups, 32, 8), "float16", dynamic=True)
            for group in range(groups):
                to, source = b.pointer(rows, group, thread, 0), b.pointer(x, group, thread, 0)
                b.do(b.call("mt_cp_async_16", to, source, size))
                b.do(b.call("mt_cp_async_commit"))
            words = b.scratch((4,), "uint32")
            for group in range(groups):
                b.do(b.call("mt_cp_async_wait", groups - 1 - group))
                b.do(b.call("mt_load_16", b.pointer(words, 0), b.pointer(rows, group, thread, 0)))
                b.do(b.call("mt_store_16", b.pointer(out, group, thread, 0), b.pointer(words, 0)))
    return kernel.function


@pytest.mark.parametrize("size", [0, 6, 16])
def test_copies_arrive_group_by_group_and_fill_with_zeros(size: int) -> None:
    x = np.random.default_rng(2).standard_normal((3, 32, 8)).astype("f2")
    out = np.zeros_like(x)
    run(zero_filled(size, 3), x, out)
    expected = np.where(np.arange(8) < size // 2, x, np.float16(0))
    np.testing.assert_array_equal(out, expected)


def test_copies_from_one_of_several_matrices() -> None:
    """Copy from a different matrix in each thread, and from each matrix only rows that it has."""
    counts = (20, 7, 5)
    with b.kernel("one_of_several") as kernel:
        matrices = [
            kernel.argument(f"x{i}", (count, 4), "float32") for i, count in enumerate(counts)
        ]
        out = kernel.argument("out", (32, 4), "float32")
        with b.launch([1], 32) as (_, thread):
            rows = b.shared((32, 4), dynamic=True)
            chosen = b.pointer(matrices[0], thread, 0)
            for matrix, first in zip(matrices[1:], (20, 27), strict=True):
                other = b.pointer(matrix, thread - first, 0)
                chosen = b.call("mt_either", thread >= first, other, chosen, returns="handle")
            b.do(b.call("mt_cp_async_16", b.pointer(rows, thread, 0), chosen, 16))
            b.do(b.call("mt_cp_async_commit"))
            b.do(b.call("mt_cp_async_wait", 0))
            words = b.scratch((4,), "uint32")
            b.do(b.call("mt_load_16", b.pointer(words, 0), b.pointer(rows, thread, 0)))
            b.do(b.call("mt_store_16", b.pointer(out, thread, 0), b.pointer(words, 0)))
    inputs = np.split(np.arange(128, dtype="f4").reshape(32, 4), np.cumsum(counts[:-1]))
    result = np.zeros((32, 4), "f4")
    run(kernel.function, *inputs, result)
    np.testing.assert_array_equal(result, np.concatenate(inputs))
