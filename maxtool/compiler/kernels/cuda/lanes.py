"""Neighbouring elements of float32, float16 or bfloat16, moved up to 16 bytes at a time.

Loads are device functions, of which each is one instruction: TVM writes a vector load as one load
for each element wherever it cannot prove that the address is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.elements import PACK

BYTES = 16  # the most that one instruction loads
BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
UNPACK = {"float16": "mt_unpack_f16", "bfloat16": "mt_unpack_bf16"}


def widest(dtype: str, *counts: int, limit: int = BYTES) -> int:
    """How many neighbours one instruction moves, if rows of all ``counts`` are cut into such."""
    for size in (16, 8):
        lanes = size * 8 // BITS[dtype]
        if size <= limit and all(count % lanes == 0 for count in counts):
            return lanes
    return 1


def fetch(buffer: b.Buffer, index: Sequence[b.Index], lanes: int, dtype: str) -> b.Buffer:
    """Neighbours as they are stored; ``unpack`` makes numbers of them, when they have come.

    Args:
        buffer: In global or shared memory.
        index: Of the first, a multiple of ``lanes`` in the last dimension.
        lanes: What ``widest`` gave.
        dtype: Their type.
    """
    if lanes == 1:
        held = b.scratch((1,), b.STORAGE[dtype])
        b.store(held, b.load(buffer, index, 1), (0,), 1)
        return held
    words = lanes * BITS[dtype] // 32
    held = b.scratch((words,), "uint32")
    name = "mt_load_16" if words == 4 else "mt_load_8"
    b.do(b.call(name, b.pointer(held, 0), b.pointer(buffer, *index)))
    return held


def unpack(held: b.Buffer, lanes: int, dtype: str) -> b.Buffer:
    """What ``fetch`` gave as float32."""
    numbers = b.scratch((lanes,))
    if lanes == 1:
        b.store(numbers, b.to_float32(held[0], dtype), (0,), 1)
    elif dtype == "float32":
        for lane in range(lanes):
            b.store(numbers, T.reinterpret("float32", held[lane]), (lane,), 1)
    else:
        for pair in range(lanes // 2):
            b.do(b.call(UNPACK[dtype], b.pointer(numbers, 2 * pair), held[pair]))
    return numbers


def read(buffer: b.Buffer, index: Sequence[b.Index], lanes: int, dtype: str) -> b.Buffer:
    """Neighbours as float32, in registers."""
    return unpack(fetch(buffer, index, lanes, dtype), lanes, dtype)


def write(
    buffer: b.Buffer, numbers: b.Buffer, index: Sequence[b.Index], lanes: int, dtype: str
) -> None:
    """Store float32 ``numbers``, which are in registers, rounded to ``dtype``."""
    if lanes == 1:
        b.store(buffer, b.to_storage(numbers[0], dtype), index, 1)
    elif dtype == "float32" and lanes == 4:
        words = b.scratch((lanes,), "uint32")
        for lane in range(lanes):
            b.store(words, T.reinterpret("uint32", numbers[lane]), (lane,), 1)
        b.do(b.call("mt_store_16", b.pointer(buffer, *index), b.pointer(words, 0)))
    elif dtype == "float32":
        b.store(buffer, b.load(numbers, (0,), lanes), index, lanes)
    elif lanes == 2:
        both = b.scratch((2,), b.STORAGE[dtype])
        for lane in range(2):
            b.store(both, b.to_storage(numbers[lane], dtype), (lane,), 1)
        b.store(buffer, b.load(both, (0,), 2), index, 2)
    else:
        held = b.scratch((lanes // 2,), "uint32")
        for pair in range(lanes // 2):
            both = numbers[2 * pair], numbers[2 * pair + 1]
            b.store(held, b.call(PACK[dtype], *both, returns="uint32"), (pair,), 1)
        name = "mt_store_16" if lanes == 8 else "mt_store_8"
        b.do(b.call(name, b.pointer(buffer, *index), b.pointer(held, 0)))


def put(values: Sequence[b.Expr]) -> b.Buffer:
    """Numbers in registers, one next to the other."""
    held = b.scratch((len(values),))
    for lane, value in enumerate(values):
        b.store(held, value, (lane,), 1)
    return held


def strided(count: int, thread: b.Expr, threads: int, body: Callable[[b.Expr], None]) -> None:
    """Run ``body(i)`` for every ``i`` below ``count``, neighbours on neighbouring threads."""
    whole, rest = divmod(count, threads)
    for step in range(whole):
        body(thread + step * threads)
    if rest:
        with b.when(thread < rest):
            body(thread + whole * threads)


def threads_for(count: int, most: int = 128) -> int:
    """Threads of a block for so much work: whole warps, ``most`` at the most."""
    return min(most, -(-count // b.WARP) * b.WARP)
