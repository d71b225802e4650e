"""What every CPU kernel is built with: arguments, vectors, loops, conversions and exp.

Kernels are built call by call rather than parsed from decorated source, so that plain Python
functions, loops and tables decide what is emitted. All indices are int64: a packed weight can have
more than 2**31 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cpu import pipeline

Expr = Any  # tvm ships no types
Buffer = Any
Index = Expr | int

# Below this many multiplications a loop runs on one thread: waking the others costs more.
SERIAL_WORK = 1 << 15

# How a weight type is passed and how many bits it has. bfloat16 travels as its bits.
STORAGE = {"float32": "float32", "float16": "float16", "bfloat16": "uint16"}

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


class Kernel:
    """A PrimFunc under construction; ``function`` is it, once the block that built it ends."""

    def __init__(self) -> None:
        self.function: Any = None

    def dim(self, name: str) -> Expr:
        """A dimension known only at run time."""
        return tirx.Var(name, "int64")

    def argument(self, name: str, shape: Sequence[Index], dtype: str = "float32") -> Buffer:
        """The next parameter: a contiguous tensor."""
        return T.arg(name, T.buffer(tuple(shape), dtype, layout=None, buffer_name=name))


@contextmanager
def kernel(name: str) -> Iterator[Kernel]:
    """Build a PrimFunc whose arguments do not overlap and whose loops no pass rearranges."""
    made = Kernel()
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
            yield made
        made.function = builder.get()


OPAQUE = 8  # relax.op_pattern "opaque": fusion leaves the call alone


def scratch(shape: Sequence[Index], dtype: str = "float32") -> Buffer:
    """Memory of fixed size on the stack, or in registers where every index is a constant."""
    return T.alloc_buffer(
        tuple(shape), dtype, scope="local", layout=None, annotations={"disable_lower_builtin": True}
    )


def workspace(shape: Sequence[Index], dtype: str = "float32") -> Buffer:
    """Memory of any size, from TVM's pool; shared by the threads when taken outside their loop."""
    return T.alloc_buffer(tuple(shape), dtype, scope="global", layout=None)


def load(buffer: Buffer, index: Sequence[Index], lanes: int) -> Expr:
    """``lanes`` neighbours along the last dimension, from ``index`` on."""
    return buffer[_vector_index(index, lanes)]


def store(buffer: Buffer, value: Expr, index: Sequence[Index], lanes: int) -> None:
    """Store ``lanes`` neighbours along the last dimension, from ``index`` on."""
    T.buffer_store(buffer, value, list(_vector_index(index, lanes)))


def _vector_index(index: Sequence[Index], lanes: int) -> tuple[Index, ...]:
    *outer, last = index
    return (*outer, last if lanes == 1 else T.ramp(last, 1, lanes))


def let(value: Expr, lanes: int = 1, dtype: str = "float32") -> Expr:
    """Compute a value once and use it by name.

    It is stored in a register rather than bound: passes inline bound values wherever they are used,
    and the copies of copies grow exponentially.
    """
    held = scratch((lanes,), dtype)
    store(held, value, (0,), lanes)
    return load(held, (0,), lanes)


def splat(value: Expr, lanes: int) -> Expr:
    """A vector of ``lanes`` copies; a Python number becomes float32."""
    if isinstance(value, (int, float)):
        value = T.float32(value)
    return value if lanes == 1 else T.broadcast(value, lanes)


def vector_type(dtype: str, lanes: int) -> str:
    """TVM's name of a vector type."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def widths(count: int, lanes: int) -> list[tuple[int, int]]:
    """Cut ``count`` elements into vectors: ``(offset, lanes)``, the last ones ever narrower.

    >>> widths(22, 8)
    [(0, 8), (8, 8), (16, 4), (20, 2)]
    """
    pieces = []
    offset = 0
    while offset < count:
        while lanes > count - offset:
            lanes //= 2
        pieces.append((offset, lanes))
        offset += lanes
    return pieces


def each_vector(count: int, lanes: int, body: Callable[[Index, int], None]) -> None:
    """Run ``body(offset, lanes)`` over ``count`` elements: a loop, then the narrower rest."""
    whole = count // lanes
    if whole:
        with T.serial(integer(whole)) as i:
            body(i * lanes, lanes)
    for offset, width in widths(count % lanes, lanes):
        body(whole * lanes + offset, width)


def index(value: Index) -> Expr:
    """Compute an int64 index once; see ``let``. Only for use on the thread that computes it."""
    return let(integer(value), 1, "int64")


def quotient(a: Expr, b: Index) -> Expr:
    """``a / b`` rounded down, for an ``a`` that is not negative: cheaper than ``//``."""
    return T.truncdiv(a, integer(b))


def remainder(a: Expr, b: Index) -> Expr:
    """What ``quotient`` leaves."""
    return T.truncmod(a, integer(b))


