"""Whole numbers as C++ has them: division towards zero and down, results that wrap."""

from __future__ import annotations

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cuda import builder as b
from tests.simt import run
from tests.simt.test_arithmetic import SIZE, THREADS, as_threads


def test_division_by_numbers_of_either_sign() -> None:
    kinds = (tirx.floordiv, tirx.floormod, tirx.truncdiv, tirx.truncmod)
    with b.kernel("division") as kernel:
        x, y = (kernel.argument(name, (SIZE,), "int32") for name in ("x", "y"))
        out = kernel.argument("out", (len(kinds), SIZE), "int32")
        with as_threads() as (block, thread):
            at = block * THREADS + thread
            for row, divide in enumerate(kinds):
                b.store(out, divide(x[at], y[at]), (row, at), 1)
    random = np.random.default_rng(5)
    x, out = random.integers(-99, 100, SIZE).astype("i4"), np.zeros((len(kinds), SIZE), "i4")
    y = (random.integers(1, 10, SIZE) * random.choice([-1, 1], SIZE)).astype("i4")
    run(kernel.function, x, y, out)
    towards_zero = np.trunc(x / y)
    expected = [np.floor(x / y), x - y * np.floor(x / y), towards_zero, x - y * towards_zero]
    np.testing.assert_array_equal(out, expected)


def test_whole_numbers_wrap() -> None:
    with b.kernel("hash") as kernel:
        x, out = kernel.argument("x", (SIZE,), "uint32"), kernel.argument("out", (SIZE,), "uint32")
        with as_threads() as (block, thread):
            at = block * THREADS + thread
            state = b.let(x[at] * T.uint32(747796405) + T.uint32(2891336453))
            by = T.shift_right(state, T.uint32(28)) + T.uint32(4)
            mixed = tirx.bitwise_xor(T.shift_right(state, by), state) * T.uint32(277803737)
            b.store(out, tirx.bitwise_xor(T.shift_right(mixed, T.uint32(22)), mixed), (at,), 1)
    x, out = np.random.default_rng(4).integers(0, 1 << 32, (2, SIZE)).astype("u4")
    run(kernel.function, x, out)
    assert out.tolist() == [permuted(int(one)) for one in x]


def permuted(x: int) -> int:
    """One step of PCG-RXS-M-XS in Python's own integers."""
    state = (x * 747796405 + 2891336453) % (1 << 32)
    mixed = ((state >> ((state >> 28) + 4)) ^ state) * 277803737 % (1 << 32)
    return (mixed >> 22) ^ mixed
