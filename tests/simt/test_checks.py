"""Each thing that the interpreter refuses, done by a small kernel that is wrong in no other way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.device_functions import SOURCES
from tests.simt import program, run
from tests.simt.device_functions import FUNCTIONS
from tests.simt.faults import (
    Aliased,
    BadLaunch,
    Divergence,
    KernelFault,
    Misaligned,
    OutOfBounds,
    Race,
    Uninitialised,
    Unsupported,
)

THREADS = 64
EVERY_LANE = 0xFFFFFFFF
Body = Callable[[Any, Any, Any, Any], None]


@contextmanager
def _launched(blocks: int, threads: int) -> Any:
    with (
        T.launch_thread("blockIdx.x", blocks) as block,
        T.launch_thread("threadIdx.x", threads) as thread,
    ):
        yield block, thread


def wrong(body: Body, blocks: int = 1, threads: int = THREADS, size: int = 256) -> Any:
    """A kernel ``body(x, out, block, thread)`` over two arrays of ``size`` float32."""
    with b.kernel("wrong") as kernel:
        x, out = kernel.argument("x", (size,)), kernel.argument("out", (size,))
        with _launched(blocks, threads) as (block, thread):
            body(x, out, block, thread)
    return kernel.function


def fault(kernel: Any, type_: type[KernelFault], *said: str) -> None:
    x = np.arange(256, dtype="f4")
    with pytest.raises(type_) as caught:
        run(kernel, x, np.zeros(256, "f4"))
    assert all(word in str(caught.value) for word in ("wrong", *said)), caught.value


def test_an_index_outside_of_its_buffer() -> None:
    def body(x: Any, out: Any, block: Any, thread: Any) -> None:
        b.store(out, x[thread * 4 + 1 + block], (thread,), 1)
        b.store(out, x[thread + 200], (thread,), 1)

    fault(wrong(body), OutOfBounds, "thread (56, 0, 0)", "element 256 of x", "x[")


def test_a_write_outside_of_its_buffer() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, x[0], (thread - 1,), 1)

    fault(wrong(body), OutOfBounds, "element -1 of out")


def test_an_access_that_is_guarded_is_none() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(
            out, T.if_then_else(T.And(thread > 0, x[thread - 1] > 3), x[thread], 0), (thread,), 1
        )

    x, out = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    run(wrong(body), x, out)
    assert out[:7].tolist() == [0, 0, 0, 0, 0, 5, 6]


def test_a_vector_that_is_not_aligned() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, b.load(x, (thread * 2,), 4), (thread * 4,), 4)

    fault(wrong(body, threads=32), Misaligned, "element 2")


def test_registers_that_nothing_wrote() -> None:
    def body(_x: Any, out: Any, _block: Any, thread: Any) -> None:
        held = b.scratch((2,))
        with b.when(thread < 5):
            b.store(held, T.float32(1), (1,), 1)
        b.store(out, held[1], (thread,), 1)

    fault(wrong(body), Uninitialised, "thread (5, 0, 0)", "element 1")


def test_shared_memory_that_nothing_wrote() -> None:
    def body(_x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((THREADS,))
        with b.when(thread < 5):
            b.store(shared, T.float32(1), (thread,), 1)
        b.barrier()
        b.store(out, shared[thread], (thread,), 1)

    fault(wrong(body), Uninitialised, "thread (5, 0, 0)")


def test_an_output_that_nothing_wrote() -> None:
    def body(_x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, out[thread] + T.float32(1), (thread,), 1)

    fault(wrong(body), Uninitialised, "of out")
    out = np.ones(256, "f4")
    run(wrong(body), np.zeros(256, "f4"), out, updated=(1,))
    assert out.tolist() == [2] * THREADS + [1] * (256 - THREADS)


def test_shared_memory_read_without_a_barrier() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((THREADS,))
        b.store(shared, x[thread], (thread,), 1)
        b.store(out, shared[THREADS - 1 - thread], (thread,), 1)

    fault(wrong(body), Race, "reads", "wrote")


def test_shared_memory_written_anew_without_a_barrier() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((THREADS,))
        with T.serial(2) as i:
            b.store(shared, x[thread], (thread,), 1)
            b.barrier()
            b.store(out, shared[THREADS - 1 - thread], (thread + i * THREADS,), 1)

    fault(wrong(body), Race, "writes", "read")


def test_a_place_of_shared_memory_that_two_threads_write() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((THREADS,))
        b.store(shared, x[thread], (T.truncdiv(thread, 2),), 1)
        b.barrier()
        b.store(out, shared[0], (thread,), 1)

    fault(wrong(body), Race, "writes too")


def exchange(by: Any, sync: Any) -> Any:
    """Threads read what the one ``by`` away has written, after ``sync``."""

    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((THREADS,))
        b.store(shared, x[thread], (thread,), 1)
        b.do(sync)
        b.store(out, shared[T.bitwise_xor(thread, by)], (thread,), 1)

    return wrong(body)


def test_a_barrier_of_the_warp_orders_its_own_threads_alone() -> None:
    x, out = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    run(exchange(31, T.tvm_storage_sync("warp")), x, out)
    assert out[:THREADS].tolist() == [i ^ 31 for i in range(THREADS)]
    fault(exchange(32, T.tvm_storage_sync("warp")), Race)
    run(exchange(32, T.tvm_storage_sync("shared")), x, out)


def test_blocks_that_write_different_values_to_one_place() -> None:
    def body(x: Any, out: Any, block: Any, thread: Any) -> None:
        b.store(out, x[thread + block], (thread,), 1)

    fault(wrong(body, blocks=2), Race, "out")


def test_threads_that_write_one_value_to_one_place_may() -> None:
    def body(x: Any, out: Any, _block: Any, _thread: Any) -> None:
        b.store(out, x[3], (0,), 1)

    out = np.zeros(256, "f4")
    run(wrong(body, blocks=300), np.arange(256, dtype="f4"), out)
    assert out[0] == 3


@pytest.mark.parametrize("blocks", [2, 1000])
def test_a_block_that_reads_what_another_one_writes(blocks: int) -> None:
    def body(_x: Any, out: Any, block: Any, thread: Any) -> None:
        with b.when(T.And(block == 0, thread == 0)):
            b.store(out, T.float32(1), (0,), 1)
        b.barrier()
        with b.when(T.And(block == blocks - 1, thread == 0)):
            b.store(out, out[0], (1,), 1)

    fault(wrong(body, blocks=blocks), Race, "out", f"({blocks - 1}, 0, 0)")


def test_a_barrier_that_some_threads_skip() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        with b.when(thread < 32):
            b.barrier()
        b.store(out, x[thread], (thread,), 1)

    fault(wrong(body), Divergence, "32 of 64 threads")


def test_a_shuffle_that_some_threads_skip() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        with b.when(thread % 2 == 0):
            other = T.tvm_warp_shuffle_xor(T.uint32(EVERY_LANE), x[thread], 2, 32, 32)
            b.store(out, other, (thread,), 1)

    fault(wrong(body), Divergence, "0xffffffff", "0x55555555")


@pytest.mark.parametrize(("blocks", "threads"), [(0, 64), (1, 2048)])
def test_a_launch_that_no_gpu_takes(blocks: int, threads: int) -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, x[thread % 256], (thread % 256,), 1)

    fault(wrong(body, blocks, threads), BadLaunch)


@pytest.mark.parametrize(("size", "dynamic"), [(13000, False), (60000, True)])
def test_more_shared_memory_than_there_is(size: int, dynamic: bool) -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((size,), dynamic=dynamic)
        b.store(shared, x[thread], (thread,), 1)
        b.store(out, shared[thread], (thread,), 1)

    fault(wrong(body), BadLaunch, "bytes of")


def test_what_the_target_has_of_shared_memory() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((30000,), dynamic=True)
        b.store(shared, x[thread], (thread,), 1)
        b.store(out, shared[thread], (thread,), 1)

    arrays = np.zeros(256, "f4"), np.zeros(256, "f4")
    run(wrong(body), *arrays)
    with pytest.raises(BadLaunch, match="120000 bytes"):
        program(wrong(body), shared_memory=99 << 10)(*arrays)


def copied(*, wait: bool, barrier: bool, shift: int) -> Any:
    """Threads copy 16 bytes and read those of the thread ``shift`` away."""

    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        shared = b.shared((THREADS * 4,))
        target, source = b.pointer(shared, thread * 4), b.pointer(x, thread * 4)
        b.do(b.call("mt_cp_async_16", target, source, 16))
        b.do(b.call("mt_cp_async_commit"))
        b.do(b.call("mt_cp_async_wait", 0 if wait else 1))
        if barrier:
            b.barrier()
        b.store(out, shared[T.bitwise_xor(thread, shift) * 4 + 1], (thread,), 1)

    return wrong(body)


@pytest.mark.parametrize("shift", [0, 5])
def test_asynchronous_copies_wait_for_their_group_and_a_barrier(shift: int) -> None:
    x, out = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    run(copied(wait=True, barrier=True, shift=shift), x, out)
    assert out[:THREADS].tolist() == [4 * (i ^ shift) + 1 for i in range(THREADS)]
    fault(copied(wait=False, barrier=True, shift=shift), Race, "in flight")
    if shift:
        fault(copied(wait=True, barrier=False, shift=shift), Race, "wrote")


def test_parameters_that_are_one_memory() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, x[thread], (thread,), 1)

    both = np.zeros(512, "f4")
    run(wrong(body), both[:256], both[256:])
    with pytest.raises(Aliased, match="x and out"):
        run(wrong(body), both[:256], both[255:511])


def test_narrow_integers_that_overflow_before_cpp_would_cut_them() -> None:
    def body(_x: Any, out: Any, _block: Any, thread: Any) -> None:
        narrow = T.Cast("int8", thread + 100)
        b.store(out, T.Cast("float32", T.shift_right(narrow + narrow, T.int8(1))), (thread,), 1)

    fault(wrong(body), KernelFault, "int8", "200")


def test_narrow_integers_that_are_cut_when_they_are_stored() -> None:
    with b.kernel("square") as kernel:
        x, out = (kernel.argument(name, (THREADS,), "uint8") for name in ("x", "out"))
        with _launched(1, THREADS) as (_, thread):
            b.store(out, x[thread] * x[thread], (thread,), 1)
    x = np.arange(200, 200 + THREADS).astype("u1")
    out = np.zeros_like(x)
    run(kernel.function, x, out)
    assert out.tolist() == [int(one) ** 2 % 256 for one in x]


def test_division_by_zero() -> None:
    def body(_x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, T.Cast("float32", T.truncdiv(5, thread)), (thread,), 1)

    fault(wrong(body), KernelFault, "zero")


def test_every_device_function_is_known() -> None:
    assert set(FUNCTIONS) == set(SOURCES)


def test_what_is_unknown_is_named() -> None:
    def body(x: Any, out: Any, _block: Any, thread: Any) -> None:
        b.store(out, T.call_extern("float32", "magic", x[thread]), (thread,), 1)

    with pytest.raises(Unsupported, match="call_extern"):
        program(wrong(body))
