"""Building blocks of CPU kernels: threads, register tiles, conversions, exp and the like."""

# ruff: noqa: F403, F405 - kernels import one builder, which has the names of kernel_builder, too

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import cpu_passes
from maxtool.compiler.kernels.kernel_builder import *

# Below this many multiplications a loop runs on one thread: waking the others costs more.
SERIAL_WORK = 1 << 15

# The annotation of parallel loops that stand beside one for a single thread, which is for few rows.
ANY_LENGTH = "maxtool.any_length"

# exp on [-ln 2 / 2, ln 2 / 2], highest power first: interpolated at the Chebyshev nodes, relative
# error of the polynomial itself 3e-9 (the constant and linear terms are 1 in float32).
EXP_COEFFICIENTS = (
    0.0013941118933833623,
    0.00837513477524521,
    0.0416663527704573,
    0.16666415414031224,
    0.5000000047146247,
    1.0,
    1.0,
)
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693145751953125  # 15 bits, so that its product with an exponent is exact
LN2_LOW = 1.42860682030941723e-6
ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
ROUND_BITS = 0x4B400000
EXP_LOWEST = -87.3365447504019  # exp below is no normal float32, and is taken as 0


def each_vector(count: int, width: int, body: Callable[[Index, int], None]) -> None:
    """Run ``body(offset, width)`` over ``count`` elements: a loop, then the narrower rest."""
    whole = count // width
    if whole:
        with T.serial(integer(whole)) as i:
            body(i * width, width)
    for offset, part in widths(count % width, width):
        body(whole * width + offset, part)


def each_neighbour(count: Index, width: int, body: Callable[[Index, int], None]) -> None:
    """Run ``body(offset, width)`` over elements, of which there may be any number."""
    if isinstance(count, int):
        each_vector(count, width, body)
        return
    whole = index(quotient(count, width))
    with T.serial(whole) as i:
        body(i * width, width)
    with T.serial(whole * width, count) as offset:
        body(index(offset), 1)


class Registers:
    """Rows of vectors that live in registers: every index is a constant of the build.

    The columns of a row are cut into vectors as ``widths`` does.
    """

    def __init__(self, rows: int, columns: int, width: int, dtype: str = "float32") -> None:
        self.rows = rows
        self.pieces = widths(columns, width)
        self.buffer = scratch((rows, columns), dtype)

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """``(row, offset, width)`` of every vector."""
        return [(row, offset, width) for row in range(self.rows) for offset, width in self.pieces]

    def get(self, row: int, offset: int, width: int) -> Expr:
        """The vector at a place."""
        return load(self.buffer, (row, offset), width)

    def set(self, row: int, offset: int, width: int, value: Expr) -> None:
        """Replace the vector at a place."""
        store(self.buffer, value, (row, offset), width)

    def add(self, row: int, offset: int, width: int, value: Expr) -> None:
        """Add to the vector at a place."""
        self.set(row, offset, width, self.get(row, offset, width) + value)

    def copy_to(self, memory: Buffer) -> None:
        """Copy everything to memory of as many rows and columns."""
        for row, offset, width in self.places:
            store(memory, self.get(row, offset, width), (row, offset), width)

    def clear(self) -> None:
        """Set everything to zero."""
        zero = tirx.const(0, str(self.buffer.dtype))
        for index in self.places:
            self.set(*index, splat(zero, index[2]))


def each(extent: Index, body: Callable[[Expr], None], *, threads: bool) -> None:
    """Run ``body`` for every index below ``extent``, on all threads or on this one."""
    loop = T.parallel if threads else T.serial
    with loop(integer(extent)) as i:
        body(i)


def each_row(rows: Expr, work: Index, body: Callable[[Expr], None]) -> None:
    """Run ``body`` for every row; on all threads when the rows, of ``work`` each, are worth it."""

    def on_all_threads() -> None:
        with T.parallel(integer(rows), annotations={ANY_LENGTH: True}) as i:
            body(i)

    few = rows * integer(work) < SERIAL_WORK
    either(few, lambda: each(rows, body, threads=False), on_all_threads)


def each_image(batch: Expr, parts: Index, work: Index, body: Callable[[Expr], None]) -> None:
    """Run ``body`` for every one of the ``parts`` of each image, like :func:`each_row`.

    Where one image is known to be worth all threads there is no code for a single one.
    """
    if isinstance(parts, int) and isinstance(work, int) and parts * work >= SERIAL_WORK:
        each(batch * parts, body, threads=True)
    else:
        each_row(batch * parts, work, body)


def load_weight(buffer: Buffer, index: Sequence[Index], width: int, dtype: str) -> Expr:
    """Weights as float32, converted from ``dtype`` in registers; exact for every type."""
    value = load(buffer, index, width)
    if dtype == "float32":
        return value
    if dtype == "float16":
        return T.Cast(vector_type("float32", width), value)
    bits = T.Cast(vector_type("uint32", width), value)
    shifted = T.shift_left(bits, splat(tirx.const(16, "uint32"), width))
    return T.reinterpret(vector_type("float32", width), shifted)


def prefetch(buffer: Buffer, index: Sequence[Index], level: int = 2) -> None:
    """Fetch the cache line of an element, which need not exist, into a level of the cache.

    Rows whose distance is a power of two share their places in the first one.
    """
    address = T.address_of(buffer[tuple(index)])
    is_write, locality, is_data = int32(0), int32(4 - level), int32(1)
    T.evaluate(tirx.call_intrin("void", "tirx.prefetch", address, is_write, locality, is_data))


def exp(x: Expr, width: int) -> Expr:
    """``e**x`` for float32 ``x`` up to 88, relative error below 2e-7; 0 below -87.34; NaN stays.

    The usual reduction: x = n ln 2 + r with an integer n, then 2**n times a polynomial in r. LLVM
    would call expf once per element instead.
    """
    integers, floats = vector_type("int32", width), vector_type("float32", width)
    x = let(x)
    # As integers, or the simplifier would cancel the addition of ROUND with its subtraction.
    n = let(T.reinterpret(integers, x * splat(LOG2_E, width) + splat(ROUND, width)))
    n = let(n - splat(int32(ROUND_BITS), width))
    whole = let(T.Cast(floats, n))
    r = let(x - whole * splat(LN2_HIGH, width) - whole * splat(LN2_LOW, width))
    total = splat(EXP_COEFFICIENTS[0], width)
    for coefficient in EXP_COEFFICIENTS[1:]:
        total = total * r + splat(coefficient, width)
    exponent = T.shift_left(n + splat(int32(127), width), splat(int32(23), width))
    value = total * T.reinterpret(floats, exponent)
    return T.Select(x < splat(EXP_LOWEST, width), splat(0.0, width), value)


def fold(vector: Expr, width: int, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Combine the elements of a vector into one value, halving it each time."""
    while width > 1:
        width //= 2
        vector = let(vector)
        halves = [list(range(start, start + width)) for start in (0, width)]
        vector = combine(*(tirx.Shuffle([vector], half) for half in halves))
    return vector


def build(functions: dict[str, Any], target: Any) -> Any:  # noqa: ANN401
    """Compile PrimFuncs by themselves, for tests and benchmarks."""
    named = {
        name: function.with_attr("global_symbol", name) for name, function in functions.items()
    }
    return tvm.compile(tvm.IRModule(named), target=target, tir_pipeline=cpu_passes.register())