def integer(value: Index) -> Expr:
    """An int64 constant; expressions are passed through."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def int32(value: int) -> Expr:
    """An int32 constant."""
    return tirx.IntImm("int32", value)


def ceildiv(a: Index, b: int) -> Expr:
    """``a / b`` rounded up, for an ``a`` that is not negative."""
    return quotient(integer(a) + (b - 1), b)


def least(a: Index, b: Index) -> Expr:
    """The lesser of two indices."""
    return T.min(integer(a), integer(b))


def greatest(a: Index, b: Index) -> Expr:
    """The greater of two indices."""
    return T.max(integer(a), integer(b))


def clamped(value: Expr, size: Index) -> Expr:
    """``value`` as an int64 index into ``size`` elements, whatever it was."""
    return T.max(T.min(T.Cast("int64", value), integer(size) - 1), integer(0))


@contextmanager
def when(condition: Expr) -> Iterator[None]:
    """Emit the block for when ``condition`` holds."""
    with T.If(condition), T.Then():
        yield


def either(condition: Expr, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """Emit both branches."""
    with T.If(condition):
        with T.Then():
            then()
        with T.Else():
            otherwise()


class Registers:
    """Rows of vectors that live in registers: every index is a constant of the build.

    Args:
        rows: Number of rows.
        columns: float32 values in a row, cut into vectors as ``widths`` does.
        lanes: The widest vector.
    """

    def __init__(self, rows: int, columns: int, lanes: int) -> None:
        self.rows = rows
        self.pieces = widths(columns, lanes)
        self.buffer = scratch((rows, columns))

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """``(row, offset, lanes)`` of every vector."""
        return [(row, offset, lanes) for row in range(self.rows) for offset, lanes in self.pieces]

    def get(self, row: int, offset: int, lanes: int) -> Expr:
        """The vector at a place."""
        return load(self.buffer, (row, offset), lanes)

    def set(self, row: int, offset: int, lanes: int, value: Expr) -> None:
        """Replace the vector at a place."""
        store(self.buffer, value, (row, offset), lanes)

    def add(self, row: int, offset: int, lanes: int, value: Expr) -> None:
        """Add to the vector at a place."""
        self.set(row, offset, lanes, self.get(row, offset, lanes) + value)

    def clear(self) -> None:
        """Set everything to zero."""
        for place in self.places:
            self.set(*place, splat(0.0, place[2]))


def each(extent: Index, body: Callable[[Expr], None], *, threads: bool) -> None:
    """Run ``body`` for every index below ``extent``, on all threads or on this one."""
    loop = T.parallel if threads else T.serial
    with loop(integer(extent)) as i:
        body(i)


def each_row(rows: Expr, work: Index, body: Callable[[Expr], None]) -> None:
    """Run ``body`` for every row; on all threads when the rows together are worth it.

    Args:
        rows: Row count, known at run time.
        work: Operations per row, as a scale.
        body: Emits the work on one row.
    """
    few = rows * integer(work) < SERIAL_WORK
    either(few, lambda: each(rows, body, threads=False), lambda: each(rows, body, threads=True))


def load_weight(buffer: Buffer, index: Sequence[Index], lanes: int, dtype: str) -> Expr:
    """Weights as float32, converted from ``dtype`` in registers; exact for every type."""
    value = load(buffer, index, lanes)
    if dtype == "float32":
        return value
    if dtype == "float16":
        return T.Cast(vector_type("float32", lanes), value)
    bits = T.Cast(vector_type("uint32", lanes), value)
    shift = tirx.const(16, "uint32")
    shifted = T.shift_left(bits, shift if lanes == 1 else T.broadcast(shift, lanes))
    return T.reinterpret(vector_type("float32", lanes), shifted)


def exp(x: Expr, lanes: int) -> Expr:
    """``e**x`` for float32 ``x`` up to 88, relative error below 2e-7; 0 below -87.34; NaN stays.

    The usual reduction: x = n ln 2 + r with an integer n, then 2**n times a polynomial in r. LLVM
    would call expf once per element instead.
    """
    integers, floats = vector_type("int32", lanes), vector_type("float32", lanes)
    x = let(x, lanes)
    # As integers, or the simplifier would cancel the addition of ROUND with its subtraction.
    n = let(T.reinterpret(integers, x * splat(LOG2_E, lanes) + splat(ROUND, lanes)), lanes, "int32")
    n = let(n - splat(int32(ROUND_BITS), lanes), lanes, "int32")
    whole = let(T.Cast(floats, n), lanes)
    r = let(x - whole * splat(LN2_HIGH, lanes) - whole * splat(LN2_LOW, lanes), lanes)
    total = splat(EXP_COEFFICIENTS[0], lanes)
    for coefficient in EXP_COEFFICIENTS[1:]:
        total = total * r + splat(coefficient, lanes)
    exponent = T.shift_left(n + splat(int32(127), lanes), splat(int32(23), lanes))
    value = total * T.reinterpret(floats, exponent)
    return T.Select(x < splat(EXP_LOWEST, lanes), splat(0.0, lanes), value)


def fold(vector: Expr, lanes: int, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Combine the lanes of a vector into one value, halving it each time."""
    while lanes > 1:
        lanes //= 2
        vector = let(vector, 2 * lanes)
        halves = [list(range(start, start + lanes)) for start in (0, lanes)]
        vector = combine(*(tirx.Shuffle([vector], half) for half in halves))
    return vector


def add(a: Expr, b: Expr) -> Expr:
    """The sum."""
    return a + b


def build(functions: dict[str, Any], target: Any) -> Any:  # noqa: ANN401
    """Compile PrimFuncs by themselves, for tests and benchmarks."""
    named = {
        name: function.with_attr("global_symbol", name) for name, function in functions.items()
    }
    return tvm.compile(tvm.IRModule(named), target=target, tir_pipeline=pipeline.register())
