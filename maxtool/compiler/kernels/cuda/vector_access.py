"""Neighbouring elements of float32, float16 or bfloat16, moved up to 16 bytes at a time.

Loads are device functions, of which each is one instruction: TVM writes a vector load as one load
for each element wherever it cannot prove that the address is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.elements import PACK

BYTES = 16  # the most that one instruction loads
BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
UNPACK = {"float16": "mt_unpack_f16", "bfloat16": "mt_unpack_bf16"}


def widest(dtype: str, *counts: int, limit: int = BYTES) -> int:
    """Return how many neighbours one instruction can move, if all ``counts`` divide so."""
    for size in (16, 8):
        width = size * 8 // BITS[dtype]
        if size <= limit and all(count % width == 0 for count in counts):
            return width
    return 1


def registers(count: int, width: int, dtype: str) -> tuple[int, str]:
    """Return the number and the type of the registers that hold ``count`` stored numbers."""
    return (count, b.STORAGE[dtype]) if width == 1 else (count * BITS[dtype] // 32, "uint32")


def load(
    held: b.Buffer,
    place: Sequence[b.Index],
    source: tuple[b.Buffer, Sequence[b.Index]],
    width: int,
    dtype: str,
) -> None:
    """Load neighbours as they are stored into registers, as many as ``registers`` names.

    Where the first is in global or shared memory is a multiple of ``width``, along the last axis.
    """
    buffer, index = source
    if width == 1:
        b.store(held, b.load(buffer, index), place)
        return
    name = "mt_load_16" if width * BITS[dtype] == 8 * BYTES else "mt_load_8"
    b.do(b.call(name, b.pointer(held, *place), b.pointer(buffer, *index)))


def fetch(buffer: b.Buffer, index: Sequence[b.Index], width: int, dtype: str) -> b.Buffer:
    """Neighbours as they are stored; ``unpack`` makes numbers of them, when they have come."""
    count, register_dtype = registers(width, width, dtype)
    held = b.scratch((count,), register_dtype)
    load(held, (0,), (buffer, index), width, dtype)
    return held


def unpack(
    held: b.Buffer, count: int, dtype: str, width: int | None = None, row: tuple[b.Index, ...] = ()
) -> b.Buffer:
    """Convert ``count`` loaded numbers, in the registers ``held[row]``, to float32.

    One load brought ``width`` of them; all, if nothing is said.
    """
    numbers = b.scratch((count,))
    many, register_dtype = registers(count, width or count, dtype)
    with T.unroll(b.int32(many)) as i:
        word = held[(*row, i)]
        if register_dtype != "uint32":
            b.store(numbers, b.to_float32(word, dtype), (i,))
        elif dtype == "float32":
            b.store(numbers, T.reinterpret("float32", word), (i,))
        else:
            b.do(b.call(UNPACK[dtype], b.pointer(numbers, 2 * i), word))
    return numbers


def read(
    buffer: b.Buffer, index: Sequence[b.Index], width: int, dtype: str = "float32"
) -> b.Buffer:
    """Neighbours as float32, in registers."""
    if dtype != "float32":
        return unpack(fetch(buffer, index, width, dtype), width, dtype)
    numbers = b.scratch((width,))
    load(numbers, (0,), (buffer, index), width, dtype)
    return numbers


def write(
    buffer: b.Buffer,
    numbers: b.Buffer,
    index: Sequence[b.Index],
    width: int,
    dtype: str = "float32",
) -> None:
    """Store float32 ``numbers``, which are in registers, rounded to ``dtype``."""
    if width == 1:
        b.store(buffer, b.to_storage(numbers[0], dtype), index)
    elif dtype == "float32" and width == 4:
        b.do(b.call("mt_store_16", b.pointer(buffer, *index), b.pointer(numbers, 0)))
    elif dtype == "float32":
        b.store(buffer, b.load(numbers, (0,), width), index, width)
    elif width == 2:
        both = b.scratch((2,), b.STORAGE[dtype])
        for i in range(2):
            b.store(both, b.to_storage(numbers[i], dtype), (i,))
        b.store(buffer, b.load(both, (0,), 2), index, 2)
    else:
        held = b.scratch((width // 2,), "uint32")
        with T.unroll(b.int32(width // 2)) as pair:
            both = numbers[2 * pair], numbers[2 * pair + 1]
            b.store(held, b.call(PACK[dtype], *both, returns="uint32"), (pair,))
        name = "mt_store_16" if width == 8 else "mt_store_8"
        b.do(b.call(name, b.pointer(buffer, *index), b.pointer(held, 0)))


def put(values: Sequence[b.Expr]) -> b.Buffer:
    """Numbers in registers, one next to the other."""
    held = b.scratch((len(values),))
    for i, value in enumerate(values):
        b.store(held, value, (i,))
    return held


def made(width: int, number: Callable[[b.Expr], b.Expr]) -> b.Buffer:
    """``number(i)`` for every ``i`` below ``width``, in registers."""
    held = b.scratch((width,))
    with T.unroll(b.int32(width)) as i:
        b.store(held, number(i), (i,))
    return held


def zeros(count: int) -> b.Buffer:
    """Zeros in registers."""
    return made(count, lambda _: T.float32(0))


def strided(count: int, thread: b.Expr, threads: int, body: Callable[[b.Expr], None]) -> None:
    """Run ``body(i)`` for every ``i`` below ``count``, neighbours on neighbouring threads."""
    whole, rest = divmod(count, threads)
    if whole == 1:
        body(thread)
    elif whole:
        with T.serial(b.int32(whole)) as step:
            body(thread + step * threads)
    if rest:
        with b.when(thread < rest):
            body(thread + whole * threads)


def threads_for(count: int, most: int = 128) -> int:
    """Threads of a block for so much work: whole warps, ``most`` at the most."""
    return min(most, -(-count // b.WARP) * b.WARP)
