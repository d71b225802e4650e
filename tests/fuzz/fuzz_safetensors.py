"""safetensors: a whole file, a header without its length, or an index with its shards."""

from __future__ import annotations

import json

import numpy as np
import safetensors.numpy
from harness import NEXT, Target, put, read_checkpoint, run

SHARDS = ("x-00001-of-00002.safetensors", "x-00002-of-00002.safetensors")
PAYLOAD = bytes(range(24))


def file_of(**arrays: np.ndarray) -> bytes:
    return safetensors.numpy.save(arrays, {"format": "pt"})


def seeds() -> list[bytes]:
    first = file_of(a=np.arange(3, dtype=np.int16), b=np.ones((2, 2), np.float32))
    second = file_of(c=np.ones((), np.float16))
    index = {"metadata": {"total_size": 24}, "weight_map": {"a": SHARDS[0], "c": SHARDS[1]}}
    header = {
        "a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]},
        "\x1b[1m": {"dtype": "F64", "shape": [1], "data_offsets": [16, 24]},
    }
    shards = NEXT.join([json.dumps(index).encode(), first, second])
    return [first, file_of(), json.dumps(header).encode(), shards]


def read(data: bytes) -> None:
    if NEXT in data:
        read_checkpoint(put(("model.safetensors.index.json", *SHARDS), data))
        return
    if data[:1] == b"{":
        data = len(data).to_bytes(8, "little") + data + PAYLOAD
    read_checkpoint(put(("model.safetensors",), data))


TARGET = Target(seeds, read, [b'"F8_E4M3"', b'"shape":[', b'"data_offsets":[', b"../link"])

if __name__ == "__main__":
    run(TARGET)
