"""CPU kernels as shares of what this machine does: reading memory, multiplying and adding.

    python benchmarks/peaks.py [--seconds 1] [--threads N] [--only Q4_K]

Each matrix product runs with one row, as in decoding, on copies of the weights that no cache holds,
and with 512 rows, as in a prompt. It takes turns with kernels that only read, or only multiply, as
`maxtool bench` has them: those of float32, or of bytes where activations are quantized. So does
attention of one query, over caches that no cache of the processor holds. Medians of the turns.
Prints rows of a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import ml_dtypes
import numpy as np
import tvm

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.attention import attention
from maxtool.compiler.kernels.cpu.integer_dot import SETS, instruction_set
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linear
from maxtool.compiler.packing import pack_linear
from maxtool.compiler.peak_kernels import PeakKernels
from maxtool.compiler.quantized_layout import LAYOUTS
from maxtool.compiler.quantized_packing import pack_quantized
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.codec import CODECS
from maxtool.runtime.loader.host import set_threads

TURN = 0.1  # seconds that one kernel is measured before the other is
# More than any cache holds.
UNCACHED = 1 << 28
# The matrix: the widest one of a layer of a Llama with 1.1 billion parameters.
FEATURES, TERMS = 5632, 2048
PROMPT = 512
FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# Heads, those of keys, their size, and positions of a cache.
HEADS, KV_HEADS, HEAD, CONTEXT = 32, 4, 64, 4096
TARGET = cpu_target()
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Work:
    """Calls of a kernel, what each moves or computes, and the peak that it is held against."""

    call: Callable[[], object]
    amount: float
    peak: str


def main() -> None:
    arguments = parse()
    threads = set_threads(1 << 60)
    kernels = PeakKernels(threads)
    peaks = {
        "read": Work(kernels.read, kernels.read_bytes, "read"),
        "float32": Work(kernels.multiply, kernels.flops, "float32"),
        "int8": Work(kernels.multiply_int8, kernels.int8_operations, "int8"),
    }
    sets = ", ".join(sorted(SETS.keys() & set(TARGET.features)))
    print(f"{TARGET.cpu}, {sets}, {threads} threads\n")
    print("| weights | one row: GB/s | of reading | 512 rows: Gop/s | of multiplying |")
    print("| --- | --- | --- | --- | --- |")
    names = [*FLOATS, *(encoding.name for encoding in LAYOUTS), "cache F32", "cache F16"]
    for name in (name for name in names if arguments.only in name):
        cells = [cell(work, peaks, arguments.seconds) for work in works(name)]
        cells += [" | "] * (2 - len(cells))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def cell(work: Work, peaks: dict[str, Work], seconds: float) -> str:
    """Two cells: billions a second, and the share of the peak."""
    peak = peaks[work.peak]
    for each in (work, peak):
        each.call()
    pairs = [(rate(work), rate(peak)) for _ in range(max(1, round(seconds / TURN)))]
    share = statistics.median(own / most for own, most in pairs)
    of_what = "" if work.peak == "read" else f" {work.peak}"
    return f"{statistics.median(own for own, _ in pairs) / 1e9:.1f} | {share:.0%}{of_what}"


def rate(work: Work) -> float:
    """Bytes or operations of a kernel in a second, from some calls."""
    began, count, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < TURN:
        work.call()
        count, elapsed = count + 1, time.perf_counter() - began
    return count * work.amount / elapsed


def works(name: str) -> Iterator[Work]:
    """Measurements of weights of a type, or of a cache."""
    kind, _, dtype = name.rpartition(" ")
    if kind:
        yield of_cache(FLOATS[dtype])
        return
    weights, function, peak = product(name)
    run = builder.build({"kernel": function}, TARGET.tvm)["kernel"]
    matrix, copies = tvm.runtime.tensor(weights), -(-UNCACHED // weights.nbytes)
    matrices = cycle([matrix, *(tvm.runtime.tensor(weights) for _ in range(copies - 1))])
    for rows, used in ((1, matrices), (PROMPT, cycle([matrix]))):
        x = tvm.runtime.tensor(RNG.standard_normal((rows, TERMS), dtype="f4"))
        y = tvm.runtime.tensor(np.empty((rows, FEATURES), "f4"))
        call = partial(one_of, run, x, used, y)
        if rows == 1:
            yield Work(call, weights.nbytes, "read")
        else:
            yield Work(call, 2.0 * rows * FEATURES * TERMS, peak)


def one_of(run: Callable[..., object], x: object, matrices: Iterator[object], y: object) -> object:
    """Multiply rows with the next one of some matrices."""
    return run(x, next(matrices), y)


def product(name: str) -> tuple[np.ndarray, builder.PrimFunc, str]:
    """A matrix of a type as its kernel wants it, the kernel, and the peak of its products."""
    if name in FLOATS:
        dtype = FLOATS[name]
        stored = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        matrix = RNG.standard_normal((FEATURES, TERMS), dtype="f4").astype(stored)
        terms = TARGET.terms(DType[dtype])
        packed = pack_linear(matrix, TARGET.tile.nr, terms)
        kept = packed.view("u2") if dtype == "bfloat16" else packed
        return kept, linear(TARGET.tile, dtype, terms=terms), "float32"
    encoding = QuantizationEncoding[name]
    blocks = RNG.integers(0, 256, (FEATURES, encoding.row_bytes(TERMS)), dtype=np.uint8)
    records = blocks.view(CODECS[encoding].layout)
    for scale in {"d", "m", "dmin"} & set(records.dtype.names or ()):
        records[scale] = RNG.uniform(1e-3, 1e-2, records[scale].shape)
    packed = pack_quantized(blocks, encoding)
    return packed, quantized_linear(instruction_set(TARGET), name), "int8"


def of_cache(dtype: str) -> Work:
    """Attention of one query over many caches in turns."""
    function = attention(TARGET.tile, HEADS, KV_HEADS, HEAD, HEAD**-0.5, dtype=dtype)
    run = builder.build({"kernel": function}, TARGET.tvm)["kernel"]
    keys = RNG.standard_normal((1, KV_HEADS, HEAD, CONTEXT), dtype="f4").astype(dtype)
    values = RNG.standard_normal((1, KV_HEADS, CONTEXT, HEAD), dtype="f4").astype(dtype)
    moved = keys.nbytes + values.nbytes
    caches = cycle(
        [tuple(map(tvm.runtime.tensor, (keys, values))) for _ in range(-(-UNCACHED // moved))]
    )
    x = tvm.runtime.tensor(RNG.standard_normal((1, 1, HEADS, HEAD), dtype="f4"))
    start = tvm.runtime.tensor(np.array([CONTEXT - 1], "i4"))
    y = tvm.runtime.tensor(np.empty((1, 1, HEADS, HEAD), "f4"))
    return Work(lambda: run(x, *next(caches), start, y), moved, "read")


def parse() -> argparse.Namespace:
    """Read the command line; threads are set before a kernel runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="per kernel and peak")
    parser.add_argument("--threads", type=int, help="all cores if absent")
    parser.add_argument("--only", default="", help="types whose name contains this")
    arguments = parser.parse_args()
    if arguments.threads:
        os.environ["TVM_NUM_THREADS"] = str(arguments.threads)
    return arguments


if __name__ == "__main__":
    main()
