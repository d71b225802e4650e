"""Building blocks of every kernel: arguments, buffers, loads and stores, index arithmetic.

Kernels are built call by call rather than parsed from decorated source, so that plain Python
functions, loops and tables decide what is emitted. All indices are int64: a packed weight can have
more than 2**31 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

Expr = Any  # tvm ships no types
Buffer = Any
PrimFunc: TypeAlias = Any
Index = Expr | int
Indices: TypeAlias = Sequence[Index]

# How a weight type is passed and how many bits it has. bfloat16 travels as its bits.
STORAGE = {"float32": "float32", "float16": "float16", "bfloat16": "uint16"}
_LARGEST = (1 << 63) - 1
OPAQUE = 8  # relax.op_pattern "opaque": fusion leaves the call alone


class Kernel:
    """A PrimFunc under construction; ``function`` is it, once the block that built it ends."""

    def __init__(self) -> None:
        self.function: PrimFunc = None

    def dim(self, name: str) -> Expr:
        """A dimension known only at run time."""
        return tirx.Var(name, "int64")

    def argument(self, name: str, shape: Indices, dtype: str = "float32", align: int = 0) -> Buffer:
        """The next parameter: a contiguous tensor, at a multiple of ``align`` bytes; TVM's if 0."""
        buffer = T.buffer(tuple(shape), dtype, align=align, layout=None, buffer_name=name)
        return T.arg(name, buffer)


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


def scratch(shape: Indices, dtype: str = "float32") -> Buffer:
    """Memory of fixed size on the stack, or in registers where every index is a constant."""
    return T.alloc_buffer(
        tuple(shape), dtype, scope="local", layout=None, annotations={"disable_lower_builtin": True}
    )


def workspace(shape: Indices, dtype: str = "float32") -> Buffer:
    """Memory of any size, from TVM's pool; shared by the threads when taken outside their loop."""
    return T.alloc_buffer(tuple(shape), dtype, scope="global", layout=None)


class Cell:
    """One number in a register that changes: the state of a loop."""

    def __init__(self, dtype: str) -> None:
        self.buffer = scratch((1,), dtype)

    @property
    def value(self) -> Expr:
        """The number that it holds when the expression is computed."""
        return self.buffer[0]

    def set(self, value: Expr) -> None:
        """Replace the number."""
        store(self.buffer, value, (0,))

    def add(self, value: Expr) -> None:
        """Add to the number."""
        self.set(self.value + value)


def cell(initial: Expr | None = None, *, dtype: str = "float32") -> Cell:
    """A cell that holds ``initial``, of whose type it is; of ``dtype`` and unset without it."""
    if initial is None:
        return Cell(dtype)
    result = Cell(str(initial.ty))
    result.set(initial)
    return result


def load(buffer: Buffer, index: Indices, width: int = 1) -> Expr:
    """Load ``width`` neighbours along the last dimension, from ``index`` on."""
    return buffer[_vector_index(index, width)]


def store(buffer: Buffer, value: Expr, index: Indices, width: int = 1) -> None:
    """Store ``width`` neighbours along the last dimension, from ``index`` on."""
    T.buffer_store(buffer, value, list(_vector_index(index, width)))


def _vector_index(index: Indices, width: int) -> tuple[Index, ...]:
    *outer, last = index
    return (*outer, last if width == 1 else T.ramp(last, 1, width))


def let(value: Expr) -> Expr:
    """Compute a value of any type once and use it by name.

    It is stored in a register rather than bound: passes inline bound values wherever they are used,
    and the copies of copies grow exponentially.
    """
    dtype, _, width = str(value.ty).partition("x")
    return _kept(value, dtype, int(width or 1))


def _kept(value: Expr, dtype: str, width: int) -> Expr:
    held = scratch((width,), dtype)
    store(held, value, (0,), width)
    return load(held, (0,), width)


def splat(value: Expr, width: int) -> Expr:
    """A vector of ``width`` copies; a Python number becomes float32."""
    if isinstance(value, (int, float)):
        value = T.float32(value)
    return value if width == 1 else T.broadcast(value, width)


def vector_type(dtype: str, width: int) -> str:
    """TVM's name of a vector type."""
    return dtype if width == 1 else f"{dtype}x{width}"


def widths(count: int, width: int) -> list[tuple[int, int]]:
    """Cut ``count`` elements into vectors: ``(offset, width)``, the last ones ever narrower.

    >>> widths(22, 8)
    [(0, 8), (8, 8), (16, 4), (20, 2)]
    """
    pieces = []
    offset = 0
    while offset < count:
        while width > count - offset:
            width //= 2
        pieces.append((offset, width))
        offset += width
    return pieces


def index(value: Index) -> Expr:
    """Compute an int64 index once; see ``let``. Only for use on the thread that computes it."""
    return _kept(integer(value), "int64", 1)


def quotient(a: Expr, b: Index) -> Expr:
    """``a / b`` rounded down, for an ``a`` that is not negative: cheaper than ``//``."""
    return T.truncdiv(a, integer(b))


def remainder(a: Expr, b: Index) -> Expr:
    """Return the remainder of ``quotient``."""
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


def from_first(place: Expr, n: Expr, dtype: str) -> Expr:
    """A place among ``n``, which is of type ``dtype``, as int64; a negative one from the last."""
    if dtype.startswith("u"):  # none of which is negative, as an int64 either
        limit = tirx.const(_LARGEST, dtype) if dtype == "uint64" else None
        return T.Cast("int64", place if limit is None else T.min(place, limit))
    wide = index(T.Cast("int64", place))
    return tirx.Select(wide < integer(0), wide + n, wide)


def unravel(row: Expr, sizes: Sequence[Expr]) -> list[Expr]:
    """Convert the number of a row into an index along each of several dimensions."""
    places: list[Expr] = []
    for size in reversed(sizes[1:]):
        rest = index(quotient(row, size))
        places.insert(0, index(row - rest * size))
        row = rest
    return [row, *places]


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


def add(a: Expr, b: Expr) -> Expr:
    """The sum."""
    return a + b
