"""Block codecs and casts beside the gguf package, NumPy and ml_dtypes, in turns.

    python -m benchmarks.codecs [NAME ...]

Prints nanoseconds per element, the median of rounds in which both sides take turns, of random bytes
(decoding) and normally distributed numbers (encoding). The package has no quantizers for the K and
IQ4 encodings; ours are timed alone, without and with the importance of columns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import gguf
import ml_dtypes
import numpy as np

from benchmarks.checkpoints import machine
from maxtool.casting import cast
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.quantization.codec import CODECS, ENCODABLE

ELEMENTS = 1 << 23
ROUNDS = 7
SLOW_ROUNDS = 3
ROW = 4096

Work = Callable[[], object]
CASTS = [
    (DType.bfloat16, DType.float16),
    (DType.bfloat16, DType.float32),
    (DType.float16, DType.float32),
    (DType.float32, DType.float16),
    (DType.float32, DType.bfloat16),
    (DType.float8_e4m3fn, DType.float32),
]


def once(work: Work) -> tuple[float, float]:
    """Processor and wall time, in nanoseconds per element."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (
        (time.process_time() - cpu) / ELEMENTS * 1e9,
        (time.perf_counter() - wall) / ELEMENTS * 1e9,
    )


def compare(title: str, ours: Work, theirs: Work) -> None:
    ours()
    turns: list[list[tuple[float, float]]] = [[], []]
    for _ in range(ROUNDS):
        for taken, work in zip(turns, (ours, theirs), strict=True):
            taken.append(once(work))
    (cpu, wall), (their_cpu, their_wall) = (
        (statistics.median(t[0] for t in taken), statistics.median(t[1] for t in taken))
        for taken in turns
    )
    print(
        f"{title:24} ours {cpu:6.2f} cpu {wall:6.2f} wall   theirs {their_cpu:6.2f} cpu"
        f" {their_wall:6.2f} wall   {their_cpu / cpu:5.1f}x cpu {their_wall / wall:5.1f}x wall"
    )


def alone(title: str, work: Work) -> None:
    """Print the medians of work that has no counterpart."""
    turns = [once(work) for _ in range(SLOW_ROUNDS)]
    cpu, wall = (statistics.median(column) for column in zip(*turns, strict=True))
    print(f"{title:24} ours {cpu:6.2f} cpu {wall:6.2f} wall")


def decode(encoding: QuantizationEncoding) -> None:
    rows = (ELEMENTS // ROW, encoding.row_bytes(ROW))
    blocks = np.random.default_rng(0).integers(0, 256, rows, np.uint8)
    quant_type = gguf.GGMLQuantizationType(encoding.gguf_id)
    try:
        gguf.quants.dequantize(blocks[:1], quant_type)
    except NotImplementedError:
        return
    compare(
        f"decode {encoding.name}",
        lambda: dequantize(blocks, encoding),
        lambda: gguf.quants.dequantize(blocks, quant_type),
    )


def encode(encoding: QuantizationEncoding) -> None:
    rows = np.random.default_rng(0).standard_normal((ELEMENTS // ROW, ROW), np.float32)
    quant_type = gguf.GGMLQuantizationType(encoding.gguf_id)
    title = f"encode {encoding.name}"
    try:
        gguf.quants.quantize(rows[:1], quant_type)
    except NotImplementedError:
        importance = np.random.default_rng(1).chisquare(1, ROW)
        alone(title, lambda: quantize(rows, encoding))
        alone(f"{title} weighted", lambda: quantize(rows, encoding, importance=importance))
        return
    compare(title, lambda: quantize(rows, encoding), lambda: gguf.quants.quantize(rows, quant_type))


def casts() -> None:
    numbers = np.random.default_rng(0).standard_normal(ELEMENTS, np.float32) * np.float32(0.02)
    for source, target in CASTS:
        values = numbers.astype(ml_dtypes.bfloat16).astype(source.to_numpy())
        wanted = target.to_numpy()
        compare(
            f"{source.name} -> {target.name}",
            lambda values=values, target=target: cast(values, target),
            lambda values=values, wanted=wanted: values.astype(wanted),
        )


def main(names: list[str]) -> None:
    print(machine())
    chosen = [one for one in QuantizationEncoding if not names or one.name in names]
    with np.errstate(all="ignore"):
        for encoding in chosen:
            if encoding in CODECS:
                decode(encoding)
        for encoding in chosen:
            if encoding in ENCODABLE:
                encode(encoding)
        if not names:
            casts()


if __name__ == "__main__":
    main(sys.argv[1:])
