"""Building blocks of CUDA kernels: launches, memory, warps, tensor cores, conversions."""

# ruff: noqa: F403, F405 - kernels import one builder, which has the names of kernel_builder, too

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda.device_functions import call as call  # for kernels, too
from maxtool.compiler.kernels.kernel_builder import *

WARP = 32
_MOST_BLOCKS = 2**31 - 1  # of a launch, along its first axis
_EVERY_LANE = 0xFFFFFFFF
# The second number of CUDA's __launch_bounds__.
_MIN_BLOCKS_PER_SM = "tirx.launch_bounds_min_blocks_per_sm"


@contextmanager
def launch(
    blocks: Sequence[Index], threads: int, min_blocks_per_sm: int | None = None
) -> Iterator[tuple[Expr, ...]]:
    """Run the body for each of ``blocks`` (x, y, z) and each thread of a block.

    A launch without blocks is an error of CUDA: each extent is at least 1, and what lies beyond
    ``blocks`` is skipped by all threads of a block together. Yields the indices of the block,
    int64, one for each of ``blocks``; then the thread's, int32.

    The blocks that a multiprocessor is to run at once bound the registers of a thread, and let it
    have as many as that. If nothing is said, ptxas may spill some for the sake of more blocks.
    """
    names = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
    extents = [integer(extent) for extent in blocks]
    launched = [_at_least_one(extent) for extent in extents]
    bounds = (
        []
        if min_blocks_per_sm is None
        else [T.attr(0, _MIN_BLOCKS_PER_SM, int32(min_blocks_per_sm))]
    )
    frames = [
        *(T.launch_thread(name, one) for name, one in zip(names, launched, strict=False)),
        T.launch_thread("threadIdx.x", threads),
    ]
    with _frames(frames) as (*at, thread), _frames(bounds):
        wide = [T.Cast("int64", index) for index in at]
        unknown = [
            one < extent
            for one, extent in zip(wide, extents, strict=True)
            if not isinstance(extent, tirx.IntImm)
        ]
        with when(tirx.all(*unknown)) if unknown else nullcontext():
            yield (*wide, thread)


@contextmanager
def _frames(frames: Sequence[Expr]) -> Iterator[tuple[Expr, ...]]:
    """Enter nested frames, all at once."""
    with ExitStack() as stack:
        yield tuple(map(stack.enter_context, frames))


def _at_least_one(extent: Expr) -> Expr:
    if isinstance(extent, tirx.IntImm):
        return integer(max(1, int(extent)))
    return T.max(extent, integer(1))


def shared(shape: Sequence[int], dtype: str = "float32", *, dynamic: bool = False) -> Buffer:
    """Memory of a block; ``dynamic`` where all of it together exceeds 48 KiB."""
    scope = "shared.dyn" if dynamic else "shared"
    return T.alloc_buffer(tuple(shape), dtype, scope=scope, layout=None)


def barrier() -> None:
    """Wait until every thread of the block is here, and see what each has written."""
    do(T.tvm_storage_sync("shared"))


def do(expression: Expr) -> None:
    """Evaluate an expression for what it does."""
    T.evaluate(expression)


def block_quotient(at: Expr, by: Expr) -> Expr:
    """``at / by`` rounded down, for an index of a launch's blocks, which has 31 bits.

    A division of 64 bits takes some hundred instructions.
    """
    short = [T.Cast("int32", operand) for operand in (at, least(by, _MOST_BLOCKS))]
    return T.Cast("int64", T.truncdiv(*short))


def place(*indices: Index) -> tuple[Expr, ...]:
    """Indices as int64."""
    return tuple(
        integer(index) if isinstance(index, int) else T.Cast("int64", index) for index in indices
    )


def pointer(buffer: Buffer, *indices: Index) -> Expr:
    """The address of an element, as device functions take it."""
    return T.address_of(buffer[indices])


def warp_reduce(
    value: Expr,
    combine: Callable[[Expr, Expr], Expr],
    width: int = WARP,
    dtype: str = "float32",
    *,
    rolled: bool = False,
) -> Expr:
    """Combine the values of ``width`` neighbouring lanes; every one of them gets the result.

    All lanes of the warp must take part; ``combine`` is associative. ``rolled`` makes the steps
    turns of a loop: some cycles more, and less code where ``combine`` is long.
    """
    held = cell(dtype=dtype)
    held.set(value)
    rounds = int32(width.bit_length() - 1)
    with T.serial(rounds, unroll=False) if rolled else T.unroll(rounds) as step:
        distance = let(T.shift_right(int32(width // 2), step))
        other = let(warp_across(held.value, distance))
        held.set(combine(held.value, other))
    return held.value


def warp_across(value: Expr, distance: Index) -> Expr:
    """The value of the lane whose number differs by one bit; all lanes must take part."""
    return T.tvm_warp_shuffle_xor(_every_lane(), value, distance, WARP, WARP)


def warp_sum(value: Expr, distance: Index) -> Expr:
    """The value and that of the lane whose number differs by one bit, added."""
    return let(value + let(warp_across(value, distance)))


def warp_scan(value: Expr, lane: Expr, dtype: str = "float32") -> Expr:
    """The sum of the values of the lanes before this one; all lanes of the warp must take part."""
    held = cell(dtype=dtype)
    held.set(value)
    distance = 1
    while distance < WARP:
        other = let(T.tvm_warp_shuffle_up(_every_lane(), held.value, distance, WARP, WARP))
        with when(lane >= distance):
            held.add(other)
        distance *= 2
    before = let(T.tvm_warp_shuffle_up(_every_lane(), held.value, 1, WARP, WARP))
    return let(T.Select(lane == 0, tirx.const(0, dtype), before))


def warp_value(value: Expr, lane: Expr | int) -> Expr:
    """The value that one lane has; all lanes of the warp must take part."""
    return T.tvm_warp_shuffle(_every_lane(), value, lane, WARP, WARP)


def _every_lane() -> Expr:
    return tirx.const(_EVERY_LANE, "uint32")


def join_warps(
    value: Expr,
    combine: Callable[[Expr, Expr], Expr],
    thread: Expr,
    partial: Buffer,
    dtype: str = "float32",
    *,
    rolled: bool = False,
) -> Expr:
    """Combine the values of the warps of a block; every thread gets the result.

    ``partial`` is shared memory, of an element for each warp; it may be used anew after another
    barrier.
    """
    warps = int(partial.shape[0])
    with when(thread % WARP == 0):
        store(partial, value, (thread // WARP,))
    barrier()
    if warps & (warps - 1) == 0:
        return warp_reduce(partial[thread % warps], combine, warps, dtype, rolled=rolled)
    total = let(partial[0])
    for warp in range(1, warps):
        total = let(combine(total, partial[warp]))
    return total


def to_float32(value: Expr, dtype: str) -> Expr:
    """One stored value (float32, float16, or the bits of bfloat16) as float32; exact."""
    if dtype == "float32":
        return value
    if dtype == "float16":
        return T.Cast("float32", value)
    bits = T.shift_left(T.Cast("uint32", value), tirx.const(16, "uint32"))
    return T.reinterpret("float32", bits)


def to_bfloat16(value: Expr) -> Expr:
    """The bits of a float32 value rounded to bfloat16, to nearest even."""
    return call("mt_bf16", value, returns="uint16")


def to_storage(value: Expr, dtype: str) -> Expr:
    """One float32 value as it is stored in float32, float16 or bfloat16, rounded to nearest."""
    if dtype == "bfloat16":
        return to_bfloat16(value)
    return value if dtype == "float32" else T.Cast(dtype, value)
