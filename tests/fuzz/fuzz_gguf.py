"""GGUF: one file, or the parts of a split one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from harness import NEXT, Target, folder, put, read_checkpoint, run

from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.weights import TensorSpec
from maxtool.weights.formats import gguf

PARTS = ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf")
VALUES: dict[str, Any] = {
    "general.architecture": "llama",
    "general.alignment": np.uint32(8),
    "number": np.float64(0.5),
    "flag": True,
    "numbers": np.array([1, -2], np.int16),
    "texts": ["a", "", "bc"],
}


def file_of(metadata: dict[str, Any], *specs: TensorSpec) -> bytes:
    path = folder() / "seed"
    arrays = (np.zeros(spec.stored_shape, spec.stored_dtype) for spec in specs)
    gguf.write(path, specs, arrays, metadata)
    return path.read_bytes()


@cache
def seeds() -> list[bytes]:
    plain = TensorSpec("a", DType.float32, (2, 3))
    packed = TensorSpec("b", DType.float32, (2, 32), QuantizationEncoding.Q8_0)
    wide = TensorSpec("c", DType.float32, (256,), QuantizationEncoding.Q4_K)
    split = {"split.count": np.uint16(2), "split.tensors.count": np.int32(2)}
    parts = NEXT.join([file_of(split, plain), file_of(split, packed)])
    return [file_of(VALUES, plain, packed), file_of({}, wide), file_of(VALUES), parts]


def read(data: bytes) -> None:
    read_checkpoint(put(PARTS if NEXT in data else ("x.gguf",), data))


TARGET = Target(seeds, read, [b"general.alignment", b"split.count", b"GGUF\3\0\0\0"])

if __name__ == "__main__":
    run(TARGET)
